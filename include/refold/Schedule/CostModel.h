// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_COSTMODEL_H
#define REFOLD_SCHEDULE_COSTMODEL_H

#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Schedule/MachineRates.h"
#include "refold/Schedule/Schedule.h"
#include "llvm/ADT/SmallVector.h"

namespace refold {

/// Operations by what they take, counted in elements of f32 registers: an
/// element of a register that is not full, or of one of f64, counts as much as
/// it takes.
struct OperationCounts {
  double simple = 0.0; ///< +, -, *, max, compare, select
  double exponentials = 0.0;
  /// Those of sums relative to a pivot, which may lag behind.
  double lagging = 0.0;
  double functions = 0.0; ///< log, tanh, erf, powers, sines
  double divisions = 0.0; ///< and square roots
  double conversions = 0.0;

  void add(const OperationCounts &other, double times = 1.0);
};

/// What a kernel does at one shape and under one schedule.
struct KernelWork {
  OperationCounts stream;  ///< once an element of the stream and sweep
  OperationCounts rows;    ///< once a row or result
  OperationCounts moves;   ///< of states to other pivots
  double nestSteps = 0.0;  ///< fmas of nests
  double nestOthers = 0.0; ///< other operations inside them
  double nestSums = 0.0;   ///< sums that contractions begin and leave
  double pairSteps = 0.0;  ///< fmas of nests that add products two at a time
  double byteSteps = 0.0;  ///< of bytes that matrix tiles multiply
  double tileSums = 0.0;   ///< sums that leave matrix tiles
  double thinSteps = 0.0;  ///< those of few rows
  double thinLoads = 0.0;  ///< what they load: once for rows that share it
  double sumsAcross = 0.0; ///< sums of nests whose lanes are added at the end
  double turned = 0.0;     ///< elements that are laid out in panels
  double visits = 0.0;     ///< starts of a row in a pass or sweep
  double tails = 0.0;      ///< registers at their ends, walked one by one
  double merges = 0.0;     ///< states of rows merged across lanes
  double extremes = 0.0;   ///< those of them that are extremes of floats
  double compared = 0.0;   ///< elements held against a list of the best
  double entered = 0.0;    ///< elements that are expected to enter one
  double lists = 0.0;      ///< those that are made of candidates
  double searched = 0.0;   ///< elements among which candidates are looked for
  double moved = 0.0;      ///< those that are moved to candidates one by one
  double placed = 0.0;     ///< instructions that put candidates in their place
  double gathered = 0.0;   ///< elements read one by one
  double items = 1.0;      ///< independent parts
  double fullShare = 1.0;  ///< of the rows that they have room for
  double bytesRead = 0.0;  ///< different elements
  double bytesWritten = 0.0;
  double bytesPast = 0.0;  ///< of those, what is stored past the caches
  bool skipsTiles = false; ///< tiles that a mask proves dead
  double walked = 1.0;     ///< of the stream's positions, where some are
  /// Bytes that are read again, and those of other elements in between: what
  /// fits into a cache is still there.
  struct Reread {
    double bytes = 0.0, between = 0.0;
  };
  llvm::SmallVector<Reread, 4> rereads;
};

/// A library product: the step's own sizes.
struct ProductWork {
  double batch = 1.0, rows = 1.0, columns = 1.0, depth = 1.0;
  double bytesRead = 0.0, bytesWritten = 0.0;
  bool isInteger = false; ///< 8-bit operands
  double turned = 0.0; ///< elements of the right side, if rows lie along memory
  /// Elements of narrower types that are made f32 first; those of the right
  /// side by every block of rows.
  double fromF16 = 0.0, fromOthers = 0.0;
};

/// Milliseconds and where they go. The parts overlap: they add up to more.
struct Cost {
  double ms = 0.0;
  double arithmeticMs = 0.0, memoryMs = 0.0, overheadMs = 0.0;
};

/// Counts what the body of a cascade says. `extents` are those of its indices,
/// in order; bytes are the caller's to fill in, but for what is read again.
KernelWork countWork(CascadeOp cascade, const IndexSets &sets,
                     llvm::ArrayRef<double> extents, const Schedule &schedule,
                     const TargetFacts &target);

/// The time of one step on `threads` threads, whose program works in
/// `workingSet` bytes: what is small enough comes from a cache.
Cost predict(const KernelWork &work, const TargetFacts &target,
             const MachineRates &rates, int64_t threads, double workingSet);
Cost predict(const ProductWork &work, const TargetFacts &target,
             const MachineRates &rates, int64_t threads, double workingSet);
/// `bytes` are read and as many written.
Cost predictCopy(double bytes, const MachineRates &rates, int64_t threads,
                 double workingSet);

} // namespace refold

#endif // REFOLD_SCHEDULE_COSTMODEL_H
