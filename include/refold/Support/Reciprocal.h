// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_RECIPROCAL_H
#define REFOLD_SUPPORT_RECIPROCAL_H

#include "llvm/ADT/APFloat.h"
#include <optional>

namespace refold {

/// 1 / divisor = high + low to twice the digits of its type. Both have one
/// sign, so that x·high + x·low, the product with `low` rounded and the rest an
/// FMA, keeps infinities and zeros of either sign. It is x / divisor as a
/// division rounds it, but for one mantissa of one divisor in twenty, which
/// gets its neighbour, and below 2^digits times the least normal number, where
/// it may be the neighbour too. `low` is 0 for powers of two.
/// (N. Brisebarre, J.-M. Muller, S. K. Raina: Accelerating correctly rounded
/// floating-point division when the divisor is known in advance, IEEE
/// Transactions on Computers 53(8), 2004.)
struct Reciprocal {
  llvm::APFloat high, low;
};

/// None of what is 0, infinite, NaN, or so near an end of the range that a part
/// were no normal number.
std::optional<Reciprocal> reciprocalOf(const llvm::APFloat &divisor);

} // namespace refold

#endif // REFOLD_SUPPORT_RECIPROCAL_H
