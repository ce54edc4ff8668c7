// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which cascades are rows of products: a block computes whole rows by matrix
// units, and folds them as any row.
#include "RowKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

/// Elements of a row that the registers of a block hold.
static constexpr int64_t kLongest = 512;

static InFlightDiagnostic refuseProducts(RowKernel &kernel) {
  return refuse(kernel.plan->cascade, Reason::CudaNotProducts);
}

static LogicalResult chooseIndices(RowKernel &kernel, int &depth) {
  CascadeOp op = kernel.plan->cascade;
  unsigned numStreams = 0, numInner = 0, numCarried = 0;
  for (unsigned i = 0; i < op.numIndices(); ++i)
    switch (op.getRoles()[i]) {
    case CascadeOp::Row:
      kernel.rows.push_back(i);
      break;
    case CascadeOp::Stream:
      ++numStreams, kernel.stream = int(i);
      break;
    case CascadeOp::Inner:
      ++numInner, depth = int(i);
      break;
    default:
      if (llvm::any_of(kernel.plan->states, [&](StatePlan &s) {
            return s.op.isOrdered() && rankOf(s) == i;
          }))
        kernel.ranks.push_back(i);
      else
        ++numCarried;
    }
  if (numStreams != 1 || numInner != 1 || numCarried != 0)
    return refuseProducts(kernel)
           << "found " << numStreams << " stream, " << numInner << " inner and "
           << numCarried << " carried indices; expected one, one, and none";
  int64_t length = kernel.plan->extent(kernel.stream);
  if (ShapedType::isDynamic(length) || length > kLongest)
    return refuseProducts(kernel)
           << "found rows of "
           << (ShapedType::isDynamic(length) ? "an unknown number of"
                                             : llvm::Twine(length).str())
           << " products; expected a number that the program fixes, at most "
           << kLongest;
  return success();
}

/// The only sum of products, and what is multiplied: `left` moves with rows,
/// `right` with the stream.
static LogicalResult findProduct(RowKernel &kernel, unsigned depth) {
  NodeSet all;
  for (StatePlan &s : kernel.plan->states) {
    collect(s.term, all);
    for (Node *n : s.payloads)
      collect(n, all);
  }
  for (auto *writes : {&kernel.plan->finishWrites, &kernel.plan->sweepWrites})
    for (WritePlan &w : *writes)
      collect(w.value, all);
  RowProduct product;
  product.depth = depth;
  for (Node *n : all)
    if (n->kind == Node::Contract && (n->over & bit(depth))) {
      if (product.sum)
        return refuseProducts(kernel)
               << "found several sums of products; expected one";
      product.sum = n;
    }
  if (!product.sum || !kernel.hasStream(product.sum))
    return refuseProducts(kernel) << "found no product along the stream";
  Node *term = product.sum->in[0], *sides[2] = {};
  if (term->kind == Node::Elem && isa<arith::MulFOp>(term->op))
    for (unsigned i : {0, 1})
      sides[i] = widenedRead(term->in[i]);
  if (!sides[0] || !sides[1] || sides[0]->type != sides[1]->type)
    return refuseProducts(kernel)
           << "found a sum of something else than products of two f16 or two "
              "bf16 arrays; expected that, which is what matrix units take";
  if (dependsOn(sides[0], kernel.stream))
    std::swap(sides[0], sides[1]);
  if (dependsOn(sides[0], kernel.stream) || !dependsOn(sides[1], kernel.stream))
    return refuseProducts(kernel)
           << "found a product of which not one side alone moves along the "
              "stream";
  product.left.read = sides[0];
  product.right.read = sides[1];
  kernel.product = product;
  return success();
}

/// `index` is one subscript of the read and in no other one; its dimension, or
/// -1.
static int dimensionOf(Node *read, unsigned index) {
  int found = -1;
  auto op = cast<ReadOp>(read->op);
  for (auto [dim, expr] : llvm::enumerate(op.getMap().getResults()))
    for (auto [k, n] : llvm::enumerate(read->in)) {
      if (!expr.isFunctionOfDim(k) || !dependsOn(n, index))
        continue;
      bool isPlain = isa<AffineDimExpr>(expr) && n->kind == Node::Index;
      if (!isPlain || found >= 0)
        return -1;
      found = int(dim);
    }
  return found;
}

/// A row index that the left side alone moves with, by a subscript.
static LogicalResult chooseRow(RowKernel &kernel) {
  RowProduct &product = *kernel.product;
  int chosen = walk::kNone;
  for (unsigned row : llvm::reverse(kernel.rows))
    if (!dependsOn(product.right.read, row) &&
        dimensionOf(product.left.read, row) >= 0) {
      chosen = int(row);
      break;
    }
  if (chosen == walk::kNone)
    return refuseProducts(kernel)
           << "found no index of rows that one side alone moves with";
  product.row = chosen;
  llvm::erase_if(kernel.rows, [&](unsigned i) { return int(i) == chosen; });
  return success();
}

LogicalResult cuda::findSide(RowKernel &kernel, RowProduct::Side &side,
                             unsigned along, Reason reason) {
  CascadeOp op = kernel.plan->cascade;
  auto read = cast<ReadOp>(side.read->op);
  side.operand =
      cast<BlockArgument>(read.getSource()).getArgNumber() - op.numIndices();
  side.along = dimensionOf(side.read, along);
  side.depth = dimensionOf(side.read, kernel.product->depth);
  int last = int(read.getMap().getNumResults()) - 1;
  side.isFlat = side.depth == last;
  if (side.along < 0 || side.depth < 0)
    return refuse(op, reason)
           << "found '" << kernel.operandNames[side.operand]
           << "' read at computed places; expected '" << op.indexName(along)
           << "' and '" << op.indexName(kernel.product->depth)
           << "' as subscripts of their own";
  return success();
}

FailureOr<RowKernel> cuda::findProductRows(Plan &plan) {
  RowKernel kernel;
  kernel.plan = &plan;
  int depth = walk::kNone;
  if (failed(chooseIndices(kernel, depth)) || failed(checkRowStates(kernel)) ||
      failed(checkTypes(kernel)) || failed(findProduct(kernel, depth)))
    return failure();
  chooseNames(kernel);
  if (failed(chooseRow(kernel)) ||
      failed(findSide(kernel, kernel.product->left, kernel.product->row,
                      Reason::CudaNotProducts)) ||
      failed(findSide(kernel, kernel.product->right, kernel.stream,
                      Reason::CudaNotProducts)) ||
      failed(findReads(kernel)))
    return failure();
  if (kernel.isByPlaces())
    return refuseProducts(kernel)
           << "found an array that moves along the row otherwise than along "
              "its last dimension";
  return kernel;
}
