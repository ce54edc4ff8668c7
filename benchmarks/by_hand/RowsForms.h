// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The forms of each workload of rows_by_hand: what differs is what decides
// their speed on one machine or another.
#ifndef REFOLD_BENCHMARKS_BYHAND_ROWSFORMS_H
#define REFOLD_BENCHMARKS_BYHAND_ROWSFORMS_H

#include "RowsWrite.h"

namespace byhand {

/// The formulas of rows that reduce: what a state gives, and whether a pivot
/// that was another row's suited it.
struct LogSumExp {
  using State = ExpSums<false, false, 4>;
  static constexpr bool isOfTwo = false;
  static bool finish(const Problem &p, int64_t row, State &state) {
    float sum = state.sum();
    double l = state.pivot() + std::log(sum);
    p.out[0][row] =
        static_cast<float>(p.label ? l - p.x[row * p.n + p.label[row]] : l);
    return isSettled(sum);
  }
};

struct Entropy {
  using State = ExpSums<true, false, 4>;
  static constexpr bool isOfTwo = false;
  static bool finish(const Problem &p, int64_t row, State &state) {
    float sum = state.sum();
    p.out[0][row] =
        static_cast<float>(std::log(sum) - state.weightedSum() / sum);
    return isSettled(sum);
  }
};

struct Variance {
  using State = Moments<2, 4>;
  static constexpr bool isOfTwo = false;
  static bool finish(const Problem &p, int64_t row, State &state) {
    State::OfRow moments = state.finish(p.n);
    p.out[0][row] = moments.origin + moments.mean;
    p.out[1][row] = moments.second;
    return true;
  }
};

struct Kurtosis {
  using State = Moments<4, 2>;
  static constexpr bool isOfTwo = false;
  static bool finish(const Problem &p, int64_t row, State &state) {
    State::OfRow moments = state.finish(p.n);
    p.out[0][row] = moments.fourth / (moments.second * moments.second);
    return true;
  }
};

/// With labels the log-probability, the entropy and the divergence; without,
/// the divergence alone.
template <bool hasAll> struct Divergence {
  using State = TwoExpSums<hasAll, 4>;
  static constexpr bool isOfTwo = true;
  static bool finish(const Problem &p, int64_t row, State &state) {
    float z = state.first.sum(), zOther = state.second.sum();
    double l = state.first.pivot() + std::log(z);
    double lOther = state.second.pivot() + std::log(zOther);
    p.out[hasAll ? 2 : 0][row] =
        static_cast<float>(state.first.gapSum() / z - l + lOther);
    if constexpr (hasAll) {
      p.out[0][row] = static_cast<float>(p.x[row * p.n + p.label[row]] - l);
      p.out[1][row] =
          static_cast<float>(std::log(z) - state.first.weightedSum() / z);
    }
    return isSettled(z) && isSettled(zOther);
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
  using State = typename Task::State;
  std::array<State, kRows> before = {};
  int64_t row = first;
  for (; row + kRows <= last; row += kRows) {
    std::array<State, kRows> states = {};
    if constexpr (kReduce.keepsPivot)
      for (int k = 0; k < kRows; ++k)
        states[k].beginAs(before[k]);
    const float *x = p.x + row * p.n, *other = p.other + row * p.n;
    sweep<kReduce.walk, Task::isOfTwo>(states, x, other, p.n, p.n);
    for (int k = 0; k < kRows; ++k)
      if (!Task::finish(p, row + k, states[k]) && kReduce.keepsPivot) {
        constexpr Walk kPlain = {};
        std::array<State, 1> again = {};
        sweep<kPlain, Task::isOfTwo>(again, x + k * p.n, other + k * p.n, p.n,
                                     p.n);
        Task::finish(p, row + k, again[0]);
        states[k] = again[0];
      }
    if constexpr (kReduce.keepsPivot)
      before = states;
  }
  if constexpr (kRows > 1) {
    constexpr Reduce kSingle = {{kReduce.walk.ahead, kReduce.walk.isIntoL2, 1}};
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
  std::vector<Form> forms = {
      reducing<Task, Reduce{{0}}>(p, "plain"),
      reducing<Task, Reduce{{4096}}>(p, "ahead-4k"),
      reducing<Task, Reduce{{8192}}>(p, "ahead-8k"),
      reducing<Task, Reduce{{16384, true}}>(p, "ahead-16k-l2"),
      reducing<Task, Reduce{{0, false, 2}}>(p, "two-rows"),
      reducing<Task, Reduce{{4096, false, 2}}>(p, "two-rows-ahead-4k"),
      reducing<Task, Reduce{{0, false, 4}}>(p, "four-rows"),
      reducing<Task, Reduce{{2048, false, 4}}>(p, "four-rows-ahead-2k")};
  if constexpr (canKeep) {
    forms.push_back(reducing<Task, Reduce{{0}, true}>(p, "kept-pivot"));
    forms.push_back(
        reducing<Task, Reduce{{4096}, true}>(p, "kept-pivot-ahead-4k"));
    forms.push_back(
        reducing<Task, Reduce{{8192}, true}>(p, "kept-pivot-ahead-8k"));
  }
  return forms;
}

template <typename Task, Put kPut>
Form writing(const Problem &p, const char *name) {
  return {name,
          [&p](const Worker &worker) { writeRows<Task, kPut>(p, worker); }};
}

template <typename Task> std::vector<Form> writeForms(const Problem &p) {
  constexpr NextRow kStays = NextRow::Stays;
  return {
      writing<Task, Put{{0}, kStays, false}>(p, "plain"),
      writing<Task, Put{{4096}, kStays, false}>(p, "plain-ahead-4k"),
      writing<Task, Put{{8192}}>(p, "streamed-ahead-8k"),
      writing<Task, Put{{0}, NextRow::IntoL1}>(p, "streamed-next-l1"),
      writing<Task, Put{{0}, NextRow::IntoL2}>(p, "streamed-next-l2"),
      writing<Task, Put{{0}, NextRow::IntoL2, false}>(p, "plain-next-l2"),
      writing<Task, Put{{0}, kStays, true, false, true}>(p, "piped"),
      writing<Task, Put{{4096}, kStays, true, false, true}>(p,
                                                            "piped-ahead-4k"),
      writing<Task, Put{{0}, kStays, false, false, true}>(p, "piped-plain"),
      writing<Task, Put{{0}, kStays, true, true}>(p, "backward"),
      writing<Task, Put{{0, false, 2}}>(p, "two-rows"),
      writing<Task, Put{{0, false, 4}}>(p, "four-rows"),
      writing<Task, Put{{0, false, 4}, kStays, false}>(p, "four-rows-plain")};
}

template <Put kPut> Form once(const Problem &p, const char *name) {
  return {name,
          [&p](const Worker &worker) { softmaxOnceRows<kPut>(p, worker); }};
}

inline std::vector<Form> softmaxForms(const Problem &p) {
  constexpr NextRow kStays = NextRow::Stays;
  std::vector<Form> forms = writeForms<Softmax>(p);
  forms.push_back(once<Put{{0}, kStays, false}>(p, "once-plain"));
  forms.push_back(once<Put{{4096}}>(p, "once-ahead-4k"));
  forms.push_back(once<Put{{0}, NextRow::IntoL1}>(p, "once-next-l1"));
  forms.push_back(once<Put{{0}, NextRow::IntoL2}>(p, "once-next-l2"));
  forms.push_back(once<Put{{0}, kStays, true, false, true}>(p, "once-piped"));
  forms.push_back(
      once<Put{{4096}, kStays, true, false, true}>(p, "once-piped-ahead-4k"));
  forms.push_back(
      once<Put{{0}, kStays, false, false, true}>(p, "once-piped-plain"));
  return forms;
}

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_ROWSFORMS_H
