// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_POLY_H
#define REFOLD_LIB_ALGEBRA_POLY_H

#include "refold/Algebra/Expr.h"

#include <map>

/// Normal forms, for comparing and matching only. What is printed is built from
/// the user's own subexpressions, never from an expanded polynomial, unless a
/// part of it has to be new.
namespace refold::algebra {

Rational operator+(Rational a, Rational b);
Rational operator*(Rational a, Rational b);

/// A product of powers of atoms, sorted by atom, no zero exponent.
class Monomial {
public:
  Monomial() = default;
  explicit Monomial(Expr atom, Rational exponent = {1, 1}) {
    multiply(atom, exponent);
  }
  void multiply(Expr atom, Rational exponent);
  Monomial operator*(const Monomial &other) const;
  Monomial raised(Rational exponent) const;
  Rational exponentOf(Expr atom) const;
  Monomial without(Expr atom) const;
  bool isOne() const { return powers.empty(); }
  bool isSmall() const; ///< exponents far from overflow
  const std::vector<std::pair<Expr, Rational>> &factors() const {
    return powers;
  }
  friend bool operator==(const Monomial &a, const Monomial &b) {
    return a.powers == b.powers;
  }
  friend bool operator<(const Monomial &a, const Monomial &b);

private:
  std::vector<std::pair<Expr, Rational>> powers;
};

class Poly {
public:
  Poly() = default;
  static Poly constant(double value);
  static Poly atom(Expr atom, Rational exponent = {1, 1});
  static Poly monomial(const Monomial &monomial, double coefficient = 1);

  void add(const Monomial &monomial, double coefficient);
  Poly operator+(const Poly &other) const;
  Poly operator-(const Poly &other) const;
  Poly operator*(const Poly &other) const;
  Poly scaled(double factor) const;

  bool isZero() const { return terms.empty(); }
  size_t size() const { return terms.size(); }
  std::optional<double> asConstant() const;
  /// The only term, if there is exactly one.
  const std::pair<const Monomial, double> *single() const;
  double coefficientOf(const Monomial &monomial) const;
  /// The atoms, each once.
  std::vector<Expr> atoms() const;
  const std::map<Monomial, double> &all() const { return terms; }
  friend bool operator==(const Poly &a, const Poly &b);
  friend bool operator<(const Poly &a, const Poly &b) {
    return a.terms < b.terms;
  }

private:
  std::map<Monomial, double> terms;
};

/// Expands sums, products and integer powers; everything else is an atom, exp
/// too. Conversions of integers to floats are seen through.
class Normaliser {
public:
  Normaliser() = default;
  const Poly &normal(Expr e);

private:
  Poly compute(Expr e);
  Poly power(Expr base, Rational exponent);
  std::unordered_map<Expr, Poly, ExprHash> memo;
};

/// Expressions made of normal forms. `type` is that of new constants.
Expr toExpr(Context &context, const Monomial &monomial, double coefficient,
            Type type);
Expr toExpr(Context &context, const Poly &poly, Type type);
/// numerator * coefficient * monomial, dividing where exponents are negative.
Expr multiplied(Context &context, Expr numerator, const Monomial &monomial,
                double coefficient, Type type);
Expr raised(Context &context, Expr base, Rational exponent);

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_POLY_H
