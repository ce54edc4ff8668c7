// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Runs CUDA C++ on the host: the text, compiled over refold_cuda_emulated.h by
// a C++ compiler of the machine, once for each entry that is launched.
#include "EmulatorHeaders.h"
#include "Machines.h"
#include "refold/Support/Error.h"
#include "refold/Support/WriteFile.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
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
/// As the emulator has them (kMapWords).
static_assert(sizeof(package::MapValues) == 12 * sizeof(int64_t));
using EmulatedLaunch = const char *(*)(int64_t blocks, int threads,
                                       unsigned mode, const int64_t *values,
                                       const int64_t *maps,
                                       const EmulatedRange *ranges,
                                       unsigned numRanges, int64_t sharedBytes);

/// A text, of which each entry is compiled when it is first launched.
struct EmulatedText {
  struct Entry {
    void *library = nullptr;
    EmulatedLaunch launch = nullptr;
  };
  std::vector<Entry> entries;
  std::mutex mutex; ///< the emulator is one machine
  ~EmulatedText() {
    for (const Entry &entry : entries)
      if (entry.library)
        ::dlclose(entry.library);
  }
};

struct EmulatedKernel {
  CudaKernel kernel;
  std::shared_ptr<EmulatedText> text;
  std::optional<unsigned> wanted;
};
} // namespace

