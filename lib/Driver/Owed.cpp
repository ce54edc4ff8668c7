// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Owed.h"
#include "refold/Driver/Inputs.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include <cmath>

namespace refold {

/// An error of this part of the row's largest has lost half of the digits.
static constexpr double kHalfOfDigits = 0x1p-12;
/// What the range changes by less than this is rounding: a sum of a number and
/// one that is subnormal in one evaluation and not in the other.
static constexpr double kTouched = 0x1p-20;
/// What the range takes in the order as written is known to this factor: sums
/// in another order, and products that an FMA does not round, lose several
/// times as much or as little.
static constexpr double kLuck = 16.0;
/// The same where the fused program is to have what the unfused one has.
static constexpr double kLuckOfFused = 4.0;
/// Last bits that cancel in one of a hundred draws do not in so many.
static constexpr uint64_t kDraws = 2;

llvm::Error Owed::evaluate(EvaluationOptions how, Results &results,
                           llvm::ArrayRef<Tensor> of) {
  how.keepOutputsExact = true;
  how.limits = limits;
  auto found = evaluateProgram(function, of, how);
  if (!found)
    return found.takeError();
  results.push_back(std::move(*found));
  return llvm::Error::success();
}

llvm::Error Owed::evaluateAsWritten(bool isWide) {
  if (!asWritten.empty())
    return llvm::Error::success();
  EvaluationOptions how;
  how.roundEveryOp = true;
  how.isWide = isWide; // of all the same, so that functions are
  how.beyondRange = BeyondRange::IsUnlimited;
  if (llvm::Error error = evaluate(how, unlimited, inputs))
    return error;
  how.beyondRange = BeyondRange::AsIs;
  for (int draw = 0; draw < 3; ++draw) {
    if (draw > 0) // of two, to opposite sides
      how.subnormalNoise = 2 * seed + draw - 1;
    if (llvm::Error error = evaluate(how, asWritten, inputs))
      return error;
    if (!isTouched())
      break; // nor by luck
  }
  return llvm::Error::success();
}

llvm::Error Owed::evaluateSigns() {
  if (!ofOneSign.empty())
    return llvm::Error::success();
  EvaluationOptions how;
  how.roundEveryOp = true;
  how.beyondRange = BeyondRange::PlusOfBoth;
  if (llvm::Error error = evaluate(how, ofOneSign, inputs))
    return error;
  how.beyondRange = BeyondRange::MinusOfBoth;
  return evaluate(how, ofOneSign, inputs);
}

llvm::Error Owed::evaluateOthers() {
  if (!others.empty())
    return llvm::Error::success();
  EvaluationOptions how;
  how.beyondRange = BeyondRange::IsKept;
  if (llvm::Error error = evaluate(how, others, inputs))
    return error;
  return eachMoved(inputs, seed, [&](llvm::ArrayRef<Tensor> moved) {
    return evaluate(EvaluationOptions(), others, moved);
  });
}

llvm::Error Owed::evaluateWithNoise(bool isWide) {
  if (!withNoise.empty())
    return llvm::Error::success();
  EvaluationOptions how;
  how.isWide = isWide;
  for (uint64_t draw = 0; draw < kDraws; ++draw) {
    how.ownNoise = kDraws * seed + draw;
    if (llvm::Error error = evaluate(how, withNoise, inputs))
      return error;
  }
  return llvm::Error::success();
}

/// What the last bits of double do to an element.
double Owed::doubtOf(size_t output, int64_t element,
                     const RefOutput &exact) const {
  double expected = exact.value.get(element), doubt = 0.0;
  for (const Outputs &draw : withNoise)
    if (double found = draw[output].value.get(element); std::isfinite(found))
      doubt = std::max(doubt, std::abs(found - expected));
  return doubt;
}

llvm::Expected<bool> Owed::isUnknown(size_t output, int64_t element,
                                     double size, const RefOutput &exact) {
  if (llvm::Error error = evaluateWithNoise(exact.value.isWide()))
    return std::move(error);
  return doubtOf(output, element, exact) > kHalfOfDigits * size;
}

/// Inputs with numbers in the place of their NaNs and infinities: 0 times a
/// masked infinity is a NaN, too.
llvm::Error Owed::evaluateWithoutNans() {
  if (!withoutNans.empty())
    return llvm::Error::success();
  for (double number : {0.0, 9.0, -9.0}) {
    std::vector<Tensor> changed;
    for (const Tensor &input : inputs) {
      auto copy = input.clone();
      if (!copy)
        return copy.takeError();
      for (int64_t i = 0, e = copy->numElements(); i < e; ++i)
        if (isFloat(copy->dtype()) && !std::isfinite(copy->get(i)))
          copy->set(i, number);
      changed.push_back(std::move(*copy));
    }
    if (llvm::Error error = evaluate(EvaluationOptions(), withoutNans, changed))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error Owed::evaluateMasked() {
  if (!masked.empty())
    return llvm::Error::success();
  EvaluationOptions how;
  how.beyondRange = BeyondRange::IsMasked;
  return evaluate(how, masked, inputs);
}

/// Does another number in the place of a NaN or an infinity change the element?
/// If not, it was of a value that the program masks.
bool Owed::readsNan(size_t output, int64_t element) const {
  double first = withoutNans.front()[output].value.get(element);
  return llvm::any_of(withoutNans, [&](const Outputs &other) {
    double value = other[output].value.get(element);
    return std::isfinite(first) && std::isfinite(value) && value != first;
  });
}

/// What the range takes of an element, as a part of `size`, the largest of the
/// draws. Where it decides the class, everything.
double Owed::lossOf(size_t output, int64_t element, double size) const {
  double loss = 0.0, whole = unlimited.front()[output].value.get(element);
  for (const Outputs &draw : asWritten) {
    double limited = draw[output].value.get(element);
    if (limited == whole || (std::isnan(limited) && std::isnan(whole)))
      continue;
    bool isNumber = std::isfinite(limited) && std::isfinite(whole);
    loss =
        isNumber ? std::max(loss, std::abs(limited - whole) / size) : HUGE_VAL;
  }
  return loss;
}

bool Owed::isTouched() const {
  for (auto [output, whole] : llvm::enumerate(unlimited.front()))
    for (int64_t i = 0, e = whole.value.numElements(); i < e; ++i)
      if (whole.value.isFloat() && lossOf(output, i, /*size=*/1.0) > 0)
        return true;
  return false;
}

/// Has the range taken half of the digits of the element, in a row of which it
/// has taken more than small elements? A probability of e^-100 is 0 and does no
/// harm: a NaN in its place does. Elements of one axis are rows by themselves.
bool Owed::isLostToRange(size_t output, int64_t element,
                         const RefOutput &exact) const {
  llvm::ArrayRef<int64_t> shape = exact.value.shape();
  int64_t length = shape.size() > 1 ? shape.back() : 1,
          begin = element / length * length;
  double size = 0.0;
  for (int64_t i = begin; i < begin + length; ++i)
    if (double value = exact.value.get(i); std::isfinite(value))
      size = std::max(size, std::abs(value));
  auto isLost = [&](int64_t i, double beside) {
    return lossOf(output, i, beside) > kHalfOfDigits;
  };
  return isLost(element, std::abs(exact.value.get(element))) &&
         llvm::any_of(llvm::seq(begin, begin + length),
                      [&](int64_t i) { return isLost(i, size); });
}

/// What is right in spite of what has left the range (e^-inf) is not lost.
bool Owed::isLostAsWritten(size_t output, int64_t element,
                           const RefOutput &exact) const {
  double expected = exact.value.get(element);
  if (std::isnan(expected) || !isLostToRange(output, element, exact))
    return false;
  return llvm::any_of(asWritten, [&](const Outputs &draw) {
    double found = draw[output].value.get(element);
    if (!std::isfinite(found) || !std::isfinite(expected))
      return found != expected;
    return std::abs(found - expected) > kHalfOfDigits * std::abs(expected);
  });
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

llvm::Error Owed::findLostOf(size_t output, const Tensor &unfused,
                             const RefOutput &exact) {
  int64_t count = unfused.numElements();
  int64_t rowLength =
      unfused.rank() ? std::max<int64_t>(unfused.shape().back(), 1) : 1;
  std::vector<double> sizes = sizesOf(exact.value, rowLength);
  llvm::BitVector lost(count), touched(count);
  for (int64_t i = 0; i < count; ++i) {
    double value = unfused.get(i), expected = exact.value.get(i),
           size = sizes[i / rowLength];
    double loss = lossOf(output, i, size);
    if (!std::isfinite(expected) || !(loss > kTouched))
      continue;
    double error = distanceFromRounding(unfused.dtype(), value, expected);
    bool isLost = loss > kHalfOfDigits;
    if (isLost && std::isfinite(value)) {
      // What unfused errs beside it is no loss to the range.
      isLost = kLuck * loss >= std::min(error / size, 1.0);
    } else if (isLost) {
      // inf - inf is NaN as written. In another order, or by an FMA, it is one
      // of the two, and a number if a function follows.
      if (llvm::Error failed = evaluateSigns())
        return failed;
      isLost = llvm::any_of(ofOneSign, [&](const Outputs &one) {
        double found = one[output].value.get(i);
        return std::isfinite(found) &&
               std::abs(found - expected) > kHalfOfDigits * size;
      });
    }
    if (isLost) {
      lost.set(i);
      continue;
    }
    touched.set(i);
    allowances[output] = std::max(allowances[output],
                                  kLuckOfFused * std::min(loss, kHalfOfDigits));
  }
  if (lost.any())
    apart[output].lost = std::move(lost);
  if (touched.any())
    apart[output].touched = std::move(touched);
  return llvm::Error::success();
}

void Owed::findUnknownOf(size_t output, const RefOutput &exact) {
  llvm::ArrayRef<int64_t> shape = exact.value.shape();
  int64_t rowLength = shape.empty() ? 1 : std::max<int64_t>(shape.back(), 1);
  std::vector<double> sizes = sizesOf(exact.value, rowLength);
  for (int64_t i = 0, e = exact.value.numElements(); i < e; ++i) {
    if (!std::isfinite(exact.value.get(i)) ||
        doubtOf(output, i, exact) <= kHalfOfDigits * sizes[i / rowLength])
      continue;
    apart[output].lost.resize(e);
    apart[output].lost.set(i);
  }
}

llvm::Error Owed::findLost(llvm::ArrayRef<Tensor> unfused,
                           llvm::ArrayRef<llvm::ArrayRef<Tensor>> fused,
                           llvm::ArrayRef<RefOutput> exact) {
  apart.resize(exact.size());
  allowances.resize(exact.size());
  for (auto [i, found, reference] : llvm::enumerate(unfused, exact)) {
    if (reference.selects || !isFloat(found.dtype()))
      continue;
    auto worstOf = [&, i = i, &reference = reference](
                       llvm::ArrayRef<llvm::ArrayRef<Tensor>> results) {
      double worst = 0.0;
      for (llvm::ArrayRef<Tensor> result : results) {
        Deviation deviation = compare(result[i], reference, /*isRunning=*/false,
                                      /*leastOfRow=*/1, apart[i]);
        worst = std::max({worst, deviation.error, deviation.touchedError});
      }
      return worst;
    };
    if (std::max(worstOf(unfused), worstOf(fused)) <= kHalfOfDigits)
      continue;
    if (llvm::Error error = evaluateAsWritten(reference.value.isWide()))
      return error;
    if (llvm::Error error = findLostOf(i, found, reference))
      return error;
    // Who errs as unfused does is asked for no more.
    double worst = worstOf(fused);
    if (worst <= kHalfOfDigits ||
        worst <= boundOf(worstOf(unfused), found.dtype(), 0.0))
      continue;
    if (llvm::Error error = evaluateWithNoise(reference.value.isWide()))
      return error;
    findUnknownOf(i, reference);
  }
  return llvm::Error::success();
}

const Apart &Owed::apartOf(size_t output) const {
  static const Apart kNone;
  return output < apart.size() ? apart[output] : kNone;
}

double Owed::allowanceOfTouched(size_t output) const {
  return output < allowances.size() ? allowances[output] : 0.0;
}

static bool isFinite(const Tensor &tensor) {
  return !isFloat(tensor.dtype()) ||
         llvm::all_of(llvm::seq<int64_t>(0, tensor.numElements()),
                      [&](int64_t i) { return std::isfinite(tensor.get(i)); });
}

/// Does anything but the start of an extreme read a constant that is infinite?
static bool masksByInfinity(mlir::func::FuncOp function) {
  auto isInfinite = [](mlir::Attribute value) {
    if (auto all = llvm::dyn_cast<mlir::DenseFPElementsAttr>(value))
      return llvm::any_of(
          all, [](const llvm::APFloat &one) { return one.isInfinity(); });
    auto one = llvm::dyn_cast<mlir::FloatAttr>(value);
    return one && one.getValue().isInfinity();
  };
  auto found = function.walk([&](mlir::arith::ConstantOp constant) {
    bool isRead = llvm::any_of(constant->getUsers(), [](mlir::Operation *op) {
      return !llvm::isa<mlir::linalg::FillOp>(op);
    });
    return isRead && isInfinite(constant.getValue())
               ? mlir::WalkResult::interrupt()
               : mlir::WalkResult::advance();
  });
  return found.wasInterrupted();
}

/// Losses but for those whose class another evaluation has.
llvm::Expected<int64_t> Owed::countDecided(size_t output, const Tensor &found,
                                           llvm::ArrayRef<int64_t> losses) {
  if (losses.empty())
    return 0;
  if (llvm::Error error = evaluateOthers())
    return std::move(error);
  return llvm::count_if(losses, [&](int64_t i) {
    return llvm::none_of(others, [&](const Outputs &other) {
      return hasClassOf(found, i, other[output]);
    });
  });
}

llvm::Expected<int64_t> Owed::countLosses(size_t output, const Tensor &fused,
                                          const Tensor &unfused,
                                          const RefOutput &exact,
                                          NanPolicy policy) {
  bool mayBeMissed = policy == NanPolicy::MayBeMissed && !exact.selects;
  std::vector<int64_t> losses = findClassLosses(
      fused, unfused, exact, mayBeMissed ? NanPolicy::Kept : policy);
  if (exact.selects)
    return int64_t(losses.size());
  if (mayBeMissed && !losses.empty()) {
    if (llvm::Error error = evaluateWithoutNans())
      return std::move(error);
    if (llvm::Error error = evaluateMasked())
      return std::move(error);
    // An infinity that is read beside a masked one is not missed with it.
    llvm::erase_if(losses, [&](int64_t i) {
      return std::isnan(exact.value.get(i)) &&
             (std::isfinite(fused.get(i))
                  ? !readsNan(output, i)
                  : hasClassOf(fused, i, masked.front()[output]));
    });
  }
  if (const llvm::BitVector &lost = apartOf(output).lost; !lost.empty())
    llvm::erase_if(losses, [&](int64_t i) { return lost.test(i); });
  if (losses.empty())
    return 0;
  // inf - inf of terms with one factor that has overflown: inf * (a - b) is one
  // of the two. An infinity that is given, as a mask too, makes a NaN.
  if (llvm::all_of(inputs, isFinite) && !masksByInfinity(function)) {
    if (llvm::Error error = evaluateSigns())
      return std::move(error);
    llvm::erase_if(losses, [&](int64_t i) {
      return std::isnan(exact.value.get(i)) && std::isinf(fused.get(i)) &&
             llvm::any_of(ofOneSign, [&](const Outputs &one) {
               return hasClassOf(fused, i, one[output]);
             });
    });
    if (losses.empty())
      return 0;
  }
  if (llvm::Error error = evaluateAsWritten(exact.value.isWide()))
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
  if (llvm::Error error = evaluateAsWritten(exact.value.isWide()))
    return std::move(error);
  llvm::erase_if(losses,
                 [&](int64_t i) { return isLostToRange(output, i, exact); });
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
