// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_OTHERSIZES_H
#define REFOLD_LIB_DRIVER_OTHERSIZES_H

#include "refold/Driver/Driver.h"
#include "refold/Target/CUDA/CompileCuda.h"

/// Programs whose fused kernels have no room for some sizes of their open
/// dimensions: they hold the steps of another program for these.
namespace refold {

/// Appends the steps of `other`, a plan of the same program whose first kernel
/// will be `firstKernel` of `spec`.
llvm::Error appendOther(ExecutableSpec &spec, ExecutableSpec other,
                        unsigned firstKernel);

/// Lets runs have the steps before `spec.firstOther` where all of their kernels
/// have room, else those from there on. Requires that only kernels of cascades
/// were printed, and no products.
void chooseBySizes(ExecutableSpec &spec, llvm::ArrayRef<CudaKernel> kernels);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_OTHERSIZES_H
