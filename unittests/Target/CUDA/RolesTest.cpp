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
// Rows of a block that see one tile, two, three, none.
const Shapes kShapes = {{66, 2}, {600, 290}, {70, 0}};

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
    Defect{"wait_products<1>", "wait_products<2>"},
    Defect{"wait_gate(left_came + 8 * left, (lefts / kLefts) & 1);", ""},
    Defect{"begin_products();\n", "\n"},
    Defect{"wait_gate(right_came + 8 * (place ^ 1), ((turn + 1) / 2) & 1);",
           ""},
    Defect{"((turn + 1) / 2) & 1", "(turn / 2) & 1"},
    Defect{"wait_gate(values_came + 8 * place, (turn / 2) & 1);", ""},
    Defect{"values_came + 8 * place, (turn / 2)",
           "values_came + 8 * place, (turn / 2 + 1)"},
    Defect{"(turn / 2 + 1) & 1", "(turn / 2) & 1"},
    Defect{"  arrive_expecting(gate, To::kBytes);\n  REFOLD_UNROLL\n",
           "  arrive(gate);\n  REFOLD_UNROLL\n"},
    Defect{"wait_gate(right_left + 8 * place, parity);", ""},
    Defect{"wait_gate(values_left + 8 * place, parity);", ""},
    Defect{"lefts / kLefts + 1) & 1", "lefts / kLefts) & 1"},
    Defect{"++lefts;", ";"}, Defect{"turns += end - begin;", ";"},
    Defect{"4 * kConsumers);", "4);"},
    Defect{"values_came + 8 * place, 1)", "values_came + 8 * place, 2)"},
    Defect{"block_barrier();", ""},
    // Released before it is read, or never.
    Defect{"wait_products<1>();\n",
           "if (which % 32 == 0)\n  arrive(right_left + 8 * place);\n"
           "wait_products<1>();\n"},
    Defect{"multiply_values(turn - has_before, place ^ int(has_before));\n",
           "multiply_values(turn - has_before, place ^ int(has_before));\n"
           "if (which % 32 == 0)\n  arrive(values_left + 8 * (place ^ 1));\n"},
    Defect{"settle_sums(place ^ 1, has_before);",
           "settle_sums(place ^ 1, true);"},
    Defect{"!is_first || before.matrix >= 0;", "true;"},
    // One text for first and further tiles.
    Defect{"at + 1 == end, first", "true, first"},
    Defect{"at + 1 == end, first", "false, first"},
    Defect{"bring_together(done);\n          if (has_before)",
           "if (has_before)"},
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
    Defect{"kPanelBytes + i * 32);", "kPanelBytes + i * 64);"},
    Defect{"uint64_t(1024 >> 4)", "uint64_t(512 >> 4)"},
    Defect{"uint64_t(1) << 62", "uint64_t(2) << 62"},
    Defect{"k * 16 * Values::kRowBytes", "k * 8 * Values::kRowBytes"},
    Defect{"consumer * 64 *", "0 * 64 *"},
    // Boxes of what is copied.
    Defect{"panel * 128, row, at...", "panel * 64, row, at..."},
    Defect{"at * kColumns);", "0);"}, Defect{"int(m_first));", "0);"},
    Defect{"maps + 1,", "maps + 2,"}, Defect{"maps + 3,", "maps + 2,"},
    Defect{"bringing >= 3 ||", "bringing >= 2 ||"},
    Defect{"thread_again() % 32 != 0)\n      return",
           "thread_again() % 16 != 0)\n      return"},
    // Factors and transports.
    Defect{"is_moved = any_lane(moves_1);", "is_moved = false;"},
    Defect{"*= moved_by[c % 4 / 2]", "*= 1.0f"},
    Defect{"products[0][2 * c + word / 2][word % 2 * 2],",
           "products[0][2 * c][word % 2 * 2],"},
    Defect{"multiply_values(turns - 1, of_warp((turns - 1) & 1));", ""},
    Defect{"finish(done, before);", "finish(done, {0, 0});"},
    Defect{"before = visit;", ";"}, Defect{"step < own_limit ?", "true ?"},
    Defect{"if (!is_whole) {", "if (is_whole) {"},
    Defect{"some < (is_over ? 1 : 2)", "some < 1"},
    // Results on their way out.
    Defect{"wait_boxes<0>();\n        else", ";\n        else"},
    Defect{"    show_matrices();\n    warp_barrier();\n    if (lane == 0)",
           "    warp_barrier();\n    if (lane == 0)"},
    Defect{"    show_matrices();\n    warp_barrier();\n    if (lane == 0)",
           "    show_matrices();\n    if (lane == 0)"},
    Defect{"commit_boxes();", ""},
    Defect{
        "  if (kIsBoxed && thread_again() % 32 == 0)\n    wait_boxes<0>();\n",
        ""},
    Defect{"(first ^ ((part & 6) << 4))", "(first + ((part & 6) << 4))"},
    Defect{"(panel + i) * 128,", "(panel + i) * 64,"},
    Defect{"const int computing = of_warp(",
           "const int computing = 0 * of_warp("},
    Defect{"words[1][part],", "words[0][part],"},
    Defect{"pack(pair[0], pair[1],", "pack(pair[1], pair[0],"},
    // Sums that begin anew.
    Defect{"      adds = 0;\n", "      ;\n"},
    Defect{"k == 0 ? adds : 1", "adds"}, Defect{"bring_together(done);", ";"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedRoleDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedRoles, WhatTheLaunchSaysOfArraysMatters) {
  expectMapsMatter(printRoles(), kEntry, judgeRoles);
}

