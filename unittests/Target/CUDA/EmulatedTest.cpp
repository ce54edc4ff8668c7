// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel in the emulator, and the same with a defect planted in its
// text: each has to be reported, or to give a wrong answer.
#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace refold;
using namespace refold::test;

namespace {

// Shares of exp(x) in each row: an extreme, a sum relative to it, a sweep.
constexpr llvm::StringLiteral kShares = R"(
func.func @kernel(%x: memref<?x?xf32>, %y: memref<?x?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xf32>) outs(%b = %y : memref<?x?xf32>)
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
  }
  return
})";

CudaKernel printShares() {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "shares", kShares, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  // Parts that wait for each other are another test's (`SweptPartsTest`).
  llvm::erase_if(kernel->entries,
                 [](const CudaEntry &entry) { return entry.waits; });
  return std::move(*kernel);
}

/// Rows of growing scores: every pivot moves, in every chunk and lane.
std::vector<float> growing(int64_t rows, int64_t n) {
  std::vector<float> x(rows * n);
  for (int64_t i = 0; i < rows * n; ++i)
    x[i] = float(i % n) * 12.0f / float(n) + float(i * 7919 % 13) * 0.25f;
  return x;
}

/// What is wrong with the kernel for rows of one length, "" if nothing.
std::string judge(const Kernel &kernel, int64_t rows, int64_t n) {
  std::vector<float> x = growing(rows, n), y(rows * n, -1.0f);
  auto address = [](const std::vector<float> &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0, rows, n, n, 1,
                     address(y), address(y), 0, rows, n, n, 1};
  if (llvm::Error error = kernel.launch(words))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < rows; ++row) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i)
      sum += std::exp(double(x[row * n + i]) - 15.0);
    for (int64_t i = 0; i < n; ++i) {
      double exact = std::exp(double(x[row * n + i]) - 15.0) / sum;
      if (!(std::abs(y[row * n + i] - exact) <= 1e-5 * exact))
        return "found a wrong result";
    }
  }
  return "";
}

/// What is wrong with it for any of the shapes that a schedule is for.
std::string judge(const CudaKernel &printed) {
  ExecutableSpec spec;
  if (llvm::Error error = attachEmulated(spec, {printed}))
    return "does not compile: " + llvm::toString(std::move(error));
  const std::pair<int64_t, int64_t> shapes[] = {
      {19, 40}, {3, 7}, {2, 900}, {2, 1024}, {1, 3001}, {3, 5000}, {3, 30000}};
  for (auto [rows, n] : shapes)
    if (std::string wrong = judge(spec.kernels.front(), rows, n);
        !wrong.empty())
      return wrong;
  return "";
}

class PlantedDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedDefect, IsCaught) {
  CudaKernel kernel = printShares();
  plant(kernel, GetParam());
  expectCaught(judge(kernel), GetParam());
}

const std::vector<Defect> kDefects = {

    // Barriers and shared memory.
    Defect{"block_barrier();", ""},
    Defect{"block_barrier();", "if (lane < 32) block_barrier();"},
    Defect{"if (lane % 32 == 0) {", "if (lane % 2 == 0) {"},
    Defect{"shared_add_1.load(lane % (kThreads / 32)",
           "shared_add_1.load(lane % 2"},
    Defect{"shared_add_1.store(lane / 32", "shared_add_1.store(lane / 64"},
    // Lanes and warps.
    Defect{"mask > 0", "mask > 1"},
    Defect{"lanes.value / 2", "lanes.value / 4"},
    Defect{"if (kThreads >= 32 && !is_row)", "if (!is_row)"},
    Defect{"merge1(Number<kThreads / 32>{});", ""},
    Defect{"merge1(Number<kThreads / 32>{});", "merge1(Number<2>{});"},
    // Transports.
    Defect{"{old.add_1 * expf(t1)", "{old.add_1"},
    Defect{"s.add_1 = old.add_1 * expf(t3)", "s.add_1 = old.add_1"},
    Defect{"const States old = s;", "const States old;"},
    // Edges.
    Defect{"if (whole.value == 0 && column >= row_length)", "if (false)"},
    Defect{"column >= row_length)", "column > row_length)"},
    Defect{"const bool is_row = row <", "const bool is_row = row <="},
    Defect{"first + kChunk <= row_length", "first <= row_length"},
    Defect{"kVectors > 1 && first + kChunk <= row_length", "true"},
    // The order of chunks.
    Defect{"chunk = next;", ";"},
    Defect{"first >= 0; first -= kChunk", "first > 0; first -= kChunk"},
    Defect{"load(next, first + kChunk)", "load(next, first)"},
    Defect{"write(Number<1>{}, chunk, first);",
           "write(Number<1>{}, chunk, last);"},
    // Rows in shared memory.
    Defect{"wait_copies<0>();", ""},
    Defect{"row + blocks(), first, at);", "row, first, at);"},
    Defect{"row + blocks(), first, at);",
           "row + blocks(), first + kChunk, at);"},
    Defect{"turn = kThreads / 32 - turn;", ""},
    Defect{"row += blocks();", "row += 1;"}, Defect{"at += kChunkBytes;", ";"},
    Defect{"(row_length - kHeld + kChunk -\n      1)", "(row_length - kHeld)"},
    Defect{"uint32_t(lane) * 16", "uint32_t(lane / 2) * 16"},
    Defect{"load(held, 0);", ";"}, Defect{"write(Number<1>{}, held, 0);", ";"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 4)));

TEST(Emulated, AGeneratedKernelIsRight) { EXPECT_EQ(judge(printShares()), ""); }

TEST(Emulated, TheTextIsTheSameEveryTime) {
  EXPECT_EQ(printShares().text, printShares().text);
}

/// Only what is refused with a reason may run unfused instead.
TEST(PrintCudaKernelTest, OtherFailuresAreInternal) {
  auto codeOf = [](llvm::StringRef text, std::string &message) {
    auto context = makeContext();
    auto kernel = printCudaKernel(*context, "k", text, "test",
                                  {CudaDevice::Emulated, "cuda-emulated"});
    return kernel ? ExitCode::Ok : takeError(kernel.takeError(), message);
  };
  std::string message;
  EXPECT_EQ(codeOf("func.func @kernel() { return }", message),
            ExitCode::Internal);
  EXPECT_NE(message.find("found no cascade"), std::string::npos) << message;
  std::string wide = kShares.str();
  for (size_t at; (at = wide.find("f32")) != std::string::npos;)
    wide.replace(at, 3, "f64");
  EXPECT_EQ(codeOf(wide, message), ExitCode::Unsupported) << message;
  EXPECT_NE(message.find("[cuda-unsupported-op]"), std::string::npos)
      << message;
}

} // namespace
