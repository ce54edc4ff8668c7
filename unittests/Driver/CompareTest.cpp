// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Compare.h"
#include "refold/Driver/Inputs.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace refold;

static Tensor stored(DType dtype, llvm::ArrayRef<int64_t> shape,
                     llvm::ArrayRef<double> values) {
  Tensor tensor = llvm::cantFail(Tensor::create(dtype, shape));
  for (auto [i, value] : llvm::enumerate(values))
    tensor.set(i, value);
  return tensor;
}

static RefOutput exact(llvm::ArrayRef<int64_t> shape,
                       llvm::ArrayRef<double> values) {
  RefOutput output{RefTensor::create(/*isFloat=*/true, shape), std::nullopt};
  for (auto [i, value] : llvm::enumerate(values))
    output.value.at(i).f = value;
  return output;
}

TEST(CompareTest, ErrorsAreRelativeToTheRow) {
  RefOutput reference = exact({2, 2}, {1, 100, 2, 4});
  EXPECT_EQ(
      compare(stored(DType::F64, {2, 2}, {1, 100, 2, 4}), reference).error, 0);
  EXPECT_NEAR(
      compare(stored(DType::F64, {2, 2}, {2, 100, 2, 4}), reference).error,
      0.01, 1e-12);
  EXPECT_NEAR(
      compare(stored(DType::F64, {2, 2}, {1, 100, 3, 4}), reference).error,
      0.25, 1e-12);
}

TEST(CompareTest, ARowOfZerosTakesTheScaleOfTheOutput) {
  RefOutput reference = exact({2, 1}, {0, 8});
  EXPECT_NEAR(compare(stored(DType::F64, {2, 1}, {2, 8}), reference).error,
              0.25, 1e-12);
  EXPECT_NEAR(compare(stored(DType::F64, {1}, {2}), exact({1}, {0})).error, 2,
              1e-12);
  EXPECT_EQ(compare(stored(DType::F64, {0}, {}), exact({0}, {})).error, 0);
}

/// f32 has 0 in the place of 1e-60: that is no error of 1.
TEST(CompareTest, WhatIsBelowTheSmallestNumberIsZero) {
  RefOutput reference = exact({1, 2}, {1e-60, -1e-50});
  EXPECT_EQ(compare(stored(DType::F32, {1, 2}, {0, 0}), reference).error, 0);
  EXPECT_EQ(compare(stored(DType::F64, {1, 2}, {0, 0}), reference).error, 1);
}

TEST(CompareTest, ClassesAreCounted) {
  double inf = HUGE_VAL;
  RefOutput reference = exact({4}, {1, inf, -inf, NAN});
  EXPECT_EQ(compare(stored(DType::F32, {4}, {1, inf, -inf, NAN}), reference)
                .wrongClass,
            0);
  EXPECT_EQ(compare(stored(DType::F32, {4}, {inf, -inf, NAN, 1}), reference)
                .wrongClass,
            4);
  // What overflows in the stored type is right to be infinite.
  EXPECT_EQ(
      compare(stored(DType::F16, {1}, {inf}), exact({1}, {1e6})).wrongClass, 0);
}

TEST(CompareTest, AClassIsLostOnlyWhereUnfusedHasIt) {
  RefOutput reference = exact({2}, {1, 1});
  Tensor good = stored(DType::F32, {2}, {1, 1}),
         bad = stored(DType::F32, {2}, {NAN, 1});
  EXPECT_EQ(countClassLosses(good, good, reference, NanPolicy::Kept), 0);
  EXPECT_EQ(countClassLosses(bad, good, reference, NanPolicy::Kept), 1);
  EXPECT_EQ(countClassLosses(bad, bad, reference, NanPolicy::Kept), 0);
  EXPECT_EQ(countClassLosses(good, bad, reference, NanPolicy::Kept), 0);
}

