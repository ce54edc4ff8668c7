// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_ELEMENTTYPE_H
#define REFOLD_LIB_FRONTEND_ONNX_ELEMENTTYPE_H

#include "mlir/IR/Builders.h"
#include <cstdint>
#include <string>

namespace refold::onnx {

/// Element types by the numbers of TensorProto.DataType. Numbers, since files
/// use newer ones than the onnx.proto that this was built with.
enum class ElementType : int32_t {
  Undefined = 0,
  F32 = 1,
  U8 = 2,
  I8 = 3,
  I32 = 6,
  I64 = 7,
  Bool = 9,
  F16 = 10,
  F64 = 11,
  BF16 = 16,
  F8E4M3FN = 17,
  F8E5M2 = 19,
};

/// May a value of this type be computed with here?
bool isSupported(int32_t number);
/// Does the ONNX specification know a type of this number?
bool isDefined(int64_t number);
/// "float16", as the ONNX specification spells it; "type 99" where unknown.
std::string typeName(int32_t number);
inline std::string typeName(ElementType type) {
  return typeName(int32_t(type));
}
/// "float, double, ...": every supported type, for messages.
std::string supportedTypeNames();

bool isFloat(ElementType type);
inline bool isInteger(ElementType type) {
  return !isFloat(type) && type != ElementType::Bool;
}
/// Bytes of one element in a file.
unsigned byteWidth(ElementType type);

/// As it lies in memory. u8 is i8 here: signless, as arith wants it.
mlir::Type storageType(mlir::Builder &builder, ElementType type);
/// As it is computed with: f32 for the short floats, itself otherwise.
mlir::Type computeType(mlir::Builder &builder, ElementType type);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_ELEMENTTYPE_H
