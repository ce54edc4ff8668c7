// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_ARENAPLAN_H
#define REFOLD_RUNTIME_ARENAPLAN_H

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace refold {

/// A buffer that holds something from step `first` to step `last`, both
/// included.
struct BufferLife {
  int64_t bytes = 0;
  unsigned first = 0, last = 0;
};

struct ArenaPlan {
  std::vector<int64_t> offsets; ///< one a buffer, multiples of `kAlignment`
  int64_t bytes = 0;
  static constexpr int64_t kAlignment = 64;
};

/// Places buffers so that two that live at the same step never overlap: the
/// largest first, each at the lowest offset that is free while it lives.
/// Depends on its argument only. Nothing where the arena would exceed 2^62
/// bytes or a size is negative.
std::optional<ArenaPlan> planArena(std::span<const BufferLife> lives);

} // namespace refold

#endif // REFOLD_RUNTIME_ARENAPLAN_H
