// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The k best of as many rows as there are lanes, without a look at most
// elements. The k-th best of the lane maxima of a row, which fill a register or
// two, is no better than its k-th best element: what is not worse than that is
// a candidate. Candidates are compressed row by row, turned so that rows are
// the lanes, and sorted by networks for all rows at once, keys together with
// their places among the candidates; what stands at the best places is then
// picked row by row. Keys that do not fit beside a place enter lists one by
// one: a place keeps what it has, takes what the one before it has, or takes
// the candidate.
#include "Kernel.h"
#include "Networks.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

static unsigned rankOf(StatePlan &s) {
  return cast<BlockArgument>(s.op.getRank()[0]).getArgNumber();
}

static bool isTop(StatePlan &s) { return s.op.getReducer() == Reducer::TopK; }

/// The better of two keys, the second where the first is NaN: a bound that
/// leaves NaNs out is still a bound.
Val Kernel::betterKey(StatePlan &s, Val x, Val y) {
  if (isa<FloatType>(s.type()))
    return to.binary(isTop(s) ? Binary::MaxF : Binary::MinF, x, y);
  return to.binary(isTop(s) ? Binary::MaxSI : Binary::MinSI, x, y);
}

Val Kernel::worseKey(StatePlan &s, Val x, Val y) {
  if (isa<FloatType>(s.type()))
    return to.binary(isTop(s) ? Binary::MinF : Binary::MaxF, x, y);
  return to.binary(isTop(s) ? Binary::MinSI : Binary::MaxSI, x, y);
}

/// Whether a key is as good as `than`, or a NaN.
Val Kernel::isCandidate(StatePlan &s, Val key, Val than) {
  if (isa<FloatType>(s.type()))
    return to.compare(isTop(s) ? Compare::UGE : Compare::ULE, key, than);
  return to.compare(isTop(s) ? Compare::SGE : Compare::SLE, key, than);
}

void Kernel::layOutCandidates(StatePlan &s) {
  Candidates &c = candidates[s.number];
  c = Candidates();
  int64_t n = to.lanes(), k = plan.extent(rankOf(s));
  // Whole registers are stored behind the last candidate.
  c.capacity = to.add(
      to.ceilTo(to.min(extents[plan.stream], plan.tileStream), n), 2 * n);
  auto make = [&](Type type, Ix count) {
    return allocate(/*isShared=*/false, type, count);
  };
  c.maxima = make(s.type(), registersOfMaxima(k, n) * n * n);
  Type i32 = IntegerType::get(s.op.getContext(), 32);
  c.counts = make(i32, n);
  if (s.isSorted) {
    c.places = make(i32, n * n);
    c.placesOfRows = make(i32, n * n);
  }
  for (Type type : s.op.getResultTypes()) {
    c.elements.push_back(make(type, to.mul(c.capacity, n)));
    c.turned.push_back(make(type, n * n));
    c.lists.push_back(make(type, std::max(k, n) * n));
  }
}

/// The k best of the lane maxima of each row, rows along the lanes.
Kernel::Values Kernel::bestOfMaxima(StatePlan &s) {
  Candidates &c = candidates[s.number];
  int64_t n = to.lanes(), k = plan.extent(rankOf(s));
  Buffer &turned = c.turned[0];
  auto better = [&](Val x, Val y) { return betterKey(s, x, y); };
  int64_t size = int64_t(llvm::PowerOf2Ceil(uint64_t(k)));
  Values best;
  for (int64_t at = 0; at < registersOfMaxima(k, n) * n; at += size) {
    if (at % n == 0)
      to.transposeBlock(c.maxima, at * n, n, turned, 0, n);
    Values block;
    for (int64_t i = at % n; i < at % n + size; ++i)
      block.push_back(to.loadWide(turned, i * n, Val()));
    sortPlaces(size, [&](int64_t i, int64_t j) {
      Val first = better(block[i], block[j]);
      block[j] = worseKey(s, block[i], block[j]);
      block[i] = first;
    });
    if (best.empty())
      best = block;
    else
      mergeBest<Val>(best, block, better, [&](int64_t i, int64_t j) {
        Val first = better(best[i], best[j]);
        best[j] = worseKey(s, best[i], best[j]);
        best[i] = first;
      });
  }
  best.truncate(size_t(k));
  return best;
}

