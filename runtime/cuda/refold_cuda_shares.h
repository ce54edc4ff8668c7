// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that have parts of streams of different lengths, the same on device
// and host: longer streams have more blocks.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_SHARES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_SHARES_H

namespace refold {

/// `before[0]`, `before[1]`: what threads in front of this one of the block
/// have of two numbers; `all[0]`, `all[1]`: what all have. All threads call it.
template <int kThreads>
REFOLD_DEVICE void add_threads(int (&before)[2], int (&all)[2], int x, int y) {
  constexpr int kWarps = kThreads / 32;
  REFOLD_SHARED(int32_t, shared_counts, 2 * kWarps);
  const int which = thread_again();
  before[0] = before[1] = 0;
  REFOLD_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) {
    const int others = shuffle_xor(x, mask), more = shuffle_xor(y, mask);
    before[0] += which & mask ? others : 0;
    before[1] += which & mask ? more : 0;
    x += others;
    y += more;
  }
  if (which % 32 == 0) {
    shared_counts.store(which / 32, x);
    shared_counts.store(kWarps + which / 32, y);
  }
  block_barrier();
  all[0] = all[1] = 0;
  REFOLD_UNROLL
  for (int warp = 0; warp < kWarps; ++warp) {
    const int of_warps[2] = {shared_counts.load(warp),
                             shared_counts.load(kWarps + warp)};
    REFOLD_UNROLL
    for (int i = 0; i < 2; ++i) {
      before[i] += warp < which / 32 ? of_warps[i] : 0;
      all[i] += of_warps[i];
    }
  }
  block_barrier();
}

/// As many blocks as a stream has parts of `size` tiles, but at least one.
REFOLD_DEVICE int blocks_of(int tiles, int size) {
  return int(larger((tiles + size - 1) / size, 1));
}

/// Shares the blocks of the launch among `groups` groups of rows, of which
/// `tiles_of` says how many tiles of the stream they have: in parts that are as
/// short as there are blocks enough for. Those of a group are beside each
/// other. `share`: in how many parts the block's group is, which one it is, and
/// the block's part; no parts where nothing is left for the block. Follows from
/// lengths alone. All threads call it, one for each group; more groups than
/// `kMostGroups` have as many blocks each.
template <int kThreads, int kMostGroups, typename TilesOf>
REFOLD_DEVICE void share_blocks(const Shared<int32_t> &share, int64_t groups,
                                TilesOf tiles_of) {
  static_assert(kMostGroups <= kThreads);
  const int all_blocks = int(blocks()), own = int(block());
  const int group = thread_again();
  if (groups > kMostGroups) {
    const int parts = int(block_quotient(all_blocks, groups));
    if (group == 0) {
      share.store(0, own < groups * parts ? parts : 0);
      share.store(1, own / parts);
      share.store(2, own % parts);
    }
    block_barrier();
    return;
  }
  const bool is_there = group < groups;
  const int tiles = is_there ? tiles_of(int64_t(group)) : 0;
  int before[2], all[2];
  add_threads<kThreads>(before, all, tiles, 0);
  const int spare = all_blocks - int(groups);
  int least = int(larger((all[0] + all_blocks - 1) / all_blocks, 1));
  int most = spare > 0 ? all[0] / spare + 1 : all[0] + 1;
  while (least < most) {
    const int step = int(smaller((most - least) / 3, least));
    const int low = least + step, high = most - 1 - step;
    add_threads<kThreads>(before, all, is_there ? blocks_of(tiles, low) : 0,
                          is_there ? blocks_of(tiles, high) : 0);
    if (all[0] <= all_blocks)
      most = low;
    else if (all[1] > all_blocks)
      least = high + 1;
    else
      least = low + 1, most = high;
  }
  if (group == 0)
    share.store(0, 0);
  const int parts = is_there ? blocks_of(tiles, most) : 0;
  add_threads<kThreads>(before, all, parts, 0);
  if (before[0] <= own && own < before[0] + parts) {
    share.store(0, parts);
    share.store(1, group);
    share.store(2, own - before[0]);
  }
  block_barrier();
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_SHARES_H
