// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One new token: four query heads read one cached head of keys and values of
// width 128, in f32 or bf16; sums are f32. What is read comes from memory, so
// what decides is how far ahead it is asked for. Chunks of keys become scores,
// four keys by four heads in registers, then weights, then weighted sums.
//
// Two vectors of 32 elements are in order for f32, and the even and the odd
// ones for bf16, which widens them by a shift and a mask: queries are turned
// to that order once, and sums back at the end.
#ifndef REFOLD_BENCHMARKS_BYHAND_DECODE_H
#define REFOLD_BENCHMARKS_BYHAND_DECODE_H

#include "Tiles.h"
#include "Turns.h"
#include "Vectors.h"

namespace byhand {

constexpr int kDecodeWidth = 128, kGroup = 4, kGroups = 8;

REFOLD_INLINE void loadTwo(const float *from, Vec (&to)[2]) {
  to[0] = load(from);
  to[1] = load(from + kLanes);
}

REFOLD_INLINE void loadTwo(const Half *from, Vec (&to)[2]) {
  __m512i x = _mm512_loadu_si512(from);
  to[0] = (Vec)_mm512_slli_epi32(x, 16);
  to[1] = (Vec)_mm512_and_si512(x, _mm512_set1_epi32(int(0xffff0000)));
}

/// Where element i of 128 stands in the order of `loadTwo`.
template <typename T> int placeOf(int i) {
  return sizeof(T) == 4 ? i : i / 32 * 32 + i % 2 * 16 + i % 32 / 2;
}

template <typename T> float numberOf(T x) {
  if constexpr (sizeof(T) == 4)
    return x;
  else
    return widen(x);
}

enum class Scores {
  Vectors, ///< products in f32, four keys at a time
  Tiles    ///< by matrix tiles of 16 keys (bf16), exact but for the order
};

enum class Values {
  HeadPairs,  ///< two heads and all elements in registers, chunks read twice
  HalfWidths, ///< four heads and half of the elements
  Tiles       ///< by matrix tiles, pairs of keys, weights rounded to bf16
};

/// What a form is made of.
struct DecodeTiles {
  int keys;   ///< of a chunk
  int ahead;  ///< bytes of a stream that are asked for in advance
  bool isFar; ///< into the second cache
  Values values;
  Scores scores;
};

/// Shapes of matrix tiles in this thread: 0 scores, 1 keys or values, 2 sums,
/// 3 weights, 4 to 7 queries.
inline void beginDecodeTiles() {
  Layout layout;
  constexpr int kFour = kGroup * 4;
  constexpr int kBytes[8] = {kFour, 64, 64, 64, kFour, kFour, kFour, kFour};
  constexpr int kRows[8] = {16, 16, kGroup, kGroup, 16, 16, 16, 16};
  for (int i = 0; i < 8; ++i) {
    layout.bytes[i] = kBytes[i];
    layout.rows[i] = kRows[i];
  }
  _tile_loadconfig(&layout);
}

/// Of some keys of a head: not yet divided by the totals.
struct alignas(64) DecodePart {
  float sums[kGroup][kDecodeWidth];
  float pivots[kGroup], totals[kGroup];
};

template <typename T, DecodeTiles tiles> class Decode {
public:
  static constexpr bool kHasTiles =
      tiles.scores == Scores::Tiles || tiles.values == Values::Tiles;

  void run(const T *q, const T *keys, const T *values, int64_t count,
           DecodePart &part) {
    layQueries(q);
    std::memset(sums, 0, sizeof sums);
    for (int head = 0; head < kGroup; ++head) {
      pivots[head] = kLowest;
      totals[head] = Vec{};
    }
    int64_t key = 0;
    for (; key + kKeys <= count; key += kKeys)
      addChunk(keys + key * kWidth, values + key * kWidth, kKeys);
    if (key < count) {
      int rest = static_cast<int>(count - key);
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded[0], keys + key * kWidth, rest * kWidth * sizeof(T));
      std::memcpy(padded[1], values + key * kWidth, rest * kWidth * sizeof(T));
      addChunk(padded[0], padded[1], rest);
    }
    for (int head = 0; head < kGroup; ++head) {
      part.pivots[head] = pivots[head];
      part.totals[head] = sumOf(totals[head]);
      for (int i = 0; i < kWidth; ++i)
        part.sums[head][i] = sums[head][kAreSumsInOrder ? i : placeOf<T>(i)];
    }
  }

private:
  static constexpr int kWidth = kDecodeWidth, kKeys = tiles.keys;
  static constexpr bool kAreSumsInOrder = tiles.values == Values::Tiles;
  static constexpr float kLowest = -1e30f;
  /// By how much a score may exceed its pivot: weights stay below 2^30.
  static constexpr float kSlack = 30;
  static constexpr int kHint = tiles.isFar ? 2 : 3;

  REFOLD_INLINE static void askAhead(const T *at) {
    if constexpr (tiles.ahead != 0)
      REFOLD_UNROLL for (size_t byte = 0; byte < 32 * sizeof(T); byte += 64)
          __builtin_prefetch((const char *)at + byte + tiles.ahead, 0, kHint);
  }

