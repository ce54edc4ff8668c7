// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of products of bytes, four at a time: a register of the operand along
// the lanes holds four elements of the sum a lane. The target multiplies
// unsigned bytes by signed ones: where both sides are of one kind the packed
// one is moved by 128, and 128 times the sum of the other is taken off again.
// Or it multiplies 16-bit integers, to which every second byte is widened.
#include "Planner.h"

#include "Kernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

constexpr int64_t kGroup = PackPlan::kBytesOfDot;

static bool isConstant(Node *n, int64_t number) {
  IntegerAttr value;
  return n->kind == Node::Const && matchPattern(n->op, m_Constant(&value)) &&
         value.getValue().getSExtValue() == number;
}

/// What `n` extends to i32, if that is a byte, and whether it has a sign.
static std::pair<Node *, bool> byteUnder(Node *n) {
  if (n->kind != Node::Elem || !n->type.isInteger(32))
    return {nullptr, false};
  if (isa<arith::ExtSIOp, arith::ExtUIOp>(n->op))
    return {n->in[0]->type.isInteger(8) ? n->in[0] : nullptr,
            isa<arith::ExtSIOp>(n->op)};
  // An unsigned one as the algebra has it: x < 0 ? x + 256 : x.
  if (!isa<arith::SelectOp>(n->op))
    return {nullptr, false};
  Node *isBelow = n->in[0], *moved = n->in[1], *wide = n->in[2];
  auto compare = isBelow->kind == Node::Elem
                     ? dyn_cast<arith::CmpIOp>(isBelow->op)
                     : arith::CmpIOp();
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::slt ||
      isBelow->in[0] != wide || !isConstant(isBelow->in[1], 0) ||
      moved->kind != Node::Elem || !isa<arith::AddIOp>(moved->op) ||
      moved->in[0] != wide || !isConstant(moved->in[1], 256))
    return {nullptr, false};
  auto [byte, isSigned] = byteUnder(wide);
  return {isSigned ? byte : nullptr, false};
}

void Planner::findDot(Node *term, int sum, int lane) {
  bool isMixed = target.hasByteDots;
  if (!(isMixed || target.addsHalfWords) || lane == kNone ||
      plan->lanes * 32 != target.vectorBits || term->kind != Node::Elem ||
      !isa<arith::MulIOp>(term->op))
    return;
  for (unsigned side : {0u, 1u}) {
    auto [wide, isWideSigned] = byteUnder(term->in[side]);
    auto [narrow, isNarrowSigned] = byteUnder(term->in[1 - side]);
    if (!wide || !narrow || wide->kind != Node::Read || !wide->has(lane) ||
        !wide->has(sum) || plan->hasRow(wide->set) || narrow->has(lane) ||
        !narrow->has(sum) || !plan->hasRow(narrow->set))
      continue;
    if (narrow->kind == Node::Read &&
        plan->along(narrow, sum).kind != Along::Unit)
      continue;
    // What is computed has to lie in memory: rows of what states make are kept
    // (`keepFor`), where nothing but rows and streams moves them.
    if (narrow->kind != Node::Read &&
        (!readsState(narrow) || (narrow->set & ~(plan->rows | plan->streams))))
      continue;
    // The instruction's unsigned side has been run with signs flipped only.
    if (isMixed && !(isWideSigned && isNarrowSigned))
      continue;
    DotPlan dot;
    dot.wide = wide;
    dot.narrow = narrow;
    dot.isWideSigned = isWideSigned;
    dot.isNarrowSigned = isNarrowSigned;
    dot.isMixed = isMixed;
    plan->dots[term] = dot;
    return;
  }
}

void Planner::findDots() {
  for (StatePlan &s : plan->states)
    if (s.form == StatePlan::Matrix && s.keys.empty() &&
        s.op.getReducer() == Reducer::Add && s.pass < plan->passes.size() &&
        plan->stream != kNone)
      findDot(s.term, plan->stream, s.lane);
}

/// A contraction's bytes lie in memory: nothing keeps them for a nest.
void Planner::findDotOfProduct() {
  Node *n = plan->product;
  if (!n || llvm::popcount(n->over) != 1)
    return;
  findDot(n->in[0], llvm::countr_zero(n->over), plan->laneOf(n));
  auto it = plan->dots.find(n->in[0]);
  if (it != plan->dots.end() && it->second.narrow->kind != Node::Read)
    plan->dots.erase(it);
}

