// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A division by a constant in two operations instead of some sixteen cycles
// (`vdivps` of 512 bits): x / c = x·high + x·low, the product with `low`
// rounded, the rest an FMA, where high + low is 1 / c to twice the digits of
// the type. (N. Brisebarre, J.-M. Muller, S. K. Raina: Accelerating correctly
// rounded floating-point division when the divisor is known in advance, IEEE
// Transactions on Computers 53(8), 2004.)
#include "VectorMath.h"

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
struct Reciprocal {
  APFloat high, low;
};

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

private:
  /// 1 / `divisor` in two parts of one sign, so that infinities and zeros of
  /// either sign stay what they are. None where a part would be no normal
  /// number, or near the end of its range.
  static std::optional<Reciprocal> reciprocalOf(const APFloat &divisor) {
    if (!divisor.isFiniteNonZero() || divisor.isDenormal())
      return std::nullopt;
    const llvm::fltSemantics &type = divisor.getSemantics();
    int digits = APFloat::semanticsPrecision(type);
    if (std::abs(ilogb(divisor)) >
        APFloat::semanticsMaxExponent(type) - digits - 2)
      return std::nullopt;
    APFloat high(type, 1), one(type, 1);
    high.divide(divisor, APFloat::rmTowardZero);
    APFloat low = -high; // what is left of 1 is a number of the type
    low.fusedMultiplyAdd(divisor, one, APFloat::rmNearestTiesToEven);
    low.divide(divisor, APFloat::rmNearestTiesToEven);
    if (low.isZero())
      low.clearSign();
    return Reciprocal{high, low};
  }
};
} // namespace

void refold::populateDivideByConstant(RewritePatternSet &patterns) {
  patterns.add<QuotientByConstant>(patterns.getContext());
}
