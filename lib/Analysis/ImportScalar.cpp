// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Scalar arith and math ops as expressions of the algebra.
#include "refold/Analysis/Formula.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace refold;
using algebra::Context;
using algebra::Expr;
using algebra::Fn;
using algebra::Pred;

std::optional<algebra::Type> refold::importType(Type type) {
  using T = algebra::Type;
  return llvm::TypeSwitch<Type, std::optional<T>>(type)
      .Case([](Float64Type) { return T::F64; })
      .Case([](Float32Type) { return T::F32; })
      .Case([](Float16Type) { return T::F16; })
      .Case([](BFloat16Type) { return T::BF16; })
      .Case([](Float8E4M3FNType) { return T::F8E4M3; })
      .Case([](Float8E5M2Type) { return T::F8E5M2; })
      .Case([](IndexType) { return T::Index; })
      .Case([](IntegerType t) -> std::optional<T> {
        if (t.getWidth() == 1)
          return T::Bool;
        if (t.getWidth() == 8)
          return t.isUnsigned() ? T::U8 : T::I8;
        if (t.getWidth() == 32)
          return T::I32;
        return t.getWidth() == 64 ? std::optional(T::I64) : std::nullopt;
      })
      .Default([](Type) { return std::nullopt; });
}

std::optional<Combiner> refold::matchCombiner(Value value, BlockArgument acc) {
  using R = algebra::Reducer;
  Operation *op = value.getDefiningOp();
  if (!op || op->getNumOperands() != 2 || !acc.hasOneUse())
    return std::nullopt;
  bool left = op->getOperand(0) == acc;
  if (!left && op->getOperand(1) != acc)
    return std::nullopt;
  bool logical = value.getType().isInteger(1);
  auto reducer =
      llvm::TypeSwitch<Operation *, std::optional<R>>(op)
          .Case<arith::AddFOp, arith::AddIOp>([](auto) { return R::Sum; })
          .Case<arith::MulFOp, arith::MulIOp>([](auto) { return R::Prod; })
          .Case<arith::MaximumFOp, arith::MaxSIOp>([](auto) { return R::Max; })
          .Case<arith::MinimumFOp, arith::MinSIOp>([](auto) { return R::Min; })
          .Case([](arith::MaxNumFOp) { return R::MaxNum; })
          .Case([](arith::MinNumFOp) { return R::MinNum; })
          .Case<arith::OrIOp, arith::MaxUIOp>([&](auto) {
            return logical ? std::optional(R::Any) : std::nullopt;
          })
          .Case<arith::AndIOp, arith::MinUIOp>([&](auto) {
            return logical ? std::optional(R::All) : std::nullopt;
          })
          .Default([](Operation *) { return std::nullopt; });
  if (!reducer)
    return std::nullopt;
  return Combiner{*reducer, op->getOperand(left ? 1 : 0)};
}

static std::optional<Fn> unaryFn(Operation *op) {
  return llvm::TypeSwitch<Operation *, std::optional<Fn>>(op)
      .Case([](math::ExpOp) { return Fn::Exp; })
      .Case([](math::Exp2Op) { return Fn::Exp2; })
      .Case([](math::ExpM1Op) { return Fn::Expm1; })
      .Case([](math::LogOp) { return Fn::Log; })
      .Case([](math::Log2Op) { return Fn::Log2; })
      .Case([](math::Log1pOp) { return Fn::Log1p; })
      .Case([](math::SqrtOp) { return Fn::Sqrt; })
      .Case([](math::RsqrtOp) { return Fn::Rsqrt; })
      .Case<math::AbsFOp, math::AbsIOp>([](auto) { return Fn::Abs; })
      .Case([](math::FloorOp) { return Fn::Floor; })
      .Case([](math::CeilOp) { return Fn::Ceil; })
      .Case([](math::RoundEvenOp) { return Fn::Round; })
      .Case([](math::TanhOp) { return Fn::Tanh; })
      .Case([](math::ErfOp) { return Fn::Erf; })
      .Case([](math::SinOp) { return Fn::Sin; })
      .Case([](math::CosOp) { return Fn::Cos; })
      .Case([](math::SinhOp) { return Fn::Sinh; })
      .Case([](math::CoshOp) { return Fn::Cosh; })
      .Default([](Operation *) { return std::nullopt; });
}

