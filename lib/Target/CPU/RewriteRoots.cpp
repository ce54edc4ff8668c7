// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RewriteRoots.h"

#include <algorithm>

using namespace mlir;

LogicalResult
refold::rewriteRoots(Operation *inside, RewritePatternSet &&patterns,
                     llvm::function_ref<bool(Operation *)> isOfAny) {
  FrozenRewritePatternSet frozen(std::move(patterns));
  const auto &byName = frozen.getOpSpecificNativePatterns();
  SmallVector<Operation *> roots;
  inside->walk([&](Operation *op) {
    if (op != inside &&
        (byName.contains(op->getName()) || (isOfAny && isOfAny(op))))
      roots.push_back(op);
  });
  if (roots.empty())
    return success();
  std::reverse(roots.begin(), roots.end()); // the last one is taken first
  GreedyRewriteConfig config;
  config.strictMode = GreedyRewriteStrictness::ExistingAndNewOps;
  config.enableRegionSimplification = GreedySimplifyRegionLevel::Disabled;
  return applyOpPatternsAndFold(roots, frozen, config);
}
