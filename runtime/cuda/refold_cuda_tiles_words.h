// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tile level for f32, the same on device and host: products by
// multiply-adds, since matrix units would round what they multiply. A lane has
// every eighth row of its warp and every fourth column; lanes beside each other
// in pairs, and pairs of these, read the same 16 bytes of one side each, which
// halves what shared memory is asked for.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_WORDS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_WORDS_H

namespace refold {

/// A matrix of f32 in shared memory, in chunks of 16 bytes that lie as those of
/// `Tile` do: eight rows at one chunk in different banks, and eight chunks of a
/// row.
template <int kRowsOf, int kColumnsOf> struct WordTile {
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf;
  static constexpr int kInChunk = 4, kChunks = kColumns / kInChunk;
  static constexpr bool kIsPermuted =
      kChunks >= 8 && (kChunks & (kChunks - 1)) == 0;
  static constexpr int kRowBytes =
      16 * (kIsPermuted ? kChunks : int(kChunks | 1));
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kRows % 16 == 0 && kColumns % 16 == 0);

  /// Where a chunk is. Tiles begin at multiples of 128 bytes.
  REFOLD_DEVICE static uint32_t place(int row, int chunk) {
    return row * kRowBytes + (kIsPermuted ? chunk ^ (row & 7) : chunk) * 16;
  }
  /// From a place a number of chunks on that has no bit in common with its own.
  REFOLD_DEVICE static uint32_t right(uint32_t at, int chunks) {
    return kIsPermuted ? (at ^ ((chunks & 7) << 4)) + (chunks >> 3) * 128
                       : at + chunks * 16;
  }
  /// From chunks 4 * four on of rows to the next four.
  REFOLD_DEVICE static void step(uint32_t &at, int four) {
    if constexpr (kIsPermuted)
      at = (at ^ 64) + (four % 2 != 0 ? 128 : 0);
    else
      at += 64;
  }
  /// From a row that has no bit in common with `rows`, or 8 more, down.
  REFOLD_DEVICE static uint32_t down(uint32_t at, int rows) {
    return (kIsPermuted ? at ^ ((rows & 7) << 4) : at) + rows * kRowBytes;
  }
};

/// What a lane has of 16 rows and 8 columns, as `fragment_row` and
/// `fragment_column` say it of matrix units: four lanes, whose numbers differ
/// in the bits of 2 and 4, have a row.
REFOLD_DEVICE int word_row(int half, int at = thread()) {
  return at % 2 + at % 32 / 8 * 2 + half * 8;
}
REFOLD_DEVICE int word_lane(int at) { return at / 2 % 4; }
REFOLD_DEVICE int word_column(int e, int at = thread()) {
  return word_lane(at) * 2 + e;
}
/// Of 16 columns of a sum of rows, a lane has four neighbours.
REFOLD_DEVICE int word_quad(int at = thread()) { return word_lane(at) * 4; }

/// products += left * right^T: the 8 * kRows rows of `left` that begin at its
/// offset, against all rows of a tile `right`. Of every 16 of these a lane has
/// those that word_column says, then those 8 rows on. Sixteen products are
/// added up by themselves first: a row of them in one chain errs more than
/// twice as much as sums of parts do.
template <typename Left, typename Right, int kRows, int kCount>
REFOLD_DEVICE void multiply_word_rows(float (&products)[kRows][kCount],
                                      uint32_t left, uint32_t right) {
  static_assert(kCount * 4 == Right::kRows &&
                Left::kColumns == Right::kColumns);
  constexpr int kAtOnce = 4; // chunks
  const int lane = thread_again() % 32;
  uint32_t a = left + Left::place(word_row(0, lane), 0);
  uint32_t b = right + Right::place(word_column(0, lane), 0);
  REFOLD_NO_UNROLL
  for (int first = 0; first < Left::kChunks; first += kAtOnce) {
    float own[kRows][kCount] = {};
    const auto multiply = [&](int k) {
      uint32_t l[kRows][4];
      REFOLD_UNROLL
      for (int i = 0; i < kRows; ++i)
        load_shared(l[i], Left::down(Left::right(a, k), i * 8));
      REFOLD_UNROLL
      for (int c = 0; c < kCount; ++c) {
        uint32_t r[4];
        load_shared(r, Right::down(Right::right(b, k), c / 2 * 8 + c % 2));
        REFOLD_UNROLL
        for (int e = 0; e < 4; ++e)
          REFOLD_UNROLL
        for (int i = 0; i < kRows; ++i)
          own[i][c] =
              multiply_add(float_of(l[i][e]), float_of(r[e]), own[i][c]);
      }
    };
    // Beside sums of more columns registers have no room for what several
    // chunks ask for ahead.
    if constexpr (Left::kColumns > 64) {
      REFOLD_NO_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        multiply(k);
    } else {
      REFOLD_UNROLL
      for (int k = 0; k < kAtOnce; ++k)
        multiply(k);
    }
    REFOLD_UNROLL
    for (int i = 0; i < kRows; ++i)
      REFOLD_UNROLL
    for (int c = 0; c < kCount; ++c)
      products[i][c] = products[i][c] + own[i][c];
    Left::step(a, first / kAtOnce);
    Right::step(b, first / kAtOnce);
  }
}

