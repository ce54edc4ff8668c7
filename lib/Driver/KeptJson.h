// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_KEPTJSON_H
#define REFOLD_LIB_DRIVER_KEPTJSON_H

#include "llvm/Support/JSON.h"
#include <optional>

namespace refold {

/// Small answers that took long to find, kept between processes: a file each,
/// in `kind` beside the compiled kernels (REFOLD_CACHE_DIR, else refold in
/// XDG_CACHE_HOME or in .cache of HOME). Nothing depends on them: what is not
/// there, not whole, or kept under another key is not found.
std::optional<llvm::json::Object> findKept(llvm::StringRef kind,
                                           llvm::StringRef key);

/// The file where it is kept; "" where nothing is: no folder is known, it
/// cannot be written, or the disk is full.
std::string keep(llvm::StringRef kind, llvm::StringRef key,
                 llvm::json::Object value);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_KEPTJSON_H
