// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every primitive once, for test/Target/CUDA/conformance_test.py: emulated on
// every machine, and on a GPU where there is one. What the two disagree on is
// wrong in one of them.
#include "refold_cuda.h"
#include "refold_cuda_shares.h"
#include "refold_cuda_tiles_words.h"

using namespace refold;

/// The low and the high half of pairs of floats of 16 bits.
template <typename T>
REFOLD_DEVICE void conform_pairs(float x, float y, float (&results)[8]) {
  const uint32_t there = pack(x, y, T{}), back = pack(y, x, T{});
  const uint32_t larger = max_pairs(there, back, T{});
  const uint32_t smaller = min_pairs(there, back, T{});
  results[0] = to_float(T{uint16_t(larger)});
  results[1] = to_float(T{uint16_t(larger >> 16)});
  results[2] = to_float(T{uint16_t(smaller)});
  results[3] = to_float(T{uint16_t(smaller >> 16)});
  const uint32_t number = min_numbers(there, back, T{});
  results[4] = to_float(T{uint16_t(number)});
  results[5] = to_float(T{uint16_t(number >> 16)});
  const uint32_t plain = plain_pairs(bits_of(x), T{}); // of any bits
  results[6] = float(plain & 0xffff);
  results[7] = float(plain >> 16);
}

/// Results of element i lie at [k * count + i], k as listed, then those of
/// pairs.
REFOLD_KERNEL(128)
conform_arithmetic(const float *in, float *out, int64_t count) {
  const int64_t i = block() * 128 + thread();
  if (i >= count)
    return;
  const float x = load_element(in + i), y = load_element(in + (count - 1 - i));
  const Divisor by(y);
  const float plain = by.is_plain ? by.quotient<true>(x) : x / y;
  const float results[] = {exp2_fast(x),
                           reciprocal_fast(x),
                           reciprocal_root_fast(x),
                           max_nan(x, y),
                           min_nan(x, y),
                           multiply_add(x, y, 1.0f),
                           divide(x, y),
                           square_root(x),
                           exp_fast(x),
                           Divisor(y).quotient(x),
                           to_float(narrow<bf16>(x)),
                           to_float(narrow<f16>(x)),
                           plain_number(x),
                           plain};
  REFOLD_UNROLL
  for (int k = 0; k < 14; ++k)
    store_element(out + k * count + i, results[k]);
  float pairs[2][8];
  conform_pairs<bf16>(x, y, pairs[0]);
  conform_pairs<f16>(x, y, pairs[1]);
  REFOLD_UNROLL
  for (int k = 0; k < 16; ++k)
    store_element(out + (14 + k) * count + i, pairs[k / 8][k % 8]);
  const uint32_t signs = spread_signs(bits_of(x));
  store_element(out + 30 * count + i, float(signs & 0xffff));
  store_element(out + 31 * count + i, float(signs >> 16));
}

/// Codes of floats of 8 bits, each in the low and in the high half of a pair;
/// and the number of code i % 256, of both formats.
REFOLD_KERNEL(128)
conform_f8(const float *in, float *out, int64_t count) {
  const int64_t i = block() * 128 + thread();
  if (i >= count)
    return;
  const float x = load_element(in + i), y = load_element(in + (count - 1 - i));
  const uint32_t pairs[] = {
      pack_saturated(x, y, f8e4m3{}), pack(x, y, f8e4m3{}),
      pack_saturated(x, y, f8e5m2{}), pack(x, y, f8e5m2{})};
  const uint8_t code = uint8_t(i);
  REFOLD_UNROLL
  for (int k = 0; k < 4; ++k) {
    store_element(out + 2 * k * count + i, float(pairs[k] & 0xff));
    store_element(out + (2 * k + 1) * count + i, float(pairs[k] >> 8));
  }
  store_element(out + 8 * count + i, to_float(f8e4m3{code}));
  store_element(out + 9 * count + i, to_float(f8e5m2{code}));
}

