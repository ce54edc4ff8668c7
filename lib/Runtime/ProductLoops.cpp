// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProductLoops.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

using namespace refold;

namespace {
struct Half {
  uint16_t bits;
};
struct BFloat {
  uint16_t bits;
};
} // namespace

static float toArithmetic(float value) { return value; }
static double toArithmetic(double value) { return value; }
static int32_t toArithmetic(int32_t value) { return value; }
static int64_t toArithmetic(int64_t value) { return value; }
static int32_t toArithmetic(int8_t value) { return value; }
static int32_t toArithmetic(uint8_t value) { return value; }
static float toArithmetic(BFloat value) {
  return std::bit_cast<float>(uint32_t(value.bits) << 16);
}
/// Exact: the exponent is moved by a multiplication, which also takes the
/// subnormal ones right.
static float toArithmetic(Half value) {
  uint32_t sign = uint32_t(value.bits & 0x8000) << 16;
  uint32_t rest = value.bits & 0x7fff;
  float magnitude = std::bit_cast<float>(rest << 13) * 0x1p112f;
  if (rest >= 0x7c00) // infinity and NaN keep their all-ones exponent
    magnitude = std::bit_cast<float>(rest << 13 | 0x7f800000);
  return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
}

template <typename T> static T load(const char *base, int64_t index) {
  T value;
  std::memcpy(&value, base + index * int64_t(sizeof(T)), sizeof(T));
  return value;
}

/// Integers wrap as the generated code's do.
template <typename Acc> static Acc addProduct(Acc sum, Acc a, Acc b) {
  if constexpr (std::is_integral_v<Acc>) {
    using Unsigned = std::make_unsigned_t<Acc>;
    return Acc(Unsigned(sum) + Unsigned(a) * Unsigned(b));
  } else {
    return sum + a * b;
  }
}

template <typename Lhs, typename Rhs, typename Acc>
static void multiply(const ProductShape &shape, const ProductItem &item,
                     const char *lhs, const char *rhs, char *result) {
  constexpr int64_t kTile = 64;
  lhs += item.lhsByte;
  rhs += item.rhsByte;
  result += item.resultByte;
  for (int64_t row = 0; row < item.rows; ++row) {
    for (int64_t first = 0; first < shape.n; first += kTile) {
      int64_t cols = std::min(kTile, shape.n - first);
      Acc sums[kTile] = {};
      for (int64_t k = 0; k < shape.k; ++k) {
        Acc a = Acc(toArithmetic(load<Lhs>(lhs, row * shape.lhs.rowStride +
                                                    k * shape.lhs.colStride)));
        int64_t at = k * shape.rhs.rowStride + first * shape.rhs.colStride;
        for (int64_t col = 0; col < cols; ++col, at += shape.rhs.colStride)
          sums[col] =
              addProduct(sums[col], a, Acc(toArithmetic(load<Rhs>(rhs, at))));
      }
      for (int64_t col = 0; col < cols; ++col)
        std::memcpy(result + (row * shape.result.rowStride +
                              (first + col) * shape.result.colStride) *
                                 int64_t(sizeof(Acc)),
                    &sums[col], sizeof(Acc));
    }
  }
}

using Loop = void (*)(const ProductShape &, const ProductItem &, const char *,
                      const char *, char *);

template <typename Lhs, typename Rhs> static Loop loopFor(DType result) {
  switch (result) {
  case DType::F64:
    return multiply<Lhs, Rhs, double>;
  case DType::F32:
    return multiply<Lhs, Rhs, float>;
  case DType::I32:
    return multiply<Lhs, Rhs, int32_t>;
  case DType::I64:
    return multiply<Lhs, Rhs, int64_t>;
  default:
    return nullptr;
  }
}

template <typename Lhs> static Loop loopFor(DType rhs, DType result) {
  switch (rhs) {
  case DType::F64:
    return loopFor<Lhs, double>(result);
  case DType::F32:
    return loopFor<Lhs, float>(result);
  case DType::F16:
    return loopFor<Lhs, Half>(result);
  case DType::BF16:
    return loopFor<Lhs, BFloat>(result);
  case DType::I8:
    return loopFor<Lhs, int8_t>(result);
  case DType::U8:
    return loopFor<Lhs, uint8_t>(result);
  case DType::I32:
    return loopFor<Lhs, int32_t>(result);
  case DType::I64:
    return loopFor<Lhs, int64_t>(result);
  default:
    return nullptr;
  }
}

