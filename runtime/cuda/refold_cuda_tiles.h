// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The tile level of generated kernels, the same on device and host: matrices in
// shared memory, how they get there, and products of them with what a warp
// holds in registers.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H

namespace refold {

/// A matrix of 16-bit elements in shared memory, in chunks of 16 bytes. Eight
/// rows at one chunk lie in different banks: where rows are 8, 16 or 32 chunks,
/// chunk c of row r lies where chunk c ^ r % 8 would, so that every 128 bytes
/// that are copied fill 128 aligned ones; other rows are an odd number of
/// chunks apart.
template <int kRowsOf, int kColumnsOf> struct Tile {
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf;
  static constexpr int kInChunk = 8, kChunks = kColumns / kInChunk;
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
  /// From chunk 0 or 1 of a row an even number of chunks on.
  REFOLD_DEVICE static uint32_t right(uint32_t at, int chunks) {
    return kIsPermuted ? (at ^ ((chunks & 6) << 4)) + (chunks >> 3) * 128
                       : at + chunks * 16;
  }
  /// Beside products and sums of as many columns registers have room for
  /// little else.
  static constexpr bool kIsTight = kRows == 64 && kColumns == 128;
  /// Tiles of other sizes gain nothing, or have something else spilled.
  static constexpr bool kHasShifts = kRows == 64 && kColumns <= 128;
  /// Of 16 columns at a step as many lie alike, one in each 128 bytes, and come
  /// after each other, so that one address serves them.
  static constexpr int kAlike = kIsPermuted ? kChunks / 8 : kChunks / 2;
  /// From the first address to that of a step, by that of the step before,
  /// which is needed no longer.
  REFOLD_DEVICE static void turn(uint32_t &at, int step) {
    const int turns = step / kAlike;
    if (turns > 0 && step % kAlike == 0)
      at = uint32_t(pinned(int32_t(at ^ ((turns ^ (turns - 1)) << 5))));
  }
  /// From a row that has no bit in common with `rows`, or 8 more, down.
  REFOLD_DEVICE static uint32_t down(uint32_t at, int rows) {
    return (kIsPermuted ? at ^ ((rows & 7) << 4) : at) + rows * kRowBytes;
  }
};

/// Transports that multiply by less than 1 and no less than this may wait.
constexpr float kWaitingBits = 8.0f, kWaits = 0.00390625f; // 2^-8
/// What is rounded off a pivot up to this changes exponents by at most 2^4.
constexpr float kLargePivot = 268435456.0f; // 2^28

REFOLD_DEVICE int64_t smaller(int64_t x, int64_t y) { return x < y ? x : y; }
REFOLD_DEVICE int64_t larger(int64_t x, int64_t y) { return x > y ? x : y; }

/// The same of numbers that have 32 bits.
REFOLD_DEVICE int32_t smaller_short(int64_t x, int64_t y) {
  return int32_t(x) < int32_t(y) ? int32_t(x) : int32_t(y);
}
REFOLD_DEVICE int32_t larger_short(int64_t x, int64_t y) {
  return int32_t(x) > int32_t(y) ? int32_t(x) : int32_t(y);
}

/// The number of a block, which has 31 bits, by a count: division of 64 bits
/// takes some hundred instructions.
REFOLD_DEVICE int64_t block_quotient(int64_t block, int64_t count) {
  return uint32_t(block) / uint32_t(smaller(count, 0x7fffffff));
}
REFOLD_DEVICE int64_t block_remainder(int64_t block, int64_t count) {
  return uint32_t(block) % uint32_t(smaller(count, 0x7fffffff));
}

/// `place`, or the nearest one of an array of `count` elements.
REFOLD_DEVICE int64_t inside(int64_t place, int64_t count) {
  return larger(smaller(place, count - 1), 0);
}

/// Where element `at` of rows of several indices is: on the last of them, of
/// which there are `count`, and on those before. Both are 0 or more.
struct Along {
  REFOLD_DEVICE Along(int64_t at, int64_t count) {
    const bool is_short = at < 0x7fffffff;
    quotient = is_short ? block_quotient(at, count) : at / count;
    remainder = at - quotient * count;
  }
  int64_t quotient, remainder;
};

/// `x` as a number of columns of a tile that has `most`.
REFOLD_DEVICE int within(int64_t x, int most) {
  return x < 0 ? 0 : x < most ? int(x) : most;
}

/// What a warp holds of 16 rows and 8 columns: lane 4 r + c has elements 2 c
/// and 2 c + 1 of row r, and of row r + 8.
REFOLD_DEVICE int fragment_row(int half, int at = thread()) {
  return at % 32 / 4 + half * 8;
}
REFOLD_DEVICE int fragment_column(int e, int at = thread()) {
  return at % 4 * 2 + e;
}

/// Element e of 16 bytes that are 0 there.
template <typename T>
REFOLD_DEVICE void put_element(uint32_t (&words)[4], int e, T x) {
  words[e / 2] |= uint32_t(x.bits) << (e % 2 * 16);
}
REFOLD_DEVICE void put_element(uint32_t (&words)[4], int e, float x) {
  words[e] = bits_of(x);
}

/// Begins to bring rows of a matrix into a tile, all threads of the block
/// together. What lies beyond `rows` and `columns` is 0. `kVector` is what 16
/// bytes hold where rows begin at multiples of them and `columns` is a multiple
/// of it, otherwise 1.
template <typename To, int kThreads, int kVector, typename T>
REFOLD_DEVICE void copy_tile(uint32_t to, const T *from, int64_t row_stride,
                             int64_t rows, int64_t columns) {
  constexpr int kStep = kThreads / To::kChunks; // rows at once
  constexpr int kPasses = (To::kRows + kStep - 1) / kStep;
  const int at = thread_again(), chunk = at % To::kChunks;
  const int first = at / To::kChunks;
  if (kThreads % To::kChunks != 0 && first >= kStep)
    return;
  const T *source = from + first * row_stride + chunk * To::kInChunk;
  to += To::place(first, chunk);
  if constexpr (kVector == To::kInChunk && To::kRows % kStep == 0) {
    if (rows >= To::kRows && columns == To::kColumns) {
      REFOLD_UNROLL
      for (int i = 0; i < kPasses; ++i)
        copy_async(To::down(to, i * kStep), source + i * kStep * row_stride,
                   16);
      return;
    }
  }
  const int last = rows < To::kRows ? int(rows) : To::kRows;
  const int inside =
      chunk * To::kInChunk < columns ? last : 0; // rows of this chunk
  const auto pass = [&](int i) {
    const int row = first + i * kStep;
    if (To::kRows % kStep != 0 && row >= To::kRows)
      return;
    if constexpr (kVector == To::kInChunk) {
      copy_async(To::down(to, i * kStep), row < inside ? source : from,
                 row < inside ? 16 : 0);
    } else {
      uint32_t words[4] = {};
      REFOLD_UNROLL
      for (int e = 0; e < To::kInChunk; ++e)
        if (row < inside && chunk * To::kInChunk + e < columns)
          put_element(words, e, load_element(source + e));
      store_shared(To::down(to, i * kStep), words);
    }
    source += kStep * row_stride;
  };
  if constexpr (kVector == To::kInChunk) {
    REFOLD_UNROLL
    for (int i = 0; i < kPasses; ++i)
      pass(i);
  } else {
    REFOLD_NO_UNROLL
    for (int i = 0; i < kPasses; ++i)
      pass(i);
  }
}

/// The same of rows that lie anywhere: `row_of(i)` is where row i begins.
template <typename To, int kThreads, int kVector, typename RowOf>
REFOLD_DEVICE void gather_tile(uint32_t to, RowOf row_of, int rows,
                               int64_t columns) {
  for (int at = thread(); at < To::kRows * To::kChunks; at += kThreads) {
    const int row = at / To::kChunks, chunk = at % To::kChunks;
    const bool is_inside = row < rows && chunk * To::kInChunk < columns;
    const auto *const from = row_of(is_inside ? row : 0);
    const uint32_t place = to + To::place(row, chunk);
    if constexpr (kVector == To::kInChunk) {
      copy_async(place, is_inside ? from + chunk * To::kInChunk : from,
                 is_inside ? 16 : 0);
    } else {
      uint32_t words[4] = {};
      REFOLD_UNROLL
      for (int e = 0; e < To::kInChunk; ++e)
        if (is_inside && chunk * To::kInChunk + e < columns)
          put_element(words, e, load_element(from + chunk * To::kInChunk + e));
      store_shared(place, words);
    }
  }
}

/// Two floats of 8 bits as two of 16 that have all of their numbers.
template <typename T> REFOLD_DEVICE uint32_t widen_two(uint32_t two, f16) {
  return widen_pair(two, T{});
}
template <typename T> REFOLD_DEVICE uint32_t widen_two(uint32_t two, bf16) {
  return pack(to_float(T{uint8_t(two)}), to_float(T{uint8_t(two >> 8)}),
              bf16{});
}

/// The same of rows of 8 bits, which are widened on their way to what a tile
/// has: they are there behind a barrier. `kVector` is 8 where rows begin at
/// multiples of 8 bytes.
template <typename To, int kThreads, int kVector, typename As, typename RowOf>
REFOLD_DEVICE void gather_widened(uint32_t to, RowOf row_of, int64_t rows,
                                  int64_t columns) {
  constexpr int kAll = To::kRows * To::kChunks;
  const int first = thread_again();
  const auto pass = [&](int at) {
    const int row = at / To::kChunks, chunk = at % To::kChunks;
    const bool is_inside = row < rows && chunk * 8 < columns;
    const auto *const from = row_of(is_inside ? row : 0);
    using T = decltype(load_element(from));
    uint32_t words[4] = {};
    if constexpr (kVector == 8) {
      if (is_inside) {
        uint32_t bytes[2];
        load_words<8, Reuse>(bytes, from + chunk * 8);
        REFOLD_UNROLL
        for (int i = 0; i < 4; ++i)
          words[i] = widen_two<T>(bytes[i / 2] >> i % 2 * 16, As{});
      }
    } else {
      REFOLD_UNROLL
      for (int e = 0; e < 8; ++e)
        if (is_inside && chunk * 8 + e < columns)
          words[e / 2] |=
              widen_two<T>(load_element(from + chunk * 8 + e).bits, As{})
              << e % 2 * 16;
    }
    store_shared(to + To::place(row, chunk), words);
  };
  if constexpr (kVector == 8 && kAll % kThreads == 0) {
    REFOLD_UNROLL
    for (int i = 0; i < kAll / kThreads; ++i)
      pass(first + i * kThreads);
  } else {
    REFOLD_NO_UNROLL
    for (int at = first; at < kAll; at += kThreads)
      pass(at);
  }
}
template <typename To, int kThreads, int kVector, typename As, typename T>
REFOLD_DEVICE void copy_widened(uint32_t to, const T *from, int64_t row_stride,
                                int64_t rows, int64_t columns) {
  gather_widened<To, kThreads, kVector, As>(
      to, [&](int i) { return from + i * row_stride; }, rows, columns);
}

/// Rows of 8 bits on their way to a tile that has them in 16: they come, 16
/// bytes at once, to places that only the thread reads which asked for them. It
/// widens them when they have come. Rows begin at multiples of 16 bytes and are
/// whole vectors of as many.
template <typename To, int kThreads, typename As, typename T> struct Narrow {
  static constexpr int kPairs = To::kChunks / 2; ///< of chunks, in a row
  static constexpr int kStep = kThreads / kPairs / 8 * 8; ///< rows at once
  static constexpr int kPasses = (To::kRows + kStep - 1) / kStep;
  static constexpr int kBytes = kPasses * kThreads * 16;

  /// Whether the thread has something of a pass.
  REFOLD_DEVICE static bool has(int first, int pass) {
    return !(kStep * kPairs != kThreads && first >= kStep) &&
           !(To::kRows % kStep != 0 && first + pass * kStep >= To::kRows);
  }
  /// Begins to bring rows. What lies beyond `rows` and `columns` is 0.
  REFOLD_DEVICE static void bring(uint32_t to, const T *from,
                                  int64_t row_stride, int64_t rows,
                                  int64_t columns) {
    const int at = thread_within(), first = at / kPairs, pair = at % kPairs;
    const int last = pair * 16 < columns ? int(smaller(rows, To::kRows)) : 0;
    const T *source = from + first * row_stride + pair * 16;
    REFOLD_UNROLL
    for (int i = 0; i < kPasses; ++i) {
      const bool is_there = first + i * kStep < last;
      if (has(first, i))
        copy_async(to + (i * kThreads + at) * 16, is_there ? source : from,
                   is_there ? 16 : 0);
      source += kStep * row_stride;
    }
  }
  /// Widens a pass of what has come to `from` for thread `at`.
  REFOLD_DEVICE static void widen(int at, int pass, uint32_t to,
                                  uint32_t from) {
    const int first = at / kPairs, pair = at % kPairs;
    if (!has(first, pass))
      return;
    REFOLD_UNROLL
    for (int i = 0; i < 2; ++i) {
      const int half = i ^ (pair / 4 & 1); // eight lanes meet in no bank
      uint32_t bytes[2], words[4];
      load_words_shared<8>(bytes,
                           from + (pass * kThreads + at) * 16 + half * 8);
      REFOLD_UNROLL
      for (int w = 0; w < 4; ++w)
        words[w] = widen_two<T>(bytes[w / 2] >> w % 2 * 16, As{});
      store_shared(
          To::down(to + To::place(first, pair * 2 + half), pass * kStep),
          words);
    }
  }
  REFOLD_DEVICE static void widen_all(uint32_t to, uint32_t from) {
    const int at = thread_within();
    REFOLD_UNROLL
    for (int i = 0; i < kPasses; ++i)
      widen(at, i, to, from);
  }
  /// The same when all groups of copies but the last one have come.
  REFOLD_DEVICE static void take(uint32_t to, uint32_t from) {
    wait_copies<1>();
    widen_all(to, from);
  }
  /// When all have.
  REFOLD_DEVICE static void take_all(uint32_t to, uint32_t from) {
    wait_copies<0>();
    widen_all(to, from);
  }
};

/// What a thread widens of one tile, and brings of a whole one behind that, a
/// part at a time between products.
template <typename To, int kThreads, typename As, typename T>
struct NextNarrow {
  using Rows = Narrow<To, kThreads, As, T>;
  const T *source;
  int bytes;

