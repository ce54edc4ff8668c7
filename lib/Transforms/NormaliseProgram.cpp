// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Analysis/Sizes.h"
#include "refold/Transforms/FuseCascades.h"
#include "refold/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Linalg/Transforms/Transforms.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;
using namespace refold;

/// linalg.softmax and its like are compositions: taken apart, nothing below
/// needs to know them.
static LogicalResult decomposeAggregates(func::FuncOp function) {
  SmallVector<linalg::AggregatedOpInterface> aggregates;
  function.walk(
      [&](linalg::AggregatedOpInterface op) { aggregates.push_back(op); });
  for (linalg::AggregatedOpInterface op : aggregates) {
    OpBuilder b(op);
    FailureOr<SmallVector<Value>> results = op.decomposeOperation(b);
    if (failed(results))
      return op->emitError("cannot be written as linalg.generic");
    op->replaceAllUsesWith(*results);
    op->erase();
  }
  return success();
}

static LogicalResult generalise(func::FuncOp function) {
  SmallVector<linalg::LinalgOp> named;
  function.walk([&](linalg::LinalgOp op) {
    if (!isa<linalg::GenericOp, linalg::FillOp>(op))
      named.push_back(op);
  });
  IRRewriter rewriter(function.getContext());
  for (linalg::LinalgOp op : named) {
    rewriter.setInsertionPoint(op);
    if (failed(linalg::generalizeNamedOp(rewriter, op)))
      return op->emitError("cannot be written as linalg.generic");
  }
  return success();
}

/// Sizes as arithmetic on the arguments' sizes, so that nothing asks for the
/// size of a tensor that will dissolve.
static void resolveSizes(func::FuncOp function) {
  SizeTable sizes(function);
  SmallVector<tensor::DimOp> dims;
  function.walk([&](tensor::DimOp dim) { dims.push_back(dim); });
  for (tensor::DimOp dim : dims) {
    std::optional<int64_t> at = dim.getConstantIndex();
    auto type = dyn_cast<RankedTensorType>(dim.getSource().getType());
    if (!at || !type || *at >= type.getRank() ||
        isa<BlockArgument>(dim.getSource()))
      continue;
    OpBuilder b(dim);
    Value size =
        sizes.materialise(b, dim.getLoc(), sizes.of(dim.getSource(), *at));
    if (size != dim.getResult())
      dim.replaceAllUsesWith(size);
  }
}

LogicalResult refold::normaliseProgram(func::FuncOp function) {
  if (!function.getBody().hasOneBlock())
    return function.emitError("has ")
           << function.getBody().getBlocks().size() << " blocks; expected 1";
  if (failed(decomposeAggregates(function)) || failed(generalise(function)))
    return failure();
  PassManager pm(function.getContext(), func::FuncOp::getOperationName());
  pm.addPass(createCSEPass());
  pm.addPass(createCanonicalizerPass());
  pm.addPass(createCSEPass());
  if (failed(pm.run(function)))
    return failure();
  resolveSizes(function);
  return success();
}

namespace {
struct NormaliseProgram
    : PassWrapper<NormaliseProgram, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(NormaliseProgram)
  StringRef getArgument() const override { return "refold-normalise-program"; }
  StringRef getDescription() const override {
    return "named ops as linalg.generic, sizes as arithmetic on arguments";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, linalg::LinalgDialect,
                    tensor::TensorDialect>();
  }
  void runOnOperation() override {
    if (failed(normaliseProgram(getOperation())))
      signalPassFailure();
  }
};
} // namespace

std::unique_ptr<Pass> refold::createNormaliseProgramPass() {
  return std::make_unique<NormaliseProgram>();
}
