// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Law `irregular-rows`: a finished row whose states, pivots and results are all
// finite has the class of the stages as written, and its digits if no product
// in them has left the range of its type. The others are computed again, as
// written, in passes of which regular rows have nothing.
#include "refold/Algebra/Derive.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>

namespace refold::algebra {

/// Of squares, what the stages as written add up too.
static constexpr unsigned kPowers = 3;
/// A sum of f32 no less than this has its digits, whatever of its elements fell
/// below 2^-149.
static constexpr double kLeastOfPowers = 0x1p-116;
/// The same of up to 2^26 elements that are equal, whose roundings do not
/// cancel.
static constexpr double kLeastOfSquares = 0x1p-100, kLeastInF64 = 0x1p-996;

namespace {
class Repair {
public:
  Repair(const Cascade &cascade, const Program &derived, Regularity regularity)
      : cascade(cascade), derived(derived), context(*cascade.context),
        areDeadRegular(regularity.deadRows),
        losesSquares(regularity.losesSquares), program(derived) {}
  Program run();

private:
  bool isPower(const State &state) const;
  Expr isRegularExtreme(const State &state, Expr value);
  Expr isAtLeast(double least, Expr value);
  std::vector<Expr> regularProducts(const std::vector<Expr> &values);
  bool needsRepair(unsigned number) const;
  Expr isFinite(Expr value);
  Expr isRegular(const State &state, Expr value);
  Expr all(const std::vector<Expr> &parts);
  std::vector<Expr> regularKeys(const Stage &stage);
  ExprMap plainReadouts() const;
  std::vector<Expr> sourcesOf(unsigned number) const;
  bool isBounded(Expr readout) const;
  Expr irregular(unsigned number);
  Expr irregularFor(unsigned number);
  bool reads(unsigned reader, unsigned number) const;
  Expr isRegularReadout(Expr readout);
  void collect(Expr value, std::vector<Expr> &all, ExprSet &seen) const;
  Expr let(std::string name, Expr value);
  Expr written(Expr value) { return substitute(context, value, results); }
  void repair(unsigned number);
  bool readsResults(unsigned number) const;
  void output(unsigned number);

