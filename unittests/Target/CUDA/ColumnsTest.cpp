// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Columns that warps and blocks share, in the emulator, and with defects
// planted in the text.
#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <cmath>

using namespace refold;
using namespace refold::test;

namespace {

// Sums of exp(x) in each column relative to the largest, and the shares of it.
constexpr llvm::StringLiteral kSums = R"(
func.func @kernel(%x: memref<?x?xf32>, %s: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>) outs(%c = %s : memref<?xf32>)
    sizes(%i = %c[0], %n = %a[0]) {)",
                              kShares = R"(
func.func @kernel(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %s: memref<?xf32>) {
  refold.cascade rows(%i = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>)
    outs(%b = %y : memref<?x?xf32>, %c = %s : memref<?xf32>)
    sizes(%i = %b[1], %n = %b[0]) {)",
                              kStates = R"(
    %lowest = arith.constant -3.40282347E+38 : f32
    %v = refold.read %a[%n, %i] : f32
    %max = refold.state max(%v : f32)
    %g = arith.maxnumf %max, %lowest : f32
    %u = arith.subf %v, %g : f32
    %p = math.exp %u : f32
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %d = arith.subf %old, %new : f32
      %f = math.exp %d : f32
      %t = arith.mulf %self, %f : f32
      refold.yield %t : f32
    } law "rescale-distributes"
    refold.write %z, %c[%i] : f32)",
                              kSwept = R"(
    %w = arith.divf %p, %z : f32
    refold.write %w, %b[%n, %i] : f32)";

CudaKernel printColumns(bool isSwept) {
  auto context = makeContext();
  std::string text = ((isSwept ? kShares : kSums) + kStates +
                      (isSwept ? kSwept : "") + "\n  }\n  return\n}")
                         .str();
  auto kernel = printCudaKernel(*context, "columns", text, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

/// What is wrong with columns whose scores grow, so that every part has another
/// extreme: the second is -inf but for its end, the third has a NaN.
std::string judge(const Kernel &kernel, bool isSwept, int64_t n,
                  int64_t columns) {
  std::vector<float> x(n * columns), y(n * columns, -1.0f), s(columns, -1.0f);
  for (int64_t at = 0; at < n; ++at)
    for (int64_t i = 0; i < columns; ++i) {
      float &to = x[at * columns + i];
      to = float(at) * 12.0f / float(n) +
           float((at * 7919 + i * 31) % 13) * 0.25f;
      if (i == 1 && at < n - n / 8)
        to = -INFINITY;
      if (i == 2 && at == n / 2)
        to = NAN;
    }
  auto address = [](const std::vector<float> &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  std::vector<int64_t> words = {address(x), address(x), 0, n,
                                columns,    columns,    1};
  if (isSwept)
    words.insert(words.end(),
                 {address(y), address(y), 0, n, columns, columns, 1});
  words.insert(words.end(), {address(s), address(s), 0, columns, 1});
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < columns; ++i) {
    double largest = -INFINITY, sum = 0.0;
    for (int64_t at = 0; at < n; ++at)
      largest = std::max(largest, double(x[at * columns + i]));
    for (int64_t at = 0; at < n; ++at)
      sum += std::exp(x[at * columns + i] - largest);
    if (i == 2 ? !std::isnan(s[i]) : !(std::abs(s[i] - sum) <= 1e-5 * sum))
      return "found a wrong sum";
    for (int64_t at = 0; isSwept && at < n; ++at) {
      double exact = std::exp(x[at * columns + i] - largest) / sum;
      float found = y[at * columns + i];
      if (i == 2 ? !std::isnan(found)
                 : !(std::abs(found - exact) <= 1e-5 * exact))
        return "found a wrong result";
    }
  }
  return "";
}

/// Chunks and what is left of them, columns and what is left of a block's.
std::string judge(const CudaKernel &printed, bool isSwept,
                  const char *const entry) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", entry, 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  const std::pair<int64_t, int64_t> shapes[] = {
      {1200, 40}, {800, 3}, {513, 70}, {37, 33}};
  for (auto [n, columns] : shapes)
    if (std::string wrong = judge(spec.kernels.front(), isSwept, n, columns);
        !wrong.empty())
      return wrong;
  return "";
}

class PlantedColumnDefect : public testing::TestWithParam<Defect> {};
class PlantedSweptColumnDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedColumnDefect, IsCaught) {
  CudaKernel kernel = printColumns(false);
  plant(kernel, GetParam());
  expectCaught(judge(kernel, false, "parts16x16x1"), GetParam());
}
TEST_P(PlantedSweptColumnDefect, IsCaught) {
  CudaKernel kernel = printColumns(true);
  plant(kernel, GetParam());
  expectCaught(judge(kernel, true, "parts16x16x1"), GetParam());
}

