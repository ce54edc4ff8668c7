// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks and clusters that do many rows, beside arrays that all rows read:
// emulated, and with defects planted.
#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace refold;
using namespace refold::test;

namespace {

// Shares of x * w in each row.
constexpr llvm::StringLiteral kShares = R"(
func.func @kernel(%x: memref<?x?xf32>, %w: memref<?xf32>, %y: memref<?x?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>, %b = %w : memref<?xf32>)
    outs(%c = %y : memref<?x?xf32>)
    sizes(%m = %c[0], %n = %c[1]) {
    %v = refold.read %a[%m, %n] : f32
    %g = refold.read %b[%n] : f32
    %p = arith.mulf %v, %g : f32
    %z = refold.state add(%p : f32)
    %s = arith.divf %p, %z : f32
    refold.write %s, %c[%m, %n] : f32
  }
  return
})";

// x / sum(x) * w + b of 16 bits, in 32 bits.
constexpr llvm::StringLiteral kScaled = R"(
func.func @kernel(%x: memref<?x?xbf16>, %w: memref<?xbf16>, %b: memref<?xbf16>, %y: memref<?x?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%xs = %x : memref<?x?xbf16>, %ws = %w : memref<?xbf16>, %bs = %b : memref<?xbf16>)
    outs(%ys = %y : memref<?x?xf32>)
    sizes(%m = %ys[0], %n = %ys[1]) {
    %v = refold.read %xs[%m, %n] : bf16
    %vf = arith.extf %v : bf16 to f32
    %g = refold.read %ws[%n] : bf16
    %gf = arith.extf %g : bf16 to f32
    %h = refold.read %bs[%n] : bf16
    %hf = arith.extf %h : bf16 to f32
    %z = refold.state add(%vf : f32)
    %s = arith.divf %vf, %z : f32
    %t = arith.mulf %s, %gf : f32
    %u = arith.addf %t, %hf : f32
    refold.write %u, %ys[%m, %n] : f32
  }
  return
})";

CudaKernel print(llvm::StringRef program, const char *target) {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "shares", program, "test",
                                {CudaDevice::Emulated, target});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}
CudaKernel printShares(const char *target) { return print(kShares, target); }

/// What is wrong with rows of `n` elements; "" if nothing.
std::string judge(const Kernel &kernel, int64_t rows, int64_t n) {
  std::vector<float> x(rows * n), w(n), y(rows * n, -1.0f);
  for (int64_t i = 0; i < rows * n; ++i)
    x[i] = float(i * 7919 % 13) + float(i / n);
  for (int64_t i = 0; i < n; ++i)
    w[i] = 1.0f + float(i * 104729 % 11) * 0.25f;
  auto address = [](const std::vector<float> &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0, rows, n, n,          1,
                     address(w), address(w), 0, n,    1, address(y), address(y),
                     0,          rows,       n, n,    1};
  if (llvm::Error error = kernel.launch(words))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < rows; ++row) {
    const float *of = x.data() + row * n;
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i)
      sum += double(of[i]) * w[i];
    for (int64_t i = 0; i < n; ++i) {
      double exact = of[i] * double(w[i]) / sum;
      if (!(std::abs(y[row * n + i] - exact) <= 1e-5 * std::abs(exact)))
        return "found a wrong result";
    }
  }
  return "";
}

/// One entry, emulated: two clusters of it do all rows.
std::string judge(const CudaKernel &printed, const char *entry,
                  llvm::ArrayRef<std::pair<int64_t, int64_t>> shapes) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", entry, 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  for (auto [rows, n] : shapes)
    if (std::string wrong = judge(spec.kernels.front(), rows, n);
        !wrong.empty())
      return wrong;
  return "";
}

/// Two blocks a row, of which the first has all six vectors and the second
/// five and a half, so that half of its warps have all; both four, or so; rows
/// of which only the first has something. One of two clusters has three of five
/// rows.
std::string judge(const CudaKernel &printed) {
  return judge(printed, "ring2x512x6x4",
               {{5, 11 * 2048 + 1024}, {5, 7 * 2048 + 1024}, {5, 8}});
}

class PlantedRingDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedRingDefect, IsCaught) {
  CudaKernel kernel = printShares("cuda-emulated-sm90");
  plant(kernel, GetParam());
  expectCaught(judge(kernel), GetParam());
}

const std::vector<Defect> kDefects = {

    Defect{"exchange % 2 * kBlocks", "0"},
    Defect{"wait_copies<kAhead>();", "wait_copies<kAhead + 1>();"},
    Defect{"row_place == ring_end ? ring_begin", "false ? ring_begin"},
    Defect{"row_place += kIsRing ? kChunkBytes : 0;", ""},
    Defect{"row + (kAhead + 1) * (blocks() / kBlocks)",
           "row + kAhead * (blocks() / kBlocks)"},
    Defect{"row + later * (blocks() / kBlocks)", "row + later"},
    Defect{"later <= kAhead", "later < kAhead"},
    Defect{"bring(whole, row, part_first, at);", "bring(whole, row, 0, at);"},
    Defect{"const Column first = part_first;", "const Column first = 0;"},
    Defect{"/ kBlocks * kPiece", "/ kBlocks * kChunk"},
    Defect{"(lane | 31)", "0"},
    Defect{"column >= part_end", "column >= row_length"},
    Defect{"++exchange;", ""}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedRingDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 4)));

