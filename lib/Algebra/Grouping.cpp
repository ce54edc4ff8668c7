// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Grouping.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

/// Up to here log1p(x) is what counts; beyond, log of the sum itself is.
static constexpr double kNear = 0.5;
/// A difference errs by less than this part of what it is made of: 2^-24 of
/// each, times what a sum of a row gathers.
static constexpr double kDoubt = 0x1p-16;

static bool isLogOfSum(const Builder &builder, Expr atom) {
  return atom.is(Fn::Log) && atom.operand(0).isSym(Role::State) &&
         builder.sums.contains(atom.operand(0));
}

void Grouper::require(Expr condition) {
  result.holds =
      result.holds ? context.logicalAnd(result.holds, condition) : condition;
}

bool Grouper::hasElements(const Poly &poly) const {
  for (Expr atom : poly.atoms())
    if (atom.indices() & builder.cascade.stream())
      return true;
  return false;
}

/// Guarded pivots are the extremes themselves on every row with a number.
Expr Grouper::atAtoms(Expr e) {
  ExprMap map;
  for (Expr symbol : symbolsOf(e))
    for (const auto &[atom, pivot] : builder.guards)
      if (pivot == symbol)
        map[symbol] = atom;
  return map.empty() ? e : substitute(context, e, map);
}

/// log(a·b^2/c) as log a + 2·log b - log c.
Poly Grouper::expandedLogs(const Poly &poly) {
  Poly whole;
  for (const auto &[monomial, coefficient] : poly.all()) {
    Poly part = Poly::constant(coefficient);
    for (const auto &[atom, exponent] : monomial.factors()) {
      const auto *inner =
          atom.is(Fn::Log) && exponent == rational(1)
              ? builder.normaliser.normal(atom.operand(0)).single()
              : nullptr;
      if (!inner || inner->second <= 0) {
        part = part * Poly::atom(atom, exponent);
        continue;
      }
      Poly sum = Poly::constant(std::log(inner->second));
      for (const auto &[factor, power] : inner->first.factors())
        sum = sum + (factor.is(Fn::Exp)
                         ? builder.normaliser.normal(factor.operand(0))
                         : Poly::atom(context.fn(Fn::Log, factor)))
                        .scaled(power.value());
      part = part * sum;
    }
    whole = whole + part;
  }
  return whole;
}

/// The logarithm of what a sum adds up, if that is one product without guards.
std::optional<Poly> Grouper::logOf(Expr sum) {
  const SumInfo &info = builder.sums.at(sum);
  const State *state = builder.program.findState(sum);
  if (!info.gauge.xGuards.empty() || !info.gauge.outer.isOne() || !state)
    return std::nullopt;
  const auto *only =
      builder.normaliser.normal(atAtoms(state->values[0])).single();
  if (!only || only->second <= 0)
    return std::nullopt;
  Poly whole = Poly::constant(std::log(only->second));
  for (const auto &[atom, exponent] : only->first.factors())
    whole =
        whole + (atom.is(Fn::Exp) ? builder.normaliser.normal(atom.operand(0))
                                  : Poly::atom(context.fn(Fn::Log, atom)))
                    .scaled(exponent.value());
  return expandedLogs(whole);
}

/// What two sums add up, divided: for states that move alike.
std::optional<Poly> Grouper::ratio(Expr state, Expr weight) {
  const State *own = builder.program.findState(state);
  const State *other = builder.program.findState(weight);
  if (!own || !other || own->reducer != Reducer::Sum ||
      own->pass != other->pass || own->indices != other->indices)
    return std::nullopt;
  const auto *divisor =
      builder.normaliser.normal(atAtoms(other->values[0])).single();
  if (!divisor)
    return std::nullopt;
  return builder.normaliser.normal(atAtoms(own->values[0])) *
         Poly::monomial(divisor->first.raised(rational(-1)),
                        1 / divisor->second);
}

