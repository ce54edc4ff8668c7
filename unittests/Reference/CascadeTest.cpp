// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Both readings of a cascade: by definition, and through absorb, transport and
// merge on random splits with random pivots.
#include "../Dialect/CascadeText.h"
#include "TestSupport.h"

using namespace refold;
using testing::DoubleNear;
using testing::ElementsAre;

namespace {

/// Text with a part replaced: a mutant.
std::string mutate(std::string text, llvm::StringRef from, llvm::StringRef to) {
  size_t at = text.find(from.str());
  EXPECT_NE(at, std::string::npos);
  return at == std::string::npos ? text
                                 : text.replace(at, from.size(), to.str());
}

struct Inputs {
  std::vector<RefTensor> operands;
};

RefTensor refArray(std::vector<int64_t> shape, std::vector<double> values) {
  return RefTensor::fromTensor(array(DType::F64, shape, values));
}

std::vector<double> random(std::mt19937_64 &engine, size_t n, double offset = 0,
                           double scale = 1) {
  std::normal_distribution<double> normal;
  std::vector<double> values(n);
  for (double &value : values)
    value = offset + scale * normal(engine);
  return values;
}

std::vector<double> define(CascadeOp op, std::vector<RefTensor> operands) {
  auto results = evaluateCascade(op, operands);
  if (!results) {
    ADD_FAILURE() << toString(results.takeError());
    return {};
  }
  std::vector<double> values;
  for (const RefTensor &result : *results)
    for (double value : valuesOf(result))
      values.push_back(value);
  return values;
}

bool isClose(double a, double b, double scale) {
  if (std::isnan(a) || std::isnan(b))
    return std::isnan(a) && std::isnan(b);
  if (std::isinf(a) || std::isinf(b))
    return a == b;
  return std::abs(a - b) <= 1e-9 * (scale + 1e-12);
}

/// Does every split give what the definition gives?
bool agreesOnSplits(llvm::StringRef text, std::vector<RefTensor> operands,
                    bool randomPivots = true, int trials = 20) {
  Program program(text);
  EXPECT_TRUE(bool(program));
  if (!program)
    return false;
  CascadeOp op = program.cascade();
  std::vector<double> want = define(op, operands);
  double scale = 0;
  for (double value : want)
    if (std::isfinite(value))
      scale = std::max(scale, std::abs(value));
  std::mt19937_64 engine(7);
  for (int trial = 0; trial < trials; ++trial) {
    Splits splits{unsigned(1 + trial % 6), randomPivots};
    auto results = evaluateCascadeStreaming(op, operands, splits, engine);
    if (!results) {
      ADD_FAILURE() << toString(results.takeError());
      return false;
    }
    size_t p = 0;
    for (const RefTensor &result : *results)
      for (double value : valuesOf(result))
        if (!isClose(value, want[p++], scale))
          return false;
  }
  return true;
}

const std::string kLogSumExp = R"mlir(
func.func @f(%X: tensor<?x?xf32>, %L: tensor<?xf32>) -> tensor<?xf32> {
  %r = refold.cascade rows(%i = ?) stream(%j = ?)
      ins(%x = %X : tensor<?x?xf32>) outs(%l = %L : tensor<?xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %xv = refold.read %x[%i, %j] : f32
)mlir" + test::softmaxOf("xv") +
                               R"mlir(
    %lz = math.log %z : f32
    %y = arith.addf %lz, %g : f32
    refold.write %y, %l[%i] : f32
  }
  return %r : tensor<?xf32>
})mlir";

TEST(CascadeTest, LogSumExpByDefinition) {
  Program program(kLogSumExp);
  ASSERT_TRUE(bool(program));
  auto x = refArray({3, 3}, {0, 0, 0, 1, -kInf, 1000, -kInf, -kInf, -kInf});
  auto y = define(program.cascade(), {x, RefTensor::create(true, {3})});
  EXPECT_THAT(y, ElementsAre(DoubleNear(std::log(3), 1e-15), 1000, -kInf));
}

TEST(CascadeTest, LogSumExpAgreesOnEverySplit) {
  std::mt19937_64 engine(1);
  for (int64_t n : {0, 1, 2, 7, 40})
    EXPECT_TRUE(agreesOnSplits(kLogSumExp,
                               {refArray({3, n}, random(engine, 3 * n, 5, 10)),
                                RefTensor::create(true, {3})}))
        << n;
}

TEST(CascadeTest, EdgeRowsAgree) {
  for (double edge : {-kInf, kInf, kNaN}) {
    EXPECT_TRUE(agreesOnSplits(
        kLogSumExp,
        {refArray({2, 5}, {1, edge, 2, 3, 4, edge, edge, edge, edge, edge}),
         RefTensor::create(true, {2})}))
        << edge;
  }
}

