// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that have parts of streams of different lengths, the same on device
// and host: longer streams have more blocks.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_SHARES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_SHARES_H

namespace refold {

/// What lanes in front of this one of the warp have of a number, and what all
/// have. All lanes call it.
REFOLD_DEVICE void add_lanes(int &before, int &all, int x) {
  const int lane = thread_again() % 32;
  before = 0;
  REFOLD_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) {
    const int others = shuffle_xor(x, mask);
    before += lane & mask ? others : 0;
    x += others;
  }
  all = x;
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
/// lengths alone. More groups than `kMostGroups`, or than half of the blocks,
/// have as many blocks each. All threads call it, and see the share behind a
/// barrier of the block.
template <int kMostGroups, typename TilesOf>
REFOLD_DEVICE void share_blocks(const Shared<int32_t> &share, int64_t groups,
                                TilesOf tiles_of) {
  constexpr int kEach = (kMostGroups + 31) / 32; // groups of a lane
  const int all_blocks = int(blocks()), own = int(block());
  if (thread() >= 32)
    return;
  if (groups > kMostGroups || 2 * groups > all_blocks) {
    const int parts = int(block_quotient(all_blocks, groups));
    if (thread() == 0) {
      share.store(0, own < groups * parts ? parts : 0);
      share.store(1, own / parts);
      share.store(2, own % parts);
    }
    return;
  }
  const int first = thread_again() % 32 * kEach;
  int tiles[kEach], own_tiles = 0;
  REFOLD_UNROLL
  for (int i = 0; i < kEach; ++i) {
    tiles[i] = tiles_of(smaller(first + i, groups - 1));
    own_tiles += first + i < groups ? tiles[i] : 0;
  }
  const auto count = [&](int size) {
    int sum = 0;
    REFOLD_UNROLL
    for (int i = 0; i < kEach; ++i)
      sum += first + i < groups ? blocks_of(tiles[i], size) : 0;
    return sum;
  };
  int before, all;
  add_lanes(before, all, own_tiles);
  int least = int(larger((all + all_blocks - 1) / all_blocks, 1));
  int most = all / (all_blocks - int(groups)) + 1;
  while (least < most) {
    const int size = (least + most) / 2;
    add_lanes(before, all, count(size));
    if (all <= all_blocks)
      most = size;
    else
      least = size + 1;
  }
  if (thread() == 0)
    share.store(0, 0);
  add_lanes(before, all, count(most));
  REFOLD_UNROLL
  for (int i = 0; i < kEach; ++i) {
    const int parts = first + i < groups ? blocks_of(tiles[i], most) : 0;
    if (before <= own && own < before + parts) {
      share.store(0, parts);
      share.store(1, first + i);
      share.store(2, own - before);
    }
    before += parts;
  }
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_SHARES_H
