// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "VectorMath.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/TypeUtilities.h"
#include <cmath>

using namespace mlir;
using namespace refold;

VectorMath::VectorMath(OpBuilder &b, Location loc, Type type,
                       InstructionSet instructionSet)
    : b(b), loc(loc), type(type), instructionSet(instructionSet),
      width(getElementTypeOrSelf(type).getIntOrFloatBitWidth()) {
  intType = b.getIntegerType(width);
  if (auto vector = dyn_cast<VectorType>(type))
    intType = vector.clone(intType);
}

Value VectorMath::constant(double value) {
  TypedAttr attribute = b.getFloatAttr(getElementTypeOrSelf(type), value);
  if (auto vector = dyn_cast<VectorType>(type))
    attribute = DenseElementsAttr::get(vector, Attribute(attribute));
  return b.create<arith::ConstantOp>(loc, attribute);
}
Value VectorMath::integer(int64_t value) {
  TypedAttr attribute = b.getIntegerAttr(getElementTypeOrSelf(intType), value);
  if (auto vector = dyn_cast<VectorType>(intType))
    attribute = DenseElementsAttr::get(vector, Attribute(attribute));
  return b.create<arith::ConstantOp>(loc, attribute);
}
Value VectorMath::add(Value x, Value y) {
  return b.create<arith::AddFOp>(loc, x, y, arith::FastMathFlags::contract);
}
Value VectorMath::sub(Value x, Value y) {
  return b.create<arith::SubFOp>(loc, x, y);
}
Value VectorMath::mul(Value x, Value y) {
  return b.create<arith::MulFOp>(loc, x, y);
}
Value VectorMath::div(Value x, Value y) {
  return b.create<arith::DivFOp>(loc, x, y);
}
Value VectorMath::fma(Value x, Value y, Value z) {
  if (instructionSet == InstructionSet::Baseline)
    return add(mul(x, y), z);
  return b.create<math::FmaOp>(loc, x, y, z);
}
Value VectorMath::neg(Value x) { return b.create<arith::NegFOp>(loc, x); }
Value VectorMath::abs(Value x) { return b.create<math::AbsFOp>(loc, x); }
Value VectorMath::copySign(Value x, Value sign) {
  return b.create<math::CopySignOp>(loc, x, sign);
}
Value VectorMath::roundEven(Value x) {
  return b.create<math::RoundEvenOp>(loc, x);
}

// The constant comes first in the comparison and is what the select falls
// away from: this is maxps and minps as the machine has them, whose second
// operand is the answer for a NaN.
Value VectorMath::atLeast(Value x, double bound) {
  Value c = constant(bound);
  Value above = b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OGT, c, x);
  return select(above, c, x);
}
Value VectorMath::aboveOrBound(Value x, double bound) {
  Value c = constant(bound);
  Value above = b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OGT, x, c);
  return select(above, x, c);
}
Value VectorMath::atMost(Value x, double bound) {
  Value c = constant(bound);
  Value below = b.create<arith::CmpFOp>(loc, arith::CmpFPredicate::OLT, c, x);
  return select(below, c, x);
}

Value VectorMath::compare(arith::CmpFPredicate predicate, Value x, double y) {
  return b.create<arith::CmpFOp>(loc, predicate, x, constant(y));
}
Value VectorMath::select(Value condition, Value x, Value y) {
  return b.create<arith::SelectOp>(loc, condition, x, y);
}
Value VectorMath::bitsOf(Value x) {
  return b.create<arith::BitcastOp>(loc, intType, x);
}
Value VectorMath::fromBits(Value bits) {
  return b.create<arith::BitcastOp>(loc, type, bits);
}
Value VectorMath::addInt(Value x, Value y) {
  return b.create<arith::AddIOp>(loc, x, y);
}
Value VectorMath::subInt(Value x, Value y) {
  return b.create<arith::SubIOp>(loc, x, y);
}
Value VectorMath::shiftLeft(Value x, int64_t count) {
  return b.create<arith::ShLIOp>(loc, x, integer(count));
}
Value VectorMath::shiftRight(Value x, int64_t count) {
  return b.create<arith::ShRSIOp>(loc, x, integer(count));
}
Value VectorMath::toFloat(Value x) {
  return b.create<arith::SIToFPOp>(loc, type, x);
}

