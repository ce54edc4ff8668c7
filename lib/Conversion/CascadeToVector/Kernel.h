// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_KERNEL_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_KERNEL_H

#include "Ahead.h"
#include "Nest.h"
#include "Plan.h"
#include "Spelling.h"
#include "Tile.h"

namespace refold::walk {

/// Emits the functions of one kernel: the plan says what, the spelling how.
class Kernel {
public:
  Kernel(Plan &plan, Spelling &to) : plan(plan), to(to) { findFlushed(); }
  /// Number of phases emitted.
  unsigned emit();

private:
  // Items.cpp: functions, extents, loops over items.
  void readExtents();
  Ix findExtent(unsigned index);
  void emitShape();
  void emitMain(unsigned phase);
  void eachItem(unsigned phase, int64_t step,
                llvm::function_ref<void(Ix)> body);
  Ix rowTile();
  Ix rowsOfCore(int64_t least, int64_t itemsOfCore = 1);
  Ix rowsOfTiles(int64_t least);
  static constexpr int64_t kPartsOfRows = 2;
  bool mayPartRows();
  Ix rowsOfParts();
  void partRows();
  bool multipliesByOwnPanels() {
    return plan.hasOwnPanels() && (plan.product || !plan.wholes.empty());
  }
  Ix rowsOfOwnPanels();
  Ix hasWholeRows();
  Ix blockOfWholeRows();
  Ix blockOfProduct();
  Ix blockTile();
  Ix mainItems();
  Ix itemsOfRows();
  void bindItem(Ix item);
  void walkItem();
  void walkTile();
  bool walksRowByRow();
  void rowByRow(llvm::function_ref<void()> body);
  enum class RowWalk {
    InTiles,    ///< from tile to tile of the stream
    Whole,      ///< the stream is one tile
    Joined,     ///< the same, as many rows at a time as there are lanes
    JoinedTiles ///< from tile to tile, so many rows at a time
  };
  void walkRows(RowWalk kind);
  void passesOfGroups();
  void walkPasses();
  void walkWhole();
  void startGuarded(unsigned pass);
  void computeNumbers(llvm::ArrayRef<Node *> numbers);
  void sweepWhole();
  Ix span(unsigned index);
  Ix capacity(unsigned index, bool isLane);
  Ix rangeOf(unsigned index);

  // Workspace.cpp: where arrays lie.
  void layOut(bool isDry);
  Buffer allocate(bool isShared, mlir::Type element, Ix count,
                  Buffer *pairs = nullptr);
  Array makeArray(Set set, mlir::Type element, int lane, int64_t laneCount = 0,
                  bool isState = false, int64_t least = 0,
                  bool isPaired = false);
  void layOutState(StatePlan &s);

  // Evaluate.cpp.
  Tile::Key keyOf(Tile &t, Node *n, int r, int c);
  Val eval(Tile &t, Node *n, int r, int c);
  Val evalFresh(Tile &t, Node *n, int r, int c);
  Val evalElem(Tile &t, Node *n, int r, int c);
  Val evalState(Tile &t, Node *n, int r, int c);
  std::optional<bool> known(Tile &t, Node *n);
  Ix localAt(Tile &t, unsigned index, int r, int c);
  Ix positionAt(Tile &t, unsigned index, int r, int c);
  Val accumulate(Tile &t, Binary kind, Node *term, Val acc, int r, int c);
  /// Evaluates the parts of `root` that do not vary with `varying`, so that a
  /// loop over those indices finds them.
  void preload(Tile &t, Node *root, Set varying);
  Val maskOf(Tile &t, int c);
  Val identity(StatePlan &s);

  // Access.cpp.
  Val readOperand(Tile &t, Node *n, int r, int c);
  Val readPanel(Tile &t, Node *n, int r, int c);
  Ix panelOffset(Tile &t, Node *value, Ix depth, int r, int c);
  Val halfOf(Tile &t, Node *n, int r, int c);
  Ix panelOffset(Tile &t, Node *value, int r, int c);
  Val readArray(Tile &t, const Array &a, int r, int c);
  void writeArray(Tile &t, const Array &a, int r, int c, Val v);
  Ix offsetIn(Tile &t, const Array &a, int r, int c);
  Ix subscript(Tile &t, mlir::AffineExpr e, llvm::ArrayRef<Ix> dims);
  Val wideSubscript(Tile &t, mlir::AffineExpr e, llvm::ArrayRef<Node *> in,
                    int r, int c);
  Ix offsetOf(Tile &t, Node *read, int r, int c);
  Ix targetOf(Tile &t, WritePlan &w, int r, int c);
  void storeWrite(Tile &t, WritePlan &w, int r, int c, Val v,
                  bool isStreamed = false);

