// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_WINDOWS_H
#define REFOLD_LIB_FRONTEND_ONNX_WINDOWS_H

#include "Node.h"

namespace refold::onnx {

/// Strides, dilations and kernel extents beyond are no model of ours; products
/// of two of them stay in 64 bits.
constexpr int64_t kLargestWindow = int64_t(1) << 24;
constexpr unsigned kMostSpatial = 3;

/// How windows lie along one spatial dimension.
struct WindowAxis {
  int64_t taps = 1, stride = 1, dilation = 1;
  Extent low, high; ///< padding
  Extent in, out;
  /// Elements from the first to the last tap.
  int64_t span() const { return dilation * (taps - 1) + 1; }
};
using WindowAxes = llvm::SmallVector<WindowAxis, kMostSpatial>;

/// A list attribute of one number a spatial dimension (or `each`), within
/// [least, kLargestWindow]; absent: all `otherwise`.
mlir::FailureOr<llvm::SmallVector<int64_t>>
readWindowList(Node &node, llvm::StringRef name, unsigned count, int64_t least,
               int64_t otherwise);

/// Failure with a message unless input 0 has one to three spatial dimensions.
mlir::LogicalResult requireSpatial(Node &node);

/// What the weights say: (outputs, channels of a group, taps...), or as
/// `ConvTranspose` has them.
mlir::FailureOr<llvm::SmallVector<int64_t>> weightExtents(Node &node);

/// (n, c, ...) as a view (n, ..., c), and back.
Tensor withChannelsLast(GraphBuilder &graph, Tensor &tensor);
Tensor withChannelsSecond(GraphBuilder &graph, Tensor &tensor);

/// Padding of a tensor with the channels last, where an axis has any.
Tensor paddedForWindows(GraphBuilder &graph, Tensor tensor,
                        llvm::ArrayRef<WindowAxis> axes, double value);

/// out[n, p..., g, o] = sum of x[n, p * stride + t * dilation..., g, c] *
/// w[g, o, c, t...], padded already; `sizes` are (g * o, c, taps...).
mlir::FailureOr<Tensor> convolve(Node &node, Tensor input, Tensor weights,
                                 llvm::ArrayRef<WindowAxis> axes,
                                 llvm::ArrayRef<int64_t> sizes, int64_t groups);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_WINDOWS_H
