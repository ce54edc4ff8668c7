// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_DESCRIBEACCURACY_H
#define REFOLD_LIB_DRIVER_DESCRIBEACCURACY_H

#include "refold/Transforms/FuseCascades.h"
#include "llvm/Support/JSON.h"

namespace refold {

/// The fields of `accuracy` in docs/tools.md: the derived program, and two that
/// keep less, in f32 arithmetic against 31 digits. Nothing where nothing is
/// measured: parts in f64, no output of floats.
std::optional<llvm::json::Object> describeAccuracy(const FusedKernel &kernel);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_DESCRIBEACCURACY_H
