// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Passes.h"
#include "RewriteRoots.h"
#include "VectorMath.h"
#include "mlir/Conversion/MathToLibm/MathToLibm.h"
#include "mlir/Dialect/Arith/Transforms/Passes.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Iterators.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "mlir/Transforms/DialectConversion.h"

using namespace mlir;
using namespace refold;

namespace {
/// A function by the arithmetic of VectorMath.
template <typename OpTy, Value (*emit)(VectorMath &, Value), bool hasDouble>
struct ByArithmetic : OpRewritePattern<OpTy> {
  ByArithmetic(MLIRContext *context, InstructionSet instructionSet)
      : OpRewritePattern<OpTy>(context), instructionSet(instructionSet) {}

  LogicalResult matchAndRewrite(OpTy op,
                                PatternRewriter &rewriter) const override {
    Type element = getElementTypeOrSelf(op.getType());
    if (!element.isF32() && !(hasDouble && element.isF64()))
      return failure();
    // A number among registers: with the constants that these use, which would
    // else have to be there twice, and by one way instead of two.
    auto vector =
        VectorType::get({512 / element.getIntOrFloatBitWidth()}, element);
    VectorMath wide(rewriter, op.getLoc(), vector, instructionSet);
    if (isExponential && !isa<VectorType>(op.getType()) && wide.hasScaleF()) {
      Value all = rewriter.create<vector::BroadcastOp>(op.getLoc(), vector,
                                                       op.getOperand());
      rewriter.replaceOpWithNewOp<vector::ExtractOp>(op, emit(wide, all),
                                                     ArrayRef<int64_t>{0});
      return success();
    }
    VectorMath m(rewriter, op.getLoc(), op.getType(), instructionSet);
    if constexpr (std::is_same_v<OpTy, math::Exp2Op>) {
      if (bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::afn)) {
        bool isShort = bitEnumContainsAll(op.getFastmath(),
                                          arith::FastMathFlags::contract);
        rewriter.replaceOp(op, isShort ? emitShortExp2(m, op.getOperand())
                                       : emitFlushedExp2(m, op.getOperand()));
        return success();
      }
      if (bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::ninf)) {
        rewriter.replaceOp(op, emitBoundedExp2(m, op.getOperand()));
        return success();
      }
    }
    rewriter.replaceOp(op, emit(m, op.getOperand()));
    return success();
  }
  static constexpr bool isExponential =
      std::is_same_v<OpTy, math::ExpOp> || std::is_same_v<OpTy, math::Exp2Op>;
  InstructionSet instructionSet;
};

/// expm1(x) - x, whose two terms are equal near 0.
struct ExpTail : OpRewritePattern<arith::SubFOp> {
  ExpTail(MLIRContext *context, InstructionSet instructionSet)
      : OpRewritePattern<arith::SubFOp>(context),
        instructionSet(instructionSet) {}

  LogicalResult matchAndRewrite(arith::SubFOp op,
                                PatternRewriter &rewriter) const override {
    auto less = op.getLhs().getDefiningOp<math::ExpM1Op>();
    Type element = getElementTypeOrSelf(op.getType());
    if (!less || less.getOperand() != op.getRhs() ||
        !(element.isF32() || element.isF64()))
      return failure();
    VectorMath m(rewriter, op.getLoc(), op.getType(), instructionSet);
    rewriter.replaceOp(op, emitExpTail(m, op.getRhs()));
    return success();
  }
  InstructionSet instructionSet;
};

/// The one number that all lanes of a constant are.
static std::optional<double> splatOf(Value v) {
  DenseFPElementsAttr all;
  if (!matchPattern(v, m_Constant(&all)) || !all.isSplat())
    return std::nullopt;
  return all.getSplatValue<APFloat>().convertToDouble();
}

/// a·c - b in one step, where c is a power of two of at most 1, so that the
/// product is exact unless it is subnormal, and only exponentials read it.
/// Other products may not: a pivot is one of them rounded, and the difference
/// of the largest score to it has to be 0. Sapphire Rapids, weights in bf16, ns
/// a register: 2.9, so 2.6.
struct ScaledExponent : OpRewritePattern<arith::SubFOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::SubFOp op,
                                PatternRewriter &rewriter) const override {
    auto product = op.getLhs().getDefiningOp<arith::MulFOp>();
    if (!product || !product->hasOneUse() || !isExponent(op))
      return failure();
    std::optional<double> scale = splatOf(product.getRhs());
    int exponent;
    if (!scale || !(std::abs(*scale) <= 1) ||
        std::abs(std::frexp(*scale, &exponent)) != 0.5)
      return failure();
    Value less = rewriter.create<arith::NegFOp>(op.getLoc(), op.getRhs());
    rewriter.replaceOpWithNewOp<math::FmaOp>(op, product.getLhs(),
                                             product.getRhs(), less);
    return success();
  }

