// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Extent.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"
#include "llvm/Support/raw_ostream.h"
#include <algorithm>

using namespace refold::onnx;
using Monomial = Extent::Monomial;
using Terms = std::map<Monomial, int64_t>;

// A model that needs more is not a model but an attack on the arithmetic.
static constexpr size_t kMostTerms = 64;
static constexpr size_t kHighestDegree = 16;
static constexpr size_t kMostAtoms = 1 << 12;

/// Graded: the degree decides first, so that long division ends.
static bool isLarger(const Monomial &a, const Monomial &b) {
  if (a.size() != b.size())
    return a.size() > b.size();
  return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
}

static Terms toMap(const Extent &a) {
  Terms terms;
  for (const Extent::Term &term : a.terms)
    terms.emplace(term.atoms, term.coefficient);
  return terms;
}

static Extent ofAtom(unsigned number) {
  Extent result;
  result.terms.push_back({{number}, 1});
  return result;
}

static Monomial multiply(const Monomial &a, const Monomial &b) {
  Monomial result;
  std::merge(a.begin(), a.end(), b.begin(), b.end(),
             std::back_inserter(result));
  return result;
}

/// a / b if b divides a.
static std::optional<Monomial> divide(const Monomial &a, const Monomial &b) {
  if (!std::includes(a.begin(), a.end(), b.begin(), b.end()))
    return std::nullopt;
  Monomial result;
  std::set_difference(a.begin(), a.end(), b.begin(), b.end(),
                      std::back_inserter(result));
  return result;
}

Extent Extents::fromTerms(Terms &&terms) {
  Extent result;
  for (auto &[atoms, coefficient] : terms) {
    if (!coefficient)
      continue;
    if (atoms.size() > kHighestDegree || result.terms.size() == kMostTerms) {
      hasOverflowed = true;
      return Extent();
    }
    result.terms.push_back({atoms, coefficient});
  }
  llvm::sort(result.terms, [](const Extent::Term &a, const Extent::Term &b) {
    return isLarger(a.atoms, b.atoms);
  });
  return result;
}

Extent Extents::symbol(llvm::StringRef name) {
  if (!name.empty())
    if (auto known = symbols.find(name.str()); known != symbols.end())
      return ofAtom(known->second);
  unsigned number = atoms.size();
  atoms.push_back({Atom::Symbol, name.str(), {}, {}, 0, kLargestExtent});
  if (!name.empty())
    symbols.emplace(name.str(), number);
  return ofAtom(number);
}

Extent Extents::add(const Extent &a, const Extent &b) {
  Terms terms = toMap(a);
  for (const Extent::Term &term : b.terms) {
    int64_t &sum = terms[term.atoms];
    hasOverflowed |= llvm::AddOverflow(sum, term.coefficient, sum) != 0;
  }
  return fromTerms(std::move(terms));
}

Extent Extents::sub(const Extent &a, const Extent &b) {
  Terms terms = toMap(a);
  for (const Extent::Term &term : b.terms) {
    int64_t &sum = terms[term.atoms];
    hasOverflowed |= llvm::SubOverflow(sum, term.coefficient, sum) != 0;
  }
  return fromTerms(std::move(terms));
}

Extent Extents::mul(const Extent &a, const Extent &b) {
  Terms terms;
  for (const Extent::Term &x : a.terms)
    for (const Extent::Term &y : b.terms) {
      int64_t product;
      hasOverflowed |=
          llvm::MulOverflow(x.coefficient, y.coefficient, product) != 0;
      int64_t &sum = terms[multiply(x.atoms, y.atoms)];
      hasOverflowed |= llvm::AddOverflow(sum, product, sum) != 0;
    }
  return hasOverflowed ? Extent() : fromTerms(std::move(terms));
}

Extent Extents::product(llvm::ArrayRef<Extent> extents) {
  Extent result(1);
  for (const Extent &extent : extents)
    result = mul(result, extent);
  return result;
}

std::optional<Extent> Extents::divideExactly(const Extent &a, const Extent &b) {
  if (b.terms.empty())
    return std::nullopt;
  const Extent::Term &lead = b.terms.front();
  Extent rest = a, quotient;
  for (size_t step = 0; !rest.terms.empty(); ++step) {
    const Extent::Term &top = rest.terms.front();
    std::optional<Monomial> atoms = divide(top.atoms, lead.atoms);
    bool isMinOverOne = lead.coefficient == -1 && top.coefficient == INT64_MIN;
    if (!atoms || isMinOverOne || top.coefficient % lead.coefficient != 0 ||
        step == kMostTerms)
      return std::nullopt;
    Extent factor;
    factor.terms.push_back({*atoms, top.coefficient / lead.coefficient});
    quotient = add(quotient, factor);
    rest = sub(rest, mul(factor, b));
    if (hasOverflowed)
      return std::nullopt;
  }
  return quotient;
}

