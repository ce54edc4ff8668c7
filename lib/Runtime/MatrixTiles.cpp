// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/MatrixTiles.h"

#if defined(__x86_64__) && defined(__linux__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace refold {

/// Of CPUID leaf 7, register d.
static constexpr unsigned kHasBf16 = 1u << 22, kHasTiles = 1u << 24,
                          kHasBytes = 1u << 25;

static bool hasInstructions() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kAll = kHasBf16 | kHasTiles | kHasBytes;
  return __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kAll) == kAll;
}

/// Kernels before 5.16 know no such request, and give nothing.
static bool askKernel() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

bool mayUseMatrixTiles() {
  static const bool may = hasInstructions() && askKernel();
  return may;
}

} // namespace refold

#else

namespace refold {

bool mayUseMatrixTiles() { return false; }

} // namespace refold

#endif
