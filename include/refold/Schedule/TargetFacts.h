// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_TARGETFACTS_H
#define REFOLD_SCHEDULE_TARGETFACTS_H

#include <cstdint>
#include <string>

namespace refold {

/// The three forms that code is generated in. Baseline is x86-64-v2 (SSE4.2, no
/// FMA); AVX2 has FMA and F16C too; AVX512 is F, BW, CD, DQ and VL.
enum class InstructionSet : uint8_t { Baseline, AVX2, AVX512 };

/// What schedules and lowerings ask of a machine. Plain data: a test may invent
/// one; `detectTarget` (refold/Target/CPU) fills it from the machine.
struct TargetFacts {
  InstructionSet instructionSet = InstructionSet::Baseline;
  unsigned vectorBytes = 16;
  unsigned vectorRegisters = 16;
  bool hasFma = false;
  int64_t l1Bytes = 32 << 10; ///< data cache of one core
  int64_t l2Bytes = 1 << 20;  ///< of one core
  std::string cpuName = "x86-64-v2"; ///< as LLVM calls it; may be printed
  std::string features;              ///< LLVM's "+avx2,+fma,..."

  /// Elements of one native vector.
  unsigned lanes(unsigned elementBytes) const {
    return vectorBytes / elementBytes;
  }
};

} // namespace refold

#endif // REFOLD_SCHEDULE_TARGETFACTS_H
