// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Paths.h"

#include <algorithm>
#include <bit>
#include <map>
#include <utility>

using namespace refold::tile;

namespace {
constexpr int kLanes = 32;

class Warp : public Numbers {
public:
  Warp(const Compiled &program, const Scenario &scenario, int block, int warp,
       int numWarps, std::optional<Fault> &fault)
      : program(program), scenario(scenario), block(block), warp(warp),
        numWarps(numWarps), fault(fault), values(program.areOfLanes.size()),
        lanes(program.areOfLanes.size()) {}
  Path walk() {
    run(program.nodes);
    path.slots = std::move(values);
    return std::move(path);
  }

  int64_t slot(int64_t number, int lane) override {
    return program.areOfLanes[size_t(number)] ? lanes[size_t(number)][lane]
                                              : values[size_t(number)];
  }
  int64_t call(NumberFunction function, const int64_t *arguments, int count,
               int lane) override;

private:
  enum Way { Onwards, Broken, Continued, Returned };

  void fail(const std::string &rule, const std::string &detail) {
    if (!fault)
      fault = Fault{rule, detail};
  }
  int64_t number(const Formula &formula) {
    return compute(formula, *this, lane());
  }
  int lane() const { return mask ? std::countr_zero(mask) : 0; }
  void needWarp(const char *what);
  void assign(const Node::Assigned &one);
  uint32_t whereTrue(const Formula &condition);
  Way run(const std::vector<Node> &nodes);
  Way runOne(const Node &node);
  Way runLoop(const Node &node);
  Way runBranch(const Node &node);
  void runCall(const Node &node);
  void record(const Node &node);
  int stageOf(const Node::Place &place, int ofLane);
  int stageAt(int64_t address);
  Range rangeOf(const Node &node, uint32_t of);
  void recordOf(Event event, const Node &node);
  void access(Op::Kind kind, int stage);

  const Compiled &program;
  const Scenario &scenario;
  int block, warp, numWarps;
  std::optional<Fault> &fault;
  std::vector<int64_t> values;
  std::vector<std::array<int64_t, kLanes>> lanes;
  uint32_t mask = ~0u;
  /// Lanes that have left a function, or this turn of a loop.
  uint32_t returned = 0, continued = 0;
  bool isLoopApart = false;
  Path path;
};
} // namespace

void Warp::needWarp(const char *what) {
  if (mask != ~0u)
    fail("uniform-collective", std::string("found ") + what + " by " +
                                   std::to_string(std::popcount(mask)) +
                                   " lanes of a warp; expected all of them");
}

void Warp::access(Op::Kind kind, int stage) {
  Event event;
  event.kind = kind;
  event.lanes = std::popcount(mask);
  event.mask = mask;
  (kind == Op::Write ? event.to : event.reads[0]) = stage;
  path.events.push_back(event);
}

int64_t Warp::call(NumberFunction function, const int64_t *arguments, int count,
                   int lane) {
  auto visit = [&](auto what, int64_t none) -> int64_t {
    bool isThere = count > 0 && arguments[0] >= 0 &&
                   arguments[0] < int64_t(scenario.visits.size());
    return isThere ? what(scenario.visits[size_t(arguments[0])]) : none;
  };
  using Visit = Scenario::Visit;
  switch (function) {
  case NumberFunction::Same:
  case NumberFunction::Sum:
  case NumberFunction::Smaller:
  case NumberFunction::Larger:
  case NumberFunction::Describe:
  case NumberFunction::Quotient:
  case NumberFunction::Remainder:
    return callPlain(function, arguments, count);
  case NumberFunction::Block:
    return block;
  case NumberFunction::Blocks:
    return program.blocks;
  case NumberFunction::Thread:
    return warp * kLanes + lane;
  case NumberFunction::OfWarp:
    needWarp("of_warp");
    return arguments[0];
  case NumberFunction::AnyLane:
    needWarp("any_lane");
    return arguments[0] != 0;
  case NumberFunction::Matrix:
    return visit([](const Visit &) { return 0; }, -1);
  case NumberFunction::Rows:
    return visit([](const Visit &v) { return v.isNone ? -1 : 0; }, 0);
  case NumberFunction::Begin:
    return visit([](const Visit &) { return 1; }, 1);
  case NumberFunction::End:
    return visit([](const Visit &v) { return 1 + v.tiles; }, 1);
  case NumberFunction::Low:
    return visit([&](const Visit &v) { return v.low >> warp & 1; }, 0);
  case NumberFunction::HasLow:
    for (int other = 4; program.lowStage >= 0 && other < numWarps; ++other)
      if (count == 1 || arguments[1] == other - 4)
        access(Op::Read, program.lowStage + other - 4);
    return visit(
        [&](const Visit &v) {
          return count == 1 ? v.low != 0 : v.low >> (arguments[1] + 4) & 1;
        },
        0);
  case NumberFunction::HasAnyLow:
    for (int other = 4; program.lowStage >= 0 && other < numWarps; ++other)
      access(Op::Read, program.lowStage + other - 4);
    return std::any_of(scenario.visits.begin(), scenario.visits.end(),
                       [](const Visit &v) { return v.low != 0; });
  }
  return 0;
}

