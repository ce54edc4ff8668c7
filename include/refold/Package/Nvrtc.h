// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_NVRTC_H
#define REFOLD_PACKAGE_NVRTC_H

#include "refold/Package/Outcome.h"
#include <utility>
#include <vector>

namespace refold::package {

using TextHeaders = std::vector<std::pair<std::string, std::string>>;

/// NVIDIA's run-time compiler of CUDA C++, found when it is needed.
class Nvrtc {
public:
  /// The one of the process. Looked for in this order: the file or folder
  /// REFOLD_NVRTC; where the system looks for libraries (LD_LIBRARY_PATH);
  /// /usr/local/cuda; the Python package nvidia-cuda-nvrtc in VIRTUAL_ENV, or
  /// in a .venv of the working folder or above the program.
  static Outcome<const Nvrtc *> find();

  /// "13.0", and the file.
  const std::string &version() const { return versionText; }
  const std::string &path() const { return file; }

  /// Machine code of a text for "sm_90a" or the like, or the log.
  Outcome<std::string> compile(const std::string &name, const std::string &text,
                               const TextHeaders &headers,
                               const std::string &architecture) const;
  /// What the code depends on beside text, headers, architecture and version.
  static std::string optionsKey();
  /// What decides which one `find` finds, without loading it, which takes
  /// milliseconds: where it says the same, the version is the same.
  static std::string whereabouts();

private:
  static Outcome<Nvrtc> load(const std::string &path);
  struct Functions;
  const Functions *functions = nullptr;
  std::string versionText, file;
};

} // namespace refold::package

#endif // REFOLD_PACKAGE_NVRTC_H
