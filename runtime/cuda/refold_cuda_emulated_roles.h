// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What refold_cuda_emulated_wgmma.h knows of a block: who has arrived where,
// who has seen what come, which products are under way.
#ifndef REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_ROLES_H
#define REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_ROLES_H

#include <array>
#include <deque>
#include <numeric>

namespace refold::emulator {

constexpr int kMostWarps = 32;

/// Per warp, the last product that its four warps are known to be done with.
struct Known {
  uint64_t last[kMostWarps] = {};
  void join(const Known &other) {
    for (int i = 0; i < kMostWarps; ++i)
      last[i] = std::max(last[i], other.last[i]);
  }
};

struct Gate {
  int arrivals = 0, pending = 0;
  uint64_t opened = 0;
  int64_t bytes = 0;  ///< that boxes have to bring before it opens
  Known passed, next; ///< of those that have arrived before it opened last
  std::vector<uint32_t> passedTurns, nextTurns; ///< likewise
  Access made;
};

/// What a thread knows.
struct Witness {
  Known known;
  /// Of each thread, how many of the turns that it has come to are known to be
  /// over.
  std::vector<uint32_t> turns;
  std::vector<uint32_t> gateTurns;   ///< the same as far as gates tell
  std::vector<uint64_t> seen, shown; ///< of each gate, how often it opened
  std::vector<int> written; ///< chunks, since it last showed the matrix units
  std::vector<const void *> maps; ///< of other warps that it has seen
};

/// 16 bytes of shared memory: the opening of a gate that says they are there,
/// and the last product of each four warps that reads them.
struct Chunk {
  int gate = -1;
  uint64_t opening = 0;
  uint64_t reads[kMostWarps / 4] = {};
  bool isGate = false;
  bool isOfBox = false; ///< written by what needs no showing
  Access shown;         ///< where who wrote it showed it the matrix units
  int leaving = 0;      ///< boxes on their way out that read it
  bool isRead() const {
    return std::any_of(std::begin(reads), std::end(reads),
                       [](uint64_t product) { return product != 0; });
  }
};

struct Arrival {
  int thread = 0, gate = 0;
  Access made;
  std::vector<uint32_t> turns; ///< that are over when the copies have come
  std::vector<Copy> copies;
  bool isBox = false;
};

struct MatrixMap {
  static constexpr int kMostIndices = 4;
  const char *first;
  int32_t boxRows;
  uint32_t columns, extents[kMostIndices]; ///< of the row, and in front of it
  int64_t strides[kMostIndices], block;
  Access made;
};
static_assert(sizeof(MatrixMap) <= 128);
/// What an array of a launch is told by: the address of its first element,
/// columns in bytes, rows of a box, extents, strides, how many there are of
/// these; 0: nobody has made it.
constexpr int kMapWords = 12;
/// A box on its way out of shared memory, where its bytes have been taken or
/// not.
struct Leaving {
  int thread;
  uint64_t group;
  MatrixMap to;
  uint32_t from;
  int column;
  std::array<int, MatrixMap::kMostIndices> at; ///< the row, what is in front
  std::vector<char> bytes;
};

struct Product {
  uint64_t number = 0;
  int columns = 0;
  bool isOfFactors = false, adds = false;
  bool isAlong = false; ///< rows of the right side lie along the sum
  uint64_t left = 0, right = 0;
  float (*widen)(uint16_t) = nullptr;
  float (*widenBytes[2])(uint8_t) = {}; ///< of both sides, instead
  float *sums[128];
  const uint32_t *factors[128];
};
/// Sums under way, which nobody may look at.
struct Flight {
  std::vector<float> values;
  int uses = 0;
};
struct FourWarps {
  int arrived = 0;
  uint64_t generation = 0, issued = 0, retired = 0;
  Product current;
  std::deque<std::vector<Product>> groups{1};
  std::map<float *, Flight> flights;
  bool hasBegun[128] = {};
};
struct Turn {
  int arrived = 0, threads = 0;
  uint64_t generation = 0;
  Known known, nextKnown; ///< products that those who have come are done with
  std::vector<uint32_t> passed, next; ///< what those who have come know
};
inline void joinTurns(std::vector<uint32_t> &to,
                      const std::vector<uint32_t> &other) {
  to.resize(std::max(to.size(), other.size()));
  for (size_t i = 0; i < other.size(); ++i)
    to[i] = std::max(to[i], other[i]);
}

struct Roles : Engine {
  std::map<uint32_t, int> gateNumbers;
  std::vector<Gate> gates;
  std::vector<Witness> witnesses;
  std::vector<Chunk> chunks;
  std::deque<Arrival> arrivals;
  std::deque<Leaving> leaving;
  std::vector<uint64_t> boxGroups; ///< of each thread, that are complete
  std::vector<FourWarps> warpgroups;
  Turn turns[16];
  bool isBringingBox = false;
  std::vector<int> registers; ///< of each warp
  int pool = 0;               ///< registers that nobody has