static Expr importCmpF(Context &c, arith::CmpFPredicate predicate, Expr a,
                       Expr b) {
  using P = arith::CmpFPredicate;
  auto unordered = [&] {
    Expr nan = c.fn(Fn::IsNan, a);
    return a == b ? nan : c.logicalOr(nan, c.fn(Fn::IsNan, b));
  };
  switch (predicate) {
  case P::AlwaysFalse:
    return c.boolean(false);
  case P::AlwaysTrue:
    return c.boolean(true);
  case P::OEQ:
    return c.cmp(Pred::Eq, a, b);
  case P::OGT:
    return c.cmp(Pred::Gt, a, b);
  case P::OGE:
    return c.cmp(Pred::Ge, a, b);
  case P::OLT:
    return c.cmp(Pred::Lt, a, b);
  case P::OLE:
    return c.cmp(Pred::Le, a, b);
  case P::UNE:
    return a == b ? unordered() : c.cmp(Pred::Ne, a, b);
  case P::ONE:
    return c.logicalAnd(c.cmp(Pred::Ne, a, b), c.logicalNot(unordered()));
  case P::ORD:
    return c.logicalNot(unordered());
  case P::UNO:
    return unordered();
  case P::UEQ:
    return c.logicalOr(unordered(), c.cmp(Pred::Eq, a, b));
  case P::UGT:
    return c.logicalNot(c.cmp(Pred::Le, a, b));
  case P::UGE:
    return c.logicalNot(c.cmp(Pred::Lt, a, b));
  case P::ULT:
    return c.logicalNot(c.cmp(Pred::Ge, a, b));
  case P::ULE:
    return c.logicalNot(c.cmp(Pred::Gt, a, b));
  }
  return Expr();
}

/// Index values are never negative here, so that unsigned comparison of them is
/// the signed one; of other integers only the signed predicates have a form.
static Expr importCmpI(Context &c, arith::CmpIOp op, Expr a, Expr b) {
  using P = arith::CmpIPredicate;
  bool index = op.getLhs().getType().isIndex();
  switch (op.getPredicate()) {
  case P::eq:
    return c.cmp(Pred::Eq, a, b);
  case P::ne:
    return c.cmp(Pred::Ne, a, b);
  case P::slt:
    return c.cmp(Pred::Lt, a, b);
  case P::sle:
    return c.cmp(Pred::Le, a, b);
  case P::sgt:
    return c.cmp(Pred::Gt, a, b);
  case P::sge:
    return c.cmp(Pred::Ge, a, b);
  case P::ult:
    return index ? c.cmp(Pred::Lt, a, b) : Expr();
  case P::ule:
    return index ? c.cmp(Pred::Le, a, b) : Expr();
  case P::ugt:
    return index ? c.cmp(Pred::Gt, a, b) : Expr();
  case P::uge:
    return index ? c.cmp(Pred::Ge, a, b) : Expr();
  }
  return Expr();
}

/// True if the value is a whole number by construction: then truncation is
/// exact.
static bool isWhole(Expr e) {
  if (e.is(Fn::Round) || e.is(Fn::Floor) || e.is(Fn::Ceil))
    return true;
  if (e.is(algebra::Kind::Cast))
    return !algebra::isFloat(e.operand(0).type());
  if (std::optional<double> value = e.constant())
    return *value == std::nearbyint(*value) || std::isinf(*value);
  if (e.is(algebra::Kind::Max) || e.is(algebra::Kind::Min) ||
      e.is(algebra::Kind::MaxNum) || e.is(algebra::Kind::MinNum))
    return isWhole(e.operand(0)) && isWhole(e.operand(1));
  if (e.is(algebra::Kind::Select))
    return isWhole(e.operand(1)) && isWhole(e.operand(2));
  return false;
}

/// arith.fptosi cuts off the fraction. `Cast` rounds, so its operand is made a
/// whole number first, which is also how every front end writes a rounding
/// cast.
static Expr importToInteger(Context &c, algebra::Type type, Expr a) {
  if (!isWhole(a)) {
    Expr zero = c.real(0, a.type());
    a = c.select(c.cmp(Pred::Lt, a, zero), c.fn(Fn::Ceil, a),
                 c.fn(Fn::Floor, a));
  }
  return c.cast(type, a);
}

/// pow with a constant exponent of a small denominator is a rational power.
static Expr importPow(Context &c, Expr base, Expr exponent) {
  if (std::optional<double> value = exponent.constant())
    for (int64_t den : {1, 2, 3, 4})
      if (double num = *value * den;
          num == std::nearbyint(num) && std::abs(num) <= 64)
        return c.pow(base, algebra::rational(int64_t(num), den));
  return c.fn(Fn::PowFn, base, exponent);
}

