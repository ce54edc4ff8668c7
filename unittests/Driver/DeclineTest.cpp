// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../lib/Driver/Decline.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {
/// What is left of a LayerNorm and a product, whose one pass is predicted to
/// lose, where the n-th alternative that is looked at ends with `failure`, of
/// all where n is negative.
bool declines(int which, const char *failure, FuseReport &report) {
  auto context = makeContext();
  auto program = llvm::cantFail(loadFoldText(
      *context,
      "norm(x[b,n], g[n], a[n], w[n,j]) -> o\n"
      "  mu = mean(n: x)\n"
      "  s = mean(n: (x - mu)^2)\n"
      "  o[b,j] = sum(n: ((x - mu) * rsqrt(s + 1e-5) * g + a) * w)\n",
      "test.fold"));
  CpuTarget target = llvm::cantFail(detectTarget("baseline"));
  LosingFusions losing(program, target, {{"b", 128}, {"n", 1024}, {"j", 1024}});
  FuseOptions options;
  report = llvm::cantFail(fuse(*program.module, options));
  int seen = 0;
  return llvm::cantFail(
      losing.decline(program, options, report, [&](mlir::ModuleOp) {
        bool fails = failure && (which < 0 || seen == which);
        ++seen;
        return fails ? fail(ExitCode::Internal, failure)
                     : llvm::Error::success();
      }));
}

std::vector<std::string> failuresIn(const FuseReport &report) {
  std::vector<std::string> found;
  for (const ReasonReport &note : report.notes)
    if (note.key == keyOf(Reason::TrialFailed))
      found.push_back(note.at + ": " + note.text);
  return found;
}
} // namespace

TEST(DeclineTest, WhatIsPredictedToLoseIsLeft) {
  FuseReport report;
  EXPECT_TRUE(declines(-1, nullptr, report));
  EXPECT_TRUE(failuresIn(report).empty());
}

TEST(DeclineTest, AnAlternativeThatFailsIsNoneAndIsSaid) {
  FuseReport report;
  EXPECT_FALSE(declines(-1, "found a broken plan", report));
  std::vector<std::string> found = failuresIn(report);
  ASSERT_FALSE(found.empty());
  EXPECT_EQ(found.front(), "'o': found a broken plan");
  EXPECT_TRUE(report.cascades.front().isFused);
}

TEST(DeclineTest, AnotherAlternativeIsTakenAndTheFailureStillSaid) {
  FuseReport report;
  EXPECT_TRUE(declines(0, "found a broken plan", report));
  EXPECT_EQ(failuresIn(report).size(), 1u);
}

/// As many LayerNorms with a product each as asked for, the n-th of a sum of n
/// arrays: what they are made of differs, and nothing else.
static std::string layers(int count) {
  std::string arguments = "layers(x0[b,n]", outs, body, row = "x0";
  for (int i = 0; i < count; ++i) {
    std::string n = std::to_string(i), next = std::to_string(i + 1);
    arguments +=
        ", x" + next + "[b,n], g" + n + "[n], a" + n + "[n], w" + n + "[n,j]";
    outs += std::string(i ? ", o" : "o") + n;
    body += "  mu" + n + " = mean(n: " + row + ")\n  s" + n + " = mean(n: (" +
            row + " - mu" + n + ")^2)\n  o" + n + "[b,j] = sum(n: ((" + row +
            " - mu" + n + ") * rsqrt(s" + n + " + 1e-5) * g" + n + " + a" + n +
            ") * w" + n + ")\n";
    row += " + x" + next;
  }
  return arguments + ") -> " + outs + "\n" + body;
}

TEST(DeclineTest, AlikeCascadesAreDecidedOnTogether) {
  constexpr int kLayers = 8; // more than groups that are looked at
  auto context = makeContext();
  auto program =
      llvm::cantFail(loadFoldText(*context, layers(kLayers), "test.fold"));
  CpuTarget target = llvm::cantFail(detectTarget("baseline"));
  LosingFusions losing(program, target, {{"b", 128}, {"n", 1024}, {"j", 1024}});
  FuseOptions options;
  FuseReport report = llvm::cantFail(fuse(*program.module, options));
  ASSERT_EQ(report.cascades.size(), size_t(kLayers));
  int looks = 0;
  EXPECT_TRUE(llvm::cantFail(
      losing.decline(program, options, report, [&](mlir::ModuleOp) {
        ++looks;
        return llvm::Error::success();
      })));
  EXPECT_LE(looks, 3);
  std::vector<std::string> texts;
  for (const CascadeReport &cascade : report.cascades) {
    if (cascade.decline)
      texts.push_back(cascade.decline->text);
    for (const ReasonReport &reason : cascade.reasons)
      if (reason.key == keyOf(Reason::WaitsForResults))
        texts.push_back(reason.text);
  }
  EXPECT_EQ(texts.size(), size_t(kLayers));
  for (const std::string &text : texts)
    EXPECT_NE(text.find(", judged with 7 alike of which 'o0' is the first"),
              std::string::npos)
        << text;
}

/// What stays fused says what it was predicted beside.
TEST(DeclineTest, WhatStaysIsSaidToBeKept) {
  auto context = makeContext();
  auto program =
      llvm::cantFail(loadFoldText(*context,
                                  "softmax(x[m,n]) -> y\n"
                                  "  t = max(n: x)\n"
                                  "  y = exp(x - t) / sum(n: exp(x - t))\n",
                                  "test.fold"));
  CpuTarget target = llvm::cantFail(detectTarget("baseline"));
  LosingFusions losing(program, target, {{"m", 512}, {"n", 4096}});
  FuseOptions options;
  FuseReport report = llvm::cantFail(fuse(*program.module, options));
  EXPECT_FALSE(llvm::cantFail(losing.decline(program, options, report)));
  ASSERT_EQ(report.cascades.size(), 1u);
  EXPECT_EQ(report.cascades[0].judged.rfind("kept: predicted ", 0), 0u)
      << report.cascades[0].judged;
}

/// The kernel in which a product waits may have lost a reduction to another
/// that was left apart.
TEST(DeclineTest, ARegroupedKernelIsStillSaidToWait) {
  CascadeReport before;
  before.name = "o";
  before.reductions = {1, 2, 5};
  before.separated = {5};
  FuseReport after;
  after.cascades.resize(3);
  after.cascades[0].reductions = {1, 3};
  after.cascades[1].reductions = {5, 7};
  after.cascades[1].decline = DeclineReport();
  after.cascades[2].reductions = {2, 5};
  tellWaiting(before, "text", after);
  EXPECT_TRUE(after.cascades[0].reasons.empty());
  EXPECT_TRUE(after.cascades[1].reasons.empty());
  ASSERT_EQ(after.cascades[2].reasons.size(), 1u);
  EXPECT_EQ(after.cascades[2].reasons[0].key, keyOf(Reason::WaitsForResults));
  EXPECT_TRUE(after.cascades[2].waits);
}

/// In one pass nothing waits, whatever was asked for.
TEST(DeclineTest, OnePassDoesNotWait) {
  CascadeReport before;
  before.separated = {5};
  FuseReport after;
  after.cascades.resize(1);
  after.cascades[0].reductions = {5};
  after.cascades[0].isFused = true;
  tellWaiting(before, "text", after);
  EXPECT_TRUE(after.cascades[0].reasons.empty());
  EXPECT_FALSE(after.cascades[0].waits);
}
