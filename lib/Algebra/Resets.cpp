// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Guards that ask whether an element is at the extreme of its row, x == max x:
// ties, payloads of the maximum. Their states are kept while the extreme stays
// and start anew when it moves, since then no earlier element is at it.
#include "Builder.h"

#include <algorithm>

namespace refold::algebra {

/// u == m; its negation; u is short of m (false where m is NaN); its negation.
std::vector<ExtremeGuard> guardsAt(Context &context, const Extremal &fact) {
  Expr at = context.cmp(Pred::Eq, fact.feature, fact.symbol);
  Expr off = context.logicalNot(at);
  Expr isNumber = context.cmp(Pred::Eq, fact.symbol, fact.symbol);
  Expr isShort = context.logicalAnd(off, isNumber);
  return {{at, fact.symbol, false, false},
          {off, fact.symbol, true, true},
          {isShort, fact.symbol, true, false},
          {context.logicalNot(isShort), fact.symbol, false, true}};
}

std::optional<ExtremeGuard> extremeGuard(Context &context, FactBase &facts,
                                         Expr literal) {
  for (const Extremal &fact : facts.extremals())
    if (fact.isAttained && contains(literal, fact.symbol))
      for (const ExtremeGuard &guard : guardsAt(context, fact))
        if (guard.literal == literal)
          return guard;
  return std::nullopt;
}

std::optional<Expr> atExtreme(Context &context, FactBase &facts, Scope &scope,
                              Expr condition) {
  if (extremeGuard(context, facts, condition))
    return condition;
  if (!condition.is(Kind::Cmp))
    return std::nullopt;
  Poly difference = facts.normalOf(condition.operand(0)) -
                    facts.normalOf(condition.operand(1));
  for (const Extremal &fact : std::vector<Extremal>(facts.extremals())) {
    if (!fact.isAttained || !scope.hasD(fact.symbol))
      continue;
    Poly bound = fact.normal - Poly::atom(fact.symbol);
    if (bound.isZero())
      continue;
    const auto &leading = *bound.all().begin();
    double factor = difference.coefficientOf(leading.first) / leading.second;
    if (factor == 0 || !(difference == bound.scaled(factor)))
      continue;
    // Of u - m: never above 0 for a maximum.
    bool isFlipped = (factor < 0) == fact.isMax;
    std::vector<ExtremeGuard> guards = guardsAt(context, fact);
    switch (condition->pred) {
    case Pred::Eq:
      return guards[0].literal;
    case Pred::Ne:
      return guards[1].literal;
    case Pred::Ge:
      return isFlipped ? std::nullopt : std::optional(guards[0].literal);
    case Pred::Lt:
      return isFlipped ? std::nullopt : std::optional(guards[2].literal);
    case Pred::Le:
      return isFlipped ? std::optional(guards[0].literal) : std::nullopt;
    case Pred::Gt:
      return isFlipped ? std::optional(guards[2].literal) : std::nullopt;
    }
  }
  return std::nullopt;
}

/// The number under which `state` knows `symbol`, added if it does not.
static unsigned numberIn(std::vector<Expr> &list, Expr symbol) {
  auto at = std::find(list.begin(), list.end(), symbol);
  if (at == list.end())
    at = list.insert(list.end(), symbol);
  return unsigned(at - list.begin());
}

/// What the transport of `other` makes of it, read through `state`.
Expr Builder::movedWith(State &state, const State &other) {
  auto with = [&](Expr symbol) {
    return context.placeholder(Role::With, numberIn(state.with, symbol),
                               symbol.type());
  };
  Expr self = with(other.symbol());
  if (!other.transport)
    return self;
  ExprMap map;
  for (Expr e : symbolsOf(other.transport)) {
    const Symbol &symbol = e.symbol();
    if (symbol.role == Role::Self)
      map[e] = self;
    else if (symbol.role == Role::With)
      map[e] = with(other.with[symbol.ordinal]);
    else if (symbol.role == Role::Old || symbol.role == Role::New)
      map[e] = context.placeholder(
          symbol.role, numberIn(state.pivots, other.pivots[symbol.ordinal]),
          e.type());
  }
  return substitute(context, other.transport, map);
}

/// Law `reset-transport`: Σ [u = new]·g is Σ [u = old]·g if new = old, else 0.
void Builder::reset(State &state, const ExtremeGuard &guard,
                    std::optional<State> all) {
  Expr self = context.placeholder(
      Role::Self, 0, accumulatorType(state.reducer, state.values[0].type()));
  Expr kept = state.transport ? state.transport : self;
  Expr none = identity(context, state.reducer, self.type());
  Expr whole = all ? movedWith(state, *all) : none;
  unsigned number = numberIn(state.pivots, guard.symbol);
  Type type = guard.symbol.type();
  Expr before = context.placeholder(Role::Old, number, type);
  Expr after = context.placeholder(Role::New, number, type);
  Expr moved = guard.isTrueShort ? whole : none;
  if (guard.isTrueShort != guard.isTrueOnNan)
    moved = context.select(context.cmp(Pred::Eq, after, after), moved,
                           guard.isTrueOnNan ? whole : none);
  state.transport =
      context.select(context.cmp(Pred::Eq, before, after), kept, moved);
  state.law = "reset-transport";
}

/// where(condition, payload, identity of the reducer), however it is written.
static std::optional<std::pair<Expr, Expr>>
guardedPayload(Context &context, Reducer reducer, Expr term) {
  Expr none = identity(context, reducer, term.type());
  auto isNone = [&](Expr e) {
    return e.constant() && e.constant() == none.constant();
  };
  if (term.is(Kind::Select)) {
    if (isNone(term.operand(2)))
      return std::pair(term.operand(0), term.operand(1));
    if (isNone(term.operand(1)))
      return std::pair(context.logicalNot(term.operand(0)), term.operand(2));
  }
  if (reducer == Reducer::Any && term.is(Kind::And))
    return std::pair(term.operand(0), term.operand(1));
  if (reducer == Reducer::All && term.is(Kind::Or))
    return std::pair(context.logicalNot(term.operand(0)), term.operand(1));
  return std::nullopt;
}

/// A maximum, a conjunction, ... over the elements at the extreme of another
/// feature.
bool Builder::deriveAtExtreme(unsigned number, Expr term, Scope &scope) {
  const Stage &stage = cascade.stages[number];
  auto parts = guardedPayload(context, stage.reducer, term);
  if (!parts || scope.hasD(parts->second))
    return false;
  auto [condition, payload] = *parts;
  bool isNegated = condition.is(Kind::Not);
  std::optional<Expr> literal = atExtreme(
      context, facts, scope, isNegated ? condition.operand(0) : condition);
  if (!literal)
    return false;
  std::optional<ExtremeGuard> guard = extremeGuard(
      context, facts, isNegated ? context.logicalNot(*literal) : *literal);
  if (!guard)
    return false;
  std::optional<State> all;
  if (guard->isTrueShort || guard->isTrueOnNan)
    all =
        *program.findState(state(stage.reducer, payload, stage.name + ".all"));
  State made;
  made.reducer = stage.reducer;
  made.values = {context.select(guard->literal, payload,
                                identity(context, stage.reducer, term.type()))};
  reset(made, *guard, all);
  rawReadout[stage.results[0]] = addState(std::move(made), stage.name);
  return true;
}

} // namespace refold::algebra