/// Whether a formula reads the packed side of `dot` by other ways than sums of
/// the same kind: it would find what they have moved and laid out.
bool Planner::isReadBeside(const DotPlan &dot) {
  SmallVector<Node *> work;
  for (StatePlan &s : plan->states) {
    work.append({s.term, s.moved});
    work.append(s.payloads.begin(), s.payloads.end());
    for (const StateKey &key : s.keys)
      work.push_back(key.compare);
  }
  for (auto *writes : {&plan->finishWrites, &plan->sweepWrites})
    for (WritePlan &w : *writes)
      work.push_back(w.value);
  NodeSet seen;
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    if (!n || !seen.insert(n))
      continue;
    if (n == dot.wide)
      return true;
    auto other = plan->dots.find(n);
    bool isAlike = other != plan->dots.end() &&
                   other->second.wide == dot.wide &&
                   other->second.isMoved() == dot.isMoved();
    if (isAlike)
      work.push_back(other->second.narrow);
    else
      work.append(n->in.begin(), n->in.end());
  }
  return false;
}

/// Dots whose bytes got no panels are computed one by one.
void Planner::dropDotsWithoutPanels() {
  SmallVector<Node *> beside;
  for (auto &[term, dot] : plan->dots)
    if (isReadBeside(dot))
      beside.push_back(term);
  plan->dots.remove_if([&](auto &entry) {
    auto pack = plan->packs.find(entry.second.wide);
    if (pack == plan->packs.end() || pack->second.reducedIndex == kNone ||
        !pack->second.depths.empty() || llvm::is_contained(beside, entry.first))
      return true;
    pack->second.group = kGroup;
    pack->second.isMoved = entry.second.isMoved();
    return false;
  });
  // A dot reads its bytes where they lie, and nobody the widened ones.
  if (plan->product && plan->dots.count(plan->product->in[0]))
    plan->operands.clear();
}

/// The place of the narrow side's element in the work of tile `t`.
std::pair<Buffer, Ix> Kernel::narrowAt(const DotPlan &dot, Tile &t, int r) {
  if (keptReady.contains(dot.narrow)) {
    const Array &array = kept.at(dot.narrow);
    return {array.buffer, offsetIn(t, array, r, 0)};
  }
  return {operandOfRead(dot.narrow), offsetOf(t, dot.narrow, r, 0)};
}

/// Its bytes lie in memory now.
bool Kernel::isThere(const DotPlan &dot) {
  return dot.narrow->kind == Node::Read || keptReady.contains(dot.narrow);
}

const DotPlan *Kernel::dotOf(const Nest &nest, Tile &t) {
  auto it = plan.dots.find(nest.term);
  if (it == plan.dots.end() || !t.panel)
    return nullptr;
  return isThere(it->second) ? &it->second : nullptr;
}

Val Kernel::constant32(int64_t value) {
  Builder b(plan.cascade.getContext());
  return to.constant(b.getI32IntegerAttr(int32_t(value)));
}

/// Four bytes of which `count` exist; the others are 0.
Val Kernel::partialWord(const Buffer &from, Ix at, Ix count) {
  Builder b(plan.cascade.getContext());
  Val word = constant32(0);
  for (int64_t j = 0; j < kGroup; ++j) {
    Ix last = to.max(0, to.sub(count, 1));
    Val byte = to.load(from, to.add(at, to.min(j, last)));
    byte = to.integerCast(byte, b.getI8Type(), b.getI32Type());
    byte = to.binary(Binary::AndI, byte, constant32(255));
    byte = to.select(to.less(j, count), byte, constant32(0));
    byte = to.binary(Binary::MulI, byte, constant32(int64_t(1) << (8 * j)));
    word = to.binary(Binary::OrI, word, byte);
  }
  return word;
}

