// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_LAUNCHCOST_H
#define REFOLD_PACKAGE_LAUNCHCOST_H

#include "refold/Package/Cuda.h"

/// What a launch on a GPU is predicted to take: of bytes, instructions and
/// products, by rates of the card. `explain` says it, `--tune` ranks by it.
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

/// What kernels get of a GPU at best, from what its driver says.
GpuRates ratesOf(const package::GpuFacts &facts);
/// The card that the text of a target was timed on, by its data sheet.
package::GpuFacts usualGpu(bool isSm90);

/// How many blocks of an entry a multiprocessor runs at once.
struct Occupancy {
  int64_t blocks = 0, warps = 0, mostWarps = 0;
  const char *bound = ""; ///< "registers", "shared memory", ...
};
/// `registers`: of a thread; 0: not known. `sharedBytes`: static and dynamic.
Occupancy occupancyOf(const package::GpuFacts &gpu, int64_t threads,
                      int64_t registers, int64_t sharedBytes);

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

GpuCost predictLaunch(const GpuLaunchWork &work, const GpuRates &rates);

namespace package {

/// What one call of a kernel moves and computes, however it is launched.
struct CallWork {
  bool isKnown = false; ///< else nothing is predicted
  CallForm form = CallForm::Rows;
  double elementBytes = 2.0; ///< of what is multiplied
  double batch = 1.0, rows = 1.0, length = 1.0, columns = 0.0, depth = 0.0;
  double bytesRead = 0.0, bytesWritten = 0.0;
  /// Of them, of what other steps made or read.
  double passedRead = 0.0, passedWritten = 0.0, workingSet = 0.0;
  double streamBytes = 0.0, sharedBytes = 0.0; ///< as in `GpuWork`
  int64_t sweeps = 1;
  double walked = 1.0, products = 0.0;
  /// Instructions of lanes, and those of functions: of what is walked, and of
  /// what is not.
  double slots = 0.0, fixedSlots = 0.0, functions = 0.0, fixedFunctions = 0.0;
};
/// By the words that `sizes` has; passed bytes are left out.
CallWork callWorkOf(const DeviceKernel &kernel, TermValues &sizes);

/// A launch of a way.
struct CountedLaunch {
  GpuLaunchWork work;
  double readAgain = 0.0; ///< bytes of the stream that are asked for once more
  double walked = 1.0;    ///< of the stream
};
/// `blocks`: of the whole grid. `resident`: blocks that a multiprocessor runs
/// at once.
CountedLaunch countLaunch(const LaunchWay &way, const CallWork &call,
                          TermValues &sizes, int64_t blocks, int64_t threads,
                          int64_t resident, const GpuRates &rates);

} // namespace package
} // namespace refold

#endif // REFOLD_PACKAGE_LAUNCHCOST_H
