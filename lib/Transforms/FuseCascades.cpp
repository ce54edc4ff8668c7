// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Transforms/FuseCascades.h"

#include "refold/Transforms/Passes.h"

#include "mlir/Analysis/TopologicalSortUtils.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace refold;

/// Products read what the plan says, in place of what dissolves.
static void rewireProduct(const ProductPlan &plan) {
  linalg::GenericOp op = plan.op;
  SmallVector<AffineMap> maps = op.getIndexingMapsArray();
  for (auto [i, operand] : llvm::enumerate(plan.operands)) {
    op.setOperand(i, operand.first);
    maps[i] = operand.second;
  }
  Builder b(op.getContext());
  op.setIndexingMapsAttr(b.getAffineMapArrayAttr(maps));
}

static void eraseDead(Block &block) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
      if (isOpTriviallyDead(&op)) {
        op.erase();
        changed = true;
      }
  }
}

/// The program of a kernel: fused as far as the algebra goes, or as written.
static FailureOr<algebra::Derivation> deriveKernel(const KernelPlan &kernel,
                                                   bool fuse) {
  algebra::Policy policy;
  policy.fuse = fuse;
  algebra::Derivation derivation =
      algebra::derive(kernel.formula->cascade, policy);
  if (!derivation.program) {
    Operation *at = kernel.outputs[0].tensor.getDefiningOp();
    return at->emitError("no program is derived: ") << derivation.error,
           failure();
  }
  return derivation;
}

FailureOr<FusionResult>
refold::fuseCascades(func::FuncOp function,
                     const FuseCascadesOptions &options) {
  SizeTable sizes(function);
  FailureOr<ProgramPlan> plan =
      planKernels(function, sizes, PlanOptions{options.fuse});
  if (failed(plan))
    return failure();
  FusionResult result;
  result.notes = plan->notes;
  result.products = plan->products.size();
  Block &block = function.getBody().front();
  OpBuilder b(block.getTerminator());
  for (const ProductPlan &product : plan->products)
    rewireProduct(product);
  SmallVector<std::pair<Value, Value>> replacements;
  for (const KernelPlan &kernel : plan->kernels) {
    FailureOr<algebra::Derivation> derivation =
        deriveKernel(kernel, options.fuse);
    if (failed(derivation))
      return failure();
    FailureOr<CascadeOp> op =
        emitCascade(b, *kernel.formula, *derivation->program, kernel.outputs);
    if (failed(op))
      return failure();
    for (auto [output, value] : llvm::zip(kernel.outputs, op->getResults()))
      replacements.push_back({output.tensor, value});
    result.kernels.push_back({sourceName(kernel.outputs.back().tensor),
                              kernel.formula, std::move(*derivation), "",
                              kernel.isCascade(), *op});
  }
  for (auto [from, to] : replacements)
    from.replaceAllUsesWith(to);
  eraseDead(block);
  // Kernels were put at the end; their readers may stand before them.
  if (!sortTopologically(&block))
    return function.emitError("kernels depend on each other in a circle"),
           failure();
  return result;
}

namespace {
struct FuseCascades : PassWrapper<FuseCascades, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FuseCascades)
  FuseCascades() = default;
  FuseCascades(const FuseCascades &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "refold-fuse-cascades"; }
  StringRef getDescription() const override {
    return "reductions that read each other as one refold.cascade";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<RefoldDialect, arith::ArithDialect, math::MathDialect,
                    tensor::TensorDialect>();
  }
  void runOnOperation() override {
    FuseCascadesOptions options;
    options.fuse = fuse;
    if (failed(fuseCascades(getOperation(), options)))
      signalPassFailure();
  }
  Option<bool> fuse{*this, "fuse", llvm::cl::init(true),
                    llvm::cl::desc("false: every reduction on its own")};
};
} // namespace

std::unique_ptr<Pass> refold::createFuseCascadesPass() {
  return std::make_unique<FuseCascades>();
}

void refold::registerRefoldPasses() {
  registerPass([] { return createNormaliseProgramPass(); });
  registerPass([] { return createFuseCascadesPass(); });
  registerPass([] { return createPrintKernelsPass(); });
}
