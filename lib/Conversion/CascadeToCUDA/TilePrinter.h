// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_TILEPRINTER_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_TILEPRINTER_H

#include "KernelPrinter.h"
#include "OpText.h"
#include "TileKernel.h"
#include "refold/Conversion/TileLayouts.h"
#include "refold/Conversion/VerifyTiles.h"
#include <array>
#include <map>

namespace refold::cuda {

constexpr const char *kLog2E = "1.44269504f", *kLog2 = "0.693147181f";

/// An array of which one thread asks for boxes: what its gates are called, and
/// the place of a tile.
struct BoxedCopy {
  const TileAccess *access;
  std::string gate;
  tile::Stage to;
};

/// A dimension of a map in front of the row: of the array, or -1 where whole
/// vectors of 16 bytes are one, since rows begin inside those of the array; and
/// which place of it is copied.
struct MapIndex {
  int dim;
  mlir::AffineExpr at;
};
/// The nearest first.
llvm::SmallVector<MapIndex> indicesBeside(const TileAccess &access);
/// Whether a map can tell copies of the array: at most five dimensions, none of
/// them at places that data say.
bool mayMap(const TileAccess &access);

/// Writes one kernel over tiles, top to bottom.
class TilePrinter : public KernelPrinter {
public:
  TilePrinter(TileKernel &tiles, const CudaOptions &options,
              llvm::StringRef body = "")
      : KernelPrinter(tiles, options, body), tiles(tiles) {
    values.spell = [this](Node *n) { return spell(n); };
  }
  /// The same cascade with rows of several indices in a block, for entries
  /// whose blocks share the stream.
  TileKernel *packing = nullptr;
  /// Of `body`, what blocks that share the stream have; and of the earlier one.
  std::string partsBody, earlierParts, earlierOwn;
  /// Errors are emitted on the op: extents that no entry takes.
  mlir::FailureOr<CudaKernel> print();

private:
  // What is launched.
  void findGrid();
  mlir::LogicalResult chooseEntries();
  mlir::LogicalResult checkLayouts();
  void addEntry(int deepest, int widest, int vector);
  void addTiles(int deepest, int widest, int vector, int numTiles, int columns);
  bool keepsProducts();
  bool keepsLeft(const CudaEntry &entry);
  bool readsElements(unsigned brought = 0);
  bool callsFunctions();
  bool countsColumns();
  bool isOfWidth(Node *n);
  bool mayHaveRoles();
  void addRoles(int deepest, int widest, int groups, bool brings = false);
  void printEntries();
  // The text.
  void printHead();
  void printTileStates();
  void printBody();
  void printPlaces(const std::string &at);
  void printMatrices();
  void printMatrix(TileAccess &access);
  void printFixed();
  void printBounds();
  void printCopies();
  bool waitsForFirstValues();
  void printFirstValues();
  void printLimit(size_t i, const std::string &name);
  void printLow();
  void printFold();
  void printLevel(unsigned level);
  void printMoves(unsigned level);
  void printLimits();
  bool isNothingOutside(Node *n, const std::string &identity);
  bool masksAhead();
  void openFold(const std::string &parameters, bool mayMaskAhead);
  void printFoldCall(const std::string &place);
  void printMasks();
  bool hasTight();
  void printMixedMasks();
  void printElements(unsigned level);
  void printTerms(unsigned level);
  void printReductions(unsigned level);
  void printRange();
  bool foldsByRow();
  // The text of blocks that share the stream.
  std::string printParts(TilePrinter &of);
  void addPartsEntry(const CudaEntry &like);
  void findPacking(CudaTiles &grid);
  void printPartsBody();
  void printPartsEntry(const CudaEntry &entry);
  void printPackedPlaces();
  void printPackedRow(const std::string &at);
  void printBrings();
  void printPartsFold();
  void printPartsWalk();
  void printWarpStates();
  void printMergedParts(bool isOfBlocks);
  void printMergeLevel(unsigned level, bool isOfBlocks);
  void printMergedStates(llvm::ArrayRef<walk::StatePlan *> here,
                         llvm::ArrayRef<const TileState *> products,
                         const std::string &one, bool isOfBlocks);
  void printPartResults();
  llvm::SmallVector<walk::StatePlan *> rowStates();
  void printWorkspace();
  std::string firstPart();
  /// Groups of rows that have blocks by the lengths of their streams.
  static constexpr int kMostGroups = 256;
  static int64_t shareBytes(int threads) {
    return (kMostGroups + 2 * threads) * 16;
  }
  bool hasOwnStream(unsigned row);
  bool hasShares();
  bool partsHaveShares = false; ///< those of the same kernel's other entries
  void printShare(const std::string &costs, const std::string &scratch);
  bool isSharing = false; ///< asks how much of the stream a group has
  /// How many rows a group packs, and how many groups there are.
  std::string packedText, groupsText;
  // Where an element of a lane is, which sums and products it has: as matrix
  // units leave them, or of f32.
  std::string tileType() { return tiles.isOfWords ? "WordTile" : "Tile"; }
  int64_t bytesOfTile(int64_t rows, int64_t length) const;
  // Arrays of 8 bits that are widened a tile ahead.
  int64_t bytesOfNarrow(int64_t rows, int64_t length, int64_t threads) const;
  int64_t narrowBytes(const CudaEntry &entry) const;
  std::string narrowType(const TileAccess &access);
  llvm::SmallVector<TileAccess *> narrowOnes();
  llvm::SmallVector<TileAccess *> streamed();
  std::string printNarrowPlaces(const std::string &from,
                                const std::string &places);
  void printWidening(llvm::function_ref<std::string(TileAccess &)> to,
                     const std::string &from);
  std::string tileAt(const TileAccess &access, const std::string &place);
  llvm::SmallVector<int> vectorsOfEntries();
  bool widensParts() const;
  bool widensByRoles();
  void printNarrowPart();
  void printNarrowPartTaken();
  tile::Op widening(TileAccess &access, const tile::Stage &to);
  void printNarrowLeft();
  std::string printNarrowTypes();
  void printNarrowNext(const std::string &at,
                       std::optional<bool> ofValues = std::nullopt);
  void printNarrowRolePlaces(const std::string &from);
  std::string laneRow(const std::string &half) {
    return (tiles.isOfWords ? "word_row(" : "fragment_row(") + half +
           ", which)";
  }
  std::string laneColumn(const std::string &e) {
    return (tiles.isOfWords ? "word_column(" : "fragment_column(") + e +
           ", which)";
  }
  std::string laneElement(const std::string &c) {
    return tiles.isOfWords
               ? "[i][" + c + "]"
               : "[i / 2][" + c + " / 2][i % 2 * 2 + " + c + " % 2]";
  }
  std::array<const char *, 2> laneMasks() {
    return tiles.isOfWords ? std::array{"2", "4"} : std::array{"1", "2"};
  }
  std::string resultColumn() {
    return tiles.isOfWords ? "c / 4 * 16 + word_quad(which) + c % 4"
                           : "c / 2 * 8 + " + laneColumn("c % 2");
  }
  std::string isByVectors() {
    return tiles.mayWidenAhead()
               ? "kVector > 1"
               : "kVector == " + std::to_string(tiles.vector());
  }
  void printLaneSums();
  // Sums of rows that matrix units make.
  static constexpr int64_t kWidestBesideSums = 64;
  void findUnitSums();
  bool isByUnits(const walk::StatePlan &s) const;
  /// In the text of blocks that have rows of one matrix and all of the stream,
  /// without roles.
  bool isOfBlockRows() const {
    return !isInParts && !isInRoles && !isOfRoles && !tiles.isOfWords;
  }
  std::string unitSum(walk::StatePlan &s);
  void printUnitSumTypes();
  void printFour(walk::StatePlan &s);
  void printUnitSumMoved(walk::StatePlan &s);
  void printUnitSums(llvm::ArrayRef<walk::StatePlan *> states);
  // The text of f32.
  /// The number of the factors of a product among those that differ.
  size_t numberOfFactor(const TileState &product) const;
  size_t numFactors() const;
  int64_t wordFactorBytes(int64_t rows, int64_t columns) const;
  std::string factorBytes() const;
  std::string printWordFactorType();
  std::string factorsName(const TileState &product);
  void addWordEntry(int deepest, int widest, int vector);
  using PrintCopy = llvm::function_ref<void(
      TileAccess &, const std::string &tile, const std::string &to,
      const std::string &first, const std::string &rows, int column)>;
  void printWordCopies(PrintCopy copy);
  void printNarrowBring(PrintCopy copy);
  void printWordFold();
  void printWordProducts(const std::string &right, const std::string &leftAt,
                         const std::string &rightAt);
  void printWordFactors(llvm::ArrayRef<const TileState *> products);
  void printWordSums();
  void printWordQuads(const TileState &product, unsigned number);
  void printWordVectors(walk::WritePlan &w, llvm::ArrayRef<Node *> roots,
                        const std::string &isRow);
  /// Sums of f32 are of a tile's elements before they are added to a row's:
  /// errors then grow with tiles, not with elements.
  bool isSumOfTile(const walk::StatePlan &s) const;
  bool isOfTile(const walk::StatePlan &s) const {
    return isReduced(s) || isSumOfTile(s);
  }
  void printSumsOfTile(llvm::ArrayRef<walk::StatePlan *> states);
  // The text where rows are shared and results wide.
  bool mayBeWide();
  void addWideEntry();
  void printRegisters(int64_t count);
  std::string printWide(TilePrinter &of);
  void printWideEntry(const CudaEntry &entry);
  void printWideBody();
  void printWideNumbers();
  void printWidePlaces();
  void printWideRange();
  void printWideBrings();
  void printWideFirst();
  void printWideBring();
  void printWideFold();
  unsigned numberAmongRows(walk::StatePlan &s);
  void printWideRows();
  void printWideSums();
  void printWideEnd();
  void printSlices();
  void printSliceLevel(unsigned level);
  void printThinSlice();
  // What the text with roles brings to shared memory beside what is multiplied.
  static int64_t bytesOfElements(const TileAccess &access, int64_t rows,
                                 int64_t columns);
  int64_t bytesOfBrought(unsigned brought, int64_t rows, int64_t columns);
  unsigned mostBrought();
  unsigned fewestBrought();
  void eachBrought(
      llvm::function_ref<void(TileAccess &, const std::string &)> print);
  void printElementNumbers();
  void printElementPlaces();
  void printElementRows();
  void printElementCopies();
  void openWhereBrought();
  void closeWhereBrought();
  void printElementsCome();
  void printElementsLeave();
  void findBrought(llvm::ArrayRef<Node *> roots, bool isFirst);
  void printBrought();
  void bindBrought();
  // The text with roles.
  mlir::LogicalResult printRoles();
  mlir::LogicalResult verifyRoles(tile::Program program);
  tile::Entry entryOf(const CudaEntry &entry);
  void describeRoles(tile::Program &program);
  void printTurn(const std::string &consumer, tile::Op op, const char *why);
  void printRoleRange();
  void printBefore();
  void printRoleNumbers();
  void printGates();
  void printNextVisit();
  void printAgain();
  void printAllWalked();
  /// Of shared memory, behind all tiles.
  int64_t gateBytes() const { return hasLow() ? 256 : 128; }
  void printRoleVisit();
  void printLastSums();
  void printVisit();
  void printSums();
  void printZeros();
  void printFinish();
  void printCopier();
  void printRoleFold();
  void printIssue();
  void printSettle();
  bool hasOneText(int64_t widest);
  bool hasOneText();
  bool hasTwoTexts();
  void printTiles(const std::string &from, llvm::function_ref<void()> fold);
  void printRoleWalk();
  void printNext();
  void printWalk();
  void printTogether();
  void printResults();
  void printResult(walk::WritePlan &w);
  bool isStoredByVectors(walk::WritePlan &w);
  void bindSums();
  void printElementwise(llvm::ArrayRef<walk::WritePlan *> writes,
                        llvm::ArrayRef<Node *> roots, const std::string &isRow);
  void printVectors(walk::WritePlan &w, llvm::ArrayRef<Node *> roots,
                    const std::string &isRow);
  // Results that leave shared memory by boxes.
  walk::WritePlan *boxedWrite();
  std::string boxedName();
  bool hasBoxes() const {
    return llvm::any_of(boxColumns, [](auto &one) { return one.second > 0; });
  }
  /// Whether entries, those of parts or the others, have a parameter of them.
  bool hasMaps(bool ofParts) const {
    return llvm::any_of(result.entries, [&](const CudaEntry &e) {
      return e.hasParts() == ofParts && !e.maps.empty();
    });
  }
  std::string mapsOf(const CudaEntry &entry) const {
    return !hasMaps(entry.hasParts()) ? ""
           : entry.maps.empty()       ? ", nullptr"
                                      : ", maps.of";
  }
  CudaMap mapOf(const TileAccess &access, int row, int columns, int boxRows);
  CudaMap resultMap();
  std::vector<CudaMap> copyMaps(const CudaEntry &entry);
  // Copies by boxes.
  /// Rows of at most half a panel, for which boxes gained less than it took
  /// blocks to make their maps.
  bool hasNarrowRows();
  bool copiesByBoxes();
  llvm::SmallVector<BoxedCopy> boxedCopies();
  void printBringing();
  void printBoxCopy(const BoxedCopy &copy, size_t number,
                    const std::string &row);
  void printBoxCopier();
  void printOwnRows();
  void printBoxWords(walk::WritePlan &w, llvm::ArrayRef<Node *> roots);
  void printBoxes();
  /// Loops over what a thread has of its rows; `closeRows` ends them.
  void openRows();
  void closeRows();

