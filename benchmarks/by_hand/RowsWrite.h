// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Rows that are swept, and written in a second sweep. A task is what becomes
// of a row: its State is what the first sweep knows, and write<isStreamed> puts
// 64 elements.
#ifndef REFOLD_BENCHMARKS_BYHAND_ROWSWRITE_H
#define REFOLD_BENCHMARKS_BYHAND_ROWSWRITE_H

#include "RowsReduce.h"
#include "Turns.h"

#include <memory>
#include <new>

namespace byhand {

/// One workload: m rows of n, what else is read, and what is written.
struct Problem {
  int64_t m = 0, n = 0;
  const float *x = nullptr;
  const float *other = nullptr; ///< the second rows, or gamma
  const float *beta = nullptr;
  const int64_t *label = nullptr;
  std::array<float *, 3> out = {}; ///< of rows, or one of elements
  int8_t *bytes = nullptr;
};

/// Into which cache the next row is fetched while one is written.
enum class NextRow { Stays, IntoL1, IntoL2 };

/// How rows are written.
struct Put {
  Walk walk = {};
  NextRow next = NextRow::Stays;
  bool isStreamed = true;  ///< past the caches
  bool isBackward = false; ///< what was read last is still in a cache
  bool isPiped = false;    ///< while the next row is swept
};

constexpr int64_t kBlock = 4 * kLanes;

template <bool isStreamed> BYHAND_INLINE void store(float *y, Vector v) {
  if constexpr (isStreamed)
    _mm512_stream_ps(y, v);
  else
    _mm512_storeu_ps(y, v);
}

/// What all tasks share that write as many floats as they read.
template <typename Task> struct WritesFloats {
  template <bool isStreamed>
  BYHAND_INLINE void write(const Problem &p, int64_t row, int64_t i) const {
    const Task &task = static_cast<const Task &>(*this);
    const float *x = p.x + row * p.n + i;
    float *y = p.out[0] + row * p.n + i;
    BYHAND_UNROLL for (int64_t k = 0; k < kBlock; k += kLanes)
        store<isStreamed>(y + k, task.at(p, load(x + k), i + k, 0xffff));
  }
  BYHAND_INLINE void writeTail(const Problem &p, int64_t row, int64_t i,
                               Mask mask) const {
    const Task &task = static_cast<const Task &>(*this);
    Vector x = _mm512_maskz_loadu_ps(mask, p.x + row * p.n + i);
    _mm512_mask_storeu_ps(p.out[0] + row * p.n + i, mask,
                          task.at(p, x, i, mask));
  }
};

/// e^(x - t) / Σ e^(x - t); exponentials are computed twice.
struct Softmax : WritesFloats<Softmax> {
  template <bool isTracked> using State = ExpSums<false, false, isTracked>;
  static constexpr bool isOfTwo = false;
  Vector shift, scale;
  Softmax(const Problem &, int64_t, const auto &state)
      : shift(state.shift), scale(splat(1.0f / state.sum())) {}
  BYHAND_INLINE Vector at(const Problem &, Vector x, int64_t, Mask) const {
    return exp2(multiplyAdd(x, splat(kLog2e), shift)) * scale;
  }
};

struct LayerNorm : WritesFloats<LayerNorm> {
  template <bool> using State = Moments<2, 4>;
  static constexpr bool isOfTwo = false;
  Vector origin, scale, shift;
  LayerNorm(const Problem &p, int64_t, auto &state) {
    auto row = state.finish(p.n);
    float factor = 1.0f / std::sqrt(row.second + 1e-5f);
    origin = splat(row.origin);
    scale = splat(factor);
    shift = splat(-row.mean * factor);
  }
  BYHAND_INLINE Vector at(const Problem &p, Vector x, int64_t i,
                          Mask mask) const {
    return multiplyAdd(multiplyAdd(x - origin, scale, shift),
                       _mm512_maskz_loadu_ps(mask, p.other + i),
                       _mm512_maskz_loadu_ps(mask, p.beta + i));
  }
};

struct RmsNorm : WritesFloats<RmsNorm> {
  template <bool> using State = Squares<false, 8>;
  static constexpr bool isOfTwo = false;
  Vector scale;
  RmsNorm(const Problem &p, int64_t, auto &state)
      : scale(splat(
            1.0f / std::sqrt(state.sum() / static_cast<float>(p.n) + 1e-6f))) {}
  BYHAND_INLINE Vector at(const Problem &p, Vector x, int64_t i,
                          Mask mask) const {
    return x * scale * _mm512_maskz_loadu_ps(mask, p.other + i);
  }
};

/// The root mean square is in the scale alone: it cancels in q.
struct RmsNormInt8 {
  template <bool> using State = Squares<true, 4>;
  static constexpr bool isOfTwo = true;
  Vector scale;
  RmsNormInt8(const Problem &p, int64_t row, auto &state) {
    float most = state.largestOf();
    float mean = state.sum() / static_cast<float>(p.n);
    p.out[0][row] = most / std::sqrt(mean + 1e-6f) / 127.0f;
    scale = splat(127.0f / most);
  }
  BYHAND_INLINE __m512i at(Vector x, Vector gamma) const {
    return _mm512_cvtps_epi32(x * gamma * scale);
  }
  /// Packs put four elements of each vector into each quarter: one permutation
  /// brings them back, where a narrowing of each vector takes two a vector.
  BYHAND_INLINE static __m512i packed(const std::array<__m512i, 4> &q) {
    const __m512i back =
        _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(
        back, _mm512_packs_epi16(_mm512_packs_epi32(q[0], q[1]),
                                 _mm512_packs_epi32(q[2], q[3])));
  }
  template <bool isStreamed>
  BYHAND_INLINE void write(const Problem &p, int64_t row, int64_t i) const {
    const float *x = p.x + row * p.n + i, *gamma = p.other + i;
    std::array<__m512i, 4> part;
    BYHAND_UNROLL for (int k = 0; k < 4; ++k) part[k] =
        at(load(x + kLanes * k), load(gamma + kLanes * k));
    __m512i all = packed(part);
    int8_t *y = p.bytes + row * p.n + i;
    if constexpr (isStreamed)
      _mm512_stream_si512(reinterpret_cast<__m512i *>(y), all);
    else
      _mm512_storeu_si512(y, all);
  }
  BYHAND_INLINE void writeTail(const Problem &p, int64_t row, int64_t i,
                               Mask mask) const {
    Vector x = _mm512_maskz_loadu_ps(mask, p.x + row * p.n + i);
    Vector gamma = _mm512_maskz_loadu_ps(mask, p.other + i);
    _mm_mask_storeu_epi8(p.bytes + row * p.n + i, mask,
                         _mm512_cvtsepi32_epi8(at(x, gamma)));
  }
};

template <NextRow kNext> BYHAND_INLINE void prefetchBlock(const float *x) {
  BYHAND_UNROLL for (int64_t k = 0; k < kBlock;
                     k += kLanes) if constexpr (kNext == NextRow::IntoL1)
      _mm_prefetch(reinterpret_cast<const char *>(x + k), _MM_HINT_T0);
  else if constexpr (kNext == NextRow::IntoL2)
      _mm_prefetch(reinterpret_cast<const char *>(x + k), _MM_HINT_T1);
}

template <typename Task>
BYHAND_INLINE void writeRest(const Task &task, const Problem &p, int64_t row) {
  for (int64_t i = p.n / kBlock * kBlock; i < p.n; i += kLanes)
    task.writeTail(p, row, i, firstLanes(std::min<int64_t>(kLanes, p.n - i)));
}

/// The second sweep of rows, together.
template <typename Task, Put kPut>
BYHAND_INLINE void
writeTogether(const std::array<Task *, kPut.walk.rows> &tasks, const Problem &p,
              int64_t row) {
  constexpr int kRows = kPut.walk.rows;
  int64_t blocks = p.n / kBlock;
  for (int64_t block = 0; block < blocks; ++block) {
    int64_t i = (kPut.isBackward ? blocks - 1 - block : block) * kBlock;
    BYHAND_UNROLL for (int k = 0; k < kRows; ++k) {
      prefetchBlock<kPut.next>(p.x + (row + kRows + k) * p.n + block * kBlock);
      tasks[k]->template write<kPut.isStreamed>(p, row + k, i);
    }
  }
  for (int k = 0; k < kRows; ++k)
    writeRest(*tasks[k], p, row + k);
}

/// Some rows one after the other, or a few at a time.
template <typename Task, Put kPut>
void writeApart(const Problem &p, int64_t first, int64_t last) {
  constexpr int kRows = kPut.walk.rows;
  std::array<typename Task::template State<false>, kRows> states = {};
  int64_t row = first;
  for (; row + kRows <= last; row += kRows) {
    std::array<Task *, kRows> tasks;
    alignas(Task) char room[kRows][sizeof(Task)];
    // The second array is the same for all rows.
    sweepAfter<kPut.walk, Task, false>(
        states, p.x + row * p.n, p.other, p.n, 0, [&](int k, auto &state) {
          tasks[k] = new (room[k]) Task(p, row + k, state);
        });
    writeTogether<Task, kPut>(tasks, p, row);
  }
  if constexpr (kRows > 1) {
    constexpr Put kSingle = {{kPut.walk.ahead, kPut.walk.isIntoL2, 1},
                             kPut.next,
                             kPut.isStreamed,
                             kPut.isBackward};
    writeApart<Task, kSingle>(p, row, last);
  }
}

/// Each row is written while the next one is swept, so that reading and writing
/// overlap.
template <typename Task, Put kPut>
void writePiped(const Problem &p, int64_t first, int64_t last) {
  using State = typename Task::template State<false>;
  constexpr int64_t kElements = kStep * kLanes;
  State state = {};
  bool isSwept = false;
  for (int64_t row = first; row < last; ++row) {
    alignas(Task) char room[sizeof(Task)];
    Task *task = nullptr;
    const float *x = p.x + row * p.n;
    if (isSwept && state.isSettled()) {
      task = new (room) Task(p, row, state);
    } else {
      std::array<typename Task::template State<true>, 1> again = {};
      sweep<kPut.walk, Task::isOfTwo>(again, x, p.other, p.n, 0);
      task = new (room) Task(p, row, again[0]);
      state.beginAs(again[0]);
    }
    State next = {};
    next.beginAs(state);
    int64_t i = 0;
    isSwept = row + 1 < last;
    if (isSwept) {
      for (; i + kElements <= p.n; i += kElements) {
        stepAhead<kPut.walk, false>(next, x + p.n + i, p.other + i);
        task->template write<kPut.isStreamed>(p, row, i);
        task->template write<kPut.isStreamed>(p, row, i + kBlock);
      }
      sweepRest(next, x + p.n, p.other, i, p.n);
    }
    for (; i + kBlock <= p.n; i += kBlock)
      task->template write<kPut.isStreamed>(p, row, i);
    writeRest(*task, p, row);
    state = next;
  }
}

template <typename Task, Put kPut>
void writeRows(const Problem &p, const Worker &worker) {
  auto [first, last] = worker.part(p.m, kPut.walk.rows);
  // Streaming stores are of whole lines.
  if (kPut.isStreamed && p.n % kBlock != 0) {
    constexpr Put kPlain = {kPut.walk, kPut.next, false, kPut.isBackward};
    return writeApart<Task, kPlain>(p, first, last);
  }
  if constexpr (kPut.isPiped)
    writePiped<Task, kPut>(p, first, last);
  else
    writeApart<Task, kPut>(p, first, last);
  if (kPut.isStreamed)
    _mm_sfence();
}

/// Of softmax: exponentials go into a buffer, with the pivot of the row before,
/// and are scaled from there. A row that the pivot does not suit is found out
/// at its end, and computed twice.
struct ExpBuffer : ExpSums<false, false, false> {
  BYHAND_INLINE void fill(const float *x, float *buffer) {
    BYHAND_UNROLL for (int k = 0; k < kStep; ++k) _mm512_storeu_ps(
        buffer + kLanes * k, take(k % kSums, load(x + kLanes * k), Vector{}));
  }
  /// The buffer has room for a whole vector.
  BYHAND_INLINE void fillRest(const float *x, float *buffer, int64_t i,
                              int64_t n) {
    for (; i < n; i += kLanes) {
      Mask mask = firstLanes(std::min<int64_t>(kLanes, n - i));
      Vector v = _mm512_mask_loadu_ps(splat(-INFINITY), mask, x + i);
      _mm512_storeu_ps(buffer + i, take(0, v, Vector{}));
    }
  }
};

template <Put kPut>
BYHAND_INLINE void scaleBlock(const float *from, float *to, Vector scale) {
  BYHAND_UNROLL for (int64_t k = 0; k < kBlock; k += kLanes)
      store<kPut.isStreamed>(to + k, load(from + k) * scale);
}

/// Two rows of exponentials of the worker, kept from run to run.
inline std::array<float *, 2> buffersOf(const Worker &worker, int64_t n) {
  static std::array<std::unique_ptr<Memory>, 1024> all;
  static std::array<int64_t, 1024> rooms = {};
  int64_t width = n + 1024;
  std::unique_ptr<Memory> &mine = all[worker.index];
  if (rooms[worker.index] < width) {
    mine = std::make_unique<Memory>(2 * width * sizeof(float));
    rooms[worker.index] = width;
  }
  return {mine->as<float>(), mine->as<float>() + width};
}

/// Requires whole blocks.
template <Put kPut>
void softmaxOnce(const Problem &p, int64_t first, int64_t last,
                 std::array<float *, 2> buffers) {
  constexpr int64_t kElements = kStep * kLanes;
  int64_t n = p.n;
  auto fillAhead = [](ExpBuffer &state, const float *x, float *buffer) {
    BYHAND_UNROLL for (int k = 0; k < kStep; ++k)
        prefetchAhead<kPut.walk>(x + kLanes * k);
    state.fill(x, buffer);
  };
  ExpBuffer state;
  bool isFilled = false;
  for (int64_t row = first; row < last; ++row) {
    const float *x = p.x + row * n;
    float *buffer = buffers[row % 2], *y = p.out[0] + row * n;
    int64_t i = 0;
    if (!isFilled) {
      for (; i + kElements <= n; i += kElements)
        fillAhead(state, x + i, buffer + i);
      state.fillRest(x, buffer, i, n);
    }
    ExpBuffer next;
    isFilled = false;
    if (!state.isSettled()) {
      std::array<ExpSums<false, false, true>, 1> again = {};
      sweep<kPut.walk, false>(again, x, x, n, 0);
      Softmax task(p, row, again[0]);
      writeTogether<Softmax, Put{}>({&task}, p, row);
      next.beginAs(again[0]);
      state = next;
      continue;
    }
    Vector scale = splat(1.0f / state.sum());
    next.beginAs(state);
    i = 0;
    if (kPut.isPiped && row + 1 < last) {
      isFilled = true;
      float *nextBuffer = buffers[(row + 1) % 2];
      for (; i + kElements <= n; i += kElements) {
        fillAhead(next, x + n + i, nextBuffer + i);
        scaleBlock<kPut>(buffer + i, y + i, scale);
        scaleBlock<kPut>(buffer + i + kBlock, y + i + kBlock, scale);
      }
      next.fillRest(x + n, nextBuffer, i, n);
    }
    for (; i + kBlock <= n; i += kBlock) {
      prefetchBlock<kPut.next>(x + n + i);
      scaleBlock<kPut>(buffer + i, y + i, scale);
    }
    state = next;
  }
}

template <Put kPut>
void softmaxOnceRows(const Problem &p, const Worker &worker) {
  if (p.n % kBlock != 0)
    return writeRows<Softmax, kPut>(p, worker);
  auto [first, last] = worker.part(p.m);
  softmaxOnce<kPut>(p, first, last, buffersOf(worker, p.n));
  if (kPut.isStreamed)
    _mm_sfence();
}

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_ROWSWRITE_H
