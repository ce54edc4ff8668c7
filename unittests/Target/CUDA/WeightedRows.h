// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_TARGET_CUDA_WEIGHTEDROWS_H
#define REFOLD_UNITTESTS_TARGET_CUDA_WEIGHTEDROWS_H

#include "PlantedDefects.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <gtest/gtest.h>

namespace refold::test {

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

/// The program with products of `depth` elements and results of `width`.
/// `isShared`: the front of k is what v would be, and rows read from
/// their own position on. `bias`: the type of an array that is added to scores
/// by row and position, "" for none. `low`: the number that masks hold, and
/// every row begins to see later, "" for -inf.
inline std::string weightedText(int depth = 32, int width = 24,
                                bool isShared = false,
                                const std::string &bias = "",
                                const std::string &low = "") {
  std::string text = kWeighted.str();
  auto replace = [&](const std::string &from, const std::string &to) {
    for (size_t at = 0; (at = text.find(from, at)) != std::string::npos;
         at += to.size())
      text.replace(at, from.size(), to);
  };
  replace("x32xbf16", "x" + std::to_string(depth) + "xbf16");
  replace("(%d = 32)", "(%d = " + std::to_string(depth) + ")");
  replace("x24xbf16", "x" + std::to_string(width) + "xbf16");
  replace("(%w = 24)", "(%w = " + std::to_string(width) + ")");
  if (isShared) {
    replace("refold.read %c[%n, %w]", "refold.read %b[%n, %w]");
    replace("cmpi sle, %n, %m", "cmpi sge, %n, %m");
  }
  if (!low.empty()) {
    replace("arith.constant 0xFF800000", "arith.constant " + low);
    replace("cmpi sle, %n, %m", "cmpi slt, %n, %m");
  }
  if (!bias.empty()) {
    replace("%o: memref", "%t: memref<?x?x" + bias + ">, %o: memref");
    replace("xbf16>)\n    outs",
            "xbf16>, %e = %t : memref<?x?x" + bias + ">)\n    outs");
    std::string read = "%tv = refold.read %e[%m, %n] : " + bias + "\n",
                added = bias == "f32" ? "%tv" : "%tf",
                product = "arith.mulf %s0, %quarter : f32\n";
    if (bias != "f32")
      read += "%tf = arith.extf %tv : " + bias + " to f32\n";
    replace("%s1 = " + product, read + "%s2 = " + product +
                                    "%s1 = arith.addf %s2, " + added +
                                    " : f32\n");
  }
  return text;
}

/// Its kernel for a target.
inline CudaKernel printWeighted(const std::string &target, int depth = 32,
                                int width = 24, bool isShared = false,
                                const std::string &bias = "",
                                const std::string &low = "") {
  auto context = makeContext();
  auto kernel = printCudaKernel(*context, "weighted",
                                weightedText(depth, width, isShared, bias, low),
                                "test", {CudaDevice::Emulated, target});
  if (!kernel) {
    ADD_FAILURE() << llvm::toString(kernel.takeError());
    return {};
  }
  return std::move(*kernel);
}

inline float toFloat(uint16_t bits) {
  uint32_t word = uint32_t(bits) << 16;
  float x;
  memcpy(&x, &word, 4);
  return x;
}

/// Numbers of few bits, all of them bf16.
inline std::vector<uint16_t> drawn(int64_t rows, int64_t n, float step,
                                   float growth) {
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
inline std::string judge(const Kernel &kernel, int64_t m, int64_t n,
                         float growth, int64_t depth, int64_t width,
                         bool isShared = false, const std::string &bias = "",
                         bool isLow = false) {
  // The first product of a row grows by a position, or falls, so that every
  // pivot moves where the stream is walked from its end.
  // Scores of what is shared are near each other, so that every column counts.
  std::vector<uint16_t> q = drawn(m, depth, isShared ? 0x1p-7f : 0.125f, 0.0f),
                        k = drawn(n, depth, 0.125f, growth),
                        v = drawn(n, width, 0.25f, -0.5f), o(m * width, 0);
  // Of what is shared, every other eight rows grow by a quarter of that: both
  // rows of a lane move, by different numbers.
  for (int64_t i = 8; isShared && i < m; ++i)
    q[i * depth] = i / 8 % 2 ? 0x3e80 : 0x3f80;
  auto address = [](std::vector<uint16_t> &x) {
    return int64_t(reinterpret_cast<intptr_t>(x.data()));
  };
  std::vector<int64_t> words;
  auto add = [&](std::vector<uint16_t> &x, int64_t rows, int64_t width) {
    words.insert(words.end(),
                 {address(x), address(x), 0, rows, width, width, 1});
  };
  add(q, m, depth), add(k, n, depth), add(v, n, width);
  // Rows of an even number of positions begin at multiples of 16 bytes, others
  // do not.
  int64_t stride = n % 2 ? n : (n + 7) / 8 * 8;
  std::vector<uint16_t> b = drawn(m, stride, 0.5f, 0.0f), wide;
  if (bias == "f32") {
    for (uint16_t bits : b) // what the low half has is the same number
      wide.insert(wide.end(), {uint16_t(0), bits});
    words.insert(words.end(),
                 {address(wide), address(wide), 0, m, n, stride, 1});
  } else if (!bias.empty()) {
    words.insert(words.end(), {address(b), address(b), 0, m, n, stride, 1});
  }
  add(o, m, width);
  if (llvm::Error error = kernel.launch(words.data()))
    return llvm::toString(std::move(error));
  for (int64_t i = 0; i < m; ++i) {
    std::vector<double> scores;
    int64_t from = isShared ? i : 0,
            to = isShared ? n : std::min(n, isLow ? i : i + 1);
    // A row that sees nothing has equal shares of all.
    bool isAll = isLow && to == 0;
    if (isAll)
      to = n;
    for (int64_t j = from; j < to; ++j) {
      double s = 0.0;
      for (int64_t d = 0; d < depth; ++d)
        s += isAll ? 0.0
                   : double(toFloat(q[i * depth + d])) *
                         toFloat(k[j * depth + d]);
      scores.push_back(s / 4 +
                       (bias.empty() ? 0.0 : toFloat(b[i * stride + j])));
    }
    if (scores.empty()) { // nothing by nothing
      for (int64_t w = 0; w < width; ++w)
        if (!std::isnan(toFloat(o[i * width + w])))
          return "found a share of nothing";
      continue;
    }
    double most = *std::max_element(scores.begin(), scores.end()), sum = 0.0;
    for (double s : scores)
      sum += std::exp(s - most);
    for (int64_t w = 0; w < width; ++w) {
      double exact = 0.0, size = 0.0;
      for (int64_t j = from; j < to; ++j) {
        uint16_t value = isShared ? k[j * depth + w] : v[j * width + w];
        double part = std::exp(scores[j - from] - most) / sum * toFloat(value);
        exact += part;
        size += std::abs(part);
      }
      if (!(std::abs(toFloat(o[i * width + w]) - exact) <= 0.012 * size))
        return "found a wrong result";
    }
  }
  return "";
}

using Shapes = std::vector<std::pair<int64_t, int64_t>>;

/// What is wrong with it for any of these, "" if nothing; `entry`: the only one
/// that runs, if there is one.
inline std::string judge(const CudaKernel &printed, const Shapes &shapes,
                         int64_t depth = 32, int64_t width = 24,
                         const char *entry = nullptr, bool isShared = false,
                         const std::string &bias = "", bool isLow = false) {
  ExecutableSpec spec;
  if (entry)
    setenv("REFOLD_CUDA_ENTRY", entry, 1);
  llvm::Error error = attachEmulated(spec, {printed});
  unsetenv("REFOLD_CUDA_ENTRY");
  if (error)
    return "does not compile: " + llvm::toString(std::move(error));
  for (auto [m, n] : shapes)
    // What rounding takes from the larger pivots is no power of two. Of more
    // than 256 rows bf16 takes two for one there.
    for (float growth : {2.0f, -2.0f, 0x1p34f})
      if (growth <= 2.0f || n <= 256)
        if (std::string wrong = judge(spec.kernels.front(), m, n, growth, depth,
                                      width, isShared, bias, isLow);
            !wrong.empty())
          return wrong;
  return "";
}

} // namespace refold::test

#endif // REFOLD_UNITTESTS_TARGET_CUDA_WEIGHTEDROWS_H
