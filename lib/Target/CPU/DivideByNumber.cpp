// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Many divisions by one number as two operations each: the reciprocal of the
// number is made once, where the number is, and not where it divides.
#include "VectorMath.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Matchers.h"
#include "mlir/IR/TypeUtilities.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>

using namespace mlir;
using namespace refold;

namespace {
/// x / d = x·high + x·low: see refold/Support/Reciprocal.h. `high` is below
/// 1 / d by magnitude, always, so that `low` is no 0 and infinities are kept.
struct Parts {
  Value arePlain; ///< i1: d is so far from the ends of the range that they hold
  Value high, low;
};
} // namespace

static Parts partsOf(VectorMath &m, OpBuilder &b, Value divisor) {
  using Compare = arith::CmpFPredicate;
  const int power = m.isDouble() ? 960 : 100;
  Location loc = divisor.getLoc();
  Value magnitude = m.abs(divisor);
  Value isAbove = m.compare(Compare::OGT, magnitude, std::ldexp(1.0, -power));
  Value isBelow = m.compare(Compare::OLT, magnitude, std::ldexp(1.0, power));
  Parts parts;
  parts.arePlain = b.create<arith::AndIOp>(loc, isAbove, isBelow);
  if (isa<VectorType>(divisor.getType()))
    parts.arePlain = b.create<vector::ReductionOp>(
        loc, vector::CombiningKind::AND, parts.arePlain);
  Value one = m.constant(1.0), minus = m.neg(divisor);
  Value nearest = m.div(one, divisor);
  Value isTooLarge = m.compare(Compare::OLE, m.fma(minus, nearest, one), 0.0);
  Value step = m.select(isTooLarge, m.integer(1), m.integer(0));
  parts.high = m.fromBits(m.subInt(m.bitsOf(nearest), step));
  parts.low = m.mul(m.fma(minus, parts.high, one), nearest);
  return parts;
}

namespace {
/// The parts of the divisors of one module.
class Divisors {
public:
  explicit Divisors(InstructionSet instructionSet)
      : instructionSet(instructionSet) {}

  /// Made where `divisor` is, or the number that all its lanes are.
  Parts of(Value divisor) {
    if (auto it = known.find(divisor); it != known.end())
      return it->second;
    OpBuilder b(divisor.getContext());
    b.setInsertionPointAfterValue(divisor);
    Parts parts;
    auto all = divisor.getDefiningOp<vector::BroadcastOp>();
    if (all && isa<FloatType>(all.getSource().getType())) {
      parts = of(all.getSource());
      for (Value *part : {&parts.high, &parts.low})
        *part =
            b.create<vector::BroadcastOp>(all.getLoc(), all.getType(), *part);
    } else {
      VectorMath m(b, divisor.getLoc(), divisor.getType(), instructionSet);
      parts = partsOf(m, b, divisor);
    }
    return known[divisor] = parts;
  }

private:
  InstructionSet instructionSet;
  llvm::DenseMap<Value, Parts> known;
};

/// Quotients by one divisor that are computed side by side, so that they ask
/// once whether it has parts.
using Group = SmallVector<arith::DivFOp, 4>;
} // namespace

static bool isLoad(Operation *op) {
  return isa<vector::LoadOp, vector::MaskedLoadOp, memref::LoadOp>(op);
}

/// Moves `op` and what it takes of its block to the first of `together`, if
/// nothing between them could be seen there and it takes none of them.
static bool moveTo(const Group &together, Operation *op) {
  constexpr size_t kMost = 16;
  Operation *head = together.front();
  Block *block = head->getBlock();
  llvm::SetVector<Operation *> needed;
  needed.insert(op);
  for (size_t i = 0; i < needed.size(); ++i)
    for (Value v : needed[i]->getOperands())
      if (Operation *made = v.getDefiningOp();
          made && made->getBlock() == block) {
        if (llvm::is_contained(together, made))
          return false;
        if (made->isBeforeInBlock(head))
          continue;
        if (!(isPure(made) || isLoad(made)) || made->getNumRegions() ||
            needed.size() == kMost)
          return false;
        needed.insert(made);
      }
  if (llvm::any_of(needed, isLoad))
    for (Operation *between = head; between != op;
         between = between->getNextNode())
      if (!isPure(between) && !isLoad(between) &&
          !isa<memref::PrefetchOp>(between))
        return false;
  SmallVector<Operation *> inOrder = needed.takeVector();
  llvm::sort(inOrder, [](Operation *x, Operation *y) {
    return x != y && x->isBeforeInBlock(y);
  });
  for (Operation *each : inOrder)
    each->moveBefore(head);
  return true;
}

/// The marked quotients of `inside`, their marks taken off.
static SmallVector<Group> groupsOf(Operation *inside) {
  SmallVector<Group> groups;
  llvm::DenseMap<std::pair<Block *, Value>, size_t> last;
  inside->walk([&](arith::DivFOp op) {
    if (!bitEnumContainsAll(op.getFastmath(), arith::FastMathFlags::arcp))
      return;
    // LLVM would take the mark for leave to err.
    op.setFastmath(arith::FastMathFlags::none);
    Type element = getElementTypeOrSelf(op.getType());
    if (!(element.isF32() || element.isF64()) ||
        matchPattern(op.getRhs(), m_Constant()))
      return;
    auto [it, isNew] =
        last.try_emplace({op->getBlock(), op.getRhs()}, groups.size());
    if (isNew)
      groups.emplace_back();
    groups[it->second].push_back(op);
  });
  return groups;
}

/// Divides those of the group that may stand beside its first one, and leaves
/// the others in it.
static void divideTogether(Group &group, const Parts &parts,
                           InstructionSet instructionSet) {
  Group together = {group.front()}, rest;
  for (arith::DivFOp op : llvm::drop_begin(group))
    (moveTo(together, op) ? together : rest).push_back(op);
  auto yield = [&](OpBuilder &b, Location loc, auto quotient) {
    SmallVector<Value> results;
    for (arith::DivFOp op : together) {
      VectorMath m(b, loc, op.getType(), instructionSet);
      results.push_back(quotient(m, op.getLhs(), op.getRhs()));
    }
    b.create<scf::YieldOp>(loc, results);
  };
  OpBuilder b(together.front()); // those that were moved stand before it
  auto either = b.create<scf::IfOp>(
      together.front().getLoc(), parts.arePlain,
      [&](OpBuilder &b, Location loc) {
        yield(b, loc, [&](VectorMath &m, Value x, Value) {
          return m.fma(x, parts.high, m.mul(x, parts.low));
        });
      },
      [&](OpBuilder &b, Location loc) {
        yield(b, loc, [](VectorMath &m, Value x, Value divisor) {
          return m.div(x, divisor);
        });
      });
  for (auto [op, quotient] : llvm::zip(together, either.getResults())) {
    op.replaceAllUsesWith(quotient);
    op.erase();
  }
  group = rest;
}

void refold::divideByNumbers(Operation *inside, InstructionSet instructionSet) {
  Divisors divisors(instructionSet);
  for (Group &group : groupsOf(inside))
    if (instructionSet != InstructionSet::Baseline)
      while (!group.empty())
        divideTogether(group, divisors.of(group.front().getRhs()),
                       instructionSet);
}
