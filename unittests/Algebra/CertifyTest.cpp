// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/Certify.h"

#include "Suite.h"
#include "TestPrograms.h"

#include <gtest/gtest.h>

using namespace refold::algebra;

namespace {

State &lastState(Handmade &h) {
  return std::get<State>(h.program.definitions.back());
}

TEST(CertifyTest, HandmadeProgramsHold) {
  auto mean = makeWeightedMean();
  Certificate certificate = certify(mean->cascade, mean->program);
  EXPECT_TRUE(certificate.holds) << certificate.summary();
  EXPECT_EQ(certificate.transports, 2u);
  EXPECT_LT(certificate.worst, 1e-20);
  auto variance = makeVariance();
  certificate = certify(variance->cascade, variance->program);
  EXPECT_TRUE(certificate.holds) << certificate.summary();
  EXPECT_GT(certificate.edgeRows, 50u);
}

TEST(CertifyTest, ProgramsAloneHold) {
  EXPECT_TRUE(recertify(makeWeightedMean()->program).holds)
      << recertify(makeWeightedMean()->program).summary();
  EXPECT_TRUE(recertify(makeVariance()->program).holds)
      << recertify(makeVariance()->program).summary();
}

TEST(CertifyTest, TurnedRoundTransportIsRejected) {
  auto h = makeWeightedMean();
  Context &c = h->context;
  lastState(*h).transport =
      c.mul(h->self(), c.exp(c.sub(h->fresh(), h->old())));
  Certificate certificate = certify(h->cascade, h->program);
  EXPECT_FALSE(certificate.holds);
  EXPECT_EQ(certificate.failure, "transport of state 'a' does not lead from "
                                 "one pivot to the other");
  EXPECT_FALSE(recertify(h->program).holds);
}

/// What the pass that fuses calls `certified-fallback`.
TEST(CertifyTest, RejectedDerivationsFallBack) {
  test::Text text("in x\nS = sum x\nV = sum (x-S/n)**2\nout V = V");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  Certified right = certified(cascade, derivation, {});
  EXPECT_FALSE(right.isFallback);
  EXPECT_EQ(right.derivation.program->passes, 1u);
  for (Definition &definition : derivation.program->definitions)
    if (State *state = std::get_if<State>(&definition);
        state && state->transport)
      state->transport = text.context.neg(state->transport);
  Certified wrong = certified(cascade, derivation, {});
  EXPECT_TRUE(wrong.isFallback);
  EXPECT_FALSE(wrong.certificate.holds);
  EXPECT_EQ(wrong.derivation.program->passes, 2u);
  EXPECT_TRUE(certify(cascade, wrong.derivation).holds);
}

/// At the mean itself the first moment is 0, so executing the program at its
/// own pivots would not see a wrong factor.
TEST(CertifyTest, WrongFactorOfTheFirstMomentIsRejected) {
  auto h = makeVariance();
  Context &c = h->context;
  Expr d = c.sub(h->old(), h->fresh());
  lastState(*h).transport = c.add(c.add(h->self(), c.mul(d, h->with(1))),
                                  c.mul(c.pow(d, {2, 1}), h->with(0)));
  EXPECT_FALSE(certify(h->cascade, h->program).holds);
}

TEST(CertifyTest, WrongReadoutIsRejected) {
  auto h = makeVariance();
  Expr c2 = h->program.readouts[1][0];
  h->program.readouts[1][0] = h->context.mul(h->context.real(2), c2);
  Certificate certificate = certify(h->cascade, h->program);
  EXPECT_NE(certificate.failure.find("stage 'Q' is "), std::string::npos)
      << certificate.summary();
}

/// Without its guard the pivot of a row that starts with -inf is -inf, and
/// e^(-inf - -inf) loses the row.
TEST(CertifyTest, UnguardedPivotIsRejected) {
  auto h = makeWeightedMean();
  Let &guard = std::get<Let>(h->program.definitions[1]);
  guard.value = h->program.readouts[0][0];
  Certificate certificate = certify(h->cascade, h->program);
  EXPECT_FALSE(certificate.holds) << certificate.summary();
  EXPECT_FALSE(recertify(h->program).holds);
}

/// Scores and a mask times the lowest float (of a maximum) or the highest (of a
/// minimum). A row of elements that are all masked ends there, or beyond it in
/// wider arithmetic: p is clamped, the extremum is not.
Cascade maskedByEnds(Context &c, Type type, bool isMax) {
  Cascade cascade(c);
  cascade.addIndex("n", IndexRole::Stream);
  Expr far = c.real((isMax ? -1 : 1) * largestFinite(Type::F32));
  Expr mask = c.cast(Type::F32, cascade.addRead("mask", 1, type));
  Expr u = c.add(cascade.addRead("x", 1), c.mul(c.sub(c.real(1), mask), far));
  Expr m = cascade.addStage("m", isMax ? Reducer::Max : Reducer::Min, u);
  Expr e = c.exp(isMax ? c.sub(u, m) : c.sub(m, u));
  Expr s = cascade.addStage("s", Reducer::Sum, e);
  Expr a =
      cascade.addStage("a", Reducer::Sum, c.mul(e, cascade.addRead("v", 1)));
  cascade.addOutput("o", c.div(a, s));
  return cascade;
}

TEST(CertifyTest, ExtremaBeyondTheirTypeShowNothing) {
  for (Type type : {Type::Bool, Type::I64, Type::F32})
    for (bool isMax : {true, false})
      for (uint64_t seed = 1; seed <= 16; ++seed) {
        Context c;
        Cascade cascade = maskedByEnds(c, type, isMax);
        CertifyOptions options;
        options.seed = seed;
        Certificate found = certify(cascade, derive(cascade), options);
        EXPECT_TRUE(found.holds) << spelling(type) << " " << isMax << " seed "
                                 << seed << ": " << found.summary();
        EXPECT_GE(found.rows, 7u) << spelling(type) << " " << seed;
      }
}

/// Other rows still show a clamp that is none of the type's, and what such a
/// pivot makes of masked rows.
TEST(CertifyTest, ClampsWithinTheTypeAreRejected) {
  for (Type type : {Type::Bool, Type::I64, Type::F32})
    for (double clamp : {-1e38, -1.0}) {
      Context c;
      Cascade cascade = maskedByEnds(c, type, true);
      Derivation derivation = derive(cascade);
      unsigned changed = 0;
      for (Definition &definition : derivation.program->definitions)
        if (Let *let = std::get_if<Let>(&definition);
            let && let->value.is(Kind::MaxNum)) {
          let->value =
              c.maxNum(derivation.program->readouts[0][0], c.real(clamp));
          ++changed;
        }
      EXPECT_EQ(changed, 1u);
      EXPECT_FALSE(certify(cascade, derivation).holds)
          << spelling(type) << " " << clamp;
    }
}

/// A side that has seen nothing stands at the lowest float: three times the way
/// from there is infinite in f32, not in double.
TEST(CertifyTest, OverflowOfTheWayFromNothingIsRejected) {
  test::Text text("in x w\nm = max x\no = sum (3*x-3*m)**2*w\nout o = o");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  EXPECT_TRUE(certify(cascade, derivation).holds)
      << certify(cascade, derivation).summary();
  unsigned guarded = 0;
  for (Definition &definition : derivation.program->definitions)
    if (State *state = std::get_if<State>(&definition))
      if (state->transport && state->transport.is(Kind::Select)) {
        state->transport = state->transport.operand(2);
        ++guarded;
      }
  EXPECT_EQ(guarded, 2u);
  Certificate certificate = certify(cascade, derivation);
  EXPECT_FALSE(certificate.holds);
  EXPECT_NE(certificate.failure.find("in f32"), std::string::npos)
      << certificate.summary();
}

/// Kept as Σ e^(x - m)·x, what is masked by the lowest float overflows before
/// a factor of 0 arrives; kept as Σ e^(x - m)·(x - m) it does not.
TEST(CertifyTest, OverflowOfMaskedElementsIsRejected) {
  Handmade h;
  Context &c = h.context;
  h.cascade.addIndex("n", IndexRole::Stream);
  Expr x = h.cascade.addRead("x", 1);
  Expr m = h.cascade.addStage("m", Reducer::Max, x);
  Expr e = c.exp(c.sub(x, m));
  Expr o = h.cascade.addStage("o", Reducer::Sum, c.mul(e, x));
  h.cascade.addOutput("o", o);
  EXPECT_TRUE(certify(h.cascade, derive(h.cascade)).holds);
  Expr max = h.state("m", Reducer::Max, x);
  Expr g = h.let("g", c.maxNum(max, c.real(-largestFinite(Type::F32))));
  Expr moved = c.mul(h.self(), c.exp(c.sub(h.old(), h.fresh())));
  Expr sum = h.state("o", Reducer::Sum, c.mul(c.exp(c.sub(x, g)), x), {g}, {},
                     moved, "rescale-distributes");
  Expr isDead = c.cmp(Pred::Eq, max, c.real(-HUGE_VAL));
  Expr isEmpty =
      c.cmp(Pred::Eq, h.cascade.indices[0].length, c.integer(0, Type::Index));
  Expr nan = c.real(std::numeric_limits<double>::quiet_NaN());
  Expr value = c.select(isEmpty, c.real(0), c.select(isDead, nan, sum));
  h.program.readouts = {{max}, {value}};
  h.program.stagePass = {0, 0};
  h.program.outputs = {{"o", value}};
  h.finish();
  Certificate certificate = certify(h.cascade, h.program);
  EXPECT_FALSE(certificate.holds);
  EXPECT_NE(certificate.failure.find("in f32"), std::string::npos)
      << certificate.summary();
}

/// A transport that starts anew but is asked of another pivot, or keeps what
/// it should drop.
TEST(CertifyTest, WrongResetIsRejected) {
  test::Text text("in x v\nm = max x\no = sum where(x==m,v,0)\np = sum "
                  "where(x<m,v,0)\nout o = o\nout p = p");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  EXPECT_TRUE(certify(cascade, derivation).holds);
  Context &c = text.context;
  unsigned resets = 0;
  for (Definition &definition : derivation.program->definitions) {
    State *state = std::get_if<State>(&definition);
    if (!state || state->law != "reset-transport")
      continue;
    ++resets;
    Expr right = state->transport;
    Expr self = right.operand(1), moved = right.operand(2);
    for (Expr wrong : {self, moved, c.select(right.operand(0), moved, self)}) {
      state->transport = wrong;
      EXPECT_FALSE(certify(cascade, derivation).holds) << dump(wrong);
    }
    state->transport = right;
  }
  EXPECT_EQ(resets, 2u);
}

TEST(CertifyTest, WrongReachIsRejected) {
  test::Text text("in x v\na = top1 x\no = sum where(l>a_at,v,0)\n"
                  "p = sum where(l<=a_at,v,0)\nout o = o\nout p = p");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  EXPECT_TRUE(certify(cascade, derivation).holds);
  Context &c = text.context;
  unsigned reaches = 0;
  for (Definition &definition : derivation.program->definitions) {
    State *state = std::get_if<State>(&definition);
    if (!state || state->law != "order-reach")
      continue;
    ++reaches;
    Expr right = state->transport;
    Expr self = right.operand(1), moved = right.operand(2);
    Expr before = moved.operand(1), behind = moved.operand(2);
    for (Expr wrong :
         {self, moved, before, behind, c.select(right.operand(0), self, before),
          c.select(right.operand(0), self, behind),
          c.select(right.operand(0), self,
                   c.select(moved.operand(0), behind, before))}) {
      state->transport = wrong;
      EXPECT_FALSE(certify(cascade, derivation).holds) << dump(wrong);
    }
    state->transport = right;
  }
  EXPECT_EQ(reaches, 2u);
  // The class of a row with NaN does not show that its position is another.
  Certified whole = certified(cascade, derivation, {});
  EXPECT_TRUE(whole.certificate.holds);
  EXPECT_EQ(whole.derivation.program->repairPasses, 1u);
}

TEST(CertifyTest, MissingDeadRowIsRejected) {
  auto h = makeWeightedMean();
  for (size_t i : {1, 2}) {
    // select(isEmpty, 0, select(isDead, nan, sum)) without the inner select.
    Expr &readout = h->program.readouts[i][0];
    readout = readout.operand(2).operand(2);
  }
  Context &c = h->context;
  h->program.outputs[0].value =
      c.add(c.div(h->program.readouts[2][0],
                  c.max(h->program.readouts[1][0], c.real(1e-30))),
            c.real(0));
  Certificate certificate = certify(h->cascade, h->program);
  EXPECT_FALSE(certificate.holds) << certificate.summary();
}

/// Π e^(x - S) over a static extent is e^(S - 7·S): right for 7 elements alone.
TEST(CertifyTest, StaticExtentsCount) {
  for (int64_t extent : {7, 8}) {
    Handmade h;
    Context &c = h.context;
    h.cascade.addIndex("n", IndexRole::Stream, extent);
    Expr x = h.cascade.addRead("x", 1);
    Expr total = h.cascade.addStage("S", Reducer::Sum, x);
    Expr product = h.cascade.addStage(
        "p", Reducer::Prod, c.exp(c.div(c.sub(x, total), c.real(64))));
    h.cascade.addOutput("p", product);
    Expr sum = h.state("S", Reducer::Sum, x);
    Expr readout = c.exp(c.div(c.sub(sum, c.mul(c.real(7), sum)), c.real(64)));
    h.program.readouts = {{sum}, {readout}};
    h.program.stagePass = {0, 0};
    h.program.outputs = {{"p", readout}};
    h.finish();
    Certificate certificate = certify(h.cascade, h.program);
    EXPECT_EQ(certificate.holds, extent == 7) << certificate.summary();
  }
}

/// A long static extent is any length to its numbers: short rows tell, in which
/// another number than its own is wrong.
TEST(CertifyTest, LongStaticExtentsAreAnyLength) {
  constexpr int64_t kExtent = 5000;
  for (double number : {5000., 4999., 1 / 4999., 4998., 2.}) {
    Handmade h;
    Context &c = h.context;
    h.cascade.addIndex("n", IndexRole::Stream, kExtent);
    Expr x = h.cascade.addRead("x", 1);
    Expr total = h.cascade.addStage("S", Reducer::Sum, x);
    // Σ (x - a·S) = S - a·n·S.
    Expr apart = h.cascade.addStage("d", Reducer::Sum,
                                    c.sub(x, c.mul(c.real(number), total)));
    h.cascade.addOutput("d", apart);
    Expr sum = h.state("S", Reducer::Sum, x);
    for (bool isFolded : {false, true}) {
      // Folded, nothing shows the length.
      Expr factor = c.mul(c.real(kExtent), sum);
      factor = isFolded ? c.mul(c.real(number * kExtent), sum)
                        : c.mul(c.real(number), factor);
      Expr readout = c.sub(sum, factor);
      h.program.readouts = {{sum}, {readout}};
      h.program.stagePass = {0, 0};
      h.program.outputs = {{"d", readout}};
      h.finish();
      Certificate certificate = certify(h.cascade, h.program);
      EXPECT_EQ(certificate.holds, !isFolded)
          << number << " " << certificate.summary();
    }
  }
}

/// What is certified as any length is what was derived: no row of it is empty,
/// and its numbers keep their digits.
TEST(CertifyTest, LongStaticProgramsStayAsTheyAre) {
  Context c;
  Cascade logsumexp(c);
  logsumexp.addIndex("n", IndexRole::Stream, 1000);
  Expr x = logsumexp.addRead("x", 1);
  Expr m = logsumexp.addStage("m", Reducer::Max, x);
  Expr z = logsumexp.addStage("z", Reducer::Sum, c.exp(c.sub(x, m)));
  logsumexp.addOutput("l", c.add(m, c.log(z)));
  Certified found = certified(logsumexp, derive(logsumexp), {}, {});
  EXPECT_TRUE(found.certificate.holds && !found.isFallback);
  EXPECT_EQ(found.derivation.program->repairPasses, 0u);

  // Short rows show the length here; that an empty row would differ is nothing.
  Expr total = logsumexp.addStage("s", Reducer::Sum, x);
  Expr far = c.sub(x, c.div(total, c.real(1000)));
  logsumexp.addOutput("v",
                      logsumexp.addStage("d", Reducer::Sum, c.mul(far, far)));
  found = certified(logsumexp, derive(logsumexp), {}, {});
  EXPECT_TRUE(found.certificate.holds && !found.isFallback);
  EXPECT_EQ(found.derivation.program->repairPasses, 0u);

  Cascade mean(c);
  mean.addIndex("n", IndexRole::Stream, 300);
  Expr v = mean.addRead("v", 1, Type::F64);
  Expr share = c.real(1 / 300.0, Type::F64);
  Expr sum = mean.addStage("s", Reducer::Sum, v);
  Expr apart = c.sub(v, c.mul(sum, share));
  mean.addStage("d", Reducer::Sum, c.mul(apart, apart));
  mean.addOutput("d", c.mul(mean.stages[1].results[0], share));
  Derivation derivation = derive(mean);
  Program before = *derivation.program;
  found = certified(mean, derivation, {}, {});
  EXPECT_TRUE(found.certificate.holds && !found.isFallback)
      << found.certificate.summary();
  EXPECT_EQ(found.derivation.program->outputs[0].value,
            before.outputs[0].value);
  EXPECT_EQ(found.derivation.program->passes, 1u);
}

/// Distances of three coordinates, all equal: what is left of their squares is
/// below 0 in some rows, and its root no number. A row of 1000 that happens to
/// be right shows nothing.
TEST(CertifyTest, LuckOfOneLengthIsNoCertificate) {
  for (int64_t extent : {-1, 1000, 100000}) {
    Context c;
    Cascade cascade(c);
    cascade.addIndex("n", IndexRole::Stream, extent);
    Expr m = c.fn(Fn::Abs, cascade.addRead("mass", 1));
    Expr total = cascade.addStage("total", Reducer::Sum, m), squares;
    for (const char *name : {"x", "y", "z"}) {
      Expr x = cascade.addRead(name, 1);
      Expr sum =
          cascade.addStage(std::string("c") + name, Reducer::Sum, c.mul(m, x));
      Expr apart = c.sub(x, c.div(sum, total)), square = c.mul(apart, apart);
      squares = squares ? c.add(squares, square) : square;
    }
    Expr moment = cascade.addStage("moment", Reducer::Sum, c.mul(m, squares));
    cascade.addOutput("radius", c.sqrt(c.div(moment, total)));
    Certified found = certified(cascade, derive(cascade), {}, {});
    EXPECT_TRUE(found.isFallback) << extent;
    EXPECT_NE(found.rejected.find("nan"), std::string::npos) << found.rejected;
    EXPECT_EQ(found.derivation.program->indices[0].extent, extent);
  }
}

/// Rounded keys tie, and the earlier element wins: the element with the largest
/// key before rounding is another one.
TEST(CertifyTest, KeysThatAFunctionMergesAreRejected) {
  Handmade h;
  Context &c = h.context;
  unsigned n = h.cascade.addIndex("n", IndexRole::Stream);
  Expr x = h.cascade.addRead("x", 1), v = h.cascade.addRead("v", 1);
  for (Fn fn : {Fn::Round, Fn::Exp}) {
    h.cascade.stages.clear();
    h.cascade.outputs.clear();
    auto best = h.cascade.addTopK("t", c.fn(fn, x), {v}, 1, true, -1);
    h.cascade.addOutput("v", best[1]);
    State top;
    top.reducer = Reducer::TopK;
    top.values = {x, v};
    top.results = {c.symbol("t", Role::State, Type::F32, 0),
                   c.symbol("t.v", Role::State, Type::F32, 0)};
    Expr isEmpty =
        c.cmp(Pred::Eq, h.cascade.indices[n].length, c.integer(0, Type::Index));
    Expr key = c.select(isEmpty, c.real(-HUGE_VAL), c.fn(fn, top.results[0]));
    h.program.definitions = {top};
    h.program.readouts = {{key, top.results[1]}};
    h.program.stagePass = {0};
    h.program.outputs = {{"v", top.results[1]}};
    h.finish();
    Certificate certificate = certify(h.cascade, h.program);
    EXPECT_EQ(certificate.holds, fn == Fn::Exp) << certificate.summary();
  }
}

/// A list is one list: what its elements are cannot differ from rank to rank.
TEST(CertifyTest, ListsHaveOneOrder) {
  Handmade h;
  Context &c = h.context;
  h.cascade.addIndex("n", IndexRole::Stream);
  unsigned rank = h.cascade.addIndex("k", IndexRole::Rank, 2);
  Expr x = h.cascade.addRead("x", 1);
  auto best = h.cascade.addTopK("t", x, {}, 2, true, int(rank));
  h.cascade.addOutput("t", best[0]);
  State top;
  top.reducer = Reducer::TopK;
  top.k = 2;
  top.rank = int(rank);
  top.indices = IndexSet(1) << rank;
  top.results = {c.symbol("t", Role::State, Type::F32, top.indices)};
  for (bool isRanked : {false, true}) {
    Expr place = c.cast(Type::F32, h.cascade.indices[rank].value);
    top.values = {isRanked ? c.add(x, place) : x};
    h.program.definitions = {top};
    h.program.readouts = {{top.results[0]}};
    h.program.stagePass = {0};
    h.program.outputs = {{"t", top.results[0]}};
    h.finish();
    EXPECT_EQ(certify(h.cascade, h.program).failure,
              isRanked ? "state 't' orders its elements anew at every rank"
                       : "");
  }
}

TEST(CertifyTest, BrokenStructureIsRejected) {
  auto h = makeVariance();
  lastState(*h).with.pop_back();
  EXPECT_NE(
      certify(h->cascade, h->program).failure.find("transport that reads"),
      std::string::npos);
  h = makeVariance();
  lastState(*h).pivots.clear();
  EXPECT_EQ(certify(h->cascade, h->program).failure,
            "state 'c2' has a transport but no pivot");
  h = makeVariance();
  std::swap(h->program.definitions[0], h->program.definitions[3]);
  EXPECT_FALSE(certify(h->cascade, h->program).holds);
  h = makeVariance();
  h->program.outputs[0].value = h->cascade.stages[0].results[0];
  EXPECT_FALSE(certify(h->cascade, h->program).holds);
}

} // namespace
