// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Functions and types are those of the NVRTC documentation, version 13.0
// (docs.nvidia.com/cuda/nvrtc).
#include "refold/Package/Nvrtc.h"

#include "FindLibrary.h"

#include <cstdlib>
#include <dlfcn.h>
#include <filesystem>

using namespace refold;
using namespace refold::package;
namespace fs = std::filesystem;

using Program = struct NvrtcProgramTag *;

#define REFOLD_NVRTC_FUNCTIONS(X)                                              \
  X(nvrtcVersion, (int *major, int *minor))                                    \
  X(nvrtcCreateProgram,                                                        \
    (Program * program, const char *text, const char *name, int headers,       \
     const char *const *texts, const char *const *names))                      \
  X(nvrtcCompileProgram,                                                       \
    (Program program, int count, const char *const *options))                  \
  X(nvrtcDestroyProgram, (Program * program))                                  \
  X(nvrtcGetProgramLogSize, (Program program, size_t *bytes))                  \
  X(nvrtcGetProgramLog, (Program program, char *log))                          \
  X(nvrtcGetCUBINSize, (Program program, size_t *bytes))                       \
  X(nvrtcGetCUBIN, (Program program, char *code))

struct Nvrtc::Functions {
#define REFOLD_DECLARE(name, arguments) int(*name) arguments = nullptr;
  REFOLD_NVRTC_FUNCTIONS(REFOLD_DECLARE)
#undef REFOLD_DECLARE
};

/// Contraction is off: fused multiply-adds are spelled out in the text.
static constexpr const char *kOptions[] = {"--std=c++17", "-fmad=false",
                                           "-default-device"};
Outcome<Nvrtc> Nvrtc::load(const std::string &path) {
  // NVRTC looks for this one by name: it has to be there already.
  std::error_code code;
  for (const auto &entry :
       fs::directory_iterator(fs::path(path).parent_path(), code))
    if (entry.path().filename().string().rfind("libnvrtc-builtins.so", 0) == 0)
      ::dlopen(entry.path().c_str(), RTLD_NOW | RTLD_GLOBAL);
  void *library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return problem(ExitCode::Unsupported, ::dlerror());
  static Functions functions;
#define REFOLD_FIND(name, arguments)                                           \
  functions.name =                                                             \
      reinterpret_cast<decltype(functions.name)>(::dlsym(library, #name));     \
  if (!functions.name)                                                         \
    return problem(ExitCode::Unsupported, path + " lacks '" #name "'");
  REFOLD_NVRTC_FUNCTIONS(REFOLD_FIND)
#undef REFOLD_FIND
  int major = 0, minor = 0;
  if (functions.nvrtcVersion(&major, &minor) || major < 12)
    return problem(ExitCode::Unsupported,
                   path + " is version " + std::to_string(major) + "." +
                       std::to_string(minor) + ", expected 12.0 or newer");
  Nvrtc found;
  found.functions = &functions;
  found.versionText = std::to_string(major) + "." + std::to_string(minor);
  found.file = path;
  return found;
}

static const WantedLibrary &wantedLibrary() {
  static const WantedLibrary wanted = {
      "REFOLD_NVRTC",
      {"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so"},
      {"nvidia/cu13/lib", "nvidia/cuda_nvrtc/lib"}};
  return wanted;
}

std::string Nvrtc::whereabouts() { return describeLibraries(wantedLibrary()); }

Outcome<const Nvrtc *> Nvrtc::find() {
  static Outcome<Nvrtc> found = []() -> Outcome<Nvrtc> {
    std::string why;
    for (const std::string &path : findLibraries(wantedLibrary())) {
      Outcome<Nvrtc> one = load(path);
      if (one)
        return one;
      why = one.error().message;
    }
    const char *named = std::getenv("REFOLD_NVRTC");
    return problem(
        ExitCode::Unsupported,
        std::string("found no NVRTC") +
            (named ? " in REFOLD_NVRTC '" + std::string(named) + "'" : "") +
            (why.empty() ? "" : " (" + why + ")") +
            ", expected libnvrtc.so.13 or .12: the Python package "
            "nvidia-cuda-nvrtc or the CUDA toolkit has it, REFOLD_NVRTC names "
            "it");
  }();
  if (!found)
    return found.error();
  return &*found;
}

std::string Nvrtc::optionsKey() {
  std::string key;
  for (const char *option : kOptions)
    key += std::string(" ") + option;
  return key;
}

Outcome<std::string> Nvrtc::compile(const std::string &name,
                                    const std::string &text,
                                    const TextHeaders &headers,
                                    const std::string &architecture) const {
  std::vector<const char *> names, texts;
  for (const auto &[headerName, header] : headers) {
    names.push_back(headerName.c_str());
    texts.push_back(header.c_str());
  }
  Program program = nullptr;
  if (functions->nvrtcCreateProgram(&program, text.c_str(),
                                    (name + ".cu").c_str(), int(names.size()),
                                    texts.data(), names.data()))
    return problem(ExitCode::Internal, "'" + name + "': NVRTC takes no text");
  std::string wanted = "--gpu-architecture=" + architecture;
  std::vector<const char *> options(std::begin(kOptions), std::end(kOptions));
  options.push_back(wanted.c_str());
  int failure = functions->nvrtcCompileProgram(program, int(options.size()),
                                               options.data());
  auto take = [&](auto size, auto get) {
    size_t bytes = 0;
    std::string result;
    if (!size(program, &bytes)) {
      result.resize(bytes);
      if (get(program, result.data()))
        result.clear();
    }
    return result;
  };
  std::string log =
      take(functions->nvrtcGetProgramLogSize, functions->nvrtcGetProgramLog);
  std::string code;
  if (!failure)
    code = take(functions->nvrtcGetCUBINSize, functions->nvrtcGetCUBIN);
  functions->nvrtcDestroyProgram(&program);
  if (code.empty())
    return problem(ExitCode::Internal, "'" + name + "': NVRTC " + versionText +
                                           " refuses the generated text for " +
                                           architecture + ": " + log.c_str());
  return code;
}
