// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Few rows of pairs by what lies in memory as a matrix tile has it: nothing
// that they share is laid out. What is dense along the sum is the left side, as
// it lies, and the rows are the right one: sums come out turned. What is dense
// along the columns is the right side as it lies, sixteen places by pairs of
// columns: each row is two rows of the left side, in one of which every factor
// stands beside 0, in the other behind it, so that even columns are in one row
// of the sums and odd ones in the other.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Rows of a tile, elements of 16 bits and words in each.
constexpr int64_t kTileRows = 16, kHalves = 32, kWords = 16;
/// Places of the stream whose sums are there before any of them is read.
constexpr int64_t kChunk = 128;
/// Rows that have both of theirs in one tile.
constexpr int64_t kRowsOfGroup = kTileRows / 2;
/// Registers: sums have 0 to 3.
constexpr int kSums = 4, kLeft = 4, kRight = 6;

/// Where few rows are known to be few, no panels are planned beside this.
bool Kernel::hasPanels(const PairPlan &pair) {
  return plan.packs.count(pair.shared);
}

static int64_t capacityOfRows(const Plan &plan) {
  return std::min<int64_t>(plan.tileRows, PairPlan::kMostInPlace);
}

/// Columns of a register of the sums of `pair`, in words: even ones.
Ix Kernel::widthInPlace(const PairPlan &pair) {
  return to.div(to.ceilTo(extents[pair.across], kHalves), 2);
}

void Kernel::layOutTilesInPlace() {
  inPlace.clear();
  if (!plan.usesTiles())
    return;
  MLIRContext *context = plan.cascade.getContext();
  Type word = IntegerType::get(context, 32), half = BFloat16Type::get(context),
       number = Float32Type::get(context);
  for (auto &[term, pair] : plan.pairs) {
    if (!pair.isInPlace)
      continue;
    InPlace &place = inPlace[term];
    bool isLeft = int(pair.index) != plan.stream;
    Ix depth =
        isLeft ? to.ceilTo(extents[pair.index], kHalves) : Ix(plan.tileStream);
    place.rows = allocate(/*isShared=*/false, word,
                          to.mul(depth, isLeft ? kWords / 2 : kWords));
    place.edge = allocate(/*isShared=*/false, half, kTileRows * kHalves);
    // A register of sums begins anywhere in a row, and is read whole.
    Ix count = isLeft ? Ix((kChunk + kTileRows) * kWords)
                      : to.add(to.mul(widthInPlace(pair),
                                      llvm::divideCeil(capacityOfRows(plan),
                                                       kRowsOfGroup) *
                                          kTileRows),
                               to.lanes());
    place.sums = allocate(/*isShared=*/false, number, count);
  }
}

/// What lies at place `n` of the tile and `k` of the other index.
Ix Kernel::sharedInPlace(const PairPlan &pair, Ix n, Ix k) {
  Tile t(plan.cascade.numIndices());
  t.local[plan.stream] = n;
  t.local[pair.dense()] = k;
  return offsetOf(t, pair.shared, 0, 0);
}

/// From one place of the stream to the next.
Ix Kernel::strideInPlace(const PairPlan &pair) {
  Along along = plan.along(pair.shared, plan.stream);
  return to.mul(to.stride(numberOfOperand(pair.shared), along.dim),
                along.coefficient);
}

/// Asks for the tile of some places further on, line by line: 16 of them are no
/// stream that a machine follows. Emerald Rapids, one thread, decoding by 32
/// heads of 8 groups of 128, bf16, ms, before and so: 1024 keys 0.313 and
/// 0.264, 16384 from memory 11.0 and 6.9 (into the second cache, 8 to 64 KB
/// ahead, 0.312 to 0.321 and 7.5 to 8.0; 16 KB into the first 0.304 and 7.2).
void Kernel::askInPlace(const PairPlan &pair, Ix at, Ix stride) {
  constexpr int64_t kAhead = 8 * 1024 / sizeof(uint16_t); // elements
  Ix places = to.div(kAhead, to.max(1, to.min(extents[pair.dense()], kAhead)));
  for (int64_t row = 0; row < kTileRows; ++row)
    to.prefetch(operandOfRead(pair.shared),
                to.add(at, to.mul(stride, to.add(places, row))),
                /*isWrite=*/false);
}

