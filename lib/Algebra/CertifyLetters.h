// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_CERTIFYLETTERS_H
#define REFOLD_LIB_ALGEBRA_CERTIFYLETTERS_H

#include "refold/Algebra/Evaluate.h"

#include <set>

/// Which values a row of edge values has: chosen, not drawn.
namespace refold::algebra::certifier {

/// Something that is chosen in a row: a value of an input, or where the row
/// lies.
struct Factor {
  const Symbol *symbol = nullptr;
  size_t slot = 0; ///< among the symbol's values
  std::vector<double> letters;
  /// Letters are added to the value of this one (a length behind a position).
  const Symbol *above = nullptr;
};

/// The values that matter for one program: edge values, what it compares with,
/// both sides of thresholds, what masks put in a maximum, and positions about
/// where the stream is.
class Letters {
public:
  /// Of what `roots` read.
  Letters(const Program &program, const std::vector<Expr> &roots);

  /// Inputs along the stream, but for integers that nothing is compared with.
  const std::vector<Expr> &elements() const { return elementSymbols; }
  /// What maxima and minima are taken of, where a mask may stand in it.
  bool isMasked(Expr e) const { return masked.count(&e.symbol()); }
  bool isSmallest(Expr e) const { return smallest.count(&e.symbol()); }
  bool hasMasked() const { return !masked.empty(); }

  /// The factors of rows of the extents of `sample`. `lowest`: of the type that
  /// the program computes in, or 0: not among the letters. `seed` orders the
  /// letters.
  std::vector<Factor> factors(const Sample &sample, double lowest,
                              uint64_t seed) const;

private:
  void findFeatures();
  void findSentinels(const std::vector<Expr> &roots);
  void addSentinels(Expr comparison);
  void addSides(Expr comparison, Expr symbol);
  void addSentinel(Expr symbol, std::optional<double> value);
  std::vector<double> lettersOf(const Symbol &symbol, uint32_t length,
                                double lowest) const;
  void addPositions(std::vector<Factor> &factors, const Sample &sample) const;

  const Program &program;
  std::vector<Expr> elementSymbols;
  std::vector<Expr> chosen; ///< and what else is compared
  ExprSet isRead;
  std::unordered_map<const Symbol *, std::set<double>> sentinels;
  std::unordered_set<const Symbol *> features, smallest, masked;
};

/// Rows in which one or two factors have an infinity or the lowest number, or
/// one of them NaN, and all others plain numbers, drawn by `seed`: where many
/// are not finite, nothing else is seen. At most `most`, pairs being left out
/// first.
std::vector<std::vector<uint8_t>> sparseRows(const std::vector<Factor> &factors,
                                             size_t most, uint64_t seed);

/// Writes a row of a design into a sample. Long rows repeat what their first
/// positions have.
void setRow(Sample &sample, const std::vector<Factor> &factors,
            const std::vector<uint8_t> &row);

} // namespace refold::algebra::certifier

#endif // REFOLD_LIB_ALGEBRA_CERTIFYLETTERS_H
