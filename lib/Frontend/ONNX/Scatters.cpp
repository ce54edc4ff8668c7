// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Writes at computed positions, from the side of what is written: an element of
// the result looks for the updates that name it. Positions that are affine in
// the subscripts (slices that exporters assign to) say by arithmetic which one
// does; among positions that are data all are looked at, a reduction.
#include "Gathers.h"
#include "Operators.h"
#include "Scalars.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSwitch.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

namespace {
/// What becomes of an element and its updates.
struct Reduction {
  enum Kind { None, Add, Mul, Max, Min } kind = None;
  Combiner combiner() const {
    return kind == Add   ? Combiner::Add
           : kind == Mul ? Combiner::Mul
           : kind == Max ? Combiner::MaxSticky
                         : Combiner::MinSticky;
  }
};

/// Positions (updates, coordinates), and what is written there: (updates,
/// rest...).
struct Writes {
  Tensor data, positions, updates;
  unsigned length = 1; ///< leading dimensions of the data that positions name
};
} // namespace

static FailureOr<Reduction> readReduction(Node &node) {
  std::string name = node.string("reduction", "none");
  auto kind = llvm::StringSwitch<int>(name)
                  .Case("none", Reduction::None)
                  .Case("add", Reduction::Add)
                  .Case("mul", Reduction::Mul)
                  .Case("max", Reduction::Max)
                  .Case("min", Reduction::Min)
                  .Default(-1);
  if (kind < 0) {
    node.error() << "reduction is '" << name
                 << "'; expected none, add, mul, max or min";
    return failure();
  }
  if (kind != Reduction::None && node.input(0).type == ElementType::Bool) {
    node.unsupported() << "reduction '" << name
                       << "' of bool; expected numbers";
    return failure();
  }
  return Reduction{Reduction::Kind(kind)};
}

static Value combined(Body &body, Reduction reduction, ElementType type,
                      Value a, Value b) {
  bool isReal = isFloat(type), isUnsigned = type == ElementType::U8;
  switch (reduction.kind) {
  case Reduction::None:
    return b;
  case Reduction::Add:
    return isReal ? body.make<arith::AddFOp>(a, b)
                  : body.make<arith::AddIOp>(a, b);
  case Reduction::Mul:
    return isReal ? body.make<arith::MulFOp>(a, b)
                  : body.make<arith::MulIOp>(a, b);
  case Reduction::Max:
    return isReal       ? body.make<arith::MaximumFOp>(a, b)
           : isUnsigned ? body.make<arith::MaxUIOp>(a, b)
                        : body.make<arith::MaxSIOp>(a, b);
  case Reduction::Min:
    return isReal       ? body.make<arith::MinimumFOp>(a, b)
           : isUnsigned ? body.make<arith::MinUIOp>(a, b)
                        : body.make<arith::MinSIOp>(a, b);
  }
  llvm_unreachable("every reduction is handled");
}

/// What changes nothing when it is combined.
static Value neutral(Body &body, Reduction reduction, ElementType type,
                     Type element) {
  bool isMax = reduction.kind == Reduction::Max;
  double extreme = isMax ? -HUGE_VAL : HUGE_VAL;
  bool isExtreme = isMax || reduction.kind == Reduction::Min;
  if (isa<FloatType>(element))
    return body.real(element, isExtreme                          ? extreme
                              : reduction.kind == Reduction::Mul ? 1
                                                                 : 0);
  if (!isExtreme)
    return body.integer(element, reduction.kind == Reduction::Mul);
  unsigned width = element.getIntOrFloatBitWidth();
  bool isUnsigned = type == ElementType::U8;
  APInt least =
      isUnsigned ? APInt::getZero(width) : APInt::getSignedMinValue(width);
  APInt most =
      isUnsigned ? APInt::getMaxValue(width) : APInt::getSignedMaxValue(width);
  return body.make<arith::ConstantOp>(
      IntegerAttr::get(element, isMax ? least : most));
}

/// 0, 1, 2, ... of a dimension.
static Tensor countUp(const Extent &size) {
  Tensor tensor;
  tensor.type = ElementType::I64;
  tensor.shape = {size};
  tensor.form = IndexForm{{Affine{Extent(0), {Extent(1)}}}};
  return tensor;
}

/// As i64, from the end where negative.
static Tensor plainPositions(GraphBuilder &graph, Tensor &positions,
                             const Extent &extent) {
  Type i64 = graph.ops.getI64Type();
  return graph.elementwise(&positions, Shape(positions.shape), ElementType::I64,
                           [&](Body &body, ValueRange in) -> Value {
                             return body.make<arith::IndexCastOp>(
                                 i64, emitPosition(graph, body, in[0], extent));
                           });
}

