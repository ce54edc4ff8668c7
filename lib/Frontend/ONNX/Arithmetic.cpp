// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Arithmetic on one element at a time, and the functions of libm.
#include "Elementwise.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

//===- Folding ===//

template <double (*fn)(double)>
static Scalar foldReal(Extents &, ArrayRef<Scalar> in) {
  return in[0].real ? Scalar::of(fn(*in[0].real)) : Scalar();
}

template <Extent (Extents::*whole)(const Extent &, const Extent &),
          double (*real)(double, double)>
static Scalar foldBinary(Extents &extents, ArrayRef<Scalar> in) {
  if (in[0].real)
    return Scalar::of(real(*in[0].real, *in[1].real));
  return Scalar::of((extents.*whole)(*in[0].integer, *in[1].integer));
}

static double addReal(double a, double b) { return a + b; }
static double subReal(double a, double b) { return a - b; }
static double mulReal(double a, double b) { return a * b; }
static double maxReal(double a, double b) {
  return std::isnan(a) || a > b ? a : b;
}
static double minReal(double a, double b) {
  return std::isnan(a) || a < b ? a : b;
}

/// Cut off towards zero, as ONNX divides integers. Only where the sign is
/// known.
static Scalar foldDiv(Extents &extents, ArrayRef<Scalar> in) {
  if (in[0].real)
    return Scalar::of(*in[0].real / *in[1].real);
  const Extent &a = *in[0].integer, &b = *in[1].integer;
  if (a.constant() && b.constant()) {
    if (b.is(0) || (b.is(-1) && a.is(INT64_MIN)))
      return Scalar();
    return Scalar::of(Extent(*a.constant() / *b.constant()));
  }
  if (!extents.isNonNegative(a))
    return Scalar();
  if (std::optional<Extent> exact = extents.divideExactly(a, b))
    return Scalar::of(*exact);
  if (!extents.isAtMost(1, b))
    return Scalar();
  return Scalar::of(extents.floorDiv(a, b));
}

static Scalar foldMod(Extents &extents, ArrayRef<Scalar> in) {
  if (in[0].real || !extents.isAtMost(1, *in[1].integer))
    return Scalar();
  return Scalar::of(extents.mod(*in[0].integer, *in[1].integer));
}

static Scalar foldNeg(Extents &extents, ArrayRef<Scalar> in) {
  return in[0].real ? Scalar::of(-*in[0].real)
                    : Scalar::of(extents.sub(0, *in[0].integer));
}

static Scalar foldPow(Extents &, ArrayRef<Scalar> in) {
  if (in[0].real && in[1].real)
    return Scalar::of(std::pow(*in[0].real, *in[1].real));
  return Scalar();
}

static Scalar foldReciprocal(Extents &, ArrayRef<Scalar> in) {
  return Scalar::of(1 / *in[0].real);
}

//===- Shapes of code ===//

template <typename Op> static Value emitReal(Body &body, ValueRange in) {
  return body.make<Op>(in[0]);
}

/// The form of a sum, difference or product of index tensors.
static std::optional<IndexForm>
combineForms(Node &node, ArrayRef<Extent> shape,
             Extent (Extents::*op)(const Extent &, const Extent &),
             bool isProduct) {
  Extents &extents = node.extents;
  if (isFloat(typeOfFirst(node)))
    return std::nullopt;
  std::optional<IndexForm> a = formOver(extents, node.input(0), shape),
                           b = formOver(extents, node.input(1), shape);
  if (!a || !b)
    return std::nullopt;
  Affine &x = a->parts.front(), &y = b->parts.front();
  if (!isProduct) {
    x.offset = (extents.*op)(x.offset, y.offset);
    for (auto [p, q] : llvm::zip_equal(x.coefficients, y.coefficients))
      p = (extents.*op)(p, q);
    return a;
  }
  if (x.isConstant())
    std::swap(x, y);
  if (!y.isConstant())
    return std::nullopt;
  x.offset = extents.mul(x.offset, y.offset);
  for (Extent &slope : x.coefficients)
    slope = extents.mul(slope, y.offset);
  return a;
}

template <typename RealOp, typename WholeOp>
static Value emitEither(Body &body, ValueRange in) {
  if (isa<FloatType>(in[0].getType()))
    return body.make<RealOp>(in[0], in[1]);
  return body.make<WholeOp>(in[0], in[1]);
}

