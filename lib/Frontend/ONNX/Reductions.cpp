// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators that reduce over axes.
#include "Reductions.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold::onnx;

Value refold::onnx::emitSame(Body &, ValueRange in) { return in[0]; }
Value refold::onnx::emitSquare(Body &body, ValueRange in) {
  if (isa<FloatType>(in[0].getType()))
    return body.make<arith::MulFOp>(in[0], in[0]);
  return body.make<arith::MulIOp>(in[0], in[0]);
}

Tensor refold::onnx::reduceOver(GraphBuilder &graph, Tensor &input,
                                ArrayRef<bool> axes, bool keepDims,
                                Combiner combiner, ElementFn fn) {
  Shape shape = input.shape;
  return graph.reduce(&input, shape, axes, keepDims, combiner, input.type, fn);
}

Tensor refold::onnx::meanOver(GraphBuilder &graph, Tensor &input,
                              ArrayRef<bool> axes, bool keepDims,
                              ElementFn fn) {
  Extent count(1);
  for (auto [extent, isReduced] : llvm::zip_equal(input.shape, axes))
    if (isReduced)
      count = graph.extents.mul(count, extent);
  Tensor sum = reduceOver(graph, input, axes, keepDims, Combiner::Add, fn);
  return graph.elementwise(&sum, sum.shape, sum.type,
                           [&](Body &body, ValueRange in) -> Value {
                             Type type = in[0].getType();
                             Value size = graph.extentIn(body, count, type);
                             if (isa<FloatType>(type))
                               return body.make<arith::DivFOp>(in[0], size);
                             return body.make<arith::DivSIOp>(in[0], size);
                           });
}

Tensor refold::onnx::logSumExpOver(GraphBuilder &graph, Tensor &input,
                                   ArrayRef<bool> axes, bool keepDims) {
  // A row of -inf, or none: subtracting its maximum would give NaN.
  Tensor top =
      reduceOver(graph, input, axes, true, Combiner::MaxSticky, emitSame);
  Tensor pivot = graph.elementwise(
      &top, top.shape, top.type, [](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value isEmpty = body.make<arith::CmpFOp>(
            arith::CmpFPredicate::OEQ, in[0], body.real(type, -HUGE_VAL));
        return body.make<arith::SelectOp>(isEmpty, body.real(type, 0), in[0]);
      });
  Shape shape = input.shape;
  Tensor sum = graph.reduce({&input, &pivot}, shape, axes, true, Combiner::Add,
                            input.type, [](Body &body, ValueRange in) -> Value {
                              return body.make<math::ExpOp>(
                                  body.make<arith::SubFOp>(in[0], in[1]));
                            });
  Tensor result = graph.elementwise({&sum, &pivot}, sum.shape, sum.type,
                                    [](Body &body, ValueRange in) -> Value {
                                      return body.make<arith::AddFOp>(
                                          body.make<math::LogOp>(in[0]), in[1]);
                                    });
  if (keepDims)
    return result;
  Shape kept;
  for (auto [extent, isReduced] : llvm::zip_equal(shape, axes))
    if (!isReduced)
      kept.push_back(extent);
  return *graph.reshape(result, kept);
}

/// The axes of a reduction: an attribute before, an input from `asInput` on.
/// None: all, or with noop_with_empty_axes nothing at all.
static FailureOr<SmallVector<bool>> readAxes(Node &node, bool &isNoop) {
  unsigned rank = node.input(0).rank();
  SmallVector<int64_t> axes = node.integers("axes");
  if (node.hasInput(1)) {
    auto given = node.integersOf(1, "the axes");
    if (failed(given))
      return failure();
    axes = *given;
  }
  isNoop = axes.empty() && node.integer("noop_with_empty_axes", 0) != 0;
  if (axes.empty())
    return SmallVector<bool>(rank, !isNoop);
  return node.axisSet(axes, rank);
}

