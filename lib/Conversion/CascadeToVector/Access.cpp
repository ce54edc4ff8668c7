// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Reads and writes of operands and of arrays in a workspace: a dense access
// along the lanes is a register, a strided or computed one a gather.
#include "Kernel.h"

#include "mlir/IR/AffineMap.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// Arrays
//===----------------------------------------------------------------------===//

Ix Kernel::offsetIn(Tile &t, const Array &a, int r, int c) {
  Ix sum = a.buffer.offset;
  // What moves in the innermost loop comes last, so that the rest leaves the
  // loop.
  for (bool isReduced : {false, true})
    for (const Array::Dim &d : a.dims)
      if ((int(d.index) == t.reduced) == isReduced &&
          !(a.isOfRow && onlyRow && int(d.index) == plan.row))
        sum = to.add(sum, to.mul(localAt(t, d.index, r, c), d.stride));
  return sum;
}

static const Array::Dim *dimOf(const Array &a, int index) {
  for (const Array::Dim &d : a.dims)
    if (int(d.index) == index)
      return &d;
  return nullptr;
}

Val Kernel::readArray(Tile &t, const Array &a, int r, int c) {
  Ix at = offsetIn(t, a, r, c);
  const Array::Dim *lane = t.lane == kNone ? nullptr : dimOf(a, t.lane);
  if (!lane)
    return a.isWide ? to.loadWide(a.buffer, at, Val()) : to.load(a.buffer, at);
  // Behind the lanes of any other index an array has room for a register.
  if (lane->stride.is(1))
    return to.loadWide(a.buffer, at, t.lane == plan.row ? maskOf(t, c) : Val());
  return to.gather(a.buffer, to.wideIndex(at, lane->stride), maskOf(t, c));
}

void Kernel::writeArray(Tile &t, const Array &a, int r, int c, Val v) {
  Ix at = offsetIn(t, a, r, c);
  const Array::Dim *lane = t.lane == kNone ? nullptr : dimOf(a, t.lane);
  if (!lane && !a.isWide)
    return to.store(v, a.buffer, at);
  if (!lane)
    return to.storeWide(to.splat(v), a.buffer, at, Val());
  if (lane->stride.is(1))
    return to.storeWide(to.splat(v), a.buffer, at, Val());
  to.scatter(to.splat(v), a.buffer, to.wideIndex(at, lane->stride),
             maskOf(t, c));
}

//===----------------------------------------------------------------------===//
// Operands
//===----------------------------------------------------------------------===//

Ix Kernel::subscript(Tile &t, AffineExpr e, ArrayRef<Ix> dims) {
  if (auto constant = dyn_cast<AffineConstantExpr>(e))
    return Ix(constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(e))
    return dims[dim.getPosition()];
  auto binary = cast<AffineBinaryOpExpr>(e);
  Ix x = subscript(t, binary.getLHS(), dims);
  Ix y = subscript(t, binary.getRHS(), dims);
  switch (e.getKind()) {
  case AffineExprKind::Add:
    return to.add(x, y);
  case AffineExprKind::Mul:
    return to.mul(x, y);
  case AffineExprKind::Mod:
    return to.rem(x, y);
  case AffineExprKind::CeilDiv:
    return to.ceilDiv(x, y);
  default:
    return to.div(x, y);
  }
}

Val Kernel::wideSubscript(Tile &t, AffineExpr e, ArrayRef<Node *> in, int r,
                          int c) {
  if (auto constant = dyn_cast<AffineConstantExpr>(e))
    return to.wideIndex(Ix(constant.getValue()), Ix(0));
  if (auto dim = dyn_cast<AffineDimExpr>(e)) {
    Node *n = in[dim.getPosition()];
    if (n->kind == Node::Index)
      return to.wideIndex(positionAt(t, n->index, r, c),
                          Ix(int(n->index) == t.lane ? 1 : 0));
    return to.toWideIndex(to.splat(eval(t, n, r, c)));
  }
  auto binary = cast<AffineBinaryOpExpr>(e);
  Val x = wideSubscript(t, binary.getLHS(), in, r, c);
  Val y = wideSubscript(t, binary.getRHS(), in, r, c);
  switch (e.getKind()) {
  case AffineExprKind::Add:
    return to.wideIndexOp(IndexOp::Add, x, y);
  case AffineExprKind::Mul:
    return to.wideIndexOp(IndexOp::Mul, x, y);
  case AffineExprKind::Mod:
    return to.wideIndexOp(IndexOp::Rem, x, y);
  case AffineExprKind::CeilDiv: {
    Val one = to.wideIndex(Ix(-1), Ix(0));
    Val sum =
        to.wideIndexOp(IndexOp::Add, to.wideIndexOp(IndexOp::Add, x, y), one);
    return to.wideIndexOp(IndexOp::Div, sum, y);
  }
  default:
    return to.wideIndexOp(IndexOp::Div, x, y);
  }
}

