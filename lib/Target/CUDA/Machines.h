// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CUDA_MACHINES_H
#define REFOLD_LIB_TARGET_CUDA_MACHINES_H

#include "refold/Target/CUDA/CompileCuda.h"

namespace refold {

using KernelLauncher = std::function<llvm::Error(const int64_t *words)>;

/// Emulate.cpp: a kernel on the host. Each call runs in every mode of the
/// emulator, and fails where one reports something or gives other bits.
llvm::Expected<KernelLauncher> makeEmulated(const CudaKernel &kernel);

/// CopyKernel.cpp: what copies arrays on a GPU, by the words of `CudaProgram`.
package::DeviceKernel makeCopyKernel();
/// What looks at checked data there: notes the number of a check that fails.
package::DeviceKernel makeCheckKernel();

} // namespace refold

#endif // REFOLD_LIB_TARGET_CUDA_MACHINES_H
