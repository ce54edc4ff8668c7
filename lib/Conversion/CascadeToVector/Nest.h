// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_NEST_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_NEST_H

#include "Plan.h"
#include "Spelling.h"

namespace refold::walk {

struct Array;
struct SumsApart;
struct Tile;

/// What a nest sums: `term`, or `sums` of it, over `reduced`.
struct NestSums {
  llvm::SmallVector<unsigned> reduced;
  Node *term = nullptr;
  /// Of a nest that writes complete sums: all that it sums side by side.
  llvm::SmallVector<Sum, 2> sums;
  Binary combine = Binary::AddF;
  mlir::TypedAttr identity;
  const PairPlan *pair = nullptr; ///< of its term
  /// Where only a part of the summed index is added: its first, its length.
  std::optional<std::pair<Ix, Ix>> part;
  const SumsApart *sumsApart = nullptr;
  const StatePlan *keyed = nullptr; ///< at the place of the stream indices
};

/// How long the chains of its additions are.
struct NestChains {
  /// So many sums of a register tile, of 32 bits, are added in short blocks.
  int64_t fewSums = 4;
  bool hasShortBlocks = false; ///< however many they are
  /// All that is summed lies in one loop: it is summed in blocks.
  bool isLong = false;
  bool isOfStream = false; ///< ... of a tile of the stream: shorter ones
};

/// Where what it reads lies, and what it asks for ahead.
struct NestReads {
  bool readsPanels = false;        ///< products; panels are planned for them
  bool inPlace = false;            ///< without panels
  bool isSliced = false;           ///< see `nestSlices`
  llvm::SmallVector<Node *> ahead; ///< reads to ask for ahead
  Ix depthAhead;           ///< so many steps of the sum; 0: bytes behind each
  int64_t bytesAhead = 0;  ///< 0: as many as there are in a few rows
  Ix panelsAhead;          ///< elements behind those of a panel; 0: no panels
  bool asksForAll = false; ///< for every line of panels, a little ahead
};

/// What it begins with and where its results go.
struct NestResults {
  llvm::function_ref<Val(Tile &, int, int)> init;
  llvm::function_ref<void(Tile &, int, int, Val)> sink;
  llvm::SmallVector<Node *> results; ///< what the sink evaluates
  Node *result = nullptr;            ///< the contraction that it computes
  Array *sumsOfTiles = nullptr;      ///< where tiles store sums, if as they are
  bool fillsArray = false; ///< an array of a workspace, which has padding
  bool isAlone = false;    ///< complete sums, which are written
  bool isFinal = false;    ///< a result that no kernel of the program reads
  WritePlan *streamed = nullptr; ///< stored past the caches
};

/// The rows and lanes that it takes at a time.
struct NestBlocks {
  int64_t width = 0;         ///< lanes of a block; 0: of the register tile
  int64_t rows = 0;          ///< of a block; 0: of the register tile
  int64_t unroll = 0;        ///< set by `sizeNest`
  bool splitsLanes = false;  ///< a body for whole blocks of any extent
  bool halvesRows = false;   ///< rows that fill no block: half a block, ...
  bool addsAsHalves = false; ///< ... or one by one, added up as if so
  /// Rows and columns of the register tile whose blocks are taken: an edge
  /// adds up as whole tiles of its rows do.
  int64_t rowsOfBlocks = 1, columnsOfBlocks = 1;
  std::optional<std::pair<Ix, Ix>> window; ///< the first row and the end
  bool isOneBlock = false;                 ///< there are `rows` of them
};

/// A loop nest over the indices `out`, lanes along `lane`.
struct Nest : NestSums, NestChains, NestReads, NestResults, NestBlocks {
  Set out = 0;
  int lane = kNone;
  bool lanesReduced = false; ///< lanes run along the innermost reduced index
  int column = kNone;        ///< lanesReduced: of which several are in work
  bool isApart = false;      ///< ... as many parts of a tile, not neighbours
};

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_NEST_H