std::optional<Grouper::LogDifference> Grouper::differenceIn(Expr e) {
  Poly poly = expandedLogs(builder.normaliser.normal(atAtoms(e)));
  std::vector<LogTerm> logs;
  LogDifference found;
  for (const auto &[monomial, coefficient] : poly.all()) {
    Expr log;
    for (const auto &[atom, exponent] : monomial.factors())
      if (isLogOfSum(builder, atom)) {
        if (log || !(exponent == rational(1)))
          return std::nullopt;
        log = atom;
      }
    if (log)
      logs.push_back({monomial.without(log), coefficient, log.operand(0)});
    else
      found.rest.add(monomial, coefficient);
  }
  if (logs.size() != 2 || !(logs[0].factor == logs[1].factor) ||
      logs[0].coefficient != -logs[1].coefficient)
    return std::nullopt;
  found.factor = logs[0].factor;
  found.coefficient = logs[0].coefficient;
  found.above = logs[0].sum;
  found.below = logs[1].sum;
  return found;
}

/// The value with every mean A/below replaced by what it is the mean of, and
/// the logs by those of what the sums add up.
std::optional<Poly> Grouper::pointwise(const LogDifference &of) {
  Poly whole;
  for (const auto &[monomial, coefficient] : of.rest.all()) {
    Poly part = Poly::constant(coefficient);
    Monomial rest = monomial;
    if (monomial.exponentOf(of.below) == rational(-1)) {
      unsigned means = 0;
      for (const auto &[atom, exponent] : monomial.factors()) {
        if (atom == of.below || !atom.isSym(Role::State) ||
            !(exponent == rational(1)))
          continue;
        std::optional<Poly> mean = ratio(atom, of.below);
        if (!mean)
          continue;
        part = part * *mean;
        rest = rest.without(atom).without(of.below);
        ++means;
      }
      if (means > 1)
        return std::nullopt;
    }
    whole = whole + part * Poly::monomial(rest, 1);
  }
  return whole;
}

/// base + factor·log1p(closeness).
Expr Grouper::completed(const LogDifference &of, const Poly &base,
                        Expr closeness, Type type) {
  Expr value = multiplied(context, context.fn(Fn::Log1p, closeness), of.factor,
                          of.coefficient, type);
  if (base.isZero())
    vanishing = value;
  return base.isZero() ? value
                       : context.add(toExpr(context, base, type), value);
}

/// log above - log below where the elements of the two differ by e^y, without
/// what rows alone add to the logarithm; and whether it may be too near 0 to
/// have digits of its own.
struct Grouper::Direct {
  Expr value;
  Expr size; ///< what is added up and subtracted, without signs
};

Grouper::Direct Grouper::directly(const LogDifference &of, const Poly &offset,
                                  Expr mean, Type type) {
  Direct direct;
  auto take = [&](Expr term, bool isAdded) {
    Expr size = context.fn(Fn::Abs, term);
    direct.size = direct.size ? context.add(direct.size, size) : size;
    direct.value = !direct.value ? term
                   : isAdded     ? context.add(direct.value, term)
                                 : context.sub(direct.value, term);
  };
  take(context.fn(Fn::Log, of.above), true);
  take(context.fn(Fn::Log, of.below), false);
  for (const auto &[monomial, coefficient] : offset.all())
    take(toExpr(context, monomial, coefficient, type), false);
  if (mean)
    take(mean, false);
  return direct;
}

/// A sum of the elements of `below` times `factor`, in a pass of which rows
/// without `isNeeded` have nothing.
Expr Grouper::sumWhere(Expr isNeeded, const SumInfo &below, Expr factor,
                       Type type, const std::string &name) {
  Expr term = builder.print(FramePoly{{{below.g * Monomial(factor), {}}, 1.0}},
                            {}, below.gauge, type);
  State state;
  state.values = {context.select(isNeeded, term, context.real(0, term.type()))};
  Expr sum = builder.addState(std::move(state), name);
  builder.repairs.insert(sum);
  return sum;
}

