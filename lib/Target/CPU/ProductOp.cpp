// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A contraction outside cascades, recognised by its maps and its body, becomes
// a product step.
#include "ProgramCompiler.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace refold;

namespace {
/// An operand of the body's product.
struct Factor {
  unsigned argument = 0;
  bool isUnsigned = false;
};

/// A loop of the contraction, with the strides it has in each operand.
struct Loop {
  bool isReduction = false;
  bool isInLhs = false, isInRhs = false;
  SizeExpr size, lhs, rhs, result;
};
} // namespace

/// Looks through the extension to the type of the sums.
static std::optional<Factor> factorOf(Value value, Block *block) {
  Factor factor;
  if (Operation *op = value.getDefiningOp()) {
    if (!isa<arith::ExtFOp, arith::ExtSIOp, arith::ExtUIOp>(op))
      return std::nullopt;
    factor.isUnsigned = isa<arith::ExtUIOp>(op);
    value = op->getOperand(0);
  }
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != block || argument.getArgNumber() > 1)
    return std::nullopt;
  factor.argument = argument.getArgNumber();
  return factor;
}

/// acc + a * b and nothing else.
static std::optional<std::array<Factor, 2>> matchBody(Block *block) {
  Operation *yield = block->getTerminator();
  if (block->getNumArguments() != 3 || yield->getNumOperands() != 1)
    return std::nullopt;
  Operation *sum = yield->getOperand(0).getDefiningOp();
  if (!isa_and_nonnull<arith::AddFOp, arith::AddIOp>(sum))
    return std::nullopt;
  for (unsigned side : {0u, 1u}) {
    if (sum->getOperand(side) != block->getArgument(2))
      continue;
    Operation *product = sum->getOperand(1 - side).getDefiningOp();
    if (!isa_and_nonnull<arith::MulFOp, arith::MulIOp>(product))
      return std::nullopt;
    std::optional<Factor> a = factorOf(product->getOperand(0), block);
    std::optional<Factor> b = factorOf(product->getOperand(1), block);
    if (!a || !b || a->argument == b->argument)
      return std::nullopt;
    if (a->argument == 1)
      std::swap(a, b);
    return std::array<Factor, 2>{*a, *b};
  }
  return std::nullopt;
}

/// Adds the strides of one operand to the loops; false where a subscript is no
/// plain loop.
static bool readStrides(AffineMap map, const ViewSpec &view,
                        MutableArrayRef<Loop> loops, SizeExpr Loop::*stride,
                        bool Loop::*isIn) {
  for (auto [dim, expr] : llvm::enumerate(map.getResults())) {
    auto loop = dyn_cast<AffineDimExpr>(expr);
    if (!loop)
      return false;
    Loop &of = loops[loop.getPosition()];
    of.*stride = of.*stride + view.strides[dim]; // x[i, i] steps along both
    of.size = view.sizes[dim];
    if (isIn)
      of.*isIn = true;
  }
  return true;
}

/// Merges the reduced loops into one; they must run on evenly in both operands.
static std::optional<Loop> mergeReduced(ArrayRef<Loop> loops) {
  std::optional<Loop> merged;
  for (const Loop &loop : llvm::reverse(loops)) {
    if (!loop.isReduction || loop.size == SizeExpr(1))
      continue;
    if (!merged) {
      merged = loop;
      continue;
    }
    if (!(loop.lhs == merged->lhs * merged->size) ||
        !(loop.rhs == merged->rhs * merged->size))
      return std::nullopt;
    merged->size = loop.size * merged->size;
  }
  if (merged)
    return merged;
  Loop one;
  one.size = 1;
  return one;
}

static bool isZero(TypedAttr value) {
  if (auto number = dyn_cast<FloatAttr>(value))
    return number.getValue().isZero();
  auto number = dyn_cast<IntegerAttr>(value);
  return number && number.getValue().isZero();
}

/// Removes and returns the last loop for which `isWanted` holds; a loop of one
/// step without any.
static Loop takeLast(SmallVectorImpl<Loop> &loops,
                     llvm::function_ref<bool(const Loop &)> isWanted) {
  for (size_t i = loops.size(); i-- > 0;)
    if (isWanted(loops[i])) {
      Loop taken = loops[i];
      loops.erase(loops.begin() + i);
      return taken;
    }
  Loop one;
  one.size = 1;
  return one;
}

