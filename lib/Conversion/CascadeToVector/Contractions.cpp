// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nests that sum: what an item computes before the stream, contractions, states
// with a carried index.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// What an item computes once, before the stream.
void Kernel::prologue() {
  hasOperands = false;
  for (auto [n, index] : plan.operands) {
    Nest nest;
    nest.out = n->set;
    nest.lane = index;
    nest.term = n;
    auto init = [&](Tile &t, int r, int c) {
      return plan.isPaired(n) ? halfOf(t, n, r, c) : eval(t, n, r, c);
    };
    auto sink = [&](Tile &t, int r, int c, Val v) {
      writeArray(t, operands.at(n), r, c, v);
    };
    nest.init = init;
    nest.sink = sink;
    emitNest(nest);
  }
  hasOperands = true;
  layOutRowsInPlace();
  if (plan.product)
    return productWithWrites();
  for (Node *n : plan.prologue)
    contraction(n);
}

void Kernel::contraction(Node *n) {
  NodeSet all;
  collect(n->in[0], all);
  bool readsPanels = llvm::any_of(
      plan.packs, [&](auto &pack) { return all.contains(pack.first); });
  bool isDense = plan.denseAlongLanes.contains(n);
  auto byPanels = [&] { contractionAlong(n, plan.laneOf(n)); };
  auto isAtMost = [&](Ix most, llvm::function_ref<void()> body,
                      llvm::function_ref<void()> otherwise) {
    Ix count = rowsThatShare(plan.inOrder.contains(n));
    if (count.isConstant() && most.isConstant())
      return count.constant <= most.constant ? body() : otherwise();
    to.branch(to.less(count, to.add(most, 1)), body, otherwise);
  };
  auto inPlace = [&] {
    contractionAlong(n, isDense ? plan.laneOf(n) : kNone, isDense);
  };
  auto withoutPanels = [&] {
    if (!plan.inOrder.contains(n))
      return inPlace();
    isAtMost(Plan::kFewRows, inPlace, [&] { contractionInOrder(n); });
  };
  if (!plan.inOrder.contains(n) &&
      (!readsPanels || (!isDense && !plan.direct.contains(n))))
    return byPanels();
  SmallVector<unsigned, 1> openSums;
  if (int index = plan.openSumOf(n); index != kNone)
    openSums.push_back(index);
  isAtMost(rowsInPlace(plan.rowsWithoutPanels(n), openSums), withoutPanels,
           byPanels);
}

const PairPlan *Kernel::pairOf(Node *term) {
  auto it = plan.pairs.find(term);
  return it == plan.pairs.end() ? nullptr : &it->second;
}

