// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_EVALUATEREDUCE_H
#define REFOLD_LIB_ALGEBRA_EVALUATEREDUCE_H

#include "refold/Algebra/Cascade.h"
#include "refold/Algebra/DoubleDouble.h"
#include "refold/Support/Interval.h"

/// Reducers on single values, shared by both evaluators.
namespace refold::algebra::evaluate {

using std::isnan;

/// Requires a reducer other than TopK.
template <typename T> T reduce(Reducer reducer, T a, T b);

/// Any reducer but sums and products, of two intervals.
inline Interval chosenOf(Reducer reducer, Interval a, Interval b) {
  bool isMax = reducer == Reducer::Max || reducer == Reducer::MaxNum;
  bool isMin = reducer == Reducer::Min || reducer == Reducer::MinNum;
  if ((isMax || isMin) && !isnan(a) && !isnan(b))
    return isMax ? largerOf(a, b) : smallerOf(a, b);
  return Interval(reduce<double>(reducer, a.middle, b.middle),
                  std::max(a.radius(), b.radius()))
      .settled();
}

template <typename T> T reduce(Reducer reducer, T a, T b) {
  if constexpr (std::is_same_v<T, Interval>)
    if (reducer != Reducer::Sum && reducer != Reducer::Prod &&
        !(a.isExact() && b.isExact()))
      return chosenOf(reducer, a, b);
  switch (reducer) {
  case Reducer::Sum:
    return a + b;
  case Reducer::Prod:
    return a * b;
  case Reducer::Max:
    return isnan(a) ? a : isnan(b) ? b : a < b ? b : a;
  case Reducer::Min:
    return isnan(a) ? a : isnan(b) ? b : b < a ? b : a;
  case Reducer::MaxNum:
    return isnan(a) ? b : a < b ? b : a;
  case Reducer::MinNum:
    return isnan(a) ? b : b < a ? b : a;
  case Reducer::Any:
    return T(a != T(0) || b != T(0) ? 1 : 0);
  case Reducer::All:
    return T(a != T(0) && b != T(0) ? 1 : 0);
  case Reducer::TopK:
    break;
  }
  return a;
}

/// The least number of an integer type, as a double.
inline double lowestOf(Type type) {
  switch (type) {
  case Type::I32:
    return -0x1p31;
  case Type::I8:
    return -128;
  case Type::U8:
  case Type::Bool:
    return 0;
  default:
    return -0x1p63;
  }
}
inline double highestOf(Type type) {
  return type == Type::U8 ? 255 : type == Type::Bool ? 1 : -1 - lowestOf(type);
}

template <typename T> T identityOf(Reducer reducer, Type type) {
  constexpr double infinity = std::numeric_limits<double>::infinity();
  bool isMax = reducer == Reducer::Max || reducer == Reducer::MaxNum;
  bool isMin = reducer == Reducer::Min || reducer == Reducer::MinNum;
  if (!isFloat(type) && (isMax || isMin))
    return T(isMax ? lowestOf(type) : highestOf(type));
  switch (reducer) {
  case Reducer::Prod:
  case Reducer::All:
    return T(1);
  case Reducer::Max:
  case Reducer::MaxNum:
  case Reducer::TopK:
    return T(-infinity);
  case Reducer::Min:
  case Reducer::MinNum:
    return T(infinity);
  case Reducer::Sum:
  case Reducer::Any:
    return T(0);
  }
  return T(0);
}

/// The order of keys of a top-k: NaN above +inf, so last of the smallest.
template <typename T> bool isBetter(T a, T b, bool largest) {
  if (isnan(a) || isnan(b))
    return largest ? isnan(a) && !isnan(b) : isnan(b) && !isnan(a);
  return largest ? b < a : a < b;
}

/// Law `topk-merge`: the k best of a union are the k best of the parts' k best.
/// A list of the k best, as arrays with a common step: `lists[0]` are the keys.
template <typename T> struct TopList {
  std::vector<T *> lists;
  uint32_t step;
  uint32_t k;
  bool largest;
  T *filled; ///< places taken, best first; any element beats an empty place

  /// Inserts one element behind all that are as good.
  void insert(const std::vector<T> &element) {
    uint32_t at = uint32_t(double(*filled));
    while (at > 0 && isBetter(element[0], lists[0][(at - 1) * step], largest))
      --at;
    if (at == k)
      return;
    if (*filled < T(double(k)))
      *filled = *filled + T(1);
    for (size_t list = 0; list < lists.size(); ++list) {
      for (uint32_t i = k - 1; i > at; --i)
        lists[list][i * step] = lists[list][(i - 1) * step];
      lists[list][at * step] = element[list];
    }
  }
};

/// What a payload is where fewer than k elements were read.
template <typename T> T missingPayload(Type type) {
  return T(isFloat(type) ? std::numeric_limits<double>::quiet_NaN() : -1);
}

} // namespace refold::algebra::evaluate

#endif // REFOLD_LIB_ALGEBRA_EVALUATEREDUCE_H
