// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_JOINOBJECTS_H
#define REFOLD_LIB_TARGET_CPU_JOINOBJECTS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace refold {

/// One object of several that the code generator wrote, in their order: what is
/// loaded of each, and its relocations. A symbol that one lacks is that of the
/// others by its name, if they have it.
llvm::Expected<std::string> joinObjects(llvm::ArrayRef<llvm::StringRef> parts);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_JOINOBJECTS_H