/// The best keys of each lane of one row. What has seen a NaN, which is above
/// all numbers, has the best of them.
Kernel::Values Kernel::laneMaxima(StatePlan &s, Step &step, bool isChecked,
                                  Tile &t) {
  constexpr int64_t kParts = 4; // enough in flight to hide a comparison
  int64_t registers = registersOfMaxima(plan.extent(rankOf(s)), to.lanes());
  Builder b(s.op.getContext());
  // Later stream tiles of a long row are rarely looked at again.
  int64_t length = plan.extent(plan.stream);
  bool isLong = !ShapedType::isDynamic(length) && length > plan.tileStream;
  Ahead ahead = isLong && !isChecked
                    ? readsToPrefetch({&s}, /*isInCache=*/false)
                    : Ahead();
  bool hasNan = isTop(s) && isa<FloatType>(s.type());
  Val worst = to.splat(identity(s));
  Values init(kParts, worst);
  if (hasNan)
    init.append(registers, to.splat(to.constant(b.getBoolAttr(true))));
  Values parts = columns(
      step, isChecked, t, init, [&](Tile &inside, int64_t count, Values acc) {
        for (int64_t c = 0; c < count; ++c) {
          Val key = to.splat(eval(inside, s.term, 0, c));
          if (inside.laneLimit)
            key = to.select(maskOf(inside, c), key, worst);
          acc[c % kParts] = betterKey(s, key, acc[c % kParts]);
          if (hasNan) {
            Val &areNumbers = acc[kParts + c % registers];
            areNumbers = to.binary(Binary::AndI, areNumbers,
                                   to.compare(Compare::ORD, key, key));
          }
          if (!inside.laneLimit)
            prefetchAhead(inside, ahead, c);
        }
        return acc;
      });
  Values maxima(ArrayRef(parts).take_front(registers));
  for (int64_t i = registers; i < kParts; ++i)
    maxima[i % registers] = betterKey(s, maxima[i % registers], parts[i]);
  if (hasNan)
    for (auto [r, all] : llvm::enumerate(maxima))
      all =
          to.select(parts[kParts + r], all,
                    to.splat(to.constant(identityOf(Reducer::Min, s.type()))));
  return maxima;
}

/// The same where a row's sums have found them on their way: `parts` of each
/// state, and of each list without an extreme.
Kernel::Values Kernel::maximaOfParts(RowWork &work, StatePlan &list,
                                     ArrayRef<Val> parts) {
  StatePlan *extreme = extremeOfKeys(work, list);
  size_t number = 0;
  for (StatePlan *s : llvm::concat<StatePlan *>(work.states, work.apart)) {
    if (s == (extreme ? extreme : &list))
      break;
    ++number;
  }
  ArrayRef<Val> own = parts.slice(number * work.parts, work.parts);
  Values maxima(registersOfMaxima(plan.extent(rankOf(list)), to.lanes()));
  for (auto [i, part] : llvm::enumerate(own))
    if (part) {
      Val &all = maxima[i % maxima.size()];
      all = all ? to.binary(list.combine, all, part) : part;
    }
  for (Val &all : maxima)
    if (!all) // a row is shorter
      all = to.splat(identity(list));
  return maxima;
}

/// The maxima of one of the rows that are turned together.
void Kernel::keepMaxima(StatePlan &s, ArrayRef<Val> maxima, Ix place) {
  int64_t n = to.lanes();
  for (auto [r, all] : llvm::enumerate(maxima))
    to.storeWide(all, candidates[s.number].maxima,
                 to.mul(to.add(place, int64_t(r) * n), n), Val());
}

/// The candidates of one register, behind the `count` that its row has; returns
/// how many there are then.
Val Kernel::compressColumn(StatePlan &s, Tile &inside, int64_t column,
                           Val bound, Ix place, Val count) {
  Candidates &c = candidates[s.number];
  Values element{to.splat(eval(inside, s.term, 0, column))};
  Val enters = isCandidate(s, element[0], bound);
  if (inside.laneLimit)
    enters = to.binary(Binary::AndI, enters, maskOf(inside, column));
  for (Node *n : s.payloads)
    element.push_back(to.splat(eval(inside, n, 0, column)));
  Ix at = to.add(to.mul(place, c.capacity), to.toIndex(count));
  to.storeCompressed(element, c.elements, at, enters);
  return to.binary(Binary::AddI, count, to.countLanes(enters));
}

