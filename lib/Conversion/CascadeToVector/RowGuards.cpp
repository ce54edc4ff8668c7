// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Passes that only some rows need: every term is select(guard, x, identity)
// with a guard that no stream index moves. A tile of which no row needs the
// pass leaves it out.
#include "Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// A list holds masked elements too: it may be left out only where nobody reads
/// it, which is where every reader chooses by the same condition.
static bool isReadWhereNeeded(StateOp list, Value condition, bool needed) {
  return llvm::all_of(list->getUsers(), [&](Operation *user) {
    auto select = dyn_cast<arith::SelectOp>(user);
    if (!select || select.getCondition() != condition)
      return false;
    Value other = needed ? select.getFalseValue() : select.getTrueValue();
    return other.getDefiningOp() != list.getOperation();
  });
}

/// The guard of a state: its term is the identity unless that holds.
static std::optional<RowGuard> guardOf(Plan &plan, StatePlan &s) {
  if (s.term->kind != Node::Elem || !isa<arith::SelectOp>(s.term->op))
    return std::nullopt;
  Node *condition = s.term->in[0];
  // It is asked before the stream runs, and with it its contractions.
  NodeSet all;
  collect(condition, all);
  bool isKnownBefore =
      !(condition->set & plan.streams) && llvm::none_of(all, [&](Node *n) {
        return n->kind == Node::Contract &&
               !llvm::is_contained(plan.prologue, n) &&
               !llvm::is_contained(plan.passes[s.pass].prelude, n);
      });
  if (!isKnownBefore)
    return std::nullopt;
  Attribute identity = identityOf(s.op.getReducer(), s.type());
  for (unsigned side : {2, 1}) {
    Node *other = s.term->in[side];
    auto constant = dyn_cast_or_null<arith::ConstantOp>(
        other->kind == Node::Const ? other->op : nullptr);
    if (!constant || constant.getValue() != identity)
      continue;
    auto select = s.op.getValues()[0].getDefiningOp<arith::SelectOp>();
    if (s.form == StatePlan::Ordered &&
        !isReadWhereNeeded(s.op, select.getCondition(), side == 2))
      return std::nullopt;
    return RowGuard{condition, side == 2};
  }
  return std::nullopt;
}

void walk::findRowGuards(Plan &plan, unsigned pass) {
  // The first pass reads no state: what it asks is not worth asking first.
  if (pass == 0)
    return;
  SmallVector<RowGuard> found;
  bool areOfRows = true;
  for (StatePlan &s : plan.states) {
    if (s.pass != pass)
      continue;
    std::optional<RowGuard> guard = guardOf(plan, s);
    if (!guard)
      return;
    auto *same = llvm::find_if(found, [&](const RowGuard &other) {
      return other.condition == guard->condition &&
             other.needed == guard->needed;
    });
    s.guard = same - found.begin();
    if (same == found.end())
      found.push_back(*guard);
    areOfRows &= s.form == StatePlan::Reduced || s.form == StatePlan::Partial;
  }
  plan.passes[pass].hasGuardsApart = areOfRows && found.size() > 1;
  plan.passes[pass].guards = std::move(found);
}

TypedAttr Kernel::guardIs(bool value) {
  return Builder(plan.cascade.getContext()).getBoolAttr(value);
}

/// Whether it holds for one of the joined rows, which run along the lanes.
Val Kernel::holdsOfJoined(llvm::function_ref<Val(Tile &)> asks, Val found) {
  auto ofHead = [&](Ix first, ArrayRef<Val> in) {
    Tile head = headOf(first);
    Val v = to.splat(asks(head));
    if (head.laneLimit)
      v = to.select(maskOf(head, 0), v, to.splat(to.constant(guardIs(false))));
    return Values{
        to.binary(Binary::OrI, in[0], to.reduceLanes(Binary::OrI, v))};
  };
  return firstOfGroup ? ofHead(*firstOfGroup, found)[0]
                      : to.loop(0, rows, to.lanes(), {found}, ofHead)[0];
}

/// Whether the guard holds somewhere in the tile of the item.
Val Kernel::holdsSomewhere(RowGuard &guard, Val found) {
  Set others = guard.condition->set & plan.carried;
  int lane = others ? 63 - int(llvm::countl_zero(others)) : kNone;
  auto asks = [&](Tile &t) {
    Val v = eval(t, guard.condition, 0, 0);
    if (guard.needed)
      return v;
    Val yes = to.constant(guardIs(true)), no = to.constant(guardIs(false));
    return v.wide ? to.select(v, to.splat(no), to.splat(yes))
                  : to.select(v, no, yes);
  };
  auto alongLanes = [&](Tile &t, Val before) {
    Ix range = span(lane);
    // What is known of the row: roots and quotients of it take longer than a
    // register of the condition.
    preload(t, guard.condition, bit(lane));
    auto step = [&](Ix at, bool isMasked, Val in) {
      Tile inside(&t);
      inside.lane = lane;
      inside.laneLocal = {at};
      Val v = to.splat(asks(inside));
      if (isMasked) {
        inside.laneLimit = range;
        v = to.select(maskOf(inside, 0), v,
                      to.splat(to.constant(guardIs(false))));
      }
      return to.binary(Binary::OrI, in, to.reduceLanes(Binary::OrI, v));
    };
    Ix main = to.floorTo(range, to.lanes());
    auto run = [&](Ix lo, Ix hi, bool isMasked, Val in) {
      return to.loop(lo, hi, to.lanes(), {in}, [&](Ix at, ArrayRef<Val> v) {
        return Values{step(at, isMasked, v[0])};
      })[0];
    };
    before = run(0, main, false, before);
    return run(main, range, true, before);
  };
  auto enter = [&](auto &self, Tile &t, Set rest, Val before) -> Val {
    if (!rest)
      return lane == kNone ? to.binary(Binary::OrI, before, asks(t))
                           : alongLanes(t, before);
    unsigned index = llvm::countr_zero(rest);
    return to.loop(0, span(index), 1, {before}, [&](Ix at, ArrayRef<Val> in) {
      Tile inside(&t);
      inside.local[index] = at;
      return Values{self(self, inside, rest & (rest - 1), in[0])};
    })[0];
  };
  if (isJoined && !onlyRow && !others && plan.hasRow(guard.condition->set))
    return holdsOfJoined(asks, found);
  Set loops = lane == kNone ? others : others & ~bit(lane);
  if (onlyRow || !plan.hasRow(guard.condition->set)) {
    Tile t = tileOf(onlyRow.value_or(Ix(0)));
    return enter(enter, t, loops, found);
  }
  return to.loop(0, rows, 1, {found}, [&](Ix row, ArrayRef<Val> in) {
    Tile t = tileOf(row);
    return Values{enter(enter, t, loops, in[0])};
  })[0];
}

void Kernel::prelude(unsigned pass) {
  for (Node *n : plan.passes[pass].prelude)
    contraction(n);
}

void Kernel::whereNeeded(unsigned pass, llvm::function_ref<void()> body) {
  prelude(pass);
  SmallVector<RowGuard> &guards = plan.passes[pass].guards;
  if (guards.empty())
    return body();
  Val none = to.constant(guardIs(false)), found = none;
  for (RowGuard &guard : guards) {
    guardsHold.push_back(holdsSomewhere(guard, none));
    found = to.binary(Binary::OrI, found, guardsHold.back());
  }
  to.branch(found, body, [] {});
  guardsHold.clear();
}
