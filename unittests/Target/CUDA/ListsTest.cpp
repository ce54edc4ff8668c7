// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Lists of the best in the emulator, and the same with a defect planted in the
// text of the kernel or in what it is made of: each has to be reported, or to
// give a wrong answer.
#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/ADT/STLExtras.h"
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <gtest/gtest.h>
#include <numeric>

using namespace refold;
using namespace refold::test;

namespace {

// The three largest of every row and the two smallest, with their places.
constexpr llvm::StringLiteral kBest = R"(
func.func @kernel(%x: memref<?x?xTYPE>, %v: memref<?x3xf32>, %i: memref<?x3xi32>, %w: memref<?x2xf32>, %j: memref<?x2xi32>) {
  refold.cascade rows(%m = ?) stream(%n = ?) carried(%r = 3, %q = 2)
    ins(%a = %x : memref<?x?xTYPE>)
    outs(%b = %v : memref<?x3xf32>, %c = %i : memref<?x3xi32>, %d = %w : memref<?x2xf32>, %e = %j : memref<?x2xi32>)
    sizes(%m = %b[0], %n = %a[1]) {
    %read = refold.read %a[%m, %n] : TYPE
    CAST
    %at = arith.index_cast %n : index to i32
    %top:2 = refold.state topk(%key : f32, %at : i32) rank(%r)
    %low:2 = refold.state bottomk(%key : f32, %at : i32) rank(%q)
    refold.write %top#0, %b[%m, %r] : f32
    refold.write %top#1, %c[%m, %r] : i32
    refold.write %low#0, %d[%m, %q] : f32
    refold.write %low#1, %e[%m, %q] : i32
  }
  return
})";

std::string replaced(llvm::StringRef in, llvm::StringRef from,
                     llvm::StringRef to) {
  std::string text = in.str();
  for (size_t at = 0; (at = text.find(from.str(), at)) != std::string::npos;
       at += to.size())
    text.replace(at, from.size(), to.str());
  return text;
}

