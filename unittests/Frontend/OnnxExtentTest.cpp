// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Frontend/ONNX/Extent.h"
#include "gtest/gtest.h"

using namespace refold::onnx;

namespace {

struct ExtentTest : testing::Test {
  Extents e;
  Extent b = e.symbol("b"), l = e.symbol("l");
};

TEST_F(ExtentTest, EqualPolynomialsAreEqualObjects) {
  EXPECT_EQ(e.mul(e.add(b, 1), e.sub(b, 1)), e.sub(e.mul(b, b), 1));
  EXPECT_EQ(e.sub(e.mul(b, l), e.mul(l, b)), Extent(0));
  EXPECT_EQ(e.symbol("b"), b);
  EXPECT_FALSE(e.symbol("") == e.symbol(""));
  EXPECT_EQ(e.toString(e.sub(e.mul(2, e.mul(b, l)), 3)), "2*b*l - 3");
}

TEST_F(ExtentTest, DividesExactlyOrNotAtAll) {
  EXPECT_EQ(e.divideExactly(e.mul(e.mul(b, 12), l), e.mul(3, b)), e.mul(4, l));
  Extent grown = e.add(l, 1);
  EXPECT_EQ(e.divideExactly(e.mul(e.mul(b, grown), 384), grown), e.mul(b, 384));
  EXPECT_FALSE(e.divideExactly(e.mul(3, b), 2));
  EXPECT_FALSE(e.divideExactly(b, l));
  EXPECT_FALSE(e.divideExactly(b, 0));
}

TEST_F(ExtentTest, BoundsDecideMinimaAndComparisons) {
  Extent capped = e.min(l, 512);
  EXPECT_TRUE(e.isAtMost(capped, 512));
  EXPECT_TRUE(e.isAtMost(capped, l));
  EXPECT_TRUE(e.isAtMost(l, e.max(l, 7)));
  EXPECT_FALSE(e.isAtMost(l, capped));
  EXPECT_EQ(e.min(b, e.add(b, 1)), b);
  EXPECT_EQ(e.min(l, INT64_MAX), l); // "to the end" of exporters
  EXPECT_EQ(e.max(b, 0), b);
  EXPECT_TRUE(e.areUnequal(b, -1));
  EXPECT_FALSE(e.areUnequal(b, 1));
  // The last flattened position of a matrix lies inside it.
  Extent last = e.add(e.mul(e.sub(b, 1), l), e.sub(l, 1));
  EXPECT_TRUE(e.isAtMost(e.add(last, 1), e.mul(b, l)));
}

TEST_F(ExtentTest, FloorDivisionTakesOutWhatDivides) {
  EXPECT_EQ(e.floorDiv(e.mul(8, b), 8), b);
  EXPECT_EQ(e.floorDiv(e.add(e.mul(8, b), 17), 8), e.add(b, 2));
  EXPECT_EQ(e.floorDiv(-7, 2), Extent(-4));
  EXPECT_EQ(e.ceilDiv(e.mul(2, b), 2), b);
  EXPECT_EQ(e.mod(e.mul(6, b), 3), Extent(0));
  EXPECT_EQ(e.floorDiv(b, 2), e.floorDiv(b, 2));
  EXPECT_TRUE(e.isNonNegative(e.floorDiv(b, 2)));
}

TEST_F(ExtentTest, OverflowIsNoticed) {
  Extent huge = e.mul(Extent(INT64_MAX), b);
  EXPECT_FALSE(e.hasOverflowed);
  e.mul(huge, 2);
  EXPECT_TRUE(e.hasOverflowed);
  e.hasOverflowed = false;
  Extent power = b;
  for (int i = 0; i < 6; ++i)
    power = e.mul(power, power);
  EXPECT_TRUE(e.hasOverflowed);
}

TEST_F(ExtentTest, AssumedEqualitiesHold) {
  Extent capped = e.min(l, 512);
  EXPECT_FALSE(e.areEqual(capped, l));
  e.assume(capped, l);
  EXPECT_TRUE(e.areEqual(l, capped));
}

} // namespace
