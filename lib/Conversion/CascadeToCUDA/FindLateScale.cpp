// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a kernel over tiles keeps in place of products: which factor of it is
// applied late, and whether f32 has it times log2(e).
#include "TileKernel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::cuda;
using namespace refold::walk;

std::optional<std::pair<double, double>> cuda::positiveRange(Node *n) {
  using Range = std::pair<double, double>;
  auto check = [](Range r) {
    constexpr double kLeast = 0x1p-120, kMost = 0x1p120;
    return r.first >= kLeast && r.second <= kMost ? std::optional(r)
                                                  : std::nullopt;
  };
  if (n->kind == Node::Extent)
    return Range{1.0, 0x1p63};
  if (n->kind == Node::Const) {
    auto number =
        dyn_cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
    if (!number || !number.getValue().isFinite())
      return std::nullopt;
    double x = number.getValueAsDouble();
    return check({x, x});
  }
  if (n->kind != Node::Elem)
    return std::nullopt;
  SmallVector<Range, 2> in;
  for (Node *i : n->in) {
    std::optional<Range> range = positiveRange(i);
    if (!range)
      return std::nullopt;
    in.push_back(*range);
  }
  if (isa<arith::IndexCastOp, arith::SIToFPOp, arith::ExtFOp>(n->op))
    return in[0];
  if (isa<math::SqrtOp>(n->op))
    return Range{std::sqrt(in[0].first), std::sqrt(in[0].second)};
  if (isa<math::RsqrtOp>(n->op))
    return Range{1 / std::sqrt(in[0].second), 1 / std::sqrt(in[0].first)};
  if (isa<arith::MulFOp>(n->op))
    return check({in[0].first * in[1].first, in[0].second * in[1].second});
  if (isa<arith::DivFOp>(n->op))
    return check({in[0].first / in[1].second, in[0].second / in[1].first});
  return std::nullopt;
}

/// Whether every value that `n` selects from is a product with one positive
/// factor of the block, or a quotient by one, or a number that is one without
/// it too: infinities, and all where the factor is a constant.
static bool findFactor(TileKernel &kernel, Node *n, TileKernel::LateScale &late,
                       bool &hasFinite) {
  if (n->kind == Node::Const) {
    auto number = cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
    hasFinite |= number.getValue().isFinite();
    return !number.getValue().isNaN();
  }
  // Asked for in few tiles: a quotient there costs nothing.
  if (isOp(n, "arith.select") && n->in[2]->kind == Node::Const &&
      llvm::any_of(kernel.plan->passes[0].conditions, [&](Condition &c) {
        return c.extreme >= 0 && c.compare == n->in[0];
      }))
    return findFactor(kernel, n->in[1], late, hasFinite);
  if (isOp(n, "arith.select"))
    return findFactor(kernel, n->in[1], late, hasFinite) &&
           findFactor(kernel, n->in[2], late, hasFinite);
  bool divides = isOp(n, "arith.divf");
  if (!divides && !isOp(n, "arith.mulf"))
    return false;
  for (Node *side : ArrayRef(n->in).drop_front(divides))
    if (isFixed(kernel, side) && positiveRange(side)) {
      bool isSame =
          !late.factor || (late.factor == side && late.isDivisor == divides);
      late.factor = side;
      late.isDivisor = divides;
      return isSame;
    }
  return false;
}

/// Whether `n` reads what is kept otherwise than in exp(kept - pivot).
static bool readsOtherwise(TileKernel &kernel, Node *n, Node *&pivot) {
  if (n == kernel.kept)
    return true;
  if (kernel.isPowerOfTwo(n) && n->in[0]->in[0] == kernel.kept) {
    Node *side = n->in[0]->in[1];
    bool isOther = pivot && pivot != side;
    pivot = side;
    NodeSet all;
    collect(side, all);
    return isOther || all.contains(kernel.kept);
  }
  return llvm::any_of(
      n->in, [&](Node *i) { return readsOtherwise(kernel, i, pivot); });
}

/// A constant that numbers of a mask can be divided by, or multiplied with.
static bool isPlainScale(const TileKernel::LateScale &late) {
  constexpr double kLeast = 1e-6;
  if (late.factor->kind != Node::Const)
    return false;
  double by =
      cast<FloatAttr>(cast<arith::ConstantOp>(late.factor->op).getValue())
          .getValueAsDouble();
  return (late.isDivisor ? 1 / by : by) >= kLeast;
}

/// Whether the lowest product stays far below what bounds ask extremes for
/// (kLeastAsked).
static bool keepsLow(const TileKernel::LateScale &late) {
  constexpr double kLeast = 1e-12;
  auto [least, most] = *positiveRange(late.factor);
  return (late.isDivisor ? 1 / most : least) >= kLeast;
}

