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

/// What results of several rows in one register read row by row: numbers of a
/// row, and lists or places along the lanes. Nothing where one of them is an
/// operand along the lanes, which may end there.
static std::optional<SmallVector<Node *>>
readRowByRow(Plan &plan, WritePlan &w,
             llvm::function_ref<bool(Node *)> isStored) {
  SmallVector<Node *> found, work{w.value};
  NodeSet seen;
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    bool hasLane = n->has(w.lane), hasRow = plan.hasRow(n->set);
    if (!seen.insert(n) || (!hasLane && !hasRow))
      continue;
    bool isArray = n->isState() || isStored(n);
    if (!hasLane || n->kind == Node::Index || (isArray && hasRow))
      found.push_back(n);
    else if (n->kind == Node::Elem && !isArray)
      work.append(n->in.begin(), n->in.end());
    else
      return std::nullopt;
  }
  return found;
}

/// Rows of few results, several in one register, where so many fill it: what is
/// made of them is computed once for all, and no store has a mask. Zen 5, one
/// thread, softmax and lists of 8, open extents, 65536 rows of 64 and 128: 1.58
/// and 2.36 ms, so 1.53 and 2.25.
bool Kernel::writeTogether(WritePlan &w) {
  constexpr int64_t kMostRows = 4;
  int64_t length = w.lane == kNone ? 0 : plan.extent(w.lane);
  if (length <= 0 || to.lanes() % length || onlyRow || !plan.hasRow(w.set) ||
      plan.rowLane != kNone || turnedWrites.count(&w) ||
      plan.along(w, w.lane).kind != Along::Unit)
    return false;
  int64_t count = to.lanes() / length;
  Set along = bit(w.lane) | (plan.rows & ~bit(w.lane));
  if (count == 1 || count > kMostRows || plan.tileRows % count ||
      w.lane == plan.row || (w.set & ~along))
    return false;
  auto leaves = readRowByRow(plan, w, [&](Node *n) {
    return keptReady.contains(n) || (hasOperands && plan.operands.count(n));
  });
  if (!leaves)
    return false;
  to.each(0, rows, count, [&](Ix first) {
    std::vector<Tile> parts;
    for (int64_t i = 0; i < count; ++i) {
      Tile &part = parts.emplace_back(tileOf(to.add(first, i)));
      part.lane = w.lane;
      part.laneLocal = {Ix(-i * length)};
    }
    Tile all = parts.front();
    for (Node *n : *leaves) {
      Val v;
      for (int64_t i = count; i-- > 0;) {
        Val own = to.splat(eval(parts[size_t(i)], n, 0, 0));
        v = i + 1 < count ? to.select(to.mask((i + 1) * length), own, v) : own;
      }
      all.memo[keyOf(all, n, 0, 0)] = v;
    }
    Val v = to.splat(eval(all, w.value, 0, 0));
    for (int64_t i = 0; i < count; ++i) {
      parts[size_t(i)].laneLocal = {Ix(0)};
      auto store = [&] {
        to.storeLanes(v, i * length, length, targetBuffer(w),
                      targetOf(parts[size_t(i)], w, 0, 0));
      };
      if (i == 0 || (rows.isConstant() && rows.constant % count == 0))
        store();
      else
        to.branch(to.less(to.add(first, i), rows), store, [] {});
    }
  });
  return true;
}

/// Whole rows of a dense result, written once, that are longer than a register.
bool Kernel::mayStream(WritePlan &w) {
  if (!plan.schedule.streamBytes || w.lane == kNone ||
      plan.along(w, w.lane).kind != Along::Unit)
    return false;
  int64_t length = plan.extent(w.lane);
  if (!ShapedType::isDynamic(length) && length < to.lanes())
    return false;
  Ix bytes = bytesToStream(w);
  return !bytes.isConstant() || bytes.constant >= streamedFrom(w);
}

int64_t Kernel::streamedFrom(WritePlan &w) {
  return plan.schedule.streamedFrom(leavesProgram(w));
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
/// and that is written in whole lines, a part of what passes through the caches
/// with it (`Schedule::kPassingOfBytes`).
Ix Kernel::bytesToStream(WritePlan &w) {
  Type element = w.value->type;
  Ix bytes = bytesOf(element, w.set);
  bool areBytes = element.getIntOrFloatBitWidth() == 8;
  if (!areBytes || to.registersOfStore(element) == 1 ||
      !plan.hasStream(w.set) || !plan.hasRow(w.set) || !leavesProgram(w))
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
  return to.max(bytes, to.div(passing, Schedule::kPassingOfBytes));
}

void Kernel::writeNest(WritePlan &w) {
  if (turnedWrites.count(&w)) {
    writeValues(w, /*isStreamed=*/false);
    if (!onlyRow)
      flushTurned(w);
    return;
  }
  if (writeTogether(w))
    return;
  if (!mayStream(w))
    return writeValues(w, /*isStreamed=*/false);
  Ix bytes = bytesToStream(w);
  if (bytes.isConstant())
    return writeStreamed(w);
  to.branch(
      to.less(bytes, streamedFrom(w)),
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
