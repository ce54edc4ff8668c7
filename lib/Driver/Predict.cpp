// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Work.h"

namespace refold {

void predictTimes(ProgramWork &work, const TargetFacts &target,
                  const MachineRates &rates, int64_t threads) {
  work.predictedMs = 0.0;
  for (StepWork &step : work.steps) {
    step.predicted = Cost();
    step.workingSet = work.workingSet;
    if (step.isOnce)
      continue;
    if (auto *kernel = std::get_if<KernelWork>(&step.counts))
      step.predicted =
          predict(*kernel, target, rates, threads, work.workingSet);
    else if (auto *product = std::get_if<ProductWork>(&step.counts))
      step.predicted =
          predict(*product, target, rates, threads, work.workingSet);
    else if (step.kind == "copy")
      step.predicted =
          predictCopy(step.bytesRead, rates, threads, work.workingSet);
    work.predictedMs += step.predicted.ms;
  }
}

} // namespace refold
