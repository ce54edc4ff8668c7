// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Products of f32 outside cascades by multiply-adds, the same on device and
// host: a thread has 32 or 64 sums, and reads what it multiplies in vectors
// from shared memory, where both sides lie as lines of what is not summed.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_WORDS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_WORDS_H

#include "refold_cuda_products.h"

namespace refold {

/// How a side is brought to shared memory.
enum class Bring {
  Any,     ///< 4 bytes at once, in the order in which neighbours lie in memory
  Words,   ///< 4 bytes at once; what is summed lies beside each other
  Vectors, ///< 16 bytes at once of what is not summed
};

/// What a thread of `kThreads` brings of each `kDepth` lines of a side that are
/// `kSide` words long and `kLine` bytes apart.
template <int kThreads, int kDepth, int kSide, int kLine, Bring kBring>
class WordSide {
public:
  /// `from` has the side's rows, and in columns what is summed.
  REFOLD_DEVICE explicit WordSide(Matrix<const float> from)
      : across(kBring == Bring::Vectors ? 1 : from.row_stride),
        down(kBring == Bring::Words ? 1 : from.column_stride) {
    const int at = thread();
    if constexpr (kBring == Bring::Vectors) {
      side = at % (kAcross / 4) * 4;
      line = at / (kAcross / 4);
    } else {
      is_flat = kBring == Bring::Any && from.row_stride == 1;
      side = is_flat ? at % kFlatAcross : at / 8 % kAcross;
      line = is_flat ? at / kFlatAcross : at % 8 + at / (8 * kAcross) * 8;
    }
    source = from.first + side * across + line * down;
  }

  /// Begins to bring the next lines; beyond `count` words and `left` lines they
  /// are 0.
  REFOLD_DEVICE void bring(uint32_t lines, int count, int left) {
    const uint32_t to = lines + uint32_t(line * kLine + side * 4);
    if constexpr (kBring == Bring::Any)
      if (is_flat) {
        copy<false, kFlatAcross, kFlatDown>(to, count, left);
        source += kDepth * down;
        return;
      }
    if (count >= kSide && left >= kDepth)
      copy<true, kAcross, kDown>(to, count, left);
    else
      copy<false, kAcross, kDown>(to, count, left);
    source += kDepth * down;
  }

private:
  static constexpr int least(int x, int y) { return x < y ? x : y; }
  // What all threads bring at once: eight words of each row, whole vectors of
  // lines, or as much of lines as there is.
  static constexpr int kAcross =
      kBring == Bring::Vectors ? kSide : least(kSide, kThreads / 8);
  static constexpr int kDown =
      kThreads * (kBring == Bring::Vectors ? 4 : 1) / kAcross;
  static constexpr int kFlatAcross = least(kSide, kThreads);
  static constexpr int kFlatDown = kThreads / kFlatAcross;
  static_assert(kSide % kAcross == 0 && kDepth % kDown == 0 &&
                kSide % kFlatAcross == 0 && kDepth % kFlatDown == 0);

  template <bool kIsWhole, int kStepAcross, int kStepDown>
  REFOLD_DEVICE void copy(uint32_t to, int count, int left) const {
    const float *first = source;
    REFOLD_UNROLL
    for (int i = 0; i < kSide / kStepAcross; ++i) {
      const float *from = first;
      REFOLD_UNROLL
      for (int j = 0; j < kDepth / kStepDown; ++j) {
        const bool is_there = kIsWhole || (side + i * kStepAcross < count &&
                                           line + j * kStepDown < left);
        const uint32_t place =
            to + uint32_t(j * kStepDown * kLine + i * kStepAcross * 4);
        if constexpr (kBring == Bring::Vectors)
          copy_async(place, from, is_there ? 16 : 0);
        else
          copy_word_async(place, from, is_there);
        from += kStepDown * down;
      }
      first += kStepAcross * across;
    }
  }

