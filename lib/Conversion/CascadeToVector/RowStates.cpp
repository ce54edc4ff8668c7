// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// States without a carried index, and what other nests need of them, row by
// row. A level is one traversal of the tile: its terms need states of lower
// levels only.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

void Kernel::eachRow(bool hasRow, llvm::function_ref<void(Ix)> body) {
  if (hasRow && onlyRow)
    body(*onlyRow);
  else if (hasRow)
    to.each(0, rows, 1, body);
  else
    body(Ix(0));
}

Tile Kernel::tileOf(Ix row) {
  Tile t(plan.cascade.numIndices());
  t.rowLocal = {row};
  return t;
}

bool Kernel::belongs(const Step &step, Set set) {
  bool hasLanes = plan.rowLane != kNone && (set & bit(plan.rowLane));
  return plan.hasRow(set) == step.hasRow && hasLanes == step.rowLanes;
}

void Kernel::rowStep(unsigned pass, Step &step) {
  auto rowsOf = [&](bool isChecked) {
    for (StatePlan &s : plan.states)
      if (s.takesCandidates && s.pass == pass && belongs(step, s.set) &&
          s.level >= step.firstLevel && s.level <= step.lastLevel)
        candidateStep(pass, s, step, isChecked);
    eachRow(step.hasRow, [&](Ix row) {
      if (!step.rowLanes) {
        Tile t = tileOf(row);
        if (!isChecked)
          t.holding = &plan.passes[pass];
        return rowGroup(pass, step, isChecked, t);
      }
      Ix range = span(plan.rowLane);
      auto block = [&](Ix at, bool isMasked) {
        Tile t = tileOf(row);
        t.lane = plan.rowLane;
        t.laneLocal = {at};
        t.column = plan.stream;
        if (isMasked)
          t.laneLimit = range;
        if (!isChecked)
          t.holding = &plan.passes[pass];
        rowGroup(pass, step, isChecked, t);
      };
      Ix main = to.floorTo(range, to.lanes());
      to.each(0, main, to.lanes(), [&](Ix at) { block(at, false); });
      if (!range.isConstant() || range.constant % to.lanes())
        to.each(main, range, to.lanes(), [&](Ix at) { block(at, true); });
    });
  };
  PassPlan &p = plan.passes[pass];
  isRagged = p.conditions.empty() && (isBoundary || isWholeRow);
  if (isBoundary && !isRagged)
    to.branch(*isBoundary, [&] { rowsOf(true); }, [&] { rowsOf(false); });
  else
    rowsOf(false);
  isRagged = false;
  for (Node *n : p.kept) {
    unsigned level =
        n->kind == Node::Old ? plan.states[n->state].level : n->level;
    if (belongs(step, n->set) && level >= step.firstLevel &&
        level <= step.lastLevel)
      keptReady.insert(n);
  }
  for (StatePlan &s : plan.states)
    if (s.pass == pass && s.form != StatePlan::Matrix && belongs(step, s.set) &&
        s.level >= step.firstLevel && s.level <= step.lastLevel)
      statesReady.insert(s.number);
}

void Kernel::rowGroup(unsigned pass, Step &step, bool isChecked, Tile &t) {
  for (StatePlan &s : plan.states) {
    if (s.pass != pass || s.form == StatePlan::Matrix ||
        s.form == StatePlan::Ordered || !belongs(step, s.set) ||
        s.level < step.firstLevel || s.level > step.lastLevel)
      continue;
    Node *old = plan.graph->version(s.op, Node::Old);
    const Array &array = arrays[s.number].values[0];
    Val v = !isWholeRow    ? readArray(t, array, 0, 0)
            : array.isWide ? to.splat(identity(s))
                           : identity(s);
    t.memo[keyOf(t, old, 0, 0)] = v;
    if (kept.count(old) && llvm::is_contained(plan.passes[pass].kept, old))
      writeArray(t, kept.at(old), 0, 0, v);
  }
  for (unsigned level = step.firstLevel; level <= step.lastLevel; ++level)
    rowLevel(pass, step, level, isChecked, t);
}

