// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyParts.h"

#include <algorithm>

namespace refold::algebra::certifier {

/// Nesting beyond which an expression is not executed here.
static constexpr uint32_t kDeepest = 4096;
/// Operations for one element beyond which a program is not executed here.
static constexpr uint64_t kMostOperations = 1 << 18;

/// Operations to evaluate `root` once, bodies of contractions as often as they
/// run.
static uint64_t operations(Expr root) {
  std::unordered_map<Expr, uint64_t, ExprHash> inside;
  uint64_t total = 0;
  forEachNode(root, [&](Expr e) {
    // Of a node: itself, or for a contraction three times all that is below it.
    uint64_t own = 1;
    if (e.is(Kind::Contract))
      forEachNode(e.operand(0), [&](Expr part) {
        auto it = inside.find(part);
        own += 3 * (it == inside.end() ? 1 : it->second);
        own = std::min(own, kMostOperations * 2);
      });
    inside[e] = own;
    total = std::min(total + own, kMostOperations * 4);
  });
  return total;
}

namespace {
class StructureCheck {
public:
  explicit StructureCheck(const Program &program)
      : program(program), passes(passesOf(program.definitions)) {
    for (size_t i = 0; i < program.indices.size(); ++i) {
      if (program.indices[i].role == IndexRole::Stream)
        stream |= IndexSet(1) << i;
      if (program.indices[i].role == IndexRole::Inner)
        inner |= IndexSet(1) << i;
    }
  }

  Failure run() {
    for (size_t i = 0; i < program.definitions.size(); ++i) {
      const Definition &definition = program.definitions[i];
      Failure failure = std::holds_alternative<Let>(definition)
                            ? checkLet(std::get<Let>(definition), i)
                            : checkState(std::get<State>(definition), i);
      if (failure)
        return failure;
    }
    for (const auto &stage : program.readouts)
      for (Expr value : stage)
        if (Failure failure =
                value ? checkReads(value, "a readout", nullptr) : std::nullopt)
          return failure;
    for (const ProgramOutput &output : program.outputs)
      if (Failure failure =
              checkReads(output.value, "output '" + output.name + "'", nullptr))
        return failure;
    return std::nullopt;
  }

private:
  /// `state`: whose elements these are, or null.
  Failure checkReads(Expr e, const std::string &who, const State *state,
                     unsigned pass = 0) {
    if (!e)
      return who + " has no expression";
    if (e->depth > kDeepest)
      return who + " is nested " + std::to_string(e->depth) + " deep";
    cost += operations(e);
    if (cost > kMostOperations)
      return who + " makes the program too large to execute";
    for (Expr s : symbolsOf(e)) {
      const Symbol &symbol = s.symbol();
      bool isInput = symbol.role == Role::Element ||
                     symbol.role == Role::Parameter ||
                     symbol.role == Role::Index;
      if (isInput)
        continue;
      auto it = passOf.find(s);
      if (it == passOf.end())
        return who + " reads '" + symbol.name +
               "', which is not defined before";
      if (state && it->second >= pass && !isIn(state->pivots, s))
        return who + " reads '" + symbol.name +
               "' of its own pass, which is not one of its pivots";
    }
    return std::nullopt;
  }

  static bool isIn(const std::vector<Expr> &list, Expr e) {
    return std::find(list.begin(), list.end(), e) != list.end();
  }

  Failure checkLet(const Let &let, size_t at) {
    if (!let.symbol || !let.symbol.isSym(Role::Let))
      return "definition " + std::to_string(at) + " has no name";
    std::string who = "let '" + let.symbol.symbol().name + "'";
    if (passOf.count(let.symbol))
      return who + " is defined twice";
    if (Failure failure = checkReads(let.value, who, nullptr))
      return failure;
    if (let.value.indices() & (stream | inner))
      return who + " differs between elements";
    passOf[let.symbol] = passes[at];
    return std::nullopt;
  }

  Failure checkState(const State &state, size_t at) {
    if (state.results.empty() || state.results.size() != state.values.size())
      return "state " + std::to_string(at) + " has " +
             std::to_string(state.values.size()) + " values and " +
             std::to_string(state.results.size()) + " results";
    for (Expr result : state.results)
      if (!result || !result.isSym(Role::State) || passOf.count(result))
        return "state " + std::to_string(at) + " has no name of its own";
    std::string who = "state '" + state.symbol().symbol().name + "'";
    bool isTopK = state.reducer == Reducer::TopK;
    if (!isTopK && state.values.size() != 1)
      return who + " has several values but is no top-k";
    if (state.k < 1 || state.rank >= int(program.indices.size()))
      return who + " has no valid rank";
    if (state.indices & (stream | inner))
      return who + " keeps an index that it should reduce";
    if (Failure failure = checkPivots(state, who, passes[at]))
      return failure;
    for (Expr value : state.values)
      if (Failure failure = checkReads(value, who, &state, passes[at]))
        return failure;
    for (Expr value : state.values) {
      IndexSet rank = state.rank < 0 ? 0 : IndexSet(1) << state.rank;
      if (value.indices() & rank)
        return who + " orders its elements anew at every rank";
      if (value.indices() & ~(state.indices | stream))
        return who + " lacks an index that its elements have";
    }
    for (Expr result : state.results)
      passOf[result] = passes[at];
    return std::nullopt;
  }

