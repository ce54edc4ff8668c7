// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_DERIVE_H
#define REFOLD_ALGEBRA_DERIVE_H

#include "refold/Algebra/Program.h"

namespace refold::algebra {

/// What rounding of a value mixed from elements and results may do.
enum class CastPolicy : uint8_t {
  Exact,     ///< it cuts the cascade, unless its scale is a power of two
  Requantise ///< elements are rounded at the running values, within a bound
};

/// What a row is whose pivot is at its identity: nothing but -inf was read.
enum class RowPolicy : uint8_t {
  Ieee, ///< what the formula gives: 0/0 = NaN for softmax
  Zero  ///< outputs that the formula makes NaN there are 0
};

/// How far a derivation goes to keep digits.
enum class Stability : uint8_t {
  Fastest,     ///< readouts as they fall out of the separation
  Balanced,    ///< grouped where an estimate says that digits are lost
  MostAccurate ///< grouped wherever that is possible
};

/// What a sum about a location pivot is kept as. All but `Kept` lose digits,
/// and are there so that a measurement of accuracy can be seen to fail.
enum class Moments : uint8_t {
  Kept,    ///< with the first moment, which is 0 but for rounding
  Dropped, ///< without it
  Raw      ///< powers of the elements themselves
};

struct Policy {
  Stability stability = Stability::Balanced;
  Moments moments = Moments::Kept;
  CastPolicy casts = CastPolicy::Exact;
  /// Requantise: the largest error of one rounding, relative to the largest
  /// value that is rounded, beyond which it cuts after all.
  double castBound = std::numeric_limits<double>::infinity();
  RowPolicy maskedRows = RowPolicy::Ieee;
  /// Terms of a separated stage beyond which it waits for the next pass.
  unsigned rankBudget = 48;
  /// A sum over the elements near an extreme is one over so many of the best,
  /// with a pass for rows that have more. 0: it waits for the next pass, which
  /// costs less where rows are in cache.
  unsigned thresholdList = 0;
  /// False: every stage in its own pass, as written (the baseline).
  bool fuse = true;
  /// Stages, by number, that wait until all that they read is finished.
  std::vector<unsigned> apart;
  /// Bound exponentials of elements that the user left unbounded by a maximum
  /// of our own, where it leaves some output again (softmax written without its
  /// maximum). An exponential that was moved away from a result always is.
  bool ownPivots = true;
};

struct Derivation {
  std::optional<Program> program;
  std::string error; ///< why there is none: `Cascade::verify` failed
};

/// Derives a program in as few passes as the stages allow. A stage whose term
/// cannot be separated from results of its pass goes to the next pass, where
/// they are constants; the reason is a cut. Needs no front end, never fails on
/// a cascade that verifies, and is deterministic.
Derivation derive(const Cascade &cascade, const Policy &policy = {});

/// Which rows a program with passes for irregular rows calls regular.
struct Regularity {
  /// Readouts hold on rows whose extremes are at their identities.
  bool deadRows = true;
  /// Rows whose squares leave the range of their type are irregular too, sums
  /// of products and what divides them. Otherwise only those of cubes are.
  bool losesSquares = false;
};

/// What is tried, in this order.
inline constexpr Regularity kRegularities[] = {
    {true, false}, {true, true}, {false, false}, {false, true}};

/// The program, followed by passes that compute rows again as the stages are
/// written where the derived states cannot tell what they would be: where an
/// accumulator, a pivot or a result is not finite or has lost digits below the
/// range of its type (law `irregular-rows`). The program itself if it keeps
/// every stage as written.
Program withIrregularRows(const Cascade &cascade, const Program &program,
                          Regularity regularity);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_DERIVE_H
