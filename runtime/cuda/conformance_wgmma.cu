// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The same as conformance.cu for refold_cuda_wgmma.h, refold_cuda_wide.h and
// refold_cuda_clusters.h: every primitive of kernels with roles or clusters,
// for sm_90a.
#include "refold_cuda.h"
#include "refold_cuda_clusters.h"
#include "refold_cuda_wide.h"

using namespace refold;

namespace {

/// `in`: left 64 x kDepth, right kRows x kDepth, values kRows x kWidth. `out`:
/// left * right^T, then what it says of signs (1 or -0.5) times values. Rows
/// and columns beyond `rows` and `depth` count as 0.
template <typename T, int kRows, int kDepth, int kWidth>
REFOLD_DEVICE void multiply_both(const T *in, float *out, int64_t rows,
                                 int64_t depth) {
  using Left = Panels<64, kDepth>;
  using Right = Panels<kRows, kDepth>;
  using Values = Panels<kRows, kWidth>;
  REFOLD_SHARED_BYTES(left, Left::kBytes + Right::kBytes + Values::kBytes + 32);
  const uint32_t right = left + Left::kBytes, values = right + Right::kBytes,
                 came = values + Values::kBytes;
  if (thread() == 0) {
    make_gate(came, 128);
    make_gate(came + 8, 128);
  }
  block_barrier();
  if (thread_again() < 128) {
    copy_panels<Left>(left, in, kDepth, 64, depth);
    copy_panels<Right>(right, in + 64 * kDepth, kDepth, rows, depth);
    arrive_with_copies(came);
    copy_panels<Values>(values, in + (64 + kRows) * kDepth, kWidth, rows,
                        kWidth);
    arrive_with_copies(came + 8);
    wait_copies<0>();
    return;
  }
  const int which = thread_again() - 128;
  float products[kRows / 8][4], sums[kWidth / 8][4] = {};
  uint32_t factors[kRows / 16][1][4];
  wait_gate(came, 0);
  show_matrices();
  begin_products();
  multiply_panels<T, Left, Right>(products, left, right);
  commit_products();
  wait_products<0>();
  settle(products);
  REFOLD_UNROLL
  for (int c = 0; c < kRows / 8; ++c)
    REFOLD_UNROLL
  for (int half = 0; half < 2; ++half) {
    const int row = which / 32 * 16 + fragment_row(half, which);
    float signs[2];
    REFOLD_UNROLL
    for (int e = 0; e < 2; ++e) {
      const float product = products[c][half * 2 + e];
      const int column = c * 8 + fragment_column(e, which);
      store_element(out + row * kRows + column, product);
      signs[e] = product > 0.0f ? 1.0f : -0.5f;
    }
    factors[c / 2][0][c % 2 * 2 + half] = pack(signs[0], signs[1], T{});
  }
  wait_gate(came + 8, 0);
  show_matrices();
  begin_products();
  multiply_factors<T, Values>(sums, factors, values);
  commit_products();
  wait_products<0>();
  settle(sums);
  REFOLD_UNROLL
  for (int c = 0; c < kWidth / 8; ++c)
    REFOLD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int row = which / 32 * 16 + fragment_row(i / 2, which);
    const int column = c * 8 + fragment_column(i % 2, which);
    store_element(out + 64 * kRows + row * kWidth + column, sums[c][i]);
  }
}

} // namespace

/// 256 threads, 64 kRows + 64 kWidth results; `count` elements are there.
#define CONFORM_PRODUCTS(name, type, rows, depth, width, fewer, shorter)       \
  REFOLD_KERNEL(256)                                                           \
  conform_products_##name(const int16_t *in, float *out, int64_t) {            \
    multiply_both<type, rows, depth, width>(                                   \
        reinterpret_cast<const type *>(in), out, fewer, shorter);              \
  }
CONFORM_PRODUCTS(bf16x128, bf16, 128, 128, 128, 128, 128)
CONFORM_PRODUCTS(bf16x112, bf16, 112, 80, 80, 109, 72)
CONFORM_PRODUCTS(f16x64, f16, 64, 64, 192, 64, 64)
CONFORM_PRODUCTS(f16x32, f16, 32, 112, 256, 17, 104)

