// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel over tiles in the emulator, and the same with a defect
// planted in its text or in the tile level: each has to be reported, or to give
// a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

const Shapes kShapes = {{3, 2}, {16, 64}, {150, 150}, {20, 300}, {260, 200}};

class PlantedTileDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedTileDefect, IsCaught) {
  CudaKernel kernel = printWeighted("cuda-emulated");
  carryHeader(kernel, "refold_cuda_tiles.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H");
  plant(kernel, GetParam());
  expectCaught(judge(kernel, kShapes), GetParam());
}

const std::vector<Defect> kDefects = {
    // Copies and barriers.
    Defect{"wait_copies<0>();", ""}, Defect{"wait_copies<0>", "wait_copies<1>"},
    Defect{"block_barrier();", ""},
    Defect{"block_barrier();", "if (thread() < 32) block_barrier();"},
    Defect{"commit_copies();\n", ";\n"}, Defect{"place ^ 1", "place"},
    Defect{"(end - 1 - at) & 1", "0"},
    Defect{"n_first - (has_next ? kColumns : 0)", "n_first"},
    Defect{"i * parts / kPasses != part", "i * parts / kPasses != 0"},
    Defect{"first + i * kStep >= To::kRows", "false"},
    // Fragments.
    Defect{"at % 4 * 2 + e", "at % 4 * 2 + 1 - e"},
    Defect{"at % 32 / 4 + half * 8", "at % 32 / 4 + half * 4"},
    Defect{"lane / 8 % 2);", "0);"}, Defect{"lane / 16 * 8,", "lane / 16 * 4,"},
    Defect{"at + chunks * 16", "at"},
    Defect{"load_rows<Left>(kept[k]", "load_rows<Left>(kept[0]"},
    Defect{"load_transposed(r", "load_matrices(r"},
    Defect{"r[2], r[3], T{}", "r[3], r[2], T{}"},
    Defect{"to[tile][2 + half]", "to[tile][3 - half]"},
    Defect{"add_1_values + c * 16 *", "add_1_values + 0 *"},
    Defect{"left_tile + thread() / 32 *", "left_tile + 0 *"},
    // Transports.
    Defect{"add_1_moved = add_1 * ", "add_1_moved = add_1; (void)"},
    Defect{"add_2_moved = s.add_2 * ", "add_2_moved = s.add_2; (void)"},
    Defect{"s.max_0 = max_0_tile[i];", ""},
    Defect{"(s.max_0 - max_0_tile[i])", "(max_0_tile[i] - s.max_0)"},
    Defect{"max_0_tile[i] * kept_scale", "max_0_tile[i]"},
    Defect{"<= kLargePivot", "< infinity()"}, Defect{"pivots[i] = 0.0f;", ""},
    Defect{"kept_scale, -pivots[i]", "kept_scale, 0.0f"},
    Defect{"if (any_lane(moves_1))", "if (moves_1 && any_lane(true))"},
    // Lanes of a row.
    Defect{"shuffle_xor(max_0_tile[i], 2)", "max_0_tile[i]"},
    Defect{"shuffle_xor(s.add_2, 1)", "0.0f"},
    Defect{"mask < 4; mask *= 2", "mask < 2; mask *= 2"},
    // Edges.
    Defect{"|| column < limit;", "|| true;"},
    Defect{"at < whole_end", "at < end"},
    Defect{"m_at < m_end", "m_at <= m_end"}, Defect{"at < bytes", "true"},
    Defect{"n_end = smaller(n_end, bound_0(m_end - 1))",
           "n_end = smaller(n_end, bound_0(m_first))"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedTileDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedTiles, AGeneratedKernelIsRight) {
  EXPECT_EQ(judge(printWeighted("cuda-emulated"), kShapes), "");
}

TEST(EmulatedTiles, TheTextIsTheSameEveryTime) {
  EXPECT_EQ(printWeighted("cuda-emulated").text,
            printWeighted("cuda-emulated").text);
}

TEST(PlanTiles, TakesTheFirstEntryWithRoomAndVectors) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand x;
  x.rank = 2;
  x.elementBytes = 2;
  x.hasVectors = true;
  kernel.operands = {x};
  CudaTiles tiles;
  tiles.rows = CudaExtent{0, 0, 1};
  tiles.depth = CudaExtent{0, 1, 1};
  kernel.tiles = tiles;
  kernel.stream = CudaExtent{0, 0, 1};
  CudaEntry entry;
  entry.threads = 128;
  entry.rows = 128;
  entry.width = 8;
  entry.deepest = 64;
  entry.sharedBytes = 4096;
  kernel.entries = {entry, entry, entry};
  kernel.entries[0].name = "near";
  kernel.entries[1].name = "deep";
  kernel.entries[1].deepest = 128;
  kernel.entries[2].name = "single";
  kernel.entries[2].width = 1;
  int64_t words[7] = {0, 1 << 20, 0, 300, 64, 64, 1};
  auto choose = [&]() -> int {
    auto launch = planCudaLaunch(kernel, words);
    if (!launch)
      return llvm::consumeError(launch.takeError()), -1;
    EXPECT_EQ((*launch)->blocks, 3);
    EXPECT_EQ((*launch)->threads, 128);
    EXPECT_EQ((*launch)->sharedBytes, 4096);
    return int((*launch)->entry);
  };
  EXPECT_EQ(choose(), 0);
  words[4] = words[5] = 72;
  EXPECT_EQ(choose(), 1);
  words[4] = 63;
  words[5] = 64;
  EXPECT_EQ(choose(), 2);
  words[4] = 65;
  EXPECT_EQ(choose(), -1);
  auto launch = planCudaLaunch(kernel, words);
  EXPECT_NE(llvm::toString(launch.takeError()).find("[cuda-not-tiles]"),
            std::string::npos);
  // Results that are as wide as the products are deep.
  kernel.tiles->width = kernel.tiles->depth;
  kernel.entries[0].widest = kernel.entries[2].widest = 64;
  kernel.entries[1].widest = 72;
  words[4] = words[5] = 72;
  EXPECT_EQ(choose(), 1);
  words[4] = words[5] = 80;
  EXPECT_EQ(choose(), -1);
}

