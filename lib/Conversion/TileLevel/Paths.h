// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the warps of a block do, one after the other: ops as numbers, and the
// way of each warp through them.
#ifndef REFOLD_LIB_CONVERSION_TILELEVEL_PATHS_H
#define REFOLD_LIB_CONVERSION_TILELEVEL_PATHS_H

#include "Numbers.h"
#include "refold/Conversion/VerifyTiles.h"

#include <array>

namespace refold::tile {

/// How much there is to do: rows that a block comes to, with some tiles each.
struct Scenario {
  struct Visit {
    int tiles;
    bool isNone = false; ///< no rows this time
    uint32_t low = 0;    ///< warps that have to walk all of them in the end
  };
  std::vector<Visit> visits;
  bool takesOpen = false; ///< conditions that only the text knows
};

/// An op whose names are resolved.
struct Node {
  struct Assigned {
    int slot;
    Formula number;
  };
  struct Place {
    int tiles; ///< number of the first of its stages; -1: `stage` is where
    int count;
    Formula stage;
  };
  const Op *op = nullptr;
  std::vector<Assigned> numbers, step;
  std::optional<Formula> condition, place, count, seen;
  std::vector<Formula> bits;
  int gate = -1;
  bool isAddress = false; ///< `place` is where a gate is
  std::vector<Place> reads;
  std::optional<Place> to;
  std::vector<int> sums, factors, touched; ///< numbers of register arrays
  bool isCollective = false;               ///< text that a whole warp has
  std::vector<Node> body, otherwise;
  int callee = -1; ///< number of the lambda
};

/// All of a program, for one entry.
struct Compiled {
  std::vector<Node> nodes;
  struct Lambda {
    std::string name;
    std::vector<Number> parameters;
    std::vector<int> slots;
    std::vector<Node> body;
  };
  std::vector<Lambda> lambdas;
  std::vector<bool> areOfLanes; ///< of each slot
  std::vector<std::string> gates, stages;
  std::vector<int64_t> registers; ///< of each array
  std::vector<std::string> registerNames;
  struct Memory {
    std::string name;
    Formula begin, bytes;
    int64_t count, alignment;
    std::string came, left;
    int firstStage;
    bool isGlobal = false, isMet = false, isOwn = false;
  };
  std::vector<Memory> memory;
  int lowStage = -1; ///< of warps' bits of visits
  int blocks = 1;
  bool isRead = false; ///< from text, by its addresses
  std::optional<Fault> fault;
};
Compiled compile(const Program &program, const Entry &entry);

constexpr int kMostReads = 6; ///< of an event
/// What lanes access of a place, where that is less than all of it.
struct Range {
  int64_t begin = 0, end = 0; ///< addresses; none: all of it
  /// Where lane 0 has its part, each further one `bytes` on; -1 where they lie
  /// in another way.
  int64_t ofLane0 = -1;
  int bytes = 0;
  bool meets(const Range &other) const {
    bool areSome = end > begin && other.end > other.begin;
    return !areSome || (begin < other.end && other.begin < end);
  }
  bool operator==(const Range &other) const = default;
  /// Whether each lane has what the same one has of the other.
  bool isOfSameLanes(const Range &other) const {
    return ofLane0 >= 0 && ofLane0 == other.ofLane0 && bytes == other.bytes;
  }
};
/// What a warp does at some moment.
struct Event {
  const Node *node = nullptr;
  Op::Kind kind = Op::Text;
  int lanes = 0; ///< of the warp
  uint32_t mask = 0;
  int gate = -1; ///< and its place, as one number
  int to = -1;
  std::array<int, kMostReads> reads = {-1, -1, -1, -1, -1, -1};
  int64_t place = 0, count = 0, seen = -1;
  std::array<int64_t, 2> bits = {};
  Range range;
};
constexpr int kMostPlaces = 8; ///< of a gate

struct Path {
  std::vector<Event> events;
  std::vector<int64_t> slots; ///< in the end
};
/// The way of a warp of a block; `fault` is set where it has none.
Path walk(const Compiled &program, const Scenario &scenario, int block,
          int warp, int numWarps, std::optional<Fault> &fault);
/// A number of the whole block.
int64_t numberOf(const Formula &formula, const Path &path);

} // namespace refold::tile

#endif // REFOLD_LIB_CONVERSION_TILELEVEL_PATHS_H
