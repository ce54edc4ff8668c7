// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The work of one stream tile in order, and which values cross between its
// steps.
#include "Planner.h"

#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

bool Planner::readsState(Node *n) {
  return n->kind == Node::Contract || n->isState() ||
         llvm::any_of(n->in, [&](Node *i) { return readsState(i); });
}

/// Reads nothing that changes during the walk of an item.
bool Planner::isFixed(Node *n) {
  return !n->isState() && !(n->set & plan->streams) &&
         llvm::all_of(n->in, [&](Node *i) { return isFixed(i); });
}

/// Reads states of earlier passes, and nothing that changes during a pass.
bool Planner::isComplete(Node *n) {
  return n->kind != Node::Old && n->kind != Node::New &&
         !(n->set & plan->streams) &&
         llvm::all_of(n->in, [&](Node *i) { return isComplete(i); });
}

/// What a nest over indices `nest` (lanes and reduced included) would have to
/// compute again and again: the largest parts with row and stream indices only
/// that lack an index of the nest.
void Planner::keepFor(Node *n, Set nest, NodeSet &kept, bool keepsElements) {
  if (n->kind == Node::Old &&
      plan->states[n->state].form != StatePlan::Matrix) {
    kept.insert(n);
    return;
  }
  if (n->kind != Node::Elem)
    return;
  if (auto dot = plan->dots.find(n); dot != plan->dots.end()) {
    if (dot->second.narrow->kind != Node::Read)
      kept.insert(dot->second.narrow); // as bytes
    return;
  }
  Set allowed = plan->rows | plan->streams |
                (plan->rowLane == kNone ? 0 : bit(plan->rowLane));
  NodeSet all;
  collect(n, all);
  bool readsMatrix = llvm::any_of(all, [&](Node *x) {
    return (x->kind == Node::Old || x->kind == Node::New) &&
           plan->states[x->state].form == StatePlan::Matrix;
  });
  // A nest would compute what is more than a read for every block of lanes.
  bool isElement = keepsElements && plan->hasRow(n->set) &&
                   plan->hasStream(n->set) && plan->rowLane == kNone;
  if ((nest & ~n->set & ~plan->rows) && !(n->set & ~allowed) && !readsMatrix &&
      (readsState(n) || isElement)) {
    kept.insert(n);
    return;
  }
  for (Node *i : n->in)
    keepFor(i, nest, kept, keepsElements);
}

/// What the row steps would compute for every row though no row moves it (a
/// mask of positions, converted and scaled): the largest parts that are more
/// than a read.
void Planner::keepForRows(Node *n, NodeSet &kept) {
  if (n->kind != Node::Elem)
    return;
  NodeSet all;
  collect(n, all);
  auto reads = [](Node *x) { return x->kind == Node::Read; };
  if (!plan->hasRow(n->set) && plan->hasStream(n->set)) {
    if (isa<FloatType>(n->type) && !readsState(n) && llvm::any_of(all, reads))
      kept.insert(n);
    return;
  }
  for (Node *i : n->in)
    keepForRows(i, kept);
}

/// What is made of the numbers of a row before anything else is looked at: the
/// largest parts that rows alone move.
void Planner::keepNumbers(Node *n, NodeSet &kept) {
  if (n->kind != Node::Elem)
    return;
  Set column = plan->column == kNone ? 0 : bit(plan->column);
  if (n->set & ~(plan->rows | column)) {
    for (Node *i : n->in)
      keepNumbers(i, kept);
    return;
  }
  if ((plan->hasRow(n->set) || (n->set & column)) && readsState(n))
    kept.insert(n);
}

