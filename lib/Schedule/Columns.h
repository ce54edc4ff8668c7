// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SCHEDULE_COLUMNS_H
#define REFOLD_LIB_SCHEDULE_COLUMNS_H

#include "refold/Schedule/Schedule.h"

namespace refold {

/// The index that the last subscript is, or -1.
int denseIndexOf(CascadeOp cascade, mlir::AffineMap map,
                 mlir::ValueRange indices);

/// A row index that reads move densely with while none that moves with it does
/// with the stream, or -1: the reduction of columns. It takes the lanes, and
/// the stream is walked step by step. What has the stream alone (weights of
/// channels) is a number there. Nor where results of a register of them lie
/// along the stream: what is read is turned (`turnedAccesses`), once.
int columnRowOf(CascadeOp cascade, const IndexSets &sets, int stream,
                const TargetFacts &target);

} // namespace refold

#endif // REFOLD_LIB_SCHEDULE_COLUMNS_H
