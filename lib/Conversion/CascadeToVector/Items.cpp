// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The functions of a kernel: sizes, then phases that run ranges of items. An
// item is one tile of rows (and one block of a tiled carried index).
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// The size of an operand whose subscript is this index by itself; results
/// first, for a read may be a slice.
Ix Kernel::findExtent(unsigned index) {
  int64_t known = plan.cascade.getExtents()[index];
  if (!ShapedType::isDynamic(known))
    return known;
  if (auto size = plan.cascade.sizeOf(index))
    return size->dim < 0 ? Ix(to.scalarOperand(size->operand))
                         : to.size(size->operand, size->dim);
  Value arg = plan.cascade.getBody().getArgument(index);
  std::optional<std::pair<unsigned, unsigned>> place;
  auto look = [&](Value operand, AffineMap map, ValueRange indices) {
    for (auto [k, e] : llvm::enumerate(map.getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(e);
          dim && !place && indices[dim.getPosition()] == arg)
        place = {cast<BlockArgument>(operand).getArgNumber() -
                     plan.cascade.numIndices(),
                 k};
  };
  for (auto w : plan.cascade.getBody().getOps<WriteOp>())
    look(w.getTarget(), w.getMap(), w.getIndices());
  for (auto r : plan.cascade.getBody().getOps<ReadOp>())
    look(r.getSource(), r.getMap(), r.getIndices());
  return to.size(place->first, place->second);
}

void Kernel::readExtents() {
  unsigned n = plan.cascade.numIndices();
  base.assign(n, Ix(0));
  extents.clear();
  for (unsigned i = 0; i < n; ++i)
    extents.push_back(findExtent(i));
}

/// Positions of a carried index that one item works on.
Ix Kernel::span(unsigned index) {
  if (int(index) != plan.block)
    return extents[index];
  Ix extent = extents[index], tile = blockTile();
  if (extent.isConstant() && tile.isConstant() &&
      extent.constant % tile.constant == 0)
    return tile;
  return to.min(tile, to.sub(extent, base[index]));
}

/// Rows of one item. Those that share an operand are spread over the cores,
/// others over sixteen items, before an item gets a whole tile of them.
Ix Kernel::rowTile() {
  constexpr int64_t kItems = 16, kWholeTile = 64, kRowsOfPart = 16;
  // What is read at `t floordiv c` is one place for a whole tile.
  if (plan.graph->readsByTile())
    return plan.tileRows;
  if (plan.hasPanelsOfTiles())
    return rowsOfTiles(kWholeTile);
  if (plan.sharesProductsOnly())
    return rowsOfCore(plan.registerRows);
  if (multipliesByOwnPanels())
    return rowsOfOwnPanels();
  if (mayPartRows())
    return rowsOfParts();
  if (plan.hasMatrixStates() && plan.wholes.empty() && plan.block == kNone &&
      plan.tileRows > kWholeTile && plan.tileRows % kWholeTile == 0 &&
      kWholeTile % plan.registerRows == 0)
    return rowsOfCore(kWholeTile);
  // Results without blocks of columns: rows are all that cores can share.
  if (!plan.wholes.empty() && plan.block == kNone && plan.row != kNone)
    return to.min(plan.tileRows, rowsOfCore(kRowsOfPart));
  Ix least = plan.row == kNone ? Ix(1) : to.ceilDiv(extents[plan.row], kItems);
  if (plan.turnsAny() && plan.hasOnlyRows())
    return to.min(plan.tileRows, to.max(1, to.ceilTo(least, to.lanes())));
  if (!plan.hasShortRows())
    return plan.tileRows;
  // No bit depends on it, so each core may have what is best for it.
  if (Ix isLong = areLong(); !isLong.is(0))
    least = to.max(least, to.mul(isLong, rowsOfCore(1)));
  return to.max(1, to.min(plan.tileRows, least));
}

/// Rows that share an operand: no more than give each core of the machine that
/// compiles an item, in whole steps of `least`. Those are whole register tiles,
/// so that no bit depends on it. Sapphire Rapids, two threads, routing of t
/// tokens, 2048 by 128, in tiles of 64 and so: t = 16 45 and 26 us.
Ix Kernel::rowsOfCore(int64_t least, int64_t itemsOfCore) {
  Ix all(1);
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (plan.rows & bit(i))
      all = to.mul(all, extents[i]);
  Ix each = to.ceilTo(to.ceilDiv(all, itemsOfCore * plan.facts.cores), least);
  return to.max(least, to.min(plan.tileRows, each));
}

/// Whether threads may have rows of a product of their own.
bool Kernel::mayPartRows() {
  return plan.product && plan.row != kNone && plan.block != kNone &&
         !plan.hasOwnPanels() && plan.facts.cores > 1;
}

/// Rows of which each part has as many tiles, all of whole register tiles, so
/// that no bit depends on it.
Ix Kernel::rowsOfParts() {
  constexpr int64_t kLeastOfPart = 64;
  Ix all = extents[plan.row];
  Ix areMany = to.min(1, to.div(all, kPartsOfRows * kLeastOfPart));
  Ix tiles = to.ceilDiv(all, plan.tileRows);
  Ix more = to.sub(to.ceilTo(tiles, kPartsOfRows), tiles);
  tiles = to.max(1, to.add(tiles, to.mul(areMany, more)));
  Ix even = to.ceilTo(to.ceilDiv(all, tiles), plan.registerRows);
  return to.max(1, to.min(even, plan.tileRows));
}

/// Rows for which an item lays out panels: equal parts of those that share
/// them. Segments keep the cores at work, or some items each.
Ix Kernel::rowsOfTiles(int64_t least) {
  constexpr int64_t kItemsOfCore = 4;
  Ix most = hasSegments()
                ? Ix(plan.tileRows)
                : rowsOfCore(std::min(least, plan.tileRows), kItemsOfCore);
  Ix all = extents[plan.row];
  Ix parts = to.max(1, to.ceilDiv(all, most));
  Ix even = to.ceilTo(to.ceilDiv(all, parts), plan.registerRows);
  return to.max(1, to.min(even, plan.tileRows));
}

/// Rows by which panels that an item makes are multiplied: as many as leave
/// some items for each core, which blocks of columns are too where each has not
/// to compute again what its rows have in common; equal parts. What the item
/// computes of its rows along the sum is no more than it needs of them.
Ix Kernel::rowsOfOwnPanels() {
  constexpr int64_t kLeast = ItemsOfPanels::kLeastRows, kElements = 2 << 20;
  const int64_t itemsOfCore = plan.product ? ItemsOfPanels::kOfCore : 1;
  Ix most(plan.tileRows);
  auto bound = [&](Ix length, int64_t elements) {
    most = to.min(most, to.max(kLeast, to.div(elements, to.max(1, length))));
  };
  if (int index = indexOfSum();
      index != kNone && (!plan.product || !plan.operands.empty())) {
    bound(extents[index], kElements);
    bound(capacity(index, /*isLane=*/true), 2 * kElements); // room of a row
  }
  Ix blocks(1);
  if (plan.product && plan.block != kNone)
    blocks = to.ceilDiv(extents[plan.block], plan.tileBlock);
  Ix all = extents[plan.row];
  Ix each = to.ceilDiv(to.mul(all, blocks), itemsOfCore * plan.facts.cores);
  each = to.min(to.max(each, kLeast), most);
  Ix parts = to.max(1, to.ceilDiv(all, each));
  Ix even = to.ceilTo(to.ceilDiv(all, parts), plan.registerRows);
  return to.max(1, to.min(even, plan.tileRows));
}

/// 1 where a row is one tile of the stream, else 0.
Ix Kernel::hasWholeRows() {
  Ix length = extents[plan.stream];
  return to.mul(to.min(1, length),
                to.sub(1, to.min(1, to.div(length, plan.longestWhole + 1))));
}

/// Every block of columns computes again what its rows have in common, so that
/// there are as few blocks as give each thread two items. Zen 5, quantisation
/// and an int8 product, 1024 x 4096 x 4096: 45.5 ms in 8 blocks, 39.9 in 2.
Ix Kernel::blockOfWholeRows() {
  constexpr int64_t kMostColumns = 4096;
  Ix isWhole = hasWholeRows();
  Ix items(1);
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (plan.rows & bit(i))
      items =
          to.mul(items, int(i) == plan.row ? to.ceilDiv(extents[i], rowTile())
                                           : extents[i]);
  int64_t wanted = ItemsOfPanels::withBlocks(plan.facts.cores);
  Ix results = to.mul(extents[plan.row], extents[plan.block]);
  Ix areMany = to.min(
      1, to.div(results, ItemsOfPanels::kManyResults * plan.facts.cores));
  Ix most = to.sub(wanted, to.mul(areMany, wanted - plan.facts.cores));
  Ix blocks = to.max(1, to.ceilDiv(most, to.max(1, items)));
  Ix wide =
      to.ceilTo(to.ceilDiv(extents[plan.block], blocks), plan.registerLanes);
  Ix more = to.max(0, to.sub(to.min(wide, kMostColumns), plan.tileBlock));
  // Sums of few rows are kept in arrays of a block (`layOutSums`).
  if (fewRows() != FewRows::AsOthers)
    isWhole = to.mul(isWhole, to.sub(1, hasFewRows()));
  return to.add(to.mul(more, isWhole), plan.tileBlock);
}

/// Columns by which rows are multiplied in one item: fewer of one tile of rows,
/// where that leaves cores without any.
Ix Kernel::blockOfProduct() {
  Ix extent = extents[plan.block];
  if (extent.isConstant() || !plan.hasOwnPanels())
    return plan.tileBlock;
  Ix tiles = to.max(1, to.ceilDiv(extents[plan.row], rowTile()));
  Ix blocks = to.max(to.ceilDiv(extent, plan.tileBlock),
                     to.ceilDiv(plan.facts.cores, tiles));
  Ix even =
      to.ceilTo(to.ceilDiv(extent, to.max(blocks, 1)), plan.registerLanes);
  return to.max(plan.registerLanes, to.min(even, plan.tileBlock));
}

/// Positions of the tiled carried index in one item. Few rows read long parts
/// of what they are multiplied by: equal ones, a multiple of `Plan::longParts`.
Ix Kernel::blockTile() {
  if (!plan.product && !plan.hasBlocksOfResults())
    return plan.tileBlock;
  Ix block = plan.product ? blockOfProduct() : blockOfWholeRows();
  if (fewRows() != FewRows::InOrder)
    return block;
  Ix extent = extents[plan.block];
  // What rows have in common is computed again for each part.
  int64_t apart = plan.product ? plan.longParts()
                               : std::max(plan.longParts(), plan.facts.cores);
  Ix parts = to.ceilTo(to.ceilDiv(extent, plan.longBlock()), apart);
  Ix wide = to.ceilTo(to.ceilDiv(extent, to.max(parts, 1)), plan.registerLanes);
  Ix more = to.mul(to.max(0, to.sub(wide, plan.tileBlock)), hasFewRows());
  return to.add(plan.product ? more : to.mul(more, hasWholeRows()), block);
}

Ix Kernel::mainItems() {
  Ix items = itemsOfRows();
  return plan.row == kNone
             ? items
             : to.mul(items, to.ceilDiv(extents[plan.row], rowTile()));
}

/// Items of one row tile.
Ix Kernel::itemsOfRows() {
  Ix items(1);
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i) {
    if (int(i) == plan.row)
      continue;
    if (plan.rows & bit(i))
      items = to.mul(items, extents[i]);
    else if (int(i) == plan.block)
      items = to.mul(items, to.ceilDiv(extents[i], blockTile()));
  }
  return items;
}

