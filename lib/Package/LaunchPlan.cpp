// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/LaunchPlan.h"

#include <algorithm>

using namespace refold;
using namespace refold::package;

/// Whether as many blocks as a way wants find room beside each other: a
/// multiprocessor has 1 KiB more than one block may have, and keeps that of
/// each.
static bool hasRoom(const GpuFacts &gpu, int64_t shared, uint32_t blocks) {
  constexpr int64_t kOfBlock = 1024;
  return shared <= gpu.sharedBytesPerBlock &&
         (shared + kOfBlock) * blocks <= gpu.sharedBytesPerBlock + kOfBlock;
}

const LaunchWay *package::chooseWay(const Launch &launch, TermValues &sizes,
                                    const GpuFacts &gpu) {
  const LaunchWay *tooLarge = nullptr;
  for (const LaunchWay &way : launch.ways) {
    if (!sizes[way.condition].value_or(0))
      continue;
    std::optional<int64_t> shared = sizes[way.sharedBytes];
    if (shared && hasRoom(gpu, *shared, way.leastBlocks))
      return &way;
    tooLarge = tooLarge ? tooLarge : &way;
  }
  return tooLarge;
}

Outcome<WaySizes> package::sizesOf(const LaunchWay &way, TermValues &sizes,
                                   const GpuFacts &gpu) {
  static constexpr int64_t kMostBlocks[] = {INT32_MAX, 65535, 65535};
  static constexpr int64_t kMostThreads[] = {1024, 1024, 64};
  WaySizes found;
  bool isEmpty = false;
  for (size_t d = 0; d < 3; ++d) {
    std::optional<int64_t> blocks = sizes[way.grid[d]],
                           threads = sizes[way.block[d]];
    if (!blocks || *blocks < 0 || *blocks > kMostBlocks[d] || !threads ||
        *threads < 1 || *threads > kMostThreads[d])
      return problem(ExitCode::Limit,
                     "'" + way.entry + "': found more blocks than a grid has");
    isEmpty |= *blocks == 0;
    found.grid[d] = *blocks;
    found.block[d] = *threads;
  }
  if (isEmpty) {
    found.grid[0] = 0;
    return found;
  }
  std::optional<int64_t> shared = sizes[way.sharedBytes];
  if (!shared || *shared < 0 || *shared > gpu.sharedBytesPerBlock)
    return problem(ExitCode::Limit,
                   "'" + way.entry +
                       "' needs more shared memory than the GPU '" + gpu.name +
                       "' has for a block");
  found.sharedBytes = *shared;
  return found;
}

void package::cutGrid(WaySizes &sizes, const LaunchWay &way,
                      const GpuFacts &gpu, int clusterBlocks, int clusters) {
  if (way.blocksPerUnit == 0)
    return;
  int64_t width = std::max(clusterBlocks, 1);
  int64_t blocks =
      int64_t(std::max(gpu.multiprocessors, 1)) * way.blocksPerUnit;
  int64_t atOnce = width > 1 && clusters > 0
                       ? clusters * width
                       : std::max<int64_t>(blocks / width, 1) * width;
  sizes.grid[0] = std::min(sizes.grid[0], atOnce);
}

void package::setKernelWords(const PlannedKernel &kernel,
                             std::span<const DeviceAddress> addresses,
                             DeviceAddress workspace, DeviceAddress tickets,
                             std::vector<int64_t> &words) {
  words.assign(kernel.words.begin(), kernel.words.end());
  for (const PlannedKernel::Address &address : kernel.addresses)
    words[address.word] = words[address.word + 1] =
        int64_t(addresses[address.buffer]) + address.byteOffset;
  words.push_back(int64_t(workspace));
  words.push_back(int64_t(tickets));
}

