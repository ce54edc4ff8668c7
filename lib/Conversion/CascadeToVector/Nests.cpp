// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one loop nest for contractions, states with a carried index and results:
// a register tile of rows times lanes, the reduced indices innermost.
#include "Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "refold/Conversion/CascadeToVector.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

Ix Kernel::rangeOf(unsigned index) {
  if (int(index) == plan.row)
    return rows;
  if (int(index) == plan.stream)
    return valid;
  return span(index);
}

void Kernel::emitNest(Nest &nest) {
  sizeNest(nest);
  sumBytes(nest);
  Tile t(plan.cascade.numIndices());
  if ((t.keyed = nest.keyed))
    for (const StateKey &key : nest.keyed->keys)
      if (!(nest.out & bit(key.carried)))
        t.local[key.carried] = base[key.stream];
  SmallVector<unsigned> loops;
  Set fixed = (plan.rows | plan.streams) &
              ~(plan.stream == kNone ? 0 : bit(plan.stream));
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if ((nest.out & ~fixed & bit(i)) && int(i) != nest.lane &&
        int(i) != plan.row)
      loops.push_back(i);
  if (nest.lanesReduced && nest.result && !loops.empty())
    nest.column = loops.pop_back_val();
  auto enter = [&](auto &self, unsigned depth) -> void {
    if (depth == loops.size())
      return nest.reduced.empty() ? nestPoints(nest, t) : nestLanes(nest, t);
    to.each(0, rangeOf(loops[depth]), 1, [&](Ix i) {
      t.local[loops[depth]] = i;
      self(self, depth + 1);
    });
  };
  enter(enter, 0);
}

/// Whether the item lays out panels along the lanes of the nest.
static bool hasOwnPanelsAlong(Plan &plan, int lane) {
  return llvm::any_of(plan.packs, [&](auto &entry) {
    return entry.second.isOwn && int(entry.second.laneIndex) == lane;
  });
}

/// Blocks of whole register tiles along the lanes, then single registers,
/// masked.
void Kernel::nestLanes(Nest &nest, Tile &outer) {
  if (nest.lanesReduced)
    return nestSums(nest, outer);
  if (nest.lane == kNone) {
    Tile t(&outer);
    return nestRows(nest, t);
  }
  if (nest.streamed)
    return nestStreamed(nest, outer);
  if (nest.sumsApart)
    return nestApart(nest, outer);
  Ix range = rangeOf(nest.lane), extent = extents[nest.lane];
  bool isNarrow = extent.isConstant() && extent.constant < nest.width;
  nest.columnsOfBlocks = isNarrow ? 1 : nest.width / to.lanes();
  if ((nest.readsPanels && hasOwnPanelsAlong(plan, nest.lane)) ||
      nest.isSliced || takesTilesInGroups(nest) || readsRowsOnce(nest))
    return nestGroups(nest, outer);
  nestBlocks(nest, outer, 0, range);
}

