// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Independent parts of a kernel, and the rows that these have room for.
#include "CascadeCounter.h"

#include <cmath>

using namespace mlir;
using namespace refold;

/// Registers at the end of a row: blocks have four.
double CascadeCounter::tailOf(unsigned index) {
  double block = 4.0 * lanes;
  return std::ceil(
      (extents[index] - std::floor(extents[index] / block) * block) / lanes);
}

/// Rows of an item where the schedule says so, else one.
double CascadeCounter::rowsOfItem(unsigned index) {
  auto it = schedule.tile.find(cascade.indexName(index).str());
  return it == schedule.tile.end() ? 1.0 : double(it->second);
}

double CascadeCounter::tileCount() {
  double count = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    count *= rowSet & bit(i) ? std::ceil(extents[i] / rowsOfItem(i)) : 1.0;
  return std::max(count, 1.0);
}

/// Whether a product by itself lays out what its rows share: panels of
/// constants lie ready.
bool CascadeCounter::makesPanels() {
  uint64_t inner = cascade.indicesOfRole(CascadeOp::Inner), tiled = 0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if ((rowSet & bit(i)) && int(i) != laneIndex && rowsOfItem(i) > 1.0)
      tiled |= bit(i);
  return laneIndex >= 0 &&
         llvm::any_of(cascade.getBody().getOps<ReadOp>(), [&](ReadOp read) {
           uint64_t set = sets.of(read.getValue());
           return (set & inner) && (set & bit(unsigned(laneIndex))) &&
                  (tiled & ~set) && isVarying(cascade, read);
         });
}

/// How many times as many blocks of columns as the schedule says a product by
/// itself has that lays out its own panels: `Kernel::blockOfProduct`.
double CascadeCounter::moreColumns(double tiles) {
  if (!hasNest || stream || laneIndex < 0 || !(rowSet & bit(laneIndex)) ||
      !ShapedType::isDynamic(cascade.getExtents()[unsigned(laneIndex)]) ||
      !makesPanels())
    return 1.0;
  double extent = extents[laneIndex], size = rowsOfItem(laneIndex);
  auto step = static_cast<double>(schedule.registerLanes);
  double said = std::ceil(extent / size);
  double blocks =
      std::max(said, std::ceil(static_cast<double>(target.cores) / tiles));
  double width = std::ceil(std::ceil(extent / blocks) / step) * step;
  return std::max(std::ceil(extent / width), 1.0) / std::max(said, 1.0);
}

/// Whether one of these indices is worked on in blocks.
bool CascadeCounter::hasBlocks(uint64_t set) {
  for (unsigned i = 0; i < extents.size(); ++i)
    if ((set & bit(i)) && rowsOfItem(i) > 1.0)
      return true;
  return false;
}

/// Row tiles times rows beside them times, of sums with a carried index, blocks
/// of columns: see `ItemsOfPanels`.
void CascadeCounter::countItems() {
  double others = static_cast<double>(schedule.segments);
  double rows = 1.0, tile = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i) {
    double size = rowsOfItem(i);
    if (stream ? int(i) == tiledRow() : size > 1.0 && int(i) != laneIndex)
      std::tie(rows, tile) = std::tie(extents[i], size);
    else if (rowSet & bit(i))
      others *= std::ceil(extents[i] / size);
  }
  uint64_t carried = 0, inner = cascade.indicesOfRole(CascadeOp::Inner);
  for (auto state : cascade.getBody().getOps<StateOp>())
    carried |= state.isOrdered() ? 0 : sets.of(state.getResult(0));
  carried &= cascade.indicesOfRole(CascadeOp::Carried);
  auto cores = static_cast<double>(target.cores);
  if (hasNest && !(inner && carried)) {
    double wanted = stream ? cores : cores * ItemsOfPanels::kOfCore;
    double least = double(inner && stream ? schedule.registerRows
                                          : ItemsOfPanels::kLeastRows);
    tile = std::min(tile, std::max(least, std::ceil(rows * others / wanted)));
  }
  constexpr double kRowsOfTile = 64.0; // as `Kernel::rowsOfTiles`
  // As `Kernel::rowTile` has sums of products, whose tiles are whole ones.
  if (inner && carried && schedule.panelBytes > 0 && !hasBlocks(carried) &&
      std::fmod(tile, kRowsOfTile) == 0.0)
    tile = std::min(tile,
                    std::max(1.0, std::ceil(std::ceil(rows * others / cores) /
                                            kRowsOfTile)) *
                        kRowsOfTile);
  if (schedule.panelBytes == 0 && schedule.segments <= 1)
    tile = std::min(
        tile, std::max(kRowsOfTile, std::ceil(rows * others / (4.0 * cores))));
  if (!hasNest && laneIndex == lastStream) // as `Kernel::rowTile`
    tile = std::min(tile, std::max(std::ceil(rows / 16.0), rowsSwept));
  double tiles = std::ceil(rows / tile);
  work.items = std::max(others * tiles * moreColumns(tiles), 1.0);
  if (rows > tile)
    work.fullShare = rows / (std::ceil(rows / tile) * tile);
  if (!hasNest || inner || !carried)
    return;
  double blocks = 1.0, columns = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if ((carried & bit(i)) && rowsOfItem(i) > 1.0) {
      blocks *= std::ceil(extents[i] / rowsOfItem(i));
      columns *= extents[i];
    }
  bool areMany = rows * columns >= double(ItemsOfPanels::kManyResults) * cores;
  double wanted =
      areMany ? cores : double(ItemsOfPanels::withBlocks(target.cores));
  blocks =
      std::clamp(std::ceil(wanted / work.items), 1.0, std::max(blocks, 1.0));
  // What rows have in common is computed again for each of them.
  work.visits *= blocks;
  work.tails *= blocks;
  work.stream.add(OperationCounts(work.stream), blocks - 1.0);
  countBlocks(blocks);
  work.items *= blocks;
}
