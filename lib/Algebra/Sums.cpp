// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Sum and product stages: separate, choose gauges, build states, read out.
#include "Builder.h"

#include "Edges.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

static std::vector<Group> grouped(std::vector<Term> terms,
                                  Normaliser &normaliser) {
  std::vector<Group> groups;
  for (Term &term : terms) {
    Poly ex = term.ex.normal(normaliser);
    auto it = std::find_if(groups.begin(), groups.end(), [&](const Group &g) {
      return g.exNormal == ex && g.xGuards == term.xGuards &&
             g.outer == term.outer && g.casts == term.casts;
    });
    if (it == groups.end()) {
      groups.push_back({{}, term.ex, ex, term.casts, term.xGuards, term.outer});
      it = std::prev(groups.end());
    }
    it->terms.push_back(std::move(term));
  }
  return groups;
}

/// exp(Σ c·log a + rest): the logarithms become powers, the rest stays.
static void addExponent(Context &context, Monomial &h, const Poly &exponent,
                        Type type) {
  Poly rest;
  for (const auto &[monomial, coefficient] : exponent.all()) {
    bool isLog = monomial.factors().size() == 1 &&
                 monomial.factors()[0].second == rational(1) &&
                 monomial.factors()[0].first.is(Fn::Log);
    if (isLog && coefficient == std::floor(coefficient) &&
        std::abs(coefficient) <= 64)
      h.multiply(monomial.factors()[0].first.operand(0),
                 rational(int64_t(coefficient)));
    else
      rest.add(monomial, coefficient);
  }
  if (!rest.isZero())
    h.multiply(context.exp(toExpr(context, rest, type)), rational(1));
}

namespace {
/// Factor without elements -> polynomial to be accumulated.
using ByFactor = std::map<Monomial, FramePoly>;
/// What a group adds to the readout.
using ByKey = std::map<SumKey, ByFactor>;
} // namespace

/// Writes a term as Σ factor·(polynomial in t): translates are t + offset.
static void distribute(Context &context, const Term &term, Monomial h,
                       const std::vector<Variable> &variables,
                       const std::map<unsigned, unsigned> &variableOf,
                       ByFactor &factors, Type type) {
  struct Partial {
    Monomial h;
    Powers powers;
    double coefficient;
  };
  std::vector<Partial> partials{{std::move(h), {}, term.coefficient}};
  for (auto [number, power] : term.translates) {
    unsigned variable = variableOf.at(number);
    Expr offset = variables[variable].offset;
    std::vector<Partial> next;
    for (const Partial &partial : partials) {
      double binomial = 1;
      for (unsigned low = 0; low <= power; ++low) {
        // t^(power - low) · offset^low
        Partial own = partial;
        own.coefficient *= binomial;
        if (power > low)
          own.powers[variable] = power - low;
        if (low > 0)
          own.h.multiply(offset, rational(low));
        next.push_back(std::move(own));
        if (!offset)
          break;
        binomial = binomial * (power - low) / (low + 1);
      }
    }
    partials = std::move(next);
  }
  for (Partial &partial : partials)
    factors[partial.h][{term.g, partial.powers}] += partial.coefficient;
}

/// Σ factor·sum. Powers of an offset are nested, a + e·(b + e·c), and a factor
/// 1/s takes the state s out of a sum that it is alone in.
Expr Builder::total(std::vector<Part> parts, const std::vector<Expr> &offsets,
                    Type type) {
  for (Expr offset : offsets) {
    std::map<int64_t, std::vector<Part>> byPower;
    bool isPolynomial = true;
    for (Part &part : parts) {
      Rational power = part.factor.exponentOf(offset);
      isPolynomial &= power.isInteger() && power.num >= 0;
      byPower[power.num].push_back({part.factor.without(offset), part.sum});
    }
    if (!isPolynomial || byPower.rbegin()->first == 0)
      continue;
    Expr result;
    for (int64_t power = byPower.rbegin()->first; power >= 0; --power) {
      if (result)
        result = context.mul(offset, result);
      if (!byPower.contains(power))
        continue;
      Expr own = total(byPower[power], offsets, type);
      result = result ? context.add(own, result) : own;
    }
    return result;
  }
  Expr result;
  std::map<Monomial, Combination> byFactor;
  for (Part &part : parts) {
    Monomial factor = part.factor;
    if (part.sum.size() == 1 &&
        factor.exponentOf(part.sum[0].second) == rational(-1)) {
      Expr own = toExpr(context, factor.without(part.sum[0].second),
                        part.sum[0].first, type);
      result = result ? context.add(result, own) : own;
      continue;
    }
    Combination &sum = byFactor[factor];
    sum.insert(sum.end(), part.sum.begin(), part.sum.end());
  }
  for (auto &[factor, sum] : byFactor) {
    Expr own = multiplied(context, value(sum, type), factor, 1, type);
    result = result ? context.add(own, result) : own;
  }
  return result;
}

