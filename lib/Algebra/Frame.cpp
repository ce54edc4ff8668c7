// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Moving frames: an integrand that depends on u - pivot only is kept as sums of
// its derivatives in t = u - pivot, and a move of the pivot by d = old - new is
// the Taylor shift f(t + d) = Σ d^k/k! f^(k)(t). Element functions and
// transports are printed from t and d, never expanded.
#include "Builder.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

//===----------------------------------------------------------------------===//
// Location pivots
//===----------------------------------------------------------------------===//

/// Nesting up to which an expression may be a mean.
static constexpr uint32_t kDeepestMean = 8;

Mean Builder::meanOf(Expr sum, Expr weight, Expr feature, Type type) {
  Mean &mean = means[{sum, weight}];
  if (mean.pivot)
    return mean;
  bool isCount = sums.at(weight).g.isOne() && !sums.at(weight).gauge.factor;
  Expr zero = context.real(0, type), one = context.real(1, type);
  mean.sum = sum;
  mean.weight = weight;
  mean.feature = feature;
  mean.divisor = isCount ? context.max(weight, one)
                         : context.select(context.cmp(Pred::Eq, weight, zero),
                                          one, weight);
  mean.pivot =
      addLet(context.div(sum, mean.divisor), sum.symbol().name + ".mean");
  return mean;
}

/// Number of elements of the stream as a normal form.
static Poly lengthOf(const Cascade &cascade, Normaliser &normaliser) {
  Poly result = Poly::constant(1);
  for (const Index &index : cascade.indices)
    if (index.role == IndexRole::Stream)
      result = result * normaliser.normal(index.length);
  return result;
}

/// A sum over weights inside a monomial of the δ-part, S/W or S/n, whose
/// feature the x-part has: the mean of that feature.
std::optional<Mean> Builder::meanIn(const Monomial &monomial,
                                    const Poly &xNormal, Scope &scope,
                                    Type type, unsigned pass, Shift &shift) {
  for (const auto &[sum, exponent] : monomial.factors()) {
    auto own = sums.find(sum);
    if (!(exponent == rational(1)) || own == sums.end() || !scope.hasD(sum))
      continue;
    for (const auto &[weight, power] : monomial.factors()) {
      auto other = sums.find(weight);
      if (!(power == rational(-1)) || other == sums.end() ||
          !scope.hasD(weight) || !(own->second.gauge == other->second.gauge) ||
          !facts.isNonPositive(Poly::monomial(other->second.g, -1)))
        continue;
      Monomial ratio = own->second.g * other->second.g.raised(rational(-1));
      Expr feature = toExpr(context, ratio, 1, type);
      auto found = multipleOf(xNormal, normaliser.normal(feature), scope);
      if (!found)
        continue;
      shift = *found;
      return meanOf(sum, weight, feature, type);
    }
    if (own->second.gauge.factor || !own->second.gauge.xGuards.empty())
      continue;
    Expr feature = program.findState(sum)->values[0];
    auto found = multipleOf(xNormal, normaliser.normal(feature), scope);
    if (!found)
      continue;
    shift = *found;
    return meanOf(sum, count(pass, sum), feature, type);
  }
  return std::nullopt;
}

/// Σ w·(u - pivot) for the mean's own weights: zero but for rounding, and what
/// makes the frame exact for any pivot.
Expr Builder::firstMoment(const Mean &mean, Type type, unsigned pass) {
  const SumInfo weights = sums.at(mean.weight);
  Variable variable;
  Shift shift;
  shift.atom = mean.pivot;
  shift.feature = mean.feature;
  shift.pivot = mean.pivot;
  variable.t = context.sub(mean.feature, mean.pivot);
  variable.shifts = {shift};
  FramePoly poly{{{weights.g, {{0, 1}}}, 1.0}};
  Combination moment = build(poly, {variable}, weights.gauge, type, pass,
                             mean.sum.symbol().name + ".dev");
  if (moment.empty())
    return context.real(0, type);
  return means.at({mean.sum, mean.weight}).moment = moment.front().second;
}

