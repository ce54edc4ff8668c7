// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of f32 outside cascades in the emulator, and the same with a defect
// planted in what they are written in: each has to be reported, or to give a
// wrong answer. And which entry takes which shape.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

/// How what is multiplied lies in memory.
struct Form {
  bool isTransposed = false; ///< w[n, k]
  bool isLeftAcross = false; ///< rows of x lie beside each other
};

/// x[m, k] of f32 times w, plus a bias of columns.
CudaKernel printProduct(bool isTransposed) {
  ExecutableSpec spec;
  ProductStep product;
  auto view = [&](std::vector<SizeExpr> sizes) {
    ViewSpec one;
    one.buffer = unsigned(spec.buffers.size());
    one.dtype = DType::F32;
    one.sizes = sizes;
    one.strides = {1};
    if (sizes.size() == 2)
      one.strides = {sizes[1], 1};
    spec.buffers.emplace_back();
    return one;
  };
  SizeExpr m = SizeExpr::symbol(0), n = SizeExpr::symbol(1),
           k = SizeExpr::symbol(2);
  product.lhs = view({m, k});
  product.rhs = view({k, n});
  if (isTransposed)
    product.rhs.strides = {1, k};
  product.bias = view({n});
  product.result = view({m, n});
  Step step;
  step.what = product;
  step.name = "y";
  spec.steps.push_back(step);
  std::vector<CudaKernel> kernels;
  if (llvm::Error error = addProductKernels(
          spec, kernels, {CudaDevice::Emulated, "cuda-emulated"})) {
    ADD_FAILURE() << llvm::toString(std::move(error));
    return {};
  }
  return std::move(kernels.front());
}

std::vector<int64_t> wordsOf(Form form, int64_t m, int64_t n, int64_t d,
                             const float *x, const float *w, const float *a,
                             const float *y) {
  std::vector<int64_t> words;
  auto add = [&](const float *array, std::vector<int64_t> sizes,
                 std::vector<int64_t> strides) {
    int64_t at = int64_t(reinterpret_cast<intptr_t>(array));
    words.insert(words.end(), {at, at, 0});
    words.insert(words.end(), sizes.begin(), sizes.end());
    words.insert(words.end(), strides.begin(), strides.end());
  };
  using Pair = std::vector<int64_t>;
  add(x, {m, d}, form.isLeftAcross ? Pair{1, m} : Pair{d, 1});
  add(w, {d, n}, form.isTransposed ? Pair{1, d} : Pair{n, 1});
  add(a, {n}, {1});
  add(y, {m, n}, {n, 1});
  return words;
}

/// 16 bytes at multiples of 16.
struct Array {
  explicit Array(int64_t count) : lines(count / 4 + 1) {}
  float *data() { return lines.front().x; }
  float &operator[](int64_t i) { return data()[i]; }
  struct alignas(16) Line {
    float x[4];
  };
  std::vector<Line> lines;
};

/// What is wrong with the kernel for some sizes, "" if nothing.
std::string judge(const Kernel &kernel, Form form, int64_t m, int64_t n,
                  int64_t d) {
  // Sums of small multiples of 1/8 are exact.
  std::vector<uint16_t> xs = drawn(m, d, 0.125f, 0.0f),
                        ws = drawn(n, d, 0.125f, 0.25f),
                        as = drawn(1, n, 0.5f, 0.0f);
  Array x(m * d), w(n * d), a(n), y(m * n);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t k = 0; k < d; ++k)
      x[form.isLeftAcross ? k * m + i : i * d + k] = toFloat(xs[i * d + k]);
  for (int64_t j = 0; j < n; ++j)
    for (int64_t k = 0; k < d; ++k)
      w[form.isTransposed ? j * d + k : k * n + j] = toFloat(ws[j * d + k]);
  for (int64_t j = 0; j < n; ++j)
    a[j] = toFloat(as[j]);
  std::vector<int64_t> words =
      wordsOf(form, m, n, d, x.data(), w.data(), a.data(), y.data());
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      double sum = toFloat(as[j]);
      for (int64_t k = 0; k < d; ++k)
        sum += double(toFloat(xs[i * d + k])) * toFloat(ws[j * d + k]);
      if (y[i * n + j] != float(sum))
        return "found a wrong sum";
    }
  return "";
}

