// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention in bf16 by matrix tiles (AMX), written by hand: what may be asked
// of the compiler. 32 rows by NB keys at a time, scores and weights in the
// first cache, and between two products of tiles exponentials of the block
// before, which the core computes beside them. Laying out keys and values is
// not timed.
//
//   ninja -C build/release attention_tiles
//   build/release/bin/attention_tiles
//
// prints a JSON line a shape and number of threads, as acceptance.py --by-hand
// reads them. Answers are checked against double before they are timed.
#include "AttentionTiles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <immintrin.h>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace {

/// Sixteen keys are the columns of D / 32 tiles, pairs of elements their rows.
Halves layKeys(const Half *keys, int n, int d) {
  Halves tiles(size_t(n) * d);
  for (int key = 0; key < n; ++key)
    for (int i = 0; i < d; ++i)
      tiles[((key / 16 * (d / 32) + i / 32) * 16 + i % 32 / 2) * 32 +
            key % 16 * 2 + i % 2] = keys[key * d + i];
  return tiles;
}

/// Sixteen elements are the columns of a tile, pairs of values its rows.
Halves layValues(const Half *values, int n, int d) {
  Halves tiles(size_t(n) * d);
  for (int key = 0; key < n; ++key)
    for (int i = 0; i < d; ++i)
      tiles[((key / 32 * (d / 16) + i / 16) * 16 + key % 32 / 2) * 32 +
            i % 16 * 2 + key % 2] = values[key * d + i];
  return tiles;
}

/// Shares of `count` by so many threads; ms.
double timeOf(int threads, int count,
              const std::function<void(int, int)> &part) {
  return timeOfThreads(threads, [&](int t) {
    part(count * t / threads, count * (t + 1) / threads);
  });
}

/// Numbers of a head's width, heads one after the other.
struct Inputs {
  int heads, n, d;
  Halves q, k, v, out;
  std::vector<Halves> keys, values;

  /// Every third query is longer by `factor`, and another by twice that, so
  /// that pivots move.
  Inputs(int heads, int n, int d, float factor)
      : heads(heads), n(n), d(d), q(size_t(heads) * n * d), k(q), v(q), out(q) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (size_t i = 0; i < q.size(); ++i) {
      q[i] = narrow(normal(random) * (1 + factor * float(i / d % 3)));
      k[i] = narrow(normal(random));
      v[i] = narrow(normal(random));
    }
    for (int head = 0; head < heads; ++head) {
      keys.push_back(layKeys(&k[at(head, 0)], n, d));
      values.push_back(layValues(&v[at(head, 0)], n, d));
    }
  }
  size_t at(int head, int row) const { return (size_t(head) * n + row) * d; }

  /// Ends the process where a result is wrong.
  void check() const {
    constexpr double kMost = 0.02;
    double scale = 1 / std::sqrt(double(d));
    for (int head = 0; head < heads; head += std::max(1, heads - 1))
      for (int row = 1; row < n; row += 7) {
        std::vector<double> s(n), o(d);
        for (int key = 0; key < n; ++key)
          for (int i = 0; i < d; ++i)
            s[key] += double(widen(q[at(head, row) + i])) *
                      widen(k[at(head, key) + i]) * scale;
        double top = *std::max_element(s.begin(), s.end()), total = 0;
        for (int key = 0; key < n; ++key) {
          double weight = std::exp(s[key] - top);
          total += weight;
          for (int i = 0; i < d; ++i)
            o[i] += weight * widen(v[at(head, key) + i]);
        }
        for (int i = 0; i < d; ++i) {
          double found = widen(out[at(head, row) + i]), right = o[i] / total;
          if (std::abs(found - right) < kMost)
            continue;
          std::fprintf(stderr, "error: head %d, row %d, %d: %g, expected %g\n",
                       head, row, i, found, right);
          std::exit(1);
        }
      }
  }
};

template <int D, int NB> double timeOf(Inputs &in, int threads) {
  int blocks = in.n / kTileRows;
  return timeOf(threads, in.heads * blocks, [&](int first, int last) {
    auto work = std::make_unique<AttentionTiles<D, NB>>();
    for (int item = first; item < last; ++item) {
      int head = item / blocks;
      size_t at = in.at(head, item % blocks * kTileRows);
      work->run(&in.q[at], in.keys[head].data(), in.values[head].data(),
                &in.out[at], in.n);
    }
  });
}

template <int D, int NB> void measure(int b, int h, int n) {
  int heads = b * h;
  Inputs moving(heads, n, D, 8.0f), usual(heads, n, D, 0.0f);
  for (Inputs *in : {&moving, &usual}) {
    timeOf<D, NB>(*in, 1);
    in->check();
  }
  for (int threads : {1, 2}) {
    double best = 1e9, rate = 0;
    for (int run = 0; run < 9; ++run) {
      rate = std::max(rate, rateOfTiles(threads));
      best = std::min(best, timeOf<D, NB>(usual, threads));
    }
    double flops = 4.0 * heads * n * n * D;
    std::printf(
        "{\"workload\": \"attention\", \"dtype\": \"bf16\", \"shape\": {\"b\": "
        "%d, \"h\": %d, \"m\": %d, \"n\": %d, \"d\": %d}, \"threads\": %d, "
        "\"ms\": %.3f, \"bound_ms\": %.3f, \"how\": "
        "\"benchmarks/by_hand/attention_tiles.cpp, best of 9, without laying "
        "out keys and values\"}\n",
        b, h, n, n, D, threads, best, flops / rate);
    std::fflush(stdout);
  }
}

} // namespace

int main() {
  if (!beginTiles()) {
    std::fputs("error: found no matrix tiles (AMX)\n", stderr);
    return 3;
  }
  _tile_release();
  measure<64, 64>(1, 8, 2048);
  measure<64, 64>(1, 12, 512);
  measure<128, 64>(1, 32, 1024);
  measure<32, 64>(8, 12, 512);
  measure<32, 64>(8, 12, 128);
  // Less than 197 x 197 of width 64 and 257 x 257 of width 80.
  measure<64, 64>(1, 12, 192);
  measure<64, 64>(1, 16, 256);
}
