// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Extremes of what a contraction gives, found while it is in registers: the
// lanes of each row stay apart until the tile is complete, then those of as
// many rows as there are lanes are reduced together, and what is made of the
// numbers of these rows is computed with rows along the lanes. Row by row the
// tile would be read once more, and each row would wait for its extreme.
#include "Planner.h"

#include "Kernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

static bool isExtreme(StatePlan &s) {
  return s.form == StatePlan::Reduced && s.payloads.empty() &&
         llvm::is_contained(
             {Reducer::Max, Reducer::MaxNum, Reducer::Min, Reducer::MinNum},
             s.op.getReducer());
}

/// All that is evaluated anywhere.
static NodeSet rootsOf(Plan &plan) {
  NodeSet roots;
  for (StatePlan &s : plan.states) {
    roots.insert(s.term);
    roots.insert(s.moved);
    roots.insert(s.payloads.begin(), s.payloads.end());
  }
  for (PassPlan &p : plan.passes) {
    roots.insert(p.kept.begin(), p.kept.end());
    for (Condition &c : p.conditions) {
      roots.insert(c.compare);
      roots.insert(c.bound);
    }
    for (RowGuard &guard : p.guards)
      roots.insert(guard.condition);
  }
  for (auto *writes : {&plan.finishWrites, &plan.sweepWrites})
    for (WritePlan &w : *writes)
      roots.insert(w.value);
  return roots;
}

/// Whether one nest leaves `n` in an array, along the stream. Passes of rows
/// that need them have nests of their own.
bool Planner::fillsFromRegisters(Node *n) {
  unsigned count = llvm::is_contained(plan->finishContractions, n) +
                   llvm::is_contained(plan->sweepContractions, n);
  unsigned again = 0;
  for (PassPlan &p : plan->passes)
    (p.guards.empty() ? count : again) += llvm::count_if(
        p.steps, [&](const Step &step) { return step.contraction == n; });
  return (count ? count : again) == 1 && plan->mayJoin() &&
         plan->laneOf(n) == plan->stream && plan->hasRow(n->set) &&
         plan->hasStream(n->set) && !(n->set & ~(plan->rows | plan->streams)) &&
         !plan->denseAlongLanes.contains(n);
}

/// Whether `value` is made of the contraction `n` and what all rows share, by
/// operations that take little time.
bool Planner::isCompletedFrom(PassPlan &p, Node *n, Node *value) {
  auto isShared = [&](Node *x) {
    return x->kind == Node::Const || x->kind == Node::Param ||
           (!plan->hasRow(x->set) && llvm::is_contained(p.kept, x));
  };
  return value->kind == Node::Elem && !isCostly(value) &&
         isa<FloatType>(value->type) && llvm::all_of(value->in, [&](Node *x) {
           return x == n || isShared(x) || isCompletedFrom(p, n, x);
         });
}

/// The most that is made of a contraction before anything else reads it (its
/// product with a constant, the sum of that and a mask) is stored in its place:
/// computed once, not on every level.
void Planner::findStored(PassPlan &p) {
  NodeSet roots = rootsOf(*plan);
  NodeSet all;
  for (Node *root : roots)
    collect(root, all);
  auto isKept = [&](Node *value) {
    return llvm::any_of(plan->passes, [&](PassPlan &other) {
      return llvm::is_contained(other.kept, value);
    });
  };
  auto reads = [](Node *value, Node *n) {
    NodeSet read;
    collect(value, read);
    return read.contains(n);
  };
  for (Step &step : p.steps) {
    Node *n = step.contraction;
    if (step.kind != Step::Contraction || !fillsFromRegisters(n) ||
        plan->leavesTiles(n))
      continue;
    for (Node *value : all) {
      if (value->type != n->type || value->set != n->set ||
          !isCompletedFrom(p, n, value) || !reads(value, n) || isKept(value) ||
          llvm::any_of(roots,
                       [&](Node *r) { return readsBeside(r, n, value); }))
        continue;
      Node *&most = plan->stored[n];
      if (!most || reads(value, most))
        most = value;
    }
  }
}