CudaKernel printBest(bool isNarrow) {
  auto context = makeContext();
  std::string text = replaced(kBest, "TYPE", isNarrow ? "bf16" : "f32");
  text = replaced(text, "CAST",
                  isNarrow ? "%key = arith.extf %read : bf16 to f32" : "");
  if (!isNarrow)
    text = replaced(text, "%key", "%read");
  auto kernel = printCudaKernel(*context, "best", text, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

/// Few different numbers, all of them bf16: many are equal, and there are NaNs
/// and zeros of both signs. Row 0 grows, row 1 falls.
std::vector<float> drawn(int64_t rows, int64_t n) {
  std::vector<float> x(rows * n);
  for (int64_t i = 0; i < rows * n; ++i) {
    int64_t row = i / n, k = (i * 7919 + row * 31) % 23;
    x[i] = row == 0             ? float(i % n)
           : row == 1           ? -float(i % n)
           : k == 0             ? -INFINITY
           : k == 1             ? -0.0f
           : k == 2             ? 0.0f
           : k == 3 && row != 2 ? -NAN
                                : float(k - 12) * (row == 2 ? -0.25f : 0.25f);
    if (row < 2 && n > 256)
      x[i] = float(int64_t(x[i]) / (n / 256 + 1)); // 8 bits
  }
  // The best of row 2 are one thread's, in chunks one after the other.
  for (int64_t i = 0; i < 3 && n > 4096; ++i)
    x[2 * n + 1024 * i + 1] = 50.0f - float(i);
  return x;
}

/// What is wrong with the kernel for rows of one length, "" if nothing.
std::string judge(const Kernel &kernel, bool isNarrow, int64_t rows,
                  int64_t n) {
  std::vector<float> x = drawn(rows, n), v(rows * 3), w(rows * 2);
  std::vector<int32_t> i(rows * 3), j(rows * 2);
  std::vector<uint16_t> narrow;
  for (float value : x) {
    uint32_t bits;
    std::memcpy(&bits, &value, 4);
    narrow.push_back(uint16_t(bits >> 16));
  }
  auto address = [](auto &array) {
    return int64_t(reinterpret_cast<intptr_t>(array.data()));
  };
  int64_t from = isNarrow ? address(narrow) : address(x);
  std::vector<int64_t> words{from, from, 0, rows, n, n, 1};
  auto add = [&](int64_t at, int64_t width) {
    words.insert(words.end(), {at, at, 0, rows, width, width, 1});
  };
  add(address(v), 3), add(address(i), 3), add(address(w), 2),
      add(address(j), 2);
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t row = 0; row < rows; ++row) {
    std::vector<int32_t> order(n);
    std::iota(order.begin(), order.end(), 0);
    const float *own = x.data() + row * n;
    auto check = [&](bool isTop, int k, const float *keys,
                     const int32_t *places) {
      llvm::stable_sort(order, [&](int32_t a, int32_t b) {
        float p = own[a], q = own[b];
        if (std::isnan(p) || std::isnan(q))
          return isTop ? !std::isnan(q) && std::isnan(p)
                       : !std::isnan(p) && std::isnan(q);
        return isTop ? p > q : p < q;
      });
      for (int r = 0; r < k; ++r) {
        float key = r < n ? own[order[r]] : isTop ? -INFINITY : INFINITY;
        bool isSame =
            keys[r] == key || (std::isnan(keys[r]) && std::isnan(key));
        if (!isSame || places[r] != (r < n ? order[r] : -1))
          return false;
      }
      std::iota(order.begin(), order.end(), 0);
      return true;
    };
    if (!check(true, 3, &v[row * 3], &i[row * 3]) ||
        !check(false, 2, &w[row * 2], &j[row * 2]))
      return "found a wrong list";
  }
  return "";
}

/// What is wrong with it for any of the shapes that a schedule is for.
std::string judge(const CudaKernel &printed, bool isNarrow) {
  ExecutableSpec spec;
  if (llvm::Error error = attachEmulated(spec, {printed}))
    return "does not compile: " + llvm::toString(std::move(error));
  const std::pair<int64_t, int64_t> shapes[] = {{67, 40},  {70, 16}, {3, 2},
                                                {5, 1},    {4, 256}, {3, 900},
                                                {3, 2047}, {3, 6000}};
  for (auto [rows, n] : shapes)
    if (std::string wrong = judge(spec.kernels.front(), isNarrow, rows, n);
        !wrong.empty())
      return wrong;
  return "";
}

/// The text with what lists are made of, so that defects reach it too.
std::string withLists(std::string text) {
  for (auto [name, header] : cudaHeaders())
    if (name == "refold_cuda_lists.h") {
      std::string include = "#include \"refold_cuda.h\"\n";
      size_t place = text.find(include);
      text.insert(place + include.size(),
                  "#undef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_LISTS_H\n" +
                      header.str());
      text.insert(place, "#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_LISTS_H\n");
    }
  return text;
}

class PlantedListDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedListDefect, IsCaught) {
  std::string wrong;
  for (bool isNarrow : {true, false}) {
    CudaKernel kernel = printBest(isNarrow);
    std::string text = withLists(kernel.text);
    kernel.text = replaced(text, GetParam().from, GetParam().to);
    ASSERT_NE(kernel.text, text)
        << "the text has no '" << GetParam().from << "'";
    wrong = judge(kernel, isNarrow);
    if (!wrong.empty())
      break;
  }
  expectCaught(wrong, GetParam());
}

const std::vector<Defect> kDefects = {
    // The kernel: elements, lanes, warps, results.
    {"word_of(to_float(chunk.a[v].get(e)), column + e)",
     "word_of(to_float(chunk.a[v].get(e)), column)"},
    {"if (whole.value == 0 && column >= row_length)", "if (false)"},
    {"topk_0.merge_lane(mask)", "topk_0.merge_lane(1)"},
    {"bottomk_1.merge_lane(mask);", ";"},
    {"topk_0.store(shared_topk_0, lane / 32)",
     "topk_0.store(shared_topk_0, lane / 64)"},
    {"lane % (kThreads / 32))", "lane % 2)"},
    {"merge1(Number<kThreads / 32>{});", "merge1(Number<32>{});"},
    {"block_barrier();", ""},
    {"merge1(Number<kThreads / 32>{});", ""},
    {"bottomk_1_own.place(at)", "int32_t(lane)"},
    {"words[p * kOwn + i]", "words[i]"},
    {"+ lane * kOwn, e2_places", ", e2_places"},
    {"-infinity())", "0.0f)"},
    {"topk_0.template take<", "bottomk_1.template take<"},
    // Lists: the order of words.
    {"plain_number(x)", "x"},
    {"(uint32_t(int32_t(bits) >> 31) | 0x80000000u)", "0x80000000u"},
    {"order & 0x80000000u ? order ^ 0x80000000u : ~order",
     "order ^ 0x80000000u"},
    {"const uint32_t order = kIsTop ?", "const uint32_t order = true ?"},
    {"uint32_t(~uint32_t(place))", "uint32_t(place)"},
    {"(kPlaces - uint32_t(place))", "uint32_t(place)"},
    {"(order & ~kPlaces) |", "order |"},
    {"int32_t(~words[i] << (32 - kPlaceBits)) >> (32 - kPlaceBits)",
     "int32_t(kPlaces - (words[i] & kPlaces))"},
    {"if (is_free(i))\n      return free;", ""},
    {"number_of(kIsTop ? order : ~order)", "number_of(order)"},
    // Sorting and merging.
    {"second = x > y ? y : x", "second = x > y ? x : y"},
    {"other[kRoom - 1 - i]", "other[i]"},
    {"words[kRoom - 1 - i], elements[i]", "words[i], elements[i]"},
    {"if (best < words[kCount - 1])", "if (best < words[0])"},
    {"sort_bitonic<kRoom / 2>(words)", "(void)words"},
    {"sort_bitonic<kStep / 2>(words)", "(void)words"},
    {"first += 2 * kStep", "first += 4 * kStep"},
    {"sort_words<2 * kSorted>(words)", "(void)words"},
    {"constexpr int kTaken = kWidth < kRoom ? kWidth : kRoom",
     "constexpr int kTaken = 1"},
    {"best = larger_word(best, elements[i]);", ";"}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedListDefect,
                         testing::ValuesIn(chosenDefects(kDefects, 3)));

