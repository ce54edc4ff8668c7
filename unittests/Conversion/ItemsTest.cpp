// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How many items a kernel has: as many as the cost model counts.
#include "CascadeRunner.h"
#include "CascadeSuite.h"
#include "llvm/Support/MathExtras.h"
#include "gtest/gtest.h"

using namespace refold;

namespace {

std::unique_ptr<CascadeRunner> compileFor(const SuiteCase &c, int64_t cores,
                                          bool areVarying) {
  CascadeRunner::Options options;
  options.cores = cores;
  options.l2Bytes = 128 << 10;
  return llvm::cantFail(CascadeRunner::compile(
      c.text(true, "", /*isStrided=*/false, areVarying), options));
}

/// Items of the kernel at the extents of `c`; a failure where the cost model
/// counts others.
int64_t itemsOf(const SuiteCase &c, CascadeRunner &runner) {
  std::vector<Tensor> operands;
  for (const auto *list : {&c.inputs, &c.outputs})
    for (const SuiteOperand &o : *list)
      operands.push_back(llvm::cantFail(Tensor::create(o.dtype, o.shape)));
  std::vector<double> extents;
  for (const SuiteIndex &i : c.indices)
    extents.push_back(double(i.extent));
  int64_t items = runner.itemsOf(operands);
  EXPECT_EQ(double(items), runner.predictedItems(extents)) << c.name;
  return items;
}

TEST(ItemsTest, AreThoseOfTheCostModel) {
  size_t count = cascadesOf(1, 1).size();
  for (size_t i = 0; i < count; ++i)
    for (bool areVarying : {false, true})
      for (int64_t cores : {2, 16}) {
        SuiteCase any = cascadesOf(1, 1)[i];
        if (areVarying ? !any.hasNests() : cores > 2)
          continue;
        auto runner = compileFor(any, cores, areVarying);
        for (auto [rows, stream] : {std::pair<int64_t, int64_t>{1, 100},
                                    {9, 100},
                                    {40, 3},
                                    {300, 100}}) {
          SCOPED_TRACE(std::to_string(cores) + " cores, " +
                       std::to_string(rows) + " x " + std::to_string(stream) +
                       (areVarying ? ", varying" : ""));
          itemsOf(cascadesOf(rows, stream)[i], *runner);
        }
      }
}

/// Of rows that are multiplied by panels of their item's own there are as many
/// as each core is to have, of 512 rows or more.
TEST(ItemsTest, OwnPanelsServeManyRows) {
  auto of = [](int64_t cores, int64_t rows) {
    for (const SuiteCase &c : cascadesOf(rows, 5))
      if (c.name == "rmsnorm-product-tanh")
        return itemsOf(c, *compileFor(c, cores, /*areVarying=*/true));
    return int64_t(-1);
  };
  EXPECT_EQ(of(1, 1000), 1);
  EXPECT_EQ(of(2, 1500), 2);
  EXPECT_EQ(of(16, 1500), 3);
  EXPECT_EQ(of(16, 512), 1);
  EXPECT_EQ(of(16, 513), 2);
}

/// x / sum(x) * w.
SuiteCase scaledRows(int64_t rows, int64_t length) {
  return {"scaled-rows",
          {{"i", "rows", rows}, {"j", "stream", length}},
          {{"x", DType::F32, {rows, length}}, {"w", DType::F32, {length}}},
          {{"y", DType::F32, {rows, length}}},
          R"(
%v = refold.read %x[%i, %j] : f32
%s = refold.state add(%v : f32)
%g = refold.read %w[%j] : f32
%q = arith.divf %v, %s : f32
%r = arith.mulf %q, %g : f32
refold.write %r, %y[%i, %j] : f32
)"};
}

/// Rows that share what a sweep reads: sixteen items while a row and that fit
/// three quarters of the second cache (12288 elements of both), else one for
/// each core, of at most as many rows as a register has lanes.
TEST(ItemsTest, LongRowsAreSweptTogether) {
  auto of = [](int64_t cores, int64_t rows, int64_t length) {
    SuiteCase c = scaledRows(rows, length);
    return itemsOf(c, *compileFor(c, cores, false));
  };
  for (int64_t cores : {1, 2, 16})
    EXPECT_EQ(of(cores, 40, 12288), 14) << cores;
  int64_t most = llvm::cantFail(detectTarget("")).facts.lanes(32);
  EXPECT_EQ(of(1, 40, 12289), int64_t(llvm::divideCeil(40, most)));
  EXPECT_EQ(of(2, 40, 12289), int64_t(llvm::divideCeil(40, most)));
  EXPECT_EQ(of(2, 20, 12289), int64_t(llvm::divideCeil(20, most)));
  EXPECT_EQ(of(4, 20, 12289), 4);
  EXPECT_EQ(of(16, 40, 12289), 14);
  EXPECT_EQ(of(64, 40, 12289), 14);
}

} // namespace
