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

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H
