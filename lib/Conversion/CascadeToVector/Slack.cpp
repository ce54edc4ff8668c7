// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Extremes and what is summed about them in one traversal of a tile. A pivot
// need not be the extreme so far: the transport moves a state between any two.
// So it stays where it is until an element exceeds it by more than a slack,
// which hardly ever happens after the first registers of a row, and what is
// summed moves to the extreme once, behind the tile.
#include "Planner.h"

#include "Kernel.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

namespace {
/// Formulas in double precision, with values given to some of their nodes.
class Probe {
public:
  void set(Node *n, double value) { values[n] = value; }
  std::optional<double> of(Node *n) {
    if (auto it = values.find(n); it != values.end())
      return it->second;
    std::optional<double> v = fresh(n);
    if (v)
      values[n] = *v;
    return v;
  }

private:
  std::optional<double> fresh(Node *n) {
    if (n->kind == Node::Const) {
      auto value =
          dyn_cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
      return value ? std::optional(value.getValueAsDouble()) : std::nullopt;
    }
    if (n->kind != Node::Elem)
      return std::nullopt;
    if (auto select = dyn_cast<arith::SelectOp>(n->op)) {
      std::optional<double> condition = of(n->in[0]);
      return condition ? of(n->in[*condition != 0 ? 1 : 2]) : std::nullopt;
    }
    SmallVector<double> in;
    for (Node *i : n->in) {
      std::optional<double> v = of(i);
      if (!v)
        return std::nullopt;
      in.push_back(*v);
    }
    return arithmetic(n->op, in);
  }

  static std::optional<double> arithmetic(Operation *op, ArrayRef<double> in) {
    using R = std::optional<double>;
    using P = arith::CmpFPredicate;
    return llvm::TypeSwitch<Operation *, R>(op)
        .Case([&](arith::AddFOp) { return R(in[0] + in[1]); })
        .Case([&](arith::SubFOp) { return R(in[0] - in[1]); })
        .Case([&](arith::MulFOp) { return R(in[0] * in[1]); })
        .Case([&](arith::DivFOp) { return R(in[0] / in[1]); })
        .Case([&](arith::NegFOp) { return R(-in[0]); })
        .Case<arith::ExtFOp>([&](auto) { return R(in[0]); })
        .Case([&](math::ExpOp) { return R(std::exp(in[0])); })
        .Case([&](math::Exp2Op) { return R(std::exp2(in[0])); })
        .Case([&](math::ExpM1Op) { return R(std::expm1(in[0])); })
        .Case<arith::MaxNumFOp, arith::MaximumFOp>(
            [&](auto) { return R(std::max(in[0], in[1])); })
        .Case<arith::MinNumFOp, arith::MinimumFOp>(
            [&](auto) { return R(std::min(in[0], in[1])); })
        .Case([&](arith::AndIOp) { return R(in[0] != 0 && in[1] != 0); })
        .Case([&](arith::OrIOp) { return R(in[0] != 0 || in[1] != 0); })
        .Case([&](arith::CmpFOp compare) {
          return compare.getPredicate() == P::OEQ ? R(in[0] == in[1])
                                                  : std::nullopt;
        })
        .Default([](Operation *) { return R(); });
  }
  llvm::DenseMap<Node *, double> values;
};
} // namespace

static bool isExtreme(StatePlan &s) {
  return s.form == StatePlan::Reduced &&
         llvm::is_contained(
             {Reducer::Max, Reducer::MaxNum, Reducer::Min, Reducer::MinNum},
             s.op.getReducer());
}

static bool isMinimum(StatePlan &s) {
  return s.op.getReducer() == Reducer::Min ||
         s.op.getReducer() == Reducer::MinNum;
}

