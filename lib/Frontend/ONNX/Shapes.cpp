// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators on shapes: they read sizes, or give a tensor another shape.
#include "Operators.h"
#include "Scalars.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

/// `start` and `end` count from the end where negative, and are clamped.
static LogicalResult lowerShape(Node &node) {
  Tensor &input = node.input(0);
  int64_t rank = input.rank();
  auto clamp = [&](int64_t value) {
    return std::clamp<int64_t>(value < 0 ? value + rank : value, 0, rank);
  };
  int64_t start = clamp(node.integer("start", 0));
  int64_t end = std::max(start, clamp(node.integer("end", rank)));
  std::vector<Scalar> known;
  for (int64_t k = start; k < end; ++k)
    known.push_back(Scalar::of(input.shape[k]));
  return node.give(node.graph.knownTensor(
      ElementType::I64, {Extent(end - start)}, std::move(known)));
}

static LogicalResult lowerSize(Node &node) {
  return node.give(node.graph.scalarTensor(
      ElementType::I64, Scalar::of(node.extents.product(node.input(0).shape))));
}

static LogicalResult lowerIdentity(Node &node) {
  return node.give(node.input(0));
}

/// Inference: nothing is dropped, and the mask is all true.
static LogicalResult lowerDropout(Node &node) {
  if (node.hasInput(2)) {
    const Scalar *training = node.input(2).splat();
    if (!training || !training->integer || !training->integer->is(0))
      return node.unsupported()
             << "training_mode is not a constant false; expected "
             << "inference";
  }
  if (node.wants(1) &&
      failed(node.give(1, node.graph.knownTensor(ElementType::Bool,
                                                 node.input(0).shape,
                                                 {Scalar::of(Extent(1))}))))
    return failure();
  return node.give(node.input(0));
}

static LogicalResult giveReshaped(Node &node, ArrayRef<Extent> shape) {
  Tensor &input = node.input(0);
  FailureOr<Tensor> result = node.graph.reshape(input, shape);
  if (failed(result))
    return node.error() << "shape " << toString(node.extents, input.shape)
                        << " cannot become " << toString(node.extents, shape)
                        << "; expected as many elements";
  return node.give(std::move(*result));
}

/// One dimension may be -1, the rest; 0 keeps a dimension unless allowzero.
static LogicalResult lowerReshape(Node &node) {
  Extents &extents = node.extents;
  Tensor &input = node.input(0);
  FailureOr<Shape> wanted = node.extentsOf(1, "the sizes");
  if (failed(wanted))
    return failure();
  bool keepsZero = node.integer("allowzero", 0) != 0;
  std::optional<size_t> open;
  Extent others(1), keptHere(1);
  Shape shape;
  for (auto [k, extent] : llvm::enumerate(*wanted)) {
    bool copies = extent.is(0) && !keepsZero;
    if (copies && k >= input.rank())
      return node.error() << "size 0 at position " << k
                          << " of a tensor of rank " << input.rank()
                          << "; expected a dimension to copy";
    if (extent.is(-1)) {
      if (open)
        return node.error() << "two sizes are -1; expected at most one";
      open = k;
      shape.push_back(1);
      continue;
    }
    shape.push_back(copies ? input.shape[k] : extent);
    if (!extents.isNonNegative(shape.back()))
      return node.badSizes(shape.back())
             << "size " << extents.toString(shape.back())
             << "; expected -1 or one that is at least 0";
    others = extents.mul(others, shape.back());
  }
  if (open) {
    Extent total = extents.product(input.shape);
    std::optional<Extent> rest = extents.divideExactly(total, others);
    if (!rest && others.constant() && total.constant())
      return node.error() << "shape " << toString(extents, input.shape)
                          << " has " << extents.toString(total)
                          << " elements; expected a multiple of "
                          << extents.toString(others);
    if (!rest && !extents.isAtMost(1, others)) {
      // 0 is possible as the size of an empty input; divide by at least 1.
      rest = extents.floorDiv(total, extents.max(others, 1));
    } else if (!rest) {
      rest = extents.floorDiv(total, others);
    }
    shape[*open] = *rest;
  }
  return giveReshaped(node, shape);
}

static LogicalResult lowerFlatten(Node &node) {
  Tensor &input = node.input(0);
  int64_t rank = input.rank(), axis = node.integer("axis", 1);
  if (axis < -rank || axis > rank)
    return node.error() << "axis " << axis << " of a tensor of rank " << rank
                        << "; expected " << -rank << " to " << rank;
  ArrayRef<Extent> shape = input.shape;
  size_t cut = axis < 0 ? axis + rank : axis;
  return giveReshaped(node, {node.extents.product(shape.take_front(cut)),
                             node.extents.product(shape.drop_front(cut))});
}

static LogicalResult lowerSqueeze(Node &node) {
  Tensor &input = node.input(0);
  SmallVector<bool> goes(input.rank(), false);
  if (node.hasInput(1)) {
    FailureOr<SmallVector<int64_t>> axes = node.integersOf(1, "the axes");
    if (failed(axes))
      return failure();
    auto flags = node.axisSet(*axes, input.rank());
    if (failed(flags))
      return failure();
    goes = *flags;
  } else {
    for (auto [k, extent] : llvm::enumerate(input.shape))
      goes[k] = extent.is(1);
  }
  Shape shape;
  for (auto [k, extent] : llvm::enumerate(input.shape)) {
    if (!goes[k])
      shape.push_back(extent);
    else if (failed(node.graph.requireEqual(extent, 1)))
      return node.error() << "dimension " << k << " is "
                          << node.extents.toString(extent) << "; expected 1";
  }
  return giveReshaped(node, shape);
}

