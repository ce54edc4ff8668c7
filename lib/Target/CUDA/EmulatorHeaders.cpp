// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EmulatorHeaders.h"
#include "refold/Support/DiskCache.h"
#include "refold/Support/Error.h"
#include "refold/Support/WriteFile.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

using namespace refold;

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

llvm::Error refold::writeForEmulator(const llvm::Twine &path,
                                     llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream file(path.str(), code);
  if (!code) {
    file << text;
    file.close();
    code = file.error();
    file.clear_error();
  }
  if (!code)
    return llvm::Error::success();
  WriteFailure failure = writeFailure(path.str(), code.value());
  return fail(failure.code, failure.message);
}

/// What is slow to parse, and what no test of planted defects changes.
static constexpr llvm::StringLiteral kPrefix =
    "#include <utility>\n#include \"refold_cuda_emulated.h\"\n"
    "#ifndef __OPTIMIZE__\n" // where their functions are compiled once
    "#include \"refold_cuda_emulated_wgmma.h\"\n"
    "#include \"refold_cuda_emulated_clusters.h\"\n"
    "#endif\n";

llvm::Error refold::writeEmulatorHeaders(llvm::StringRef folder) {
  for (auto [name, text] : cudaHeaders())
    if (llvm::Error error = writeForEmulator(folder + "/" + name, text))
      return error;
  return writeForEmulator(folder + "/refold_cuda_prefix.h", kPrefix);
}

/// Headers are written again where something is missing; what others have read
/// of the same text stays true.
static constexpr llvm::StringLiteral kHeader[] = {
    "-Xclang", "-fno-pch-timestamp", "-x", "c++-header"};
/// Kernels as they are call the emulator, which is optimised once for all;
/// where they are optimised it has to be seen with them.
static constexpr llvm::StringLiteral kHeaderOfObject[] = {
    "-fpch-codegen",
    "-fpch-instantiate-templates",
    "-Xclang",
    "-fno-pch-timestamp",
    "-x",
    "c++-header"};
static constexpr llvm::StringLiteral kObject[] = {"-O2", "-c"};

/// All that the precompiled header depends on.
static std::string keyOf(const EmulatorCompiler &compiler) {
  std::string all = compiler.path + "\n" + llvm::join(compiler.flags, " ");
  for (llvm::ArrayRef<llvm::StringLiteral> flags :
       {llvm::ArrayRef(kHeader), llvm::ArrayRef(kHeaderOfObject),
        llvm::ArrayRef(kObject)})
    all += " " + llvm::join(flags, " ");
  llvm::sys::fs::file_status status;
  if (!llvm::sys::fs::status(compiler.path, status))
    all += " " + std::to_string(status.getSize()) + " " +
           std::to_string(llvm::sys::toTimeT(status.getLastModificationTime()));
  for (auto [name, text] : cudaHeaders())
    all += name.str() + text.str();
  return llvm::utohexstr(llvm::xxh3_64bits(all + kPrefix.str()));
}

static bool execute(const std::string &program,
                    llvm::ArrayRef<std::string> arguments) {
  llvm::SmallVector<llvm::StringRef> words = {program};
  words.append(arguments.begin(), arguments.end());
  std::optional<llvm::StringRef> nowhere[] = {"", "", ""};
  return llvm::sys::ExecuteAndWait(program, words, std::nullopt, nowhere) == 0;
}

/// What killed processes have left.
static void removeBegun(llvm::StringRef folder) {
  std::error_code code;
  for (llvm::sys::fs::directory_iterator i(folder, code), end;
       !code && i != end; i.increment(code))
    if (llvm::sys::path::filename(i->path()).contains(".begun"))
      llvm::sys::fs::remove(i->path());
}

