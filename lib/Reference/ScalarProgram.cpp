// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScalarProgram.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

using namespace refold;
using namespace refold::reference;

Lanes::Lanes(const ScalarProgram &program)
    : cells(size_t(program.numRegisters) * kLanes) {
  for (const ScalarProgram::Constant &constant : program.constants)
    fill(constant.to, constant.value);
}

namespace {

uint64_t unsignedOf(unsigned width, int64_t value) {
  return width >= 64 ? uint64_t(value)
                     : uint64_t(value) & ((uint64_t(1) << width) - 1);
}

/// Saturates, NaN gives 0, fractions are dropped.
template <typename Real>
int64_t toInteger(Real value, double low, double high, int64_t lowest,
                  int64_t highest) {
  if (std::isnan(value))
    return 0;
  if (value <= low)
    return lowest;
  if (value >= high)
    return highest;
  return int64_t(value);
}

template <typename Real> int64_t toSigned(unsigned width, Real value) {
  double limit = std::ldexp(1.0, int(width) - 1);
  int64_t highest = int64_t((uint64_t(1) << (width - 1)) - 1);
  if (width == 1) // i1 holds 0 and 1 here
    return value <= -1.0 ? 1 : 0;
  return toInteger(value, -limit, limit, -highest - 1, highest);
}

template <typename Real> int64_t toUnsigned(unsigned width, Real value) {
  if (std::isnan(value) || value <= 0.0)
    return 0;
  if (value >= std::ldexp(1.0, int(width)))
    return wrapTo(width, -1);
  return wrapTo(width, int64_t(uint64_t(value)));
}

template <typename Real> bool compareFloats(uint8_t predicate, Real a, Real b) {
  bool unordered = std::isnan(a) || std::isnan(b);
  switch (predicate) { // the numbers of arith::CmpFPredicate
  case 0:
    return false;
  case 1:
    return a == b;
  case 2:
    return a > b;
  case 3:
    return a >= b;
  case 4:
    return a < b;
  case 5:
    return a <= b;
  case 6:
    return !unordered && a != b;
  case 7:
    return !unordered;
  case 8:
    return unordered || a == b;
  case 9:
    return unordered || a > b;
  case 10:
    return unordered || a >= b;
  case 11:
    return unordered || a < b;
  case 12:
    return unordered || a <= b;
  case 13:
    return unordered || a != b;
  case 14:
    return unordered;
  default:
    return true;
  }
}

bool compareIntegers(uint8_t predicate, unsigned width, int64_t a, int64_t b) {
  uint64_t ua = unsignedOf(width, a), ub = unsignedOf(width, b);
  if (width == 1) // signed order of i1: 1 is -1
    a = -a, b = -b;
  switch (predicate) { // the numbers of arith::CmpIPredicate
  case 0:
    return a == b;
  case 1:
    return a != b;
  case 2:
    return a < b;
  case 3:
    return a <= b;
  case 4:
    return a > b;
  case 5:
    return a >= b;
  case 6:
    return ua < ub;
  case 7:
    return ua <= ub;
  case 8:
    return ua > ub;
  default:
    return ua >= ub;
  }
}

int64_t floorDivide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}

int64_t ceilDivide(int64_t a, int64_t b) {
  int64_t q = a / b;
  return q + (a % b != 0 && (a < 0) == (b < 0));
}

int64_t power(int64_t base, int64_t exponent) {
  if (exponent < 0)
    return base == 1 ? 1 : base == -1 ? (exponent % 2 ? -1 : 1) : 0;
  uint64_t result = 1, factor = uint64_t(base);
  for (; exponent; exponent >>= 1, factor *= factor)
    if (exponent & 1)
      result *= factor;
  return int64_t(result);
}

