// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of floats of 8 bits on sm_90a, by matrix units for them: four warps
// copy, eight multiply, and a block computes one rectangle after the other.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H

#include "refold_cuda_products_f8.h"
#include "refold_cuda_wgmma.h"

namespace refold {

template <typename T, typename... More>
REFOLD_DEVICE const T &first_of(const T &first, const More &...) {
  return first;
}

/// Rectangles of 128 rows, 64 for each four warps that multiply, in steps of
/// 128 along the sum, which the matrix units make with some 14 bits. In parts:
/// each step for itself, and these are added up in f32. Of the first four
/// warps one copies the left side, one the right side, and two bring what all
/// elements of a row or of a column are made of.
template <int kColumnsOf, int kStagesOf, bool kIsInPartsOf> struct F8Roles {
  static constexpr int kThreads = 384, kRows = 128, kColumns = kColumnsOf;
  static constexpr int kStages = kStagesOf, kGroups = 2;
  static constexpr bool kIsInParts = kIsInPartsOf;
  static constexpr int64_t kDepth = 128;
  using Left = Panels<kRows, kDepth / 2>; // of pairs
  using Right = Panels<kColumns, kDepth / 2>;
  /// Results on their way out: 16 rows of 64 elements of 16 bits, two of these
  /// for each warp that multiplies.
  using Out = Panels<16, 64>;
  static constexpr int kStepBytes = Left::kBytes + Right::kBytes;
  static constexpr int kOutBytes = 2 * Out::kBytes;
  static constexpr int kBytes =
      kStages * (kStepBytes + 16) + 4 * kGroups * kOutBytes;
  static constexpr int kParts = kColumns / 8;
  /// Registers hold the sums and a part of 128 columns. A part of all columns
  /// is the sums themselves.
  static constexpr int kHalfParts = 16, kHalves = kParts / kHalfParts;
  static_assert(kColumns == 128 || kColumns == 256);
  // Turns of each four warps that multiply with those that bring numbers.
  static constexpr int kCame = 1, kGone = kCame + kGroups;
  static constexpr int kTurnThreads = 128 + 64;

  /// The numbers of two columns beside each other, as one lane has them: loaded
  /// at once where they have up to 16 bytes.
  template <typename Column>
  static constexpr int kPairBytes = 2 * int(sizeof(Column));
  template <typename Column>
  static constexpr int kPairAlign = kPairBytes<Column> & -kPairBytes<Column>;
  template <typename Column>
  struct alignas(kPairAlign<Column> < 16 ? kPairAlign<Column> : 16) Pair {
    Column numbers[2];
  };

  /// What a result is made of, before it is rounded.
  template <typename To>
  using Element = decltype(static_cast<const To *>(nullptr)->element(
      static_cast<const To *>(nullptr)->of_row(0), typename To::Column(), 0, 0,
      0.0f));
  /// Whether a result goes out by boxes.
  template <typename To>
  static constexpr bool kIsBoxed =
      sizeof(typename To::Result) == 2 && sizeof(Element<To>) == 4;

  /// One step of what four warps multiply, with kCount * 8 columns.
  template <int kCount, typename L, typename R>
  REFOLD_DEVICE static void multiply(float (&sums)[kCount][4], uint32_t left,
                                     uint32_t right, bool adds) {
    begin_products();
    const uint64_t left_at = describe(left, 16), right_at = describe(right, 16);
    REFOLD_UNROLL
    for (int k = 0; k < 4; ++k) {
      const uint64_t a = further(left_at, k * 32);
      const uint64_t b = further(right_at, k * 32);
      if constexpr (kCount == 32)
        multiply_bytes_256<0>(sums, a, b, k != 0 || adds, L{}, R{});
      else
        multiply_bytes_128<0>(sums, a, b, k != 0 || adds, L{}, R{});
    }
    commit_products();
  }

  /// A place of the ring of steps, and how often it has gone round.
  struct Place {
    int at = 0;
    uint32_t parity = 0;
    REFOLD_DEVICE void next() {
      at = at + 1 == kStages ? 0 : at + 1;
      parity ^= at == 0;
    }
  };
  /// Gates of the steps: they came, all that multiply are done with them.
  struct Ring {
    uint32_t memory, came, gone;
  };

  /// Brings one side of all steps of all rectangles, by one warp and its map.
  /// `first_of_rows` says where a rectangle has its first row of that side.
  template <int kBoxRows, typename First>
  REFOLD_DEVICE static void copy_side(const Ring &ring, int offset,
                                      int64_t depth, const ArrayMap *map,
                                      int64_t all, First first_of_rows) {
    if (thread() % 32 != 0)
      return;
    const int steps = int((depth + kDepth - 1) / kDepth);
    Place place;
    for (int64_t at = block(); at < all; at += blocks()) {
      const int row0 = int(first_of_rows(at));
      REFOLD_NO_UNROLL
      for (int step = 0; step < steps; ++step) {
        const uint32_t came = ring.came + 8 * place.at;
        wait_gate(ring.gone + 8 * place.at, place.parity ^ 1);
        arrive_expecting(came, kBoxRows * int(kDepth));
        copy_box(ring.memory + place.at * kStepBytes + offset, map, came,
                 step * int(kDepth), row0);
        place.next();
      }
    }
  }

  /// Brings what rows and columns of all rectangles are made of, two warps.
  template <typename To, typename Rows, typename Columns>
  REFOLD_DEVICE static void bring_numbers(const To &result, const Rows &of_rows,
                                          const Columns &of_columns,
                                          int64_t rows, int64_t columns,
                                          int64_t across, int64_t all) {
    const int own = thread() - 64;
    for (int64_t at = block(); at < all; at += blocks()) {
      const int64_t row0 = block_quotient(at, across) * kRows;
      const int64_t column0 = block_remainder(at, across) * kColumns;
      if (at != block())
        for (int group = 0; group < kGroups; ++group)
          await_turn(kGone + group, kTurnThreads);
      for (int i = own; i < kRows; i += 64)
        of_rows.store(i, result.of_row(smaller(row0 + i, rows - 1)));
      for (int i = own; i < kColumns / 2; i += 64) {
        Pair<typename To::Column> pair;
        for (int e = 0; e < 2; ++e)
          pair.numbers[e] =
              result.of_column(smaller(column0 + 2 * i + e, columns - 1));
        of_columns.store(i, pair);
      }
      for (int group = 0; group < kGroups; ++group)
        pass_turn(kCame + group, kTurnThreads);
    }
  }

  /// Where a warp writes of a rectangle, and what it is made of.
  template <typename Rows, typename Columns> struct Target {
    const Rows &of_rows;
    const Columns &of_columns;
    int64_t row0, column0, rows, columns;
    int own;              ///< its first row in the rectangle
    uint32_t out;         ///< its shared memory
    const ArrayMap *maps; ///< of the results of 16 bits from the first one on
  };

  /// Puts 16 columns of 16 rows where boxes go out from. Columns of a result
  /// come in vectors of 8: a part of them is there or not.
  template <typename To, typename T, typename Row>
  REFOLD_DEVICE static void
  place_out(const To &result, const T &target, const Row (&of_row)[2],
            const int64_t (&m)[2], uint32_t to, int first,
            const float (&sums)[kParts][4]) {
    uint32_t words[4];
    REFOLD_UNROLL
    for (int c = 0; c < 2; ++c) {
      const int part = first + c, column = part * 8 + fragment_column(0);
      const int64_t n = smaller(target.column0 + part * 8, target.columns - 8) +
                        fragment_column(0);
      const auto of_column = target.of_columns.load(column / 2);
      REFOLD_UNROLL
      for (int half = 0; half < 2; ++half) {
        const auto element = [&](int e) {
          return result.element(of_row[half], of_column.numbers[e], m[half],
                                n + e, sums[part][half * 2 + e]);
        };
        words[c * 2 + half] =
            pack(element(0), element(1), typename To::Result{});
      }
    }
    const int lane = thread() % 32;
    store_matrices(to + Out::place(lane % 16, first % 8 + lane / 16), words);
  }

  /// Writes the columns of kCount parts from `kFirst` on of all results, each
  /// 16 rows of a warp, while others multiply.
  template <int kFirst, int kCount, typename T, typename To, typename... More>
  REFOLD_DEVICE static void write(const T &target,
                                  const float (&sums)[1][kParts][4],
                                  const To &result, const More &...more) {
    const decltype(result.of_row(int64_t())) of_row[2] = {
        target.of_rows.load(target.own + fragment_row(0)),
        target.of_rows.load(target.own + fragment_row(1))};
    if constexpr (kIsBoxed<To>) {
      const int64_t m[2] = {
          smaller(target.row0 + fragment_row(0), target.rows - 1),
          smaller(target.row0 + fragment_row(1), target.rows - 1)};
      REFOLD_UNROLL
      for (int first = kFirst; first < kFirst + kCount; first += 8) {
        const uint32_t to = target.out + first / 8 % 2 * Out::kBytes;
        if (thread() % 32 == 0)
          wait_boxes<1>();
        warp_barrier();
        REFOLD_UNROLL
        for (int part = first; part < first + 8; part += 2)
          place_out(result, target, of_row, m, to, part, sums[0]);
        show_matrices();
        warp_barrier();
        if (thread() % 32 == 0) {
          store_box(target.maps, to, int(target.column0 + first * 8) * 2,
                    int(target.row0));
          commit_boxes();
        }
      }
    } else {
      REFOLD_UNROLL
      for (int first = kFirst; first < kFirst + kCount; first += 8) {
        ColumnNumbers<8, typename To::Column> of_columns;
        REFOLD_UNROLL
        for (int part = 0; part < 8; ++part) {
          const auto pair = target.of_columns.load(
              ((first + part) * 8 + fragment_column(0)) / 2);
          of_columns.numbers[part][0] = pair.numbers[0];
          of_columns.numbers[part][1] = pair.numbers[1];
        }
        REFOLD_UNROLL
        for (int half = 0; half < 2; ++half)
          write_row<16>(result, of_row[half], of_columns,
                        target.row0 + fragment_row(half),
                        target.column0 + first * 8, target.rows, target.columns,
                        sums, 0, half, first);
      }
    }
    if constexpr (sizeof...(More) > 0) {
      T next = target;
      next.maps += sizeof(typename To::Result) == 2;
      write<kFirst, kCount>(next, sums, more...);
    }
  }

  /// The sums of a rectangle. `write_first` writes the first 128 columns while
  /// the others of the last step are multiplied.
  template <typename L, typename R, typename Write>
  REFOLD_DEVICE static void add_up(float (&sums)[kParts][4], const Ring &ring,
                                   Place &place, int steps, int group,
                                   Write write_first) {
    const auto release = [&](int at) {
      if (thread() % 32 == 0)
        arrive(ring.gone + 8 * at);
    };
    const auto begin = [&](auto &to, int half, bool adds) {
      const uint32_t left = ring.memory + place.at * kStepBytes;
      const uint32_t right = left + Left::kBytes + half * 128 * 128;
      multiply<sizeof(to) / 16, L, R>(to, left + group * 64 * 128, right, adds);
    };
    const auto add_step = [&](auto is_last) {
      wait_gate(ring.came + 8 * place.at, place.parity);
      REFOLD_UNROLL
      for (int half = 0; half < kHalves; ++half) {
        float part[kHalfParts][4];
        begin(part, half, false);
        if (decltype(is_last)::value != 0 && half > 0)
          write_first();
        wait_products<0>();
        settle(part);
        if (half + 1 == kHalves)
          release(place.at);
        REFOLD_UNROLL
        for (int c = 0; c < kHalfParts; ++c)
          REFOLD_UNROLL
        for (int i = 0; i < 4; ++i)
          sums[half * kHalfParts + c][i] += part[c][i];
      }
      place.next();
    };
    if constexpr (kIsInParts) {
      REFOLD_NO_UNROLL
      for (int step = 0; step + 1 < steps; ++step)
        add_step(Number<0>{});
      add_step(Number<1>{});
    } else {
      int before = place.at;
      REFOLD_NO_UNROLL
      for (int step = 0; step < steps; ++step) {
        wait_gate(ring.came + 8 * place.at, place.parity);
        begin(sums, 0, step != 0);
        // The step before is done: its place is free.
        wait_products<1>();
        if (step > 0)
          release(before);
        before = place.at;
        place.next();
      }
      wait_products<0>();
      settle(sums);
      release(before);
    }
  }

  /// All rectangles of the block, by a warp of those that multiply.
  template <typename L, typename R, typename T, typename... To>
  REFOLD_DEVICE static void compute(T &target, const Ring &ring, int steps,
                                    int group, int64_t across, int64_t all,
                                    const To &...results) {
    Place place;
    for (int64_t at = block(); at < all; at += blocks()) {
      float sums[1][kParts][4] = {};
      target.row0 = block_quotient(at, across) * kRows + target.own;
      target.column0 = block_remainder(at, across) * kColumns;
      constexpr bool kIsSplit = kIsInParts && kHalves > 1;
      add_up<L, R>(sums[0], ring, place, steps, group, [&] {
        await_turn(kCame + group, kTurnThreads);
        write<0, kHalfParts>(target, sums, results...);
      });
      if constexpr (!kIsSplit)
        await_turn(kCame + group, kTurnThreads);
      constexpr int kBegin = kIsSplit ? kHalfParts : 0;
      write<kBegin, kParts - kBegin>(target, sums, results...);
      if (at + blocks() < all)
        pass_turn(kGone + group, kTurnThreads);
    }
    if (thread() % 32 == 0)
      wait_boxes<0>();
  }

  /// All results are made of the same numbers of rows and columns. `maps`: of
  /// both sides, and of results of 16 bits.
  template <typename L, typename R, typename... To>
  REFOLD_DEVICE static void run(uint32_t memory, Matrix<const L>,
                                Matrix<const R>, int64_t rows, int64_t columns,
                                int64_t depth, const ArrayMap *maps,
                                const To &...results) {
    const auto &first = first_of(results...);
    using Row = decltype(first.of_row(int64_t()));
    using Column = decltype(first.of_column(int64_t()));
    REFOLD_SHARED(Row, of_rows, kRows);
    REFOLD_SHARED(Pair<Column>, of_columns, kColumns / 2);
    const uint32_t out = memory + kStages * kStepBytes;
    const uint32_t gates = out + 4 * kGroups * kOutBytes;
    const Ring ring{memory, gates, gates + 8 * kStages};
    const int warp = of_warp(thread() / 32);
    if (thread() == 0) {
      for (int place = 0; place < kStages; ++place) {
        make_gate(ring.came + 8 * place, 2);
        make_gate(ring.gone + 8 * place, 4 * kGroups);
      }
      show_matrices(); // the gates, to copies that arrive at them
    }
    block_barrier();
    const int64_t across = (columns + kColumns - 1) / kColumns;
    const int64_t all = across * ((rows + kRows - 1) / kRows);
    if (warp < 4) {
      give_registers<40>();
      if (warp == 0)
        copy_side<kRows>(ring, 0, depth, maps, all, [&](int64_t at) {
          return block_quotient(at, across) * kRows;
        });
      else if (warp == 1)
        copy_side<kColumns>(
            ring, Left::kBytes, depth, maps + 1, all,
            [&](int64_t at) { return block_remainder(at, across) * kColumns; });
      else
        bring_numbers(first, of_rows, of_columns, rows, columns, across, all);
      return;
    }
    take_registers<232>();
    const int group = warp / 4 - 1, own = (warp - 4) * 16;
    Target<decltype(of_rows), decltype(of_columns)> target{
        of_rows, of_columns, 0,   0,
        rows,    columns,    own, out + (warp - 4) * kOutBytes,
        maps + 2};
    compute<L, R>(target, ring, int((depth + kDepth - 1) / kDepth), group,
                  across, all, results...);
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_F8_ROLES_H