  // Prefetch.cpp.
  Ahead readsToPrefetch(llvm::ArrayRef<StatePlan *> states, bool isInCache);
  unsigned numberOfOperand(Node *read), numberOfTarget(WritePlan &w);
  Buffer operandOfRead(Node *read), targetBuffer(WritePlan &w);
  void prefetchAhead(Tile &t, const Ahead &ahead, int c);
  void prefetchAt(Tile &there, Node *n, int c);
  llvm::SmallVector<Node *> operandsToPrefetch(const Nest &nest);
  void prefetchOperands(const Nest &nest, Tile &t);
  int64_t stepsInOrder(const Nest &nest, const Tile &t);
  bool prefetchInOrder(const Nest &nest, Tile &t, Node *n);
  llvm::SmallVector<Node *> readyPanels(const Nest &nest);
  llvm::SmallVector<Node *> panelsInBlocks(const Nest &nest);
  Ix panelsAhead(const Nest &nest, Ix row, Ix first, Ix end);
  void prefetchPanels(const Nest &nest, Tile &t);
  void prefetchResults(Tile &t, int c);
  Ix rowsAhead(WritePlan &w);
  llvm::SmallVector<Node *> readsAlongRow(WritePlan &w, bool isOfRow);
  llvm::SmallVector<Node *> readsOfNextRow(WritePlan &w);
  bool passAsksForNextRow();
  Ix bytesWithNextRow(WritePlan &w);
  Ix isNextBeyondFirst();
  void writeStreamed(WritePlan &w);
  void prefetchNextRow(Tile &t, WritePlan &w, int c);

  // Nests.cpp, Sums.cpp.
  using Values = Spelling::Values;
  void emitNest(Nest &nest);
  void nestLanes(Nest &nest, Tile &t);
  void nestBlocks(Nest &nest, Tile &t, Ix first, Ix end);
  void nestPoints(Nest &nest, Tile &t);
  void nestSums(Nest &nest, Tile &t);
  void nestStreamed(Nest &nest, Tile &t);
  static int64_t rowsBelow(int64_t rows);
  void nestRows(Nest &nest, Tile &t);
  void nestBody(Nest &nest, Tile &t, int64_t numRows);
  Values reduceLoops(Nest &nest, Tile &t, unsigned depth, Values acc);
  int64_t blockOfSum(const Nest &nest, int64_t rowsOfTile);
  bool hasTurnedProduct(const Nest &nest);
  Ix hasShorterBlocks(const Nest &nest, int64_t block);
  Values reduceInBlocks(Nest &nest, Ix range, int64_t block, bool isFirst,
                        Values acc,
                        llvm::function_ref<Values(Ix, Values)> step);
  Values reducePart(const Nest &nest, Ix range, Values acc,
                    llvm::function_ref<Values(Ix, Values)> step);
  const PairPlan *pairOf(Node *term);
  const Array &ownOf(const PairPlan &pair);
  Ix ownAt(const PairPlan &pair, Tile &t, int r);
  Ix sharedAt(const PairPlan &pair, Tile &t, Ix k, int c);
  Values addPairs(Nest &nest, Tile &t, Ix k, Values acc);
  void storeSums(Nest &nest, Tile &t, llvm::ArrayRef<Val> acc);
  Values reduceStep(Nest &nest, Tile &t, Values acc);
  Values reduceAlongLanes(Nest &nest, Tile &t, Values acc);
  Values reduceExtreme(const Nest &nest, Ix range, int64_t parts, Values acc,
                       llvm::function_ref<Values(Ix, Values)> step);
  Values loopUnrolled(Ix hi, int64_t unroll, Values init,
                      llvm::function_ref<Values(Ix, Values)> step);

  // Shortcuts.cpp.
  /// What is cheaper in nearly every row.
  struct Shortcuts {
    llvm::SmallVector<Node *> quotients; ///< by a number of the row
    llvm::SmallVector<Node *> kept;      ///< of `Plan::likely`
    bool isCoarse = false; ///< exponentials of the row, 1 at its extreme
    explicit operator bool() const {
      return !quotients.empty() || !kept.empty();
    }
  };
  Shortcuts shortcutsOf(Nest &nest);
  void findQuotients(Nest &nest, const NodeSet &all, Shortcuts &found);
  bool isShareOfRow(Node *value);
  bool sweepsShares();
  Val hasReciprocal(Tile &t, Node *divisor);
  Val mayTake(const Shortcuts &shortcuts, Tile &t);
  void nestShortcuts(Nest &nest, Tile &t, const Shortcuts &shortcuts);
  /// Whether a quotient's divisor divides many elements before it changes. A
  /// quotient has one form wherever it is computed: what is more than its own
  /// maximum by one bit may be anything as an exponential.
  bool isByNumber(Node *quotient);