/// Item numbers count row tiles fastest, then outer rows, then blocks; of a
/// product that several threads share those of half the rows come first.
void Kernel::bindItem(Ix item) {
  Ix rest = item;
  auto take = [&](Ix count) {
    Ix digit = to.rem(rest, count);
    rest = to.div(rest, count);
    return digit;
  };
  rows = Ix(1);
  if (plan.row != kNone) {
    Ix extent = extents[plan.row];
    Ix height = rowTile();
    Ix tiles = to.ceilDiv(extent, height), before(0);
    if (!partsOfRows.is(1)) {
      Ix each = to.ceilDiv(tiles, partsOfRows);
      Ix items = to.mul(each, itemsOfRows());
      Ix part = to.div(rest, items);
      rest = to.sub(rest, to.mul(part, items));
      before = to.mul(part, each);
      tiles = to.min(each, to.sub(tiles, before));
    }
    rowsOfPart.first = to.mul(before, height);
    rowsOfPart.count =
        to.min(to.mul(tiles, height), to.sub(extent, rowsOfPart.first));
    Ix tile = to.add(before, take(tiles));
    base[plan.row] = to.mul(tile, height);
    bool isEven = extent.isConstant() && height.isConstant() &&
                  extent.constant % height.constant == 0;
    rows = isEven ? height : to.min(height, to.sub(extent, base[plan.row]));
  }
  for (int i = plan.cascade.numIndices() - 1; i >= 0; --i)
    if (i != plan.row && (plan.rows & bit(i)))
      base[i] = take(extents[i]);
  if (plan.block != kNone)
    base[plan.block] = to.mul(rest, blockTile());
}

