// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Facts.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

/// Facts used one inside another.
static constexpr unsigned kMaxDepth = 5;

Sign negated(Sign sign) {
  switch (sign) {
  case Sign::NonNegative:
    return Sign::NonPositive;
  case Sign::NonPositive:
    return Sign::NonNegative;
  default:
    return sign;
  }
}

static Sign product(Sign a, Sign b) {
  if (a == Sign::Zero || b == Sign::Zero)
    return Sign::Zero;
  if (a == Sign::Unknown || b == Sign::Unknown)
    return Sign::Unknown;
  return a == b ? Sign::NonNegative : Sign::NonPositive;
}

static Sign sum(Sign a, Sign b) {
  if (a == Sign::Zero)
    return b;
  if (b == Sign::Zero || a == b)
    return a;
  return Sign::Unknown;
}

static Sign signOf(double value) {
  if (value == 0)
    return Sign::Zero;
  return value > 0 ? Sign::NonNegative : Sign::NonPositive;
}

void FactBase::addExtremal(Expr symbol, Expr feature, bool isMax) {
  for (const Extremal &fact : extremal)
    if (fact.symbol == symbol && fact.feature == feature)
      return;
  extremal.push_back(
      {symbol, feature, normaliser.normal(feature), isMax, true});
  Sign known = sign(feature);
  if (known == Sign::NonNegative || known == Sign::Zero)
    nonNegative.insert(symbol);
  // |v| <= a holds -a <= v <= a.
  if (feature.is(Fn::Abs) && isMax) {
    const Poly &v = normaliser.normal(feature.operand(0));
    extremal.push_back({symbol, feature.operand(0), v, true, false});
    extremal.push_back({symbol, feature, v.scaled(-1), true, false});
  }
}

void FactBase::addLowerBound(Expr symbol, Poly low) {
  lowerBounds.push_back({symbol, std::move(low)});
}

Sign FactBase::sign(Expr e) { return sign(normaliser.normal(e), 0); }

std::optional<std::pair<Position, double>>
FactBase::distanceFrom(const Poly &e) const {
  for (const Position &place : places) {
    Poly distance = Poly::atom(place.index) - Poly::atom(place.symbol);
    const auto &[leading, unit] = *distance.all().begin();
    double factor = e.coefficientOf(leading) / unit;
    if (factor != 0 && e == distance.scaled(factor))
      return std::pair(place, factor);
  }
  return std::nullopt;
}

bool FactBase::isNonNegative(Expr e) {
  Sign s = sign(e);
  return s == Sign::NonNegative || s == Sign::Zero;
}

bool FactBase::isNonPositive(const Poly &poly) {
  Sign s = sign(poly);
  return s == Sign::NonPositive || s == Sign::Zero;
}

Sign FactBase::atomSign(Expr atom, unsigned depth) {
  if (nonNegative.contains(atom))
    return Sign::NonNegative;
  // What needs no look inside is known at any depth: |T| in |T| + 1.
  auto inner = [&](unsigned i) {
    return depth > kMaxDepth
               ? Sign::Unknown
               : sign(normaliser.normal(atom.operand(i)), depth + 1);
  };
  switch (atom.kind()) {
  case Kind::Const:
    return signOf(*atom.constant());
  case Kind::Sym: {
    const Facts &facts = atom.symbol().facts;
    if (facts.nonNegative || facts.low >= 0)
      return Sign::NonNegative;
    if (atom.type() == Type::U8 || atom.type() == Type::Bool)
      return Sign::NonNegative;
    return facts.high <= 0 ? Sign::NonPositive : Sign::Unknown;
  }
  case Kind::Fn:
    switch (atom->fn) {
    case Fn::Exp:
    case Fn::Exp2:
    case Fn::Abs:
    case Fn::Sqrt:
    case Fn::Rsqrt:
    case Fn::Sigmoid:
    case Fn::Relu:
    case Fn::Cosh:
      return Sign::NonNegative;
    case Fn::Tanh:
    case Fn::Erf:
    case Fn::Sinh:
    case Fn::Expm1:
    case Fn::Log1p:
    case Fn::Sign:
    case Fn::Round:
      return inner(0);
    case Fn::Log: // log a has the sign of a - 1
      if (depth > kMaxDepth)
        return Sign::Unknown;
      return sign(normaliser.normal(atom.operand(0)) - Poly::constant(1),
                  depth + 1);
    default:
      return Sign::Unknown;
    }
  case Kind::Max:
  case Kind::MaxNum:
  case Kind::Min:
  case Kind::MinNum: {
    bool isMax = atom.is(Kind::Max) || atom.is(Kind::MaxNum);
    Sign up = isMax ? Sign::NonNegative : Sign::NonPositive;
    Sign a = inner(0), b = inner(1);
    if (a == up || b == up || a == Sign::Zero || b == Sign::Zero)
      return a == Sign::Zero && b == Sign::Zero ? Sign::Zero : up;
    return a == b ? a : Sign::Unknown;
  }
  case Kind::Select: {
    Sign a = inner(1), b = inner(2);
    return a == Sign::Unknown || b == Sign::Unknown ? Sign::Unknown : sum(a, b);
  }
  case Kind::Cast:
    if (atom.operand(0).type() == Type::Bool)
      return Sign::NonNegative;
    return inner(0);
  case Kind::Contract:
    return inner(0);
  default:
    return depth > kMaxDepth ? Sign::Unknown
                             : sign(normaliser.normal(atom), kMaxDepth + 1);
  }
}

