// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_PLANNER_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_PLANNER_H

#include "Plan.h"

namespace refold::walk {

/// Makes the plan of one cascade.
class Planner {
public:
  Planner(CascadeOp cascade, Schedule schedule, IndexSets sets,
          const TargetFacts &target)
      : plan(std::make_unique<Plan>()), cascade(cascade), target(target) {
    plan->cascade = cascade;
    plan->schedule = std::move(schedule);
    plan->facts = target;
    plan->sets = std::move(sets);
    plan->graph = std::make_unique<Graph>(cascade, plan->sets);
  }
  mlir::FailureOr<std::unique_ptr<Plan>> run();

private:
  llvm::LogicalResult checkTypes();
  llvm::LogicalResult checkOrdered();
  void chooseRoles();
  void chooseTiles();
  static constexpr int64_t kStreamTile = 256; ///< without a schedule
  void chooseStreamTile(int64_t most);
  void makeStates();
  void makeTerms(unsigned pass);
  void makeWrites();
  void chooseForms();
  void chooseCombiners();
  void chooseCandidates();
  void orderSteps(unsigned pass);
  void gather(unsigned pass, NodeSet &all, NodeSet &contractions);
  bool needsRows(unsigned pass, unsigned level, bool hasRow, bool rowLanes);
  void addRowSteps(unsigned pass, unsigned level, bool hasRow);
  void keepOldAcrossSteps(unsigned pass);
  void findDot(Node *term, int sum, int lane);
  void findDots();
  void findDotOfProduct();
  bool isReadBeside(const DotPlan &dot);
  void dropDotsWithoutPanels();
  void findProduct();
  void findWhole();
  bool areAlike(llvm::ArrayRef<unsigned> numbers);
  void findPacks();
  void findOwnPanels();
  void findFlat();
  bool turnsRows();
  void findTurned();
  void chooseSwept();
  void findReused();
  void findVanishing();
  void findLazyPivots(unsigned pass);
  bool addTrailing(StatePlan &s, TrailingPivots &trailing);
  bool mayTrail(llvm::ArrayRef<StatePlan *> sums, TrailingPivots &trailing);
  void findTrailingPivots(unsigned pass);
  bool hidesChains(unsigned pass);
  void lengthenTiles();
  bool addLazyPivots(StatePlan &s, LazyPivots &lazy);
  bool staysInRange(StatePlan &s, const LazyPivots &lazy);
  bool movesBeyond(StatePlan &s, const LazyPivots &lazy);
  bool isLazy(StatePlan &s, llvm::ArrayRef<StatePlan *> sums,
              const LazyPivots &lazy);
  void findInPlace(unsigned pass);
  bool mayOverwrite(PassPlan &pass, unsigned number, Node *contraction,
                    Node *value);
  unsigned levelOf(Node *n, unsigned pass);
  void keepFor(Node *n, Set nest, NodeSet &kept, bool keepsElements = false);
  void keepForRows(Node *n, NodeSet &kept);
  void keepNumbers(Node *n, NodeSet &kept);
  void keepForLevels(unsigned pass, NodeSet &all, NodeSet &kept);
  void keepNumbersOfSweep();
  void chooseJoined();
  bool haveRowsBetweenStreams();
  void chooseDeepTiles();
  bool mayGroup();
  bool fillsFromRegisters(Node *n);
  bool isCompletedFrom(PassPlan &p, Node *n, Node *value);
  void findStored(PassPlan &p);
  bool mayGather(PassPlan &p, unsigned pass, const Step &step, Node *n);
  void gatherExtremes(unsigned pass);
  bool readsState(Node *n);
  bool isFixed(Node *n);
  bool isComplete(Node *n);
  void sortContractions(NodeSet &all, llvm::SmallVectorImpl<Node *> &out,
                        bool sweep);
  void findPairs(unsigned pass);
  void findPairsOfProduct();
  bool mayLieInTiles(const PairPlan &pair);
  int64_t leastRowsInTiles(const PairPlan &pair);
  void considerPairs(Node *term, int lane, Set over);
  void considerPack(Node *root, int lane, int64_t rowsWithout, int openSum,
                    bool isInOrder);
  void considerContraction(Node *n);
  void considerOperand(Node *n, Node *contraction, int lane);
  void findDense(Node *contraction);
  bool mayBeDirect(Node *contraction);
  std::optional<PackPlan> packOf(Node *read, unsigned lane,
                                 bool isWanted = false);
  int64_t tileOf(unsigned index, int64_t otherwise) {
    auto it = plan->schedule.tile.find(cascade.indexName(index).str());
    return it == plan->schedule.tile.end() ? otherwise
                                           : std::max<int64_t>(it->second, 1);
  }
  Set without(int index) { return index == kNone ? ~Set(0) : ~bit(index); }

  std::unique_ptr<Plan> plan;
  CascadeOp cascade;
  const TargetFacts &target;
  llvm::DenseMap<Node *, unsigned> levels;
};

/// Whether `root` reads no running state and no contraction but in what
/// `isKnown`.
bool readsOnly(Node *root, llvm::function_ref<bool(Node *)> isKnown);
/// Whether `root` reads `n` other than through `value`.
bool readsBeside(Node *root, Node *n, Node *value);

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_PLANNER_H
