// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of floats of 8 bits on sm_90a, by matrix units for them: four warps
// copy, eight multiply, and a block computes one rectangle after the other.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H

#include "refold_cuda_products_f8.h"
#include "refold_cuda_wgmma.h"

namespace refold {

/// Rectangles of 128 rows, 64 for each four warps that multiply, in steps of
/// 128 along the sum. Sums of `kTogether` steps are made by the matrix units,
/// with some 14 bits, and added up in f32; 0: of all.
template <int kColumnsOf, int kStagesOf, int kTogetherOf> struct F8Roles {
  static constexpr int kThreads = 384, kRows = 128, kColumns = kColumnsOf;
  static constexpr int kStages = kStagesOf, kTogether = kTogetherOf;
  static constexpr int64_t kDepth = 128;
  using Left = Panels<kRows, kDepth / 2>; // of pairs
  using Right = Panels<kColumns, kDepth / 2>;
  static constexpr int kStepBytes = Left::kBytes + Right::kBytes;
  static constexpr int kBytes = kStages * (kStepBytes + 16);
  static constexpr int kParts = kColumns / 8;

  /// One step of what four warps multiply.
  template <typename L, typename R>
  REFOLD_DEVICE static void multiply(float (&sums)[kParts][4], uint32_t from,
                                     int group, bool adds) {
    REFOLD_UNROLL
    for (int k = 0; k < 4; ++k) {
      const uint64_t a =
          describe(from + group * 64 * Left::kRowBytes + k * 32, 16);
      const uint64_t b = describe(from + Left::kBytes + k * 32, 16);
      if constexpr (kColumns == 256)
        multiply_bytes_256<0>(sums, a, b, k != 0 || adds, L{}, R{});
      else if constexpr (kColumns == 128)
        multiply_bytes_128<0>(sums, a, b, k != 0 || adds, L{}, R{});
      else
        multiply_bytes_64<0>(sums, a, b, k != 0 || adds, L{}, R{});
    }
  }

  template <typename L, typename R, typename... To>
  REFOLD_DEVICE static void
  run(uint32_t memory, Matrix<const L> left, Matrix<const R> right,
      int64_t rows, int64_t columns, int64_t depth, const To &...results) {
    const uint32_t came = memory + kStages * kStepBytes;
    const uint32_t gone = came + 8 * kStages;
    if (thread() == 0)
      for (int place = 0; place < kStages; ++place) {
        make_gate(came + 8 * place, 128);
        make_gate(gone + 8 * place, 8);
      }
    block_barrier();
    const int64_t across = (columns + kColumns - 1) / kColumns;
    const int64_t all = across * ((rows + kRows - 1) / kRows);
    const int steps = int((depth + kDepth - 1) / kDepth);
    uint32_t turn = 0; // steps before, of all rectangles
    if (of_warp(thread() / 32) < 4) {
      give_registers<56>();
      for (int64_t at = block(); at < all; at += blocks()) {
        const int64_t row0 = block_quotient(at, across) * kRows;
        const int64_t column0 = block_remainder(at, across) * kColumns;
        REFOLD_NO_UNROLL
        for (int step = 0; step < steps; ++step, ++turn) {
          const uint32_t place = turn % kStages;
          const uint32_t to = memory + place * kStepBytes;
          const int64_t k = step * kDepth;
          const int64_t pairs = smaller(depth - k, kDepth) / 2;
          wait_gate(gone + 8 * place, (turn / kStages + 1) & 1);
          copy_panels<Left>(
              to, reinterpret_cast<const uint16_t *>(left.at(row0, k)),
              left.row_stride / 2, rows - row0, pairs);
          copy_panels<Right>(
              to + Left::kBytes,
              reinterpret_cast<const uint16_t *>(right.at(k, column0)),
              right.column_stride / 2, columns - column0, pairs);
          arrive_with_copies(came + 8 * place);
        }
      }
      wait_copies<0>();
      return;
    }
    take_registers<224>();
    const int group = of_warp(thread() / 128 - 1);
    const auto release = [&](uint32_t step) {
      if (thread() % 32 == 0)
        arrive(gone + 8 * (step % kStages));
    };
    for (int64_t at = block(); at < all; at += blocks()) {
      float sums[1][kParts][4] = {};
      [[maybe_unused]] float parts[kParts][4] = {};
      REFOLD_NO_UNROLL
      for (int step = 0; step < steps; ++step, ++turn) {
        const uint32_t place = turn % kStages;
        wait_gate(came + 8 * place, (turn / kStages) & 1);
        show_matrices();
        begin_products();
        if constexpr (kTogether == 0) {
          multiply<L, R>(sums[0], memory + place * kStepBytes, group,
                         step != 0);
          commit_products();
          // The step before is done: its place is free.
          wait_products<1>();
          if (step > 0)
            release(turn - 1);
        } else {
          multiply<L, R>(parts, memory + place * kStepBytes, group,
                         step % kTogether != 0);
          commit_products();
          wait_products<0>();
          release(turn);
          if (step % kTogether == kTogether - 1 || step + 1 == steps) {
            settle(parts);
            REFOLD_UNROLL
            for (int c = 0; c < kParts; ++c)
              REFOLD_UNROLL
            for (int i = 0; i < 4; ++i)
              sums[0][c][i] += parts[c][i];
          }
        }
      }
      if constexpr (kTogether == 0) {
        wait_products<0>();
        settle(sums[0]);
        if (steps > 0)
          release(turn - 1);
      }
      const int64_t row0 = block_quotient(at, across) * kRows + group * 64 +
                           thread() % 128 / 32 * 16;
      const int64_t column0 = block_remainder(at, across) * kColumns;
      REFOLD_UNROLL
      for (int half = 0; half < 2; ++half)
        (write_row<16>(results, row0 + fragment_row(half), column0, rows,
                       columns, sums, 0, half),
         ...);
    }
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H
