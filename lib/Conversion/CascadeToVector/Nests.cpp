// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one loop nest for contractions, states with a carried index and results:
// a register tile of rows times lanes, the reduced indices innermost.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

Ix Kernel::rangeOf(unsigned index) {
  if (int(index) == plan.row)
    return rows;
  if (int(index) == plan.stream)
    return valid;
  return span(index);
}

void Kernel::emitNest(Nest &nest) {
  sizeNest(nest);
  sumBytes(nest);
  Tile t(plan.cascade.numIndices());
  if ((t.keyed = nest.keyed))
    for (const StateKey &key : nest.keyed->keys)
      if (!(nest.out & bit(key.carried)))
        t.local[key.carried] = base[key.stream];
  SmallVector<unsigned> loops;
  Set fixed = (plan.rows | plan.streams) &
              ~(plan.stream == kNone ? 0 : bit(plan.stream));
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if ((nest.out & ~fixed & bit(i)) && int(i) != nest.lane &&
        int(i) != plan.row)
      loops.push_back(i);
  if (nest.lanesReduced && nest.result && !loops.empty())
    nest.column = loops.pop_back_val();
  auto enter = [&](auto &self, unsigned depth) -> void {
    if (depth == loops.size())
      return nest.reduced.empty() ? nestPoints(nest, t) : nestLanes(nest, t);
    to.each(0, rangeOf(loops[depth]), 1, [&](Ix i) {
      t.local[loops[depth]] = i;
      self(self, depth + 1);
    });
  };
  enter(enter, 0);
}

/// Whether the item lays out panels along the lanes of the nest.
static bool hasOwnPanelsAlong(Plan &plan, int lane) {
  return llvm::any_of(plan.packs, [&](auto &entry) {
    return entry.second.isOwn && int(entry.second.laneIndex) == lane;
  });
}

/// Blocks of whole register tiles along the lanes, then single registers,
/// masked.
void Kernel::nestLanes(Nest &nest, Tile &outer) {
  if (nest.lanesReduced)
    return nestSums(nest, outer);
  if (nest.lane == kNone) {
    Tile t(&outer);
    return nestRows(nest, t);
  }
  if (nest.streamed)
    return nestStreamed(nest, outer);
  if (nest.sumsApart)
    return nestApart(nest, outer);
  Ix range = rangeOf(nest.lane), extent = extents[nest.lane];
  bool isNarrow = extent.isConstant() && extent.constant < nest.width;
  nest.columnsOfBlocks = isNarrow ? 1 : nest.width / to.lanes();
  if ((nest.readsPanels && hasOwnPanelsAlong(plan, nest.lane)) ||
      nest.isSliced || takesTilesInGroups(nest) || readsRowsOnce(nest))
    return nestGroups(nest, outer);
  nestBlocks(nest, outer, 0, range);
}

