// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_GATHERS_H
#define REFOLD_LIB_FRONTEND_ONNX_GATHERS_H

#include "Node.h"

namespace refold::onnx {

/// Failure with a message unless input i is of int32 or int64.
mlir::LogicalResult requireIndices(Node &node, unsigned i);

/// The elements of `data` at the positions, along the axis; positions that are
/// data are checked when the program runs. A failure has been reported.
mlir::FailureOr<Tensor> gather(Node &node, Tensor &data, Tensor &indices,
                               unsigned axis);

//===- Positions that are data --------------------------------------------//
/// cf.assert that every position is in [-extent, extent).
mlir::LogicalResult checkPositions(Node &node, Tensor &indices,
                                   const Extent &extent);
/// As an index; from the end where negative.
mlir::Value emitPosition(GraphBuilder &graph, Body &body, mlir::Value position,
                         const Extent &extent);

//===- Positions that are affine in the subscripts ------------------------//
/// The subscript that they run along, if they are offset + step * that one.
struct Walk {
  int along = -1; ///< -1: constant
  Extent offset, step = Extent(1);
};
std::optional<Walk> walkOf(Extents &extents, const Affine &part);
/// A negative position counts from the end; false: which it is is not known.
bool normalise(Extents &extents, Affine &part, const Extent &extent,
               llvm::ArrayRef<Extent> shape);
/// Positions known while importing must be inside, or be checked to be.
mlir::LogicalResult requireInside(Node &node, const Affine &part,
                                  const Extent &extent,
                                  llvm::ArrayRef<Extent> shape);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_GATHERS_H
