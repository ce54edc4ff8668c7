// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Factors of weighted sums as bf16, so that their products with bf16 rows are
// added in pairs. On the op, so that plan, cost and text all see the rounding.
#include "refold/Conversion/RoundFactors.h"

#include "Plan.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// What keeps an extreme finite: beyond all that elements can be.
static bool isBound(Value value, bool isMaximum) {
  auto constant = value.getDefiningOp<arith::ConstantOp>();
  auto number = constant ? dyn_cast<FloatAttr>(constant.getValue()) : nullptr;
  if (!number)
    return false;
  llvm::APFloat bound = number.getValue();
  return bound.isNegative() == isMaximum &&
         (bound.isInfinity() || bound.isLargest());
}

/// Whether `pivot` is the extreme of `x` over the row.
static bool isExtremeOf(Value pivot, Value x, bool isMaximum) {
  Operation *op = pivot.getDefiningOp();
  if (isMaximum ? isa_and_nonnull<arith::MaxNumFOp, arith::MaximumFOp>(op)
                : isa_and_nonnull<arith::MinNumFOp, arith::MinimumFOp>(op))
    for (unsigned i : {0, 1})
      if (isBound(op->getOperand(i), isMaximum))
        return isExtremeOf(op->getOperand(1 - i), x, isMaximum);
  auto state = dyn_cast_if_present<StateOp>(op);
  if (!state || state.isOrdered() || state.getValues()[0] != x)
    return false;
  Reducer reducer = state.getReducer();
  return isMaximum ? reducer == Reducer::Max || reducer == Reducer::MaxNum
                   : reducer == Reducer::Min || reducer == Reducer::MinNum;
}

/// Whether the largest `factor` of a row is 1: what is so small that its
/// rounding loses digits then weighs nothing, and nothing overflows.
static bool isOneAtItsLargest(Value factor) {
  Operation *power = factor.getDefiningOp();
  if (!isa_and_nonnull<math::ExpOp, math::Exp2Op>(power))
    return false;
  auto difference = power->getOperand(0).getDefiningOp<arith::SubFOp>();
  return difference && (isExtremeOf(difference.getRhs(), difference.getLhs(),
                                    /*isMaximum=*/true) ||
                        isExtremeOf(difference.getLhs(), difference.getRhs(),
                                    /*isMaximum=*/false));
}

/// Whether a value is another one for each column of results.
static bool variesByColumn(CascadeOp cascade, Value value) {
  uint64_t carried = cascade.indicesOfRole(CascadeOp::Carried);
  SmallVector<Value> work{value};
  llvm::SmallDenseSet<Value> seen{value};
  for (size_t i = 0; i < work.size(); ++i) {
    if (auto arg = dyn_cast<BlockArgument>(work[i]);
        arg && arg.getOwner() == &cascade.getBody().front() &&
        arg.getArgNumber() < cascade.numIndices() &&
        (carried >> arg.getArgNumber() & 1))
      return true;
    if (Operation *op = work[i].getDefiningOp())
      for (Value operand : op->getOperands())
        if (seen.insert(operand).second)
          work.push_back(operand);
  }
  return false;
}

/// Which result of its cascade a write is to.
static unsigned resultOf(CascadeOp cascade, WriteOp write) {
  return cast<BlockArgument>(write.getTarget()).getArgNumber() -
         cascade.numIndices() - cascade.getInputs().size();
}

/// Whether all that reads an array is the end of the program: what other steps
/// make of it (differences, say) may lose digits that it has.
static bool isReturned(CascadeOp cascade, WriteOp write) {
  if (cascade->getNumResults() == 0) // on memrefs: alone in its function
    return true;
  return llvm::all_of(
      cascade->getResult(resultOf(cascade, write)).getUsers(),
      [](Operation *user) { return isa<func::ReturnOp>(user); });
}

/// The writes of `sum`, where results have no larger relative error than it
/// has, by the largest of their row: nothing reads it but products and
/// quotients with numbers of the row, and roundings; none of them reads it
/// twice, and no other step.
static FailureOr<SmallVector<WriteOp>> writesOfFactor(CascadeOp cascade,
                                                      Value sum) {
  SmallVector<WriteOp> writes;
  SmallVector<Value> work{sum};
  llvm::SmallDenseSet<Value> reached{sum};
  for (size_t i = 0; i < work.size(); ++i)
    for (OpOperand &use : work[i].getUses()) {
      Operation *user = use.getOwner();
      if (auto write = dyn_cast<WriteOp>(user)) {
        if (!isReturned(cascade, write))
          return failure();
        writes.push_back(write);
        continue;
      }
      if (isa<arith::MulFOp, arith::DivFOp>(user) &&
          variesByColumn(cascade, user->getOperand(1 - use.getOperandNumber())))
        return failure();
      bool isDivisor = isa<arith::DivFOp>(user) && use.getOperandNumber() == 1;
      if (isDivisor ||
          !isa<arith::MulFOp, arith::DivFOp, arith::NegFOp, arith::ExtFOp,
               arith::TruncFOp>(user) ||
          !reached.insert(user->getResult(0)).second)
        return failure();
      work.push_back(user->getResult(0));
    }
  return writes;
}

