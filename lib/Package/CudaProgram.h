// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_PACKAGE_CUDAPROGRAM_H
#define REFOLD_LIB_PACKAGE_CUDAPROGRAM_H

#include "CudaDriver.h"
#include "ProductLibrary.h"
#include "ProgramPlans.h"
#include "refold/Package/LaunchPlan.h"
#include <array>

namespace refold::package {

/// Memory of the current context, at an address that the driver chose.
struct DeviceMemory {
  explicit DeviceMemory(const CudaDriver &driver) : driver(driver) {}
  ~DeviceMemory();
  DeviceMemory(const DeviceMemory &) = delete;
  DeviceMemory &operator=(const DeviceMemory &) = delete;

  /// Makes room where there is too little. What was stored is then lost, and
  /// nothing is left where the GPU has no more.
  Problem reserve(int64_t wanted, const GpuFacts &gpu, const char *what);
  void release() {
    if (address)
      driver.cuMemFree_v2(address);
    address = 0;
    bytes = 0;
  }

  const CudaDriver &driver;
  DeviceAddress address = 0;
  int64_t bytes = 0;
};

/// A launch of an entry, all that its expressions say worked out.
struct ResolvedLaunch {
  const Launch *launch = nullptr;
  const LaunchWay *way = nullptr;
  CuFunction function = nullptr;
  unsigned grid[3] = {}, block[3] = {}, sharedBytes = 0;
  std::vector<int64_t> values;   ///< of its parameters
  std::vector<CuTensorMap> maps; ///< together the one behind them
};
/// The launches of a step for the words that it was last called with; for
/// several, as callers have arrays that take turns. Working them out takes
/// longer than a small kernel (docs/packages.md).
struct ResolvedStep {
  struct Call {
    std::vector<int64_t> words;
    /// What way, grid and shared memory may depend on of the addresses, which
    /// alone differ between the calls of a step.
    std::vector<int64_t> remainders;
    std::vector<ResolvedLaunch> launches;
  };
  Call &callFor(const std::vector<int64_t> &words) {
    auto found =
        std::find_if(calls.begin(), calls.end(),
                     [&](const Call &call) { return call.words == words; });
    return found != calls.end() ? *found : calls[next++ % calls.size()];
  }
  /// One whose launches differ in what is passed only; null: there is none.
  const Call *callLike(const std::vector<int64_t> &remainders) const {
    auto found =
        std::find_if(calls.begin(), calls.end(), [&](const Call &call) {
          return !call.words.empty() && call.remainders == remainders;
        });
    return found != calls.end() ? &*found : nullptr;
  }
  /// After a choice that has changed.
  void forgetCalls() {
    for (Call &call : calls)
      call.words.clear();
  }
  std::array<Call, 4> calls;
  size_t next = 0;
  /// One a launch of the kernel, or none at all.
  std::vector<std::optional<LaunchChoice>> choices;
  /// That computes it where arrays are aligned; null: its launches do.
  std::unique_ptr<LibraryProduct> product;
  bool wasMultiplied = false; ///< by it, when it was last run
};

/// A plan with the memory of its intermediate arrays and workspaces. They stay
/// where they are as long as it is kept, so that what was captured stays right;
/// plans share memory.
struct CudaPlan {
  std::shared_ptr<const RunPlan> plan;
  std::shared_ptr<DeviceMemory> memory;
  DeviceAddress arena = 0, workspace = 0;
  bool isPinned = false;              ///< a graph may have captured it
  std::vector<ResolvedStep> resolved; ///< one a step of the plan
};

struct LoadedEntry {
  CuFunction function = nullptr; ///< null: its code is not made yet
  int64_t sharedBytes = kSharedBytesWithoutAsking; ///< that it may have
};
struct LoadedKernel {
  std::vector<LoadedEntry> entries; ///< as `forEachWay` has them
};
/// An entry that a launch wants and that has no code.
struct MissingEntry {
  const DeviceKernel *kernel;
  const LaunchWay *way;
  LoadedEntry *entry;
};

struct CudaProgram::Impl : ProgramPlans<CudaPlan> {
  Impl(const CudaDriver &driver, CuDevice device, GpuFacts gpu)
      : driver(driver), device(device), gpu(std::move(gpu)), constants(driver),
        tickets(driver), staging(driver), libraryWorkspace(driver),
        failedCheck(driver), keptArrays(driver) {}
  ~Impl() override;

