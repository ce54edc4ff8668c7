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
  if (wholes.empty())
    return;
  p.areWholesApart = llvm::none_of(p.finishWrites, [&](WritePlan &w) {
    return llvm::count_if(wholes, [&](unsigned number) {
             return readsStateOf(w.value, number);
           }) > 1;
  });
  if (!areAlike(wholes))
    return;
  auto pairOf = [&](unsigned number) {
    auto it = p.pairs.find(p.states[number].term);
    return it == p.pairs.end() ? nullptr : &it->second;
  };
  // Whole rows read panels.
  for (unsigned number : wholes)
    if (PairPlan *pair = pairOf(number); pair && !p.packs.count(pair->shared))
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
  bool isWritten = false;
  for (WritePlan &w : p.finishWrites)
    for (unsigned number : wholes)
      if (readsStateOf(w.value, number)) {
        StatePlan &s = p.states[number];
        if (w.set != s.set || w.lane != s.lane)
          return;
        isWritten = true;
      }
  if (!isWritten)
    return;
  p.wholes = wholes;
  for (unsigned number : wholes)
    if (PairPlan *pair = pairOf(number))
      pair->isInPlace = false;
}

bool Plan::hasBlocksOfResults() const {
  if (wholes.empty() || block == kNone)
    return false;
  auto isOver = [&](Node *n) { return n->has(block); };
  auto areOver = [&](const auto &list) { return llvm::any_of(list, isOver); };
  bool hasArrays = llvm::any_of(states, [&](const StatePlan &s) {
    return (s.set & bit(block)) && !llvm::is_contained(wholes, s.number);
  });
  for (const PassPlan &pass : passes) {
    hasArrays |= areOver(pass.prelude) || areOver(pass.kept);
    for (const Step &step : pass.steps)
      hasArrays |= step.contraction && isOver(step.contraction);
  }
  for (auto &[n, index] : operands)
    hasArrays |= isOver(n);
  for (auto &[value, term] : reused)
    hasArrays |= isOver(term);
  for (auto &[value, one] : likely)
    hasArrays |= isOver(one.term);
  return !hasArrays && !areOver(prologue) && !areOver(finishContractions) &&
         !areOver(sweepContractions) && !areOver(numbers) &&
         !areOver(finishNumbers);
}

/// Whether the states are sums of the last pass, of which none reads another:
/// one nest sums them all. Over the same places, unless each is summed by
/// itself and no item has some places of one.
bool Planner::areAlike(ArrayRef<unsigned> numbers) {
  StatePlan &first = plan->states[numbers.front()];
  return llvm::all_of(numbers, [&](unsigned number) {
    StatePlan &s = plan->states[number];
    bool isInPlace = (s.set == first.set && s.lane == first.lane) ||
                     (plan->areWholesApart && plan->block == kNone);
    bool readsOthers = llvm::any_of(numbers, [&](unsigned other) {
      return other != number &&
             (readsStateOf(s.term, other) || readsStateOf(s.moved, other));
    });
    bool isDot = numbers.size() > 1 && plan->dots.count(s.term);
    return !isDot && s.pass + 1 == plan->passes.size() && s.keys.empty() &&
           plan->hasRow(s.set) && isInPlace && s.combine == first.combine &&
           s.type() == first.type() && !readsOthers;
  });
}

/// What reads the complete sums of a register tile is written.
void Kernel::storeResults(Tile &t, int r, int c) {
  for (WritePlan &w : plan.finishWrites)
    if (plan.product || readsWhole(w))
      storeWrite(t, w, r, c, eval(t, w.value, r, c));
}

/// Panel by panel, all rows of the item, all that is summed; what reads the
/// sums is written.
void Kernel::writeSums(Nest nest) {
  nest.readsPanels = !nest.inPlace;
  nest.halvesRows = true;
  nest.isLong = true;
  nest.hasShortBlocks = nest.readsPanels && !hasPanel(nest.term);
  nest.isAlone = true;
  nest.isSliced = nest.readsPanels && slicedIndex() != kNone;
  for (WritePlan &w : plan.finishWrites)
    if (plan.product || readsWhole(w))
      nest.results.push_back(w.value);
  Val zero = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  auto sink = [&](Tile &t, int r, int c, Val) { storeResults(t, r, c); };
  nest.init = init;
  nest.sink = sink;
  emitNest(nest);
}