/// Loads a tile of what lies in memory; of an edge what exists, and zeros.
void Kernel::loadInPlace(int tile, const InPlace &place, const PairPlan &pair,
                         Ix n, Ix k, bool isWhole) {
  Buffer from = operandOfRead(pair.shared);
  Ix stride = strideInPlace(pair), at = sharedInPlace(pair, n, k);
  if (isWhole) {
    if (plan.facts.asksInOrder)
      askInPlace(pair, at, stride);
    return to.loadTile(tile, from, at, stride);
  }
  Ix left = to.sub(extents[pair.dense()], k);
  to.each(0, kTileRows, 1, [&](Ix row) {
    // No lane of a row that is not there, however many columns there are.
    Ix there =
        to.mul(to.min(1, to.max(0, to.sub(valid, to.add(n, row)))), left);
    for (int64_t lane = 0; lane < kHalves; lane += to.lanes()) {
      Ix source = to.add(to.add(at, to.mul(row, stride)), lane);
      Val v = to.loadWide(from, source, to.mask(to.sub(there, lane)));
      to.storeWide(
          v, place.edge,
          to.add(place.edge.offset, to.add(to.mul(row, kHalves), lane)), Val());
    }
  });
  to.loadTile(tile, place.edge, place.edge.offset, kHalves);
}

//===----------------------------------------------------------------------===//
// Sums along what lies dense
//===----------------------------------------------------------------------===//

/// Rows as the right side of tiles, once an item: pairs turned, zeros behind
/// the last.
void Kernel::layOutRowsInPlace() {
  for (auto &[term, pair] : plan.pairs) {
    if (!pair.isInPlace || int(pair.index) == plan.stream)
      continue;
    const Array &own = ownOf(pair);
    const Buffer &rows = inPlace.at(term).rows;
    Tile t(plan.cascade.numIndices());
    Ix first = to.mul(ownAt(pair, t, 0), 2);
    Ix depth = extents[pair.index];
    to.each(0, depth, kHalves, [&](Ix k) {
      to.transposePairs(own.buffer, to.add(first, k), strideOf(own, plan.row),
                        rows, to.add(rows.offset, to.mul(k, kWords / 2)),
                        kWords);
    });
    Val zero = to.splat(to.constant(
        IntegerAttr::get(IntegerType::get(term->type.getContext(), 32), 0)));
    to.each(to.ceilDiv(depth, 2), to.div(to.ceilTo(depth, kHalves), 2), 1,
            [&](Ix k) {
              to.storeWide(zero, rows, to.add(rows.offset, to.mul(k, kWords)),
                           Val());
            });
  }
}

/// So many steps of `step`, written out if they are few and known.
static void eachStep(Spelling &to, Ix end, int64_t step,
                     llvm::function_ref<void(Ix)> body) {
  constexpr int64_t kMost = 8;
  if (!end.isConstant() || end.constant > kMost * step)
    return to.each(0, end, step, body);
  for (int64_t k = 0; k < end.constant; k += step)
    body(k);
}

/// The sums of `numTiles` times 16 places from `n` on, `row` places behind the
/// first of a chunk.
void Kernel::sumPlaces(const InPlace &place, const PairPlan &pair, Ix n, Ix row,
                       int64_t numTiles, int64_t stride) {
  Ix depth = extents[pair.index], whole = to.floorTo(depth, kHalves);
  for (int64_t i = 0; i < numTiles; ++i)
    to.clearTile(i);
  bool areThere = numTiles > 1;
  auto step = [&](Ix k, bool isWhole) {
    to.loadTile(kRight, place.rows,
                to.add(place.rows.offset, to.mul(k, kWords / 2)), kWords);
    for (int64_t i = 0; i < numTiles; ++i) {
      loadInPlace(kLeft + i, place, pair, to.add(n, i * kTileRows), k,
                  isWhole && areThere);
      TileKind kind;
      kind.arePairs = true;
      to.addTiles(i, kLeft + i, kRight, kind);
    }
  };
  eachStep(to, whole, kHalves, [&](Ix k) { step(k, /*isWhole=*/true); });
  if (!depth.isConstant() || depth.constant % kHalves)
    to.each(whole, depth, kHalves, [&](Ix k) { step(k, /*isWhole=*/false); });
  for (int64_t i = 0; i < numTiles; ++i)
    to.storeTile(
        i, place.sums,
        to.add(place.sums.offset, to.mul(to.add(row, i * kTileRows), stride)),
        stride);
}

