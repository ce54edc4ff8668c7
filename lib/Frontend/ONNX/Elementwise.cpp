// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Elementwise.h"

using namespace mlir;
using namespace refold::onnx;

LogicalResult refold::onnx::lowerElementwise(Node &node,
                                             ArrayRef<Tensor *> inputs,
                                             ElementType type, ElementFn emit,
                                             FoldFn fold) {
  FailureOr<Shape> shape = node.broadcast(inputs);
  if (failed(shape))
    return failure();
  if (fold)
    if (auto folded = foldElementwise(node, inputs, *shape, type, fold))
      return node.give(std::move(*folded));
  return node.give(node.graph.elementwise(inputs, *shape, type, emit));
}

LogicalResult refold::onnx::lowerReal(Node &node, ElementFn emit, FoldFn fold) {
  if (failed(node.requireFloat(0)))
    return failure();
  return lowerElementwise(node, node.allInputs(), typeOfFirst(node), emit,
                          fold);
}

LogicalResult refold::onnx::requireNumbers(Node &node) {
  if (node.input(0).type == ElementType::Bool)
    return node.error() << "input 0 is of type bool; expected numbers";
  return node.requireSameTypes();
}