/// Arithmetic on index values that keeps a subscript a subscript.
static std::optional<IndexExpr>
importIndexOp(Operation *op, ArrayRef<Scalar> operands, IndexAtoms &atoms) {
  if (!llvm::all_of(operands, [](const Scalar &s) { return s.index; }))
    return std::nullopt;
  auto number = [&](unsigned i) { return operands[i].index->isConstant(); };
  auto sized = [&](unsigned i) -> std::optional<Size> {
    const IndexExpr &e = *operands[i].index;
    if (e.isConstant())
      return Size::constant(e.constant);
    if (e.constant == 0 && e.terms.size() == 1 &&
        atoms.atom(e.terms[0].atom).kind == IndexAtoms::Kind::One)
      return e.terms[0].stride;
    return std::nullopt;
  };
  using Result = std::optional<IndexExpr>;
  return llvm::TypeSwitch<Operation *, Result>(op)
      .Case<arith::IndexCastOp, arith::IndexCastUIOp, arith::ExtSIOp,
            arith::ExtUIOp>([&](auto) { return operands[0].index; })
      .Case([&](arith::AddIOp) {
        return atoms.add(*operands[0].index, *operands[1].index);
      })
      .Case([&](arith::SubIOp) -> Result {
        return atoms.add(*operands[0].index,
                         atoms.scale(*operands[1].index, Size::constant(-1)));
      })
      .Case([&](arith::MulIOp) -> Result {
        if (std::optional<Size> by = sized(1))
          return atoms.scale(*operands[0].index, *by);
        if (std::optional<Size> by = sized(0))
          return atoms.scale(*operands[1].index, *by);
        return std::nullopt;
      })
      .Case<arith::FloorDivSIOp, arith::DivUIOp, arith::DivSIOp>(
          [&](auto) -> Result {
            std::optional<Size> by = sized(1);
            if (!by || (number(1) && by->factor <= 0))
              return std::nullopt;
            return atoms.floorDiv(*operands[0].index, *by);
          })
      .Case<arith::RemSIOp, arith::RemUIOp>([&](auto) -> Result {
        std::optional<Size> by = sized(1);
        if (!by || (number(1) && by->factor <= 0))
          return std::nullopt;
        return atoms.mod(*operands[0].index, *by);
      })
      .Default([](Operation *) { return std::nullopt; });
}

static Expr importFloatOp(Operation *op, ArrayRef<Scalar> in, Context &c) {
  auto x = [&](unsigned i) { return in[i].expr; };
  if (std::optional<Fn> fn = unaryFn(op))
    return c.fn(*fn, x(0));
  return llvm::TypeSwitch<Operation *, Expr>(op)
      .Case([&](arith::AddFOp) { return c.add(x(0), x(1)); })
      .Case([&](arith::SubFOp) { return c.sub(x(0), x(1)); })
      .Case([&](arith::MulFOp) { return c.mul(x(0), x(1)); })
      .Case([&](arith::DivFOp) { return c.div(x(0), x(1)); })
      .Case([&](arith::NegFOp) { return c.neg(x(0)); })
      .Case([&](arith::MaximumFOp) { return c.max(x(0), x(1)); })
      .Case([&](arith::MinimumFOp) { return c.min(x(0), x(1)); })
      .Case([&](arith::MaxNumFOp) { return c.maxNum(x(0), x(1)); })
      .Case([&](arith::MinNumFOp) { return c.minNum(x(0), x(1)); })
      .Case([&](math::FmaOp) { return c.add(c.mul(x(0), x(1)), x(2)); })
      .Case([&](math::PowFOp) { return importPow(c, x(0), x(1)); })
      .Case([&](math::Atan2Op) { return c.fn(Fn::Atan2, x(0), x(1)); })
      .Case([&](arith::CmpFOp cmp) {
        return importCmpF(c, cmp.getPredicate(), x(0), x(1));
      })
      .Default([](Operation *) { return Expr(); });
}

