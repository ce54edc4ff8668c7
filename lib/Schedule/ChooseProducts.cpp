// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Register tiles, panels and items of cascades with contractions or sums with a
// carried index. The numbers were measured on Zen 3 to 5 and Sapphire Rapids
// (docs/targets/cpu.md).
#include "Columns.h"
#include "ScheduleChooser.h"
#include "SumsTogether.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/AffineExpr.h"
#include <numeric>

using namespace mlir;
using namespace refold;

constexpr int64_t kAllRows = 1 << 20;
/// Panels that the item makes serve all of its rows (`Kernel::rowsOfOwnPanels`
/// takes fewer where these are few items): whole register tiles, so that no bit
/// depends on how many.
static int64_t rowsOfOwnPanels(const Schedule &s) {
  constexpr int64_t kMost = 4096;
  return kMost / s.registerRows * s.registerRows;
}

/// How many rows in a row along `i` share an operand of a matrix nest: all, or
/// c where it is read at `i floordiv c`, or 1. A mask, which all heads share
/// too, is none: tiling heads would leave nothing to pack. Neither is what has
/// nothing along the lanes, weights of a sum (x[b,t,d] and w[d]).
int64_t ScheduleChooser::rowsSharing(unsigned i) {
  uint64_t nests = cascade.indicesOfRole(CascadeOp::Inner) |
                   cascade.indicesOfRole(CascadeOp::Carried);
  uint64_t streams = cascade.indicesOfRole(CascadeOp::Stream);
  int64_t sharing = 0;
  for (ReadOp read : cascade.getBody().getOps<ReadOp>()) {
    uint64_t set = sets.of(read.getValue());
    if (!(set & nests) ||
        (streams && llvm::popcount(set & (nests | streams)) < 2))
      continue;
    if (!(set & (uint64_t(1) << i)))
      return kAllRows;
    read.getMap().walkExprs([&](AffineExpr expr) {
      auto divided = dyn_cast<AffineBinaryOpExpr>(expr);
      if (!divided || expr.getKind() != AffineExprKind::FloorDiv)
        return;
      auto dim = dyn_cast<AffineDimExpr>(divided.getLHS());
      auto by = dyn_cast<AffineConstantExpr>(divided.getRHS());
      if (dim && by &&
          read.getIndices()[dim.getPosition()] ==
              cascade.getBody().getArgument(i))
        sharing = std::gcd(sharing, by.getValue());
    });
  }
  return std::clamp<int64_t>(sharing, 1, kAllRows);
}

/// Of the row indices whose rows share an operand: the last of those whose rows
/// all do, if there are several rows, else one whose rows do in groups.
int ScheduleChooser::chooseSharedRow(int except) {
  int best = kNone, grouped = kNone;
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (!isRole(i, CascadeOp::Row) || int(i) == except)
      continue;
    int64_t sharing = rowsSharing(i);
    if (sharing == kAllRows && (best == kNone || isLarge(i, 2)))
      best = i;
    else if (sharing > 1 && sharing != kAllRows && isLarge(i, 2))
      grouped = i;
  }
  return grouped != kNone && (best == kNone || !isLarge(best, 2)) ? grouped
                                                                  : best;
}

/// Whether all that moves with what contractions sum is dense along it: lanes
/// may run there.
bool ScheduleChooser::isDenseAlongSum() {
  uint64_t inner = cascade.indicesOfRole(CascadeOp::Inner);
  return llvm::all_of(cascade.getBody().getOps<ReadOp>(), [&](ReadOp read) {
    uint64_t summed = sets.of(read.getValue()) & inner;
    int dense = denseIndexOf(cascade, read.getMap(), read.getIndices());
    return !summed || (dense != kNone && summed == uint64_t(1) << dense);
  });
}

/// Whether what contractions read of the stream has 16 bits or fewer.
bool ScheduleChooser::readsHalvesAlong(int stream) {
  uint64_t inner = cascade.indicesOfRole(CascadeOp::Inner);
  return llvm::all_of(cascade.getBody().getOps<ReadOp>(), [&](ReadOp read) {
    uint64_t set = sets.of(read.getValue());
    Type type = read.getValue().getType();
    return !(set & inner) || !(set >> stream & 1) ||
           (type.isIntOrFloat() && type.getIntOrFloatBitWidth() <= 16);
  });
}