Sign FactBase::monomialSign(const Monomial &monomial, unsigned depth) {
  Sign result = Sign::NonNegative;
  for (const auto &[atom, exponent] : monomial.factors()) {
    bool isEven = exponent.num % 2 == 0 || exponent.den % 2 == 0;
    if (isEven)
      continue;
    result = product(result, atomSign(atom, depth));
  }
  return result;
}

Sign FactBase::sign(const Poly &poly, unsigned depth) {
  if (poly.isZero())
    return Sign::Zero;
  Sign total = Sign::Zero;
  for (const auto &[monomial, coefficient] : poly.all()) {
    Sign s = product(monomialSign(monomial, depth), signOf(coefficient));
    if (s == Sign::Unknown) {
      total = s;
      break;
    }
    total = sum(total, s);
    if (total == Sign::Unknown)
      break;
  }
  if (total != Sign::Unknown || depth > kMaxDepth || poly.size() < 2)
    return total;
  total = byElimination(poly, depth);
  if (total == Sign::Unknown)
    total = byReplacement(poly, depth);
  if (total == Sign::Unknown)
    total = byDenominator(poly, depth);
  return total;
}

/// The polynomial that `symbol` is multiplied with, if it occurs to the power 1
/// only; nothing otherwise.
static std::optional<Poly> linearCofactor(const Poly &poly, Expr symbol) {
  Poly cofactor;
  for (const auto &[monomial, coefficient] : poly.all()) {
    Rational exponent = monomial.exponentOf(symbol);
    if (exponent == rational(1))
      cofactor.add(monomial.without(symbol), coefficient);
    else if (exponent.num != 0)
      return std::nullopt;
  }
  if (cofactor.isZero())
    return std::nullopt;
  return cofactor;
}

/// c·m + r with m >= u has the sign of c if c·u + r has it (or is 0).
Sign FactBase::byElimination(const Poly &poly, unsigned depth) {
  auto attempt = [&](Expr symbol, const Poly &bound, bool isLower) {
    std::optional<Poly> cofactor = linearCofactor(poly, symbol);
    if (!cofactor)
      return Sign::Unknown;
    Sign direction = sign(*cofactor, depth + 1);
    if (direction == Sign::Unknown)
      return Sign::Unknown;
    if (!isLower)
      direction = negated(direction);
    Poly rest = poly - *cofactor * (Poly::atom(symbol) - bound);
    Sign remaining = sign(rest, depth + 1);
    return remaining == Sign::Zero || remaining == direction ? direction
                                                             : Sign::Unknown;
  };
  for (const Extremal &fact : extremal)
    if (Sign s = attempt(fact.symbol, fact.normal, fact.isMax);
        s != Sign::Unknown)
      return s;
  for (const auto &[symbol, low] : lowerBounds)
    if (Sign s = attempt(symbol, low, true); s != Sign::Unknown)
      return s;
  return Sign::Unknown;
}

/// max(a, b) is bounded by either operand, ceil(a) and floor(a) by a; where(m
/// == -inf, c, m) moves an identity only, so that it stands for m.
Sign FactBase::byReplacement(const Poly &poly, unsigned depth) {
  for (Expr atom : poly.atoms()) {
    bool isStep = atom.is(Fn::Ceil) || atom.is(Fn::Floor);
    bool isMax =
        atom.is(Kind::Max) || atom.is(Kind::MaxNum) || atom.is(Fn::Ceil);
    bool isMin =
        atom.is(Kind::Min) || atom.is(Kind::MinNum) || atom.is(Fn::Floor);
    bool isGuard = atom.is(Kind::Select) && atom.operand(0).is(Kind::Cmp) &&
                   atom.operand(0)->pred == Pred::Eq &&
                   atom.operand(0).operand(0) == atom.operand(2) &&
                   atom.operand(0).operand(1).constant() &&
                   std::isinf(*atom.operand(0).operand(1).constant());
    if (!isMax && !isMin && !isGuard)
      continue;
    std::optional<Poly> cofactor = linearCofactor(poly, atom);
    if (!cofactor)
      continue;
    Sign direction = sign(*cofactor, depth + 1);
    if (isMin)
      direction = negated(direction);
    if (direction == Sign::Unknown && !isGuard)
      continue;
    unsigned last = isGuard ? 3 : isStep ? 1 : 2;
    for (unsigned i = isGuard ? 2 : 0; i < last; ++i) {
      Poly replaced = poly - *cofactor * Poly::atom(atom) +
                      *cofactor * normaliser.normal(atom.operand(i));
      Sign s = sign(replaced, depth + 1);
      if (isGuard && s != Sign::Unknown)
        return s;
      if (!isGuard && (s == direction || s == Sign::Zero))
        return direction;
    }
  }
  return Sign::Unknown;
}

/// Multiplies out a denominator of known sign.
Sign FactBase::byDenominator(const Poly &poly, unsigned depth) {
  for (Expr atom : poly.atoms()) {
    Rational lowest{0, 1};
    for (const auto &[monomial, coefficient] : poly.all())
      if (Rational e = monomial.exponentOf(atom); e.value() < lowest.value())
        lowest = e;
    if (lowest.num >= 0)
      continue;
    Monomial factor(atom, lowest * rational(-1));
    Sign direction = monomialSign(factor, depth + 1);
    if (direction == Sign::Unknown)
      continue;
    Poly cleared = poly * Poly::monomial(factor);
    return product(sign(cleared, depth + 1), direction);
  }
  return Sign::Unknown;
}

} // namespace refold::algebra
