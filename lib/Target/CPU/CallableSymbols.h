// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_CALLABLESYMBOLS_H
#define REFOLD_LIB_TARGET_CPU_CALLABLESYMBOLS_H

#include "llvm/ADT/StringRef.h"

namespace refold {

/// The function that generated code means by this name: one of libm, memcpy,
/// memmove or memset. Null: it may not call it.
void *addressOfCallable(llvm::StringRef name);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_CALLABLESYMBOLS_H
