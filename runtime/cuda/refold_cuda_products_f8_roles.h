// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of floats of 8 bits on sm_90a, by matrix units for them: four warps
// copy, eight multiply, and a block computes one rectangle after the other.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H

#include "refold_cuda_products_f8.h"
#include "refold_cuda_wgmma.h"

namespace refold {

/// Rectangles of 128 rows, 64 for each four warps that multiply, in steps of
/// 128 along the sum, which the matrix units make with some 14 bits. In parts:
/// each step for itself, and these are added up in f32.
template <int kColumnsOf, int kStagesOf, bool kIsInPartsOf> struct F8Roles {
  static constexpr int kThreads = 384, kRows = 128, kColumns = kColumnsOf;
  static constexpr int kStages = kStagesOf;
  static constexpr bool kIsInParts = kIsInPartsOf;
  static constexpr int64_t kDepth = 128;
  using Left = Panels<kRows, kDepth / 2>; // of pairs
  using Right = Panels<kColumns, kDepth / 2>;
  static constexpr int kStepBytes = Left::kBytes + Right::kBytes;
  static constexpr int kBytes = kStages * (kStepBytes + 16) + 256;
  static constexpr int kParts = kColumns / 8;
  static constexpr int kMapBytes = 256; ///< of the workspace, for each block

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
  REFOLD_DEVICE static void run(uint32_t memory, Matrix<const L> left,
                                Matrix<const R> right, int64_t rows,
                                int64_t columns, int64_t depth,
                                unsigned char *maps, const To &...results) {
    const uint32_t scratch = memory + kStages * kStepBytes;
    const uint32_t came = scratch + 256;
    const uint32_t gone = came + 8 * kStages;
    if (thread() == 0) {
      for (int place = 0; place < kStages; ++place) {
        make_gate(came + 8 * place, 1);
        make_gate(gone + 8 * place, 8);
      }
      show_matrices(); // the gates, to copies that arrive at them
    }
    block_barrier();
    const int64_t across = (columns + kColumns - 1) / kColumns;
    const int64_t all = across * ((rows + kRows - 1) / kRows);
    const int steps = int((depth + kDepth - 1) / kDepth);
    uint32_t turn = 0; // steps before, of all rectangles
    if (of_warp(thread() / 32) < 4) {
      give_registers<40>();
      if (of_warp(thread() / 32) != 0 || steps == 0)
        return;
      unsigned char *const left_map = maps + block() * kMapBytes;
      unsigned char *const right_map = left_map + 128;
      make_map(left_map, scratch, left.first, rows, depth, left.row_stride,
               kRows);
      make_map(right_map, scratch + 128, right.first, columns, depth,
               right.column_stride, kColumns);
      if (thread() != 0)
        return;
      for (int64_t at = block(); at < all; at += blocks()) {
        const int row0 = int(block_quotient(at, across)) * kRows;
        const int column0 = int(block_remainder(at, across)) * kColumns;
        REFOLD_NO_UNROLL
        for (int step = 0; step < steps; ++step, ++turn) {
          const uint32_t place = turn % kStages;
          const uint32_t to = memory + place * kStepBytes;
          wait_gate(gone + 8 * place, (turn / kStages + 1) & 1);
          arrive_expecting(came + 8 * place, kStepBytes);
          copy_box(to, left_map, came + 8 * place, step * int(kDepth), row0);
          copy_box(to + Left::kBytes, right_map, came + 8 * place,
                   step * int(kDepth), column0);
        }
      }
      return;
    }
    take_registers<232>();
    const int group = of_warp(thread() / 128 - 1);
    const auto release = [&](uint32_t step) {
      if (thread() % 32 == 0)
        arrive(gone + 8 * (step % kStages));
    };
    for (int64_t at = block(); at < all; at += blocks()) {
      float sums[1][kParts][4] = {};
      const auto begin = [&](float(&to)[kParts][4], int step, bool adds) {
        const uint32_t place = (turn + step) % kStages;
        wait_gate(came + 8 * place, ((turn + step) / kStages) & 1);
        begin_products();
        multiply<L, R>(to, memory + place * kStepBytes, group, adds);
        commit_products();
      };
      if constexpr (kIsInParts) {
        float parts[2][kParts][4];
        const auto add = [&](float(&from)[kParts][4], int step) {
          settle(from);
          release(turn + step);
          REFOLD_UNROLL
          for (int c = 0; c < kParts; ++c)
            REFOLD_UNROLL
          for (int i = 0; i < 4; ++i)
            sums[0][c][i] += from[c][i];
        };
        // One step is added up while the next is multiplied.
        int step = 0;
        REFOLD_NO_UNROLL
        for (; step + 1 < steps; step += 2) {
          begin(parts[0], step, false);
          begin(parts[1], step + 1, false);
          wait_products<1>();
          add(parts[0], step);
          wait_products<0>();
          add(parts[1], step + 1);
        }
        if (step < steps) {
          begin(parts[0], step, false);
          wait_products<0>();
          add(parts[0], step);
        }
      } else {
        REFOLD_NO_UNROLL
        for (int step = 0; step < steps; ++step) {
          begin(sums[0], step, step != 0);
          // The step before is done: its place is free.
          wait_products<1>();
          if (step > 0)
            release(turn + step - 1);
        }
      }
      write_rows<16>(
          block_quotient(at, across) * kRows + group * 64 +
              thread() % 128 / 32 * 16,
          block_remainder(at, across) * kColumns, rows, columns, sums,
          [&] {
            if constexpr (!kIsInParts) {
              wait_products<0>();
              settle(sums[0]);
              if (steps > 0)
                release(turn + steps - 1);
            }
          },
          results...);
      turn += steps;
    }
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H