  void layQueries(const T *q) {
    const float scale = kLog2E / std::sqrt(float(kWidth));
    for (int head = 0; head < kGroup; ++head)
      for (int i = 0; i < kWidth; ++i) {
        queries[head][placeOf<T>(i)] = numberOf(q[head * kWidth + i]) * scale;
        if constexpr (sizeof(T) == 2)
          laidQueries[i / 2][head][i % 2] = q[head * kWidth + i];
      }
  }

  void addChunk(const T *keys, const T *values, int count) {
    if constexpr (tiles.scores == Scores::Tiles)
      scoreByTiles(keys);
    else
      scoreByVectors(keys);
    for (int head = 0; head < kGroup; ++head) {
      for (int key = count; key < kKeys; ++key)
        scores[head][key] = kMinusInf;
      weigh(head);
    }
    if constexpr (tiles.values == Values::Tiles)
      addByTiles(values);
    else if constexpr (tiles.values == Values::HeadPairs)
      for (int head = 0; head < kGroup; head += 2)
        addValues<2, kWidth>(values, head, 0, head == 0);
    else
      for (int at = 0; at < kWidth; at += kWidth / 2)
        addValues<kGroup, kWidth / 2>(values, 0, at, true);
  }

  void scoreByVectors(const T *keys) {
    for (int key = 0; key < kKeys; key += 4) {
      Vec s[4 * kGroup] = {};
      const T *from = keys + key * kWidth;
      REFOLD_UNROLL for (int at = 0; at < kWidth; at += 32) {
        Vec row[4][2];
        REFOLD_UNROLL for (int i = 0; i < 4; ++i) {
          loadTwo(from + i * kWidth + at, row[i]);
          askAhead(from + i * kWidth + at);
        }
        REFOLD_UNROLL for (int head = 0; head < kGroup; ++head)
            REFOLD_UNROLL for (int k = 0; k < 2; ++k) {
          Vec query = load(&queries[head][at + k * kLanes]);
          REFOLD_UNROLL for (int i = 0; i < 4; ++i) s[head * 4 + i] =
              fma(row[i][k], query, s[head * 4 + i]);
        }
      }
      __m512 all = (__m512)sumsOfSixteen(s);
      _mm_storeu_ps(&scores[0][key], _mm512_extractf32x4_ps(all, 0));
      _mm_storeu_ps(&scores[1][key], _mm512_extractf32x4_ps(all, 1));
      _mm_storeu_ps(&scores[2][key], _mm512_extractf32x4_ps(all, 2));
      _mm_storeu_ps(&scores[3][key], _mm512_extractf32x4_ps(all, 3));
    }
  }

  /// Keys as they lie are the left side; queries stay in tiles 4 to 7.
  void scoreByTiles(const T *keys) {
    alignas(64) float turned[kKeys][kGroup];
    constexpr int kBytes = kGroup * 4;
    _tile_loadd(4, laidQueries[0], kBytes);
    _tile_loadd(5, laidQueries[16], kBytes);
    _tile_loadd(6, laidQueries[32], kBytes);
    _tile_loadd(7, laidQueries[48], kBytes);
    for (int key = 0; key < kKeys; key += 16) {
      const T *from = keys + key * kWidth;
      for (int at = 0; at < 16 * kWidth; at += 32)
        askAhead(from + at);
      _tile_zero(0);
      _tile_loadd(1, from, kWidth * 2);
      _tile_dpbf16ps(0, 1, 4);
      _tile_loadd(1, from + 32, kWidth * 2);
      _tile_dpbf16ps(0, 1, 5);
      _tile_loadd(1, from + 64, kWidth * 2);
      _tile_dpbf16ps(0, 1, 6);
      _tile_loadd(1, from + 96, kWidth * 2);
      _tile_dpbf16ps(0, 1, 7);
      _tile_stored(0, turned[key], kBytes);
    }
    const Vec scale = splat(kLog2E / std::sqrt(float(kWidth)));
    const __m512i by =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    for (int key = 0; key < kKeys; key += 4) {
      __m512 all =
          _mm512_permutexvar_ps(by, (__m512)(load(turned[key]) * scale));
      _mm_storeu_ps(&scores[0][key], _mm512_extractf32x4_ps(all, 0));
      _mm_storeu_ps(&scores[1][key], _mm512_extractf32x4_ps(all, 1));
      _mm_storeu_ps(&scores[2][key], _mm512_extractf32x4_ps(all, 2));
      _mm_storeu_ps(&scores[3][key], _mm512_extractf32x4_ps(all, 3));
    }
  }

