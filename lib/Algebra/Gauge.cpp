// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Which pivot an exponential is kept relative to. Only pivots that the range
// needs enter: everything else of the exponent is deferred to the readout,
// since a factor such as 1/s in the gauge would rescale the state at every
// element and be singular at the start.
#include "Builder.h"

#include <algorithm>

namespace refold::algebra {

static bool monomialHasX(const Monomial &monomial, Scope &scope) {
  for (const auto &[atom, exponent] : monomial.factors())
    if (scope.hasX(atom))
      return true;
  return false;
}

static bool isNeutral(const Monomial &monomial, Scope &scope) {
  for (const auto &[atom, exponent] : monomial.factors())
    if (scope.of(atom) != Dependence::Neutral)
      return false;
  return true;
}

static size_t countX(const Poly &poly, Scope &scope) {
  size_t n = 0;
  for (const auto &[monomial, coefficient] : poly.all())
    n += monomialHasX(monomial, scope);
  return n;
}

/// The scale c with poly = c·normal + rest, where rest has as many fewer
/// element monomials as `normal` has.
std::optional<Shift> Builder::multipleOf(const Poly &poly, const Poly &normal,
                                         Scope &scope) const {
  size_t own = countX(normal, scope);
  if (own == 0)
    return std::nullopt;
  auto leading = normal.all().begin();
  while (!monomialHasX(leading->first, scope))
    ++leading;
  size_t before = countX(poly, scope);
  for (const auto &[monomial, coefficient] : poly.all()) {
    if (!monomialHasX(monomial, scope))
      continue;
    Monomial scale = monomial * leading->first.raised(rational(-1));
    if (!isNeutral(scale, scope))
      continue;
    Shift shift;
    shift.coefficient = coefficient / leading->second;
    shift.scale = scale;
    Poly rest = poly - normal * Poly::monomial(scale, shift.coefficient);
    if (countX(rest, scope) + own == before)
      return shift;
  }
  return std::nullopt;
}

static Poly polyOf(const std::vector<Shift> &shifts) {
  Poly result;
  for (const Shift &shift : shifts)
    result = result + Poly::monomial(shift.scale * Monomial(shift.atom),
                                     shift.coefficient);
  return result;
}

/// Σ k·(u - pivot) where the features are the whole of `x`; else x with one
/// common factor taken out; else x - Σ k·pivot. Never expands.
Expr Builder::shifted(const LinearSum &x, const std::vector<Shift> &shifts,
                      Scope &scope, Type type) {
  if (shifts.empty())
    return x.toExpr(context, type);
  Poly rest = x.normal(normaliser);
  bool hasFeatures = true;
  for (const Shift &shift : shifts) {
    hasFeatures &= bool(shift.feature);
    if (shift.feature)
      rest = rest - normaliser.normal(shift.feature) *
                        Poly::monomial(shift.scale, shift.coefficient);
  }
  if (hasFeatures && countX(rest, scope) == 0) {
    Expr result;
    for (const Shift &shift : shifts) {
      bool isNegative = result && shift.coefficient < 0;
      Expr part = context.sub(shift.feature, shift.pivot);
      part =
          multiplied(context, part, shift.scale,
                     isNegative ? -shift.coefficient : shift.coefficient, type);
      result = !result      ? part
               : isNegative ? context.sub(result, part)
                            : context.add(result, part);
    }
    return result;
  }
  double coefficient = shifts.front().coefficient;
  Monomial scale = shifts.front().scale;
  bool isCommon = true;
  LinearSum plain;
  for (const LinearSum::Piece &piece : x.all()) {
    isCommon &= piece.coefficient == coefficient && piece.scale == scale;
    plain.add(piece.value);
  }
  for (const Shift &shift : shifts)
    isCommon &= shift.coefficient == coefficient && shift.scale == scale;
  Expr result =
      isCommon ? plain.toExpr(context, type) : x.toExpr(context, type);
  for (const Shift &shift : shifts)
    result = context.sub(
        result, isCommon ? shift.pivot
                         : multiplied(context, shift.pivot, shift.scale,
                                      shift.coefficient, type));
  return isCommon ? multiplied(context, result, scale, coefficient, type)
                  : result;
}

/// The running pivots that the user subtracts, if they bound the exponent by 0.
static std::optional<std::vector<Shift>> subtractedPivots(Builder &builder,
                                                          const Poly &ex,
                                                          const Poly &ed,
                                                          Scope &scope) {
  std::vector<Shift> shifts;
  for (const auto &[monomial, coefficient] : ed.all())
    for (const auto &[atom, exponent] : monomial.factors()) {
      Monomial scale = monomial.without(atom);
      if (!(exponent == rational(1)) || !builder.isPivotable(atom, scope) ||
          !isNeutral(scale, scope))
        continue;
      shifts.push_back({-coefficient, scale, atom, {}, {}});
    }
  if (shifts.empty() || !builder.facts.isNonPositive(ex - polyOf(shifts)))
    return std::nullopt;
  return shifts;
}

/// Extremal facts of this pass that bound the exponent: ex = Σ c·u + rest.
static std::optional<std::vector<Shift>>
boundingPivots(Builder &builder, Poly ex, Scope &scope, bool isGuarded) {
  if (isGuarded) // the elements that count may be far below
    return std::nullopt;
  std::vector<Shift> shifts;
  for (const Extremal &fact : builder.facts.extremals()) {
    if (!fact.isAttained || !scope.hasD(fact.symbol))
      continue;
    std::optional<Shift> shift = builder.multipleOf(ex, fact.normal, scope);
    if (!shift)
      continue;
    double sign = fact.isMax ? -1 : 1;
    if (!builder.facts.isNonPositive(
            Poly::monomial(shift->scale, sign * shift->coefficient)))
      continue;
    shift->atom = fact.symbol;
    shift->feature = fact.feature;
    ex = ex - fact.normal * Poly::monomial(shift->scale, shift->coefficient);
    shifts.push_back(*shift);
    if (countX(ex, scope) == 0)
      return shifts;
  }
  return std::nullopt;
}

/// The user wrote no bound: the exponent's own maximum becomes a state.
static std::vector<Shift> newPivot(Builder &builder, const LinearSum &ex,
                                   const std::vector<Expr> &xGuards, Type type,
                                   const std::string &name) {
  Shift shift;
  shift.feature = ex.toExpr(builder.context, type);
  // Elements that do not count must not lift the pivot far above those that do.
  Expr bounded = shift.feature;
  for (Expr guard : xGuards)
    bounded = builder.context.select(
        guard, bounded,
        builder.context.real(-std::numeric_limits<double>::infinity(), type));
  shift.atom = builder.state(Reducer::Max, bounded, name + ".max");
  builder.facts.addExtremal(shift.atom, bounded, true);
  builder.ownPivots.insert(shift.atom);
  return {shift};
}

/// Shifts by states of earlier passes need no transport: they are constants.
Gauge Builder::chooseGauge(const LinearSum &ex,
                           const std::vector<const Term *> &terms, Scope &scope,
                           Type type, unsigned pass, const std::string &name) {
  Gauge gauge;
  Poly normal = ex.normal(normaliser);
  std::optional<std::vector<Shift>> shifts;
  for (const Term *term : terms)
    if (!shifts && !term->ed.isZero())
      shifts = subtractedPivots(*this, normal, term->ed, scope);
  if (!shifts)
    shifts =
        boundingPivots(*this, normal, scope, !terms.front()->xGuards.empty());
  if (!shifts && facts.isNonPositive(normal))
    shifts.emplace();
  if (!shifts) {
    shifts = newPivot(*this, ex, terms.front()->xGuards, type, name);
    if (passOf.at((*shifts)[0].atom) == pass)
      scope.addVarying((*shifts)[0].atom);
  }
  Poly rest = normal;
  bool hasFeatures = true;
  for (Shift &shift : *shifts) {
    if (!shift.feature)
      for (const Extremal &fact : facts.extremals())
        if (fact.isAttained && fact.symbol == shift.atom && !shift.feature)
          shift.feature = fact.feature;
    if (shift.feature)
      rest = rest - normaliser.normal(shift.feature) *
                        Poly::monomial(shift.scale, shift.coefficient);
    hasFeatures &= bool(shift.feature);
    shift.pivot = guarded(shift.atom);
    if (scope.hasD(shift.atom))
      scope.addVarying(shift.pivot);
  }
  gauge.shifts = *shifts;
  gauge.moved = polyOf(*shifts);
  // A neutral rest stays outside where the features are the whole exponent.
  if (!shifts->empty() && hasFeatures && countX(rest, scope) == 0)
    gauge.moved = gauge.moved + rest;
  gauge.factor = context.exp(shifted(ex, *shifts, scope, type));
  return gauge;
}

} // namespace refold::algebra
