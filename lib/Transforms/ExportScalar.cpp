// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ExportScalar.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using algebra::Expr;
using algebra::Fn;
using algebra::Kind;
using algebra::Pred;

Type refold::exportType(MLIRContext *context, algebra::Type type) {
  Builder b(context);
  switch (type) {
  case algebra::Type::F64:
    return b.getF64Type();
  case algebra::Type::F32:
    return b.getF32Type();
  case algebra::Type::F16:
    return b.getF16Type();
  case algebra::Type::BF16:
    return b.getBF16Type();
  case algebra::Type::F8E4M3:
    return b.getFloat8E4M3FNType();
  case algebra::Type::F8E5M2:
    return b.getFloat8E5M2Type();
  case algebra::Type::I64:
    return b.getI64Type();
  case algebra::Type::I32:
    return b.getI32Type();
  case algebra::Type::I8:
    return b.getI8Type();
  case algebra::Type::U8:
    return IntegerType::get(context, 8, IntegerType::Unsigned);
  case algebra::Type::Bool:
    return b.getI1Type();
  case algebra::Type::Index:
    return b.getIndexType();
  }
  return Type();
}

/// The type in which a value of `type` is held: conditions stay conditions.
static algebra::Type arithmeticType(algebra::Type type) {
  return type == algebra::Type::Bool ? type : algebra::computeType(type);
}

/// Whether index arithmetic may leave what kernels hold of an index.
static bool mayExceedIndex(Expr e) {
  if (e.type() != algebra::Type::Index || e.isSym())
    return false;
  if (e.is(Kind::Const)) {
    double value = e.constant().value_or(0);
    return value >= 0x1p30 || value <= -0x1p30;
  }
  if (e.is(Kind::Mul) || e.is(Kind::Pow))
    return true;
  for (unsigned i = 0; i < e->count; ++i)
    if (mayExceedIndex(e.operand(i)))
      return true;
  return false;
}

/// The type in which `e` is computed: indices by i64 where they are multiplied.
static algebra::Type arithmeticType(Expr e) {
  algebra::Type type = arithmeticType(e.type());
  return type == algebra::Type::Index && mayExceedIndex(e) ? algebra::Type::I64
                                                           : type;
}

static bool isUnsigned(algebra::Type type) {
  return type == algebra::Type::U8 || type == algebra::Type::Bool;
}

Value ScalarExport::convert(Value v, Type to, bool fromUnsigned) {
  Type from = v.getType();
  if (from == to)
    return v;
  if (isa<FloatType>(from) && isa<FloatType>(to)) {
    // Widened only to be stored: the same bits.
    if (auto widened = v.getDefiningOp<arith::ExtFOp>();
        widened && widened.getIn().getType() == to)
      return widened.getIn();
    if (from.getIntOrFloatBitWidth() < to.getIntOrFloatBitWidth())
      return b.create<arith::ExtFOp>(loc, to, v);
    if (from.getIntOrFloatBitWidth() > to.getIntOrFloatBitWidth())
      return b.create<arith::TruncFOp>(loc, to, v);
    // f16 and bf16, the two f8: by way of f32.
    return convert(convert(v, b.getF32Type(), false), to, false);
  }
  // Index values are vectors of i32 in kernels: no extent of a kernel's index
  // exceeds that.
  if (from.isIndex())
    return to.isIntOrIndex() && to.getIntOrFloatBitWidth() >= 32
               ? Value(b.create<arith::IndexCastOp>(loc, to, v))
               : convert(b.create<arith::IndexCastOp>(loc, b.getI32Type(), v),
                         to, false);
  if (to.isIndex())
    return fromUnsigned ? Value(b.create<arith::IndexCastUIOp>(loc, to, v))
                        : Value(b.create<arith::IndexCastOp>(loc, to, v));
  if (isa<FloatType>(to)) {
    Type wide = to.getIntOrFloatBitWidth() < 32 ? b.getF32Type() : to;
    Value f = fromUnsigned ? Value(b.create<arith::UIToFPOp>(loc, wide, v))
                           : Value(b.create<arith::SIToFPOp>(loc, wide, v));
    return convert(f, to, false);
  }
  if (isa<FloatType>(from))
    return to.isUnsignedInteger()
               ? Value(b.create<arith::FPToUIOp>(loc, to, v))
               : Value(b.create<arith::FPToSIOp>(loc, to, v));
  unsigned have = from.getIntOrFloatBitWidth(),
           want = to.getIntOrFloatBitWidth();
  if (have > want)
    return b.create<arith::TruncIOp>(loc, to, v);
  return fromUnsigned ? Value(b.create<arith::ExtUIOp>(loc, to, v))
                      : Value(b.create<arith::ExtSIOp>(loc, to, v));
}