  // Flush.cpp.
  void findFlushed();

  // SmallPowers.cpp.
  void findSmallPowers(const NodeSet &all);
  bool hasSmallPowers(unsigned pass, const Step &step);
  bool flushesIn(unsigned pass);
  void flushedStep(unsigned pass, Step &step);
  void lookAtFactors(unsigned pass);
  void walkPass(unsigned pass, Ix lo, Ix hi);

  // Contractions.cpp.
  void prologue();
  void contraction(Node *n);
  void contractionAlong(Node *n, int lane, bool inPlace = false);
  void matrixState(StatePlan &s);

  // Writes.cpp.
  bool leavesProgram(WritePlan &w);
  void writeNest(WritePlan &w);
  void writeValues(WritePlan &w, bool isStreamed);
  Ix bytesOf(mlir::Type element, Set set), bytesToStream(WritePlan &w);
  void writeRows(WritePlan &w);
  bool writeTogether(WritePlan &w), mayStream(WritePlan &w);
  int64_t streamedFrom(WritePlan &w);

  // Turned.cpp: what lies along the rows of a tile.
  Array turnedArray(mlir::Type element, int lane, bool isSwept);
  void layOutTurned();
  int laneOfTurned() const;
  void eachTurned(int lane, llvm::function_ref<void(Ix, Ix, bool)> block);
  Val maskOfTurned(int lane, Ix at, Ix row, int64_t i);
  void fillTurned(const NodeSet &used);
  void fillTurned(Node *read);
  void fillAgain(const NodeSet &used, unsigned passes);
  NodeSet readsOfPass(unsigned pass);
  NodeSet readsOfWrites();
  Val mayStreamTurned(WritePlan &w, Ix step);
  void flushTurned(WritePlan &w);
  void flushSweep();

  // Groups.cpp.
  int64_t stepsOfPanels(int64_t panels);
  int indexOfSum();
  Ix passByPanel();
  int slicedIndex();
  Ix haveFewRows();
  int64_t stepsOfFew();
  Ix lengthOfSlice();
  Ix panelsOfGroup();
  Ix stepsOfPanel(PackPlan &pack);
  Ix stepsOfOwnPanels(PackPlan &pack);
  void layOutSlices();
  bool readsRowsOnce(const Nest &nest);
  void nestPanels(Nest &nest, Tile &t, Ix first, Ix end);
  void nestGroups(Nest &nest, Tile &t);
  void nestSlices(Nest &nest, Tile &t, Ix first, Ix end);
  Values partOfSums(Tile &t, const Values &start);
  void keepPart(Tile &t, llvm::ArrayRef<Val> acc);

  // Apart.cpp.
  bool readsApart(const Nest &nest);
  bool hasPanel(Node *term);
  void layOutApart(StatePlan &s);
  void nestApart(Nest &nest, Tile &t);
  bool readsInOrder(const StatePlan &s);
  void sumInOrder(Nest &nest, const SumsApart &sums);
  void addPart(const Nest &nest, Ix before);
  // NestSizes.cpp.
  int64_t sizeOfGather(mlir::Type element);
  int64_t sizeOf(Node *n, int lane);
  void eachEvaluated(Node *root, llvm::DenseSet<Node *> &seen,
                     llvm::function_ref<void(Node *)> visit);
  int64_t sizeOf(llvm::ArrayRef<Node *> roots, int lane, Set reduced,
                 int64_t rows, int64_t columns, int64_t unroll);
  int64_t mostOfBody();
  void sizeNest(Nest &nest);
  bool mayPadLanes(const Nest &nest);
  bool mayMaskAll(const Nest &nest);
  bool mayHaveFewLanes(const Nest &nest);

  // Products.cpp.
  void productWithWrites();
  void writeSums(Nest nest);
  void writeSumsOfRows(Nest &nest);
  /// How a product takes a few rows, by what lies in memory.
  enum class FewRows {
    AsOthers, ///< by panels
    InOrder,  ///< lanes along the columns, which lie together
    AlongSum  ///< lanes along what is summed, which does
  };
  llvm::SmallVector<Node *, 2> summedTerms();
  size_t sumsAtOnce();
  FewRows fewRows();
  int64_t mostFewRows();
  Ix hasFewRows();
  void layOutSums();
  void storeResults(Tile &t, int r, int c);
  void writeSumsInOrder(const Nest &nest);
  void addParts(Nest &part, llvm::ArrayRef<Array> arrays, Ix first, Ix count);
  void addSumsOfFewest(const Nest &nest);
  void clearSums(const Nest &nest, llvm::ArrayRef<Array> arrays);
  void addSumsOfRows(const Nest &nest, llvm::ArrayRef<Array> arrays);
  void contractionInOrder(Node *n);
  void writeSumsAlong(const Nest &nest);
  void writeFewRows(const Nest &nest);
  void wholeStates();
  bool readsWhole(WritePlan &w);
  /// The one sum of `Plan::wholes` that is being computed, where they are
  /// computed one after the other.
  std::optional<unsigned> wholeAtHand;