namespace {

/// The same for wide results: the left side's first kKept steps in registers,
/// signs handed over in shared memory.
template <typename T, int kDepth, int kWidth, int kKept>
REFOLD_DEVICE void multiply_wide(const T *in, float *out, int rows, int depth) {
  using Panel = Panels<64, 64>;
  constexpr int kSteps = kDepth / 16, kLefts = (kDepth + 63) / 64;
  using Left = Steps<64, kSteps - kKept>;
  using Right = Panels<64, kLefts * 64>;
  using Values = Panels<64, kWidth>;
  constexpr int kKeptBytes = (kKept + 3) / 4 * Panel::kBytes;
  REFOLD_SHARED_BYTES(right, Right::kBytes + Values::kBytes + Panel::kBytes +
                                 kKeptBytes + Left::kBytes);
  const uint32_t values = right + Right::kBytes;
  const uint32_t signs = values + Values::kBytes;
  const uint32_t first = signs + Panel::kBytes, left = first + kKeptBytes;
  REFOLD_GATES(came, 2);
  if (thread() == 0) {
    make_gate(came, 128);
    make_gate(came + 8, 128);
  }
  block_barrier();
  if (thread_again() < 128) {
    gather_rows<128, 64, kSteps * 2>(
        thread_again(),
        [&](int row, int chunk) {
          if (chunk < kKept * 2)
            return first + chunk / 8 * Panel::kBytes +
                   Panel::place(row, chunk % 8);
          return left + Left::place(row, chunk - kKept * 2);
        },
        [&](int row) { return in + row * kDepth; }, 64, depth);
    copy_panels<Right>(right, in + 64 * kDepth, kDepth, rows, depth);
    arrive_with_copies(came);
    copy_panels<Values>(values, in + 128 * kDepth, kWidth, rows, kWidth);
    arrive_with_copies(came + 8);
    wait_copies<0>();
    return;
  }
  const int which = thread_again() - 128;
  float products[8][4], sums[kWidth / 8][4] = {};
  uint32_t kept[kKept][4];
  wait_gate(came, 0);
  keep_steps<Panel>(kept, first);
  show_matrices();
  begin_products();
  multiply_steps<T, Left, Panel, 0, 0, kSteps>(products, kept, left, right);
  commit_products();
  wait_products<0>();
  settle(products);
  REFOLD_UNROLL
  for (int c = 0; c < 8; c += 2) {
    uint32_t words[4];
    REFOLD_UNROLL
    for (int word = 0; word < 4; ++word) {
      const int row = which / 32 * 16 + fragment_row(word % 2, which);
      float two[2];
      REFOLD_UNROLL
      for (int e = 0; e < 2; ++e) {
        const float product = products[c + word / 2][word % 2 * 2 + e];
        const int column = (c + word / 2) * 8 + fragment_column(e, which);
        store_element(out + row * 64 + column, product);
        two[e] = product > 0.0f ? 1.0f : -0.5f;
      }
      words[word] = pack(two[0], two[1], T{});
    }
    store_factors<Panel>(words, signs, c / 2);
  }
  wait_gate(came + 8, 0);
  show_matrices();
  await_turn(1, 128);
  begin_products();
  multiply_values<T, Panel>(sums, signs, values);
  commit_products();
  warp_barrier();
  wait_products<0>();
  settle(sums);
  await_turn(1, 128); // factors are no longer read: a number is left there
  put_number(signs + which * 16, sums[0][0]);
  sums[0][0] = take_number(signs + which * 16);
  REFOLD_UNROLL
  for (int c = 0; c < kWidth / 8; ++c)
    REFOLD_UNROLL
  for (int i = 0; i < 4; ++i) {
    const int row = which / 32 * 16 + fragment_row(i / 2, which);
    const int column = c * 8 + fragment_column(i % 2, which);
    store_element(out + 64 * 64 + row * kWidth + column, sums[c][i]);
  }
}

} // namespace

/// The same as above.
#define CONFORM_WIDE(name, type, depth, width, kept, fewer, shorter)           \
  REFOLD_KERNEL(256)                                                           \
  conform_products_##name(const int16_t *in, float *out, int64_t) {            \
    multiply_wide<type, depth, width, kept>(                                   \
        reinterpret_cast<const type *>(in), out, fewer, shorter);              \
  }
