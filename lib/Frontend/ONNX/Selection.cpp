// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators that select the best elements of a row.
#include "Elementwise.h"
#include "Movement.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::onnx;

// Ordered lists are kept in registers or on the stack.
static constexpr int64_t kMostSelected = 1024;

/// The k best along an axis: keys, and their positions as int64.
static std::pair<Tensor, Tensor> select(Node &node, Tensor keys, unsigned axis,
                                        int64_t k, bool takesLargest) {
  GraphBuilder &graph = node.graph;
  // Keys are floats: f64 holds every int32.
  ElementType type = keys.type;
  auto cast = [&](Tensor &from, ElementType to) {
    ElementType before = from.type;
    return graph.elementwise(&from, from.shape, to,
                             [&](Body &body, ValueRange in) {
                               return castElement(body, in[0], before, to,
                                                  computeType(graph.ops, to));
                             });
  };
  if (!isFloat(type))
    keys = cast(keys, ElementType::F64);
  Value source = graph.valueOf(keys);
  Shape shape = keys.shape;
  shape[axis] = Extent(k);
  auto best = graph.ops.create<TopKOp>(
      graph.loc, graph.typeOf(shape, getElementTypeOrSelf(source)),
      graph.typeOf(shape, graph.ops.getI32Type()), source, uint64_t(axis),
      uint64_t(k), takesLargest);
  Tensor values = graph.tensorOf(best.getKeys(), keys.type, shape);
  Tensor places = graph.tensorOf(best.getPositions(), ElementType::I32, shape);
  return {isFloat(type) ? values : cast(values, type),
          cast(places, ElementType::I64)};
}

static LogicalResult requireOrdered(Node &node) {
  ElementType type = node.input(0).type;
  if (isFloat(type) || type == ElementType::I32 || type == ElementType::I8)
    return success();
  return node.unsupported() << "input 0 is of type " << typeName(type)
                            << "; expected floats, int32 or int8";
}

static LogicalResult lowerTopK(Node &node) {
  Tensor &input = node.input(0);
  auto axis = node.axisAttribute(-1, input.rank());
  auto count = node.integersOf(1, "the number of elements");
  if (failed(axis) || failed(count) || failed(requireOrdered(node)))
    return failure();
  if (count->size() != 1 || count->front() < 1)
    return node.error() << "K is not one number of at least 1; expected that";
  int64_t k = count->front();
  if (k > kMostSelected)
    return node.beyondLimit()
           << "K is " << k << "; expected at most " << kMostSelected;
  if (failed(node.graph.requireAtMost(Extent(k), input.shape[*axis], "K")))
    return node.error() << "K is " << k << " of a dimension of "
                        << node.extents.toString(input.shape[*axis])
                        << "; expected at most all";
  auto [keys, positions] =
      select(node, input, *axis, k, node.integer("largest", 1) != 0);
  if (failed(node.give(0, keys)))
    return failure();
  return node.give(1, positions);
}

/// last - position; -1, of an empty axis, stays.
static Tensor fromEnd(Node &node, Tensor &positions, const Extent &last) {
  GraphBuilder &graph = node.graph;
  return graph.elementwise(
      &positions, positions.shape, positions.type,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value isNone = body.make<arith::CmpIOp>(arith::CmpIPredicate::slt,
                                                in[0], body.integer(type, 0));
        Value turned =
            body.make<arith::SubIOp>(graph.extentIn(body, last, type), in[0]);
        return body.make<arith::SelectOp>(isNone, in[0], turned);
      });
}

static LogicalResult lowerArg(Node &node) {
  Tensor &input = node.input(0);
  auto axis = node.axisAttribute(0, input.rank());
  if (failed(axis) || failed(requireOrdered(node)))
    return failure();
  bool takesLast = node.integer("select_last_index", 0) != 0;
  const Extent extent = input.shape[*axis];
  Extent last = node.extents.sub(extent, 1);
  // The last of equal keys is the first from the end.
  Tensor keys =
      takesLast ? reverse(node, input, *axis, last, extent, -1) : input;
  Tensor positions = select(node, keys, *axis, 1, node.op() == "ArgMax").second;
  if (takesLast)
    positions = fromEnd(node, positions, last);
  if (node.integer("keepdims", 1) != 0)
    return node.give(positions);
  Shape shape = positions.shape;
  shape.erase(shape.begin() + *axis);
  FailureOr<Tensor> flat = node.graph.reshape(positions, shape);
  if (failed(flat))
    return failure();
  return node.give(std::move(*flat));
}

