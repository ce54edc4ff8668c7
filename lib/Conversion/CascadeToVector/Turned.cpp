// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What lies along the rows of a tile while the lanes lie across them. Element
// by element each would be a line of its own, whose addresses are pages apart
// and share a few sets of every cache. Blocks of as many rows as there are
// lanes are turned in registers instead, operands before a tile is looked at,
// results behind it; in between they lie in the workspace as the lanes do.
#include "Kernel.h"
#include "Planner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

bool Plan::turnsAny() const {
  auto isTurned = [](const WritePlan &w) { return w.isTurned; };
  return !turned.empty() || llvm::any_of(sweepWrites, isTurned) ||
         llvm::any_of(finishWrites, isTurned);
}

/// Whether rows by themselves have something to turn: no tile of theirs is left
/// out then, since a sweep reads what the passes have turned.
bool Planner::turnsRows() {
  Plan &p = *plan;
  return p.stream != kNone && p.row != kNone && p.schedule.segments <= 1 &&
         p.hasOnlyRows() &&
         turnedAccesses(cascade, p.sets, p.stream, p.row, target).any();
}

/// Results that are turned are swept so far that those of all rows of a tile
/// stay in the first cache. Not where something that is turned is read, which
/// would be turned again, or where lists are kept, with whole rows.
void Planner::chooseSwept() {
  Plan &p = *plan;
  int64_t bytes = 0;
  bool hasLists =
      llvm::any_of(p.states, [](StatePlan &s) { return s.isList(); });
  for (WritePlan &w : p.sweepWrites)
    if (w.isTurned)
      bytes += std::max<int64_t>(w.value->type.getIntOrFloatBitWidth() / 8, 1);
  if (!bytes || !p.turned.empty() || hasLists)
    return;
  int64_t held = target.l1Bytes / 3 * 2 / (bytes * p.tileRows);
  p.tileSwept = std::clamp(held / p.registerLanes * p.registerLanes,
                           p.registerLanes, p.tileStream);
  p.longestWhole = std::min(p.longestWhole, p.tileSwept);
}

/// Rows by themselves, elements by themselves, and results of products that
/// rows leave in the workspace.
void Planner::findTurned() {
  Plan &p = *plan;
  p.tileSwept = p.tileStream;
  if (p.row == kNone || p.schedule.segments > 1 || p.product ||
      !p.wholes.empty() || p.hasColumns())
    return;
  bool isRows = p.hasOnlyRows(),
       isAlone = p.stream == kNone && p.passes.empty();
  auto accesses = [&](int lane) {
    return turnedAccesses(cascade, p.sets, lane, p.row, target);
  };
  auto findReads = [&](Node *root, int lane) {
    TurnedAccesses turned = accesses(lane);
    NodeSet all;
    collect(root, all);
    for (Node *n : all)
      if (n->kind == Node::Read && llvm::is_contained(turned.reads, n->op) &&
          p.along(n, p.row).kind == Along::Unit &&
          p.along(n, lane).kind == Along::Strided)
        p.turned.insert(n);
  };
  auto findWrites = [&](SmallVectorImpl<WritePlan> &writes) {
    for (WritePlan &w : writes)
      w.isTurned = w.lane != kNone &&
                   llvm::is_contained(accesses(w.lane).writes, w.op) &&
                   p.along(w, p.row).kind == Along::Unit &&
                   p.along(w, w.lane).kind == Along::Strided;
  };
  if (isRows) {
    for (StatePlan &s : p.states) {
      findReads(s.term, p.stream);
      for (Node *n : s.payloads)
        findReads(n, p.stream);
    }
    for (WritePlan &w : p.sweepWrites)
      findReads(w.value, p.stream);
    findWrites(p.sweepWrites);
    return chooseSwept();
  }
  if (isAlone && p.column != kNone && p.prologue.empty() &&
      p.finishContractions.empty())
    for (WritePlan &w : p.finishWrites)
      findReads(w.value, p.column);
  findWrites(p.finishWrites);
}

