// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_PACKAGE_CUDA_H
#define REFOLD_PACKAGE_CUDA_H

#include "refold/Package/Package.h"
#include "refold/Package/Plan.h"
#include <functional>
#include <map>
#include <optional>
#include <span>

namespace refold::package {

/// A GPU as the driver describes it.
struct GpuFacts {
  std::string name;
  int major = 0, minor = 0; ///< compute capability
  int multiprocessors = 0;
  int64_t memoryBytes = 0, l2Bytes = 0, sharedBytesPerBlock = 0;
  /// Cycles a millisecond at most, and bytes that its memory moves in one, as
  /// the driver has them; 0: it does not say.
  int64_t cyclesAMs = 0, memoryBytesAMs = 0;
  int driverVersion = 0; ///< 13000 for CUDA 13.0; 0: it does not say
  /// "sm_90a", "sm_80", ...: what code is made for here.
  std::string architecture() const;
  /// "cuda-sm90" or "cuda-sm80": the text that it runs fastest.
  std::string textTarget() const;
};

/// The GPU number `ordinal` of the machine. One that is older than 8.0, a
/// machine without a GPU or driver: Unsupported, with what was found.
Outcome<GpuFacts> findGpu(int ordinal = 0);

/// Whether code for `architecture` runs on the GPU.
bool runsOn(const std::string &architecture, const GpuFacts &gpu);

using DeviceAddress = uint64_t;
using DeviceStream = void *; ///< a CUstream

/// A launch of a kernel at one shape: what a choice is kept under, with the GPU
/// and its driver.
struct LaunchOfShape {
  const DeviceKernel &kernel;
  size_t launch = 0;                   ///< of the kernel's
  std::span<const int64_t> words = {}; ///< of its call, addresses left out
};

/// One way to make a launch that was timed.
struct TunedWay {
  LaunchChoice choice;
  double predictedMs = 0.0, ms = 0.0;
  bool isDefault = false;
  /// Largest difference to what the default gives, of the largest element of
  /// the array; nothing was compared of the default.
  double difference = 0.0;
  bool isWrong = false; ///< it is more than rounding: never taken
};

/// What came of one launch of a step.
struct TunedLaunch {
  size_t step = 0;     ///< of the program
  uint32_t kernel = 0; ///< of the package
  size_t launch = 0;
  std::vector<int64_t> words; ///< as in `LaunchOfShape`
  size_t numLegal = 0;        ///< ways that give the results
  std::vector<TunedWay> ways; ///< that were timed; the default comes first
  size_t best = 0;
  bool wasKept = false; ///< the choice was known: nothing was timed
  LaunchChoice choice;
};
/// Lines of what was timed, as tools show them.
std::string describeTuned(const Package &package, const TunedLaunch &tuned);

struct TuneOptions {
  size_t mostWays = 6;
  /// Of its time that a way has to be faster than the default: less is noise.
  double leastGain = 0.02;
  std::function<void(const std::string &what)> onProgress = nullptr;
};

/// A package on a GPU: modules, constants, and memory for the shapes that are
/// run. One thread at a time.
class CudaProgram {
public:
  struct Options {
    int ordinal = 0;
    /// Makes code of one entry of a kernel's text for an architecture, where
    /// the package has none that runs here; null: the package is refused then.
    /// Several threads call it at once.
    std::function<Outcome<std::string>(const DeviceKernel &kernel,
                                       const std::string &entry,
                                       const std::string &architecture)>
        compile;
    /// What `tune` has found before, asked when a plan is made. What it says is
    /// taken where that way is legal, whoever says so.
    std::function<std::optional<LaunchChoice>(const LaunchOfShape &of)>
        findChoice = nullptr;
  };
  static Outcome<std::unique_ptr<CudaProgram>>
  open(std::shared_ptr<const Package> package, const Options &options);
  ~CudaProgram();

  const Package &package() const;
  const GpuFacts &gpu() const;

