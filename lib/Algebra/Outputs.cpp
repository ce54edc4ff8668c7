// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What follows the stages of a derivation: outputs from states, in the form
// that keeps range and digits, and what nothing reads any more.
#include "Driver.h"

#include "Grouping.h"
#include "refold/Algebra/Evaluate.h"
#include "refold/Algebra/Formula.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace refold::algebra {

/// The result of a softmax written without its maximum is o·e^m / (s·e^m): the
/// exponentials that only we introduced are cancelled, or it would overflow.
Expr Driver::withoutOwnPivots(Expr value) {
  bool hasPivot = false;
  for (Expr symbol : symbolsOf(value))
    hasPivot |= builder.ownPivots.contains(symbol);
  if (!hasPivot || !isFloat(value.type()))
    return value;
  ExprSet varying;
  for (const auto &[symbol, pass] : builder.passOf)
    varying.insert(symbol);
  Scope scope(cascade.stream(), std::move(varying));
  Separator separator(*program.context, builder.normaliser, builder.facts,
                      scope, computeType(value.type()), policy.rankBudget);
  std::optional<std::vector<Term>> terms = separator.separate(value);
  if (!terms || terms->empty())
    return value;
  Expr sum;
  for (const Term &term : *terms) {
    if (!term.ed.isZero() && term.ex.empty())
      return value;
    Expr part = separator.toExpr(term);
    sum = sum ? program.context->add(sum, part) : part;
  }
  hasSettledOutput = true;
  return sum;
}

/// What only moved to a pivot and back is cancelled: m + log s - (A + m·s)/s.
Expr Driver::withoutMoves(Expr value) {
  if (!isFloat(value.type()) || value.indices() & cascade.stream())
    return value;
  const Poly &normal = builder.normaliser.normal(value);
  ExprSet left;
  size_t nodes = 0, own = 0;
  for (Expr atom : normal.atoms()) {
    for (Expr symbol : symbolsOf(atom))
      left.insert(symbol);
    forEachNode(atom, [&](Expr) { ++nodes; });
  }
  forEachNode(value, [&](Expr) { ++own; });
  bool isLess = false;
  for (const Extremal &fact : builder.facts.extremals())
    isLess |= fact.isAttained && contains(value, fact.symbol) &&
              !left.contains(fact.symbol);
  if (!isLess || nodes + 4 * normal.size() > 2 * own)
    return value;
  return toExpr(*program.context, normal, computeType(value.type()));
}

/// The d with e(λt) = λ^d·e(t) for λ > 0, where t are the symbols `scaled`;
/// nothing if there is none.
std::optional<Rational> Driver::degreeOf(
    Expr e, const ExprSet &scaled,
    std::unordered_map<Expr, std::optional<Rational>, ExprHash> &memo) {
  if (auto it = memo.find(e); it != memo.end())
    return it->second;
  auto of = [&](unsigned i) { return degreeOf(e.operand(i), scaled, memo); };
  auto same = [&](unsigned i, unsigned k) -> std::optional<Rational> {
    if (e.operand(i).isConstant(0))
      return of(k);
    if (e.operand(k).isConstant(0))
      return of(i);
    std::optional<Rational> a = of(i), b = of(k);
    return a && b && *a == *b ? a : std::nullopt;
  };
  auto times = [](std::optional<Rational> d, Rational factor) {
    return d ? std::optional(*d * factor) : std::nullopt;
  };
  std::optional<Rational> degree = rational(0);
  switch (e.kind()) {
  case Kind::Sym:
    degree = rational(scaled.contains(e) ? 1 : 0);
    break;
  case Kind::Const:
    break;
  case Kind::Add:
  case Kind::Sub:
  case Kind::Max:
  case Kind::Min:
  case Kind::MaxNum:
  case Kind::MinNum:
    degree = same(0, 1);
    break;
  case Kind::Cmp:
    degree = times(same(0, 1), rational(0));
    break;
  case Kind::Select:
    degree = of(0) == rational(0) ? same(1, 2) : std::nullopt;
    break;
  case Kind::Mul:
  case Kind::Div: {
    std::optional<Rational> a = of(0),
                            b = times(of(1),
                                      rational(e.is(Kind::Mul) ? 1 : -1));
    degree = a && b ? std::optional(*a + *b) : std::nullopt;
    break;
  }
  case Kind::Neg:
  case Kind::Contract:
    degree = of(0);
    break;
  case Kind::Pow:
    degree = times(of(0), e->exponent);
    break;
  default:
    if (e.is(Fn::Abs) || e.is(Fn::Relu)) {
      degree = of(0);
      break;
    }
    for (unsigned i = 0; i < e.size(); ++i)
      if (of(i) != rational(0))
        degree = std::nullopt;
  }
  return memo[e] = degree;
}