CONFORM_WIDE(bf16wide, bf16, 112, 256, 5, 50, 104)
CONFORM_WIDE(f16wide, f16, 128, 192, 7, 64, 128)

namespace {

/// `in`: left 64 x 64, right kColumns x 64 bytes. `out`: left * right^T.
template <typename L, typename R, int kColumns, typename Multiply>
REFOLD_DEVICE void multiply_f8(const int8_t *in, float *out,
                               Multiply multiply) {
  using Left = Panels<64, 32>; // of pairs
  using Right = Panels<kColumns, 32>;
  REFOLD_SHARED_BYTES(left, Left::kBytes + Right::kBytes + 16);
  const uint32_t right = left + Left::kBytes, came = right + Right::kBytes;
  const int16_t *const pairs = reinterpret_cast<const int16_t *>(in);
  if (thread() == 0)
    make_gate(came, 128);
  block_barrier();
  copy_panels<Left>(left, pairs, 32, 64, 32);
  copy_panels<Right>(right, pairs + 64 * 32, 32, kColumns, 32);
  arrive_with_copies(came);
  wait_gate(came, 0);
  show_matrices();
  float sums[kColumns / 8][4] = {};
  begin_products();
  REFOLD_UNROLL
  for (int k = 0; k < 2; ++k)
    multiply(sums, describe(left + k * 32, 16), describe(right + k * 32, 16),
             k);
  commit_products();
  wait_products<0>();
  settle(sums);
  wait_copies<0>();
  REFOLD_UNROLL
  for (int i = 0; i < kColumns / 2; ++i) {
    const int row = thread() / 32 * 16 + fragment_row(i / 2 % 2);
    const int column = i / 4 * 8 + fragment_column(i % 2);
    store_element(out + row * kColumns + column, sums[i / 4][i % 4]);
  }
}

} // namespace

/// 128 threads.
#define CONFORM_F8(name, left_type, right_type, columns)                       \
  REFOLD_KERNEL(128)                                                           \
  conform_products_##name(const int8_t *in, float *out, int64_t) {             \
    multiply_f8<left_type, right_type, columns>(                               \
        in, out, [](auto &sums, uint64_t left, uint64_t right, int adds) {     \
          multiply_bytes_##columns<0>(sums, left, right, adds, left_type{},    \
                                      right_type{});                           \
        });                                                                    \
  }
CONFORM_F8(e4m3_e4m3x64, f8e4m3, f8e4m3, 64)
CONFORM_F8(e4m3_e4m3x256, f8e4m3, f8e4m3, 256)
CONFORM_F8(e4m3_e5m2x128, f8e4m3, f8e5m2, 128)
CONFORM_F8(e5m2_e4m3x128, f8e5m2, f8e4m3, 128)
CONFORM_F8(e5m2_e5m2x64, f8e5m2, f8e5m2, 64)

namespace {

/// `in`: left 64 x 64, right kColumns x 64, or 64 x kColumns where its rows lie
/// along the sum. `out`: their product.
template <typename T, int kColumns, bool kIsAlong, typename Multiply>
REFOLD_DEVICE void multiply_sides(const T *in, float *out, Multiply multiply) {
  using Left = Panels<64, 64>;
  using Across = Panels<kColumns, 64>;
  using Along = Panels<64, kColumns>;
  REFOLD_SHARED_BYTES(left, Left::kBytes + Across::kBytes + 16);
  const uint32_t right = left + Left::kBytes, came = right + Across::kBytes;
  if (thread() == 0)
    make_gate(came, 128);
  block_barrier();
  copy_panels<Left>(left, in, 64, 64, 64);
  if constexpr (kIsAlong)
    copy_panels<Along>(right, in + 64 * 64, kColumns, 64, kColumns);
  else
    copy_panels<Across>(right, in + 64 * 64, 64, kColumns, 64);
  arrive_with_copies(came);
  wait_gate(came, 0);
  show_matrices();
  float sums[kColumns / 8][4] = {};
  begin_products();
  REFOLD_UNROLL
  for (int k = 0; k < 4; ++k)
    multiply(sums, describe(left + k * 32, 16),
             kIsAlong ? describe(right + k * 16 * Along::kRowBytes,
                                 Along::kPanelBytes)
                      : describe(right + k * 32, 16),
             k);
  commit_products();
  wait_products<0>();
  settle(sums);
  wait_copies<0>();
  REFOLD_UNROLL
  for (int i = 0; i < kColumns / 2; ++i) {
    const int row = thread() / 32 * 16 + fragment_row(i / 2 % 2);
    const int column = i / 4 * 8 + fragment_column(i % 2);
    store_element(out + row * kColumns + column, sums[i / 4][i % 4]);
  }
}

} // namespace