/// Values of lanes that differ in one bit, in three types, and of any lane;
/// then of the thread opposite in the block, through shared memory.
REFOLD_KERNEL(128)
conform_exchange(const int32_t *in, int32_t *out, int64_t count) {
  begin_launch(); // behind whatever filled `in`
  const int64_t i = block() * 128 + thread();
  const int32_t value = load_element(in + i);
  int32_t total = 0;
  REFOLD_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) {
    total = total * 3 + shuffle_xor(value, mask);
    total ^= int32_t(shuffle_xor(int64_t(value) << 20, mask) >> 20);
    total += int32_t(shuffle_xor(float(value), mask)) +
             shuffle_xor(value % 2 != 0, mask);
  }
  total += int32_t(shuffle_from(float(value % 1024), thread() * 7 % 32));
  store_element(out + i, total);
  REFOLD_SHARED(int32_t, opposite, 128);
  opposite.store(thread(), value);
  block_barrier();
  // The launch has two blocks.
  store_element(out + count + i,
                opposite.load(127 - thread()) + int32_t(blocks() - 2));
}

template <typename T, int kWidth>
REFOLD_DEVICE void copy_vectors(const int8_t *in, int8_t *out, int64_t bytes) {
  const T *from = reinterpret_cast<const T *>(in);
  T *to = reinterpret_cast<T *>(out);
  const int64_t i = block() * 128 + thread();
  if ((i + 1) * kWidth * int64_t(sizeof(T)) > bytes)
    return;
  const Vector<T, kWidth> v = load_vector<kWidth, Stream>(from + i * kWidth);
  T values[kWidth];
  REFOLD_UNROLL
  for (int e = 0; e < kWidth; ++e)
    values[e] = v.get(e);
  store_values<kWidth>(to + i * kWidth, values);
}

/// All bytes, by vectors of every width and element.
#define CONFORM_COPY(name, type, width)                                        \
  REFOLD_KERNEL(128)                                                           \
  conform_copy_##name(const int8_t *in, int8_t *out, int64_t bytes) {          \
    copy_vectors<type, width>(in, out, bytes);                                 \
  }
CONFORM_COPY(i8x1, int8_t, 1)
CONFORM_COPY(i8x8, int8_t, 8)
CONFORM_COPY(f8x8, f8e4m3, 8)
CONFORM_COPY(f8x16, f8e5m2, 16)
CONFORM_COPY(bf16x1, bf16, 1)
CONFORM_COPY(f16x8, f16, 8)
CONFORM_COPY(f32x4, float, 4)
CONFORM_COPY(f32x8, float, 8)
CONFORM_COPY(i64x1, int64_t, 1)
CONFORM_COPY(i64x8, int64_t, 8)

