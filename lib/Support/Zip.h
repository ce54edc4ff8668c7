// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SUPPORT_ZIP_H
#define REFOLD_LIB_SUPPORT_ZIP_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <string>
#include <vector>

namespace refold {

struct ZipMember {
  std::string name, bytes;
};

/// Members of a zip file in the order of its directory: stored or deflated,
/// below 4 GiB, checksums verified. Never reads outside `bytes` and allocates
/// no more than deflate can have written.
llvm::Expected<std::vector<ZipMember>> parseZip(llvm::StringRef bytes,
                                                llvm::StringRef where);

/// A zip file with stored members and a fixed time.
llvm::Expected<std::string> formatZip(llvm::ArrayRef<ZipMember> members);

} // namespace refold

#endif // REFOLD_LIB_SUPPORT_ZIP_H
