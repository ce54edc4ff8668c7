// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Reciprocal.h"

using namespace refold;
using llvm::APFloat;

std::optional<Reciprocal> refold::reciprocalOf(const APFloat &divisor) {
  if (!divisor.isFiniteNonZero() || divisor.isDenormal())
    return std::nullopt;
  const llvm::fltSemantics &type = divisor.getSemantics();
  int digits = int(APFloat::semanticsPrecision(type));
  if (std::abs(ilogb(divisor)) >
      APFloat::semanticsMaxExponent(type) - digits - 2)
    return std::nullopt;
  APFloat high(type, 1), one(type, 1);
  high.divide(divisor, APFloat::rmTowardZero);
  APFloat low = -high; // what is left of 1 is a number of the type
  low.fusedMultiplyAdd(divisor, one, APFloat::rmNearestTiesToEven);
  low.divide(divisor, APFloat::rmNearestTiesToEven);
  if (low.isZero())
    low.clearSign();
  return Reciprocal{high, low};
}
