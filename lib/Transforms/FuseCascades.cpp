// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Transforms/FuseCascades.h"

#include "refold/Algebra/Certify.h"
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

/// The program of a kernel: fused as far as the algebra goes and its
/// certificate holds, otherwise as written.
static LogicalResult deriveKernel(const KernelPlan &plan,
                                  const FuseCascadesOptions &options,
                                  FusedKernel &kernel,
                                  std::vector<FusionNote> &notes) {
  Operation *at = plan.outputs[0].tensor.getDefiningOp();
  const algebra::Cascade &cascade = plan.formula->cascade;
  algebra::Policy policy;
  policy.fuse = options.fuse;
  kernel.derivation = algebra::derive(cascade, policy);
  if (!kernel.derivation.program)
    return at->emitError("no program is derived: ") << kernel.derivation.error;
  bool isMoved = llvm::any_of(
      kernel.derivation.program->definitions, [](const auto &definition) {
        auto *state = std::get_if<algebra::State>(&definition);
        return state && state->transport;
      });
  if (kernel.derivation.program->boundsExponentials && !plan.isCascade())
    notes.push_back({"bounded-exponentials",
                     "exponentials of '" + kernel.name +
                         "' are kept relative to their largest",
                     at->getLoc()});
  if (!options.certify || !options.fuse || !(plan.isCascade() || isMoved))
    return success();
  algebra::Certified certified =
      algebra::certified(cascade, std::move(kernel.derivation), policy);
  kernel.derivation = std::move(certified.derivation);
  kernel.certificate = certified.certificate.summary();
  if (certified.isFallback)
    notes.push_back({"certified-fallback",
                     "the derived program of '" + kernel.name +
                         "' failed its certificate and is not used: " +
                         certified.certificate.failure,
                     at->getLoc()});
  return kernel.derivation.program ? success()
                                   : at->emitError("no program is derived: ")
                                         << kernel.derivation.error;
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
  for (const Refusal &note : plan->notes)
    result.notes.push_back(
        {note.key, note.text, (note.at ? note.at : function)->getLoc()});
  result.products = plan->products.size();
  Block &block = function.getBody().front();
  OpBuilder b(block.getTerminator());
  for (const ProductPlan &product : plan->products)
    rewireProduct(product);
  SmallVector<std::pair<Value, Value>> replacements;
  for (const KernelPlan &kernelPlan : plan->kernels) {
    FusedKernel kernel;
    kernel.name = sourceName(kernelPlan.outputs.back().tensor);
    kernel.formula = kernelPlan.formula;
    kernel.isCascade = kernelPlan.isCascade();
    if (failed(deriveKernel(kernelPlan, options, kernel, result.notes)))
      return failure();
    FailureOr<EmittedCascade> emitted = emitCascade(
        b, *kernel.formula, *kernel.derivation.program, kernelPlan.outputs);
    if (failed(emitted))
      return failure();
    kernel.op = emitted->op;
    for (auto [output, value] : llvm::zip(kernelPlan.outputs, emitted->results))
      replacements.push_back({output.tensor, value});
    result.kernels.push_back(std::move(kernel));
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
  registerPass([] { return createRecertifyCascadesPass(); });
}
