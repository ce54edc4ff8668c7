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
  Rounded, ///< nearest whole number by rndscale, scalef
  Reduced, ///< the rest by reduce, scalef
  Magic    ///< nearest whole number by an addition, exponent bits by another
};

/// 2^x to 4e-7 of it, for x at most 127; below -126 Magic gives 2^-126.
template <Power how> REFOLD_INLINE Vec power(Vec x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  const Vec kMagic = splat(12582912.0f);
  Vec whole, r;
  if constexpr (how == Power::Magic) {
    x = larger(x, splat(-126.0f));
    whole = x + kMagic;
    r = x - (whole - kMagic);
  } else if constexpr (how == Power::Reduced) {
    r = (Vec)_mm512_reduce_ps((__m512)larger(x, splat(-150.0f)), kNearest);
    whole = x - r;
  } else {
    x = larger(x, splat(-150.0f)); // so that -inf gives 0
    whole = (Vec)_mm512_roundscale_ps((__m512)x, kNearest);
    r = x - whole;
  }
  Vec p = splat(1.327647198e-3f);
  p = fma(p, r, splat(9.675541334e-3f));
  p = fma(p, r, splat(5.550713274e-2f));
  p = fma(p, r, splat(2.402211972e-1f));
  p = fma(p, r, splat(6.931469671e-1f));
  p = fma(p, r, splat(1.000000072f));
  if constexpr (how == Power::Magic)
    return (Vec)_mm512_add_epi32((__m512i)p,
                                 _mm512_slli_epi32((__m512i)whole, 23));
  return (Vec)_mm512_scalef_ps((__m512)p, (__m512)whole);
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
