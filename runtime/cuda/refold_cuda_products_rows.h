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

  template <bool kIsTransposed, int kVector, typename T>
  REFOLD_DEVICE static void sum(uint32_t memory, Matrix<const T> left,
                                Matrix<const T> right, int64_t rows,
                                int64_t columns, int64_t depth) {
    float sums[kTilesOf][kPartsOf][4] = {};
    sum_on_units<RowUnits, kIsTransposed, kVector>(sums, memory, left, right,
                                                   rows, columns, depth);
    // Everything has come and is multiplied: rows may lie there.
    wait_copies<0>();
    block_barrier();
    keep_rows<RowUnits>(memory, sums);
  }
};

/// Adds up what `parts` blocks have left of `count` times four neighbours of
/// rows, and puts it back. A thread has `kSide` times four at once, of
/// `kAtOnce` parts: what it waits for is the way.
template <typename U, int kSide, int kAtOnce>
REFOLD_DEVICE void take_parts(uint32_t memory, const unsigned char *left,
                              int parts, int count) {
  using Rows = SumRows<U::kColumns>;
  constexpr int kQuads = U::kColumns / 4;
  constexpr int64_t kPartBytes = int64_t(U::kRows) * U::kColumns * 4;
  REFOLD_NO_UNROLL
  for (int at = thread(); at < count; at += kSide * U::kThreads) {
    // What lies beyond is the last one again.
    int places[kSide];
    REFOLD_UNROLL
    for (int s = 0; s < kSide; ++s)
      places[s] = int(smaller(at + s * U::kThreads, count - 1));
    const unsigned char *from = left;
    float sums[kSide][4] = {};
    const auto add = [&](auto number) {
      constexpr int kNumber = decltype(number)::value;
      uint32_t words[kNumber][kSide][4];
      REFOLD_UNROLL
      for (int i = 0; i < kNumber; ++i)
        REFOLD_UNROLL
      for (int s = 0; s < kSide; ++s)
        take_words<16>(words[i][s], from + i * kPartBytes + places[s] * 16);
      REFOLD_UNROLL
      for (int i = 0; i < kNumber; ++i)
        REFOLD_UNROLL
      for (int s = 0; s < kSide; ++s)
        REFOLD_UNROLL
      for (int e = 0; e < 4; ++e)
        sums[s][e] = sums[s][e] + float_of(words[i][s][e]);
      from += kNumber * kPartBytes;
    };
    REFOLD_NO_UNROLL
    for (int part = kAtOnce; part <= parts; part += kAtOnce)
      add(Number<kAtOnce>{});
    if (kAtOnce > 4 && (parts & 4))
      add(Number<4>{});
    if (parts & 2)
      add(Number<2>{});
    if (parts & 1)
      add(Number<1>{});
    REFOLD_UNROLL
    for (int s = 0; s < kSide; ++s) {
      const uint32_t words[4] = {bits_of(sums[s][0]), bits_of(sums[s][1]),
                                 bits_of(sums[s][2]), bits_of(sums[s][3])};
      const int place = at + s * U::kThreads;
      if (place < count)
        store_shared(Rows::row(memory, place / kQuads) + place % kQuads * 16,
                     words);
    }
  }
}

/// Rows of which every one of `parts` blocks has parts of the sums in shared
/// memory: it leaves those of the first `rows`, and the last block to come adds
/// all of them up there, in the order of parts. Whether this is the last one;
/// `left` has room for the rows of all parts, `ticket` is theirs. All threads
/// call it; those that read rows wait for all of them before and behind it.
template <typename U>
REFOLD_DEVICE bool add_parts(uint32_t memory, unsigned char *left,
                             uint32_t *ticket, int parts, int part, int rows) {
  using Rows = SumRows<U::kColumns>;
  constexpr int kQuads = U::kColumns / 4;
  constexpr int64_t kPartBytes = int64_t(U::kRows) * U::kColumns * 4;
  const int count = rows * kQuads;
  REFOLD_NO_UNROLL
  for (int at = thread(); at < count; at += U::kThreads) {
    uint32_t words[4];
    load_shared(words, Rows::row(memory, at / kQuads) + at % kQuads * 16);
    leave_words<16>(left + part * kPartBytes + at * 16, words);
  }
  if (!is_last_block(ticket, parts))
    return false;
  if (parts >= 8)
    take_parts<U, 2, 8>(memory, left, parts, count);
  else
    take_parts<U, 4, 4>(memory, left, parts, count);
  return true;
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
