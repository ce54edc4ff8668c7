// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a row kernel asks for before it needs it. One thread otherwise
// alternates between waiting for memory and computing.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

// Measured on Zen 5: 2 KB 1.82 ms, 4 KB 1.64, 8 KB 1.55, 16 KB 1.56 (logsumexp
// of 4096 x 4096).
constexpr int64_t kAheadBytes = 8 * 1024;
/// Of operands that few rows share, and on the second level of sums alone:
/// variance of 4096 x 4096, Zen 5, one thread, 2.5 ms, with 4 KB 1.8, 8
/// KB 1.52, 16 KB 1.35 to 1.5, 32 KB 1.45.
constexpr int64_t kFarAheadBytes = 16 * 1024;
constexpr int64_t kLineBytes = 64;

/// Whether the address follows from positions alone. Of a row behind the last
/// one a subscript that is data would be read from behind its array.
static bool hasOwnAddress(Node *read) {
  return llvm::all_of(read->in, [](Node *n) { return n->kind == Node::Index; });
}

/// Dense reads of the terms. Where nothing takes time the machine is ahead by
/// itself while a tile is read for the first time; on the levels behind the
/// first it is in the cache, and memory would rest. A sweep takes time, and all
/// that memory gives: the rest of the row is asked for, and the sweep asks for
/// the next one (LayerNorm of 4096 x 4096: 6.6 ms, with it 5.5; on two threads
/// 3.9 and 3.3), or both for what lies ahead (`asksTwice`). What the sweep
/// beside this pass has asked for is not, nor, where lines are asked into the
/// first cache, what all rows read: a Zen 5 brings it by itself (RMSNorm to
/// int8 512 x 32768 3.2 ms, without 2.75; by hand 2.9 and 2.5). Where a sweep
/// asks for rows into the second cache (`asksFarAhead`) the pass asks for what
/// lies 8 KB ahead into the first, in the next row too: memory would rest
/// behind what the sweep has asked for, and rows come late from the second.
Ahead Kernel::readsToPrefetch(ArrayRef<StatePlan *> states, bool isInCache) {
  bool isSwept = !plan.sweepWrites.empty(), isTwice = plan.facts.asksTwice;
  bool isFar = plan.facts.asksFarAhead;
  Ahead ahead;
  ahead.bytes = isFar || (isTwice && !isSwept) ? kFarAheadBytes : kAheadBytes;
  ahead.again = isTwice && !isSwept ? kAheadBytes : 0;
  ahead.level = isTwice || isFar ? 2 : 1;
  bool areAll = true;
  NodeSet all;
  if (plan.schedule.prefetch)
    for (StatePlan *s : states)
      collect(s->term, all);
  if (llvm::none_of(all, isCostly)) {
    if (isSwept ? isWholeRow && !isFar : !isInCache)
      return ahead;
    ahead.bytes = isSwept ? kAheadBytes : kFarAheadBytes;
    if (isSwept && isFar) {
      ahead.level = 1;
    } else if (isSwept) {
      Ix most = to.sub(extents[plan.stream],
                       to.add(base[plan.stream], plan.tileStream));
      Ix all =
          isTwice ? to.mul(isNextBeyondFirst(), extents[plan.stream]) : Ix(0);
      ahead.most = to.max(most, all);
    }
    bool isOwn = plan.facts.asksIntoFirst || isFar;
    areAll = !isSwept || !isOwn || plan.row == kNone;
  }
  NodeSet asked = rowBefore ? readsOfWrites() : NodeSet();
  for (Node *n : all)
    if (n->kind == Node::Read && n->has(plan.stream) && hasOwnAddress(n) &&
        (areAll || plan.hasRow(n->set)) && !asked.contains(n) &&
        plan.along(n, plan.stream).kind == Along::Unit)
      ahead.reads.push_back(n);
  // Zen 4, covariance 4096 x 4096, one thread 5.4 ms, with 7.0; two 3.3, 3.7.
  size_t arrays = llvm::count_if(ahead.reads, [&](Node *n) {
    return plan.row == kNone || plan.hasRow(n->set);
  });
  if (isTwice && !isSwept && arrays > 1 && llvm::none_of(all, isCostly))
    ahead.reads.clear();
  return ahead;
}

