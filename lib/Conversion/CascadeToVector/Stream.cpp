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

/// Tiles along an outer stream.
Ix Kernel::numTilesAlong(unsigned index) {
  return isJoined && int(index) == plan.deep
             ? to.ceilDiv(extents[index], plan.tileDeep)
             : extents[index];
}

void Kernel::toDeepTile(Ix at) {
  base[plan.deep] = at;
  depth = to.min(plan.tileDeep, to.sub(extents[plan.deep], at));
}

/// Loops over the tiles of the outer streams, that of deep tiles innermost.
void Kernel::outerTiles(Set outer, llvm::function_ref<void()> body) {
  if (!isJoined || plan.deep == kNone)
    return outerStreams(outer, body);
  outerStreams(outer & ~bit(plan.deep), [&] {
    to.each(0, extents[plan.deep], plan.tileDeep, [&](Ix at) {
      toDeepTile(at);
      body();
      depth.reset();
    });
    base[plan.deep] = Ix(0);
  });
}

void Kernel::streamTile(unsigned pass) {
  keptReady.clear();
  statesReady.clear();
  if (!areTurned)
    fillAgain(readsOfPass(pass), pass);
  for (Step &step : plan.passes[pass].steps) {
    if (step.kind == Step::Contraction)
      contraction(step.contraction);
    else if (step.kind == Step::Rows)
      flushedStep(pass, step);
    else
      matrixState(plan.states[step.state]);
  }
  placePivots(pass);
  keptReady.clear();
  statesReady.clear();
}

/// Where tiles of a pass have something to do: in [first, last), or everywhere
/// in [least, most) if the extreme that says so stays low; all rows of them in
/// [fullFirst, fullLast).
Kernel::Walked Kernel::walkedBy(unsigned pass, Ix lo, Ix hi) {
  Walked walked{lo, hi, lo, hi, lo, hi};
  for (Condition &c : plan.passes[pass].conditions) {
    auto boundAt = [&](Ix row) {
      Tile t = tileOf(row);
      return to.add(to.toIndex(eval(t, c.bound, 0, 0)), c.add);
    };
    Ix begin = boundAt(0);
    Ix end = plan.hasRow(c.bound->set) ? boundAt(to.sub(rows, 1)) : begin;
    if (c.isUpper) {
      end = to.max(end, lo);
      // What may follow begins with a panel.
      if (c.extreme >= 0)
        end = to.ceilTo(end, plan.registerLanes);
      else
        walked.most = to.min(walked.most, end);
      walked.last = to.min(walked.last, end);
      walked.fullLast = to.min(walked.fullLast, begin);
    } else {
      if (c.extreme < 0)
        walked.least = to.max(walked.least, begin);
      walked.first = to.max(walked.first, begin);
      walked.fullFirst = to.max(walked.fullFirst, end);
    }
    walked.isPart = true;
    walked.mayFollow |= c.extreme >= 0;
  }
  if (!walked.isPart)
    return walked;
  // Parts that may follow lie before and behind the first one.
  if (walked.mayFollow)
    walked.first = to.min(walked.first, walked.last);
  // The start of an empty segment, the stream's end, is inside a tile of the
  // segment before.
  for (Ix *at : {&walked.first, &walked.least}) {
    *at = to.floorTo(*at, plan.tileStream);
    if (hasSegments())
      *at = to.max(*at, lo);
  }
  return walked;
}

/// 1 where an extreme is not above what masks hold in all rows, or a NaN.
Ix Kernel::isLeftLow(unsigned pass) {
  Ix isAny(0);
  for (Condition &c : plan.passes[pass].conditions) {
    if (c.extreme < 0)
      continue;
    StatePlan &s = plan.states[c.extreme];
    auto number = [&](double v) {
      return to.constant(FloatAttr::get(cast<FloatType>(s.type()), v));
    };
    auto least = [&](Ix row, ArrayRef<Val> in) -> Spelling::Values {
      Tile t = tileOf(row);
      Val v = readArray(t, runningOf(s), 0, 0);
      return {to.binary(Binary::MinimumF, in[0], v)};
    };
    Val lowest = to.loop(0, rows, 1, {number(HUGE_VAL)}, least)[0];
    Val isAbove = to.compare(Compare::OGT, lowest, number(c.least));
    auto word = [&](int32_t v) {
      return to.constant(
          IntegerAttr::get(IntegerType::get(s.type().getContext(), 32), v));
    };
    isAny = to.max(isAny, to.toIndex(to.select(isAbove, word(0), word(1))));
  }
  return isAny;
}