Value VectorMath::polynomial(Value x, ArrayRef<double> coefficients) {
  Value sum = constant(coefficients.back());
  for (double coefficient : llvm::reverse(coefficients.drop_back()))
    sum = fma(sum, x, constant(coefficient));
  return sum;
}

bool VectorMath::hasScaleF() const {
  auto vector = dyn_cast<VectorType>(type);
  return instructionSet == InstructionSet::AVX512 && vector &&
         vector.getRank() == 1 && vector.getNumElements() * width == 512;
}

Value VectorMath::scaleF(Value p, Value n) {
  unsigned lanes = 512 / width;
  Value mask = b.create<arith::ConstantOp>(
      loc, b.getIntegerAttr(b.getIntegerType(lanes), -1));
  constexpr int32_t kCurrentRounding = 4;
  Value rounding =
      b.create<arith::ConstantOp>(loc, b.getI32IntegerAttr(kCurrentRounding));
  auto name =
      b.getStringAttr(isDouble() ? "llvm.x86.avx512.mask.scalef.pd.512"
                                 : "llvm.x86.avx512.mask.scalef.ps.512");
  return b
      .create<LLVM::CallIntrinsicOp>(loc, type, name,
                                     ValueRange{p, n, p, mask, rounding})
      .getResult(0);
}

bool VectorMath::looksUpEight() const {
  auto vector = dyn_cast<VectorType>(type);
  return instructionSet == InstructionSet::AVX2 && vector && !isDouble() &&
         vector.getShape() == ArrayRef<int64_t>{8};
}

Value VectorMath::lookUp(ArrayRef<float> table, Value bits) {
  size_t kLanes = looksUpEight() ? 8 : 16;
  auto part = [&](size_t first) -> Value {
    return b.create<arith::ConstantOp>(
        loc, DenseElementsAttr::get(cast<VectorType>(type),
                                    table.slice(first, kLanes)));
  };
  auto call = [&](StringRef name, ValueRange operands) {
    return b
        .create<LLVM::CallIntrinsicOp>(loc, type, b.getStringAttr(name),
                                       operands)
        .getResult(0);
  };
  if (looksUpEight())
    return call("llvm.x86.avx2.permps", {part(0), bits});
  if (table.size() == kLanes)
    return call("llvm.x86.avx512.permvar.sf.512", {part(0), bits});
  return call("llvm.x86.avx512.vpermi2var.ps.512",
              {part(0), bits, part(kLanes)});
}

Value VectorMath::addRoundingDown(Value x, double c) {
  constexpr int32_t kDown = 9; // _MM_FROUND_TO_NEG_INF, no exceptions
  Value rounding = b.create<arith::ConstantOp>(loc, b.getI32IntegerAttr(kDown));
  return b
      .create<LLVM::CallIntrinsicOp>(
          loc, type, b.getStringAttr("llvm.x86.avx512.add.ps.512"),
          ValueRange{x, constant(c), rounding})
      .getResult(0);
}

Value VectorMath::aboveMultiple(Value x, int bits) {
  constexpr int32_t kDown = 9, kBitsAt = 4, kCurrentRounding = 4;
  auto word = [&](int32_t value) -> Value {
    return b.create<arith::ConstantOp>(loc, b.getI32IntegerAttr(value));
  };
  Value mask = b.create<arith::ConstantOp>(loc, b.getI16IntegerAttr(-1));
  auto name = b.getStringAttr("llvm.x86.avx512.mask.reduce.ps.512");
  return b
      .create<LLVM::CallIntrinsicOp>(
          loc, type, name,
          ValueRange{x, word(kDown | bits << kBitsAt), x, mask,
                     word(kCurrentRounding)})
      .getResult(0);
}

namespace {
/// What differs between e^x in f32 and f64.
struct ExpFormat {
  double highest, lowest; ///< above: infinity; below: 0
  /// What lies lower is scaled as if it were this. Intel's vscalefps takes 54
  /// ns for a result between 2^-512 and the normal numbers, 1 ns below
  /// (Sapphire Rapids; f64 likewise), and most that is so small is a mask.
  double farBelow;
  double small; ///< below: the result may be subnormal
  double ln2High,
      ln2Low;   ///< the first has so few bits that n times it is exact
  double magic; ///< adding it rounds to an integer in the low bits
  int mantissaBits, bias;
};
} // namespace

