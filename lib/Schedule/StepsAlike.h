// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SCHEDULE_STEPSALIKE_H
#define REFOLD_LIB_SCHEDULE_STEPSALIKE_H

#include "refold/Schedule/Schedule.h"

namespace refold {

/// So many steps of an index that follow each other read the same: heads that
/// share keys (`h // 4`). 1: each reads its own, or the index moves nothing.
int64_t stepsAlike(ReadOp read, mlir::Value index);

} // namespace refold

#endif // REFOLD_LIB_SCHEDULE_STEPSALIKE_H