/// 128 threads.
#define CONFORM_SIDES(name, type, columns, form, is_along)                     \
  REFOLD_KERNEL(128)                                                           \
  conform_##form##_##name(const int16_t *in, float *out, int64_t) {            \
    multiply_sides<type, columns, is_along>(                                   \
        reinterpret_cast<const type *>(in), out,                               \
        [](auto &sums, uint64_t left, uint64_t right, int adds) {              \
          multiply_##form##_##columns<0>(sums, left, right, adds, type{});     \
        });                                                                    \
  }
CONFORM_SIDES(f16x64, f16, 64, along, true)
CONFORM_SIDES(bf16x128, bf16, 128, along, true)
CONFORM_SIDES(f16x256, f16, 256, along, true)
CONFORM_SIDES(bf16x256, bf16, 256, shared, false)

/// A map for each of two blocks, or four of one.
alignas(128) unsigned char conform_maps[512];

/// 128 threads, two blocks: `in` has 24 rows of 160 bytes, of which 9 by 144
/// are a matrix; `out` the box of 16 rows at row 4 of it, and column 128 or, of
/// the second block, 0.
REFOLD_KERNEL(128)
conform_boxes(const int8_t *in, int8_t *out, int64_t) {
  using Box = Panels<16, 64>; // of pairs
  REFOLD_SHARED_BYTES(box, Box::kBytes + 256);
  const uint32_t scratch = box + Box::kBytes, came = scratch + 128;
  unsigned char *const map = conform_maps + block() * 128;
  if (thread() == 0)
    make_gate(came, 1);
  block_barrier();
  if (of_warp(thread() / 32) == 0) {
    make_map(map, scratch, in, 9, 144, 160, 16);
    if (thread() == 0) {
      arrive_expecting(came, Box::kBytes);
      copy_box(box, map, came, block() == 0 ? 128 : 0, 4);
    }
  }
  wait_gate(came, 0);
  block_barrier();
  uint32_t words[4];
  load_shared(words, box + Box::place(thread() / 8, thread() % 8));
  REFOLD_UNROLL
  for (int i = 0; i < 16; ++i)
    store_element(out + block() * 2048 + thread() * 16 + i,
                  int8_t(words[i / 4] >> (i % 4 * 8)));
}

