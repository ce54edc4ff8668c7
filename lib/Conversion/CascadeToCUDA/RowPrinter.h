// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWPRINTER_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWPRINTER_H

#include "KernelPrinter.h"

namespace refold::cuda {

/// Rows that shared memory keeps: elements and registers of a vector of all
/// that is folded, bytes of an element, and of a warp's states, twice.
struct KeptRows {
  int width = 1, words = 1;
  int64_t bytes = 0, perWarp = 0;
};

/// Writes one kernel over rows, top to bottom.
class RowPrinter : public KernelPrinter {
public:
  RowPrinter(RowKernel &kernel, const CudaOptions &options,
             llvm::StringRef body = "")
      : KernelPrinter(kernel, options, body) {
    values.spell = [this](Node *n) { return spellList(n); };
  }
  CudaKernel print();

private:
  void findGrid();
  void chooseEntries();
  // What waits in shared memory: ChooseShared.cpp.
  void chooseShared(int width, int words);
  void addShared(const KeptRows &rows, CudaEntry::Place place, int threads,
                 int blocks, int parts, int percent, int together);
  bool placeTables(const KeptRows &rows, const CudaEntry &entry);
  bool isLight();
  bool isFunctionOfStream(walk::Node *n);
  bool hasLongTerms();
  int64_t tableBytesRead();
  void addRings(const KeptRows &rows);
  void addWarps(int threads, int vectors, int64_t most, int64_t least = 0);
  void addLong(const KeptRows &rows);
  void addEntry(CudaEntry entry);
  void printHead();
  // The body.
  void printBody();
  void printRow();
  void printKept();
  std::string keptLoop();
  /// From a block's row to its next.
  std::string rowStep() {
    return hasClusters ? "blocks() / kBlocks" : "blocks()";
  }
  void printBring();
  // Later rows and tables beside them: PrintRings.cpp.
  void printRing();
  void printBringLater();
  void printNextPlace();
  void printFoldedTables();
  bool isApart(const RowRead &read) const;
  void printApart();
  void printPinned();
  void printTables();
  void printTable(const std::string &to, const RowRead &read);
  void printFetch();
  void printKeptChunks(const std::string &isPlain,
                       llvm::function_ref<void()> printUse);
  // A row a lane, in shared memory: PrintLanes.cpp.
  void addLanes(int width);
  void printLanes();
  /// Whether rows of what is read lie evenly.
  bool isEven(const RowRead &read);
  /// How many elements the vectors of a list have that are compared first.
  std::string picked() const { return hasPicked ? "kPicked" : "kWidth"; }
  void printFetchOwn();
  void printBestsOfVectors(walk::StatePlan &s);
  void printSelections(unsigned pass);
  struct Stored {
    const RowRead *read;
    bool isLargest; ///< bests are the largest of what is read, NaN with them
    std::string type;
  };
  std::optional<Stored> storedKeysOf(walk::StatePlan &s);
  void printBestsOfChunk(unsigned pass);
  void printExtremesOfLane(unsigned pass, walk::StatePlan &s);
  std::string keptAt(const RowRead &read);
  std::string loadKept(const RowRead &read, const std::string &at);
  void printRowPointers(
      llvm::function_ref<bool(const RowRead &)> isWanted = nullptr);
  void printChunk();
  void printLoad();
  void printPass(unsigned pass);
  void printFold(unsigned pass);
  void printLevel(unsigned pass, unsigned level);
  void printElements(llvm::ArrayRef<walk::StatePlan *> states);
  bool needsPlace(Node *root);
  bool needsPlaces();
  void printMerge(unsigned pass);
  void printMergeAcrossWarps(unsigned pass);
  // Rows of products.
  void chooseProducts();
  void printProductHead();
  void printProduct();
  void printProductRow();
  std::string productArguments(const CudaEntry &entry);
  // Blocks that have a row together: PrintClusters.cpp.
  bool mayHaveClusters();
  void printPartOfCluster();
  void printMergeAcrossBlocks(unsigned pass);
  void printMailbox(bool isOpening);
  /// Whether the block writes what a row has once.
  std::string isWriter() {
    std::string is =
        hasClusters ? "is_row && block() % kBlocks == 0" : "is_row";
    return hasParts && hasSweep() ? is + " && row_tickets.writes()" : is;
  }
  // Blocks that share a row.
  bool mayHaveParts();
  void addPartsEntry(int vectors, int width, int blocksPerUnit = 3);
  /// What has parts: a row, or columns beside each other; where a block has
  /// left a state of one, and where block `part` of its row or columns has.
  std::string ownGroup() { return kernel.isColumns ? "group" : "row"; }
  std::string groupCount() {
    return kernel.isColumns ? "group_count" : rowCount();
  }
  std::string leftAt(const std::string &block) {
    return kernel.isColumns ? block + " * kRows + thread() % kRows" : block;
  }
  void printPart();
  void printRowTickets();
  void printSweepOfParts(llvm::function_ref<void(const std::string &)> writeAt);
  void printAllParts(unsigned levels);
  void printMergeOfParts();
  void printTakenParts(unsigned level);
  void printWalk(unsigned pass);
  // Columns that warps have parts of: PrintColumns.cpp.
  void chooseColumns();
  CudaEntry aloneColumns();
  int columnWarps();
  void addPartsOfColumns(CudaEntry entry);
  void printOwnVectors();
  void printSharedReads(unsigned pass);
  llvm::MapVector<Node *, std::string> sharedReads; ///< of a chunk, and where
  std::string ownVectors() { return hasColumnLanes ? "kOwn" : "kVectors"; }
  void printColumnWalk(unsigned pass);
  void printColumnSweepWalk();
  // Chunks on their way to shared memory: PrintStages.cpp.
  bool mayStage(int width);
  int64_t stageBytes();
  void addStages(CudaEntry &entry);
  std::string stagedAt(const RowRead &read);
  void printStages();
  void printStagedWalk(const std::string &fold, const std::string &begin,
                       const std::string &end);
  void printResults();
  // Lists of the best.
  llvm::SmallVector<walk::StatePlan *> listsOf(unsigned pass);
  std::string listType(walk::StatePlan &s);
  int64_t listBytes(walk::StatePlan &s);
  int listWords();
  void printLists();
  void printTaken(unsigned pass);
  void printListMerge(unsigned pass);
  void printListsToShared(unsigned pass);
  void printListsFromShared(unsigned pass);
  std::string payload(Node *n, walk::StatePlan &s);
  std::string sumOfRanks(Node *n);
  std::string spellList(Node *n);
  void openPlaces(unsigned rank);
  std::pair<std::string, std::string> placeIn(walk::StatePlan &s);
  bool isAlongPlaces(walk::WritePlan &w, unsigned rank);
  void printPlaces(unsigned rank, llvm::ArrayRef<walk::WritePlan *> writes);
  void nameLists(llvm::ArrayRef<Node *> roots);
  void chooseQuotients(llvm::ArrayRef<walk::WritePlan *> writes,
                       llvm::ArrayRef<Node *> roots, walk::Set along);
  void printRowResults();
  /// What results along the row, and numbers of the row, are made of.
  llvm::SmallVector<walk::WritePlan *> sweptWrites(), numberWrites();
  llvm::SmallVector<Node *> resultRoots();
  /// Of names that hold until the row is done, the inner ones last.
  llvm::SmallVector<std::unique_ptr<Expressions::Scope>> rowScopes;
  void printWrites(llvm::ArrayRef<walk::WritePlan *> writes);
  void printSweep();
  void printSweepWalk(const std::string &isPlain);
  bool hasWholeChunks();
  void printChoice(const std::string &isWhole, const std::string &use);
  void printStore(walk::WritePlan &w, const std::string &values);
  void openVectors(const std::string &vectors = "kVectors");
  void bindElements(bool isFolded);
  void printEntries();