/// The stage as the user wrote it: without running values, exponentials
/// bounded.
Expr Builder::plainSum(Expr term, const std::vector<Term> *terms,
                       const std::string &name) {
  Expr sum = state(Reducer::Sum, term, name);
  const Term *only = terms && terms->size() == 1 ? &terms->front() : nullptr;
  bool isProduct = only && only->ex.empty() && only->coefficient == 1 &&
                   only->translates.empty() && only->h.isOne() &&
                   only->inner.isOne() && only->xGuards.empty() &&
                   only->casts.empty() && only->dGuards.empty();
  // where(guard, value, 0) is a sum of values under a guard.
  SumInfo info;
  Expr value = term;
  for (bool isGuard = true; isGuard && value.is(Kind::Select);) {
    Expr condition = value.operand(0);
    isGuard = value.operand(2).isConstant(0) || value.operand(1).isConstant(0);
    if (isGuard && value.operand(2).isConstant(0))
      value = value.operand(1);
    else if (isGuard)
      value = value.operand(2), condition = context.logicalNot(condition);
    if (isGuard)
      info.gauge.xGuards.push_back(condition);
  }
  std::sort(info.gauge.xGuards.begin(), info.gauge.xGuards.end());
  if (info.gauge.xGuards.empty() && isProduct)
    info.g = only->g;
  else if (!value.isConstant(1))
    info.g = Monomial(value);
  sums[sum] = info;
  return sum;
}

/// Finite wherever everything that it reads is: 0 times it is 0. What is known
/// of sums (s >= 1) does not hold where an extreme is its identity: there the
/// guards have to be known too, so that the row is folded.
bool Builder::isTame(const Monomial &factor, const std::vector<Expr> &guards) {
  bool isFolded = true;
  for (const Extremal &fact : facts.extremals()) {
    double none = fact.isMax ? -std::numeric_limits<double>::infinity()
                             : std::numeric_limits<double>::infinity();
    FoldedMap row{{fact.feature, Folded::known(none)}};
    for (Expr guard : guards)
      isFolded &= !fact.isAttained || fold(guard, row).isKnown();
  }
  for (const auto &[atom, exponent] : factor.factors()) {
    bool isPower = exponent.isInteger() && exponent.num > 0;
    Poly aboveOne = Poly::constant(1) - normaliser.normal(atom);
    if (!isPower && !(isFolded && facts.isNonPositive(aboveOne)))
      return false;
    bool isTotal = true;
    forEachNode(atom, [&](Expr e) {
      isTotal &= !e.is(Kind::Div) && !e.is(Kind::Pow) && !e.is(Fn::Log) &&
                 !e.is(Fn::Log2) && !e.is(Fn::Log1p) && !e.is(Fn::Sqrt) &&
                 !e.is(Fn::Rsqrt) && !e.is(Fn::PowFn);
    });
    if (!isTotal)
      return false;
  }
  return true;
}

/// True if some element passes all the guards.
Expr Builder::anyOf(const std::vector<Expr> &guards, const std::string &name) {
  Expr passes;
  for (Expr guard : guards)
    if (!extremeGuard(context, facts, guard))
      passes = passes ? context.logicalAnd(passes, guard) : guard;
  return passes ? state(Reducer::Any, passes, name + ".any") : Expr();
}