static constexpr ExpFormat kExpF32 = {89.0,       -104.0,      -1000.0,
                                      -86.0,      0.693359375, -2.12194440e-4,
                                      12582912.0, 23,          127};
static const ExpFormat kExpF64 = {710.0,
                                  -746.0,
                                  -8000.0,
                                  -700.0,
                                  6.93147180369123816490e-01,
                                  1.90821492927058770002e-10,
                                  6755399441055744.0,
                                  52,
                                  1023};

// e^r = 1 + r + r^2 q(r) on |r| <= ln(2)/2; minimax, errors 2^-28.3 and 2^-58.
static constexpr double kExpQ32[] = {0.499999934478, 0.166665206317,
                                     0.0416683880453, 0.00836871687966,
                                     0.0013814598649};
static constexpr double kExpQ64[] = {
    0.50000000000000000439,     0.1666666666666668342,
    0.041666666666666094269,    0.0083333333333170343817,
    0.0013888888889115634019,   0.00019841269896383537153,
    0.000024801586926620575119, 2.7557234862161098484e-6,
    2.755758185933793257e-7,    2.511203676683742727e-8,
    2.0826623627618281226e-9};
// 2^r = 1 + r q(r) on |r| <= 1/2; error 2^-28.9.
static constexpr double kExp2Q32[] = {0.693147202855,   0.240226479136,
                                      0.0555033247126,  0.00961843735844,
                                      0.00133988743782, 0.000153533617866};

/// p * 2^n where `shifted` = magic + n. Made of two exact factors, so that
/// overflow and gradual underflow round once; exactly 0 where `isZero`.
static Value scaleByParts(VectorMath &m, const ExpFormat &f, Value p,
                          Value shifted, Value isSmall, Value isZero) {
  // 2^(n-1) * 2 above, 2^(n+64) * 2^-64 below: both fit for every n.
  int64_t above = int64_t(f.bias - 1) << f.mantissaBits;
  int64_t below = int64_t(f.bias + 64) << f.mantissaBits;
  Value exponent = m.shiftLeft(m.bitsOf(shifted), f.mantissaBits);
  Value bias = m.select(isSmall, m.integer(below), m.integer(above));
  Value power = m.fromBits(m.addInt(exponent, bias));
  Value rest = m.select(isSmall, m.constant(0x1p-64), m.constant(2.0));
  // Multiplying by 0 instead of underflowing: underflow traps into microcode.
  rest = m.select(isZero, m.constant(0.0), rest);
  return m.mul(m.mul(p, power), rest);
}

/// 2^(j/16), rounded.
static constexpr float kRoots[] = {
    0x1p+0f,        0x1.0b5586p+0f, 0x1.172b84p+0f, 0x1.2387a6p+0f,
    0x1.306fep+0f,  0x1.3dea64p+0f, 0x1.4bfdaep+0f, 0x1.5ab07ep+0f,
    0x1.6a09e6p+0f, 0x1.7a1148p+0f, 0x1.8ace54p+0f, 0x1.9c4918p+0f,
    0x1.ae89fap+0f, 0x1.c199bep+0f, 0x1.d5818ep+0f, 0x1.ea4afap+0f};
/// Adding it rounds to sixteenths, whose number is in the last four bits.
static constexpr double kRoundToRoots = 0x1.8p19;

/// root * (1 + r q(r)), root as the last bits of `shifted` say: sixteen roots
/// of 2 leave so little of r that three terms are as good as six. AVX-512 in
/// f32. Additions and multiplications have ports of their own on Zen 4 and 5:
/// e^x has 7 multiplications and 4 additions (scaleF is two), with six terms it
/// had 9 and 5.
static Value timesRoot(VectorMath &m, Value shifted, Value r,
                       ArrayRef<double> q) {
  Value root = m.lookUp(kRoots, m.bitsOf(shifted));
  return m.fma(root, m.mul(m.polynomial(r, q), r), root);
}

