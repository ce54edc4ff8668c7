// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Derive.h"

#include "Driver.h"
#include "refold/Algebra/Evaluate.h"
#include "refold/Algebra/Formula.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace refold::algebra {

/// The term over states: results that run in this pass as they are stored,
/// those of earlier passes by name, as the user sees them.
Expr Driver::inPass(Expr term, unsigned pass) {
  ExprMap map;
  for (Expr symbol : symbolsOf(term))
    if (symbol.isSym(Role::Stage))
      map[symbol] = program.stagePass[symbol.symbol().ordinal] == pass
                        ? builder.rawReadout.at(symbol)
                        : named(symbol);
  term = unguardedPivots(term);
  term = resolveGuards(builder, term, map);
  return substitute(*program.context, term, map);
}

/// A complete result of an earlier pass: a state or a let. What its stage says
/// of the elements becomes a fact.
Expr Driver::named(Expr result) {
  Expr readout = builder.finalReadout.at(result);
  if (readout.isSym() || readout.is(Kind::Const))
    return readout;
  Expr &entry = names[result];
  if (entry)
    return entry;
  entry = builder.addLet(readout, result.symbol().name);
  const Stage &stage = cascade.stageOf(result);
  if (result == stage.results[0])
    addFacts(stage, entry, program.stagePass[result.symbol().ordinal] + 1);
  return entry;
}

/// Facts of a result as later terms see it: of a maximum, that no element is
/// larger; of a sum of values >= 0, that it is no less than any of them, and
/// than what the element at a maximum adds (1 for the exponential of 0).
void Driver::addFacts(const Stage &stage, Expr value, unsigned pass) {
  bool isMax = stage.reducer == Reducer::Max;
  if (isMax || stage.reducer == Reducer::Min) {
    if (value.isSym())
      builder.facts.addExtremal(value, inPass(stage.term, pass), isMax);
    return;
  }
  if (stage.reducer != Reducer::Sum || !isFloat(stage.term.type()))
    return;
  Expr term = inPass(stage.term, pass);
  if (!builder.facts.isNonNegative(term))
    return;
  // A number of times a state: the bounds are the state's.
  const Poly normal = builder.normaliser.normal(value);
  const auto *only = normal.single();
  if (!only || only->second <= 0 || only->first.factors().size() != 1)
    return;
  auto [symbol, exponent] = only->first.factors()[0];
  if (!symbol.isSym() || !(exponent == rational(1)))
    return;
  double share = 1 / only->second;
  builder.facts.addNonNegative(symbol);
  builder.facts.addLowerBound(symbol,
                              builder.normaliser.normal(term).scaled(share));
  // Some element has u = m, and what it adds is part of the sum.
  for (const Extremal &fact : builder.facts.extremals())
    if (fact.isAttained)
      if (std::optional<Poly> least = atExtreme(term, fact)) {
        builder.facts.addLowerBound(symbol, least->scaled(share));
        return;
      }
}

/// The normal form of `e` for an element with u = m, if that is free of
/// elements: 2·e^(x - m) is 2.
std::optional<Poly> Driver::atExtreme(Expr e, const Extremal &fact) {
  auto isOfElements = [&](Expr atom) {
    return (atom.indices() & cascade.stream()) != 0;
  };
  Poly value = builder.normaliser.normal(e);
  if (!fact.normal.isZero()) {
    const auto &[leading, unit] = *fact.normal.all().begin();
    double factor = value.coefficientOf(leading) / unit;
    if (std::isfinite(factor) && factor != 0)
      value = value + (Poly::atom(fact.symbol) - fact.normal).scaled(factor);
  }
  Poly result;
  for (const auto &[monomial, coefficient] : value.all()) {
    Poly product = Poly::constant(coefficient);
    for (const auto &[atom, exponent] : monomial.factors()) {
      if (!isOfElements(atom)) {
        product = product * Poly::atom(atom, exponent);
        continue;
      }
      std::optional<Poly> argument = atom.is(Fn::Exp) && exponent == rational(1)
                                         ? atExtreme(atom.operand(0), fact)
                                         : std::nullopt;
      if (!argument)
        return std::nullopt;
      std::optional<double> number = argument->asConstant();
      product = product *
                (number ? Poly::constant(std::exp(*number))
                        : Poly::atom(program.context->exp(
                              toExpr(*program.context, *argument, e.type()))));
    }
    result = result + product;
  }
  return result;
}

