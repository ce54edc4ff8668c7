// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Exponentials of a row that are too small for a normal number, where they are
// factors of elements of another array (the probabilities of attention far from
// its largest score). A machine takes some hundred times as long to make one,
// and to multiply by it, as it takes for others: 12 heads of 512 x 64 with a
// penalty of the distance 33 ms instead of 4.3 (Sapphire Rapids). They are 0 as
// soon as one is met, unless what they are multiplied by is so large, infinite
// or a NaN that it might show: then the pass is walked again as written.
#include "Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// The element of another array, which all rows of a tile share, that `term`
/// multiplies `power` by.
static Node *factorOf(Plan &plan, Node *term, Node *power) {
  if (term->kind != Node::Elem || !isa<arith::MulFOp>(term->op) ||
      term->in[0] == term->in[1])
    return nullptr;
  Node *factor = term->in[term->in[0] == power ? 1 : 0];
  Node *read = factor->kind == Node::Elem && isa<arith::ExtFOp>(factor->op)
                   ? factor->in[0]
                   : factor;
  bool isShared = !plan.hasRow(read->set) || plan.tileRows == 1;
  return read->kind == Node::Read && isShared ? factor : nullptr;
}

/// Of what may be 0 beside 1 (`flushed`, before its users are asked), what
/// nothing reads but sums and products of sums by columns.
void Kernel::findSmallPowers(const NodeSet &all) {
  for (Node *power : flushed) {
    SmallVector<SmallPower, 2> uses;
    bool isFactor = true;
    for (Node *user : all) {
      if (!llvm::is_contained(user->in, power))
        continue;
      auto sum = llvm::find_if(plan.states, [&](StatePlan &s) {
        return s.form == StatePlan::Matrix && s.term == user &&
               s.keys.empty() && s.combine == Binary::AddF;
      });
      Node *factor = factorOf(plan, user, power);
      isFactor &= factor && sum != plan.states.end() &&
                  !(factor->set & ~(plan.rows | plan.streams | bit(sum->lane)));
      if (!isFactor)
        break;
      uses.push_back({sum->number, factor});
    }
    if (isFactor && !uses.empty())
      smallPowers[power] = uses;
  }
}

/// Whether a result may be a number that is not 0 and below all normal ones:
/// of numbers of the program, not of extents and constants alone.
static bool mayBeSubnormal(Node *n) {
  if (n->kind != Node::Elem || !isa<FloatType>(n->type))
    return false;
  if (isa<arith::SIToFPOp, arith::UIToFPOp, arith::ExtFOp>(n->op))
    return false;
  NodeSet all;
  collect(n, all);
  return llvm::any_of(all, [](Node *part) {
    return isa<FloatType>(part->type) && part->kind != Node::Elem &&
           part->kind != Node::Const;
  });
}

/// Whether `user` does not show that an operand is 0 in place of a subnormal
/// number: it is added to others, taken for an extreme or an exponent, compared
/// with a number that is none, or multiplied by no more than 2^64.
static bool bearsZero(Node *user, Node *operand) {
  constexpr double kMost = 0x1p64;
  if (isa<arith::AddFOp, arith::SubFOp, arith::NegFOp, arith::MaximumFOp,
          arith::MinimumFOp, arith::MaxNumFOp, arith::MinNumFOp,
          arith::SelectOp, arith::TruncFOp, arith::ExtFOp, math::ExpOp,
          math::TanhOp, math::AbsFOp>(user->op))
    return true;
  bool isProduct = isa<arith::MulFOp>(user->op),
       isComparison = isa<arith::CmpFOp>(user->op);
  if (!isProduct && !isComparison && !isa<arith::DivFOp>(user->op))
    return false;
  Node *other = user->in[user->in[0] == operand ? 1 : 0];
  bool isDivisor = isa<arith::DivFOp>(user->op) && user->in[0] != operand;
  if (other->kind != Node::Const || isDivisor)
    return false;
  auto number =
      dyn_cast<FloatAttr>(cast<arith::ConstantOp>(other->op).getValue());
  double size = number ? std::abs(number.getValueAsDouble()) : 0.0;
  return isProduct ? size <= kMost : size >= 1.0 / kMost;
}