static Value emitExpByRoots(VectorMath &m, Value x) {
  // (e^r - 1) / r on |r| <= ln(2)/32; Taylor, error 2^-26.7 of e^r.
  static constexpr double kQ[] = {1.0, 0.5, 0.166666666667};
  static constexpr double kLn2High = 0x1.62e43p-1, kLn2Low = -0x1.05c61p-29;
  static constexpr double kMostLeft = 0x1p-5; // more than ln(2)/32
  Value shifted =
      m.fma(x, m.constant(1.44269504088896340736), m.constant(kRoundToRoots));
  Value n = m.sub(shifted, m.constant(kRoundToRoots));
  Value r = m.fma(n, m.constant(-kLn2High), x);
  r = m.fma(n, m.constant(-kLn2Low), r);
  // Far out r is what rounding left, infinite or a NaN, and any p that is
  // positive and finite will do (MathAccuracyTest.LargeExp runs every such x):
  // where n is -infinity, as for the first pivot of a row, the result is 0 and
  // nothing underflows.
  r = m.atMost(m.aboveOrBound(r, -kMostLeft), kMostLeft);
  return m.scaleF(timesRoot(m, shifted, r, kQ), n);
}

/// Rounded down: then vreduceps leaves r in one step, and vscalefps, which
/// rounds its exponent down, takes x itself. Sapphire Rapids, in a sum: 11.2 G
/// a second, rounded to nearest 8.8 (vrndscaleps and what follows it).
static Value emitExp2ByRoots(VectorMath &m, Value x) {
  // (2^r - 1) / r on 0 <= r <= 1/16; minimax, error 2^-29.5 of 2^r. Beyond 2^18
  // the root is any one, and r is 0.
  static constexpr double kQ[] = {0.693147614553306, 0.240184242364501,
                                  0.0566698993818976};
  Value shifted = m.addRoundingDown(x, kRoundToRoots);
  return m.scaleF(timesRoot(m, shifted, m.aboveMultiple(x, 4), kQ), x);
}

Value refold::emitExp(VectorMath &m, Value x) {
  if (m.hasScaleF() && !m.isDouble())
    return emitExpByRoots(m, x);
  const ExpFormat &f = m.isDouble() ? kExpF64 : kExpF32;
  using Pred = arith::CmpFPredicate;
  // Not lower: far out the reduction would leave its range, and scaleF of an
  // infinite p is not 0.
  Value bounded = m.atLeast(x, m.hasScaleF() ? f.farBelow : f.lowest);
  if (!m.hasScaleF())
    bounded = m.atMost(bounded, f.highest);
  Value log2e = m.constant(1.44269504088896340736);
  Value n, shifted;
  if (m.hasScaleF()) {
    n = m.roundEven(m.mul(bounded, log2e));
  } else {
    shifted = m.fma(bounded, log2e, m.constant(f.magic));
    n = m.sub(shifted, m.constant(f.magic));
  }
  Value r = m.fma(n, m.constant(-f.ln2High), bounded);
  r = m.fma(n, m.constant(-f.ln2Low), r);
  Value q = m.polynomial(r, m.isDouble() ? ArrayRef<double>(kExpQ64)
                                         : ArrayRef<double>(kExpQ32));
  Value p = m.add(m.fma(m.mul(r, r), q, r), m.constant(1.0));
  if (m.hasScaleF())
    return m.scaleF(p, n);
  return scaleByParts(m, f, p, shifted, m.compare(Pred::OLT, x, f.small),
                      m.compare(Pred::OLT, x, f.lowest));
}

namespace {
/// 2^x = p * 2^n, p in [1/sqrt(2), sqrt(2)], `shifted` = magic + n.
struct Exp2Parts {
  Value p, shifted;
};
} // namespace

/// Of an x within 2^22; p times a power of two.
static Exp2Parts exp2Parts(VectorMath &m, Value x, ArrayRef<double> q,
                           double scale = 1.0) {
  Value magic = m.constant(kExpF32.magic), shifted = m.add(x, magic);
  Value r = m.sub(x, m.sub(shifted, magic));
  SmallVector<double> scaled;
  for (double coefficient : q)
    scaled.push_back(coefficient * scale);
  Value p = m.fma(r, m.polynomial(r, scaled), m.constant(scale));
  return {p, shifted};
}

/// 2^(n + more), where it is a normal number.
static Value powerByBits(VectorMath &m, Value shifted, int more) {
  const ExpFormat &f = kExpF32;
  Value bits = m.shiftLeft(m.bitsOf(shifted), f.mantissaBits);
  return m.fromBits(
      m.addInt(bits, m.integer(int64_t(f.bias + more) << f.mantissaBits)));
}

/// From here down 2^x is 0.
static constexpr double kLowestExp2 = -150.0;