Kernel::Values Kernel::reduceDots(Nest &nest, const DotPlan &dot, Tile &t,
                                  Values acc) {
  unsigned index = nest.reduced.back();
  Ix range = rangeOf(index);
  int64_t numColumns = std::max<int64_t>(t.laneLocal.size(), 1);
  auto step = [&](Ix k, Values in, bool isPartial) {
    Tile inside(&t);
    inside.reduced = index;
    inside.local[index] = k;
    SmallVector<Val> columns;
    for (int64_t c = 0; c < numColumns; ++c)
      columns.push_back(to.loadWords(panels.at(dot.wide),
                                     panelOffset(inside, dot.wide, 0, c)));
    for (int64_t r = 0; r < int64_t(in.size()) / numColumns; ++r) {
      auto [from, at] = narrowAt(dot, inside, r);
      Val word = to.splat(isPartial ? partialWord(from, at, to.sub(range, k))
                                    : to.loadWord(from, at));
      for (int64_t c = 0; c < numColumns; ++c) {
        Val &sum = in[r * numColumns + c];
        if (!dot.isMixed)
          sum = to.dotOfHalfWords(sum, columns[c], dot.isWideSigned, word,
                                  dot.isNarrowSigned);
        else
          sum = dot.isNarrowSigned ? to.dotOfBytes(sum, columns[c], word)
                                   : to.dotOfBytes(sum, word, columns[c]);
      }
    }
    return in;
  };
  constexpr int64_t kUnroll = 2;
  Ix groups = to.div(range, kGroup);
  Ix done = t.tiled ? to.div(t.tiled->depth, kGroup) : Ix(0);
  acc = loopUnrolled(to.sub(groups, done), kUnroll, acc, [&](Ix g, Values in) {
    return step(to.mul(to.add(done, g), kGroup), in, false);
  });
  if (!range.isConstant() || range.constant % kGroup)
    acc = to.loop(
        to.mul(groups, kGroup), range, kGroup, acc,
        [&](Ix k, ArrayRef<Val> in) { return step(k, Values(in), true); });
  return acc;
}

/// What the move of the packed side adds to every sum of a row, negated: one
/// number a row, for all columns of the nest.
void Kernel::sumBytes(Nest &nest) {
  auto it = plan.dots.find(nest.term);
  if (it == plan.dots.end() || !it->second.isMoved() || !isThere(it->second))
    return;
  const DotPlan &dot = it->second;
  unsigned index = nest.reduced.back();
  Builder b(plan.cascade.getContext());
  Ix range = rangeOf(index);
  int64_t width = kGroup * to.lanes();
  constexpr int64_t kChains = 4; // a sum waits for the one before it
  eachRow(true, [&](Ix row) {
    Tile t = tileOf(row);
    auto at = [&](Ix k) {
      t.local[index] = k;
      return narrowAt(dot, t, 0);
    };
    Ix main = to.floorTo(range, width);
    Ix even = to.floorTo(range, kChains * width);
    Val ones = to.splat(constant32(0x01010101));
    auto addBytes = [&](Ix begin, Ix end, Values sums) {
      int64_t chains = sums.size();
      return to.loop(begin, end, chains * width, sums,
                     [&](Ix k, ArrayRef<Val> in) {
                       Values out;
                       for (int64_t c = 0; c < chains; ++c) {
                         auto [from, place] = at(to.add(k, c * width));
                         Val bytes = to.loadWords(from, place);
                         out.push_back(dot.isNarrowSigned
                                           ? to.dotOfBytes(in[c], ones, bytes)
                                           : to.dotOfBytes(in[c], bytes, ones));
                       }
                       return out;
                     });
    };
    Values chains = addBytes(0, even, Values(kChains, to.splat(constant32(0))));
    Val total = chains[0];
    for (int64_t c = 1; c < kChains; ++c)
      total = to.binary(Binary::AddI, total, chains[c]);
    total = addBytes(even, main, {total})[0];
    Val sum = to.reduceLanes(Binary::AddI, total);
    sum = to.loop(main, range, 1, {sum}, [&](Ix k, ArrayRef<Val> in) {
      auto [from, place] = at(k);
      Val byte =
          to.integerCast(to.load(from, place), b.getI8Type(), b.getI32Type());
      if (!dot.isNarrowSigned)
        byte = to.binary(Binary::AndI, byte, constant32(255));
      return Values{to.binary(Binary::AddI, byte, in[0])};
    })[0];
    Val factor = constant32(dot.isNarrowSigned ? -128 : 128);
    writeArray(t, byteSums, 0, 0, to.binary(Binary::MulI, sum, factor));
  });
}

/// Takes off what the move of the packed side has added.
void Kernel::settleDots(const DotPlan &dot, Tile &t, Values &acc) {
  if (!dot.isMoved())
    return;
  int64_t numColumns = std::max<int64_t>(t.laneLocal.size(), 1);
  for (int64_t r = 0; r < int64_t(acc.size()) / numColumns; ++r) {
    Val off = to.splat(to.load(byteSums.buffer, offsetIn(t, byteSums, r, 0)));
    for (int64_t c = 0; c < numColumns; ++c)
      acc[r * numColumns + c] =
          to.binary(Binary::AddI, acc[r * numColumns + c], off);
  }
}

