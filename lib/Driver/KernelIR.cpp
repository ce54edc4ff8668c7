// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelIR.h"
#include "mlir/Parser/Parser.h"
#include "refold/Support/Diagnostics.h"

namespace refold {

llvm::Expected<KernelIR> parseKernel(mlir::MLIRContext &context,
                                     const KernelText &kernel) {
  DiagnosticCollector collector(context);
  KernelIR result;
  result.module =
      mlir::parseSourceString<mlir::ModuleOp>(kernel.text, &context);
  if (result.module)
    result.module->walk([&](CascadeOp op) { result.cascade = op; });
  if (!result.cascade)
    return collector.takeErrors("a kernel's own text was not read");
  mlir::FailureOr<IndexSets> sets = IndexSets::infer(result.cascade);
  if (mlir::failed(sets))
    return collector.takeErrors("a kernel has no index sets");
  result.sets = std::move(*sets);
  return std::move(result);
}

} // namespace refold
