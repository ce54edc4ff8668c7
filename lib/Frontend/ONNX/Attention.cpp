// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Attention as its formula. Query heads that share a head of keys and values
// are a dimension of their own, over which keys and values broadcast.
#include "Contraction.h"
#include "Elementwise.h"
#include "Movement.h"
#include "Operators.h"
#include "Reductions.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace refold::onnx;

namespace {
/// (batch, heads, length, size); queries (batch, heads, group, length, size)
/// where several heads share one of the keys, which have 1 there.
struct Operands {
  Tensor queries, keys, values;
  Extent group = Extent(1);
  Extent past = Extent(0); ///< keys before the first query's own
  bool isGrouped() const { return !group.is(1); }
};
} // namespace

/// (batch, length, heads * size) as (batch, heads, length, size).
static FailureOr<Tensor> splitHeads(Node &node, unsigned i,
                                    StringRef attribute) {
  Tensor &input = node.input(i);
  if (input.rank() == 4)
    return input;
  int64_t heads = node.integer(attribute, 0);
  std::optional<Extent> size;
  if (input.rank() == 3 && heads > 0)
    size = node.extents.divideExactly(input.shape[2], Extent(heads));
  if (!size) {
    node.error() << "input " << i << " has shape "
                 << toString(node.extents, input.shape) << " and " << attribute
                 << " is " << heads
                 << "; expected rank 4, or rank 3 and a number of heads that "
                    "divides the last extent";
    return failure();
  }
  FailureOr<Tensor> split = node.graph.reshape(
      input, {input.shape[0], input.shape[1], Extent(heads), *size});
  if (failed(split))
    return failure();
  return node.graph.transpose(*split, {0, 2, 1, 3});
}

/// What was there before, and the new ones behind it.
static FailureOr<Tensor> behindPast(Node &node, unsigned past, Tensor &tensor) {
  if (!node.hasInput(past))
    return tensor;
  Tensor &before = node.input(past);
  if (before.rank() != 4 || before.type != tensor.type) {
    node.error() << "input " << past << " is " << typeName(before.type)
                 << toString(node.extents, before.shape) << "; expected "
                 << typeName(tensor.type) << " of rank 4";
    return failure();
  }
  return join(node, {&before, &tensor}, 2);
}

/// Heads as (heads of keys, queries a head of keys).
static FailureOr<Tensor> grouped(Node &node, Tensor &tensor,
                                 const Extent &heads, const Extent &group) {
  Shape shape = tensor.shape;
  shape[1] = heads;
  shape.insert(shape.begin() + 2, group);
  return node.graph.reshape(tensor, shape);
}

static FailureOr<Operands> readOperands(Node &node) {
  Operands operands;
  auto queries = splitHeads(node, 0, "q_num_heads");
  auto keys = splitHeads(node, 1, "kv_num_heads");
  auto values = splitHeads(node, 2, "kv_num_heads");
  if (failed(queries) || failed(keys) || failed(values))
    return failure();
  if (node.hasInput(4) != node.hasInput(5)) {
    node.error() << "one of past_key and past_value; expected both or none";
    return failure();
  }
  if (node.hasInput(4) && node.input(4).rank() == 4)
    operands.past = node.input(4).shape[2];
  keys = behindPast(node, 4, *keys);
  values = behindPast(node, 5, *values);
  if (failed(keys) || failed(values))
    return failure();
  operands.queries = *queries;
  operands.keys = *keys;
  operands.values = *values;
  GraphBuilder &graph = node.graph;
  const Extent &heads = operands.keys.shape[1];
  auto group = node.extents.divideExactly(operands.queries.shape[1], heads);
  bool agrees =
      group &&
      succeeded(graph.requireEqual(operands.queries.shape[3],
                                   operands.keys.shape[3])) &&
      succeeded(graph.requireEqual(heads, operands.values.shape[1])) &&
      succeeded(
          graph.requireEqual(operands.keys.shape[2], operands.values.shape[2]));
  if (!agrees) {
    node.error() << "queries " << toString(node.extents, queries->shape)
                 << ", keys " << toString(node.extents, keys->shape)
                 << ", values " << toString(node.extents, values->shape)
                 << "; expected heads that divide the queries', one head size "
                    "and one length";
    return failure();
  }
  operands.group = *group;
  if (!operands.isGrouped())
    return operands;
  auto q = grouped(node, operands.queries, heads, *group);
  auto k = grouped(node, operands.keys, heads, Extent(1));
  auto v = grouped(node, operands.values, heads, Extent(1));
  if (failed(q) || failed(k) || failed(v))
    return failure();
  operands.queries = *q;
  operands.keys = *k;
  operands.values = *v;
  return operands;
}

