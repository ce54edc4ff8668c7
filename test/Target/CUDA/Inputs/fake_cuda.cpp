// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A GPU that is none: the functions of the driver and of NVRTC that are used,
// over the emulator. "Machine code" is a shared library that the host's
// compiler makes of the text. device_test.py builds it. The environment says
// what it is and what fails:
//   FAKE_CUDA_LOG         a file that gets a line a call
//   FAKE_CUDA_FAIL        FUNCTION=CODE or FUNCTION=CODE@N (the Nth call)
//   FAKE_CUDA_CAPABILITY  9.0
//   FAKE_CUDA_VERSION     12020: of the driver; from 12030 on launches are
//   early FAKE_CUDA_MEMORY      bytes that may be allocated FAKE_CUDA_CAPTURE
//   1: every stream captures a graph FAKE_CUDA_HEADERS     the folder of
//   refold_cuda.h FAKE_CUDA_CXX         the compiler
//   FAKE_CUDA_TIMES       ENTRY=MS,ENTRY/BLOCKS=MS: what launches take (1 ms)
//   FAKE_CUDA_IDLE        an entry whose launches do nothing
//   FAKE_CUDA_FLAGS       its flags, with those of precompiled headers
//   FAKE_CUDA_KEPT        a folder where what was compiled is found again
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <elf.h>
#include <fstream>
#include <map>
#include <mutex>
#include <regex>
#include <sstream>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

namespace {

std::string setting(const char *name, const char *otherwise) {
  const char *value = std::getenv(name);
  return value ? value : otherwise;
}

void log(const std::string &line) {
  static std::string path = setting("FAKE_CUDA_LOG", "");
  if (path.empty())
    return;
  if (FILE *file = std::fopen(path.c_str(), "a")) {
    std::fprintf(file, "%s\n", line.c_str());
    std::fclose(file);
  }
}

/// What the call has to answer, 0 unless it is to fail.
int begin(const std::string &name, const std::string &what = "") {
  static std::mutex mutex; // NVRTC is called by several threads
  std::lock_guard<std::mutex> lock(mutex);
  log(name + (what.empty() ? "" : " " + what));
  static std::map<std::string, int> calls;
  int call = ++calls[name];
  std::stringstream wanted(setting("FAKE_CUDA_FAIL", ""));
  for (std::string one; std::getline(wanted, one, ',');) {
    size_t equals = one.find('='), at = one.find('@');
    if (one.substr(0, equals) == name &&
        (at == std::string::npos || std::stoi(one.substr(at + 1)) == call))
      return std::stoi(one.substr(equals + 1));
  }
  return 0;
}

struct Range {
  char *base;
  int64_t bytes;
  bool isResult, isDense, isLeft = false, isConstant = false;
};
using FakeLaunch = const char *(*)(const char *entry, int64_t blocks,
                                   int threads, int64_t sharedBytes,
                                   void **parameters, const Range *ranges,
                                   unsigned numRanges);
struct Module {
  void *library;
  FakeLaunch launch;
};
struct Function {
  Module *module;
  std::string name;
  /// Bytes of shared memory that a launch may ask for: 48 KB, less what the
  /// kernel has besides.
  int most = (48 << 10) - 512;
};
struct Event {
  double at;
};
/// Launches that were captured: they take their time when it is launched, and
/// compute nothing anew.
struct Graph {
  double ms;
};

std::map<uint64_t, size_t> memory;
size_t used = 0;
int stuck = 0;           ///< a kernel went wrong: every later call says so
int depth = 0;           ///< contexts pushed
double now = 0.0;        ///< milliseconds
bool isCaptured = false; ///< launches go to `captured`
double captured = 0.0;

/// What a launch takes, by the name of its entry.
double timeOf(const std::string &name, unsigned blocks) {
  std::stringstream times(setting("FAKE_CUDA_TIMES", ""));
  double found = 1.0;
  bool isExact = false;
  for (std::string one; std::getline(times, one, ',');) {
    size_t equals = one.find('=');
    std::string of = one.substr(0, equals);
    bool isOfBlocks = of == name + "/" + std::to_string(blocks);
    if (isOfBlocks || (of == name && !isExact))
      found = std::stod(one.substr(equals + 1));
    isExact |= isOfBlocks;
  }
  return found;
}

constexpr int kIllegalAddress = 700, kNotCurrent = 201, kNotFound = 500;

int answer(int failure) {
  return failure ? failure : stuck ? stuck : depth > 0 ? 0 : kNotCurrent;
}

} // namespace