static LogicalResult lowerUnsqueeze(Node &node) {
  Tensor &input = node.input(0);
  FailureOr<SmallVector<int64_t>> axes = node.integersOf(1, "the axes");
  if (failed(axes))
    return failure();
  auto isNew = node.axisSet(*axes, input.rank() + axes->size());
  if (failed(isNew))
    return failure();
  Shape shape;
  size_t next = 0;
  for (bool isOne : *isNew)
    shape.push_back(isOne ? Extent(1) : input.shape[next++]);
  return giveReshaped(node, shape);
}

/// Both ways: where the wanted size is 1 the input's stays.
static LogicalResult lowerExpand(Node &node) {
  FailureOr<Shape> wanted = node.extentsOf(1, "the sizes");
  if (failed(wanted))
    return failure();
  for (const Extent &extent : *wanted)
    if (!node.extents.isNonNegative(extent))
      return node.badSizes(extent) << "size " << node.extents.toString(extent)
                                   << "; expected one that is at least 0";
  Tensor like;
  like.shape = *wanted;
  FailureOr<Shape> shape = node.broadcast({&node.input(0), &like});
  if (failed(shape))
    return failure();
  return node.give(node.graph.broadcastTo(node.input(0), *shape));
}

/// start, start + delta, ... below limit.
static LogicalResult lowerRange(Node &node) {
  Extents &extents = node.extents;
  if (failed(node.requireSameTypes()))
    return failure();
  for (unsigned i = 0; i < 3; ++i)
    if (node.input(i).rank() != 0 || !node.input(i).isKnown())
      return node.unsupported()
             << "input " << i << " is no scalar that is known; "
             << "expected constants or arithmetic on shapes";
  ElementType type = node.input(0).type;
  if (type == ElementType::Bool)
    return node.error() << "a range of bool; expected numbers";
  Scalar start = node.input(0).known[0], limit = node.input(1).known[0],
         delta = node.input(2).known[0];
  if (start.real) {
    double count = std::ceil((*limit.real - *start.real) / *delta.real);
    if (!(count <= double(kLargestExtent)))
      return (std::isfinite(count) ? node.beyondLimit() : node.error())
             << "a range of " << count
             << " elements; expected a number of them up to 2^40";
    auto size = int64_t(std::max(count, 0.0));
    if (size > kMostKnown)
      return node.beyondLimit()
             << "a range of " << size << " floats; expected at most "
             << kMostKnown << " (cast one of integers)";
    std::vector<Scalar> known;
    for (int64_t i = 0; i < size; ++i)
      known.push_back(Scalar::of(*start.real + double(i) * *delta.real));
    return node.give(
        node.graph.knownTensor(type, {Extent(size)}, std::move(known)));
  }
  bool isUp = extents.isAtMost(1, *delta.integer);
  if (!isUp && !extents.isAtMost(*delta.integer, -1))
    return node.unsupported()
           << "the step is " << extents.toString(*delta.integer)
           << "; expected one whose sign is known";
  Extent span = isUp ? extents.sub(*limit.integer, *start.integer)
                     : extents.sub(*start.integer, *limit.integer);
  Extent step = isUp ? *delta.integer : extents.sub(0, *delta.integer);
  Tensor result;
  result.type = type;
  result.shape = {extents.ceilDiv(extents.max(span, 0), step)};
  result.form = IndexForm{{Affine{*start.integer, {*delta.integer}}}};
  if (auto count = smallCount(result.shape, kMostKnown)) {
    result.isTracked = true;
    for (int64_t i = 0; i < *count; ++i)
      result.known.push_back(Scalar::of(
          extents.add(*start.integer, extents.mul(*delta.integer, Extent(i)))));
  }
  return node.give(std::move(result));
}

ArrayRef<Operator> refold::onnx::shapeOperators() {
  static const Operator rows[] = {
      {"Dropout", 13, kLastOpset, "seed:i", 1, 3, lowerDropout},
      {"Expand", 13, kLastOpset, "", 2, 2, lowerExpand},
      {"Flatten", 13, kLastOpset, "axis:i", 1, 1, lowerFlatten},
      {"Identity", 13, kLastOpset, "", 1, 1, lowerIdentity},
      {"Range", 13, kLastOpset, "", 3, 3, lowerRange},
      {"Reshape", 13, kLastOpset, "allowzero:i", 2, 2, lowerReshape},
      {"Shape", 13, kLastOpset, "start:i end:i", 1, 1, lowerShape},
      {"Size", 13, kLastOpset, "", 1, 1, lowerSize},
      {"Squeeze", 13, kLastOpset, "", 1, 2, lowerSqueeze},
      {"Unsqueeze", 13, kLastOpset, "", 2, 2, lowerUnsqueeze},
  };
  return rows;
}
