// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Analysis/IndexExpr.h"

#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace refold;

unsigned IndexAtoms::intern(Atom atom) {
  for (auto [i, a] : llvm::enumerate(atoms))
    if (a.kind == atom.kind && a.index == atom.index && a.inner == atom.inner &&
        a.divisor == atom.divisor && a.computed == atom.computed)
      return i;
  atoms.push_back(std::move(atom));
  return atoms.size() - 1;
}

static IndexExpr single(unsigned atom) {
  IndexExpr result;
  result.terms.push_back({Size::constant(1), atom});
  return result;
}

IndexExpr IndexAtoms::index(unsigned number, Size extent) {
  Atom atom(Kind::Index);
  atom.index = number;
  atom.extent = extent;
  return single(intern(std::move(atom)));
}

IndexExpr IndexAtoms::computed(algebra::Expr value) {
  Atom atom(Kind::Computed);
  atom.computed = value;
  return single(intern(std::move(atom)));
}

IndexExpr IndexAtoms::add(const IndexExpr &a, const IndexExpr &b) const {
  IndexExpr sum = a;
  sum.constant += b.constant;
  for (const IndexExpr::Term &term : b.terms) {
    auto same = llvm::find_if(sum.terms, [&](const IndexExpr::Term &t) {
      return t.atom == term.atom && t.stride.bases == term.stride.bases;
    });
    if (same == sum.terms.end()) {
      sum.terms.push_back(term);
      continue;
    }
    same->stride.factor += term.stride.factor;
    if (same->stride.factor == 0)
      sum.terms.erase(same);
  }
  llvm::sort(sum.terms, [](const auto &x, const auto &y) {
    return std::tie(x.atom, x.stride.bases) < std::tie(y.atom, y.stride.bases);
  });
  return sum;
}

IndexExpr IndexAtoms::size(const Size &value) {
  if (value.isStatic())
    return IndexExpr(value.factor);
  IndexExpr result = single(intern(Atom(Kind::One)));
  result.terms[0].stride = value;
  return result;
}

IndexExpr IndexAtoms::scale(const IndexExpr &a, const Size &by) {
  if (by.isStatic(0))
    return IndexExpr(0);
  IndexExpr result;
  for (IndexExpr::Term term : a.terms) {
    term.stride = term.stride * by;
    result.terms.push_back(term);
  }
  return add(result, size(Size::constant(a.constant) * by));
}

void IndexAtoms::split(const IndexExpr &a, const Size &by, IndexExpr &quotient,
                       IndexExpr &rest) const {
  for (const IndexExpr::Term &term : a.terms) {
    if (std::optional<Size> q = exactQuotient(term.stride, by))
      quotient.terms.push_back({*q, term.atom});
    else
      rest.terms.push_back(term);
  }
  if (by.isStatic() && a.constant >= 0) {
    quotient.constant = a.constant / by.factor;
    rest.constant = a.constant % by.factor;
  } else {
    rest.constant = a.constant;
  }
}

bool IndexAtoms::isBelow(const IndexExpr &a, const Size &bound) const {
  if (a.terms.empty())
    return a.constant >= 0 && bound.isStatic() && a.constant < bound.factor;
  // Numbers only: the largest value that the atoms can give.
  bool allStatic = bound.isStatic() && a.constant >= 0;
  int64_t largest = a.constant;
  for (const IndexExpr::Term &term : a.terms) {
    const std::optional<Size> &extent = atoms[term.atom].extent;
    if (!extent)
      return false;
    allStatic &=
        extent->isStatic() && term.stride.isStatic() && term.stride.factor >= 0;
    if (allStatic)
      largest +=
          term.stride.factor * (std::max<int64_t>(extent->factor, 1) - 1);
  }
  if (allStatic)
    return largest < bound.factor;
  if (a.constant != 0)
    return false;
  // Digits of a mixed radix: the leading one's stride times its extent is the
  // bound, and the others are below that stride.
  for (const IndexExpr::Term &lead : a.terms) {
    if (!(lead.stride * *atoms[lead.atom].extent == bound))
      continue;
    IndexExpr others;
    for (const IndexExpr::Term &term : a.terms)
      if (!(term == lead))
        others.terms.push_back(term);
    if (others.terms.empty() || isBelow(others, lead.stride))
      return true;
  }
  return false;
}