/// `lane` kNone: the lanes run along the index that is summed.
void Kernel::contractionAlong(Node *n, int lane, bool inPlace) {
  Nest nest;
  nest.out = n->set;
  nest.lane = lane;
  nest.term = n->in[0];
  nest.combine = isa<FloatType>(n->type) ? Binary::AddF : Binary::AddI;
  nest.identity = identityOf(Reducer::Add, n->type);
  // The index along which reads are dense is innermost.
  int innermost = plan.chooseLane(n->in[0], n->over);
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if ((n->over & bit(i)) && int(i) != innermost)
      nest.reduced.push_back(i);
  nest.reduced.push_back(innermost);
  nest.lanesReduced = lane == kNone;
  nest.pair = lane == kNone ? nullptr : pairOf(nest.term);
  // By itself such a product may have a register tile of half the size: 6 x 2.
  if (!plan.states.empty())
    nest.fewSums = 12;
  nest.inPlace = inPlace;
  nest.readsPanels = !inPlace;
  nest.halvesRows = true;
  if (inPlace) {
    // One row has no others to hide its additions behind: more columns.
    bool hasManyRegisters = plan.facts.vectorRegisters >= 32;
    nest.width = plan.registerLanes * (hasManyRegisters ? 2 : 1);
    nest.rows = Plan::kFewRows;
  }
  // Sums that no further product rounds again are as exact as those of products
  // by themselves.
  nest.isLong = !plan.hasMatrixStates();
  nest.result = n;
  nest.ahead = operandsToPrefetch(nest);
  Val zero = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  Array &array = contractions.at(n);
  nest.fillsArray = true;
  // Found in registers, or in the array once it is filled.
  bool isGatheredLater = nest.lanesReduced || plan.leavesTiles(n);
  if (plan.leavesTiles(n))
    nest.sumsOfTiles = &array;
  SmallVector<StatePlan *, 2> gathered;
  if (!isGatheredLater)
    gathered = gatheredBy(n);
  Node *stored = plan.stored.lookup(n);
  for (StatePlan *s : gathered)
    nest.results.push_back(s->term);
  if (stored)
    nest.results.push_back(stored);
  Values lanesOfRow;
  auto sink = [&](Tile &t, int r, int c, Val v) {
    t.memo[keyOf(t, n, r, c)] = v;
    writeArray(t, array, r, c, stored ? eval(t, stored, r, c) : v);
    gatherColumn(gathered, t, r, c, lanesOfRow);
  };
  nest.init = init;
  nest.sink = sink;
  keptReady.erase(stored); // another form of this nest has left it
  if (!isGatheredLater)
    startGathered(n);
  if (const PairPlan *pair = pairOf(nest.term);
      nest.lanesReduced && pair && pair->isInPlace)
    sumInPlace(nest, *pair);
  else
    emitNest(nest);
  if (isGatheredLater)
    gatherRows(n);
  if (stored) {
    kept[stored] = array;
    keptReady.insert(stored);
  }
}

/// As long as the tiles of attention. Rows that are one tile have longer ones.
constexpr int64_t kLongestTile = 512;

void Kernel::matrixState(StatePlan &s) {
  if (!s.keys.empty())
    return keyedState(s);
  if (isWholeRow) {
    if (s.number == plan.wholes.front()) // steps run backwards
      wholeStates();
    return;
  }
  Nest nest;
  nest.out = s.set;
  nest.lane = s.lane;
  nest.reduced = {unsigned(plan.stream)};
  nest.term = s.term;
  nest.pair = pairOf(s.term);
  nest.readsPanels = true;
  // By itself such a sum may have a register tile of half the size: 6 x 2.
  if (plan.states.size() > 1)
    nest.fewSums = 12;
  nest.isOfStream = true;
  nest.isLong = !plan.wholes.empty() || plan.tileStream > kLongestTile;
  nest.hasShortBlocks = nest.isLong && !hasPanel(s.term);
  nest.halvesRows = true;
  nest.combine = s.combine;
  nest.identity = identityOf(s.op.getReducer(), s.type());
  if (auto apart = sumsApart.find(s.number); apart != sumsApart.end())
    nest.sumsApart = &apart->second;
  else
    nest.ahead = operandsToPrefetch(nest);
  Array &array = arrays[s.number].values[0];
  nest.fillsArray = true;
  nest.results = {s.moved};
  // A tile is summed by itself and then added to what was there: the error of a
  // sum grows with the length of a tile, not of the stream.
  Val start = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(start); };
  auto sink = [&](Tile &t, int r, int c, Val v) {
    writeArray(t, array, r, c, accumulate(t, s.combine, s.moved, v, r, c));
  };
  nest.init = init;
  nest.sink = sink;
  if (nest.sumsApart && nest.sumsApart->isInOrder)
    return sumInOrder(nest, *std::exchange(nest.sumsApart, nullptr));
  if (!nest.pair || !nest.pair->isInPlace)
    return emitNest(nest);
  const PairPlan &pair = *nest.pair;
  whereInPlace(
      pair, [&] { addColumnsInPlace(nest, pair); }, [&] { emitNest(nest); });
}