/// Whether column `c` of a group is the first in its cache line.
static bool startsLine(Spelling &to, Type element, int c) {
  int64_t bytes = std::max<int64_t>(element.getIntOrFloatBitWidth() / 8, 1);
  int64_t perLine = std::max<int64_t>(kLineBytes / (bytes * to.lanes()), 1);
  return c % perLine == 0;
}

void Kernel::prefetchAhead(Tile &t, const Ahead &ahead, int c) {
  for (Node *n : ahead.reads) {
    if (!startsLine(to, n->type, c))
      continue;
    int64_t bytes = std::max<int64_t>(n->type.getIntOrFloatBitWidth() / 8, 1);
    Ix distance(ahead.bytes / bytes);
    if (ahead.rows)
      distance = to.max(distance, to.mul(extents[plan.stream], ahead.rows));
    if (ahead.most)
      distance = to.min(distance, to.max(*ahead.most, 0));
    if (distance.is(0))
      continue;
    Ix at = offsetOf(t, n, 0, c);
    auto ask = [&](Ix ahead, int level) {
      to.prefetch(operandOfRead(n), to.add(at, ahead), /*isWrite=*/false,
                  level);
    };
    ask(distance, ahead.level);
    if (ahead.again && !ahead.rows)
      ask(ahead.again / bytes, ahead.level);
  }
}

/// What column `c` of the tile in work is in `there`.
void Kernel::prefetchAt(Tile &there, Node *n, int c) {
  if (startsLine(to, n->type, c))
    to.prefetch(operandOfRead(n), offsetOf(there, n, 0, 0), /*isWrite=*/false);
}

/// The places that the sweep is about to write.
void Kernel::prefetchResults(Tile &t, int c) {
  if (!plan.schedule.prefetch || rowBefore)
    return;
  for (WritePlan &w : plan.sweepWrites) {
    Type element = w.value->type;
    if (plan.hasRow(w.set) && w.lane == plan.stream && !mayStream(w) &&
        !(w.set & plan.carried) &&
        plan.along(w, plan.stream).kind == Along::Unit &&
        startsLine(to, element, c))
      to.prefetch(targetBuffer(w), targetOf(t, w, 0, c), /*isWrite=*/true);
  }
}

/// The next row tile, or as many rows as make up the usual distance: twice as
/// far where asking into the first cache pays. By hand, Zen 5, one thread, 1,
/// 2, 3 and 4 rows ahead: RMSNorm to int8 16384 x 1024 1.95
/// ms, 1.79, 1.62, 1.60; 8192 x 2048 2.40, 1.70, 1.69, 1.70; LayerNorm 16384 x
/// 1024 2.73, 2.69, 2.40, 2.41; RMSNorm 2.42, 2.37, 2.29, 2.26;
/// softmax 3.25, 2.84, 2.64, 2.57. Four times as far where that is asked into
/// the second cache.
Ix Kernel::rowsAhead(WritePlan &w) {
  Ix tile(onlyRow ? 1 : plan.tileRows);
  int64_t bytes = 0;
  for (Node *n : readsAlongRow(w, /*isOfRow=*/true))
    bytes = std::max<int64_t>(bytes, n->type.getIntOrFloatBitWidth() / 8);
  bool isFirst = plan.facts.asksIntoFirst, isFar = plan.facts.asksFarAhead;
  Ix length = extents[plan.stream];
  if (!bytes || length.is(0) || (!isFirst && !isFar && !length.isConstant()))
    return tile;
  int64_t distance = kAheadBytes * (isFar ? 4 : isFirst ? 2 : 1);
  return to.max(tile, to.ceilDiv(distance / bytes, to.max(length, 1)));
}