  /// Without a tile that is there, zeros are brought.
  REFOLD_DEVICE NextNarrow(const T *from, int64_t row_stride, int64_t columns,
                           bool is_there) {
    const int at = thread_within(), pair = at % Rows::kPairs;
    source = from + at / Rows::kPairs * row_stride + pair * 16;
    const bool is_inside = columns == To::kColumns || pair * 16 < columns;
    bytes = is_there && is_inside ? 16 : 0;
  }
  /// One of `parts` parts: from its places, and to them.
  REFOLD_DEVICE void pass_on(int part, int parts, uint32_t tile,
                             uint32_t places, int64_t row_stride) const {
    const int at = thread_within(), first = at / Rows::kPairs;
    REFOLD_UNROLL
    for (int i = 0; i < Rows::kPasses; ++i) {
      if (i * parts / Rows::kPasses != part)
        continue;
      Rows::widen(at, i, tile, places);
      if (Rows::has(first, i))
        copy_async(places + (i * kThreads + at) * 16,
                   source + i * Rows::kStep * row_stride, bytes);
    }
  }
};

/// Four neighbours of 16 columns that four lanes have of a row, `low` and
/// `high` as the matrix units leave them; those of `fragment_quad`. All lanes
/// of the warp call it.
REFOLD_DEVICE void exchange_quads(uint32_t (&to)[4], const float (&low)[2],
                                  const float (&high)[2]) {
  const bool is_odd = thread_again() % 2 != 0;
  REFOLD_UNROLL
  for (int e = 0; e < 2; ++e) {
    const float kept = is_odd ? high[e] : low[e];
    const float other = shuffle_xor(is_odd ? low[e] : high[e], 1);
    to[e] = bits_of(is_odd ? other : kept);
    to[2 + e] = bits_of(is_odd ? kept : other);
  }
}
REFOLD_DEVICE int fragment_quad(int at = thread()) {
  return at % 2 * 8 + at % 4 / 2 * 4;
}

/// What a thread brings of a whole tile of a matrix: 16 bytes at once, a part
/// at a time between products. Found anew for each tile, so that nothing of it
/// is kept while another is folded.
template <typename To, int kThreads, typename T> struct Next {
  static constexpr int kStep = kThreads / To::kChunks; // rows at once
  static constexpr int kPasses = (To::kRows + kStep - 1) / kStep;
  const T *source;
  int bytes;

  REFOLD_DEVICE static int own() {
    return To::kHasShifts ? thread_within() : thread_again();
  }

  /// Without a tile that is there, zeros are brought.
  REFOLD_DEVICE Next(const T *from, int64_t row_stride, int64_t columns,
                     bool is_there) {
    const int at = own(), chunk = at % To::kChunks;
    source = from + at / To::kChunks * row_stride + chunk * 8;
    const bool is_inside = columns == To::kColumns || chunk * 8 < columns;
    bytes = is_there && is_inside ? 16 : 0;
  }
  /// Begins to bring one of `parts` parts into the tile.
  REFOLD_DEVICE void bring(int part, int parts, uint32_t tile,
                           int64_t row_stride) const {
    const int at = own(), first = at / To::kChunks;
    const uint32_t to = tile + To::place(first, at % To::kChunks);
    REFOLD_UNROLL
    for (int i = 0; i < kPasses; ++i) {
      if (i * parts / kPasses != part)
        continue;
      const bool is_idle = kThreads % To::kChunks != 0 && first >= kStep;
      const bool is_past =
          To::kRows % kStep != 0 && first + i * kStep >= To::kRows;
      if (!is_idle && !is_past)
        copy_async(To::down(to, i * kStep), source + i * kStep * row_stride,
                   bytes);
    }
  }
};

/// What a warp reads of 16 * kTiles rows of a tile that begin at `left`, 16
/// columns from the k-th 16 on.
template <typename Left, int kTiles>
REFOLD_DEVICE void load_rows(uint32_t (&to)[kTiles][4], uint32_t left, int k) {
  const int lane = thread_again() % 32;
  const uint32_t at =
      Left::right(left + Left::place(lane % 16, lane / 16), 2 * k);
  REFOLD_UNROLL
  for (int i = 0; i < kTiles; ++i)
    load_matrices(to[i], Left::down(at, i * 16));
}

/// products += left * right^T: the 16 * kTiles rows of `left` that begin at its
/// offset, or that are kept, against all rows of a tile `right`. Calls
/// `between(part, parts)` after each of the `parts` steps; of few steps whose
/// left side is read, too, once after the first: waiting for what is read
/// before what is copied takes instructions each time.
template <typename T, typename Left, typename Right, bool kIsKept, int kTiles,
          int kParts, int kSteps, typename Between>
REFOLD_DEVICE void multiply_rows(float (&products)[kTiles][kParts][4],
                                 const uint32_t (&kept)[kSteps][kTiles][4],
                                 uint32_t left, uint32_t right,
                                 Between between) {
  static_assert(kParts * 8 == Right::kRows &&
                Left::kColumns == Right::kColumns);
  constexpr int kCount = Left::kColumns / 16, kFewSteps = 4;
  constexpr bool kIsTight = Right::kIsTight && !kIsKept;
  const int lane = (Right::kHasShifts ? thread_within() : thread_again()) % 32;
  uint32_t b = right + Right::place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  uint32_t a = left + Left::place(lane % 16, lane / 16);
  REFOLD_UNROLL
  for (int step = 0; step < kCount; ++step) {
    // Columns from the address on.
    int k = step;
    if constexpr (kIsTight) {
      Left::turn(a, step);
      Right::turn(b, step);
      k = step % Right::kAlike * 4;
    }
    uint32_t l[kTiles][4];
    REFOLD_UNROLL
    for (int i = 0; i < kTiles; ++i)
      if constexpr (kIsKept) {
        REFOLD_UNROLL
        for (int e = 0; e < 4; ++e)
          l[i][e] = kept[k][i][e];
      } else {
        load_matrices(l[i], Left::down(Left::right(a, 2 * k), i * 16));
      }
    REFOLD_UNROLL
    for (int c = 0; c < kParts / 2; ++c) {
      uint32_t r[4];
      load_matrices(r, Right::down(Right::right(b, 2 * k), c * 16));
      REFOLD_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        multiply_matrices(products[i][2 * c], l[i], r[0], r[1], T{});
        multiply_matrices(products[i][2 * c + 1], l[i], r[2], r[3], T{});
      }
    }
    if constexpr (kIsKept || kCount > kFewSteps)
      between(step, kCount);
    else if (step == 0)
      between(0, 1);
  }
}