/// The mask over (batch, heads, group, queries, keys) as the scores have them.
static FailureOr<Tensor> readMask(Node &node, const Operands &operands,
                                  ArrayRef<Extent> scores) {
  Tensor &mask = node.input(3);
  GraphBuilder &graph = node.graph;
  bool agrees =
      mask.rank() >= 2 && mask.rank() <= 4 &&
      (mask.type == ElementType::Bool || mask.type == node.input(0).type);
  Tensor view = mask;
  if (agrees && operands.isGrouped() && mask.rank() >= 3) {
    bool isShared = mask.shape[mask.rank() - 3].is(1);
    Shape shape = mask.shape;
    shape[mask.rank() - 3] = isShared ? Extent(1) : operands.keys.shape[1];
    shape.insert(shape.end() - 2, isShared ? Extent(1) : operands.group);
    FailureOr<Tensor> split = graph.reshape(mask, shape);
    if (failed(split))
      return failure();
    view = *split;
  }
  for (unsigned k = 0; agrees && k < view.rank(); ++k) {
    const Extent &extent = view.shape[k];
    agrees =
        extent.is(1) || succeeded(graph.requireEqual(
                            extent, scores[scores.size() - view.rank() + k]));
  }
  if (agrees)
    return view;
  node.unsupported() << "a mask of " << typeName(mask.type)
                     << toString(node.extents, mask.shape)
                     << "; expected bool or the type of the queries, one for "
                        "every query and key";
  return failure();
}

/// cap * tanh(scores / cap).
static Tensor cappedScores(Node &node, Tensor &plain) {
  double cap = node.real("softcap", 0);
  if (!(cap > 0))
    return plain;
  return node.graph.elementwise(
      &plain, plain.shape, plain.type, [&](Body &body, ValueRange in) -> Value {
        Value bound = body.real(in[0].getType(), cap);
        Value share = body.make<arith::DivFOp>(in[0], bound);
        return body.make<arith::MulFOp>(body.make<math::TanhOp>(share), bound);
      });
}

/// The scores with what the mask and the order of positions forbid at -inf.
static FailureOr<Tensor> maskedScores(Node &node, Operands &operands,
                                      Tensor &plain) {
  GraphBuilder &graph = node.graph;
  bool isCausal = node.integer("is_causal", 0) != 0;
  SmallVector<Tensor *> inputs{&plain};
  Tensor mask;
  bool isFlag = false;
  if (node.hasInput(3)) {
    auto read = readMask(node, operands, plain.shape);
    if (failed(read))
      return failure();
    mask = *read;
    isFlag = mask.type == ElementType::Bool;
    inputs.push_back(&mask);
  }
  unsigned rank = plain.rank();
  return graph.elementwise(
      inputs, plain.shape, plain.type, [&](Body &body, ValueRange in) -> Value {
        Value value = in[0];
        Type type = value.getType(), indexType = body.builder.getIndexType();
        Value never = body.real(type, -HUGE_VAL);
        if (in.size() > 1)
          value = isFlag ? body.make<arith::SelectOp>(in[1], value, never)
                         : body.make<arith::AddFOp>(value, in[1]);
        if (!isCausal)
          return value;
        Value row = graph.subscriptIn(body, plain.shape, rank - 2);
        Value last = body.make<arith::AddIOp>(
            row, graph.extentIn(body, operands.past, indexType));
        Value isSeen = body.make<arith::CmpIOp>(
            arith::CmpIPredicate::sle,
            graph.subscriptIn(body, plain.shape, rank - 1), last);
        return body.make<arith::SelectOp>(isSeen, value, never);
      });
}

/// e^(s - max) / Σ e^(s - max). Under a mask a row may have no key at all: it
/// is 0.
static Tensor probabilities(Node &node, Tensor &scores) {
  GraphBuilder &graph = node.graph;
  bool mayBeEmpty = node.hasInput(3);
  SmallVector<bool> axes(scores.rank(), false);
  axes.back() = true;
  Tensor top =
      reduceOver(graph, scores, axes, true, Combiner::MaxSticky, emitSame);
  Tensor pivot = top;
  if (mayBeEmpty)
    pivot = graph.elementwise(
        &top, top.shape, top.type, [](Body &body, ValueRange in) -> Value {
          Type type = in[0].getType();
          Value isEmpty = body.make<arith::CmpFOp>(
              arith::CmpFPredicate::OEQ, in[0], body.real(type, -HUGE_VAL));
          return body.make<arith::SelectOp>(isEmpty, body.real(type, 0), in[0]);
        });
  Tensor terms = graph.elementwise(
      {&scores, &pivot}, scores.shape, scores.type,
      [](Body &body, ValueRange in) -> Value {
        return body.make<math::ExpOp>(body.make<arith::SubFOp>(in[0], in[1]));
      });
  Tensor sum = reduceOver(graph, terms, axes, true, Combiner::Add, emitSame);
  return graph.elementwise(
      {&terms, &sum}, scores.shape, scores.type,
      [&](Body &body, ValueRange in) -> Value {
        Value total = in[1];
        Type type = total.getType();
        if (mayBeEmpty) {
          Value isEmpty = body.make<arith::CmpFOp>(arith::CmpFPredicate::OEQ,
                                                   total, body.real(type, 0));
          total =
              body.make<arith::SelectOp>(isEmpty, body.real(type, 1), total);
        }
        return body.make<arith::DivFOp>(in[0], total);
      });
}