/// The states on the first level of `step`, if the nest of `n` can find them.
bool Planner::mayGather(PassPlan &p, unsigned pass, const Step &step, Node *n) {
  auto isOfStep = [&](Set set, unsigned level) {
    return level == step.firstLevel && plan->hasRow(set);
  };
  bool isAny = false;
  for (StatePlan &s : plan->states) {
    if (s.pass != pass || s.form == StatePlan::Matrix ||
        !isOfStep(s.set, s.level))
      continue;
    NodeSet all;
    collect(s.term, all);
    if (!isExtreme(s) || s.term->set != n->set || !all.contains(n) ||
        (s.set & ~plan->rows) || llvm::any_of(all, [&](Node *x) {
          return x->isState() || (x->kind == Node::Contract && x != n);
        }))
      return false;
    isAny = true;
  }
  return isAny && llvm::none_of(p.kept, [&](Node *k) {
           return k->kind != Node::Old && isOfStep(k->set, k->level);
         });
}

void Planner::gatherExtremes(unsigned pass) {
  PassPlan &p = plan->passes[pass];
  findStored(p);
  if (!p.guards.empty() || p.lazy || plan->longestJoined)
    return;
  for (size_t i = 1; i < p.steps.size(); ++i) {
    Step step = p.steps[i];
    Node *n = p.steps[i - 1].contraction;
    if (step.kind != Step::Rows || !step.hasRow || step.rowLanes ||
        p.steps[i - 1].kind != Step::Contraction || !fillsFromRegisters(n) ||
        !mayGather(p, pass, step, n))
      continue;
    for (StatePlan &s : plan->states)
      if (s.pass == pass && s.form != StatePlan::Matrix &&
          plan->hasRow(s.set) && s.level == step.firstLevel)
        s.gatheredBy = n;
    Step gathered = step;
    gathered.isGathered = true;
    gathered.lastLevel = step.firstLevel;
    for (Node *k : p.kept)
      if (k->kind != Node::Old && plan->hasRow(k->set) &&
          !(k->set & ~plan->rows) && k->level == step.firstLevel + 1)
        gathered.numbers.push_back(k);
    bool hasMore = step.lastLevel > step.firstLevel;
    p.steps[i] = gathered;
    if (hasMore) {
      ++step.firstLevel;
      p.steps.insert(p.steps.begin() + i + 1, step);
    }
  }
  keepOldAcrossSteps(pass);
}

//===----------------------------------------------------------------------===//
// Code
//===----------------------------------------------------------------------===//

/// The states that the nest of `n` finds; none of them belongs to a pass of
/// rows that need it.
SmallVector<StatePlan *, 2> Kernel::gatheredBy(Node *n) {
  SmallVector<StatePlan *, 2> states;
  if (!guardsHold.empty())
    return states;
  for (StatePlan &s : plan.states)
    if (s.gatheredBy == n)
      states.push_back(&s);
  return states;
}

/// The lanes of all rows of a tile, before the nest of `n`.
void Kernel::startGathered(Node *n) {
  for (StatePlan *s : gatheredBy(n))
    to.each(0, rows, 1, [&](Ix row) {
      to.storeWide(to.splat(identity(*s)), arrays[s->number].lanesOfRows,
                   to.mul(row, to.lanes()), Val());
    });
}

/// One register of the row `r` of a register tile into the lanes of its row.
void Kernel::gatherColumn(ArrayRef<StatePlan *> states, Tile &t, int r, int c,
                          Values &lanes) {
  lanes.resize(states.size());
  // Padding lies behind the end of the stream.
  bool isWhole = !t.laneLimit && valid.isConstant() &&
                 valid.constant % plan.registerLanes == 0;
  for (auto [k, s] : llvm::enumerate(states)) {
    const Buffer &rowsOfLanes = arrays[s->number].lanesOfRows;
    Ix at = to.mul(t.rowLocal[r], to.lanes());
    if (c == 0)
      lanes[k] = to.loadWide(rowsOfLanes, at, Val());
    Val v = to.splat(eval(t, s->term, r, c));
    if (!isWhole)
      v = to.select(to.mask(to.sub(valid, t.laneLocal[c])), v,
                    to.splat(identity(*s)));
    // An extreme that drops a NaN takes what is there: never a NaN.
    lanes[k] = to.binary(s->combine, v, lanes[k]);
    if (c + 1 == t.numColumns())
      to.storeWide(lanes[k], rowsOfLanes, at, Val());
  }
}