/// 128 threads: `in` are arrays of matrices of 25 rows of 144 bytes: 3, 2 x 3,
/// 2 x 2 x 3 of them. `out` are two boxes of 16 rows of 256 bytes of every one,
/// then of the first two arrays again as if all their matrices and, the last
/// time, all rows were in one place. A map of no rows is made and not used.
REFOLD_KERNEL(128)
conform_array_boxes(const int8_t *in, int8_t *out, int64_t) {
  using Rows = Panels<16, 128>;
  REFOLD_SHARED_BYTES(boxes, 4 * (Rows::kBytes + 1024));
  const int warp = of_warp(thread() / 32), lane = thread() % 32;
  const uint32_t box = boxes + warp * Rows::kBytes,
                 scratch = boxes + 4 * Rows::kBytes + warp * 256,
                 came = scratch + 128;
  unsigned char *const map = conform_maps + warp * 128;
  constexpr int64_t kMatrix = 25 * 144;
  if (thread() == 0)
    for (int i = 0; i < 4; ++i)
      make_gate(came + i * 256, 1);
  block_barrier();
  if (warp == 0)
    make_array_map<2>(map, scratch, in, {25, 3}, {144, kMatrix}, 144, 16);
  else if (warp == 1)
    make_array_map<3>(map, scratch, in + 3 * kMatrix, {25, 3, 2},
                      {144, kMatrix, 3 * kMatrix}, 144, 16);
  else if (warp == 2)
    make_array_map<4>(map, scratch, in + 9 * kMatrix, {25, 3, 2, 2},
                      {144, kMatrix, 3 * kMatrix, 6 * kMatrix}, 144, 16);
  else
    make_array_map<3>(map, scratch, in, {0, 3, 2}, {144, 0, kMatrix}, 144, 16);
  const int count = warp == 0 ? 6 : warp == 1 ? 12 : warp == 2 ? 24 : 18;
  int8_t *to = out + (warp == 0   ? 0
                      : warp == 1 ? 6
                      : warp == 2 ? 18
                                  : 42) *
                         Rows::kBytes;
  for (int at = 0; at < 24; ++at) {
    const int row = at % 2 * 16, matrix = at / 2;
    if (warp == 3 && at == 0)
      make_array_map<3>(map, scratch, in, {25, 3, 2}, {144, 0, kMatrix}, 144,
                        16);
    if (warp == 3 && at == 12)
      make_array_map<2>(map, scratch, in + kMatrix, {25, 3}, {0, kMatrix}, 144,
                        16);
    if (lane == 0 && at < count) {
      if (warp == 0 || (warp == 3 && at >= 12))
        copy_by_boxes<Rows>(box, map, came, row, matrix % 3);
      else if (warp == 2)
        copy_by_boxes<Rows>(box, map, came, row, matrix % 3, matrix / 3 % 2,
                            matrix / 6);
      else
        copy_by_boxes<Rows>(box, map, came, row, matrix % 3, matrix / 3);
    }
    if (at < count)
      wait_gate(came, at % 2);
    block_barrier();
    for (int i = 0; i < 8 && at < count; ++i) {
      uint32_t words[4];
      const int chunk = i * 32 + lane;
      load_shared(words, box + Rows::place(chunk / 16, chunk % 16));
      REFOLD_UNROLL
      for (int byte = 0; byte < 16; ++byte)
        store_element(to + at * Rows::kBytes + chunk * 16 + byte,
                      int8_t(words[byte / 4] >> (byte % 4 * 8)));
    }
    block_barrier();
  }
}

/// 128 threads: as conform_array_boxes, but that the launch comes with maps: of
/// the three arrays, of the first one as if all its matrices were in one place,
/// and of `out`, to which boxes go from where they have come.
REFOLD_KERNEL(128)
conform_told(const int8_t *, int8_t *, int64_t, REFOLD_MAPS(maps, 5)) {
  using Rows = Panels<16, 128>;
  REFOLD_SHARED_BYTES(boxes, 4 * Rows::kBytes + 32);
  const int warp = of_warp(thread() / 32);
  const uint32_t box = boxes + warp * Rows::kBytes,
                 came = boxes + 4 * Rows::kBytes + warp * 8;
  if (thread() == 0) {
    for (int i = 0; i < 4; ++i)
      make_gate(came + i * 8, 1);
    show_matrices(); // the gates
  }
  block_barrier();
  if (thread() % 32 != 0)
    return;
  const int count = warp == 1 ? 12 : warp == 2 ? 24 : 6;
  const int first = warp == 0 ? 0 : warp == 1 ? 6 : warp == 2 ? 18 : 42;
  const ArrayMap *const map = maps.of + warp;
  for (int at = 0; at < count; ++at) {
    const int row = at % 2 * 16, matrix = at / 2;
    if (warp == 1)
      copy_by_boxes<Rows>(box, map, came, row, matrix % 3, matrix / 3);
    else if (warp == 2)
      copy_by_boxes<Rows>(box, map, came, row, matrix % 3, matrix / 3 % 2,
                          matrix / 6);
    else
      copy_by_boxes<Rows>(box, map, came, row, matrix);
    wait_gate(came, at % 2);
    show_matrices();
    for (int panel = 0; panel < 2; ++panel)
      store_box(maps.of + 4, box + panel * Rows::kPanelBytes, panel * 128, 0,
                first + at);
    commit_boxes();
    wait_boxes<0>();
  }
}

