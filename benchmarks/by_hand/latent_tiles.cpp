// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Decoding over a compressed cache (MLA) in bf16 by matrix tiles (AMX), written
// by hand: what may be asked of the compiler. 128 heads share entries of 576,
// of which the first 512 are the values. Entries are the left side of tiles as
// they lie, so that scores come out with heads along the lanes; weights are
// turned, which is a quarter of what turning entries is, and values paired.
// One after the other: exponentials between the products of tiles, as in
// attention_tiles.cpp, gain nothing here (2.9 ms and 2.7).
//
//   ninja -C build/release latent_tiles
//   build/release/bin/latent_tiles
//
// prints a JSON line a number of threads, as acceptance.py --by-hand reads
// them. Answers are checked against double before they are timed.
#include "Tiles.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <random>
#include <thread>
#include <vector>

namespace {

constexpr int kHeads = 128, kDepth = 576, kWidth = 512;
constexpr int kBlock = 256;         ///< entries
constexpr int kTile = 512;          ///< halves of a tile
constexpr float kScale = 0.104048f; ///< log2(e) / sqrt(192)
/// By how much a score may exceed its pivot: weights stay below 2^60.
constexpr float kSlack = 500.0f;

/// Rows of 16 words become columns.
void turn(const uint32_t *from, uint32_t *to, int pitch) {
  __m512i a[16], b[16];
  for (int i = 0; i < 16; ++i)
    a[i] = _mm512_load_si512(from + 16 * i);
  for (int i = 0; i < 16; i += 2) {
    b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
    b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
  }
  for (int i = 0; i < 16; i += 4)
    for (int k = 0; k < 2; ++k) {
      a[i + 2 * k] = _mm512_unpacklo_epi64(b[i + k], b[i + k + 2]);
      a[i + 2 * k + 1] = _mm512_unpackhi_epi64(b[i + k], b[i + k + 2]);
    }
  for (int i = 0; i < 4; ++i) {
    __m512i low = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
    __m512i high = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
    __m512i lowOdd = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
    __m512i highOdd = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
    _mm512_store_si512(to + i * pitch, _mm512_shuffle_i32x4(low, high, 0x88));
    _mm512_store_si512(to + (i + 8) * pitch,
                       _mm512_shuffle_i32x4(low, high, 0xdd));
    _mm512_store_si512(to + (i + 4) * pitch,
                       _mm512_shuffle_i32x4(lowOdd, highOdd, 0x88));
    _mm512_store_si512(to + (i + 12) * pitch,
                       _mm512_shuffle_i32x4(lowOdd, highOdd, 0xdd));
  }
}

/// Of one thread: all heads over some of the entries.
class Latent {
public:
  alignas(64) float sums[kHeads * kWidth];
  alignas(64) float totals[kHeads];
  alignas(64) float pivots[kHeads];

  /// n is a multiple of kBlock.
  void run(const Half *queries, const Half *entries, int n) {
    std::memset(sums, 0, sizeof sums);
    std::memset(totals, 0, sizeof totals);
    std::fill_n(pivots, kHeads, -INFINITY);
    for (int first = 0; first < n; first += kBlock) {
      const Half *here = entries + size_t(first) * kDepth;
      multiplyQueries(queries, here);
      if (grows())
        move();
      for (int pair = 0; pair < kBlock / 2; pair += 16)
        for (int head = 0; head < kHeads; head += 16)
          weigh(pair, head);
      for (int pair = 0; pair < kBlock / 2; ++pair)
        pairUp(here, pair);
      addValues();
    }
  }

private:
  static constexpr int kPitch = kHeads + 16; ///< of scores, in numbers
  static constexpr int kWeightPitch = kBlock + 32;

  /// Weights of 32 entries and 16 heads, turned.
  void weigh(int pair, int head) {
    __m512 scale = _mm512_set1_ps(kScale);
    __m512 pivot = _mm512_mul_ps(_mm512_load_ps(pivots + head), scale);
    __m512 total = _mm512_load_ps(totals + head);
    for (int i = 0; i < 16; ++i) {
      const float *from = scores + 2 * (pair + i) * kPitch + head;
      __m512 x = power(_mm512_fmsub_ps(_mm512_load_ps(from), scale, pivot));
      __m512 y =
          power(_mm512_fmsub_ps(_mm512_load_ps(from + kPitch), scale, pivot));
      total = _mm512_add_ps(total, _mm512_add_ps(x, y));
      __m512i both = (__m512i)_mm512_cvtne2ps_pbh(y, x);
      _mm512_store_si512(turning + 16 * i,
                         _mm512_permutexvar_epi16(mixed, both));
    }
    _mm512_store_ps(totals + head, total);
    turn(turning,
         reinterpret_cast<uint32_t *>(weights + head * kWeightPitch + 2 * pair),
         kWeightPitch / 2);
  }

