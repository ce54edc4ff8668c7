// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_EVALUATE_H
#define REFOLD_ALGEBRA_EVALUATE_H

#include "refold/Algebra/DoubleDouble.h"
#include "refold/Algebra/Program.h"
#include "refold/Support/Interval.h"

/// What cascades and programs mean, executed on single rows: a cascade by its
/// definition, a program by absorbing and merging in any order. Values are
/// `float`, `double` or `DoubleDouble`; types of less precision matter in casts
/// only.
namespace refold::algebra {

/// What evaluations with `Interval` add to the radius where a value of elements
/// and results is rounded.
enum class CastSlack : uint8_t {
  None,
  Running,   ///< the element may be rounded at earlier results
  PowerOfTwo ///< which differ from the final ones by a power of two
};

/// The inputs of one row.
///
/// Row and carried indices have one position, since everything is elementwise
/// in them; inner indices are really summed over, with a small extent; ranks
/// have as many positions as their top-k takes; several stream indices are one
/// stream, the last the fastest.
struct Sample {
  /// Positions of each index of the cascade.
  std::vector<uint32_t> extents;
  /// By symbol of role Element, Parameter or Index: one value for each tuple of
  /// positions of its indices, the highest-numbered index the fastest.
  std::unordered_map<const Symbol *, std::vector<double>> values;
  /// If not 0, DoubleDouble evaluations change every float by a random factor
  /// 1 + [-jitter, jitter], by definition also every sum of floats: what then
  /// changes more is badly conditioned.
  double jitter = 0;
  CastSlack slack = CastSlack::None;