/// The same of sums that lie in their array already: of few rows, reduced
/// across the lanes, and of matrix tiles, which store them there.
void Kernel::gatherRows(Node *n) {
  SmallVector<StatePlan *, 2> states = gatheredBy(n);
  Node *stored = plan.stored.lookup(n);
  if (states.empty() && !stored)
    return;
  const Array &array = contractions.at(n);
  to.each(0, rows, 1, [&](Ix row) {
    // Four chains of each extreme: one would wait for itself.
    constexpr int64_t kChains = 4;
    Values lanes;
    for (StatePlan *s : states)
      lanes.append(kChains, to.splat(identity(*s)));
    auto take = [&](Ix at, ArrayRef<Val> in, int64_t count, bool isWhole) {
      Tile t = tileOf(row);
      t.lane = plan.stream;
      t.laneLocal.clear();
      for (int64_t c = 0; c < count; ++c)
        t.laneLocal.push_back(to.add(at, to.mul(to.lanes(), c)));
      Values next(in);
      for (int64_t c = 0; c < count; ++c) {
        t.memo[keyOf(t, n, 0, c)] = readArray(t, array, 0, c);
        if (stored)
          writeArray(t, array, 0, c, eval(t, stored, 0, c));
        for (auto [k, s] : llvm::enumerate(states)) {
          Val v = to.splat(eval(t, s->term, 0, c)),
              &best = next[k * kChains + c];
          if (!isWhole)
            v = to.select(to.mask(to.sub(valid, t.laneLocal[c])), v,
                          to.splat(identity(*s)));
          best = to.binary(s->combine, v, best);
        }
      }
      return next;
    };
    Ix main = to.floorTo(valid, kChains * to.lanes());
    lanes = to.loop(0, main, kChains * to.lanes(), lanes,
                    [&](Ix at, ArrayRef<Val> in) {
                      return take(at, in, kChains, /*isWhole=*/true);
                    });
    lanes =
        to.loop(main, valid, to.lanes(), lanes, [&](Ix at, ArrayRef<Val> in) {
          return take(at, in, 1, /*isWhole=*/false);
        });
    for (auto [k, s] : llvm::enumerate(states)) {
      auto chain = [&](int64_t c) { return lanes[k * kChains + c]; };
      Val best =
          to.binary(s->combine, to.binary(s->combine, chain(0), chain(1)),
                    to.binary(s->combine, chain(2), chain(3)));
      to.storeWide(best, arrays[s->number].lanesOfRows, to.mul(row, to.lanes()),
                   Val());
    }
  });
}

void Kernel::gatheredStep(unsigned pass, Step &step) {
  SmallVector<StatePlan *, 2> states;
  for (StatePlan &s : plan.states)
    if (s.gatheredBy && s.pass == pass && s.level == step.firstLevel)
      states.push_back(&s);
  llvm::DenseSet<Node *> keptBefore = keptReady;
  llvm::DenseSet<unsigned> statesBefore = statesReady;
  eachHead([&](Tile &head) {
    for (StatePlan *s : states) {
      Node *old = plan.graph->version(s->op, Node::Old);
      Val v = readArray(head, runningOf(*s), 0, 0);
      head.memo[keyOf(head, old, 0, 0)] = v;
      if (llvm::is_contained(plan.passes[pass].kept, old))
        writeArray(head, kept.at(old), 0, 0, v);
    }
    for (StatePlan *s : states) {
      Values apart;
      for (int64_t i = 0; i < to.lanes(); ++i)
        apart.push_back(to.loadWide(
            arrays[s->number].lanesOfRows,
            to.mul(to.add(head.laneLocal[0], i), to.lanes()), Val()));
      updateState(*s, head, to.reduceEach(s->combine, apart));
    }
    for (Node *n : step.numbers)
      writeArray(head, kept.at(n), 0, 0, eval(head, n, 0, 0));
  });
  keptReady = keptBefore;
  statesReady = statesBefore;
  for (StatePlan *s : states) {
    statesReady.insert(s->number);
    Node *old = plan.graph->version(s->op, Node::Old);
    if (llvm::is_contained(plan.passes[pass].kept, old))
      keptReady.insert(old);
  }
  keptReady.insert(step.numbers.begin(), step.numbers.end());
}
