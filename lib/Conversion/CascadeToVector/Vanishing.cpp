// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums that are 0 where a row is one tile. There every pivot is what the whole
// row makes it, and sum(x - mean) is sum(x) - mean * count = 0: by the
// linearity of sums, a sum of terms that other states add up is a combination
// of these states, and some combinations are 0 whatever the states are.
//
// Rounded, such a sum is what the rounding of its pivot left. The stages as
// written have the same rounding of the same number, and no such correction.
#include "Planner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

namespace {
/// Numbers modulo 2^31 - 1. A formula of a dozen divisions that is not 0 is 0
/// at a random point with a probability below 2^-26; three points are asked.
class Residue {
public:
  static constexpr uint64_t kPrime = (uint64_t(1) << 31) - 1;
  Residue(uint64_t value = 0) : value(value % kPrime) {}
  Residue operator+(Residue o) const { return value + o.value; }
  Residue operator-(Residue o) const { return value + (kPrime - o.value); }
  Residue operator*(Residue o) const { return value * o.value; }
  bool isZero() const { return value == 0; }
  /// By Fermat; of 0 it is 0, and nobody may ask.
  Residue inverse() const {
    Residue power = *this, result = 1;
    for (uint64_t e = kPrime - 2; e; e >>= 1) {
      if (e & 1)
        result = result * power;
      power = power * power;
    }
    return result;
  }

private:
  uint64_t value;
};

/// One point: every number of a row that no rule takes apart is a random
/// residue, and so is the count of elements.
class RowAlgebra {
public:
  RowAlgebra(Plan &plan, StatePlan &own, uint64_t point)
      : plan(plan), own(own), point(point) {}

  /// The sum of the products of `factors` over the stream, if it is a
  /// combination of states.
  std::optional<Residue> sumOf(SmallVector<Node *> factors,
                               unsigned depth = 0) {
    if (depth > kDeepest)
      return std::nullopt;
    // What no stream index moves leaves the sum.
    Residue scale = 1;
    SmallVector<Node *> moving;
    for (Node *n : factors) {
      if (plan.hasStream(n->set)) {
        moving.push_back(n);
        continue;
      }
      std::optional<Residue> factor = numberOf(n);
      if (!factor)
        return std::nullopt;
      scale = scale * *factor;
    }
    if (moving.empty())
      return scale * random(nullptr);
    if (StatePlan *s = stateOf(moving)) {
      involved.insert(s);
      return scale * random(plan.graph->version(s->op, Node::New));
    }
    for (auto [i, n] : llvm::enumerate(moving)) {
      std::optional<Residue> sum = takeApart(moving, i, n, depth);
      if (sum)
        return scale * *sum;
    }
    return std::nullopt;
  }

  llvm::SmallSetVector<StatePlan *, 4> involved;

private:
  static constexpr unsigned kDeepest = 8;

  /// The factor number `i` is a product, a quotient, or a sum over which the
  /// others are distributed.
  std::optional<Residue> takeApart(ArrayRef<Node *> factors, size_t i, Node *n,
                                   unsigned depth) {
    if (n->kind != Node::Elem ||
        !isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
             arith::NegFOp>(n->op))
      return std::nullopt;
    auto with = [&](ArrayRef<Node *> parts) {
      SmallVector<Node *> next(factors);
      next.erase(next.begin() + i);
      next.append(parts.begin(), parts.end());
      return sumOf(next, depth + 1);
    };
    if (isa<arith::MulFOp>(n->op))
      return with(n->in);
    std::optional<Residue> first = with(n->in[0]);
    if (!first || isa<arith::NegFOp>(n->op))
      return first ? std::optional(Residue(0) - *first) : std::nullopt;
    if (isa<arith::DivFOp>(n->op)) {
      std::optional<Residue> divisor = numberOf(n->in[1]);
      if (plan.hasStream(n->in[1]->set) || !divisor || divisor->isZero())
        return std::nullopt;
      return *first * divisor->inverse();
    }
    std::optional<Residue> second = with(n->in[1]);
    if (!second)
      return std::nullopt;
    return isa<arith::AddFOp>(n->op) ? *first + *second : *first - *second;
  }