  std::string accumulate(walk::StatePlan &s, const std::string &acc);
  /// Of states that are the largest or smallest of what a vector of 16-bit
  /// floats holds: which vector, and the type that finds them.
  struct Extremes {
    std::string vector, type;
  };
  std::optional<Extremes> extremesOf(walk::StatePlan &s);
  void printExtremes(llvm::ArrayRef<walk::StatePlan *> states,
                     bool hasOwnParts);
  /// Elements of a row.
  std::string count() {
    return kernel.product ? kernel.indexNames[kernel.stream] + "_count"
                          : "row_length";
  }
  /// The first element behind what a block has of a row.
  std::string end() { return hasRings ? "part_end" : count(); }
  void printStreamIndices(const std::string &at);
  bool hasStream() const { return kernel.stream >= 0; }
  /// Whether results lie along the row.
  bool hasSweep() const;
  /// Whether a read is kept on chip between sweeps, where that is shared
  /// memory.
  static bool isKept(const RowRead &read) {
    return read.isFolded && !read.isShared;
  }
  int64_t keptBytes();
  /// Bytes of an element of what all rows read, where shared memory keeps it.
  int64_t sharedTableBytes();
  /// Whether a block that does many rows has such an array in registers.
  bool isInRegisters(const RowRead &read) const {
    return inRegisters.contains(read.node);
  }
  bool mayKeepTables(int width);
  bool mayKeep(int width);
  bool readsTables();
  bool foldsTables();
  std::string rowCount();
  bool isOwnPlace = false;     ///< text is about the places of one thread
  bool hasShared = false;      ///< an entry keeps rows in shared memory
  bool hasRings = false;       ///< in an entry, tables and the next row as well
  bool hasParts = false;       ///< in an entry, blocks share rows
  bool hasStages = false;      ///< in an entry, shared memory has some chunks
  bool hasColumnLanes = false; ///< warps have parts of columns
  bool hasLanes = false;       ///< an entry keeps a row for each lane there
  bool hasPicked = false;      ///< in one, lists are chosen by smaller vectors
  bool hasClusters = false;    ///< in an entry, blocks have rows together
  NodeSet inRegisters;         ///< tables that have no room in shared memory
  bool isWide = false; ///< 64 registers of a thread hold elements, with tables
};

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWPRINTER_H
