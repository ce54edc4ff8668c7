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
  if (schedule.panelBytes == 0 && schedule.segments <= 1)
    tile = std::min(
        tile, std::max(kRowsOfTile, std::ceil(rows * others / (4.0 * cores))));
  if (!hasNest && laneIndex == lastStream) // as `Kernel::rowTile`
    tile = std::min(tile, std::max(std::ceil(rows / 16.0), rowsSwept));
  work.items = std::max(others * std::ceil(rows / tile), 1.0);
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
