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
/// of them under way, the others multiply. Boxed: the first ones are copied by
/// all four, so that nothing waits for maps, which warps that multiply make
/// meanwhile; those behind them by boxes, a warp for each side.
template <int kColumnsOf, int kStagesOf, bool kIsBoxedOf> struct RoleUnits {
  static constexpr int kThreads = 256, kRows = 64, kColumns = kColumnsOf;
  static constexpr int kDepth = 64, kStages = kStagesOf;
  static constexpr bool kIsBoxed = kIsBoxedOf;
  using Left = Panels<kRows, kDepth>;
  using Right = Panels<kColumns, kDepth>;
  static constexpr int kStepBytes = Left::kBytes + Right::kBytes;
  static constexpr int kMapBytes = kIsBoxed ? 2 * 128 : 0;

  /// Gates of steps: they came, and what multiplies is done with them; those of
  /// the first round come by themselves where others are boxed.
  struct Ring {
    uint32_t memory, came, gone, first;
    REFOLD_DEVICE Ring(uint32_t memory)
        : memory(memory), came(memory + kStages * kStepBytes + kMapBytes),
          gone(came + 8 * kStages),
          first(kIsBoxed ? gone + 8 * kStages : came) {}
    /// Where maps are made.
    REFOLD_DEVICE uint32_t scratch() const {
      return memory + kStages * kStepBytes;
    }
    REFOLD_DEVICE void make() const {
      for (int place = 0; place < kStages; ++place) {
        make_gate(first + 8 * place, 128);
        make_gate(gone + 8 * place, 4);
        if constexpr (kIsBoxed)
          make_gate(came + 8 * place, 2);
      }
      if constexpr (kIsBoxed)
        show_matrices(); // the gates, to copies that arrive at them
    }
  };

  /// By four warps: all steps, or those of the first round.
  template <typename T>
  REFOLD_DEVICE static void copy(const Ring &ring, Matrix<const T> left,
                                 Matrix<const T> right, int rows, int columns,
                                 int64_t depth) {
    PanelChunks<Left, T> lefts(left.first, left.row_stride);
    PanelChunks<Right, T> rights(right.first, right.column_stride);
    int place = 0, parity = 1;
    REFOLD_NO_UNROLL
    for (; depth > 0; depth -= kDepth) {
      const int count = int(smaller(depth, kDepth));
      const uint32_t to = ring.memory + place * kStepBytes;
      if constexpr (!kIsBoxed)
        wait_gate(ring.gone + 8 * place, parity);
      lefts.bring(to, rows, count);
      rights.bring(to + Left::kBytes, columns, count);
      lefts.source += kDepth;
      rights.source += kDepth;
      arrive_with_copies(ring.first + 8 * place);
      place = place + 1 == kStages ? 0 : place + 1;
      parity ^= place == 0;
    }
  }
  /// By one lane: what is behind the first round, of one side.
  template <typename Side>
  REFOLD_DEVICE static void copy_boxes(const Ring &ring, int offset,
                                       const unsigned char *map,
                                       int64_t depth) {
    see_map(map);
    int place = 0, parity = 0;
    REFOLD_NO_UNROLL
    for (int64_t k = kStages * kDepth; k < depth; k += kDepth) {
      wait_gate(ring.gone + 8 * place, parity);
      arrive_expecting(ring.came + 8 * place, Side::kBytes);
      copy_box(ring.memory + place * kStepBytes + offset, map,
               ring.came + 8 * place, int(k) * 2, 0);
      place = place + 1 == kStages ? 0 : place + 1;
      parity ^= place == 0;
    }
  }

  template <typename T>
  REFOLD_DEVICE static void multiply(float (&sums)[kColumns / 8][4],
                                     const Ring &ring, int64_t depth) {
    int place = 0, parity = 0, is_first = kIsBoxed;
    REFOLD_NO_UNROLL
    for (int64_t k = 0; k < depth; k += kDepth) {
      const uint32_t from = ring.memory + place * kStepBytes;
      wait_gate((is_first ? ring.first : ring.came) + 8 * place, parity);
      show_matrices();
      begin_products();
      add_panels<T, Left, Right>(sums, from, from + Left::kBytes);
      commit_products();
      // The step before is done: its place is free.
      wait_products<1>();
      if (k > 0 && thread() % 32 == 0)
        arrive(ring.gone + 8 * (place == 0 ? kStages - 1 : place - 1));
      place = place + 1 == kStages ? 0 : place + 1;
      if (place == 0) {
        parity ^= !is_first;
        is_first = false;
      }
    }
    wait_products<0>();
  }

  /// `maps`: memory of the block for them.
  template <bool kIsTransposed, int kVector, typename T>
  REFOLD_DEVICE static void sum(uint32_t memory, Matrix<const T> left,
                                Matrix<const T> right, int64_t all_rows,
                                int64_t all_columns, int64_t depth,
                                [[maybe_unused]] unsigned char *maps) {
    static_assert(kIsTransposed && kVector == 8);
    const Ring ring(memory);
    if (thread() == 0)
      ring.make();
    block_barrier();
    float sums[kColumns / 8][4] = {};
    const int rows = int(smaller(all_rows, kRows)), columns = int(all_columns);
    constexpr int64_t kRound = kIsBoxed ? kStages * kDepth : int64_t(1) << 62;
    [[maybe_unused]] const bool has_boxes = depth > kRound;
    const int warp = of_warp(thread() / 32);
    if (warp < 4) {
      copy(ring, left, right, rows, columns, smaller(depth, kRound));
      if constexpr (kIsBoxed) {
        if (has_boxes && warp < 2) {
          await_turn(1, 128);
          if (thread() == 0)
            copy_boxes<Left>(ring, 0, maps, depth);
          else if (thread() == 32)
            copy_boxes<Right>(ring, Left::kBytes, maps + 128, depth);
          warp_barrier();
        }
      }
      wait_copies<0>();
    } else {
      if constexpr (kIsBoxed) {
        if (has_boxes && warp < 6) {
          if (warp == 4)
            make_map(maps, ring.scratch(), left.first, rows, depth * 2,
                     left.row_stride * 2, kRows);
          else
            make_map(maps + 128, ring.scratch() + 128, right.first, columns,
                     depth * 2, right.column_stride * 2, kColumns);
          pass_turn(1, 128);
        }
      }
      multiply<T>(sums, ring, depth);
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
