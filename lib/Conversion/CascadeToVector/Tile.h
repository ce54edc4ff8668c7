// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where values are: arrays of the workspace, and registers in work.
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_TILE_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_TILE_H

#include "Plan.h"
#include "Spelling.h"

#include <map>

namespace refold::walk {

/// A value kept in a workspace: a dense array over the positions inside a tile
/// of some indices.
struct Array {
  struct Dim {
    unsigned index;
    Ix stride;
  };
  Buffer buffer;
  llvm::SmallVector<Dim, 4> dims;
  bool isWide = false;  ///< an entry is a register: one value a lane
  bool isOfRow = false; ///< read only while the row that left it is in work
  Ix count;             ///< elements of one segment's part
  Buffer pairs;         ///< of bf16: the same memory, two elements at a time
  explicit operator bool() const { return bool(buffer); }
};

/// Sums of a tile that is read in parts side by side: those of the chain in
/// work, and those of the chains before it where there are several. Of a tile
/// that is read in order: those of the places before.
struct SumsApart {
  Array part;
  std::optional<Array> totals;
  bool isInOrder = false;
};

/// Registers in work: some rows times some columns. A column is a register
/// along the lane index, or one position of `column` where that is another
/// index. Each index has a position relative to its tile (`Kernel::base`).
struct TileShape {
  llvm::SmallVector<Ix, 8> local; ///< other than row, lane and column
  llvm::SmallVector<Ix, 8> rowLocal{Ix(0)};
  int lane = kNone, column = kNone;
  llvm::SmallVector<Ix, 8> laneLocal, columnLocal;
  std::optional<Ix> laneLimit; ///< lanes from here on are outside
  int reduced = kNone;         ///< the index of the innermost loop
  std::optional<Ix> panel;     ///< packed reads: the panel and the lane in it
  Ix inPanel, ownPanel;        ///< the panel of those that the item has made
  /// Matrix tiles have summed up to `depth`; the first row is their `row`-th.
  struct Tiled {
    Ix row, depth;
  };
  std::optional<Tiled> tiled;
  const PassPlan *holding = nullptr; ///< whose conditions are known to hold
  int side = 0;                      ///< merging: which of two sets of states
  const StatePlan *keyed = nullptr;  ///< the state whose place is in work
  /// Exponentials may err by a part of their exponent: the terms of a sum.
  bool isCoarse = false;
  /// And by 2^-18: what is made of them is rounded to 16 bits.
  bool isRounded = false;
  int64_t numColumns() const {
    size_t count = column == kNone ? laneLocal.size() : columnLocal.size();
    return count ? int64_t(count) : 1;
  }
};

struct Tile : TileShape {
  using Key = std::tuple<Node *, int, int>;

  explicit Tile(unsigned numIndices) { local.resize(numIndices); }
  /// A tile inside `outer`: finds what that one has evaluated.
  explicit Tile(Tile *outer) : TileShape(*outer), outer(outer) {}

  Tile *outer = nullptr;
  std::map<Key, Val> memo;
};

} // namespace refold::walk

#endif