static Expr importIntegerOp(Operation *op, ArrayRef<Scalar> in, Context &c) {
  auto x = [&](unsigned i) { return in[i].expr; };
  bool logical = op->getNumResults() && op->getResult(0).getType().isInteger(1);
  auto ifLogical = [&](Expr e) { return logical ? e : Expr(); };
  return llvm::TypeSwitch<Operation *, Expr>(op)
      .Case([&](arith::AddIOp) { return c.add(x(0), x(1)); })
      .Case([&](arith::SubIOp) { return c.sub(x(0), x(1)); })
      .Case([&](arith::MulIOp) { return c.mul(x(0), x(1)); })
      .Case([&](arith::FloorDivSIOp) { return c.fn(Fn::FloorDiv, x(0), x(1)); })
      .Case([&](arith::MaxSIOp) { return c.max(x(0), x(1)); })
      .Case([&](arith::MinSIOp) { return c.min(x(0), x(1)); })
      .Case([&](arith::AndIOp) { return ifLogical(c.logicalAnd(x(0), x(1))); })
      .Case([&](arith::OrIOp) { return ifLogical(c.logicalOr(x(0), x(1))); })
      .Case(
          [&](arith::XOrIOp) { return ifLogical(c.cmp(Pred::Ne, x(0), x(1))); })
      .Case([&](arith::CmpIOp cmp) { return importCmpI(c, cmp, x(0), x(1)); })
      .Default([](Operation *) { return Expr(); });
}

static Expr importConversion(Operation *op, ArrayRef<Scalar> in, Context &c) {
  if (op->getNumResults() != 1)
    return Expr();
  std::optional<algebra::Type> type = importType(op->getResult(0).getType());
  if (!type)
    return Expr();
  Expr a = in.empty() ? Expr() : in[0].expr;
  return llvm::TypeSwitch<Operation *, Expr>(op)
      .Case<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::ExtSIOp,
            arith::IndexCastOp, arith::IndexCastUIOp, arith::TruncIOp>(
          [&](auto) { return c.cast(*type, a); })
      .Case<arith::UIToFPOp, arith::ExtUIOp>([&](auto) {
        // Only bool is unsigned in the program form.
        return a.type() == algebra::Type::Bool || a.type() == algebra::Type::U8
                   ? c.cast(*type, a)
                   : Expr();
      })
      .Case<arith::FPToSIOp, arith::FPToUIOp>(
          [&](auto) { return importToInteger(c, *type, a); })
      .Case(
          [&](arith::SelectOp) { return c.select(a, in[1].expr, in[2].expr); })
      .Default([](Operation *) { return Expr(); });
}

static Expr importConstant(arith::ConstantOp op, Context &c,
                           std::optional<IndexExpr> &index) {
  std::optional<algebra::Type> type = importType(op.getType());
  if (!type)
    return Expr();
  if (auto value = dyn_cast<FloatAttr>(op.getValue()))
    return c.real(value.getValueAsDouble(), algebra::computeType(*type));
  auto value = dyn_cast<IntegerAttr>(op.getValue());
  if (!value)
    return Expr();
  if (*type == algebra::Type::Bool)
    return c.boolean(value.getValue().getBoolValue());
  int64_t number = value.getValue().getSExtValue();
  if (op.getType().isIndex() || op.getType().isInteger(64) ||
      op.getType().isInteger(32))
    index = IndexExpr(number);
  return c.integer(number, *type);
}

std::optional<Scalar> refold::importScalarOp(Operation *op, unsigned result,
                                             ArrayRef<Scalar> operands,
                                             Context &context,
                                             IndexAtoms &atoms) {
  Scalar scalar;
  if (auto constant = dyn_cast<arith::ConstantOp>(op)) {
    scalar.expr = importConstant(constant, context, scalar.index);
    return scalar.expr ? std::optional(scalar) : std::nullopt;
  }
  if (!llvm::all_of(operands, [](const Scalar &s) { return bool(s.expr); }))
    return std::nullopt;
  scalar.expr = importFloatOp(op, operands, context);
  if (!scalar.expr)
    scalar.expr = importConversion(op, operands, context);
  if (!scalar.expr)
    scalar.expr = importIntegerOp(op, operands, context);
  scalar.index = importIndexOp(op, operands, atoms);
  // Division and remainder of subscripts: the operands are not negative, where
  // floor and truncation agree.
  if (!scalar.expr && scalar.index)
    scalar.expr =
        llvm::TypeSwitch<Operation *, Expr>(op)
            .Case<arith::DivUIOp, arith::DivSIOp>([&](auto) {
              return context.fn(Fn::FloorDiv, operands[0].expr,
                                operands[1].expr);
            })
            .Case<arith::RemSIOp, arith::RemUIOp>([&](auto) {
              return context.fn(Fn::Rem, operands[0].expr, operands[1].expr);
            })
            .Default([](Operation *) { return Expr(); });
  return scalar.expr ? std::optional(scalar) : std::nullopt;
}
