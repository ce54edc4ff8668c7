// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs in program form: every op, edge values, and what is refused.
#include "TestSupport.h"

using namespace refold;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::NanSensitiveDoubleEq;

namespace {

constexpr char kRowSum[] = R"mlir(
func.func @f(%x: tensor<?x?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %zero = arith.constant 0.0 : f32
  %n = tensor.dim %x, %c0 : tensor<?x?xf32>
  %e = tensor.empty(%n) : tensor<?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?xf32>) -> tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>, affine_map<(i, j) -> (i)>],
                       iterator_types = ["parallel", "reduction"]}
      ins(%x : tensor<?x?xf32>) outs(%f : tensor<?xf32>) {
  ^bb0(%a: f32, %b: f32):
    %s = arith.addf %a, %b : f32
    linalg.yield %s : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
})mlir";

TEST(ProgramTest, RowSum) {
  EXPECT_THAT(
      evaluate(kRowSum, {array(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6})}),
      ElementsAre(6, 15));
}

TEST(ProgramTest, EmptyAxisGivesTheInitialValue) {
  EXPECT_THAT(evaluate(kRowSum, {array(DType::F32, {2, 0}, {})}),
              ElementsAre(0, 0));
  EXPECT_THAT(evaluate(kRowSum, {array(DType::F32, {0, 3}, {})}),
              ElementsAre());
}

