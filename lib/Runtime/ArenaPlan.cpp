// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/ArenaPlan.h"

#include <algorithm>
#include <numeric>

using namespace refold;

std::optional<ArenaPlan> refold::planArena(std::span<const BufferLife> lives) {
  constexpr int64_t kLimit = int64_t(1) << 62;
  auto rounded = [&](size_t i) {
    return (lives[i].bytes + ArenaPlan::kAlignment - 1) &
           ~(ArenaPlan::kAlignment - 1);
  };
  for (const BufferLife &life : lives)
    if (life.bytes < 0 || life.bytes > kLimit)
      return std::nullopt;

  std::vector<size_t> order(lives.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
    return lives[a].bytes != lives[b].bytes ? lives[a].bytes > lives[b].bytes
                                            : a < b;
  });

  ArenaPlan plan;
  plan.offsets.resize(lives.size());
  std::vector<size_t> placed; // placed: in order of offsets
  for (size_t i : order) {
    int64_t offset = 0;
    for (size_t other : placed) {
      bool meets = lives[other].first <= lives[i].last &&
                   lives[i].first <= lives[other].last;
      if (!meets)
        continue;
      if (plan.offsets[other] - offset >= rounded(i))
        break;
      offset = std::max(offset, plan.offsets[other] + rounded(other));
    }
    if (offset > kLimit - rounded(i))
      return std::nullopt;
    plan.offsets[i] = offset;
    plan.bytes = std::max(plan.bytes, offset + rounded(i));
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](size_t a, size_t b) {
                                     return plan.offsets[a] < plan.offsets[b];
                                   }),
                  i);
  }
  return plan;
}