/// What is read at every row and column of a tile, in shared memory as it is
/// stored, in chunks of 16 bytes. A warp reads 8 rows of 8 columns at once, two
/// columns a lane, and meets in no bank: where rows are a multiple of 8 chunks,
/// chunk c of row r lies where chunk c ^ r * kUnit % 8 would, other rows are an
/// odd number of units apart. Begins at a multiple of 128 bytes.
template <typename T, int kRowsOf, int kColumnsOf> struct Elements {
  using Type = T;
  static constexpr int kRows = kRowsOf, kColumns = kColumnsOf;
  static constexpr int kSize = int(sizeof(T)), kInChunk = 16 / kSize;
  static constexpr int kChunks = kColumns / kInChunk;
  static constexpr int kUnit = kSize > 2 ? kSize / 2 : 1; ///< of 8 columns
  static constexpr bool kIsPermuted = kChunks % 8 == 0;
  static constexpr int kRowBytes =
      16 * (kIsPermuted ? kChunks : (kChunks / kUnit | 1) * kUnit);
  static constexpr int kBytes = kRows * kRowBytes;
  static_assert(kRows % 16 == 0 && kColumns % 16 == 0);

  REFOLD_DEVICE static uint32_t place(int row, int chunk) {
    return row * kRowBytes +
           (kIsPermuted ? chunk ^ (row * kUnit & 7) : chunk) * 16;
  }
  /// From a place a number of chunks on that has no bit in common with its own.
  REFOLD_DEVICE static uint32_t right(uint32_t at, int chunks) {
    return kIsPermuted ? (at ^ ((chunks & 7) << 4)) + (chunks >> 3) * 128
                       : at + chunks * 16;
  }
};