/// The state of Σ w·(u - pivot)² for the mean's own weights, or of such a sum
/// with squares of other distances, if some state is that; else null.
Expr Builder::squaresAbout(const Mean &mean) const {
  const SumInfo &weight = sums.at(mean.weight);
  for (const auto &[key, sum] : built) {
    auto isSquare = [&](const auto &term) {
      const auto &[g, powers] = term.first;
      return g == weight.g && powers.size() == 1 &&
             powers.begin()->second == 2 && term.second == 1.0;
    };
    auto isDistance = [&](const auto &term) {
      Expr t = key.variables[term.first.second.begin()->first];
      return t.is(Kind::Sub) && t.operand(0) == mean.feature &&
             t.operand(1) == mean.pivot;
    };
    bool isOfMean = key.exponential ==
                        (weight.gauge.factor ? weight.gauge.factor->id : 0) &&
                    key.guards == weight.gauge.xGuards &&
                    key.outer == weight.gauge.outer;
    if (isOfMean && sum.size() == 1 && sum[0].first == 1.0 &&
        std::all_of(key.poly.begin(), key.poly.end(), isSquare) &&
        std::any_of(key.poly.begin(), key.poly.end(), isDistance))
      return sum[0].second;
  }
  return Expr();
}

/// The moment is summed of rounded distances. Where the pivot is smaller than
/// they are, all of one binade are rounded to the same side, and the moment
/// errs by more than the sum that it would correct; where it is larger,
/// distances are exact or nearly so.
Expr Builder::refinedMean(const Mean &mean, Expr written, Expr weight) {
  Expr squares = squaresAbout(mean);
  if (!squares)
    return written;
  // Infinite elements have an infinite mean and no moments.
  Expr isNumber = context.cmp(Pred::Eq, mean.moment, mean.moment);
  Expr isFar =
      context.cmp(Pred::Ge, context.mul(mean.pivot, mean.sum), squares);
  return context.select(
      context.logicalAnd(isNumber, isFar),
      context.add(mean.pivot, context.div(mean.moment, weight)), written);
}

Expr Builder::refined(Expr value) {
  Poly length = lengthOf(cascade, normaliser);
  ExprMap map;
  forEachNode(value, [&](Expr e) {
    if (!(e.is(Kind::Div) || e.is(Kind::Mul)) ||
        (e.indices() & cascade.stream()) || e->depth > kDeepestMean)
      return;
    const Poly &normal = normaliser.normal(e);
    if (!normal.single())
      return;
    const auto &[monomial, coefficient] = *normal.single();
    for (const auto &[key, mean] : means) {
      if (!mean.moment || !(monomial.exponentOf(mean.sum) == rational(1)))
        continue;
      Poly divisor = Poly::monomial(
          monomial.without(mean.sum).raised(rational(-1)), 1 / coefficient);
      bool isCount = mean.divisor.is(Kind::Max);
      if (!(divisor == Poly::atom(mean.weight)) &&
          !(isCount && divisor == length))
        continue;
      bool isWritten = e.is(Kind::Div) && e.operand(0) == mean.sum;
      map[e] = refinedMean(mean, e, isWritten ? e.operand(1) : mean.weight);
    }
  });
  return map.empty() ? value : substitute(context, value, map);
}

void Builder::take(Location &location, const Shift &shift) {
  location.rest =
      location.rest - normaliser.normal(shift.feature) *
                          Poly::monomial(shift.scale, shift.coefficient);
  location.variable.shifts.push_back(shift);
}

void Builder::takeExtremal(Location &location, const Extremal &fact,
                           Scope &scope) {
  if (!fact.isAttained || !scope.hasD(fact.symbol) ||
      !isFloat(fact.symbol.type()))
    return;
  std::optional<Shift> shift = multipleOf(location.rest, fact.normal, scope);
  if (!shift)
    return;
  shift->atom = fact.symbol;
  shift->feature = fact.feature;
  shift->pivot = guarded(fact.symbol);
  scope.addVarying(shift->pivot);
  location.delta =
      location.delta +
      Poly::monomial(shift->scale * Monomial(fact.symbol), shift->coefficient);
  take(location, *shift);
}

/// Distances along the stream keep their digits relative to a position.
void Builder::takePosition(Location &location, const Position &place,
                           Scope &scope, Type type) {
  if (!scope.hasD(place.symbol))
    return;
  std::optional<Shift> shift =
      multipleOf(location.rest, Poly::atom(place.index), scope);
  if (!shift)
    return;
  Expr &pivot = guards[place.symbol];
  if (!pivot)
    pivot = addLet(context.cast(type, place.symbol),
                   place.symbol.symbol().name + ".pivot");
  shift->atom = place.symbol;
  shift->feature = context.cast(type, place.index);
  shift->pivot = pivot;
  scope.addVarying(pivot);
  location.delta =
      location.delta +
      Poly::monomial(shift->scale * Monomial(place.symbol), shift->coefficient);
  take(location, *shift);
}

