// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One launch in words and numbers: what it is, what it takes of a
// multiprocessor, what it moves and computes, how long that is predicted to
// take.
#include "GpuLaunch.h"
#include "refold/Schedule/GpuCost.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/DescribeLaunch.h"
#include <cmath>

namespace refold {

/// What the step does, as its launches are counted.
static package::CallWork callOf(const GpuLaunchContext &context,
                                TermValues &sizes) {
  const StepWork &work = context.work;
  const GpuWork &counts = std::get<GpuWork>(work.counts);
  package::CallWork call = package::callWorkOf(context.device, sizes);
  call.isKnown = true;
  call.bytesRead = work.bytesRead;
  call.bytesWritten = work.bytesWritten;
  call.passedRead = work.passedRead;
  call.passedWritten = work.passedWritten;
  call.workingSet = context.workingSet;
  call.streamBytes = counts.streamBytes;
  call.sharedBytes = counts.sharedBytes;
  call.sweeps = counts.sweeps;
  call.walked = counts.walked;
  call.products = counts.products;
  GpuWork fixed = counts;
  fixed.walked = 0.0;
  call.fixedSlots = slotsOf(fixed);
  call.fixedFunctions = functionsOf(fixed);
  fixed.walked = 1.0;
  call.slots = slotsOf(fixed) - call.fixedSlots;
  call.functions = functionsOf(fixed) - call.fixedFunctions;
  return call;
}

static llvm::json::Array toJson(const std::array<int64_t, 3> &extents) {
  return llvm::json::Array{extents[0], extents[1], extents[2]};
}

/// All ways to make the launch, by what they are predicted to take: those that
/// `--tune` would time first.
static std::vector<package::LegalWay> rankOf(const GpuLaunchContext &context) {
  if (!std::holds_alternative<GpuWork>(context.work.counts))
    return {};
  TermValues sizes;
  sizes.start(context.device.sizes, context.step.words);
  auto codeOf = [&](const package::LaunchWay &way) {
    return &way == context.launch.way ? context.code : nullptr;
  };
  return package::legalWays(context.device, context.device.launches.front(),
                            sizes, context.card.facts, callOf(context, sizes),
                            codeOf);
}

/// Every entry of the kernel, in the order in which they are asked.
static llvm::json::Array entriesOf(const GpuLaunchContext &context) {
  llvm::json::Array entries;
  const CudaKernel &kernel = *context.kernel;
  std::vector<package::LegalWay> ranked = rankOf(context);
  auto predictedOf = [&](const CudaEntry &entry) -> llvm::json::Value {
    for (const package::LegalWay &way : ranked)
      if (way.choice.blocks == 0 && way.choice.entry == entry.name)
        return way.predictedMs;
    return nullptr;
  };
  for (auto [entry, holds] : llvm::zip(kernel.entries, context.launch.holds)) {
    bool isTaken = &entry == context.entry;
    bool isBehind = context.entry && &entry > context.entry;
    entries.push_back(llvm::json::Object{
        {"name", entry.name},
        {"what", describeEntry(kernel, entry)},
        {"taken", isTaken},
        {"predicted_ms", predictedOf(entry)},
        {"why", isTaken    ? "the first that takes this shape"
                : isBehind ? "stands behind"
                : holds    ? "a multiprocessor has no room for it"
                           : whyNot(kernel, entry, context.step.words)}});
  }
  return entries;
}

static const char *nameOf(GpuUnit unit) {
  switch (unit) {
  case GpuUnit::Lanes:
    return "multiply-adds of lanes";
  case GpuUnit::Warps:
    return "mma.sync";
  case GpuUnit::WarpGroups:
    return "wgmma";
  case GpuUnit::Bytes:
    return "wgmma of 8 bits";
  }
  return "";
}

static llvm::json::Object codeOf(const package::EntryCode &code) {
  return llvm::json::Object{
      {"registers", code.registers},      {"stack_bytes", code.stackBytes},
      {"shared_bytes", code.sharedBytes}, {"instructions", code.instructions},
      {"local_loads", code.localLoads},   {"local_stores", code.localStores}};
}

static void addCounts(const GpuLaunchContext &context,
                      const Occupancy &occupancy, llvm::json::Object &answer,
                      GpuCost &cost) {
  const package::DescribedLaunch &launch = context.launch;
  TermValues sizes;
  sizes.start(context.device.sizes, context.step.words);
  package::CountedLaunch counted = package::countLaunch(
      *launch.way, callOf(context, sizes), sizes,
      launch.sizes.isEmpty() ? 0 : launch.wholeBlocks, launch.sizes.block[0],
      occupancy.blocks, context.card.rates);
  const GpuLaunchWork &moved = counted.work;
  cost = predictLaunch(moved, context.card.rates);
  const GpuWork &counts = std::get<GpuWork>(context.work.counts);
  const OperationCounts &ops = counts.elements;
  answer["bytes"] = llvm::json::Object{
      {"read", context.work.bytesRead},  {"written", context.work.bytesWritten},
      {"read_again", counted.readAgain}, {"from_memory", moved.bytesRead},
      {"to_memory", moved.bytesWritten}, {"through_cache", moved.cacheBytes}};
  answer["work"] =
      llvm::json::Object{{"products", moved.products},
                         {"unit", nameOf(moved.unit)},
                         {"simple", ops.simple + counts.rows.simple},
                         {"exponentials", ops.exponentials + ops.lagging},
                         {"functions", ops.functions},
                         {"divisions", ops.divisions},
                         {"conversions", ops.conversions},
                         {"slots", moved.slots},
                         {"walked", counted.walked}};
  answer["waves"] =
      moved.pieces / (context.card.rates.units * moved.residentBlocks);
  answer["predicted_ms"] = cost.ms;
  answer["bound"] = cost.bound;
  answer["parts_ms"] = llvm::json::Object{
      {"memory", cost.memoryMs},    {"cache", cost.cacheMs},
      {"slots", cost.slotMs},       {"functions", cost.functionMs},
      {"products", cost.productMs}, {"waiting", cost.waitMs},
      {"launch", cost.launchMs}};
}

/// What a library may compute in place of the kernel, and whether the user
/// wants one.
static llvm::json::Value libraryOf(const GpuLaunchContext &context) {
  if (!context.kernel || !context.kernel->product ||
      !context.kernel->product->library)
    return nullptr;
  const char *wanted = std::getenv("REFOLD_CUBLASLT");
  bool isWanted = wanted && *wanted && llvm::StringRef(wanted) != "off";
  return llvm::json::Object{{"name", "cuBLASLt"},
                            {"expected_quicker", context.step.isForLibrary},
                            {"wanted", isWanted}};
}

/// No entry takes the shape: a run ends with the same words.
static llvm::json::Object describeRefused(const GpuLaunchContext &context,
                                          llvm::json::Object answer) {
  std::string message;
  if (context.kernel) {
    auto planned = planCudaLaunch(*context.kernel, context.step.words.data());
    if (!planned)
      takeError(planned.takeError(), message);
    answer["entries"] = entriesOf(context);
  }
  answer["refused"] =
      message.empty() ? "no way to launch it takes this shape" : message;
  return answer;
}

llvm::json::Object describeLaunch(const GpuLaunchContext &context,
                                  const std::string &name, GpuCost &cost) {
  const package::DescribedLaunch &launch = context.launch;
  llvm::json::Object answer{
      {"kernel", name},
      {"form", context.kernel ? formOf(*context.kernel) : "copy"}};
  if (!launch.way)
    return describeRefused(context, std::move(answer));
  const package::WaySizes &sizes = launch.sizes;
  int64_t threads = sizes.block[0] * sizes.block[1] * sizes.block[2];
  int64_t fixed = context.code ? context.code->sharedBytes : 0;
  Occupancy occupancy = occupancyOf(context.card.facts, threads,
                                    context.code ? context.code->registers : 0,
                                    sizes.sharedBytes + fixed);
  answer["entry"] = launch.way->entry;
  answer["grid"] = toJson(sizes.grid);
  answer["block"] = toJson(sizes.block);
  answer["dynamic_shared_bytes"] = sizes.sharedBytes;
  answer["workspace_bytes"] = context.step.workspaceBytes;
  answer["code"] = context.code ? llvm::json::Value(codeOf(*context.code))
                                : llvm::json::Value(nullptr);
  answer["occupancy"] = llvm::json::Object{{"blocks", occupancy.blocks},
                                           {"warps", occupancy.warps},
                                           {"most_warps", occupancy.mostWarps},
                                           {"bound", occupancy.bound}};
  if (!context.kernel || !context.entry) {
    GpuLaunchWork moved;
    moved.bytesRead = moved.bytesWritten = context.work.bytesRead;
    cost = predictLaunch(moved, context.card.rates);
    answer["predicted_ms"] = cost.ms;
    answer["bound"] = cost.bound;
    return answer;
  }
  CudaCall call =
      describeCall(*context.kernel, *context.entry, context.step.words);
  answer["what"] = describeEntry(*context.kernel, *context.entry);
  answer["cluster"] = context.entry->blocks;
  answer["whole_grid"] = launch.wholeBlocks;
  answer["groups"] = call.groups;
  answer["parts"] = call.parts;
  answer["call"] = llvm::json::Object{{"batch", call.batch},
                                      {"rows", call.rows},
                                      {"length", call.length},
                                      {"columns", call.columns},
                                      {"depth", call.depth}};
  answer["library"] = libraryOf(context);
  answer["entries"] = entriesOf(context);
  addCounts(context, occupancy, answer, cost);
  return answer;
}

} // namespace refold
