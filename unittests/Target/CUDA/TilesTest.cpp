// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A generated kernel over tiles in the emulator, and the same with a defect
// planted in its text or in the tile level: each has to be reported, or to give
// a wrong answer.
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

using namespace refold;

namespace {

// Rows of v weighted by shares of exp(q k / 4), up to the row's own position.
constexpr llvm::StringLiteral kWeighted = R"(
func.func @kernel(%q: memref<?x32xbf16>, %k: memref<?x32xbf16>, %v: memref<?x24xbf16>, %o: memref<?x24xbf16>) {
  refold.cascade rows(%m = ?) stream(%n = ?) inner(%d = 32) carried(%w = 24)
    ins(%a = %q : memref<?x32xbf16>, %b = %k : memref<?x32xbf16>, %c = %v : memref<?x24xbf16>)
    outs(%r = %o : memref<?x24xbf16>)
    sizes(%m = %r[0], %n = %b[0]) {
    %quarter = arith.constant 0.25 : f32
    %ninf = arith.constant 0xFF800000 : f32
    %lowest = arith.constant -3.40282347E+38 : f32
    %qv = refold.read %a[%m, %d] : bf16
    %qf = arith.extf %qv : bf16 to f32
    %kv = refold.read %b[%n, %d] : bf16
    %kf = arith.extf %kv : bf16 to f32
    %qk = arith.mulf %qf, %kf : f32
    %s0 = refold.contract %qk over(%d) : f32
    %s1 = arith.mulf %s0, %quarter : f32
    %seen = arith.cmpi sle, %n, %m : index
    %s = arith.select %seen, %s1, %ninf : f32
    %max = refold.state max(%s : f32)
    %g = arith.maxnumf %max, %lowest : f32
    %u = arith.subf %s, %g : f32
    %p = math.exp %u : f32
    %vv = refold.read %c[%n, %w] : bf16
    %vf = arith.extf %vv : bf16 to f32
    %pv = arith.mulf %p, %vf : f32
    %acc = refold.state add(%pv : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %x = arith.subf %old, %new : f32
      %f = math.exp %x : f32
      %t = arith.mulf %self, %f : f32
      refold.yield %t : f32
    } law "rescale-distributes"
    %z = refold.state add(%p : f32) pivot(%g : f32) transport(%old, %new, %self) {
      %x = arith.subf %old, %new : f32
      %f = math.exp %x : f32
      %t = arith.mulf %self, %f : f32
      refold.yield %t : f32
    } law "rescale-distributes"
    %y = arith.divf %acc, %z : f32
    %yt = arith.truncf %y : f32 to bf16
    refold.write %yt, %r[%m, %w] : bf16
  }
  return
})";

CudaKernel printWeighted() {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "weighted", kWeighted, "test",
                                {CudaDevice::Emulated, "cuda-emulated"});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

float toFloat(uint16_t bits) {
  uint32_t word = uint32_t(bits) << 16;
  float x;
  memcpy(&x, &word, 4);
  return x;
}

/// Numbers of few bits, all of them bf16.
std::vector<uint16_t> drawn(int64_t rows, int64_t n, float step, float growth) {
  std::vector<uint16_t> x(rows * n);
  for (int64_t i = 0; i < rows * n; ++i) {
    float value = float((i * 7919 + i / n * 31) % 17 - 8) * step;
    if (i % n == 0)
      value = growth * float(i / n) + 1.0f;
    uint32_t word;
    memcpy(&word, &value, 4);
    x[i] = uint16_t(word >> 16);
  }
  return x;
}

/// What is wrong with the kernel for some rows and positions, "" if nothing.
std::string judge(const Kernel &kernel, int64_t m, int64_t n, float growth) {
  constexpr int64_t kDepth = 32, kWidth = 24;
  // The first product of a row grows by a position, or falls, so that every
  // pivot moves where the stream is walked from its end.
  std::vector<uint16_t> q = drawn(m, kDepth, 0.125f, 0.0f),
                        k = drawn(n, kDepth, 0.125f, growth),
                        v = drawn(n, kWidth, 0.25f, -0.5f), o(m * kWidth, 0);
  auto address = [](std::vector<uint16_t> &x) {
    return int64_t(reinterpret_cast<intptr_t>(x.data()));
  };
  std::vector<int64_t> words;
  auto add = [&](std::vector<uint16_t> &x, int64_t rows, int64_t width) {
    words.insert(words.end(),
                 {address(x), address(x), 0, rows, width, width, 1});
  };
  add(q, m, kDepth), add(k, n, kDepth), add(v, n, kWidth), add(o, m, kWidth);
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < m; ++i) {
    std::vector<double> scores;
    for (int64_t j = 0; j < n && j <= i; ++j) {
      double s = 0.0;
      for (int64_t d = 0; d < kDepth; ++d)
        s += double(toFloat(q[i * kDepth + d])) * toFloat(k[j * kDepth + d]);
      scores.push_back(s / 4);
    }
    double most = *std::max_element(scores.begin(), scores.end()), sum = 0.0;
    for (double s : scores)
      sum += std::exp(s - most);
    for (int64_t w = 0; w < kWidth; ++w) {
      double exact = 0.0, size = 0.0;
      for (size_t j = 0; j < scores.size(); ++j) {
        double part =
            std::exp(scores[j] - most) / sum * toFloat(v[j * kWidth + w]);
        exact += part;
        size += std::abs(part);
      }
      if (!(std::abs(toFloat(o[i * kWidth + w]) - exact) <= 0.012 * size))
        return "found a wrong result";
    }
  }
  return "";
}

