// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_PASSES_H
#define REFOLD_LIB_TARGET_CPU_PASSES_H

#include "mlir/Pass/Pass.h"
#include "refold/Runtime/InstructionSet.h"
#include <memory>

namespace refold {

/// -refold-lower-math: functions that the machine has no instruction for become
/// arithmetic (docs/numerics.md), or scalar calls of libm.
std::unique_ptr<mlir::Pass> createLowerMathPass(InstructionSet instructionSet);

/// -refold-lower-float-conversions: conversions from and to f16, bf16 and f8
/// that the machine lacks become integer arithmetic, rounding to nearest even.
std::unique_ptr<mlir::Pass>
createLowerFloatConversionsPass(InstructionSet instructionSet);

/// -refold-lower-vectors: vectors of several dimensions to such of one.
std::unique_ptr<mlir::Pass> createLowerVectorsPass();

/// -refold-lower-views: views of memrefs become their offsets, sizes, strides.
std::unique_ptr<mlir::Pass> createLowerViewsPass();

/// -refold-to-llvm: what the passes before have left becomes the LLVM dialect.
std::unique_ptr<mlir::Pass> createLowerToLLVMPass();

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_PASSES_H
