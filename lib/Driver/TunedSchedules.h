// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_TUNEDSCHEDULES_H
#define REFOLD_LIB_DRIVER_TUNEDSCHEDULES_H

#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Target/CPU/DetectTarget.h"
#include <map>
#include <string>

namespace refold {

using NamedExtents = std::map<std::string, int64_t>;

/// Keeps a schedule for a cascade at these extents on this processor; the file,
/// or "".
std::string keepSchedule(CascadeOp op, const NamedExtents &extents,
                         const CpuTarget &target, llvm::StringRef schedule);

/// Gives cascades of the module the schedules that were kept for them. What is
/// kept and is no schedule of the cascade is left alone.
void applyTuned(mlir::ModuleOp module, const NamedExtents &extents,
                const CpuTarget &target);

/// The text as the schedule of the op; false, and the op stays as it was, if it
/// is none.
bool setSchedule(CascadeOp op, llvm::StringRef text, const TargetFacts &facts);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_TUNEDSCHEDULES_H