/// The columns of a tile in groups; `body` sees a tile of a few registers (or,
/// with rows along the lanes, of a few stream positions).
Kernel::Values
Kernel::columns(Step &step, bool isChecked, Tile &t, Values init,
                llvm::function_ref<Values(Tile &, int64_t, Values)> body) {
  auto group = [&](Ix at, int64_t count, Values in, bool isMasked) {
    Tile inside(&t);
    for (int64_t c = 0; c < count; ++c)
      (step.rowLanes ? inside.columnLocal : inside.laneLocal)
          .push_back(to.add(at, step.rowLanes ? c : c * to.lanes()));
    if (!step.rowLanes) {
      inside.lane = plan.stream;
      if (isMasked)
        inside.laneLimit = valid;
    }
    return body(inside, count, in);
  };
  int64_t total =
      step.rowLanes ? plan.tileStream : plan.tileStream / to.lanes();
  int64_t count = 4;
  while (total % count)
    count /= 2;
  int64_t width = step.rowLanes ? count : count * to.lanes();
  bool endsHere = isRagged && !step.rowLanes;
  Ix hi = isChecked || endsHere || step.rowLanes ? valid : Ix(plan.tileStream);
  Ix main = endsHere || step.rowLanes ? to.floorTo(hi, width) : hi;
  if (main.isConstant() && main.constant <= width) {
    if (main.constant > 0)
      init = group(0, count, init, isChecked);
  } else {
    init = to.loop(0, main, width, init, [&](Ix at, ArrayRef<Val> in) {
      return group(at, count, Values(in), isChecked);
    });
  }
  if (main.isConstant() && hi.isConstant() && main.constant >= hi.constant)
    return init;
  // The rest: single positions, or single registers of which some lanes count.
  if (step.rowLanes || endsHere)
    init = to.loop(main, hi, step.rowLanes ? 1 : to.lanes(), init,
                   [&](Ix at, ArrayRef<Val> in) {
                     return group(at, 1, Values(in), endsHere);
                   });
  return init;
}

/// What the last pass leaves for the sweep, each once.
NodeSet Kernel::reusedTerms() {
  NodeSet terms;
  for (auto [value, term] : plan.reused)
    terms.insert(term);
  for (auto &[value, likely] : plan.likely)
    terms.insert(likely.term);
  return terms;
}

void Kernel::rowLevel(unsigned pass, Step &step, unsigned level, bool isChecked,
                      Tile &t) {
  PassPlan &p = plan.passes[pass];
  SmallVector<StatePlan *> states, ordered, counts;
  for (StatePlan &s : plan.states)
    if (s.pass == pass && s.form != StatePlan::Matrix && s.level == level &&
        belongs(step, s.set) && !s.takesCandidates)
      (s.form == StatePlan::Ordered ? ordered
       : s.isCount                  ? counts
                                    : states)
          .push_back(&s);
  SmallVector<Node *> wide;
  for (Node *n : p.kept) {
    if (n->level != level || n->kind == Node::Old || !belongs(step, n->set))
      continue;
    if (plan.hasStream(n->set))
      wide.push_back(n);
    else
      writeArray(t, kept.at(n), 0, 0, eval(t, n, 0, 0));
  }
  if (isWholeRow && pass + 1 == plan.passes.size())
    for (Node *term : reusedTerms())
      if (term->level == level && belongs(step, term->set))
        wide.push_back(term);
  for (StatePlan *s : counts)
    updateState(*s, t,
                to.binary(Binary::MulF, eval(t, s->term, 0, 0),
                          to.toFloat(to.toData(valid), s->type())));
  if (states.empty() && ordered.empty() && wide.empty())
    return;
  for (StatePlan *s : states)
    preload(t, s->term, bit(plan.stream));
  for (StatePlan *s : ordered) {
    preload(t, s->term, bit(plan.stream));
    for (Node *n : s->payloads)
      preload(t, n, bit(plan.stream));
  }
  for (Node *n : wide)
    preload(t, n, bit(plan.stream));
  // On the last level, which has the costly terms: asked for on the first,
  // lines would come faster than memory gives them, and then none.
  SmallVector<StatePlan *> all;
  if (level == step.lastLevel && !step.rowLanes && !isChecked)
    for (StatePlan &s : plan.states)
      if (s.pass == pass && s.form != StatePlan::Matrix && belongs(step, s.set))
        all.push_back(&s);
  SmallVector<Node *> streamed = readsToPrefetch(all);
  bool isLast = pass + 1 == plan.passes.size() && level == step.lastLevel;
  constexpr int64_t kParts = 4; // enough sums in flight to hide an addition
  Values init;
  for (StatePlan *s : states)
    init.append(kParts, to.splat(identity(*s)));
  Values parts = columns(
      step, isChecked, t, init, [&](Tile &inside, int64_t count, Values acc) {
        for (int64_t c = 0; c < count; ++c) {
          for (auto [k, s] : llvm::enumerate(states)) {
            Val v = to.splat(eval(inside, s->term, 0, c));
            if (inside.laneLimit && !step.rowLanes)
              v = to.select(maskOf(inside, c), v, to.splat(identity(*s)));
            Val &part = acc[k * kParts + c % kParts];
            part = to.binary(s->combine, v, part);
          }
          for (Node *n : streamed)
            if (!inside.laneLimit)
              prefetchAhead(inside, n, c);
          if (isLast && !inside.laneLimit && !step.rowLanes)
            prefetchResults(inside, c);
          for (Node *n : wide)
            writeArray(inside, kept.at(n), 0, c,
                       plan.isPaired(n) ? halfOf(inside, n, 0, c)
                                        : eval(inside, n, 0, c));
          for (StatePlan *s : ordered)
            orderedColumn(*s, inside, c,
                          isChecked || inside.laneLimit.has_value());
        }
        return acc;
      });
  for (auto [k, s] : llvm::enumerate(states)) {
    auto part = [&](unsigned i) { return parts[k * kParts + i]; };
    Val sum = to.binary(s->combine, to.binary(s->combine, part(0), part(1)),
                        to.binary(s->combine, part(2), part(3)));
    if (s->form == StatePlan::Reduced && t.lane == kNone)
      sum = to.reduceLanes(s->combine, sum);
    updateState(*s, t, sum);
  }
}

