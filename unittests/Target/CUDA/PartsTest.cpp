// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows that blocks share, in the emulator, and the same with a defect planted
// in the text or in what blocks exchange: each has to be reported, or to give a
// wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

// An extreme of each row, and a sum relative to it.
constexpr llvm::StringLiteral kSums = R"(
func.func @kernel(%x: memref<?x?xf32>, %y: memref<?xf32>, %z: memref<?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>) outs(%b = %y : memref<?xf32>, %c = %z : memref<?xf32>)
    sizes(%m = %b[0], %n = %a[1]) {
    %lowest = arith.constant -3.40282347E+38 : f32
    %v = refold.read %a[%m, %n] : f32
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
    refold.write %max, %b[%m] : f32
    refold.write %z, %c[%m] : f32
  }
  return
})";

CudaKernel printSums() {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "sums", kSums, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

/// Scores that grow along the row: every part has another extreme. One row is
/// -inf but for its last part, one has a NaN.
std::vector<float> scores(int64_t rows, int64_t n) {
  std::vector<float> x(rows * n);
  for (int64_t i = 0; i < rows * n; ++i)
    x[i] = float(i % n) * 12.0f / float(n) + float(i * 7919 % 13) * 0.25f;
  if (rows > 1)
    std::fill_n(x.begin() + n, n - n / 8, -INFINITY);
  if (rows > 2)
    x[2 * n + n / 2] = NAN;
  return x;
}

std::string judgeSums(const Kernel &kernel, int64_t rows, int64_t n) {
  std::vector<float> x = scores(rows, n), y(rows), z(rows);
  auto address = [](const std::vector<float> &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0,          rows, n,    n,
                     1,          address(y), address(y), 0,    rows, 1,
                     address(z), address(z), 0,          rows, 1};
  if (llvm::Error error = kernel.launch(words))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < rows; ++row) {
    double largest = -INFINITY, sum = 0.0;
    for (int64_t i = 0; i < n; ++i)
      largest = std::isnan(x[row * n + i])
                    ? NAN
                    : std::max(double(x[row * n + i]), largest);
    bool isNumber = row != 2;
    for (int64_t i = 0; i < n; ++i)
      sum += std::exp(double(x[row * n + i]) - largest);
    bool isRight = isNumber ? y[row] == float(largest) &&
                                  std::abs(z[row] - sum) <= 1e-5 * sum
                            : std::isnan(y[row]) && std::isnan(z[row]);
    if (!isRight)
      return "found a wrong result";
  }
  return "";
}

/// A row of 49 parts, a few of some, and parts of other lengths.
std::string judgeSums(const CudaKernel &printed) {
  ExecutableSpec spec;
  if (llvm::Error error = attachEmulated(spec, {printed}))
    return "does not compile: " + llvm::toString(std::move(error));
  const std::pair<int64_t, int64_t> shapes[] = {
      {1, 400000}, {3, 40000}, {2, 34817}, {1, 20001}};
  for (auto [rows, n] : shapes)
    if (std::string wrong = judgeSums(spec.kernels.front(), rows, n);
        !wrong.empty())
      return wrong;
  return "";
}

class PlantedPartDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedPartDefect, IsCaught) {
  CudaKernel kernel = printSums();
  carryHeader(kernel, "refold_cuda_parts.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H");
  plant(kernel, GetParam());
  expectCaught(judgeSums(kernel), GetParam());
}

const std::vector<Defect> kDefects = {
    // What makes states seen.
    Defect{"    fence_blocks();\n    const uint32_t before",
           "    const uint32_t before"},
    Defect{"uint32_t(parts));\n    fence_blocks();", "uint32_t(parts));"},
    Defect{"  block_barrier();\n  return shared_last", "  return shared_last"},
    Defect{"if (!is_last_block(tickets + row, row_parts))", "if (false)"},
    Defect{"is_last_block(tickets + row, row_parts)",
           "is_last_block(tickets, row_parts)"},
    // Who is last, and what the next launch finds.
    Defect{"before + 1 == uint32_t(parts)", "before == 0"},
    Defect{"before + 1 == uint32_t(parts)", "block() == blocks() - 1"},
    Defect{"take_ticket(ticket, uint32_t(parts))",
           "take_ticket(ticket, uint32_t(parts) + 1)"},
    // The merge.
    // (A thread merges one part of these rows, so that nothing moves there.)
    Defect{"s.add_1 + (old.add_1 * expf(t4))", "old.add_1 * 0.5f"},
    Defect{"s = States();", ""},
    Defect{"part < row_parts; part += kThreads",
           "part + 1 < row_parts; part += kThreads"},
    Defect{"left_add_1 + row * row_parts + part", "left_add_1 + part"},
    Defect{"left_max_0 + row * row_parts + part",
           "left_max_0 + row * row_parts"},
    Defect{"leave(left_add_1 + block(), s.add_1);", ""},
    Defect{"workspace + 8 * blocks()", "workspace + 0 * blocks()"},
    // Where parts are.
    Defect{"block() % row_parts * part_length", "block() % row_parts * kChunk"},
    Defect{"kIsPart ? block() / row_parts", "kIsPart ? block() % row_parts"},
    Defect{"smaller(part_first + part_length, row_length)", "row_length"},
    Defect{"/ row_parts * kChunk", "/ row_parts * kChunk - kChunk"},
    Defect{"load(chunk, part_first);", "load(chunk, 0);"},
    // Chunks on their way.
    Defect{"wait_copies<kStages - 1>();", ""},
    Defect{"wait_copies<kStages - 1>();", "wait_copies<kStages>();"},
    Defect{"free = at;", ";"},
    Defect{"first + (kStages - 1) * kChunk, free", "first + kChunk, free"},
    Defect{"part_first + stage * kChunk", "stage * kChunk"},
    Defect{"fetch(chunk, at);", "fetch(chunk, free);"},
    Defect{"commit_copies();\n    };", "};"},
    Defect{"column < part_end);", "column + kWidth < part_end);"},
    Defect{"+ lane * 16)", "+ lane / 2 * 16)"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedPartDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedParts, AGeneratedKernelIsRight) {
  CudaKernel kernel = printSums();
  EXPECT_NE(kernel.text.find("_parts256x"), std::string::npos);
  EXPECT_EQ(judgeSums(kernel), "");
}

} // namespace
