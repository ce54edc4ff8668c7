// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Schedule/Schedule.h"
#include "llvm/ADT/SmallPtrSet.h"

using namespace mlir;
using namespace refold;

using OpSet = llvm::SmallPtrSet<Operation *, 16>;

/// What results along `stream` are computed from, states apart.
static OpSet opsOfSweep(CascadeOp cascade, unsigned stream) {
  OpSet ops;
  SmallVector<Value> open;
  for (auto write : cascade.getBody().getOps<WriteOp>())
    if (llvm::is_contained(write.getIndices(),
                           cascade.getBody().getArgument(stream)))
      open.push_back(write.getValue());
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (op && !isa<StateOp>(op) && ops.insert(op).second)
      open.append(op->operand_begin(), op->operand_end());
  }
  return ops;
}

MovedAlong refold::movedAlong(CascadeOp cascade, const IndexSets &sets,
                              unsigned stream) {
  MovedAlong moved;
  uint64_t rows = cascade.indicesOfRole(CascadeOp::Row);
  OpSet swept = opsOfSweep(cascade, stream);
  auto bitsOf = [&](Type type) {
    return type.isIntOrFloat() ? int64_t(type.getIntOrFloatBitWidth()) : 0;
  };
  for (auto read : cascade.getBody().getOps<ReadOp>()) {
    uint64_t set = sets.of(read.getValue());
    if (!(set & (uint64_t(1) << stream)))
      continue;
    Type type = read.getValue().getType();
    moved.bits += bitsOf(type);
    if (!swept.contains(read))
      continue;
    int64_t bytes =
        type.isIntOrFloat() ? std::max<int64_t>(bitsOf(type) / 8, 1) : 4;
    moved.sweptBytes += bytes;
    moved.ownSweptBytes += set & rows ? bytes : 0;
    moved.sweepsShared |= !(set & rows);
  }
  for (auto write : cascade.getBody().getOps<WriteOp>())
    for (Value index : write.getIndices())
      if (sets.of(index) & (uint64_t(1) << stream))
        moved.bits += bitsOf(write.getValue().getType());
  return moved;
}

std::optional<int64_t> refold::longestSweptAlone(const MovedAlong &moved,
                                                 const TargetFacts &target) {
  if (!moved.sweepsShared)
    return std::nullopt;
  return target.l2Bytes / 4 * 3 / moved.sweptBytes;
}

std::optional<int64_t> refold::longestWrittenFirst(const MovedAlong &moved,
                                                   const TargetFacts &target) {
  if (!target.beginsNextRow || !moved.ownSweptBytes)
    return std::nullopt;
  return target.l2Bytes / 4 * 3 / moved.sweptBytes;
}
