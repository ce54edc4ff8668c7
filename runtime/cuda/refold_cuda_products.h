// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products outside cascades, the same on device and host: a block computes one
// rectangle of a result, by matrix units where both sides have the same 16
// bits, by multiply-adds otherwise.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_H

namespace refold {

/// What is applied to a product at last (ProductStep).
enum class Activation { None, Relu, GeluErf, Tanh };

/// `erf_scale`: what x is multiplied by in erf, the root of 1/2 as its type has
/// it.
template <Activation kActivation>
REFOLD_DEVICE float activate(float x, float erf_scale) {
  if constexpr (kActivation == Activation::Relu)
    return max_nan(x, 0.0f);
  else if constexpr (kActivation == Activation::GeluErf)
    return 0.5f * x * (1.0f + erff(x * erf_scale));
  else if constexpr (kActivation == Activation::Tanh)
    return tanhf(x);
  else
    return x;
}
template <Activation> REFOLD_DEVICE int32_t activate(int32_t x, float) {
  return x;
}
template <Activation> REFOLD_DEVICE int64_t activate(int64_t x, float) {
  return x;
}

/// An element as sums have it.
template <typename Sum> REFOLD_DEVICE Sum widen(bf16 x) { return to_float(x); }
template <typename Sum> REFOLD_DEVICE Sum widen(f16 x) { return to_float(x); }
template <typename Sum, typename T> REFOLD_DEVICE Sum widen(T x) {
  return Sum(x);
}
/// A sum as the result has it.
template <typename R, typename Sum> REFOLD_DEVICE R rounded(Sum x) {
  if constexpr (sizeof(R) == 2)
    return narrow<R>(x);
  else
    return R(x);
}

/// z + x * y; integers wrap.
REFOLD_DEVICE float add_product(float x, float y, float z) {
  return multiply_add(x, y, z);
}
REFOLD_DEVICE int32_t add_product(int32_t x, int32_t y, int32_t z) {
  return int32_t(uint32_t(z) + uint32_t(x) * uint32_t(y));
}
REFOLD_DEVICE int64_t add_product(int64_t x, int64_t y, int64_t z) {
  return int64_t(uint64_t(z) + uint64_t(x) * uint64_t(y));
}

/// A matrix in memory.
template <typename T> struct Matrix {
  T *first;
  int64_t row_stride, column_stride;
  REFOLD_DEVICE T *at(int64_t row, int64_t column) const {
    return first + row * row_stride + column * column_stride;
  }
};

/// What a block has of `depth` products: whole steps, as many as the other
/// `parts` - 1 blocks have, or what is left of them.
struct DepthPart {
  int64_t first, count;
};
template <int kStep>
REFOLD_DEVICE DepthPart part_of_depth(int64_t depth, int64_t parts,
                                      int64_t part) {
  if (parts == 1)
    return {0, depth};
  const int64_t steps = (depth + kStep - 1) / kStep;
  const int64_t own = Along(steps + parts - 1, parts).quotient * kStep;
  const int64_t first = smaller(part * own, depth);
  return {first, smaller(own, depth - first)};
}

/// Blocks that share what is summed for a rectangle: whoever comes last adds up
/// what all have left, and writes.
struct SharedSums {
  static constexpr bool kMayShare = true;
  unsigned char *left;
  uint32_t *ticket;
  int parts, part;
};
struct OwnSums {
  static constexpr bool kMayShare = false;
  static constexpr int parts = 1, part = 0;
};

/// The result, and what is done where it is written.
template <typename R, typename B, Activation kActivation> struct Target {
  using Result = R;
  Matrix<R> to;
  const B *bias; ///< of columns; null: none
  int64_t bias_stride;
  int64_t rows, columns;
  float erf_scale;

  template <typename Sum>
  REFOLD_DEVICE Sum finish(Sum sum, int64_t column) const {
    if constexpr (sizeof(Sum) == sizeof(float))
      if (bias != nullptr && column < columns)
        sum = sum + widen<Sum>(load_element(bias + column * bias_stride));
    return activate<kActivation>(sum, erf_scale);
  }
  /// What is added to a sum of the column.
  REFOLD_DEVICE float bias_of(int64_t column) const {
    return bias != nullptr && column < columns
               ? widen<float>(load_element(bias + column * bias_stride))
               : 0.0f;
  }
  template <typename Sum>
  REFOLD_DEVICE void put(int64_t row, int64_t column, Sum sum) const {
    if (row < rows && column < columns)
      store_element(to.at(row, column), rounded<R>(finish(sum, column)));
  }
};

/// Brings rows of a matrix of any strides into a tile; what lies beyond `rows`
/// and `columns` is 0.
template <typename To, int kThreads, typename T>
REFOLD_DEVICE void gather_tile(uint32_t to, Matrix<const T> from, int64_t rows,
                               int64_t columns) {
  REFOLD_NO_UNROLL
  for (int at = thread(); at < To::kRows * To::kChunks; at += kThreads) {
    // Along the rows where they lie beside each other.
    const bool is_flat = from.row_stride == 1;
    const int row = is_flat ? at % To::kRows : at / To::kChunks;
    const int chunk = is_flat ? at / To::kRows : at % To::kChunks;
    uint32_t words[4] = {};
    REFOLD_UNROLL
    for (int e = 0; e < 8; ++e)
      if (row < rows && chunk * 8 + e < columns)
        words[e / 2] |= uint32_t(load_element(from.at(row, chunk * 8 + e)).bits)
                        << (e % 2 * 16);
    store_shared(to + To::place(row, chunk), words);
  }
}

/// sums += left * right: the 16 * kTiles rows of `left` that begin at its
/// offset, against 8 * kParts columns of `right`, or rows of it where it is
/// transposed, from `first` on, a multiple of 8 * kParts. Of what is summed,
/// one of `kSlices` 16 is this warp's, from `slice` on.
template <typename T, typename Left, typename Right, bool kIsTransposed,
          int kSlices, int kTiles, int kParts>
REFOLD_DEVICE void multiply_step(float (&sums)[kTiles][kParts][4],
                                 uint32_t left, uint32_t right, int first,
                                 int slice) {
  static_assert((kParts & (kParts - 1)) == 0, "offsets have no bit in common");
  const int lane = thread() % 32;
  const uint32_t b =
      kIsTransposed
          ? right + first * Right::kRowBytes +
                Right::place(lane % 8 + lane / 16 * 8, lane / 8 % 2)
          : Right::right(right + lane_of_columns<Right>(lane), first / 8);
  REFOLD_UNROLL
  for (int step = 0; step < Left::kColumns / 16 / kSlices; ++step) {
    const int k = kSlices == 1 ? step : step * kSlices + slice;
    uint32_t l[kTiles][4];
    load_rows<Left, kTiles>(l, left, k);
    REFOLD_UNROLL
    for (int c = 0; c < kParts / 2; ++c) {
      uint32_t r[4];
      if constexpr (kIsTransposed)
        load_matrices(r, Right::down(Right::right(b, 2 * k), c * 16));
      else
        load_transposed(r, Right::down(Right::right(b, 2 * c), k * 16));
      REFOLD_UNROLL
      for (int i = 0; i < kTiles; ++i) {
        multiply_matrices(sums[i][2 * c], l[i], r[0], r[1], T{});
        multiply_matrices(sums[i][2 * c + 1], l[i], r[2], r[3], T{});
      }
    }
  }
}

/// How a block of matrix units divides its rectangle: warps over rows and
/// columns, each with `kTiles` times 16 rows and `kParts` times 8 columns, and
/// over `kSlices` of what is summed, `kDepth` of it a step, `kStages` - 1 of
/// which are under way.
template <int kRowWarpsOf, int kColumnWarpsOf, int kTilesOf, int kPartsOf,
          int kDepthOf = 32, int kStagesOf = 3, int kSlicesOf = 1>
struct Units {
  static constexpr int kRowWarps = kRowWarpsOf, kColumnWarps = kColumnWarpsOf;
  static constexpr int kTiles = kTilesOf, kParts = kPartsOf;
  static constexpr int kSlices = kSlicesOf;
  static constexpr int kSliceWarps = kRowWarps * kColumnWarps;
  static constexpr int kThreads = kSliceWarps * kSlices * 32;
  static constexpr int kRows = kRowWarps * kTiles * 16;
  static constexpr int kColumns = kColumnWarps * kParts * 8;
  static constexpr int kDepth = kDepthOf, kStages = kStagesOf;
  static_assert(kDepth % (16 * kSlices) == 0);
};

/// Writes what the warps of a block have. `kVector`: rows of the result begin
/// at multiples of 16 bytes, and are whole vectors.
template <typename U, int kVector, typename To>
REFOLD_DEVICE void write_units(const To &target, int64_t row0, int64_t column0,
                               const float (&sums)[U::kTiles][U::kParts][4]) {
  REFOLD_UNROLL
  for (int i = 0; i < 2 * U::kTiles; ++i) {
    const int64_t row = row0 + i / 2 * 16 + fragment_row(i % 2);
    float values[U::kParts * 2];
    REFOLD_UNROLL
    for (int c = 0; c < U::kParts * 2; ++c)
      values[c] = target.finish(sums[i / 2][c / 2][i % 2 * 2 + c % 2],
                                column0 + c / 2 * 8 + fragment_column(c % 2));
    using R = typename To::Result;
    if constexpr (kVector > 1 && sizeof(R) == 2) {
      uint32_t words[U::kParts];
      REFOLD_UNROLL
      for (int c = 0; c < U::kParts; ++c)
        words[c] = pack(values[2 * c], values[2 * c + 1], R{});
      char *to = reinterpret_cast<char *>(target.to.at(row, column0));
      store_quads(row < target.rows ? to : nullptr, words,
                  (target.columns - column0) * 2);
    } else if constexpr (kVector > 1 && sizeof(R) == 4 && U::kParts % 2 == 0) {
      REFOLD_UNROLL
      for (int c = 0; c < U::kParts / 2; ++c) {
        const float low[2] = {values[4 * c], values[4 * c + 1]};
        const float high[2] = {values[4 * c + 2], values[4 * c + 3]};
        uint32_t words[4];
        exchange_quads(words, low, high);
        const int64_t column = column0 + c * 16 + fragment_quad();
        if (row < target.rows && column < target.columns)
          store_words<16>(reinterpret_cast<char *>(target.to.at(row, column)),
                          words);
      }
    } else {
      REFOLD_UNROLL
      for (int c = 0; c < U::kParts * 2; ++c) {
        const int64_t column = column0 + c / 2 * 8 + fragment_column(c % 2);
        if (row < target.rows && column < target.columns)
          store_element(target.to.at(row, column), rounded<R>(values[c]));
      }
    }
  }
}

/// A step of a product in shared memory, and those under way.
template <typename U, bool kIsTransposed> struct Steps {
  using Left = Tile<U::kRows, U::kDepth>;
  using Across = Tile<U::kColumns, U::kDepth>;
  using Along = Tile<U::kDepth, U::kColumns>;
  static constexpr int kRightBytes =
      kIsTransposed ? Across::kBytes : Along::kBytes;
  static constexpr int kStepBytes = Left::kBytes + kRightBytes;
  static constexpr int kBytes = U::kStages * kStepBytes;
};

/// sums += left * right, what each warp of the block has of a rectangle of
/// `rows` and `columns`, by matrix units. `kVector` is 8 where rows of `left`,
/// and of `right` or its transpose (`kIsTransposed`), lie in whole vectors of
/// 16 bytes; otherwise 1: any strides.
template <typename U, bool kIsTransposed, int kVector, typename T>
REFOLD_DEVICE void sum_on_units(float (&sums)[U::kTiles][U::kParts][4],
                                uint32_t memory, Matrix<const T> left,
                                Matrix<const T> right, int64_t rows,
                                int64_t columns, int64_t depth) {
  using S = Steps<U, kIsTransposed>;
  using Left = typename S::Left;
  using Across = typename S::Across;
  using Along = typename S::Along;
  const auto bring = [&](int64_t step, int place) {
    const int64_t k = step * U::kDepth;
    const uint32_t to = memory + place * S::kStepBytes;
    const Matrix<const T> l{left.at(0, k), left.row_stride, left.column_stride};
    const Matrix<const T> r{right.at(k, 0), right.row_stride,
                            right.column_stride};
    const Matrix<const T> t{r.first, r.column_stride, r.row_stride};
    if constexpr (kVector == 1) {
      gather_tile<Left, U::kThreads>(to, l, rows, depth - k);
      if constexpr (kIsTransposed)
        gather_tile<Across, U::kThreads>(to + Left::kBytes, t, columns,
                                         depth - k);
      else
        gather_tile<Along, U::kThreads>(to + Left::kBytes, r, depth - k,
                                        columns);
    } else {
      const int64_t left_columns =
          depth - k < U::kDepth ? depth - k : U::kDepth;
      copy_tile<Left, U::kThreads, kVector>(to, l.first, l.row_stride, rows,
                                            left_columns);
      if constexpr (kIsTransposed)
        copy_tile<Across, U::kThreads, kVector>(
            to + Left::kBytes, t.first, t.row_stride, columns, left_columns);
      else
        copy_tile<Along, U::kThreads, kVector>(
            to + Left::kBytes, r.first, r.row_stride, depth - k,
            columns < U::kColumns ? columns : U::kColumns);
    }
  };
  const int warp = thread() / 32 % U::kSliceWarps;
  const int slice = thread() / 32 / U::kSliceWarps;
  const int warp_row = warp / U::kColumnWarps * U::kTiles * 16;
  const int warp_column = warp % U::kColumnWarps * U::kParts * 8;
  const int64_t steps = (depth + U::kDepth - 1) / U::kDepth;
  for (int64_t step = 0; step < U::kStages - 1; ++step) {
    if (step < steps)
      bring(step, int(step));
    commit_copies();
  }
  int place = 0;
  REFOLD_NO_UNROLL
  for (int64_t step = 0; step < steps; ++step) {
    wait_copies<U::kStages - 2>();
    block_barrier();
    const int64_t next = step + U::kStages - 1;
    if (next < steps)
      bring(next, place == 0 ? U::kStages - 1 : place - 1);
    commit_copies();
    const uint32_t stage = memory + place * S::kStepBytes;
    const uint32_t l = stage + warp_row * Left::kRowBytes;
    const uint32_t r = stage + Left::kBytes;
    if constexpr (kIsTransposed)
      multiply_step<T, Left, Across, true, U::kSlices>(sums, l, r, warp_column,
                                                       slice);
    else
      multiply_step<T, Left, Along, false, U::kSlices>(sums, l, r, warp_column,
                                                       slice);
    place = place + 1 == U::kStages ? 0 : place + 1;
  }
}

/// Adds what the warps of later slices have to what those of the first have, in
/// their order. Whether the warp is one of the latter. All copies have come.
template <typename U>
REFOLD_DEVICE bool add_slices(uint32_t memory,
                              float (&sums)[U::kTiles][U::kParts][4]) {
  const int warp = thread() / 32 % U::kSliceWarps;
  const int slice = thread() / 32 / U::kSliceWarps;
  const auto place = [&](int of, int i, int c) {
    const int fragment =
        ((of - 1) * U::kSliceWarps + warp) * U::kTiles * U::kParts +
        i * U::kParts + c;
    return memory + uint32_t(fragment * 32 + thread() % 32) * 16;
  };
  block_barrier(); // everything is multiplied
  REFOLD_UNROLL
  for (int i = 0; i < U::kTiles; ++i)
    REFOLD_UNROLL
  for (int c = 0; c < U::kParts; ++c)
    if (slice > 0) {
      const float(&from)[4] = sums[i][c];
      const uint32_t words[4] = {bits_of(from[0]), bits_of(from[1]),
                                 bits_of(from[2]), bits_of(from[3])};
      store_shared(place(slice, i, c), words);
    }
  block_barrier();
  if (slice > 0)
    return false;
  REFOLD_UNROLL
  for (int of = 1; of < U::kSlices; ++of)
    REFOLD_UNROLL
  for (int i = 0; i < U::kTiles; ++i)
    REFOLD_UNROLL
  for (int c = 0; c < U::kParts; ++c) {
    uint32_t words[4];
    load_shared(words, place(of, i, c));
    REFOLD_UNROLL
    for (int e = 0; e < 4; ++e)
      sums[i][c][e] = sums[i][c][e] + float_of(words[e]);
  }
  return true;
}

/// One rectangle of left * right.
template <typename U, bool kIsTransposed, int kVector, int64_t kSharedBytes,
          typename T, typename To>
REFOLD_DEVICE void multiply_on_units(uint32_t memory, Matrix<const T> left,
                                     Matrix<const T> right, const To &target,
                                     int64_t depth, int64_t row0,
                                     int64_t column0) {
  static_assert(kSharedBytes == Steps<U, kIsTransposed>::kBytes);
  float sums[U::kTiles][U::kParts][4] = {};
  sum_on_units<U, kIsTransposed, kVector>(
      sums, memory,
      Matrix<const T>{left.at(row0, 0), left.row_stride, left.column_stride},
      Matrix<const T>{right.at(0, column0), right.row_stride,
                      right.column_stride},
      target.rows - row0, target.columns - column0, depth);
  if constexpr (U::kSlices > 1) {
    static_assert((U::kSlices - 1) * U::kRows * U::kColumns * 4 <=
                  kSharedBytes);
    wait_copies<0>();
    if (!add_slices<U>(memory, sums))
      return;
  }
  const int warp = thread() / 32;
  write_units<U, kVector>(
      target, row0 + warp / U::kColumnWarps * U::kTiles * 16,
      column0 + warp % U::kColumnWarps * U::kParts * 8, sums);
}

/// A rectangle of 64 x 64 by multiply-adds, 256 threads with 4 x 4 sums each.
/// Sums of f32 are of at most 128 products before they are added up.
constexpr int kFlatSide = 64, kFlatDepth = 16, kFlatStride = kFlatSide + 4;

template <typename Sum, typename T>
REFOLD_DEVICE void gather_side(Shared<Sum> to, Matrix<const T> from,
                               int64_t count, int64_t depth) {
  // Neighbouring threads read what lies beside each other.
  const bool is_flat = from.row_stride == 1;
  REFOLD_UNROLL
  for (int i = 0; i < kFlatSide * kFlatDepth / 256; ++i) {
    const int at = thread() + i * 256;
    const int side = is_flat ? at % kFlatSide : at / kFlatDepth;
    const int k = is_flat ? at / kFlatSide : at % kFlatDepth;
    to.store(k * kFlatStride + side,
             side < count && k < depth
                 ? widen<Sum>(load_element(from.at(side, k)))
                 : Sum(0));
  }
}

template <typename Sum, typename L, typename R, typename To>
REFOLD_DEVICE void multiply_flat(Shared<Sum> left_side, Shared<Sum> right_side,
                                 Matrix<const L> left, Matrix<const R> right,
                                 const To &target, int64_t depth, int64_t row0,
                                 int64_t column0) {
  const int row = thread() / 16 * 4, column = thread() % 16 * 4;
  constexpr int kPart = 128;
  Sum sums[4][4] = {}, parts[4][4] = {};
  REFOLD_NO_UNROLL
  for (int64_t k = 0; k < depth; k += kFlatDepth) {
    gather_side<Sum, L>(left_side,
                        {left.at(row0, k), left.row_stride, left.column_stride},
                        target.rows - row0, depth - k);
    gather_side<Sum, R>(
        right_side,
        {right.at(k, column0), right.column_stride, right.row_stride},
        target.columns - column0, depth - k);
    block_barrier();
    REFOLD_UNROLL
    for (int d = 0; d < kFlatDepth; ++d) {
      Sum l[4], r[4];
      REFOLD_UNROLL
      for (int i = 0; i < 4; ++i) {
        l[i] = left_side.load(d * kFlatStride + row + i);
        r[i] = right_side.load(d * kFlatStride + column + i);
      }
      REFOLD_UNROLL
      for (int i = 0; i < 4; ++i)
        REFOLD_UNROLL
      for (int j = 0; j < 4; ++j)
        parts[i][j] = add_product(l[i], r[j], parts[i][j]);
    }
    block_barrier();
    if (k % kPart == kPart - kFlatDepth || k + kFlatDepth >= depth) {
      REFOLD_UNROLL
      for (int i = 0; i < 4; ++i)
        REFOLD_UNROLL
      for (int j = 0; j < 4; ++j) {
        sums[i][j] = add_product(parts[i][j], Sum(1), sums[i][j]);
        parts[i][j] = Sum(0);
      }
    }
  }
  REFOLD_UNROLL
  for (int i = 0; i < 4; ++i)
    REFOLD_UNROLL
  for (int j = 0; j < 4; ++j)
    target.put(row0 + row + i, column0 + column + j, sums[i][j]);
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_H
