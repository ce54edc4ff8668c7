// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where arrays lie in the workspaces. The shape function runs the same code for
// the sizes alone.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

constexpr int64_t kAlignment = 64; // a cache line, and the widest register

Buffer Kernel::allocate(bool isShared, Type element, Ix count, Buffer *pairs) {
  Type stored =
      element.isIndex() ? IntegerType::get(element.getContext(), 32) : element;
  int64_t bytes = llvm::divideCeil(stored.getIntOrFloatBitWidth(), 8);
  Ix &used = isShared ? sharedBytes : privateBytes;
  Ix at = used;
  used = to.add(used, to.ceilTo(to.mul(count, bytes), kAlignment));
  if (isDry)
    return Buffer();
  if (pairs)
    *pairs =
        to.workspace(isShared, at, IntegerType::get(stored.getContext(), 32),
                     to.div(count, 2));
  return to.workspace(isShared, at, stored, count);
}

Ix Kernel::capacity(unsigned index, bool isLane) {
  // Rows of pairs are multiplied in whole tiles.
  constexpr int64_t kRowsOfTile = 16;
  if (int(index) == plan.row && multipliesByOwnPanels() && !plan.usesTiles())
    return rowTile();
  if (int(index) == plan.row)
    return plan.usesTiles() && !plan.pairs.empty()
               ? int64_t(llvm::alignTo(plan.tileRows, kRowsOfTile))
               : plan.tileRows;
  if (int(index) == plan.stream)
    return plan.tileStream;
  if (int(index) == plan.block)
    return plan.tileBlock;
  return isLane ? to.ceilTo(extents[index], plan.registerLanes)
                : extents[index];
}

/// Row first, lane last; indices bound outside the item have no dimension.
/// States of a split stream lie in the shared workspace, one part a segment.
Array Kernel::makeArray(Set set, Type element, int lane, int64_t laneCount,
                        bool isState, int64_t least, bool isPaired) {
  Array a;
  Set fixed = plan.rows | plan.streams;
  if (plan.row != kNone)
    fixed &= ~bit(plan.row);
  if (plan.stream != kNone)
    fixed &= ~bit(plan.stream);
  SmallVector<unsigned> order;
  auto add = [&](int index) {
    if (index != kNone && (set & ~fixed & bit(index)) &&
        !llvm::is_contained(order, unsigned(index)))
      order.push_back(index);
  };
  add(lane);
  for (int i = plan.cascade.numIndices() - 1; i >= 0; --i)
    if (i != plan.row)
      add(i);
  add(plan.row);
  // Rows a page apart would share the sets of the first cache, and the sixteen
  // that a matrix tile stores at once those a quarter of a page apart.
  constexpr int64_t kApartBytes = 5 * kAlignment;
  const int64_t kPageBytes = plan.usesTiles() ? 1024 : 4096;
  int64_t bytes = std::max<int64_t>(
      element.isIndex() ? 4 : element.getIntOrFloatBitWidth() / 8, 1);
  Ix size(std::max<int64_t>(laneCount, 1));
  a.isWide = laneCount > 0;
  for (unsigned index : order) {
    bool isPages =
        size.isConstant() && (size.constant * bytes) % kPageBytes == 0;
    if (int(index) == plan.row && a.dims.size() == 1 && isPages)
      size = to.add(size, kApartBytes / bytes);
    a.dims.push_back({index, size});
    size = to.mul(size, capacity(index, int(index) == lane));
    if (index == order.front())
      size = to.max(size, least);
  }
  a.count = size;
  bool isShared = isState && hasSegments();
  if (isState)
    size = to.mul(size, places());
  if (isShared)
    size = to.mul(size, to.mul(mainItems(), numSegments()));
  a.buffer = allocate(isShared, element, size, isPaired ? &a.pairs : nullptr);
  return a;
}

void Kernel::layOutState(StatePlan &s) {
  StateArrays &a = arrays[s.number];
  a = StateArrays();
  Set set = s.set;
  if (s.form == StatePlan::Ordered) {
    // Lists are turned by whole registers.
    int64_t least = s.takesCandidates ? to.lanes() : 0;
    bool hasRowLanes = plan.rowLane != kNone && (set & bit(plan.rowLane));
    for (Type type : s.op.getResultTypes())
      a.values.push_back(makeArray(set, type,
                                   hasRowLanes ? plan.rowLane : kNone, 0,
                                   /*isState=*/true, least));
    if (s.takesCandidates)
      layOutCandidates(s);
    a.count = makeArray(set & plan.rows,
                        IntegerType::get(s.op.getContext(), 32), kNone, 0,
                        /*isState=*/true);
    return;
  }
  bool hasRowLanes = plan.rowLane != kNone && (set & bit(plan.rowLane));
  int lane = s.form == StatePlan::Matrix ? s.lane
             : hasRowLanes               ? plan.rowLane
                                         : kNone;
  bool isPartial = s.form == StatePlan::Partial;
  a.values.push_back(makeArray(set, s.type(), lane, isPartial ? to.lanes() : 0,
                               /*isState=*/true));
  if (plan.longestJoined && plan.hasRow(set) && s.form != StatePlan::Matrix)
    a.lanesOfRows =
        allocate(/*isShared=*/false, s.type(), to.lanes() * to.lanes());
  if (s.form == StatePlan::Matrix)
    layOutApart(s);
  if (s.gatheredBy)
    a.lanesOfRows =
        allocate(/*isShared=*/false, s.type(), plan.tileRows * to.lanes());
  if (isPartial)
    a.finals = makeArray(set, s.type(), kNone, 0, /*isState=*/true);
}

