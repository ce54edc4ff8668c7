// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CertifyField.h"
#include "CertifyParts.h"

#include <algorithm>

namespace refold::algebra::certifier {

namespace {
/// Tests the transports of one program under one reading.
class TransportTest {
public:
  TransportTest(const Program &program, uint64_t seed)
      : reader(seed, std::vector<uint32_t>(program.indices.size(), 2)) {
    for (const Definition &definition : program.definitions)
      if (const State *state = std::get_if<State>(&definition))
        for (Expr pivot : state->pivots) {
          const Symbol *symbol = &pivot.symbol();
          uint64_t key[] = {symbol->id};
          oldPivots[symbol] = residueOf(*symbol, 0, key[0]);
          newPivots[symbol] = residueOf(*symbol, 1, key[0]);
        }
  }

  /// f(x, new) = T(old, new, f(x, old), ...), for pivots anywhere, and for
  /// those that are extremes themselves also where the element is at the old
  /// one, and where it stays. It is never at a new one that moved.
  bool movesElements(const Program &program, const State &state) {
    std::vector<std::pair<Expr, uint64_t>> extremes; // pivot, of the element
    for (Expr pivot : state.pivots)
      if (const State *own = program.findState(pivot))
        if (extremes.size() < kMostExtremes)
          extremes.push_back({pivot, reader.read(own->values[0], oldPivots)});
    FieldReader::Environment before = oldPivots, after = newPivots;
    bool holds = true;
    for (unsigned cases = 0; cases < 1u << (2 * extremes.size()); ++cases)
      for (bool isBehind : {false, true}) {
        for (size_t i = 0; i < extremes.size(); ++i) {
          auto [pivot, feature] = extremes[i];
          bool isAt = cases >> (2 * i) & 1, stays = cases >> (2 * i + 1) & 1;
          const Symbol *symbol = &pivot.symbol();
          oldPivots[symbol] = isAt ? feature : before.at(symbol);
          newPivots[symbol] = stays ? oldPivots[symbol] : after.at(symbol);
          if (Expr place = placeIn(program, pivot); place && !stays)
            newPivots[symbol] = besides(
                oldPivots[symbol], reader.read(place, oldPivots), isBehind, i);
        }
        holds = holds && movesElement(program, state);
      }
    oldPivots = std::move(before);
    newPivots = std::move(after);
    return holds;
  }

  /// T(s + t) = T(s) + T(t), + being the reducer of each argument.
  bool movesReductions(const Program &program, const State &state) {
    uint64_t a = reader.random(kSelf, {0}), b = reader.random(kSelf, {1});
    std::vector<uint64_t> withA, withB, both;
    for (size_t i = 0; i < state.with.size(); ++i) {
      withA.push_back(reader.random(kWith, {i, 0}));
      withB.push_back(reader.random(kWith, {i, 1}));
      both.push_back(reduce(program.findState(state.with[i])->reducer, withA[i],
                            withB[i]));
    }
    return transport(state, reduce(state.reducer, a, b), both) ==
           reduce(state.reducer, transport(state, a, withA),
                  transport(state, b, withB));
  }

private:
  enum : uint64_t { kPivot = 50, kSelf, kWith, kPlace };

  /// The stream position whose first or last one where something holds is the
  /// pivot: another one lies outside of the segment, before it or behind.
  static Expr placeIn(const Program &program, Expr pivot) {
    Expr value = program.findState(pivot)->values[0];
    if (isFloat(value.type()) || !value.is(Kind::Select) ||
        !value.operand(2).is(Kind::Const))
      return {};
    Expr place = value.operand(1);
    while (place.is(Kind::Cast))
      place = place.operand(0);
    for (const Index &index : program.indices)
      if (index.role == IndexRole::Stream && index.value == place)
        return place;
    return {};
  }

  /// A number below or above both.
  uint64_t besides(uint64_t a, uint64_t b, bool isAbove, uint64_t number) {
    for (uint64_t trial = 0;; ++trial) {
      uint64_t other = reader.random(kPlace, {number, isAbove, trial});
      bool isLessA = FieldReader::isLess(other, a),
           isLessB = FieldReader::isLess(other, b);
      if (other != a && other != b && isLessA == isLessB && isLessA != isAbove)
        return other;
    }
  }
  /// Pivots of one state that are tried at the element.
  static constexpr size_t kMostExtremes = 3;

  bool movesElement(const Program &program, const State &state) {
    uint64_t self = reader.read(state.values[0], oldPivots);
    std::vector<uint64_t> with;
    for (Expr other : state.with)
      with.push_back(
          reader.read(program.findState(other)->values[0], oldPivots));
    return transport(state, self, with) ==
           reader.read(state.values[0], newPivots);
  }

  uint64_t residueOf(const Symbol &symbol, uint64_t side, uint64_t id) {
    uint64_t residue = reader.random(kPivot, {id, side});
    return symbol.facts.nonNegative ? F::mul(residue, residue) : residue;
  }

  static uint64_t reduce(Reducer reducer, uint64_t a, uint64_t b) {
    switch (reducer) {
    case Reducer::Sum:
      return F::add(a, b);
    case Reducer::Prod:
      return F::mul(a, b);
    case Reducer::Max:
    case Reducer::MaxNum:
      return FieldReader::isLess(a, b) ? b : a;
    case Reducer::Min:
    case Reducer::MinNum:
      return FieldReader::isLess(a, b) ? a : b;
    case Reducer::Any:
      return (a & 1) | (b & 1);
    case Reducer::All:
      return a & b & 1;
    case Reducer::TopK:
      break;
    }
    return a;
  }

  uint64_t transport(const State &state, uint64_t self,
                     const std::vector<uint64_t> &with) {
    FieldReader::Environment values;
    for (Expr e : symbolsOf(state.transport)) {
      const Symbol &symbol = e.symbol();
      if (symbol.role == Role::Old)
        values[&symbol] = oldPivots.at(&state.pivots[symbol.ordinal].symbol());
      else if (symbol.role == Role::New)
        values[&symbol] = newPivots.at(&state.pivots[symbol.ordinal].symbol());
      else if (symbol.role == Role::Self)
        values[&symbol] = self;
      else if (symbol.role == Role::With)
        values[&symbol] = with[symbol.ordinal];
    }
    return reader.read(state.transport, values);
  }

  FieldReader reader;
  FieldReader::Environment oldPivots, newPivots;
};
} // namespace

Failure checkTransports(const Program &program, const CertifyOptions &options,
                        Certificate &certificate) {
  unsigned trials = std::max(options.modularTrials, 1u);
  for (const Definition &definition : program.definitions) {
    const State *state = std::get_if<State>(&definition);
    if (!state || !state->transport)
      continue;
    ++certificate.transports;
    certificate.moved.push_back(state->symbol().symbol().name);
  }
  for (unsigned trial = 0; trial < trials; ++trial) {
    TransportTest test(program, options.seed * 1000 + trial);
    for (const Definition &definition : program.definitions) {
      const State *state = std::get_if<State>(&definition);
      if (!state || !state->transport)
        continue;
      ++certificate.modularTrials;
      std::string name = "transport of state '" + state->symbol().symbol().name;
      if (!test.movesElements(program, *state))
        return name + "' does not lead from one pivot to the other";
      if (!test.movesReductions(program, *state))
        return name + "' does not commute with its reduction";
    }
  }
  return std::nullopt;
}

} // namespace refold::algebra::certifier