Value ScalarExport::value(Expr e) {
  auto it = memo.find(e);
  if (it != memo.end())
    return it->second;
  Value v = fresh(e);
  memo[e] = v;
  return v;
}

Value ScalarExport::valueAs(Expr e, Type type) {
  return convert(value(e), type, isUnsigned(e.type()));
}

Value ScalarExport::operand(Expr e, unsigned i) {
  Type type = exportType(b.getContext(), arithmeticType(e));
  return valueAs(e.operand(i), type);
}

Value ScalarExport::real(double value, Type type) {
  return b.create<arith::ConstantOp>(loc, b.getFloatAttr(type, value));
}

Value ScalarExport::constant(Expr e) {
  Type type = exportType(b.getContext(), arithmeticType(e));
  if (isa<FloatType>(type))
    return real(*e.constant(), type);
  int64_t number = e->integral ? e->integer : int64_t(*e.constant());
  if (type.isIndex())
    return b.create<arith::ConstantIndexOp>(loc, number);
  return b.create<arith::ConstantOp>(loc, b.getIntegerAttr(type, number));
}

Value ScalarExport::fresh(Expr e) {
  switch (e.kind()) {
  case Kind::Const:
    return constant(e);
  case Kind::Sym: {
    Value v = leaf(e);
    return convert(v, exportType(b.getContext(), arithmeticType(e)),
                   isUnsigned(e.type()));
  }
  case Kind::Pow:
    return power(e);
  case Kind::Fn:
    return function(e);
  case Kind::Cmp:
    return compare(e);
  case Kind::Cast:
    return cast(e);
  case Kind::Contract:
    return contract(e, operand(e, 0));
  case Kind::Select: {
    Value condition = value(e.operand(0));
    Value yes = operand(e, 1), no = operand(e, 2);
    return b.create<arith::SelectOp>(loc, condition, yes, no);
  }
  default:
    return arithmetic(e);
  }
}

Value ScalarExport::arithmetic(Expr e) {
  Value x = operand(e, 0);
  Value y = e.size() > 1 ? operand(e, 1) : Value();
  bool f = isa<FloatType>(x.getType());
  switch (e.kind()) {
  case Kind::Add:
    return f ? Value(b.create<arith::AddFOp>(loc, x, y))
             : Value(b.create<arith::AddIOp>(loc, x, y));
  case Kind::Sub:
    return f ? Value(b.create<arith::SubFOp>(loc, x, y))
             : Value(b.create<arith::SubIOp>(loc, x, y));
  case Kind::Mul:
    return f ? Value(b.create<arith::MulFOp>(loc, x, y))
             : Value(b.create<arith::MulIOp>(loc, x, y));
  case Kind::Div:
    return b.create<arith::DivFOp>(loc, x, y);
  case Kind::Neg:
    if (f)
      return b.create<arith::NegFOp>(loc, x);
    return b.create<arith::SubIOp>(
        loc, b.create<arith::ConstantOp>(loc, b.getZeroAttr(x.getType())), x);
  case Kind::Max:
    return f ? Value(b.create<arith::MaximumFOp>(loc, x, y))
             : Value(b.create<arith::MaxSIOp>(loc, x, y));
  case Kind::Min:
    return f ? Value(b.create<arith::MinimumFOp>(loc, x, y))
             : Value(b.create<arith::MinSIOp>(loc, x, y));
  case Kind::MaxNum:
    return f ? Value(b.create<arith::MaxNumFOp>(loc, x, y))
             : Value(b.create<arith::MaxSIOp>(loc, x, y));
  case Kind::MinNum:
    return f ? Value(b.create<arith::MinNumFOp>(loc, x, y))
             : Value(b.create<arith::MinSIOp>(loc, x, y));
  case Kind::And:
    return b.create<arith::AndIOp>(loc, x, y);
  case Kind::Or:
    return b.create<arith::OrIOp>(loc, x, y);
  case Kind::Not:
    return b.create<arith::XOrIOp>(
        loc, x, b.create<arith::ConstantOp>(loc, b.getBoolAttr(true)));
  default:
    break;
  }
  llvm_unreachable("handled by fresh");
}