/// The product of queries and keys, scaled.
static FailureOr<Tensor> scaledProduct(Node &node, Operands &operands) {
  FailureOr<Tensor> product = contract(node, operands.queries, operands.keys);
  if (failed(product))
    return failure();
  Extent size = operands.queries.shape.back();
  GraphBuilder &graph = node.graph;
  return graph.elementwise(
      &*product, product->shape, product->type,
      [&](Body &body, ValueRange in) -> Value {
        Type type = in[0].getType();
        if (node.has("scale"))
          return body.make<arith::MulFOp>(
              in[0], body.real(type, node.real("scale", 1)));
        Value root = body.make<math::SqrtOp>(graph.extentIn(body, size, type));
        return body.make<arith::DivFOp>(in[0], root);
      });
}

/// Without the dimension of the group: (batch, heads, ...).
static FailureOr<Tensor> ungrouped(Node &node, const Operands &operands,
                                   Tensor &tensor) {
  if (!operands.isGrouped())
    return tensor;
  Shape shape = tensor.shape;
  shape[1] = node.extents.mul(shape[1], shape[2]);
  shape.erase(shape.begin() + 2);
  return node.graph.reshape(tensor, shape);
}

/// The optional results: keys and values with their past, and the scores as
/// qk_matmul_output_mode asks.
static LogicalResult giveOthers(Node &node, Operands &operands,
                                ArrayRef<Tensor *> stages) {
  for (auto [i, tensor] :
       {std::pair(1u, &operands.keys), std::pair(2u, &operands.values)}) {
    FailureOr<Tensor> flat = ungrouped(node, operands, *tensor);
    if (failed(flat) || failed(node.give(i, std::move(*flat))))
      return failure();
  }
  if (!node.wants(3))
    return success();
  int64_t mode = node.integer("qk_matmul_output_mode", 0);
  if (mode < 0 || mode > 3)
    return node.error() << "qk_matmul_output_mode is " << mode
                        << "; expected 0 to 3";
  FailureOr<Tensor> flat = ungrouped(node, operands, *stages[mode]);
  return failed(flat) ? failure() : node.give(3, std::move(*flat));
}

static LogicalResult lowerAttention(Node &node) {
  for (unsigned i = 0; i < 3; ++i)
    if (failed(node.requireFloat(i)))
      return failure();
  if (node.input(1).type != node.input(0).type)
    return node.error() << "keys are of type " << typeName(node.input(1).type)
                        << "; expected " << typeName(node.input(0).type);
  if (ElementType(node.integer("softmax_precision", 1)) == ElementType::F64 &&
      node.input(0).type != ElementType::F64)
    return node.unsupported()
           << "softmax_precision is double; expected float or less";
  FailureOr<Operands> operands = readOperands(node);
  if (failed(operands))
    return failure();
  FailureOr<Tensor> plain = scaledProduct(node, *operands);
  if (failed(plain))
    return failure();
  Tensor capped = cappedScores(node, *plain);
  FailureOr<Tensor> scores = maskedScores(node, *operands, capped);
  if (failed(scores))
    return failure();
  Tensor shares = probabilities(node, *scores);
  unsigned rank = operands->values.rank();
  SmallVector<unsigned> turned;
  for (unsigned k = 0; k < rank; ++k)
    turned.push_back(k);
  std::swap(turned[rank - 1], turned[rank - 2]);
  FailureOr<Tensor> product =
      contract(node, shares, node.graph.transpose(operands->values, turned));
  if (failed(product))
    return failure();
  product->type = node.input(0).type;
  FailureOr<Tensor> result = ungrouped(node, *operands, *product);
  if (failed(result))
    return failure();
  if (node.input(0).rank() == 3) {
    Tensor inner = node.graph.transpose(*result, {0, 2, 1, 3});
    Shape shape = inner.shape;
    result = node.graph.reshape(
        inner, {shape[0], shape[1], node.extents.mul(shape[2], shape[3])});
    if (failed(result))
      return failure();
  }
  if (failed(
          giveOthers(node, *operands, {&*plain, &capped, &*scores, &shares})))
    return failure();
  return node.give(std::move(*result));
}

ArrayRef<Operator> refold::onnx::attentionOperators() {
  static const Operator rows[] = {
      {"Attention", 23, kLastOpset,
       "is_causal:i kv_num_heads:i q_num_heads:i qk_matmul_output_mode:i "
       "scale:f softcap:f softmax_precision:i",
       3, 6, lowerAttention},
  };
  return rows;
}
