// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators that work on one element at a time, of inputs that broadcast.
#include "Elementwise.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>
#include <numbers>

using namespace mlir;
using namespace refold::onnx;

LogicalResult refold::onnx::lowerElementwise(Node &node,
                                             ArrayRef<Tensor *> inputs,
                                             ElementType type, ElementFn emit,
                                             FoldFn fold) {
  FailureOr<Shape> shape = node.broadcast(inputs);
  if (failed(shape))
    return failure();
  if (fold)
    if (auto folded = foldElementwise(node, inputs, *shape, type, fold))
      return node.give(std::move(*folded));
  return node.give(node.graph.elementwise(inputs, *shape, type, emit));
}

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

static Scalar ofBool(bool value) { return Scalar::of(Extent(int64_t(value))); }

template <typename Compare>
static Scalar
foldOrder(Extents &extents, ArrayRef<Scalar> in, Compare real,
          bool (*proves)(Extents &, const Extent &, const Extent &),
          bool (*refutes)(Extents &, const Extent &, const Extent &)) {
  if (in[0].real)
    return ofBool(real(*in[0].real, *in[1].real));
  const Extent &a = *in[0].integer, &b = *in[1].integer;
  if (proves(extents, a, b))
    return ofBool(true);
  return refutes(extents, a, b) ? ofBool(false) : Scalar();
}

static bool isEqual(Extents &e, const Extent &a, const Extent &b) {
  return e.areEqual(a, b);
}
static bool isUnequal(Extents &e, const Extent &a, const Extent &b) {
  return e.areUnequal(a, b);
}
static bool isAtMost(Extents &e, const Extent &a, const Extent &b) {
  return e.isAtMost(a, b);
}
static bool isLess(Extents &e, const Extent &a, const Extent &b) {
  return e.isAtMost(e.add(a, 1), b);
}
static bool isAtLeast(Extents &e, const Extent &a, const Extent &b) {
  return e.isAtMost(b, a);
}
static bool isMore(Extents &e, const Extent &a, const Extent &b) {
  return isLess(e, b, a);
}

static Scalar foldEqual(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::equal_to<double>(), isEqual, isUnequal);
}
static Scalar foldLess(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::less<double>(), isLess, isAtLeast);
}
static Scalar foldLessEqual(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::less_equal<double>(), isAtMost, isMore);
}
static Scalar foldGreater(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::greater<double>(), isMore, isAtMost);
}
static Scalar foldGreaterEqual(Extents &e, ArrayRef<Scalar> in) {
  return foldOrder(e, in, std::greater_equal<double>(), isAtLeast, isLess);
}

static Scalar foldNot(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(0));
}
static Scalar foldAnd(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(1) && in[1].integer->is(1));
}
static Scalar foldOr(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(1) || in[1].integer->is(1));
}
static Scalar foldXor(Extents &, ArrayRef<Scalar> in) {
  return ofBool(in[0].integer->is(1) != in[1].integer->is(1));
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
static Scalar foldWhere(Extents &, ArrayRef<Scalar> in) {
  return in[0].integer->is(1) ? in[1] : in[2];
}
static Scalar foldReciprocal(Extents &, ArrayRef<Scalar> in) {
  return Scalar::of(1 / *in[0].real);
}

//===- Shapes of code ===//

static ElementType typeOfFirst(Node &node) { return node.input(0).type; }

/// One float in, one float out.
static LogicalResult lowerReal(Node &node, ElementFn emit,
                               FoldFn fold = nullptr) {
  if (failed(node.requireFloat(0)))
    return failure();
  return lowerElementwise(node, node.allInputs(), typeOfFirst(node), emit,
                          fold);
}

template <typename Op> static Value emitReal(Body &body, ValueRange in) {
  return body.make<Op>(in[0]);
}

static LogicalResult requireNumbers(Node &node) {
  if (node.input(0).type == ElementType::Bool)
    return node.error() << "input 0 is of type bool; expected numbers";
  return node.requireSameTypes();
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
        Value signs = body.make<arith::XOrIOp>(rest, b);
        Value differs =
            body.make<arith::CmpIOp>(arith::CmpIPredicate::slt, signs, zero);
        Value moves = body.make<arith::AndIOp>(isOff, differs);
        Value moved = body.make<arith::AddIOp>(rest, b);
        return body.make<arith::SelectOp>(moves, moved, rest);
      },
      isC ? nullptr : foldMod);
}

