// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The k best with payloads: an insertion list a row. Elements rarely enter once
// the best are known, so a register is first compared with the last of the
// list.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

static unsigned rankOf(StatePlan &s) {
  return cast<BlockArgument>(s.op.getRank()[0]).getArgNumber();
}

/// Strictly before in the order: equal keys keep the order they came in. A NaN
/// is above +inf.
Val Kernel::beats(StatePlan &s, Val key, Val than) {
  bool isTop = s.op.getReducer() == Reducer::TopK;
  if (!isa<FloatType>(s.type()))
    return to.compare(isTop ? Compare::SGT : Compare::SLT, key, than);
  Val before = to.compare(isTop ? Compare::UGT : Compare::ULT, key, than);
  Val number = isTop ? than : key;
  return to.binary(Binary::AndI, before,
                   to.compare(Compare::ORD, number, number));
}

/// What stands in a place that no element has taken.
Kernel::Values Kernel::freePlace(StatePlan &s) {
  Builder b(s.op.getContext());
  Values free{identity(s)};
  for (Type type : llvm::drop_begin(s.op.getResultTypes()))
    free.push_back(isa<FloatType>(type)
                       ? to.constant(b.getFloatAttr(type, 0.0))
                       : to.constant(cast<TypedAttr>(b.getIntegerAttr(
                             type.isIndex() ? b.getI32Type() : type, -1))));
  return free;
}

size_t Kernel::sizeOfLists(StatePlan &s) {
  return arrays[s.number].values.size() * size_t(plan.extent(rankOf(s)));
}

/// Rows along the lanes: the lists of a register of rows are registers, best
/// first.
Kernel::Values Kernel::listsOfLanes(StatePlan &s, Tile &t) {
  Values lists;
  for (Array &array : arrays[s.number].values)
    for (int64_t k = 0; k < plan.extent(rankOf(s)); ++k) {
      Tile at(&t);
      at.local[rankOf(s)] = Ix(k);
      lists.push_back(readArray(at, array, 0, 0));
    }
  return lists;
}

void Kernel::keepListsOfLanes(StatePlan &s, Tile &t, ArrayRef<Val> lists) {
  for (Array &array : arrays[s.number].values)
    for (int64_t k = 0; k < plan.extent(rankOf(s)); ++k) {
      Tile at(&t);
      at.local[rankOf(s)] = Ix(k);
      writeArray(at, array, 0, 0, lists.front());
      lists = lists.drop_front();
    }
}

/// Key and payloads of one step, a row a lane.
Kernel::Values Kernel::elementOfLanes(StatePlan &s, Tile &t, int c) {
  Values element{to.splat(eval(t, s.term, 0, c))};
  for (Node *n : s.payloads)
    element.push_back(to.splat(eval(t, n, 0, c)));
  return element;
}

/// The best of some steps, the first of equal ones. Pair by pair, since each
/// element that is held against a list waits for the one before.
Kernel::Values Kernel::bestOfLanes(StatePlan &s, Tile &t, int64_t count) {
  SmallVector<Values> best;
  for (int64_t c = 0; c < count; ++c)
    best.push_back(elementOfLanes(s, t, c));
  while (best.size() > 1) {
    SmallVector<Values> winners;
    for (size_t i = 0; i + 1 < best.size(); i += 2) {
      Val isLater = beats(s, best[i + 1][0], best[i][0]);
      Values &winner = winners.emplace_back();
      for (auto [first, later] : llvm::zip(best[i], best[i + 1]))
        winner.push_back(to.select(isLater, later, first));
    }
    if (best.size() % 2)
      winners.push_back(best.back());
    best = std::move(winners);
  }
  return best.front();
}

/// Elements of some steps of each row enter: lists of one take the best of
/// them.
void Kernel::enterLanes(StatePlan &s, Tile &t, int64_t count,
                        MutableArrayRef<Val> lists) {
  if (plan.extent(rankOf(s)) == 1)
    return enterElement(s, bestOfLanes(s, t, count),
                        positionAt(t, plan.stream, 0, 0), lists);
  for (int64_t c = 0; c < count; ++c)
    enterElement(s, elementOfLanes(s, t, c), positionAt(t, plan.stream, 0, c),
                 lists);
}

/// One element of each row: a place keeps what it has, or takes the element, or
/// what the one before had. As many places are taken as the stream has gone.
void Kernel::enterElement(StatePlan &s, const Values &element, Ix seen,
                          MutableArrayRef<Val> lists) {
  int64_t length = plan.extent(rankOf(s));
  Values moves;
  for (int64_t k = 0; k < length; ++k)
    moves.push_back(to.binary(Binary::OrI, to.splat(to.less(seen, k + 1)),
                              beats(s, element[0], lists[k])));
  for (auto [a, v] : llvm::enumerate(element))
    for (int64_t k = length; k-- > 0;) {
      Val *place = &lists[a * length + k];
      Val arrives = k ? to.select(moves[k - 1], place[-1], v) : v;
      *place = to.select(moves[k], arrives, *place);
    }
}

