// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Max, min, any, all and top-k stages. One over φ(u, δ) with φ monotone in one
// element feature u is read out from the extremes of u; with φ bent, from both.
#include "Edges.h"
#include "Features.h"

#include <algorithm>

namespace refold::algebra {

//===----------------------------------------------------------------------===//
// Stages
//===----------------------------------------------------------------------===//

static bool takesMaximum(Reducer reducer) {
  return reducer == Reducer::Max || reducer == Reducer::MaxNum ||
         reducer == Reducer::Any;
}

// Law `extremal-monotone`: max φ(u) = φ(max u) if φ does not decrease, φ(min u)
// if it does not increase, the larger of both if it falls and then rises.

/// Which of max and min of the feature the readout needs; neither: not
/// possible.
static std::pair<bool, bool> neededEnds(Shape shape, bool isMax) {
  switch (shape) {
  case Shape::Increasing:
    return {isMax, !isMax};
  case Shape::Decreasing:
    return {!isMax, isMax};
  case Shape::QuasiLinear:
    return {true, true};
  case Shape::QuasiConvex:
    return {isMax, isMax};
  case Shape::QuasiConcave:
    return {!isMax, !isMax};
  case Shape::Constant:
    return {true, false};
  case Shape::Unknown:
    break;
  }
  return {false, false};
}

/// Whether a NaN among the features must reach the readout. A predicate of a
/// NaN is a plain true or false, and the others still count.
static std::optional<bool> nanSticks(const Feature &found, Reducer reducer) {
  if (!isFloat(found.feature.type()))
    return true; // there is none
  if (reducer != Reducer::Any && reducer != Reducer::All)
    return reducer == Reducer::Max || reducer == Reducer::Min;
  FoldedMap onNan{{found.variable,
                   Folded::known(std::numeric_limits<double>::quiet_NaN())}};
  Folded value = fold(found.function, onNan);
  if (!value.isKnown())
    return std::nullopt;
  return (value.value != 0) == (reducer == Reducer::Any);
}

/// A product whose exponentials cancel is printed without them.
static Expr tidied(Builder &builder, Scope &scope, Expr value) {
  if (!isFloat(value.type()))
    return value;
  bool hasExp = false;
  forEachNode(value, [&](Expr e) { hasExp |= e.is(Fn::Exp); });
  if (!hasExp)
    return value;
  Separator separator(builder.context, builder.normaliser, builder.facts, scope,
                      computeType(value.type()), builder.policy.rankBudget);
  auto terms = separator.separate(value);
  if (!terms || terms->size() != 1 || !(*terms)[0].ed.isZero() ||
      !(*terms)[0].ex.empty() || !(*terms)[0].dGuards.empty())
    return value;
  return separator.toExpr((*terms)[0]);
}

bool Builder::deriveExtremum(unsigned number, Expr term, unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Scope scope = scopeOf(pass);
  if (scope.hasD(term) && deriveAtExtreme(number, term, scope))
    return true;
  Expr readout = extremeOf({stage, stage.reducer, {}, pass}, term, scope);
  if (readout)
    rawReadout[stage.results[0]] = readout;
  return bool(readout);
}

/// By one feature, or part by part: a maximum of a maximum, of a choice, of a
/// negation. A refusal is that of the whole.
Expr Builder::extremeOf(const Extremum &of, Expr term, Scope &scope) {
  bool isPredicate = of.reducer == Reducer::Any || of.reducer == Reducer::All;
  if (!scope.hasD(term)) {
    Expr value = of.guarded(context, term);
    Expr made = state(of.reducer, value, of.stage.name);
    if (!isPredicate)
      facts.addExtremal(made, value, takesMaximum(of.reducer));
    return made;
  }
  Expr readout = extremeByFeature(of, term, scope);
  if (readout)
    return readout;
  Reject whole = reject;
  readout = extremeByParts(of, term, scope);
  if (!readout && std::string_view(reject.reason) != reason::interiorOptimum)
    reject = whole;
  return readout;
}

Expr Builder::extremeByFeature(const Extremum &of, Expr term, Scope &scope) {
  bool isMax = takesMaximum(of.reducer);
  std::optional<Feature> found = FeatureFinder(*this, scope, term).find();
  auto [needsMax, needsMin] =
      found ? neededEnds(found->shape, isMax) : std::pair(false, false);
  std::optional<bool> sticks =
      found ? nanSticks(*found, of.reducer) : std::nullopt;
  auto refuse = [&](const char *key, const char *text) {
    reject = {key, term, text};
    return Expr();
  };
  if (found && found->makesNan && (needsMax || needsMin)) {
    // NaN lies beyond one end: that end's NaN sticks to the readout. Where it
    // gives way the optimum is somewhere inside.
    bool isSticky = of.reducer == Reducer::Max || of.reducer == Reducer::Min;
    bool isMonotone =
        found->shape == Shape::Increasing || found->shape == Shape::Decreasing;
    if (!isSticky || !isMonotone)
      return refuse(reason::notMonotone,
                    "not a number for some elements, and which ones changes "
                    "with the running value");
    needsMax = needsMin = true;
  }
  if (!needsMax && !needsMin) {
    bool isBent = found && (found->shape == Shape::QuasiConvex ||
                            found->shape == Shape::QuasiConcave);
    return isBent
               ? refuse(reason::interiorOptimum,
                        "the optimum may be at any element in the middle, and "
                        "which one depends on the running value")
               : refuse(reason::notMonotone,
                        "not shown to be monotone in one feature of the "
                        "elements: their order changes with the running "
                        "value");
  }
  if (!sticks)
    return refuse(reason::guardMixed,
                  "what it is on a NaN depends on the running value");
  Expr readout;
  for (bool wantsMax : {true, false}) {
    if (!(wantsMax ? needsMax : needsMin))
      continue;
    Reducer reducer = wantsMax ? (*sticks ? Reducer::Max : Reducer::MaxNum)
                               : (*sticks ? Reducer::Min : Reducer::MinNum);
    Expr feature = Extremum{of.stage, reducer, of.guard, of.pass}.guarded(
        context, found->feature);
    Expr end =
        state(reducer, feature, of.stage.name + (wantsMax ? ".max" : ".min"));
    facts.addExtremal(end, feature, wantsMax);
    if (passOf.at(end) == of.pass)
      scope.addVarying(end);
    Expr value = substitute(context, found->function, {{found->variable, end}});
    value = tidied(*this, scope, value);
    readout = readout ? joined(of.reducer, readout, value) : value;
  }
  // A readout of NaN is one of NaN everywhere, which gives way to nothing.
  if (of.reducer == Reducer::MaxNum || of.reducer == Reducer::MinNum)
    readout =
        joined(of.reducer, readout, identity(context, of.reducer, term.type()));
  if (!of.guard)
    return readout;
  Expr any = state(Reducer::Any, of.guard, of.stage.name + ".any");
  return context.select(any, readout,
                        identity(context, of.reducer, term.type()));
}

Expr Extremum::guarded(Context &context, Expr value) const {
  return guard ? context.select(guard, value,
                                identity(context, reducer, value.type()))
               : value;
}

/// The reducer on two values.
Expr Builder::joined(Reducer reducer, Expr a, Expr b) {
  switch (reducer) {
  case Reducer::Any:
    return context.logicalOr(a, b);
  case Reducer::All:
    return context.logicalAnd(a, b);
  case Reducer::Max:
    return context.max(a, b);
  case Reducer::Min:
    return context.min(a, b);
  case Reducer::MaxNum:
    return context.maxNum(a, b);
  default:
    return context.minNum(a, b);
  }
}

/// The node that does to two values what the reducer does.
static Kind kindOf(Reducer reducer) {
  switch (reducer) {
  case Reducer::Any:
    return Kind::Or;
  case Reducer::All:
    return Kind::And;
  case Reducer::Max:
    return Kind::Max;
  case Reducer::Min:
    return Kind::Min;
  case Reducer::MaxNum:
    return Kind::MaxNum;
  default:
    return Kind::MinNum;
  }
}

static std::optional<Reducer> dual(Reducer reducer) {
  switch (reducer) {
  case Reducer::Max:
    return Reducer::Min;
  case Reducer::Min:
    return Reducer::Max;
  case Reducer::MaxNum:
    return Reducer::MinNum;
  case Reducer::MinNum:
    return Reducer::MaxNum;
  case Reducer::Any:
    return Reducer::All;
  case Reducer::All:
    return Reducer::Any;
  default:
    return std::nullopt;
  }
}

/// Law `extremal-parts`: max_l max(f, g) = max(max_l f, max_l g), and so for
/// what a choice between f and g makes of them.
Expr Builder::extremeByParts(const Extremum &of, Expr term, Scope &scope) {
  if (term.is(kindOf(of.reducer))) {
    Expr a = extremeOf(of, term.operand(0), scope);
    Expr b = a ? extremeOf(of, term.operand(1), scope) : Expr();
    return b ? joined(of.reducer, a, b) : Expr();
  }
  if (term.is(Kind::Neg) || term.is(Kind::Not)) {
    Expr inner = extremeOf({of.stage, *dual(of.reducer), of.guard, of.pass},
                           term.operand(0), scope);
    return !inner               ? Expr()
           : term.is(Kind::Neg) ? context.neg(inner)
                                : context.logicalNot(inner);
  }
  bool isAny = of.reducer == Reducer::Any;
  if (term.is(isAny ? Kind::And : Kind::Or) &&
      (isAny || of.reducer == Reducer::All))
    for (unsigned i : {0, 1})
      if (!scope.hasD(term.operand(i))) {
        Expr rest = term.operand(1 - i), none = context.boolean(!isAny);
        Expr choice = isAny ? context.select(term.operand(i), rest, none)
                            : context.select(term.operand(i), none, rest);
        return extremeByParts(of, choice, scope);
      }
  if (!term.is(Kind::Select) || scope.isMixed(term.operand(0)))
    return {};
  Expr condition = term.operand(0), result;
  Expr none = identity(context, of.reducer, term.type());
  for (bool isTrue : {true, false}) {
    Expr branch = term.operand(isTrue ? 1 : 2), part;
    if (scope.hasX(condition)) {
      Extremum own = of;
      Expr holds = isTrue ? condition : context.logicalNot(condition);
      own.guard = of.guard ? context.logicalAnd(of.guard, holds) : holds;
      if (branch.constant() && branch.constant() == none.constant())
        continue;
      part = extremeOf(own, branch, scope);
      result = !part ? part : result ? joined(of.reducer, result, part) : part;
    } else {
      part = extremeOf(of, branch, scope);
      result = !part    ? part
               : isTrue ? part
                        : context.select(condition, result, part);
    }
    if (!part)
      return {};
  }
  return result;
}

/// True on slots of a rank beyond the length of the stream.
static Expr isVacant(const Cascade &cascade, const Stage &stage) {
  Context &context = *cascade.context;
  if (stage.rank < 0)
    return context.boolean(false);
  Expr length;
  int64_t extent = 1;
  for (const Index &index : cascade.indices) {
    if (index.role != IndexRole::Stream)
      continue;
    length = length ? context.mul(length, index.length) : index.length;
    bool isKnown = index.extent >= 0 && extent >= 0 &&
                   !__builtin_mul_overflow(extent, index.extent, &extent);
    extent = isKnown ? extent : -1;
  }
  if (extent >= stage.k)
    return context.boolean(false);
  return context.cmp(Pred::Ge, cascade.indices[stage.rank].value, length);
}

/// False if `function` can map different values of `variable` to one: then the
/// earlier of equal keys is not the one with the larger feature.
static bool isInjective(Expr function, Expr variable) {
  bool result = true;
  forEachNode(function, [&](Expr e) {
    if (e == variable || e.size() == 0 || !contains(e, variable))
      return;
    bool isArithmetic = e.is(Kind::Add) || e.is(Kind::Sub) || e.is(Kind::Mul) ||
                        e.is(Kind::Div) || e.is(Kind::Neg) || e.is(Kind::Pow);
    bool isSmooth = false;
    for (Fn fn :
         {Fn::Exp, Fn::Exp2, Fn::Expm1, Fn::Log, Fn::Log2, Fn::Log1p, Fn::Sqrt,
          Fn::Rsqrt, Fn::Tanh, Fn::Sigmoid, Fn::Erf, Fn::Sinh})
      isSmooth |= e.is(fn);
    result &= isArithmetic || isSmooth;
  });
  return result;
}

bool Builder::deriveTopK(unsigned number, Expr term, unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Scope scope = scopeOf(pass);
  for (Expr payload : stage.payloads)
    if (scope.hasD(payload)) {
      reject = {reason::notMonotone, payload, "a payload of a running value"};
      return false;
    }
  std::optional<Feature> found;
  Expr key = term;
  bool isTurned = false; // best by the negated feature
  if (scope.hasD(term)) {
    found = FeatureFinder(*this, scope, term).find();
    if (found && found->makesNan) {
      reject = {reason::notMonotone, term,
                "not a number for some elements, which come before all others "
                "in the order, and which ones changes with the running value"};
      return false;
    }
    if (!found ||
        (found->shape != Shape::Increasing &&
         found->shape != Shape::Decreasing) ||
        (!stage.payloads.empty() &&
         !isInjective(found->function, found->variable))) {
      reject = {reason::notMonotone, term,
                "not shown to be monotone in one feature of the elements: "
                "their order changes with the running value"};
      return false;
    }
    key = found->feature;
    isTurned = found->shape == Shape::Decreasing;
  }
  State top;
  top.reducer = Reducer::TopK;
  top.k = stage.k;
  top.rank = stage.rank;
  top.largest = stage.largest;
  top.values.push_back(isTurned ? context.neg(key) : key);
  top.values.insert(top.values.end(), stage.payloads.begin(),
                    stage.payloads.end());
  addState(std::move(top), stage.name);
  const State &made = std::get<State>(program.definitions.back());
  Expr best = isTurned ? context.neg(made.results[0]) : made.results[0];
  if (found) {
    best = substitute(context, found->function, {{found->variable, best}});
    vacancies[stage.results[0]] = isVacant(cascade, stage);
  }
  rawReadout[stage.results[0]] = best;
  for (size_t i = 1; i < made.results.size(); ++i)
    rawReadout[stage.results[i]] = made.results[i];
  return true;
}

} // namespace refold::algebra
