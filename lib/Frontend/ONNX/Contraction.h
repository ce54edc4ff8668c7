// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_CONTRACTION_H
#define REFOLD_LIB_FRONTEND_ONNX_CONTRACTION_H

#include "Node.h"

namespace refold::onnx {

/// The product of one or two numbers of one type.
mlir::Value emitProduct(Body &body, mlir::ValueRange in);

/// Σ_k a[..., m, k] * b[..., n, k]; batches broadcast.
mlir::FailureOr<Tensor> contract(Node &node, Tensor a, Tensor b);

/// The matrix product as numpy defines it: batches broadcast, a vector on the
/// left is a row, on the right a column, and its dimension goes from the
/// result. A failure has been reported.
mlir::FailureOr<Tensor> multiplyMatrices(Node &node, Tensor a, Tensor b);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_CONTRACTION_H
