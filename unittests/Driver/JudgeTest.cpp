// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The judge itself: planted wrong results have to be told.
#include "../Support/Outcome.h"
#include "refold/Driver/Verify.h"
#include "llvm/Support/raw_ostream.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace refold;

namespace {
using Fault = llvm::function_ref<void(Tensor &)>;

void scale(Tensor &y, double by) {
  for (int64_t i = 0, e = y.numElements(); i < e; ++i)
    y.set(i, y.get(i) * by);
}

class JudgeTest : public testing::Test {
protected:
  /// Is every output good where this fault is planted in what the fused program
  /// gives, or (`isShared`) in what both give?
  bool holds(llvm::StringRef lines, llvm::StringRef family, Fault fault,
             bool isShared = false) {
    std::string path = folder.path("judged.fold");
    std::error_code error;
    llvm::raw_fd_ostream(path, error) << "judged(x[m,n]) -> y\n" << lines;
    EXPECT_FALSE(error);
    VerifyOptions options;
    options.shape = {{"m", 13}};
    options.streamExtents = {17};
    options.broadLength = 0;
    options.threads = {1};
    options.splits = 0;
    options.firstSeeds = options.seeds = 4;
    options.families = {llvm::cantFail(parseInputRecipe(family))};
    options.disturb = [&](llvm::MutableArrayRef<Tensor> results, bool isFused) {
      if (isFused || isShared)
        fault(results.front());
    };
    auto verified = llvm::cantFail(verify(*context, path, {}, options));
    return verified.outputs.front().worst().isGood();
  }

  /// A program under a family of inputs and the shapes that nobody chose, with
  /// this fault in what the fused program gives.
  Verification verifyShapes(llvm::StringRef text, Fault fault,
                            InputFamily family = InputFamily::Normal,
                            std::map<std::string, InputRecipe> inputs = {}) {
    std::string path = folder.path("shapes.fold");
    std::error_code error;
    llvm::raw_fd_ostream(path, error) << text;
    EXPECT_FALSE(error);
    VerifyOptions options;
    options.threads = {1};
    options.splits = 0;
    options.firstSeeds = options.seeds = 1;
    options.families = {{family}};
    options.inputs = std::move(inputs);
    options.disturb = [&](llvm::MutableArrayRef<Tensor> results, bool isFused) {
      if (isFused)
        fault(results.front());
    };
    return llvm::cantFail(verify(*context, path, {}, options));
  }

  TempDir folder;
  std::unique_ptr<mlir::MLIRContext> context = makeContext();
};

constexpr llvm::StringLiteral kSoftmax =
    "  p = exp(x - max(n: x))\n  y = p / sum(n: p)\n";
/// Most of the exponentials are 0 in f32, which does no harm.
constexpr llvm::StringLiteral kSteep =
    "  p = exp(50*x - max(n: 50*x))\n  y = p / sum(n: p)\n";
/// Lost where squares leave the range.
constexpr llvm::StringLiteral kNorm = "  y = x / sqrt(sum(n: x^2))\n";

void nothing(Tensor &) {}
} // namespace

TEST_F(JudgeTest, RightResultsHold) {
  for (llvm::StringRef family :
       {"normal", "ninf", "nan", "offset", "growing", "tiny", "huge", "mixed"})
    for (llvm::StringRef lines : {kSoftmax, kSteep, kNorm})
      EXPECT_TRUE(holds(lines, family, nothing)) << lines.str() << family.str();
}

TEST_F(JudgeTest, FourUnitsInTheLastPlace) {
  auto step = [](Tensor &y) { scale(y, 1 + 0x1p-21); };
  for (llvm::StringRef family : {"normal", "offset", "tiny", "huge", "mixed"})
    EXPECT_FALSE(holds("  y = max(n: x)\n", family, step)) << family.str();
}

TEST_F(JudgeTest, PlacesAreMixedUp) {
  auto swap = [](Tensor &y) {
    double first = y.get(0);
    y.set(0, y.get(1));
    y.set(1, first);
  };
  auto dropLast = [](Tensor &y) { y.set(y.numElements() - 1, 0); };
  for (llvm::StringRef lines : {kSoftmax, kNorm}) {
    EXPECT_FALSE(holds(lines, "normal", swap));
    EXPECT_FALSE(holds(lines, "normal", dropLast));
  }
}

/// In rows beside others that are lost as written.
TEST_F(JudgeTest, AThousandthBesideWhatIsLost) {
  for (double by : {1.001, 0.999, 1.00001})
    EXPECT_FALSE(holds(kNorm, "mixed", [&](Tensor &y) { return scale(y, by); }))
        << by;
}

