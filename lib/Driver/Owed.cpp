// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Owed.h"
#include "refold/Driver/Inputs.h"
#include <cmath>

namespace refold {

/// An error of this part of the row's largest has lost half of the digits.
static constexpr double kHalfOfDigits = 0x1p-12;

llvm::Error Owed::evaluateBeyond() {
  if (!beyond.empty())
    return llvm::Error::success();
  EvaluationOptions how;
  how.roundEveryOp = how.keepOutputsExact = true;
  how.limits = limits;
  for (auto [range, into] : {std::pair(BeyondRange::AsIs, &asWritten),
                             std::pair(BeyondRange::IsNan, &beyond)}) {
    how.beyondRange = range;
    auto found = evaluateProgram(function, inputs, how);
    if (!found)
      return found.takeError();
    *into = std::move(*found);
  }
  return llvm::Error::success();
}

llvm::Error Owed::evaluateOthers() {
  if (!others.empty())
    return llvm::Error::success();
  EvaluationOptions how;
  how.keepOutputsExact = true;
  how.limits = limits;
  auto evaluate = [&](llvm::ArrayRef<Tensor> of) -> llvm::Error {
    auto found = evaluateProgram(function, of, how);
    if (!found)
      return found.takeError();
    others.push_back(std::move(*found));
    return llvm::Error::success();
  };
  how.beyondRange = BeyondRange::IsKept;
  if (llvm::Error error = evaluate(inputs))
    return error;
  how.beyondRange = BeyondRange::AsIs;
  return eachMoved(inputs, seed, evaluate);
}

bool Owed::isBeyond(size_t output, int64_t element,
                    const RefOutput &exact) const {
  return std::isnan(beyond[output].value.get(element)) &&
         !std::isnan(exact.value.get(element));
}

/// What is right in spite of what has left the range (e^-inf) is not lost.
bool Owed::isLostAsWritten(size_t output, int64_t element,
                           const RefOutput &exact) const {
  double expected = exact.value.get(element),
         found = asWritten[output].value.get(element);
  if (!isBeyond(output, element, exact))
    return false;
  if (!std::isfinite(found) || !std::isfinite(expected))
    return found != expected;
  return std::abs(found - expected) > kHalfOfDigits * std::abs(expected);
}

/// Of each row, its largest number.
static std::vector<double> sizesOf(const RefTensor &values, int64_t rowLength) {
  std::vector<double> sizes(llvm::divideCeil(values.numElements(), rowLength));
  for (int64_t i = 0, e = values.numElements(); i < e; ++i)
    if (std::isfinite(values.get(i)))
      sizes[i / rowLength] =
          std::max(sizes[i / rowLength], std::abs(values.get(i)));
  return sizes;
}

llvm::Error Owed::dropLost(llvm::ArrayRef<Tensor> unfused,
                           std::vector<RefOutput> &exact) {
  for (auto [output, found, reference] : llvm::enumerate(unfused, exact)) {
    if (reference.selects || !isFloat(found.dtype()) ||
        compare(found, reference).error <= kHalfOfDigits)
      continue;
    if (llvm::Error error = evaluateBeyond())
      return error;
    lost.resize(exact.size());
    lost[output].resize(found.numElements());
    int64_t rowLength =
        found.rank() ? std::max<int64_t>(found.shape().back(), 1) : 1;
    std::vector<double> sizes = sizesOf(reference.value, rowLength);
    RefTensor kept = reference.value.clone();
    for (int64_t i = 0, e = found.numElements(); i < e; ++i) {
      double value = found.get(i), expected = reference.value.get(i);
      if (!std::isfinite(value) || !std::isfinite(expected) ||
          !isBeyond(output, i, reference) ||
          distanceFromRounding(found.dtype(), value, expected) <=
              kHalfOfDigits * sizes[i / rowLength])
        continue;
      lost[output].set(i);
      setFloat(kept.at(i), kept.isWide(), std::nan(""));
    }
    reference.value = std::move(kept);
  }
  return llvm::Error::success();
}

/// Losses but for those whose class another evaluation has.
llvm::Expected<int64_t> Owed::countDecided(size_t output, const Tensor &found,
                                           llvm::ArrayRef<int64_t> losses) {
  if (losses.empty())
    return 0;
  if (llvm::Error error = evaluateOthers())
    return std::move(error);
  return llvm::count_if(losses, [&](int64_t i) {
    return llvm::none_of(others, [&](const std::vector<RefOutput> &other) {
      return hasClassOf(found, i, other[output]);
    });
  });
}

llvm::Expected<int64_t> Owed::countLosses(size_t output, const Tensor &fused,
                                          const Tensor &unfused,
                                          const RefOutput &exact,
                                          NanPolicy policy) {
  std::vector<int64_t> losses = findClassLosses(fused, unfused, exact, policy);
  if (exact.selects)
    return int64_t(losses.size());
  if (output < lost.size() && !lost[output].empty())
    llvm::erase_if(losses, [&](int64_t i) { return lost[output].test(i); });
  if (losses.empty())
    return 0;
  if (llvm::Error error = evaluateBeyond())
    return std::move(error);
  llvm::erase_if(losses,
                 [&](int64_t i) { return isLostAsWritten(output, i, exact); });
  return countDecided(output, fused, losses);
}

llvm::Expected<int64_t> Owed::countUnfusedLosses(size_t output,
                                                 const Tensor &unfused,
                                                 const Tensor &written,
                                                 const RefOutput &exact,
                                                 NanPolicy policy) {
  std::vector<int64_t> losses =
      findClassLosses(unfused, written, exact, policy);
  if (exact.selects || losses.empty())
    return int64_t(losses.size());
  if (llvm::Error error = evaluateBeyond())
    return std::move(error);
  llvm::erase_if(losses, [&](int64_t i) { return isBeyond(output, i, exact); });
  if (losses.empty())
    return 0;
  if (llvm::Error error = evaluateOthers())
    return std::move(error);
  // Double itself has left its range: it does not know the class.
  auto isUnknown = [&](int64_t i) {
    double kept = others.front()[output].value.get(i);
    return std::isfinite(kept) && !std::isfinite(exact.value.get(i));
  };
  llvm::erase_if(losses, isUnknown);
  return countDecided(output, unfused, losses);
}

} // namespace refold