/// Lanes [first, end); of panels that the item has made, the first is that of
/// lane `first`.
void Kernel::nestBlocks(Nest &nest, Tile &outer, Ix first, Ix end) {
  int64_t lanes = to.lanes();
  int64_t width = nest.width;
  Nest halves = nest;
  auto block = [&](Ix at, int64_t numColumns, bool isMasked) {
    Tile t(&outer);
    t.lane = nest.lane;
    for (int64_t c = 0; c < numColumns; ++c)
      t.laneLocal.push_back(to.add(at, c * lanes));
    if (isMasked)
      t.laneLimit = end;
    Ix start = to.add(base[nest.lane], at);
    if (nest.readsPanels) {
      bool isWhole = numColumns * lanes == plan.registerLanes;
      t.panel = to.div(start, plan.registerLanes);
      t.inPanel = isWhole ? Ix(0) : to.rem(start, plan.registerLanes);
      t.ownPanel = to.div(to.sub(at, first), plan.registerLanes);
    }
    nestRows(halves, t);
  };
  Ix length = to.sub(end, first);
  // One body for all blocks where extents are not known.
  if (!length.isConstant() && !nest.splitsLanes &&
      (nest.inPlace || !hasOwnPanelsAlong(plan, nest.lane)))
    if (bool isPadded = mayPadLanes(nest); isPadded || mayMaskAll(nest)) {
      auto wide = [&](Ix at) { block(at, width / lanes, !isPadded); };
      if (width == lanes || !mayHaveFewLanes(nest))
        return to.each(first, end, width, wide);
      Ix main = to.floorTo(to.add(length, width - lanes - 1), width);
      to.each(first, to.add(first, main), width, wide);
      halves.addsAsHalves = halves.halvesRows;
      halves.halvesRows = false;
      return to.each(to.add(first, main), end, lanes,
                     [&](Ix at) { block(at, 1, !isPadded); });
    }
  Ix main = to.add(first, to.floorTo(length, width));
  to.each(first, main, width, [&](Ix at) { block(at, width / lanes, false); });
  if (length.isConstant() && length.constant % width == 0)
    return;
  // A store behind a mask of AVX2 is twenty instructions of a Zen 3.
  bool isCheap = plan.facts.vectorRegisters >= 32;
  Ix whole = main;
  if (!isCheap && nest.reduced.empty() && width > lanes) {
    whole = to.add(first, to.floorTo(length, lanes));
    to.each(main, whole, lanes, [&](Ix at) { block(at, 1, false); });
  }
  to.each(whole, end, lanes, [&](Ix at) { block(at, 1, true); });
}

/// One row of a result that is stored past the caches: lanes up to the first
/// aligned address, blocks of whole registers from there, the rest. The lanes
/// of the row's head and tail share their lines with other rows.
void Kernel::nestStreamed(Nest &nest, Tile &outer) {
  Ix range = rangeOf(nest.lane);
  int64_t lanes = to.lanes();
  int64_t width = nest.width;
  auto block = [&](Ix at, int64_t numColumns, const std::optional<Ix> &limit) {
    Tile t(&outer);
    t.lane = nest.lane;
    for (int64_t c = 0; c < numColumns; ++c)
      t.laneLocal.push_back(to.add(at, c * lanes));
    t.laneLimit = limit;
    nestRows(nest, t);
  };
  Tile start(&outer);
  start.lane = nest.lane;
  start.laneLocal = {Ix(0)};
  Ix head = to.min(to.untilAligned(targetBuffer(*nest.streamed),
                                   targetOf(start, *nest.streamed, 0, 0)),
                   range);
  to.each(0, head, lanes, [&](Ix at) { block(at, 1, head); });
  Ix main = to.add(head, to.floorTo(to.sub(range, head), width));
  to.each(head, main, width,
          [&](Ix at) { block(at, width / lanes, std::nullopt); });
  to.each(main, range, lanes, [&](Ix at) { block(at, 1, range); });
}

/// Nothing is reduced: row by row, so that what a row fixes is computed once.
void Kernel::nestPoints(Nest &nest, Tile &outer) {
  eachRow(plan.hasRow(nest.out), [&](Ix row) {
    Tile t(&outer);
    t.rowLocal = {row};
    if (nest.term && nest.lane != kNone)
      preload(t, nest.term, bit(nest.lane));
    Nest one = nest;
    one.out &= plan.row == kNone ? ~Set(0) : ~bit(plan.row);
    if (Shortcuts shortcuts = shortcutsOf(nest))
      nestShortcuts(one, t, shortcuts);
    else
      nestLanes(one, t);
  });
}