bool refold::multipliesPairsByConstant(CascadeOp cascade, Value term) {
  auto product = term.getDefiningOp<arith::MulFOp>();
  auto halfOf = [](Value factor) {
    auto widened = factor.getDefiningOp<arith::ExtFOp>();
    return widened && widened.getIn().getType().isBF16() ? widened.getIn()
                                                         : Value();
  };
  auto isConstant = [&](Value factor) {
    auto read = halfOf(factor).getDefiningOp<ReadOp>();
    return read && !isVarying(cascade, read);
  };
  return product && llvm::all_of(product->getOperands(), halfOf) &&
         llvm::any_of(product->getOperands(), isConstant);
}

bool ScheduleChooser::hasPairsInTiles() {
  return target.multipliesTiles &&
         llvm::any_of(cascade.getBody().getOps<arith::MulFOp>(),
                      [&](arith::MulFOp product) {
                        return multipliesPairsByConstant(cascade, product);
                      });
}

/// The rows that share operands, where these are known to be so few that
/// packing would cost as much as the product; else 0.
int64_t ScheduleChooser::fewRows(int row, int64_t most) {
  if (row == kNone)
    return 1;
  int64_t rows = rowsSharing(row);
  if (!ShapedType::isDynamic(extent(row)))
    rows = std::min(rows, extent(row));
  return rows <= most ? std::max<int64_t>(rows, 1) : 0;
}

/// Of pairs of bf16 panels are multiplied twice as fast.
int64_t ScheduleChooser::rowsAlongSum() {
  uint64_t inner = cascade.indicesOfRole(CascadeOp::Inner);
  bool hasPairs =
      target.addsPairs &&
      llvm::any_of(cascade.getBody().getOps<ReadOp>(), [&](ReadOp read) {
        return (sets.of(read.getValue()) & inner) &&
               read.getValue().getType().isBF16();
      });
  if (hasPairs || llvm::popcount(inner) != 1)
    return kFewRows;
  // What is not known is taken for the width of a head.
  constexpr int64_t kWidth = 64;
  int64_t length = extent(llvm::countr_zero(inner));
  return ::rowsAlongSum(ShapedType::isDynamic(length) ? kWidth : length,
                        target.lanes(32));
}

/// Bytes of the panels of a contraction for each place along its lanes.
int64_t ScheduleChooser::bytesOfPanels() {
  int64_t bytes = sizeof(float);
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (isRole(i, CascadeOp::Inner) && !ShapedType::isDynamic(extent(i)))
      bytes *= std::min<int64_t>(extent(i), 1 << 20);
  return bytes;
}

/// Whether an item may lay out the panels of a tile of the stream itself: of
/// many rows, whose contractions have one index each, pairs in matrix tiles
/// only. Sapphire Rapids, 128 rows by 8192 x 576, one thread and two: panels
/// laid out before, by whichever thread, 13.1 and 7.3 ms, so 11.0 and 5.5.
bool ScheduleChooser::mayOwnPanels(int row, int stream) {
  uint64_t inner = cascade.indicesOfRole(CascadeOp::Inner);
  return row != kNone && stream != kNone && !fewRows(row) && sumsByColumns() &&
         llvm::popcount(inner) == 1 &&
         llvm::none_of(cascade.getBody().getOps<ReadOp>(), [&](ReadOp read) {
           return target.addsPairs && !target.multipliesTiles &&
                  (sets.of(read.getValue()) & inner) &&
                  read.getValue().getType().isBF16();
         });
}

