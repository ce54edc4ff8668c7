// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that have parts of streams of different lengths, the same on device
// and host: longer streams have more blocks, and longer parts come first.
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
REFOLD_DEVICE int most_of_lanes(int x) {
  REFOLD_UNROLL
  for (int mask = 1; mask < 32; mask *= 2) {
    const int other = shuffle_xor(x, mask);
    x = other > x ? other : x;
  }
  return x;
}

/// How streams are cut, in tiles: what the beginning of a block is worth, what
/// it is worth to leave a part for a merge, how many parts are merged in the
/// time of one, and what no part is shorter than; `kAtOnceOf`: blocks that a
/// large GPU has at once.
template <int kBeginOf, int kLeaveOf, int kMergedOf, int kLeastOf,
          int kAtOnceOf>
struct ShareCosts {
  static constexpr int kBegin = kBeginOf, kLeave = kLeaveOf, kLeast = kLeastOf;
  static constexpr int kMerged = kMergedOf, kAtOnce = kAtOnceOf;
};

/// A size of parts that is tried, one a lane: the first is the longest stream,
/// or twice what a multiprocessor would have of all, each further one 2^(1/8)
/// less, the last whole streams.
template <typename Costs> struct ShareSize {
  static constexpr int kWhole = 31;
  int tiles;
  float inverse;
  REFOLD_DEVICE ShareSize(int number, int longest, int total) {
    const float each = float(total) * (2.0f / Costs::kAtOnce);
    const int quarter = number / 2 % 4;
    const float part = quarter == 0   ? 1.0f
                       : quarter == 1 ? 0.8408964f
                       : quarter == 2 ? 0.70710677f
                                      : 0.59460354f;
    const float size = fminf(each, float(longest)) * part *
                       (number % 2 == 0 ? 1.0f : 0.917004f) /
                       float(1 << number / 8);
    const int least = int(size) > Costs::kLeast ? int(size) : Costs::kLeast;
    tiles = number == kWhole ? 1 << 24 : least;
    inverse = reciprocal_fast(float(tiles));
  }
};

/// A stream in parts of up to a size: how many there are, at least one, and how
/// long each is.
struct StreamParts {
  int count, tiles;
  template <typename Size>
  REFOLD_DEVICE StreamParts(int all, const Size &size) {
    // Half of one less than what is rounded down: exact up to 2^20 tiles.
    count = int((float(all + size.tiles) - 0.5f) * size.inverse);
    count = count > 1 ? count : 1;
    tiles = int((float(all + count) - 0.5f) * reciprocal_fast(float(count)));
  }
};

/// What a try comes to.
struct SharedWork {
  int parts = 0, tiles = 0, most = 0, large = 0;
  /// Of one stream; `large`: parts above 0.7 and above 0.9 of the size.
  template <typename Costs>
  REFOLD_DEVICE void add(int all, const ShareSize<Costs> &size) {
    const StreamParts cut(all, size);
    const int merge = Costs::kLeave + cut.count / Costs::kMerged;
    const int besides = Costs::kBegin + (cut.count > 1 ? merge : 0);
    const int each = cut.tiles + besides;
    parts += cut.count;
    tiles += all + cut.count * besides;
    most = each > most ? each : most;
    const int some = cut.count < 63 ? cut.count : 63; // are enough
    large += 10 * each > 7 * size.tiles ? some : 0;
    large += 10 * each > 9 * size.tiles ? some << 16 : 0;
  }
  /// When the last of its blocks is done. Of more than there are at once, some
  /// follow others: large ones where these are so many, and about a quarter of
  /// one else.
  template <typename Costs>
  REFOLD_DEVICE float end(const ShareSize<Costs> &size) const {
    const float last = float(most);
    if (parts <= Costs::kAtOnce)
      return last;
    const float twice = large >> 16 > Costs::kAtOnce        ? 1.8f
                        : (large & 0xffff) > Costs::kAtOnce ? 1.4f
                                                            : 0.0f;
    const float even = float(tiles) * (1.0f / Costs::kAtOnce) + 0.25f * last;
    return fmaxf(fmaxf(last, even), twice * float(size.tiles));
  }
};