  Problem start();
  Problem loadKernel(const DeviceKernel &kernel, LoadedKernel &loaded);
  Problem loadModule(const std::string &name, std::string_view image,
                     CuModule &module);
  Problem findEntry(CuModule module, const LaunchWay &way, LoadedEntry &entry);
  using Choices = std::span<const std::optional<LaunchChoice>>;
  void noteMissing(size_t number, Choices choices,
                   std::vector<MissingEntry> &missing);
  Problem loadMissing(const std::vector<MissingEntry> &missing);
  Problem loadEntriesOf(const CudaPlan &made);
  Problem uploadConstants();
  Problem makeTickets();
  Problem makeFailedCheck();
  Problem prepare(CudaPlan &made, PlannedSteps which) override;
  Problem reserveKept() override;
  Problem runOnce(CudaPlan &made) override;
  Problem reserveFor(CudaPlan &made);
  Problem prepareProducts(CudaPlan &made);
  void findChoices(CudaPlan &made);
  Problem growMemory(int64_t wanted);
  Problem resolve(size_t number, Choices choices,
                  std::vector<ResolvedLaunch> &launches);
  Problem resolveAlike(const PlannedKernel &kernel, ResolvedStep &resolved,
                       ResolvedStep::Call &call);
  Problem resolveValues(ResolvedLaunch &resolved);
  Problem makeMap(const LaunchMap &map, const std::string &entry,
                  CuTensorMap &made);
  void cutToRun(const LaunchWay &way, CuFunction function, WaySizes &launched);
  Problem resolveEntry(const DeviceKernel &kernel, const Launch &one,
                       const LaunchWay &way, const LaunchChoice *choice,
                       LoadedEntry &entry, ResolvedLaunch &resolved);
  Problem multiply(LibraryProduct &product, CuStream on);
  Problem launch(std::vector<ResolvedLaunch> &launches, CuStream on);
  Problem launchNow(size_t number, CuStream on);
  Outcome<bool> setCheckWords(const PlannedCheck &check, size_t step);
  void placeBuffers(const CudaPlan &kept, std::span<const DeviceAddress> inputs,
                    std::span<const DeviceAddress> outputs);
  Problem copy(const PlannedCopy &copy, CuStream on);
  Problem check(const PlannedCheck &check);
  Problem checkLater(const PlannedCheck &check, size_t step, CuStream on);
  Problem runStep(CudaPlan &kept, const PlannedStep &step,
                  ResolvedStep &resolved, CuStream on, bool checksLater);
  Problem runPlaced(CudaPlan &kept, CuStream on,
                    const std::function<Problem(size_t)> &onStep,
                    bool checksLater);
  Problem runSteps(CudaPlan &kept, std::span<const DeviceAddress> inputs,
                   std::span<const DeviceAddress> outputs, CuStream on,
                   const std::function<Problem(size_t)> &onStep,
                   bool checksLater);
  Problem failed(const char *call, CuResult error) const;
  Problem synchronize();

  const CudaDriver &driver;
  CuDevice device;
  GpuFacts gpu;
  CuContext context = nullptr;
  CuStream stream = nullptr; ///< of what is not on the caller's
  decltype(Options::compile) compile;
  decltype(Options::findChoice) findChoice;
  std::vector<LoadedKernel> kernels;
  std::vector<CuModule> modules;
  bool makesCode = false; ///< of entries, when they are first wanted
  std::vector<DeviceAddress> constantsAt; ///< one a buffer
  DeviceMemory constants, tickets, staging;
  /// Looked for when a plan first wants it; and its workspace.
  std::optional<std::unique_ptr<ProductLibrary>> library;
  DeviceMemory libraryWorkspace;
  DeviceMemory failedCheck; ///< 1 + the step of a check that failed, or 0
  DeviceMemory keptArrays;  ///< of what is computed of constants alone
  std::shared_ptr<DeviceMemory> memory; ///< that further plans get
  // Of the call that is being made.
  bool isCapturing = false; ///< a graph, where no code can be loaded
  std::vector<DeviceAddress> addresses; ///< one a buffer
  std::vector<int64_t> words;
  TermValues sizes;                     ///< of the kernel that `words` are of
  std::vector<ResolvedLaunch> launches; ///< of a copy or a check
  std::vector<int64_t> remainders;
  std::vector<void *> cells;
  std::vector<char> flags;
};

/// The choice of a launch; null: it has none.
inline const LaunchChoice *choiceOf(CudaProgram::Impl::Choices choices,
                                    size_t launch) {
  return launch < choices.size() && choices[launch] ? &*choices[launch]
                                                    : nullptr;
}

/// The program's context is the thread's while it lives.
class CurrentContext {
public:
  explicit CurrentContext(const CudaProgram::Impl &impl) : impl(impl) {
    impl.driver.cuCtxPushCurrent_v2(impl.context);
  }
  ~CurrentContext() {
    CuContext before;
    impl.driver.cuCtxPopCurrent_v2(&before);
  }
  CurrentContext(const CurrentContext &) = delete;
  CurrentContext &operator=(const CurrentContext &) = delete;

private:
  const CudaProgram::Impl &impl;
};

} // namespace refold::package

#endif // REFOLD_LIB_PACKAGE_CUDAPROGRAM_H
