// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Passes.h"
#include "RewriteRoots.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/TypeUtilities.h"

using namespace mlir;
using namespace refold;

namespace {
/// A float of at most 16 bits.
struct SmallFormat {
  unsigned bits, mantissaBits;
  int bias;
  uint32_t overflow; ///< what too large a value becomes, without sign
  uint32_t nan;

  uint32_t signMask() const { return uint32_t(1) << (bits - 1); }
};

/// Bit arithmetic on i32 or a vector of it.
class Bits {
public:
  Bits(OpBuilder &b, Location loc, Type like) : b(b), loc(loc) {
    i32 = shaped(like, b.getI32Type());
    f32 = shaped(like, b.getF32Type());
  }
  static Type shaped(Type like, Type element) {
    if (auto vector = dyn_cast<VectorType>(like))
      return vector.clone(element);
    return element;
  }
  Value constant(uint32_t value) {
    return splat(i32, b.getI32IntegerAttr(value));
  }
  Value real(float value) { return splat(f32, b.getF32FloatAttr(value)); }
  Value add(Value x, Value y) { return b.create<arith::AddIOp>(loc, x, y); }
  Value sub(Value x, Value y) { return b.create<arith::SubIOp>(loc, x, y); }
  Value conj(Value x, uint32_t y) {
    return b.create<arith::AndIOp>(loc, x, constant(y));
  }
  Value disj(Value x, Value y) { return b.create<arith::OrIOp>(loc, x, y); }
  Value left(Value x, uint32_t n) {
    return b.create<arith::ShLIOp>(loc, x, constant(n));
  }
  Value right(Value x, uint32_t n) {
    return b.create<arith::ShRUIOp>(loc, x, constant(n));
  }
  Value less(Value x, uint32_t y) {
    return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ult, x,
                                   constant(y));
  }
  Value greater(Value x, uint32_t y) {
    return b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::ugt, x,
                                   constant(y));
  }
  Value atMost(Value x, uint32_t y) {
    return b.create<arith::MinUIOp>(loc, x, constant(y));
  }
  Value isNan(Value x) {
    return b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::UNO, x, x);
  }
  Value select(Value c, Value x, Value y) {
    return b.create<arith::SelectOp>(loc, c, x, y);
  }
  Value asReal(Value x) { return b.create<arith::BitcastOp>(loc, f32, x); }
  Value asBits(Value x) { return b.create<arith::BitcastOp>(loc, i32, x); }
  Value addReal(Value x, Value y) { return b.create<arith::AddFOp>(loc, x, y); }
  Value mulReal(Value x, Value y) { return b.create<arith::MulFOp>(loc, x, y); }
  /// The bits of a small float, extended; and back.
  Value widen(Value x, unsigned bits) {
    Type narrow = shaped(x.getType(), b.getIntegerType(bits));
    return b.create<arith::ExtUIOp>(loc, i32,
                                    b.create<arith::BitcastOp>(loc, narrow, x));
  }
  Value narrow(Value x, Type type, unsigned bits) {
    Type integers = shaped(type, b.getIntegerType(bits));
    return b.create<arith::BitcastOp>(
        loc, type, b.create<arith::TruncIOp>(loc, integers, x));
  }

private:
  Value splat(Type type, TypedAttr element) {
    if (auto vector = dyn_cast<VectorType>(type))
      element = DenseElementsAttr::get(vector, Attribute(element));
    return b.create<arith::ConstantOp>(loc, element);
  }
  OpBuilder &b;
  Location loc;
  Type i32, f32;
};
} // namespace

static std::optional<SmallFormat> formatOf(Type type) {
  Type element = getElementTypeOrSelf(type);
  if (element.isF16())
    return SmallFormat{16, 10, 15, 0x7c00, 0x7e00};
  if (element.isBF16())
    return SmallFormat{16, 7, 127, 0x7f80, 0x7fc0};
  if (element.isFloat8E5M2())
    return SmallFormat{8, 2, 15, 0x7c, 0x7e};
  if (element.isFloat8E4M3FN()) // no infinity: too large is NaN
    return SmallFormat{8, 3, 7, 0x7f, 0x7f};
  return std::nullopt;
}