TEST(Rings, AGeneratedKernelIsRight) {
  EXPECT_EQ(judge(printShares("cuda-emulated-sm90")), "");
}

/// All vectors of all blocks; no row, one, fewer than clusters; of a row
/// nothing.
TEST(Rings, RowsOfAnyNumberAndLength) {
  CudaKernel kernel = printShares("cuda-emulated-sm90");
  EXPECT_EQ(judge(kernel, "ring2x512x6x4",
                  {{3, 24576}, {1, 24576}, {0, 24576}, {3, 0}, {1, 4}}),
            "");
  EXPECT_EQ(judge(kernel, "ring4x512x6x4", {{3, 49152}, {3, 40000}}), "");
  EXPECT_EQ(judge(kernel, "ring8x512x8x4", {{3, 20000}}), "");
}

TEST(Rings, OlderDevicesHaveNone) {
  EXPECT_EQ(printShares("cuda-sm80").text.find("InRing"), std::string::npos);
}

/// The entry that a launch of so many rows has, its blocks and shared memory.
struct Planned {
  std::string name;
  int64_t blocks = 0, sharedBytes = 0;
};
Planned plan(const CudaKernel &kernel, int64_t rows, int64_t n) {
  int64_t words[] = {0, 1 << 20, 0, rows,    n, n,    1, 0, 1 << 20, 0,
                     n, 1,       0, 1 << 20, 0, rows, n, n, 1};
  auto launch = planCudaLaunch(kernel, words);
  if (!launch || !*launch) {
    ADD_FAILURE() << "found no launch";
    return {};
  }
  return {kernel.entries[(*launch)->entry].name, (*launch)->blocks,
          (*launch)->sharedBytes};
}

/// The emulator has room for two clusters; each block keeps its part of a row,
/// of the next one and of the table.
TEST(Rings, ALaunchHasAsManyClustersAsRunAtOnce) {
  CudaKernel kernel = printShares("cuda-sm90");
  Planned launch = plan(kernel, 5, 65536);
  EXPECT_NE(launch.name.find("ring4x512x8x4"), std::string::npos);
  EXPECT_EQ(launch.blocks, 2 * 4);
  EXPECT_EQ(launch.sharedBytes, 3 * 65536);
}

/// Vectors that are not there take longer than tables that are read again.
TEST(Rings, RowsThatFillNoChunkHaveOtherEntries) {
  CudaKernel kernel = printShares("cuda-sm90");
  for (int64_t n : {32768, 31000, 24576, 23000})
    EXPECT_NE(plan(kernel, 5, n).name.find("_ring2"), std::string::npos) << n;
  for (int64_t n : {28000, 22000, 20000, 16384, 36000})
    EXPECT_EQ(plan(kernel, 5, n).name.find("_ring"), std::string::npos) << n;
}

/// Many short rows are a warp's each; few leave multiprocessors idle then.
TEST(Rings, ManyShortRowsAreWarps) {
  CudaKernel kernel = printShares("cuda-sm90");
  EXPECT_NE(plan(kernel, 1024, 1000).name.find("shared32x4x4"),
            std::string::npos);
  EXPECT_NE(plan(kernel, 1024, 2048).name.find("shared32x8x4"),
            std::string::npos);
  EXPECT_EQ(plan(kernel, 1023, 1000).name.find("shared32"), std::string::npos);
}

/// Elements of 2 bytes beside two tables, of which shared memory has room for
/// one; a chunk that is all there but for the vectors of some warps.
TEST(Rings, RegistersKeepWhatHasNoRoom) {
  CudaKernel printed = print(kScaled, "cuda-emulated-sm90");
  EXPECT_NE(printed.text.find("pinned(own_"), std::string::npos);
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", "ring512x8x8", 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  ASSERT_FALSE(bool(error)) << llvm::toString(std::move(error));
  const int64_t rows = 3, n = 32768 - 1000;
  auto bits = [](int64_t of) { // 1, 1.5, 2 or 3
    constexpr uint16_t kBits[] = {0x3f80, 0x3fc0, 0x4000, 0x4040};
    return kBits[of % 4];
  };
  auto value = [](int64_t of) {
    return of % 4 < 2 ? 1.0 + of % 4 * 0.5 : of % 4;
  };
  std::vector<uint16_t> x(rows * n), w(n), b(n);
  std::vector<float> y(rows * n, -1.0f);
  for (int64_t i = 0; i < rows * n; ++i)
    x[i] = bits(i * 7919 % 13);
  for (int64_t i = 0; i < n; ++i) {
    w[i] = bits(i * 104729 % 11);
    b[i] = bits(i * 15485863 % 7);
  }
  auto address = [](const auto &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0,          rows, n, n,
                     1,          address(w), address(w), 0,    n, 1,
                     address(b), address(b), 0,          n,    1, address(y),
                     address(y), 0,          rows,       n,    n, 1};
  error = spec.kernels.front().launch(words);
  ASSERT_FALSE(bool(error)) << llvm::toString(std::move(error));
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (int64_t i = row * n; i < (row + 1) * n; ++i)
      sum += value(i * 7919 % 13);
    for (int64_t i = 0; i < n; ++i) {
      double exact =
          value((row * n + i) * 7919 % 13) / sum * value(i * 104729 % 11) +
          value(i * 15485863 % 7);
      ASSERT_NEAR(y[row * n + i], exact, 1e-5 * exact) << row << " " << i;
    }
  }
}

} // namespace