/// The extreme itself, or kept away from an infinity by a constant.
static Node *extremeOf(Node *pivot, Node::Kind version) {
  if (pivot->kind == version)
    return pivot;
  if (pivot->kind != Node::Elem ||
      !isa<arith::MaxNumFOp, arith::MaximumFOp, arith::MinNumFOp,
           arith::MinimumFOp>(pivot->op))
    return nullptr;
  for (unsigned i : {0, 1})
    if (pivot->in[i]->kind == version && pivot->in[1 - i]->kind == Node::Const)
      return pivot->in[i];
  return nullptr;
}

bool walk::readsOnly(Node *root, function_ref<bool(Node *)> isKnown) {
  if (isKnown(root))
    return true;
  if (root->kind == Node::Old || root->kind == Node::New ||
      root->kind == Node::Contract)
    return false;
  return llvm::all_of(root->in, [&](Node *n) { return readsOnly(n, isKnown); });
}

/// The pivots of `s`, added to those found; false where one is no extreme of
/// the level below.
bool Planner::addLazyPivots(StatePlan &s, LazyPivots &lazy) {
  Graph::Instance now(s.pass, Node::New), old(s.pass, Node::Old);
  for (Value value : s.op.getPivots()) {
    LazyPivots::Pivot pivot{plan->graph->instantiate(value, now),
                            plan->graph->instantiate(value, old)};
    Node *extreme = extremeOf(pivot.now, Node::New);
    if (!extreme || !extremeOf(pivot.old, Node::Old))
      return false;
    pivot.state = extreme->state;
    StatePlan &key = plan->states[pivot.state];
    if (key.pass != s.pass || key.level != lazy.level || !isExtreme(key) ||
        key.set != s.set || !plan->hasStream(key.term->set))
      return false;
    if (llvm::none_of(lazy.pivots, [&](const LazyPivots::Pivot &other) {
          return other.now == pivot.now;
        }))
      lazy.pivots.push_back(pivot);
  }
  return !s.op.getPivots().empty();
}

/// Whether what elements add, and what the transport makes of it, stays far
/// from the end of the range while elements are up to the slack beyond their
/// pivots.
bool Planner::staysInRange(StatePlan &s, const LazyPivots &lazy) {
  constexpr double kMost = 0x1p64; // of 2^127, over 2^40 elements
  auto isSmall = [](std::optional<double> v) {
    return v && std::abs(*v) <= kMost; // not of a NaN
  };
  for (double base : {0.0, 1000.0, -1000.0, 0x1p24, -0x1p24})
    for (double share : {1.0, 0.5}) {
      Probe element, moved;
      for (const LazyPivots::Pivot &pivot : lazy.pivots) {
        StatePlan &key = plan->states[pivot.state];
        double beyond = (isMinimum(key) ? -share : share) * lazy.slack;
        element.set(key.term, base + beyond);
        element.set(pivot.now, base);
        moved.set(pivot.old, base + beyond);
        moved.set(pivot.now, base);
      }
      moved.set(plan->graph->version(s.op, Node::Old), 1);
      for (Value with : s.op.getWith())
        moved.set(
            plan->graph->version(with.getDefiningOp<StateOp>(), Node::Old), 1);
      if (!isSmall(element.of(s.term)) || !isSmall(moved.of(s.moved)))
        return false;
    }
  return true;
}