static Loop loopFor(DType lhs, DType rhs, DType result) {
  if (isFloat(lhs) != isFloat(result) || isFloat(rhs) != isFloat(result))
    return nullptr;
  switch (lhs) {
  case DType::F64:
    return loopFor<double>(rhs, result);
  case DType::F32:
    return loopFor<float>(rhs, result);
  case DType::F16:
    return loopFor<Half>(rhs, result);
  case DType::BF16:
    return loopFor<BFloat>(rhs, result);
  case DType::I8:
    return loopFor<int8_t>(rhs, result);
  case DType::U8:
    return loopFor<uint8_t>(rhs, result);
  case DType::I32:
    return loopFor<int32_t>(rhs, result);
  case DType::I64:
    return loopFor<int64_t>(rhs, result);
  default:
    return nullptr;
  }
}

bool refold::hasPlainLoops(DType lhs, DType rhs, DType result) {
  return loopFor(lhs, rhs, result) != nullptr;
}

void refold::multiplyPlainly(const ProductShape &shape, const ProductItem &item,
                             const char *lhs, const char *rhs, char *result) {
  loopFor(shape.lhsType, shape.rhsType, shape.resultType)(shape, item, lhs, rhs,
                                                          result);
}

template <typename T> static T activate(Activation activation, T value) {
  switch (activation) {
  case Activation::None:
    return value;
  case Activation::Relu:
    return value < T(0) ? T(0) : value; // a NaN stays
  case Activation::GeluErf:
    return T(0.5) * value * (T(1) + std::erf(value * T(0.70710678118654752)));
  case Activation::Tanh:
    return std::tanh(value);
  }
  return value;
}

template <typename T>
static void finish(const ProductShape &shape, const ProductItem &item,
                   const char *bias, Activation activation, char *result) {
  for (int64_t row = 0; row < item.rows; ++row)
    for (int64_t col = 0; col < shape.n; ++col) {
      char *at = result + item.resultByte +
                 (row * shape.result.rowStride + col * shape.result.colStride) *
                     int64_t(sizeof(T));
      T value = load<T>(at, 0);
      if (bias)
        value += load<T>(bias, shape.isSwapped ? item.firstRow + row : col);
      value = activate(activation, value);
      std::memcpy(at, &value, sizeof(T));
    }
}

void refold::applyEpilogue(const ProductShape &shape, const ProductItem &item,
                           const char *bias, Activation activation,
                           char *result) {
  if (shape.resultType == DType::F64)
    finish<double>(shape, item, bias, activation, result);
  else
    finish<float>(shape, item, bias, activation, result);
}

template <typename T>
static void packRows(const char *from, int64_t rowStride, int64_t colStride,
                     int64_t rows, int64_t cols, float *to) {
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col)
      *to++ = toArithmetic(load<T>(from, row * rowStride + col * colStride));
}

/// A float of 8 bits: one without infinities of 3 bits of fraction, or the
/// upper half of an f16.
static float ofByte(DType type, unsigned code) {
  if (type == DType::F8E5M2)
    return toArithmetic(Half{uint16_t(code << 8)});
  constexpr int kFraction = 3, kBias = 7;
  int exponent = int(code >> kFraction & 0xf);
  int fraction = int(code & 7);
  float sign = code & 0x80 ? -1.0f : 1.0f;
  if (exponent == 0xf && fraction == 7)
    return std::numeric_limits<float>::quiet_NaN();
  if (exponent != 0)
    fraction += 1 << kFraction;
  return sign *
         std::ldexp(float(fraction), std::max(exponent, 1) - kBias - kFraction);
}

/// A type of 256 values, by table.
static void packBytes(DType type, const char *from, int64_t rowStride,
                      int64_t colStride, int64_t rows, int64_t cols,
                      float *to) {
  float values[256];
  for (unsigned i = 0; i < 256; ++i) {
    values[i] = ofByte(type, i);
  }
  for (int64_t row = 0; row < rows; ++row)
    for (int64_t col = 0; col < cols; ++col)
      *to++ = values[uint8_t(from[row * rowStride + col * colStride])];
}

void refold::packAsF32(DType type, const char *from, int64_t rowStride,
                       int64_t colStride, int64_t rows, int64_t cols,
                       float *to) {
  if (type == DType::F16)
    return packRows<Half>(from, rowStride, colStride, rows, cols, to);
  if (type == DType::BF16)
    return packRows<BFloat>(from, rowStride, colStride, rows, cols, to);
  if (type == DType::F8E4M3 || type == DType::F8E5M2)
    return packBytes(type, from, rowStride, colStride, rows, cols, to);
  packRows<float>(from, rowStride, colStride, rows, cols, to);
}
