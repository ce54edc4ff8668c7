// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_CONSTANTSINMEMORY_H
#define REFOLD_LIB_TARGET_CPU_CONSTANTSINMEMORY_H

#include "llvm/IR/Module.h"

namespace refold {

/// Makes equal numbers in a register of `bits` bits, as arithmetic in loops
/// has them, words in memory: what finds no register is then read by the
/// operation itself. Does not change what is computed. For code generators that
/// broadcast such constants (AVX2), where an operation cannot do that.
void keepConstantsInMemory(llvm::Module &module, unsigned bits);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_CONSTANTSINMEMORY_H
