// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_CPU_H
#define REFOLD_PACKAGE_CPU_H

#include "refold/Package/Package.h"
#include "refold/Package/Plan.h"
#include <span>

namespace refold::package {

/// A package on the CPU. One thread at a time; its work is spread over
/// `threads`. The bits of a result do not depend on them.
class CpuProgram {
public:
  /// A CPU that lacks what the code uses: Unsupported, with its name.
  static Outcome<std::unique_ptr<CpuProgram>>
  open(std::shared_ptr<const Package> package, unsigned threads);
  ~CpuProgram();

  const Package &package() const;

  /// Kept for the last shapes; memory for the shape is there when it returns.
  Outcome<const RunPlan *>
  planFor(const std::vector<std::vector<int64_t>> &inputShapes);

  /// On row-major arrays.
  Problem run(const RunPlan &plan, std::span<const void *const> inputs,
              std::span<void *const> outputs);

private:
  struct Impl;
  explicit CpuProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace refold::package

#endif // REFOLD_PACKAGE_CPU_H
