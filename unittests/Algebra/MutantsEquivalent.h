// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_ALGEBRA_MUTANTSEQUIVALENT_H
#define REFOLD_UNITTESTS_ALGEBRA_MUTANTSEQUIVALENT_H

#include <map>
#include <string>

namespace refold::algebra::test {

/// Mutants that compute the same as the right program, each by its whole name,
/// with the proof. No patterns: a mutant that is not named has no excuse.
class Equivalents {
public:
  /// Lines that are not indented are a proof, the indented ones below it the
  /// mutants that it is about; `#` begins a remark. Aborts on a mutant without
  /// a proof and on one that is named twice.
  explicit Equivalents(const std::string &text);

  /// EquivalentMutants.txt.
  static const Equivalents &known();

  /// "" where there is none.
  std::string proofOf(const std::string &mutant) const;
  /// Mutants -> proofs.
  const std::map<std::string, std::string> &all() const { return proofs; }

private:
  std::map<std::string, std::string> proofs;
};

} // namespace refold::algebra::test

#endif // REFOLD_UNITTESTS_ALGEBRA_MUTANTSEQUIVALENT_H
