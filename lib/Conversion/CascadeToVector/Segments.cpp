// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Few rows and a long stream: the stream is cut into segments, each an item
// that leaves its states in the shared workspace, and a phase of its own merges
// them. The merge of two sets of states is the transport of both to their
// common pivot, then the reducer; there is no other rule.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

bool Kernel::hasSegments() {
  return plan.schedule.segments > 1 && !plan.passes.empty() &&
         plan.rowLane == kNone;
}

/// From shapes only, or bits would depend on the machine: no more than there
/// are stream tiles. Items that lay out panels are long: no more than a few.
Ix Kernel::numSegments() {
  constexpr int64_t kFewItems = 16;
  Ix tiles = to.ceilDiv(extents[plan.stream], plan.tileStream);
  Ix most(plan.schedule.segments);
  if (plan.hasPanelsOfTiles())
    most = to.min(most, to.ceilDiv(kFewItems, to.max(1, mainItems())));
  return to.max(1, to.min(tiles, most));
}

static void moveTo(Array &a, Ix part, Spelling &to) {
  if (a)
    a.buffer.offset = to.mul(part, a.count);
}

/// Where the states of a segment begin, in sets of states.
Ix Kernel::placeOf(Ix segment) { return to.mul(segment, places()); }

/// Points the arrays of states to one segment's part; those of passes before
/// `pass` to part 0, where they were merged.
void Kernel::bindStates(Ix item, Ix segment, unsigned pass) {
  Ix first = to.mul(item, numSegments());
  Ix merged = placeOf(first), part = placeOf(to.add(first, segment));
  for (const StatePlan &s : plan.states) {
    StateArrays &a = arrays[s.number];
    Ix place = s.pass < pass ? merged : part;
    for (Array &value : a.values)
      moveTo(value, place, to);
    moveTo(a.finals, place, to);
    moveTo(a.count, place, to);
  }
}

void Kernel::bindSegment(Ix item, unsigned pass, Ix &lo, Ix &hi) {
  Ix segments = numSegments();
  Ix segment = to.rem(item, segments), main = to.div(item, segments);
  bindItem(main);
  Ix extent = extents[plan.stream];
  Ix length = to.ceilTo(to.ceilDiv(extent, segments), plan.tileStream);
  lo = to.min(to.mul(segment, length), extent);
  hi = to.min(to.add(lo, length), extent);
  bindStates(main, segment, pass);
}

void Kernel::emitSegments(unsigned pass, unsigned phase) {
  eachItem(phase, 1, [&](Ix item) {
    Ix lo, hi;
    bindSegment(item, pass, lo, hi);
    prologue();
    rowByRow([&] { walkPass(pass, lo, hi); });
  });
}

void Kernel::emitMerge(unsigned pass, unsigned phase) {
  eachItem(phase, 1, [&](Ix item) {
    bindItem(item);
    // Neighbours, two by two: merged one after the other they are a chain.
    auto isApart = [&](ArrayRef<Val> now) {
      return to.less(Ix(now[0]), numSegments());
    };
    auto mergePairs = [&](ArrayRef<Val> now) -> Spelling::Values {
      Ix apart(now[0]), stride = to.mul(apart, 2);
      Ix pairs = to.div(to.add(to.add(numSegments(), apart), -1), stride);
      to.each(0, pairs, 1, [&](Ix pair) {
        Ix segment = to.mul(pair, stride);
        bindStates(item, to.add(segment, apart), pass);
        others = arrays;
        bindStates(item, segment, pass);
        mergeSegment(pass, /*hasLists=*/true);
      });
      return {to.materialise(stride)};
    };
    to.repeat({to.materialise(1)}, isApart, mergePairs);
    bindStates(item, 0, pass);
    reducePartials(pass);
    if (pass + 1 < plan.passes.size())
      return;
    prologue();
    finish();
  });
}

void Kernel::emitSegmentSweep(unsigned phase) {
  eachItem(phase, 1, [&](Ix item) {
    Ix lo, hi;
    bindSegment(item, plan.passes.size(), lo, hi);
    prologue();
    rowByRow([&] { sweep(lo, hi); });
  });
}

/// `isKnownOnly`: what they become is only remembered, in both tiles.
void Kernel::mergeRowStates(unsigned pass, bool hasRow, bool hasLists,
                            Tile &mine, Tile &theirs, bool isKnownOnly) {
  for (StatePlan &s : plan.states) {
    bool hasColumn = plan.rowLane != kNone && (s.set & bit(plan.rowLane));
    if (s.pass != pass || s.form == StatePlan::Matrix ||
        plan.hasRow(s.set) != hasRow ||
        hasColumn != (mine.lane != kNone && mine.lane != plan.row) ||
        (s.isList() && !hasLists))
      continue;
    if (s.isList()) {
      if (!isKnownOnly)
        mergeOrdered(s, mine.rowLocal[0]);
      continue;
    }
    Node *old = plan.graph->version(s.op, Node::Old);
    Node *now = plan.graph->version(s.op, Node::New);
    mine.memo[keyOf(mine, old, 0, 0)] =
        readArray(mine, arrays[s.number].values[0], 0, 0);
    theirs.memo[keyOf(theirs, old, 0, 0)] =
        readArray(theirs, others[s.number].values[0], 0, 0);
    Val x = eval(mine, s.moved, 0, 0), y = eval(theirs, s.moved, 0, 0);
    if (x.wide != y.wide)
      x = to.splat(x), y = to.splat(y);
    Val merged = to.binary(s.combine, x, y);
    if (!isKnownOnly)
      writeArray(mine, arrays[s.number].values[0], 0, 0, merged);
    for (Tile *t : {&mine, &theirs})
      t->memo[keyOf(*t, now, 0, 0)] = merged;
  }
}

