// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which exponentials of a row may be 0 where they are too small for a normal
// number: a sum or a share in which they stand beside 1 does not show them.
#include "Kernel.h"
#include "mlir/IR/Matchers.h"
#include <cmath>
#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// The largest number of f32, of either sign.
static bool isLargest(Node *n) {
  FloatAttr value;
  return n->kind == Node::Const && matchPattern(n->op, m_Constant(&value)) &&
         value.getType().isF32() &&
         std::abs(value.getValueAsDouble()) ==
             double(std::numeric_limits<float>::max());
}

/// Whether `power` is e^(x - max x) or e^(min x - x) of its row.
static bool isOneAtItsLargest(Plan &plan, Node *power) {
  Node *difference = power->in[0];
  if (difference->kind != Node::Elem || !isa<arith::SubFOp>(difference->op))
    return false;
  auto isExtreme = [&](Node *n, Node *x, Reducer one, Reducer other) {
    // An extreme that is kept finite, on the side where e^-inf is 0.
    bool isBounded = n->kind == Node::Elem &&
                     (one == Reducer::Max ? isa<arith::MaxNumFOp>(n->op)
                                          : isa<arith::MinNumFOp>(n->op));
    Node *bound = nullptr;
    if (isBounded) {
      int place = n->in[0]->isState() ? 0 : 1;
      bound = n->in[1 - place];
      n = n->in[place];
    }
    if (!n->isState() || n->kind == Node::Old)
      return false;
    StatePlan &s = plan.states[n->state];
    bool isOf =
        (s.op.getReducer() == one || s.op.getReducer() == other) && s.term == x;
    // An extreme that is a NaN leaves the bound: what that leaves has to be no
    // number either.
    return isOf && (!bound || s.op.getReducer() == other || isLargest(bound));
  };
  return isExtreme(difference->in[1], difference->in[0], Reducer::Max,
                   Reducer::MaxNum) ||
         isExtreme(difference->in[0], difference->in[1], Reducer::Min,
                   Reducer::MinNum);
}

/// Sums, differences and products of what `reads` has and numbers of the row.
static bool isPolynomialOf(Plan &plan, Node *root,
                           const llvm::SmallPtrSet<Operation *, 4> &reads) {
  NodeSet all;
  collect(root, all);
  return llvm::all_of(all, [&](Node *n) {
    if (!plan.hasStream(n->set))
      return true;
    if (n->kind == Node::Elem)
      return isa<arith::AddFOp, arith::SubFOp, arith::MulFOp, arith::NegFOp,
                 arith::ExtFOp>(n->op);
    return n->kind == Node::Read && reads.contains(n->op);
  });
}

/// Whether what is made of a small `power` is small beside what is made of 1:
/// shares, roundings, and products with powers of its own exponent, which are
/// nothing beside e^-87. An element of another array may be as large as the
/// power is small, another exponential too.
static bool staysSmall(Plan &plan, Node *user, Node *power) {
  if (isa<arith::TruncFOp>(user->op))
    return true;
  if (isa<arith::DivFOp>(user->op))
    return user->in[0] == power && !plan.hasStream(user->in[1]->set);
  if (!isa<arith::MulFOp>(user->op))
    return false;
  NodeSet all;
  collect(power, all);
  llvm::SmallPtrSet<Operation *, 4> reads;
  for (Node *n : all)
    if (n->kind == Node::Read)
      reads.insert(n->op);
  return isPolynomialOf(plan, user->in[user->in[0] == power ? 1 : 0], reads);
}

/// Whether `root` is made of a sum of products. Its rounding is in the exponent
/// as it stands, and larger than that of the exponent's product with log2 e.
static bool readsContraction(Node *root) {
  return root->kind == Node::Contract ||
         llvm::any_of(root->in, readsContraction);
}

void Kernel::findFlushed() {
  NodeSet all;
  llvm::SmallPtrSet<Node *, 8> shown; // powers that are terms of no sum
  for (StatePlan &s : plan.states) {
    collect(s.term, all);
    if (s.combine != Binary::AddF || !s.payloads.empty())
      shown.insert(s.term);
    for (Node *payload : s.payloads) {
      collect(payload, all);
      shown.insert(payload);
    }
  }
  for (WritePlan &w :
       llvm::concat<WritePlan>(plan.finishWrites, plan.sweepWrites))
    collect(w.value, all);
  // Across the rows of an array each is beside others than its own 1.
  for (WritePlan &w : plan.sweepWrites)
    if (plan.along(w, plan.stream).kind != Along::Unit) {
      NodeSet across;
      collect(w.value, across);
      shown.insert(across.begin(), across.end());
    }
  // The sweep may write what the last pass has kept.
  for (auto &[value, term] : plan.reused)
    if (shown.contains(value))
      shown.insert(term);
  for (auto &[value, likely] : plan.likely)
    if (shown.contains(value))
      shown.insert(likely.term);
  for (Node *n : all)
    if (n->kind == Node::Elem && isa<math::ExpOp>(n->op) && n->type.isF32() &&
        plan.hasStream(n->set) && isOneAtItsLargest(plan, n)) {
      onesAtMost.insert(n);
      if (!shown.contains(n))
        flushed.insert(n);
      if (readsContraction(n->in[0]))
        noisy.insert(n);
    }
  findSmallPowers(all);
  for (Node *user : all)
    for (Node *n : user->in)
      if (flushed.contains(n) && !staysSmall(plan, user, n))
        flushed.erase(n);
}
