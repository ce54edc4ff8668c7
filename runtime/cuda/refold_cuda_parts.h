// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Blocks that share a row, the same on device and host: each leaves what it
// knows of its part, and the last to come takes all of it.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H

namespace refold {

/// A value for another block, which sees it behind `is_last_block`.
template <typename T> REFOLD_DEVICE void leave(T *to, T value) {
  uint32_t words[2] = {};
  const uint64_t bits = Stored<T>::to(value);
  words[0] = uint32_t(bits);
  words[1] = uint32_t(bits >> 32);
  leave_words<int(sizeof(T))>(to, words);
}
REFOLD_DEVICE void leave(bool *to, bool value) {
  leave(reinterpret_cast<int8_t *>(to), int8_t(value));
}
/// What a block has left.
template <typename T> REFOLD_DEVICE T take_left(const T *from) {
  uint32_t words[2] = {};
  take_words<int(sizeof(T))>(words, from);
  return Stored<T>::of(words[0], words[1]);
}
REFOLD_DEVICE bool take_left(const bool *from) {
  return take_left(reinterpret_cast<const int8_t *>(from)) != 0;
}

/// Whether all but this one of the `parts` blocks that count at `ticket` have
/// done so. What they left before is then seen by all threads of this one.
/// All threads of the block call it; the ticket is 0 before and after a launch.
REFOLD_DEVICE bool is_last_block(uint32_t *ticket, int64_t parts) {
  REFOLD_SHARED(int32_t, shared_last, 1);
  block_barrier();
  if (thread() == 0) {
    fence_blocks();
    const uint32_t before = take_ticket(ticket, uint32_t(parts));
    fence_blocks();
    shared_last.store(0, before + 1 == uint32_t(parts));
  }
  block_barrier();
  return shared_last.load(0) != 0;
}

/// In how many slices rows are merged that `parts` blocks share.
REFOLD_DEVICE int slices_of(int64_t parts) {
  int slices = 1;
  while (slices < 16 && slices * 2 <= parts)
    slices *= 2;
  return slices;
}
/// Which of `slices` slices this block merges, a bit each. The first blocks of
/// the `parts` that share rows have one each, and wait until all have left what
/// they have of it; one that waits too long, since others may not have begun,
/// leaves its slice to the last to come. What all left is then seen by all
/// threads of the block, which all call it; `slices` tickets are 0 before and
/// after a launch.
REFOLD_DEVICE uint32_t claim_slices(uint32_t *tickets, int64_t part,
                                    int64_t parts, int slices) {
  constexpr uint32_t kIsGone = 1u << 16;
  REFOLD_SHARED(int32_t, shared_slices, 1);
  block_barrier();
  if (thread() < 32) {
    int32_t mine = 0;
    if (thread() < slices) {
      uint32_t *const ticket = tickets + thread();
      const uint32_t all = uint32_t(parts);
      fence_blocks();
      uint32_t seen = add_to_ticket(ticket, 1) + 1;
      if (thread() == part)
        seen = wait_for_ticket(ticket, all)
                   ? all
                   : add_to_ticket(ticket, kIsGone) + kIsGone;
      if (seen == all + kIsGone || (seen == all && thread() == part)) {
        fence_blocks();
        add_to_ticket(ticket, 0u - seen);
        mine = 1 << thread();
      }
    }
    REFOLD_UNROLL
    for (int mask = 1; mask < 16; mask *= 2)
      mine |= shuffle_xor(mine, mask);
    if (thread() == 0)
      shared_slices.store(0, mine);
  }
  block_barrier();
  return uint32_t(shared_slices.load(0));
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H
