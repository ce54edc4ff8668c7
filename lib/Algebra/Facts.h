// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_FACTS_H
#define REFOLD_LIB_ALGEBRA_FACTS_H

#include "Poly.h"

/// What reductions tell about the elements of a row: u <= max u, a sum of
/// values
/// >= 0 is >= each of them, and so on.
namespace refold::algebra {

enum class Sign : uint8_t { Unknown, Zero, NonNegative, NonPositive };
Sign negated(Sign sign);

/// u <= symbol (max) or u >= symbol (min) for every element of the row.
struct Extremal {
  Expr symbol;
  Expr feature;
  Poly normal; ///< of the feature
  bool isMax;
  bool isAttained; ///< some element has u = symbol: it may serve as a pivot
};

/// The stream position of the first element at an extreme. Seen from a segment
/// of neighbours that does not hold it, it lies before all of them or behind.
struct Position {
  Expr symbol;
  Expr index; ///< the position of an element, of type Index
};

class FactBase {
public:
  explicit FactBase(Normaliser &normaliser) : normaliser(normaliser) {}

  void addExtremal(Expr symbol, Expr feature, bool isMax);
  void addNonNegative(Expr symbol) { nonNegative.insert(symbol); }
  /// The symbol is a sum of values >= 0: it grows with every element.
  void addSumOfNonNegatives(Expr symbol) { growing.insert(symbol); }
  bool isSumOfNonNegatives(Expr symbol) const {
    return growing.contains(symbol);
  }
  /// symbol >= low for every element (a sum of non-negative terms and a
  /// summand).
  void addLowerBound(Expr symbol, Expr low) {
    addLowerBound(symbol, Poly(normaliser.normal(low)));
  }
  void addLowerBound(Expr symbol, Poly low);
  const std::vector<Extremal> &extremals() const { return extremal; }
  void addPosition(Position position) { places.push_back(position); }
  const std::vector<Position> &positions() const { return places; }
  /// The position p with e = factor·(index of p - p), and that factor.
  std::optional<std::pair<Position, double>> distanceFrom(const Poly &e) const;

  /// Sound, not complete. Values that are NaN are outside of it.
  Sign sign(Expr e);
  Sign sign(const Poly &poly) { return sign(poly, 0); }
  const Poly &normalOf(Expr e) { return normaliser.normal(e); }
  bool isNonNegative(Expr e);
  bool isNonPositive(const Poly &poly);

private:
  Sign sign(const Poly &poly, unsigned depth);
  Sign atomSign(Expr atom, unsigned depth);
  Sign monomialSign(const Monomial &monomial, unsigned depth);
  Sign byElimination(const Poly &poly, unsigned depth);
  Sign byReplacement(const Poly &poly, unsigned depth);
  Sign byDenominator(const Poly &poly, unsigned depth);

  Normaliser &normaliser;
  std::vector<Extremal> extremal;
  std::vector<Position> places;
  std::vector<std::pair<Expr, Poly>> lowerBounds;
  ExprSet nonNegative, growing;
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_FACTS_H
