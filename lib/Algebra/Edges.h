// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_EDGES_H
#define REFOLD_LIB_ALGEBRA_EDGES_H

#include "refold/Algebra/Program.h"

/// Rows on which a program could differ from its cascade although all algebra
/// is right: the empty stream, and rows on which an extreme is the identity of
/// its reducer, so that every feature is. On the latter the stage is the sum of
/// a constant, and the state alone cannot tell (e^(-inf - -inf) is NaN, but the
/// state, kept at a finite pivot, is 0). Both are folded here and selected in
/// the readout where the plain readout would give something else.
namespace refold::algebra {

/// What is known of a value on the row at hand.
struct Folded {
  enum class Kind : uint8_t {
    Known,  ///< it is `value`
    Finite, ///< some finite number: an element, a parameter, a sum of them
    Any
  };
  Kind kind = Kind::Any;
  double value = 0;
  static Folded known(double value) { return {Kind::Known, value}; }
  static Folded finite() { return {Kind::Finite, 0}; }
  bool isKnown() const { return kind == Kind::Known; }
  bool isKnown(double other) const { return isKnown() && value == other; }
  bool isNan() const { return isKnown() && value != value; }
  bool isFinite() const;
};
using FoldedMap = std::unordered_map<Expr, Folded, ExprHash>;

/// Constant folding with IEEE edge values. NaN absorbs. Symbols that are not in
/// `map` are finite if they are read, and anything if they are results.
Folded fold(Expr e, const FoldedMap &map);
/// Both known, and equal or both NaN.
bool isSame(Folded a, Folded b);

class Edges {
public:
  explicit Edges(const Cascade &cascade);

  /// Rows on which the state `symbol` (max or min of `feature`) is its
  /// identity. `feature` over states, `written` as the user has it.
  void addExtremal(Expr symbol, Expr feature, Expr written, bool isMax);
  /// Takes note of the definitions that were appended since the last call.
  void follow(const Program &program);
  /// The readout `raw` of result `number` of a stage, right on edge rows too.
  Expr corrected(const Stage &stage, unsigned number, Expr raw);
  /// `value`, or 0 on rows where an extreme is its identity and `written` is
  /// NaN for that reason. Null if there is no such row.
  Expr zeroed(Expr written, Expr value) const;
  /// True if `raw` has, on every edge row, the class of the user's `written`.
  bool agrees(Expr written, Expr raw) const;
  /// The value of a stage's term where the extreme of `symbol` is its identity.
  Folded termOn(Expr symbol, Expr term) const;

private:
  struct Row {
    Expr condition; ///< over states and lengths
    Expr extreme;   ///< null: the empty stream
    double value = 0;
    FoldedMap written; ///< by stage symbols and features
    FoldedMap states;  ///< by states, lets and features
  };
  void note(Row &row, const Definition &definition) const;
  Folded wanted(const Row &row, const Stage &stage, unsigned number) const;

  const Cascade &cascade;
  std::vector<Row> rows; ///< the empty stream last: it is the outermost select
  size_t followed = 0;
  std::vector<Definition> seen;
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_EDGES_H
