// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention in bf16 by matrix tiles (AMX), written by hand: 32 rows by NB keys
// at a time, scores and weights in the first cache, and between two products
// of tiles exponentials of the block before, which the core computes beside
// them. Keys and values are laid out in tiles first.
#ifndef REFOLD_BENCHMARKS_BYHAND_ATTENTIONTILES_H
#define REFOLD_BENCHMARKS_BYHAND_ATTENTIONTILES_H

#include "Tiles.h"
#include "Vectors.h"

#include <algorithm>
#include <cmath>

constexpr int kTileRows = 32; ///< of a block
constexpr int kTile = 512;    ///< halves of a tile

/// Of one thread; D: width of heads, NB: keys of a block.
template <int D, int NB> class AttentionTiles {
public:
  /// `kTileRows` queries of a head of n keys that are laid out, with their
  /// values, up to the next multiple of NB.
  void run(const Half *q, const Half *keys, const Half *values, Half *out,
           int n) {
    std::memset(sums, 0, sizeof sums);
    std::memset(totals, 0, sizeof totals);
    std::fill_n(pivots, kTileRows, -INFINITY);
    int blocks = (n + NB - 1) / NB;
    step<true, false, false>(q, keys, nullptr, -1);
    for (int j = 0; j < blocks; ++j) {
      bool isPending = j > 0;
      if (j + 1 == blocks && n % NB != 0)
        hide(j, n % NB);
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
    for (int row = 0; row < kTileRows; ++row)
      does |= _mm512_cmp_ps_mask(highest(block, row),
                                 _mm512_set1_ps(pivots[row] + slack()),
                                 _CMP_GT_OQ) != 0;
    return does;
  }

  /// Of keys from `count` on, which are none.
  void hide(int block, int count) {
    for (int row = 0; row < kTileRows; ++row)
      std::fill_n(scores[block & 1] + row * kScorePitch + count, NB - count,
                  -1e30f);
  }

  void move(int block) {
    for (int row = 0; row < kTileRows; ++row) {
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
    for (int row = 0; row < kTileRows; ++row) {
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

  alignas(64) float scores[2][kTileRows * kScorePitch];
  alignas(64) Half weights[2][kTileRows * kWeightPitch];
  alignas(64) float sums[kTileRows * D], totals[kTileRows * 16];
  float pivots[kTileRows];
};

/// Sixteen keys are the columns of D / 32 tiles, pairs of elements their rows.
/// Beyond the last key there are zeros, to a multiple of NB.
template <int D, int NB> void layKeys(const Half *keys, int n, Half *tiles) {
  alignas(64) Half padded[16 * D];
  for (int key = 0; key < (n + NB - 1) / NB * NB; key += 16) {
    const Half *from = keys + int64_t(key) * D;
    if (key + 16 > n) {
      std::memset(padded, 0, sizeof padded);
      if (key < n)
        std::memcpy(padded, from, (n - key) * D * sizeof(Half));
      from = padded;
    }
    for (int d = 0; d < D; d += 32) {
      byhand::Vec rows[16];
      byhand::transpose(reinterpret_cast<const float *>(from + d), D / 2, rows);
      for (int i = 0; i < 16; ++i)
        byhand::store(reinterpret_cast<float *>(tiles + i * 32), rows[i]);
      tiles += kTile;
    }
  }
}

/// Sixteen elements are the columns of a tile, pairs of values its rows; zeros
/// as for keys.
template <int D, int NB>
void layValues(const Half *values, int n, Half *tiles) {
  alignas(64) uint16_t places[2][32];
  for (int i = 0; i < 32; ++i) {
    places[0][i] = uint16_t(i / 2 + i % 2 * 32);
    places[1][i] = uint16_t(16 + i / 2 + i % 2 * 32);
  }
  __m512i lower = _mm512_load_si512(places[0]);
  __m512i upper = _mm512_load_si512(places[1]);
  for (int key = 0; key < (n + NB - 1) / NB * NB; key += 2)
    for (int e = 0; e < D; e += 32) {
      const Half *from = values + int64_t(key) * D + e;
      __m512i x = _mm512_maskz_loadu_epi16(key < n ? ~0u : 0u, from);
      __m512i y = _mm512_maskz_loadu_epi16(key + 1 < n ? ~0u : 0u, from + D);
      Half *to = tiles + (int64_t(key / 32) * (D / 16) + e / 16) * kTile +
                 key % 32 / 2 * 32;
      _mm512_store_si512(to, _mm512_permutex2var_epi16(x, lower, y));
      _mm512_store_si512(to + kTile, _mm512_permutex2var_epi16(x, upper, y));
    }
}

#endif // REFOLD_BENCHMARKS_BYHAND_ATTENTIONTILES_H