/// Whether the transport is right of elements beyond the pivot that they are
/// moved from. One that asks where the extreme is attained is not: such an
/// element would have to be found again.
bool Planner::movesBeyond(StatePlan &s, const LazyPivots &lazy) {
  auto added = [&](StatePlan &of, double base, double share, double at) {
    Probe element;
    for (const LazyPivots::Pivot &pivot : lazy.pivots) {
      StatePlan &key = plan->states[pivot.state];
      double side = isMinimum(key) ? -lazy.slack : lazy.slack;
      element.set(key.term, base + share * side);
      element.set(pivot.now, base + at * side);
    }
    return element.of(of.term);
  };
  for (double base : {0.0, 1000.0, -1000.0})
    for (double share : {1.0, 0.5}) {
      Probe moved;
      for (const LazyPivots::Pivot &pivot : lazy.pivots) {
        bool isMin = isMinimum(plan->states[pivot.state]);
        moved.set(pivot.old, base);
        moved.set(pivot.now, base + (isMin ? -lazy.slack : lazy.slack));
      }
      std::optional<double> own = added(s, base, share, 0);
      std::optional<double> there = added(s, base, share, 1);
      if (!own || !there)
        return false;
      moved.set(plan->graph->version(s.op, Node::Old), *own);
      for (Value value : s.op.getWith()) {
        auto with = value.getDefiningOp<StateOp>();
        std::optional<double> other =
            added(plan->states[plan->graph->numberOf(with)], base, share, 0);
        if (!other)
          return false;
        moved.set(plan->graph->version(with, Node::Old), *other);
      }
      // Moments cancel as they move.
      double size = std::abs(s.op.getWith().empty() ? *there : *own);
      std::optional<double> v = moved.of(s.moved);
      if (!v || !(std::abs(*v - *there) <= 1e-6 * size))
        return false;
    }
  return true;
}

bool Planner::isLazy(StatePlan &s, ArrayRef<StatePlan *> sums,
                     const LazyPivots &lazy) {
  auto isPivot = [&](Node *n) {
    return llvm::any_of(lazy.pivots, [&](const LazyPivots::Pivot &pivot) {
      return n == pivot.now || n == pivot.old;
    });
  };
  auto isMoved = [&](Node *n) {
    return isPivot(n) || llvm::any_of(sums, [&](StatePlan *other) {
             return n == plan->graph->version(other->op, Node::Old);
           });
  };
  return readsOnly(s.term, isPivot) && readsOnly(s.moved, isMoved) &&
         staysInRange(s, lazy) && movesBeyond(s, lazy);
}

/// A moment about a pivot that lags behind cancels when it moves: it may lag
/// less. e^2 and e^16 are far from the end of the range.
void Planner::findLazyPivots(unsigned pass) {
  constexpr double kSlack = 16, kSlackOfMoments = 2;
  PassPlan &p = plan->passes[pass];
  for (Step &step : p.steps) {
    if (step.kind != Step::Rows || step.rowLanes || plan->stream == kNone)
      continue;
    for (unsigned level = step.firstLevel; level < step.lastLevel; ++level) {
      LazyPivots lazy;
      lazy.level = level;
      lazy.slack = kSlack;
      SmallVector<StatePlan *> sums;
      bool holds = llvm::none_of(p.kept, [&](Node *n) {
        return plan->hasStream(n->set) && plan->hasRow(n->set) == step.hasRow &&
               (n->level == level || n->level == level + 1);
      });
      for (StatePlan &s : plan->states) {
        if (s.pass != pass || plan->hasRow(s.set) != step.hasRow ||
            s.form == StatePlan::Matrix || s.takesCandidates)
          continue;
        holds &= s.form != StatePlan::Ordered ||
                 (s.level != level && s.level != level + 1);
        if (s.level != level + 1)
          continue;
        sums.push_back(&s);
        holds = holds && s.combine == Binary::AddF && !s.isCount &&
                plan->hasStream(s.term->set) && addLazyPivots(s, lazy);
        if (!s.op.getWith().empty())
          lazy.slack = kSlackOfMoments;
      }
      if (!holds || sums.empty() || !llvm::all_of(sums, [&](StatePlan *s) {
            return isLazy(*s, sums, lazy);
          }))
        continue;
      p.lazy = std::move(lazy);
      return;
    }
  }
}