/// `sum` is what this tile adds.
void Kernel::updateState(StatePlan &s, Tile &t, Val sum) {
  if (isWholeRow && s.form == StatePlan::Partial && !isReducedTogether(s))
    return writeArray(t, arrays[s.number].finals, 0, 0,
                      to.reduceLanes(s.combine, sum));
  if (isWholeRow && s.form == StatePlan::Partial)
    return writeArray(t, arrays[s.number].values[0], 0, 0, sum);
  if (!isWholeRow) {
    Val moved = eval(t, s.moved, 0, 0);
    sum = to.binary(s.combine, sum, sum.wide ? to.splat(moved) : moved);
  }
  writeArray(t, arrays[s.number].values[0], 0, 0, sum);
  t.memo[keyOf(t, plan.graph->version(s.op, Node::New), 0, 0)] = sum;
}

void Kernel::initialise(unsigned pass) {
  for (StatePlan &s : plan.states) {
    if (s.pass != pass)
      continue;
    if (s.form == StatePlan::Ordered) {
      initialiseOrdered(s);
      continue;
    }
    Nest nest;
    nest.out = s.set;
    nest.lane = s.form == StatePlan::Matrix ? s.lane
                : s.set & (plan.rowLane == kNone ? 0 : bit(plan.rowLane))
                    ? plan.rowLane
                    : kNone;
    auto init = [&](Tile &, int, int) { return identity(s); };
    auto sink = [&](Tile &t, int r, int c, Val v) {
      writeArray(t, arrays[s.number].values[0], r, c, v);
    };
    nest.init = init;
    nest.sink = sink;
    emitNest(nest);
  }
  initialiseKeyed(pass);
}

/// Whether the rows of a tile fill the lanes, so that lane partials of as many
/// rows are reduced by a transposition, which has no chain of dependent steps
/// a row.
bool Kernel::isReducedTogether(StatePlan &s) {
  // A nest that writes results with its sums needs them before the tile ends.
  return plan.whole == kNone && plan.hasRow(s.set) && !onlyRow &&
         plan.tileRows % to.lanes() == 0 && !(s.set & plan.carried) &&
         to.lanes() > 1;
}

/// Lane partials become values of their rows.
void Kernel::reducePartial(StatePlan &s) {
  Array &from = arrays[s.number].values[0], &into = arrays[s.number].finals;
  auto one = [&](Ix row) {
    Tile t = tileOf(row);
    writeArray(t, into, 0, 0,
               to.reduceLanes(s.combine, readArray(t, from, 0, 0)));
  };
  if (!isReducedTogether(s))
    return eachRow(plan.hasRow(s.set), one);
  Ix main = to.floorTo(rows, to.lanes());
  to.each(0, main, to.lanes(), [&](Ix first) {
    Values partials;
    for (int64_t i = 0; i < to.lanes(); ++i) {
      Tile t = tileOf(to.add(first, i));
      partials.push_back(readArray(t, from, 0, 0));
    }
    Tile t = tileOf(first);
    to.storeWide(to.reduceEach(s.combine, partials), into.buffer,
                 offsetIn(t, into, 0, 0), Val());
  });
  to.each(main, rows, 1, one);
}

/// Of a whole row the tile has reduced those that are not reduced together.
void Kernel::reducePartials(unsigned pass, std::optional<bool> areTogether) {
  for (StatePlan &s : plan.states)
    if (s.pass == pass && s.form == StatePlan::Partial &&
        (!areTogether || *areTogether == isReducedTogether(s)))
      reducePartial(s);
}
