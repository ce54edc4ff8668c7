// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// The one element feature that a term depends on, and how the term runs in it.
#include "Features.h"

#include <algorithm>

namespace refold::algebra {

/// Largest parts without running values, and the only element read, if it is
/// one.
std::vector<Expr> FeatureFinder::candidates() {
  std::vector<Expr> result, reads;
  forEachNode(term, [&](Expr e) {
    if (e.isSym() && scope.hasX(e))
      reads.push_back(e);
    if (!scope.isMixed(e))
      return;
    for (unsigned i = 0; i < e.size(); ++i)
      if (scope.of(e.operand(i)) == Dependence::X &&
          std::find(result.begin(), result.end(), e.operand(i)) == result.end())
        result.push_back(e.operand(i));
  });
  std::sort(result.begin(), result.end(), [](Expr a, Expr b) {
    return a->depth != b->depth ? a->depth > b->depth : a < b;
  });
  if (reads.size() == 1 &&
      std::find(result.begin(), result.end(), reads[0]) == result.end())
    result.push_back(reads[0]);
  return result;
}

std::optional<Feature> FeatureFinder::bySubstitution(Expr feature) {
  Feature found;
  found.feature = feature;
  found.variable = context.symbol("u", Role::Element, feature.type(), 0);
  found.function = substitute(context, term, {{feature, found.variable}});
  if (scope.hasX(found.function))
    return std::nullopt;
  classify(found);
  return found;
}

/// term = g(x)·h(δ) + r(δ), or e^g(x)·h + r: the feature is g.
std::optional<Feature> FeatureFinder::bySeparation() {
  if (!isFloat(term.type()))
    return std::nullopt;
  Type type = computeType(term.type());
  Separator separator(context, builder.normaliser, builder.facts, scope, type,
                      builder.policy.rankBudget);
  std::optional<std::vector<Term>> terms = separator.separate(term);
  if (!terms)
    return std::nullopt;
  Feature found;
  Expr rest;
  for (Term &own : *terms) {
    bool hasElements =
        !own.g.isOne() || !own.ex.empty() || !own.translates.empty();
    if (!own.xGuards.empty() || (hasElements && found.feature))
      return std::nullopt;
    if (!hasElements) {
      Expr part = separator.toExpr(own);
      rest = rest ? context.add(rest, part) : part;
      continue;
    }
    Expr moved;
    if (!own.translates.empty()) {
      bool isPlain = own.g.isOne() && own.ex.empty() &&
                     own.translates.size() == 1 &&
                     own.translates.begin()->second == 1;
      if (!isPlain)
        return std::nullopt;
      const Translate &translate =
          separator.allTranslates()[own.translates.begin()->first];
      found.feature = translate.x.toExpr(context, type);
      moved = toExpr(context, translate.delta, type);
    } else if (own.ex.empty()) {
      found.feature = toExpr(context, own.g, 1, type);
    } else if (own.g.isOne()) {
      found.feature = own.ex.toExpr(context, type);
    } else {
      return std::nullopt;
    }
    found.variable = context.symbol("u", Role::Element, type, 0);
    Expr value = moved ? context.add(found.variable, moved) : found.variable;
    Term factor = own;
    if (!own.ex.empty()) {
      // One exponential of the difference: each of its parts may overflow.
      if (!own.ed.isZero())
        value = context.sub(value, toExpr(context, own.ed.scaled(-1), type));
      factor.ed = {};
      value = context.exp(value);
    }
    factor.g = {};
    factor.ex = {};
    factor.translates.clear();
    found.function = context.mul(value, separator.toExpr(factor));
  }
  if (!found.feature)
    return std::nullopt;
  if (rest)
    found.function = context.add(found.function, rest);
  classify(found);
  return found;
}

/// Some node that depends on `variable` is not defined on all numbers.
static bool isPartial(FactBase &facts, Expr function, Expr variable) {
  bool result = false;
  auto mayBeBelow = [&](Expr e, double limit) {
    Sign sign = facts.sign(facts.normalOf(e) - Poly::constant(limit));
    return sign != Sign::NonNegative && sign != Sign::Zero;
  };
  forEachNode(function, [&](Expr e) {
    if (e.size() == 0 || !contains(e, variable))
      return;
    bool isRoot = e.is(Kind::Pow) && !e->exponent.isInteger();
    if (e.is(Fn::Log) || e.is(Fn::Log2) || e.is(Fn::Sqrt) || e.is(Fn::Rsqrt) ||
        isRoot)
      result |= mayBeBelow(e.operand(0), 0);
    else if (e.is(Fn::Log1p))
      result |= mayBeBelow(e.operand(0), -1);
    else if (e.is(Fn::PowFn) || e.is(Fn::Rem) || e.is(Fn::FloorDiv))
      result = true;
  });
  return result;
}

/// What is known of the feature holds for the variable.
void FeatureFinder::classify(Feature &found) {
  FactBase local = builder.facts;
  if (local.isNonNegative(found.feature))
    local.addNonNegative(found.variable);
  Poly normal = builder.normaliser.normal(found.feature);
  for (const Extremal &fact : std::vector<Extremal>(builder.facts.extremals()))
    if (fact.normal == normal)
      local.addExtremal(fact.symbol, found.variable, fact.isMax);
  found.shape =
      MonotoneAnalyzer(local, found.variable).classify(found.function);
  found.makesNan = isPartial(local, found.function, found.variable);
}

std::optional<Feature> FeatureFinder::find() {
  std::optional<Feature> any;
  for (Expr candidate : candidates()) {
    std::optional<Feature> found = bySubstitution(candidate);
    if (found && found->shape != Shape::Unknown)
      return found;
    if (found && !any)
      any = found;
  }
  std::optional<Feature> found = bySeparation();
  return found && found->shape != Shape::Unknown ? found : any;
}

} // namespace refold::algebra