/// Reads of a result that the walk of a row brings along in order.
SmallVector<Node *> Kernel::readsAlongRow(WritePlan &w, bool isOfRow) {
  SmallVector<Node *> reads;
  NodeSet all;
  collect(w.value, all);
  for (Node *n : all)
    if (n->kind == Node::Read && plan.hasRow(n->set) == isOfRow &&
        hasOwnAddress(n) && plan.hasStream(n->set) && w.lane == plan.stream &&
        plan.along(n, plan.stream).kind == Along::Unit)
      reads.push_back(n);
  return reads;
}

/// What is asked for of the next row while this one is written: what is read
/// for that, or where all of it was kept, as exponentials are, what the states
/// read.
SmallVector<Node *> Kernel::readsOfNextRow(WritePlan &w) {
  SmallVector<Node *> reads = readsAlongRow(w, /*isOfRow=*/true);
  if (!reads.empty() || !plan.facts.asksTwice || w.lane != plan.stream)
    return reads;
  NodeSet all;
  for (StatePlan &s : plan.states)
    collect(s.term, all);
  for (Node *n : all)
    if (n->kind == Node::Read && plan.hasRow(n->set) && hasOwnAddress(n) &&
        n->has(plan.stream) && plan.along(n, plan.stream).kind == Along::Unit)
      reads.push_back(n);
  return reads;
}

/// Whether the last pass asks for so much beyond its place that it begins the
/// next row.
bool Kernel::passAsksForNextRow() {
  return llvm::any_of(plan.states, [&](StatePlan &s) {
    NodeSet all;
    collect(s.term, all);
    return s.pass + 1 == plan.passes.size() && s.form != StatePlan::Matrix &&
           plan.hasStream(s.term->set) && llvm::any_of(all, isCostly);
  });
}

/// Of what is read for a result: the row that is written, what was kept of it,
/// those that come in meanwhile, and what all rows read, unless that is left to
/// the machine.
Ix Kernel::bytesWithNextRow(WritePlan &w) {
  Ix bytes(0);
  auto add = [&](Node *n, Ix rows) {
    int64_t size = std::max<int64_t>(n->type.getIntOrFloatBitWidth() / 8, 1);
    bytes = to.add(bytes, to.mul(to.mul(extents[plan.stream], rows), size));
  };
  int64_t own = readsAlongRow(w, /*isOfRow=*/true).empty() ? 2 : 1;
  for (Node *n : readsOfNextRow(w))
    add(n, to.add(rowsAhead(w), own));
  for (Node *n : readsAlongRow(w, /*isOfRow=*/false))
    if (!plan.facts.asksIntoFirst)
      add(n, 1);
  return bytes;
}

/// 1 where a sweep finds no room for the next row in the first cache, else 0.
Ix Kernel::isNextBeyondFirst() {
  Ix is(0);
  for (WritePlan &w : plan.sweepWrites)
    is = to.max(is, to.div(bytesWithNextRow(w), plan.facts.l1Bytes + 1));
  return to.min(is, 1);
}