/// Products of a large number and many of 1, each of which is lost where the
/// sum is large already: only those of one sum of 128 may be.
std::string judgeLongSum(const Kernel &kernel) {
  constexpr int64_t d = 456;
  constexpr float kLarge = 16777216.0f; // 2^24
  Array x(d), w(d * 4), a(4), y(4);
  for (int64_t k = 0; k < d; ++k) {
    x[k] = k == 0 ? kLarge : 1.0f;
    for (int64_t j = 0; j < 4; ++j)
      w[k * 4 + j] = 1.0f;
  }
  for (int64_t j = 0; j < 4; ++j)
    a[j] = 0.0f;
  std::vector<int64_t> words =
      wordsOf({}, 1, 4, d, x.data(), w.data(), a.data(), y.data());
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  return y[0] - kLarge >= d - 128 ? "" : "found a sum of more than 128";
}

std::string judgeEntry(const CudaKernel &printed, Form form,
                       const char *entry) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", entry, 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  // Ragged, more steps than are under way, nothing to sum; blocks share sums,
  // two and more, of which the last has less.
  for (auto [m, n, d] : {std::array<int64_t, 3>{67, 72, 70},
                         {3, 132, 37},
                         {35, 12, 0},
                         {3, 68, 456},
                         {33, 8, 600}})
    if (std::string wrong = judge(spec.kernels.front(), form, m, n, d);
        !wrong.empty())
      return std::string(entry) + ": " + wrong;
  // Blocks that share have short sums.
  if (llvm::StringRef(entry).starts_with("words128x128x4") &&
      !form.isTransposed)
    return judgeLongSum(spec.kernels.front());
  return "";
}

class PlantedWordsDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedWordsDefect, IsCaught) {
  std::string all;
  bool isPlanted = false;
  for (auto [form, entry] :
       {std::pair<Form, const char *>{{false, false}, "words8x128x4"},
        {{true, false}, "words64x64x4"},
        {{false, true}, "words64x64x1"},
        {{false, false}, "words128x128x4"}}) {
    CudaKernel kernel = printProduct(form.isTransposed);
    carryHeader(kernel, "refold_cuda_products_words.h",
                "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_WORDS_H");
    if (kernel.text.find(GetParam().from) == std::string::npos)
      continue;
    plant(kernel, GetParam());
    isPlanted = true;
    all += judgeEntry(kernel, form, entry);
    if (!all.empty())
      break;
  }
  ASSERT_TRUE(isPlanted) << "no text has '" << GetParam().from << "'";
  expectCaught(all, GetParam());
}

