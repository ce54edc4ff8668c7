// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_PLAN_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_PLAN_H

#include "Graph.h"
#include "Spelling.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "refold/Schedule/Schedule.h"

namespace refold::walk {

constexpr int kNone = -1;

/// How an access moves with one index.
struct Along {
  enum Kind {
    Fixed,   ///< not at all
    Unit,    ///< to the next element
    Strided, ///< by `coefficient` times the stride of dimension `dim`
    Computed ///< otherwise: by floordiv, mod, data, or in several dimensions
  };
  Kind kind = Fixed;
  unsigned dim = 0;
  int64_t coefficient = 0;
};

/// An access that takes the same element of each of a few neighbours, as x[n,1]
/// of x[n,3] does along n.
struct PartOfGroup {
  int64_t place = 0, size = 1; ///< elements
  unsigned dims = 0;           ///< that a group has, the last ones
};

/// An element adds to a state only where the carried index is the position of
/// the stream index, as `compare` says.
struct StateKey {
  unsigned carried = 0, stream = 0;
  Node *compare = nullptr;
};

/// A state and how it is worked on.
struct StatePlan {
  enum Form {
    Reduced, ///< one value a row, reduced across the lanes in every tile
    Partial, ///< one value a lane until the pass ends: nobody reads it before
    Matrix,  ///< has a carried index: a nest of its own
    Ordered  ///< the k best, with payloads
  };
  StateOp op;
  unsigned number = 0, pass = 0, level = 0;
  Form form = Reduced;
  Set set = 0;
  Node *term = nullptr;  ///< what one element adds, or its key
  Node *moved = nullptr; ///< the old state at the new pivots
  llvm::SmallVector<Node *> payloads;
  Binary combine = Binary::AddF;
  int lane = kNone; ///< Matrix: the carried index along the lanes
  /// Matrix: each element has one place along these, which alone is touched.
  llvm::SmallVector<StateKey, 1> keys;
  unsigned keyGroup = 0; ///< the first state of the pass that has these keys
  /// Ordered: the rows of a tile fill the lanes, and the list is no longer than
  /// a register (Candidates.cpp).
  bool takesCandidates = false;
  bool isSorted = false; ///< and the candidates are sorted
  /// Reduced: the contraction whose nest finds its lanes (Extremes.cpp).
  Node *gatheredBy = nullptr;
  unsigned guard = 0; ///< of those of its pass, if it has any: its own
  /// A sum of a small number: the number times a count.
  bool isCount = false;
  /// Sums that make this one 0 where the row is one tile: it is a combination
  /// of them that cancels. Empty: it is not known to be.
  llvm::SmallVector<Node *, 2> vanishesWith;
  mlir::Type type() { return op.getResult(0).getType(); }
  bool isList() const { return form == Ordered; }
  Set keySet() const {
    Set set = 0;
    for (const StateKey &key : keys)
      set |= bit(key.carried);
    return set;
  }
};

/// Where `compare` is false every state of the pass adds nothing: nothing
/// happens unless  n < bound + add  (upper), or  n >= bound + add.
struct Condition {
  Node *compare = nullptr;
  bool isUpper = false;
  Node *bound = nullptr;
  int64_t add = 0;
  /// Or only if this greatest element ends above `least` in every row of a
  /// tile: masked elements are finite (the lowest number of a type). Else the
  /// tiles that were left out follow. -1: whatever the elements are.
  int extreme = -1;
  double least = 0.0;
};

/// A pass has nothing to do for rows where `condition` is not `needed`.
struct RowGuard {
  Node *condition = nullptr; ///< i1, without stream index
  bool needed = true;
};

/// What a nest sums, and the node that stands for the complete sum.
struct Sum {
  Node *term = nullptr, *result = nullptr;
};

struct WritePlan {
  WriteOp op;
  Node *value = nullptr;
  Set set = 0;
  int lane = kNone;
  bool isTurned = false; ///< lies along the rows of the tile: Turned.cpp
};

/// Part of the work of one stream tile, in order.
struct Step {
  enum Kind { Contraction, Rows, MatrixState } kind = Contraction;
  Node *contraction = nullptr;
  unsigned state = 0;
  /// Rows: with or without the tiled row index, and with which index along the
  /// lanes: the stream, or a row index that was given the lanes.
  bool hasRow = false;
  bool rowLanes = false;
  unsigned firstLevel = 0, lastLevel = 0;
  /// Rows: of states whose lanes a nest has found, with rows along the lanes,
  /// and the numbers of the next level that these rows have.
  bool isGathered = false;
  llvm::SmallVector<Node *, 2> numbers;
};

/// Extremes on one level of a row step, and on the next one sums about them,
/// which are found in one traversal: a pivot moves where an element is beyond
/// it by more than `slack`, and behind the tile.
struct LazyPivots {
  struct Pivot {
    Node *now = nullptr, *old = nullptr; ///< versions of the same formula
    unsigned state = 0;                  ///< the extreme that it is made of
  };
  llvm::SmallVector<Pivot, 2> pivots;
  unsigned level = 0; ///< of the extremes
  double slack = 0;
};

/// Sums on one level of a row step, and on the next one sums about numbers made
/// of them, in one traversal: about what the tiles before made of them, and
/// moved behind the tile.
struct TrailingPivots {
  struct Pivot {
    Node *now = nullptr, *old = nullptr; ///< versions of the same formula
  };
  llvm::SmallVector<Pivot, 2> pivots;
  unsigned level = 0; ///< of the sums that the pivots are made of
  /// States of lower levels that the transports read.
  llvm::SmallVector<unsigned, 2> added;
  /// A sum of squares about each pivot.
  llvm::SmallVector<unsigned, 2> squares;
};

struct PassPlan {
  llvm::SmallVector<Node *>
      prelude; ///< contractions of what earlier passes left, operands first
  llvm::SmallVector<Condition> conditions;
  llvm::SmallVector<RowGuard> guards; ///< one of them has to hold
  /// Each state of the pass is one that a row step computes, and leaves out
  /// where its own guard does not hold.
  bool hasGuardsApart = false;
  llvm::SmallVector<Node *>
      kept; ///< values that the row steps leave for others
  llvm::SmallVector<Step> steps;
  std::optional<LazyPivots> lazy;
  std::optional<TrailingPivots> trailing;
};

/// A sum of products of two bf16 values, added two at a time: of `own`, in
/// workspace rows dense along the summed index, and of `shared`, a read in
/// panels of pairs.
struct PairPlan {
  /// More rows pay for panels.
  static constexpr int64_t kMostInPlace = 16;
  Node *own = nullptr, *shared = nullptr;
  unsigned index = 0;  ///< that is summed
  unsigned across = 0; ///< that the shared one has beside it
  /// Few rows are multiplied by matrix tiles of what is shared as it lies:
  /// `TilesInPlace.cpp`.
  bool isInPlace = false;
  bool sumsStream = false;
  /// Along which the shared one is dense then.
  unsigned dense() const { return sumsStream ? across : index; }
};

/// A read, or what a cast makes of it, in panels [outer][lane /
/// NR][reduced][NR]. What is outer is bound outside the item: whole dimensions
/// whose subscripts only rows move, and the part that a row index has in a
/// subscript it shares (`h * 32 + d`).
struct PackPlan {
  static constexpr int64_t kBytesOfDot = 4;
  struct Outer {
    unsigned dim = 0;
    int index = kNone;               ///< kNone: the whole dimension
    int64_t divisor = 1, factor = 1; ///< (index floordiv divisor) * factor
  };
  Node *read = nullptr;
  unsigned operand = 0;
  unsigned laneIndex = 0;
  int reducedIndex = kNone;
  Along lane, reduced;
  int64_t group = 1;    ///< elements of the sum that lie behind each other
  bool isMoved = false; ///< bytes, by 128
  llvm::SmallVector<Outer> outer;
  /// More indices that are summed, outermost first: depths of depths.
  struct Depth {
    unsigned index = 0;
    Along along;
  };
  llvm::SmallVector<Depth> depths;
  /// Longer sums read in place: such panels would take 16 MB a thread.
  static constexpr int64_t kDeepestOwn = 32768;
  bool isOwn = false;
  bool inPairs = false; ///< two positions along `reduced` are one element
  /// So many rows need no panels: every reader has another way; 0: one has
  /// none.
  int64_t rowsWithout = kAnyRows;
  llvm::SmallVector<unsigned, 1> openSums; ///< Plan::openSumOf of them
  bool isReadInOrder = true; ///< by few rows, in every reader: `Plan::inOrder`
  static constexpr int64_t kAnyRows = 1 << 20;
  /// What a subscript adds to its dimension in every panel.
  llvm::SmallVector<std::pair<unsigned, int64_t>> constants;
};

/// A term that is a product of two bytes; the packed one has lanes.
struct DotPlan {
  Node *wide = nullptr, *narrow = nullptr;
  bool isWideSigned = false, isNarrowSigned = false;
  /// The target takes unsigned bytes on one side and signed ones on the other;
  /// else it takes any, widened.
  bool isMixed = false;
  bool isMoved() const { return isMixed && isWideSigned == isNarrowSigned; }
};

/// All decisions that no target has a say in.
struct Plan {
  CascadeOp cascade;
  Schedule schedule;
  TargetFacts facts;
  IndexSets sets;
  std::unique_ptr<Graph> graph;
  llvm::SmallVector<int32_t>
      roles; ///< a row index may have been given the lanes
  Set rows = 0, streams = 0, inner = 0, carried = 0;
  int row = kNone;    ///< the row index with a tile
  int stream = kNone; ///< the stream index with a tile: the last
  /// Other streams that the passes walk with it as one, from it outwards.
  llvm::SmallVector<unsigned, 2> flat;
  int rowLane =
      kNone; ///< a row index that runs along the lanes, pivots included
  int column = kNone; ///< a row index along the lanes, pivots or not
  int block = kNone;  ///< the carried index with a tile
  int64_t lanes = 1, tileRows = 1, tileStream = 1, tileBlock = 0;
  int64_t tileSwept = 1; ///< positions of the stream that a sweep takes at once
  int64_t longestWhole = 0; ///< of the rows that may be walked as one tile
  int64_t registerRows = 1, registerLanes = 1, unroll = 1;
  bool hasTail = false; ///< the last stream tile may be partial
  llvm::SmallVector<StatePlan, 0> states;
  llvm::SmallVector<PassPlan, 0> passes;
  llvm::SmallVector<Node *> prologue; ///< contractions that no pass changes
  llvm::SmallVector<Node *> finishContractions, sweepContractions;
  llvm::SmallVector<WritePlan, 0> finishWrites, sweepWrites;
  /// The only contraction, where there is no stream and every write needs one
  /// of its elements: writes then happen in registers.
  Node *product = nullptr;
  /// The states with a carried index, which are summed at once where a row is
  /// one stream tile, so that results are written from registers; empty: there
  /// are none, or somebody else reads one of them.
  llvm::SmallVector<unsigned, 2> wholes;
  /// No result reads several of them: products one after the other, each with
  /// register tiles, panels and slices of its own.
  bool areWholesApart = false;
  /// Reads that lie along the rows of the tile, not along its lanes: turned
  /// register by register before the tile is looked at.
  llvm::SetVector<Node *> turned;
  bool turnsAny() const;
  llvm::MapVector<Node *, DotPlan> dots; ///< by term
  llvm::MapVector<Node *, PackPlan> packs;
  /// By the term that is summed.
  llvm::MapVector<Node *, PairPlan> pairs;
  /// What a contraction reads along its summed index and its rows, if that is
  /// more than a read: computed once an item.
  llvm::MapVector<Node *, unsigned> operands; ///< with the summed index
  /// Contractions that need no panels where rows are few: lanes run along what
  /// is summed. Few rows would be packed for longer than they are multiplied.
  llvm::DenseSet<Node *> direct;
  /// Others that few rows need no panels for: what lies along the lanes is
  /// dense there, and is read in place.
  llvm::DenseSet<Node *> denseAlongLanes;
  static constexpr int64_t kFewRows = kRowsInPlace;
  /// Of those, the ones that read another array in every run: more rows read it
  /// in the order in which it lies.
  llvm::DenseSet<Node *> inOrder;
  /// At most so many rows need no panels of what the contraction reads
  /// (`Kernel::rowsInPlace`); 0: it has no other way. Panels of pairs are
  /// multiplied twice as fast. Zen 4, attention of 16 and 40 rows in bf16: 0.59
  /// and 1.30 ms, along the sum 0.84 and 1.99.
  int64_t rowsWithoutPanels(Node *contraction) {
    bool isInOrder = inOrder.contains(contraction);
    if (denseAlongLanes.contains(contraction) && !isInOrder)
      return kFewRows;
    if (!isInOrder && !direct.contains(contraction))
      return 0;
    if (auto pair = pairs.find(contraction->in[0]); pair != pairs.end())
      return pair->second.isInPlace ? PairPlan::kMostInPlace : kFewRows;
    int64_t most = isInOrder ? rowsInOrder(facts) : kRowsAlongSum;
    int64_t length = extent(llvm::countr_zero(contraction->over));
    return mlir::ShapedType::isDynamic(length)
               ? most
               : std::min(most, rowsAlongSum(length, lanes));
  }
  /// The same of a state.
  int64_t rowsWithoutPanels(const StatePlan &s) {
    auto pair = pairs.find(s.term);
    return pair != pairs.end() && pair->second.isInPlace
               ? PairPlan::kMostInPlace
               : 0;
  }
  /// The index of the sum whose length says how many these are when it is
  /// known; -1: none.
  int openSumOf(Node *contraction) {
    bool isAlong =
        inOrder.contains(contraction) ||
        (direct.contains(contraction) && !pairs.count(contraction->in[0]));
    unsigned index = llvm::countr_zero(contraction->over);
    return isAlong && mlir::ShapedType::isDynamic(extent(index)) ? int(index)
                                                                 : -1;
  }
  /// What few rows read in order they read so many columns at a time.
  /// Wider ones where the machine brings ahead what it sees being read: Zen 3,
  /// 1 x 4096 x 4096, 1 and 2 threads, four parts 6.3 and 3.9 ms, two 4.2 and
  /// 3.0 (the read alone 4.3); 2 to 8 rows alike. Bits do not depend on it.
  int64_t longBlock() const { return facts.vectorBits < 512 ? 2048 : 1024; }
  int64_t longParts() const {
    return facts.vectorBits < 512 && facts.cores <= 2 ? 2 : 4;
  }
  /// Kept values that overwrite the contraction they are made of: nobody reads
  /// it after them.
  llvm::DenseMap<Node *, Node *> inPlace;
  /// What lies in the place of a contraction: all that is made of it.
  llvm::DenseMap<Node *, Node *> stored;
  /// Costly values of the sweep, and the same value in the last pass: one where
  /// a row is a single tile.
  llvm::MapVector<Node *, Node *> reused;
  /// The same but for numbers of the row: one where these are equal, which is
  /// seen when the row is complete (a pivot kept finite, in a row of -inf).
  struct Likely {
    Node *term = nullptr;
    llvm::SmallVector<std::pair<Node *, Node *>, 2> equal;
  };
  llvm::MapVector<Node *, Likely> likely;
  /// The longest rows of which as many as there are lanes are walked side by
  /// side: the lane sums of all of them are reduced together, and what is made
  /// of a row's numbers is computed with rows along the lanes. 0: none are.
  int64_t longestJoined = 0;
  /// Rows lie between the streams (x[h,w,g,c], summed over h, w and c): they
  /// are walked side by side from tile to tile, up to that length.
  bool joinsTiles = false;
  /// The outer stream of which such tiles have `tileDeep` positions, so that
  /// lanes are reduced and sums are moved once for all of them; kNone: one.
  int deep = kNone;
  int64_t tileDeep = 1;
  /// The longest rows of which as many as there are lanes are walked by all
  /// passes, each traversed once, before the next ones. 0: none are.
  int64_t longestGrouped = 0;
  /// Kept values that only later levels of the same row read.
  llvm::DenseSet<Node *> passing;
  /// What the sweep reads of the numbers of a row.
  llvm::SmallVector<Node *> numbers;
  /// The same of results that have more than rows: computed with joined rows
  /// along the lanes before they are written.
  llvm::SmallVector<Node *> finishNumbers;

