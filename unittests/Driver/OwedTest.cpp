// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Owed.h"
#include "refold/Driver/Driver.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {
constexpr double kInf = HUGE_VAL;

Tensor row(llvm::ArrayRef<double> values) {
  Tensor tensor =
      llvm::cantFail(Tensor::create(DType::F32, {1, int64_t(values.size())}));
  for (auto [i, value] : llvm::enumerate(values))
    tensor.set(i, value);
  return tensor;
}

Tensor one(double value) {
  Tensor tensor = llvm::cantFail(Tensor::create(DType::F32, {1}));
  tensor.set(0, value);
  return tensor;
}

/// A program of one row x, and one number that comes of it.
class OwedTest : public testing::Test {
protected:
  /// Losses of `fused` where unfused gives `unfused`, and the error that is
  /// left to be measured.
  std::pair<int64_t, double> judge(llvm::StringRef lines,
                                   llvm::ArrayRef<double> x, double fused,
                                   double unfused,
                                   NanPolicy policy = NanPolicy::Kept) {
    auto loaded = llvm::cantFail(loadFoldText(
        *context, ("f(x[m,n]) -> y\n" + lines).str(), "test.fold"));
    auto function = *loaded.module->getOps<mlir::func::FuncOp>().begin();
    std::vector<Tensor> inputs{row(x)};
    EvaluationOptions exactly;
    exactly.keepOutputsExact = true;
    auto exact = llvm::cantFail(evaluateProgram(function, inputs, exactly));
    Owed owed(function, inputs, /*seed=*/0);
    Tensor written[] = {one(unfused)}, found[] = {one(fused)};
    llvm::cantFail(owed.findLost(written, llvm::ArrayRef(found), exact));
    int64_t losses = llvm::cantFail(
        owed.countLosses(0, found[0], written[0], exact[0], policy));
    Deviation deviation = compare(found[0], exact[0], /*isRunning=*/false,
                                  /*leastOfRow=*/1, owed.apartOf(0));
    return {losses, std::max(deviation.error, deviation.touchedError)};
  }

  std::unique_ptr<mlir::MLIRContext> context = makeContext();
};
} // namespace

/// x / sqrt(inf) is 0 as written: neither 0 nor NaN is asked for.
TEST_F(OwedTest, AnOverflowAsWrittenThatIsANumber) {
  llvm::StringRef norm = "  y = sum(n: x)*rsqrt(sum(n: x^2))\n";
  EXPECT_EQ(judge(norm, {1e30, 1e30}, NAN, 0).first, 0);
  EXPECT_EQ(judge(norm, {1e30, 1e30}, 7, 0).second, 0);
  // Within the range both are.
  EXPECT_EQ(judge(norm, {1e10, 1e10}, NAN, 0).first, 1);
  EXPECT_GT(judge(norm, {1e10, 1e10}, 7, 0).second, 1);
}

/// inf - inf as written, where an FMA does not round the second product.
TEST_F(OwedTest, AnOverflowAsWrittenThatIsLuck) {
  llvm::StringRef sum = "  y = tanh(sum(n: x*abs(x)))\n";
  EXPECT_EQ(judge(sum, {1e30, -1e25}, NAN, 1).first, 0);
  EXPECT_EQ(judge(sum, {1e10, -1e5}, NAN, 1).first, 1);
}

/// e^-inf is right, whatever has overflown on the way.
TEST_F(OwedTest, AnOverflowAsWrittenThatDoesNoHarm) {
  llvm::StringRef decay = "  y = exp(-sum(n: x^2)) + 1\n";
  EXPECT_EQ(judge(decay, {1e30, 1e30}, NAN, 1).first, 1);
  EXPECT_GT(judge(decay, {1e30, 1e30}, 2, 1).second, 0.5);
}

/// 0 / 0 where a mean has no rounding error, and ±1 where it has one.
TEST_F(OwedTest, AClassThatTheLastBitsDecide) {
  llvm::StringRef ratio =
      "  d = x - mean(n: x)\n  y = sum(n: d*x)/sqrt(sum(n: d^2))\n";
  EXPECT_EQ(judge(ratio, {0.1, 0.1, 0.1}, 1, NAN).first, 0);
  EXPECT_EQ(judge(ratio, {0.1, 0.1, 0.1}, kInf, NAN).first, 1);
  // A pole of the formula, which no last bit moves.
  EXPECT_EQ(judge("  y = sum(n: x*0)/sum(n: x*0)\n", {1, 2}, 1, NAN).first, 1);
}