Value refold::emitExp2(VectorMath &m, Value x) {
  using Pred = arith::CmpFPredicate;
  if (m.hasScaleF() && !m.isDouble())
    return emitExp2ByRoots(m, x);
  constexpr double kHighest = 129.0;
  Exp2Parts parts = exp2Parts(
      m, m.atMost(m.atLeast(x, kLowestExp2 - 1.0), kHighest), kExp2Q32);
  return scaleByParts(m, kExpF32, parts.p, parts.shifted,
                      m.compare(Pred::OLT, x, -124.0),
                      m.compare(Pred::OLE, x, kLowestExp2));
}

namespace {
/// 2^x = power * (1 + t) / 2^more.
struct RootParts {
  Value power, t;
};
} // namespace

/// Eighths as AVX-512 has sixteenths: two terms less than the polynomial of
/// a half, and so few constants that they stay in registers. Zen 4, sums from
/// the first cache: 4.1 G a second, so 4.6. Of an x within 2^19; power is 0 or
/// less than 2^-126 where x + more is less than -126.
static RootParts rootParts(VectorMath &m, Value x, int more) {
  static constexpr double kRoundToEighths = 0x1.8p20;
  // (2^r - 1) / r on |r| <= 1/16; minimax, error 2^-33.5 of 2^r.
  static constexpr double kQ[] = {0.6931471742815497, 0.24022651027636918,
                                  0.055510595151115005, 0.009617653401110031};
  // 2^(j/8), rounded, less what j adds to the exponent.
  float roots[8];
  for (int j = 0; j < 8; ++j)
    roots[j] = llvm::bit_cast<float>(llvm::bit_cast<int32_t>(kRoots[2 * j]) -
                                     (j << 20) + (more << 23));
  Value magic = m.constant(kRoundToEighths), shifted = m.add(x, magic);
  Value r = m.sub(x, m.sub(shifted, magic));
  Value bits = m.bitsOf(shifted);
  Value root = m.bitsOf(m.lookUp(roots, bits));
  Value power = m.fromBits(m.addInt(m.shiftLeft(bits, 20), root));
  return {power, m.mul(m.polynomial(r, kQ), r)};
}

/// In parts of which one is 2^(n+24), a normal number down to the last n whose
/// result is not 0. Below that its bits are 0 for all that is masked. The
/// other, 2^-24, is in the polynomial where that has the last product; by
/// eighths it comes last: a sum of small products may round to -0.
Value refold::emitBoundedExp2(VectorMath &m, Value x) {
  if (m.hasScaleF() || m.isDouble())
    return emitExp2(m, x);
  constexpr int kMore = 24;
  constexpr double kScale = 0x1p-24;
  Value above = m.atLeast(x, -(kExpF32.bias + kMore));
  if (m.looksUpEight()) {
    RootParts parts = rootParts(m, above, kMore);
    return m.mul(m.fma(parts.power, parts.t, parts.power), m.constant(kScale));
  }
  Exp2Parts parts = exp2Parts(m, above, kExp2Q32, kScale);
  return m.mul(parts.p, powerByBits(m, parts.shifted, kMore));
}

/// p * 2^n of an x that is to n as 2^x to that: one product with a power made
/// of bits, 0 from -126.5 down. Six operations less than what has subnormal
/// results (Zen 3, AVX2: 1.9 G a second, so 2.7).
static Value emitExp2ToZero(VectorMath &m, Value x, ArrayRef<double> q) {
  Exp2Parts parts = exp2Parts(m, m.atLeast(x, -kExpF32.bias), q);
  return m.mul(parts.p, powerByBits(m, parts.shifted, 0));
}

Value refold::emitFlushedExp2(VectorMath &m, Value x) {
  if (m.looksUpEight()) {
    RootParts parts = rootParts(m, m.atLeast(x, -kExpF32.bias), 0);
    return m.fma(parts.power, parts.t, parts.power);
  }
  return m.hasScaleF() || m.isDouble() ? emitExp2(m, x)
                                       : emitExp2ToZero(m, x, kExp2Q32);
}

