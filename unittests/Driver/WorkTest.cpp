// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Work.h"
#include "refold/Support/Error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {

class WorkTest : public testing::Test {
protected:
  /// The work of a program at a shape; an empty one with a failed test.
  ProgramWork workOf(llvm::StringRef text, const Extents &extents) {
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
    program = std::make_unique<CompiledProgram>(std::move(*compiled));
    auto shapes = shapesOf(program->inputs, extents);
    if (!shapes) {
      ADD_FAILURE() << llvm::toString(shapes.takeError());
      return {};
    }
    auto work = measureWork(*context, *program, *shapes);
    if (!work) {
      ADD_FAILURE() << llvm::toString(work.takeError());
      return {};
    }
    return *work;
  }

  std::unique_ptr<mlir::MLIRContext> context = makeContext();
  std::unique_ptr<CompiledProgram> program;
};

TEST_F(WorkTest, EveryElementCountsOnce) {
  // Read twice, by the pass and by the sweep that writes.
  ProgramWork work = workOf("f(x[m,n]) -> y\n  p = exp(x - max(n: x))\n"
                            "  y = p / sum(n: p)\n",
                            {{"m", 8}, {"n", 64}});
  ASSERT_EQ(work.steps.size(), 1u);
  EXPECT_EQ(work.steps[0].kind, "kernel");
  EXPECT_EQ(work.steps[0].bytesRead, 8 * 64 * 4);
  EXPECT_EQ(work.steps[0].bytesWritten, 8 * 64 * 4);
  EXPECT_EQ(work.bytes(), 2 * 8 * 64 * 4);
  // max, -, exp, + and /, and a few for each row.
  EXPECT_GE(work.operations, 5 * 8 * 64);
  EXPECT_LE(work.operations, 8 * 8 * 64);
}

TEST_F(WorkTest, OfATableOnlyTheRowsThatAreRead) {
  ProgramWork work = workOf("f(x[v,d], i[n]: i32) -> y\n  y = x[i, d] * 2\n",
                            {{"v", 1000}, {"d", 4}, {"n", 3}});
  EXPECT_EQ(work.inputBytes, 3 * 4 * 4 + 3 * 4);
  EXPECT_EQ(work.outputBytes, 3 * 4 * 4);
}

TEST_F(WorkTest, ProductsAreTwoOperationsATerm) {
  ProgramWork work = workOf("f(x[m,k], w[k,n]) -> y\n  y = sum(k: x*w)\n",
                            {{"m", 5}, {"k", 7}, {"n", 11}});
  ASSERT_EQ(work.steps.size(), 1u);
  EXPECT_EQ(work.steps[0].kind, "kernel");
  EXPECT_EQ(work.steps[0].operations, 2 * 5 * 7 * 11);
  EXPECT_EQ(work.steps[0].bytesRead, 4 * (5 * 7 + 7 * 11));
}

TEST_F(WorkTest, EveryBlockOfRowsConvertsTheRightSide) {
  constexpr const char *kText = "f(x[b,m,k]: f16, w[b,n,k]: f16) -> y\n"
                                "  y = sum(k: x*w)\n";
  auto productOf = [&](int64_t batch, int64_t rows) {
    ProductWork product;
    ProgramWork work =
        workOf(kText, {{"b", batch}, {"m", rows}, {"k", 16}, {"n", 8}});
    for (const StepWork &step : work.steps)
      if (auto *found = std::get_if<ProductWork>(&step.counts))
        product = *found;
    return product;
  };
  EXPECT_EQ(productOf(8, 1024).fromF16, 8 * (1024 * 16 + 16 * 8));
  // One product is cut into eight blocks for the threads.
  EXPECT_EQ(productOf(1, 1024).fromF16, 1024 * 16 + 8 * 16 * 8);
  EXPECT_EQ(productOf(1, 1024).fromOthers, 0);
}

TEST_F(WorkTest, WhatSkipsTilesIsNoBound) {
  const char *text = "f(q[m,d], k[n,d], v[n,d]) -> o\n"
                     "  s = where(n <= m, sum(d: q*k), -inf)\n"
                     "  p = exp(s - max(n: s))\n"
                     "  o[m,d] = sum(n: p*v) / sum(n: p)\n";
  ProgramWork work = workOf(text, {{"m", 300}, {"n", 300}, {"d", 16}});
  ASSERT_EQ(work.steps.size(), 1u);
  EXPECT_TRUE(work.steps[0].skipsTiles);
  EXPECT_GE(work.steps[0].operations, 4.0 * 300 * 300 * 16);
  EXPECT_EQ(work.operations, 0);
}

