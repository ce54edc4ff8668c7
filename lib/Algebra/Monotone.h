// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ALGEBRA_MONOTONE_H
#define REFOLD_LIB_ALGEBRA_MONOTONE_H

#include "Facts.h"

namespace refold::algebra {

/// How a function of one variable runs, for every value of everything else.
enum class Shape : uint8_t {
  Constant,
  Increasing,   ///< never falls
  Decreasing,   ///< never rises
  QuasiLinear,  ///< increasing or decreasing, unknown which
  QuasiConvex,  ///< falls, then rises: the maximum is at an end
  QuasiConcave, ///< rises, then falls: the minimum is at an end
  Unknown
};
Shape flipped(Shape shape);

/// A calculus of shapes: sound, not complete. `facts` may know about
/// `variable`.
class MonotoneAnalyzer {
public:
  MonotoneAnalyzer(FactBase &facts, Expr variable)
      : facts(facts), variable(variable) {}
  Shape classify(Expr e);

private:
  Shape compute(Expr e);
  Shape ofSum(Shape a, Shape b) const;
  Shape ofProduct(Expr a, Expr b);
  Shape scaledBy(Shape shape, Sign sign) const;
  Shape ofPower(Expr base, Rational exponent);
  Shape ofExtreme(Shape a, Shape b, bool isMax) const;
  Shape ofFunction(Expr e);
  Shape folded(Expr e);
  bool isNonNegative(Expr e) { return facts.isNonNegative(e); }

  FactBase &facts;
  Expr variable;
  std::unordered_map<Expr, Shape, ExprHash> memo;
};

} // namespace refold::algebra

#endif // REFOLD_LIB_ALGEBRA_MONOTONE_H
