// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// How accesses move with an index, and which index a nest therefore gives the
// lanes.
#include "Plan.h"

#include "mlir/IR/BuiltinAttributes.h"
#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// The factor of dimension `dim` in `expr`, which must be linear in it.
static std::optional<int64_t> coefficientOf(AffineExpr expr, unsigned dim) {
  if (!expr.isFunctionOfDim(dim))
    return 0;
  if (isa<AffineDimExpr>(expr))
    return 1;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return std::nullopt;
  auto left = coefficientOf(binary.getLHS(), dim);
  auto right = coefficientOf(binary.getRHS(), dim);
  if (!left || !right)
    return std::nullopt;
  if (expr.getKind() == AffineExprKind::Add)
    return *left + *right;
  auto factor = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (expr.getKind() == AffineExprKind::Mul && factor)
    return *left * factor.getValue();
  return std::nullopt;
}

static bool isDense(Type operandType, unsigned dim) {
  auto type = dyn_cast<MemRefType>(operandType);
  if (!type || dim + 1 != type.getRank())
    return false;
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  return succeeded(getStridesAndOffset(type, strides, offset)) &&
         strides[dim] == 1;
}

static Along alongMap(Type operandType, AffineMap map, unsigned index,
                      function_ref<bool(unsigned)> varies,
                      function_ref<bool(unsigned)> isIndex) {
  Along along;
  for (auto [k, expr] : llvm::enumerate(map.getResults())) {
    int64_t factor = 0;
    bool depends = false;
    for (unsigned d = 0; d < map.getNumDims(); ++d) {
      if (!varies(d) || !expr.isFunctionOfDim(d))
        continue;
      depends = true;
      auto c = coefficientOf(expr, d);
      if (!isIndex(d) || !c)
        return {Along::Computed, 0, 0};
      factor += *c;
    }
    if (!depends)
      continue;
    if (along.kind != Along::Fixed)
      return {Along::Computed, 0, 0};
    along = {Along::Strided, unsigned(k), factor};
  }
  if (along.kind == Along::Strided && along.coefficient == 1 &&
      isDense(operandType, along.dim))
    along.kind = Along::Unit;
  return along;
}

Along Plan::along(Node *read, unsigned index) {
  auto op = cast<ReadOp>(read->op);
  return alongMap(
      cascade.operandOf(op.getSource()).getType(), op.getMap(), index,
      [&](unsigned d) { return read->in[d]->has(index); },
      [&](unsigned d) { return read->in[d]->kind == Node::Index; });
}

Along Plan::along(WritePlan &write, unsigned index) {
  auto isIt = [&](unsigned d) {
    return cast<BlockArgument>(write.op.getIndices()[d]).getArgNumber() ==
           index;
  };
  return alongMap(cascade.operandOf(write.op.getTarget()).getType(),
                  write.op.getMap(), index, isIt, isIt);
}

std::optional<PartOfGroup> Plan::partOfGroup(Node *n, unsigned index) {
  constexpr int64_t kMost = 4;
  Along along = this->along(n, index);
  auto read = cast<ReadOp>(n->op);
  auto type =
      dyn_cast<MemRefType>(cascade.operandOf(read.getSource()).getType());
  SmallVector<int64_t> strides;
  int64_t offset = 0;
  if (along.kind != Along::Strided || along.coefficient != 1 || !type ||
      failed(getStridesAndOffset(type, strides, offset)))
    return std::nullopt;
  PartOfGroup part;
  for (int64_t d = type.getRank() - 1; d > int64_t(along.dim); --d) {
    auto at = dyn_cast<AffineConstantExpr>(read.getMap().getResult(d));
    if (!at || type.isDynamicDim(d) || strides[d] != part.size)
      return std::nullopt;
    part.place += at.getValue() * part.size;
    part.size *= type.getDimSize(d);
    ++part.dims;
  }
  if (part.size < 2 || part.size > kMost || strides[along.dim] != part.size)
    return std::nullopt;
  return part;
}

int Plan::chooseLane(Node *root, Set candidates) {
  NodeSet all;
  collect(root, all);
  int best = kNone, bestScore = std::numeric_limits<int>::min();
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (!(candidates & bit(i)))
      continue;
    int score = 0;
    for (Node *n : all)
      if (n->kind == Node::Read) {
        Along a = along(n, i);
        score += a.kind == Along::Unit ? 2 : a.kind == Along::Fixed ? 0 : -1;
      }
    if (extent(i) == 1)
      score -= 100;
    if (score >= bestScore) {
      best = i;
      bestScore = score;
    }
  }
  return best;
}

int Plan::laneOf(Node *n) {
  Set outside = n->set & ~(row == kNone ? 0 : bit(row));
  if (hasStream(outside) && !schedule.innerLanes)
    return stream;
  if (Set candidates = outside & (carried | inner))
    return chooseLane(n->in[0], candidates);
  return kNone;
}

TypedAttr walk::identityOf(Reducer reducer, Type type) {
  Builder b(type.getContext());
  if (auto f = dyn_cast<FloatType>(type)) {
    double inf = std::numeric_limits<double>::infinity();
    switch (reducer) {
    case Reducer::Mul:
      return b.getFloatAttr(f, 1.0);
    case Reducer::Max:
    case Reducer::MaxNum:
    case Reducer::TopK:
      return b.getFloatAttr(f, -inf);
    case Reducer::Min:
    case Reducer::MinNum:
    case Reducer::BottomK:
      return b.getFloatAttr(f, inf);
    default:
      return b.getFloatAttr(f, 0.0);
    }
  }
  unsigned width = cast<IntegerType>(type).getWidth();
  switch (reducer) {
  case Reducer::Mul:
    return b.getIntegerAttr(type, APInt(width, 1));
  case Reducer::And:
    return b.getIntegerAttr(type, APInt::getAllOnes(width));
  case Reducer::Max:
  case Reducer::TopK:
    // The order of i1 is false < true.
    return b.getIntegerAttr(type, width == 1 ? APInt(1, 0)
                                             : APInt::getSignedMinValue(width));
  case Reducer::Min:
  case Reducer::BottomK:
    return b.getIntegerAttr(type, width == 1 ? APInt(1, 1)
                                             : APInt::getSignedMaxValue(width));
  default:
    return b.getIntegerAttr(type, APInt(width, 0));
  }
}