TEST_F(WorkTest, WhatIsWalkedFollowsFromTheMaskAndTheExtents) {
  auto walked = [&](const std::string &mask, int64_t rows, int64_t columns) {
    std::string text = "f(q[m,d], k[n,d], v[n,d]) -> o\n"
                       "  s = where(" +
                       mask +
                       ", sum(d: q*k), -inf)\n"
                       "  p = exp(s - max(n: s))\n"
                       "  o[m,d] = sum(n: p*v) / sum(n: p)\n";
    ProgramWork work =
        workOf(text.c_str(), {{"m", rows}, {"n", columns}, {"d", 16}});
    auto *counts = std::get_if<KernelWork>(&work.steps.at(0).counts);
    return counts ? counts->walked : -1.0;
  };
  // Triangles of either side, and one that the columns hardly reach.
  EXPECT_NEAR(walked("n <= m", 4096, 4096), 0.5, 0.05);
  EXPECT_NEAR(walked("n >= m", 4096, 4096), 0.5, 0.1);
  EXPECT_GT(walked("n <= m", 4096, 40), 0.98);
  EXPECT_LT(walked("n <= m", 64, 4096), 0.05);
  // A window, of which whole tiles are walked.
  double window = walked("n <= m and n > m - 64", 8192, 8192);
  EXPECT_GT(window, 64.0 / 8192);
  EXPECT_LT(window, 0.15);
  EXPECT_EQ(walked("n <= n", 300, 300), 1.0);
}

TEST_F(WorkTest, ShapesThatDisagreeAreRefused) {
  workOf("f(x[m,n], w[n]) -> y\n  y = sum(n: x*w)\n", {{"m", 2}, {"n", 3}});
  auto work = measureWork(*context, *program, {{2, 3}, {4}});
  ASSERT_FALSE(bool(work));
  std::string message;
  EXPECT_EQ(takeError(work.takeError(), message), ExitCode::Usage);
  EXPECT_EQ(message, "found extent 4 of dimension 'n', expected 3");
}

TEST_F(WorkTest, StepsAreTimedInOrder) {
  workOf("f(x[m,k], w[k,n]) -> y\n  s = sum(k: x*w)\n"
         "  p = exp(s - max(n: s))\n  y = p / sum(n: p)\n",
         {{"m", 4}, {"k", 5}, {"n", 6}});
  auto inputs = makeInputs(program->inputs, {{"m", 4}, {"k", 5}, {"n", 6}}, {},
                           {}, /*seed=*/0);
  ASSERT_TRUE(bool(inputs));
  std::vector<size_t> seen;
  program->executable.observeSteps([&](size_t step, double ms) {
    seen.push_back(step);
    EXPECT_GE(ms, 0.0);
  });
  for (int run = 0; run < 2; ++run)
    llvm::cantFail(program->executable.run(*inputs, 1).takeError());
  std::vector<size_t> expected;
  for (int run = 0; run < 2; ++run)
    for (size_t step = 0; step < program->executable.spec().steps.size();
         ++step)
      expected.push_back(step);
  EXPECT_EQ(seen, expected);
  program->executable.observeSteps(nullptr);
  llvm::cantFail(program->executable.run(*inputs, 1).takeError());
  EXPECT_EQ(seen.size(), expected.size());
}

TEST_F(WorkTest, AScheduleNamesTheUsersOperands) {
  workOf("f(q[m,d], k[n,d], v[n,d]) -> o\n  s = sum(d: q*k)\n"
         "  p = exp(s - max(n: s))\n  o[m,d] = sum(n: p*v) / sum(n: p)\n",
         {{"m", 300}, {"n", 300}, {"d", 16}});
  auto schedule = describeSchedule(*context, *program, 0, "baseline");
  ASSERT_TRUE(bool(schedule)) << llvm::toString(schedule.takeError());
  EXPECT_EQ(schedule->getString("target"), "cpu-baseline");
  EXPECT_EQ(schedule->getInteger("passes"), 1);
  EXPECT_EQ(schedule->getBoolean("second_sweep"), false);
  bool isPacked = false;
  for (const llvm::json::Value &line : *schedule->getArray("plan"))
    isPacked |= line.getAsString()->starts_with("packed 'k'");
  EXPECT_TRUE(isPacked);
}

} // namespace
