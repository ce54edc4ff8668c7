// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that blocks of a launch share, for the host. What a block has left is
// always there: whether the device would show it is told by fences, barriers
// and tickets alone.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_PARTS_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_PARTS_H

namespace refold::emulator {

inline void checkLeft(const void *address, int64_t bytes) {
  const char *at = static_cast<const char *>(address);
  checkFollowed();
  if (uintptr_t(at) % bytes)
    report("memory of the launch is accessed misaligned, " +
           std::to_string(bytes) + " bytes at once");
  for (const Range &range : machine.ranges)
    if (range.isLeft && at >= range.base &&
        at + bytes <= range.base + range.bytes)
      return;
  report("is outside the memory that blocks of the launch share");
}

/// A value of 16 bytes at most is looked for where it begins.
inline void leaveValue(const void *address, int64_t bytes) {
  checkLeft(address, bytes);
  const char *at = static_cast<const char *>(address);
  for (auto near = machine.left.lower_bound(at - 15);
       near != machine.left.end() && near->first < at + bytes; ++near) {
    const LeftValue &other = near->second;
    if (near->first + other.bytes <= at)
      continue;
    if (other.block != machine.block || near->first != at ||
        other.bytes != bytes || !comesAfter(other.write))
      report("race: leaves what block " + std::to_string(other.block) +
             " has left");
  }
  machine.left[at] = {machine.block, bytes, now(), ++machine.time};
}

/// Whether a thread that has left something did so before a fence, of which it
/// or another thread of its block knew.
inline bool isFenced(const LeftValue &left, const Publication &by) {
  if (left.time > by.fenceTime)
    return false;
  return left.write.thread == by.fence.thread ||
         left.write.blockEpoch < by.fence.blockEpoch ||
         (left.write.thread / 32 == by.fence.thread / 32 &&
          left.write.warpEpoch < by.fence.warpEpoch);
}

inline void takeValue(const void *address, int64_t bytes) {
  checkLeft(address, bytes);
  auto found = machine.left.find(static_cast<const char *>(address));
  if (found == machine.left.end() || found->second.bytes != bytes)
    report("takes what no block has left");
  const LeftValue &left = found->second;
  if (left.block == machine.block) {
    if (!comesAfter(left.write))
      report("race: takes what thread " + std::to_string(left.write.thread) +
             " leaves");
    return;
  }
  static const char *const kMissing[] = {
      "without a fence and a ticket behind it",
      "without having taken its ticket", "without a fence behind the ticket"};
  int missing = 0;
  for (const Publication &by : machine.published[left.block]) {
    if (!isFenced(left, by))
      continue;
    missing = std::max(missing, 1);
    for (const Sight &sight : machine.sights) {
      if (sight.ticket != by.ticket || sight.time < by.time)
        continue;
      if (sight.fence.thread >= 0 && comesAfter(sight.fence))
        return;
      missing = 2;
    }
  }
  report("takes what block " + std::to_string(left.block) + " has left " +
         kMissing[missing]);
}

/// The thread has changed the ticket, and seen what it was.
inline void touchTicket(const uint32_t *ticket) {
  checkLeft(ticket, 4);
  const Fiber &own = current();
  const uint64_t time = ++machine.time;
  if (own.fence.thread >= 0)
    machine.published[machine.block].push_back(
        {ticket, time, own.fence, own.fenceTime});
  machine.sights.push_back({ticket, time, machine.current, Access()});
  ++machine.progress;
}

} // namespace refold::emulator

namespace refold {

template <int kBytes> void leave_words(void *to, const uint32_t *from) {
  emulator::leaveValue(to, kBytes);
  std::memcpy(to, from, kBytes);
}
template <int kBytes> void take_words(uint32_t *to, const void *from) {
  emulator::takeValue(from, kBytes);
  to[0] = 0;
  std::memcpy(to, from, kBytes);
}
inline void take_words_if(uint32_t (&to)[4], const void *from, bool is_there) {
  to[0] = to[1] = to[2] = to[3] = 0;
  if (is_there)
    take_words<16>(to, from);
}

inline void fence_blocks() {
  using namespace emulator;
  for (Sight &sight : machine.sights)
    if (sight.thread == machine.current && sight.fence.thread < 0)
      sight.fence = now();
  current().fence = now();
  current().fenceTime = ++machine.time;
}

inline uint32_t add_to_ticket(uint32_t *ticket, uint32_t x) {
  emulator::touchTicket(ticket);
  const uint32_t before = *ticket;
  *ticket = before + x;
  return before;
}
inline uint32_t take_ticket(uint32_t *ticket, uint32_t count) {
  const uint32_t before = add_to_ticket(ticket, 1);
  if (before + 1 >= count)
    *ticket = 0;
  return before;
}
inline uint32_t add_unless(uint32_t *ticket, uint32_t x, uint32_t mask,
                           uint32_t value) {
  emulator::touchTicket(ticket);
  *ticket += (*ticket & mask) != value ? x : 0;
  return *ticket;
}
inline void clear_ticket(uint32_t *ticket) {
  emulator::touchTicket(ticket);
  *ticket = 0;
}
/// Other blocks run while one waits, unless it is to wait in vain.
inline uint32_t wait_for_bits(const uint32_t *ticket, uint32_t mask,
                              uint32_t value) {
  using namespace emulator;
  checkLeft(ticket, 4);
  Fiber &own = current();
  const bool isRandom = machine.patience == 1;
  // Of some tickets all give up late, if at all: those sit apart by pairs.
  const bool waits = isRandom ? drawRandom() % 2 || uintptr_t(ticket) / 8 % 2
                              : machine.patience > 0;
  if ((*ticket & mask) != value && waits) {
    own.awaited = ticket;
    own.wantedBits = mask;
    own.wanted = value;
    while (current().awaited)
      yield("a ticket");
  }
  // The last look may have been just before.
  if ((*ticket & mask) != value || (isRandom && drawRandom() % 2))
    return 0;
  machine.sights.push_back({ticket, ++machine.time, machine.current, now()});
  return *ticket;
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_PARTS_H
