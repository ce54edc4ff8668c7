// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Poly.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

/// Polynomials longer than this are not expanded: they stay atoms.
static constexpr size_t kMaxTerms = 64;
/// Exponents beyond this stay inside an atom.
static constexpr int64_t kMaxExponent = 4096;
/// Coefficients that differ by less than this (relatively) are equal: they come
/// from constants that were divided, multiplied and subtracted.
static constexpr double kTolerance = 1e-12;

Rational operator+(Rational a, Rational b) {
  return rational(a.num * b.den + b.num * a.den, a.den * b.den);
}
Rational operator*(Rational a, Rational b) {
  return rational(a.num * b.num, a.den * b.den);
}

//===----------------------------------------------------------------------===//
// Monomial
//===----------------------------------------------------------------------===//

void Monomial::multiply(Expr atom, Rational exponent) {
  auto it = std::lower_bound(
      powers.begin(), powers.end(), atom,
      [](const auto &power, Expr key) { return power.first < key; });
  if (it == powers.end() || it->first != atom) {
    if (exponent.num != 0)
      powers.insert(it, {atom, exponent});
    return;
  }
  it->second = it->second + exponent;
  if (it->second.num == 0)
    powers.erase(it);
}

Monomial Monomial::operator*(const Monomial &other) const {
  Monomial result = *this;
  for (const auto &[atom, exponent] : other.powers)
    result.multiply(atom, exponent);
  return result;
}

Monomial Monomial::raised(Rational exponent) const {
  Monomial result;
  for (const auto &[atom, own] : powers)
    result.multiply(atom, own * exponent);
  return result;
}

Rational Monomial::exponentOf(Expr atom) const {
  for (const auto &[other, exponent] : powers)
    if (other == atom)
      return exponent;
  return {0, 1};
}

Monomial Monomial::without(Expr atom) const {
  Monomial result = *this;
  std::erase_if(result.powers, [&](const auto &p) { return p.first == atom; });
  return result;
}

bool Monomial::isSmall() const {
  return std::all_of(powers.begin(), powers.end(), [](const auto &p) {
    return std::abs(p.second.num) <= kMaxExponent &&
           p.second.den <= kMaxExponent;
  });
}

bool operator<(const Monomial &a, const Monomial &b) {
  auto less = [](const std::pair<Expr, Rational> &x,
                 const std::pair<Expr, Rational> &y) {
    if (x.first != y.first)
      return x.first < y.first;
    return x.second.num * y.second.den < y.second.num * x.second.den;
  };
  return std::lexicographical_compare(a.powers.begin(), a.powers.end(),
                                      b.powers.begin(), b.powers.end(), less);
}

//===----------------------------------------------------------------------===//
// Poly
//===----------------------------------------------------------------------===//

Poly Poly::constant(double value) {
  Poly result;
  result.add({}, value);
  return result;
}

Poly Poly::atom(Expr atom, Rational exponent) {
  return monomial(Monomial(atom, exponent));
}

Poly Poly::monomial(const Monomial &monomial, double coefficient) {
  Poly result;
  result.add(monomial, coefficient);
  return result;
}

void Poly::add(const Monomial &monomial, double coefficient) {
  if (coefficient == 0)
    return;
  auto [it, isNew] = terms.try_emplace(monomial, coefficient);
  if (isNew)
    return;
  double scale = std::max(std::abs(it->second), std::abs(coefficient));
  it->second += coefficient;
  if (std::abs(it->second) <= kTolerance * scale)
    terms.erase(it);
}

Poly Poly::operator+(const Poly &other) const {
  Poly result = *this;
  for (const auto &[monomial, coefficient] : other.terms)
    result.add(monomial, coefficient);
  return result;
}

Poly Poly::operator-(const Poly &other) const {
  return *this + other.scaled(-1);
}

Poly Poly::operator*(const Poly &other) const {
  Poly result;
  for (const auto &[m1, c1] : terms)
    for (const auto &[m2, c2] : other.terms)
      result.add(m1 * m2, c1 * c2);
  return result;
}

Poly Poly::scaled(double factor) const {
  Poly result;
  for (const auto &[monomial, coefficient] : terms)
    result.add(monomial, coefficient * factor);
  return result;
}

std::optional<double> Poly::asConstant() const {
  if (terms.empty())
    return 0.0;
  if (terms.size() == 1 && terms.begin()->first.isOne())
    return terms.begin()->second;
  return std::nullopt;
}

const std::pair<const Monomial, double> *Poly::single() const {
  return terms.size() == 1 ? &*terms.begin() : nullptr;
}

double Poly::coefficientOf(const Monomial &monomial) const {
  auto it = terms.find(monomial);
  return it == terms.end() ? 0 : it->second;
}

std::vector<Expr> Poly::atoms() const {
  std::vector<Expr> result;
  for (const auto &[monomial, coefficient] : terms)
    for (const auto &[atom, exponent] : monomial.factors())
      if (std::find(result.begin(), result.end(), atom) == result.end())
        result.push_back(atom);
  return result;
}

bool operator==(const Poly &a, const Poly &b) {
  return a.terms.size() == b.terms.size() && (a - b).isZero();
}

//===----------------------------------------------------------------------===//
// Normaliser
//===----------------------------------------------------------------------===//

