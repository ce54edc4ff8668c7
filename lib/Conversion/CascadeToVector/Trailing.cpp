// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums and what is summed about a number made of them (a mean) in one traversal
// of a tile: about that number of the tiles before, and moved to the new one
// behind the tile. The transport moves a state between any two.
//
// A sum of squares loses digits as it moves to a pivot inside its elements. For
// a tile no longer than what is behind it this is at most a factor of two: what
// the means of both parts are apart is in the sum of squares of all. Else (the
// first tile of a row that lies far from 0) the tile is traversed once more,
// about what it makes of the number by itself.
#include "Planner.h"

#include "Kernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// A product whose factors are pairwise the same.
static bool isSquare(Node *n) {
  if (n->kind != Node::Elem || !isa<arith::MulFOp>(n->op))
    return false;
  return n->in[0] == n->in[1] || (isSquare(n->in[0]) && isSquare(n->in[1]));
}

/// Whether `s`, on the level behind that of the sums, may be summed about the
/// pivots of the tile before. Its pivots are added to those found.
bool Planner::addTrailing(StatePlan &s, TrailingPivots &trailing) {
  if (s.form != StatePlan::Reduced || s.combine != Binary::AddF || s.isCount ||
      !plan->hasStream(s.term->set) || s.op.getPivots().empty())
    return false;
  auto isAdded = [&](StatePlan &of) {
    return of.pass == s.pass && of.level <= trailing.level &&
           of.combine == Binary::AddF &&
           (of.isCount || (of.form == StatePlan::Reduced &&
                           of.level == trailing.level && of.set == s.set));
  };
  Graph::Instance now(s.pass, Node::New), old(s.pass, Node::Old);
  for (Value value : s.op.getPivots()) {
    TrailingPivots::Pivot pivot{plan->graph->instantiate(value, now),
                                plan->graph->instantiate(value, old)};
    auto isOfSums = [&](Node *n) {
      return n->kind == Node::New && isAdded(plan->states[n->state]);
    };
    if (pivot.now == pivot.old || plan->hasStream(pivot.now->set) ||
        !readsOnly(pivot.now, isOfSums))
      return false;
    if (llvm::none_of(trailing.pivots, [&](const TrailingPivots::Pivot &p) {
          return p.now == pivot.now;
        }))
      trailing.pivots.push_back(pivot);
  }
  for (Value value : s.op.getWith()) {
    StatePlan &with =
        plan->states[plan->graph->numberOf(value.getDefiningOp<StateOp>())];
    bool isBeside = with.pass == s.pass && with.level == s.level &&
                    with.form == StatePlan::Reduced && with.set == s.set &&
                    with.combine == Binary::AddF;
    if (!isBeside && !isAdded(with))
      return false;
    if (!isBeside && !llvm::is_contained(trailing.added, with.number))
      trailing.added.push_back(with.number);
  }
  return true;
}

/// Whether terms and transports read no state but through what is moved, and
/// each pivot is that of a sum of squares, which tells how many digits are
/// lost.
bool Planner::mayTrail(ArrayRef<StatePlan *> sums, TrailingPivots &trailing) {
  for (StatePlan *s : sums) {
    auto isPivot = [&](Node *n) {
      return llvm::any_of(trailing.pivots, [&](const TrailingPivots::Pivot &p) {
        return n == p.now || n == p.old;
      });
    };
    auto isMoved = [&](Node *n) {
      return isPivot(n) ||
             (n->kind == Node::Old &&
              (llvm::is_contained(sums, &plan->states[n->state]) ||
               llvm::is_contained(trailing.added, n->state)));
    };
    NodeSet all;
    collect(s->term, all);
    if (!readsOnly(s->term, isPivot) || !readsOnly(s->moved, isMoved) ||
        llvm::any_of(all, isCostly))
      return false;
  }
  for (const TrailingPivots::Pivot &pivot : trailing.pivots) {
    auto hasSquares = [&](StatePlan *s) {
      NodeSet all;
      collect(s->term, all);
      return isSquare(s->term) && all.contains(pivot.now) &&
             llvm::none_of(
                 trailing.pivots, [&](const TrailingPivots::Pivot &other) {
                   return other.now != pivot.now && all.contains(other.now);
                 });
    };
    auto found = llvm::find_if(sums, hasSquares);
    if (found == sums.end())
      return false;
    trailing.squares.push_back((*found)->number);
  }
  return true;
}

