// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel over tiles whose results are wide and whose rows are
// shared, in the emulator, and the same with a defect planted in its text or in
// the level of panels: each has to be reported, or to give a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

// The second half of the sums has fewer columns than the first; of the left
// side some is not in registers, and the last panel is not whole. Five panels
// of a tile are read by no sums.
constexpr int kDepth = 408, kWidth = 104; // rows of 424 would be equal
constexpr llvm::StringLiteral kEntry = "wide64x64x416x112";
// A tile that is ragged; more tiles than places, in one part and in several;
// more rows than blocks share.
const Shapes kShapes = {{2, 3}, {66, 100}, {3, 900}, {150, 160}};

CudaKernel printWide() {
  CudaKernel kernel = printWeighted("cuda-emulated-sm90", kDepth, kWidth,
                                    /*isShared=*/true);
  for (CudaEntry &entry : kernel.entries)
    entry.mostBlocks = 2; // parts long enough for places to be used again
  return kernel;
}
std::string judgeWide(const CudaKernel &kernel) {
  return judge(kernel, kShapes, kDepth, kWidth, kEntry.data(),
               /*isShared=*/true);
}

class PlantedWideDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedWideDefect, IsCaught) {
  CudaKernel kernel = printWide();
  carryHeader(kernel, "refold_cuda_wide.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WIDE_H");
  plant(kernel, GetParam());
  expectCaught(judgeWide(kernel), GetParam());
}