void Warp::assign(const Node::Assigned &one) {
  if (!program.areOfLanes[size_t(one.slot)]) {
    values[size_t(one.slot)] = number(one.number);
    return;
  }
  std::array<int64_t, kLanes> &to = lanes[size_t(one.slot)];
  for (int lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1)
      to[size_t(lane)] = compute(one.number, *this, lane);
}

uint32_t Warp::whereTrue(const Formula &condition) {
  if (!condition.isOfLanes)
    return number(condition) ? mask : 0;
  uint32_t found = 0;
  for (int lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1 && compute(condition, *this, lane))
      found |= 1u << lane;
  return found;
}

/// The place that is there in shared memory, which has 32 bits of addresses.
int Warp::stageAt(int64_t address) {
  address &= 0xffffffff;
  for (const Compiled::Memory &tiles : program.memory) {
    auto begin = constantIn(tiles.begin), bytes = constantIn(tiles.bytes);
    bool isHere = !tiles.begin.steps.empty() && begin && bytes && *bytes > 0 &&
                  address >= *begin && address < *begin + tiles.count * *bytes;
    if (isHere)
      return tiles.firstStage + int((address - *begin) / *bytes);
  }
  fail("stage-in-ring", "found an access at byte " + std::to_string(address) +
                            ", where no tiles are; expected one of them");
  return 0;
}

int Warp::stageOf(const Node::Place &place, int ofLane) {
  int64_t stage = compute(place.stage, *this, ofLane);
  if (place.tiles < 0)
    return stageAt(stage);
  if (stage < 0 || stage >= place.count) {
    fail("stage-in-ring", "found place " + std::to_string(stage) + " of " +
                              std::to_string(place.count) +
                              " places of tiles; expected one of them");
    return place.tiles;
  }
  return place.tiles + int(stage);
}

/// Of the lanes in `of`.
Range Warp::rangeOf(const Node &node, uint32_t of) {
  const std::optional<Node::Place> &to = node.to;
  const Node::Place *place = to                       ? &*to
                             : node.reads.size() == 1 ? &node.reads[0]
                                                      : nullptr;
  Range range;
  if (!node.op->bytes || !place || place->tiles >= 0)
    return range;
  range.bytes = node.op->bytes;
  bool isFirst = true, isEven = true;
  for (int lane = 0; lane < kLanes; ++lane) {
    if (!(of >> lane & 1))
      continue;
    int64_t at = compute(place->stage, *this, lane);
    int64_t ofLane0 = at - lane * range.bytes;
    isEven &= isFirst || range.ofLane0 == ofLane0;
    range.ofLane0 = ofLane0;
    range.begin = isFirst ? at : std::min(range.begin, at);
    range.end = std::max(range.end, at + range.bytes);
    isFirst = false;
  }
  if (!isEven)
    range.ofLane0 = -1;
  return range;
}