/// Whether `root` is as good as what it is if each operation may give 0 in
/// place of a subnormal number: k = h·h, by which scores are divided, is not.
/// What is summed in a contraction was there before.
static bool bearsFlushing(Node *root, NodeSet &known) {
  if (root->kind != Node::Elem || !known.insert(root))
    return true;
  return llvm::all_of(root->in, [&](Node *operand) {
    return (!mayBeSubnormal(operand) || bearsZero(root, operand)) &&
           bearsFlushing(operand, known);
  });
}
static bool bearsFlushing(Node *root) {
  NodeSet known;
  return bearsFlushing(root, known);
}

/// Whether what is made of `state` in `root` shows that it is 0 in place of a
/// subnormal number. A result that is the state itself does.
static bool showsZeroOf(Node *root, unsigned state, NodeSet &known) {
  auto isState = [&](Node *n) {
    return n->isState() && n->state == int(state);
  };
  if (isState(root))
    return true;
  if (root->kind != Node::Elem || !known.insert(root))
    return false;
  return llvm::any_of(root->in, [&](Node *operand) {
    return isState(operand) ? !bearsZero(root, operand)
                            : showsZeroOf(operand, state, known);
  });
}

/// Whether a result or another state shows it.
static bool showsZeroOf(Plan &plan, StatePlan &s) {
  NodeSet known;
  auto shows = [&](Node *root) { return showsZeroOf(root, s.number, known); };
  auto isShownBy = [&](StatePlan &other) {
    return other.number != s.number &&
           (shows(other.term) || shows(other.moved) ||
            llvm::any_of(other.payloads, shows));
  };
  return llvm::any_of(plan.states, isShownBy) ||
         llvm::any_of(
             llvm::concat<WritePlan>(plan.finishWrites, plan.sweepWrites),
             [&](WritePlan &w) { return shows(w.value); });
}

/// Whether all that a step leaves along its rows are such powers, and nothing
/// that it computes beside them shows what is 0 in its stead.
bool Kernel::hasSmallPowers(unsigned pass, const Step &step) {
  if (step.kind != Step::Rows || step.isGathered || !step.hasRow ||
      step.rowLanes)
    return false;
  bool isAny = false;
  for (Node *n : plan.passes[pass].kept) {
    if (n->kind == Node::Old || !belongs(step, n->set) ||
        !plan.hasStream(n->set) || n->level < step.firstLevel ||
        n->level > step.lastLevel)
      continue;
    if (!smallPowers.count(n) || !bearsFlushing(n->in[0]))
      return false;
    isAny = true;
  }
  auto bears = [&](StatePlan &s) {
    bool isOfStep = s.pass == pass && s.form != StatePlan::Matrix &&
                    belongs(step, s.set) && s.level >= step.firstLevel &&
                    s.level <= step.lastLevel;
    if (!isOfStep)
      return true;
    // The largest of the scores, times a scale, may leave the program.
    if (s.combine != Binary::AddF || s.isCount)
      return bearsFlushing(s.term) &&
             (!mayBeSubnormal(s.term) || !showsZeroOf(plan, s));
    // Who reads such a power is small where it is.
    auto isPower = [&](Node *n) {
      return flushed.contains(n) || smallPowers.count(n);
    };
    return isPower(s.term) || llvm::any_of(s.term->in, isPower);
  };
  return isAny && llvm::all_of(plan.states, bears);
}

bool Kernel::flushesIn(unsigned pass) {
  return to.mayFlush() && plan.rowLane == kNone &&
         llvm::any_of(plan.passes[pass].steps, [&](const Step &step) {
           return hasSmallPowers(pass, step);
         });
}

