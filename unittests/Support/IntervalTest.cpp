// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Interval.h"
#include <functional>
#include <gtest/gtest.h>
#include <random>

using namespace refold;

namespace {

std::mt19937_64 &generator() {
  static std::mt19937_64 instance(1);
  return instance;
}
double drawn(double low, double high) {
  return std::uniform_real_distribution<double>(low, high)(generator());
}
/// Exact, narrow, or as wide as its middle and more; one side may be 0.
Interval interval(double low, double high) {
  double middle = drawn(low, high);
  double widths[] = {0, 1e-6, 0.5, 3};
  auto side = [&] { return widths[generator()() % 4] * drawn(0, 1); };
  return {middle, std::min(side(), middle - low),
          std::min(side(), high - middle)};
}
double inside(Interval a) {
  switch (generator()() % 4) {
  case 0:
    return a.lower();
  case 1:
    return a.upper();
  default:
    return drawn(a.lower(), std::nextafter(a.upper(), INFINITY));
  }
}
void expectCovers(Interval result, double value, const char *what) {
  if (std::isinf(result.radius()) || !std::isfinite(result.middle))
    return;
  double slack = 1e-12 * (1 + std::fabs(value) + std::fabs(result.middle));
  EXPECT_LE(result.lower(), value + slack) << what;
  EXPECT_GE(result.upper(), value - slack) << what;
}

#define FUNCTION(f)                                                            \
  {#f, [](Interval a) { return f(a); }, [](double a) { return std::f(a); }}

struct Function {
  const char *name;
  Interval (*ofInterval)(Interval);
  double (*ofNumber)(double);
};

TEST(IntervalTest, FunctionsCoverWhatTheirArgumentsCanBe) {
  const Function functions[] = {
      FUNCTION(sqrt),  FUNCTION(exp),   FUNCTION(exp2), FUNCTION(expm1),
      FUNCTION(log),   FUNCTION(log1p), FUNCTION(sinh), FUNCTION(cosh),
      FUNCTION(tanh),  FUNCTION(erf),   FUNCTION(sin),  FUNCTION(cos),
      FUNCTION(floor), FUNCTION(ceil),  FUNCTION(fabs), FUNCTION(nearbyint),
      FUNCTION(cbrt),  FUNCTION(atan),  FUNCTION(asinh)};
  for (const Function &function : functions) {
    bool isOfPositive = std::isnan(function.ofNumber(-2));
    for (int i = 0; i < 2000; ++i) {
      Interval a = interval(isOfPositive ? 0.01 : -5, 5);
      expectCovers(function.ofInterval(a), function.ofNumber(inside(a)),
                   function.name);
    }
  }
}

TEST(IntervalTest, OperationsCoverWhatTheirOperandsCanBe) {
  unsigned known = 0;
  for (int i = 0; i < 20000; ++i) {
    Interval a = interval(-5, 5), b = interval(-5, 5), c = interval(0.1, 5);
    double x = inside(a), y = inside(b), z = inside(c);
    expectCovers(a + b, x + y, "+");
    expectCovers(a - b, x - y, "-");
    expectCovers(a * b, x * y, "*");
    expectCovers(a / b, x / y, "/");
    expectCovers(b / c, y / z, "/ positive");
    expectCovers(largerOf(a, b), std::max(x, y), "largerOf");
    expectCovers(smallerOf(a, b), std::min(x, y), "smallerOf");
    expectCovers(either(a, b), generator()() % 2 ? x : y, "either");
    expectCovers(pow(c, b), std::pow(z, y), "pow");
    expectCovers(pow(a, 3), std::pow(x, 3), "cube");
    expectCovers(pow(a, 2), std::pow(x, 2), "square");
    known += std::isfinite((a / b).radius());
    if (!isUndecided(a, b))
      EXPECT_EQ(a < b, x < y);
  }
  EXPECT_GT(known, 10000u);
}

/// What a radius alone does not know.
TEST(IntervalTest, SidesKeepWhatIsPositive) {
  Interval wide = exp(Interval(1, 3));
  EXPECT_GT(wide.lower(), 0);
  EXPECT_GT(wide.above, wide.below);
  Interval sigmoid = Interval(1) / (Interval(1) + wide);
  EXPECT_NEAR(sigmoid.lower(), 1 / (1 + std::exp(4.0)), 1e-15);
  EXPECT_NEAR(sigmoid.upper(), 1 / (1 + std::exp(-2.0)), 1e-15);
  Interval rounded = roundedWithin(Interval(0.25, 0.25, 1), 0.0, {0.25, 0.125});
  EXPECT_EQ(rounded.lower(), 0);
  EXPECT_EQ(rounded.upper(), 1 + 2 * 1.25 * 0.25);
  // To bf16 beside a wide side: still no 0.
  Interval sum = Interval(1) + exp(Interval(3, 12));
  EXPECT_GT(roundedWithin(sum, 21, {0x1p-9, 0}).lower(), 0.8);
}

TEST(IntervalTest, WhatIsNotKnown) {
  Interval unknown = Interval::unknown(2);
  EXPECT_TRUE(std::isinf((unknown * Interval(0)).radius()));
  EXPECT_TRUE(std::isinf((Interval(1) / Interval(1, 1)).radius()));
  EXPECT_EQ(exp(unknown).lower(), 0);
  Interval share = Interval(1) / (Interval(1) + exp(unknown));
  EXPECT_EQ(share.lower(), 0);
  EXPECT_NEAR(share.upper(), 1, 1e-15);
  EXPECT_TRUE(isUndecided(unknown, Interval(5)));
  EXPECT_TRUE(std::isinf(log(Interval(-1, 0.5)).radius()));
  EXPECT_EQ(largerOf(Interval(-INFINITY), Interval(1, 2)).radius(), 2);
  // What left the range of double may be anything: 1 / (1 + e^x) is no 0.
  Interval beyond = exp(Interval(720, 20));
  EXPECT_TRUE(std::isinf((Interval(1) / (Interval(1) + beyond)).radius()));
  EXPECT_TRUE(std::isinf(largerOf(Interval(3, 1), -beyond).radius()));
  EXPECT_TRUE(std::isinf(either(Interval(NAN), Interval(3, 1)).radius()));
}

} // namespace
