// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SCHEDULE_SUMSTOGETHER_H
#define REFOLD_LIB_SCHEDULE_SUMSTOGETHER_H

#include "refold/Schedule/Schedule.h"

namespace refold {

/// Of the states with a carried index, those that one nest sums: all, if a
/// result reads several over the same places (`Plan::areWholesApart`), else
/// one.
int64_t sumsTogether(CascadeOp cascade, const IndexSets &sets);

} // namespace refold

#endif // REFOLD_LIB_SCHEDULE_SUMSTOGETHER_H