/// Begins to bring what lies in rows and columns of an array into elements,
/// `kThreads` threads from number 0 on together: 16 bytes at once, of which
/// rows begin at multiples. What lies beyond `rows` and `columns` is 0.
template <typename To, int kThreads>
REFOLD_DEVICE void copy_elements(uint32_t to, const typename To::Type *from,
                                 int64_t row_stride, int64_t rows,
                                 int64_t columns) {
  constexpr int kStep = kThreads / To::kChunks; // rows at once
  constexpr int kPasses = (To::kRows + kStep - 1) / kStep;
  // Whose rows are 8 apart has one way to permute.
  static_assert(!To::kIsPermuted || kStep * To::kUnit % 8 == 0);
  const int at = thread_again(), chunk = at % To::kChunks;
  const int first = at / To::kChunks;
  if (kThreads % To::kChunks != 0 && first >= kStep)
    return;
  const auto *source = from + first * row_stride + chunk * To::kInChunk;
  const uint32_t place = to + To::place(first, chunk);
  const int last = rows < To::kRows ? int(rows) : To::kRows;
  const int inside = within(columns - chunk * To::kInChunk, To::kInChunk);
  REFOLD_UNROLL
  for (int i = 0; i < kPasses; ++i) {
    const bool is_there = first + i * kStep < last;
    if (To::kRows % kStep == 0 || first + i * kStep < To::kRows)
      copy_async(place + i * kStep * To::kRowBytes, is_there ? source : from,
                 is_there ? inside * To::kSize : 0);
    source += kStep * row_stride;
  }
}

