// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Session.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::reference;

bool reference::isBetterKey(long double a, long double b, bool largest) {
  // NaN above +inf: the first of the largest, the last of the smallest.
  if (std::isnan(a) || std::isnan(b))
    return largest ? std::isnan(a) && !std::isnan(b)
                   : !std::isnan(a) && std::isnan(b);
  return largest ? a > b : a < b;
}

/// The key of an element that is not there.
static Cell noKey(Type type, bool largest, bool isWide) {
  Cell cell{};
  if (isa<FloatType>(type)) {
    double infinity = std::numeric_limits<double>::infinity();
    setFloat(cell, isWide, largest ? -infinity : infinity);
    return cell;
  }
  int64_t highest = int64_t((uint64_t(1) << (widthOf(type) - 1)) - 1);
  cell.i = largest ? -highest - 1 : highest;
  return cell;
}

llvm::Expected<std::pair<RefTensor, RefTensor>>
reference::evaluateTopK(TopKOp op, const RefTensor &source, Session &session) {
  unsigned dim = op.getDim();
  int64_t k = op.getK(), n = source.shape()[dim];
  bool largest = op.getLargest();
  SmallVector<int64_t> shape(source.shape());
  shape[dim] = k;
  auto keys = session.make(source.isFloat(), shape, op.getLoc());
  if (!keys)
    return keys.takeError();
  auto positions = session.make(false, shape, op.getLoc());
  if (!positions)
    return positions.takeError();
  SmallVector<int64_t> outer(shape), at(shape.size(), 0);
  outer[dim] = 1;
  if (keys->numElements() == 0)
    return std::make_pair(*keys, *positions);
  if (llvm::Error error = session.charge(
          double(source.numElements()) * std::log2(double(n) + 2), op.getLoc()))
    return std::move(error);
  int64_t step = source.strides()[dim];
  bool isFloat = source.isFloat();
  std::vector<int64_t> order(n);
  do {
    int64_t from = 0, to = 0;
    for (unsigned d = 0; d < at.size(); ++d) {
      from += at[d] * source.strides()[d];
      to += at[d] * keys->strides()[d];
    }
    const Cell *row = source.data() + from;
    for (int64_t i = 0; i < n; ++i)
      order[i] = i;
    std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      Cell x = row[a * step], y = row[b * step];
      if (isFloat ? isBetterKey(source.read(x), source.read(y), largest)
                  : (largest ? x.i > y.i : x.i < y.i))
        return true;
      if (isFloat ? isBetterKey(source.read(y), source.read(x), largest)
                  : x.i != y.i)
        return false;
      return a < b;
    });
    for (int64_t r = 0; r < k; ++r) {
      int64_t where = to + r * keys->strides()[dim];
      bool exists = r < n;
      Type element =
          cast<ShapedType>(op.getSource().getType()).getElementType();
      keys->data()[where] = exists ? row[order[r] * step]
                                   : noKey(element, largest, session.isWide);
      positions->data()[where].i = exists ? order[r] : -1;
    }
  } while (nextSubscripts(at, outer));
  return std::make_pair(*keys, *positions);
}
