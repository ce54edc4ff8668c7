// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_GUARDS_H
#define REFOLD_LIB_ALGEBRA_GUARDS_H

#include "Builder.h"

namespace refold::algebra {

/// Rewrites guards that look at elements and results together into predicates
/// of the element or of the row alone, where that is what they are on reachable
/// pairs:
///
///     isnan(e/s)  =  not s > 0          e a summand of s, 0 <= e <= 1
///     e/s == 0    =  u == -inf          e = exp(c·(u - m)), c > 0
///
/// The first holds since a NaN among the e makes s a NaN, e <= 1 leaves no
/// inf/inf, and s = 0 makes all e 0; in floats too, since adding values >= 0 is
/// monotone and NaN absorbs. `map` takes stage symbols to what they are in this
/// pass.
Expr resolveGuards(Builder &builder, Expr term, const ExprMap &map);

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_GUARDS_H