/// What a lane has of 16 * kTiles rows from `row` on, a multiple of 16, and of
/// the c-th 16 columns: of every 8 rows two columns, and the two 8 columns on.
/// All lanes of the warp call it.
template <typename From, int kTiles>
REFOLD_DEVICE void take_elements(typename From::Type (&to)[2 * kTiles][4],
                                 uint32_t from, int row, int c) {
  const int lane = thread_again() % 32;
  from += row * From::kRowBytes;
  Vector<typename From::Type, 2> two;
  if constexpr (From::kSize == 2) {
    const uint32_t at =
        From::right(from + From::place(lane % 16, lane / 16), 2 * c);
    REFOLD_UNROLL
    for (int i = 0; i < 2 * kTiles; i += 2) {
      uint32_t words[4];
      load_matrices(words, at + i * 8 * From::kRowBytes);
      REFOLD_UNROLL
      for (int e = 0; e < 8; ++e) {
        two.words[0] = words[e / 2];
        to[i + e / 2 % 2][e / 4 * 2 + e % 2] = two.get(e % 2);
      }
    }
  } else {
    const int byte = lane % 4 * 2 * From::kSize;
    const uint32_t at = from + From::place(lane / 4, byte / 16) + byte % 16;
    REFOLD_UNROLL
    for (int i = 0; i < 4 * kTiles; ++i) {
      const int first = (c * 16 + i % 2 * 8) * From::kSize; // byte of a row
      load_words_shared<2 * From::kSize>(
          two.words, From::right(at + i / 2 * 8 * From::kRowBytes, first / 16) +
                         first % 16);
      to[i / 2][i % 2 * 2] = two.get(0);
      to[i / 2][i % 2 * 2 + 1] = two.get(1);
    }
  }
}

