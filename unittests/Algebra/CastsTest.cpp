// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Suite.h"

#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Evaluate.h"

#include <gtest/gtest.h>

namespace refold::algebra::test {
namespace {

/// What becomes of one cascade under a policy.
struct Outcome {
  explicit Outcome(const std::string &lines, CastPolicy casts,
                   RowPolicy rows = RowPolicy::Ieee)
      : text(lines), cascade(text.cascade()) {
    Policy policy;
    policy.casts = casts;
    policy.maskedRows = rows;
    derivation = derive(cascade, policy);
  }
  const Program &program() const { return *derivation.program; }
  Certificate certificate() const { return certify(cascade, derivation); }
  std::string cutText() const {
    return program().cuts.empty() ? "" : program().cuts[0].text;
  }

  Text text;
  Cascade cascade;
  Derivation derivation;
};

/// One pass under `requantise`, within its bound; two under `exact`.
void expectRequantised(const std::string &lines) {
  Outcome exact(lines, CastPolicy::Exact);
  EXPECT_EQ(exact.program().passes, 2u) << lines;
  ASSERT_FALSE(exact.program().cuts.empty()) << lines;
  EXPECT_EQ(exact.program().cuts[0].reason, "mixed-cast") << lines;
  EXPECT_NE(exact.program().cuts[0].hint.find("--casts requantise"),
            std::string::npos)
      << exact.program().cuts[0].hint;
  EXPECT_TRUE(exact.certificate().holds) << lines;

  Outcome running(lines, CastPolicy::Requantise);
  EXPECT_EQ(running.program().passes, 1u) << lines << running.cutText();
  EXPECT_FALSE(running.program().roundings.empty()) << lines;
  Certificate certificate = running.certificate();
  EXPECT_TRUE(certificate.holds) << lines << certificate.summary();
  EXPECT_GT(certificate.boundedRows, 0u) << lines;
  EXPECT_GT(certificate.shareOfBound, 0) << lines;
  EXPECT_LE(certificate.shareOfBound, 1) << lines;
}

void expectCut(const std::string &lines, const std::string &text) {
  Outcome outcome(lines, CastPolicy::Requantise);
  EXPECT_EQ(outcome.program().passes, 2u) << lines;
  EXPECT_NE(outcome.cutText().find(text), std::string::npos)
      << lines << outcome.cutText();
}

const char *const kScaled = "in x w\na = max abs(x)\n"
                            "y = sum f8e4m3(x*448/a)*w\nout o = y*a/448";
const char *const kWeights = "in x v\nm = max x\ns = sum exp(x-m)\n"
                             "o = sum f8e4m3(exp(x-m))*v\nout r = o/s";

TEST(CastsTest, ScalesOfTheLargestElement) {
  expectRequantised(kScaled);
  expectRequantised("in x w\na = max abs(x)\nS := max(a, 1/100000)/448\n"
                    "y = sum f8e4m3(x/S)*w\nout o = y*S");
  expectRequantised("in x w\na = max abs(x)\nS := where(a > 0, a/448, 1)\n"
                    "y = sum f8e4m3(max(min(x/S, 448), -448))*w\n"
                    "out o = y*S");
  expectRequantised("in x w\na = max abs(x)\nS := max(a, 1/100000)/127\n"
                    "y = sum max(min(round(x/S), 127), -127)*w\nout o = y*S");
}

TEST(CastsTest, RoundedWeights) {
  expectRequantised(kWeights);
  // The normaliser from the rounded weights, and after the division.
  expectRequantised("in x v\nm = max x\ns = sum f8e4m3(exp(x-m))\n"
                    "o = sum f8e4m3(exp(x-m))*v\nout r = o/s");
  expectRequantised("in x v\nm = max x\ns = sum exp(x-m)\n"
                    "r = sum f8e4m3(exp(x-m)/s)*v\nout o = r");
  expectRequantised("in x v\nm = max x\ns = sum exp2(x-ceil(m))\n"
                    "o = sum f8e4m3(exp2(x-ceil(m)))*v\nout r = o/s");
  expectRequantised("in x v\nmask k\nm = max x\ns = sum exp(x-m)\n"
                    "o = sum f8e4m3(256*where(k, exp(x-m), 0))*v\n"
                    "out r = o/(256*s)");
}

/// The product is of integers; what reads the sum converts it.
TEST(CastsTest, SumsOfRoundedIntegers) {
  Context context;
  Cascade cascade(context);
  unsigned n = cascade.addIndex("n", IndexRole::Stream);
  IndexSet stream = IndexSet(1) << n;
  Expr x = cascade.addRead("x", stream);
  Expr w = cascade.addRead("w", stream, Type::I8);
  Expr a = cascade.addStage("a", Reducer::Max, context.fn(Fn::Abs, x));
  Expr q = context.cast(
      Type::I8,
      context.fn(Fn::Round, context.mul(x, context.div(context.real(127), a))));
  Expr y = cascade.addStage("y", Reducer::Sum, context.mul(q, w));
  cascade.addOutput("o", context.mul(y, a));
  Policy policy;
  EXPECT_EQ(derive(cascade, policy).program->passes, 2u);
  policy.casts = CastPolicy::Requantise;
  Derivation derivation = derive(cascade, policy);
  EXPECT_EQ(derivation.program->passes, 1u);
  Certificate certificate = certify(cascade, derivation);
  EXPECT_TRUE(certificate.holds) << certificate.summary();
  // Somebody wants the integer.
  cascade.addOutput("t", y);
  EXPECT_EQ(derive(cascade, policy).program->passes, 2u);
}

TEST(CastsTest, WhatIsNotBoundedIsCut) {
  expectCut("in x w\na = max x\ny = sum f8e4m3(x*448/a)*w\nout o = y",
            "the scale is not known to grow");
  expectCut("in x w\nq = sum x*x\ny = sum f8e4m3(x*448/sqrt(q))*w*w\n"
            "z = sum f8e4m3(x*x*448/sqrt(q))*w\nout o = z",
            "within the range of the type");
  expectCut("in x w\na = max abs(x)\ny = sum f8e4m3(x+a)*w\nout o = y",
            "no product of a part in the element");
  // OCP's shared exponent saturates the elements near the largest.
  expectCut("in x w\na = max abs(x)\nS := exp2(floor(log2(a))-8)\n"
            "y = sum f8e4m3(x/S)*w\nout o = y*S",
            "within the range of the type");
}

TEST(CastsTest, ABoundRefusesCoarserTypes) {
  Text text(kWeights);
  Cascade cascade = text.cascade();
  Policy policy;
  policy.casts = CastPolicy::Requantise;
  for (auto [bound, passes] : {std::pair(0.07, 1u), {0.06, 2u}}) {
    policy.castBound = bound;
    EXPECT_EQ(derive(cascade, policy).program->passes, passes) << bound;
  }
}

/// Law `power-of-two-scale`: exact needs no policy, and what differs are
/// subnormal values alone.
TEST(CastsTest, PowersOfTwoPassThrough) {
  Outcome outcome("in x w\na = max abs(x)\nS := exp2(ceil(log2(a/448)))\n"
                  "y = sum f8e4m3(x/S)*w\nout o = y*S",
                  CastPolicy::Exact);
  EXPECT_EQ(outcome.program().passes, 1u) << outcome.cutText();
  ASSERT_EQ(outcome.program().roundings.size(), 1u);
  EXPECT_TRUE(outcome.program().roundings[0].isPowerOfTwo);
  Certificate certificate = outcome.certificate();
  EXPECT_TRUE(certificate.holds) << certificate.summary();
}

/// A program for a rounded cascade with one transport replaced.
bool survives(const char *lines, unsigned which,
              Expr (*change)(Context &, Expr)) {
  Outcome outcome(lines, CastPolicy::Requantise);
  Program &program = *outcome.derivation.program;
  unsigned number = 0;
  for (Definition &definition : program.definitions)
    if (State *state = std::get_if<State>(&definition))
      if (state->transport && number++ == which)
        state->transport = change(outcome.text.context, state->transport);
  return outcome.certificate().holds;
}

TEST(CastsTest, WrongTransportsAreRejected) {
  auto same = [](Context &, Expr transport) { return transport; };
  auto none = [](Context &context, Expr transport) {
    return context.placeholder(Role::Self, 0, transport.type());
  };
  auto twice = [](Context &context, Expr transport) {
    return context.mul(transport, context.real(2));
  };
  auto swapped = [](Context &context, Expr transport) {
    ExprMap map;
    for (Expr symbol : symbolsOf(transport))
      if (symbol.isSym(Role::Old) || symbol.isSym(Role::New))
        map[symbol] =
            context.placeholder(symbol.isSym(Role::Old) ? Role::New : Role::Old,
                                symbol.symbol().ordinal, symbol.type());
    return substitute(context, transport, map);
  };
  auto rounded = [](Context &context, Expr transport) {
    return context.cast(Type::F8E4M3, transport);
  };
  EXPECT_TRUE(survives(kScaled, 0, same));
  EXPECT_TRUE(survives(kWeights, 1, same));
  for (auto change : {+none, +twice, +swapped, +rounded}) {
    EXPECT_FALSE(survives(kScaled, 0, change));
    EXPECT_FALSE(survives(kWeights, 1, change));
  }
}

/// The element rounded to coarser steps, or relative to another scale, is
/// beyond the bound, though its transport is right.
TEST(CastsTest, WrongElementsAreRejected) {
  for (bool isScale : {false, true}) {
    Outcome outcome(kScaled, CastPolicy::Requantise);
    Context &context = outcome.text.context;
    for (Definition &definition : outcome.derivation.program->definitions)
      if (State *state = std::get_if<State>(&definition))
        for (Expr &value : state->values) {
          if (state->pivots.empty())
            continue;
          ExprMap map;
          Expr step = context.real(64);
          forEachNode(value, [&](Expr e) {
            if (e.is(Kind::Cast))
              map[e] =
                  isScale
                      ? context.mul(e, context.real(1.25))
                      : context.mul(context.fn(Fn::Round,
                                               context.div(e.operand(0), step)),
                                    step);
          });
          value = substitute(context, value, map);
        }
    Certificate certificate = outcome.certificate();
    EXPECT_FALSE(certificate.holds) << isScale;
  }
}

TEST(CastsTest, MaskedRowsAreZeroByPolicy) {
  const char *const softmax = "in x v\nm = max x\ns = sum exp(x-m)\n"
                              "o = sum exp(x-m)/s*v\nout r = o\n"
                              "out p = exp(x-m)/s\nout t = m";
  for (RowPolicy rows : {RowPolicy::Ieee, RowPolicy::Zero}) {
    Outcome outcome(softmax, CastPolicy::Exact, rows);
    bool isZero = rows == RowPolicy::Zero;
    EXPECT_EQ(outcome.program().zeroedOutputs,
              isZero ? std::vector<std::string>({"r", "p"})
                     : std::vector<std::string>());
    EXPECT_TRUE(outcome.certificate().holds) << outcome.certificate().summary();
    Random random(1);
    Sample sample =
        makeSample(outcome.cascade.indices, rootsOf(outcome.cascade),
                   Family::Normal, 3, random);
    for (auto &[symbol, values] : sample.values)
      if (symbol->name == "x")
        values.assign(values.size(), -HUGE_VAL);
    ProgramEvaluator<double> evaluator(outcome.program(), sample.extents);
    RowValues<double> row = evaluator.run(sample, Order::Balanced, random);
    EXPECT_EQ(std::isnan(row.outputs[0][0]), !isZero);
    EXPECT_EQ(row.outputs[0][0] == 0, isZero);
    EXPECT_EQ(row.outputs[1][2] == 0, isZero);
    EXPECT_EQ(row.outputs[2][0], -HUGE_VAL) << "no nan, so it stays";
  }
}

/// Not softmax alone: any pivot. A policy that zeroes what is no NaN is caught.
TEST(CastsTest, ZeroIsForNanOnly) {
  Outcome outcome("in x w\nlo = min x\no = sum (x-lo)*w\nout r = o",
                  CastPolicy::Exact, RowPolicy::Zero);
  EXPECT_EQ(outcome.program().zeroedOutputs.size(), 1u);
  EXPECT_TRUE(outcome.certificate().holds) << outcome.certificate().summary();
  Program &program = *outcome.derivation.program;
  Context &context = outcome.text.context;
  program.outputs[0].value =
      context.mul(program.outputs[0].value, context.real(0));
  EXPECT_FALSE(outcome.certificate().holds);
}

} // namespace
} // namespace refold::algebra::test
