// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <gtest/gtest.h>

using namespace refold;

namespace {
/// x[rows, n] of f32, read by vectors of four where that goes.
struct Case {
  CudaKernel kernel;
  int64_t words[7] = {0, 1 << 20, 0, 5, 64, 64, 1};

  Case() {
    kernel.name = "k";
    CudaOperand x;
    x.rank = 2;
    x.elementBytes = 4;
    x.hasVectors = true;
    kernel.operands = {x};
    kernel.rows = {CudaExtent{0, 0, 1}};
    kernel.stream = CudaExtent{0, 1, 1};
    kernel.parameters = {{CudaParameter::Pointer, 0, 0},
                         {CudaParameter::Size, 0, 1},
                         {CudaParameter::Stride, 0, 0}};
    kernel.entries = {{"few", 8, 16, 2, 4, true, 64},
                      {"many", 32, 4, 2, 4, true, 256},
                      {"any", 256, 1, 1, 4, false, -1},
                      {"single", 256, 1, 1, 1, false, -1}};
  }
  std::string choose(std::optional<unsigned> wanted = std::nullopt) {
    auto launch = planCudaLaunch(kernel, words, wanted);
    if (!launch)
      return llvm::toString(launch.takeError());
    return *launch ? kernel.entries[(*launch)->entry].name : "none";
  }
  void setLength(int64_t n) { words[4] = words[5] = n; }
};
} // namespace

TEST(PlanCudaLaunch, TakesTheFirstEntryThatHoldsARow) {
  Case c;
  EXPECT_EQ(c.choose(), "few");
  c.setLength(68);
  EXPECT_EQ(c.choose(), "many");
  c.setLength(260);
  EXPECT_EQ(c.choose(), "any");
}

TEST(PlanCudaLaunch, RaggedRowsAndAddressesAreReadElementByElement) {
  Case c;
  c.setLength(63);
  EXPECT_EQ(c.choose(), "single");
  c.setLength(64);
  c.words[2] = 1; // an offset of one element
  EXPECT_EQ(c.choose(), "single");
  c.words[2] = 4;
  EXPECT_EQ(c.choose(), "few");
  c.words[5] = 66; // rows that lie apart
  EXPECT_EQ(c.choose(), "single");
  c.words[3] = 1; // of which there is one
  EXPECT_EQ(c.choose(), "few");
}

TEST(PlanCudaLaunch, AnEntryIsTakenOnlyWhereItMay) {
  Case c;
  EXPECT_EQ(c.choose(2), "any");
  c.setLength(68);
  EXPECT_EQ(c.choose(0), "many");
  c.setLength(67);
  EXPECT_EQ(c.choose(2), "single");
}

TEST(PlanCudaLaunch, CountsBlocksAndReadsParameters) {
  Case c;
  auto launch = planCudaLaunch(c.kernel, c.words);
  ASSERT_TRUE(bool(launch) && *launch);
  EXPECT_EQ((*launch)->blocks, 1);
  EXPECT_EQ((*launch)->threads, 128);
  EXPECT_EQ((*launch)->values, (std::vector<int64_t>{1 << 20, 64, 64}));
  c.words[3] = 17;
  launch = planCudaLaunch(c.kernel, c.words);
  ASSERT_TRUE(bool(launch) && *launch);
  EXPECT_EQ((*launch)->blocks, 2);
}

TEST(PlanCudaLaunch, NothingIsLaunchedForNoRowsAndTooManyAreRefused) {
  Case c;
  c.words[3] = 0;
  EXPECT_EQ(c.choose(), "none");
  c.words[3] = int64_t(1) << 40;
  EXPECT_NE(c.choose().find("expected fewer than a grid has"),
            std::string::npos);
  c.kernel.rows.push_back(c.kernel.rows.front());
  EXPECT_NE(c.choose().find("too many rows"), std::string::npos);
}

