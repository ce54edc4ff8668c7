// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The passes, and what the rest of the house calls.
#include "refold/Conversion/CascadeToVector.h"

#include "CxxSpelling.h"
#include "Kernel.h"
#include "Plan.h"
#include "VectorSpelling.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/Pass/PassRegistry.h"
#include "refold/Conversion/RoundFactors.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// The cascade of a kernel, checked to be one.
static FailureOr<CascadeOp> cascadeOf(func::FuncOp kernel) {
  if (kernel.isExternal() || !llvm::hasSingleElement(kernel.getBody()) ||
      kernel.getNumResults())
    return kernel.emitOpError("is no kernel: expected one block without "
                              "results that holds one refold.cascade"),
           failure();
  auto cascades = kernel.getBody().front().getOps<CascadeOp>();
  if (!llvm::hasSingleElement(cascades) ||
      kernel.getBody().front().getOperations().size() != 2)
    return kernel.emitOpError("is no kernel: expected one refold.cascade and a "
                              "return"),
           failure();
  CascadeOp cascade = *cascades.begin();
  if (ValueRange(cascade->getOperands()) != ValueRange(kernel.getArguments()))
    return cascade.emitOpError("operands must be the arguments of the kernel, "
                               "in order"),
           failure();
  return cascade;
}

FailureOr<LoweredKernel> refold::lowerCascade(func::FuncOp kernel,
                                              const TargetFacts &target) {
  auto cascade = cascadeOf(kernel);
  if (failed(cascade))
    return failure();
  auto plan = makePlan(*cascade, target);
  if (failed(plan))
    return failure();
  kernel.getContext()
      ->loadDialect<arith::ArithDialect, LLVM::LLVMDialect, math::MathDialect,
                    memref::MemRefDialect, scf::SCFDialect,
                    vector::VectorDialect>();
  VectorSpelling to(kernel, (*plan)->lanes, target);
  LoweredKernel result;
  result.name = kernel.getName().str();
  result.phases = Kernel(**plan, to).emit();
  for (auto &[node, pack] : (*plan)->packs)
    if (!pack.isOwn)
      result.packedOperands.push_back(pack.operand);
  result.sharesOnlyPanels = (*plan)->schedule.segments <= 1;
  kernel.erase();
  return result;
}

FailureOr<std::string> refold::printCascadeAsCxx(func::FuncOp kernel) {
  auto cascade = cascadeOf(kernel);
  if (failed(cascade))
    return failure();
  auto plan = makePlan(*cascade, TargetFacts::scalar());
  if (failed(plan))
    return failure();
  CxxSpelling to(kernel);
  Kernel(**plan, to).emit();
  if (!to.unknown.empty())
    return cascade->emitOpError("has an op without C++ spelling: ")
               << to.unknown,
           failure();
  return to.text;
}

FailureOr<std::string> refold::describePlan(CascadeOp cascade,
                                            const TargetFacts &target) {
  auto plan = makePlan(cascade, target);
  if (failed(plan))
    return failure();
  return (*plan)->describe();
}

OwningOpRef<func::FuncOp> walk::copyOnMemrefs(CascadeOp cascade) {
  OpBuilder b(cascade.getContext());
  SmallVector<Type> types;
  for (Type type : cascade->getOperandTypes()) {
    auto tensor = dyn_cast<RankedTensorType>(type);
    types.push_back(
        tensor ? MemRefType::get(tensor.getShape(), tensor.getElementType())
               : type);
  }
  OwningOpRef<func::FuncOp> function = func::FuncOp::create(
      cascade.getLoc(), "copy", b.getFunctionType(types, {}));
  Block *block = function->addEntryBlock();
  OperationState state(cascade.getLoc(), CascadeOp::getOperationName());
  state.addOperands(block->getArguments());
  state.addAttributes(cascade->getAttrDictionary().getValue());
  IRMapping mapping;
  cascade.getBody().cloneInto(state.addRegion(), mapping);
  block->push_back(Operation::create(state));
  return function;
}

FailureOr<bool> refold::leavesValuesUnread(CascadeOp cascade,
                                           const TargetFacts &target) {
  OwningOpRef<func::FuncOp> copy;
  if (cascade->getNumResults() > 0) {
    copy = copyOnMemrefs(cascade);
    cascade = cast<CascadeOp>(copy->front().front());
  }
  auto plan = makePlan(cascade, target);
  if (failed(plan))
    return failure();
  return llvm::any_of((*plan)->passes, [](const PassPlan &pass) {
    return !pass.conditions.empty();
  });
}

FailureOr<double> refold::walkedShare(CascadeOp cascade,
                                      const TargetFacts &target,
                                      ArrayRef<double> extents) {
  OwningOpRef<func::FuncOp> copy;
  if (cascade->getNumResults() > 0) {
    copy = copyOnMemrefs(cascade);
    cascade = cast<CascadeOp>(copy->front().front());
  }
  auto plan = makePlan(cascade, target);
  if (failed(plan))
    return failure();
  return walk::walkedShare(**plan, extents);
}

namespace {
struct LowerCascade : PassWrapper<LowerCascade, OperationPass<ModuleOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(LowerCascade)
  explicit LowerCascade(const TargetFacts &target) : target(target) {}
  StringRef getArgument() const override { return "refold-lower-cascade"; }
  StringRef getDescription() const override {
    return "Lower kernels, each one refold.cascade on memrefs, to scf and "
           "vector by the kernel ABI";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry.insert<arith::ArithDialect, LLVM::LLVMDialect, math::MathDialect,
                    memref::MemRefDialect, scf::SCFDialect,
                    vector::VectorDialect>();
  }
  void runOnOperation() override {
    SmallVector<func::FuncOp> kernels;
    getOperation().walk([&](CascadeOp cascade) {
      if (auto kernel = dyn_cast<func::FuncOp>(cascade->getParentOp()))
        kernels.push_back(kernel);
    });
    for (func::FuncOp kernel : kernels)
      if (failed(lowerCascade(kernel, target)))
        return signalPassFailure();
  }
  TargetFacts target;
};

struct PrintPlan : PassWrapper<PrintPlan, OperationPass<>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrintPlan)
  StringRef getArgument() const override { return "refold-print-plan"; }
  StringRef getDescription() const override {
    return "Print what the walk decides before a target has a say";
  }
  void runOnOperation() override {
    WalkResult walked = getOperation()->walk([](CascadeOp cascade) {
      auto text = describePlan(cascade, TargetFacts());
      if (failed(text))
        return WalkResult::interrupt();
      llvm::outs() << *text;
      return WalkResult::advance();
    });
    if (walked.wasInterrupted())
      signalPassFailure();
  }
};
} // namespace

std::unique_ptr<Pass>
refold::createLowerCascadePass(const TargetFacts &target) {
  return std::make_unique<LowerCascade>(target);
}

std::unique_ptr<Pass> refold::createPrintPlanPass() {
  return std::make_unique<PrintPlan>();
}

void refold::registerCascadeToVectorPasses() {
  registerPass([] { return createLowerCascadePass(); });
  registerPass([] { return createPrintPlanPass(); });
  registerPass([] { return createRoundFactorsPass(); });
}
