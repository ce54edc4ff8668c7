// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands of matrix nests in panels [outer][lane / NR][reduced][NR]: a phase
// of its own, one panel an item, so that every item of the walk finds them
// ready.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

Ix Kernel::outerCount(PackPlan &pack, PackPlan::Outer &outer) {
  return outer.index == kNone ? to.size(pack.operand, outer.dim)
                              : to.ceilDiv(extents[outer.index], outer.divisor);
}

/// Positions along the reduced index: all, or those of the stream tile or of
/// the slice in work.
Ix Kernel::depthOf(PackPlan &pack) {
  if (pack.reducedIndex == kNone)
    return 1;
  if (!pack.isOwn)
    return extents[pack.reducedIndex];
  return slice ? slice->count : rangeOf(pack.reducedIndex);
}

Ix Kernel::packDepthOf(PackPlan &pack) {
  if (pack.inPairs)
    return to.ceilDiv(depthOf(pack), 2);
  Ix depth = to.ceilTo(depthOf(pack), pack.group);
  for (PackPlan::Depth &d : pack.depths)
    depth = to.mul(depth, extents[d.index]);
  return depth;
}

Ix Kernel::packItems(PackPlan &pack) {
  return to.mul(panelsOf(pack), outerOf(pack));
}

Ix Kernel::packSize(Node *value, PackPlan &pack) {
  return to.mul(to.mul(packItemsAtOnce(value, pack), packDepthOf(pack)),
                plan.registerLanes);
}

/// Register by register along the lanes at one depth; zeros behind lane
/// `limit`, if there is one.
void Kernel::packDepth(const Panel &p, Ix k, std::optional<Ix> limit) {
  for (int64_t lane = 0; lane < plan.registerLanes; lane += to.lanes()) {
    Ix at = to.add(to.add(p.source, to.mul(lane, p.laneStride)),
                   to.mul(k, p.depthStride));
    Ix target = to.add(to.add(p.target, to.mul(k, plan.registerLanes)), lane);
    Val mask = limit ? to.mask(to.sub(*limit, lane)) : Val();
    Val v = p.laneStride.is(1)
                ? to.loadWide(p.from, at, mask)
                : to.gather(p.from, to.wideIndex(at, p.laneStride), mask);
    to.storeWide(p.cast ? to.elementwise(p.cast->op, {v}, p.cast->type) : v,
                 p.into, target, Val());
  }
}

/// `whole` lanes of it exist.
void Kernel::packPanel(const Panel &p, Ix whole) {
  int64_t width = plan.registerLanes, lanes = to.lanes();
  auto byDepth = [&](Ix lo, Ix limit) {
    to.each(lo, p.depth, 1, [&](Ix k) { packDepth(p, k, limit); });
  };
  if (!p.depthStride.is(1) || lanes == 1)
    return byDepth(0, whole);
  // Of a panel that is not full nothing is turned.
  Ix main = to.mul(to.floorTo(p.depth, lanes), to.div(whole, width));
  to.each(0, width, lanes, [&](Ix lane) {
    to.each(0, main, lanes, [&](Ix k) {
      to.transposeBlock(
          p.from, to.add(to.add(p.source, to.mul(lane, p.laneStride)), k),
          p.laneStride, p.into,
          to.add(to.add(p.target, to.mul(k, width)), lane), width);
    });
  });
  byDepth(main, whole);
}

/// The pair at depth 2 * k; zeros behind lane `limit` and, if it `isLast`,
/// behind the last depth.
void Kernel::packPairsAt(const Panel &p, Ix k, Ix limit, bool isLast) {
  for (int64_t lane = 0; lane < plan.registerLanes; lane += to.lanes()) {
    Ix lanesLeft = to.sub(limit, lane);
    auto half = [&](Ix depth, Ix count) {
      Ix at = to.add(to.add(p.source, to.mul(lane, p.laneStride)),
                     to.mul(depth, p.depthStride));
      Val mask = to.mask(count);
      return p.laneStride.is(1)
                 ? to.loadWide(p.from, at, mask)
                 : to.gather(p.from, to.wideIndex(at, p.laneStride), mask);
    };
    Ix low = to.mul(k, 2), high = to.add(low, 1);
    Ix there = to.mul(to.sub(p.depth, high), to.lanes());
    Val pair =
        to.pairUp(half(low, lanesLeft),
                  half(high, isLast ? to.min(lanesLeft, there) : lanesLeft));
    Ix target = to.add(to.add(p.target, to.mul(k, plan.registerLanes)), lane);
    to.storeWide(pair, p.into, target, Val());
  }
}