static std::string replaced(std::string text, const std::string &from,
                            const std::string &to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

/// Σ 2·q(x), q to f8: what rounding at other values may change of a row.
TEST(ProgramTest, RadiiOfRunningRoundings) {
  std::string text = replaced(kRowSum, "    %s = arith.addf %a, %b", R"mlir(
    %q = arith.truncf %a : f32 to f8E4M3FN
    %w = arith.extf %q : f8E4M3FN to f32
    %two = arith.constant 2.0 : f32
    %p = arith.mulf %w, %two : f32
    %s = arith.addf %p, %b)mlir");
  Program program(text);
  auto radiusOf = [&](std::vector<double> row, RunningRoundings running) {
    EvaluationOptions options;
    options.running = std::move(running);
    auto outputs = evaluateProgram(
        program.function(), {array(DType::F32, {1, int64_t(row.size())}, row)},
        options);
    EXPECT_TRUE(bool(outputs));
    if (!outputs)
      return -1.0f;
    const RefTensor &sum = outputs->front().value;
    EXPECT_EQ(sum.allowance(0, true), sum.allowance(0, false));
    return float(sum.allowance(0, true));
  };
  RunningRoundings f8{{DType::F8E4M3}, false, false};
  // Twice the error of each, times 2: |y|/16, or 2^-10 where that is more.
  EXPECT_DOUBLE_EQ(radiusOf({1.5, 96}, f8), 4 * (1.5 + 96) / 16);
  EXPECT_DOUBLE_EQ(radiusOf({0.001}, f8), 4 * 0x1p-10);
  EXPECT_EQ(radiusOf({1.5, 96}, {{DType::BF16}, false, false}), 0);
  RunningRoundings scaled{{DType::F8E4M3}, false, true};
  EXPECT_EQ(radiusOf({1.5, 96}, scaled), 0);
  EXPECT_DOUBLE_EQ(radiusOf({0.001, 96}, scaled), 4 * 0x1p-10);
}

/// Σ where(isnan(floor x), 0, floor x), as a rounding to integers begins: what
/// may be off by 1 is a number all the same, so that no row may be off by |x|.
TEST(ProgramTest, RadiiOfNumbersThatMayBeOff) {
  Program program(replaced(kRowSum, "    %s = arith.addf %a, %b", R"mlir(
    %lower = math.floor %a : f32
    %isnan = arith.cmpf uno, %lower, %lower : f32
    %none = arith.constant 0.0 : f32
    %q = arith.select %isnan, %none, %lower : f32
    %s = arith.addf %q, %b)mlir"));
  EvaluationOptions options;
  options.running.steps = true;
  auto outputs = evaluateProgram(
      program.function(), {array(DType::F32, {1, 2}, {1.5, 96})}, options);
  ASSERT_TRUE(bool(outputs));
  EXPECT_EQ(outputs->front().value.allowance(0, true), 2);
}

/// Σ 1/(1 + e^-floor(x)): e to the power of what may be off by 1 is positive,
/// so that the quotient is known, and off by less above than below.
TEST(ProgramTest, AllowancesOfEitherSide) {
  Program program(replaced(kRowSum, "    %s = arith.addf %a, %b", R"mlir(
    %lower = math.floor %a : f32
    %negated = arith.negf %lower : f32
    %power = math.exp %negated : f32
    %one = arith.constant 1.0 : f32
    %sum = arith.addf %one, %power : f32
    %q = arith.divf %one, %sum : f32
    %s = arith.addf %q, %b)mlir"));
  EvaluationOptions options;
  options.running.steps = true;
  auto outputs = evaluateProgram(program.function(),
                                 {array(DType::F32, {1, 1}, {1.5})}, options);
  ASSERT_TRUE(bool(outputs));
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  const RefTensor &sum = outputs->front().value;
  EXPECT_NEAR(sum.allowance(0, true), sigmoid(2) - sigmoid(1), 1e-6);
  EXPECT_NEAR(sum.allowance(0, false), sigmoid(1) - sigmoid(0), 1e-6);
}

/// The judge of a program that computes in f64 is finer than double: of a sum
/// of products, of other arithmetic, and in what it hands out.
TEST(ProgramTest, ProgramsInF64AreJudgedInLongDouble) {
  Program sum(replaced(kRowSum, "f32", "f64"));
  auto sums = evaluateProgram(
      sum.function(), {array(DType::F64, {1, 3}, {1, 0x1p-60, 0x1p-60})});
  ASSERT_TRUE(bool(sums));
  EXPECT_EQ(sums->front().value.exact(0), 1.0L + 0x1p-59L);
  EXPECT_EQ(sums->front().value.get(0), 1.0);

  std::string product =
      replaced(kRowSum, "arith.addf %a, %b", "arith.addf %p, %b");
  product = replaced(product,
                     "    %s =", "    %p = arith.mulf %a, %a : f64\n    %s =");
  Program square(replaced(product, "f32", "f64"));
  auto squares = evaluateProgram(square.function(),
                                 {array(DType::F64, {1, 1}, {1 + 0x1p-31})});
  ASSERT_TRUE(bool(squares));
  EXPECT_EQ(squares->front().value.exact(0), 1.0L + 0x1p-30L + 0x1p-62L);

  // Rounding every operation to its type is no judging.
  EvaluationOptions asWritten;
  asWritten.roundEveryOp = true;
  auto rounded = evaluateProgram(
      square.function(), {array(DType::F64, {1, 1}, {1 + 0x1p-31})}, asWritten);
  ASSERT_TRUE(bool(rounded));
  EXPECT_EQ(rounded->front().value.exact(0), 1.0L + 0x1p-30L);
}

/// More elements than lanes, none a multiple of them.
TEST(ProgramTest, OddSizes) {
  std::vector<double> x(131 * 259);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = double(i % 7);
  std::vector<double> sums =
      evaluate(kRowSum, {array(DType::F32, {131, 259}, x)});
  ASSERT_EQ(sums.size(), 131u);
  for (size_t i = 0; i < sums.size(); ++i) {
    double want = 0;
    for (size_t j = 0; j < 259; ++j)
      want += x[i * 259 + j];
    EXPECT_EQ(sums[i], want);
  }
}

/// A function of one array x (and y, of its type) with one elementwise body.
std::string elementwise(const std::string &type, const std::string &body,
                        const std::string &result = "") {
  std::string to = result.empty() ? type : result;
  return "func.func @f(%x: tensor<?x" + type + ">, %y: tensor<?x" + type +
         ">) -> tensor<?x" + to +
         "> {\n"
         "  %c0 = arith.constant 0 : index\n"
         "  %n = tensor.dim %x, %c0 : tensor<?x" +
         type +
         ">\n"
         "  %e = tensor.empty(%n) : tensor<?x" +
         to +
         ">\n"
         "  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, "
         "affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = "
         "[\"parallel\"]}\n"
         "    ins(%x, %y : tensor<?x" +
         type + ">, tensor<?x" + type + ">) outs(%e : tensor<?x" + to +
         ">) {\n"
         "  ^bb0(%a: " +
         type + ", %b: " + type + ", %o: " + to + "):\n" + body +
         "\n    linalg.yield %r : " + to + "\n  } -> tensor<?x" + to +
         ">\n"
         "  return %r : tensor<?x" +
         to + ">\n}";
}

std::vector<double> apply(const std::string &op, std::vector<double> x,
                          std::vector<double> y) {
  int64_t n = x.size();
  return evaluate(elementwise("f32", "    %r = " + op + " %a, %b : f32"),
                  {array(DType::F32, {n}, x), array(DType::F32, {n}, y)});
}

TEST(ProgramTest, MaximaAndNaN) {
  std::vector<double> x = {1, kNaN, -0.0, kNaN}, y = {2, 1, 0.0, kNaN};
  EXPECT_THAT(apply("arith.maximumf", x, y),
              ElementsAre(2, NanSensitiveDoubleEq(kNaN), 0.0,
                          NanSensitiveDoubleEq(kNaN)));
  EXPECT_FALSE(std::signbit(apply("arith.maximumf", x, y)[2]));
  EXPECT_TRUE(std::signbit(apply("arith.minimumf", x, y)[2]));
  EXPECT_THAT(apply("arith.maxnumf", x, y),
              ElementsAre(2, 1, 0.0, NanSensitiveDoubleEq(kNaN)));
  EXPECT_THAT(apply("arith.minnumf", {1, kNaN}, {2, 5}), ElementsAre(1, 5));
}

TEST(ProgramTest, FloatsAreDoubles) {
  // In f32 the 1 would be lost.
  EXPECT_THAT(apply("arith.addf", {1e8}, {1}), ElementsAre(1e8 + 1));
  EvaluationOptions rounded;
  rounded.roundEveryOp = true;
  EXPECT_THAT(
      evaluate(elementwise("f32", "    %r = arith.addf %a, %b : f32"),
               {array(DType::F32, {1}, {1e8}), array(DType::F32, {1}, {1})},
               rounded),
      ElementsAre(1e8));
}

TEST(ProgramTest, CastsToStorageRoundOthersDoNot) {
  std::string text = elementwise("f32", R"(
    %h = arith.truncf %a : f32 to f16
    %r = arith.extf %h : f16 to f32)");
  std::vector<Tensor> inputs = {
      array(DType::F32, {4}, {2049, 70000, -kInf, kNaN}),
      array(DType::F32, {4}, {0, 0, 0, 0})};
  EXPECT_THAT(evaluate(text, inputs),
              ElementsAre(2048, kInf, -kInf, NanSensitiveDoubleEq(kNaN)));
  std::string wide = elementwise("f64", R"(
    %h = arith.truncf %a : f64 to f32
    %r = arith.extf %h : f32 to f64)");
  EXPECT_THAT(evaluate(wide, {array(DType::F64, {1}, {0.1}),
                              array(DType::F64, {1}, {0})}),
              ElementsAre(0.1));
}

TEST(ProgramTest, OutputsCanStayExact) {
  EvaluationOptions exact;
  exact.keepOutputsExact = true;
  std::vector<Tensor> inputs = {array(DType::F32, {3}, {2049.5, 3.25, 300}),
                                array(DType::F32, {3}, {0, 0, 0})};
  EXPECT_THAT(
      evaluate(elementwise("f32", "%r = arith.truncf %a : f32 to f16", "f16"),
               inputs, exact),
      ElementsAre(2049.5, 3.25, 300));
  std::string integer = elementwise("f32", R"(
    %hi = arith.constant 127.0 : f32
    %hi8 = arith.constant 127 : i8
    %zero = arith.constant 0.0 : f32
    %round = math.roundeven %a : f32
    %big = arith.cmpf oge, %round, %hi : f32
    %safe = arith.select %big, %zero, %round : f32
    %i = arith.fptosi %safe : f32 to i8
    %r = arith.select %big, %hi8, %i : i8)",
                                    "i8");
  EXPECT_THAT(evaluate(integer, inputs, exact), ElementsAre(127, 3.25, 127));
  EXPECT_THAT(evaluate(integer, inputs), ElementsAre(127, 3, 127));
}

TEST(ProgramTest, IntegersWrap) {
  auto bytes = [](const std::string &body, std::vector<double> x,
                  std::vector<double> y) {
    int64_t n = x.size();
    return evaluate(elementwise("i8", body),
                    {array(DType::I8, {n}, x), array(DType::I8, {n}, y)});
  };
  EXPECT_THAT(bytes("%r = arith.addi %a, %b : i8", {100, -100}, {100, -100}),
              ElementsAre(-56, 56));
  EXPECT_THAT(bytes("%r = arith.floordivsi %a, %b : i8", {-7, 7}, {2, -2}),
              ElementsAre(-4, -4));
  EXPECT_THAT(bytes("%r = arith.divsi %a, %b : i8", {-7, -128}, {2, -1}),
              ElementsAre(-3, -128));
  EXPECT_THAT(bytes("%r = arith.divui %a, %b : i8", {-2}, {2}),
              ElementsAre(127));
  EXPECT_THAT(bytes("%r = arith.maxui %a, %b : i8", {-2}, {2}),
              ElementsAre(-2));
  EXPECT_THAT(bytes("%r = arith.shrui %a, %b : i8", {-1}, {4}),
              ElementsAre(15));
}

TEST(ProgramTest, IntegerConversions) {
  auto convert = [](const std::string &body, std::vector<double> x) {
    int64_t n = x.size();
    return evaluate(elementwise("f32", body, "i8"),
                    {array(DType::F32, {n}, x), array(DType::F32, {n}, x)});
  };
  EXPECT_THAT(convert("%r = arith.fptosi %a : f32 to i8",
                      {1.9, -1.9, 500, -kInf, kNaN}),
              ElementsAre(1, -1, 127, -128, 0));
  std::string widen = elementwise("i8", R"(
    %z = arith.extui %a : i8 to i32
    %s = arith.extsi %a : i8 to i32
    %d = arith.subi %z, %s : i32
    %r = arith.trunci %d : i32 to i8)");
  EXPECT_THAT(evaluate(widen, {array(DType::I8, {2}, {-1, 5}),
                               array(DType::I8, {2}, {0, 0})}),
              ElementsAre(0, 0));
  std::string flag = elementwise("i8", R"(
    %t = arith.cmpi slt, %a, %b : i8
    %r = arith.extsi %t : i1 to i8)");
  EXPECT_THAT(evaluate(flag, {array(DType::I8, {2}, {-1, 5}),
                              array(DType::I8, {2}, {0, 0})}),
              ElementsAre(-1, 0));
}

TEST(ProgramTest, UnsignedOutputs) {
  std::string text = R"mlir(
func.func @f(%x: tensor<2xi8> {refold.unsigned}) -> (tensor<2xi8> {refold.unsigned}) {
  return %x : tensor<2xi8>
})mlir";
  EXPECT_THAT(evaluate(text, {array(DType::U8, {2}, {200, 7})}),
              ElementsAre(200, 7));
}

TEST(ProgramTest, DivisionByZeroIsAnError) {
  EXPECT_THAT(errorOf(elementwise("i8", "%r = arith.divsi %a, %b : i8"),
                      {array(DType::I8, {1}, {1}), array(DType::I8, {1}, {0})}),
              HasSubstr("integer division by zero"));
}

/// A function of x: tensor<?x?xf32> whose text is `body`, with result %r.
std::string matrixProgram(const std::string &body, const std::string &type) {
  return "func.func @f(%x: tensor<?x?xf32>) -> " + type + " {\n" + body +
         "\n  return %r : " + type + "\n}";
}

std::vector<double> onMatrix(const std::string &body, const std::string &type,
                             std::vector<double> values = {1, 2, 3, 4, 5, 6}) {
  return evaluate(matrixProgram(body, type),
                  {array(DType::F32, {2, int64_t(values.size()) / 2}, values)});
}

TEST(ProgramTest, Reshapes) {
  EXPECT_THAT(onMatrix("%r = tensor.collapse_shape %x [[0, 1]] : "
                       "tensor<?x?xf32> into tensor<?xf32>",
                       "tensor<?xf32>"),
              ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_THAT(onMatrix(R"(
    %t = tensor.extract_slice %x[0, 1] [2, 2] [1, 1] : tensor<?x?xf32> to tensor<2x2xf32>
    %e = tensor.expand_shape %t [[0], [1, 2]] output_shape [2, 1, 2] : tensor<2x2xf32> into tensor<2x1x2xf32>
    %r = tensor.collapse_shape %e [[0, 1, 2]] : tensor<2x1x2xf32> into tensor<4xf32>)",
                       "tensor<4xf32>"),
              ElementsAre(2, 3, 5, 6));
  EXPECT_THAT(errorOf(matrixProgram(R"(
    %c2 = arith.constant 2 : index
    %c4 = arith.constant 4 : index
    %r = tensor.expand_shape %x [[0], [1, 2]] output_shape [%c2, %c4, 2] : tensor<?x?xf32> into tensor<?x?x2xf32>)",
                                    "tensor<?x?x2xf32>"),
                      {array(DType::F32, {2, 3}, {1, 2, 3, 4, 5, 6})}),
              HasSubstr("dimension 1 of size 3 is expanded to size 8"));
}

