// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_INTERVAL_H
#define REFOLD_SUPPORT_INTERVAL_H

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>
#include <utility>

namespace refold {

/// A number that may be off by as much as `below` and `above` it: every
/// operation gives an interval that covers its result for all arguments in
/// theirs, up to the rounding of double itself. Two sides, since what is
/// computed is often known to be positive: e^x for an x that may be off by 3
/// lies between e^x/20 and 20·e^x, and 1 + e^x is no 0. An infinite side says
/// that nothing is known. Comparisons are those of the middles: who decides by
/// them asks `isUndecided`.
struct Interval {
  double middle = 0;
  double below = 0, above = 0; ///< at least 0

  constexpr Interval() = default;
  constexpr Interval(double middle) : middle(middle) {}
  constexpr Interval(double middle, double radius)
      : middle(middle), below(radius), above(radius) {}
  constexpr Interval(double middle, double below, double above)
      : middle(middle), below(below), above(above) {}
  explicit operator double() const { return middle; }

  /// Nothing is known of it but the middle.
  static Interval unknown(double middle) {
    return {middle, std::numeric_limits<double>::infinity()};
  }
  /// From the furthest of the differences to the middle that it can have; one
  /// that is no number says that it is not known.
  static Interval within(double middle,
                         std::initializer_list<double> differences) {
    Interval result(middle);
    for (double difference : differences) {
      if (std::isnan(difference))
        return unknown(middle);
      result.above = std::max(result.above, difference);
      result.below = std::max(result.below, -difference);
    }
    return result.settled();
  }

  bool isExact() const { return below == 0 && above == 0; }
  double radius() const { return std::max(below, above); }
  double lower() const { return middle - below; }
  double upper() const { return middle + above; }
  /// The same, and `more` on either side.
  Interval widened(double more) const {
    return {middle, below + more, above + more};
  }

  Interval operator-() const { return {-middle, above, below}; }
  friend Interval operator+(Interval a, Interval b) {
    return Interval(a.middle + b.middle, a.below + b.below, a.above + b.above)
        .settled();
  }
  friend Interval operator-(Interval a, Interval b) { return a + -b; }
  friend Interval operator*(Interval a, Interval b) {
    double product = a.middle * b.middle;
    if (a.isExact() && b.isExact())
      return product;
    auto off = [&](double da, double db) {
      double result = 0; // a side that is exact adds nothing: 0·inf too
      if (!a.isExact())
        result += da * b.middle;
      if (!b.isExact())
        result += db * (a.middle + da);
      return result;
    };
    return within(product, {off(-a.below, -b.below), off(-a.below, b.above),
                            off(a.above, -b.below), off(a.above, b.above)});
  }
  friend Interval operator/(Interval a, Interval b) {
    double value = a.middle / b.middle;
    if (a.isExact() && b.isExact())
      return value;
    if (!b.isExact() && !(b.lower() > 0) && !(b.upper() < 0))
      return unknown(value);
    auto off = [&](double da, double db) {
      if (std::isinf(db)) // of a finite one nothing is left
        return std::isinf(da) ? da / db : -value;
      return (da - (b.isExact() ? 0 : value * db)) / (b.middle + db);
    };
    return within(value, {off(-a.below, -b.below), off(-a.below, b.above),
                          off(a.above, -b.below), off(a.above, b.above)});
  }

  friend bool operator==(Interval a, Interval b) {
    return a.middle == b.middle;
  }
  friend bool operator!=(Interval a, Interval b) {
    return a.middle != b.middle;
  }
  friend bool operator<(Interval a, Interval b) { return a.middle < b.middle; }
  friend bool operator<=(Interval a, Interval b) {
    return a.middle <= b.middle;
  }
  friend bool operator>(Interval a, Interval b) { return a.middle > b.middle; }
  friend bool operator>=(Interval a, Interval b) {
    return a.middle >= b.middle;
  }