/// `degreeOf`, past guards: a choice by a sign, against a number.
static std::optional<int> guardedDegreeOf(TileKernel &kernel, Node *n) {
  if (isOp(n, "arith.select")) {
    std::optional<int> x = guardedDegreeOf(kernel, n->in[1]);
    std::optional<int> y = guardedDegreeOf(kernel, n->in[2]);
    if (n->in[1]->kind == Node::Const)
      return y;
    if (n->in[2]->kind == Node::Const || x == y)
      return x;
    return std::nullopt;
  }
  if (isOp(n, "arith.mulf") || isOp(n, "arith.divf")) {
    std::optional<int> x = guardedDegreeOf(kernel, n->in[0]);
    std::optional<int> y = guardedDegreeOf(kernel, n->in[1]);
    if (!x || !y)
      return std::nullopt;
    return isOp(n, "arith.mulf") ? *x + *y : *x - *y;
  }
  return degreeOf(kernel, n);
}

static bool readsPivot(TileKernel &kernel, Node *n) {
  NodeSet all;
  collect(n, all);
  return llvm::any_of(all, [&](Node *i) {
    return i->isState() && kernel.isPivot(kernel.plan->states[i->state]);
  });
}

/// Whether a result is the same if all moved states have one factor near 1: it
/// comes out, or is lost beside the pivot that its logarithm is added to.
static bool hidesFactor(TileKernel &kernel, Node *n) {
  if (guardedDegreeOf(kernel, n) == 0)
    return true;
  if (n->isState())
    return kernel.isPivot(kernel.plan->states[n->state]);
  if (isOp(n, "arith.addf"))
    for (unsigned side : {0, 1})
      if (Node *log = n->in[side]; isOp(log, "math.log") &&
                                   guardedDegreeOf(kernel, log->in[0]) &&
                                   readsPivot(kernel, n->in[1 - side]))
        return hidesFactor(kernel, n->in[1 - side]);
  return n->kind == Node::Elem &&
         llvm::all_of(n->in, [&](Node *i) { return hidesFactor(kernel, i); });
}

void cuda::findLateScale(TileKernel &kernel) {
  TileKernel::LateScale late;
  bool hasFinite = false;
  if (!kernel.isInBits || kernel.numLevels() != 2)
    return;
  // Products that nothing scales are kept times log2(e) alone.
  bool isPlain = kernel.kept == kernel.contraction;
  if (!isPlain &&
      (!findFactor(kernel, kernel.kept, late, hasFinite) || !late.factor ||
       (hasFinite && !isPlainScale(late)) || !keepsLow(late)))
    return;
  // What rounding a pivot takes from it is a factor of what is relative to it.
  for (auto *writes : {&kernel.plan->finishWrites, &kernel.plan->sweepWrites})
    for (WritePlan &w : *writes)
      if (!hidesFactor(kernel, w.value))
        return;
  bool isMoved = false;
  for (StatePlan &s : kernel.plan->states) {
    if (kernel.levels[s.number] == 0)
      continue;
    const TileState *product = kernel.productOf(s);
    Node *factor = kernel.factorOf(s);
    if (readsOtherwise(kernel, product ? product->factor : s.term,
                       late.pivot) ||
        (!s.op.getTransport().empty() &&
         !(factor && kernel.isPowerOfTwo(factor))))
      return;
    isMoved |= !s.op.getTransport().empty();
  }
  if (isMoved && late.pivot)
    kernel.late = late;
}

bool cuda::mayLeaveBits(const TileKernel &kernel) {
  constexpr double kFar = 1e30;
  NodeSet seen, chosen;
  SmallVector<Node *> pending{kernel.kept};
  chosen.insert(kernel.kept);
  while (!pending.empty()) {
    Node *n = pending.pop_back_val();
    if (n == kernel.contraction || !seen.insert(n))
      continue;
    // Numbers that are chosen in place of products are no less than the least
    // product that stays finite.
    if (chosen.contains(n) && n->kind == Node::Const)
      continue;
    if (chosen.contains(n) && isOp(n, "arith.select"))
      for (Node *side : {n->in[1], n->in[2]})
        chosen.insert(side);
    if (n->kind == Node::Read) {
      Type type = n->op->getResult(0).getType();
      if (type.isF32() || type.isBF16())
        return true;
    }
    if (n->kind == Node::Const)
      if (auto number =
              dyn_cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
          number && number.getValue().isFinite() &&
          std::fabs(number.getValueAsDouble()) > kFar)
        return true;
    pending.append(n->in.begin(), n->in.end());
  }
  return false;
}