const Poly &Normaliser::normal(Expr e) {
  if (auto it = memo.find(e); it != memo.end())
    return it->second;
  Poly result = compute(e);
  if (result.size() > kMaxTerms)
    result = Poly::atom(e);
  return memo[e] = std::move(result);
}

Poly Normaliser::power(Expr base, Rational exponent) {
  const Poly &inner = normal(base);
  if (exponent.isInteger() && exponent.num >= 1 && exponent.num <= 4 &&
      inner.size() <= 4) {
    Poly result = inner;
    for (int64_t i = 1; i < exponent.num; ++i)
      result = result * inner;
    return result;
  }
  if (const auto *only = inner.single()) {
    // (x^2)^(1/2) is |x|: fractions pass only to a plain atom.
    bool isPlain = only->first.factors().size() == 1 &&
                   only->first.factors()[0].second == rational(1);
    if (exponent.isInteger() || (isPlain && only->second > 0)) {
      double coefficient = std::pow(only->second, exponent.value());
      Monomial result = only->first.raised(exponent);
      if (std::isfinite(coefficient) && coefficient != 0 && result.isSmall())
        return Poly::monomial(result, coefficient);
    }
  }
  return Poly::atom(base, exponent);
}

/// a·b, or `e` as an atom where that would be long or overflow.
static Poly product(const Poly &a, const Poly &b, Expr e) {
  if (a.size() * b.size() > kMaxTerms)
    return Poly::atom(e);
  Poly result = a * b;
  for (const auto &[monomial, coefficient] : result.all())
    if (!monomial.isSmall() || !std::isfinite(coefficient))
      return Poly::atom(e);
  return result;
}

Poly Normaliser::compute(Expr e) {
  switch (e.kind()) {
  case Kind::Const:
    return std::isfinite(*e.constant()) ? Poly::constant(*e.constant())
                                        : Poly::atom(e);
  case Kind::Add:
    return normal(e.operand(0)) + normal(e.operand(1));
  case Kind::Sub:
    return normal(e.operand(0)) - normal(e.operand(1));
  case Kind::Neg:
    return normal(e.operand(0)).scaled(-1);
  case Kind::Mul: {
    const Poly a = normal(e.operand(0)), &b = normal(e.operand(1));
    return product(a, b, e);
  }
  case Kind::Div: {
    const Poly a = normal(e.operand(0));
    return product(a, power(e.operand(1), rational(-1)), e);
  }
  case Kind::Pow:
    if (std::abs(e->exponent.num) > kMaxExponent ||
        e->exponent.den > kMaxExponent)
      return Poly::atom(e);
    return power(e.operand(0), e->exponent);
  case Kind::Fn:
    if (e.is(Fn::Sqrt))
      return power(e.operand(0), rational(1, 2));
    if (e.is(Fn::Rsqrt))
      return power(e.operand(0), rational(-1, 2));
    return Poly::atom(e);
  case Kind::Cast:
    // A length as a number: i64(len(n)), f32(i64(len(n))).
    if (isFloat(e.operand(0).type()) || e.operand(0).type() == Type::Bool)
      return Poly::atom(e);
    if (isFloat(e.type()) || isExactConversion(e.operand(0).type(), e.type()))
      return normal(e.operand(0));
    return Poly::atom(e);
  default:
    return Poly::atom(e);
  }
}

//===----------------------------------------------------------------------===//
// Back to expressions
//===----------------------------------------------------------------------===//

Expr raised(Context &context, Expr base, Rational exponent) {
  if (exponent == rational(1))
    return base;
  if (exponent == rational(2))
    return context.mul(base, base);
  if (exponent == rational(1, 2))
    return context.fn(Fn::Sqrt, base);
  if (exponent == rational(-1, 2))
    return context.fn(Fn::Rsqrt, base);
  return context.pow(base, exponent);
}

Expr multiplied(Context &context, Expr numerator, const Monomial &monomial,
                double coefficient, Type type) {
  Expr result = numerator, divisor;
  auto times = [&](Expr &product, Expr factor) {
    product = product ? context.mul(product, factor) : factor;
  };
  if (std::abs(coefficient) != 1)
    times(result, context.real(std::abs(coefficient), type));
  for (const auto &[atom, exponent] : monomial.factors()) {
    bool divides = exponent.num < 0 && !(exponent == rational(-1, 2));
    Expr factor =
        raised(context, atom, divides ? exponent * rational(-1) : exponent);
    times(divides ? divisor : result, factor);
  }
  if (!result)
    result = context.real(1, type);
  if (divisor)
    result = context.div(result, divisor);
  return coefficient < 0 ? context.neg(result) : result;
}

Expr toExpr(Context &context, const Monomial &monomial, double coefficient,
            Type type) {
  return multiplied(context, {}, monomial, coefficient, type);
}

Expr toExpr(Context &context, const Poly &poly, Type type) {
  Expr sum;
  for (const auto &[monomial, coefficient] : poly.all()) {
    if (!sum) {
      sum = toExpr(context, monomial, coefficient, type);
      continue;
    }
    Expr part = toExpr(context, monomial, std::abs(coefficient), type);
    sum = coefficient < 0 ? context.sub(sum, part) : context.add(sum, part);
  }
  return sum ? sum : context.real(0, type);
}

} // namespace refold::algebra