/// Results past the caches, one row after another. The next row comes in
/// meanwhile, as near as it has room beside this one and what all rows read:
/// where it has none it drives these out. Sapphire Rapids (48 KB, 2 MB), one
/// thread, into the first cache, the second, not at all: LayerNorm 16384 x 1024
/// 3.7 ms, 4.4, 4.7; without weights 4096 x 4096 3.7, 4.5; with two weights
/// (64 KB) 5.0, 4.7, 4.9; 256 x 131072 (2 MB) 12.7, 12.3, 11.1; RMSNorm there
/// (1.5 MB) 9.2, 9.4, 10.0. Where the pass begins the next row: softmax 256 x
/// 131072 12.0, 11.2, 10.2; 4096 x 4096 4.7, 4.6, 4.5. Zen 5 (48 KB, 1 MB):
/// LayerNorm with two weights 4096 x 4096 3.0, 3.4, 3.7; 1024 x 16384 3.6, 3.4,
/// 3.2; softmax 4096 x 4096 2.8, 2.9, 3.2; 128 x 131072 3.8, 3.8, 3.2.
void Kernel::writeStreamed(WritePlan &w) {
  auto write = [&](std::optional<NextRow> next) {
    nextRow = next;
    writeValues(w, /*isStreamed=*/true);
    nextRow = NextRow();
  };
  if (rowBefore)
    return writeValues(w, /*isStreamed=*/true);
  if ((!onlyRow && plan.tileRows > 1) || !plan.schedule.prefetch)
    return write(NextRow());
  bool isFirst = plan.facts.asksIntoFirst, isTwice = plan.facts.asksTwice;
  Ix bytes = bytesWithNextRow(w);
  bool isAsked = passAsksForNextRow();
  if (readsOfNextRow(w).empty() || (!isFirst && !isTwice && isAsked))
    return write(std::nullopt);
  // What the pass has asked for: its own distance, in this row and behind it.
  int64_t asked = isFirst && isAsked ? 2 * kAheadBytes : 0;
  Ix isInSecond =
      to.min(to.div(plan.facts.l2Bytes / 4 * 3, to.max(bytes, 1)), Ix(1));
  int64_t further = isTwice ? kAheadBytes : 0;
  auto near = [&] {
    write(isTwice && isAsked ? NextRow{2, 1, /*rows=*/1, further}
                             : NextRow{1, 1});
  };
  auto far = [&] {
    bool isNone = isFirst || isInSecond.is(0);
    isNone ? write(std::nullopt)
           : write(NextRow{2, isInSecond, /*rows=*/1, further});
  };
  if (plan.facts.asksFarAhead)
    return far();
  Ix beyond = to.sub(bytes, plan.facts.l1Bytes);
  if (asked)
    beyond = to.max(beyond, to.sub(asked + 1, bytes));
  if (beyond.isConstant())
    return beyond.constant <= 0 ? near() : far();
  to.branch(to.less(0, beyond), far, near);
}

/// While this row is written, what the next row tile reads comes in; by itself
/// to the second cache: the first holds this row and what all rows read. Of a
/// row that is begun beside this one what lies 4 KB further, if the second
/// cache holds a row. Zen 5, one thread, none and 4 KB: RMSNorm to int8 of 128
/// x 131072 3.35 ms and 2.85; of 16 x 1048576, which come from the third cache
/// again, 3.4 and 3.6, RMSNorm there 3.8 and 4.3.
void Kernel::prefetchNextRow(Tile &t, WritePlan &w, int c) {
  constexpr int64_t kFurtherBytes = 4 * 1024;
  if (!plan.schedule.prefetch || plan.row == kNone || !nextRow ||
      t.lane != plan.stream)
    return;
  for (Node *n : readsOfNextRow(w)) {
    if (!startsLine(to, n->type, c))
      continue;
    Tile next = t;
    Ix rows = to.mul(nextRow->times, nextRow->rows);
    next.rowLocal[0] = to.add(t.rowLocal[0], rows);
    int64_t bytes = std::max<int64_t>(n->type.getIntOrFloatBitWidth() / 8, 1);
    Ix isBeyond =
        to.min(1, to.div(extents[plan.stream], plan.facts.l2Bytes / bytes + 1));
    Ix further = rowBefore ? to.mul(to.sub(1, isBeyond), kFurtherBytes / bytes)
                           : to.mul(nextRow->times, nextRow->bytes / bytes);
    to.prefetch(operandOfRead(n), to.add(offsetOf(next, n, 0, c), further),
                /*isWrite=*/false, nextRow->level);
  }
}

/// What a nest of few rows reads of the stream: each row of the tile shares it,
/// so that memory is what the nest waits for. A row by itself waits too, but
/// not for what a contraction of the tile has read.
SmallVector<Node *> Kernel::operandsToPrefetch(const Nest &nest) {
  constexpr int64_t kFewRows = 8;
  SmallVector<Node *> reads;
  if (!plan.schedule.prefetch || plan.tileRows > kFewRows)
    return reads;
  bool isAlone =
      (plan.facts.asksInOrder || plan.facts.asksTwice) && plan.tileRows == 1;
  int lane = nest.lanesReduced ? int(nest.reduced.back()) : nest.lane;
  NodeSet all;
  collect(nest.term, all);
  auto isReadBefore = [&](Node *n) {
    return llvm::any_of(all, [&](Node *other) {
      return other != n && other->kind == Node::Read &&
             numberOfOperand(other) == numberOfOperand(n);
    });
  };
  for (Node *n : all)
    if (n->kind == Node::Read && !plan.packs.count(n) &&
        plan.hasStream(n->set) && lane != kNone && n->has(lane) &&
        plan.along(n, lane).kind == Along::Unit &&
        (!plan.hasRow(n->set) || (isAlone && !isReadBefore(n))))
      reads.push_back(n);
  return reads;
}

