// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A region is one word: how many chunks and seats are left of which generation.
// A thread claims by replacing the word, so that one that comes late, when the
// region is over or the next one has begun, fails and has touched nothing.
#include "refold/Runtime/ThreadPool.h"

#include <algorithm>
#include <chrono>
#include <climits>
#include <linux/futex.h>
#include <mutex>
#include <sched.h>
#include <sys/syscall.h>
#include <thread>
#include <unistd.h>

using namespace refold;

using Clock = std::chrono::steady_clock;

/// A sleeping thread takes 25 us or more to wake, as long as a small kernel
/// runs; between the kernels of a program, and between two runs of it, a thread
/// that looks for work is there at once.
static constexpr auto kLooksFor = std::chrono::milliseconds(4);
/// Who yields and is away for so long shares the core with somebody.
static constexpr auto kIsAway = std::chrono::microseconds(100);
static constexpr unsigned kPausesPerLook = 32;

static void pauseBriefly() { __builtin_ia32_pause(); }

namespace {
/// Generation, seats that are free, chunks that nobody has claimed.
struct Word {
  uint32_t generation = 0;
  uint16_t seats = 0, chunks = 0;

  static Word of(uint64_t bits) {
    return {uint32_t(bits >> 32), uint16_t(bits >> 16), uint16_t(bits)};
  }
  uint64_t bits() const {
    return uint64_t(generation) << 32 | uint64_t(seats) << 16 | chunks;
  }
};
} // namespace

struct alignas(128) ThreadPool::Slot {
  std::atomic<uint64_t> word{0};
  std::atomic<bool> isTaken{false};
  // Of the region. Only who has claimed one of its chunks may read them.
  unsigned threads = 0, chunks = 0;
  llvm::function_ref<void(unsigned, unsigned)> body;
  alignas(64) std::atomic<unsigned> unfinished{0};

  /// What was there before a successful claim; no chunks: nothing is claimed.
  Word claim(llvm::function_ref<bool(Word)> isWanted, bool takesSeat) {
    uint64_t bits = word.load(std::memory_order_acquire);
    for (;;) {
      Word found = Word::of(bits);
      if (!found.chunks || !isWanted(found))
        return {};
      Word next = found;
      --next.chunks;
      next.seats -= takesSeat;
      if (word.compare_exchange_weak(bits, next.bits(),
                                     std::memory_order_acq_rel,
                                     std::memory_order_acquire))
        return found;
    }
  }
  Word claimWithSeat() {
    return claim([](Word found) { return found.seats > 0; }, true);
  }
  Word claimOf(uint32_t generation) {
    return claim([=](Word found) { return found.generation == generation; },
                 false);
  }
  void call(unsigned thread, Word claimed) {
    body(thread, chunks - claimed.chunks);
    unfinished.fetch_sub(1, std::memory_order_release);
  }
};

struct ThreadPool::Shared {
  static constexpr unsigned kSlots = 64;
  Slot slots[kSlots];
  std::atomic<unsigned> slotsUsed{0};           ///< those that ever were taken
  alignas(64) std::atomic<uint32_t> regions{0}; ///< begun so far
  std::atomic<unsigned> sleeping{0}, looking{0};
  std::mutex mutex;
  std::atomic<unsigned> workers{0};
};

ThreadPool::ThreadPool() : shared(*new Shared) {}

ThreadPool &ThreadPool::instance() {
  // Its threads may run until the process ends.
  static ThreadPool *pool = new ThreadPool;
  return *pool;
}

unsigned ThreadPool::mostThreads() {
  static const unsigned most =
      std::clamp(std::thread::hardware_concurrency(), 2u, kMostThreads);
  return most;
}

ThreadPool::Slot *ThreadPool::takeSlot() {
  for (unsigned i = 0; i < Shared::kSlots; ++i) {
    Slot &slot = shared.slots[i];
    if (slot.isTaken.exchange(true, std::memory_order_acquire))
      continue;
    unsigned used = shared.slotsUsed.load();
    while (used <= i && !shared.slotsUsed.compare_exchange_weak(used, i + 1))
      ;
    return &slot;
  }
  return nullptr;
}