/// Law `homogeneous-readout`: with t_r = g_r·h for the results t of a list, an
/// output of degree 0 in them is the same for g: h cancels, and what only h
/// reads is not kept. Softmax, the best, renormalised: no sum, and no
/// exponential in the stream.
ExprMap Driver::homogeneous(Expr output) {
  // Of each common factor the results that have it.
  std::map<Monomial, ExprMap> shares;
  for (Expr symbol : symbolsOf(output)) {
    if (!symbol.isSym(Role::Stage) || !isFloat(symbol.type()))
      continue;
    const Stage &stage = cascade.stageOf(symbol);
    if (stage.reducer != Reducer::TopK || symbol != stage.results[0])
      continue;
    Expr raw = builder.rawReadout.at(symbol);
    const Poly normal = builder.normaliser.normal(raw);
    if (!normal.single())
      continue;
    Monomial own, common;
    for (const auto &[atom, exponent] : normal.single()->first.factors()) {
      bool isCommon =
          atom.uses(Role::State) &&
          !(stage.rank >= 0 && (atom.indices() & (IndexSet(1) << stage.rank)));
      isCommon = isCommon && builder.facts.isNonNegative(atom);
      (isCommon ? common : own).multiply(atom, exponent);
    }
    if (stage.rank >= 0 && !common.isOne())
      shares[common][symbol] =
          toExpr(*program.context, own, normal.single()->second,
                 computeType(symbol.type()));
  }
  ExprMap result;
  for (const auto &[factor, members] : shares) {
    ExprSet scaled;
    for (const auto &[symbol, value] : members)
      scaled.insert(symbol);
    std::unordered_map<Expr, std::optional<Rational>, ExprHash> memo;
    if (degreeOf(output, scaled, memo) == rational(0))
      result.insert(members.begin(), members.end());
  }
  return result;
}

/// What a comparison is on every row of numbers, if the facts tell.
std::optional<bool> Driver::known(Expr condition) {
  if (!condition.is(Kind::Cmp) || !isFloat(condition.operand(0).type()))
    return std::nullopt;
  Poly difference = builder.facts.normalOf(condition.operand(0)) -
                    builder.facts.normalOf(condition.operand(1));
  auto isAbove = [&](const Poly &poly, double least) {
    return builder.facts.isNonPositive(Poly::constant(least) - poly);
  };
  // Not 0 for certain: no fact is strict, but s >= 1 is more than s > 0.
  constexpr double kStrict = 1e-30;
  bool isUp = isAbove(difference, 0),
       isDown = isAbove(difference.scaled(-1), 0);
  bool isOff =
      isAbove(difference, kStrict) || isAbove(difference.scaled(-1), kStrict);
  switch (condition->pred) {
  case Pred::Eq:
    return isOff ? std::optional(false) : std::nullopt;
  case Pred::Ne:
    return isOff ? std::optional(true) : std::nullopt;
  case Pred::Ge:
    return isUp              ? std::optional(true)
           : isDown && isOff ? std::optional(false)
                             : std::nullopt;
  case Pred::Lt:
    return isUp              ? std::optional(false)
           : isDown && isOff ? std::optional(true)
                             : std::nullopt;
  case Pred::Le:
    return isDown          ? std::optional(true)
           : isUp && isOff ? std::optional(false)
                           : std::nullopt;
  case Pred::Gt:
    return isDown          ? std::optional(false)
           : isUp && isOff ? std::optional(true)
                           : std::nullopt;
  }
  return std::nullopt;
}

