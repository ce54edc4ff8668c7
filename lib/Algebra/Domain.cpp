// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A sum of squares is never negative as written. Its readout, the moment about
// the pivot less what the pivot is off, may be by a rounding, and a root of it
// would be NaN. Sums that a function needs not to be negative are kept so: if a
// value is at least 0, the larger of its approximation and 0 is no worse.
#include "Driver.h"

#include <map>

namespace refold::algebra {

/// A function that is NaN below 0.
static bool needsNonNegative(Expr e) {
  return e.is(Fn::Sqrt) || e.is(Fn::Rsqrt) || e.is(Fn::Log) || e.is(Fn::Log2) ||
         (e.is(Kind::Pow) && !e->exponent.isInteger()) || e.is(Fn::PowFn);
}

/// Results that such a function reads, perhaps as a part of its argument.
static ExprSet resultsInDomains(const Cascade &cascade) {
  ExprSet found;
  auto visit = [&](Expr e) {
    if (needsNonNegative(e))
      for (Expr symbol : symbolsOf(e.operand(0)))
        if (symbol.isSym(Role::Stage))
          found.insert(symbol);
  };
  for (const Stage &stage : cascade.stages)
    forEachNode(stage.term, visit);
  for (const Output &output : cascade.outputs)
    forEachNode(output.value, visit);
  return found;
}

/// The factors of a product, of a quotient too, by how often they occur.
static void countFactors(Expr e, std::map<Expr, unsigned> &counts) {
  if (e.is(Kind::Mul) || e.is(Kind::Div)) {
    countFactors(e.operand(0), counts);
    countFactors(e.operand(1), counts);
    return;
  }
  bool isEven =
      e.is(Kind::Pow) && e->exponent.isInteger() && e->exponent.num % 2 == 0;
  counts[e] += isEven ? 2 : 1;
}

/// By structure, so that (x - mean)·(x - mean) counts, which its normal form
/// hides: every factor occurs an even number of times, or is not negative.
bool Driver::isNeverNegative(Expr term) {
  if (term.is(Kind::Add))
    return isNeverNegative(term.operand(0)) && isNeverNegative(term.operand(1));
  if (term.is(Kind::Select))
    return isNeverNegative(term.operand(1)) && isNeverNegative(term.operand(2));
  std::map<Expr, unsigned> counts;
  countFactors(term, counts);
  for (const auto &[factor, count] : counts)
    if (count % 2 && !builder.facts.isNonNegative(factor))
      return false;
  return true;
}

/// The readout of a stage, no less than 0 where the stage never is and where
/// that matters.
Expr Driver::inDomain(const Stage &stage, Expr readout, unsigned pass) {
  if (stage.reducer != Reducer::Sum || !isFloat(readout.type()) ||
      !policy.fuse || readout.isSym())
    return readout;
  if (!domains)
    domains = resultsInDomains(cascade);
  if (!domains->contains(stage.results[0]) ||
      builder.facts.isNonNegative(readout) ||
      !isNeverNegative(inPass(stage.term, pass)))
    return readout;
  return program.context->max(readout,
                              program.context->real(0, readout.type()));
}

} // namespace refold::algebra
