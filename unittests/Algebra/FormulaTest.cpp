// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Formula.h"

#include "TestPrograms.h"

#include <gtest/gtest.h>

using namespace refold::algebra;

namespace {

using Lines = std::vector<std::string>;

TEST(FormulaTest, WeightedMeanReadsAsOnPaper) {
  auto h = makeWeightedMean();
  FormulaText text = describe(h->program);
  ASSERT_EQ(text.passes.size(), 1u);
  EXPECT_EQ(text.passes[0].absorb,
            (Lines{"m' = max(m, x)", "s' = s·exp(m - m') + exp(x - m')",
                   "a' = a·exp(m - m') + exp(x - m')·v"}));
  EXPECT_EQ(text.passes[0].merge[0], "m = max(m.a, m.b)");
  EXPECT_EQ(text.passes[0].merge[1], "s = s.a·exp(m.a - m) + s.b·exp(m.b - m)");
  EXPECT_EQ(text.passes[0].state[1],
            "s = Σ_n exp(x - m), kept relative to m (law rescale-distributes)");
}

TEST(FormulaTest, TaylorShiftInAscii) {
  auto h = makeVariance();
  FormulaText text = describe(h->program, Charset::Ascii);
  EXPECT_EQ(text.passes[0].absorb,
            (Lines{"count' = count + 1", "sum' = sum + x",
                   "mu' = sum' / max(count', 1)",
                   "c1' = c1 + (mu - mu')*count + (x - mu')",
                   "c2' = c2 + 2*(mu - mu')*c1 + (mu - mu')^2*count + "
                   "(x - mu')^2"}));
  EXPECT_EQ(text.finish, Lines{"var = c2 / len(n)"});
}

TEST(FormulaTest, StagesAreTheUsersOwn) {
  auto h = makeVariance();
  Derivation derivation;
  derivation.program = h->program;
  FormulaText text = describe(h->cascade, derivation);
  EXPECT_EQ(text.stages,
            (Lines{"S = Σ_n x", "Q = Σ_n (x - S / len(n))·(x - S / len(n))"}));
  EXPECT_NE(text.str().find("finish\n  var = c2 / len(n)\n"),
            std::string::npos);
}

TEST(FormulaTest, SharedPartsOfTheFinishGetNames) {
  auto h = makeVariance();
  Context &c = h->context;
  Expr var = c.sqrt(c.add(h->program.outputs[0].value, c.real(1)));
  h->program.outputs = {{"a", c.add(var, c.real(2))}, {"b", var}};
  FormulaText text = describe(h->program);
  EXPECT_EQ(text.finish,
            (Lines{"u1 = sqrt(c2 / len(n) + 1)", "a = u1 + 2", "b = u1"}));
}

/// What is printed has the structure that is computed.
TEST(FormulaTest, ParenthesesKeepTheStructure) {
  Context c;
  Expr a = c.symbol("a", Role::Parameter, Type::F32, 0);
  Expr b = c.symbol("b", Role::Parameter, Type::F32, 0);
  EXPECT_EQ(format(c.sub(a, c.sub(b, a))), "a - (b - a)");
  EXPECT_EQ(format(c.sub(c.sub(a, b), a)), "a - b - a");
  EXPECT_EQ(format(c.div(a, c.mul(b, a))), "a / (b·a)");
  EXPECT_EQ(format(c.mul(c.neg(a), b)), "-a·b");
  EXPECT_EQ(format(c.pow(c.add(a, b), {3, 1})), "(a + b)³");
  EXPECT_EQ(format(c.select(c.cmp(Pred::Le, a, b), a, c.real(-HUGE_VAL))),
            "where(a ≤ b, a, -∞)");
  EXPECT_EQ(format(c.logicalNot(c.cmp(Pred::Ne, a, b)),
                   {Charset::Ascii, nullptr, {}, {}}),
            "not a != b");
}

/// Shared parts are written out, so a small graph can be a huge text.
TEST(FormulaTest, HugeTextIsCutOff) {
  Context c;
  Expr e = c.symbol("π", Role::Parameter, Type::F32, 0);
  for (int i = 0; i < 400; ++i)
    e = c.mul(c.add(e, e), e);
  std::string text = format(e);
  EXPECT_LT(text.size(), 4100u);
  EXPECT_TRUE(text.ends_with("..."));
}

} // namespace