/// What calls an entry: appended to the text.
static std::string launcherText(const CudaKernel &kernel, unsigned entry) {
  std::string text = R"(
template <typename T> static T value_of(const int64_t &word) {
  T value;
  __builtin_memcpy(&value, &word, sizeof(T));
  return value;
}
template <typename T> struct Parameter {
  static T at(size_t number, const int64_t *values, const int64_t *) { return value_of<T>(values[number]); }
};
MAPS
template <typename... T, size_t... kAt>
static void call(void (*entry)(T...), const int64_t *values, const int64_t *maps, std::index_sequence<kAt...>) {
  entry(Parameter<T>::at(kAt, values, maps)...);
}
template <typename... T>
static void call(void (*entry)(T...), const int64_t *values, const int64_t *maps) {
  call(entry, values, maps, std::index_sequence_for<T...>());
}
extern "C" __attribute__((visibility("default"))) const char *refold_emulate(int64_t blocks, int threads, unsigned mode,
                                      const int64_t *values, [[maybe_unused]] const int64_t *maps,
                                      const refold::emulator::Range *ranges,
                                      unsigned num_ranges, int64_t shared_bytes) {
  static std::string error;
  refold::emulator::machine.isFollowing = true;
  error = refold::emulator::launch(
      blocks, threads, refold::emulator::kModes[mode], {ranges, ranges + num_ranges}, [=] {
)";
  // Of entries whose text knows of maps.
  constexpr const char *kOfMaps = R"(
template <int kCount> struct Parameter<refold::ArrayMaps<kCount>> {
  static refold::ArrayMaps<kCount> at(size_t, const int64_t *, const int64_t *maps) {
    return refold::emulator::mapsOf<kCount>(maps);
  }
};
)";
  constexpr const char *kPlace = "MAPS\n";
  text.replace(text.find(kPlace), std::strlen(kPlace),
               kernel.entries[entry].maps.empty() ? "" : kOfMaps);
  return text + "        call(&" + kernel.entries[entry].name +
         "<>, values, maps);\n      }, shared_bytes);\n  return "
         "error.c_str();\n}\n";
}

static std::string readAll(llvm::StringRef path) {
  auto buffer = llvm::MemoryBuffer::getFile(path);
  return buffer ? (*buffer)->getBuffer().str() : std::string();
}

/// Says that `folder` has no room for what a compiler makes; Ok where it has.
/// Asked of the file system: what the compiler had begun is gone again.
static WriteFailure findNoRoom(llvm::StringRef folder) {
  constexpr off_t kRoom = off_t(16) << 20;
  std::string path = (folder + "/room").str();
  int descriptor = ::open(path.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (descriptor < 0)
    return writeFailure(folder.str(), errno);
  int code = ::posix_fallocate(descriptor, 0, kRoom);
  ::close(descriptor);
  ::unlink(path.c_str());
  return code ? writeFailure(folder.str(), code) : WriteFailure();
}

/// Why the host's compiler made nothing. What has no room left is a limit,
/// whatever the compiler says: its words may have had none, and crashes of
/// clang and linkers do not tell.
static llvm::Error refused(const CudaKernel &kernel, llvm::StringRef folder,
                           const std::string &messages) {
  WriteFailure failure = findNoRoom(folder);
  if (failure.code == ExitCode::Limit)
    return fail(failure.code, failure.message +
                                  "; the host's compiler ends with: '" +
                                  messages + "'");
  return fail(ExitCode::Internal, "'" + kernel.name +
                                      "': the host's compiler refuses the "
                                      "generated text: " +
                                      messages);
}

/// Where a library is kept that is made of `text`, beside the headers that it
/// was compiled with; empty where these are kept nowhere. The name of their
/// folder is that of everything else that it depends on.
static std::string keptPath(const EmulatorCompiler &compiler,
                            llvm::StringRef text) {
  if (compiler.headers.empty())
    return "";
  llvm::XXH128_hash_t hash =
      llvm::xxh3_128bits(llvm::arrayRefFromStringRef(text));
  return compiler.headers + "/" + llvm::utohexstr(hash.high64) + "-" +
         llvm::utohexstr(hash.low64) + ".so";
}

/// The library's path: inside `folder`, or where it is kept.
static llvm::Expected<std::string>
compileIn(llvm::StringRef folder, const CudaKernel &kernel, unsigned entry) {
  llvm::Expected<EmulatorCompiler> compiler = findEmulatorCompiler();
  if (!compiler)
    return compiler.takeError();
  auto in = [&](llvm::StringRef name) { return (folder + "/" + name).str(); };
  if (compiler->headers.empty())
    if (llvm::Error error = writeEmulatorHeaders(folder))
      return std::move(error);
  std::string source = in("kernel.cpp"), output = in("kernel.so"),
              messages = in("messages");
  std::string text =
      "#include <utility>\n" + kernel.text + launcherText(kernel, entry);
  std::string kept = keptPath(*compiler, text);
  if (!kept.empty() && llvm::sys::fs::exists(kept))
    return kept;
  if (llvm::Error error = writeForEmulator(source, text))
    return std::move(error);
  llvm::SmallVector<llvm::StringRef> arguments = {compiler->path};
  arguments.append(compiler->flags.begin(), compiler->flags.end());
  std::string headers = "-I" + compiler->headers;
  if (!compiler->headers.empty())
    arguments.push_back(headers);
  arguments.append({"-shared", source, "-o", output});
  for (const std::string *word : {&compiler->object, &compiler->linker})
    if (!word->empty())
      arguments.push_back(*word);
  std::optional<llvm::StringRef> redirects[] = {"", "", messages};
  if (llvm::sys::ExecuteAndWait(compiler->path, arguments, std::nullopt,
                                redirects) != 0)
    return refused(kernel, folder, readAll(messages));
  // Whole or not at all; from another file system it stays where it is.
  if (!kept.empty() && !llvm::sys::fs::rename(output, kept))
    return kept;
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
  for (const char *name :
       {"refold_cuda_prefix.h", "kernel.cpp", "kernel.so", "messages"})
    remove(name);
  ::rmdir(openFolder);
  ::_exit(128 + SIGINT);
}

/// Where folders of emulated kernels are made there is no room, or no folder.
static llvm::Error noFolder(std::error_code code) {
  llvm::SmallString<128> where;
  llvm::sys::path::system_temp_directory(/*ErasedOnReboot=*/true, where);
  WriteFailure failure = writeFailure(where.str().str(), code.value());
  return fail(failure.code, failure.message);
}

static llvm::Expected<EmulatedText::Entry> load(const CudaKernel &kernel,
                                                unsigned entry) {
  static std::mutex mutex; // of `openFolder`
  std::lock_guard<std::mutex> lock(mutex);
  llvm::SmallString<128> folder;
  if (std::error_code code =
          llvm::sys::fs::createUniqueDirectory("refold-cuda", folder))
    return noFolder(code);
  ::strncpy(openFolder, folder.c_str(), sizeof(openFolder) - 1);
  llvm::sys::SetInterruptFunction(removeOpenFolder);
  auto cleanUp = llvm::make_scope_exit([&] {
    llvm::sys::fs::remove_directories(folder);
    llvm::sys::SetInterruptFunction(nullptr);
  });
  llvm::Expected<std::string> path = compileIn(folder, kernel, entry);
  if (!path)
    return path.takeError();
  EmulatedText::Entry loaded;
  loaded.library = ::dlopen(path->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!loaded.library)
    return fail(ExitCode::Internal,
                llvm::Twine("the emulated kernel: ") + ::dlerror());
  loaded.launch = reinterpret_cast<EmulatedLaunch>(
      ::dlsym(loaded.library, "refold_emulate"));
  if (!loaded.launch)
    return fail(ExitCode::Internal, "the emulated kernel has no launch");
  return loaded;
}

/// Forms of a program share kernels, and the compiler takes seconds for one.
static std::shared_ptr<EmulatedText> find(const CudaKernel &kernel) {
  static std::mutex mutex;
  static std::map<std::string, std::weak_ptr<EmulatedText>> known;
  std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<EmulatedText> &kept = known[kernel.text];
  if (std::shared_ptr<EmulatedText> found = kept.lock())
    return found;
  auto made = std::make_shared<EmulatedText>();
  made->entries.resize(kernel.entries.size());
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
    numTickets = std::max(numTickets, entry.tickets());
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
  EmulatedText::Entry &entry = emulated.text->entries[(*launch)->entry];
  if (!entry.launch) {
    auto loaded = load(kernel, (*launch)->entry);
    if (!loaded)
      return loaded.takeError();
    entry = *loaded;
  }
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
    const char *error = entry.launch(
        (*launch)->blocks, (*launch)->threads, mode, (*launch)->values.data(),
        reinterpret_cast<const int64_t *>((*launch)->maps.data()),
        ranges.data(), ranges.size(), (*launch)->sharedBytes);
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
  // Who has no compiler hears it before anything runs.
  if (auto compiler = findEmulatorCompiler(); !compiler)
    return compiler.takeError();
  emulated->text = find(kernel);
  return KernelLauncher([emulated](const int64_t *words) {
    return runEmulated(*emulated, words);
  });
}