/// What overflows as written has no class to keep, but what is finite then has
/// the right value, and what is finite as written stays so.
TEST(CompareTest, AnOverflowAsWrittenIsExcusedOnly) {
  const double inf = HUGE_VAL;
  auto losses = [](double fused, double unfused, double expected) {
    return countClassLosses(stored(DType::F32, {1}, {fused}),
                            stored(DType::F32, {1}, {unfused}),
                            exact({1}, {expected}), NanPolicy::Kept);
  };
  EXPECT_EQ(losses(NAN, -inf, -3e38), 0);
  EXPECT_EQ(losses(inf, NAN, 1), 0);
  EXPECT_EQ(losses(-3e38, -inf, -3e38), 0);
  // A wrong value is no matter of class.
  EXPECT_GT(
      compare(stored(DType::F32, {1}, {-1e38}), exact({1}, {-2e38})).error,
      0.4);
  EXPECT_EQ(losses(NAN, -3e38, -3e38), 1); // only fused overflows
  EXPECT_EQ(losses(NAN, -inf, -inf), 1);   // nothing overflows
  EXPECT_EQ(losses(NAN, -inf, -1e39), 0);  // the result leaves the range
  EXPECT_EQ(losses(-1e38, -inf, -1e39), 1);
  EXPECT_EQ(losses(1, -inf, -inf), 1);
  // 1e5 leaves the range of f16, and nothing that is computed in f32.
  EXPECT_EQ(countClassLosses(stored(DType::F16, {1}, {NAN}),
                             stored(DType::F16, {1}, {inf}), exact({1}, {1e5}),
                             NanPolicy::Kept),
            1);
}

TEST(CompareTest, APolicyExcusesAMissedNaNOnly) {
  RefOutput reference = exact({2}, {NAN, 1});
  Tensor nan = stored(DType::F32, {2}, {NAN, 1}),
         finite = stored(DType::F32, {2}, {3, 1});
  Tensor wrong = stored(DType::F32, {2}, {HUGE_VAL, NAN});
  EXPECT_EQ(countClassLosses(finite, nan, reference, NanPolicy::Kept), 1);
  EXPECT_EQ(countClassLosses(finite, nan, reference, NanPolicy::MayBeMissed),
            0);
  EXPECT_EQ(countClassLosses(wrong, nan, reference, NanPolicy::MayBeMissed), 2);
}

TEST(CompareTest, APolicyExcusesAZeroOnly) {
  RefOutput reference = exact({2}, {NAN, 1});
  Tensor nan = stored(DType::F32, {2}, {NAN, 1}),
         zero = stored(DType::F32, {2}, {0, 1}),
         finite = stored(DType::F32, {2}, {3, 1});
  EXPECT_EQ(countClassLosses(zero, nan, reference, NanPolicy::MayBeZero), 0);
  EXPECT_EQ(countClassLosses(finite, nan, reference, NanPolicy::MayBeZero), 1);
}

/// A result may be as far off as its side, where that is known, and no more.
TEST(CompareTest, WhatExceedsASideCounts) {
  RefOutput reference = exact({2}, {1, 4});
  reference.value.at(0).bounded.above = 0.25;
  auto errorOf = [&](double first, bool isRunning) {
    return compare(stored(DType::F32, {2}, {first, 4}), reference, isRunning);
  };
  EXPECT_EQ(errorOf(1.25, true).error, 0);
  EXPECT_EQ(errorOf(1.25, true).shareOfBound, 1);
  EXPECT_EQ(errorOf(1.5, true).error, 0.0625);
  EXPECT_EQ(errorOf(1.5, false).error, 0.125);
  EXPECT_EQ(errorOf(0.75, true).error, 0.0625); // of a number below
  EXPECT_EQ(errorOf(1.5, true).unknownError, 0);
  reference.value.at(0).bounded.above = HUGE_VALF;
  EXPECT_EQ(errorOf(1.5, true).error, 0);
  EXPECT_EQ(errorOf(1.5, true).unknownError, 0.125);
  EXPECT_EQ(errorOf(0.75, true).error, 0.0625);
  EXPECT_EQ(errorOf(1.5, false).error, 0.125);
  Apart apart;
  apart.touched.resize(2, true);
  Tensor touched = stored(DType::F32, {2}, {1.5, 4});
  Deviation found = compare(touched, reference, /*isRunning=*/true, 1, apart);
  EXPECT_EQ(found.touchedError, 0);
  EXPECT_EQ(found.unknownError, 0.125); // nobody else counts it
}

TEST(CompareTest, RoundingAtTheEndIsNoError) {
  // 1 + 2^-11 is half way between two f16; the double lies just above or below.
  double half = 1.0 + std::ldexp(1.0, -11), next = 1.0 + std::ldexp(1.0, -10);
  EXPECT_EQ(distanceFromRounding(DType::F16, 1.0, half - 1e-9), 0);
  EXPECT_EQ(distanceFromRounding(DType::F16, next, half + 1e-9), 0);
  EXPECT_NEAR(distanceFromRounding(DType::F16, 1.0, half + 1e-9), 1e-9, 1e-12);
  EXPECT_NEAR(distanceFromRounding(DType::F16, next, half - 1e-9), 1e-9, 1e-12);
  EXPECT_NEAR(distanceFromRounding(DType::I8, 3.0, 4.0), 0.5, 1e-9);
  EXPECT_EQ(distanceFromRounding(DType::I8, 127.0, 1e5), 0);
  EXPECT_EQ(distanceFromRounding(DType::F8E4M3, 448.0, 1e5), 0);
  EXPECT_EQ(distanceFromRounding(DType::F32, 1.0, 1.5), 0.5);
  EXPECT_EQ(distanceFromRounding(DType::Bool, 1.0, 0.0), 1.0);
}