/// What has underflown and did no harm excuses nothing.
TEST_F(JudgeTest, BothAreWrong) {
  for (bool isShared : {false, true}) {
    EXPECT_FALSE(
        holds(kSteep, "normal", [](Tensor &y) { scale(y, 1.01); }, isShared));
    EXPECT_FALSE(
        holds(kSteep, "normal", [](Tensor &y) { y.set(0, NAN); }, isShared));
    EXPECT_FALSE(
        holds(kNorm, "mixed", [](Tensor &y) { scale(y, 1.01); }, isShared));
  }
}

/// Terms that overflow to both sides are NaN as written. An FMA has the first
/// of them, and behind a sigmoid 0 or 1: nothing is owed. Of the same sums
/// within the range everything is.
TEST_F(JudgeTest, SumsOfBothInfinities) {
  constexpr llvm::StringLiteral kMeans = R"(
means(q[m,d], k[n,d]) -> r
  s = sum(d: q * k * 3)
  r = mean(n: sigmoid(s))
)";
  auto spoil = [](Tensor &y) { scale(y, 1.01); };
  EXPECT_TRUE(verifyShapes(kMeans, nothing, InputFamily::Huge).isGood());
  EXPECT_TRUE(verifyShapes(kMeans, nothing).isGood());
  EXPECT_FALSE(verifyShapes(kMeans, spoil).isGood());
}

/// Beside a masked -inf, which makes NaN as written, stands one that is read:
/// -inf is right, and nothing else.
TEST_F(JudgeTest, InfinitiesBesideMaskedOnes) {
  constexpr llvm::StringLiteral kMasked = R"(
masked(s[b,m,n], v[b,n,e], length[b]: i32) -> o
  x = where(n < length, s, -inf)
  p = exp(x - max(n: x))
  o[b,m,e] = sum(n: p * v) / sum(n: p)
)";
  auto turn = [](Tensor &y) {
    for (int64_t i = 0, e = y.numElements(); i < e; ++i)
      if (std::isinf(y.get(i)))
        y.set(i, -y.get(i));
  };
  std::map<std::string, InputRecipe> inputs = {
      {"v", {InputFamily::NegInf}},
      {"length", llvm::cantFail(parseInputRecipe("uniform(0,4)"))}};
  EXPECT_TRUE(
      verifyShapes(kMasked, nothing, InputFamily::Normal, inputs).isGood());
  EXPECT_FALSE(
      verifyShapes(kMasked, turn, InputFamily::Normal, inputs).isGood());
}

/// Of rows of one number a small one is held to its own digits: these are e^-9
/// and e^9.
TEST_F(JudgeTest, SmallRowsOfOneNumber) {
  constexpr llvm::StringLiteral kRows = "  y = exp(sum(n: x))\n";
  auto spoil = [](Tensor &y) {
    int64_t least = 0;
    for (int64_t i = 0, e = y.numElements(); i < e; ++i)
      if (std::abs(y.get(i)) < std::abs(y.get(least)))
        least = i;
    y.set(least, 1.1 * y.get(least));
  };
  EXPECT_TRUE(holds(kRows, "normal", nothing));
  for (bool isShared : {false, true})
    EXPECT_FALSE(holds(kRows, "normal", spoil, isShared)) << isShared;
  // What cancels has no digits of its own.
  EXPECT_TRUE(holds("  y = sum(n: x - 1000)\n", "offset", nothing));
}

/// Of a causal program the last tiles are read by queries that are as many as
/// the keys.
TEST_F(JudgeTest, LateRowsOfACausalProgram) {
  constexpr llvm::StringLiteral kCausal = R"(
causal(q[m,d], k[n,d], v[n,e]) -> o
  s = sum(d: q*k)
  s = where(n <= m, s, -inf)
  p = exp(s - max(n: s))
  o[m,e] = sum(n: p*v) / sum(n: p)
)";
  auto late = [](Tensor &y) {
    for (int64_t i = 520 * y.shape()[1], e = y.numElements(); i < e; ++i)
      y.set(i, 1.01 * y.get(i));
  };
  Verification verified = verifyShapes(kCausal, nothing);
  EXPECT_TRUE(verified.isGood());
  EXPECT_EQ(verified.coverage.followingAxes, std::vector<std::string>{"m"});
  EXPECT_FALSE(verifyShapes(kCausal, late).isGood());
  std::string all = kCausal.str();
  all.replace(all.find("n <= m"), 6, "n <= n");
  EXPECT_TRUE(verifyShapes(all, late).coverage.followingAxes.empty());
}