/// The means that the δ-part subtracts. Where it is exactly the mean, x - δ is
/// t + (pivot - mean), and the difference is the first moment over the weight,
/// without the cancellation.
void Builder::takeMeans(Location &location, const Poly &subtracted,
                        Scope &scope, Type type, unsigned pass) {
  for (const auto &[monomial, coefficient] : subtracted.all()) {
    Shift shift;
    std::optional<Mean> mean =
        meanIn(monomial, location.rest, scope, type, pass, shift);
    if (!mean)
      continue;
    scope.addVarying(mean->pivot);
    scope.addVarying(mean->weight);
    shift.atom = shift.pivot = mean->pivot;
    shift.feature = mean->feature;
    Poly weight = monomial.exponentOf(mean->weight).num < 0
                      ? Poly::atom(mean->weight)
                      : lengthOf(cascade, normaliser);
    Poly ratio =
        Poly::monomial(monomial.without(mean->sum), coefficient) * weight +
        Poly::monomial(shift.scale, shift.coefficient);
    if (ratio.isZero()) {
      location.delta.add(monomial, -coefficient);
      location.refined.push_back({shift, *mean});
    } else {
      location.delta =
          location.delta + Poly::monomial(shift.scale * Monomial(mean->pivot),
                                          shift.coefficient);
    }
    take(location, shift);
  }
}

/// The mean of the whole x-part over the elements that count, as a state of our
/// own: what is masked may be anything. Weighted as the terms are, by absolute
/// values where the sign is unknown: an element of no weight is not to draw the
/// pivot away from the others.
void Builder::takeOwnMean(Location &location, const LinearSum &x,
                          const Gauge &of, const Monomial &weights,
                          Scope &scope, Type type, unsigned pass,
                          const std::string &name) {
  Expr feature = x.toExpr(context, type);
  Gauge gauge;
  for (Expr guard : of.xGuards)
    if (!scope.hasD(guard))
      gauge.xGuards.push_back(guard);
  Monomial g;
  for (const auto &[atom, exponent] : weights.factors()) {
    Monomial factor = Monomial(atom).raised(exponent);
    if (!facts.isNonPositive(Poly::monomial(factor, -1)))
      factor = Monomial(context.fn(Fn::Abs, toExpr(context, factor, 1, type)));
    g = g * factor;
  }
  auto stateOf = [&](const Monomial &values, const char *suffix) {
    Expr value = toExpr(context, values, 1, type);
    for (Expr guard : gauge.xGuards)
      value = context.select(guard, value, context.real(0, type));
    Expr sum = state(Reducer::Sum, value, name + suffix);
    sums[sum] = SumInfo{values, gauge};
    return sum;
  };
  Expr sum = stateOf(g * Monomial(feature), ".sum");
  if (passOf.at(sum) != pass)
    return;
  Expr weight =
      g.isOne() && gauge.xGuards.empty() ? count(pass, sum) : stateOf(g, ".n");
  if (passOf.at(weight) != pass)
    return;
  Mean mean = meanOf(sum, weight, feature, type);
  scope.addVarying(mean.pivot);
  Shift shift;
  shift.atom = shift.pivot = mean.pivot;
  shift.feature = feature;
  location.delta = location.delta + Poly::atom(mean.pivot);
  take(location, shift);
}

/// What is left of the δ-part beside t, named where it is used more than once.
Expr Builder::offsetOf(const Location &location, unsigned degree, Type type,
                       unsigned pass, const std::string &name) {
  Expr offset;
  if (!location.delta.isZero())
    offset = toExpr(context, location.delta, type);
  for (const auto &[shift, mean] : location.refined) {
    // Without any weight the mean is 0/0, and so is everything that reads it.
    bool isCounted = mean.divisor.is(Kind::Max);
    Expr moved = context.div(firstMoment(mean, type, pass),
                             isCounted ? mean.divisor : mean.weight);
    moved = multiplied(context, moved, shift.scale, -shift.coefficient, type);
    offset = offset ? context.add(offset, moved) : moved;
  }
  if (!offset || offset.isSym() || (degree < 2 && location.refined.empty()))
    return offset;
  Expr &entry = offsets[offset];
  if (!entry)
    entry = addLet(offset, name + ".shift");
  return entry;
}