/// 128 threads: `in` are 64 rows of 256 bytes, `out` 58 of 144, which each warp
/// writes 16 of by two boxes, one after the other from one place.
REFOLD_KERNEL(128)
conform_stores(const int8_t *in, int8_t *out, int64_t) {
  using Box = Panels<16, 64>; // of pairs
  REFOLD_SHARED_BYTES(boxes, 4 * Box::kBytes);
  const int warp = of_warp(thread() / 32), lane = thread() % 32;
  const uint32_t box = boxes + warp * Box::kBytes;
  if (warp == 0)
    make_map(conform_maps, box, out, 58, 144, 144, 16);
  block_barrier();
  if (lane == 0)
    see_map(conform_maps);
  for (int column = 0; column < 256; column += 128) {
    if (lane == 0)
      wait_boxes<0>();
    warp_barrier();
    REFOLD_UNROLL
    for (int i = 0; i < 4; ++i) {
      const int row = i * 4 + lane / 8, chunk = lane % 8;
      uint32_t words[4];
      load_words<16, Stream>(words, in + (warp * 16 + row) * 256 + column +
                                        chunk * 16);
      store_shared(box + Box::place(row, chunk), words);
    }
    show_matrices();
    warp_barrier();
    if (lane == 0) {
      store_box(conform_maps, box, column, warp * 16);
      commit_boxes();
    }
  }
  if (lane == 0)
    wait_boxes<0>();
}

/// 128 threads: `in` are 64 rows of 256 bytes, 16 of each warp. `out` are three
/// arrays of matrices of 25 rows of 144 bytes: 3, 2 x 3, 2 x 2 x 3 of them.
/// Warps write 16 rows after the other, each with another number in its bytes.
REFOLD_KERNEL(128)
conform_array_stores(const int8_t *in, int8_t *out, int64_t) {
  using Rows = Panels<16, 128>;
  REFOLD_SHARED_BYTES(boxes, 4 * Rows::kBytes);
  const int warp = of_warp(thread() / 32), lane = thread() % 32;
  const uint32_t own = boxes + warp * Rows::kBytes;
  constexpr int64_t kMatrix = 25 * 144;
  if (warp == 0) {
    make_array_map<2>(conform_maps, own, out, {25, 3}, {144, kMatrix}, 144, 16);
    make_array_map<3>(conform_maps + 128, own, out + 3 * kMatrix, {25, 3, 2},
                      {144, kMatrix, 3 * kMatrix}, 144, 16);
    make_array_map<4>(conform_maps + 256, own, out + 9 * kMatrix, {25, 3, 2, 2},
                      {144, kMatrix, 3 * kMatrix, 6 * kMatrix}, 144, 16);
  }
  block_barrier();
  if (lane == 0)
    for (int i = 0; i < 3; ++i)
      see_map(conform_maps + i * 128);
  uint32_t words[2][16];
  REFOLD_UNROLL
  for (int i = 0; i < 2; ++i)
    REFOLD_UNROLL
  for (int part = 0; part < 16; ++part) {
    uint32_t word[1];
    load_words<4, Stream>(word, in + (warp * 16 + i * 8 + lane / 4) * 256 +
                                    part * 16 + lane % 4 * 4);
    words[i][part] = word[0];
  }
  for (int at = warp; at < 2 * 21; at += 4) {
    uint32_t own_words[2][16];
    REFOLD_UNROLL
    for (int i = 0; i < 32; ++i)
      own_words[i / 16][i % 16] = words[i / 16][i % 16] ^ at * 0x01010101u;
    const int row = at % 2 * 16, matrix = at / 2;
    if (matrix < 3)
      store_by_boxes<Rows>(conform_maps, own, own_words, row, matrix);
    else if (matrix < 9)
      store_by_boxes<Rows>(conform_maps + 128, own, own_words, row, matrix % 3,
                           (matrix - 3) / 3);
    else
      store_by_boxes<Rows>(conform_maps + 256, own, own_words, row, matrix % 3,
                           (matrix - 9) / 3 % 2, (matrix - 9) / 6);
  }
  if (lane == 0)
    wait_boxes<0>();
}