  // ByteDots.cpp.
  std::pair<Buffer, Ix> narrowAt(const DotPlan &dot, Tile &t, int r);
  bool isThere(const DotPlan &dot);
  const DotPlan *dotOf(const Nest &nest, Tile &t);
  Val constant32(int64_t value);
  Val partialWord(const Buffer &from, Ix at, Ix count);
  Values reduceDots(Nest &nest, const DotPlan &dot, Tile &t, Values acc);
  void sumBytes(Nest &nest);
  void settleDots(const DotPlan &dot, Tile &t, Values &acc);

  // TileSums.cpp.
  struct RowInMemory {
    Buffer from;
    Ix at, stride; ///< to the next row
  };
  void layOutTiles();
  int64_t depthOfTile(const Nest &nest) const;
  bool takesTiles(const Nest &nest, Tile &t);
  bool takesTilesInGroups(const Nest &nest);
  bool storesWholeSums(const Nest &nest);
  void nestGroup(Nest &nest, Tile &outer, Ix first, Ix end);
  Ix nestTiles(Nest &nest, Tile &t, Ix first, Ix end);
  RowInMemory leftOfTiles(const Nest &nest, Tile &t, int r);
  Ix strideOf(const Array &array, int index);
  void sumTiles(Nest &nest, Tile &outer, Ix first, Ix row, int64_t numTiles,
                Ix depth);
  Values addTileSums(const Nest &nest, Tile &t, Values acc);

  // TilesInPlace.cpp: few rows by what lies as a tile has it.
  struct InPlace {
    Buffer rows; ///< of this side, as tiles want them
    Buffer edge; ///< what exists of a tile of the other
    Buffer sums;
  };
  bool hasPanels(const PairPlan &pair);
  Ix widthInPlace(const PairPlan &pair);
  void layOutTilesInPlace();
  Ix sharedInPlace(const PairPlan &pair, Ix n, Ix k);
  Ix strideInPlace(const PairPlan &pair);
  void askInPlace(const PairPlan &pair, Ix at, Ix stride);
  void loadInPlace(int tile, const InPlace &place, const PairPlan &pair, Ix n,
                   Ix k, bool isWhole);
  void layOutRowsInPlace();
  void sumPlaces(const InPlace &place, const PairPlan &pair, Ix n, Ix row,
                 int64_t numTiles, int64_t stride);
  void sumInPlace(Nest &nest, const PairPlan &pair);
  void layOutFactors(const InPlace &place, const PairPlan &pair, Ix first);
  void sumColumns(const InPlace &place, const PairPlan &pair, Ix group,
                  Ix column, int64_t numTiles, bool isShort);
  Ix sumsOfRow(const InPlace &place, const PairPlan &pair, Ix row);
  Val hasNoNumber(const InPlace &place, const PairPlan &pair);
  void addColumnsInPlace(Nest &nest, const PairPlan &pair);
  void whereInPlace(const PairPlan &pair, llvm::function_ref<void()> few,
                    llvm::function_ref<void()> many);

  // Keyed.cpp: states of which an element touches one place.
  void layOutKeyed(unsigned pass);
  void initialiseKeyed(unsigned pass);
  void keyedState(StatePlan &s);
  void keyedAlongStream(StatePlan &s, const StateKey &key);
  Tile placeTile(Tile &t, const StateKey &key);
  void settlePlaces(unsigned pass);
  void placePivots(unsigned pass);
  bool isPlacedOld(Tile &t, Node *n);
  const Array &placedPivot(Tile &t, Node *old);