/// Tiles of [lo, hi). A tile is at its boundary where the comparison of a
/// condition may be false for one of its rows, or where the stream ends inside
/// it.
void Kernel::streamLoop(unsigned pass, Ix lo, Ix hi) {
  Walked walked = walkedBy(pass, lo, hi);
  int64_t width = plan.tileStream;
  auto tiles = [&](Ix first, Ix last) {
    to.each(first, last, width, [&](Ix at) {
      bool mayEnd = plan.hasTail || walked.isPart;
      if (rowBefore)
        rowBefore->isDue = pass == 0;
      base[plan.stream] = at;
      valid = mayEnd ? to.min(width, to.sub(last, at)) : Ix(width);
      isBoundary.reset();
      if (mayEnd) {
        Val isAtEnd = to.less(walked.fullLast, to.add(at, width));
        if (walked.isPart)
          isAtEnd =
              to.binary(Binary::OrI, isAtEnd, to.less(at, walked.fullFirst));
        isBoundary = isAtEnd;
      }
      streamTile(pass);
      isBoundary.reset();
    });
    base[plan.stream] = Ix(0);
  };
  if (!walked.mayFollow)
    return tiles(walked.first, walked.last);
  // Between the bounds, then before and behind them.
  auto part = [&](Ix number, ArrayRef<Val> range) -> Spelling::Values {
    tiles(Ix(range[0]), Ix(range[1]));
    auto next = [&](Ix before, Ix behind) { // number 0 and 1
      return to.add(before, to.mul(number, to.sub(behind, before)));
    };
    Ix begin = next(walked.least, walked.last);
    Ix end = next(walked.first, walked.most);
    Ix length = to.mul(isLeftLow(pass), to.max(to.sub(end, begin), 0));
    return {to.materialise(begin), to.materialise(to.add(begin, length))};
  };
  to.loop(0, 3, 1, {to.materialise(walked.first), to.materialise(walked.last)},
          part);
}

/// Tiles that are added up one after the other: more of them where they are
/// short, since what merges blocks takes as long as a tile of them.
int64_t Kernel::tilesOfBlock() {
  constexpr int64_t kTiles = 16, kShortTiles = 64;
  int64_t length = plan.joinsTiles ? plan.extent(plan.stream) : 0;
  bool areShort = plan.joinsTiles && plan.deep == kNone &&
                  !ShapedType::isDynamic(length) &&
                  length <= plan.longestJoined;
  return areShort ? kShortTiles : kTiles;
}

/// How many sets of states a segment has: enough for 2^15 blocks. Those of sums
/// by columns are large: for 2^7 blocks, and of segments, which lie in memory
/// together, one for all blocks so far and one for the next.
int64_t Kernel::places() {
  constexpr int64_t kPlaces = 16, kOfMatrices = 8, kOfSegments = 2;
  if (!hasBlocks())
    return 1;
  bool hasColumns = plan.hasMatrixStates() || plan.rowLane != kNone;
  return !hasColumns ? kPlaces : hasSegments() ? kOfSegments : kOfMatrices;
}

/// Whether a pass may have more tiles than a block, and all that it leaves can
/// be merged as the states of segments are, or is a list, which is complete
/// after every element.
bool Kernel::hasBlocks() {
  bool mayMerge = plan.hasOnlyRows() ||
                  (!plan.passes.empty() && plan.stream != kNone &&
                   plan.hasMatrixStates() != (plan.rowLane != kNone) &&
                   llvm::all_of(plan.states, [](const StatePlan &s) {
                     return s.keys.empty();
                   }));
  if (!mayMerge ||
      llvm::all_of(plan.states, [](const StatePlan &s) { return s.isList(); }))
    return false;
  int64_t tiles = 1;
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i) {
    if (!(plan.streams & bit(i)))
      continue;
    int64_t length = plan.extent(i);
    if (ShapedType::isDynamic(length))
      return true;
    if (int(i) == plan.stream)
      length = llvm::divideCeil(length, plan.tileStream);
    if (length && tiles > tilesOfBlock() / length)
      return true;
    tiles *= length;
  }
  return false;
}

