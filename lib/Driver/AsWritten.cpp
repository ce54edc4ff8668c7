// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/AsWritten.h"
#include <cmath>

namespace refold {

/// Sums in another order and functions of one more unit make a difference of
/// some times; a wrong element, a wrong position or a forgotten rescaling makes
/// one of thousands.
static constexpr double kFactor = 16.0, kUnits = 64.0;
/// More than half of the digits of a number by itself.
static constexpr double kHalfOfDigits = 0x1p-12;
/// Beside what others err on their worst row: where digits cancel, the order of
/// a sum may leave a row none that another has by luck.
static constexpr double kOfWorstRow = 256.0;
/// Of results below nothing is owed.
static constexpr double kLeast = 0x1p-100, kLeastInF64 = 0x1p-996;
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

llvm::Expected<int64_t> AsWritten::countWrongRows(size_t output,
                                                  const Tensor &result) {
  const RefOutput &exact = run.exact[output];
  if (exact.selects)
    return 0;
  const Apart &apart = run.owed.apartOf(output);
  double least = result.dtype() == DType::F64 ? kLeastInF64 : kLeast;
  auto isIn = [](const llvm::BitVector &elements, int64_t i) {
    return !elements.empty() && elements.test(i);
  };
  auto errorAt = [&](const Tensor &of, int64_t i) {
    double value = of.get(i); // of a class that is looked at elsewhere
    return std::isfinite(value)
               ? distanceFromRounding(of.dtype(), value, exact.value.exact(i))
               : HUGE_VAL;
  };
  auto sizeAt = [&](int64_t i) { return std::abs(exact.value.get(i)); };
  std::vector<int64_t> owed, wrong;
  for (int64_t i = 0, e = result.numElements(); i < e; ++i)
    if (std::isfinite(sizeAt(i)) && sizeAt(i) >= least &&
        !isIn(apart.lost, i) && !isIn(apart.touched, i))
      owed.push_back(i);
  for (int64_t i : owed)
    if (std::isfinite(result.get(i)) &&
        errorAt(result, i) > kHalfOfDigits * sizeAt(i))
      wrong.push_back(i);
  auto erase = [&](const Tensor &beside) {
    double worst = 0.0;
    for (int64_t i : owed)
      if (std::isfinite(beside.get(i)))
        worst = std::max(worst, errorAt(beside, i) / sizeAt(i));
    llvm::erase_if(wrong, [&](int64_t i) {
      return !std::isfinite(beside.get(i)) ||
             errorAt(result, i) <= kOfWorstRow * worst * sizeAt(i);
    });
  };
  const Tensor &unfused = run.outputs[output];
  if (&result != &unfused)
    erase(unfused);
  for (size_t seen = 0; !wrong.empty(); ++seen) {
    if (seen == found.size()) {
      auto hasMore = evaluateNext();
      if (!hasMore)
        return hasMore.takeError();
      if (!*hasMore)
        break;
    }
    erase(found[seen][output]);
  }
  int64_t count = 0;
  for (int64_t i : wrong) {
    auto isUnknown = run.owed.isUnknown(output, i, sizeAt(i), exact);
    if (!isUnknown)
      return isUnknown.takeError();
    count += !*isUnknown;
  }
  return count;
}

bool isOfRows(const Port &output, llvm::ArrayRef<Port> inputs,
              llvm::ArrayRef<std::string> streamAxes) {
  auto has = [](const Port &port, llvm::StringRef axis) {
    for (unsigned dim = 0; dim < port.dims.size(); ++dim)
      if (dimName(port, dim) == axis)
        return true;
    return false;
  };
  auto hasStream = [&](const Port &port) {
    return llvm::any_of(
        streamAxes, [&](const std::string &axis) { return has(port, axis); });
  };
  if (output.dims.empty() || hasStream(output))
    return false;
  return output.dims.size() == 1 ||
         llvm::any_of(inputs, [&](const Port &input) {
           for (unsigned dim = 0; dim < output.dims.size(); ++dim)
             if (!has(input, dimName(output, dim)))
               return false;
           return hasStream(input);
         });
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
