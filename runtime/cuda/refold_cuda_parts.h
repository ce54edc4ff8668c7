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

/// Blocks that share a row and have their parts of it again when all have come.
/// Others may not have begun: who waits too long goes, and leaves its part to
/// those that come later, so that nobody waits for a block that does not run.
/// Tickets are 0 before and after a launch. All threads of the block call
/// everything, in this order.
template <bool kIsPart> class RowTickets {
public:
  /// Of `rows` rows that have as many parts each: two tickets a row, then one a
  /// part.
  REFOLD_DEVICE RowTickets(uint32_t *tickets, int64_t row, int64_t rows,
                           int64_t part, int64_t parts)
      : came(tickets + 2 * row), taken(tickets + 2 * rows + row * parts),
        own(int(part)), all(int(parts)) {}

  /// Whether all have come; a block for which that took too long has only to
  /// end. What the first thread of each had left is then seen by all threads;
  /// what others had, where the block had a barrier before.
  REFOLD_DEVICE bool meet() {
    REFOLD_SHARED(int32_t, shared_state, 1);
    if (thread() == 0) {
      fence_blocks();
      add_to_ticket(came, 1);
      uint32_t seen = wait_for_bits(came, kCount, uint32_t(all));
      if (seen == 0) {
        seen = add_unless(came, kOther, kCount, uint32_t(all));
        fence_blocks();
      }
      int32_t now = kIsGone;
      if (count_of(seen) == all) {
        now = own == 0 ? kWrites : 0;
        if (seen >= kOther) // who comes first, since the first part may be gone
          now =
              kLooks | (add_to_ticket(came + 1, kOther) < kOther ? kWrites : 0);
      }
      shared_state.store(0, now);
    }
    block_barrier();
    state = shared_state.load(0);
    // What comes of it is asked for at the end.
    if (thread() == 0 && !looks())
      departed = add_to_ticket(came + 1, 1) + 1;
    return state != kIsGone;
  }
  /// Of one block of the row that is not gone.
  REFOLD_DEVICE bool writes() const { return (state & kWrites) != 0; }

  /// The block's own part, then those that others have left to it; their number
  /// when there is none left.
  REFOLD_DEVICE int64_t next() {
    if (!looks())
      return looked++ == 0 ? own : all;
    REFOLD_SHARED(int32_t, shared_part, 1);
    block_barrier();
    if (thread() < 32) {
      int found = all;
      while (found == all && looked < all) {
        // The first of 32 that nobody has: an older one has been taken.
        const int lane = thread_again() % 32,
                  place = (own + looked + lane) % all;
        const bool is_free =
            looked + lane < all && add_to_ticket(taken + place, 0) == 0;
        int first = is_free ? lane : 32;
        REFOLD_UNROLL
        for (int mask = 1; mask < 32; mask *= 2) {
          const int other = shuffle_xor(first, mask);
          first = other < first ? other : first;
        }
        const bool is_mine =
            first == lane && add_to_ticket(taken + place, 1) == 0;
        if (any_lane(is_mine))
          found = (own + looked + first) % all;
        looked += first < 32 ? first + 1 : 32;
      }
      if (thread() == 0)
        shared_part.store(0, found);
    }
    block_barrier();
    return shared_part.load(0);
  }

  /// The last block that comes here clears the tickets.
  REFOLD_DEVICE void end() {
    if (thread() != 0)
      return;
    if (looks())
      departed = add_to_ticket(came + 1, 1) + 1;
    if (count_of(departed) != all)
      return;
    clear_ticket(came);
    clear_ticket(came + 1);
    for (int part = 0; departed >= kOther && part < all; ++part)
      clear_ticket(taken + part);
  }

private:
  // A ticket counts two things: of `came`, who has come, and who of those is
  // gone; behind it, who needs no ticket any more, and who looks for parts.
  static constexpr uint32_t kOther = 1u << 16, kCount = kOther - 1;
  static constexpr int32_t kIsGone = 1, kLooks = 2, kWrites = 4;
  REFOLD_DEVICE static int count_of(uint32_t ticket) {
    return int(ticket & kCount);
  }
  /// Some are gone: all blocks of the row agree on that.
  REFOLD_DEVICE bool looks() const { return (state & kLooks) != 0; }

  uint32_t *const came, *const taken;
  const int own, all;
  int state = 0, looked = 0;
  uint32_t departed = 0;
};

/// Of a block that has a row to itself.
template <> class RowTickets<false> {
public:
  REFOLD_DEVICE RowTickets(uint32_t *, int64_t, int64_t, int64_t, int64_t) {}
  REFOLD_DEVICE bool writes() const { return true; }
};

/// In how many slices rows are merged that `parts` blocks share: `kMost` at
/// most, which is 32 at most.
template <int kMost = 16> REFOLD_DEVICE int slices_of(int64_t parts) {
  int slices = 1;
  while (slices < kMost && slices * 2 <= parts)
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
      uint32_t seen;
      bool is_own = false;
      if (thread() == part) { // looks at once, without what it was before
        add_to_ticket(ticket, 1);
        seen = wait_for_bits(ticket, ~0u, all);
        is_own = seen == all;
        if (!is_own)
          seen = add_to_ticket(ticket, kIsGone) + kIsGone;
      } else {
        seen = add_to_ticket(ticket, 1) + 1;
      }
      if (is_own || seen == all + kIsGone) {
        if (!is_own) // who has looked has seen what was left, too
          fence_blocks();
        add_to_ticket(ticket, 0u - seen);
        mine = 1 << thread();
      }
    }
    REFOLD_UNROLL
    for (int mask = 1; mask < 32; mask *= 2)
      mine |= shuffle_xor(mine, mask);
    if (thread() == 0)
      shared_slices.store(0, mine);
  }
  block_barrier();
  return uint32_t(shared_slices.load(0));
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_PARTS_H
