// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Program.h"

#include <algorithm>

namespace refold::algebra {

const State *Program::findState(Expr symbol) const {
  for (const Definition &definition : definitions)
    if (const State *state = std::get_if<State>(&definition))
      if (std::find(state->results.begin(), state->results.end(), symbol) !=
          state->results.end())
        return state;
  return nullptr;
}

const Let *Program::findLet(Expr symbol) const {
  for (const Definition &definition : definitions)
    if (const Let *let = std::get_if<Let>(&definition))
      if (let->symbol == symbol)
        return let;
  return nullptr;
}

std::vector<unsigned> passesOf(const std::vector<Definition> &definitions) {
  // Of a state: the pass that computes it. Of a let: the pass after which it is
  // known, and whether it reads any state at all.
  std::unordered_map<Expr, unsigned, ExprHash> pass;
  auto lastPass = [&](Expr e, auto excluded) {
    int last = -1;
    for (Expr symbol : symbolsOf(e))
      if (auto it = pass.find(symbol); it != pass.end() && !excluded(symbol))
        last = std::max(last, int(it->second));
    return last;
  };
  std::vector<unsigned> result;
  for (const Definition &definition : definitions) {
    if (const Let *let = std::get_if<Let>(&definition)) {
      int last = lastPass(let->value, [](Expr) { return false; });
      if (last >= 0)
        pass[let->symbol] = unsigned(last);
      result.push_back(unsigned(std::max(last, 0)));
      continue;
    }
    const State &state = std::get<State>(definition);
    auto isPivot = [&](Expr symbol) {
      return std::find(state.pivots.begin(), state.pivots.end(), symbol) !=
             state.pivots.end();
    };
    unsigned own = 0;
    for (Expr pivot : state.pivots)
      if (auto it = pass.find(pivot); it != pass.end())
        own = std::max(own, it->second);
    for (Expr value : state.values)
      own = std::max(own, unsigned(lastPass(value, isPivot) + 1));
    for (Expr symbol : state.results)
      pass[symbol] = own;
    result.push_back(own);
  }
  return result;
}

bool roundsAt(const State &state, Expr pivot) {
  bool result = false;
  for (Expr value : state.values)
    forEachNode(value, [&](Expr e) {
      bool isRounding = e.is(Kind::Cast) || e.is(Fn::Round) ||
                        e.is(Fn::Floor) || e.is(Fn::Ceil);
      result |= isRounding && contains(e, pivot);
    });
  return result;
}

} // namespace refold::algebra