/// A tile that is traversed once need not stay in a cache, and its end costs
/// what some registers cost. Sapphire Rapids, one thread, tiles of 1024 and
/// 4096: LayerNorm 512 x 32768 4.65 ms and 4.54, 1024 x 16384 4.68 and 4.53,
/// 4096 x 4096 (one tile) 4.48 and 4.16. A sum that is a result errs by the
/// length of its chain: one about pivots that trail (a mean of 12288, 3.5e-6
/// with 4096, unfused 0.9e-6) stays in short tiles.
void Planner::lengthenTiles() {
  constexpr int64_t kLong = 4096;
  Plan &p = *plan;
  bool isOnce = (p.hasShortRows() || !p.flat.empty()) &&
                llvm::all_of(p.passes, [&](PassPlan &pass) {
                  int last =
                      pass.lazy ? int(pass.lazy->level) + 1
                      : pass.trailing && hidesChains(&pass - p.passes.data())
                          ? int(pass.trailing->level) + 1
                          : -1;
                  return !pass.guards.empty() ||
                         llvm::all_of(pass.steps, [&](const Step &step) {
                           return int(step.lastLevel) <= last;
                         });
                });
  bool hasLists = llvm::any_of(
      p.states, [](const StatePlan &s) { return s.takesCandidates; });
  if (!isOnce || hasLists || p.tileStream > kLong)
    return;
  chooseStreamTile(kLong / p.registerLanes * p.registerLanes);
}

//===----------------------------------------------------------------------===//
// The walk
//===----------------------------------------------------------------------===//

/// Not where exponentials about the extreme are kept for the sweep, nor of rows
/// side by side that are known to be as short as a few registers: level by
/// level they wait for nothing. Sapphire Rapids, one thread, 262144 x 64, open
/// extents, level by level and at once: entropy 3.31 ms and 3.79, token
/// statistics 9.9 and 11.0. There a body for each would take a fifth more time
/// to compile.
bool Kernel::isLazy(unsigned pass, Step &step, unsigned level) {
  constexpr int64_t kShort = 128;
  std::optional<LazyPivots> &lazy = plan.passes[pass].lazy;
  if (!lazy || lazy->level != level || level < step.firstLevel ||
      level >= step.lastLevel ||
      (isJoined && step.hasRow && !onlyRow &&
       (!firstOfGroup || (valid.isConstant() && valid.constant <= kShort))))
    return false;
  StatePlan &key = plan.states[lazy->pivots[0].state];
  if (!belongs(step, key.set))
    return false;
  for (unsigned l : {level, level + 1})
    if (!workOf(pass, step, l).wide.empty())
      return false;
  return true;
}

/// The sums `of` about the pivots `from`, about `to`; in registers of lanes or
/// as numbers, as they come.
Kernel::Values Kernel::moveSums(const LazyPivots &lazy,
                                ArrayRef<StatePlan *> of, ArrayRef<Val> sums,
                                ArrayRef<Val> from, ArrayRef<Val> into,
                                Tile &head) {
  Tile t(plan.cascade.numIndices());
  static_cast<TileShape &>(t) = head;
  for (auto [pivot, old, now] : llvm::zip(lazy.pivots, from, into)) {
    t.memo[keyOf(t, pivot.old, 0, 0)] = old;
    t.memo[keyOf(t, pivot.now, 0, 0)] = now;
  }
  for (auto [s, sum] : llvm::zip(of, sums))
    t.memo[keyOf(t, plan.graph->version(s->op, Node::Old), 0, 0)] = sum;
  Values moved;
  for (auto [s, sum] : llvm::zip(of, sums)) {
    Val v = eval(t, s->moved, 0, 0);
    moved.push_back(sum.wide ? to.splat(v) : v);
  }
  return moved;
}

