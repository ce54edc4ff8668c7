// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Derive.h"

#include "Builder.h"

#include <algorithm>

namespace refold::algebra {

namespace {
class Driver {
public:
  Driver(const Cascade &cascade, const Policy &policy, Program &program)
      : cascade(cascade), program(program), policy(policy),
        builder(cascade, policy, program) {}
  void run();

private:
  void stage(unsigned number);
  bool attempt(unsigned number, Expr term, unsigned pass);
  Expr inPass(Expr term, unsigned pass);
  void finish();

  const Cascade &cascade;
  Program &program;
  const Policy &policy;
  Builder builder;
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
  return substitute(*program.context, term, map);
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
  unsigned done = 0;
  for (Expr result : stage.results) {
    Expr raw = builder.rawReadout.at(result);
    builder.finalReadout[result] = raw;
    for (Expr symbol : symbolsOf(raw))
      if (auto it = builder.passOf.find(symbol); it != builder.passOf.end())
        done = std::max(done, it->second);
  }
  program.stagePass.push_back(done);
}

void Driver::finish() {
  for (const Stage &stage : cascade.stages) {
    std::vector<Expr> readouts;
    for (Expr result : stage.results)
      readouts.push_back(builder.finalReadout.at(result));
    program.readouts.push_back(std::move(readouts));
  }
  for (const Output &output : cascade.outputs)
    program.outputs.push_back(
        {output.name,
         substitute(*program.context, output.value, builder.finalReadout)});
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