/// Add, Sub, Mul: any number type; index tensors stay index tensors.
static LogicalResult lowerRing(Node &node, ElementFn emit, FoldFn fold,
                               Extent (Extents::*op)(const Extent &,
                                                     const Extent &),
                               bool isProduct) {
  if (failed(requireNumbers(node)))
    return failure();
  FailureOr<Shape> shape = node.broadcast(node.allInputs());
  if (failed(shape))
    return failure();
  ElementType type = typeOfFirst(node);
  if (auto folded = foldElementwise(node, node.allInputs(), *shape, type, fold))
    return node.give(std::move(*folded));
  if (auto form = combineForms(node, *shape, op, isProduct)) {
    Tensor result;
    result.type = type;
    result.shape = *shape;
    result.form = std::move(form);
    return node.give(std::move(result));
  }
  return node.give(
      node.graph.elementwise(node.allInputs(), *shape, type, emit));
}

/// Integer division that cannot trap: by 0 it gives 0, by -1 it negates.
static Value emitWholeDiv(Body &body, Value a, Value b, bool isSigned) {
  Type type = a.getType();
  Value zero = body.integer(type, 0), one = body.integer(type, 1);
  Value isZero = body.make<arith::CmpIOp>(arith::CmpIPredicate::eq, b, zero);
  Value divisor = body.make<arith::SelectOp>(isZero, one, b);
  if (!isSigned) {
    Value quotient = body.make<arith::DivUIOp>(a, divisor);
    return body.make<arith::SelectOp>(isZero, zero, quotient);
  }
  Value minusOne = body.integer(type, -1);
  Value isMinusOne =
      body.make<arith::CmpIOp>(arith::CmpIPredicate::eq, b, minusOne);
  divisor = body.make<arith::SelectOp>(isMinusOne, one, divisor);
  Value quotient = body.make<arith::DivSIOp>(a, divisor);
  Value negated = body.make<arith::SubIOp>(zero, quotient);
  quotient = body.make<arith::SelectOp>(isMinusOne, negated, quotient);
  return body.make<arith::SelectOp>(isZero, zero, quotient);
}

static LogicalResult lowerDiv(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  bool isSigned = typeOfFirst(node) != ElementType::U8;
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node),
      [&](Body &body, ValueRange in) -> Value {
        if (isa<FloatType>(in[0].getType()))
          return body.make<arith::DivFOp>(in[0], in[1]);
        return emitWholeDiv(body, in[0], in[1], isSigned);
      },
      foldDiv);
}

/// fmod = 1: the sign of the dividend (C); 0: that of the divisor (Python).
static LogicalResult lowerMod(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  bool isC = node.integer("fmod", 0) != 0;
  ElementType type = typeOfFirst(node);
  if (isFloat(type) && !isC)
    return node.error() << "fmod is 0 on floats; expected 1";
  bool isSigned = type != ElementType::U8;
  return lowerElementwise(
      node, node.allInputs(), type,
      [&](Body &body, ValueRange in) -> Value {
        Value a = in[0], b = in[1];
        if (isa<FloatType>(a.getType()))
          return body.make<arith::RemFOp>(a, b);
        Value quotient = emitWholeDiv(body, a, b, isSigned);
        Value rest =
            body.make<arith::SubIOp>(a, body.make<arith::MulIOp>(quotient, b));
        if (isC || !isSigned)
          return rest;
        Value zero = body.integer(a.getType(), 0);
        Value isOff =
            body.make<arith::CmpIOp>(arith::CmpIPredicate::ne, rest, zero);
        auto isNegative = [&](Value value) {
          return body.make<arith::CmpIOp>(arith::CmpIPredicate::slt, value,
                                          zero);
        };
        Value differs =
            body.make<arith::XOrIOp>(isNegative(rest), isNegative(b));
        Value moves = body.make<arith::AndIOp>(isOff, differs);
        Value moved = body.make<arith::AddIOp>(rest, b);
        return body.make<arith::SelectOp>(moves, moved, rest);
      },
      isC ? nullptr : foldMod);
}

/// x^n by squaring.
static Value emitPower(Body &body, Value x, unsigned n) {
  Value result;
  for (Value square = x; n; n >>= 1) {
    if (n & 1)
      result = result ? body.make<arith::MulFOp>(result, square) : square;
    if (n > 1)
      square = body.make<arith::MulFOp>(square, square);
  }
  return result;
}

/// Small whole exponents are products: exact where the result is, and seen
/// through by the algebra.
static Value emitPow(Body &body, Value x, Value y,
                     std::optional<double> power) {
  constexpr double kMostProducts = 8;
  if (!power || !(std::abs(*power) <= kMostProducts) ||
      *power != std::floor(*power))
    return body.make<math::PowFOp>(x, y);
  Value one = body.real(x.getType(), 1);
  if (*power == 0)
    return one;
  Value product = emitPower(body, x, unsigned(std::abs(*power)));
  return *power > 0 ? product : body.make<arith::DivFOp>(one, product);
}