/// Products with what lies dense along the sum. Where four rows are the most,
/// rows of sums are stored over each other, so that four of each are left.
void Kernel::sumInPlace(Nest &nest, const PairPlan &pair) {
  constexpr int64_t kFour = 4;
  const InPlace &place = inPlace.at(nest.term);
  const Array &array = contractions.at(nest.result);
  int64_t stride = plan.tileRows <= kFour ? kFour : kWords;
  Ix rowStride = strideOf(array, plan.row);
  to.each(0, valid, kChunk, [&](Ix first) {
    Ix count = to.min(kChunk, to.sub(valid, first));
    Ix main = to.floorTo(count, 2 * kTileRows);
    to.each(0, main, 2 * kTileRows, [&](Ix row) {
      sumPlaces(place, pair, to.add(first, row), row, 2, stride);
    });
    to.each(main, count, kTileRows, [&](Ix row) {
      sumPlaces(place, pair, to.add(first, row), row, 1, stride);
    });
    to.each(0, count, to.lanes(), [&](Ix row) {
      Ix from = to.add(place.sums.offset, to.mul(row, stride));
      Ix at = to.add(array.buffer.offset, to.add(first, row));
      if (stride == kWords)
        return to.transposeBlock(place.sums, from, kWords, array.buffer, at,
                                 rowStride);
      for (int64_t r = 0; r < plan.tileRows; ++r)
        to.storeWide(to.loadEvery(place.sums, from, r, kFour), array.buffer,
                     to.add(at, to.mul(rowStride, r)), Val());
    });
  });
}

//===----------------------------------------------------------------------===//
// Sums of what lies along the columns
//===----------------------------------------------------------------------===//

/// Factors of up to eight rows from `first` on, each beside 0 and behind it.
void Kernel::layOutFactors(const InPlace &place, const PairPlan &pair,
                           Ix first) {
  const Array &own = ownOf(pair);
  Val zero = to.splat(to.constant(
      FloatAttr::get(BFloat16Type::get(plan.cascade.getContext()), 0.0)));
  Ix end = to.min(to.add(first, kRowsOfGroup), rows);
  Tile t(plan.cascade.numIndices());
  to.each(first, end, 1, [&](Ix row) {
    t.rowLocal = {row};
    Ix from = to.mul(ownAt(pair, t, 0), 2);
    Ix into = to.add(place.rows.offset, to.mul(to.sub(row, first), kWords));
    to.each(0, valid, kTileRows, [&](Ix n) {
      Val v =
          to.loadWide(own.buffer, to.add(from, n), to.mask(to.sub(valid, n)));
      Ix at = to.add(into, to.mul(n, kWords));
      to.storeWide(to.pairUp(v, zero), place.rows, at, Val());
      to.storeWide(to.pairUp(zero, v), place.rows,
                   to.add(at, kRowsOfGroup * kWords), Val());
    });
  });
}

/// Columns from `column` on, so many tiles of 32; the last of all may be short.
void Kernel::sumColumns(const InPlace &place, const PairPlan &pair, Ix group,
                        Ix column, int64_t numTiles, bool isShort) {
  for (int64_t c = 0; c < numTiles; ++c)
    to.clearTile(c);
  auto step = [&](Ix n, bool isWhole) {
    to.loadTile(kRight, place.rows,
                to.add(place.rows.offset, to.mul(n, kWords)), kWords);
    for (int64_t c = 0; c < numTiles; ++c) {
      int shared = kLeft + c % 2;
      loadInPlace(shared, place, pair, n, to.add(column, c * kHalves), isWhole);
      TileKind kind;
      kind.arePairs = true;
      to.addTiles(c, kRight, shared, kind);
    }
  };
  Ix main = to.floorTo(valid, kTileRows);
  to.each(0, main, kTileRows, [&](Ix n) { step(n, !isShort); });
  if (!valid.isConstant() || valid.constant % kTileRows)
    to.each(main, valid, kTileRows, [&](Ix n) { step(n, /*isWhole=*/false); });
  Ix width = widthInPlace(pair);
  Ix at =
      to.add(place.sums.offset, to.add(to.mul(to.mul(group, kTileRows), width),
                                       to.div(column, 2)));
  for (int64_t c = 0; c < numTiles; ++c)
    to.storeTile(c, place.sums, to.add(at, c * kWords), width);
}

