// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A scalar body as straight-line code over registers, each a row of lanes: what
// one instruction costs is shared by up to kLanes elements. No MLIR here.
#ifndef REFOLD_LIB_REFERENCE_SCALARPROGRAM_H
#define REFOLD_LIB_REFERENCE_SCALARPROGRAM_H

#include "refold/Reference/RefTensor.h"
#include "refold/Support/Interval.h"
#include <cmath>
#include <cstdlib>
#include <limits>
#include <vector>

namespace refold::reference {

/// Elements that one register holds.
constexpr unsigned kLanes = 128;

enum class Opcode : uint8_t {
  Copy,
  // floats
  AddF,
  SubF,
  MulF,
  DivF,
  RemF,
  NegF,
  MaximumF,
  MinimumF,
  MaxNumF,
  MinNumF,
  CmpF,
  FmaF,
  Exp,
  Exp2,
  ExpM1,
  Log,
  Log2,
  Log10,
  Log1p,
  Sqrt,
  Rsqrt,
  Cbrt,
  AbsF,
  Sin,
  Cos,
  Tan,
  Sinh,
  Cosh,
  Tanh,
  Asin,
  Acos,
  Atan,
  Asinh,
  Acosh,
  Atanh,
  Atan2,
  Erf,
  Floor,
  Ceil,
  Round,
  RoundEven,
  Trunc,
  PowF,
  FPowI,
  CopySign,
  // integers; results wrap to the width
  AddI,
  SubI,
  MulI,
  DivSI,
  DivUI,
  CeilDivSI,
  CeilDivUI,
  FloorDivSI,
  RemSI,
  RemUI,
  ModFloor,
  AndI,
  OrI,
  XorI,
  ShLI,
  ShRSI,
  ShRUI,
  MaxSI,
  MinSI,
  MaxUI,
  MinUI,
  CmpI,
  AbsI,
  IPowI,
  CtPop,
  // between them
  Select,
  Wrap,
  ZeroExtend,
  SIToFP,
  UIToFP,
  FPToSI,
  FPToUI,
  BitsToFloat,
  FloatToBits,
  // an element of a table at integer subscripts
  Load,
};

/// `round` of an instruction that does not round.
constexpr uint8_t kNoRounding = 0xff;

/// `predicate` of a Select whose values are floats.
constexpr uint8_t kSelectsFloats = 1;

struct Instruction {
  Opcode opcode = Opcode::Copy;
  uint8_t width = 64; ///< of integers: the result, or the operand where
                      ///< the opcode reads it as unsigned
  uint8_t round = kNoRounding; ///< a DType that the result is rounded to
  uint8_t predicate = 0;       ///< of CmpF and CmpI: arith's number
                               ///< of Select: `kSelectsFloats`, or 0
  uint32_t to = 0;
  uint32_t a = 0, b = 0, c = 0;
  uint32_t table = 0, firstSubscript = 0; ///< of Load
};

/// What went wrong in a lane. `instruction` says where.
enum class Trap : uint8_t { None, DivisionByZero, OutOfRange };

struct TrapState {
  Trap trap = Trap::None;
  unsigned instruction = 0;
  int64_t subscript = 0, dimension = 0, extent = 0; ///< of OutOfRange
};

struct ScalarProgram {
  explicit ScalarProgram(bool isWide = false) : isWide(isWide) {}

  struct Constant {
    uint32_t to;
    Cell value;
  };
  std::vector<Instruction> instructions;
  std::vector<Constant> constants;
  std::vector<uint32_t> subscripts; ///< registers that Loads use
  std::vector<RefTensor> tables;    ///< of Loads
  uint32_t numRegisters = 0;
  bool isWide; ///< floats are long double
  /// Seed of the last bits of functions that are rounded.
  std::optional<uint64_t> functionNoise;
  /// Seed of the last bits of results that are rounded to subnormal numbers.
  std::optional<uint64_t> subnormalNoise;
  /// Seed of the last bits of what is not rounded to a type.
  std::optional<uint64_t> ownNoise;
  /// Types have no range, only digits; or what leaves it is kept within.
  bool isUnlimited = false, keepsRange = false;
  /// What a sum of infinities of both signs is in the place of NaN; 0: NaN.
  double sumOfBoth = 0.0;
  /// 0 times an infinity or NaN is 0.
  bool zeroMasks = false;
  /// Set where it is tracked how far results may be off.
  const RunningRoundings *running = nullptr;

  uint32_t newRegister() { return numRegisters++; }
};

/// The registers of one run of a program.
class Lanes {
public:
  explicit Lanes(const ScalarProgram &program);
  Cell *of(uint32_t reg) { return cells.data() + size_t(reg) * kLanes; }
  void fill(uint32_t reg, Cell value, unsigned lanes = kLanes) {
    std::fill_n(of(reg), lanes, value);
  }

private:
  std::vector<Cell> cells;
};

/// Runs the first `lanes` lanes. False after a trap.
bool run(const ScalarProgram &program, Lanes &registers, unsigned lanes,
         TrapState &trap);

/// Runs one instruction by `step`, and sets how far its results may be off.
/// Requires `program.running`. False where `step` is.
bool runTracked(const ScalarProgram &program, const Instruction &in,
                Lanes &registers, unsigned lanes,
                const std::function<bool()> &step);

/// `value` as an iN of `width` bits holds it, sign-extended; i1 is 0 or 1.
inline int64_t wrapTo(unsigned width, int64_t value) {
  if (width >= 64)
    return value;
  if (width == 1)
    return value & 1;
  unsigned shift = 64 - width;
  return int64_t(uint64_t(value) << shift) >> shift;
}

/// Rounds to the format once and comes back.
double roundTo(DType dtype, double value);

/// The same to the digits of f32 or f64, where the exponent has no limits but
/// those of `Real`.
template <typename Real> Real roundDigits(DType dtype, Real value) {
  bool isSingle = dtype == DType::F32;
  int exponent = 0;
  Real fraction = std::frexp(value, &exponent);
  // In the range both are the same; of what rounds to the first number beyond
  // it they are not.
  if (!std::isfinite(value) || (!isSingle && dtype != DType::F64) ||
      (isSingle ? std::abs(exponent) < 125 : std::abs(exponent) < 1021))
    return roundTo(dtype, double(value));
  int digits = isSingle ? 24 : 53;
  return std::ldexp(std::nearbyint(std::ldexp(fraction, digits)),
                    exponent - digits);
}

/// Half a unit in the last place, relative, and half the smallest step.
RoundingError roundingErrorOf(DType type);

/// `value` of an instruction, moved by 1 to 64 units in the last place of a
/// Real: the same for the same.
template <typename Real>
Real withOwnNoise(uint64_t seed, size_t instruction, Real value);

/// Rounds the first `lanes` results of an instruction as the program says.
template <typename Real>
void roundResults(const ScalarProgram &program, size_t index, Cell *results,
                  unsigned lanes);

/// max with NaN sticky, and -0 below +0.
template <typename Real> Real maximum(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<Real>::quiet_NaN();
  if (a == b)
    return std::signbit(a) ? b : a;
  return a > b ? a : b;
}
template <typename Real> Real minimum(Real a, Real b) {
  if (std::isnan(a) || std::isnan(b))
    return std::numeric_limits<Real>::quiet_NaN();
  if (a == b)
    return std::signbit(a) ? a : b;
  return a < b ? a : b;
}

} // namespace refold::reference

#endif // REFOLD_LIB_REFERENCE_SCALARPROGRAM_H
