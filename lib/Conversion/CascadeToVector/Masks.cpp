// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conditions under which a pass has nothing to do. Where the comparison is
// false every term folds to its identity, so tiles beyond the bound are not
// visited: the values there are not read, and a NaN or an infinity among them
// is not seen (reason masked-values-unread).
#include "Plan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

namespace {
/// The value of nodes where `off` is false, if it is the same everywhere there.
class ValueWhereFalse {
public:
  /// `isExact`: not by the policy that 0 * v is 0.
  explicit ValueWhereFalse(Node *off, bool isExact = false)
      : off(off), isExact(isExact) {}
  /// What is masked is finite and low, and the state `extreme` is above half of
  /// it: exponentials of their difference are 0. By the policy named above a
  /// number that low is not changed by what is added to it.
  ValueWhereFalse(Node *off, unsigned extreme) : off(off), extreme(extreme) {}

  /// Half of a number that low, in f64 too, is where exponentials are 0.
  static constexpr double kLow = -4096.0, kLowest = -0x1p100;
  std::optional<double> of(Node *n) {
    if (n == off)
      return 0.0;
    if (auto it = memo.find(n); it != memo.end())
      return it->second;
    auto v = fold(n);
    memo[n] = v;
    return v;
  }

private:
  std::optional<double> fold(Node *n) {
    if (n->kind == Node::Const) {
      Attribute a = cast<arith::ConstantOp>(n->op).getValue();
      if (auto f = dyn_cast<FloatAttr>(a))
        return f.getValueAsDouble();
      if (auto i = dyn_cast<IntegerAttr>(a))
        return n->type.isInteger(1) ? double(i.getValue().getBoolValue())
                                    : double(i.getValue().getSExtValue());
      return std::nullopt;
    }
    if (n->kind != Node::Elem)
      return std::nullopt;
    SmallVector<std::optional<double>> in;
    for (Node *i : n->in)
      in.push_back(of(i));
    auto is = [](std::optional<double> x, double v) { return x && *x == v; };
    Operation *op = n->op;
    if (isa<arith::SelectOp>(op) && !in[0])
      return in[1] && in[2] && *in[1] == *in[2] ? in[1] : std::nullopt;
    if (isa<arith::SelectOp>(op))
      return *in[0] ? in[1] : in[2];
    if (extreme)
      if (std::optional<double> v = foldLow(n, in))
        return v;
    // 0 * v = 0 is the policy named above.
    if (isExact && isa<arith::MulFOp>(op))
      return std::nullopt;
    if (isa<arith::OrIOp>(op) && n->type.isInteger(1) &&
        (is(in[0], 1) || is(in[1], 1)))
      return 1.0;
    if (isa<arith::XOrIOp>(op) && n->type.isInteger(1) && in[0] && in[1])
      return double(*in[0] != *in[1]);
    if (isa<arith::AndIOp, arith::MulIOp, arith::MulFOp>(op))
      return is(in[0], 0) || is(in[1], 0) ? std::optional<double>(0)
                                          : std::nullopt;
    if (isa<math::ExpOp, math::Exp2Op>(op))
      return is(in[0], -INFINITY) ? std::optional<double>(0) : std::nullopt;
    if (isa<arith::SubFOp>(op))
      return in[0] && std::isinf(*in[0]) ? in[0] : std::nullopt;
    if (isa<arith::AddFOp>(op)) {
      for (auto x : in)
        if (x && std::isinf(*x))
          return x;
      return std::nullopt;
    }
    if (isa<arith::ExtFOp, arith::TruncFOp>(op) && in[0] &&
        (std::isinf(*in[0]) || *in[0] == 0))
      return in[0];
    return std::nullopt;
  }

  /// Of a difference from the extreme no more than a bound.
  std::optional<double> foldLow(Node *n, ArrayRef<std::optional<double>> in) {
    auto isBelow = [](std::optional<double> x, double bound) {
      return x && *x <= bound;
    };
    if (isa<arith::SubFOp>(n->op) && isBelow(in[0], kLow) &&
        isExtreme(n->in[1]))
      return *in[0] / 2.0;
    if (isa<arith::AddFOp>(n->op))
      for (std::optional<double> x : in)
        if (isBelow(x, kLowest))
          return x;
    if (isa<math::ExpOp, math::Exp2Op>(n->op) && isBelow(in[0], kLow / 2.0))
      return 0.0;
    return std::nullopt;
  }
  /// The extreme, or what is no lower.
  bool isExtreme(Node *n) {
    if (n->kind == Node::New)
      return unsigned(n->state) == *extreme;
    return n->kind == Node::Elem && n->in.size() == 2 &&
           isa<arith::MaxNumFOp, arith::MaximumFOp>(n->op) &&
           llvm::any_of(n->in, [&](Node *i) { return isExtreme(i); });
  }