void ScheduleChooser::chooseMatrix(Schedule &s, int row, int stream) {
  int64_t lanes = target.lanes(32);
  bool hasManyRegisters = target.vectorRegisters >= 32;
  // Of 16 registers 6 x 2 hold sums: 4 x 2 wait for each other. Zen 3,
  // attention 8 x 1024 x 64: 33.7 ms with four rows, 31.5 with six.
  s.registerRows = hasManyRegisters ? 8 : 6;
  s.registerLanes = 2 * lanes;
  // Zen 4, attention 8 x 2048 x 64, tiles of 128: 88.8 ms, 256: 86.4,
  // 512: 85.4.
  constexpr int64_t kTileStream = 512;
  int64_t bytesOfPlace = bytesOfPanels(), tileStream = kTileStream;
  // Items of 64 and of 128 have the same register tiles (`Kernel::rowTile`).
  constexpr int64_t kTileRows = 64;
  bool isDeep = kTileStream * bytesOfPlace > target.l2Bytes / 2;
  int64_t tileRows = kTileRows;
  // Where products are all that rows share, their panels are longer than any
  // tile: 4096 rows by 4096 x 128 and their eight best, tiles of 64 rows 21.6
  // ms, of 128 20.5, of 256 19.8, of 512 19.4 (`Kernel::rowsOfCore` takes fewer
  // of few).
  bool sharesProductsOnly = stream != kNone && !sumsByColumns();
  bool ownsPanels =
      kTileRows % s.registerRows == 0 && mayOwnPanels(row, stream);
  // Panels of a tile that are half of the second cache would be read from the
  // third: for twice the rows.
  if (kTileRows % s.registerRows == 0)
    tileRows *= sharesProductsOnly ? 4 : isDeep ? 2 : 1;
  // No tile of fewer rows than it has: lists want whole registers of them.
  if (sharesProductsOnly && row != kNone && !ShapedType::isDynamic(extent(row)))
    tileRows = std::clamp(extent(row) / kTileRows * kTileRows, kTileRows,
                          std::max(tileRows, kTileRows));
  if (row != kNone) {
    int64_t tile = rowsSharing(row);
    // Whole groups, or equal parts of one.
    if (tile != kAllRows)
      while (tile > tileRows || rowsSharing(row) % tile)
        --tile;
    s.tile[name(row)] = std::min(tile, tileRows);
  } else if (int any = chooseTileRow(kNone); any != kNone)
    s.tile[name(any)] = 1; // nothing is shared: every row is an item
  if (ownsPanels && isDeep) {
    constexpr int64_t kSegments = 16, kLeastStream = 128;
    while (tileStream > kLeastStream &&
           tileStream * bytesOfPlace > target.l2Bytes / 3)
      tileStream /= 2;
    s.panelBytes = 0;
    s.segments = kSegments;
  }
  if (stream != kNone)
    s.tile[name(stream)] = tileStream;
  if (int64_t few = fewRows(row)) {
    int64_t sums = hasManyRegisters ? 16 : 8;
    s.registerRows = std::min<int64_t>(llvm::bit_floor(uint64_t(few)), 8);
    s.registerLanes = std::min<int64_t>(sums / s.registerRows, 4) * lanes;
    s.prefetch = true;
  }
}

/// Whether groups have eight panels: of floats, and not of sums of which four
/// save slices (`Kernel::panelsOfGroup`).
bool ScheduleChooser::takesLargeGroups(const Schedule &s, int sum) {
  if (llvm::popcount(cascade.indicesOfRole(CascadeOp::Inner)) != 1 ||
      llvm::none_of(cascade.getBody().getOps<ContractOp>(), [](ContractOp op) {
        return isa<FloatType>(op.getResult().getType());
      }))
    return false;
  int64_t length = extent(sum);
  int64_t bytes = 8 * s.registerLanes * int64_t(sizeof(float));
  int64_t steps = llvm::bit_floor(uint64_t(target.l2Bytes / 2 / bytes));
  return ShapedType::isDynamic(length) || length <= steps || length > 2 * steps;
}

/// A contraction without a stream: panels of the operand along the lanes, all
/// that is summed, all rows of an item; the other operand is read where it
/// lies. An item is large enough for a panel to be read many times, and small
/// enough for few rows to give every thread some columns.
void ScheduleChooser::chooseProduct(Schedule &s, int lane, int row) {
  constexpr int64_t kRows = 128, kFewColumns = 128;
  if (row == kNone || lane == kNone)
    return;
  bool makesPanels = false;
  uint64_t inner = cascade.indicesOfRole(CascadeOp::Inner);
  auto has = [&](uint64_t set, int i) { return set >> i & 1; };
  s.pack.clear();
  for (auto read : cascade.getBody().getOps<ReadOp>()) {
    uint64_t set = sets.of(read.getValue());
    if (!(set & inner) || !has(set, lane) || has(set, row))
      continue;
    unsigned number = cast<BlockArgument>(read.getSource()).getArgNumber() -
                      cascade.numIndices();
    makesPanels |= isVarying(cascade, read);
    s.pack.push_back(
        cast<StringAttr>(cascade.getArgNames()[number]).getValue().str());
  }
  // A group of panels that the item makes has 256 columns (`panelsOfGroup`); of
  // few rows half as many are read while what they are made of passes by.
  // Sapphire Rapids, 128 x 4096 x 4096: 22.6 and 23.1 ms.
  constexpr int64_t kManyRows = 257;
  bool hasLargeGroups = makesPanels && isLarge(row, kManyRows) &&
                        takesLargeGroups(s, llvm::countr_zero(inner));
  // Each block of columns rounds the rows of its item again, which takes as
  // long as tiles take to multiply them by some 100 columns.
  const int64_t kColumns = hasPairsInTiles() ? 512
                           : hasLargeGroups  ? 256
                                             : kFewColumns;
  // Equal parts, four or a multiple: of three blocks of 128 one thread of two
  // would have two.
  int64_t columns = extent(lane);
  if (isLarge(lane, kFewColumns + 1) && !ShapedType::isDynamic(columns)) {
    int64_t parts = llvm::alignTo(llvm::divideCeil(columns, kColumns), 4);
    s.tile[name(lane)] =
        llvm::alignTo(llvm::divideCeil(columns, parts), s.registerLanes);
  } else if (isLarge(lane, kColumns + 1)) {
    s.tile[name(lane)] = kColumns;
  }
  s.tile[name(row)] = makesPanels ? rowsOfOwnPanels(s) : kRows;
  // Where the left side moves with the lanes too (channels by themselves) no
  // panel is worth keeping: a few rows at a time, so that it is read in order.
  constexpr int64_t kColumnsInOrder = 4096;
  bool isByItself =
      llvm::any_of(cascade.getBody().getOps<ReadOp>(), [&](ReadOp read) {
        uint64_t set = sets.of(read.getValue());
        return (set & inner) && has(set, lane) && has(set, row);
      });
  if (!isByItself)
    return;
  s.tile[name(row)] = s.registerRows;
  s.tile.erase(name(lane));
  if (isLarge(lane, kColumnsInOrder + 1))
    s.tile[name(lane)] = kColumnsInOrder;
}

