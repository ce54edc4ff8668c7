// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_ACCURACY_H
#define REFOLD_ALGEBRA_ACCURACY_H

#include "refold/Algebra/Derive.h"
#include "refold/Algebra/Evaluate.h"

#include <array>

/// Measured accuracy: a program in f32 against its cascade in f32, both against
/// the cascade with 31 digits, over rows of several families and the orders in
/// which kernels read them.
namespace refold::algebra {

struct AccuracyOptions {
  uint64_t seed = 1;
  unsigned rowsPerFamily = 16;
  unsigned rowLength = 100;
};

/// An element stream, tiles merged as a tree, a tree over elements.
inline constexpr Order kMeasuredOrders[] = {Order::Stream, Order::Tiles,
                                            Order::Balanced};

/// How far one output is off on the rows of one family. The error of a row is
/// the largest of its elements over the largest element.
struct FamilyAccuracy {
  using ByOrder = std::array<double, std::size(kMeasuredOrders)>;

  Family family = Family::Normal;
  double unfused = 0; ///< the worst row
  ByOrder fused{};    ///< the worst row
  /// The worst row of fused / (unfused + 1 ulp): at most 2 means no more than
  /// twice the unfused error and 2 ulp. A row that is exact by luck as written
  /// counts with the error that rows of its condition have in the mean (root
  /// mean square over the family, relative to the amplification as written).
  ByOrder ratio{};
  /// A priori, of the worst row: the root of the roundings on the longest path
  /// times the amplification of sums, and that of the epilogue.
  ByOrder bound{};
  double shareOfBound = 0;  ///< the worst row of fused / bound
  double amplification = 0; ///< of the worst row, states and epilogue
};

struct OutputAccuracy {
  std::string name;
  std::vector<FamilyAccuracy> families; ///< those with a finite row
};

struct Accuracy {
  std::vector<OutputAccuracy> outputs; ///< of floats

  double worstRatio(size_t order) const;
  /// The largest among the families whose ratio is above 2; 0 if none is.
  double shareOfBound() const;
  /// Some ratio is above 2, and the error there is held to its bound.
  bool usesBound() const;
  bool holds() const;
  /// The largest among the families whose ratio is above 2; 0 if none is.
  double amplification() const;
};

/// Nothing is measured of programs that compute in f64, or that no row of
/// moderate length fits.
Accuracy measureAccuracy(const Cascade &cascade, const Program &program,
                         const AccuracyOptions &options = {});

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_ACCURACY_H