/// One division or remainder; b is not 0. The one overflow, lowest / -1, wraps.
int64_t divide(Opcode opcode, unsigned width, int64_t a, int64_t b) {
  uint64_t ua = unsignedOf(width, a), ub = unsignedOf(width, b);
  bool negates = b == -1;
  switch (opcode) {
  case Opcode::DivSI:
    return negates ? int64_t(0 - uint64_t(a)) : a / b;
  case Opcode::CeilDivSI:
    return negates ? int64_t(0 - uint64_t(a)) : ceilDivide(a, b);
  case Opcode::FloorDivSI:
    return negates ? int64_t(0 - uint64_t(a)) : floorDivide(a, b);
  case Opcode::RemSI:
    return negates ? 0 : a % b;
  case Opcode::ModFloor:
    return negates ? 0 : a - floorDivide(a, b) * b;
  case Opcode::DivUI:
    return int64_t(ua / ub);
  case Opcode::CeilDivUI:
    return int64_t(ua / ub + (ua % ub != 0));
  default:
    return int64_t(ua % ub);
  }
}

int64_t shift(Opcode opcode, unsigned width, int64_t a, int64_t by) {
  if (by < 0 || by >= int64_t(width)) // poison in MLIR: nothing is left
    return opcode == Opcode::ShRSI && a < 0 ? -1 : 0;
  if (opcode == Opcode::ShLI)
    return int64_t(uint64_t(a) << by);
  return opcode == Opcode::ShRSI ? a >> by
                                 : int64_t(unsignedOf(width, a) >> by);
}

int64_t bitsOf(DType dtype, double value) {
  int64_t bits = 0;
  storeFromDouble(dtype, value, &bits);
  return wrapTo(8 * byteWidth(dtype), bits);
}

double floatOf(DType dtype, int64_t bits) { return loadAsDouble(dtype, &bits); }

/// One instruction over its lanes.
template <typename Real> struct Step {
  static constexpr Real Cell::*real = kFloatField<Real>;
  const Instruction &in;
  Lanes &registers;
  unsigned lanes;
  Cell *to = registers.of(in.to);
  const Cell *a = registers.of(in.a), *b = registers.of(in.b);

  template <typename F> void floats1(F f) {
    for (unsigned l = 0; l < lanes; ++l)
      to[l].*real = f(a[l].*real);
  }
  template <typename F> void floats2(F f) {
    for (unsigned l = 0; l < lanes; ++l)
      to[l].*real = f(a[l].*real, b[l].*real);
  }
  template <typename F> void integers2(F f) {
    for (unsigned l = 0; l < lanes; ++l)
      to[l].i = wrapTo(in.width, f(a[l].i, b[l].i));
  }
  void arithmetic();
  void functions();
  void integers();
  void conversions();
  bool divisions(TrapState &trap);
  bool load(const ScalarProgram &program, TrapState &trap);
};

template <typename Real> void Step<Real>::arithmetic() {
  switch (in.opcode) {
  case Opcode::AddF:
    return floats2([](Real x, Real y) { return x + y; });
  case Opcode::SubF:
    return floats2([](Real x, Real y) { return x - y; });
  case Opcode::MulF:
    return floats2([](Real x, Real y) { return x * y; });
  case Opcode::DivF:
    return floats2([](Real x, Real y) { return x / y; });
  case Opcode::RemF:
    return floats2([](Real x, Real y) { return std::fmod(x, y); });
  case Opcode::NegF:
    return floats1([](Real x) { return -x; });
  case Opcode::MaximumF:
    return floats2(maximum<Real>);
  case Opcode::MinimumF:
    return floats2(minimum<Real>);
  case Opcode::MaxNumF:
    return floats2([](Real x, Real y) { return std::fmax(x, y); });
  case Opcode::MinNumF:
    return floats2([](Real x, Real y) { return std::fmin(x, y); });
  case Opcode::CopySign:
    return floats2([](Real x, Real y) { return std::copysign(x, y); });
  case Opcode::PowF:
    return floats2([](Real x, Real y) { return std::pow(x, y); });
  case Opcode::Atan2:
    return floats2([](Real x, Real y) { return std::atan2(x, y); });
  case Opcode::CmpF:
    for (unsigned l = 0; l < lanes; ++l)
      to[l].i = compareFloats(in.predicate, a[l].*real, b[l].*real);
    return;
  case Opcode::FmaF:
    for (unsigned l = 0; l < lanes; ++l)
      to[l].*real =
          std::fma(a[l].*real, b[l].*real, registers.of(in.c)[l].*real);
    return;
  case Opcode::FPowI:
    for (unsigned l = 0; l < lanes; ++l)
      to[l].*real = std::pow(a[l].*real, Real(b[l].i));
    return;
  default:
    return functions();
  }
}

