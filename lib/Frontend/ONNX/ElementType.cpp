// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ElementType.h"
#include "llvm/Support/ErrorHandling.h"

using namespace refold::onnx;

// Position = number in TensorProto.DataType.
static constexpr const char *kNames[] = {
    "undefined",      "float",      "uint8",
    "int8",           "uint16",     "int16",
    "int32",          "int64",      "string",
    "bool",           "float16",    "double",
    "uint32",         "uint64",     "complex64",
    "complex128",     "bfloat16",   "float8e4m3fn",
    "float8e4m3fnuz", "float8e5m2", "float8e5m2fnuz",
    "uint4",          "int4",       "float4e2m1",
    "float8e8m0",     "uint2",      "int2"};

bool refold::onnx::isSupported(int32_t number) {
  switch (ElementType(number)) {
  case ElementType::F32:
  case ElementType::U8:
  case ElementType::I8:
  case ElementType::I32:
  case ElementType::I64:
  case ElementType::Bool:
  case ElementType::F16:
  case ElementType::F64:
  case ElementType::BF16:
  case ElementType::F8E4M3FN:
  case ElementType::F8E5M2:
    return true;
  case ElementType::Undefined:
    return false;
  }
  return false;
}

bool refold::onnx::isDefined(int64_t number) {
  return number > int64_t(ElementType::Undefined) &&
         number < int64_t(std::size(kNames));
}

std::string refold::onnx::typeName(int32_t number) {
  if (number < 0 || number >= int32_t(std::size(kNames)))
    return "type " + std::to_string(number);
  return kNames[number];
}

std::string refold::onnx::supportedTypeNames() {
  std::string names;
  for (int32_t number = 0; number < int32_t(std::size(kNames)); ++number)
    if (isSupported(number))
      names += (names.empty() ? "" : ", ") + typeName(number);
  return names;
}

bool refold::onnx::isFloat(ElementType type) {
  switch (type) {
  case ElementType::F32:
  case ElementType::F16:
  case ElementType::F64:
  case ElementType::BF16:
  case ElementType::F8E4M3FN:
  case ElementType::F8E5M2:
    return true;
  default:
    return false;
  }
}

unsigned refold::onnx::byteWidth(ElementType type) {
  switch (type) {
  case ElementType::F64:
  case ElementType::I64:
    return 8;
  case ElementType::F32:
  case ElementType::I32:
    return 4;
  case ElementType::F16:
  case ElementType::BF16:
    return 2;
  default:
    return 1;
  }
}

mlir::Type refold::onnx::storageType(mlir::Builder &builder, ElementType type) {
  switch (type) {
  case ElementType::F64:
    return builder.getF64Type();
  case ElementType::F32:
    return builder.getF32Type();
  case ElementType::F16:
    return builder.getF16Type();
  case ElementType::BF16:
    return builder.getBF16Type();
  case ElementType::F8E4M3FN:
    return builder.getFloat8E4M3FNType();
  case ElementType::F8E5M2:
    return builder.getFloat8E5M2Type();
  case ElementType::I64:
    return builder.getI64Type();
  case ElementType::I32:
    return builder.getI32Type();
  case ElementType::I8:
  case ElementType::U8:
    return builder.getI8Type();
  case ElementType::Bool:
    return builder.getI1Type();
  case ElementType::Undefined:
    break;
  }
  llvm_unreachable("a value of an undefined type was let in");
}

mlir::Type refold::onnx::computeType(mlir::Builder &builder, ElementType type) {
  if (isFloat(type) && type != ElementType::F64)
    return builder.getF32Type();
  return storageType(builder, type);
}
