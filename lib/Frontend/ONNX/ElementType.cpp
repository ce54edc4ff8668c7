// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ElementType.h"
#include "llvm/Support/ErrorHandling.h"

using namespace refold::onnx;

namespace {
enum class Class : uint8_t { None, Float, Integer };

/// What is known of a type; its place in the table is its number in
/// TensorProto.DataType. A type without a class is one that is not read here.
struct TypeInfo {
  const char *name;
  Class kind = Class::None;
  unsigned bytes = 0;
  mlir::Type (*storage)(mlir::Builder &) = nullptr;
};

template <typename T, T (mlir::Builder::*get)()>
mlir::Type make(mlir::Builder &builder) {
  return (builder.*get)();
}
template <unsigned bits> mlir::Type makeInteger(mlir::Builder &builder) {
  return builder.getIntegerType(bits);
}
} // namespace

static constexpr TypeInfo kTypes[] = {
    {"undefined"},
    {"float", Class::Float, 4,
     make<mlir::FloatType, &mlir::Builder::getF32Type>},
    {"uint8", Class::Integer, 1, makeInteger<8>},
    {"int8", Class::Integer, 1, makeInteger<8>},
    {"uint16"},
    {"int16"},
    {"int32", Class::Integer, 4, makeInteger<32>},
    {"int64", Class::Integer, 8, makeInteger<64>},
    {"string"},
    {"bool", Class::Integer, 1, makeInteger<1>},
    {"float16", Class::Float, 2,
     make<mlir::FloatType, &mlir::Builder::getF16Type>},
    {"double", Class::Float, 8,
     make<mlir::FloatType, &mlir::Builder::getF64Type>},
    {"uint32"},
    {"uint64"},
    {"complex64"},
    {"complex128"},
    {"bfloat16", Class::Float, 2,
     make<mlir::FloatType, &mlir::Builder::getBF16Type>},
    {"float8e4m3fn", Class::Float, 1,
     make<mlir::FloatType, &mlir::Builder::getFloat8E4M3FNType>},
    {"float8e4m3fnuz"},
    {"float8e5m2", Class::Float, 1,
     make<mlir::FloatType, &mlir::Builder::getFloat8E5M2Type>},
    {"float8e5m2fnuz"},
    {"uint4"},
    {"int4"},
    {"float4e2m1"},
    {"float8e8m0"},
    {"uint2"},
    {"int2"},
};

static const TypeInfo *infoOf(int64_t number) {
  bool isKnown = number >= 0 && number < int64_t(std::size(kTypes));
  return isKnown ? &kTypes[number] : nullptr;
}

/// Requires a type that is read here.
static const TypeInfo &infoOf(ElementType type) {
  const TypeInfo *info = infoOf(int64_t(type));
  if (!info || info->kind == Class::None)
    llvm_unreachable("a value of a type that is not read was let in");
  return *info;
}

bool refold::onnx::isSupported(int32_t number) {
  const TypeInfo *info = infoOf(number);
  return info && info->kind != Class::None;
}

bool refold::onnx::isDefined(int64_t number) {
  return infoOf(number) && number != int64_t(ElementType::Undefined);
}

std::string refold::onnx::typeName(int32_t number) {
  const TypeInfo *info = infoOf(number);
  return info ? info->name : "type " + std::to_string(number);
}

std::string refold::onnx::supportedTypeNames() {
  std::string names;
  for (const TypeInfo &info : kTypes)
    if (info.kind != Class::None)
      names += (names.empty() ? "" : ", ") + std::string(info.name);
  return names;
}

bool refold::onnx::isFloat(ElementType type) {
  const TypeInfo *info = infoOf(int64_t(type));
  return info && info->kind == Class::Float;
}

unsigned refold::onnx::byteWidth(ElementType type) {
  return infoOf(type).bytes;
}

mlir::Type refold::onnx::storageType(mlir::Builder &builder, ElementType type) {
  return infoOf(type).storage(builder);
}

mlir::Type refold::onnx::computeType(mlir::Builder &builder, ElementType type) {
  if (isFloat(type) && type != ElementType::F64)
    return builder.getF32Type();
  return storageType(builder, type);
}