TEST(PlanCudaLaunch, FewLongRowsHaveParts) {
  Case c;
  CudaEntry parts = c.kernel.entries.back();
  parts.name = "parts";
  parts.threads = 256, parts.rows = 1, parts.vectors = 1, parts.width = 1;
  parts.isResident = false;
  parts.longest = -1;
  parts.mostBlocks = 512;
  parts.leftBytes = 16;
  c.kernel.entries.insert(c.kernel.entries.begin(), parts);
  c.kernel.parameters.push_back({CudaParameter::Workspace, 0, 0});
  c.kernel.parameters.push_back({CudaParameter::Tickets, 0, 0});
  auto blocks = [&](int64_t rows, int64_t length) -> int64_t {
    c.setLength(length);
    c.words[3] = rows;
    auto launch = planCudaLaunch(c.kernel, c.words, std::nullopt, {4096, 8192});
    EXPECT_TRUE(bool(launch) && *launch);
    if (c.kernel.entries[(*launch)->entry].name != "parts")
      return 0;
    EXPECT_EQ((*launch)->values.rbegin()[0], 8192);
    EXPECT_EQ((*launch)->values.rbegin()[1], 4096);
    EXPECT_EQ(cudaWorkspaceBytes(c.kernel, c.words), 16 * (*launch)->blocks);
    return (*launch)->blocks;
  };
  EXPECT_EQ(blocks(1, 1024), 0); // one part
  EXPECT_EQ(blocks(1, 1025), 2);
  EXPECT_EQ(blocks(3, 1 << 20), 3 * 170);
  EXPECT_EQ(blocks(256, 1 << 20), 512);
  EXPECT_EQ(blocks(257, 1 << 20), 0); // blocks enough
  EXPECT_EQ(describeCudaLaunch(c.kernel).tickets, 512u);
}

/// The name of the entry that is launched, or why none is.
static std::string chosen(const CudaKernel &kernel, const int64_t *words) {
  auto launch = planCudaLaunch(kernel, words, std::nullopt);
  if (!launch)
    return llvm::toString(launch.takeError());
  return *launch ? kernel.entries[(*launch)->entry].name : "none";
}

TEST(PlanCudaLaunch, MapsTakeStridesOfSingleRowsToo) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand left, right;
  left.rank = right.rank = 2;
  left.elementBytes = right.elementBytes = 1;
  right.word = 7;
  kernel.operands = {left, right};
  kernel.f8Product = CudaF8Product{
      CudaExtent{0, 0, 1}, CudaExtent{1, 0, 1}, {0, 1}, {1, 1}, {}};
  CudaEntry entry;
  entry.threads = 128;
  entry.rows = entry.columns = 128;
  entry.width = 16;
  entry.roles = 1;
  kernel.entries = {entry, entry};
  kernel.entries[0].name = "maps";
  kernel.entries[1].name = "any";
  kernel.entries[1].width = 1;
  kernel.entries[1].roles = 0;
  // One row of 64 bytes by 32 columns, both dense along what is summed.
  int64_t words[] = {0, 1 << 20, 0, 1, 64, 64, 1, 0, 2 << 20, 0, 32, 64, 64, 1};
  auto choose = [&](int64_t stride) {
    words[5] = stride;
    return chosen(kernel, words);
  };
  EXPECT_EQ(choose(64), "maps");
  EXPECT_EQ(choose(80), "maps");
  EXPECT_EQ(choose(45), "any");
  EXPECT_EQ(choose(-64), "any");
}

/// Results that leave by boxes are stored by a map, in which no stride leads
/// back; it is told with the launch.
TEST(PlanCudaLaunch, BoxesTakeResultsThatGoForward) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand left, result;
  left.rank = result.rank = 2;
  left.elementBytes = result.elementBytes = 2;
  left.hasVectors = result.hasVectors = true;
  result.word = 7;
  kernel.operands = {left, result};
  kernel.tiles = CudaTiles{{0, 0, 1}, {0, 1, 1}, {1, 1, 1}, {}, {}};
  CudaEntry entry;
  entry.threads = 128;
  entry.rows = 128;
  entry.width = 8;
  entry.deepest = entry.widest = 64;
  kernel.entries = {entry, entry};
  kernel.entries[0].name = "boxes";
  kernel.entries[0].roles = 1;
  kernel.entries[0].maps = {
      {1, {1, 1, 1}, {{{1, 0, 1}, 0, 0}, {{}, -1, 48}}, 16}};
  kernel.entries[1].name = "any";
  // Rows of 64 elements, both dense.
  int64_t words[] = {0, 1 << 20, 0, 4096, 64, 64, 1,
                     0, 2 << 20, 0, 4096, 64, 64, 1};
  auto choose = [&](int64_t stride) {
    words[12] = stride;
    return chosen(kernel, words);
  };
  EXPECT_EQ(choose(64), "boxes");
  EXPECT_EQ(choose(72), "boxes");
  EXPECT_EQ(choose(-64), "any");
  // A map says which of them by 32 bits.
  words[10] = int64_t(1) << 31;
  EXPECT_EQ(choose(64), "any");
  words[10] = 4096;
  choose(64);
  auto launch = planCudaLaunch(kernel, words, std::nullopt);
  ASSERT_TRUE(launch && *launch);
  EXPECT_EQ((*launch)->blocks, 32);
  ASSERT_EQ((*launch)->maps.size(), 1u);
  const package::MapValues &map = (*launch)->maps[0];
  EXPECT_EQ(map.first, 2 << 20);
  EXPECT_EQ(map.columns, 128);
  EXPECT_EQ(map.boxRows, 16);
  EXPECT_EQ(map.numIndices, 2);
  EXPECT_EQ(map.extents[0], 4096);
  EXPECT_EQ(map.strides[0], 128);
  // A single place has any stride.
  EXPECT_EQ(map.extents[1], 1);
  EXPECT_EQ(map.strides[1], 16);
  EXPECT_FALSE(map.isEmpty());
  EXPECT_TRUE(
      (package::MapValues{.columns = 2, .extents = {4, 0, 1, 1}}).isEmpty());
}

