// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_PROGRAM_H
#define REFOLD_ALGEBRA_PROGRAM_H

#include "refold/Algebra/Cascade.h"

#include <variant>

/// What comes out of a derivation, one to one with the body of a
/// `refold.cascade`. A symbol always means its complete value: which sweep
/// computes it, and at which pivot it runs, follows from the data flow.
namespace refold::algebra {

/// A named value without stream index; pivots are lets, so that they are
/// finite.
struct Let {
  Expr symbol; ///< role Let
  Expr value;
};

/// An accumulator. With pivots p, its value f(x, p) is moved by `transport`:
///
///     f(x, new) = transport(old, new, f(x, old), f_j(x, old) for j in `with`)
///
/// for all x, old and new, and the same then holds for reduced values, since
/// the transport is linear (Sum) or monotone (Max, Min) in `self` and `with`.
struct State {
  Reducer reducer = Reducer::Sum;
  /// One value, or for TopK the key and the payloads. Over elements,
  /// parameters, pivots, and states and lets of earlier passes.
  std::vector<Expr> values;
  int64_t k = 1;             ///< TopK
  bool largest = true;       ///< TopK: false keeps the smallest keys, NaN last
  int rank = -1;             ///< TopK
  std::vector<Expr> results; ///< role State: one, or as many as `values`
  std::vector<Expr> pivots;  ///< symbols of lets or states of the same pass
  std::vector<Expr>
      with; ///< symbols of states of the same pass, defined before
  /// Over placeholders Old(i), New(i), Self, With(i), constants and parameters.
  /// Null without pivots.
  Expr transport;
  std::string
      law; ///< key of the law that makes the transport true; empty without
  std::string gauge;    ///< what the state is kept relative to, for people
  IndexSet indices = 0; ///< no stream index
  unsigned pass = 0;

  Expr symbol() const { return results.front(); }
};

using Definition = std::variant<Let, State>;

/// What shows that a cut stage has no short state (law `minor-of-a-term`).
struct RankEvidence {
  enum class Proof : uint8_t {
    Field, ///< a minor of order `rank` of the term is not 0, over a prime field
    Ball,  ///< the same, in numbers with known errors
    Optimum ///< `rank` elements are each the only optimum for some results
  };
  Proof proof = Proof::Field;
  unsigned rank = 0;
  unsigned samples = 0; ///< elements that were looked at
  /// The minor: which of the elements, and in which of the rows drawn for them
  /// the earlier results were taken. Optimum: each element, and a row in which
  /// it is the only one.
  std::vector<unsigned> elements, rows;
  uint64_t determinant = 0; ///< Field: of the minor, a residue
  double smallest = 0;      ///< Ball: least pivot of its elimination
};

/// Keys of lib/Support/Reasons.def.
namespace reason {
inline constexpr const char *mixedExponent = "mixed-exponent";
inline constexpr const char *kink = "kink";
inline constexpr const char *mixedCompare = "mixed-compare";
inline constexpr const char *powOfSum = "pow-of-sum";
inline constexpr const char *nonRepresentative = "non-representative";
inline constexpr const char *mixedCast = "mixed-cast";
inline constexpr const char *interiorOptimum = "interior-optimum";
inline constexpr const char *guardMixed = "guard-mixed";
inline constexpr const char *rankBudget = "rank-budget";
inline constexpr const char *notMonotone = "not-monotone";
} // namespace reason

/// Why a stage had to wait for the next pass.
struct Cut {
  unsigned stage = 0;
  std::string reason; ///< one of `reason::`
  Expr node;          ///< the part of the stage's term that stands in the way
  std::string
      text; ///< names the quantities, says what would have been possible
  std::string hint; ///< what the author could change; may be empty
  std::optional<RankEvidence> evidence;
};

/// A rounding q(y) of a value of elements and results, done at running results:
/// law `rounded-at-running-pivot`, or `power-of-two-scale` where the scale is
/// a power of two. Per element |q(y) - y| <= max(unit·|y|, step), for the value
/// at the final results and for the one that was moved there.
struct Rounding {
  unsigned stage = 0;
  Expr written;            ///< q(y) in the names of the cascade
  double unit = 0;         ///< half a unit in the last place, relative
  double step = 0;         ///< half the smallest step
  double lowestNormal = 0; ///< below it the error is `step`
  /// Bound of |y|; 0 where none is known, as in a type with the range of f32.
  double size = 0;
  /// q(2^j y) = 2^j q(y) for normal values: nothing else differs.
  bool isPowerOfTwo = false;

  /// n·step <= unit·size: up to how many elements those that are rounded to 0
  /// weigh less than the rounding of the others. 0: there is no limit.
  int64_t headroom() const {
    double most = step > 0 ? unit * size / step : 0;
    return most < 0x1p62 ? int64_t(most) : 0;
  }
};

struct ProgramOutput {
  std::string name;
  Expr value; ///< over states, lets, parameters and, in a sweep, elements
};

struct Program {
  Context *context = nullptr;
  std::vector<Index> indices;          ///< as in the cascade
  std::vector<Definition> definitions; ///< each reads earlier ones only
  /// readouts[stage][result]: the user's value from states and lets.
  std::vector<std::vector<Expr>> readouts;
  std::vector<unsigned> stagePass; ///< pass in which each stage is complete
  std::vector<ProgramOutput> outputs;
  unsigned passes = 0; ///< traversals of the stream before outputs
  /// Passes after those, in which every term is the identity of its reducer
  /// unless the row is not regular, or has more elements than a list holds: a
  /// kernel leaves them out for all other rows.
  unsigned repairPasses = 0;
  unsigned unfusedPasses = 0; ///< longest chain of dependent stages
  unsigned stateSize = 0;     ///< accumulators of `passes`; a TopK is one
  std::vector<Cut> cuts;
  /// Guards of the user that never act where their operands are numbers, as
  /// text: s = 0 beside s >= 1.
  std::vector<std::string> idleGuards;
  /// Groupings that were chosen for accuracy, and why, as text.
  std::vector<std::string> choices;
  /// Sums over lists of the best elements, as text (law `threshold-by-list`).
  std::vector<std::string> lists;
  /// Exponentials that the stages leave unbounded are kept relative to their
  /// largest: finite where the stages as written overflow.
  bool boundsExponentials = false;
  /// Rows whose pivots are NaN or infinite come out otherwise than as written,
  /// which their class may not show: they are always computed again.
  bool assumesNumbers = false;
  std::vector<Rounding> roundings;
  /// Outputs that the policy for masked rows changed.
  std::vector<std::string> zeroedOutputs;

  bool isFused() const { return passes <= 1; }
  const State *findState(Expr symbol) const;
  const Let *findLet(Expr symbol) const;
};

/// True if elements are rounded relative to the pivot: at another one they are
/// other numbers, and may leave the range of the type.
bool roundsAt(const State &state, Expr pivot);

/// Pass of each definition by the rule of the op: the pass of what its pivots
/// read, or one more than that of a state it reads otherwise. A let has the
/// pass of what it reads.
std::vector<unsigned> passesOf(const std::vector<Definition> &definitions);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_PROGRAM_H
