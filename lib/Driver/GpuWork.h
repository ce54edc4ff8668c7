// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_GPUWORK_H
#define REFOLD_LIB_DRIVER_GPUWORK_H

#include "refold/Driver/Driver.h"
#include "refold/Target/CUDA/CompileCuda.h"

namespace refold {

/// Adds to the kernels of a package what they move and compute, so that times
/// of their launches can be predicted where only the package is: those of
/// `texts`, then products. `facts` are those of the CPU whose plans the texts
/// were compiled by.
llvm::Error addGpuWork(mlir::MLIRContext &context,
                       llvm::ArrayRef<KernelText> texts,
                       llvm::ArrayRef<CudaKernel> kernels,
                       const TargetFacts &facts, package::Package &package);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_GPUWORK_H
