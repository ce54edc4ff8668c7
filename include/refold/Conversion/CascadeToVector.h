// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_CONVERSION_CASCADETOVECTOR_H
#define REFOLD_CONVERSION_CASCADETOVECTOR_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Pass/Pass.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Schedule/TargetFacts.h"
#include "llvm/Support/Error.h"
#include <memory>
#include <string>

namespace refold {

/// On the cascade of a kernel: a bool a result, whether nothing in the program
/// reads it. Only there may an element be rounded otherwise than as written.
inline constexpr llvm::StringLiteral kFinalResultsAttr = "refold.final";

/// What `lowerCascade` left in the place of a kernel.
struct LoweredKernel {
  std::string name;
  unsigned phases = 0; ///< @name_phase0 ... @name_phase<phases - 1>
  /// The first phases lay out one operand each and read nothing else: its
  /// number.
  llvm::SmallVector<unsigned> packedOperands;
  /// What they lay out is all that the shared workspace holds.
  bool sharesOnlyPanels = false;
};

/// Lowers a kernel: a `func.func` without results whose block holds one
/// `refold.cascade` on memrefs and a return. The operands of the cascade are
/// the arguments of the function, in order. The function is replaced by, in the
/// same module,
///
///   func @NAME_shape(args...) -> (index, index, index...)
///     bytes of shared workspace, bytes of workspace per thread, items of each
///     phase
///   func @NAME_phase0(args..., %shared: memref<?xi8>, %private: memref<?xi8>,
///                     %begin: index, %end: index) ...
///
/// on arith, math, memref, scf and vector. Both workspaces are aligned to 64
/// bytes. A memref of i1 becomes one of i8 (a byte of 0 or 1 an element);
/// nothing else in a descriptor changes. A memref whose last stride is
/// statically 1 (or which has no layout) is read by vectors along it, any other
/// by gathers: declare the arguments as `strided<[?, ..., 1], offset: ?>` where
/// they are dense.
///
/// A cascade without schedule gets the one of `chooseSchedule`. What cannot be
/// lowered is an error on the op, and the function is left as it was.
mlir::FailureOr<LoweredKernel> lowerCascade(mlir::func::FuncOp kernel,
                                            const TargetFacts &target);

/// The same kernel as plain C++ without vectors: `NAME_shape` and `NAME_phaseN`
/// as extern "C" functions (docs/targets/cpu.md). A second printer of the same
/// walk, to compare the first with.
mlir::FailureOr<std::string> printCascadeAsCxx(mlir::func::FuncOp kernel);

/// What the walk decided before a target has a say, one line a decision.
mlir::FailureOr<std::string> describePlan(CascadeOp cascade,
                                          const TargetFacts &target);

/// Whether values at positions that a mask proves dead are not read, so that a
/// NaN or an infinity there is not seen (reason masked-values-unread).
mlir::FailureOr<bool> leavesValuesUnread(CascadeOp cascade,
                                         const TargetFacts &target);

/// The part of its stream's positions that a cascade walks if its indices have
/// these extents, in (0, 1]: 1 where no mask leaves any out, half where a mask
/// is known by its bounds' names only.
mlir::FailureOr<double> walkedShare(CascadeOp cascade,
                                    const TargetFacts &target,
                                    llvm::ArrayRef<double> extents);

/// -refold-lower-cascade: `lowerCascade` on every kernel of a module.
std::unique_ptr<mlir::Pass>
createLowerCascadePass(const TargetFacts &target = TargetFacts());
/// -refold-print-plan: `describePlan` of every cascade, as a remark.
std::unique_ptr<mlir::Pass> createPrintPlanPass();
void registerCascadeToVectorPasses();

} // namespace refold

#endif // REFOLD_CONVERSION_CASCADETOVECTOR_H