/// Sums of known integers (ReduceProd of a shape, above all).
static std::optional<Tensor> foldReduction(Node &node, ArrayRef<bool> axes,
                                           bool keepDims, Combiner combiner) {
  Tensor &input = node.input(0);
  if (!input.isKnown() || isFloat(input.type) || input.rank() != 1 ||
      !axes[0] || !input.shape[0].is(int64_t(input.known.size())))
    return std::nullopt;
  Extents &extents = node.extents;
  std::optional<Extent> total;
  for (const Scalar &scalar : input.known) {
    const Extent &value = *scalar.integer;
    if (!total)
      total = value;
    else if (combiner == Combiner::Add)
      total = extents.add(*total, value);
    else if (combiner == Combiner::Mul)
      total = extents.mul(*total, value);
    else if (combiner == Combiner::MaxSticky)
      total = extents.max(*total, value);
    else
      total = extents.min(*total, value);
  }
  if (!total)
    return std::nullopt;
  Shape shape;
  if (keepDims)
    shape.push_back(1);
  return node.graph.knownTensor(input.type, shape, {Scalar::of(*total)});
}

/// How a reduction differs from a plain one.
struct Form {
  Combiner combiner;
  Value (*before)(Body &, ValueRange);
  Value (*after)(Body &, ValueRange); ///< null: nothing
  bool needsFloat;
};

static LogicalResult lowerReduction(Node &node, const Form &form) {
  Tensor &input = node.input(0);
  bool isNoop, keepDims = node.integer("keepdims", 1) != 0;
  auto axes = readAxes(node, isNoop);
  if (failed(axes))
    return failure();
  GraphBuilder &graph = node.graph;
  bool isOrder = form.combiner == Combiner::MaxSticky ||
                 form.combiner == Combiner::MinSticky;
  bool isFlag = input.type == ElementType::Bool;
  if ((form.needsFloat && !isFloat(input.type)) || (isFlag && !isOrder))
    return (isFlag ? node.error() : node.unsupported())
           << "input 0 is of type " << typeName(input.type) << "; expected "
           << (form.needsFloat ? "floats" : "numbers");
  bool isPlain = form.before == emitSame && !form.after;
  if (isPlain)
    if (auto folded = foldReduction(node, *axes, keepDims, form.combiner))
      return node.give(std::move(*folded));
  // The largest of flags is whether any is set, the least whether all are.
  if (isFlag)
    return node.give(reduceOver(
        graph, input, *axes, keepDims,
        form.combiner == Combiner::MaxSticky ? Combiner::Or : Combiner::And,
        emitSame));
  // The order of unsigned numbers is that of their values in a wider type; its
  // ends become 0 and the largest number again.
  bool isUnsigned = isOrder && input.type == ElementType::U8;
  Tensor numbers = input;
  if (isUnsigned)
    numbers = graph.elementwise(&input, input.shape, ElementType::I32,
                                [](Body &body, ValueRange in) -> Value {
                                  return body.make<arith::ExtUIOp>(
                                      body.builder.getI32Type(), in[0]);
                                });
  Tensor result =
      reduceOver(graph, numbers, *axes, keepDims, form.combiner, form.before);
  if (form.after)
    result = graph.elementwise(&result, result.shape, result.type, form.after);
  if (isUnsigned)
    result = graph.elementwise(&result, result.shape, input.type,
                               [](Body &body, ValueRange in) -> Value {
                                 return body.make<arith::TruncIOp>(
                                     body.builder.getI8Type(), in[0]);
                               });
  return node.give(std::move(result));
}

static LogicalResult lowerMean(Node &node) {
  bool isNoop, keepDims = node.integer("keepdims", 1) != 0;
  auto axes = readAxes(node, isNoop);
  if (failed(axes) || failed(node.requireFloatHere(0)))
    return failure();
  return node.give(
      meanOver(node.graph, node.input(0), *axes, keepDims, emitSame));
}

