// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The value of a formula in one register of a tile. A value without the lane
// index is a scalar; one without the row index is evaluated once for all rows.
#include "Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

Tile::Key Kernel::keyOf(Tile &t, Node *n, int r, int c) {
  int column = t.column == kNone ? t.lane : t.column;
  bool variesWithColumn = column != kNone && n->has(column);
  return {n, plan.hasRow(n->set) ? r : -1, variesWithColumn ? c : -1};
}

Ix Kernel::localAt(Tile &t, unsigned index, int r, int c) {
  if (int(index) == t.lane)
    return t.laneLocal[t.column == kNone ? c : 0];
  if (int(index) == t.column)
    return t.columnLocal[c];
  if (int(index) == plan.row)
    return t.rowLocal[r];
  return t.local[index];
}

Ix Kernel::positionAt(Tile &t, unsigned index, int r, int c) {
  return to.add(base[index], localAt(t, index, r, c));
}

Val Kernel::maskOf(Tile &t, int c) {
  if (!t.laneLimit)
    return Val();
  return to.mask(to.sub(*t.laneLimit, t.laneLocal[t.column == kNone ? c : 0]));
}

Val Kernel::identity(StatePlan &s) {
  return to.constant(identityOf(s.op.getReducer(), s.type()));
}

std::optional<bool> Kernel::known(Tile &t, Node *n) {
  if (t.keyed)
    for (const StateKey &key : t.keyed->keys)
      if (key.compare == n)
        return true;
  if (t.holding)
    for (const Condition &c : t.holding->conditions)
      if (c.compare == n)
        return true;
  if (n->kind == Node::Elem && isa<arith::AndIOp>(n->op) &&
      n->type.isInteger(1)) {
    auto x = known(t, n->in[0]), y = known(t, n->in[1]);
    if (x && y)
      return *x && *y;
  }
  return std::nullopt;
}

Val Kernel::eval(Tile &t, Node *n, int r, int c) {
  Tile::Key key = keyOf(t, n, r, c);
  for (Tile *scope = &t; scope; scope = scope->outer)
    if (auto it = scope->memo.find(key); it != scope->memo.end())
      return it->second;
  Val v = evalFresh(t, n, r, c);
  t.memo[key] = v;
  return v;
}

Val Kernel::evalState(Tile &t, Node *n, int r, int c) {
  StatePlan &s = plan.states[n->state];
  if (t.keyed && n->kind == Node::Old && s.form != StatePlan::Matrix)
    return readArray(t, placedPivot(t, n), r, c);
  StateArrays &a =
      n->kind == Node::Old && t.side ? others[n->state] : arrays[n->state];
  if (n->kind == Node::Final && s.form == StatePlan::Partial)
    return readArray(t, a.finals, r, c);
  return readArray(t, a.values[n->result], r, c);
}

Val Kernel::evalFresh(Tile &t, Node *n, int r, int c) {
  if (keptReady.contains(n) && !isPlacedOld(t, n))
    return readArray(t, kept.at(n), r, c);
  if (hasOperands && plan.operands.count(n))
    return readArray(t, operands.at(n), r, c);
  switch (n->kind) {
  case Node::Const: {
    TypedAttr a = cast<TypedAttr>(cast<arith::ConstantOp>(n->op).getValue());
    if (n->type.isIndex())
      a = IntegerAttr::get(IntegerType::get(n->type.getContext(), 32),
                           cast<IntegerAttr>(a).getInt());
    return to.constant(a);
  }
  case Node::Param:
    return n->type.isIndex() ? to.toData(Ix(to.scalarOperand(n->index)))
                             : to.scalarOperand(n->index);
  case Node::Index: {
    Ix position = positionAt(t, n->index, r, c);
    return int(n->index) == t.lane ? to.iota(position) : to.toData(position);
  }
  case Node::Extent:
    return to.toData(extents[n->index]);
  case Node::Read:
    return turnedReads.count(n) ? readArray(t, turnedReads.at(n), r, c)
                                : readOperand(t, n, r, c);
  case Node::Contract:
    return readArray(t, contractions.at(n), r, c);
  case Node::Old:
  case Node::New:
  case Node::Final:
    return evalState(t, n, r, c);
  case Node::Elem:
    return hasPanel(t, n) ? readPanel(t, n, r, c) : evalElem(t, n, r, c);
  }
  llvm_unreachable("covered switch");
}

