// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The schedule of a cascade from its index sets: which indices have lanes and
// tiles. The numbers were measured on Zen 4 and Zen 5 (docs/targets/cpu.md).
#include "Columns.h"
#include "ScheduleChooser.h"
#include "StepsAlike.h"
#include "refold/Schedule/FewRows.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/AffineExpr.h"

using namespace mlir;
using namespace refold;

bool refold::isVarying(CascadeOp cascade, unsigned input) {
  auto bits = cascade->getAttrOfType<DenseBoolArrayAttr>(kVaryingInputsAttr);
  return bits && input < unsigned(bits.size()) && bits[input];
}
bool refold::isVarying(CascadeOp cascade, ReadOp read) {
  return isVarying(cascade,
                   cast<BlockArgument>(read.getSource()).getArgNumber() -
                       cascade.numIndices());
}

/// The row index that most results, then most reads, move densely with.
int ScheduleChooser::chooseLaneRow() {
  std::vector<int> score(cascade.numIndices(), 0);
  for (auto w : cascade.getBody().getOps<WriteOp>())
    if (int i = denseIndexOf(cascade, w.getMap(), w.getIndices()); i != kNone)
      score[i] += 100;
  for (auto r : cascade.getBody().getOps<ReadOp>())
    if (int i = denseIndexOf(cascade, r.getMap(), r.getIndices()); i != kNone)
      score[i] += 1;
  int best = kNone;
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (!isRole(i, CascadeOp::Row))
      continue;
    if (!isLarge(i, 2))
      score[i] -= 1000;
    if (best == kNone || score[i] >= score[best])
      best = i;
  }
  return best;
}

/// The last row index of so many rows or, if there is none, of more than one.
/// Lists are filled for as many rows at once as there are lanes. Zen 5, the two
/// best of 32 in 1024 x 8 rows: tiles of the eight 1.25 ms, of 16 others 0.16.
/// Without lists it is better to read rows in order.
int ScheduleChooser::chooseTileRow(int except, int64_t wanted) {
  int best = kNone;
  auto choose = [&](int64_t least) {
    for (unsigned i = 0; i < cascade.numIndices(); ++i)
      if (isRole(i, CascadeOp::Row) && int(i) != except &&
          (best == kNone || isLarge(i, least)))
        best = i;
  };
  choose(2);
  if (best != kNone && !isLarge(best, wanted))
    choose(wanted);
  return best;
}

/// The row index along which some rows in a row read one row of the stream
/// (heads that share keys), if nothing else lies along all rows that it lies
/// along, and no row is swept: it is then in the first cache for all but one of
/// them. Emerald Rapids, one thread and two, scores of 32 heads with 8 x 16384
/// keys of 128: 22.3 and 7.7 ms, so 13.3 and 5.6.
int ScheduleChooser::groupedRow(int stream) {
  uint64_t rowSet = cascade.indicesOfRole(CascadeOp::Row);
  auto moves = [&](uint64_t set) { return (set >> stream) & 1; };
  auto isSwept = [&](WriteOp write) {
    return moves(sets.of(write.getValue())) ||
           llvm::is_contained(write.getIndices(),
                              cascade.getBody().getArgument(stream));
  };
  auto reads = cascade.getBody().getOps<ReadOp>();
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (!isRole(i, CascadeOp::Row))
      continue;
    auto isGrouped = [&](ReadOp read) {
      return moves(sets.of(read.getValue())) &&
             stepsAlike(read, cascade.getBody().getArgument(i)) > 1;
    };
    auto shared = llvm::find_if(reads, isGrouped);
    if (shared == reads.end())
      continue;
    uint64_t others =
        sets.of((*shared).getValue()) & rowSet & ~(uint64_t(1) << i);
    bool isAlone = llvm::all_of(reads, [&](ReadOp read) {
      uint64_t set = sets.of(read.getValue());
      return !moves(set) || isGrouped(read) || (others & ~set);
    });
    if (isAlone && llvm::none_of(cascade.getBody().getOps<WriteOp>(), isSwept))
      return int(i);
  }
  return kNone;
}

/// The row index along which most lies that the lanes cross, or none.
int ScheduleChooser::turnedRow(int lane) {
  int best = kNone;
  size_t most = 0;
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (!isRole(i, CascadeOp::Row) || int(i) == lane)
      continue;
    TurnedAccesses turned = turnedAccesses(cascade, sets, lane, i, target);
    size_t count = turned.reads.size() + turned.writes.size();
    if (count > most) {
      most = count;
      best = int(i);
    }
  }
  return best;
}

