// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel with roles in the emulator, and the same with a defect
// planted in its text or in the level of panels: each has to be reported, or to
// give a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

// Two groups of four warps in turns, and panels that are not whole.
constexpr int kDepth = 80, kWidth = 72;
constexpr llvm::StringLiteral kEntry = "roles128x128x80x80";
// Rows of a block that see one tile, two, three.
const Shapes kShapes = {{66, 2}, {600, 290}};

CudaKernel printRoles() {
  return printWeighted("cuda-emulated-sm90", kDepth, kWidth);
}
std::string judgeRoles(const CudaKernel &kernel) {
  return judge(kernel, kShapes, kDepth, kWidth, kEntry.data());
}

class PlantedRoleDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedRoleDefect, IsCaught) {
  CudaKernel kernel = printRoles();
  carryHeader(kernel, "refold_cuda_wgmma.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H");
  plant(kernel, GetParam());
  expectCaught(judgeRoles(kernel), GetParam());
}

const std::vector<Defect> kDefects = {
    // Fences, waits, phases.
    Defect{"show_matrices();", ""},
    Defect{"wait_products<kind.value == FirstOfAll ? 0 : 1>",
           "wait_products<1>"},
    Defect{"wait_gate(left_came + 8 * left, (lefts / kLefts) & 1);", ""},
    Defect{"begin_products();\n", "\n"},
    Defect{"wait_gate(right_came + 8 * (place ^ 1), ((turn + 1) / 2) & 1);",
           ""},
    Defect{"((turn + 1) / 2) & 1", "(turn / 2) & 1"},
    Defect{"wait_gate(values_came + 8 * place, (turn / 2) & 1);", ""},
    Defect{"values_came + 8 * place, (turn / 2)",
           "values_came + 8 * place, (turn / 2 + 1)"},
    Defect{"(turn / 2 + 1) & 1", "(turn / 2) & 1"},
    Defect{"arrive_with_copies(right_came + 8 * place);",
           "arrive(right_came + 8 * place);"},
    Defect{"wait_gate(right_left + 8 * place, parity);", ""},
    Defect{"wait_gate(values_left + 8 * place, parity);", ""},
    Defect{"lefts / kLefts + 1) & 1", "lefts / kLefts) & 1"},
    Defect{"++lefts;", ";"}, Defect{"turns += end - begin;", ";"},
    Defect{"4 * kConsumers);", "4);"},
    Defect{"_came + 8 * place, 128)", "_came + 8 * place, 64)"},
    Defect{"block_barrier();", ""},
    // Released before it is read, or never.
    Defect{"wait_products<kind.value == FirstOfAll ? 0 : 1>();\n",
           "if (which % 32 == 0)\n  arrive(right_left + 8 * place);\n"
           "wait_products<kind.value == FirstOfAll ? 0 : 1>();\n"},
    Defect{"multiply_values(turn - 1, place ^ 1);\n",
           "multiply_values(turn - 1, place ^ 1);\nif (which % 32 == 0)\n"
           "  arrive(values_left + 8 * (place ^ 1));\n"},
    Defect{"if (which % 32 == 0) {", "if (which % 64 == 0) {"},
    Defect{"arrive(left_left + 8 * left);", ";"},
    Defect{"arrive(values_left + 8 * place);", ";"},
    Defect{"of_warp(lefts % kLefts)", "0"},
    // Turns, registers, where a block goes.
    Defect{"await_turn(1, 256);", ";"},
    Defect{"pass_turn(2 - consumer, 256);", ";"},
    Defect{"1 + consumer, 256", "1, 256"}, Defect{"? 160 : 232", "? 168 : 240"},
    Defect{"last = count - 1 - pair;", "last = pair;"},
    Defect{"kIsGrowing ? n / 2 : n", "n"},
    // Panels.
    Defect{"((chunk ^ row) & 7) * 16", "(chunk & 7) * 16"},
    Defect{"k % 4 * 32", "k % 4 * 64"},
    Defect{"uint64_t(1024 >> 4)", "uint64_t(512 >> 4)"},
    Defect{"uint64_t(1) << 62", "uint64_t(2) << 62"},
    Defect{"k * 16 * Values::kRowBytes", "k * 8 * Values::kRowBytes"},
    Defect{"row + first < rows", "row + first <= rows"},
    Defect{"consumer * 64 *", "0 * 64 *"},
    Defect{"bring(Number<kChunks % 8>{}, kWhole);", ";"},
    // Factors and transports.
    Defect{"is_moved = any_lane(moves_1);", "is_moved = false;"},
    Defect{"*= moved_by[c % 4 / 2]", "*= 1.0f"},
    Defect{"products[0][2 * c + word / 2][word % 2 * 2],",
           "products[0][2 * c][word % 2 * 2],"},
    Defect{"multiply_values(turn, of_warp(turn & 1));", ""},
    Defect{"finish(done, before);", "finish(done, {0, 0});"},
    Defect{"before = visit;", ";"}, Defect{"|| column < limit;", "|| true;"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedRoleDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedRoles, AGeneratedKernelIsRight) {
  EXPECT_EQ(judgeRoles(printRoles()), "");
}

TEST(EmulatedRoles, ThreeGroupsAreRightToo) {
  EXPECT_EQ(judge(printWeighted("cuda-emulated-sm90"), kShapes, 32, 24,
                  "roles192x128x32x32"),
            "");
}

TEST(EmulatedRoles, TheTextIsTheSameEveryTime) {
  EXPECT_EQ(printRoles().text, printRoles().text);
}

TEST(EmulatedRoles, OlderTargetsAndFewRowsHaveNone) {
  CudaKernel kernel = printRoles();
  // The first one that takes a launch is taken: few rows share their stream.
  ASSERT_GE(kernel.entries.size(), 3u);
  EXPECT_EQ(kernel.entries[0].name, "weighted_parts16x64x80x80x8");
  EXPECT_EQ(kernel.entries[1].name, "weighted_parts16x64x80x80x1");
  EXPECT_EQ(kernel.entries[2].name, "weighted_roles128x128x80x80");
  EXPECT_EQ(kernel.entries[2].fewestRows, 65);
  EXPECT_EQ(printWeighted("cuda-emulated", kDepth, kWidth).text.find("wgmma"),
            std::string::npos);
}

} // namespace