/// Costly values that terms of several levels read. Not e^x - 1, of which a
/// later level may take x.
void Planner::keepForLevels(unsigned pass, NodeSet &all, NodeSet &kept) {
  auto isRead = [&](Node *n, StatePlan &s) {
    NodeSet read;
    collect(s.term, read);
    return s.pass == pass && plan->hasRow(s.set) &&
           (s.form == StatePlan::Reduced || s.form == StatePlan::Partial) &&
           read.contains(n);
  };
  for (Node *n : all) {
    if (!isCostly(n) || isa<math::ExpM1Op>(n->op) || kept.contains(n) ||
        !plan->hasStream(n->set) || !plan->hasRow(n->set) ||
        (n->set & ~(plan->rows | plan->streams)) || plan->rowLane != kNone)
      continue;
    std::optional<unsigned> first;
    bool areSeveral = false;
    for (StatePlan &s : plan->states)
      if (isRead(n, s)) {
        areSeveral |= first && *first != s.level;
        first = s.level;
      }
    if (areSeveral && kept.insert(n))
      plan->passing.insert(n);
  }
}

/// A value of level k needs row states of levels below k only.
unsigned Planner::levelOf(Node *n, unsigned pass) {
  if (auto it = levels.find(n); it != levels.end())
    return it->second;
  unsigned level = 0;
  if (n->kind == Node::New) {
    StatePlan &s = plan->states[n->state];
    level = levelOf(s.term, pass);
    for (Node *p : s.payloads)
      level = std::max(level, levelOf(p, pass));
    if (s.moved->kind != Node::Old)
      level = std::max(level, levelOf(s.moved, pass));
    s.level = level;
    ++level;
  } else {
    for (Node *i : n->in)
      level = std::max(level, levelOf(i, pass));
  }
  n->level = level;
  return levels[n] = level;
}

/// All nodes that the states of a pass read; its contractions and kept values.
void Planner::gather(unsigned pass, NodeSet &all, NodeSet &contractions) {
  NodeSet kept;
  bool areRows = plan->mayJoin() && !plan->inner &&
                 llvm::none_of(plan->states, [](const StatePlan &s) {
                   return s.form == StatePlan::Matrix;
                 });
  for (StatePlan &s : plan->states) {
    if (s.pass != pass)
      continue;
    (void)levelOf(plan->graph->version(s.op, Node::New), pass);
    if (s.form == StatePlan::Matrix) {
      if (auto it = plan->pairs.find(s.term); it != plan->pairs.end())
        kept.insert(it->second.own);
      else
        keepFor(s.term, bit(s.lane), kept, /*keepsElements=*/s.keys.empty());
      if (s.keys.empty())
        keepFor(s.moved, bit(s.lane), kept);
    }
    if (s.form != StatePlan::Matrix && plan->hasRow(s.set) &&
        plan->tileRows > 1 && plan->rowLane == kNone)
      keepForRows(s.term, kept);
    if (areRows)
      keepNumbers(s.term, kept);
    collect(s.term, all);
    collect(s.moved, all);
    for (Node *n : s.payloads)
      collect(n, all);
  }
  for (Node *n : all) {
    if (n->kind != Node::Contract)
      continue;
    if (isFixed(n)) {
      if (!llvm::is_contained(plan->prologue, n))
        plan->prologue.push_back(n);
    } else if (isComplete(n)) {
      plan->passes[pass].prelude.push_back(n);
    } else {
      keepFor(n->in[0], n->over, kept);
      contractions.insert(n);
    }
  }
  keepForLevels(pass, all, kept);
  plan->passes[pass].kept.assign(kept.begin(), kept.end());
}

/// Whether a row step has something to do on a level.
bool Planner::needsRows(unsigned pass, unsigned level, bool hasRow,
                        bool rowLanes) {
  auto fits = [&](Set set) {
    return plan->hasRow(set) == hasRow &&
           (plan->rowLane != kNone && (set & bit(plan->rowLane))) == rowLanes;
  };
  for (StatePlan &s : plan->states)
    if (s.pass == pass && s.form != StatePlan::Matrix && s.level == level &&
        fits(s.set))
      return true;
  return llvm::any_of(plan->passes[pass].kept, [&](Node *n) {
    return levelOf(n, pass) == level && fits(n->set);
  });
}

