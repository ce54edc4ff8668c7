// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators that scale a row by something reduced from it. Each becomes its
// plain formula; what can be done in one read is found later, from the formula.
#include "Operators.h"
#include "Reductions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold::onnx;

static Tensor subtract(GraphBuilder &graph, Tensor &a, Tensor &b) {
  Shape shape = a.shape;
  return graph.elementwise({&a, &b}, shape, a.type,
                           [](Body &body, ValueRange in) -> Value {
                             return body.make<arith::SubFOp>(in[0], in[1]);
                           });
}

static Value emitExp(Body &body, ValueRange in) {
  return body.make<math::ExpOp>(in[0]);
}

Tensor refold::onnx::logSoftmaxOver(GraphBuilder &graph, Tensor &input,
                                    ArrayRef<bool> axes) {
  Tensor top =
      reduceOver(graph, input, axes, true, Combiner::MaxSticky, emitSame);
  Tensor shifted = subtract(graph, input, top);
  Tensor sum = reduceOver(graph, shifted, axes, true, Combiner::Add, emitExp);
  return graph.elementwise({&shifted, &sum}, input.shape, input.type,
                           [](Body &body, ValueRange in) -> Value {
                             return body.make<arith::SubFOp>(
                                 in[0], body.make<math::LogOp>(in[1]));
                           });
}

/// e^(x - max) / Σ e^(x - max), or its logarithm.
static LogicalResult lowerSoftmax(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  Tensor &input = node.input(0);
  auto axis = node.axisAttribute(-1, input.rank());
  if (failed(axis))
    return failure();
  SmallVector<bool> axes(input.rank(), false);
  axes[*axis] = true;
  GraphBuilder &graph = node.graph;
  if (node.op() == "LogSoftmax")
    return node.give(logSoftmaxOver(graph, input, axes));
  Tensor top =
      reduceOver(graph, input, axes, true, Combiner::MaxSticky, emitSame);
  Tensor shifted = subtract(graph, input, top);
  Tensor terms = graph.elementwise(&shifted, input.shape, input.type, emitExp);
  Tensor sum = reduceOver(graph, terms, axes, true, Combiner::Add, emitSame);
  return node.give(graph.elementwise({&terms, &sum}, input.shape, input.type,
                                     [](Body &body, ValueRange in) -> Value {
                                       return body.make<arith::DivFOp>(in[0],
                                                                       in[1]);
                                     }));
}

namespace {
struct Moments {
  Tensor mean, centred, inverseDeviation;
};
} // namespace

/// 1 / √(mean + epsilon).
static Tensor inverseRoot(GraphBuilder &graph, Tensor &mean, double epsilon) {
  return graph.elementwise(
      &mean, mean.shape, mean.type, [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value sum = body.make<arith::AddFOp>(in[0], body.real(type, epsilon));
        return body.make<arith::DivFOp>(body.real(type, 1),
                                        body.make<math::SqrtOp>(sum));
      });
}

/// Mean, distance from it, and 1 / √(variance + epsilon).
static Moments momentsOver(GraphBuilder &graph, Tensor &input,
                           ArrayRef<bool> axes, double epsilon) {
  Moments result;
  result.mean = meanOver(graph, input, axes, true, emitSame);
  result.centred = subtract(graph, input, result.mean);
  Tensor variance = meanOver(graph, result.centred, axes, true, emitSquare);
  result.inverseDeviation = inverseRoot(graph, variance, epsilon);
  return result;
}