/// m == -inf is false on every row that is not folded.
Expr Driver::unguardedPivots(Expr term) {
  ExprMap replaced;
  forEachNode(term, [&](Expr e) {
    if (!e.is(Kind::Cmp) || e->pred != Pred::Eq ||
        !e.operand(0).isSym(Role::Stage))
      return;
    const Stage &stage = cascade.stageOf(e.operand(0));
    std::optional<double> limit = e.operand(1).constant();
    Expr identity =
        algebra::identity(*program.context, stage.reducer, e.operand(0).type());
    if (limit && limit == identity.constant() &&
        edges.termOn(builder.rawReadout.at(e.operand(0)), term).isKnown())
      replaced[e] = program.context->boolean(false);
  });
  return replaced.empty() ? term : substitute(*program.context, term, replaced);
}

/// True if the stage is derived in this pass: states that read running values
/// as they are at the end belong to the next.
bool Driver::attempt(unsigned number, Expr term, unsigned pass) {
  size_t before = program.definitions.size();
  if (!derived(number, term, pass))
    return false;
  for (size_t i = before; i < program.definitions.size(); ++i) {
    const State *made = std::get_if<State>(&program.definitions[i]);
    if (!made || made->pass <= pass)
      continue;
    builder.reject = {reason::guardMixed, term,
                      "what bounds it is over elements that the running value "
                      "chooses"};
    return false;
  }
  return true;
}