extern "C" {

int cuInit(unsigned) { return begin("cuInit"); }
int cuGetErrorName(int error, const char **name) {
  *name = error == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == 100 ? "CUDA_ERROR_NO_DEVICE"
          : error == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
                         : "CUDA_ERROR_FAKE";
  return 0;
}
int cuGetErrorString(int error, const char **text) {
  *text = error == 2     ? "out of memory"
          : error == 100 ? "no CUDA-capable device is detected"
          : error == 700 ? "an illegal memory access was encountered"
                         : "a fake error";
  return 0;
}
int cuDeviceGet(int *device, int ordinal) {
  *device = ordinal;
  return begin("cuDeviceGet");
}
int cuDeviceGetCount(int *count) {
  *count = std::stoi(setting("FAKE_CUDA_COUNT", "1"));
  return begin("cuDeviceGetCount");
}
int cuDeviceGetName(char *name, int bytes, int) {
  std::snprintf(name, size_t(bytes), "Fake GPU");
  return begin("cuDeviceGetName");
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  std::string capability = setting("FAKE_CUDA_CAPABILITY", "9.0");
  int dot = int(capability.find('.'));
  switch (attribute) {
  case 75:
    *value = std::stoi(capability.substr(0, size_t(dot)));
    break;
  case 76:
    *value = std::stoi(capability.substr(size_t(dot) + 1));
    break;
  case 16:
    *value = 4;
    break;
  case 97:
    *value = std::stoi(setting("FAKE_CUDA_SHARED", "227")) << 10;
    break;
  default:
    *value = 1 << 20;
  }
  return begin("cuDeviceGetAttribute");
}
int cuDeviceTotalMem_v2(size_t *bytes, int) {
  *bytes = std::stoull(setting("FAKE_CUDA_MEMORY", "1073741824"));
  return begin("cuDeviceTotalMem_v2");
}
int cuDevicePrimaryCtxRetain(void **context, int) {
  *context = &memory;
  return begin("cuDevicePrimaryCtxRetain");
}
int cuDevicePrimaryCtxRelease_v2(int) {
  return begin("cuDevicePrimaryCtxRelease_v2");
}
int cuCtxPushCurrent_v2(void *) { return ++depth, 0; }
int cuCtxPopCurrent_v2(void **) { return --depth, 0; }

int cuModuleLoadData(void **module, const void *image) {
  if (int failure = answer(begin("cuModuleLoadData")))
    return failure;
  const auto *head = static_cast<const Elf64_Ehdr *>(image);
  if (std::memcmp(head->e_ident, ELFMAG, SELFMAG))
    return 200;
  size_t bytes = head->e_shoff + size_t(head->e_shnum) * head->e_shentsize;
  int file = memfd_create("fake", 0);
  if (file < 0 || write(file, image, bytes) != ssize_t(bytes))
    return 304;
  std::string path = "/proc/self/fd/" + std::to_string(file);
  void *library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return 200;
  *module = new Module{library, reinterpret_cast<FakeLaunch>(
                                    dlsym(library, "refold_fake_launch"))};
  return 0;
}
int cuModuleUnload(void *module) {
  delete static_cast<Module *>(module);
  return begin("cuModuleUnload");
}
int cuModuleGetFunction(void **function, void *module, const char *name) {
  if (int failure = answer(begin("cuModuleGetFunction", name)))
    return failure;
  auto *loaded = static_cast<Module *>(module);
  if (!dlsym(loaded->library, name))
    return kNotFound;
  *function = new Function{loaded, name};
  return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  if (attribute == 8)
    static_cast<Function *>(function)->most = value;
  return answer(begin("cuFuncSetAttribute",
                      std::to_string(attribute) + " " + std::to_string(value)));
}

int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz,
                   unsigned bx, unsigned by, unsigned bz, unsigned shared,
                   void *, void **parameters, void **) {
  auto *wanted = static_cast<Function *>(function);
  std::string what = wanted->name + " " + std::to_string(gx) + " " +
                     std::to_string(bx) + " " + std::to_string(shared);
  if (int failure = answer(begin("cuLaunchKernel", what)))
    return failure;
  if (gy * gz * by * bz != 1 || shared > unsigned(wanted->most))
    return 1;
  (isCaptured ? captured : now) += timeOf(wanted->name, gx);
  if (isCaptured || wanted->name == setting("FAKE_CUDA_IDLE", ""))
    return 0;
  // What is allocated may be read, written once a launch, and shared by blocks.
  std::vector<Range> ranges;
  for (auto [address, bytes] : memory) {
    auto *base = reinterpret_cast<char *>(address);
    ranges.push_back({base, int64_t(bytes), false, false});
    ranges.push_back({base, int64_t(bytes), true, false});
    ranges.push_back({base, int64_t(bytes), false, false, true});
  }
  const char *error =
      wanted->module->launch(wanted->name.c_str(), gx, int(bx), shared,
                             parameters, ranges.data(), ranges.size());
  if (*error) {
    log(std::string("fault ") + error);
    stuck = kIllegalAddress;
  }
  return 0;
}

