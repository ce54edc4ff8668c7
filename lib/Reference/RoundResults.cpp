// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What an operation is rounded to, and how far from that it may be.
#include "ScalarProgram.h"
#include "refold/Support/SplitMix64.h"
#include <cstring>

using namespace refold;
using namespace refold::reference;

double reference::roundTo(DType dtype, double value) {
  if (dtype == DType::F32)
    return float(value);
  if (dtype == DType::F64)
    return value;
  uint64_t bits = 0;
  storeFromDouble(dtype, value, &bits);
  return loadAsDouble(dtype, &bits);
}

RoundingError reference::roundingErrorOf(DType type) {
  switch (type) {
  case DType::F16:
    return {0x1p-11, 0x1p-25};
  case DType::BF16:
    return {0x1p-8, 0x1p-134};
  case DType::F8E4M3:
    return {0x1p-4, 0x1p-10};
  case DType::F8E5M2:
    return {0x1p-3, 0x1p-17};
  default:
    return {0x1p-24, 0x1p-150};
  }
}

/// Do libraries differ in its last bit?
static bool isInexact(Opcode opcode) {
  return opcode == Opcode::DivF || opcode == Opcode::PowF ||
         opcode == Opcode::FPowI ||
         (opcode >= Opcode::Exp && opcode <= Opcode::Erf &&
          opcode != Opcode::AbsF);
}

static bool isRounded(Opcode opcode) {
  return opcode == Opcode::AddF || opcode == Opcode::SubF ||
         opcode == Opcode::MulF || opcode == Opcode::FmaF || isInexact(opcode);
}

/// Drawn for a value of an instruction: the same for the same.
static uint64_t drawOf(uint64_t seed, size_t instruction, double value) {
  uint64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return splitMix64(bits ^ (seed * kSplitMix64Step) ^ instruction);
}

/// A factor within one unit in the last place.
static double noiseOf(uint64_t seed, size_t instruction, DType type,
                      double value) {
  return 1.0 + (int(drawOf(seed, instruction, value) % 3) - 1) * 2.0 *
                   roundingErrorOf(type).unit;
}

template <typename Real>
Real reference::withOwnNoise(uint64_t seed, size_t instruction, Real value) {
  uint64_t draw = drawOf(seed, instruction, double(value));
  Real moved = Real(1 + draw / 2 % 64) * std::numeric_limits<Real>::epsilon();
  return value * (draw % 2 ? 1 + moved : 1 - moved);
}

template double reference::withOwnNoise(uint64_t, size_t, double);
template long double reference::withOwnNoise(uint64_t, size_t, long double);

/// `rounded`, a subnormal number of `type` that `exact` was rounded to, one
/// step further from 0 or nearer to it, the same for the same number.
static double moveSubnormal(uint64_t seed, DType type, double exact,
                            double rounded) {
  bool isSingle = type == DType::F32;
  double least = isSingle ? std::numeric_limits<float>::min()
                          : std::numeric_limits<double>::min();
  if ((!isSingle && type != DType::F64) || !(std::fabs(rounded) < least))
    return rounded;
  double step = isSingle ? std::numeric_limits<float>::denorm_min()
                         : std::numeric_limits<double>::denorm_min();
  uint64_t bits;
  std::memcpy(&bits, &exact, sizeof(bits));
  bool isUp = (splitMix64(bits ^ ((seed >> 1) << 32)) ^ seed) & 1;
  double size = std::fabs(rounded);
  return std::copysign(isUp ? size + step : std::max(size - step, 0.0), exact);
}

/// The result of instruction `index`, which rounds to a type.
template <typename Real>
static Real roundResult(const ScalarProgram &program, size_t index,
                        Real exact) {
  const Instruction &in = program.instructions[index];
  DType type = DType(in.round);
  if (program.ownNoise && in.opcode != Opcode::Copy) // a cast of the program
    return isRounded(in.opcode) ? withOwnNoise(*program.ownNoise, index, exact)
                                : exact;
  if (program.isUnlimited)
    return roundDigits(type, exact);
  Real value = roundTo(type, exact);
  if (program.subnormalNoise && value != exact)
    value = moveSubnormal(*program.subnormalNoise, type, exact, value);
  if (program.functionNoise && isInexact(in.opcode))
    value = roundTo(
        type, value * noiseOf(*program.functionNoise, index, type, value));
  return value;
}

template <typename Real>
void reference::roundResults(const ScalarProgram &program, size_t index,
                             Cell *results, unsigned lanes) {
  for (unsigned l = 0; l < lanes; ++l) {
    Real &value = results[l].*kFloatField<Real>;
    value = roundResult(program, index, value);
  }
}

template void reference::roundResults<double>(const ScalarProgram &, size_t,
                                              Cell *, unsigned);
template void reference::roundResults<long double>(const ScalarProgram &,
                                                   size_t, Cell *, unsigned);