void Kernel::packPairs(const Panel &p, Ix whole) {
  int64_t width = plan.registerLanes, lanes = to.lanes();
  Ix count = to.ceilDiv(p.depth, 2);
  auto byPair = [&](Ix lo, Ix limit) {
    Ix main = to.max(lo, to.div(p.depth, 2));
    to.each(lo, main, 1,
            [&](Ix k) { packPairsAt(p, k, limit, /*isLast=*/false); });
    to.each(main, count, 1,
            [&](Ix k) { packPairsAt(p, k, limit, /*isLast=*/true); });
  };
  if (!p.depthStride.is(1))
    return byPair(0, whole);
  Ix main = to.mul(to.floorTo(to.div(p.depth, 2), lanes), to.div(whole, width));
  to.each(0, width, lanes, [&](Ix lane) {
    to.each(0, main, lanes, [&](Ix k) {
      Ix row = to.add(p.source, to.mul(lane, p.laneStride));
      to.transposePairs(p.from, to.add(row, to.mul(k, 2)), p.laneStride, p.into,
                        to.add(to.add(p.target, to.mul(k, width)), lane),
                        width);
    });
  });
  byPair(main, whole);
}

/// A panel as it was read into one of its values.
void Kernel::convertPanel(Node *value, Ix depth, Ix target) {
  int64_t width = plan.registerLanes;
  Buffer from = staging.at(value), into = panels.at(value);
  to.each(0, depth, 1, [&](Ix k) {
    for (int64_t lane = 0; lane < width; lane += to.lanes()) {
      Ix at = to.add(to.mul(k, width), lane);
      Val v = to.loadWide(from, to.add(from.offset, at), Val());
      to.storeWide(to.elementwise(value->op, {v}, value->type), into,
                   to.add(target, at), Val());
    }
  });
}

/// The operand's part of a panel from lane `first` on, where subscripts that
/// rows alone move are 0.
Kernel::Panel Kernel::panelAt(Node *value, PackPlan &pack, Ix first) {
  auto strideOf = [&](const Along &along) {
    return to.mul(to.stride(pack.operand, along.dim), along.coefficient);
  };
  Panel p;
  p.from = to.operand(pack.operand);
  p.into = value == pack.read ? panels.at(value) : staging.at(value);
  p.depth = pack.inPairs           ? depthOf(pack)
            : !pack.depths.empty() ? extents[pack.reducedIndex]
                                   : packDepthOf(pack);
  p.depthStride = pack.reducedIndex == kNone ? Ix(0) : strideOf(pack.reduced);
  bool isOfTile = pack.isOwn && pack.reducedIndex == plan.stream;
  p.laneStride = strideOf(pack.lane);
  p.source = to.add(p.from.offset, to.mul(first, p.laneStride));
  if (isOfTile)
    p.source = to.add(p.source, to.mul(base[plan.stream], p.depthStride));
  if (pack.isOwn && slice)
    p.source = to.add(p.source, to.mul(slice->first, p.depthStride));
  for (auto [dim, constant] : pack.constants)
    p.source = to.add(p.source, to.mul(constant, to.stride(pack.operand, dim)));
  if (!pack.isOwn)
    return p;
  Tile t(plan.cascade.numIndices());
  for (const PackPlan::Outer &outer : pack.outer)
    p.source = to.add(
        p.source, to.mul(to.mul(outerAt(t, pack, outer, 0, 0), outer.factor),
                         to.stride(pack.operand, outer.dim)));
  return p;
}

/// Lays out the panel at `target` of the panels of `value`; `limit` of its
/// lanes exist.
void Kernel::fillPanel(Node *value, PackPlan &pack, Panel p, Ix target,
                       Ix limit) {
  bool isConverted = value != pack.read;
  p.target = isConverted ? p.into.offset : target;
  if (pack.group > 1) {
    p.wholeDepth = depthOf(pack);
    p.isMoved = pack.isMoved;
    return packBytes(p, limit);
  }
  if (pack.inPairs)
    return packPairs(p, limit);
  packDepths(p, pack, 0, limit);
  if (isConverted)
    convertPanel(value, packDepthOf(pack), target);
}