/// Chooses the pivots of t = x - Σ shifts: the extremes and means that the
/// δ-part subtracts; else the pivots of the exponential; else, for squares and
/// above, the mean of x. Without any of them t = x, which is the raw gauge.
Variable Builder::locate(const Translate &translate, const Gauge &gauge,
                         const Monomial &weights, unsigned degree, Scope &scope,
                         Type type, unsigned pass, const std::string &name) {
  Location location;
  location.rest = translate.xNormal;
  location.delta = translate.delta;
  if (policy.moments == Moments::Raw) {
    location.variable.t = translate.x.toExpr(context, type);
    location.variable.offset = offsetOf(location, degree, type, pass, name);
    return location.variable;
  }
  std::vector<Shift> &shifts = location.variable.shifts;
  std::vector<Expr> atoms = translate.delta.atoms();
  const std::vector<Extremal> known = facts.extremals();
  for (const Extremal &fact : known)
    if (std::find(atoms.begin(), atoms.end(), fact.symbol) != atoms.end())
      takeExtremal(location, fact, scope);
  for (const Position &place : facts.positions())
    if (std::find(atoms.begin(), atoms.end(), place.symbol) != atoms.end())
      takePosition(location, place, scope, type);
  takeMeans(location, translate.delta, scope, type, pass);
  if (shifts.empty())
    for (const Shift &shift : gauge.shifts)
      for (const Extremal &fact : known)
        if (fact.symbol == shift.atom)
          takeExtremal(location, fact, scope);
  if (shifts.empty() && degree >= 2 && !gauge.factor)
    takeOwnMean(location, translate.x, gauge, weights, scope, type, pass, name);
  location.variable.t = shifted(translate.x, shifts, scope, type);
  // What `shifted` left out of t: a rest that does not depend on the element.
  bool hasElements = false;
  for (Expr atom : location.rest.atoms())
    hasElements |= scope.hasX(atom);
  if (!shifts.empty() && !hasElements)
    location.delta = location.delta + location.rest;
  location.variable.offset = offsetOf(location, degree, type, pass, name);
  return location.variable;
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

static Monomial split(const Monomial &g, IndexSet carried, bool wantCarried) {
  Monomial result;
  for (const auto &[atom, exponent] : g.factors())
    if (bool(atom.indices() & carried) == wantCarried)
      result.multiply(atom, exponent);
  return result;
}

/// [guards] e^.. · g · polynomial in t, factors with carried indices last: what
/// varies along the lanes of a matrix product is then one operand of it.
Expr Builder::print(const FramePoly &poly,
                    const std::vector<Variable> &variables, const Gauge &gauge,
                    Type type) {
  const Monomial &common = poly.begin()->first.first;
  bool isCommon = std::all_of(poly.begin(), poly.end(), [&](const auto &entry) {
    return entry.first.first == common;
  });
  Expr sum;
  for (const auto &[key, coefficient] : poly) {
    Expr part = isCommon ? Expr() : toExpr(context, key.first, 1, type);
    for (auto [number, power] : key.second)
      for (unsigned i = 0; i < power; ++i)
        part =
            part ? context.mul(part, variables[number].t) : variables[number].t;
    if (!part)
      part = context.real(1, type);
    bool isNegative = sum && coefficient < 0;
    part = multiplied(context, part, {},
                      isNegative ? -coefficient : coefficient, type);
    sum = !sum         ? part
          : isNegative ? context.sub(sum, part)
                       : context.add(sum, part);
  }
  IndexSet carried = cascade.indicesOf(IndexRole::Carried);
  Expr value = gauge.factor;
  if (isCommon && !split(common, carried, false).isOne())
    value = multiplied(context, value, split(common, carried, false), 1, type);
  if (!sum.isConstant(1))
    value = value ? context.mul(value, sum) : sum;
  auto times = [&](const Monomial &factor) {
    if (factor.isOne())
      return;
    bool divides = factor.factors().front().second.num < 0;
    value = !value    ? toExpr(context, factor, 1, type)
            : divides ? multiplied(context, value, factor, 1, type)
                      : context.mul(value, toExpr(context, factor, 1, type));
  };
  if (isCommon)
    times(split(common, carried, true));
  if (!value)
    value = context.real(1, type);
  for (Expr guard : gauge.xGuards)
    value = context.select(guard, value, context.real(0, type));
  times(gauge.outer);
  return value;
}

Expr Builder::value(const Combination &sum, Type type) {
  LinearSum result;
  for (auto [coefficient, symbol] : sum)
    result.add(symbol, coefficient);
  return result.toExpr(context, type);
}

/// Σ k·(old - new) over the pivots that run in this pass; null if none does.
Expr Builder::distance(const std::vector<Shift> &shifts,
                       std::vector<Expr> &pivots, unsigned pass, Type type) {
  LinearSum sum;
  for (const Shift &shift : shifts) {
    auto it = passOf.find(shift.pivot);
    if (it == passOf.end() || it->second != pass)
      continue;
    auto at = std::find(pivots.begin(), pivots.end(), shift.pivot);
    unsigned number = unsigned(at - pivots.begin());
    if (at == pivots.end())
      pivots.push_back(shift.pivot);
    Type own = shift.pivot.type();
    sum.add(context.sub(context.placeholder(Role::Old, number, own),
                        context.placeholder(Role::New, number, own)),
            shift.coefficient, shift.scale);
  }
  return sum.empty() ? Expr() : sum.toExpr(context, type);
}

/// Σ d^k/k!·(derivative), nested so that a state that is 0 is never multiplied
/// by a power of d that overflowed: d0·(c1 + d0·(c2 + ...)).
/// Law `taylor-shift`: with d = old - new, Σ w·(x - new)^k is
/// Σ_j C(k, j)·d^j·c_(k-j), c_i = Σ w·(x - old)^i.
static Expr horner(Context &context, std::map<Powers, Expr> taylor,
                   const std::vector<Expr> &distances, unsigned number) {
  if (number == distances.size())
    return taylor.empty() ? Expr() : taylor.begin()->second;
  std::map<unsigned, std::map<Powers, Expr>> byPower;
  for (auto &[powers, value] : taylor) {
    Powers rest = powers;
    unsigned power = 0;
    if (auto it = rest.find(number); it != rest.end()) {
      power = it->second;
      rest.erase(it);
    }
    byPower[power][rest] = value;
  }
  unsigned highest = byPower.rbegin()->first;
  Expr result;
  for (unsigned power = highest + 1; power-- > 0;) {
    if (result)
      result = context.mul(distances[number], result);
    if (!byPower.contains(power))
      continue;
    Expr own = horner(context, byPower[power], distances, number + 1);
    result = result ? context.add(own, result) : own;
  }
  return result;
}

static double factorial(unsigned n) { return std::tgamma(double(n) + 1); }

/// A side that has seen nothing is not moved (law `identity-clamp`): its pivot
/// is the guard of the identity, a power of the distance from which is inf in
/// f32, and inf times the empty state NaN. An exponential alone forgives it.
/// The guard is also a number that elements may be (a mask by the lowest
/// float), so the state and what the transport reads must be 0 too.
Expr Builder::unlessEmpty(const State &state, Expr moved) {
  if (state.with.empty())
    return moved;
  Expr empty;
  auto require = [&](Expr value, double wanted) {
    Expr same =
        context.cmp(Pred::Eq, value, context.real(wanted, value.type()));
    empty = empty ? context.logicalAnd(empty, same) : same;
  };
  for (size_t k = 0; k < state.pivots.size(); ++k) {
    const Let *let = program.findLet(state.pivots[k]);
    if (!let || !(let->value.is(Kind::MaxNum) || let->value.is(Kind::MinNum)))
      continue;
    for (unsigned i = 0; i < 2; ++i)
      if (std::optional<double> guard = let->value.operand(i).constant())
        require(context.placeholder(Role::Old, unsigned(k), let->value.type()),
                *guard);
  }
  if (!empty)
    return moved;
  Expr self = context.placeholder(Role::Self, 0, moved.type());
  require(self, 0);
  for (size_t i = 0; i < state.with.size(); ++i)
    require(context.placeholder(Role::With, unsigned(i), state.with[i].type()),
            0);
  return context.select(empty, self, moved);
}

Expr Builder::transport(const std::map<Powers, Combination> &taylor,
                        const std::vector<Variable> &variables,
                        const Gauge &gauge, State &state, unsigned pass,
                        Type type) {
  Expr exponent = distance(gauge.shifts, state.pivots, pass, type);
  Expr ratio = scaleMove(gauge.scales, state.pivots, pass);
  std::vector<Expr> distances(variables.size());
  for (const auto &[powers, sum] : taylor)
    for (auto [number, power] : powers)
      if (!distances[number])
        distances[number] =
            distance(variables[number].shifts, state.pivots, pass, type);
  std::map<Powers, Expr> parts;
  parts[{}] = context.placeholder(Role::Self, 0, type);
  for (const auto &[powers, sum] : taylor) {
    bool isMoved = true;
    double divisor = 1;
    for (auto [number, power] : powers) {
      isMoved &= bool(distances[number]);
      divisor *= factorial(power);
    }
    if (!isMoved || sum.empty())
      continue;
    LinearSum with;
    for (auto [coefficient, symbol] : sum) {
      auto at = std::find(state.with.begin(), state.with.end(), symbol);
      unsigned number = unsigned(at - state.with.begin());
      if (at == state.with.end())
        state.with.push_back(symbol);
      with.add(context.placeholder(Role::With, number, symbol.type()),
               coefficient / divisor);
    }
    parts[powers] = with.toExpr(context, type);
  }
  if (state.pivots.empty())
    return {};
  // Law `rescale-distributes`: Σ e^(u - b)·g = e^(a - b)·Σ e^(u - a)·g.
  // Each sum by itself: a factor of 0 is not to meet a distance that, times
  // the sum, overflowed (two elements masked by the lowest float).
  if (exponent)
    for (auto &[powers, sum] : parts)
      sum = context.mul(sum, context.exp(exponent));
  if (ratio)
    for (auto &[powers, sum] : parts)
      sum = context.mul(sum, ratio);
  Expr result = horner(context, parts, distances, 0);
  state.law = gauge.castLaw      ? gauge.castLaw
              : parts.size() > 1 ? "taylor-shift"
              : exponent         ? "rescale-distributes"
                                 : "constant-under-move";
  return unlessEmpty(state, result);
}

static FramePoly derivative(const FramePoly &poly, unsigned number) {
  FramePoly result;
  for (const auto &[key, coefficient] : poly) {
    auto it = key.second.find(number);
    if (it == key.second.end())
      continue;
    Powers powers = key.second;
    if (--powers[number] == 0)
      powers.erase(number);
    result[{key.first, powers}] += coefficient * it->second;
  }
  return result;
}

/// All derivatives but the function itself.
static std::map<Powers, FramePoly> derivatives(const FramePoly &poly) {
  std::map<Powers, FramePoly> result;
  std::vector<std::pair<Powers, FramePoly>> pending{{{}, poly}};
  while (!pending.empty()) {
    auto [order, function] = pending.back();
    pending.pop_back();
    std::map<unsigned, bool> numbers;
    for (const auto &[key, coefficient] : function)
      for (auto [number, power] : key.second)
        numbers[number] = true;
    for (auto [number, unused] : numbers) {
      Powers next = order;
      ++next[number];
      if (result.contains(next))
        continue;
      FramePoly own = derivative(function, number);
      result[next] = own;
      pending.push_back({next, own});
    }
  }
  return result;
}

/// `lower` is, up to a factor, a derivative of `upper`.
static bool isBelow(const std::pair<Monomial, Powers> &lower,
                    const std::pair<Monomial, Powers> &upper) {
  if (!(lower.first == upper.first) || lower.second == upper.second)
    return false;
  for (auto [number, power] : lower.second) {
    auto it = upper.second.find(number);
    if (it == upper.second.end() || it->second < power)
      return false;
  }
  return true;
}

static unsigned degreeOf(const Powers &powers) {
  unsigned degree = 0;
  for (auto [number, power] : powers)
    degree += power;
  return degree;
}

/// Guards at an extreme of this pass: the state starts anew when it moves.
/// Guards that most elements pass start from what all of them give.
void Builder::resetAll(State &state, const FramePoly &poly,
                       const std::vector<Variable> &variables,
                       const Gauge &gauge, Type type, unsigned pass,
                       const std::string &name) {
  for (size_t i = 0; i < gauge.xGuards.size(); ++i) {
    std::optional<ExtremeGuard> guard =
        extremeGuard(context, facts, gauge.xGuards[i]);
    if (!guard || passOf.at(guard->symbol) != pass)
      continue;
    std::optional<State> all;
    bool keepsClass = !gauge.outer.isOne();
    if (guard->isTrueShort || guard->isTrueOnNan || guard->isTrueBehind ||
        keepsClass) {
      Gauge rest = gauge;
      rest.xGuards.erase(rest.xGuards.begin() + ptrdiff_t(i));
      Combination sum = build(poly, variables, rest, type, pass, name + ".all");
      all = *program.findState(sum.front().second);
    }
    reset(state, *guard, all, keepsClass);
  }
}

/// Σ w·(u - mean) with the weights of the mean: 0, were the mean not rounded.
bool Builder::isFirstMoment(const FramePoly &poly,
                            const std::vector<Variable> &variables,
                            const Gauge &gauge) const {
  if (poly.size() != 1)
    return false;
  const auto &[g, powers] = poly.begin()->first;
  if (powers.size() != 1 || powers.begin()->second != 1)
    return false;
  const std::vector<Shift> &shifts = variables[powers.begin()->first].shifts;
  for (const auto &[key, mean] : means) {
    const SumInfo &weight = sums.at(mean.weight);
    if (shifts.size() == 1 && shifts[0].pivot == mean.pivot && weight.g == g &&
        weight.gauge == gauge)
      return true;
  }
  return false;
}

/// A derivative is needed by all that are above it: built once.
Combination Builder::build(FramePoly poly,
                           const std::vector<Variable> &variables,
                           const Gauge &gauge, Type type, unsigned pass,
                           const std::string &name) {
  FrameKey key{poly,          {},          gauge.factor ? gauge.factor->id : 0,
               gauge.xGuards, gauge.outer, pass};
  for (const Variable &variable : variables)
    key.variables.push_back(variable.t);
  if (policy.moments == Moments::Dropped &&
      isFirstMoment(poly, variables, gauge))
    return {};
  if (auto it = built.find(key); it != built.end())
    return it->second;
  Combination result =
      construct(std::move(poly), variables, gauge, type, pass, name);
  built[key] = result;
  return result;
}

Combination Builder::construct(FramePoly poly,
                               const std::vector<Variable> &variables,
                               const Gauge &gauge, Type type, unsigned pass,
                               const std::string &name) {
  // Parts that the transport of another part needs anyway become their own.
  std::vector<FramePoly> parts(1);
  for (const auto &entry : poly) {
    bool isLow = entry.first.second.empty() ||
                 std::any_of(poly.begin(), poly.end(), [&](const auto &other) {
                   return isBelow(entry.first, other.first);
                 });
    if (isLow)
      parts.push_back({entry});
    else
      parts[0].insert(entry);
  }
  if (parts[0].empty())
    parts.erase(parts.begin());
  Combination result;
  if (parts.size() > 1) {
    for (FramePoly &part : parts)
      for (auto &entry : build(part, variables, gauge, type, pass, name))
        result.push_back(entry);
    return result;
  }
  FramePoly &own = parts[0];
  auto leading = std::max_element(
      own.begin(), own.end(), [](const auto &a, const auto &b) {
        return degreeOf(a.first.second) < degreeOf(b.first.second);
      });
  double factor = leading->second;
  for (auto &[key, coefficient] : own)
    coefficient /= factor;

  Expr function = print(own, variables, gauge, type);
  std::map<Powers, Combination> taylor;
  for (auto &[order, part] : derivatives(own))
    taylor[order] = build(part, variables, gauge, type, pass, name + ".d");
  State made;
  made.values = {function};
  made.transport = transport(taylor, variables, gauge, made, pass, type);
  resetAll(made, own, variables, gauge, type, pass, name);
  // In a later pass a state that reads nothing of it must be held there.
  bool isHeld = made.pivots.empty() && pass > 0 && !variables.empty() &&
                rulePass(made.values, {}) < pass;
  if (isHeld) {
    for (const Variable &variable : variables)
      for (const Shift &shift : variable.shifts)
        if (made.pivots.empty() && passOf.at(shift.pivot) == pass)
          made.pivots = {shift.pivot};
    isHeld = !made.pivots.empty();
    if (isHeld) {
      made.transport = context.placeholder(Role::Self, 0, type);
      made.law = "constant-under-move";
    }
  }
  Expr &entry = table[{Reducer::Sum, function, isHeld ? pass : 0}];
  if (!entry) {
    entry = addState(std::move(made), name);
    if (own.size() == 1 && leading->first.second.empty())
      sums[entry] = SumInfo{leading->first.first, gauge};
  }
  return {{factor, entry}};
}

} // namespace refold::algebra
