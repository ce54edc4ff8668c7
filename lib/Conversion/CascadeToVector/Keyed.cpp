// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// States with a carried index of which every element has one place: the mean of
// each channel beside the mean of all. Only that place is summed and moved; all
// others stay relative to the pivots of the tile that touched them last, which
// are kept beside them, and are moved once when the stream has ended.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

void Kernel::layOutKeyed(unsigned pass) {
  for (StatePlan &s : plan.states) {
    if (s.pass != pass || s.keys.empty())
      continue;
    NodeSet all;
    collect(s.moved, all);
    for (Node *n : all) {
      if (n->kind != Node::Old ||
          plan.states[n->state].form == StatePlan::Matrix)
        continue;
      Placed &p = placed[{unsigned(n->state), s.keyGroup}];
      if (p.keyed)
        continue;
      p.keyed = &s;
      p.array = makeArray(n->set | s.keySet(), n->type,
                          llvm::countr_zero(s.keySet()));
    }
  }
}

void Kernel::initialiseKeyed(unsigned pass) {
  for (auto &[key, p] : placed) {
    if (p.keyed->pass != pass)
      continue;
    StatePlan &s = plan.states[key.first];
    Nest nest;
    nest.out = s.set | p.keyed->keySet();
    nest.lane = llvm::countr_zero(p.keyed->keySet());
    auto init = [&](Tile &, int, int) { return identity(s); };
    auto sink = [&, &array = p.array](Tile &t, int r, int c, Val v) {
      writeArray(t, array, r, c, v);
    };
    nest.init = init;
    nest.sink = sink;
    emitNest(nest);
  }
}

const Array &Kernel::placedPivot(Tile &t, Node *old) {
  return placed.at({unsigned(old->state), t.keyed->keyGroup}).array;
}

/// Values of the row before the tile are others at the place in work.
bool Kernel::isPlacedOld(Tile &t, Node *n) {
  if (!t.keyed)
    return false;
  NodeSet all;
  collect(n, all);
  return llvm::any_of(all, [](Node *x) { return x->kind == Node::Old; });
}

/// `t` runs along the tiled stream; the same registers along the places.
Tile Kernel::placeTile(Tile &t, const StateKey &key) {
  Tile at(plan.cascade.numIndices());
  static_cast<TileShape &>(at) = t;
  at.lane = key.carried;
  for (Ix &local : at.laneLocal)
    local = to.add(base[key.stream], local);
  if (at.laneLimit)
    at.laneLimit = to.add(base[key.stream], *at.laneLimit);
  return at;
}

/// Each position of the tile has a place of its own: nothing is summed.
void Kernel::keyedAlongStream(StatePlan &s, const StateKey &key) {
  Nest nest;
  nest.keyed = &s;
  nest.out = (s.set & ~s.keySet()) | bit(key.stream);
  nest.lane = key.stream;
  nest.term = s.term;
  auto init = [&](Tile &t, int r, int c) {
    return to.splat(eval(t, s.term, r, c));
  };
  Array &array = arrays[s.number].values[0];
  auto sink = [&](Tile &t, int r, int c, Val v) {
    if (t.laneLimit)
      v = to.select(maskOf(t, c), v, to.splat(identity(s)));
    Tile at = placeTile(t, key);
    Val moved = to.splat(eval(at, s.moved, r, c));
    writeArray(at, array, r, c, to.binary(s.combine, v, moved));
  };
  nest.init = init;
  nest.sink = sink;
  emitNest(nest);
}

void Kernel::keyedState(StatePlan &s) {
  for (const StateKey &key : s.keys)
    if (int(key.stream) == plan.stream)
      return keyedAlongStream(s, key);
  Nest nest;
  nest.keyed = &s;
  nest.out = s.set & ~s.keySet();
  nest.reduced = {unsigned(plan.stream)};
  nest.term = s.term;
  nest.combine = s.combine;
  nest.identity = identityOf(s.op.getReducer(), s.type());
  nest.lanesReduced = (s.keySet() & bit(s.lane)) != 0;
  nest.lane = nest.lanesReduced ? kNone : s.lane;
  nest.readsPanels = !nest.lanesReduced;
  Array &array = arrays[s.number].values[0];
  Val start = to.constant(nest.identity);
  auto init = [&](Tile &, int, int) { return to.splat(start); };
  auto sink = [&](Tile &t, int r, int c, Val v) {
    if (nest.lanesReduced)
      v = to.reduceLanes(s.combine, v);
    writeArray(t, array, r, c, accumulate(t, s.combine, s.moved, v, r, c));
  };
  nest.init = init;
  nest.sink = sink;
  emitNest(nest);
}

/// The places of this tile are now relative to its pivots.
void Kernel::placePivots(unsigned pass) {
  for (auto &[number, p] : placed) {
    if (p.keyed->pass != pass)
      continue;
    StatePlan &s = plan.states[number.first];
    Node *now = plan.graph->version(s.op, Node::New);
    const StateKey *along = nullptr;
    for (const StateKey &key : p.keyed->keys)
      if (int(key.stream) == plan.stream)
        along = &key;
    Nest nest;
    nest.keyed = p.keyed;
    nest.out = s.set | (along ? bit(along->stream) : 0);
    nest.lane = along ? along->stream : kNone;
    auto init = [&](Tile &t, int r, int c) { return eval(t, now, r, c); };
    auto sink = [&, &array = p.array](Tile &t, int r, int c, Val v) {
      if (!along)
        return writeArray(t, array, r, c, v);
      Tile at = placeTile(t, *along);
      v = to.splat(v);
      if (t.laneLimit)
        v = to.select(maskOf(t, c), v, readArray(at, array, r, c));
      writeArray(at, array, r, c, v);
    };
    nest.init = init;
    nest.sink = sink;
    emitNest(nest);
  }
}

/// All places at the pivots of the whole stream.
void Kernel::settlePlaces(unsigned pass) {
  for (StatePlan &s : llvm::reverse(plan.states)) {
    if (s.pass != pass || s.keys.empty() || s.moved->kind == Node::Old)
      continue;
    Nest nest;
    nest.keyed = &s;
    nest.out = s.set;
    nest.lane = s.lane;
    Array &array = arrays[s.number].values[0];
    // A tile remembers values of the row for all its registers; here they
    // differ from place to place.
    auto init = [&](Tile &t, int r, int c) {
      Tile at(plan.cascade.numIndices());
      static_cast<TileShape &>(at) = t;
      return eval(at, s.moved, r, c);
    };
    auto sink = [&](Tile &t, int r, int c, Val v) {
      writeArray(t, array, r, c, v);
    };
    nest.init = init;
    nest.sink = sink;
    emitNest(nest);
  }
}
