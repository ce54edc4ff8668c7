// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TRANSFORMS_NARROWPRODUCTS_H
#define REFOLD_TRANSFORMS_NARROWPRODUCTS_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace refold {

/// What `narrowProducts` has rounded.
struct NarrowReport {
  int64_t products = 0;                    ///< that read something rounded
  int64_t constants = 0;                   ///< stored in 16 bits
  int64_t bytesBefore = 0, bytesAfter = 0; ///< of all constants in f32 before
  int64_t tooLarge = 0; ///< constants that stay f32: an element would overflow
};

/// Rounds what matrix products of f32 read to `type` (f16 or bf16), as
/// operations of the program: everything behind, the reference too, sees them
/// as if they were written there. Sums stay f32. Such an array is stored once,
/// and whatever else reads it reads it rounded, but for the program's results.
/// Constant operands, and other constants of at least two dimensions, are
/// stored so.
///
/// What one product of two computed arrays makes for another (the weights that
/// scores become) is not rounded: it would stand between the reductions of a
/// cascade, and kernels that multiply it round it themselves.
NarrowReport narrowProducts(mlir::func::FuncOp function, mlir::FloatType type);

} // namespace refold

#endif // REFOLD_TRANSFORMS_NARROWPRODUCTS_H
