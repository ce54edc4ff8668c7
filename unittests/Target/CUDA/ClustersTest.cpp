// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows that several blocks have together, each a part in its shared memory:
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

// Shares of exp(x) in each row, and their sum relative to the largest.
constexpr llvm::StringLiteral kShares = R"(
func.func @kernel(%x: memref<?x?xf32>, %y: memref<?x?xf32>, %s: memref<?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>)
    outs(%b = %y : memref<?x?xf32>, %c = %s : memref<?xf32>)
    sizes(%m = %b[0], %n = %b[1]) {
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
    %w = arith.divf %p, %z : f32
    refold.write %w, %b[%m, %n] : f32
    refold.write %z, %c[%m] : f32
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

/// What is wrong with two rows of `n` elements whose scores grow, so that every
/// pivot moves; "" if nothing.
std::string judge(const Kernel &kernel, int64_t n) {
  constexpr int64_t kRows = 2;
  std::vector<float> x(kRows * n), y(kRows * n, -1.0f), s(kRows, -1.0f);
  for (int64_t i = 0; i < kRows * n; ++i)
    x[i] = float(i % n) * 12.0f / float(n) + float(i * 7919 % 13) * 0.25f;
  auto address = [](const std::vector<float> &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0, kRows, n, n, 1,
                     address(y), address(y), 0, kRows, n, n, 1,
                     address(s), address(s), 0, kRows, 1};
  if (llvm::Error error = kernel.launch(words))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < kRows; ++row) {
    const float *of = x.data() + row * n;
    double largest = *std::max_element(of, of + n), sum = 0.0;
    for (int64_t i = 0; i < n; ++i)
      sum += std::exp(of[i] - largest);
    if (!(std::abs(s[row] - sum) <= 1e-5 * sum))
      return "found a wrong sum";
    for (int64_t i = 0; i < n; ++i) {
      double exact = std::exp(of[i] - largest) / sum;
      if (!(std::abs(y[row * n + i] - exact) <= 1e-5 * exact))
        return "found a wrong result";
    }
  }
  return "";
}

/// Four blocks a row: parts of two chunks but for the last one, of which there
/// is a half; one for each; all but the first have nothing.
std::string judge(const CudaKernel &printed) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", "cluster4x512x2x4", 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  for (int64_t n : {30720, 16384, 8})
    if (std::string wrong = judge(spec.kernels.front(), n); !wrong.empty())
      return wrong;
  return "";
}

class PlantedClusterDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedClusterDefect, IsCaught) {
  CudaKernel kernel = printShares("cuda-emulated-sm90");
  plant(kernel, GetParam());
  expectCaught(judge(kernel), GetParam());
}

const std::vector<Defect> kDefects = {

    // What blocks know of each other.
    Defect{"wait_for_cluster<kBlocks>(); // until", "; // until"},
    Defect{"open_mailbox<kBlocks>(mailbox);", ";"},
    Defect{"receive_across<kBlocks>(mailbox, exchange, kBlocks * 8);", ""},
    Defect{"receive_across<kBlocks>(mailbox, exchange, kBlocks * 8);",
           "if (lane < 32)\n receive_across<kBlocks>(mailbox, exchange, "
           "kBlocks * 8);"},
    Defect{"exchange, kBlocks * 8)", "exchange, (kBlocks - 1) * 8)"},
    // What they send each other.
    Defect{"if (lane < kBlocks) {", "if (lane < 2) {"},
    Defect{"int(block() % kBlocks), s.", "0, s."},
    Defect{"places + lane % kBlocks", "places"},
    Defect{"places + lane % kBlocks", "places + lane % (2 * kBlocks)"},
    Defect{"merge1(Number<kBlocks>{});", ""},
    Defect{"merge1(Number<kBlocks>{});", "merge1(Number<2>{});"},
    Defect{"cluster_add_1, lane,", "cluster_max_0, lane,"},
    // Whose part is which.
    Defect{"Column(block() % kBlocks) * part_length", "0"},
    Defect{"part_first +\n      part_length : row_length",
           "part_first +\n      part_length - kChunk : row_length"},
    Defect{"kBlocks -\n      1) / kBlocks * kChunk", "0) / kBlocks * kChunk"},
    Defect{"block() / kBlocks * kRows", "block() * kRows"},
    Defect{" && block() % kBlocks == 0", ""},
    Defect{"Column first = part_first + kHeld", "Column first = kHeld"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedClusterDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 4)));

TEST(Clusters, AGeneratedKernelIsRight) {
  EXPECT_EQ(judge(printShares("cuda-emulated-sm90")), "");
}

/// They came with sm_90.
TEST(Clusters, OlderDevicesHaveNone) {
  EXPECT_EQ(printShares("cuda-sm80").text.find("cluster"), std::string::npos);
}

/// Eight blocks a row, each a part of whole chunks in its shared memory.
TEST(Clusters, ALaunchHasBlocksForEveryPart) {
  CudaKernel kernel = printShares("cuda-sm90");
  const int64_t n = 131072;
  int64_t words[] = {0, 1 << 20, 0, 3, n, n,       1, 0, 1 << 20, 0,
                     3, n,       n, 1, 0, 1 << 20, 0, 3, 1};
  auto launch = planCudaLaunch(kernel, words);
  ASSERT_TRUE(bool(launch) && *launch);
  const CudaEntry &entry = kernel.entries[(*launch)->entry];
  EXPECT_EQ(entry.blocks, 8) << entry.name;
  EXPECT_EQ((*launch)->blocks, 3 * 8);
  EXPECT_EQ((*launch)->threads, entry.threads);
  EXPECT_EQ((*launch)->sharedBytes, n / 8 * 4);
}

} // namespace