/// What copies panels copies nothing of rows that are not there, but from where
/// they would be.
TEST(PlanCudaLaunch, PanelsTakeStridesOfSingleRowsToo) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand side;
  side.rank = 2;
  side.elementBytes = 2;
  kernel.operands = {side, side, side};
  kernel.operands[1].word = 7;
  kernel.operands[2].word = 14;
  kernel.product = CudaProduct{};
  CudaEntry entry;
  entry.threads = 256;
  entry.rows = entry.columns = 64;
  entry.width = 8;
  entry.roles = 1;
  entry.copied = 64;
  entry.blocksPerUnit = 1;
  kernel.entries = {entry, entry};
  kernel.entries[0].name = "panels";
  kernel.entries[1].name = "any";
  kernel.entries[1].width = 1;
  kernel.entries[1].roles = 0;
  // One row of 64 elements by 64 x 32.
  int64_t words[] = {0,  1 << 20, 0, 1, 64,      64, 1, 0,  2 << 20, 0, 64,
                     32, 32,      1, 0, 3 << 20, 0,  1, 32, 32,      1};
  auto choose = [&](int64_t stride) {
    words[5] = stride;
    return chosen(kernel, words);
  };
  EXPECT_EQ(choose(64), "panels");
  EXPECT_EQ(choose(72), "panels");
  EXPECT_EQ(choose(65), "any");
}

/// Rows are few where all batches have few, or where each has no more than a
/// block of few.
TEST(PlanCudaLaunch, RowsOfAllBatchesAreCounted) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand side;
  side.rank = 2;
  side.elementBytes = 2;
  kernel.operands = {side, side};
  kernel.operands[1].word = 7;
  kernel.rowProduct = CudaRowProduct{CudaExtent{0, 0, 1}, {0, 1}, {1, 1}};
  kernel.stream = CudaExtent{1, 0, 1};
  CudaEntry many;
  many.name = "many";
  many.threads = 256;
  many.rows = 64, many.columns = 128, many.copied = 8;
  many.fewestRows = 513;
  CudaEntry few = many;
  few.name = "few";
  few.rows = 16;
  few.fewestRows = 0;
  kernel.entries = {many, few};
  auto choose = [&](int64_t batches, int64_t rows) {
    kernel.rows = {CudaExtent{-1, 0, batches}};
    int64_t words[] = {0, 1 << 20, 0, rows, 4096, 4096, 1,
                       0, 2 << 20, 0, 128,  4096, 4096, 1};
    return chosen(kernel, words);
  };
  EXPECT_EQ(choose(1, 512), "few");
  EXPECT_EQ(choose(1, 513), "many");
  EXPECT_EQ(choose(32, 512), "many");
  EXPECT_EQ(choose(64, 17), "many");
  EXPECT_EQ(choose(64, 16), "few");
}

