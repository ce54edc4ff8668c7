// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "FindOneDnn.h"

#include "FindLibrary.h"
#include <dlfcn.h>

using namespace refold;
using namespace refold::package;

/// 2.6 is the oldest that was tried; 3 has other types.
static constexpr int kMajor = 2, kOldestMinor = 6;

static Problem refusal(const std::string &what) {
  return problem(ExitCode::Unsupported, what);
}

static Outcome<onednn::Library> loadFrom(const std::string &path) {
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return refusal(::dlerror());
  onednn::Library found;
  // The version first: another one may lack functions.
  auto version = reinterpret_cast<decltype(found.dnnl_version)>(
      ::dlsym(library, "dnnl_version"));
  if (!version)
    return refusal(path + " lacks 'dnnl_version'");
  const onednn::Version &is = *version();
  if (is.major != kMajor || is.minor < kOldestMinor)
    return refusal(path + " is version " + std::to_string(is.major) + "." +
                   std::to_string(is.minor));
  if (is.cpuRuntime != onednn::kOpenMP && is.cpuRuntime != onednn::kSequential)
    return refusal(path + " has threads of its own, and not by OpenMP");
#define REFOLD_FIND(result, name, arguments)                                   \
  found.name =                                                                 \
      reinterpret_cast<decltype(found.name)>(::dlsym(library, #name));         \
  if (!found.name)                                                             \
    return refusal(path + " lacks '" #name "'");
  REFOLD_ONEDNN_FUNCTIONS(REFOLD_FIND)
#undef REFOLD_FIND
  if (is.cpuRuntime == onednn::kSequential)
    return found;
  // Of the libraries that it came with.
  found.omp_get_max_threads =
      reinterpret_cast<decltype(found.omp_get_max_threads)>(
          ::dlsym(library, "omp_get_max_threads"));
  found.omp_set_num_threads =
      reinterpret_cast<decltype(found.omp_set_num_threads)>(
          ::dlsym(library, "omp_set_num_threads"));
  if (!found.omp_get_max_threads || !found.omp_set_num_threads)
    return refusal(path + " has an OpenMP runtime without "
                          "'omp_set_num_threads'");
  return found;
}

Outcome<const onednn::Library *> package::oneDnn() {
  static Outcome<onednn::Library> found = []() -> Outcome<onednn::Library> {
    std::string why = "no such file";
    bool isFirst = true;
    for (const std::string &path :
         findLibraries({"REFOLD_ONEDNN", {"libdnnl.so.2", "libdnnl.so"}, {}})) {
      Outcome<onednn::Library> one = loadFrom(path);
      if (one)
        return one;
      if (isFirst)
        why = one.error().message;
      isFirst = false;
    }
    return refusal("found no oneDNN (" + why +
                   "), expected libdnnl.so.2 of version 2.6 or newer (Debian: "
                   "apt-get install libdnnl2) where the system looks, or a "
                   "file or folder in REFOLD_ONEDNN");
  }();
  if (!found)
    return found.error();
  return &*found;
}
