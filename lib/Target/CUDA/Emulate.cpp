// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs CUDA C++ on the host: the text, compiled over refold_cuda_emulated.h by
// a C++ compiler of the machine, once for each kernel.
#include "Machines.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include <climits>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <map>
#include <mutex>
#include <unistd.h>

using namespace refold;

namespace {
/// An array of a launch as the emulator checks it.
struct EmulatedRange {
  char *base;
  int64_t bytes;
  bool isResult, isDense, isLeft = false, isConstant = false;
};
using EmulatedLaunch = const char *(*)(unsigned entry, int64_t blocks,
                                       int threads, unsigned mode,
                                       const int64_t *values,
                                       const EmulatedRange *ranges,
                                       unsigned numRanges, int64_t sharedBytes);

/// A text that is compiled and loaded.
struct EmulatedText {
  void *library = nullptr;
  EmulatedLaunch launch = nullptr;
  std::mutex mutex; ///< the emulator is one machine
  ~EmulatedText() {
    if (library)
      ::dlclose(library);
  }
};

struct EmulatedKernel {
  CudaKernel kernel;
  std::shared_ptr<EmulatedText> text;
  std::optional<unsigned> wanted;
};
} // namespace

/// What calls the entries: appended to the text.
static std::string launcherText(const CudaKernel &kernel) {
  std::string text = R"(
template <typename T> static T value_of(const int64_t &word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof(T));
  return value;
}
template <typename... T, size_t... kAt>
static void call(void (*entry)(T...), const int64_t *values, std::index_sequence<kAt...>) {
  entry(value_of<T>(values[kAt])...);
}
extern "C" __attribute__((visibility("default"))) const char *refold_emulate(unsigned entry, int64_t blocks, int threads, unsigned mode,
                                      const int64_t *values, const refold::emulator::Range *ranges,
                                      unsigned num_ranges, int64_t shared_bytes) {
  static std::string error;
  refold::emulator::machine.isFollowing = true;
  error = refold::emulator::launch(
      blocks, threads, refold::emulator::kModes[mode], {ranges, ranges + num_ranges}, [=] {
        switch (entry) {
)";
  std::string sequence = "std::make_index_sequence<" +
                         std::to_string(kernel.parameters.size()) + ">{}";
  for (auto [i, entry] : llvm::enumerate(kernel.entries))
    text += "        case " + std::to_string(i) + ": return call(&" +
            entry.name + ", values, " + sequence + ");\n";
  return text +
         "        }\n      }, shared_bytes);\n  return error.c_str();\n}\n";
}

static llvm::Expected<std::string> findCompiler() {
  if (const char *named = std::getenv("REFOLD_HOST_CXX")) {
    if (auto path = llvm::sys::findProgramByName(named))
      return *path;
    return fail(ExitCode::Unsupported,
                "REFOLD_HOST_CXX is '" + llvm::Twine(named) +
                    "', expected a C++ compiler: the emulator needs it");
  }
  for (const char *name : {"clang++-19", "clang++", "g++"})
    if (auto path = llvm::sys::findProgramByName(name))
      return *path;
  return fail(ExitCode::Unsupported,
              "found no C++ compiler, expected clang++-19, clang++ or g++ in "
              "PATH, or one in REFOLD_HOST_CXX: the emulator needs it");
}

static llvm::Error writeTo(llvm::StringRef path, llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream file(path, code);
  if (!code) {
    file << text;
    file.close();
    code = file.error();
    file.clear_error();
  }
  if (code)
    return fail(ExitCode::Internal, path + ": " + code.message());
  return llvm::Error::success();
}

static std::string readAll(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// The library's path inside `folder`.
static llvm::Expected<std::string> compileIn(llvm::StringRef folder,
                                             const CudaKernel &kernel) {
  auto in = [&](llvm::StringRef name) { return (folder + "/" + name).str(); };
  for (auto [name, text] : cudaHeaders())
    if (llvm::Error error = writeTo(in(name), text))
      return std::move(error);
  std::string text = "#define REFOLD_CUDA_EMULATED\n#include <utility>\n" +
                     kernel.text + launcherText(kernel);
  if (llvm::Error error = writeTo(in("kernel.cpp"), text))
    return std::move(error);
  llvm::Expected<std::string> compiler = findCompiler();
  if (!compiler)
    return compiler.takeError();
  bool isClang = llvm::StringRef(*compiler).contains("clang");
  std::string output = in("kernel.so"), source = in("kernel.cpp"),
              messages = in("messages");
  llvm::SmallVector<llvm::StringRef> arguments = {*compiler,
                                                  "-std=c++20",
                                                  "-O1",
                                                  "-shared",
                                                  "-fPIC",
                                                  "-fvisibility=hidden",
                                                  "-ffp-contract=off",
                                                  source,
                                                  "-o",
                                                  output};
  if (isClang)
    arguments.push_back("-ftrivial-auto-var-init=pattern");
  std::optional<llvm::StringRef> redirects[] = {"", "", messages};
  int code =
      llvm::sys::ExecuteAndWait(*compiler, arguments, std::nullopt, redirects);
  if (code != 0)
    return fail(ExitCode::Internal, "'" + kernel.name +
                                        "': the host's compiler refuses the "
                                        "generated text: " +
                                        readAll(messages));
  return output;
}

/// The folder that is being used, for whoever interrupts.
static char openFolder[PATH_MAX];

/// Runs in a signal handler: what may be in the folder goes, then the folder.
static void removeOpenFolder() {
  auto remove = [](const char *name) {
    char path[PATH_MAX + 64];
    ::strcpy(path, openFolder);
    ::strcat(path, "/");
    ::strncat(path, name, 60);
    ::unlink(path);
  };
  for (const auto &[name, text] : cudaHeaders())
    remove(name.data());
  for (const char *name : {"kernel.cpp", "kernel.so", "messages"})
    remove(name);
  ::rmdir(openFolder);
  ::_exit(128 + SIGINT);
}

static llvm::Error load(const CudaKernel &kernel, EmulatedText &result) {
  llvm::SmallString<128> folder;
  if (std::error_code code =
          llvm::sys::fs::createUniqueDirectory("refold-cuda", folder))
    return fail(ExitCode::Internal,
                "no folder for the emulated kernel: " + code.message());
  ::strncpy(openFolder, folder.c_str(), sizeof(openFolder) - 1);
  llvm::sys::SetInterruptFunction(removeOpenFolder);
  auto cleanUp = llvm::make_scope_exit([&] {
    llvm::sys::fs::remove_directories(folder);
    llvm::sys::SetInterruptFunction(nullptr);
  });
  llvm::Expected<std::string> path = compileIn(folder, kernel);
  if (!path)
    return path.takeError();
  result.library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!result.library)
    return fail(ExitCode::Internal,
                llvm::Twine("the emulated kernel: ") + ::dlerror());
  result.launch = reinterpret_cast<EmulatedLaunch>(
      ::dlsym(result.library, "refold_emulate"));
  if (!result.launch)
    return fail(ExitCode::Internal, "the emulated kernel has no launch");
  return llvm::Error::success();
}

/// Forms of a program share kernels, and the compiler takes seconds for one.
static llvm::Expected<std::shared_ptr<EmulatedText>>
find(const CudaKernel &kernel) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<EmulatedText>> known;
  std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<EmulatedText> &kept = known[kernel.text];
  if (std::shared_ptr<EmulatedText> found = kept.lock())
    return found;
  auto made = std::make_shared<EmulatedText>();
  if (llvm::Error error = load(kernel, *made))
    return std::move(error);
  kept = made;
  return made;
}

/// What the launch may touch.
static std::vector<EmulatedRange> rangesOf(const CudaKernel &kernel,
                                           const int64_t *words) {
  std::vector<EmulatedRange> ranges;
  for (const CudaOperand &o : kernel.operands) {
    if (!o.isArray)
      continue;
    const int64_t *sizes = words + o.word + 3, *strides = sizes + o.rank;
    int64_t last = 0, count = 1;
    for (unsigned dim = 0; dim < o.rank; ++dim) {
      last += (sizes[dim] - 1) * strides[dim];
      count *= sizes[dim];
    }
    int64_t bytes = count == 0 ? 0 : (last + 1) * o.elementBytes;
    auto *base = reinterpret_cast<char *>(words[o.word + 1] +
                                          words[o.word + 2] * o.elementBytes);
    ranges.push_back({base, bytes, o.isResult, o.isResult && count == last + 1,
                      false, o.isConstant});
  }
  return ranges;
}

/// All results, one after the other.
static std::string resultsOf(llvm::ArrayRef<EmulatedRange> ranges) {
  std::string all;
  for (const EmulatedRange &range : ranges)
    if (range.isResult)
      all.append(range.base, range.bytes);
  return all;
}

static llvm::Error runEmulated(EmulatedKernel &emulated, const int64_t *words) {
  const CudaKernel &kernel = emulated.kernel;
  // What blocks share: the workspace holds nothing that anybody knows.
  struct alignas(256) Line {
    uint32_t words[64];
  };
  std::vector<Line> workspace(
      size_t(cudaWorkspaceBytes(kernel, words, emulated.wanted) + 255) / 256);
  int64_t numTickets = 0;
  for (const CudaEntry &entry : kernel.entries)
    numTickets = std::max(numTickets, entry.mostBlocks);
  std::vector<uint32_t> tickets(size_t(numTickets), 0);
  auto address = [](auto &memory) {
    return int64_t(reinterpret_cast<intptr_t>(memory.data()));
  };
  auto launch = planCudaLaunch(kernel, words, emulated.wanted,
                               {address(workspace), address(tickets)});
  if (!launch)
    return launch.takeError();
  if (!*launch)
    return llvm::Error::success();
  std::lock_guard<std::mutex> lock(emulated.text->mutex);
  std::vector<EmulatedRange> ranges = rangesOf(kernel, words);
  ranges.push_back({reinterpret_cast<char *>(workspace.data()),
                    int64_t(workspace.size() * sizeof(Line)), false, false,
                    true});
  ranges.push_back({reinterpret_cast<char *>(tickets.data()),
                    int64_t(tickets.size() * 4), false, false, true});
  constexpr unsigned kModes = 4;
  std::string first;
  for (unsigned mode = 0; mode < kModes; ++mode) {
    for (Line &line : workspace)
      std::fill(std::begin(line.words), std::end(line.words), ~0u);
    const char *error = emulated.text->launch(
        (*launch)->entry, (*launch)->blocks, (*launch)->threads, mode,
        (*launch)->values.data(), ranges.data(), ranges.size(),
        (*launch)->sharedBytes);
    std::string where = "'" + kernel.entries[(*launch)->entry].name +
                        "', mode " + std::to_string(mode) + ": ";
    if (*error)
      return fail(ExitCode::Mismatch, where + error);
    if (llvm::any_of(tickets, [](uint32_t ticket) { return ticket != 0; }))
      return fail(ExitCode::Mismatch,
                  where + "a ticket is not left as it was found");
    std::string found = resultsOf(ranges);
    if (mode == 0)
      first = std::move(found);
    else if (found != first)
      return fail(ExitCode::Mismatch,
                  where + "found other bits than in mode 0");
  }
  return llvm::Error::success();
}

llvm::Expected<KernelLauncher> refold::makeEmulated(const CudaKernel &kernel) {
  auto emulated = std::make_shared<EmulatedKernel>();
  emulated->kernel = kernel;
  // Of one kernel where it is named: "product0_64x64x8".
  llvm::StringRef entry =
      std::getenv("REFOLD_CUDA_ENTRY") ? std::getenv("REFOLD_CUDA_ENTRY") : "";
  bool isOfOther =
      entry.contains('_') && entry.rsplit('_').first != kernel.name;
  if (!entry.empty() && !isOfOther) {
    for (auto [i, one] : llvm::enumerate(kernel.entries))
      if (llvm::StringRef(one.name).ends_with(entry))
        emulated->wanted = i;
    if (!emulated->wanted)
      return fail(ExitCode::Usage, "REFOLD_CUDA_ENTRY is '" + entry +
                                       "', expected an entry of '" +
                                       kernel.name + "'");
  }
  auto text = find(kernel);
  if (!text)
    return text.takeError();
  emulated->text = std::move(*text);
  return KernelLauncher([emulated](const int64_t *words) {
    return runEmulated(*emulated, words);
  });
}