  Node *off;
  bool isExact = false;
  std::optional<unsigned> extreme;
  std::map<Node *, std::optional<double>> memo;
};
} // namespace

/// Sums of row indices, constants and what data say of all rows of a tile:
/// smallest in the first row of a tile, largest in its last.
static bool isNondecreasing(Plan &plan, Node *n) {
  if (n->kind == Node::Const || n->kind == Node::Index ||
      n->kind == Node::Param || n->kind == Node::Extent)
    return true;
  // Read before any element is: wherever the row's indices say.
  if (n->kind == Node::Read)
    return !plan.hasRow(n->set) && plan.rowLane == kNone &&
           llvm::all_of(n->in, [](Node *i) { return i->kind == Node::Index; });
  if (n->kind != Node::Elem)
    return false;
  if (isa<arith::AddIOp>(n->op))
    return isNondecreasing(plan, n->in[0]) && isNondecreasing(plan, n->in[1]);
  if (isa<arith::SubIOp>(n->op))
    return isNondecreasing(plan, n->in[0]) && !plan.hasRow(n->in[1]->set) &&
           isNondecreasing(plan, n->in[1]);
  if (isa<arith::IndexCastOp, arith::ExtSIOp>(n->op))
    return isNondecreasing(plan, n->in[0]);
  return false;
}

/// For unsigned comparisons, whose bound must not wrap.
static bool isNonNegative(Node *n) {
  if (n->kind == Node::Index || n->kind == Node::Extent)
    return true;
  if (n->kind == Node::Const) {
    auto a = dyn_cast<IntegerAttr>(cast<arith::ConstantOp>(n->op).getValue());
    return a && !a.getValue().isNegative();
  }
  return n->kind == Node::Elem && isa<arith::AddIOp>(n->op) &&
         isNonNegative(n->in[0]) && isNonNegative(n->in[1]);
}

static std::optional<double> identityValue(StatePlan &s) {
  TypedAttr a = identityOf(s.op.getReducer(), s.type());
  if (auto f = dyn_cast<FloatAttr>(a))
    return f.getValueAsDouble();
  APInt v = cast<IntegerAttr>(a).getValue();
  return v.getBitWidth() == 1 ? double(v.getBoolValue())
                              : double(v.getSExtValue());
}

/// stream < bound + add (upper) or stream >= bound + add, out of a comparison.
static std::optional<Condition> readComparison(Plan &plan, Node *n) {
  auto compare =
      dyn_cast_or_null<arith::CmpIOp>(n->kind == Node::Elem ? n->op : nullptr);
  if (!compare)
    return std::nullopt;
  auto isStream = [&](Node *x) {
    if (x->kind == Node::Elem && isa<arith::IndexCastOp>(x->op))
      x = x->in[0];
    return x->kind == Node::Index && int(x->index) == plan.stream;
  };
  bool isLeft = isStream(n->in[0]);
  Node *bound = n->in[isLeft ? 1 : 0];
  if ((!isLeft && !isStream(n->in[1])) || (bound->set & ~plan.rows) ||
      !isNondecreasing(plan, bound))
    return std::nullopt;
  using P = arith::CmpIPredicate;
  P predicate = compare.getPredicate();
  if (predicate >= P::ult && !isNonNegative(bound))
    return std::nullopt;
  if (!isLeft)
    predicate = arith::invertPredicate(predicate);
  // c > n is n < c: turning the operands is inverting, then taking the equal
  // case.
  bool swapsEqual = !isLeft;
  bool isUpper, isInclusive;
  switch (predicate) {
  case P::slt:
  case P::ult:
    isUpper = true, isInclusive = swapsEqual;
    break;
  case P::sle:
  case P::ule:
    isUpper = true, isInclusive = !swapsEqual;
    break;
  case P::sgt:
  case P::ugt:
    isUpper = false, isInclusive = swapsEqual;
    break;
  case P::sge:
  case P::uge:
    isUpper = false, isInclusive = !swapsEqual;
    break;
  default:
    return std::nullopt;
  }
  return Condition{n, isUpper, bound, isUpper == isInclusive ? 1 : 0};
}