/// The mean of y over `below`, of a sum that the value reads if there is one:
/// scale·A/below - rest, where A adds up (y + rest)/scale and `rest` is of the
/// row.
Expr Grouper::meanOf(const LogDifference &of, const Poly &feature, Type type) {
  const auto &[leading, share] = *feature.all().begin();
  for (Expr atom : of.rest.atoms()) {
    std::optional<Poly> own =
        atom.isSym(Role::State) ? ratio(atom, of.below) : std::nullopt;
    double scale = own ? share / own->coefficientOf(leading) : 0;
    if (!own || !std::isfinite(scale))
      continue;
    Poly rest = own->scaled(scale) - feature;
    if (hasElements(rest))
      continue;
    Expr mean =
        context.div(context.mul(context.real(scale, type), atom), of.below);
    if (!rest.isZero())
      mean = context.sub(mean, toExpr(context, rest, type));
    return builder.addLet(mean, atom.symbol().name + ".mean");
  }
  const SumInfo &info = builder.sums.at(of.below);
  Monomial weighted = info.g * Monomial(toExpr(context, feature, type));
  Combination sum =
      builder.build(FramePoly{{{weighted, {}}, 1.0}}, {}, info.gauge, type,
                    builder.passOf.at(of.below), of.below.symbol().name);
  return builder.addLet(context.div(sum.front().second, of.below),
                        sum.front().second.symbol().name + ".mean");
}

/// Law `vanishing-basis`: with e^y = above/below, element by element, the mean
/// c of y and u = y - c,
///
///     log Σ w·e^y / Σ w - c = log(1 + mean(e^u - 1 - u)),
///
/// and what is left of the mean of u, where c is rounded, is a move of c: the
/// functions 1, u and e^u - 1 - u are closed under translation,
///
///     e^(u + d) - 1 - (u + d) =
///         e^d·(e^u - 1 - u) + (e^d - 1)·u + (e^d - 1 - d).
///
/// Nothing cancels. Only rows whose difference of logarithms has lost digits
/// need it: when that is known, so is the mean.
Expr Grouper::aboutMean(const LogDifference &of, const Poly &feature,
                        const Poly &offset, const Poly &base, Type type) {
  const SumInfo info = builder.sums.at(of.below);
  std::string name = of.below.symbol().name + ".near";
  Expr mean = meanOf(of, feature, type);
  Direct direct = directly(of, offset, mean, type);
  Expr isNear = builder.addLet(
      context.cmp(
          Pred::Lt, direct.value,
          context.add(context.real(kNear, type),
                      context.mul(context.real(kDoubt, type), direct.size))),
      name + ".needed");
  Expr u = context.sub(toExpr(context, feature, type), mean);
  Expr tail = context.sub(context.fn(Fn::Expm1, u), u);
  Expr moment = sumWhere(isNear, info, u, type, name + ".dev");
  Expr second = sumWhere(isNear, info, tail, type, name + ".tail");
  Expr shift = builder.addLet(context.neg(context.div(moment, of.below)),
                              name + ".shift");
  Expr lessShift = context.fn(Fn::Expm1, shift);
  Expr closeness =
      builder.addLet(context.add(context.mul(context.exp(shift),
                                             context.div(second, of.below)),
                                 context.sub(context.sub(lessShift, shift),
                                             context.mul(shift, lessShift))),
                     name + ".closeness");
  require(context.logicalAnd(
      isNear, context.cmp(Pred::Lt, closeness, context.real(kNear, type))));
  result.texts.push_back(
      "a difference of logarithms of '" + of.above.symbol().name + "' and '" +
      of.below.symbol().name + "' is log1p of what is left beside the mean");
  return completed(of, base, closeness, type);
}

