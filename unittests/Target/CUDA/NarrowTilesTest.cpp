// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Generated kernels over tiles whose stream has 8 bits, in the emulator, and
// the same with a defect planted in what brings and widens bytes: each has to
// be reported, or to give a wrong answer.
#include "WeightedRows.h"

using namespace refold;
using namespace refold::test;

namespace {

constexpr int kDepth = 80, kWidth = 48; // rows of no power of two of vectors

/// The program with keys and values of 8 bits.
std::string bytesText() {
  std::string text = weightedText(kDepth, kWidth);
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += to.size())
      text.replace(at, from.size(), to);
  };
  std::string narrow = "f8E4M3FN", deep = "?x" + std::to_string(kDepth) + "x",
              wide = "?x" + std::to_string(kWidth) + "x";
  for (const char *array : {"%k: memref<", "%k : memref<"})
    replace(array + deep + "bf16>", array + deep + narrow + ">");
  for (const char *array : {"%v: memref<", "%v : memref<"})
    replace(array + wide + "bf16>", array + wide + narrow + ">");
  replace("refold.read %b[%n, %d] : bf16",
          "refold.read %b[%n, %d] : " + narrow);
  replace("refold.read %c[%n, %w] : bf16",
          "refold.read %c[%n, %w] : " + narrow);
  replace("%kv : bf16 to f32", "%kv : " + narrow + " to f32");
  replace("%vv : bf16 to f32", "%vv : " + narrow + " to f32");
  return text;
}

CudaKernel printBytes(const char *target) {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "weighted", bytesText(), "test",
                                {CudaDevice::Emulated, target});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  for (CudaEntry &entry : kernel->entries)
    if (entry.mostBlocks > 0)
      entry.mostBlocks = 2; // parts long enough for places to be used again
  return std::move(*kernel);
}

/// Floats of 8 bits with 3 of mantissa, as bits and back.
float ofByte(uint8_t bits) {
  int exponent = bits >> 3 & 15, mantissa = bits & 7;
  float value = exponent ? std::ldexp(1.0f + float(mantissa) / 8, exponent - 7)
                         : std::ldexp(float(mantissa) / 8, -6);
  return bits & 0x80 ? -value : value;
}
uint8_t toByte(float x) {
  int best = 0;
  for (int bits = 0; bits < 256; ++bits)
    if ((bits & 0x7f) != 0x7f && std::abs(ofByte(uint8_t(bits)) - x) <
                                     std::abs(ofByte(uint8_t(best)) - x))
      best = bits;
  return uint8_t(best);
}

/// Numbers that 8 bits hold, the first of a row growing with it or falling.
std::vector<uint8_t> drawnBytes(int64_t rows, int64_t n, float step,
                                float growth) {
  std::vector<uint8_t> x(size_t(rows * n));
  for (int64_t i = 0; i < rows * n; ++i)
    x[size_t(i)] =
        toByte(i % n == 0 ? growth * float(i / n)
                          : float((i * 7919 + i / n * 31) % 17 - 8) * step);
  return x;
}

/// What is wrong with the kernel for some rows and positions, "" if nothing.
std::string judge(const Kernel &kernel, int64_t m, int64_t n, float growth) {
  std::vector<uint16_t> q = drawn(m, kDepth, 0.125f, 0.0f),
                        o(size_t(m * kWidth), 0);
  std::vector<uint8_t> k = drawnBytes(n, kDepth, 0.125f, growth),
                       v = drawnBytes(n, kWidth, 0.25f, 0.125f);
  std::vector<int64_t> words;
  auto add = [&](auto &x, int64_t rows, int64_t width) {
    int64_t address = int64_t(reinterpret_cast<intptr_t>(x.data()));
    words.insert(words.end(), {address, address, 0, rows, width, width, 1});
  };
  add(q, m, kDepth), add(k, n, kDepth), add(v, n, kWidth), add(o, m, kWidth);
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < m; ++i) {
    std::vector<double> scores;
    for (int64_t j = 0; j < std::min(n, i + 1); ++j) {
      double s = 0.0;
      for (int64_t d = 0; d < kDepth; ++d)
        s += double(toFloat(q[size_t(i * kDepth + d)])) *
             ofByte(k[size_t(j * kDepth + d)]);
      scores.push_back(s / 4);
    }
    double most =
        scores.empty() ? 0.0 : *std::max_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double s : scores)
      sum += std::exp(s - most);
    for (int64_t w = 0; w < kWidth; ++w) {
      float found = toFloat(o[size_t(i * kWidth + w)]);
      double exact = 0.0, size = 0.0;
      for (size_t j = 0; j < scores.size(); ++j) {
        double part = std::exp(scores[j] - most) / sum *
                      ofByte(v[j * kWidth + size_t(w)]);
        exact += part;
        size += std::abs(part);
      }
      if (scores.empty() ? !std::isnan(found)
                         : !(std::abs(found - exact) <= 0.012 * size))
        return "found a wrong result";
    }
  }
  return "";
}