  const float *source;
  int64_t across, down; ///< from a word of a line to the next one, to the next
                        ///< line
  int side, line;       ///< of the first word that the thread brings
  bool is_flat = false;
};

/// A rectangle of `kRowThreads` times 4 `kRowQuads` rows, and likewise of
/// columns: a thread has the sums where its quads cross. A step is `kDepth` of
/// a sum, of which one of `kSlices` is a thread's; `kStages` - 1 steps are
/// under way. Lines of a step are 4 words further apart than they are long:
/// neither words of four rows and eight lines that a warp writes nor vectors of
/// one line that it reads share a bank.
template <int kRowThreadsOf, int kColumnThreadsOf, int kRowQuadsOf,
          int kColumnQuadsOf, int kSlicesOf, int kDepthOf, int kStagesOf>
struct WordUnits {
  static constexpr int kRowThreads = kRowThreadsOf;
  static constexpr int kColumnThreads = kColumnThreadsOf;
  static constexpr int kRowQuads = kRowQuadsOf, kColumnQuads = kColumnQuadsOf;
  static constexpr int kSlices = kSlicesOf;
  static constexpr int kDepth = kDepthOf, kStages = kStagesOf;
  static constexpr int kRows = kRowThreads * kRowQuads * 4;
  static constexpr int kColumns = kColumnThreads * kColumnQuads * 4;
  static constexpr int kSliceThreads = kRowThreads * kColumnThreads;
  static constexpr int kThreads = kSliceThreads * kSlices;
  static constexpr int kLeftLine = (kRows + 4) * 4; // bytes
  static constexpr int kRightLine = (kColumns + 4) * 4;
  static constexpr int kStepBytes = kDepth * (kLeftLine + kRightLine);
  static constexpr int kPartBytes = kRows * kColumns * 4;
  static constexpr int kBytes =
      kSlices > 1 && kSlices *kPartBytes > kStages *kStepBytes
          ? kSlices *kPartBytes
          : kStages *kStepBytes;
  static constexpr int kSumQuads = kRowQuads * 4 * kColumnQuads;
  /// Vectors of four sums that a thread has when slices are added up.
  static constexpr int kQuads = kSumQuads / kSlices;
  /// Sums are of at most 128 products before they are added up.
  static constexpr int kSumSteps = 128 * kSlices / kDepth;
  static_assert(kSliceThreads % 32 == 0 && kSumQuads % kSlices == 0 &&
                kDepth % kSlices == 0 && 128 * kSlices % kDepth == 0);

  /// Where a thread is, in quads: two of four threads beside each other have
  /// the same row, and two the same column, so that they read one vector.
  struct Place {
    static constexpr int kLaneRows = kRowThreads < 4 ? kRowThreads : 4;
    static constexpr int kLaneColumns = 32 / kLaneRows;
    static_assert(kRowThreads % kLaneRows == 0 &&
                  kColumnThreads % kLaneColumns == 0);
    int row, column, slice;

    REFOLD_DEVICE explicit Place(int at) {
      constexpr int kWarps = kColumnThreads / kLaneColumns;
      const int lane = at % 32, warp = at % kSliceThreads / 32;
      const int pair = kLaneRows == 1 ? 1 : 2;
      row = warp / kWarps * kLaneRows + lane / (pair * kLaneColumns) * pair +
            lane % pair;
      column = warp % kWarps * kLaneColumns + lane / pair % kLaneColumns;
      slice = at / kSliceThreads;
    }
    /// Of the quad of sums that a thread has, `quad` of them before.
    REFOLD_DEVICE int row_of(int quad) const {
      const int i = quad / kColumnQuads;
      return (i / 4 * kRowThreads + row) * 4 + i % 4;
    }
    REFOLD_DEVICE int column_of(int quad) const {
      return (quad % kColumnQuads * kColumnThreads + column) * 4;
    }
  };
  using Sums = float[kRowQuads * 4][kColumnQuads * 4];
  using Quads = float[kQuads][4];

  /// sums += left * right, one of `kSlices` of a step, lines of both sides from
  /// the thread's first quads on.
  REFOLD_DEVICE static void multiply(Sums &sums, uint32_t left,
                                     uint32_t right) {
    REFOLD_UNROLL
    for (int k = 0; k < kDepth / kSlices; ++k) {
      uint32_t l[kRowQuads][4], r[kColumnQuads][4];
      REFOLD_UNROLL
      for (int i = 0; i < kRowQuads; ++i)
        load_shared(l[i], left + uint32_t(k * kSlices * kLeftLine +
                                          i * kRowThreads * 16));
      REFOLD_UNROLL
      for (int j = 0; j < kColumnQuads; ++j)
        load_shared(r[j], right + uint32_t(k * kSlices * kRightLine +
                                           j * kColumnThreads * 16));
      REFOLD_UNROLL
      for (int i = 0; i < kRowQuads * 4; ++i)
        REFOLD_UNROLL
      for (int j = 0; j < kColumnQuads * 4; ++j)
        sums[i][j] = multiply_add(float_of(l[i / 4][i % 4]),
                                  float_of(r[j / 4][j % 4]), sums[i][j]);
    }
  }