/// Accumulators that a polynomial needs at most: its derivatives.
static uint64_t closureOf(const FramePoly &poly) {
  std::map<Monomial, std::map<unsigned, unsigned>> highest;
  for (const auto &[key, coefficient] : poly)
    for (auto [number, power] : key.second) {
      unsigned &own = highest[key.first][number];
      own = std::max(own, power);
    }
  uint64_t total = 0;
  for (const auto &[g, powers] : highest) {
    uint64_t product = 1;
    for (auto [number, power] : powers)
      product = std::min<uint64_t>(product * (power + 1), 1u << 20);
    total += product;
  }
  return std::max<uint64_t>(total, 1);
}

/// No stage reads the results: no mean is made of them.
bool Builder::isForOutputsOnly(unsigned number) const {
  const Stage &stage = cascade.stages[number];
  auto reads = [&](Expr e) {
    return std::any_of(stage.results.begin(), stage.results.end(),
                       [&](Expr result) { return contains(e, result); });
  };
  for (const Stage &other : cascade.stages)
    if (reads(other.term) ||
        std::any_of(other.payloads.begin(), other.payloads.end(), reads))
      return false;
  return true;
}

/// x·e^(x - m) as (x - m)·e^(x - m) and m·e^(x - m): the sum keeps its digits
/// far from 0, and does not overflow where all that was read is masked by the
/// lowest float.
static void recentre(Group &group, const Gauge &gauge, Separator &separator) {
  for (const Shift &shift : gauge.shifts)
    for (Term &term : group.terms) {
      Rational power =
          shift.feature ? term.g.exponentOf(shift.feature) : rational(0);
      if (!power.isInteger() || power.num <= 0 || power.num > 4)
        continue;
      term.g = term.g.without(shift.feature);
      term.translates[separator.untranslated(shift.feature)] +=
          unsigned(power.num);
    }
}

/// What all the terms with this variable have in common as a factor; nothing of
/// an index that the sum carries.
Monomial Builder::weightsOf(const Group &group, unsigned translate) const {
  IndexSet carried = cascade.indicesOf(IndexRole::Carried);
  const Monomial *common = nullptr;
  for (const Term &term : group.terms) {
    if (!term.translates.contains(translate))
      continue;
    if (common && !(*common == term.g))
      return {};
    common = &term.g;
  }
  if (common)
    for (const auto &[atom, exponent] : common->factors())
      if (atom.indices() & carried)
        return {};
  return common ? *common : Monomial();
}

/// States and readout parts of the terms that share an exponential. False if
/// they are more than the budget.
bool Builder::addGroup(Group group, Separator &separator, Scope &scope,
                       Type type, unsigned pass, unsigned stage,
                       const std::string &name, SumParts &result) {
  Gauge gauge;
  std::vector<const Term *> members;
  for (const Term &t : group.terms)
    members.push_back(&t);
  if (!group.ex.empty())
    gauge = chooseGauge(group.ex, members, scope, type, pass, name);
  Monomial castReadout;
  if (!group.casts.empty() && !addCasts(group.casts, members, separator, scope,
                                        type, pass, name, gauge, castReadout))
    return false;
  if (gauge.factor && isForOutputsOnly(stage))
    recentre(group, gauge, separator);
  gauge.xGuards = group.xGuards;
  gauge.outer = group.outer;
  std::map<unsigned, unsigned> highest, variableOf;
  for (const Term &t : group.terms)
    for (auto [translate, power] : t.translates)
      highest[translate] = std::max(highest[translate], power);
  std::vector<Variable> variables;
  for (auto [translate, power] : highest) {
    variableOf[translate] = unsigned(variables.size());
    variables.push_back(locate(separator.allTranslates()[translate], gauge,
                               weightsOf(group, translate), power, scope, type,
                               pass, name));
    if (variables.back().offset)
      result.offsets.push_back(variables.back().offset);
  }
  ByKey all;
  for (const Term &t : group.terms) {
    Monomial inner = t.inner, h = t.h * castReadout;
    addExponent(context, t.xGuards.empty() ? h : inner, t.ed + gauge.moved,
                type);
    SumKey key{t.dGuards, {}, {}};
    key.any = t.xGuards.empty() || isTame(inner, t.xGuards)
                  ? Expr()
                  : anyOf(t.xGuards, name);
    if (key.any) {
      key.factor = h;
      h = inner;
    } else {
      h = h * inner;
    }
    distribute(context, t, std::move(h), variables, variableOf, all[key], type);
  }
  uint64_t size = 0;
  for (auto &[key, factors] : all)
    for (auto &[factor, poly] : factors) {
      std::erase_if(poly, [](const auto &entry) { return !entry.second; });
      size = std::max(size, closureOf(poly));
    }
  if (size > policy.rankBudget) {
    reject = {reason::rankBudget,
              {},
              "a frame of " + std::to_string(size) + " accumulators; at most " +
                  std::to_string(policy.rankBudget) + " are kept"};
    return false;
  }
  for (auto &[key, factors] : all)
    for (auto &[factor, poly] : factors)
      if (!poly.empty())
        result.parts[key].push_back(
            {factor, build(poly, variables, gauge, type, pass, name)});
  return true;
}

