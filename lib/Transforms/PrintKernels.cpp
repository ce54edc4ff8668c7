// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the analysis found, as remarks: the kernels a function would become,
// their indices, stages and outputs as formulas. For tests and for people.
#include "refold/Analysis/Kernels.h"
#include "refold/Transforms/Passes.h"

using namespace mlir;
using namespace refold;

static StringRef roleName(algebra::IndexRole role) {
  switch (role) {
  case algebra::IndexRole::Row:
    return "row";
  case algebra::IndexRole::Stream:
    return "stream";
  case algebra::IndexRole::Inner:
    return "inner";
  case algebra::IndexRole::Carried:
    return "carried";
  case algebra::IndexRole::Rank:
    return "rank";
  }
  return "";
}

static std::string describe(const KernelPlan &kernel) {
  std::string text;
  llvm::raw_string_ostream out(text);
  const algebra::Cascade &cascade = kernel.formula->cascade;
  out << (kernel.isCascade() ? "cascade over" : "kernel over");
  for (const algebra::Index &index : cascade.indices)
    out << ' ' << roleName(index.role) << ' ' << index.name << ' '
        << (index.extent < 0 ? std::string("?") : std::to_string(index.extent));
  for (const algebra::Stage &stage : cascade.stages)
    out << "\n  " << stage.name << " = " << algebra::spelling(stage.reducer)
        << ' ' << algebra::dump(stage.term);
  for (const algebra::Output &output : cascade.outputs)
    out << "\n  output " << output.name << " = " << algebra::dump(output.value);
  return text;
}

namespace {
struct PrintKernels : PassWrapper<PrintKernels, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(PrintKernels)
  PrintKernels() = default;
  PrintKernels(const PrintKernels &other) : PassWrapper(other) {}
  StringRef getArgument() const override { return "refold-print-kernels"; }
  StringRef getDescription() const override {
    return "the kernels that the analysis finds, as remarks";
  }
  void runOnOperation() override {
    SizeTable sizes(getOperation());
    FailureOr<ProgramPlan> plan =
        planKernels(getOperation(), sizes, PlanOptions{fuse, {}});
    if (failed(plan))
      return signalPassFailure();
    for (const KernelPlan &kernel : plan->kernels)
      kernel.outputs[0].tensor.getDefiningOp()->emitRemark()
          << describe(kernel);
    for (const ProductPlan &product : plan->products)
      product.op->emitRemark() << "product";
    for (const Refusal &note : plan->notes)
      note.at->emitRemark() << "not fused [" << note.key << "]: " << note.text;
  }
  Option<bool> fuse{*this, "fuse", llvm::cl::init(true),
                    llvm::cl::desc("false: every reduction on its own")};
};
} // namespace

std::unique_ptr<Pass> refold::createPrintKernelsPass() {
  return std::make_unique<PrintKernels>();
}
