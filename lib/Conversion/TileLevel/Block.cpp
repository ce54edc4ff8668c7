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
    : program(program), paths(paths), numWarps(int(paths.size())),
      threads(threads), warpsOfBlock(threads / 32),
      blocks(numWarps / warpsOfBlock),
      gatesOfBlock(int(program.gates.size()) * kMostPlaces +
                   int(program.stages.size())),
      warps(paths.size()), memory(size_t(blocks) * program.stages.size()),
      gates(size_t(blocks) * size_t(gatesOfBlock)),
      barriers(size_t(blocks) * kBarriers), freeRegisters(size_t(blocks)),
      boxes(memory.size()), boxNumbers(memory.size(), -1),
      ticketsOf(size_t(blocks)) {
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
  for (size_t i = 0; i < warps.size(); ++i)
    warps[i].needs = registersOf(paths[i]);
  int next = 0;
  for (size_t i = 0; i < warps.size(); ++i)
    for (const Event &event : paths[i].events) {
      bool isBox = event.kind == Op::CopyBoxes || event.kind == Op::CopyBox;
      // What is sent has the place of that name in the other block.
      for (int block = 0; block < blocks; ++block)
        if (event.kind == Op::SendAcross || (isBox && block == blockOf(int(i))))
          if (int &to = boxNumbers[size_t(block) * program.stages.size() +
                                   size_t(event.to)];
              to < 0)
            to = next++;
    }
  if (4 * numWarps + next > Clock::kMost)
    fail("known-numbers",
         "found more warps and places than are walked; expected fewer");
}

/// What products of a warp take: addresses and loops, sums and factors.
int64_t Block::registersOf(const Path &path) const {
  std::set<int> arrays;
  for (const Event &event : path.events)
    if (event.kind == Op::Multiply) {
      arrays.insert(event.node->sums.begin(), event.node->sums.end());
      arrays.insert(event.node->factors.begin(), event.node->factors.end());
    }
  int64_t count = kOtherRegisters;
  for (int array : arrays)
    count += program.registers[size_t(array)];
  return count;
}

bool Block::fail(const std::string &rule, const std::string &detail) {
  if (!fault)
    fault = Fault{rule, detail};
  return true;
}

std::string Block::nameOf(int gate) const {
  int own = gate % gatesOfBlock;
  int named = int(program.gates.size()) * kMostPlaces;
  if (own >= named)
    return program.stages[size_t(own - named)];
  return "place " + std::to_string(own % kMostPlaces) + " of gate " +
         program.gates[size_t(own / kMostPlaces)];
}

//===----------------------------------------------------------------------===//
// Gates and barriers
//===----------------------------------------------------------------------===//

void Block::release(int number) {
  ++warps[size_t(number)].seen.all.at[size_t(number)];
}

/// To what the warp, or the lanes of it that have waited, have seen.
void Block::learn(int number, const Event &event, const Seen &what) {
  Warp &warp = warps[size_t(number)];
  (event.lanes < 32 && program.isRead ? warp.ofLanes : warp.seen).join(what);
}

/// Lanes that meet see what each of them has.
void Block::joinLanes(int number) {
  Warp &warp = warps[size_t(number)];
  warp.seen.join(warp.ofLanes);
  warp.ofLanes = Seen();
  uint16_t &copies = warp.seen.all.at[size_t(componentOfCopies(number))];
  copies = std::max(copies, warp.ownCopies);
  warp.shownThen = warp.seen.shown;
  warp.momentThen = warp.seen.all.at[size_t(number)];
  release(number);
  ++warp.meetings;
  warp.hasRead = false;
}

/// `copies`: when copies of the warp have, up to that number; `boxes`: when
/// those to that place have.
void Block::arrive(int number, int gate, int64_t lanes, int copies, int boxes) {
  Gate &g = gates[size_t(gate)];
  Warp &warp = warps[size_t(number)];
  if (g.maker < 0 || warp.seen.all.at[size_t(g.maker)] < g.made) {
    fail("gate-made", "found an arrival at " + nameOf(gate) +
                          " before it is made; expected a barrier between");
    return;
  }
  if (lanes < 32 && program.isRead) {
    // What other lanes have done since all met is theirs to tell.
    Seen own = warp.seen;
    own.join(warp.ofLanes);
    uint16_t &moment = own.all.at[size_t(number)];
    uint16_t &shown = own.shown.at[size_t(number)];
    moment = std::min(moment, warp.momentThen);
    shown = std::min(shown, warp.momentThen);
    g.here.join(own);
  } else {
    g.here.join(warp.seen);
  }
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
         "found " + std::to_string(lanes) + " arrivals at " + nameOf(gate) +
             ", of which a phase expects " + std::to_string(g.left) + " more");
    return;
  }
  g.left -= lanes;
  endPhase(g);
}