void ScheduleChooser::chooseElementwise(Schedule &s) {
  constexpr int64_t kItem = 16 * 1024; // elements: some microseconds of work
  constexpr int64_t kTurned = 512;
  int64_t lanes = target.lanes(32);
  s.registerRows = 1;
  s.registerLanes = 4 * lanes;
  int lane = chooseLaneRow();
  if (lane == kNone)
    return;
  s.lanes = name(lane);
  int row = turnedRow(lane);
  if (row == kNone)
    row = chooseTileRow(lane);
  int64_t width = ShapedType::isDynamic(extent(lane)) ? 1024 : extent(lane);
  if (isLarge(lane, kItem + 1))
    s.tile[name(lane)] = kItem;
  if (row != kNone)
    s.tile[name(row)] =
        std::clamp<int64_t>(kItem / std::max<int64_t>(width, 1), 1, 64);
  if (row == kNone)
    return;
  TurnedAccesses turned = turnedAccesses(cascade, sets, lane, row, target);
  if (!turned.any())
    return;
  s.tile[name(row)] = rowsTurned(turned, kTurned, target);
  if (isLarge(lane, kTurned + 1))
    s.tile[name(lane)] = kTurned;
}

/// Rows along the lanes: blocks of columns are items, since there may be few
/// rows. Tiles are low and wide: what is read of a row of the stream at once
/// should be as much as possible of a page, and rows a page apart share the
/// sets of the caches. How high they are follows from shapes alone, since sums
/// are added up tile by tile.
void ScheduleChooser::chooseColumns(Schedule &s, int lane, int row,
                                    int stream) {
  constexpr int64_t kMost = 1024, kWide = 512, kLeast = 256;
  s.registerRows = 1;
  s.registerLanes = 4 * target.lanes(32);
  int64_t blocks = 1;
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (isRole(i, CascadeOp::Row) && !ShapedType::isDynamic(extent(i)))
      blocks *= std::max<int64_t>(extent(i), 1);
  s.tile[name(lane)] =
      ShapedType::isDynamic(extent(lane))
          ? kWide
          : std::clamp<int64_t>(
                llvm::bit_floor(uint64_t(blocks / target.cores)), kLeast,
                kMost);
  s.tile[name(stream)] = isLarge(lane, kWide) ? 64 : 128;
  if (row != kNone)
    s.tile[name(row)] = 1;
}

void ScheduleChooser::chooseRows(Schedule &s, int row, int stream) {
  int64_t lanes = target.lanes(32);
  s.registerRows = 1;
  s.registerLanes = 4 * lanes;
  s.tile[name(stream)] = 1024;
  // Rows of 384 with a sweep, in tiles of 1: 7.3 ms, 2: 7.0, 4: 8.7, 32: 11.5.
  constexpr int64_t kTileElements = 512;
  int64_t length = extent(stream);
  bool hasSweep =
      llvm::any_of(cascade.getBody().getOps<WriteOp>(), [&](WriteOp w) {
        return llvm::is_contained(w.getIndices(),
                                  cascade.getBody().getArgument(stream));
      });
  bool computesMuch =
      llvm::any_of(cascade.getBody().getOps(), [&](Operation &op) {
        return isa<math::MathDialect>(op.getDialect()) &&
               !isa<math::AbsFOp, math::FloorOp, math::CeilOp,
                    math::RoundEvenOp, math::FmaOp>(op) &&
               (sets.of(op.getResult(0)) & (uint64_t(1) << stream));
      });
  s.prefetch = isLarge(stream, 256);
  // What a row of one tile has computed its sweep reads again. Zen 3, softmax
  // 4096 x 4096 on AVX2: 20.4 ms in tiles of 1024, 15.8 in one; with AVX-512 an
  // exponential costs what memory takes for f32, twice what it takes for 16
  // bits: Sapphire Rapids, f16 4.6 and 3.2 ms, bf16 6.5 and 4.5.
  constexpr int64_t kKept = 4096, kFewBits = 32;
  MovedAlong moved = movedAlong(cascade, sets, stream);
  if (hasSweep && computesMuch &&
      (target.vectorRegisters < 32 || moved.bits <= kFewBits) &&
      (ShapedType::isDynamic(length) || length <= kKept))
    s.tile[name(stream)] =
        ShapedType::isDynamic(length) ? kKept : std::max<int64_t>(length, 1);
  // Without a sweep nothing of a row is read again, and the results of a tile
  // are computed with rows along the lanes. Short rows are walked side by side.
  constexpr int64_t kShort = 256;
  if (row != kNone && (!hasSweep || !isLarge(stream, kShort + 1) ||
                       ShapedType::isDynamic(length)))
    s.tile[name(row)] = std::max<int64_t>(lanes, 4);
  else if (row != kNone)
    s.tile[name(row)] =
        length > longestSweptAlone(moved, target).value_or(length)
            ? kRowsSwept
            : std::clamp<int64_t>(kTileElements / length, 1, kRowsSwept);
  if (row == kNone)
    return;
  TurnedAccesses turned = turnedAccesses(cascade, sets, stream, row, target);
  int64_t width = s.tile[name(stream)];
  if (!ShapedType::isDynamic(length))
    width = std::min(width, std::max<int64_t>(length, 1));
  if (turned.any())
    s.tile[name(row)] = rowsTurned(turned, width, target);
}