  void start(int threads) override {
    gateNumbers.clear(), gates.clear(), chunks.clear(), arrivals.clear();
    leaving.clear();
    boxGroups.assign(threads, 0);
    witnesses.assign(threads, Witness());
    warpgroups.assign((threads + 127) / 128, FourWarps());
    for (Turn &turn : turns)
      turn = Turn();
    const int most = std::min(255, 65536 / threads / 8 * 8);
    registers.assign((threads + 31) / 32, most);
    pool = 0;
  }

  Chunk &chunk(int i) {
    if (chunks.size() < machine.bytes.elements.size())
      chunks.resize(machine.bytes.elements.size());
    if (i < 0 || size_t(i) >= chunks.size())
      report("shared memory is accessed at 16-byte " + std::to_string(i) +
             " of " + std::to_string(chunks.size()));
    return chunks[i];
  }
  int numberOf(uint32_t gate) {
    auto known = gateNumbers.find(gate);
    if (known == gateNumbers.end())
      report("a gate is used that nobody has made");
    if (!comesAfter(gates[known->second].made))
      report("a gate is used without a barrier since it was made");
    return known->second;
  }
  Witness &witness() {
    Witness &one = witnesses[machine.current];
    one.seen.resize(gates.size());
    one.shown.resize(gates.size());
    return one;
  }

  void beforeWrite(int i) override {
    Chunk &one = chunk(i);
    if (one.isGate)
      report("writes over a gate");
    if (one.leaving > 0)
      report("writes shared memory that a box on its way out may still read");
    const Known &known = witnesses[machine.current].known;
    for (size_t four = 0; four < warpgroups.size(); ++four) {
      for (int warp = 0; warp < 4; ++warp)
        if (known.last[four * 4 + warp] < one.reads[four])
          report("writes shared memory that a product of warps " +
                 std::to_string(four * 4) + " on may still read");
      one.reads[four] = 0;
    }
    one.gate = -1;
    one.isOfBox = false;
    one.shown = Access();
    witnesses[machine.current].written.push_back(i);
  }

  /// What a thread has written is seen by the matrix units, for whoever comes
  /// behind it.
  void showWritten() {
    Witness &one = witnesses[machine.current];
    for (int i : one.written) {
      const SharedElement &element = machine.bytes.elements[i];
      if (element.write.thread == machine.current && !element.isUnderWay)
        chunks[i].shown = now();
    }
    one.written.clear();
  }
  /// Products that a thread knows to be done, those of its own warps included.
  Known knownHere() {
    Known known = witnesses[machine.current].known;
    uint64_t &own = known.last[machine.current / 32];
    own = std::max(own, warpgroups[machine.current / 128].retired);
    return known;
  }

  /// What a thread knows to be over where it arrives at a gate, itself
  /// included.
  std::vector<uint32_t> nextTurn() {
    Witness &one = witnesses[machine.current];
    one.turns.resize(machine.threads);
    one.turns[machine.current] = ++current().turn;
    std::vector<uint32_t> known = one.turns;
    joinTurns(known, one.gateTurns);
    return known;
  }

  /// What one lane arrives at a gate for, all have done before.
  void reachWarp() override { nextTurn(); }
  void meetWarp() override {
    const int first = machine.current / 32 * 32;
    std::vector<uint32_t> all;
    for (int i = first; i < first + 32; ++i)
      joinTurns(all, witnesses[i].turns);
    for (int i = first; i < first + 32; ++i)
      witnesses[i].turns = all;
  }

  bool isPassed(const Access &before) override {
    const Witness &one = witnesses[machine.current];
    auto isIn = [&](const std::vector<uint32_t> &turns) {
      return size_t(before.thread) < turns.size() &&
             before.turn < turns[before.thread];
    };
    // Gates alone do not order what boxes write behind ordinary accesses.
    return isIn(one.turns) || (!isBringingBox && isIn(one.gateTurns));
  }

