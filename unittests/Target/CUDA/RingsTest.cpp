// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Clusters that do many rows, beside an array that all rows read: emulated, and
// with defects planted.
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

CudaKernel printShares(const char *target) {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "shares", kShares, "test",
                                {CudaDevice::Emulated, target});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

/// What is wrong with five rows of `n` elements, of which one of two clusters
/// has three; "" if nothing.
std::string judge(const Kernel &kernel, int64_t n) {
  constexpr int64_t kRows = 5;
  std::vector<float> x(kRows * n), w(n), y(kRows * n, -1.0f);
  for (int64_t i = 0; i < kRows * n; ++i)
    x[i] = float(i * 7919 % 13) + float(i / n);
  for (int64_t i = 0; i < n; ++i)
    w[i] = 1.0f + float(i * 104729 % 11) * 0.25f;
  auto address = [](const std::vector<float> &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0,          kRows,      n,
                     n,          1,          address(w), address(w), 0,
                     n,          1,          address(y), address(y), 0,
                     kRows,      n,          n,          1};
  if (llvm::Error error = kernel.launch(words))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < kRows; ++row) {
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

/// Four blocks a row: parts of three chunks but for the last one, of which
/// there is a half; all but the first have nothing.
std::string judge(const CudaKernel &printed) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", "ring4x256x2x4", 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  for (int64_t n : {19456, 8})
    if (std::string wrong = judge(spec.kernels.front(), n); !wrong.empty())
      return wrong;
  return "";
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
    Defect{"kIsRing && at == ring_end ? ring_begin : at", "at"},
    Defect{"row_place = kIsRing ? at : row_place;", ""},
    Defect{"next_row += blocks() / kBlocks", "next_row += 1"},
    Defect{"next_first >= part_end", "next_first > part_end"},
    Defect{"(first - part_first) * kTableBytes", "first * kTableBytes"},
    Defect{"next_first += kChunk;", "next_first += 2 * kChunk;"},
    Defect{"kept_length + kAhead * kChunk; first", "kept_length; first"},
    Defect{"++exchange;", ""}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedRingDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 4)));

TEST(Rings, AGeneratedKernelIsRight) {
  EXPECT_EQ(judge(printShares("cuda-emulated-sm90")), "");
}

TEST(Rings, OlderDevicesHaveNone) {
  EXPECT_EQ(printShares("cuda-sm80").text.find("InRing"), std::string::npos);
}

/// Two clusters of the emulator do all rows; each block keeps its part of a row
/// and of the table, and a chunk of the next row.
TEST(Rings, ALaunchHasAsManyClustersAsRunAtOnce) {
  CudaKernel kernel = printShares("cuda-sm90");
  const int64_t n = 32768;
  int64_t words[] = {0, 1 << 20, 0, 5,       n, n, 1, 0, 1 << 20, 0,
                     n, 1,       0, 1 << 20, 0, 5, n, n, 1};
  auto launch = planCudaLaunch(kernel, words);
  ASSERT_TRUE(bool(launch) && *launch);
  const CudaEntry &entry = kernel.entries[(*launch)->entry];
  EXPECT_EQ(entry.blocks, 4) << entry.name;
  EXPECT_EQ((*launch)->blocks, 2 * 4);
  EXPECT_EQ((*launch)->sharedBytes, n / 4 * 8 + entry.chunk() * 4);
}

} // namespace
