// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_VECTORMATH_H
#define REFOLD_LIB_TARGET_CPU_VECTORMATH_H

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Builders.h"
#include "refold/Runtime/InstructionSet.h"

namespace refold {

/// Writes arithmetic on one float type, or a vector of it, and on the integers
/// of the same width.
class VectorMath {
public:
  /// `type` is f32, f64, or a vector of one of them.
  VectorMath(mlir::OpBuilder &b, mlir::Location loc, mlir::Type type,
             InstructionSet instructionSet);

  mlir::Value constant(double value);
  mlir::Value integer(int64_t value);
  mlir::Value add(mlir::Value x, mlir::Value y);
  mlir::Value sub(mlir::Value x, mlir::Value y);
  mlir::Value mul(mlir::Value x, mlir::Value y);
  mlir::Value div(mlir::Value x, mlir::Value y);
  /// x * y + z: in one rounding where the machine has it, else in two.
  mlir::Value fma(mlir::Value x, mlir::Value y, mlir::Value z);
  mlir::Value neg(mlir::Value x);
  mlir::Value abs(mlir::Value x);
  mlir::Value copySign(mlir::Value x, mlir::Value sign);
  mlir::Value roundEven(mlir::Value x);
  /// `x` where it is a NaN; one instruction.
  mlir::Value atLeast(mlir::Value x, double bound);
  mlir::Value atMost(mlir::Value x, double bound);
  /// The bound where `x` is a NaN; one instruction.
  mlir::Value aboveOrBound(mlir::Value x, double bound);
  mlir::Value compare(mlir::arith::CmpFPredicate predicate, mlir::Value x,
                      double y);
  mlir::Value select(mlir::Value condition, mlir::Value x, mlir::Value y);
  mlir::Value bitsOf(mlir::Value x);
  mlir::Value fromBits(mlir::Value bits);
  mlir::Value addInt(mlir::Value x, mlir::Value y);
  mlir::Value subInt(mlir::Value x, mlir::Value y);
  mlir::Value shiftLeft(mlir::Value x, int64_t count);
  mlir::Value shiftRight(mlir::Value x, int64_t count); ///< keeps the sign
  mlir::Value toFloat(mlir::Value x);
  /// Coefficients from the constant one upwards, by Horner's rule.
  mlir::Value polynomial(mlir::Value x, llvm::ArrayRef<double> coefficients);
  /// p * 2^n for a p near 1 and an integral n, right for every n: gradual
  /// underflow, infinity. Only where `hasScaleF`; n = -inf gives 0 and +inf
  /// infinity even for a NaN p.
  mlir::Value scaleF(mlir::Value p, mlir::Value n);
  bool hasScaleF() const;
  bool looksUpEight() const; ///< AVX2, eight f32
  /// Of 16 or 32 f32 constants the one that the last bits of each element say;
  /// of 8 where `looksUpEight`.
  mlir::Value lookUp(llvm::ArrayRef<float> table, mlir::Value bits);
  /// x + c, rounded down.
  mlir::Value addRoundingDown(mlir::Value x, double c);
  /// What x has above the next lower multiple of 2^-bits, at most 15 bits; 0 of
  /// infinities.
  mlir::Value aboveMultiple(mlir::Value x, int bits);

  bool isDouble() const { return width == 64; }

private:
  mlir::OpBuilder &b;
  mlir::Location loc;
  mlir::Type type, intType;
  InstructionSet instructionSet;
  unsigned width;
};

/// The functions by arithmetic; docs/numerics.md has their errors. Arguments of
/// every kind: infinities, NaN, -0, subnormal.
mlir::Value emitExp(VectorMath &m, mlir::Value x);
mlir::Value emitExp2(VectorMath &m, mlir::Value x);
/// Of x up to 63; infinity gives a NaN.
mlir::Value emitBoundedExp2(VectorMath &m, mlir::Value x);
/// Of x up to 127: where that is cheaper, 0 below the normal numbers, or any
/// number that is not negative and below them too.
mlir::Value emitFlushedExp2(VectorMath &m, mlir::Value x);
/// The same with an error of 2^-18: of what is rounded to 16 bits.
mlir::Value emitShortExp2(VectorMath &m, mlir::Value x);
mlir::Value emitExpM1(VectorMath &m, mlir::Value x);
mlir::Value emitLog(VectorMath &m, mlir::Value x);        ///< f32 only
mlir::Value emitLog2(VectorMath &m, mlir::Value x);       ///< f32 only
mlir::Value emitLog1p(VectorMath &m, mlir::Value x);      ///< f32 only
mlir::Value emitSinh(VectorMath &m, mlir::Value x);       ///< f32 only
mlir::Value emitCosh(VectorMath &m, mlir::Value x);       ///< f32 only
mlir::Value emitTanh(VectorMath &m, mlir::Value x);       ///< f32 only
mlir::Value emitErf(VectorMath &m, mlir::Value x);        ///< f32 only
mlir::Value emitErfByTable(VectorMath &m, mlir::Value x); ///< `hasScaleF`, f32
/// e^x - 1 - x, all of whose digits are right near 0.
mlir::Value emitExpTail(VectorMath &m, mlir::Value x);

/// x / c as a product and an FMA, for machines that have one: as a division
/// rounds it but for one mantissa of some divisors, which is its neighbour's.
void populateDivideByConstant(mlir::RewritePatternSet &patterns);

/// x / d, where `arcp` says that many are divided by one d, as a product and an
/// FMA with parts that are made where d is: likewise, where d has such parts;
/// by any other it is a division. Takes the mark off.
void divideByNumbers(mlir::Operation *inside, InstructionSet instructionSet);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_VECTORMATH_H