// Masks of a finite number, beside which the first row sees nothing: more
// blocks of rows than blocks, and some that need nothing of the first.
const Shapes kLowShapes = {{66, 2}, {700, 290}};

CudaKernel printLow() {
  return printWeighted("cuda-emulated-sm90", kDepth, kWidth, false, "",
                       "-1.0e+09");
}
std::string judgeLow(const CudaKernel &kernel) {
  return judge(kernel, kLowShapes, kDepth, kWidth, kEntry.data(), false, "",
               true);
}

class PlantedLowDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedLowDefect, IsCaught) {
  CudaKernel kernel = printLow();
  carryHeader(kernel, "refold_cuda_tiles.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H");
  plant(kernel, GetParam());
  expectCaught(judgeLow(kernel), GetParam());
}

const std::vector<Defect> kLowDefects = {
    Defect{"if (any_lane(is_low)) {", "if (false) {"},
    Defect{"if (any_lane(is_low)) {", "if (is_low) {"},
    Defect{"arrive(all_walked);", ";"},
    Defect{"wait_gate(all_walked, 0);", ""},
    Defect{"low_visits.forget();", ""},
    Defect{"make_gate(all_walked, 4 * kConsumers);",
           "make_gate(all_walked, 4);"},
    Defect{"is_again = true;", ";"},
    Defect{"is_again || visits >= Low::kMost;", "visits >= Low::kMost;"},
    Defect{"if (is_again && !low_visits.has(visits_before, warp))",
           "if (false)"},
    Defect{"visits_before = visits;", ";"},
    Defect{"if (walks_all) {", "if (false) {"},
    Defect{"if (!is_again && visits_before < Low::kMost) {",
           "if (visits_before < Low::kMost) {"},
    Defect{"words.store(warp * kWords + kWords - 1, 1);", ";"},
    Defect{"| 1u << visit % 32);", "| 2u << visit % 32);"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedLowDefect,
                         testing::ValuesIn(chosenDefects(kLowDefects, 4)));

TEST(EmulatedRoles, WhatMasksLeaveOutFollowsForRowsOfNothingElse) {
  EXPECT_EQ(judgeLow(printLow()), "");
  // Three groups, and the lowest number.
  EXPECT_EQ(judge(printWeighted("cuda-emulated-sm90", 32, 24, false, "",
                                "-3.40282347E+38"),
                  kLowShapes, 32, 24, "roles192x128x32x32", false, "", true),
            "");
}

// A bias of every row and position, of which rows begin at multiples of 16
// bytes.
const Shapes kBiased = {{66, 2}, {290, 290}};
constexpr llvm::StringLiteral kBringing = "roles128x128x32x32e";

std::string judgeBiased(const CudaKernel &kernel, const std::string &bias,
                        const char *entry = kBringing.data(),
                        const Shapes &shapes = kBiased, int64_t depth = 32,
                        int64_t width = 24) {
  return judge(kernel, shapes, depth, width, entry, false, bias);
}

class PlantedElementDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedElementDefect, IsCaught) {
  CudaKernel kernel = printWeighted("cuda-emulated-sm90", 32, 24, false, "f32");
  carryHeader(kernel, "refold_cuda_tiles.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H");
  plant(kernel, GetParam());
  expectCaught(judgeBiased(kernel, "f32"), GetParam());
}

