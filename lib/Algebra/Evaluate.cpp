// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Evaluate.h"

#include "EvaluateMemory.h"
#include "EvaluateReduce.h"

namespace refold::algebra {
using namespace evaluate;

template <typename T> struct DefinitionEvaluator<T>::Impl {
  struct StageCode {
    std::vector<Code<T>> values; ///< the term, then the payloads
    std::vector<Slot> slots;     ///< of the results
    Shape outer;                 ///< results without the stage's own rank
    uint32_t rankStep = 1;
    bool isRounded = false; ///< a sum of other than whole numbers
  };
  struct OutputCode {
    Code<T> value;
    Shape shape;
  };

  Impl(const Cascade &cascade, const std::vector<uint32_t> &extents)
      : cascade(cascade), memory(cascade.indices, extents) {
    memory.addInputs(rootsOf(cascade));
    for (const Stage &stage : cascade.stages)
      for (Expr result : stage.results)
        memory.addResult(result, stage.indices);
    auto resolve = [this](Expr symbol) { return memory.slotOf(symbol); };
    for (const Stage &stage : cascade.stages) {
      StageCode code;
      code.values.emplace_back(stage.term, resolve, extents);
      for (Expr payload : stage.payloads)
        code.values.emplace_back(payload, resolve, extents);
      for (Expr result : stage.results)
        code.slots.push_back(memory.slotOf(result));
      code.outer = memory.withoutRank(stage.indices, stage.rank, code.rankStep);
      code.isRounded =
          stage.reducer == Reducer::Sum && readsNumbers(stage.term);
      stages.push_back(std::move(code));
    }
    for (const Output &output : cascade.outputs)
      outputs.push_back({Code<T>(output.value, resolve, extents),
                         shapeOf(output.value.indices(), extents)});
  }

  /// Elements are in the value, not only in what it asks about them.
  static bool readsNumbers(Expr root) {
    ExprSet seen;
    std::vector<Expr> open = {root};
    while (!open.empty()) {
      Expr e = open.back();
      open.pop_back();
      if (e.is(Kind::Cmp) || !isFloat(e.type()) || !seen.insert(e).second)
        continue;
      if (e.isSym(Role::Element))
        return true;
      for (unsigned i = 0; i < e.size(); ++i)
        open.push_back(e.operand(i));
    }
    return false;
  }

  /// Any order of summation rounds otherwise.
  void shakeSum(size_t number, double jitter) {
    if constexpr (std::is_same_v<T, DoubleDouble>) {
      Random random(number + 1);
      for (const Slot &slot : stages[number].slots)
        for (uint32_t i = 0, e = shapeOf(slot.indices, memory.extents).size;
             i < e; ++i) {
          DoubleDouble &value = memory.segment[slot.offset + i];
          if (isfinite(value))
            value += value * DoubleDouble(jitter * random.uniform(-1, 1));
        }
    }
  }

  void runStage(const Stage &stage, const StageCode &code) {
    forEachTuple(code.outer, memory.extents, memory.positions.data(),
                 [&](uint32_t) {
                   if (stage.reducer == Reducer::TopK)
                     runTopK(stage, code);
                   else
                     runReduction(stage, code);
                 });
  }

  void runReduction(const Stage &stage, const StageCode &code) {
    T sum = identityOf<T>(stage.reducer, stage.term.type());
    for (uint32_t at = 0; at < memory.length(); ++at) {
      memory.moveTo(at);
      sum = reduce(stage.reducer, sum, code.values[0].run(memory.frame()));
    }
    *memory.place(code.slots[0]) = sum;
  }

  void runTopK(const Stage &stage, const StageCode &code) {
    T filled(0);
    TopList<T> list{{},
                    code.rankStep,
                    memory.ranks(stage.k, stage.rank),
                    stage.largest,
                    &filled};
    for (size_t i = 0; i < code.slots.size(); ++i) {
      list.lists.push_back(memory.place(code.slots[i]));
      T missing = i == 0 ? T(stage.largest ? -kInfinity : kInfinity)
                         : missingPayload<T>(stage.results[i].type());
      for (uint32_t rank = 0; rank < list.k; ++rank)
        list.lists[i][rank * list.step] = missing;
    }
    std::vector<T> element(code.values.size(), T(0));
    for (uint32_t at = 0; at < memory.length(); ++at) {
      memory.moveTo(at);
      for (size_t i = 0; i < code.values.size(); ++i)
        element[i] = code.values[i].run(memory.frame());
      list.insert(element);
    }
  }

  RowValues<T> run(const Sample &sample) {
    memory.load(sample);
    RowValues<T> result;
    for (size_t i = 0; i < stages.size(); ++i) {
      runStage(cascade.stages[i], stages[i]);
      if (sample.jitter != 0 && stages[i].isRounded)
        shakeSum(i, sample.jitter);
      result.stages.emplace_back();
      for (Slot slot : stages[i].slots)
        result.stages.back().push_back(memory.read(slot));
    }
    for (const OutputCode &output : outputs)
      result.outputs.push_back(memory.evaluateAll(output.value, output.shape));
    result.isSaturated = memory.saturated;
    result.isUndecided = memory.undecided;
    return result;
  }

  const Cascade &cascade;
  Memory<T> memory;
  std::vector<StageCode> stages;
  std::vector<OutputCode> outputs;
};

template <typename T>
DefinitionEvaluator<T>::DefinitionEvaluator(
    const Cascade &cascade, const std::vector<uint32_t> &extents)
    : impl(std::make_unique<Impl>(cascade, extents)) {}
template <typename T> DefinitionEvaluator<T>::~DefinitionEvaluator() = default;
template <typename T>
RowValues<T> DefinitionEvaluator<T>::run(const Sample &sample) {
  return impl->run(sample);
}

template class DefinitionEvaluator<float>;
template class DefinitionEvaluator<double>;
template class DefinitionEvaluator<DoubleDouble>;
template class DefinitionEvaluator<Interval>;

} // namespace refold::algebra