/// log(above/below) = log1p(Σ w·(e^y - 1) / Σ w) where nothing else of the
/// value is a mean of y.
Expr Grouper::aboutZero(const LogDifference &of, const Poly &feature,
                        const Poly &offset, const Poly &base, Type type) {
  const SumInfo info = builder.sums.at(of.below);
  std::string name = of.below.symbol().name + ".near";
  Direct direct = directly(of, offset, Expr(), type);
  Expr isNear = builder.addLet(
      context.cmp(
          Pred::Lt, context.fn(Fn::Abs, direct.value),
          context.add(context.real(1, type),
                      context.mul(context.real(kDoubt, type), direct.size))),
      name + ".needed");
  Expr less = context.fn(Fn::Expm1, toExpr(context, feature, type));
  Expr sum = sumWhere(isNear, info, less, type, name);
  Expr closeness =
      builder.addLet(context.div(sum, of.below), name + ".closeness");
  require(context.logicalAnd(isNear, context.cmp(Pred::Lt,
                                                 context.fn(Fn::Abs, closeness),
                                                 context.real(kNear, type))));
  result.texts.push_back(
      "a difference of logarithms of '" + of.above.symbol().name + "' and '" +
      of.below.symbol().name + "' is log1p of the sum of their differences");
  return completed(of, base, closeness, type);
}

Expr Grouper::pairedOver(const LogDifference &of, bool isAboutMean, Type type) {
  if (builder.passOf.at(of.above) != builder.passOf.at(of.below) ||
      !builder.facts.isNonNegative(of.below))
    return {};
  std::optional<Poly> above = logOf(of.above), below = logOf(of.below),
                      mean = pointwise(of);
  if (!above || !below || !mean)
    return {};
  Poly feature, offset;
  const Poly apart = *above - *below;
  for (const auto &[monomial, coefficient] : apart.all())
    (hasElements(Poly::monomial(monomial)) ? feature : offset)
        .add(monomial, coefficient);
  if (feature.isZero())
    return {};
  Poly factor = Poly::monomial(of.factor, of.coefficient);
  Poly whole = *mean + factor * (feature + offset);
  if (isAboutMean)
    return hasElements(whole) ? Expr()
                              : aboutMean(of, feature, offset, whole, type);
  if (!hasElements(*mean))
    return aboutZero(of, feature, offset, of.rest + factor * offset, type);
  return {};
}

/// A difference of logs of two sums whose elements differ by e^y, y of the
/// elements: with a mean of y beside it of second order, else of first.
Expr Grouper::paired(Expr e) {
  unsigned logs = 0;
  forEachNode(e, [&](Expr node) { logs += node.is(Fn::Log); });
  if (logs < 1 || e.is(Kind::Select))
    return {};
  std::optional<LogDifference> of = differenceIn(e);
  if (!of)
    return {};
  for (bool isAboutMean : {true, false})
    for (int side = 0; side < 2; ++side) {
      if (Expr value = pairedOver(*of, isAboutMean, e.type()))
        return value;
      std::swap(of->above, of->below);
      of->coefficient = -of->coefficient;
    }
  return {};
}

//===----------------------------------------------------------------------===//
// The attained element
//===----------------------------------------------------------------------===//

/// The maximum m for which `sum` is Σ e^(u - m): one element gives exactly 1.
const Extremal *Grouper::attainedBy(Expr sum) {
  if (!sum.isSym(Role::State) || !builder.sums.contains(sum))
    return nullptr;
  const SumInfo &info = builder.sums.at(sum);
  if (!info.g.isOne() || !info.gauge.factor || !info.gauge.xGuards.empty() ||
      !info.gauge.outer.isOne() || info.gauge.shifts.size() != 1)
    return nullptr;
  Poly exponent =
      builder.normaliser.normal(atAtoms(info.gauge.factor.operand(0)));
  for (const Extremal &fact : builder.facts.extremals())
    if (fact.isAttained && fact.isMax &&
        exponent == fact.normal - Poly::atom(fact.symbol))
      return &fact;
  return nullptr;
}

