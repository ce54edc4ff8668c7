// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Numbers on a grid: y = round(x / scale) + zero point, and back. Scales are
// one number, one an index of an axis, or one a block of an axis.
#include "Contraction.h"
#include "Elementwise.h"
#include "Operators.h"
#include "Reductions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold::onnx;

static bool isByte(ElementType type) {
  return type == ElementType::I8 || type == ElementType::U8;
}

static bool isFloat8(ElementType type) {
  return type == ElementType::F8E4M3FN || type == ElementType::F8E5M2;
}

//===- Scales ===//

namespace {
/// A tensor seen so that its scales broadcast to it: itself, or with the
/// blocked axis split into blocks.
struct Grid {
  Tensor elements, scale;
  std::optional<Tensor> zero;
};
} // namespace

/// One number, or one an index of the axis.
static FailureOr<Tensor> alongAxis(Node &node, Tensor &scale,
                                   const Tensor &tensor) {
  GraphBuilder &graph = node.graph;
  if (scale.rank() == 0)
    return scale;
  if (scale.rank() == 1 && scale.shape[0].is(1))
    return graph.reshape(scale, {});
  auto axis = node.axisAttribute(1, tensor.rank());
  if (failed(axis))
    return failure();
  if (scale.rank() != 1 ||
      failed(graph.requireEqual(scale.shape[0], tensor.shape[*axis]))) {
    node.error() << "the scale or zero point has shape "
                 << toString(node.extents, scale.shape)
                 << "; expected a scalar or ("
                 << node.extents.toString(tensor.shape[*axis])
                 << "), the extent of axis " << *axis;
    return failure();
  }
  Shape shape(tensor.rank(), Extent(1));
  shape[*axis] = scale.shape[0];
  return graph.reshape(scale, shape);
}

/// [.., n, ..] as [.., n / size, size, ..].
static FailureOr<Tensor> inBlocks(Node &node, Tensor &tensor, unsigned axis,
                                  const Extent &blocks, int64_t size) {
  Shape shape = tensor.shape;
  shape[axis] = blocks;
  shape.insert(shape.begin() + axis + 1, Extent(size));
  return node.graph.reshape(tensor, shape);
}

static FailureOr<Grid> blockedGrid(Node &node, int64_t size) {
  Tensor &tensor = node.input(0), &scale = node.input(1);
  auto axis = node.axisAttribute(1, tensor.rank());
  if (failed(axis))
    return failure();
  std::optional<Extent> blocks;
  if (size > 0)
    blocks = node.extents.divideExactly(tensor.shape[*axis], Extent(size));
  if (!blocks) {
    node.unsupported() << "block_size is " << size << " for an extent of "
                       << node.extents.toString(tensor.shape[*axis])
                       << "; expected a divisor";
    return failure();
  }
  Shape wanted = tensor.shape;
  wanted[*axis] = *blocks;
  auto spread = [&](Tensor &given) -> FailureOr<Tensor> {
    bool agrees = given.rank() == wanted.size();
    for (unsigned k = 0; agrees && k < wanted.size(); ++k)
      agrees = succeeded(node.graph.requireEqual(given.shape[k], wanted[k]));
    if (!agrees) {
      node.error() << "the scale or zero point has shape "
                   << toString(node.extents, given.shape) << "; expected "
                   << toString(node.extents, wanted) << ", one a block";
      return failure();
    }
    Shape shape = wanted;
    shape.insert(shape.begin() + *axis + 1, Extent(1));
    return node.graph.reshape(given, shape);
  };
  FailureOr<Tensor> elements = inBlocks(node, tensor, *axis, *blocks, size);
  FailureOr<Tensor> scales = spread(scale);
  if (failed(elements) || failed(scales))
    return failure();
  Grid grid{*elements, *scales, std::nullopt};
  if (node.hasInput(2)) {
    FailureOr<Tensor> zero = spread(node.input(2));
    if (failed(zero))
      return failure();
    grid.zero = *zero;
  }
  return grid;
}

static FailureOr<Grid> gridOf(Node &node) {
  if (int64_t size = node.integer("block_size", 0))
    return blockedGrid(node, size);
  FailureOr<Tensor> scale = alongAxis(node, node.input(1), node.input(0));
  if (failed(scale))
    return failure();
  Grid grid{node.input(0), *scale, std::nullopt};
  if (node.hasInput(2)) {
    FailureOr<Tensor> zero = alongAxis(node, node.input(2), node.input(0));
    if (failed(zero))
      return failure();
    grid.zero = *zero;
  }
  return grid;
}