  /// What a thread has of the rectangle that begins at both sides; `right` has
  /// columns as rows.
  template <Bring kLeft, Bring kRight>
  REFOLD_DEVICE static void
  sum(Sums &sums, uint32_t memory, Matrix<const float> left,
      Matrix<const float> right, int rows, int columns, int64_t depth) {
    WordSide<kThreads, kDepth, kRows, kLeftLine, kLeft> lefts(left);
    WordSide<kThreads, kDepth, kColumns, kRightLine, kRight> rights(right);
    const auto bring = [&](int place, int64_t count) {
      const uint32_t to = memory + uint32_t(place * kStepBytes);
      const int own = int(smaller(count, kDepth));
      lefts.bring(to, rows, own);
      rights.bring(to + kDepth * kLeftLine, columns, own);
    };
    int64_t ahead = depth; // that no copy has begun of
    REFOLD_NO_UNROLL
    for (int place = 0; place < kStages - 1; ++place) {
      if (ahead > 0)
        bring(place, ahead);
      ahead -= kDepth;
      commit_copies();
    }
    const Place at(thread());
    const uint32_t own_left =
        memory + uint32_t(at.slice * kLeftLine + at.row * 16);
    const uint32_t own_right =
        memory +
        uint32_t(kDepth * kLeftLine + at.slice * kRightLine + at.column * 16);
    Sums own = {};
    int place = 0, steps = 0;
    REFOLD_NO_UNROLL
    for (int64_t k = 0; k < depth; k += kDepth) {
      wait_copies<kStages - 2>();
      block_barrier();
      if (ahead > 0)
        bring(place == 0 ? kStages - 1 : place - 1, ahead);
      ahead -= kDepth;
      commit_copies();
      const uint32_t from = uint32_t(place * kStepBytes);
      multiply(own, own_left + from, own_right + from);
      place = place + 1 == kStages ? 0 : place + 1;
      if (++steps == kSumSteps || k + kDepth >= depth) {
        steps = 0;
        REFOLD_UNROLL
        for (int i = 0; i < kRowQuads * 4; ++i)
          REFOLD_UNROLL
        for (int j = 0; j < kColumnQuads * 4; ++j) {
          sums[i][j] = sums[i][j] + own[i][j];
          own[i][j] = 0.0f;
        }
      }
    }
  }

  /// Adds up the slices in their order; each of them then has some quads of the
  /// sums, every `kSlices`-th.
  REFOLD_DEVICE static void add_slices(Quads &own, uint32_t memory,
                                       const Sums &sums) {
    const int at = thread() % kSliceThreads, slice = thread() / kSliceThreads;
    const auto place = [&](int of, int quad) {
      return memory +
             uint32_t(((of * kSumQuads + quad) * kSliceThreads + at) * 16);
    };
    wait_copies<0>();
    block_barrier(); // everything is multiplied
    REFOLD_UNROLL
    for (int quad = 0; quad < kSumQuads; ++quad) {
      const float *const from =
          &sums[quad / kColumnQuads][quad % kColumnQuads * 4];
      const uint32_t words[4] = {bits_of(from[0]), bits_of(from[1]),
                                 bits_of(from[2]), bits_of(from[3])};
      store_shared(place(slice, quad), words);
    }
    block_barrier();
    REFOLD_UNROLL
    for (int q = 0; q < kQuads; ++q)
      REFOLD_UNROLL
    for (int of = 0; of < kSlices; ++of) {
      uint32_t words[4];
      load_shared(words, place(of, q * kSlices + slice));
      REFOLD_UNROLL
      for (int e = 0; e < 4; ++e)
        own[q][e] =
            of == 0 ? float_of(words[e]) : own[q][e] + float_of(words[e]);
    }
  }

