// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What rows_by_hand knows of a row after one sweep of it. Each state has
//
//   step<U>(x, y)       takes U vectors of the row, and of a second array
//   tail(x, y, mask)    the lanes of one vector at the end of the row
//
// and is kept in registers: whatever is called in a sweep is inlined.
#ifndef REFOLD_BENCHMARKS_BYHAND_ROWSREDUCE_H
#define REFOLD_BENCHMARKS_BYHAND_ROWSREDUCE_H

#include <array>
#include <cmath>
#include <cstdint>
#include <immintrin.h>

namespace byhand {

using Vector = __m512;
using Mask = __mmask16;

#define BYHAND_INLINE [[gnu::always_inline]] inline
#define BYHAND_UNROLL _Pragma("clang loop unroll(full)")

constexpr float kLog2e = 1.44269504f;
constexpr double kLn2 = 0.693147180559945309;
constexpr int kLanes = 16;

BYHAND_INLINE Vector splat(float x) { return _mm512_set1_ps(x); }
BYHAND_INLINE Vector load(const float *x) { return _mm512_loadu_ps(x); }
BYHAND_INLINE Vector multiplyAdd(Vector a, Vector b, Vector c) {
  return _mm512_fmadd_ps(a, b, c);
}
BYHAND_INLINE Vector larger(Vector a, Vector b) { return _mm512_max_ps(a, b); }
BYHAND_INLINE float sumOf(Vector x) { return _mm512_reduce_add_ps(x); }
BYHAND_INLINE float mostOf(Vector x) { return _mm512_reduce_max_ps(x); }
BYHAND_INLINE Mask firstLanes(int64_t count) {
  return static_cast<Mask>((1u << count) - 1);
}

/// 2^t, wrong by 2.4 * 2^-24 of it; 0 for -inf. scalef takes 2^floor(t), so the
/// whole part is never made: of the fraction in [0, 1) a polynomial.
BYHAND_INLINE Vector exp2(Vector t) {
  Vector part = _mm512_reduce_ps(t, _MM_FROUND_TO_NEG_INF);
  Vector p = multiplyAdd(splat(1.86713040e-3f), part, splat(9.01702978e-3f));
  p = multiplyAdd(p, part, splat(5.57999127e-2f));
  p = multiplyAdd(p, part, splat(2.40164444e-1f));
  p = multiplyAdd(p, part, splat(6.93151295e-1f));
  p = multiplyAdd(p, part, splat(1.0f));
  return _mm512_scalef_ps(p, t);
}

/// The sum of a few vectors, in pairs.
template <size_t N> BYHAND_INLINE Vector add(const std::array<Vector, N> &x) {
  Vector sum = x[0];
  BYHAND_UNROLL for (size_t i = 1; i < N; ++i) sum += x[i];
  return sum;
}

template <size_t N>
BYHAND_INLINE Vector largest(const std::array<Vector, N> &x) {
  std::array<Vector, N> most = x;
  BYHAND_UNROLL for (size_t half = N / 2; half > 0; half /= 2)
      BYHAND_UNROLL for (size_t i = 0; i < half; ++i) most[i] =
          larger(most[i], most[i + half]);
  return most[0];
}

/// Beyond its pivot by so much an element moves it: sums stay far below what
/// f32 holds, and rows whose largest elements come late move it seldom.
constexpr float kSlack = 20.0f;
/// A pivot before anything was seen; finite, because -inf less it is -inf.
constexpr float kLowest = -1e30f;

/// Of a row x, with t_i = log2(e) (x_i - pivot):
///
///   sums Σ 2^t_i     weighted Σ t_i 2^t_i     gaps Σ 2^t_i (x_i - y_i)
///
/// The pivot is one for all lanes, and is what `shift`, rounded, says it is:
/// what the rounding of a large pivot changes is in both terms of a result.
/// `isTracked`: the pivot follows the largest element. Else it stays where the
/// row before had it, nothing is compared in the sweep, and `isSettled` says
/// after it if that was near enough.
template <bool isWeighted, bool hasGaps, bool isTracked> struct ExpSums {
  static constexpr int kSums = 4;
  Vector shift = splat(-kLowest * kLog2e), guard = splat(kLowest);
  std::array<Vector, kSums> sums = {}, weighted = {}, gaps = {};

  /// Begins with the pivot of another row.
  template <typename Other> BYHAND_INLINE void beginAs(const Other &other) {
    shift = other.shift;
    guard = other.guard;
  }

  BYHAND_INLINE void move(Vector most) {
    float pivot = std::max(mostOf(most), -shift[0] * (1 / kLog2e));
    Vector before = shift;
    shift = splat(-pivot * kLog2e);
    guard = splat(pivot + kSlack);
    Vector by = shift - before, scale = exp2(by);
    BYHAND_UNROLL for (int i = 0; i < kSums; ++i) {
      if constexpr (isWeighted)
        weighted[i] = scale * multiplyAdd(by, sums[i], weighted[i]);
      if constexpr (hasGaps)
        gaps[i] *= scale;
      sums[i] *= scale;
    }
  }

  /// -inf times its power 0 would be no number.
  BYHAND_INLINE Vector exponent(Vector x) const {
    Vector t = multiplyAdd(x, splat(kLog2e), shift);
    return isWeighted ? larger(t, splat(-150.0f)) : t;
  }

  BYHAND_INLINE Vector take(int at, Vector x, Vector gap) {
    Vector t = exponent(x), e = exp2(t);
    sums[at] += e;
    if constexpr (isWeighted)
      weighted[at] = multiplyAdd(t, e, weighted[at]);
    if constexpr (hasGaps)
      gaps[at] = multiplyAdd(gap, e, gaps[at]);
    return e;
  }

  BYHAND_INLINE void track(Vector most) {
    if constexpr (isTracked)
      if (__builtin_expect(_mm512_cmp_ps_mask(most, guard, _CMP_GT_OQ), 0))
        move(most);
  }

  template <int U> BYHAND_INLINE void step(const float *x, const float *y) {
    std::array<Vector, U> v;
    BYHAND_UNROLL for (int i = 0; i < U; ++i) v[i] = load(x + kLanes * i);
    if constexpr (isTracked)
      track(largest(v));
    BYHAND_UNROLL for (int i = 0; i < U; ++i)
        take(i % kSums, v[i], hasGaps ? v[i] - load(y + kLanes * i) : Vector{});
  }

  BYHAND_INLINE void tail(const float *x, const float *y, Mask mask) {
    Vector v = _mm512_mask_loadu_ps(splat(-INFINITY), mask, x);
    track(v);
    Vector gap = {};
    if constexpr (hasGaps)
      gap = _mm512_maskz_sub_ps(mask, v, _mm512_maskz_loadu_ps(mask, y));
    take(0, v, gap);
  }

  BYHAND_INLINE double pivot() const {
    return -static_cast<double>(shift[0]) / kLog2e;
  }
  BYHAND_INLINE float sum() const { return sumOf(add(sums)); }
  /// Nothing was lost below the pivot, and t are exact enough above it.
  BYHAND_INLINE bool isSettled() const {
    float all = sum();
    return isTracked || (all > 0x1p-20f && all < 0x1p30f);
  }
  /// In nats, about the pivot.
  BYHAND_INLINE double weightedSum() const {
    return kLn2 * sumOf(add(weighted));
  }
  BYHAND_INLINE float gapSum() const { return sumOf(add(gaps)); }
};

/// Two rows of one length, of which both have exponentials.
template <bool isWeighted, bool isTracked> struct TwoExpSums {
  ExpSums<isWeighted, true, isTracked> first;
  ExpSums<false, false, isTracked> second;

  template <typename Other> BYHAND_INLINE void beginAs(const Other &other) {
    first.beginAs(other.first);
    second.beginAs(other.second);
  }
  template <int U> BYHAND_INLINE void step(const float *x, const float *y) {
    first.template step<U>(x, y);
    second.template step<U>(y, nullptr);
  }
  BYHAND_INLINE void tail(const float *x, const float *y, Mask mask) {
    first.tail(x, y, mask);
    second.tail(y, nullptr, mask);
  }
  BYHAND_INLINE bool isSettled() const {
    return first.isSettled() && second.isSettled();
  }
};

/// What other states have of a pivot.
struct NoPivot {
  template <typename Other> BYHAND_INLINE void beginAs(const Other &) {}
  BYHAND_INLINE bool isSettled() const { return true; }
};

/// Moments of each lane about its base, up to the second or the fourth. The
/// base is moved once in a while to the mean of what came before. Taking sums
/// S_k of the k-th powers of N differences to a base that is further by d:
///
///   S_1' = S_1 - N d     S_2' = S_2 - 2 d S_1 + N d^2     and so on,
///
/// because (x - d)^k is a binomial. Holds for every d: the base may be rounded,
/// what it misses of the mean stays in S_1.
template <int kOrder, int kSums> struct Moments : NoPivot {
  static constexpr int kMoveAfter = 64; ///< vectors
  Vector base = {};
  std::array<Vector, kOrder> before = {};
  std::array<std::array<Vector, kSums>, kOrder> sums = {};
  int recent = 0;
  int64_t count = 0; ///< vectors that are in `before`
  Vector rest = {};
  Mask inRest = 0;

  /// The sums of `n` differences, about a base that is further by `d`.
  BYHAND_INLINE static std::array<Vector, kOrder>
  shifted(const std::array<Vector, kOrder> &s, Vector n, Vector d) {
    std::array<Vector, kOrder> to;
    to[0] = s[0] - n * d;
    // Each is Horner's rule of the binomial, from the highest power of d.
    Vector two = splat(2.0f);
    to[1] = s[1] - d * (two * s[0] - n * d);
    if constexpr (kOrder == 4) {
      Vector three = splat(3.0f), four = splat(4.0f), six = splat(6.0f);
      to[2] = s[2] - d * (three * s[1] - d * (three * s[0] - n * d));
      to[3] = s[3] -
              d * (four * s[2] - d * (six * s[1] - d * (four * s[0] - n * d)));
    }
    return to;
  }

  BYHAND_INLINE void gather() {
    count += recent;
    recent = 0;
    BYHAND_UNROLL for (int k = 0; k < kOrder; ++k) before[k] += add(sums[k]);
    sums = {};
  }

  BYHAND_INLINE void move() {
    gather();
    float n = static_cast<float>(count);
    Vector to = multiplyAdd(before[0], splat(1.0f / n), base);
    before = shifted(before, splat(n), to - base);
    base = to;
  }

  template <int U> BYHAND_INLINE void step(const float *x, const float *) {
    if (count + recent == 0)
      base = load(x);
    BYHAND_UNROLL for (int i = 0; i < U; ++i) {
      int at = i % kSums;
      Vector d = load(x + kLanes * i) - base;
      sums[0][at] += d;
      if constexpr (kOrder == 2) {
        sums[1][at] = multiplyAdd(d, d, sums[1][at]);
      } else {
        Vector dd = d * d;
        sums[1][at] += dd;
        sums[2][at] = multiplyAdd(dd, d, sums[2][at]);
        sums[3][at] = multiplyAdd(dd, dd, sums[3][at]);
      }
    }
    recent += U;
    if (recent >= kMoveAfter)
      move();
  }

  BYHAND_INLINE void tail(const float *x, const float *, Mask mask) {
    inRest = mask;
    rest = _mm512_maskz_loadu_ps(mask, x);
  }

  struct OfRow {
    float origin, mean;   ///< the mean is further than the origin by so much
    float second, fourth; ///< about the mean, divided by the length
  };

  /// All lanes about the mean of the row, and the elements of the tail.
  BYHAND_INLINE OfRow finish(int64_t n) {
    gather();
    float each = 1.0f / static_cast<float>(n);
    Vector many = splat(static_cast<float>(count));
    Vector origin = splat(count > 0 ? base[0] : rest[0]);
    Vector apart = count > 0 ? base - origin : Vector{};
    Vector far = _mm512_maskz_sub_ps(inRest, rest, origin);
    float by = sumOf(multiplyAdd(many, apart, before[0] + far)) * each;
    std::array<Vector, kOrder> s = shifted(before, many, splat(by) - apart);
    Vector e = _mm512_maskz_sub_ps(inRest, far, splat(by)), ee = e * e;
    OfRow row = {origin[0], by, sumOf(s[1] + ee) * each, 0};
    if constexpr (kOrder == 4)
      row.fourth = sumOf(multiplyAdd(ee, ee, s[3])) * each;
    return row;
  }
};

/// Σ x^2, and the largest magnitude of x y if it is asked for.
template <bool hasMost, int kSums> struct Squares : NoPivot {
  std::array<Vector, kSums> sums = {}, most = {};

  BYHAND_INLINE void take(int at, Vector x, Vector y) {
    sums[at] = multiplyAdd(x, x, sums[at]);
    if constexpr (hasMost)
      most[at] = larger(most[at], _mm512_abs_ps(x * y));
  }
  template <int U> BYHAND_INLINE void step(const float *x, const float *y) {
    BYHAND_UNROLL for (int i = 0; i < U; ++i)
        take(i % kSums, load(x + kLanes * i),
             hasMost ? load(y + kLanes * i) : Vector{});
  }
  BYHAND_INLINE void tail(const float *x, const float *y, Mask mask) {
    take(0, _mm512_maskz_loadu_ps(mask, x),
         hasMost ? _mm512_maskz_loadu_ps(mask, y) : Vector{});
  }
  BYHAND_INLINE float sum() const { return sumOf(add(sums)); }
  BYHAND_INLINE float largestOf() const { return mostOf(largest(most)); }
};

/// How rows are swept.
struct Walk {
  int ahead = 0;         ///< bytes; prefetched so far before they are read
  bool isIntoL2 = false; ///< prefetched there only
  int rows = 1;          ///< together
};

/// One prefetch a line; running over the end is harmless.
template <Walk kWalk> BYHAND_INLINE void prefetchAhead(const float *x) {
  const char *at = reinterpret_cast<const char *>(x) + kWalk.ahead;
  if constexpr (kWalk.ahead > 0 && kWalk.isIntoL2)
    _mm_prefetch(at, _MM_HINT_T1);
  else if constexpr (kWalk.ahead > 0)
    _mm_prefetch(at, _MM_HINT_T0);
}

/// Vectors a step.
constexpr int kStep = 8;

/// One step of one row, with what is prefetched.
template <Walk kWalk, bool isOfTwo, typename State>
BYHAND_INLINE void stepAhead(State &state, const float *x, const float *y) {
  BYHAND_UNROLL for (int k = 0; k < kStep; ++k) {
    prefetchAhead<kWalk>(x + kLanes * k);
    if (isOfTwo)
      prefetchAhead<kWalk>(y + kLanes * k);
  }
  state.template step<kStep>(x, y);
}

/// What is left of rows behind their whole steps.
template <typename State>
BYHAND_INLINE void sweepRest(State &state, const float *x, const float *y,
                             int64_t i, int64_t n) {
  for (; i + kLanes <= n; i += kLanes)
    state.template step<1>(x + i, y + i);
  if (i < n)
    state.tail(x + i, y + i, firstLanes(n - i));
}

/// Rows that lie `n` apart, and `pitch` in the second array, into their states.
template <Walk kWalk, bool isOfTwo, typename State>
BYHAND_INLINE void sweep(std::array<State, kWalk.rows> &states, const float *x,
                         const float *y, int64_t n, int64_t pitch) {
  constexpr int64_t kElements = kStep * kLanes;
  int64_t i = 0;
  for (; i + kElements <= n; i += kElements)
    BYHAND_UNROLL for (int row = 0; row < kWalk.rows; ++row)
        stepAhead<kWalk, isOfTwo>(states[row], x + row * n + i,
                                  y + row * pitch + i);
  for (int row = 0; row < kWalk.rows; ++row)
    sweepRest(states[row], x + row * n, y + row * pitch, i, n);
}

/// As `sweep`, of rows that begin with the pivots of those before them; what
/// that did not suit is swept once more.
template <Walk kWalk, typename Task, bool isTracked, typename Row>
BYHAND_INLINE void sweepAfter(
    std::array<typename Task::template State<isTracked>, kWalk.rows> &states,
    const float *x, const float *y, int64_t n, int64_t pitch, Row use) {
  using State = typename Task::template State<isTracked>;
  std::array<State, kWalk.rows> before = states;
  states = {};
  if constexpr (!isTracked)
    for (int k = 0; k < kWalk.rows; ++k)
      states[k].beginAs(before[k]);
  sweep<kWalk, Task::isOfTwo>(states, x, y, n, pitch);
  for (int k = 0; k < kWalk.rows; ++k) {
    if (__builtin_expect(states[k].isSettled(), 1)) {
      use(k, states[k]);
      continue;
    }
    std::array<typename Task::template State<true>, 1> again = {};
    constexpr Walk kPlain = {};
    sweep<kPlain, Task::isOfTwo>(again, x + k * n, y + k * pitch, n, pitch);
    use(k, again[0]);
    states[k].beginAs(again[0]);
  }
}

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_ROWSREDUCE_H