  /// Some panels at a time, by the item that reads them next, in its
  /// workspace: parts of a line and of a page that lie together are read
  /// together. Zen 4, 16 rows of bytes by 4096 x 4096: one at a time 4.9 ms.
  /// Narrow ones, of several sums at once, are as many as have as many lanes:
  /// Sapphire Rapids, two products of 128 rows by 4096 x 4096, from
  /// memory, 57 ms with four and 54 with eight; from the last cache alike.
  int64_t ownPanels() const {
    constexpr int64_t kPanels = 4, kRegisters = 2;
    if (!hasOwnPanels()) // no page is walked
      return kPanels;
    return kPanels * std::max<int64_t>(kRegisters * lanes / registerLanes, 1);
  }
  /// Panels of a group, `ownPanels` where fewer save slices.
  int64_t mostPanels() const { return 2 * ownPanels(); }

  /// Phases that lay out panels for all items.
  unsigned numPackPhases() const {
    return llvm::count_if(packs, [](auto &pack) { return !pack.second.isOwn; });
  }
  bool hasOwnPanels() const { return numPackPhases() < packs.size(); }
  /// Whether items lay out what a tile of the stream is multiplied by.
  bool hasPanelsOfTiles() const {
    return schedule.panelBytes == 0 && !product && wholes.empty() &&
           row != kNone && stream != kNone;
  }
  bool hasRow(Set set) const { return row != kNone && (set & bit(row)); }
  /// Whether sums of products of pairs or of bytes are left to matrix tiles,
  /// whose rows hold as many sums as a register.
  bool usesTiles() const;
  /// Whether tiles store the sums of the contraction, no registers.
  bool leavesTiles(Node *n) const;
  /// Whether `n` is kept to be read in pairs.
  bool isPaired(Node *n) const {
    return llvm::any_of(pairs, [&](auto &p) { return p.second.own == n; });
  }
  bool hasStream(Set set) const {
    return stream != kNone && (set & bit(stream));
  }
  /// Row states and one stream index only: a row that fits in one tile is
  /// walked without transports.
  bool hasShortRows() const;
  bool hasMatrixStates() const;
  /// Rows share operands of contractions, and no state has a carried index.
  bool sharesProductsOnly() const;
  /// Row states only, whatever the stream indices.
  bool hasOnlyRows() const;
  /// Whether the tiled carried index is one of sums only that a whole row
  /// writes from registers. Arrays over it have room for `tileBlock` places,
  /// and only such sums leave theirs alone: then a block may have more.
  bool hasBlocksOfResults() const;
  /// Whether the rows of a tile fill registers.
  bool mayJoin() const;
  /// Whether a sweep reads a state of all rows but as part of a row's number.
  bool sweepReadsShared() const;
  /// The longest rows that are written before the next one is begun, and that
  /// are swept one by one (`longestWrittenFirst`, `longestSweptAlone`); none:
  /// all are.
  std::optional<int64_t> longestWrittenFirst() const;
  std::optional<int64_t> longestSweptAlone() const;
  /// Places of a row that are written before those of the next are read.
  int64_t tileBeside() const {
    constexpr int64_t kPlaces = 1024;
    return tileStream % kPlaces ? tileStream : kPlaces;
  }
  /// Whether rows lie along the lanes, and the stream is walked step by step:
  /// what is made of a row's numbers would be made anew in every step.
  bool hasColumns() const { return column != kNone && stream != kNone; }
  int64_t extent(unsigned i) { return cascade.getExtents()[i]; }
  Along along(Node *read, unsigned index);
  std::optional<PartOfGroup> partOfGroup(Node *read, unsigned index);
  Along along(WritePlan &write, unsigned index);
  /// The index of the set along which accesses of `root` are dense, of those in
  /// `candidates`; the last one where none or several are.
  int chooseLane(Node *root, Set candidates);
  /// The lane index of the nest that fills the buffer of a contraction.
  int laneOf(Node *contraction);
  std::string describe();
};

/// A copy of a cascade on tensors, on memrefs, alone in a function: plans are
/// made of such.
mlir::OwningOpRef<mlir::func::FuncOp> copyOnMemrefs(CascadeOp cascade);
/// Errors are emitted on the op.
mlir::FailureOr<std::unique_ptr<Plan>> makePlan(CascadeOp cascade,
                                                const TargetFacts &target);

/// Masks.cpp: the conditions of pass `pass`.
void findConditions(Plan &plan, unsigned pass);
/// Of the positions of the stream, the part that conditions leave to the pass
/// that walks most of them.
double walkedShare(Plan &plan, llvm::ArrayRef<double> extents);
/// Masks.cpp: the keys of all states.
void findKeys(Plan &plan);
/// RowGuards.cpp: the guards of pass `pass`.
void findRowGuards(Plan &plan, unsigned pass);
/// Nans.cpp: whether `max` (or `min`) number `state` may drop a NaN because
/// every reader is NaN anyway.
bool mayDropNan(Plan &plan, unsigned state);
/// PlanPacks.cpp: a function of many instructions.
bool isCostly(Node *n);
/// The neutral element, as a double where that is exact.
mlir::TypedAttr identityOf(Reducer reducer, mlir::Type type);

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_PLAN_H