int Kernel::laneOfTurned() const {
  return plan.stream == kNone ? plan.column : plan.stream;
}

Array Kernel::turnedArray(Type element, int lane, bool isSwept) {
  constexpr int64_t kPageBytes = 4096, kApartBytes = 320;
  int64_t bytes = std::max<int64_t>(element.getIntOrFloatBitWidth() / 8, 1);
  Ix width = isSwept ? Ix(plan.tileSwept) : capacity(lane, /*isLane=*/true);
  if (width.isConstant() && width.constant * bytes % kPageBytes == 0)
    width = to.add(width, kApartBytes / bytes);
  Array a;
  a.dims = {{unsigned(lane), Ix(1)}, {unsigned(plan.row), width}};
  a.count = to.mul(width, int64_t(llvm::alignTo(plan.tileRows, to.lanes())));
  a.buffer = allocate(/*isShared=*/false, element, a.count);
  return a;
}

void Kernel::layOutTurned() {
  turnedReads.clear();
  turnedWrites.clear();
  for (Node *n : plan.turned)
    turnedReads[n] = turnedArray(n->type, laneOfTurned(), /*isSwept=*/false);
  for (bool isSwept : {false, true})
    for (WritePlan &w : isSwept ? plan.sweepWrites : plan.finishWrites)
      if (w.isTurned)
        turnedWrites[&w] = turnedArray(w.value->type, w.lane, isSwept);
}

/// Blocks of as many rows and positions as there are lanes; at an edge some of
/// them do not exist.
void Kernel::eachTurned(int lane,
                        llvm::function_ref<void(Ix, Ix, bool)> block) {
  int64_t n = to.lanes();
  Ix range = rangeOf(lane);
  Ix wholeRows = to.floorTo(rows, n), whole = to.floorTo(range, n);
  auto mayEnd = [&](Ix length) {
    return !length.isConstant() || length.constant % n;
  };
  to.each(0, whole, n, [&](Ix at) {
    to.each(0, wholeRows, n, [&](Ix row) { block(at, row, false); });
    if (mayEnd(rows))
      to.each(wholeRows, rows, n, [&](Ix row) { block(at, row, true); });
  });
  if (mayEnd(range))
    to.each(whole, range, n, [&](Ix at) {
      to.each(0, rows, n, [&](Ix row) { block(at, row, true); });
    });
}

/// The rows that there are at the i-th position from `at` on.
Val Kernel::maskOfTurned(int lane, Ix at, Ix row, int64_t i) {
  Ix exists = to.min(1, to.max(0, to.sub(rangeOf(lane), to.add(at, i))));
  return to.mask(to.mul(exists, to.sub(rows, row)));
}

void Kernel::fillTurned(Node *read) {
  int lane = laneOfTurned();
  const Array &array = turnedReads.at(read);
  Along along = plan.along(read, lane);
  Buffer from = operandOfRead(read);
  Ix step =
      to.mul(to.stride(numberOfOperand(read), along.dim), along.coefficient);
  eachTurned(lane, [&](Ix at, Ix row, bool isEdge) {
    Tile t = tileOf(row);
    t.local[lane] = at;
    Ix place = offsetOf(t, read, 0, 0);
    Values wides;
    for (int64_t i = 0; i < to.lanes(); ++i) {
      wides.push_back(to.loadWide(
          from, place, isEdge ? maskOfTurned(lane, at, row, i) : Val()));
      place = to.add(place, step);
    }
    Ix into = offsetIn(t, array, 0, 0);
    for (Val v : to.turn(wides, read->type)) {
      to.storeWide(v, array.buffer, into, Val());
      into = to.add(into, array.dims[1].stride);
    }
  });
}

void Kernel::fillTurned(const NodeSet &used) {
  for (Node *n : plan.turned)
    if (used.contains(n) && turnedReads.count(n))
      fillTurned(n);
}