/// An entry that widens a tile ahead, and what it is for.
struct Family {
  const char *name, *target, *entry;
  Shapes shapes;
};

std::string judge(const CudaKernel &printed, const Family &family) {
  ExecutableSpec spec;
  setenv("REFOLD_CUDA_ENTRY", family.entry, 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  for (auto [m, n] : family.shapes)
    for (float growth : {0.75f, -0.75f})
      if (std::string wrong = judge(spec.kernels.front(), m, n, growth);
          !wrong.empty())
        return wrong;
  return "";
}

/// More tiles than places, ragged ones, rows that see none of the last.
const Family kTiles = {"tiles",
                       "cuda-emulated",
                       "tiles128x64x80x48x16",
                       {{3, 2}, {150, 150}, {260, 200}}};
const Family kParts = {
    "parts", "cuda-emulated", "parts16x64x80x48x16", {{3, 2}, {270, 260}}};
const Family kRoles = {
    "roles", "cuda-emulated-sm90", "roles128x128x80x48", {{3, 2}, {300, 290}}};

struct Planted {
  const Family *family;
  Defect defect;
};
class PlantedNarrowDefect : public testing::TestWithParam<Planted> {};

std::string judgeWith(const Planted &planted) {
  CudaKernel kernel = printBytes(planted.family->target);
  carryHeader(kernel, "refold_cuda_tiles.h",
              "REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H");
  plant(kernel, planted.defect);
  return judge(kernel, *planted.family);
}

TEST_P(PlantedNarrowDefect, IsCaught) {
  expectCaught(judgeWith(GetParam()), GetParam().defect);
}

const std::vector<Planted> kDefects = {
    // Bytes on their way to places of the thread.
    {&kTiles, {"(i * kThreads + at) * 16, is_there", "at * 16, is_there"}},
    {&kTiles, {"source += kStep * row_stride;", "source += row_stride;"}},
    {&kRoles,
     {"from + first * row_stride + pair * 16;", "from + first * row_stride;"}},
    {&kParts,
     {"is_there ? 16 : 0);\n      source", "is_there ? 8 : 0);\n      source"}},
    // Widened, to where they are multiplied.
    {&kTiles,
     {"(pass * kThreads + at) * 16 + half * 8", "(pass * kThreads + at) * 16"}},
    {&kParts, {"(pass * kThreads + at) * 16 + half", "at * 16 + half"}},
    {&kRoles,
     {"To::place(first, pair * 2 + half)",
      "To::place(first, pair * 2 + 1 - half)"}},
    {&kTiles, {"pass * kStep),\n          words", "0),\n          words"}},
    {&kParts,
     {"bytes[w / 2] >> w % 2 * 16, As{});\n      store",
      "bytes[w / 2], As{});\n      store"}},
    // Waits, groups, places.
    {&kTiles, {"wait_copies<0>();", ";"}},
    {&kParts, {"wait_copies<kPlaces - 2>();", ";"}},
    {&kRoles, {"wait_copies<1>();", ";"}},
    {&kRoles, {"commit_copies();", ";"}},
    {&kParts, {"slot * Narrow<Right", "0 * Narrow<Right"}},
    {&kParts,
     {"kTilePlaces = kVector == 16 ? 2 : kPlaces",
      "kTilePlaces = kVector == 16 ? 1 : kPlaces"}},
    {&kTiles,
     {"(place ^ 1) * Right::kBytes, b_rows_places",
      "place * Right::kBytes, b_rows_places"}},
    {&kTiles, {"(n_first - next_rows)", "n_first"}},
    {&kRoles, {"(int64_t(at) - 1) * kColumns", "int64_t(at) * kColumns"}}};

INSTANTIATE_TEST_SUITE_P(Text, PlantedNarrowDefect, testing::ValuesIn([] {
                           std::vector<Planted> chosen;
                           bool isAll = std::getenv("REFOLD_ALL_DEFECTS");
                           for (size_t i = 0; i < kDefects.size();
                                i += isAll ? 1 : 5)
                             chosen.push_back(kDefects[i]);
                           return chosen;
                         }()));

TEST(EmulatedNarrow, GeneratedKernelsAreRight) {
  for (const Family *family : {&kTiles, &kParts, &kRoles})
    EXPECT_EQ(judge(printBytes(family->target), *family), "") << family->name;
}

/// Which half of 16 bytes a lane widens first decides banks alone.
TEST(EmulatedNarrow, TheOrderOfHalvesChangesNoNumber) {
  EXPECT_EQ(judgeWith({&kTiles, {"half = i ^ (pair / 4 & 1)", "half = i"}}),
            "");
}

} // namespace
