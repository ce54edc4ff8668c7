// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What contractions and sums with a carried index take: products, what is
// computed beside them, registers that are not full, panels.
#include "CascadeCounter.h"
#include "CountOperation.h"
#include "SumsTogether.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/AffineExpr.h"
#include <cmath>

using namespace mlir;
using namespace refold;

/// Products of two values that are bf16 are added two at a time where the
/// target does so and many rows share what is put into pairs.
bool CascadeCounter::isAddedInPairs(Value term) {
  auto product = term.getDefiningOp<arith::MulFOp>();
  auto isHalf = [](Value factor) {
    auto widened = factor.getDefiningOp<arith::ExtFOp>();
    return widened && widened.getIn().getType().isBF16();
  };
  constexpr double kRowsInTiles = 3.0; // as the plan has it for whole tiles
  bool areInPlace = target.multipliesTiles && schedule.innerLanes &&
                    tiledRow() >= 0 &&
                    tileOf(unsigned(tiledRow())) >= kRowsInTiles;
  if (!target.addsPairs || (schedule.registerRows < 8 && !areInPlace) ||
      !product || !term.getType().isF32() || !isHalf(product.getLhs()) ||
      !isHalf(product.getRhs()))
    return false;
  // A product by itself: in tiles, where panels of a constant are there.
  return stream ||
         (target.multipliesTiles && multipliesPairsByConstant(cascade, term));
}

/// Products of two bytes, which the target adds in fours.
bool CascadeCounter::isByteDot(Value term) const {
  Operation *product = term.getDefiningOp();
  if (!(target.hasByteDots || target.addsHalfWords) ||
      !isa_and_nonnull<arith::MulIOp>(product))
    return false;
  // Its unsigned side has signs that were flipped: both have one.
  bool areSigned = target.hasByteDots;
  return llvm::all_of(product->getOperands(), [&](Value side) {
    Operation *cast = side.getDefiningOp();
    return (areSigned
                ? isa_and_nonnull<arith::ExtSIOp>(cast)
                : isa_and_nonnull<arith::ExtSIOp, arith::ExtUIOp>(cast)) &&
           cast->getOperand(0).getType().isInteger(8);
  });
}

double CascadeCounter::sharingRows() {
  int row = tiledRow();
  return row < 0 ? 1.0 : extents[row];
}

/// Rows that fill no register tile are multiplied as half of one, a quarter,
/// and so on; of few sums each step waits for the one before. How many times as
/// long it takes as full register tiles.
double CascadeCounter::waitOfRows() {
  constexpr double kSumsInFlight = 4.0;
  int row = tiledRow();
  double rows = row < 0 ? 1.0 : tileOf(row), taken = 0.0, left = rows;
  double columns =
      std::max(1.0, static_cast<double>(schedule.registerLanes) / lanes);
  double block =
      static_cast<double>(std::max<int64_t>(schedule.registerRows, 1));
  for (; left > 0.0 && block >= 1.0; block = std::floor(block / 2.0)) {
    double blocks = std::floor(left / block);
    taken += blocks * std::max(block, kSumsInFlight / columns);
    left -= blocks * block;
  }
  return rows > 0.0 ? std::max(1.0, taken / rows) : 1.0;
}

/// Products that one register of `set` serves: what no row moves is loaded for
/// all rows of a register tile, what rows move for its two columns.
double CascadeCounter::sharingOf(uint64_t set, bool isThin, bool isAcross) {
  constexpr double kColumns = 2.0, kRowsAcross = 4.0;
  double rows = double(std::max<int64_t>(schedule.registerRows, 1));
  if (isThin)
    return rows;
  int row = tiledRow();
  if (row < 0 || (set & bit(row)))
    return kColumns;
  rows = std::min(isAcross ? kRowsAcross : rows, sharingRows());
  return std::max(rows, 1.0);
}

/// Lanes of a sum run along the last carried index: its registers are not full.
double CascadeCounter::carriedWaste() {
  if (!carried)
    return 1.0;
  double extent = extents[63 - llvm::countl_zero(carried)];
  return extent < 1.0 ? 1.0 : std::ceil(extent / lanes) * lanes / extent;
}

/// Registers of what a contraction leaves, or sums, are not full: those of its
/// lanes where `isAcross`. Where extents are open and a second product follows,
/// the last register is one of a whole tile.
double CascadeCounter::wasteOfSums(uint64_t nest, bool isAcross) {
  int index =
      isAcross
          ? llvm::countr_zero(nest & cascade.indicesOfRole(CascadeOp::Inner))
          : laneIndex;
  if (index < 0 || !(nest & bit(index)) || extents[index] < 1.0)
    return 1.0;
  auto isSecond = [&](StateOp state) {
    return !state.isOrdered() && (sets.of(state.getResult(0)) & carried);
  };
  bool isWide = !isAcross && index == lastStream &&
                ShapedType::isDynamic(cascade.getExtents()[index]) &&
                llvm::any_of(cascade.getBody().getOps<StateOp>(), isSecond);
  double width = isWide ? double(schedule.registerLanes) : lanes;
  return std::ceil(extents[index] / width) * width / extents[index];
}