/// What loops carry: pivots (a register whose lanes are equal, so that the rare
/// move of the sums needs no constants of its own), then a register of each
/// state of the lower level, then `numHeld` registers of each sum: its parts
/// and, where chains end within the tile, a total. Last the totals of those of
/// the lower level that are no extremes.
struct Kernel::LazySums {
  static constexpr int64_t kParts = 4;
  const LazyPivots &lazy;
  RowWork low, high;
  Tile &head;
  bool isLast; ///< of all passes: the sweep is next
  bool endsChains;
  int64_t numHeld = kParts + endsChains;
  size_t numPivots() const { return lazy.pivots.size(); }
  size_t firstSum() const { return numPivots() + low.states.size(); }
  /// `body` with each state of the lower level that has a total, the place of
  /// its register and that of the total.
  void eachTotal(function_ref<void(StatePlan &, size_t, size_t)> body) const {
    size_t total = firstSum() + high.states.size() * numHeld;
    for (auto [i, s] : llvm::enumerate(low.states))
      if (endsChains && !isExtreme(*s))
        body(*s, numPivots() + i, total++);
  }
};

/// Where an element of these registers is beyond the slack: the pivots become
/// the extremes so far, and the sums are moved there.
void Kernel::followExtremes(LazySums &work, ArrayRef<Val> best, Values &acc) {
  Builder b(plan.cascade.getContext());
  Val isBeyond;
  for (auto [i, pivot] : llvm::enumerate(work.lazy.pivots)) {
    StatePlan &key = plan.states[pivot.state];
    bool isMin = isMinimum(key);
    Val slack = to.constant(
        b.getFloatAttr(key.type(), isMin ? -work.lazy.slack : work.lazy.slack));
    Val limit = to.binary(Binary::AddF, acc[i], to.splat(slack));
    size_t at = llvm::find(work.low.states, &key) - work.low.states.begin();
    Val beyond =
        to.compare(isMin ? Compare::OLT : Compare::OGT, best[at], limit);
    isBeyond = isBeyond ? to.binary(Binary::OrI, isBeyond, beyond) : beyond;
  }
  Val moves = to.reduceLanes(Binary::OrI, isBeyond);
  // At most once: an extreme that drops NaNs may stay below its elements.
  Values carried{moves};
  carried.append(acc);
  carried = to.repeat(
      carried, [](ArrayRef<Val> in) { return in[0]; },
      [&](ArrayRef<Val> in) {
        Values now(in);
        now[0] = to.constant(b.getBoolAttr(false));
        ArrayRef<Val> values = in.drop_front();
        Tile t(plan.cascade.numIndices());
        static_cast<TileShape &>(t) = work.head;
        // Of all tiles so far: beside another pivot that moves, one that no
        // element of this tile exceeds must not move back.
        for (const LazyPivots::Pivot &pivot : work.lazy.pivots) {
          StatePlan &key = plan.states[pivot.state];
          size_t at =
              llvm::find(work.low.states, &key) - work.low.states.begin();
          Val before =
              eval(work.head, plan.graph->version(key.op, Node::Old), 0, 0);
          Val &lanes = now[1 + work.numPivots() + at];
          Val best = to.reduceLanes(key.combine, lanes);
          // In every lane, so that the loop changes it: what does not change
          // would be reduced before the loop, where all groups come by.
          lanes = to.binary(key.combine, lanes, to.splat(best));
          t.memo[keyOf(t, plan.graph->version(key.op, Node::New), 0, 0)] =
              to.binary(key.combine, best, before);
        }
        Values pivots;
        for (const LazyPivots::Pivot &pivot : work.lazy.pivots)
          pivots.push_back(to.splat(eval(t, pivot.now, 0, 0)));
        for (int64_t part = 0; part < work.numHeld; ++part) {
          Values sums;
          for (size_t k = 0; k < work.high.states.size(); ++k)
            sums.push_back(values[work.firstSum() + k * work.numHeld + part]);
          sums =
              moveSums(work.lazy, work.high.states, sums,
                       values.take_front(work.numPivots()), pivots, work.head);
          for (size_t k = 0; k < work.high.states.size(); ++k)
            now[1 + work.firstSum() + k * work.numHeld + part] = sums[k];
        }
        llvm::copy(pivots, now.begin() + 1);
        return now;
      });
  acc.assign(carried.begin() + 1, carried.end());
}