static int64_t bytesOfElement(Node *read) {
  return std::max<int64_t>(read->type.getIntOrFloatBitWidth() / 8, 1);
}

/// How many steps of a loop over columns, a register of each, are written out
/// where it asks for their lines in order: a turn of it then reads as much as
/// whole columns have, or an equal part of one, and which lines are its own is
/// one division. 0: there is no such number, or it does not ask so: what it
/// asks for is to lie behind the columns in work.
int64_t Kernel::stepsInOrder(const Nest &nest, const Tile &t) {
  constexpr int64_t kMostSteps = 8;
  if (!plan.facts.asksInOrder || nest.ahead.empty() || nest.bytesAhead ||
      !nest.lanesReduced || nest.unroll < plan.unroll || t.column == kNone)
    return 0;
  Ix range = rangeOf(nest.reduced.back());
  int64_t lanes = to.lanes(), columns = t.numColumns();
  if (columns == 1 || !range.isConstant() || range.constant % lanes)
    return 0;
  for (Node *n : nest.ahead)
    if (int64_t bytes = bytesOfElement(n);
        range.constant * bytes % kLineBytes ||
        columns * lanes * bytes % kLineBytes ||
        columns * range.constant * bytes > kAheadBytes)
      return 0;
  int64_t steps = range.constant / lanes;
  if (steps <= kMostSteps)
    return steps;
  for (int64_t some = kMostSteps; some > 1; --some)
    if (steps % some == 0 &&
        (columns * some % steps == 0 || steps % (columns * some) == 0))
      return some;
  return 0;
}

/// Columns that are in work side by side lie one behind the other, and a step
/// reads a register of each. It asks for as many lines of the columns further
/// on, the first step for the first ones: a machine that follows what is read
/// into its caches sees one stream, not as many as there are columns. By hand,
/// Zen 5, decode 32/8 heads of 128, 16384 keys, one thread: what a step itself
/// reads 4.4 ms, so 3.4; all lines of a block of columns at once 3.95, column
/// by column, loads too, 4.3 (beside 4.0); reading alone 2.8.
bool Kernel::prefetchInOrder(const Nest &nest, Tile &t, Node *n) {
  if (!stepsInOrder(nest, t))
    return false;
  int64_t perLine = kLineBytes / bytesOfElement(n);
  int64_t perStep = t.numColumns() * to.lanes();
  int64_t length = rangeOf(nest.reduced.back()).constant;
  // Sapphire Rapids, the same, one thread / two, in turns: a step's own 16.0 /
  // 6.8 ms; so 8 KB into the first cache 13.7 / 4.85, 16 KB into the second
  // 12.7 / 4.35. By hand into the second what reading alone takes, else 0.88.
  bool isFirst = plan.facts.asksIntoFirst;
  int64_t ahead =
      (isFirst ? kAheadBytes : kFarAheadBytes) / (length * bytesOfElement(n));
  // The first element of the loop's turn, and what follows it in this one.
  Ix at = to.mul(t.laneLocal[0], t.numColumns()), turn(at.value);
  Ix column = to.div(turn, length), place = to.rem(turn, length);
  for (int64_t i = at.constant; i < at.constant + perStep; i += perLine) {
    Tile there = t;
    there.columnLocal = {
        to.add(t.columnLocal[0], to.add(column, i / length + ahead))};
    there.laneLocal = {to.add(place, i % length)};
    to.prefetch(operandOfRead(n), offsetOf(there, n, 0, 0), /*isWrite=*/false,
                isFirst ? 1 : 2);
  }
  return true;
}