/// The candidates of one row, in the order of the stream; behind its list where
/// that is one of them.
void Kernel::compressRow(StatePlan &s, Step &step, bool isChecked, Tile &t,
                         Val bound, Ix place) {
  Val before =
      s.isSorted && !isWholeRow
          ? to.load(candidates[s.number].counts, place)
          : to.constant(Builder(s.op.getContext()).getI32IntegerAttr(0));
  // What this loop reads is in a cache, and memory is free for the next rows.
  SmallVector<Node *> streamed =
      readsToPrefetch({&s}, /*isInCache=*/false).reads;
  Tile next = t;
  next.rowLocal[0] = to.add(t.rowLocal[0], to.lanes());
  Values count =
      columns(step, isChecked, t, {before},
              [&](Tile &inside, int64_t width, Values at) {
                for (int64_t i = 0; i < width; ++i) {
                  at[0] = compressColumn(s, inside, i, bound, place, at[0]);
                  Tile there(&next);
                  there.lane = inside.lane;
                  there.laneLocal = {inside.laneLocal[i]};
                  for (Node *n : streamed)
                    if (!inside.laneLimit)
                      prefetchAt(there, n, i);
                }
                return at;
              });
  to.store(count[0], candidates[s.number].counts, place);
}

/// The extreme of a level that is the best key of a list: its lane maxima are
/// found once.
StatePlan *Kernel::extremeOfKeys(RowWork &work, StatePlan &list) {
  Reducer wanted = isTop(list) ? Reducer::Max : Reducer::Min;
  Reducer number = isTop(list) ? Reducer::MaxNum : Reducer::MinNum;
  for (StatePlan *s : work.states)
    if (s->term == list.term && s->combine == list.combine &&
        llvm::is_contained({wanted, number}, s->op.getReducer()))
      return s;
  return nullptr;
}

/// The lane maxima of all joined rows are known: so are the bounds of their
/// candidates, and the extremes of their keys.
void Kernel::boundJoined(RowWork &work, Tile &head) {
  Builder b(plan.cascade.getContext());
  for (StatePlan *s : work.bounded) {
    Candidates &c = candidates[s->number];
    Values best = bestOfMaxima(*s);
    to.storeWide(best.back(), c.lists[0], 0, Val());
    to.storeWide(to.splat(to.constant(b.getI32IntegerAttr(0))), c.counts, 0,
                 Val());
    if (StatePlan *extreme = extremeOfKeys(work, *s))
      settleJoined(*extreme, best.front(), head);
  }
}

/// Candidates that no level of a joined row has found on its way, and then the
/// lists.
void Kernel::enterJoined(RowWork &work, Step &step, bool isChecked,
                         Tile &head) {
  Ix first = head.laneLocal[0];
  Ix count =
      head.laneLimit ? to.min(to.lanes(), to.sub(rows, first)) : Ix(to.lanes());
  for (StatePlan *s : work.entering) {
    to.each(0, count, 1, [&](Ix i) {
      Tile t = tileOf(to.add(first, i));
      t.holding = head.holding;
      preload(t, s->term, bit(plan.stream));
      for (Node *payload : s->payloads)
        preload(t, payload, bit(plan.stream));
      Val bound = to.load(candidates[s->number].lists[0], i);
      compressRow(*s, step, isChecked, t, to.splat(bound), i);
    });
    enterCandidates(*s, first);
  }
}

/// One candidate a row into the lists: `lists` holds the places of each array
/// one after the other, then the number of elements seen.
Kernel::Values Kernel::enterLists(StatePlan &s, ArrayRef<Val> element,
                                  Val exists, ArrayRef<Val> lists) {
  Builder b(s.op.getContext());
  int64_t k = plan.extent(rankOf(s)), numArrays = element.size();
  Values next(lists);
  Val seen = lists.back();
  Values moves;
  for (int64_t i = 0; i < k; ++i) {
    Val place = to.splat(to.constant(b.getI32IntegerAttr(i + 1)));
    Val takes = to.binary(Binary::OrI, beats(s, element[0], lists[i]),
                          to.compare(Compare::SLT, seen, place));
    moves.push_back(to.binary(Binary::AndI, takes, exists));
  }
  for (int64_t a = 0; a < numArrays; ++a)
    for (int64_t i = 0; i < k; ++i) {
      Val arrives = element[a];
      if (i > 0)
        arrives = to.select(moves[i - 1], lists[a * k + i - 1], arrives);
      next[a * k + i] = to.select(moves[i], arrives, lists[a * k + i]);
    }
  Val one = to.splat(to.constant(b.getI32IntegerAttr(1)));
  Val zero = to.splat(to.constant(b.getI32IntegerAttr(0)));
  next.back() = to.binary(Binary::AddI, seen, to.select(exists, one, zero));
  return next;
}