/// e^1000 is infinite in double as well, but no infinity of the formula.
TEST_F(OwedTest, AClassThatTheRangeOfDoubleDecides) {
  llvm::StringRef share = "  y = max(n: exp(x)/sum(n: exp(x)))\n";
  EXPECT_EQ(judge(share, {1000, 1}, 1, NAN).first, 0);
  EXPECT_EQ(judge(share, {kInf, 1}, 1, NAN).first, 1);
  llvm::StringRef entropy = "  p = exp(x - max(n: x))\n"
                            "  y = sum(n: p*log(p))\n";
  EXPECT_EQ(judge(entropy, {0, -1e20}, 0, NAN).first, 0);
  EXPECT_EQ(judge(entropy, {0, -kInf}, 0, NAN).first, 1);
}

/// Cancellation is no loss to the range, whatever has left it beside.
TEST_F(OwedTest, WhatHasLeftTheRangeAndDoesNoHarm) {
  llvm::StringRef shares = "  y = sum(n: exp(x - max(n: x))) - 1\n";
  EXPECT_GT(judge(shares, {0, -200, -7}, 0.5, 1e-3).second, 0.1);
  EXPECT_EQ(judge(shares, {0, -200, -7}, NAN, 1e-3).first, 1);
}

/// log(1 + e^-50) is 0 in double, too.
TEST_F(OwedTest, DigitsThatDoubleDoesNotHave) {
  llvm::StringRef logs = "  y = log(sum(n: exp(x - max(n: x))))\n";
  EXPECT_EQ(judge(logs, {0, -34}, 1.71391e-15, 1.77636e-15).second, 0);
  EXPECT_EQ(judge(logs, {0, -30}, 9.35762e-14, 9.34808e-14).second, 0);
  EXPECT_GT(judge(logs, {0, -10}, 9e-5, 4.5e-5).second, 0.5);
  EXPECT_GT(judge(logs, {0, 0}, 0.6, 0.6931472).second, 0.1);
}

/// x² is 2^-148 and something: how near to a multiple of 2^-149 is luck.
TEST_F(OwedTest, DigitsBelowTheRangeAreLuck) {
  llvm::StringRef norm = "  y = sum(n: x)*rsqrt(sum(n: x^2))\n";
  double x = std::ldexp(1.7, -74);
  EXPECT_EQ(judge(norm, {x, x}, 1.3, std::sqrt(2)).second, 0);
  EXPECT_EQ(judge(norm, {x, x}, NAN, std::sqrt(2)).first, 0);
  double normal = std::ldexp(1.7, -60);
  EXPECT_GT(judge(norm, {normal, normal}, 1.3, std::sqrt(2)).second, 0.05);
}

/// What unfused errs without a loss to the range is its own fault.
TEST_F(OwedTest, AFaultOfUnfusedIsNoLoss) {
  llvm::StringRef norm = "  y = sum(n: x)*rsqrt(sum(n: x^2))\n";
  double x = std::ldexp(1.7, -71); // loses 2^-9
  EXPECT_GT(judge(norm, {x, x}, 1, 1).second, 0.2);
}

TEST_F(OwedTest, ANanThatMayBeMissed) {
  llvm::StringRef first = "  y = sum(n: where(n < 2, x, 0*x))\n";
  auto missed = NanPolicy::MayBeMissed;
  EXPECT_EQ(judge(first, {1, 2, NAN}, 3, NAN, missed).first, 0);
  EXPECT_EQ(judge(first, {1, 2, NAN}, 3, NAN).first, 1);
  EXPECT_EQ(judge(first, {1, NAN, 2}, 1, NAN, missed).first, 1);
  EXPECT_EQ(judge(first, {1, 2, -INFINITY}, 3, NAN, missed).first, 0);
  EXPECT_EQ(judge(first, {1, 2, -INFINITY}, 3, NAN).first, 1);
  EXPECT_EQ(judge(first, {INFINITY, -INFINITY, 2}, 1, NAN, missed).first, 1);
}

/// inf - inf of terms with one factor: taken out of the sum it gives one of the
/// two. An infinity that is given makes a NaN.
TEST_F(OwedTest, AFactorThatOverflows) {
  llvm::StringRef sum = "  y = sum(n: x*exp(sum(n: abs(x))))\n";
  EXPECT_EQ(judge(sum, {800, -100}, kInf, NAN).first, 0);
  EXPECT_EQ(judge(sum, {800, -100}, NAN, NAN).first, 0);
  EXPECT_EQ(judge(sum, {kInf, -100}, kInf, NAN).first, 1);
  llvm::StringRef masked = "  s = where(x > 900, x, -inf)\n  t = max(n: s)\n"
                           "  y = t + log(sum(n: exp(s - t)))\n";
  EXPECT_EQ(judge(masked, {800, -100}, kInf, NAN).first, 1);
}
