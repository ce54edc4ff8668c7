// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_FORMULAFORMAT_H
#define REFOLD_LIB_ALGEBRA_FORMULAFORMAT_H

#include "refold/Algebra/Formula.h"

namespace refold::algebra::formula {

/// How tightly an expression binds; operands that bind less get parentheses.
enum Binding { Or, And, Not, Compare, Sum, Product, Negation, Power, Atom };

/// `e` as an operand of something that needs at least this binding.
std::string formatAt(Expr e, const Notation &notation, Binding least);

/// "Σ_d " or "sum(d: ", which the caller closes.
std::string reduction(const Notation &notation, const std::string &wide,
                      const std::string &plain, IndexSet over);

} // namespace refold::algebra::formula

#endif // REFOLD_LIB_ALGEBRA_FORMULAFORMAT_H
