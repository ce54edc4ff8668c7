// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SCHEDULE_CASCADECOUNTER_H
#define REFOLD_LIB_SCHEDULE_CASCADECOUNTER_H

#include "refold/Schedule/CostModel.h"
#include "llvm/ADT/SetVector.h"

namespace refold {

/// Counts what the walk does with the body of one cascade.
class CascadeCounter {
public:
  CascadeCounter(CascadeOp cascade, const IndexSets &sets,
                 llvm::ArrayRef<double> extents, const Schedule &schedule,
                 const TargetFacts &target)
      : cascade(cascade), sets(sets), extents(extents), schedule(schedule),
        target(target), lanes(static_cast<double>(target.lanes(32))),
        stream(cascade.indicesOfRole(CascadeOp::Stream)),
        carried(cascade.indicesOfRole(CascadeOp::Carried)),
        rowSet(cascade.indicesOfRole(CascadeOp::Row)) {}
  KernelWork count();

private:
  using OpSet = llvm::SetVector<mlir::Operation *>;
  static uint64_t bit(unsigned i) { return uint64_t(1) << i; }

  // CountWork.cpp: operations by kind, states.
  static void gather(mlir::Value value, OpSet &ops);
  double elements(uint64_t set) const;
  double laneWaste(uint64_t set) const;
  double tileOf(unsigned index);
  void chooseLanes();
  int tiledRow();
  bool isGuarded(StateOp state) const;
  bool dependsOnState(mlir::Operation *op);
  OperationCounts countOf(mlir::Operation *op);
  void countGathered(ReadOp read);
  void countOps(const OpSet &ops);
  bool areRowsAlongLanes();
  bool isOneTile();
  double ofPasses(const OpSet &passes, const OpSet &swept);
  void countMoves(StateOp state);
  void countMerge(StateOp state, double states);
  void countSelection(StateOp state);
  void countStates(unsigned pass, OpSet &ops);

  // CountNests.cpp: contractions, and states that are products.
  bool isAddedInPairs(mlir::Value term);
  bool isByteDot(mlir::Value term) const;
  double sharingRows();
  double waitOfRows();
  double waitOfSums();
  double readAgainForHeads(uint64_t nest);
  double sharingOf(uint64_t set, bool isThin, bool isAcross);
  double carriedWaste();
  double wasteOfSums(uint64_t nest, bool isAcross);
  int denseIndex(ReadOp read);
  bool isSummedAcross(const OpSet &ops, uint64_t nest);
  void countPanels(const OpSet &ops);
  void countBytePanels(mlir::Value term);
  void countPairPanels(mlir::Value term);
  double waitInOrder(const OpSet &ops);
  double othersOf(mlir::Value term, const OpSet &ops, uint64_t nest,
                  bool isThin, bool isAcross);
  double sumsOf(uint64_t nest);
  void countNest(mlir::Value term, uint64_t nest);
  bool areWholeRows(uint64_t nest);
  void countAlone(uint64_t summed, int lane, double &steps, double &sums);

  // CountBytes.cpp: what is read again, with what lies in between.
  void countAgain(const OpSet &first, const OpSet &later);
  void countBlocks(double blocks);
  double rowsOfSweep();
  bool beginsNextRow();
  void countRows(const OpSet &ops);
  void countTurned();

  // CountItems.cpp: independent parts, ends of rows.
  double tailOf(unsigned index);
  double rowsOfItem(unsigned index);
  double tileCount();
  bool makesPanels();
  bool hasBlocks(uint64_t set);
  double moreColumns(double tiles);
  void countItems();

  CascadeOp cascade;
  const IndexSets &sets;
  llvm::ArrayRef<double> extents;
  const Schedule &schedule;
  const TargetFacts &target;
  double lanes;
  uint64_t stream, carried, rowSet;
  int laneIndex = -1;  ///< that the lanes of row steps lie along
  int lastStream = -1; ///< the one that is tiled
  bool hasNest = false, rowsAreAlongLanes = false;
  double rowsSwept = 1.0; ///< at once: see `longestSweptAlone`
  OpSet lagging;          ///< terms of sums relative to pivots
  KernelWork work;
};

} // namespace refold

#endif // REFOLD_LIB_SCHEDULE_CASCADECOUNTER_H
