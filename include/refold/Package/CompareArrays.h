// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_COMPAREARRAYS_H
#define REFOLD_PACKAGE_COMPAREARRAYS_H

#include "refold/Support/DType.h"
#include <vector>

namespace refold::package {

/// The number that the bytes at `at` hold. Neither LLVM nor a table: packages
/// run without a compiler.
double elementOf(DType dtype, const char *at);

/// How far two ways to compute one array are apart.
struct ArrayDifference {
  double relative = 0.0; ///< of the largest element of all
  /// It may come from sums in another order: numbers and what is none stand at
  /// the same places, integers differ by none, and those of 8 bits by one, as
  /// rounded quotients do.
  bool isRounding = true;
};

/// Requires as many bytes of both, whole elements.
ArrayDifference compareArrays(DType dtype, const std::vector<char> &found,
                              const std::vector<char> &expected);

} // namespace refold::package

#endif // REFOLD_PACKAGE_COMPAREARRAYS_H