/// Of the rows that a product multiplies its factor with: the widened read of
/// bf16 elements.
static bool isWidenedRead(Value value) {
  auto widened = value.getDefiningOp<arith::ExtFOp>();
  return widened && widened.getIn().getType().isBF16() &&
         widened.getIn().getDefiningOp<ReadOp>();
}

/// The operand of the summed product that is to be rounded; kNone: none is.
static int factorToRound(CascadeOp cascade, StateOp state) {
  if (state.getReducer() != Reducer::Add || state.getPivots().empty())
    return kNone;
  auto product = state.getValues()[0].getDefiningOp<arith::MulFOp>();
  if (!product || !product.getType().isF32())
    return kNone;
  for (int side : {0, 1})
    if (isWidenedRead(product->getOperand(1 - side)) &&
        isOneAtItsLargest(product->getOperand(side)) &&
        succeeded(writesOfFactor(cascade, state.getResults()[0])))
      return side;
  return kNone;
}

/// The same product of the rounded factor.
static Value withRounded(arith::MulFOp product, unsigned side) {
  OpBuilder b(product);
  Location loc = product.getLoc();
  Value half = b.create<arith::TruncFOp>(loc, b.getBF16Type(),
                                         product->getOperand(side));
  Value wide = b.create<arith::ExtFOp>(loc, b.getF32Type(), half);
  Operation *copy = b.clone(*product);
  copy->setOperand(side, wide);
  return copy->getResult(0);
}

static void eraseUnused(Value value) {
  Operation *op = value.getDefiningOp();
  if (!op || !op->use_empty() || isa<ReadOp, StateOp>(op))
    return;
  SmallVector<Value> operands(op->getOperands());
  op->erase();
  for (Value operand : operands)
    eraseUnused(operand);
}

/// Whether `index` is the last subscript of a write: errors are measured by
/// rows of results.
static bool isAlong(CascadeOp cascade, WriteOp write, int index) {
  AffineMap map = write.getMap();
  auto last = map.getNumResults()
                  ? dyn_cast<AffineDimExpr>(map.getResults().back())
                  : nullptr;
  return last && write.getIndices()[last.getPosition()] ==
                     cascade.getBody().front().getArgument(index);
}

/// Whether the walk adds the products of `state` in pairs, and rows of its
/// columns are long enough to judge them by.
static bool mayRound(CascadeOp cascade, Plan &plan, const StatePlan &state,
                     ArrayRef<WriteOp> writes) {
  if (!plan.pairs.count(state.term))
    return false;
  int64_t width = plan.extent(state.lane);
  return !ShapedType::isDynamic(width) && width >= kLeastOfRow &&
         llvm::all_of(writes, [&](WriteOp write) {
           return isAlong(cascade, write, state.lane);
         });
}

RoundedFactors refold::roundFactors(CascadeOp cascade,
                                    const TargetFacts &target) {
  RoundedFactors rounded;
  if (!target.addsPairs)
    return rounded;
  struct Rounded {
    StateOp state;
    unsigned number;
    Value before;
  };
  SmallVector<Rounded> all;
  for (auto [number, state] :
       llvm::enumerate(cascade.getBody().getOps<StateOp>()))
    if (int side = factorToRound(cascade, state); side != kNone) {
      Value before = state.getValues()[0];
      auto product = before.getDefiningOp<arith::MulFOp>();
      all.push_back({state, unsigned(number), before});
      state.getValuesMutable()[0].set(withRounded(product, side));
    }
  if (all.empty())
    return rounded;
  OwningOpRef<func::FuncOp> copy;
  CascadeOp onMemrefs = cascade;
  if (cascade->getNumResults() > 0) {
    copy = copyOnMemrefs(cascade);
    onMemrefs = cast<CascadeOp>(copy->front().front());
  }
  auto plan = makePlan(onMemrefs, target);
  for (Rounded &one : all) {
    Value now = one.state.getValues()[0];
    SmallVector<WriteOp> writes =
        *writesOfFactor(cascade, one.state.getResults()[0]);
    bool isTaken =
        succeeded(plan) &&
        mayRound(cascade, **plan, (*plan)->states[one.number], writes);
    if (isTaken) {
      rounded.error = factorRoundingOf(BFloat16Type::get(cascade.getContext()));
      for (WriteOp write : writes)
        rounded.results.push_back(resultOf(cascade, write));
    } else {
      one.state.getValuesMutable()[0].set(one.before);
    }
    eraseUnused(isTaken ? one.before : now);
  }
  return rounded;
}

namespace {
struct RoundFactors : PassWrapper<RoundFactors, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(RoundFactors)
  StringRef getArgument() const override { return "refold-round-factors"; }
  StringRef getDescription() const override {
    return "Round factors of weighted sums of bf16 rows to bf16, where their "
           "products are then added in pairs";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect>();
  }
  void runOnOperation() override {
    TargetFacts target = TargetFacts::avx512();
    target.addsPairs = true;
    getOperation()->walk(
        [&](CascadeOp cascade) { (void)roundFactors(cascade, target); });
  }
};
} // namespace

std::unique_ptr<Pass> refold::createRoundFactorsPass() {
  return std::make_unique<RoundFactors>();
}