#ifndef FAKE_CUDA_OF_BEFORE_MAPS
/// As the emulator reads it (kMapWords of refold_cuda_emulated_roles.h), where
/// the driver would take it.
int cuTensorMapEncodeTiled(int64_t *map, int type, unsigned rank, void *first,
                           const uint64_t *extents, const uint64_t *strides,
                           const unsigned *box, const unsigned *apart,
                           int interleave, int swizzle, int promotion,
                           int fill) {
  std::string what = std::to_string(rank);
  for (unsigned i = 0; i < rank; ++i)
    what += " " + std::to_string(extents[i]);
  if (int failure = answer(begin("cuTensorMapEncodeTiled", what)))
    return failure;
  bool isTaken = rank >= 2 && rank <= 5 && type == 0 && interleave == 0 &&
                 swizzle == 3 && promotion == 0 && fill == 0 &&
                 uint64_t(map) % 64 == 0 && uint64_t(first) % 16 == 0 &&
                 box[0] == 128 && box[1] >= 1 && box[1] <= 256;
  for (unsigned i = 0; i < rank; ++i)
    isTaken &= extents[i] >= 1 && extents[i] <= uint64_t(1) << 32 &&
               apart[i] == 1 && (i < 2 || box[i] == 1) &&
               (i == 0 || (strides[i - 1] % 16 == 0 &&
                           strides[i - 1] < uint64_t(1) << 40));
  if (!isTaken)
    return 1;
  std::memset(map, 0, 128);
  map[0] = int64_t(uint64_t(first));
  map[1] = int64_t(extents[0]);
  map[2] = box[1];
  for (unsigned i = 0; i < 4; ++i) {
    map[3 + i] = i + 1 < rank ? int64_t(extents[i + 1]) : 1;
    map[7 + i] = i + 1 < rank ? int64_t(strides[i]) : 16;
  }
  map[11] = rank - 1;
  return 0;
}
#endif

/// Blocks of a cluster, which the entry's name says: ..._ring4x256x2x8.
static int clusterOf(const Function &function) {
  for (const char *kind : {"_cluster", "_ring"})
    if (size_t at = function.name.find(kind); at != std::string::npos)
      return std::stoi(function.name.substr(at + std::string(kind).size()));
  return 0;
}
int cuFuncGetAttribute(int *value, int attribute, void *function) {
  *value = attribute == 11 ? clusterOf(*static_cast<Function *>(function)) : 0;
  return 0;
}

struct LaunchAttribute {
  int id, padding, isAllowed;
  char rest[60];
};
struct LaunchConfig {
  unsigned grid[3], block[3], shared;
  void *stream;
  const LaunchAttribute *attributes;
  unsigned numAttributes;
};
int cuDriverGetVersion(int *version) {
  *version = std::stoi(setting("FAKE_CUDA_VERSION", "12020"));
  return 0;
}
/// As many as FAKE_CUDA_CLUSTERS says.
int cuOccupancyMaxActiveClusters(int *count, void *function,
                                 const LaunchConfig *config) {
  const int blocks = clusterOf(*static_cast<Function *>(function));
  if (blocks == 0 || config->grid[0] % unsigned(blocks) ||
      config->numAttributes != 0)
    return 1;
  *count = std::stoi(setting("FAKE_CUDA_CLUSTERS", "2"));
  return 0;
}
/// Everything that was launched before is done: a log says that it need not be.
int cuLaunchKernelEx(const LaunchConfig *config, void *function,
                     void **parameters, void **extra) {
  if (config->numAttributes != 1 || config->attributes->id != 6 ||
      config->attributes->isAllowed != 1)
    return 1;
  log("early");
  return cuLaunchKernel(function, config->grid[0], config->grid[1],
                        config->grid[2], config->block[0], config->block[1],
                        config->block[2], config->shared, config->stream,
                        parameters, extra);
}