/// The greatest element of a pass to which a masked element, finite and low, is
/// nothing as soon as it is above half of that, so that other states have
/// nothing to add either.
static bool findExtreme(Plan &plan, unsigned pass, Condition &condition) {
  if (plan.rowLane != kNone)
    return false;
  for (StatePlan &s : plan.states) {
    if (s.pass != pass || s.form != StatePlan::Reduced ||
        !isa<FloatType>(s.type()) || !s.payloads.empty() ||
        !llvm::is_contained({Reducer::Max, Reducer::MaxNum}, s.op.getReducer()))
      continue;
    ValueWhereFalse where(condition.compare, s.number);
    std::optional<double> low = where.of(s.term);
    if (!low || std::isinf(*low) || *low > ValueWhereFalse::kLow)
      continue;
    bool isNothing = llvm::all_of(plan.states, [&](StatePlan &other) {
      if (other.pass != pass || other.number == s.number)
        return true;
      std::optional<double> v = where.of(other.term);
      return v && *v == *identityValue(other);
    });
    if (!isNothing)
      continue;
    condition.extreme = int(s.number);
    condition.least = *low / 2.0;
    return true;
  }
  return false;
}

void walk::findConditions(Plan &plan, unsigned pass) {
  NodeSet all;
  for (StatePlan &s : plan.states) {
    if (s.pass != pass)
      continue;
    if (s.form == StatePlan::Ordered)
      return; // a masked element is still one of the elements
    collect(s.term, all);
  }
  for (Node *n : all) {
    auto condition = readComparison(plan, n);
    if (!condition)
      continue;
    ValueWhereFalse where(n);
    bool isIdentity = llvm::all_of(plan.states, [&](StatePlan &s) {
      if (s.pass != pass)
        return true;
      auto v = where.of(s.term);
      return v && *v == *identityValue(s);
    });
    if (isIdentity || findExtreme(plan, pass, *condition))
      plan.passes[pass].conditions.push_back(*condition);
  }
}

namespace {
/// The bounds of one pass at known extents.
class WalkedPositions {
public:
  WalkedPositions(Plan &plan, ArrayRef<Condition> conditions,
                  ArrayRef<double> extents)
      : plan(plan), conditions(conditions), extents(extents) {
    for (const Condition &c : conditions)
      rows |= c.bound->set & plan.rows;
  }

  /// Positions of a tile of rows, over some tiles that lie evenly.
  std::optional<double> mean() {
    at.assign(extents.size(), 0.0);
    if (!visit(0))
      return std::nullopt;
    return count > 0.0 ? sum / count : 0.0;
  }

private:
  bool visit(unsigned index) {
    constexpr double kMostSteps = 64.0;
    if (index == extents.size())
      return addTile();
    if (!(rows >> index & 1))
      return visit(index + 1);
    double tile = int(index) == plan.row ? double(plan.tileRows) : 1.0;
    double tiles = std::ceil(extents[index] / tile);
    double stride = std::max(1.0, std::ceil(tiles / kMostSteps));
    for (double i = 0.0; i < tiles; i += stride) {
      at[index] = i * tile;
      if (!visit(index + 1))
        return false;
    }
    return true;
  }

  /// As `streamLoop` has it: from a whole tile of the stream on.
  bool addTile() {
    double length = extents[plan.stream], first = 0.0, last = length;
    for (const Condition &c : conditions) {
      auto bound = valueOf(c.bound, c.isUpper);
      if (!bound)
        return false;
      if (c.isUpper)
        last = std::min(last, *bound + double(c.add));
      else
        first = std::max(first, *bound + double(c.add));
    }
    double width = double(plan.tileStream);
    first = std::floor(first / width) * width;
    sum += std::max(0.0, last - first);
    count += 1.0;
    return true;
  }

  /// Of the last row of the tile, or its first one.
  std::optional<double> valueOf(Node *n, bool isLast) {
    if (n->kind == Node::Const) {
      auto a = dyn_cast<IntegerAttr>(cast<arith::ConstantOp>(n->op).getValue());
      return a ? std::optional(double(a.getInt())) : std::nullopt;
    }
    if (n->kind == Node::Extent)
      return extents[n->index];
    if (n->kind == Node::Index) {
      bool isTiled = isLast && int(n->index) == plan.row;
      return isTiled ? std::min(at[n->index] + double(plan.tileRows),
                                extents[n->index]) -
                           1.0
                     : at[n->index];
    }
    if (n->kind != Node::Elem || n->in.empty())
      return std::nullopt; // a number of the caller's
    auto x = valueOf(n->in[0], isLast);
    if (!x || isa<arith::IndexCastOp>(n->op))
      return x;
    auto y = n->in.size() == 2 ? valueOf(n->in[1], isLast) : std::nullopt;
    if (y && isa<arith::AddIOp>(n->op))
      return *x + *y;
    return y && isa<arith::SubIOp>(n->op) ? std::optional(*x - *y)
                                          : std::nullopt;
  }