Outcome<bool> package::setCopyWords(const PlannedCopy &copy,
                                    std::span<const DeviceAddress> addresses,
                                    bool hasKernel,
                                    std::vector<int64_t> &words) {
  std::pmr::vector<int64_t> sizes(copy.from.sizes.begin(),
                                  copy.from.sizes.end()),
      from(copy.from.strides.begin(), copy.from.strides.end()),
      to(copy.to.strides.begin(), copy.to.strides.end());
  int64_t count = copy.from.numElements();
  if (count == 0)
    return false;
  mergeDims(sizes, from, to);
  if (sizes.empty() || (sizes.size() == 1 && from[0] == 1 && to[0] == 1))
    return false;
  if (sizes.size() > kCopyRank || !hasKernel)
    return problem(ExitCode::Unsupported,
                   "found a copy of an array with " +
                       std::to_string(sizes.size()) +
                       " dimensions that lie apart, expected at most " +
                       std::to_string(kCopyRank));
  words.assign({int64_t(addresses[copy.from.buffer]) + copy.from.byteOffset,
                int64_t(addresses[copy.to.buffer]) + copy.to.byteOffset,
                byteWidth(copy.from.dtype), count});
  for (auto [dims, filler] : {std::pair(&sizes, 1), {&from, 0}, {&to, 0}}) {
    words.insert(words.end(), kCopyRank - dims->size(), filler);
    words.insert(words.end(), dims->begin(), dims->end());
  }
  return true;
}

namespace {
/// The walk over the steps of a plan.
class LaunchDescriber {
public:
  LaunchDescriber(const Package &package, const RunPlan &plan,
                  const GpuFacts &gpu,
                  const std::function<int(const LaunchWay &)> &clusterBlocks)
      : package(package), plan(plan), gpu(gpu), clusterBlocks(clusterBlocks) {
    // Everything that is allocated begins at such a multiple; of arrays that
    // share memory their places in it count.
    addresses.assign(package.program.buffers.size(), 0);
    for (size_t i = 0; i < addresses.size(); ++i)
      if (plan.arenaOffsets[i] > 0)
        addresses[i] = uint64_t(plan.arenaOffsets[i]);
  }

  Outcome<std::vector<DescribedStep>> all() {
    std::vector<DescribedStep> steps;
    for (const PlannedStep &step : plan.steps) {
      DescribedStep &described = steps.emplace_back();
      described.step = step.step;
      if (Problem error = describe(step, described))
        return error;
    }
    return steps;
  }

private:
  Problem describe(const PlannedStep &step, DescribedStep &described) {
    if (auto *copy = std::get_if<PlannedCopy>(&step.what)) {
      Outcome<bool> takesKernel =
          setCopyWords(*copy, addresses, package.copyKernel >= 0, words);
      if (!takesKernel)
        return takesKernel.error();
      described.isCopiedByDriver = !*takesKernel;
      return *takesKernel ? launch(uint32_t(package.copyKernel), described)
                          : Problem();
    }
    auto *kernel = std::get_if<PlannedKernel>(&step.what);
    if (!kernel) // a check waits for bytes that the driver brings
      return {};
    setKernelWords(*kernel, addresses, 0, 0, words);
    return launch(kernel->kernel, described);
  }

  Problem launch(uint32_t number, DescribedStep &described) {
    const DeviceKernel &kernel = package.deviceKernels[number];
    sizes.start(kernel.sizes, words);
    described.isForLibrary =
        kernel.product && sizes[kernel.product->condition].value_or(0);
    described.workspaceBytes = sizes[kernel.workspaceBytes].value_or(0);
    described.words = words;
    for (const Launch &one : kernel.launches) {
      DescribedLaunch launch;
      launch.kernel = number;
      launch.way = chooseWay(one, sizes, gpu);
      for (const LaunchWay &way : one.ways)
        launch.holds.push_back(sizes[way.condition].value_or(0) != 0);
      if (launch.way) {
        Outcome<WaySizes> found = sizesOf(*launch.way, sizes, gpu);
        if (!found)
          return found.error();
        launch.sizes = *found;
        launch.wholeBlocks = found->grid[0];
        if (!launch.sizes.isEmpty())
          cutGrid(launch.sizes, *launch.way, gpu, clusterBlocks(*launch.way),
                  /*clusters=*/0);
      }
      described.launches.push_back(std::move(launch));
    }
    return {};
  }

  const Package &package;
  const RunPlan &plan;
  const GpuFacts &gpu;
  const std::function<int(const LaunchWay &)> &clusterBlocks;
  std::vector<DeviceAddress> addresses;
  std::vector<int64_t> words;
  TermValues sizes;
};
} // namespace

Outcome<std::vector<DescribedStep>> package::describeLaunches(
    const Package &package, const RunPlan &plan, const GpuFacts &gpu,
    const std::function<int(const LaunchWay &)> &clusterBlocks) {
  return LaunchDescriber(package, plan, gpu, clusterBlocks).all();
}