/// Lanes along what is summed: as many sums at once as there are lanes, of some
/// rows times some columns, so that each operand read serves several of them
/// and all are reduced across the lanes together. The rest one by one.
void Kernel::nestSums(Nest &nest, Tile &outer) {
  bool hasRow = plan.hasRow(nest.out);
  Ix numRows = hasRow ? rows : Ix(1);
  Ix range = nest.column == kNone ? Ix(1) : rangeOf(nest.column);
  int64_t lanes = to.lanes(), height = 1;
  while (hasRow && nest.result && 4 * height * height <= lanes &&
         2 * height <= plan.tileRows)
    height *= 2;
  if (nest.column != kNone && nest.column == plan.stream && readsApart(nest)) {
    nest.isApart = true;
    nest.ahead.clear();
  }
  auto block = [&](Ix row, Ix column, int64_t numRows, int64_t numColumns,
                   Ix between) {
    Tile t(&outer);
    t.rowLocal.clear();
    for (int64_t r = 0; r < numRows; ++r)
      t.rowLocal.push_back(to.add(row, r));
    if (nest.column != kNone) {
      t.column = nest.column;
      for (int64_t c = 0; c < numColumns; ++c)
        t.columnLocal.push_back(to.add(column, to.mul(between, c)));
    }
    nestBody(nest, t, numRows);
  };
  auto someRows = [&](Ix first, Ix last, int64_t step) {
    int64_t width = nest.column == kNone ? 1 : lanes / step;
    Ix main = to.floorTo(range, width);
    Ix between = nest.isApart ? to.div(main, width) : Ix(1);
    to.each(0, nest.isApart ? between : main, nest.isApart ? 1 : width,
            [&](Ix column) {
              to.each(first, last, step, [&](Ix row) {
                block(row, column, step, width, between);
              });
            });
    if (width > 1)
      to.each(main, range, 1, [&](Ix column) {
        to.each(first, last, 1, [&](Ix row) { block(row, column, 1, 1, 1); });
      });
  };
  Ix main = to.floorTo(numRows, height);
  someRows(0, main, height);
  if (height > 1 && !(main.isConstant() && numRows.is(main.constant)))
    someRows(main, numRows, 1);
}

/// Factors, signs and roundings to a storage type keep the relative error of
/// what they read.
static bool keepsRelativeError(Node *n) {
  return n->kind == Node::Elem &&
         isa<arith::MulFOp, arith::NegFOp, arith::TruncFOp>(n->op);
}

/// The divisions of the lanes by a number of their row, which may be products
/// with its reciprocal: those that nothing reads but factors of a result that
/// leaves the program. Elsewhere another last bit may be another class
/// (1 - x / max) or another integer.
void Kernel::findQuotients(Nest &nest, const NodeSet &all, Shortcuts &found) {
  if (!nest.isFinal)
    return;
  SmallVector<Node *> work{nest.term};
  llvm::DenseSet<Node *> open;
  SmallVector<Node *> quotients;
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    if (!open.insert(n).second)
      continue;
    if (keepsRelativeError(n))
      work.append(n->in.begin(), n->in.end());
    else if (n->kind == Node::Elem && isa<arith::DivFOp>(n->op) &&
             n->has(nest.lane) && !n->in[1]->has(nest.lane) &&
             n->in[1]->kind != Node::Const &&
             (n->type.isF32() || n->type.isF64()))
      quotients.push_back(n);
  }
  auto isRead = [&](Node *quotient) {
    return llvm::any_of(all, [&](Node *n) {
      return llvm::is_contained(n->in, quotient) &&
             !(open.contains(n) && keepsRelativeError(n));
    });
  };
  // A factor that something else reads shows what it is made of.
  for (Node *n : open)
    if (keepsRelativeError(n) && isRead(n))
      return;
  for (Node *n : quotients)
    if (!isRead(n))
      found.quotients.push_back(n);
}

