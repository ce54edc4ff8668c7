// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/CompareArrays.h"
#include "refold/Package/LaunchPlan.h"
#include "refold/Support/Tensor.h"
#include "gtest/gtest.h"
#include <cmath>
#include <cstring>

using namespace refold;
using namespace refold::package;

template <typename T> static std::vector<char> bytesOf(std::vector<T> values) {
  std::vector<char> bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

/// Every number of the narrow types is read as a compiler reads it.
TEST(CompareArraysTest, ElementsAreNumbers) {
  for (DType dtype : {DType::F8E4M3, DType::F8E5M2, DType::F16, DType::BF16,
                      DType::I8, DType::U8})
    for (uint32_t bits = 0; bits < (byteWidth(dtype) == 1 ? 0x100 : 0x10000);
         ++bits) {
      auto at = bytesOf<uint16_t>({uint16_t(bits)});
      double found = elementOf(dtype, at.data()),
             expected = loadAsDouble(dtype, at.data());
      ASSERT_TRUE(found == expected ||
                  (std::isnan(found) && std::isnan(expected)))
          << bits << " is " << found << ", expected " << expected;
    }
  EXPECT_EQ(elementOf(DType::F8E4M3, "\x38"), 1.0);
  EXPECT_EQ(elementOf(DType::F8E5M2, "\x38"), 0.5);
}

TEST(CompareArraysTest, FloatsMayDifferByRounding) {
  auto differ = [](std::vector<float> a, std::vector<float> b) {
    return compareArrays(DType::F32, bytesOf(a), bytesOf(b));
  };
  EXPECT_TRUE(differ({1.0f, -100.0f}, {1.0f, -100.0f}).isRounding);
  EXPECT_TRUE(differ({1.0f, 100.005f}, {1.0f, 100.0f}).isRounding);
  EXPECT_FALSE(differ({1.0f, 100.02f}, {1.0f, 100.0f}).isRounding);
  EXPECT_NEAR(differ({1.0f, 102.0f}, {1.0f, 100.0f}).relative, 0.02, 1e-6);
  EXPECT_TRUE(differ({NAN, 1.0f}, {NAN, 1.00001f}).isRounding);
  EXPECT_FALSE(differ({NAN, 1.0f}, {1.0f, 1.0f}).isRounding);
  EXPECT_FALSE(differ({1.0f, 1.0f}, {NAN, 1.0f}).isRounding);
  EXPECT_FALSE(differ({INFINITY}, {-INFINITY}).isRounding);
  EXPECT_FALSE(differ({1e-30f}, {0.0f}).isRounding);
}

TEST(CompareArraysTest, AnUlpOfTheType) {
  auto differ = [](DType dtype, uint16_t a, uint16_t b) {
    return compareArrays(dtype, bytesOf<uint16_t>({a}), bytesOf<uint16_t>({b}))
        .isRounding;
  };
  EXPECT_TRUE(differ(DType::BF16, 0x3f80, 0x3f81));
  EXPECT_FALSE(differ(DType::BF16, 0x3f80, 0x3f83));
  EXPECT_TRUE(differ(DType::F16, 0x3c00, 0x3c01));
  EXPECT_FALSE(differ(DType::F16, 0x3c00, 0x3c03));
  EXPECT_FALSE(differ(DType::BF16, 0xffff, 0x3f80)); // nobody wrote it
  auto differ8 = [](DType dtype, uint8_t a, uint8_t b) {
    return compareArrays(dtype, bytesOf<uint8_t>({a}), bytesOf<uint8_t>({b}))
        .isRounding;
  };
  EXPECT_TRUE(differ8(DType::F8E4M3, 0x38, 0x39)); // 1 and 1.125
  EXPECT_FALSE(differ8(DType::F8E4M3, 0x38, 0x3b));
  EXPECT_FALSE(differ8(DType::F8E4M3, 0x7f, 0x7e)); // NaN and 448
  EXPECT_FALSE(differ8(DType::F8E5M2, 0x7c, 0x7b)); // inf and the largest
  EXPECT_TRUE(differ8(DType::F8E5M2, 0x3c, 0x3d));
}

TEST(CompareArraysTest, IntegersAreTheSameButForQuotientsOf8Bits) {
  EXPECT_FALSE(compareArrays(DType::I32, bytesOf<int32_t>({7, 8}),
                             bytesOf<int32_t>({7, 9}))
                   .isRounding);
  EXPECT_TRUE(compareArrays(DType::I8, bytesOf<int8_t>({-7, 8}),
                            bytesOf<int8_t>({-8, 8}))
                  .isRounding);
  EXPECT_FALSE(compareArrays(DType::I8, bytesOf<int8_t>({-7, 8}),
                             bytesOf<int8_t>({-9, 8}))
                   .isRounding);
  EXPECT_FALSE(
      compareArrays(DType::Bool, bytesOf<uint8_t>({1}), bytesOf<uint8_t>({0}))
          .isRounding);
}

namespace {
/// A kernel whose words are: whether vectors fit, rows, elements of a row. Four
/// ways: vectors in registers, the same in chunks that are read again, parts of
/// rows, and whatever comes.
class LegalWaysTest : public ::testing::Test {
protected:
  LegalWaysTest() {
    SizeSharing sharing(kernel.sizes);
    SizeExpr fits = SizeExpr::symbol(0), rows = SizeExpr::symbol(1),
             length = SizeExpr::symbol(2);
    SizeNumber one = sharing.add(1);
    auto add = [&](const char *name, const SizeExpr &condition,
                   const SizeExpr &legal, const SizeExpr &blocks) {
      LaunchWay &way = launch.ways.emplace_back();
      way.entry = name;
      way.condition = sharing.add(condition);
      way.legal = sharing.add(legal);
      way.grid = {sharing.add(blocks), one, one};
      way.block = {sharing.add(256), one, one};
      way.sharedBytes = sharing.add(0);
      way.shape.threads = 256;
      way.shape.vectors = 4;
      way.shape.width = 4;
      way.shape.place = WayShape::Registers;
    };
    add("registers", fits, fits, rows);
    add("again", 0, fits, rows);
    launch.ways.back().shape.place = WayShape::Nowhere;
    add("parts", 0, 1, rows * SizeExpr(8));
    FreeBlocks &free = launch.ways.back().freeBlocks.emplace();
    free.unit = sharing.add(rows);
    free.pieces = sharing.add(
        SizeExpr::binary(SizeExpr::Op::CeilDiv, length, SizeExpr(4096)));
    free.most = 512;
    free.leftBytes = 16;
    add("any", 1, 1, rows);
    launch.ways.back().shape.width = 1;
    kernel.workspaceBytes = sharing.add(16 * 64);
    kernel.call.rows = sharing.add(rows);
    kernel.call.length = sharing.add(length);
    DeviceWork &work = kernel.work.emplace();
    work.bytesRead = work.streamBytes = work.bytesWritten =
        sharing.add(rows * length * SizeExpr(4));
    work.sharedBytes = sharing.add(0);
    work.sweeps = 2;
    gpu.major = 9;
    gpu.multiprocessors = 132;
    gpu.sharedBytesPerBlock = 227 << 10;
    gpu.l2Bytes = 50 << 20;
  }
  std::vector<LegalWay> ways(std::vector<int64_t> given) {
    words = std::move(given);
    sizes.start(kernel.sizes, words);
    return legalWays(kernel, launch, sizes, gpu, callWorkOf(kernel, sizes),
                     nullptr);
  }

  DeviceKernel kernel;
  Launch launch;
  GpuFacts gpu;
  TermValues sizes;
  std::vector<int64_t> words;
};
} // namespace

TEST_F(LegalWaysTest, TheDefaultComesFirstAndThenWhatTakesLess) {
  std::vector<LegalWay> found = ways({1, 100000, 16384});
  ASSERT_GE(found.size(), 4u);
  EXPECT_EQ(found[0].choice.entry, "registers");
  EXPECT_TRUE(found[0].isDefault);
  for (size_t i = 1; i < found.size(); ++i) {
    EXPECT_FALSE(found[i].isDefault);
    EXPECT_GT(found[i].predictedMs, 0.0);
    if (i > 1)
      EXPECT_LE(found[i - 1].predictedMs, found[i].predictedMs);
  }
  // What is read again takes longer.
  EXPECT_LT(found[0].predictedMs, found.back().predictedMs);
}

TEST_F(LegalWaysTest, NothingThatIsNotLegal) {
  for (const LegalWay &way : ways({0, 10, 4097})) {
    EXPECT_NE(way.choice.entry, "registers");
    EXPECT_NE(way.choice.entry, "again");
  }
  LaunchChoice asked{"registers", 0};
  EXPECT_EQ(chooseWay(launch, sizes, gpu, &asked)->entry, "any");
  asked.entry = "parts";
  EXPECT_EQ(chooseWay(launch, sizes, gpu, &asked)->entry, "parts");
  asked.entry = "none";
  EXPECT_EQ(chooseWay(launch, sizes, gpu, &asked)->entry, "any");
  gpu.sharedBytesPerBlock = -1;
  EXPECT_TRUE(ways({1, 10, 4096}).empty());
}

TEST_F(LegalWaysTest, BlocksThatHaveSomethingAndRoom) {
  auto blocksOf = [&](std::vector<int64_t> given) {
    std::vector<int64_t> blocks;
    for (const LegalWay &way : ways(std::move(given)))
      if (way.choice.entry == "parts")
        blocks.push_back(way.choice.blocks);
    std::sort(blocks.begin(), blocks.end());
    return blocks;
  };
  using Blocks = std::vector<int64_t>;
  EXPECT_EQ(blocksOf({1, 4, 1 << 20}), Blocks({0, 16, 64}));
  EXPECT_EQ(blocksOf({1, 4, 5 * 4096}), Blocks({0, 12, 20})); // 3 and 5 parts
  EXPECT_EQ(blocksOf({1, 8, 1 << 20}), Blocks({0, 32})); // no workspace for 128
  EXPECT_EQ(blocksOf({1, 4, 0}), Blocks({0}));           // no pieces
  WaySizes grid;
  for (int64_t asked : {-1, 0, 3, 7, 128, 1 << 30}) {
    ways({1, 4, 1 << 20});
    grid.grid = {32, 1, 1};
    setBlocks(grid, launch.ways[2], sizes, 16 * 64, asked);
    EXPECT_EQ(grid.grid[0], 32) << asked;
  }
  setBlocks(grid, launch.ways[2], sizes, 16 * 64, 16);
  EXPECT_EQ(grid.grid[0], 16);
  setBlocks(grid, launch.ways[0], sizes, 16 * 64, 4); // it takes no others
  EXPECT_EQ(grid.grid[0], 16);
}