Extent Extents::atomOf(Atom::Kind kind, const Extent &a, const Extent &b) {
  for (auto [number, atom] : llvm::enumerate(atoms))
    if (atom.kind == kind && atom.lhs == a && atom.rhs == b)
      return ofAtom(number);
  if (atoms.size() == kMostAtoms) {
    hasOverflowed = true;
    return Extent();
  }
  Atom atom{kind, "", a, b, std::nullopt, std::nullopt};
  std::optional<int64_t> lowA = lowerBound(a), lowB = lowerBound(b);
  std::optional<int64_t> highA = upperBound(a), highB = upperBound(b);
  switch (kind) {
  case Atom::Min:
    atom.upper = highA && highB ? std::min(*highA, *highB)
                 : highA        ? highA
                                : highB;
    if (lowA && lowB)
      atom.lower = std::min(*lowA, *lowB);
    break;
  case Atom::Max:
    atom.lower = lowA && lowB ? std::max(*lowA, *lowB) : lowA ? lowA : lowB;
    if (highA && highB)
      atom.upper = std::max(*highA, *highB);
    break;
  case Atom::FloorDiv: // the divisor is at least 1
    if (lowA)
      atom.lower = *lowA >= 0 ? 0 : *lowA;
    if (highA)
      atom.upper = *highA < 0 ? -1 : *highA;
    break;
  case Atom::Symbol:
    break;
  }
  unsigned number = atoms.size();
  atoms.push_back(std::move(atom));
  return ofAtom(number);
}

/// Floor division of constants, b > 0.
static int64_t floorOf(int64_t a, int64_t b) {
  return a / b - (a % b != 0 && a < 0);
}

Extent Extents::floorDiv(const Extent &a, const Extent &b) {
  if (a.constant() && b.constant())
    return floorOf(*a.constant(), *b.constant());
  if (std::optional<Extent> exact = divideExactly(a, b))
    return *exact;
  // Terms that the divisor divides come out: (8*n + r) // 8 is n + r // 8.
  Extent whole, rest;
  for (const Extent::Term &term : a.terms) {
    Extent part;
    part.terms.push_back(term);
    if (std::optional<Extent> exact = divideExactly(part, b))
      whole = add(whole, *exact);
    else
      rest = add(rest, part);
  }
  if (rest.constant() && b.constant())
    return add(whole, floorOf(*rest.constant(), *b.constant()));
  return add(whole, atomOf(Atom::FloorDiv, rest, b));
}

Extent Extents::ceilDiv(const Extent &a, const Extent &b) {
  return floorDiv(add(a, sub(b, 1)), b);
}

Extent Extents::mod(const Extent &a, const Extent &b) {
  return sub(a, mul(floorDiv(a, b), b));
}

Extent Extents::min(const Extent &a, const Extent &b) {
  if (isAtMost(a, b))
    return a;
  if (isAtMost(b, a))
    return b;
  return atomOf(Atom::Min, a, b);
}

Extent Extents::max(const Extent &a, const Extent &b) {
  if (isAtMost(a, b))
    return b;
  if (isAtMost(b, a))
    return a;
  return atomOf(Atom::Max, a, b);
}

//===- Bounds and equality ===//

/// The bounds of a product of atoms. Factors are non-negative or the product
/// is not bounded: nothing needs more.
static std::optional<int64_t> boundOf(const Extents &extents,
                                      const Monomial &atoms, bool isUpper) {
  int64_t product = 1;
  for (unsigned number : atoms) {
    const Atom &atom = extents.atom(number);
    if (!atom.lower || (isUpper && !atom.upper))
      return std::nullopt;
    if (*atom.lower < 0 && atoms.size() > 1)
      return std::nullopt;
    if (llvm::MulOverflow(product, isUpper ? *atom.upper : *atom.lower,
                          product))
      return std::nullopt;
  }
  return product;
}