/// Whether `value` is e^(x - max x) over a number of the row, which is 1 over
/// that number somewhere in the row: its error is measured by that.
bool Kernel::isShareOfRow(Node *value) {
  if (value->kind == Node::Elem && isa<arith::TruncFOp>(value->op))
    value = value->in[0];
  auto is = [](Node *n, auto isOp) {
    return n->kind == Node::Elem && isOp(n->op);
  };
  if (!is(value, [](Operation *op) { return isa<arith::DivFOp>(op); }) ||
      plan.hasStream(value->in[1]->set))
    return false;
  Node *power = value->in[0];
  if (!is(power, [](Operation *op) { return isa<math::ExpOp>(op); }) ||
      !is(power->in[0], [](Operation *op) { return isa<arith::SubFOp>(op); }))
    return false;
  Node *extreme = power->in[0]->in[1];
  if (is(extreme, [](Operation *op) { return isa<arith::MaxNumFOp>(op); }))
    extreme = extreme->in[extreme->in[0]->isState() ? 0 : 1];
  if (extreme->kind != Node::Final)
    return false;
  StatePlan &s = plan.states[extreme->state];
  return (s.op.getReducer() == Reducer::Max ||
          s.op.getReducer() == Reducer::MaxNum) &&
         s.term == power->in[0]->in[0];
}

/// Whether exponentials that the sweep reads again are shares of their row.
bool Kernel::sweepsShares() {
  return llvm::all_of(plan.sweepWrites, [&](WritePlan &w) {
    return leavesProgram(w) && isShareOfRow(w.value);
  });
}

Kernel::Shortcuts Kernel::shortcutsOf(Nest &nest) {
  Shortcuts found;
  if (!nest.term || nest.lane == kNone)
    return found;
  NodeSet all;
  collect(nest.term, all);
  findQuotients(nest, all, found);
  found.isCoarse = !found.quotients.empty() && isShareOfRow(nest.term);
  if (hasLikely && nest.lane == plan.stream)
    for (auto &[value, likely] : plan.likely)
      if (all.contains(value))
        found.kept.push_back(value);
  return found;
}

/// Whether 1 / divisor is a normal number.
Val Kernel::hasReciprocal(Tile &t, Node *divisor) {
  Val v = eval(t, divisor, 0, 0);
  auto type = cast<FloatType>(divisor->type);
  int exponent = -llvm::APFloat::semanticsMinExponent(type.getFloatSemantics());
  auto number = [&](double sign, int power) {
    return to.constant(FloatAttr::get(type, std::ldexp(sign, power)));
  };
  auto between = [&](Val low, Val high) {
    return to.binary(Binary::AndI, to.compare(Compare::OGT, v, low),
                     to.compare(Compare::OLT, v, high));
  };
  return to.binary(Binary::OrI,
                   between(number(1, -exponent), number(1, exponent)),
                   between(number(-1, exponent), number(-1, -exponent)));
}

Val Kernel::mayTake(const Shortcuts &shortcuts, Tile &t) {
  SmallVector<Val> conditions;
  for (Node *n : shortcuts.quotients)
    conditions.push_back(hasReciprocal(t, n->in[1]));
  auto isNot = [&](Compare kind, Node *x, Node *y) {
    return to.compare(kind, eval(t, x, 0, 0), eval(t, y, 0, 0));
  };
  Val no = to.constant(guardIs(false)), yes = to.constant(guardIs(true));
  for (Node *n : shortcuts.kept)
    for (auto [x, y] : plan.likely.find(n)->second.equal) {
      // Neither below nor above, nor a NaN.
      Val differs = to.binary(Binary::OrI, isNot(Compare::ULT, x, y),
                              isNot(Compare::UGT, x, y));
      conditions.push_back(to.select(differs, no, yes));
    }
  Val all = conditions.front();
  for (Val condition : ArrayRef(conditions).drop_front())
    all = to.binary(Binary::AndI, all, condition);
  return all;
}

