// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_ALGEBRA_SUITE_H
#define REFOLD_UNITTESTS_ALGEBRA_SUITE_H

#include "refold/Algebra/Derive.h"

#include <map>

/// Cascades written as short texts, so that a test shows what is fused.
namespace refold::algebra::test {

/// Lines of a cascade over one stream n (its length is `n` in formulas, the
/// position of an element `l`):
///
///     in x v>=0        elements; >=0 says that they are not negative
///     param T>=0       scalars
///     mask k           conditions
///     carried w        elements with an index of their own beside n
///     m = max x        stages: sum prod max min any all top2 bottom2 ... (t,
///     and t_at
///                      for the positions)
///     mu := S/n        a let: written out where it is used
///     out o = s        outputs
///
/// Formulas: + - * / ** ( ) numbers inf nan, comparisons > >= < <= ==, and, or,
/// not, and functions by their spelling; where(c, a, b), max, min.
class Text {
public:
  explicit Text(const std::string &lines);
  Cascade cascade() const { return *built; }
  Context context;

private:
  friend class Parser;
  std::unique_ptr<Cascade> built;
  std::map<std::string, Expr> names;
};

} // namespace refold::algebra::test

#endif // REFOLD_UNITTESTS_ALGEBRA_SUITE_H