/// Blocks of many rows are done sooner than those of few only where sums are
/// long for what blocks that share them exchange.
TEST(PlanCudaLaunch, BlocksOfManyRowsHaveToBeWorthIt) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand side;
  side.rank = 2;
  side.elementBytes = 2;
  kernel.operands = {side, side};
  kernel.operands[1].word = 7;
  kernel.rowProduct = CudaRowProduct{CudaExtent{0, 0, 1}, {0, 1}, {1, 1}};
  kernel.stream = CudaExtent{1, 0, 1};
  CudaEntry many;
  many.name = "many";
  many.threads = 256;
  many.rows = 64, many.copied = 8;
  many.mostBlocks = 132;
  many.fewestRows = 65;
  CudaEntry few = many;
  few.name = "few";
  few.rows = 16;
  few.fewestRows = 0;
  auto choose = [&](int columns, int64_t rows, int64_t depth) {
    many.columns = few.columns = columns;
    kernel.entries = {many, few};
    int64_t words[] = {0, 1 << 20, 0, rows,    depth, depth, 1,
                       0, 2 << 20, 0, columns, depth, depth, 1};
    return chosen(kernel, words);
  };
  // As measured (benchmarks/results/cuda-product-rows.md).
  EXPECT_EQ(choose(256, 256, 7168), "few");
  EXPECT_EQ(choose(256, 512, 4096), "few");
  EXPECT_EQ(choose(256, 512, 7168), "many");
  EXPECT_EQ(choose(256, 1024, 4096), "many");
  EXPECT_EQ(choose(128, 512, 4096), "few");
  EXPECT_EQ(choose(128, 1024, 2048), "few");
  EXPECT_EQ(choose(128, 1024, 4096), "many");
  EXPECT_EQ(choose(64, 256, 4096), "few");
  EXPECT_EQ(choose(64, 512, 4096), "many");
  // Whatever the sum: a block of 64 rows would be alone.
  EXPECT_EQ(choose(64, 64, 1 << 20), "few");
}

/// Sums of rows that few blocks have are shared by more of them: as many as the
/// sums are long for, whole steps each, and no more than the GPU has.
TEST(PlanCudaLaunch, BlocksShareLongSumsOfFewRows) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand side;
  side.rank = 2;
  side.elementBytes = 2;
  kernel.operands = {side, side};
  kernel.operands[1].word = 7;
  kernel.rowProduct = CudaRowProduct{CudaExtent{0, 0, 1}, {0, 1}, {1, 1}};
  kernel.stream = CudaExtent{1, 0, 1};
  kernel.parameters = {{CudaParameter::Workspace, 0, 0},
                       {CudaParameter::Tickets, 0, 0}};
  CudaEntry entry;
  entry.name = "any";
  entry.threads = 256;
  entry.rows = 64, entry.columns = 128, entry.copied = 1;
  entry.sharedBytes = 8 * (64 + 128) * 128;
  entry.mostBlocks = 132;
  entry.leftBytes = 64 * 128 * 4;
  kernel.entries = {entry};
  auto blocks = [&](int64_t rows, int64_t depth) -> int64_t {
    int64_t words[] = {0, 1 << 20, 0, rows, depth, depth, 1,
                       0, 2 << 20, 0, 128,  depth, depth, 1};
    auto launch = planCudaLaunch(kernel, words, std::nullopt, {4096, 8192});
    EXPECT_TRUE(bool(launch));
    if (!*launch)
      return 0;
    EXPECT_EQ((*launch)->values, (std::vector<int64_t>{4096, 8192}));
    int64_t groups = (rows + 63) / 64, all = (*launch)->blocks;
    EXPECT_EQ(all % groups, 0);
    EXPECT_EQ(cudaWorkspaceBytes(kernel, words),
              all > groups ? all * entry.leftBytes : 0);
    return all;
  };
  EXPECT_EQ(blocks(0, 4096), 0);
  EXPECT_EQ(blocks(64, 0), 1);
  EXPECT_EQ(blocks(64, 512), 1); // done before another block has come
  int64_t few = blocks(64, 4096), long_ = blocks(64, 1 << 20);
  EXPECT_GT(few, 4);
  EXPECT_LE(few, 64); // steps
  EXPECT_GT(long_, few);
  EXPECT_LE(long_, 132);
  // One row is added up by one block, 64 in slices.
  EXPECT_GT(blocks(1, 4096), 4);
  EXPECT_GE(few, blocks(1, 4096));
  EXPECT_GT(blocks(1, 1 << 16), blocks(1, 4096));
  EXPECT_EQ(blocks(66 * 64, 1 << 20), 132);
  EXPECT_EQ(blocks(67 * 64, 1 << 20), 67);
  EXPECT_EQ(blocks(200 * 64, 1 << 20), 200);
  EXPECT_EQ(describeCudaLaunch(kernel).tickets, 132u);
}