/// Levels that follow each other without a contraction between are one step, so
/// that a row stays in the first cache.
void Planner::addRowSteps(unsigned pass, unsigned level, bool hasRow) {
  PassPlan &p = plan->passes[pass];
  for (bool rowLanes : {false, true}) {
    if (!needsRows(pass, level, hasRow, rowLanes))
      continue;
    Step *last = p.steps.empty() ? nullptr : &p.steps.back();
    if (last && last->kind == Step::Rows && last->hasRow == hasRow &&
        last->rowLanes == rowLanes) {
      last->lastLevel = level;
      continue;
    }
    Step step;
    step.kind = Step::Rows;
    step.hasRow = hasRow;
    step.rowLanes = rowLanes;
    step.firstLevel = step.lastLevel = level;
    p.steps.push_back(step);
  }
}

/// What no row moves goes first: the nests of rows find it ready.
void Planner::orderSteps(unsigned pass) {
  PassPlan &p = plan->passes[pass];
  levels.clear();
  NodeSet all, contractions;
  gather(pass, all, contractions);
  unsigned numLevels = 1;
  for (Node *n : all)
    numLevels = std::max(numLevels, levelOf(n, pass) + 1);
  for (unsigned level = 0; level < numLevels; ++level)
    for (bool hasRow : {false, true}) {
      for (Node *n : contractions)
        if (levelOf(n, pass) == level && plan->hasRow(n->set) == hasRow) {
          Step step;
          step.contraction = n;
          p.steps.push_back(step);
        }
      addRowSteps(pass, level, hasRow);
    }
  // Backwards: a transport reads the old value of earlier states.
  for (StatePlan &s : llvm::reverse(plan->states)) {
    if (s.pass != pass || s.form != StatePlan::Matrix)
      continue;
    Step step;
    step.kind = Step::MatrixState;
    step.state = s.number;
    p.steps.push_back(step);
  }
}

/// A row step overwrites its states: what a later one reads of the old values
/// is kept.
void Planner::keepOldAcrossSteps(unsigned pass) {
  PassPlan &p = plan->passes[pass];
  auto stepOf = [&](Set set, unsigned level) -> const Step * {
    for (Step &step : p.steps) {
      bool hasLanes = plan->rowLane != kNone && (set & bit(plan->rowLane));
      if (step.kind == Step::Rows && step.hasRow == plan->hasRow(set) &&
          step.rowLanes == hasLanes && level >= step.firstLevel &&
          level <= step.lastLevel)
        return &step;
    }
    return nullptr;
  };
  NodeSet kept;
  auto visit = [&](Node *root, const Step *step) {
    NodeSet all;
    collect(root, all);
    for (Node *n : all)
      if (n->kind == Node::Old &&
          plan->states[n->state].form != StatePlan::Matrix &&
          stepOf(n->set, plan->states[n->state].level) != step)
        kept.insert(n);
  };
  for (StatePlan &s : plan->states)
    if (s.pass == pass && s.form != StatePlan::Matrix)
      visit(s.moved, stepOf(s.set, s.level));
  for (Node *n : p.kept)
    if (n->kind != Node::Old)
      visit(n, stepOf(n->set, n->level));
  for (Node *n : kept)
    if (!llvm::is_contained(p.kept, n))
      p.kept.push_back(n);
}

/// Contractions that writes need, operands first; those of the prologue are
/// done.
void Planner::sortContractions(NodeSet &all, SmallVectorImpl<Node *> &out,
                               bool sweep) {
  for (Node *n : all) {
    if (n->kind != Node::Contract || llvm::is_contained(plan->prologue, n) ||
        llvm::is_contained(out, n))
      continue;
    if (isFixed(n))
      plan->prologue.push_back(n);
    else
      out.push_back(n);
  }
}
