// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands and results that lie along the rows of a tile, not along its lanes.
#include "Columns.h"
#include "refold/Schedule/Schedule.h"

using namespace mlir;
using namespace refold;

/// Whether an access that the indices of `allowed` alone move lies along `row`
/// and moves with `lane` too.
static bool isTurned(CascadeOp cascade, const IndexSets &sets, AffineMap map,
                     ValueRange indices, Type element, uint64_t allowed,
                     unsigned lane, unsigned row) {
  auto bit = [](unsigned i) { return uint64_t(1) << i; };
  uint64_t set = 0;
  unsigned withRow = 0;
  for (Value index : indices) {
    auto arg = dyn_cast<BlockArgument>(index);
    if (!arg || arg.getArgNumber() >= cascade.numIndices())
      return false;
    set |= bit(arg.getArgNumber());
  }
  for (AffineExpr e : map.getResults())
    withRow += llvm::any_of(llvm::enumerate(indices), [&](auto entry) {
      return (sets.of(entry.value()) & bit(row)) &&
             e.isFunctionOfDim(unsigned(entry.index()));
    });
  return element.isIntOrFloat() && (set & bit(lane)) && (set & bit(row)) &&
         !(set & ~(allowed | bit(lane))) && withRow == 1 &&
         denseIndexOf(cascade, map, indices) == int(row);
}

TurnedAccesses refold::turnedAccesses(CascadeOp cascade, const IndexSets &sets,
                                      unsigned lane, unsigned row,
                                      const TargetFacts &target) {
  TurnedAccesses turned;
  for (unsigned i : {lane, row}) {
    int64_t extent = cascade.getExtents()[i];
    if (!ShapedType::isDynamic(extent) && extent < target.lanes(32) / 2)
      return turned;
  }
  uint64_t allowed = cascade.indicesOfRole(CascadeOp::Row) |
                     cascade.indicesOfRole(CascadeOp::Stream);
  for (auto read : cascade.getBody().getOps<ReadOp>())
    if (isTurned(cascade, sets, read.getMap(), read.getIndices(),
                 read.getValue().getType(), allowed, lane, row))
      turned.reads.push_back(read);
  for (auto write : cascade.getBody().getOps<WriteOp>())
    if (isTurned(cascade, sets, write.getMap(), write.getIndices(),
                 write.getValue().getType(), allowed, lane, row))
      turned.writes.push_back(write);
  return turned;
}

int64_t refold::rowsTurned(const TurnedAccesses &turned, int64_t width,
                           const TargetFacts &target) {
  constexpr int64_t kBytes = 2 * 64;
  int64_t lanes = target.lanes(32), all = 0, narrowest = kBytes;
  auto add = [&](Type type) {
    int64_t bytes = std::max<int64_t>(type.getIntOrFloatBitWidth() / 8, 1);
    narrowest = std::min(narrowest, bytes);
    all += bytes;
  };
  for (ReadOp read : turned.reads)
    add(read.getValue().getType());
  for (WriteOp write : turned.writes)
    add(write.getValue().getType());
  int64_t held = target.l2Bytes / 2 / std::max<int64_t>(all * width, 1);
  return std::clamp(std::min(kBytes / narrowest, held) / lanes * lanes, lanes,
                    std::max(lanes, kBytes));
}