/// Where a thread reads a tile by columns: beside the offset of 16 rows.
template <typename Values> REFOLD_DEVICE uint32_t lane_of_columns(int at) {
  return Values::place(at % 16, at % 32 / 16);
}

/// sums += factors * values: 16 columns of factors in registers, against 16
/// rows of a tile `Values`, whose offset is the lane's.
template <typename T, typename Values, int kTiles, int kParts>
REFOLD_DEVICE void multiply_columns(float (&sums)[kTiles][kParts][4],
                                    const uint32_t (&factors)[kTiles][4],
                                    uint32_t values) {
  static_assert(kParts * 8 == Values::kColumns);
  REFOLD_UNROLL
  for (int c = 0; c < kParts / 2; ++c) {
    uint32_t r[4];
    load_transposed(r, Values::right(values, 2 * c));
    REFOLD_UNROLL
    for (int i = 0; i < kTiles; ++i) {
      multiply_matrices(sums[i][2 * c], factors[i], r[0], r[1], T{});
      multiply_matrices(sums[i][2 * c + 1], factors[i], r[2], r[3], T{});
    }
  }
}

/// Two ones as matrix units take them.
REFOLD_DEVICE uint32_t two_ones(bf16) { return 0x3f803f80; }
REFOLD_DEVICE uint32_t two_ones(f16) { return 0x3c003c00; }