  // RowStates.cpp.
  void rowStep(unsigned pass, Step &step);
  void rowGroup(unsigned pass, Step &step, bool isChecked, Tile &head);
  /// What one level of a row step computes.
  struct RowWork {
    int64_t parts = 4; ///< of a sum, in flight: enough to hide an addition
    llvm::SmallVector<StatePlan *> states, ordered, counts, vanishing;
    llvm::SmallVector<Node *> numbers, wide;
    /// Lists of joined rows: those whose lane maxima this level finds, those
    /// of them whose keys have no extreme among the states, and those whose
    /// candidates it finds.
    llvm::SmallVector<StatePlan *> bounded, apart, entering;
    llvm::SmallVector<Values> maxima; ///< of the row, of each bounded
    Ix place{0}; ///< of the row in work among those that are joined
    bool hasStream() const {
      return !states.empty() || !ordered.empty() || !wide.empty() ||
             !bounded.empty() || !entering.empty();
    }
  };
  bool roundsExponentials(const RowWork &work);
  RowWork workOf(unsigned pass, Step &step, unsigned level);
  void rowLevel(unsigned pass, Step &step, unsigned level, bool isChecked,
                Tile &head);
  void joinedSums(RowWork &work, int64_t width, Tile &head,
                  llvm::function_ref<Values(Tile &, bool)> sumsOf);
  void settleJoined(StatePlan &s, Val sum, Tile &head);
  bool belongs(const Step &step, Set set);
  bool joinsLists(const Step &step);
  void absorbColumn(RowWork &work, bool isMasked, Tile &inside, int64_t c,
                    Values &acc, std::optional<unsigned> guard = {});
  void writeColumns(Node *n, Tile &inside, int64_t count);
  void absorbWhereNeeded(RowWork &work, bool isMasked, Tile &inside,
                         int64_t count, Values &acc);
  void updateState(StatePlan &s, Tile &t, Val sum);
  void vanishState(StatePlan &s, Tile &t);
  Values rowSums(unsigned pass, Step &step, unsigned level, RowWork &work,
                 bool isChecked, bool isOneGroup, Tile &t);
  int64_t columnsOfGroup(Step &step);
  int64_t positionsOfChain(Step &step, int64_t parts);
  /// Adds what registers have summed to `total`, and empties them.
  void closeChain(llvm::MutableArrayRef<Val> parts, Val &total, StatePlan &s);
  Values columns(Step &step, bool isChecked, Tile &t, Values init,
                 llvm::function_ref<Values(Tile &, int64_t, Values)> body,
                 llvm::function_ref<Values(Values)> closeChains = nullptr,
                 int64_t parts = 4);
  NodeSet reusedTerms();
  void startLevel(RowWork &work, Tile &head);
  void initialise(unsigned pass, bool hasLists);
  bool areJoined(Set set);
  Tile headOf(Ix first);
  void eachColumn(Ix row, llvm::function_ref<void(Tile &)> body);
  void eachHead(llvm::function_ref<void(Tile &)> body);
  Array &runningOf(StatePlan &s);
  void reducePartials(unsigned pass);
  void eachRow(bool hasRow, llvm::function_ref<void(Ix)> body);
  Tile tileOf(Ix row);

  // Extremes.cpp: those of a contraction.
  llvm::SmallVector<StatePlan *, 2> gatheredBy(Node *n);
  void startGathered(Node *n);
  void gatherRows(Node *n);
  void gatherColumn(llvm::ArrayRef<StatePlan *> states, Tile &t, int r, int c,
                    Values &lanes);
  void gatheredStep(unsigned pass, Step &step);

  // Slack.cpp: a level of extremes and one of sums about them at once.
  struct LazySums;
  bool isLazy(unsigned pass, Step &step, unsigned level);
  Values moveSums(const LazyPivots &lazy, llvm::ArrayRef<StatePlan *> of,
                  llvm::ArrayRef<Val> sums, llvm::ArrayRef<Val> from,
                  llvm::ArrayRef<Val> into, Tile &head);
  void followExtremes(LazySums &work, llvm::ArrayRef<Val> best, Values &acc);
  Values lazyGroup(LazySums &work, const Ahead &ahead, Tile &inside,
                   int64_t count, Values acc);
  Val termOf(StatePlan &s, Tile &t, int64_t c);
  Val combineGroup(StatePlan &s, Tile &inside, int64_t count);
  Val pivotAt(const LazyPivots::Pivot &pivot, Tile &head, Val extreme);
  Val firstOfRow(StatePlan &key, Tile &row, int64_t count);
  void firstOfRows(const LazyPivots &lazy, Ix first, Ix count);
  Values traverseOnce(LazySums &work, unsigned level, Step &step,
                      bool isChecked, Values init);
  Values traverseEachOnce(LazySums &work, unsigned level, Step &step,
                          bool isChecked);
  void lazyLevels(unsigned pass, Step &step, unsigned level, bool isChecked,
                  Tile &head);

  // Trailing.cpp: a level of sums and one about what they make, at once.
  struct TrailingWork;
  bool isTrailing(unsigned pass, Step &step, unsigned level);
  void countTrailing(TrailingWork &work);
  void bindTrailing(TrailingWork &work, llvm::ArrayRef<Val> sums,
                    llvm::ArrayRef<Val> pivots, Tile &all, Tile &own,
                    Tile &moving);
  Val isFarFromPivot(StatePlan &s, Val sum, Val moved, Tile &all, Val isFar);
  void trailingLevels(unsigned pass, Step &step, unsigned level, bool isChecked,
                      Tile &head);