static unsigned operandOf(CascadeOp cascade, Value arg) {
  return cast<BlockArgument>(arg).getArgNumber() - cascade.numIndices();
}

Ix Kernel::offsetOf(Tile &t, Node *n, int r, int c) {
  auto read = cast<ReadOp>(n->op);
  unsigned operand = operandOf(plan.cascade, read.getSource());
  SmallVector<Ix> dims;
  for (Node *i : n->in)
    dims.push_back(i->kind == Node::Index ? positionAt(t, i->index, r, c)
                                          : to.toIndex(eval(t, i, r, c)));
  Ix sum = to.operand(operand).offset;
  for (bool isReduced : {false, true})
    for (auto [k, e] : llvm::enumerate(read.getMap().getResults())) {
      bool varies = false;
      for (auto [d, i] : llvm::enumerate(n->in))
        varies |=
            t.reduced != kNone && i->has(t.reduced) && e.isFunctionOfDim(d);
      if (varies == isReduced)
        sum = to.add(sum, to.mul(subscript(t, e, dims), to.stride(operand, k)));
    }
  return sum;
}

/// Whether the value lies in panels along this tile's lanes: another nest may
/// have its lanes along another index of the same read.
bool Kernel::hasPanel(Tile &t, Node *n) {
  auto it = plan.packs.find(n);
  return t.panel && it != plan.packs.end() && !it->second.inPairs &&
         int(it->second.laneIndex) == t.lane;
}

/// The place of a tile in what is outer of a pack.
Ix Kernel::outerAt(Tile &t, PackPlan &pack, const PackPlan::Outer &outer, int r,
                   int c) {
  if (outer.index != kNone)
    return to.div(positionAt(t, outer.index, r, c), outer.divisor);
  auto read = cast<ReadOp>(pack.read->op);
  SmallVector<Ix> dims;
  for (Node *i : pack.read->in)
    dims.push_back(positionAt(t, i->index, r, c));
  return subscript(t, read.getMap().getResult(outer.dim), dims);
}

/// Of the register at `depth` along the panel.
Ix Kernel::panelOffset(Tile &t, Node *value, Ix depth, int r, int c) {
  PackPlan &pack = plan.packs.find(value)->second;
  if (pack.isOwn) {
    Ix lane = to.mul(to.add(t.inPanel, c * to.lanes()), pack.group);
    Ix size = to.mul(packDepthOf(pack), plan.registerLanes);
    return to.add(to.add(to.mul(t.ownPanel, size), lane),
                  to.mul(depth, Ix(plan.registerLanes)));
  }
  Ix outer(0);
  for (PackPlan::Outer &o : pack.outer)
    outer =
        to.add(to.mul(outer, outerCount(pack, o)), outerAt(t, pack, o, r, c));
  if (!isInRounds.is(0))
    outer = to.rem(outer, to.max(heldOf(value, pack), 1));
  Ix numPanels = to.ceilDiv(extents[pack.laneIndex], plan.registerLanes);
  Ix panel = to.add(to.mul(outer, numPanels), *t.panel);
  Ix offset = to.mul(to.mul(panel, packDepthOf(pack)), plan.registerLanes);
  offset =
      to.add(offset, to.mul(to.add(t.inPanel, c * to.lanes()), pack.group));
  return to.add(offset, to.mul(depth, Ix(plan.registerLanes)));
}

Ix Kernel::panelOffset(Tile &t, Node *value, int r, int c) {
  PackPlan &pack = plan.packs.find(value)->second;
  Ix depth(0);
  for (PackPlan::Depth &d : pack.depths)
    depth =
        to.add(to.mul(depth, extents[d.index]), positionAt(t, d.index, r, c));
  if (pack.isOwn && pack.reducedIndex != kNone)
    depth = to.sub(localAt(t, pack.reducedIndex, r, c),
                   slice ? slice->first : Ix(0));
  else if (pack.reducedIndex != kNone)
    depth = to.add(to.mul(depth, extents[pack.reducedIndex]),
                   positionAt(t, pack.reducedIndex, r, c));
  return panelOffset(t, value, depth, r, c);
}

Val Kernel::readPanel(Tile &t, Node *n, int r, int c) {
  return to.loadWide(panels.at(n), panelOffset(t, n, r, c), Val());
}

/// A value to be read in pairs: 0 behind the last lane.
Val Kernel::halfOf(Tile &t, Node *n, int r, int c) {
  if (n->kind != Node::Elem)
    return eval(t, n, r, c);
  Val x = to.splat(eval(t, n->in[0], r, c));
  if (t.laneLimit)
    x = to.select(
        maskOf(t, c), x,
        to.splat(to.constant(identityOf(Reducer::Add, n->in[0]->type))));
  return to.narrow(x, n->type);
}