void ThreadPool::giveBack(Slot *slot) {
  slot->isTaken.store(false, std::memory_order_release);
}

void ThreadPool::start(unsigned workers) {
  if (shared.workers.load(std::memory_order_acquire) >= workers)
    return;
  std::lock_guard<std::mutex> lock(shared.mutex);
  for (unsigned i = shared.workers; i < workers; ++i) {
    try {
      std::thread([this] { work(); }).detach();
    } catch (const std::system_error &) {
      return; // whoever calls does the work alone
    }
    shared.workers.store(i + 1, std::memory_order_release);
  }
}

bool ThreadPool::helpAnyone() {
  bool hasHelped = false;
  unsigned used = shared.slotsUsed.load(std::memory_order_acquire);
  for (unsigned i = 0; i < used; ++i) {
    Slot &slot = shared.slots[i];
    Word claimed = slot.claimWithSeat();
    if (!claimed.chunks)
      continue;
    hasHelped = true;
    unsigned thread = slot.threads - claimed.seats;
    do
      slot.call(thread, claimed);
    while ((claimed = slot.claimOf(claimed.generation)).chunks);
  }
  return hasHelped;
}

void ThreadPool::waitForRegion(uint32_t seen) {
  auto isOver = [&] {
    return shared.regions.load(std::memory_order_acquire) != seen;
  };
  shared.looking.fetch_add(1);
  auto now = Clock::now(), end = now + kLooksFor;
  bool isAlone = true;
  while (!isOver() && isAlone && now < end) {
    for (unsigned i = 0; i < kPausesPerLook && !isOver(); ++i)
      pauseBriefly();
    auto before = Clock::now();
    ::sched_yield();
    now = Clock::now();
    isAlone = now - before < kIsAway;
  }
  shared.looking.fetch_sub(1);
  if (isOver())
    return;
  // Who begins a region counts it, then looks for sleepers; who falls asleep
  // says so, then compares the count (the kernel does). One sees the other.
  shared.sleeping.fetch_add(1);
  ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&shared.regions),
            FUTEX_WAIT_PRIVATE, seen, nullptr, nullptr, 0);
  shared.sleeping.fetch_sub(1);
}

void ThreadPool::wake(unsigned wanted) {
  shared.regions.fetch_add(1);
  unsigned looking = shared.looking.load();
  if (looking < wanted && shared.sleeping.load())
    ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&shared.regions),
              FUTEX_WAKE_PRIVATE, wanted - looking, nullptr, nullptr, 0);
}

void ThreadPool::work() {
  for (;;) {
    uint32_t seen = shared.regions.load(std::memory_order_acquire);
    if (!helpAnyone())
      waitForRegion(seen);
  }
}

void ThreadPool::run(Slot &slot, unsigned threads, unsigned chunks,
                     llvm::function_ref<void(unsigned, unsigned)> body) {
  start(threads - 1);
  slot.threads = threads;
  slot.chunks = chunks;
  slot.body = body;
  slot.unfinished.store(chunks, std::memory_order_relaxed);
  Word word = Word::of(slot.word.load(std::memory_order_relaxed));
  uint32_t generation = ++word.generation;
  word.seats = uint16_t(threads - 1);
  word.chunks = uint16_t(chunks);
  slot.word.store(word.bits(), std::memory_order_release);
  wake(std::min(threads, chunks) - 1);
  for (Word claimed; (claimed = slot.claimOf(generation)).chunks;)
    slot.call(0, claimed);
  // What others have begun. The core may be needed to end it.
  for (unsigned looks = 0; slot.unfinished.load(std::memory_order_acquire);
       ++looks) {
    pauseBriefly();
    if (looks % kPausesPerLook == kPausesPerLook - 1)
      ::sched_yield();
  }
}
