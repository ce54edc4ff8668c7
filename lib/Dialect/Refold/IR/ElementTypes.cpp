// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Dialect/Refold/IR/ElementTypes.h"
#include "mlir/IR/BuiltinTypes.h"

std::optional<refold::DType> refold::dtypeOf(mlir::Type type, bool isUnsigned) {
  if (type.isF64())
    return DType::F64;
  if (type.isF32())
    return DType::F32;
  if (type.isF16())
    return DType::F16;
  if (type.isBF16())
    return DType::BF16;
  if (type.isFloat8E4M3FN())
    return DType::F8E4M3;
  if (type.isFloat8E5M2())
    return DType::F8E5M2;
  if (type.isIndex() || type.isInteger(64))
    return DType::I64;
  if (type.isInteger(32))
    return DType::I32;
  if (type.isInteger(8))
    return isUnsigned || type.isUnsignedInteger() ? DType::U8 : DType::I8;
  if (type.isInteger(1))
    return DType::Bool;
  return std::nullopt;
}