const std::vector<Defect> kDefects = {
    // Who waits for whom.
    Defect{"wait_copies<kStages - 2>();", "wait_copies<kStages - 1>();"},
    Defect{"wait_copies<kStages - 2>();\n      block_barrier();",
           "wait_copies<kStages - 2>();"},
    Defect{"place == 0 ? kStages - 1 : place - 1", "place"},
    Defect{"place + 1 == kStages ? 0 : place + 1", "0"},
    Defect{"wait_copies<0>();\n    block_barrier();", "wait_copies<0>();"},
    Defect{"begin_launch();", ""},
    // What is copied.
    Defect{"side + i * kStepAcross < count", "true"},
    Defect{"side + i * kStepAcross < count", "side + i * kStepAcross <= count"},
    Defect{"line + j * kStepDown < left", "true"},
    Defect{"count >= kSide && left >= kDepth", "true"},
    Defect{"from += kStepDown * down;", ""},
    Defect{"first += kStepAcross * across;", ""},
    Defect{"source += kDepth * down;", ""},
    Defect{"side * across + line * down", "side * across"},
    Defect{"j * kStepDown * kLine + i", "i"},
    Defect{"at % 8 + at / (8 * kAcross) * 8", "at % 8"},
    Defect{"is_flat ? at % kFlatAcross : at / 8 % kAcross", "at / 8 % kAcross"},
    Defect{"at / (kAcross / 4);", "0;"},
    // What is multiplied.
    Defect{"k * kSlices * kLeftLine", "k * kLeftLine"},
    Defect{"i * kRowThreads * 16", "0"}, Defect{"j * kColumnThreads * 16", "0"},
    Defect{"at.slice * kRightLine", "0"}, Defect{"at.column * 16", "0"},
    Defect{"lane / pair % kLaneColumns", "lane % kLaneColumns"},
    Defect{"++steps == kSumSteps || k", "k"}, Defect{"own[i][j] = 0.0f;", ""},
    // What slices and blocks share.
    Defect{"(of * kSumQuads + quad)", "quad"},
    Defect{"of < kSlices; ++of", "of < kSlices - 1; ++of"},
    Defect{"place(of, q * kSlices + slice)", "place(of, q)"},
    Defect{"shares.part * int64_t(kPartBytes)", "0"},
    Defect{"if (!is_last_block(shares.ticket, shares.parts))", "if (false)"},
    Defect{"part + i < shares.parts && is_there(q)", "is_there(q)"},
    Defect{"from += kAtOnce * int64_t(kPartBytes);", ""},
    Defect{"i * int64_t(kPartBytes) + q", "q"},
    Defect{"left.at(row0, first)", "left.at(row0, 0)"},
    Defect{"right.at(first, column0)", "right.at(0, column0)"},
    // What is written.
    Defect{"q * kSlices + (kSlices > 1 ? at.slice : 0)", "q * kSlices"},
    Defect{"(i / 4 * kRowThreads + row) * 4 + i % 4", "row * 4 + i % 4"},
    Defect{"quad % kColumnQuads * kColumnThreads + column", "column"},
    Defect{"row < target.rows && column < target.columns", "true"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedWordsDefect,
                         testing::ValuesIn(chosenDefects(kDefects)));

TEST(EmulatedProductWords, AGeneratedKernelIsRight) {
  for (auto [form, entry] :
       {std::pair<Form, const char *>{{false, false}, "words128x128x4"},
        {{false, false}, "words16x128x1"},
        {{true, false}, "words64x64x4"},
        {{true, false}, "words8x128x4"},
        {{false, true}, "words64x64x1"}}) {
    CudaKernel kernel = printProduct(form.isTransposed);
    EXPECT_EQ(judgeEntry(kernel, form, entry), "");
  }
}

/// Entries compare their times with each other: a package holds each once, and
/// a call works it out once (353 terms; 21 thousand where nothing is shared).
TEST(PlanCudaLaunch, TimesOfWordsShareTheirTerms) {
  EXPECT_LT(describeCudaLaunch(printProduct(false)).sizes.size(), 500u);
}

/// Few rows, few rectangles, many; columns that are no vectors, and a left side
/// whose rows lie beside each other.
TEST(PlanCudaLaunch, WordsTakeShapes) {
  CudaKernel kernel = printProduct(false);
  auto chosen = [&](int64_t m, int64_t d, int64_t n, bool isLeftAcross) {
    // At a place that vectors begin at.
    auto *at = reinterpret_cast<const float *>(intptr_t(1) << 20);
    auto launch = planCudaLaunch(
        kernel, wordsOf({false, isLeftAcross}, m, n, d, at, at, at, at).data());
    if (!launch || !*launch) {
      llvm::consumeError(launch.takeError());
      return std::string("none");
    }
    return kernel.entries[(*launch)->entry].name.substr(
               strlen("product0_words")) +
           " " + std::to_string((*launch)->blocks);
  };
  EXPECT_EQ(chosen(1, 4096, 4096, false), "8x128x4 256");
  EXPECT_EQ(chosen(8, 4096, 4096, false), "8x128x4 256");
  EXPECT_EQ(chosen(16, 4096, 4096, false), "16x128x4 128");
  EXPECT_EQ(chosen(32, 4096, 4096, false), "32x64x4 128");
  EXPECT_EQ(chosen(64, 4096, 4096, false), "64x64x4 256");
  EXPECT_EQ(chosen(2048, 384, 1536, false), "64x64x4 768");
  EXPECT_EQ(chosen(4096, 4096, 4096, false), "128x128x4 1024");
  EXPECT_EQ(chosen(4096, 4096, 4095, false), "128x128x1 1024");
  EXPECT_EQ(chosen(4096, 4096, 4096, true), "128x128x1 1024");
  EXPECT_EQ(chosen(9, 4096, 4095, false), "16x128x1 128");
  EXPECT_EQ(chosen(128, 768, 3071, false), "64x64x1 192");
  EXPECT_EQ(chosen(0, 768, 3072, false), "none");
}

} // namespace
