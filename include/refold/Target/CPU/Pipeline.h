// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CPU_PIPELINE_H
#define REFOLD_TARGET_CPU_PIPELINE_H

#include "mlir/Pass/PassManager.h"
#include "refold/Runtime/InstructionSet.h"

namespace refold {

/// vector, scf, memref, math and arith, as `lowerCascade` leaves them, to the
/// LLVM dialect.
void buildLowerToLLVM(mlir::OpPassManager &passes,
                      InstructionSet instructionSet);

/// The passes of this folder and the pipeline as -refold-lower-to-llvm, for
/// refold-opt.
void registerCpuPasses();

} // namespace refold

#endif // REFOLD_TARGET_CPU_PIPELINE_H
