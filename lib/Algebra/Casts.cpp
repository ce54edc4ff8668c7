// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Rounding a value of elements and results of the same pass. q(x·Q/a) and
// q(e^(x - m)) have no finite separation, but their sums over the elements read
// so far move with the results that divide them, up to the rounding itself.
//
// Law `rounded-at-running-pivot`: let |q(y) - y| <= max(u·|y|, η), and let an
// element be rounded at the results p of its time and moved to the final ones
// by T <= 1. Then T·q(y/T) errs by at most max(u·|y|, T·η): no more than q(y).
//
// Law `power-of-two-scale`: q(2^k·y) = 2^k·q(y) where both are normal numbers
// of the format, so a running scale 2^k gives the very same number.
#include "Builder.h"

#include "Edges.h"
#include "Monotone.h"

#include <algorithm>
#include <cmath>

namespace refold::algebra {

/// Factors of a rounded value.
static constexpr size_t kMostFactors = 32;

namespace {
/// Half a unit in the last place, half the smallest step, the least normal.
struct Grid {
  double unit, step, lowestNormal, largest;
};
} // namespace

static Grid gridOf(Type type) {
  double largest = largestFinite(type);
  switch (type) {
  case Type::F16:
    return {0x1p-11, 0x1p-25, 0x1p-14, largest};
  case Type::BF16:
    // The range of f32: what is too large here is too large there.
    return {0x1p-8, 0x1p-134, 0x1p-126, HUGE_VAL};
  case Type::F8E4M3:
    return {0x1p-4, 0x1p-10, 0x1p-6, largest};
  case Type::F8E5M2:
    return {0x1p-3, 0x1p-17, 0x1p-14, largest};
  default:
    return {0x1p-24, 0x1p-150, 0x1p-126, HUGE_VAL};
  }
}

static double limitOf(Type type) {
  switch (type) {
  case Type::I8:
    return 127;
  case Type::U8:
    return 255;
  case Type::I32:
    return 2147483647.0;
  default:
    return 9007199254740992.0;
  }
}

/// Whole numbers by construction.
static bool isWhole(Expr e) {
  if (std::optional<double> value = e.constant())
    return *value == std::nearbyint(*value);
  if (e.is(Fn::Round) || e.is(Fn::Floor) || e.is(Fn::Ceil))
    return true;
  switch (e.kind()) {
  case Kind::Add:
  case Kind::Sub:
  case Kind::Mul:
  case Kind::Max:
  case Kind::Min:
  case Kind::MaxNum:
  case Kind::MinNum:
    return isWhole(e.operand(0)) && isWhole(e.operand(1));
  case Kind::Neg:
    return isWhole(e.operand(0));
  case Kind::Select:
    return isWhole(e.operand(1)) && isWhole(e.operand(2));
  case Kind::Cast:
    return !isFloat(e.operand(0).type());
  default:
    return !isFloat(e.type());
  }
}

/// The exponent k of 2^k; null if `e` is none.
static Expr exponentOf(Expr e) {
  if (e.is(Fn::Exp2))
    return e.operand(0);
  if (e.is(Fn::PowFn) && e.operand(0).isConstant(2))
    return e.operand(1);
  return {};
}

static bool isPowerOfTwo(Expr e) {
  if (std::optional<double> value = e.constant()) {
    int exponent;
    return *value > 0 && std::isfinite(*value) &&
           std::frexp(*value, &exponent) == 0.5;
  }
  if (Expr exponent = exponentOf(e))
    return isWhole(exponent);
  if (e.is(Kind::Mul) || e.is(Kind::Div))
    return isPowerOfTwo(e.operand(0)) && isPowerOfTwo(e.operand(1));
  return e.is(Kind::Select) && isPowerOfTwo(e.operand(1)) &&
         isPowerOfTwo(e.operand(2));
}

//===----------------------------------------------------------------------===//
// What is rounded
//===----------------------------------------------------------------------===//

/// `e` without the limits that its value never reaches, down to what is
/// rounded; null where there is something else in between. Limits are judged
/// later: `own.largest` is the least of them.
Expr Separator::withoutLimits(Expr e, RunningCast &own) {
  if (!scope.isMixed(e))
    return {};
  bool isCast = e.is(Kind::Cast) && e.operand(0).type() != Type::Bool;
  bool isStep = e.is(Fn::Round) || e.is(Fn::Floor) || e.is(Fn::Ceil);
  if (isCast || isStep) {
    Expr operand = e.operand(0);
    Expr inner = withoutLimits(operand, own);
    if (!inner)
      return {};
    bool isWide = isExactConversion(operand.type(), e.type());
    if (isCast && !isFloat(operand.type()) && !isWide) {
      if (!isFloat(e.type()))
        return {}; // it wraps
      own.unit += gridOf(e.type()).unit;
    }
    if (isCast && isFloat(e.type()) && isFloat(operand.type())) {
      Grid grid = gridOf(e.type());
      own.unit += grid.unit;
      own.step += grid.step;
      own.lowestNormal = std::max(own.lowestNormal, grid.lowestNormal);
      own.largest = std::min(own.largest, grid.largest);
      ++own.floatCasts;
    } else if (isCast && isFloat(operand.type())) {
      own.step += isWhole(operand) ? 0 : 0.5;
      own.largest = std::min(own.largest, limitOf(e.type()));
      ++own.otherCasts;
    } else if (isStep && !isWhole(operand)) {
      own.step += e.is(Fn::Round) ? 0.5 : 1;
      ++own.otherCasts;
    }
    Expr operands[] = {inner};
    return context.rebuild(e, operands);
  }
  if (Expr inner = withoutLimit(e, own))
    return inner;
  if (!isFloat(e.type()))
    return {};
  own.operand = e;
  return e;
}

/// max(q, low), min(q, high) and where(isnan(q), 0, q) around something that is
/// rounded; null if `e` is none of them.
Expr Separator::withoutLimit(Expr e, RunningCast &own) {
  bool isMax = e.is(Kind::Max) || e.is(Kind::MaxNum);
  bool isMin = e.is(Kind::Min) || e.is(Kind::MinNum);
  if (isMax || isMin) {
    for (unsigned i : {0, 1}) {
      std::optional<double> limit = e.operand(i).constant();
      if (!limit || (isMax ? *limit >= 0 : *limit <= 0))
        continue;
      Expr inner = withoutLimits(e.operand(1 - i), own);
      own.largest = std::min(own.largest, std::abs(*limit));
      return inner;
    }
    return {};
  }
  if (!e.is(Kind::Select))
    return {};
  Expr condition = e.operand(0), value = e.operand(2);
  bool isNan = condition.is(Fn::IsNan) && condition.operand(0) == value;
  isNan |= condition.is(Kind::Cmp) && condition->pred == Pred::Ne &&
           condition.operand(0) == value && condition.operand(1) == value;
  if (!isNan || scope.hasD(e.operand(1)) || scope.hasX(e.operand(1)))
    return {};
  Expr inner = withoutLimits(value, own);
  return inner
             ? context.select(context.fn(Fn::IsNan, inner), e.operand(1), inner)
             : Expr();
}

/// The factors of y. Results of the pass stand alone, everything else is
/// separated.
bool Separator::collectFactors(Expr e, bool divides, RunningCast &own) {
  if (own.factors.size() >= kMostFactors) {
    fail(reason::rankBudget, e, "a product of too many factors");
    return false;
  }
  bool isProduct = e.is(Kind::Mul) || e.is(Kind::Div);
  if (isProduct && scope.hasD(e))
    return collectFactors(e.operand(0), divides, own) &&
           collectFactors(e.operand(1), divides != e.is(Kind::Div), own);
  if (scope.of(e) == Dependence::D) {
    own.factors.push_back({CastFactor::Kind::Deferred, e, divides, {}});
    return true;
  }
  std::optional<Terms> terms = visit(e);
  if (!terms)
    return false;
  const Term *term = terms->size() == 1 ? &(*terms)[0] : nullptr;
  bool isPlain = term && term->translates.empty() && term->dGuards.empty() &&
                 term->outer.isOne() && term->casts.empty();
  for (Expr guard : term ? term->xGuards : std::vector<Expr>())
    isPlain &= !scope.hasD(guard) && !extremeGuard(context, facts, guard);
  if (isPlain) {
    const Monomial scales = term->h * term->inner;
    for (const auto &[atom, exponent] : scales.factors())
      isPlain &= !scope.hasD(atom);
  }
  if (!isPlain || (divides && scope.hasD(e))) {
    fail(reason::mixedCast, own.node,
         "what is rounded is no product of a part in the element and a part in "
         "the running value");
    return false;
  }
  own.factors.push_back({CastFactor::Kind::Element, e, divides, *term});
  return true;
}

//===----------------------------------------------------------------------===//
// Scales
//===----------------------------------------------------------------------===//

/// where(a == 0, 1, s) is s wherever an element counts; a >= 0.
Expr Separator::unguardedScale(Expr e) {
  ExprMap map;
  forEachNode(e, [&](Expr node) {
    if (!node.is(Kind::Select) || !node.operand(0).is(Kind::Cmp))
      return;
    Expr condition = node.operand(0);
    bool isZero = condition.operand(1).isConstant(0) &&
                  facts.isNonNegative(condition.operand(0));
    if (!isZero)
      return;
    bool isGuard = condition->pred == Pred::Eq || condition->pred == Pred::Le;
    bool isUse = condition->pred == Pred::Ne || condition->pred == Pred::Gt;
    Expr guarded = isGuard ? node.operand(1) : node.operand(2);
    if ((isGuard || isUse) && !scope.hasD(guarded))
      map[node] = isGuard ? node.operand(2) : node.operand(1);
  });
  return map.empty() ? e : substitute(context, e, map);
}

/// What 2^(ceil(log2 z) + c) is at least: z·2^c.
static Expr leastPower(Context &context, Expr exponent) {
  if (exponent.is(Fn::Ceil)) {
    Expr inner = exponent.operand(0);
    return inner.is(Fn::Log2) ? inner.operand(0) : Expr();
  }
  bool isSum = exponent.is(Kind::Add) || exponent.is(Kind::Sub);
  bool isMax = exponent.is(Kind::Max) || exponent.is(Kind::MaxNum);
  if (!isSum && !isMax)
    return {};
  for (unsigned i : {0, 1}) {
    std::optional<double> shift = exponent.operand(i).constant();
    if (!shift || (exponent.is(Kind::Sub) && i == 0) || std::abs(*shift) > 512)
      continue;
    Expr least = leastPower(context, exponent.operand(1 - i));
    if (!least || isMax)
      return least;
    double by = exponent.is(Kind::Sub) ? -*shift : *shift;
    return context.mul(least, context.real(std::exp2(by), least.type()));
  }
  return {};
}

void Separator::addScaleFacts(Expr scale) {
  forEachNode(scale, [&](Expr e) {
    Expr exponent = exponentOf(e);
    if (!exponent)
      return;
    facts.addNonNegative(e);
    if (Expr least = leastPower(context, exponent))
      facts.addLowerBound(e, unguardedScale(least));
  });
}

/// |y| <= limit for every element of every row of numbers. Exponentials are at
/// most 1 by the choice of their pivot.
bool Separator::isBounded(const RunningCast &own, double limit) {
  if (std::isinf(limit))
    return true;
  Expr up = context.real(1, type), down;
  for (const CastFactor &factor : own.factors) {
    if (factor.kind == CastFactor::Kind::Deferred)
      continue;
    Expr value =
        factor.kind == CastFactor::Kind::Running
            ? unguardedScale(factor.node)
            : multiplied(context, {},
                         factor.term->g * factor.term->h * factor.term->inner,
                         factor.term->coefficient, type);
    if (factor.divides)
      down = down ? context.mul(down, value) : value;
    else
      up = context.mul(up, value);
  }
  Poly y = normaliser.normal(down ? context.div(up, down) : up);
  return facts.isNonPositive(y - Poly::constant(limit)) &&
         facts.isNonPositive(y.scaled(-1) - Poly::constant(limit));
}

/// The least bound of |y| at hand: its own constants, or the range of the type.
double Separator::sizeOf(const RunningCast &own) {
  double size = 1;
  for (const CastFactor &factor : own.factors)
    if (factor.kind == CastFactor::Kind::Element)
      size *= factor.divides ? 1 / factor.term->coefficient
                             : factor.term->coefficient;
  size = std::abs(size);
  if (isBounded(own, size))
    return size;
  return std::isinf(own.largest) ? 0 : own.largest;
}

/// Over the stream `e` never falls (or never rises): maxima and sums of values
/// >= 0 grow, minima fall.
bool Separator::isGrowing(Expr e, bool isFalling) {
  for (Expr symbol : symbolsOf(e)) {
    if (!scope.hasD(symbol))
      continue;
    Shape wanted = Shape::Unknown;
    for (const Extremal &fact : facts.extremals())
      if (fact.isAttained && fact.symbol == symbol)
        wanted = fact.isMax ? Shape::Increasing : Shape::Decreasing;
    if (facts.isSumOfNonNegatives(symbol))
      wanted = Shape::Increasing;
    if (wanted == Shape::Unknown)
      return false;
    Shape shape = MonotoneAnalyzer(facts, symbol).classify(e);
    if (shape != Shape::Constant &&
        shape != (isFalling ? flipped(wanted) : wanted))
      return false;
  }
  return true;
}

/// Results of at most 1 wait for the end if what is left is in range; the
/// others become pivots, which must not let what was rounded grow.
bool Separator::chooseScales(RunningCast &own) {
  for (CastFactor &factor : own.factors)
    if (factor.kind == CastFactor::Kind::Deferred)
      addScaleFacts(factor.node);
  bool mayWait = true;
  for (const CastFactor &factor : own.factors) {
    if (factor.kind != CastFactor::Kind::Deferred)
      continue;
    Poly least = normaliser.normal(factor.node) - Poly::constant(1);
    mayWait &= factor.divides ? facts.isNonPositive(least.scaled(-1))
                              : facts.isNonNegative(factor.node) &&
                                    facts.isNonPositive(least);
  }
  if (mayWait && isBounded(own, own.largest))
    return true;
  for (CastFactor &factor : own.factors) {
    if (factor.kind != CastFactor::Kind::Deferred)
      continue;
    factor.kind = CastFactor::Kind::Running;
    Expr plain = unguardedScale(factor.node);
    if (!facts.isNonNegative(plain) || !isGrowing(plain, !factor.divides)) {
      fail(reason::mixedCast, own.node,
           "the scale is not known to grow, so what was rounded at an earlier "
           "one may have been rounded too coarsely");
      return false;
    }
  }
  if (isBounded(own, own.largest))
    return true;
  fail(reason::mixedCast, own.node,
       "nothing known keeps what is rounded within the range of the type, "
       "where it would saturate at another element than as written");
  return false;
}

/// A rounding in terms of running values, if the policy takes it.
std::optional<std::vector<Term>> Separator::rounded(Expr e) {
  const char *const plain =
      "rounding does not commute with a change of the running value";
  if (!castPolicy)
    return fail(reason::mixedCast, e, plain);
  auto known = std::find_if(casts.begin(), casts.end(),
                            [&](const RunningCast &c) { return c.node == e; });
  unsigned number = unsigned(known - casts.begin());
  if (known == casts.end()) {
    RunningCast own;
    own.node = e;
    own.inner = withoutLimits(e, own);
    if (!own.inner || own.operand == e)
      return fail(reason::mixedCast, e, plain);
    if (!collectFactors(own.operand, false, own) || !chooseScales(own))
      return std::nullopt;
    own.isPowerOfTwo = own.floatCasts == 1 && own.otherCasts == 0;
    for (const CastFactor &factor : own.factors)
      own.isPowerOfTwo &= factor.kind == CastFactor::Kind::Running
                              ? isPowerOfTwo(factor.node)
                              : factor.kind == CastFactor::Kind::Element &&
                                    factor.term->ex.empty() &&
                                    factor.term->ed.isZero();
    if (!own.isPowerOfTwo && castPolicy->casts == CastPolicy::Exact)
      return fail(reason::mixedCast, e, plain);
    own.size = sizeOf(own);
    double bound = own.unit + (own.size > 0 ? own.step / own.size : own.step);
    if (!own.isPowerOfTwo && bound > castPolicy->castBound)
      return fail(reason::mixedCast, e,
                  "one rounding errs by up to " + std::to_string(bound) +
                      " of the largest value, more than the bound that was "
                      "asked for");
    casts.push_back(std::move(own));
  }
  const RunningCast &own = casts[number];
  Term term;
  term.casts = {number};
  for (const CastFactor &factor : own.factors) {
    if (factor.kind == CastFactor::Kind::Deferred)
      term.h.multiply(factor.node, rational(factor.divides ? -1 : 1));
    if (factor.kind != CastFactor::Kind::Element)
      continue;
    term.ed = term.ed + factor.term->ed;
    for (Expr guard : factor.term->xGuards)
      if (std::find(term.xGuards.begin(), term.xGuards.end(), guard) ==
          term.xGuards.end())
        term.xGuards.push_back(guard);
  }
  std::sort(term.xGuards.begin(), term.xGuards.end());
  if (!term.xGuards.empty())
    std::swap(term.inner, term.h);
  return Terms{term};
}

//===----------------------------------------------------------------------===//
// States
//===----------------------------------------------------------------------===//

/// The scale is a number above 0 before anything was read, and on a row of
/// zeros, as it is written.
bool Builder::isSafeScale(Expr scale) {
  FoldedMap empty, zeros;
  for (Expr symbol : symbolsOf(scale)) {
    const State *state = program.findState(symbol);
    if (!state)
      return false;
    Expr none = identity(context, state->reducer, symbol.type());
    empty[symbol] = Folded::known(*none.constant());
    zeros[symbol] = Folded::known(0);
  }
  for (const FoldedMap &row : {empty, zeros}) {
    Folded value = fold(scale, row);
    if (!value.isKnown() || !value.isFinite() || !(value.value > 0))
      return false;
  }
  return true;
}

/// A scale that is a number above 0 on those rows too: what was read there is 0
/// at every scale, as for pivots that are subtracted.
static Expr safeScale(Context &context, Expr scale, bool divides) {
  Type type = scale.type();
  Expr zero = context.real(0, type), one = context.real(1, type);
  Expr isScale = context.cmp(Pred::Gt, scale, zero);
  if (!divides) {
    Expr inf = context.real(std::numeric_limits<double>::infinity(), type);
    isScale = context.logicalAnd(isScale, context.cmp(Pred::Lt, scale, inf));
  }
  return context.select(isScale, scale, one);
}

/// NaN becomes 0 on the way, as in an integer.
static bool losesNan(Expr rounded) {
  bool result = false;
  forEachNode(rounded, [&](Expr e) {
    result |=
        e.is(Kind::Cast) && !isFloat(e.type()) && isFloat(e.operand(0).type());
  });
  return result;
}

bool Builder::castGauge(const RunningCast &own,
                        const std::vector<const Term *> &terms, Scope &scope,
                        Type type, unsigned pass, const std::string &name,
                        Gauge &gauge, Monomial &readout) {
  ExprMap map;
  Poly left;
  for (const CastFactor &factor : own.factors) {
    switch (factor.kind) {
    case CastFactor::Kind::Deferred:
      map[factor.node] = context.real(1, factor.node.type());
      break;
    case CastFactor::Kind::Running: {
      Expr &pivot = scales[{factor.node, factor.divides}];
      if (!pivot)
        pivot = addLet(isSafeScale(factor.node)
                           ? factor.node
                           : safeScale(context, factor.node, factor.divides),
                       name + ".scale");
      scope.addVarying(pivot);
      map[factor.node] = pivot;
      gauge.scales.push_back({pivot, factor.divides});
      if (isSafeScale(factor.node) || losesNan(own.inner))
        break;
      // Where the scale is no scale, 0/0 is to be what it is as written.
      Expr moved = factor.divides ? context.div(pivot, factor.node)
                                  : context.div(factor.node, pivot);
      readout.multiply(context.select(context.cmp(Pred::Eq, pivot, factor.node),
                                      context.real(1, moved.type()), moved),
                       rational(1));
      break;
    }
    case CastFactor::Kind::Element: {
      const Term &term = *factor.term;
      left = left + term.ed;
      if (term.ex.empty())
        break;
      Gauge part = chooseGauge(term.ex, terms, scope, type, pass, name);
      Expr value =
          multiplied(context, part.factor, term.g * term.h * term.inner,
                     term.coefficient, type);
      for (Expr guard : term.xGuards)
        value = context.select(guard, value, context.real(0, type));
      map[factor.node] = value;
      gauge.shifts.insert(gauge.shifts.end(), part.shifts.begin(),
                          part.shifts.end());
      gauge.moved = gauge.moved + part.moved;
      left = left + part.moved;
      break;
    }
    }
  }
  if (!facts.isNonPositive(left)) {
    reject = {reason::mixedCast, own.node,
              "what is left of the exponent may exceed 0, so the rounding "
              "would be coarser than as written"};
    return false;
  }
  Expr value = substitute(context, own.inner, map);
  gauge.factor = gauge.factor ? context.mul(gauge.factor, value) : value;
  if (!gauge.castLaw || !own.isPowerOfTwo)
    gauge.castLaw =
        own.isPowerOfTwo ? "power-of-two-scale" : "rounded-at-running-pivot";
  return true;
}

/// Adds to the gauge what the terms of a group round. False, and `reject`, if
/// the running values would make it coarser.
bool Builder::addCasts(const std::vector<unsigned> &casts,
                       const std::vector<const Term *> &terms,
                       Separator &separator, Scope &scope, Type type,
                       unsigned pass, const std::string &name, Gauge &gauge,
                       Monomial &readout) {
  for (unsigned number : casts)
    if (!castGauge(separator.allCasts()[number], terms, scope, type, pass, name,
                   gauge, readout))
      return false;
  return true;
}

/// A sum of products of integers as one of floats: a state that is scaled is no
/// integer. Null where something else is computed with them.
static Expr asReal(Context &context, Expr e) {
  if (isFloat(e.type()))
    return e;
  if (std::optional<double> value = e.constant())
    return context.real(*value);
  bool isLeaf = e.isSym() || (e.is(Kind::Cast) && isFloat(e.operand(0).type()));
  if (isLeaf)
    return context.cast(Type::F32, e);
  if (e.is(Kind::Cast) && isExactConversion(e.operand(0).type(), e.type()))
    return asReal(context, e.operand(0));
  bool isSum =
      e.is(Kind::Add) || e.is(Kind::Sub) || e.is(Kind::Mul) || e.is(Kind::Neg);
  if (!isSum)
    return {};
  Expr operands[2];
  for (unsigned i = 0; i < e.size(); ++i)
    if (operands[i] = asReal(context, e.operand(i)); !operands[i])
      return {};
  return context.rebuild(e, std::span(operands, e.size()));
}

/// A sum of integers that are rounded, of elements and results, if everything
/// that reads it converts it to a float; null otherwise.
Expr Builder::realSummand(unsigned number, Expr term) {
  const Stage &stage = cascade.stages[number];
  if (policy.casts != CastPolicy::Requantise || isFloat(term.type()) ||
      stage.reducer != Reducer::Sum)
    return {};
  bool isConverted = true;
  auto visit = [&](Expr root) {
    isConverted &= root != stage.results[0];
    forEachNode(root, [&](Expr e) {
      for (unsigned i = 0; i < e.size(); ++i)
        isConverted &= e.operand(i) != stage.results[0] || isFloat(e.type());
    });
  };
  for (const Stage &other : cascade.stages) {
    visit(other.term);
    for (Expr payload : other.payloads)
      visit(payload);
  }
  for (const Output &output : cascade.outputs)
    visit(output.value);
  return isConverted ? asReal(context, term) : Expr();
}

bool Builder::wouldRequantise(Expr term, unsigned pass) {
  Scope scope = scopeOf(pass);
  Policy running = policy;
  running.casts = CastPolicy::Requantise;
  term = asReal(context, term);
  if (!term)
    return false;
  Separator separator(context, normaliser, facts, scope,
                      computeType(term.type()), policy.rankBudget);
  separator.castPolicy = &running;
  return separator.separate(term) && !separator.allCasts().empty();
}

/// Π old/new of the scales that are divided by, new/old of the others; null if
/// none runs in this pass.
Expr Builder::scaleMove(const std::vector<Scale> &moved,
                        std::vector<Expr> &pivots, unsigned pass) {
  Expr result;
  for (const Scale &scale : moved) {
    auto it = passOf.find(scale.pivot);
    if (it == passOf.end() || it->second != pass)
      continue;
    auto at = std::find(pivots.begin(), pivots.end(), scale.pivot);
    unsigned number = unsigned(at - pivots.begin());
    if (at == pivots.end())
      pivots.push_back(scale.pivot);
    Type type = scale.pivot.type();
    Expr before = context.placeholder(Role::Old, number, type);
    Expr after = context.placeholder(Role::New, number, type);
    Expr ratio =
        scale.divides ? context.div(before, after) : context.div(after, before);
    result = result ? context.mul(result, ratio) : ratio;
  }
  return result;
}

} // namespace refold::algebra
