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

/// A value known to be this constant on the row at hand; nothing otherwise.
using Folded = std::optional<double>;
using FoldedMap = std::unordered_map<Expr, double, ExprHash>;

/// Constant folding with IEEE edge values. NaN absorbs; what is unknown is
/// taken to be finite.
Folded fold(Expr e, const FoldedMap &known);
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
