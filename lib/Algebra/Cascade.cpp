// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Cascade.h"

#include <cassert>

namespace refold::algebra {

const char *spelling(Reducer reducer) {
  static const char *const names[] = {"sum",    "prod", "max", "min", "maxnum",
                                      "minnum", "any",  "all", "topk"};
  return names[unsigned(reducer)];
}

/// Lowest and highest value of an integer type.
static std::pair<int64_t, int64_t> integerRange(Type type) {
  switch (type) {
  case Type::Bool:
    return {0, 1};
  case Type::I8:
    return {INT8_MIN, INT8_MAX};
  case Type::U8:
    return {0, UINT8_MAX};
  case Type::I32:
    return {INT32_MIN, INT32_MAX};
  default:
    return {INT64_MIN, INT64_MAX};
  }
}

Expr identity(Context &context, Reducer reducer, Type type) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  switch (reducer) {
  case Reducer::Sum:
    return context.integer(0, type);
  case Reducer::Prod:
    return context.integer(1, type);
  case Reducer::Max:
  case Reducer::MaxNum:
  case Reducer::TopK:
    return isFloat(type) ? context.real(-infinity, type)
                         : context.integer(integerRange(type).first, type);
  case Reducer::Min:
  case Reducer::MinNum:
    return isFloat(type) ? context.real(infinity, type)
                         : context.integer(integerRange(type).second, type);
  case Reducer::Any:
    return context.boolean(false);
  case Reducer::All:
    return context.boolean(true);
  }
  return {};
}

unsigned Cascade::addIndex(std::string name, IndexRole role, int64_t extent) {
  assert(indices.size() < 64 && "an index set is one word");
  unsigned number = unsigned(indices.size());
  IndexSet own = IndexSet(1) << number;
  Expr value = context->symbol(name, Role::Index, Type::Index, own, number,
                               {true, false, 0});
  Expr length = extent >= 0
                    ? context->integer(extent, Type::Index)
                    : context->symbol("len(" + name + ")", Role::Parameter,
                                      Type::Index, 0, number, {true, false, 0});
  indices.push_back({std::move(name), role, extent, value, length});
  return number;
}

IndexSet Cascade::indicesOf(IndexRole role) const {
  IndexSet set = 0;
  for (size_t i = 0; i < indices.size(); ++i)
    if (indices[i].role == role)
      set |= IndexSet(1) << i;
  return set;
}

Expr Cascade::addRead(std::string name, IndexSet of, Type type, Facts facts) {
  Role role = of & stream() ? Role::Element : Role::Parameter;
  return context->symbol(std::move(name), role, type, of, 0, facts);
}

/// Narrow integers and booleans are summed in i32, narrow floats in f32.
static Type resultType(Reducer reducer, Type type) {
  if (reducer == Reducer::Any || reducer == Reducer::All)
    return Type::Bool;
  return reducer == Reducer::Sum || reducer == Reducer::Prod ? computeType(type)
                                                             : type;
}

Expr Cascade::addStage(std::string name, Reducer reducer, Expr term,
                       Place place) {
  Stage stage;
  stage.name = std::move(name);
  stage.reducer = reducer;
  stage.term = term;
  stage.indices = term.indices() & ~stream();
  stage.place = std::move(place);
  stage.results.push_back(
      context->symbol(stage.name, Role::Stage, resultType(reducer, term.type()),
                      stage.indices, unsigned(stages.size())));
  stages.push_back(std::move(stage));
  return stages.back().results.front();
}

std::vector<Expr> Cascade::addTopK(std::string name, Expr key,
                                   std::vector<Expr> payloads, int64_t k,
                                   bool largest, int rank, Place place) {
  Stage stage;
  stage.name = std::move(name);
  stage.reducer = Reducer::TopK;
  stage.term = key;
  stage.payloads = std::move(payloads);
  stage.k = k;
  stage.largest = largest;
  stage.rank = rank;
  stage.indices = key.indices();
  for (Expr payload : stage.payloads)
    stage.indices |= payload.indices();
  stage.indices &= ~stream();
  if (rank >= 0)
    stage.indices |= IndexSet(1) << rank;
  stage.place = std::move(place);
  auto addResult = [&](std::string result, Type type) {
    stage.results.push_back(context->symbol(std::move(result), Role::Stage,
                                            type, stage.indices,
                                            unsigned(stages.size())));
  };
  addResult(stage.name, key.type());
  for (size_t i = 0; i < stage.payloads.size(); ++i)
    addResult(stage.name + "." + std::to_string(i), stage.payloads[i].type());
  stages.push_back(std::move(stage));
  return stages.back().results;
}

void Cascade::addOutput(std::string name, Expr value, Place place) {
  outputs.push_back({std::move(name), value, std::move(place)});
}

/// The first thing wrong with an expression that may read stages before
/// `limit`.
static std::optional<std::string> wrongWith(const Cascade &cascade, Expr e,
                                            size_t limit) {
  if (!e)
    return "has no expression";
  if (e->depth > Cascade::maxDepth)
    return "is nested " + std::to_string(e->depth) + " deep; at most " +
           std::to_string(Cascade::maxDepth) + " expected";
  for (Expr s : symbolsOf(e)) {
    const Symbol &symbol = s.symbol();
    bool known = symbol.role == Role::Element ||
                 symbol.role == Role::Parameter || symbol.role == Role::Index;
    if (symbol.role == Role::Stage) {
      if (symbol.ordinal >= limit)
        return "reads '" + symbol.name + "', which is not computed before it";
      known = true;
    }
    if (!known)
      return "reads '" + symbol.name + "', which is no part of a cascade";
    if (cascade.indices.size() < 64 && symbol.indices >> cascade.indices.size())
      return "reads '" + symbol.name + "' at an index that does not exist";
  }
  return std::nullopt;
}

std::optional<std::string> Cascade::verify() const {
  for (size_t i = 0; i < stages.size(); ++i) {
    const Stage &stage = stages[i];
    auto error = wrongWith(*this, stage.term, i);
    for (Expr payload : stage.payloads)
      if (!error)
        error = wrongWith(*this, payload, i);
    if (!error && stage.indices & (stream() | indicesOf(IndexRole::Inner)))
      error = "keeps an index that it should reduce";
    bool isPredicate =
        stage.reducer == Reducer::Any || stage.reducer == Reducer::All;
    if (!error && isPredicate && stage.term.type() != Type::Bool)
      error = std::string("reduces values of type ") +
              spelling(stage.term.type()) + " by " + spelling(stage.reducer) +
              "; bool expected";
    if (!error && stage.reducer == Reducer::TopK) {
      if (stage.k < 1)
        error = "takes the " + std::to_string(stage.k) +
                " best; at least 1 expected";
      else if (stage.rank < 0 && stage.k != 1)
        error = "takes several elements and has no rank index";
    }
    if (error)
      return "stage '" + stage.name + "' " + *error;
  }
  for (const Output &output : outputs)
    if (auto error = wrongWith(*this, output.value, stages.size()))
      return "output '" + output.name + "' " + *error;
  return std::nullopt;
}

} // namespace refold::algebra
