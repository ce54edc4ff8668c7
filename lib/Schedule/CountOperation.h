// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SCHEDULE_COUNTOPERATION_H
#define REFOLD_LIB_SCHEDULE_COUNTOPERATION_H

#include "refold/Schedule/CostModel.h"

namespace refold {

/// One operation, by its kind; nothing for what is folded or free.
OperationCounts kindOf(mlir::Operation &op);

} // namespace refold

#endif // REFOLD_LIB_SCHEDULE_COUNTOPERATION_H