  Failure checkPivots(const State &state, const std::string &who,
                      unsigned pass) {
    if (state.pivots.empty() != !state.transport)
      return who + (state.transport ? " has a transport but no pivot"
                                    : " has pivots but no transport");
    if (!state.transport)
      return std::nullopt;
    if (state.reducer == Reducer::TopK)
      return who + " is a top-k with pivots";
    for (Expr pivot : state.pivots)
      if (!pivot || !passOf.count(pivot) || passOf.at(pivot) > pass)
        return who + " has a pivot that is not defined before";
    for (Expr other : state.with)
      if (!other || !passOf.count(other) || passOf.at(other) != pass ||
          !program.findState(other) ||
          program.findState(other)->reducer == Reducer::TopK)
        return who + " is moved with something that is no state of its pass";
    for (Expr s : symbolsOf(state.transport)) {
      const Symbol &symbol = s.symbol();
      bool isPivot = symbol.role == Role::Old || symbol.role == Role::New;
      size_t most = isPivot                     ? state.pivots.size()
                    : symbol.role == Role::With ? state.with.size()
                                                : 1;
      bool known = isPivot || symbol.role == Role::With ||
                   symbol.role == Role::Self || symbol.role == Role::Parameter;
      if (!known || (symbol.role != Role::Parameter && symbol.ordinal >= most))
        return who + " has a transport that reads '" + symbol.name + "'";
    }
    cost += operations(state.transport);
    return state.transport->depth > kDeepest
               ? Failure(who + " has a transport that is nested too deep")
               : std::nullopt;
  }

  const Program &program;
  std::vector<unsigned> passes;
  std::unordered_map<Expr, unsigned, ExprHash> passOf;
  IndexSet stream = 0, inner = 0;
  uint64_t cost = 0;
};
} // namespace

Failure checkStructure(const Program &program) {
  return StructureCheck(program).run();
}

/// The passes that the program says are those that its definitions take; those
/// that compute irregular rows again are behind them.
static Failure checkPasses(const Cascade &cascade, const Program &program) {
  std::vector<unsigned> own = passesOf(program.definitions);
  std::unordered_map<Expr, unsigned, ExprHash> passOf;
  unsigned passes = 0, states = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    if (const Let *let = std::get_if<Let>(&program.definitions[i])) {
      passOf[let->symbol] = own[i];
      continue;
    }
    passes = std::max(passes, own[i] + 1);
    ++states;
    for (Expr result : std::get<State>(program.definitions[i]).results)
      passOf[result] = own[i];
  }
  unsigned said = program.passes + program.repairPasses;
  // States that compute irregular rows again are not counted.
  if (said != passes || program.stateSize > states)
    return "the program has " + std::to_string(states) + " states and " +
           std::to_string(passes) + " passes; it says " +
           std::to_string(program.stateSize) + " and " + std::to_string(said);
  bool isRepaired = states > program.stateSize;
  for (size_t i = 0; i < program.readouts.size(); ++i) {
    unsigned done = 0;
    for (Expr value : program.readouts[i])
      for (Expr symbol : value ? symbolsOf(value) : std::vector<Expr>())
        if (auto it = passOf.find(symbol); it != passOf.end())
          done = std::max(done, it->second);
    bool isSaid = i < program.stagePass.size() &&
                  (program.stagePass[i] == done ||
                   (program.stagePass[i] < done && isRepaired));
    if (!isSaid)
      return "stage '" + cascade.stages[i].name + "' is complete after pass " +
             std::to_string(done) + ", not when the program says";
  }
  return std::nullopt;
}

Failure checkInterface(const Cascade &cascade, const Program &program) {
  if (program.readouts.size() != cascade.stages.size())
    return "the program reads out " + std::to_string(program.readouts.size()) +
           " stages; " + std::to_string(cascade.stages.size()) + " expected";
  // Lists that the derivation made have places of their own.
  bool isSame = program.indices.size() >= cascade.indices.size();
  for (size_t i = 0; isSame && i < program.indices.size(); ++i)
    isSame = i < cascade.indices.size()
                 ? program.indices[i].role == cascade.indices[i].role
                 : program.indices[i].role == IndexRole::Rank;
  if (!isSame)
    return "the program has other indices than the cascade";
  bool same = program.outputs.size() == cascade.outputs.size();
  for (size_t i = 0; same && i < cascade.outputs.size(); ++i)
    same = program.outputs[i].name == cascade.outputs[i].name;
  if (!same)
    return "the program has other outputs than the cascade";
  return checkPasses(cascade, program);
}

} // namespace refold::algebra::certifier
