// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ANALYSIS_INDEXEXPR_H
#define REFOLD_ANALYSIS_INDEXEXPR_H

#include "refold/Algebra/Expr.h"
#include "refold/Analysis/Sizes.h"

#include "mlir/IR/AffineExpr.h"

namespace refold {

/// A subscript as a function of the indices of a kernel: a constant plus sizes
/// times atoms. An atom is an index, a quotient or remainder that does not
/// simplify, or a value computed from data (a gather).
///
/// Sizes may be unknown until the program runs, so that a collapsed and
/// expanded (batch, heads) gives back the two indices whatever the batch is.
class IndexExpr {
public:
  struct Term {
    Size stride;
    unsigned atom;
    friend bool operator==(const Term &, const Term &) = default;
  };
  IndexExpr() = default;
  explicit IndexExpr(int64_t constant) : constant(constant) {}

  int64_t constant = 0;
  llvm::SmallVector<Term, 2> terms; ///< sorted by atom; no zero stride

  bool isConstant() const { return terms.empty(); }
  friend bool operator==(const IndexExpr &, const IndexExpr &) = default;
};

/// Owns the atoms of one kernel's subscripts.
class IndexAtoms {
public:
  /// One is the number 1: the atom of a size that is no number.
  enum class Kind : uint8_t { Index, FloorDiv, Mod, Computed, One };
  struct Atom {
    explicit Atom(Kind kind) : kind(kind) {}
    Kind kind;
    unsigned index = 0;         ///< Index: its number in the kernel
    IndexExpr inner;            ///< FloorDiv, Mod
    Size divisor;               ///< FloorDiv, Mod
    algebra::Expr computed;     ///< Computed
    std::optional<Size> extent; ///< the atom is at least 0 and below it
  };

  IndexExpr index(unsigned number, Size extent);
  IndexExpr computed(algebra::Expr value);
  IndexExpr add(const IndexExpr &a, const IndexExpr &b) const;
  IndexExpr scale(const IndexExpr &a, const Size &by);
  /// A size as a subscript value.
  IndexExpr size(const Size &value);
  IndexExpr floorDiv(const IndexExpr &a, const Size &by);
  IndexExpr mod(const IndexExpr &a, const Size &by);

  const Atom &atom(unsigned number) const { return atoms[number]; }
  /// The index that `a` is, if it is one and nothing else.
  std::optional<unsigned> asIndex(const IndexExpr &a) const;
  /// The indices that `a` depends on.
  uint64_t indicesOf(const IndexExpr &a) const;
  bool hasComputed(const IndexExpr &a) const;
  /// `a` with indices as dimensions, and computed values as further dimensions
  /// from `firstComputed` on (appended to `computedValues`). Nothing where a
  /// stride or divisor is not a number.
  mlir::AffineExpr
  toAffine(const IndexExpr &a, mlir::MLIRContext *context,
           unsigned firstComputed,
           llvm::SmallVectorImpl<algebra::Expr> &computedValues) const;

private:
  unsigned intern(Atom atom);
  /// a = quotient * by + rest, taking what divides term by term.
  void split(const IndexExpr &a, const Size &by, IndexExpr &quotient,
             IndexExpr &rest) const;
  /// 0 <= a < bound, by the extents of its atoms read as digits.
  bool isBelow(const IndexExpr &a, const Size &bound) const;

  std::vector<Atom> atoms;
};

} // namespace refold

#endif // REFOLD_ANALYSIS_INDEXEXPR_H
