// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What warps access, and what accesses it for them: copies and boxes.
#include "Block.h"

#include <algorithm>
#include <bit>

using namespace refold::tile;

const Compiled::Memory &Block::tilesOf(int stage) const {
  for (const Compiled::Memory &tiles : program.memory)
    if (stage >= tiles.firstStage && stage < tiles.firstStage + tiles.count)
      return tiles;
  return program.memory.front();
}

int Block::placeOf(int number, int stage) const {
  int block = tilesOf(stage).isGlobal ? 0 : blockOf(number);
  return block * int(program.stages.size()) + stage;
}

Block::Access Block::accessOf(int number, const Event &event) {
  const Warp &warp = warps[size_t(number)];
  return {number,        warp.seen.all.at[size_t(number)],
          false,         event.node,
          number,        event.mask,
          warp.meetings, event.range};
}

bool Block::isSeen(int number, const Access &access, const Access &by,
                   bool needsShown, const std::string &what, int stage) {
  const Warp &warp = warps[size_t(number)];
  if (by.warp != number && tilesOf(stage).isOwn)
    return true;
  size_t component = size_t(by.component);
  bool isOfLanes = access.lanes != ~0u;
  uint16_t seen = warp.seen.all.at[component];
  if (isOfLanes)
    seen = std::max(seen, warp.ofLanes.all.at[component]);
  // Of its own copies, a lane that has waited for them.
  bool areOwn = !tilesOf(stage).isMet ||
                (by.warp == number && access.range.isOfSameLanes(by.range));
  if (by.component == componentOfCopies(number) && areOwn)
    seen = std::max(seen, warp.ownCopies);
  std::string name = program.stages[size_t(stage)];
  if (access.node && by.node)
    name += " (in '" + access.node->op->statement() + "' behind '" +
            by.node->op->statement() + "')";
  if (seen < by.moment)
    return !fail("ordered-access",
                 "found " + name + " " + what + "; expected a wait for that");
  bool isOwn = by.warp == number && access.warp == number;
  bool isSameLane =
      (by.lanes == access.lanes && std::has_single_bit(by.lanes)) ||
      (isOwn && access.range.isOfSameLanes(by.range));
  if (isOwn && !isSameLane && tilesOf(stage).isMet) {
    // Lanes know of each other when they have met.
    bool haveMet = by.component != number || by.meeting < warp.meetings;
    if (!haveMet)
      return !fail("ordered-access",
                   "found " + name + " " + what +
                       " by other lanes of the warp; expected a barrier of the "
                       "warp between");
  }
  if (!needsShown)
    return true;
  uint16_t shown = warp.seen.shown.at[component];
  if (isOfLanes && isOwn && program.isRead)
    // Who has written it has shown it before lanes met.
    shown = std::max(isSameLane ? shown : warp.shownThen.at[component],
                     warp.ofLanes.shown.at[component]);
  else if (isOfLanes)
    shown = std::max(shown, warp.ofLanes.shown.at[component]);
  if (shown < by.moment)
    return !fail("proxy-fence", "found " + name + " " + what +
                                    " by another way; expected a fence between "
                                    "ordinary accesses and those of matrix "
                                    "units and boxes");
  return true;
}

void Block::read(int number, int stage, Access access) {
  Memory &m = memory[size_t(placeOf(number, stage))];
  // What has been asked already: nobody has written since.
  if (std::any_of(m.reads.begin(), m.reads.end(), [&](const Access &one) {
        return one.component == access.component &&
               one.moment == access.moment && one.lanes == access.lanes &&
               one.meeting == access.meeting && one.range == access.range;
      }))
    return;
  if (m.writes.empty())
    fail("ordered-access", "found " + program.stages[size_t(stage)] +
                               " read where nobody has written it");
  for (const Access &write : m.writes)
    if (write.range.meets(access.range) &&
        !isSeen(number, access, write,
                access.isAsynchronous && !write.isAsynchronous,
                "read while it may be written", stage))
      return;
  m.wasRead = true;
  m.reads.push_back(access);
}

/// Whether two accesses are of one statement, which may be followed more than
/// once.
static bool areOfOne(const Node &x, const Node &y) {
  return x.op->kind == y.op->kind && !x.op->text.empty() &&
         x.op->text == y.op->text;
}

