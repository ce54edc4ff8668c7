// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_TUNEDFILE_H
#define REFOLD_PACKAGE_TUNEDFILE_H

#include "refold/Package/Cuda.h"

namespace refold::package {

/// Choices of `CudaProgram::tune` in a file beside a package: lines of text
/// under a checksum, for one GPU and driver. A choice is found by the kernel's
/// text and the sizes of the launch, so that a file of another package has none
/// that fit.
class TunedFile {
public:
  explicit TunedFile(const GpuFacts &gpu);

  /// Why the file holds nothing for this GPU: nothing is found then.
  Problem load(const std::string &path);
  /// Whole or not at all.
  Problem save(const std::string &path) const;

  std::optional<LaunchChoice> find(const LaunchOfShape &of) const;
  void keep(const LaunchOfShape &of, const LaunchChoice &choice);
  size_t size() const { return choices.size(); }

private:
  std::string machine; ///< a line of the file
  std::map<std::string, LaunchChoice> choices;
};

} // namespace refold::package

#endif // REFOLD_PACKAGE_TUNEDFILE_H