/// Small whole powers by multiplication, roots by sqrt; the rest by pow. Whole
/// powers of integers (n^2, n a length) are integers.
Value ScalarExport::power(Expr e) {
  Value x = operand(e, 0);
  bool isWhole = !algebra::isFloat(e.type());
  if (!isWhole)
    x = convert(x, exportType(b.getContext(), arithmeticType(e)),
                isUnsigned(e.operand(0).type()));
  Type type = x.getType();
  auto product = [&](Value a, Value c) {
    return isWhole ? Value(b.create<arith::MulIOp>(loc, a, c))
                   : Value(b.create<arith::MulFOp>(loc, a, c));
  };
  algebra::Rational n = e->exponent;
  int64_t times = std::abs(n.num);
  bool byRoot = n.den == 2 && times <= 8;
  if (!isWhole && ((!n.isInteger() && !byRoot) || times > 16))
    return b.create<math::PowFOp>(loc, x, real(n.value(), type));
  Value base = byRoot ? Value(b.create<math::SqrtOp>(loc, x)) : x;
  Value result;
  for (Value square = base; times; times >>= 1) {
    if (times & 1)
      result = result ? product(result, square) : square;
    if (times > 1)
      square = product(square, square);
  }
  if (!result && isWhole)
    return b.create<arith::ConstantOp>(loc, b.getIntegerAttr(type, 1));
  if (!result)
    return real(1.0, type);
  return n.num < 0
             ? Value(b.create<arith::DivFOp>(loc, real(1.0, type), result))
             : result;
}

/// The exact remainder has the sign of the dividend; a rest of another sign
/// than the divisor moves by one divisor.
Value ScalarExport::remainder(Value x, Value y) {
  using P = arith::CmpFPredicate;
  Value zero = real(0.0, x.getType());
  Value rest = b.create<arith::RemFOp>(loc, x, y);
  Value isOff = b.create<arith::CmpFOp>(loc, P::ONE, rest, zero);
  Value differs = b.create<arith::XOrIOp>(
      loc, b.create<arith::CmpFOp>(loc, P::OLT, rest, zero),
      b.create<arith::CmpFOp>(loc, P::OLT, y, zero));
  Value moved = b.create<arith::AddFOp>(loc, rest, y);
  return b.create<arith::SelectOp>(
      loc, b.create<arith::AndIOp>(loc, isOff, differs), moved, rest);
}