/// What column `c` adds to a state: nothing in lanes that are outside.
Val Kernel::termOf(StatePlan &s, Tile &t, int64_t c) {
  Val v = to.splat(eval(t, s.term, 0, c));
  return t.laneLimit ? to.select(maskOf(t, c), v, to.splat(identity(s))) : v;
}

Val Kernel::combineGroup(StatePlan &s, Tile &inside, int64_t count) {
  Values level;
  for (int64_t c = 0; c < count; ++c)
    level.push_back(termOf(s, inside, c));
  for (; level.size() > 1; level.resize(level.size() / 2))
    for (size_t k = 0; k < level.size() / 2; ++k)
      level[k] = to.binary(s.combine, level[k], level[k + level.size() / 2]);
  return level[0];
}

/// A few registers of the row.
Kernel::Values Kernel::lazyGroup(LazySums &work, const Ahead &ahead,
                                 Tile &inside, int64_t count, Values acc) {
  Values best;
  for (auto [i, s] : llvm::enumerate(work.low.states)) {
    best.push_back(combineGroup(*s, inside, count));
    Val &sum = acc[work.numPivots() + i];
    sum = to.binary(s->combine, best.back(), sum);
  }
  followExtremes(work, best, acc);
  // What the registers hold is read again: kept beside the sums it would be in
  // memory too, and would have to be written there.
  Tile lazy(inside.outer);
  static_cast<TileShape &>(lazy) = inside;
  lazy.isCoarse = true;
  for (auto [i, pivot] : llvm::enumerate(work.lazy.pivots))
    lazy.memo[keyOf(lazy, pivot.now, 0, 0)] = acc[i];
  bool isAsking = !inside.laneLimit || inside.laneLocal[0].is(0);
  for (int64_t c = 0; c < count; ++c) {
    for (auto [k, s] : llvm::enumerate(work.high.states)) {
      Val &part =
          acc[work.firstSum() + k * work.numHeld + c % LazySums::kParts];
      part = to.binary(s->combine, termOf(*s, lazy, c), part);
    }
    if (isAsking)
      prefetchAhead(inside, ahead, c);
    if (isAsking && work.isLast)
      prefetchResults(inside, c);
  }
  return acc;
}

Val Kernel::pivotAt(const LazyPivots::Pivot &pivot, Tile &head, Val extreme) {
  Tile t(plan.cascade.numIndices());
  static_cast<TileShape &>(t) = head;
  Node *now = plan.graph->version(plan.states[pivot.state].op, Node::New);
  t.memo[keyOf(t, now, 0, 0)] = extreme;
  return to.splat(eval(t, pivot.now, 0, 0));
}

/// Two levels of the row of `work.head`, or of the numbers without one: the
/// pivots, which `init` has before it, then of each state what was added, a
/// number a lane.
Kernel::Values Kernel::traverseOnce(LazySums &work, unsigned level, Step &step,
                                    bool isChecked, Values init) {
  Tile &head = work.head;
  for (StatePlan *s : work.low.states)
    preload(head, s->term, bit(plan.stream));
  SmallVector<StatePlan *> all;
  if (level + 1 == step.lastLevel && !isChecked)
    for (RowWork *part : {&work.low, &work.high})
      all.append(part->states);
  Ahead ahead = readsToPrefetch(all, /*isInCache=*/false);
  for (StatePlan *s : work.low.states)
    init.push_back(to.splat(identity(*s)));
  for (StatePlan *s : work.high.states)
    init.append(work.numHeld, to.splat(identity(*s)));
  work.eachTotal([&](StatePlan &s, size_t, size_t) {
    init.push_back(to.splat(identity(s)));
  });
  isLazyStep = true;
  Values found = columns(
      step, isChecked, head, init,
      [&](Tile &inside, int64_t count, Values acc) {
        return lazyGroup(work, ahead, inside, count, acc);
      },
      [&](Values acc) {
        for (auto [k, s] : llvm::enumerate(work.high.states)) {
          auto held = MutableArrayRef(acc).slice(
              work.firstSum() + k * work.numHeld, work.numHeld);
          closeChain(held.drop_back(), held.back(), *s);
        }
        work.eachTotal([&](StatePlan &s, size_t sum, size_t total) {
          acc[total] = to.binary(s.combine, acc[sum], acc[total]);
          acc[sum] = to.splat(identity(s));
        });
        return acc;
      });
  isLazyStep = false;
  work.eachTotal([&](StatePlan &s, size_t sum, size_t total) {
    found[sum] = to.binary(s.combine, found[sum], found[total]);
  });
  Values sums(ArrayRef(found).take_front(work.firstSum()));
  for (auto [k, s] : llvm::enumerate(work.high.states)) {
    auto part = [&](unsigned i) {
      return found[work.firstSum() + k * work.numHeld + i];
    };
    Val sum = to.binary(s->combine, to.binary(s->combine, part(0), part(1)),
                        to.binary(s->combine, part(2), part(3)));
    if (work.numHeld > LazySums::kParts)
      sum = to.binary(s->combine, sum, part(LazySums::kParts));
    sums.push_back(sum);
  }
  return sums;
}

