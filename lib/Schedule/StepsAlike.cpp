// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "StepsAlike.h"

#include "mlir/IR/AffineExpr.h"
#include <limits>

using namespace mlir;
using namespace refold;

int64_t refold::stepsAlike(ReadOp read, Value index) {
  constexpr int64_t kAll = std::numeric_limits<int64_t>::max();
  int64_t steps = kAll;
  for (auto [d, moved] : llvm::enumerate(read.getIndices())) {
    if (moved != index)
      continue;
    for (AffineExpr subscript : read.getMap().getResults()) {
      if (!subscript.isFunctionOfDim(d))
        continue;
      auto quotient = dyn_cast<AffineBinaryOpExpr>(subscript);
      auto by = quotient && quotient.getKind() == AffineExprKind::FloorDiv
                    ? dyn_cast<AffineConstantExpr>(quotient.getRHS())
                    : AffineConstantExpr(nullptr);
      if (!by || !isa<AffineDimExpr>(quotient.getLHS()))
        return 1;
      steps = std::min(steps, by.getValue());
    }
  }
  return steps == kAll ? 1 : steps;
}
