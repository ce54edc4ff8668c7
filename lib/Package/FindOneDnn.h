// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_PACKAGE_FINDONEDNN_H
#define REFOLD_LIB_PACKAGE_FINDONEDNN_H

#include "refold/Package/Outcome.h"
#include "refold/Runtime/OneDnn.h"

namespace refold::package {

/// oneDNN: the file or folder REFOLD_ONEDNN, or what the system finds. Loaded
/// once a process, when a program first needs it. One that is missing, of
/// another version, or that starts threads which nobody can hold back, is
/// Unsupported: with what was found and where to get it.
Outcome<const onednn::Library *> oneDnn();

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_FINDONEDNN_H