/// The extreme of the first registers of a row, a number a lane.
Val Kernel::firstOfRow(StatePlan &key, Tile &row, int64_t count) {
  Tile first(&row);
  first.lane = plan.stream;
  for (int64_t c = 0; c < count; ++c)
    first.laneLocal.push_back(c * to.lanes());
  if (!valid.isConstant() ? count == 1 : valid.constant < count * to.lanes())
    first.laneLimit = valid;
  return to.binary(key.combine, combineGroup(key, first, count),
                   to.splat(identity(key)));
}

/// What pivots begin with: a row has nothing to move before them. One after the
/// other rows wait for that where they are short, and memory rests where they
/// are long and begin together. Sapphire Rapids, one thread, by hand, token
/// statistics of 262144 x 64 7.2 ms, together 5.8; of 65536 x 256 4.8, 4.7; of
/// 16384 x 1024 4.1, 4.4.
void Kernel::firstOfRows(const LazyPivots &lazy, Ix first, Ix count) {
  int64_t lanes = to.lanes();
  to.each(0, count, 1, [&](Ix i) {
    Tile row = tileOf(to.add(first, i));
    for (const LazyPivots::Pivot &pivot : lazy.pivots)
      to.storeWide(firstOfRow(plan.states[pivot.state], row, 1),
                   arrays[pivot.state].lanesOfRows, to.mul(i, lanes), Val());
  });
  for (auto [k, pivot] : llvm::enumerate(lazy.pivots)) {
    Values apart;
    for (int64_t i = 0; i < lanes; ++i)
      apart.push_back(
          to.loadWide(arrays[pivot.state].lanesOfRows, i * lanes, Val()));
    Val best = to.reduceEach(plan.states[pivot.state].combine, apart);
    to.storeWide(best, pivotsOfRows[k], 0, Val());
  }
}

