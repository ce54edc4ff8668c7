// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products outside cascades with roles in the emulator, and the same with a
// defect planted in what they are written in: each has to be reported, or to
// give a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

/// x[m, k] of bf16 times w, plus a bias of columns. `isTransposed`: w[n, k].
CudaKernel printProduct(bool isTransposed, DType result) {
  ExecutableSpec spec;
  ProductStep product;
  auto view = [&](DType dtype, std::vector<SizeExpr> sizes) {
    ViewSpec one;
    one.buffer = unsigned(spec.buffers.size());
    one.dtype = dtype;
    one.sizes = sizes;
    one.strides = {1};
    if (sizes.size() == 2)
      one.strides = {sizes[1], 1};
    spec.buffers.emplace_back();
    return one;
  };
  SizeExpr m = SizeExpr::symbol(0), n = SizeExpr::symbol(1),
           k = SizeExpr::symbol(2);
  product.lhs = view(DType::BF16, {m, k});
  product.rhs = view(DType::BF16, {k, n});
  if (isTransposed)
    product.rhs.strides = {1, k};
  product.bias = view(DType::BF16, {n});
  product.result = view(result, {m, n});
  Step step;
  step.what = product;
  step.name = "y";
  spec.steps.push_back(step);
  std::vector<CudaKernel> kernels;
  if (llvm::Error error = addProductKernels(
          spec, kernels, {CudaDevice::Emulated, "cuda-emulated-sm90"})) {
    ADD_FAILURE() << llvm::toString(std::move(error));
    return {};
  }
  return std::move(kernels.front());
}

/// What is wrong with the kernel for some sizes, "" if nothing.
std::string judge(const Kernel &kernel, bool isTransposed, DType result,
                  int64_t m, int64_t n, int64_t d) {
  // Sums of small multiples of 1/8 are exact.
  std::vector<uint16_t> x = drawn(m, d, 0.125f, 0.0f),
                        w = drawn(n, d, 0.125f, 0.25f), side(w),
                        a = drawn(1, n, 0.5f, 0.0f), narrow(m * n);
  std::vector<float> wide(m * n);
  if (!isTransposed)
    for (int64_t j = 0; j < n; ++j)
      for (int64_t k = 0; k < d; ++k)
        side[k * n + j] = w[j * d + k];
  std::vector<int64_t> words;
  auto add = [&](void *array, std::vector<int64_t> sizes,
                 std::vector<int64_t> strides) {
    int64_t at = int64_t(reinterpret_cast<intptr_t>(array));
    words.insert(words.end(), {at, at, 0});
    words.insert(words.end(), sizes.begin(), sizes.end());
    words.insert(words.end(), strides.begin(), strides.end());
  };
  add(x.data(), {m, d}, {d, 1});
  add(side.data(), {d, n},
      isTransposed ? std::vector<int64_t>{1, d} : std::vector<int64_t>{n, 1});
  add(a.data(), {n}, {1});
  add(result == DType::F32 ? static_cast<void *>(wide.data()) : narrow.data(),
      {m, n}, {n, 1});
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = toFloat(a[j]);
      for (int64_t k = 0; k < d; ++k)
        sum += double(toFloat(x[i * d + k])) * toFloat(w[j * d + k]);
      bool isRight = result == DType::F32
                         ? wide[i * n + j] == float(sum)
                         : std::abs(toFloat(narrow[i * n + j]) - sum) <=
                               std::abs(sum) * 0x1p-8;
      if (!isRight)
        return "found a wrong sum";
    }
  return "";
}

std::string judgeAll(const CudaKernel &printed, bool isTransposed, DType result,
                     llvm::ArrayRef<const char *> entries) {
  for (const char *entry : entries) {
    ExecutableSpec spec;
    setenv("REFOLD_CUDA_ENTRY", entry, 1);
    llvm::Error error = attachEmulated(spec, {printed});
    unsetenv("REFOLD_CUDA_ENTRY");
    if (error)
      return "does not compile: " + llvm::toString(std::move(error));
    // Ragged, more steps than are under way, nothing to sum.
    for (auto [m, n, d] : {std::array<int64_t, 3>{66, 72, 456},
                           {70, 136, 72},
                           {3, 264, 8},
                           {65, 16, 0},
                           // Blocks share the sums: five, and four.
                           {70, 72, 1800},
                           {3, 72, 1480}})
      if (std::string wrong =
              judge(spec.kernels.front(), isTransposed, result, m, n, d);
          !wrong.empty())
        return std::string(entry) + ": " + wrong;
  }
  return "";
}

class PlantedPanelsDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedPanelsDefect, IsCaught) {
  std::string all;
  bool isPlanted = false;
  for (bool isTransposed : {false, true}) {
    DType result = isTransposed ? DType::F32 : DType::BF16;
    const char *entry = isTransposed ? "roles64x64x128x8" : "roles128x128x64x8";
    CudaKernel kernel = printProduct(isTransposed, result);
    carryHeader(kernel, "refold_cuda_products_panels.h",
                "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_PANELS_H");
    carryHeader(kernel, "refold_cuda_wgmma.h",
                "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WGMMA_H");
    // Blocks of one of the two entries alone share sums.
    if (kernel.text.find(GetParam().from) == std::string::npos)
      continue;
    plant(kernel, GetParam());
    isPlanted = true;
    all += judgeAll(kernel, isTransposed, result, {entry});
  }
  ASSERT_TRUE(isPlanted) << "no text has '" << GetParam().from << "'";
  expectCaught(all, GetParam());
}

