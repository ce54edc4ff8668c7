// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators that read elements at computed positions. Positions that are affine
// in the subscripts (ranges, masks of exporters) become slices and views; only
// positions that are data become gathers.
#include "Gathers.h"

#include "Operators.h"
#include "Scalars.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace refold::onnx;

LogicalResult refold::onnx::requireIndices(Node &node, unsigned i) {
  ElementType type = node.input(i).type;
  if (type == ElementType::I32 || type == ElementType::I64)
    return success();
  return node.error() << "the indices are of type " << typeName(type)
                      << "; expected int32 or int64";
}

/// Dimension k of `data` becomes dimension target[k] of the result; -1: it has
/// extent 1 and goes. What no dimension becomes repeats.
static FailureOr<Tensor> place(Node &node, Tensor data, ArrayRef<int> target,
                               ArrayRef<Extent> shape) {
  GraphBuilder &graph = node.graph;
  Shape kept;
  SmallVector<int> targets;
  for (auto [extent, to] : llvm::zip_equal(data.shape, target))
    if (to >= 0) {
      kept.push_back(extent);
      targets.push_back(to);
    }
  FailureOr<Tensor> view = graph.reshape(data, kept);
  if (failed(view))
    return failure();
  SmallVector<unsigned> order(targets.size());
  for (auto [k, slot] : llvm::enumerate(order))
    slot = k;
  llvm::sort(order,
             [&](unsigned a, unsigned b) { return targets[a] < targets[b]; });
  Tensor turned = graph.transpose(*view, order);
  Shape spread(shape.size(), Extent(1));
  for (unsigned from : order)
    spread[targets[from]] = kept[from];
  FailureOr<Tensor> spreadView = graph.reshape(turned, spread);
  if (failed(spreadView))
    return failure();
  return graph.broadcastTo(*spreadView, shape);
}

std::optional<Walk> refold::onnx::walkOf(Extents &extents, const Affine &part) {
  Walk walk;
  walk.offset = part.offset;
  for (auto [k, slope] : llvm::enumerate(part.coefficients)) {
    if (slope.is(0))
      continue;
    if (walk.along >= 0 || !extents.isAtMost(1, slope))
      return std::nullopt;
    walk.along = k;
    walk.step = slope;
  }
  return walk;
}

bool refold::onnx::normalise(Extents &extents, Affine &part,
                             const Extent &extent, ArrayRef<Extent> shape) {
  std::optional<Interval> range = rangeOf(extents, part, shape);
  if (!range)
    return false;
  if (extents.isAtMost(range->most, -1)) {
    part.offset = extents.add(part.offset, extent);
    range->least = extents.add(range->least, extent);
    range->most = extents.add(range->most, extent);
  }
  return extents.isNonNegative(range->least);
}

LogicalResult refold::onnx::requireInside(Node &node, const Affine &part,
                                          const Extent &extent,
                                          ArrayRef<Extent> shape) {
  Extents &extents = node.extents;
  std::optional<Interval> range = rangeOf(extents, part, shape);
  if (range &&
      succeeded(node.graph.requireAtMost(extents.add(range->most, 1), extent,
                                         "one past the last position")))
    return success();
  return node.badSizes({range ? range->most : extents.symbol(""), extent})
         << "positions up to " << (range ? extents.toString(range->most) : "?")
         << " of a dimension of " << extents.toString(extent)
         << "; expected them inside";
}

//===- Positions that are data ===//