  const Cascade &cascade;
  const Program &derived;
  Context &context;
  bool areDeadRegular;
  bool losesSquares;
  Program program;
  ExprMap results; ///< of stages -> what holds on every row
  ExprMap flags;   ///< of results: not regular
};
} // namespace

/// A state that is the stage as written has no other class. What reads a
/// result that is not kept cannot be computed as written.
bool Repair::needsRepair(unsigned number) const {
  const Stage &stage = cascade.stages[number];
  const std::vector<Expr> &readouts = derived.readouts[number];
  auto kept = std::find_if(readouts.begin(), readouts.end(),
                           [](Expr readout) { return bool(readout); });
  if (kept == readouts.end()) // of no output
    return false;
  for (Expr symbol : symbolsOf(stage.term))
    if (symbol.isSym(Role::Stage) && !results.at(symbol))
      return false;
  const State *state = derived.findState(*kept);
  return !state || !state->pivots.empty() || state->values[0] != stage.term;
}

Expr Repair::let(std::string name, Expr value) {
  Expr symbol =
      context.symbol(std::move(name), Role::Let, value.type(), value.indices(),
                     unsigned(program.definitions.size()));
  program.definitions.push_back(Let{symbol, value});
  return symbol;
}

/// False for NaN.
Expr Repair::isFinite(Expr value) {
  Type type = computeType(value.type());
  return context.cmp(
      Pred::Lt, context.fn(Fn::Abs, context.cast(type, value)),
      context.real(std::numeric_limits<double>::infinity(), type));
}

/// How often a product has a factor of elements, its most frequent one.
static unsigned highestPower(Expr value, IndexSet stream) {
  std::map<Expr, unsigned> counts;
  std::function<void(Expr)> count = [&](Expr e) {
    if (e.is(Kind::Mul)) {
      count(e.operand(0));
      count(e.operand(1));
    } else if ((e.indices() & stream) && !e.is(Fn::Exp)) {
      ++counts[e];
    }
  };
  count(value);
  unsigned highest = 0;
  for (const auto &[factor, number] : counts)
    highest = std::max(highest, number);
  return highest;
}

/// Factors of elements in a product, of the summand that has most.
static unsigned degreeOf(Expr value, IndexSet stream) {
  if (!(value.indices() & stream) || !isFloat(value.type()) ||
      value.is(Fn::Exp) || value.is(Fn::Exp2))
    return 0;
  unsigned degree = 0;
  switch (value.kind()) {
  case Kind::Mul:
  case Kind::Div:
    for (unsigned i = 0; i < value.size(); ++i)
      degree += degreeOf(value.operand(i), stream);
    return degree;
  case Kind::Pow: {
    double exponent = std::ceil(std::fabs(value->exponent.value()));
    return unsigned(exponent) * degreeOf(value.operand(0), stream);
  }
  default:
    for (unsigned i = 0; i < value.size(); ++i)
      degree = std::max(degree, degreeOf(value.operand(i), stream));
    return std::max(degree, 1u);
  }
}

/// Of products that may fall below the range where their quotients, as written,
/// do not. What is a stage as written loses no more than that.
bool Repair::isPower(const State &state) const {
  Expr value = state.values[0];
  if (!losesSquares)
    return state.reducer == Reducer::Sum &&
           computeType(value.type()) == Type::F32 &&
           highestPower(value, cascade.stream()) >= kPowers;
  bool isWritten =
      state.pivots.empty() &&
      std::any_of(cascade.stages.begin(), cascade.stages.end(),
                  [&](const Stage &stage) { return stage.term == value; });
  return state.reducer != Reducer::TopK && !isWritten &&
         degreeOf(value, cascade.stream()) >= 2;
}

Expr Repair::isAtLeast(double least, Expr value) {
  Type type = computeType(value.type());
  return context.logicalAnd(
      context.cmp(Pred::Le, context.real(least, type),
                  context.fn(Fn::Abs, context.cast(type, value))),
      isFinite(value));
}

static double leastNormal(Type type) {
  return type == Type::F64 ? std::numeric_limits<double>::min()
                           : double(std::numeric_limits<float>::min());
}

static bool hasExponential(Expr value) {
  bool result = false;
  forEachNode(value,
              [&](Expr e) { result |= e.is(Fn::Exp) || e.is(Fn::Exp2); });
  return result;
}

/// Products of a row's numbers within the range of their type. One that is
/// infinite divides to 0, and digits that it loses below the range come back
/// when it divides. A product of 0 is exact; exponentials underflow on regular
/// rows.
std::vector<Expr> Repair::regularProducts(const std::vector<Expr> &values) {
  std::vector<Expr> parts;
  ExprSet seen;
  std::function<void(Expr)> visit = [&](Expr value) {
    forEachNode(value, [&](Expr e) {
      if (!seen.insert(e).second || (e.indices() & cascade.stream()))
        return;
      if (e.isSym())
        if (const Let *let = program.findLet(e))
          visit(let->value);
      bool isPower = e.is(Kind::Pow) && !(e->exponent == rational(1, 2));
      bool isOfRow = e.uses(Role::State) || e.uses(Role::Let);
      if (!(e.is(Kind::Mul) || isPower) || !isFloat(e.type()) || !isOfRow ||
          hasExponential(e))
        return;
      Expr part = isAtLeast(leastNormal(computeType(e.type())), e);
      for (unsigned i = 0; i < e.size(); ++i)
        part = context.logicalOr(
            part, context.cmp(Pred::Eq, e.operand(i),
                              context.real(0, e.operand(i).type())));
      parts.push_back(part);
    });
  };
  for (Expr value : values)
    visit(value);
  return parts;
}

/// A product that underflows is not regular: digits that are lost there come
/// back when it is divided. Nor is a sum of cubes, where squares do not yet
/// underflow. An extreme at its identity is, where the readouts of such rows
/// are folded.
Expr Repair::isRegular(const State &state, Expr value) {
  Type type = computeType(value.type());
  switch (state.reducer) {
  case Reducer::Prod:
    return isAtLeast(leastNormal(type), value);
  case Reducer::Sum:
    if (isPower(state))
      return isAtLeast(!losesSquares       ? kLeastOfPowers
                       : type == Type::F64 ? kLeastInF64
                                           : kLeastOfSquares,
                       value);
    break;
  case Reducer::Max:
  case Reducer::MaxNum:
  case Reducer::Min:
  case Reducer::MinNum:
    return isRegularExtreme(state, value);
  default:
    break;
  }
  return isFinite(value);
}

Expr Repair::isRegularExtreme(const State &state, Expr value) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  bool isMax =
      state.reducer == Reducer::Max || state.reducer == Reducer::MaxNum;
  Expr result = isFinite(value);
  if (areDeadRegular)
    result = context.cmp(isMax ? Pred::Lt : Pred::Gt, value,
                         context.real(isMax ? kInf : -kInf, value.type()));
  if (!losesSquares || !isPower(state))
    return result;
  double least = leastNormal(computeType(value.type()));
  return context.logicalAnd(
      result, context.cmp(Pred::Le, context.real(least, value.type()),
                          context.fn(Fn::Abs, value)));
}

