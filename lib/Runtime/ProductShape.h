// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_PRODUCTSHAPE_H
#define REFOLD_LIB_RUNTIME_PRODUCTSHAPE_H

#include "refold/Runtime/Views.h"
#include <vector>

namespace refold {

/// A matrix operand: bytes before its first element, and its strides in
/// elements.
struct MatrixRef {
  int64_t byteOffset = 0;
  int64_t rowStride = 0, colStride = 0;
};

/// A loop around the matrices; a stride of 0 is a broadcast.
struct BatchDim {
  int64_t size = 1;
  int64_t lhsStride = 0, rhsStride = 0, resultStride = 0;
};

/// A product in its fewest dimensions, and how it is cut into items. All of it
/// follows from shapes, strides and which operand is constant.
struct ProductShape {
  DType lhsType, rhsType, resultType;
  int64_t m = 0, n = 0, k = 0;
  MatrixRef lhs, rhs, result;
  std::vector<BatchDim> batch;
  /// lhs and rhs have changed places, so that the result's rows are contiguous:
  /// a bias then belongs to the rows.
  bool isSwapped = false;
  int64_t rowBlock = 1;

  int64_t numBatches() const;
  int64_t rowBlocks() const { return (m + rowBlock - 1) / rowBlock; }
  int64_t numItems() const { return m && n ? numBatches() * rowBlocks() : 0; }
};

/// Where one item starts, in bytes from the operands' first elements, and how
/// large it is.
struct ProductItem {
  int64_t lhsByte, rhsByte, resultByte;
  int64_t firstRow, rows;
};

/// Merges batch dimensions into rows, columns or each other where the strides
/// allow, swaps the sides where only that makes the result contiguous, and
/// chooses blocks. Views as in `ProductStep`.
ProductShape normaliseProduct(const View &lhs, const View &rhs,
                              const View &result, bool isRhsConstant,
                              bool mayGrowColumns);

ProductItem itemOf(const ProductShape &shape, int64_t item);

} // namespace refold

#endif // REFOLD_LIB_RUNTIME_PRODUCTSHAPE_H