/// centred * inverseDeviation * scale + bias; either of the last may be null.
static LogicalResult giveScaled(Node &node, Moments &moments, Tensor *scale,
                                Tensor *bias, ArrayRef<Extent> shape) {
  SmallVector<Tensor *> inputs{&moments.centred, &moments.inverseDeviation};
  if (scale)
    inputs.push_back(scale);
  if (bias)
    inputs.push_back(bias);
  FailureOr<Shape> common = node.broadcast(inputs);
  if (failed(common))
    return failure();
  if (!node.areEqual(*common, shape))
    return node.error() << "scale or bias broadcasts the input to "
                        << toString(node.extents, *common) << "; expected "
                        << toString(node.extents, shape);
  return node.give(node.graph.elementwise(
      inputs, shape, node.input(0).type,
      [&](Body &body, ValueRange in) -> Value {
        Value value = body.make<arith::MulFOp>(in[0], in[1]);
        if (scale)
          value = body.make<arith::MulFOp>(value, in[2]);
        if (bias)
          value = body.make<arith::AddFOp>(value, in.back());
        return value;
      }));
}

/// All axes from `axis` (the last) on.
static FailureOr<SmallVector<bool>> axesFrom(Node &node, unsigned rank) {
  auto axis = node.axisAttribute(-1, rank);
  if (failed(axis))
    return failure();
  SmallVector<bool> axes(rank, false);
  std::fill(axes.begin() + *axis, axes.end(), true);
  return axes;
}

static LogicalResult lowerLayerNorm(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  Tensor &input = node.input(0);
  FailureOr<SmallVector<bool>> axes = axesFrom(node, input.rank());
  if (failed(axes))
    return failure();
  Moments moments =
      momentsOver(node.graph, input, *axes, node.real("epsilon", 1e-5f));
  // They are float whatever the input, if stash_type says so (the default).
  for (auto [i, tensor] : {std::pair(1u, &moments.mean),
                           std::pair(2u, &moments.inverseDeviation)}) {
    if (!node.wants(i))
      continue;
    Tensor stashed = *tensor;
    if (input.type != ElementType::F64)
      stashed.type = ElementType::F32;
    if (failed(node.give(i, stashed)))
      return failure();
  }
  return giveScaled(node, moments, &node.input(1),
                    node.hasInput(2) ? &node.input(2) : nullptr, input.shape);
}

/// x / √(mean(x²) + epsilon) * scale.
static LogicalResult lowerRootMeanSquareNorm(Node &node) {
  if (failed(node.requireFloat(0)) || failed(node.requireFloat(1)))
    return failure();
  Tensor &input = node.input(0);
  FailureOr<SmallVector<bool>> axes = axesFrom(node, input.rank());
  if (failed(axes))
    return failure();
  Moments moments;
  moments.centred = input;
  Tensor square = meanOver(node.graph, input, *axes, true, emitSquare);
  moments.inverseDeviation =
      inverseRoot(node.graph, square, node.real("epsilon", 1e-5f));
  return giveScaled(node, moments, &node.input(1), nullptr, input.shape);
}

/// A vector with one entry a channel, as a tensor that broadcasts to rank
/// `rank`.
static FailureOr<Tensor> perChannel(Node &node, Tensor &vector,
                                    const Extent &channels, unsigned rank) {
  if (vector.rank() != 1 ||
      failed(node.graph.requireEqual(vector.shape[0], channels))) {
    node.error() << "scale, bias or a statistic has shape "
                 << toString(node.extents, vector.shape) << "; expected ("
                 << node.extents.toString(channels) << ")";
    return failure();
  }
  Shape shape(rank, Extent(1));
  shape[1] = vector.shape[0];
  return node.graph.reshape(vector, shape);
}

static LogicalResult requireChannels(Node &node, unsigned least) {
  if (node.input(0).rank() < least)
    return node.error() << "input 0 has rank " << node.input(0).rank()
                        << "; expected at least " << least;
  return node.requireFloat(0);
}

static LogicalResult lowerInstanceNorm(Node &node) {
  Tensor &input = node.input(0);
  if (failed(requireChannels(node, 3)))
    return failure();
  SmallVector<bool> axes(input.rank(), true);
  axes[0] = axes[1] = false;
  Extent channels = input.shape[1];
  auto scale = perChannel(node, node.input(1), channels, input.rank());
  auto bias = perChannel(node, node.input(2), channels, input.rank());
  if (failed(scale) || failed(bias))
    return failure();
  Moments moments =
      momentsOver(node.graph, input, axes, node.real("epsilon", 1e-5f));
  return giveScaled(node, moments, &*scale, &*bias, input.shape);
}