/// Few rows of the item read in place what they would lay out in panels for one
/// reading, and sums so long that panels would be large are read there too.
void Kernel::writeSumsOfRows(Nest &nest) {
  auto byPanels = [&] { writeSums(nest); };
  Ix depth = nest.reduced.size() == 1 && int(nest.reduced[0]) != plan.stream
                 ? extents[nest.reduced[0]]
                 : Ix(0);
  constexpr int64_t kDeepest = PackPlan::kDeepestOwn;
  auto manyRows = [&] {
    Nest inPlace = nest;
    inPlace.inPlace = true;
    if (!plan.hasOwnPanels() || slicedIndex() != kNone ||
        (depth.isConstant() && depth.constant <= kDeepest))
      return byPanels();
    if (depth.isConstant())
      return writeSums(inPlace);
    to.branch(to.less(depth, kDeepest + 1), byPanels,
              [&] { writeSums(inPlace); });
  };
  if (fewRows() == FewRows::AsOthers)
    return manyRows();
  if (Ix isFew = hasFewRows(); isFew.isConstant())
    return isFew.is(1) ? writeFewRows(nest) : manyRows();
  to.branch(
      to.less(extents[plan.row], mostFewRows() + 1),
      [&] { writeFewRows(nest); }, manyRows);
}

/// What is summed when a register tile leaves its loop.
SmallVector<Node *, 2> Kernel::summedTerms() {
  if (plan.product)
    return {plan.product->in[0]};
  SmallVector<Node *, 2> terms;
  for (unsigned number : plan.wholes)
    terms.push_back(plan.states[number].term);
  return terms;
}

/// Of these so many at once. Those of which one begins when another is done
/// share its arrays.
size_t Kernel::sumsAtOnce() {
  return plan.product || plan.areWholesApart ? 1 : plan.wholes.size();
}

/// Few rows are multiplied by an array that is another one in every run where
/// it lies, if that is dense along the lanes or along what is summed.
Kernel::FewRows Kernel::fewRows() {
  SmallVector<Node *, 2> terms = summedTerms();
  if (terms.empty() || !plan.hasOwnPanels() ||
      (plan.product && llvm::popcount(plan.product->over) != 1))
    return FewRows::AsOthers;
  int lane = plan.product ? plan.laneOf(plan.product)
                          : plan.states[plan.wholes.front()].lane;
  // There is one sum for each row and lane.
  auto hasOthers = [&](Set set) { return set & ~(plan.rows | bit(lane)); };
  if (plan.product ? hasOthers(plan.product->set)
                   : llvm::any_of(plan.wholes, [&](unsigned s) {
                       return hasOthers(plan.states[s].set);
                     }))
    return FewRows::AsOthers;
  NodeSet all;
  for (Node *term : terms) {
    if (!isa<FloatType>(term->type))
      return FewRows::AsOthers;
    collect(term, all);
  }
  auto areDense = [&](unsigned along) {
    return llvm::all_of(all, [&](Node *n) {
      return n->kind != Node::Read || !n->has(along) ||
             plan.along(n, along).kind == Along::Unit;
    });
  };
  if (areDense(lane))
    return FewRows::InOrder;
  return plan.product && areDense(llvm::countr_zero(plan.product->over))
             ? FewRows::AlongSum
             : FewRows::AsOthers;
}

int64_t Kernel::mostFewRows() {
  return fewRows() == FewRows::AlongSum ? rowsInOrderAlong(plan.facts)
                                        : rowsInOrder(plan.facts);
}

/// 1 where the rows are at most so many, else 0.
Ix Kernel::hasFewRows() {
  return to.min(1, to.div(Ix(mostFewRows()), to.max(extents[plan.row], 1)));
}

void Kernel::layOutSums() {
  sumsInOrder.clear();
  if (fewRows() == FewRows::AsOthers || hasFewRows().is(0))
    return;
  int lane = plan.product ? plan.laneOf(plan.product)
                          : plan.states[plan.wholes.front()].lane;
  Ix width = lane == plan.block ? Ix(std::max(plan.longBlock(), plan.tileBlock))
                                : to.ceilTo(extents[lane], plan.registerLanes);
  Ix apart = to.add(width, plan.registerLanes); // not a page
  SmallVector<Node *, 2> terms = summedTerms();
  for (Node *term : ArrayRef(terms).take_front(sumsAtOnce())) {
    Array &a = sumsInOrder.emplace_back();
    a.dims = {{unsigned(lane), Ix(1)}, {unsigned(plan.row), apart}};
    a.count = to.mul(apart, mostFewRows());
    a.buffer = allocate(/*isShared=*/false, term->type, a.count);
  }
  if (fewRows() == FewRows::AlongSum)
    contractions[plan.product] = sumsInOrder.front();
}