TEST(ProgramTest, Slices) {
  EXPECT_THAT(onMatrix("%r = tensor.extract_slice %x[1, 0] [1, 2] [1, 2] : "
                       "tensor<?x?xf32> to tensor<2xf32>",
                       "tensor<2xf32>"),
              ElementsAre(4, 6));
  EXPECT_THAT(onMatrix(R"(
    %p = tensor.extract_slice %x[0, 0] [1, 2] [1, 1] : tensor<?x?xf32> to tensor<2xf32>
    %r = tensor.insert_slice %p into %x[1, 1] [1, 2] [1, 1] : tensor<2xf32> into tensor<?x?xf32>)",
                       "tensor<?x?xf32>"),
              ElementsAre(1, 2, 3, 4, 1, 2));
  EXPECT_THAT(
      errorOf(matrixProgram("%r = tensor.extract_slice %x[1, 0] [2, 2] [1, 1] "
                            ": tensor<?x?xf32> to tensor<2x2xf32>",
                            "tensor<2x2xf32>"),
              {array(DType::F32, {2, 2}, {1, 2, 3, 4})}),
      HasSubstr(
          "a slice at 1 of size 2 and step 1 leaves dimension 0 of size 2"));
}

TEST(ProgramTest, PadConcatCast) {
  EXPECT_THAT(onMatrix(R"(
    %z = arith.constant 9.0 : f32
    %r = tensor.pad %x low[1, 0] high[0, 1] {
    ^bb0(%i: index, %j: index):
      tensor.yield %z : f32
    } : tensor<?x?xf32> to tensor<?x?xf32>)",
                       "tensor<?x?xf32>", {1, 2}),
              ElementsAre(9, 9, 1, 9, 2, 9));
  EXPECT_THAT(onMatrix("%r = tensor.concat dim(1) %x, %x : (tensor<?x?xf32>, "
                       "tensor<?x?xf32>) -> tensor<?x?xf32>",
                       "tensor<?x?xf32>", {1, 2}),
              ElementsAre(1, 1, 2, 2));
  EXPECT_THAT(
      errorOf(matrixProgram(
                  "%r = tensor.cast %x : tensor<?x?xf32> to tensor<2x2xf32>",
                  "tensor<2x2xf32>"),
              {array(DType::F32, {2, 1}, {1, 2})}),
      HasSubstr("[2, 1] is cast to [2, 2]"));
}

