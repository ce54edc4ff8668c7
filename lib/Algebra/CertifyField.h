// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_CERTIFYFIELD_H
#define REFOLD_LIB_ALGEBRA_CERTIFYFIELD_H

#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Expr.h"

#include <map>

namespace refold::algebra::certifier {

/// Arithmetic modulo a prime below 2^62.
template <uint64_t Modulus> struct Field {
  static uint64_t add(uint64_t a, uint64_t b) {
    uint64_t sum = a + b;
    return sum >= Modulus ? sum - Modulus : sum;
  }
  static uint64_t neg(uint64_t a) { return a ? Modulus - a : 0; }
  static uint64_t sub(uint64_t a, uint64_t b) { return add(a, neg(b)); }
  static uint64_t mul(uint64_t a, uint64_t b) {
    return uint64_t(static_cast<unsigned __int128>(a) * b % Modulus);
  }
  static uint64_t pow(uint64_t base, uint64_t exponent) {
    uint64_t result = 1;
    for (; exponent; exponent >>= 1, base = mul(base, base))
      if (exponent & 1)
        result = mul(result, base);
    return result;
  }
  /// Of 0: 0.
  static uint64_t inverse(uint64_t a) { return pow(a, Modulus - 2); }
  static uint64_t fromInteger(int64_t value) {
    uint64_t magnitude = value < 0 ? 0 - uint64_t(value) : uint64_t(value);
    uint64_t residue = magnitude % Modulus;
    return value < 0 ? neg(residue) : residue;
  }
  /// A double is a fraction with a power of two below: exact.
  static uint64_t fromDouble(double value);
};

/// A safe prime: p = 2 q + 1 with q prime, so p = 3 mod 4. In the squares of
/// F_p every rational exponent exists (as a residue modulo q), -1 is no square,
/// and a, -a are told apart by the quadratic character. 2^61 - 1, the usual
/// choice, has q divisible by 3, 5, 7, 11, 13: e^(x/3) would not exist.
inline constexpr uint64_t kPrime = kFieldPrime;
inline constexpr uint64_t kHalfPrime = (kPrime - 1) / 2;
using F = Field<kPrime>;
using Exponent = Field<kHalfPrime>;

/// Reads expressions as functions over F_p, under a random but fixed reading of
/// everything transcendental, such that two expressions that are equal by the
/// laws of + - * / pow, e^(a + b) = e^a e^b, log(a b) = log a + log b,
/// |a b| = |a| |b| and translation of comparisons get equal values, and any two
/// others different ones (with a probability of about 2^-60 of being wrong).
class FieldReader {
public:
  FieldReader(uint64_t seed, const std::vector<uint32_t> &extents)
      : seed(seed), extents(extents), positions(extents.size() + 1, 0) {}

  using Environment = std::unordered_map<const Symbol *, uint64_t>;

  /// The residue of `e`, symbols of `environment` replaced.
  uint64_t read(Expr e, const Environment &environment);
  /// A random residue; the same for the same key.
  uint64_t random(uint64_t kind, std::initializer_list<uint64_t> key) const;
  /// a < b in the reader's order: the character of b - a.
  static bool isLess(uint64_t a, uint64_t b);

private:
  /// A product of powers of atoms; an atom is its residue.
  using Monomial = std::vector<std::pair<uint64_t, int64_t>>;
  /// Coefficients are residues modulo q, since they become exponents.
  using Polynomial = std::map<Monomial, uint64_t>;

  bool isReplacedIn(Expr e) const;
  uint64_t compute(Expr e);
  uint64_t apply(Expr e);
  uint64_t symbolValue(Expr e);
  uint64_t exponential(uint64_t base, Expr argument);
  uint64_t logarithm(Expr argument);
  uint64_t rationalPower(uint64_t base, Rational exponent);
  bool compare(Expr e);
  /// Calls `visit` at each position of contracted indices.
  void forEachPosition(IndexSet inner, const std::function<void()> &visit);

  Polynomial polynomial(Expr e);
  Polynomial polynomialOf(Expr e);
  Polynomial atom(Expr e);
  static Polynomial sum(Polynomial a, const Polynomial &b, bool negated);
  std::optional<Polynomial> product(const Polynomial &a, const Polynomial &b);
  std::optional<Polynomial> reciprocal(const Polynomial &a);
  Polynomial inverted(Expr e);

  uint64_t value(Expr e);

  uint64_t seed;
  std::vector<uint32_t> extents;
  std::vector<uint32_t> positions;
  const Environment *environment = nullptr;
  std::unordered_map<Expr, uint64_t, ExprHash> known;
  std::unordered_map<Expr, Polynomial, ExprHash> knownPolynomials;
  std::unordered_map<uint64_t, uint64_t> logarithms; ///< of exponentials
};

} // namespace refold::algebra::certifier

#endif // REFOLD_LIB_ALGEBRA_CERTIFYFIELD_H