int cuMemAlloc_v2(uint64_t *address, size_t bytes) {
  if (int failure = answer(begin("cuMemAlloc_v2", std::to_string(bytes))))
    return failure;
  if (used + bytes > std::stoull(setting("FAKE_CUDA_MEMORY", "1073741824")))
    return 2;
  void *block = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
  std::memset(block, 0xff, bytes);
  *address = reinterpret_cast<uint64_t>(block);
  memory[*address] = bytes;
  used += bytes;
  return 0;
}
int cuMemFree_v2(uint64_t address) {
  auto found = memory.find(address);
  if (found == memory.end())
    return 1;
  used -= found->second;
  memory.erase(found);
  std::free(reinterpret_cast<void *>(address));
  return begin("cuMemFree_v2");
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *) {
  if (int failure = answer(begin("cuMemcpyHtoDAsync_v2")))
    return failure;
  std::memcpy(reinterpret_cast<void *>(to), from, bytes);
  return 0;
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *) {
  if (int failure = answer(begin("cuMemcpyDtoHAsync_v2")))
    return failure;
  std::memcpy(to, reinterpret_cast<void *>(from), bytes);
  return 0;
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *) {
  if (int failure = answer(begin("cuMemcpyDtoDAsync_v2")))
    return failure;
  std::memmove(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from),
               bytes);
  now += 0.5;
  return 0;
}
int cuStreamCreate(void **stream, unsigned) {
  *stream = &memory;
  return answer(begin("cuStreamCreate"));
}
int cuStreamDestroy_v2(void *) { return begin("cuStreamDestroy_v2"); }
int cuStreamIsCapturing(void *, int *status) {
  *status = std::stoi(setting("FAKE_CUDA_CAPTURE", "0"));
  return answer(begin("cuStreamIsCapturing"));
}
int cuStreamSynchronize(void *) { return answer(begin("cuStreamSynchronize")); }
int cuEventCreate(void **event, unsigned) {
  *event = new Event{0.0};
  return answer(begin("cuEventCreate"));
}
int cuEventDestroy_v2(void *event) {
  delete static_cast<Event *>(event);
  return 0;
}
int cuEventRecord(void *event, void *) {
  now += 1e-6;
  static_cast<Event *>(event)->at = now;
  return answer(begin("cuEventRecord"));
}
int cuEventSynchronize(void *) { return answer(begin("cuEventSynchronize")); }
int cuEventElapsedTime(float *ms, void *first, void *last) {
  *ms = float(static_cast<Event *>(last)->at - static_cast<Event *>(first)->at);
  return answer(begin("cuEventElapsedTime"));
}

#ifndef FAKE_CUDA_WITHOUT_GRAPHS
int cuStreamBeginCapture_v2(void *, int mode) {
  if (isCaptured || mode != 1)
    return 1;
  isCaptured = true;
  captured = 0.0;
  return answer(begin("cuStreamBeginCapture_v2"));
}
int cuStreamEndCapture(void *, void **graph) {
  isCaptured = false;
  *graph = new Graph{captured};
  return answer(begin("cuStreamEndCapture"));
}
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long) {
  *made = new Graph(*static_cast<Graph *>(graph));
  return answer(begin("cuGraphInstantiateWithFlags"));
}
int cuGraphLaunch(void *graph, void *) {
  now += static_cast<Graph *>(graph)->ms;
  return answer(begin("cuGraphLaunch"));
}
int cuGraphExecDestroy(void *graph) {
  delete static_cast<Graph *>(graph);
  return begin("cuGraphExecDestroy");
}
int cuGraphDestroy(void *graph) {
  delete static_cast<Graph *>(graph);
  return begin("cuGraphDestroy");
}
#endif

//===----------------------------------------------------------------------===//
// NVRTC
//===----------------------------------------------------------------------===//

struct FakeProgram {
  std::string text, log, code;
};

int nvrtcVersion(int *major, int *minor) {
  *major = 13;
  *minor = 0;
  return begin("nvrtcVersion");
}
static std::vector<std::string> entriesOf(const std::string &text) {
  std::regex kernel(
      "REFOLD_(?:UNIT_|CLUSTER_)?KERNEL\\([\\d, ]+\\)\\s+(\\w+)\\(");
  std::vector<std::string> names;
  for (std::sregex_iterator at(text.begin(), text.end(), kernel), end;
       at != end; ++at)
    names.push_back((*at)[1]);
  return names;
}

int nvrtcCreateProgram(void **program, const char *text, const char *, int,
                       const char *const *, const char *const *) {
  *program = new FakeProgram{text, "", ""};
  std::string names;
  for (const std::string &name : entriesOf(text))
    names += (names.empty() ? "" : " ") + name;
  return begin("nvrtcCreateProgram", names);
}
int nvrtcDestroyProgram(void **program) {
  delete static_cast<FakeProgram *>(*program);
  return 0;
}

