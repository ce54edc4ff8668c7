// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Floats of 8 bits in the emulator, and the same with a defect planted in the
// text of the kernel or in what converts: each has to give a wrong answer.
#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Support/Tensor.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

using namespace refold;
using namespace refold::test;

namespace {

// Both formats as they round, one that saturates, and one that is read.
constexpr llvm::StringLiteral kConversions = R"(
func.func @kernel(%x: memref<?x?xf32>, %y: memref<?x?xf8E4M3FN>, %p: memref<?x?xf8E4M3FN>,
                  %q: memref<?x?xf8E5M2>, %s: memref<?x?xf8E4M3FN>, %w: memref<?x?xf32>) {
  refold.cascade rows(%m = ?, %n = ?)
    ins(%a = %x : memref<?x?xf32>, %b = %y : memref<?x?xf8E4M3FN>)
    outs(%c = %p : memref<?x?xf8E4M3FN>, %d = %q : memref<?x?xf8E5M2>,
         %e = %s : memref<?x?xf8E4M3FN>, %f = %w : memref<?x?xf32>)
    sizes(%m = %a[0], %n = %a[1]) {
    %most = arith.constant 448.0 : f32
    %least = arith.constant -448.0 : f32
    %v = refold.read %a[%m, %n] : f32
    %r = refold.read %b[%m, %n] : f8E4M3FN
    %narrow = arith.truncf %v : f32 to f8E4M3FN
    %other = arith.truncf %v : f32 to f8E5M2
    %above = arith.maximumf %v, %least : f32
    %inside = arith.minimumf %above, %most : f32
    %kept = arith.truncf %inside : f32 to f8E4M3FN
    %wide = arith.extf %r : f8E4M3FN to f32
    refold.write %narrow, %c[%m, %n] : f8E4M3FN
    refold.write %other, %d[%m, %n] : f8E5M2
    refold.write %kept, %e[%m, %n] : f8E4M3FN
    refold.write %wide, %f[%m, %n] : f32
  }
  return
})";

CudaKernel printConversions() {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "f8", kConversions, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

double valueOf(DType dtype, int code) {
  auto byte = uint8_t(code);
  return loadAsDouble(dtype, &byte);
}

/// The nearest code, of two the even one; one beyond the largest stands for
/// what overflows.
int nearest(DType dtype, double x, bool saturates) {
  if (std::isnan(x))
    return 0x7f;
  int last = dtype == DType::F8E4M3 ? 0x7e : 0x7b, best = 0;
  double next = 2 * valueOf(dtype, last) - valueOf(dtype, last - 1);
  auto distance = [&](int code) {
    double value = code > last ? next : valueOf(dtype, code);
    return std::abs(value - std::min(std::abs(x), next));
  };
  for (int code = 1; code <= last + 1; ++code)
    if (distance(code) < distance(best) ||
        (distance(code) == distance(best) && code % 2 == 0))
      best = code;
  return std::min(best, saturates ? last : last + 1) |
         (std::signbit(x) ? 0x80 : 0);
}

bool isSame(double x, double y) {
  return (std::isnan(x) && std::isnan(y)) ||
         (x == y && std::signbit(x) == std::signbit(y));
}

/// Stored numbers, middles between two, their neighbours, what overflows.
std::vector<float> drawn() {
  std::vector<float> x = {NAN, INFINITY, 448, 449, 470, 480, 60000, 63000, 1e9};
  for (DType dtype : {DType::F8E4M3, DType::F8E5M2})
    for (int code = 0; code < 0x7b; ++code) {
      auto low = float(valueOf(dtype, code)),
           middle = (low + float(valueOf(dtype, code + 1))) / 2;
      for (float value : {low, middle, std::nextafter(middle, 0.0f),
                          std::nextafter(middle, INFINITY)})
        x.push_back(value);
    }
  for (size_t i = 0, e = x.size(); i < e; ++i)
    x.push_back(-x[i]);
  return x;
}

/// What is wrong with the kernel for rows of `n`, "" if nothing.
std::string judge(const Kernel &kernel, int64_t n) {
  std::vector<float> x = drawn();
  int64_t rows = int64_t(x.size()) / n;
  std::vector<uint8_t> y(rows * n), p(rows * n), q(rows * n), s(rows * n);
  std::vector<float> w(rows * n);
  for (int64_t i = 0; i < rows * n; ++i)
    y[i] = uint8_t(i);
  std::vector<int64_t> words;
  auto add = [&](auto &array) {
    auto at = int64_t(reinterpret_cast<intptr_t>(array.data()));
    words.insert(words.end(), {at, at, 0, rows, n, n, 1});
  };
  add(x), add(y), add(p), add(q), add(s), add(w);
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < rows * n; ++i) {
    auto isRight = [&](DType dtype, uint8_t code, bool saturates) {
      return isSame(valueOf(dtype, code),
                    valueOf(dtype, nearest(dtype, x[i], saturates)));
    };
    if (!isRight(DType::F8E4M3, p[i], false) ||
        !isRight(DType::F8E5M2, q[i], false) ||
        !isRight(DType::F8E4M3, s[i], true))
      return "found " + std::to_string(x[i]) + " rounded to another number";
    if (!isSame(w[i], valueOf(DType::F8E4M3, y[i])))
      return "found code " + std::to_string(y[i]) + " as another number";
  }
  return "";
}