template <typename Real> void Step<Real>::functions() {
  using M = Real (*)(Real);
  auto apply = [&](M f) { floats1(f); };
  switch (in.opcode) {
  case Opcode::Exp:
    return apply(std::exp);
  case Opcode::Exp2:
    return apply(std::exp2);
  case Opcode::ExpM1:
    return apply(std::expm1);
  case Opcode::Log:
    return apply(std::log);
  case Opcode::Log2:
    return apply(std::log2);
  case Opcode::Log10:
    return apply(std::log10);
  case Opcode::Log1p:
    return apply(std::log1p);
  case Opcode::Sqrt:
    return apply(std::sqrt);
  case Opcode::Rsqrt:
    return floats1([](Real x) { return Real(1) / std::sqrt(x); });
  case Opcode::Cbrt:
    return apply(std::cbrt);
  case Opcode::AbsF:
    return apply(std::fabs);
  case Opcode::Sin:
    return apply(std::sin);
  case Opcode::Cos:
    return apply(std::cos);
  case Opcode::Tan:
    return apply(std::tan);
  case Opcode::Sinh:
    return apply(std::sinh);
  case Opcode::Cosh:
    return apply(std::cosh);
  case Opcode::Tanh:
    return apply(std::tanh);
  case Opcode::Asin:
    return apply(std::asin);
  case Opcode::Acos:
    return apply(std::acos);
  case Opcode::Atan:
    return apply(std::atan);
  case Opcode::Asinh:
    return apply(std::asinh);
  case Opcode::Acosh:
    return apply(std::acosh);
  case Opcode::Atanh:
    return apply(std::atanh);
  case Opcode::Erf:
    return apply(std::erf);
  case Opcode::Floor:
    return apply(std::floor);
  case Opcode::Ceil:
    return apply(std::ceil);
  case Opcode::Round:
    return apply(std::round);
  case Opcode::RoundEven:
    return apply(std::nearbyint);
  case Opcode::Trunc:
    return apply(std::trunc);
  default:
    return conversions();
  }
}

template <typename Real> void Step<Real>::integers() {
  using I = int64_t;
  using U = uint64_t;
  unsigned w = in.width;
  switch (in.opcode) {
  case Opcode::AddI:
    return integers2([](I x, I y) { return I(U(x) + U(y)); });
  case Opcode::SubI:
    return integers2([](I x, I y) { return I(U(x) - U(y)); });
  case Opcode::MulI:
    return integers2([](I x, I y) { return I(U(x) * U(y)); });
  case Opcode::AndI:
    return integers2([](I x, I y) { return x & y; });
  case Opcode::OrI:
    return integers2([](I x, I y) { return x | y; });
  case Opcode::XorI:
    return integers2([](I x, I y) { return x ^ y; });
  case Opcode::ShLI:
  case Opcode::ShRSI:
  case Opcode::ShRUI:
    return integers2([&](I x, I y) { return shift(in.opcode, w, x, y); });
  case Opcode::MaxSI:
    return integers2(
        [&](I x, I y) { return compareIntegers(4, w, x, y) ? x : y; });
  case Opcode::MinSI:
    return integers2(
        [&](I x, I y) { return compareIntegers(2, w, x, y) ? x : y; });
  case Opcode::MaxUI:
    return integers2(
        [&](I x, I y) { return unsignedOf(w, x) > unsignedOf(w, y) ? x : y; });
  case Opcode::MinUI:
    return integers2(
        [&](I x, I y) { return unsignedOf(w, x) < unsignedOf(w, y) ? x : y; });
  case Opcode::IPowI:
    return integers2(power);
  case Opcode::AbsI:
    return integers2([](I x, I) { return x < 0 ? I(0 - U(x)) : x; });
  case Opcode::CtPop:
    return integers2(
        [&](I x, I) { return I(__builtin_popcountll(unsignedOf(w, x))); });
  case Opcode::CmpI:
    for (unsigned l = 0; l < lanes; ++l)
      to[l].i = compareIntegers(in.predicate, w, a[l].i, b[l].i);
    return;
  default:
    return arithmetic();
  }
}

