// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_BALANCEPORTS_H
#define REFOLD_LIB_TARGET_CPU_BALANCEPORTS_H

#include "llvm/IR/Function.h"

namespace refold {

/// Where the ports of additions have more to do in a loop, without the loops in
/// it, than those of multiplications, some sums a + b of 512 bits become
/// a * 1 + b: the same bits, by the other ports. For `TargetFacts::addsApart`.
void balancePorts(llvm::Function &function);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_BALANCEPORTS_H