static Value isHere(Body &body, Value position, Value subscript) {
  return body.make<arith::CmpIOp>(arith::CmpIPredicate::eq, position,
                                  subscript);
}

/// The element of `updates` that subscripts `at` say, where `isWritten`; else
/// `old`. Requires that there are updates.
static Value chosen(Body &body, Reduction reduction, ElementType type,
                    Value isWritten, Value updates, ValueRange at, Value old) {
  Value zero = body.integer(body.builder.getIndexType(), 0);
  SmallVector<Value> inside;
  for (Value subscript : at)
    inside.push_back(body.make<arith::SelectOp>(isWritten, subscript, zero));
  Value update = body.toCompute(body.make<tensor::ExtractOp>(updates, inside));
  return body.make<arith::SelectOp>(
      isWritten, combined(body, reduction, type, old, update), old);
}

/// Failure with a message where there are no updates for sure, or a check that
/// there are.
static LogicalResult requireSome(Node &node, ArrayRef<Extent> shape) {
  for (const Extent &extent : shape)
    if (failed(node.graph.requireAtMost(Extent(1), extent,
                                        "an extent of the updates")))
      return node.error() << "updates of shape "
                          << toString(node.extents, shape)
                          << "; expected at least one";
  return success();
}

//===- Positions that are data ===//

/// The positions that name a dimension each, checked.
static FailureOr<std::vector<Tensor>> columnsOf(Node &node, Writes &writes) {
  GraphBuilder &graph = node.graph;
  std::vector<Tensor> columns;
  for (unsigned p = 0; p < writes.length; ++p) {
    Tensor column =
        graph.slice(writes.positions, 1, Extent(p), Extent(1), Extent(1));
    FailureOr<Tensor> flat = graph.reshape(column, {column.shape[0]});
    if (failed(flat) ||
        failed(checkPositions(node, *flat, writes.data.shape[p])))
      return failure();
    columns.push_back(plainPositions(graph, *flat, writes.data.shape[p]));
  }
  return columns;
}

/// The updates combined with what they name: all of them are looked at for
/// every element.
static Tensor combineAll(Node &node, Reduction reduction, Writes &writes,
                         ArrayRef<Tensor> columns) {
  GraphBuilder &graph = node.graph;
  unsigned rank = writes.data.rank();
  Shape shape = writes.data.shape;
  shape.push_back(writes.updates.shape[0]);
  SmallVector<bool> isReduced(rank, false);
  isReduced.push_back(true);
  auto dim = [&](unsigned k) { return graph.ops.getAffineDimExpr(k); };
  std::vector<Tensor> owned(columns.begin(), columns.end());
  for (unsigned p = 0; p < writes.length; ++p)
    owned.push_back(countUp(shape[p]));
  SmallVector<GraphBuilder::Subscripted> inputs;
  for (auto [k, tensor] : llvm::enumerate(owned))
    inputs.push_back(
        {&tensor, {dim(k < writes.length ? rank : k - writes.length)}});
  GraphBuilder::Subscripted ofUpdates{&writes.updates, {dim(rank)}};
  for (unsigned k = writes.length; k < rank; ++k)
    ofUpdates.at.push_back(dim(k));
  inputs.push_back(ofUpdates);
  Tensor sums = graph.reduceAt(
      inputs, shape, isReduced, /*keepDims=*/false, reduction.combiner(),
      writes.data.type, [&](Body &body, ValueRange in) -> Value {
        Value isNamed = body.integer(body.builder.getI1Type(), 1);
        for (unsigned p = 0; p < writes.length; ++p)
          isNamed = body.make<arith::AndIOp>(
              isNamed, isHere(body, in[p], in[writes.length + p]));
        Value update = in.back();
        return body.make<arith::SelectOp>(
            isNamed, update,
            neutral(body, reduction, writes.data.type, update.getType()));
      });
  return graph.elementwise(
      {&writes.data, &sums}, Shape(writes.data.shape), writes.data.type,
      [&](Body &body, ValueRange in) -> Value {
        return combined(body, reduction, writes.data.type, in[0], in[1]);
      });
}

