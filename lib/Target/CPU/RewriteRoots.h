// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_REWRITEROOTS_H
#define REFOLD_LIB_TARGET_CPU_REWRITEROOTS_H

#include "mlir/Transforms/GreedyPatternRewriteDriver.h"

namespace refold {

/// Applies patterns, to the end, to the ops that they are written for and to
/// those that they make, producers first. The driver for regions would also
/// fold every other op and compare all blocks, which takes most of its time.
/// Patterns for any op are tried on those of which `isOfAny` says so.
mlir::LogicalResult
rewriteRoots(mlir::Operation *inside, mlir::RewritePatternSet &&patterns,
             llvm::function_ref<bool(mlir::Operation *)> isOfAny = nullptr);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_REWRITEROOTS_H
