// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_ALGEBRA_TESTPROGRAMS_H
#define REFOLD_UNITTESTS_ALGEBRA_TESTPROGRAMS_H

#include "refold/Algebra/Program.h"

#include <cmath>

/// Cascades, and programs for them written by hand, so that the evaluators and
/// the certifier are tested without the derivation.
namespace refold::algebra {

struct Handmade {
  Context context;
  Cascade cascade{context};
  Program program;

  /// A let, appended to the program.
  Expr let(const std::string &name, Expr value) {
    Expr symbol =
        context.symbol(name, Role::Let, value.type(), value.indices());
    program.definitions.push_back(Let{symbol, value});
    return symbol;
  }
  Expr state(const std::string &name, Reducer reducer, Expr value,
             std::vector<Expr> pivots = {}, std::vector<Expr> with = {},
             Expr transport = {}, std::string law = {}) {
    State result;
    result.reducer = reducer;
    result.values = {value};
    result.indices = value.indices() & ~cascade.stream();
    result.results = {
        context.symbol(name, Role::State, value.type(), result.indices)};
    result.pivots = std::move(pivots);
    result.with = std::move(with);
    result.transport = transport;
    result.law = std::move(law);
    program.definitions.push_back(result);
    return result.results[0];
  }
  Expr old(unsigned i = 0) {
    return context.placeholder(Role::Old, i, Type::F32);
  }
  Expr fresh(unsigned i = 0) {
    return context.placeholder(Role::New, i, Type::F32);
  }
  Expr self() { return context.placeholder(Role::Self, 0, Type::F32); }
  Expr with(unsigned i = 0) {
    return context.placeholder(Role::With, i, Type::F32);
  }
  void finish() {
    program.context = &context;
    program.indices = cascade.indices;
    program.passes = 1;
    program.stateSize = 0;
    for (const Definition &definition : program.definitions)
      program.stateSize += std::holds_alternative<State>(definition);
  }
};

/// m = max x, s = sum e^(x - m), a = sum e^(x - m) v, o = a / s, and the sweep
/// p = e^(x - m) / s.
inline std::unique_ptr<Handmade> makeWeightedMean() {
  auto h = std::make_unique<Handmade>();
  Context &c = h->context;
  unsigned n = h->cascade.addIndex("n", IndexRole::Stream);
  IndexSet stream = IndexSet(1) << n;
  Expr x = h->cascade.addRead("x", stream);
  Expr v = h->cascade.addRead("v", stream);
  Expr m = h->cascade.addStage("m", Reducer::Max, x);
  Expr e = c.exp(c.sub(x, m));
  Expr s = h->cascade.addStage("s", Reducer::Sum, e);
  Expr a = h->cascade.addStage("a", Reducer::Sum, c.mul(e, v));
  h->cascade.addOutput("o", c.div(a, s));
  h->cascade.addOutput("p", c.div(e, s));

  Expr max = h->state("m", Reducer::Max, x);
  Expr g = h->let("g", c.maxNum(max, c.real(-largestFinite(Type::F32))));
  Expr weight = c.exp(c.sub(x, g));
  Expr moved = c.mul(h->self(), c.exp(c.sub(h->old(), h->fresh())));
  Expr sum = h->state("s", Reducer::Sum, weight, {g}, {}, moved,
                      "rescale-distributes");
  Expr dot = h->state("a", Reducer::Sum, c.mul(weight, v), {g}, {}, moved,
                      "rescale-distributes");
  // A row of -inf only was NaN throughout: e^(-inf - -inf).
  Expr isDead = c.cmp(Pred::Eq, max, c.real(-HUGE_VAL));
  Expr nan = c.real(std::numeric_limits<double>::quiet_NaN());
  Expr isEmpty =
      c.cmp(Pred::Eq, h->cascade.indices[n].length, c.integer(0, Type::Index));
  auto folded = [&](Expr value) {
    Expr dead = c.select(isDead, nan, value);
    return c.select(isEmpty, c.real(0), dead);
  };
  h->program.readouts = {{max}, {folded(sum)}, {folded(dot)}};
  h->program.stagePass = {0, 0, 0};
  h->program.outputs = {{"o", c.div(folded(dot), folded(sum))},
                        {"p", c.div(c.exp(c.sub(x, max)), folded(sum))}};
  h->program.unfusedPasses = 2;
  h->program.stateSize = 3;
  h->finish();
  return h;
}

/// S = sum x, mu = S / n, Q = sum (x - mu)^2, var = Q / n, kept as three Taylor
/// states relative to the running mean.
inline std::unique_ptr<Handmade> makeVariance() {
  auto h = std::make_unique<Handmade>();
  Context &c = h->context;
  unsigned n = h->cascade.addIndex("n", IndexRole::Stream);
  Expr x = h->cascade.addRead("x", IndexSet(1) << n);
  Expr length = h->cascade.indices[n].length;
  Expr total = h->cascade.addStage("S", Reducer::Sum, x);
  Expr t = c.sub(x, c.div(total, length));
  Expr q = h->cascade.addStage("Q", Reducer::Sum, c.mul(t, t));
  h->cascade.addOutput("var", c.div(q, length));

  Expr one = c.real(1), two = c.real(2);
  Expr count = h->state("count", Reducer::Sum, one);
  Expr sum = h->state("sum", Reducer::Sum, x);
  Expr mu = h->let("mu", c.div(sum, c.max(count, one)));
  Expr u = c.sub(x, mu), d = c.sub(h->old(), h->fresh());
  Expr c1 = h->state("c1", Reducer::Sum, u, {mu}, {count},
                     c.add(h->self(), c.mul(d, h->with(0))), "taylor-shift");
  Expr moved = c.add(c.add(h->self(), c.mul(c.mul(two, d), h->with(1))),
                     c.mul(c.pow(d, {2, 1}), h->with(0)));
  Expr c2 = h->state("c2", Reducer::Sum, c.pow(u, {2, 1}), {mu}, {count, c1},
                     moved, "taylor-shift");
  h->program.readouts = {{sum}, {c2}};
  h->program.stagePass = {0, 0};
  h->program.outputs = {{"var", c.div(c2, length)}};
  h->program.unfusedPasses = 2;
  h->program.stateSize = 4;
  h->finish();
  return h;
}

} // namespace refold::algebra

#endif // REFOLD_UNITTESTS_ALGEBRA_TESTPROGRAMS_H
