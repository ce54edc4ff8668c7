// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Suite.h"

#include "refold/Algebra/Accuracy.h"
#include "refold/Algebra/Certify.h"

#include <cmath>
#include <gtest/gtest.h>

namespace refold::algebra::test {
namespace {

constexpr unsigned kRows = 32;
constexpr uint32_t kLength = 256;

/// Rows of two kinds of logits, as far apart as the name says.
enum class Pair { Near2, Near4, Tiny, Offset, Ramp, Normal };
constexpr Pair kPairs[] = {Pair::Near2,  Pair::Near4, Pair::Tiny,
                           Pair::Offset, Pair::Ramp,  Pair::Normal};

float logit(Pair kind, bool isSecond, float base, float other, uint32_t at) {
  float slope = -60.0f + 120.0f * float(at) / float(kLength - 1);
  switch (kind) {
  case Pair::Near2:
    return 2 * base + (isSecond ? 1e-2f * other : 0);
  case Pair::Near4:
    return 2 * base + (isSecond ? 1e-4f * other : 0);
  case Pair::Tiny:
    return 1e-12f * (isSecond ? other : base);
  case Pair::Offset:
    return base + 1e4f + (isSecond ? 0.05f * other : 0);
  case Pair::Ramp:
    return base + slope + (isSecond ? 0.01f * other : 0);
  case Pair::Normal:
    break;
  }
  return 2 * (isSecond ? other : base);
}

using Values = std::map<std::string, std::vector<double>>;

/// Elements x and y, and a softmax t of y.
Values makeRow(Pair kind, Random &random) {
  Values row;
  double sum = 0;
  for (uint32_t i = 0; i < kLength; ++i) {
    float base = float(random.normal()), other = float(random.normal());
    row["x"].push_back(logit(kind, false, base, other, i));
    row["y"].push_back(logit(kind, true, base, other, i));
  }
  double top = *std::max_element(row["y"].begin(), row["y"].end());
  for (double y : row["y"])
    sum += std::exp(y - top);
  for (double y : row["y"])
    row["t"].push_back(float(std::exp(y - top) / sum));
  return row;
}

/// One element far above the others: by 20, by 30, else by 10.
Values makePeak(Pair kind, Random &random) {
  Values row = makeRow(kind, random);
  std::vector<double> &x = row["x"];
  if (kind != Pair::Offset)
    for (double &value : x)
      value *= 4;
  double gap = kind == Pair::Near2 ? 20 : kind == Pair::Near4 ? 30 : 10;
  x[7] = float(*std::max_element(x.begin(), x.end()) + gap);
  return row;
}

/// The worst relative error of the first output, in tiles of 16.
double worstError(const Cascade &cascade, const Program &program,
                  Values (*make)(Pair, Random &), Pair kind, unsigned seed) {
  Random random(seed);
  double worst = 0;
  for (unsigned i = 0; i < kRows; ++i) {
    Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                               Family::Normal, kLength, random);
    Values row = make(kind, random);
    for (auto &[symbol, values] : sample.values)
      if (auto it = row.find(symbol->name); it != row.end())
        values = it->second;
    DoubleDouble exact =
        DefinitionEvaluator<DoubleDouble>(cascade, sample.extents)
            .run(sample)
            .outputs[0][0];
    float found = ProgramEvaluator<float>(program, sample.extents)
                      .run(sample, Order::Tiles, random)
                      .outputs[0][0];
    if (!isfinite(exact)) // 0 log 0
      continue;
    double error = std::fabs(double(DoubleDouble(found) - exact));
    worst = std::isnan(error)
                ? HUGE_VAL
                : std::max(worst, error / std::fabs(double(exact)));
  }
  return worst;
}

/// The median of several draws: the worst of 32 rows of values of both signs
/// says how near to 0 the nearest happened to come.
double worstError(const Cascade &cascade, const Program &program,
                  Values (*make)(Pair, Random &), Pair kind,
                  std::vector<double> draws) {
  for (size_t i = 0; i < draws.size(); ++i)
    draws[i] = worstError(cascade, program, make, kind, 7 + unsigned(i));
  std::sort(draws.begin(), draws.end());
  return draws[draws.size() / 2];
}

/// The errors are at most those given, by kind; those of the epilogue as it
/// falls out are larger somewhere by at least a hundred times.
void expectErrors(const char *lines, Values (*make)(Pair, Random &),
                  std::array<double, std::size(kPairs)> most,
                  size_t draws = 1) {
  Text text(lines);
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  Policy policy;
  policy.stability = Stability::Fastest;
  Derivation fastest = derive(cascade, policy);
  EXPECT_EQ(derivation.program->choices.empty(), false);
  EXPECT_EQ(fastest.program->choices.empty(), true);
  double gained = 0;
  for (size_t i = 0; i < most.size(); ++i) {
    std::vector<double> all(draws);
    double error =
        worstError(cascade, *derivation.program, make, kPairs[i], all);
    double before = worstError(cascade, *fastest.program, make, kPairs[i], all);
    EXPECT_LE(error, most[i]) << "pair " << i << ", " << before << " before";
    gained = std::max(gained, before / error);
  }
  EXPECT_GE(gained, 100);
}

// vanishing-basis
TEST(AccuracyTest, DivergenceOfTwoSoftmaxes) {
  expectErrors(R"(
    in x y
    m = max x
    s = sum exp(x - m)
    m2 = max y
    s2 = sum exp(y - m2)
    k = sum exp(x - m)/s*((x - m - log(s)) - (y - m2 - log(s2)))
    out k = k)",
               makeRow, {6e-6, 1.5e-6, 4e-6, 2e-6, 1e-6, 1e-6});
}