/// Small float to f32; exact. A multiplication by a power of two moves the
/// exponent, which takes subnormal values right too.
static Value extend(Bits &m, const SmallFormat &f, Value x) {
  Value bits = m.widen(x, f.bits);
  unsigned shift = 23 - f.mantissaBits;
  if (f.bias == 127)
    return m.asReal(m.left(bits, shift));
  Value sign = m.left(m.conj(bits, f.signMask()), 32 - f.bits);
  Value rest = m.conj(bits, f.signMask() - 1);
  float power = __builtin_ldexpf(1.0f, 127 - f.bias);
  Value magnitude =
      m.asBits(m.mulReal(m.asReal(m.left(rest, shift)), m.real(power)));
  Value special = m.disj(m.left(rest, shift), m.constant(0x7f800000));
  // From its infinity on (E4M3FN: only its NaN) the exponent stays all ones.
  magnitude = m.select(m.less(rest, f.overflow), magnitude, special);
  return m.asReal(m.disj(magnitude, sign));
}

/// f32 to bf16, to nearest even: its upper half, and one more. What is carried
/// out of the mantissa makes the largest numbers infinity. Zen 4, one thread,
/// 4096 x 4096: LayerNorm 6.2 ms as below, so 5.3, RMSNorm 4.3 and 3.9.
static Value roundToUpperHalf(Bits &m, const SmallFormat &f, Value x,
                              Type type) {
  Value bits = m.asBits(x);
  Value upper = m.right(bits, 16);
  Value half = m.add(bits, m.constant(0x7fff));
  Value rounded = m.right(m.add(half, m.conj(upper, 1)), 16);
  Value nan = m.disj(m.conj(upper, f.signMask()), m.constant(f.nan));
  return m.narrow(m.select(m.isNan(x), nan, rounded), type, f.bits);
}

/// f32 to small float, to nearest even; NaN stays NaN.
static Value round(Bits &m, const SmallFormat &f, Value x, Type type) {
  if (f.bias == 127)
    return roundToUpperHalf(m, f, x, type);
  Value bits = m.asBits(x);
  Value sign = m.right(m.conj(bits, 0x80000000u), 32 - f.bits);
  Value magnitude = m.conj(bits, 0x7fffffff);
  unsigned shift = 23 - f.mantissaBits;
  // Half of the last place kept, and one less where that place is even.
  Value odd = m.conj(m.right(magnitude, shift), 1);
  Value rounded = m.add(m.add(magnitude, odd),
                        m.constant((uint32_t(1) << (shift - 1)) - 1));
  uint32_t rebias = uint32_t(127 - f.bias) << 23;
  Value normal = m.right(m.sub(rounded, m.constant(rebias)), shift);
  // Adding a number whose last place is the smallest subnormal rounds there.
  float anchor = __builtin_ldexpf(1.0f, 24 - f.bias - int(f.mantissaBits));
  Value anchored = m.asBits(m.addReal(m.asReal(magnitude), m.real(anchor)));
  Value subnormal =
      m.sub(anchored, m.constant(__builtin_bit_cast(uint32_t, anchor)));
  uint32_t smallestNormal = rebias + (uint32_t(1) << 23);
  Value result = m.select(m.less(magnitude, smallestNormal), subnormal, normal);
  result = m.atMost(result, f.overflow);
  result =
      m.select(m.greater(magnitude, 0x7f800000), m.constant(f.nan), result);
  return m.narrow(m.disj(result, sign), type, f.bits);
}

/// f64 to f32 such that rounding the result again is as rounding once: towards
/// zero, the last bit set where anything was lost.
static Value roundToOdd(OpBuilder &b, Location loc, Value x) {
  Bits m(b, loc, x.getType());
  Type f32 = Bits::shaped(x.getType(), b.getF32Type());
  Value nearest = b.create<arith::TruncFOp>(loc, f32, x);
  Value back = b.create<arith::ExtFOp>(loc, x.getType(), nearest);
  auto compare = [&](arith::CmpFPredicate predicate, Value y,
                     Value z) -> Value {
    return b.create<arith::CmpFOp>(loc, predicate, y, z);
  };
  Value isAway =
      compare(arith::CmpFPredicate::OGT, b.create<math::AbsFOp>(loc, back),
              b.create<math::AbsFOp>(loc, x));
  Value isInexact = compare(arith::CmpFPredicate::ONE, back, x);
  Value bits = m.asBits(nearest);
  Value towardsZero =
      m.sub(bits, m.select(isAway, m.constant(1), m.constant(0)));
  Value odd =
      m.disj(towardsZero, m.select(isInexact, m.constant(1), m.constant(0)));
  return m.asReal(odd);
}

static bool isMathOfSmall(Operation *op) {
  return isa_and_nonnull<math::MathDialect>(op->getDialect()) &&
         op->getNumResults() == 1 && formatOf(op->getResult(0).getType());
}