  std::string countOf(int index) { return kernel.indexNames[index] + "_count"; }
  std::string firstOf(int index) { return kernel.indexNames[index] + "_first"; }
  std::string depthCount() { return countOf(tiles.depth); }
  std::string strideOf(const TileAccess &access);
  /// " + " what is in front of the matrix in rows of the array; "" for nothing.
  std::string insideText(const TileAccess &access);
  bool hasRoles() const {
    return llvm::any_of(result.entries,
                        [](const CudaEntry &e) { return e.roles > 0; });
  }
  /// Later rows read more of the stream.
  bool hasUpper() const {
    return llvm::any_of(
        plan.passes[0].conditions,
        [&](const walk::Condition &c) { return c.isUpper && isOfTileRow(c); });
  }
  /// Whether tiles are left out by a condition. Those that depend on an extreme
  /// are asked by nobody where blocks share the stream.
  bool isBound(const walk::Condition &c) const {
    return c.extreme < 0 || !isInParts;
  }
  /// The condition whose comparison that is; null for anything else.
  const walk::Condition *boundOf(Node *n) const {
    for (const walk::Condition &c : plan.passes[0].conditions)
      if (c.compare == n && isBound(c))
        return &c;
    return nullptr;
  }
  /// Whether tiles that are left out may have to be walked in the end.
  bool hasLow() const {
    return llvm::any_of(
        plan.passes[0].conditions,
        [&](const walk::Condition &c) { return c.extreme >= 0 && isBound(c); });
  }
  std::string staysLow(const std::string &states);
  /// Whether rows of a tile have bounds of their own.
  bool isOfTileRow(const walk::Condition &condition) const {
    return hasTileRow() && dependsOn(condition.bound, tiles.tileRow);
  }
  /// Whether of the tiles that are walked only the first one, which has the
  /// stream's end, may be there in part.
  bool isWholeBehindFirst() const {
    return llvm::all_of(plan.passes[0].conditions,
                        [&](const walk::Condition &c) {
                          return c.isUpper && c.extreme < 0 && !isOfTileRow(c);
                        });
  }
  bool hasWidth() const { return tiles.width >= 0; }
  bool hasTileRow() const { return tiles.tileRow >= 0; }
  std::string typeOf(const TileAccess &access) {
    return storedType(access.read->type);
  }
  /// What it is multiplied as.
  std::string unitOf(const TileAccess &access) {
    return storedType(access.unit);
  }
  /// The function of the tile level that brings rows of it.
  std::string copyOf(const TileAccess &access, const std::string &function,
                     const std::string &tile);
  /// States of the level that are numbers of a row.
  llvm::SmallVector<walk::StatePlan *> rowStatesOf(unsigned level);
  llvm::SmallVector<const TileState *> productsOf(unsigned level);
  /// Those of which the factor is needed.
  llvm::SmallVector<const TileState *> factorsOf(unsigned level);
  /// Read while the stream is walked: every lane of a row has to know it.
  bool isReduced(const walk::StatePlan &s) const {
    return s.form == walk::StatePlan::Reduced;
  }
  /// The kept value where the formula asks for it.
  std::string keptText();
  /// What is kept, without the factor that is applied late.
  std::string rawKept(Node *n);
  /// A value made of what is kept as it is held, as an extreme of it is.
  std::string scaledExtreme(walk::StatePlan &s, const std::string &value);
  /// A value times log2(e): see TileKernel::isInBits.
  std::string inBits(Node *n);
  std::string keptInBits(Node *n);
  std::pair<std::string, std::string> scaledInBits(Node *n);
  std::string stateText(Node *n);
  std::string spell(Node *n);
  void hoistTerm(Node *n);
  void hoistRows(Node *n);
  bool isOfColumn(Node *n);
  void findColumns(Node *n, bool isFirst, bool isKept,
                   llvm::SmallVectorImpl<Node *> &found,
                   llvm::SmallVectorImpl<Node *> &added);
  void printColumn();
  struct OfColumn;
  void printLanesOfColumns(llvm::ArrayRef<Node *> roots, bool isFirst);
  void printOfColumns(llvm::function_ref<bool(const OfColumn &)> isMeant,
                      llvm::function_ref<std::string(const OfColumn &)> to);
  void printColumns();
  std::string needsMove(llvm::ArrayRef<walk::StatePlan *> moved);
  void printTransports(llvm::ArrayRef<walk::StatePlan *> moved);
  void printLargePivots();
  bool isFromMaximum(Node *factor);
  llvm::SmallVector<walk::StatePlan *> movedAt(int level);
  bool isFixed(Node *n) { return cuda::isFixed(tiles, n); }
  bool needsRow(Node *n);
  void nameFixed(Node *n);

