// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Cascades built by hand: index sets, the shape of derived programs, refusals,
// and input that means no good.
#include "Suite.h"

#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Evaluate.h"

#include <cmath>

#include <gtest/gtest.h>

namespace refold::algebra::test {

namespace {
/// o[m,e] = softmax over n of a contraction over d, masked by an index compare.
struct Attention {
  Context context;
  Cascade cascade{context};
  unsigned m = cascade.addIndex("m", IndexRole::Row);
  unsigned n = cascade.addIndex("n", IndexRole::Stream);
  unsigned d = cascade.addIndex("d", IndexRole::Inner, 4);
  unsigned e = cascade.addIndex("e", IndexRole::Carried);
  Expr logits, top, share, sum, result;

  explicit Attention(Type type = Type::F32) {
    Expr q = cascade.addRead("q", 1u << m | 1u << d, type);
    Expr k = cascade.addRead("k", 1u << n | 1u << d, type);
    Expr v = cascade.addRead("v", 1u << n | 1u << e, type);
    Expr dot = context.contract(1u << d, context.mul(q, k));
    Expr scaled = context.mul(dot, context.real(0.5));
    Expr causal = context.cmp(Pred::Le, cascade.indices[n].value,
                              cascade.indices[m].value);
    logits = context.select(
        causal, scaled, context.real(-std::numeric_limits<double>::infinity()));
    top = cascade.addStage("t", Reducer::Max, logits);
    share = context.exp(context.sub(logits, top));
    sum = cascade.addStage("z", Reducer::Sum, share);
    result = cascade.addStage("o", Reducer::Sum,
                              context.mul(context.div(share, sum), v));
    cascade.addOutput("o", result);
    cascade.addOutput("p", context.div(share, sum));
  }
};
} // namespace

static const State &stateAt(const Program &program, size_t number) {
  for (const Definition &definition : program.definitions)
    if (const State *state = std::get_if<State>(&definition))
      if (number-- == 0)
        return *state;
  abort();
}

TEST(CascadeTest, AttentionHasTheFormOfTheOp) {
  Attention attention;
  Derivation derivation = derive(attention.cascade);
  ASSERT_TRUE(derivation.program);
  const Program &program = *derivation.program;
  EXPECT_EQ(program.passes, 1u);
  EXPECT_EQ(program.unfusedPasses, 3u);
  EXPECT_EQ(program.stateSize, 3u);
  EXPECT_EQ(stateAt(program, 0).values[0], attention.logits);
  const State &z = stateAt(program, 1), &o = stateAt(program, 2);
  EXPECT_EQ(dump(z.transport), "(mul self (exp (sub old0 new0)))");
  EXPECT_EQ(z.transport, o.transport);
  EXPECT_EQ(z.law, "rescale-distributes");
  EXPECT_EQ(z.gauge, "t");
  ASSERT_EQ(z.pivots.size(), 1u);
  EXPECT_EQ(dump(program.findLet(z.pivots[0])->value),
            "(maxnum t -3.40282347e+38)");
  EXPECT_EQ(z.values[0].operand(0).operand(1), z.pivots[0]);
  // The factor without carried index first: one operand of a matrix product.
  EXPECT_EQ(o.values[0].operand(0), z.values[0]);
  EXPECT_EQ(z.indices, 1u << attention.m);
  EXPECT_EQ(o.indices, 1u << attention.m | 1u << attention.e);
  // A sweep keeps the user's formula, at the final maximum.
  ExprMap complete{{attention.top, stateAt(program, 0).symbol()},
                   {attention.sum, z.symbol()}};
  EXPECT_EQ(program.outputs[1].value,
            substitute(attention.context, attention.cascade.outputs[1].value,
                       complete));
  EXPECT_TRUE(certify(attention.cascade, derivation).holds);
}

/// Storage types change nothing, f64 the constants only.
TEST(CascadeTest, StorageDoesNotChangeTheProgram) {
  Attention single, half(Type::F16), brain(Type::BF16);
  auto of = [](const Attention &attention) {
    return *derive(attention.cascade).program;
  };
  Program a = of(single), b = of(half), c = of(brain);
  for (const Program *other : {&b, &c}) {
    ASSERT_EQ(a.definitions.size(), other->definitions.size());
    EXPECT_EQ(dump(a.outputs[0].value), dump(other->outputs[0].value));
    EXPECT_EQ(dump(stateAt(a, 2).values[0]),
              dump(stateAt(*other, 2).values[0]));
    EXPECT_EQ(stateAt(*other, 2).results[0].type(), Type::F32);
  }
}

/// Mean and variance over (c, p), affine parameters that know c only.
TEST(CascadeTest, SeveralStreamIndicesAreOneStream) {
  Context context;
  Cascade cascade(context);
  unsigned g = cascade.addIndex("g", IndexRole::Row);
  unsigned c = cascade.addIndex("c", IndexRole::Stream);
  unsigned p = cascade.addIndex("p", IndexRole::Stream);
  Expr x = cascade.addRead("x", 1u << g | 1u << c | 1u << p);
  Expr gamma = cascade.addRead("gamma", 1u << g | 1u << c);
  Expr length = context.cast(
      Type::F32,
      context.cast(Type::I64, context.mul(cascade.indices[c].length,
                                          cascade.indices[p].length)));
  Expr sum = cascade.addStage("s", Reducer::Sum, x);
  Expr centred = context.sub(x, context.div(sum, length));
  Expr squares =
      cascade.addStage("v", Reducer::Sum, context.mul(centred, centred));
  cascade.addOutput(
      "y", context.mul(context.mul(centred, gamma),
                       context.fn(Fn::Rsqrt, context.div(squares, length))));
  Derivation derivation = derive(cascade);
  ASSERT_TRUE(derivation.program);
  EXPECT_EQ(derivation.program->passes, 1u);
  EXPECT_EQ(derivation.program->stateSize, 4u);
  // The mean is recognised through the casts of its length: no cancellation is
  // left between it and the pivot.
  std::string readout = dump(derivation.program->readouts[1][0]);
  EXPECT_EQ(readout.find("len"), std::string::npos) << readout;
  Certificate certificate = certify(cascade, derivation);
  EXPECT_TRUE(certificate.holds) << certificate.failure;
}

/// The same with 4 channels: the count is 4·len(p), on rows of 4·k elements.
TEST(CascadeTest, CountsOfStaticExtentsHoldOnTheirMultiples) {
  for (int64_t wrong : {0, 1}) {
    Context context;
    Cascade cascade(context);
    unsigned c = cascade.addIndex("c", IndexRole::Stream, 4);
    unsigned p = cascade.addIndex("p", IndexRole::Stream);
    Expr x = cascade.addRead("x", 1u << c | 1u << p);
    Expr length =
        context.mul(context.integer(4, Type::Index), cascade.indices[p].length);
    Expr sum = cascade.addStage("s", Reducer::Sum, x);
    Expr centred =
        context.sub(x, context.div(sum, context.cast(Type::F32, length)));
    Expr squares =
        cascade.addStage("v", Reducer::Sum, context.mul(centred, centred));
    cascade.addOutput("v", squares);
    Derivation derivation = derive(cascade);
    EXPECT_EQ(derivation.program->passes, 1u);
    // A program for 5 channels does not pass as one for 4.
    if (wrong)
      derivation.program->outputs[0].value = context.mul(
          squares = derivation.program->outputs[0].value,
          context.div(context.real(5),
                      context.cast(Type::F32,
                                   context.add(context.integer(1, Type::Index),
                                               length))));
    Certificate certificate = certify(cascade, derivation);
    EXPECT_EQ(certificate.holds, !wrong) << certificate.failure;
  }
}

/// 1/3 as a factor or as a divisor, before or after: the same states.
TEST(CascadeTest, SpellingsOfTheMeanAreOneDerivation) {
  auto shape = [](const std::string &mean) {
    Text text("in x\nparam r\nS = sum x\nmu := " + mean +
              "\nV = sum (x-mu)**2\nout v = V");
    Program program = *derive(text.cascade()).program;
    std::string all;
    for (const Definition &definition : program.definitions)
      if (const State *state = std::get_if<State>(&definition))
        all += dump(state->values[0]) +
               (state->transport ? dump(state->transport) : "") + ";";
    return all + dump(program.readouts[1][0]);
  };
  EXPECT_EQ(shape("S/n"), shape("S*(1/n)"));
  EXPECT_EQ(shape("S/n"), shape("(1/n)*S"));
  EXPECT_NE(shape("S/n"), shape("S/(n-1)"));
}

TEST(CascadeTest, SpellingsOfAScaleAreOneDerivation) {
  auto states = [](const std::string &x, const std::string &t) {
    Text text("in x\ncarried v\ny := " + x + "\nm = max y\ns = sum " + t +
              "\no = sum " + t + "*v\nout o = o/s");
    Program program = *derive(text.cascade()).program;
    EXPECT_EQ(program.passes, 1u);
    return program.stateSize;
  };
  EXPECT_EQ(states("x/3", "exp(y-m)"), 3u);
  EXPECT_EQ(states("x*(1/3)", "exp(y-m)"), 3u);
  EXPECT_EQ(states("x", "exp((y-m)/3)"), 3u);
  EXPECT_EQ(states("x", "exp((y-m)*(1/3))"), 3u);
  EXPECT_EQ(states("x", "exp(y/3-m/3)"), 3u);
  EXPECT_EQ(states("x", "exp2((y-m)*1.5)"), 3u);
}

TEST(CascadeTest, WithoutFusionEveryStageIsAsWritten) {
  Attention attention;
  Policy policy;
  policy.fuse = false;
  Derivation derivation = derive(attention.cascade, policy);
  ASSERT_TRUE(derivation.program);
  EXPECT_EQ(derivation.program->passes, 3u);
  for (const Definition &definition : derivation.program->definitions)
    if (const State *state = std::get_if<State>(&definition)) {
      EXPECT_TRUE(state->pivots.empty());
    }
  EXPECT_TRUE(certify(attention.cascade, derivation).holds);
}

/// Only what is right is left: the passes of the op's rule are the program's.
TEST(CascadeTest, PassesFollowTheRuleOfTheOp) {
  Text text(
      "in x\ncarried v\nm = max x\ns = sum exp(x-m)\np := exp(x-m)/s\n"
      "m2 = max p\ns2 = sum exp(p-m2)\no = sum exp(p-m2)/s2*v\nout o = o");
  Program program = *derive(text.cascade()).program;
  std::vector<unsigned> passes = passesOf(program.definitions);
  for (size_t i = 0; i < passes.size(); ++i)
    if (const State *state = std::get_if<State>(&program.definitions[i])) {
      EXPECT_EQ(state->pass, passes[i]);
    }
  EXPECT_EQ(program.stagePass, (std::vector<unsigned>{0, 0, 0, 1, 1}));
  ASSERT_EQ(program.cuts.size(), 1u);
  EXPECT_EQ(program.cuts[0].text.substr(0, 47),
            "'s2' cannot be kept up to date while 'm', 's', ");
  EXPECT_FALSE(program.cuts[0].hint.empty());
}

TEST(CascadeTest, WhatIsNoCascadeIsRefused) {
  Context context;
  Cascade cascade(context);
  unsigned n = cascade.addIndex("n", IndexRole::Stream);
  Expr x = cascade.addRead("x", 1u << n);
  Expr late = context.symbol("late", Role::Stage, Type::F32, 0, 7);
  cascade.addStage("s", Reducer::Sum, context.mul(x, late));
  EXPECT_EQ(derive(cascade).error,
            "stage 's' reads 'late', which is not computed before it");

  Cascade predicate(context);
  predicate.addIndex("n", IndexRole::Stream);
  predicate.addStage("f", Reducer::Any, x);
  EXPECT_EQ(derive(predicate).error,
            "stage 'f' reduces values of type f32 by any; bool expected");

  Cascade deep(context);
  deep.addIndex("n", IndexRole::Stream);
  Expr e = x;
  for (unsigned i = 0; i < 600; ++i)
    e = context.exp(e);
  deep.addStage("s", Reducer::Sum, e);
  EXPECT_EQ(derive(deep).error,
            "stage 's' is nested 601 deep; at most 512 expected");

  Cascade none(context);
  none.addIndex("n", IndexRole::Stream);
  none.addTopK("t", x, {}, 0, true, -1);
  EXPECT_EQ(derive(none).error,
            "stage 't' takes the 0 best; at least 1 expected");
}

/// Terms whose normal forms would explode wait for the next pass instead.
TEST(CascadeTest, ExplodingTermsAreCutByTheBudget) {
  Context context;
  Cascade cascade(context);
  unsigned n = cascade.addIndex("n", IndexRole::Stream);
  Expr x = cascade.addRead("x", 1u << n), y = cascade.addRead("y", 1u << n);
  Expr s = cascade.addStage("s", Reducer::Sum, x);
  Expr power = context.add(context.mul(x, s), context.mul(y, y));
  Expr sum = context.add(x, s);
  for (unsigned i = 0; i < 60; ++i) {
    power = context.mul(power, power);
    sum = context.add(sum, sum);
  }
  cascade.addStage("p", Reducer::Sum, power);
  cascade.addStage("a", Reducer::Sum, sum);
  Derivation derivation = derive(cascade);
  ASSERT_TRUE(derivation.program);
  ASSERT_EQ(derivation.program->cuts.size(), 2u);
  EXPECT_EQ(derivation.program->cuts[0].reason, reason::rankBudget);
  EXPECT_EQ(derivation.program->cuts[1].reason, reason::rankBudget);
  EXPECT_EQ(derivation.program->passes, 2u);
}

/// What no pivot moves is one state, also where a later pass reads it.
TEST(CascadeTest, ConstantsOfALaterPassAreNotKeptTwice) {
  Text text("in x v\nS = sum x\nmu := S/n\nT = sum abs(x-mu)\nP = sum v\nQ "
            "= sum (v-P/n)**2\no = sum (v-T/n)**2\nout q = Q\nout o = o");
  Program program = *derive(text.cascade()).program;
  EXPECT_EQ(program.passes, 2u);
  std::map<Expr, unsigned> values;
  for (const Definition &definition : program.definitions)
    if (const State *state = std::get_if<State>(&definition)) {
      EXPECT_EQ(++values[state->values[0]], 1u) << dump(state->values[0]);
    }
}

/// NaN of every element gives way to nothing; a list that no element reached
/// holds NaN.
TEST(CascadeTest, NothingIsLeft) {
  for (const char *lines :
       {"in x w\nt = top1 x\no = sum w/t\nout o = -log(o/t)",
        "in x\nS = sum x\no = sum exp(x-S)**0\nout o = o",
        "in x y\nS = max x\no = max f8e4m3(S+y)\nout o = -o"}) {
    Text text(lines);
    Cascade cascade = text.cascade();
    Certificate certificate = certify(cascade, derive(cascade));
    EXPECT_TRUE(certificate.holds) << lines << certificate.failure;
  }
}

/// The largest of no integers is the least integer, not -inf.
TEST(CascadeTest, ExtremesOfNoIntegersAreIntegers) {
  Context context;
  Cascade cascade(context);
  cascade.addIndex("n", IndexRole::Stream);
  Expr k = cascade.addRead("k", 1, Type::I32);
  cascade.addOutput("o", cascade.addStage("m", Reducer::Max, k));
  cascade.addOutput("p", cascade.addStage("l", Reducer::Min, k));
  Derivation derivation = derive(cascade);
  Random random(1);
  Sample sample =
      makeSample(cascade.indices, rootsOf(cascade), Family::Normal, 0, random);
  RowValues<double> written =
      DefinitionEvaluator<double>(cascade, sample.extents).run(sample);
  RowValues<double> kept =
      ProgramEvaluator<double>(*derivation.program, sample.extents)
          .run(sample, Order::Balanced, random);
  for (const RowValues<double> *row : {&written, &kept}) {
    EXPECT_EQ(row->outputs[0][0], -0x1p31);
    EXPECT_EQ(row->outputs[1][0], 0x1p31 - 1);
  }
}

/// The power 0 of anything is 1, of NaN too.
TEST(CascadeTest, PowersOfZeroAreOne) {
  Context context;
  Cascade cascade(context);
  cascade.addIndex("n", IndexRole::Stream);
  Expr x = cascade.addRead("x", 1);
  Expr sum = cascade.addStage("s", Reducer::Sum, x);
  Expr power = context.pow(context.exp(context.sub(x, sum)), {0, 1});
  cascade.addOutput("p", cascade.addStage("p", Reducer::Prod, power));
  Certificate certificate = certify(cascade, derive(cascade));
  EXPECT_TRUE(certificate.holds) << certificate.failure;
}

TEST(CascadeTest, AListOfNothingHoldsNan) {
  Context context;
  Cascade cascade(context);
  cascade.addIndex("n", IndexRole::Stream);
  Expr x = cascade.addRead("x", 1), w = cascade.addRead("w", 1);
  Expr best = cascade.addTopK("t", x, {w}, 1, true, -1)[1];
  Expr sum = cascade.addStage("o", Reducer::Sum, context.div(w, best));
  cascade.addOutput("o", sum);
  Certificate certificate = certify(cascade, derive(cascade));
  EXPECT_TRUE(certificate.holds) << certificate.failure;
}

/// A mean that is read beside a variance has the digits of the first moment.
TEST(CascadeTest, MeansAreReadWithTheirMoment) {
  Text text("in x\nS = sum x\nmu := S/n\nV = sum (x-mu)**2\nout mu = mu\nout "
            "v = V/n");
  Cascade cascade = text.cascade();
  Program program = *derive(cascade).program;
  Random random(1);
  Sample sample = makeSample(cascade.indices, rootsOf(cascade), Family::Offset,
                             1000, random);
  for (auto &[symbol, values] : sample.values)
    for (double &value : values)
      value = float(value);
  double exact = DefinitionEvaluator<double>(cascade, sample.extents)
                     .run(sample)
                     .outputs[0][0];
  auto error = [&](double found) { return std::fabs(found - exact) / exact; };
  double written = DefinitionEvaluator<float>(cascade, sample.extents)
                       .run(sample)
                       .outputs[0][0];
  double kept = ProgramEvaluator<float>(program, sample.extents)
                    .run(sample, Order::Stream, random)
                    .outputs[0][0];
  EXPECT_GT(error(written), 1e-6);
  EXPECT_LT(error(kept), 1e-7);
}

/// Not where the elements are larger than their mean: their distances from it
/// are rounded to one side, all of one binade, and the moment is their sum.
TEST(CascadeTest, MeansOfBothSignsAreReadAsWritten) {
  Text text("in x\nS = sum x\nmu := S/n\nV = sum (x-mu)**2\nout mu = mu\nout "
            "v = V/n");
  Cascade cascade = text.cascade();
  Policy dropped;
  dropped.moments = Moments::Dropped;
  Program kept = *derive(cascade).program,
          plain = *derive(cascade, dropped).program;
  for (uint64_t seed = 0; seed < 8; ++seed) {
    auto meanOf = [&](const Program &program) {
      Random random(seed);
      Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                                 Family::Normal, 1000, random);
      return ProgramEvaluator<float>(program, sample.extents)
          .run(sample, Order::Tiles, random)
          .outputs[0][0];
    };
    EXPECT_EQ(meanOf(kept), meanOf(plain));
  }
}