/// The index that the last subscript is; -1: none is by itself.
int CascadeCounter::denseIndex(ReadOp read) {
  AffineMap map = read.getMap();
  auto dim = map.getNumResults()
                 ? dyn_cast<AffineDimExpr>(map.getResults().back())
                 : AffineDimExpr(nullptr);
  auto index =
      dim ? dyn_cast<BlockArgument>(read.getIndices()[dim.getPosition()])
          : BlockArgument();
  return index && index.getArgNumber() < extents.size()
             ? int(index.getArgNumber())
             : -1;
}

/// Few rows of a stream sum with lanes along what is summed, where all that
/// moves with it is dense along it.
bool CascadeCounter::isSummedAcross(const OpSet &ops, uint64_t nest) {
  uint64_t summed = nest & cascade.indicesOfRole(CascadeOp::Inner);
  if (!(nest & stream) || llvm::popcount(summed) != 1)
    return false;
  auto length = static_cast<int64_t>(extents[llvm::countr_zero(summed)]);
  if (sharingRows() > double(rowsAlongSum(length, int64_t(lanes))))
    return false;
  return llvm::all_of(ops, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read || !(sets.of(read.getValue()) & summed))
      return true;
    int dense = denseIndex(read);
    return dense >= 0 && summed == bit(dense);
  });
}

/// What the rows of a tile share is laid out in panels, unless that was done
/// for all runs.
void CascadeCounter::countPanels(const OpSet &ops) {
  if (laneIndex < 0 || tiledRow() < 0)
    return;
  for (Operation *op : ops) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      continue;
    uint64_t set = sets.of(read.getValue());
    bool isShared = !(set & bit(tiledRow()));
    if (!isShared || !(set & bit(laneIndex)) || !isVarying(cascade, read))
      continue;
    int dense = denseIndex(read);
    // Along the lanes it is copied, or few rows read it where it lies.
    auto most = static_cast<double>(
        dense < 0 || stream ? kRowsInPlace : rowsInOrderAlong(target));
    if (dense == laneIndex || sharingRows() <= most)
      continue;
    double laid = elements(set);
    if (schedule.panelBytes == 0) // by each item
      laid *= std::ceil(sharingRows() / tileOf(unsigned(tiledRow())));
    if (dense >= 0 && extents[dense] >= 1.0) // whole registers are turned
      laid *= std::ceil(extents[dense] / lanes) * lanes / extents[dense];
    work.turned += laid;
  }
}

/// For matrix tiles pairs are laid beside each other, and those along the sum
/// turned. Emerald Rapids, 8 heads of 2048 x 64: 0.3 ms longer with 40 rows
/// than with 16, which read them as they lie; by hand values of 8192 x 512
/// 0.43.
void CascadeCounter::countPairPanels(Value term) {
  constexpr double kPair = 0.7; // of what an element of 32 bits takes
  if (tiledRow() < 0)
    return;
  OpSet ops;
  gather(term, ops);
  for (Operation *op : ops) {
    auto read = dyn_cast<ReadOp>(op);
    uint64_t set = read ? sets.of(read.getValue()) : 0;
    if (!read || (set & bit(unsigned(tiledRow()))) || !isVarying(cascade, read))
      continue;
    double items = schedule.panelBytes == 0
                       ? std::ceil(sharingRows() / tileOf(unsigned(tiledRow())))
                       : 1.0;
    work.turned += kPair * elements(set) * items;
  }
}

/// Few rows read what they share in the order in which it lies, some steps of
/// the sum at a time (`Kernel::rowsThatShare`). How many times as long that
/// takes where the sums leave the first cache no room. With panels and so, one
/// thread, ms: Zen 5, 128 x 768 x 128 0.108 and 0.122; Sapphire Rapids, routing
/// of 128 x 2048 x 128 0.339 and 0.366; of 64 columns nothing is lost.
double CascadeCounter::waitInOrder(const OpSet &ops) {
  constexpr double kWait = 1.12, kCores = 2.0, kRowsOfTile = 8.0, kBytes = 4.0;
  int row = tiledRow();
  if (row < 0 || laneIndex < 0)
    return 1.0;
  bool isInOrder = llvm::any_of(ops, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    uint64_t set = read ? sets.of(read.getValue()) : 0;
    return read && !(set & bit(row)) && denseIndex(read) == laneIndex &&
           isVarying(cascade, read);
  });
  double rows = extents[row];
  if (stream)
    rows = std::min(rows, std::max(std::ceil(rows / kCores), kRowsOfTile));
  double sums = rows * extents[laneIndex] * kBytes;
  bool areFew = rows > kRowsOfTile && rows <= double(rowsInOrder(target));
  return isInOrder && areFew && sums > 0.5 * double(target.l1Bytes) ? kWait
                                                                    : 1.0;
}