/// The number of the last update that names each place, or -1.
static Tensor lastWrites(Node &node, Writes &writes, ArrayRef<Tensor> columns) {
  GraphBuilder &graph = node.graph;
  unsigned length = writes.length;
  Shape shape(writes.data.shape.begin(), writes.data.shape.begin() + length);
  SmallVector<bool> isReduced(length, false);
  isReduced.push_back(true);
  std::vector<Tensor> owned(columns.begin(), columns.end());
  for (const Extent &extent : shape)
    owned.push_back(countUp(extent));
  shape.push_back(writes.updates.shape[0]);
  owned.push_back(countUp(shape.back()));
  SmallVector<GraphBuilder::Subscripted> inputs;
  for (auto [k, tensor] : llvm::enumerate(owned))
    inputs.push_back(
        {&tensor,
         {graph.ops.getAffineDimExpr(k >= length && k < 2 * length ? k - length
                                                                   : length)}});
  return graph.reduceAt(
      inputs, shape, isReduced, /*keepDims=*/false, Combiner::MaxSticky,
      ElementType::I64, [&](Body &body, ValueRange in) -> Value {
        Value isNamed = body.integer(body.builder.getI1Type(), 1);
        for (unsigned p = 0; p < length; ++p)
          isNamed = body.make<arith::AndIOp>(
              isNamed, isHere(body, in[p], in[length + p]));
        return body.make<arith::SelectOp>(
            isNamed, in.back(), body.integer(in.back().getType(), -1));
      });
}

/// Each element as the last update that names it says.
static Tensor replaceAll(Node &node, Writes &writes, ArrayRef<Tensor> columns) {
  GraphBuilder &graph = node.graph;
  Tensor last = lastWrites(node, writes, columns);
  Shape shape = writes.data.shape, spread = last.shape;
  spread.resize(shape.size(), Extent(1));
  auto view = graph.reshape(last, spread);
  assert(succeeded(view) && "dimensions of extent 1 were added");
  Value updates = graph.valueOf(writes.updates);
  return graph.elementwise(
      {&writes.data, &*view}, shape, writes.data.type,
      [&](Body &body, ValueRange in) -> Value {
        Value isWritten = body.make<arith::CmpIOp>(
            arith::CmpIPredicate::sge, in[1], body.integer(in[1].getType(), 0));
        SmallVector<Value> at{
            body.make<arith::IndexCastOp>(body.builder.getIndexType(), in[1])};
        for (unsigned k = writes.length; k < shape.size(); ++k)
          at.push_back(graph.subscriptIn(body, shape, k));
        return chosen(body, {}, writes.data.type, isWritten, updates, at,
                      in[0]);
      });
}

static LogicalResult scatterData(Node &node, Reduction reduction,
                                 Writes writes) {
  auto columns = columnsOf(node, writes);
  if (failed(columns))
    return failure();
  if (reduction.kind != Reduction::None)
    return node.give(combineAll(node, reduction, writes, *columns));
  if (failed(requireSome(node, writes.updates.shape)))
    return failure();
  return node.give(replaceAll(node, writes, *columns));
}

//===- Positions that are affine ===//

/// A dimension of the data as positions run over it.
static std::optional<Walk> walkOver(Node &node, Tensor &indices, unsigned p,
                                    ArrayRef<Extent> outer) {
  Affine part = indices.form->parts[p];
  part.coefficients.pop_back();
  const Extent &extent = node.input(0).shape[p];
  if (!normalise(node.extents, part, extent, outer))
    return std::nullopt;
  std::optional<Walk> walk = walkOf(node.extents, part);
  if (walk && failed(requireInside(node, part, extent, outer)))
    return std::nullopt;
  return walk;
}