/// 128 threads: `in` are 64 rows of 640 bytes, 16 of each warp. `out` are two
/// matrices of 61 rows of 624 bytes: the rows, and other bits of them. Warps
/// have room for two of five panels.
REFOLD_KERNEL(128)
conform_panel_stores(const int8_t *in, int8_t *out, int64_t) {
  using Rows = Panels<16, 128>;
  REFOLD_SHARED_BYTES(boxes, 4 * Rows::kBytes);
  const int warp = of_warp(thread() / 32), lane = thread() % 32;
  const uint32_t own = boxes + warp * Rows::kBytes;
  constexpr int64_t kMatrix = 61 * 624;
  make_array_map<2>(conform_maps + warp * 128, own, out, {61, 2},
                    {624, kMatrix}, 624, 16);
  uint32_t words[2][40];
  REFOLD_UNROLL
  for (int i = 0; i < 80; ++i) {
    uint32_t word[1];
    load_words<4, Stream>(word, in + (warp * 16 + i / 40 * 8 + lane / 4) * 640 +
                                    i % 40 * 16 + lane % 4 * 4);
    words[i / 40][i % 40] = word[0];
  }
  for (int matrix = 0; matrix < 2; ++matrix) {
    store_by_boxes<Rows>(conform_maps + warp * 128, own, words, warp * 16,
                         matrix);
    REFOLD_UNROLL
    for (int i = 0; i < 80; ++i)
      words[i / 40][i % 40] ^= 0x5a5a5a5au;
  }
  if (lane == 0)
    wait_boxes<0>();
}

/// Two groups of four warps in turns, over a ring of two places: `in` are
/// `count` tiles of 16 x 16; row i of the first group gets the sums of all
/// tiles' columns, of the other one those of every second tile.
REFOLD_UNIT_KERNEL(384, 1)
conform_roles(const int16_t *in, float *out, int64_t count) {
  using Values = Panels<16, 16>;
  REFOLD_SHARED_BYTES(tiles, 2 * Values::kBytes + 32);
  const uint32_t came = tiles + 2 * Values::kBytes, left = came + 16;
  const bf16 *const from = reinterpret_cast<const bf16 *>(in);
  if (thread() == 0)
    for (int place = 0; place < 2; ++place) {
      make_gate(came + 8 * place, 128);
      make_gate(left + 8 * place, 8);
    }
  block_barrier();
  if (thread_again() < 128) {
    give_registers<40>();
    for (int i = 0; i < int(count); ++i) {
      wait_gate(left + 8 * (i & 1), (i / 2 + 1) & 1);
      copy_panels<Values>(tiles + (i & 1) * Values::kBytes, from + i * 256, 16,
                          16, 16);
      arrive_with_copies(came + 8 * (i & 1));
    }
    wait_copies<0>();
    return;
  }
  take_registers<232>();
  const int which = thread_again() - 128;
  const int group = of_warp(which / 128);
  float sums[2][4] = {};
  uint32_t factors[1][1][4];
  if (group == 1)
    pass_turn(1, 256);
  for (int i = 0; i < int(count); ++i) {
    REFOLD_UNROLL
    for (int word = 0; word < 4; ++word)
      factors[0][0][word] = group == 0 || i % 2 == 0 ? 0x3f803f80u : 0;
    wait_gate(came + 8 * (i & 1), (i / 2) & 1);
    show_matrices();
    await_turn(1 + group, 256);
    begin_products();
    multiply_factors<bf16, Values>(sums, factors,
                                   tiles + (i & 1) * Values::kBytes);
    commit_products();
    if (group == 0 || i + 1 < int(count))
      pass_turn(2 - group, 256);
    wait_products<0>();
    settle(sums);
    if (which % 32 == 0)
      arrive(left + 8 * (i & 1));
  }
  REFOLD_UNROLL
  for (int i = 0; i < 8; ++i) {
    const int row = which / 32 * 16 + fragment_row(i % 4 / 2, which);
    const int column = i / 4 * 8 + fragment_column(i % 2, which);
    store_element(out + row * 16 + column, sums[i / 4][i % 4]);
  }
}