// Of tiny logits beside log t = -5.5 no digit is left in x - log t: the value
// is 5e-25, and nothing but 6e-20 is found of it.
TEST(AccuracyTest, CrossEntropyLessEntropy) {
  expectErrors(R"(
    in x t>=0
    m = max x
    s = sum exp(x - m)
    W = sum t
    c = sum t/W*(x - m - log(s))
    h = sum t/W*log(t/W)
    out d = h - c)",
               makeRow, {4e-5, 6e-3, 3e5, 2e-6, 1, 1e-6});
}

TEST(AccuracyTest, DifferenceOfLogsumexp) {
  expectErrors(R"(
    in x y
    m = max x
    s = sum exp(x - m)
    m2 = max y
    s2 = sum exp(y - m2)
    out d = (m + log(s)) - (m2 + log(s2)))",
               makeRow, {8e-6, 1.2e-5, 8e-6, 3e-6, 3e-6, 4e-6}, /*draws=*/5);
}

// attained-element
TEST(AccuracyTest, LogOfTheLargestShare) {
  expectErrors(R"(
    in x
    m = max x
    s = sum exp(x - m)
    out d = (m + log(s)) - m)",
               makePeak, {4e-7, 5e-7, 3e-7, 4e-7, 4e-7, 5e-7});
}

TEST(AccuracyTest, ShareBesideTheLargest) {
  expectErrors(R"(
    in x
    m = max x
    s = sum exp(x - m)
    out d = 1 - 1/s)",
               makePeak, {5e-7, 5e-7, 5e-7, 5e-7, 5e-7, 5e-7});
}

/// Transports as identities, rows in every order and at random pivots, edges.
TEST(AccuracyTest, GroupingsAreCertified) {
  const std::string start = "in x y\nm = max x\ns = sum exp(x - m)\n",
                    other = start + "m2 = max y\ns2 = sum exp(y - m2)\n";
  for (const std::string &lines :
       {start + "out h = log(s)*log(s)", start + "out p = 3 - 3/s",
        start + "out t = (1 - 1/s)*y",
        start + "H = sum exp(x - m)/s*(x - m - log(s))\nout H = -H",
        other + "out d = exp(2*(m + log(s) - m2 - log(s2))) - 1",
        other + "k = sum exp(x - m)/s*((x - m - log(s)) - (y - m2 - log(s2)))"
                "\nout r = sqrt(abs(k))"}) {
    Text text(lines);
    Cascade cascade = text.cascade();
    Policy policy;
    policy.stability = Stability::MostAccurate;
    Derivation derivation = derive(cascade, policy);
    EXPECT_FALSE(derivation.program->choices.empty()) << lines;
    // With passes for irregular rows, where some need them.
    Certified whole = certified(cascade, std::move(derivation), policy);
    EXPECT_TRUE(whole.certificate.holds && !whole.isFallback)
        << lines << "\n"
        << whole.certificate.summary();
  }
}

/// Worst ratio of all orders.
double worstOf(const Accuracy &accuracy) {
  double worst = 0;
  for (size_t i = 0; i < std::size(kMeasuredOrders); ++i)
    worst = std::max(worst, accuracy.worstRatio(i));
  return worst;
}

constexpr const char *kVarianceOfRow = R"(
    in x
    S = sum x
    mu := S/n
    V = sum (x - mu)**2
    out v = V/n)";

