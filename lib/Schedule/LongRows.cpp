// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Schedule/Schedule.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace refold;

/// What a sweep reads along `stream`, states apart.
static llvm::SmallSetVector<Operation *, 8>
readsOfSweep(CascadeOp cascade, const IndexSets &sets, unsigned stream) {
  llvm::SmallSetVector<Operation *, 8> seen, reads;
  SmallVector<Value> open;
  for (auto write : cascade.getBody().getOps<WriteOp>())
    if (llvm::is_contained(write.getIndices(),
                           cascade.getBody().getArgument(stream)))
      open.push_back(write.getValue());
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (!op || isa<StateOp>(op) || !seen.insert(op))
      continue;
    open.append(op->operand_begin(), op->operand_end());
    if (isa<ReadOp>(op) &&
        (sets.of(op->getResult(0)) & (uint64_t(1) << stream)))
      reads.insert(op);
  }
  return reads;
}

std::optional<int64_t> refold::longestSweptAlone(CascadeOp cascade,
                                                 const IndexSets &sets,
                                                 unsigned stream,
                                                 const TargetFacts &target) {
  uint64_t rows = cascade.indicesOfRole(CascadeOp::Row);
  int64_t place = 0;
  bool hasShared = false;
  for (Operation *op : readsOfSweep(cascade, sets, stream)) {
    Type type = op->getResult(0).getType();
    place += type.isIntOrFloat()
                 ? std::max<int64_t>(type.getIntOrFloatBitWidth() / 8, 1)
                 : 4;
    hasShared |= !(sets.of(op->getResult(0)) & rows);
  }
  if (!hasShared)
    return std::nullopt;
  return target.l2Bytes / 4 * 3 / place;
}