void Kernel::initialiseOrdered(StatePlan &s) {
  StateArrays &a = arrays[s.number];
  Builder b(s.op.getContext());
  Values free = freePlace(s);
  if (plan.rowLane != kNone && (s.set & bit(plan.rowLane))) {
    Values lists;
    for (Val v : free)
      lists.append(plan.extent(rankOf(s)), to.splat(v));
    return eachRow(plan.hasRow(s.set), [&](Ix row) {
      eachColumn(row, [&](Tile &t) { keepListsOfLanes(s, t, lists); });
    });
  }
  eachRow(plan.hasRow(s.set), [&](Ix row) {
    Tile t = tileOf(row);
    writeArray(t, a.count, 0, 0, to.constant(b.getI32IntegerAttr(0)));
    t.local[rankOf(s)] = Ix(0);
    for (auto [v, array] : llvm::zip(free, a.values)) {
      if (s.takesCandidates) // a list is a register
        to.storeWide(to.splat(v), array.buffer, offsetIn(t, array, 0, 0),
                     Val());
      else
        to.each(0, extents[rankOf(s)], to.lanes(), [&](Ix k) {
          Tile at = tileOf(row);
          at.local[rankOf(s)] = k;
          to.storeWide(to.splat(v), array.buffer, offsetIn(at, array, 0, 0),
                       to.mask(to.sub(extents[rankOf(s)], k)));
        });
    }
  });
}

/// Puts one element where it belongs; what stands behind moves down. From the
/// end of the list, register by register: a place takes what it has, or what
/// the one before has, or the element.
void Kernel::insertOrdered(StatePlan &s, Ix row, Values element) {
  StateArrays &a = arrays[s.number];
  Builder b(s.op.getContext());
  Tile head = tileOf(row);
  Val count = readArray(head, a.count, 0, 0);
  Val end = to.splat(count);
  Val one = to.constant(b.getI32IntegerAttr(1)), wideOne = to.splat(one);
  for (Val &v : element)
    v = to.splat(v);
  Ix room = extents[rankOf(s)];
  Ix registers = to.ceilDiv(room, to.lanes());
  to.each(0, registers, 1, [&](Ix i) {
    Tile t = tileOf(row);
    Ix at = to.mul(to.sub(to.sub(registers, 1), i), to.lanes());
    t.local[rankOf(s)] = at;
    Val places = to.iota(at), behind = to.binary(Binary::AddI, places, wideOne);
    Val inside = to.mask(to.sub(room, at));
    Val hasFormer = to.binary(Binary::AndI, inside,
                              to.compare(Compare::SGT, behind, wideOne));
    Values now, former;
    for (Array &array : a.values) {
      Ix place = offsetIn(t, array, 0, 0);
      now.push_back(to.loadWide(array.buffer, place, inside));
      former.push_back(to.loadWide(array.buffer, to.sub(place, 1), hasFormer));
    }
    // Free places are behind the count.
    Val moves = to.binary(Binary::OrI, to.compare(Compare::SGT, behind, end),
                          beats(s, element[0], now[0]));
    Val formerMoves =
        to.binary(Binary::OrI, to.compare(Compare::SGT, places, end),
                  beats(s, element[0], former[0]));
    formerMoves = to.binary(Binary::AndI, formerMoves, hasFormer);
    for (auto [k, array] : llvm::enumerate(a.values)) {
      Val arrives = to.select(formerMoves, former[k], element[k]);
      to.storeWide(to.select(moves, arrives, now[k]), array.buffer,
                   offsetIn(t, array, 0, 0), inside);
    }
  });
  writeArray(head, a.count, 0, 0, to.binary(Binary::AddI, count, one));
}

void Kernel::orderedColumn(StatePlan &s, Tile &t, int c, bool isChecked) {
  StateArrays &a = arrays[s.number];
  Ix row = t.rowLocal[0];
  Values wide{to.splat(eval(t, s.term, 0, c))};
  for (Node *n : s.payloads)
    wide.push_back(to.splat(eval(t, n, 0, c)));
  Val inside = isChecked ? maskOf(t, c) : Val();
  auto last = [&] {
    Tile end = tileOf(row);
    end.local[rankOf(s)] = to.sub(extents[rankOf(s)], 1);
    return readArray(end, a.values[0], 0, 0);
  };
  auto isNotFull = [&] {
    Tile head = tileOf(row);
    return to.less(to.toIndex(readArray(head, a.count, 0, 0)),
                   extents[rankOf(s)]);
  };
  Builder b(s.op.getContext());
  Val none = to.constant(b.getI32IntegerAttr(to.lanes()));
  // Lanes that would enter a list as it is now, from one on.
  auto entering = [&] {
    Val enters = to.binary(Binary::OrI, to.splat(isNotFull()),
                           beats(s, wide[0], to.splat(last())));
    return inside ? to.binary(Binary::AndI, enters, inside) : enters;
  };
  auto perLane = [&](Val first) {
    to.repeat(
        {first},
        [&](ArrayRef<Val> lane) {
          return to.compare(Compare::SLT, lane[0], none);
        },
        [&](ArrayRef<Val> lane) {
          Values element;
          for (Val v : wide)
            element.push_back(to.extract(v, to.toIndex(lane[0])));
          insertOrdered(s, row, element);
          Val isLater = to.compare(Compare::SGT, to.iota(0), to.splat(lane[0]));
          return Values{
              to.firstLane(to.binary(Binary::AndI, entering(), isLater))};
        });
  };
  to.branch(
      to.less(0, extents[rankOf(s)]),
      [&] {
        Val enters = entering();
        to.branch(
            to.reduceLanes(Binary::OrI, enters),
            [&] { perLane(to.firstLane(enters)); }, [] {});
      },
      [] {});
}