void Block::endPhase(Gate &g) {
  if (g.left || g.owed)
    return;
  g.left = g.count;
  ++g.phases;
  g.last.join(g.here);
}

bool Block::waitGate(int number, const Event &event) {
  int gate = gateOf(number, event.gate);
  Gate &g = gates[size_t(gate)];
  Warp &warp = warps[size_t(number)];
  if (g.maker < 0 || warp.seen.all.at[size_t(g.maker)] < g.made)
    return fail("gate-made", "found a wait for " + nameOf(gate) +
                                 " before it is made; expected a barrier "
                                 "between");
  if ((g.phases & 1) == (event.count & 1))
    return false;
  matches[size_t(number)].push_back(g.phases);
  if (g.phases)
    learn(number, event, g.last);
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
  Barrier &b = barriers[size_t(blockOf(number) * kBarriers + place)];
  Warp &warp = warps[size_t(number)];
  if (warp.awaits >= 0) {
    if (b.phases == warp.awaits)
      return false;
    warp.awaits = -1;
    warp.seen.join(b.last);
    joinLanes(number);
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
  b.here.join(warp.ofLanes);
  uint16_t &copies = b.here.all.at[size_t(componentOfCopies(number))];
  copies = std::max(copies, warp.ownCopies);
  release(number);
  if (b.arrived == count) {
    b.arrived = 0;
    ++b.phases;
    b.last.join(b.here);
    if (waits) {
      warp.seen.join(b.last);
      joinLanes(number);
    }
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
  freeRegisters[size_t(blockOf(number))] += (warp.registers - event.count) * 32;
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
  int64_t &free = freeRegisters[size_t(blockOf(number))];
  if (more > free)
    return false;
  free -= more;
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
  if (warp.needs > warp.registers)
    fail("register-budget", "found products that need " +
                                std::to_string(warp.needs) +
                                " registers of a thread, which has " +
                                std::to_string(warp.registers));
  Access by = accessOf(number, event);
  by.component = componentOfProducts(number);
  by.moment = uint16_t(group);
  by.isAsynchronous = true;
  for (int stage : event.reads)
    if (stage >= 0)
      read(number, stage, by);
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

//===----------------------------------------------------------------------===//
// Warps
//===----------------------------------------------------------------------===//

bool Block::act(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  Clock &all = warp.seen.all;
  switch (event.kind) {
  case Op::MakeGate: {
    Gate &g = gates[size_t(gateOf(number, event.gate))];
    g = Gate();
    g.count = g.left = event.count;
    g.maker = number;
    g.made = all.at[size_t(number)];
    return true;
  }
  case Op::WaitGate:
    return waitGate(number, event);
  case Op::Arrive:
    if (warp.hasRead && event.lanes < 32 && !program.isRead)
      return fail("ordered-access",
                  "found an arrival by some lanes for others of a warp that "
                  "may still read; expected a barrier of the warp between");
    arrive(number, gateOf(number, event.gate), event.lanes, -1, -1);
    return true;
  case Op::ArriveWithCopies:
    arrive(number, gateOf(number, event.gate), event.lanes, warp.copies, -1);
    return true;
  case Op::ArriveExpecting:
    expect(number, event);
    return true;
  case Op::CopyBox:
    copyBox(number, event);
    return true;
  case Op::SeeMap:
    read(number, event.reads[0], accessOf(number, event));
    warp.maps.insert(event.reads[0]);
    return true;
  case Op::MakeMap:
    makeMap(number, event);
    return true;
  case Op::SendAcross:
    sendAcross(number, event);
    return true;
  case Op::CopyBoxes:
    copyBoxes(number, event);
    return true;
  case Op::CopyRows: {
    Access copy = accessOf(number, event);
    copy.component = componentOfCopies(number);
    copy.moment = ++warp.copies;
    write(number, event.to, copy);
    return true;
  }
  case Op::CommitCopies:
    warp.copyGroups.push_back(warp.copies);
    return true;
  case Op::WaitCopies:
    waitCopies(number, event);
    return true;
  case Op::StoreBox: {
    ++warp.stores;
    Access store = accessOf(number, event);
    store.component = componentOfStores(number);
    store.moment = uint16_t(warp.storeGroups + 1);
    store.isAsynchronous = true;
    read(number, event.reads[0], store);
    return true;
  }
  case Op::CommitBoxes:
    ++warp.storeGroups;
    warp.stores = 0;
    return true;
  case Op::StoreBoxes:
    touch(number, *event.node);
    warp.hasBoxes = true;
    return true;
  case Op::WaitBoxes:
    warp.hasBoxes &= event.count != 0;
    waitStores(number, event);
    return true;
  case Op::Read:
    warp.hasRead |= event.node != nullptr;
    for (int stage : event.reads)
      if (stage >= 0)
        read(number, stage, accessOf(number, event));
    return true;
  case Op::Write:
    write(number, event.to, accessOf(number, event));
    return true;
  case Op::Fence:
    show(number, event);
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
  case Op::FenceBlocks: {
    // What is known, to others; and what the ticket has told.
    Seen known = warp.seen;
    known.join(warp.ofLanes);
    warp.fenced.join(known.all);
    Seen told;
    told.all = warp.acquired;
    learn(number, event, told);
    release(number);
    return true;
  }
  case Op::TakeTicket:
    return takeTicket(number, event);
  case Op::AddToTicket:
  case Op::AddUnless:
  case Op::AwaitTicket:
  case Op::ClearTicket:
    return atTicket(number, event);
  case Op::ArriveAtCluster:
  case Op::WaitForCluster:
    return meetCluster(number, event);
  case Op::Settle:
    settle(number, event);
    return true;
  case Op::AwaitTurn:
  case Op::BlockBarrier:
    return meet(number, event, true);
  case Op::PassTurn:
    return meet(number, event, false);
  case Op::WarpBarrier:
    joinLanes(number);
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
             (event.node->op->statement().empty()
                  ? event.node->op->text
                  : event.node->op->statement()) +
             "'");
  }
}

void Block::checkEnd() {
  for (size_t i = 0; i < warps.size(); ++i) {
    const Warp &warp = warps[i];
    std::string who = " of warp " + std::to_string(i);
    if (warp.issued > warp.retired)
      fail("token-waited", "found products" + who + " that nobody waits for");
    Seen known = warp.seen;
    known.join(warp.ofLanes);
    size_t stores = size_t(componentOfStores(int(i)));
    if (warp.hasBoxes || warp.stores || warp.storeGroups > known.all.at[stores])
      fail("token-waited", "found boxes" + who + " that nobody waits for");
    // Who reads what was copied may have waited instead, at a gate.
    size_t copies = size_t(componentOfCopies(int(i)));
    bool isWaited =
        std::any_of(warps.begin(), warps.end(),
                    [&](const Warp &other) {
                      bool isAsked = &other == &warp || program.isRead;
                      return isAsked &&
                             (other.seen.all.at[copies] >= warp.copies ||
                              other.ofLanes.all.at[copies] >= warp.copies);
                    }) ||
        warp.ownCopies >= warp.copies;
    if (!isWaited)
      fail("token-waited", "found copies" + who + " that nobody waits for");
  }
  for (size_t i = 0; i < gates.size(); ++i)
    if (gates[i].maker >= 0 &&
        (gates[i].left != gates[i].count || gates[i].owed))
      fail("stage-release", "found " + nameOf(int(i)) + " with " +
                                std::to_string(gates[i].count - gates[i].left) +
                                " arrivals of " +
                                std::to_string(gates[i].count) +
                                " in the end; expected whole phases");
  for (size_t i = 0; i < barriers.size(); ++i)
    if (barriers[i].arrived)
      fail("barrier-participants", "found barrier " +
                                       std::to_string(i % kBarriers) +
                                       " half arrived in the end");
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
  checkTickets();
  for (int64_t free : freeRegisters)
    if (free)
      fail("register-budget",
           "found " + std::to_string(free) + " registers that nobody takes");
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
