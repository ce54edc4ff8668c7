// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_SCALARS_H
#define REFOLD_LIB_FRONTEND_ONNX_SCALARS_H

#include "Node.h"

namespace refold::onnx {

/// What an operator makes of known elements; an unknown Scalar where it cannot
/// say. Only called with known ones.
using FoldFn = Scalar (*)(Extents &extents, llvm::ArrayRef<Scalar> inputs);

/// The result if every element of it is known; floats are rounded to the type
/// that the graph computes in.
std::optional<Tensor> foldElementwise(Node &node,
                                      llvm::ArrayRef<Tensor *> inputs,
                                      llvm::ArrayRef<Extent> shape,
                                      ElementType type, FoldFn fold);

/// The index form of a tensor over `shape` that it broadcasts to, if it has
/// one; known splats have.
std::optional<IndexForm> formOver(Extents &extents, const Tensor &tensor,
                                  llvm::ArrayRef<Extent> shape);

/// The form of an integer tensor of known elements, if they follow one.
std::optional<IndexForm> fitForm(llvm::ArrayRef<int64_t> elements,
                                 llvm::ArrayRef<Extent> shape);

/// Bounds over all subscripts; nothing where a slope's sign is not known.
struct Interval {
  Extent least, most;
};
std::optional<Interval> rangeOf(Extents &extents, const Affine &affine,
                                llvm::ArrayRef<Extent> shape);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_SCALARS_H