/// Small whole exponents are products: exact, and seen through by the algebra.
static Value emitPow(Body &body, Value x, Value y,
                     std::optional<double> power) {
  if (power == 1.0)
    return x;
  if (power == 2.0)
    return body.make<arith::MulFOp>(x, x);
  if (power == 3.0)
    return body.make<arith::MulFOp>(body.make<arith::MulFOp>(x, x), x);
  return body.make<math::PowFOp>(x, y);
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

//===- Comparisons and logic ===//

/// Provably the same for all subscripts: a mask that masks nothing.
static std::optional<Scalar> foldRanges(Node &node, ArrayRef<Extent> shape,
                                        FoldFn fold) {
  Extents &extents = node.extents;
  if (isFloat(typeOfFirst(node)))
    return std::nullopt;
  std::optional<IndexForm> a = formOver(extents, node.input(0), shape),
                           b = formOver(extents, node.input(1), shape);
  if (!a || !b)
    return std::nullopt;
  std::optional<Interval> x = rangeOf(extents, a->parts.front(), shape),
                          y = rangeOf(extents, b->parts.front(), shape);
  if (!x || !y)
    return std::nullopt;
  Scalar low = fold(extents, {Scalar::of(x->least), Scalar::of(y->most)});
  Scalar high = fold(extents, {Scalar::of(x->most), Scalar::of(y->least)});
  if (low.isKnown() && high.isKnown() && *low.integer == *high.integer)
    return low;
  return std::nullopt;
}

static LogicalResult lowerOrder(Node &node, arith::CmpFPredicate real,
                                arith::CmpIPredicate isSigned,
                                arith::CmpIPredicate isUnsigned, FoldFn fold) {
  if (failed(node.requireSameTypes()))
    return failure();
  FailureOr<Shape> shape = node.broadcast(node.allInputs());
  if (failed(shape))
    return failure();
  // Equal at both ends says nothing of what lies between, so only for orders.
  if (real != arith::CmpFPredicate::OEQ)
    if (std::optional<Scalar> same = foldRanges(node, *shape, fold))
      return node.give(
          node.graph.knownTensor(ElementType::Bool, *shape, {*same}));
  ElementType type = typeOfFirst(node);
  bool usesUnsigned = type == ElementType::U8 || type == ElementType::Bool;
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [&](Body &body, ValueRange in) -> Value {
        if (isa<FloatType>(in[0].getType()))
          return body.make<arith::CmpFOp>(real, in[0], in[1]);
        return body.make<arith::CmpIOp>(usesUnsigned ? isUnsigned : isSigned,
                                        in[0], in[1]);
      },
      fold);
}

template <typename Op>
static LogicalResult lowerLogic(Node &node, FoldFn fold,
                                std::optional<bool> neutral) {
  for (Tensor *input : node.allInputs())
    if (input->type != ElementType::Bool)
      return node.error() << "an input is of type " << typeName(input->type)
                          << "; expected bool";
  FailureOr<Shape> shape = node.broadcast(node.allInputs());
  if (failed(shape))
    return failure();
  // `true and x` is x: the mask of an encoder is only the padding.
  for (unsigned i : {0, 1}) {
    const Scalar *one = node.input(i).splat();
    if (one && neutral && one->integer->is(*neutral))
      return node.give(node.graph.broadcastTo(node.input(1 - i), *shape));
  }
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [](Body &body, ValueRange in) { return body.make<Op>(in[0], in[1]); },
      fold);
}

static LogicalResult lowerNot(Node &node) {
  if (node.input(0).type != ElementType::Bool)
    return node.error() << "input 0 is of type " << typeName(typeOfFirst(node))
                        << "; expected bool";
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [](Body &body, ValueRange in) -> Value {
        return body.make<arith::XOrIOp>(in[0],
                                        body.integer(in[0].getType(), 1));
      },
      foldNot);
}