/// Backwards: a transport reads the old values of earlier states.
void Kernel::mergeMatrixStates(unsigned pass, bool hasRow, Tile &mine,
                               Tile &theirs) {
  for (StatePlan &s : llvm::reverse(plan.states)) {
    if (s.pass != pass || s.form != StatePlan::Matrix ||
        plan.hasRow(s.set) != hasRow)
      continue;
    SmallVector<unsigned> loops;
    for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
      if ((s.set & plan.carried & bit(i)) && int(i) != s.lane)
        loops.push_back(i);
    Tile x(&mine), y(&theirs);
    auto lanes = [&] {
      // Arrays are padded to whole registers.
      to.each(0, span(s.lane), to.lanes(), [&](Ix at) {
        Tile a(&x), b(&y);
        for (Tile *t : {&a, &b}) {
          t->lane = s.lane;
          t->laneLocal = {at};
        }
        Val merged = to.binary(s.combine, to.splat(eval(a, s.moved, 0, 0)),
                               to.splat(eval(b, s.moved, 0, 0)));
        writeArray(a, arrays[s.number].values[0], 0, 0, merged);
      });
    };
    auto enter = [&](auto &self, unsigned depth) -> void {
      if (depth == loops.size())
        return lanes();
      to.each(0, span(loops[depth]), 1, [&](Ix i) {
        x.local[loops[depth]] = y.local[loops[depth]] = i;
        self(self, depth + 1);
      });
    };
    enter(enter, 0);
  }
}

void Kernel::mergeSegment(unsigned pass, bool hasLists) {
  Tile mine = tileOf(Ix(0)), theirs = tileOf(Ix(0));
  theirs.side = 1;
  auto columns = [&](bool hasRow, Ix row, Tile &x, Tile &y) {
    if (plan.rowLane == kNone)
      return;
    eachColumn(row, [&](Tile &at) {
      Tile here(&x), there(&y);
      for (Tile *t : {&here, &there}) {
        t->lane = at.lane;
        t->laneLocal = at.laneLocal;
        t->laneLimit = at.laneLimit;
      }
      // A transport of what each row has of a column reads what all rows share
      // of it, as it was and as it will be.
      if (hasRow)
        mergeRowStates(pass, /*hasRow=*/false, hasLists, here, there,
                       /*isKnownOnly=*/true);
      mergeRowStates(pass, hasRow, hasLists, here, there);
    });
  };
  mergeRowStates(pass, /*hasRow=*/false, hasLists, mine, theirs);
  if (isJoined && !onlyRow)
    eachHead([&](Tile &head) {
      Tile x(&mine), y(&theirs);
      for (Tile *t : {&x, &y}) {
        t->lane = head.lane;
        t->laneLocal = head.laneLocal;
        t->laneLimit = head.laneLimit;
      }
      mergeRowStates(pass, /*hasRow=*/true, hasLists, x, y);
    });
  else if (plan.row != kNone)
    eachRow(/*hasRow=*/true, [&](Ix row) {
      Tile x(&mine), y(&theirs);
      x.rowLocal = y.rowLocal = {row};
      mergeRowStates(pass, /*hasRow=*/true, hasLists, x, y);
      columns(/*hasRow=*/true, row, x, y);
      mergeMatrixStates(pass, /*hasRow=*/true, x, y);
    });
  columns(/*hasRow=*/false, Ix(0), mine, theirs);
  mergeMatrixStates(pass, /*hasRow=*/false, mine, theirs);
}

/// The other segment's list, in its order: it comes later in the stream.
void Kernel::mergeOrdered(StatePlan &s, Ix row) {
  unsigned rank = cast<BlockArgument>(s.op.getRank()[0]).getArgNumber();
  Tile head = tileOf(row);
  Ix count = to.min(to.toIndex(readArray(head, others[s.number].count, 0, 0)),
                    extents[rank]);
  to.each(0, count, 1, [&](Ix k) {
    Tile t = tileOf(row);
    t.local[rank] = k;
    Values element;
    for (Array &array : others[s.number].values)
      element.push_back(readArray(t, array, 0, 0));
    insertOrdered(s, row, element);
  });
}
