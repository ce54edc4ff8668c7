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
  StatePlan *only = nullptr;
  for (StatePlan &s : p.states) {
    if (s.form == StatePlan::Ordered || (s.form == StatePlan::Matrix && only))
      return;
    if (s.form == StatePlan::Matrix)
      only = &s;
  }
  if (!only || only->pass + 1 != p.passes.size() || !only->keys.empty() ||
      !p.hasRow(only->set))
    return;
  for (StatePlan &s : p.states)
    if (&s != only && (readsStateOf(s.term, only->number) ||
                       readsStateOf(s.moved, only->number)))
      return;
  auto isRead = [&](WritePlan &w) {
    return readsStateOf(w.value, only->number);
  };
  if (llvm::any_of(p.sweepWrites, isRead))
    return;
  bool isWritten = false;
  for (WritePlan &w : p.finishWrites)
    if (isRead(w)) {
      if (w.set != only->set || w.lane != only->lane)
        return;
      isWritten = true;
    }
  if (isWritten)
    p.whole = only->number;
}

/// Panel by panel, all rows of the item, all that is summed; what reads `sum`
/// is written.
void Kernel::writeSums(Nest &nest, Node *sum) {
  nest.readsPanels = true;
  nest.halvesRows = true;
  nest.isLong = true;
  Val zero = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  auto sink = [&](Tile &t, int r, int c, Val v) {
    t.memo[keyOf(t, sum, r, c)] = v;
    for (WritePlan &w : plan.finishWrites)
      if (plan.product || readsWhole(w))
        storeWrite(t, w, r, c, eval(t, w.value, r, c));
  };
  nest.init = init;
  nest.sink = sink;
  emitNest(nest);
}

void Kernel::productWithWrites() {
  Node *n = plan.product;
  Nest nest;
  nest.out = n->set;
  nest.lane = plan.laneOf(n);
  nest.term = n->in[0];
  nest.combine = isa<FloatType>(n->type) ? Binary::AddF : Binary::AddI;
  nest.identity = identityOf(Reducer::Add, n->type);
  // The index along which reads are dense is innermost.
  int innermost = plan.chooseLane(n->in[0], n->over);
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if ((n->over & bit(i)) && int(i) != innermost)
      nest.reduced.push_back(i);
  nest.reduced.push_back(innermost);
  writeSums(nest, n);
}

/// The row states are complete, and this is the first tile and the last: there
/// is no earlier sum to move.
void Kernel::wholeState(StatePlan &s) {
  Nest nest;
  nest.out = s.set;
  nest.lane = s.lane;
  nest.reduced = {unsigned(plan.stream)};
  nest.term = s.term;
  nest.combine = s.combine;
  nest.identity = identityOf(s.op.getReducer(), s.type());
  writeSums(nest, plan.graph->version(s.op, Node::Final));
}

bool Kernel::readsWhole(WritePlan &w) {
  return plan.whole != kNone && readsStateOf(w.value, unsigned(plan.whole));
}