/// fn(element, scale, zero point or null) over the grid, in the shape of
/// input 0.
static LogicalResult
giveOnGrid(Node &node, Grid &grid, ElementType type, Type element,
           llvm::function_ref<Value(Body &, Value, Value, Value)> fn) {
  SmallVector<Tensor *> inputs{&grid.elements, &grid.scale};
  if (grid.zero)
    inputs.push_back(&*grid.zero);
  Tensor result = node.graph.elementwise(
      inputs, grid.elements.shape, type, element,
      [&](Body &body, ValueRange in) {
        return fn(body, in[0], in[1], in.size() > 2 ? in[2] : Value());
      });
  FailureOr<Tensor> back = node.graph.reshape(result, node.input(0).shape);
  return failed(back) ? failure() : node.give(std::move(*back));
}

//===- QuantizeLinear ===//

/// round(x / scale) + zero point, saturated; a float8 has no zero point.
static Value emitQuantised(Body &body, Value quotient, Value zero,
                           ElementType type, Type target, bool saturates) {
  if (isFloat8(type))
    return castElement(
        body, saturates ? saturateToFloat8(body, quotient, type) : quotient,
        ElementType::F32, type, target);
  Value rounded = body.make<math::RoundEvenOp>(quotient);
  if (zero)
    rounded = body.make<arith::AddFOp>(
        rounded,
        castElement(body, zero, type, ElementType::F32, rounded.getType()));
  return castElement(body, rounded, ElementType::F32, type, target);
}

/// The type of the result: that of the zero point, output_dtype, or uint8.
static FailureOr<ElementType> quantisedType(Node &node) {
  int64_t named = node.integer("output_dtype", 0);
  int64_t number = named ? named : int64_t(ElementType::U8);
  if (node.hasInput(2)) {
    number = int64_t(node.input(2).type);
    if (named && named != number) {
      node.error() << "output_dtype and the zero point name different types; "
                      "expected one";
      return failure();
    }
  }
  auto type = ElementType(number);
  if (!isDefined(number) || (!isByte(type) && !isFloat8(type))) {
    (isDefined(number) ? node.unsupported() : node.error())
        << "a result of "
        << typeName(int32_t(std::clamp<int64_t>(number, -1, 1000)))
        << "; expected uint8, int8, float8e4m3fn or float8e5m2";
    return failure();
  }
  return type;
}

static LogicalResult lowerQuantise(Node &node) {
  FailureOr<ElementType> to = quantisedType(node);
  ElementType from = typeOfFirst(node);
  if (failed(to) || failed(node.requireFloatHere(1)))
    return failure();
  if (!isFloat(from) && from != ElementType::I32)
    return node.error() << "input 0 is of type " << typeName(from)
                        << "; expected floats or int32";
  if (node.integer("precision", 0))
    return node.unsupported() << "precision is set; expected none: f32 is what "
                                 "short floats are computed in";
  FailureOr<Grid> grid = gridOf(node);
  if (failed(grid))
    return failure();
  Type target = storageType(node.graph.ops, *to);
  bool saturates = node.integer("saturate", 1) != 0;
  ElementType scaleType = node.input(1).type;
  return giveOnGrid(
      node, *grid, *to, target,
      [&](Body &body, Value x, Value scale, Value zero) {
        Value number = castElement(body, x, from, scaleType, scale.getType());
        Value quotient = body.make<arith::DivFOp>(number, scale);
        return emitQuantised(body, quotient, zero, *to, target, saturates);
      });
}

//===- DequantizeLinear ===//

/// (x - zero point) * scale.
static LogicalResult lowerDequantise(Node &node) {
  ElementType from = typeOfFirst(node), to = node.input(1).type;
  if (!isByte(from) && !isFloat8(from) && from != ElementType::I32)
    return node.error() << "input 0 is of type " << typeName(from)
                        << "; expected uint8, int8, int32, float8e4m3fn or "
                           "float8e5m2";
  if (failed(node.requireFloat(1)))
    return failure();
  if (node.hasInput(2) && node.input(2).type != from)
    return node.error() << "the zero point is of type "
                        << typeName(node.input(2).type) << "; expected "
                        << typeName(from) << ", that of input 0";
  if (int64_t named = node.integer("output_dtype", 0)) {
    if (named < 0 || named > INT32_MAX || !isSupported(int32_t(named)) ||
        !isFloat(ElementType(named)))
      return (isDefined(named) ? node.unsupported() : node.error())
             << "output_dtype is "
             << typeName(int32_t(std::clamp<int64_t>(named, -1, 1000)))
             << "; expected a float type";
    to = ElementType(named);
  }
  FailureOr<Grid> grid = gridOf(node);
  if (failed(grid))
    return failure();
  GraphBuilder &graph = node.graph;
  Type real = computeType(graph.ops, to);
  return giveOnGrid(
      node, *grid, to, real,
      [&](Body &body, Value x, Value scale, Value zero) -> Value {
        if (zero && isFloat8(from)) {
          x = body.make<arith::SubFOp>(x, zero);
        } else if (zero) {
          // The difference of two bytes is no byte; of two int32, few have
          // one that is not 0.
          Type wide = from == ElementType::I32 ? body.builder.getI64Type()
                                               : body.builder.getI32Type();
          auto widen = [&](Value value) {
            return castElement(body, value, from, ElementType::I64, wide);
          };
          x = body.make<arith::SubIOp>(widen(x), widen(zero));
        }
        bool isWide = zero && !isFloat8(from);
        Value number =
            castElement(body, x, isWide ? ElementType::I64 : from, to, real);
        Value factor = castElement(body, scale, node.input(1).type, to, real);
        return body.make<arith::MulFOp>(number, factor);
      });
}

