// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block of warps that go their ways together: who has seen what of whom
// (vector clocks), and what nobody has waited for.
#ifndef REFOLD_LIB_CONVERSION_TILELEVEL_BLOCK_H
#define REFOLD_LIB_CONVERSION_TILELEVEL_BLOCK_H

#include "Paths.h"

#include <map>
#include <set>

namespace refold::tile {

/// Moments of warps, of products, copies and boxes on their way out of each,
/// and of what others copy to each place of tiles, that somebody knows to be
/// over.
struct Clock {
  static constexpr int kMost = 256;
  std::array<uint16_t, kMost> at = {};
  void join(const Clock &other) {
    for (int i = 0; i < kMost; ++i)
      at[size_t(i)] = std::max(at[size_t(i)], other.at[size_t(i)]);
  }
};
/// What is seen by whom: `all` by the warp itself, `shown` by matrix units and
/// boxes, too.
struct Seen {
  Clock all, shown;
  void join(const Seen &other) {
    all.join(other.all);
    shown.join(other.shown);
  }
};

/// A block, or several that tell each other something: warps of the second one
/// are numbered behind those of the first one.
class Block {
public:
  Block(const Compiled &program, const std::vector<Path> &paths, int threads);
  /// Lets the warps run in this order, each as far as it comes.
  std::optional<Fault> run(bool isBackwards);
  /// Which phase of its gate each wait of each warp has seen.
  std::vector<std::vector<int>> matches;

private:
  struct Access {
    int component;
    uint16_t moment;
    bool isAsynchronous;
    const Node *node;
    int warp;
    uint32_t lanes = ~0u;
    int meeting = 0; ///< of the warp's lanes, before
    Range range;
  };
  struct Memory {
    std::vector<Access> writes, reads;
    bool wasRead = true;
  };
  struct Gate {
    int64_t count = 0, left = 0; ///< arrivals of a phase
    int64_t owed = 0;            ///< bytes that it expects
    int phases = 0;              ///< that are over
    int maker = -1;
    bool isShown = false; ///< by the lane that made it
    uint16_t made = 0;
    Seen here, last;
  };
  struct Barrier {
    int64_t count = 0, arrived = 0;
    int phases = 0;
    Seen here, last;
  };
  struct Warp {
    size_t at = 0;
    Seen seen;
    /// What some of its lanes have seen, until all meet; what was shown then.
    Seen ofLanes;
    Clock shownThen;
    uint16_t momentThen = 0;
    int meetings = 0;
    int awaits = -1; ///< the phase of a barrier that it has arrived at
    int64_t registers = 0;
    int64_t needs = 0; ///< registers of arrays that its products have
    bool hasBegun = false, hasBoxes = false;
    bool hasRead = false; ///< by lanes that have not met since
    int committed = 0, retired = 0, issued = 0;
    uint16_t copies = 0, ownCopies = 0;   ///< `ownCopies`: each lane's are over
    std::vector<uint16_t> copyGroups;     ///< how many copies there were then
    uint16_t stores = 0, storeGroups = 0; ///< of boxes: begun, and in groups
    std::set<int> maps;                   ///< that are seen
    Clock fenced, acquired;               ///< for, and of, other blocks
    std::vector<int> sumsOf, factorsOf;   ///< groups that have them
    std::vector<bool> isTouched, isUnsettled;
  };

  int64_t registersOf(const Path &path) const;
  bool fail(const std::string &rule, const std::string &detail);
  int componentOfProducts(int warp) const { return numWarps + warp; }
  int componentOfCopies(int warp) const { return 2 * numWarps + warp; }
  int componentOfStores(int warp) const { return 3 * numWarps + warp; }
  int componentOfBoxes(int place) const {
    return 4 * numWarps + boxNumbers[size_t(place)];
  }
  int blockOf(int warp) const { return warp / warpsOfBlock; }
  /// A place of tiles of that warp's block, among those of all blocks.
  int placeOf(int number, int stage) const;
  int gateOf(int number, int gate) const {
    return blockOf(number) * gatesOfBlock + gate;
  }
  const Compiled::Memory &tilesOf(int stage) const;
  std::string nameOf(int gate) const;
  /// Whether the warp goes on.
  bool step(int number);
  bool act(int number, const Event &event);
  bool waitGate(int number, const Event &event);
  void arrive(int number, int gate, int64_t lanes, int copies, int boxes);
  /// Whether a phase is over now.
  void endPhase(Gate &gate);
  void expect(int number, const Event &event);
  void makeMap(int number, const Event &event);
  void copyBox(int number, const Event &event);
  void sendAcross(int number, const Event &event);
  void waitCopies(int number, const Event &event);
  void waitStores(int number, const Event &event);
  void show(int number, const Event &event);
  bool takeTicket(int number, const Event &event);
  bool atTicket(int number, const Event &event);
  void checkTickets();
  bool meetCluster(int number, const Event &event);
  void joinLanes(int number);
  /// To what the warp, or the lanes that have waited, have seen.
  void learn(int number, const Event &event, const Seen &what);
  bool meet(int number, const Event &event, bool waits);
  bool takeRegisters(int number, const Event &event);
  void giveRegisters(int number, const Event &event);
  void copyBoxes(int number, const Event &event);
  void multiply(int number, const Event &event);
  void settle(int number, const Event &event);
  void touch(int number, const Node &node);
  void read(int number, int stage, Access access);
  void write(int number, int stage, Access access);
  bool isSeen(int number, const Access &access, const Access &by,
              bool needsShown, const std::string &what, int stage);
  Access accessOf(int number, const Event &event);
  void checkDeadlock();
  void checkEnd();
  void release(int number);

  const Compiled &program;
  const std::vector<Path> &paths;
  int numWarps, threads, warpsOfBlock, blocks, gatesOfBlock;
  std::vector<Warp> warps;
  std::vector<Memory> memory;
  std::vector<Gate> gates;
  std::vector<Barrier> barriers;
  std::vector<int64_t> freeRegisters; ///< of each block
  std::vector<uint16_t> boxes;        ///< to each place
  std::vector<int> boxNumbers; ///< of places that boxes come to, -1 of others
  struct Ticket {
    int64_t value = 0;
    bool isCleared = false;
    Clock told; ///< by those who have added
  };
  std::map<int64_t, Ticket> numbers;
  Clock ticket;
  int tickets = 0;
  std::vector<int> ticketsOf; ///< each block
  struct {
    int arrived = 0, phases = 0;
    Seen here, last;
  } cluster;
  std::optional<Fault> fault;
};

} // namespace refold::tile

#endif // REFOLD_LIB_CONVERSION_TILELEVEL_BLOCK_H
