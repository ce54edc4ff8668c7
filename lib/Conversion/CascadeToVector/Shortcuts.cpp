// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What is cheaper in nearly every row: products with the reciprocal of what the
// row is divided by, and terms as they were left.
#include "Kernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Factors, signs and roundings to a storage type keep the relative error of
/// what they read.
static bool keepsRelativeError(Node *n) {
  return n->kind == Node::Elem &&
         isa<arith::MulFOp, arith::NegFOp, arith::TruncFOp>(n->op);
}

/// The divisions of the lanes by a number of their row, which may be products
/// with its reciprocal: those that nothing reads but factors of a result that
/// leaves the program. Elsewhere another last bit may be another class
/// (1 - x / max) or another integer.
void Kernel::findQuotients(Nest &nest, const NodeSet &all, Shortcuts &found) {
  if (!nest.isFinal)
    return;
  SmallVector<Node *> work{nest.term};
  llvm::DenseSet<Node *> open;
  SmallVector<Node *> quotients;
  while (!work.empty()) {
    Node *n = work.pop_back_val();
    if (!open.insert(n).second)
      continue;
    if (keepsRelativeError(n))
      work.append(n->in.begin(), n->in.end());
    else if (n->kind == Node::Elem && isa<arith::DivFOp>(n->op) &&
             n->has(nest.lane) && !n->in[1]->has(nest.lane) &&
             n->in[1]->kind != Node::Const &&
             (n->type.isF32() || n->type.isF64()))
      quotients.push_back(n);
  }
  auto isRead = [&](Node *quotient) {
    return llvm::any_of(all, [&](Node *n) {
      return llvm::is_contained(n->in, quotient) &&
             !(open.contains(n) && keepsRelativeError(n));
    });
  };
  // A factor that something else reads shows what it is made of.
  for (Node *n : open)
    if (keepsRelativeError(n) && isRead(n))
      return;
  for (Node *n : quotients)
    if (!isRead(n))
      found.quotients.push_back(n);
}

bool Kernel::isByNumber(Node *quotient) {
  constexpr int64_t kMany = 64;
  Node *divisor = quotient->in[1];
  Set along = quotient->in[0]->set & ~divisor->set;
  bool isFloat = quotient->type.isF32() || quotient->type.isF64();
  if (!isFloat || divisor->kind == Node::Const || asWritten.contains(quotient))
    return false;
  // With rows along the lanes every register of the stream has other divisors.
  if (plan.column != kNone && divisor->has(plan.column))
    return false;
  Set lanes = plan.inner;
  if (plan.stream != kNone)
    lanes |= bit(plan.stream);
  else // results are as many as elements
    for (WritePlan &w : plan.finishWrites)
      lanes |= w.lane == kNone ? 0 : bit(w.lane);
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if ((along & lanes & bit(i)) &&
        (ShapedType::isDynamic(plan.extent(i)) || plan.extent(i) >= kMany))
      return true;
  return false;
}

/// Whether `value` is e^(x - max x) over a number of the row, which is 1 over
/// that number somewhere in the row: its error is measured by that.
bool Kernel::isShareOfRow(Node *value) {
  if (value->kind == Node::Elem && isa<arith::TruncFOp>(value->op))
    value = value->in[0];
  auto is = [](Node *n, auto isOp) {
    return n->kind == Node::Elem && isOp(n->op);
  };
  if (!is(value, [](Operation *op) { return isa<arith::DivFOp>(op); }) ||
      plan.hasStream(value->in[1]->set))
    return false;
  Node *power = value->in[0];
  if (!is(power, [](Operation *op) { return isa<math::ExpOp>(op); }) ||
      !is(power->in[0], [](Operation *op) { return isa<arith::SubFOp>(op); }))
    return false;
  Node *extreme = power->in[0]->in[1];
  if (is(extreme, [](Operation *op) { return isa<arith::MaxNumFOp>(op); }))
    extreme = extreme->in[extreme->in[0]->isState() ? 0 : 1];
  if (extreme->kind != Node::Final)
    return false;
  StatePlan &s = plan.states[extreme->state];
  return (s.op.getReducer() == Reducer::Max ||
          s.op.getReducer() == Reducer::MaxNum) &&
         s.term == power->in[0]->in[0];
}