  Plan &plan;
  ArrayRef<Condition> conditions;
  ArrayRef<double> extents;
  Set rows = 0;
  SmallVector<double> at;
  double sum = 0.0, count = 0.0;
};
} // namespace

double walk::walkedShare(Plan &plan, ArrayRef<double> extents) {
  constexpr double kUnknown = 0.5, kLeast = 1e-3;
  double share = plan.passes.empty() ? 1.0 : 0.0;
  for (const PassPlan &pass : plan.passes) {
    if (pass.conditions.empty() || plan.stream == kNone)
      return 1.0;
    double length = extents[plan.stream];
    auto walked = WalkedPositions(plan, pass.conditions, extents).mean();
    share = std::max(share, !walked        ? kUnknown
                            : length < 1.0 ? 1.0
                                           : std::min(*walked / length, 1.0));
  }
  return std::max(share, kLeast);
}

/// The stream index and the carried index that `n` compares, if it says that
/// they are equal.
static std::optional<StateKey> readKey(Plan &plan, Node *n) {
  auto compare =
      dyn_cast_or_null<arith::CmpIOp>(n->kind == Node::Elem ? n->op : nullptr);
  if (!compare || compare.getPredicate() != arith::CmpIPredicate::eq ||
      n->in[0]->kind != Node::Index || n->in[1]->kind != Node::Index)
    return std::nullopt;
  for (bool isTurned : {false, true}) {
    unsigned stream = n->in[isTurned]->index;
    unsigned carried = n->in[!isTurned]->index;
    // A block of places would have to be found anew for every element.
    if ((plan.streams & bit(stream)) && (plan.carried & bit(carried)) &&
        int(carried) != plan.block)
      return StateKey{carried, stream, n};
  }
  return std::nullopt;
}

static bool hasSameKeys(const StatePlan &a, const StatePlan &b) {
  return a.keys.size() == b.keys.size() &&
         llvm::all_of_zip(
             a.keys, b.keys, [](const StateKey &x, const StateKey &y) {
               return x.carried == y.carried && x.stream == y.stream;
             });
}

/// A state is moved together with those that its transport reads.
static bool movesByItself(Plan &plan, StatePlan &s) {
  NodeSet all;
  collect(s.moved, all);
  return llvm::all_of(all, [&](Node *n) {
    if (n->kind != Node::Old && n->kind != Node::New)
      return true;
    StatePlan &other = plan.states[n->state];
    return other.form == StatePlan::Reduced ||
           (other.form == StatePlan::Matrix && n->kind == Node::Old &&
            hasSameKeys(other, s));
  });
}

static void findKeys(Plan &plan, StatePlan &s) {
  NodeSet all;
  collect(s.term, all);
  auto taken = [&](const StateKey &key) {
    return llvm::any_of(s.keys, [&](const StateKey &other) {
      return other.carried == key.carried || other.stream == key.stream;
    });
  };
  for (Node *n : all) {
    std::optional<StateKey> key = readKey(plan, n);
    if (!key || taken(*key))
      continue;
    std::optional<double> off = ValueWhereFalse(n, /*isExact=*/true).of(s.term);
    if (off && *off == *identityValue(s))
      s.keys.push_back(*key);
  }
  llvm::sort(s.keys, [](const StateKey &a, const StateKey &b) {
    return a.carried < b.carried;
  });
}

void walk::findKeys(Plan &plan) {
  if (plan.rowLane != kNone)
    return;
  for (StatePlan &s : plan.states)
    if (s.form == StatePlan::Matrix)
      ::findKeys(plan, s);
  for (bool isStable = false; !isStable;) {
    isStable = true;
    for (StatePlan &s : plan.states)
      if (!s.keys.empty() && !movesByItself(plan, s)) {
        s.keys.clear();
        isStable = false;
      }
  }
  for (StatePlan &s : plan.states) {
    if (s.keys.empty())
      continue;
    s.keyGroup = llvm::find_if(plan.states, [&](StatePlan &other) {
                   return other.pass == s.pass && hasSameKeys(other, s);
                 })->number;
    if (Set others = s.set & plan.carried & ~s.keySet())
      s.lane = plan.chooseLane(s.term, others);
  }
}