/// The states that `value` is made of, and their pivots. Lists are kept as
/// written; their places beyond the end of a row are infinite.
void Repair::collect(Expr value, std::vector<Expr> &all, ExprSet &seen) const {
  for (Expr symbol : symbolsOf(value)) {
    if (!seen.insert(symbol).second)
      continue;
    if (const Let *let = program.findLet(symbol))
      collect(let->value, all, seen);
    const State *state = program.findState(symbol);
    if (!state || state->reducer == Reducer::TopK)
      continue;
    if (isFloat(symbol.type()))
      all.push_back(symbol);
    for (Expr pivot : state->pivots)
      collect(pivot, all, seen);
  }
}

/// True where all parts are; null without parts.
Expr Repair::all(const std::vector<Expr> &parts) {
  Expr result;
  for (Expr part : parts)
    result = result ? context.logicalAnd(result, part) : part;
  return result;
}

/// What a list's keys take from the row, each part as large as it can be:
/// finite and, as a factor or divisor of what is in the element, not 0. Then
/// they order the elements as the list does. Not the keys themselves: they are
/// different at every rank, and one decision holds for the list.
std::vector<Expr> Repair::regularKeys(const Stage &stage) {
  std::vector<Expr> parts;
  auto ofRow = [&](Expr e) {
    return !(e.indices() & cascade.stream()) && e.uses(Role::Stage);
  };
  auto add = [&](Expr e, bool isFactor) {
    if (!isFloat(e.type()))
      return;
    Expr value = substitute(context, e, plainReadouts());
    parts.push_back(isFinite(value));
    if (isFactor)
      parts.push_back(
          context.cmp(Pred::Ne, value, context.real(0, value.type())));
  };
  if (ofRow(stage.term))
    add(stage.term, false);
  forEachNode(stage.term, [&](Expr e) {
    if (!(e.indices() & cascade.stream()))
      return;
    for (unsigned i = 0; i < e.size(); ++i)
      if (ofRow(e.operand(i)))
        add(e.operand(i), e.is(Kind::Mul) || e.is(Kind::Div));
  });
  return parts;
}

/// Results of stages -> what they are read out of where a row is regular.
ExprMap Repair::plainReadouts() const {
  ExprMap map;
  for (size_t i = 0; i < cascade.stages.size(); ++i)
    for (size_t k = 0; k < cascade.stages[i].results.size(); ++k)
      if (Expr readout = derived.readouts[i][k])
        map[cascade.stages[i].results[k]] = readout;
  return map;
}

/// What `number` is read out of: its own readout, or of a list what its keys
/// read; and of every stage that its term reads, in one step or several: what
/// cancels against a pivot is in no state, and not a number as written.
std::vector<Expr> Repair::sourcesOf(unsigned number) const {
  const Stage &stage = cascade.stages[number];
  std::vector<Expr> sources;
  for (auto &[result, readout] : plainReadouts())
    if (contains(stage.term, result) || reads(number, result.symbol().ordinal))
      sources.push_back(readout);
  // The order of a map is not the same in every run.
  std::sort(sources.begin(), sources.end());
  Expr own = derived.readouts[number][0];
  if (own && stage.rank < 0)
    sources.insert(sources.begin(), own);
  return sources;
}

