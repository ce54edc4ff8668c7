// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/DoubleDouble.h"

#include <array>
#include <bit>
#include <cstdint>
#include <limits>

// Every error-free step below relies on IEEE rounding of single operations, so
// this file must not be compiled with fast-math or contraction.
#pragma STDC FP_CONTRACT OFF

namespace refold::algebra {

static constexpr DoubleDouble kLn2(0x1.62e42fefa39efp-1, 0x1.abc9e3b39803fp-56);
static constexpr double kLn2Rest = 0x1.7b57a079a1934p-111;
static constexpr DoubleDouble kHalfPi(0x1.921fb54442d18p+0,
                                      0x1.1a62633145c07p-54);
static constexpr double kHalfPiRest = -0x1.f1976b7ed8fbcp-110;
static constexpr DoubleDouble kTwoOverRootPi(0x1.20dd750429b6dp+0,
                                             0x1.1ae3a914fed80p-56);

/// s = a + b rounded, and its error. See `double-double-sum`.
static DoubleDouble twoSum(double a, double b) {
  double s = a + b;
  if (!std::isfinite(s))
    return {s, 0};
  double t = s - a;
  return {s, (a - (s - t)) + (b - t)};
}

/// The same where |a| >= |b|.
static DoubleDouble fastTwoSum(double a, double b) {
  double s = a + b;
  if (!std::isfinite(s))
    return {s, 0};
  return {s, b - (s - a)};
}

static DoubleDouble twoProduct(double a, double b) {
  double p = a * b;
  if (!std::isfinite(p))
    return {p, 0};
  return {p, std::fma(a, b, -p)};
}

DoubleDouble operator+(DoubleDouble a, DoubleDouble b) {
  DoubleDouble s = twoSum(a.hi, b.hi);
  if (!std::isfinite(s.hi))
    return s;
  DoubleDouble t = twoSum(a.lo, b.lo);
  s = fastTwoSum(s.hi, s.lo + t.hi);
  return fastTwoSum(s.hi, s.lo + t.lo);
}

DoubleDouble operator*(DoubleDouble a, DoubleDouble b) {
  DoubleDouble p = twoProduct(a.hi, b.hi);
  if (!std::isfinite(p.hi))
    return p;
  return fastTwoSum(p.hi, p.lo + (a.hi * b.lo + a.lo * b.hi));
}

DoubleDouble operator/(DoubleDouble a, DoubleDouble b) {
  double q = a.hi / b.hi;
  if (!std::isfinite(q) || !std::isfinite(b.hi) || q == 0)
    return q;
  DoubleDouble r = a - b * DoubleDouble(q);
  double q2 = r.hi / b.hi;
  r = r - b * DoubleDouble(q2);
  double q3 = r.hi / b.hi;
  return fastTwoSum(q, q2) + DoubleDouble(q3);
}

/// a 2^exponent.
static DoubleDouble scaled(DoubleDouble a, int exponent) {
  // Where the factor is a normal number, one multiplication rounds as ldexp.
  constexpr int kBias = 1023;
  if (-kBias < exponent && exponent <= kBias) {
    double factor = std::bit_cast<double>(uint64_t(exponent + kBias) << 52);
    double hi = a.hi * factor;
    return {hi, std::isfinite(hi) ? a.lo * factor : 0};
  }
  double hi = std::ldexp(a.hi, exponent);
  return {hi, std::isfinite(hi) ? std::ldexp(a.lo, exponent) : 0};
}

DoubleDouble sqrt(DoubleDouble a) {
  double root = std::sqrt(a.hi);
  if (!std::isfinite(root) || root == 0)
    return root;
  DoubleDouble rest = a - twoProduct(root, root);
  return fastTwoSum(root, rest.hi / (2 * root));
}

DoubleDouble floor(DoubleDouble a) {
  double hi = std::floor(a.hi);
  if (hi != a.hi || !std::isfinite(hi))
    return hi;
  return fastTwoSum(hi, std::floor(a.lo));
}

DoubleDouble ceil(DoubleDouble a) { return -floor(-a); }

DoubleDouble nearbyint(DoubleDouble a) {
  if (!std::isfinite(a.hi))
    return a;
  DoubleDouble low = floor(a), rest = a - low;
  DoubleDouble half(0.5);
  if (rest < half)
    return low;
  if (half < rest)
    return low + DoubleDouble(1);
  DoubleDouble halved = low * half;
  return floor(halved) == halved ? low : low + DoubleDouble(1);
}

/// 1/n! for n < 28.
static const std::array<DoubleDouble, 28> &inverseFactorials() {
  static const std::array<DoubleDouble, 28> table = [] {
    std::array<DoubleDouble, 28> result;
    result[0] = 1.0;
    for (int n = 1; n < 28; ++n)
      result[n] = result[n - 1] / DoubleDouble(n);
    return result;
  }();
  return table;
}

/// e^a - 1 for |a| <= 0.35: Taylor at a / 256, doubled eight times.
///
/// Law `expm1-doubling`: e^2x - 1 = 2 (e^x - 1) + (e^x - 1)^2, which cancels
/// nothing and so keeps the relative error for tiny a.
static DoubleDouble doubledExpm1(DoubleDouble a) {
  const auto &inverse = inverseFactorials();
  DoubleDouble r = scaled(a, -8);
  DoubleDouble sum = inverse[10];
  for (int n = 9; n >= 1; --n)
    sum = sum * r + inverse[n];
  sum = sum * r;
  for (int i = 0; i < 8; ++i)
    sum = scaled(sum, 1) + sum * sum;
  return sum;
}

/// |a| <= 0.35 is at most this many steps of 1/128 away from 0.
static constexpr int kSteps = 45;
static constexpr double kStepsOfOne = 128;

/// e^(j/128) - 1 of j = -kSteps ... kSteps.
static const std::array<DoubleDouble, 2 * kSteps + 1> &expm1OfSteps() {
  static const std::array<DoubleDouble, 2 * kSteps + 1> table = [] {
    std::array<DoubleDouble, 2 * kSteps + 1> result;
    for (int j = -kSteps; j <= kSteps; ++j)
      result[j + kSteps] = doubledExpm1(j / kStepsOfOne);
    return result;
  }();
  return table;
}

/// The same with a third of the operations, by the law of products in
/// `expm1-doubling`: the nearest step's value and Taylor at what is left, at
/// most 2^-8. Its terms from the sixth on are below 2^-49 of the first, so that
/// their digits in double end below 2^-102 of it.
static DoubleDouble smallExpm1(DoubleDouble a) {
  const auto &inverse = inverseFactorials();
  double j = std::nearbyint(a.hi * kStepsOfOne);
  DoubleDouble r = a - DoubleDouble(j / kStepsOfOne);
  double high = inverse[10].hi;
  for (int n = 9; n >= 6; --n)
    high = high * r.hi + inverse[n].hi;
  DoubleDouble sum = inverse[5] + DoubleDouble(high * r.hi);
  for (int n = 4; n >= 1; --n)
    sum = sum * r + inverse[n];
  sum = sum * r;
  if (j == 0)
    return sum;
  DoubleDouble step = expm1OfSteps()[int(j) + kSteps];
  return step + (sum + step * sum);
}

DoubleDouble exp(DoubleDouble a) {
  if (isnan(a) || a.hi > 709.79)
    return std::exp(a.hi);
  if (a.hi < -745.2)
    return 0.0;
  double k = std::nearbyint(a.hi / kLn2.hi);
  DoubleDouble r = a - kLn2 * DoubleDouble(k) - DoubleDouble(k * kLn2Rest);
  return scaled(smallExpm1(r) + DoubleDouble(1), int(k));
}

DoubleDouble expm1(DoubleDouble a) {
  if (std::fabs(a.hi) <= 0.34)
    return smallExpm1(a);
  return exp(a) - DoubleDouble(1);
}

DoubleDouble log(DoubleDouble a) {
  double y = std::log(a.hi);
  if (!std::isfinite(y))
    return y;
  // One step of Newton's for e^y = a, on a scaled to about 1 so that nothing is
  // subnormal: 2^-53 that double is off becomes 2^-107.
  int exponent = std::ilogb(a.hi);
  DoubleDouble m = scaled(a, -exponent);
  DoubleDouble z = std::log(m.hi);
  z = z + (m * exp(-z) - DoubleDouble(1));
  return z + kLn2 * DoubleDouble(exponent);
}

DoubleDouble log1p(DoubleDouble a) {
  if (!(std::fabs(a.hi) < 0.25))
    return log(DoubleDouble(1) + a);
  DoubleDouble y = std::log1p(a.hi), e = smallExpm1(y);
  return y - (e - a) / (e + DoubleDouble(1));
}

/// sin and cos of |r| <= pi/4 by their series.
static void smallSinCos(DoubleDouble r, DoubleDouble &sine,
                        DoubleDouble &cosine) {
  const auto &inverse = inverseFactorials();
  DoubleDouble square = r * r;
  sine = inverse[27];
  cosine = inverse[26];
  for (int n = 25; n >= 1; n -= 2) {
    sine = inverse[n] - sine * square;
    cosine = inverse[n - 1] - cosine * square;
  }
  sine = sine * r;
}

/// Answers the quadrant; the argument is reduced to at most pi/4.
static int reduceToQuadrant(DoubleDouble &a) {
  double k = std::nearbyint(a.hi / kHalfPi.hi);
  a = a - kHalfPi * DoubleDouble(k) - DoubleDouble(k * kHalfPiRest);
  return int(std::fmod(std::fmod(k, 4) + 4, 4));
}

/// Beyond this the reduction has no digits left; double's own is used.
static constexpr double kLargestAngle = 1e9;

DoubleDouble sin(DoubleDouble a) {
  if (!(std::fabs(a.hi) <= kLargestAngle))
    return std::sin(a.hi);
  int quadrant = reduceToQuadrant(a);
  DoubleDouble s, c;
  smallSinCos(a, s, c);
  DoubleDouble value = quadrant % 2 ? c : s;
  return quadrant >= 2 ? -value : value;
}

DoubleDouble cos(DoubleDouble a) {
  if (!(std::fabs(a.hi) <= kLargestAngle))
    return std::cos(a.hi);
  int quadrant = reduceToQuadrant(a);
  DoubleDouble s, c;
  smallSinCos(a, s, c);
  DoubleDouble value = quadrant % 2 ? s : c;
  return quadrant == 1 || quadrant == 2 ? -value : value;
}

DoubleDouble sinh(DoubleDouble a) {
  if (std::fabs(a.hi) <= 0.34) {
    DoubleDouble e = smallExpm1(a);
    return scaled(e + e / (e + DoubleDouble(1)), -1);
  }
  return scaled(exp(a) - exp(-a), -1);
}

DoubleDouble cosh(DoubleDouble a) { return scaled(exp(a) + exp(-a), -1); }

DoubleDouble tanh(DoubleDouble a) {
  if (!(std::fabs(a.hi) < 40))
    return std::tanh(a.hi);
  DoubleDouble e = expm1(scaled(a, 1));
  return e / (e + DoubleDouble(2));
}

DoubleDouble erf(DoubleDouble a) {
  if (!(std::fabs(a.hi) < 8.5))
    return std::erf(a.hi);
  // erf a = 2/sqrt(pi) e^(-a^2) sum 2^n a^(2n+1) / (2n+1)!!: no cancellation.
  DoubleDouble square = a * a, term = a, sum = a;
  for (int n = 1; n < 400; ++n) {
    term = term * scaled(square, 1) / DoubleDouble(2 * n + 1);
    sum = sum + term;
    if (std::fabs(term.hi) <= 1e-34 * std::fabs(sum.hi))
      break;
  }
  return kTwoOverRootPi * exp(-square) * sum;
}

DoubleDouble atan2(DoubleDouble y, DoubleDouble x) {
  DoubleDouble angle = std::atan2(y.hi, x.hi);
  double size = std::hypot(x.hi, y.hi);
  if (!std::isfinite(size) || size == 0)
    return angle;
  // One Newton step: the angle is off by (y cos - x sin) / size.
  return angle + (y * cos(angle) - x * sin(angle)) / sqrt(x * x + y * y);
}

DoubleDouble pow(DoubleDouble base, DoubleDouble exponent) {
  double n = exponent.hi;
  if (exponent.lo == 0 && n == std::nearbyint(n) && std::fabs(n) <= 1024) {
    DoubleDouble result = 1.0, square = base;
    for (unsigned left = unsigned(std::fabs(n)); left; left >>= 1) {
      if (left & 1)
        result = result * square;
      square = square * square;
    }
    return n < 0 ? DoubleDouble(1) / result : result;
  }
  if (!(base.hi > 0) || !isfinite(base) || !isfinite(exponent))
    return std::pow(base.hi, exponent.hi);
  return exp(exponent * log(base));
}

} // namespace refold::algebra