LogicalResult refold::onnx::checkPositions(Node &node, Tensor &indices,
                                           const Extent &extent) {
  GraphBuilder &graph = node.graph;
  if (indices.isKnown()) {
    for (const Scalar &scalar : indices.known) {
      Extents &extents = graph.extents;
      const Extent &at = *scalar.integer;
      if (extents.isAtMost(extents.sub(0, extent), at) &&
          extents.isAtMost(extents.add(at, 1), extent))
        continue;
      if (at.constant() && extent.constant())
        return node.error()
               << "position " << *at.constant() << " of a dimension of "
               << *extent.constant() << "; expected one inside";
    }
  }
  SmallVector<bool> all(indices.rank(), true);
  Shape shape = indices.shape;
  Tensor inside = graph.elementwise(
      &indices, shape, ElementType::Bool,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value end = graph.extentIn(body, extent, type);
        Value least = body.make<arith::SubIOp>(body.integer(type, 0), end);
        Value isAbove =
            body.make<arith::CmpIOp>(arith::CmpIPredicate::sge, in[0], least);
        Value isBelow =
            body.make<arith::CmpIOp>(arith::CmpIPredicate::slt, in[0], end);
        return body.make<arith::AndIOp>(isAbove, isBelow);
      });
  Tensor every =
      graph.reduce(&inside, shape, all, false, Combiner::And, ElementType::Bool,
                   [](Body &, ValueRange in) { return in[0]; });
  graph.requireTrue(graph.valueOf(every),
                    "a position is outside a dimension of " +
                        graph.extents.toString(extent) +
                        "; expected it inside");
  return success();
}

Value refold::onnx::emitPosition(GraphBuilder &graph, Body &body,
                                 Value position, const Extent &extent) {
  Type indexType = body.builder.getIndexType();
  Value at = body.make<arith::IndexCastOp>(indexType, position);
  Value zero = body.integer(indexType, 0);
  Value isNegative =
      body.make<arith::CmpIOp>(arith::CmpIPredicate::slt, at, zero);
  Value size = graph.extentIn(body, extent, indexType);
  Value fromEnd = body.make<arith::AddIOp>(at, size);
  return body.make<arith::SelectOp>(isNegative, fromEnd, at);
}