// Masks of a finite number, beside which the first row sees nothing.
std::string judgeLow(const CudaKernel &kernel) {
  return judge(kernel, {{20, 300}, {150, 150}}, 32, 24, nullptr, false, "",
               true);
}

class PlantedLowTileDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedLowTileDefect, IsCaught) {
  CudaKernel kernel =
      printWeighted("cuda-emulated", 32, 24, false, "", "-3.40282347E+38");
  carryHeader(kernel, "refold_cuda_tiles.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H");
  plant(kernel, GetParam());
  expectCaught(judgeLow(kernel), GetParam());
}

const std::vector<Defect> kLowDefects = {
    Defect{"if (!any_of_block<kWarps>(is_low))", "if (true)"},
    Defect{"    end = n_all_end >",
           "    (void)n_all_end; if (false) end = n_all_end >"},
    Defect{"    s = States();", "    ;"},
    Defect{"bring(int64_t(end - 1) * kColumns, 0);\n  }", ";\n  }"},
    Defect{"any |= of_warps.load(warp);", "any = of_warps.load(warp);"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedLowTileDefect,
                         testing::ValuesIn(chosenDefects(kLowDefects, 3)));

TEST(EmulatedTiles, WhatMasksLeaveOutFollowsForRowsOfNothingElse) {
  EXPECT_EQ(judgeLow(printWeighted("cuda-emulated", 32, 24, false, "",
                                   "-3.40282347E+38")),
            "");
  EXPECT_EQ(
      judgeLow(printWeighted("cuda-emulated", 32, 24, false, "", "-1.0e+09")),
      "");
}

} // namespace