bool Builder::deriveSum(unsigned number, Expr term, unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Expr readout = sumOf(number, term, pass, stage.name);
  if (readout)
    rawReadout[stage.results[0]] = readout;
  return bool(readout);
}

/// term = number · what is left, with numbers that no sum minds.
static std::pair<double, Expr> scaleOf(Expr term) {
  double scale = 1;
  auto isScale = [](Expr e) {
    std::optional<double> value = e.constant();
    return value && *value != 0 && std::isfinite(*value);
  };
  while (true) {
    bool isMul = term.is(Kind::Mul);
    double next = scale;
    Expr rest;
    if (term.is(Kind::Neg))
      next = -scale, rest = term.operand(0);
    else if ((isMul || term.is(Kind::Div)) && isScale(term.operand(1)))
      next = isMul ? scale * *term.operand(1).constant()
                   : scale / *term.operand(1).constant(),
      rest = term.operand(0);
    else if (isMul && isScale(term.operand(0)))
      next = scale * *term.operand(0).constant(), rest = term.operand(1);
    if (!rest || rest.type() != term.type() || !std::isnormal(float(next)))
      return {scale, term};
    scale = next;
    term = rest;
  }
}

Expr Builder::sumOf(unsigned number, Expr term, unsigned pass,
                    const std::string &name) {
  // However a scale is written, the state is the same.
  if (isFloat(term.type()) && policy.fuse)
    if (auto [scale, rest] = scaleOf(term); scale != 1) {
      Expr own = sumOf(number, rest, pass, name);
      return own ? context.mul(context.real(scale, own.type()), own) : own;
    }
  Scope scope = scopeOf(pass);
  bool isPlain = !scope.hasD(term);
  if (Expr real = isPlain ? Expr() : realSummand(number, term))
    term = real;
  Type type = isFloat(term.type()) ? computeType(term.type()) : Type::F32;
  if (isPlain && (!isFloat(term.type()) || !policy.fuse))
    return state(Reducer::Sum, term, name);
  Separator separator(context, normaliser, facts, scope, type,
                      policy.rankBudget);
  separator.castPolicy = &policy;
  std::optional<std::vector<Term>> terms = separator.separate(term);
  if (!terms && !isPlain) {
    reject = separator.reject;
    return {};
  }
  if (terms)
    for (const Term &t : *terms)
      isPlain = isPlain && (t.ex.empty() || !policy.ownPivots ||
                            facts.isNonPositive(t.ex.normal(normaliser)));
  if (isPlain)
    return plainSum(term, terms ? &*terms : nullptr, name);
  SumParts sum;
  for (const Group &group : grouped(std::move(*terms), normaliser))
    if (!addGroup(group, separator, scope, type, pass, number, name, sum)) {
      if (!reject.node)
        reject.node = term;
      return {};
    }
  for (const RunningCast &own : separator.allCasts())
    program.roundings.push_back({number, own.node, own.unit, own.step,
                                 own.lowestNormal, own.size, own.isPowerOfTwo});
  Expr whole;
  for (auto &[key, own] : sum.parts) {
    Expr part = total(own, sum.offsets, type);
    if (key.any)
      part = multiplied(context,
                        context.select(key.any, part, context.real(0, type)),
                        key.factor, 1, type);
    for (Expr guard : key.guards)
      part = context.select(guard, part, context.real(0, type));
    whole = whole ? context.add(whole, part) : part;
  }
  return whole ? whole : context.real(0, type);
}