TEST(ProgramTest, Constants) {
  EXPECT_THAT(onMatrix("%r = arith.constant dense<[1.5, -0.0]> : tensor<2xf16>",
                       "tensor<2xf16>"),
              ElementsAre(1.5, 0));
  EXPECT_THAT(
      onMatrix("%r = arith.constant dense<[true, false, true]> : tensor<3xi1>",
               "tensor<3xi1>"),
      ElementsAre(1, 0, 1));
  EXPECT_THAT(onMatrix("%r = arith.constant dense<-3> : tensor<2xi64>",
                       "tensor<2xi64>"),
              ElementsAre(-3, -3));
  EXPECT_THAT(evaluate(R"mlir(
module {
func.func @f() -> tensor<2xf32> {
  %r = arith.constant dense_resource<blob> : tensor<2xf32>
  return %r : tensor<2xf32>
}
}
{-# dialect_resources: { builtin: { blob: "0x040000000000803F00000040" } } #-}
)mlir",
                       {}),
              ElementsAre(1, 2));
}

TEST(ProgramTest, GathersCheckTheirSubscripts) {
  std::string text = R"mlir(
func.func @f(%t: tensor<?x?xf32>, %i: tensor<?xi64>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %n = tensor.dim %i, %c0 : tensor<?xi64>
  %e = tensor.empty(%n) : tensor<?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
    ins(%i : tensor<?xi64>) outs(%e : tensor<?xf32>) {
  ^bb0(%a: i64, %o: f32):
    %row = linalg.index 0 : index
    %at = arith.index_cast %a : i64 to index
    %v = tensor.extract %t[%row, %at] : tensor<?x?xf32>
    linalg.yield %v : f32
  } -> tensor<?xf32>
  return %r : tensor<?xf32>
})mlir";
  Tensor table = array(DType::F32, {2, 2}, {1, 2, 3, 4});
  EXPECT_THAT(evaluate(text, {table, array(DType::I64, {2}, {1, 0})}),
              ElementsAre(2, 3));
  EXPECT_THAT(errorOf(text, {table, array(DType::I64, {2}, {0, 2})}),
              HasSubstr("subscript 1 is 2; expected 0 to 1"));
  EXPECT_THAT(errorOf(text, {table, array(DType::I64, {2}, {-1, 0})}),
              HasSubstr("subscript 1 is -1; expected 0 to 1"));
}