void Kernel::prefetchOperands(const Nest &nest, Tile &t) {
  // Into the second cache: tiles of keys and values take turns in the first.
  // Zen 4, decode 32/8 heads of 128, 16384 keys, tiles of 128: 8 KB 9.7 ms,
  // 16 KB 8.6, 32 KB 9.8; 8 KB into the first cache 14.2; with the values, too,
  // 6.8, both again at 8 KB 5.8 (by hand 5.8, reading alone 4.5). Zen 5, tiles
  // of 256, 16 KB into the second cache 6.5; into the first 4 KB 5.2, 8 KB 4.8,
  // 12 KB 5.1, 16 KB 5.4.
  bool isFirst = plan.facts.asksIntoFirst && !nest.bytesAhead;
  bool isInOrder = plan.facts.asksInOrder && !nest.bytesAhead;
  bool isTwice = plan.facts.asksTwice && !nest.bytesAhead;
  int64_t farBytes = isFirst           ? kAheadBytes
                     : nest.bytesAhead ? nest.bytesAhead
                                       : kFarAheadBytes;
  if (!nest.depthAhead.is(0)) {
    Tile there = t;
    Ix &depth = there.local[t.reduced];
    depth = to.add(depth, nest.depthAhead);
    for (Node *n : nest.ahead)
      for (int64_t c = 0; c < t.numColumns(); ++c)
        if (startsLine(to, n->type, c))
          to.prefetch(operandOfRead(n), offsetOf(there, n, 0, c),
                      /*isWrite=*/false, /*level=*/2);
    return;
  }
  for (Node *n : nest.ahead) {
    if (isInOrder && (prefetchInOrder(nest, t, n) ||
                      (t.column != kNone && plan.hasRow(n->set))))
      continue;
    for (int64_t c = 0; c < t.numColumns(); ++c) {
      if (t.column == kNone && !startsLine(to, n->type, c))
        continue;
      int64_t bytes = std::max<int64_t>(n->type.getIntOrFloatBitWidth() / 8, 1);
      Ix at = offsetOf(t, n, 0, c);
      auto ask = [&](int64_t ahead, int level) {
        to.prefetch(operandOfRead(n), to.add(at, ahead / bytes),
                    /*isWrite=*/false, level);
      };
      ask(farBytes, isFirst ? 1 : 2);
      if (isTwice)
        ask(kAheadBytes, 2);
    }
  }
}

/// Panels of a term whose sums are written, if they lie ready.
SmallVector<Node *> Kernel::readyPanels(const Nest &nest) {
  SmallVector<Node *> reads;
  if (!nest.isAlone)
    return reads;
  NodeSet all;
  collect(nest.term, all);
  for (auto &[value, pack] : plan.packs)
    if (all.contains(value) && !pack.isOwn && !pack.inPairs)
      reads.push_back(value);
  return reads;
}

/// Those of which an item reads a block, or some at a time.
SmallVector<Node *> Kernel::panelsInBlocks(const Nest &nest) {
  bool isBlock = plan.product && plan.block != kNone && nest.lane == plan.block;
  if ((!isBlock || (slice && !passByPanel().is(1))) && plan.wholes.empty())
    return {};
  return readyPanels(nest);
}

/// Lines of panels that the steps of a loop read.
static int64_t linesOfSteps(const Plan &plan, const Nest &nest, Node *read) {
  int64_t bytes = std::max<int64_t>(read->type.getIntOrFloatBitWidth() / 8, 1);
  return llvm::divideCeil(nest.unroll * plan.registerLanes * bytes, kLineBytes);
}

