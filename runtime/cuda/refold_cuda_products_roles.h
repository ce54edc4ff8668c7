// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows of products on sm_90a: four warps copy, four multiply, and all of them
// fold the rows.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROLES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROLES_H

#include "refold_cuda_products_rows.h"
#include "refold_cuda_wgmma.h"

namespace refold {

/// sums += left * right^T, as `multiply_panels` but that it adds.
template <typename T, typename Left, typename Right, int kRow = 0, int kParts>
REFOLD_DEVICE void add_panels(float (&sums)[kParts][4], uint32_t left,
                              uint32_t right) {
  static_assert(kParts * 8 == Right::kRows &&
                Left::kColumns == Right::kColumns);
  constexpr int kPiece =
      Right::kRows - kRow >= 256 ? 256 : piece_of(Right::kRows - kRow);
  const uint64_t left_at = describe(left, 16);
  const uint64_t right_at = describe(right + kRow * Right::kRowBytes, 16);
  REFOLD_UNROLL
  for (int k = 0; k < Left::kColumns / 16; ++k) {
    const uint64_t a = further(left_at, k / 4 * Left::kPanelBytes + k % 4 * 32);
    const uint64_t b =
        further(right_at, k / 4 * Right::kPanelBytes + k % 4 * 32);
    if constexpr (kPiece == 256)
      multiply_shared_256<kRow / 8>(sums, a, b, 1, T{});
    else if constexpr (kPiece == 128)
      multiply_shared_128<kRow / 8>(sums, a, b, 1, T{});
    else if constexpr (kPiece == 64)
      multiply_shared_64<kRow / 8>(sums, a, b, 1, T{});
    else if constexpr (kPiece == 32)
      multiply_shared_32<kRow / 8>(sums, a, b, 1, T{});
    else
      multiply_shared_16<kRow / 8>(sums, a, b, 1, T{});
  }
  if constexpr (kRow + kPiece < Right::kRows)
    add_panels<T, Left, Right, kRow + kPiece>(sums, left, right);
}

/// A block of 64 rows: the first four warps copy steps of 64, up to `kStages`
/// of them under way, the others multiply.
template <int kColumnsOf, int kStagesOf> struct RoleUnits {
  static constexpr int kThreads = 256, kRows = 64, kColumns = kColumnsOf;
  static constexpr int kDepth = 64, kStages = kStagesOf;
  using Left = Panels<kRows, kDepth>;
  using Right = Panels<kColumns, kDepth>;
  static constexpr int kStepBytes = Left::kBytes + Right::kBytes;
  static constexpr int kBytes = kStages * (kStepBytes + 16);

  template <bool kIsTransposed, int kVector, typename T>
  REFOLD_DEVICE static void sum(uint32_t memory, Matrix<const T> left,
                                Matrix<const T> right, int64_t rows,
                                int64_t columns, int64_t depth) {
    static_assert(kIsTransposed && kVector == 8);
    const uint32_t came = memory + kStages * kStepBytes;
    const uint32_t gone = came + 8 * kStages;
    if (thread() == 0)
      for (int place = 0; place < kStages; ++place) {
        make_gate(came + 8 * place, 128);
        make_gate(gone + 8 * place, 4);
      }
    block_barrier();
    float sums[kColumns / 8][4] = {};
    if (of_warp(thread() / 32) < 4) {
      PanelChunks<Left, T> lefts(left.first, left.row_stride);
      PanelChunks<Right, T> rights(right.first, right.column_stride);
      int place = 0, parity = 1;
      REFOLD_NO_UNROLL
      for (; depth > 0; depth -= kDepth) {
        const int count = int(smaller(depth, kDepth));
        const uint32_t to = memory + place * kStepBytes;
        wait_gate(gone + 8 * place, parity);
        lefts.bring(to, int(smaller(rows, kRows)), count);
        rights.bring(to + Left::kBytes, int(columns), count);
        lefts.source += kDepth;
        rights.source += kDepth;
        arrive_with_copies(came + 8 * place);
        place = place + 1 == kStages ? 0 : place + 1;
        parity ^= place == 0;
      }
      wait_copies<0>();
    } else {
      int place = 0, parity = 0;
      REFOLD_NO_UNROLL
      for (int64_t k = 0; k < depth; k += kDepth) {
        const uint32_t from = memory + place * kStepBytes;
        wait_gate(came + 8 * place, parity);
        show_matrices();
        begin_products();
        add_panels<T, Left, Right>(sums, from, from + Left::kBytes);
        commit_products();
        // The step before is done: its place is free.
        wait_products<1>();
        if (k > 0 && thread() % 32 == 0)
          arrive(gone + 8 * (place == 0 ? kStages - 1 : place - 1));
        place = place + 1 == kStages ? 0 : place + 1;
        parity ^= place == 0;
      }
      wait_products<0>();
    }
    settle(sums);
    // Everything has come and is multiplied: rows may lie there.
    block_barrier();
    if (thread() < 128)
      return;
    REFOLD_UNROLL
    for (int c = 0; c < kColumns / 16; ++c)
      keep_sums<SumRows<kColumns>>(memory, thread() / 32 * 16 - 64, c * 16,
                                   sums[2 * c], sums[2 * c + 1]);
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_ROLES_H