/// Lanes [first, end); of panels that the item has made, the first is that of
/// lane `first`.
void Kernel::nestBlocks(Nest &nest, Tile &outer, Ix first, Ix end) {
  int64_t lanes = to.lanes();
  int64_t width = nest.width;
  Nest halves = nest;
  auto block = [&](Ix at, int64_t numColumns, bool isMasked) {
    Tile t(&outer);
    t.lane = nest.lane;
    for (int64_t c = 0; c < numColumns; ++c)
      t.laneLocal.push_back(to.add(at, c * lanes));
    if (isMasked)
      t.laneLimit = end;
    Ix start = to.add(base[nest.lane], at);
    if (nest.readsPanels) {
      bool isWhole = numColumns * lanes == plan.registerLanes;
      t.panel = to.div(start, plan.registerLanes);
      t.inPanel = isWhole ? Ix(0) : to.rem(start, plan.registerLanes);
      t.ownPanel = to.div(to.sub(at, first), plan.registerLanes);
    }
    nestRows(halves, t);
  };
  Ix length = to.sub(end, first);
  // One body for all blocks where extents are not known.
  if (!length.isConstant() && !nest.splitsLanes &&
      (nest.inPlace || !hasOwnPanelsAlong(plan, nest.lane)))
    if (bool isPadded = mayPadLanes(nest); isPadded || mayMaskAll(nest)) {
      auto wide = [&](Ix at) { block(at, width / lanes, !isPadded); };
      if (width == lanes || !mayHaveFewLanes(nest))
        return to.each(first, end, width, wide);
      Ix main = to.floorTo(to.add(length, width - lanes - 1), width);
      to.each(first, to.add(first, main), width, wide);
      halves.addsAsHalves = halves.halvesRows;
      halves.halvesRows = false;
      return to.each(to.add(first, main), end, lanes,
                     [&](Ix at) { block(at, 1, !isPadded); });
    }
  Ix main = to.add(first, to.floorTo(length, width));
  to.each(first, main, width, [&](Ix at) { block(at, width / lanes, false); });
  if (length.isConstant() && length.constant % width == 0)
    return;
  // A store behind a mask of AVX2 is twenty instructions of a Zen 3.
  bool isCheap = plan.facts.vectorRegisters >= 32;
  Ix whole = main;
  if (!isCheap && nest.reduced.empty() && width > lanes) {
    whole = to.add(first, to.floorTo(length, lanes));
    to.each(main, whole, lanes, [&](Ix at) { block(at, 1, false); });
  }
  // Few lanes, if any: each body more has addresses that are computed for all.
  if (nest.splitsLanes && !length.isConstant()) {
    halves.addsAsHalves = halves.halvesRows;
    halves.halvesRows = false;
  }
  to.each(whole, end, lanes, [&](Ix at) { block(at, 1, true); });
}

/// One row of a result that is stored past the caches: lanes up to the first
/// aligned address, blocks of whole registers from there, the rest. The lanes
/// of the row's head and tail share their lines with other rows; whole lines
/// behind the last block do not, and lines that are stored through the caches
/// are read first. Sapphire Rapids, LayerNorm of rows of 96 7.2 ms,
/// of 64 and 128 5.0 and 4.6.
void Kernel::nestStreamed(Nest &nest, Tile &outer) {
  Ix range = rangeOf(nest.lane);
  int64_t lanes = to.lanes();
  int64_t width = nest.width;
  auto block = [&](Ix at, int64_t numColumns, const std::optional<Ix> &limit) {
    Tile t(&outer);
    t.lane = nest.lane;
    for (int64_t c = 0; c < numColumns; ++c)
      t.laneLocal.push_back(to.add(at, c * lanes));
    t.laneLimit = limit;
    nestRows(nest, t);
  };
  Tile start(&outer);
  start.lane = nest.lane;
  start.laneLocal = {Ix(0)};
  Ix head = to.min(to.untilAligned(targetBuffer(*nest.streamed),
                                   targetOf(start, *nest.streamed, 0, 0)),
                   range);
  to.each(0, head, lanes, [&](Ix at) { block(at, 1, head); });
  Ix main = to.add(head, to.floorTo(to.sub(range, head), width));
  to.each(head, main, width,
          [&](Ix at) { block(at, width / lanes, std::nullopt); });
  constexpr int64_t kManyBlocks = 16;
  bool isLong = range.isConstant() && range.constant >= kManyBlocks * width;
  Ix whole = main;
  int64_t line = lanes * to.registersOfStore(nest.term->type);
  if (width > line && !isLong) {
    whole = to.add(head, to.floorTo(to.sub(range, head), line));
    to.each(main, whole, line,
            [&](Ix at) { block(at, line / lanes, std::nullopt); });
  }
  to.each(whole, range, lanes, [&](Ix at) { block(at, 1, range); });
}

/// Nothing is reduced: row by row, so that what a row fixes is computed once.
void Kernel::nestPoints(Nest &nest, Tile &outer) {
  eachRow(plan.hasRow(nest.out), [&](Ix row) {
    Tile t(&outer);
    t.rowLocal = {row};
    if (nest.term && nest.lane != kNone)
      preload(t, nest.term, bit(nest.lane));
    Nest one = nest;
    one.out &= plan.row == kNone ? ~Set(0) : ~bit(plan.row);
    if (Shortcuts shortcuts = shortcutsOf(nest))
      nestShortcuts(one, t, shortcuts);
    else
      nestLanes(one, t);
  });
}