const std::vector<Defect> kDefects = {
    // Who waits for whom.
    Defect{"make_gate(came + 8 * place, 128);",
           "make_gate(came + 8 * place, 127);"},
    Defect{"make_gate(gone + 8 * place, 4 * kGroups);",
           "make_gate(gone + 8 * place, 4 * kGroups - 1);"},
    Defect{"wait_gate(gone + 8 * place, parity);", ""},
    Defect{"int place = 0, parity = 1;", "int place = 0, parity = 0;"},
    Defect{"wait_gate(came + 8 * place, parity);", ""},
    Defect{"show_matrices();", ""}, Defect{"begin_products();", ""},
    Defect{"commit_products();", ""}, Defect{"wait_products<1>();", ""},
    Defect{"wait_products<0>();", ""},
    Defect{"place == 0 ? kStages - 1 : place - 1", "place"},
    Defect{"k > 0 && thread() % 32 == 0", "thread() % 32 == 0"},
    Defect{"parity ^= place == 0;", ""},
    Defect{"place + 1 == kStages ? 0 : place + 1", "0"},
    Defect{"follow_launch();", ""},
    // What is copied.
    Defect{"is_column && pass * 16 + first < rows ? 16 : 0", "16"},
    Defect{"is_column && pass * 16 + first < rows", "pass * 16 + first < rows"},
    Defect{"pass * 16 + first < rows", "pass * 16 + first <= rows"},
    Defect{"from += pass_stride;", ""}, Defect{"source + panel * 64", "source"},
    Defect{"lefts.source += kDepth;", ""},
    Defect{"rights.source +=", "lefts.source + "},
    Defect{"int(smaller(depth, kDepth))", "kDepth"},
    Defect{"panel * To::kPanelBytes + pass", "pass"},
    // What is multiplied.
    Defect{"left_at, k / 4 * Left::kPanelBytes + k % 4 * 32", "left_at, 0"},
    Defect{"k / 4 * Across::kPanelBytes + k % 4 * 32", "k % 4 * 32"},
    Defect{"right + k * 16 * Along::kRowBytes", "right"},
    Defect{"Along::kPanelBytes);", "16);"},
    Defect{"from + group * 64 * Left::kRowBytes", "from"},
    Defect{"from + Left::kBytes", "from"},
    // What is written.
    Defect{"row0 + fragment_row(half)", "row0 + fragment_row(0)"},
    Defect{"sums[part + c][half * 2 + e]", "sums[part + c][e]"},
    Defect{"(part + c) % 8 * 4 + thread() % 4", "(part + c) % 8 * 4"},
    Defect{"biases[part / 8][e]", "biases[0][0]"},
    Defect{"(left - part * 8) * 2", "left * 2"},
    Defect{"part * 8 + column < left", "true"},
    Defect{"row < target.rows", "true"},
    Defect{"c * 8 + fragment_quad()", "fragment_quad()"},
    Defect{"row0 + group * 64 + thread() % 128 / 32 * 16, column0",
           "row0 + group * 64, column0"},
    // What blocks share.
    Defect{"left.at(row0, first)", "left.at(row0, 0)"},
    Defect{"right.at(first, column0)", "right.at(0, column0)"},
    Defect{"tickets + place", "tickets"},
    Defect{"int(block() - place * parts)", "0"},
    Defect{"left + part * int64_t(kRows * kColumns * 4)", "left"},
    Defect{"own + c * kGroups * 2048", "own"},
    Defect{"from + i * kRows * kColumns * 4 + c", "from + c"},
    Defect{"kColumns * 4 + c * kGroups * 2048", "kColumns * 4"},
    Defect{"from += kNumber * kRows * kColumns * 4;", ""},
    Defect{"if (!is_last_block(shares.ticket, shares.parts) || !has_rows)",
           "if (!has_rows)"},
    Defect{"take_sums(sums, shares.left, shares.parts);", ""},
    Defect{"part = 2; part <= parts", "part = 2; part < parts - 1"},
    Defect{"if (parts % 2 != 0)", "if (false)"},
    Defect{"sums[c][e] = 0.0f;", ""}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedPanelsDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedProductPanels, AGeneratedKernelIsRight) {
  for (auto [isTransposed, result] :
       {std::pair{false, DType::F32}, {true, DType::BF16}})
    EXPECT_EQ(
        judgeAll(printProduct(isTransposed, result), isTransposed, result,
                 {"roles64x64x64x8", "roles64x64x128x8", "roles64x128x64x8",
                  "roles128x128x64x8", "roles128x256x64x8"}),
        "");
}

} // namespace
