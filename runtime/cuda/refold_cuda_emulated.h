// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// refold_cuda.h for the host (x86-64): every thread of a block is a fiber,
// blocks run one after another, but for those that wait for a ticket. A
// schedule is adversarial where it may be: the order of blocks and threads,
// warps that run only when nothing else can, and whether waiting is in vain.
// Reported are: deadlocks, barriers that some threads never reach, shared
// memory that is read unwritten or in a race, accesses outside the arrays of
// the launch or misaligned, results that are written twice or not at all.
// Registers start poisoned where the text is compiled with
// -ftrivial-auto-var-init=pattern.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_H

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#define REFOLD_DEVICE inline
#define REFOLD_UNROLL
#define REFOLD_NO_UNROLL
// An entry is a template where only those are to be compiled that a launcher
// names: `&entry<>`.
#ifdef REFOLD_ENTRIES_WHERE_USED
#define REFOLD_ENTRY template <int kUsed = 0> void
#else
#define REFOLD_ENTRY extern "C" void
#endif
#define REFOLD_KERNEL(threads) REFOLD_ENTRY
#define REFOLD_UNIT_KERNEL(threads, blocks) REFOLD_ENTRY
#define REFOLD_SHARED(type, name, count)                                       \
  static const int name##_site = refold::emulator::newSite();                  \
  const refold::Shared<type> name {                                            \
    name##_site,                                                               \
        refold::emulator::sharedArray(name##_site, sizeof(type), count)        \
  }

#define REFOLD_SHARED_BYTES(name, count)                                       \
  const uint32_t name = refold::emulator::sharedBytes(count)
#define REFOLD_SHARED_WORDS(name, count)                                       \
  const uint32_t name = refold::emulator::sharedBytes(count, 4)

namespace refold::emulator {

/// How a launch is scheduled. Every mode has to give the same bits.
struct Mode {
  bool reversesBlocks = false, shufflesThreads = false, starvesWarps = false;
  uint64_t seed = 1;
};
inline constexpr Mode kModes[] = {{false, false, false, 1},
                                  {true, true, false, 2},
                                  {false, true, true, 3},
                                  {true, true, true, 4}};

/// An array that a kernel may read, or write where `isResult`. Of a dense
/// result every byte has to be written. `isLeft`: blocks leave there what
/// others take. `isConstant`: no launch writes it.
struct Range {
  char *base;
  int64_t bytes;
  bool isResult, isDense, isLeft = false, isConstant = false;
};

/// When an access was made, in barriers that its thread had passed, and in
/// turns and barriers of the cluster that it had come to.
struct Access {
  int thread = -1;
  uint32_t blockEpoch = 0, warpEpoch = 0, turn = 0, clusterArrivals = 0;
  int64_t block = -1;
};
struct SharedElement {
  Access write;
  std::vector<Access> reads; ///< since that write
  bool isUnderWay = false;   ///< a copy writes it that nobody has waited for
};
struct SharedMemory {
  size_t elementBytes = 0;
  std::vector<char> bytes;
  std::vector<SharedElement> elements;
};

/// What a block has left for others. Times are numbers of what blocks have
/// done, one after the other.
struct LeftValue {
  int64_t block = -1, bytes = 0;
  Access write;
  uint64_t time = 0;
};
/// A ticket that a thread has changed behind a fence of its own: whoever sees
/// the ticket later may take what came before the fence.
struct Publication {
  const void *ticket;
  uint64_t time;
  Access fence;
  uint64_t fenceTime;
};
/// A ticket that a thread has seen, and its first fence behind that.
struct Sight {
  const void *ticket;
  uint64_t time;
  int thread;
  Access fence;
};

/// 16 bytes, or 4, on their way to shared memory.
struct Copy {
  uint32_t to = 0, bytes = 16;
  uint64_t group = 0;
  char data[16];
};

struct Fiber {
  void *stackPointer = nullptr;
  char *stack = nullptr;
  bool isDone = true;
  const char *waitsFor = "";
  uint32_t blockEpoch = 0, warpEpoch = 0, turn = 0;
  uint32_t clusterArrivals = 0, clusterWaits = 0;
  std::vector<Copy> copies;
  uint64_t group = 0; ///< of the copies that begin now
  bool hasFollowed = false;
  Access fence; ///< between blocks, the last one
  uint64_t fenceTime = 0;
  const uint32_t *awaited = nullptr; ///< of others, and what it is to become
  uint32_t wantedBits = 0, wanted = 0;
  bool hasCome() const { return awaited && (*awaited & wantedBits) == wanted; }
  uint32_t exchanges = 0, exchangeEpoch = 0; ///< of a cluster, received so far
};
struct Warp {
  int arrived = 0;
  uint64_t generation = 0;
  const char *kind = "";
  void *slots[32];
};

/// What more there is beside threads: refold_cuda_emulated_wgmma.h.
struct Engine {
  virtual ~Engine() = default;
  virtual void start(int threads) = 0;
  virtual void beforeWrite(int chunk) = 0;
  /// All threads of the block are at a barrier.
  virtual void meet() = 0;
  /// A lane is at a barrier of its warp; all of them are.
  virtual void reachWarp() = 0;
  virtual void meetWarp() = 0;
  /// Whether a turn that the thread has waited for came after the access.
  virtual bool isPassed(const Access &before) = 0;
  /// What a thread has begun to copy, and waits for.
  virtual void landCopies(int thread) = 0;
  /// The same of groups before `end`, which gates are still to be told of.
  virtual void landGroups(int thread, uint64_t end) = 0;
  /// Whether it did something; it does if it can where nothing else goes on.
  virtual bool advance(bool isIdle) = 0;
  virtual std::string finish() = 0;
  /// What it has of a block, while another one runs.
  virtual std::shared_ptr<void> setAside() = 0;
  virtual void bringBack(const std::shared_ptr<void> &block) = 0;
};
inline Engine *engine = nullptr;

/// What a block of a cluster sends another one for a place of an array.
struct Letter {
  int site = 0, place = 0;
  std::string value;
};
struct Letters {
  uint32_t bytes = 0; ///< that were sent
  std::vector<Letter> underWay;
};

/// A block that runs, or waits for others.
struct Block {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  int current = -1, threads = 0, arrived = 0, live = 0;
  int64_t block = 0;
  uint64_t barriers = 0;
  std::map<int, SharedMemory> shared;
  SharedMemory bytes; ///< by offset
  std::vector<Sight> sights;
  std::shared_ptr<void> engine;
};

struct Machine : Block {
  int64_t blocks = 0;
  uint64_t progress = 0, random = 0, seed = 1, time = 0;
  void *scheduler = nullptr;
  int64_t launchBytes = 0;
  std::vector<Range> ranges;
  std::vector<std::vector<bool>> written;
  std::map<const char *, LeftValue> left;
  std::map<int64_t, std::vector<Publication>> published; ///< by block
  /// Threads that have come to a barrier of a cluster, by both numbers.
  std::map<std::pair<int64_t, uint32_t>, uint32_t> clusters;
  /// To a block, by the number of the exchange.
  std::map<std::pair<int64_t, uint32_t>, Letters> letters;
  std::vector<Block> waiting;
  std::vector<std::vector<Fiber>> stacks; ///< of blocks that are done
  int patience = 0; ///< who waits for a ticket: 0 gives up, 1 at random
  std::function<void()> body;
  std::string error;
  /// Launches before may not be done until a thread waits for them.
  bool isFollowing = false;
};
inline Machine machine;

inline uint64_t drawRandom() {
  uint64_t &x = machine.random;
  x ^= x << 13, x ^= x >> 7, x ^= x << 17;
  return x;
}

/// Unwinds the fiber that does what is not allowed.
[[noreturn]] inline void report(const std::string &what) {
  throw "block " + std::to_string(machine.block) + ", thread " +
      std::to_string(machine.current) + ": " + what;
}

extern "C" void refold_switch_fiber(void **save, void *load);
asm(R"(
.text
.weak refold_switch_fiber
refold_switch_fiber:
  pushq %rbp; pushq %rbx; pushq %r12; pushq %r13; pushq %r14; pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15; popq %r14; popq %r13; popq %r12; popq %rbx; popq %rbp
  ret
)");

inline Fiber &current() { return machine.fibers[machine.current]; }

inline void yield(const char *waitsFor) {
  current().waitsFor = waitsFor;
  refold_switch_fiber(&current().stackPointer, machine.scheduler);
  if (!machine.error.empty())
    throw machine.error;
}

inline void enterFiber() {
  try {
    machine.body();
    if (machine.arrived > 0)
      report("ends while other threads wait at a block barrier");
    if (!current().copies.empty())
      report("ends while its copies are under way");
  } catch (std::string &what) {
    if (machine.error.empty())
      machine.error = what;
  }
  current().isDone = true;
  --machine.live;
  ++machine.progress;
  void *unused;
  refold_switch_fiber(&unused, machine.scheduler);
  std::abort();
}

//===----------------------------------------------------------------------===//
// Shared memory
//===----------------------------------------------------------------------===//

inline int newSite() {
  static int sites = 0;
  return sites++;
}

/// Poisoned when a block first names it; one array for all its threads.
inline SharedMemory *sharedArray(int site, size_t elementBytes, int count) {
  SharedMemory &memory = machine.shared[site];
  if (memory.elements.empty()) {
    memory.elementBytes = elementBytes;
    memory.bytes.assign(elementBytes * count, char(0xff));
    memory.elements.resize(count);
  }
  return &memory;
}

/// Whether an access of the current thread comes after `before` by a barrier or
/// a warp collective that both threads took part in, or by turns; of another
/// block, by a barrier of the cluster.
inline bool comesAfter(const Access &before) {
  if (before.clusterArrivals < current().clusterWaits)
    return true;
  if (before.block != machine.block)
    return false;
  if (before.thread == machine.current)
    return true;
  bool isSameWarp = before.thread / 32 == machine.current / 32;
  return before.blockEpoch < current().blockEpoch ||
         (isSameWarp && before.warpEpoch < current().warpEpoch) ||
         (engine && engine->isPassed(before));
}

inline SharedElement &sharedElement(SharedMemory &memory, int i) {
  if (i < 0 || size_t(i) >= memory.elements.size())
    report("shared memory is accessed at " + std::to_string(i) + " of " +
           std::to_string(memory.elements.size()));
  return memory.elements[i];
}

inline Access now() {
  return {machine.current, current().blockEpoch,      current().warpEpoch,
          current().turn,  current().clusterArrivals, machine.block};
}

inline char *readShared(SharedMemory &memory, int i) {
  SharedElement &element = sharedElement(memory, i);
  if (element.isUnderWay)
    report("reads shared memory that a copy is still writing");
  if (element.write.thread < 0)
    report("shared memory is read that nobody has written");
  if (!comesAfter(element.write))
    report("race: reads shared memory that thread " +
           std::to_string(element.write.thread) + " writes");
  for (Access &read : element.reads)
    if (read.thread == machine.current && read.block == machine.block) {
      read = now();
      return memory.bytes.data() + i * memory.elementBytes;
    }
  element.reads.push_back(now());
  return memory.bytes.data() + i * memory.elementBytes;
}

inline char *writeShared(SharedMemory &memory, int i) {
  SharedElement &element = sharedElement(memory, i);
  if (engine && &memory == &machine.bytes)
    engine->beforeWrite(int(i * memory.elementBytes / 16));
  if (element.isUnderWay)
    report("writes shared memory that a copy is still writing");
  if (element.write.thread >= 0 && !comesAfter(element.write))
    report("race: writes shared memory that thread " +
           std::to_string(element.write.thread) + " writes");
  for (const Access &read : element.reads)
    if (!comesAfter(read))
      report("race: writes shared memory that thread " +
             std::to_string(read.thread) + " reads");
  element.write = now();
  element.reads.clear();
  return memory.bytes.data() + i * memory.elementBytes;
}

//===----------------------------------------------------------------------===//
// Global memory
//===----------------------------------------------------------------------===//

/// Before anything that launches before read or write.
inline void checkFollowed() {
  if (machine.isFollowing && !machine.fibers[machine.current].hasFollowed)
    report("touches memory of launches before without follow_launch()");
}

inline void checkGlobal(const void *address, int64_t bytes, bool isWrite) {
  const char *at = static_cast<const char *>(address);
  if (uintptr_t(at) % bytes)
    report("global memory is accessed misaligned, " + std::to_string(bytes) +
           " bytes at once");
  for (size_t i = 0; i < machine.ranges.size(); ++i) {
    const Range &range = machine.ranges[i];
    if (at < range.base || at + bytes > range.base + range.bytes ||
        range.isResult != isWrite || range.isLeft)
      continue;
    if (!range.isConstant)
      checkFollowed();
    for (int64_t byte = 0; isWrite && byte < bytes; ++byte) {
      auto flag = machine.written[i][at - range.base + byte];
      if (flag)
        report("a result is written twice");
      flag = true;
    }
    return;
  }
  report(isWrite ? "writes outside every result of the launch"
                 : "reads outside every array of the launch");
}

inline std::string findUnwritten() {
  for (size_t i = 0; i < machine.ranges.size(); ++i) {
    if (!machine.ranges[i].isDense)
      continue;
    int64_t missing = 0;
    for (bool isWritten : machine.written[i])
      missing += !isWritten;
    if (missing)
      return std::to_string(missing) + " bytes of array " + std::to_string(i) +
             " were not written";
  }
  return "";
}

//===----------------------------------------------------------------------===//
// The scheduler
//===----------------------------------------------------------------------===//

inline void startFibers(int threads) {
  constexpr size_t kStackBytes = size_t(64) << 10;
  machine.threads = machine.live = threads;
  machine.arrived = 0;
  machine.warps.assign((threads + 31) / 32, Warp());
  machine.shared.clear();
  machine.bytes = SharedMemory();
  machine.sights.clear();
  if (machine.fibers.empty() && !machine.stacks.empty()) {
    machine.fibers = std::move(machine.stacks.back());
    machine.stacks.pop_back();
  }
  machine.fibers.resize(std::max<size_t>(machine.fibers.size(), threads));
  for (int i = 0; i < threads; ++i) {
    Fiber &fiber = machine.fibers[i];
    if (!fiber.stack)
      fiber.stack = static_cast<char *>(std::aligned_alloc(4096, kStackBytes));
    char *stack = fiber.stack;
    fiber = Fiber();
    fiber.stack = stack;
    fiber.isDone = false;
    void **top = reinterpret_cast<void **>(stack + kStackBytes);
    *--top = nullptr;
    *--top = reinterpret_cast<void *>(&enterFiber);
    for (int saved = 0; saved < 6; ++saved)
      *--top = nullptr;
    fiber.stackPointer = top;
  }
}

inline std::string describeDeadlock() {
  std::map<std::string, int> waiting;
  for (int i = 0; i < machine.threads; ++i)
    if (!machine.fibers[i].isDone)
      ++waiting[machine.fibers[i].waitsFor];
  std::string text = "block " + std::to_string(machine.block) + ": deadlock:";
  for (auto &[what, count] : waiting)
    text += " " + std::to_string(count) + " threads wait for " + what;
  return text;
}

/// Whether a thread of the block waits for a ticket.
inline bool isAwaiting(const Block &block) {
  for (int i = 0; i < block.threads; ++i)
    if (!block.fibers[i].isDone && block.fibers[i].awaited)
      return true;
  return false;
}

/// Until all threads are done, or the rest waits for a ticket: then false.
inline bool runBlock(const Mode &mode) {
  const int threads = machine.threads;
  std::vector<int> order(threads);
  for (int i = 0; i < threads; ++i)
    order[i] = i;
  uint64_t starved = 0;
  bool isForced = false;
  for (int round = 0; machine.live > 0 && machine.error.empty(); ++round) {
    if (mode.shufflesThreads)
      for (int i = threads - 1; i > 0; --i)
        std::swap(order[i], order[drawRandom() % (i + 1)]);
    if (mode.starvesWarps && round % 5 == 0)
      starved = drawRandom() & drawRandom();
    uint64_t before = machine.progress;
    bool isHeld = false;
    for (int i : order) {
      if (machine.fibers[i].isDone || !machine.error.empty())
        continue;
      if (!isForced && mode.starvesWarps && (starved >> (i / 32 % 64) & 1)) {
        isHeld = true;
        continue;
      }
      machine.current = i;
      refold_switch_fiber(&machine.scheduler, machine.fibers[i].stackPointer);
    }
    if (engine && machine.error.empty())
      engine->advance(machine.progress == before);
    if (machine.progress == before && (!isHeld || isForced) &&
        machine.error.empty()) {
      if (isAwaiting(machine))
        return false;
      machine.error = describeDeadlock();
    }
    isForced = machine.progress == before;
  }
  if (engine && machine.error.empty())
    if (std::string what = engine->finish(); !what.empty())
      machine.error = "block " + std::to_string(machine.block) + ": " + what;
  return true;
}

/// Those that wait unwind with the error.
inline void unwind() {
  for (int i = 0; i < machine.threads; ++i)
    if (!machine.fibers[i].isDone && std::strlen(machine.fibers[i].waitsFor)) {
      machine.current = i;
      refold_switch_fiber(&machine.scheduler, machine.fibers[i].stackPointer);
    }
}

inline void setBlockAside() {
  if (engine)
    machine.engine = engine->setAside();
  machine.waiting.push_back(std::move(static_cast<Block &>(machine)));
  static_cast<Block &>(machine) = Block();
}

/// Lets the waiting block with number `which` go on. Its threads see the
/// tickets that have come; where none has, those that wait give up.
inline void bringBlockBack(size_t which) {
  if (!machine.fibers.empty())
    machine.stacks.push_back(std::move(machine.fibers));
  static_cast<Block &>(machine) = std::move(machine.waiting[which]);
  machine.waiting.erase(machine.waiting.begin() + which);
  if (engine)
    engine->bringBack(machine.engine);
  bool has = false;
  for (int i = 0; i < machine.threads; ++i) {
    Fiber &fiber = machine.fibers[i];
    has = has || (!fiber.isDone && fiber.hasCome());
  }
  for (int i = 0; i < machine.threads; ++i) {
    Fiber &fiber = machine.fibers[i];
    if (!has || fiber.hasCome())
      fiber.awaited = nullptr;
  }
}

/// The first block that waits for what has come, or -1.
inline int findReady() {
  for (size_t i = 0; i < machine.waiting.size(); ++i)
    for (const Fiber &fiber : machine.waiting[i].fibers)
      if (!fiber.isDone && fiber.hasCome())
        return int(i);
  return -1;
}

/// Runs the block, then those that have waited for what it did; in the end,
/// where nobody else is to come, all that wait.
inline void runAndResume(const Mode &mode, bool isLast) {
  while (true) {
    if (!runBlock(mode))
      setBlockAside();
    if (!machine.error.empty())
      break;
    const int ready = findReady();
    if (ready < 0 && (!isLast || machine.waiting.empty()))
      return;
    bringBlockBack(std::max(ready, 0));
  }
  unwind();
  while (!machine.waiting.empty()) {
    bringBlockBack(0);
    unwind();
  }
}

/// Runs a grid and says what was wrong, "" if nothing.
/// `sharedBytes`: what the launch asks for; more is not there.
inline std::string launch(int64_t blocks, int threads, const Mode &mode,
                          std::vector<Range> ranges, std::function<void()> body,
                          int64_t sharedBytes = 0) {
  machine.error.clear();
  machine.launchBytes = sharedBytes;
  machine.body = std::move(body);
  machine.ranges = std::move(ranges);
  machine.written.clear();
  machine.left.clear();
  machine.published.clear();
  machine.clusters.clear();
  machine.letters.clear();
  machine.time = 0;
  machine.patience = !mode.starvesWarps ? 2 : mode.reversesBlocks ? 1 : 0;
  for (const Range &range : machine.ranges)
    machine.written.emplace_back(range.isResult ? range.bytes : 0);
  machine.seed = mode.seed;
  machine.random = 88172645463325252ull ^ mode.seed * 0x9e3779b97f4a7c15ull;
  machine.blocks = blocks;
  // In order, backwards, from the middle on, from there backwards: who comes
  // last of some blocks is another one.
  const int64_t middle = mode.starvesWarps ? blocks / 2 : 0;
  for (int64_t i = 0; i < blocks && machine.error.empty(); ++i) {
    const int64_t at = (i + middle) % blocks;
    machine.block = mode.reversesBlocks ? blocks - 1 - at : at;
    startFibers(threads);
    if (engine)
      engine->start(threads);
    runAndResume(mode, i + 1 == blocks);
  }
  return machine.error.empty() ? findUnwritten() : machine.error;
}

/// All lanes of the warp meet; the last one sees the 32 arguments.
template <typename Combine>
void meetWarp(const char *kind, void *slot, Combine combine) {
  Warp &warp = machine.warps[machine.current / 32];
  if (warp.arrived == 0)
    warp.kind = kind;
  else if (std::strcmp(warp.kind, kind))
    report(std::string("lanes of a warp are at ") + warp.kind + " and at " +
           kind);
  warp.slots[machine.current % 32] = slot;
  uint64_t generation = warp.generation;
  if (++warp.arrived == 32) {
    combine(warp.slots);
    warp.arrived = 0;
    ++warp.generation;
    ++machine.progress;
  }
  while (warp.generation == generation)
    yield(kind);
  ++current().warpEpoch;
}

template <typename T> T shuffle(const char *kind, T value, int from) {
  struct Slot {
    T in, out;
    int from;
  } slot{value, value, from & 31};
  meetWarp(kind, &slot, [](void **slots) {
    for (int i = 0; i < 32; ++i) {
      Slot *one = static_cast<Slot *>(slots[i]);
      one->out = static_cast<Slot *>(slots[one->from])->in;
    }
  });
  return slot.out;
}

} // namespace refold::emulator

namespace refold {

inline int thread() { return emulator::machine.current; }
inline int64_t block() { return emulator::machine.block; }
inline int64_t blocks() { return emulator::machine.blocks; }
inline int thread_again() { return thread(); }
inline int thread_within() { return thread(); }

inline void invite_launch() {}
inline void follow_launch() { emulator::current().hasFollowed = true; }
inline int64_t block_again() { return block(); }

inline float float_of(uint32_t bits) { return std::bit_cast<float>(bits); }
inline uint32_t bits_of(float x) { return std::bit_cast<uint32_t>(x); }

struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};
inline float to_float(bf16 x) { return float_of(uint32_t(x.bits) << 16); }
inline float to_float(f16 x) { return float(std::bit_cast<_Float16>(x.bits)); }
inline uint32_t round_to_bf16(float x) {
  const uint32_t u = bits_of(x);
  return x != x ? 0x7fff : (u + 0x7fff + (u >> 16 & 1)) >> 16;
}
inline uint32_t pack(float low, float high, bf16) {
  return round_to_bf16(low) | round_to_bf16(high) << 16;
}
inline uint32_t pack(float low, float high, f16) {
  return uint32_t(std::bit_cast<uint16_t>(_Float16(low))) |
         uint32_t(std::bit_cast<uint16_t>(_Float16(high))) << 16;
}

inline float multiply_add(float x, float y, float z) {
  return std::fma(x, y, z);
}
/// The result of an approximation: the last bits are noise, as the device's may
/// be, and subnormal numbers are 0.
inline float approximate(float x, float y) {
  if (std::fabs(y) < 1.17549435e-38f) // NaN is not less
    return std::copysign(0.0f, y);
  const int ulps = int(bits_of(x) * 2654435761u >> 29) % 5 - 2;
  return std::isfinite(y) && y != 1.0f ? float_of(bits_of(y) + uint32_t(ulps))
                                       : y;
}
inline float without_subnormals(float x) {
  return std::fabs(x) < 1.17549435e-38f ? std::copysign(0.0f, x) : x;
}
inline float exp2_fast(float x) { return approximate(x, std::exp2(x)); }
inline float reciprocal_fast(float x) {
  return approximate(x, 1.0f / without_subnormals(x));
}
inline float reciprocal_root_fast(float x) {
  return approximate(x, float(1.0 / std::sqrt(double(without_subnormals(x)))));
}
inline float max_nan(float x, float y) { return x != x || x > y ? x : y; }
inline float min_nan(float x, float y) { return x != x || x < y ? x : y; }
template <typename T, typename Choose>
uint32_t of_pairs(uint32_t x, uint32_t y, Choose choose) {
  const auto half = [&](int shift) {
    const T left{uint16_t(x >> shift)}, right{uint16_t(y >> shift)};
    const float from = to_float(left), to = to_float(right);
    const float chosen = choose(from, to);
    // The device's NaN is one; a number has the bits that it had.
    const uint32_t bits = chosen != chosen ? 0x7fffu
                          : chosen == from ? left.bits
                                           : right.bits;
    return bits << shift;
  };
  return half(0) | half(16);
}
template <typename T> uint32_t max_pairs(uint32_t x, uint32_t y, T) {
  return of_pairs<T>(x, y, max_nan);
}
template <typename T> uint32_t min_pairs(uint32_t x, uint32_t y, T) {
  return of_pairs<T>(x, y, min_nan);
}

template <typename T> uint32_t min_numbers(uint32_t x, uint32_t y, T) {
  return of_pairs<T>(x, y,
                     [](float from, float to) { return fminf(from, to); });
}

inline float plain_number(float x) {
  return x != x ? float_of(0x7fffffffu) : x + 0.0f;
}
template <typename T> uint32_t plain_pairs(uint32_t x, T) {
  const auto half = [](uint32_t bits) {
    const float value = to_float(T{uint16_t(bits)});
    return value != value ? 0x7fffu : value == 0.0f ? 0u : bits & 0xffffu;
  };
  return half(x) | half(x >> 16) << 16;
}
inline uint32_t spread_signs(uint32_t x) {
  return (x & 0x8000u ? 0xffffu : 0u) | (x >> 31 ? 0xffff0000u : 0u);
}

inline float shuffle_xor(float x, int mask) {
  return emulator::shuffle("shuffle_xor", x, thread() ^ mask);
}
inline float shuffle_from(float x, int lane) {
  return emulator::shuffle("shuffle_from", x, lane);
}
inline int32_t shuffle_xor(int32_t x, int mask) {
  return emulator::shuffle("shuffle_xor", x, thread() ^ mask);
}
inline int64_t shuffle_xor(int64_t x, int mask) {
  return emulator::shuffle("shuffle_xor of 64 bits", x, thread() ^ mask);
}

inline void block_barrier() {
  using emulator::machine;
  if (machine.live < machine.threads)
    emulator::report("waits at a block barrier that ended threads never reach");
  uint64_t generation = machine.barriers;
  if (++machine.arrived == machine.threads) {
    machine.arrived = 0;
    ++machine.barriers;
    ++machine.progress;
    if (emulator::engine)
      emulator::engine->meet();
  }
  while (machine.barriers == generation)
    emulator::yield("a block barrier");
  ++emulator::current().blockEpoch;
}

template <typename T> struct Shared {
  int site;
  emulator::SharedMemory *memory;
  T load(int i) const {
    T value;
    std::memcpy(&value, emulator::readShared(*memory, i), sizeof(T));
    return value;
  }
  void store(int i, T value) const {
    std::memcpy(emulator::writeShared(*memory, i), &value, sizeof(T));
  }
};

enum Policy { Stream, Reuse };

template <int kBytes, Policy kPolicy>
void load_words(uint32_t *to, const void *from) {
  emulator::checkGlobal(from, kBytes, false);
  to[0] = 0;
  std::memcpy(to, from, kBytes);
}
template <int kBytes> void store_words(void *to, const uint32_t *from) {
  emulator::checkGlobal(to, kBytes, true);
  std::memcpy(to, from, kBytes);
}

} // namespace refold

#include "refold_cuda_emulated_parts.h"
#include "refold_cuda_emulated_tiles.h"

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_H