TEST(CascadeTest, TurnedRoundSubtractionIsCaught) {
  std::mt19937_64 engine(2);
  std::vector<RefTensor> operands = {refArray({2, 9}, random(engine, 18)),
                                     RefTensor::create(true, {2})};
  std::string wrong =
      mutate(kLogSumExp, "arith.subf %old, %new", "arith.subf %new, %old");
  EXPECT_FALSE(agreesOnSplits(wrong, operands));
}

const std::string kVariance = R"mlir(
func.func @f(%X: tensor<?x?xf32>, %Y: tensor<?xf32>) -> tensor<?xf32> {
  %r = refold.cascade rows(%i = ?) stream(%k = ?)
      ins(%x = %X : tensor<?x?xf32>) outs(%y = %Y : tensor<?xf32>) {
    %one = arith.constant 1.0 : f32
    %two = arith.constant 2.0 : f32
    %eps = arith.constant 0.0 : f32
    %v = refold.read %x[%i, %k] : f32
)mlir" + std::string(test::kMoments) +
                              R"mlir(
    refold.write %m2, %y[%i] : f32
  }
  return %r : tensor<?xf32>
})mlir";

std::vector<RefTensor> varianceInputs(double offset) {
  std::mt19937_64 engine(3);
  return {refArray({2, 23}, random(engine, 46, offset, 3)),
          RefTensor::create(true, {2})};
}

TEST(CascadeTest, VarianceAgreesOnEverySplit) {
  EXPECT_TRUE(agreesOnSplits(kVariance, varianceInputs(0)));
  EXPECT_TRUE(agreesOnSplits(kVariance, varianceInputs(1000)));
}

/// A factor that multiplies what is about 0 at the true pivot: only pivots
/// moved at random show that it is wrong.
TEST(CascadeTest, ChangedTaylorFactorIsCaughtByRandomPivots) {
  std::string wrong = mutate(kVariance, "%two = arith.constant 2.0",
                             "%two = arith.constant 1.0");
  EXPECT_FALSE(agreesOnSplits(wrong, varianceInputs(0)));
  EXPECT_TRUE(agreesOnSplits(wrong, varianceInputs(0), /*randomPivots=*/false));
}

const std::string kRoute = R"mlir(
func.func @route(%X: tensor<?x5xf32>, %W: tensor<5x?xf32>, %P: tensor<?x3xf32>, %I: tensor<?x3xi32>) -> (tensor<?x3xf32>, tensor<?x3xi32>) {
  %r:2 = refold.cascade rows(%t = ?) stream(%e = ?) inner(%c = 5) carried(%r = 3)
      ins(%x = %X : tensor<?x5xf32>, %w = %W : tensor<5x?xf32>) outs(%prob = %P : tensor<?x3xf32>, %expert = %I : tensor<?x3xi32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %xv = refold.read %x[%t, %c] : f32
    %wv = refold.read %w[%c, %e] : f32
    %xw = arith.mulf %xv, %wv : f32
    %s = refold.contract %xw over(%c) : f32
    %id = arith.index_cast %e : index to i32
    %top:2 = refold.state topk(%s : f32, %id : i32) rank(%r)
)mlir" + test::softmaxOf("s") +
                           R"mlir(
    %uk = arith.subf %top#0, %g : f32
    %pk = math.exp %uk : f32
    %w8 = arith.divf %pk, %z : f32
    refold.write %w8, %prob[%t, %r] : f32
    refold.write %top#1, %expert[%t, %r] : i32
  }
  return %r#0, %r#1 : tensor<?x3xf32>, tensor<?x3xi32>
})mlir";

TEST(CascadeTest, RoutingWithTiesAndShortStreams) {
  for (int64_t n : {0, 1, 2, 11}) {
    std::mt19937_64 engine(n);
    std::vector<double> w = random(engine, 5 * n);
    for (double &value : w)
      value = std::round(value); // ties
    std::vector<RefTensor> operands = {
        refArray({2, 5}, {1, 2, -1, 0, 1, 0, 0, 0, 0, 0}), refArray({5, n}, w),
        RefTensor::create(true, {2, 3}), RefTensor::create(false, {2, 3})};
    EXPECT_TRUE(agreesOnSplits(kRoute, operands)) << n;
  }
  Program program(kRoute);
  auto values = define(program.cascade(),
                       {refArray({1, 5}, {1, 0, 0, 0, 0}),
                        refArray({5, 2}, {3, 3, 0, 0, 0, 0, 0, 0, 0, 0}),
                        RefTensor::create(true, {1, 3}),
                        RefTensor::create(false, {1, 3})});
  EXPECT_THAT(values, ElementsAre(0.5, 0.5, 0, 0, 1, -1));
}