  /// Another sum of this pass over just these factors, complete before `own`.
  StatePlan *stateOf(ArrayRef<Node *> factors) {
    for (StatePlan &s : plan.states) {
      if (&s == &own || s.pass != own.pass || s.level >= own.level ||
          s.set != own.set || s.combine != Binary::AddF || s.isCount ||
          s.form == StatePlan::Ordered || s.form == StatePlan::Matrix)
        continue;
      SmallVector<Node *> theirs{s.term}, mine(factors);
      if (factors.size() == 2 && s.term->kind == Node::Elem &&
          isa<arith::MulFOp>(s.term->op))
        theirs.assign(s.term->in.begin(), s.term->in.end());
      llvm::sort(theirs);
      llvm::sort(mine);
      if (theirs == mine)
        return &s;
    }
    return nullptr;
  }

  /// A number of the row.
  std::optional<Residue> numberOf(Node *n) {
    if (std::optional<double> multiple = countsOf(n))
      return Residue(uint64_t(*multiple)) * random(nullptr);
    if (n->kind != Node::Elem)
      return n->kind == Node::Const ? constant(n) : random(n);
    if (!isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::DivFOp,
             arith::NegFOp>(n->op))
      return random(n);
    std::optional<Residue> x = numberOf(n->in[0]);
    if (isa<arith::NegFOp>(n->op))
      return x ? std::optional(Residue(0) - *x) : std::nullopt;
    std::optional<Residue> y = numberOf(n->in[1]);
    if (!x || !y)
      return std::nullopt;
    if (isa<arith::AddFOp>(n->op))
      return *x + *y;
    if (isa<arith::SubFOp>(n->op))
      return *x - *y;
    if (isa<arith::MulFOp>(n->op))
      return *x * *y;
    return y->isZero() ? std::nullopt : std::optional(*x * y->inverse());
  }

  /// How many times the count of elements this is. There is one element at
  /// least, so a positive multiple of their number exceeds what is not above
  /// it.
  std::optional<double> countsOf(Node *n) {
    if (n->kind == Node::New && plan.states[n->state].isCount &&
        plan.states[n->state].pass == own.pass) {
      std::optional<double> each = valueOf(plan.states[n->state].term);
      return each && *each >= 1 ? each : std::nullopt;
    }
    if (n->kind != Node::Elem ||
        !isa<arith::MaximumFOp, arith::MaxNumFOp>(n->op))
      return std::nullopt;
    for (unsigned i : {0, 1}) {
      std::optional<double> counts = countsOf(n->in[i]);
      std::optional<double> least = valueOf(n->in[1 - i]);
      if (counts && least && *least <= *counts)
        return counts;
    }
    return std::nullopt;
  }

  static std::optional<double> valueOf(Node *n) {
    if (n->kind != Node::Const)
      return std::nullopt;
    auto value = dyn_cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
    return value ? std::optional(value.getValueAsDouble()) : std::nullopt;
  }

  /// Integers as they are; other constants are numbers like any other.
  Residue constant(Node *n) {
    std::optional<double> value = valueOf(n);
    if (!value || *value != std::floor(*value) || std::abs(*value) > 1e6)
      return random(n);
    return *value < 0 ? Residue(0) - Residue(uint64_t(-*value))
                      : Residue(uint64_t(*value));
  }

  /// splitmix64 of the node's number.
  Residue random(Node *n) {
    uint64_t x = ((n ? n->id : 0) + 1 + (point << 32)) * 0x9e3779b97f4a7c15u;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
  }

  Plan &plan;
  StatePlan &own;
  uint64_t point;
};
} // namespace

void Planner::findVanishing() {
  constexpr uint64_t kPoints = 3;
  if (plan->rowLane != kNone || plan->stream == kNone ||
      plan->streams != bit(plan->stream))
    return;
  for (StatePlan &s : plan->states) {
    bool isSum = s.combine == Binary::AddF && !s.isCount &&
                 (s.form == StatePlan::Reduced || s.form == StatePlan::Partial);
    if (!isSum || !plan->hasStream(s.term->set) ||
        !plan->passes[s.pass].conditions.empty())
      continue;
    llvm::SmallSetVector<StatePlan *, 4> involved;
    bool isZero = true;
    for (uint64_t point = 0; point < kPoints && isZero; ++point) {
      RowAlgebra algebra(*plan, s, point);
      std::optional<Residue> sum = algebra.sumOf({s.term});
      isZero = sum && sum->isZero();
      involved = algebra.involved;
    }
    if (!isZero)
      continue;
    for (StatePlan *other : involved)
      s.vanishesWith.push_back(plan->graph->version(other->op, Node::New));
  }
}