/// The places of all lists, array by array.
Kernel::Values Kernel::readLists(StatePlan &s, Tile &t) {
  int64_t n = to.lanes(), k = plan.extent(rankOf(s));
  Values lists;
  for (auto [from, into] :
       llvm::zip(arrays[s.number].values, candidates[s.number].lists)) {
    to.transposeBlock(from.buffer, offsetIn(t, from, 0, 0), n, into, 0, n);
    for (int64_t i = 0; i < k; ++i)
      lists.push_back(to.loadWide(into, i * n, Val()));
  }
  return lists;
}

Kernel::Values Kernel::emptyLists(StatePlan &s) {
  Values lists;
  for (Val v : freePlace(s))
    lists.append(plan.extent(rankOf(s)), to.splat(v));
  return lists;
}

/// Where the best of each row are among its candidates, rows along the lanes: a
/// power of two of places, of which the list has the first. `most`: candidates
/// of the row that has the most of them.
Kernel::Values Kernel::sortedPlaces(StatePlan &s, Ix most, Val counts) {
  Candidates &c = candidates[s.number];
  int64_t n = to.lanes();
  int64_t size = int64_t(llvm::PowerOf2Ceil(uint64_t(plan.extent(rankOf(s)))));
  bool isFirstLarge = isTop(s);
  auto better = [&](Val x, Val y) {
    return to.binary(isFirstLarge ? Binary::MaxF : Binary::MinF, x, y);
  };
  auto orderOf = [&](Values &all) {
    return [&, isFirstLarge](int64_t i, int64_t j) {
      Val first = better(all[i], all[j]);
      all[j] =
          to.binary(isFirstLarge ? Binary::MinF : Binary::MaxF, all[i], all[j]);
      all[i] = first;
    };
  };
  auto sorted = [&](Ix block, Ix at) {
    Values some;
    for (int64_t i = 0; i < size; ++i) {
      Val key = to.loadWide(c.turned[0], to.mul(to.add(at, i), n), Val());
      Val place = to.splat(to.toData(to.add(to.add(block, at), i)));
      Val exists = to.compare(Compare::SLT, place, counts);
      some.push_back(to.sortable(key, place, exists, isFirstLarge));
    }
    sortPlaces(size, orderOf(some));
    return some;
  };
  auto turn = [&](Ix block) {
    to.transposeBlock(c.elements[0], block, c.capacity, c.turned[0], 0, n);
  };
  auto rest = [&](Ix block, Ix from, ArrayRef<Val> in) {
    Ix end = to.min(n, to.sub(most, block));
    return to.loop(from, end, size, in, [&](Ix at, ArrayRef<Val> now) {
      Values best(now);
      mergeBest<Val>(best, sorted(block, at), better, orderOf(best));
      return best;
    });
  };
  turn(0);
  Values best = rest(0, size, sorted(0, 0));
  return to.loop(n, most, n, best, [&](Ix block, ArrayRef<Val> in) {
    turn(block);
    return rest(block, 0, in);
  });
}