Value refold::emitShortExp2(VectorMath &m, Value x) {
  if (m.isDouble())
    return emitExp2(m, x);
  // 2^r = 1 + r q(r) on |r| <= 1/2; error 2^-18.4, none at 0. Far out r is 0.
  static constexpr double kQ[] = {0.693124193076, 0.24024098629,
                                  0.0559064272685, 0.00958285300626};
  if (!m.hasScaleF()) // infinity from 127.5 up
    return emitExp2ToZero(m, m.atMost(x, kExpF32.bias + 1.0), kQ);
  // On 0 <= r <= 1, as in `emitExp2ByRoots`; error 2^-18.4. Sapphire Rapids,
  // from scores to pairs of bf16, ns a register: 2.8, so 2.5.
  static constexpr double kAbove[] = {0.693044844783, 0.241280205698,
                                      0.0522424722007, 0.013426685531};
  Value r = m.aboveMultiple(x, 0);
  return m.scaleF(m.fma(r, m.polynomial(r, kAbove), m.constant(1.0)), x);
}

namespace {
/// 2^exponent * (1 + f), 1 + f in [sqrt(1/2), sqrt(2)): a positive normal f32.
struct Reduced {
  Value exponent; ///< an integer
  Value f;
};
} // namespace

static Reduced reduceForLog(VectorMath &m, Value x) {
  constexpr int64_t kRootHalfBits = 0x3f3504f3;
  Value bits = m.bitsOf(x);
  Value e = m.shiftRight(m.subInt(bits, m.integer(kRootHalfBits)), 23);
  Value mantissa = m.fromBits(m.subInt(bits, m.shiftLeft(e, 23)));
  return {e, m.sub(mantissa, m.constant(1.0))};
}

/// log(1 + f) - f for such an f, as far as f32 has it.
static Value logTail(VectorMath &m, Value f) {
  // log(1 + f) = f - f^2 / 2 + f^3 P(f).
  static constexpr double kP[] = {
      0.333333126043,  -0.250000095983, 0.200021186426,
      -0.166679959049, 0.142195527325,  -0.124055882416,
      0.11888158847,   -0.116756545708, 0.0674665152336};
  Value f2 = m.mul(f, f);
  return m.fma(m.mul(f, f2), m.polynomial(f, kP), m.mul(f2, m.constant(-0.5)));
}

/// log(1 + f) + exponent·log 2, and `more`, which is small beside it.
static Value logOf(VectorMath &m, Value exponent, Value f,
                   Value more = Value()) {
  Value rest = m.fma(exponent, m.constant(kExpF32.ln2Low), logTail(m, f));
  if (more)
    rest = m.add(rest, more);
  return m.fma(exponent, m.constant(kExpF32.ln2High), m.add(f, rest));
}

/// What a logarithm that ends at `zero` is of a number below it, of `zero`, of
/// infinity and of no number.
static Value logAtTheEdges(VectorMath &m, Value x, double zero, Value y) {
  using Pred = arith::CmpFPredicate;
  // +inf and NaN are their own logarithms.
  y = m.select(m.compare(Pred::OLT, x, HUGE_VAL), y, x);
  y = m.select(m.compare(Pred::OLT, x, zero), m.constant(NAN), y);
  return m.select(m.compare(Pred::OEQ, x, zero), m.constant(-HUGE_VAL), y);
}

/// Subnormal ones too.
static Value logOfAny(VectorMath &m, Value x,
                      Value (*logOf)(VectorMath &, Value, Value)) {
  Value isSubnormal = m.compare(arith::CmpFPredicate::OLT, x, 0x1p-126);
  Value scaled = m.select(isSubnormal, m.mul(x, m.constant(0x1p23)), x);
  Reduced part = reduceForLog(m, scaled);
  Value exponent =
      m.sub(m.toFloat(part.exponent),
            m.select(isSubnormal, m.constant(23.0), m.constant(0.0)));
  return logAtTheEdges(m, x, 0.0, logOf(m, exponent, part.f));
}

Value refold::emitLog(VectorMath &m, Value x) {
  return logOfAny(m, x, [](VectorMath &m, Value exponent, Value f) {
    return logOf(m, exponent, f);
  });
}

Value refold::emitLog2(VectorMath &m, Value x) {
  // log2 e in two parts, so that f keeps its digits.
  static constexpr double kHigh = 1.44269502162933349609375,
                          kLow = 1.92596298909109e-8;
  return logOfAny(m, x, [](VectorMath &m, Value exponent, Value f) {
    Value rest =
        m.fma(f, m.constant(kLow), m.mul(logTail(m, f), m.constant(kHigh)));
    return m.add(exponent, m.fma(f, m.constant(kHigh), rest));
  });
}

