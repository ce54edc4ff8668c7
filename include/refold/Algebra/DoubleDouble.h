// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_DOUBLEDOUBLE_H
#define REFOLD_ALGEBRA_DOUBLEDOUBLE_H

#include <cmath>

namespace refold::algebra {

/// The unevaluated sum of two doubles, |lo| <= ulp(hi) / 2: about 31 digits
/// over the range of double. Not finite exactly if `hi` is not, and `lo` is 0
/// then, so that infinities and NaN behave as in double.
///
/// Errors: + - * / sqrt below 2^-100 relative, functions below 2^-92 for
/// arguments of moderate size. Law `double-double-sum` (Knuth): with s = a + b
/// rounded, t = s - a, the rounding error (a - (s - t)) + (b - t) is a double.
struct DoubleDouble {
  double hi = 0;
  double lo = 0;

  constexpr DoubleDouble() = default;
  constexpr DoubleDouble(double hi) : hi(hi) {}
  constexpr DoubleDouble(double hi, double lo) : hi(hi), lo(lo) {}
  explicit operator double() const { return hi; }

  DoubleDouble operator-() const { return {-hi, -lo}; }
  friend DoubleDouble operator+(DoubleDouble a, DoubleDouble b);
  friend DoubleDouble operator-(DoubleDouble a, DoubleDouble b) {
    return a + -b;
  }
  friend DoubleDouble operator*(DoubleDouble a, DoubleDouble b);
  friend DoubleDouble operator/(DoubleDouble a, DoubleDouble b);
  DoubleDouble &operator+=(DoubleDouble b) { return *this = *this + b; }

  // Comparisons with a NaN are false, but != is true.
  friend bool operator==(DoubleDouble a, DoubleDouble b) {
    return a.hi == b.hi && a.lo == b.lo;
  }
  friend bool operator!=(DoubleDouble a, DoubleDouble b) { return !(a == b); }
  friend bool operator<(DoubleDouble a, DoubleDouble b) {
    return a.hi < b.hi || (a.hi == b.hi && a.lo < b.lo);
  }
  friend bool operator<=(DoubleDouble a, DoubleDouble b) {
    return a < b || a == b;
  }
  friend bool operator>(DoubleDouble a, DoubleDouble b) { return b < a; }
  friend bool operator>=(DoubleDouble a, DoubleDouble b) { return b <= a; }
};

// Found by argument-dependent lookup, so that code for `double` (using the
// functions of <cmath>) serves both types.
inline bool isnan(DoubleDouble a) { return std::isnan(a.hi); }
inline bool isinf(DoubleDouble a) { return std::isinf(a.hi); }
inline bool isfinite(DoubleDouble a) { return std::isfinite(a.hi); }
inline bool signbit(DoubleDouble a) { return std::signbit(a.hi); }
inline DoubleDouble fabs(DoubleDouble a) { return signbit(a) ? -a : a; }
DoubleDouble sqrt(DoubleDouble a);
DoubleDouble floor(DoubleDouble a);
DoubleDouble ceil(DoubleDouble a);
/// To nearest, ties to even.
DoubleDouble nearbyint(DoubleDouble a);
DoubleDouble exp(DoubleDouble a);
DoubleDouble expm1(DoubleDouble a);
DoubleDouble log(DoubleDouble a);
DoubleDouble log1p(DoubleDouble a);
DoubleDouble sin(DoubleDouble a);
DoubleDouble cos(DoubleDouble a);
DoubleDouble sinh(DoubleDouble a);
DoubleDouble cosh(DoubleDouble a);
DoubleDouble tanh(DoubleDouble a);
DoubleDouble erf(DoubleDouble a);
DoubleDouble atan2(DoubleDouble y, DoubleDouble x);
/// General power; integral exponents of moderate size by squaring.
DoubleDouble pow(DoubleDouble base, DoubleDouble exponent);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_DOUBLEDOUBLE_H
