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
/// `place_of(r, c)`; what is not there is 0.
template <int kThreads, int kRows, int kChunks, typename PlaceOf,
          typename RowOf>
REFOLD_DEVICE void gather_rows(int which, PlaceOf place_of, RowOf row_of,
                               int rows, int64_t columns) {
  REFOLD_NO_UNROLL
  for (int row = which / 8; row < kRows; row += kThreads / 8) {
    const auto *const from = row_of(row < rows ? row : 0);
    REFOLD_NO_UNROLL
    for (int chunk = which % 8; chunk < kChunks; chunk += 8) {
      const bool is_there = row < rows && chunk * 8 < columns;
      copy_async(place_of(row, chunk), is_there ? from + chunk * 8 : from,
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

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_WIDE_H
