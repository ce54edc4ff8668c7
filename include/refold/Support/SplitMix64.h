// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_SPLITMIX64_H
#define REFOLD_SUPPORT_SPLITMIX64_H

#include <cstdint>

namespace refold {

/// What a state of SplitMix64 grows by from draw to draw.
inline constexpr uint64_t kSplitMix64Step = 0x9e3779b97f4a7c15;

/// The draw of a state (Steele, Lea and Flood, "Fast splittable pseudorandom
/// number generators", OOPSLA 2014), which is also a hash of it: small, of
/// known quality, the same on every machine. A generator that is made for one
/// draw costs a thousand times as much (`std::mt19937_64`).
constexpr uint64_t splitMix64(uint64_t state) {
  uint64_t z = state + kSplitMix64Step;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

} // namespace refold

#endif // REFOLD_SUPPORT_SPLITMIX64_H