private:
  /// Whether exponentials alone read it, as it is or times a number.
  static bool isExponent(Value x) {
    auto isRead = [](Operation *user) {
      return isa<math::ExpOp, math::Exp2Op>(user);
    };
    return !x.use_empty() && llvm::all_of(x.getUsers(), [&](Operation *user) {
      auto times = dyn_cast<arith::MulFOp>(user);
      return isRead(user) ||
             (times && splatOf(times.getRhs()) && !times->use_empty() &&
              llvm::all_of(times->getUsers(), isRead));
    });
  }
};

/// A machine without it would call fmaf of libm for each element.
struct FmaInTwo : OpRewritePattern<math::FmaOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(math::FmaOp op,
                                PatternRewriter &rewriter) const override {
    Value product =
        rewriter.create<arith::MulFOp>(op.getLoc(), op.getA(), op.getB());
    rewriter.replaceOpWithNewOp<arith::AddFOp>(op, product, op.getC());
    return success();
  }
};
/// vector.fma as math.fma, so that one pattern sees both.
struct VectorFma : OpRewritePattern<vector::FMAOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(vector::FMAOp op,
                                PatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<math::FmaOp>(op, op.getLhs(), op.getRhs(),
                                             op.getAcc());
    return success();
  }
};

/// clamp(NaN as 0 of roundeven(x)) as bytes, a register of f32: the conversion
/// rounds, its mask takes NaN out, what is too low for it becomes the lowest
/// word, and what is too high is cut off before. Bounds are whole numbers
/// around 0, so that cutting off before rounding is the same.
struct RoundedBytes : OpRewritePattern<arith::FPToSIOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(arith::FPToSIOp op,
                                PatternRewriter &rewriter) const override {
    constexpr double kLowest = -128.0, kHighest = 127.0;
    constexpr int32_t kNearestEven = 8; // and no exceptions
    auto type = dyn_cast<VectorType>(op.getType());
    if (!type || type.getShape() != ArrayRef<int64_t>{16} ||
        !type.getElementType().isInteger(8) ||
        !getElementTypeOrSelf(op.getIn().getType()).isF32())
      return failure();
    auto least = op.getIn().getDefiningOp<arith::MinimumFOp>();
    auto most = least ? least.getLhs().getDefiningOp<arith::MaximumFOp>()
                      : arith::MaximumFOp();
    auto number = most ? most.getLhs().getDefiningOp<arith::SelectOp>()
                       : arith::SelectOp();
    if (!number || splatOf(least.getRhs()) != kHighest ||
        splatOf(most.getRhs()) != kLowest ||
        splatOf(number.getTrueValue()) != 0.0)
      return failure();
    Value rounded = number.getFalseValue();
    auto isNan = number.getCondition().getDefiningOp<arith::CmpFOp>();
    if (!isNan || isNan.getPredicate() != arith::CmpFPredicate::UNO ||
        isNan.getLhs() != rounded || isNan.getRhs() != rounded ||
        !rounded.getDefiningOp<math::RoundEvenOp>())
      return failure();
    Value x = rounded;
    while (auto round = x.getDefiningOp<math::RoundEvenOp>())
      x = round.getOperand();
    Location loc = op.getLoc();
    Type words = type.clone(rewriter.getI32Type());
    auto all = [&](int32_t word) -> Value {
      return rewriter.create<arith::ConstantOp>(
          loc, DenseElementsAttr::get(cast<ShapedType>(words), word));
    };
    Value isLow = rewriter.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OLT,
                                                 x, least.getRhs());
    Value low = rewriter.create<arith::SelectOp>(loc, isLow, x, least.getRhs());
    Value isNumber =
        rewriter.create<arith::CmpFOp>(loc, arith::CmpFPredicate::ORD, x, x);
    Value mask = rewriter.create<vector::BitCastOp>(
        loc, VectorType::get({1}, rewriter.getI16Type()), isNumber);
    mask = rewriter.create<vector::ExtractOp>(loc, mask, ArrayRef<int64_t>{0});
    Value mode = rewriter.create<arith::ConstantOp>(
        loc, rewriter.getI32IntegerAttr(kNearestEven));
    Value v =
        rewriter
            .create<LLVM::CallIntrinsicOp>(
                loc, words,
                rewriter.getStringAttr("llvm.x86.avx512.mask.cvtps2dq.512"),
                ValueRange{low, all(0), mask, mode})
            .getResult(0);
    // Both bounds, although one holds: together they are one instruction.
    v = rewriter.create<arith::MaxSIOp>(loc, v, all(int32_t(kLowest)));
    v = rewriter.create<arith::MinSIOp>(loc, v, all(int32_t(kHighest)));
    rewriter.replaceOpWithNewOp<arith::TruncIOp>(op, type, v);
    return success();
  }
};