static LogicalResult lowerWhere(Node &node) {
  if (node.input(0).type != ElementType::Bool)
    return node.error() << "the condition is of type "
                        << typeName(typeOfFirst(node)) << "; expected bool";
  if (failed(node.requireSameTypes(1)))
    return failure();
  FailureOr<Shape> shape = node.broadcast(node.allInputs());
  if (failed(shape))
    return failure();
  const Scalar *condition = node.input(0).splat();
  if (condition)
    return node.give(node.graph.broadcastTo(
        node.input(condition->integer->is(1) ? 1 : 2), *shape));
  return lowerElementwise(
      node, node.allInputs(), node.input(1).type,
      [](Body &body, ValueRange in) -> Value {
        return body.make<arith::SelectOp>(in[0], in[1], in[2]);
      },
      foldWhere);
}

static LogicalResult lowerIsNaN(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [](Body &body, ValueRange in) -> Value {
        return body.make<arith::CmpFOp>(arith::CmpFPredicate::UNO, in[0],
                                        in[0]);
      },
      [](Extents &, ArrayRef<Scalar> in) {
        return ofBool(std::isnan(*in[0].real));
      });
}

static LogicalResult lowerIsInf(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  bool takesPositive = node.integer("detect_positive", 1) != 0;
  bool takesNegative = node.integer("detect_negative", 1) != 0;
  return lowerElementwise(
      node, node.allInputs(), ElementType::Bool,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value result = body.integer(body.builder.getI1Type(), 0);
        for (auto [takes, value] : {std::pair(takesPositive, HUGE_VAL),
                                    std::pair(takesNegative, -HUGE_VAL)})
          if (takes)
            result = body.make<arith::OrIOp>(
                result,
                body.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ, in[0],
                                         body.real(type, value)));
        return result;
      });
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

//===- Casts ===//

/// The largest float that is below the integer type's end, and that end.
static Value emitSaturating(Body &body, Value value, Type target,
                            bool isSigned) {
  unsigned width = target.getIntOrFloatBitWidth();
  Type type = value.getType();
  double low = isSigned ? -std::ldexp(1.0, int(width) - 1) : 0.0;
  double end = std::ldexp(1.0, int(width) - (isSigned ? 1 : 0));
  Value least = body.real(type, low), past = body.real(type, end);
  auto compare = [&](arith::CmpFPredicate how, Value bound) -> Value {
    return body.make<arith::CmpFOp>(how, value, bound);
  };
  Value isLow = compare(arith::CmpFPredicate::OLT, least);
  Value isHigh = compare(arith::CmpFPredicate::OGE, past);
  Value isInside = compare(arith::CmpFPredicate::OGT, least);
  Value isTame = body.make<arith::AndIOp>(
      isInside, compare(arith::CmpFPredicate::OLT, past));
  Value tame = body.make<arith::SelectOp>(isTame, value, body.real(type, 0));
  Value whole = isSigned ? body.make<arith::FPToSIOp>(target, tame)
                         : body.make<arith::FPToUIOp>(target, tame);
  APInt most =
      isSigned ? APInt::getSignedMaxValue(width) : APInt::getMaxValue(width);
  APInt fewest =
      isSigned ? APInt::getSignedMinValue(width) : APInt::getZero(width);
  auto constant = [&](const APInt &number) -> Value {
    return body.make<arith::ConstantOp>(IntegerAttr::get(target, number));
  };
  Value isLeast =
      body.make<arith::OrIOp>(isLow, compare(arith::CmpFPredicate::OEQ, least));
  whole = body.make<arith::SelectOp>(isHigh, constant(most), whole);
  return body.make<arith::SelectOp>(isLeast, constant(fewest), whole);
}