TEST(ProgramTest, AssertFailsWithItsMessageAndPlace) {
  std::string text = R"mlir(
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %c0 = arith.constant 0 : index
  %c2 = arith.constant 2 : index
  %n = tensor.dim %x, %c0 : tensor<?xf32>
  %ok = arith.cmpi sge, %n, %c2 : index
  cf.assert %ok, "n is too small" loc("model.fold":3:7)
  return %x : tensor<?xf32>
})mlir";
  EXPECT_THAT(evaluate(text, {array(DType::F32, {2}, {1, 2})}),
              ElementsAre(1, 2));
  EXPECT_EQ(errorOf(text, {array(DType::F32, {1}, {1})}),
            "model.fold:3:7: n is too small");
}

TEST(ProgramTest, TopKOrdersTiesNaNAndAbsentElements) {
  std::string text = R"mlir(
func.func @f(%x: tensor<?x?xf32>) -> (tensor<?x3xf32>, tensor<?x3xi32>) {
  %v, %i = refold.topk %x dim(1) k(3) largest(true) : tensor<?x?xf32> -> tensor<?x3xf32>, tensor<?x3xi32>
  return %v, %i : tensor<?x3xf32>, tensor<?x3xi32>
})mlir";
  Program program(text);
  ASSERT_TRUE(bool(program));
  auto outputs = llvm::cantFail(evaluateProgram(
      program.function(),
      {array(DType::F32, {2, 4}, {1, 2, 2, kInf, kNaN, -kInf, kInf, 0})}));
  EXPECT_THAT(valuesOf(outputs[0].value),
              ElementsAre(kInf, 2, 2, NanSensitiveDoubleEq(kNaN), kInf, 0));
  EXPECT_THAT(valuesOf(outputs[1].value), ElementsAre(3, 1, 2, 0, 2, 3));
  ASSERT_TRUE(outputs[1].selects.has_value());
  EXPECT_EQ(outputs[1].selects->dim, 1u);
  EXPECT_FALSE(outputs[0].selects.has_value());
  outputs = llvm::cantFail(
      evaluateProgram(program.function(), {array(DType::F32, {1, 1}, {5})}));
  EXPECT_THAT(valuesOf(outputs[0].value), ElementsAre(5, -kInf, -kInf));
  EXPECT_THAT(valuesOf(outputs[1].value), ElementsAre(0, -1, -1));
}