/// Guards on results that the facts decide: where(s == 0, 0, e/s), max(s, eps)
/// beside s >= 1. A row of -inf alone has s = NaN, which they do not catch.
void Driver::findIdleGuards() {
  Notation notation;
  notation.indices = &cascade.indices;
  ExprSet seen;
  auto isOfRow = [&](Expr e) {
    return e.uses(Role::Stage) && !(e.indices() & cascade.stream());
  };
  auto visit = [&](Expr e) {
    if (!isOfRow(e.is(Kind::Select) ? e.operand(0) : e) ||
        !seen.insert(e).second)
      return;
    if (e.is(Kind::Select)) {
      Expr condition = e.operand(0);
      std::optional<bool> holds =
          known(substitute(*program.context, condition, builder.rawReadout));
      if (holds)
        program.idleGuards.push_back(
            format(condition, notation) +
            (*holds ? " always holds" : " never holds") +
            " where its operands are numbers");
      return;
    }
    bool isMax = e.is(Kind::Max) || e.is(Kind::MaxNum);
    if (!isMax && !e.is(Kind::Min) && !e.is(Kind::MinNum))
      return;
    for (unsigned i : {0, 1}) {
      if (!e.operand(i).constant() || !isFloat(e.type()))
        continue;
      Expr value =
          substitute(*program.context, e.operand(1 - i), builder.rawReadout);
      std::optional<bool> holds = known(program.context->cmp(
          isMax ? Pred::Ge : Pred::Le, value, e.operand(i)));
      if (holds && *holds)
        program.idleGuards.push_back(format(e, notation) + " is " +
                                     format(e.operand(1 - i), notation) +
                                     " where that is a number");
    }
  };
  for (const Stage &stage : cascade.stages)
    forEachNode(stage.term, visit);
  for (const Output &output : cascade.outputs)
    forEachNode(output.value, visit);
}

/// Rows on which an epilogue is tried: where sums are nearly equal, where one
/// element is all of a sum, far from 0.
static constexpr Family kTried[] = {Family::Normal,  Family::Offset,
                                    Family::Outlier, Family::First,
                                    Family::Tiny,    Family::Ramp};
static constexpr uint32_t kTriedLength = 24;
/// Digits that an epilogue may lose before another one is looked for: half of
/// those of f32.
static constexpr double kLossy = 0x1p12;
/// What a grouping must be better by.
static constexpr double kBetter = 16;

Program Driver::trialOf(const std::string &name, Expr value) {
  Program trial;
  trial.context = program.context;
  trial.indices = program.indices;
  trial.definitions = program.definitions;
  trial.outputs = {{name, value}};
  return trial;
}

/// By how much the epilogue magnifies rounding errors, at worst.
double Driver::amplificationOf(const std::string &name, Expr value) {
  Program trial = trialOf(name, value);
  std::vector<Expr> roots = rootsOf(trial);
  Random random(1);
  double worst = 0;
  for (Family family : kTried) {
    Sample sample =
        makeSample(trial.indices, roots, family, kTriedLength, random);
    ProgramEvaluator<double> evaluator(trial, sample.extents);
    evaluator.run(sample, Order::Tiles, random);
    Amplification own = evaluator.amplify().front();
    double sum = own.states + own.epilogue;
    worst = std::max(
        worst, std::isfinite(sum) ? sum : std::numeric_limits<double>::max());
  }
  return worst;
}

/// On some row f32 errs by more than twice what the stages as written do.
bool Driver::losesDigits(size_t output, Expr value) {
  constexpr double kUlp = 0x1p-23;
  Program trial = trialOf("", value);
  std::vector<Expr> roots = rootsOf(cascade);
  Random random(1);
  for (Family family : kTried) {
    Sample sample =
        makeSample(trial.indices, roots, family, kTriedLength, random);
    DoubleDouble exact =
        DefinitionEvaluator<DoubleDouble>(cascade, sample.extents)
            .run(sample)
            .outputs[output]
            .front();
    auto errorOf = [&](float found) {
      return std::fabs(double(DoubleDouble(found) - exact));
    };
    double written = errorOf(DefinitionEvaluator<float>(cascade, sample.extents)
                                 .run(sample)
                                 .outputs[output]
                                 .front());
    double own = errorOf(ProgramEvaluator<float>(trial, sample.extents)
                             .run(sample, Order::Tiles, random)
                             .outputs[0]
                             .front());
    if (own > 2 * written + 2 * kUlp * std::fabs(double(exact)))
      return true;
  }
  return false;
}

/// The value of an output, grouped where that keeps digits.
Expr Driver::grouped(const Output &output, Expr raw, Expr value) {
  if (policy.stability == Stability::Fastest || !policy.fuse)
    return value;
  std::optional<Grouping> grouping = Grouper(builder).group(raw);
  if (!grouping)
    return value;
  Expr other = program.context->select(grouping->holds,
                                       builder.refined(grouping->value), value);
  double own = amplificationOf(output.name, value),
         least = amplificationOf(output.name, other);
  bool isChosen = least <= own;
  if (policy.stability != Stability::MostAccurate && !grouping->isVanishing)
    isChosen = own > kLossy && least * kBetter < own &&
               losesDigits(size_t(&output - cascade.outputs.data()), value);
  if (!isChosen)
    return value;
  char numbers[96];
  std::snprintf(numbers, sizeof(numbers),
                "; rounding errors grow by up to %.2g instead of %.2g%s", least,
                own, grouping->isVanishing ? ", and without bound near 0" : "");
  for (const std::string &text : grouping->texts)
    program.choices.push_back("'" + output.name + "': " + text + numbers);
  return other;
}