  /// Values of a pair of entries: two rows of tiles for each 32 of them.
  void pairUp(const Half *entries, int pair) {
    const Half *from = entries + size_t(2 * pair) * kDepth;
    Half *to = values + (pair / 16 * (kWidth / 16) * 16 + pair % 16) * 32;
    for (int column = 0; column < kWidth; column += 32) {
      __m512i x = _mm512_loadu_si512(from + column);
      __m512i y = _mm512_loadu_si512(from + kDepth + column);
      _mm512_store_si512(to + column / 16 * kTile,
                         _mm512_permutex2var_epi16(x, lower, y));
      _mm512_store_si512(to + (column / 16 + 1) * kTile,
                         _mm512_permutex2var_epi16(x, upper, y));
    }
  }

  /// Two tiles of rows by two of columns, to the sums in tiles 0 to 3.
  static void multiply(const Half *left, int pitch, const Half *first,
                       const Half *second) {
    _tile_loadd(4, left, pitch * 2);
    _tile_loadd(6, first, 64);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, second, 64);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, left + size_t(16) * pitch, pitch * 2);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }

  template <int pitch> static void storeSums(float *to) {
    _tile_stored(0, to, pitch * 4);
    _tile_stored(1, to + 16, pitch * 4);
    _tile_stored(2, to + 16 * pitch, pitch * 4);
    _tile_stored(3, to + 16 * pitch + 16, pitch * 4);
  }

  /// Queries are tiles of 16 heads: pairs of elements are their rows.
  void multiplyQueries(const Half *queries, const Half *entries) {
    constexpr int kSteps = kDepth / 32;
    for (int row = 0; row < kBlock; row += 32)
      for (int head = 0; head < kHeads; head += 32) {
        _tile_zero(0);
        _tile_zero(1);
        _tile_zero(2);
        _tile_zero(3);
        const Half *right = queries + size_t(head / 16) * kSteps * kTile;
        for (int k = 0; k < kSteps; ++k)
          multiply(entries + size_t(row) * kDepth + k * 32, kDepth,
                   right + k * kTile, right + (kSteps + k) * kTile);
        storeSums<kPitch>(scores + row * kPitch + head);
      }
  }

  void addValues() {
    for (int e = 0; e < kWidth; e += 32)
      for (int head = 0; head < kHeads; head += 32) {
        float *at = sums + head * kWidth + e;
        _tile_loadd(0, at, kWidth * 4);
        _tile_loadd(1, at + 16, kWidth * 4);
        _tile_loadd(2, at + 16 * kWidth, kWidth * 4);
        _tile_loadd(3, at + 16 * kWidth + 16, kWidth * 4);
        for (int k = 0; k < kBlock / 32; ++k) {
          const Half *right = values + (k * (kWidth / 16) + e / 16) * kTile;
          multiply(weights + head * kWeightPitch + k * 32, kWeightPitch, right,
                   right + kTile);
        }
        storeSums<kWidth>(at);
      }
  }

  /// The greatest scores of 16 heads in the block.
  __m512 highest(int head) {
    const float *from = scores + head;
    __m512 tops[4];
    std::fill_n(tops, 4, _mm512_set1_ps(-INFINITY));
    for (int i = 0; i < kBlock; i += 4)
      for (int k = 0; k < 4; ++k)
        tops[k] =
            _mm512_max_ps(tops[k], _mm512_load_ps(from + (i + k) * kPitch));
    return _mm512_max_ps(_mm512_max_ps(tops[0], tops[1]),
                         _mm512_max_ps(tops[2], tops[3]));
  }

  bool grows() {
    bool does = false;
    for (int head = 0; head < kHeads; head += 16)
      does |= _mm512_cmp_ps_mask(highest(head),
                                 _mm512_add_ps(_mm512_load_ps(pivots + head),
                                               _mm512_set1_ps(kSlack)),
                                 _CMP_GT_OQ) != 0;
    return does;
  }

  void move() {
    for (int first = 0; first < kHeads; first += 16) {
      float tops[16];
      _mm512_storeu_ps(tops, highest(first));
      for (int head = first; head < first + 16; ++head) {
        float top = tops[head - first];
        if (!(top > pivots[head]))
          continue;
        float factor = std::exp2((pivots[head] - top) * kScale);
        pivots[head] = top;
        for (int e = 0; e < kWidth; ++e)
          sums[head * kWidth + e] *= factor;
        totals[head] *= factor;
      }
    }
  }

  __m512i mixed = places(0, 16), lower = places(0, 32), upper = places(16, 48);
  alignas(64) float scores[kBlock * kPitch];
  alignas(64) Half weights[kHeads * kWeightPitch];
  alignas(64) Half values[kBlock * kWidth];
  alignas(64) uint32_t turning[16 * 16];
};

