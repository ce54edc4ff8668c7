// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_DECLINE_H
#define REFOLD_LIB_DRIVER_DECLINE_H

#include "refold/Driver/Driver.h"
#include "refold/Target/CPU/DetectTarget.h"

namespace refold {

/// Fusions that the cost model predicts to lose. Decided by the shapes, for one
/// thread, so that the bits of a result depend on no number of threads.
class LosingFusions {
public:
  /// Before `program` is fused. Nothing is looked at where some extent is
  /// neither in the program nor in `extents`.
  LosingFusions(LoadedProgram &program, const CpuTarget &target,
                const std::map<std::string, int64_t> &extents);

  /// After it was fused with these options: fuses it again, without what is
  /// predicted to lose, if there is any; `report` then says so, and
  /// certificates are not deferred. Whether it did.
  llvm::Expected<bool> decline(LoadedProgram &program,
                               const FuseOptions &options, FuseReport &report);

private:
  struct Group;
  using Shapes = std::vector<llvm::SmallVector<int64_t, 4>>;
  llvm::Expected<double> predictApart(const llvm::DenseSet<unsigned> &apart,
                                      const FuseOptions &options);
  llvm::Error judge(Group &group, const FuseOptions &options, double wholeMs);
  std::vector<Group> groupCascades(const FuseReport &report,
                                   const struct ProgramWork &work);

  CpuTarget target;
  mlir::OwningOpRef<mlir::ModuleOp> original; ///< null: nothing is decided
  Shapes shapes;
};

} // namespace refold

#endif // REFOLD_LIB_DRIVER_DECLINE_H
