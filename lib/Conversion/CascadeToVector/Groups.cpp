// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What of a product is in the caches at once: some panels, which every block of
// rows reads, and so much of the sum that these are half of the second cache.
#include "Kernel.h"

#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Whole blocks of `blockOfSum` and whole groups of them: slices change no bit.
constexpr int64_t kBlocksOfSum = 256;

/// Steps of the sum of which `panels` panels of each operand fill half of the
/// second cache.
int64_t Kernel::stepsOfPanels(int64_t panels) {
  constexpr int64_t kMost = 4096;
  SmallVector<Node *, 2> terms = summedTerms();
  int64_t bytes = 0;
  for (size_t i = 0; i < terms.size(); i += sumsAtOnce()) {
    NodeSet all;
    for (Node *term : ArrayRef(terms).slice(i, sumsAtOnce()))
      collect(term, all);
    int64_t some = 0;
    for (auto &[value, pack] : plan.packs)
      if (all.contains(value))
        some += plan.registerLanes * value->type.getIntOrFloatBitWidth() / 8;
    bytes = std::max(bytes, some);
  }
  int64_t steps = plan.facts.l2Bytes / 2 / std::max<int64_t>(bytes * panels, 1);
  return std::clamp<int64_t>(llvm::bit_floor(uint64_t(steps)), kBlocksOfSum,
                             kMost);
}

/// The index that a product sums by itself, of values that take whole
/// registers; kNone: more than one, or bytes or pairs, of which panels take a
/// quarter or half.
int Kernel::indexOfSum() {
  SmallVector<Node *, 2> terms = summedTerms();
  if (terms.empty() || llvm::any_of(terms, [&](Node *term) {
        return !isa<FloatType>(term->type) || plan.dots.count(term) ||
               plan.pairs.count(term);
      }))
    return kNone;
  if (!plan.product)
    return plan.stream;
  return llvm::popcount(plan.product->over) == 1
             ? llvm::countr_zero(plan.product->over)
             : kNone;
}

/// 1 where rows are so few that a group is read for little longer than it is
/// laid out: half as many panels, half as long, leave room in the second cache
/// for what they are made of. Else 0.
Ix Kernel::haveFewRows() {
  constexpr int64_t kFew = 256;
  return plan.hasOwnPanels()
             ? to.min(1, to.div(kFew, to.max(extents[plan.row], 1)))
             : Ix(0);
}

/// 1 where all rows pass by one panel before the next, which lies ready; else
/// 0: blocks of rows pass by groups of panels. Few rows do so that the panel is
/// in the second cache for all but the first block of them. More do where that
/// cache holds the next one too, which they ask for meanwhile. By hand, Zen 5
/// (1 MB), one thread, GFLOP/s (the peak 276) of 8 rows in groups of four (in
/// slices of 1024 where sums are longer), panel by panel, and so with the next
/// one asked for: 128 rows by 384 x 1536 250, 228, 242; by 768 x 3072 239, 230,
/// 260; by 1536 x 384 249, 232, 254; by 4096 x 4096 257, 237, 254; 64 rows by
/// it 249, 224, 251; 512 rows by 768 x 3072 255, 243, 247; 4096 rows 243, 248,
/// 256.
Ix Kernel::passByPanel() {
  NodeSet all;
  for (Node *term : summedTerms())
    collect(term, all);
  bool areReady =
      indexOfSum() != kNone && plan.row != kNone &&
      llvm::any_of(plan.packs, [&](auto &entry) {
        const PackPlan &pack = entry.second;
        return all.contains(entry.first) && !pack.isOwn && !pack.inPairs;
      });
  int64_t most = plan.facts.mostRowsByPanel;
  if (!areReady || most == std::numeric_limits<int64_t>::max())
    return Ix(areReady);
  return to.min(1, to.div(most, to.max(extents[plan.row], 1)));
}

