// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScalarProgram.h"
#include "refold/Support/Interval.h"
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

/// Where roundings at running values are tracked: how far the results of
/// instructions may be off.
using namespace refold;
using namespace refold::reference;

namespace {
using IntervalOf = Interval (*)(Interval);

IntervalOf intervalOfFunction(Opcode opcode) {
  switch (opcode) {
  case Opcode::Copy:
    return [](Interval a) { return a; };
  case Opcode::NegF:
    return [](Interval a) { return -a; };
  case Opcode::AbsF:
    return [](Interval a) { return fabs(a); };
  case Opcode::Exp:
    return [](Interval a) { return exp(a); };
  case Opcode::Exp2:
    return [](Interval a) { return exp2(a); };
  case Opcode::ExpM1:
    return [](Interval a) { return expm1(a); };
  case Opcode::Log:
    return [](Interval a) { return log(a); };
  case Opcode::Log2:
    return [](Interval a) { return log(a) / Interval(std::log(2.0)); };
  case Opcode::Log10:
    return [](Interval a) { return log(a) / Interval(std::log(10.0)); };
  case Opcode::Log1p:
    return [](Interval a) { return log1p(a); };
  case Opcode::Sqrt:
    return [](Interval a) { return sqrt(a); };
  case Opcode::Rsqrt:
    return [](Interval a) { return Interval(1) / sqrt(a); };
  case Opcode::Sin:
    return [](Interval a) { return sin(a); };
  case Opcode::Cos:
    return [](Interval a) { return cos(a); };
  case Opcode::Sinh:
    return [](Interval a) { return sinh(a); };
  case Opcode::Cosh:
    return [](Interval a) { return cosh(a); };
  case Opcode::Tanh:
    return [](Interval a) { return tanh(a); };
  case Opcode::Erf:
    return [](Interval a) { return erf(a); };
  case Opcode::Cbrt:
    return [](Interval a) { return cbrt(a); };
  case Opcode::Asin:
    return [](Interval a) { return asin(a); };
  case Opcode::Acos:
    return [](Interval a) { return acos(a); };
  case Opcode::Atan:
    return [](Interval a) { return atan(a); };
  case Opcode::Asinh:
    return [](Interval a) { return asinh(a); };
  case Opcode::Acosh:
    return [](Interval a) { return acosh(a); };
  case Opcode::Atanh:
    return [](Interval a) { return atanh(a); };
  default:
    return nullptr;
  }
}

/// Of arith::CmpFPredicate: ORD and UNO.
bool asksForNaN(uint8_t predicate) { return predicate == 7 || predicate == 14; }

Interval real(Cell cell) {
  return {cell.f, cell.bounded.below, cell.bounded.above};
}
Interval whole(Cell cell) {
  return {double(cell.i), cell.bounded.below, cell.bounded.above};
}

/// The next f32 that is no less.
float roundedUp(double side) {
  float nearest = float(side);
  return nearest < side
             ? std::nextafter(nearest, std::numeric_limits<float>::infinity())
             : nearest;
}

/// The results of one instruction, a lane after the other. Made before the
/// instruction runs, which may write to its operands.
class Tracker {
public:
  Tracker(const ScalarProgram &program, const Instruction &in, Lanes &registers)
      : running(*program.running), in(in), a(registers.of(in.a)),
        b(registers.of(in.b)), c(registers.of(in.c)) {}
  Interval of(unsigned lane) const;
  /// After the rounding of `value` to `type`, which is still to come.
  Interval rounded(DType type, double value, Interval before) const;

private:
  Interval select(unsigned l) const;

