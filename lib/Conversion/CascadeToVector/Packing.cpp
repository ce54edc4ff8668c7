// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operands of matrix nests in panels [outer][lane / NR][reduced][NR]: a phase
// of its own, one panel an item, so that every item of the walk finds them
// ready.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

Ix Kernel::packItems(PackPlan &pack) {
  Ix items =
      to.ceilDiv(to.size(pack.operand, pack.laneDim), plan.registerLanes);
  for (unsigned dim : pack.outerDims)
    items = to.mul(items, to.size(pack.operand, dim));
  return items;
}

Ix Kernel::packSize(PackPlan &pack) {
  Ix depth =
      pack.reducedDim == kNone ? Ix(1) : to.size(pack.operand, pack.reducedDim);
  return to.mul(to.mul(packItems(pack), depth), plan.registerLanes);
}

void Kernel::emitPack(Node *read, PackPlan &pack, unsigned phase) {
  to.beginPhase(phase);
  readExtents();
  layOut(/*isDryRun=*/false);
  Buffer from = to.operand(pack.operand), panel = panels.at(read);
  int64_t width = plan.registerLanes, lanes = to.lanes();
  bool hasDepth = pack.reducedDim != kNone;
  Ix length = to.size(pack.operand, pack.laneDim);
  Ix depth = hasDepth ? to.size(pack.operand, pack.reducedDim) : Ix(1);
  Ix laneStride = to.stride(pack.operand, pack.laneDim);
  Ix depthStride = hasDepth ? to.stride(pack.operand, pack.reducedDim) : Ix(0);
  to.each(to.itemBegin(), to.itemEnd(), 1, [&](Ix item) {
    Ix panels = to.ceilDiv(length, width);
    Ix first = to.mul(to.rem(item, panels), width);
    Ix rest = to.div(item, panels);
    Ix source = to.add(from.offset, to.mul(first, laneStride));
    for (unsigned dim : llvm::reverse(pack.outerDims)) {
      Ix size = to.size(pack.operand, dim);
      source = to.add(source,
                      to.mul(to.rem(rest, size), to.stride(pack.operand, dim)));
      rest = to.div(rest, size);
    }
    Ix target = to.add(panel.offset, to.mul(to.mul(item, depth), width));
    Ix whole = to.sub(to.min(to.add(first, width), length), first);
    // Lane by lane, zeros behind the last.
    auto single = [&](Ix k, int64_t lane, Ix limit) {
      Ix at = to.add(to.add(source, to.mul(lane, laneStride)),
                     to.mul(k, depthStride));
      Ix to_ = to.add(to.add(target, to.mul(k, width)), lane);
      Val v = laneStride.is(1)
                  ? to.loadWide(from, at, to.mask(to.sub(limit, lane)))
                  : to.gather(from, to.wideIndex(at, laneStride),
                              to.mask(to.sub(limit, lane)));
      to.storeWide(v, panel, to_, Val());
    };
    auto columns = [&](Ix k, Ix limit) {
      for (int64_t lane = 0; lane < width; lane += lanes)
        single(k, lane, limit);
    };
    bool canTranspose = hasDepth && depthStride.is(1) && lanes > 1;
    if (!canTranspose) {
      to.each(0, depth, 1, [&](Ix k) { columns(k, whole); });
      return;
    }
    Ix main = to.floorTo(depth, lanes);
    to.branch(
        to.less(whole, width),
        [&] { to.each(0, depth, 1, [&](Ix k) { columns(k, whole); }); },
        [&] {
          to.each(0, width, lanes, [&](Ix lane) {
            to.each(0, main, lanes, [&](Ix k) {
              to.transposeBlock(
                  from, to.add(to.add(source, to.mul(lane, laneStride)), k),
                  laneStride, panel,
                  to.add(to.add(target, to.mul(k, width)), lane), width);
            });
          });
          to.each(main, depth, 1, [&](Ix k) { columns(k, width); });
        });
  });
  to.endPhase();
}