  /// Positions of the stream.
  uint32_t length(const std::vector<Index> &indices) const;
};

/// What the extents of the stream say about its number of positions.
struct StreamLength {
  uint32_t factor = 1;  ///< product of the static extents
  bool isStatic = true; ///< no other extents: the number itself
  bool isFree = true;   ///< no static extents
  bool allows(uint32_t length) const {
    if (factor == 0 || isStatic)
      return length == factor;
    return length % factor == 0;
  }
};
/// Nothing if the product of the static extents is 2^32 or more.
std::optional<StreamLength> streamLength(const std::vector<Index> &indices);

/// The kinds of rows that a derived program is tried on.
enum class Family : uint8_t {
  Normal,  ///< N(0, 1); non-negative symbols |N(0, 1)|
  Offset,  ///< 1e4 + N(0, 1)
  Masked,  ///< normal, with -inf where a symbol may have it
  Equal,   ///< one value at all positions
  Outlier, ///< normal, but 50 in the middle
  First,   ///< normal, but 50 at the first position
  Tiny,    ///< 1e-12 N(0, 1)
  Ramp,    ///< rising by 1/4 a position
  Growing, ///< magnitudes doubling every position, up to 2^7
  Near     ///< all symbols within 0.1 of one row
};
inline constexpr unsigned kFamilies = 10;
const char *spelling(Family family);

/// A generator of the same numbers on every machine (splitmix64).
class Random {
public:
  explicit Random(uint64_t seed) : state(seed) {}
  uint64_t next();
  /// In [0, 1).
  double uniform() { return double(next() >> 11) * 0x1p-53; }
  double uniform(double low, double high) {
    return low + (high - low) * uniform();
  }
  double normal();
  /// In [0, bound). Requires bound > 0.
  uint32_t below(uint32_t bound) { return uint32_t(next() % bound); }

private:
  uint64_t state;
};

/// A row of `length` stream positions for everything that `roots` read.
/// Respects facts and types; integers are small, since they may be subscripts.
Sample makeSample(const std::vector<Index> &indices,
                  const std::vector<Expr> &roots, Family family,
                  uint32_t length, Random &random);
/// All expressions of a cascade, or of a program: what reads the inputs.
std::vector<Expr> rootsOf(const Cascade &cascade);
std::vector<Expr> rootsOf(const Program &program);

/// Everything that is known of a row at its end.
template <typename T> struct RowValues {
  /// [stage][result][tuple of ranks]; no values where a program has no readout.
  std::vector<std::vector<std::vector<T>>> stages;
  /// [output][tuple of stream positions and ranks].
  std::vector<std::vector<T>> outputs;
  /// Of a program: [definition], results after one another.
  std::vector<std::vector<T>> definitions;
  /// An exponential left the range of double somewhere: what is algebraically
  /// the same may then be a different number.
  bool isSaturated = false;
  /// Interval: a comparison has another answer elsewhere in the intervals, so
  /// that radii say nothing.
  bool isUndecided = false;
};

/// In which order a program reads its row.
enum class Order : uint8_t {
  Stream,    ///< absorbs element after element
  Balanced,  ///< lifts elements, merges halves
  Tiles,     ///< reads 16 elements at their own pivots, merges halves
  Random,    ///< merges at random cuts, some parts empty
  Right,     ///< merges each element with all that follow
  Pivots,    ///< random cuts, and states moved to random pivots again and again
  Shifted,   ///< as Balanced, with pivots made of sums rounded to few digits
  Definition ///< no transport: each state in full, at the final pivots
};
const char *spelling(Order order);

/// How rounding errors reach an output, relative to it, in units of roundoff.
struct Amplification {
  /// Σ |dE/da_i|·S_i / |E| over sums a_i, S_i the sum of the absolute values
  /// that a_i adds up. Pivots are exact: a state is what it is at its pivot.
  double states = 0;
  /// The same over the results of the operations that finish the output, and,
  /// where asked for, of those that make the elements that the sums add up.
  double epilogue = 0;
  /// Σ |dE/dv| / |E| over all of these operations: what is lost where their
  /// results are subnormal, in units of half the smallest number.
  double underflow = 0;
};

/// What an evaluator of programs does wrong on purpose. A certificate that
/// still holds has not looked (the mutants of unittests/Algebra).
enum class Defect : uint8_t {
  None,
  AbsorbStays,  ///< absorbing does not move the state
  LeftStays,    ///< merging does not move its left side
  RightStays,   ///< nor its right side
  LeftLost,     ///< merging forgets its left side
  RightLost,    ///< its right side
  TurnedRound,  ///< transports lead from new to old
  OthersFirst,  ///< equal keys: the right side of a merge wins
  ZeroIdentity, ///< reductions start at 0
  OneIdentity,  ///< at 1
  FullLists,    ///< empty places of a top-k count as elements
  LostPayloads  ///< merging a top-k forgets the payloads of the right side
};
inline constexpr unsigned kDefects = 12;
const char *spelling(Defect defect);

/// Evaluates a cascade by definition, on samples of given extents.
/// Instances: float (every operation rounded), double, DoubleDouble and
/// Interval, whose radii bound what roundings may change (`Sample::slack`).
template <typename T> class DefinitionEvaluator {
public:
  DefinitionEvaluator(const Cascade &cascade,
                      const std::vector<uint32_t> &extents);
  ~DefinitionEvaluator();
  DefinitionEvaluator(const DefinitionEvaluator &) = delete;
  /// Requires sample.extents == extents.
  RowValues<T> run(const Sample &sample);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

/// Evaluates a program as a kernel does: sweeps, transports, merges, finish.
template <typename T> class ProgramEvaluator {
public:
  ProgramEvaluator(const Program &program, const std::vector<uint32_t> &extents,
                   Defect defect = Defect::None);
  ~ProgramEvaluator();
  ProgramEvaluator(const ProgramEvaluator &) = delete;
  RowValues<T> run(const Sample &sample, Order order, Random &random);
  /// After `run`: true if every accumulator, pivot, let and readout ended
  /// finite and no pivot came from an extremum at its identity. On other rows a
  /// fused and an unfused program may differ in class (docs/math,
  /// `irregular-rows`).
  bool isRegular() const;
  /// After `run`, by output: the worst over its elements, E being the largest.
  std::vector<Amplification> amplify(bool withElements = false);

private:
  struct Impl;
  std::unique_ptr<Impl> impl;
};

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_EVALUATE_H