IndexExpr IndexAtoms::floorDiv(const IndexExpr &a, const Size &by) {
  if (by.isStatic(1))
    return a;
  if (by.isStatic(0)) // of a dimension without elements, which nobody reads
    return IndexExpr(0);
  IndexExpr quotient, rest;
  split(a, by, quotient, rest);
  if ((rest.isConstant() && rest.constant == 0) || isBelow(rest, by))
    return quotient;
  Atom atom(Kind::FloorDiv);
  atom.inner = rest;
  atom.divisor = by;
  if (rest.terms.size() == 1 && rest.constant == 0 &&
      rest.terms[0].stride.isStatic(1))
    if (const auto &extent = atoms[rest.terms[0].atom].extent)
      atom.extent = exactQuotient(*extent, by);
  return add(quotient, single(intern(std::move(atom))));
}

IndexExpr IndexAtoms::mod(const IndexExpr &a, const Size &by) {
  if (by.isStatic(1) || by.isStatic(0))
    return IndexExpr(0);
  IndexExpr quotient, rest;
  split(a, by, quotient, rest);
  if ((rest.isConstant() && rest.constant == 0) || isBelow(rest, by))
    return rest;
  Atom atom(Kind::Mod);
  atom.inner = rest;
  atom.divisor = by;
  atom.extent = by;
  return single(intern(std::move(atom)));
}

std::optional<unsigned> IndexAtoms::asIndex(const IndexExpr &a) const {
  if (a.constant != 0 || a.terms.size() != 1 ||
      !a.terms[0].stride.isStatic(1) ||
      atoms[a.terms[0].atom].kind != Kind::Index)
    return std::nullopt;
  return atoms[a.terms[0].atom].index;
}

uint64_t IndexAtoms::indicesOf(const IndexExpr &a) const {
  uint64_t set = 0;
  for (const IndexExpr::Term &term : a.terms) {
    const Atom &atom = atoms[term.atom];
    if (atom.kind == Kind::Index)
      set |= uint64_t(1) << atom.index;
    else if (atom.kind == Kind::One)
      continue;
    else if (atom.kind == Kind::Computed)
      set |= atom.computed.indices();
    else
      set |= indicesOf(atom.inner);
  }
  return set;
}

bool IndexAtoms::hasComputed(const IndexExpr &a) const {
  return llvm::any_of(a.terms, [&](const IndexExpr::Term &term) {
    const Atom &atom = atoms[term.atom];
    return atom.kind == Kind::Computed ||
           (atom.kind != Kind::Index && atom.kind != Kind::One &&
            hasComputed(atom.inner));
  });
}

AffineExpr
IndexAtoms::toAffine(const IndexExpr &a, MLIRContext *context,
                     unsigned firstComputed,
                     SmallVectorImpl<algebra::Expr> &computedValues) const {
  AffineExpr sum = getAffineConstantExpr(a.constant, context);
  for (const IndexExpr::Term &term : a.terms) {
    const Atom &atom = atoms[term.atom];
    if (!term.stride.isStatic())
      return nullptr;
    AffineExpr value;
    if (atom.kind == Kind::Index) {
      value = getAffineDimExpr(atom.index, context);
    } else if (atom.kind == Kind::One) {
      value = getAffineConstantExpr(1, context);
    } else if (atom.kind == Kind::Computed) {
      auto it = llvm::find(computedValues, atom.computed);
      unsigned position = it - computedValues.begin();
      if (it == computedValues.end())
        computedValues.push_back(atom.computed);
      value = getAffineDimExpr(firstComputed + position, context);
    } else {
      AffineExpr inner =
          toAffine(atom.inner, context, firstComputed, computedValues);
      if (!inner || !atom.divisor.isStatic())
        return nullptr;
      value = atom.kind == Kind::FloorDiv ? inner.floorDiv(atom.divisor.factor)
                                          : inner % atom.divisor.factor;
    }
    sum = sum + value * term.stride.factor;
  }
  return sum;
}
