// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What blocks tell each other: tickets, and what blocks of a cluster send.
#include "Block.h"

#include <algorithm>

using namespace refold::tile;

//===----------------------------------------------------------------------===//
// Tickets
//===----------------------------------------------------------------------===//

/// A number that all blocks add to. The walk is told what each of them sees of
/// it: that comes when the number is that. What it has fenced is told with it,
/// and what it is told it knows behind a fence, of a look at once.
bool Block::atTicket(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  Ticket &t = numbers[event.place];
  if (t.isCleared)
    return fail("stage-release",
                "found ticket " + std::to_string(event.place) +
                    " asked after it is cleared; expected nobody");
  bool isKnown = event.seen >= 0;
  if (event.kind == Op::ClearTicket) {
    t.value = 0;
    t.isCleared = true;
    return true;
  }
  if (event.kind == Op::AwaitTicket) {
    if (event.seen == 0) // it took too long
      return true;
    if (t.value != event.seen)
      return false;
    Seen told;
    told.all = t.told;
    learn(number, event, told);
    return true;
  }
  bool isSame =
      event.kind == Op::AddUnless && (t.value & event.bits[0]) == event.bits[1];
  int64_t next = isSame ? t.value : t.value + event.count;
  if (isKnown && (event.kind == Op::AddUnless ? next : t.value) != event.seen)
    return false;
  t.value = next;
  t.told.join(warp.fenced);
  warp.acquired.join(t.told);
  release(number);
  return true;
}

void Block::checkTickets() {
  for (auto &[place, ticket] : numbers)
    if (ticket.value)
      fail("stage-release", "found ticket " + std::to_string(place) + " at " +
                                std::to_string(ticket.value) +
                                " in the end; expected 0");
}

/// `count`: the block that is last, which the others go before.
bool Block::takeTicket(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  if (blockOf(number) == event.count && tickets + 1 < blocks)
    return false;
  int &own = ticketsOf[size_t(blockOf(number))];
  if (own > *std::min_element(ticketsOf.begin(), ticketsOf.end()))
    return fail("stage-release",
                "found a ticket that block " + std::to_string(blockOf(number)) +
                    " takes again before all others have; expected one each");
  ++own;
  ++tickets;
  ticket.join(warp.fenced);
  warp.acquired = ticket;
  release(number);
  return true;
}

//===----------------------------------------------------------------------===//
// Clusters
//===----------------------------------------------------------------------===//

/// All warps of all blocks; what an arrival says is seen behind the wait.
bool Block::meetCluster(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  if (event.kind == Op::ArriveAtCluster) {
    if (warp.awaits >= 0)
      return fail("barrier-participants",
                  "found an arrival at the cluster behind another one; "
                  "expected a wait between");
    warp.awaits = cluster.phases;
    cluster.here.join(warp.seen);
    cluster.here.join(warp.ofLanes);
    release(number);
    if (++cluster.arrived == numWarps) {
      cluster.arrived = 0;
      ++cluster.phases;
      cluster.last.join(cluster.here);
    }
    return true;
  }
  if (warp.awaits < 0)
    return fail("barrier-participants", "found a wait for the cluster without "
                                        "an arrival; expected one before");
  if (cluster.phases == warp.awaits)
    return false;
  warp.awaits = -1;
  warp.seen.join(cluster.last);
  joinLanes(number);
  return true;
}

/// To a place of another block, and to its gate of that exchange: as many bytes
/// as it will expect, in whatever order.
void Block::sendAcross(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  int to = int(event.place);
  if (to < 0 || to >= blocks) {
    fail("stage-in-ring", "found something sent to block " +
                              std::to_string(to) + " of a cluster of " +
                              std::to_string(blocks));
    return;
  }
  int gate = to * gatesOfBlock + int(program.gates.size()) * kMostPlaces +
             event.reads[0];
  Gate &g = gates[size_t(gate)];
  uint16_t made = std::max(warp.seen.all.at[size_t(std::max(g.maker, 0))],
                           warp.ofLanes.all.at[size_t(std::max(g.maker, 0))]);
  if (g.maker < 0 || made < g.made) {
    fail("gate-made", "found something sent to " + nameOf(gate) +
                          " of a block that may not have made it; expected a "
                          "wait for the cluster between");
    return;
  }
  auto hasEnded = [&](int warp) {
    return blockOf(warp) != to ||
           warps[size_t(warp)].at == paths[size_t(warp)].events.size();
  };
  bool isOver = true;
  for (int warp = 0; warp < numWarps; ++warp)
    isOver &= hasEnded(warp);
  if (isOver) {
    fail("cluster-lives", "found something sent to " + nameOf(gate) +
                              " of a block that has ended; expected a wait of "
                              "that block");
    return;
  }
  int place = to * int(program.stages.size()) + event.to;
  Access access = accessOf(number, event);
  access.component = componentOfBoxes(place);
  access.moment = ++boxes[size_t(place)];
  Memory &m = memory[size_t(place)];
  for (const std::vector<Access> *list : {&m.reads, &m.writes})
    for (const Access &before : *list)
      if (!isSeen(number, access, before, false,
                  "sent while another block may still access it", event.to))
        return;
  m.reads.clear();
  m.writes = {access};
  g.owed -= event.count;
  // What the sender's block has read before its barrier it has read when the
  // other one learns of what is sent.
  g.here.all.join(warp.seen.all);
  g.here.all.at[size_t(access.component)] = access.moment;
  g.here.shown.at[size_t(access.component)] = access.moment;
  endPhase(g);
}