/// log of the rounded 1 + x, and what that rounding has taken over 1 + x.
Value refold::emitLog1p(VectorMath &m, Value x) {
  Value one = m.constant(1.0);
  Value sum = m.add(one, x);
  Value taken = m.sub(x, m.sub(sum, one));
  Reduced part = reduceForLog(m, sum);
  // Times 2^-exponent; times 0 of the largest numbers, which lose nothing by
  // it.
  Value power =
      m.fromBits(m.shiftLeft(m.subInt(m.integer(128), part.exponent), 23));
  taken = m.mul(m.mul(taken, power), m.constant(0.5));
  // 1 / (1 + f) but for 7 %: all of x where f is 0.
  Value inverse = m.fma(part.f, m.sub(part.f, one), one);
  Value y = logOf(m, m.toFloat(part.exponent), part.f, m.mul(taken, inverse));
  return logAtTheEdges(m, x, -1.0, m.copySign(y, x)); // of -0 too
}

Value refold::emitExpM1(VectorMath &m, Value x) {
  using Pred = arith::CmpFPredicate;
  const ExpFormat &f = m.isDouble() ? kExpF64 : kExpF32;
  // -1 is nearest below, and infinity above. Terms of x^2 are below its digits
  // from `tiny` down.
  double lowest = m.isDouble() ? -40.0 : -20.0;
  double tiny = m.isDouble() ? 0x1p-60 : 0x1p-30;
  Value bounded = m.atMost(m.atLeast(x, lowest), f.highest);
  Value shifted =
      m.fma(bounded, m.constant(1.44269504088896340736), m.constant(f.magic));
  Value n = m.sub(shifted, m.constant(f.magic));
  Value r = m.fma(n, m.constant(-f.ln2High), bounded);
  r = m.fma(n, m.constant(-f.ln2Low), r);
  Value q = m.polynomial(r, m.isDouble() ? ArrayRef<double>(kExpQ64)
                                         : ArrayRef<double>(kExpQ32));
  // Half of it, so that 2^n fits for every n: 2^(n-1)·(r + r^2 q) + (2^(n-1) -
  // 1/2), in which what the sum of r and the last loses is kept.
  Value bits = m.shiftLeft(m.bitsOf(shifted), f.mantissaBits);
  Value power = m.fromBits(
      m.addInt(bits, m.integer(int64_t(f.bias - 1) << f.mantissaBits)));
  Value less = m.sub(power, m.constant(0.5));
  Value sum = m.fma(power, r, less);
  Value rest = m.fma(power, r, m.sub(less, sum));
  Value half = m.add(sum, m.fma(m.mul(power, m.mul(r, r)), q, rest));
  return m.select(m.compare(Pred::OLT, m.abs(x), tiny), x, m.add(half, half));
}

namespace {
/// |x| = n ln 2 + r: a quarter of 2^n and of 2^-n, which fit for every n, and
/// what of e^r is even and odd in r but for 1 and r.
struct Halves {
  Value size, up, down, r, even, odd;
};
} // namespace

static Halves halvesOf(VectorMath &m, Value x) {
  // cosh r = 1 + r^2 P(r^2), sinh r = r + r^3 Q(r^2) on |r| <= ln(2)/2.
  static constexpr double kP[] = {1.0 / 2, 1.0 / 24, 1.0 / 720, 1.0 / 40320};
  static constexpr double kQ[] = {1.0 / 6, 1.0 / 120, 1.0 / 5040};
  // Infinite from `kHighest` on; from `kFar` on no digit of 2^-n counts.
  constexpr double kHighest = 89.5, kFar = 40.0;
  const ExpFormat &f = kExpF32;
  Halves h;
  h.size = m.abs(x);
  Value bounded = m.atMost(h.size, kHighest);
  Value shifted =
      m.fma(bounded, m.constant(1.44269504088896340736), m.constant(f.magic));
  Value n = m.sub(shifted, m.constant(f.magic));
  h.r = m.fma(n, m.constant(-f.ln2High), bounded);
  h.r = m.fma(n, m.constant(-f.ln2Low), h.r);
  int64_t quarter = int64_t(f.bias - 2) << f.mantissaBits;
  Value bits = m.addInt(m.shiftLeft(m.bitsOf(shifted), f.mantissaBits),
                        m.integer(quarter));
  h.up = m.fromBits(bits);
  h.down = m.select(m.compare(arith::CmpFPredicate::OGT, h.size, kFar),
                    m.constant(0.0),
                    m.fromBits(m.subInt(m.integer(2 * quarter), bits)));
  Value r2 = m.mul(h.r, h.r);
  h.even = m.mul(r2, m.polynomial(r2, kP));
  h.odd = m.mul(m.mul(h.r, r2), m.polynomial(r2, kQ));
  return h;
}

