// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel over tiles whose results are wide and whose rows are
// shared, in the emulator, and the same with a defect planted in its text or in
// the level of panels: each has to be reported, or to give a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

// The second half of the sums has fewer columns than the first; of the left
// side's panels one is in registers, and the last one is not whole.
constexpr int kDepth = 400, kWidth = 136;
constexpr llvm::StringLiteral kEntry = "wide64x64x400x144";
// A tile that is ragged; more tiles than places, in one part and in several.
const Shapes kShapes = {{2, 3}, {66, 100}, {3, 600}};

CudaKernel printWide() {
  return printWeighted("cuda-emulated-sm90", kDepth, kWidth,
                       /*isShared=*/true);
}
std::string judgeWide(const CudaKernel &kernel) {
  return judge(kernel, kShapes, kDepth, kWidth, kEntry.data(),
               /*isShared=*/true);
}

class PlantedWideDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedWideDefect, IsCaught) {
  CudaKernel kernel = printWide();
  carryHeader(kernel, "refold_cuda_wgmma.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H");
  plant(kernel, GetParam());
  expectCaught(judgeWide(kernel), GetParam());
}

const std::vector<Defect> kDefects = {
    // What is handed over: who waits, who has read, what.
    Defect{"await_turn(2, 384); // all have read what was there", ""},
    Defect{"pass_turn(2, 384);\n      if", "if"},
    Defect{"pass_turn(1, 384);", ""}, Defect{"await_turn(1, 384);", ""},
    Defect{"await_turn(2, 384); // that nobody has taken", ""},
    Defect{"pass_turn(2, 384); // nobody has anything to read yet", ""},
    Defect{"store_rows<Factors>(words, factor_tile + which / 32 * 16",
           "store_rows<Factors>(words, factor_tile + which / 32 * 8"},
    Defect{"[2 * c + word / 2][word % 2 * 2],", "[2 * c][word % 2 * 2],"},
    Defect{"lane % 16, lane / 16), 2 * k), from)",
           "lane % 16, lane / 16), 0), from)"},
    Defect{"shared_moved.store(which / 32 * 16 + fragment_row(i, which), "
           "moved_by[i])",
           "shared_moved.store(which / 32 * 16 + fragment_row(i, which), "
           "1.0f)"},
    Defect{"moved_by[c % 4 / 2];", "moved_by[0];"},
    Defect{"shared_moved.load(which / 32 * 16 + fragment_row(0, which) + 8)",
           "shared_moved.load(which / 32 * 16 + fragment_row(0, which))"},
    // Gates, and what products may read.
    Defect{"show_matrices();", ""}, Defect{"wait_gate(left_came, 0);", ""},
    Defect{"wait_gate(right_came + 8 * Places::place(first_at + i), "
           "Places::parity(first_at + i));",
           ";"},
    Defect{"wait_gate(right_came + 8 * Places::place(first_at + 2 * panel),",
           "wait_gate(right_came + 8 * Places::place(first_at),"},
    Defect{"wait_gate(right_left + 8 * place, Places::parity(at) ^ 1);", ""},
    Defect{"Places::parity(at) ^ 1", "Places::parity(at)"},
    Defect{"make_gate(right_left + 8 * place, 8);",
           "make_gate(right_left + 8 * place, 4);"},
    Defect{"begin_products();\n", "\n"}, Defect{"wait_products<0>();", ""},
    Defect{"wait_products<kGroups - 1 - kGroup>();", ""},
    Defect{"arrive_with_copies(right_came + 8 * place);",
           "arrive(right_came + 8 * place);"},
    Defect{"arrive_with_copies(left_came);", "arrive(left_came);"},
    // Panels: their order, who is done with them, what is in registers.
    Defect{"n % 2 * kHalf + n / 2 : n", "n / 2 * kHalf + n % 2 : n"},
    Defect{"which % 32 < kPanels + kAlone", "which % 32 < kPanels"},
    Defect{"which % 32 - kAlone;", "which % 32 - kPanels;"},
    Defect{"first_at + 2 * panel) * Panel", "first_at + panel) * Panel"},
    Defect{"arrive(right_left + 8 * Places::place(first_at + 2 * panel));",
           "arrive(right_left + 8 * Places::place(first_at));"},
    Defect{"of_warp(kKept + turn * kPanels);", "of_warp(turn * kPanels);"},
    Defect{"thread_again() % 32 < 2", "thread_again() % 32 < 1"},
    Defect{"await_turn(4, 128);", ""},
    Defect{"arrive(right_came + 8 * panel);", ""},
    Defect{"if (panel < kKept)", "if (panel <= kKept)"},
    Defect{"left_tile + (panel - kKept) * Panel::kBytes, right",
           "left_tile + panel * Panel::kBytes, right"},
    Defect{"smaller(4, kDepth / 16 - panel * 4)", "smaller(4, 4)"},
    Defect{"place(row, 2 * k + which % 32 / 16)", "place(row, 2 * k)"},
    Defect{"int(d_count) - column", "int(d_count)"},
    // Halves of the sums.
    Defect{"kKept + turn * kPanels + half", "kKept + turn * kPanels"},
    Defect{"half * kHalf + c * 8", "c * 8"},
    Defect{"if (column < kWidth)", "if (true)"},
    Defect{"fragment_quad(which);", "fragment_quad(which) % 8;"},
    Defect{"(row + i * 8) * kWidth", "row * kWidth"},
    Defect{"await_turn(3, 256);", ""},
    // Parts, rows, the end of the stream.
    Defect{"+ int(row_parts) - 1) /", ") /"},
    Defect{"part_end - 1 - turn;", "part_end - 2 - turn;"},
    Defect{"row_parts == 1 || !is_last_block(tickets + group, row_parts)",
           "row_parts == 1"},
    Defect{"block_remainder(group, packed_blocks) * kRows", "0"},
    Defect{"packed_first + which / 32 * 16 + fragment_row(i, which)",
           "packed_first + fragment_row(i, which)"},
    Defect{"(column < limit &&", "("},
    // Registers, merges.
    Defect{"give_registers<32>", "give_registers<96>"},
    Defect{"s.add_2 = s.add_2 + shuffle_xor(s.add_2, 1);", ""},
    Defect{"exp2_fast(old.max_0 - s.max_0)", "1.0f"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedWideDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedWide, AGeneratedKernelIsRight) {
  EXPECT_EQ(judgeWide(printWide()), "");
}

TEST(EmulatedWide, RowsThatAreNotSharedHaveNone) {
  for (const char *target : {"cuda-emulated", "cuda-emulated-sm90"}) {
    bool isShared = llvm::StringRef(target) == "cuda-emulated";
    CudaKernel kernel = printWeighted(target, 256, kWidth, isShared);
    EXPECT_EQ(kernel.text.find("_wide"), std::string::npos) << target;
  }
}

} // namespace