/// One row: as in nearly every row, or else register by register as written.
void Kernel::nestShortcuts(Nest &nest, Tile &t, const Shortcuts &shortcuts) {
  Val may = mayTake(shortcuts, t);
  to.branch(
      may,
      [&] {
        Tile inside(&t);
        inside.isCoarse = shortcuts.isCoarse;
        for (Node *n : shortcuts.quotients) {
          Node *divisor = n->in[1];
          Val one = to.constant(FloatAttr::get(divisor->type, 1.0));
          reciprocals[divisor] =
              to.elementwise(n->op, {one, eval(t, divisor, 0, 0)}, n->type);
        }
        for (Node *n : shortcuts.kept) {
          kept[n] = kept.at(plan.likely.find(n)->second.term);
          keptReady.insert(n);
        }
        nestLanes(nest, inside);
        for (Node *n : shortcuts.kept)
          keptReady.erase(n);
        reciprocals.clear();
      },
      [&] {
        Tile inside(&t);
        Nest narrow = nest;
        narrow.width = to.lanes();
        nestLanes(narrow, inside);
      });
}

/// Behind 6 rows come 4, as five are many of one request.
int64_t Kernel::rowsBelow(int64_t rows) {
  int64_t floor = llvm::bit_floor(uint64_t(rows));
  return floor < rows ? floor : rows / 2;
}

/// Blocks of rows, then single rows.
void Kernel::nestRows(Nest &nest, Tile &outer) {
  if (!plan.hasRow(nest.out))
    return nestBody(nest, outer, 1);
  int64_t block = nest.rows;
  auto some = [&](Ix first, int64_t count, int64_t rowsOfBlocks) {
    Tile t(&outer);
    t.rowLocal.clear();
    for (int64_t r = 0; r < count; ++r)
      t.rowLocal.push_back(to.add(first, r));
    nest.rowsOfBlocks = rowsOfBlocks;
    nestBody(nest, t, count);
  };
  if (nest.isOneBlock)
    return some(nest.window->first, block, block);
  // Blocks of 9 rows end where none of 4 begins: those behind them count from
  // there.
  bool isNested = !nest.window;
  int64_t last = block;
  auto [done, end] = nest.window.value_or(std::pair(Ix(0), rows));
  if (takesTiles(nest, outer)) {
    done = nestTiles(nest, outer, done, end);
    if (nest.pair || (end.isConstant() && done.is(end.constant)))
      return;
  }
  // Rows behind whole tiles: half as many at a time, or one by one.
  auto next = [&](int64_t rows) {
    if (nest.halvesRows)
      return rowsBelow(rows);
    if (!nest.addsAsHalves || rows == 1)
      return int64_t(1);
    int64_t half = rowsBelow(rows);
    while (half > 1 &&
           blockOfSum(nest, half) == blockOfSum(nest, rowsBelow(half)))
      half = rowsBelow(half);
    return half;
  };
  for (;; last = block, block = next(block)) {
    isNested &= last % block == 0;
    Ix main = isNested ? to.floorTo(end, block)
                       : to.add(done, to.floorTo(to.sub(end, done), block));
    bool isOneByOne = nest.addsAsHalves && block < nest.rows;
    to.each(done, main, isOneByOne ? 1 : block,
            [&](Ix i) { some(i, isOneByOne ? 1 : block, block); });
    done = main;
    if (block == 1)
      return;
  }
}