/// out[0..127] = left * right, 16 x 16 by 16 x 8, of bf16 in 256 + 128 elements
/// of `in`; [128..255] the same with `right` given by columns; [256..383] lanes
/// that see another lane's word; the rest is what copies left 0.
REFOLD_KERNEL(32)
conform_matrices(const int16_t *in, float *out, int64_t count) {
  if (block() > 0)
    return;
  REFOLD_SHARED_BYTES(tiles, 1536);
  const int lane = thread_again();
  // Rows of `left`, then `right` by rows, then by columns; 16 bytes each.
  copy_async(tiles + lane * 16, in + lane * 8, 16);
  commit_copies();
  if (lane < 16)
    copy_async(tiles + 512 + lane * 16, in + 256 + lane * 8, 16);
  else // half of what is there, for the rest 0
    copy_async(tiles + 1024 + (lane - 16) * 16, in + (lane - 16) * 8, 8);
  commit_copies();
  wait_copies<1>();
  warp_barrier(); // a warp's copies are seen by its lanes
  uint32_t left[4], right[4], columns[4];
  load_matrices(left, tiles + (lane % 16 * 2 + lane / 16) * 16);
  wait_copies<0>();
  warp_barrier();
  load_transposed(right, tiles + 512 + lane % 16 * 16);
  uint32_t moved[4];
  load_shared(moved, tiles + 512 + lane % 16 * 16);
  // `right` by columns: lane c writes what it holds of column c.
  if (lane < 8) {
    uint32_t low[4] = {}, high[4] = {};
    for (int k = 0; k < 16; ++k) {
      const uint32_t bits = uint16_t(load_element(in + 256 + k * 8 + lane));
      (k < 8 ? low : high)[k % 8 / 2] |= bits << (k % 2 * 16);
    }
    store_shared(tiles + 1280 + lane * 32, low);
    store_shared(tiles + 1280 + lane * 32 + 16, high);
  }
  block_barrier();
  load_matrices(columns, tiles + 1280 + lane % 8 * 32 + lane / 8 % 2 * 16);
  float sums[4] = {}, again[4] = {};
  multiply_matrices(sums, left, right[0], right[1], bf16{});
  multiply_matrices(again, left, columns[0], columns[1], bf16{});
  REFOLD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int at = fragment_row(i / 2) * 8 + fragment_column(i % 2);
    store_element(out + at, sums[i]);
    store_element(out + 128 + at, again[i]);
    store_element(out + 256 + lane * 4 + i, float(moved[i] & 0xffff));
  }
  uint32_t half[4];
  load_shared(half, tiles + 1024 + lane % 16 * 16);
  const bool sees = any_lane(lane == 7 && count == 512);
  REFOLD_UNROLL
  for (int i = 0; i < 4; ++i)
    store_element(out + 384 + lane * 4 + i,
                  sees ? float(half[i] & 0xffff) : -1.0f);
}

/// out = the transpose of 32 rows of 4 words; words from `count` on are 0.
REFOLD_KERNEL(32)
conform_words(const float *in, float *out, int64_t count) {
  REFOLD_SHARED_WORDS(words, 512);
  const int lane = thread();
  REFOLD_UNROLL
  for (int i = 0; i < 4; ++i)
    copy_word_async(words + uint32_t(i * 32 + lane) * 4, in + lane * 4 + i,
                    lane * 4 + i < count);
  commit_copies();
  wait_copies<0>();
  block_barrier();
  uint32_t four[4];
  load_shared(four, words + uint32_t(lane) * 16);
  REFOLD_UNROLL
  for (int i = 0; i < 4; ++i)
    store_element(out + lane * 4 + i, float_of(four[i]));
}

/// One warp, f32: 16 rows of kDepth elements against kColumns rows of as many,
/// of which `count` are there; then, of these products, sums with kWidth
/// columns of each. `in` has the three matrices behind each other, `out` the
/// products and the sums as lanes say that they have them.
template <int kColumns, int kDepth, int kWidth>
REFOLD_DEVICE void multiply_words(const float *in, float *out, int64_t count) {
  using Left = WordTile<16, kDepth>;
  using Right = WordTile<kColumns, kDepth>;
  using Values = WordTile<kColumns, kWidth>;
  using Factors = WordFactors<2, kColumns>;
  REFOLD_SHARED_BYTES(factors, Factors::kBytes + Left::kBytes + Right::kBytes +
                                   Values::kBytes);
  const uint32_t left = factors + Factors::kBytes;
  const uint32_t right = left + Left::kBytes, values = right + Right::kBytes;
  copy_tile<Left, 32, 4>(left, in, kDepth, 16, kDepth);
  copy_tile<Right, 32, 4>(right, in + 16 * kDepth, kDepth, count, kDepth);
  copy_tile<Values, 32, 4>(values, in + (16 + kColumns) * kDepth, kWidth, count,
                           kWidth);
  commit_copies();
  wait_copies<0>();
  block_barrier();
  float products[2][kColumns / 4] = {}, sums[2][kWidth / 4] = {};
  multiply_word_rows<Left, Right>(products, left, right);
  REFOLD_UNROLL
  for (int i = 0; i < 2; ++i)
    REFOLD_UNROLL
  for (int c = 0; c < kColumns / 16; ++c) {
    const float four[4] = {products[i][4 * c], products[i][4 * c + 1],
                           products[i][4 * c + 2], products[i][4 * c + 3]};
    Factors::put(factors, i, c, four);
    REFOLD_UNROLL
    for (int e = 0; e < 4; ++e)
      store_element(out + word_row(i) * kColumns + c * 16 + e / 2 * 8 +
                        word_column(e % 2),
                    four[e]);
  }
  warp_barrier();
  multiply_word_columns<Factors, Values>(sums, factors, values);
  REFOLD_UNROLL
  for (int i = 0; i < 2; ++i)
    REFOLD_UNROLL
  for (int c = 0; c < kWidth / 4; ++c)
    store_element(out + 16 * kColumns + word_row(i) * kWidth + c / 4 * 16 +
                      word_quad() + c % 4,
                  sums[i][c]);
}

