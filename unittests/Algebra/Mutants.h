// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_ALGEBRA_MUTANTS_H
#define REFOLD_UNITTESTS_ALGEBRA_MUTANTS_H

#include <functional>
#include <set>
#include <string>
#include <vector>

/// Defects that are planted in right programs, one at a time, to see that the
/// certifier rejects each of them.
namespace refold::algebra::test {

class Equivalents;

/// Where a defect sits.
enum class MutantKind {
  Transport,
  Value,     ///< what an element adds to a state
  Let,       ///< pivots and what they are made of
  Reducer,   ///< the reducer, the sense and length of a top-k
  Payload,   ///< what a top-k carries along
  Pivot,     ///< which one a state is kept relative to
  Readout,   ///< the user's value from the states
  Output,    ///< what the row ends with
  Order,     ///< what is complete when it is read
  Execution, ///< merging, absorbing, identities: see Defect
  Fact       ///< what the derivation believes of its inputs and comparisons
};
inline constexpr unsigned kMutantKinds = 11;
const char *spelling(MutantKind kind);

struct Mutant {
  MutantKind kind;
  /// "variance: output v: (div State n) for (div State n)..."; the same on
  /// every run.
  std::string name;
  std::string rejection; ///< the certifier's words, empty: it accepts
  /// Why it computes the same, where that was shown; empty: it is a defect.
  std::string equivalence;
  /// Kind and name.
  std::string title() const;
  bool isSurvivor() const { return rejection.empty() && equivalence.empty(); }
};

/// Plants one in `every` defects (all with 1) and calls `visit` for each.
void plantMutants(unsigned every,
                  const std::function<void(const Mutant &)> &visit);

/// One line each: kinds, planted, rejected, equivalent, survivors.
class MutantCount {
public:
  void add(const Mutant &mutant);
  unsigned planted() const;
  unsigned survivors() const;
  std::string summary() const;
  /// Names that excuse none of the mutants that were added: all of them have to
  /// be added first.
  std::vector<std::string> idleExcuses(const Equivalents &equivalents) const;

private:
  struct Row {
    unsigned planted = 0, rejected = 0, equivalent = 0, survivors = 0;
  };
  Row rows[kMutantKinds];
  std::set<std::string> excused; ///< titles
};

} // namespace refold::algebra::test

#endif // REFOLD_UNITTESTS_ALGEBRA_MUTANTS_H