/// What stands at the best places of each row becomes its list. `isFull`: every
/// row has enough candidates. `registers`: where all of them are in so many, or
/// 0.
void Kernel::takePlaces(StatePlan &s, Ix first, bool isFull,
                        int64_t registers) {
  Candidates &c = candidates[s.number];
  int64_t n = to.lanes(), k = plan.extent(rankOf(s));
  Values free = freePlace(s);
  to.each(0, n, 1, [&](Ix i) {
    Tile t = tileOf(to.add(first, i));
    t.local[rankOf(s)] = Ix(0);
    Val places = to.loadWide(c.placesOfRows, to.mul(i, n), Val());
    Ix row = to.mul(i, c.capacity);
    for (auto [number, array] : llvm::enumerate(arrays[s.number].values)) {
      Buffer &from = c.elements[number];
      Val v;
      if (registers && to.picksLanes(from.element))
        v = pickPlaces(from, row, places, registers);
      else
        v = to.gather(from,
                      to.wideIndexOp(IndexOp::Add, to.toWideIndex(places),
                                     to.wideIndex(row, 0)),
                      to.mask(k));
      if (!isFull)
        v = to.select(to.mask(to.toIndex(to.load(c.counts, i))), v,
                      to.splat(free[number]));
      to.storeWide(v, array.buffer, offsetIn(t, array, 0, 0), Val());
    }
  });
}

/// What is at `places` of some registers in a row.
Val Kernel::pickPlaces(const Buffer &from, Ix row, Val places,
                       int64_t registers) {
  int64_t n = to.lanes();
  Val v = to.pickLanes(to.loadWide(from, row, Val()), places);
  for (int64_t r = 1; r < registers; ++r) {
    Val there = to.loadWide(from, to.add(row, r * n), Val());
    Val isBefore = to.compare(Compare::SLT, places, to.splat(to.toData(r * n)));
    v = to.select(isBefore, v, to.pickLanes(there, places));
  }
  return v;
}

void Kernel::sortCandidates(StatePlan &s, Ix first) {
  Candidates &c = candidates[s.number];
  int64_t n = to.lanes(), k = plan.extent(rankOf(s));
  Tile t = tileOf(first);
  Val counts = to.loadWide(c.counts, 0, Val());
  Ix most = to.toIndex(to.reduceLanes(Binary::MaxSI, counts));
  Ix least = to.toIndex(to.reduceLanes(Binary::MinSI, counts));
  Values best = sortedPlaces(s, most, counts);
  for (int64_t i = 0; i < k; ++i)
    to.storeWide(to.placeOf(best[i], isTop(s)), c.places, i * n, Val());
  to.transposeBlock(c.places, 0, n, c.placesOfRows, 0, n);
  // As many as are usual, and more than those.
  int64_t registers = registersOfMaxima(k, n);
  to.branch(
      to.less(most, registers * n + 1),
      [&] {
        to.branch(
            to.less(least, k), [&] { takePlaces(s, first, false, registers); },
            [&] { takePlaces(s, first, true, registers); });
      },
      [&] { takePlaces(s, first, false, 0); });
  to.storeWide(counts, arrays[s.number].count.buffer,
               offsetIn(t, arrays[s.number].count, 0, 0), Val());
}

/// What the lists of a group of rows have so far comes before all that this
/// stream tile has, and so becomes the first of its candidates.
void Kernel::listsAsCandidates(StatePlan &s, Ix first) {
  Candidates &c = candidates[s.number];
  StateArrays &a = arrays[s.number];
  Builder b(s.op.getContext());
  int64_t n = to.lanes(), k = plan.extent(rankOf(s));
  Tile head = tileOf(first);
  Val seen = to.loadWide(a.count.buffer, offsetIn(head, a.count, 0, 0), Val());
  Val room = to.splat(to.constant(b.getI32IntegerAttr(int32_t(k))));
  to.storeWide(to.binary(Binary::MinSI, seen, room), c.counts, 0, Val());
  to.each(0, n, 1, [&](Ix i) {
    Tile t = tileOf(to.add(first, i));
    t.local[rankOf(s)] = Ix(0);
    for (auto [from, into] : llvm::zip(a.values, c.elements))
      to.storeWide(to.loadWide(from.buffer, offsetIn(t, from, 0, 0), Val()),
                   into, to.mul(i, c.capacity), Val());
  });
}

