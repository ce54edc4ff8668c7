// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of products that matrix tiles add: 32 rows by two registers of lanes at
// a time, in four tiles, from there through an array of the workspace into the
// register tile of the nest, which adds what is left of the sum and goes on as
// ever. Panels of bytes in fours and of pairs have the layout of the right side
// as they are, and rows in memory that of the left one.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Rows of a tile, bytes of each, lanes of 32 bits.
constexpr int64_t kTileRows = 16, kRowBytes = 64, kTileLanes = 16;
/// Tiles of sums: as many rows and columns of them.
constexpr int64_t kBlock = 2;
/// Rows whose sums are there at once.
constexpr int64_t kChunk = 64;
constexpr int kLeft = 4, kRight = 6; ///< registers; sums have 0 to 3

bool Plan::usesTiles() const {
  return facts.multipliesTiles && lanes == kTileLanes &&
         (!pairs.empty() ||
          llvm::any_of(dots, [](auto &dot) { return dot.second.isMixed; }));
}

bool Plan::leavesTiles(Node *n) const {
  return usesTiles() && pairs.count(n->in[0]);
}

void Kernel::layOutTiles() {
  tileSums.clear();
  if (!plan.usesTiles())
    return;
  MLIRContext *context = plan.cascade.getContext();
  Ix count(kChunk * plan.registerLanes);
  if (!plan.pairs.empty())
    tileSums[Float32Type::get(context)] =
        allocate(/*isShared=*/false, Float32Type::get(context), count);
  if (!plan.dots.empty())
    tileSums[IntegerType::get(context, 32)] =
        allocate(/*isShared=*/false, IntegerType::get(context, 32), count);
}

/// Elements of the sum that a tile holds of each row.
int64_t Kernel::depthOfTile(const Nest &nest) const {
  return nest.pair ? kRowBytes / 2 : kRowBytes;
}

/// Whether tiles add what the nest sums, or most of it.
bool Kernel::takesTiles(const Nest &nest, Tile &t) {
  if (!plan.usesTiles() || !t.panel || nest.reduced.size() != 1 || nest.part ||
      slice || nest.lanesReduced || nest.sums.size() > 1 ||
      t.numColumns() > kBlock || kTileRows % nest.rows != 0)
    return false;
  if (Ix range = rangeOf(nest.reduced.front());
      range.isConstant() && range.constant < depthOfTile(nest))
    return false;
  if (nest.pair)
    return true;
  const DotPlan *dot = dotOf(nest, t);
  return dot && dot->isMixed &&
         (dot->narrow->kind != Node::Read ||
          plan.along(dot->narrow, plan.row).kind == Along::Strided);
}

/// Whether the nest sums so much that neither rows nor panels stay in the
/// second cache while the other is read.
bool Kernel::takesTilesInGroups(const Nest &nest) {
  auto dot = plan.dots.find(nest.term);
  return plan.usesTiles() && kTileRows % nest.rows == 0 && nest.isLong &&
         nest.readsPanels && plan.hasRow(nest.out) && dot != plan.dots.end() &&
         dot->second.isMixed;
}

/// Lanes [first, end), a few panels: those are read for every block of rows,
/// and rows once.
void Kernel::nestGroup(Nest &nest, Tile &outer, Ix first, Ix end) {
  constexpr int64_t kRows = kBlock * kTileRows;
  to.each(0, rows, kRows, [&](Ix row) {
    Nest part = nest;
    part.window = {row, to.min(to.add(row, kRows), rows)};
    nestBlocks(part, outer, first, end);
  });
}

/// Rows [begin, end): a chunk of them is summed before any of its sums is read,
/// since a tile's last product and its way through memory take longer than
/// registers can wait. What is left of a tile is for registers to add, and
/// begins where this returns; rows of pairs have room behind them, so that
/// nothing is.
Ix Kernel::nestTiles(Nest &nest, Tile &outer, Ix begin, Ix end) {
  constexpr int64_t kRows = kBlock * kTileRows;
  Ix range = rangeOf(nest.reduced.front());
  Ix depth = to.floorTo(range, depthOfTile(nest));
  Ix last = nest.pair ? end : to.floorTo(end, kTileRows);
  bool areWhole = last.isConstant() && begin.isConstant() &&
                  (last.constant - begin.constant) % kChunk == 0;
  to.each(begin, last, kChunk, [&](Ix first) {
    Ix count = areWhole ? Ix(kChunk) : to.min(kChunk, to.sub(last, first));
    Ix whole = to.floorTo(count, kRows);
    to.each(0, whole, kRows,
            [&](Ix row) { sumTiles(nest, outer, first, row, kBlock, depth); });
    to.each(whole, count, kTileRows,
            [&](Ix row) { sumTiles(nest, outer, first, row, 1, depth); });
    if (storesWholeSums(nest))
      return;
    auto some = [&](Ix row, int64_t numRows) {
      Tile t(&outer);
      t.rowLocal.clear();
      for (int64_t r = 0; r < numRows; ++r)
        t.rowLocal.push_back(to.add(to.add(first, row), r));
      t.tiled = TileShape::Tiled{row, depth};
      nestBody(nest, t, numRows);
    };
    Ix main = to.floorTo(count, nest.rows);
    to.each(0, main, nest.rows, [&](Ix row) { some(row, nest.rows); });
    if (nest.pair) // others have whole tiles
      to.each(main, count, 1, [&](Ix row) { some(row, 1); });
  });
  return last;
}