// Long lists of keys as they are stored: rows of one chunk are chosen from
// halves of vectors, longer ones from more vectors at once.
constexpr llvm::StringLiteral kLongList = R"(
func.func @kernel(%x: memref<?x?xbf16>, %v: memref<?x6xf32>, %i: memref<?x6xi32>) {
  refold.cascade rows(%m = ?) stream(%n = ?) carried(%r = 6)
    ins(%a = %x : memref<?x?xbf16>)
    outs(%b = %v : memref<?x6xf32>, %c = %i : memref<?x6xi32>)
    sizes(%m = %b[0], %n = %a[1]) {
    %read = refold.read %a[%m, %n] : bf16
    %key = arith.extf %read : bf16 to f32
    %at = arith.index_cast %n : index to i32
    %top:2 = refold.state topk(%key : f32, %at : i32) rank(%r)
    refold.write %top#0, %b[%m, %r] : f32
    refold.write %top#1, %c[%m, %r] : i32
  }
  return
})";

CudaKernel printLongList() {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "best", kLongList, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

/// What is wrong with the entry of a row a lane that lists are chosen by
/// vectors of `picked` elements in (0: whole ones), for rows of its lengths.
std::string judgeLongList(CudaKernel printed, int picked) {
  llvm::erase_if(printed.entries, [&](const CudaEntry &entry) {
    return entry.place != CudaEntry::Lanes || entry.picked != picked;
  });
  EXPECT_FALSE(printed.entries.empty());
  std::vector<int64_t> lengths{8, 48};
  for (CudaEntry &entry : printed.entries) {
    entry.fewestRows = 0;
    lengths.push_back(entry.longest);
  }
  ExecutableSpec spec;
  if (llvm::Error error = attachEmulated(spec, {printed}))
    return "does not compile: " + llvm::toString(std::move(error));
  for (int64_t n : lengths) {
    const int64_t rows = 70, k = 6;
    std::vector<float> x = drawn(rows, n), v(rows * k);
    std::vector<int32_t> places(rows * k);
    std::vector<uint16_t> narrow;
    for (float value : x) {
      uint32_t bits;
      std::memcpy(&bits, &value, 4);
      narrow.push_back(uint16_t(bits >> 16));
    }
    std::vector<int64_t> words;
    auto add = [&](auto &array, int64_t width) {
      auto at = int64_t(reinterpret_cast<intptr_t>(array.data()));
      words.insert(words.end(), {at, at, 0, rows, width, width, 1});
    };
    add(narrow, n), add(v, k), add(places, k);
    if (llvm::Error error = spec.kernels.front().launch(words.data()))
      return llvm::toString(std::move(error));
    for (int64_t row = 0; row < rows; ++row) {
      std::vector<int32_t> order(n);
      std::iota(order.begin(), order.end(), 0);
      const float *own = x.data() + row * n;
      llvm::stable_sort(order, [&](int32_t a, int32_t b) {
        return std::isnan(own[a]) || std::isnan(own[b])
                   ? !std::isnan(own[b]) && std::isnan(own[a])
                   : own[a] > own[b];
      });
      for (int64_t r = 0; r < k; ++r)
        if (places[row * k + r] != order[r])
          return "found a wrong list";
    }
  }
  return "";
}

TEST(Lists, OfLanesAreChosenByPartsOfVectors) {
  for (int picked : {0, 4})
    EXPECT_EQ(judgeLongList(printLongList(), picked), "");
}

class PlantedPickedDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedPickedDefect, IsCaught) {
  CudaKernel kernel = printLongList();
  std::string text = withLists(kernel.text);
  kernel.text = replaced(text, GetParam().from, GetParam().to);
  ASSERT_NE(kernel.text, text) << "the text has no '" << GetParam().from << "'";
  expectCaught(judgeLongList(kernel, 4), GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Text, PlantedPickedDefect,
    testing::Values(Defect{"/ kWidth) * (kWidth / kPicked)", "/ kWidth)"},
                    Defect{"take_bests<kPicked>", "take_bests<kWidth>"},
                    Defect{"load_own<bf16, kPicked>(own_row",
                           "load_own<bf16, kPicked>(own_row + 8"},
                    Defect{"first == 0 && part == 0", "first == 0"}));

/// The kernel for a row a lane, and what takes rows that are no whole vectors.
CudaKernel printLanes(bool isNarrow) {
  CudaKernel kernel = printBest(isNarrow);
  llvm::erase_if(kernel.entries, [](const CudaEntry &entry) {
    return entry.place != CudaEntry::Lanes && entry.width > 1;
  });
  EXPECT_EQ(kernel.entries.front().place, CudaEntry::Lanes);
  kernel.entries.front().fewestRows = 0;
  return kernel;
}

std::string wrongInLanes(bool isNarrow, const Defect &defect) {
  CudaKernel kernel = printLanes(isNarrow);
  std::string text = withLists(kernel.text);
  kernel.text = replaced(text, defect.from, defect.to);
  if (kernel.text == text)
    return std::string("does not compile: the text has no '") + defect.from +
           "'";
  return judge(kernel, isNarrow);
}

// Keys as they are stored, two a word.
class PlantedLanesDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedLanesDefect, IsCaught) {
  std::string wrong = wrongInLanes(true, GetParam());
  expectCaught(wrong, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Text, PlantedLanesDefect,
    testing::Values(
        Defect{"warp_barrier();", ""}, Defect{"wait_copies<0>();", ""},
        Defect{"uint32_t(thread()) * own_bytes", "uint32_t(lane) * own_bytes"},
        Defect{"m_count - block() * kRows - own_warp", "m_count"},
        Defect{"own_rows + uint32_t(own_warp) * own_bytes", "own_rows"},
        Defect{"take_bests<kWidth>(bests_topk_0",
               "take_bests<kWidth>(bests_bottomk_1"},
        Defect{"return max_pairs(x, y, T{});", "return y;"},
        Defect{"min_numbers(x, y, T{})", "min_pairs(x, y, T{})"},
        Defect{"plain_pairs(keys, T{})", "keys"},
        Defect{"(spread_signs(plain) | 0x80008000u)", "0x80008000u"},
        Defect{"kIsTop ? order : ~order;\n  }\n  ///", "order; } ///"},
        Defect{"(places - kWidth)", "places"},
        Defect{"some, first == 0", "some, true"},
        Defect{"base - bound - 1", "base - bound"},
        Defect{"(orders & ~kPlaces) | uint32_t(kWidth - 2 - i)",
               "(orders & ~kPlaces) | uint32_t(kWidth - 1 - i)"},
        Defect{"own ^ (~spread_signs(own) | 0x80008000u)", "own ^ 0x80008000u"},
        Defect{"vectors.words[i + 1] < next ? vectors.words[i + 1] : next",
               "next"}));

// Keys of 32 bits.
class PlantedWideLanesDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedWideLanesDefect, IsCaught) {
  std::string wrong = wrongInLanes(false, GetParam());
  expectCaught(wrong, GetParam());
}

INSTANTIATE_TEST_SUITE_P(
    Text, PlantedWideLanesDefect,
    testing::Values(Defect{"max_nan(best_key, own_key)", "own_key"},
                    Defect{"word_of(best_key, column)",
                           "word_of(best_key, column + kWidth - 1)"},
                    Defect{"(words, first == 0)", "(words, true)"},
                    Defect{"elements[i] + ~bound", "elements[i]"},
                    Defect{"Word(elements[i] - best)", "elements[i]"},
                    Defect{"place(0) / kWidth * kWidth", "place(0)"}));

TEST(EmulatedLists, OfLanesAreRight) {
  for (bool isNarrow : {true, false})
    EXPECT_EQ(judge(printLanes(isNarrow), isNarrow), "") << isNarrow;
}

TEST(EmulatedLists, AreRight) {
  for (bool isNarrow : {true, false})
    EXPECT_EQ(judge(printBest(isNarrow), isNarrow), "") << isNarrow;
}

} // namespace