/// Of fewer rows than half a register, where that is known at run time only,
/// nothing is turned.
void Kernel::walkItem() {
  prologue();
  if (plan.product)
    return;
  if (!plan.turnsAny() || !ShapedType::isDynamic(plan.extent(plan.row)))
    return walkTile();
  auto apart = [&] {
    auto reads = std::exchange(turnedReads, {});
    auto writes = std::exchange(turnedWrites, {});
    walkTile();
    turnedReads = std::move(reads);
    turnedWrites = std::move(writes);
  };
  to.branch(to.less(extents[plan.row], plan.facts.lanes(32) / 2), apart,
            [&] { walkTile(); });
}

void Kernel::walkTile() {
  if (!plan.hasShortRows() && plan.wholes.empty() && !plan.joinsTiles)
    return walkRows(RowWalk::InTiles);
  Ix length = extents[plan.stream];
  auto upTo = [&](int64_t longest, llvm::function_ref<void()> shortRows,
                  llvm::function_ref<void()> others) {
    if (length.isConstant())
      return length.constant >= 1 && length.constant <= longest ? shortRows()
                                                                : others();
    Val isShort = to.binary(Binary::AndI, to.less(0, length),
                            to.less(length, longest + 1));
    to.branch(isShort, shortRows, others);
  };
  if (plan.longestGrouped) {
    auto inGroups = [&] {
      base[plan.stream] = Ix(0);
      valid = extents[plan.stream];
      areTurned = true;
      for (unsigned p = 0; p < plan.passes.size(); ++p)
        fillTurned(readsOfPass(p));
      passesOfGroups();
      areTurned = false;
    };
    upTo(plan.longestGrouped, inGroups,
         [&] { rowByRow([&] { walkPasses(); }); });
    return finish();
  }
  auto inTiles = [&] { walkRows(RowWalk::InTiles); };
  if (plan.joinsTiles)
    return upTo(
        plan.longestJoined, [&] { walkRows(RowWalk::JoinedTiles); }, inTiles);
  auto whole = [&] {
    upTo(plan.longestWhole, [&] { walkRows(RowWalk::Whole); }, inTiles);
  };
  if (!plan.longestJoined)
    return whole();
  // What a whole row spares, if no sweep reads what the passes leave, is a
  // number or two a row: no reason for a third copy of the walk.
  upTo(
      plan.longestJoined, [&] { walkRows(RowWalk::Joined); },
      length.isConstant() ? llvm::function_ref<void()>(whole) : inTiles);
}