/// Whether something that has the column is stored in fewer bits than it is
/// computed in.
static bool widensColumns(const Nest &nest) {
  if (nest.column == kNone)
    return false;
  NodeSet all;
  collect(nest.term, all);
  return llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Read && n->has(nest.column) &&
           n->type.getIntOrFloatBitWidth() < 32;
  });
}

/// Lanes along what is summed: as many sums at once as there are lanes, of some
/// rows times some columns, so that each operand read serves several of them
/// and all are reduced across the lanes together. The rest one by one.
void Kernel::nestSums(Nest &nest, Tile &outer) {
  bool hasRow = plan.hasRow(nest.out);
  Ix numRows = hasRow ? rows : Ix(1);
  Ix range = nest.column == kNone ? Ix(1) : rangeOf(nest.column);
  int64_t lanes = to.lanes(), height = 1;
  // As many columns as rows, or more of them: they are streams, which a machine
  // follows. What is widened for each block of rows is better shared by more.
  // Zen 4 by AVX2, decode 32/8 heads of 128, 16384 keys, 2 x 4 and 4 x 2: f32
  // 5.97 and 6.2 to 6.4 ms, bf16 5.78 and 5.39.
  int64_t shape = widensColumns(nest) ? 2 : 4;
  while (hasRow && nest.result && shape * height * height <= lanes &&
         2 * height <= plan.tileRows)
    height *= 2;
  if (nest.column != kNone && nest.column == plan.stream && readsApart(nest)) {
    nest.isApart = true;
    nest.ahead.clear();
  }
  auto block = [&](Ix row, Ix column, int64_t numRows, int64_t numColumns,
                   Ix between) {
    Tile t(&outer);
    t.rowLocal.clear();
    for (int64_t r = 0; r < numRows; ++r)
      t.rowLocal.push_back(to.add(row, r));
    if (nest.column != kNone) {
      t.column = nest.column;
      for (int64_t c = 0; c < numColumns; ++c)
        t.columnLocal.push_back(to.add(column, to.mul(between, c)));
    }
    nestBody(nest, t, numRows);
  };
  auto someRows = [&](Ix first, Ix last, int64_t step) {
    int64_t width = nest.column == kNone ? 1 : lanes / step;
    Ix main = to.floorTo(range, width);
    Ix between = nest.isApart ? to.div(main, width) : Ix(1);
    to.each(0, nest.isApart ? between : main, nest.isApart ? 1 : width,
            [&](Ix column) {
              to.each(first, last, step, [&](Ix row) {
                block(row, column, step, width, between);
              });
            });
    if (width > 1)
      to.each(main, range, 1, [&](Ix column) {
        to.each(first, last, 1, [&](Ix row) { block(row, column, 1, 1, 1); });
      });
  };
  Ix main = to.floorTo(numRows, height);
  someRows(0, main, height);
  if (height > 1 && !(main.isConstant() && numRows.is(main.constant)))
    someRows(main, numRows, 1);
}

/// Behind 6 rows come 4, as five are many of one request.
int64_t Kernel::rowsBelow(int64_t rows) {
  int64_t floor = llvm::bit_floor(uint64_t(rows));
  return floor < rows ? floor : rows / 2;
}