/// Where a sweep follows: a pass alone waits for memory, which a second
/// traversal in the first cache asks for (variance of 4096 x 4096 1.85 ms, in
/// one traversal 1.87; Sapphire Rapids, one thread, as all here). LayerNorm of
/// 512 x 32768 4.87 ms, so 4.54, of 128 x 131072 5.73 and 5.43.
void Planner::findTrailingPivots(unsigned pass) {
  PassPlan &p = plan->passes[pass];
  if (p.lazy || !p.guards.empty() || plan->stream == kNone ||
      plan->sweepWrites.empty())
    return;
  for (Step &step : p.steps) {
    if (step.kind != Step::Rows || step.rowLanes || step.isGathered)
      continue;
    for (unsigned level = step.firstLevel; level < step.lastLevel; ++level) {
      TrailingPivots trailing;
      trailing.level = level;
      SmallVector<StatePlan *> sums;
      bool hasSums = false;
      bool holds = llvm::none_of(p.kept, [&](Node *n) {
        return plan->hasStream(n->set) && plan->hasRow(n->set) == step.hasRow &&
               (n->level == level || n->level == level + 1);
      });
      for (StatePlan &s : plan->states) {
        if (s.pass != pass || plan->hasRow(s.set) != step.hasRow ||
            s.form == StatePlan::Matrix ||
            (s.level != level && s.level != level + 1))
          continue;
        holds &= !s.isList() && !s.takesCandidates;
        if (s.level == level) {
          holds &= s.isCount || s.form == StatePlan::Reduced;
          hasSums |= !s.isCount;
          continue;
        }
        sums.push_back(&s);
        holds = holds && addTrailing(s, trailing);
      }
      if (!holds || !hasSums || sums.empty() || !mayTrail(sums, trailing))
        continue;
      p.trailing = std::move(trailing);
      return;
    }
  }
}

/// Whether `n`, of a result along the stream, reads a sum of `level` but in
/// what is added to or subtracted from an element.
static bool showsSum(Plan &plan, Node *n, unsigned level, NodeSet &seen) {
  if (n->type && n->type.isInteger(1))
    return false;
  if (n->isState()) {
    StatePlan &s = plan.states[n->state];
    return !s.isCount && s.combine == Binary::AddF && s.level == level;
  }
  if (!seen.insert(n))
    return false;
  bool isDifference = n->kind == Node::Elem && plan.hasStream(n->set) &&
                      isa<arith::AddFOp, arith::SubFOp>(n->op);
  return llvm::any_of(n->in, [&](Node *in) {
    return !(isDifference && !plan.hasStream(in->set)) &&
           showsSum(plan, in, level, seen);
  });
}

static bool isDeviation(Node *n) {
  return n->kind == Node::Elem && isa<arith::SubFOp>(n->op);
}