bool Driver::derived(unsigned number, Expr term, unsigned pass) {
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

/// What the author of a cascade could change, by reason.
static const char *hintFor(const std::string &key) {
  static const std::pair<const char *, const char *> hints[] = {
      {reason::mixedExponent,
       "an exponent that subtracts a result fuses; one that multiplies or "
       "divides by it does not"},
      {reason::kink, "a form without the kink, such as the square, fuses"},
      {reason::mixedCompare,
       "a threshold that does not depend on results of the same pass fuses"},
      {reason::mixedCast, "rounding before or after the stage fuses"},
      {reason::interiorOptimum,
       "the largest distance fuses, the smallest does not"},
      {reason::guardMixed,
       "a guard on the element alone or on the row alone fuses"},
      {reason::nonRepresentative,
       "sums of powers and exponentials of a difference fuse"},
      {reason::powOfSum, "whole positive powers of the sum fuse"}};
  for (auto [own, hint] : hints)
    if (key == own)
      return hint;
  return "";
}

/// An expression over states in the names of the user's program.
Expr Driver::asWritten(Expr e) const {
  ExprMap back;
  for (const auto &map : {builder.rawReadout, names})
    for (const auto &[result, value] : map)
      if (!value.is(Kind::Const))
        back[value] = result;
  return substitute(*program.context, e, back);
}

/// The refusal of a stage, in the names of the user's program.
Cut Driver::cutOf(unsigned number, unsigned pass) {
  const Stage &stage = cascade.stages[number];
  Cut cut;
  cut.stage = number;
  cut.reason = builder.reject.reason;
  cut.node = asWritten(builder.reject.node);
  std::string running;
  bool several = false;
  for (Expr symbol : symbolsOf(cut.node))
    if (symbol.isSym(Role::Stage) &&
        program.stagePass[symbol.symbol().ordinal] == pass) {
      several = !running.empty();
      running += (running.empty() ? "'" : ", '") + symbol.symbol().name + "'";
    }
  Notation notation;
  notation.indices = &cascade.indices;
  cut.text = "'" + stage.name + "' cannot be kept up to date while " +
             (running.empty() ? "earlier results are"
                              : running + (several ? " are" : " is")) +
             " still changing: in " + format(cut.node, notation) + ", " +
             builder.reject.text;
  cut.hint = hintFor(cut.reason);
  bool isRounding =
      cut.reason == reason::mixedCast || !isFloat(stage.term.type());
  if (isRounding && policy.casts == CastPolicy::Exact &&
      builder.wouldRequantise(builder.reject.term, pass))
    cut.hint += ", and so does --casts requantise, which rounds at the results "
                "so far";
  return cut;
}

/// What was done about a stage that would have been cut.
void Driver::nameList(const Stage &stage) {
  Notation notation;
  notation.indices = &cascade.indices;
  program.lists.push_back(
      "'" + stage.name + "': the " + std::to_string(policy.thresholdList) +
      " best elements are kept, and a row of which more pass " +
      format(asWritten(builder.listed), notation) +
      " is summed again as written");
}

/// Definitions that no readout, output or other definition needs are left from
/// attempts that failed.
void Driver::prune() {
  ExprSet needed;
  auto need = [&](Expr e) {
    if (e)
      for (Expr symbol : symbolsOf(e))
        needed.insert(symbol);
  };
  for (const auto &readouts : program.readouts)
    for (Expr readout : readouts)
      need(readout);
  for (const ProgramOutput &output : program.outputs)
    need(output.value);
  std::vector<Definition> kept;
  for (size_t i = program.definitions.size(); i-- > 0;) {
    Definition &definition = program.definitions[i];
    if (Let *let = std::get_if<Let>(&definition)) {
      if (!needed.contains(let->symbol))
        continue;
      need(let->value);
    } else {
      State &state = std::get<State>(definition);
      if (std::none_of(state.results.begin(), state.results.end(),
                       [&](Expr e) { return needed.contains(e); }))
        continue;
      for (const std::vector<Expr> *uses :
           {&state.values, &state.pivots, &state.with})
        for (Expr use : *uses)
          need(use);
    }
    kept.push_back(std::move(definition));
  }
  std::reverse(kept.begin(), kept.end());
  program.definitions = std::move(kept);
}

void Driver::stage(unsigned number) {
  const Stage &stage = cascade.stages[number];
  unsigned pass = 0, below = 0;
  std::vector<Expr> reads = symbolsOf(stage.term);
  for (Expr payload : stage.payloads)
    for (Expr symbol : symbolsOf(payload))
      reads.push_back(symbol);
  bool waits = !policy.fuse ||
               std::find(policy.apart.begin(), policy.apart.end(), number) !=
                   policy.apart.end();
  for (Expr symbol : reads)
    if (symbol.isSym(Role::Stage)) {
      unsigned other = symbol.symbol().ordinal;
      pass = std::max(pass, program.stagePass[other] + (waits ? 1 : 0));
      below = std::max(below, depth[other]);
    }
  depth.push_back(below + 1);
  // Law `fewest-passes`: the first pass that works is the least one of any
  // plan, since freezing results never raises a rank.
  while (true) {
    Expr term = inPass(stage.term, pass);
    if (attempt(number, term, pass))
      break;
    if (Expr placed = builder.withPositions(term, pass); placed != term) {
      Reject reject = builder.reject;
      if (attempt(number, placed, pass))
        break;
      builder.reject = reject;
    }
    builder.reject.term = term;
    Cut cut = cutOf(number, pass);
    std::function<Expr()> finalTerm = [&] {
      return inPass(stage.term, pass + 1);
    };
    bool usesLists = policy.fuse && policy.thresholdList > 0;
    bool hasList = builder.deriveThreshold(
        number, term, usesLists ? &finalTerm : nullptr, pass);
    if (hasList && usesLists) {
      nameList(stage);
      break;
    }
    if (hasList && policy.fuse)
      cut.hint += ", and so does --thresholds list, which keeps the best "
                  "elements and leaves other rows to a second pass";
    program.cuts.push_back(std::move(cut));
    ++pass;
  }
  followEdges();
  Expr &first = builder.rawReadout.at(stage.results[0]);
  first = inDomain(stage, first, pass);
  unsigned done = 0;
  for (size_t i = 0; i < stage.results.size(); ++i) {
    Expr raw = builder.rawReadout.at(stage.results[i]);
    builder.finalReadout[stage.results[i]] =
        filled(stage, i, edges.corrected(stage, unsigned(i), raw));
    for (Expr symbol : symbolsOf(raw))
      if (auto it = builder.passOf.find(symbol); it != builder.passOf.end())
        done = std::max(done, it->second);
  }
  program.stagePass.push_back(done);
  addFacts(stage, builder.rawReadout.at(stage.results[0]), done);
}

/// Slots of a top-k beyond the length of the row hold no function of a key.
Expr Driver::filled(const Stage &stage, size_t number, Expr value) {
  auto it = builder.vacancies.find(stage.results[number]);
  if (it == builder.vacancies.end())
    return value;
  double none = std::numeric_limits<double>::infinity();
  Expr empty = program.context->real(stage.largest ? -none : none,
                                     stage.results[number].type());
  return program.context->select(it->second, empty, value);
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
  Driver driver(cascade, policy, program);
  driver.run();
  if (!policy.ownPivots || !driver.hasUselessPivots())
    return result;
  Policy plain = policy;
  plain.ownPivots = false;
  return derive(cascade, plain);
}

} // namespace refold::algebra