/// Four warps hand `count` matrices of 64 x 32 to four others: `out` is `in`.
REFOLD_KERNEL(256)
conform_handover(const int16_t *in, float *out, int64_t count) {
  using Rows = Tile<64, 32>;
  REFOLD_SHARED_BYTES(rows, Rows::kBytes);
  const bf16 *const from = reinterpret_cast<const bf16 *>(in);
  const int which = thread_again() % 128;
  const uint32_t own = rows + which / 32 * 16 * Rows::kRowBytes;
  for (int i = 0; i < int(count); ++i)
    REFOLD_UNROLL
  for (int k = 0; k < 2; ++k) {
    const auto place = [&](int word, int e) {
      return i * 2048 + (which / 32 * 16 + fragment_row(word % 2, which)) * 32 +
             k * 16 + word / 2 * 8 + fragment_column(e, which);
    };
    if (thread_again() < 128) {
      uint32_t words[4];
      REFOLD_UNROLL
      for (int word = 0; word < 4; ++word)
        words[word] =
            pack(to_float(load_element(from + place(word, 0))),
                 to_float(load_element(from + place(word, 1))), bf16{});
      store_rows<Rows>(words, own, k);
      pass_turn(1, 256);
      await_turn(2, 256);
    } else {
      uint32_t words[1][4];
      await_turn(1, 256);
      load_rows<Rows>(words, own, k);
      pass_turn(2, 256);
      REFOLD_UNROLL
      for (int word = 0; word < 4; ++word)
        REFOLD_UNROLL
      for (int e = 0; e < 2; ++e)
        store_element(out + place(word, e),
                      float_of(words[0][word] >> 16 * e << 16));
    }
  }
}

/// 128 threads, clusters of four blocks, `count` rounds: element t of `out` is
/// made of what each block of the cluster has of `in`, in 4, 8 and 1 bytes.
REFOLD_CLUSTER_KERNEL(128, 1, 4)
conform_clusters(const int32_t *in, int32_t *out, int64_t count) {
  REFOLD_SHARED(int32_t, words, 128);
  REFOLD_SHARED(int64_t, pairs, 128);
  REFOLD_SHARED(bool, flags, 128);
  uint32_t own[1];
  load_words<4, Stream>(own, in + block() * 128 + thread());
  int32_t sum = 0;
  for (int round = 0; round < int(count); ++round) {
    const int32_t value = int32_t(own[0]) + round;
    words.store(thread(), value);
    pairs.store(thread(), int64_t(value) * 0x200000000);
    flags.store(thread(), value % 3 == 0);
    arrive_at_cluster<4>();
    wait_for_cluster<4>();
    for (int which = 0; which < 4; ++which) {
      const int at = (thread() + 17 * which) % 128;
      sum += load_across<4>(words, which, at) * (which + 1);
      sum += int32_t(load_across<4>(pairs, which, at ^ 1) >> 33);
      sum += load_across<4>(flags, which, at ^ 2) ? 1000 + which : 0;
    }
    arrive_at_cluster<4>();
    wait_for_cluster<4>();
  }
  store_element(out + block() * 128 + thread(), sum);
}

/// The same threads and clusters: what blocks send each other in `count`
/// exchanges, in 4 and 8 bytes.
REFOLD_CLUSTER_KERNEL(128, 1, 4)
conform_mailboxes(const int32_t *in, int32_t *out, int64_t count) {
  REFOLD_SHARED(int32_t, words, 8);
  REFOLD_SHARED(int64_t, pairs, 8);
  REFOLD_MAILBOX(mailbox);
  open_mailbox<4>(mailbox);
  const int own = int(block() % 4);
  int32_t sum = 0;
  wait_for_cluster<4>();
  for (int round = 0; round < int(count); ++round) {
    const int places = round % 2 * 4;
    if (thread() < 4) {
      const int32_t value = load_element(in + block() * 128 + round);
      send_across<4>(mailbox, round, words, thread(), places + own,
                     value + thread());
      send_across<4>(mailbox, round, pairs, thread(), places + own,
                     int64_t(value) * 0x200000000);
    }
    receive_across<4>(mailbox, round, 4 * 12);
    for (int which = 0; which < 4; ++which) {
      sum += words.load(places + which) * (which + 1);
      sum += int32_t(pairs.load(places + which) >> 33) * (round + 1);
    }
    block_barrier();
  }
  store_element(out + block() * 128 + thread(), sum);
}