//===- DynamicQuantizeLinear ===//

/// The range of the whole tensor, 0 in it, on 0 to 255.
static LogicalResult lowerDynamicQuantise(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  Tensor &input = node.input(0);
  GraphBuilder &graph = node.graph;
  SmallVector<bool> all(input.rank(), true);
  Tensor top =
      reduceOver(graph, input, all, false, Combiner::MaxSticky, emitSame);
  Tensor bottom =
      reduceOver(graph, input, all, false, Combiner::MinSticky, emitSame);
  Tensor low = graph.elementwise(&bottom, {}, input.type,
                                 [](Body &body, ValueRange in) -> Value {
                                   return body.make<arith::MinimumFOp>(
                                       in[0], body.real(in[0].getType(), 0));
                                 });
  Tensor scale = graph.elementwise(
      {&top, &low}, {}, input.type, [](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value high = body.make<arith::MaximumFOp>(in[0], body.real(type, 0));
        Value range = body.make<arith::SubFOp>(high, in[1]);
        Value scale = body.make<arith::DivFOp>(range, body.real(type, 255));
        // Nothing but zeros: any scale would do, and no one divides by 0. This
        // is ONNX Runtime's; the operator's text leaves it open.
        Value isNothing = body.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ,
                                                   range, body.real(type, 0));
        return body.make<arith::SelectOp>(isNothing, body.real(type, 1), scale);
      });
  Type byte = storageType(graph.ops, ElementType::U8);
  Tensor zero =
      graph.elementwise({&low, &scale}, {}, ElementType::U8, byte,
                        [&](Body &body, ValueRange in) -> Value {
                          Value negated = body.make<arith::SubFOp>(
                              body.real(in[0].getType(), 0),
                              body.make<arith::DivFOp>(in[0], in[1]));
                          return emitQuantised(body, negated, Value(),
                                               ElementType::U8, byte, true);
                        });
  Tensor result = graph.elementwise(
      {&input, &scale, &zero}, input.shape, ElementType::U8, byte,
      [&](Body &body, ValueRange in) -> Value {
        return emitQuantised(body, body.make<arith::DivFOp>(in[0], in[1]),
                             in[2], ElementType::U8, byte, true);
      });
  if (failed(node.give(0, result)) || failed(node.give(1, scale)))
    return failure();
  return node.give(2, zero);
}

//===- Products of quantised matrices ===//

/// The operand less its zero point, in int32. A zero point is one number, or
/// one a row (on the right: a column) of the matrix.
static FailureOr<Tensor> centred(Node &node, unsigned i, unsigned zeroInput,
                                 bool isRight) {
  Tensor &matrix = node.input(i);
  ElementType type = matrix.type;
  if (!isByte(type)) {
    node.error() << "input " << i << " is of type " << typeName(type)
                 << "; expected uint8 or int8";
    return failure();
  }
  SmallVector<Tensor *> inputs{&matrix};
  Tensor zero;
  if (node.hasInput(zeroInput)) {
    zero = node.input(zeroInput);
    if (zero.type != type) {
      node.error() << "a zero point is of type " << typeName(zero.type)
                   << "; expected " << typeName(type) << ", that of input "
                   << i;
      return failure();
    }
    // A vector on the left runs along the rows.
    if (zero.rank() == 1 && zero.shape[0].is(1))
      zero = *node.graph.reshape(zero, {});
    else if (zero.rank() == 1 && !isRight)
      zero = *node.graph.reshape(zero, {zero.shape[0], Extent(1)});
    inputs.push_back(&zero);
  }
  FailureOr<Shape> shape = node.broadcast(inputs);
  if (failed(shape))
    return failure();
  if (!node.areEqual(*shape, matrix.shape)) {
    node.error() << "a zero point has shape "
                 << toString(node.extents, zero.shape)
                 << "; expected one that broadcasts to "
                 << toString(node.extents, matrix.shape);
    return failure();
  }
  return node.graph.elementwise(
      inputs, *shape, ElementType::I32,
      [&](Body &body, ValueRange in) -> Value {
        auto widen = [&](Value value) {
          return castElement(body, value, type, ElementType::I32,
                             body.builder.getI32Type());
        };
        Value value = widen(in[0]);
        return in.size() > 1 ? body.make<arith::SubIOp>(value, widen(in[1]))
                             : value;
      });
}

