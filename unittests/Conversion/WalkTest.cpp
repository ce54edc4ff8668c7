// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lowered kernels against the definition, evaluated in double.
#include "CascadeRunner.h"
#include "CascadeSuite.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cmath>

using namespace refold;

namespace {
/// Runs one case; the largest error over its outputs.
double errorOf(const SuiteCase &c, CascadeRunner &runner, bool isStrided) {
  std::vector<Tensor> operands;
  uint64_t seed = 1;
  for (const SuiteOperand &o : c.inputs)
    operands.push_back(makeOperand(o, seed++, isStrided));
  for (const SuiteOperand &o : c.outputs) {
    operands.push_back(makeOperand(o, seed++, isStrided));
    for (int64_t i = 0; i < operands.back().numElements(); ++i)
      operands.back().set(i, isFloat(o.dtype) ? NAN : 77);
  }
  if (llvm::Error error = runner.run(operands)) {
    ADD_FAILURE() << c.name << ": " << toString(std::move(error));
    return INFINITY;
  }
  auto want = runner.reference(operands);
  if (!want) {
    ADD_FAILURE() << c.name << ": " << toString(want.takeError());
    return INFINITY;
  }
  double worst = 0;
  for (size_t i = 0; i < want->size(); ++i)
    worst = std::max(worst,
                     relativeError(operands[c.inputs.size() + i], (*want)[i]));
  return worst;
}

double errorOf(const SuiteCase &c, const std::string &text, bool isStrided,
               const std::string &instructionSet = "") {
  CascadeRunner::Options options;
  options.instructionSet = instructionSet;
  auto runner = CascadeRunner::compile(text, options);
  if (!runner) {
    ADD_FAILURE() << c.name << ": " << toString(runner.takeError()) << "\n"
                  << text;
    return INFINITY;
  }
  return errorOf(c, **runner, isStrided);
}

class WalkTest : public testing::TestWithParam<SuiteCase> {};

TEST_P(WalkTest, StaticExtents) {
  const SuiteCase &c = GetParam();
  EXPECT_LE(errorOf(c, c.text(false, c.schedule), false), c.tolerance);
}

TEST_P(WalkTest, DynamicExtentsAndStrides) {
  const SuiteCase &c = GetParam();
  if (c.canBeDynamic) {
    EXPECT_LE(errorOf(c, c.text(true, c.schedule, true), true), c.tolerance);
  }
}

TEST_P(WalkTest, SmallTilesAndSegments) {
  const SuiteCase &c = GetParam();
  // Several tiles of everything, partial ones, and states merged from three
  // parts.
  std::string schedule = "segments = 3, tile = {i = 5, m = 13, t = 6, j = 64, "
                         "n = 64, ex = 64}, register = array<i64: 4, 32>";
  EXPECT_LE(errorOf(c, c.text(false, schedule), false), c.tolerance);
}

TEST_P(WalkTest, ResultsPastTheCaches) {
  const SuiteCase &c = GetParam();
  for (bool isDynamic : {false, true})
    if (!isDynamic || c.canBeDynamic)
      EXPECT_LE(errorOf(c, c.text(isDynamic, "stream_bytes = 1", isDynamic),
                        isDynamic),
                c.tolerance);
}

/// Panels that an item makes itself, at its own extents and in small tiles.
TEST_P(WalkTest, OtherInputsInEveryRun) {
  const SuiteCase &c = GetParam();
  if (!c.hasNests())
    GTEST_SKIP() << "nothing is packed";
  std::string schedule = "tile = {i = 5, m = 13, t = 6, j = 64, n = 64, "
                         "ex = 64}, register = array<i64: 4, 32>";
  EXPECT_LE(errorOf(c, c.text(false, c.schedule, false, true), false),
            c.tolerance);
  EXPECT_LE(errorOf(c, c.text(false, schedule, false, true), false),
            c.tolerance);
  if (c.canBeDynamic) {
    EXPECT_LE(errorOf(c, c.text(true, c.schedule, true, true), true),
              c.tolerance);
  }
}

INSTANTIATE_TEST_SUITE_P(Suite, WalkTest, testing::ValuesIn(cascadeSuite()),
                         [](const auto &info) {
                           std::string name = info.param.name;
                           for (char &ch : name)
                             if (!std::isalnum(ch))
                               ch = '_';
                           return name;
                         });
/// One compilation, every length that may go wrong: empty, one, around a
/// register and around a tile.
TEST(WalkShapesTest, AnyExtent) {
  size_t count = cascadesOf(1, 1).size();
  for (size_t i = 0; i < count; ++i) {
    SuiteCase one = cascadesOf(1, 1)[i];
    auto runner = CascadeRunner::compile(
        one.text(true, "", /*isStrided=*/false, /*areVarying=*/i % 2),
        CascadeRunner::Options());
    ASSERT_TRUE(bool(runner)) << toString(runner.takeError());
    for (int64_t stream : {0, 1, 2, 15, 16, 17, 255, 256, 257, 1025})
      for (int64_t rows : {0, 1, 4, 5, 9, 37}) {
        SuiteCase c = cascadesOf(rows, stream)[i];
        if (c.name == "cross-entropy" && stream == 0)
          continue; // no label is in range
        EXPECT_LE(errorOf(c, **runner, false), 10 * c.tolerance)
            << c.name << " rows " << rows << " stream " << stream;
      }
  }
}

/// Panels of few outer rows at a time; heads that share keys stay together.
TEST(WalkShapesTest, PanelsInRounds) {
  std::map<std::string, int64_t> rounds;
  for (auto [rows, stream] : {std::pair<int64_t, int64_t>{40, 70}, {65, 1}})
    for (const SuiteCase &c : cascadesOf(rows, stream, 3)) {
      if (!c.hasNests() || c.indices[0].name != "b")
        continue;
      for (bool isDynamic : {false, true}) {
        if (isDynamic && !c.canBeDynamic)
          continue;
        CascadeRunner::Options options;
        auto runner = CascadeRunner::compile(
            c.text(isDynamic, "panel_bytes = 1, tile = {i = 1, m = 1}",
                   isDynamic),
            options);
        ASSERT_TRUE(bool(runner)) << toString(runner.takeError());
        EXPECT_LE(errorOf(c, **runner, isDynamic), 10 * c.tolerance)
            << c.name << " rows " << rows << " stream " << stream;
        rounds[c.name] = std::max(rounds[c.name], (*runner)->numRounds);
      }
    }
  // Of 18 heads, two share keys; all six of a batch the latent ones.
  for (auto &[name, count] : rounds)
    EXPECT_EQ(count, name == "latent-with-lse" ? 3 : 9) << name;
  EXPECT_EQ(rounds.size(), 9u);
}

/// Panels that an item makes of each tile of the stream, which few items walk
/// in parts.
TEST(WalkShapesTest, PanelsOfTiles) {
  size_t numNests = 0;
  for (auto [rows, stream, batch] :
       {std::tuple<int64_t, int64_t, int64_t>{40, 70, 1},
        {70, 129, 3},
        {9, 257, 1},
        {65, 1, 2}})
    for (const SuiteCase &c : cascadesOf(rows, stream, batch)) {
      if (!c.hasNests() || c.indices[0].name != "b")
        continue;
      for (bool isDynamic : {false, true}) {
        if (isDynamic && !c.canBeDynamic)
          continue;
        auto runner = CascadeRunner::compile(
            c.text(isDynamic,
                   "panel_bytes = 0, segments = 4, tile = {m = 48, n = 16}",
                   isDynamic, /*areVarying=*/true),
            CascadeRunner::Options());
        ASSERT_TRUE(bool(runner)) << toString(runner.takeError());
        EXPECT_LE(errorOf(c, **runner, isDynamic), 10 * c.tolerance)
            << c.name << " rows " << rows << " stream " << stream;
        EXPECT_EQ((*runner)->numRounds, 1) << c.name;
        ++numNests;
      }
    }
  EXPECT_GT(numNests, 60u);
}

/// Panels of constants are made once, and are there together. More rows than
/// one tile has: for fewer there are none.
TEST(WalkShapesTest, PanelsOfConstantsHaveNoRounds) {
  bool isAny = false;
  for (const SuiteCase &c : cascadesOf(80, 70, 3)) {
    if (c.name != "attention" && c.name != "gqa")
      continue;
    isAny = true;
    for (bool isConstant : {false, true}) {
      std::string text =
          c.text(false, "panel_bytes = 1, tile = {i = 1, m = 1}", false, true);
      size_t at = text.find("refold.varying = array<i1: true, true, true");
      ASSERT_NE(at, std::string::npos) << text;
      if (isConstant)
        text.replace(at, 43, "refold.varying = array<i1: true, false, false");
      auto runner = CascadeRunner::compile(text, CascadeRunner::Options());
      ASSERT_TRUE(bool(runner)) << toString(runner.takeError());
      EXPECT_LE(errorOf(c, **runner, false), 10 * c.tolerance) << c.name;
      EXPECT_EQ((*runner)->numRounds > 1, !isConstant) << c.name;
    }
  }
  EXPECT_TRUE(isAny);
}

/// Short rows of known length: as many at a time as there are lanes, some of
/// them behind the last; one register, a group of them, several.
TEST(WalkShapesTest, ShortRowsSideBySide) {
  for (auto [rows, stream] :
       {std::pair<int64_t, int64_t>{16, 64}, {37, 50}, {33, 7}, {21, 200}})
    for (const SuiteCase &c : cascadesOf(rows, stream)) {
      if (llvm::any_of(c.indices, [](const SuiteIndex &index) {
            return index.role != "rows" && index.role != "stream";
          }))
        continue;
      EXPECT_LE(errorOf(c, c.text(false, c.schedule), false), 10 * c.tolerance)
          << c.name << " rows " << rows << " stream " << stream;
    }
}

/// Conditions leave nothing of the last segments, which are empty besides.
TEST(WalkShapesTest, SegmentsBeyondTheStream) {
  for (const SuiteCase &c : cascadesOf(130, 130))
    if (c.name == "alibi-causal" || c.name == "window") {
      EXPECT_LE(errorOf(c,
                        c.text(false, "segments = 8, tile = {m = 64, n = 16}, "
                                      "register = array<i64: 4, 16>"),
                        false),
                c.tolerance)
          << c.name;
    }
}

/// NaN, infinities and large values: the class of every result is the
/// definition's. A maximum is NaN with its row even where its combiner would
/// drop one.
TEST(WalkValuesTest, SpecialValues) {
  for (SuiteCase c : cascadeSuite()) {
    bool isWanted = llvm::StringRef(c.name).starts_with("row-") ||
                    c.name == "softmax" || c.name == "column-max" ||
                    c.name == "column-softmax" ||
                    llvm::StringRef(c.name).starts_with("topk") ||
                    llvm::StringRef(c.name).starts_with("bottomk");
    if (!isWanted)
      continue;
    c.inputs[0].fill = SuiteOperand::Special;
    EXPECT_LE(errorOf(c, c.text(true, ""), false), 4 * c.tolerance) << c.name;
    EXPECT_LE(errorOf(c,
                      c.text(false, "segments = 2, tile = {j = 64, ex = 64}"),
                      false),
              4 * c.tolerance)
        << c.name << " in segments";
  }
}

/// The same code generator at other widths.
TEST(WalkTargetsTest, OtherInstructionSets) {
  for (const char *name : {"avx2", "baseline"})
    for (const SuiteCase &c : cascadesOf(13, 77))
      EXPECT_LE(errorOf(c, c.text(true, ""), false, name), 4 * c.tolerance)
          << c.name << " for " << name;
}

/// The same walk in another spelling: nothing in it may be of one target.
TEST(CxxSpellingTest, AgreesWithTheReference) {
  std::vector<SuiteCase> cases = cascadeSuite();
  std::erase_if(cases, [](const SuiteCase &c) { return c.name == "f8-sum"; });
  std::vector<std::string> texts;
  for (const SuiteCase &c : cases)
    texts.push_back(c.text(c.canBeDynamic, "", c.canBeDynamic));
  auto runners = CascadeRunner::compileCxx(texts);
  ASSERT_TRUE(bool(runners)) << toString(runners.takeError());
  for (size_t i = 0; i < cases.size(); ++i)
    EXPECT_LE(errorOf(cases[i], *(*runners)[i], cases[i].canBeDynamic),
              std::max(cases[i].tolerance, 2e-5))
        << cases[i].name;
}
} // namespace
