// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TOOLS_REFOLD_GPUTEXT_H
#define REFOLD_TOOLS_REFOLD_GPUTEXT_H

#include "refold/Driver/GpuPlan.h"

namespace refold {

/// What one step launches, as `planForGpu` says it; `isOnce`: of weights alone.
void printLaunch(const llvm::json::Object &launch, bool isOnce);

/// A step in one line: its entry, grid and time.
void printShortLaunch(const StepWork &step, const llvm::json::Object *launch);

/// The card that all of it is for, and whose machine code was read.
void printCard(const GpuCard &card, const GpuPlan &plan);
llvm::json::Object toJson(const GpuCard &card);

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_GPUTEXT_H