void Kernel::writeFewRows(const Nest &nest) {
  fewRows() == FewRows::InOrder ? writeSumsInOrder(nest) : writeSumsAlong(nest);
}

/// As many sums at a time as there are lanes, which run along what is summed,
/// then what reads them.
void Kernel::writeSumsAlong(const Nest &nest) {
  constexpr int64_t kBytesAhead = 1024;
  Val zero = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  auto finish = [&](Tile &t, int r, int c, Val) { storeResults(t, r, c); };
  Nest along = nest;
  along.lane = kNone;
  along.lanesReduced = true;
  along.result = plan.product;
  along.sums.clear();
  along.init = init;
  along.sink = finish;
  along.bytesAhead = kBytesAhead;
  NodeSet all;
  collect(nest.term, all);
  for (Node *n : all)
    if (n->kind == Node::Read && n->has(nest.lane) && n->has(nest.reduced[0]))
      along.ahead.push_back(n);
  emitNest(along);

  Nest points;
  points.out = nest.out;
  points.lane = nest.lane;
  points.inPlace = true;
  points.init = init;
  points.sink = finish;
  for (WritePlan &w : plan.finishWrites)
    points.results.push_back(w.value);
  emitNest(points);
}

/// Adds a part of each sum to what is in its array.
void Kernel::addParts(Nest &part, ArrayRef<Array> arrays, Ix first, Ix count) {
  Val zero = to.constant(part.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  auto add = [&](Tile &t, int r, int c, Val) {
    for (auto [sum, array] : llvm::zip(part.sums, arrays)) {
      Val more = t.memo.at(keyOf(t, sum.result, r, c));
      writeArray(t, array, r, c,
                 to.binary(part.combine, readArray(t, array, r, c), more));
    }
  };
  part.init = init;
  part.sink = add;
  part.part = {first, count};
  emitNest(part);
}

void Kernel::clearSums(const Nest &nest, ArrayRef<Array> arrays) {
  Val zero = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  auto clear = [&](Tile &t, int r, int c, Val v) {
    for (const Array &sums : arrays)
      writeArray(t, sums, r, c, v);
  };
  Nest points;
  points.out = nest.out;
  points.lane = nest.lane;
  points.inPlace = true;
  points.init = init;
  points.sink = clear;
  emitNest(points);
}

constexpr int64_t kFewest = 2;

/// One row or two: nothing reads an operand twice, and the machine follows as
/// many of its rows by itself as there are steps. Sum by sum, since it does not
/// follow twice as many. Zen 5, 1 x 4096 x 4096: 16 steps that ask ahead 2.5
/// to 2.9 ms, these 1.5 to 2.0 (the read alone 1.3 to 1.6); of eight rows 3.0
/// and 6.9. Two rows 2.7 (masked, below) or 3.0 (not), these 2.3.
void Kernel::addSumsOfFewest(const Nest &nest) {
  constexpr int64_t kSteps = 8, kRegisters = 4;
  Ix depth = rangeOf(nest.reduced[0]), main = to.floorTo(depth, kSteps);
  for (size_t s = 0; s < nest.sums.size(); ++s) {
    Nest part = nest;
    part.sums = {nest.sums[s]};
    part.term = nest.sums[s].term;
    part.inPlace = part.fillsArray = part.splitsLanes = true;
    part.rows = kFewest;
    part.halvesRows = true;
    part.width = kRegisters * to.lanes();
    ArrayRef<Array> array(sumsInOrder[s]);
    to.each(0, main, kSteps,
            [&](Ix first) { addParts(part, array, first, kSteps); });
    if (depth.isConstant() && depth.constant % kSteps == 0)
      continue;
    part.splitsLanes = false; // a few steps, which one body is enough for
    part.width = to.lanes();
    addParts(part, array, main, to.sub(depth, main));
  }
}

/// More rows take more steps for one reading of their sums. Sapphire Rapids,
/// x[m, 4096] by 4096 x 4096, steps of 16, 32, 64 and 128: m = 8 2.4, -, 2.8
/// and 3.3 ms, m = 16 4.1, 3.9, 3.7 and 4.6, m = 32 8.2, 7.6, 7.2 and 8.4.
/// Whole blocks have a body without masks: a Zen 5 waits longer for a load
/// behind one, whatever it holds (3, 8, 16 and 32 rows by 4096 x 4096, open
/// extents, masked 4.4, 3.1, 5.8 and 8.7 ms, so 2.3, 1.65, 4.6 and 6.8).
void Kernel::addSumsOfRows(const Nest &nest, ArrayRef<Array> arrays) {
  constexpr int64_t kSteps = 16, kStepsOfMore = 64, kRowsOfTile = 8;
  unsigned index = nest.reduced[0];
  Ix depth = rangeOf(index);
  Ix areMore = to.min(1, to.div(extents[plan.row], kRowsOfTile + 1));
  Ix steps = to.add(kSteps, to.mul(areMore, kStepsOfMore - kSteps));
  Nest part = nest;
  part.inPlace = part.fillsArray = part.halvesRows = part.splitsLanes = true;
  part.depthAhead = steps;
  NodeSet all;
  for (const Sum &sum : nest.sums)
    collect(sum.term, all);
  for (Node *n : all)
    if (n->kind == Node::Read && n->has(nest.lane) && n->has(index))
      part.ahead.push_back(n);
  to.each(0, to.ceilDiv(depth, steps), 1, [&](Ix number) {
    Ix first = to.mul(number, steps);
    addParts(part, arrays, first, to.min(steps, to.sub(depth, first)));
  });
}

/// Some steps of the sum at a time, all lanes of the item: rows of the operand
/// are read in order, which is as fast as memory gives them, and the sums are
/// what moves between the first cache and the registers. Zen 4, 1 x 4096 x 4096
/// by hand: 128 columns at a time, all steps, 6.8 ms; 1024 columns, 8 or 16
/// steps, asking for the next ones in the second cache, 2.8 to 3.4. Of many
/// rows the sums come from the second cache.
void Kernel::writeSumsInOrder(const Nest &nest) {
  clearSums(nest, sumsInOrder);
  auto fewest = [&] { addSumsOfFewest(nest); };
  auto more = [&] { addSumsOfRows(nest, sumsInOrder); };
  if (rows.isConstant())
    rows.constant <= kFewest ? fewest() : more();
  else
    to.branch(to.less(rows, kFewest + 1), fewest, more);

  auto finish = [&](Tile &t, int r, int c, Val) {
    for (auto [sum, array] : llvm::zip(nest.sums, sumsInOrder))
      t.memo[keyOf(t, sum.result, r, c)] = readArray(t, array, r, c);
    storeResults(t, r, c);
  };
  Val zero = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(zero); };
  Nest points;
  points.out = nest.out;
  points.lane = nest.lane;
  points.inPlace = true;
  points.init = init;
  for (WritePlan &w : plan.finishWrites)
    if (plan.product || readsWhole(w))
      points.results.push_back(w.value);
  points.sink = finish;
  emitNest(points);
}

