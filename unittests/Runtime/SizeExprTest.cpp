// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/SizeExpr.h"

#include "gtest/gtest.h"
#include <limits>

using namespace refold;
using Op = SizeExpr::Op;

static constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
static constexpr int64_t kMin = std::numeric_limits<int64_t>::min();

static std::optional<int64_t> apply(Op op, int64_t a, int64_t b) {
  SizeExpr expr =
      SizeExpr::binary(op, SizeExpr::symbol(0), SizeExpr::symbol(1));
  return expr.evaluate(std::vector<int64_t>{a, b});
}

TEST(SizeExprTest, Operators) {
  EXPECT_EQ(apply(Op::Add, 3, 4), 7);
  EXPECT_EQ(apply(Op::Sub, 3, 4), -1);
  EXPECT_EQ(apply(Op::Mul, 3, 4), 12);
  EXPECT_EQ(apply(Op::FloorDiv, 7, 2), 3);
  EXPECT_EQ(apply(Op::FloorDiv, -7, 2), -4);
  EXPECT_EQ(apply(Op::FloorDiv, 7, -2), -4);
  EXPECT_EQ(apply(Op::CeilDiv, 7, 2), 4);
  EXPECT_EQ(apply(Op::CeilDiv, -7, 2), -3);
  EXPECT_EQ(apply(Op::CeilDiv, 8, 2), 4);
  EXPECT_EQ(apply(Op::Mod, 7, 3), 1);
  EXPECT_EQ(apply(Op::Mod, -7, 3), 2);
  EXPECT_EQ(apply(Op::Min, 7, 3), 3);
  EXPECT_EQ(apply(Op::Max, 7, 3), 7);
  EXPECT_EQ(apply(Op::Eq, 7, 7), 1);
  EXPECT_EQ(apply(Op::Ne, 7, 7), 0);
  EXPECT_EQ(apply(Op::Lt, 3, 7), 1);
  EXPECT_EQ(apply(Op::Le, 8, 7), 0);
}

TEST(SizeExprTest, OverflowHasNoValue) {
  EXPECT_EQ(apply(Op::Add, kMax, 1), std::nullopt);
  EXPECT_EQ(apply(Op::Sub, kMin, 1), std::nullopt);
  EXPECT_EQ(apply(Op::Mul, kMax / 2 + 1, 2), std::nullopt);
  EXPECT_EQ(apply(Op::FloorDiv, kMin, -1), std::nullopt);
  EXPECT_EQ(apply(Op::CeilDiv, kMin, -1), std::nullopt);
  EXPECT_EQ(apply(Op::Mod, kMin, -1), std::nullopt);
  for (Op op : {Op::FloorDiv, Op::CeilDiv, Op::Mod})
    EXPECT_EQ(apply(op, 1, 0), std::nullopt);
  EXPECT_EQ(apply(Op::Mul, kMax, 1), kMax);
  // Constants that overflow are not folded to something else.
  EXPECT_EQ((SizeExpr(kMax) + SizeExpr(1)).evaluate({}), std::nullopt);
}

TEST(SizeExprTest, FoldsConstantsAndNeutralElements) {
  SizeExpr s = SizeExpr::symbol(0);
  EXPECT_EQ((SizeExpr(3) * SizeExpr(4)).constant(), 12);
  EXPECT_EQ(s + SizeExpr(0), s);
  EXPECT_EQ(SizeExpr(1) * s, s);
  EXPECT_EQ((s * SizeExpr(0)).evaluate(std::vector<int64_t>{5}), 0);
  EXPECT_EQ(SizeExpr::select(SizeExpr(0), SizeExpr(1), s), s);
  EXPECT_EQ(
      SizeExpr::binary(Op::FloorDiv, s + SizeExpr(15), SizeExpr(16)).show(),
      "((s0 + 15) floordiv 16)");
  EXPECT_EQ(
      SizeExpr::select(SizeExpr::binary(Op::Lt, s, SizeExpr(2)), SizeExpr(7), s)
          .show(),
      "((s0 < 2) ? 7 : s0)");
}

TEST(SizeExprTest, EqualWhereBuiltAlike) {
  SizeExpr s = SizeExpr::symbol(0), t = SizeExpr::symbol(1);
  EXPECT_EQ((s + t) * SizeExpr(3), (s + t) * SizeExpr(3));
  EXPECT_FALSE((s + t) * SizeExpr(3) == (s + t) * SizeExpr(4));
  EXPECT_FALSE(s + t == t + s);
  EXPECT_FALSE(s + t == s - t);
  EXPECT_FALSE(s == SizeExpr(0)); // symbol 0 and the number 0
}

TEST(SizeExprTest, MissingSymbolsAndDepthAreNoCrash) {
  EXPECT_EQ(SizeExpr::symbol(3).evaluate(std::vector<int64_t>{1, 2, 3}),
            std::nullopt);
  // Deeper than the stack: neither a value nor an end takes a call a level.
  constexpr int64_t kDeep = 1 << 19;
  SizeExpr left = SizeExpr::symbol(0), right = SizeExpr::symbol(0);
  for (int64_t i = 0; i < kDeep; ++i) {
    left = left + SizeExpr::symbol(0);
    right = SizeExpr::symbol(0) + right;
  }
  EXPECT_EQ(left.evaluate(std::vector<int64_t>{1}), 1 + kDeep);
  EXPECT_EQ(right.evaluate(std::vector<int64_t>{1}), 1 + kDeep);
}
