// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// States without a carried index, and what other nests need of them, row by
// row. A level is one traversal of the tile: its terms need states of lower
// levels only.
#include "Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"

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

/// Rows along the lanes, from `first` on.
Tile Kernel::headOf(Ix first) {
  Tile head(plan.cascade.numIndices());
  head.lane = plan.row;
  head.laneLocal = {first};
  if (!rows.isConstant() || rows.constant % to.lanes())
    head.laneLimit = rows;
  return head;
}

void Kernel::eachHead(llvm::function_ref<void(Tile &)> body) {
  auto from = [&](Ix first) {
    Tile head = headOf(first);
    body(head);
  };
  firstOfGroup ? from(*firstOfGroup) : to.each(0, rows, to.lanes(), from);
}

/// A register of columns at a time.
void Kernel::eachColumn(Ix row, llvm::function_ref<void(Tile &)> body) {
  Ix range = span(plan.column);
  auto block = [&](Ix at, bool isMasked) {
    Tile t = tileOf(row);
    t.lane = plan.column;
    t.laneLocal = {at};
    t.column = plan.stream;
    if (isMasked)
      t.laneLimit = range;
    body(t);
  };
  Ix main = to.floorTo(range, to.lanes());
  to.each(0, main, to.lanes(), [&](Ix at) { block(at, false); });
  if (!range.isConstant() || range.constant % to.lanes())
    to.each(main, range, to.lanes(), [&](Ix at) { block(at, true); });
}

/// Whether rows with values over `set` are walked side by side.
bool Kernel::areJoined(Set set) {
  return isJoined && plan.hasRow(set) && !onlyRow;
}

/// What a tile finds and leaves of a row state. The lanes of joined rows are
/// reduced in every tile.
Array &Kernel::runningOf(StatePlan &s) {
  StateArrays &a = arrays[s.number];
  return s.form == StatePlan::Partial && areJoined(s.set) ? a.finals
                                                          : a.values[0];
}

bool Kernel::belongs(const Step &step, Set set) {
  bool hasLanes = plan.rowLane != kNone && (set & bit(plan.rowLane));
  return plan.hasRow(set) == step.hasRow && hasLanes == step.rowLanes;
}

/// Whether the rows of a step are joined, so that lists look for candidates
/// while the levels of the row traverse it.
bool Kernel::joinsLists(const Step &step) {
  return isJoined && step.hasRow && !onlyRow;
}

