// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What programs compute, as the reference evaluates their lowering.
#include "FoldTestSupport.h"

using namespace refold;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::NanSensitiveDoubleEq;
using testing::Pointwise;

namespace {

/// y for x along n, y being of type `to`.
std::vector<double> mapped(const std::string &expression, DType from, DType to,
                           std::vector<double> x) {
  int64_t size = x.size();
  return run("f(x[n]: " + nameOf(from).str() + ") -> y: " + nameOf(to).str() +
                 "\ny = " + expression + "\n",
             {array(from, {size}, std::move(x))})
      .only();
}

MATCHER(SameNumber, "") {
  double a = std::get<0>(arg), b = std::get<1>(arg);
  return (std::isnan(a) && std::isnan(b)) ||
         (a == b && std::signbit(a) == std::signbit(b));
}
auto are(std::vector<double> values) { return Pointwise(SameNumber(), values); }

TEST(FoldMeaningTest, CastsToIntegersSaturateAndRoundToEven) {
  std::vector<double> x = {0.5,  1.5,  -2.5,  126.5, 127.5, 300,
                           -300, kInf, -kInf, kNaN,  -0.4};
  EXPECT_THAT(mapped("i8(x)", DType::F32, DType::I8, x),
              are({0, 2, -2, 126, 127, 127, -128, 127, -128, 0, 0}));
  // u8 is read back unsigned by arithmetic.
  EXPECT_THAT(mapped("u8(x) + 0", DType::F32, DType::I32, x),
              are({0, 2, 0, 126, 128, 255, 0, 255, 0, 0, 0}));
  EXPECT_THAT(mapped("i32(x)", DType::F32, DType::I32,
                     {2147483648.0, 2147483520.0, -2147483648.0, -3e9, kNaN}),
              are({2147483647, 2147483520, -2147483648.0, -2147483648.0, 0}));
  EXPECT_THAT(mapped("i32(x)", DType::F64, DType::I32,
                     {2147483647.4, 2147483647.5, 1e300, -kInf, kNaN, -0.5}),
              are({2147483647, 2147483647, 2147483647, -2147483648.0, 0, 0}));
  EXPECT_THAT(mapped("i64(x)", DType::F64, DType::F64, {1e300, -kInf, 2.5}),
              are({9223372036854775807.0, -9223372036854775808.0, 2}));
  EXPECT_THAT(mapped("i8(x)", DType::I32, DType::I32, {1000, -1000, 7}),
              are({127, -128, 7}));
  EXPECT_THAT(mapped("u8(x) + 0", DType::I32, DType::I32, {1000, -1000, 7}),
              are({255, 0, 7}));
  EXPECT_THAT(mapped("bool(x)", DType::F32, DType::I32, {0, -0.0, 0.1, kNaN}),
              are({0, 0, 1, 1}));
}

TEST(FoldMeaningTest, CastsToShortFloatsRoundOnce) {
  EXPECT_THAT(mapped("f16(x)", DType::F32, DType::F32, {2049, 1e6, -1e6, 0.1}),
              are({2048, kInf, -kInf, 0.0999755859375}));
  EXPECT_THAT(
      mapped("f8e4m3(x)", DType::F32, DType::F32, {17, 19, 1000, -kInf, kNaN}),
      are({16, 20, 448, -448, kNaN}));
  EXPECT_THAT(mapped("f8e5m2(x)", DType::F32, DType::F32, {9, 11, kInf, -1e9}),
              are({8, 12, 57344, -57344}));
  EXPECT_THAT(mapped("bf16(x)", DType::F32, DType::F32, {257, 259}),
              are({256, 260}));
}

TEST(FoldMeaningTest, IntegerDivisionRoundsDownAndSurvivesZero) {
  std::vector<double> x = {7, -7, 8, -8, 0};
  EXPECT_THAT(mapped("x // 4", DType::I32, DType::I32, x),
              are({1, -2, 2, -2, 0}));
  EXPECT_THAT(mapped("x % 4", DType::I32, DType::I32, x), are({3, 1, 0, 0, 0}));
  EXPECT_THAT(mapped("x // -4", DType::I32, DType::I32, x),
              are({-2, 1, -2, 2, 0}));
  EXPECT_THAT(mapped("x % -4", DType::I32, DType::I32, x),
              are({-1, -3, 0, 0, 0}));
  EXPECT_THAT(mapped("-7 // x", DType::I32, DType::I32, {2, -2, 0, -1, -8}),
              are({-4, 3, 0, 7, 0}));
  EXPECT_THAT(mapped("-7 % x", DType::I32, DType::I32, {2, -2, 0, -1, -8}),
              are({1, -1, 0, 0, -7}));
  EXPECT_THAT(mapped("(0 - 2147483647 - 1) // x", DType::I32, DType::I32, {-1}),
              are({-2147483648.0}));
}

TEST(FoldMeaningTest, NaNAndInfinityFollowThePage) {
  std::vector<double> x = {1, kNaN, -kInf, kInf, -2};
  EXPECT_THAT(mapped("max(x, 0)", DType::F32, DType::F32, x),
              are({1, kNaN, 0, kInf, 0}));
  EXPECT_THAT(mapped("clip(x, -1, 1)", DType::F32, DType::F32, x),
              are({1, kNaN, -1, 1, -1}));
  EXPECT_THAT(mapped("relu(x)", DType::F32, DType::F32, x),
              are({1, kNaN, 0, kInf, 0}));
  EXPECT_THAT(mapped("sign(x)", DType::F32, DType::F32, x),
              are({1, kNaN, -1, 1, -1}));
  EXPECT_THAT(mapped("isnan(x)", DType::F32, DType::I32, x),
              are({0, 1, 0, 0, 0}));
  EXPECT_THAT(mapped("isinf(x)", DType::F32, DType::I32, x),
              are({0, 0, 1, 1, 0}));
  EXPECT_THAT(mapped("x != x", DType::F32, DType::I32, x),
              are({0, 1, 0, 0, 0}));
  EXPECT_THAT(mapped("round(x)", DType::F32, DType::F32, {0.5, 1.5, 2.5, -0.5}),
              are({0, 2, 2, -0.0}));
  EXPECT_THAT(mapped("-x^2", DType::F32, DType::F32, {3}), are({-9}));
  EXPECT_THAT(mapped("2^-x", DType::F32, DType::F32, {2}), are({0.25}));
  EXPECT_THAT(mapped("x^-2", DType::F32, DType::F32, {2}), are({0.25}));
}

TEST(FoldMeaningTest, ReducersOfEmptyAndOddRows) {
  auto reduced = [](const std::string &reducer, std::vector<double> x) {
    return mapped(reducer + "(n: x)", DType::F32, DType::F32, std::move(x));
  };
  EXPECT_THAT(reduced("max", {}), are({-kInf}));
  EXPECT_THAT(reduced("min", {}), are({kInf}));
  EXPECT_THAT(reduced("mean", {}), are({kNaN}));
  EXPECT_THAT(reduced("sum", {}), are({0}));
  EXPECT_THAT(reduced("prod", {}), are({1}));
  EXPECT_THAT(reduced("argmax", {}), are({-1}));
  EXPECT_THAT(reduced("max", {1, kNaN, 3}), are({kNaN}));
  EXPECT_THAT(reduced("argmax", {1, 3, 3}), are({1}));
  EXPECT_THAT(reduced("argmax", {1, kNaN, kInf}), are({1}));
  EXPECT_THAT(reduced("argmin", {4, kNaN, 3}), are({2}));
  EXPECT_THAT(reduced("mean", {1, 2, 6}), are({3}));
  EXPECT_THAT(reduced("prod", {2, 3, 4}), are({24}));
  EXPECT_THAT(mapped("any(n: x > 1)", DType::F32, DType::I32, {0, 2}),
              are({1}));
  EXPECT_THAT(mapped("all(n: x > 1)", DType::F32, DType::I32, {0, 2}),
              are({0}));
  EXPECT_THAT(mapped("sum(n: x)", DType::U8, DType::I32, {200, 200}),
              are({400}));
  EXPECT_THAT(mapped("max(n: x)", DType::I8, DType::I32, {-5, -7}), are({-5}));
}

TEST(FoldMeaningTest, TopKWithTiesAndTooFewElements) {
  Outcome outcome = run("f(x[m,n]) -> v, i: i32\nv[m,r], i[m,r] = topk(n: x, "
                        "3)\n",
                        {array(DType::F32, {2, 2}, {1, 1, kNaN, 5})});
  ASSERT_EQ(outcome.error, "");
  EXPECT_THAT(outcome.outputs[0], are({1, 1, -kInf, kNaN, 5, -kInf}));
  EXPECT_THAT(outcome.outputs[1], are({0, 1, -1, 0, 1, -1}));
  Outcome turned = run("f(x[m,n]) -> v\nv[r,m], i[m,r] = topk(n: x, 1)\n",
                       {array(DType::F32, {2, 2}, {1, 2, 4, 3})});
  EXPECT_THAT(turned.only(), are({2, 4}));
}

TEST(FoldMeaningTest, SubscriptsReadElsewhere) {
  Tensor x = array(DType::F32, {2, 3}, {0, 1, 2, 10, 11, 12});
  EXPECT_THAT(run("f(x[m,n]) -> y\ny[n,m] = x\n", {x}).only(),
              are({0, 10, 1, 11, 2, 12}));
  EXPECT_THAT(run("f(x[m,n]) -> y\ny = x[m, len(n) - 1 - n]\n", {x}).only(),
              are({2, 1, 0, 12, 11, 10}));
  EXPECT_THAT(run("f(x[m,n]) -> y\ny[m,j] = sum(n: x * x[j,n])\n", {x}).only(),
              are({5, 35, 35, 365}));
  EXPECT_THAT(run("f(x[m,n]) -> y\ny = sum(m: x[m,m])\n", {x}).only(),
              are({11}));
  EXPECT_THAT(run("f(x[m,n]) -> y\ny = x[1, 2]\n", {x}).only(), are({12}));
  Tensor w = array(DType::F32, {4}, {1, 2, 3, 4});
  EXPECT_THAT(
      run("f(x[m,n], w[h]) -> y\ny[h] = w * x[h//2, h%2]\n", {x, w}).only(),
      are({0, 2, 30, 44}));
}

TEST(FoldMeaningTest, OutOfRangeNamesTheLine) {
  Tensor x = array(DType::F32, {2, 3}, {0, 1, 2, 10, 11, 12});
  std::string gather = "f(x[m,n], l[m]: i64) -> y\n  y = x[m, l]\n";
  auto labels = [](double a, double b) {
    return array(DType::I64, {2}, {a, b});
  };
  EXPECT_THAT(run(gather, {x, labels(2, 0)}).only(), are({2, 10}));
  EXPECT_THAT(run(gather, {x, labels(0, 3)}).error,
              HasSubstr("t.fold:2:12: found subscript 2 of 'x' out of range"));
  EXPECT_THAT(run(gather, {x, labels(-1, 0)}).error,
              HasSubstr("t.fold:2:12: found subscript 2 of 'x' out of range"));
  Tensor w = array(DType::F32, {4}, {1, 2, 3, 4});
  EXPECT_THAT(
      run("f(x[m,n], w[e]) -> y\ny = sum(m: w * x[m,e])\n", {x, w}).error,
      HasSubstr("t.fold:2:20: found subscript 2 of 'x' out of range"));
  EXPECT_THAT(
      run("f(x[m,n], w[e]) -> y\ny = w * x[0, len(n) - 1 - e]\n", {x, w}).error,
      HasSubstr("t.fold:2:25: found subscript 2 of 'x' out of range"));
  Tensor narrow = array(DType::F32, {2}, {1, 2});
  EXPECT_THAT(
      run("f(x[m,n], w[e]) -> y\ny = sum(m: w * x[m,e])\n", {x, narrow}).only(),
      are({10, 24}));
}

TEST(FoldMeaningTest, IndicesLengthsAndMasks) {
  Tensor x = array(DType::F32, {3, 3}, {1, 2, 3, 4, 5, 6, 7, 8, 9});
  EXPECT_THAT(
      run("f(x[m,n]) -> y\ny = sum(n: where(n <= m, x, 0))\n", {x}).only(),
      are({1, 9, 24}));
  EXPECT_THAT(run("f(x[m,n]) -> y\ny = sum(n: x) / len(n)\n", {x}).only(),
              are({2, 5, 8}));
  EXPECT_THAT(run("f(x[m,n]) -> y\ny = max(n: x - 2*n) + m/2\n", {x}).only(),
              are({1, 4.5, 8}));
  EXPECT_THAT(run("f(x[m,n]) -> y: i64\ny = sum(n: n*n)\n", {x}).only(),
              are({5}));
}

TEST(FoldMeaningTest, MeanOverTwoAxesDividesOnce) {
  Tensor x = array(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_THAT(run("f(x[m,n]) -> y\ny = mean(m, n: x)\n", {x}).only(),
              are({3.5}));
  EXPECT_THAT(run("f(x[m,n]) -> y\ny = mean(m: x)\n", {x}).only(),
              are({2.5, 3.5, 4.5}));
}

TEST(FoldMeaningTest, AWrongResultIsNoticed) {
  EXPECT_THAT(mapped("x + 1", DType::F32, DType::F32, {1, kNaN}),
              testing::Not(are({2, 0})));
  EXPECT_THAT(mapped("-x", DType::F32, DType::F32, {0}),
              testing::Not(are({0})));
}

} // namespace
