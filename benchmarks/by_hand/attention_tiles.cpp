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
#include "Tiles.h"

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

constexpr int kRows = 32, kTile = 512; ///< rows of a block, halves of a tile

/// Of one thread; D: width of heads, NB: keys of a block.
template <int D, int NB> class Attention {
public:
  /// `kRows` queries of a head whose keys and values are laid out; n, the
  /// number of keys, is a multiple of NB.
  void run(const Half *q, const Half *keys, const Half *values, Half *out,
           int n) {
    std::memset(sums, 0, sizeof sums);
    std::memset(totals, 0, sizeof totals);
    std::fill_n(pivots, kRows, -INFINITY);
    int blocks = n / NB;
    step<true, false, false>(q, keys, nullptr, -1);
    for (int j = 0; j < blocks; ++j) {
      bool isPending = j > 0;
      const Half *behind = values + (j - 1) * NB * D;
      if (j == 0 || grows(j)) {
        if (isPending) // under the pivots that they were made with
          step<false, true, false>(q, nullptr, behind, j);
        isPending = false;
        move(j);
      }
      const Half *ahead = keys + (j + 1) * NB * D;
      bool isLast = j + 1 == blocks;
      if (isPending && !isLast)
        step<true, true, true>(q, ahead, behind, j);
      else if (!isLast)
        step<true, false, true>(q, ahead, nullptr, j);
      else if (isPending)
        step<false, true, true>(q, nullptr, behind, j);
      else
        step<false, false, true>(q, nullptr, nullptr, j);
    }
    step<false, true, false>(q, nullptr, values + (blocks - 1) * NB * D,
                             blocks);
    finish(out);
  }

private:
  static constexpr int kScorePitch = NB + 16, kWeightPitch = NB + 32;
  static constexpr int kTwos = NB / 32;
  /// Products of tiles of a block: as many of scores as of weighted sums.
  static constexpr int kProducts = kTwos * (D / 32) * 4;
  static constexpr float kScale = D == 32 ? 0.25503487f
                                  : D == 64
                                      ? 0.18033688f
                                      : 0.12751743f; ///< log2(e) / sqrt(D)

  /// Exponentials of the next two registers of a block.
  struct Exponentials {
    int row = 0, column = 0;
    __m512 sum = _mm512_setzero_ps(), pivot = _mm512_setzero_ps();
  };

  [[gnu::always_inline]] void two(Exponentials &e, int block) {
    const float *from = scores[block & 1] + e.row * kScorePitch + e.column;
    if (e.column == 0)
      e.pivot =
          _mm512_mul_ps(_mm512_set1_ps(pivots[e.row]), _mm512_set1_ps(kScale));
    __m512 x = power(
        _mm512_fmsub_ps(_mm512_load_ps(from), _mm512_set1_ps(kScale), e.pivot));
    __m512 y = power(_mm512_fmsub_ps(_mm512_load_ps(from + 16),
                                     _mm512_set1_ps(kScale), e.pivot));
    e.sum = _mm512_add_ps(e.sum, _mm512_add_ps(x, y));
    _mm512_store_si512(weights[block & 1] + e.row * kWeightPitch + e.column,
                       (__m512i)_mm512_cvtne2ps_pbh(y, x));
    e.column += 32;
    if (e.column < NB)
      return;
    float *total = totals + e.row * 16;
    _mm512_store_ps(total, _mm512_add_ps(e.sum, _mm512_load_ps(total)));
    e = {e.row + 1, 0, _mm512_setzero_ps(), e.pivot};
  }

  /// 32 rows by two tiles, to the sums in tiles 0 to 3.
  template <typename Beside>
  [[gnu::always_inline]] void multiply(const Half *left, int pitch,
                                       const Half *first, const Half *second,
                                       Beside beside) {
    _tile_loadd(4, left, pitch * 2);
    _tile_loadd(6, first, 64);
    _tile_dpbf16ps(0, 4, 6);
    beside();
    _tile_loadd(7, second, 64);
    _tile_dpbf16ps(1, 4, 7);
    beside();
    _tile_loadd(5, left + 16 * pitch, pitch * 2);
    _tile_dpbf16ps(2, 5, 6);
    beside();
    _tile_dpbf16ps(3, 5, 7);
    beside();
  }

  template <int pitch> [[gnu::always_inline]] void storeSums(float *to) {
    _tile_stored(0, to, pitch * 4);
    _tile_stored(1, to + 16, pitch * 4);
    _tile_stored(2, to + 16 * pitch, pitch * 4);
    _tile_stored(3, to + 16 * pitch + 16, pitch * 4);
  }

  template <typename Beside>
  [[gnu::always_inline]] void scoreTiles(const Half *q, const Half *keys,
                                         int block, Beside beside) {
    float *to = scores[block & 1];
    for (int pair = 0; pair < kTwos; ++pair) {
      const Half *right = keys + pair * 2 * (D / 32) * kTile;
      float *at = to + pair * 32;
      _tile_zero(0);
      _tile_zero(1);
      _tile_zero(2);
      _tile_zero(3);
#pragma clang loop unroll(full)
      for (int t = 0; t < D / 32; ++t) {
        multiply(q + t * 32, D, right + t * kTile, right + (D / 32 + t) * kTile,
                 beside);
      }
      storeSums<kScorePitch>(at);
    }
  }

  template <typename Beside>
  [[gnu::always_inline]] void addTiles(const Half *values, int block,
                                       Beside beside) {
    const Half *left = weights[block & 1];
    for (int e = 0; e < D; e += 32) {
      float *at = sums + e;
      _tile_loadd(0, at, D * 4);
      _tile_loadd(1, at + 16, D * 4);
      _tile_loadd(2, at + 16 * D, D * 4);
      _tile_loadd(3, at + 16 * D + 16, D * 4);
#pragma clang loop unroll(full)
      for (int k = 0; k < kTwos; ++k) {
        const Half *right = values + (k * (D / 16) + e / 16) * kTile;
        multiply(left + k * 32, kWeightPitch, right, right + kTile, beside);
      }
      storeSums<D>(at);
    }
  }

  /// Scores of the block behind block j, weighted sums of the one before it,
  /// and between their products of tiles exponentials of block j.
  template <bool areScores, bool areSums, bool areBeside>
  void step(const Half *q, const Half *keys, const Half *values, int j) {
    Exponentials e;
    constexpr int kAll = kProducts * (areScores + areSums);
    constexpr int kEach = kAll ? NB / kAll : 0;
    int done = 0;
    auto beside = [&]() __attribute__((always_inline)) {
      if constexpr (areBeside) {
#pragma clang loop unroll(full)
        for (int i = 0; i < kEach; ++i)
          two(e, j);
        done += kEach;
      }
    };
    if constexpr (areScores)
      scoreTiles(q, keys, j + 1, beside);
    if constexpr (areSums)
      addTiles(values, j - 1, beside);
    if constexpr (areBeside)
      for (; done < NB; ++done)
        two(e, j);
  }

  __m512 highest(int block, int row) {
    const float *from = scores[block & 1] + row * kScorePitch;
    __m512 tops[4];
    for (int k = 0; k < 4; ++k)
      tops[k] = _mm512_load_ps(from + k * 16);
    for (int i = 64; i < NB; i += 64)
      for (int k = 0; k < 4; ++k)
        tops[k] = _mm512_max_ps(tops[k], _mm512_load_ps(from + i + k * 16));
    return _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]),
                         _mm512_max_ps(tops[2], tops[3]));
  }

  /// By how much a score may exceed its pivot: weights stay below 2^60.
  float slack() const { return 40 * std::sqrt(float(D)); }

  bool grows(int block) {
    bool does = false;
    for (int row = 0; row < kRows; ++row)
      does |= _mm512_cmp_ps_mask(highest(block, row),
                                 _mm512_set1_ps(pivots[row] + slack()),
                                 _CMP_GT_OQ) != 0;
    return does;
  }

  void move(int block) {
    for (int row = 0; row < kRows; ++row) {
      float top = _mm512_reduce_max_ps(highest(block, row));
      if (!(top > pivots[row]))
        continue;
      float factor = std::exp((pivots[row] - top) / std::sqrt(float(D)));
      pivots[row] = top;
      for (int i = 0; i < D; ++i)
        sums[row * D + i] *= factor;
      for (int i = 0; i < 16; ++i)
        totals[row * 16 + i] *= factor;
    }
  }

  void finish(Half *out) {
    for (int row = 0; row < kRows; ++row) {
      float total = _mm512_reduce_add_ps(_mm512_load_ps(totals + row * 16));
      __m512 share = _mm512_set1_ps(1 / total);
      for (int i = 0; i < D; i += 32) {
        const float *from = sums + row * D + i;
        __m512 low = _mm512_mul_ps(_mm512_load_ps(from), share);
        __m512 high = _mm512_mul_ps(_mm512_load_ps(from + 16), share);
        _mm512_storeu_si512(out + row * D + i,
                            (__m512i)_mm512_cvtne2ps_pbh(high, low));
      }
    }
  }

  alignas(64) float scores[2][kRows * kScorePitch];
  alignas(64) Half weights[2][kRows * kWeightPitch];
  alignas(64) float sums[kRows * D], totals[kRows * 16];
  float pivots[kRows];
};

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
  int blocks = in.n / kRows;
  return timeOf(threads, in.heads * blocks, [&](int first, int last) {
    auto work = std::make_unique<Attention<D, NB>>();
    for (int item = first; item < last; ++item) {
      int head = item / blocks;
      size_t at = in.at(head, item % blocks * kRows);
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
