// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_REDUCTIONS_H
#define REFOLD_LIB_FRONTEND_ONNX_REDUCTIONS_H

#include "GraphBuilder.h"

namespace refold::onnx {

mlir::Value emitSame(Body &body, mlir::ValueRange in);
mlir::Value emitSquare(Body &body, mlir::ValueRange in);

/// Combines fn(element) over the axes with a true flag.
Tensor reduceOver(GraphBuilder &graph, Tensor &input, llvm::ArrayRef<bool> axes,
                  bool keepDims, Combiner combiner, ElementFn fn);
/// The sum, then a division by the extent.
Tensor meanOver(GraphBuilder &graph, Tensor &input, llvm::ArrayRef<bool> axes,
                bool keepDims, ElementFn fn);
/// max + log Σ e^(x - max); -inf for a row of -inf only.
Tensor logSumExpOver(GraphBuilder &graph, Tensor &input,
                     llvm::ArrayRef<bool> axes, bool keepDims);
/// x - max - log Σ e^(x - max), over `input`'s own shape (Normalisation.cpp).
Tensor logSoftmaxOver(GraphBuilder &graph, Tensor &input,
                      llvm::ArrayRef<bool> axes);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_REDUCTIONS_H
