// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of 16-bit floats whose largest magnitude and smallest element are found
// by pairs: emulated, and with defects planted.
#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace refold;
using namespace refold::test;

namespace {

constexpr llvm::StringLiteral kExtremes = R"(
func.func @kernel(%x: memref<?x?xbf16>, %y: memref<?xf32>, %z: memref<?xf32>) {
  refold.cascade rows(%m = ?) stream(%n = ?)
    ins(%a = %x : memref<?x?xbf16>)
    outs(%b = %y : memref<?xf32>, %c = %z : memref<?xf32>)
    sizes(%m = %a[0], %n = %a[1]) {
    %v = refold.read %a[%m, %n] : bf16
    %w = arith.extf %v : bf16 to f32
    %u = math.absf %w : f32
    %max = refold.state max(%u : f32)
    %min = refold.state min(%w : f32)
    refold.write %max, %b[%m] : f32
    refold.write %min, %c[%m] : f32
  }
  return
})";

CudaKernel printExtremes() {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "extremes", kExtremes, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

uint16_t bf16Of(float x) {
  uint32_t bits;
  memcpy(&bits, &x, 4);
  return uint16_t(bits >> 16);
}

/// What is wrong with rows of `n` elements whose extremes are at many places,
/// one of them in each row; "" if nothing.
std::string judge(const Kernel &kernel, int64_t n) {
  const int64_t places[] = {0, n / 3, n / 2 + 1, n - 2, n - 1};
  constexpr int64_t kRows = 12;
  std::vector<uint16_t> x(kRows * n);
  std::vector<float> largest(kRows), smallest(kRows), y(kRows, -1.0f),
      z(kRows, -1.0f);
  for (int64_t row = 0; row < kRows; ++row) {
    for (int64_t i = 0; i < n; ++i)
      x[row * n + i] = bf16Of(float((i * 7919 + row) % 61) * 0.5f + 1.0f);
    const int64_t at = std::clamp<int64_t>(places[row % 5], 0, n - 1);
    const float values[] = {-64.0f, -0.25f, 128.0f, std::nanf("")};
    x[row * n + at] = bf16Of(values[row % 4]);
    auto value = [&](int64_t i) {
      uint32_t bits = uint32_t(x[row * n + i]) << 16;
      float v;
      memcpy(&v, &bits, 4);
      return v;
    };
    largest[row] = std::abs(value(0)), smallest[row] = value(0);
    for (int64_t i = 1; i < n; ++i) {
      float v = value(i);
      if (v != v || std::abs(v) > largest[row])
        largest[row] = std::abs(v);
      if (v != v || v < smallest[row])
        smallest[row] = v;
    }
  }
  auto address = [](const auto &v) {
    return int64_t(reinterpret_cast<intptr_t>(v.data()));
  };
  int64_t words[] = {address(x), address(x), 0,          kRows, n,     n,
                     1,          address(y), address(y), 0,     kRows, 1,
                     address(z), address(z), 0,          kRows, 1};
  if (llvm::Error error = kernel.launch(words))
    return llvm::toString(std::move(error));
  auto same = [](float x, float y) { return x == y || (x != x && y != y); };
  for (int64_t row = 0; row < kRows; ++row)
    if (!same(y[row], largest[row]) || !same(z[row], smallest[row]))
      return "found a wrong result";
  return "";
}

/// The same of all `lengths`, by one entry or by those that take them.
std::string judge(const CudaKernel &printed, const char *entry,
                  llvm::ArrayRef<int64_t> lengths) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", entry, 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  for (int64_t n : lengths)
    if (std::string wrong = judge(spec.kernels.front(), n); !wrong.empty())
      return wrong;
  return "";
}

/// What is wrong with it for any of the lengths that a schedule is for: whole
/// vectors and single elements, resident rows, and chunks, which are asked for
/// since blocks share few long rows.
std::string judge(const CudaKernel &printed) {
  std::string wrong =
      judge(printed, "", {40, 7, 900, 1024, 4096, 5000, 8200, 20000});
  return wrong.empty() ? judge(printed, "chunks128x4x8", {20000}) : wrong;
}

class PlantedExtremesDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedExtremesDefect, IsCaught) {
  CudaKernel kernel = printExtremes();
  plant(kernel, GetParam());
  expectCaught(judge(kernel), GetParam());
}

const std::vector<Defect> kDefects = {

    Defect{", 0x7fff7fffu>", ">"},
    Defect{"<bf16, true,", "<bf16, false,"},
    Defect{"<bf16, false> min_1(infinity())", "<bf16, false> min_1(0.0f)"},
    Defect{"max_0.take(chunk.a[v]);", ";"},
    Defect{"max_0.with(s.max_0)", "max_0.with(-infinity())"},
    Defect{"min_1.with(s.min_1)", "min_1.with(infinity())"},
    Defect{"column >= row_length)\n            continue;\n          max_0",
           "column > row_length)\n            continue;\n          max_0"},
    Defect{"lane % (kThreads / 32)", "lane % 2"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedExtremesDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 4)));

TEST(Extremes, AGeneratedKernelIsRight) {
  EXPECT_EQ(judge(printExtremes()), "");
}

} // namespace