std::string judge(const CudaKernel &printed) {
  ExecutableSpec spec;
  if (llvm::Error error = attachEmulated(spec, {printed}))
    return "does not compile: " + llvm::toString(std::move(error));
  for (int64_t n : {48, 37, 1})
    if (std::string wrong = judge(spec.kernels.front(), n); !wrong.empty())
      return wrong;
  return "";
}

/// The text with what converts, so that defects reach it too.
std::string withConversions(std::string text) {
  for (auto [name, header] : cudaHeaders())
    if (name == "refold_cuda_f8.h")
      text.insert(text.find("#include \"refold_cuda.h\"\n"),
                  "#include \"refold_cuda_emulated.h\"\n" + header.str());
  return text;
}

class PlantedF8Defect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedF8Defect, IsCaught) {
  CudaKernel kernel = printConversions();
  kernel.text = withConversions(kernel.text);
  plant(kernel, GetParam());
  expectCaught(judge(kernel), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Text, PlantedF8Defect,
    testing::Values(
        Defect{"store_saturated<kWidth>(e", "store_rounded<kWidth>(e"},
        Defect{"store_rounded<kWidth>(c", "store_saturated<kWidth>(c"},
        Defect{"kLargest = 0x7e", "kLargest = 0x7d"},
        Defect{"kOverflow = 0x7f", "kOverflow = 0x7e"},
        Defect{"kOverflow = 0x7c", "kOverflow = 0x7d"},
        Defect{"kFraction = 2, kBias = 15", "kFraction = 2, kBias = 14"},
        Defect{"code << 20", "code << 19"},
        Defect{"code == 0x7f ?", "code == 0x7e ?"},
        Defect{"uint32_t(x.bits & 0x80) << 24", "0"},
        Defect{" - 1 + (size >> kShift & 1)", ""},
        Defect{" + (size >> kShift & 1)", ""},
        Defect{"151 - F::kBias", "152 - F::kBias"},
        Defect{"size < kRebias + (1u << 23)", "false"},
        Defect{"size > 0x7f800000u", "false"},
        Defect{"bits_of(x) >> 24 & 0x80u", "0u"},
        Defect{"code_of<T, false>(high) << 8", "code_of<T, false>(low) << 8"},
        Defect{"code_of<f8e4m3, true>(high) << 8", "0"}));

TEST(EmulatedF8, ConversionsAreRight) {
  EXPECT_EQ(judge(printConversions()), "");
}

} // namespace
