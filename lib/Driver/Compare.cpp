// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Compare.h"
#include "refold/Conversion/RoundFactors.h"
#include "refold/Support/Reasons.h"
#include <cmath>

namespace refold {

namespace {

enum class Class : uint8_t { Finite, PlusInf, MinusInf, NaN };

Class classOf(double value) {
  if (std::isnan(value))
    return Class::NaN;
  if (std::isinf(value))
    return value > 0 ? Class::PlusInf : Class::MinusInf;
  return Class::Finite;
}

/// The class of the exact value once it is stored: a double may overflow there.
Class storedClass(DType dtype, double exact) {
  alignas(8) char bytes[8];
  storeFromDouble(dtype, exact, bytes);
  return classOf(loadAsDouble(dtype, bytes));
}

/// Where the program as written is not finite either: whether it left the range
/// of what it computes in, on the way to a number or with its result. What only
/// the storage type has no room for did not.
bool leavesRange(DType dtype, double exact) {
  DType computed = dtype == DType::F64 ? DType::F64 : DType::F32;
  return std::isfinite(exact) &&
         (storedClass(dtype, exact) == Class::Finite ||
          storedClass(computed, exact) != Class::Finite);
}

/// The interval of what rounds to a stored value.
std::pair<double, double> roundingInterval(DType dtype, double stored) {
  auto step = [&](double direction) {
    // The gap is at most 2^-2 of the value in the coarsest format, plus the
    // smallest subnormal.
    double low = stored, high = stored + direction * (std::abs(stored) + 1e-3);
    alignas(8) char bytes[8];
    storeFromDouble(dtype, direction * 1e300, bytes);
    if (loadAsDouble(dtype, bytes) == stored)
      return direction * HUGE_VAL; // everything beyond saturates to it
    for (int i = 0; i < 80 && low != high; ++i) {
      double middle = low + (high - low) / 2;
      if (middle == low || middle == high)
        break;
      storeFromDouble(dtype, middle, bytes);
      (loadAsDouble(dtype, bytes) == stored ? low : high) = middle;
    }
    return low;
  };
  return {step(-1.0), step(1.0)};
}

struct Row {
  double worst = 0.0, largest = 0.0;
};

/// Walks an output row by row. `distance` is of one element, `size` its part of
/// the row's scale.
template <typename Distance, typename Size>
double worstRow(int64_t count, int64_t rowLength, Distance distance,
                Size size) {
  double worst = 0.0;
  std::optional<double> largestAnywhere;
  auto findLargest = [&] {
    double largest = 0.0;
    for (int64_t i = 0; i < count; ++i)
      largest = std::max(largest, size(i));
    return largest > 0 ? largest : 1.0;
  };
  for (int64_t begin = 0; begin < count; begin += rowLength) {
    Row row;
    int64_t end = std::min(begin + rowLength, count);
    for (int64_t i = std::max<int64_t>(end - rowLength, 0); i < end; ++i) {
      row.worst = std::max(row.worst, distance(i));
      row.largest = std::max(row.largest, size(i));
    }
    if (row.worst == 0)
      continue;
    // A row that is exactly zero has no scale of its own.
    if (!(row.largest > 0) && !largestAnywhere)
      largestAnywhere = findLargest();
    double scale = row.largest > 0 ? row.largest : *largestAnywhere;
    worst = std::max(worst, row.worst / scale);
  }
  return worst;
}

double finiteSize(double value) {
  return std::isfinite(value) ? std::abs(value) : 0.0;
}

/// Of a value: allowances below it are no larger than what f32 sums round.
constexpr double kSmallAllowance = 1e-4;

/// Compares positions by the keys that they select; a position outside is a
/// wrong class.
Deviation compareSelected(const Tensor &result, const RefOutput &reference) {
  const SelectedKeys &selects = *reference.selects;
  llvm::ArrayRef<int64_t> keyShape = selects.keys.shape();
  int64_t candidates = keyShape[selects.dim], inner = 1;
  for (unsigned i = selects.dim + 1; i < keyShape.size(); ++i)
    inner *= keyShape[i];
  int64_t outer =
      selects.keys.numElements() / std::max<int64_t>(candidates * inner, 1);
  int64_t count = result.numElements();
  int64_t ranks = outer * inner ? count / (outer * inner) : 0;
  Deviation deviation;
  auto keyAt = [&](int64_t i, double position) {
    int64_t group = i / (ranks * inner), lane = i % inner;
    return selects.keys.get(
        (group * candidates + static_cast<int64_t>(position)) * inner + lane);
  };
  auto isInside = [&](double position) {
    return position >= 0 && position < static_cast<double>(candidates);
  };
  auto distance = [&](int64_t i) {
    double found = result.get(i), expected = reference.value.get(i);
    if (found == expected)
      return 0.0;
    if (!isInside(found) || !isInside(expected) ||
        classOf(keyAt(i, found)) != classOf(keyAt(i, expected))) {
      ++deviation.wrongClass;
      return 0.0;
    }
    double gap = std::abs(keyAt(i, found) - keyAt(i, expected));
    return std::isnan(gap) ? 0.0 : gap; // two infinities of one sign
  };
  auto size = [&](int64_t i) {
    double expected = reference.value.get(i);
    return isInside(expected) ? finiteSize(keyAt(i, expected)) : 0.0;
  };
  int64_t rowLength =
      result.rank() ? std::max<int64_t>(result.shape().back(), 1) : 1;
  deviation.error = worstRow(count, rowLength, distance, size);
  return deviation;
}

} // namespace

double distanceFromRounding(DType dtype, double stored, long double exact) {
  if (dtype == DType::F64 || dtype == DType::F32) {
    // What is below half of the smallest number is rounded to 0.
    long double least = dtype == DType::F32 ? 0x1p-150L : 0x1p-1075L;
    return double(std::max(std::abs(stored - exact) - least, 0.0L));
  }
  if (dtype == DType::Bool)
    return stored == exact ? 0.0 : 1.0;
  alignas(8) char bytes[8];
  storeFromDouble(dtype, double(exact), bytes);
  if (loadAsDouble(dtype, bytes) == stored)
    return 0.0;
  auto [low, high] = roundingInterval(dtype, stored);
  return double(std::max({low - exact, exact - high, 0.0L}));
}

double ulpOf(DType dtype) {
  return std::ldexp(1.0, dtype == DType::F64 ? -52 : -23);
}

double stepOf(DType dtype) {
  switch (dtype) {
  case DType::F16:
    return std::ldexp(1.0, -10);
  case DType::BF16:
    return std::ldexp(1.0, -7);
  case DType::F8E4M3:
    return std::ldexp(1.0, -3);
  case DType::F8E5M2:
    return std::ldexp(1.0, -2);
  default:
    return 0.0;
  }
}

double boundOf(double unfusedError, DType dtype, double factorRounding) {
  return 2.0 * unfusedError + 2.0 * ulpOf(dtype) + allowanceOf(factorRounding);
}

Deviation compare(const Tensor &result, const RefOutput &reference,
                  bool isRunning, int64_t leastOfRow, const Apart &apart) {
  if (reference.selects)
    return compareSelected(result, reference);
  Deviation deviation;
  int64_t count = result.numElements();
  for (int64_t i = 0; i < count; ++i)
    deviation.wrongClass += classOf(result.get(i)) !=
                            storedClass(result.dtype(), reference.value.get(i));
  auto allowanceOf = [&](int64_t i) {
    if (!isRunning)
      return 0.0;
    bool isAbove = result.get(i) > reference.value.exact(i);
    return reference.value.allowance(i, isAbove);
  };
  auto distance = [&](int64_t i) {
    double found = result.get(i);
    long double exact = reference.value.exact(i);
    if (!std::isfinite(found) || !std::isfinite(exact))
      return 0.0; // the class says it
    double distance = distanceFromRounding(result.dtype(), found, exact);
    double allowance = allowanceOf(i);
    if (!(allowance > 0) || !std::isfinite(allowance))
      return distance;
    // One below the rounding of f32 sums says nothing of its share.
    if (allowance > kSmallAllowance * std::abs(double(exact)))
      deviation.shareOfBound =
          std::max(deviation.shareOfBound, distance / allowance);
    return std::max(distance - allowance, 0.0);
  };
  auto size = [&](int64_t i) { return finiteSize(reference.value.get(i)); };
  int64_t rowLength =
      result.rank() ? std::max<int64_t>(result.shape().back(), 1) : 1;
  rowLength = llvm::alignTo(std::max(rowLength, leastOfRow), rowLength);
  auto isIn = [](const llvm::BitVector &elements, int64_t i) {
    return !elements.empty() && elements.test(i);
  };
  auto distanceIf = [&](bool isTouched) {
    return [&, isTouched](int64_t i) {
      bool isMeasured = isIn(apart.touched, i) == isTouched &&
                        !isIn(apart.lost, i) && !std::isinf(allowanceOf(i));
      return isMeasured ? distance(i) : 0.0;
    };
  };
  auto unknownDistance = [&](int64_t i) { // touched or not
    bool isUnknown = !isIn(apart.lost, i) && std::isinf(allowanceOf(i));
    return isUnknown ? distance(i) : 0.0;
  };
  deviation.error = worstRow(count, rowLength, distanceIf(false), size);
  if (isRunning)
    deviation.unknownError = worstRow(count, rowLength, unknownDistance, size);
  if (!apart.touched.empty())
    deviation.touchedError = worstRow(count, rowLength, distanceIf(true), size);
  return deviation;
}

NanPolicy nanPolicyOf(llvm::ArrayRef<CascadeReport> cascades) {
  auto has = [&](Reason reason) {
    return llvm::any_of(cascades, [&](const CascadeReport &cascade) {
      return llvm::is_contained(cascade.policies, keyOf(reason));
    });
  };
  return has(Reason::MaskedValuesUnread) ? NanPolicy::MayBeMissed
         : has(Reason::MaskedRowsZero)   ? NanPolicy::MayBeZero
                                         : NanPolicy::Kept;
}

RunningRoundings roundingsOf(llvm::ArrayRef<CascadeReport> cascades) {
  RunningRoundings running;
  bool isFirst = true;
  for (const CascadeReport &cascade : cascades)
    for (const RoundingReport &rounding : cascade.roundings) {
      running.powersOfTwo =
          rounding.isPowerOfTwo && (isFirst || running.powersOfTwo);
      isFirst = false;
      std::optional<DType> type = parseDType(rounding.type);
      if (!type)
        running.steps = true;
      else if (!llvm::is_contained(running.types, *type))
        running.types.push_back(*type);
    }
  return running;
}

std::vector<int64_t> findClassLosses(const Tensor &fused, const Tensor &unfused,
                                     const RefOutput &reference,
                                     NanPolicy policy) {
  std::vector<int64_t> losses;
  if (reference.selects) {
    if (compare(fused, reference).wrongClass >
        compare(unfused, reference).wrongClass)
      losses.push_back(0);
    return losses;
  }
  for (int64_t i = 0, e = fused.numElements(); i < e; ++i) {
    Class expected = storedClass(fused.dtype(), reference.value.get(i));
    Class found = classOf(fused.get(i));
    bool isAllowed = policy == NanPolicy::MayBeMissed ||
                     (policy == NanPolicy::MayBeZero && fused.get(i) == 0);
    bool isMissed =
        isAllowed && expected == Class::NaN && found == Class::Finite;
    Class written = classOf(unfused.get(i));
    bool isOverflow = leavesRange(fused.dtype(), reference.value.get(i)) &&
                      written != Class::Finite && found != Class::Finite;
    if (found != expected && found != written && !isMissed && !isOverflow)
      losses.push_back(i);
  }
  return losses;
}

int64_t countClassLosses(const Tensor &fused, const Tensor &unfused,
                         const RefOutput &reference, NanPolicy policy) {
  return findClassLosses(fused, unfused, reference, policy).size();
}

bool hasClassOf(const Tensor &found, int64_t i, const RefOutput &reference) {
  return classOf(found.get(i)) ==
         storedClass(found.dtype(), reference.value.get(i));
}

llvm::Expected<Tensor> stored(const RefTensor &values, DType dtype) {
  auto result = Tensor::create(dtype, llvm::to_vector(values.shape()));
  if (!result)
    return result.takeError();
  for (int64_t i = 0, e = result->numElements(); i < e; ++i)
    result->set(i, values.get(i));
  return result;
}

bool hasEqualBits(const Tensor &a, const Tensor &b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape())
    return false;
  for (int64_t i = 0, e = a.numElements(); i < e; ++i)
    if (std::memcmp(a.at(i), b.at(i), byteWidth(a.dtype())) != 0)
      return false;
  return true;
}

} // namespace refold