static LogicalResult lowerMatMulInteger(Node &node) {
  FailureOr<Tensor> left = centred(node, 0, 2, false);
  FailureOr<Tensor> right = centred(node, 1, 3, true);
  if (failed(left) || failed(right))
    return failure();
  FailureOr<Tensor> product = multiplyMatrices(node, *left, *right);
  return failed(product) ? failure() : node.give(std::move(*product));
}

/// A scale of a matrix operand or result: one number.
static FailureOr<Tensor> oneScale(Node &node, unsigned i) {
  Tensor &scale = node.input(i);
  if (failed(node.requireFloat(i)))
    return failure();
  if (scale.rank() > 1 || (scale.rank() == 1 && !scale.shape[0].is(1))) {
    node.unsupported() << "input " << i << " has shape "
                       << toString(node.extents, scale.shape)
                       << "; expected one scale for the whole matrix";
    return failure();
  }
  return node.graph.reshape(scale, {});
}

/// The product of what the operands stand for, quantised.
static LogicalResult lowerQLinearMatMul(Node &node) {
  FailureOr<Tensor> left = centred(node, 0, 2, false);
  FailureOr<Tensor> right = centred(node, 3, 5, true);
  FailureOr<Tensor> a = oneScale(node, 1), b = oneScale(node, 4),
                    y = oneScale(node, 6);
  if (failed(left) || failed(right) || failed(a) || failed(b) || failed(y))
    return failure();
  Tensor &zero = node.input(7);
  ElementType to = zero.type;
  if (!isByte(to) || (zero.rank() && !zero.shape[0].is(1)) || zero.rank() > 1)
    return node.unsupported()
           << "the zero point of the result is " << typeName(to)
           << toString(node.extents, zero.shape)
           << "; expected one uint8 or int8";
  Tensor one = *node.graph.reshape(zero, {});
  FailureOr<Tensor> product = multiplyMatrices(node, *left, *right);
  if (failed(product))
    return failure();
  Type target = storageType(node.graph.ops, to);
  return node.give(node.graph.elementwise(
      {&*product, &*a, &*b, &*y, &one}, product->shape, to, target,
      [&](Body &body, ValueRange in) -> Value {
        Value scale = body.make<arith::DivFOp>(
            body.make<arith::MulFOp>(in[1], in[2]), in[3]);
        Value sum = castElement(body, in[0], ElementType::I32, ElementType::F32,
                                scale.getType());
        return emitQuantised(body, body.make<arith::MulFOp>(sum, scale), in[4],
                             to, target, true);
      }));
}

ArrayRef<Operator> refold::onnx::quantisationOperators() {
  static const Operator rows[] = {
      {"DequantizeLinear", 13, 20, "axis:i", 2, 3, lowerDequantise},
      {"DequantizeLinear", 21, 22, "axis:i block_size:i", 2, 3,
       lowerDequantise},
      {"DequantizeLinear", 23, kLastOpset, "axis:i block_size:i output_dtype:i",
       2, 3, lowerDequantise},
      {"DynamicQuantizeLinear", 13, kLastOpset, "", 1, 1, lowerDynamicQuantise},
      {"MatMulInteger", 13, kLastOpset, "", 2, 4, lowerMatMulInteger},
      {"QLinearMatMul", 13, kLastOpset, "", 8, 8, lowerQLinearMatMul},
      {"QuantizeLinear", 13, 18, "axis:i", 2, 3, lowerQuantise},
      {"QuantizeLinear", 19, 20, "axis:i saturate:i", 2, 3, lowerQuantise},
      {"QuantizeLinear", 21, 22,
       "axis:i block_size:i output_dtype:i saturate:i", 2, 3, lowerQuantise},
      {"QuantizeLinear", 23, kLastOpset,
       "axis:i block_size:i output_dtype:i precision:i saturate:i", 2, 3,
       lowerQuantise},
  };
  return rows;
}