/// The row in memory that is the left side of row `r` of `t`.
Kernel::RowInMemory Kernel::leftOfTiles(const Nest &nest, Tile &t, int r) {
  if (nest.pair) {
    const Array &own = ownOf(*nest.pair);
    return {
        own.pairs,
        to.add(ownAt(*nest.pair, t, r), to.div(t.local[nest.pair->index], 2)),
        to.div(strideOf(own, plan.row), 2)};
  }
  const DotPlan &dot = *dotOf(nest, t);
  auto [from, at] = narrowAt(dot, t, r);
  if (keptReady.contains(dot.narrow))
    return {from, at, strideOf(kept.at(dot.narrow), plan.row)};
  Along along = plan.along(dot.narrow, plan.row);
  return {from, at,
          to.mul(to.stride(numberOfOperand(dot.narrow), along.dim),
                 along.coefficient)};
}

Ix Kernel::strideOf(const Array &array, int index) {
  for (const Array::Dim &d : array.dims)
    if (int(d.index) == index)
      return d.stride;
  return 0;
}

/// Whether tiles hold all of each sum and nothing is made of it on its way to
/// the array, which has room for whole tiles of rows.
bool Kernel::storesWholeSums(const Nest &nest) {
  if (!nest.sumsOfTiles || !nest.pair || nest.window)
    return false;
  Ix range = rangeOf(nest.reduced.front());
  return range.isConstant() && range.constant % depthOfTile(nest) == 0;
}

/// Leaves the sums of `numTiles` times 16 rows from row `row` of a chunk on in
/// their array.
void Kernel::sumTiles(Nest &nest, Tile &outer, Ix first, Ix row,
                      int64_t numTiles, Ix depth) {
  unsigned index = nest.reduced.front();
  int64_t numColumns = outer.numColumns();
  Tile t(&outer);
  t.rowLocal.clear();
  for (int64_t r = 0; r < numTiles; ++r)
    t.rowLocal.push_back(to.add(to.add(first, row), r * kTileRows));
  auto sumOf = [&](int64_t r, int64_t c) { return int(r * kBlock + c); };
  auto eachSum = [&](llvm::function_ref<void(int64_t, int64_t)> body) {
    for (int64_t r = 0; r < numTiles; ++r)
      for (int64_t c = 0; c < numColumns; ++c)
        body(r, c);
  };
  TileKind kind;
  kind.arePairs = nest.pair;
  const DotPlan *dot = nest.pair ? nullptr : dotOf(nest, t);
  if (dot) {
    kind.isLeftSigned = dot->isNarrowSigned;
    kind.isRightSigned = dot->isWideSigned != dot->isMoved();
  }
  eachSum([&](int64_t r, int64_t c) { to.clearTile(sumOf(r, c)); });
  to.each(0, depth, depthOfTile(nest), [&](Ix k) {
    Tile inside(&t);
    inside.reduced = index;
    inside.local[index] = k;
    for (int64_t c = 0; c < numColumns; ++c) {
      if (dot)
        to.loadTile(kRight + c, panels.at(dot->wide),
                    panelOffset(inside, dot->wide, 0, c),
                    PackPlan::kBytesOfDot * plan.registerLanes);
      else
        to.loadTile(kRight + c, panels.at(nest.pair->shared),
                    sharedAt(*nest.pair, t, to.div(k, 2), c),
                    plan.registerLanes);
    }
    for (int64_t r = 0; r < numTiles; ++r) {
      RowInMemory left = leftOfTiles(nest, inside, r);
      to.loadTile(kLeft + r, left.from, left.at, left.stride);
      for (int64_t c = 0; c < numColumns; ++c)
        to.addTiles(sumOf(r, c), kLeft + r, kRight + c, kind);
    }
  });
  if (storesWholeSums(nest)) {
    const Array &array = *nest.sumsOfTiles;
    eachSum([&](int64_t r, int64_t c) {
      to.storeTile(sumOf(r, c), array.buffer, offsetIn(t, array, r, c),
                   strideOf(array, plan.row));
    });
    return;
  }
  const Buffer &sums = tileSums.at(nest.identity.getType());
  eachSum([&](int64_t r, int64_t c) {
    to.storeTile(sumOf(r, c), sums,
                 to.add(to.mul(row, plan.registerLanes),
                        r * kTileRows * plan.registerLanes + c * kTileLanes),
                 plan.registerLanes);
  });
}

/// What tiles have summed of the register tile.
Kernel::Values Kernel::addTileSums(const Nest &nest, Tile &t, Values acc) {
  int64_t numColumns = t.numColumns();
  const Buffer &sums = tileSums.at(nest.identity.getType());
  Ix first = to.mul(t.tiled->row, plan.registerLanes);
  for (auto [i, sum] : llvm::enumerate(acc)) {
    int64_t r = i / numColumns, c = i % numColumns;
    Val more = to.loadWide(
        sums, to.add(first, r * plan.registerLanes + c * kTileLanes), Val());
    sum = to.binary(nest.combine, sum, more);
  }
  return acc;
}