/// A maximum of ours is there to bound what overflows as written.
bool Repair::isBounded(Expr readout) const {
  if (!derived.boundsExponentials)
    return false;
  bool hasExponential = false;
  ExprSet seen;
  std::function<void(Expr)> visit = [&](Expr value) {
    forEachNode(value, [&](Expr e) { hasExponential |= e.is(Fn::Exp); });
    for (Expr symbol : symbolsOf(value))
      if (const Let *let = program.findLet(symbol);
          let && seen.insert(symbol).second)
        visit(let->value);
  };
  visit(readout);
  return hasExponential;
}

Expr Repair::irregular(unsigned number) {
  std::vector<Expr> states, parts;
  ExprSet seen;
  std::vector<Expr> sources = sourcesOf(number);
  for (Expr source : sources)
    collect(source, states, seen);
  for (Expr state : states)
    parts.push_back(isRegular(*program.findState(state), state));
  // A factor that is infinite leaves finite states.
  for (Expr readout : sources)
    if (isFloat(readout.type()) && !readout.isSym() && !isBounded(readout))
      parts.push_back(isRegularReadout(readout));
  if (losesSquares)
    for (Expr part : regularProducts(sources))
      parts.push_back(part);
  const Stage &stage = cascade.stages[number];
  if (stage.rank >= 0 || !derived.readouts[number][0])
    for (Expr part : regularKeys(stage))
      parts.push_back(part);
  Expr regular = all(parts);
  return regular ? context.logicalNot(regular) : context.boolean(false);
}

/// In one step or several.
bool Repair::reads(unsigned reader, unsigned number) const {
  std::vector<bool> isSeen(cascade.stages.size());
  std::vector<unsigned> pending{reader};
  while (!pending.empty()) {
    Expr term = cascade.stages[pending.back()].term;
    pending.pop_back();
    for (Expr symbol : symbolsOf(term)) {
      if (!symbol.isSym(Role::Stage))
        continue;
      unsigned other = symbol.symbol().ordinal;
      if (other == number)
        return true;
      if (other > number && !isSeen[other])
        pending.push_back(other);
      isSeen[other] = true;
    }
  }
  return false;
}

/// Where a stage that reads this one is computed again, this one is: beside a
/// term as written, what the derived form has rounded otherwise may be 0 alone,
/// and (x - mean)/0 is infinite where both are a rounding.
Expr Repair::irregularFor(unsigned number) {
  Expr flag = irregular(number);
  for (unsigned other = number + 1; other < cascade.stages.size(); ++other)
    if (needsRepair(other) && reads(other, number)) {
      Expr own = irregular(other);
      // One of many that read the result has no say in what it is.
      if (!(own.indices() & ~cascade.stages[number].indices))
        flag = context.logicalOr(flag, own);
    }
  return flag;
}

/// Rows that are folded are as the stages have them.
Expr Repair::isRegularReadout(Expr readout) {
  if (areDeadRegular && readout.is(Kind::Select) &&
      readout.operand(1).is(Kind::Const))
    return context.logicalOr(readout.operand(0),
                             isRegularReadout(readout.operand(2)));
  return isFinite(readout);
}

/// What a term is on regular rows, of which nobody reads the state.
static Expr identityOf(Context &context, const Stage &stage) {
  Type type = stage.results[0].type();
  if (stage.reducer == Reducer::TopK && !stage.largest && isFloat(type))
    return context.real(std::numeric_limits<double>::infinity(), type);
  return identity(context, stage.reducer, type);
}

void Repair::repair(unsigned number) {
  const Stage &stage = cascade.stages[number];
  Expr flag = let(stage.name + ".irregular", irregularFor(number));
  State state;
  state.reducer = stage.reducer;
  state.k = stage.k;
  state.largest = stage.largest;
  state.rank = stage.rank;
  state.indices = stage.indices;
  Expr none = identityOf(context, stage);
  Expr term = written(stage.term);
  if (none.type() != term.type())
    term = context.cast(none.type(), term);
  state.values = {context.select(flag, term, none)};
  for (Expr payload : stage.payloads)
    state.values.push_back(written(payload));
  for (Expr result : stage.results)
    state.results.push_back(
        context.symbol(stage.name + ".again", Role::State, result.type(),
                       stage.indices, unsigned(program.definitions.size())));
  std::vector<Expr> again = state.results;
  program.definitions.push_back(std::move(state));
  for (size_t k = 0; k < again.size(); ++k) {
    Expr &readout = program.readouts[number][k];
    if (!readout)
      continue;
    readout =
        let(stage.name + ".result", context.select(flag, again[k], readout));
    results[stage.results[k]] = readout;
    flags[stage.results[k]] = flag;
  }
}