/// Points the states of a pass to one of the places that a segment has.
void Kernel::toPlace(unsigned pass, Ix place) {
  for (StatePlan &s : plan.states)
    if (s.pass == pass && !s.isList())
      for (Array &value : arrays[s.number].values)
        value.buffer.offset =
            to.add(value.buffer.offset, to.mul(place, value.count));
}

/// The number-th tile of a pass: the stream of the tiles is the innermost.
void Kernel::streamTileAt(unsigned pass, Ix lo, Ix hi, Ix number) {
  Ix tiles = to.ceilDiv(to.sub(hi, lo), plan.tileStream);
  Ix outer = to.div(number, tiles);
  Ix at = to.add(lo, to.mul(to.rem(number, tiles), plan.tileStream));
  for (int i = plan.cascade.numIndices() - 1; i >= 0; --i) {
    if (i == plan.stream || !(plan.streams & bit(i)))
      continue;
    Ix count = numTilesAlong(i), place = to.rem(outer, count);
    if (isJoined && i == plan.deep)
      toDeepTile(to.mul(place, plan.tileDeep));
    else
      base[i] = place;
    outer = to.div(outer, count);
  }
  streamLoop(pass, at, to.min(to.add(at, plan.tileStream), hi));
  depth.reset();
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (plan.streams & bit(i))
      base[i] = Ix(0);
}