/// The bound is one that fails: without the first moment a rounded pivot costs
/// what no amplification of the sums accounts for.
TEST(AccuracyTest, MomentsKeepDigits) {
  Text text(kVarianceOfRow);
  Cascade cascade = text.cascade();
  auto measured = [&](Moments moments) {
    Policy policy;
    policy.moments = moments;
    return measureAccuracy(cascade, *derive(cascade, policy).program);
  };
  Accuracy kept = measured(Moments::Kept), dropped = measured(Moments::Dropped);
  EXPECT_LE(kept.worstRatio(0), 2.5); // an element at a time
  EXPECT_LE(kept.worstRatio(1), 2);
  EXPECT_LE(kept.worstRatio(2), 2);
  EXPECT_TRUE(kept.holds());
  EXPECT_LE(kept.shareOfBound(), 0.5);
  EXPECT_GE(worstOf(dropped), 10);
  EXPECT_FALSE(dropped.holds());
  EXPECT_GE(dropped.shareOfBound(), 100);
  EXPECT_GE(worstOf(measured(Moments::Raw)), 1e5);
}

/// Raw moments cancel as the square of the mean over the deviation, and the
/// bound knows.
TEST(AccuracyTest, AmplificationOfTheRawGauge) {
  Text text(kVarianceOfRow);
  Cascade cascade = text.cascade();
  Policy raw;
  raw.moments = Moments::Raw;
  auto offset = [&](const Policy &policy) {
    Program program = *derive(cascade, policy).program;
    Accuracy accuracy = measureAccuracy(cascade, program);
    EXPECT_TRUE(accuracy.holds());
    for (const FamilyAccuracy &family : accuracy.outputs[0].families)
      if (family.family == Family::Offset)
        return family.amplification;
    return 0.0;
  };
  EXPECT_LE(offset({}), 10);
  EXPECT_GE(offset(raw), 1e7); // (mean/deviation)^2
}

TEST(AccuracyTest, WrongDigitsAreSeen) {
  Text text(kVarianceOfRow);
  Cascade cascade = text.cascade();
  Program program = *derive(cascade).program;
  EXPECT_TRUE(measureAccuracy(cascade, program).holds());
  Context &c = text.context;
  program.outputs[0].value = c.mul(program.outputs[0].value, c.real(1.00001));
  Accuracy accuracy = measureAccuracy(cascade, program);
  EXPECT_TRUE(accuracy.usesBound());
  EXPECT_FALSE(accuracy.holds());
}

/// Squares about a mean that is read out as moments about a rounded pivot are
/// below 0 by a rounding where all elements are equal: no root of that is NaN.
TEST(AccuracyTest, RootsOfSquaresAreNumbers) {
  Text text(R"(
    in x w>=0
    W = sum w
    X = sum w*x
    mu := X/W
    V = sum w*(x - mu)**2
    out sd = sqrt(V/W))");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  EXPECT_TRUE(certify(cascade, derivation).holds);
  Random random(3);
  for (Order order : kMeasuredOrders)
    for (unsigned row = 0; row < 100; ++row) {
      Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                                 Family::Equal, 100, random);
      for (auto &[symbol, values] : sample.values)
        for (double &value : values)
          value = float(value * (symbol->name == "x" ? 1 : random.uniform()));
      float found = ProgramEvaluator<float>(*derivation.program, sample.extents)
                        .run(sample, order, random)
                        .outputs[0][0];
      EXPECT_TRUE(std::isfinite(found)) << spelling(order) << " " << row;
    }
}

/// Whether `program` keeps the digits of rows whose x is of each size.
static void expectDigits(const Cascade &cascade, const Program &program,
                         std::initializer_list<double> scales) {
  Random random(3);
  for (double scale : scales) {
    Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                               Family::Normal, 100, random);
    for (auto &[symbol, values] : sample.values)
      for (double &value : values)
        value = float(symbol->name == "x" ? scale * value : value);
    double exact =
        double(DefinitionEvaluator<DoubleDouble>(cascade, sample.extents)
                   .run(sample)
                   .outputs[0][0]);
    double found = ProgramEvaluator<float>(program, sample.extents)
                       .run(sample, Order::Tiles, random)
                       .outputs[0][0];
    EXPECT_NEAR(found / exact, 1, 1e-5) << scale;
  }
}

/// Fourth powers leave the range of f32 where the squares that the definition
/// adds up do not: such rows are computed again as written.
TEST(AccuracyTest, PowersBeyondTheRange) {
  Text text(R"(
    in x
    S = sum x
    mu := S/n
    V = sum (x - mu)**2
    K = sum ((x - mu)/sqrt(V/n))**4
    out k = K/n)");
  Cascade cascade = text.cascade();
  Certified whole = certified(cascade, derive(cascade), {});
  EXPECT_TRUE(whole.certificate.holds) << whole.certificate.failure;
  const Program &program = *whole.derivation.program;
  EXPECT_EQ(program.passes, 1u);
  EXPECT_GT(program.repairPasses, 0u);
  expectDigits(cascade, program,
               {1e-18, 1e-15, 1e-12, 1e-10, 1e-9, 1.0, 1e9, 1e17});
}