#define CONFORM_WORD_TILES(columns, depth, width)                              \
  REFOLD_KERNEL(32)                                                            \
  conform_word_tiles_##columns##x##depth##x##width(                            \
      const float *in, float *out, int64_t count) {                            \
    multiply_words<columns, depth, width>(in, out, count);                     \
  }
CONFORM_WORD_TILES(16, 80, 48)
CONFORM_WORD_TILES(32, 64, 128)
CONFORM_WORD_TILES(64, 128, 80)

/// Rows of `in`, `stride` elements apart, of which kLast and as many columns
/// less 3 are there: `out` has 64 rows of kColumns as lanes have taken them,
/// with zeros for what is not there.
template <typename T, int kColumns, int kLast>
REFOLD_DEVICE void take_rows(const int8_t *in, int8_t *out, int64_t stride) {
  using All = Elements<T, 64, kColumns>;
  REFOLD_SHARED_BYTES(tile, All::kBytes);
  const T *from = reinterpret_cast<const T *>(in);
  copy_elements<All, 128>(tile, from, stride, kLast, kColumns - 3);
  commit_copies();
  wait_copies<0>();
  block_barrier();
  const int first = thread() / 64 * 32, which = thread();
  if (which / 32 % 2 != 0)
    return;
  REFOLD_UNROLL
  for (int c = 0; c < kColumns / 16; ++c) {
    T four[4][4];
    take_elements<All, 2>(four, tile, first, c);
    REFOLD_UNROLL
    for (int i = 0; i < 16; ++i) {
      const int row = first + i / 8 * 16 + fragment_row(i / 4 % 2, which);
      const int column = c * 16 + i % 4 / 2 * 8 + fragment_column(i % 2, which);
      store_element(reinterpret_cast<T *>(out) + row * kColumns + column,
                    four[i / 4][i % 4]);
    }
  }
}

#define CONFORM_ELEMENTS(name, type, columns, last)                            \
  REFOLD_KERNEL(128)                                                           \
  conform_elements_##name(const int8_t *in, int8_t *out, int64_t stride) {     \
    take_rows<type, columns, last>(in, out, stride);                           \
  }
CONFORM_ELEMENTS(i8x64, int8_t, 64, 61)
CONFORM_ELEMENTS(bf16x64, bf16, 64, 64)
CONFORM_ELEMENTS(f16x128, f16, 128, 37)
CONFORM_ELEMENTS(bf16x80, bf16, 80, 60)
CONFORM_ELEMENTS(f32x64, float, 64, 63)
CONFORM_ELEMENTS(i64x32, int64_t, 32, 59)

/// Tickets, all 0 between launches, and what blocks leave for each other.
uint32_t conform_tickets[24];
alignas(16) int32_t conform_left[8 * 8 * 128];

