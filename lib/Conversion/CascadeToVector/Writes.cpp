// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Nests that write results, and which of these are stored past the caches.
#include "Kernel.h"

#include "refold/Conversion/CascadeToVector.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

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
  if (turnedWrites.count(&w)) {
    writeValues(w, /*isStreamed=*/false);
    if (!onlyRow)
      flushTurned(w);
    return;
  }
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
  if (nextRow && plan.row != kNone && plan.stream != kNone)
    nextRow->rows = rowsAhead(w);
  auto init = [&](Tile &t, int r, int c) { return eval(t, w.value, r, c); };
  Buffer target = targetBuffer(w);
  int64_t count = to.registersOfStore(target.element);
  Values together;
  auto sink = [&](Tile &t, int r, int c, Val v) {
    bool isTogether = count > 1 && !t.laneLimit && t.lane != kNone &&
                      t.numColumns() % count == 0 &&
                      plan.along(w, t.lane).kind == Along::Unit;
    if (turnedWrites.count(&w)) {
      writeArray(t, turnedWrites.at(&w), r, c, v);
    } else if (!isTogether) {
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
