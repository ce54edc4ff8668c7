// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Texts of generated kernels, to be read as programs of tile ops.
#ifndef REFOLD_UNITTESTS_TARGET_CUDA_PRINTEDTEXT_H
#define REFOLD_UNITTESTS_TARGET_CUDA_PRINTEDTEXT_H

#include "../../Conversion/ReadKernels.h"
#include "WeightedRows.h"

#include "mlir/Parser/Parser.h"
#include "refold/Conversion/CascadeToCUDA.h"

namespace refold::test {

/// Of the first function of a module.
inline std::string printedText(const std::string &program, const char *target) {
  auto context = makeContext();
  auto module = mlir::parseSourceString<mlir::ModuleOp>(program, context.get());
  CudaOptions options;
  options.target = target;
  auto kernel = printCascadeAsCuda(
      *module->getOps<mlir::func::FuncOp>().begin(), options);
  EXPECT_TRUE(mlir::succeeded(kernel));
  return mlir::succeeded(kernel) ? kernel->text : std::string();
}

} // namespace refold::test

#endif // REFOLD_UNITTESTS_TARGET_CUDA_PRINTEDTEXT_H