/// The panel that is an item: what it reads, where it lies, its lanes.
Kernel::PackItem Kernel::packItem(Node *value, PackPlan &pack, Ix item) {
  int64_t width = plan.registerLanes;
  Ix length = extents[pack.laneIndex];
  Ix count = to.ceilDiv(length, width);
  PackItem p;
  p.first = to.mul(to.rem(item, count), width);
  Ix rest = to.div(item, count);
  p.panel = panelAt(value, pack, p.first);
  for (PackPlan::Outer &outer : llvm::reverse(pack.outer)) {
    Ix size = outerCount(pack, outer);
    Ix by = to.mul(to.rem(rest, size), outer.factor);
    p.panel.source =
        to.add(p.panel.source, to.mul(by, to.stride(pack.operand, outer.dim)));
    rest = to.div(rest, size);
  }
  Ix place = isInRounds.is(0)
                 ? item
                 : to.rem(item, to.max(packItemsAtOnce(value, pack), 1));
  p.target = to.add(panels.at(value).offset,
                    to.mul(to.mul(place, packDepthOf(pack)), width));
  bool areFull = length.isConstant() && length.constant % width == 0;
  p.limit = areFull ? Ix(width)
                    : to.sub(to.min(to.add(p.first, width), length), p.first);
  return p;
}

void Kernel::emitPack(Node *value, PackPlan &pack, unsigned phase) {
  auto one = [&](Ix item) {
    PackItem p = packItem(value, pack, item);
    fillPanel(value, pack, p.panel, p.target, p.limit);
  };
  if (!maySideBySide(value, pack))
    return eachItem(phase, 1, one);
  eachItem(phase, numSideBySide(pack), [&](Ix item) {
    Ix length = extents[pack.laneIndex];
    Ix end = to.min(to.add(item, numSideBySide(pack)), to.itemEnd());
    PackItem p = packItem(value, pack, item);
    Ix behind = to.add(p.first, numSideBySide(pack) * plan.registerLanes);
    auto each = [&] { to.each(item, end, 1, one); };
    auto together = [&] { packSideBySide(pack, p); };
    to.branch(to.less(length, behind), each, [&] {
      to.branch(to.less(end, to.add(item, numSideBySide(pack))), each,
                together);
    });
  });
}

/// Whether the lanes of a row lie together, and rows apart: as many panels as
/// are filled at once.
bool Kernel::maySideBySide(Node *value, PackPlan &pack) {
  return pack.group == 1 && pack.depths.empty() && value == pack.read &&
         to.lanes() > 1 && to.stride(pack.operand, pack.lane.dim).is(1) &&
         pack.lane.coefficient == 1;
}

/// Whole panels, row by row of the operand: of one at a time each row is a line
/// of another page.
void Kernel::packSideBySide(PackPlan &pack, const PackItem &p) {
  int64_t width = plan.registerLanes;
  Ix size = to.mul(packDepthOf(pack), width);
  auto each = [&](Ix lo, Ix hi, bool isLast) {
    to.each(lo, hi, 1, [&](Ix k) {
      for (int64_t n = 0; n < numSideBySide(pack); ++n) {
        Panel one = p.panel;
        one.source = to.add(one.source, n * width);
        one.target = to.add(p.target, to.mul(size, n));
        pack.inPairs ? packPairsAt(one, k, width, isLast)
                     : packDepth(one, k, std::nullopt);
      }
    });
  };
  if (!pack.inPairs)
    return each(0, p.panel.depth, /*isLast=*/false);
  Ix main = to.div(p.panel.depth, 2);
  each(0, main, /*isLast=*/false);
  each(main, packDepthOf(pack), /*isLast=*/true);
}

/// The panels of `nest` that its item makes itself, for `count` lanes of it
/// from `at` on.
void Kernel::makeOwnPanels(Nest &nest, Ix at, Ix count) {
  NodeSet all;
  collect(nest.term, all);
  for (const Sum &sum : nest.sums)
    collect(sum.term, all);
  Ix first = to.add(base[nest.lane], at);
  for (auto &[value, pack] : plan.packs)
    if (pack.isOwn && int(pack.laneIndex) == nest.lane && all.contains(value))
      makeOwnPanels(value, pack, first, count);
}

/// The same of pairs.
void Kernel::makeOwnPairs(PackPlan &pack, llvm::function_ref<Panel(Ix)> part,
                          Ix count) {
  const int64_t together = plan.ownPanels(), width = plan.registerLanes;
  Ix depth = depthOf(pack), whole = to.div(depth, 2);
  auto each = [&](Ix lo, Ix hi, bool isLast) {
    to.each(lo, hi, 1, [&](Ix k) {
      for (int64_t n = 0; n < together; ++n) {
        Ix limit = to.sub(count, n * width);
        packPairsAt(part(n), k, limit, isLast);
      }
    });
  };
  auto some = [&](Ix lo, Ix hi, bool isLast) {
    if (count.isConstant() && count.constant == together * width)
      return each(lo, hi, isLast);
    to.each(lo, hi, 1, [&](Ix k) {
      to.each(0, to.ceilDiv(count, width), 1, [&](Ix n) {
        packPairsAt(part(n), k, to.sub(count, to.mul(n, width)), isLast);
      });
    });
  };
  some(0, whole, /*isLast=*/false);
  if (!depth.isConstant() || depth.constant % 2)
    some(whole, to.ceilDiv(depth, 2), /*isLast=*/true);
}