  /// Memory for the shape is there when it returns, with the code of the
  /// entries that it launches on arrays at multiples of 256; memory does not
  /// move while the plan is kept: the last `kMostPlans` are, and all that were
  /// captured. A run with another plan is an error. A shape that the GPU has no
  /// memory for changes nothing for the plans there are.
  Outcome<std::shared_ptr<const RunPlan>>
  planFor(const std::vector<std::vector<int64_t>> &inputShapes);
  /// The plan of this number; null where it is not kept.
  std::shared_ptr<const RunPlan> keptPlan(uint64_t id);

  /// All steps on a stream of the caller, on arrays of the GPU, row-major.
  /// Nothing is allocated and nothing waits, so that it can be captured in a
  /// graph. What a check of data refuses is known when the stream has run, by
  /// `findFailedCheck`; until then positions that are outside read the nearest
  /// element inside. Plans share memory: who
  /// uses several streams, or `run` beside them, lets one run of the program
  /// end before the next begins, or opens the package once a stream. `onStep`,
  /// if set, is called before every step and after the last.
  Problem enqueue(const RunPlan &plan, std::span<const DeviceAddress> inputs,
                  std::span<const DeviceAddress> outputs, DeviceStream stream,
                  const std::function<Problem(size_t step)> &onStep = nullptr);

  /// "cuBLASLt 13.1", where that computed the step of the program in the plan's
  /// last run; else empty.
  std::string libraryOf(const RunPlan &plan, size_t step);

  /// Whether a check of the runs since the last call has failed, which streams
  /// have to have ended: one that did. What they wrote is then no result.
  Problem findFailedCheck();

  /// The same on arrays of the host: copied there, computed, copied back.
  Problem run(const RunPlan &plan, std::span<const void *const> inputs,
              std::span<void *const> outputs);

  /// Memory for arrays of the plan, grown and kept: the addresses of inputs,
  /// then outputs.
  Outcome<std::vector<DeviceAddress>> stage(const RunPlan &plan);
  Problem upload(DeviceAddress to, const void *from, int64_t bytes);
  Problem download(void *to, DeviceAddress from, int64_t bytes);
  /// Fills memory with `pattern`, over and over.
  Problem repeat(DeviceAddress to, int64_t bytes, const void *pattern,
                 int64_t patternBytes);

  /// Median milliseconds of one of `launches` runs, over `groups` groups; by
  /// events around them.
  Outcome<double> time(int launches, int groups,
                       const std::function<Problem(DeviceStream)> &run);
  /// The same by replays of a graph of the launches, where the driver has such:
  /// what the host takes for each does not count.
  Outcome<double> timeReplayed(int launches, int groups,
                               const std::function<Problem(DeviceStream)> &run);
  /// Median milliseconds of every step of the program, by its number.
  Outcome<std::vector<double>> timeSteps(const RunPlan &plan,
                                         std::span<const DeviceAddress> inputs,
                                         std::span<const DeviceAddress> outputs,
                                         int runs);
  /// Times the best ways of every launch of a plan on these arrays, by graphs
  /// where the driver has them, and takes the quickest from then on, as the
  /// plan's other runs do. A way whose answer differs from the default's by
  /// more than rounding is never taken, one that is no quicker than noise
  /// neither. Launches whose choice is known are not timed. The arrays hold the
  /// outputs afterwards. Steps that are done once stay as they are.
  Outcome<std::vector<TunedLaunch>> tune(const RunPlan &plan,
                                         std::span<const DeviceAddress> inputs,
                                         std::span<const DeviceAddress> outputs,
                                         const TuneOptions &options);
  /// Bytes a millisecond, read and written, of the driver's copy of as many
  /// bytes as half of `bytes`.
  Outcome<double> copyRate(int64_t bytes);

  struct Impl;

private:
  explicit CudaProgram(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl;
};

} // namespace refold::package

#endif // REFOLD_PACKAGE_CUDA_H
