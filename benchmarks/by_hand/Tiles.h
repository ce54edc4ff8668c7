// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What kernels by hand share that multiply matrix tiles (AMX).
#ifndef REFOLD_BENCHMARKS_BYHAND_TILES_H
#define REFOLD_BENCHMARKS_BYHAND_TILES_H

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <immintrin.h>
#include <new>
#include <sys/syscall.h>
#include <unistd.h>

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

#endif