const std::vector<Defect> kElementDefects = {
    // Waits, phases, releases.
    Defect{"wait_gate(elements_came + 8 * place, (turn / 2) & 1);", ""},
    Defect{"elements_came + 8 * place, (turn / 2) & 1",
           "elements_came + 8 * place, (turn / 2 + 1) & 1"},
    Defect{"wait_gate(elements_left + 8 * place, parity);", ""},
    Defect{"arrive_with_copies(elements_came + 8 * place);",
           "arrive(elements_came + 8 * place);"},
    Defect{"warp_barrier();", ";"},
    Defect{"arrive(elements_left + 8 * place);", ";"},
    Defect{"make_gate(elements_left + 8 * place, 4 * kConsumers);",
           "make_gate(elements_left + 8 * place, 4);"},
    Defect{"make_gate(elements_came + 8 * place, 128);",
           "make_gate(elements_came + 8 * place, 64);"},
    Defect{"e2_rows_tiles + place *", "e2_rows_tiles + 0 *"},
    Defect{"wait_gate(elements_came + 8 * place, (turn / 2) & 1);",
           "wait_gate(elements_came + 8 * place, (turn / 2) & 1);\n"
           "warp_barrier();\nif (which % 32 == 0)\n"
           "  arrive(elements_left + 8 * place);"},
    // Places.
    Defect{"e2_rows + first, ", "e2_rows, "},
    Defect{"m_first * e2_stride0", "0 * e2_stride0"},
    Defect{"((chunks & 7) << 4)", "((chunks & 4) << 4)"},
    Defect{"which / 32 * kTiles * 16, c);", "0, c);"},
    Defect{"is_there ? inside * To::kSize : 0", "is_there ? 16 : 0"},
    Defect{"source += kStep * row_stride;\n  }\n}", "}\n}"},
    Defect{"lane % 4 * 2 * From::kSize", "lane % 4 * From::kSize"},
    Defect{"i / 2 * 8 * From::kRowBytes", "i / 2 * 4 * From::kRowBytes"},
    Defect{"two.get(1)", "two.get(0)"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedElementDefect,
                         testing::ValuesIn(chosenDefects(kElementDefects)));

class PlantedCopyDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedCopyDefect, IsCaught) {
  CudaKernel kernel =
      printWeighted("cuda-emulated-sm90", kDepth, kWidth, false, "f32");
  carryHeader(kernel, "refold_cuda_wgmma.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H");
  plant(kernel, GetParam());
  expectCaught(
      judgeBiased(kernel, "f32", "roles128x64x80x80e", kBiased, kDepth, kWidth),
      GetParam());
}

