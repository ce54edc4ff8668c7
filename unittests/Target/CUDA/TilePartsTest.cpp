// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel over tiles whose blocks share the stream, in the emulator,
// and the same with a defect planted in its text or in what it is written in:
// each has to be reported, or to give a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

// Few rows, of long and ragged streams: one part or several, warps and parts
// with nothing to do. Row i reads i + 1 elements, so that rows have bounds.
const Shapes kShapes = {{3, 2}, {5, 300}, {2, 1000}, {20, 600}};

/// Rows of v weighted by shares of exp(q k / 4): as WeightedRows.h has them, of
/// the whole stream.
CudaKernel printWhole() { return printWeighted("cuda-emulated"); }

class PlantedTilePartDefect : public testing::TestWithParam<Defect> {};

std::string judgeParts(const CudaKernel &kernel) {
  return judge(kernel, kShapes, 32, 24, "_parts16x64x32x32x8");
}

TEST_P(PlantedTilePartDefect, IsCaught) {
  CudaKernel kernel = printWhole();
  carryHeader(kernel, "refold_cuda_tiles.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H");
  carryHeader(kernel, "refold_cuda_parts.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H");
  plant(kernel, GetParam());
  expectCaught(judgeParts(kernel), GetParam());
}

const std::vector<Defect> kDefects = {
    // What makes states seen.
    Defect{"    fence_blocks();\n    const uint32_t before",
           "    const uint32_t before"},
    Defect{"REFOLD_SHARED(int32_t, shared_last, 1);\n  block_barrier();",
           "REFOLD_SHARED(int32_t, shared_last, 1);"},
    Defect{"uint32_t(parts));\n    fence_blocks();", "uint32_t(parts));"},
    Defect{"row_parts == 1 || !is_last_block(tickets + group, row_parts)",
           "row_parts == 1"},
    Defect{"take_ticket(ticket, uint32_t(parts))",
           "take_ticket(ticket, uint32_t(parts) + 1)"},
    Defect{"before + 1 == uint32_t(parts)", "block() == blocks() - 1"},
    // Copies.
    Defect{"wait_copies<kPlaces - 2>();", "wait_copies<kPlaces - 1>();"},
    Defect{"wait_copies<0>();\n  block_barrier();", "wait_copies<0>();"},
    Defect{"is_inside ? from + chunk * To::kInChunk : from", "from"},
    Defect{"if (at >= part_begin) {", "if (at > part_begin) {"},
    // Columns of warps, and parts.
    Defect{"thread_again() / 32 * kColumns;", "0;"},
    Defect{"which / 32 * kColumns * Values::kRowBytes", "0"},
    Defect{"which / 32 * kColumns * Right::kRowBytes", "0"},
    Defect{"+ int(row_parts) - 1) /", ") /"},
    // Merges.
    Defect{"exp2_fast(old.max_0 - s.max_0)", "1.0f"},
    Defect{"exp2_fast(old.max_0 - s.max_0)", "exp2_fast(s.max_0 - old.max_0)"},
    Defect{"s.add_2 = s.add_2 + shuffle_xor(s.add_2, 1);", ""},
    Defect{"is_odd ? low[e] : high[e], 1)", "is_odd ? high[e] : low[e], 1)"},
    Defect{"at % 2 * 8 + at % 4 / 2 * 4", "at % 2 * 8"},
    Defect{"row_parts - 1) + group * row_parts", "row_parts - 1)"},
    // Rows that are packed.
    Defect{"block_remainder(group, packed_blocks) * kRows", "0"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedTilePartDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedTileParts, AGeneratedKernelIsRight) {
  EXPECT_EQ(judgeParts(printWhole()), "");
}

} // namespace