void Kernel::rowStep(unsigned pass, Step &step) {
  if (step.isGathered)
    return gatheredStep(pass, step);
  auto rowsOf = [&](bool isChecked) {
    for (StatePlan &s : plan.states)
      if (s.takesCandidates && s.pass == pass && belongs(step, s.set) &&
          s.level >= step.firstLevel && s.level <= step.lastLevel &&
          !joinsLists(step))
        candidateStep(pass, s, step, isChecked);
    if (isJoined && step.hasRow && !onlyRow)
      return eachHead([&](Tile &head) {
        if (!isChecked)
          head.holding = &plan.passes[pass];
        rowGroup(pass, step, isChecked, head);
      });
    eachRow(step.hasRow, [&](Ix row) {
      if (!step.rowLanes) {
        Tile t = tileOf(row);
        if (!isChecked)
          t.holding = &plan.passes[pass];
        return rowGroup(pass, step, isChecked, t);
      }
      eachColumn(row, [&](Tile &t) {
        if (!isChecked)
          t.holding = &plan.passes[pass];
        rowGroup(pass, step, isChecked, t);
      });
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
        level <= step.lastLevel && !plan.passing.contains(n))
      keptReady.insert(n);
  }
  for (StatePlan &s : plan.states)
    if (s.pass == pass && s.form != StatePlan::Matrix && belongs(step, s.set) &&
        s.level >= step.firstLevel && s.level <= step.lastLevel)
      statesReady.insert(s.number);
}

/// A row, or as many as there are lanes, level by level.
void Kernel::rowGroup(unsigned pass, Step &step, bool isChecked, Tile &head) {
  bool isWide = head.lane == plan.row && plan.row != kNone;
  for (StatePlan &s : plan.states) {
    if (s.pass != pass || s.form == StatePlan::Matrix ||
        s.form == StatePlan::Ordered || !belongs(step, s.set) ||
        s.level < step.firstLevel || s.level > step.lastLevel)
      continue;
    Node *old = plan.graph->version(s.op, Node::Old);
    const Array &array = runningOf(s);
    Val v = !isWholeRow              ? readArray(head, array, 0, 0)
            : array.isWide || isWide ? to.splat(identity(s))
                                     : identity(s);
    head.memo[keyOf(head, old, 0, 0)] = v;
    if (kept.count(old) && llvm::is_contained(plan.passes[pass].kept, old))
      writeArray(head, kept.at(old), 0, 0, v);
  }
  llvm::DenseSet<Node *> keptBefore = keptReady;
  llvm::DenseSet<unsigned> statesBefore = statesReady;
  for (unsigned level = step.firstLevel; level <= step.lastLevel; ++level)
    if (isLazy(pass, step, level))
      lazyLevels(pass, step, level++, isChecked, head);
    else if (isTrailing(pass, step, level))
      trailingLevels(pass, step, level++, isChecked, head);
    else
      rowLevel(pass, step, level, isChecked, head);
  if (joinsLists(step)) {
    RowWork last;
    for (StatePlan &s : plan.states)
      if (s.takesCandidates && s.pass == pass && s.level == step.lastLevel &&
          belongs(step, s.set))
        last.entering.push_back(&s);
    enterJoined(last, step, isChecked, head);
  }
  keptReady = keptBefore;
  statesReady = statesBefore;
}

int64_t Kernel::columnsOfGroup(Step &step) {
  // Few rows need the pass: it should be short, not fast.
  if (!guardsHold.empty())
    return 1;
  int64_t total =
      step.rowLanes ? plan.tileStream : plan.tileStream / to.lanes();
  // What is compared with the pivots of a step of two levels is the best of a
  // group: the fewer groups, the fewer comparisons. Rows side by side may be
  // short.
  int64_t count = isLazyStep && !firstOfGroup ? 8 : 4;
  while (total % count)
    count /= 2;
  return count;
}

/// Positions after which a row's sums are added to a total: a register has then
/// added as many terms as a block of `blockOfSum` has. 0: the tile has no more.
/// Tiles have other lengths where levels are traversed at once, and rows of
/// equal terms err by the length of the chain.
int64_t Kernel::positionsOfChain(Step &step, int64_t parts) {
  constexpr int64_t kChain = 16;
  // Where groups are single registers they are all of one part.
  if (!guardsHold.empty())
    parts = 1;
  int64_t positions = kChain * parts * to.lanes();
  return step.rowLanes || plan.tileStream <= positions ? 0 : positions;
}

void Kernel::closeChain(MutableArrayRef<Val> parts, Val &total, StatePlan &s) {
  Val sum = to.binary(s.combine, parts[0], parts[1]);
  if (parts.size() > 2)
    sum = to.binary(s.combine, sum, to.binary(s.combine, parts[2], parts[3]));
  total = to.binary(s.combine, sum, total);
  std::fill(parts.begin(), parts.end(), to.splat(identity(s)));
}

/// The columns of a tile in groups; `body` sees a tile of a few registers (or,
/// with rows along the lanes, of a few stream positions). Without values in
/// `init` the row is known to be one group, which starts them. `closeChains`
/// follows every `positionsOfChain`.
Kernel::Values
Kernel::columns(Step &step, bool isChecked, Tile &t, Values init,
                llvm::function_ref<Values(Tile &, int64_t, Values)> body,
                llvm::function_ref<Values(Values)> closeChains, int64_t parts) {
  if (depth) {
    auto [count, first] =
        std::pair(*std::exchange(depth, std::nullopt), base[plan.deep]);
    init = to.loop(0, count, 1, init, [&](Ix k, ArrayRef<Val> in) {
      base[plan.deep] = to.add(first, k);
      return columns(step, isChecked, t, Values(in), body, closeChains, parts);
    });
    base[plan.deep] = first;
    depth = count;
    return init;
  }
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
  int64_t count = columnsOfGroup(step);
  int64_t width = step.rowLanes ? count : count * to.lanes();
  bool endsHere = isRagged && !step.rowLanes;
  if (!init.empty() && !init.front())
    return group(0, llvm::divideCeil(valid.constant, to.lanes()), init,
                 !valid.is(width));
  Ix hi = isChecked || endsHere || step.rowLanes ? valid : Ix(plan.tileStream);
  Ix main = endsHere || step.rowLanes ? to.floorTo(hi, width) : hi;
  auto someGroups = [&](Ix first, Ix end, ArrayRef<Val> in) -> Values {
    return to.loop(first, end, width, in, [&](Ix at, ArrayRef<Val> values) {
      return group(at, count, Values(values), isChecked);
    });
  };
  bool isBeside = rowBefore && rowBefore->isDue;
  auto groups = [&](Ix first, Ix end, ArrayRef<Val> in) {
    return isBeside ? besideRow(first, end, in, someGroups)
                    : someGroups(first, end, in);
  };
  int64_t chain = closeChains ? positionsOfChain(step, parts) : 0;
  if (main.isConstant() && main.constant <= width && !isBeside) {
    if (main.constant > 0)
      init = group(0, count, init, isChecked);
  } else if (chain && !(main.isConstant() && main.constant <= chain)) {
    bool areEqual = main.isConstant() && main.constant % chain == 0;
    init = to.loop(0, main, chain, init, [&](Ix first, ArrayRef<Val> in) {
      Ix end = to.add(first, chain);
      return closeChains(groups(first, areEqual ? end : to.min(end, main), in));
    });
  } else {
    init = groups(0, main, init);
  }
  if (main.isConstant() && hi.isConstant() && main.constant >= hi.constant)
    return init;
  if (isBeside)
    sweepBefore(main, hi);
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

Kernel::RowWork Kernel::workOf(unsigned pass, Step &step, unsigned level) {
  RowWork work;
  for (StatePlan &s : plan.states)
    if (s.pass == pass && s.form != StatePlan::Matrix && s.level == level &&
        belongs(step, s.set) && !s.takesCandidates)
      (s.form == StatePlan::Ordered            ? work.ordered
       : s.isCount                             ? work.counts
       : isWholeRow && !s.vanishesWith.empty() ? work.vanishing
                                               : work.states)
          .push_back(&s);
  if (joinsLists(step))
    for (StatePlan &s : plan.states)
      if (s.takesCandidates && s.pass == pass && belongs(step, s.set)) {
        if (s.level + 1 == level)
          work.entering.push_back(&s);
        if (s.level != level)
          continue;
        work.bounded.push_back(&s);
        if (!extremeOfKeys(work, s))
          work.apart.push_back(&s);
      }
  for (Node *n : plan.passes[pass].kept)
    if (n->level == level && n->kind != Node::Old && belongs(step, n->set) &&
        !keptReady.contains(n))
      (plan.hasStream(n->set) ? work.wide : work.numbers).push_back(n);
  if (isWholeRow && pass + 1 == plan.passes.size())
    for (Node *term : reusedTerms())
      if (term->level == level && belongs(step, term->set) &&
          !llvm::is_contained(work.wide, term))
        work.wide.push_back(term);
  return work;
}

/// What a level computes before it looks at the stream.
void Kernel::startLevel(RowWork &work, Tile &head) {
  for (Node *n : work.numbers)
    writeArray(head, kept.at(n), 0, 0, eval(head, n, 0, 0));
  keptReady.insert(work.numbers.begin(), work.numbers.end());
  for (StatePlan *s : work.counts)
    updateState(
        *s, head,
        to.binary(Binary::MulF, eval(head, s->term, 0, 0),
                  to.toFloat(to.toData(depth ? to.mul(valid, *depth) : valid),
                             s->type())));
  for (StatePlan *s : work.vanishing)
    vanishState(*s, head);
}

void Kernel::rowLevel(unsigned pass, Step &step, unsigned level, bool isChecked,
                      Tile &head) {
  RowWork work = workOf(pass, step, level);
  startLevel(work, head);
  if (!work.hasStream())
    return;
  auto sumsOf = [&](Tile &t, bool isOneGroup) {
    return rowSums(pass, step, level, work, isChecked, isOneGroup, t);
  };
  if (isJoined && step.hasRow && !onlyRow) {
    joinedSums(work, columnsOfGroup(step) * to.lanes(), head, sumsOf);
    for (StatePlan *s : work.entering)
      enterCandidates(*s, head.laneLocal[0]);
  } else {
    Values sums = sumsOf(head, /*isOneGroup=*/false);
    for (auto [s, sum] : llvm::zip(work.states, sums)) {
      if (s->form == StatePlan::Reduced && head.lane == kNone)
        sum = to.reduceLanes(s->combine, sum);
      updateState(*s, head, sum);
    }
  }
  // Beside the arrays of others: a later level reads it again.
  for (Node *n : work.wide)
    if (plan.passing.contains(n))
      keptReady.insert(n);
}

/// The sums of rows whose numbers are the lanes of `head`. A row behind the
/// last one has what was there before.
void Kernel::joinedSums(RowWork &work, int64_t width, Tile &head,
                        llvm::function_ref<Values(Tile &, bool)> sumsOf) {
  Ix first = head.laneLocal[0];
  int64_t lanes = to.lanes();
  Ix count = head.laneLimit ? to.min(lanes, to.sub(rows, first)) : Ix(lanes);
  bool isOneGroup = !depth && valid.isConstant() && valid.constant <= width;
  // Extremes whose lane maxima a list turns and sorts anyway.
  llvm::SmallDenseMap<StatePlan *, StatePlan *> listOf;
  for (StatePlan *list : work.bounded)
    if (StatePlan *extreme = extremeOfKeys(work, *list))
      listOf.try_emplace(extreme, list);
  to.each(0, count, 1, [&](Ix i) {
    Tile t = tileOf(to.add(first, i));
    t.holding = head.holding;
    work.place = i;
    Values sums = sumsOf(t, isOneGroup);
    for (auto [k, s] : llvm::enumerate(work.states))
      if (!listOf.count(s))
        to.storeWide(sums[k], arrays[s->number].lanesOfRows, to.mul(i, lanes),
                     Val());
    for (auto [list, maxima] : llvm::zip(work.bounded, work.maxima))
      keepMaxima(*list, maxima, i);
  });
  for (StatePlan *s : work.states) {
    if (listOf.count(s))
      continue;
    Values apart;
    for (int64_t i = 0; i < lanes; ++i)
      apart.push_back(
          to.loadWide(arrays[s->number].lanesOfRows, i * lanes, Val()));
    settleJoined(*s, to.reduceEach(s->combine, apart), head);
  }
  boundJoined(work, head);
}

void Kernel::settleJoined(StatePlan &s, Val sum, Tile &head) {
  // A sum of -0 is 0.
  if (s.combine == Binary::AddF)
    sum = to.binary(s.combine, to.splat(identity(s)), sum);
  updateState(s, head, sum);
  statesReady.insert(s.number);
}

/// Whether all that a level computes along the stream are exponentials that are
/// kept as bf16, and sums of them that no result reads but beside a sum of what
/// is kept: their error is that of the rounding.
bool Kernel::roundsExponentials(const RowWork &work) {
  NodeSet factors;
  for (Node *n : work.wide) {
    bool isRounded = plan.isPaired(n) && n->kind == Node::Elem &&
                     isa<arith::TruncFOp>(n->op) &&
                     n->in[0]->kind == Node::Elem &&
                     isa<math::ExpOp>(n->in[0]->op);
    if (!isRounded)
      return false;
    factors.insert(n->in[0]);
  }
  auto reads = [&](Node *root, auto isState) {
    NodeSet all;
    collect(root, all);
    return llvm::any_of(all, [&](Node *n) {
      return n->kind == Node::Final && isState(plan.states[n->state]);
    });
  };
  auto isOfFactors = [&](const StatePlan &s) {
    auto pair = plan.pairs.find(s.term);
    return pair != plan.pairs.end() &&
           llvm::is_contained(work.wide, pair->second.own);
  };
  bool areSums = llvm::all_of(work.states, [&](StatePlan *s) {
    auto isOwn = [&](const StatePlan &other) { return &other == s; };
    return factors.contains(s->term) &&
           llvm::all_of(plan.finishWrites, [&](WritePlan &w) {
             return !reads(w.value, isOwn) || reads(w.value, isOfFactors);
           });
  });
  return !factors.empty() && areSums && work.ordered.empty() &&
         work.bounded.empty() && work.entering.empty() &&
         plan.sweepWrites.empty() && plan.passes.size() == 1;
}

/// Of every state what the tile adds in one row, a number a lane; lists and
/// kept values are in their arrays.
Kernel::Values Kernel::rowSums(unsigned pass, Step &step, unsigned level,
                               RowWork &work, bool isChecked, bool isOneGroup,
                               Tile &t) {
  Set moving = bit(plan.stream) | (depth ? bit(plan.deep) : 0);
  for (auto *some :
       {&work.states, &work.ordered, &work.bounded, &work.entering})
    for (StatePlan *s : *some) {
      preload(t, s->term, moving);
      for (Node *n : s->payloads)
        preload(t, n, moving);
    }
  // Parts that have no register go through memory one after the other. By
  // AVX2, one thread, kurtosis of 4096 x 4096: 4.4 ms by four, 3.7 by two.
  constexpr int64_t kForTerms = 4;
  int64_t numSums = work.states.size();
  if (work.bounded.empty() &&
      work.parts * numSums + kForTerms > plan.facts.vectorRegisters)
    work.parts = 2;
  for (Node *n : work.wide)
    preload(t, n, moving);
  // On the last level, which has the costly terms: asked for on the first,
  // lines would come faster than memory gives them, and then none.
  SmallVector<StatePlan *> all;
  if (level == step.lastLevel && !step.rowLanes && !isChecked)
    for (StatePlan &s : plan.states)
      if (s.pass == pass && s.form != StatePlan::Matrix && belongs(step, s.set))
        all.push_back(&s);
  Ahead ahead = readsToPrefetch(all, level > step.firstLevel);
  // A register of rows is in the cache since its first level: what comes next
  // are the rows behind it. Zen 5, one thread, softmax and lists of 8 by hand,
  // none, 8, 16, 24, 32 and 48 rows ahead: 65536 x 256 4.0 ms, 3.5, 2.5, 2.5,
  // 2.7, 2.7; 65536 x 128 2.0, 1.8, 1.5, 1.4, 1.4, 1.5; of 64 1.2 and then 1.0.
  if (isJoined && isWholeRow && !firstOfGroup && step.hasRow && !onlyRow &&
      level > step.firstLevel)
    ahead.rows = to.lanes() + to.lanes() / 2;
  bool isLast = pass + 1 == plan.passes.size() && level == step.lastLevel;
  std::optional<LazyPivots> &lazy = plan.passes[pass].lazy;
  bool isRounded = roundsExponentials(work);
  bool isCoarse = isRounded || (lazy && level == lazy->level + 1 &&
                                (work.wide.empty() || sweepsShares()));
  bool areApart = plan.passes[pass].hasGuardsApart;
  Values init;
  for (StatePlan *s : llvm::concat<StatePlan *>(work.states, work.apart))
    init.append(work.parts,
                isOneGroup && !areApart ? Val() : to.splat(identity(*s)));
  size_t firstList = init.size(); // rows along the lanes
  if (step.rowLanes)
    for (StatePlan *s : work.ordered)
      init.append(listsOfLanes(*s, t));
  size_t endOfLists = init.size();
  Values bounds;
  for (StatePlan *s : work.entering) {
    init.push_back(
        to.constant(Builder(s->op.getContext()).getI32IntegerAttr(0)));
    bounds.push_back(
        to.splat(to.load(candidates[s->number].lists[0], work.place)));
  }
  // Behind the counts: totals of the sums whose chains end within the tile.
  size_t firstTotal = init.size();
  llvm::SmallVector<std::pair<StatePlan *, size_t>> chains;
  if (positionsOfChain(step, work.parts) && !isOneGroup)
    for (auto [k, s] : llvm::enumerate(work.states))
      if (s->combine == Binary::AddF) {
        chains.push_back({s, k * work.parts});
        init.push_back(to.splat(identity(*s)));
      }
  auto closeChains = [&](Values acc) {
    for (auto [i, chain] : llvm::enumerate(chains))
      closeChain(MutableArrayRef(acc).slice(chain.second, work.parts),
                 acc[firstTotal + i], *chain.first);
    return acc;
  };
  Values parts = columns(
      step, isChecked, t, init,
      [&](Tile &inside, int64_t count, Values acc) {
        inside.isCoarse = isCoarse;
        inside.isRounded = isRounded;
        bool isMasked = inside.laneLimit && !step.rowLanes;
        if (areApart)
          absorbWhereNeeded(work, isMasked, inside, count, acc);
        for (int64_t c = 0; c < count; ++c) {
          if (!areApart)
            absorbColumn(work, isMasked, inside, c, acc);
          bool isAsking = !inside.laneLimit || inside.laneLocal[0].is(0);
          if (isAsking)
            prefetchAhead(inside, ahead, c);
          if (isLast && isAsking && !step.rowLanes)
            prefetchResults(inside, c);
          if (!step.rowLanes)
            for (StatePlan *s : work.ordered)
              orderedColumn(*s, inside, c,
                            isChecked || inside.laneLimit.has_value());
          for (auto [k, s] : llvm::enumerate(work.entering))
            acc[endOfLists + k] = compressColumn(
                *s, inside, c, bounds[k], work.place, acc[endOfLists + k]);
        }
        // Behind all that is read: what is stored may lie there, for all that
        // is known, and nothing would alternate.
        for (Node *n : work.wide)
          writeColumns(n, inside, count);
        MutableArrayRef<Val> lists =
            MutableArrayRef(acc).slice(firstList, endOfLists - firstList);
        for (StatePlan *s : work.ordered)
          if (step.rowLanes) {
            enterLanes(*s, inside, count, lists);
            lists = lists.drop_front(sizeOfLists(*s));
          }
        return acc;
      },
      closeChains, work.parts);
  for (auto [k, s] : llvm::enumerate(work.entering))
    to.store(parts[endOfLists + k], candidates[s->number].counts, work.place);
  if (step.rowLanes)
    for (ArrayRef<Val> lists = parts; StatePlan * s : work.ordered) {
      keepListsOfLanes(*s, t, lists.slice(firstList, sizeOfLists(*s)));
      lists = lists.drop_front(sizeOfLists(*s));
    }
  Values sums;
  for (StatePlan *s : llvm::concat<StatePlan *>(work.states, work.apart)) {
    auto both = [&](Val x, Val y) {
      return x && y ? to.binary(s->combine, x, y) : x ? x : y;
    };
    Val *part = parts.data() + sums.size() * work.parts;
    Val sum = both(part[0], part[1]);
    sums.push_back(work.parts > 2 ? both(sum, both(part[2], part[3])) : sum);
  }
  work.maxima.clear();
  for (StatePlan *list : work.bounded)
    work.maxima.push_back(maximaOfParts(work, *list, parts));
  for (auto [i, chain] : llvm::enumerate(chains)) {
    Val &sum = sums[chain.second / work.parts];
    sum = to.binary(chain.first->combine, sum, parts[firstTotal + i]);
  }
  return sums;
}

/// One register of a row into the sums that are in work.
void Kernel::absorbColumn(RowWork &work, bool isMasked, Tile &inside, int64_t c,
                          Values &acc, std::optional<unsigned> guard) {
  Val *part = acc.data() + c % work.parts;
  for (StatePlan *s : llvm::concat<StatePlan *>(work.states, work.apart)) {
    if (guard && s->guard != *guard) {
      part += work.parts;
      continue;
    }
    Val v = to.splat(eval(inside, s->term, 0, c));
    if (isMasked)
      v = to.select(maskOf(inside, c), v, to.splat(identity(*s)));
    // An extreme that drops a NaN takes what is there: never a NaN.
    bool dropsNan = s->combine == Binary::MaxF || s->combine == Binary::MinF;
    Val before = !*part && dropsNan ? to.splat(identity(*s)) : *part;
    *part = before ? to.binary(s->combine, v, before) : v;
    part += work.parts;
  }
}

/// The same of a few registers, without the states that no row of the tile
/// needs.
void Kernel::absorbWhereNeeded(RowWork &work, bool isMasked, Tile &inside,
                               int64_t count, Values &acc) {
  Val no = to.constant(guardIs(false));
  for (unsigned guard = 0; guard < guardsHold.size(); ++guard) {
    if (llvm::none_of(work.states,
                      [&](StatePlan *s) { return s->guard == guard; }))
      continue;
    // At most once.
    Values carried{guardsHold[guard]};
    carried.append(acc);
    carried = to.repeat(
        carried, [](ArrayRef<Val> in) { return in[0]; },
        [&](ArrayRef<Val> in) {
          Tile t(&inside);
          Values sums(in.drop_front());
          for (int64_t c = 0; c < count; ++c)
            absorbColumn(work, isMasked, t, c, sums, guard);
          Values out{no};
          out.append(sums);
          return out;
        });
    acc.assign(carried.begin() + 1, carried.end());
  }
}

/// `sum` is what this tile adds.
void Kernel::updateState(StatePlan &s, Tile &t, Val sum) {
  bool isApart = s.form == StatePlan::Partial && !areJoined(s.set);
  if (isWholeRow && isApart)
    return writeArray(t, arrays[s.number].finals, 0, 0,
                      to.reduceLanes(s.combine, sum));
  if (!isWholeRow) {
    Val moved = eval(t, s.moved, 0, 0);
    bool isWide = sum.wide || moved.wide;
    sum = to.binary(s.combine, isWide ? to.splat(sum) : sum,
                    isWide ? to.splat(moved) : moved);
  }
  writeArray(t, runningOf(s), 0, 0, sum);
  t.memo[keyOf(t, plan.graph->version(s.op, Node::New), 0, 0)] = sum;
}

/// 0, or NaN where a sum that it is a combination of is not finite: terms that
/// are an infinity less an infinity have no sum.
void Kernel::vanishState(StatePlan &s, Tile &t) {
  Val zero = to.constant(identityOf(Reducer::Add, s.type())), sum = zero;
  auto both = [&](Binary kind, Val x, Val y) {
    return x.wide || y.wide ? to.binary(kind, to.splat(x), to.splat(y))
                            : to.binary(kind, x, y);
  };
  for (Node *n : s.vanishesWith)
    sum = both(Binary::AddF, sum, both(Binary::MulF, eval(t, n, 0, 0), zero));
  bool isApart = s.form == StatePlan::Partial && !areJoined(s.set);
  writeArray(t, isApart ? arrays[s.number].finals : runningOf(s), 0, 0, sum);
  t.memo[keyOf(t, plan.graph->version(s.op, Node::New), 0, 0)] = sum;
}

void Kernel::initialise(unsigned pass, bool hasLists) {
  for (StatePlan &s : plan.states) {
    if (s.pass != pass)
      continue;
    if (s.isList()) {
      if (hasLists)
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
      writeArray(t, runningOf(s), r, c, v);
    };
    nest.init = init;
    nest.sink = sink;
    emitNest(nest);
  }
  initialiseKeyed(pass);
}

/// Lane partials become values of their rows.
void Kernel::reducePartials(unsigned pass) {
  for (StatePlan &s : plan.states) {
    if (s.pass != pass || s.form != StatePlan::Partial || areJoined(s.set))
      continue;
    eachRow(plan.hasRow(s.set), [&](Ix row) {
      Tile t = tileOf(row);
      Val sum = readArray(t, arrays[s.number].values[0], 0, 0);
      writeArray(t, arrays[s.number].finals, 0, 0,
                 to.reduceLanes(s.combine, sum));
    });
  }
}