std::string judge(const CudaKernel &printed) {
  ExecutableSpec spec;
  if (llvm::Error error = attachEmulated(spec, {printed}))
    return "does not compile: " + llvm::toString(std::move(error));
  const std::pair<int64_t, int64_t> shapes[] = {
      {3, 2}, {16, 64}, {150, 150}, {20, 300}, {260, 200}};
  for (auto [m, n] : shapes)
    // What rounding takes from the larger pivots is no power of two.
    for (float growth : {2.0f, -2.0f, 0x1p34f})
      if (std::string wrong = judge(spec.kernels.front(), m, n, growth);
          !wrong.empty())
        return wrong;
  return "";
}

struct Defect {
  const char *from, *to;
};

class PlantedTileDefect : public testing::TestWithParam<Defect> {};

TEST_P(PlantedTileDefect, IsCaught) {
  CudaKernel kernel = printWeighted();
  // The tile level travels with the text, so that defects reach it too.
  std::string tiles;
  for (auto [name, text] : cudaHeaders())
    if (name == "refold_cuda_tiles.h")
      tiles = text.str();
  std::string include = "#include \"refold_cuda.h\"\n";
  size_t place = kernel.text.find(include);
  ASSERT_NE(place, std::string::npos);
  kernel.text.insert(place + include.size(),
                     "#undef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H\n" +
                         tiles);
  kernel.text.insert(place,
                     "#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H\n");
  std::string from = GetParam().from;
  size_t at = kernel.text.find(from);
  ASSERT_NE(at, std::string::npos) << "the text has no '" << from << "'";
  for (; at != std::string::npos; at = kernel.text.find(from, at)) {
    kernel.text.replace(at, from.size(), GetParam().to);
    at += strlen(GetParam().to);
  }
  std::string wrong = judge(kernel);
  EXPECT_FALSE(wrong.empty())
      << "'" << from << "' as '" << GetParam().to << "'";
  EXPECT_EQ(wrong.find("does not compile"), std::string::npos) << wrong;
}

const std::vector<Defect> kDefects = {
    // Copies and barriers.
    Defect{"wait_copies<0>();", ""}, Defect{"wait_copies<0>", "wait_copies<1>"},
    Defect{"block_barrier();", ""},
    Defect{"block_barrier();", "if (thread() < 32) block_barrier();"},
    Defect{"commit_copies();\n", "\n"}, Defect{"place ^ 1", "place"},
    Defect{"(end - 1 - at) & 1", "0"},
    Defect{"n_first - (has_next ? kColumns : 0)", "n_first"},
    Defect{"i * parts / kPasses != part", "i * parts / kPasses != 0"},
    Defect{"first + i * kStep >= To::kRows", "false"},
    // Fragments.
    Defect{"at % 4 * 2 + e", "at % 4 * 2 + 1 - e"},
    Defect{"at % 32 / 4 + half * 8", "at % 32 / 4 + half * 4"},
    Defect{"lane / 8 % 2);", "0);"}, Defect{"lane / 16 * 8,", "lane / 16 * 4,"},
    Defect{"at + chunks * 16", "at"},
    Defect{"load_rows<Left>(kept[k]", "load_rows<Left>(kept[0]"},
    Defect{"load_transposed(r", "load_matrices(r"},
    Defect{"r[2], r[3], T{}", "r[3], r[2], T{}"},
    Defect{"to[tile][2 + half]", "to[tile][3 - half]"},
    Defect{"add_1_values + c * 16 *", "add_1_values + 0 *"},
    Defect{"left_tile + which / 32 *", "left_tile + 0 *"},
    // Transports.
    Defect{"add_1_moved = add_1 * ", "add_1_moved = add_1; (void)"},
    Defect{"add_2_moved = s.add_2 * ", "add_2_moved = s.add_2; (void)"},
    Defect{"s.max_0 = max_0_tile[i];", ""},
    Defect{"(s.max_0 - max_0_tile[i])", "(max_0_tile[i] - s.max_0)"},
    Defect{"max_0_tile[i] * kept_scale", "max_0_tile[i]"},
    Defect{"<= kLargePivot", "< infinity()"}, Defect{"pivots[i] = 0.0f;", ""},
    Defect{"kept_scale, -pivots[i]", "kept_scale, 0.0f"},
    Defect{"if (any_lane(moves_1))", "if (moves_1 && any_lane(true))"},
    // Lanes of a row.
    Defect{"shuffle_xor(max_0_tile[i], 2)", "max_0_tile[i]"},
    Defect{"shuffle_xor(s.add_2, 1)", "0.0f"},
    Defect{"mask < 4; mask *= 2", "mask < 2; mask *= 2"},
    // Edges.
    Defect{"|| column < limit;", "|| true;"},
    Defect{"at < whole_end", "at < end"},
    Defect{"m_at < m_end", "m_at <= m_end"}, Defect{"at < bytes", "true"},
    Defect{"n_end = smaller(n_end, bound_0(m_end - 1))",
           "n_end = smaller(n_end, bound_0(m_first))"}};

