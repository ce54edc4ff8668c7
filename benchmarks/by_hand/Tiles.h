// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What kernels by hand share that multiply matrix tiles (AMX).
#ifndef REFOLD_BENCHMARKS_BYHAND_TILES_H
#define REFOLD_BENCHMARKS_BYHAND_TILES_H

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <immintrin.h>
#include <new>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>
#include <vector>

/// Rows of tiles that cross lines take twice the time.
template <typename T> struct OnLines {
  using value_type = T;
  T *allocate(size_t n) {
    return static_cast<T *>(
        ::operator new(n * sizeof(T), std::align_val_t(64)));
  }
  void deallocate(T *at, size_t) {
    ::operator delete(at, std::align_val_t(64));
  }
  bool operator==(const OnLines &) const { return true; }
};

inline double now() {
  auto time = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration<double, std::milli>(time).count();
}

struct alignas(64) Layout {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {};
  uint8_t rows[16] = {};
};

/// Of this thread.
inline bool beginTiles() {
  constexpr int kRequest = 0x1023, kTiles = 18;
  if (syscall(SYS_arch_prctl, kRequest, kTiles))
    return false;
  Layout layout;
  std::fill_n(layout.bytes, 8, 64);
  std::fill_n(layout.rows, 8, 16);
  _tile_loadconfig(&layout);
  return true;
}

using Half = uint16_t; ///< bf16
using Halves = std::vector<Half, OnLines<Half>>;

inline float widen(Half x) {
  uint32_t bits = uint32_t(x) << 16;
  float value;
  std::memcpy(&value, &bits, 4);
  return value;
}

inline Half narrow(float x) {
  uint32_t bits;
  std::memcpy(&bits, &x, 4);
  return Half((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

/// 2^x: what lies above the next lower whole number by a polynomial, 2^-18.4.
inline __m512 power(__m512 x) {
  __m512 r = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);
  __m512 p = _mm512_set1_ps(0.013426685531f);
  for (float c : {0.0522424722007f, 0.241280205698f, 0.693044844783f, 1.0f})
    p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(c));
  return _mm512_scalef_ps(p, x);
}

/// Of a permutation of halves: 16 from `first` on beside 16 from `second` on.
inline __m512i places(int first, int second) {
  alignas(64) uint16_t at[32];
  for (int i = 0; i < 16; ++i) {
    at[2 * i] = uint16_t(first + i);
    at[2 * i + 1] = uint16_t(second + i);
  }
  return _mm512_load_si512(at);
}

/// Of so many threads that have tiles at the same time; ms of the slowest.
inline double timeOfThreads(int threads, const std::function<void(int)> &part) {
  std::vector<double> times(threads);
  std::vector<std::thread> all;
  for (int t = 0; t < threads; ++t)
    all.emplace_back([&, t] {
      if (!beginTiles())
        std::exit(3);
      double start = now();
      part(t);
      times[t] = now() - start;
      _tile_release();
    });
  for (std::thread &one : all)
    one.join();
  return *std::max_element(times.begin(), times.end());
}

/// Multiplications and additions a ms of products from registers.
inline double rateOfTiles(int threads) {
  constexpr int kSteps = 20000;
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    double ms = timeOfThreads(threads, [](int) {
      for (int i = 0; i < kSteps; ++i) {
        _tile_dpbf16ps(0, 4, 6);
        _tile_dpbf16ps(1, 4, 7);
        _tile_dpbf16ps(2, 5, 6);
        _tile_dpbf16ps(3, 5, 7);
      }
    });
    best = std::max(best, 2.0 * 16 * 16 * 32 * 4 * kSteps * threads / ms);
  }
  return best;
}

#endif