TEST(CompareTest, AnF64ResultIsMeasuredFinerThanDouble) {
  RefOutput reference{RefTensor::create(true, {1}, /*isWide=*/true),
                      std::nullopt};
  reference.value.at(0).w = 1.0L + 0x1p-55L;
  EXPECT_EQ(compare(stored(DType::F64, {1}, {1}), reference).error, 0x1p-55);
}

TEST(CompareTest, PositionsAreComparedByTheirKeys) {
  RefOutput reference = exact({2}, {0, 2});
  RefTensor keys = RefTensor::create(true, {2, 3});
  double values[] = {5, 5, 1, 0, -1, 4};
  for (int i = 0; i < 6; ++i)
    keys.at(i).f = values[i];
  reference.selects = SelectedKeys{keys, 1};
  EXPECT_EQ(compare(stored(DType::I32, {2}, {0, 2}), reference).error, 0);
  EXPECT_EQ(compare(stored(DType::I32, {2}, {1, 2}), reference).error, 0)
      << "an equal key";
  EXPECT_NEAR(compare(stored(DType::I32, {2}, {2, 2}), reference).error, 0.8,
              1e-12);
  EXPECT_EQ(compare(stored(DType::I32, {2}, {7, 2}), reference).wrongClass, 1);
  EXPECT_EQ(compare(stored(DType::I32, {2}, {-1, 2}), reference).wrongClass, 1);
}

TEST(InputsTest, StridedCopiesHoldTheSameValues) {
  Tensor tensor = stored(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6});
  Tensor strided = llvm::cantFail(makeStrided(tensor));
  EXPECT_FALSE(strided.isRowMajor());
  EXPECT_TRUE(hasEqualBits(tensor, strided));
  Tensor transposed = llvm::cantFail(makeTransposed(tensor));
  EXPECT_EQ(transposed.strides(), (llvm::ArrayRef<int64_t>{1, 2}));
  EXPECT_TRUE(hasEqualBits(tensor, transposed));
  tensor.set(5, 7);
  EXPECT_FALSE(hasEqualBits(tensor, strided));
  EXPECT_FALSE(hasEqualBits(tensor, transposed));
}

TEST(InputsTest, LastBitsMoveWhereTheyAreComputed) {
  Tensor narrow = stored(DType::F16, {300}, std::vector<double>(300, 1));
  narrow.set(0, HUGE_VAL);
  std::vector<Tensor> wide = llvm::cantFail(asComputed({narrow}));
  EXPECT_EQ(wide[0].dtype(), DType::F32);
  std::mt19937_64 random(1);
  moveLastBits(wide[0], random);
  EXPECT_EQ(wide[0].get(0), HUGE_VAL);
  int below = 0, above = 0;
  for (int64_t i = 1; i < 300; ++i) {
    double moved = wide[0].get(i) - 1.0;
    below += moved == -0x1p-24;
    above += moved == 0x1p-23;
    EXPECT_TRUE(moved == 0 || moved == -0x1p-24 || moved == 0x1p-23);
  }
  EXPECT_GT(below, 50);
  EXPECT_GT(above, 50);
}

TEST(InputsTest, ShapesComeFromNamesOrAreAskedFor) {
  Port port{"x", DType::F32, {"m", "", "k"}, {-1, -1, 4}, ""};
  EXPECT_EQ(openDims({port}), (std::vector<std::string>{"m", "x.1"}));
  EXPECT_EQ(llvm::cantFail(shapeOf(port, {{"m", 2}, {"x.1", 3}})),
            (llvm::SmallVector<int64_t, 4>{2, 3, 4}));
  auto missing = shapeOf(port, {{"m", 2}});
  ASSERT_FALSE(static_cast<bool>(missing));
  EXPECT_EQ(
      llvm::toString(missing.takeError()),
      "found no extent of dimension 'x.1' of 'x', expected --shape x.1=...");
}