/// Bytes of four steps are laid beside each other. Zen 5, 16 rows by 4096 x
/// 4096 1.36 ms, of which 0.6 are products.
void CascadeCounter::countBytePanels(Value term) {
  constexpr double kByte = 0.35; // of what an element of 32 bits takes
  OpSet ops;
  gather(term, ops);
  for (Operation *op : ops) {
    auto read = dyn_cast<ReadOp>(op);
    if (read && read.getValue().getType().isInteger(8) &&
        isVarying(cascade, read))
      work.turned += kByte * elements(sets.of(read.getValue()));
  }
}

/// Other operations for each product of a nest. What all indices move runs in
/// the innermost loop, what only some do serves several products, and what rows
/// multiply with is computed before.
double CascadeCounter::othersOf(Value term, const OpSet &ops, uint64_t nest,
                                bool isThin, bool isAcross) {
  auto timesOf = [](Operation &op) {
    OperationCounts one = kindOf(op);
    return one.simple + one.conversions + 4.0 * one.divisions +
           12.0 * (one.exponentials + one.functions);
  };
  int row = tiledRow();
  auto isOperand = [&](uint64_t set) {
    return row >= 0 && (set & bit(row)) && !(set & stream) &&
           (laneIndex < 0 || !(set & bit(laneIndex)));
  };
  uint64_t moving = stream | cascade.indicesOfRole(CascadeOp::Inner);
  double others = 0.0;
  for (Operation *op : ops) {
    if (op->getNumResults() != 1 || op == term.getDefiningOp())
      continue;
    uint64_t set = sets.of(op->getResult(0));
    bool isKept = (nest & carried) && !(set & carried) && (set & rowSet);
    if (set == nest)
      others += timesOf(*op);
    else if ((set & moving) && !(set & ~nest) && !isKept && !isOperand(set) &&
             !dependsOnState(op))
      others += timesOf(*op) / sharingOf(set, isThin, isAcross);
  }
  Operation *last = term.getDefiningOp();
  if (last && !isa<arith::MulFOp, arith::MulIOp, ReadOp>(last))
    others += 1.0;
  return others;
}

/// What a nest leaves: its sums, those of a stream once a tile.
double CascadeCounter::sumsOf(uint64_t nest) {
  if (uint64_t summed = nest & cascade.indicesOfRole(CascadeOp::Inner))
    return elements(nest & ~summed);
  double tiles = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if (nest & stream & bit(i))
      tiles *= std::ceil(extents[i] / (int(i) == lastStream ? tileOf(i) : 1.0));
  return elements(nest & ~stream) * tiles;
}

/// A sum of `term` over what its nest reduces: one product and the sum are one
/// fma. What no carried index moves is kept by the row steps of a state, and
/// counted there.
void CascadeCounter::countNest(Value term, uint64_t nest) {
  // Products of one multiplication and addition: by half words it takes two,
  // and bytes are widened.
  const double kDotBytes = target.hasByteDots ? 4.0 : 1.3;
  hasNest = true;
  constexpr double kRowsOfTile = 16.0;
  if (isByteDot(term)) {
    bool areTiles = target.multipliesTiles && target.hasByteDots &&
                    sharingRows() >= kRowsOfTile;
    (areTiles ? work.byteSteps : work.nestSteps) +=
        elements(nest) / (areTiles ? 1.0 : kDotBytes);
    if (areTiles)
      work.tileSums += sumsOf(nest);
    countBytePanels(term);
    return;
  }
  if (isAddedInPairs(term)) {
    // A tile takes as long, however few of its rows there are.
    double rows = tiledRow() < 0 ? 1.0 : tileOf(unsigned(tiledRow()));
    rows = std::clamp(std::min(rows, sharingRows()), 1.0, kRowsOfTile);
    bool areTiles = target.multipliesTiles;
    work.pairSteps += elements(nest) * (areTiles ? kRowsOfTile / rows : 1.0);
    if (areTiles) {
      work.tileSums += sumsOf(nest);
      if (sharingRows() > kRowsOfTile)
        countPairPanels(term);
    }
    return;
  }
  constexpr double kThinRows = 4.0; // what they wait for is memory
  bool isThin = schedule.registerRows == 1 ||
                (schedule.innerLanes && sharingRows() <= kThinRows);
  OpSet ops;
  gather(term, ops);
  bool isAcross = isSummedAcross(ops, nest);
  double others = othersOf(term, ops, nest, isThin, isAcross);
  if (isThin) {
    work.thinSteps += (1.0 + others) * elements(nest);
    work.thinLoads += elements(nest) / sharingOf(nest, isThin, isAcross);
    return;
  }
  // Every tile of rows sums again what is the same for all of them, of one row.
  if (!(nest & rowSet) && elements(rowSet) > 1.0) {
    work.thinSteps += (1.0 + others) * elements(nest) * tileCount();
    work.thinLoads += elements(nest) * tileCount();
    return;
  }
  uint64_t summed = nest & cascade.indicesOfRole(CascadeOp::Inner);
  double waste = summed ? wasteOfSums(nest, isAcross) : 1.0;
  if (isAcross) {
    work.sumsAcross += elements(nest & ~summed);
    work.nestSteps += elements(nest) * waste;
  } else if (summed) {
    countPanels(ops);
    double steps = elements(nest) * waste * waitOfRows() * waitInOrder(ops);
    double sums = elements(nest & ~summed) * waste * waitOfRows();
    if (!stream)
      countAlone(summed, laneIndex, steps, sums);
    work.nestSteps += steps;
    work.nestSums += sums;
  } else {
    double steps = elements(nest) * waitOfRows() * carriedWaste(), sums = 0.0;
    if (areWholeRows(nest)) {
      steps *= waitOfSums() * readAgainForHeads(nest);
      sums = steps / std::max(elements(nest & stream), 1.0);
      countAlone(nest & stream, 63 - int(llvm::countl_zero(carried)), steps,
                 sums);
    }
    work.nestSteps += steps;
    work.nestSums += sums;
  }
  work.nestOthers += others * elements(nest);
}