  /// Leaves what this of several blocks has, of rows that are there. Whether it
  /// is the last one, which then has the sums of all, in their order.
  template <typename Shares>
  REFOLD_DEVICE static bool share(Quads &own, const Shares &shares, int rows) {
    const Place at(thread());
    unsigned char *const first = shares.left + thread() * 16;
    const auto is_there = [&](int q) {
      return at.row_of(q * kSlices + at.slice) < rows;
    };
    REFOLD_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      const uint32_t words[4] = {bits_of(own[q][0]), bits_of(own[q][1]),
                                 bits_of(own[q][2]), bits_of(own[q][3])};
      if (is_there(q))
        leave_words<16>(first + shares.part * int64_t(kPartBytes) +
                            q * kThreads * 16,
                        words);
    }
    if (!is_last_block(shares.ticket, shares.parts))
      return false;
    // Many at once: what it waits for is the way. Parts that are not there are
    // zeros.
    constexpr int kAtOnce = kQuads < 8 ? 8 / kQuads : 1;
    REFOLD_UNROLL
    for (int q = 0; q < kQuads; ++q)
      REFOLD_UNROLL
    for (int e = 0; e < 4; ++e)
      own[q][e] = 0.0f;
    const unsigned char *from = first;
    REFOLD_NO_UNROLL
    for (int part = 0; part < shares.parts; part += kAtOnce) {
      uint32_t words[kAtOnce][kQuads][4];
      REFOLD_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        REFOLD_UNROLL
      for (int q = 0; q < kQuads; ++q)
        take_words_if(words[i][q],
                      from + i * int64_t(kPartBytes) + q * kThreads * 16,
                      part + i < shares.parts && is_there(q));
      REFOLD_UNROLL
      for (int i = 0; i < kAtOnce; ++i)
        REFOLD_UNROLL
      for (int q = 0; q < kQuads; ++q)
        REFOLD_UNROLL
      for (int e = 0; e < 4; ++e)
        own[q][e] = own[q][e] + float_of(words[i][q][e]);
      from += kAtOnce * int64_t(kPartBytes);
    }
    return true;
  }

  /// `kVector`: rows of the result are whole vectors of 4 elements.
  template <int kVector, typename To>
  REFOLD_DEVICE static void write(const To &target, const Quads &own,
                                  int64_t row0, int64_t column0) {
    using R = typename To::Result;
    const Place at(thread());
    REFOLD_UNROLL
    for (int q = 0; q < kQuads; ++q) {
      const int quad = q * kSlices + (kSlices > 1 ? at.slice : 0);
      const int64_t row = row0 + at.row_of(quad);
      const int64_t column = column0 + at.column_of(quad);
      if constexpr (kVector == 4 && (sizeof(R) == 4 || sizeof(R) == 2)) {
        float values[4];
        REFOLD_UNROLL
        for (int e = 0; e < 4; ++e)
          values[e] = target.finish(own[q][e], column + e);
        uint32_t words[sizeof(R)];
        REFOLD_UNROLL
        for (int w = 0; w < int(sizeof(R)); ++w)
          if constexpr (sizeof(R) == 4)
            words[w] = bits_of(values[w]);
          else
            words[w] = pack(values[2 * w], values[2 * w + 1], R{});
        if (row < target.rows && column < target.columns)
          store_words<4 * sizeof(R)>(target.to.at(row, column), words);
      } else {
        REFOLD_UNROLL
        for (int e = 0; e < 4; ++e)
          target.put(row, column + e, own[q][e]);
      }
    }
  }

  /// The rectangle at `row0` and `column0`. `shares`: the blocks that share its
  /// sums.
  template <Bring kLeft, Bring kRight, int kVector, typename To,
            typename Shares>
  REFOLD_DEVICE static void run(uint32_t memory, Matrix<const float> left,
                                Matrix<const float> right, const To &target,
                                int64_t all, int64_t row0, int64_t column0,
                                const Shares &shares) {
    const auto [first, depth] =
        part_of_depth<kDepth>(all, shares.parts, shares.part);
    const int rows = int(smaller(target.rows - row0, kRows));
    const int columns = int(smaller(target.columns - column0, kColumns));
    Sums sums = {};
    sum<kLeft, kRight>(
        sums, memory,
        {left.at(row0, first), left.row_stride, left.column_stride},
        {right.at(first, column0), right.column_stride, right.row_stride}, rows,
        columns, depth);
    Quads own;
    if constexpr (kSlices > 1) {
      add_slices(own, memory, sums);
    } else {
      REFOLD_UNROLL
      for (int quad = 0; quad < kQuads; ++quad)
        REFOLD_UNROLL
      for (int e = 0; e < 4; ++e)
        own[quad][e] = sums[quad / kColumnQuads][quad % kColumnQuads * 4 + e];
    }
    if constexpr (Shares::kMayShare)
      if (shares.parts > 1 && !share(own, shares, rows))
        return;
    write<kVector>(target, own, row0, column0);
  }
};

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PRODUCTS_WORDS_H
