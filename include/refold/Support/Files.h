// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_FILES_H
#define REFOLD_SUPPORT_FILES_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include "llvm/Support/MemoryBuffer.h"
#include <memory>

namespace refold {

/// As `writeWholeFile`.
llvm::Error writeFileAtomically(llvm::StringRef path, llvm::StringRef bytes);

/// Reads a file; refuses folders and files above `maxBytes`.
llvm::Expected<std::unique_ptr<llvm::MemoryBuffer>>
readFile(llvm::StringRef path, uint64_t maxBytes);

} // namespace refold

#endif // REFOLD_SUPPORT_FILES_H