/// The result has the base's type; integers go through f64.
static LogicalResult lowerPow(Node &node) {
  ElementType from = typeOfFirst(node), by = node.input(1).type;
  if (from == ElementType::Bool || by == ElementType::Bool)
    return node.error() << "an input is of type bool; expected numbers";
  const Scalar *fixed = node.input(1).splat();
  std::optional<double> power;
  if (fixed && fixed->real)
    power = fixed->real;
  else if (fixed && fixed->integer->constant())
    power = double(*fixed->integer->constant());
  return lowerElementwise(
      node, node.allInputs(), from,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        bool isReal = isa<FloatType>(type);
        Type wide = isReal ? type : Type(body.builder.getF64Type());
        Value x = castElement(body, in[0], from, ElementType::F64, wide);
        Value y = castElement(body, in[1], by, ElementType::F64, wide);
        Value value = emitPow(body, x, y, power);
        return isReal ? value
                      : castElement(body, value, ElementType::F64, from, type);
      },
      foldPow);
}

//===- Min, Max, Clip ===//

template <typename RealOp, typename SignedOp, typename UnsignedOp>
static Value emitBound(Body &body, Value a, Value b, bool isSigned) {
  if (isa<FloatType>(a.getType()))
    return body.make<RealOp>(a, b);
  return isSigned ? body.make<SignedOp>(a, b) : body.make<UnsignedOp>(a, b);
}

static Value emitMax(Body &body, Value a, Value b, bool isSigned) {
  return emitBound<arith::MaximumFOp, arith::MaxSIOp, arith::MaxUIOp>(
      body, a, b, isSigned);
}
static Value emitMin(Body &body, Value a, Value b, bool isSigned) {
  return emitBound<arith::MinimumFOp, arith::MinSIOp, arith::MinUIOp>(
      body, a, b, isSigned);
}

static LogicalResult lowerVariadic(Node &node,
                                   Value (*emit)(Body &, Value, Value, bool),
                                   FoldFn fold) {
  if (failed(requireNumbers(node)))
    return failure();
  bool isSigned = typeOfFirst(node) != ElementType::U8;
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node),
      [&](Body &body, ValueRange in) {
        Value value = in.front();
        for (Value next : in.drop_front())
          value = emit(body, value, next, isSigned);
        return value;
      },
      node.numInputs() == 2 ? fold : nullptr);
}

static LogicalResult lowerSum(Node &node) {
  if (failed(node.requireFloat(0)) || failed(node.requireSameTypes()))
    return failure();
  bool isMean = node.op() == "Mean";
  return lowerElementwise(node, node.allInputs(), typeOfFirst(node),
                          [&](Body &body, ValueRange in) {
                            Value value = in.front();
                            for (Value next : in.drop_front())
                              value = body.make<arith::AddFOp>(value, next);
                            if (!isMean)
                              return value;
                            return body.make<arith::DivFOp>(
                                value,
                                body.real(value.getType(), double(in.size())));
                          });
}

static LogicalResult lowerClip(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  SmallVector<Tensor *> inputs{&node.input(0)};
  bool hasLow = node.hasInput(1), hasHigh = node.hasInput(2);
  for (unsigned i : {1, 2}) {
    if (!node.hasInput(i))
      continue;
    if (node.input(i).rank() != 0)
      return node.error() << "bound " << i << " has shape "
                          << toString(node.extents, node.input(i).shape)
                          << "; expected a scalar";
    inputs.push_back(&node.input(i));
  }
  bool isSigned = typeOfFirst(node) != ElementType::U8;
  return lowerElementwise(node, inputs, typeOfFirst(node),
                          [&](Body &body, ValueRange in) {
                            Value value = in[0];
                            if (hasLow)
                              value = emitMax(body, value, in[1], isSigned);
                            if (hasHigh)
                              value = emitMin(body, value, in.back(), isSigned);
                            return value;
                          });
}

//===- Signs ===//

static LogicalResult lowerAbs(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  if (typeOfFirst(node) == ElementType::U8)
    return node.give(node.input(0));
  return lowerElementwise(node, node.allInputs(), typeOfFirst(node),
                          [](Body &body, ValueRange in) -> Value {
                            if (isa<FloatType>(in[0].getType()))
                              return body.make<math::AbsFOp>(in[0]);
                            Value negated = body.make<arith::SubIOp>(
                                body.integer(in[0].getType(), 0), in[0]);
                            return body.make<arith::MaxSIOp>(in[0], negated);
                          });
}