Value ScalarExport::function(Expr e) {
  Expr argument = e.operand(0);
  Type argumentType =
      exportType(b.getContext(), arithmeticType(argument.type()));
  if (e.is(Fn::IsNan) || e.is(Fn::IsInf)) {
    Value x = value(argument);
    if (e.is(Fn::IsNan))
      return b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::UNO, x, x);
    return b.create<arith::CmpFOp>(
        loc, arith::CmpFPredicate::OEQ, b.create<math::AbsFOp>(loc, x),
        real(std::numeric_limits<double>::infinity(), argumentType));
  }
  Value x = operand(e, 0);
  Value y = e.size() > 1 ? operand(e, 1) : Value();
  Type type = x.getType();
  auto zero = [&]() -> Value {
    return b.create<arith::ConstantOp>(loc, b.getZeroAttr(type));
  };
  switch (e->fn) {
  case Fn::Exp:
    return b.create<math::ExpOp>(loc, x);
  case Fn::Exp2:
    return b.create<math::Exp2Op>(loc, x);
  case Fn::Expm1:
    return b.create<math::ExpM1Op>(loc, x);
  case Fn::Log:
    return b.create<math::LogOp>(loc, x);
  case Fn::Log2:
    return b.create<math::Log2Op>(loc, x);
  case Fn::Log1p:
    return b.create<math::Log1pOp>(loc, x);
  case Fn::Sqrt:
    return b.create<math::SqrtOp>(loc, x);
  case Fn::Rsqrt:
    return b.create<arith::DivFOp>(loc, real(1.0, type),
                                   b.create<math::SqrtOp>(loc, x));
  case Fn::Abs:
    return isa<FloatType>(type) ? Value(b.create<math::AbsFOp>(loc, x))
                                : Value(b.create<math::AbsIOp>(loc, x));
  case Fn::Floor:
    return b.create<math::FloorOp>(loc, x);
  case Fn::Ceil:
    return b.create<math::CeilOp>(loc, x);
  case Fn::Round:
    return b.create<math::RoundEvenOp>(loc, x);
  case Fn::Tanh:
    return b.create<math::TanhOp>(loc, x);
  case Fn::Erf:
    return b.create<math::ErfOp>(loc, x);
  case Fn::Sin:
    return b.create<math::SinOp>(loc, x);
  case Fn::Cos:
    return b.create<math::CosOp>(loc, x);
  case Fn::Sinh:
    return b.create<math::SinhOp>(loc, x);
  case Fn::Cosh:
    return b.create<math::CoshOp>(loc, x);
  case Fn::Relu:
    return b.create<arith::MaximumFOp>(loc, x, zero());
  case Fn::Sigmoid: {
    Value one = real(1.0, type);
    Value down = b.create<math::ExpOp>(loc, b.create<arith::NegFOp>(loc, x));
    return b.create<arith::DivFOp>(loc, one,
                                   b.create<arith::AddFOp>(loc, one, down));
  }
  case Fn::Sign: {
    // 0 and NaN stay what they are.
    auto one = [&](double v, arith::CmpFPredicate p, Value otherwise) -> Value {
      return b.create<arith::SelectOp>(
          loc, b.create<arith::CmpFOp>(loc, p, x, zero()), real(v, type),
          otherwise);
    };
    return one(1.0, arith::CmpFPredicate::OGT,
               one(-1.0, arith::CmpFPredicate::OLT, x));
  }
  case Fn::PowFn:
    return b.create<math::PowFOp>(loc, x, y);
  case Fn::Atan2:
    return b.create<math::Atan2Op>(loc, x, y);
  case Fn::FloorDiv:
    return type.isIndex() ? Value(b.create<arith::DivUIOp>(loc, x, y))
                          : Value(b.create<arith::FloorDivSIOp>(loc, x, y));
  case Fn::Rem: {
    if (type.isIndex())
      return b.create<arith::RemUIOp>(loc, x, y);
    if (isa<FloatType>(type))
      return remainder(x, y);
    // The sign of the divisor: (x rem y + y) rem y.
    Value r = b.create<arith::RemSIOp>(loc, x, y);
    return b.create<arith::RemSIOp>(loc, b.create<arith::AddIOp>(loc, r, y), y);
  }
  case Fn::IsNan:
  case Fn::IsInf:
    break;
  }
  llvm_unreachable("handled above");
}

Value ScalarExport::compare(Expr e) {
  algebra::Type common =
      algebra::promote(e.operand(0).type(), e.operand(1).type());
  if (e.operand(0).type() == algebra::Type::Bool &&
      e.operand(1).type() == algebra::Type::Bool)
    common = algebra::Type::Bool;
  algebra::Type held = arithmeticType(common);
  if (held == algebra::Type::Index &&
      (mayExceedIndex(e.operand(0)) || mayExceedIndex(e.operand(1))))
    held = algebra::Type::I64;
  Type type = exportType(b.getContext(), held);
  Value x = valueAs(e.operand(0), type), y = valueAs(e.operand(1), type);
  static constexpr arith::CmpFPredicate kFloat[] = {
      arith::CmpFPredicate::OLT, arith::CmpFPredicate::OLE,
      arith::CmpFPredicate::OGT, arith::CmpFPredicate::OGE,
      arith::CmpFPredicate::OEQ, arith::CmpFPredicate::UNE};
  static constexpr arith::CmpIPredicate kInteger[] = {
      arith::CmpIPredicate::slt, arith::CmpIPredicate::sle,
      arith::CmpIPredicate::sgt, arith::CmpIPredicate::sge,
      arith::CmpIPredicate::eq,  arith::CmpIPredicate::ne};
  unsigned p = unsigned(e->pred);
  if (isa<FloatType>(type))
    return b.create<arith::CmpFOp>(loc, kFloat[p], x, y);
  return b.create<arith::CmpIOp>(loc, kInteger[p], x, y);
}

/// Rounds to the node's type and comes back to the type of arithmetic.
Value ScalarExport::cast(Expr e) {
  Type type = exportType(b.getContext(), e.type());
  Value v = valueAs(e.operand(0), type);
  return convert(v, exportType(b.getContext(), arithmeticType(e)),
                 isUnsigned(e.type()));
}
