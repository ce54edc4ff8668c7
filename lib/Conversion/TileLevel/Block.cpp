// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Block.h"

#include <algorithm>

using namespace refold::tile;

/// Barriers of a block; the last one is that of all threads.
constexpr int kBarriers = 17;
/// What addresses and loops of a warp that multiplies take beside its sums.
constexpr int64_t kOtherRegisters = 24;

Block::Block(const Compiled &program, const std::vector<Path> &paths,
             int threads)
    : program(program), paths(paths), numWarps(threads / 32), threads(threads),
      warps(paths.size()), memory(program.stages.size()),
      gates(program.gates.size() * kMostPlaces), barriers(kBarriers),
      boxes(program.stages.size()) {
  int64_t registers = 65536 / threads / 8 * 8;
  size_t arrays = program.registers.size();
  for (size_t i = 0; i < warps.size(); ++i) {
    Warp &warp = warps[i];
    warp.seen.all.at[i] = 1;
    warp.registers = registers;
    warp.sumsOf.resize(arrays);
    warp.factorsOf.resize(arrays);
    warp.isTouched.resize(arrays);
    warp.isUnsettled.resize(arrays);
  }
  matches.resize(paths.size());
}

bool Block::fail(const std::string &rule, const std::string &detail) {
  if (!fault)
    fault = Fault{rule, detail};
  return true;
}

