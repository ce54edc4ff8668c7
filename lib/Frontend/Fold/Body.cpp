// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scalar code of expressions.
#include "Lowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include <cmath>

using namespace mlir;

namespace refold::fold {

Scalar Body::evaluate(NodeId id, DType want) {
  const Node &node = program.nodes[id];
  switch (node.kind) {
  case NodeKind::Literal: {
    bool asInteger = node.whole && !isFloat(want) && want != DType::Bool;
    DType dtype = isFloat(want) ? widened(want)
                  : asInteger   ? widened(want)
                                : node.dtype;
    return {constantOf(builder, loc, dtype, node.number), dtype};
  }
  case NodeKind::Read:
  case NodeKind::Reduce:
    return read(id);
  case NodeKind::Index:
    return {builder.create<linalg::IndexOp>(loc, loops.positionOf(node.axis)),
            DType::I64};
  case NodeKind::Extent:
    if (std::optional<int64_t> extent = program.fixedExtent(node.axis))
      return {builder.create<arith::ConstantIndexOp>(loc, *extent), DType::I64};
    return {lowering.extentOf(node.axis), DType::I64};
  case NodeKind::Cast: {
    DType operandWant = isFloat(node.dtype)     ? widened(node.dtype)
                        : isInteger(node.dtype) ? DType::I64
                                                : DType::F32;
    const Node &operand = program.nodes[node.operands[0]];
    if (!isFloat(node.dtype) && operand.weak && isFloat(operand.dtype) &&
        !operand.whole)
      operandWant = operand.dtype;
    Scalar from = evaluate(node.operands[0], operandWant);
    return {castTo(builder, loc, from, node.dtype), node.dtype};
  }
  case NodeKind::Apply:
    return apply(node, want);
  }
  llvm_unreachable("unknown node");
}

Scalar Body::read(NodeId id) {
  const Node &node = program.nodes[id];
  auto operand = loops.operandOf.find(id);
  if (operand != loops.operandOf.end())
    return {arguments[operand->second], node.dtype};
  SmallVector<Value> subscripts;
  for (NodeId subscript : node.operands) {
    Value value = evaluateAs(subscript, DType::I64);
    if (!value.getType().isIndex())
      value = builder.create<arith::IndexCastOp>(loc, builder.getIndexType(),
                                                 value);
    subscripts.push_back(value);
  }
  return {builder.create<tensor::ExtractOp>(loc, lowering.tensorOf(node.value),
                                            subscripts),
          node.dtype};
}

/// The exponent of x^k where k is whole and so small that products are better
/// than math.powf: faster, and understood by the algebra.
static std::optional<int> smallExponent(const Program &program,
                                        const Node &node) {
  constexpr double kMaxProducts = 8;
  if (node.op != Op::Pow)
    return std::nullopt;
  const Node &literal = program.nodes[node.operands[1]];
  if (literal.kind != NodeKind::Literal ||
      !(std::abs(literal.number) <= kMaxProducts) ||
      literal.number != std::floor(literal.number))
    return std::nullopt;
  return int(literal.number);
}

Scalar Body::apply(const Node &node, DType want) {
  DType compute = node.compute;
  if (node.weak && isFloat(compute) && isFloat(want))
    compute = widened(want);
  if (std::optional<int> exponent = smallExponent(program, node))
    return {power(compute, evaluateAs(node.operands[0], compute), *exponent),
            compute};
  std::vector<Value> in;
  for (size_t i = 0; i < node.operands.size(); ++i) {
    bool isCondition = node.op == Op::Select && i == 0;
    in.push_back(
        evaluateAs(node.operands[i], isCondition ? DType::Bool : compute));
  }
  // One i64 among indices takes the others to i64.
  if (compute == DType::I64 &&
      llvm::any_of(in, [](Value v) { return v.getType().isInteger(64); }))
    for (Value &value : in)
      if (value.getType().isIndex())
        value = stored(builder, loc, {value, DType::I64});
  DType dtype = node.dtype == node.compute ? compute : node.dtype;
  if (node.op == Op::Select)
    return {builder.create<arith::SelectOp>(loc, in[0], in[1], in[2]), dtype};
  if (isFloat(compute))
    return {applyReal(node, compute, in), dtype};
  if (compute == DType::Bool)
    return {applyBool(node, in), dtype};
  return {applyInteger(node, compute, in), dtype};
}

static std::optional<arith::CmpFPredicate> realPredicate(Op op) {
  switch (op) {
  case Op::Eq:
    return arith::CmpFPredicate::OEQ;
  case Op::Ne:
    return arith::CmpFPredicate::UNE;
  case Op::Lt:
    return arith::CmpFPredicate::OLT;
  case Op::Le:
    return arith::CmpFPredicate::OLE;
  case Op::Gt:
    return arith::CmpFPredicate::OGT;
  case Op::Ge:
    return arith::CmpFPredicate::OGE;
  default:
    return std::nullopt;
  }
}

static std::optional<arith::CmpIPredicate> integerPredicate(Op op,
                                                            bool isBool) {
  using P = arith::CmpIPredicate;
  switch (op) {
  case Op::Eq:
    return P::eq;
  case Op::Ne:
    return P::ne;
  case Op::Lt:
    return isBool ? P::ult : P::slt;
  case Op::Le:
    return isBool ? P::ule : P::sle;
  case Op::Gt:
    return isBool ? P::ugt : P::sgt;
  case Op::Ge:
    return isBool ? P::uge : P::sge;
  default:
    return std::nullopt;
  }
}

Value Body::power(DType type, Value base, int exponent) {
  Value result;
  Value square = base;
  for (unsigned count = std::abs(exponent); count; count >>= 1) {
    if (count & 1)
      result =
          result
              ? builder.create<arith::MulFOp>(loc, result, square).getResult()
              : square;
    if (count > 1)
      square = builder.create<arith::MulFOp>(loc, square, square);
  }
  if (result && exponent > 0)
    return result;
  Value one = constantOf(builder, loc, type, 1.0);
  if (!result)
    return one;
  return builder.create<arith::DivFOp>(loc, one, result);
}

template <typename OpType>
static Value create(OpBuilder &builder, Location loc, Value in) {
  return builder.create<OpType>(loc, in);
}

namespace {
struct RealFunction {
  Op op;
  Value (*create)(OpBuilder &, Location, Value);
};
} // namespace

static constexpr RealFunction kRealFunctions[] = {
    {Op::Neg, create<arith::NegFOp>},       {Op::Abs, create<math::AbsFOp>},
    {Op::Exp, create<math::ExpOp>},         {Op::Exp2, create<math::Exp2Op>},
    {Op::Expm1, create<math::ExpM1Op>},     {Op::Log, create<math::LogOp>},
    {Op::Log2, create<math::Log2Op>},       {Op::Log1p, create<math::Log1pOp>},
    {Op::Sqrt, create<math::SqrtOp>},       {Op::Rsqrt, create<math::RsqrtOp>},
    {Op::Floor, create<math::FloorOp>},     {Op::Ceil, create<math::CeilOp>},
    {Op::Round, create<math::RoundEvenOp>}, {Op::Tanh, create<math::TanhOp>},
    {Op::Erf, create<math::ErfOp>},         {Op::Sin, create<math::SinOp>},
    {Op::Cos, create<math::CosOp>},         {Op::Sinh, create<math::SinhOp>},
    {Op::Cosh, create<math::CoshOp>},
};

Value Body::realFunction(Op op, DType type, Value in) {
  for (const RealFunction &function : kRealFunctions)
    if (function.op == op)
      return function.create(builder, loc, in);
  auto constant = [&](double number) {
    return constantOf(builder, loc, type, number);
  };
  auto compare = [&](arith::CmpFPredicate predicate, Value a, Value b) {
    return builder.create<arith::CmpFOp>(loc, predicate, a, b).getResult();
  };
  auto select = [&](Value condition, Value a, Value b) -> Value {
    return builder.create<arith::SelectOp>(loc, condition, a, b);
  };
  switch (op) {
  case Op::Relu:
    return builder.create<arith::MaximumFOp>(loc, in, constant(0.0));
  case Op::Sign: {
    // Zeros and NaN are their own sign.
    Value zero = constant(0.0);
    Value isBelow = compare(arith::CmpFPredicate::OLT, in, zero);
    Value isAbove = compare(arith::CmpFPredicate::OGT, in, zero);
    return select(isAbove, constant(1.0), select(isBelow, constant(-1.0), in));
  }
  case Op::Sigmoid: {
    Value one = constant(1.0);
    Value negated = builder.create<arith::NegFOp>(loc, in);
    Value exp = builder.create<math::ExpOp>(loc, negated);
    Value sum = builder.create<arith::AddFOp>(loc, one, exp);
    return builder.create<arith::DivFOp>(loc, one, sum);
  }
  case Op::IsNan:
    return compare(arith::CmpFPredicate::UNO, in, in);
  case Op::IsInf: {
    Value size = builder.create<math::AbsFOp>(loc, in);
    return compare(arith::CmpFPredicate::OEQ, size, constant(INFINITY));
  }
  default:
    llvm_unreachable("not a function of one real operand");
  }
}

Value Body::applyReal(const Node &node, DType type,
                      const std::vector<Value> &in) {
  if (auto predicate = realPredicate(node.op))
    return builder.create<arith::CmpFOp>(loc, *predicate, in[0], in[1]);
  switch (node.op) {
  case Op::Add:
    return builder.create<arith::AddFOp>(loc, in[0], in[1]);
  case Op::Sub:
    return builder.create<arith::SubFOp>(loc, in[0], in[1]);
  case Op::Mul:
    return builder.create<arith::MulFOp>(loc, in[0], in[1]);
  case Op::Div:
    return builder.create<arith::DivFOp>(loc, in[0], in[1]);
  case Op::Min:
    return builder.create<arith::MinimumFOp>(loc, in[0], in[1]);
  case Op::Max:
    return builder.create<arith::MaximumFOp>(loc, in[0], in[1]);
  case Op::Pow:
    return builder.create<math::PowFOp>(loc, in[0], in[1]);
  default:
    return realFunction(node.op, type, in[0]);
  }
}

Value Body::applyBool(const Node &node, const std::vector<Value> &in) {
  if (auto predicate = integerPredicate(node.op, /*isBool=*/true))
    return builder.create<arith::CmpIOp>(loc, *predicate, in[0], in[1]);
  switch (node.op) {
  case Op::And:
    return builder.create<arith::AndIOp>(loc, in[0], in[1]);
  case Op::Or:
    return builder.create<arith::OrIOp>(loc, in[0], in[1]);
  case Op::Not:
    return builder.create<arith::XOrIOp>(
        loc, in[0], constantOf(builder, loc, DType::Bool, 1));
  default:
    llvm_unreachable("not an operation on bool");
  }
}

Value Body::applyInteger(const Node &node, DType type,
                         const std::vector<Value> &in) {
  auto constant = [&](int64_t number) -> Value {
    return builder.create<arith::ConstantOp>(
        loc, builder.getIntegerAttr(in[0].getType(), number));
  };
  if (auto predicate = integerPredicate(node.op, /*isBool=*/false))
    return builder.create<arith::CmpIOp>(loc, *predicate, in[0], in[1]);
  switch (node.op) {
  case Op::Add:
    return builder.create<arith::AddIOp>(loc, in[0], in[1]);
  case Op::Sub:
    return builder.create<arith::SubIOp>(loc, in[0], in[1]);
  case Op::Mul:
    return builder.create<arith::MulIOp>(loc, in[0], in[1]);
  case Op::FloorDiv:
  case Op::Mod:
    return divideFloor(node, type, in[0], in[1]);
  case Op::Min:
    return builder.create<arith::MinSIOp>(loc, in[0], in[1]);
  case Op::Max:
    return builder.create<arith::MaxSIOp>(loc, in[0], in[1]);
  case Op::Neg:
    return builder.create<arith::SubIOp>(loc, constant(0), in[0]);
  case Op::Abs: {
    Value negated = builder.create<arith::SubIOp>(loc, constant(0), in[0]);
    return builder.create<arith::MaxSIOp>(loc, in[0], negated);
  }
  case Op::Sign: {
    Value atLeast = builder.create<arith::MaxSIOp>(loc, in[0], constant(-1));
    return builder.create<arith::MinSIOp>(loc, atLeast, constant(1));
  }
  case Op::Relu:
    return builder.create<arith::MaxSIOp>(loc, in[0], constant(0));
  default:
    llvm_unreachable("not an operation on integers");
  }
}

/// `//` and `%` round towards minus infinity, so % has the sign of its divisor.
/// A division by 0 gives 0: the machine's would end the process.
Value Body::divideFloor(const Node &node, DType type, Value a, Value b) {
  bool isMod = node.op == Op::Mod;
  Range dividend = rangeOf(program, node.operands[0]);
  Range divisor = rangeOf(program, node.operands[1]);
  bool isPositive = divisor.low && *divisor.low > 0;
  if (isPositive && dividend.low && *dividend.low >= 0) {
    if (isMod)
      return builder.create<arith::RemUIOp>(loc, a, b);
    return builder.create<arith::DivUIOp>(loc, a, b);
  }
  auto constant = [&](int64_t number) -> Value {
    return builder.create<arith::ConstantOp>(
        loc, builder.getIntegerAttr(a.getType(), number));
  };
  auto equals = [&](int64_t number) -> Value {
    return builder.create<arith::CmpIOp>(loc, arith::CmpIPredicate::eq, b,
                                         constant(number));
  };
  Value zero = constant(0), isZero, isMinusOne, safe = b;
  if (!isPositive) {
    // The smallest integer by -1 overflows: it is negated instead.
    isZero = equals(0);
    isMinusOne = equals(-1);
    Value isSpecial = builder.create<arith::OrIOp>(loc, isZero, isMinusOne);
    safe = builder.create<arith::SelectOp>(loc, isSpecial, constant(1), b);
  }
  Value result = builder.create<arith::FloorDivSIOp>(loc, a, safe);
  if (isMod)
    result = builder.create<arith::SubIOp>(
        loc, a, builder.create<arith::MulIOp>(loc, result, safe));
  if (isPositive || isMod) // by 1, the stand-in, the rest is 0 as it should be
    return result;
  Value negated = builder.create<arith::SubIOp>(loc, zero, a);
  result = builder.create<arith::SelectOp>(loc, isMinusOne, negated, result);
  return builder.create<arith::SelectOp>(loc, isZero, zero, result);
}

} // namespace refold::fold