/// All passes of as many rows as there are lanes before those of the next.
void Kernel::passesOfGroups() {
  isWholeRow = isJoined = true;
  for (unsigned p = 0; p < plan.passes.size(); ++p)
    startGuarded(p);
  eachHead([&](Tile &head) {
    firstOfGroup = head.laneLocal[0];
    walkWhole();
    firstOfGroup.reset();
  });
  isWholeRow = isJoined = false;
}

/// One by one or, where rows have something in common, all rows of the tile
/// level by level. Memory is then read in order, and a sweep finds its row in
/// the nearest cache.
void Kernel::walkRows(RowWalk kind) {
  bool isWhole = kind == RowWalk::Whole || kind == RowWalk::Joined;
  isJoined = kind == RowWalk::Joined || kind == RowWalk::JoinedTiles;
  auto passes = [&] { isWhole ? walkWhole() : walkPasses(); };
  auto results = [&] {
    finish();
    if (isWhole)
      sweepWhole();
    else if (plan.stream != kNone)
      sweep(0, extents[plan.stream]);
  };
  isWholeRow = isWhole;
  areTurned = isWhole || plan.stream == kNone;
  if (areTurned && !turnedReads.empty()) {
    NodeSet used = readsOfWrites();
    for (unsigned p = 0; p < plan.passes.size(); ++p) {
      NodeSet some = readsOfPass(p);
      used.insert(some.begin(), some.end());
    }
    if (plan.stream != kNone) {
      base[plan.stream] = Ix(0);
      valid = extents[plan.stream];
    }
    fillTurned(used);
  }
  if (isJoined || !walksRowByRow()) {
    passes();
    results();
  } else {
    bool hasSweep = !plan.sweepWrites.empty();
    auto oneByOne = [&] {
      rowByRow([&] {
        passes();
        if (hasSweep)
          results();
      });
      if (!hasSweep)
        finish();
      flushSweep();
    };
    auto longRows = [&] {
      plan.longestWrittenFirst() ? walkBeside() : walkTogether();
    };
    Ix isLong = isWhole ? Ix(0) : areLong();
    if (isLong.isConstant())
      isLong.is(1) ? longRows() : oneByOne();
    else
      to.branch(to.less(0, isLong), longRows, oneByOne);
  }
  isWholeRow = isJoined = areTurned = false;
}