/// 8 blocks of 128 threads: `out` has 8 slices of 128 numbers, the sums of
/// (p + 1) * (x + s) over the blocks p, where x is their number of `in`, 128
/// each; then, of every block, whether a ticket that nobody moves has come; and
/// the bits that blocks before it had added to another one.
REFOLD_KERNEL(128)
conform_slices(const int32_t *in, int32_t *out, int64_t) {
  constexpr int kBlocks = 8, kSlices = 8;
  const int part = int(block()), i = thread();
  // A thread has four numbers of a slice, or of two where there are more.
  for (int slice = i / 32; slice < kSlices; slice += 4) {
    uint32_t words[4];
    REFOLD_UNROLL
    for (int e = 0; e < 4; ++e)
      words[e] =
          uint32_t((part + 1) *
                   (load_element(in + part * 128 + i % 32 * 4 + e) + slice));
    leave_words<16>(conform_left + (part * kSlices + slice) * 128 + i % 32 * 4,
                    words);
  }
  const uint32_t claimed =
      claim_slices(conform_tickets, part, kBlocks, kSlices);
  for (int slice = 0; slice < kSlices; ++slice) {
    if ((claimed >> slice & 1) == 0 || i >= 32)
      continue;
    int32_t sums[4] = {};
    // Of one that is not there, zeros.
    for (int p = 0; p <= kBlocks; ++p) {
      uint32_t words[4] = {1, 1, 1, 1};
      take_words_if(words, conform_left + (p * kSlices + slice) * 128 + i * 4,
                    p < kBlocks);
      REFOLD_UNROLL
      for (int e = 0; e < 4; ++e)
        sums[e] += int32_t(words[e]);
    }
    REFOLD_UNROLL
    for (int e = 0; e < 4; ++e)
      store_element(out + slice * 128 + i * 4 + e, sums[e]);
  }
  if (i == 0) {
    const uint32_t before = add_to_ticket(conform_tickets + 16, 1u << part);
    const bool is_last = (before | 1u << part) == 0xff;
    store_element(out + 1024 + part,
                  int32_t(wait_for_bits(conform_tickets + 17, ~0u, 1)));
    if (is_last)
      add_to_ticket(conform_tickets + 16, 0u - 0xff);
    store_element(out + 1032 + part, int32_t(before));
  }
}

/// Two rows of four blocks of 128 threads: of each part 128 sums of what all
/// parts of the row have of `in`, 128 each, and the part's number; then of each
/// row which block writes, and of each part who had it.
REFOLD_KERNEL(128)
conform_row_tickets(const int32_t *in, int32_t *out, int64_t) {
  constexpr int kRows = 2, kOfRow = 4;
  const int row = int(block()) / kOfRow, own = int(block()) % kOfRow;
  RowTickets<true> tickets(conform_tickets, row, kRows, own, kOfRow);
  const auto at = [&](int64_t part) {
    return (row * kOfRow + int(part)) * 128 + thread();
  };
  leave(conform_left + at(own), load_element(in + at(own)));
  block_barrier();
  if (!tickets.meet())
    return tickets.end();
  int32_t sum = 0;
  for (int part = 0; part < kOfRow; ++part)
    sum += take_left(conform_left + at(part));
  for (int64_t part = tickets.next(); part < kOfRow; part = tickets.next()) {
    store_element(out + at(part), sum + int32_t(part));
    if (thread() == 0)
      store_element(out + 1026 + row * kOfRow + part, own);
  }
  if (thread() == 0 && tickets.writes())
    store_element(out + 1024 + row, own);
  tickets.end();
}

/// Shares blocks among `count` groups, whose tiles are `in`, and behind them
/// how many streams there are: of every block how many parts its group has,
/// which one it is, and the block's part.
REFOLD_KERNEL(128)
conform_shares(const int32_t *in, int32_t *out, int64_t count) {
  constexpr int kGroups = 256;
  REFOLD_SHARED_BYTES(scratch, (kGroups + 2 * 128) * 16);
  REFOLD_SHARED(int32_t, share, 3);
  share_blocks<ShareCosts<3, 1, 1024, 4, 132>, kGroups, 128>(
      share, scratch, count, load_element(in + count),
      [&](int64_t group) { return load_element(in + group); });
  block_barrier();
  if (thread() < 3)
    store_element(out + block() * 3 + thread(),
                  thread() == 0 || share.load(0) > 0 ? share.load(thread())
                                                     : 0);
}