/// How far behind the panels that this block of rows reads those lie that it
/// asks for, those of the next item with these rows, or the next that this item
/// reads after lanes [first, end); 0: another block does. All blocks of rows
/// together ask for each line once, one in each turn of a loop: panels of
/// constants come from the third cache, if not from memory, and the first block
/// of rows would wait for them. Sapphire Rapids, 24 products by 384
/// x 384, 128 rows, one thread 4.13 and 4.00 ms, two (each its own rows) 2.35
/// and 2.14.
Ix Kernel::panelsAhead(const Nest &nest, Ix row, Ix first, Ix end) {
  SmallVector<Node *> reads = panelsInBlocks(nest);
  if (reads.empty())
    return Ix(0);
  Node *read = reads.front();
  int64_t lines = linesOfSteps(plan, nest, read);
  int64_t bytes = std::max<int64_t>(read->type.getIntOrFloatBitWidth() / 8, 1);
  Ix at = row, all = rows, columns = to.sub(end, first);
  // Behind the lanes of one outer place lie those of the next.
  bool hasOuter = nest.out & plan.carried & ~bit(nest.lane);
  Ix left = hasOuter ? Ix(1) : to.sub(rangeOf(nest.lane), end);
  bool isByPanel = passByPanel().is(1);
  Ix wrapped(0);
  if (plan.product && isByPanel) {
    // Behind the last panel of a block more rows begin at its first one again.
    Ix done = to.sub(to.add(base[plan.row], rows), rowsOfPart.first);
    Ix areMore = to.min(1, to.max(0, to.sub(rowsOfPart.count, done)));
    Ix isLast = to.sub(1, to.min(1, to.max(0, left)));
    wrapped = to.mul(to.mul(isLast, areMore), rangeOf(nest.lane));
    Ix others = to.sub(extents[plan.block], to.add(base[plan.block], end));
    left = to.max(areMore, others);
  } else if (plan.product) {
    at = to.sub(to.add(base[plan.row], row), rowsOfPart.first);
    all = rowsOfPart.count;
    columns = blockTile();
    left = to.sub(extents[plan.block], to.add(base[plan.block], columns));
  }
  Ix turn = to.mul(to.div(at, nest.rows), lines);
  Ix count = to.max(1, to.div(all, nest.rows));
  Ix line = to.div(turn, count);
  Ix isOthers = to.min(1, to.div(to.sub(turn, to.mul(line, count)), lines));
  Ix apart = to.mul(to.sub(columns, wrapped),
                    packDepthOf(plan.packs.find(read)->second));
  if (slice) { // the next slice of these panels, the first of the next
    Ix behind = to.sub(rangeOf(nest.reduced[0]), slice->first);
    Ix isMore = to.min(1, to.max(0, to.sub(behind, slice->count)));
    Ix next = to.sub(apart, to.mul(slice->first, plan.registerLanes));
    Ix here = to.mul(slice->count, plan.registerLanes);
    apart = to.add(next, to.mul(isMore, to.sub(here, next)));
    left = to.max(left, isMore);
  }
  Ix asks = to.mul(to.sub(1, isOthers), to.min(1, to.max(0, left)));
  return to.mul(asks, to.add(apart, to.mul(line, kLineBytes / bytes)));
}

/// Once for the steps that are written out behind each other.
void Kernel::prefetchPanels(const Nest &nest, Tile &t) {
  if (!t.panel || localAt(t, t.reduced, 0, 0).constant % nest.unroll)
    return;
  auto ask = [&](Node *read, Ix behind, int level) {
    to.prefetch(panels.at(read), to.add(panelOffset(t, read, 0, 0), behind),
                /*isWrite=*/false, level);
  };
  // By hand, Zen 5, 8 rows: 4 KB 1.5 ms, 8 KB 1.2, 16 KB 1.0.
  constexpr int64_t kFarBytes = 16 * 1024;
  if (!nest.asksForAll) {
    if (!nest.panelsAhead.is(0))
      for (Node *read : panelsInBlocks(nest))
        ask(read, nest.panelsAhead, 2);
    return;
  }
  if (t.rowLocal.size() < 2)
    return; // the machine follows one row by itself
  for (Node *read : readyPanels(nest)) {
    int64_t bytes =
        std::max<int64_t>(read->type.getIntOrFloatBitWidth() / 8, 1);
    for (int64_t line = 0; line < linesOfSteps(plan, nest, read); ++line)
      ask(read, (kFarBytes + line * kLineBytes) / bytes,
          plan.facts.asksIntoFirst ? 1 : 2);
  }
}
