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

/// The type that holds the unsigned values of an integer type, and 2^bits.
static std::optional<std::pair<algebra::Type, int64_t>>
unsignedRange(Type type) {
  if (type.isInteger(8))
    return std::pair(algebra::Type::I32, int64_t(1) << 8);
  if (type.isInteger(32))
    return std::pair(algebra::Type::I64, int64_t(1) << 32);
  return std::nullopt;
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
  // The order of unsigned numbers is that of their values in a wider type.
  bool isUnsigned = isa<arith::MaxUIOp, arith::MinUIOp>(op) && !logical;
  bool hasRange = isUnsigned && unsignedRange(value.getType()).has_value();
  auto reducer =
      llvm::TypeSwitch<Operation *, std::optional<R>>(op)
          .Case<arith::AddFOp, arith::AddIOp>([](auto) { return R::Sum; })
          .Case<arith::MulFOp, arith::MulIOp>([](auto) { return R::Prod; })
          .Case<arith::MaximumFOp, arith::MaxSIOp>([](auto) { return R::Max; })
          .Case<arith::MinimumFOp, arith::MinSIOp>([](auto) { return R::Min; })
          .Case([](arith::MaxNumFOp) { return R::MaxNum; })
          .Case([](arith::MinNumFOp) { return R::MinNum; })
          .Case<arith::OrIOp, arith::MaxUIOp>([&](auto) {
            if (logical)
              return std::optional(R::Any);
            return hasRange ? std::optional(R::Max) : std::nullopt;
          })
          .Case<arith::AndIOp, arith::MinUIOp>([&](auto) {
            if (logical)
              return std::optional(R::All);
            return hasRange ? std::optional(R::Min) : std::nullopt;
          })
          .Default([](Operation *) { return std::nullopt; });
  if (!reducer)
    return std::nullopt;
  return Combiner{*reducer, op->getOperand(left ? 1 : 0), isUnsigned};
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

//===----------------------------------------------------------------------===//
// Integers
//
// The algebra computes with whole numbers in i32 or i64. A value of n bits is
// the signed one; unsigned ops see 2^n more where it is negative, in a type
// that is wide enough, or have no form.
//===----------------------------------------------------------------------===//

static Expr isNegative(Context &c, Expr a) {
  return c.cmp(Pred::Lt, a, c.integer(0, a.type()));
}

/// What an unsigned op sees in place of `a`, a value of `type`; or nothing.
static Expr asUnsigned(Context &c, Expr a, Type type) {
  bool isNeverNegative =
      type.isIndex() || type.isInteger(1) || a.type() == algebra::Type::U8;
  if (isNeverNegative)
    return a;
  auto range = unsignedRange(type);
  if (!range)
    return Expr();
  auto [wide, count] = *range;
  Expr value = c.cast(wide, a);
  return c.select(isNegative(c, a), c.add(value, c.integer(count, wide)),
                  value);
}

/// The value of `type` whose unsigned value is `a`, from 0 to 2^bits - 1.
static Expr fromUnsigned(Context &c, Expr a, Type type) {
  auto range = unsignedRange(type);
  if (!range)
    return type.isIndex() ? a : Expr();
  auto [wide, count] = *range;
  Expr isHigh = c.cmp(Pred::Ge, a, c.integer(count / 2, wide));
  return c.cast(*importType(type),
                c.select(isHigh, c.sub(a, c.integer(count, wide)), a));
}

Expr refold::unsignedValue(Context &context, Expr value, Type type) {
  return asUnsigned(context, value, type);
}

Expr refold::valueOfUnsigned(Context &context, Expr value, Type type) {
  return fromUnsigned(context, value, type);
}

/// Arithmetic on i8 wraps, and the algebra's is in i32: the value from -128 to
/// 127 that differs by a multiple of 256.
static Expr wrap(Context &c, Expr a, Type type) {
  if (!a || !type.isInteger(8))
    return a;
  Expr half = c.integer(128, algebra::Type::I32);
  Expr count = c.integer(256, algebra::Type::I32);
  return c.sub(c.fn(Fn::Rem, c.add(a, half), count), half);
}

/// Rounds down. What a lane beyond the end divides by may be 0, and the
/// smallest integer by -1 overflows: neither may trap.
static Expr floorDiv(Context &c, Expr a, Expr b) {
  std::optional<double> known = b.constant();
  if (b.type() == algebra::Type::Index || (known && *known > 0))
    return c.fn(Fn::FloorDiv, a, b);
  Expr zero = c.integer(0, b.type()), one = c.integer(1, b.type());
  Expr isZero = c.cmp(Pred::Eq, b, zero);
  Expr isMinusOne = c.cmp(Pred::Eq, b, c.integer(-1, b.type()));
  Expr divisor = c.select(c.logicalOr(isZero, isMinusOne), one, b);
  Expr quotient = c.fn(Fn::FloorDiv, a, divisor);
  return c.select(isMinusOne, c.neg(a), c.select(isZero, zero, quotient));
}

/// Rounds towards 0: one more than `floorDiv` where that is below the quotient
/// and the quotient below 0.
static Expr truncDiv(Context &c, Expr a, Expr b) {
  Expr down = floorDiv(c, a, b);
  Expr isRounded = c.cmp(Pred::Ne, c.mul(down, b), a);
  Expr isBelowZero = c.cmp(Pred::Ne, isNegative(c, a), isNegative(c, b));
  Expr one = c.integer(1, down.type());
  return c.select(c.logicalAnd(isRounded, isBelowZero), c.add(down, one), down);
}

static Expr ceilDiv(Context &c, Expr a, Expr b) {
  Expr down = floorDiv(c, a, b);
  Expr isRounded = c.cmp(Pred::Ne, c.mul(down, b), a);
  return c.select(isRounded, c.add(down, c.integer(1, down.type())), down);
}

static Expr unsignedDiv(Context &c, Expr a, Expr b, Type type, bool isRest) {
  Expr x = asUnsigned(c, a, type), y = asUnsigned(c, b, type);
  if (!x || !y)
    return Expr();
  Expr quotient = floorDiv(c, x, y);
  return fromUnsigned(c, isRest ? c.sub(x, c.mul(quotient, y)) : quotient,
                      type);
}

/// Is an index made of positions and extents alone? One that is data, as a
/// position of no element (-1), is any number.
static bool isPlace(Expr e) {
  if (std::optional<double> value = e.constant())
    return *value >= 0;
  if (e.is(algebra::Kind::Add) || e.is(algebra::Kind::Mul))
    return isPlace(e.operand(0)) && isPlace(e.operand(1));
  return e.isSym() && (e.symbol().role == algebra::Role::Index ||
                       e.symbol().facts.nonNegative);
}

/// Of two values one of which is negative, that one is the larger unsigned.
static Expr unsignedLess(Context &c, Expr a, Expr b) {
  if (a.type() == algebra::Type::Bool)
    return c.logicalAnd(c.logicalNot(a), b);
  if (a.type() == algebra::Type::Index && isPlace(a) && isPlace(b))
    return c.cmp(Pred::Lt, a, b);
  Expr aIsHigh = isNegative(c, a), bIsHigh = isNegative(c, b);
  return c.select(c.cmp(Pred::Ne, aIsHigh, bIsHigh), bIsHigh,
                  c.cmp(Pred::Lt, a, b));
}

/// Is it a place, or one as a number that holds every place?
static bool isNumberOfPlace(Expr e) {
  if (e.is(algebra::Kind::Cast) && e.type() == algebra::Type::I64)
    e = e.operand(0);
  return e.type() == algebra::Type::Index && isPlace(e);
}

/// What is known of `a < b` without data: no place is below 0. Masks that
/// models compute of positions ask for it.
static std::optional<bool> isKnownLess(Expr a, Expr b) {
  if (std::optional<double> most = b.constant();
      most && *most <= 0 && isNumberOfPlace(a))
    return false;
  if (std::optional<double> least = a.constant();
      least && *least < 0 && isNumberOfPlace(b))
    return true;
  return std::nullopt;
}

static Expr importCmpI(Context &c, arith::CmpIPredicate predicate, Expr a,
                       Expr b) {
  using P = arith::CmpIPredicate;
  bool isOfSwapped = predicate == P::sgt || predicate == P::sle;
  bool isNot = predicate == P::sge || predicate == P::sle;
  if (isOfSwapped || isNot || predicate == P::slt)
    if (std::optional<bool> known =
            isOfSwapped ? isKnownLess(b, a) : isKnownLess(a, b))
      return c.boolean(*known != isNot);
  switch (predicate) {
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
    return unsignedLess(c, a, b);
  case P::ule:
    return c.logicalNot(unsignedLess(c, b, a));
  case P::ugt:
    return unsignedLess(c, b, a);
  case P::uge:
    return c.logicalNot(unsignedLess(c, a, b));
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
  // Sums and products of whole floats round to whole ones.
  if (e.is(algebra::Kind::Max) || e.is(algebra::Kind::Min) ||
      e.is(algebra::Kind::MaxNum) || e.is(algebra::Kind::MinNum) ||
      e.is(algebra::Kind::Add) || e.is(algebra::Kind::Sub) ||
      e.is(algebra::Kind::Mul))
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

static Expr importToUnsigned(Context &c, Type type, Expr a) {
  auto range = unsignedRange(type);
  return range ? fromUnsigned(c, importToInteger(c, range->first, a), type)
               : importToInteger(c, *importType(type), a);
}

/// The remainder with the sign of the dividend. `Rem` has the divisor's; of
/// magnitudes the two are one.
static Expr importRemF(Context &c, Expr a, Expr b) {
  Expr rest = c.fn(Fn::Rem, c.fn(Fn::Abs, a), c.fn(Fn::Abs, b));
  return c.select(c.cmp(Pred::Lt, a, c.real(0, a.type())), c.neg(rest), rest);
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
      .Case([&](arith::RemFOp) { return importRemF(c, x(0), x(1)); })
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

/// Division and remainder of subscripts: the operands are not negative, where
/// floor and truncation agree.
static Expr importSubscriptOp(Operation *op, ArrayRef<Scalar> in, Context &c) {
  return llvm::TypeSwitch<Operation *, Expr>(op)
      .Case<arith::DivUIOp, arith::DivSIOp, arith::FloorDivSIOp>(
          [&](auto) { return c.fn(Fn::FloorDiv, in[0].expr, in[1].expr); })
      .Case<arith::RemSIOp, arith::RemUIOp>(
          [&](auto) { return c.fn(Fn::Rem, in[0].expr, in[1].expr); })
      .Default([](Operation *) { return Expr(); });
}

/// Beside `true` it is a negation; that of = is ≠, also for NaN.
static Expr importXor(Context &c, Expr a, Expr b) {
  if (!b.isConstant(1))
    return a.isConstant(1) ? importXor(c, b, a) : c.cmp(Pred::Ne, a, b);
  bool isNumber = a.is(algebra::Kind::Cmp) && a->pred == Pred::Eq &&
                  a.operand(0) == a.operand(1);
  if (isNumber && algebra::isFloat(a.operand(0).type()))
    return c.fn(Fn::IsNan, a.operand(0));
  if (a.is(algebra::Kind::Cmp) && (a->pred == Pred::Eq || a->pred == Pred::Ne))
    return c.cmp(a->pred == Pred::Eq ? Pred::Ne : Pred::Eq, a.operand(0),
                 a.operand(1));
  return c.logicalNot(a);
}

static Expr importIntegerOp(Operation *op, ArrayRef<Scalar> in, Context &c) {
  auto x = [&](unsigned i) { return in[i].expr; };
  Type type = op->getNumResults() ? op->getResult(0).getType() : Type();
  bool logical = type && type.isInteger(1);
  auto ifLogical = [&](Expr e) { return logical ? e : Expr(); };
  auto larger = [&](bool wantsFirst) {
    Expr isLess = unsignedLess(c, x(0), x(1));
    return wantsFirst ? c.select(isLess, x(0), x(1))
                      : c.select(isLess, x(1), x(0));
  };
  return llvm::TypeSwitch<Operation *, Expr>(op)
      .Case([&](arith::AddIOp) { return wrap(c, c.add(x(0), x(1)), type); })
      .Case([&](arith::SubIOp) { return wrap(c, c.sub(x(0), x(1)), type); })
      .Case([&](arith::MulIOp) { return wrap(c, c.mul(x(0), x(1)), type); })
      .Case([&](arith::FloorDivSIOp) { return floorDiv(c, x(0), x(1)); })
      .Case([&](arith::CeilDivSIOp) { return ceilDiv(c, x(0), x(1)); })
      .Case([&](arith::DivSIOp) { return truncDiv(c, x(0), x(1)); })
      .Case([&](arith::RemSIOp) {
        return c.sub(x(0), c.mul(truncDiv(c, x(0), x(1)), x(1)));
      })
      .Case([&](arith::DivUIOp) {
        return unsignedDiv(c, x(0), x(1), type, false);
      })
      .Case([&](arith::RemUIOp) {
        return unsignedDiv(c, x(0), x(1), type, true);
      })
      .Case([&](arith::MaxUIOp) { return larger(/*wantsFirst=*/false); })
      .Case([&](arith::MinUIOp) { return larger(/*wantsFirst=*/true); })
      .Case([&](arith::MaxSIOp) { return c.max(x(0), x(1)); })
      .Case([&](arith::MinSIOp) { return c.min(x(0), x(1)); })
      .Case([&](arith::AndIOp) { return ifLogical(c.logicalAnd(x(0), x(1))); })
      .Case([&](arith::OrIOp) { return ifLogical(c.logicalOr(x(0), x(1))); })
      .Case([&](arith::XOrIOp) { return ifLogical(importXor(c, x(0), x(1))); })
      .Case([&](arith::CmpIOp cmp) {
        return importCmpI(c, cmp.getPredicate(), x(0), x(1));
      })
      .Default([](Operation *) { return Expr(); });
}

/// A cast; of a value of that type that was only widened it is the value.
static Expr castBack(Context &c, algebra::Type type, Expr a) {
  if (a.is(algebra::Kind::Cast) && a.operand(0).type() == type &&
      algebra::isExactConversion(type, a.type()))
    return a.operand(0);
  return c.cast(type, a);
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
          [&](auto) { return castBack(c, *type, a); })
      .Case<arith::UIToFPOp, arith::ExtUIOp>([&](auto) {
        Expr value = asUnsigned(c, a, op->getOperand(0).getType());
        return value ? c.cast(*type, value) : Expr();
      })
      .Case([&](arith::FPToSIOp) { return importToInteger(c, *type, a); })
      .Case([&](arith::FPToUIOp) {
        return importToUnsigned(c, op->getResult(0).getType(), a);
      })
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
  scalar.index = importIndexOp(op, operands, atoms);
  if (scalar.index)
    scalar.expr = importSubscriptOp(op, operands, context);
  if (!scalar.expr)
    scalar.expr = importFloatOp(op, operands, context);
  if (!scalar.expr)
    scalar.expr = importConversion(op, operands, context);
  if (!scalar.expr)
    scalar.expr = importIntegerOp(op, operands, context);
  return scalar.expr ? std::optional(scalar) : std::nullopt;
}