/// Of lanes that access the same place.
void Warp::recordOf(Event event, const Node &node) {
  event.lanes = std::popcount(event.mask);
  event.range = rangeOf(node, event.mask);
  int ofLane = event.mask ? std::countr_zero(event.mask) : 0;
  if (node.to)
    event.to = stageOf(*node.to, ofLane);
  size_t read = 0;
  for (; read < node.reads.size() && read < event.reads.size(); ++read)
    event.reads[read] = stageOf(node.reads[read], ofLane);
  // Panels behind the first one of the last.
  int64_t first =
      node.op->panels > 1 ? compute(node.reads.back().stage, *this, ofLane) : 0;
  for (int i = 1; i < node.op->panels && read < event.reads.size(); ++i) {
    int stage = stageAt(first + i * (first >> 32));
    if (stage != event.reads[read - 1])
      event.reads[read++] = stage;
  }
  path.events.push_back(event);
}

void Warp::record(const Node &node) {
  Event event;
  event.node = &node;
  event.kind = node.op->kind;
  event.mask = mask;
  if (node.place)
    event.place = number(*node.place);
  if (node.count)
    event.count = number(*node.count);
  if (node.seen)
    event.seen = number(*node.seen);
  for (size_t i = 0; i < node.bits.size(); ++i)
    event.bits[i] = number(node.bits[i]);
  if (node.isAddress) {
    // Gates that are only addresses come behind those that have names.
    bool isNamed = node.to && !node.place;
    event.gate = int(program.gates.size()) * kMostPlaces +
                 (isNamed ? stageOf(*node.to, lane()) : stageAt(event.place));
    event.place = 0;
  } else if (node.gate >= 0) {
    event.gate = node.gate * kMostPlaces + int(event.place);
  }
  if (event.place < 0 || (node.gate >= 0 && event.place >= kMostPlaces))
    return fail("stage-in-ring", "found a gate of place " +
                                     std::to_string(event.place) +
                                     "; expected one of the ring");
  bool isOfLanes = (node.to && node.to->stage.isOfLanes) ||
                   (node.place && node.place->isOfLanes) ||
                   std::any_of(node.reads.begin(), node.reads.end(),
                               [](auto &one) { return one.stage.isOfLanes; });
  if (!isOfLanes)
    return recordOf(event, node);
  // Lanes that go to the same place go together.
  std::map<std::array<int, 4>, uint32_t> places;
  for (int lane = 0; lane < kLanes; ++lane)
    if (mask >> lane & 1) {
      std::array<int, 4> at = {-1, -1, -1, -1};
      if (node.to)
        at[0] = stageOf(*node.to, lane);
      for (size_t i = 0; i < node.reads.size() && i < 2; ++i) // of lanes
        at[1 + i] = stageOf(node.reads[i], lane);
      if (node.place)
        at[3] = int(compute(*node.place, *this, lane));
      places[at] |= 1u << lane;
    }
  for (auto &[at, lanes] : places) {
    event.mask = lanes;
    if (node.place && !node.isAddress && node.gate < 0)
      event.place = at[3];
    int lane = std::countr_zero(lanes);
    if (node.op->isAtTicket() && node.count)
      event.count = compute(*node.count, *this, lane);
    if (node.seen)
      event.seen = compute(*node.seen, *this, lane);
    recordOf(event, node);
  }
}

Warp::Way Warp::run(const std::vector<Node> &nodes) {
  for (const Node &node : nodes) {
    Way way = runOne(node);
    if (way != Onwards || fault)
      return fault ? Returned : way;
  }
  return Onwards;
}

static bool waits(const std::vector<Node> &nodes) {
  return std::any_of(nodes.begin(), nodes.end(), [](const Node &node) {
    return node.op->kind == Op::AwaitTicket || waits(node.body) ||
           waits(node.otherwise);
  });
}

Warp::Way Warp::runBranch(const Node &node) {
  uint32_t before = mask;
  uint32_t taken = node.op->isOpen  ? (scenario.takesOpen ? mask : 0)
                   : node.condition ? whereTrue(*node.condition)
                                    : mask;
  if (taken == before)
    return run(node.body);
  if (!taken)
    return run(node.otherwise);
  auto side = [&](const std::vector<Node> &nodes, uint32_t lanes) -> uint32_t {
    mask = lanes;
    Way way = run(nodes);
    if ((way == Broken || way == Continued) && !isLoopApart)
      fail("uniform-collective", "found lanes of a warp that leave a loop "
                                 "apart; expected all of them");
    if (way == Continued)
      continued |= mask;
    return way == Onwards ? mask : 0;
  };
  // Lanes apart go on by themselves: those that wait for others come later.
  if (waits(node.body)) {
    uint32_t right = side(node.otherwise, before & ~taken);
    mask = right | side(node.body, taken);
  } else {
    uint32_t left = side(node.body, taken);
    mask = left | side(node.otherwise, before & ~taken);
  }
  if (mask)
    return Onwards;
  // Nobody is left: of some, the loop goes on.
  return (before & ~returned) ? Continued : Returned;
}

