// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_FORMULA_H
#define REFOLD_ALGEBRA_FORMULA_H

#include "refold/Algebra/Derive.h"

/// Cascades and derived programs as formulas that people read.
namespace refold::algebra {

enum class Charset : uint8_t {
  Unicode, ///< a·b, Σ, ≤, ∞, x²
  Ascii    ///< a*b, sum, <=, inf, x^2
};

/// One traversal of the stream. A prime marks the value after an element, `.a`
/// and `.b` the two sides of a merge.
struct FormulaPass {
  std::vector<std::string> state;  ///< "s = Σ_n exp(x - m), kept relative to m"
  std::vector<std::string> absorb; ///< "s' = s·exp(m - m') + exp(x - m')"
  std::vector<std::string> merge;  ///< "s = s.a·exp(m.a - m) + ..."
};

struct FormulaText {
  std::vector<std::string> stages; ///< as written: "s = Σ_n exp(x - m)"
  std::vector<FormulaPass> passes;
  size_t firstRepair = 0; ///< passes from here on are of rows that need them
  std::vector<std::string> finish; ///< "o = a / s"
  std::vector<std::string> idle;   ///< guards that protect nothing

  /// All of it, with headings, a line each.
  std::string str() const;
};

/// How expressions are spelt.
struct Notation {
  Charset charset = Charset::Unicode;
  /// Names of what contractions sum over; null: numbers.
  const std::vector<Index> *indices = nullptr;
  /// Overrules the names of symbols.
  std::unordered_map<const Symbol *, std::string> names;
  /// Parts that stand under a name of their own.
  std::unordered_map<Expr, std::string, ExprHash> parts;
};

/// The expression in the usual notation, with the structure it has: nothing is
/// expanded, reordered or simplified. Cut off by "..." beyond some thousand
/// characters, since shared parts are written out.
std::string format(Expr e, const Notation &notation = {});

/// Requires a derivation that has a program.
FormulaText describe(const Cascade &cascade, const Derivation &derivation,
                     Charset charset = Charset::Unicode);
/// Of a program alone: no stages.
FormulaText describe(const Program &program,
                     Charset charset = Charset::Unicode);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_FORMULA_H
