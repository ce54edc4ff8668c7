// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrices of kernels whose results are wide, on sm_90a and in its emulation:
// four warps multiply 64 rows, kept in registers as far as these go, by panels
// of what streams by; others multiply what is made of the products by the same
// panels.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WIDE_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WIDE_H

#include "refold_cuda_shares.h"
#include "refold_cuda_wgmma.h"

namespace refold {

/// A matrix of 16-bit elements in shared memory, in steps of 16 columns: chunk
/// c of row r of one lies where chunk c ^ r / 4 % 2 would, which is what the
/// matrix units call a swizzle of 32 bytes. Begins at a multiple of 256 bytes.
template <int kRows, int kSteps> struct Steps {
  static constexpr int kStepBytes = kRows * 32, kBytes = kSteps * kStepBytes;
  static_assert(kRows % 8 == 0);

  REFOLD_DEVICE static uint32_t place(int row, int chunk) {
    return chunk / 2 * kStepBytes + row * 32 + ((chunk ^ row >> 2) & 1) * 16;
  }
};
/// What the matrix units are told of one step.
REFOLD_DEVICE uint64_t describe_step(uint32_t at) {
  return uint64_t((at & 0x3ffff) >> 4) | uint64_t(1) << 16 |
         uint64_t(256 >> 4) << 32 | uint64_t(3) << 62;
}

/// Begins to bring rows that lie anywhere, all `kThreads` threads of a role
/// together, of which this is the one with number `which`: chunk c of row r to
/// `place_of(r, c)`; what is not there is 0. Straight code for a row, whose
/// places are then known from the first one.
template <int kThreads, int kRows, int kChunks, typename PlaceOf,
          typename RowOf>
REFOLD_DEVICE void gather_rows(int which, PlaceOf place_of, RowOf row_of,
                               int rows, int64_t columns) {
  const int lane = which & 7;
  REFOLD_NO_UNROLL
  for (int row = which / 8; row < kRows; row += kThreads / 8) {
    const auto *const from = row_of(row < rows ? row : 0) + lane * 8;
    REFOLD_UNROLL
    for (int first = 0; first < kChunks; first += 8) {
      const int chunk = first + lane;
      if (kChunks % 8 != 0 && chunk >= kChunks)
        continue;
      const bool is_there = row < rows && chunk * 8 < columns;
      copy_async(place_of(row, chunk), is_there ? from + first * 8 : from,
                 is_there ? 16 : 0);
    }
  }
}

/// What a warp keeps of 16 of 64 rows, for products: the first `kSteps` steps
/// of panels that lie after each other.
template <typename Panel, int kSteps>
REFOLD_DEVICE void keep_steps(uint32_t (&to)[kSteps][4], uint32_t panels) {
  const int which = thread_again() % 128;
  const int row = which / 32 * 16 + which % 16;
  REFOLD_UNROLL
  for (int k = 0; k < kSteps; ++k)
    load_matrices(to[k], panels + k / 4 * Panel::kBytes +
                             Panel::place(row, k % 4 * 2 + which % 32 / 16));
}

/// products += left * right^T over the steps from `kFirst` to `kEnd`, where
/// `right` has panels from step `kBase` on; the first one of all begins them.
/// The left side's first steps are kept, the others lie after each other.
template <typename T, typename Left, typename Panel, int kBase, int kFirst,
          int kEnd, int kKept>
REFOLD_DEVICE void multiply_steps(float (&products)[8][4],
                                  const uint32_t (&kept)[kKept][4],
                                  uint32_t left, uint32_t right) {
  static_assert(Panel::kRows == 64 && kBase % 4 == 0);
  const uint64_t right_at = describe(right, 16);
  REFOLD_UNROLL
  for (int k = kFirst; k < kEnd; ++k) {
    const uint64_t panel =
        further(right_at, (k - kBase) / 4 * Panel::kBytes + k % 4 * 32);
    if (k < kKept)
      multiply_kept_64<0>(products, kept[k < kKept ? k : 0], panel, k != 0,
                          T{});
    else
      multiply_shared_64<0>(
          products, describe_step(left + (k - kKept) * Left::kStepBytes), panel,
          k != 0, T{});
  }
}

/// Puts what a warp has of 16 columns, from the k-th 16 on, into its 16 rows of
/// a panel.
template <typename Panel>
REFOLD_DEVICE void store_factors(const uint32_t (&from)[4], uint32_t panel,
                                 int k) {
  const int which = thread_again() % 128;
  store_matrices(panel + Panel::place(which / 32 * 16 + which % 16,
                                      2 * k + which % 32 / 16),
                 from);
}
/// sums += factors * values: 64 rows of a panel of factors, and as many panels
/// of values beside each other as the sums have columns for; under way until it
/// is waited for.
template <typename T, typename Panel, int kColumn = 0, int kParts>
REFOLD_DEVICE void multiply_values(float (&sums)[kParts][4], uint32_t factors,
                                   uint32_t values) {
  constexpr int kLeft = kParts * 8 - kColumn;
  constexpr int kPiece = kLeft >= 256 ? 256 : kLeft >= 128 ? 128 : 64;
  static_assert(kLeft >= 64 && Panel::kColumns == 64);
  const uint64_t factors_at = describe(factors, 16);
  const uint64_t values_at =
      describe(values + kColumn / 64 * Panel::kBytes, Panel::kBytes);
  REFOLD_UNROLL
  for (int k = 0; k < Panel::kRows / 16; ++k) {
    const uint64_t a = further(factors_at, k * 32);
    const uint64_t b = further(values_at, k * 16 * Panel::kRowBytes);
    if constexpr (kPiece == 256)
      multiply_along_256<kColumn / 8>(sums, a, b, 1, T{});
    else if constexpr (kPiece == 128)
      multiply_along_128<kColumn / 8>(sums, a, b, 1, T{});
    else
      multiply_along_64<kColumn / 8>(sums, a, b, 1, T{});
  }
  if constexpr (kLeft > kPiece)
    multiply_values<T, Panel, kColumn + kPiece>(sums, factors, values);
}

/// A number in 16 bytes of shared memory.
REFOLD_DEVICE void put_number(uint32_t to, float x) {
  const uint32_t words[4] = {bits_of(x), 0, 0, 0};
  store_shared(to, words);
}
REFOLD_DEVICE float take_number(uint32_t from) {
  uint32_t words[4];
  load_shared(words, from);
  return float_of(words[0]);
}

/// What blocks that share a stream have left of a slice of their rows, four
/// parts at a time: `kNumbers` of a row, which all threads of the role then see
/// in shared memory, and a quad of columns of each thread, which it has brought
/// to places of its own there. As many are under way as there are places; in
/// registers an eighth of that would be. All `kThreads` threads of the role
/// make one, and meet before they take numbers.
template <int kThreads, int kRows, int kSliceRows, int kWidth, int kNumbers,
          int kPlaces>
class LeftParts {
public:
  /// `sums` and `numbers`: of the first part and the first row of the slice;
  /// the next of the numbers are `apart` further on.
  REFOLD_DEVICE LeftParts(int which, int parts, const float *numbers,
                          int64_t apart, const float *sums, uint32_t places,
                          uint32_t numbers_at)
      : sums(sums + which * 4), places(places + which * 16),
        numbers_at(numbers_at), parts(parts),
        has_quad(which < kSliceRows * (kWidth / 4)) {
    static_assert(kPlaces >= 2 && kSliceRows * (kWidth / 4) <= kThreads);
    // Numbers are under way while quads are asked for.
    const int at = which / kSliceRows * 4;
    uint32_t quads[kNumbers > 0 ? kNumbers : 1][4] = {};
    REFOLD_UNROLL
    for (int i = 0; at < parts && i < 4 * kNumbers; ++i) {
      const int64_t part = smaller(at + i % 4, parts - 1);
      quads[i / 4][i % 4] = bits_of(take_left(
          numbers + i / 4 * apart + part * kRows + which % kSliceRows));
    }
    REFOLD_NO_UNROLL
    for (int i = 0; i < kPlaces - 1; ++i)
      ask();
    REFOLD_UNROLL
    for (int k = 0; k < kNumbers; ++k)
      if (at < parts)
        store_shared(numbers_at + (which * kNumbers + k) * 16, quads[k]);
  }
  /// The `k`-th of a row's numbers, of four parts.
  REFOLD_DEVICE void take_numbers(uint32_t (&to)[4], int part, int row,
                                  int k) const {
    load_shared(to, numbers_at +
                        ((part / 4 * kSliceRows + row) * kNumbers + k) * 16);
  }
  /// The thread's next four quads, of parts in their order; 0 of parts that are
  /// not there.
  REFOLD_DEVICE void take_quads(uint32_t (&to)[4][4]) {
    ask();
    wait_copies<kPlaces - 1>();
    REFOLD_UNROLL
    for (int j = 0; j < 4; ++j)
      load_shared(to[j], places + (taken * 4 + j) * (kThreads * 16));
    taken = taken + 1 < kPlaces ? taken + 1 : 0;
  }

private:
  REFOLD_DEVICE void ask() {
    if (has_quad && part < parts) {
      const float *const from = sums + int64_t(part) * (kRows * kWidth);
      REFOLD_UNROLL
      for (int j = 0; j < 4; ++j) {
        const bool is_there = part + j < parts;
        take_async(places + (place * 4 + j) * (kThreads * 16),
                   is_there ? from + j * (kRows * kWidth) : from,
                   is_there ? 16 : 0);
      }
    }
    commit_copies();
    place = place + 1 < kPlaces ? place + 1 : 0;
    part += 4;
  }

  const float *const sums;
  const uint32_t places, numbers_at;
  const int parts;
  const bool has_quad;
  int part = 0, place = 0, taken = 0;
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WIDE_H