/// The same of as many rows as there are lanes, each by itself; rows are then
/// the lanes of what is found.
Kernel::Values Kernel::traverseEachOnce(LazySums &work, unsigned level,
                                        Step &step, bool isChecked) {
  constexpr int64_t kShort = 256, kFirst = 8;
  Ix first = work.head.laneLocal[0];
  int64_t lanes = to.lanes();
  Ix count =
      work.head.laneLimit ? to.min(lanes, to.sub(rows, first)) : Ix(lanes);
  SmallVector<StatePlan *> states(work.low.states);
  states.append(work.high.states);
  auto whereLong = [&](llvm::function_ref<void()> longRows,
                       llvm::function_ref<void()> shortRows) {
    if (valid.isConstant())
      return valid.constant > kShort ? longRows() : shortRows();
    to.branch(to.less(kShort, valid), longRows, shortRows);
  };
  auto nothing = [] {};
  whereLong(nothing, [&] { firstOfRows(work.lazy, first, count); });
  to.each(0, count, 1, [&](Ix i) {
    Tile row = tileOf(to.add(first, i));
    row.holding = work.head.holding;
    for (StatePlan *s : states)
      row.memo[keyOf(row, plan.graph->version(s->op, Node::Old), 0, 0)] =
          identity(*s);
    LazySums ofRow{work.lazy, work.low,    work.high,
                   row,       work.isLast, work.endsChains};
    whereLong(
        [&] {
          Tile inside = row;
          for (auto [k, pivot] : llvm::enumerate(work.lazy.pivots)) {
            StatePlan &key = plan.states[pivot.state];
            to.store(
                to.reduceLanes(key.combine, firstOfRow(key, inside, kFirst)),
                pivotsOfRows[k], i);
          }
        },
        nothing);
    Values init;
    for (auto [k, pivot] : llvm::enumerate(work.lazy.pivots))
      init.push_back(pivotAt(pivot, row, to.load(pivotsOfRows[k], i)));
    Values found = traverseOnce(ofRow, level, step, isChecked, init);
    for (size_t k = 0; k < work.numPivots(); ++k)
      to.store(to.extract(found[k], 0), pivotsOfRows[k], i);
    for (auto [s, sum] :
         llvm::zip(states, ArrayRef(found).drop_front(work.numPivots())))
      to.storeWide(sum, arrays[s->number].lanesOfRows, to.mul(i, lanes), Val());
  });
  Values found;
  for (size_t k = 0; k < work.numPivots(); ++k)
    found.push_back(to.loadWide(pivotsOfRows[k], 0, Val()));
  for (StatePlan *s : states) {
    Values apart;
    for (int64_t i = 0; i < lanes; ++i)
      apart.push_back(
          to.loadWide(arrays[s->number].lanesOfRows, i * lanes, Val()));
    found.push_back(to.reduceEach(s->combine, apart));
  }
  return found;
}

/// Two levels of a row step in one traversal. The extremes are then known, and
/// what is about them follows.
void Kernel::lazyLevels(unsigned pass, Step &step, unsigned level,
                        bool isChecked, Tile &head) {
  LazySums work{*plan.passes[pass].lazy,
                workOf(pass, step, level),
                workOf(pass, step, level + 1),
                head,
                pass + 1 == plan.passes.size() && level + 1 == step.lastLevel,
                positionsOfChain(step, LazySums::kParts) != 0};
  bool areRows = isJoined && step.hasRow && !onlyRow;
  startLevel(work.low, head);
  Values found;
  if (areRows) {
    found = traverseEachOnce(work, level, step, isChecked);
  } else {
    for (const LazyPivots::Pivot &pivot : work.lazy.pivots) {
      Node *old = plan.graph->version(plan.states[pivot.state].op, Node::Old);
      found.push_back(pivotAt(pivot, head, eval(head, old, 0, 0)));
    }
    found = traverseOnce(work, level, step, isChecked, found);
  }
  auto settle = [&](StatePlan &s, Val sum) {
    if (areRows)
      return settleJoined(s, sum, head);
    updateState(s, head,
                s.form == StatePlan::Reduced ? to.reduceLanes(s.combine, sum)
                                             : sum);
  };
  for (auto [i, s] : llvm::enumerate(work.low.states))
    settle(*s, found[work.numPivots() + i]);
  startLevel(work.high, head);
  Values pivots;
  for (const LazyPivots::Pivot &pivot : work.lazy.pivots)
    pivots.push_back(to.splat(eval(head, pivot.now, 0, 0)));
  Values sums = moveSums(
      work.lazy, work.high.states, ArrayRef(found).drop_front(work.firstSum()),
      ArrayRef(found).take_front(work.numPivots()), pivots, head);
  for (auto [s, sum] : llvm::zip(work.high.states, sums))
    settle(*s, sum);
}