void Kernel::enterCandidates(StatePlan &s, Ix first) {
  if (s.isSorted)
    return sortCandidates(s, first);
  Candidates &c = candidates[s.number];
  StateArrays &a = arrays[s.number];
  Builder b(s.op.getContext());
  int64_t n = to.lanes(), k = plan.extent(rankOf(s));
  Tile t = tileOf(first);
  t.local[rankOf(s)] = Ix(0);
  Val counts = to.loadWide(c.counts, 0, Val());
  Ix most = to.toIndex(to.reduceLanes(Binary::MaxSI, counts));
  Ix seenAt = offsetIn(t, a.count, 0, 0);
  Values lists = isWholeRow ? emptyLists(s) : readLists(s, t);
  lists.push_back(isWholeRow ? to.splat(to.constant(b.getI32IntegerAttr(0)))
                             : to.loadWide(a.count.buffer, seenAt, Val()));
  lists = to.loop(0, most, n, lists, [&](Ix block, ArrayRef<Val> in) {
    for (auto [from, into] : llvm::zip(c.elements, c.turned))
      to.transposeBlock(from, block, c.capacity, into, 0, n);
    Ix end = to.min(n, to.sub(most, block));
    return to.loop(0, end, 1, in, [&](Ix i, ArrayRef<Val> now) {
      Values element;
      for (Buffer &buffer : c.turned)
        element.push_back(to.loadWide(buffer, to.mul(i, n), Val()));
      Val at = to.splat(to.toData(to.add(block, i)));
      return enterLists(s, element, to.compare(Compare::SLT, at, counts), now);
    });
  });
  to.storeWide(lists.back(), a.count.buffer, seenAt, Val());
  for (auto [number, array] : llvm::enumerate(a.values)) {
    Buffer &turned = c.lists[number];
    for (int64_t i = 0; i < k; ++i)
      to.storeWide(lists[number * k + i], turned, i * n, Val());
    to.transposeBlock(turned, 0, n, array.buffer, offsetIn(t, array, 0, 0), n);
  }
}

/// The last of a row's list, where it may have one.
Val Kernel::lastOf(StatePlan &s, Ix row) {
  if (isWholeRow)
    return identity(s);
  Tile t = tileOf(row);
  t.local[rankOf(s)] = Ix(plan.extent(rankOf(s)) - 1);
  return readArray(t, arrays[s.number].values[0], 0, 0);
}

/// This stream tile, as many rows at a time as there are lanes.
void Kernel::candidateStep(unsigned pass, StatePlan &s, Step &step,
                           bool isChecked) {
  Candidates &c = candidates[s.number];
  Builder b(s.op.getContext());
  int64_t n = to.lanes();
  int64_t registers = registersOfMaxima(plan.extent(rankOf(s)), n);
  auto rowAt = [&](Ix row) {
    Tile t = tileOf(row);
    if (!isChecked)
      t.holding = &plan.passes[pass];
    preload(t, s.term, bit(plan.stream));
    for (Node *payload : s.payloads)
      preload(t, payload, bit(plan.stream));
    return t;
  };
  auto mayEnter = [&](Ix place, Val bound) {
    Val enters;
    for (int64_t r = 0; r < registers; ++r) {
      Val best = to.loadWide(c.maxima, to.mul(to.add(place, r * n), n), Val());
      Val some = isCandidate(s, best, to.splat(bound));
      enters = enters ? to.binary(Binary::OrI, enters, some) : some;
    }
    return to.reduceLanes(Binary::OrI, enters);
  };
  to.each(0, rows, n, [&](Ix first) {
    Ix some = to.min(n, to.sub(rows, first));
    Val never = to.constant(b.getBoolAttr(false));
    Values found = to.loop(0, some, 1, {never}, [&](Ix i, ArrayRef<Val> in) {
      Ix row = to.add(first, i);
      Tile t = rowAt(row);
      keepMaxima(s, laneMaxima(s, step, isChecked, t), i);
      return Values{to.binary(Binary::OrI, in[0], mayEnter(i, lastOf(s, row)))};
    });
    auto enter = [&] {
      to.storeWide(bestOfMaxima(s).back(), c.lists[0], 0, Val());
      if (s.isSorted && !isWholeRow)
        listsAsCandidates(s, first);
      else
        to.storeWide(to.splat(to.constant(b.getI32IntegerAttr(0))), c.counts, 0,
                     Val());
      to.each(0, some, 1, [&](Ix i) {
        Ix row = to.add(first, i);
        Val bound = betterKey(s, lastOf(s, row), to.load(c.lists[0], i));
        Tile t = rowAt(row);
        to.branch(
            mayEnter(i, bound),
            [&] { compressRow(s, step, isChecked, t, to.splat(bound), i); },
            [] {});
      });
      enterCandidates(s, first);
    };
    to.branch(found[0], enter, [] {});
  });
}