  // Ordered.cpp.
  void orderedColumn(StatePlan &s, Tile &t, int c, bool isChecked);
  size_t sizeOfLists(StatePlan &s);
  Values listsOfLanes(StatePlan &s, Tile &t);
  Values elementOfLanes(StatePlan &s, Tile &t, int c);
  Values bestOfLanes(StatePlan &s, Tile &t, int64_t count);
  void enterElement(StatePlan &s, const Values &element, Ix seen,
                    llvm::MutableArrayRef<Val> lists);
  void enterLanes(StatePlan &s, Tile &t, int64_t count,
                  llvm::MutableArrayRef<Val> lists);
  void keepListsOfLanes(StatePlan &s, Tile &t, llvm::ArrayRef<Val> lists);
  void insertOrdered(StatePlan &s, Ix list, Spelling::Values element);
  Val beats(StatePlan &s, Val key, Val than);
  Values freePlace(StatePlan &s);
  void initialiseOrdered(StatePlan &s);

  // Candidates.cpp: the k best of a register's worth of rows at once.
  struct Candidates {
    Buffer maxima; ///< rows of lanes
    Buffer counts; ///< candidates of each row
    Ix capacity;   ///< candidates of one row
    /// Where the best of each row are among its candidates: best first and rows
    /// along the lanes, and row by row.
    Buffer places, placesOfRows;
    llvm::SmallVector<Buffer, 2> elements, turned, lists; ///< as in the state
  };
  Val betterKey(StatePlan &s, Val x, Val y);
  Val worseKey(StatePlan &s, Val x, Val y);
  Val isCandidate(StatePlan &s, Val key, Val than);
  void layOutCandidates(StatePlan &s);
  Values maximaOfParts(RowWork &work, StatePlan &list,
                       llvm::ArrayRef<Val> parts);
  Values bestOfMaxima(StatePlan &s);
  Values laneMaxima(StatePlan &s, Step &step, bool isChecked, Tile &t);
  void keepMaxima(StatePlan &s, llvm::ArrayRef<Val> maxima, Ix place);
  void compressRow(StatePlan &s, Step &step, bool isChecked, Tile &t, Val bound,
                   Ix place);
  Val compressColumn(StatePlan &s, Tile &inside, int64_t column, Val bound,
                     Ix place, Val count);
  static StatePlan *extremeOfKeys(RowWork &work, StatePlan &list);
  void boundJoined(RowWork &work, Tile &head);
  void enterJoined(RowWork &work, Step &step, bool isChecked, Tile &head);
  Values enterLists(StatePlan &s, llvm::ArrayRef<Val> element, Val exists,
                    llvm::ArrayRef<Val> lists);
  Values sortedPlaces(StatePlan &s, Ix most, Val counts);
  Val pickPlaces(const Buffer &from, Ix row, Val places, int64_t registers);
  void takePlaces(StatePlan &s, Ix first, bool isFull, int64_t registers);
  void sortCandidates(StatePlan &s, Ix first);
  void listsAsCandidates(StatePlan &s, Ix first);
  Values readLists(StatePlan &s, Tile &t);
  Values emptyLists(StatePlan &s);
  void enterCandidates(StatePlan &s, Ix first);
  Val lastOf(StatePlan &s, Ix row);
  void candidateStep(unsigned pass, StatePlan &s, Step &step, bool isChecked);

  // Stream.cpp.
  struct Walked {
    Ix first, last, least, most, fullFirst, fullLast;
    bool isPart = false, mayFollow = false;
  };
  Walked walkedBy(unsigned pass, Ix lo, Ix hi);
  Ix isLeftLow(unsigned pass);
  void streamLoop(unsigned pass, Ix lo, Ix hi);
  bool hasBlocks();
  int64_t places();
  int64_t tilesOfBlock();
  Ix numTilesAlong(unsigned index);
  void toDeepTile(Ix at);
  void outerTiles(Set outer, llvm::function_ref<void()> body);
  void toPlace(unsigned pass, Ix place);
  Ix isFlat();
  void withFlatStreams(llvm::function_ref<void()> body);
  void streamTileAt(unsigned pass, Ix lo, Ix hi, Ix number);
  void streamBlocks(unsigned pass, Ix lo, Ix hi);
  void streamTile(unsigned pass);
  void outerStreams(Set rest, llvm::function_ref<void()> body);
  void finish();
  void sweep(Ix lo, Ix hi);
  Ix areLong();
  void walkTogether();
  void walkBeside();
  void sweepBefore(Ix at, Ix end);
  Values
  besideRow(Ix first, Ix end, llvm::ArrayRef<Val> init,
            llvm::function_ref<Values(Ix, Ix, llvm::ArrayRef<Val>)> part);

