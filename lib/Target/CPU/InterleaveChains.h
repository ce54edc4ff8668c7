// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_INTERLEAVECHAINS_H
#define REFOLD_LIB_TARGET_CPU_INTERLEAVECHAINS_H

#include "llvm/IR/Module.h"

namespace refold {

/// In the blocks of loops, arranges long chains of arithmetic that do not need
/// each other so that their steps alternate. Does not change what is computed,
/// nor the order of accesses that may meet. Whether that order is better than
/// what LLVM's scheduler makes of it, for a machine of `registers` registers:
/// where such loops only reduce, and no loop is a register tile of a product.
bool interleaveChains(llvm::Module &module, int64_t registers);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_INTERLEAVECHAINS_H