/// Where lanes lie together, panels side by side: a line has parts of several,
/// and a page more.
void Kernel::makeOwnPanels(Node *value, PackPlan &pack, Ix first, Ix count) {
  int64_t width = plan.registerLanes;
  Panel p = panelAt(value, pack, first);
  Ix panel = to.mul(packDepthOf(pack), width);
  auto part = [&](Ix number) {
    Panel one = p;
    one.source = to.add(p.source, to.mul(to.mul(number, width), p.laneStride));
    one.target = to.mul(number, panel);
    return one;
  };
  if (!p.laneStride.is(1))
    return to.each(0, to.ceilDiv(count, width), 1, [&](Ix number) {
      Ix left = to.sub(count, to.mul(number, width));
      Panel one = part(number);
      fillPanel(value, pack, one, one.target, to.min(left, width));
    });
  if (pack.inPairs)
    return makeOwnPairs(pack, part, count);
  p.into = panels.at(value);
  p.cast = value == pack.read ? nullptr : value;
  p.wholeDepth = depthOf(pack);
  p.isMoved = pack.isMoved;
  auto fill = [&](const Panel &one, Ix k, std::optional<Ix> limit) {
    pack.group > 1 ? packBytesAt(one, k, limit) : packDepth(one, k, limit);
  };
  Ix end = pack.group > 1 ? to.floorTo(p.wholeDepth, pack.group) : p.depth;
  const int64_t together = plan.ownPanels();
  auto sideBySide = [&](Ix number) {
    auto each = [&](Ix lo, Ix hi, llvm::function_ref<void(Panel, Ix)> one) {
      to.each(lo, hi, pack.group, [&](Ix k) {
        askAhead(part(number), pack, k);
        for (int64_t n = 0; n < together; ++n)
          one(part(to.add(number, n)), k);
      });
    };
    each(0, end, [&](Panel one, Ix k) {
      pack.group > 1 ? packWordsAt(one, k) : packDepth(one, k, std::nullopt);
    });
    if (pack.group > 1)
      to.each(end, p.depth, pack.group, [&](Ix k) {
        to.each(0, together, 1, [&](Ix n) {
          packBytesAt(part(to.add(number, n)), k, std::nullopt);
        });
      });
  };
  Ix main = to.floorTo(to.div(count, width), together);
  to.each(0, main, together, sideBySide);
  if (count.isConstant() && count.constant == main.constant * width)
    return;
  to.each(0, p.depth, pack.group, [&](Ix k) {
    to.each(main, to.ceilDiv(count, width), 1, [&](Ix number) {
      fill(part(number), k, to.sub(count, to.mul(number, width)));
    });
  });
}

/// Rows of the operand lie apart: nothing but this asks for the next ones, or
/// the machine is ahead by itself.
void Kernel::askAhead(const Panel &p, PackPlan &pack, Ix k) {
  if (plan.facts.followsRows)
    return;
  constexpr int64_t kBytesAhead = 8192, kLineBytes = 64;
  const int64_t together = plan.ownPanels() * plan.registerLanes;
  int64_t bits = std::max<int64_t>(pack.read->type.getIntOrFloatBitWidth(), 8);
  int64_t perLine = 8 * kLineBytes / bits;
  int64_t ahead = 8 * kBytesAhead / (bits * together);
  for (int64_t j = 0; j < pack.group; ++j)
    for (int64_t lane = 0; lane < together; lane += perLine)
      to.prefetch(p.from,
                  to.add(to.add(p.source, lane),
                         to.mul(to.add(k, ahead + j), p.depthStride)),
                  /*isWrite=*/false, /*level=*/2);
}

/// The panel's depths from number `at` on, the last one by `packPanel`.
void Kernel::packDepths(const Panel &p, PackPlan &pack, unsigned at, Ix limit) {
  if (at == pack.depths.size())
    return packPanel(p, limit);
  PackPlan::Depth &depth = pack.depths[at];
  Ix inside = p.depth;
  for (const PackPlan::Depth &d :
       llvm::ArrayRef(pack.depths).drop_front(at + 1))
    inside = to.mul(inside, extents[d.index]);
  Ix stride =
      to.mul(to.stride(pack.operand, depth.along.dim), depth.along.coefficient);
  to.each(0, extents[depth.index], 1, [&](Ix k) {
    Panel part = p;
    part.source = to.add(p.source, to.mul(k, stride));
    part.target =
        to.add(p.target, to.mul(to.mul(k, inside), plan.registerLanes));
    packDepths(part, pack, at + 1, limit);
  });
}