/// sums += factors * a column of ones: of each row, in all columns.
template <typename T, int kTiles>
REFOLD_DEVICE void sum_factors(float (&sums)[kTiles][4],
                               const uint32_t (&factors)[kTiles][4]) {
  REFOLD_UNROLL
  for (int i = 0; i < kTiles; ++i)
    multiply_matrices(sums[i], factors[i], two_ones(T{}), two_ones(T{}), T{});
}

/// Stores 16 * kParts bytes of a row that four lanes have: of each 16, lane c
/// words[part], the c-th 4. Afterwards each lane has 16 whole ones of every 64,
/// and writes them where they lie before `bytes`. All lanes of the warp call
/// it; those with `to` null write nothing.
template <int kParts>
REFOLD_DEVICE void store_quads(char *to, const uint32_t (&words)[kParts],
                               int64_t bytes) {
  const int c = thread_again() % 4;
  REFOLD_UNROLL
  for (int part = 0; part < kParts; part += 4) {
    uint32_t w[4];
    REFOLD_UNROLL
    for (int k = 0; k < 4; ++k)
      w[k] = part + k < kParts ? words[part + k] : 0;
    // Transposes: word k of lane c becomes word c of lane k, a bit at a time.
    REFOLD_UNROLL
    for (int mask = 1; mask < 4; mask *= 2)
      REFOLD_UNROLL
    for (int k = 0; k < 4; ++k)
      if ((k & mask) == 0) {
        uint32_t &low = w[k], &high = w[k | mask];
        const bool is_high = (c & mask) != 0;
        const uint32_t other =
            uint32_t(shuffle_xor(int32_t(is_high ? low : high), mask));
        (is_high ? low : high) = other;
      }
    const int64_t at = (part + c) * 16;
    if (to != nullptr && part + c < kParts && at < bytes)
      store_words<16>(to + at, w);
  }
}