/// One pass over [lo, hi) of the stream, once more where that had to be known.
void Kernel::walkPass(unsigned pass, Ix lo, Ix hi) {
  auto walk = [&] {
    initialise(pass, /*hasLists=*/true);
    whereNeeded(pass, [&] {
      streamBlocks(pass, lo, hi);
      settlePlaces(pass);
    });
  };
  if (!flushesIn(pass))
    return walk();
  Type word = IntegerType::get(plan.cascade.getContext(), 32);
  Ix shows = to.add(flushWords.offset, 2);
  auto again = [&](ArrayRef<Val> now) { return to.less(0, Ix(now[0])); };
  auto body = [&](ArrayRef<Val> now) -> Spelling::Values {
    Ix isFirst = to.add(Ix(now[0]), -1);
    to.store(to.constant(IntegerAttr::get(word, 0)), flushWords, shows);
    flushes = isFirst;
    walk();
    flushes.reset();
    Ix isShown = to.toIndex(to.load(flushWords, shows));
    return {to.materialise(to.mul(isShown, isFirst))};
  };
  to.repeat({to.materialise(2)}, again, body);
}

void Kernel::flushedStep(unsigned pass, Step &step) {
  if (!flushes || !hasSmallPowers(pass, step))
    return rowStep(pass, step);
  to.startFlushing(flushWords, *flushes);
  rowStep(pass, step);
  Ix isAny = to.mul(to.stopFlushing(flushWords), *flushes);
  to.branch(to.less(0, isAny), [&] { lookAtFactors(pass); }, [] {});
}

/// Whether the powers that move sums to a new pivot are made before such steps,
/// as gradual ones.
static bool areNumbersApart(Plan &plan, const PassPlan &p) {
  llvm::SmallPtrSet<Node *, 4> apart;
  for (const Step &step : p.steps)
    if (step.isGathered)
      apart.insert(step.numbers.begin(), step.numbers.end());
  return !apart.empty() && llvm::all_of(p.kept, [&](Node *n) {
    return n->kind != Node::Elem || plan.hasStream(n->set) || apart.contains(n);
  });
}

/// What was 0 is below 2^-126: nothing beside elements, and sums of products so
/// far, whose squares have a finite sum: each is below 2^64.
void Kernel::lookAtFactors(unsigned pass) {
  llvm::SmallSetVector<std::pair<unsigned, Node *>, 4> factors;
  for (auto &[power, uses] : smallPowers)
    for (const SmallPower &use : uses)
      if (plan.states[use.state].pass == pass)
        factors.insert({use.state, use.factor});
  auto number = [&](Node *n, double v) {
    return to.constant(FloatAttr::get(cast<FloatType>(n->type), v));
  };
  for (auto [state, factor] : factors) {
    StatePlan &s = plan.states[state];
    Node *sum = plan.graph->version(s.op, Node::Old);
    Ix range = rangeOf(s.lane);
    // The squares of a row of lanes, added to those so far.
    auto along = [&](Tile &row, Node *n, Val squares) {
      return to.loop(0, range, to.lanes(), {squares},
                     [&](Ix at, ArrayRef<Val> in) -> Spelling::Values {
                       Tile t(&row);
                       t.lane = s.lane;
                       t.laneLocal = {at};
                       t.laneLimit = range;
                       Val v = to.select(to.mask(to.sub(range, at)),
                                         to.splat(eval(t, n, 0, 0)),
                                         to.splat(number(n, 0.0)));
                       return {to.fma(v, v, in[0])};
                     })[0];
    };
    Val squares = to.splat(number(factor, 0.0));
    squares = to.loop(0, valid, 1, {squares},
                      [&](Ix k, ArrayRef<Val> in) -> Spelling::Values {
                        Tile t(plan.cascade.numIndices());
                        t.local[plan.stream] = k;
                        return {along(t, factor, in[0])};
                      })[0];
    if (!areNumbersApart(plan, plan.passes[pass]))
      squares = to.loop(0, rows, 1, {squares},
                        [&](Ix row, ArrayRef<Val> in) -> Spelling::Values {
                          Tile t = tileOf(row);
                          return {along(t, sum, in[0])};
                        })[0];
    Val isSmall =
        to.compare(Compare::OLT, to.reduceLanes(Binary::AddF, squares),
                   number(factor, HUGE_VAL));
    to.branch(
        isSmall, [] {},
        [&] {
          Type word = IntegerType::get(plan.cascade.getContext(), 32);
          to.store(to.constant(IntegerAttr::get(word, 1)), flushWords,
                   to.add(flushWords.offset, 2));
        });
  }
}