/// 1 where rows are so few that the first block of those that pass by a panel
/// asks for every line of it, a little ahead. By hand, Zen 5, one thread, 24
/// products by 384 x 1536 or 1536 x 384 (54 MB), ms, nothing asked for and so:
/// 8 rows 1.8 and 1.0, 16 2.8 and 1.9, 32 4.7 and 3.9, 64 8.1 and 7.4, 128 15.1
/// and 14.6.
static Ix asksForPanel(Spelling &to, Ix isByPanel, Ix allRows) {
  constexpr int64_t kFew = 63;
  return to.mul(isByPanel, to.min(1, to.div(kFew, to.max(allRows, 1))));
}

/// The index whose sums may be made in slices; kNone: they are short.
int Kernel::slicedIndex() {
  int index = indexOfSum();
  if (index == kNone)
    return kNone;
  Ix extent = extents[index], areFew = haveFewRows();
  int64_t longest = passByPanel().is(1) ? stepsOfPanels(1)
                    : areFew.is(0)      ? stepsOfPanels(plan.ownPanels())
                                        : stepsOfFew();
  return extent.isConstant() && extent.constant <= longest ? kNone : index;
}

int64_t Kernel::stepsOfFew() {
  return std::max(stepsOfPanels(plan.mostPanels()) / 2, kBlocksOfSum);
}

/// Elements of a slice: all of a sum that is not long.
Ix Kernel::lengthOfSlice() {
  if (passByPanel().is(1)) {
    Ix all = to.max(extents[slicedIndex()], 1);
    Ix slices = to.ceilDiv(all, stepsOfPanels(1));
    return to.min(to.ceilTo(to.ceilDiv(all, slices), kBlocksOfSum), all);
  }
  int64_t longest = stepsOfPanels(plan.ownPanels()),
          slice = stepsOfPanels(plan.mostPanels());
  Ix depth = extents[slicedIndex()];
  Ix isShort = to.sub(1, to.min(1, to.div(depth, longest + 1)));
  Ix length = to.add(slice, to.mul(isShort, longest - slice));
  length = to.add(length, to.mul(haveFewRows(), to.sub(stepsOfFew(), length)));
  return to.min(length, to.max(depth, 1));
}

/// Panels of a group of what a product sums by itself.
Ix Kernel::panelsOfGroup() {
  int index = indexOfSum();
  if (index == kNone)
    return plan.ownPanels();
  int64_t longest = stepsOfPanels(plan.ownPanels()),
          slice = stepsOfPanels(plan.mostPanels());
  Ix depth = extents[index];
  // 1 from `count` on.
  auto isFrom = [&](int64_t count) { return to.min(1, to.div(depth, count)); };
  Ix isBetween = to.sub(isFrom(slice + 1), isFrom(longest + 1));
  Ix areSome = to.max(isBetween, haveFewRows());
  return to.sub(plan.mostPanels(), to.mul(areSome, plan.ownPanels()));
}

/// Steps that there is room for in one panel.
Ix Kernel::stepsOfPanel(PackPlan &pack) {
  Ix depth = packDepthOf(pack);
  if (!pack.isOwn)
    return depth;
  // Rows of several tiles are not sliced, and take panels of a whole one.
  if (pack.reducedIndex == plan.stream)
    return pack.inPairs ? plan.tileStream / 2 : plan.tileStream;
  return pack.reducedIndex != kNone && pack.reducedIndex == slicedIndex()
             ? lengthOfSlice()
             : to.min(depth, PackPlan::kDeepestOwn);
}

/// The same of all panels that an item lays out at once.
Ix Kernel::stepsOfOwnPanels(PackPlan &pack) {
  Ix least = to.mul(stepsOfPanel(pack), plan.ownPanels());
  if (pack.reducedIndex == kNone || pack.reducedIndex != indexOfSum())
    return least;
  Ix steps =
      slicedIndex() == kNone ? extents[pack.reducedIndex] : lengthOfSlice();
  return to.max(least, to.mul(panelsOfGroup(), steps));
}