static std::optional<int64_t> boundOf(const Extents &extents, const Extent &a,
                                      bool isUpper) {
  int64_t sum = 0;
  for (const Extent::Term &term : a.terms) {
    bool takesUpper = isUpper == (term.coefficient > 0);
    std::optional<int64_t> bound = boundOf(extents, term.atoms, takesUpper);
    int64_t part;
    if (!bound || llvm::MulOverflow(*bound, term.coefficient, part) ||
        llvm::AddOverflow(sum, part, sum))
      return std::nullopt;
  }
  return sum;
}

std::optional<int64_t> Extents::lowerBound(const Extent &a) const {
  return boundOf(*this, a, /*isUpper=*/false);
}
std::optional<int64_t> Extents::upperBound(const Extent &a) const {
  return boundOf(*this, a, /*isUpper=*/true);
}

bool Extents::isAtMost(const Extent &a, const Extent &b) {
  if (a == b)
    return true;
  // Against a huge constant the difference would overflow; the bounds do not.
  std::optional<int64_t> high = upperBound(a), low = lowerBound(b);
  if (high && low && *high <= *low)
    return true;
  bool before = hasOverflowed;
  hasOverflowed = false;
  Extent difference = sub(b, a);
  bool isExact = !hasOverflowed;
  hasOverflowed = before;
  if (!isExact)
    return false;
  if (std::optional<int64_t> bound = lowerBound(difference);
      bound && *bound >= 0)
    return true;
  // x - min(x, y) and max(x, y) - x are not negative.
  for (const Extent::Term &term : difference.terms) {
    if (term.atoms.size() != 1 ||
        (term.coefficient != 1 && term.coefficient != -1))
      continue;
    const Atom &atom = atoms[term.atoms.front()];
    bool isDroppedMin = atom.kind == Atom::Min && term.coefficient == -1;
    bool isAddedMax = atom.kind == Atom::Max && term.coefficient == 1;
    if (!isDroppedMin && !isAddedMax)
      continue;
    Extent self;
    self.terms.push_back(term);
    Extent rest = sub(difference, self); // difference = rest -+ atom
    for (const Extent &side : {atom.lhs, atom.rhs}) {
      Extent left = isDroppedMin ? sub(rest, side) : add(rest, side);
      std::optional<int64_t> bound = lowerBound(left);
      if (bound && *bound >= 0)
        return true;
    }
  }
  return false;
}

bool Extents::areEqual(const Extent &a, const Extent &b) {
  if (a == b)
    return true;
  for (auto &[x, y] : equalities)
    if ((x == a && y == b) || (x == b && y == a))
      return true;
  return false;
}

bool Extents::areUnequal(const Extent &a, const Extent &b) {
  return isAtMost(add(a, 1), b) || isAtMost(add(b, 1), a);
}

void Extents::assume(const Extent &a, const Extent &b) {
  equalities.emplace_back(a, b);
}

std::string Extents::symbolName(const Extent &a) const {
  bool isAtom = a.terms.size() == 1 && a.terms.front().coefficient == 1 &&
                a.terms.front().atoms.size() == 1;
  return isAtom ? atoms[a.terms.front().atoms.front()].name : "";
}

static void printAtom(llvm::raw_ostream &os, const Extents &extents,
                      unsigned number) {
  const Atom &atom = extents.atom(number);
  std::string lhs = extents.toString(atom.lhs),
              rhs = extents.toString(atom.rhs);
  switch (atom.kind) {
  case Atom::Symbol:
    os << (atom.name.empty() ? "?" : atom.name);
    break;
  case Atom::FloorDiv:
    os << '(' << lhs << ")//(" << rhs << ')';
    break;
  case Atom::Min:
  case Atom::Max:
    os << (atom.kind == Atom::Min ? "min(" : "max(") << lhs << ", " << rhs
       << ')';
    break;
  }
}

std::string Extents::toString(const Extent &a) const {
  if (a.terms.empty())
    return "0";
  std::string text;
  llvm::raw_string_ostream os(text);
  for (auto [index, term] : llvm::enumerate(a.terms)) {
    if (index)
      os << (term.coefficient < 0 ? " - " : " + ");
    else if (term.coefficient < 0)
      os << '-';
    uint64_t size = term.coefficient < 0 ? 0 - uint64_t(term.coefficient)
                                         : uint64_t(term.coefficient);
    bool hasNumber = size != 1 || term.atoms.empty();
    if (hasNumber)
      os << size;
    for (auto [place, number] : llvm::enumerate(term.atoms)) {
      if (place || hasNumber)
        os << '*';
      printAtom(os, *this, number);
    }
  }
  return text;
}