/// A kept value of a few registers of a row, as many at once as a store takes.
void Kernel::writeColumns(Node *n, Tile &inside, int64_t count) {
  const Array &array = kept.at(n);
  auto valueOf = [&](int64_t c) {
    return plan.isPaired(n) ? halfOf(inside, n, 0, c) : eval(inside, n, 0, c);
  };
  int64_t each = to.registersOfStore(array.buffer.element);
  const Array::Dim *lane =
      inside.lane == kNone ? nullptr : dimOf(array, inside.lane);
  // Columns of another index are not side by side.
  bool areTogether = each > 1 && count % each == 0 && inside.column == kNone &&
                     lane && lane->stride.is(1);
  if (!areTogether) {
    for (int64_t c = 0; c < count; ++c)
      writeArray(inside, array, 0, c, valueOf(c));
    return;
  }
  for (int64_t first = 0; first < count; first += each) {
    Values together;
    for (int64_t c = first; c < first + each; ++c)
      together.push_back(to.splat(valueOf(c)));
    to.storeTogether(together, array.buffer, offsetIn(inside, array, 0, first),
                     /*isStreamed=*/false);
  }
}

Val Kernel::readOperand(Tile &t, Node *n, int r, int c) {
  auto read = cast<ReadOp>(n->op);
  unsigned operand = operandOf(plan.cascade, read.getSource());
  Buffer from = to.operand(operand);
  if (t.lane == kNone || !n->has(t.lane))
    return to.load(from, offsetOf(t, n, r, c));
  if (hasPanel(t, n))
    return readPanel(t, n, r, c);
  Along along = plan.along(n, t.lane);
  if (along.kind == Along::Unit)
    return to.loadWide(from, offsetOf(t, n, r, c), maskOf(t, c));
  if (along.kind == Along::Strided && !maskOf(t, c))
    if (auto part = plan.partOfGroup(n, t.lane))
      return to.loadEvery(from, to.sub(offsetOf(t, n, r, c), part->place),
                          part->place, part->size);
  if (along.kind == Along::Strided)
    return to.gather(
        from,
        to.wideIndex(offsetOf(t, n, r, c),
                     to.mul(to.stride(operand, along.dim), along.coefficient)),
        maskOf(t, c));
  Val sum = to.wideIndex(from.offset, Ix(0));
  for (auto [k, e] : llvm::enumerate(read.getMap().getResults())) {
    Val at = wideSubscript(t, e, n->in, r, c);
    Val stride = to.wideIndex(to.stride(operand, k), Ix(0));
    sum = to.wideIndexOp(IndexOp::Add, sum,
                         to.wideIndexOp(IndexOp::Mul, at, stride));
  }
  return to.gather(from, sum, maskOf(t, c));
}

Ix Kernel::targetOf(Tile &t, WritePlan &w, int r, int c) {
  unsigned operand = operandOf(plan.cascade, w.op.getTarget());
  SmallVector<Ix> dims;
  for (Value i : w.op.getIndices())
    dims.push_back(positionAt(t, cast<BlockArgument>(i).getArgNumber(), r, c));
  Ix at = to.operand(operand).offset;
  for (auto [k, e] : llvm::enumerate(w.op.getMap().getResults()))
    at = to.add(at, to.mul(subscript(t, e, dims), to.stride(operand, k)));
  return at;
}

void Kernel::storeWrite(Tile &t, WritePlan &w, int r, int c, Val v,
                        bool isStreamed) {
  unsigned operand = operandOf(plan.cascade, w.op.getTarget());
  Buffer target = to.operand(operand);
  Ix at = targetOf(t, w, r, c);
  Along along = t.lane == kNone ? Along() : plan.along(w, t.lane);
  if (along.kind == Along::Fixed)
    return to.store(v, target, at);
  if (along.kind == Along::Unit && isStreamed && !t.laneLimit)
    return to.storeStreaming(to.splat(v), target, at);
  if (along.kind == Along::Unit)
    return to.storeWide(to.splat(v), target, at, maskOf(t, c));
  to.scatter(to.splat(v), target,
             to.wideIndex(at, to.stride(operand, along.dim)), maskOf(t, c));
}

unsigned Kernel::numberOfOperand(Node *read) {
  return operandOf(plan.cascade, cast<ReadOp>(read->op).getSource());
}

Buffer Kernel::operandOfRead(Node *read) {
  return to.operand(numberOfOperand(read));
}

unsigned Kernel::numberOfTarget(WritePlan &w) {
  return operandOf(plan.cascade, w.op.getTarget());
}

Buffer Kernel::targetBuffer(WritePlan &w) {
  return to.operand(numberOfTarget(w));
}