void Kernel::layOut(bool isDryRun) {
  isDry = isDryRun;
  privateBytes = sharedBytes = Ix(0);
  planRounds();
  contractions.clear();
  kept.clear();
  operands.clear();
  hasOperands = false;
  for (auto [n, index] : plan.operands)
    operands[n] = makeArray(n->set, n->type, index, 0, /*isState=*/false,
                            /*least=*/0, plan.isPaired(n));
  panels.clear();
  sumsApart.clear();
  arrays.assign(plan.states.size(), StateArrays());
  staging.clear();
  for (auto &[node, pack] : plan.packs) {
    Type type = pack.inPairs ? IntegerType::get(node->type.getContext(), 32)
                             : node->type;
    panels[node] = allocate(
        /*isShared=*/!pack.isOwn, type,
        pack.isOwn ? to.mul(stepsOfOwnPanels(pack), plan.registerLanes)
                   : packSize(node, pack));
    if (node != pack.read)
      staging[node] = allocate(/*isShared=*/false, pack.read->type,
                               to.mul(stepsOfPanel(pack), plan.registerLanes));
  }
  for (StatePlan &s : plan.states)
    layOutState(s);
  pivotsOfRows.clear();
  for (PassPlan &p : plan.passes)
    for (size_t k = 0;
         plan.longestGrouped && p.lazy && k < p.lazy->pivots.size(); ++k) {
      Type type = plan.states[p.lazy->pivots[k].state].type();
      pivotsOfRows.push_back(allocate(/*isShared=*/false, type, to.lanes()));
    }
  auto add = [&](Node *n) {
    if (!contractions.count(n))
      contractions[n] = makeArray(n->set, n->type, plan.laneOf(n));
  };
  for (auto *list :
       {&plan.prologue, &plan.finishContractions, &plan.sweepContractions})
    for (Node *n : *list)
      if (n != plan.product)
        add(n);
  auto addOfRow = [&](Node *n, Set set) {
    if (!kept.count(n))
      kept[n] = makeArray(set, n->type, plan.stream);
    kept[n].isOfRow = true;
  };
  for (auto [value, term] : plan.reused)
    addOfRow(term, term->set);
  for (auto &[value, likely] : plan.likely)
    addOfRow(likely.term, likely.term->set);
  for (auto *list : {&plan.numbers, &plan.finishNumbers})
    for (Node *n : *list)
      if (!kept.count(n)) {
        bool hasColumn = plan.column != kNone && n->has(plan.column);
        kept[n] = makeArray(n->set, n->type, hasColumn ? plan.column : kNone);
      }
  for (PassPlan &p : plan.passes) {
    for (Node *n : p.prelude)
      add(n);
    for (Step &step : p.steps)
      if (step.kind == Step::Contraction)
        add(step.contraction);
    for (Node *n : p.kept) {
      bool hasRowLanes = plan.rowLane != kNone && n->has(plan.rowLane);
      bool isWide = n->kind == Node::Old &&
                    plan.states[n->state].form == StatePlan::Partial;
      if (plan.passing.contains(n))
        addOfRow(n, plan.longestJoined ? n->set : n->set & ~bit(plan.row));
      else if (auto it = plan.inPlace.find(n); it != plan.inPlace.end())
        kept[n] = contractions.at(it->second);
      else if (!kept.count(n))
        kept[n] =
            makeArray(n->set, n->type, hasRowLanes ? plan.rowLane : plan.stream,
                      isWide ? to.lanes() : 0, /*isState=*/false, /*least=*/0,
                      plan.isPaired(n));
    }
  }
  bool hasMoved =
      llvm::any_of(plan.dots, [](auto &dot) { return dot.second.isMoved(); });
  if (hasMoved)
    byteSums = makeArray(
        bit(plan.row), IntegerType::get(plan.cascade.getContext(), 32), kNone);
  if (llvm::any_of(llvm::seq<size_t>(0, plan.passes.size()),
                   [&](size_t p) { return flushesIn(p); }))
    flushWords = allocate(/*isShared=*/false,
                          IntegerType::get(plan.cascade.getContext(), 32), 4);
  layOutTurned();
  layOutSums();
  layOutSlices();
  layOutTiles();
  layOutTilesInPlace();
  placed.clear();
  for (unsigned p = 0; p < plan.passes.size(); ++p)
    layOutKeyed(p);
}
