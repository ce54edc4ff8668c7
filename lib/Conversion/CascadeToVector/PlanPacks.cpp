// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is laid out anew or kept to be read again: panels of operands, and
// values that the sweep shares with the last pass.
#include "Planner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Adds what rows have in the subscript `expr` of dimension `dim`, which the
/// lane or the reduced index moves as well; fails if it is no sum of such
/// parts.
static LogicalResult addRowParts(Node *read, AffineExpr expr, unsigned dim,
                                 int64_t factor, Set rows, PackPlan &pack) {
  auto rowIndex = [&](AffineExpr e) -> int {
    auto d = dyn_cast<AffineDimExpr>(e);
    Node *n = d ? read->in[d.getPosition()] : nullptr;
    return n && (rows & bit(n->index)) ? int(n->index) : kNone;
  };
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    pack.constants.push_back({dim, factor * constant.getValue()});
    return success();
  }
  if (isa<AffineDimExpr>(expr)) {
    if (int index = rowIndex(expr); index != kNone)
      pack.outer.push_back({dim, index, 1, factor});
    return success();
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  auto right = binary ? dyn_cast<AffineConstantExpr>(binary.getRHS())
                      : AffineConstantExpr();
  if (binary && expr.getKind() == AffineExprKind::Add)
    return success(
        succeeded(
            addRowParts(read, binary.getLHS(), dim, factor, rows, pack)) &&
        succeeded(addRowParts(read, binary.getRHS(), dim, factor, rows, pack)));
  if (right && expr.getKind() == AffineExprKind::Mul)
    return addRowParts(read, binary.getLHS(), dim, factor * right.getValue(),
                       rows, pack);
  if (right && expr.getKind() == AffineExprKind::FloorDiv &&
      right.getValue() > 0)
    if (int index = rowIndex(binary.getLHS()); index != kNone) {
      pack.outer.push_back({dim, index, right.getValue(), factor});
      return success();
    }
  return failure();
}

/// Panels for reads of a nest that are strided along the lanes, or that the
/// schedule names, if nothing but the lane's index and one more varies inside
/// an item.
std::optional<PackPlan> Planner::packOf(Node *read, unsigned lane) {
  auto op = cast<ReadOp>(read->op);
  PackPlan pack;
  pack.read = read;
  pack.operand =
      cast<BlockArgument>(op.getSource()).getArgNumber() - cascade.numIndices();
  pack.laneIndex = lane;
  pack.lane = plan->along(read, lane);
  bool isNamed = llvm::is_contained(
      plan->schedule.pack,
      cast<StringAttr>(cascade.getArgNames()[pack.operand]).getValue());
  if (plan->hasRow(read->set) ||
      !(pack.lane.kind == Along::Unit ? isNamed
                                      : pack.lane.kind == Along::Strided) ||
      llvm::any_of(read->in, [](Node *n) { return n->kind != Node::Index; }))
    return std::nullopt;
  Set others = read->set & ~plan->rows & ~bit(lane);
  if (llvm::popcount(others) > 1)
    return std::nullopt;
  if (others) {
    pack.reducedIndex = llvm::countr_zero(others);
    pack.reduced = plan->along(read, pack.reducedIndex);
    if (pack.reduced.kind == Along::Computed)
      return std::nullopt;
  }
  for (auto [k, expr] : llvm::enumerate(op.getMap().getResults())) {
    Set used = 0;
    for (auto [d, in] : llvm::enumerate(read->in))
      if (expr.isFunctionOfDim(d))
        used |= in->set;
    if (!(used & ~plan->rows))
      pack.outer.push_back({unsigned(k), kNone});
    else if (failed(addRowParts(read, expr, k, 1, plan->rows, pack)))
      return std::nullopt;
  }
  return pack;
}

/// What is packed for `read`: the cast that is all that reads it, so that a
/// value is converted once and not in every product.
static Node *packedValue(Node *read, const NodeSet &all) {
  Node *reader = nullptr;
  for (Node *n : all)
    if (llvm::is_contained(n->in, read)) {
      if (reader || n->kind != Node::Elem ||
          !isa<arith::ExtFOp, arith::SIToFPOp, arith::UIToFPOp>(n->op))
        return read;
      reader = n;
    }
  return reader ? reader : read;
}

void Planner::considerPack(Node *root, int lane, bool isDirect) {
  if (lane == kNone)
    return;
  NodeSet all;
  collect(root, all);
  for (Node *n : all) {
    if (n->kind != Node::Read || !n->has(lane))
      continue;
    Node *value = packedValue(n, all);
    if (!plan->packs.count(value))
      if (auto pack = packOf(n, lane))
        plan->packs[value] = *pack;
    if (auto it = plan->packs.find(value); it != plan->packs.end())
      it->second.mayBeSkipped &= isDirect;
  }
}