/// A quotient as written keeps what a sum of squares loses below the range, and
/// what the square of its divisor loses beyond it.
TEST(AccuracyTest, SquaresBeyondTheRange) {
  Text text(R"(
    in x
    hi = max x
    lo = min x
    Y = sum ((x - lo)/(hi - lo))**2
    out y = Y)");
  Cascade cascade = text.cascade();
  Certified whole = certified(cascade, derive(cascade), {});
  EXPECT_TRUE(whole.certificate.holds) << whole.certificate.failure;
  EXPECT_EQ(whole.certificate.edgeDifferences, 0u);
  const Program &program = *whole.derivation.program;
  EXPECT_EQ(program.passes, 1u);
  EXPECT_GT(program.repairPasses, 0u);
  expectDigits(cascade, program,
               {1e-30, 1e-22, 1e-20, 1e-18, 1.0, 1e18, 1e19, 1e20});
}

/// Whose squares are summed as written loses no more than that, and pays for
/// nothing.
TEST(AccuracyTest, SquaresAsWrittenHaveNoMorePasses) {
  for (const char *lines : {R"(
    in x w
    Q = sum x*x
    r := rsqrt(Q/n + 0.00001)
    Y = sum x*r*w
    out y = Y)",
                            R"(
    in x v
    m = max x
    s = sum exp(x - m)
    Y = sum exp(x - m)/s*v
    out y = Y)",
                            R"(
    in x
    S = sum x
    mu := S/n
    V = sum (x - mu)**2
    out v = V/n)"}) {
    Text text(lines);
    Cascade cascade = text.cascade();
    Certified whole = certified(cascade, derive(cascade), {});
    EXPECT_TRUE(whole.certificate.holds) << whole.certificate.failure;
    EXPECT_EQ(whole.certificate.rangeDifferences, 0u)
        << whole.certificate.edgeExample;
  }
}

/// As written each of two inputs is divided by its own root mean square before
/// they meet: q·k·g is infinite where q·r is a number. What one stage alone
/// reads has no such size, and a product with weights no more passes.
TEST(AccuracyTest, ProductsOfNormalisedInputs) {
  Text text(R"(
    in q k g
    Q = sum q*q
    K = sum k*k
    S = sum q*rsqrt(Q/n)*g*(k*rsqrt(K/n)*g)
    out s = S)");
  Cascade cascade = text.cascade();
  EXPECT_GT(certify(cascade, derive(cascade)).edgeDifferences, 0u);
  Certified whole = certified(cascade, derive(cascade), {});
  EXPECT_TRUE(whole.certificate.holds) << whole.certificate.failure;
  EXPECT_EQ(whole.certificate.edgeDifferences, 0u)
      << whole.certificate.edgeExample;
  EXPECT_EQ(whole.derivation.program->passes, 1u);
  EXPECT_EQ(whole.derivation.program->repairPasses, 1u);
  Text weights(R"(
    in x g w
    Q = sum x*x
    Y = sum x*rsqrt(Q/n)*g*w
    out y = Y)");
  Cascade product = weights.cascade();
  EXPECT_EQ(
      certified(product, derive(product), {}).derivation.program->repairPasses,
      0u);
}

/// Weights of unknown sign: the pivot of the squares follows the elements that
/// weigh, not those that are large.
TEST(AccuracyTest, PivotsOfSignedWeights) {
  Text text(R"(
    in x w
    W = sum w
    X = sum w*x
    mu := X/W
    V = sum w*(x - mu)**2
    out v = V/W)");
  Cascade cascade = text.cascade();
  Derivation derivation = derive(cascade);
  EXPECT_TRUE(certify(cascade, derivation).holds);
  Random random(5);
  double worst = 0;
  for (unsigned row = 0; row < 16; ++row) {
    Sample sample = makeSample(cascade.indices, rootsOf(cascade),
                               Family::Normal, 100, random);
    for (auto &[symbol, values] : sample.values)
      if (symbol->name == "x" || symbol->name == "w")
        for (size_t i = 0; i < values.size(); ++i) {
          bool isFar = i % 4 == 0;
          values[i] = float(symbol->name == "x" ? values[i] + (isFar ? 1e4 : 0)
                            : isFar             ? 1e-9 * values[i]
                                                : std::fabs(values[i]));
        }
    double exact =
        double(DefinitionEvaluator<DoubleDouble>(cascade, sample.extents)
                   .run(sample)
                   .outputs[0][0]);
    double found = ProgramEvaluator<float>(*derivation.program, sample.extents)
                       .run(sample, Order::Tiles, random)
                       .outputs[0][0];
    worst = std::max(worst, std::fabs(found / exact - 1));
  }
  EXPECT_LE(worst, 1e-5);
}