/// What is 1 for every element, though it names a running value.
TEST(CascadeTest, ProductsOfOneAreOne) {
  Text text("in x\nS = sum x\np = prod (x-S)**0\nq = prod "
            "(x/x)*(S/S)\nout p = p");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  ASSERT_TRUE(derivation.program);
  EXPECT_TRUE(derivation.program->outputs[0].value.isConstant(1))
      << dump(derivation.program->outputs[0].value);
}

/// 81 accumulators are refused at once, 36 are made at once.
TEST(CascadeTest, LargeFramesAreCutByTheBudget) {
  auto of = [](const std::string &power) {
    return "in x z\nS = sum x\nU = sum z\na := S/n\nb := U/n\nP = sum "
           "(x-a)**" +
           power + "*(z-b)**" + power + "\nout p = P";
  };
  Text large(of("8")), small(of("5"));
  Derivation cut = derive(large.cascade()), kept = derive(small.cascade());
  ASSERT_EQ(cut.program->cuts.size(), 1u);
  EXPECT_EQ(cut.program->cuts[0].reason, reason::rankBudget);
  EXPECT_NE(cut.program->cuts[0].text.find(
                "a frame of 81 accumulators; at most 48 are kept"),
            std::string::npos)
      << cut.program->cuts[0].text;
  EXPECT_EQ(kept.program->passes, 1u);
  // The sums of x, z and 1 among them.
  EXPECT_EQ(kept.program->stateSize, 38u);
}

} // namespace refold::algebra::test