/// Four registers of words, each cut off at the ends of a byte, as the bytes of
/// one: instructions that narrow cut off by themselves, and leave the words of
/// each group of 128 bits side by side.
struct PackedBytes : OpRewritePattern<vector::ShuffleOp> {
  using OpRewritePattern::OpRewritePattern;
  LogicalResult matchAndRewrite(vector::ShuffleOp op,
                                PatternRewriter &rewriter) const override {
    constexpr int64_t kGroups = 4, kBytes = 64;
    auto areSideBySide = [](vector::ShuffleOp both) {
      return both && llvm::all_of(llvm::enumerate(both.getMask()), [](auto at) {
               return cast<IntegerAttr>(at.value()).getInt() ==
                      int64_t(at.index());
             });
    };
    VectorType type = op.getResultVectorType();
    if (type.getShape() != ArrayRef<int64_t>{kBytes} ||
        !type.getElementType().isInteger(8) || !areSideBySide(op))
      return failure();
    SmallVector<Value> words;
    for (Value half : {op.getV1(), op.getV2()}) {
      auto both = half.getDefiningOp<vector::ShuffleOp>();
      if (!areSideBySide(both))
        return failure();
      for (Value part : {both.getV1(), both.getV2()})
        words.push_back(wordsOf(part));
    }
    if (!llvm::all_of(words, [](Value v) { return bool(v); }))
      return failure();
    Location loc = op.getLoc();
    auto call = [&](StringRef name, Type result, Value x, Value y) {
      return rewriter
          .create<LLVM::CallIntrinsicOp>(
              loc, result, rewriter.getStringAttr(name), ValueRange{x, y})
          .getResult(0);
    };
    auto halves = VectorType::get({kBytes / 2}, rewriter.getI16Type());
    Value low =
        call("llvm.x86.avx512.packssdw.512", halves, words[0], words[1]);
    Value high =
        call("llvm.x86.avx512.packssdw.512", halves, words[2], words[3]);
    Value bytes = call("llvm.x86.avx512.packsswb.512", type, low, high);
    auto wordType = cast<VectorType>(words[0].getType());
    Value mixed = rewriter.create<vector::BitCastOp>(loc, wordType, bytes);
    SmallVector<int64_t> order;
    for (int64_t word = 0; word < kGroups; ++word)
      for (int64_t group = 0; group < kGroups; ++group)
        order.push_back(group * kGroups + word);
    mixed = rewriter.create<vector::ShuffleOp>(loc, mixed, mixed, order);
    rewriter.replaceOpWithNewOp<vector::BitCastOp>(op, type, mixed);
    return success();
  }

private:
  /// What is cut off and narrowed to `bytes`; null if it is not.
  static Value wordsOf(Value bytes) {
    auto cut = bytes.getDefiningOp<arith::TruncIOp>();
    auto low =
        cut ? cut.getIn().getDefiningOp<arith::MinSIOp>() : arith::MinSIOp();
    auto high =
        low ? low.getLhs().getDefiningOp<arith::MaxSIOp>() : arith::MaxSIOp();
    auto isAll = [](Value v, int64_t number) {
      DenseIntElementsAttr all;
      return matchPattern(v, m_Constant(&all)) && all.isSplat() &&
             all.getSplatValue<APInt>().getSExtValue() == number;
    };
    auto words = high ? dyn_cast<VectorType>(high.getType()) : VectorType();
    if (!words || words.getShape() != ArrayRef<int64_t>{16} ||
        !words.getElementType().isInteger(32) || !isAll(high.getRhs(), -128) ||
        !isAll(low.getRhs(), 127))
      return Value();
    return high.getLhs();
  }
};