Value refold::onnx::castElement(Body &body, Value value, ElementType from,
                                ElementType to, Type target) {
  Type source = value.getType();
  if (source == target && from != ElementType::U8 && to != ElementType::U8)
    return value;
  bool isUnsigned = from == ElementType::U8 || from == ElementType::Bool;
  if (to == ElementType::Bool) {
    if (isa<FloatType>(source))
      return body.make<arith::CmpFOp>(arith::CmpFPredicate::UNE, value,
                                      body.real(source, 0));
    return body.make<arith::CmpIOp>(arith::CmpIPredicate::ne, value,
                                    body.integer(source, 0));
  }
  if (isa<FloatType>(source) && isa<FloatType>(target)) {
    unsigned have = source.getIntOrFloatBitWidth();
    unsigned want = target.getIntOrFloatBitWidth();
    if (have < want)
      return body.make<arith::ExtFOp>(target, value);
    return have == want ? value : body.make<arith::TruncFOp>(target, value);
  }
  if (isa<FloatType>(source))
    return emitSaturating(body, value, target, to != ElementType::U8);
  if (isa<FloatType>(target)) {
    Type wide = target.getIntOrFloatBitWidth() < 32 ? body.builder.getF32Type()
                                                    : target;
    Value real = isUnsigned ? body.make<arith::UIToFPOp>(wide, value)
                            : body.make<arith::SIToFPOp>(wide, value);
    return wide == target ? real : body.make<arith::TruncFOp>(target, real);
  }
  unsigned have = source.getIntOrFloatBitWidth();
  unsigned want = target.getIntOrFloatBitWidth();
  if (have == want)
    return value;
  if (have > want)
    return body.make<arith::TruncIOp>(target, value);
  return isUnsigned ? body.make<arith::ExtUIOp>(target, value)
                    : body.make<arith::ExtSIOp>(target, value);
}

/// Elements stay known where the cast does not change their value.
static Scalar castKnown(const Scalar &scalar, ElementType to) {
  if (to == ElementType::Bool) {
    if (scalar.real)
      return ofBool(*scalar.real != 0);
    return scalar.integer->constant() ? ofBool(!scalar.integer->is(0))
                                      : Scalar();
  }
  if (isFloat(to)) {
    if (scalar.integer && !scalar.integer->constant())
      return Scalar();
    double value =
        scalar.real ? *scalar.real : double(*scalar.integer->constant());
    bool isExact = to == ElementType::F64 || to == ElementType::F32;
    return isExact ? Scalar::of(value) : Scalar();
  }
  if (!scalar.real)
    return scalar;
  bool isTame = std::abs(*scalar.real) < 1e9;
  return isTame ? Scalar::of(Extent(int64_t(*scalar.real))) : Scalar();
}

static LogicalResult castTo(Node &node, int64_t number) {
  Tensor &input = node.input(0);
  if (number < 0 || number > INT32_MAX || !isSupported(int32_t(number)))
    return node.error() << "a cast to "
                        << typeName(
                               int32_t(std::clamp<int64_t>(number, -1, 1000)))
                        << "; expected one of " << supportedTypeNames();
  auto to = ElementType(number);
  GraphBuilder &graph = node.graph;
  Type target = storageType(graph.ops, to);
  if (to == input.type)
    return node.give(input);
  if (!isFloat(input.type) && !isFloat(to) && to != ElementType::Bool &&
      input.form && input.type != ElementType::Bool && to == ElementType::I64) {
    Tensor result;
    result.type = to;
    result.shape = input.shape;
    result.form = input.form;
    result.known = input.known;
    result.isTracked = input.isTracked;
    return node.give(std::move(result));
  }
  if (input.isKnown()) {
    std::vector<Scalar> known;
    for (const Scalar &scalar : input.known)
      known.push_back(castKnown(scalar, to));
    Tensor result = graph.knownTensor(to, input.shape, std::move(known));
    if (result.isKnown())
      return node.give(std::move(result));
  }
  ElementType from = input.type;
  return node.give(graph.elementwise(
      &input, input.shape, to, target, [&](Body &body, ValueRange in) {
        return castElement(body, in[0], from, to, target);
      }));
}

static LogicalResult lowerCast(Node &node) {
  if (node.string("round_mode", "up") != "up")
    return node.unsupported() << "round_mode is set; expected none";
  return castTo(node, node.integer("to", 0));
}

static LogicalResult lowerCastLike(Node &node) {
  return castTo(node, int64_t(node.input(1).type));
}

//===- Activations ===//

/// 1 / (1 + e^-x).
static Value emitSigmoid(Body &body, Value x) {
  Value one = body.real(x.getType(), 1);
  Value e = body.make<math::ExpOp>(body.make<arith::NegFOp>(x));
  return body.make<arith::DivFOp>(one, body.make<arith::AddFOp>(one, e));
}