/// The exponential of a sum errs by what the sum errs, not by a share of it.
TEST(AccuracyTest, ExponentsOfProductsAreWide) {
  Text text(R"(
    in x
    m = max x
    p = prod exp((x - m)/8)
    out p = p)");
  Derivation derivation = derive(text.cascade());
  unsigned wide = 0;
  for (const Definition &definition : derivation.program->definitions)
    if (const State *state = std::get_if<State>(&definition);
        state && state->reducer == Reducer::Sum) {
      EXPECT_EQ(state->symbol().type(), Type::F64);
      ++wide;
    }
  EXPECT_GT(wide, 0u);
}

/// The residual of a line that fits is a difference of large numbers once its
/// square is multiplied out. The other sums keep one pass, and the residual
/// waits for them.
TEST(AccuracyTest, ResidualsWaitForTheLine) {
  Text text(R"(
    in x y
    X = sum x
    Y = sum y
    mx := X/n
    my := Y/n
    V = sum (x - mx)**2
    C = sum (x - mx)*(y - my)
    b := C/V
    E = sum (y - my - b*(x - mx))**2
    out e = E)");
  Cascade cascade = text.cascade();
  Certified found = certified(cascade, derive(cascade), {});
  EXPECT_TRUE(found.isFallback);
  EXPECT_TRUE(found.certificate.holds) << found.certificate.failure;
  EXPECT_EQ(found.apart, std::vector<unsigned>{4});
  EXPECT_EQ(found.derivation.program->passes, 2u);
  EXPECT_EQ(found.derivation.program->unfusedPasses, 3u);
  EXPECT_NE(found.rejected.find("'e' errs by"), std::string::npos)
      << found.rejected;
  EXPECT_GE(worstOf(measureAccuracy(cascade, *derive(cascade).program)), 1e3);
  Accuracy accuracy = measureAccuracy(cascade, *found.derivation.program);
  EXPECT_LE(worstOf(accuracy), 4);
  Policy fastest;
  fastest.stability = Stability::Fastest;
  found = certified(cascade, derive(cascade, fastest), fastest);
  EXPECT_FALSE(found.isFallback);
  EXPECT_EQ(found.derivation.program->passes, 1u);
}

/// A stage that was told to wait does so beside the residual, which waits since
/// its certificate says so.
TEST(AccuracyTest, WhatWaitsKeepsWaitingBesideAFallback) {
  Text text(R"(
    in x y w
    X = sum x
    Y = sum y
    mx := X/n
    my := Y/n
    V = sum (x - mx)**2
    C = sum (x - mx)*(y - my)
    b := C/V
    P = sum (x - mx)*w
    E = sum (y - my - b*(x - mx))**2
    out e = E
    out p = P)");
  Cascade cascade = text.cascade();
  Policy policy;
  policy.apart = {4};
  Derivation derivation = derive(cascade, policy);
  EXPECT_EQ(derivation.program->stagePass[4], 1u);
  Certified found = certified(cascade, derivation, policy);
  EXPECT_TRUE(found.isFallback);
  EXPECT_TRUE(found.certificate.holds) << found.certificate.failure;
  EXPECT_EQ(found.apart, std::vector<unsigned>{5});
  EXPECT_EQ(found.derivation.program->passes, 2u);
  EXPECT_EQ(found.derivation.program->stagePass[4], 1u);
  EXPECT_EQ(found.derivation.program->stagePass[5], 1u);
}

/// Random counts are far from what is expected of them; those that are tried
/// fit, and there the sum of squares, multiplied out, has no digits.
TEST(AccuracyTest, CountsAsExpected) {
  Text text(R"(
    in o c
    T = sum o
    X = sum (o - c*T)**2/(c*T)
    out x = X)");
  Cascade cascade = text.cascade();
  EXPECT_EQ(derive(cascade).program->passes, 1u);
  Certified found = certified(cascade, derive(cascade), {});
  EXPECT_TRUE(found.isFallback);
  EXPECT_EQ(found.derivation.program->passes, 2u);
  EXPECT_NE(found.rejected.find("(fitted)"), std::string::npos)
      << found.rejected;
}

} // namespace
} // namespace refold::algebra::test