void Block::write(int number, int stage, Access access) {
  Memory &m = memory[size_t(placeOf(number, stage))];
  for (const Access &read : m.reads)
    if (read.range.meets(access.range) &&
        !isSeen(number, access, read,
                access.isAsynchronous && !read.isAsynchronous,
                "written while it may be read", stage))
      return;
  const Warp &warp = warps[size_t(number)];
  // Warps that copy together have parts of the same place, and so has a group
  // of copies.
  uint16_t committed = warp.copyGroups.empty() ? 0 : warp.copyGroups.back();
  std::vector<Access> kept;
  for (const Access &write : m.writes) {
    bool isOther = write.warp != access.warp;
    bool isGroup = program.isRead && !isOther &&
                   write.component == componentOfCopies(number) &&
                   write.component == access.component &&
                   write.moment > committed;
    uint16_t known = warp.seen.all.at[size_t(write.component)];
    if (write.component == componentOfCopies(number))
      known = std::max(known, warp.ownCopies);
    bool isUnseen = known < write.moment;
    bool isOne = write.node == access.node ||
                 (program.isRead && areOfOne(*write.node, *access.node));
    // What a block leaves for others its threads leave in parts.
    bool isLeft = isOther && tilesOf(stage).isGlobal &&
                  blockOf(write.warp) == blockOf(number);
    bool isPart = (isOne && (isOther || isGroup)) || isLeft;
    // Of the same warp, lanes have parts.
    bool isOfLanes = isOne && !isOther && !access.isAsynchronous &&
                     !write.isAsynchronous &&
                     write.component == access.component &&
                     write.meeting == access.meeting && program.isRead &&
                     write.component == number;
    bool isElsewhere = isOther && tilesOf(stage).isOwn;
    bool isBeside = !write.range.meets(access.range);
    if ((isPart && isUnseen) || isOfLanes || isElsewhere || isBeside)
      kept.push_back(write);
    else if (!isSeen(number, access, write,
                     access.isAsynchronous && !write.isAsynchronous,
                     "written while it may be written", stage))
      return;
  }
  if (kept.empty() && !tilesOf(stage).came.empty() && !m.wasRead)
    fail("stage-read", "found " + program.stages[size_t(stage)] +
                           " written again before it was read");
  m.wasRead = !kept.empty() && m.wasRead;
  bool isOwn = tilesOf(stage).isOwn;
  std::erase_if(m.reads, [&](const Access &read) {
    return read.range.meets(access.range) && (!isOwn || read.warp == number);
  });
  m.writes = std::move(kept);
  m.writes.push_back(access);
}

//===----------------------------------------------------------------------===//
// Copies and boxes
//===----------------------------------------------------------------------===//

void Block::copyBoxes(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  int gate = gateOf(number, event.gate);
  Gate &g = gates[size_t(gate)];
  if (g.maker >= 0 && warp.seen.shown.at[size_t(g.maker)] < g.made)
    fail("proxy-fence", "found boxes that arrive at " + nameOf(gate) +
                            ", which they have not been shown; expected a "
                            "fence after it is made");
  int place = placeOf(number, event.to);
  Access copy = accessOf(number, event);
  copy.component = componentOfBoxes(place);
  copy.moment = ++boxes[size_t(place)];
  copy.isAsynchronous = true;
  write(number, event.to, copy);
  arrive(number, gate, event.lanes, -1, place);
}

/// An arrival at a phase that is not over before so many bytes have come.
void Block::expect(int number, const Event &event) {
  int gate = gateOf(number, event.gate);
  Gate &g = gates[size_t(gate)];
  g.owed += event.count * event.lanes;
  arrive(number, gate, event.lanes, -1, -1);
}

/// In shared memory first, then where boxes are told of it.
void Block::makeMap(int number, const Event &event) {
  if (event.reads[0] >= 0)
    write(number, event.reads[0], accessOf(number, event));
  write(number, event.to, accessOf(number, event));
  warps[size_t(number)].maps.insert(event.to);
}

/// One of the boxes that a gate expects.
void Block::copyBox(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  int gate = gateOf(number, event.gate);
  Gate &g = gates[size_t(gate)];
  if (g.maker >= 0 && !g.isShown &&
      warp.seen.shown.at[size_t(g.maker)] < g.made)
    fail("proxy-fence", "found boxes that arrive at " + nameOf(gate) +
                            ", which they have not been shown; expected a "
                            "fence after it is made");
  if (event.reads[0] >= 0 && !warp.maps.count(event.reads[0])) {
    fail("proxy-fence", "found boxes of " +
                            program.stages[size_t(event.reads[0])] +
                            ", which is not seen; expected see_map before");
    return;
  }
  int place = placeOf(number, event.to);
  Access copy = accessOf(number, event);
  copy.component = componentOfBoxes(place);
  copy.moment = ++boxes[size_t(place)];
  copy.isAsynchronous = true;
  write(number, event.to, copy);
  int64_t bytes = constantIn(tilesOf(event.to).bytes).value_or(0);
  if (bytes > g.owed) {
    fail("gate-bytes", "found " + std::to_string(bytes) +
                           " bytes that come to " + nameOf(gate) +
                           ", which expects " + std::to_string(g.owed));
    return;
  }
  g.owed -= bytes;
  g.here.all.at[size_t(copy.component)] = copy.moment;
  g.here.shown.at[size_t(copy.component)] = copy.moment;
  endPhase(g);
}

void Block::waitCopies(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  if (!program.isRead) {
    warp.seen.all.at[size_t(componentOfCopies(number))] =
        uint16_t(std::max<int64_t>(warp.copies - event.count, 0));
    return;
  }
  // What is in no group is not waited for.
  int64_t groups = int64_t(warp.copyGroups.size()) - event.count;
  if (groups > 0)
    warp.ownCopies =
        std::max(warp.ownCopies, warp.copyGroups[size_t(groups) - 1]);
}

void Block::waitStores(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  int64_t groups = int64_t(warp.storeGroups) - event.count;
  Seen over;
  over.all.at[size_t(componentOfStores(number))] =
      uint16_t(std::max<int64_t>(groups, 0));
  learn(number, event, over);
}

void Block::show(int number, const Event &event) {
  Warp &warp = warps[size_t(number)];
  if (event.lanes == 32 || !program.isRead) {
    warp.seen.shown.join(warp.seen.all);
  } else {
    Seen known = warp.seen;
    known.join(warp.ofLanes);
    // What other lanes have written is theirs to show.
    known.all.at[size_t(number)] = 0;
    known.all.at[size_t(componentOfCopies(number))] = 0;
    warp.ofLanes.shown.join(known.all);
    for (Gate &gate : gates)
      gate.isShown |= gate.maker == number;
  }
  // What is written later is not shown.
  release(number);
}
