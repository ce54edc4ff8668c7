// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Builder.h"

#include <algorithm>

namespace refold::algebra {

Builder::Builder(const Cascade &cascade, const Policy &policy, Program &program)
    : context(*cascade.context), cascade(cascade), policy(policy),
      program(program), facts(normaliser) {}

Scope Builder::scopeOf(unsigned pass) const {
  ExprSet varying;
  for (const auto &[symbol, own] : passOf)
    if (own == pass)
      varying.insert(symbol);
  return Scope(cascade.stream(), std::move(varying));
}

std::string Builder::unique(std::string name) {
  unsigned used = names[name]++;
  if (used == 0)
    return name;
  return unique(name + "." + std::to_string(used));
}

unsigned Builder::rulePass(const std::vector<Expr> &values,
                           const std::vector<Expr> &pivots) const {
  unsigned pass = 0;
  for (Expr pivot : pivots)
    if (auto it = passOf.find(pivot); it != passOf.end())
      pass = std::max(pass, it->second);
  for (Expr value : values)
    for (Expr symbol : symbolsOf(value)) {
      if (std::find(pivots.begin(), pivots.end(), symbol) != pivots.end())
        continue;
      if (auto it = passOf.find(symbol); it != passOf.end())
        pass = std::max(pass, it->second + 1);
    }
  return pass;
}

Type accumulatorType(Reducer reducer, Type type) {
  return reducer == Reducer::Sum || reducer == Reducer::Prod ? computeType(type)
                                                             : type;
}

Expr Builder::addState(State state, std::string name) {
  state.pass = rulePass(state.values, state.pivots);
  state.indices = 0;
  for (Expr value : state.values)
    state.indices |= value.indices();
  state.indices &= ~cascade.stream();
  if (state.rank >= 0)
    state.indices |= IndexSet(1) << state.rank;
  for (Expr pivot : state.pivots) {
    std::string own = pivot.symbol().name;
    if (own.ends_with(".pivot"))
      own.resize(own.size() - 6);
    state.gauge += (state.gauge.empty() ? "" : ", ") + own;
  }
  for (size_t i = 0; i < state.values.size(); ++i) {
    Type type = accumulatorType(state.reducer, state.values[i].type());
    std::string own = i == 0 ? name : name + "." + std::to_string(i - 1);
    Expr symbol = context.symbol(unique(own), Role::State, type, state.indices,
                                 unsigned(program.definitions.size()));
    passOf[symbol] = state.pass;
    if (state.reducer != Reducer::TopK && isFloat(type) &&
        facts.isNonNegative(state.values[i])) {
      facts.addNonNegative(symbol);
      if (state.reducer == Reducer::Sum && state.pivots.empty())
        facts.addSumOfNonNegatives(symbol);
    }
    state.results.push_back(symbol);
  }
  Expr symbol = state.symbol();
  program.definitions.push_back(std::move(state));
  return symbol;
}

Expr Builder::addLet(Expr value, std::string name) {
  unsigned pass = 0;
  for (Expr symbol : symbolsOf(value))
    if (auto it = passOf.find(symbol); it != passOf.end())
      pass = std::max(pass, it->second);
  Expr symbol =
      context.symbol(unique(std::move(name)), Role::Let, value.type(),
                     value.indices(), unsigned(program.definitions.size()));
  passOf[symbol] = pass;
  program.definitions.push_back(Let{symbol, value});
  return symbol;
}

Expr Builder::state(Reducer reducer, Expr value, std::string name) {
  Expr &entry = table[{reducer, value, 0}];
  if (entry)
    return entry;
  State state;
  state.reducer = reducer;
  state.values = {value};
  return entry = addState(std::move(state), std::move(name));
}

/// In a later pass the count needs a pivot, or the rule of passes would put it
/// into the first; `hold` is a state of that pass.
/// Law `constant-under-move`: what no pivot enters is moved by the identity
/// map.
Expr Builder::count(unsigned pass, Expr hold) {
  Expr one = context.real(1, computeType(hold.type()));
  Expr &entry = table[{Reducer::Sum, one, pass}];
  if (entry)
    return entry;
  State state;
  state.values = {one};
  if (pass > 0) {
    state.pivots = {hold};
    state.transport = context.placeholder(Role::Self, 0, one.type());
    state.law = "constant-under-move";
  }
  entry = addState(std::move(state), "n");
  facts.addNonNegative(entry);
  sums[entry] = SumInfo{};
  return entry;
}

bool Builder::isPivotable(Expr atom, Scope &scope) const {
  if (!scope.hasD(atom))
    return false;
  switch (atom.kind()) {
  case Kind::Sym:
    return isFloat(atom.type()) &&
           std::any_of(facts.extremals().begin(), facts.extremals().end(),
                       [&](const Extremal &f) {
                         return f.isAttained && f.symbol == atom;
                       });
  case Kind::Max:
  case Kind::Min:
  case Kind::MaxNum:
  case Kind::MinNum:
    for (unsigned i = 0; i < 2; ++i)
      if (scope.hasD(atom.operand(i)) && !isPivotable(atom.operand(i), scope))
        return false;
    return true;
  default:
    return false;
  }
}

/// A pivot is finite also where it is the identity of its reducer: clamping
/// that value alone leaves every row with one finite element as it is.
/// Law `identity-clamp`: where m is -inf every e^(u - p) is 0 for each finite
/// p.
Expr Builder::guarded(Expr atom) {
  Expr &entry = guards[atom];
  if (entry)
    return entry;
  bool hasMax = false, hasMin = false;
  std::string name;
  for (Expr symbol : symbolsOf(atom))
    for (const Extremal &fact : facts.extremals())
      if (fact.isAttained && fact.symbol == symbol) {
        (fact.isMax ? hasMax : hasMin) = true;
        name = symbol.symbol().name;
      }
  Type type = computeType(atom.type());
  Expr value = atom;
  if (hasMax)
    value = context.maxNum(value, context.real(-largestFinite(type), type));
  if (hasMin)
    value = context.minNum(value, context.real(largestFinite(type), type));
  return entry = addLet(value, name + ".pivot");
}

} // namespace refold::algebra
