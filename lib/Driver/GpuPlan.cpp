// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a program launches on a GPU: by the code that launches it
// (lib/Package/LaunchPlan), with the machine code that would run.
#include "refold/Driver/GpuPlan.h"
#include "GpuLaunch.h"
#include "refold/Package/CubinFacts.h"
#include "refold/Package/EntryText.h"
#include "refold/Package/Nvrtc.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/DescribeLaunch.h"
#include "llvm/Support/ThreadPool.h"

namespace refold {

static llvm::Error asError(const package::Problem &problem) {
  return fail(problem.code, problem.message);
}

namespace {
class GpuPlanner {
public:
  GpuPlanner(const CompiledProgram &program, llvm::ArrayRef<CudaKernel> kernels,
             const GpuCard &card, const DiskCache *cache, GpuPlan &plan)
      : package(program.gpu->described()), kernels(kernels), card(card),
        cache(cache), plan(plan) {}
  llvm::Error run(const std::vector<std::vector<int64_t>> &shapes);

private:
  llvm::Error collect(package::PlannedSteps which,
                      const std::vector<int64_t> &symbols);
  llvm::Error makeCode();
  void describe(const package::DescribedStep &step);
  const CudaEntry *entryOf(const package::DescribedLaunch &launch) const;

  const package::Package &package;
  llvm::ArrayRef<CudaKernel> kernels;
  const GpuCard &card;
  const DiskCache *cache;
  GpuPlan &plan;
  std::vector<package::DescribedStep> steps;
  std::map<std::string, package::EntryCode> codes; ///< by entry
};
} // namespace

/// The entry that a way launches; null for copies and checks.
const CudaEntry *
GpuPlanner::entryOf(const package::DescribedLaunch &launch) const {
  if (launch.kernel >= kernels.size() || !launch.way)
    return nullptr;
  const CudaKernel &kernel = kernels[launch.kernel];
  auto found = llvm::find_if(kernel.entries, [&](const CudaEntry &entry) {
    return entry.name == launch.way->entry;
  });
  return found == kernel.entries.end() ? nullptr : &*found;
}

llvm::Error GpuPlanner::collect(package::PlannedSteps which,
                                const std::vector<int64_t> &symbols) {
  package::Outcome<std::unique_ptr<package::RunPlan>> made = package::planRun(
      package.program, findConstantSteps(package.program), which, symbols);
  if (!made)
    return asError(made.error());
  auto clusterBlocks = [&](const package::LaunchWay &way) {
    for (const CudaKernel &kernel : kernels)
      for (const CudaEntry &entry : kernel.entries)
        if (entry.name == way.entry)
          return entry.blocks;
    return 1;
  };
  auto described =
      package::describeLaunches(package, **made, card.facts, clusterBlocks);
  if (!described)
    return asError(described.error());
  steps.insert(steps.end(), std::make_move_iterator(described->begin()),
               std::make_move_iterator(described->end()));
  return llvm::Error::success();
}

/// Machine code of every entry that is launched, where NVRTC is there. What it
/// refuses is a fault of ours, as in a run.
llvm::Error GpuPlanner::makeCode() {
  package::Outcome<const package::Nvrtc *> nvrtc = package::Nvrtc::find();
  if (!nvrtc) {
    plan.code = "registers are not known: " + nvrtc.error().message;
    return llvm::Error::success();
  }
  plan.code = "NVRTC " + (*nvrtc)->version();
  std::map<std::string, uint32_t> wanted;
  for (const package::DescribedStep &step : steps)
    for (const package::DescribedLaunch &launch : step.launches)
      if (launch.way && !launch.sizes.isEmpty())
        wanted.emplace(launch.way->entry, launch.kernel);
  std::mutex mutex;
  llvm::Error failed = llvm::Error::success();
  {
    llvm::DefaultThreadPool threads;
    for (const auto &[entry, kernel] : wanted)
      threads.async([&, entry = entry, kernel = kernel] {
        auto code = makeCubin(
            entry,
            package::textOfEntry(package.deviceKernels[kernel].text, entry),
            card.facts.architecture(), cache);
        std::lock_guard<std::mutex> lock(mutex);
        if (!code)
          failed = llvm::joinErrors(std::move(failed), code.takeError());
        else if (auto facts = package::readEntryCode(*code, entry))
          codes[entry] = *facts;
      });
  }
  plan.hasCode = !codes.empty();
  if (!plan.hasCode && !wanted.empty())
    plan.code += ", whose code has no such entries";
  return failed;
}

void GpuPlanner::describe(const package::DescribedStep &step) {
  StepWork &work = plan.work.steps[step.step];
  std::optional<llvm::json::Object> &answer = plan.launches[step.step];
  double workingSet = plan.work.workingSet;
  if (step.isCopiedByDriver) {
    GpuLaunchWork moved;
    moved.bytesRead = moved.bytesWritten = work.bytesRead;
    GpuCost cost = predictLaunch(moved, card.rates);
    work.predicted.ms = work.isOnce ? 0.0 : cost.ms;
    answer = llvm::json::Object{{"form", "copy by the driver"},
                                {"predicted_ms", work.predicted.ms}};
    return;
  }
  for (const package::DescribedLaunch &launch : step.launches) {
    GpuLaunchContext context{card,      step,
                             launch,    package.deviceKernels[launch.kernel],
                             nullptr,   entryOf(launch),
                             nullptr,   work,
                             workingSet};
    if (launch.kernel < kernels.size())
      context.kernel = &kernels[launch.kernel];
    if (launch.way)
      if (auto code = codes.find(launch.way->entry); code != codes.end())
        context.code = &code->second;
    GpuCost cost;
    answer = describeLaunch(context, package.deviceKernels[launch.kernel].name,
                            cost);
    work.predicted.ms = work.isOnce ? 0.0 : cost.ms;
  }
}

llvm::Error GpuPlanner::run(const std::vector<std::vector<int64_t>> &shapes) {
  package::Outcome<std::vector<int64_t>> symbols =
      package::readSymbols(package.program, shapes);
  if (!symbols)
    return asError(symbols.error());
  for (package::PlannedSteps which :
       {package::PlannedSteps::Once, package::PlannedSteps::Others})
    if (llvm::Error error = collect(which, *symbols))
      return error;
  if (llvm::Error error = makeCode())
    return error;
  plan.launches.resize(plan.work.steps.size());
  for (const package::DescribedStep &step : steps)
    describe(step);
  plan.work.predictedMs = 0.0;
  for (const StepWork &step : plan.work.steps)
    plan.work.predictedMs += step.predicted.ms;
  return llvm::Error::success();
}

llvm::Expected<GpuPlan>
planForGpu(mlir::MLIRContext &context, const CompiledProgram &program,
           llvm::ArrayRef<CudaKernel> kernels,
           llvm::ArrayRef<llvm::SmallVector<int64_t, 4>> shapes,
           const GpuCard &card, const DiskCache *cache) {
  auto work = measureGpuWork(context, program, shapes);
  if (!work)
    return work.takeError();
  GpuPlan plan;
  plan.work = std::move(*work);
  std::vector<std::vector<int64_t>> given;
  for (const auto &shape : shapes)
    given.emplace_back(shape.begin(), shape.end());
  if (llvm::Error error =
          GpuPlanner(program, kernels, card, cache, plan).run(given))
    return std::move(error);
  return std::move(plan);
}

} // namespace refold