/// Law `attained-element`: Σ e^(u - m) = k + r, k the number of elements at the
/// maximum m and r the sum over all others, which has digits of its own.
std::pair<Expr, Expr> Grouper::splitOff(Expr sum, const Extremal &fact) {
  Type type = sum.type();
  unsigned pass = builder.passOf.at(sum);
  Gauge gauge = builder.sums.at(sum).gauge, ties;
  std::vector<ExtremeGuard> guards = guardsAt(context, fact);
  gauge.xGuards = {guards[2].literal};
  ties.xGuards = {guards[0].literal};
  FramePoly one{{{{}, {}}, 1.0}};
  std::string name = sum.symbol().name;
  Expr rest =
      builder.build(one, {}, gauge, type, pass, name + ".rest").front().second;
  Expr count =
      builder.build(one, {}, ties, type, pass, name + ".ties").front().second;
  require(context.cmp(Pred::Ge, sum, context.real(0.5, type)));
  result.texts.push_back("the largest element of '" + name +
                         "' is split off: what is left has digits of its own");
  return {count, rest};
}

Expr Grouper::attainedLog(Expr e) {
  if (!e.is(Fn::Log))
    return {};
  const Extremal *fact = attainedBy(e.operand(0));
  if (!fact)
    return {};
  auto [count, rest] = splitOff(e.operand(0), Extremal(*fact));
  return vanishing =
             context.add(context.fn(Fn::Log, count),
                         context.fn(Fn::Log1p, context.div(rest, count)));
}

/// 1 - 1/s = (s - 1)/s = (r + (k - 1))/s.
Expr Grouper::attainedRest(Expr e) {
  if (!e.is(Kind::Sub) && !e.is(Kind::Add))
    return {};
  const Poly poly = builder.normaliser.normal(e);
  for (Expr sum : poly.atoms()) {
    const Extremal *fact = attainedBy(sum);
    if (!fact)
      continue;
    std::map<Monomial, std::map<int64_t, double>> groups;
    for (const auto &[monomial, coefficient] : poly.all()) {
      Rational power = monomial.exponentOf(sum);
      if (!power.isInteger())
        return {};
      groups[monomial.without(sum)][power.num] = coefficient;
    }
    auto vanishes = [](const std::map<int64_t, double> &group) {
      return group.size() == 2 &&
             group.begin()->second == -group.rbegin()->second &&
             group.rbegin()->first - group.begin()->first == 1;
    };
    if (groups.size() != 1 || !vanishes(groups.begin()->second))
      continue;
    const auto &[factor, powers] = *groups.begin();
    auto [count, rest] = splitOff(sum, Extremal(*fact));
    Type type = e.type();
    Expr left = context.add(rest, context.sub(count, context.real(1, type)));
    return vanishing = multiplied(
               context, left,
               factor * Monomial(sum, rational(powers.begin()->first)),
               powers.rbegin()->second, type);
  }
  return {};
}

Expr Grouper::visit(Expr e) {
  if (auto it = visited.find(e); it != visited.end())
    return it->second;
  Expr value;
  bool isOfRow = isFloat(e.type()) &&
                 !(e.indices() & builder.cascade.stream()) &&
                 e.uses(Role::State);
  if (isOfRow && e.size()) {
    value = paired(e);
    if (!value)
      value = attainedLog(e);
    if (!value)
      value = attainedRest(e);
  }
  if (!value && e.size() && e.uses(Role::State)) {
    std::vector<Expr> operands;
    for (unsigned i = 0; i < e.size(); ++i)
      operands.push_back(visit(e.operand(i)));
    value = context.rebuild(e, operands);
  }
  return visited[e] = value ? value : e;
}

std::optional<Grouping> Grouper::group(Expr value) {
  result.value = visit(value);
  if (!result.holds)
    return std::nullopt;
  result.isVanishing = vanishing && result.value == vanishing;
  return result;
}

} // namespace refold::algebra
