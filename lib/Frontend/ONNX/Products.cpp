// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrix products: sums of products over views, whose maps carry transposes,
// broadcasts of batches and split heads.
#include "Contraction.h"
#include "Elementwise.h"
#include "Operators.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold::onnx;

Value refold::onnx::emitProduct(Body &body, ValueRange in) {
  if (in.size() == 1)
    return in[0];
  if (isa<FloatType>(in[0].getType()))
    return body.make<arith::MulFOp>(in[0], in[1]);
  return body.make<arith::MulIOp>(in[0], in[1]);
}

FailureOr<Tensor> refold::onnx::contract(Node &node, Tensor a, Tensor b) {
  auto spread = [&](Tensor &tensor, unsigned place) {
    Shape shape = tensor.shape;
    shape.insert(shape.end() - place, Extent(1));
    return node.graph.reshape(tensor, shape);
  };
  FailureOr<Tensor> left = spread(a, 1), right = spread(b, 2);
  if (failed(left) || failed(right))
    return failure();
  FailureOr<Shape> shape = node.broadcast({&*left, &*right});
  if (failed(shape))
    return failure();
  SmallVector<bool> isReduced(shape->size(), false);
  isReduced.back() = true;
  return node.graph.reduce({&*left, &*right}, *shape, isReduced, false,
                           Combiner::Add, a.type, emitProduct);
}

static SmallVector<unsigned> lastTwoSwapped(unsigned rank) {
  SmallVector<unsigned> order;
  for (unsigned k = 0; k < rank; ++k)
    order.push_back(k);
  std::swap(order[rank - 1], order[rank - 2]);
  return order;
}

static LogicalResult requireInner(Node &node, const Extent &left,
                                  const Extent &right) {
  if (succeeded(node.graph.requireEqual(left, right)))
    return success();
  return node.error() << "inner extents " << node.extents.toString(left)
                      << " and " << node.extents.toString(right)
                      << "; expected equal ones";
}

FailureOr<Tensor> refold::onnx::multiplyMatrices(Node &node, Tensor a,
                                                 Tensor b) {
  if (!a.rank() || !b.rank()) {
    node.error() << "a scalar is an input; expected rank 1 or more";
    return failure();
  }
  bool isRow = a.rank() == 1, isColumn = b.rank() == 1;
  GraphBuilder &graph = node.graph;
  if (isRow)
    a = *graph.reshape(a, {Extent(1), a.shape[0]});
  b = isColumn ? *graph.reshape(b, {Extent(1), b.shape[0]})
               : graph.transpose(b, lastTwoSwapped(b.rank()));
  if (failed(requireInner(node, a.shape.back(), b.shape.back())))
    return failure();
  FailureOr<Tensor> product = contract(node, a, b);
  if (failed(product))
    return failure();
  Shape shape = product->shape;
  if (isColumn)
    shape.pop_back();
  if (isRow)
    shape.erase(shape.end() - (isColumn ? 1 : 2));
  return isRow || isColumn ? graph.reshape(*product, shape) : product;
}

static LogicalResult lowerMatMul(Node &node) {
  if (failed(node.requireSameTypes()))
    return failure();
  if (node.input(0).type == ElementType::Bool)
    return node.error() << "input 0 is of type bool; expected numbers";
  FailureOr<Tensor> product =
      multiplyMatrices(node, node.input(0), node.input(1));
  return failed(product) ? failure() : node.give(std::move(*product));
}

/// alpha * A' B' + beta * C.
static LogicalResult lowerGemm(Node &node) {
  if (failed(node.requireSameTypes()))
    return failure();
  GraphBuilder &graph = node.graph;
  Tensor a = node.input(0), b = node.input(1);
  if (a.rank() != 2 || b.rank() != 2)
    return node.error() << "ranks " << a.rank() << " and " << b.rank()
                        << "; expected 2 and 2";
  if (node.integer("transA", 0))
    a = graph.transpose(a, {1, 0});
  if (!node.integer("transB", 0))
    b = graph.transpose(b, {1, 0});
  if (failed(requireInner(node, a.shape[1], b.shape[1])))
    return failure();
  double alpha = node.real("alpha", 1), beta = node.real("beta", 1);
  bool isReal = isFloat(a.type);
  if (!isReal && (alpha != 1 || beta != 1))
    return node.error() << "alpha " << alpha << " and beta " << beta
                        << " on integers; expected 1 and 1";
  FailureOr<Tensor> product = contract(node, a, b);
  if (failed(product))
    return failure();
  bool hasBias = node.hasInput(2) && beta != 0;
  if (!hasBias && alpha == 1)
    return node.give(std::move(*product));
  SmallVector<Tensor *> inputs{&*product};
  if (hasBias)
    inputs.push_back(&node.input(2));
  FailureOr<Shape> shape = node.broadcast(inputs);
  if (failed(shape))
    return failure();
  if (!node.areEqual(*shape, product->shape))
    return node.error() << "C has shape "
                        << toString(node.extents, node.input(2).shape)
                        << "; expected one that broadcasts to "
                        << toString(node.extents, product->shape);
  auto scaled = [](Body &body, Value value, double factor) -> Value {
    if (factor == 1)
      return value;
    return body.make<arith::MulFOp>(value, body.real(value.getType(), factor));
  };
  return node.give(graph.elementwise(
      inputs, *shape, a.type, [&](Body &body, ValueRange in) -> Value {
        Value value = scaled(body, in[0], alpha);
        if (!hasBias)
          return value;
        Value bias = scaled(body, in[1], beta);
        if (isReal)
          return body.make<arith::AddFOp>(value, bias);
        return body.make<arith::AddIOp>(value, bias);
      }));
}

ArrayRef<Operator> refold::onnx::productOperators() {
  static const Operator rows[] = {
      {"Gemm", 13, kLastOpset, "alpha:f beta:f transA:i transB:i", 2, 3,
       lowerGemm},
      {"MatMul", 13, kLastOpset, "", 2, 2, lowerMatMul},
  };
  return rows;
}