constexpr char kMatmul[] = R"mlir(
func.func @f(%a: tensor<?x?x?xf32>, %b: tensor<?x?x?xf32>) -> tensor<?x?x?xf32> {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %c2 = arith.constant 2 : index
  %zero = arith.constant 0.0 : f32
  %g = tensor.dim %a, %c0 : tensor<?x?x?xf32>
  %m = tensor.dim %a, %c1 : tensor<?x?x?xf32>
  %n = tensor.dim %b, %c2 : tensor<?x?x?xf32>
  %e = tensor.empty(%g, %m, %n) : tensor<?x?x?xf32>
  %f = linalg.fill ins(%zero : f32) outs(%e : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  %r = linalg.batch_matmul ins(%a, %b : tensor<?x?x?xf32>, tensor<?x?x?xf32>) outs(%f : tensor<?x?x?xf32>) -> tensor<?x?x?xf32>
  return %r : tensor<?x?x?xf32>
})mlir";

/// The product as matrices and one element at a time (rounding every op needs
/// the latter).
TEST(ProgramTest, ProductsAgreeWithTheirDefinition) {
  for (auto [g, m, n, k] : {std::tuple{1, 1, 1, 1},
                            {2, 5, 17, 3},
                            {1, 4, 16, 130},
                            {3, 0, 2, 2},
                            {2, 3, 133, 0},
                            {1, 9, 131, 129}}) {
    std::vector<double> a(g * m * k), b(g * k * n);
    for (size_t i = 0; i < a.size(); ++i)
      a[i] = double(int(i * 37 % 11) - 5);
    for (size_t i = 0; i < b.size(); ++i)
      b[i] = double(int(i * 53 % 13) - 6);
    std::vector<Tensor> inputs = {array(DType::F32, {g, m, k}, a),
                                  array(DType::F32, {g, k, n}, b)};
    EvaluationOptions elementwise;
    elementwise.roundEveryOp = true; // exact for these small integers
    EXPECT_EQ(evaluate(kMatmul, inputs),
              evaluate(kMatmul, inputs, elementwise));
  }
}