  /// A side that is no number (0·inf) is one that is not known, and so are
  /// those of what is not finite: e^x is inf for an x of 720, and 1 for one
  /// that may be off by 720.
  Interval settled() const {
    bool isKnown = std::isfinite(middle) && !std::isnan(below + above);
    if (isExact() || isKnown)
      return *this;
    constexpr double kUnknown = std::numeric_limits<double>::infinity();
    return {middle, kUnknown, kUnknown};
  }
};

/// Could a comparison of the two have another answer elsewhere in them?
inline bool isUndecided(Interval a, Interval b) {
  if (a.isExact() && b.isExact())
    return false;
  double difference = a.middle - b.middle;
  return !(difference > a.below + b.above) &&
         !(-difference > a.above + b.below);
}

/// `chosen`, or `other` in its place.
inline Interval either(Interval chosen, Interval other) {
  double apart = other.middle - chosen.middle;
  if (std::isnan(apart) || (std::isinf(apart) && !other.isExact()))
    return Interval::unknown(chosen.middle);
  return Interval(chosen.middle, std::max(chosen.below, other.below - apart),
                  std::max(chosen.above, other.above + apart))
      .settled();
}
/// The larger of two numbers.
inline Interval largerOf(Interval a, Interval b) {
  if (a.middle < b.middle)
    std::swap(a, b);
  double apart = a.middle - b.middle;
  if (std::isinf(apart) && !b.isExact())
    return Interval::unknown(a.middle);
  return Interval(a.middle, std::min(a.below, b.below + apart),
                  std::max(a.above, b.above - apart))
      .settled();
}
inline Interval smallerOf(Interval a, Interval b) { return -largerOf(-a, -b); }

inline bool isnan(Interval a) { return std::isnan(a.middle); }
inline bool isinf(Interval a) { return std::isinf(a.middle); }
inline bool isfinite(Interval a) { return std::isfinite(a.middle); }
inline bool signbit(Interval a) { return std::signbit(a.middle); }
inline Interval fabs(Interval a) {
  if (std::signbit(a.middle))
    a = -a;
  return {a.middle, std::min(a.below, a.middle),
          std::max(a.above, a.below - 2 * a.middle)};
}

/// f where it is monotone: its ends are the furthest.
template <typename F> Interval monotone(Interval a, F f) {
  double value = f(a.middle);
  if (a.isExact())
    return value;
  return Interval::within(value, {f(a.upper()) - value, f(a.lower()) - value});
}
/// f where it has slope at most 1 and stays between -1 and 1.
template <typename F> Interval wave(Interval a, F f) {
  return Interval(f(a.middle), std::min(a.radius(), 2.0)).settled();
}

inline Interval sqrt(Interval a) {
  return monotone(a, [](double x) { return std::sqrt(x); });
}
inline Interval exp(Interval a) {
  return monotone(a, [](double x) { return std::exp(x); });
}
inline Interval exp2(Interval a) {
  return monotone(a, [](double x) { return std::exp2(x); });
}
inline Interval expm1(Interval a) {
  return monotone(a, [](double x) { return std::expm1(x); });
}
inline Interval log(Interval a) {
  return monotone(a, [](double x) { return std::log(x); });
}
inline Interval log1p(Interval a) {
  return monotone(a, [](double x) { return std::log1p(x); });
}
inline Interval sinh(Interval a) {
  return monotone(a, [](double x) { return std::sinh(x); });
}
inline Interval tanh(Interval a) {
  return monotone(a, [](double x) { return std::tanh(x); });
}
inline Interval erf(Interval a) {
  return monotone(a, [](double x) { return std::erf(x); });
}
inline Interval sin(Interval a) {
  return wave(a, [](double x) { return std::sin(x); });
}
inline Interval cos(Interval a) {
  return wave(a, [](double x) { return std::cos(x); });
}
inline Interval cbrt(Interval a) {
  return monotone(a, [](double x) { return std::cbrt(x); });
}
inline Interval asin(Interval a) {
  return monotone(a, [](double x) { return std::asin(x); });
}
inline Interval acos(Interval a) {
  return monotone(a, [](double x) { return std::acos(x); });
}
inline Interval atan(Interval a) {
  return monotone(a, [](double x) { return std::atan(x); });
}
inline Interval asinh(Interval a) {
  return monotone(a, [](double x) { return std::asinh(x); });
}
inline Interval acosh(Interval a) {
  return monotone(a, [](double x) { return std::acosh(x); });
}
inline Interval atanh(Interval a) {
  return monotone(a, [](double x) { return std::atanh(x); });
}
inline Interval cosh(Interval a) {
  return monotone(fabs(a), [](double x) { return std::cosh(x); });
}
/// f to a whole number near by.
template <typename F> Interval stepped(Interval a, F f) {
  double more = a.isExact() ? 0 : 1;
  return {f(a.middle), a.below + more, a.above + more};
}
inline Interval floor(Interval a) {
  return stepped(a, [](double x) { return std::floor(x); });
}
inline Interval ceil(Interval a) {
  return stepped(a, [](double x) { return std::ceil(x); });
}
inline Interval nearbyint(Interval a) {
  return stepped(a, [](double x) { return std::nearbyint(x); });
}
inline Interval atan2(Interval y, Interval x) {
  double value = std::atan2(y.middle, x.middle);
  return y.isExact() && x.isExact() ? Interval(value)
                                    : Interval::unknown(value);
}
/// Of positive bases, and whole exponents that are exact.
inline Interval pow(Interval base, Interval exponent) {
  double value = std::pow(base.middle, exponent.middle);
  if (base.isExact() && exponent.isExact())
    return value;
  double k = exponent.middle;
  bool isWhole = exponent.isExact() && k == std::nearbyint(k) && k >= 0;
  if (isWhole) {
    bool isEven = std::fmod(k, 2) == 0;
    return monotone(isEven ? fabs(base) : base,
                    [k](double x) { return std::pow(x, k); });
  }
  if (!(base.lower() > 0))
    return Interval::unknown(value);
  auto off = [&](double b, double e) { return std::pow(b, e) - value; };
  return Interval::within(value, {off(base.lower(), k - exponent.below),
                                  off(base.lower(), k + exponent.above),
                                  off(base.upper(), k - exponent.below),
                                  off(base.upper(), k + exponent.above)});
}

/// The format of a rounding: |q(y) - y| <= max(unit·|y|, step).
struct RoundingError {
  double unit = 0;
  double step = 0;
  double of(double size) const { return std::max(unit * size, step); }
};

/// What was `before` rounded to `value`, where the rounding may be done at
/// another number of the interval: either side is off by twice the error of its
/// own end more, and a rounding takes nothing past 0.
inline Interval roundedWithin(Interval before, double value,
                              RoundingError error) {
  auto more = [&](double end) {
    return 2 * error.of(std::max(std::fabs(before.middle), std::fabs(end)));
  };
  Interval result(value, before.below + more(before.lower()),
                  before.above + more(before.upper()));
  if (before.lower() >= 0)
    result.below = std::min(result.below, std::max(value, 0.0));
  if (before.upper() <= 0)
    result.above = std::min(result.above, std::max(-value, 0.0));
  return result.settled();
}

} // namespace refold

#endif // REFOLD_SUPPORT_INTERVAL_H
