// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_EVALUATEMEMORY_H
#define REFOLD_LIB_ALGEBRA_EVALUATEMEMORY_H

#include "EvaluateCode.h"
#include "refold/Algebra/Evaluate.h"

#include <algorithm>
#include <cassert>

namespace refold::algebra::evaluate {

inline constexpr double kInfinity = std::numeric_limits<double>::infinity();

/// The values of one row: inputs, and segments that hold everything computed.
template <typename T> class Memory {
public:
  Memory(const std::vector<Index> &indices,
         const std::vector<uint32_t> &extents)
      : extents(extents), positions(indices.size() + 1, 0) {
    for (size_t i = 0; i < indices.size(); ++i) {
      if (indices[i].role == IndexRole::Stream)
        stream |= IndexSet(1) << i;
      addInput(indices[i].value);
      addInput(indices[i].length);
    }
    streamShape = shapeOf(stream, extents);
  }

  /// Makes room for the inputs that `roots` read.
  void addInputs(const std::vector<Expr> &roots) {
    for (Expr root : roots)
      for (Expr symbol : symbolsOf(root))
        addInput(symbol);
  }
  /// Makes room in every segment.
  Slot addResult(Expr symbol, IndexSet indices) {
    Slot slot = addScratch(indices);
    slots[&symbol.symbol()] = slot;
    return slot;
  }
  Slot addScratch(IndexSet indices) {
    Slot slot{Current, segmentSize, indices};
    segmentSize += shapeOf(indices, extents).size;
    segment.resize(segmentSize);
    return slot;
  }
  bool has(Expr symbol) const { return slots.count(&symbol.symbol()); }
  Slot slotOf(Expr symbol) const {
    assert(has(symbol) && "symbol that nothing defines");
    return slots.at(&symbol.symbol());
  }

  /// The shape of `indices` without `rank`, and the step along that rank.
  Shape withoutRank(IndexSet indices, int rank, uint32_t &step) const {
    step = 1;
    if (rank < 0)
      return shapeOf(indices, extents);
    for (auto [index, stride] : shapeOf(indices, extents).steps)
      if (index == rank)
        step = stride;
    return shapeOf(indices & ~(IndexSet(1) << rank), extents);
  }

  /// Places of a top-k; samples bound the extents of ranks.
  uint32_t ranks(int64_t k, int rank) const {
    return rank < 0 ? 1 : uint32_t(std::min<int64_t>(k, extents[size_t(rank)]));
  }

  void load(const Sample &sample) {
    assert(sample.extents == extents && "made for samples of another shape");
    saturated = undecided = false;
    slack = sample.slack;
    for (const auto &[symbol, slot] : slots) {
      if (slot.base != Input)
        continue;
      auto it = sample.values.find(symbol);
      for (uint32_t i = 0, e = shapeOf(slot.indices, extents).size; i < e; ++i)
        inputs[slot.offset + i] =
            it == sample.values.end() ? T(0) : T(it->second[i]);
    }
    if constexpr (std::is_same_v<T, DoubleDouble>)
      if (sample.jitter != 0)
        shake(sample.jitter);
  }

  uint32_t length() const { return streamShape.size; }
  void moveTo(uint32_t at) {
    for (auto [index, stride] : streamShape.steps)
      positions[index] = at / stride % extents[index];
  }

  Frame<T> frame(const T *previous = nullptr) {
    return {{inputs.data(), segment.data(), previous},
            positions.data(),
            &saturated,
            &undecided,
            slack};
  }
  /// Where the value at the present positions lies in the current segment.
  T *place(Slot slot) {
    return segment.data() + slot.offset +
           offsetIn(shapeOf(slot.indices, extents), positions.data());
  }
  std::vector<T> read(Slot slot) const {
    auto begin = segment.begin() + slot.offset;
    return {begin, begin + shapeOf(slot.indices, extents).size};
  }
  std::vector<T> evaluateAll(const Code<T> &code, const Shape &shape) {
    std::vector<T> values;
    values.reserve(shape.size);
    forEachTuple(shape, extents, positions.data(),
                 [&](uint32_t) { values.push_back(code.run(frame())); });
    return values;
  }

  std::vector<uint32_t> extents;
  std::vector<uint32_t> positions;
  IndexSet stream = 0;
  bool saturated = false; ///< since `load`
  bool undecided = false; ///< since `load`
  CastSlack slack = CastSlack::None;
  std::vector<T> segment; ///< the current one

private:
  void shake(double jitter) {
    for (const auto &[symbol, slot] : slots) {
      if (slot.base != Input || !isFloat(symbol->type))
        continue;
      Random random(symbol->id + 1);
      for (uint32_t i = 0, e = shapeOf(slot.indices, extents).size; i < e;
           ++i) {
        DoubleDouble &value = inputs[slot.offset + i];
        DoubleDouble change(jitter * random.uniform(-1, 1));
        if (isfinite(value))
          value += value * change;
      }
    }
  }

  void addInput(Expr symbol) {
    if (!symbol || !symbol.isSym() || has(symbol))
      return;
    Role role = symbol.symbol().role;
    if (role != Role::Element && role != Role::Parameter && role != Role::Index)
      return;
    slots[&symbol.symbol()] = {Input, uint32_t(inputs.size()),
                               symbol.symbol().indices};
    inputs.resize(inputs.size() +
                  shapeOf(symbol.symbol().indices, extents).size);
  }

  std::unordered_map<const Symbol *, Slot> slots;
  std::vector<T> inputs;
  Shape streamShape;
  uint32_t segmentSize = 0;
};

} // namespace refold::algebra::evaluate

#endif // REFOLD_LIB_ALGEBRA_EVALUATEMEMORY_H
