// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Columns.h"

#include "refold/Dialect/Refold/IR/Refold.h"

using namespace mlir;
using namespace refold;

int refold::denseIndexOf(CascadeOp cascade, AffineMap map, ValueRange indices) {
  if (!map.getNumResults())
    return -1;
  auto dim = dyn_cast<AffineDimExpr>(map.getResults().back());
  auto arg = dim ? dyn_cast<BlockArgument>(indices[dim.getPosition()])
                 : BlockArgument();
  return arg && arg.getArgNumber() < cascade.numIndices()
             ? int(arg.getArgNumber())
             : -1;
}

/// A list of one: an element of each row is held against it in registers.
/// Longer ones are quicker made of candidates, of rows that are turned.
static bool mayEnterLanes(CascadeOp cascade, const IndexSets &sets,
                          StateOp state) {
  int64_t length = 1;
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (sets.of(state.getResult(0)) &
        cascade.indicesOfRole(CascadeOp::Carried) & (uint64_t(1) << i))
      length *= cascade.getExtents()[i];
  return length == 1 &&
         llvm::popcount(cascade.indicesOfRole(CascadeOp::Stream)) == 1;
}

int refold::columnRowOf(CascadeOp cascade, const IndexSets &sets, int stream,
                        const TargetFacts &target) {
  constexpr int64_t kFew = 4;
  auto bit = [](unsigned i) { return uint64_t(1) << i; };
  for (auto state : cascade.getBody().getOps<StateOp>())
    if (state.isOrdered() && !mayEnterLanes(cascade, sets, state))
      return -1;
  std::vector<int> dense(cascade.numIndices(), 0);
  uint64_t alongStream = 0;
  for (auto read : cascade.getBody().getOps<ReadOp>()) {
    uint64_t set = sets.of(read.getValue());
    int i = denseIndexOf(cascade, read.getMap(), read.getIndices());
    if (!(set & bit(stream)) || i < 0)
      continue;
    ++dense[i];
    if (i == stream)
      alongStream |= set;
  }
  uint64_t rows = cascade.indicesOfRole(CascadeOp::Row);
  int best = -1;
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    int64_t extent = cascade.getExtents()[i];
    bool isLarge = ShapedType::isDynamic(extent) || extent >= kFew;
    if ((rows & ~alongStream & bit(i)) && dense[i] && isLarge &&
        (best < 0 || dense[i] >= dense[best]))
      best = int(i);
  }
  bool isWrittenAlong =
      llvm::any_of(cascade.getBody().getOps<WriteOp>(), [&](WriteOp w) {
        return denseIndexOf(cascade, w.getMap(), w.getIndices()) == stream;
      });
  if (best >= 0 && isWrittenAlong &&
      !turnedAccesses(cascade, sets, stream, best, target).reads.empty())
    return -1;
  return best;
}
