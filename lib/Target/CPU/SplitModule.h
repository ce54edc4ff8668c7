// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_SPLITMODULE_H
#define REFOLD_LIB_TARGET_CPU_SPLITMODULE_H

#include "llvm/IR/Module.h"
#include <memory>

namespace refold {

/// Moves about half of the instructions of a large module into another one of
/// the same context, so that two threads can generate code: a function, or a
/// part of one that becomes a function. The two refer to each other by hidden
/// symbols. Null where the module is small or nothing of that size can be
/// moved. Depends on the module alone.
std::unique_ptr<llvm::Module> splitOffHalf(llvm::Module &module);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_SPLITMODULE_H