/// The number of rows is open, and all that moves with the summed index is
/// dense along it.
bool Planner::mayBeDirect(Node *contraction) {
  if (plan->row == kNone || !ShapedType::isDynamic(plan->extent(plan->row)) ||
      llvm::popcount(contraction->over) != 1 ||
      plan->laneOf(contraction) == kNone)
    return false;
  unsigned index = llvm::countr_zero(contraction->over);
  NodeSet all;
  collect(contraction->in[0], all);
  return llvm::all_of(all, [&](Node *n) {
    return n->kind != Node::Read || !n->has(index) ||
           plan->along(n, index).kind == Along::Unit;
  });
}

void Planner::considerOperand(Node *n, Node *contraction, int lane) {
  if (n->kind != Node::Elem)
    return;
  if ((n->set & contraction->over) && plan->hasRow(n->set) && !n->has(lane) &&
      !(n->set & ~(plan->rows | contraction->over)) && isFixed(n)) {
    plan->operands[n] = llvm::countr_zero(contraction->over);
    return;
  }
  for (Node *i : n->in)
    considerOperand(i, contraction, lane);
}

void Planner::considerContraction(Node *n) {
  if (int lane = plan->laneOf(n);
      lane != kNone && llvm::popcount(n->over) == 1 && plan->tileRows > 1)
    considerOperand(n->in[0], n, lane);
  bool isDirect = mayBeDirect(n);
  if (isDirect)
    plan->direct.insert(n);
  considerPack(n->in[0], plan->laneOf(n), isDirect);
}

void Planner::findPacks() {
  for (PassPlan &p : plan->passes) {
    for (Node *n : p.prelude)
      considerContraction(n);
    for (Step &step : p.steps)
      if (step.kind == Step::Contraction)
        considerContraction(step.contraction);
  }
  for (auto *list :
       {&plan->prologue, &plan->finishContractions, &plan->sweepContractions})
    for (Node *n : *list)
      considerContraction(n);
  for (StatePlan &s : plan->states)
    if (s.form == StatePlan::Matrix && !(s.keySet() & bit(s.lane)))
      considerPack(s.term, s.lane, /*isDirect=*/false);
}

bool Plan::hasShortRows() const {
  auto isRows = [](const Step &step) {
    return step.kind == Step::Rows && !step.rowLanes;
  };
  if (passes.empty() || rowLane != kNone || block != kNone || stream == kNone ||
      streams != bit(stream) || !sweepContractions.empty())
    return false;
  for (const StatePlan &s : states)
    if (s.form != StatePlan::Reduced && s.form != StatePlan::Partial &&
        !s.takesCandidates)
      return false;
  return llvm::all_of(passes, [&](const PassPlan &p) {
    return p.conditions.empty() && llvm::all_of(p.steps, isRows);
  });
}

/// Whether `final` is `now` with the states of the last pass complete.
static bool isSameValue(Node *final, Node *now) {
  if (final == now)
    return true;
  if (final->kind == Node::Final && now->kind == Node::New)
    return final->state == now->state && final->result == now->result;
  return final->kind == Node::Elem && now->kind == Node::Elem &&
         final->op == now->op && final->result == now->result &&
         final->in.size() == now->in.size() &&
         llvm::all_of_zip(final->in, now->in, isSameValue);
}

static bool isCostly(Node *n) {
  return n->kind == Node::Elem &&
         isa<math::ExpOp, math::Exp2Op, math::ExpM1Op, math::LogOp,
             math::Log1pOp, math::Log2Op, math::TanhOp, math::ErfOp,
             math::PowFOp, math::SinOp, math::CosOp>(n->op);
}

void Planner::findReused() {
  if (!plan->hasShortRows())
    return;
  unsigned last = plan->passes.size() - 1;
  if (!plan->passes[last].guards.empty())
    return;
  // Kept by the row step that passes by, if one does.
  auto isVisited = [&](Node *n) {
    return llvm::any_of(plan->passes[last].steps, [&](const Step &step) {
      return step.hasRow == plan->hasRow(n->set) &&
             n->level >= step.firstLevel && n->level <= step.lastLevel;
    });
  };
  NodeSet terms, values;
  for (StatePlan &s : plan->states)
    if (s.pass == last)
      collect(s.term, terms);
  for (WritePlan &w : plan->sweepWrites)
    collect(w.value, values);
  for (Node *value : values)
    for (Node *term : terms)
      if (isCostly(value) && plan->hasStream(value->set) &&
          isSameValue(value, term) && isVisited(term) &&
          !plan->reused.count(value))
        plan->reused[value] = term;
}