NodeSet Kernel::readsOfPass(unsigned pass) {
  NodeSet all;
  for (StatePlan &s : plan.states)
    if (s.pass == pass) {
      collect(s.term, all);
      for (Node *n : s.payloads)
        collect(n, all);
    }
  return all;
}

NodeSet Kernel::readsOfWrites() {
  NodeSet all;
  for (auto *writes : {&plan.sweepWrites, &plan.finishWrites})
    for (WritePlan &w : *writes)
      collect(w.value, all);
  return all;
}

/// What no pass before has filled; the rest too, unless the stream is one tile,
/// which is still there.
void Kernel::fillAgain(const NodeSet &used, unsigned passes) {
  NodeSet before, first, again;
  for (unsigned p = 0; p < passes; ++p)
    if (plan.passes[p].guards.empty())
      for (Node *n : readsOfPass(p))
        before.insert(n);
  for (Node *n : plan.turned)
    if (used.contains(n))
      (before.contains(n) ? again : first).insert(n);
  fillTurned(first);
  if (again.empty())
    return;
  if (plan.streams != bit(plan.stream) || plan.tileSwept != plan.tileStream)
    return fillTurned(again);
  Ix length = extents[plan.stream];
  if (length.isConstant())
    return length.constant > plan.tileStream ? fillTurned(again) : void();
  to.branch(
      to.less(plan.tileStream, length), [&] { fillTurned(again); }, [] {});
}

/// Whether whole lines of a large result are written from here on; null: they
/// are not.
Val Kernel::mayStreamTurned(WritePlan &w, Ix step) {
  constexpr int64_t kLineBytes = 64;
  Buffer target = targetBuffer(w);
  int64_t bytes =
      std::max<int64_t>(target.element.getIntOrFloatBitWidth() / 8, 1);
  Ix all = bytesOf(target.element, w.set);
  if (!plan.schedule.streamBytes || bytes * to.lanes() != kLineBytes ||
      (all.isConstant() && all.constant < streamedFrom(w)))
    return Val();
  Tile start = tileOf(0);
  Ix apart = to.add(to.untilAligned(target, targetOf(start, w, 0, 0)),
                    to.rem(step, to.lanes()));
  return to.binary(Binary::AndI, to.less(apart, 1),
                   to.less(streamedFrom(w) - 1, all));
}

/// What the rows have left goes where it belongs.
void Kernel::flushTurned(WritePlan &w) {
  const Array &array = turnedWrites.at(&w);
  Buffer target = targetBuffer(w);
  unsigned dim = plan.along(w, w.lane).dim;
  Ix step = to.mul(to.stride(numberOfTarget(w), dim),
                   plan.along(w, w.lane).coefficient);
  auto blocks = [&](bool isStreamed) {
    eachTurned(w.lane, [&](Ix at, Ix row, bool isEdge) {
      Tile t = tileOf(row);
      t.local[w.lane] = at;
      Ix place = offsetIn(t, array, 0, 0), into = targetOf(t, w, 0, 0);
      Values wides;
      for (int64_t i = 0; i < to.lanes(); ++i) {
        wides.push_back(to.loadWide(array.buffer, place, Val()));
        place = to.add(place, array.dims[1].stride);
      }
      for (auto [i, v] : llvm::enumerate(to.turn(wides, target.element))) {
        if (isStreamed && !isEdge)
          to.storeStreaming(v, target, into);
        else
          to.storeWide(v, target, into,
                       isEdge ? maskOfTurned(w.lane, at, row, i) : Val());
        into = to.add(into, step);
      }
    });
  };
  if (Val streams = mayStreamTurned(w, step))
    to.branch(streams, [&] { blocks(true); }, [&] { blocks(false); });
  else
    blocks(false);
}

/// Of rows that were walked one by one.
void Kernel::flushSweep() {
  for (WritePlan &w : plan.sweepWrites)
    if (turnedWrites.count(&w))
      flushTurned(w);
}
