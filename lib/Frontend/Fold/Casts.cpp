// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions between dtypes, as scalar code.
#include "Lowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;

namespace refold::fold {

Type elementType(DType dtype, MLIRContext *context) {
  switch (dtype) {
  case DType::F64:
    return Float64Type::get(context);
  case DType::F32:
    return Float32Type::get(context);
  case DType::F16:
    return Float16Type::get(context);
  case DType::BF16:
    return BFloat16Type::get(context);
  case DType::F8E4M3:
    return Float8E4M3FNType::get(context);
  case DType::F8E5M2:
    return Float8E5M2Type::get(context);
  case DType::I64:
    return IntegerType::get(context, 64);
  case DType::I32:
    return IntegerType::get(context, 32);
  case DType::I8:
  case DType::U8:
    return IntegerType::get(context, 8);
  case DType::Bool:
    return IntegerType::get(context, 1);
  }
  llvm_unreachable("unknown dtype");
}

Value constantOf(OpBuilder &builder, Location loc, DType dtype, double number) {
  if (dtype == DType::I64)
    return builder.create<arith::ConstantIndexOp>(loc, int64_t(number));
  Type type = elementType(dtype, builder.getContext());
  if (auto floatType = dyn_cast<FloatType>(type))
    return builder.create<arith::ConstantOp>(
        loc, builder.getFloatAttr(floatType, number));
  return builder.create<arith::ConstantOp>(
      loc, builder.getIntegerAttr(type, int64_t(number)));
}

Value stored(OpBuilder &builder, Location loc, Scalar scalar) {
  if (!scalar.value.getType().isIndex())
    return scalar.value;
  return builder.createOrFold<arith::IndexCastOp>(loc, builder.getI64Type(),
                                                  scalar.value);
}

static unsigned widthOf(Value value) {
  return value.getType().getIntOrFloatBitWidth();
}

static bool isUnsigned(DType dtype) {
  return dtype == DType::U8 || dtype == DType::Bool;
}

/// Between float types; the narrower result is rounded to nearest even.
static Value resize(OpBuilder &builder, Location loc, Value value, Type type) {
  if (value.getType() == type)
    return value;
  if (value.getType().getIntOrFloatBitWidth() < type.getIntOrFloatBitWidth())
    return builder.create<arith::ExtFOp>(loc, type, value);
  return builder.create<arith::TruncFOp>(loc, type, value);
}

static Value integerToReal(OpBuilder &builder, Location loc, Scalar from,
                           Type type) {
  Value value = stored(builder, loc, from);
  if (isUnsigned(from.dtype))
    return builder.create<arith::UIToFPOp>(loc, type, value);
  return builder.create<arith::SIToFPOp>(loc, type, value);
}

Value convert(OpBuilder &builder, Location loc, Scalar from, DType to) {
  if (from.dtype == to)
    return from.value;
  Type type = elementType(to, builder.getContext());
  if (isFloat(to))
    return isFloat(from.dtype) ? resize(builder, loc, from.value, type)
                               : integerToReal(builder, loc, from, type);
  // i8, u8 and bool to i32, all of them to i64.
  if (isUnsigned(from.dtype))
    return builder.create<arith::ExtUIOp>(loc, type, from.value);
  return builder.create<arith::ExtSIOp>(loc, type, from.value);
}

/// Smallest and largest value of an integer dtype. As doubles the largest i64
/// is rounded up to 2^63.
static std::pair<double, double> limitsOf(DType to) {
  switch (to) {
  case DType::U8:
    return {0.0, 255.0};
  case DType::I8:
    return {-128.0, 127.0};
  case DType::I32:
    return {-2147483648.0, 2147483647.0};
  default:
    return {-9223372036854775808.0, 9223372036854775807.0};
  }
}

static Value integerConstant(OpBuilder &builder, Location loc, Type type,
                             bool largest) {
  unsigned width = type.getIntOrFloatBitWidth();
  APInt value = largest ? APInt::getSignedMaxValue(width)
                        : APInt::getSignedMinValue(width);
  return builder.create<arith::ConstantOp>(loc,
                                           builder.getIntegerAttr(type, value));
}

static Value realToInteger(OpBuilder &builder, Location loc, Value value,
                           DType to) {
  auto real = cast<FloatType>(value.getType());
  Type type = elementType(to, builder.getContext());
  auto constant = [&](double number) -> Value {
    return builder.create<arith::ConstantOp>(
        loc, builder.getFloatAttr(real, number));
  };
  auto compare = [&](arith::CmpFPredicate predicate, Value a, Value b) {
    return builder.create<arith::CmpFOp>(loc, predicate, a, b).getResult();
  };
  auto select = [&](Value condition, Value a, Value b) -> Value {
    return builder.create<arith::SelectOp>(loc, condition, a, b);
  };
  auto [low, high] = limitsOf(to);
  Value rounded = builder.create<math::RoundEvenOp>(loc, value);
  Value isNan = compare(arith::CmpFPredicate::UNO, rounded, rounded);
  Value number = select(isNan, constant(0.0), rounded);
  bool isShort = to == DType::I8 || to == DType::U8;
  if (isShort || (to == DType::I32 && real.isF64())) {
    number = builder.create<arith::MaximumFOp>(loc, number, constant(low));
    number = builder.create<arith::MinimumFOp>(loc, number, constant(high));
    if (to == DType::U8)
      return builder.create<arith::FPToUIOp>(loc, type, number);
    return builder.create<arith::FPToSIOp>(loc, type, number);
  }
  // The largest integer is no `real`: the constant rounds to the power of two
  // above, so what is at or beyond a limit is chosen rather than converted.
  Value tooLow = compare(arith::CmpFPredicate::OLE, number, constant(low));
  Value tooHigh = compare(arith::CmpFPredicate::OGE, number, constant(high));
  number = select(tooLow, constant(0.0), number);
  number = select(tooHigh, constant(0.0), number);
  Value result = builder.create<arith::FPToSIOp>(loc, type, number);
  result = select(tooLow, integerConstant(builder, loc, type, false), result);
  return select(tooHigh, integerConstant(builder, loc, type, true), result);
}

static Value integerToInteger(OpBuilder &builder, Location loc, Scalar from,
                              DType to) {
  Value value = stored(builder, loc, from);
  Type type = elementType(to, builder.getContext());
  DType wide = widened(from.dtype);
  bool fits = to == DType::I64 || (to == DType::I32 && wide != DType::I64) ||
              from.dtype == to || from.dtype == DType::Bool;
  if (fits) {
    if (widthOf(value) == type.getIntOrFloatBitWidth())
      return value;
    if (isUnsigned(from.dtype))
      return builder.create<arith::ExtUIOp>(loc, type, value);
    return builder.create<arith::ExtSIOp>(loc, type, value);
  }
  if (wide == DType::I32)
    value = convert(builder, loc, {value, from.dtype}, DType::I32);
  Type source = value.getType();
  auto [low, high] = limitsOf(to);
  auto constant = [&](double number) -> Value {
    return builder.create<arith::ConstantOp>(
        loc, builder.getIntegerAttr(source, int64_t(number)));
  };
  value = builder.create<arith::MaxSIOp>(loc, value, constant(low));
  value = builder.create<arith::MinSIOp>(loc, value, constant(high));
  return builder.create<arith::TruncIOp>(loc, type, value);
}

static Value toBool(OpBuilder &builder, Location loc, Scalar from) {
  Type type = from.value.getType();
  if (isFloat(from.dtype)) {
    Value wide = convert(builder, loc, from, widened(from.dtype));
    Value zero = builder.create<arith::ConstantOp>(
        loc, builder.getFloatAttr(wide.getType(), 0.0));
    return builder.create<arith::CmpFOp>(loc, arith::CmpFPredicate::UNE, wide,
                                         zero);
  }
  Value zero =
      builder.create<arith::ConstantOp>(loc, builder.getIntegerAttr(type, 0));
  return builder.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ne,
                                       from.value, zero);
}