/// Whether exponentials that the sweep reads again are shares of their row.
bool Kernel::sweepsShares() {
  return llvm::all_of(plan.sweepWrites, [&](WritePlan &w) {
    return leavesProgram(w) && isShareOfRow(w.value);
  });
}

Kernel::Shortcuts Kernel::shortcutsOf(Nest &nest) {
  Shortcuts found;
  if (!nest.term || nest.lane == kNone)
    return found;
  NodeSet all;
  collect(nest.term, all);
  findQuotients(nest, all, found);
  found.isCoarse = !found.quotients.empty() && isShareOfRow(nest.term);
  if (hasLikely && nest.lane == plan.stream)
    for (auto &[value, likely] : plan.likely)
      if (all.contains(value))
        found.kept.push_back(value);
  return found;
}

/// Whether 1 / divisor is a normal number.
Val Kernel::hasReciprocal(Tile &t, Node *divisor) {
  Val v = eval(t, divisor, 0, 0);
  auto type = cast<FloatType>(divisor->type);
  int exponent = -llvm::APFloat::semanticsMinExponent(type.getFloatSemantics());
  auto number = [&](double sign, int power) {
    return to.constant(FloatAttr::get(type, std::ldexp(sign, power)));
  };
  auto between = [&](Val low, Val high) {
    return to.binary(Binary::AndI, to.compare(Compare::OGT, v, low),
                     to.compare(Compare::OLT, v, high));
  };
  return to.binary(Binary::OrI,
                   between(number(1, -exponent), number(1, exponent)),
                   between(number(-1, exponent), number(-1, -exponent)));
}

Val Kernel::mayTake(const Shortcuts &shortcuts, Tile &t) {
  SmallVector<Val> conditions;
  for (Node *n : shortcuts.quotients)
    conditions.push_back(hasReciprocal(t, n->in[1]));
  auto isNot = [&](Compare kind, Node *x, Node *y) {
    return to.compare(kind, eval(t, x, 0, 0), eval(t, y, 0, 0));
  };
  Val no = to.constant(guardIs(false)), yes = to.constant(guardIs(true));
  for (Node *n : shortcuts.kept)
    for (auto [x, y] : plan.likely.find(n)->second.equal) {
      // Neither below nor above, nor a NaN.
      Val differs = to.binary(Binary::OrI, isNot(Compare::ULT, x, y),
                              isNot(Compare::UGT, x, y));
      conditions.push_back(to.select(differs, no, yes));
    }
  Val all = conditions.front();
  for (Val condition : ArrayRef(conditions).drop_front())
    all = to.binary(Binary::AndI, all, condition);
  return all;
}

/// One row: as in nearly every row, or else register by register as written.
void Kernel::nestShortcuts(Nest &nest, Tile &t, const Shortcuts &shortcuts) {
  Val may = mayTake(shortcuts, t);
  to.branch(
      may,
      [&] {
        Tile inside(&t);
        inside.isCoarse = shortcuts.isCoarse;
        for (Node *n : shortcuts.quotients) {
          Node *divisor = n->in[1];
          Val one = to.constant(FloatAttr::get(divisor->type, 1.0));
          reciprocals[divisor] =
              to.elementwise(n->op, {one, eval(t, divisor, 0, 0)}, n->type);
        }
        for (Node *n : shortcuts.kept) {
          kept[n] = kept.at(plan.likely.find(n)->second.term);
          keptReady.insert(n);
        }
        nestLanes(nest, inside);
        for (Node *n : shortcuts.kept)
          keptReady.erase(n);
        reciprocals.clear();
      },
      [&] {
        Tile inside(&t);
        Nest narrow = nest;
        narrow.width = to.lanes();
        asWritten.insert(shortcuts.quotients.begin(),
                         shortcuts.quotients.end());
        nestLanes(narrow, inside);
        asWritten.clear();
      });
}