Val Kernel::evalElem(Tile &t, Node *n, int r, int c) {
  // The place in work need not be the position of the carried index here.
  if (auto holds = t.keyed ? known(t, n) : std::nullopt)
    return to.constant(Builder(n->type.getContext()).getBoolAttr(*holds));
  if (isa<arith::SelectOp>(n->op))
    if (auto which = known(t, n->in[0]))
      return eval(t, n->in[*which ? 1 : 2], r, c);
  if (isa<arith::AndIOp>(n->op))
    for (int i = 0; i < 2; ++i)
      if (auto which = known(t, n->in[i]); which && *which)
        return eval(t, n->in[1 - i], r, c);
  if (isa<arith::DivFOp>(n->op))
    if (auto it = reciprocals.find(n->in[1]); it != reciprocals.end())
      return to.binary(Binary::MulF, to.splat(eval(t, n->in[0], r, c)),
                       to.splat(it->second));
  SmallVector<Val> in;
  bool isWide = false;
  for (Node *i : n->in) {
    in.push_back(eval(t, i, r, c));
    isWide |= in.back().wide;
  }
  if (isWide)
    for (Val &v : in)
      v = to.splat(v);
  if (isa<arith::IndexCastOp, arith::IndexCastUIOp>(n->op)) {
    auto asData = [](Type type) {
      return type.isIndex() ? Type(IntegerType::get(type.getContext(), 32))
                            : type;
    };
    return to.integerCast(in[0], asData(n->in[0]->type), asData(n->type));
  }
  // e^x as 2^(x·log2 e): a term of a sum that is 1 at its largest errs by as
  // much as the rounding of that one, whatever its exponent.
  bool isPower = isa<math::ExpOp>(n->op) && n->type.isF32();
  if (isPower && plan.hasStream(n->set) && (t.isCoarse || noisy.contains(n))) {
    Val perBit = to.splat(to.constant(
        Builder(n->type.getContext()).getF32FloatAttr(llvm::numbers::log2ef)));
    return to.exp2(to.binary(Binary::MulF, to.splat(in[0]), perBit),
                   t.isRounded              ? Exp2Form::Short
                   : flushed.contains(n)    ? Exp2Form::Flushed
                   : onesAtMost.contains(n) ? Exp2Form::Bounded
                                            : Exp2Form::Gradual);
  }
  if (isa<arith::DivFOp>(n->op) && isByNumber(n))
    return to.byNumber(n->op, in[0], in[1], n->type);
  return to.elementwise(n->op, in, n->type);
}

Val Kernel::accumulate(Tile &t, Binary kind, Node *term, Val acc, int r,
                       int c) {
  bool isKept = keptReady.contains(term);
  auto use = [&](Val v) { return acc.wide ? to.splat(v) : v; };
  if (kind == Binary::AddF && term->kind == Node::Elem && !isKept &&
      isa<arith::MulFOp>(term->op))
    return to.fma(use(eval(t, term->in[0], r, c)),
                  use(eval(t, term->in[1], r, c)), acc);
  return to.binary(kind, use(eval(t, term, r, c)), acc);
}

void Kernel::preload(Tile &t, Node *root, Set varying) {
  SmallVector<Node *> work{root};
  llvm::DenseSet<Node *> seen;
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    if (!seen.insert(n).second || n->kind == Node::Const ||
        n->kind == Node::Param)
      continue;
    if (keptReady.contains(n) && (n->set & varying))
      continue;
    if (n->set & varying) {
      if (n->kind != Node::Contract && !n->isState())
        work.append(n->in.begin(), n->in.end());
      continue;
    }
    bool isRunning = n->kind == Node::New || n->kind == Node::Old;
    if (isRunning && !keptReady.contains(n) &&
        !(n->kind == Node::New && statesReady.contains(n->state)) &&
        plan.states[n->state].form != StatePlan::Matrix &&
        !t.memo.count(keyOf(t, n, 0, 0)))
      continue;
    int numRows = plan.hasRow(n->set) ? t.rowLocal.size() : 1;
    int numColumns = std::get<2>(keyOf(t, n, 0, 0)) < 0
                         ? 1
                         : std::max(t.laneLocal.size(), t.columnLocal.size());
    for (int r = 0; r < numRows; ++r)
      for (int c = 0; c < numColumns; ++c)
        (void)eval(t, n, r, c);
  }
}
