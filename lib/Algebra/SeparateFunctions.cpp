// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Separation of the nodes that are not sums, products or powers.
#include "Separate.h"

#include "refold/Algebra/Program.h"

namespace refold::algebra {

std::optional<std::vector<Term>> Separator::function(Expr e) {
  Expr operand = e.operand(0);
  switch (e->fn) {
  case Fn::Expm1:
    return visit(context.sub(context.exp(operand), context.real(1, type)));
  case Fn::Abs:
    return absolute(e);
  case Fn::Relu:
    return extremum(context.max(operand, context.real(0, type)));
  case Fn::Sin:
  case Fn::Cos:
    return circular(e);
  case Fn::Sinh:
  case Fn::Cosh: {
    // Two exponentials, each with a pivot that bounds it.
    Expr up = context.exp(operand), down = context.exp(context.neg(operand));
    Expr both = e.is(Fn::Sinh) ? context.sub(up, down) : context.add(up, down);
    return visit(context.mul(context.real(0.5, type), both));
  }
  case Fn::Log1p:
    return fail(reason::powOfSum, e,
                "the logarithm of a sum of elements and running values");
  case Fn::Sign:
    return fail(reason::kink, e,
                "the jump of sign moves with the running value");
  case Fn::Floor:
  case Fn::Ceil:
  case Fn::Round:
    return rounded(e);
  default:
    return fail(reason::nonRepresentative, e,
                std::string(spelling(e->fn)) +
                    " of a running value has infinite separation rank: it is "
                    "no sum of finitely many products");
  }
}

/// `e` by the cases of the first choice among its summands and factors that is
/// not mixed: |p - where(l, 1, 0)| has a known sign in each.
std::optional<Separator::Branches> Separator::choiceIn(Expr e) {
  std::vector<Expr> pending{e};
  ExprSet seen;
  while (!pending.empty()) {
    Expr own = pending.back();
    pending.pop_back();
    if (!seen.insert(own).second)
      continue;
    bool isFlag = own.is(Kind::Cast) && own.operand(0).type() == Type::Bool;
    if (own.is(Kind::Select) || isFlag) {
      Expr condition = own.operand(0);
      if (scope.isMixed(condition) || condition.is(Kind::Const))
        continue;
      Expr yes = isFlag ? context.real(1, own.type()) : own.operand(1);
      Expr no = isFlag ? context.real(0, own.type()) : own.operand(2);
      return Branches{condition, substitute(context, e, {{own, yes}}),
                      substitute(context, e, {{own, no}})};
    }
    bool isLinear = own.is(Kind::Add) || own.is(Kind::Sub) ||
                    own.is(Kind::Mul) || own.is(Kind::Neg) || own.is(Kind::Div);
    for (unsigned i = isLinear ? (own.is(Kind::Div) ? 1 : own.size()) : 0;
         i-- > 0;)
      pending.push_back(own.operand(i));
  }
  return std::nullopt;
}

/// |e| of e = factor·(index - position): 0 at the position itself, where sums
/// of both sides would leave a difference of large parts.
std::optional<std::vector<Term>> Separator::besides(const Position &place,
                                                    double factor, Expr e) {
  auto on = [&](Pred pred, Expr value) {
    return context.select(context.cmp(pred, place.index, place.symbol), value,
                          context.real(0, e.type()));
  };
  Expr minus = context.neg(e);
  return visit(context.add(on(Pred::Gt, factor > 0 ? e : minus),
                           on(Pred::Lt, factor > 0 ? minus : e)));
}

std::optional<std::vector<Term>> Separator::absolute(Expr e) {
  Expr operand = e.operand(0);
  switch (facts.sign(operand)) {
  case Sign::Zero:
  case Sign::NonNegative:
    return visit(operand);
  case Sign::NonPositive:
    return visit(context.neg(operand));
  case Sign::Unknown:
    break;
  }
  if (auto distance = facts.distanceFrom(normaliser.normal(operand)))
    return besides(distance->first, distance->second, operand);
  if (std::optional<Branches> branches = choiceIn(operand))
    return chosen(branches->condition, context.fn(Fn::Abs, branches->ifTrue),
                  context.fn(Fn::Abs, branches->ifFalse));
  std::optional<Terms> terms = visit(operand);
  if (!terms)
    return std::nullopt;
  if (terms->size() != 1 || !(*terms)[0].translates.empty() ||
      !(*terms)[0].casts.empty())
    return fail(reason::kink, e,
                "the kink of the absolute value moves with the running value, "
                "and nothing known fixes the sign of its argument");
  Term term = (*terms)[0];
  auto magnitude = [&](const Monomial &m) {
    if (m.isOne() || facts.isNonPositive(Poly::monomial(m, -1)))
      return m;
    return Monomial(context.fn(Fn::Abs, algebra::toExpr(context, m, 1, type)));
  };
  term.coefficient =
      term.coefficient < 0 ? -term.coefficient : term.coefficient;
  term.g = magnitude(term.g);
  term.outer = magnitude(term.outer);
  term.h = magnitude(term.h);
  term.inner = magnitude(term.inner);
  return Terms{term};
}

/// f32(n - a) with a position a as f32(n) - f32(a), which is the same up to
/// 2^24 elements; |n - a| likewise.
Expr Separator::castDistance(Expr e) {
  Expr operand = e.operand(0);
  bool isAbsolute = operand.is(Fn::Abs);
  if (isAbsolute)
    operand = operand.operand(0);
  auto distance = isFloat(operand.type())
                      ? std::nullopt
                      : facts.distanceFrom(normaliser.normal(operand));
  if (!distance)
    return {};
  auto [place, factor] = *distance;
  Expr value = context.sub(context.cast(e.type(), place.index),
                           context.cast(e.type(), place.symbol));
  if (factor != 1)
    value = context.mul(context.real(factor, e.type()), value);
  return isAbsolute ? context.fn(Fn::Abs, value) : value;
}

std::optional<std::vector<Term>> Separator::extremum(Expr e) {
  if (!scope.isMixed(e))
    return atom(e);
  bool isMax = e.is(Kind::Max) || e.is(Kind::MaxNum);
  Expr a = e.operand(0), b = e.operand(1);
  Sign sign = facts.sign(normaliser.normal(a) - normaliser.normal(b));
  if (sign == Sign::Zero || sign == Sign::NonNegative)
    return visit(isMax ? a : b);
  if (sign == Sign::NonPositive)
    return visit(isMax ? b : a);
  RunningCast limited;
  if (castPolicy && withoutLimits(e, limited) &&
      limited.floatCasts + limited.otherCasts > 0)
    return rounded(e);
  for (unsigned i : {0, 1})
    if (std::optional<Branches> branches = choiceIn(e.operand(i))) {
      auto both = [&](Expr branch) {
        return substitute(context, e, {{e.operand(i), branch}});
      };
      return chosen(branches->condition, both(branches->ifTrue),
                    both(branches->ifFalse));
    }
  return fail(reason::kink, e,
              "the kink between the two moves with the running value, and "
              "nothing known says which is larger");
}

std::optional<std::vector<Term>> Separator::choice(Expr e) {
  return chosen(e.operand(0), e.operand(1), e.operand(2));
}

std::optional<std::vector<Term>> Separator::chosen(Expr condition, Expr ifTrue,
                                                   Expr ifFalse) {
  if (++steps > kMaxSteps)
    return fail(reason::rankBudget, condition, "too many guards");
  if (condition.is(Kind::Const))
    return visit(condition->integer ? ifTrue : ifFalse);
  std::optional<Expr> isExtreme =
      scope.isMixed(condition) ? atExtreme(context, facts, scope, condition)
                               : std::nullopt;
  if (isExtreme) {
    condition = *isExtreme;
  } else if (scope.isMixed(condition)) {
    switch (condition.kind()) {
    case Kind::Not:
      return chosen(condition.operand(0), ifFalse, ifTrue);
    case Kind::And:
      return chosen(condition.operand(0),
                    context.select(condition.operand(1), ifTrue, ifFalse),
                    ifFalse);
    case Kind::Or:
      return chosen(condition.operand(0), ifTrue,
                    context.select(condition.operand(1), ifTrue, ifFalse));
    default:
      if (std::optional<Expr> known = settled(condition))
        return chosen(*known, ifTrue, ifFalse);
      return std::nullopt;
    }
  }
  Terms result;
  for (bool isTrue : {true, false}) {
    std::optional<Terms> terms = visit(isTrue ? ifTrue : ifFalse);
    if (!terms)
      return std::nullopt;
    Term guard;
    (scope.hasX(condition) ? guard.xGuards : guard.dGuards)
        .push_back(isTrue ? condition : context.logicalNot(condition));
    for (Term &term : *terms) { // the guard covers the whole branch
      if (guard.xGuards.empty())
        continue;
      term.inner = term.inner * term.h;
      term.h = {};
      if (term.xGuards.empty()) {
        term.g = term.g * term.outer;
        term.outer = {};
        term.xGuards = guard.xGuards;
      }
    }
    terms = multiply({guard}, *terms, condition);
    if (!terms)
      return std::nullopt;
    result.insert(result.end(), terms->begin(), terms->end());
  }
  return combined(std::move(result));
}

/// A mixed predicate whose value is known for every element of every row.
std::optional<Expr> Separator::settled(Expr condition) {
  if (!condition.is(Kind::Cmp)) {
    fail(reason::guardMixed, condition,
         "the guard looks at elements and running values together, and is "
         "neither a property of the element nor of the row");
    return std::nullopt;
  }
  Sign sign = facts.sign(normaliser.normal(condition.operand(0)) -
                         normaliser.normal(condition.operand(1)));
  bool isUp = sign == Sign::NonNegative || sign == Sign::Zero;
  bool isDown = sign == Sign::NonPositive || sign == Sign::Zero;
  switch (condition->pred) {
  case Pred::Ge:
    if (isUp)
      return context.boolean(true);
    break;
  case Pred::Lt:
    if (isUp)
      return context.boolean(false);
    break;
  case Pred::Le:
    if (isDown)
      return context.boolean(true);
    break;
  case Pred::Gt:
    if (isDown)
      return context.boolean(false);
    break;
  default:
    break;
  }
  fail(reason::mixedCompare, condition,
       "which elements it selects changes with the running value, and a "
       "bounded state cannot bring back those selected earlier");
  return std::nullopt;
}

/// Sine and cosine of a sum, each part by itself where there are few: beside a
/// large part, which δ takes back, a small one would lose its digits.
std::pair<Expr, Expr> Separator::circularOf(const LinearSum &x) {
  constexpr size_t kMostParts = 3;
  if (x.all().size() > kMostParts) {
    Expr whole = x.toExpr(context, type);
    return {context.fn(Fn::Sin, whole), context.fn(Fn::Cos, whole)};
  }
  Expr sine, cosine;
  for (const LinearSum::Piece &piece : x.all()) {
    Expr part =
        multiplied(context, piece.value, piece.scale, piece.coefficient, type);
    Expr s = context.fn(Fn::Sin, part), c = context.fn(Fn::Cos, part);
    if (!sine) {
      sine = s;
      cosine = c;
      continue;
    }
    Expr next = context.add(context.mul(sine, c), context.mul(cosine, s));
    cosine = context.sub(context.mul(cosine, c), context.mul(sine, s));
    sine = next;
  }
  if (!sine)
    return {context.real(0, type), context.real(1, type)};
  return {sine, cosine};
}

/// sin(x + δ) = sin x · cos δ + cos x · sin δ, and cos(x + δ) likewise.
std::optional<std::vector<Term>> Separator::circular(Expr e) {
  std::optional<Split> parts = split(e.operand(0));
  if (!parts)
    return std::nullopt;
  auto [sine, cosine] = circularOf(parts->x);
  Expr d = algebra::toExpr(context, parts->delta, type);
  auto product = [&](Expr ofX, Fn ofD, double coefficient) {
    Term term;
    term.coefficient = coefficient;
    term.g.multiply(ofX, rational(1));
    term.h.multiply(context.fn(ofD, d), rational(1));
    return term;
  };
  if (e.is(Fn::Sin))
    return Terms{product(sine, Fn::Cos, 1), product(cosine, Fn::Sin, 1)};
  return Terms{product(cosine, Fn::Cos, 1), product(sine, Fn::Sin, -1)};
}

/// A running factor without the inner index goes before the contraction.
std::optional<std::vector<Term>> Separator::contraction(Expr e) {
  std::optional<Terms> terms = visit(e.operand(0));
  if (!terms)
    return std::nullopt;
  IndexSet inner = e->contracted;
  Terms result;
  for (const Term &mixed : *terms) {
    std::optional<Terms> plain = withoutTranslates(mixed, e);
    if (!plain)
      return std::nullopt;
    for (const Term &term : *plain) {
      if (!term.casts.empty())
        return fail(reason::mixedCast, e,
                    "a rounded running value inside a contraction");
      Term outside, inside = term;
      outside.coefficient = term.coefficient;
      // Outside of the contraction no guard on elements is left.
      outside.h = term.h * term.inner;
      outside.ed = term.ed;
      outside.dGuards = term.dGuards;
      inside.coefficient = 1;
      inside.h = {};
      inside.inner = {};
      inside.ed = {};
      inside.dGuards.clear();
      if (toExpr(outside).indices() & inner)
        return fail(reason::rankBudget, e,
                    "a running value inside the contraction: the rank is the "
                    "extent of the contracted index");
      if ((toExpr(inside).indices() & inner) != inner)
        return fail(reason::rankBudget, e,
                    "a part without the contracted index beside one with it");
      outside.g.multiply(context.contract(inner, toExpr(inside)), rational(1));
      result.push_back(std::move(outside));
    }
  }
  return combined(std::move(result));
}

} // namespace refold::algebra