/// Two operands of 16 bits with two dimensions, one word after the other; the
/// stream is the first dimension of the second.
static CudaKernel kernelOfTwoSides() {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand side;
  side.rank = 2;
  side.elementBytes = 2;
  kernel.operands = {side, side};
  kernel.operands[1].word = 7;
  kernel.stream = CudaExtent{1, 0, 1};
  return kernel;
}

/// A stream has as many parts as what a tile takes and what a part takes say:
/// of few rows one or down to a tile each, where results are wide fewer.
TEST(PlanCudaLaunch, StreamsHaveThePartsThatAreDoneFirst) {
  CudaKernel kernel = kernelOfTwoSides();
  kernel.tiles = CudaTiles{};
  kernel.tiles->depth = kernel.tiles->width = CudaExtent{1, 1, 1};
  kernel.tiles->groups = {{CudaExtent{0, 0, 1}, 1}};
  CudaEntry entry;
  entry.name = "any";
  entry.threads = 128;
  entry.rows = 16;
  entry.width = 1;
  entry.vectors = 64;
  entry.mostBlocks = 132;
  entry.leftBytes = 1024;
  auto blocks = [&](int64_t streams, int64_t length, int roles) -> int64_t {
    entry.roles = roles;
    entry.deepest = roles ? 576 : 128;
    entry.widest = roles ? 512 : 128;
    kernel.entries = {entry};
    int64_t words[] = {0, 1 << 20, 0, streams, 64, 64, 1,
                       0, 2 << 20, 0, length,  64, 64, 1};
    auto launch = planCudaLaunch(kernel, words, std::nullopt, {4096, 8192});
    EXPECT_TRUE(bool(launch));
    return (*launch)->blocks;
  };
  EXPECT_EQ(blocks(8, 256, 0), 8);
  EXPECT_EQ(blocks(8, 512, 0), 8 * 8);
  EXPECT_EQ(blocks(8, 1024, 0), 8 * 16);
  EXPECT_EQ(blocks(8, 8192, 0), 8 * 16);
  EXPECT_EQ(blocks(32, 2048, 0), 32 * 4);
  EXPECT_EQ(blocks(200, 2048, 0), 200);
  EXPECT_EQ(blocks(2, 1024, 3), 2 * 16);
  EXPECT_EQ(blocks(2, 2048, 3), 2 * 32);
  EXPECT_EQ(blocks(6, 1024, 3), 6 * 8);
  EXPECT_EQ(blocks(2, 8192, 3), 2 * 32);
  EXPECT_EQ(blocks(2, 32768, 3), 2 * 64);
  EXPECT_EQ(blocks(2, 128, 3), 2);
  EXPECT_EQ(blocks(2, 320, 3), 2 * 5);
  EXPECT_EQ(blocks(2, 384, 3), 2 * 6);
  EXPECT_EQ(blocks(32, 8192, 3), 32 * 4);
  EXPECT_EQ(blocks(128, 4096, 3), 128);
}

/// Where streams have lengths of their own there are blocks for further parts,
/// but no more than parts are worth having, and one for every group.
TEST(PlanCudaLaunch, StreamsOfTheirOwnHaveFurtherBlocks) {
  CudaKernel kernel = kernelOfTwoSides();
  kernel.tiles = CudaTiles{};
  kernel.tiles->depth = kernel.tiles->width = CudaExtent{1, 1, 1};
  kernel.parameters = {{CudaParameter::Workspace, 0, 0},
                       {CudaParameter::Tickets, 0, 0}};
  CudaEntry entry;
  entry.name = "any";
  entry.threads = 128;
  entry.rows = 16;
  entry.width = 1;
  entry.vectors = 64; // a part has 256 of the stream or more
  entry.deepest = entry.widest = 64;
  entry.mostBlocks = 132;
  entry.mostGroups = 256;
  entry.leftBytes = 1024;
  kernel.entries = {entry};
  auto blocks = [&](int64_t streams, int64_t length, bool hasOwn) -> int64_t {
    kernel.tiles->groups = {{CudaExtent{0, 0, 1}, 1, hasOwn}};
    int64_t words[] = {0, 1 << 20, 0, streams, 64, 64, 1,
                       0, 2 << 20, 0, length,  64, 64, 1};
    auto launch = planCudaLaunch(kernel, words, std::nullopt, {4096, 8192});
    EXPECT_TRUE(bool(launch));
    EXPECT_EQ(cudaWorkspaceBytes(kernel, words),
              streams <= 256 ? (*launch)->blocks * 1024 : 0);
    return (*launch)->blocks;
  };
  EXPECT_EQ(blocks(1, 1 << 20, true), 132); // all of one length
  EXPECT_EQ(blocks(16, 8192, true), 264);
  EXPECT_EQ(blocks(16, 8192, false), 128);
  EXPECT_EQ(blocks(16, 600, true), 48);
  EXPECT_EQ(blocks(200, 8192, true), 332);
  EXPECT_EQ(blocks(300, 8192, true), 300);
  EXPECT_EQ(blocks(3, 0, true), 3);
  EXPECT_EQ(describeCudaLaunch(kernel).tickets, 388u);
}

