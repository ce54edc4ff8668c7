// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention in f32, two ways, each of one thread and a block of queries:
//
//   ByRows    queries are rows of a tile, keys its lanes: keys are laid out
//   ByLanes   queries are the lanes, keys the rows: nothing is laid out, and
//             pivots, sums and factors are a lane's own
//
// Both pass once over the keys. A block of scores, relative to the pivots of
// its queries, becomes weights, and weighted sums are added up in registers.
#ifndef REFOLD_BENCHMARKS_BYHAND_ATTENTION_H
#define REFOLD_BENCHMARKS_BYHAND_ATTENTION_H

#include "Turns.h"
#include "Vectors.h"

namespace byhand {

struct AttentionShape {
  int64_t heads, m, n, d, e;
  bool isCausal; ///< a query sees the keys up to its own position
  float scale;   ///< of products of queries and keys
};

/// sums[i][j] += a[i * kRow + k * kStep] * b[k * kPitch + j], so many steps.
template <int R, int N, int kRow, int kStep, int kPitch>
REFOLD_INLINE void multiply(const float *a, const float *b, int steps,
                            Vec (&sums)[R][N]) {
#pragma clang loop unroll_count(4)
  for (int k = 0; k < steps; ++k) {
    Vec right[N];
    REFOLD_UNROLL for (int j = 0; j < N; ++j) right[j] =
        load(b + k * kPitch + j * kLanes);
    REFOLD_UNROLL for (int i = 0; i < R; ++i) {
      Vec left = splat(a[i * kRow + k * kStep]);
      REFOLD_UNROLL for (int j = 0; j < N; ++j) sums[i][j] =
          fma(left, right[j], sums[i][j]);
    }
  }
}

/// What a form of ByRows is made of.
struct RowTiles {
  int queries, keys; ///< of a block
  int rows;          ///< of queries in registers, by two vectors of keys
  Power power;
  bool areValuesLaid; ///< in panels of 32, as keys are
};

template <int D, int E, RowTiles tiles> class ByRows {
public:
  explicit ByRows(const AttentionShape &shape)
      : shape(shape), laidKeys((shape.n + kPanel) * D * sizeof(float)),
        laidValues(tiles.areValuesLaid ? shape.n * E * sizeof(float) : 0) {}

  static constexpr int kQueries = tiles.queries;

  /// Keys of a head as [n / 32][D][32], zeros beyond the last.
  void beginHead(const float *keys, const float *theValues) {
    values = theValues;
    for (int64_t key = 0; key < shape.n; key += kLanes)
      layKeys(keys, key);
    if constexpr (tiles.areValuesLaid)
      for (int64_t row = 0; row < shape.n; ++row)
        for (int e = 0; e < E; e += kLanes)
          store(laidValues.as<float>() + (e / kPanel * shape.n + row) * kPanel +
                    e % kPanel,
                load(values + row * E + e));
  }

  void run(const float *q, float *out, int64_t first, int count) {
    const float scale = kLog2E * shape.scale;
    for (int row = 0; row < kQueries; ++row) {
      for (int d = 0; d < D; d += kLanes)
        store(&queries[row][d],
              row < count ? load(q + row * D + d) * scale : Vec{});
      for (int e = 0; e < E; e += kLanes)
        store(&sums[row][e], Vec{});
      store(totals[row], Vec{});
      pivots[row] = kLowest;
    }
    int rows = (count + tiles.rows - 1) / tiles.rows * tiles.rows;
    int64_t last = shape.isCausal ? std::min(shape.n, first + count) : shape.n;
    for (int64_t key = 0; key < last; key += kKeys) {
      int keys = static_cast<int>(std::min<int64_t>(kKeys, last - key));
      score(key, rows, keys);
      if (shape.isCausal && key + keys > first + 1)
        hideLater(key, first, count, keys);
      for (int row = 0; row < count; ++row)
        weigh(row, (keys + kPanel - 1) / kPanel * kPanel);
      int e = 0;
      for (; e + 2 * kLanes <= E; e += 2 * kLanes)
        add<2>(key, rows, keys, e);
      if constexpr (E % kPanel != 0)
        add<1>(key, rows, keys, e);
    }
    for (int row = 0; row < count; ++row) {
      Vec share = splat(1 / sumOf(load(totals[row])));
      for (int e = 0; e < E; e += kLanes)
        store(out + row * E + e, load(&sums[row][e]) * share);
    }
  }

private:
  static constexpr int kPanel = 32, kKeys = tiles.keys;
  static constexpr int kPitch = kKeys + kLanes;
  static constexpr float kLowest = -1e30f;

  void layKeys(const float *keys, int64_t key) {
    float *to = laidKeys.as<float>() + key / kPanel * D * kPanel + key % kPanel;
    int64_t count = std::min<int64_t>(kLanes, shape.n - key);
    const float *from = keys + key * D;
    alignas(64) float padded[kLanes * D];
    if (count < kLanes) {
      std::memset(padded, 0, sizeof padded);
      std::memcpy(padded, from, count * D * sizeof(float));
      from = padded;
    }
    for (int d = 0; d < D; d += kLanes) {
      Vec columns[kLanes];
      transpose(from + d, D, columns);
      REFOLD_UNROLL for (int i = 0; i < kLanes; ++i)
          store(to + (d + i) * kPanel, columns[i]);
    }
  }

  /// Scores of whole panels; those beyond the last key are -inf.
  void score(int64_t key, int rows, int keys) {
    for (int panel = 0; panel < keys; panel += kPanel)
      for (int row = 0; row < rows; row += tiles.rows) {
        Vec s[tiles.rows][2] = {};
        multiply<tiles.rows, 2, D, 1, kPanel>(
            queries[row], laidKeys.as<float>() + (key + panel) * D, D, s);
        REFOLD_UNROLL for (int i = 0; i < tiles.rows; ++i) {
          store(&scores[row + i][panel], s[i][0]);
          store(&scores[row + i][panel + kLanes], s[i][1]);
        }
      }
    for (int at = keys; at % kPanel != 0; ++at)
      for (int row = 0; row < rows; ++row)
        scores[row][at] = kMinusInf;
  }

  void hideLater(int64_t key, int64_t first, int count, int keys) {
    for (int row = 0; row < count; ++row)
      for (int64_t at = std::max<int64_t>(0, first + row + 1 - key); at < keys;
           ++at)
        scores[row][at] = kMinusInf;
  }

  void weigh(int row, int wide) {
    float *s = scores[row];
    Vec tops[2] = {splat(pivots[row]), splat(pivots[row])};
    for (int i = 0; i < wide; i += 2 * kLanes)
      REFOLD_UNROLL for (int k = 0; k < 2; ++k) tops[k] =
          larger(tops[k], load(s + i + k * kLanes));
    float top = largestOf(larger(tops[0], tops[1]));
    Vec factor = power<Power::Rounded>(splat(pivots[row] - top));
    pivots[row] = top;
    factors[row] = factor[0];
    Vec pivot = splat(top), sum[2] = {};
    for (int i = 0; i < wide; i += 2 * kLanes)
      REFOLD_UNROLL for (int k = 0; k < 2; ++k) {
        Vec weight = power<tiles.power>(load(s + i + k * kLanes) - pivot);
        sum[k] += weight;
        store(s + i + k * kLanes, weight);
      }
    store(totals[row], fma(load(totals[row]), factor, sum[0] + sum[1]));
  }

  template <int N> void add(int64_t key, int rows, int keys, int e) {
    constexpr int kValuePitch = tiles.areValuesLaid ? kPanel : E;
    const float *from =
        tiles.areValuesLaid
            ? laidValues.as<float>() + (e / kPanel * shape.n + key) * kPanel
            : values + key * E + e;
    for (int row = 0; row < rows; row += tiles.rows) {
      Vec s[tiles.rows][N];
      REFOLD_UNROLL for (int i = 0; i < tiles.rows; ++i)
          REFOLD_UNROLL for (int k = 0; k < N; ++k) s[i][k] =
              load(&sums[row + i][e + k * kLanes]) * factors[row + i];
      multiply<tiles.rows, N, kPitch, 1, kValuePitch>(scores[row], from, keys,
                                                      s);
      REFOLD_UNROLL for (int i = 0; i < tiles.rows; ++i)
          REFOLD_UNROLL for (int k = 0; k < N; ++k)
              store(&sums[row + i][e + k * kLanes], s[i][k]);
    }
  }

  AttentionShape shape;
  Memory laidKeys, laidValues;
  const float *values = nullptr;
  alignas(64) float queries[kQueries][D];
  alignas(64) float scores[kQueries][kPitch] = {};
  alignas(64) float sums[kQueries][E];
  alignas(64) float totals[kQueries][kLanes];
  float pivots[kQueries], factors[kQueries] = {};
};

/// What a form of ByLanes is made of.
struct LaneTiles {
  int vectors; ///< of queries
  int keys;    ///< of a block
  int rows;    ///< of keys, or elements of values, in registers
  Power power;
};

/// Rows of values are kValuePitch apart.
template <int D, int E, LaneTiles tiles, int kValuePitch = E> class ByLanes {
public:
  explicit ByLanes(const AttentionShape &shape) : shape(shape) {}

  static constexpr int kQueries = tiles.vectors * kLanes;

  void beginHead(const float *theKeys, const float *theValues) {
    keys = theKeys;
    values = theValues;
  }

  void run(const float *q, float *out, int64_t first, int count) {
    turnQueries(q, count);
    std::memset(sums, 0, sizeof sums);
    for (int v = 0; v < N; ++v) {
      pivots[v] = splat(kLowest);
      totals[v] = Vec{};
    }
    int64_t last = shape.isCausal ? std::min(shape.n, first + count) : shape.n;
    for (int64_t key = 0; key < last; key += tiles.keys) {
      int many = static_cast<int>(std::min<int64_t>(tiles.keys, last - key));
      REFOLD_UNROLL for (int v = 0; v < N; ++v) tops[v] = splat(kMinusInf);
      for (int depth = 0; depth < D; depth += kDepth) {
        int row = 0;
        for (; row + tiles.rows <= many; row += tiles.rows)
          score<tiles.rows>(key, row, depth);
        scoreRest<tiles.rows - 1>(key, row, many - row, depth);
      }
      if (shape.isCausal && key + many > first + 1)
        hideLater(key, first, many);
      movePivots();
      weigh(many);
      int e = 0;
      for (; e + tiles.rows <= E; e += tiles.rows)
        add<tiles.rows>(key, many, e);
      if constexpr (E % tiles.rows != 0)
        add<E % tiles.rows>(key, many, e);
    }
    finish(out, count);
  }

private:
  static constexpr int N = tiles.vectors;
  /// So many elements of the queries stay in the first cache.
  static constexpr int kDepth = D > 128 ? 96 : D;
  static_assert(D % kDepth == 0);
  static constexpr float kLowest = -1e30f;
  /// By how much a score may exceed its pivot: weights stay below 2^30.
  static constexpr float kSlack = 30;

  void turnQueries(const float *q, int count) {
    const float scale = kLog2E * shape.scale;
    alignas(64) float padded[kLanes * D];
    for (int v = 0; v < N; ++v) {
      int here = std::clamp(count - v * kLanes, 0, kLanes);
      const float *from = q + v * kLanes * D;
      if (here < kLanes) {
        std::memset(padded, 0, sizeof padded);
        if (here > 0)
          std::memcpy(padded, from, here * D * sizeof(float));
        from = padded;
      }
      for (int d = 0; d < D; d += kLanes) {
        Vec columns[kLanes];
        transpose(from + d, D, columns);
        REFOLD_UNROLL for (int i = 0; i < kLanes; ++i)
            store(&queries[d + i][v * kLanes], columns[i] * scale);
      }
    }
  }

  template <int R> REFOLD_INLINE void score(int64_t key, int row, int depth) {
    Vec s[R][N] = {};
    if (depth > 0)
      REFOLD_UNROLL for (int i = 0; i < R; ++i)
          REFOLD_UNROLL for (int v = 0; v < N; ++v) s[i][v] =
              load(&scores[row + i][v * kLanes]);
    multiply<R, N, D, 1, kQueries>(keys + (key + row) * D + depth,
                                   queries[depth], kDepth, s);
    bool isWhole = depth + kDepth == D;
    REFOLD_UNROLL for (int v = 0; v < N; ++v) {
      Vec top = tops[v];
      REFOLD_UNROLL for (int i = 0; i < R; ++i) {
        top = larger(top, s[i][v]);
        store(&scores[row + i][v * kLanes], s[i][v]);
      }
      tops[v] = isWhole ? top : tops[v];
    }
  }

  template <int R> void scoreRest(int64_t key, int row, int left, int depth) {
    if constexpr (R > 0) {
      if (left == R)
        score<R>(key, row, depth);
      else
        scoreRest<R - 1>(key, row, left, depth);
    }
  }

  void hideLater(int64_t key, int64_t first, int many) {
    const __m512i lane =
        _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    for (int v = 0; v < N; ++v) {
      Vec top = splat(kMinusInf);
      for (int row = 0; row < many; ++row) {
        // Of query `first + v * 16 + lane` at key `key + row`.
        int ahead = static_cast<int>(key + row - first) - v * kLanes;
        __mmask16 isLater = _mm512_cmp_epi32_mask(
            lane, _mm512_set1_epi32(ahead), _MM_CMPINT_LT);
        float *at = &scores[row][v * kLanes];
        Vec s = (Vec)_mm512_mask_blend_ps(isLater, (__m512)load(at),
                                          (__m512)splat(kMinusInf));
        store(at, s);
        top = larger(top, s);
      }
      tops[v] = top;
    }
  }

  void movePivots() {
    for (int v = 0; v < N; ++v) {
      if (__builtin_expect(exceeds(tops[v], pivots[v] + splat(kSlack)) == 0, 1))
        continue;
      Vec pivot = larger(pivots[v], tops[v]);
      Vec factor = power<Power::Rounded>(pivots[v] - pivot);
      pivots[v] = pivot;
      totals[v] *= factor;
      for (int e = 0; e < E; ++e)
        store(&sums[e][v * kLanes], load(&sums[e][v * kLanes]) * factor);
    }
  }

  void weigh(int many) {
    Vec pivot[N], total[N];
    REFOLD_UNROLL for (int v = 0; v < N; ++v) {
      pivot[v] = pivots[v];
      total[v] = totals[v];
    }
    for (int row = 0; row < many; ++row)
      REFOLD_UNROLL for (int v = 0; v < N; ++v) {
        float *at = &scores[row][v * kLanes];
        Vec weight = power<tiles.power>(load(at) - pivot[v]);
        total[v] += weight;
        store(at, weight);
      }
    REFOLD_UNROLL for (int v = 0; v < N; ++v) totals[v] = total[v];
  }

  template <int R> REFOLD_INLINE void add(int64_t key, int many, int e) {
    Vec s[R][N];
    REFOLD_UNROLL for (int i = 0; i < R; ++i)
        REFOLD_UNROLL for (int v = 0; v < N; ++v) s[i][v] =
            load(&sums[e + i][v * kLanes]);
    multiply<R, N, 1, kValuePitch, kQueries>(values + key * kValuePitch + e,
                                             scores[0], many, s);
    REFOLD_UNROLL for (int i = 0; i < R; ++i)
        REFOLD_UNROLL for (int v = 0; v < N; ++v)
            store(&sums[e + i][v * kLanes], s[i][v]);
  }

  void finish(float *out, int count) {
    for (int v = 0; v < N; ++v) {
      Vec share = splat(1.0f) / totals[v];
      for (int e = 0; e < E; e += kLanes) {
        REFOLD_UNROLL for (int i = 0; i < kLanes; ++i) {
          float *at = &sums[e + i][v * kLanes];
          store(at, load(at) * share);
        }
        Vec rows[kLanes];
        transpose(&sums[e][v * kLanes], kQueries, rows);
        for (int i = 0; i < kLanes && v * kLanes + i < count; ++i)
          store(out + (v * kLanes + i) * E + e, rows[i]);
      }
    }
  }

  AttentionShape shape;
  const float *keys = nullptr, *values = nullptr;
  alignas(64) float queries[D][kQueries];
  alignas(64) float scores[tiles.keys][kQueries];
  alignas(64) float sums[E][kQueries];
  Vec pivots[N], totals[N], tops[N];
};

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_ATTENTION_H
