// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows whose elements are products, the same on device and host: a block
// computes whole rows by matrix units, leaves them in shared memory, where what
// was multiplied had been, and reads them there as any row.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROWS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROWS_H

#include "refold_cuda_products.h"

namespace refold {

/// Rows of `kColumns` sums in shared memory, 16 bytes further apart than they
/// are long: a warp that reads 32 bytes at 4 places of 8 rows meets every bank
/// as often.
template <int kColumns> struct SumRows {
  static constexpr int kRowBytes = kColumns * 4 + 16;
  REFOLD_DEVICE static uint32_t row(uint32_t rows, int which) {
    return rows + uint32_t(which * kRowBytes);
  }
};

/// Leaves the sums of 16 rows and 16 columns.
template <typename Rows>
REFOLD_DEVICE void keep_sums(uint32_t to, int row, int column,
                             const float (&low)[4], const float (&high)[4]) {
  REFOLD_UNROLL
  for (int half = 0; half < 2; ++half) {
    uint32_t words[4];
    const float l[2] = {low[half * 2], low[half * 2 + 1]};
    const float h[2] = {high[half * 2], high[half * 2 + 1]};
    exchange_quads(words, l, h);
    store_shared(Rows::row(to, row + fragment_row(half)) +
                     uint32_t(column + fragment_quad()) * 4,
                 words);
  }
}

/// Leaves what the warps of a block have. All copies have come before.
template <typename U>
REFOLD_DEVICE void keep_rows(uint32_t to,
                             const float (&sums)[U::kTiles][U::kParts][4]) {
  const int warp = thread() / 32;
  const int row = warp / U::kColumnWarps * U::kTiles * 16;
  const int column = warp % U::kColumnWarps * U::kParts * 8;
  REFOLD_UNROLL
  for (int i = 0; i < U::kTiles; ++i)
    REFOLD_UNROLL
  for (int c = 0; c < U::kParts / 2; ++c)
    keep_sums<SumRows<U::kColumns>>(to, row + i * 16, column + c * 16,
                                    sums[i][2 * c], sums[i][2 * c + 1]);
}

/// Units whose steps are as long, and as many under way, as what streams from
/// memory wants; they leave what they have summed as rows.
template <int kRowWarpsOf, int kColumnWarpsOf, int kTilesOf, int kPartsOf,
          int kDepthOf, int kStagesOf>
struct RowUnits : Units<kRowWarpsOf, kColumnWarpsOf, kTilesOf, kPartsOf> {
  static constexpr int kDepth = kDepthOf, kStages = kStagesOf;
  static constexpr int kMapBytes = 0; ///< that a block has in the workspace

