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
#include <optional>
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

/// A kernel may wake a thread on the CPU of the one that wakes it, though
/// others are idle, and leave it there: both share a CPU for a whole region,
/// and two threads take the time of one. The calling thread moves to another
/// CPU of those that it may run on. Zen 4, a virtual machine of two CPUs whose
/// Linux packs threads, a run every 15 ms in turns with the one before, ms
/// (middle, nine of ten): softmax 128 x 131072 5.9 (7.0), so 4.1 (5.4), one
/// thread 6.5; LayerNorm 2048 x 1024 0.57 (0.98), so 0.54 (0.70); 256 x 1024
/// 0.21 (0.34), so 0.20 (0.26).
static void leaveCpu(int cpu) {
  cpu_set_t allowed;
  if (cpu < 0 || cpu >= CPU_SETSIZE ||
      ::sched_getaffinity(0, sizeof(allowed), &allowed) != 0)
    return;
  cpu_set_t others = allowed;
  CPU_CLR(cpu, &others);
  if (CPU_COUNT(&others) > 0 &&
      ::sched_setaffinity(0, sizeof(others), &others) == 0)
    ::sched_setaffinity(0, sizeof(allowed), &allowed);
}

namespace {
/// Generation, seats that are free, chunks that were claimed from the front,
/// and those that nobody has claimed.
struct Word {
  static constexpr unsigned kChunkBits = 12, kSeatBits = 10;
  static constexpr unsigned kGenerationBits = 64 - kSeatBits - 2 * kChunkBits;
  static_assert(ThreadPool::kMostChunks < 1u << kChunkBits);
  static_assert(ThreadPool::kMostThreads <= 1u << kSeatBits);

  unsigned generation = 0, seats = 0, front = 0, chunks = 0;

  static Word of(uint64_t bits) {
    auto take = [&](unsigned count) {
      auto field = unsigned(bits & ((uint64_t(1) << count) - 1));
      bits >>= count;
      return field;
    };
    Word word;
    word.chunks = take(kChunkBits);
    word.front = take(kChunkBits);
    word.seats = take(kSeatBits);
    word.generation = take(kGenerationBits);
    return word;
  }
  uint64_t bits() const {
    uint64_t high = uint64_t(generation) << kSeatBits | seats;
    return (high << kChunkBits | front) << kChunkBits | chunks;
  }
};

/// Whether a thread takes chunks of the second half, the others of the first
/// one: a region finds in the cache of a core what the one before has left
/// there, whose chunks were in the same order.
bool isFromBack(unsigned thread) { return thread % 2; }

/// Claimed from the last one down, the second half runs from its first chunk
/// up: what a chunk asks for ahead is what the next one reads.
unsigned inOrder(unsigned claimed, unsigned chunks) {
  unsigned half = (chunks + 1) / 2;
  return claimed < half ? claimed : half + (chunks - 1 - claimed);
}
} // namespace

struct alignas(128) ThreadPool::Slot {
  std::atomic<uint64_t> word{0};
  std::atomic<bool> isTaken{false};
  // Of the region. Only who has claimed one of its chunks may read them.
  llvm::function_ref<void(unsigned, unsigned)> body;
  unsigned chunks = 0;
  alignas(64) std::atomic<unsigned> unfinished{0};

  struct Claim {
    unsigned generation, thread, chunk;
  };

  /// A chunk for the thread whose number `threadOf` finds in the word.
  std::optional<Claim>
  claim(llvm::function_ref<std::optional<unsigned>(Word)> threadOf,
        bool takesSeat) {
    uint64_t bits = word.load(std::memory_order_acquire);
    for (;;) {
      Word found = Word::of(bits);
      std::optional<unsigned> thread;
      if (!found.chunks || !(thread = threadOf(found)))
        return std::nullopt;
      Word next = found;
      --next.chunks;
      next.front += !isFromBack(*thread);
      next.seats -= takesSeat;
      if (word.compare_exchange_weak(bits, next.bits(),
                                     std::memory_order_acq_rel,
                                     std::memory_order_acquire)) {
        unsigned chunk = found.front;
        if (isFromBack(*thread))
          chunk += next.chunks;
        return Claim{found.generation, *thread, chunk};
      }
    }
  }
  /// Seats are numbered from the last one down.
  std::optional<Claim> claimWithSeat() {
    return claim(
        [](Word found) {
          return found.seats ? std::optional(found.seats) : std::nullopt;
        },
        true);
  }
  std::optional<Claim> claimOf(unsigned generation, unsigned thread) {
    return claim(
        [=](Word found) {
          return found.generation == generation ? std::optional(thread)
                                                : std::nullopt;
        },
        false);
  }
  void call(const Claim &claimed) {
    body(claimed.thread, inOrder(claimed.chunk, chunks));
    unfinished.fetch_sub(1, std::memory_order_release);
  }
};

struct ThreadPool::Shared {
  static constexpr unsigned kSlots = 64;
  Slot slots[kSlots];
  std::atomic<unsigned> slotsUsed{0};           ///< those that ever were taken
  alignas(64) std::atomic<uint32_t> regions{0}; ///< begun so far
  std::atomic<unsigned> sleeping{0}, looking{0};
  std::atomic<int> wakerCpu{-1}; ///< where the last one ran that woke sleepers
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
    for (auto claimed = slot.claimWithSeat(); claimed;
         claimed = slot.claimOf(claimed->generation, claimed->thread)) {
      hasHelped = true;
      slot.call(*claimed);
    }
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
  if (int cpu = ::sched_getcpu();
      cpu == shared.wakerCpu.load(std::memory_order_relaxed))
    leaveCpu(cpu);
}

void ThreadPool::wake(unsigned wanted) {
  shared.regions.fetch_add(1);
  unsigned looking = shared.looking.load();
  if (looking < wanted && shared.sleeping.load()) {
    shared.wakerCpu.store(::sched_getcpu(), std::memory_order_relaxed);
    ::syscall(SYS_futex, reinterpret_cast<uint32_t *>(&shared.regions),
              FUTEX_WAKE_PRIVATE, wanted - looking, nullptr, nullptr, 0);
  }
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
  slot.body = body;
  slot.chunks = chunks;
  slot.unfinished.store(chunks, std::memory_order_relaxed);
  Word word = Word::of(slot.word.load(std::memory_order_relaxed));
  ++word.generation;
  word.seats = threads - 1;
  word.front = 0;
  word.chunks = chunks;
  uint64_t bits = word.bits(); // the generation may begin again
  unsigned generation = Word::of(bits).generation;
  slot.word.store(bits, std::memory_order_release);
  wake(std::min(threads, chunks) - 1);
  while (auto claimed = slot.claimOf(generation, /*thread=*/0))
    slot.call(*claimed);
  // What others have begun. The core may be needed to end it.
  for (unsigned looks = 0; slot.unfinished.load(std::memory_order_acquire);
       ++looks) {
    pauseBriefly();
    if (looks % kPausesPerLook == kPausesPerLook - 1)
      ::sched_yield();
  }
}