/// Writes the headers into a folder and has clang read them and compile their
/// functions, unless somebody has. One at a time: the lock goes with who holds
/// it, killed or not. The compiler of a killed one may still be at work, so
/// that each writes files of its own, which get their names at the end.
static bool makePrecompiled(const EmulatorCompiler &compiler,
                            const std::string &folder) {
  std::string made = folder + "/prefix.pch", object = folder + "/prefix.o";
  int lock =
      ::open((folder + "/lock").c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0600);
  if (lock < 0)
    return false;
  auto unlock = llvm::make_scope_exit([&] { ::close(lock); });
  if (::flock(lock, LOCK_EX) != 0)
    return false;
  bool isAsItIs = llvm::is_contained(compiler.flags, "-O0");
  if (llvm::sys::fs::exists(made) &&
      (!isAsItIs || llvm::sys::fs::exists(object)))
    return true;
  removeBegun(folder);
  if (llvm::Error error = writeEmulatorHeaders(folder)) {
    llvm::consumeError(std::move(error));
    return false;
  }
  std::string own = folder + "/" + std::to_string(::getpid()) + ".begun";
  auto make = [&](llvm::ArrayRef<llvm::StringLiteral> more, const char *ending,
                  const std::string &from) {
    std::vector<std::string> arguments = compiler.flags;
    arguments.insert(arguments.end(), more.begin(), more.end());
    arguments.insert(arguments.end(), {from, "-o", own + ending});
    return execute(compiler.path, arguments);
  };
  std::string header = folder + "/refold_cuda_prefix.h";
  if (!isAsItIs)
    return make(kHeader, ".pch", header) &&
           !llvm::sys::fs::rename(own + ".pch", made);
  return make(kHeaderOfObject, ".pch", header) &&
         make(kObject, ".o", own + ".pch") &&
         !llvm::sys::fs::rename(own + ".o", object) &&
         !llvm::sys::fs::rename(own + ".pch", made);
}

/// A large kernel is run for longer than it is compiled, a small one is not.
static llvm::Expected<std::string> findLevel() {
  const char *named = std::getenv("REFOLD_EMULATOR_OPT");
  llvm::StringRef level = named ? named : "1";
  if (level.size() == 1 && level[0] >= '0' && level[0] <= '3')
    return ("-O" + level).str();
  return fail(ExitCode::Unsupported,
              "REFOLD_EMULATOR_OPT is '" + level + "', expected 0, 1, 2 or 3");
}

/// The linker of a clang's own folder: a small kernel takes 150 ms by it, and
/// 190 by the system's.
static bool hasOwnLinker(llvm::StringRef compiler) {
  llvm::SmallString<128> path;
  if (llvm::sys::fs::real_path(compiler, path))
    return false;
  llvm::sys::path::remove_filename(path);
  llvm::sys::path::append(path, "ld.lld");
  return llvm::sys::fs::can_execute(path);
}

llvm::Expected<EmulatorCompiler> refold::findEmulatorCompiler() {
  llvm::Expected<std::string> path = findCompiler();
  if (!path)
    return path.takeError();
  llvm::Expected<std::string> level = findLevel();
  if (!level)
    return level.takeError();
  EmulatorCompiler compiler;
  compiler.path = *path;
  compiler.flags = {"-std=c++20",
                    *level,
                    "-fPIC",
                    "-fvisibility=hidden",
                    "-ffp-contract=off",
                    "-DREFOLD_CUDA_EMULATED=",
                    "-DREFOLD_ENTRIES_WHERE_USED"};
  bool isClang = llvm::StringRef(*path).contains("clang");
  // One that dies of a full disk would leave the text in TMPDIR.
  if (isClang)
    compiler.flags.insert(
        compiler.flags.end(),
        {"-ftrivial-auto-var-init=pattern", "-fno-crash-diagnostics"});
  if (isClang && hasOwnLinker(*path))
    compiler.linker = "-fuse-ld=lld";
  const char *named = std::getenv("REFOLD_EMULATOR_DIR");
  if (!isClang || !named || !*named)
    return compiler;
  // The cache's rule for folders of which something is executed.
  std::string folder = std::string(named) + "/" + keyOf(compiler);
  auto opened = DiskCache::open(folder);
  if (!opened) {
    llvm::consumeError(opened.takeError());
    return compiler;
  }
  if (makePrecompiled(compiler, folder)) {
    compiler.headers = folder;
    if (*level == "-O0")
      compiler.object = folder + "/prefix.o";
    compiler.flags.insert(compiler.flags.end(),
                          {"-include-pch", folder + "/prefix.pch"});
  }
  return compiler;
}
