// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SCHEDULE_GPUCOST_H
#define REFOLD_SCHEDULE_GPUCOST_H

#include "refold/Schedule/CostModel.h"

namespace refold {

/// A GPU as plain numbers. Rates are a millisecond; those of memory and of
/// matrix units what kernels get at best, not what is printed on the box.
struct GpuRates {
  double units = 132;         ///< multiprocessors
  double cycles = 1.83e6;     ///< of each
  double memory = 4.5e9;      ///< bytes, where one array is read
  double copied = 4.25e9;     ///< bytes read and written, where both are done
  double cache = 6.5e9;       ///< bytes from the second level cache
  double cacheBytes = 50e6;   ///< that it holds
  double multiplied = 4.0e11; ///< multiply-adds of 16 bits, by the units that
                              ///< the target's best text uses
  /// Of them, what `mma.sync` reaches.
  double warpShare = 0.62;
  double byteShare = 2.0;      ///< products of 8 bits in the time of one
  double slotsACycle = 128.0;  ///< instructions of a lane, of a unit
  double sumsACycle = 128.0;   ///< f32 multiply-adds among them
  double functionsACycle = 16; ///< powers of two, reciprocals, roots
};

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

/// Sums of products by what computes them.
enum class GpuUnit : uint8_t {
  Lanes,      ///< multiply-adds
  Warps,      ///< `mma.sync`
  WarpGroups, ///< `wgmma`
  Bytes       ///< `wgmma` of 8 bits
};

/// One launch with what it moves.
struct GpuLaunchWork {
  double slots = 0.0;     ///< instructions of lanes
  double functions = 0.0; ///< of them, those of the unit for functions
  double products = 0.0;  ///< with what fills rectangles
  GpuUnit unit = GpuUnit::Lanes;
  double bytesRead = 0.0, bytesWritten = 0.0; ///< of memory
  double cacheBytes = 0.0; ///< that go through the second level cache
  double workingSet = 0.0; ///< different bytes: those that a cache may hold
  /// Parts that a block does one after the other, of the whole launch; blocks
  /// that run at once on a multiprocessor.
  double pieces = 1.0, residentBlocks = 1.0;
  double warps = 12.0;        ///< of a block
  double bytesOnTheWay = 0.0; ///< that a block asks for at once
  bool isExchanged = false;   ///< blocks merge what others leave
  bool isEmpty = false;       ///< nothing is launched
};

/// Milliseconds and where they go. They overlap: they add up to more.
struct GpuCost {
  double ms = 0.0;
  double memoryMs = 0.0, cacheMs = 0.0, slotMs = 0.0, functionMs = 0.0,
         productMs = 0.0, waitMs = 0.0, launchMs = 0.0;
  /// The longest of them: "memory", "second level cache", "issue slots",
  /// "functions", "matrix units", "waiting" or "launch".
  const char *bound = "launch";
};

/// Counts what the body of a cascade says. `extents` are those of its indices,
/// in order.
GpuWork countGpuWork(CascadeOp cascade, const IndexSets &sets,
                     llvm::ArrayRef<double> extents);

/// Instructions that lanes issue for the operations, and those of functions.
double slotsOf(const GpuWork &work);
double functionsOf(const GpuWork &work);

GpuCost predictLaunch(const GpuLaunchWork &work, const GpuRates &rates);

} // namespace refold

#endif // REFOLD_SCHEDULE_GPUCOST_H
