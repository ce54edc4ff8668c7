// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of 16 bits outside cascades on sm_90a: four warps copy, the others
// multiply and write.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_PANELS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_PANELS_H

#include "refold_cuda_products.h"
#include "refold_cuda_wgmma.h"

namespace refold {

template <bool kIsFirst, typename A, typename B> struct Choice {
  using Type = A;
};
template <typename A, typename B> struct Choice<false, A, B> {
  using Type = B;
};

/// The activation of a number that is rounded to 16 bits then: within 5e-5 of
/// its size. Without branches, so that those of several numbers overlap:
/// erfc(z) is t P(t) exp(-z^2) for t = 1 / (1 + 0.53 z), P fitted for the
/// smallest largest relative error.
template <Activation kActivation>
REFOLD_DEVICE float activate_narrow(float x, float erf_scale) {
  if constexpr (kActivation != Activation::GeluErf)
    return activate<kActivation>(x, erf_scale);
  constexpr float kLogE = 1.4426950408889634f;
  const float root = x * erf_scale;
  const float z = root < 0.0f ? -root : root;
  const float t = reciprocal_fast(multiply_add(0.53f, z, 1.0f));
  float p = multiply_add(-0.18300071f, t, 0.40533066f);
  p = multiply_add(p, t, 0.16344114f);
  p = multiply_add(p, t, 0.31638375f);
  p = multiply_add(p, t, 0.29781976f);
  const float tail = p * t * exp2_fast(-kLogE * z * z);
  return 0.5f * x * (root < 0.0f ? tail : 2.0f - tail);
}

/// Rectangles of `kGroups` times 64 rows, 64 for each four warps that multiply,
/// in steps of `kDepth` along the sum, `kStages` of them under way.
template <int kGroupsOf, int kColumnsOf, int kStagesOf, int kDepthOf = 64>
struct PanelUnits {
  static constexpr int kGroups = kGroupsOf, kColumns = kColumnsOf;
  static constexpr int kThreads = 128 + kGroups * 128, kRows = kGroups * 64;
  static constexpr int kDepth = kDepthOf, kStages = kStagesOf;
  static constexpr int kParts = kColumns / 8;
  using Left = Panels<kRows, kDepth>;
  using Across = Panels<kColumns, kDepth>;
  using Along = Panels<kDepth, kColumns>;
  static constexpr int kStepBytes = Left::kBytes + Across::kBytes;
  static constexpr int kBytes = kStages * (kStepBytes + 16);
  static_assert(Across::kBytes == Along::kBytes);
  // Each role ends by itself: registers move only where sums need more of them
  // than a thread has at the launch.
  static constexpr bool kMovesRegisters = kGroups * kColumns > 256;

  /// One step of what four warps multiply.
  template <bool kIsTransposed, typename T>
  REFOLD_DEVICE static void add(float (&sums)[kParts][4], uint32_t left,
                                uint32_t right) {
    const uint64_t left_at = describe(left, 16);
    const uint64_t right_at =
        describe(right, kIsTransposed ? 16 : Along::kPanelBytes);
    REFOLD_UNROLL
    for (int k = 0; k < kDepth / 16; ++k) {
      const uint64_t a =
          further(left_at, k / 4 * Left::kPanelBytes + k % 4 * 32);
      if constexpr (kIsTransposed) {
        const uint64_t b =
            further(right_at, k / 4 * Across::kPanelBytes + k % 4 * 32);
        if constexpr (kColumns == 256)
          multiply_shared_256<0>(sums, a, b, 1, T{});
        else if constexpr (kColumns == 128)
          multiply_shared_128<0>(sums, a, b, 1, T{});
        else
          multiply_shared_64<0>(sums, a, b, 1, T{});
      } else {
        const uint64_t b = further(right_at, k * 16 * Along::kRowBytes);
        if constexpr (kColumns == 256)
          multiply_along_256<0>(sums, a, b, 1, T{});
        else if constexpr (kColumns == 128)
          multiply_along_128<0>(sums, a, b, 1, T{});
        else
          multiply_along_64<0>(sums, a, b, 1, T{});
      }
    }
  }

  template <typename R, typename B, Activation kActivation>
  REFOLD_DEVICE static float finish(const Target<R, B, kActivation> &target,
                                    float sum, float added) {
    const float x = target.bias != nullptr ? sum + added : sum;
    return sizeof(R) == 2 ? activate_narrow<kActivation>(x, target.erf_scale)
                          : activate<kActivation>(x, target.erf_scale);
  }