/// Whether what an element adds depends on where it stands: tiles may be
/// skipped.
bool ScheduleChooser::comparesPositions(int stream) {
  return llvm::any_of(
      cascade.getBody().getOps<arith::CmpIOp>(), [&](arith::CmpIOp op) {
        uint64_t set = sets.of(op.getLhs()) | sets.of(op.getRhs());
        return op.getLhs().getType().isIndex() && (set >> stream & 1);
      });
}

/// Whether there are sums with a carried index.
bool ScheduleChooser::sumsByColumns() {
  uint64_t carried = cascade.indicesOfRole(CascadeOp::Carried);
  return llvm::any_of(cascade.getBody().getOps<StateOp>(), [&](StateOp state) {
    return !state.isOrdered() && (sets.of(state.getResult(0)) & carried);
  });
}

/// States with a carried index, if all of them are of the last pass.
static int64_t sumsOfLastPass(CascadeOp cascade, const IndexSets &sets) {
  uint64_t carried = cascade.indicesOfRole(CascadeOp::Carried);
  int64_t count = 0;
  for (auto state : cascade.getBody().getOps<StateOp>()) {
    if (state.isOrdered() || !(sets.of(state.getResult(0)) & carried))
      continue;
    if (sets.passOf(state) + 1 != sets.numPasses)
      return 0;
    ++count;
  }
  return count;
}

/// The carried indices that all of them have.
uint64_t ScheduleChooser::placesOfAllSums() {
  uint64_t all = cascade.indicesOfRole(CascadeOp::Carried), shared = all;
  for (auto state : cascade.getBody().getOps<StateOp>())
    if (uint64_t set = sets.of(state.getResult(0)) & all;
        set && !state.isOrdered())
      shared &= set;
  return shared;
}

int64_t refold::sumsTogether(CascadeOp cascade, const IndexSets &sets) {
  int64_t all = sumsOfLastPass(cascade, sets), most = 1;
  uint64_t carried = cascade.indicesOfRole(CascadeOp::Carried);
  for (auto write : cascade.getBody().getOps<WriteOp>()) {
    llvm::SmallDenseMap<uint64_t, int64_t> counts; // by their indices
    llvm::SetVector<Value> values;
    values.insert(write.getValue());
    for (size_t i = 0; i < values.size(); ++i) {
      Operation *op = values[i].getDefiningOp();
      if (auto state = dyn_cast_or_null<StateOp>(op)) {
        uint64_t set = sets.of(state.getResult(0));
        if (set & carried)
          most = std::max(most, ++counts[set]);
      } else if (op) {
        values.insert(op->operand_begin(), op->operand_end());
      }
    }
  }
  return most > 1 ? std::max<int64_t>(all, 1) : 1;
}