/// Π g·h·e^(ex + ed) over n elements = Π g · h^n · e^(Σ ex + n·ed).
bool Builder::deriveProduct(unsigned number, Expr term, unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Expr result = stage.results[0];
  Scope scope = scopeOf(pass);
  if (!scope.hasD(term)) {
    rawReadout[result] = state(Reducer::Prod, term, stage.name);
    return true;
  }
  Type type = computeType(term.type());
  Separator separator(context, normaliser, facts, scope, type,
                      policy.rankBudget);
  std::optional<std::vector<Term>> terms = separator.separate(term);
  if (!terms) {
    reject = separator.reject;
    return false;
  }
  bool isProduct = terms->size() == 1 && (*terms)[0].translates.empty() &&
                   (*terms)[0].xGuards.empty() && (*terms)[0].dGuards.empty();
  if (!isProduct) {
    reject = {reason::powOfSum, term,
              "a product of sums of elements and running values: its degree "
              "grows with the length of the stream"};
    return false;
  }
  const Term &factor = (*terms)[0];
  Expr length;
  for (const Index &index : cascade.indices)
    if (index.role == IndexRole::Stream)
      length = length ? context.mul(length, index.length) : index.length;
  length = length ? context.cast(type, length) : context.real(1, type);
  // Π g and h^n overflow where Π g·h does not. Of f32, both are kept as
  // logarithms in f64, where their sum has digits to spare, and as signs.
  bool isWide = type == Type::F32;
  Expr whole, logarithm;
  auto times = [&](Expr by) { whole = whole ? context.mul(whole, by) : by; };
  auto widened = [&](Expr e) { // a conversion that loses nothing is none
    return context.mul(context.real(1, Type::F64), e);
  };
  auto logOf = [&](Expr e) {
    Expr wide = widened(e);
    return context.log(facts.isNonNegative(e) ? wide
                                              : context.fn(Fn::Abs, wide));
  };
  if (!factor.g.isOne() || factor.coefficient != 1) {
    Expr g = toExpr(context, factor.g, factor.coefficient, type);
    if (isWide)
      logarithm = state(Reducer::Sum, logOf(g), stage.name + ".log");
    if (!isWide || !facts.isNonNegative(g))
      times(state(Reducer::Prod, isWide ? context.fn(Fn::Sign, g) : g,
                  stage.name));
  }
  if (!factor.h.isOne()) {
    Expr h = toExpr(context, factor.h, 1, type);
    if (isWide) {
      Expr power = context.mul(widened(length), logOf(h));
      logarithm = logarithm ? context.add(logarithm, power) : power;
    }
    if (!isWide || !facts.isNonNegative(h))
      times(
          context.fn(Fn::PowFn, isWide ? context.fn(Fn::Sign, h) : h, length));
  }
  Expr exponent;
  if (!factor.ex.empty()) {
    // A sum like any other, so that x - m stays a difference. Its exponential
    // errs by what it errs, however large it is: hence in f64 too.
    Expr own = factor.ex.toExpr(context, type);
    if (!factor.ed.isZero())
      own = context.sub(own, toExpr(context, factor.ed.scaled(-1), type));
    if (isWide)
      own = widened(own);
    exponent = sumOf(number, own, pass, stage.name + ".log");
    if (!exponent)
      return false;
  } else if (!factor.ed.isZero()) {
    exponent = context.mul(length, toExpr(context, factor.ed, type));
  }
  if (logarithm && exponent)
    logarithm = context.add(logarithm, widened(exponent));
  if (logarithm)
    times(context.cast(type, context.exp(logarithm)));
  else if (exponent)
    times(context.cast(type, context.exp(widened(exponent))));
  rawReadout[result] = whole ? whole : context.real(1, type);
  return true;
}

} // namespace refold::algebra