std::string Block::placeOf(int gate) const {
  return "place " + std::to_string(gate % kMostPlaces) + " of gate " +
         program.gates[size_t(gate / kMostPlaces)];
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

bool Block::isSeen(int number, const Access &by, bool needsShown,
                   const std::string &what, int stage) {
  const Seen &seen = warps[size_t(number)].seen;
  if (seen.all.at[size_t(by.component)] < by.moment) {
    fail("ordered-access", "found " + program.stages[size_t(stage)] + " " +
                               what + "; expected a wait for that");
    return false;
  }
  if (needsShown && seen.shown.at[size_t(by.component)] < by.moment) {
    fail("proxy-fence",
         "found " + program.stages[size_t(stage)] + " " + what +
             " by another way; expected a fence between ordinary accesses and "
             "those of matrix units and boxes");
    return false;
  }
  return true;
}

void Block::read(int number, int stage, Access access) {
  Memory &m = memory[size_t(stage)];
  if (m.writes.empty())
    fail("ordered-access", "found " + program.stages[size_t(stage)] +
                               " read where nobody has written it");
  for (const Access &write : m.writes)
    if (!isSeen(number, write, access.isAsynchronous && !write.isAsynchronous,
                "read while it may be written", stage))
      return;
  m.wasRead = true;
  m.reads.push_back(access);
}

void Block::write(int number, int stage, Access access) {
  Memory &m = memory[size_t(stage)];
  for (const Access &read : m.reads)
    if (!isSeen(number, read, access.isAsynchronous && !read.isAsynchronous,
                "written while it may be read", stage))
      return;
  // Warps that copy together have parts of the same place.
  std::vector<Access> kept;
  for (const Access &write : m.writes) {
    bool isPart = write.node == access.node && write.warp != access.warp;
    if (isPart && warps[size_t(number)].seen.all.at[size_t(write.component)] <
                      write.moment)
      kept.push_back(write);
    else if (!isSeen(number, write,
                     access.isAsynchronous && !write.isAsynchronous,
                     "written while it may be written", stage))
      return;
  }
  bool hasGates = false;
  for (const Compiled::Memory &tiles : program.memory)
    hasGates |= stage >= tiles.firstStage &&
                stage < tiles.firstStage + tiles.count && !tiles.came.empty();
  if (kept.empty() && hasGates && !m.wasRead)
    fail("stage-read", "found " + program.stages[size_t(stage)] +
                           " written again before it was read");
  m.wasRead = !kept.empty() && m.wasRead;
  if (kept.empty())
    m.wasRead = false;
  m.reads.clear();
  m.writes = std::move(kept);
  m.writes.push_back(access);
}

//===----------------------------------------------------------------------===//
// Gates and barriers
//===----------------------------------------------------------------------===//

void Block::release(int number) {
  ++warps[size_t(number)].seen.all.at[size_t(number)];
}

/// `copies`: when copies of the warp have, up to that number; `boxes`: when
/// those to that place have.
void Block::arrive(int number, int gate, int64_t lanes, int copies, int boxes) {
  Gate &g = gates[size_t(gate)];
  Warp &warp = warps[size_t(number)];
  if (g.maker < 0 || warp.seen.all.at[size_t(g.maker)] < g.made) {
    fail("gate-made", "found an arrival at " + placeOf(gate) +
                          " before it is made; expected a barrier between");
    return;
  }
  g.here.join(warp.seen);
  if (copies >= 0) {
    uint16_t &at = g.here.all.at[size_t(componentOfCopies(number))];
    at = std::max(at, uint16_t(copies));
  }
  if (boxes >= 0) {
    // What comes by boxes needs no fence.
    int component = componentOfBoxes(boxes);
    g.here.all.at[size_t(component)] = g.here.shown.at[size_t(component)] =
        this->boxes[size_t(boxes)];
  }
  release(number);
  if (lanes > g.left) {
    fail("barrier-participants",
         "found " + std::to_string(lanes) + " arrivals at " + placeOf(gate) +
             ", of which a phase expects " + std::to_string(g.left) + " more");
    return;
  }
  g.left -= lanes;
  if (g.left)
    return;
  g.left = g.count;
  ++g.phases;
  g.last.join(g.here);
}

bool Block::waitGate(int number, const Event &event) {
  Gate &g = gates[size_t(event.gate)];
  Warp &warp = warps[size_t(number)];
  if (g.maker < 0 || warp.seen.all.at[size_t(g.maker)] < g.made)
    return fail("gate-made", "found a wait for " + placeOf(event.gate) +
                                 " before it is made; expected a barrier "
                                 "between");
  if ((g.phases & 1) == (event.count & 1))
    return false;
  matches[size_t(number)].push_back(g.phases);
  if (g.phases)
    warp.seen.join(g.last);
  return true;
}

bool Block::meet(int number, const Event &event, bool waits) {
  bool isOfAll = event.kind == Op::BlockBarrier;
  int64_t place = isOfAll ? kBarriers - 1 : event.place;
  int64_t count = isOfAll ? threads : event.count;
  if (!isOfAll && (place < 1 || place >= kBarriers - 1))
    return fail("barrier-participants", "found barrier " +
                                            std::to_string(place) +
                                            "; expected one from 1 to 15");
  Barrier &b = barriers[size_t(place)];
  Warp &warp = warps[size_t(number)];
  if (warp.awaits >= 0) {
    if (b.phases == warp.awaits)
      return false;
    warp.awaits = -1;
    warp.seen.join(b.last);
    return true;
  }
  if (b.arrived && b.count != count)
    return fail("barrier-participants",
                "found barrier " + std::to_string(place) + " of " +
                    std::to_string(b.count) + " and of " +
                    std::to_string(count) + " threads");
  b.count = count;
  b.arrived += 32;
  if (b.arrived > count)
    return fail("barrier-participants",
                "found more threads at barrier " + std::to_string(place) +
                    " than the " + std::to_string(count) + " that it is of");
  b.here.join(warp.seen);
  release(number);
  if (b.arrived == count) {
    b.arrived = 0;
    ++b.phases;
    b.last.join(b.here);
    if (waits)
      warp.seen.join(b.last);
    return true;
  }
  if (!waits)
    return true;
  warp.awaits = b.phases;
  return false;
}

//===----------------------------------------------------------------------===//
// Registers and products
//===----------------------------------------------------------------------===//

void Block::giveRegisters(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  if (event.count > warp.registers || event.count % 8 || event.count < 24)
    fail("register-budget", "found a role that keeps " +
                                std::to_string(event.count) + " of " +
                                std::to_string(warp.registers) +
                                " registers; expected fewer, a multiple of 8");
  freeRegisters += (warp.registers - event.count) * 32;
  warp.registers = event.count;
}

bool Block::takeRegisters(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  if (event.count < warp.registers || event.count % 8 || event.count > 256)
    return fail("register-budget", "found a role that takes " +
                                       std::to_string(event.count) +
                                       " registers where it has " +
                                       std::to_string(warp.registers));
  int64_t more = (event.count - warp.registers) * 32;
  if (more > freeRegisters)
    return false;
  freeRegisters -= more;
  warp.registers = event.count;
  return true;
}

void Block::multiply(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  int group = warp.committed + 1;
  if (!warp.hasBegun)
    fail("accumulator-touched",
         "found products before any begin_products; expected one");
  auto use = [&](const std::vector<int> &arrays, std::vector<int> &groups) {
    for (int array : arrays) {
      if (warp.isTouched[size_t(array)])
        fail("accumulator-touched",
             "found " + program.registerNames[size_t(array)] +
                 " touched since begin_products; expected one between");
      groups[size_t(array)] = group;
    }
  };
  use(event.node->sums, warp.sumsOf);
  use(event.node->factors, warp.factorsOf);
  for (int array : event.node->sums)
    warp.isUnsettled[size_t(array)] = true;
  warp.issued = group;
  int64_t needs = kOtherRegisters;
  for (int64_t count : program.registers)
    needs += count;
  if (needs > warp.registers)
    fail("register-budget", "found products that need " +
                                std::to_string(needs) +
                                " registers of a thread, which has " +
                                std::to_string(warp.registers));
  for (int stage : event.reads)
    if (stage >= 0)
      read(number, stage,
           {componentOfProducts(number), uint16_t(group), true, event.node,
            number});
}

void Block::settle(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  for (int array : event.node->sums) {
    if (warp.sumsOf[size_t(array)] > warp.retired)
      fail("token-waited", "found " + program.registerNames[size_t(array)] +
                               " settled while products are under way");
    warp.isUnsettled[size_t(array)] = false;
  }
}

void Block::touch(int number, const Node &node) {
  Warp &warp = warps[size_t(number)];
  for (int array : node.touched) {
    const std::string &name = program.registerNames[size_t(array)];
    if (warp.sumsOf[size_t(array)] > warp.retired ||
        warp.factorsOf[size_t(array)] > warp.retired)
      fail("accumulator-touched",
           "found " + name + " touched while products of it are under way");
    else if (warp.isUnsettled[size_t(array)])
      fail("accumulator-touched",
           "found " + name + " touched before it is settled");
    warp.isTouched[size_t(array)] = true;
  }
}

void Block::copyBoxes(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  Gate &g = gates[size_t(event.gate)];
  if (g.maker >= 0 && warp.seen.shown.at[size_t(g.maker)] < g.made)
    fail("proxy-fence", "found boxes that arrive at " + placeOf(event.gate) +
                            ", which they have not been shown; expected a "
                            "fence after it is made");
  uint16_t moment = ++boxes[size_t(event.to)];
  write(number, event.to,
        {componentOfBoxes(event.to), moment, true, event.node, number});
  arrive(number, event.gate, event.lanes, -1, event.to);
}

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

bool Block::act(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  Clock &all = warp.seen.all;
  Access own{number, all.at[size_t(number)], false, event.node, number};
  switch (event.kind) {
  case Op::MakeGate: {
    Gate &g = gates[size_t(event.gate)];
    g = Gate();
    g.count = g.left = event.count;
    g.maker = number;
    g.made = all.at[size_t(number)];
    return true;
  }
  case Op::WaitGate:
    return waitGate(number, event);
  case Op::Arrive:
    if (warp.hasRead && event.lanes < 32)
      return fail("ordered-access",
                  "found an arrival by some lanes for others of a warp that "
                  "may still read; expected a barrier of the warp between");
    arrive(number, event.gate, event.lanes, -1, -1);
    return true;
  case Op::ArriveWithCopies:
    arrive(number, event.gate, event.lanes, warp.copies, -1);
    return true;
  case Op::CopyBoxes:
    copyBoxes(number, event);
    return true;
  case Op::CopyRows:
    write(
        number, event.to,
        {componentOfCopies(number), ++warp.copies, false, event.node, number});
    return true;
  case Op::WaitCopies:
    all.at[size_t(componentOfCopies(number))] =
        uint16_t(std::max<int64_t>(warp.copies - event.count, 0));
    return true;
  case Op::StoreBoxes:
    touch(number, *event.node);
    warp.hasBoxes = true;
    return true;
  case Op::WaitBoxes:
    warp.hasBoxes &= event.count != 0;
    return true;
  case Op::Read:
    warp.hasRead |= event.node != nullptr;
    for (int stage : event.reads)
      if (stage >= 0)
        read(number, stage, own);
    return true;
  case Op::Write:
    write(number, event.to, own);
    return true;
  case Op::Fence:
    warp.seen.shown.join(all);
    return true;
  case Op::BeginProducts:
    warp.hasBegun = true;
    warp.isTouched.assign(warp.isTouched.size(), false);
    return true;
  case Op::Multiply:
    multiply(number, event);
    return true;
  case Op::CommitProducts:
    ++warp.committed;
    return true;
  case Op::WaitProducts:
    warp.retired = std::max(warp.retired, warp.committed - int(event.count));
    all.at[size_t(componentOfProducts(number))] = uint16_t(warp.retired);
    return true;
  case Op::Settle:
    settle(number, event);
    return true;
  case Op::AwaitTurn:
  case Op::BlockBarrier:
    return meet(number, event, true);
  case Op::PassTurn:
    return meet(number, event, false);
  case Op::WarpBarrier:
    warp.hasRead = false;
    return true;
  case Op::GiveRegisters:
    giveRegisters(number, event);
    return true;
  case Op::TakeRegisters:
    return takeRegisters(number, event);
  case Op::Text:
    touch(number, *event.node);
    return true;
  default:
    return true;
  }
}

bool Block::step(int number) {
  Warp &warp = warps[size_t(number)];
  const std::vector<Event> &events = paths[size_t(number)].events;
  if (warp.at == events.size() || !act(number, events[warp.at]))
    return false;
  ++warp.at;
  return true;
}

void Block::checkDeadlock() {
  for (size_t i = 0; i < warps.size(); ++i) {
    if (warps[i].at == paths[i].events.size())
      continue;
    const Event &event = paths[i].events[warps[i].at];
    bool isBudget = event.kind == Op::TakeRegisters;
    fail(isBudget ? "register-budget" : "deadlock",
         "found warp " + std::to_string(i) + " waiting for ever in '" +
             event.node->op->statement() + "'");
  }
}

void Block::checkEnd() {
  for (size_t i = 0; i < warps.size(); ++i) {
    const Warp &warp = warps[i];
    std::string who = " of warp " + std::to_string(i);
    if (warp.issued > warp.retired)
      fail("token-waited", "found products" + who + " that nobody waits for");
    if (warp.hasBoxes)
      fail("token-waited", "found boxes" + who + " that nobody waits for");
    if (warp.copies > warp.seen.all.at[size_t(componentOfCopies(int(i)))])
      fail("token-waited", "found copies" + who + " that nobody waits for");
  }
  for (size_t i = 0; i < gates.size(); ++i)
    if (gates[i].maker >= 0 && gates[i].left != gates[i].count)
      fail("stage-release", "found " + placeOf(int(i)) + " with " +
                                std::to_string(gates[i].count - gates[i].left) +
                                " arrivals of " +
                                std::to_string(gates[i].count) +
                                " in the end; expected whole phases");
  for (size_t i = 0; i < barriers.size(); ++i)
    if (barriers[i].arrived)
      fail("barrier-participants",
           "found barrier " + std::to_string(i) + " half arrived in the end");
  for (const Compiled::Memory &tiles : program.memory) {
    auto phases = [&](const std::string &name, int64_t place) {
      auto at = std::find(program.gates.begin(), program.gates.end(), name);
      return at == program.gates.end()
                 ? -1
                 : gates[size_t(at - program.gates.begin()) * kMostPlaces +
                         size_t(place)]
                       .phases;
    };
    for (int64_t i = 0; !tiles.came.empty() && i < tiles.count; ++i)
      if (phases(tiles.came, i % 2) != phases(tiles.left, i % 2))
        fail("stage-release", "found " +
                                  program.stages[size_t(tiles.firstStage + i)] +
                                  " that came and left another number of "
                                  "times; expected one release of each");
  }
  if (freeRegisters)
    fail("register-budget", "found " + std::to_string(freeRegisters) +
                                " registers that nobody takes");
}

std::optional<Fault> Block::run(bool isBackwards) {
  for (bool hasMoved = true; hasMoved && !fault;) {
    hasMoved = false;
    for (size_t i = 0; i < warps.size() && !fault; ++i) {
      int number = int(isBackwards ? warps.size() - 1 - i : i);
      while (!fault && step(number))
        hasMoved = true;
    }
  }
  if (!fault)
    checkDeadlock();
  if (!fault)
    checkEnd();
  return fault;
}