  // RowGuards.cpp: passes that only some rows need.
  mlir::TypedAttr guardIs(bool value);
  Val holdsOfJoined(llvm::function_ref<Val(Tile &)> asks, Val found);
  Val holdsSomewhere(RowGuard &guard, Val found);
  void prelude(unsigned pass);
  void whereNeeded(unsigned pass, llvm::function_ref<void()> body);

  // Segments.cpp: the stream in parts that are items of their own.
  bool hasSegments();
  Ix numSegments();
  Ix placeOf(Ix segment);
  void bindStates(Ix item, Ix segment, unsigned pass);
  void bindSegment(Ix item, unsigned pass, Ix &lo, Ix &hi);
  void emitSegments(unsigned pass, unsigned phase);
  void emitMerge(unsigned pass, unsigned phase);
  void emitSegmentSweep(unsigned phase);
  void mergeSegment(unsigned pass, bool hasLists);
  void mergeRowStates(unsigned pass, bool hasRow, bool hasLists, Tile &mine,
                      Tile &theirs, bool isKnownOnly = false);
  void mergeMatrixStates(unsigned pass, bool hasRow, Tile &mine, Tile &theirs);
  void mergeOrdered(StatePlan &s, Ix row);

  // Packing.cpp.
  struct Panel {
    Buffer from, into;
    Ix source, target; ///< of its first element
    Ix depth, depthStride, laneStride;
    Ix wholeDepth; ///< without padding
    bool isMoved = false;
    Node *cast = nullptr; ///< applied on the way
  };
  void packBytes(const Panel &p, Ix limit);
  void packWordsAt(const Panel &p, Ix k);
  void turnWordsAt(const Panel &p, Ix k);
  void packBytesAt(const Panel &p, Ix k, std::optional<Ix> limit);
  void packDepth(const Panel &p, Ix k, std::optional<Ix> limit);
  void packPanel(const Panel &p, Ix whole);
  void packDepths(const Panel &p, PackPlan &pack, unsigned at, Ix limit);
  void packPairsAt(const Panel &p, Ix k, Ix limit, bool isLast);
  void packPairs(const Panel &p, Ix whole);
  Ix outerCount(PackPlan &pack, PackPlan::Outer &outer);
  Ix outerAt(Tile &t, PackPlan &pack, const PackPlan::Outer &outer, int r,
             int c);
  Ix rowsThatShare(bool isReadInOrder);
  Ix rowsInPlace(int64_t most, llvm::ArrayRef<unsigned> openSums);
  Ix depthOf(PackPlan &pack);
  Ix packDepthOf(PackPlan &pack);
  Ix packItems(PackPlan &pack);
  void convertPanel(Node *value, Ix depth, Ix target);
  Panel panelAt(Node *value, PackPlan &pack, Ix first);
  void fillPanel(Node *value, PackPlan &pack, Panel p, Ix target, Ix limit);
  void makeOwnPanels(Nest &nest, Ix at, Ix count);
  void makeOwnPanels(Node *value, PackPlan &pack, Ix first, Ix count);
  void makeOwnPairs(PackPlan &pack, llvm::function_ref<Panel(Ix)> part,
                    Ix count);
  void askAhead(const Panel &p, PackPlan &pack, Ix k);
  struct PackItem {
    Panel panel;
    Ix first, limit; ///< lane; how many of its lanes exist
    Ix target;
  };
  /// Panels that are filled at once.
  static int64_t numSideBySide(const PackPlan &pack) {
    return pack.inPairs ? 2 : 4;
  }
  PackItem packItem(Node *value, PackPlan &pack, Ix item);
  bool maySideBySide(Node *value, PackPlan &pack);
  void packSideBySide(PackPlan &pack, const PackItem &p);
  void emitPack(Node *value, PackPlan &pack, unsigned phase);
  bool hasPanel(Tile &t, Node *n);
  Ix packSize(Node *value, PackPlan &pack);
  Ix panelsOf(PackPlan &pack);
  Ix outerOf(PackPlan &pack);
  bool mayHaveRounds();
  void planRounds();
  Ix heldOf(Node *value, PackPlan &pack);
  Ix packItemsAtOnce(Node *value, PackPlan &pack);
  Ix mainItemsAtOnce(Ix all);