/// What a pass leaves that no row of a tile may need.
void Kernel::startGuarded(unsigned pass) {
  if (plan.passes[pass].guards.empty())
    return;
  initialise(pass, /*hasLists=*/true);
  reducePartials(pass);
}

/// The stream is one tile: nothing was there before it, so no state is
/// initialised or moved.
void Kernel::walkWhole() {
  base[plan.stream] = Ix(0);
  valid = extents[plan.stream];
  isBoundary.reset();
  for (unsigned p = 0; p < plan.passes.size(); ++p) {
    if (!firstOfGroup)
      startGuarded(p);
    if (plan.passes[p].guards.empty()) {
      prelude(p);
      streamTile(p);
    } else {
      whereNeeded(p, [&] { streamTile(p); });
    }
  }
}

/// Numbers of joined rows, or of columns, rows along the lanes; or of one row
/// whose sweep is several loops.
void Kernel::computeNumbers(ArrayRef<Node *> numbers) {
  bool isOne = onlyRow && plan.streams != bit(plan.stream);
  if (numbers.empty() || !(isJoined || isOne || plan.hasColumns()))
    return;
  auto compute = [&](Tile &head) {
    for (Node *n : numbers)
      writeArray(head, kept.at(n), 0, 0, eval(head, n, 0, 0));
  };
  if (isJoined)
    eachHead(compute);
  else if (plan.hasColumns())
    eachRow(plan.row != kNone, [&](Ix row) { eachColumn(row, compute); });
  else
    eachRow(/*hasRow=*/true, [&](Ix row) {
      Tile head = tileOf(row);
      compute(head);
    });
  keptReady.insert(numbers.begin(), numbers.end());
}

/// What the sweep shares with the last pass is read from there.
void Kernel::sweepWhole() {
  computeNumbers(plan.numbers);
  for (auto [value, term] : plan.reused) {
    kept[value] = kept.at(term);
    keptReady.insert(value);
  }
  hasLikely = plan.wholes.empty();
  for (WritePlan &w : plan.sweepWrites)
    writeNest(w);
  hasLikely = false;
  keptReady.clear();
}

