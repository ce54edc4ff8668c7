// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Expr.h"

#include <cmath>
#include <gtest/gtest.h>

namespace refold::algebra::test {

namespace {
class ExprTest : public ::testing::Test {
protected:
  Expr read(const char *name, Type type = Type::F32) {
    return context.symbol(name, Role::Element, type, 1);
  }
  Context context;
};
} // namespace

TEST_F(ExprTest, EqualNodesAreOneObject) {
  Expr x = read("x"), y = read("y");
  EXPECT_EQ(context.add(x, y), context.add(x, y));
  EXPECT_NE(context.add(x, y), context.add(y, x));
  EXPECT_NE(context.real(0.5), context.real(0.5, Type::F64));
  EXPECT_EQ(context.real(std::nan("1")), context.real(std::nan("2")));
}

/// What the user wrote decides rounding: nothing is cancelled or regrouped.
TEST_F(ExprTest, TheBuilderDoesNotReassociate) {
  Expr a = read("a"), b = read("b");
  EXPECT_EQ(dump(context.sub(context.add(a, b), a)), "(sub (add a b) a)");
  EXPECT_EQ(dump(context.sub(a, a)), "(sub a a)");
  EXPECT_EQ(dump(context.mul(a, context.real(0))), "(mul a 0)");
  EXPECT_EQ(dump(context.div(a, a)), "(div a a)");
  EXPECT_EQ(dump(context.mul(context.real(2), context.mul(context.real(3), a))),
            "(mul 2 (mul 3 a))");
}

TEST_F(ExprTest, NeutralOperandsAndConstantsFold) {
  Expr x = read("x");
  EXPECT_EQ(context.mul(x, context.real(1)), x);
  EXPECT_EQ(context.add(x, context.real(0)), x);
  EXPECT_EQ(context.neg(context.neg(x)), x);
  EXPECT_EQ(context.logicalNot(context.boolean(true)), context.boolean(false));
  // In f32, as the kernel would.
  EXPECT_EQ(context.div(context.real(1), context.real(3)),
            context.real(double(1.0f / 3.0f)));
  EXPECT_EQ(context.fn(Fn::PowFn, x, context.real(1.5)),
            context.pow(x, rational(3, 2)));
  EXPECT_EQ(context.pow(x, rational(2, 2)), x);
  Expr highest = context.integer(INT64_MAX);
  EXPECT_EQ(dump(context.add(highest, context.integer(1))),
            "(add 9223372036854775807 1)");
}

/// Narrow floats are storage: extensions are no nodes, truncations are.
TEST_F(ExprTest, ExactExtensionsAreTransparent) {
  Expr h = read("h", Type::F16), x = read("x");
  EXPECT_EQ(context.cast(Type::F32, h), h);
  EXPECT_EQ(context.mul(h, h).type(), Type::F32);
  EXPECT_TRUE(context.cast(Type::F16, x).is(Kind::Cast));
  EXPECT_TRUE(context.cast(Type::BF16, h).is(Kind::Cast));
  EXPECT_EQ(promote(Type::Index, Type::F32), Type::F32);
  EXPECT_EQ(promote(Type::I8, Type::U8), Type::I32);
  EXPECT_TRUE(isExactConversion(Type::I8, Type::F16));
  EXPECT_FALSE(isExactConversion(Type::I32, Type::F32));
  EXPECT_FALSE(isExactConversion(Type::F16, Type::BF16));
}

TEST_F(ExprTest, IndexSetsFollowTheOperands) {
  Expr q = context.symbol("q", Role::Parameter, Type::F32, 0b0110);
  Expr k = context.symbol("k", Role::Element, Type::F32, 0b0101);
  Expr dot = context.contract(0b0100, context.mul(q, k));
  EXPECT_EQ(dot.indices(), 0b0011u);
  EXPECT_TRUE(dot.uses(Role::Parameter));
  EXPECT_FALSE(dot.uses(Role::Stage));
}

TEST_F(ExprTest, SubstitutionReplacesOnceAndRebuilds) {
  Expr x = read("x"), y = read("y");
  Expr e = context.exp(context.sub(x, y));
  EXPECT_EQ(substitute(context, e, {{x, y}, {y, x}}),
            context.exp(context.sub(y, x)));
  EXPECT_EQ(substitute(context, e, {{context.sub(x, y), x}}), context.exp(x));
  EXPECT_EQ(symbolsOf(e), (std::vector<Expr>{x, y}));
  EXPECT_TRUE(contains(e, context.sub(x, y)));
}

/// Two contexts, other names: equal up to names only if symbols correspond.
TEST_F(ExprTest, StructureIsComparedAcrossContexts) {
  Context other;
  Expr x = read("x"), y = read("y");
  Expr u = other.symbol("u", Role::Element, Type::F32, 1);
  Expr v = other.symbol("v", Role::Element, Type::F32, 1);
  Expr here = context.sub(context.mul(x, x), y);
  Expr there = other.sub(other.mul(u, u), v);
  Expr crossed = other.sub(other.mul(u, v), v);
  EXPECT_TRUE(structurallyEqual(here, there, false));
  EXPECT_EQ(structuralHash(here, false), structuralHash(there, false));
  EXPECT_FALSE(structurallyEqual(here, there, true));
  EXPECT_NE(structuralHash(here, true), structuralHash(there, true));
  EXPECT_FALSE(structurallyEqual(here, crossed, false));
  EXPECT_NE(structuralHash(here, false), structuralHash(crossed, false));
}

/// Shared subterms are visited once: 2^200 paths, 200 nodes.
TEST_F(ExprTest, SharedTermsStayCheap) {
  Expr e = read("x");
  for (int i = 0; i < 200; ++i)
    e = context.mul(e, e);
  unsigned nodes = 0;
  forEachNode(e, [&](Expr) { ++nodes; });
  EXPECT_EQ(nodes, 201u);
  EXPECT_EQ(e->depth, 201u);
  Expr y = read("y");
  EXPECT_TRUE(contains(substitute(context, e, {{read("z"), y}}), e));
  EXPECT_TRUE(structurallyEqual(e, e, true));
}

} // namespace refold::algebra::test