/// Tuples of which each number runs along another subscript or is constant: a
/// box of the data is written. Failure without a message: they are no such.
static FailureOr<Tensor> writeBox(Node &node, Reduction reduction,
                                  unsigned length) {
  Tensor &data = node.input(0), &indices = node.input(1);
  GraphBuilder &graph = node.graph;
  unsigned numOuter = indices.rank() - 1;
  ArrayRef<Extent> outer = ArrayRef(indices.shape).take_front(numOuter);
  if (!indices.form || indices.form->parts.size() != length)
    return failure();
  SmallVector<Walk> walks;
  SmallVector<bool> isWalked(numOuter, false);
  for (unsigned p = 0; p < length; ++p) {
    std::optional<Walk> walk = walkOver(node, indices, p, outer);
    if (!walk || (walk->along >= 0 && isWalked[walk->along]))
      return failure();
    if (walk->along >= 0)
      isWalked[walk->along] = true;
    walks.push_back(*walk);
  }
  for (unsigned k = 0; k < numOuter; ++k)
    if (!isWalked[k] && !outer[k].is(1))
      return failure();
  if (failed(requireSome(node, node.input(2).shape)))
    return failure();
  Value updates = graph.valueOf(node.input(2));
  Shape shape = data.shape;
  return graph.elementwise(
      &data, shape, data.type, [&](Body &body, ValueRange in) -> Value {
        Type indexType = body.builder.getIndexType();
        Value zero = body.integer(indexType, 0);
        Value isWritten = body.integer(body.builder.getI1Type(), 1);
        SmallVector<Value> at(numOuter, zero);
        auto require = [&](arith::CmpIPredicate predicate, Value a, Value b) {
          isWritten = body.make<arith::AndIOp>(
              isWritten, body.make<arith::CmpIOp>(predicate, a, b));
        };
        for (auto [p, walk] : llvm::enumerate(walks)) {
          Value behind = body.make<arith::SubIOp>(
              graph.subscriptIn(body, shape, p),
              graph.extentIn(body, walk.offset, indexType));
          if (walk.along < 0) {
            require(arith::CmpIPredicate::eq, behind, zero);
            continue;
          }
          require(arith::CmpIPredicate::sge, behind, zero);
          Value number = behind;
          if (!walk.step.is(1)) {
            Value step = graph.extentIn(body, walk.step, indexType);
            number = body.make<arith::DivSIOp>(behind, step);
            require(arith::CmpIPredicate::eq, behind,
                    body.make<arith::MulIOp>(number, step));
          }
          require(arith::CmpIPredicate::slt, number,
                  graph.extentIn(body, outer[walk.along], indexType));
          at[walk.along] = number;
        }
        for (unsigned k = length; k < shape.size(); ++k)
          at.push_back(graph.subscriptIn(body, shape, k));
        return chosen(body, reduction, data.type, isWritten, updates, at,
                      in[0]);
      });
}

//===- Operators ===//

static LogicalResult requireTypes(Node &node) {
  if (failed(requireIndices(node, 1)))
    return failure();
  if (node.input(2).type == node.input(0).type)
    return success();
  return node.error() << "the updates are of type "
                      << typeName(node.input(2).type) << "; expected "
                      << typeName(node.input(0).type) << ", that of the data";
}

static LogicalResult lowerScatterND(Node &node) {
  Tensor &data = node.input(0), &indices = node.input(1);
  Tensor &updates = node.input(2);
  auto reduction = readReduction(node);
  if (failed(reduction) || failed(requireTypes(node)))
    return failure();
  std::optional<int64_t> length;
  if (indices.rank() > 0)
    length = indices.shape.back().constant();
  if (!length || *length < 1 || *length > data.rank())
    return node.error() << "index tuples of shape "
                        << toString(node.extents, indices.shape)
                        << " into rank " << data.rank()
                        << "; expected tuples of 1 to rank numbers";
  Shape wanted(indices.shape.begin(), indices.shape.end() - 1);
  Extent count = node.extents.product(wanted);
  Shape rest(data.shape.begin() + *length, data.shape.end());
  wanted.append(rest.begin(), rest.end());
  bool agrees = updates.rank() == wanted.size();
  for (unsigned k = 0; agrees && k < wanted.size(); ++k)
    agrees = succeeded(node.graph.requireEqual(updates.shape[k], wanted[k]));
  if (!agrees)
    return node.error() << "updates of shape "
                        << toString(node.extents, updates.shape)
                        << "; expected " << toString(node.extents, wanted);
  if (count.is(0) || llvm::any_of(rest, [](auto &e) { return e.is(0); }))
    return node.give(data);
  FailureOr<Tensor> box = writeBox(node, *reduction, unsigned(*length));
  if (succeeded(box))
    return node.give(std::move(*box));
  if (node.hasErrors())
    return failure();
  Shape flat{count};
  flat.append(rest.begin(), rest.end());
  auto positions = node.graph.reshape(indices, {count, Extent(*length)});
  auto written = node.graph.reshape(updates, flat);
  if (failed(positions) || failed(written))
    return failure();
  return scatterData(node, *reduction,
                     {data, *positions, *written, unsigned(*length)});
}

