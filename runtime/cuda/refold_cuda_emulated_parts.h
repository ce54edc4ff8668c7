// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Memory that blocks of a launch share, for the host. Blocks run one after the
// other, so that what one has left is always there: whether the device would
// show it is told by fences, barriers and tickets alone.
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
  machine.left[at] = {machine.block, bytes, now(), Access(), nullptr};
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
  std::string what =
      "takes what block " + std::to_string(left.block) + " has left ";
  if (!left.ticket)
    report(what + "without a fence and a ticket behind it");
  const TakenTicket &taken = machine.tickets[left.ticket];
  if (taken.block != machine.block)
    report(what + "without having taken its ticket");
  if (taken.fence.thread < 0 || !comesAfter(taken.fence))
    report(what + "without a fence behind the ticket");
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

inline void fence_blocks() {
  using namespace emulator;
  for (auto &[at, left] : machine.left)
    if (left.block == machine.block && left.fence.thread < 0 &&
        comesAfter(left.write))
      left.fence = now();
  for (auto &[at, taken] : machine.tickets)
    if (taken.block == machine.block && taken.fence.thread < 0 &&
        comesAfter(taken.take))
      taken.fence = now();
}

inline uint32_t take_ticket(uint32_t *ticket, uint32_t count) {
  using namespace emulator;
  checkLeft(ticket, 4);
  for (auto &[at, left] : machine.left)
    if (left.block == machine.block && !left.ticket && left.fence.thread >= 0 &&
        comesAfter(left.fence))
      left.ticket = ticket;
  machine.tickets[ticket] = {machine.block, now(), Access()};
  const uint32_t before = *ticket;
  *ticket = before + 1 >= count ? 0 : before + 1;
  return before;
}
inline uint32_t add_to_ticket(uint32_t *ticket, uint32_t x) {
  const uint32_t before = take_ticket(ticket, ~uint32_t(0));
  *ticket = before + x;
  return before;
}
/// Blocks run one after the other: nobody comes while one waits.
inline bool wait_for_ticket(const uint32_t *ticket, uint32_t value) {
  emulator::checkLeft(ticket, 4);
  return *ticket == value;
}

} // namespace refold

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_PARTS_H
