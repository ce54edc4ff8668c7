// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_NEARESTNAME_H
#define REFOLD_SUPPORT_NEARESTNAME_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include <string>

namespace refold {

/// The known name that a mistyped one probably meant, or "" where none is near:
/// letters of either case count as equal, and at most a third of the letters
/// may differ.
llvm::StringRef nearestName(llvm::StringRef name,
                            llvm::ArrayRef<llvm::StringRef> known);

/// "; did you mean 'x'?" or "".
std::string suggestion(llvm::StringRef name,
                       llvm::ArrayRef<llvm::StringRef> known);

} // namespace refold

#endif // REFOLD_SUPPORT_NEARESTNAME_H
