// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Paths.h"

#include <algorithm>
#include <bit>

using namespace refold::tile;

namespace {
constexpr int kLanes = 32;

class Warp : public Numbers {
public:
  Warp(const Compiled &program, const Scenario &scenario, int warp,
       int numWarps, std::optional<Fault> &fault)
      : program(program), scenario(scenario), warp(warp), numWarps(numWarps),
        fault(fault), values(program.areOfLanes.size()),
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
  int stageOf(const Node::Place &place);
  void access(Op::Kind kind, int stage);

  const Compiled &program;
  const Scenario &scenario;
  int warp, numWarps;
  std::optional<Fault> &fault;
  std::vector<int64_t> values;
  std::vector<std::array<int64_t, kLanes>> lanes;
  uint32_t mask = ~0u;
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
    return count ? arguments[0] : 0;
  case NumberFunction::Smaller:
    return std::min(arguments[0], arguments[1]);
  case NumberFunction::Larger:
    return std::max(arguments[0], arguments[1]);
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

int Warp::stageOf(const Node::Place &place) {
  int64_t stage = number(place.stage);
  if (stage < 0 || stage >= place.count) {
    fail("stage-in-ring", "found place " + std::to_string(stage) + " of " +
                              std::to_string(place.count) +
                              " places of tiles; expected one of them");
    return place.tiles;
  }
  return place.tiles + int(stage);
}

void Warp::record(const Node &node) {
  Event event;
  event.node = &node;
  event.kind = node.op->kind;
  event.lanes = std::popcount(mask);
  if (node.place)
    event.place = number(*node.place);
  if (node.count)
    event.count = number(*node.count);
  if (node.gate >= 0)
    event.gate = node.gate * kMostPlaces + int(event.place);
  if (event.place < 0 || (node.gate >= 0 && event.place >= kMostPlaces))
    return fail("stage-in-ring", "found a gate of place " +
                                     std::to_string(event.place) +
                                     "; expected one of the ring");
  if (node.to)
    event.to = stageOf(*node.to);
  for (size_t i = 0; i < node.reads.size() && i < event.reads.size(); ++i)
    event.reads[i] = stageOf(node.reads[i]);
  path.events.push_back(event);
}

Warp::Way Warp::run(const std::vector<Node> &nodes) {
  for (const Node &node : nodes) {
    Way way = runOne(node);
    if (way != Onwards || fault)
      return fault ? Returned : way;
  }
  return Onwards;
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
    if (way == Broken || way == Continued)
      fail("uniform-collective", "found lanes of a warp that leave a loop "
                                 "apart; expected all of them");
    return way == Returned ? 0 : mask;
  };
  uint32_t left = side(node.body, taken);
  mask = left | side(node.otherwise, before & ~taken);
  return mask ? Onwards : Returned;
}

Warp::Way Warp::runLoop(const Node &node) {
  constexpr int kMostTurns = 64;
  for (const Node::Assigned &one : node.numbers)
    assign(one);
  for (int turn = 0;; ++turn) {
    if (turn == kMostTurns || fault) {
      fail("loop-ends", "found a loop of more than " +
                            std::to_string(kMostTurns) +
                            " turns; expected one that ends");
      return Returned;
    }
    if (node.condition) {
      uint32_t taken = whereTrue(*node.condition);
      if (!taken)
        return Onwards;
      if (taken != mask)
        fail("uniform-collective", "found lanes of a warp that leave a loop "
                                   "apart; expected all of them");
    }
    Way way = run(node.body);
    if (way == Broken)
      return Onwards;
    if (way == Returned)
      return Returned;
    for (const Node::Assigned &one : node.step)
      assign(one);
  }
}

void Warp::runCall(const Node &node) {
  std::vector<int64_t> given;
  for (const Node::Assigned &one : node.numbers)
    given.push_back(number(one.number));
  for (size_t i = 0; i < given.size(); ++i)
    values[size_t(node.numbers[i].slot)] = given[i];
  uint32_t before = mask;
  run(program.lambdas[size_t(node.callee)].body);
  mask = before;
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
    needWarp(node.op->statement().c_str());
    record(node);
    return Onwards;
  default:
    record(node);
    return Onwards;
  }
}

Path refold::tile::walk(const Compiled &program, const Scenario &scenario,
                        int warp, int numWarps, std::optional<Fault> &fault) {
  return Warp(program, scenario, warp, numWarps, fault).walk();
}

namespace {
struct OfPath : Numbers {
  explicit OfPath(const Path &path) : path(path) {}
  int64_t slot(int64_t number, int) override {
    return path.slots[size_t(number)];
  }
  int64_t call(NumberFunction function, const int64_t *arguments, int count,
               int) override {
    if (function == NumberFunction::Larger && count == 2)
      return std::max(arguments[0], arguments[1]);
    return count ? arguments[0] : 0;
  }
  const Path &path;
};
} // namespace

int64_t refold::tile::numberOf(const Formula &formula, const Path &path) {
  OfPath of(path);
  return compute(formula, of, 0);
}