void Kernel::layOutSlices() {
  slicedSums.clear();
  if (slicedIndex() == kNone)
    return;
  Ix apart((plan.mostPanels() + 1) * plan.registerLanes); // not a page
  Ix count = to.mul(apart, capacity(plan.row, /*isLane=*/false));
  SmallVector<Node *, 2> terms = summedTerms();
  for (Node *term : ArrayRef(terms).take_front(sumsAtOnce())) {
    Array &sums = slicedSums.emplace_back();
    sums.count = count;
    sums.buffer = allocate(/*isShared=*/false, term->type, count);
  }
}

/// Whether a group of panels is in the second cache while all rows of the item
/// pass by, each block of them once. Panel by panel rows would be read from
/// there for each of them. Sapphire Rapids by hand, one thread, ms, panels
/// outside and rows outside: 4080 x 768 x 3072 90.5 and 81.9 (the first in
/// items of 480 rows, 95.8 without), 1032 x 4096 x 4096 158.7 and 154.8.
bool Kernel::readsRowsOnce(const Nest &nest) {
  if (!nest.isAlone || !nest.readsPanels || !plan.hasRow(nest.out) ||
      nest.reduced.size() != 1)
    return false;
  return int(nest.reduced.front()) == indexOfSum();
}

/// Lanes [first, end), some panels, of all rows of the item.
void Kernel::nestPanels(Nest &nest, Tile &outer, Ix first, Ix end) {
  if (!readsRowsOnce(nest))
    return nestBlocks(nest, outer, first, end);
  Ix main = to.floorTo(rows, nest.rows), blocks = to.div(main, nest.rows);
  Ix isByPanel = passByPanel();
  Ix areAsked =
      isByPanel.is(0) ? Ix(0) : asksForPanel(to, isByPanel, extents[plan.row]);
  auto some = [&](Ix row, Ix from, Ix behind) {
    Nest part = nest;
    part.window = {row, to.add(row, nest.rows)};
    part.isOneBlock = true;
    part.panelsAhead =
        areAsked.is(1)
            ? Ix(0)
            : to.mul(to.sub(1, areAsked), panelsAhead(nest, row, first, end));
    auto take = [&](bool asksForAll) {
      part.asksForAll = asksForAll;
      nestBlocks(part, outer, from, behind);
    };
    // A branch in the loop itself: products of 128 and more open rows take 1.03
    // times as long.
    Ix asks = to.mul(areAsked, to.sub(1, to.min(1, row)));
    if (asks.isConstant())
      take(asks.is(1));
    else
      to.branch(to.less(0, asks), [&] { take(true); }, [&] { take(false); });
  };
  Ix length = to.sub(end, first), width(plan.registerLanes);
  Ix range = rangeOf(nest.lane);
  if (isByPanel.isConstant()) {
    to.each(0, main, nest.rows, [&](Ix row) { some(row, first, end); });
  } else {
    bool areWhole = range.isConstant() && range.constant % width.constant == 0;
    Ix panels = to.ceilDiv(length, width);
    to.each(0, to.mul(panels, blocks), 1, [&](Ix number) {
      Ix block = to.div(number, to.max(panels, 1));
      Ix panel = to.sub(number, to.mul(block, panels));
      Ix from = to.add(first, to.mul(panel, width)),
         behind = to.add(from, width);
      some(to.mul(block, nest.rows), from,
           areWhole ? behind : to.min(behind, end));
    });
  }
  if (nest.rows == 1 || (rows.isConstant() && main.is(rows.constant)))
    return;
  Nest rest = nest;
  rest.window = {main, rows};
  rest.rows = nest.halvesRows ? rowsBelow(nest.rows) : 1;
  // Asking costs so few rows nothing where it is not needed; a second body
  // costs time to compile.
  rest.asksForAll = !areAsked.is(0);
  nestBlocks(rest, outer, first, end);
}