/// In the names of the cascade, each once.
void Driver::nameRoundings() {
  std::vector<Rounding> found;
  for (Rounding &rounding : program.roundings) {
    rounding.written = asWritten(rounding.written);
    bool isKnown =
        std::any_of(found.begin(), found.end(), [&](const Rounding &other) {
          return other.stage == rounding.stage &&
                 other.written == rounding.written;
        });
    if (!isKnown)
      found.push_back(rounding);
  }
  program.roundings = std::move(found);
}

/// Results that no output needs are not read out, and their states go.
void Driver::dropReadouts() {
  std::vector<std::vector<Expr>> all;
  std::swap(all, program.readouts);
  std::vector<Definition> definitions = program.definitions;
  prune();
  ExprSet kept;
  for (const Definition &definition : program.definitions)
    if (const Let *let = std::get_if<Let>(&definition))
      kept.insert(let->symbol);
    else
      for (Expr result : std::get<State>(definition).results)
        kept.insert(result);
  std::swap(all, program.readouts);
  program.definitions = std::move(definitions);
  for (std::vector<Expr> &readouts : program.readouts)
    for (Expr &readout : readouts)
      for (Expr symbol : symbolsOf(readout))
        if ((symbol.isSym(Role::State) || symbol.isSym(Role::Let)) &&
            !kept.contains(symbol)) {
          readout = Expr();
          break;
        }
}

/// Whether a list that the output reads may be longer than the row.
bool Driver::readsVacancies(Expr output) const {
  for (Expr symbol : symbolsOf(output))
    if (auto it = builder.vacancies.find(symbol);
        it != builder.vacancies.end() && !it->second.isConstant(0))
      return true;
  return false;
}

void Driver::finish() {
  findIdleGuards();
  nameRoundings();
  for (const Stage &stage : cascade.stages) {
    std::vector<Expr> readouts;
    for (Expr result : stage.results)
      readouts.push_back(builder.finalReadout.at(result));
    program.readouts.push_back(std::move(readouts));
  }
  bool isLess = false;
  for (const Output &output : cascade.outputs) {
    ExprMap rawOf = builder.rawReadout, safeOf = builder.finalReadout;
    for (const auto &[symbol, own] : homogeneous(output.value)) {
      const Stage &stage = cascade.stageOf(symbol);
      rawOf[symbol] = own;
      safeOf[symbol] = filled(stage, 0, edges.corrected(stage, 0, own));
      isLess = true;
    }
    Expr raw = withoutMoves(
        withoutOwnPivots(substitute(*program.context, output.value, rawOf)));
    Expr safe = substitute(*program.context, output.value, safeOf);
    bool isPlain =
        !readsVacancies(output.value) && edges.agrees(output.value, raw);
    Expr value = builder.refined(isPlain ? raw : safe);
    value = grouped(output, raw, value);
    if (policy.maskedRows == RowPolicy::Zero && isFloat(value.type()))
      if (Expr zeroed = edges.zeroed(output.value, value)) {
        value = zeroed;
        program.zeroedOutputs.push_back(output.name);
      }
    program.outputs.push_back({output.name, value});
  }
  if (isLess)
    dropReadouts();
  prune();
  program.boundsExponentials = hasSettledOutput;
  for (const Position &place : builder.facts.positions())
    program.assumesNumbers |= program.findState(place.symbol) != nullptr;
  unsigned all = 0;
  for (const Definition &definition : program.definitions)
    if (const State *state = std::get_if<State>(&definition)) {
      unsigned needed = state->pass + 1;
      all = std::max(all, needed);
      if (builder.repairs.contains(state->symbol()))
        continue;
      program.passes = std::max(program.passes, needed);
      ++program.stateSize;
    }
  program.repairPasses = all - program.passes;
  for (unsigned own : depth)
    program.unfusedPasses = std::max(program.unfusedPasses, own);
}

} // namespace refold::algebra
