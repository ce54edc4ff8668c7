// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What few rows read of the stream comes from memory, and they wait for it. A
// machine without AVX-512 brings what is read as a stream sooner by itself than
// what is asked for. Columns of a tile, line by line of its rows, are no
// streams, and neither are rows side by side: a tile is read in parts side by
// side, from their first rows on.
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

/// Sums of products along the lanes, over the places of a tile.
void Kernel::layOutApart(StatePlan &s) {
  Nest nest;
  nest.lane = s.lane;
  nest.term = s.term;
  NodeSet all;
  collect(s.term, all);
  bool hasPanel =
      llvm::any_of(all, [&](Node *n) { return plan.packs.count(n); });
  if (hasPanel || !s.keys.empty() || s.lane == plan.stream || s.lane == kNone ||
      !isa<FloatType>(s.type()) || pairOf(s.term) || !readsApart(nest))
    return;
  Set inWork = bit(s.lane) | (plan.row == kNone ? 0 : bit(plan.row));
  sumsApart[s.number] = makeArray(s.set & inWork, s.type(), s.lane);
}

/// As many places of a tile as there are parts, of each the next one; then
/// those that no part has. Zen 3, four rows by 128 lanes, tiles of 256 places,
/// 64 MB: 9.2 ms place by place, 4.7 in eight parts, 5.1 to 5.7 in sixteen;
/// reading alone 4.7.
void Kernel::nestApart(Nest &nest, Tile &outer) {
  constexpr int64_t kParts = 8;
  Ix range = rangeOf(nest.lane), length = rangeOf(plan.stream);
  Ix between = to.div(length, kParts), main = to.mul(between, kParts);
  to.each(0, between, 1, [&](Ix first) {
    slice = Slice{first, kParts, Val(), *nest.sumsApart, false, between};
    nestBlocks(nest, outer, 0, range);
  });
  slice = Slice{main, to.sub(length, main), Val(), *nest.sumsApart, true};
  nestBlocks(nest, outer, 0, range);
  slice.reset();
}
