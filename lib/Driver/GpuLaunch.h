// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_GPULAUNCH_H
#define REFOLD_LIB_DRIVER_GPULAUNCH_H

#include "refold/Driver/GpuPlan.h"
#include "refold/Package/CubinFacts.h"
#include "refold/Package/LaunchPlan.h"
#include "refold/Target/CUDA/CompileCuda.h"

namespace refold {

/// All that is known of one launch.
struct GpuLaunchContext {
  const GpuCard &card;
  const package::DescribedStep &step;
  const package::DescribedLaunch &launch;
  const package::DeviceKernel &device;
  const CudaKernel *kernel;       ///< null: it copies arrays
  const CudaEntry *entry;         ///< null: none is taken, or it copies
  const package::EntryCode *code; ///< null: there is none
  const StepWork &work;
  double workingSet;
};

/// The launch in the fields of docs/tools.md, and what it is predicted to take.
llvm::json::Object describeLaunch(const GpuLaunchContext &context,
                                  const std::string &name, GpuCost &cost);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_GPULAUNCH_H
