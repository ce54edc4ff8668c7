// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_JSON_H
#define REFOLD_SUPPORT_JSON_H

#include "llvm/Support/JSON.h"

namespace refold {

/// A number, or "inf", "-inf", "nan": JSON has no words for these.
llvm::json::Value jsonNumber(double value);

} // namespace refold

#endif // REFOLD_SUPPORT_JSON_H
