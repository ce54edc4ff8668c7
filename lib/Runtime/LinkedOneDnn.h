// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_LINKEDONEDNN_H
#define REFOLD_LIB_RUNTIME_LINKEDONEDNN_H

#include "refold/Runtime/InstructionSet.h"
#include "refold/Runtime/OneDnn.h"

namespace refold {

/// The library that this program is linked to.
const onednn::Library &linkedOneDnn();

/// Limits it to an instruction set. Has an effect only before its first use in
/// the process.
void limitProductLibrary(InstructionSet instructionSet);

} // namespace refold

#endif // REFOLD_LIB_RUNTIME_LINKEDONEDNN_H