  void meet() override {
    Known all;
    for (size_t i = 0; i < witnesses.size(); ++i) {
      all.last[i / 32] =
          std::max(all.last[i / 32], warpgroups[i / 128].retired);
      all.join(witnesses[i].known);
    }
    for (Witness &witness : witnesses)
      witness.known.join(all);
  }

  /// Throws what is wrong.
  void arriveAt(int number, const Known &known, int64_t bytes = 0,
                const std::vector<uint32_t> &turns = {}) {
    Gate &gate = gates[number];
    gate.next.join(known);
    joinTurns(gate.nextTurns, turns);
    gate.bytes += bytes;
    --gate.pending;
    openIfDone(gate);
  }
  void openIfDone(Gate &gate) {
    ++machine.progress;
    if (gate.pending > 0 || gate.bytes > 0)
      return;
    if (gate.bytes < 0)
      report("a gate has more bytes than it expects");
    gate.pending = gate.arrivals;
    ++gate.opened;
    gate.passed.join(gate.next);
    joinTurns(gate.passedTurns, gate.nextTurns);
  }
  void landOf(const Arrival &arrival, const Copy &copy) {
    land(copy);
    SharedElement &element = machine.bytes.elements[copy.to / 16];
    element.isUnderWay = false;
    element.write = arrival.made;
    Chunk &one = chunk(int(copy.to / 16));
    one.gate = arrival.gate;
    one.opening = gates[arrival.gate].opened + 1;
    one.isOfBox = arrival.isBox;
  }
  void landFirst(int thread) {
    auto first = std::find_if(
        arrivals.begin(), arrivals.end(),
        [&](const Arrival &arrival) { return arrival.thread == thread; });
    if (first == arrivals.end())
      return;
    for (const Copy &copy : first->copies)
      landOf(*first, copy);
    const int gate = first->gate;
    const bool isBox = first->isBox;
    const std::vector<uint32_t> turns = std::move(first->turns);
    const int64_t bytes = int64_t(first->copies.size()) * 16;
    arrivals.erase(first);
    if (isBox) {
      gates[gate].bytes -= bytes;
      openIfDone(gates[gate]);
    } else {
      arriveAt(gate, Known(), 0, turns);
    }
  }
  void landCopies(int thread) override {
    for (size_t before = arrivals.size() + 1; arrivals.size() < before;) {
      before = arrivals.size();
      landFirst(thread);
    }
  }
  void landGroups(int thread, uint64_t end) override {
    for (Arrival &arrival : arrivals)
      if (arrival.thread == thread && !arrival.isBox)
        std::erase_if(arrival.copies, [&](const Copy &copy) {
          if (copy.group < end)
            landOf(arrival, copy);
          return copy.group < end;
        });
  }
  /// At random in odd modes but the late one.
  bool advance(bool isIdle) override {
    const bool isLate = machine.seed == 2;
    if (arrivals.empty() || (!isIdle && (isLate || drawRandom() % 8)))
      return false;
    for (uint64_t count = 1 + drawRandom() % 40; count > 0; --count)
      if (!arrivals.empty())
        landFirst(arrivals[drawRandom() % arrivals.size()].thread);
    return true;
  }
  std::string finish() override {
    if (!arrivals.empty())
      return "ends while copies are under way";
    if (!leaving.empty())
      return "ends while boxes may still read its shared memory";
    for (const FourWarps &four : warpgroups)
      for (const std::vector<Product> &group : four.groups)
        if (!group.empty())
          return "ends while products are under way";
    for (const Turn &turn : turns)
      if (turn.arrived)
        return "ends while a turn is passed that nobody takes";
    return "";
  }
  // Moved, so that what threads refer to stays where it is.
  std::shared_ptr<void> setAside() override {
    return std::make_shared<Roles>(std::move(*this));
  }
  void bringBack(const std::shared_ptr<void> &block) override {
    *this = std::move(*static_cast<Roles *>(block.get()));
  }
};
inline Roles roles;
inline const bool hasRoles = (engine = &roles, true);

} // namespace refold::emulator

#endif // REFOLD_RUNTIME_CUDA_REFOLD_CUDA_EMULATED_ROLES_H