/// max(x, 0) + log(1 + e^-|x|), which does not overflow.
static Value emitSoftplus(Body &body, Value x) {
  Value zero = body.real(x.getType(), 0);
  Value size = body.make<math::AbsFOp>(x);
  Value e = body.make<math::ExpOp>(body.make<arith::NegFOp>(size));
  Value positive = body.make<arith::MaximumFOp>(x, zero);
  return body.make<arith::AddFOp>(positive, body.make<math::Log1pOp>(e));
}

/// positive(x) where x >= 0 (and for NaN), negative(x) below.
static Value emitBySign(Body &body, Value x, Value positive, Value negative) {
  Value isNegative = body.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x,
                                              body.real(x.getType(), 0));
  return body.make<arith::SelectOp>(isNegative, negative, positive);
}

static Value emitScaled(Body &body, Value x, double factor) {
  return body.make<arith::MulFOp>(x, body.real(x.getType(), factor));
}

static LogicalResult lowerLeaky(Node &node) {
  double alpha = node.real("alpha", 0.01);
  return lowerReal(node, [&](Body &body, ValueRange in) {
    return emitBySign(body, in[0], in[0], emitScaled(body, in[0], alpha));
  });
}

static LogicalResult lowerPRelu(Node &node) {
  if (failed(node.requireFloat(0)) || failed(node.requireSameTypes()))
    return failure();
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node), [](Body &body, ValueRange in) {
        return emitBySign(body, in[0], in[0],
                          body.make<arith::MulFOp>(in[0], in[1]));
      });
}

/// Elu, Selu and Celu: a (e^(x/c) - 1) below 0, all of it times g.
static LogicalResult lowerExponentialUnit(Node &node) {
  StringRef op = node.op();
  bool isSelu = op == "Selu", isCelu = op == "Celu";
  double alpha = node.real("alpha", isSelu ? 1.67326319217681884765625 : 1.0);
  double gamma = isSelu ? node.real("gamma", 1.05070102214813232421875) : 1.0;
  return lowerReal(node, [&](Body &body, ValueRange in) {
    Value x = in[0];
    Value inner = isCelu ? emitScaled(body, x, 1 / alpha) : x;
    Value below = emitScaled(body, body.make<math::ExpM1Op>(inner), alpha);
    Value value = emitBySign(body, x, x, below);
    return isSelu ? emitScaled(body, value, gamma) : value;
  });
}

/// max(0, min(1, a x + b)).
static Value emitHardSigmoid(Body &body, Value x, double alpha, double beta) {
  Type type = x.getType();
  Value line = body.make<arith::AddFOp>(emitScaled(body, x, alpha),
                                        body.real(type, beta));
  Value capped = body.make<arith::MinimumFOp>(line, body.real(type, 1));
  return body.make<arith::MaximumFOp>(capped, body.real(type, 0));
}

static LogicalResult lowerHardSigmoid(Node &node) {
  double alpha = node.real("alpha", 0.2), beta = node.real("beta", 0.5);
  return lowerReal(node, [&](Body &body, ValueRange in) {
    return emitHardSigmoid(body, in[0], alpha, beta);
  });
}

static LogicalResult lowerHardSwish(Node &node) {
  return lowerReal(node, [](Body &body, ValueRange in) -> Value {
    return body.make<arith::MulFOp>(in[0],
                                    emitHardSigmoid(body, in[0], 1.0 / 6, 0.5));
  });
}

static LogicalResult lowerThresholded(Node &node) {
  double alpha = node.real("alpha", 1.0);
  return lowerReal(node, [&](Body &body, ValueRange in) -> Value {
    Type type = in[0].getType();
    Value passes = body.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, in[0],
                                            body.real(type, alpha));
    return body.make<arith::SelectOp>(passes, in[0], body.real(type, 0));
  });
}

/// x/2 (1 + erf(x / √2)), or the approximation by tanh.
static LogicalResult lowerGelu(Node &node) {
  std::string how = node.string("approximate", "none");
  if (how != "none" && how != "tanh")
    return node.error() << "approximate is '" << how
                        << "'; expected 'none' or 'tanh'";
  return lowerReal(node, [&](Body &body, ValueRange in) -> Value {
    Value x = in[0];
    Value one = body.real(x.getType(), 1), inner;
    if (how == "none") {
      inner =
          body.make<math::ErfOp>(emitScaled(body, x, std::numbers::sqrt2 / 2));
    } else {
      Value cube = body.make<arith::MulFOp>(body.make<arith::MulFOp>(x, x), x);
      Value sum = body.make<arith::AddFOp>(x, emitScaled(body, cube, 0.044715));
      inner = body.make<math::TanhOp>(
          emitScaled(body, sum, std::sqrt(2 / std::numbers::pi)));
    }
    Value half = emitScaled(body, x, 0.5);
    return body.make<arith::MulFOp>(half, body.make<arith::AddFOp>(one, inner));
  });
}