/// Every third of the list, which has some of each kind; all of them where
/// REFOLD_ALL_DEFECTS is set: each takes a compiler and some launches.
std::vector<Defect> chosenDefects() {
  if (std::getenv("REFOLD_ALL_DEFECTS"))
    return kDefects;
  std::vector<Defect> chosen;
  for (size_t i = 0; i < kDefects.size(); i += 3)
    chosen.push_back(kDefects[i]);
  return chosen;
}

INSTANTIATE_TEST_SUITE_P(Text, PlantedTileDefect,
                         testing::ValuesIn(chosenDefects()));

TEST(EmulatedTiles, AGeneratedKernelIsRight) {
  EXPECT_EQ(judge(printWeighted()), "");
}

TEST(EmulatedTiles, TheTextIsTheSameEveryTime) {
  EXPECT_EQ(printWeighted().text, printWeighted().text);
}

TEST(PlanTiles, TakesTheFirstEntryWithRoomAndVectors) {
  CudaKernel kernel;
  kernel.name = "k";
  CudaOperand x;
  x.rank = 2;
  x.elementBytes = 2;
  x.hasVectors = true;
  kernel.operands = {x};
  CudaTiles tiles;
  tiles.rows = CudaExtent{0, 0, 1};
  tiles.depth = CudaExtent{0, 1, 1};
  kernel.tiles = tiles;
  kernel.stream = CudaExtent{0, 0, 1};
  CudaEntry entry;
  entry.threads = 128;
  entry.rows = 128;
  entry.width = 8;
  entry.deepest = 64;
  entry.sharedBytes = 4096;
  kernel.entries = {entry, entry, entry};
  kernel.entries[0].name = "near";
  kernel.entries[1].name = "deep";
  kernel.entries[1].deepest = 128;
  kernel.entries[2].name = "single";
  kernel.entries[2].width = 1;
  int64_t words[7] = {0, 1 << 20, 0, 300, 64, 64, 1};
  auto choose = [&]() -> int {
    auto launch = planCudaLaunch(kernel, words);
    if (!launch)
      return llvm::consumeError(launch.takeError()), -1;
    EXPECT_EQ((*launch)->blocks, 3);
    EXPECT_EQ((*launch)->threads, 128);
    EXPECT_EQ((*launch)->sharedBytes, 4096);
    return int((*launch)->entry);
  };
  EXPECT_EQ(choose(), 0);
  words[4] = words[5] = 72;
  EXPECT_EQ(choose(), 1);
  words[4] = 63;
  words[5] = 64;
  EXPECT_EQ(choose(), 2);
  words[4] = 65;
  EXPECT_EQ(choose(), -1);
  auto launch = planCudaLaunch(kernel, words);
  EXPECT_NE(llvm::toString(launch.takeError()).find("[cuda-not-tiles]"),
            std::string::npos);
  // Results that are as wide as the products are deep.
  kernel.tiles->width = kernel.tiles->depth;
  kernel.entries[0].widest = kernel.entries[2].widest = 64;
  kernel.entries[1].widest = 72;
  words[4] = words[5] = 72;
  EXPECT_EQ(choose(), 1);
  words[4] = words[5] = 80;
  EXPECT_EQ(choose(), -1);
}

} // namespace
