// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "EvaluateMemory.h"
#include "EvaluateReduce.h"

#include <cmath>
#include <set>

namespace refold::algebra {
using std::fabs;
using std::isfinite;
using namespace evaluate;

namespace {
template <typename T> using Segment = std::vector<T>;

/// Elements of a tile of Order::Tiles.
constexpr uint32_t kTile = 16;

template <typename T> struct DefinitionCode {
  const State *state = nullptr; ///< null: a let
  unsigned pass = 0;
  bool isUsedByPivots = false;    ///< Let: evaluated for every segment
  std::vector<Code<T>> values;    ///< of a let: one
  std::vector<Code<T>> transport; ///< one, or none
  std::vector<Slot> slots;
  Shape shape; ///< of the results, without a rank of its own
  uint32_t rankStep = 1;
  uint32_t k = 1;
  Slot filled;             ///< TopK: places taken, by tuples of `shape`
  std::vector<Slot> gauge; ///< if it is a pivot: where its own value is kept
  bool isFixed = false;    ///< a pivot that has to stay where it is
  bool isOfSums = false;   ///< a let that is a pivot and reads a sum
};
} // namespace

template <typename T> struct ProgramEvaluator<T>::Impl {
  Impl(const Program &program, const std::vector<uint32_t> &extents,
       Defect defect)
      : program(program), memory(program.indices, extents), defect(defect) {
    memory.addInputs(rootsOf(program));
    std::vector<unsigned> passes = passesOf(program.definitions);
    markPivots();
    for (size_t i = 0; i < program.definitions.size(); ++i)
      addDefinition(program.definitions[i], passes[i]);
    for (const Definition &definition : program.definitions)
      if (auto *state = std::get_if<State>(&definition))
        if (state->reducer == Reducer::TopK)
          ranks.insert(state->rank);
    auto resolve = [this](Expr symbol) { return memory.slotOf(symbol); };
    for (const auto &stage : program.readouts) {
      readouts.emplace_back();
      for (Expr value : stage)
        readouts.back().push_back(makeOutput(value, resolve));
    }
    for (const ProgramOutput &output : program.outputs)
      outputs.push_back(makeOutput(output.value, resolve));
  }

  struct OutputCode {
    std::vector<Code<T>> value; ///< one, or none
    Shape shape;
  };
  OutputCode makeOutput(Expr value, const Resolver &resolve) {
    OutputCode code;
    if (value) {
      code.value.emplace_back(value, resolve, memory.extents);
      code.shape = shapeOf(value.indices(), memory.extents);
    }
    return code;
  }

  /// Pivots, and what lets they need before a segment is complete.
  void markPivots() {
    for (const Definition &definition : program.definitions)
      if (const State *state = std::get_if<State>(&definition))
        for (Expr pivot : state->pivots) {
          needed.insert(pivot);
          pivots.insert(pivot);
          if (comparesPivot(*state, pivot) || roundsAt(*state, pivot))
            fixed.insert(pivot);
        }
    for (size_t i = program.definitions.size(); i-- > 0;)
      if (const Let *let = std::get_if<Let>(&program.definitions[i]))
        if (needed.count(let->symbol))
          for (Expr symbol : symbolsOf(let->value))
            needed.insert(symbol);
  }

  /// The transport asks whether the pivot moved: it starts anew, and cannot
  /// lead back from anywhere.
  static bool comparesPivot(const State &state, Expr pivot) {
    bool result = false;
    forEachNode(state.transport, [&](Expr e) {
      if (e.is(Kind::Cmp) && e.operand(0).isSym(Role::Old) &&
          e.operand(1).isSym(Role::New))
        result |= state.pivots[e.operand(0).symbol().ordinal] == pivot;
    });
    return result;
  }

  void addDefinition(const Definition &definition, unsigned pass) {
    DefinitionCode<T> code;
    code.pass = pass;
    lastPass = std::max(lastPass, pass);
    if (const Let *let = std::get_if<Let>(&definition))
      addLet(*let, code);
    else
      addState(std::get<State>(definition), code);
    codes.push_back(std::move(code));
  }

  void addResult(Expr symbol, IndexSet indices, DefinitionCode<T> &code) {
    code.slots.push_back(memory.addResult(symbol, indices));
    if (pivots.count(symbol)) {
      code.gauge.push_back(memory.addScratch(indices));
      code.isFixed = fixed.count(symbol);
      gauges[&symbol.symbol()] = code.gauge.back();
    }
  }

  void addLet(const Let &let, DefinitionCode<T> &code) {
    auto resolve = [this](Expr symbol) { return memory.slotOf(symbol); };
    code.isUsedByPivots = needed.count(let.symbol);
    for (Expr symbol : symbolsOf(let.value))
      if (const State *state = program.findState(symbol))
        code.isOfSums |=
            pivots.count(let.symbol) && state->reducer == Reducer::Sum;
    code.values.emplace_back(let.value, resolve, memory.extents);
    code.shape = shapeOf(let.value.indices(), memory.extents);
    addResult(let.symbol, let.value.indices(), code);
  }

  void addState(const State &state, DefinitionCode<T> &code) {
    code.state = &state;
    code.k = memory.ranks(state.k, state.rank);
    // A state's elements stand at its pivots, wherever those were moved.
    auto atGauge = [&](Expr symbol) {
      bool isPivot = std::find(state.pivots.begin(), state.pivots.end(),
                               symbol) != state.pivots.end();
      return isPivot ? gauges.at(&symbol.symbol()) : memory.slotOf(symbol);
    };
    for (Expr value : state.values)
      code.values.emplace_back(value, atGauge, memory.extents);
    for (Expr result : state.results)
      addResult(result, state.indices, code);
    code.shape = memory.withoutRank(state.indices, state.rank, code.rankStep);
    if (state.reducer == Reducer::TopK)
      code.filled = memory.addScratch(withoutRank(state));
    if (state.transport)
      code.transport.emplace_back(
          state.transport,
          [&](Expr symbol) { return placeholderSlot(state, symbol); },
          memory.extents);
  }

  static IndexSet withoutRank(const State &state) {
    return state.rank < 0 ? state.indices
                          : state.indices & ~(IndexSet(1) << state.rank);
  }

  Slot placeholderSlot(const State &state, Expr symbol) {
    unsigned ordinal = symbol.symbol().ordinal;
    Slot slot;
    switch (symbol.symbol().role) {
    case Role::Old:
    case Role::New:
      slot = gauges.at(&state.pivots[ordinal].symbol());
      break;
    case Role::Self:
      slot = memory.slotOf(state.symbol());
      break;
    case Role::With:
      slot = memory.slotOf(state.with[ordinal]);
      break;
    default:
      return memory.slotOf(symbol);
    }
    bool isNew = (symbol.symbol().role == Role::New) !=
                 (defect == Defect::TurnedRound && !isOwn(symbol));
    slot.base = isNew ? Current : Previous;
    return slot;
  }

  static bool isOwn(Expr symbol) {
    return symbol.isSym(Role::Self) || symbol.isSym(Role::With);
  }

  // The current segment is the one being made; `a` and `b` are finished ones.

  T &at(const Slot &slot, uint32_t tuple) {
    return memory.segment[slot.offset + tuple];
  }

  void keepAsGauge(const DefinitionCode<T> &code) {
    for (const Slot &gauge : code.gauge)
      for (uint32_t tuple = 0; tuple < code.shape.size; ++tuple)
        at(gauge, tuple) = at(code.slots[0], tuple);
  }

  void computeLet(const DefinitionCode<T> &code) {
    forEachTuple(code.shape, memory.extents, memory.positions.data(),
                 [&](uint32_t tuple) {
                   T value = code.values[0].run(memory.frame());
                   at(code.slots[0], tuple) =
                       isShifted && code.isOfSums ? coarse(value) : value;
                 });
  }

  /// Two digits of a number: any pivot will do (theory, Thm 8).
  static T coarse(T value) {
    int exponent = 0;
    double digits = std::frexp(double(value), &exponent);
    return std::isfinite(digits)
               ? T(std::ldexp(std::nearbyint(digits * 4), exponent - 2))
               : value;
  }

  /// Defines everything of a pass in order, states by `defineState`.
  template <typename DefineState>
  void define(unsigned pass, DefineState defineState) {
    for (const DefinitionCode<T> &code : codes) {
      if (code.pass != pass || (!code.state && !code.isUsedByPivots))
        continue;
      if (!code.state)
        computeLet(code);
      else
        defineState(code);
      keepAsGauge(code);
    }
  }

  void setIdentity(const DefinitionCode<T> &code) {
    const State &state = *code.state;
    for (size_t i = 0; i < code.slots.size(); ++i) {
      T value = i == 0 ? identityOf<T>(state.reducer, state.values[0].type())
                       : missingPayload<T>(state.values[i].type());
      if (i == 0 && defect == Defect::ZeroIdentity)
        value = T(0);
      if (i == 0 && defect == Defect::OneIdentity)
        value = T(1);
      if (i == 0 && isTopK(code) && !state.largest)
        value = -value;
      for (uint32_t tuple = 0; tuple < code.shape.size * code.k; ++tuple)
        at(code.slots[i], tuple) = value;
    }
    for (uint32_t tuple = 0; isTopK(code) && tuple < code.shape.size; ++tuple)
      at(code.filled, tuple) = T(defect == Defect::FullLists ? code.k : 0);
  }
  static bool isTopK(const DefinitionCode<T> &code) {
    return code.state->reducer == Reducer::TopK;
  }

  T moved(const DefinitionCode<T> &code, const Segment<T> &from,
          uint32_t tuple) {
    if (code.transport.empty())
      return from[code.slots[0].offset + tuple];
    return code.transport[0].run(memory.frame(from.data()));
  }

  TopList<T> listAt(const DefinitionCode<T> &code, uint32_t tuple) {
    TopList<T> list{{},
                    code.rankStep,
                    code.k,
                    code.state->largest,
                    &at(code.filled, tuple)};
    uint32_t first = offsetIn(fullShape(code), memory.positions.data());
    for (const Slot &slot : code.slots)
      list.lists.push_back(&at(slot, first));
    return list;
  }
  Shape fullShape(const DefinitionCode<T> &code) {
    return shapeOf(code.slots[0].indices, memory.extents);
  }

  /// current = a, moved to the current pivots, then the element.
  void absorb(const DefinitionCode<T> &code, const Segment<T> &a) {
    forEachTuple(code.shape, memory.extents, memory.positions.data(),
                 [&](uint32_t tuple) {
                   if (isTopK(code)) {
                     listAt(code, tuple).insert(elementOf(code));
                     return;
                   }
                   at(code.slots[0], tuple) =
                       reduce(code.state->reducer,
                              sideOf(code, a, tuple, Defect::AbsorbStays),
                              code.values[0].run(memory.frame()));
                 });
  }
  /// A state at the present gauge; where it was, if `stays` is the defect.
  T sideOf(const DefinitionCode<T> &code, const Segment<T> &from,
           uint32_t tuple, Defect stays) {
    return defect == stays ? from[code.slots[0].offset + tuple]
                           : moved(code, from, tuple);
  }
  std::vector<T> elementOf(const DefinitionCode<T> &code) {
    std::vector<T> element;
    for (const Code<T> &value : code.values)
      element.push_back(value.run(memory.frame()));
    return element;
  }

  void lift(const DefinitionCode<T> &code) {
    setIdentity(code);
    forEachTuple(code.shape, memory.extents, memory.positions.data(),
                 [&](uint32_t tuple) {
                   if (isTopK(code))
                     listAt(code, tuple).insert(elementOf(code));
                   else
                     at(code.slots[0], tuple) =
                         reduce(code.state->reducer, at(code.slots[0], tuple),
                                code.values[0].run(memory.frame()));
                 });
  }

  void merge(const DefinitionCode<T> &code, const Segment<T> &a,
             const Segment<T> &b) {
    forEachTuple(code.shape, memory.extents, memory.positions.data(),
                 [&](uint32_t tuple) {
                   if (isTopK(code)) {
                     mergeLists(code, b, tuple);
                     return;
                   }
                   T left = sideOf(code, a, tuple, Defect::LeftStays),
                     right = sideOf(code, b, tuple, Defect::RightStays);
                   at(code.slots[0], tuple) =
                       defect == Defect::LeftLost ? right
                       : defect == Defect::RightLost
                           ? left
                           : reduce(code.state->reducer, left, right);
                 });
  }
  /// Requires that the current segment was copied from `a`.
  void mergeLists(const DefinitionCode<T> &code, const Segment<T> &b,
                  uint32_t tuple) {
    TopList<T> list = listAt(code, tuple);
    uint32_t filled = uint32_t(double(b[code.filled.offset + tuple]));
    if (defect == Defect::LeftLost)
      *list.filled = T(0);
    uint32_t first = offsetIn(fullShape(code), memory.positions.data());
    for (uint32_t rank = 0; rank < filled; ++rank) {
      std::vector<T> element;
      for (const Slot &slot : code.slots)
        element.push_back(defect == Defect::LostPayloads && !element.empty()
                              ? missingPayload<T>(Type::F32)
                              : b[slot.offset + first + rank * code.rankStep]);
      if (defect != Defect::RightLost)
        list.insert(element);
    }
  }

  void reduceAll(const DefinitionCode<T> &code, uint32_t begin, uint32_t end) {
    setIdentity(code);
    forEachTuple(code.shape, memory.extents, memory.positions.data(),
                 [&](uint32_t tuple) {
                   for (uint32_t i = begin; i < end; ++i) {
                     memory.moveTo(i);
                     if (isTopK(code))
                       listAt(code, tuple).insert(elementOf(code));
                     else
                       at(code.slots[0], tuple) =
                           reduce(code.state->reducer, at(code.slots[0], tuple),
                                  code.values[0].run(memory.frame()));
                   }
                 });
  }

  /// Moves all states of a pass from the gauge of `a` to the present one.
  void moveStates(unsigned pass, const Segment<T> &a) {
    for (const DefinitionCode<T> &code : codes)
      if (code.pass == pass && !code.transport.empty())
        forEachTuple(code.shape, memory.extents, memory.positions.data(),
                     [&](uint32_t tuple) {
                       at(code.slots[0], tuple) = moved(code, a, tuple);
                     });
  }

  /// A pivot of the same sign, so that gauges by division stay in their group.
  static T randomPivot(T pivot, Random &random) {
    double move = random.uniform(-0.9, 0.9);
    double value = double(pivot);
    if (!std::isfinite(value))
      return pivot;
    double size = value == 0 ? 1 : std::min(std::fabs(value), 1.0);
    return pivot + T(move * size);
  }

  void moveToRandomPivots(unsigned pass, Random &random) {
    Segment<T> before = memory.segment;
    for (const DefinitionCode<T> &code : codes)
      if (code.pass == pass && !code.isFixed)
        for (const Slot &gauge : code.gauge)
          for (uint32_t tuple = 0; tuple < code.shape.size; ++tuple)
            at(gauge, tuple) = randomPivot(at(gauge, tuple), random);
    moveStates(pass, before);
  }

  Segment<T> identitySegment(unsigned pass) {
    memory.segment = start;
    define(pass, [&](const auto &code) { setIdentity(code); });
    return memory.segment;
  }

  Segment<T> liftSegment(unsigned pass, uint32_t position) {
    memory.segment = start;
    memory.moveTo(position);
    define(pass, [&](const auto &code) { lift(code); });
    return memory.segment;
  }

  Segment<T> mergeSegments(unsigned pass, const Segment<T> &a,
                           const Segment<T> &b) {
    bool isTurned = defect == Defect::OthersFirst;
    const Segment<T> &left = isTurned ? b : a, &right = isTurned ? a : b;
    memory.segment = left;
    define(pass, [&](const auto &code) { merge(code, left, right); });
    return memory.segment;
  }

  /// Into the current segment.
  void readInOrder(unsigned pass) {
    Segment<T> before = identitySegment(pass);
    for (uint32_t i = 0; i < memory.length(); ++i) {
      before = memory.segment;
      memory.moveTo(i);
      define(pass, [&](const auto &code) { absorb(code, before); });
    }
  }

  /// A tile as a kernel reads it: all its elements at the pivots of the tile.
  Segment<T> readTile(unsigned pass, uint32_t begin, uint32_t end) {
    memory.segment = start;
    define(pass, [&](const auto &code) { reduceAll(code, begin, end); });
    return memory.segment;
  }

  Segment<T> readTree(unsigned pass, uint32_t begin, uint32_t end, Order order,
                      Random &random) {
    if (begin == end) {
      // Short rows on many segments: two that have seen nothing merge.
      Segment<T> nothing = identitySegment(pass);
      return isRandom(order) && random.below(2)
                 ? mergeSegments(pass, nothing, nothing)
                 : nothing;
    }
    if (order == Order::Tiles && end - begin <= kTile)
      return readTile(pass, begin, end);
    if (end - begin == 1 && !(isRandom(order) && random.below(4) == 0))
      return perturbed(pass, liftSegment(pass, begin), order, random);
    uint32_t middle = (begin + end) / 2;
    if (order == Order::Right)
      middle = begin + 1;
    else if (order == Order::Tiles)
      middle = begin + ((end - begin + kTile) / (2 * kTile)) * kTile;
    else if (isRandom(order))
      middle = begin + random.below(end - begin + 1);
    // Only one side can be empty, and not for ever: `below` moves on.
    Segment<T> a = readTree(pass, begin, middle, order, random);
    Segment<T> b = readTree(pass, middle, end, order, random);
    return perturbed(pass, mergeSegments(pass, a, b), order, random);
  }
  static bool isRandom(Order order) {
    return order == Order::Random || order == Order::Pivots;
  }
  Segment<T> perturbed(unsigned pass, Segment<T> segment, Order order,
                       Random &random) {
    if (order != Order::Pivots || random.below(2))
      return segment;
    memory.segment = std::move(segment);
    moveToRandomPivots(pass, random);
    return memory.segment;
  }

  void runPass(unsigned pass, Order order, Random &random) {
    if (order == Order::Definition) {
      memory.segment = start;
      define(pass,
             [&](const auto &code) { reduceAll(code, 0, memory.length()); });
    } else if (order == Order::Stream) {
      readInOrder(pass);
    } else {
      Segment<T> whole = readTree(pass, 0, memory.length(), order, random);
      // Merging with nothing leads back from random pivots.
      if (order == Order::Pivots)
        mergeSegments(pass, whole, identitySegment(pass));
      else
        memory.segment = std::move(whole);
    }
    for (const DefinitionCode<T> &code : codes)
      if (code.pass == pass && !code.state)
        computeLet(code);
    start = memory.segment;
  }

  RowValues<T> run(const Sample &sample, Order order, Random &random) {
    memory.load(sample);
    start.assign(memory.segment.size(), T(0));
    isShifted = order == Order::Shifted;
    for (unsigned pass = 0; pass <= lastPass; ++pass)
      runPass(pass, order, random);
    RowValues<T> result;
    for (const auto &stage : readouts) {
      result.stages.emplace_back();
      for (const OutputCode &readout : stage)
        result.stages.back().push_back(valuesOf(readout));
    }
    for (const OutputCode &output : outputs)
      result.outputs.push_back(valuesOf(output));
    result.isSaturated = memory.saturated;
    result.isUndecided = memory.undecided;
    uint32_t length = sample.length(program.indices);
    regular = true;
    for (size_t i = 0; i < readouts.size(); ++i)
      for (size_t k = 0; k < readouts[i].size(); ++k) {
        const std::vector<T> &values = result.stages[i][k];
        for (uint32_t at = 0; at < values.size(); ++at)
          regular &= isVacant(readouts[i][k].shape, at, length) ||
                     bool(std::isfinite(double(values[at])));
      }
    for (const DefinitionCode<T> &code : codes) {
      result.definitions.emplace_back();
      for (const Slot &slot : code.slots)
        for (T value : memory.read(slot))
          result.definitions.back().push_back(value);
      bool hasVacancies = code.state && code.k > length;
      for (T value : memory.read(code.slots[0]))
        regular &= bool(std::isfinite(double(value))) ||
                   (hasVacancies && std::isinf(double(value)) &&
                    (double(value) < 0) == code.state->largest);
    }
    return result;
  }
  /// Whether nothing of a row of `length` elements can be at that tuple: a
  /// place of a list behind it.
  bool isVacant(const Shape &shape, uint32_t tuple, uint32_t length) const {
    for (auto [index, stride] : shape.steps)
      if (ranks.contains(index) &&
          tuple / stride % memory.extents[index] >= length)
        return true;
    return false;
  }
  std::vector<T> valuesOf(const OutputCode &output) {
    if (output.value.empty())
      return {};
    return memory.evaluateAll(output.value[0], output.shape);
  }

  /// Adds whole numbers, which are exact: where(guard, 1, 0).
  static bool isCount(Expr value) {
    if (value.is(Kind::Select))
      return isCount(value.operand(1)) && isCount(value.operand(2));
    return value.constant() &&
           *value.constant() == std::trunc(*value.constant());
  }

  /// Σ |value| over the elements, by slot of sums that round; |value| of
  /// products.
  std::vector<T> magnitudes() {
    std::vector<T> result(memory.segment.size(), T(0));
    elementRounding.assign(memory.segment.size(), {T(0), T(0)});
    for (const DefinitionCode<T> &code : codes) {
      bool isSum = code.state && code.state->reducer == Reducer::Sum;
      if (!isSum && !(code.state && code.state->reducer == Reducer::Prod))
        continue;
      if (isCount(code.state->values[0]))
        continue;
      uint32_t first = code.slots[0].offset;
      forEachTuple(code.shape, memory.extents, memory.positions.data(),
                   [&](uint32_t tuple) {
                     T &sum = result[first + tuple];
                     if (!isSum)
                       sum = fabs(at(code.slots[0], tuple));
                     for (uint32_t i = 0; isSum && i < memory.length(); ++i) {
                       memory.moveTo(i);
                       sum = sum + fabs(code.values[0].run(memory.frame()));
                       if (readsElements)
                         addRoundings(code.values[0],
                                      elementRounding[first + tuple]);
                     }
                   });
    }
    return result;
  }

  /// Of the operations that make an element, and of adding it.
  void addRoundings(const Code<T> &value, Roundings<T> &sum) {
    Roundings<T> own =
        value.differentiate(memory.frame(), T(1), [](Base, uint32_t, T) {});
    sum.relative = sum.relative + own.relative;
    sum.absolute = sum.absolute + own.absolute + T(1);
  }

  /// Adjoints run backwards through the lets, but not through pivots.
  Amplification amplifyOne(const Code<T> &code, T scale,
                           const std::vector<T> &sizes) {
    if (scale == T(0))
      return {kInfinity, kInfinity, kInfinity};
    std::vector<T> adjoints(memory.segment.size(), T(0));
    auto leaf = [&](Base base, uint32_t offset, T adjoint) {
      if (base == Current)
        adjoints[offset] = adjoints[offset] + adjoint;
    };
    Roundings<T> epilogue = code.differentiate(memory.frame(), T(1), leaf);
    T states(0);
    auto add = [&](const Roundings<T> &own, T times) {
      epilogue.relative = epilogue.relative + own.relative * times;
      epilogue.absolute = epilogue.absolute + own.absolute * times;
    };
    for (size_t i = codes.size(); i-- > 0;) {
      const DefinitionCode<T> &own = codes[i];
      for (uint32_t tuple = 0; tuple < own.shape.size * own.k; ++tuple) {
        uint32_t offset = own.slots[0].offset + tuple;
        T adjoint = adjoints[offset];
        if (adjoint == T(0) || !isfinite(adjoint))
          continue;
        if (own.state) {
          states = states + fabs(adjoint) * sizes[offset];
          add(elementRounding[offset], fabs(adjoint));
        } else if (own.gauge.empty() && own.shape.size == 1)
          add(own.values[0].differentiate(memory.frame(), adjoint, leaf), T(1));
      }
    }
    return {double(states / scale), double(epilogue.relative / scale),
            double(epilogue.absolute / scale)};
  }

  std::vector<Amplification> amplify(bool withElements) {
    readsElements = withElements;
    std::vector<T> sizes = magnitudes();
    std::vector<Amplification> result;
    for (const OutputCode &output : outputs) {
      T largest(0);
      for (T value : valuesOf(output))
        largest = fabs(value) < largest ? largest : fabs(value);
      Amplification worst;
      forEachTuple(
          output.shape, memory.extents, memory.positions.data(), [&](uint32_t) {
            Amplification own = amplifyOne(output.value[0], largest, sizes);
            worst.states = std::max(worst.states, own.states);
            worst.epilogue = std::max(worst.epilogue, own.epilogue);
            worst.underflow = std::max(worst.underflow, own.underflow);
          });
      result.push_back(worst);
    }
    return result;
  }

  const Program &program;
  Memory<T> memory;
  std::vector<DefinitionCode<T>> codes;
  std::vector<std::vector<OutputCode>> readouts;
  std::set<int> ranks; ///< of lists
  std::vector<OutputCode> outputs;
  ExprSet pivots, needed, fixed;
  std::unordered_map<const Symbol *, Slot> gauges;
  Segment<T> start; ///< values of earlier passes
  unsigned lastPass = 0;
  Defect defect;
  bool isShifted = false; ///< of the present run
  bool regular = true;
  bool readsElements = false;
  /// By slot of sums: roundings of the elements' own operations.
  std::vector<Roundings<T>> elementRounding;
};

template <typename T>
ProgramEvaluator<T>::ProgramEvaluator(const Program &program,
                                      const std::vector<uint32_t> &extents,
                                      Defect defect)
    : impl(std::make_unique<Impl>(program, extents, defect)) {}
template <typename T> ProgramEvaluator<T>::~ProgramEvaluator() = default;
template <typename T>
RowValues<T> ProgramEvaluator<T>::run(const Sample &sample, Order order,
                                      Random &random) {
  return impl->run(sample, order, random);
}
template <typename T> bool ProgramEvaluator<T>::isRegular() const {
  return impl->regular;
}

template <typename T>
std::vector<Amplification> ProgramEvaluator<T>::amplify(bool withElements) {
  return impl->amplify(withElements);
}

template class ProgramEvaluator<float>;
template class ProgramEvaluator<double>;
template class ProgramEvaluator<DoubleDouble>;
template class ProgramEvaluator<Interval>;

} // namespace refold::algebra