namespace {
/// A function of a small float is one of f32, rounded.
struct MathInF32 : RewritePattern {
  explicit MathInF32(MLIRContext *context)
      : RewritePattern(MatchAnyOpTypeTag(), /*benefit=*/1, context) {}
  LogicalResult matchAndRewrite(Operation *op,
                                PatternRewriter &rewriter) const override {
    if (!isMathOfSmall(op))
      return failure();
    Location loc = op->getLoc();
    auto inF32 = [&](Type type) {
      return Bits::shaped(type, rewriter.getF32Type());
    };
    SmallVector<Value> operands;
    for (Value operand : op->getOperands())
      operands.push_back(formatOf(operand.getType())
                             ? rewriter.create<arith::ExtFOp>(
                                   loc, inF32(operand.getType()), operand)
                             : operand);
    Type type = op->getResult(0).getType();
    Operation *wide = rewriter.create(loc, op->getName().getIdentifier(),
                                      operands, inF32(type), op->getAttrs());
    rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, type, wide->getResult(0));
    return success();
  }
};

struct LowerExtend : OpRewritePattern<arith::ExtFOp> {
  LowerExtend(MLIRContext *context, InstructionSet instructionSet)
      : OpRewritePattern(context), instructionSet(instructionSet) {}
  LogicalResult matchAndRewrite(arith::ExtFOp op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getIn();
    std::optional<SmallFormat> format = formatOf(x.getType());
    Type element = getElementTypeOrSelf(op.getType());
    if (!format)
      return failure();
    bool isNative = getElementTypeOrSelf(x).isF16() && element.isF32() &&
                    instructionSet != InstructionSet::Baseline;
    if (isNative)
      return failure();
    Bits m(rewriter, op.getLoc(), x.getType());
    Value wide;
    if (getElementTypeOrSelf(x).isF16() &&
        instructionSet != InstructionSet::Baseline)
      wide = rewriter.create<arith::ExtFOp>(
          op.getLoc(), Bits::shaped(x.getType(), rewriter.getF32Type()), x);
    else
      wide = extend(m, *format, x);
    if (element.isF64())
      wide = rewriter.create<arith::ExtFOp>(op.getLoc(), op.getType(), wide);
    else if (!element.isF32())
      wide = rewriter.create<arith::TruncFOp>(op.getLoc(), op.getType(), wide);
    rewriter.replaceOp(op, wide);
    return success();
  }
  InstructionSet instructionSet;
};

struct LowerTruncate : OpRewritePattern<arith::TruncFOp> {
  LowerTruncate(MLIRContext *context, InstructionSet instructionSet)
      : OpRewritePattern(context), instructionSet(instructionSet) {}
  LogicalResult matchAndRewrite(arith::TruncFOp op,
                                PatternRewriter &rewriter) const override {
    Value x = op.getIn();
    std::optional<SmallFormat> format = formatOf(op.getType());
    if (!format)
      return failure();
    Type from = getElementTypeOrSelf(x);
    bool isNative = getElementTypeOrSelf(op.getType()).isF16() &&
                    instructionSet != InstructionSet::Baseline;
    if (isNative && from.isF32())
      return failure();
    Location loc = op.getLoc();
    if (from.isF64())
      x = roundToOdd(rewriter, loc, x);
    else if (!from.isF32())
      x = rewriter.create<arith::ExtFOp>(
          loc, Bits::shaped(x.getType(), rewriter.getF32Type()), x);
    if (isNative) {
      rewriter.replaceOpWithNewOp<arith::TruncFOp>(op, op.getType(), x);
      return success();
    }
    Bits m(rewriter, loc, x.getType());
    rewriter.replaceOp(op, round(m, *format, x, op.getType()));
    return success();
  }
  InstructionSet instructionSet;
};

struct LowerFloatConversions
    : PassWrapper<LowerFloatConversions, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerFloatConversions)
  explicit LowerFloatConversions(InstructionSet instructionSet)
      : instructionSet(instructionSet) {}
  StringRef getArgument() const override {
    return "refold-lower-float-conversions";
  }
  StringRef getDescription() const override {
    return "conversions of f16, bf16 and f8 to integer arithmetic";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, math::MathDialect>();
  }
  void runOnOperation() override {
    RewritePatternSet patterns(&getContext());
    patterns.add<MathInF32>(&getContext());
    patterns.add<LowerExtend, LowerTruncate>(&getContext(), instructionSet);
    if (failed(
            rewriteRoots(getOperation(), std::move(patterns), isMathOfSmall)))
      signalPassFailure();
  }
  InstructionSet instructionSet;
};
} // namespace

std::unique_ptr<Pass>
refold::createLowerFloatConversionsPass(InstructionSet instructionSet) {
  return std::make_unique<LowerFloatConversions>(instructionSet);
}
