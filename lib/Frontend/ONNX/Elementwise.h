// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_ELEMENTWISE_H
#define REFOLD_LIB_FRONTEND_ONNX_ELEMENTWISE_H

#include "Scalars.h"

namespace refold::onnx {

/// The cast of ONNX: to nearest even between floats; from a float to an integer
/// it cuts off, saturates and makes NaN 0; to bool it is "not 0".
mlir::Value castElement(Body &body, mlir::Value value, ElementType from,
                        ElementType to, mlir::Type target);

/// A number within the range of a float8, infinities too; NaN stays NaN.
mlir::Value saturateToFloat8(Body &body, mlir::Value value, ElementType to);

/// The inputs broadcast, `emit` in the compute type; folded where they are
/// known.
mlir::LogicalResult lowerElementwise(Node &node,
                                     llvm::ArrayRef<Tensor *> inputs,
                                     ElementType type, ElementFn emit,
                                     FoldFn fold = nullptr);

/// One float in, one float out.
mlir::LogicalResult lowerReal(Node &node, ElementFn emit,
                              FoldFn fold = nullptr);

/// Failure with a message unless the inputs have one type, and not bool.
mlir::LogicalResult requireNumbers(Node &node);

inline ElementType typeOfFirst(Node &node) { return node.input(0).type; }
inline Scalar ofBool(bool value) { return Scalar::of(Extent(int64_t(value))); }

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_ELEMENTWISE_H