/// Fewer than eight items of known number: the stream is split as well. Where
/// the number is open, what is usual decides (`splitFewRows` of the driver).
void ScheduleChooser::chooseSegments(Schedule &s, int row, int stream) {
  int64_t items = 1;
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (!isRole(i, CascadeOp::Row))
      continue;
    if (ShapedType::isDynamic(extent(i)))
      return;
    auto it = s.tile.find(name(i));
    int64_t tile = it == s.tile.end() || int(i) != row ? 1 : it->second;
    items *=
        std::min<int64_t>(llvm::divideCeil(extent(i), tile), FewRows::kItems);
  }
  if (items < FewRows::kItems && isLarge(stream, FewRows::kLong))
    s.segments = FewRows::kSegments;
}

Schedule ScheduleChooser::choose() {
  Schedule s;
  s.streamBytes = target.l3Bytes;
  int stream = kNone;
  bool hasInner = false;
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    if (isRole(i, CascadeOp::Stream))
      stream = i;
    hasInner |= isRole(i, CascadeOp::Inner);
  }
  uint64_t carried = cascade.indicesOfRole(CascadeOp::Carried);
  bool hasLists = llvm::any_of(cascade.getBody().getOps<StateOp>(),
                               [](StateOp state) { return state.isOrdered(); });
  bool hasMatrix = hasInner || sumsByColumns();
  if (stream == kNone && !hasMatrix) {
    chooseElementwise(s);
    return s;
  }
  int lane = kNone;
  if (stream == kNone)
    lane = carried ? kNone : chooseLaneRow();
  else if (!hasMatrix)
    lane = columnRowOf(cascade, sets, stream, target);
  if (lane != kNone)
    s.lanes = name(lane);
  int64_t wanted = stream != kNone && hasLists ? target.lanes(32) : 2;
  int row = hasMatrix ? chooseSharedRow(lane) : chooseTileRow(lane, wanted);
  bool areRows = !hasMatrix && lane == kNone;
  if (int grouped = areRows && !hasLists ? groupedRow(stream) : kNone;
      grouped != kNone)
    row = grouped;
  if (int turned = areRows ? turnedRow(stream) : kNone; turned != kNone)
    row = turned;
  if (hasMatrix)
    chooseMatrix(s, row, stream);
  else if (lane != kNone)
    chooseColumns(s, lane, row, stream);
  else
    chooseRows(s, row, stream);
  if (hasMatrix)
    choosePacks(s, row);
  if (hasMatrix && !hasInner && row != kNone)
    chooseWholeRows(s, stream);
  if (hasInner && stream == kNone)
    chooseProduct(s, lane, row);
  if (hasInner && stream != kNone && fewRows(row, rowsAlongSum()) &&
      isDenseAlongSum()) {
    s.innerLanes = true;
    // Keys and values of a tile stay in the second cache. Zen 4, decode 32/8
    // heads of 128, 16384 keys, f32 / bf16: tiles of 512 7.7 to 8.7 / 4.0 ms,
    // of 256 7.5 / 3.6. Where lines come into the first cache that matters
    // less than how often keys and values take turns: Zen 5, 32768 keys, bf16,
    // tiles of 256 3.7 to 4.0 ms, of 512 3.5 to 3.65 (f32: no difference).
    bool isLong = target.asksIntoFirst && readsHalvesAlong(stream);
    s.tile[name(stream)] = isLong ? 512 : 256;
  }
  bool isTurned = stream != kNone && row != kNone && !hasMatrix &&
                  turnedAccesses(cascade, sets, stream, row, target).any();
  if (stream != kNone && s.lanes.empty() && !isTurned)
    chooseSegments(s, row, stream);
  return s;
}

FailureOr<Schedule> refold::chooseSchedule(CascadeOp cascade,
                                           const TargetFacts &target) {
  auto sets = IndexSets::infer(cascade);
  if (failed(sets))
    return failure();
  Schedule s = ScheduleChooser(cascade, *sets, target).choose();
  if (cascade.getSchedule() &&
      failed(overlaySchedule(cascade, *cascade.getSchedule(), s)))
    return failure();
  return s;
}
