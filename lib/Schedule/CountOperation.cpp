// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CountOperation.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace refold;

void OperationCounts::add(const OperationCounts &other, double times) {
  simple += times * other.simple;
  exponentials += times * other.exponentials;
  lagging += times * other.lagging;
  functions += times * other.functions;
  divisions += times * other.divisions;
  conversions += times * other.conversions;
}

OperationCounts refold::kindOf(Operation &op) {
  OperationCounts one;
  if (op.getNumResults() != 1 || op.getResult(0).getType().isIndex() ||
      op.hasTrait<OpTrait::ConstantLike>())
    return one;
  if (isa<math::ExpOp, math::Exp2Op>(op))
    one.exponentials = 1.0;
  else if (isa<math::ExpM1Op, math::SinhOp, math::CoshOp>(op))
    one.exponentials = 2.0;
  else if (isa<arith::DivFOp>(op) &&
           matchPattern(op.getOperand(1), m_Constant()))
    one.simple = 2.0; // a product and an FMA
  else if (isa<arith::DivFOp, arith::RemFOp, math::SqrtOp, math::RsqrtOp,
               arith::DivSIOp, arith::RemSIOp>(op))
    one.divisions = 1.0;
  else if (isa<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp,
               arith::FPToSIOp, arith::FPToUIOp, arith::ExtSIOp, arith::ExtUIOp,
               arith::TruncIOp>(op))
    one.conversions = 1.0;
  else if (isa<math::AbsFOp, math::FloorOp, math::CeilOp, math::RoundEvenOp,
               math::CopySignOp, math::FmaOp>(op))
    one.simple = 1.0;
  else if (isa<math::LogOp, math::Log2Op, math::Log1pOp, math::TanhOp,
               math::ErfOp>(op))
    one.functions = 1.0;
  else if (isa<math::MathDialect>(op.getDialect()))
    one.functions = 10.0; // libm's, element by element
  else if (isa<arith::ArithDialect>(op.getDialect()))
    one.simple = 1.0;
  return one;
}