/// Shares the blocks of the launch among `groups` groups of rows, of which
/// `tiles_of` says how many tiles of the stream they have: in
/// parts of about the same length, chosen so that the last block is done
/// soonest where a multiprocessor that is done takes the next one, and the
/// longest first. Parts of a group are beside each other. `share`: in how many
/// parts the block's group is, which one it is, and the block's part; no parts
/// where nothing is left for the block. Follows from lengths alone. All groups
/// have as many blocks where there is one length (`streams`), or more than
/// `kMostGroups` of them. All threads call it, and see the share behind a
/// barrier of the block; `scratch`: shared memory, 16 bytes a group and 32 a
/// thread.
template <typename Costs, int kMostGroups, int kThreads, typename TilesOf>
REFOLD_DEVICE void share_blocks(const Shared<int32_t> &share, uint32_t scratch,
                                int64_t groups, int64_t streams,
                                TilesOf tiles_of) {
  constexpr int kWarps = kThreads / 32;
  static_assert(kMostGroups <= 512);
  const int all_blocks = int(blocks()), own = int(block());
  if (groups > kMostGroups || streams <= 1) {
    const int64_t all = smaller(all_blocks, larger(Costs::kAtOnce, groups));
    const int parts = int(block_quotient(all, groups));
    if (thread() == 0) {
      share.store(0, own < groups * parts ? parts : 0);
      share.store(1, own / parts);
      share.store(2, own % parts);
    }
    return;
  }
  const int count = int(groups);
  const int lane = thread_again() % 32, warp = thread_again() / 32;
  const auto take = [&](int group) {
    uint32_t words[4];
    load_shared(words, scratch + group * 16);
    return int(words[0]);
  };
  for (int group = thread_again(); group < count; group += kThreads) {
    const uint32_t words[4] = {uint32_t(tiles_of(int64_t(group)))};
    store_shared(scratch + group * 16, words);
  }
  block_barrier();

  int longest = 0, total, before = 0;
  for (int group = lane; group < count; group += 32) {
    const int tiles = take(group);
    longest = tiles > longest ? tiles : longest;
    before += tiles;
  }
  longest = most_of_lanes(longest);
  add_lanes(before, total, before);
  // Streams about as long as each other, more than half as many as blocks.
  if (count <= Costs::kAtOnce && 2 * count > Costs::kAtOnce &&
      8.0f * float(total) >= 7.0f * float(longest) * float(count)) {
    if (thread() == 0) {
      share.store(0, own < count);
      share.store(1, own);
      share.store(2, 0);
    }
    return;
  }

  // 1. A lane tries a size, on some of the groups; then on all of them.
  const uint32_t tries = scratch + kMostGroups * 16;
  const ShareSize<Costs> tried(lane, longest, total);
  SharedWork work;
  for (int group = warp; group < count; group += kWarps)
    work.add(take(group), tried);
  const uint32_t found[4] = {uint32_t(work.parts), uint32_t(work.tiles),
                             uint32_t(work.most), uint32_t(work.large)};
  store_shared(tries + thread_again() * 16, found);
  block_barrier();
  work = SharedWork();
  REFOLD_UNROLL
  for (int other = 0; other < kWarps; ++other) {
    uint32_t words[4];
    load_shared(words, tries + (other * 32 + lane) * 16);
    work.parts += int(words[0]);
    work.tiles += int(words[1]);
    work.most = int(words[2]) > work.most ? int(words[2]) : work.most;
    work.large += int(words[3]);
  }
  // Of sizes that no part comes near, the next smaller one is the same.
  const bool is_size =
      lane == 0 || lane == tried.kWhole || 10 * work.most > 8 * tried.tiles;
  const int end = is_size && work.parts <= all_blocks
                      ? int(bits_of(work.end(tried)) & ~uint32_t(31)) + lane
                      : 0x7fffffff;
  const int best = -most_of_lanes(-end) & 31;
  const ShareSize<Costs> size(best, longest, total);
  const float levels =
      31.0f * reciprocal_fast(shuffle_from(float(work.most), best));

  // 2. How many parts are at least as long as each level, a lane each.
  const uint32_t counts = tries + kThreads * 16;
  const auto level_of = [&](const StreamParts &cut) {
    return int(float(cut.tiles) * levels);
  };
  int parts = 0;
  for (int group = warp; group < count; group += kWarps) {
    const StreamParts cut(take(group), size);
    parts += level_of(cut) >= lane ? cut.count : 0;
  }
  const uint32_t counted[4] = {uint32_t(parts)};
  store_shared(counts + thread_again() * 16, counted);
  block_barrier();
  if (warp != 0)
    return;

  // 3. The block's level, and its place there.
  parts = 0;
  REFOLD_UNROLL
  for (int other = 0; other < kWarps; ++other) {
    uint32_t words[4];
    load_shared(words, counts + (other * 32 + lane) * 16);
    parts += int(words[0]);
  }
  int lanes, all;
  add_lanes(lanes, all, parts > own ? 1 : 0);
  const int level = all - 1;
  if (level < 0) {
    if (lane == 0)
      share.store(0, 0);
    return;
  }
  const int longer =
      int(shuffle_from(float(parts), level < 31 ? level + 1 : 31));
  int here = 0;
  for (int group = lane; group < count; group += 32) {
    const StreamParts cut(take(group), size);
    here += level_of(cut) == level ? cut.count : 0;
  }
  add_lanes(before, all, here);
  before += level < 31 ? longer : 0;
  for (int group = lane; group < count; group += 32) {
    const StreamParts cut(take(group), size);
    if (level_of(cut) != level)
      continue;
    if (before <= own && own < before + cut.count) {
      share.store(0, cut.count);
      share.store(1, group);
      share.store(2, own - before);
    }
    before += cut.count;
  }
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_SHARES_H
