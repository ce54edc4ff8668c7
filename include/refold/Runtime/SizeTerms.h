// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_SIZETERMS_H
#define REFOLD_RUNTIME_SIZETERMS_H

#include "refold/Runtime/SizeExpr.h"
#include <array>
#include <unordered_map>
#include <vector>

namespace refold {

/// The number of a term among those of `SizeTerms`.
using SizeNumber = uint32_t;

/// Sizes in the order in which they can be worked out: a term has operands that
/// stand before it. What several sizes have in common is there once.
class SizeTerms {
public:
  struct Term {
    SizeExpr::Op op = SizeExpr::Op::Const;
    int64_t value = 0; ///< the constant or the symbol
    std::array<SizeNumber, 3> operands = {0, 0, 0};
    bool operator==(const Term &) const = default;
  };
  static constexpr size_t kMost = size_t(1) << 20;

  SizeTerms() = default;
  /// The terms of a file: nothing where one has an operation that there is
  /// none of, a symbol beyond 32 bits or an operand that does not stand before
  /// it, or where they are more than `kMost`.
  static std::optional<SizeTerms> of(std::vector<Term> terms);

  std::span<const Term> all() const { return terms; }
  size_t size() const { return terms.size(); }
  /// Each as an expression of those before it.
  std::vector<SizeExpr> expressions() const;

private:
  friend class SizeSharing;
  std::vector<Term> terms;
};

/// Makes terms of expressions: equal ones become one.
class SizeSharing {
public:
  explicit SizeSharing(SizeTerms &terms) : terms(terms) {}
  /// The number of `expr`. Its terms are appended where they are new, so that
  /// what is added first can be worked out without what follows.
  SizeNumber add(const SizeExpr &expr);

private:
  struct Hash {
    size_t operator()(const SizeTerms::Term &term) const;
  };
  SizeNumber numberOf(const SizeTerms::Term &term);
  std::optional<SizeNumber> known(const SizeExpr &expr);

  SizeTerms &terms;
  std::unordered_map<SizeTerms::Term, SizeNumber, Hash> numbers;
  /// By identity, which is nobody else's while the expression is kept.
  std::unordered_map<const void *, std::pair<SizeExpr, SizeNumber>> visited;
};

/// What terms are where symbols have values. They are worked out in their
/// order, as far as they are asked for, each once.
class TermValues {
public:
  /// Both have to stay while values are asked for; terms may be added. Memory
  /// of a former use is used again.
  void start(const SizeTerms &terms, std::span<const int64_t> symbols);
  /// Nothing where the term, or one that it needs, overflows, divides by 0 or
  /// needs a symbol that is missing, or where there is no such term.
  std::optional<int64_t> operator[](SizeNumber number);

private:
  std::optional<int64_t> work(const SizeTerms::Term &term) const;

  const SizeTerms *terms = nullptr;
  std::span<const int64_t> symbols;
  std::vector<std::optional<int64_t>> values;
  size_t known = 0; ///< of `values`
};

/// The same of expressions: what they share is worked out once.
class SizeValues {
public:
  /// `symbols` have to stay while values are asked for.
  explicit SizeValues(std::span<const int64_t> symbols) : symbols(symbols) {
    values.start(terms, symbols);
  }
  SizeValues(const SizeValues &) = delete;
  SizeValues &operator=(const SizeValues &) = delete;
  std::optional<int64_t> of(const SizeExpr &expr);

private:
  std::span<const int64_t> symbols;
  SizeTerms terms;
  SizeSharing sharing{terms};
  TermValues values;
};

} // namespace refold

#endif // REFOLD_RUNTIME_SIZETERMS_H
