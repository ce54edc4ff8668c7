// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A pass: tiles of the stream from the first to the last that conditions leave,
// then what follows the passes.
#include "Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Loops over the stream indices that have no tile.
void Kernel::outerStreams(Set rest, llvm::function_ref<void()> body) {
  if (!rest)
    return body();
  unsigned index = llvm::countr_zero(rest);
  to.each(0, extents[index], 1, [&](Ix i) {
    base[index] = i;
    outerStreams(rest & (rest - 1), body);
  });
  base[index] = Ix(0);
}

void Kernel::streamTile(unsigned pass) {
  keptReady.clear();
  statesReady.clear();
  for (Step &step : plan.passes[pass].steps) {
    if (step.kind == Step::Contraction)
      contraction(step.contraction);
    else if (step.kind == Step::Rows)
      rowStep(pass, step);
    else
      matrixState(plan.states[step.state]);
  }
  placePivots(pass);
  keptReady.clear();
  statesReady.clear();
}

/// Tiles [floor(lo), hi). A tile is at its boundary where the comparison of a
/// condition may be false for one of its rows, or where the stream ends inside
/// it.
void Kernel::streamLoop(unsigned pass, Ix lo, Ix hi) {
  Ix first = lo, last = hi, fullFirst = lo, fullLast = hi;
  bool isSkipping = false;
  for (Condition &c : plan.passes[pass].conditions) {
    auto boundAt = [&](Ix row) {
      Tile t = tileOf(row);
      return to.add(to.toIndex(eval(t, c.bound, 0, 0)), c.add);
    };
    Ix begin = boundAt(0);
    Ix end = plan.hasRow(c.bound->set) ? boundAt(to.sub(rows, 1)) : begin;
    if (c.isUpper) {
      last = to.min(last, to.max(end, lo));
      fullLast = to.min(fullLast, begin);
    } else {
      first = to.max(first, begin);
      fullFirst = to.max(fullFirst, end);
    }
    isSkipping = true;
  }
  int64_t width = plan.tileStream;
  Ix start = isSkipping ? to.floorTo(first, width) : lo;
  // The start of an empty segment, the stream's end, is inside a tile of the
  // segment before.
  if (isSkipping && hasSegments())
    start = to.max(start, lo);
  to.each(start, last, width, [&](Ix at) {
    base[plan.stream] = at;
    bool mayEnd = plan.hasTail || isSkipping;
    valid = mayEnd ? to.min(width, to.sub(last, at)) : Ix(width);
    isBoundary.reset();
    if (mayEnd) {
      Val isAtEnd = to.less(fullLast, to.add(at, width));
      if (isSkipping)
        isAtEnd = to.binary(Binary::OrI, isAtEnd, to.less(at, fullFirst));
      isBoundary = isAtEnd;
    }
    streamTile(pass);
    isBoundary.reset();
  });
  base[plan.stream] = Ix(0);
}

/// Tiles that are added up one after the other.
constexpr int64_t kTilesOfBlock = 16;

/// Whether rows may be longer than a block, and all that a pass leaves can be
/// merged as the states of segments are.
bool Kernel::hasBlocks() {
  if (!plan.hasShortRows() || llvm::any_of(plan.states, [](const StatePlan &s) {
        return s.form == StatePlan::Ordered;
      }))
    return false;
  int64_t length = plan.extent(plan.stream);
  return ShapedType::isDynamic(length) ||
         length > kTilesOfBlock * plan.tileStream;
}

/// The error of a sum grows with the length of its chain of additions: a long
/// row is blocks of tiles. All but the first are found by themselves, in a
/// second place of each state, and merged with what was there before.
void Kernel::streamBlocks(unsigned pass, Ix lo, Ix hi) {
  if (!hasBlocks())
    return streamLoop(pass, lo, hi);
  int64_t length = kTilesOfBlock * plan.tileStream;
  to.each(lo, hi, length, [&](Ix at) {
    auto before = arrays;
    Ix place = to.min(to.sub(at, lo), 1);
    for (StatePlan &s : plan.states)
      if (s.pass == pass)
        for (Array &value : arrays[s.number].values)
          value.buffer.offset =
              to.add(value.buffer.offset, to.mul(place, value.count));
    initialise(pass);
    streamLoop(pass, at, to.min(to.add(at, length), hi));
    others = std::exchange(arrays, before);
    to.branch(to.less(lo, at), [&] { mergeSegment(pass); }, [] {});
  });
}

void Kernel::finish() {
  for (Node *n : plan.finishContractions)
    contraction(n);
  computeNumbers(plan.finishNumbers);
  for (WritePlan &w : plan.finishWrites)
    if (isWholeRow && readsWhole(w))
      continue; // written with the sum
    else if (w.lane == kNone && plan.hasRow(w.set) && plan.tileRows > 1 &&
             plan.rowLane == kNone && !onlyRow)
      writeRows(w);
    else
      writeNest(w);
  for (Node *n : plan.finishNumbers)
    keptReady.erase(n);
}

/// The second traversal: results that vary with the stream.
void Kernel::sweep(Ix lo, Ix hi) {
  if (plan.sweepWrites.empty())
    return;
  Set outer = plan.streams & ~bit(plan.stream);
  outerStreams(outer, [&] {
    int64_t width = plan.tileStream;
    to.each(lo, hi, width, [&](Ix at) {
      base[plan.stream] = at;
      valid = plan.hasTail ? to.min(width, to.sub(hi, at)) : Ix(width);
      for (Node *n : plan.sweepContractions)
        contraction(n);
      for (WritePlan &w : plan.sweepWrites)
        writeNest(w);
    });
    base[plan.stream] = Ix(0);
  });
}