/// How many times as long sums take of which each row has one register, beside
/// one after the other. Zen 5, three of 128 x 512 x 512 1.00 and 0.85 ms, of
/// 1024 x 768 x 768 19.5 and 15.9; two constants of 128 x 768 x 2048 3.85 and
/// 3.65, of 512 x 768 x 2048 13.6 and 13.3. Of 16 registers two lose nothing.
double CascadeCounter::waitOfSums() {
  constexpr double kTwo = 1.02, kMore = 1.2;
  constexpr int64_t kManyRegisters = 32;
  int64_t count = sumsTogether(cascade, sets);
  if (count == 2)
    return target.vectorRegisters >= kManyRegisters ? kTwo : 1.0;
  return count > 2 ? kMore : 1.0;
}

/// Sums with two column indices read their rows once for every place of the
/// outer one, from the third cache where a tile of rows and what it is
/// multiplied by fill the second. Zen 5, 64 rows, three products by 32 heads of
/// 64: sums of 1536 9.2 and 7.9 ms (one index), of 2048 21.3 and 11.2.
double CascadeCounter::readAgainForHeads(uint64_t nest) {
  constexpr double kAgain = 1.9, kShare = 0.3, kBytes = 4.0;
  if (llvm::popcount(nest & carried) < 2 || tiledRow() < 0)
    return 1.0;
  double bytes =
      kBytes * tileOf(unsigned(tiledRow())) * elements(nest & stream);
  return bytes > kShare * double(target.l2Bytes) ? kAgain : 1.0;
}

/// Whether a state sums rows that are one tile of the stream, as a product by
/// itself does (`Plan::wholes`).
bool CascadeCounter::areWholeRows(uint64_t nest) {
  if (!(nest & carried) || stream != bit(unsigned(std::max(lastStream, 0))) ||
      cascade.indicesOfRole(CascadeOp::Inner) || schedule.segments > 1)
    return false;
  auto tile = schedule.tile.find(cascade.indexName(unsigned(lastStream)).str());
  return tile != schedule.tile.end() &&
         double(tile->second) >= extents[lastStream];
}

/// A product by itself has no short blocks, and only stores what it sums. Its
/// panels are read from where they fit. Zen 4, 2000 x 64 by 64 x 16 and 32,
/// 0.036 and 0.073 ms, beside a maximum 0.009 more; 128 and 4096 rows of 768
/// and 4096 by as many columns took 1.07 to 1.15 of what is predicted without.
/// Many columns of short sums leave the first cache as they are stored: 512 x 8
/// by 300 takes 0.075 ms, 0.032 by this and 0.054 without.
void CascadeCounter::countAlone(uint64_t summed, int lane, double &steps,
                                double &sums) {
  constexpr double kSums = 0.2, kFar = 1.04, kBytes = 4.0;
  constexpr double kFewRegisters = 4.0;
  if (lane < 0 || extents[lane] <= kFewRegisters * lanes)
    sums *= kSums;
  double panel = elements(summed) * double(schedule.registerLanes) * kBytes;
  if (panel > 0.5 * double(target.l1Bytes))
    steps *= kFar;
}
