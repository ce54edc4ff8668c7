// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Losses of a row of scores against one label. The score of the label is the
// sum over the classes of what is kept where the class is the label, so that it
// is read with the scores and not gathered after them.
#include "Operators.h"
#include "Reductions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold::onnx;

namespace {
/// Scores (batch, classes, ...), labels (batch, ...), and what they weigh.
struct Problem {
  Tensor labels;                 ///< (batch, 1, ...)
  std::optional<Tensor> weights; ///< (1, classes, 1, ...)
  std::optional<int64_t> ignored;
  Shape shape;  ///< of the scores
  Shape result; ///< of the labels as given
};
} // namespace

static FailureOr<Problem> readProblem(Node &node) {
  GraphBuilder &graph = node.graph;
  Tensor &scores = node.input(0), &labels = node.input(1);
  if (failed(node.requireFloat(0)))
    return failure();
  if (labels.type != ElementType::I32 && labels.type != ElementType::I64) {
    node.error() << "the labels are of type " << typeName(labels.type)
                 << "; expected int32 or int64";
    return failure();
  }
  bool agrees = scores.rank() >= 2 && labels.rank() + 1 == scores.rank();
  for (unsigned k = 0; agrees && k < labels.rank(); ++k)
    agrees = succeeded(
        graph.requireEqual(labels.shape[k], scores.shape[k ? k + 1 : 0]));
  if (!agrees) {
    node.error() << "labels of shape " << toString(node.extents, labels.shape)
                 << " for scores of shape "
                 << toString(node.extents, scores.shape)
                 << "; expected the shape of the scores without dimension 1";
    return failure();
  }
  Problem problem;
  problem.shape = scores.shape;
  problem.result = labels.shape;
  Shape spread = labels.shape;
  spread.insert(spread.begin() + 1, Extent(1));
  problem.labels = *graph.reshape(labels, spread);
  if (node.has("ignore_index"))
    problem.ignored = node.integer("ignore_index", 0);
  if (!node.hasInput(2))
    return problem;
  Tensor &weights = node.input(2);
  if (failed(node.requireFloat(2)))
    return failure();
  if (weights.rank() != 1 ||
      failed(graph.requireEqual(weights.shape[0], scores.shape[1]))) {
    node.error() << "the weights have shape "
                 << toString(node.extents, weights.shape) << "; expected ("
                 << node.extents.toString(scores.shape[1]) << "), one a class";
    return failure();
  }
  Shape row(scores.rank(), Extent(1));
  row[1] = weights.shape[0];
  problem.weights = *graph.reshape(weights, row);
  return problem;
}

/// label == ignore_index, or null where none is ignored.
static Value isIgnored(Body &body, const Problem &problem, Value label) {
  if (!problem.ignored)
    return Value();
  return body.make<arith::CmpIOp>(
      arith::CmpIPredicate::eq, label,
      body.integer(label.getType(), *problem.ignored));
}

/// Run-time check: every label is a class, or is ignored.
static void requireClasses(Node &node, Problem &problem) {
  GraphBuilder &graph = node.graph;
  const Extent &classes = problem.shape[1];
  Shape shape = problem.labels.shape;
  Tensor inside = graph.elementwise(
      &problem.labels, shape, ElementType::Bool,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        Value isAbove = body.make<arith::CmpIOp>(arith::CmpIPredicate::sge,
                                                 in[0], body.integer(type, 0));
        Value isBelow =
            body.make<arith::CmpIOp>(arith::CmpIPredicate::slt, in[0],
                                     graph.extentIn(body, classes, type));
        Value holds = body.make<arith::AndIOp>(isAbove, isBelow);
        Value skipped = isIgnored(body, problem, in[0]);
        return skipped ? body.make<arith::OrIOp>(holds, skipped) : holds;
      });
  SmallVector<bool> all(shape.size(), true);
  Tensor every =
      graph.reduce(&inside, shape, all, false, Combiner::And, ElementType::Bool,
                   [](Body &, ValueRange in) { return in[0]; });
  graph.requireTrue(graph.valueOf(every),
                    "a label is no class of " +
                        graph.extents.toString(classes) +
                        "; expected 0 to one less, or ignore_index");
}