/// 2^n·(1 + p) + 2^-n·(1 + q): what is rounded is small beside 2^n.
Value refold::emitCosh(VectorMath &m, Value x) {
  Halves h = halvesOf(m, x);
  Value other = m.add(m.sub(h.even, m.add(h.r, h.odd)), m.constant(1.0));
  Value rest = m.fma(h.up, m.add(h.even, h.odd), m.mul(h.down, other));
  Value half = m.add(h.up, m.fma(h.up, h.r, rest));
  return m.add(half, half);
}

/// (2^n - 2^-n)·cosh r + (2^n + 2^-n)·sinh r, which is r near 0.
Value refold::emitSinh(VectorMath &m, Value x) {
  Halves h = halvesOf(m, x);
  Value less = m.sub(h.up, h.down), sum = m.add(h.up, h.down);
  Value rest = m.fma(sum, h.odd, m.mul(less, h.even));
  Value half = m.add(less, m.fma(sum, h.r, rest));
  // Of so little that x^3 is below its digits: subnormal numbers too.
  Value isTiny = m.compare(arith::CmpFPredicate::OLT, h.size, 0x1p-12);
  return m.copySign(m.select(isTiny, h.size, m.add(half, half)), x);
}

Value refold::emitTanh(VectorMath &m, Value x) {
  // x + x^3 P(x^2) below 0.625; above, 1 - 2 / (e^2x + 1) loses nothing.
  static constexpr double kP[] = {-0.33333281942, 0.133314421982,
                                  -0.0537397150858, 0.0206390872447,
                                  -0.00570498699346};
  Value a = m.abs(x), x2 = m.mul(x, x);
  Value small = m.fma(m.mul(x, x2), m.polynomial(x2, kP), x);
  Value e = emitExp(m, m.add(a, a));
  Value large =
      m.sub(m.constant(1.0), m.div(m.constant(2.0), m.add(e, m.constant(1.0))));
  large = m.copySign(large, x);
  return m.select(m.compare(arith::CmpFPredicate::OLT, a, 0.625), small, large);
}

Value refold::emitErf(VectorMath &m, Value x) {
  if (m.hasScaleF())
    return emitErfByTable(m, x);
  // x + x P(x^2) below 0.93 (2^-31); above, 1 - e^(-t Q(t)) (2^-30).
  static constexpr double kP[] = {
      0.12837916658,    -0.376126331884,   0.112836871885,  -0.0268589414994,
      0.00519990664691, -0.00081300124352, 8.31677429408e-5};
  static constexpr double kQ[] = {
      1.12864849087,    0.635151313839,     0.106236881908,  -0.0237620665542,
      0.00364246072225, -0.000322804266258, 1.12313461809e-5};
  Value a = m.abs(x), x2 = m.mul(x, x);
  Value small = m.fma(x, m.polynomial(x2, kP), x);
  Value t = m.atMost(a, 4.0); // from there on 1 is nearest
  Value e = emitExp(m, m.neg(m.mul(t, m.polynomial(t, kQ))));
  Value large = m.copySign(m.sub(m.constant(1.0), e), x);
  return m.select(m.compare(arith::CmpFPredicate::OLT, a, 0.93), small, large);
}

Value refold::emitExpTail(VectorMath &m, Value x) {
  // x^2/2·(1 + x/3 + x^2/12 + ...) below 1; above, what is left of e^x.
  SmallVector<double> coefficients;
  double coefficient = 1;
  for (int k = 3, last = m.isDouble() ? 20 : 12; k <= last; ++k) {
    coefficients.push_back(coefficient);
    coefficient /= k;
  }
  Value half = m.mul(m.mul(x, m.constant(0.5)), x);
  Value small = m.mul(half, m.polynomial(x, coefficients));
  Value large = m.sub(m.sub(emitExp(m, x), m.constant(1.0)), x);
  Value isSmall = m.compare(arith::CmpFPredicate::OLT, m.abs(x), 1.0);
  return m.select(isSmall, small, large);
}