/// Factors of 8 * kRows rows of a warp and as many columns, which its lanes
/// keep for each other in shared memory, four of a row in 16 bytes in the order
/// in which a lane has them: neither four rows that eight lanes write nor those
/// that sixteen read share a bank.
template <int kRows, int kColumnsOf> struct WordFactors {
  static constexpr int kColumns = kColumnsOf, kRowBytes = kColumns * 4;
  static constexpr int kBytes = 8 * kRows * kRowBytes;
  static_assert(kColumns == 16 || kColumns % 32 == 0);

  /// They begin at multiples of 128 bytes.
  REFOLD_DEVICE static uint32_t place(int row, int piece) {
    const int turned =
        kColumns % 32 == 0 ? row % 2 * 4 + row / 2 % 4 : row / 2 % 4;
    return row * kRowBytes + (piece ^ turned) * 16;
  }
  /// Those of the lane's i-th row and of the c-th 16 columns.
  REFOLD_DEVICE static void put(uint32_t to, int i, int c,
                                const float (&four)[4]) {
    const int lane = thread_again() % 32;
    const uint32_t words[4] = {bits_of(four[0]), bits_of(four[1]),
                               bits_of(four[2]), bits_of(four[3])};
    store_shared(to + place(word_row(i, lane), 4 * c + word_lane(lane)), words);
  }
};

/// sums += factors * values, the columns of a lane from `kFirst` on, `kAtOnce`
/// of them. They are added up by themselves first, so that no error grows with
/// the number of tiles times their columns.
template <typename Factors, typename Values, int kFirst, int kAtOnce, int kRows,
          int kCount>
REFOLD_DEVICE void multiply_word_block(float (&sums)[kRows][kCount],
                                       uint32_t factors, uint32_t values) {
  float own[kRows][kAtOnce] = {};
  REFOLD_NO_UNROLL
  for (int c = 0; c < Factors::kColumns / 16; ++c) {
    REFOLD_UNROLL
    for (int piece = 0; piece < 4; ++piece) {
      uint32_t p[kRows][4];
      REFOLD_UNROLL
      for (int i = 0; i < kRows; ++i)
        load_shared(p[i],
                    (factors ^ (piece << 4)) + i * 8 * Factors::kRowBytes);
      REFOLD_UNROLL
      for (int e = 0; e < 4; ++e) {
        const uint32_t at = Values::down(values, 2 * piece + e / 2 * 8 + e % 2);
        REFOLD_UNROLL
        for (int j = 0; j < kAtOnce / 4; ++j) {
          uint32_t r[4];
          load_shared(r, Values::right(at, 4 * (kFirst / 4 + j)));
          REFOLD_UNROLL
          for (int i = 0; i < kRows; ++i)
            REFOLD_UNROLL
          for (int q = 0; q < 4; ++q)
            own[i][4 * j + q] = multiply_add(float_of(p[i][e]), float_of(r[q]),
                                             own[i][4 * j + q]);
        }
      }
    }
    factors ^= 64; // the next four of eight pieces
    if (c % 2 != 0)
      factors += 128;
    values += 16 * Values::kRowBytes;
  }
  REFOLD_UNROLL
  for (int i = 0; i < kRows; ++i)
    REFOLD_UNROLL
  for (int j = 0; j < kAtOnce; ++j)
    sums[i][kFirst + j] = sums[i][kFirst + j] + own[i][j];
}

/// sums += factors * values: what the lanes of a warp have put at `factors`
/// before they met, against as many rows of a tile `Values` as that has
/// columns. A lane has four neighbours of every 16 columns.
template <typename Factors, typename Values, int kFirst = 0, int kRows,
          int kCount>
REFOLD_DEVICE void multiply_word_columns(float (&sums)[kRows][kCount],
                                         uint32_t factors, uint32_t values) {
  static_assert(kCount * 4 == Values::kColumns);
  if constexpr (kFirst < kCount) {
    // As many as registers have room for beside all sums.
    constexpr int kMost = kCount > 16 ? 8 : 16;
    constexpr int kLeft = kCount - kFirst;
    constexpr int kAtOnce = kLeft < kMost ? kLeft : kMost;
    const int lane = thread_again() % 32;
    multiply_word_block<Factors, Values, kFirst, kAtOnce>(
        sums, factors + Factors::place(word_row(0, lane), 0),
        values + Values::place(0, word_lane(lane)));
    multiply_word_columns<Factors, Values, kFirst + kAtOnce>(sums, factors,
                                                             values);
  }
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_WORDS_H
