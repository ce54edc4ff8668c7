// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CublasLt.h"
#include "FindLibrary.h"

#include <cstdlib>
#include <dlfcn.h>

using namespace refold;
using namespace refold::package;

static constexpr const char *kEnvironment = "REFOLD_CUBLASLT";

static Outcome<CublasLt> loadFrom(const std::string &path) {
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return problem(ExitCode::Unsupported, ::dlerror());
  CublasLt found;
#define REFOLD_FIND(result, name, arguments)                                   \
  found.name =                                                                 \
      reinterpret_cast<decltype(found.name)>(::dlsym(library, #name));         \
  if (!found.name)                                                             \
    return problem(ExitCode::Unsupported, path + " lacks '" #name "'");
  REFOLD_CUBLASLT_FUNCTIONS(REFOLD_FIND)
#undef REFOLD_FIND
  constexpr size_t kOldest = 120000;
  size_t version = found.cublasLtGetVersion();
  found.file = path;
  found.version = std::to_string(version / 10000) + "." +
                  std::to_string(version / 100 % 100);
  if (version < kOldest)
    return problem(ExitCode::Unsupported, path + " is version " +
                                              found.version +
                                              ", expected 12.0 or newer");
  return found;
}

Outcome<const CublasLt *> package::cublasLt() {
  const char *named = std::getenv(kEnvironment);
  std::string wanted = named ? named : "off";
  if (wanted == "off" || wanted.empty())
    return nullptr;
  static Outcome<CublasLt> found = [&]() -> Outcome<CublasLt> {
    std::string why = "no such file";
    for (const std::string &path : findLibraries(
             {wanted == "on" ? nullptr : kEnvironment,
              {"libcublasLt.so.13", "libcublasLt.so.12", "libcublasLt.so"},
              {"nvidia/cu13/lib", "nvidia/cublas/lib"}})) {
      Outcome<CublasLt> one = loadFrom(path);
      if (one)
        return one;
      why = one.error().message;
    }
    return problem(ExitCode::Unsupported,
                   "found no cuBLASLt for REFOLD_CUBLASLT '" + wanted + "' (" +
                       why +
                       "), expected libcublasLt.so.13 or .12 where CUDA or "
                       "the Python package nvidia-cublas has it, a file or "
                       "folder, or \"off\"");
  }();
  if (!found)
    return found.error();
  return &*found;
}
