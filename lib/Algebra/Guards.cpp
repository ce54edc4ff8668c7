// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Guards.h"

#include <cmath>

namespace refold::algebra {

namespace {
/// p = factor·e/s with e the term of stage s.
struct Share {
  Expr sum;  ///< the stage's symbol
  Expr term; ///< e
};

class Resolver {
public:
  Resolver(Builder &builder, const ExprMap &map)
      : builder(builder), context(builder.context), map(map) {}
  std::optional<Expr> resolve(Expr condition);

private:
  std::optional<Share> shareIn(Expr p);
  std::optional<Expr> isVanishing(Expr p);
  Expr exponentialIn(Expr term);
  bool isBounded(Expr term);
  Expr inPass(Expr e) { return substitute(context, e, map); }

  Builder &builder;
  Context &context;
  const ExprMap &map;
};
} // namespace

/// The exponential of a term c·e^u or where(row, 0, c·e^u), 0 < c <= 1.
Expr Resolver::exponentialIn(Expr term) {
  if (term.is(Kind::Select) && term.operand(1).isConstant(0))
    term = term.operand(2);
  auto isScale = [](Expr e) {
    std::optional<double> value = e.constant();
    return value && *value > 0 && *value <= 1;
  };
  while (term.is(Kind::Mul) &&
         (isScale(term.operand(0)) || isScale(term.operand(1))))
    term = term.operand(isScale(term.operand(0)) ? 1 : 0);
  return term.is(Fn::Exp) || term.is(Fn::Exp2) ? term : Expr();
}

bool Resolver::isBounded(Expr term) {
  Expr exponential = exponentialIn(term);
  return exponential && builder.facts.isNonPositive(builder.normaliser.normal(
                            inPass(exponential.operand(0))));
}

/// Recognised by normal forms: p·s is a positive multiple of the term of s.
std::optional<Share> Resolver::shareIn(Expr p) {
  const Poly normal = builder.normaliser.normal(p);
  if (!normal.single())
    return std::nullopt;
  for (const auto &[atom, exponent] : normal.single()->first.factors()) {
    if (!(exponent == rational(-1)) || !atom.isSym(Role::Stage))
      continue;
    const Stage &stage = builder.cascade.stageOf(atom);
    if (stage.reducer != Reducer::Sum)
      continue;
    Poly numerator = normal * Poly::atom(atom);
    Poly term = builder.normaliser.normal(stage.term);
    if (!term.single() || !numerator.single())
      continue;
    double factor = numerator.single()->second / term.single()->second;
    if (factor > 0 && numerator == term.scaled(factor))
      return Share{atom, stage.term};
  }
  return std::nullopt;
}

/// u == -inf for p = e^(c·(u - m))·h with c > 0 and h > 0: underflow apart,
/// that is where p is 0.
std::optional<Expr> Resolver::isVanishing(Expr p) {
  const Poly normal = builder.normaliser.normal(p);
  if (!normal.single() || normal.single()->second <= 0)
    return std::nullopt;
  Expr exponential;
  for (const auto &[atom, exponent] : normal.single()->first.factors()) {
    if (exponent.num > 0 && exponentialIn(atom) && !exponential)
      exponential = exponentialIn(atom);
    else if (exponent.num > 0 || !builder.facts.isNonNegative(inPass(atom)))
      return std::nullopt;
  }
  if (!exponential)
    return std::nullopt;
  Poly argument = builder.normaliser.normal(inPass(exponential.operand(0)));
  for (const Extremal &fact : builder.facts.extremals()) {
    if (!fact.isAttained || !fact.isMax)
      continue;
    Poly bound = fact.normal - Poly::atom(fact.symbol);
    const auto &leading = *bound.all().begin();
    double factor = argument.coefficientOf(leading.first) / leading.second;
    if (factor > 0 && argument == bound.scaled(factor))
      return context.cmp(Pred::Eq, fact.feature,
                         context.real(-std::numeric_limits<double>::infinity(),
                                      fact.feature.type()));
  }
  return std::nullopt;
}

std::optional<Expr> Resolver::resolve(Expr condition) {
  bool isSelfTest =
      condition.is(Kind::Cmp) && condition.operand(0) == condition.operand(1);
  if (condition.is(Fn::IsNan) ||
      (isSelfTest &&
       (condition->pred == Pred::Ne || condition->pred == Pred::Eq))) {
    std::optional<Share> share = shareIn(condition.operand(0));
    if (!share || !isBounded(share->term))
      return std::nullopt;
    Expr isLive =
        context.cmp(Pred::Gt, share->sum, context.real(0, share->sum.type()));
    bool isNegated = isSelfTest && condition->pred == Pred::Eq;
    return isNegated ? isLive : context.logicalNot(isLive);
  }
  if (!condition.is(Kind::Cmp) || !condition.operand(1).isConstant(0))
    return std::nullopt;
  std::optional<Expr> vanishes = isVanishing(condition.operand(0));
  if (!vanishes)
    return std::nullopt;
  switch (condition->pred) {
  case Pred::Eq:
  case Pred::Le:
    return vanishes;
  case Pred::Ne:
    return context.logicalNot(*vanishes);
  case Pred::Gt: { // false on NaN as well
    std::optional<Share> share = shareIn(condition.operand(0));
    if (!share || !isBounded(share->term))
      return std::nullopt;
    return context.logicalAnd(
        context.logicalNot(*vanishes),
        context.cmp(Pred::Gt, share->sum, context.real(0, share->sum.type())));
  }
  default:
    return std::nullopt;
  }
}

/// Law `guard-row-predicate`: with s = Σ e and 0 <= e <= 1, e/s is NaN exactly
/// if s is not > 0.
Expr resolveGuards(Builder &builder, Expr term, const ExprMap &map) {
  Resolver resolver(builder, map);
  IndexSet stream = builder.cascade.stream();
  ExprMap replaced;
  forEachNode(term, [&](Expr e) {
    bool isPredicate = e.is(Kind::Cmp) || e.is(Fn::IsNan);
    if (!isPredicate || !(e.indices() & stream) || !e.uses(Role::Stage))
      return;
    if (std::optional<Expr> pure = resolver.resolve(e))
      replaced[e] = *pure;
  });
  return replaced.empty() ? term : substitute(builder.context, term, replaced);
}

} // namespace refold::algebra
