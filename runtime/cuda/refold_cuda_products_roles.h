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
  constexpr int kPiece = piece_of(Right::kRows - kRow);
  REFOLD_UNROLL
  for (int k = 0; k < Left::kColumns / 16; ++k) {
    const uint64_t a =
        describe(left + k / 4 * Left::kPanelBytes + k % 4 * 32, 16);
    const uint64_t b = describe(right + k / 4 * Right::kPanelBytes +
                                    kRow * Right::kRowBytes + k % 4 * 32,
                                16);
    if constexpr (kPiece == 128)
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
    const int steps = int((depth + kDepth - 1) / kDepth);
    float sums[kColumns / 8][4] = {};
    if (of_warp(thread() / 32) < 4) {
      REFOLD_NO_UNROLL
      for (int step = 0; step < steps; ++step) {
        const int place = step % kStages;
        const uint32_t to = memory + place * kStepBytes;
        const int64_t k = int64_t(step) * kDepth;
        const int64_t count = smaller(depth - k, kDepth);
        wait_gate(gone + 8 * place, (step / kStages + 1) & 1);
        copy_panels<Left>(to, left.at(0, k), left.row_stride, rows, count);
        copy_panels<Right>(to + Left::kBytes, right.at(k, 0),
                           right.column_stride, columns, count);
        arrive_with_copies(came + 8 * place);
      }
      wait_copies<0>();
    } else {
      REFOLD_NO_UNROLL
      for (int step = 0; step < steps; ++step) {
        const int place = step % kStages;
        const uint32_t from = memory + place * kStepBytes;
        wait_gate(came + 8 * place, (step / kStages) & 1);
        show_matrices();
        begin_products();
        add_panels<T, Left, Right>(sums, from, from + Left::kBytes);
        commit_products();
        // The step before is done: its place is free.
        wait_products<1>();
        if (step > 0 && thread() % 32 == 0)
          arrive(gone + 8 * ((step - 1) % kStages));
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