/// Where the even columns of a row lie.
Ix Kernel::sumsOfRow(const InPlace &place, const PairPlan &pair, Ix row) {
  Ix number = to.add(to.mul(to.div(row, kRowsOfGroup), kTileRows),
                     to.rem(row, kRowsOfGroup));
  return to.add(place.sums.offset, to.mul(number, widthInPlace(pair)));
}

/// Whether a sum is no number: an element that is none makes one of its
/// neighbour too, which it is multiplied beside by 0.
Val Kernel::hasNoNumber(const InPlace &place, const PairPlan &pair) {
  Ix width = widthInPlace(pair);
  auto number = [&](double v) {
    return to.constant(
        FloatAttr::get(Float32Type::get(plan.cascade.getContext()), v));
  };
  Val zero = to.splat(number(0.0));
  Val sum = to.loop(0, rows, 1, {zero}, [&](Ix row, ArrayRef<Val> in) {
    Ix first = sumsOfRow(place, pair, row);
    return to.loop(0, width, to.lanes(), in, [&](Ix at, ArrayRef<Val> all) {
      Val next = all[0];
      for (Ix part : {first, to.add(first, to.mul(width, kRowsOfGroup))})
        next = to.fma(to.loadWide(place.sums, to.add(part, at), Val()), zero,
                      next);
      return Values{next};
    });
  })[0];
  Val all = to.reduceLanes(Binary::AddF, sum);
  return to.compare(Compare::UGT, all, number(0.0));
}

void Kernel::addColumnsInPlace(Nest &nest, const PairPlan &pair) {
  constexpr int64_t kMost = kSums * kHalves;
  const InPlace &place = inPlace.at(nest.term);
  Ix extent = extents[nest.lane];
  int64_t numGroups = llvm::divideCeil(capacityOfRows(plan), kRowsOfGroup);
  Ix groups = numGroups == 1 ? Ix(1) : to.ceilDiv(rows, kRowsOfGroup);
  to.each(0, groups, 1, [&](Ix group) {
    layOutFactors(place, pair, to.mul(group, kRowsOfGroup));
    Ix done(0);
    for (int64_t count = kMost; count >= kHalves; count /= 2) {
      Ix end = to.floorTo(extent, count);
      to.each(done, end, count, [&](Ix column) {
        sumColumns(place, pair, group, column, count / kHalves, false);
      });
      done = end;
    }
    if (!extent.isConstant() || extent.constant % kHalves)
      to.each(done, extent, kHalves, [&](Ix column) {
        sumColumns(place, pair, group, column, 1, /*isShort=*/true);
      });
  });
  Nest points;
  points.out = nest.out;
  points.lane = nest.lane;
  points.inPlace = points.fillsArray = true;
  points.results = nest.results;
  points.init = nest.init;
  auto sink = nest.sink;
  auto add = [&](Tile &t, int r, int c, Val) {
    Ix at = to.add(sumsOfRow(place, pair, t.rowLocal[r]),
                   to.div(t.laneLocal[c], 2));
    Val even = to.loadWide(place.sums, at, Val());
    Ix odd = to.add(at, to.mul(widthInPlace(pair), kRowsOfGroup));
    sink(t, r, c, to.interleave(even, to.loadWide(place.sums, odd, Val())));
  };
  points.sink = add;
  // As they lie, by registers, since there is nothing else.
  Nest plain = nest;
  plain.pair = nullptr;
  plain.readsPanels = plain.halvesRows = false;
  plain.inPlace = true;
  plain.rows = 1;
  plain.width = to.lanes();
  plain.ahead.clear();
  to.branch(
      hasNoNumber(place, pair), [&] { emitNest(plain); },
      [&] { emitNest(points); });
}

/// Calls `few` where rows are few enough, else `many`.
void Kernel::whereInPlace(const PairPlan &pair, llvm::function_ref<void()> few,
                          llvm::function_ref<void()> many) {
  if (!hasPanels(pair))
    return few();
  to.branch(to.less(extents[plan.row], PairPlan::kMostInPlace + 1), few, many);
}