static LogicalResult lowerMish(Node &node) {
  return lowerReal(node, [](Body &body, ValueRange in) -> Value {
    return body.make<arith::MulFOp>(
        in[0], body.make<math::TanhOp>(emitSoftplus(body, in[0])));
  });
}

static LogicalResult lowerShrink(Node &node) {
  double lambda = node.real("lambd", 0.5), bias = node.real("bias", 0);
  return lowerReal(node, [&](Body &body, ValueRange in) -> Value {
    Value x = in[0];
    Type type = x.getType();
    Value shift = body.real(type, bias), zero = body.real(type, 0);
    Value isHigh = body.make<arith::CmpFOp>(arith::CmpFPredicate::OGT, x,
                                            body.real(type, lambda));
    Value isLow = body.make<arith::CmpFOp>(arith::CmpFPredicate::OLT, x,
                                           body.real(type, -lambda));
    Value value = body.make<arith::SelectOp>(
        isLow, body.make<arith::AddFOp>(x, shift), zero);
    return body.make<arith::SelectOp>(
        isHigh, body.make<arith::SubFOp>(x, shift), value);
  });
}

static LogicalResult lowerRelu(Node &node) {
  if (failed(requireNumbers(node)))
    return failure();
  return lowerElementwise(
      node, node.allInputs(), typeOfFirst(node),
      [](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        if (isa<FloatType>(type))
          return body.make<arith::MaximumFOp>(in[0], body.real(type, 0));
        return body.make<arith::MaxSIOp>(in[0], body.integer(type, 0));
      });
}

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

