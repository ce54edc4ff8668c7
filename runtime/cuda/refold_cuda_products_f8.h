// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of floats of 8 bits and what is made of each of them, the same on
// device and host: a block computes rectangles of results. Here by matrix units
// for f16, which has every number of both formats, with sums of f32.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_H

#include "refold_cuda_products.h"

namespace refold {

//===----------------------------------------------------------------------===//
// Results
//===----------------------------------------------------------------------===//

/// Where a result is, and what it is made of beside products: numbers of a row,
/// numbers of a column, and of both an element.
template <typename R, typename OfRow, typename OfColumn, typename Element>
struct Made {
  Matrix<R> to;
  OfRow of_row;
  OfColumn of_column;
  Element element;
  using Result = R;
  using Column = decltype(of_column(int64_t()));
};
template <typename R, typename OfRow, typename OfColumn, typename Element>
REFOLD_DEVICE Made<R, OfRow, OfColumn, Element>
made_of(Matrix<R> to, OfRow of_row, OfColumn of_column, Element element) {
  return {to, of_row, of_column, element};
}

template <typename R> REFOLD_DEVICE R stored(R x) { return x; }
REFOLD_DEVICE float as_float(float x) { return x; }
template <typename R, typename T> REFOLD_DEVICE R stored_as(T x) {
  if constexpr (sizeof(T) == sizeof(R))
    return stored<R>(x);
  else
    return rounded<R>(as_float(x));
}

/// The numbers of the columns of 8 * kParts that a lane has.
template <int kParts, typename Column> struct ColumnNumbers {
  Column numbers[kParts][2];
};

/// The same, all loaded at once. What is not there is the last one, and is not
/// written.
template <int kParts, typename To>
struct LoadedColumns : ColumnNumbers<kParts, typename To::Column> {
  REFOLD_DEVICE LoadedColumns(const To &result, int64_t column0,
                              int64_t columns) {
    REFOLD_UNROLL
    for (int part = 0; part < kParts; ++part)
      REFOLD_UNROLL
    for (int e = 0; e < 2; ++e)
      this->numbers[part][e] = result.of_column(
          smaller(column0 + part * 8 + fragment_column(e), columns - 1));
  }
};

/// Writes one row of 8 * kCount columns that four lanes have from part
/// `first_part` on, as the matrix units leave it. `kVector` > 1: rows of the
/// result begin at multiples of 16 bytes and are whole vectors. All lanes of
/// the warp call it.
template <int kVector, int kTiles, int kParts, int kCount, typename Row,
          typename To>
REFOLD_DEVICE void
write_row(const To &result, const Row &of_row,
          const ColumnNumbers<kCount, typename To::Column> &of_columns,
          int64_t row, int64_t column0, int64_t rows, int64_t columns,
          const float (&sums)[kTiles][kParts][4], int tile, int half,
          int first_part) {
  using R = typename To::Result;
  const bool is_row = row < rows;
  const int64_t m = smaller(row, rows - 1);
  const auto element = [&](int part, int e) {
    const int64_t column = column0 + part * 8 + fragment_column(e);
    const int64_t n = smaller(column, columns - 1);
    return result.element(of_row, of_columns.numbers[part][e], m, n,
                          sums[tile][first_part + part][half * 2 + e]);
  };
  if constexpr (kVector > 1 && sizeof(R) == 2 &&
                sizeof(decltype(element(0, 0))) == 4) {
    constexpr int kAtOnce = kCount < 4 ? kCount : 4;
    char *const to = reinterpret_cast<char *>(result.to.at(m, column0));
    REFOLD_UNROLL
    for (int first = 0; first < kCount; first += kAtOnce) {
      uint32_t words[kAtOnce];
      REFOLD_UNROLL
      for (int part = 0; part < kAtOnce; ++part)
        words[part] =
            pack(element(first + part, 0), element(first + part, 1), R{});
      store_quads(is_row ? to + first * 16 : nullptr, words,
                  (columns - column0) * 2 - first * 16);
    }
  } else {
    REFOLD_UNROLL
    for (int part = 0; part < kCount; ++part)
      REFOLD_UNROLL
    for (int e = 0; e < 2; ++e) {
      const int64_t column = column0 + part * 8 + fragment_column(e);
      if (is_row && column < columns)
        store_element(result.to.at(row, column),
                      stored_as<R>(element(part, e)));
    }
  }
}

/// Writes the 16 * kTiles rows from `row0` on of all results.
template <int kVector, int kTiles, int kParts, typename To, typename... More>
REFOLD_DEVICE void write_rows(int64_t row0, int64_t column0, int64_t rows,
                              int64_t columns,
                              const float (&sums)[kTiles][kParts][4],
                              const To &result, const More &...more) {
  // Numbers of more columns would not fit beside the sums.
  constexpr int kCount = kParts < 16 ? kParts : 16;
  REFOLD_UNROLL
  for (int first = 0; first < kParts; first += kCount) {
    const int64_t column = column0 + first * 8;
    const LoadedColumns<kCount, To> of_columns(result, column, columns);
    REFOLD_UNROLL
    for (int i = 0; i < 2 * kTiles; ++i) {
      const int64_t row = row0 + i / 2 * 16 + fragment_row(i % 2);
      write_row<kVector>(result, result.of_row(smaller(row, rows - 1)),
                         of_columns, row, column, rows, columns, sums, i / 2,
                         i % 2, first);
    }
  }
  if constexpr (sizeof...(More) > 0)
    write_rows<kVector>(row0, column0, rows, columns, sums, more...);
}

//===----------------------------------------------------------------------===//
// By matrix units for f16
//===----------------------------------------------------------------------===//

/// Brings rows of a matrix of bytes of any strides into a tile, which counts
/// pairs of them; what lies beyond `rows` and `depth` is 0.
template <typename To, int kThreads, typename T>
REFOLD_DEVICE void gather_bytes(uint32_t to, Matrix<const T> from, int64_t rows,
                                int64_t depth) {
  REFOLD_NO_UNROLL
  for (int at = thread(); at < To::kRows * To::kChunks; at += kThreads) {
    // Along the rows where they lie beside each other.
    const bool is_flat = from.row_stride == 1;
    const int row = is_flat ? at % To::kRows : at / To::kChunks;
    const int chunk = is_flat ? at / To::kRows : at % To::kChunks;
    uint32_t words[4] = {};
    REFOLD_UNROLL
    for (int e = 0; e < 16; ++e)
      if (row < rows && chunk * 16 + e < depth)
        words[e / 4] |=
            uint32_t(load_element(from.at(row, chunk * 16 + e)).bits)
            << (e % 4 * 8);
    store_shared(to + To::place(row, chunk), words);
  }
}

/// The words of two pairs that a lane has of 16 along the sum: the same four
/// places on both sides, whichever those are.
template <typename T>
REFOLD_DEVICE void widen_four(uint32_t &first, uint32_t &second,
                              uint32_t four) {
  first = widen_pair(four & 0xffffu, T{});
  second = widen_pair(four >> 16, T{});
}

/// sums += left * right^T: the 16 * kTiles rows of `left` that begin at its
/// offset, against 8 * kParts rows of `right` from `first` on.
template <typename L, typename R, typename Left, typename Right, int kTiles,
          int kParts>
REFOLD_DEVICE void multiply_pairs(float (&sums)[kTiles][kParts][4],
                                  uint32_t left, uint32_t right, int first) {
  static_assert((kParts & (kParts - 1)) == 0, "offsets have no bit in common");
  const int lane = thread() % 32;
  const uint32_t b = right + first * Right::kRowBytes +
                     Right::place(lane % 8 + lane / 16 * 8, lane / 8 % 2);
  REFOLD_UNROLL
  for (int k = 0; k < Left::kColumns / 16; ++k) {
    uint32_t bytes[kTiles][4];
    load_rows<Left, kTiles>(bytes, left, k);
    uint32_t l[kTiles][2][4];
    REFOLD_UNROLL
    for (int i = 0; i < kTiles; ++i)
      REFOLD_UNROLL
    for (int part = 0; part < 4; ++part)
      widen_four<L>(l[i][part / 2][part % 2], l[i][part / 2][2 + part % 2],
                    bytes[i][part]);
    REFOLD_UNROLL
    for (int c = 0; c < kParts / 2; ++c) {
      uint32_t r[4];
      load_matrices(r, Right::down(Right::right(b, 2 * k), c * 16));
      REFOLD_UNROLL
      for (int part = 0; part < 4; ++part) {
        uint32_t low, high;
        widen_four<R>(low, high, r[part]);
        REFOLD_UNROLL
        for (int i = 0; i < kTiles; ++i)
          multiply_matrices(sums[i][2 * c + part / 2], l[i][part % 2], low,
                            high, f16{});
      }
    }
  }
}

/// A rectangle of left * right and all that is made of it. `kVectorOf` is 16
/// where rows of `left` and of the transpose of `right`, and of results, lie in
/// whole vectors of 16 bytes; otherwise 1: any strides.
template <int kRowWarpsOf, int kColumnWarpsOf, int kTilesOf, int kPartsOf,
          int kVectorOf>
struct F8Units : Units<kRowWarpsOf, kColumnWarpsOf, kTilesOf, kPartsOf> {
  using U = Units<kRowWarpsOf, kColumnWarpsOf, kTilesOf, kPartsOf>;
  using Left = Tile<U::kRows, U::kDepth>; // of pairs
  using Right = Tile<U::kColumns, U::kDepth>;
  static constexpr int kStepBytes = Left::kBytes + Right::kBytes;
  static constexpr int kBytes = U::kStages * kStepBytes;
  static constexpr int64_t kAlong = 2 * U::kDepth; ///< of the sum in a step

