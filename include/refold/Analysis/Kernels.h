// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ANALYSIS_KERNELS_H
#define REFOLD_ANALYSIS_KERNELS_H

#include "refold/Analysis/Formula.h"
#include "llvm/ADT/DenseSet.h"

namespace refold {

/// One tensor that a kernel writes.
struct KernelOutput {
  mlir::Value tensor;
  /// Index of each dimension; nothing where the dimension has size 1.
  llvm::SmallVector<std::optional<unsigned>, 4> dims;
};

/// One kernel: a cascade (possibly of one stage or none) and where its symbols
/// come from. `outputs[i]` is `formula->cascade.outputs[i]`.
struct KernelPlan {
  std::shared_ptr<Formula> formula;
  std::vector<KernelOutput> outputs;
  /// Reductions that read each other: what `explain` lists.
  bool isCascade() const;
};

/// A matrix product outside every cascade, with its operands as read from
/// memory.
struct ProductPlan {
  mlir::linalg::GenericOp op;
  /// Of each input: the tensor in memory and the map from the loops to it.
  std::vector<std::pair<mlir::Value, mlir::AffineMap>> operands;
};

struct ProgramPlan {
  std::vector<KernelPlan> kernels;
  std::vector<ProductPlan> products;
  /// Why reductions that could have been one cascade are not.
  std::vector<Refusal> notes;
};

struct PlanOptions {
  /// False: every reduction is a kernel of its own (the unfused baseline).
  bool fuse = true;
  /// Reductions that are kernels or products of their own whatever they are
  /// tied to, by their number in the function (`numberReductions`).
  llvm::DenseSet<unsigned> apart;
};

/// The reductions of a function in order, as `PlanOptions::apart` counts them.
llvm::SmallVector<mlir::Operation *>
numberReductions(mlir::func::FuncOp function);

/// Decides what is computed together: which tensors exist in memory, which
/// reductions form a cascade (tied by dependence over a common axis), and which
/// contractions are products of their own. Rewrites nothing. Fails, with a
/// diagnostic at the op, where a result has no form as kernels.
mlir::FailureOr<ProgramPlan> planKernels(mlir::func::FuncOp function,
                                         SizeTable &sizes,
                                         const PlanOptions &options);

/// The tensor that a chain of reshapes, slices and casts views.
mlir::Value viewRoot(mlir::Value tensor);
bool isView(mlir::Operation *op);
/// A sum of products of two operands with rows of their own in each: what a
/// matrix-product library computes; or a window product.
bool isProduct(mlir::linalg::GenericOp generic);
/// A sum of products whose first operand is read at sums of multiples of loops:
/// a convolution. Each loop that is summed is one of both operands.
bool isWindowProduct(mlir::linalg::GenericOp generic);

} // namespace refold

#endif // REFOLD_ANALYSIS_KERNELS_H