const std::vector<Defect> kCopyDefects = {
    Defect{"bring(Number<kChunks % 8>{}, kWhole);", ";"},
    Defect{"row + first < rows", "row + first <= rows"},
    Defect{"arrive_with_copies(right_came + 8 * place);",
           "arrive(right_came + 8 * place);"},
    Defect{"_came + 8 * place, 128)", "_came + 8 * place, 64)"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedCopyDefect,
                         testing::ValuesIn(chosenDefects(kCopyDefects, 2)));

TEST(EmulatedRoles, WhatEveryElementReadsIsBrought) {
  CudaKernel kernel =
      printWeighted("cuda-emulated-sm90", 32, 24, false, "bf16");
  EXPECT_EQ(judgeBiased(kernel, "bf16"), "");
  // Larger elements leave room for fewer columns.
  kernel = printWeighted("cuda-emulated-sm90", kDepth, kWidth, false, "f32");
  EXPECT_EQ(
      judgeBiased(kernel, "f32", "roles128x64x80x80e", kBiased, kDepth, kWidth),
      "");
}

TEST(EmulatedRoles, RowsThatBeginAnywhereAreReadWhereTheyLie) {
  CudaKernel kernel =
      printWeighted("cuda-emulated-sm90", 32, 24, false, "bf16");
  EXPECT_EQ(judgeBiased(kernel, "bf16", nullptr, {{130, 131}}), "");
}

TEST(EmulatedRoles, AGeneratedKernelIsRight) {
  EXPECT_EQ(judgeRoles(printRoles()), "");
}

TEST(EmulatedRoles, ThreeGroupsAreRightToo) {
  EXPECT_EQ(judge(printWeighted("cuda-emulated-sm90"), kShapes, 32, 24,
                  "roles192x128x32x32"),
            "");
  EXPECT_EQ(judge(printWeighted("cuda-emulated-sm90", 64, 56), kShapes, 64, 56,
                  "roles192x128x64x64"),
            "");
}

// Shared memory has no room for all columns of wide results at once.
const Shapes kWideShapes = {{130, 70}};

std::string judgeWide(const CudaKernel &kernel) {
  return judge(kernel, kWideShapes, 256, 232, "roles128x64x256x240");
}

class PlantedBoxDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedBoxDefect, IsCaught) {
  CudaKernel kernel = printWeighted("cuda-emulated-sm90", 256, 232);
  carryHeader(kernel, "refold_cuda_wgmma.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H");
  plant(kernel, GetParam());
  expectCaught(judgeWide(kernel), GetParam());
}

const std::vector<Defect> kWideDefects = {
    Defect{"wait_boxes<kRoom - 1>();", ";"},
    Defect{"wait_boxes<kRoom - 1>();", "wait_boxes<kRoom>();"},
    Defect{"panel % kRoom * Rows::kPanelBytes", "0"},
    Defect{"(part / 8 - panel) * Rows::kPanelBytes",
           "part / 8 * Rows::kPanelBytes"},
    Defect{"(panel + i) * 128,", "i * 128,"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedBoxDefect,
                         testing::ValuesIn(chosenDefects(kWideDefects)));

TEST(EmulatedRoles, WideResultsLeaveAPanelAfterTheOther) {
  EXPECT_EQ(judgeWide(printWeighted("cuda-emulated-sm90", 256, 232)), "");
}

// A second text takes NVRTC a quarter of its time.
TEST(EmulatedRoles, WideResultsHaveOneTextForFirstAndFurtherTiles) {
  auto has = [](int width, const char *kind) {
    std::string text = printWeighted("cuda-emulated-sm90", width, width).text;
    return llvm::StringRef(text).contains(kind);
  };
  EXPECT_TRUE(has(128, "Number<FirstOrFurther>{}"));
  EXPECT_FALSE(has(128, "Number<Further>{}"));
  for (int width : {64, 256}) {
    EXPECT_FALSE(has(width, "Number<FirstOrFurther>{}")) << width;
    EXPECT_TRUE(has(width, "Number<Further>{}")) << width;
  }
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
