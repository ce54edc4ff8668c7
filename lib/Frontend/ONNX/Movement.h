// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_MOVEMENT_H
#define REFOLD_LIB_FRONTEND_ONNX_MOVEMENT_H

#include "Node.h"

namespace refold::onnx {

/// `size` elements along an axis: begin, begin + step, ... for a step below 0,
/// which a view cannot say.
Tensor reverse(Node &node, Tensor &tensor, unsigned axis, const Extent &begin,
               const Extent &size, const Extent &step);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_MOVEMENT_H
