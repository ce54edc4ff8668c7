// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Tensor.h"
#include "Outcome.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace refold;

static double roundTrip(DType dtype, double value) {
  alignas(8) char bytes[8] = {};
  storeFromDouble(dtype, value, bytes);
  return loadAsDouble(dtype, bytes);
}

TEST(TensorTest, EveryCodeOfASmallTypeIsAFixedPoint) {
  struct {
    DType dtype;
    unsigned codes;
  } kinds[] = {{DType::F16, 65536},
               {DType::BF16, 65536},
               {DType::F8E4M3, 256},
               {DType::F8E5M2, 256}};
  for (auto [dtype, codes] : kinds)
    for (unsigned code = 0; code < codes; ++code) {
      uint16_t bits = code;
      double value = loadAsDouble(dtype, &bits);
      if (std::isinf(value) && byteWidth(dtype) == 1)
        continue; // f8 saturates when stored
      double again = roundTrip(dtype, value);
      EXPECT_TRUE(again == value || (std::isnan(again) && std::isnan(value)))
          << nameOf(dtype).str() << " " << code;
    }
}

/// The nearest of all finite codes, ties to the even code: the definition of
/// rounding.
static double nearestByDefinition(DType dtype, double value) {
  double best = 0, bestGap = HUGE_VAL;
  uint16_t bestCode = 0;
  unsigned codes = byteWidth(dtype) == 1 ? 256 : 65536;
  for (unsigned code = 0; code < codes; ++code) {
    uint16_t bits = code;
    double candidate = loadAsDouble(dtype, &bits);
    if (!std::isfinite(candidate) ||
        std::signbit(candidate) != std::signbit(value))
      continue;
    double gap = std::abs(candidate - value);
    if (gap < bestGap ||
        (gap == bestGap && bits % 2 == 0 && bestCode % 2 == 1)) {
      best = candidate;
      bestGap = gap;
      bestCode = bits;
    }
  }
  return best;
}

TEST(TensorTest, StoringRoundsToNearestEvenOnce) {
  // The last two lie a hair above a tie of f16, where rounding to f32 first
  // goes wrong.
  double values[] = {0.1,
                     -0.1,
                     1.0 / 3,
                     3.0,
                     1e-3,
                     1e-5,
                     5.96e-8,
                     2.9e-8,
                     17.5,
                     240.0,
                     300.0,
                     0.0009765625 * 1.5,
                     1.0 + std::ldexp(1, -11) + std::ldexp(1, -40),
                     1.0 + 3 * std::ldexp(1, -11) - std::ldexp(1, -40)};
  for (DType dtype : {DType::F16, DType::BF16, DType::F8E4M3, DType::F8E5M2})
    for (double value : values)
      EXPECT_EQ(roundTrip(dtype, value), nearestByDefinition(dtype, value))
          << nameOf(dtype).str() << " " << value;
}

TEST(TensorTest, OverflowSaturatesOrBecomesInfinite) {
  EXPECT_EQ(roundTrip(DType::F16, 65519.0), 65504.0);
  EXPECT_EQ(roundTrip(DType::F16, 65520.0), HUGE_VAL);
  EXPECT_EQ(roundTrip(DType::BF16, 1e39), HUGE_VAL);
  EXPECT_EQ(roundTrip(DType::F8E4M3, 1e9), 448.0);
  EXPECT_EQ(roundTrip(DType::F8E4M3, -HUGE_VAL), -448.0);
  EXPECT_EQ(roundTrip(DType::F8E5M2, HUGE_VAL), 57344.0);
  EXPECT_TRUE(std::isnan(roundTrip(DType::F8E4M3, NAN)));
  EXPECT_EQ(roundTrip(DType::I8, 1000.0), 127.0);
  EXPECT_EQ(roundTrip(DType::I8, -1000.0), -128.0);
  EXPECT_EQ(roundTrip(DType::U8, -3.0), 0.0);
  EXPECT_EQ(roundTrip(DType::U8, 2.5), 2.0);
  EXPECT_EQ(roundTrip(DType::I64, 1e300), static_cast<double>(INT64_MAX));
  EXPECT_EQ(roundTrip(DType::I64, -1e300), static_cast<double>(INT64_MIN));
  EXPECT_EQ(roundTrip(DType::I32, NAN), 0.0);
  EXPECT_EQ(roundTrip(DType::Bool, NAN), 1.0);
}

TEST(TensorTest, SizesAreChecked) {
  int64_t huge = int64_t(1) << 40;
  EXPECT_EQ(checkedNumElements(std::vector<int64_t>{2, 3}, 4), 6);
  EXPECT_EQ(checkedNumElements(std::vector<int64_t>{}, 4), 1);
  EXPECT_EQ(checkedNumElements(std::vector<int64_t>{huge, huge}, 4),
            std::nullopt);
  EXPECT_EQ(checkedNumElements(std::vector<int64_t>{huge, huge, 0}, 4),
            std::nullopt);
  EXPECT_EQ(checkedNumElements(std::vector<int64_t>{-1}, 4), std::nullopt);
  EXPECT_EQ(checkedNumElements(std::vector<int64_t>{0, 5}, 4), 0);
  EXPECT_TRUE(fails(Tensor::create(DType::F32, {huge, huge})));
}

TEST(TensorTest, ViewsReadThroughStrides) {
  float values[] = {1, 2, 3, 4, 5, 6};
  Tensor transposed = Tensor::borrow(DType::F32, {3, 2}, {1, 3}, values);
  EXPECT_FALSE(transposed.isRowMajor());
  EXPECT_EQ(transposed.get(1), 4.0);
  EXPECT_EQ(transposed.get(4), 3.0);
  auto copy = transposed.clone(DType::F64);
  ASSERT_TRUE(static_cast<bool>(copy));
  EXPECT_TRUE(copy->isRowMajor());
  EXPECT_EQ(copy->get(1), 4.0);
  Tensor reversed = Tensor::borrow(DType::F32, {6}, {-1}, values + 5);
  EXPECT_EQ(reversed.get(0), 6.0);
  EXPECT_EQ(describe(transposed), "f32[3, 2]");
}

TEST(TensorTest, CloneKeepsBitsOfTheSameType) {
  int64_t values[] = {INT64_MAX, 0, INT64_MIN, 7};
  Tensor odd = Tensor::borrow(DType::I64, {2}, {2}, values);
  auto copy = odd.clone();
  ASSERT_TRUE(static_cast<bool>(copy));
  EXPECT_EQ(*static_cast<int64_t *>(copy->at(0)), INT64_MAX);
  EXPECT_EQ(*static_cast<int64_t *>(copy->at(1)), INT64_MIN);
}