// Softmax of softmax: two passes, and a sweep that writes.
const std::string kTwoPasses = R"mlir(
func.func @f(%X: tensor<?x?xf32>, %Y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = refold.cascade rows(%i = ?) stream(%j = ?)
      ins(%x = %X : tensor<?x?xf32>) outs(%y = %Y : tensor<?x?xf32>) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %v = refold.read %x[%i, %j] : f32
)mlir" + test::softmaxOf("v") + R"mlir(
    %q = arith.divf %p, %z : f32
)mlir" + test::softmaxOf("q", "", "2") +
                               R"mlir(
    %o = arith.divf %p2, %z2 : f32
    refold.write %o, %y[%i, %j] : f32
  }
  return %r : tensor<?x?xf32>
})mlir";

TEST(CascadeTest, TwoPassesAndASweep) {
  std::mt19937_64 engine(5);
  EXPECT_TRUE(
      agreesOnSplits(kTwoPasses, {refArray({2, 13}, random(engine, 26, 0, 4)),
                                  RefTensor::create(true, {2, 13})}));
}

// Two stream indices, one value that has only one of them, and a gather.
constexpr char kTwoStreams[] = R"mlir(
func.func @f(%X: tensor<?x?x?xf32>, %T: tensor<?xf32>, %I: tensor<?xi32>, %Y: tensor<?xf32>) -> tensor<?xf32> {
  %r = refold.cascade rows(%b = ?) stream(%h = ?, %w = ?)
      ins(%x = %X : tensor<?x?x?xf32>, %t = %T : tensor<?xf32>, %i = %I : tensor<?xi32>) outs(%y = %Y : tensor<?xf32>) {
    %v = refold.read %x[%b, %h, %w] : f32
    %at = refold.read %i[%h] : i32
    %at1 = arith.index_cast %at : i32 to index
    %g = refold.read %t[%at1] : f32
    %p = arith.mulf %v, %g : f32
    %s = refold.state add(%p : f32)
    %c = refold.state add(%g : f32)
    %n = refold.extent %w
    %ni = arith.index_cast %n : index to i32
    %nf = arith.sitofp %ni : i32 to f32
    %cn = arith.divf %c, %nf : f32
    %o = arith.addf %s, %cn : f32
    refold.write %o, %y[%b] : f32
  }
  return %r : tensor<?xf32>
})mlir";

TEST(CascadeTest, SeveralStreamsAndAGather) {
  std::vector<RefTensor> operands = {
      refArray({1, 2, 3}, {1, 2, 3, 4, 5, 6}), refArray({2}, {10, 100}),
      RefTensor::fromTensor(array(DType::I32, {2}, {1, 0})),
      RefTensor::create(true, {1})};
  Program program(kTwoStreams);
  ASSERT_TRUE(bool(program));
  EXPECT_THAT(define(program.cascade(), operands),
              ElementsAre(100 * 6 + 10 * 15 + 110));
  EXPECT_TRUE(agreesOnSplits(kTwoStreams, operands));
  operands[2] = RefTensor::fromTensor(array(DType::I32, {2}, {1, 2}));
  auto result = evaluateCascade(program.cascade(), operands);
  ASSERT_FALSE(bool(result));
  EXPECT_THAT(toString(result.takeError()),
              testing::HasSubstr("subscript 0 is 2; expected 0 to 1"));
}

// No stream: an elementwise kernel.
constexpr char kElementwise[] = R"mlir(
func.func @f(%X: tensor<?x?xf32>, %s: f32, %Y: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %r = refold.cascade rows(%i = ?, %j = ?)
      ins(%x = %X : tensor<?x?xf32>, %k = %s : f32) outs(%y = %Y : tensor<?x?xf32>) {
    %v = refold.read %x[%j, %i] : f32
    %p = arith.mulf %v, %k : f32
    refold.write %p, %y[%i, %j] : f32
  }
  return %r : tensor<?x?xf32>
})mlir";

TEST(CascadeTest, Elementwise) {
  Program program(kElementwise);
  ASSERT_TRUE(bool(program));
  EXPECT_THAT(define(program.cascade(),
                     {refArray({2, 2}, {1, 2, 3, 4}), RefTensor::scalar(2.0),
                      RefTensor::create(true, {2, 2})}),
              ElementsAre(2, 6, 4, 8));
}

} // namespace
