// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of products that are complete when a register tile leaves its loop: a
// contraction without a stream, or the state of rows that are one stream tile.
// What is done to their elements is done in the registers, and written.
#include "Planner.h"

#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

void Planner::findProduct() {
  auto &some =
      plan->prologue.empty() ? plan->finishContractions : plan->prologue;
  if (plan->stream != kNone || !plan->states.empty() || some.size() != 1 ||
      plan->prologue.size() + plan->finishContractions.size() != 1)
    return;
  Node *only = some.front();
  int lane = plan->laneOf(only);
  if (lane == kNone || !plan->hasRow(only->set))
    return;
  for (WritePlan &w : plan->finishWrites) {
    NodeSet nodes;
    collect(w.value, nodes);
    if (w.set != only->set || w.lane != lane || !nodes.contains(only))
      return;
  }
  plan->product = only;
}

static bool readsStateOf(Node *root, unsigned state) {
  NodeSet all;
  collect(root, all);
  return llvm::any_of(
      all, [&](Node *n) { return n->isState() && n->state == int(state); });
}

void Planner::findWhole() {
  Plan &p = *plan;
  if (p.stream == kNone || p.streams != bit(p.stream) || p.rowLane != kNone ||
      p.schedule.segments > 1 || !p.finishContractions.empty() ||
      !p.sweepContractions.empty())
    return;
  for (PassPlan &pass : p.passes)
    if (!pass.prelude.empty() || !pass.conditions.empty() ||
        !pass.guards.empty() || llvm::any_of(pass.steps, [](const Step &step) {
          return step.kind == Step::Contraction;
        }))
      return;
  SmallVector<unsigned, 2> wholes;
  for (StatePlan &s : p.states) {
    if (s.form == StatePlan::Ordered)
      return;
    if (s.form == StatePlan::Matrix)
      wholes.push_back(s.number);
  }
  if (wholes.empty() || !areAlike(wholes))
    return;
  auto isRead = [&](Node *root) {
    return llvm::any_of(
        wholes, [&](unsigned number) { return readsStateOf(root, number); });
  };
  for (StatePlan &s : p.states)
    if (s.form != StatePlan::Matrix && (isRead(s.term) || isRead(s.moved)))
      return;
  if (llvm::any_of(p.sweepWrites,
                   [&](WritePlan &w) { return isRead(w.value); }))
    return;
  StatePlan &first = p.states[wholes.front()];
  bool isWritten = false;
  for (WritePlan &w : p.finishWrites)
    if (isRead(w.value)) {
      if (w.set != first.set || w.lane != first.lane)
        return;
      isWritten = true;
    }
  if (isWritten)
    p.wholes = wholes;
}

/// Whether the states are sums of the last pass over the same places, of which
/// none reads another: one nest sums them all.
bool Planner::areAlike(ArrayRef<unsigned> numbers) {
  StatePlan &first = plan->states[numbers.front()];
  return llvm::all_of(numbers, [&](unsigned number) {
    StatePlan &s = plan->states[number];
    bool readsOthers = llvm::any_of(numbers, [&](unsigned other) {
      return other != number &&
             (readsStateOf(s.term, other) || readsStateOf(s.moved, other));
    });
    bool isDot = numbers.size() > 1 && plan->dots.count(s.term);
    return !isDot && s.pass + 1 == plan->passes.size() && s.keys.empty() &&
           plan->hasRow(s.set) && s.set == first.set && s.lane == first.lane &&
           s.combine == first.combine && s.type() == first.type() &&
           !readsOthers;
  });
}

/// Panel by panel, all rows of the item, all that is summed; what reads the
/// sums is written.
void Kernel::writeSums(Nest nest) {
  nest.readsPanels = !nest.inPlace;
  nest.halvesRows = true;
  nest.isLong = true;
  for (WritePlan &w : plan.finishWrites)
    if (plan.product || readsWhole(w))
      nest.results.push_back(w.value);
  Val zero = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  auto sink = [&](Tile &t, int r, int c, Val) {
    for (WritePlan &w : plan.finishWrites)
      if (plan.product || readsWhole(w))
        storeWrite(t, w, r, c, eval(t, w.value, r, c));
  };
  nest.init = init;
  nest.sink = sink;
  emitNest(nest);
}