/// Sum by sum, row by row.
void Kernel::nestBody(Nest &nest, Tile &t, int64_t numRows) {
  int64_t numColumns = t.numColumns();
  int64_t numSums = std::max<int64_t>(nest.sums.size(), 1);
  Values acc;
  for (int64_t s = 0; s < numSums; ++s)
    for (int64_t r = 0; r < numRows; ++r)
      for (int64_t c = 0; c < numColumns; ++c)
        acc.push_back(nest.init(t, r, c));
  if (slice)
    acc = partOfSums(t, acc);
  Set varying = 0;
  for (unsigned i : nest.reduced)
    varying |= bit(i);
  const DotPlan *dot = nest.reduced.empty() ? nullptr : dotOf(nest, t);
  if (varying && !dot) {
    preload(t, nest.term, varying);
    for (const Sum &sum : nest.sums)
      preload(t, sum.term, varying);
  }
  if (t.tiled)
    acc = addTileSums(nest, t, acc);
  if (varying)
    acc = reduceLoops(nest, t, 0, acc);
  if (dot)
    settleDots(*dot, t, acc);
  if (nest.lanesReduced && nest.result)
    return storeSums(nest, t, acc);
  auto at = [&](int64_t s, int64_t r, int64_t c) {
    return acc[(s * numRows + r) * numColumns + c];
  };
  auto finish = [&] {
    for (int64_t r = 0; r < numRows; ++r)
      for (int64_t c = 0; c < numColumns; ++c) {
        for (auto [s, sum] : llvm::enumerate(nest.sums))
          t.memo[keyOf(t, sum.result, r, c)] = at(s, r, c);
        nest.sink(t, r, c, at(0, r, c));
      }
  };
  if (!slice || slice->ends.value_or(false))
    return finish();
  if (slice->ends)
    return keepPart(t, acc);
  to.branch(slice->isOpen, [&] { keepPart(t, acc); }, finish);
}

/// Sums whose lanes are still apart.
void Kernel::storeSums(Nest &nest, Tile &t, ArrayRef<Val> acc) {
  int64_t numColumns = t.numColumns();
  const Array &array = contractions.at(nest.result);
  auto isDense = [&] {
    return llvm::any_of(array.dims, [&](const Array::Dim &d) {
      return int(d.index) == nest.column && d.stride.is(1);
    });
  };
  if (int64_t(acc.size()) == to.lanes() && (numColumns == 1 || isDense())) {
    Val sums = to.reduceEach(nest.combine, acc);
    int64_t together = nest.isApart ? 1 : numColumns;
    for (size_t r = 0; r < t.rowLocal.size(); ++r)
      for (int64_t c = 0; c < numColumns; c += together)
        to.storeLanes(sums, r * numColumns + c, together, array.buffer,
                      offsetIn(t, array, r, c));
    return;
  }
  for (auto [i, v] : llvm::enumerate(acc))
    writeArray(t, array, i / numColumns, i % numColumns,
               to.reduceLanes(nest.combine, v));
}

//===----------------------------------------------------------------------===//
// The three uses
//===----------------------------------------------------------------------===//

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
  SmallVector<StatePlan *, 2> gathered = gatheredBy(n);
  Node *stored = plan.stored.lookup(n);
  for (StatePlan *s : gathered)
    nest.results.push_back(s->term);
  Values lanesOfRow;
  auto sink = [&](Tile &t, int r, int c, Val v) {
    t.memo[keyOf(t, n, r, c)] = v;
    writeArray(t, array, r, c, stored ? eval(t, stored, r, c) : v);
    gatherColumn(gathered, t, r, c, lanesOfRow);
  };
  nest.init = init;
  nest.sink = sink;
  keptReady.erase(stored); // another form of this nest has left it
  if (!nest.lanesReduced)
    startGathered(n);
  emitNest(nest);
  if (nest.lanesReduced)
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
  emitNest(nest);
}

/// One value a row: the rows of the tile are the lanes.
void Kernel::writeRows(WritePlan &w) {
  auto block = [&](Ix at, bool isMasked) {
    Tile t(plan.cascade.numIndices());
    t.lane = plan.row;
    t.laneLocal = {at};
    if (isMasked)
      t.laneLimit = rows;
    storeWrite(t, w, 0, 0, eval(t, w.value, 0, 0));
  };
  Ix main = to.floorTo(rows, to.lanes());
  to.each(0, main, to.lanes(), [&](Ix at) { block(at, false); });
  to.each(main, rows, to.lanes(), [&](Ix at) { block(at, true); });
}