static LogicalResult lowerNeg(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node),
      [](Body &body, ValueRange in) -> Value {
        if (isa<FloatType>(in[0].getType()))
          return body.make<arith::NegFOp>(in[0]);
        return body.make<arith::SubIOp>(body.integer(in[0].getType(), 0),
                                        in[0]);
      },
      foldNeg);
}

/// -1, 0 or 1; NaN stays NaN.
static LogicalResult lowerSign(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  bool isSigned = typeOfFirst(node) != ElementType::U8;
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node),
      [&](Body &body, ValueRange in) -> Value {
        Value x = in[0];
        Type type = x.getType();
        if (!isa<FloatType>(type)) {
          Value one = body.integer(type, 1);
          Value capped = emitMin(body, x, one, isSigned);
          return isSigned ? emitMax(body, capped, body.integer(type, -1), true)
                          : capped;
        }
        Value zero = body.real(type, 0);
        Value above =
            body.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, x, zero);
        Value below =
            body.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x, zero);
        Value value = body.make<arith::SelectOp>(below, body.real(type, -1), x);
        return body.make<arith::SelectOp>(above, body.real(type, 1), value);
      });
}

ArrayRef<Operator> refold::onnx::arithmeticOperators() {
  static const Operator rows[] = {
      {"Abs", 13, kLastOpset, "", 1, 1, lowerAbs},
      {"Add", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerRing(n, emitEither<arith::AddFOp, arith::AddIOp>,
                          foldBinary<&Extents::add, addReal>, &Extents::add,
                          false);
       }},
      {"Ceil", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::CeilOp>, foldReal<std::ceil>);
       }},
      {"Clip", 13, kLastOpset, "", 1, 3, lowerClip},
      {"Cos", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::CosOp>, foldReal<std::cos>);
       }},
      {"Cosh", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::CoshOp>, foldReal<std::cosh>);
       }},
      {"Div", 13, kLastOpset, "", 2, 2, lowerDiv},
      {"Erf", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         if (failed(n.requireFloatHere(0)))
           return failure();
         return lowerReal(n, emitReal<math::ErfOp>, foldReal<std::erf>);
       }},
      {"Exp", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::ExpOp>, foldReal<std::exp>);
       }},
      {"Floor", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::FloorOp>, foldReal<std::floor>);
       }},
      {"Log", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::LogOp>, foldReal<std::log>);
       }},
      {"Max", 13, kLastOpset, "", 1, kAnyNumber,
       [](Node &n) {
         return lowerVariadic(n, emitMax, foldBinary<&Extents::max, maxReal>);
       }},
      {"Mean", 13, kLastOpset, "", 1, kAnyNumber, lowerSum},
      {"Min", 13, kLastOpset, "", 1, kAnyNumber,
       [](Node &n) {
         return lowerVariadic(n, emitMin, foldBinary<&Extents::min, minReal>);
       }},
      {"Mod", 13, kLastOpset, "fmod:i", 2, 2, lowerMod},
      {"Mul", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerRing(n, emitEither<arith::MulFOp, arith::MulIOp>,
                          foldBinary<&Extents::mul, mulReal>, &Extents::mul,
                          true);
       }},
      {"Neg", 13, kLastOpset, "", 1, 1, lowerNeg},
      {"Pow", 13, kLastOpset, "", 2, 2, lowerPow},
      {"Reciprocal", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(
             n,
             [](Body &body, ValueRange in) -> Value {
               return body.make<arith::DivFOp>(body.real(in[0].getType(), 1),
                                               in[0]);
             },
             foldReciprocal);
       }},
      {"Round", 13, kLastOpset, "", 1, 1,
       [](Node &n) { return lowerReal(n, emitReal<math::RoundEvenOp>); }},
      {"Sign", 13, kLastOpset, "", 1, 1, lowerSign},
      {"Sin", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::SinOp>, foldReal<std::sin>);
       }},
      {"Sinh", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::SinhOp>, foldReal<std::sinh>);
       }},
      {"Sqrt", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::SqrtOp>, foldReal<std::sqrt>);
       }},
      {"Sub", 13, kLastOpset, "", 2, 2,
       [](Node &n) {
         return lowerRing(n, emitEither<arith::SubFOp, arith::SubIOp>,
                          foldBinary<&Extents::sub, subReal>, &Extents::sub,
                          false);
       }},
      {"Sum", 13, kLastOpset, "", 1, kAnyNumber, lowerSum},
      {"Tanh", 13, kLastOpset, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::TanhOp>, foldReal<std::tanh>);
       }},
  };
  return rows;
}
