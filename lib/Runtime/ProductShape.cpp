// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProductShape.h"

#include "refold/Runtime/ProductBlocks.h"
#include <algorithm>

using namespace refold;

int64_t ProductShape::numBatches() const {
  int64_t count = 1;
  for (const BatchDim &dim : batch)
    count *= dim.size;
  return count;
}

/// Takes the dimension into the rows or columns, if memory runs on evenly.
static bool absorb(ProductShape &shape, const BatchDim &dim,
                   bool mayGrowColumns) {
  bool extendsRows = dim.rhsStride == 0 &&
                     dim.lhsStride == shape.m * shape.lhs.rowStride &&
                     dim.resultStride == shape.m * shape.result.rowStride;
  if (extendsRows) {
    shape.m *= dim.size;
    return true;
  }
  bool extendsCols = mayGrowColumns && dim.lhsStride == 0 &&
                     dim.rhsStride == shape.n * shape.rhs.colStride &&
                     dim.resultStride == shape.n * shape.result.colStride;
  if (extendsCols)
    shape.n *= dim.size;
  return extendsCols;
}

static void mergeBatches(ProductShape &shape, bool mayGrowColumns) {
  for (bool changed = true; changed;) {
    changed = false;
    for (size_t i = 0; i < shape.batch.size() && !changed; ++i) {
      changed = absorb(shape, shape.batch[i], mayGrowColumns);
      if (changed)
        shape.batch.erase(shape.batch.begin() + int64_t(i));
    }
  }
}

static int64_t roundUp(int64_t value, int64_t to) {
  return (value + to - 1) / to * to;
}

int64_t refold::rowBlockOf(int64_t rows, int64_t batches, bool isRhsConstant) {
  constexpr int64_t kWantedItems = 8; // keeps 2 to 8 cores busy
  batches = std::max<int64_t>(1, batches);
  int64_t wanted = (kWantedItems + batches - 1) / batches;
  int64_t least = isRhsConstant ? 32 : 64;
  int64_t most = isRhsConstant ? 128 : std::max<int64_t>(least, rows);
  int64_t block = roundUp((rows + wanted - 1) / wanted, 16);
  return std::clamp(block, least, most);
}

/// Blocks of rows. Columns are never cut: the library is fast only where a
/// block's rows lie next to each other in the result, and then one packed form
/// of the right side serves every m.
static void chooseBlocks(ProductShape &shape, bool isRhsConstant) {
  shape.rowBlock = rowBlockOf(shape.m, shape.numBatches(), isRhsConstant);
}

ProductShape refold::normaliseProduct(const View &lhs, const View &rhs,
                                      const View &result, bool isRhsConstant,
                                      bool mayGrowColumns) {
  ProductShape shape;
  shape.lhsType = lhs.dtype;
  shape.rhsType = rhs.dtype;
  shape.resultType = result.dtype;
  size_t numBatch = lhs.sizes.size() - 2;
  shape.m = lhs.sizes[numBatch];
  shape.k = lhs.sizes[numBatch + 1];
  shape.n = rhs.sizes[numBatch + 1];
  auto matrix = [&](const View &view) {
    return MatrixRef{view.byteOffset, view.strides[numBatch],
                     view.strides[numBatch + 1]};
  };
  shape.lhs = matrix(lhs);
  shape.rhs = matrix(rhs);
  shape.result = matrix(result);
  for (size_t i = 0; i < numBatch; ++i)
    if (result.sizes[i] != 1)
      shape.batch.push_back(
          {result.sizes[i], lhs.strides[i], rhs.strides[i], result.strides[i]});
  mergeBatches(shape, mayGrowColumns);

  if (shape.result.colStride != 1 && shape.n > 1 &&
      shape.result.rowStride == 1) {
    std::swap(shape.lhs, shape.rhs);
    std::swap(shape.lhsType, shape.rhsType);
    std::swap(shape.m, shape.n);
    for (MatrixRef *ref : {&shape.lhs, &shape.rhs, &shape.result})
      std::swap(ref->rowStride, ref->colStride);
    for (BatchDim &dim : shape.batch)
      std::swap(dim.lhsStride, dim.rhsStride);
    shape.isSwapped = true;
  }
  chooseBlocks(shape, isRhsConstant && !shape.isSwapped);
  return shape;
}

ProductItem refold::itemOf(const ProductShape &shape, int64_t item) {
  int64_t rowAt = item % shape.rowBlocks();
  item /= shape.rowBlocks();
  ProductItem where;
  where.firstRow = rowAt * shape.rowBlock;
  where.rows = std::min(shape.rowBlock, shape.m - where.firstRow);
  int64_t lhs = where.firstRow * shape.lhs.rowStride;
  int64_t rhs = 0;
  int64_t result = where.firstRow * shape.result.rowStride;
  for (size_t i = shape.batch.size(); i-- > 0;) {
    int64_t at = item % shape.batch[i].size;
    item /= shape.batch[i].size;
    lhs += at * shape.batch[i].lhsStride;
    rhs += at * shape.batch[i].rhsStride;
    result += at * shape.batch[i].resultStride;
  }
  where.lhsByte = shape.lhs.byteOffset + lhs * byteWidth(shape.lhsType);
  where.rhsByte = shape.rhs.byteOffset + rhs * byteWidth(shape.rhsType);
  where.resultByte =
      shape.result.byteOffset + result * byteWidth(shape.resultType);
  return where;
}
