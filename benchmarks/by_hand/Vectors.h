// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Vectors of 16 numbers (AVX-512), as kernels of attention by hand use them.
#ifndef REFOLD_BENCHMARKS_BYHAND_VECTORS_H
#define REFOLD_BENCHMARKS_BYHAND_VECTORS_H

#include <cmath>
#include <cstdint>
#include <immintrin.h>

namespace byhand {

using Vec = float __attribute__((vector_size(64), aligned(4)));
constexpr int kLanes = 16;
constexpr float kLog2E = 1.44269504088896f;
constexpr float kMinusInf = -__builtin_inff();

#define REFOLD_INLINE [[gnu::always_inline]] inline
#define REFOLD_UNROLL _Pragma("clang loop unroll(full)")

REFOLD_INLINE Vec load(const float *from) { return (Vec)_mm512_loadu_ps(from); }
REFOLD_INLINE void store(float *to, Vec x) { _mm512_storeu_ps(to, (__m512)x); }
REFOLD_INLINE Vec splat(float x) { return (Vec)_mm512_set1_ps(x); }
REFOLD_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return (Vec)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
}
REFOLD_INLINE Vec larger(Vec a, Vec b) {
  return (Vec)_mm512_max_ps((__m512)a, (__m512)b);
}
REFOLD_INLINE float sumOf(Vec a) { return _mm512_reduce_add_ps((__m512)a); }
REFOLD_INLINE float largestOf(Vec a) { return _mm512_reduce_max_ps((__m512)a); }
REFOLD_INLINE __mmask16 exceeds(Vec a, Vec b) {
  return _mm512_cmp_ps_mask((__m512)a, (__m512)b, _CMP_GT_OQ);
}

/// How 2^x comes about; the polynomials have degree 5.
enum class Power {
  Reduced, ///< from the next lower whole number by reduce, scalef
  Rounded, ///< from the nearest whole number by rndscale, scalef
  Magic    ///< from the nearest by an addition, exponent bits by another
};

template <size_t count>
REFOLD_INLINE Vec polynomial(const float (&factors)[count], Vec r) {
  Vec p = splat(factors[0]);
  REFOLD_UNROLL for (size_t i = 1; i < count; ++i) p =
      fma(p, r, splat(factors[i]));
  return p;
}

/// 2^x to 3e-7 of it, for x at most 127; below -126 Magic gives 2^-126.
template <Power how> REFOLD_INLINE Vec power(Vec x) {
  if constexpr (how == Power::Reduced) {
    // Of -inf reduce gives 0, and scalef 0.
    Vec r = (Vec)_mm512_reduce_ps((__m512)x,
                                  _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
    constexpr float kFactors[] = {1.877576673e-3f, 8.989340095e-3f,
                                  5.582631805e-2f, 2.401536170e-1f,
                                  6.931530732e-1f, 9.999999251e-1f};
    return (Vec)_mm512_scalef_ps((__m512)polynomial(kFactors, r), (__m512)x);
  }
  constexpr float kFactors[] = {1.327647198e-3f, 9.675541334e-3f,
                                5.550713274e-2f, 2.402211972e-1f,
                                6.931469671e-1f, 1.000000072f};
  if constexpr (how == Power::Rounded) {
    x = larger(x, splat(-150.0f)); // -inf less -inf is no number
    Vec whole = (Vec)_mm512_roundscale_ps((__m512)x, _MM_FROUND_TO_NEAREST_INT |
                                                         _MM_FROUND_NO_EXC);
    return (Vec)_mm512_scalef_ps((__m512)polynomial(kFactors, x - whole),
                                 (__m512)whole);
  } else {
    const Vec magic = splat(12582912.0f);
    x = larger(x, splat(-126.0f));
    Vec whole = x + magic;
    Vec p = polynomial(kFactors, x - (whole - magic));
    return (Vec)_mm512_add_epi32((__m512i)p,
                                 _mm512_slli_epi32((__m512i)whole, 23));
  }
}

/// Lane i of the result is the sum of the lanes of v[i].
REFOLD_INLINE Vec sumsOfSixteen(const Vec *v) {
  auto add = [](__m512 a, __m512 b) { return _mm512_add_ps(a, b); };
  auto low = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(
        _mm512_unpacklo_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  auto high = [](__m512 a, __m512 b) {
    return _mm512_castpd_ps(
        _mm512_unpackhi_pd(_mm512_castps_pd(a), _mm512_castps_pd(b)));
  };
  auto quarters = [&](__m512 a, __m512 b) {
    return add(_mm512_shuffle_f32x4(a, b, 0x88),
               _mm512_shuffle_f32x4(a, b, 0xdd));
  };
  __m512 twos[8], fours[4], halves[2];
  REFOLD_UNROLL for (int i = 0; i < 8; ++i) {
    __m512 a = (__m512)v[2 * i], b = (__m512)v[2 * i + 1];
    twos[i] = add(_mm512_unpacklo_ps(a, b), _mm512_unpackhi_ps(a, b));
  }
  REFOLD_UNROLL for (int i = 0; i < 4; ++i) fours[i] = add(
      low(twos[2 * i], twos[2 * i + 1]), high(twos[2 * i], twos[2 * i + 1]));
  REFOLD_UNROLL for (int i = 0; i < 2; ++i) halves[i] =
      quarters(fours[2 * i], fours[2 * i + 1]);
  return (Vec)quarters(halves[0], halves[1]);
}

/// Rows of 16 numbers become columns.
REFOLD_INLINE void transpose(const float *from, int64_t pitch, Vec *to) {
  __m512 a[16], b[16];
  REFOLD_UNROLL for (int i = 0; i < 16; ++i) a[i] =
      _mm512_loadu_ps(from + i * pitch);
  REFOLD_UNROLL for (int i = 0; i < 8; ++i) {
    b[2 * i] = _mm512_unpacklo_ps(a[2 * i], a[2 * i + 1]);
    b[2 * i + 1] = _mm512_unpackhi_ps(a[2 * i], a[2 * i + 1]);
  }
  REFOLD_UNROLL for (int i = 0; i < 4; ++i)
      REFOLD_UNROLL for (int k = 0; k < 2; ++k) {
    __m512d x = _mm512_castps_pd(b[4 * i + k]);
    __m512d y = _mm512_castps_pd(b[4 * i + 2 + k]);
    a[4 * i + 2 * k] = _mm512_castpd_ps(_mm512_unpacklo_pd(x, y));
    a[4 * i + 2 * k + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(x, y));
  }
  REFOLD_UNROLL for (int i = 0; i < 4; ++i) {
    b[i] = _mm512_shuffle_f32x4(a[i], a[4 + i], 0x88);
    b[4 + i] = _mm512_shuffle_f32x4(a[i], a[4 + i], 0xdd);
    b[8 + i] = _mm512_shuffle_f32x4(a[8 + i], a[12 + i], 0x88);
    b[12 + i] = _mm512_shuffle_f32x4(a[8 + i], a[12 + i], 0xdd);
  }
  REFOLD_UNROLL for (int i = 0; i < 4; ++i) {
    to[i] = (Vec)_mm512_shuffle_f32x4(b[i], b[8 + i], 0x88);
    to[8 + i] = (Vec)_mm512_shuffle_f32x4(b[i], b[8 + i], 0xdd);
    to[4 + i] = (Vec)_mm512_shuffle_f32x4(b[4 + i], b[12 + i], 0x88);
    to[12 + i] = (Vec)_mm512_shuffle_f32x4(b[4 + i], b[12 + i], 0xdd);
  }
}

} // namespace byhand

#endif // REFOLD_BENCHMARKS_BYHAND_VECTORS_H
