// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_MOVEMENT_H
#define REFOLD_LIB_FRONTEND_ONNX_MOVEMENT_H

#include "Node.h"

namespace refold::onnx {

/// `size` elements along an axis: begin, begin + step, ... for a step below 0,
/// which a view cannot say.
Tensor reverse(Node &node, Tensor &tensor, unsigned axis, const Extent &begin,
               const Extent &size, const Extent &step);

/// One behind the other along the axis. Requires one rank and one type; a
/// failure has been reported.
mlir::FailureOr<Tensor> join(Node &node, llvm::ArrayRef<Tensor *> tensors,
                             unsigned axis);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_MOVEMENT_H
