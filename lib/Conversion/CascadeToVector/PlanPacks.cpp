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
std::optional<PackPlan> Planner::packOf(Node *read, unsigned lane,
                                        bool isWanted) {
  auto op = cast<ReadOp>(read->op);
  PackPlan pack;
  pack.read = read;
  pack.operand =
      cast<BlockArgument>(op.getSource()).getArgNumber() - cascade.numIndices();
  pack.laneIndex = lane;
  pack.lane = plan->along(read, lane);
  bool isOfDot = llvm::any_of(
      plan->dots, [&](auto &dot) { return dot.second.wide == read; });
  bool isNamed =
      isWanted || isOfDot ||
      llvm::is_contained(
          plan->schedule.pack,
          cast<StringAttr>(cascade.getArgNames()[pack.operand]).getValue());
  if (plan->hasRow(read->set) ||
      !(pack.lane.kind == Along::Unit ? isNamed
                                      : pack.lane.kind == Along::Strided) ||
      llvm::any_of(read->in, [](Node *n) { return n->kind != Node::Index; }))
    return std::nullopt;
  Set others = read->set & ~plan->rows & ~bit(lane);
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (!(others & bit(i)))
      continue;
    Along along = plan->along(read, i);
    if (along.kind == Along::Computed)
      return std::nullopt;
    if (pack.reducedIndex != kNone)
      pack.depths.push_back({unsigned(pack.reducedIndex), pack.reduced});
    pack.reducedIndex = int(i);
    pack.reduced = along;
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

/// Whether what is shared lies as one side of a matrix tile has it: dense along
/// what is summed or along the columns, and row by row of the stream.
bool Planner::mayLieInTiles(const PairPlan &pair) {
  constexpr int64_t kTileLanes = 16;
  Set inWork =
      bit(pair.dense()) | (plan->stream == kNone ? 0 : bit(plan->stream));
  return target.multipliesTiles && plan->lanes == kTileLanes &&
         plan->stream != kNone && pair.dense() != unsigned(plan->stream) &&
         plan->row != kNone && !plan->hasRow(pair.shared->set) &&
         (pair.shared->set & inWork) == inWork &&
         !(pair.shared->set & ~(plan->rows | plan->streams | inWork)) &&
         plan->along(pair.shared, pair.dense()).kind == Along::Unit &&
         plan->along(pair.shared, plan->stream).kind == Along::Strided;
}

/// Known rows that pay for tiles of what is shared as it lies. Emerald Rapids,
/// decoding with 24 query heads, 4096 keys, by fmas and in tiles, one thread,
/// ms: of 128 that share 2 heads 1.03 and 0.99, 3 1.08 and 0.81, 6 0.68 and
/// 0.41; of 80, whose last tile has an edge, 0.64 and 0.84, 0.77 and 0.76, 0.52
/// and 0.38.
int64_t Planner::leastRowsInTiles(const PairPlan &pair) {
  constexpr int64_t kWhole = 3, kWithEdge = 4, kHalves = 32;
  int64_t width = plan->extent(pair.dense());
  bool isWhole = !ShapedType::isDynamic(width) && width % kHalves == 0;
  return isWhole ? kWhole : kWithEdge;
}

/// A sum of products of two values that are bf16, one of them a read that the
/// rows of a tile share, the other kept by the item: the read goes into panels
/// of pairs.
void Planner::considerPairs(Node *term, int lane, Set over) {
  constexpr int64_t kRowsOfPanels = 8; // fewer do not pay for the packing
  bool areFew = plan->schedule.innerLanes;
  if (lane == kNone && areFew)
    lane = plan->stream;
  if (!target.addsPairs || plan->rowLane != kNone ||
      plan->lanes != target.lanes(32) || lane == kNone ||
      llvm::popcount(over) != 1 || term->kind != Node::Elem ||
      !isa<arith::MulFOp>(term->op) || !term->type.isF32())
    return;
  auto halfOf = [](Node *n) -> Node * {
    bool isWidened = n->kind == Node::Elem && isa<arith::ExtFOp>(n->op) &&
                     n->in[0]->type.isBF16();
    return isWidened ? n->in[0] : nullptr;
  };
  PairPlan pair;
  pair.index = llvm::countr_zero(over);
  for (Node *n : term->in)
    if (Node *half = halfOf(n))
      (half->has(lane) ? pair.shared : pair.own) = half;
  if (!pair.own || !pair.shared || pair.shared->kind != Node::Read ||
      !pair.own->has(pair.index) || !plan->hasRow(pair.own->set))
    return;
  // What changes during the walk is left by the row steps, the rest computed
  // before.
  bool isKept = plan->hasStream(over);
  bool isRounded =
      pair.own->kind == Node::Elem && isa<arith::TruncFOp>(pair.own->op);
  if (isKept ? !isRounded || !readsState(pair.own) ||
                   (pair.own->set & ~(plan->rows | plan->streams))
             : !isFixed(pair.own) ||
                   !(isRounded || pair.own->kind == Node::Read) ||
                   (pair.own->set & ~(plan->rows | over)))
    return;
  pair.across = lane;
  pair.sumsStream = isKept;
  pair.isInPlace = mayLieInTiles(pair);
  if (plan->tileRows <
      (areFew && pair.isInPlace ? leastRowsInTiles(pair) : kRowsOfPanels))
    return;
  if (areFew && pair.isInPlace && plan->tileRows <= PairPlan::kMostInPlace) {
    plan->pairs[term] = pair;
    if (!isKept)
      plan->operands[pair.own] = pair.index;
    return;
  }
  pair.isInPlace &= ShapedType::isDynamic(plan->extent(plan->row));
  if (areFew && !isKept)
    return;
  auto pack = packOf(pair.shared, lane, /*isWanted=*/true);
  if (!pack || !pack->depths.empty() || pack->reducedIndex != int(pair.index) ||
      plan->packs.count(pair.shared))
    return;
  pack->inPairs = true;
  plan->packs[pair.shared] = *pack;
  plan->pairs[term] = pair;
  if (!isKept)
    plan->operands[pair.own] = pair.index;
}

void Planner::findPairs(unsigned pass) {
  for (StatePlan &s : plan->states) {
    if (s.pass != pass)
      continue;
    NodeSet all;
    collect(s.term, all);
    for (Node *n : all)
      if (n->kind == Node::Contract)
        considerPairs(n->in[0], plan->laneOf(n), n->over);
    if (s.form == StatePlan::Matrix && s.keys.empty() &&
        s.op.getReducer() == Reducer::Add)
      considerPairs(s.term, s.lane, bit(plan->stream));
  }
}

/// The same of a product by itself, if tiles multiply it and its panels are
/// those of a constant: laid out once, however few rows there are in a run.
void Planner::findPairsOfProduct() {
  Node *n = plan->product;
  constexpr int64_t kTileRows = 16, kColumns = 2; // `takesTiles`
  if (!n || !target.multipliesTiles || kTileRows % plan->registerRows ||
      plan->registerLanes > kColumns * plan->lanes)
    return;
  Node *term = n->in[0];
  considerPairs(term, plan->laneOf(n), n->over);
  auto it = plan->pairs.find(term);
  if (it == plan->pairs.end())
    return;
  PairPlan pair = it->second;
  if (!isVarying(cascade, plan->packs.find(pair.shared)->second.operand))
    return;
  plan->packs.erase(pair.shared);
  plan->operands.erase(pair.own);
  plan->pairs.erase(term);
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

void Planner::considerPack(Node *root, int lane, int64_t rowsWithout,
                           int openSum, bool isInOrder) {
  if (lane == kNone)
    return;
  NodeSet all;
  auto lower = [&](PackPlan &pack) {
    pack.rowsWithout = std::min(pack.rowsWithout, rowsWithout);
    pack.isReadInOrder &= isInOrder;
    if (openSum != kNone && !llvm::is_contained(pack.openSums, openSum))
      pack.openSums.push_back(openSum);
  };
  if (auto it = plan->pairs.find(root); it != plan->pairs.end()) {
    if (auto pack = plan->packs.find(it->second.shared);
        pack != plan->packs.end())
      lower(pack->second);
    return;
  }
  collect(root, all);
  for (Node *n : all) {
    if (n->kind != Node::Read || !n->has(lane))
      continue;
    Node *value = packedValue(n, all);
    if (!plan->packs.count(value))
      if (auto pack = packOf(n, lane))
        plan->packs[value] = *pack;
    if (auto it = plan->packs.find(value); it != plan->packs.end())
      lower(it->second);
  }
}

/// The number of rows is open, and all that moves with the summed index is
/// dense along it.
bool Planner::mayBeDirect(Node *contraction) {
  if (plan->row == kNone || !ShapedType::isDynamic(plan->extent(plan->row)) ||
      llvm::popcount(contraction->over) != 1 ||
      plan->laneOf(contraction) == kNone || plan->product)
    return false;
  unsigned index = llvm::countr_zero(contraction->over);
  NodeSet all;
  collect(contraction->in[0], all);
  return llvm::all_of(all, [&](Node *n) {
    return n->kind != Node::Read || !n->has(index) ||
           plan->along(n, index).kind == Along::Unit;
  });
}

/// Rows may be few, and all that moves with the lanes is dense along them.
void Planner::findDense(Node *contraction) {
  int lane = plan->laneOf(contraction);
  if (plan->row == kNone || lane == kNone || plan->product ||
      !isa<FloatType>(contraction->type) ||
      plan->pairs.count(contraction->in[0]))
    return;
  NodeSet all;
  collect(contraction->in[0], all);
  bool isInOrder =
      plan->hasRow(contraction->set) && llvm::popcount(contraction->over) == 1;
  for (Node *n : all) {
    if (n->kind != Node::Read || !n->has(lane))
      continue;
    if (plan->along(n, lane).kind != Along::Unit)
      return;
    unsigned operand =
        cast<BlockArgument>(cast<ReadOp>(n->op).getSource()).getArgNumber() -
        cascade.numIndices();
    isInOrder &= isVarying(cascade, operand);
  }
  if (isInOrder)
    plan->inOrder.insert(contraction);
  plan->denseAlongLanes.insert(contraction);
  int64_t extent = plan->extent(plan->row);
  if (ShapedType::isDynamic(extent) ||
      extent <= plan->rowsWithoutPanels(contraction))
    return;
  plan->inOrder.erase(contraction);
  plan->denseAlongLanes.erase(contraction);
}

void Planner::considerOperand(Node *n, Node *contraction, int lane) {
  if (n->kind != Node::Elem)
    return;
  if ((n->set & contraction->over) && plan->hasRow(n->set) &&
      (lane == kNone || !n->has(lane)) &&
      !(n->set & ~(plan->rows | contraction->over)) && isFixed(n)) {
    plan->operands[n] = llvm::countr_zero(contraction->over);
    return;
  }
  for (Node *i : n->in)
    considerOperand(i, contraction, lane);
}

void Planner::considerContraction(Node *n) {
  if (int lane = plan->laneOf(n); !plan->pairs.count(n->in[0]) &&
                                  llvm::popcount(n->over) == 1 &&
                                  plan->tileRows > 1)
    considerOperand(n->in[0], n, lane);
  bool isDirect = mayBeDirect(n);
  if (isDirect)
    plan->direct.insert(n);
  else
    findDense(n);
  considerPack(n->in[0], plan->laneOf(n), plan->rowsWithoutPanels(n),
               plan->openSumOf(n), plan->inOrder.contains(n));
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
      considerPack(s.term, s.lane, plan->rowsWithoutPanels(s), kNone,
                   /*isInOrder=*/false);
}

/// Panels of what is another array in every run are made by the item that
/// multiplies by them: read once, and in the second cache when they are.
void Planner::findOwnPanels() {
  Set lanes = 0;
  if (plan->product && plan->laneOf(plan->product) != kNone)
    lanes = bit(plan->laneOf(plan->product));
  for (unsigned number : plan->wholes)
    lanes |= bit(plan->states[number].lane);
  bool areOfTiles = plan->hasPanelsOfTiles();
  if ((!lanes && !areOfTiles) || plan->row == kNone)
    return;
  auto isOfItem = [&](const PackPlan &pack) {
    if (areOfTiles)
      return int(pack.laneIndex) == plan->stream ||
             pack.reducedIndex == plan->stream;
    return pack.outer.empty() && (lanes & bit(pack.laneIndex));
  };
  for (auto &[value, pack] : plan->packs)
    pack.isOwn = isVarying(cascade, pack.operand) && pack.depths.empty() &&
                 (!pack.inPairs || areOfTiles) && pack.reducedIndex != kNone &&
                 isOfItem(pack);
}

bool Plan::hasShortRows() const {
  return hasOnlyRows() && streams == bit(stream) &&
         llvm::all_of(states, [&](const StatePlan &s) {
           return !s.isList() || s.takesCandidates ||
                  !passes[s.pass].guards.empty();
         });
}

bool Plan::hasMatrixStates() const {
  return llvm::any_of(
      states, [](const StatePlan &s) { return s.form == StatePlan::Matrix; });
}

bool Plan::sharesProductsOnly() const {
  bool hasProducts =
      llvm::any_of(prologue, [&](Node *n) { return hasRow(n->set); });
  for (const PassPlan &pass : passes)
    hasProducts |= llvm::any_of(pass.steps, [&](const Step &step) {
      return step.kind == Step::Contraction && hasRow(step.contraction->set);
    });
  return hasProducts && !product && row != kNone && rowLane == kNone &&
         tileRows % registerRows == 0 && !hasMatrixStates();
}

bool Plan::hasOnlyRows() const {
  auto isRows = [](const Step &step) {
    return step.kind == Step::Rows && !step.rowLanes;
  };
  if (passes.empty() || rowLane != kNone || block != kNone || stream == kNone ||
      !sweepContractions.empty())
    return false;
  for (const StatePlan &s : states)
    if (s.form == StatePlan::Matrix)
      return false;
  return llvm::all_of(passes, [&](const PassPlan &p) {
    return p.conditions.empty() && llvm::all_of(p.steps, isRows);
  });
}

bool walk::readsBeside(Node *root, Node *n, Node *value) {
  SmallVector<Node *> work{root};
  llvm::DenseSet<Node *> seen{value};
  while (!work.empty()) {
    Node *next = work.pop_back_val();
    if (next == n)
      return true;
    if (seen.insert(next).second)
      work.append(next->in.begin(), next->in.end());
  }
  return false;
}

/// Whether all that reads `contraction` runs before `value` is left in its
/// place, or is evaluated beside it, position by position.
bool Planner::mayOverwrite(PassPlan &pass, unsigned number, Node *contraction,
                           Node *value) {
  auto reads = [&](Node *root) {
    return root != value && readsBeside(root, contraction, value);
  };
  for (StatePlan &s : plan->states) {
    if (s.pass != number)
      continue;
    if (llvm::any_of(s.payloads, reads) || reads(s.moved))
      return false;
    bool isBefore =
        s.form == StatePlan::Reduced || s.form == StatePlan::Partial;
    // A later level of the same row step computes the value again.
    if (s.form != StatePlan::Matrix && s.level > value->level &&
        readsBeside(s.term, value, nullptr))
      return false;
    if (reads(s.term) && !(isBefore && s.level <= value->level &&
                           plan->hasRow(s.set) == plan->hasRow(value->set)))
      return false;
  }
  for (Step &step : pass.steps)
    if (step.kind == Step::Contraction && step.contraction != contraction &&
        reads(step.contraction))
      return false;
  return llvm::none_of(pass.kept, [&](Node *kept) {
    return reads(kept) ||
           (kept->level > value->level && readsBeside(kept, value, nullptr));
  });
}

void Planner::findInPlace(unsigned pass) {
  PassPlan &p = plan->passes[pass];
  for (Node *value : p.kept) {
    if (value->kind != Node::Elem || !plan->hasStream(value->set) ||
        plan->rowLane != kNone)
      continue;
    NodeSet all;
    collect(value, all);
    for (Step &step : p.steps) {
      Node *n = step.contraction;
      if (step.kind == Step::Contraction && all.contains(n) &&
          n->set == value->set && n->type == value->type &&
          plan->laneOf(n) == plan->stream && mayOverwrite(p, pass, n, value)) {
        plan->inPlace[value] = n;
        break;
      }
    }
  }
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

/// Whether `final` is `now` if each pair of `equal` is equal.
static bool isLikelySame(Plan &plan, Node *final, Node *now,
                         SmallVectorImpl<std::pair<Node *, Node *>> &equal) {
  if (isSameValue(final, now))
    return true;
  if (final->type != now->type)
    return false;
  if (!plan.hasStream(final->set) && !plan.hasStream(now->set)) {
    equal.push_back({final, now});
    return isa<FloatType>(now->type);
  }
  return final->kind == Node::Elem && now->kind == Node::Elem &&
         final->op->getName() == now->op->getName() &&
         final->op->getAttrDictionary() == now->op->getAttrDictionary() &&
         final->result == now->result && final->in.size() == now->in.size() &&
         llvm::all_of_zip(final->in, now->in, [&](Node *x, Node *y) {
           return isLikelySame(plan, x, y, equal);
         });
}

bool walk::isCostly(Node *n) {
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
    for (Node *term : terms) {
      if (!isCostly(value) || !plan->hasStream(value->set) ||
          !isVisited(term) || plan->reused.count(value))
        continue;
      Plan::Likely likely{term, {}};
      if (isSameValue(value, term))
        plan->reused[value] = term;
      else if (!plan->likely.count(value) &&
               isLikelySame(*plan, value, term, likely.equal))
        plan->likely[value] = likely;
    }
}