/// f8 saturates. NaN passes: both comparisons are false for it.
static Value saturateTo(OpBuilder &builder, Location loc, Value value,
                        double largest) {
  auto constant = [&](double number) -> Value {
    return builder.create<arith::ConstantOp>(
        loc, builder.getFloatAttr(cast<FloatType>(value.getType()), number));
  };
  value = builder.create<arith::MaximumFOp>(loc, value, constant(-largest));
  return builder.create<arith::MinimumFOp>(loc, value, constant(largest));
}

Value castTo(OpBuilder &builder, Location loc, Scalar from, DType to) {
  if (from.dtype == to)
    return from.value;
  if (to == DType::Bool)
    return toBool(builder, loc, from);
  if (isInteger(to)) {
    if (!isFloat(from.dtype))
      return integerToInteger(builder, loc, from, to);
    Value wide = convert(builder, loc, from, widened(from.dtype));
    return realToInteger(builder, loc, wide, to);
  }
  // To a real type: widen first, so that the one rounding is the cast's own.
  DType wide = isFloat(from.dtype) ? widened(from.dtype) : widened(to);
  Value value = convert(builder, loc, from, wide);
  if (to == DType::F8E4M3)
    value = saturateTo(builder, loc, value, 448.0);
  if (to == DType::F8E5M2)
    value = saturateTo(builder, loc, value, 57344.0);
  return resize(builder, loc, value, elementType(to, builder.getContext()));
}

} // namespace refold::fold
