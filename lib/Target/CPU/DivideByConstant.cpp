// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A division by a constant in two operations instead of some sixteen cycles
// (`vdivps` of 512 bits).
#include "VectorMath.h"
#include "refold/Support/Reciprocal.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace refold;

/// The one number that `v` is in all lanes.
static std::optional<APFloat> splatOf(Value v) {
  if (auto all = v.getDefiningOp<vector::BroadcastOp>())
    v = all.getSource();
  if (auto all = v.getDefiningOp<vector::SplatOp>())
    v = all.getInput();
  DenseFPElementsAttr all;
  FloatAttr one;
  if (matchPattern(v, m_Constant(&one)))
    return one.getValue();
  if (matchPattern(v, m_Constant(&all)) && all.isSplat())
    return all.getSplatValue<APFloat>();
  return std::nullopt;
}

namespace {
struct QuotientByConstant : OpRewritePattern<arith::DivFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::DivFOp op,
                                PatternRewriter &rewriter) const override {
    Type element = getElementTypeOrSelf(op.getType());
    std::optional<APFloat> divisor = splatOf(op.getRhs());
    if (!divisor || !(element.isF32() || element.isF64()))
      return failure();
    std::optional<Reciprocal> parts = reciprocalOf(*divisor);
    if (!parts)
      return failure();
    auto constant = [&](const APFloat &value) -> Value {
      TypedAttr attribute = FloatAttr::get(element, value);
      if (auto type = dyn_cast<ShapedType>(op.getType()))
        attribute = DenseElementsAttr::get(type, value);
      return rewriter.create<arith::ConstantOp>(op.getLoc(), attribute);
    };
    Value high = constant(parts->high);
    if (parts->low.isZero()) {
      rewriter.replaceOpWithNewOp<arith::MulFOp>(op, op.getLhs(), high);
      return success();
    }
    Value rest = rewriter.create<arith::MulFOp>(op.getLoc(), op.getLhs(),
                                                constant(parts->low));
    rewriter.replaceOpWithNewOp<math::FmaOp>(op, op.getLhs(), high, rest);
    return success();
  }
};
} // namespace

void refold::populateDivideByConstant(RewritePatternSet &patterns) {
  patterns.add<QuotientByConstant>(patterns.getContext());
}