template <typename Real> void Step<Real>::conversions() {
  DType dtype = DType(in.predicate); // of the bit casts
  for (unsigned l = 0; l < lanes; ++l)
    switch (in.opcode) {
    case Opcode::Copy:
      to[l] = a[l];
      break;
    case Opcode::Select:
      to[l] = a[l].i ? b[l] : registers.of(in.c)[l];
      break;
    case Opcode::Wrap:
      to[l].i = wrapTo(in.width, a[l].i);
      break;
    case Opcode::ZeroExtend:
      to[l].i = int64_t(unsignedOf(in.width, a[l].i));
      break;
    case Opcode::SIToFP:
      to[l].*real = Real(in.width == 1 ? -a[l].i : a[l].i);
      break;
    case Opcode::UIToFP:
      to[l].*real = Real(unsignedOf(in.width, a[l].i));
      break;
    case Opcode::FPToSI:
      to[l].i = toSigned(in.width, a[l].*real);
      break;
    case Opcode::FPToUI:
      to[l].i = toUnsigned(in.width, a[l].*real);
      break;
    case Opcode::BitsToFloat:
      to[l].*real = floatOf(dtype, a[l].i);
      break;
    case Opcode::FloatToBits:
      to[l].i = bitsOf(dtype, a[l].*real);
      break;
    default:
      break;
    }
}

template <typename Real> bool Step<Real>::divisions(TrapState &trap) {
  for (unsigned l = 0; l < lanes; ++l) {
    if (b[l].i == 0) {
      trap.trap = Trap::DivisionByZero;
      return false;
    }
    to[l].i = wrapTo(in.width, divide(in.opcode, in.width, a[l].i, b[l].i));
  }
  return true;
}

template <typename Real>
bool Step<Real>::load(const ScalarProgram &program, TrapState &trap) {
  const RefTensor &table = program.tables[in.table];
  const uint32_t *subscripts = program.subscripts.data() + in.firstSubscript;
  for (unsigned l = 0; l < lanes; ++l) {
    int64_t at = 0;
    for (unsigned d = 0; d < table.rank(); ++d) {
      int64_t s = registers.of(subscripts[d])[l].i;
      if (s < 0 || s >= table.shape()[d]) {
        trap = {Trap::OutOfRange, 0, s, int64_t(d), table.shape()[d]};
        return false;
      }
      at += s * table.strides()[d];
    }
    to[l] = table.data()[at];
  }
  return true;
}

} // namespace

namespace {
/// Of one instruction that numbers, and no pole, have made infinite or 0.
template <typename Real> class RangeKeeper {
public:
  RangeKeeper(const Instruction &in, Lanes &registers)
      : in(in), a(registers.of(in.a)), b(registers.of(in.b)),
        c(registers.of(in.c)) {}

  /// The result has become infinite.
  bool hasOverflown(unsigned lane) const {
    switch (in.opcode) {
    case Opcode::Copy:
    case Opcode::Exp:
    case Opcode::Exp2:
    case Opcode::ExpM1:
    case Opcode::Sinh:
    case Opcode::Cosh:
      return isNumber(a, lane);
    case Opcode::AddF:
    case Opcode::SubF:
    case Opcode::MulF:
      return isNumber(a, lane) && isNumber(b, lane);
    case Opcode::DivF:
      return isNumber(a, lane) && isNumber(b, lane) && valueOf(b, lane) != 0;
    case Opcode::PowF:
      return isNumber(a, lane) && isNumber(b, lane) && valueOf(a, lane) != 0;
    case Opcode::FPowI:
      return isNumber(a, lane) && valueOf(a, lane) != 0;
    case Opcode::FmaF:
      return isNumber(a, lane) && isNumber(b, lane) && isNumber(c, lane);
    default:
      return false;
    }
  }

  /// The result has become 0, or has lost digits below the range.
  bool hasVanished(unsigned lane) const {
    switch (in.opcode) {
    case Opcode::Exp:
    case Opcode::Exp2:
      return isNumber(a, lane);
    case Opcode::MulF:
      return valueOf(a, lane) != 0 && valueOf(b, lane) != 0;
    case Opcode::DivF:
      return valueOf(a, lane) != 0 && isNumber(b, lane);
    case Opcode::PowF:
      return valueOf(a, lane) != 0 && isNumber(b, lane);
    default:
      return false;
    }
  }

private:
  static Real valueOf(const Cell *cells, unsigned lane) {
    return cells[lane].*kFloatField<Real>;
  }
  static bool isNumber(const Cell *cells, unsigned lane) {
    return std::isfinite(valueOf(cells, lane));
  }

  const Instruction &in;
  const Cell *a, *b, *c;
};
} // namespace