/// A single row of the item reads in place what it would lay out in panels for
/// one reading, and sums so long that panels would be large are read there too.
void Kernel::writeSumsOfRows(Nest &nest) {
  auto byPanels = [&] {
    bool hasSeveral = rows.isConstant() && rows.constant > 1;
    if (hasSeveral || !mayReadInPlace(nest))
      return writeSums(nest);
    to.branch(
        to.less(rows, 2), [&] { writeSums(ofSingleRow(nest)); },
        [&] { writeSums(nest); });
  };
  Ix depth = nest.reduced.size() == 1 && int(nest.reduced[0]) != plan.stream
                 ? extents[nest.reduced[0]]
                 : Ix(0);
  constexpr int64_t kDeepest = PackPlan::kDeepestOwn;
  Nest inPlace = nest;
  inPlace.inPlace = true;
  if (!plan.hasOwnPanels() ||
      (depth.isConstant() && depth.constant <= kDeepest))
    return byPanels();
  if (depth.isConstant())
    return writeSums(inPlace);
  to.branch(to.less(depth, kDeepest + 1), byPanels,
            [&] { writeSums(inPlace); });
}

bool Kernel::mayReadInPlace(const Nest &nest) {
  if (!plan.hasOwnPanels() || nest.reduced.size() != 1)
    return false;
  return llvm::all_of(nest.sums, [&](const Sum &sum) {
    NodeSet all;
    collect(sum.term, all);
    return !plan.dots.count(sum.term) && llvm::all_of(all, [&](Node *n) {
      return n->kind != Node::Read || !n->has(nest.lane) ||
             plan.along(n, nest.lane).kind == Along::Unit;
    });
  });
}

/// Memory is what it waits for: long parts of what lies together are read, and
/// asked for some steps of the sum ahead.
Kernel::Nest Kernel::ofSingleRow(Nest nest) {
  constexpr int64_t kMostRegisters = 8, kDepthAhead = 8;
  int64_t registers = plan.registerRows * plan.registerLanes / to.lanes();
  nest.width = std::min(registers, kMostRegisters) * to.lanes();
  nest.inPlace = true;
  nest.depthAhead = kDepthAhead;
  NodeSet all;
  for (const Sum &sum : nest.sums)
    collect(sum.term, all);
  for (Node *n : all)
    if (n->kind == Node::Read && n->has(nest.lane) && n->has(nest.reduced[0]))
      nest.ahead.push_back(n);
  return nest;
}

void Kernel::productWithWrites() {
  Node *n = plan.product;
  Nest nest;
  nest.out = n->set;
  nest.lane = plan.laneOf(n);
  nest.sums = {{n->in[0], n}};
  nest.term = n->in[0];
  nest.combine = isa<FloatType>(n->type) ? Binary::AddF : Binary::AddI;
  nest.identity = identityOf(Reducer::Add, n->type);
  // The index along which reads are dense is innermost.
  int innermost = plan.chooseLane(n->in[0], n->over);
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if ((n->over & bit(i)) && int(i) != innermost)
      nest.reduced.push_back(i);
  nest.reduced.push_back(innermost);
  writeSumsOfRows(nest);
}

/// The row states are complete, and this is the first tile and the last: there
/// is no earlier sum to move.
void Kernel::wholeStates() {
  StatePlan &first = plan.states[plan.wholes.front()];
  Nest nest;
  nest.out = first.set;
  nest.lane = first.lane;
  nest.reduced = {unsigned(plan.stream)};
  for (unsigned number : plan.wholes) {
    StatePlan &s = plan.states[number];
    nest.sums.push_back({s.term, plan.graph->version(s.op, Node::Final)});
  }
  nest.term = first.term;
  nest.combine = first.combine;
  nest.identity = identityOf(first.op.getReducer(), first.type());
  writeSumsOfRows(nest);
}

bool Kernel::readsWhole(WritePlan &w) {
  return llvm::any_of(plan.wholes, [&](unsigned number) {
    return readsStateOf(w.value, number);
  });
}