const std::vector<Defect> kDefects = {
    // What is handed over: who waits, who has read, what.
    Defect{"await_turn(3 + turn % 2, 384); // all have read what was there",
           ";"},
    Defect{"pass_turn(2 - turn % 2, 384);", ";"},
    Defect{"pass_turn(2 - turns % 2, 384);", ";"},
    Defect{"await_turn(3 + turns % 2, 384);", ";"},
    Defect{"await_turn(1 + slot, 384);", ""},
    Defect{"await_turn(1 + slot, 384);", "await_turn(2 - slot, 384);"},
    Defect{"pass_turn(3 + slot, 384);", ";"},
    Defect{"if (turn + 1 < turns)\n", ""},
    Defect{"which / 32 * 16 + which % 16,\n", "which / 32 * 8 + which % 16,\n"},
    Defect{"2 * k + which % 32 / 16),\n", "which % 32 / 16),\n"},
    Defect{"[2 * c + word / 2][word % 2 * 2],", "[2 * c][word % 2 * 2],"},
    Defect{"fragment_row(i, which), moved_by[i])",
           "fragment_row(i, which), 1.0f)"},
    Defect{"shared_moved.store(slot * kRows +", "shared_moved.store("},
    Defect{"moved_by[c % 4 / 2];", "moved_by[0];"},
    Defect{"shared_moved.load(row + 8)", "shared_moved.load(row)"},
    // Gates, and what products may read.
    Defect{"show_matrices();", ""}, Defect{"wait_gate(left_came, 0);", ""},
    Defect{"wait_gate(right_came + 8 * stage, turn / kStages & 1);\n "
           "       const",
           "const"},
    Defect{"turn / kStages & 1);\n    begin_products", "0); begin_products"},
    Defect{"wait_gate(left, turn / kStages & 1);", ""},
    Defect{"turn / kStages & 1);\n        bring(",
           "(turn / kStages + 1) & 1);\n        bring("},
    Defect{"make_gate(right_left + 16 * stage, 4);",
           "make_gate(right_left + 16 * stage, 3);"},
    Defect{"make_gate(right_came + 8 * stage, kShared);",
           "make_gate(right_came + 8 * stage, kHalves);"},
    Defect{"begin_products();\n", "\n"}, Defect{"wait_products<0>();", ""},
    Defect{"arrive_expecting(right_came + 8 * stage, Panel::kBytes);",
           "arrive_expecting(right_came + 8 * stage, Panel::kBytes / 2);"},
    Defect{"arrive_with_copies(left_came);", "arrive(left_came);"},
    // Panels that sums read, and others.
    Defect{"wait_gate(other_came + 8 * stage, turn / kOtherStages & 1);", ""},
    Defect{"arrive(other_left + 8 * (turn % kOtherStages));", ";"},
    Defect{"wait_gate(other_left, 0);", ""},
    Defect{"/ kOtherStages & 1);\n      bring_other",
           "/ kOtherStages + 1 & 1);\n      bring_other"},
    Defect{"bring_other(turn + 1 + kOtherStages);",
           "bring_other(turn + kOtherStages);"},
    Defect{"other = 7 - half * 4 - mine", "other = 3 - mine"},
    Defect{"(kShared + other) * 128", "other * 128"},
    Defect{"(half * kHalves + mine) * 128", "mine * 128"},
    Defect{"(last_tile - turn) * kColumns", "turn * kColumns"},
    Defect{"pass_turn(5, 384); // tiles may lie over it", ""},
    Defect{"await_turn(5, 384);", "pass_turn(5, 384);"},
    Defect{"kKeptAt / (kShared * Panel::kBytes);", "kStages;"},
    // The left side, kept and not.
    Defect{"if (chunk < kKept * 2)", "if (chunk <= kKept * 2)"},
    Defect{"if (k < kKept)", "if (k <= kKept)"},
    Defect{"Left::place(row, chunk - kKept * 2)", "Left::place(row, chunk)"},
    Defect{"(k - kKept) * Left::kStepBytes", "k * Left::kStepBytes"},
    Defect{"(chunk ^ row >> 2) & 1", "chunk & 1"},
    Defect{"k % 4 * 2 + which % 32 / 16", "k % 4 * 2"},
    Defect{"row < rows && chunk * 8 < columns", "row < rows"},
    // Halves of the sums.
    Defect{"(stage * kShared + half * kHalves) * Panel::kBytes));",
           "(stage * kShared) * Panel::kBytes));"},
    Defect{"half * kHalf + c * 8", "c * 8"},
    Defect{"if (column < kWidth)", "if (true)"},
    Defect{"fragment_quad(which);", "fragment_quad(which) % 8;"},
    Defect{"(row + i * 8) * kWidth", "row * kWidth"},
    Defect{"await_turn(6, 256);", ""},
    // What is left for others, from registers.
    Defect{"if (at < kRows) {", "if (at < kRows / 32) {"},
    Defect{"+ block() * kRows + at,", "+ at,"},
    Defect{"leave_words<16>(left_sums", "leave_words<16>(left_sums + kWidth"},
    Defect{"if (row_parts > 1) {\n      const int at",
           "if (row_parts > 2) {\n      const int at"},
    // Parts, rows, the end of the stream.
    Defect{"+ int(row_parts) - 1) /", ") /"},
    Defect{"part_end - 1 - turn;", "part_end - 2 - turn;"},
    Defect{"slice * slice_rows +", ""}, Defect{"(claimed >> slice & 1)", "1"},
    Defect{"tickets + group * row_parts, part,",
           "tickets + group * row_parts, part + 1,"},
    Defect{"block_remainder(group, packed_blocks) * kRows", "0"},
    Defect{"packed_first + which / 32 * 16 + fragment_row(i, which)",
           "packed_first + fragment_row(i, which)"},
    Defect{"(step < own_limit &&", "("},
    // Registers, merges.
    Defect{"take_registers<", "take_registers<8 + "},
    Defect{"s.add_2 = s.add_2 + shuffle_xor(s.add_2, 1);", ""},
    Defect{"exp2_fast(old.max_0 - s.max_0)", "1.0f"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedWideDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

// Streams of so many parts that slices of the rows are thin: two groups of 32,
// and a number that is no multiple of four.
const Shapes kManyParts = {{66, 2040}, {3, 4470}};

CudaKernel printThin() {
  CudaKernel kernel = printWeighted("cuda-emulated-sm90", kDepth, kWidth,
                                    /*isShared=*/true);
  carryHeader(kernel, "refold_cuda_wide.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WIDE_H");
  return kernel;
}
std::string judgeThin(const CudaKernel &kernel) {
  return judge(kernel, kManyParts, kDepth, kWidth, kEntry.data(),
               /*isShared=*/true);
}

class PlantedThinDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedThinDefect, IsCaught) {
  CudaKernel kernel = printThin();
  plant(kernel, GetParam());
  expectCaught(judgeThin(kernel), GetParam());
}

const std::vector<Defect> kThinDefects = {
    Defect{"wait_copies<kPlaces - 1>();", ""},
    Defect{"part + j < parts", "part + j < parts - 1"},
    Defect{"(place * 4 + j)", "(place * 2 + j)"},
    Defect{"part += 4;", "part += 8;"},
    Defect{"taken = taken + 1 < kPlaces ? taken + 1 : 0;", ""},
    Defect{"+ i / 4 * apart", ""},
    Defect{"which % kSliceRows));", "0));"},
    Defect{"at + i % 4, parts - 1", "at, parts - 1"},
    Defect{"await_turn(6, 256);\n      if (own", "if (own"},
    Defect{"slice * kSliceRows + own_row", "own_row"},
    Defect{"+ slice * kSliceRows;", ";"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedThinDefect,
                         testing::ValuesIn(chosenDefects(kThinDefects)));

TEST(EmulatedWide, ThinSlicesAreRight) {
  EXPECT_EQ(judgeThin(printThin()), "");
}

TEST(EmulatedWide, AGeneratedKernelIsRight) {
  EXPECT_EQ(judgeWide(printWide()), "");
}

/// What ReadWideTest lists as the same without, all of it at once: but for a
/// wait, see there.
TEST(EmulatedWide, IsTheSameWithoutWhatTheVerifierAllows) {
  CudaKernel kernel = printWide();
  for (const Defect &defect :
       {Defect{"& 1);\n        begin_products();\n        multiply_steps<bf16, "
               "Left, Panel, kEnd,",
               "& 1);\n        multiply_steps<bf16, Left, Panel, kEnd,"},
        Defect{"left_steps, right);\n        commit_products();\n        if "
               "constexpr (kOthers == 0)",
               "left_steps, right);\n        if constexpr (kOthers == 0)"},
        Defect{"wait_products<1>();\n", ";\n"},
        Defect{"warp_barrier();\n", ";\n"}})
    plant(kernel, defect);
  EXPECT_EQ(judgeWide(kernel), "");
}

TEST(EmulatedWide, WhatTheLaunchSaysOfArraysMatters) {
  expectMapsMatter(printWide(), kEntry, judgeWide);
}

/// Maps take no rows that lie backwards, and nothing else takes wide results.
TEST(EmulatedWide, RowsThatLieBackwardsAreRefused) {
  CudaKernel kernel = printWide();
  // q, k, what v would be, and o: three rows, three positions.
  int64_t words[28] = {};
  const int64_t columns[] = {kDepth, kDepth, kWidth, kWidth};
  for (int i = 0; i < 4; ++i) {
    const int64_t operand[] = {1 << 20,    1 << 20,    0, 3,
                               columns[i], columns[i], 1};
    std::copy(operand, operand + 7, words + i * 7);
  }
  auto refusal = [&]() {
    auto launch = planCudaLaunch(kernel, words);
    return launch ? std::string() : llvm::toString(launch.takeError());
  };
  EXPECT_EQ(refusal(), "");
  words[7 + 5] = -kDepth;
  EXPECT_NE(refusal().find("found rows that lie backwards, expected those "
                           "after each other where results are wide"),
            std::string::npos)
      << refusal();
  words[7 + 5] = kDepth + 1;
  EXPECT_NE(refusal().find("no whole vectors of 16 bytes"), std::string::npos)
      << refusal();
}

TEST(EmulatedWide, RowsThatAreNotSharedHaveNone) {
  for (const char *target : {"cuda-emulated", "cuda-emulated-sm90"}) {
    bool isShared = llvm::StringRef(target) == "cuda-emulated";
    CudaKernel kernel = printWeighted(target, 256, 136, isShared);
    EXPECT_EQ(kernel.text.find("_wide"), std::string::npos) << target;
  }
}

} // namespace