/// Four elements of the sum a lane; zeros behind lane `limit`, if there is one,
/// and behind the last element.
void Kernel::packBytesAt(const Panel &p, Ix k, std::optional<Ix> limit) {
  Builder b(plan.cascade.getContext());
  Ix first = to.add(p.target, to.mul(k, plan.registerLanes));
  // A gather would be a branch for every lane.
  if (!plan.facts.gathersWords && !p.isMoved) {
    Ix numLanes =
        limit ? to.min(*limit, plan.registerLanes) : Ix(plan.registerLanes);
    for (int64_t lane = 0; lane < plan.registerLanes; lane += to.lanes())
      to.storeWords(to.splat(constant32(0)), p.into,
                    to.add(first, kGroup * lane));
    to.each(0, numLanes, 1, [&](Ix lane) {
      to.each(0, to.min(kGroup, to.sub(p.wholeDepth, k)), 1, [&](Ix j) {
        Ix from = to.add(to.add(p.source, to.mul(lane, p.laneStride)),
                         to.mul(to.add(k, j), p.depthStride));
        to.store(to.load(p.from, from), p.into,
                 to.add(first, to.add(to.mul(lane, kGroup), j)));
      });
    });
    return;
  }
  for (int64_t lane = 0; lane < plan.registerLanes; lane += to.lanes()) {
    Val word = to.splat(constant32(0));
    for (int64_t j = 0; j < kGroup; ++j) {
      Ix at = to.add(to.add(p.source, to.mul(lane, p.laneStride)),
                     to.mul(to.add(k, j), p.depthStride));
      Ix exists = to.min(1, to.max(0, to.sub(p.wholeDepth, to.add(k, j))));
      Ix count = limit ? to.sub(*limit, lane) : Ix(to.lanes());
      Val mask = to.mask(to.mul(count, exists));
      Val v = p.laneStride.is(1)
                  ? to.loadWide(p.from, at, mask)
                  : to.gather(p.from, to.wideIndex(at, p.laneStride), mask);
      v = to.integerCast(v, b.getI8Type(), b.getI32Type());
      if (p.isMoved)
        v = to.binary(Binary::AddI, v, to.splat(constant32(128)));
      v = to.binary(Binary::AndI, v, to.splat(constant32(255)));
      v = to.binary(Binary::MulI, v,
                    to.splat(constant32(int64_t(1) << (8 * j))));
      word = to.binary(Binary::OrI, word, v);
    }
    to.storeWords(word, p.into, to.add(first, kGroup * lane));
  }
}

/// The same where all lanes and all four elements exist: rows of lanes are
/// read as they lie.
void Kernel::packWordsAt(const Panel &p, Ix k) {
  for (int64_t lane = 0; lane < plan.registerLanes; lane += to.lanes())
    to.storeWords(
        to.wordsOfRows(p.from,
                       to.add(to.add(p.source, lane), to.mul(k, p.depthStride)),
                       p.depthStride, p.isMoved),
        p.into,
        to.add(p.target, to.add(to.mul(k, plan.registerLanes), kGroup * lane)));
}

/// As many elements of the sum as there are lanes of words, where they lie
/// together.
void Kernel::turnWordsAt(const Panel &p, Ix k) {
  for (int64_t lane = 0; lane < plan.registerLanes; lane += to.lanes())
    to.transposeWords(
        p.from, to.add(to.add(p.source, to.mul(lane, p.laneStride)), k),
        p.laneStride, p.into,
        to.add(p.target, to.add(to.mul(k, plan.registerLanes), kGroup * lane)),
        plan.registerLanes, p.isMoved);
}

/// Of a panel that is not full, and behind the last whole group, elements are
/// asked for one by one.
void Kernel::packBytes(const Panel &p, Ix limit) {
  bool isTurned = !p.laneStride.is(1);
  Ix main = 0;
  if (!isTurned || p.depthStride.is(1)) {
    int64_t step = isTurned ? kGroup * to.lanes() : kGroup;
    Ix isFull = to.div(limit, plan.registerLanes);
    main = to.mul(to.floorTo(p.wholeDepth, step), isFull);
    to.each(0, main, step,
            [&](Ix k) { isTurned ? turnWordsAt(p, k) : packWordsAt(p, k); });
  }
  to.each(main, p.depth, kGroup, [&](Ix k) { packBytesAt(p, k, limit); });
}