Warp::Way Warp::runLoop(const Node &node) {
  constexpr int kMostTurns = 160;
  uint32_t before = mask, continuedOutside = continued;
  bool wasApart = std::exchange(isLoopApart, node.op->isApart);
  for (const Node::Assigned &one : node.numbers)
    assign(one);
  for (int turn = 0;; ++turn) {
    if (turn == kMostTurns || fault) {
      fail("loop-ends", "found a loop of more than " +
                            std::to_string(kMostTurns) +
                            " turns; expected one that ends");
      break;
    }
    if (node.condition) {
      uint32_t taken = whereTrue(*node.condition);
      if (!taken)
        break;
      if (taken != mask && !node.op->isApart)
        fail("uniform-collective", "found lanes of a warp that leave a loop "
                                   "apart; expected all of them");
      mask = taken;
    }
    continued = 0;
    Way way = run(node.body);
    bool goesOn = way == Onwards || way == Continued;
    mask = (goesOn ? mask : 0) | continued;
    if (!mask)
      break;
    for (const Node::Assigned &one : node.step)
      assign(one);
  }
  mask = before & ~returned;
  continued = continuedOutside;
  isLoopApart = wasApart;
  return mask && !fault ? Onwards : Returned;
}

void Warp::runCall(const Node &node) {
  std::vector<int64_t> given;
  for (const Node::Assigned &one : node.numbers)
    given.push_back(number(one.number));
  for (size_t i = 0; i < given.size(); ++i)
    values[size_t(node.numbers[i].slot)] = given[i];
  uint32_t before = mask, returnedOutside = std::exchange(returned, 0);
  run(program.lambdas[size_t(node.callee)].body);
  mask = before;
  returned = returnedOutside;
}

Warp::Way Warp::runOne(const Node &node) {
  switch (node.op->kind) {
  case Op::Let:
  case Op::Assign:
    for (const Node::Assigned &one : node.numbers)
      assign(one);
    for (const Node::Assigned &one : node.step)
      assign(one);
    return Onwards;
  case Op::Branch:
    return runBranch(node);
  case Op::Loop:
    return runLoop(node);
  case Op::Call:
    runCall(node);
    return Onwards;
  case Op::Return:
    returned |= mask;
    return Returned;
  case Op::Break:
    return Broken;
  case Op::Continue:
    return Continued;
  case Op::Text:
    if (node.isCollective)
      needWarp("a collective of the warp");
    record(node);
    return Onwards;
  case Op::StoreBoxes:
  case Op::BeginProducts:
  case Op::Multiply:
  case Op::CommitProducts:
  case Op::WaitProducts:
  case Op::AwaitTurn:
  case Op::PassTurn:
  case Op::GiveRegisters:
  case Op::TakeRegisters:
  case Op::BlockBarrier:
  case Op::WarpBarrier:
  case Op::MakeMap:
  case Op::ArriveAtCluster:
  case Op::WaitForCluster:
    needWarp(node.op->statement().c_str());
    record(node);
    return Onwards;
  default:
    record(node);
    return Onwards;
  }
}

Path refold::tile::walk(const Compiled &program, const Scenario &scenario,
                        int block, int warp, int numWarps,
                        std::optional<Fault> &fault) {
  return Warp(program, scenario, block, warp, numWarps, fault).walk();
}

namespace {
struct OfPath : Numbers {
  explicit OfPath(const Path &path) : path(path) {}
  int64_t slot(int64_t number, int) override {
    return path.slots[size_t(number)];
  }
  int64_t call(NumberFunction function, const int64_t *arguments, int count,
               int) override {
    return callPlain(function, arguments, count);
  }
  const Path &path;
};
} // namespace

int64_t refold::tile::numberOf(const Formula &formula, const Path &path) {
  OfPath of(path);
  return compute(formula, of, 0);
}
