// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_BENCHGPU_H
#define REFOLD_DRIVER_BENCHGPU_H

#include "refold/Driver/Driver.h"
#include "refold/Driver/Inputs.h"

namespace refold {

struct GpuBenchOptions {
  /// Inputs of these extents; required.
  std::function<llvm::Expected<std::vector<Tensor>>(llvm::ArrayRef<Port>,
                                                    const Extents &)>
      makeInputs;
  Extents shape;              ///< of every open dimension that no file gives
  bool maySplitInputs = true; ///< false where files give inputs
  std::string target;
  NumericPolicy numerics;
  FusePolicy policy = FusePolicy::Auto;
  const DiskCache *cache = nullptr;
  bool usesTuned = false; ///< what was tuned before, of both programs
  bool tunes = false;     ///< what was not
  /// Told of every launch that was tuned.
  std::function<void(llvm::StringRef what)> onTuned;
  std::function<void(llvm::StringRef what)> onProgress;
  /// Told of what was fused, and what was not.
  std::function<void(const FuseReport &report)> onReport;
};

struct GpuStepTime {
  std::string name;
  double ms = 0.0; ///< median
};

struct GpuBenchResult {
  std::string gpu;
  double fusedMs = 0.0;            ///< median, by events
  std::optional<double> unfusedMs; ///< nothing where it does not run there
  std::vector<GpuStepTime> fusedSteps, unfusedSteps;
  /// Where the answer was compared with double: fewer rows than are timed.
  Extents checkedShape;
  double error = 0.0;
  std::string checkedAgainst; ///< "double"; "unfused" where that takes too long
  bool isConditioned = false; ///< the unfused error is that of neighbours too
  int64_t inputBytes = 0, outputBytes = 0, weightBytes = 0;
  int64_t bytes() const { return inputBytes + outputBytes + weightBytes; }
  /// What the driver's copy moves, read and written, in the same run.
  double copyBytesPerMs = 0.0;
  double bytesPerMs() const { return double(bytes()) / fusedMs; }
  double shareOfCopy() const { return bytesPerMs() / copyBytesPerMs; }
  double compileMs = 0.0;
};

/// Checks the fused program's answer on the GPU as `verify` does, on fewer rows
/// where there are many, and on all of them against the unfused program on the
/// GPU at both ends of the outputs; then times both, and a copy of as many
/// bytes. Large inputs repeat the small ones that were checked.
llvm::Expected<GpuBenchResult> benchOnGpu(mlir::MLIRContext &context,
                                          llvm::StringRef path,
                                          const LoadOptions &loadOptions,
                                          const GpuBenchOptions &options);

} // namespace refold

#endif // REFOLD_DRIVER_BENCHGPU_H