const std::vector<Defect> kDefects = {
    // Who has which column, and which part of it.
    Defect{"thread() / kRows : 0", "thread() % kThreads : 0"},
    Defect{"group * kRows + thread() % kRows", "group * kRows + lane"},
    Defect{"+ kRows - 1) / kRows", ") / kRows"},
    Defect{"lane == 0 && is_row", "lane == 0"},
    Defect{"kIsPart ? block_quotient(block(), row_parts)",
           "kIsPart ? block_remainder(block(), row_parts)"},
    Defect{"block_remainder(block(), row_parts) * part_length",
           "block_remainder(block(), row_parts) * kChunk / 2"},
    // Chunks, and what is left.
    Defect{"first + kChunk <= part_end", "first < part_end"},
    Defect{"first += kThreads * kRest", "first += kChunk"},
    Defect{"kVectors : kRest", "kVectors : kRest / 2"},
    // The merge of warps.
    Defect{"thread() ^ mask * kRows", "thread() ^ mask"},
    Defect{"s.add_1);\n        block_barrier();", "s.add_1);"},
    Defect{"other_add_1;\n        block_barrier();", "other_add_1;"},
    Defect{"mask = lanes.value / 2", "mask = lanes.value / 4"},
    // The merge of blocks.
    Defect{"left_add_1 + block() * kRows + thread() % kRows",
           "left_add_1 + block() * kRows"},
    Defect{"left_add_1 + (group * row_parts + part) * kRows",
           "left_add_1 + part * kRows"},
    Defect{"* blocks() * kRows", "* blocks()"},
    Defect{"base + i * kThreads", "base + i"},
    Defect{"is_last_block(tickets + group", "is_last_block(tickets"},
    Defect{"s = States();", ""}};

const std::vector<Defect> kSweptDefects = {
    Defect{"block_barrier();\n    if (!row_tickets.meet())",
           "if (!row_tickets.meet())"},
    Defect{"row_tickets(tickets, group, group_count",
           "row_tickets(tickets, 0, group_count"},
    Defect{"begin = part * share_length", "begin = 0"},
    Defect{"first = rest - kChunk; first >= begin",
           "first = rest - kChunk; first > begin"},
    Defect{"rest = begin + (end - begin) / kChunk * kChunk", "rest = end"},
    Defect{"first < end; first += kThreads * kRest",
           "first < end; first += kChunk"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedColumnDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 4)));
INSTANTIATE_TEST_SUITE_P(Text, PlantedSweptColumnDefect,
                         testing::ValuesIn(chosenDefects(kSweptDefects, 2)));

TEST(EmulatedColumns, AGeneratedKernelIsRight) {
  for (bool isSwept : {false, true}) {
    CudaKernel kernel = printColumns(isSwept);
    for (const char *entry : {"parts16x16x1", "chunks16x16x1", "chunks4x32x1"})
      EXPECT_EQ(judge(kernel, isSwept, entry), "") << entry;
  }
}

/// By elements and columns, of an H200 (benchmarks/results/cuda-rows.md).
TEST(EmulatedColumns, ShapesChooseWhoHasThem) {
  CudaKernel kernel = printColumns(true);
  struct Case {
    int64_t n, columns;
    const char *entry;
    int64_t blocks;
  };
  const Case cases[] = {
      {3, 20480, "chunks1x32x1", 160},     {32, 7, "chunks1x32x1", 1},
      {33, 7, "chunks16x16x1", 1},         {384, 32768, "chunks1x32x1", 256},
      {384, 32767, "chunks16x16x1", 1024}, {385, 32768, "chunks4x32x1", 1024},
      {1023, 40, "chunks16x16x1", 2},      {1024, 40, "parts16x16x1", 8},
      {65536, 4224, "parts16x16x1", 264},  {65536, 4225, "chunks16x16x1", 133},
      {1 << 20, 1, "parts16x16x1", 264}};
  for (auto [n, columns, entry, blocks] : cases) {
    int64_t words[] = {0, 0, 0, n,       columns, columns, 1,
                       0, 0, 0, n,       columns, columns, 1,
                       0, 0, 0, columns, 1};
    auto launch = planCudaLaunch(kernel, words);
    ASSERT_TRUE(bool(launch)) << llvm::toString(launch.takeError());
    ASSERT_TRUE(bool(*launch));
    EXPECT_TRUE(
        llvm::StringRef(kernel.entries[(*launch)->entry].name).ends_with(entry))
        << kernel.entries[(*launch)->entry].name << " of " << n << " x "
        << columns;
    EXPECT_EQ((*launch)->blocks, blocks) << n << " x " << columns;
  }
}

} // namespace
