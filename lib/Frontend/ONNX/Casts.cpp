// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions between element types.
#include "Elementwise.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

/// Cut off towards zero, saturated; NaN is 0.
static Value emitSaturating(Body &body, Value value, Type target,
                            bool isSigned) {
  unsigned width = target.getIntOrFloatBitWidth();
  Type type = value.getType();
  double low = isSigned ? -std::ldexp(1.0, int(width) - 1) : 0.0;
  double end = std::ldexp(1.0, int(width) - (isSigned ? 1 : 0));
  auto compare = [&](arith::CmpFPredicate how, Value a, Value b) -> Value {
    return body.make<arith::CmpFOp>(how, a, b);
  };
  Value zero = body.real(type, 0), least = body.real(type, low);
  Value number = body.make<arith::SelectOp>(
      compare(arith::CmpFPredicate::UNO, value, value), zero, value);
  auto convert = [&](Value real) -> Value {
    return isSigned ? body.make<arith::FPToSIOp>(target, real)
                    : body.make<arith::FPToUIOp>(target, real);
  };
  // The largest number is one of the float type, too: cut off there.
  if (width < cast<FloatType>(type).getFPMantissaWidth()) {
    number = body.make<arith::MaximumFOp>(number, least);
    return convert(
        body.make<arith::MinimumFOp>(number, body.real(type, end - 1)));
  }
  APInt most =
      isSigned ? APInt::getSignedMaxValue(width) : APInt::getMaxValue(width);
  APInt fewest =
      isSigned ? APInt::getSignedMinValue(width) : APInt::getZero(width);
  auto constant = [&](const APInt &whole) -> Value {
    return body.make<arith::ConstantOp>(IntegerAttr::get(target, whole));
  };
  Value isLow = compare(arith::CmpFPredicate::OLE, number, least);
  Value isHigh =
      compare(arith::CmpFPredicate::OGE, number, body.real(type, end));
  number = body.make<arith::SelectOp>(isLow, zero, number);
  number = body.make<arith::SelectOp>(isHigh, zero, number);
  Value whole =
      body.make<arith::SelectOp>(isLow, constant(fewest), convert(number));
  return body.make<arith::SelectOp>(isHigh, constant(most), whole);
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

Value refold::onnx::saturateToFloat8(Body &body, Value value, ElementType to) {
  double most = to == ElementType::F8E4M3FN ? 448 : 57344;
  Type type = value.getType();
  Value raised = body.make<arith::MaximumFOp>(value, body.real(type, -most));
  return body.make<arith::MinimumFOp>(raised, body.real(type, most));
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
    return (isDefined(number) ? node.unsupported() : node.error())
           << "a cast to "
           << typeName(int32_t(std::clamp<int64_t>(number, -1, 1000)))
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
  bool saturates = (to == ElementType::F8E4M3FN || to == ElementType::F8E5M2) &&
                   node.integer("saturate", 1) != 0 && isFloat(from);
  return node.give(graph.elementwise(
      &input, input.shape, to, target, [&](Body &body, ValueRange in) {
        Value value = saturates ? saturateToFloat8(body, in[0], to) : in[0];
        return castElement(body, value, from, to, target);
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

ArrayRef<Operator> refold::onnx::castOperators() {
  static const Operator rows[] = {
      {"Cast", 13, kLastOpset, "to:i saturate:i round_mode:s", 1, 1, lowerCast},
      {"CastLike", 15, kLastOpset, "saturate:i", 2, 2, lowerCastLike},
  };
  return rows;
}
