// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_TARGETFACTS_H
#define REFOLD_SCHEDULE_TARGETFACTS_H

#include <cstdint>

namespace refold {

/// What the choice of a schedule and the walk need to know of a machine. Plain
/// numbers: nothing here names an instruction.
struct TargetFacts {
  /// Bits of one vector register: 512 (AVX-512), 256 (AVX2), 128 (baseline), 32
  /// (no vectors).
  int64_t vectorBits = 512;
  int64_t vectorRegisters = 32;
  int64_t l1Bytes = 32 * 1024;
  int64_t l2Bytes = 1024 * 1024;
  /// Lanes of a mask are moved to the front of a register by one instruction
  /// (AVX-512).
  bool hasCompress = true;
  /// Sums of products of bf16 values are added two at a time in less than the
  /// time of two products of f32. Each product is exact.
  bool addsPairs = false;
  int64_t l3Bytes = 32 * 1024 * 1024;
  /// An instruction adds four products of unsigned and signed bytes to each
  /// 32-bit lane of a 512-bit register.
  bool hasByteDots = false;

  static TargetFacts avx512() { return {}; }
  static TargetFacts avx2() { return {256, 16, 32 * 1024, 512 * 1024, false}; }
  static TargetFacts baseline() {
    return {128, 16, 32 * 1024, 512 * 1024, false};
  }
  static TargetFacts scalar() {
    return {32, 16, 32 * 1024, 512 * 1024, false, /*addsPairs=*/true};
  }

  /// Elements of `bits` bits in one register; at least 1.
  int64_t lanes(int64_t bits) const {
    return vectorBits > bits ? vectorBits / bits : 1;
  }
};

} // namespace refold

#endif // REFOLD_SCHEDULE_TARGETFACTS_H