/// The number of the last update that names each element along the axis, or -1;
/// or all of them combined.
static Tensor alongAxis(Node &node, Reduction reduction, Tensor &positions,
                        unsigned axis) {
  GraphBuilder &graph = node.graph;
  Tensor &data = node.input(0);
  unsigned rank = data.rank();
  bool isNone = reduction.kind == Reduction::None;
  Shape shape = data.shape;
  shape.push_back(positions.shape[axis]);
  SmallVector<bool> isReduced(rank, false);
  isReduced.push_back(true);
  auto dim = [&](unsigned k) { return graph.ops.getAffineDimExpr(k); };
  SmallVector<AffineExpr, 4> own;
  for (unsigned k = 0; k < rank; ++k)
    own.push_back(dim(k == axis ? rank : k));
  Tensor place = countUp(shape[axis]), number = countUp(shape.back());
  SmallVector<GraphBuilder::Subscripted> inputs{{&positions, own},
                                                {&place, {dim(axis)}}};
  if (isNone)
    inputs.push_back({&number, {dim(rank)}});
  else
    inputs.push_back({&node.input(2), own});
  return graph.reduceAt(inputs, shape, isReduced, /*keepDims=*/false,
                        isNone ? Combiner::MaxSticky : reduction.combiner(),
                        isNone ? ElementType::I64 : data.type,
                        [&](Body &body, ValueRange in) -> Value {
                          Value otherwise =
                              isNone ? body.integer(in[2].getType(), -1)
                                     : neutral(body, reduction, data.type,
                                               in[2].getType());
                          return body.make<arith::SelectOp>(
                              isHere(body, in[0], in[1]), in[2], otherwise);
                        });
}

static LogicalResult lowerScatterElements(Node &node) {
  Tensor &data = node.input(0), &indices = node.input(1);
  Tensor &updates = node.input(2);
  auto reduction = readReduction(node);
  if (failed(reduction) || failed(requireTypes(node)))
    return failure();
  auto axis = node.axisAttribute(0, data.rank());
  if (failed(axis))
    return failure();
  bool agrees = indices.rank() == data.rank() && updates.rank() == data.rank();
  for (unsigned k = 0; agrees && k < data.rank(); ++k)
    agrees =
        succeeded(node.graph.requireEqual(indices.shape[k], updates.shape[k]));
  if (!agrees)
    return node.error() << "indices of shape "
                        << toString(node.extents, indices.shape)
                        << " and updates of shape "
                        << toString(node.extents, updates.shape)
                        << "; expected one shape of rank " << data.rank();
  for (unsigned k = 0; k < data.rank(); ++k)
    if (k != *axis &&
        failed(node.graph.requireEqual(indices.shape[k], data.shape[k])))
      return node.unsupported()
             << "indices of shape " << toString(node.extents, indices.shape)
             << " into " << toString(node.extents, data.shape)
             << "; expected all of the data besides the axis";
  if (llvm::any_of(indices.shape, [](auto &e) { return e.is(0); }))
    return node.give(data);
  GraphBuilder &graph = node.graph;
  if (failed(checkPositions(node, indices, data.shape[*axis])))
    return failure();
  Tensor positions = plainPositions(graph, indices, data.shape[*axis]);
  Tensor found = alongAxis(node, *reduction, positions, *axis);
  bool isNone = reduction->kind == Reduction::None;
  if (isNone && failed(requireSome(node, updates.shape)))
    return failure();
  Value written = isNone ? graph.valueOf(updates) : Value();
  Shape shape = data.shape;
  return node.give(graph.elementwise(
      {&data, &found}, shape, data.type,
      [&](Body &body, ValueRange in) -> Value {
        if (!isNone)
          return combined(body, *reduction, data.type, in[0], in[1]);
        Value isWritten = body.make<arith::CmpIOp>(
            arith::CmpIPredicate::sge, in[1], body.integer(in[1].getType(), 0));
        SmallVector<Value> at;
        for (unsigned k = 0; k < shape.size(); ++k)
          at.push_back(k == *axis ? body.make<arith::IndexCastOp>(
                                        body.builder.getIndexType(), in[1])
                                  : graph.subscriptIn(body, shape, k));
        return chosen(body, {}, data.type, isWritten, written, at, in[0]);
      }));
}

ArrayRef<Operator> refold::onnx::scatterOperators() {
  static const Operator rows[] = {
      {"ScatterElements", 13, 15, "axis:i", 3, 3, lowerScatterElements},
      {"ScatterElements", 16, kLastOpset, "axis:i reduction:s", 3, 3,
       lowerScatterElements},
      {"ScatterND", 13, 15, "", 3, 3, lowerScatterND},
      {"ScatterND", 16, kLastOpset, "reduction:s", 3, 3, lowerScatterND},
  };
  return rows;
}
