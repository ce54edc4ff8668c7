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

/// Before it, behind it, at it; their negations.
std::vector<ExtremeGuard> guardsAt(Context &context, const Position &place) {
  std::vector<ExtremeGuard> guards;
  for (Pred pred : {Pred::Lt, Pred::Gt, Pred::Eq}) {
    Expr literal = context.cmp(pred, place.index, place.symbol);
    bool isBefore = pred == Pred::Lt, isBehind = pred == Pred::Gt;
    guards.push_back(
        {literal, place.symbol, isBefore, isBefore, true, isBehind});
    guards.push_back({context.logicalNot(literal), place.symbol, !isBefore,
                      !isBefore, true, !isBehind});
  }
  return guards;
}

std::optional<ExtremeGuard> extremeGuard(Context &context, FactBase &facts,
                                         Expr literal) {
  for (const Position &place : facts.positions())
    if (contains(literal, place.symbol))
      for (const ExtremeGuard &guard : guardsAt(context, place))
        if (guard.literal == literal)
          return guard;
  for (const Extremal &fact : facts.extremals())
    if (fact.isAttained && contains(literal, fact.symbol))
      for (const ExtremeGuard &guard : guardsAt(context, fact))
        if (guard.literal == literal)
          return guard;
  return std::nullopt;
}

/// The comparison of factor·(index - position) with 0 as a guard.
static Expr besidePosition(Context &context, const Position &place,
                           double factor, Pred pred) {
  bool isUp = factor > 0;
  auto is = [&](Pred own) {
    return context.cmp(own, place.index, place.symbol);
  };
  Expr above = is(isUp ? Pred::Gt : Pred::Lt),
       below = is(isUp ? Pred::Lt : Pred::Gt);
  switch (pred) {
  case Pred::Gt:
    return above;
  case Pred::Lt:
    return below;
  case Pred::Ge:
    return context.logicalNot(below);
  case Pred::Le:
    return context.logicalNot(above);
  case Pred::Eq:
    return is(Pred::Eq);
  case Pred::Ne:
    return context.logicalNot(is(Pred::Eq));
  }
  return {};
}

std::optional<Expr> atExtreme(Context &context, FactBase &facts, Scope &scope,
                              Expr condition) {
  if (extremeGuard(context, facts, condition))
    return condition;
  if (!condition.is(Kind::Cmp))
    return std::nullopt;
  Poly difference = facts.normalOf(condition.operand(0)) -
                    facts.normalOf(condition.operand(1));
  if (auto distance = facts.distanceFrom(difference))
    if (scope.hasD(distance->first.symbol))
      return besidePosition(context, distance->first, distance->second,
                            condition->pred);
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
                    std::optional<State> all, bool keepsClass) {
  Expr self = context.placeholder(
      Role::Self, 0, accumulatorType(state.reducer, state.values[0].type()));
  Expr kept = state.transport ? state.transport : self;
  Expr none = identity(context, state.reducer, self.type());
  Expr whole = all ? movedWith(state, *all) : none;
  // Elements that do not pass count 0 times what the guard does not cover,
  // which is NaN for an infinite one.
  if (keepsClass)
    none = context.mul(none, whole);
  unsigned number = numberIn(state.pivots, guard.symbol);
  Type type = guard.symbol.type();
  Expr before = context.placeholder(Role::Old, number, type);
  Expr after = context.placeholder(Role::New, number, type);
  Expr moved = guard.isTrueShort ? whole : none;
  if (guard.isPosition)
    moved = context.select(context.cmp(Pred::Gt, after, before), moved,
                           guard.isTrueBehind ? whole : none);
  else if (guard.isTrueShort != guard.isTrueOnNan)
    moved = context.select(context.cmp(Pred::Eq, after, after), moved,
                           guard.isTrueOnNan ? whole : none);
  state.transport =
      context.select(context.cmp(Pred::Eq, before, after), kept, moved);
  state.law = guard.isPosition ? "order-reach" : "reset-transport";
}

/// Law `order-reach`: the position of the best element as a state of its own,
/// by which others can be kept. Rows whose best is no number are not regular.
Expr Builder::firstPosition(const State &best, unsigned pass) {
  std::vector<unsigned> streams;
  for (unsigned i = 0; i < cascade.indices.size(); ++i)
    if (cascade.indices[i].role == IndexRole::Stream)
      streams.push_back(i);
  if (best.reducer != Reducer::TopK || best.rank >= 0 || best.pass != pass ||
      best.values.size() != 2 || streams.size() != 1 ||
      !isFloat(best.values[0].type()))
    return {};
  Expr feature = best.values[0], index = cascade.indices[streams[0]].value;
  Expr payload = best.values[1];
  while (payload.is(Kind::Cast) && !isFloat(payload.type()))
    payload = payload.operand(0);
  if (payload != index)
    return {};
  std::string name = best.results[1].symbol().name;
  Expr extreme =
      state(best.largest ? Reducer::Max : Reducer::Min, feature, name + ".key");
  facts.addExtremal(extreme, feature, best.largest);
  for (const Position &place : facts.positions())
    if (const State *known = program.findState(place.symbol);
        known && known->pivots == std::vector<Expr>{extreme})
      return place.symbol;
  const Extremal *fact = nullptr;
  for (const Extremal &own : facts.extremals())
    if (own.symbol == extreme && own.isAttained)
      fact = &own;
  if (!fact)
    return {};
  ExtremeGuard guard = guardsAt(context, *fact)[0];
  State first;
  first.reducer = Reducer::Min;
  first.values = {context.select(guard.literal, context.cast(Type::I64, index),
                                 identity(context, Reducer::Min, Type::I64))};
  reset(first, guard, std::nullopt);
  Expr symbol = addState(std::move(first), name + ".first");
  facts.addPosition({symbol, index});
  return symbol;
}

Expr Builder::withPositions(Expr term, unsigned pass) {
  ExprMap map;
  for (Expr symbol : symbolsOf(term))
    if (const State *best = program.findState(symbol);
        best && best->results.size() == 2 && best->results[1] == symbol)
      if (Expr first = firstPosition(State(*best), pass))
        map[symbol] = first;
  return map.empty() ? term : substitute(context, term, map);
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
  if (guard->isTrueShort || guard->isTrueOnNan || guard->isTrueBehind)
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
