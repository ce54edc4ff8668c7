// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is done to plans of kernels when they are complete.
#ifndef REFOLD_LIB_ANALYSIS_KERNELPLANS_H
#define REFOLD_LIB_ANALYSIS_KERNELPLANS_H

#include "refold/Analysis/Kernels.h"

namespace refold {

/// Rows are the indices of what other stages read: pivots live there. An index
/// that only some stages or outputs have is carried, but not where an operand
/// lies along the stream for each of its places (a mean weighted alike in all
/// rows): lanes along it would be gathered. A single stage carries its last
/// index where the operands lie along it and not along the stream.
void assignRoles(Formula &formula);

/// What an early round put into memory may have no reader in the last one.
void dropUnread(mlir::func::FuncOp function, ProgramPlan &plan);

} // namespace refold

#endif // REFOLD_LIB_ANALYSIS_KERNELPLANS_H