  /// Writes what a warp has of 16 rows; `biases` of its lanes are those of two
  /// columns each.
  template <typename To>
  REFOLD_DEVICE static void write(const To &target, int64_t row0,
                                  int64_t column0,
                                  const float (&sums)[kParts][4],
                                  const float (&biases)[kColumns / 64][2]) {
    using R = typename To::Result;
    const int64_t left = target.columns - column0;
    REFOLD_UNROLL
    for (int part = 0; part < kParts; part += 4) {
      float added[4][2];
      REFOLD_UNROLL
      for (int c = 0; c < 4; ++c)
        REFOLD_UNROLL
      for (int e = 0; e < 2; ++e)
        added[c][e] = shuffle_from(biases[part / 8][e],
                                   (part + c) % 8 * 4 + thread() % 4);
      REFOLD_UNROLL
      for (int half = 0; half < 2; ++half) {
        const int64_t row = row0 + fragment_row(half);
        float values[4][2];
        REFOLD_UNROLL
        for (int c = 0; c < 4; ++c)
          REFOLD_UNROLL
        for (int e = 0; e < 2; ++e)
          values[c][e] =
              finish(target, sums[part + c][half * 2 + e], added[c][e]);
        R *const to = target.to.at(row, column0 + part * 8);
        const bool is_row = row < target.rows;
        if constexpr (sizeof(R) == 2) {
          uint32_t words[4];
          REFOLD_UNROLL
          for (int c = 0; c < 4; ++c)
            words[c] = pack(values[c][0], values[c][1], R{});
          store_quads(is_row ? reinterpret_cast<char *>(to) : nullptr, words,
                      (left - part * 8) * 2);
        } else {
          REFOLD_UNROLL
          for (int c = 0; c < 4; c += 2) {
            uint32_t words[4];
            exchange_quads(words, values[c], values[c + 1]);
            const int column = c * 8 + fragment_quad();
            if (is_row && part * 8 + column < left)
              store_words<16>(reinterpret_cast<char *>(to + column), words);
          }
        }
      }
    }
  }

  /// `kIsAhead`: no launch writes the right side, which is then copied while
  /// launches before are under way.
  template <bool kIsTransposed, bool kIsAhead, typename T>
  REFOLD_DEVICE static void copy(uint32_t memory, Matrix<const T> left,
                                 Matrix<const T> right, int rows, int columns,
                                 int64_t depth) {
    using Right = typename Choice<kIsTransposed, Across, Along>::Type;
    const uint32_t came = memory + kStages * kStepBytes;
    const uint32_t gone = came + 8 * kStages;
    PanelChunks<Left, T> lefts(left.first, left.row_stride);
    PanelChunks<Right, T> rights(
        right.first, kIsTransposed ? right.column_stride : right.row_stride);
    const auto bring_right = [&](int place, int count) {
      const uint32_t to = memory + place * kStepBytes + Left::kBytes;
      if constexpr (kIsTransposed)
        rights.bring(to, columns, count);
      else
        rights.bring(to, count, columns);
      rights.source += kIsTransposed ? kDepth : kDepth * right.row_stride;
    };
    int ahead = 0;
    if constexpr (kIsAhead) {
      REFOLD_NO_UNROLL
      for (; ahead < kStages && ahead * kDepth < depth; ++ahead)
        bring_right(ahead, int(smaller(depth - ahead * kDepth, kDepth)));
    }
    follow_launch();
    int place = 0, parity = 1;
    REFOLD_NO_UNROLL
    for (; depth > 0; depth -= kDepth) {
      const int count = int(smaller(depth, kDepth));
      wait_gate(gone + 8 * place, parity);
      lefts.bring(memory + place * kStepBytes, rows, count);
      lefts.source += kDepth;
      if (--ahead < 0)
        bring_right(place, count);
      arrive_with_copies(came + 8 * place);
      place = place + 1 == kStages ? 0 : place + 1;
      parity ^= place == 0;
    }
    wait_copies<0>();
  }