/// Four factors of a row as the matrix units take them: two columns, and the
/// two 8 columns on.
template <typename T, int kTiles>
REFOLD_DEVICE void pack_factors(uint32_t (&to)[kTiles][4], int tile, int half,
                                const float (&from)[4]) {
  to[tile][half] = pack(from[0], from[1], T{});
  to[tile][2 + half] = pack(from[2], from[3], T{});
}

//===----------------------------------------------------------------------===//
// Rows that may need what was left out
//===----------------------------------------------------------------------===//

/// Whether any thread of the block says so. Once in a block.
template <int kWarps> REFOLD_DEVICE bool any_of_block(bool x) {
  REFOLD_SHARED(int32_t, of_warps, kWarps);
  const bool is_any = any_lane(x);
  if (thread_again() % 32 == 0)
    of_warps.store(thread_again() / 32, is_any);
  block_barrier();
  int32_t any = 0;
  for (int warp = 0; warp < kWarps; ++warp)
    any |= of_warps.load(warp);
  return any != 0;
}

/// The visits of a block in which rows of a warp have seen nothing above what
/// masks hold: a bit of each of the first kMost, and one whether there are any.
/// Words are written by their warp alone.
template <int kWarps> struct LowVisits {
  static constexpr int kMost = 1024, kWords = kMost / 32 + 1;
  static constexpr int kCount = kWarps * kWords;
  const Shared<uint32_t> words;

  REFOLD_DEVICE void forget() const {
    for (int i = thread(); i < kCount; i += 128 + 32 * kWarps)
      words.store(i, 0);
  }
  /// By all lanes.
  REFOLD_DEVICE void add(int warp, int visit) const {
    if (thread_again() % 32 == 0) {
      const int at = warp * kWords + visit / 32;
      words.store(at, words.load(at) | 1u << visit % 32);
      words.store(warp * kWords + kWords - 1, 1);
    }
  }
  /// Once all warps have arrived.
  REFOLD_DEVICE bool has(int visit, int warp) const {
    return visit < kMost &&
           (words.load(warp * kWords + visit / 32) >> visit % 32 & 1) != 0;
  }
  REFOLD_DEVICE bool has(int visit) const {
    bool is_any = false;
    for (int warp = 0; warp < kWarps; ++warp)
      is_any |= has(visit, warp);
    return is_any;
  }
  REFOLD_DEVICE bool hasAny() const {
    uint32_t any = 0;
    for (int warp = 0; warp < kWarps; ++warp)
      any |= words.load(warp * kWords + kWords - 1);
    return any != 0;
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_TILES_H
