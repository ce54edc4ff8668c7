// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Driver.h"
#include "refold/Support/DiskCache.h"
#include "refold/Support/Error.h"
#include "llvm/Support/FileSystem.h"
#include "gtest/gtest.h"

using namespace refold;

/// Certificates are made while code is generated: what they say of the program
/// in the end is what stands in the report, and what runs.
namespace {
/// Needs passes for irregular rows.
constexpr llvm::StringLiteral kBestOfColumns =
    "best_of_columns(x[row,n], w[n,col]) -> best, at: i32, total\n"
    "  m = max(n: x)\n"
    "  s = sum(n: exp(x - m))\n"
    "  best[row,col,r], at[row,col,r] = topk(n: 2.0*w - m, 3)\n"
    "  total[row,col] = sum(n: exp(x - m) / s * w)\n";
/// Its certificate fails.
constexpr llvm::StringLiteral kChiSquared =
    "f(o[b,i,j]) -> s\n  row[b,i] = sum(j: o)\n"
    "  column[b,j] = sum(i: o)\n  total[b] = sum(i, j: o)\n"
    "  e = row * column / total\n  s = sum(i, j: (o - e)^2 / e)\n";

class CompileTest : public testing::Test {
protected:
  /// Compiles with an empty cache, then from what it kept; the objects are
  /// those of the kernels that run.
  void expectObjectsOfKernels(llvm::StringRef text) {
    llvm::SmallString<128> folder;
    ASSERT_FALSE(llvm::sys::fs::createUniqueDirectory("compile", folder));
    auto cache = llvm::cantFail(DiskCache::open((folder + "/cache").str()));
    for (bool isWarm : {false, true, true}) {
      auto loaded = llvm::cantFail(loadFoldText(*context, text, "test.fold"));
      CompileOptions options;
      options.target = "baseline";
      options.cache = cache.get();
      std::vector<std::string> objects, kernels;
      options.onObject = [&](package::HostKernel kernel, std::string object) {
        objects.push_back(kernel.name);
        EXPECT_NE(object, "");
      };
      auto compiled = llvm::cantFail(compile(std::move(loaded), options));
      for (const Kernel &kernel : compiled.executable.spec().kernels)
        kernels.push_back(kernel.name);
      EXPECT_EQ(objects, kernels) << "warm: " << isWarm;
    }
    llvm::sys::fs::remove_directories(folder);
  }

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
  FuseReport report = reportOf(kBestOfColumns);
  ASSERT_EQ(report.cascades.size(), 1u);
  EXPECT_TRUE(report.cascades[0].isFused);
  EXPECT_GT(report.cascades[0].repairPasses, 0);
  EXPECT_NE(report.cascades[0].certificate, "");
}

TEST_F(CompileTest, AProgramWhoseCertificateFailsIsNotUsed) {
  FuseReport report = reportOf(kChiSquared);
  bool isSaid = false;
  for (const CascadeReport &cascade : report.cascades) {
    EXPECT_FALSE(cascade.isFused);
    for (const ReasonReport &reason : cascade.reasons)
      isSaid |= reason.key == "certified-fallback";
  }
  EXPECT_TRUE(isSaid);
}

/// What was compiled before a certificate failed is not handed out.
TEST_F(CompileTest, ObjectsAreThoseOfTheKernelsThatRun) {
  expectObjectsOfKernels(kChiSquared);
  expectObjectsOfKernels(kBestOfColumns);
}