/// Σ over the classes of fn where the class is the label, 0 where the label is
/// ignored: (batch, ...).
static Tensor atLabel(Node &node, Problem &problem, ArrayRef<Tensor *> terms,
                      ElementFn fn) {
  SmallVector<Tensor *> inputs{&problem.labels};
  inputs.append(terms.begin(), terms.end());
  SmallVector<bool> axes(problem.shape.size(), false);
  axes[1] = true;
  // The batch is always a loop; so are the classes unless there is just one.
  bool isLoop = !problem.shape[1].is(1);
  return node.graph.reduce(
      inputs, problem.shape, axes, false, Combiner::Add, node.input(0).type,
      [&](Body &body, ValueRange in) -> Value {
        Type indexType = body.builder.getIndexType();
        Value here =
            isLoop ? body.make<linalg::IndexOp>(1) : body.integer(indexType, 0);
        Value isLabel = body.make<arith::CmpIOp>(
            arith::CmpIPredicate::eq,
            body.make<arith::IndexCastOp>(indexType, in[0]), here);
        if (Value skipped = isIgnored(body, problem, in[0])) {
          Value isKept = body.make<arith::XOrIOp>(
              skipped, body.integer(skipped.getType(), 1));
          isLabel = body.make<arith::AndIOp>(isLabel, isKept);
        }
        Value value = fn(body, in.drop_front());
        return body.make<arith::SelectOp>(isLabel, value,
                                          body.real(value.getType(), 0));
      });
}

/// 1 for each label, 0 where it is ignored: (batch, ...).
static Tensor countedLabels(Node &node, Problem &problem) {
  GraphBuilder &graph = node.graph;
  ElementType type = node.input(0).type;
  Tensor flat = *graph.reshape(problem.labels, problem.result);
  return graph.elementwise(
      &flat, problem.result, type, [&](Body &body, ValueRange in) -> Value {
        Value one = body.real(computeType(graph.ops, type), 1);
        Value skipped = isIgnored(body, problem, in[0]);
        if (!skipped)
          return one;
        return body.make<arith::SelectOp>(skipped, body.real(one.getType(), 0),
                                          one);
      });
}

/// -log p of each label, weighted, then reduced as the node says.
static LogicalResult giveLoss(Node &node, Problem &problem,
                              Tensor logProbabilities) {
  GraphBuilder &graph = node.graph;
  std::string how = node.string("reduction", "mean");
  if (how != "none" && how != "sum" && how != "mean")
    return node.error() << "reduction is '" << how
                        << "'; expected 'none', 'sum' or 'mean'";
  requireClasses(node, problem);
  SmallVector<Tensor *> terms{&logProbabilities};
  if (problem.weights)
    terms.push_back(&*problem.weights);
  Tensor loss =
      atLabel(node, problem, terms, [](Body &body, ValueRange in) -> Value {
        Value negated = body.make<arith::NegFOp>(in[0]);
        return in.size() > 1 ? body.make<arith::MulFOp>(negated, in[1])
                             : negated;
      });
  if (how == "none")
    return node.give(std::move(loss));
  SmallVector<bool> all(loss.rank(), true);
  Tensor sum = reduceOver(graph, loss, all, false, Combiner::Add, emitSame);
  if (how == "sum")
    return node.give(std::move(sum));
  ElementType type = node.input(0).type;
  Tensor weights = problem.weights
                       ? atLabel(node, problem, &*problem.weights,
                                 [](Body &, ValueRange in) { return in[0]; })
                       : countedLabels(node, problem);
  Tensor total =
      reduceOver(graph, weights, all, false, Combiner::Add, emitSame);
  return node.give(graph.elementwise(
      {&sum, &total}, {}, type, [](Body &body, ValueRange in) -> Value {
        return body.make<arith::DivFOp>(in[0], in[1]);
      }));
}

static LogicalResult lowerNegativeLogLikelihood(Node &node) {
  FailureOr<Problem> problem = readProblem(node);
  if (failed(problem))
    return failure();
  return giveLoss(node, *problem, node.input(0));
}

static LogicalResult lowerCrossEntropy(Node &node) {
  FailureOr<Problem> problem = readProblem(node);
  if (failed(problem))
    return failure();
  SmallVector<bool> axes(problem->shape.size(), false);
  axes[1] = true;
  Tensor logs = logSoftmaxOver(node.graph, node.input(0), axes);
  if (failed(giveLoss(node, *problem, logs)))
    return failure();
  return node.give(1, std::move(logs));
}

ArrayRef<Operator> refold::onnx::lossOperators() {
  static const Operator rows[] = {
      {"NegativeLogLikelihoodLoss", 13, kLastOpset,
       "ignore_index:i reduction:s", 2, 3, lowerNegativeLogLikelihood},
      {"SoftmaxCrossEntropyLoss", 13, kLastOpset, "ignore_index:i reduction:s",
       2, 3, lowerCrossEntropy},
  };
  return rows;
}