/// The views of the step: batch dimensions, then the matrix.
static ProductStep arrange(const Slot &lhs, const Slot &rhs, const Slot &result,
                           ArrayRef<Loop> batch, const Loop &m, const Loop &n,
                           const Loop &k) {
  ProductStep step;
  auto view = [&](const Slot &slot, SizeExpr Loop::*stride, const Loop &rows,
                  const Loop &cols) {
    ViewSpec made = slot.view;
    made.sizes.clear();
    made.strides.clear();
    for (const Loop &loop : batch) {
      made.sizes.push_back(loop.size);
      made.strides.push_back(loop.*stride);
    }
    for (const Loop *loop : {&rows, &cols}) {
      made.sizes.push_back(loop->size);
      made.strides.push_back((*loop).*stride);
    }
    return made;
  };
  step.lhs = view(lhs, &Loop::lhs, m, k);
  step.rhs = view(rhs, &Loop::rhs, k, n);
  step.result = view(result, &Loop::result, m, n);
  return step;
}

llvm::Error ProgramCompiler::addProduct(linalg::LinalgOp op) {
  std::optional<std::array<Factor, 2>> factors;
  if (op->getNumResults() == 1 && op.getNumDpsInputs() == 2)
    factors = matchBody(op.getBlock());
  if (!factors)
    return refuse(op, "found '" + op->getName().getStringRef() +
                          "', which is no cascade, product, view or copy");
  Value init = op.getDpsInitOperand(0)->get();
  TypedAttr start = fills.lookup(init);
  if (!start || !isZero(start))
    return refuse(op, "found a product that adds to an array; expected sums "
                      "that start at 0");
  llvm::Expected<Slot> lhs = slotOf(op, op.getDpsInputOperand(0)->get());
  if (!lhs)
    return lhs.takeError();
  llvm::Expected<Slot> rhs = slotOf(op, op.getDpsInputOperand(1)->get());
  if (!rhs)
    return rhs.takeError();
  llvm::Expected<DType> dtype = dtypeFor(op, init.getType());
  if (!dtype)
    return dtype.takeError();
  Slot result = makeTemporary(*dtype, Sizes(empties.find(init)->second));
  for (auto [slot, factor] :
       llvm::zip(std::array<Slot *, 2>{&*lhs, &*rhs}, *factors))
    if (factor.isUnsigned && slot->view.dtype == DType::I8)
      slot->view.dtype = DType::U8;

  SmallVector<Loop> loops(op.getNumLoops());
  for (auto [loop, type] : llvm::zip_equal(loops, op.getIteratorTypesArray()))
    loop.isReduction = type == utils::IteratorType::reduction;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  if (!readStrides(maps[0], lhs->view, loops, &Loop::lhs, &Loop::isInLhs) ||
      !readStrides(maps[1], rhs->view, loops, &Loop::rhs, &Loop::isInRhs) ||
      !readStrides(maps[2], result.view, loops, &Loop::result, nullptr))
    return refuse(op, "found a product with computed subscripts");
  for (const Loop &loop : loops)
    if (loop.isReduction && !(loop.isInLhs && loop.isInRhs))
      return refuse(op, "found a product whose sum runs over an index that "
                        "only one side has");
  std::optional<Loop> k = mergeReduced(loops);
  if (!k)
    return refuse(op, "found a product that sums over dimensions that are not "
                      "neighbours in memory");
  llvm::erase_if(loops, [](const Loop &loop) { return loop.isReduction; });

  // The columns are the result's last dimension, so that its rows are
  // contiguous; the sides change places where that one is the left's.
  bool areSidesSwapped =
      !loops.empty() && loops.back().isInLhs && !loops.back().isInRhs;
  if (areSidesSwapped) {
    std::swap(*lhs, *rhs);
    std::swap(k->lhs, k->rhs);
    for (Loop &loop : loops) {
      std::swap(loop.lhs, loop.rhs);
      std::swap(loop.isInLhs, loop.isInRhs);
    }
  }
  Loop n = takeLast(
      loops, [](const Loop &loop) { return loop.isInRhs && !loop.isInLhs; });
  Loop m = takeLast(
      loops, [](const Loop &loop) { return loop.isInLhs && !loop.isInRhs; });
  ProductStep step = arrange(*lhs, *rhs, result, loops, m, n, *k);
  spec.steps.push_back({std::move(step), stepNameOf(op)});
  slots[op->getResult(0)] = result;
  productSteps[op->getResult(0)] = spec.steps.size() - 1;
  return llvm::Error::success();
}
