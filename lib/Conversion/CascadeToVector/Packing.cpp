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

Ix Kernel::packDepthOf(PackPlan &pack) {
  if (pack.inPairs)
    return to.ceilDiv(extents[pack.reducedIndex], 2);
  Ix depth = pack.reducedIndex == kNone
                 ? Ix(1)
                 : to.ceilTo(extents[pack.reducedIndex], pack.group);
  for (PackPlan::Depth &d : pack.depths)
    depth = to.mul(depth, extents[d.index]);
  return depth;
}

Ix Kernel::packItems(PackPlan &pack) {
  Ix items = to.ceilDiv(extents[pack.laneIndex], plan.registerLanes);
  if (pack.mayBeSkipped && plan.row != kNone)
    items =
        to.mul(items, to.min(1, to.div(extents[plan.row], Plan::kFewRows + 1)));
  for (PackPlan::Outer &outer : pack.outer)
    items = to.mul(items, outerCount(pack, outer));
  return items;
}

Ix Kernel::packSize(PackPlan &pack) {
  return to.mul(to.mul(packItems(pack), packDepthOf(pack)), plan.registerLanes);
}

/// Register by register along the lanes at one depth; zeros behind lane
/// `limit`.
void Kernel::packDepth(const Panel &p, Ix k, Ix limit) {
  for (int64_t lane = 0; lane < plan.registerLanes; lane += to.lanes()) {
    Ix at = to.add(to.add(p.source, to.mul(lane, p.laneStride)),
                   to.mul(k, p.depthStride));
    Ix target = to.add(to.add(p.target, to.mul(k, plan.registerLanes)), lane);
    Val mask = to.mask(to.sub(limit, lane));
    Val v = p.laneStride.is(1)
                ? to.loadWide(p.from, at, mask)
                : to.gather(p.from, to.wideIndex(at, p.laneStride), mask);
    to.storeWide(v, p.into, target, Val());
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
  Ix main = to.floorTo(p.depth, lanes);
  to.branch(
      to.less(whole, width), [&] { byDepth(0, whole); },
      [&] {
        to.each(0, width, lanes, [&](Ix lane) {
          to.each(0, main, lanes, [&](Ix k) {
            to.transposeBlock(
                p.from, to.add(to.add(p.source, to.mul(lane, p.laneStride)), k),
                p.laneStride, p.into,
                to.add(to.add(p.target, to.mul(k, width)), lane), width);
          });
        });
        byDepth(main, width);
      });
}

/// The pair at depth 2 * k; zeros behind lane `limit` and behind the last
/// depth.
void Kernel::packPairsAt(const Panel &p, Ix k, Ix limit) {
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
        to.pairUp(half(low, lanesLeft), half(high, to.min(lanesLeft, there)));
    Ix target = to.add(to.add(p.target, to.mul(k, plan.registerLanes)), lane);
    to.storeWide(pair, p.into, target, Val());
  }
}

void Kernel::packPairs(const Panel &p, Ix whole) {
  int64_t width = plan.registerLanes, lanes = to.lanes();
  Ix count = to.ceilDiv(p.depth, 2);
  auto byPair = [&](Ix lo, Ix limit) {
    to.each(lo, count, 1, [&](Ix k) { packPairsAt(p, k, limit); });
  };
  if (!p.depthStride.is(1))
    return byPair(0, whole);
  Ix main = to.floorTo(to.div(p.depth, 2), lanes);
  to.branch(
      to.less(whole, width), [&] { byPair(0, whole); },
      [&] {
        to.each(0, width, lanes, [&](Ix lane) {
          to.each(0, main, lanes, [&](Ix k) {
            Ix row = to.add(p.source, to.mul(lane, p.laneStride));
            to.transposePairs(
                p.from, to.add(row, to.mul(k, 2)), p.laneStride, p.into,
                to.add(to.add(p.target, to.mul(k, width)), lane), width);
          });
        });
        byPair(main, width);
      });
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

void Kernel::emitPack(Node *value, PackPlan &pack, unsigned phase) {
  eachItem(phase, [&](Ix item) {
    int64_t width = plan.registerLanes;
    auto strideOf = [&](const Along &along) {
      return to.mul(to.stride(pack.operand, along.dim), along.coefficient);
    };
    bool hasDepth = pack.reducedIndex != kNone;
    Panel p;
    p.from = to.operand(pack.operand);
    bool isConverted = value != pack.read;
    p.into = isConverted ? staging.at(value) : panels.at(value);
    Ix panelDepth = packDepthOf(pack);
    p.depth = pack.inPairs || !pack.depths.empty() ? extents[pack.reducedIndex]
                                                   : panelDepth;
    p.depthStride = hasDepth ? strideOf(pack.reduced) : Ix(0);
    p.laneStride = strideOf(pack.lane);
    Ix length = extents[pack.laneIndex];
    Ix count = to.ceilDiv(length, width);
    Ix first = to.mul(to.rem(item, count), width);
    Ix rest = to.div(item, count);
    p.source = to.add(p.from.offset, to.mul(first, p.laneStride));
    auto moveSource = [&](Ix by, unsigned dim) {
      p.source = to.add(p.source, to.mul(by, to.stride(pack.operand, dim)));
    };
    for (auto [dim, constant] : pack.constants)
      moveSource(constant, dim);
    for (PackPlan::Outer &outer : llvm::reverse(pack.outer)) {
      Ix size = outerCount(pack, outer);
      moveSource(to.mul(to.rem(rest, size), outer.factor), outer.dim);
      rest = to.div(rest, size);
    }
    Ix target = to.add(panels.at(value).offset,
                       to.mul(to.mul(item, panelDepth), width));
    p.target = isConverted ? p.into.offset : target;
    Ix limit = to.sub(to.min(to.add(first, width), length), first);
    if (pack.group > 1) {
      p.wholeDepth = extents[pack.reducedIndex];
      p.isMoved = pack.isMoved;
      return packBytes(p, limit);
    }
    if (pack.inPairs)
      return packPairs(p, limit);
    packDepths(p, pack, 0, limit);
    if (isConverted)
      convertPanel(value, panelDepth, target);
  });
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