  void weigh(int head) {
    float *s = scores[head];
    Vec top = load(s);
    for (int i = kLanes; i < kKeys; i += kLanes)
      top = larger(top, load(s + i));
    if (__builtin_expect(exceeds(top, splat(pivots[head] + kSlack)) != 0, 0)) {
      float pivot = std::max(pivots[head], largestOf(top));
      Vec factor = power<Power::Rounded>(splat(pivots[head] - pivot));
      pivots[head] = pivot;
      totals[head] *= factor;
      for (int i = 0; i < kWidth; i += kLanes)
        store(&sums[head][i], load(&sums[head][i]) * factor);
    }
    Vec pivot = splat(pivots[head]), total = totals[head];
    REFOLD_UNROLL for (int i = 0; i < kKeys; i += 2 * kLanes) {
      Vec x = power<Power::Reduced>(load(s + i) - pivot);
      Vec y = power<Power::Reduced>(load(s + i + kLanes) - pivot);
      total += x + y;
      if constexpr (tiles.values == Values::Tiles) {
        _mm512_store_si512(&weights[head][i],
                           (__m512i)_mm512_cvtne2ps_pbh((__m512)y, (__m512)x));
      } else {
        store(s + i, x);
        store(s + i + kLanes, y);
      }
    }
    totals[head] = total;
  }

  /// So many heads from `head`, so many elements from `at`.
  template <int heads, int width>
  REFOLD_INLINE void addValues(const T *values, int head, int at,
                               bool isFirst) {
    constexpr int N = width / 32;
    Vec s[heads][2 * N];
    REFOLD_UNROLL for (int i = 0; i < heads; ++i)
        REFOLD_UNROLL for (int j = 0; j < 2 * N; ++j) s[i][j] =
            load(&sums[head + i][at + j * kLanes]);
    for (int key = 0; key < kKeys; ++key) {
      const T *from = values + key * kWidth + at;
      Vec row[N][2];
      REFOLD_UNROLL for (int j = 0; j < N; ++j) {
        loadTwo(from + 32 * j, row[j]);
        if (isFirst)
          askAhead(from + 32 * j);
      }
      REFOLD_UNROLL for (int i = 0; i < heads; ++i) {
        Vec weight = splat(scores[head + i][key]);
        REFOLD_UNROLL for (int j = 0; j < 2 * N; ++j) s[i][j] =
            fma(weight, row[j / 2][j % 2], s[i][j]);
      }
    }
    REFOLD_UNROLL for (int i = 0; i < heads; ++i)
        REFOLD_UNROLL for (int j = 0; j < 2 * N; ++j)
            store(&sums[head + i][at + j * kLanes], s[i][j]);
  }

  /// Pairs of keys are the rows of the right side.
  void addByTiles(const T *values) {
    constexpr int kTile = 16 * 32;
    static const __m512i lower = places(0, 32), upper = places(16, 48);
    for (int key = 0; key < kKeys; key += 2) {
      const T *from = values + key * kWidth;
      Half *to = paired + key / 32 * 32 * kWidth + key % 32 / 2 * 32;
      REFOLD_UNROLL for (int at = 0; at < kWidth; at += 32) {
        __m512i x = _mm512_loadu_si512(from + at);
        __m512i y = _mm512_loadu_si512(from + kWidth + at);
        askAhead(from + at);
        askAhead(from + kWidth + at);
        _mm512_store_si512(to + at / 16 * kTile,
                           _mm512_permutex2var_epi16(x, lower, y));
        _mm512_store_si512(to + (at / 16 + 1) * kTile,
                           _mm512_permutex2var_epi16(x, upper, y));
      }
    }
    for (int at = 0; at < kWidth; at += kLanes) {
      _tile_loadd(2, &sums[0][at], kWidth * 4);
      for (int key = 0; key < kKeys; key += 32) {
        _tile_loadd(3, &weights[0][key], kKeys * 2);
        _tile_loadd(1, paired + key * kWidth + at / 16 * kTile, 64);
        _tile_dpbf16ps(2, 3, 1);
      }
      _tile_stored(2, &sums[0][at], kWidth * 4);
    }
  }

  alignas(64) float queries[kGroup][kWidth];
  alignas(64) Half laidQueries[kWidth / 2][kGroup][2];
  alignas(64) float scores[kGroup][kKeys];
  alignas(64) Half weights[kGroup][kKeys];
  alignas(64) float sums[kGroup][kWidth];
  alignas(64) T padded[2][kKeys * kWidth];
  alignas(64) Half paired[tiles.values == Values::Tiles ? kKeys * kWidth : 1];
  float pivots[kGroup];
  Vec totals[kGroup];
};

/// Merges segments; `parts` are of one head of keys.
template <typename T>
void mergeParts(const DecodePart *parts, int segments, T *out) {
  for (int head = 0; head < kGroup; ++head) {
    float top = parts[0].pivots[head], total = 0;
    for (int i = 1; i < segments; ++i)
      top = std::max(top, parts[i].pivots[head]);
    float sums[kDecodeWidth] = {};
    for (int i = 0; i < segments; ++i) {
      float factor = std::exp2(parts[i].pivots[head] - top);
      total += factor * parts[i].totals[head];
      for (int e = 0; e < kDecodeWidth; ++e)
        sums[e] += factor * parts[i].sums[head][e];
    }
    for (int e = 0; e < kDecodeWidth; ++e) {
      if constexpr (sizeof(T) == 4)
        out[head * kDecodeWidth + e] = sums[e] / total;
      else
        out[head * kDecodeWidth + e] = narrow(sums[e] / total);
    }
  }
}

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_DECODE_H
