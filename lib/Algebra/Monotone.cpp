// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Monotone.h"

namespace refold::algebra {

Shape flipped(Shape shape) {
  switch (shape) {
  case Shape::Increasing:
    return Shape::Decreasing;
  case Shape::Decreasing:
    return Shape::Increasing;
  case Shape::QuasiConvex:
    return Shape::QuasiConcave;
  case Shape::QuasiConcave:
    return Shape::QuasiConvex;
  default:
    return shape;
  }
}

static bool isMonotone(Shape shape) {
  return shape == Shape::Increasing || shape == Shape::Decreasing ||
         shape == Shape::QuasiLinear;
}

/// Operands first, so that recursion is never deep.
Shape MonotoneAnalyzer::classify(Expr root) {
  forEachNode(root, [&](Expr e) {
    if (!memo.contains(e))
      memo[e] = compute(e);
  });
  return memo.at(root);
}

Shape MonotoneAnalyzer::ofSum(Shape a, Shape b) const {
  if (a == Shape::Constant)
    return b;
  if (b == Shape::Constant)
    return a;
  bool isSame = a == b && (a == Shape::Increasing || a == Shape::Decreasing);
  return isSame ? a : Shape::Unknown;
}

Shape MonotoneAnalyzer::scaledBy(Shape shape, Sign sign) const {
  switch (sign) {
  case Sign::Zero:
    return Shape::Constant;
  case Sign::NonNegative:
    return shape;
  case Sign::NonPositive:
    return flipped(shape);
  case Sign::Unknown:
    return isMonotone(shape) ? Shape::QuasiLinear : Shape::Unknown;
  }
  return Shape::Unknown;
}

Shape MonotoneAnalyzer::ofProduct(Expr a, Expr b) {
  Shape left = memo.at(a), right = memo.at(b);
  if (left == Shape::Constant)
    return right == Shape::Constant ? left : scaledBy(right, facts.sign(a));
  if (right == Shape::Constant)
    return scaledBy(left, facts.sign(b));
  bool isSame =
      left == right && (left == Shape::Increasing || left == Shape::Decreasing);
  return isSame && isNonNegative(a) && isNonNegative(b) ? left : Shape::Unknown;
}

Shape MonotoneAnalyzer::ofPower(Expr base, Rational exponent) {
  Shape shape = memo.at(base);
  if (shape == Shape::Constant)
    return shape;
  if (exponent.num < 0) {
    if (!isNonNegative(base))
      return Shape::Unknown;
    return flipped(shape);
  }
  bool isOdd = exponent.isInteger() && exponent.num % 2 != 0;
  if (isOdd || !exponent.isInteger() || isNonNegative(base))
    return shape;
  return folded(base);
}

/// |e|, or an even power of it.
Shape MonotoneAnalyzer::folded(Expr base) {
  Shape shape = memo.at(base);
  switch (facts.sign(base)) {
  case Sign::Zero:
  case Sign::NonNegative:
    return shape;
  case Sign::NonPositive:
    return flipped(shape);
  case Sign::Unknown:
    break;
  }
  return isMonotone(shape) ? Shape::QuasiConvex : Shape::Unknown;
}

Shape MonotoneAnalyzer::ofExtreme(Shape a, Shape b, bool isMax) const {
  if (a == Shape::Constant)
    std::swap(a, b);
  bool isWithConstant = b == Shape::Constant;
  if (a == Shape::Constant)
    return a;
  if ((isWithConstant || a == b) &&
      (a == Shape::Increasing || a == Shape::Decreasing))
    return a;
  Shape bent = isMax ? Shape::QuasiConvex : Shape::QuasiConcave;
  auto bends = [&](Shape s) {
    return isMonotone(s) || s == bent || s == Shape::Constant;
  };
  return bends(a) && bends(b) ? bent : Shape::Unknown;
}

Shape MonotoneAnalyzer::ofFunction(Expr e) {
  if (e.size() != 1)
    return Shape::Unknown;
  Expr operand = e.operand(0);
  Shape shape = memo.at(operand);
  switch (e->fn) {
  case Fn::Exp:
  case Fn::Exp2:
  case Fn::Expm1:
  case Fn::Log:
  case Fn::Log2:
  case Fn::Log1p:
  case Fn::Sqrt:
  case Fn::Tanh:
  case Fn::Sigmoid:
  case Fn::Erf:
  case Fn::Sinh:
  case Fn::Relu:
  case Fn::Sign:
  case Fn::Floor:
  case Fn::Ceil:
  case Fn::Round:
    return shape;
  case Fn::Rsqrt:
    return flipped(shape);
  case Fn::Abs:
  case Fn::Cosh:
    return folded(operand);
  default:
    return Shape::Unknown;
  }
}

Shape MonotoneAnalyzer::compute(Expr e) {
  if (e == variable)
    return Shape::Increasing;
  bool isConstant = true;
  for (unsigned i = 0; i < e.size(); ++i)
    isConstant &= memo.at(e.operand(i)) == Shape::Constant;
  if (isConstant)
    return Shape::Constant;
  auto shape = [&](unsigned i) { return memo.at(e.operand(i)); };
  switch (e.kind()) {
  case Kind::Add:
    return ofSum(shape(0), shape(1));
  case Kind::Sub:
    return ofSum(shape(0), flipped(shape(1)));
  case Kind::Neg:
  case Kind::Not:
    return flipped(shape(0));
  case Kind::Mul:
    return ofProduct(e.operand(0), e.operand(1));
  case Kind::Div: {
    if (shape(1) == Shape::Constant)
      return scaledBy(shape(0), facts.sign(e.operand(1)));
    if (shape(0) == Shape::Constant && isNonNegative(e.operand(1)))
      return scaledBy(flipped(shape(1)), facts.sign(e.operand(0)));
    return Shape::Unknown;
  }
  case Kind::Pow:
    return ofPower(e.operand(0), e->exponent);
  case Kind::Fn:
    return ofFunction(e);
  case Kind::Max:
  case Kind::MaxNum:
  case Kind::Or:
    return ofExtreme(shape(0), shape(1), true);
  case Kind::Min:
  case Kind::MinNum:
  case Kind::And:
    return ofExtreme(shape(0), shape(1), false);
  case Kind::Cmp:
    switch (e->pred) {
    case Pred::Gt:
    case Pred::Ge:
      return ofSum(shape(0), flipped(shape(1)));
    case Pred::Lt:
    case Pred::Le:
      return ofSum(flipped(shape(0)), shape(1));
    default:
      return Shape::Unknown;
    }
  case Kind::Select:
    if (shape(0) != Shape::Constant)
      return Shape::Unknown;
    if (shape(1) == Shape::Constant)
      return shape(2);
    return shape(2) == Shape::Constant || shape(1) == shape(2) ? shape(1)
                                                               : Shape::Unknown;
  case Kind::Cast: // rounding never turns an order round
    return isFloat(e.type()) ? shape(0) : Shape::Unknown;
  default:
    return Shape::Unknown;
  }
}

} // namespace refold::algebra
