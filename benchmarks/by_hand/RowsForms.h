// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forms of each workload of rows_by_hand: what differs is what decides
// their speed on one machine or another.
#ifndef REFOLD_BENCHMARKS_BYHAND_ROWSFORMS_H
#define REFOLD_BENCHMARKS_BYHAND_ROWSFORMS_H

#include "RowsWrite.h"

namespace byhand {

/// Inlined: a call would cost short rows a tenth. With x = 2^k y, y in [3/4,
/// 3/2) and s = (y - 1) / (y + 1), log y = 2 (s + s^3 / 3 + s^5 / 5 + ...).
BYHAND_INLINE double logOf(float x) {
  if (!(x > 0 && x < INFINITY))
    return std::log(x);
  __m128 v = _mm_set_ss(x);
  __m128 y = _mm_getmant_ss(v, v, _MM_MANT_NORM_p75_1p5, _MM_MANT_SIGN_src);
  double part = y[0], power = static_cast<double>(_mm_getexp_ss(v, v)[0]) -
                              static_cast<double>(_mm_getexp_ss(y, y)[0]);
  double s = (part - 1) / (part + 1), ss = s * s, sum = 0;
  for (int k = 13; k > 0; k -= 2)
    sum = sum * ss + 2.0 / k;
  return power * kLn2 + s * sum;
}

/// The formulas of rows that reduce: what a state gives.
struct LogSumExp {
  template <bool isTracked> using State = ExpSums<false, false, isTracked>;
  static constexpr bool isOfTwo = false;
  static void finish(const Problem &p, int64_t row, auto &state) {
    float sum = state.sum();
    double l = state.pivot() + logOf(sum);
    p.out[0][row] =
        static_cast<float>(p.label ? l - p.x[row * p.n + p.label[row]] : l);
  }
};

struct Entropy {
  template <bool isTracked> using State = ExpSums<true, false, isTracked>;
  static constexpr bool isOfTwo = false;
  static void finish(const Problem &p, int64_t row, auto &state) {
    float sum = state.sum();
    p.out[0][row] = static_cast<float>(logOf(sum) - state.weightedSum() / sum);
  }
};

struct Variance {
  template <bool> using State = Moments<2, 4>;
  static constexpr bool isOfTwo = false;
  static void finish(const Problem &p, int64_t row, auto &state) {
    auto moments = state.finish(p.n);
    p.out[0][row] = moments.origin + moments.mean;
    p.out[1][row] = moments.second;
  }
};

struct Kurtosis {
  template <bool> using State = Moments<4, 2>;
  static constexpr bool isOfTwo = false;
  static void finish(const Problem &p, int64_t row, auto &state) {
    auto moments = state.finish(p.n);
    p.out[0][row] = moments.fourth / (moments.second * moments.second);
  }
};

/// With labels the log-probability, the entropy and the divergence; without,
/// the divergence alone.
template <bool hasAll> struct Divergence {
  template <bool isTracked> using State = TwoExpSums<hasAll, isTracked>;
  static constexpr bool isOfTwo = true;
  static void finish(const Problem &p, int64_t row, auto &state) {
    float z = state.first.sum(), zOther = state.second.sum();
    double l = state.first.pivot() + logOf(z);
    double lOther = state.second.pivot() + logOf(zOther);
    p.out[hasAll ? 2 : 0][row] =
        static_cast<float>(state.first.gapSum() / z - l + lOther);
    if constexpr (hasAll) {
      p.out[0][row] = static_cast<float>(p.x[row * p.n + p.label[row]] - l);
      p.out[1][row] =
          static_cast<float>(logOf(z) - state.first.weightedSum() / z);
    }
  }
};

/// How rows are reduced. `keepsPivot`: a row begins with the pivot of the one
/// before it, and is done again where that did not suit.
struct Reduce {
  Walk walk = {};
  bool keepsPivot = false;
};

template <typename Task, Reduce kReduce>
void reduceSome(const Problem &p, int64_t first, int64_t last) {
  constexpr int kRows = kReduce.walk.rows;
  constexpr bool isTracked = !kReduce.keepsPivot;
  std::array<typename Task::template State<isTracked>, kRows> states = {};
  int64_t row = first;
  for (; row + kRows <= last; row += kRows)
    sweepAfter<kReduce.walk, Task, isTracked>(
        states, p.x + row * p.n, p.other + row * p.n, p.n, p.n,
        [&](int k, auto &state) { Task::finish(p, row + k, state); });
  if constexpr (kRows > 1) {
    constexpr Reduce kSingle = {{kReduce.walk.ahead, kReduce.walk.isIntoL2}};
    reduceSome<Task, kSingle>(p, row, last);
  }
}

template <typename Task, Reduce kReduce>
Form reducing(const Problem &p, const char *name) {
  return {name, [&p](const Worker &worker) {
            auto [first, last] = worker.part(p.m, kReduce.walk.rows);
            reduceSome<Task, kReduce>(p, first, last);
          }};
}

template <typename Task, bool canKeep>
std::vector<Form> reduceForms(const Problem &p) {
  constexpr bool keeps = canKeep;
  std::vector<Form> forms = {
      reducing<Task, Reduce{{0}, keeps}>(p, "plain"),
      reducing<Task, Reduce{{2048}, keeps}>(p, "ahead-2k"),
      reducing<Task, Reduce{{4096}, keeps}>(p, "ahead-4k"),
      reducing<Task, Reduce{{8192}, keeps}>(p, "ahead-8k"),
      reducing<Task, Reduce{{8192, true}, keeps}>(p, "ahead-8k-l2"),
      reducing<Task, Reduce{{32768, true}, keeps}>(p, "ahead-32k-l2"),
      reducing<Task, Reduce{{0, false, 2}, keeps}>(p, "two-rows"),
      reducing<Task, Reduce{{4096, false, 2}, keeps}>(p, "two-rows-ahead-4k"),
      reducing<Task, Reduce{{0, false, 4}, keeps}>(p, "four-rows")};
  if constexpr (canKeep) {
    forms.push_back(reducing<Task, Reduce{{0}}>(p, "slack-pivot"));
    forms.push_back(reducing<Task, Reduce{{4096}}>(p, "slack-pivot-ahead-4k"));
    forms.push_back(reducing<Task, Reduce{{8192}}>(p, "slack-pivot-ahead-8k"));
  }
  return forms;
}

template <typename Task, Put kPut>
Form writing(const Problem &p, const char *name) {
  return {name,
          [&p](const Worker &worker) { writeRows<Task, kPut>(p, worker); }};
}

template <typename Task> std::vector<Form> writeForms(const Problem &p) {
  constexpr NextRow kStays = NextRow::Stays, kL1 = NextRow::IntoL1;
  constexpr NextRow kL2 = NextRow::IntoL2;
  return {
      writing<Task, Put{{4096}, kStays, false}>(p, "plain-ahead-4k"),
      writing<Task, Put{{4096}}>(p, "streamed-ahead-4k"),
      writing<Task, Put{{8192}}>(p, "streamed-ahead-8k"),
      writing<Task, Put{{0}, kL1}>(p, "streamed-next-l1"),
      writing<Task, Put{{0}, kL2}>(p, "streamed-next-l2"),
      writing<Task, Put{{2048}, kL2}>(p, "streamed-next-l2-ahead-2k"),
      writing<Task, Put{{0}, kL2, false}>(p, "plain-next-l2"),
      writing<Task, Put{{0}, kStays, true, false, true}>(p, "piped"),
      writing<Task, Put{{4096}, kStays, true, false, true}>(p,
                                                            "piped-ahead-4k"),
      writing<Task, Put{{8192}, kStays, true, false, true}>(p,
                                                            "piped-ahead-8k"),
      writing<Task, Put{{4096}, kStays, false, false, true}>(
          p, "piped-plain-ahead-4k"),
      writing<Task, Put{{4096}, kStays, true, true}>(p, "backward-ahead-4k"),
      writing<Task, Put{{4096, false, 2}}>(p, "two-rows-ahead-4k"),
      writing<Task, Put{{2048, false, 4}}>(p, "four-rows-ahead-2k"),
      writing<Task, Put{{4096, false, 8}}>(p, "eight-rows-ahead-4k")};
}

template <Put kPut> Form once(const Problem &p, const char *name) {
  return {name,
          [&p](const Worker &worker) { softmaxOnceRows<kPut>(p, worker); }};
}

inline std::vector<Form> softmaxForms(const Problem &p) {
  constexpr NextRow kStays = NextRow::Stays;
  std::vector<Form> forms = writeForms<Softmax>(p);
  constexpr NextRow kL1 = NextRow::IntoL1, kL2 = NextRow::IntoL2;
  forms.push_back(once<Put{{4096}, kStays, false}>(p, "once-plain-ahead-4k"));
  forms.push_back(once<Put{{4096}}>(p, "once-ahead-4k"));
  forms.push_back(once<Put{{8192}}>(p, "once-ahead-8k"));
  forms.push_back(once<Put{{0}, kL1}>(p, "once-next-l1"));
  forms.push_back(once<Put{{2048}, kL2}>(p, "once-next-l2-ahead-2k"));
  forms.push_back(
      once<Put{{4096}, kStays, true, false, true}>(p, "once-piped-ahead-4k"));
  forms.push_back(
      once<Put{{8192}, kStays, true, false, true}>(p, "once-piped-ahead-8k"));
  return forms;
}

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_ROWSFORMS_H