TEST(ProgramTest, ConvolutionsAndOtherNamedOps) {
  std::string text = R"mlir(
func.func @f(%x: tensor<1x1x1x4xf32>, %w: tensor<1x1x1x2xf32>, %o: tensor<1x1x1x3xf32>) -> tensor<1x1x1x3xf32> {
  %r = linalg.conv_2d_nchw_fchw ins(%x, %w : tensor<1x1x1x4xf32>, tensor<1x1x1x2xf32>) outs(%o : tensor<1x1x1x3xf32>) -> tensor<1x1x1x3xf32>
  return %r : tensor<1x1x1x3xf32>
})mlir";
  EXPECT_THAT(evaluate(text, {array(DType::F32, {1, 1, 1, 4}, {1, 2, 3, 4}),
                              array(DType::F32, {1, 1, 1, 2}, {1, 10}),
                              array(DType::F32, {1, 1, 1, 3}, {0, 0, 100})}),
              ElementsAre(21, 32, 143));
  EXPECT_THAT(onMatrix(R"(
    %e = tensor.empty() : tensor<3x2xf32>
    %s = tensor.cast %x : tensor<?x?xf32> to tensor<2x3xf32>
    %r = linalg.transpose ins(%s : tensor<2x3xf32>) outs(%e : tensor<3x2xf32>) permutation = [1, 0])",
                       "tensor<3x2xf32>"),
              ElementsAre(1, 4, 2, 5, 3, 6));
}

