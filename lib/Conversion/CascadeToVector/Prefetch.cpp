// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a row kernel asks for before it needs it. One thread otherwise
// alternates between waiting for memory and computing.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

// Measured on Zen 5: 2 KB 1.82 ms, 4 KB 1.64, 8 KB 1.55, 16 KB 1.56 (logsumexp
// of 4096 x 4096).
constexpr int64_t kAheadBytes = 8 * 1024;
/// On the second level of sums alone: variance of 4096 x 4096, Zen 5, one
/// thread, 2.5 ms, with 4 KB 1.8, 8 KB 1.52, 16 KB 1.35 to 1.5, 32 KB 1.45.
constexpr int64_t kFarAheadBytes = 16 * 1024;
constexpr int64_t kLineBytes = 64;

/// Whether the address follows from positions alone. Of a row behind the last
/// one a subscript that is data would be read from behind its array.
static bool hasOwnAddress(Node *read) {
  return llvm::all_of(read->in, [](Node *n) { return n->kind == Node::Index; });
}

/// Dense reads of the terms. Where nothing takes time the machine is ahead by
/// itself while a tile is read for the first time; on the levels behind the
/// first it is in the cache, and memory would rest. (Zen 4, variance of 4096 x
/// 4096: 2.5 ms with 8 KB, without 2.0.) A sweep takes time, and all that
/// memory gives: the rest of the row is asked for, and the sweep asks for the
/// next one (LayerNorm of 4096 x 4096: 6.6 ms, with it 5.5; on two threads 3.9
/// and 3.3).
Kernel::Ahead Kernel::readsToPrefetch(ArrayRef<StatePlan *> states,
                                      bool isInCache) {
  Ahead ahead;
  ahead.bytes = kAheadBytes;
  NodeSet all;
  if (plan.schedule.prefetch)
    for (StatePlan *s : states)
      collect(s->term, all);
  if (llvm::none_of(all, isCostly)) {
    bool isSwept = !plan.sweepWrites.empty();
    if (isSwept ? isWholeRow : !isInCache)
      return ahead;
    ahead.bytes = isSwept ? kAheadBytes : kFarAheadBytes;
    if (isSwept)
      ahead.most = to.sub(extents[plan.stream],
                          to.add(base[plan.stream], plan.tileStream));
  }
  for (Node *n : all)
    if (n->kind == Node::Read && n->has(plan.stream) && hasOwnAddress(n) &&
        plan.along(n, plan.stream).kind == Along::Unit)
      ahead.reads.push_back(n);
  return ahead;
}

/// Whether column `c` of a group is the first in its cache line.
bool Kernel::startsLine(Type element, int c) {
  int64_t bytes = std::max<int64_t>(element.getIntOrFloatBitWidth() / 8, 1);
  int64_t perLine = std::max<int64_t>(kLineBytes / (bytes * to.lanes()), 1);
  return c % perLine == 0;
}

void Kernel::prefetchAhead(Tile &t, const Ahead &ahead, int c) {
  for (Node *n : ahead.reads) {
    if (!startsLine(n->type, c))
      continue;
    int64_t bytes = std::max<int64_t>(n->type.getIntOrFloatBitWidth() / 8, 1);
    Ix distance(ahead.bytes / bytes);
    if (ahead.most)
      distance = to.min(distance, to.max(*ahead.most, 0));
    to.prefetch(operandOfRead(n), to.add(offsetOf(t, n, 0, c), distance),
                /*isWrite=*/false);
  }
}

/// What column `c` of the tile in work is in `there`.
void Kernel::prefetchAt(Tile &there, Node *n, int c) {
  if (startsLine(n->type, c))
    to.prefetch(operandOfRead(n), offsetOf(there, n, 0, 0), /*isWrite=*/false);
}

/// The places that the sweep is about to write.
void Kernel::prefetchResults(Tile &t, int c) {
  if (!plan.schedule.prefetch)
    return;
  for (WritePlan &w : plan.sweepWrites) {
    Type element = w.value->type;
    if (plan.hasRow(w.set) && w.lane == plan.stream && !mayStream(w) &&
        !(w.set & plan.carried) &&
        plan.along(w, plan.stream).kind == Along::Unit &&
        startsLine(element, c))
      to.prefetch(targetBuffer(w), targetOf(t, w, 0, c), /*isWrite=*/true);
  }
}

