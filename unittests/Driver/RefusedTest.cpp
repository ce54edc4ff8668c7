// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../lib/Driver/Refused.h"
#include "refold/Support/Error.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {
/// What becomes of a softmax whose kernels with two reductions end with `code`.
llvm::Expected<bool> leaveAfter(ExitCode code, FuseReport &report) {
  auto context = makeContext();
  auto program =
      llvm::cantFail(loadFoldText(*context,
                                  "softmax(x[m,n]) -> y\n  t = max(n: x)\n"
                                  "  y = exp(x - t) / sum(n: exp(x - t))\n",
                                  "test.fold"));
  RefusedFusions refused(program);
  FuseOptions options;
  report = llvm::cantFail(fuse(*program.module, options));
  CpuTarget target = llvm::cantFail(detectTarget("baseline"));
  return refused.leave(
      program, options, target,
      [&](const KernelText &kernel) {
        bool isFused =
            kernel.text.find("refold.state max") != std::string::npos &&
            kernel.text.find("refold.state add") != std::string::npos;
        return isFused ? fail(code, "'k': [cuda-not-rows] found a test")
                       : llvm::Error::success();
      },
      report);
}
} // namespace

TEST(RefusedTest, WhatIsNotCoveredRunsInSteps) {
  FuseReport report;
  auto isLeft = leaveAfter(ExitCode::Unsupported, report);
  ASSERT_TRUE(bool(isLeft)) << llvm::toString(isLeft.takeError());
  EXPECT_TRUE(*isLeft);
  ASSERT_TRUE(report.cascades.front().decline);
  EXPECT_EQ(report.cascades.front().decline->key, "cuda-not-rows");
}

TEST(RefusedTest, AnErrorOfTheCompilerIsNoRefusal) {
  for (ExitCode code : {ExitCode::Internal, ExitCode::Limit}) {
    FuseReport report;
    auto isLeft = leaveAfter(code, report);
    ASSERT_FALSE(bool(isLeft));
    std::string message;
    EXPECT_EQ(takeError(isLeft.takeError(), message), code);
    EXPECT_EQ(message, "'k': [cuda-not-rows] found a test");
  }
}
