// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "gtest/gtest.h"

using namespace refold;

/// Certificates are made while code is generated: what they say of the program
/// in the end is what stands in the report, and what runs.
namespace {
class CompileTest : public testing::Test {
protected:
  FuseReport reportOf(llvm::StringRef text) {
    auto loaded = loadFoldText(*context, text, "test.fold");
    if (!loaded) {
      ADD_FAILURE() << llvm::toString(loaded.takeError());
      return {};
    }
    CompileOptions options;
    options.target = "baseline";
    auto compiled = compile(std::move(*loaded), options);
    if (!compiled) {
      ADD_FAILURE() << llvm::toString(compiled.takeError());
      return {};
    }
    return compiled->fusion;
  }

  std::unique_ptr<mlir::MLIRContext> context = makeContext();
};
} // namespace

TEST_F(CompileTest, ACertificateThatHoldsIsInTheReport) {
  FuseReport report = reportOf("f(x[m,n]) -> y\n  p = exp(x - max(n: x))\n"
                               "  y = p / sum(n: p)\n");
  ASSERT_EQ(report.cascades.size(), 1u);
  EXPECT_TRUE(report.cascades[0].isFused);
  EXPECT_NE(report.cascades[0].certificate, "");
  EXPECT_GT(report.cascades[0].certifyMs, 0.0);
}

TEST_F(CompileTest, AProgramThatNeedsPassesForIrregularRowsGetsThem) {
  FuseReport report =
      reportOf("best_of_columns(x[row,n], w[n,col]) -> best, at: i32, total\n"
               "  m = max(n: x)\n"
               "  s = sum(n: exp(x - m))\n"
               "  best[row,col,r], at[row,col,r] = topk(n: 2.0*w - m, 3)\n"
               "  total[row,col] = sum(n: exp(x - m) / s * w)\n");
  ASSERT_EQ(report.cascades.size(), 1u);
  EXPECT_TRUE(report.cascades[0].isFused);
  EXPECT_GT(report.cascades[0].repairPasses, 0);
  EXPECT_NE(report.cascades[0].certificate, "");
}

TEST_F(CompileTest, AProgramWhoseCertificateFailsIsNotUsed) {
  FuseReport report =
      reportOf("f(o[b,i,j]) -> s\n  row[b,i] = sum(j: o)\n"
               "  column[b,j] = sum(i: o)\n  total[b] = sum(i, j: o)\n"
               "  e = row * column / total\n  s = sum(i, j: (o - e)^2 / e)\n");
  bool isSaid = false;
  for (const CascadeReport &cascade : report.cascades) {
    EXPECT_FALSE(cascade.isFused);
    for (const ReasonReport &reason : cascade.reasons)
      isSaid |= reason.key == "certified-fallback";
  }
  EXPECT_TRUE(isSaid);
}