/// The next row tile, or as many rows as make up the usual distance.
int64_t Kernel::rowsAhead(Type element) {
  int64_t bytes = std::max<int64_t>(element.getIntOrFloatBitWidth() / 8, 1);
  int64_t length = plan.extent(plan.stream);
  if (ShapedType::isDynamic(length) || length == 0)
    return onlyRow ? 1 : plan.tileRows;
  int64_t rows = llvm::divideCeil(kAheadBytes, length * bytes);
  return onlyRow ? rows : std::max(plan.tileRows, rows);
}

/// While this row is written, what the next row tile reads comes in, to the
/// second cache: the first holds this row and what all rows read.
void Kernel::prefetchNextRow(Tile &t, Node *root, int c) {
  if (!plan.schedule.prefetch || plan.row == kNone)
    return;
  NodeSet all;
  collect(root, all);
  for (Node *n : all) {
    if (n->kind != Node::Read || !plan.hasRow(n->set) || !hasOwnAddress(n) ||
        !plan.hasStream(n->set) || t.lane != plan.stream ||
        plan.along(n, plan.stream).kind != Along::Unit ||
        !startsLine(n->type, c))
      continue;
    Tile next = t;
    next.rowLocal[0] = to.add(t.rowLocal[0], rowsAhead(n->type));
    to.prefetch(operandOfRead(n), offsetOf(next, n, 0, c), /*isWrite=*/false,
                /*level=*/2);
  }
}

/// What a nest of few rows reads of the stream: each row of the tile shares it,
/// so that memory is what the nest waits for.
SmallVector<Node *> Kernel::operandsToPrefetch(const Nest &nest) {
  constexpr int64_t kFewRows = 8;
  SmallVector<Node *> reads;
  if (!plan.schedule.prefetch || plan.tileRows > kFewRows)
    return reads;
  int lane = nest.lanesReduced ? int(nest.reduced.back()) : nest.lane;
  NodeSet all;
  collect(nest.term, all);
  for (Node *n : all)
    if (n->kind == Node::Read && !plan.packs.count(n) &&
        plan.hasStream(n->set) && !plan.hasRow(n->set) && lane != kNone &&
        n->has(lane) && plan.along(n, lane).kind == Along::Unit)
      reads.push_back(n);
  return reads;
}

void Kernel::prefetchOperands(const Nest &nest, Tile &t) {
  // Into the second cache: tiles of keys and values take turns in the first.
  // Zen 4, decode 32/8 heads of 128, 16384 keys, tiles of 128: 8 KB 9.7 ms,
  // 16 KB 8.6, 32 KB 9.8; 8 KB into the first cache 14.2.
  constexpr int64_t kFarBytes = 16 * 1024;
  int64_t farBytes = nest.bytesAhead ? nest.bytesAhead : kFarBytes;
  if (!nest.depthAhead.is(0)) {
    Tile there = t;
    Ix &depth = there.local[t.reduced];
    depth = to.add(depth, nest.depthAhead);
    for (Node *n : nest.ahead)
      for (int64_t c = 0; c < t.numColumns(); ++c)
        if (startsLine(n->type, c))
          to.prefetch(operandOfRead(n), offsetOf(there, n, 0, c),
                      /*isWrite=*/false, /*level=*/2);
    return;
  }
  for (Node *n : nest.ahead)
    for (int64_t c = 0; c < t.numColumns(); ++c) {
      if (t.column == kNone && !startsLine(n->type, c))
        continue;
      int64_t bytes = std::max<int64_t>(n->type.getIntOrFloatBitWidth() / 8, 1);
      to.prefetch(operandOfRead(n),
                  to.add(offsetOf(t, n, 0, c), farBytes / bytes),
                  /*isWrite=*/false, /*level=*/2);
    }
}
