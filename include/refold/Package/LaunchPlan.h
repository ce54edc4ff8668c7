// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_LAUNCHPLAN_H
#define REFOLD_PACKAGE_LAUNCHPLAN_H

#include "refold/Package/CubinFacts.h"
#include "refold/Package/LaunchCost.h"

/// What a step of a plan launches on a GPU, as numbers: asked by what launches
/// it and by what only describes it, so that both say the same.
namespace refold::package {

/// The first way that a launch may take: its condition holds, and the GPU has
/// its shared memory. Where none has room the first whose condition holds,
/// which `sizesOf` then refuses. Null: none takes such sizes. A choice, if
/// there is one, is taken where that way is legal and there is room for it.
const LaunchWay *chooseWay(const Launch &launch, TermValues &sizes,
                           const GpuFacts &gpu,
                           const LaunchChoice *choice = nullptr);

/// The numbers of a way. Of one that takes any number of blocks the grid is the
/// most that it has use for: `cutGrid`.
struct WaySizes {
  std::array<int64_t, 3> grid = {}, block = {};
  int64_t sharedBytes = 0; ///< dynamic
  /// Nothing is launched: the first extent is 0 then.
  bool isEmpty() const { return grid[0] == 0; }
};
/// Fails where a grid has no such number of blocks, or the GPU no such shared
/// memory.
Outcome<WaySizes> sizesOf(const LaunchWay &way, TermValues &sizes,
                          const GpuFacts &gpu);

/// As many blocks as the GPU runs at once, of a way whose blocks do any number
/// of rows each; others keep theirs. `clusters`: how many clusters of
/// `clusterBlocks` the driver finds room for; 0: it was not asked.
void cutGrid(WaySizes &sizes, const LaunchWay &way, const GpuFacts &gpu,
             int clusterBlocks, int clusters);

/// The blocks that were chosen for a way in place of its own, of a workspace of
/// so many bytes; others than it takes leave the grid as it is.
void setBlocks(WaySizes &sizes, const LaunchWay &way, TermValues &terms,
               int64_t workspaceBytes, int64_t blocks);

/// A way to make a launch that gives its results.
struct LegalWay {
  const LaunchWay *way = nullptr;
  LaunchChoice choice;
  bool isDefault = false; ///< that `chooseWay` takes without a choice
  double predictedMs = 0.0;
};
/// Machine code of a way, where it is known; null.
using CodeOfWay = std::function<const EntryCode *(const LaunchWay &way)>;

/// All there are for the words that `sizes` has: ways that are legal and that
/// the GPU has room for, each with its own blocks and, where it takes others,
/// with half and twice as many. The default comes first, then what is predicted
/// to be done soonest.
std::vector<LegalWay> legalWays(const DeviceKernel &kernel,
                                const Launch &launch, TermValues &sizes,
                                const GpuFacts &gpu, const CallWork &call,
                                const CodeOfWay &codeOf);

/// The words of a kernel's call, with the arrays where `addresses` says.
void setKernelWords(const PlannedKernel &kernel,
                    std::span<const DeviceAddress> addresses,
                    DeviceAddress workspace, DeviceAddress tickets,
                    std::vector<int64_t> &words);

/// Words of the kernel that copies arrays: from, to, bytes of an element,
/// elements, sizes, strides of both sides.
inline constexpr size_t kCopyRank = 8, kCopyWords = 4 + 3 * kCopyRank;
/// False: the driver copies, or there is nothing to copy.
Outcome<bool> setCopyWords(const PlannedCopy &copy,
                           std::span<const DeviceAddress> addresses,
                           bool hasKernel, std::vector<int64_t> &words);

/// A launch as it would be made.
struct DescribedLaunch {
  uint32_t kernel = 0; ///< of the package's `deviceKernels`
  const LaunchWay *way = nullptr;
  WaySizes sizes;
  int64_t wholeBlocks = 0; ///< of its grid before it was cut
  /// Of all ways: whether it may be taken by its condition.
  std::vector<bool> holds;
};
struct DescribedStep {
  size_t step = 0; ///< of the program
  std::vector<DescribedLaunch> launches;
  int64_t workspaceBytes = 0; ///< that its kernel asks for
  std::vector<int64_t> words; ///< of the call, where it launches a kernel
  bool isCopiedByDriver = false;
  /// A library of the machine is expected to be quicker, where one is wanted.
  bool isForLibrary = false;
};
/// What the steps of a plan launch on arrays of the caller at multiples of
/// `kAddressRemainder`. Nothing of a driver is asked: `clusterBlocks` says how
/// many blocks a cluster of a way has.
Outcome<std::vector<DescribedStep>>
describeLaunches(const Package &package, const RunPlan &plan,
                 const GpuFacts &gpu,
                 const std::function<int(const LaunchWay &)> &clusterBlocks);

} // namespace refold::package

#endif // REFOLD_PACKAGE_LAUNCHPLAN_H