  TileKernel &tiles;
  OpText ops{out}; ///< of the text with roles
  /// Whether a running state is asked for as what others are relative to now,
  /// or as it is.
  /// or whether two sides of a merge are.
  enum { Absorbing, Moving, Merging } mode = Absorbing;
  llvm::DenseMap<Node *, std::string> bits;   ///< names of what inBits() spells
  llvm::DenseMap<Node *, std::string> scales; ///< names of kept factors
  /// What columns decide, by the array of four that a thread is at, and that of
  /// numbers which lanes have; `isInBits`: times log2(e).
  struct OfColumn {
    Node *node;
    std::string name, lanes;
    bool isInBits;
  };
  llvm::SmallVector<OfColumn, 2> columns;
  /// How many of `tiles.elements` each entry with roles brings, by its name.
  std::map<std::string, unsigned> brought;
  /// Columns of results for which a warp of it has room, none where results do
  /// not leave by boxes.
  std::map<std::string, int> boxColumns;
  /// Those that the terms at hand read, and the entries that bring them.
  llvm::SmallVector<std::pair<TileAccess *, std::string>, 2> broughtHere;
  /// By the number of the state: the weighted sum that has the factors.
  llvm::DenseMap<unsigned, const TileState *> unitSums;
  std::string keptScale, pivots; ///< names, where a factor is applied late
  bool isInRoles = false;        ///< sums are under way while a tile is folded
  bool masks = false;  ///< one text for whole tiles and others (masksAhead)
  bool mayMix = false; ///< the same, of some entries (hasTight)
  Node *maskedProduct = nullptr; ///< the finite number that it masks with
  bool hasVisits = false;        ///< a block comes to several places
  bool isOfRoles = false; ///< the text of blocks that do, with who copies
  /// Parameters of the functions that entries share.
  std::pair<std::string, std::string> own, ofParts;
  bool isInParts = false; ///< blocks share the stream, and so do warps
  bool isWide = false; ///< blocks share the stream, warps have states or sums
};

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_TILEPRINTER_H