ArrayRef<Operator> refold::onnx::elementwiseOperators() {
  using arith::CmpFPredicate, arith::CmpIPredicate;
  static const Operator rows[] = {
      {"Abs", 13, 20, "", 1, 1, lowerAbs},
      {"Add", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerRing(n, emitEither<arith::AddFOp, arith::AddIOp>,
                          foldBinary<&Extents::add, addReal>, &Extents::add,
                          false);
       }},
      {"And", 13, 20, "", 2, 2,
       [](Node &n) { return lowerLogic<arith::AndIOp>(n, foldAnd, true); }},
      {"Cast", 13, 20, "to:i saturate:i round_mode:s", 1, 1, lowerCast},
      {"CastLike", 15, 20, "saturate:i", 2, 2, lowerCastLike},
      {"Ceil", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::CeilOp>, foldReal<std::ceil>);
       }},
      {"Celu", 13, 20, "alpha:f", 1, 1, lowerExponentialUnit},
      {"Clip", 13, 20, "", 1, 3, lowerClip},
      {"Cos", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::CosOp>, foldReal<std::cos>);
       }},
      {"Div", 13, 20, "", 2, 2, lowerDiv},
      {"Elu", 13, 20, "alpha:f", 1, 1, lowerExponentialUnit},
      {"Equal", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OEQ, CmpIPredicate::eq,
                           CmpIPredicate::eq, foldEqual);
       }},
      {"Erf", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::ErfOp>, foldReal<std::erf>);
       }},
      {"Exp", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::ExpOp>, foldReal<std::exp>);
       }},
      {"Floor", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::FloorOp>, foldReal<std::floor>);
       }},
      {"Gelu", 20, 20, "approximate:s", 1, 1, lowerGelu},
      {"Greater", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OGT, CmpIPredicate::sgt,
                           CmpIPredicate::ugt, foldGreater);
       }},
      {"GreaterOrEqual", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OGE, CmpIPredicate::sge,
                           CmpIPredicate::uge, foldGreaterEqual);
       }},
      {"HardSigmoid", 13, 20, "alpha:f beta:f", 1, 1, lowerHardSigmoid},
      {"HardSwish", 14, 20, "", 1, 1, lowerHardSwish},
      {"IsInf", 13, 20, "detect_negative:i detect_positive:i", 1, 1,
       lowerIsInf},
      {"IsNaN", 13, 20, "", 1, 1, lowerIsNaN},
      {"LeakyRelu", 13, 20, "alpha:f", 1, 1, lowerLeaky},
      {"Less", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OLT, CmpIPredicate::slt,
                           CmpIPredicate::ult, foldLess);
       }},
      {"LessOrEqual", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerOrder(n, CmpFPredicate::OLE, CmpIPredicate::sle,
                           CmpIPredicate::ule, foldLessEqual);
       }},
      {"Log", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::LogOp>, foldReal<std::log>);
       }},
      {"Max", 13, 20, "", 1, kAnyNumber,
       [](Node &n) {
         return lowerVariadic(n, emitMax, foldBinary<&Extents::max, maxReal>);
       }},
      {"Mean", 13, 20, "", 1, kAnyNumber, lowerSum},
      {"Min", 13, 20, "", 1, kAnyNumber,
       [](Node &n) {
         return lowerVariadic(n, emitMin, foldBinary<&Extents::min, minReal>);
       }},
      {"Mish", 18, 20, "", 1, 1, lowerMish},
      {"Mod", 13, 20, "fmod:i", 2, 2, lowerMod},
      {"Mul", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerRing(n, emitEither<arith::MulFOp, arith::MulIOp>,
                          foldBinary<&Extents::mul, mulReal>, &Extents::mul,
                          true);
       }},
      {"Neg", 13, 20, "", 1, 1, lowerNeg},
      {"Not", 13, 20, "", 1, 1, lowerNot},
      {"Or", 13, 20, "", 2, 2,
       [](Node &n) { return lowerLogic<arith::OrIOp>(n, foldOr, false); }},
      {"PRelu", 13, 20, "", 2, 2, lowerPRelu},
      {"Pow", 13, 20, "", 2, 2, lowerPow},
      {"Reciprocal", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(
             n,
             [](Body &body, ValueRange in) -> Value {
               return body.make<arith::DivFOp>(body.real(in[0].getType(), 1),
                                               in[0]);
             },
             foldReciprocal);
       }},
      {"Relu", 13, 20, "", 1, 1, lowerRelu},
      {"Round", 13, 20, "", 1, 1,
       [](Node &n) { return lowerReal(n, emitReal<math::RoundEvenOp>); }},
      {"Selu", 13, 20, "alpha:f gamma:f", 1, 1, lowerExponentialUnit},
      {"Shrink", 13, 20, "bias:f lambd:f", 1, 1, lowerShrink},
      {"Sigmoid", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, [](Body &body, ValueRange in) {
           return emitSigmoid(body, in[0]);
         });
       }},
      {"Sign", 13, 20, "", 1, 1, lowerSign},
      {"Sin", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::SinOp>, foldReal<std::sin>);
       }},
      {"Softplus", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, [](Body &body, ValueRange in) {
           return emitSoftplus(body, in[0]);
         });
       }},
      {"Softsign", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, [](Body &body, ValueRange in) -> Value {
           Value size = body.make<math::AbsFOp>(in[0]);
           return body.make<arith::DivFOp>(
               in[0],
               body.make<arith::AddFOp>(body.real(size.getType(), 1), size));
         });
       }},
      {"Sqrt", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::SqrtOp>, foldReal<std::sqrt>);
       }},
      {"Sub", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerRing(n, emitEither<arith::SubFOp, arith::SubIOp>,
                          foldBinary<&Extents::sub, subReal>, &Extents::sub,
                          false);
       }},
      {"Sum", 13, 20, "", 1, kAnyNumber, lowerSum},
      {"Tanh", 13, 20, "", 1, 1,
       [](Node &n) {
         return lowerReal(n, emitReal<math::TanhOp>, foldReal<std::tanh>);
       }},
      {"ThresholdedRelu", 13, 20, "alpha:f", 1, 1, lowerThresholded},
      {"Where", 13, 20, "", 3, 3, lowerWhere},
      {"Xor", 13, 20, "", 2, 2,
       [](Node &n) {
         return lowerLogic<arith::XOrIOp>(n, foldXor, std::nullopt);
       }},
  };
  return rows;
}
