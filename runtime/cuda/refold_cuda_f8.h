// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Floats of 8 bits: f8E4M3FN, which has no infinity, and f8E5M2. The emulator
// and GPUs before sm_89 round by integers, newer ones by instructions that
// saturate.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_F8_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_F8_H

#if !defined(REFOLD_CUDA_EMULATED) && __CUDA_ARCH__ >= 890
#define REFOLD_HAS_F8
#endif

namespace refold {

struct f8e4m3 {
  uint8_t bits;
};
struct f8e5m2 {
  uint8_t bits;
};

/// Bits of the fraction, the bias of the exponent, codes without their signs.
template <typename T> struct Format8;
template <> struct Format8<f8e4m3> {
  static constexpr int kFraction = 3, kBias = 7;
  static constexpr uint32_t kLargest = 0x7e, kOverflow = 0x7f;
  static constexpr float kLast = 464.0f; ///< that does not overflow
};
template <> struct Format8<f8e5m2> {
  static constexpr int kFraction = 2, kBias = 15;
  static constexpr uint32_t kLargest = 0x7b, kOverflow = 0x7c;
  static constexpr float kLast = 61439.9961f;
};

REFOLD_DEVICE float to_float(f8e5m2 x) { // the upper half of an f16
  return to_float(f16{uint16_t(x.bits << 8)});
}
REFOLD_DEVICE float to_float(f8e4m3 x) {
#ifdef REFOLD_HAS_F8
  uint32_t y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(uint16_t(x.bits)));
  return to_float(f16{uint16_t(y)});
#else
  const uint32_t code = x.bits & 0x7fu;
  const float size = float_of(code << 20) * 1.32922800e36f; // 2^120
  return float_of((code == 0x7f ? 0x7fffffffu : bits_of(size)) |
                  uint32_t(x.bits & 0x80) << 24);
#endif
}

/// Rounded to nearest, ties to even; NaN is 0x7f. What is too large is the
/// largest number where it saturates, else infinite, or NaN where the format
/// has no infinity.
template <typename T, bool kSaturates> REFOLD_DEVICE uint32_t code_of(float x) {
  using F = Format8<T>;
  constexpr int kShift = 23 - F::kFraction;
  constexpr uint32_t kRebias = uint32_t(127 - F::kBias) << 23;
  constexpr uint32_t kMost = kSaturates ? F::kLargest : F::kOverflow;
  // A number whose last place is the smallest subnormal: a sum rounds there.
  constexpr uint32_t kAnchor = uint32_t(151 - F::kBias - F::kFraction) << 23;
  const uint32_t size = bits_of(x) & 0x7fffffffu;
  const uint32_t half = (1u << (kShift - 1)) - 1 + (size >> kShift & 1);
  const uint32_t normal = (size + half - kRebias) >> kShift;
  const uint32_t small = bits_of(float_of(size) + float_of(kAnchor)) - kAnchor;
  const uint32_t code = size < kRebias + (1u << 23) ? small : normal;
  return size > 0x7f800000u
             ? 0x7fu
             : (code < kMost ? code : kMost) | (bits_of(x) >> 24 & 0x80u);
}

/// Two of them, the first in the low bits; too large ones saturate.
REFOLD_DEVICE uint32_t pack_saturated(float low, float high, f8e4m3) {
#ifdef REFOLD_HAS_F8
  uint16_t y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;"
      : "=h"(y)
      : "f"(high), "f"(low));
  return y;
#else
  return code_of<f8e4m3, true>(low) | code_of<f8e4m3, true>(high) << 8;
#endif
}
REFOLD_DEVICE uint32_t pack_saturated(float low, float high, f8e5m2) {
#ifdef REFOLD_HAS_F8
  uint16_t y;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;"
      : "=h"(y)
      : "f"(high), "f"(low));
  return y;
#else
  return code_of<f8e5m2, true>(low) | code_of<f8e5m2, true>(high) << 8;
#endif
}

/// The same without saturation: past the largest number comes what too large
/// ones become.
template <typename T> REFOLD_DEVICE uint32_t pack8(float low, float high) {
#ifdef REFOLD_HAS_F8
  constexpr float kLast = Format8<T>::kLast;
  return pack_saturated(low, high, T{}) + (fabsf(low) > kLast ? 1u : 0u) +
         (fabsf(high) > kLast ? 0x100u : 0u);
#else
  return code_of<T, false>(low) | code_of<T, false>(high) << 8;
#endif
}
REFOLD_DEVICE uint32_t pack(float low, float high, f8e4m3) {
  return pack8<f8e4m3>(low, high);
}
REFOLD_DEVICE uint32_t pack(float low, float high, f8e5m2) {
  return pack8<f8e5m2>(low, high);
}

/// The two in the low bits as two f16, which has all of their numbers.
REFOLD_DEVICE uint32_t widen_pair(uint32_t two, f8e5m2) {
  return (two & 0xffu) << 8 | (two & 0xff00u) << 16;
}
REFOLD_DEVICE uint32_t widen_pair(uint32_t two, f8e4m3) {
#ifdef REFOLD_HAS_F8
  uint32_t y;
  asm("cvt.rn.f16x2.e4m3x2 %0, %1;" : "=r"(y) : "h"(uint16_t(two)));
  return y;
#else
  return pack(to_float(f8e4m3{uint8_t(two)}),
              to_float(f8e4m3{uint8_t(two >> 8)}), f16{});
#endif
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_F8_H
