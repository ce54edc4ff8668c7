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

  /// Memory for the shape is there when it returns. The last `kMostPlans` are
  /// kept: a run with another plan is an error. A shape that memory does not
  /// suffice for changes nothing for the plans there are.
  Outcome<std::shared_ptr<const RunPlan>>
  planFor(const std::vector<std::vector<int64_t>> &inputShapes);
  /// The plan of this number; null where it is not kept.
  std::shared_ptr<const RunPlan> keptPlan(uint64_t id);

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