/// Adds what every row reads along a carried index, however few rows there are:
/// panels of constants are laid out once for all runs. Whether there are arrays
/// that are others in every run. Zen 5, LayerNorm of 120 x 768 and three
/// products with 768 x 768 as they lie 2.15 ms, in panels 1.77.
bool ScheduleChooser::addSharedPacks(Schedule &s, int row) {
  if (row == kNone)
    return false;
  uint64_t carried = cascade.indicesOfRole(CascadeOp::Carried);
  bool isAny = false;
  for (auto read : cascade.getBody().getOps<ReadOp>()) {
    uint64_t set = sets.of(read.getValue());
    unsigned number = cast<BlockArgument>(read.getSource()).getArgNumber() -
                      cascade.numIndices();
    if (!(set & carried) || (set >> row & 1) ||
        cascade.operandOf(read.getSource()).getType().isIntOrFloat() ||
        cast<ShapedType>(cascade.operandOf(read.getSource()).getType())
                .getRank() < 2)
      continue;
    std::string name =
        cast<StringAttr>(cascade.getArgNames()[number]).getValue().str();
    if (!llvm::is_contained(s.pack, name))
      s.pack.push_back(name);
    isAny |= isVarying(cascade, number);
  }
  return isAny;
}

/// Of parts of up to `most` columns: of 768 by 512 two threads with two tiles
/// of rows would wait for a last one of 512. Zen 5, LayerNorm of 120 x 768 and
/// three products with 768 x 768, two threads, ms: 1.07 so, 0.82 by 384.
static int64_t equalParts(int64_t extent, int64_t most, int64_t lanes) {
  if (ShapedType::isDynamic(extent))
    return most;
  int64_t parts = llvm::divideCeil(extent, most);
  return llvm::alignTo(llvm::divideCeil(extent, parts), lanes);
}

/// A state with a carried index whose term is a product of what rows and lanes
/// have: rows that are one tile are multiplied as a whole, and results are
/// written from registers.
void ScheduleChooser::chooseWholeRows(Schedule &s, int stream) {
  constexpr int64_t kLongest = 4096; // 64 rows of f32: the second cache
  int64_t length = extent(stream);
  if (comparesPositions(stream))
    return;
  if (ShapedType::isDynamic(length))
    s.tile[name(stream)] = kLongest;
  else if (length <= kLongest)
    s.tile[name(stream)] = std::max<int64_t>(length, 1);
  int row = chooseSharedRow(kNone);
  bool makesPanels = addSharedPacks(s, row);
  // Several sums of one nest share the registers of a tile.
  int64_t sums = sumsTogether(cascade, sets);
  int64_t lanes = target.lanes(32);
  if (sums > 1) {
    s.registerLanes =
        std::max(s.registerLanes / sums / lanes, int64_t(1)) * lanes;
    if (sums > 3)
      s.registerRows = std::max<int64_t>(s.registerRows / 2, 1);
  }
  if (makesPanels)
    s.tile[name(row)] = rowsOfOwnPanels(s);
  // Few rows still give every thread some columns. Each block computes the row
  // states again, which is one part in as many as it has columns; it would sum
  // again whole what is over other places.
  constexpr int64_t kColumns = 512;
  uint64_t shared = placesOfAllSums();
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if ((shared >> i & 1) && isLarge(i, kColumns + 1))
      s.tile[name(i)] = equalParts(extent(i), kColumns, s.registerLanes);
}

/// Dense operands of matrix nests whose rows lie far apart and that all rows
/// share: one copy in panels is cheaper than a page per step.
void ScheduleChooser::choosePacks(Schedule &s, int row) {
  constexpr int64_t kFar = 256, kManyRows = 128;
  uint64_t rows = cascade.indicesOfRole(CascadeOp::Row);
  if (row == kNone || !isLarge(row, kManyRows))
    return;
  for (auto read : cascade.getBody().getOps<ReadOp>()) {
    auto type =
        dyn_cast<MemRefType>(cascade.operandOf(read.getSource()).getType());
    if (!type || type.getRank() < 2 ||
        (sets.of(read.getValue()) & (uint64_t(1) << row)))
      continue;
    int64_t width = type.getShape().back();
    // A storage type is also converted once instead of in every product.
    uint64_t nests = cascade.indicesOfRole(CascadeOp::Inner) |
                     cascade.indicesOfRole(CascadeOp::Carried);
    bool isConverted = type.getElementTypeBitWidth() < 32 &&
                       (sets.of(read.getValue()) & nests);
    bool isFar = !(sets.of(read.getValue()) & rows) &&
                 (ShapedType::isDynamic(width) || width >= kFar);
    if (isConverted || isFar)
      s.pack.push_back(
          cast<StringAttr>(
              cascade.getArgNames()[cast<BlockArgument>(read.getSource())
                                        .getArgNumber() -
                                    cascade.numIndices()])
              .getValue()
              .str());
  }
}