/// Casts to a storage type overflow because the program says so.
template <typename Real>
static void keepRange(const Instruction &in, Lanes &registers, unsigned lanes) {
  bool isSingle = in.round != kNoRounding && DType(in.round) == DType::F32;
  if (in.round != kNoRounding && !isSingle && DType(in.round) != DType::F64)
    return;
  Real least = isSingle ? Real(std::numeric_limits<float>::min())
                        : std::numeric_limits<Real>::min();
  RangeKeeper<Real> keeper(in, registers);
  Cell *to = registers.of(in.to);
  for (unsigned l = 0; l < lanes; ++l) {
    Real &value = to[l].*kFloatField<Real>;
    if (std::isinf(value) && keeper.hasOverflown(l))
      value = std::copysign(std::numeric_limits<Real>::max(), value);
    else if (std::fabs(value) < least && keeper.hasVanished(l))
      value = std::copysign(least, value);
  }
}

/// A sum of infinities of both signs, and 0 times what is no number, as the
/// program says.
template <typename Real>
static void decideNans(const ScalarProgram &program, const Instruction &in,
                       Lanes &registers, unsigned lanes) {
  bool isSum = in.opcode == Opcode::AddF || in.opcode == Opcode::SubF;
  if (isSum ? program.sumOfBoth == 0
            : in.opcode != Opcode::MulF || !program.zeroMasks)
    return;
  const Cell *a = registers.of(in.a), *b = registers.of(in.b);
  Cell *to = registers.of(in.to);
  for (unsigned l = 0; l < lanes; ++l) {
    Real x = a[l].*kFloatField<Real>, y = b[l].*kFloatField<Real>;
    Real &value = to[l].*kFloatField<Real>;
    if (!std::isnan(value))
      continue;
    if (isSum && std::isinf(x) && std::isinf(y))
      value = program.sumOfBoth;
    else if (!isSum && (x == 0 || y == 0))
      value = 0;
  }
}

template <typename Real>
static bool runAs(const ScalarProgram &program, Lanes &registers,
                  unsigned lanes, TrapState &trap) {
  for (size_t i = 0; i < program.instructions.size(); ++i) {
    const Instruction &in = program.instructions[i];
    Step<Real> step{in, registers, lanes};
    auto execute = [&] {
      if (in.opcode == Opcode::Load)
        return step.load(program, trap);
      if (in.opcode >= Opcode::DivSI && in.opcode <= Opcode::ModFloor)
        return step.divisions(trap);
      step.integers();
      return true;
    };
    bool ok = program.running
                  ? runTracked(program, in, registers, lanes, execute)
                  : execute();
    if (!ok) {
      trap.instruction = i;
      return false;
    }
    if (in.round != kNoRounding)
      roundResults<Real>(program, i, step.to, lanes);
    if (program.sumOfBoth != 0 || program.zeroMasks)
      decideNans<Real>(program, in, registers, lanes);
    if (program.keepsRange)
      keepRange<Real>(in, registers, lanes);
  }
  return true;
}

bool reference::run(const ScalarProgram &program, Lanes &registers,
                    unsigned lanes, TrapState &trap) {
  return program.isWide ? runAs<long double>(program, registers, lanes, trap)
                        : runAs<double>(program, registers, lanes, trap);
}