  Plan &plan;
  Spelling &to;
  llvm::SmallVector<Ix, 8> extents, base;
  Ix rows{1};                ///< of this row tile
  std::optional<Ix> onlyRow; ///< set: of these, the one in work
  std::optional<NextRow> nextRow = NextRow();
  std::map<Node *, Val> reciprocals;      ///< of divisors of the row in work
  llvm::SmallPtrSet<Node *, 2> asWritten; ///< quotients that stay divisions
  /// Flush.cpp: exponentials that may be 0 below 2^-126.
  llvm::SmallPtrSet<Node *, 4> flushed;
  /// Exponentials whose argument has a larger error than a product adds.
  llvm::SmallPtrSet<Node *, 4> noisy;
  /// What is 1 at the largest element of its row, and e^16 beside a pivot that
  /// lags behind.
  llvm::SmallPtrSet<Node *, 4> onesAtMost;
  /// Powers that stand beside 1 in their sum and are factors of elements of
  /// another array, and these elements.
  struct SmallPower {
    unsigned state; ///< the sum of the products
    Node *factor;
  };
  llvm::MapVector<Node *, llvm::SmallVector<SmallPower, 2>> smallPowers;
  Buffer flushWords;
  std::optional<Ix>
      flushes; ///< 1 or 0, while a pass with small powers is walked
  Ix valid{0}; ///< stream positions of this tile
  /// The tile in work is the whole row: states were at their identities.
  bool isWholeRow = false;
  /// Rows are walked as many at a time as there are lanes.
  bool isJoined = false;
  std::optional<Ix> depth; ///< positions of `plan.deep` in the tile
  /// Set: of these, the first of those in work, whose passes all run before
  /// those of the next.
  std::optional<Ix> firstOfGroup;
  /// Where each joined row has its pivots, and before that the extremes of its
  /// first elements, of which they are made.
  llvm::SmallVector<Buffer, 2> pivotsOfRows;
  bool hasLikely = false; ///< the terms of `Plan::likely` are in their arrays
  /// Row steps find the end of the stream by themselves: full registers, then
  /// masked ones.
  bool isRagged = false;
  bool isLazyStep = false; ///< a step of two levels is in work
  /// Which guards of the pass in work hold somewhere in the tile of the item.
  llvm::SmallVector<Val> guardsHold;
  std::optional<Val>
      isBoundary; ///< set: some positions of the tile are outside
  Ix privateBytes, sharedBytes;
  bool isDry = false;
  std::map<Node *, Array> contractions, kept, operands;
  llvm::DenseMap<mlir::Type, Buffer> tileSums; ///< of a block of matrix tiles
  std::map<Node *, InPlace> inPlace;           ///< by the term that is summed
  Array byteSums;                              ///< one a row: see `sumBytes`
  llvm::SmallVector<Array, 2> sumsInOrder;     ///< see `writeSumsInOrder`
  /// The part of a long sum in work, and the sums of the parts before it.
  struct Slice {
    Ix first, count;
    Val isOpen; ///< more follow; none where `ends` is known
    llvm::SmallVector<Array, 2> sums; ///< of each sum of the nest
    std::optional<bool> ends;
    Ix done;            ///< 0: nothing has been summed
    Ix between = Ix(1); ///< places from one of its elements to the next
  };
  std::optional<Slice> slice;
  llvm::SmallVector<Array, 2> slicedSums;
  std::map<unsigned, SumsApart> sumsApart; ///< by state
  std::map<Node *, Array> turnedReads;
  std::map<WritePlan *, Array> turnedWrites;
  bool areTurned = false;   ///< all that the item reads, before its rows
  bool hasOperands = false; ///< the item in work has computed them
  /// Kept values and states (of row steps) that this tile has left in their
  /// arrays.
  llvm::DenseSet<Node *> keptReady;
  llvm::DenseSet<unsigned> statesReady;
  std::map<Node *, Buffer> panels;
  std::map<Node *, Buffer> staging; ///< one panel before its cast
  /// 1 where items run in rounds of `roundRows` outer rows, else 0.
  Ix isInRounds, roundRows;
  /// Of a product: runs of items, each of its own rows, and those of this one.
  Ix partsOfRows{1};
  struct {
    Ix first, count;
  } rowsOfPart;
  std::map<Node *, Ix> rowsOfPanels; ///< outer rows that share panels
  struct StateArrays {
    llvm::SmallVector<Array, 2> values; ///< one, or keys and payloads
    Array finals, count;
    Buffer lanesOfRows; ///< sums of joined rows whose lanes are apart
  };
  llvm::SmallVector<StateArrays, 0> arrays;
  std::map<unsigned, Candidates> candidates; ///< of the states that take them
  llvm::SmallVector<StateArrays, 0> others;  ///< merging: of the other segment
  /// The row states that the pivots of keyed states are made of, as they were
  /// when each place was last in work: by the row state and the group.
  struct Placed {
    StatePlan *keyed = nullptr; ///< one of the group
    Array array;
  };
  std::map<std::pair<unsigned, unsigned>, Placed> placed;
  /// The row that is written, up to `end`, beside the first pass of the next.
  struct RowBefore {
    Ix row, end;
    llvm::SmallVector<StateArrays, 0> arrays; ///< where its states are
    bool isDue = false; ///< of the tile in work nothing is written yet
  };
  std::optional<RowBefore> rowBefore;
};

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_KERNEL_H
