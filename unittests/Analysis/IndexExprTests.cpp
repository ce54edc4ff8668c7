// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Analysis/IndexExpr.h"

#include "gtest/gtest.h"

using namespace refold;

namespace {

const Size kHeads = Size::constant(12), kWidth = Size::constant(32);
const Size kBatch{1, {0}}, kLength{1, {1}}; // known when run

class IndexExprTest : public testing::Test {
protected:
  IndexAtoms atoms;
  IndexExpr b = atoms.index(0, kBatch);
  IndexExpr h = atoms.index(1, kHeads);
  IndexExpr n = atoms.index(2, kLength);
  IndexExpr d = atoms.index(3, kWidth);

  /// Row-major position of `minor` below `major`.
  IndexExpr collapse(const IndexExpr &major, const IndexExpr &minor,
                     const Size &size) {
    return atoms.add(atoms.scale(major, size), minor);
  }
};

TEST_F(IndexExprTest, CollapseAndExpandGiveTheIndicesBack) {
  IndexExpr bh = collapse(b, h, kHeads);
  EXPECT_EQ(atoms.floorDiv(bh, kHeads), b);
  EXPECT_EQ(atoms.mod(bh, kHeads), h);
}

TEST_F(IndexExprTest, TheMinorSizeMayBeUnknown) {
  IndexExpr bn = collapse(b, n, kLength);
  EXPECT_EQ(atoms.floorDiv(bn, kLength), b);
  EXPECT_EQ(atoms.mod(bn, kLength), n);
}

TEST_F(IndexExprTest, ThreeDigits) {
  IndexExpr all = collapse(collapse(b, h, kHeads), n, kLength);
  EXPECT_EQ(atoms.floorDiv(all, kHeads * kLength), b);
  EXPECT_EQ(atoms.mod(atoms.floorDiv(all, kLength), kHeads), h);
  EXPECT_EQ(atoms.mod(all, kLength), n);
}

TEST_F(IndexExprTest, AnotherSizeDoesNotCancel) {
  IndexExpr bh = collapse(b, h, kHeads);
  IndexExpr quotient = atoms.floorDiv(bh, Size::constant(8));
  EXPECT_FALSE(atoms.asIndex(quotient));
  EXPECT_EQ(atoms.indicesOf(quotient), 0b11u);
  // A size that is only known when run is not 12, whatever it will be.
  EXPECT_FALSE(atoms.asIndex(atoms.floorDiv(bh, kLength)));
}

TEST_F(IndexExprTest, NumbersBelowTheDivisorVanish) {
  IndexExpr shifted = atoms.add(d, IndexExpr(32));
  EXPECT_EQ(atoms.floorDiv(shifted, kWidth), IndexExpr(1));
  EXPECT_EQ(atoms.mod(shifted, kWidth), d);
  // d + 1 reaches 32 once: nothing may vanish.
  IndexExpr next = atoms.add(d, IndexExpr(1));
  EXPECT_FALSE(atoms.floorDiv(next, kWidth).isConstant());
}

TEST_F(IndexExprTest, SumsCancel) {
  IndexExpr zero = atoms.add(n, atoms.scale(n, Size::constant(-1)));
  EXPECT_TRUE(zero.isConstant());
  EXPECT_EQ(zero.constant, 0);
}

TEST_F(IndexExprTest, AffineFormNeedsNumbers) {
  mlir::MLIRContext context;
  llvm::SmallVector<algebra::Expr> computed;
  mlir::AffineExpr bh =
      atoms.toAffine(collapse(b, h, kHeads), &context, 64, computed);
  EXPECT_EQ(bh, mlir::getAffineDimExpr(0, &context) * 12 +
                    mlir::getAffineDimExpr(1, &context));
  EXPECT_FALSE(atoms.toAffine(collapse(b, n, kLength), &context, 64, computed));
}

TEST(SizeTest, QuotientsAreExactOrNone) {
  EXPECT_EQ(exactQuotient(kHeads * kLength, kLength), kHeads);
  EXPECT_EQ(exactQuotient(kHeads, Size::constant(5)), std::nullopt);
  EXPECT_EQ(exactQuotient(kHeads, kLength), std::nullopt);
  EXPECT_EQ(exactQuotient(Size::constant(0) * kBatch, kHeads),
            Size::constant(0));
}

} // namespace
