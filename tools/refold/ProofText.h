// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TOOLS_REFOLD_PROOFTEXT_H
#define REFOLD_TOOLS_REFOLD_PROOFTEXT_H

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace refold {

/// The field `proof` of a cascade for people, one check or cut a line.
void printProof(llvm::raw_ostream &os, const llvm::json::Object &proof);

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_PROOFTEXT_H