/// Whether no result shows how long the chains of sums are: sums that cancel,
/// products about two pivots and means themselves, err by it.
bool Planner::hidesChains(unsigned pass) {
  const TrailingPivots &trailing = *plan->passes[pass].trailing;
  NodeSet seen;
  return plan->finishWrites.empty() &&
         llvm::none_of(plan->sweepWrites,
                       [&](WritePlan &w) {
                         return showsSum(*plan, w.value, trailing.level, seen);
                       }) &&
         llvm::all_of(plan->states, [&](StatePlan &s) {
           return s.pass != pass || s.level != trailing.level + 1 ||
                  isDeviation(s.term) ||
                  llvm::is_contained(trailing.squares, s.number);
         });
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

/// Not of a whole row, which has one pivot, nor of rows side by side, which are
/// short.
bool Kernel::isTrailing(unsigned pass, Step &step, unsigned level) {
  std::optional<TrailingPivots> &trailing = plan.passes[pass].trailing;
  if (!trailing || trailing->level != level || level < step.firstLevel ||
      level >= step.lastLevel || isWholeRow ||
      (isJoined && step.hasRow && !onlyRow) ||
      !belongs(step, plan.states[trailing->squares[0]].set))
    return false;
  for (unsigned l : {level, level + 1}) {
    RowWork work = workOf(pass, step, l);
    if (!work.wide.empty() || !work.vanishing.empty() || work.states.empty())
      return false;
  }
  return true;
}

/// A step of two levels: what is summed, and how much of what only counts the
/// tile has.
struct Kernel::TrailingWork {
  TrailingPivots &trailing;
  Tile &head;
  RowWork low, high, both{};
  llvm::DenseMap<unsigned, Val> counts{};
};

/// Evaluated before the loop, or a value of it would be remembered behind it.
void Kernel::countTrailing(TrailingWork &work) {
  auto countOf = [&](StatePlan &s) {
    work.counts[s.number] =
        to.binary(Binary::MulF, eval(work.head, s.term, 0, 0),
                  to.toFloat(to.toData(valid), s.type()));
  };
  NodeSet leaves;
  for (const TrailingPivots::Pivot &pivot : work.trailing.pivots)
    collect(pivot.now, leaves);
  for (Node *n : leaves)
    if (n->kind == Node::New && plan.states[n->state].isCount)
      countOf(plan.states[n->state]);
  for (unsigned number : work.trailing.added)
    if (plan.states[number].isCount)
      countOf(plan.states[number]);
}

/// Makes known what a tile has summed about `pivots`: in `all` with what is
/// before it, in `own` by itself, in `moving` as what is moved to the new ones.
void Kernel::bindTrailing(TrailingWork &work, ArrayRef<Val> sums,
                          ArrayRef<Val> pivots, Tile &all, Tile &own,
                          Tile &moving) {
  auto nodeOf = [&](StatePlan &s, Node::Kind version) {
    return keyOf(work.head, plan.graph->version(s.op, version), 0, 0);
  };
  for (auto [number, count] : work.counts)
    own.memo[nodeOf(plan.states[number], Node::New)] =
        moving.memo[nodeOf(plan.states[number], Node::Old)] = count;
  for (auto [s, sum] : llvm::zip_first(work.low.states, sums)) {
    all.memo[nodeOf(*s, Node::New)] =
        to.binary(s->combine, sum, eval(all, s->moved, 0, 0));
    own.memo[nodeOf(*s, Node::New)] = moving.memo[nodeOf(*s, Node::Old)] = sum;
  }
  for (auto [pivot, from] : llvm::zip(work.trailing.pivots, pivots)) {
    moving.memo[keyOf(work.head, pivot.old, 0, 0)] = from;
    moving.memo[keyOf(work.head, pivot.now, 0, 0)] = eval(all, pivot.now, 0, 0);
  }
  for (auto [s, sum] :
       llvm::zip(work.high.states, sums.drop_front(work.low.states.size())))
    moving.memo[nodeOf(*s, Node::Old)] = sum;
}

/// `isFar`, or of both parts less than half as much as the tile had about its
/// pivot; or nothing is known, as of an infinity less an infinity.
Val Kernel::isFarFromPivot(StatePlan &s, Val sum, Val moved, Tile &all,
                           Val isFar) {
  Val left = to.binary(Binary::AddF, moved,
                       eval(all, plan.graph->version(s.op, Node::Old), 0, 0));
  auto type = cast<FloatType>(s.type());
  Val most = to.constant(
      FloatAttr::get(type, APFloat::getLargest(type.getFloatSemantics())));
  for (Val isOne :
       {to.compare(Compare::ULT, to.binary(Binary::AddF, left, left), sum),
        to.compare(Compare::OGT, sum, most)})
    isFar = to.binary(Binary::OrI, isFar, isOne);
  return isFar;
}

/// What the loop over traversals carries: whether there is one more, whether
/// there was none, the pivots, and of this tile alone the sums of the lower
/// level and those about the pivots, moved to the new ones.
void Kernel::trailingLevels(unsigned pass, Step &step, unsigned level,
                            bool isChecked, Tile &head) {
  TrailingWork work{*plan.passes[pass].trailing, head,
                    workOf(pass, step, level), workOf(pass, step, level + 1)};
  startLevel(work.low, head);
  Builder b(plan.cascade.getContext());
  Val yes = to.constant(b.getBoolAttr(true)),
      no = to.constant(b.getBoolAttr(false));
  work.both.states = work.low.states;
  work.both.states.append(work.high.states);
  size_t numPivots = work.trailing.pivots.size(), firstSum = 2 + numPivots,
         numLow = work.low.states.size();
  Values init{yes, yes};
  for (const TrailingPivots::Pivot &pivot : work.trailing.pivots)
    init.push_back(eval(head, pivot.old, 0, 0));
  for (StatePlan *s : work.both.states)
    init.push_back(identity(*s));
  countTrailing(work);
  auto isFirst = [&](ArrayRef<Val> in) {
    Val one = to.constant(b.getI32IntegerAttr(1)),
        none = to.constant(b.getI32IntegerAttr(0));
    return to.toIndex(to.select(in[1], one, none));
  };
  std::optional<RowBefore> beside = rowBefore;
  auto traverse = [&](ArrayRef<Val> in) -> Values {
    if (beside && beside->isDue) // its results are written once
      rowBefore->end = to.mul(isFirst(in), beside->end);
    ArrayRef<Val> pivots = in.slice(2, numPivots);
    Tile about(&head), all(&head), own(plan.cascade.numIndices()),
        moving(plan.cascade.numIndices());
    static_cast<TileShape &>(own) = static_cast<TileShape &>(moving) = head;
    for (auto [pivot, from] : llvm::zip(work.trailing.pivots, pivots))
      about.memo[keyOf(head, pivot.now, 0, 0)] = from;
    Values sums = rowSums(pass, step, level + 1, work.both, isChecked,
                          /*isOneGroup=*/false, about);
    for (auto [s, sum] : llvm::zip(work.both.states, sums))
      sum = to.reduceLanes(s->combine, sum);
    bindTrailing(work, sums, pivots, all, own, moving);
    Val isFar = no;
    Values moved;
    for (auto [s, sum] :
         llvm::zip(work.high.states, ArrayRef(sums).drop_front(numLow))) {
      moved.push_back(eval(moving, s->moved, 0, 0));
      if (llvm::is_contained(work.trailing.squares, s->number))
        isFar = isFarFromPivot(*s, sum, moved.back(), all, isFar);
    }
    Values out{to.binary(Binary::AndI, in[1], isFar), no};
    for (const TrailingPivots::Pivot &pivot : work.trailing.pivots)
      out.push_back(eval(own, pivot.now, 0, 0));
    out.append(sums.begin(), sums.begin() + numLow);
    out.append(moved);
    return out;
  };
  Values found =
      to.repeat(init, [](ArrayRef<Val> in) { return in[0]; }, traverse);
  if (beside)
    rowBefore->end = beside->end;
  for (auto [i, s] : llvm::enumerate(work.low.states))
    updateState(*s, head, found[firstSum + i]);
  startLevel(work.high, head);
  for (auto [i, s] : llvm::enumerate(work.high.states))
    updateState(*s, head, found[firstSum + numLow + i]);
}