/// The value without the choices made for rows that are folded.
static Expr unfolded(Expr value) {
  while (value.is(Kind::Select) && value.operand(1).is(Kind::Const))
    value = value.operand(2);
  return value;
}

/// Whether the output reads results as the stages have them: then the choice
/// between the two is made once for a row, not for every element of a sweep.
bool Repair::readsResults(unsigned number) const {
  ExprMap plain, folded;
  for (size_t i = 0; i < cascade.stages.size(); ++i)
    for (size_t k = 0; k < cascade.stages[i].results.size(); ++k) {
      Expr readout = derived.readouts[i][k];
      if (!readout)
        continue;
      folded[cascade.stages[i].results[k]] = readout;
      plain[cascade.stages[i].results[k]] = unfolded(readout);
    }
  Expr as = cascade.outputs[number].value, own = derived.outputs[number].value;
  return substitute(context, as, folded) == own ||
         substitute(context, as, plain) == own;
}

/// The choices that a policy for masked rows made: such a row is irregular, and
/// stays 0.
static std::vector<Expr> takeMaskedRows(Expr &value) {
  std::vector<Expr> masked;
  for (; value.is(Kind::Select) && value.operand(1).isConstant(0);
       value = value.operand(2))
    masked.push_back(value.operand(0));
  return masked;
}

void Repair::output(unsigned number) {
  Expr as = cascade.outputs[number].value;
  ProgramOutput &output = program.outputs[number];
  bool isSweep = as.indices() & cascade.stream();
  Expr flag;
  for (Expr symbol : symbolsOf(as))
    if (auto it = flags.find(symbol); it != flags.end())
      flag = flag ? context.logicalOr(flag, it->second) : it->second;
  if (!flag)
    return;
  if (losesSquares)
    for (Expr part : regularProducts({output.value}))
      flag = context.logicalOr(flag, context.logicalNot(part));
  bool isZeroed =
      std::find(program.zeroedOutputs.begin(), program.zeroedOutputs.end(),
                output.name) != program.zeroedOutputs.end();
  Expr value = output.value;
  std::vector<Expr> masked;
  if (isZeroed)
    masked = takeMaskedRows(value);
  Expr again = written(as);
  if (isSweep && readsResults(number)) {
    value = again;
  } else {
    if (!isSweep && isFloat(value.type()))
      flag = context.logicalOr(flag, context.logicalNot(isFinite(value)));
    value = context.select(flag, again, value);
  }
  for (size_t i = masked.size(); i-- > 0;)
    value = context.select(masked[i], context.real(0, value.type()), value);
  output.value = value;
}

Program Repair::run() {
  for (unsigned i = 0; i < cascade.stages.size(); ++i)
    for (size_t k = 0; k < cascade.stages[i].results.size(); ++k)
      results[cascade.stages[i].results[k]] = program.readouts[i][k];
  for (unsigned i = 0; i < cascade.stages.size(); ++i)
    if (needsRepair(i))
      repair(i);
  if (flags.empty())
    return std::move(program);
  for (unsigned i = 0; i < program.outputs.size(); ++i)
    output(i);
  std::vector<unsigned> passes = passesOf(program.definitions);
  for (size_t i = 0; i < program.definitions.size(); ++i)
    if (State *state = std::get_if<State>(&program.definitions[i])) {
      state->pass = passes[i];
      // One that waits for the first of several passes joins the next.
      if (passes[i] >= program.passes)
        program.repairPasses =
            std::max(program.repairPasses, passes[i] + 1 - program.passes);
    }
  return std::move(program);
}

Program withIrregularRows(const Cascade &cascade, const Program &program,
                          Regularity regularity) {
  return Repair(cascade, program, regularity).run();
}

} // namespace refold::algebra