/// Channels as (groups, channels of a group).
static FailureOr<Tensor> inGroups(Node &node) {
  Tensor &input = node.input(0);
  if (failed(requireChannels(node, 3)))
    return failure();
  int64_t groups = node.integer("num_groups", 0);
  std::optional<Extent> each;
  if (groups > 0)
    each = node.extents.divideExactly(input.shape[1], Extent(groups));
  if (!each) {
    node.error() << "num_groups is " << groups << " for "
                 << node.extents.toString(input.shape[1])
                 << " channels; expected a divisor";
    return failure();
  }
  Shape grouped{input.shape[0], Extent(groups), *each};
  grouped.append(input.shape.begin() + 2, input.shape.end());
  FailureOr<Tensor> view = node.graph.reshape(input, grouped);
  if (failed(view))
    node.error() << "the channels cannot be grouped; expected a divisor";
  return view;
}

/// The norm over each group of `view`, in the shape of the input.
static LogicalResult giveGrouped(Node &node, Tensor &view, Tensor &scale,
                                 Tensor &bias) {
  SmallVector<bool> axes(view.rank(), true);
  axes[0] = axes[1] = false;
  Moments moments =
      momentsOver(node.graph, view, axes, node.real("epsilon", 1e-5f));
  if (failed(giveScaled(node, moments, &scale, &bias, view.shape)))
    return failure();
  FailureOr<Tensor> back =
      node.graph.reshape(*node.results[0], node.input(0).shape);
  if (failed(back))
    return failure();
  return node.give(std::move(*back));
}

/// Scale and bias have one entry a group (opset 18).
static LogicalResult lowerGroupNorm(Node &node) {
  FailureOr<Tensor> view = inGroups(node);
  if (failed(view))
    return failure();
  Extent groups = view->shape[1];
  auto scale = perChannel(node, node.input(1), groups, view->rank());
  auto bias = perChannel(node, node.input(2), groups, view->rank());
  if (failed(scale) || failed(bias))
    return failure();
  return giveGrouped(node, *view, *scale, *bias);
}

/// Scale and bias have one entry a channel (from opset 21).
static LogicalResult lowerChannelGroupNorm(Node &node) {
  FailureOr<Tensor> view = inGroups(node);
  if (failed(view))
    return failure();
  auto inGroup = [&](Tensor &vector) -> FailureOr<Tensor> {
    auto channels =
        perChannel(node, vector, node.input(0).shape[1], view->rank());
    if (failed(channels))
      return failure();
    Shape shape(view->rank(), Extent(1));
    shape[1] = view->shape[1];
    shape[2] = view->shape[2];
    return node.graph.reshape(*channels, shape);
  };
  auto scale = inGroup(node.input(1)), bias = inGroup(node.input(2));
  if (failed(scale) || failed(bias))
    return failure();
  return giveGrouped(node, *view, *scale, *bias);
}

/// With the running statistics: inference.
static LogicalResult lowerBatchNorm(Node &node) {
  Tensor &input = node.input(0);
  if (failed(requireChannels(node, 2)))
    return failure();
  if (node.integer("training_mode", 0) != 0)
    return node.unsupported() << "training_mode is 1; expected 0, inference";
  std::vector<Tensor> rows;
  Extent channels = input.shape[1];
  for (unsigned i = 1; i < 5; ++i) {
    auto row = perChannel(node, node.input(i), channels, input.rank());
    if (failed(row))
      return failure();
    rows.push_back(*row);
  }
  double epsilon = node.real("epsilon", 1e-5f);
  return node.give(node.graph.elementwise(
      {&input, &rows[0], &rows[1], &rows[2], &rows[3]}, input.shape, input.type,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value centred = body.make<arith::SubFOp>(in[0], in[3]);
        Value deviation = body.make<math::SqrtOp>(
            body.make<arith::AddFOp>(in[4], body.real(type, epsilon)));
        Value scaled = body.make<arith::MulFOp>(
            body.make<arith::DivFOp>(centred, deviation), in[1]);
        return body.make<arith::AddFOp>(scaled, in[2]);
      }));
}