  const RunningRoundings &running;
  const Instruction &in;
  const Cell *a, *b, *c;
};

/// Where the condition could be another one, the result could be the other.
Interval Tracker::select(unsigned l) const {
  auto valueOf = [&](const Cell &cell) {
    return in.predicate == kSelectsFloats ? real(cell) : whole(cell);
  };
  Interval chosen = valueOf(a[l].i ? b[l] : c[l]);
  return whole(a[l]).isExact() ? chosen
                               : either(chosen, valueOf(a[l].i ? c[l] : b[l]));
}

Interval Tracker::of(unsigned l) const {
  constexpr double kUnknown = std::numeric_limits<double>::infinity();
  if (IntervalOf function = intervalOfFunction(in.opcode))
    return function(real(a[l]));
  switch (in.opcode) {
  case Opcode::AddF:
    return real(a[l]) + real(b[l]);
  case Opcode::SubF:
    return real(a[l]) - real(b[l]);
  case Opcode::MulF:
    return real(a[l]) * real(b[l]);
  case Opcode::DivF:
    return real(a[l]) / real(b[l]);
  case Opcode::FmaF:
    return real(a[l]) * real(b[l]) + real(c[l]);
  case Opcode::AddI:
    return whole(a[l]) + whole(b[l]);
  case Opcode::SubI:
    return whole(a[l]) - whole(b[l]);
  case Opcode::MulI:
    return whole(a[l]) * whole(b[l]);
  case Opcode::PowF:
    return pow(real(a[l]), real(b[l]));
  case Opcode::FPowI:
    return pow(real(a[l]), whole(b[l]));
  case Opcode::MaxNumF:
  case Opcode::MinNumF:
    if (std::isnan(a[l].f) || std::isnan(b[l].f))
      return std::isnan(a[l].f) ? real(b[l]) : real(a[l]);
    return in.opcode == Opcode::MaxNumF ? largerOf(real(a[l]), real(b[l]))
                                        : smallerOf(real(a[l]), real(b[l]));
  case Opcode::MaximumF:
    return largerOf(real(a[l]), real(b[l]));
  case Opcode::MinimumF:
    return smallerOf(real(a[l]), real(b[l]));
  case Opcode::MaxSI:
    return largerOf(whole(a[l]), whole(b[l]));
  case Opcode::MinSI:
    return smallerOf(whole(a[l]), whole(b[l]));
  case Opcode::AbsI:
    return fabs(whole(a[l]));
  case Opcode::CmpF:
    if (asksForNaN(in.predicate) && std::isfinite(real(a[l]).radius()) &&
        std::isfinite(real(b[l]).radius()))
      return 0; // numbers that may be off are numbers
    return Interval(0, isUndecided(real(a[l]), real(b[l])) ? kUnknown : 0);
  case Opcode::Select:
    return select(l);
  case Opcode::Floor:
  case Opcode::Ceil:
  case Opcode::Round:
  case Opcode::RoundEven:
  case Opcode::Trunc: {
    Interval before = real(a[l]);
    return before.widened(running.steps || !before.isExact() ? 1 : 0);
  }
  case Opcode::FPToSI:
  case Opcode::FPToUI: // front ends round to whole numbers before
    return {a[l].f, std::ceil(real(a[l]).below), std::ceil(real(a[l]).above)};
  case Opcode::Wrap:
  case Opcode::ZeroExtend:
  case Opcode::SIToFP:
  case Opcode::UIToFP:
    return whole(a[l]);
  case Opcode::CopySign:
    return Interval(a[l].f, real(a[l]).radius());
  case Opcode::Load: // has what its element has
    return 0;
  default:
    return Interval(
        0, whole(a[l]).isExact() && whole(b[l]).isExact() ? 0 : kUnknown);
  }
}

Interval Tracker::rounded(DType type, double value, Interval before) const {
  bool isRunning = std::find(running.types.begin(), running.types.end(),
                             type) != running.types.end();
  if (before.isExact() && !isRunning)
    return value;
  RoundingError error = roundingErrorOf(type);
  before.middle = value;
  if (before.isExact() && running.powersOfTwo)
    error = {0, error.unit * std::fabs(value) < error.step ? error.step : 0};
  return roundedWithin(before, roundTo(type, value), error);
}
} // namespace

bool refold::reference::runTracked(const ScalarProgram &program,
                                   const Instruction &in, Lanes &registers,
                                   unsigned lanes,
                                   const std::function<bool()> &step) {
  Tracker tracker(program, in, registers);
  Interval results[kLanes];
  for (unsigned l = 0; l < lanes; ++l)
    results[l] = tracker.of(l);
  if (!step())
    return false;
  Cell *to = registers.of(in.to);
  for (unsigned l = 0; l < lanes; ++l) {
    if (in.opcode == Opcode::Load)
      results[l] = real(to[l]);
    if (in.round != kNoRounding)
      results[l] = tracker.rounded(DType(in.round), to[l].f, results[l]);
    to[l].bounded.below = roundedUp(results[l].below);
    to[l].bounded.above = roundedUp(results[l].above);
  }
  return true;
}
