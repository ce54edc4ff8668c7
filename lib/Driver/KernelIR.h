// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_KERNELIR_H
#define REFOLD_LIB_DRIVER_KERNELIR_H

#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Driver/Driver.h"

namespace refold {

/// The text of a kernel as IR again, with what its body says.
struct KernelIR {
  mlir::OwningOpRef<mlir::ModuleOp> module;
  CascadeOp cascade;
  IndexSets sets;
};
llvm::Expected<KernelIR> parseKernel(mlir::MLIRContext &context,
                                     const KernelText &kernel);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_KERNELIR_H
