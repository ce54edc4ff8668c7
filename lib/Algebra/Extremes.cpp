// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Max, min, any, all and top-k stages.
#include "Builder.h"

namespace refold::algebra {

bool Builder::deriveExtremum(unsigned number, Expr term, unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Expr result = stage.results[0];
  Scope scope = scopeOf(pass);
  if (!scope.hasD(term)) {
    Expr made = state(stage.reducer, term, stage.name);
    rawReadout[result] = made;
    bool isMax =
        stage.reducer == Reducer::Max || stage.reducer == Reducer::MaxNum;
    bool isMin =
        stage.reducer == Reducer::Min || stage.reducer == Reducer::MinNum;
    if (isMax || isMin)
      facts.addExtremal(made, term, isMax);
    return true;
  }
  reject = {reason::notMonotone, term, "not monotone in one element feature"};
  return false;
}

bool Builder::deriveTopK(unsigned number, Expr term, unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Scope scope = scopeOf(pass);
  if (!scope.hasD(term)) {
    State state;
    state.reducer = Reducer::TopK;
    state.k = stage.k;
    state.rank = stage.rank;
    state.values.push_back(stage.largest ? term : context.neg(term));
    for (Expr payload : stage.payloads)
      state.values.push_back(payload);
    addState(std::move(state), stage.name);
    const State &made = std::get<State>(program.definitions.back());
    for (size_t i = 0; i < made.results.size(); ++i)
      rawReadout[stage.results[i]] = i == 0 && !stage.largest
                                         ? context.neg(made.results[i])
                                         : made.results[i];
    return true;
  }
  reject = {reason::notMonotone, term, "not monotone in one element feature"};
  return false;
}

} // namespace refold::algebra