TEST(ProgramTest, MapsThatAreNotLinear) {
  EXPECT_THAT(onMatrix(R"(
    %e = tensor.empty() : tensor<4xf32>
    %t = tensor.extract_slice %x[0, 0] [1, 2] [1, 1] : tensor<?x?xf32> to tensor<2xf32>
    %r = linalg.generic {indexing_maps = [affine_map<(i) -> (i floordiv 2)>, affine_map<(i) -> (i)>], iterator_types = ["parallel"]}
      ins(%t : tensor<2xf32>) outs(%e : tensor<4xf32>) {
    ^bb0(%a: f32, %o: f32):
      linalg.yield %a : f32
    } -> tensor<4xf32>)",
                       "tensor<4xf32>"),
              ElementsAre(1, 1, 2, 2));
}

TEST(ProgramTest, SizesThatDisagree) {
  EXPECT_THAT(errorOf(elementwise("f32", "%r = arith.addf %a, %b : f32"),
                      {array(DType::F32, {2}, {1, 2}),
                       array(DType::F32, {3}, {1, 2, 3})}),
              HasSubstr("operand 1 has size 3 at dimension 0; expected 2"));
  std::string named = R"mlir(
func.func @f(%x: tensor<?xf32> {refold.name = "x", refold.dims = ["n"]}, %y: tensor<?xf32> {refold.name = "y", refold.dims = ["n"]}) -> tensor<?xf32> {
  return %x : tensor<?xf32>
})mlir";
  EXPECT_EQ(errorOf(named, {array(DType::F32, {2}, {1, 2}),
                            array(DType::F32, {1}, {1})}),
            "input 1 'y' has n = 1; expected 2");
  EXPECT_EQ(errorOf(named, {array(DType::F32, {2}, {1, 2})}),
            "found 1 inputs; expected 2");
}

TEST(ProgramTest, LimitsAreErrors) {
  std::string huge = R"mlir(
func.func @f(%x: tensor<?xf32>) -> tensor<?x?xf32> {
  %n = arith.constant 1000000000000 : index
  %zero = arith.constant 0.0 : f32
  %e = tensor.empty(%n, %n) : tensor<?x?xf32>
  %r = linalg.generic {indexing_maps = [affine_map<(i, j) -> (i, j)>], iterator_types = ["parallel", "parallel"]}
    outs(%e : tensor<?x?xf32>) {
  ^bb0(%o: f32):
    linalg.yield %zero : f32
  } -> tensor<?x?xf32>
  return %r : tensor<?x?xf32>
})mlir";
  EXPECT_THAT(errorOf(huge, {array(DType::F32, {1}, {1})}),
              HasSubstr("exceeds the reference's memory limit"));
  EvaluationOptions few;
  few.limits.steps = 10;
  EXPECT_THAT(errorOf(kRowSum,
                      {array(DType::F32, {2, 10}, std::vector<double>(20, 1))},
                      few),
              HasSubstr("limit of 10 scalar operations"));
}

TEST(ProgramTest, OpsOutsideTheFormAreNamed) {
  EXPECT_THAT(errorOf(R"mlir(
func.func private @g(tensor<?xf32>) -> tensor<?xf32>
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %r = func.call @g(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
})mlir",
                      {array(DType::F32, {1}, {1})}),
              HasSubstr("no body"));
  EXPECT_THAT(
      errorOf(R"mlir(
func.func @f(%x: tensor<?xf32>) -> tensor<?xf32> {
  %r = func.call @f(%x) : (tensor<?xf32>) -> tensor<?xf32>
  return %r : tensor<?xf32>
})mlir",
              {array(DType::F32, {1}, {1})}),
      HasSubstr("found 'func.call'; expected an op of the program form"));
}

} // namespace
