// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_GPUCOST_H
#define REFOLD_SCHEDULE_GPUCOST_H

#include "refold/Schedule/CostModel.h"
#include <map>

namespace refold {

/// What a cascade does at one shape, whoever computes it: operations of its
/// formula, each as often as a sweep computes it.
struct GpuWork {
  OperationCounts elements; ///< once an element of the stream and sweep
  OperationCounts rows;     ///< once a row or result
  double products = 0.0;    ///< multiply-adds of sums of products
  double listed = 0.0;      ///< elements that lists of the best look at
  double chosen = 0.0;      ///< places of all these lists
  double walked = 1.0;      ///< of the stream's positions, where bounds skip
  double streamBytes = 0.0; ///< of what is read along the stream
  /// Of what all rows read of it, as often as there are rows.
  double sharedBytes = 0.0;
  int64_t sweeps = 1;   ///< over the stream, that of results too
  bool isSwept = false; ///< results lie along the stream
};

/// The same before extents are known: what is done once a place of each set of
/// indices.
struct GpuWorkForm {
  std::map<uint64_t, GpuWork> parts;
  int64_t sweeps = 1;
  bool isSwept = false;
};
GpuWorkForm formOfGpuWork(CascadeOp cascade, const IndexSets &sets);

/// Counts what the body of a cascade says. `extents` are those of its indices,
/// in order.
GpuWork countGpuWork(CascadeOp cascade, const IndexSets &sets,
                     llvm::ArrayRef<double> extents);

/// Instructions that lanes issue for the operations, and those of functions.
double slotsOf(const GpuWork &work);
double functionsOf(const GpuWork &work);

} // namespace refold

#endif // REFOLD_SCHEDULE_GPUCOST_H
