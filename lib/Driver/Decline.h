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
  /// What may run instead of a kernel that one pass makes.
  enum class Alternative : uint8_t {
    None,
    Waiting,      ///< a second pass, for what one adds up by several products
    KeepsProduct, ///< its products as steps of their own
    AsWritten     ///< every reduction on its own
  };
  /// What an alternative was fused into: whether it may be predicted. For
  /// tests.
  using Accepts = llvm::function_ref<llvm::Error(mlir::ModuleOp)>;
  struct Change {
    size_t member = 0; ///< of the report
    Alternative choice = Alternative::None;
    double fusedMs = 0.0, otherMs = 0.0;
    std::string with; ///< which others were judged together with it
  };

  /// Before `program` is fused. Nothing is looked at where some extent is
  /// neither in the program nor in `extents`.
  LosingFusions(LoadedProgram &program, const CpuTarget &target,
                const std::map<std::string, int64_t> &extents);

  /// After it was fused with these options: fuses it again, without what is
  /// predicted to lose, if there is any; `report` then says so, and deferred
  /// certificates, which nobody may have begun to make, are those of what is
  /// left. Whether it did. What could not be predicted is not taken, and noted.
  llvm::Expected<bool> decline(LoadedProgram &program,
                               const FuseOptions &options, FuseReport &report,
                               Accepts accepts = nullptr);

private:
  struct Group;
  using Shapes = std::vector<llvm::SmallVector<int64_t, 4>>;
  llvm::Expected<double> predictOther(Alternative other,
                                      const llvm::DenseSet<unsigned> &numbers,
                                      const FuseOptions &decided,
                                      Accepts accepts);
  void judge(Group &group, const FuseOptions &decided, double wholeMs,
             Accepts accepts);
  static void tellKept(llvm::ArrayRef<Group> groups, size_t numJudged,
                       double wholeMs, FuseReport &report);
  std::vector<Group> groupCascades(const FuseReport &report,
                                   const struct ProgramWork &work);

  CpuTarget target;
  mlir::OwningOpRef<mlir::ModuleOp> original; ///< null: nothing is decided
  Shapes shapes;
};

/// Tells the kernel in which stages of `cascade` wait, if they do. It need not
/// be the one that they stood in: what is left apart may have regrouped it.
void tellWaiting(const CascadeReport &cascade, std::string text,
                 FuseReport &after);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_DECLINE_H