/// The same of a contraction that others read: its array is that of the sums.
void Kernel::contractionInOrder(Node *n) {
  Nest nest;
  nest.out = n->set;
  nest.lane = plan.laneOf(n);
  nest.reduced = {unsigned(llvm::countr_zero(n->over))};
  nest.sums = {{n->in[0], n}};
  nest.term = n->in[0];
  nest.combine = Binary::AddF; // as `findDense` asks
  nest.identity = identityOf(Reducer::Add, n->type);
  assert(!plan.stored.count(n) && gatheredBy(n).empty() &&
         "read from registers");
  Array sums = contractions.at(n);
  clearSums(nest, sums);
  addSumsOfRows(nest, sums);
}

void Kernel::productWithWrites() {
  Node *n = plan.product;
  Nest nest;
  nest.out = n->set;
  nest.lane = plan.laneOf(n);
  nest.sums = {{n->in[0], n}};
  nest.term = n->in[0];
  nest.pair = pairOf(nest.term);
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
  auto sum = [&](ArrayRef<unsigned> numbers) {
    StatePlan &first = plan.states[numbers.front()];
    Nest nest;
    nest.out = first.set;
    nest.lane = first.lane;
    nest.reduced = {unsigned(plan.stream)};
    for (unsigned number : numbers) {
      StatePlan &s = plan.states[number];
      nest.sums.push_back({s.term, plan.graph->version(s.op, Node::Final)});
    }
    nest.term = first.term;
    nest.combine = first.combine;
    nest.identity = identityOf(first.op.getReducer(), first.type());
    writeSumsOfRows(nest);
  };
  if (!plan.areWholesApart)
    return sum(plan.wholes);
  for (unsigned number : plan.wholes) {
    wholeAtHand = number;
    sum(number);
  }
  wholeAtHand = std::nullopt;
}

bool Kernel::readsWhole(WritePlan &w) {
  if (wholeAtHand)
    return readsStateOf(w.value, *wholeAtHand);
  return llvm::any_of(plan.wholes, [&](unsigned number) {
    return readsStateOf(w.value, number);
  });
}