  template <bool kIsTransposed, int kVector, typename T>
  REFOLD_DEVICE static void
  sum(uint32_t memory, Matrix<const T> left, Matrix<const T> right,
      int64_t rows, int64_t columns, int64_t depth, unsigned char * /*maps*/) {
    float sums[kTilesOf][kPartsOf][4] = {};
    sum_on_units<RowUnits, kIsTransposed, kVector>(sums, memory, left, right,
                                                   rows, columns, depth);
    // Everything has come and is multiplied: rows may lie there.
    wait_copies<0>();
    block_barrier();
    keep_rows<RowUnits>(memory, sums);
  }
};

/// Adds up what `parts` blocks have left of four neighbours of rows, those
/// from `first` to `end`, and puts it back. A thread has `kSide` times four at
/// once, of `kAtOnce` parts: what it waits for is the way.
template <typename U, int kSide, int kAtOnce>
REFOLD_DEVICE void take_parts(uint32_t memory, const unsigned char *left,
                              int parts, int first, int end) {
  using Rows = SumRows<U::kColumns>;
  constexpr int kQuads = U::kColumns / 4;
  constexpr int64_t kPartBytes = int64_t(U::kRows) * U::kColumns * 4;
  REFOLD_NO_UNROLL
  for (int at = first + thread(); at < end; at += kSide * U::kThreads) {
    // What lies beyond is the last one again.
    int places[kSide];
    REFOLD_UNROLL
    for (int s = 0; s < kSide; ++s)
      places[s] = int(smaller(at + s * U::kThreads, end - 1));
    const unsigned char *from = left;
    float sums[kSide][4] = {};
    // Parts that are not there are zeros.
    REFOLD_NO_UNROLL
    for (int part = 0; part < parts; part += kAtOnce) {
      uint32_t words[kAtOnce][kSide][4];
      REFOLD_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        REFOLD_UNROLL
      for (int s = 0; s < kSide; ++s)
        take_words_if(words[i][s], from + i * kPartBytes + places[s] * 16,
                      part + i < parts);
      REFOLD_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        REFOLD_UNROLL
      for (int s = 0; s < kSide; ++s)
        REFOLD_UNROLL
      for (int e = 0; e < 4; ++e)
        sums[s][e] = sums[s][e] + float_of(words[i][s][e]);
      from += kAtOnce * kPartBytes;
    }
    REFOLD_UNROLL
    for (int s = 0; s < kSide; ++s) {
      const uint32_t words[4] = {bits_of(sums[s][0]), bits_of(sums[s][1]),
                                 bits_of(sums[s][2]), bits_of(sums[s][3])};
      const int place = at + s * U::kThreads;
      if (place < end)
        store_shared(Rows::row(memory, place / kQuads) + place % kQuads * 16,
                     words);
    }
  }
}

template <typename U>
REFOLD_DEVICE void take_some_parts(uint32_t memory, const unsigned char *left,
                                   int parts, int first, int end) {
  if (parts <= 4)
    take_parts<U, 4, 4>(memory, left, parts, first, end);
  else if (parts <= 8)
    take_parts<U, 2, 8>(memory, left, parts, first, end);
  else
    take_parts<U, 1, 16>(memory, left, parts, first, end);
}

/// The first `count` of 64 rows, a bit each.
REFOLD_DEVICE uint64_t first_rows(int64_t count) {
  return count < 64 ? (uint64_t(1) << count) - 1 : ~uint64_t(0);
}

/// Rows of which every one of `parts` blocks has parts of the sums in shared
/// memory: it leaves those of the first `rows`, at most 64. Some of the blocks,
/// or the last one to come, then add up a slice of the rows each, there, in the
/// order of parts. Which rows those are of this block, a bit each, mostly none;
/// `left` has room for the rows of all parts, `tickets` are theirs, one a part.
/// All threads call it; those that read rows wait for all of them before and
/// behind it.
template <typename U>
REFOLD_DEVICE uint64_t add_parts(uint32_t memory, unsigned char *left,
                                 uint32_t *tickets, int parts, int part,
                                 int rows) {
  using Rows = SumRows<U::kColumns>;
  static_assert(U::kRows <= 64);
  constexpr int kQuads = U::kColumns / 4;
  constexpr int64_t kPartBytes = int64_t(U::kRows) * U::kColumns * 4;
  const int count = rows * kQuads;
  REFOLD_NO_UNROLL
  for (int at = thread(); at < count; at += U::kThreads) {
    uint32_t words[4];
    load_shared(words, Rows::row(memory, at / kQuads) + at % kQuads * 16);
    leave_words<16>(left + part * kPartBytes + at * 16, words);
  }
  // One block does it where that takes no longer than to wait for the others
  // (PlanLaunch has the same number).
  constexpr int kQuadsOfOne = 5120;
  if (parts * count <= kQuadsOfOne) {
    if (!is_last_block(tickets, parts))
      return 0;
    take_some_parts<U>(memory, left, parts, 0, count);
    return first_rows(rows);
  }
  const int slices = slices_of(smaller(parts, rows));
  const int rows_each = (rows + slices - 1) / slices;
  uint32_t claimed = claim_slices(tickets, part, parts, slices);
  uint64_t own = 0;
  REFOLD_NO_UNROLL
  for (int first = 0; claimed != 0; claimed >>= 1, first += rows_each) {
    if ((claimed & 1) == 0 || first >= rows)
      continue;
    const int end = int(smaller(first + rows_each, rows));
    take_some_parts<U>(memory, left, parts, first * kQuads, end * kQuads);
    own |= first_rows(end) & ~first_rows(first);
  }
  return own;
}

/// Elements of a row that was left.
template <int kWidth>
REFOLD_DEVICE Vector<float, kWidth> load_sums(uint32_t row, int64_t column) {
  Vector<float, kWidth> to;
  if constexpr (kWidth % 4 == 0) {
    REFOLD_UNROLL
    for (int part = 0; part < kWidth / 4; ++part) {
      uint32_t words[4];
      load_shared(words, row + uint32_t(column + part * 4) * 4);
      REFOLD_UNROLL
      for (int i = 0; i < 4; ++i)
        to.words[part * 4 + i] = words[i];
    }
  } else {
    static_assert(kWidth == 1);
    uint32_t words[4];
    load_shared(words, row + uint32_t(column / 4) * 16);
    const int at = int(column % 4);
    to.words[0] = at == 0   ? words[0]
                  : at == 1 ? words[1]
                  : at == 2 ? words[2]
                            : words[3];
  }
  return to;
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROWS_H
