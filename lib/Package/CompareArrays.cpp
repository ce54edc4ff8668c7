// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/CompareArrays.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace refold;
using namespace refold::package;

/// A float of 8 bits, of `mantissa` bits behind the point; with 3 of them there
/// is no infinity.
static double floatOf8(uint8_t bits, int mantissa) {
  int exponent = (bits & 0x7f) >> mantissa, most = 0x7f >> mantissa;
  double fraction = double(bits & ((1 << mantissa) - 1)) / (1 << mantissa);
  double sign = bits & 0x80 ? -1.0 : 1.0;
  if (mantissa == 3 ? (bits & 0x7f) == 0x7f : exponent == most)
    return mantissa == 2 && fraction == 0.0 ? sign * HUGE_VAL : NAN;
  int bias = most / 2;
  return sign * (exponent ? std::ldexp(1.0 + fraction, exponent - bias)
                          : std::ldexp(fraction, 1 - bias));
}

double package::elementOf(DType dtype, const char *at) {
  auto get = [&]<typename T>(T value) {
    std::memcpy(&value, at, sizeof(T));
    return value;
  };
  switch (dtype) {
  case DType::F64:
    return get(double());
  case DType::F32:
    return double(get(float()));
  case DType::F16:
    return double(float(get(_Float16())));
  case DType::BF16: {
    uint32_t bits = uint32_t(get(uint16_t())) << 16;
    float value = 0.0f;
    std::memcpy(&value, &bits, sizeof(value));
    return double(value);
  }
  case DType::F8E4M3:
    return floatOf8(get(uint8_t()), 3);
  case DType::F8E5M2:
    return floatOf8(get(uint8_t()), 2);
  case DType::I64:
    return double(get(int64_t()));
  case DType::I32:
    return double(get(int32_t()));
  case DType::I8:
    return double(get(int8_t()));
  case DType::U8:
  case DType::Bool:
    return double(get(uint8_t()));
  }
  return 0.0;
}

/// Of the largest element, what sums in another order and one rounding to the
/// type may make: some ulp of f32 of long sums, and an ulp of the type.
static double mostOf(DType dtype) {
  constexpr double kSums = 1e-4;
  switch (dtype) {
  case DType::F64:
  case DType::F32:
    return kSums;
  case DType::F16:
    return kSums + 0x1p-10;
  case DType::BF16:
    return kSums + 0x1p-7;
  case DType::F8E4M3:
    return kSums + 0x1p-3;
  case DType::F8E5M2:
    return kSums + 0x1p-2;
  default:
    return 0.0;
  }
}

ArrayDifference package::compareArrays(DType dtype,
                                       const std::vector<char> &found,
                                       const std::vector<char> &expected) {
  ArrayDifference result;
  if (std::memcmp(found.data(), expected.data(), expected.size()) == 0)
    return result;
  int64_t width = byteWidth(dtype);
  double largest = 0.0, worst = 0.0;
  for (size_t i = 0; i + size_t(width) <= expected.size(); i += size_t(width)) {
    double a = elementOf(dtype, found.data() + i),
           b = elementOf(dtype, expected.data() + i);
    if (std::isfinite(b))
      largest = std::max(largest, std::abs(b));
    if (a == b || (std::isnan(a) && std::isnan(b)))
      continue;
    if (!std::isfinite(a) || !std::isfinite(b)) {
      result.isRounding = false;
      result.relative = HUGE_VAL;
      return result;
    }
    worst = std::max(worst, std::abs(a - b));
  }
  result.relative = worst == 0.0 ? 0.0 : worst / std::max(largest, 1e-300);
  bool isSmall = dtype == DType::I8 || dtype == DType::U8;
  result.isRounding = isFloat(dtype) ? result.relative <= mostOf(dtype)
                                     : worst <= (isSmall ? 1.0 : 0.0);
  return result;
}
