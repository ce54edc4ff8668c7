// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CPU_DETECTTARGET_H
#define REFOLD_TARGET_CPU_DETECTTARGET_H

#include "refold/Schedule/TargetFacts.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"

namespace refold {

/// "avx512", "avx2", "baseline".
llvm::StringRef nameOf(InstructionSet instructionSet);

/// The best form that this machine runs, or the one that `wanted` names. An
/// empty `wanted` means the environment's REFOLD_CPU, if it is set. Refuses an
/// unknown name and a form that the machine lacks.
llvm::Expected<TargetFacts> detectTarget(llvm::StringRef wanted = "");

} // namespace refold

#endif // REFOLD_TARGET_CPU_DETECTTARGET_H
