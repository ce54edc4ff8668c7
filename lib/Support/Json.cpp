// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Json.h"
#include <cmath>

namespace refold {

llvm::json::Value jsonNumber(double value) {
  if (std::isnan(value))
    return "nan";
  if (std::isinf(value))
    return value > 0 ? "inf" : "-inf";
  return value;
}

} // namespace refold