/// Of tiles whose columns alone differ, those that walk less of short streams.
TEST(PlanCudaLaunch, ShortStreamsHaveTilesThatFit) {
  CudaKernel kernel = kernelOfTwoSides();
  CudaEntry narrow;
  narrow.name = "narrow";
  narrow.threads = narrow.rows = 128;
  narrow.width = 1;
  narrow.deepest = narrow.widest = 64;
  narrow.vectors = 64;
  CudaEntry broad = narrow;
  broad.name = "broad";
  broad.vectors = 80;
  kernel.entries = {narrow, broad};
  auto choose = [&](int64_t length, bool isGrowing) {
    kernel.tiles = CudaTiles{};
    kernel.tiles->rows = CudaExtent{0, 0, 1};
    kernel.tiles->depth = kernel.tiles->width = CudaExtent{1, 1, 1};
    kernel.tiles->isGrowing = isGrowing;
    int64_t words[] = {0, 1 << 20, 0, length, 64, 64, 1,
                       0, 2 << 20, 0, length, 64, 64, 1};
    return chosen(kernel, words);
  };
  // As measured (benchmarks/results/cuda-tiles.md).
  EXPECT_EQ(choose(512, false), "narrow");
  EXPECT_EQ(choose(1000, false), "broad");
  EXPECT_EQ(choose(1024, false), "broad");
  EXPECT_EQ(choose(4096, false), "broad");
  EXPECT_EQ(choose(512, true), "narrow");
  EXPECT_EQ(choose(2048, true), "narrow");
  EXPECT_EQ(choose(4096, true), "broad");
}

TEST(PlanCudaLaunch, LibrariesComputeF32AndLargeProducts) {
  CudaKernel kernel;
  for (unsigned i = 0; i < 3; ++i) {
    CudaOperand side;
    side.word = i * 7;
    side.rank = 2;
    kernel.operands.push_back(side);
  }
  CudaEntry entry;
  entry.rows = entry.columns = 64;
  kernel.entries = {entry};
  kernel.product = CudaProduct{};
  EXPECT_FALSE(describeCudaLaunch(kernel).product);
  auto wants = [&](DType sides, int64_t m, int64_t k, int64_t n) {
    kernel.product->library = CudaProduct::Library{sides, sides, false};
    std::vector<int64_t> words = {0, 0, 0, m, k, k, 1, 0, 0, 0, k,
                                  n, n, 1, 0, 0, 0, m, n, n, 1};
    package::DeviceKernel described = describeCudaLaunch(kernel);
    TermValues sizes;
    sizes.start(described.sizes, words);
    return sizes[described.product->condition].value_or(0);
  };
  EXPECT_EQ(wants(DType::F32, 1, 16, 16), 1);
  EXPECT_EQ(wants(DType::F16, 128, 384, 1536), 0);
  EXPECT_EQ(wants(DType::BF16, 4096, 4096, 1023), 0);
  EXPECT_EQ(wants(DType::BF16, 4096, 4096, 1024), 1);
  EXPECT_EQ(wants(DType::F16, int64_t(1) << 40, int64_t(1) << 40, 1), 0);
}

TEST(FindCudaTarget, KnowsItsNames) {
  for (const char *name : {"cuda-emulated", "cuda-sm80", "cuda-sm90"}) {
    auto target = findCudaTarget(name);
    ASSERT_TRUE(bool(target));
    EXPECT_TRUE(target->has_value());
  }
  auto other = findCudaTarget("avx2");
  ASSERT_TRUE(bool(other));
  EXPECT_FALSE(other->has_value());
  EXPECT_NE(llvm::toString(findCudaTarget("cuda-sm70").takeError())
                .find("expected cuda, cuda-emulated"),
            std::string::npos);
}