struct LowerMath : PassWrapper<LowerMath, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerMath)
  explicit LowerMath(InstructionSet instructionSet)
      : instructionSet(instructionSet) {}
  StringRef getArgument() const override { return "refold-lower-math"; }
  StringRef getDescription() const override {
    return "mathematical functions to arithmetic and libm";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry
        .insert<arith::ArithDialect, func::FuncDialect, LLVM::LLVMDialect,
                math::MathDialect, scf::SCFDialect, vector::VectorDialect>();
  }

  void runOnOperation() override {
    MLIRContext *context = &getContext();
    // Before what they are made of is arithmetic, and cancels.
    RewritePatternSet tails(context);
    tails.add<ExpTail>(context, instructionSet);
    bool hasExpM1 =
        getOperation()
            .walk([](math::ExpM1Op) { return WalkResult::interrupt(); })
            .wasInterrupted();
    if (hasExpM1 && failed(rewriteRoots(getOperation(), std::move(tails))))
      return signalPassFailure();
    RewritePatternSet exponents(context);
    if (instructionSet != InstructionSet::Baseline)
      exponents.add<ScaledExponent>(context);
    if (failed(rewriteRoots(getOperation(), std::move(exponents))))
      return signalPassFailure();
    // What is made of a number has left the loops with it.
    divideByNumbers(getOperation(), instructionSet);
    RewritePatternSet patterns(context);
    patterns.add<ByArithmetic<math::ExpOp, emitExp, true>,
                 ByArithmetic<math::Exp2Op, emitExp2, false>,
                 ByArithmetic<math::ExpM1Op, emitExpM1, true>,
                 ByArithmetic<math::LogOp, emitLog, false>,
                 ByArithmetic<math::Log2Op, emitLog2, false>,
                 ByArithmetic<math::Log1pOp, emitLog1p, false>,
                 ByArithmetic<math::SinhOp, emitSinh, false>,
                 ByArithmetic<math::CoshOp, emitCosh, false>,
                 ByArithmetic<math::TanhOp, emitTanh, false>,
                 ByArithmetic<math::ErfOp, emitErf, false>>(context,
                                                            instructionSet);
    arith::populateCeilFloorDivExpandOpsPatterns(patterns);
    if (instructionSet == InstructionSet::AVX512)
      patterns.add<RoundedBytes, PackedBytes>(context);
    if (instructionSet == InstructionSet::Baseline)
      patterns.add<FmaInTwo, VectorFma>(context);
    else
      populateDivideByConstant(patterns);
    if (failed(rewriteRoots(getOperation(), std::move(patterns))))
      return signalPassFailure();
    // A call stays, used or not.
    getOperation().walk<WalkOrder::PostOrder, ReverseIterator>(
        [](Operation *op) {
          if (isa_and_nonnull<math::MathDialect>(op->getDialect()) &&
              op->use_empty())
            op->erase();
        });
    callLibm();
  }

private:
  /// The rest goes to libm, element by element. What LLVM has instructions or
  /// exact expansions for stays; log1p and expm1 of f64 must not, since
  /// MathToLLVM makes them log(1 + x) and exp(x) - 1.
  void callLibm() {
    RewritePatternSet patterns(&getContext());
    populateMathToLibmConversionPatterns(patterns);
    ConversionTarget target(getContext());
    target.addLegalDialect<arith::ArithDialect, func::FuncDialect,
                           LLVM::LLVMDialect, vector::VectorDialect>();
    target.addIllegalDialect<math::MathDialect>();
    target.addLegalOp<math::AbsFOp, math::AbsIOp, math::CeilOp,
                      math::CopySignOp, math::CountLeadingZerosOp,
                      math::CountTrailingZerosOp, math::CtPopOp, math::FloorOp,
                      math::FmaOp, math::FPowIOp, math::RoundEvenOp,
                      math::RsqrtOp, math::SqrtOp, math::TruncOp>();
    if (failed(applyPartialConversion(getOperation(), target,
                                      std::move(patterns))))
      signalPassFailure();
  }
  InstructionSet instructionSet;
};
} // namespace

std::unique_ptr<Pass>
refold::createLowerMathPass(InstructionSet instructionSet) {
  return std::make_unique<LowerMath>(instructionSet);
}
