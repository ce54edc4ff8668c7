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

/// Whether a way gives the results where `sizes` are as they are: nobody else
/// vouches for a choice that was kept in a file.
static bool isLegal(const LaunchWay &way, TermValues &sizes,
                    const GpuFacts &gpu) {
  if (!sizes[way.legal].value_or(0))
    return false;
  std::optional<int64_t> shared = sizes[way.sharedBytes];
  return shared && hasRoom(gpu, *shared, 1);
}

const LaunchWay *package::chooseWay(const Launch &launch, TermValues &sizes,
                                    const GpuFacts &gpu,
                                    const LaunchChoice *choice) {
  if (choice)
    for (const LaunchWay &way : launch.ways)
      if (way.entry == choice->entry && isLegal(way, sizes, gpu))
        return &way;
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

/// `blocks` as the way takes them, so that each has something and nobody's
/// memory is exceeded; 0: it takes no such number.
static int64_t fitBlocks(const LaunchWay &way, TermValues &sizes,
                         int64_t workspaceBytes, int64_t blocks) {
  if (!way.freeBlocks || blocks <= 0)
    return 0;
  const FreeBlocks &free = *way.freeBlocks;
  int64_t unit = sizes[free.unit].value_or(0),
          pieces = sizes[free.pieces].value_or(0);
  if (unit <= 0 || pieces <= 0 || blocks < unit)
    return 0;
  int64_t of = std::min(blocks / unit, pieces);
  int64_t each = (pieces + of - 1) / of;
  of = (pieces + each - 1) / each;
  int64_t all = 0, left = 0;
  if (__builtin_mul_overflow(of, unit, &all) ||
      __builtin_mul_overflow(all, int64_t(free.leftBytes), &left))
    return 0;
  bool fits = all <= INT32_MAX && left <= workspaceBytes &&
              (free.most == 0 || all <= int64_t(free.most));
  return fits ? all : 0;
}

void package::setBlocks(WaySizes &sizes, const LaunchWay &way,
                        TermValues &terms, int64_t workspaceBytes,
                        int64_t blocks) {
  int64_t fitting = fitBlocks(way, terms, workspaceBytes, blocks);
  if (!sizes.isEmpty() && fitting > 0 && fitting == blocks)
    sizes.grid[0] = blocks;
}

std::vector<LegalWay> package::legalWays(const DeviceKernel &kernel,
                                         const Launch &launch,
                                         TermValues &sizes, const GpuFacts &gpu,
                                         const CallWork &call,
                                         const CodeOfWay &codeOf) {
  // Of equals, the one that is asked first.
  auto isBefore = [](const LegalWay &a, const LegalWay &b) {
    return std::pair(!a.isDefault, a.predictedMs) <
           std::pair(!b.isDefault, b.predictedMs);
  };
  std::vector<LegalWay> found;
  const GpuRates rates = ratesOf(gpu);
  const LaunchWay *usual = chooseWay(launch, sizes, gpu);
  int64_t workspaceBytes = sizes[kernel.workspaceBytes].value_or(0);
  for (const LaunchWay &way : launch.ways) {
    if (!isLegal(way, sizes, gpu))
      continue;
    Outcome<WaySizes> own = sizesOf(way, sizes, gpu);
    if (!own)
      continue;
    int64_t threads = own->block[0] * own->block[1] * own->block[2];
    const EntryCode *code = codeOf ? codeOf(way) : nullptr;
    int64_t resident =
        occupancyOf(gpu, threads, code ? code->registers : 0,
                    own->sharedBytes + (code ? code->sharedBytes : 0))
            .blocks;
    auto add = [&](int64_t chosen, int64_t blocks, bool isDefault) {
      double ms = 0.0;
      if (call.isKnown)
        ms = predictLaunch(
                 countLaunch(way, call, sizes, blocks, threads, resident, rates)
                     .work,
                 rates)
                 .ms;
      LegalWay legal{&way, {way.entry, chosen}, isDefault, ms};
      found.insert(
          std::upper_bound(found.begin(), found.end(), legal, isBefore), legal);
    };
    int64_t blocks = own->grid[0], before = blocks;
    add(0, blocks, &way == usual);
    for (int64_t wanted : {blocks / 2, blocks * 2}) {
      int64_t fitting = fitBlocks(way, sizes, workspaceBytes, wanted);
      if (fitting > 0 && fitting != blocks && fitting != before)
        add(fitting, fitting, false);
      before = fitting;
    }
  }
  return found;
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