/// Group by group, slice by slice.
void Kernel::nestGroups(Nest &nest, Tile &outer) {
  bool hasOwn = nest.readsPanels && plan.hasOwnPanels();
  Ix range = rangeOf(nest.lane);
  Ix count = readsRowsOnce(nest) ? panelsOfGroup() : Ix(plan.ownPanels());
  Ix isByPanel = readsRowsOnce(nest) ? passByPanel() : Ix(0);
  count = to.add(count, to.mul(isByPanel, to.sub(1, count)));
  Ix lanes = to.mul(count, plan.registerLanes);
  bool areEqual = range.isConstant() && lanes.isConstant() &&
                  range.constant % lanes.constant == 0;
  to.each(0, to.ceilDiv(range, lanes), 1, [&](Ix number) {
    Ix first = to.mul(number, lanes);
    Ix end = to.min(to.add(first, lanes), range);
    if (nest.isSliced)
      return nestSlices(nest, outer, first, end);
    if (hasOwn)
      makeOwnPanels(nest, first, areEqual ? lanes : to.sub(end, first));
    takesTilesInGroups(nest) ? nestGroup(nest, outer, first, end)
                             : nestPanels(nest, outer, first, end);
  });
}

/// Lanes [first, end) of all rows of the item, a slice of their sums at a time.
/// Zen 5, 1 thread, 1024 rows, 256 columns, sums of 7168: 23.9 ms at once, 19.5
/// in slices of 1024, 19.3 of 512 and 20.8 of 2048, panels outside.
void Kernel::nestSlices(Nest &nest, Tile &outer, Ix first, Ix end) {
  Ix depth = rangeOf(nest.reduced[0]), length = lengthOfSlice();
  bool areEqual = depth.isConstant() && length.isConstant() &&
                  depth.constant % length.constant == 0;
  SmallVector<Array, 2> sums = slicedSums;
  Ix apart((plan.mostPanels() + 1) * plan.registerLanes); // not a page
  for (Array &array : sums) {
    array.dims = {{unsigned(nest.lane), Ix(1)}, {unsigned(plan.row), apart}};
    array.buffer.offset = to.sub(array.buffer.offset, first);
  }
  // At least one: sums of no terms are written too.
  to.each(0, to.max(to.ceilDiv(depth, length), 1), 1, [&](Ix number) {
    Ix at = to.mul(number, length), next = to.add(at, length);
    Ix count = areEqual ? length : to.min(length, to.sub(depth, at));
    slice = Slice{at, count, to.less(next, depth), sums, std::nullopt, at};
    if (plan.hasOwnPanels())
      makeOwnPanels(nest, first, to.sub(end, first));
    nestPanels(nest, outer, first, end);
    slice.reset();
  });
}

/// What the slices before this one have summed.
Kernel::Values Kernel::partOfSums(Tile &t, const Values &start) {
  int64_t numColumns = t.numColumns();
  int64_t each = start.size() / slice->sums.size();
  Ix areThere = to.min(1, slice->done);
  return to.loop(0, areThere, 1, start, [&](Ix, ArrayRef<Val>) {
    Values acc;
    for (const Array &sums : slice->sums)
      for (int64_t i = 0; i < each; ++i)
        acc.push_back(to.loadWide(
            sums.buffer, offsetIn(t, sums, i / numColumns, i % numColumns),
            Val()));
    return acc;
  });
}

void Kernel::keepPart(Tile &t, ArrayRef<Val> acc) {
  int64_t numColumns = t.numColumns();
  size_t each = acc.size() / slice->sums.size();
  for (auto [k, sums] : llvm::enumerate(slice->sums))
    for (size_t i = 0; i < each; ++i)
      to.storeWide(acc[k * each + i], sums.buffer,
                   offsetIn(t, sums, i / numColumns, i % numColumns), Val());
}
