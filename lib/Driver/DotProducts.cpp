// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DotProducts.h"

#if defined(__x86_64__)
#include "llvm/TargetParser/Host.h"
#include <immintrin.h>

namespace refold {

static constexpr int kSums = 12;

static bool has(llvm::StringRef feature) {
  llvm::StringMap<bool> features = llvm::sys::getHostCPUFeatures();
  return features.lookup("avx512f") && features.lookup("avx512bw") &&
         features.lookup(feature);
}

bool hasBf16Dots() { return has("avx512bf16"); }
bool hasInt8Dots() { return has("avx512vnni"); }

__attribute__((target("avx512f,avx512bw,avx512bf16"))) void runBf16Dots() {
  __m512 sums[kSums];
  for (__m512 &sum : sums)
    sum = _mm512_setzero_ps();
  __m512bh a = (__m512bh)_mm512_set1_epi16(0x3f80);
  __m512bh b = (__m512bh)_mm512_set1_epi16(0x3c00);
  for (int i = 0; i < static_cast<int>(kDotRepeats); ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kSums; ++k) {
      sums[k] = _mm512_dpbf16_ps(sums[k], a, b);
      asm volatile("" : "+v"(sums[k]));
    }
  }
}

__attribute__((target("avx512f,avx512bw,avx512vnni"))) void runInt8Dots() {
  __m512i sums[kSums];
  for (__m512i &sum : sums)
    sum = _mm512_setzero_si512();
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(5);
  for (int i = 0; i < static_cast<int>(kDotRepeats); ++i) {
#pragma GCC unroll 12
    for (int k = 0; k < kSums; ++k) {
      sums[k] = _mm512_dpbusd_epi32(sums[k], a, b);
      asm volatile("" : "+v"(sums[k]));
    }
  }
}

/// Tiles of 16 rows of 64 bytes; what they hold does not matter.
__attribute__((target("amx-tile"))) static void beginTiles() {
  alignas(64) uint8_t layout[64] = {1};
  for (int tile = 0; tile < 8; ++tile) {
    layout[16 + 2 * tile] = 64;
    layout[48 + tile] = 16;
  }
  _tile_loadconfig(layout);
}

__attribute__((target("amx-tile,amx-bf16"))) void runBf16Tiles() {
  beginTiles();
  for (int i = 0; i < static_cast<int>(kDotRepeats); ++i) {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_release();
}

__attribute__((target("amx-tile,amx-int8"))) void runInt8Tiles() {
  beginTiles();
  for (int i = 0; i < static_cast<int>(kDotRepeats); ++i) {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
  _tile_release();
}

} // namespace refold

#else

namespace refold {

bool hasBf16Dots() { return false; }
bool hasInt8Dots() { return false; }
void runBf16Dots() {}
void runInt8Dots() {}
void runBf16Tiles() {}
void runInt8Tiles() {}

} // namespace refold

#endif