/// All of a pass, of the stream of the tiles what is in [lo, hi). The error of
/// a sum grows with the length of its chain of additions: many tiles are
/// blocks, each found by itself, in the first free place, and blocks are merged
/// two by two like the digits of a binary counter: with block i as many times
/// as i ends in ones, with the last one until a single place is left. Should
/// the places end, the last two are merged at once: neighbours may always be.
void Kernel::streamBlocks(unsigned pass, Ix lo, Ix hi) {
  Set outer = plan.streams & ~bit(plan.stream);
  if (!hasBlocks())
    return outerTiles(outer, [&] { streamLoop(pass, lo, hi); });
  // Tiles are numbered where they are of several rows of the stream.
  int64_t length = outer ? tilesOfBlock() : tilesOfBlock() * plan.tileStream;
  Ix first = outer ? Ix(0) : lo, end = hi;
  if (outer) {
    end = to.ceilDiv(to.sub(hi, lo), plan.tileStream);
    for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
      if (outer & bit(i))
        end = to.mul(end, numTilesAlong(i));
  }
  auto block = [&](Ix at, ArrayRef<Val> carried) -> Spelling::Values {
    auto states = arrays;
    toPlace(pass, Ix(carried[0]));
    to.branch( // the first finds what the pass began with
        to.less(first, at), [&] { initialise(pass, /*hasLists=*/false); },
        [] {});
    Ix next = to.min(to.add(at, length), end);
    if (outer)
      to.each(at, next, 1,
              [&](Ix number) { streamTileAt(pass, lo, hi, number); });
    else
      streamLoop(pass, at, next);
    arrays = states;
    Ix number = to.div(to.sub(at, first), length);
    auto mayMerge = [&](ArrayRef<Val> now) {
      Ix top(now[0]);
      Val isDue = to.less(0, to.rem(Ix(now[1]), 2));
      isDue =
          to.binary(Binary::OrI, isDue, to.less(to.add(end, -1 - length), at));
      isDue = to.binary(Binary::OrI, isDue, to.less(places() - 2, top));
      return to.binary(Binary::AndI, to.less(0, top), isDue);
    };
    auto merge = [&](ArrayRef<Val> now) -> Spelling::Values {
      Ix below = to.add(Ix(now[0]), -1);
      toPlace(pass, Ix(now[0]));
      others = std::exchange(arrays, states);
      toPlace(pass, below);
      mergeSegment(pass, /*hasLists=*/false);
      arrays = states;
      return {to.materialise(below), to.materialise(to.div(Ix(now[1]), 2))};
    };
    Spelling::Values left =
        to.repeat({carried[0], to.materialise(number)}, mayMerge, merge);
    return {to.materialise(to.add(Ix(left[0]), 1))};
  };
  to.loop(first, end, length, {to.materialise(0)}, block);
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

/// 1 where rows are so long that they are not walked one after the other.
Ix Kernel::areLong() {
  if (!walksRowByRow() || hasSegments())
    return 0;
  std::optional<int64_t> longest = plan.longestWrittenFirst();
  if (!longest)
    longest = plan.longestSweptAlone();
  if (!longest)
    return 0;
  return to.min(1, to.div(extents[plan.stream], *longest + 1));
}

/// Passes row by row and then a sweep tile by tile, each of all rows of the
/// item, so that what they have in common is read once.
void Kernel::walkTogether() {
  rowByRow([&] {
    walkPasses();
    finish();
  });
  to.each(0, extents[plan.stream], plan.tileStream, [&](Ix at) {
    Ix end = to.min(to.add(at, plan.tileStream), extents[plan.stream]);
    rowByRow([&] { sweep(at, end); });
  });
}

/// The first pass of each row beside the sweep of the one before. The last row
/// of the item is swept by itself.
void Kernel::walkBeside() {
  rowByRow([&] {
    Ix isBehind = to.min(1, *onlyRow);
    rowBefore = {to.add(*onlyRow, -1), to.mul(isBehind, extents[plan.stream]),
                 arrays};
    walkPasses();
    rowBefore.reset();
    finish();
    Tile head = tileOf(*onlyRow);
    for (Node *n : plan.numbers)
      writeArray(head, kept.at(n), 0, 0, eval(head, n, 0, 0));
  });
  onlyRow = to.add(rows, -1);
  keptReady.insert(plan.numbers.begin(), plan.numbers.end());
  sweep(0, extents[plan.stream]);
  keptReady.clear();
  onlyRow.reset();
}

/// Places [at, end) of the tile in work, of the row before. What the sweep
/// reads of the row that is begun comes into the first cache meanwhile.
void Kernel::sweepBefore(Ix at, Ix end) {
  auto places = std::exchange(arrays, rowBefore->arrays);
  auto row = std::exchange(onlyRow, rowBefore->row);
  auto ahead = std::exchange(nextRow, NextRow{1, 1});
  auto ready = std::exchange(keptReady, {});
  auto states = std::exchange(statesReady, {});
  bool hasEnd = std::exchange(isRagged, false);
  Ix tile = base[plan.stream], length = valid;
  keptReady.insert(plan.numbers.begin(), plan.numbers.end());
  sweep(to.add(tile, at), to.min(to.add(tile, end), rowBefore->end));
  base[plan.stream] = tile;
  valid = length;
  isRagged = hasEnd;
  statesReady = states;
  keptReady = ready;
  nextRow = ahead;
  onlyRow = row;
  arrays = places;
  rowBefore->isDue = false;
}

/// Places [first, end) of the tile in work: some of the row before, then the
/// same of the row that is begun, while all that both read of them stays in the
/// first cache. Zen 5, one thread, LayerNorm 128 x 131072 a tile of 4096 at a
/// time 4.8 ms, 1024 or 256 places 4.0.
Kernel::Values
Kernel::besideRow(Ix first, Ix end, ArrayRef<Val> init,
                  llvm::function_ref<Values(Ix, Ix, ArrayRef<Val>)> part) {
  return to.loop(first, end, plan.tileBeside(), init,
                 [&](Ix at, ArrayRef<Val> in) {
                   Ix next = to.min(to.add(at, plan.tileBeside()), end);
                   sweepBefore(at, next);
                   return part(at, next, in);
                 });
}

/// The second traversal: results that vary with the stream.
void Kernel::sweep(Ix lo, Ix hi) {
  if (plan.sweepWrites.empty())
    return;
  Set outer = plan.streams & ~bit(plan.stream);
  bool hasNumbers = outer || plan.hasColumns();
  if (hasNumbers)
    computeNumbers(plan.numbers);
  outerStreams(outer, [&] {
    int64_t width = rowBefore ? plan.tileBeside() : plan.tileSwept;
    bool mayEnd = plan.hasTail || plan.tileStream % width;
    to.each(lo, hi, width, [&](Ix at) {
      base[plan.stream] = at;
      valid = mayEnd ? to.min(width, to.sub(hi, at)) : Ix(width);
      if (!areTurned)
        fillAgain(readsOfWrites(), plan.passes.size());
      for (Node *n : plan.sweepContractions)
        contraction(n);
      for (WritePlan &w : plan.sweepWrites)
        writeNest(w);
    });
    base[plan.stream] = Ix(0);
  });
  if (hasNumbers)
    for (Node *n : plan.numbers)
      keptReady.erase(n);
}