/// Sixteen heads are the columns of kDepth / 32 tiles, pairs of elements rows.
Halves layQueries(const Half *queries) {
  Halves tiles(size_t(kHeads) * kDepth);
  for (int head = 0; head < kHeads; ++head)
    for (int i = 0; i < kDepth; ++i)
      tiles[((head / 16 * (kDepth / 32) + i / 32) * 16 + i % 32 / 2) * 32 +
            head % 16 * 2 + i % 2] = queries[head * kDepth + i];
  return tiles;
}

struct Inputs {
  int n;
  Halves q, c, queries, out;
  std::vector<std::unique_ptr<Latent>> parts;

  /// Entries are longer by `factor` as they come, so that pivots move.
  Inputs(int n, float factor)
      : n(n), q(size_t(kHeads) * kDepth), c(size_t(n) * kDepth),
        out(size_t(kHeads) * kWidth) {
    std::mt19937 random(1);
    std::normal_distribution<float> normal;
    for (Half &x : q)
      x = narrow(normal(random));
    for (size_t i = 0; i < c.size(); ++i)
      c[i] =
          narrow(normal(random) * (1 + factor * float(i / kDepth) / float(n)));
    queries = layQueries(q.data());
    for (int t = 0; t < 2; ++t)
      parts.push_back(std::make_unique<Latent>());
  }

  /// Without laying out the queries; ms.
  double run(int threads) {
    return timeOfThreads(threads,
                         [&](int t) {
                           int share = n / threads;
                           parts[t]->run(queries.data(),
                                         &c[size_t(t) * share * kDepth], share);
                         }) +
           finish(threads);
  }

  double finish(int threads) {
    double start = now();
    for (int head = 0; head < kHeads; ++head) {
      float top = -INFINITY, total = 0, factors[2] = {};
      for (int t = 0; t < threads; ++t)
        top = std::max(top, parts[t]->pivots[head]);
      for (int t = 0; t < threads; ++t) {
        factors[t] = std::exp2((parts[t]->pivots[head] - top) * kScale);
        total += factors[t] * parts[t]->totals[head];
      }
      for (int t = 0; t < threads; ++t)
        factors[t] /= total;
      for (int e = 0; e < kWidth; ++e) {
        float sum = 0;
        for (int t = 0; t < threads; ++t)
          sum += factors[t] * parts[t]->sums[head * kWidth + e];
        out[head * kWidth + e] = narrow(sum);
      }
    }
    return now() - start;
  }

  /// Ends the process where a result is wrong.
  void check() const {
    constexpr double kMost = 0.02;
    double scale = 1 / std::sqrt(192.0), largest = 0;
    for (int head = 0; head < kHeads; head += 5) {
      std::vector<double> s(n), o(kWidth);
      for (int row = 0; row < n; ++row)
        for (int i = 0; i < kDepth; ++i)
          s[row] += double(widen(q[head * kDepth + i])) *
                    widen(c[size_t(row) * kDepth + i]) * scale;
      double top = *std::max_element(s.begin(), s.end()), total = 0;
      for (int row = 0; row < n; ++row) {
        double weight = std::exp(s[row] - top);
        total += weight;
        for (int e = 0; e < kWidth; ++e)
          o[e] += weight * widen(c[size_t(row) * kDepth + e]);
      }
      for (int e = 0; e < kWidth; ++e) {
        double found = widen(out[head * kWidth + e]), right = o[e] / total;
        largest = std::max(largest, std::abs(right));
        if (std::abs(found - right) < kMost * std::max(1.0, largest))
          continue;
        std::fprintf(stderr, "error: head %d, %d: %g, expected %g\n", head, e,
                     found, right);
        std::exit(1);
      }
    }
  }
};

} // namespace

int main() {
  if (!beginTiles()) {
    std::fputs("error: found no matrix tiles (AMX)\n", stderr);
    return 3;
  }
  _tile_release();
  constexpr int n = 8192;
  Inputs moving(n, 8.0f), usual(n, 0.0f);
  for (int threads : {1, 2})
    for (Inputs *in : {&moving, &usual}) {
      in->run(threads);
      in->check();
    }
  for (int threads : {1, 2}) {
    double best = 1e9, rate = 0;
    for (int run = 0; run < 25; ++run) {
      rate = std::max(rate, rateOfTiles(threads));
      best = std::min(best, usual.run(threads));
    }
    double flops = 2.0 * kHeads * n * (kDepth + kWidth);
    std::printf("{\"workload\": \"latent_decode\", \"dtype\": \"bf16\", "
                "\"shape\": {\"b\": 1, \"h\": %d, \"n\": %d}, \"threads\": %d, "
                "\"ms\": %.3f, \"bound_ms\": %.3f, \"how\": "
                "\"benchmarks/by_hand/latent_tiles.cpp, best of 25\"}\n",
                kHeads, n, threads, best, flops / rate);
    std::fflush(stdout);
  }
}