static LogicalResult lowerLogSumExp(Node &node) {
  bool isNoop, keepDims = node.integer("keepdims", 1) != 0;
  auto axes = readAxes(node, isNoop);
  if (failed(axes) || failed(node.requireFloatHere(0)))
    return failure();
  return node.give(logSumExpOver(node.graph, node.input(0), *axes, keepDims));
}

static Value emitAbs(Body &body, ValueRange in) {
  if (isa<FloatType>(in[0].getType()))
    return body.make<math::AbsFOp>(in[0]);
  Value negated =
      body.make<arith::SubIOp>(body.integer(in[0].getType(), 0), in[0]);
  return body.make<arith::MaxSIOp>(in[0], negated);
}
static Value emitSqrt(Body &body, ValueRange in) {
  return body.make<math::SqrtOp>(in[0]);
}
static Value emitLog(Body &body, ValueRange in) {
  return body.make<math::LogOp>(in[0]);
}

/// The mean over every axis after the second: one number a channel.
static LogicalResult lowerGlobalPool(Node &node) {
  Tensor &input = node.input(0);
  if (failed(node.requireFloat(0)))
    return failure();
  if (input.rank() < 3)
    return node.error() << "input 0 has rank " << input.rank()
                        << "; expected at least 3";
  SmallVector<bool> axes(input.rank(), true);
  axes[0] = axes[1] = false;
  if (node.op() == "GlobalAveragePool")
    return node.give(meanOver(node.graph, input, axes, true, emitSame));
  return node.give(
      reduceOver(node.graph, input, axes, true, Combiner::MaxSticky, emitSame));
}

static LogicalResult lowerMax(Node &node) {
  return lowerReduction(node, {Combiner::MaxSticky, emitSame, nullptr, false});
}
static LogicalResult lowerMin(Node &node) {
  return lowerReduction(node, {Combiner::MinSticky, emitSame, nullptr, false});
}
static LogicalResult lowerSum(Node &node) {
  return lowerReduction(node, {Combiner::Add, emitSame, nullptr, false});
}
static LogicalResult lowerProd(Node &node) {
  return lowerReduction(node, {Combiner::Mul, emitSame, nullptr, false});
}
static LogicalResult lowerL1(Node &node) {
  return lowerReduction(node, {Combiner::Add, emitAbs, nullptr, false});
}
static LogicalResult lowerL2(Node &node) {
  return lowerReduction(node, {Combiner::Add, emitSquare, emitSqrt, true});
}
static LogicalResult lowerSumSquare(Node &node) {
  return lowerReduction(node, {Combiner::Add, emitSquare, nullptr, false});
}
static LogicalResult lowerLogSum(Node &node) {
  return lowerReduction(node, {Combiner::Add, emitSame, emitLog, true});
}

/// Prefix sums as sums: element i is the sum over j of what is kept of the
/// elements at j <= i. As many additions as the square of the axis, which is a
/// sequence of tokens (positions from a mask).
static LogicalResult lowerCumSum(Node &node) {
  Tensor &input = node.input(0);
  if (input.type == ElementType::Bool || input.type == ElementType::U8)
    return node.error() << "input 0 is of type " << typeName(input.type)
                        << "; expected numbers";
  auto given = node.integersOf(1, "the axis");
  if (failed(given))
    return failure();
  if (given->size() != 1)
    return node.error() << "input 1 has " << given->size()
                        << " elements; expected one axis";
  auto axis = node.axis(given->front(), input.rank());
  if (failed(axis))
    return failure();
  bool isExclusive = node.integer("exclusive", 0) != 0;
  bool isReverse = node.integer("reverse", 0) != 0;
  GraphBuilder &graph = node.graph;
  // (..., i, j, ...): i is kept, j is summed over.
  Extent count = input.shape[*axis];
  Shape elements(input.shape);
  elements.insert(elements.begin() + *axis, Extent(1));
  Shape both(elements), rows(elements.size(), Extent(1)), columns(rows);
  both[*axis] = rows[*axis] = columns[*axis + 1] = count;
  SmallVector<bool> isReduced(both.size(), false);
  isReduced[*axis + 1] = true;
  Tensor places = graph.generate(
      {count}, ElementType::I64, graph.ops.getI64Type(),
      [](Body &body, ValueRange at) -> Value {
        return body.make<arith::IndexCastOp>(body.builder.getI64Type(), at[0]);
      });
  auto element = graph.reshape(input, elements);
  auto row = graph.reshape(places, rows);
  auto column = graph.reshape(places, columns);
  if (failed(element) || failed(row) || failed(column))
    return failure();
  using Predicate = arith::CmpIPredicate;
  Predicate isSummed = isReverse
                           ? (isExclusive ? Predicate::sgt : Predicate::sge)
                           : (isExclusive ? Predicate::slt : Predicate::sle);
  return node.give(graph.reduce(
      {&*element, &*row, &*column}, both, isReduced, /*keepDims=*/false,
      Combiner::Add, input.type, [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value none =
            isa<FloatType>(type) ? body.real(type, 0) : body.integer(type, 0);
        return body.make<arith::SelectOp>(
            body.make<arith::CmpIOp>(isSummed, in[2], in[1]), in[0], none);
      }));
}

