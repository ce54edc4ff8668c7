// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel over tiles whose results are wide and whose rows are
// shared, in the emulator, and the same with a defect planted in its text or in
// the level of panels: each has to be reported, or to give a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

// The second half of the sums has fewer columns than the first.
constexpr int kDepth = 272, kWidth = 136;
constexpr llvm::StringLiteral kEntry = "wide64x32x272x144";
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
    Defect{"pass_turn(2, 384);\n    if", "if"},
    Defect{"pass_turn(1, 384);", ""}, Defect{"await_turn(1, 384);", ""},
    Defect{"await_turn(2, 384); // that nobody has taken", ""},
    Defect{"pass_turn(2, 384); // nobody has anything to read yet", ""},
    Defect{"store_rows<Factors>(words, factor_tile + which / 32 * 16",
           "store_rows<Factors>(words, factor_tile + which / 32 * 8"},
    Defect{"[2 * c + word / 2][word % 2 * 2],", "[2 * c][word % 2 * 2],"},
    Defect{"lane % 16, lane / 16), 2 * k), from)",
           "lane % 16, lane / 16), 0), from)"},
    Defect{"moved_by[i]);\n      pass_turn", "1.0f);\n      pass_turn"},
    Defect{"moved_by[c % 4 / 2];", "moved_by[0];"},
    Defect{"shared_moved.load(which / 32 * 16 + fragment_row(0, which) + 8)",
           "shared_moved.load(which / 32 * 16 + fragment_row(0, which))"},
    // Gates, and what products may read.
    Defect{"show_matrices();", ""}, Defect{"wait_gate(left_came, 0);", ""},
    Defect{"wait_gate(right_came + 8 * place, (turn / kPlaces) & 1);", ""},
    Defect{"wait_gate(right_left + 8 * place, (turn / kPlaces + 1) & 1);", ""},
    Defect{"(turn / kPlaces + 1) & 1", "(turn / kPlaces) & 1"},
    Defect{"make_gate(right_left + 8 * place, 12);",
           "make_gate(right_left + 8 * place, 4);"},
    Defect{"begin_products();\n", "\n"}, Defect{"wait_products<0>();", ""},
    Defect{"arrive_with_copies(right_came + 8 * place);",
           "arrive(right_came + 8 * place);"},
    // Halves of the sums.
    Defect{"(kHalf / 64) * Both", "0 * Both"},
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
    Defect{"give_registers<40>", "give_registers<48>"},
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
