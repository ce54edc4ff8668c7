// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_FEWROWS_H
#define REFOLD_SCHEDULE_FEWROWS_H

#include <cstdint>

namespace refold {

/// Fewer items than keep cores at work, of a long stream: it is cut into
/// segments, which are items. As many whatever the machine has, so that bits do
/// not depend on it.
struct FewRows {
  static constexpr int64_t kItems = 8, kLong = 8192, kSegments = 16;
};

} // namespace refold

#endif // REFOLD_SCHEDULE_FEWROWS_H