/// 1 at the first of the largest, 0 elsewhere.
static LogicalResult lowerHardmax(Node &node) {
  Tensor &input = node.input(0);
  auto axis = node.axisAttribute(-1, input.rank());
  if (failed(axis) || failed(node.requireFloat(0)))
    return failure();
  Tensor best = select(node, input, *axis, 1, true).second;
  GraphBuilder &graph = node.graph;
  return node.give(graph.elementwise(
      &best, input.shape, input.type, [&](Body &body, ValueRange in) -> Value {
        Type indexType = body.builder.getIndexType();
        Type type = computeType(graph.ops, input.type);
        Value isBest = body.make<arith::CmpIOp>(
            arith::CmpIPredicate::eq,
            body.make<arith::IndexCastOp>(indexType, in[0]),
            graph.subscriptIn(body, input.shape, *axis));
        return body.make<arith::SelectOp>(isBest, body.real(type, 1),
                                          body.real(type, 0));
      }));
}

/// The one number that an input is, as an extent; floats must be whole.
static FailureOr<Extent> depthOf(Node &node, unsigned i) {
  const Scalar *scalar = node.input(i).splat();
  if (scalar && scalar->integer)
    return *scalar->integer;
  bool isWhole = scalar && scalar->real &&
                 std::floor(*scalar->real) == *scalar->real &&
                 std::abs(*scalar->real) <= double(kLargestExtent);
  if (isWhole)
    return Extent(int64_t(*scalar->real));
  if (scalar)
    node.error() << "the depth is no whole number; expected one";
  else
    node.unsupported() << "the depth is known only at run time; expected a "
                          "constant";
  return failure();
}

/// values[1] where the new axis has the index, values[0] elsewhere. An index
/// below 0 counts from the end; one outside is nowhere.
static LogicalResult lowerOneHot(Node &node) {
  Tensor &indices = node.input(0), &values = node.input(2);
  FailureOr<Extent> depth = depthOf(node, 1);
  auto axis = node.axisAttribute(-1, indices.rank() + 1);
  if (failed(depth) || failed(axis))
    return failure();
  if (!node.extents.isNonNegative(*depth))
    return node.badSizes(*depth) << "depth " << node.extents.toString(*depth)
                                 << "; expected one that is at least 0";
  if (indices.type == ElementType::Bool)
    return node.error() << "the indices are of type bool; expected numbers";
  if (values.rank() != 1 || !values.shape[0].is(2))
    return node.error() << "the values have shape "
                        << toString(node.extents, values.shape)
                        << "; expected (2), off and on";
  GraphBuilder &graph = node.graph;
  Shape shape = indices.shape, spread = indices.shape;
  shape.insert(shape.begin() + *axis, *depth);
  spread.insert(spread.begin() + *axis, Extent(1));
  auto valueAt = [&](int64_t place) {
    Tensor one = graph.slice(values, 0, Extent(place), Extent(1), Extent(1));
    return *graph.reshape(one, {});
  };
  Tensor off = valueAt(0), on = valueAt(1);
  FailureOr<Tensor> places = graph.reshape(indices, spread);
  if (failed(places))
    return failure();
  ElementType from = indices.type;
  return node.give(graph.elementwise(
      {&*places, &off, &on}, shape, values.type,
      [&](Body &body, ValueRange in) -> Value {
        Type wide = body.builder.getI64Type();
        Value at = castElement(body, in[0], from, ElementType::I64, wide);
        Value here = body.make<arith::IndexCastOp>(
            wide, graph.subscriptIn(body, shape, *axis));
        Value end = graph.extentIn(body, *depth, wide);
        Value isHere =
            body.make<arith::CmpIOp>(arith::CmpIPredicate::eq, at, here);
        Value fromEnd = body.make<arith::CmpIOp>(
            arith::CmpIPredicate::eq, body.make<arith::AddIOp>(at, end), here);
        Value isOn = body.make<arith::OrIOp>(isHere, fromEnd);
        return body.make<arith::SelectOp>(isOn, in[2], in[1]);
      }));
}

ArrayRef<Operator> refold::onnx::selectionOperators() {
  static const Operator rows[] = {
      {"ArgMax", 13, kLastOpset, "axis:i keepdims:i select_last_index:i", 1, 1,
       lowerArg},
      {"ArgMin", 13, kLastOpset, "axis:i keepdims:i select_last_index:i", 1, 1,
       lowerArg},
      {"Hardmax", 13, kLastOpset, "axis:i", 1, 1, lowerHardmax},
      {"OneHot", 13, kLastOpset, "axis:i", 3, 3, lowerOneHot},
      {"TopK", 13, kLastOpset, "axis:i largest:i sorted:i", 2, 2, lowerTopK},
  };
  return rows;
}
