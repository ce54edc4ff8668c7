// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/AsWritten.h"
#include "refold/Driver/Inputs.h"

namespace refold {

/// Sums in another order and functions of one more unit make a difference of
/// some times; a wrong element, a wrong position or a forgotten rescaling makes
/// one of thousands.
static constexpr double kFactor = 16.0, kUnits = 64.0;
/// Of the last bits of the inputs, evaluation by evaluation.
static constexpr int kMoves[] = {0, 1, 8, 64};

static bool isNarrow(const Tensor &tensor) {
  return isFloat(tensor.dtype()) && byteWidth(tensor.dtype()) < 4;
}

AsWritten::AsWritten(const UnfusedRun &run) : run(run), random(run.seed) {
  how.roundEveryOp = true;
  // Where results are rounded when they are stored, what they err before is
  // mostly not seen behind, and then all at once.
  how.keepOutputsExact = llvm::any_of(run.outputs, isNarrow);
  how.limits = run.limits;
}

llvm::Error AsWritten::evaluate(llvm::ArrayRef<Tensor> inputs) {
  auto evaluated = evaluateProgram(run.function, inputs, how);
  if (!evaluated)
    return evaluated.takeError();
  std::vector<Tensor> &tensors = found.emplace_back();
  for (auto [value, output] : llvm::zip_equal(*evaluated, run.outputs)) {
    auto tensor =
        stored(value.value, isNarrow(output) ? DType::F32 : output.dtype());
    if (!tensor)
      return tensor.takeError();
    tensors.push_back(std::move(*tensor));
    if (found.size() > 1)
      continue;
    tensor = stored(value.value, output.dtype());
    if (!tensor)
      return tensor.takeError();
    first.push_back(std::move(*tensor));
  }
  return llvm::Error::success();
}

/// What the last bits of inputs and functions decide, nobody is blamed for.
/// False where all has been evaluated.
llvm::Expected<bool> AsWritten::evaluateNext() {
  if (found.size() == std::size(kMoves))
    return false;
  int moves = kMoves[found.size()];
  std::vector<Tensor> moved;
  for (const Tensor &input : run.inputs) {
    auto copy = input.clone();
    if (!copy)
      return copy.takeError();
    for (int move = 0; move < moves; ++move)
      moveLastBits(*copy, random);
    moved.push_back(std::move(*copy));
  }
  if (moves)
    how.functionNoise = moves;
  if (llvm::Error error = evaluate(moved))
    return std::move(error);
  return true;
}

double AsWritten::errorOf(const Tensor &result, size_t output) const {
  Deviation found = compare(result, run.exact[output], /*isRunning=*/false,
                            /*leastOfRow=*/1, run.owed.apartOf(output));
  return std::max(found.error, found.touchedError);
}

/// Are all within their bounds?
bool AsWritten::setBounds(
    llvm::MutableArrayRef<UnfusedVerdict> verdicts) const {
  bool isGood = true;
  for (auto [i, one] : llvm::enumerate(verdicts)) {
    one.writtenError = 0.0;
    for (const std::vector<Tensor> &other : found)
      one.writtenError = std::max(one.writtenError, errorOf(other[i], i));
    one.bound =
        kFactor * one.writtenError + kUnits * ulpOf(run.outputs[i].dtype());
    isGood &= one.error <= one.bound;
  }
  return isGood;
}

llvm::Error AsWritten::judge(NanPolicy nans,
                             llvm::MutableArrayRef<UnfusedVerdict> verdicts) {
  bool hasClasses = true;
  for (auto [i, one] : llvm::enumerate(verdicts)) {
    one.error = errorOf(run.outputs[i], i);
    hasClasses &= compare(run.outputs[i], run.exact[i]).wrongClass == 0;
  }
  if (setBounds(verdicts) && hasClasses)
    return llvm::Error::success();
  if (found.empty())
    if (auto evaluated = evaluateNext(); !evaluated)
      return evaluated.takeError();
  for (auto [i, one] : llvm::enumerate(verdicts)) {
    auto losses = run.owed.countUnfusedLosses(i, run.outputs[i], first[i],
                                              run.exact[i], nans);
    if (!losses)
      return losses.takeError();
    one.losses += *losses;
  }
  while (!setBounds(verdicts)) {
    auto hasMore = evaluateNext();
    if (!hasMore)
      return hasMore.takeError();
    if (!*hasMore)
      break;
  }
  return llvm::Error::success();
}

} // namespace refold
