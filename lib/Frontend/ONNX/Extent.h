// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_EXTENT_H
#define REFOLD_LIB_FRONTEND_ONNX_EXTENT_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace refold::onnx {

/// An integer that may depend on the sizes of the inputs: a polynomial with
/// integer coefficients over atoms. An atom is a named size, or a floor
/// division, minimum or maximum of two extents. The terms are kept sorted, so
/// equal polynomials are equal objects: 2*b*l - b*l == b*l by comparison.
/// Made and combined by `Extents` only.
class Extent {
public:
  /// Atom numbers in ascending order; b*b*l has three. Empty: the constant
  /// term.
  using Monomial = llvm::SmallVector<unsigned, 2>;
  struct Term {
    Monomial atoms;
    int64_t coefficient;
    bool operator==(const Term &other) const = default;
  };

  Extent() = default; ///< zero
  Extent(int64_t value) {
    if (value)
      terms.push_back({{}, value});
  }
  /// Its value if it depends on no atom.
  std::optional<int64_t> constant() const {
    if (terms.empty())
      return 0;
    if (terms.size() == 1 && terms.front().atoms.empty())
      return terms.front().coefficient;
    return std::nullopt;
  }
  bool is(int64_t value) const { return constant() == value; }
  bool operator==(const Extent &other) const = default;

  /// Largest monomial first (by degree, then by atoms).
  llvm::SmallVector<Term, 2> terms;
};

struct Atom {
  enum Kind { Symbol, FloorDiv, Min, Max } kind;
  std::string name; ///< of a Symbol; "" where the model gives none
  Extent lhs, rhs;  ///< of the others
  /// What is known of its value; absent: nothing.
  std::optional<int64_t> lower, upper;
};

/// No dimension is larger: beyond it an element count could not be held.
constexpr int64_t kLargestExtent = int64_t(1) << 40;

/// Owns the atoms and does the arithmetic. A result that would leave 64 bits,
/// or grow beyond any use, is zero and sets `hasOverflowed`.
class Extents {
public:
  /// A size that is at least 0: the same name is the same size; "" is new each
  /// time.
  Extent symbol(llvm::StringRef name);
  Extent add(const Extent &a, const Extent &b);
  Extent sub(const Extent &a, const Extent &b);
  Extent mul(const Extent &a, const Extent &b);
  /// Rounded towards minus infinity; `b` must be provably positive.
  Extent floorDiv(const Extent &a, const Extent &b);
  Extent ceilDiv(const Extent &a, const Extent &b);
  /// a - floorDiv(a, b) * b.
  Extent mod(const Extent &a, const Extent &b);
  Extent min(const Extent &a, const Extent &b);
  Extent max(const Extent &a, const Extent &b);
  Extent product(llvm::ArrayRef<Extent> extents);
  /// q with a == q * b for every value of the atoms, if there is one.
  std::optional<Extent> divideExactly(const Extent &a, const Extent &b);

  /// The largest provable lower and the smallest provable upper bound.
  std::optional<int64_t> lowerBound(const Extent &a) const;
  std::optional<int64_t> upperBound(const Extent &a) const;
  /// a <= b whatever the sizes? False means: not proved.
  bool isAtMost(const Extent &a, const Extent &b);
  bool isNonNegative(const Extent &a) { return isAtMost(0, a); }
  /// Equal, by form or because a run-time check has made sure of it.
  bool areEqual(const Extent &a, const Extent &b);
  /// They can be equal for no sizes.
  bool areUnequal(const Extent &a, const Extent &b);
  /// From here on `a` and `b` count as equal (their check has been emitted).
  void assume(const Extent &a, const Extent &b);

  const Atom &atom(unsigned number) const { return atoms[number]; }
  unsigned numAtoms() const { return atoms.size(); }
  /// The name if it is exactly one named size, else "".
  std::string symbolName(const Extent &a) const;
  /// "2*batch*length", for messages.
  std::string toString(const Extent &a) const;

  bool hasOverflowed = false;

private:
  Extent atomOf(Atom::Kind kind, const Extent &a, const Extent &b);
  Extent fromTerms(std::map<Extent::Monomial, int64_t> &&terms);

  std::deque<Atom> atoms;
  std::map<std::string, unsigned> symbols;
  std::vector<std::pair<Extent, Extent>> equalities;
};

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_EXTENT_H