/// Whether all that the passes compute is of one row, but for counts: nothing
/// of any size would be computed for every row that one computation serves.
bool Kernel::walksRowByRow() {
  if (!plan.hasOnlyRows() || plan.row == kNone || plan.tileRows == 1 ||
      (!areTurned && !(turnedReads.empty() && turnedWrites.empty())))
    return false;
  // Lists are filled for all rows of a tile at once.
  auto isOfRow = [&](const StatePlan &s) {
    return (plan.hasRow(s.set) || s.isCount) && !s.isList();
  };
  auto areOfRow = [&](const PassPlan &p) {
    return p.prelude.empty() && llvm::all_of(p.kept, [&](Node *n) {
             return plan.hasRow(n->set) || !plan.hasStream(n->set);
           });
  };
  return llvm::all_of(plan.states, isOfRow) &&
         llvm::all_of(plan.passes, areOfRow);
}

void Kernel::rowByRow(llvm::function_ref<void()> body) {
  if (!walksRowByRow())
    return body();
  to.each(0, rows, 1, [&](Ix row) {
    onlyRow = row;
    body();
    onlyRow.reset();
  });
}

void Kernel::walkPasses() {
  auto pass = [&](unsigned p) {
    walkPass(p, 0, extents[plan.stream]);
    reducePartials(p);
  };
  withFlatStreams([&] {
    for (unsigned p = 0; p < plan.passes.size(); ++p)
      pass(p);
  });
}

void Kernel::eachItem(unsigned phase, int64_t step,
                      llvm::function_ref<void(Ix)> body) {
  to.beginPhase(phase);
  readExtents();
  layOut(/*isDryRun=*/false);
  bool hasTiles = plan.usesTiles() && phase >= plan.numPackPhases();
  if (hasTiles)
    to.beginTiles();
  if (phase == plan.numPackPhases() && mayPartRows())
    partRows();
  to.each(to.itemBegin(), to.itemEnd(), step, body);
  if (hasTiles)
    to.endTiles();
  to.endPhase();
}

void Kernel::emitMain(unsigned phase) {
  eachItem(phase, 1, [&](Ix item) {
    bindItem(item);
    walkItem();
  });
  partsOfRows = Ix(1);
}

/// Who is called for all items at once is alone.
void Kernel::partRows() {
  Ix others = to.add(to.itemBegin(), to.sub(mainItems(), to.itemEnd()));
  partsOfRows = to.add(1, to.mul(kPartsOfRows - 1, to.min(1, others)));
}

void Kernel::emitShape() {
  SmallVector<Ix> items, atOnce;
  bool isSplit = hasSegments();
  unsigned phases =
      plan.numPackPhases() +
      (isSplit ? 2 * plan.passes.size() + !plan.sweepWrites.empty() : 1);
  to.beginShape(2 + 2 * phases);
  readExtents();
  layOut(/*isDryRun=*/true);
  for (auto &[node, pack] : plan.packs)
    if (!pack.isOwn) {
      items.push_back(packItems(pack));
      atOnce.push_back(packItemsAtOnce(node, pack));
    }
  Ix main = mainItems();
  if (!isSplit) {
    items.push_back(main);
    atOnce.push_back(mainItemsAtOnce(main));
  } else {
    Ix parts = to.mul(main, numSegments());
    for (unsigned p = 0; p < plan.passes.size(); ++p)
      items.append({parts, main});
    if (!plan.sweepWrites.empty())
      items.push_back(parts);
  }
  SmallVector<Ix> results{sharedBytes, privateBytes};
  atOnce.append(items.begin() + atOnce.size(), items.end());
  results.append(items);
  results.append(atOnce);
  to.endShape(results);
}

unsigned Kernel::emit() {
  emitShape();
  unsigned phase = 0;
  for (auto &[node, pack] : plan.packs)
    if (!pack.isOwn)
      emitPack(node, pack, phase++);
  if (!hasSegments()) {
    emitMain(phase++);
    return phase;
  }
  for (unsigned p = 0; p < plan.passes.size(); ++p) {
    emitSegments(p, phase++);
    emitMerge(p, phase++);
  }
  if (!plan.sweepWrites.empty())
    emitSegmentSweep(phase++);
  return phase;
}