  template <typename L, typename R>
  REFOLD_DEVICE static void bring(uint32_t to, Matrix<const L> left,
                                  Matrix<const R> right, int64_t rows,
                                  int64_t columns, int64_t depth) {
    if constexpr (kVectorOf == 1) {
      gather_bytes<Left, U::kThreads>(to, left, rows, depth);
      gather_bytes<Right, U::kThreads>(
          to + Left::kBytes,
          Matrix<const R>{right.first, right.column_stride, right.row_stride},
          columns, depth);
    } else {
      const int64_t pairs = smaller(depth, kAlong) / 2;
      copy_tile<Left, U::kThreads, 8>(
          to, reinterpret_cast<const uint16_t *>(left.first),
          left.row_stride / 2, rows, pairs);
      copy_tile<Right, U::kThreads, 8>(
          to + Left::kBytes, reinterpret_cast<const uint16_t *>(right.first),
          right.column_stride / 2, columns, pairs);
    }
  }

  template <typename L, typename R, typename... To>
  REFOLD_DEVICE static void run(uint32_t memory, Matrix<const L> left,
                                Matrix<const R> right, int64_t rows,
                                int64_t columns, int64_t depth, const void *,
                                const To &...results) {
    const int64_t across = (columns + U::kColumns - 1) / U::kColumns;
    const int64_t row0 = block_quotient(block(), across) * U::kRows;
    const int64_t column0 = block_remainder(block(), across) * U::kColumns;
    const auto bring_step = [&](int64_t step, int place) {
      const int64_t k = step * kAlong;
      bring(memory + place * kStepBytes,
            Matrix<const L>{left.at(row0, k), left.row_stride,
                            left.column_stride},
            Matrix<const R>{right.at(k, column0), right.row_stride,
                            right.column_stride},
            rows - row0, columns - column0, depth - k);
    };
    float sums[U::kTiles][U::kParts][4] = {};
    const int warp = thread() / 32;
    const int warp_row = warp / U::kColumnWarps * U::kTiles * 16;
    const int warp_column = warp % U::kColumnWarps * U::kParts * 8;
    const int64_t steps = (depth + kAlong - 1) / kAlong;
    for (int64_t step = 0; step < U::kStages - 1; ++step) {
      if (step < steps)
        bring_step(step, int(step));
      commit_copies();
    }
    int place = 0;
    REFOLD_NO_UNROLL
    for (int64_t step = 0; step < steps; ++step) {
      wait_copies<U::kStages - 2>();
      block_barrier();
      const int64_t next = step + U::kStages - 1;
      if (next < steps)
        bring_step(next, place == 0 ? U::kStages - 1 : place - 1);
      commit_copies();
      const uint32_t stage = memory + place * kStepBytes;
      multiply_pairs<L, R, Left, Right>(sums,
                                        stage + warp_row * Left::kRowBytes,
                                        stage + Left::kBytes, warp_column);
      place = place + 1 == U::kStages ? 0 : place + 1;
    }
    write_rows<kVectorOf>(row0 + warp_row, column0 + warp_column, rows, columns,
                          sums, results...);
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_H
