// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Derive.h"

#include "Edges.h"
#include "Guards.h"

#include <algorithm>

namespace refold::algebra {

namespace {
class Driver {
public:
  Driver(const Cascade &cascade, const Policy &policy, Program &program)
      : cascade(cascade), program(program), policy(policy),
        builder(cascade, policy, program), edges(cascade) {}
  void run();

private:
  void stage(unsigned number);
  bool attempt(unsigned number, Expr term, unsigned pass);
  Expr inPass(Expr term, unsigned pass);
  Expr unguardedPivots(Expr term);
  void followEdges();
  Expr written(const Extremal &fact) const;
  void finish();

  const Cascade &cascade;
  Program &program;
  const Policy &policy;
  Builder builder;
  Edges edges;
  size_t extremals = 0; ///< facts that `edges` knows
  std::vector<unsigned> depth;
};
} // namespace

/// The term over states: results that run in this pass as they are stored,
/// those of earlier passes as the user sees them.
Expr Driver::inPass(Expr term, unsigned pass) {
  ExprMap map;
  for (Expr symbol : symbolsOf(term))
    if (symbol.isSym(Role::Stage))
      map[symbol] = program.stagePass[symbol.symbol().ordinal] == pass
                        ? builder.rawReadout.at(symbol)
                        : builder.finalReadout.at(symbol);
  term = unguardedPivots(term);
  term = resolveGuards(builder, term, map);
  return substitute(*program.context, term, map);
}

/// where(m == -inf, c, m) is m on every row that is not folded.
Expr Driver::unguardedPivots(Expr term) {
  ExprMap replaced;
  forEachNode(term, [&](Expr e) {
    if (!e.is(Kind::Select) || !e.operand(2).isSym(Role::Stage) ||
        !e.operand(0).is(Kind::Cmp) || e.operand(0)->pred != Pred::Eq ||
        e.operand(0).operand(0) != e.operand(2))
      return;
    Expr state = builder.rawReadout.at(e.operand(2));
    Expr limit = e.operand(0).operand(1);
    bool isIdentity = limit.isConstant(
        std::numeric_limits<double>::infinity() *
        (cascade.stageOf(e.operand(2)).reducer == Reducer::Min ? 1 : -1));
    if (isIdentity && edges.termOn(state, term))
      replaced[e] = e.operand(2);
  });
  return replaced.empty() ? term : substitute(*program.context, term, replaced);
}

bool Driver::attempt(unsigned number, Expr term, unsigned pass) {
  switch (cascade.stages[number].reducer) {
  case Reducer::Sum:
    return builder.deriveSum(number, term, pass);
  case Reducer::Prod:
    return builder.deriveProduct(number, term, pass);
  case Reducer::TopK:
    return builder.deriveTopK(number, term, pass);
  default:
    return builder.deriveExtremum(number, term, pass);
  }
}

void Driver::stage(unsigned number) {
  const Stage &stage = cascade.stages[number];
  unsigned pass = 0, below = 0;
  std::vector<Expr> reads = symbolsOf(stage.term);
  for (Expr payload : stage.payloads)
    for (Expr symbol : symbolsOf(payload))
      reads.push_back(symbol);
  for (Expr symbol : reads)
    if (symbol.isSym(Role::Stage)) {
      unsigned other = symbol.symbol().ordinal;
      pass = std::max(pass, program.stagePass[other] + (policy.fuse ? 0 : 1));
      below = std::max(below, depth[other]);
    }
  depth.push_back(below + 1);
  while (!attempt(number, inPass(stage.term, pass), pass)) {
    Cut cut;
    cut.stage = number;
    cut.reason = builder.reject.reason;
    cut.node = builder.reject.node;
    cut.text = builder.reject.text;
    program.cuts.push_back(std::move(cut));
    ++pass;
  }
  followEdges();
  unsigned done = 0;
  for (size_t i = 0; i < stage.results.size(); ++i) {
    Expr raw = builder.rawReadout.at(stage.results[i]);
    builder.finalReadout[stage.results[i]] =
        edges.corrected(stage, unsigned(i), raw);
    for (Expr symbol : symbolsOf(raw))
      if (auto it = builder.passOf.find(symbol); it != builder.passOf.end())
        done = std::max(done, it->second);
  }
  program.stagePass.push_back(done);
}

/// Tells `edges` about new states and new extremes.
void Driver::followEdges() {
  const std::vector<Extremal> &facts = builder.facts.extremals();
  for (; extremals < facts.size(); ++extremals)
    if (const Extremal &fact = facts[extremals]; fact.isAttained)
      edges.addExtremal(fact.symbol, fact.feature, written(fact), fact.isMax);
  edges.follow(program);
}

/// The feature as the user has it: the term of the stage, if it is one's.
Expr Driver::written(const Extremal &fact) const {
  for (const Stage &stage : cascade.stages)
    if (auto it = builder.rawReadout.find(stage.results[0]);
        it != builder.rawReadout.end() && it->second == fact.symbol)
      return stage.term;
  return fact.feature;
}

void Driver::finish() {
  for (const Stage &stage : cascade.stages) {
    std::vector<Expr> readouts;
    for (Expr result : stage.results)
      readouts.push_back(builder.finalReadout.at(result));
    program.readouts.push_back(std::move(readouts));
  }
  for (const Output &output : cascade.outputs) {
    Expr raw = substitute(*program.context, output.value, builder.rawReadout);
    Expr safe =
        substitute(*program.context, output.value, builder.finalReadout);
    program.outputs.push_back(
        {output.name, edges.agrees(output.value, raw) ? raw : safe});
  }
  for (const Definition &definition : program.definitions)
    if (const State *state = std::get_if<State>(&definition)) {
      program.passes = std::max(program.passes, state->pass + 1);
      ++program.stateSize;
    }
  for (unsigned own : depth)
    program.unfusedPasses = std::max(program.unfusedPasses, own);
}

void Driver::run() {
  for (unsigned i = 0; i < cascade.stages.size(); ++i)
    stage(i);
  finish();
}

Derivation derive(const Cascade &cascade, const Policy &policy) {
  Derivation result;
  if (auto error = cascade.verify()) {
    result.error = *error;
    return result;
  }
  Program &program = result.program.emplace();
  program.context = cascade.context;
  program.indices = cascade.indices;
  Driver(cascade, policy, program).run();
  return result;
}

} // namespace refold::algebra