/// data[subscripts(positions, own subscripts)], over `shape`. The positions are
/// read at the result's own subscripts `at`.
static Tensor gatherData(
    Node &node, Tensor &data, Tensor &positions, ArrayRef<AffineExpr> at,
    ArrayRef<Extent> shape,
    llvm::function_ref<SmallVector<Value>(Body &, Value, ValueRange)> fn) {
  GraphBuilder &graph = node.graph;
  Value source = graph.valueOf(data);
  Type element = getElementTypeOrSelf(source);
  Value init = graph.empty(shape, element);
  unsigned rank = shape.size();
  GraphBuilder::Access read = graph.access(positions, at);
  OpBuilder &ops = graph.ops;
  SmallVector<AffineMap> maps{
      AffineMap::get(rank, 0, read.exprs, ops.getContext()),
      ops.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = ops.create<linalg::GenericOp>(
      graph.loc, init.getType(), read.operand, init, maps, iterators,
      [&](OpBuilder &builder, Location loc, ValueRange args) {
        Body body{builder, loc};
        SmallVector<Value> subscripts;
        for (unsigned k = 0; k < rank; ++k)
          subscripts.push_back(builder.create<linalg::IndexOp>(loc, k));
        Value value = builder.create<tensor::ExtractOp>(
            loc, source, fn(body, args[0], subscripts));
        builder.create<linalg::YieldOp>(loc, value);
      });
  return graph.tensorOf(generic.getResult(0), data.type, shape);
}

//===- Gather ===//

/// Elements of a tracked tensor at constant positions.
static std::optional<Tensor> gatherKnown(Node &node, Tensor &data,
                                         Tensor &indices, unsigned axis,
                                         ArrayRef<Extent> shape) {
  auto count = smallCount(shape, kMostKnown);
  if (!data.isKnown() || !indices.isKnown() || !count ||
      !smallCount(data.shape, INT64_MAX))
    return std::nullopt;
  int64_t outer = 1, size = *data.shape[axis].constant(), inner = 1;
  for (unsigned k = 0; k < data.rank(); ++k)
    (k < axis ? outer : inner) *= k == axis ? 1 : *data.shape[k].constant();
  int64_t numIndices = *smallCount(indices.shape, kMostKnown);
  std::vector<Scalar> known;
  for (int64_t o = 0; o < outer; ++o)
    for (int64_t i = 0; i < numIndices; ++i) {
      const Scalar &index = indices.known[indices.known.size() == 1 ? 0 : i];
      if (!index.integer->constant())
        return std::nullopt;
      int64_t at = *index.integer->constant();
      at += at < 0 ? size : 0;
      if (at < 0 || at >= size)
        return std::nullopt;
      for (int64_t k = 0; k < inner; ++k)
        known.push_back(data.known.size() == 1
                            ? data.known.front()
                            : data.known[(o * size + at) * inner + k]);
    }
  return node.graph.knownTensor(data.type, shape, std::move(known));
}

/// b*length + l over a dimension of batch*length: the subscripts of a matrix
/// that was flattened. The order of the positions' dimensions, outermost first.
static std::optional<SmallVector<unsigned>>
delinearise(Extents &extents, const Affine &part, const Extent &extent,
            ArrayRef<Extent> shape) {
  if (!part.offset.is(0))
    return std::nullopt;
  SmallVector<unsigned> order;
  Extent stride(1);
  while (!extents.areEqual(stride, extent)) {
    std::optional<unsigned> next;
    for (unsigned k = 0; k < shape.size(); ++k)
      if (part.coefficients[k] == stride && !shape[k].is(1) &&
          !llvm::is_contained(order, k))
        next = k;
    if (!next)
      return std::nullopt;
    order.insert(order.begin(), *next);
    stride = extents.mul(stride, shape[*next]);
  }
  for (unsigned k = 0; k < shape.size(); ++k)
    if (!part.coefficients[k].is(0) && !shape[k].is(1) &&
        !llvm::is_contained(order, k))
      return std::nullopt;
  return order;
}

/// Affine positions as slices and views, if they can be.
static FailureOr<Tensor> gatherAffine(Node &node, Tensor &data, Tensor &indices,
                                      Affine part, unsigned axis,
                                      ArrayRef<Extent> shape) {
  Extents &extents = node.extents;
  GraphBuilder &graph = node.graph;
  Extent extent = data.shape[axis];
  if (!normalise(extents, part, extent, indices.shape))
    return failure();
  unsigned added = indices.rank();
  SmallVector<int> target;
  auto targetOf = [&](unsigned k) { return int(k < axis ? k : k + added - 1); };
  if (std::optional<Walk> walk = walkOf(extents, part)) {
    if (failed(requireInside(node, part, extent, indices.shape)))
      return failure();
    Extent size = walk->along < 0 ? Extent(1) : indices.shape[walk->along];
    bool isWhole = walk->offset.is(0) && walk->step.is(1) &&
                   extents.areEqual(size, extent);
    Tensor part = isWhole
                      ? data
                      : graph.slice(data, axis, walk->offset, size, walk->step);
    for (unsigned k = 0; k < data.rank(); ++k)
      target.push_back(k != axis         ? targetOf(k)
                       : walk->along < 0 ? -1
                                         : int(axis) + walk->along);
    return place(node, part, target, shape);
  }
  auto order = delinearise(extents, part, extent, indices.shape);
  if (!order)
    return failure();
  Shape split;
  for (unsigned k = 0; k < data.rank(); ++k) {
    if (k != axis) {
      split.push_back(data.shape[k]);
      target.push_back(targetOf(k));
      continue;
    }
    for (unsigned from : *order) {
      split.push_back(indices.shape[from]);
      target.push_back(int(axis + from));
    }
  }
  FailureOr<Tensor> view = graph.reshape(data, split);
  if (failed(view))
    return failure();
  return place(node, *view, target, shape);
}

FailureOr<Tensor> refold::onnx::gather(Node &node, Tensor &data,
                                       Tensor &indices, unsigned axis) {
  Shape shape(data.shape.begin(), data.shape.begin() + axis);
  shape.append(indices.shape.begin(), indices.shape.end());
  shape.append(data.shape.begin() + axis + 1, data.shape.end());
  const Extent &extent = data.shape[axis];
  if (auto known = gatherKnown(node, data, indices, axis, shape))
    return std::move(*known);
  if (auto form = formOver(node.extents, indices, indices.shape)) {
    FailureOr<Tensor> result =
        gatherAffine(node, data, indices, form->parts.front(), axis, shape);
    if (succeeded(result) || node.hasErrors())
      return result;
  }
  if (failed(checkPositions(node, indices, extent)))
    return failure();
  SmallVector<AffineExpr> at;
  for (unsigned k = 0; k < indices.rank(); ++k)
    at.push_back(node.graph.ops.getAffineDimExpr(axis + k));
  unsigned added = indices.rank();
  return gatherData(
      node, data, indices, at, shape,
      [&](Body &body, Value position, ValueRange subscripts) {
        SmallVector<Value> source(subscripts.begin(),
                                  subscripts.begin() + axis);
        source.push_back(emitPosition(node.graph, body, position, extent));
        source.append(subscripts.begin() + axis + added, subscripts.end());
        return source;
      });
}

static LogicalResult lowerGather(Node &node) {
  if (failed(requireIndices(node, 1)))
    return failure();
  auto axis = node.axisAttribute(0, node.input(0).rank());
  if (failed(axis))
    return failure();
  FailureOr<Tensor> result = gather(node, node.input(0), node.input(1), *axis);
  return failed(result) ? failure() : node.give(std::move(*result));
}

/// The indices have the result's shape; one subscript is replaced.
static LogicalResult lowerGatherElements(Node &node) {
  Tensor &data = node.input(0), &indices = node.input(1);
  if (failed(requireIndices(node, 1)))
    return failure();
  auto axis = node.axisAttribute(0, data.rank());
  if (failed(axis))
    return failure();
  if (indices.rank() != data.rank())
    return node.error() << "the indices have rank " << indices.rank()
                        << "; expected " << data.rank() << ", that of the data";
  Shape shape = indices.shape;
  for (unsigned k = 0; k < data.rank(); ++k)
    if (k != *axis && failed(node.graph.requireAtMost(
                          shape[k], data.shape[k],
                          "the extent of dimension " + std::to_string(k))))
      return node.error() << "the indices have shape "
                          << toString(node.extents, shape)
                          << "; expected one inside that of the data, "
                          << toString(node.extents, data.shape);
  const Extent &extent = data.shape[*axis];
  bool isInside = false;
  if (auto form = formOver(node.extents, indices, shape))
    if (auto range = rangeOf(node.extents, form->parts.front(), shape))
      isInside =
          node.extents.isNonNegative(range->least) &&
          node.extents.isAtMost(node.extents.add(range->most, 1), extent);
  if (!isInside && failed(checkPositions(node, indices, extent)))
    return failure();
  if (const Scalar *same = data.splat())
    return node.give(node.graph.knownTensor(data.type, shape, {*same}));
  SmallVector<AffineExpr> at;
  for (unsigned k = 0; k < indices.rank(); ++k)
    at.push_back(node.graph.ops.getAffineDimExpr(k));
  return node.give(gatherData(
      node, data, indices, at, shape,
      [&](Body &body, Value position, ValueRange subscripts) {
        SmallVector<Value> source(subscripts);
        source[*axis] = emitPosition(node.graph, body, position, extent);
        return source;
      }));
}

//===- GatherND ===//

/// Tuples of affine positions, each along another subscript or constant.
static FailureOr<Tensor> gatherTuples(Node &node, Tensor &data, Tensor &indices,
                                      unsigned length, ArrayRef<Extent> shape) {
  Extents &extents = node.extents;
  unsigned outer = indices.rank() - 1;
  ArrayRef<Affine> parts = indices.form->parts;
  if (parts.size() != length)
    return failure();
  ArrayRef<Extent> outerShape = ArrayRef(indices.shape).take_front(outer);
  Tensor view = data;
  SmallVector<int> target;
  for (unsigned p = 0; p < length; ++p) {
    Affine part = parts[p];
    part.coefficients.pop_back();
    std::optional<Walk> walk;
    if (normalise(extents, part, data.shape[p], outerShape))
      walk = walkOf(extents, part);
    if (!walk || (walk->along >= 0 && llvm::is_contained(target, walk->along)))
      return failure();
    if (failed(requireInside(node, part, data.shape[p], outerShape)))
      return failure();
    Extent size = walk->along < 0 ? Extent(1) : outerShape[walk->along];
    if (!walk->offset.is(0) || !walk->step.is(1) ||
        !extents.areEqual(size, data.shape[p]))
      view = node.graph.slice(view, p, walk->offset, size, walk->step);
    target.push_back(walk->along);
  }
  for (unsigned k = length; k < data.rank(); ++k)
    target.push_back(int(outer + k - length));
  return place(node, view, target, shape);
}

static LogicalResult lowerGatherND(Node &node) {
  Tensor &data = node.input(0), &indices = node.input(1);
  if (failed(requireIndices(node, 1)))
    return failure();
  int64_t batch = node.integer("batch_dims", 0);
  std::optional<int64_t> length;
  if (indices.rank() > 0)
    length = indices.shape.back().constant();
  if (!length || *length < 1 || batch < 0 || batch >= indices.rank() ||
      batch + *length > data.rank())
    return node.error()
           << "index tuples of shape " << toString(node.extents, indices.shape)
           << " after " << batch << " batch dimensions, into rank "
           << data.rank()
           << "; expected tuples of 1 to rank - batch_dims numbers";
  for (unsigned k = 0; k < batch; ++k)
    if (failed(node.graph.requireEqual(data.shape[k], indices.shape[k])))
      return node.error() << "batch dimension " << k << " differs; expected "
                          << node.extents.toString(data.shape[k]);
  unsigned outer = indices.rank() - 1;
  Shape shape(indices.shape.begin(), indices.shape.end() - 1);
  shape.append(data.shape.begin() + batch + *length, data.shape.end());
  if (!batch && indices.form) {
    FailureOr<Tensor> result =
        gatherTuples(node, data, indices, *length, shape);
    if (succeeded(result))
      return node.give(std::move(*result));
    if (node.hasErrors())
      return failure();
  }
  // One column of the tuples after the other, each checked against its extent.
  GraphBuilder &graph = node.graph;
  for (int64_t p = 0; p < *length; ++p) {
    Tensor column =
        graph.slice(indices, outer, Extent(p), Extent(1), Extent(1));
    if (failed(checkPositions(node, column, data.shape[batch + p])))
      return failure();
  }
  Value tuples = graph.valueOf(indices), source = graph.valueOf(data);
  Type element = getElementTypeOrSelf(source);
  return node.give(graph.generate(
      shape, data.type, element, [&](Body &body, ValueRange at) -> Value {
        SmallVector<Value> from(at.begin(), at.begin() + batch);
        for (int64_t p = 0; p < *length; ++p) {
          SmallVector<Value> place(at.begin(), at.begin() + outer);
          place.push_back(body.integer(body.builder.getIndexType(), p));
          Value position = body.make<tensor::ExtractOp>(tuples, place);
          from.push_back(
              emitPosition(graph, body, position, data.shape[batch + p]));
        }
        from.append(at.begin() + outer, at.end());
        return body.make<tensor::ExtractOp>(source, from);
      }));
}

ArrayRef<Operator> refold::onnx::gatherOperators() {
  static const Operator rows[] = {
      {"Gather", 13, kLastOpset, "axis:i", 2, 2, lowerGather},
      {"GatherElements", 13, kLastOpset, "axis:i", 2, 2, lowerGatherElements},
      {"GatherND", 13, kLastOpset, "batch_dims:i", 2, 2, lowerGatherND},
  };
  return rows;
}
