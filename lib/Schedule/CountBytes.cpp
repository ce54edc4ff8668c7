// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is read again, and what is read in between: where that fits decides from
// which cache it comes.
#include "CascadeCounter.h"
#include "StepsAlike.h"

#include <cmath>
#include <limits>

using namespace mlir;
using namespace refold;

static double widthOf(Type type) {
  return type.isIntOrFloat() ? type.getIntOrFloatBitWidth() / 8.0 : 4.0;
}

/// Reads of later passes that an earlier one has made: what a row reads lies
/// in between.
void CascadeCounter::countAgain(const OpSet &first, const OpSet &later) {
  KernelWork::Reread again;
  for (Operation *op : later) {
    auto read = dyn_cast<ReadOp>(op);
    uint64_t set = read ? sets.of(read.getValue()) : 0;
    if (!(set & stream) || !first.contains(op))
      continue;
    double width = widthOf(read.getValue().getType());
    again.bytes += elements(set) * width;
    again.between +=
        elements(set & ~rowSet) * width * (beginsNextRow() ? 2.0 : rowsSwept);
  }
  if (again.bytes > 0.0)
    work.rereads.push_back(again);
}

/// Blocks of columns read again what rows have along the stream; in between
/// lies all of it, and what a block is multiplied by.
void CascadeCounter::countBlocks(double blocks) {
  double ofRows = 0.0, ofColumns = 0.0;
  for (auto read : cascade.getBody().getOps<ReadOp>()) {
    uint64_t set = sets.of(read.getValue());
    if (set & stream)
      (set & carried ? ofColumns : ofRows) +=
          elements(set) * widthOf(read.getValue().getType());
  }
  if (blocks > 1.0)
    work.rereads.push_back(
        {(blocks - 1.0) * ofRows, ofRows + ofColumns / blocks});
}

/// Whether the next row is begun while one is written: they share what they
/// read in common, no others do.
bool CascadeCounter::beginsNextRow() {
  return rowsSwept > 1.0 &&
         longestWrittenFirst(movedAlong(cascade, sets, lastStream), target);
}

/// Rows of an item that are so long that they are not walked one by one.
double CascadeCounter::rowsOfSweep() {
  if (hasNest || tiledRow() < 0 || lastStream < 0 || stream != bit(lastStream))
    return 1.0;
  MovedAlong moved = movedAlong(cascade, sets, lastStream);
  auto longest = longestWrittenFirst(moved, target);
  if (!longest)
    longest = longestSweptAlone(moved, target);
  double each = std::ceil(elements(rowSet) / double(target.cores));
  return longest && extents[lastStream] > double(*longest)
             ? std::clamp(each, 1.0, rowsOfItem(tiledRow()))
             : 1.0;
}

/// What lies along the rows of a tile is turned through an array of the
/// workspace: written there and read again, from the cache that holds it.
void CascadeCounter::countTurned() {
  if (laneIndex < 0 || schedule.segments > 1 ||
      (stream && laneIndex != lastStream))
    return;
  for (unsigned i = 0; i < extents.size(); ++i) {
    if (!(rowSet & bit(i)) || int(i) == laneIndex || rowsOfItem(i) <= 1.0)
      continue;
    TurnedAccesses turned =
        turnedAccesses(cascade, sets, unsigned(laneIndex), i, target);
    // Lines that are read pages apart come late. Sapphire Rapids, softmax 4096
    // x 4096 of a transposed operand 9.3 ms, into a transposed result 7.9.
    constexpr double kRead = 1.4, kWritten = 1.0;
    auto add = [&](Value value, ValueRange indices, double times) {
      uint64_t set = 0;
      for (Value index : indices)
        set |= sets.of(index);
      double width = widthOf(value.getType());
      work.turned += times * elements(set);
      work.rereads.push_back(
          {2.0 * elements(set) * width,
           tileOf(unsigned(laneIndex)) * rowsOfItem(i) * width});
    };
    for (ReadOp read : turned.reads)
      add(read.getValue(), read.getIndices(), kRead);
    for (WriteOp write : turned.writes)
      add(write.getValue(), write.getIndices(), kWritten);
  }
}

/// Rows walked one after the other read what a row index does not move once
/// for each of its steps: all that the indices within it move lies in between.
void CascadeCounter::countRows(const OpSet &ops) {
  for (Operation *op : ops) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      continue;
    uint64_t set = sets.of(read.getValue());
    double width = widthOf(read.getValue().getType()), times = 1.0;
    for (unsigned i = extents.size(); i-- > 0;) {
      if (!(rowSet & bit(i)) || extents[i] <= 1.0)
        continue;
      if (set & bit(i)) {
        double alike =
            std::min(double(stepsAlike(read, cascade.getBody().getArgument(i))),
                     extents[i]);
        // Rows of a tile follow each other.
        uint64_t within = int(i) == tiledRow() && tileOf(i) >= alike
                              ? ~rowSet
                              : ~(bit(i) | (bit(i) - 1)) | ~rowSet;
        if (alike > 1.0)
          work.rereads.push_back(
              {elements(set) * width * times * (alike - 1.0) / alike,
               elements(set & within) * width});
        continue;
      }
      uint64_t within = ~(bit(i) | (bit(i) - 1)) | ~rowSet;
      double between = elements(set & within) * width;
      double visits =
          std::ceil(extents[i] / (beginsNextRow() ? 1.0 : rowsSwept));
      if (between * times > 0.0)
        work.rereads.push_back(
            {elements(set) * width * times * (visits - 1.0), between});
      times *= visits;
    }
  }
}
