// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_BALL_H
#define REFOLD_SUPPORT_BALL_H

#include <algorithm>
#include <cmath>
#include <limits>

namespace refold {

/// A number that may be off by `radius`: every operation gives a radius that
/// covers its result for all arguments in their balls, up to the rounding of
/// double itself. An infinite radius says that nothing is known. Comparisons
/// are those of the middles: who decides by them asks `isUndecided`.
struct Ball {
  double middle = 0;
  double radius = 0;

  constexpr Ball() = default;
  constexpr Ball(double middle, double radius = 0)
      : middle(middle), radius(radius) {}
  explicit operator double() const { return middle; }

  bool isExact() const { return radius == 0; }
  Ball operator-() const { return {-middle, radius}; }
  friend Ball operator+(Ball a, Ball b) {
    return {a.middle + b.middle, a.radius + b.radius};
  }
  friend Ball operator-(Ball a, Ball b) { return a + -b; }
  friend Ball operator*(Ball a, Ball b) {
    double radius = 0;
    if (!a.isExact())
      radius += a.radius * std::fabs(b.middle);
    if (!b.isExact())
      radius += b.radius * (std::fabs(a.middle) + a.radius);
    return Ball(a.middle * b.middle, radius).settled();
  }
  friend Ball operator/(Ball a, Ball b) {
    double value = a.middle / b.middle;
    if (a.isExact() && b.isExact())
      return value;
    double least = std::fabs(b.middle) - b.radius;
    if (!(least > 0) && !b.isExact())
      return {value, std::numeric_limits<double>::infinity()};
    return Ball(value, (a.radius + std::fabs(value) * b.radius) / least)
        .settled();
  }

  friend bool operator==(Ball a, Ball b) { return a.middle == b.middle; }
  friend bool operator!=(Ball a, Ball b) { return a.middle != b.middle; }
  friend bool operator<(Ball a, Ball b) { return a.middle < b.middle; }
  friend bool operator<=(Ball a, Ball b) { return a.middle <= b.middle; }
  friend bool operator>(Ball a, Ball b) { return a.middle > b.middle; }
  friend bool operator>=(Ball a, Ball b) { return a.middle >= b.middle; }

  /// A radius that is no number (0·inf) is one that is not known; a result that
  /// is not finite is compared by its class, so that nothing is allowed for it.
  Ball settled() const {
    if (!std::isfinite(middle))
      return middle;
    return std::isnan(radius)
               ? Ball(middle, std::numeric_limits<double>::infinity())
               : *this;
  }
};

/// Could a comparison of the two have another answer elsewhere in the balls?
inline bool isUndecided(Ball a, Ball b) {
  return (a.radius > 0 || b.radius > 0) &&
         !(std::fabs(a.middle - b.middle) > a.radius + b.radius);
}

inline bool isnan(Ball a) { return std::isnan(a.middle); }
inline bool isinf(Ball a) { return std::isinf(a.middle); }
inline bool isfinite(Ball a) { return std::isfinite(a.middle); }
inline bool signbit(Ball a) { return std::signbit(a.middle); }
inline Ball fabs(Ball a) { return {std::fabs(a.middle), a.radius}; }

/// f of a ball where f is monotone on it: its ends are the furthest.
template <typename F> Ball monotone(Ball a, F f) {
  double value = f(a.middle);
  if (a.isExact())
    return value;
  double up = std::fabs(f(a.middle + a.radius) - value);
  double down = std::fabs(f(a.middle - a.radius) - value);
  double radius = std::isnan(up) || std::isnan(down)
                      ? std::numeric_limits<double>::infinity()
                      : std::max(up, down);
  return Ball(value, radius).settled();
}
/// The same where f has slope at most 1.
template <typename F> Ball gentle(Ball a, F f) {
  return Ball(f(a.middle), a.radius).settled();
}
/// Where nothing better is known.
template <typename F> Ball unknown(Ball a, F f) {
  double radius = a.isExact() ? 0 : std::numeric_limits<double>::infinity();
  return Ball(f(a.middle), radius).settled();
}

inline Ball sqrt(Ball a) {
  return monotone(a, [](double x) { return std::sqrt(x); });
}
inline Ball exp(Ball a) {
  return monotone(a, [](double x) { return std::exp(x); });
}
inline Ball exp2(Ball a) {
  return monotone(a, [](double x) { return std::exp2(x); });
}
inline Ball expm1(Ball a) {
  return monotone(a, [](double x) { return std::expm1(x); });
}
inline Ball log(Ball a) {
  return monotone(a, [](double x) { return std::log(x); });
}
inline Ball log1p(Ball a) {
  return monotone(a, [](double x) { return std::log1p(x); });
}
inline Ball sinh(Ball a) {
  return monotone(a, [](double x) { return std::sinh(x); });
}
inline Ball tanh(Ball a) {
  return monotone(a, [](double x) { return std::tanh(x); });
}
inline Ball erf(Ball a) {
  return monotone(a, [](double x) { return std::erf(x); });
}
inline Ball sin(Ball a) {
  return gentle(a, [](double x) { return std::sin(x); });
}
inline Ball cos(Ball a) {
  return gentle(a, [](double x) { return std::cos(x); });
}
inline Ball cosh(Ball a) {
  Ball size = fabs(a);
  return monotone(size, [](double x) { return std::cosh(x); });
}
inline Ball floor(Ball a) {
  double more = a.isExact() ? 0 : 1;
  return {std::floor(a.middle), a.radius + more};
}
inline Ball ceil(Ball a) {
  double more = a.isExact() ? 0 : 1;
  return {std::ceil(a.middle), a.radius + more};
}
inline Ball nearbyint(Ball a) {
  double more = a.isExact() ? 0 : 1;
  return {std::nearbyint(a.middle), a.radius + more};
}
inline Ball atan2(Ball y, Ball x) {
  double radius =
      y.isExact() && x.isExact() ? 0 : std::numeric_limits<double>::infinity();
  return {std::atan2(y.middle, x.middle), radius};
}
/// Of positive bases, and whole exponents that are exact.
inline Ball pow(Ball base, Ball exponent) {
  double value = std::pow(base.middle, exponent.middle);
  if (base.isExact() && exponent.isExact())
    return value;
  double k = exponent.middle;
  bool isWhole = exponent.isExact() && k == std::nearbyint(k) && k >= 0;
  if (!isWhole && !(base.middle > base.radius))
    return Ball(value, std::numeric_limits<double>::infinity()).settled();
  double worst = 0;
  if (isWhole) {
    double size = std::fabs(base.middle);
    worst = std::pow(size + base.radius, k) - std::pow(size, k);
  } else {
    for (double b : {base.middle - base.radius, base.middle + base.radius})
      for (double e : {k - exponent.radius, k + exponent.radius})
        worst = std::max(worst, std::fabs(std::pow(b, e) - value));
  }
  return Ball(value, worst).settled();
}

/// The format of a rounding: |q(y) - y| <= max(unit·|y|, step).
struct RoundingError {
  double unit = 0;
  double step = 0;
  double of(double size) const { return std::max(unit * size, step); }
};

} // namespace refold

#endif // REFOLD_SUPPORT_BALL_H
