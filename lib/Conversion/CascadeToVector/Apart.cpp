// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What few rows read of the stream comes from memory, and they wait for it. A
// machine without AVX-512 brings what is read as a stream sooner by itself than
// what is asked for. Columns of a tile, line by line of its rows, are no
// streams, and neither are rows side by side: a tile is read in parts side by
// side, from their first rows on. With AVX-512 it is read in order, and where
// what is asked for twice comes in time the sums over its places are, too.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Zen 3, 32 heads of 128 that share 8, 8192 keys: products of queries and keys
/// with four neighbouring keys in work 11.3 ms, with keys a quarter of a tile
/// apart 4.7, reading alone 4.3. Asking for more ahead changes nothing.
bool Kernel::readsApart(const Nest &nest) {
  return plan.facts.vectorRegisters < 32 && !operandsToPrefetch(nest).empty();
}

/// Parts of a tile, and how many places of them are added in one chain, and
/// chains to a total: the error of a sum grows with each.
static constexpr int64_t kParts = 8, kPlacesOfChain = 16;

bool Kernel::hasPanel(Node *term) {
  NodeSet all;
  collect(term, all);
  return llvm::any_of(all, [&](Node *n) { return plan.packs.count(n); });
}

/// Sums of products along the lanes, over the places of a tile.
void Kernel::layOutApart(StatePlan &s) {
  Nest nest;
  nest.lane = s.lane;
  nest.term = s.term;
  if (hasPanel(s.term) || !s.keys.empty() || s.lane == plan.stream ||
      s.lane == kNone || !isa<FloatType>(s.type()) || pairOf(s.term))
    return;
  bool isInOrder = readsInOrder(s);
  if (!isInOrder &&
      (!readsApart(nest) ||
       plan.tileStream > kParts * kPlacesOfChain * kPlacesOfChain))
    return;
  Set inWork = bit(s.lane) | (plan.row == kNone ? 0 : bit(plan.row));
  auto make = [&] { return makeArray(s.set & inWork, s.type(), s.lane); };
  SumsApart &sums = sumsApart[s.number];
  sums.part = make();
  sums.isInOrder = isInOrder;
  if (!isInOrder && plan.tileStream > kParts * kPlacesOfChain)
    sums.totals = make();
}

/// Places of a tile whose sums stay in registers: as many as blocks of short
/// chains have (`blockOfSum`), so that no chain is longer than without.
static constexpr int64_t kPlacesInOrder = 16;

/// Whether the places of a tile are summed in their order though a machine
/// without AVX-512 follows streams: where asking twice brings them. Zen 4 by
/// AVX2, decode 32/8 heads of 128, 16384 keys, values in eight parts and in
/// order: f32 7.0 and 6.0 ms (in cache 0.079 and 0.074), bf16 6.3 and 5.9; keys
/// in order, too, 6.8 (each is asked for in half lines).
static bool asksInOrder(const TargetFacts &facts) {
  return facts.vectorRegisters >= 32 || facts.asksTwice;
}

/// Whether few rows, or one, multiply more columns of what lies in place than a
/// register tile has. Tile by tile of them the places of the stream would be
/// lines far apart, which no machine brings ahead.
bool Kernel::readsInOrder(const StatePlan &s) {
  Ix columns = extents[s.lane];
  if (!asksInOrder(plan.facts) || plan.registerRows > Plan::kFewRows ||
      s.combine != Binary::AddF || (s.set & plan.carried & ~bit(s.lane)) ||
      (columns.isConstant() && columns.constant <= plan.registerLanes))
    return false;
  NodeSet all;
  collect(s.term, all);
  return llvm::all_of(all, [&](Node *n) {
    return n->kind != Node::Read || !n->has(s.lane) || !n->has(plan.stream) ||
           plan.along(n, s.lane).kind == Along::Unit;
  });
}

/// Some places of a tile at a time, all columns; then what they add to the
/// state is moved and added to it.
void Kernel::sumInOrder(Nest &nest, const SumsApart &sums) {
  auto sink = nest.sink;
  Nest part = nest;
  part.sums = {{nest.term, nest.term}};
  part.results.clear();
  part.readsPanels = false;
  if (plan.facts.asksInOrder || plan.facts.asksTwice)
    part.ahead = operandsToPrefetch(nest);
  part.inPlace = part.fillsArray = part.splitsLanes = true;
  clearSums(nest, sums.part);
  Ix length = rangeOf(plan.stream), main = to.floorTo(length, kPlacesInOrder);
  auto some = [&](Ix first, Ix count) {
    addParts(part, sums.part, first, count);
  };
  to.each(0, main, kPlacesInOrder,
          [&](Ix first) { some(first, kPlacesInOrder); });
  if (!main.isConstant() || !length.is(main.constant))
    some(main, to.sub(length, main));
  Nest points;
  points.out = nest.out;
  points.lane = nest.lane;
  points.inPlace = points.fillsArray = true;
  points.results = nest.results;
  points.init = nest.init;
  auto add = [&](Tile &t, int r, int c, Val) {
    sink(t, r, c, readArray(t, sums.part, r, c));
  };
  points.sink = add;
  emitNest(points);
}

/// As many places of a tile as there are parts, of each the next one; then
/// those that no part has. Zen 3, four rows by 128 lanes, tiles of 256 places,
/// 64 MB: 9.2 ms place by place, 4.7 in eight parts, 5.1 to 5.7 in sixteen;
/// reading alone 4.7.
void Kernel::nestApart(Nest &nest, Tile &outer) {
  const SumsApart &sums = *nest.sumsApart;
  Ix range = rangeOf(nest.lane), length = rangeOf(plan.stream);
  Ix between = to.div(length, kParts), main = to.mul(between, kParts);
  auto addPlaces = [&](Ix begin, Ix end) {
    to.each(begin, end, 1, [&](Ix first) {
      Ix done = to.sub(first, begin);
      slice = Slice{first, kParts, Val(), {sums.part}, false, done, between};
      nestBlocks(nest, outer, 0, range);
    });
  };
  if (!sums.totals)
    addPlaces(0, between);
  else
    to.each(0, between, kPlacesOfChain, [&](Ix begin) {
      addPlaces(begin, to.min(to.add(begin, kPlacesOfChain), between));
      addPart(nest, begin);
    });
  const Array &all = sums.totals ? *sums.totals : sums.part;
  slice = Slice{main, to.sub(length, main), Val(), {all}, true, main};
  nestBlocks(nest, outer, 0, range);
  slice.reset();
}

/// The sums of a chain to those of the chains before, if there are any.
void Kernel::addPart(const Nest &nest, Ix before) {
  const SumsApart &sums = *nest.sumsApart;
  const Buffer &part = sums.part.buffer, &totals = sums.totals->buffer;
  Ix areThere = to.min(1, before);
  to.each(0, sums.part.count, to.lanes(), [&](Ix i) {
    Val sum = to.loadWide(part, to.add(part.offset, i), Val());
    Ix at = to.add(totals.offset, i);
    auto add = [&](Ix, ArrayRef<Val> in) {
      Val total = to.loadWide(totals, at, Val());
      return Values{to.binary(nest.combine, total, in[0])};
    };
    to.storeWide(to.loop(0, areThere, 1, {sum}, add)[0], totals, at, Val());
  });
}