/// Calls the entries by name: appended to the text.
static std::string launcherOf(const std::string &text) {
  std::string launcher = R"(
#include <utility>
template <typename T> static T fake_value(void *cell) {
  T value;
  __builtin_memcpy(&value, cell, sizeof(T));
  return value;
}
template <typename... T, size_t... kAt>
static void fake_call(void (*entry)(T...), void **cells, std::index_sequence<kAt...>) {
  entry(fake_value<T>(cells[kAt])...);
}
template <typename... T> static void fake_entry(void (*entry)(T...), void **cells) {
  fake_call(entry, cells, std::index_sequence_for<T...>{});
}
extern "C" __attribute__((visibility("default"))) const char *refold_fake_launch(
    const char *name, int64_t blocks, int threads, int64_t shared_bytes, void **cells,
    const refold::emulator::Range *ranges, unsigned num_ranges) {
  static std::string error;
  const std::string wanted = name;
  error = refold::emulator::launch(blocks, threads, refold::emulator::kModes[2],
                                   {ranges, ranges + num_ranges}, [=] {
)";
  for (const std::string &name : entriesOf(text))
    launcher += "    if (wanted == \"" + name +
                "\")\n      return fake_entry(&" + name + ", cells);\n";
  return launcher + "  }, shared_bytes);\n  return error.c_str();\n}\n";
}

static std::string readFile(const std::string &path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Of a text and the flags that change what is made of it: all but paths, which
/// are those of one process (of precompiled headers).
static std::string keyOf(const std::string &text) {
  std::string all = setting("FAKE_CUDA_CXX", "") + "\n" + text;
  std::istringstream flags(setting("FAKE_CUDA_FLAGS", ""));
  for (std::string flag; flags >> flag;)
    if (flag.find('/') == std::string::npos)
      all += "\n" + flag;
  return std::to_string(std::hash<std::string>()(all));
}

int nvrtcCompileProgram(void *handle, int count, const char *const *options) {
  auto *program = static_cast<FakeProgram *>(handle);
  std::string all;
  for (int i = 0; i < count; ++i)
    all += std::string(i ? " " : "") + options[i];
  if (int failure = begin("nvrtcCompileProgram", all)) {
    program->log = "a fake refusal";
    return failure;
  }
  std::string text = "#define REFOLD_CUDA_EMULATED\n" + program->text +
                     launcherOf(program->text);
  std::string folder = setting("FAKE_CUDA_KEPT", "");
  std::string kept = folder + "/" + keyOf(text) + ".so";
  program->log.clear();
  program->code = folder.empty() ? "" : readFile(kept);
  if (!program->code.empty())
    return 0;
  std::string base = setting("TMPDIR", P_tmpdir) + "/fake-cuda-XXXXXX";
  if (!mkdtemp(base.data()))
    return 1;
  std::string source = base + "/kernel.cpp", output = base + "/kernel.so",
              messages = base + "/messages";
  std::ofstream(source) << text;
  std::string command = setting("FAKE_CUDA_CXX", "clang++-19") + " " +
                        setting("FAKE_CUDA_FLAGS", "-std=c++20 -fPIC") +
                        " -shared -I" + setting("FAKE_CUDA_HEADERS", ".") +
                        " " + source + " -o " + output + " 2>" + messages;
  int failed = std::system(command.c_str());
  program->code = readFile(output);
  program->log = readFile(messages);
  if (!failed && !folder.empty()) {
    std::string half =
        folder + "/" + std::to_string(getpid()) + base.substr(base.size() - 6);
    std::ofstream(half, std::ios::binary) << program->code;
    std::rename(half.c_str(), kept.c_str());
  }
  for (const std::string &path : {source, output, messages})
    unlink(path.c_str());
  rmdir(base.c_str());
  return failed ? 6 : 0;
}
int nvrtcGetProgramLogSize(void *program, size_t *bytes) {
  *bytes = static_cast<FakeProgram *>(program)->log.size() + 1;
  return 0;
}
int nvrtcGetProgramLog(void *program, char *log) {
  std::strcpy(log, static_cast<FakeProgram *>(program)->log.c_str());
  return 0;
}
int nvrtcGetCUBINSize(void *program, size_t *bytes) {
  *bytes = static_cast<FakeProgram *>(program)->code.size();
  return 0;
}
int nvrtcGetCUBIN(void *program, char *code) {
  const std::string &from = static_cast<FakeProgram *>(program)->code;
  std::memcpy(code, from.data(), from.size());
  return 0;
}
}