/// Blocks of rows, then single rows.
void Kernel::nestRows(Nest &nest, Tile &outer) {
  if (!plan.hasRow(nest.out))
    return nestBody(nest, outer, 1);
  int64_t block = nest.rows;
  auto some = [&](Ix first, int64_t count, int64_t rowsOfBlocks) {
    Tile t(&outer);
    t.rowLocal.clear();
    for (int64_t r = 0; r < count; ++r)
      t.rowLocal.push_back(to.add(first, r));
    nest.rowsOfBlocks = rowsOfBlocks;
    nestBody(nest, t, count);
  };
  if (nest.isOneBlock)
    return some(nest.window->first, block, block);
  // Blocks of 9 rows end where none of 4 begins: those behind them count from
  // there.
  bool isNested = !nest.window;
  int64_t last = block;
  auto [done, end] = nest.window.value_or(std::pair(Ix(0), rows));
  if (takesTiles(nest, outer)) {
    done = nestTiles(nest, outer, done, end);
    if (nest.pair || (end.isConstant() && done.is(end.constant)))
      return;
  }
  // Rows behind whole tiles: half as many at a time, or one by one.
  auto next = [&](int64_t rows) {
    if (nest.halvesRows)
      return rowsBelow(rows);
    if (!nest.addsAsHalves || rows == 1)
      return int64_t(1);
    int64_t half = rowsBelow(rows);
    while (half > 1 &&
           blockOfSum(nest, half) == blockOfSum(nest, rowsBelow(half)))
      half = rowsBelow(half);
    return half;
  };
  for (;; last = block, block = next(block)) {
    isNested &= last % block == 0;
    Ix main = isNested ? to.floorTo(end, block)
                       : to.add(done, to.floorTo(to.sub(end, done), block));
    bool isOneByOne = nest.addsAsHalves && block < nest.rows;
    to.each(done, main, isOneByOne ? 1 : block,
            [&](Ix i) { some(i, isOneByOne ? 1 : block, block); });
    done = main;
    if (block == 1)
      return;
  }
}

/// Sum by sum, row by row.
void Kernel::nestBody(Nest &nest, Tile &t, int64_t numRows) {
  int64_t numColumns = t.numColumns();
  int64_t numSums = std::max<int64_t>(nest.sums.size(), 1);
  Values acc;
  for (int64_t s = 0; s < numSums; ++s)
    for (int64_t r = 0; r < numRows; ++r)
      for (int64_t c = 0; c < numColumns; ++c)
        acc.push_back(nest.init(t, r, c));
  if (slice)
    acc = partOfSums(t, acc);
  Set varying = 0;
  for (unsigned i : nest.reduced)
    varying |= bit(i);
  const DotPlan *dot = nest.reduced.empty() ? nullptr : dotOf(nest, t);
  if (varying && !dot) {
    preload(t, nest.term, varying);
    for (const Sum &sum : nest.sums)
      preload(t, sum.term, varying);
  }
  if (t.tiled)
    acc = addTileSums(nest, t, acc);
  if (varying)
    acc = reduceLoops(nest, t, 0, acc);
  if (dot)
    settleDots(*dot, t, acc);
  if (nest.lanesReduced && nest.result)
    return storeSums(nest, t, acc);
  auto at = [&](int64_t s, int64_t r, int64_t c) {
    return acc[(s * numRows + r) * numColumns + c];
  };
  auto finish = [&] {
    for (int64_t r = 0; r < numRows; ++r)
      for (int64_t c = 0; c < numColumns; ++c) {
        for (auto [s, sum] : llvm::enumerate(nest.sums))
          t.memo[keyOf(t, sum.result, r, c)] = at(s, r, c);
        nest.sink(t, r, c, at(0, r, c));
      }
  };
  if (!slice || slice->ends.value_or(false))
    return finish();
  if (slice->ends)
    return keepPart(t, acc);
  to.branch(slice->isOpen, [&] { keepPart(t, acc); }, finish);
}

/// Sums whose lanes are still apart.
void Kernel::storeSums(Nest &nest, Tile &t, ArrayRef<Val> acc) {
  int64_t numColumns = t.numColumns();
  const Array &array = contractions.at(nest.result);
  auto isDense = [&] {
    return llvm::any_of(array.dims, [&](const Array::Dim &d) {
      return int(d.index) == nest.column && d.stride.is(1);
    });
  };
  if (int64_t(acc.size()) == to.lanes() && (numColumns == 1 || isDense())) {
    Val sums = to.reduceEach(nest.combine, acc);
    int64_t together = nest.isApart ? 1 : numColumns;
    for (size_t r = 0; r < t.rowLocal.size(); ++r)
      for (int64_t c = 0; c < numColumns; c += together)
        to.storeLanes(sums, r * numColumns + c, together, array.buffer,
                      offsetIn(t, array, r, c));
    return;
  }
  for (auto [i, v] : llvm::enumerate(acc))
    writeArray(t, array, i / numColumns, i % numColumns,
               to.reduceLanes(nest.combine, v));
}