static LogicalResult lowerMeanVariance(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  SmallVector<int64_t> axes = node.integers("axes");
  if (!node.has("axes"))
    axes = {0, 2, 3};
  auto flags = node.axisSet(axes, node.input(0).rank());
  if (failed(flags))
    return failure();
  // The specification adds 1e-9 to the deviation; to the variance it is 1e-18.
  Moments moments = momentsOver(node.graph, node.input(0), *flags, 1e-18);
  return giveScaled(node, moments, nullptr, nullptr, node.input(0).shape);
}

static LogicalResult lowerLpNorm(Node &node) {
  if (failed(node.requireFloat(0)))
    return failure();
  Tensor &input = node.input(0);
  int64_t power = node.integer("p", 2);
  if (power != 1 && power != 2)
    return node.error() << "p is " << power << "; expected 1 or 2";
  auto axis = node.axisAttribute(-1, input.rank());
  if (failed(axis))
    return failure();
  SmallVector<bool> axes(input.rank(), false);
  axes[*axis] = true;
  GraphBuilder &graph = node.graph;
  Tensor sum = reduceOver(graph, input, axes, true, Combiner::Add,
                          [&](Body &body, ValueRange in) -> Value {
                            if (power == 1)
                              return body.make<math::AbsFOp>(in[0]);
                            return body.make<arith::MulFOp>(in[0], in[0]);
                          });
  return node.give(graph.elementwise(
      {&input, &sum}, input.shape, input.type,
      [&](Body &body, ValueRange in) -> Value {
        Value length = power == 1 ? in[1] : body.make<math::SqrtOp>(in[1]);
        // A row of zeros stays one.
        Value isZero = body.make<arith::CmpFOp>(
            arith::CmpFPredicate::OEQ, length, body.real(length.getType(), 0));
        length = body.make<arith::SelectOp>(
            isZero, body.real(length.getType(), 1), length);
        return body.make<arith::DivFOp>(in[0], length);
      }));
}

ArrayRef<Operator> refold::onnx::normalisationOperators() {
  static const Operator rows[] = {
      {"BatchNormalization", 14, kLastOpset,
       "epsilon:f momentum:f training_mode:i", 5, 5, lowerBatchNorm},
      {"GroupNormalization", 18, 20, "epsilon:f num_groups:i", 3, 3,
       lowerGroupNorm},
      {"GroupNormalization", 21, kLastOpset,
       "epsilon:f num_groups:i stash_type:i", 3, 3, lowerChannelGroupNorm},
      {"InstanceNormalization", 13, kLastOpset, "epsilon:f", 3, 3,
       lowerInstanceNorm},
      {"LayerNormalization", 17, kLastOpset, "axis:i epsilon:f stash_type:i", 2,
       3, lowerLayerNorm},
      {"LogSoftmax", 13, kLastOpset, "axis:i", 1, 1, lowerSoftmax},
      {"LpNormalization", 13, kLastOpset, "axis:i p:i", 1, 1, lowerLpNorm},
      {"MeanVarianceNormalization", 13, kLastOpset, "axes:is", 1, 1,
       lowerMeanVariance},
      {"RMSNormalization", 23, kLastOpset, "axis:i epsilon:f stash_type:i", 2,
       2, lowerRootMeanSquareNorm},
      {"Softmax", 13, kLastOpset, "axis:i", 1, 1, lowerSoftmax},
  };
  return rows;
}