// Until opset 17 the axes were an attribute (of ReduceSum: until 12).
static constexpr llvm::StringLiteral kAxesAttribute = "axes:is keepdims:i";
static constexpr llvm::StringLiteral kAxesInput =
    "keepdims:i noop_with_empty_axes:i";

ArrayRef<Operator> refold::onnx::reductionOperators() {
  static const Operator rows[] = {
      {"CumSum", 13, kLastOpset, "exclusive:i reverse:i", 2, 2, lowerCumSum},
      {"GlobalAveragePool", 13, kLastOpset, "", 1, 1, lowerGlobalPool},
      {"GlobalMaxPool", 13, kLastOpset, "", 1, 1, lowerGlobalPool},
      {"ReduceL1", 13, 17, kAxesAttribute, 1, 1, lowerL1},
      {"ReduceL1", 18, kLastOpset, kAxesInput, 1, 2, lowerL1},
      {"ReduceL2", 13, 17, kAxesAttribute, 1, 1, lowerL2},
      {"ReduceL2", 18, kLastOpset, kAxesInput, 1, 2, lowerL2},
      {"ReduceLogSum", 13, 17, kAxesAttribute, 1, 1, lowerLogSum},
      {"ReduceLogSum", 18, kLastOpset, kAxesInput, 1, 2, lowerLogSum},
      {"ReduceLogSumExp", 13, 17, kAxesAttribute, 1, 1, lowerLogSumExp},
      {"ReduceLogSumExp", 18, kLastOpset, kAxesInput, 1, 2, lowerLogSumExp},
      {"ReduceMax", 13, 17, kAxesAttribute, 1, 1, lowerMax},
      {"ReduceMax", 18, kLastOpset, kAxesInput, 1, 2, lowerMax},
      {"ReduceMean", 13, 17, kAxesAttribute, 1, 1, lowerMean},
      {"ReduceMean", 18, kLastOpset, kAxesInput, 1, 2, lowerMean},
      {"ReduceMin", 13, 17, kAxesAttribute, 1, 1, lowerMin},
      {"ReduceMin", 18, kLastOpset, kAxesInput, 1, 2, lowerMin},
      {"ReduceProd", 13, 17, kAxesAttribute, 1, 1, lowerProd},
      {"ReduceProd", 18, kLastOpset, kAxesInput, 1, 2, lowerProd},
      {"ReduceSum", 13, kLastOpset, kAxesInput, 1, 2, lowerSum},
      {"ReduceSumSquare", 13, 17, kAxesAttribute, 1, 1, lowerSumSquare},
      {"ReduceSumSquare", 18, kLastOpset, kAxesInput, 1, 2, lowerSumSquare},
  };
  return rows;
}