/// Whole rows of a dense result, written once.
bool Kernel::mayStream(WritePlan &w) {
  if (!plan.schedule.streamBytes || w.lane == kNone ||
      plan.along(w, w.lane).kind != Along::Unit)
    return false;
  Ix bytes = bytesToStream(w);
  return !bytes.isConstant() || bytes.constant >= plan.schedule.streamBytes;
}

Ix Kernel::bytesOf(Type element, Set set) {
  int64_t bits = element.getIntOrFloatBitWidth();
  Ix bytes(std::max<int64_t>(bits / 8, 1));
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (set & bit(i))
      bytes = to.mul(bytes, extents[i]);
  return bytes;
}

/// The bytes of a result or, of one of bytes that nothing in the program reads
/// and that is written in whole lines, half of what passes through the caches
/// with it: little of it would be left there. Zen 4, rows of 4096 f32 to int8,
/// 64 MB to 16: 5.4 ms, past the caches 3.4 to 4.1.
Ix Kernel::bytesToStream(WritePlan &w) {
  Type element = w.value->type;
  Ix bytes = bytesOf(element, w.set);
  if (to.registersOfStore(element) == 1 || !plan.hasStream(w.set) ||
      !plan.hasRow(w.set) || !leavesProgram(w))
    return bytes;
  NodeSet all;
  collect(w.value, all);
  llvm::SmallPtrSet<void *, 4> seen;
  Ix passing = bytes;
  for (Node *n : all)
    if (n->kind == Node::Read && plan.hasRow(n->set) &&
        plan.hasStream(n->set) &&
        plan.along(n, plan.stream).kind == Along::Unit &&
        seen.insert(cast<ReadOp>(n->op).getSource().getAsOpaquePointer())
            .second)
      passing = to.add(passing, bytesOf(n->type, n->set));
  return to.max(bytes, to.div(passing, 2));
}

void Kernel::writeNest(WritePlan &w) {
  if (!mayStream(w))
    return writeValues(w, /*isStreamed=*/false);
  Ix bytes = bytesToStream(w);
  if (bytes.isConstant())
    return writeStreamed(w);
  to.branch(
      to.less(bytes, plan.schedule.streamBytes),
      [&] { writeValues(w, /*isStreamed=*/false); }, [&] { writeStreamed(w); });
}

/// Whether nothing in the program reads the result again.
bool Kernel::leavesProgram(WritePlan &w) {
  auto isFinal =
      plan.cascade->getAttrOfType<DenseBoolArrayAttr>(kFinalResultsAttr);
  unsigned operand = cast<BlockArgument>(w.op.getTarget()).getArgNumber() -
                     plan.cascade.numIndices();
  unsigned first = plan.cascade.getInputs().size();
  return isFinal && operand >= first &&
         operand - first < unsigned(isFinal.size()) && isFinal[operand - first];
}

void Kernel::writeValues(WritePlan &w, bool isStreamed) {
  Nest nest;
  nest.isFinal = leavesProgram(w);
  nest.out = w.set;
  nest.lane = w.lane;
  nest.term = w.value;
  if (isStreamed)
    nest.streamed = &w;
  auto init = [&](Tile &t, int r, int c) { return eval(t, w.value, r, c); };
  Buffer target = targetBuffer(w);
  int64_t count = to.registersOfStore(target.element);
  Values together;
  auto sink = [&](Tile &t, int r, int c, Val v) {
    bool isTogether = count > 1 && !t.laneLimit && t.lane != kNone &&
                      t.numColumns() % count == 0 &&
                      plan.along(w, t.lane).kind == Along::Unit;
    if (!isTogether) {
      storeWrite(t, w, r, c, v, isStreamed);
    } else {
      together.push_back(to.splat(v));
      if (int64_t(together.size()) == count) {
        to.storeTogether(together, target, targetOf(t, w, r, c + 1 - count),
                         isStreamed);
        together.clear();
      }
    }
    prefetchNextRow(t, w, c);
  };
  nest.init = init;
  nest.sink = sink;
  emitNest(nest);
}
