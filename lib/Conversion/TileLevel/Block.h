// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A block of warps that go their ways together: who has seen what of whom
// (vector clocks), and what nobody has waited for.
#ifndef REFOLD_LIB_CONVERSION_TILELEVEL_BLOCK_H
#define REFOLD_LIB_CONVERSION_TILELEVEL_BLOCK_H

#include "Paths.h"

namespace refold::tile {

/// Moments of warps, of products and copies under way of each, and of boxes
/// that are copied to each place of tiles, that somebody knows to be over.
struct Clock {
  static constexpr int kMost = 96;
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
  };
  struct Memory {
    std::vector<Access> writes, reads;
    bool wasRead = true;
  };
  struct Gate {
    int64_t count = 0, left = 0; ///< arrivals of a phase
    int phases = 0;              ///< that are over
    int maker = -1;
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
    int awaits = -1; ///< the phase of a barrier that it has arrived at
    int64_t registers = 0;
    bool hasBegun = false, hasBoxes = false;
    bool hasRead = false; ///< by lanes that have not met since
    int committed = 0, retired = 0, issued = 0;
    uint16_t copies = 0;
    std::vector<int> sumsOf, factorsOf; ///< groups that have them
    std::vector<bool> isTouched, isUnsettled;
  };

  bool fail(const std::string &rule, const std::string &detail);
  int componentOfProducts(int warp) const { return numWarps + warp; }
  int componentOfCopies(int warp) const { return 2 * numWarps + warp; }
  int componentOfBoxes(int stage) const { return 3 * numWarps + stage; }
  std::string placeOf(int gate) const;
  /// Whether the warp goes on.
  bool step(int number);
  bool act(int number, const Event &event);
  bool waitGate(int number, const Event &event);
  void arrive(int number, int gate, int64_t lanes, int copies, int boxes);
  bool meet(int number, const Event &event, bool waits);
  bool takeRegisters(int number, const Event &event);
  void giveRegisters(int number, const Event &event);
  void copyBoxes(int number, const Event &event);
  void multiply(int number, const Event &event);
  void settle(int number, const Event &event);
  void touch(int number, const Node &node);
  void read(int number, int stage, Access access);
  void write(int number, int stage, Access access);
  bool isSeen(int number, const Access &by, bool needsShown,
              const std::string &what, int stage);
  void checkDeadlock();
  void checkEnd();
  void release(int number);

  const Compiled &program;
  const std::vector<Path> &paths;
  int numWarps, threads;
  std::vector<Warp> warps;
  std::vector<Memory> memory;
  std::vector<Gate> gates;
  std::vector<Barrier> barriers;
  int64_t freeRegisters = 0;
  std::vector<uint16_t> boxes; ///< to each place
  std::optional<Fault> fault;
};

} // namespace refold::tile

#endif // REFOLD_LIB_CONVERSION_TILELEVEL_BLOCK_H
