// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_GPUPLAN_H
#define REFOLD_DRIVER_GPUPLAN_H

#include "refold/Driver/Work.h"
#include "refold/Package/LaunchCost.h"

namespace refold {

struct CudaKernel;

/// The GPU that a plan is made for.
struct GpuCard {
  package::GpuFacts facts;
  GpuRates rates;
  /// No GPU of the target is there: what is said is of this one.
  bool isAssumed = false;
  std::string why; ///< it is assumed

  /// "the GPU of this machine" or "assumed: found no CUDA driver".
  std::string source() const;
};

/// The GPU of the machine where it runs text for `target` ("cuda": any), else
/// the one that this text was timed on: an H200 for cuda-sm90, an A100 for
/// cuda-sm80. Fails for a name that is none of these three.
llvm::Expected<GpuCard> cardFor(llvm::StringRef target);

/// What a program launches at one shape, step by step, as JSON: the fields of
/// docs/tools.md.
struct GpuPlan {
  ProgramWork work; ///< with what every step is predicted to take
  std::vector<std::optional<llvm::json::Object>> launches; ///< one a step
  /// Whose machine code was read, or why there is none.
  std::string code;
  bool hasCode = false;
};
/// Launches nothing and asks no driver but for what the card is. `program` was
/// compiled for a text target, `kernels` are those that it told of.
llvm::Expected<GpuPlan>
planForGpu(mlir::MLIRContext &context, const CompiledProgram &program,
           llvm::ArrayRef<CudaKernel> kernels,
           llvm::ArrayRef<llvm::SmallVector<int64_t, 4>> shapes,
           const GpuCard &card, const DiskCache *cache);

} // namespace refold

#endif // REFOLD_DRIVER_GPUPLAN_H
