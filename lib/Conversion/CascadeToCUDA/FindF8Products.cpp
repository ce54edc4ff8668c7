// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which cascades are products of floats of 8 bits, with what is made of them.
#include "RowKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

static InFlightDiagnostic refuseF8(RowKernel &kernel) {
  return refuse(kernel.plan->cascade, Reason::CudaNotF8Products);
}

/// The read of an 8-bit float that `n` widens; null for anything else.
static Node *widenedByte(Node *n) {
  if (n->kind != Node::Elem || !isa<arith::ExtFOp>(n->op) ||
      n->in[0]->kind != Node::Read ||
      n->in[0]->type.getIntOrFloatBitWidth() != 8)
    return nullptr;
  return n->in[0];
}

/// The only sum of products, and the index that is summed.
static LogicalResult findSum(RowKernel &kernel) {
  Plan &plan = *kernel.plan;
  NodeSet all;
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      collect(w.value, all);
  RowProduct product;
  for (Node *n : all) {
    if (n->kind != Node::Contract)
      continue;
    if (product.sum || llvm::popcount(n->over) != 1)
      return refuseF8(kernel) << "found several sums, or one over several "
                                 "indices; expected one over one index";
    product.sum = n;
    product.depth = unsigned(llvm::countr_zero(n->over));
  }
  if (!product.sum)
    return refuseF8(kernel) << "found no sum of products";
  Node *term = product.sum->in[0], *sides[2] = {};
  if (term->kind == Node::Elem && isa<arith::MulFOp>(term->op))
    for (unsigned i : {0, 1})
      sides[i] = widenedByte(term->in[i]);
  if (!sides[0] || !sides[1])
    return refuseF8(kernel) << "found a sum of something else than products of "
                               "two arrays of 8-bit floats";
  product.left.read = sides[0];
  product.right.read = sides[1];
  kernel.product = product;
  return success();
}

/// The subscripts of all results: rows, then columns.
static LogicalResult findPlaces(RowKernel &kernel) {
  Plan &plan = *kernel.plan;
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes) {
      AffineMap map = w.op.getMap();
      SmallVector<unsigned, 2> places;
      for (AffineExpr e : map.getResults())
        if (auto d = dyn_cast<AffineDimExpr>(e))
          if (auto index =
                  dyn_cast<BlockArgument>(w.op.getIndices()[d.getPosition()]))
            places.push_back(index.getArgNumber());
      bool isKnown = kernel.stream >= 0;
      if (map.getNumResults() != 2 || places.size() != 2 ||
          places[0] == places[1] ||
          (isKnown && (places[0] != kernel.product->row ||
                       int(places[1]) != kernel.stream)))
        return refuseF8(kernel)
               << "found results that are not all written at the same row and "
                  "column";
      kernel.product->row = places[0];
      kernel.stream = int(places[1]);
    }
  if (kernel.stream < 0)
    return refuseF8(kernel) << "found no result";
  return success();
}

FailureOr<RowKernel> cuda::findF8Products(Plan &plan) {
  RowKernel kernel;
  kernel.plan = &plan;
  if (failed(checkTypes(kernel)) || failed(findSum(kernel)) ||
      failed(findPlaces(kernel)))
    return failure();
  RowProduct &product = *kernel.product;
  unsigned row = product.row, column = unsigned(kernel.stream);
  if (dependsOn(product.left.read, column))
    std::swap(product.left, product.right);
  if (dependsOn(product.left.read, column) ||
      dependsOn(product.right.read, row) || plan.cascade.numIndices() != 3)
    return refuseF8(kernel) << "found sides that do not move with one index of "
                               "the result each";
  chooseNames(kernel);
  if (failed(findSide(kernel, product.left, row, Reason::CudaNotF8Products)) ||
      failed(
          findSide(kernel, product.right, column, Reason::CudaNotF8Products)))
    return failure();
  return kernel;
}