  /// Sums of which each of several blocks has a part: leaves them where all
  /// others are, in the order in which threads have them.
  REFOLD_DEVICE static void leave_sums(unsigned char *left, int part,
                                       const float (&sums)[kParts][4]) {
    unsigned char *const own =
        left + part * int64_t(kRows * kColumns * 4) + (thread() - 128) * 16;
    REFOLD_UNROLL
    for (int c = 0; c < kParts; ++c) {
      const uint32_t words[4] = {bits_of(sums[c][0]), bits_of(sums[c][1]),
                                 bits_of(sums[c][2]), bits_of(sums[c][3])};
      leave_words<16>(own + c * kGroups * 2048, words);
    }
  }
  /// Adds up those of all parts, in their order.
  REFOLD_DEVICE static void take_sums(float (&sums)[kParts][4],
                                      const unsigned char *left, int parts) {
    const unsigned char *from = left + (thread() - 128) * 16;
    REFOLD_UNROLL
    for (int c = 0; c < kParts; ++c)
      REFOLD_UNROLL
    for (int e = 0; e < 4; ++e)
      sums[c][e] = 0.0f;
    const auto add = [&](auto number) {
      constexpr int kNumber = decltype(number)::value;
      uint32_t words[kNumber][kParts][4];
      REFOLD_UNROLL
      for (int i = 0; i < kNumber; ++i)
        REFOLD_UNROLL
      for (int c = 0; c < kParts; ++c)
        take_words<16>(words[i][c],
                       from + i * kRows * kColumns * 4 + c * kGroups * 2048);
      REFOLD_UNROLL
      for (int i = 0; i < kNumber; ++i)
        REFOLD_UNROLL
      for (int c = 0; c < kParts; ++c)
        REFOLD_UNROLL
      for (int e = 0; e < 4; ++e)
        sums[c][e] = sums[c][e] + float_of(words[i][c][e]);
      from += kNumber * kRows * kColumns * 4;
    };
    // Two at once: what it waits for is the way.
    REFOLD_NO_UNROLL
    for (int part = 2; part <= parts; part += 2)
      add(Number<2>{});
    if (parts % 2 != 0)
      add(Number<1>{});
  }

  /// The rectangle at `row0` and `column0`; rows of all three matrices, or of
  /// the right one's transpose (`kIsTransposed`), lie in whole vectors of 16
  /// bytes. `shares`: the blocks that share its sums.
  template <bool kIsTransposed, bool kIsAhead, typename T, typename To,
            typename Shares>
  REFOLD_DEVICE static void run(uint32_t memory, Matrix<const T> left,
                                Matrix<const T> right, const To &target,
                                int64_t all, int64_t row0, int64_t column0,
                                const Shares &shares) {
    const uint32_t came = memory + kStages * kStepBytes;
    const uint32_t gone = came + 8 * kStages;
    invite_launch();
    const auto [first, depth] =
        part_of_depth<kDepth>(all, shares.parts, shares.part);
    if (thread() == 0)
      for (int place = 0; place < kStages; ++place) {
        make_gate(came + 8 * place, 128);
        make_gate(gone + 8 * place, 4 * kGroups);
      }
    block_barrier();
    if (of_warp(thread() / 32) < 4) {
      if constexpr (kMovesRegisters)
        give_registers<56>();
      copy<kIsTransposed, kIsAhead, T>(
          memory, {left.at(row0, first), left.row_stride, left.column_stride},
          {right.at(first, column0), right.row_stride, right.column_stride},
          int(smaller(target.rows - row0, kRows)),
          int(smaller(target.columns - column0, kColumns)), depth);
      if constexpr (Shares::kMayShare)
        if (shares.parts > 1)
          is_last_block(shares.ticket, shares.parts);
      return;
    }
    if constexpr (kMovesRegisters)
      take_registers<224>();
    follow_launch();
    const int group = of_warp(thread() / 128 - 1);
    float biases[kColumns / 64][2];
    REFOLD_UNROLL
    for (int i = 0; i < kColumns / 32; ++i)
      biases[i / 2][i % 2] =
          target.bias_of(column0 + i / 2 * 64 + thread() % 32 * 2 + i % 2);
    float sums[kParts][4] = {};
    int place = 0, parity = 0;
    REFOLD_NO_UNROLL
    for (int64_t k = 0; k < depth; k += kDepth) {
      const uint32_t from = memory + place * kStepBytes;
      wait_gate(came + 8 * place, parity);
      show_matrices();
      begin_products();
      add<kIsTransposed, T>(sums, from + group * 64 * Left::kRowBytes,
                            from + Left::kBytes);
      commit_products();
      // The step before is done: its place is free.
      wait_products<1>();
      if (k > 0 && thread() % 32 == 0)
        arrive(gone + 8 * (place == 0 ? kStages - 1 : place - 1));
      place = place + 1 == kStages ? 0 : place + 1;
      parity ^= place == 0;
    }
    wait_products<0>();
    settle(sums);
    if constexpr (Shares::kMayShare)
      if (shares.parts > 1) {
        // Of warps that have rows at all.
        const bool has_rows =
            row0 + group * 64 + thread() % 128 / 32 * 16 < target.rows;
        if (has_rows)
          leave_sums(shares.left, shares.part, sums);
        if (!is_last_block(shares.ticket, shares.parts) || !has_rows)
          return;
        take_sums(sums, shares.left, shares.parts);
      }
    write(target, row0 + group * 64 + thread() % 128 / 32 * 16, column0, sums,
          biases);
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_PANELS_H
