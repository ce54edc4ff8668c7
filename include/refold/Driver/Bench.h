// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_BENCH_H
#define REFOLD_DRIVER_BENCH_H

#include "refold/Driver/Work.h"
#include "refold/Support/ArrayFile.h"
#include <functional>
#include <optional>

namespace refold {

/// Some runs of one of the two programs, asked for by a caller who lets other
/// processes take turns.
struct BenchTurn {
  bool isFused = true;
  int64_t threads = 1, runs = 1;
};

struct BenchResult;

struct BenchTurnTimes {
  std::vector<double> ms;   ///< of every run
  double predictedMs = 0.0; ///< of one run, by the cost model, at `moment`
  MachineMoment moment;     ///< around the runs
  double threadMs = 0.0; ///< CPU time a run of the thread that had most of it
  double faults = 0.0;   ///< pages a run that the system had to bring
};

struct BenchOptions {
  /// The inputs of a checked program; required.
  std::function<llvm::Expected<std::vector<Tensor>>(llvm::ArrayRef<Port>)>
      makeInputs;
  int64_t threads = 1;
  std::string target;
  NumericPolicy numerics;
  FusePolicy policy = FusePolicy::Auto; ///< of the fused program
  bool usesTuned = false; ///< `CompileOptions::usesTuned`, of both programs
  /// Pairs are run until both limits are met.
  int64_t minPairs = 7;
  double minSeconds = 1.0;
  bool timesSteps = false; ///< also every step of both programs
  std::function<void(llvm::StringRef what)> onProgress;
  /// Gets what the answer was checked against, if set: f64 for floats.
  std::function<llvm::Error(llvm::ArrayRef<NamedTensor>)> onExpected;
  /// If set, the programs are timed turn by turn as it asks, until it has none,
  /// instead of in pairs.
  std::function<std::optional<BenchTurn>(const BenchResult &checked)> nextTurn;
  std::function<void(const BenchTurnTimes &)> onTurn;
};

/// The least time that a program can take on this machine: what it must move at
/// the rate at which the machine reads as much, or what it must compute at the
/// rate of its fma, whichever is more. Both rates are measured beside the
/// program, on as many threads.
struct BenchBound {
  std::string name;             ///< "memory" or "arithmetic"
  double ms = 0.0, share = 0.0; ///< share of the fused time
  double memoryMs = 0.0, arithmeticMs = 0.0;
  double inputBytes = 0.0, weightBytes = 0.0, outputBytes = 0.0;
  double operations = 0.0;
  double bytesPerMs = 0.0, operationsPerMs = 0.0;
};

struct StepTime {
  StepWork work;
  double ms = 0.0;      ///< median
  double share = 0.0;   ///< of the sum over steps
  double boundMs = 0.0; ///< by its own bytes and operations
};

struct BenchResult {
  double fusedMs = 0.0, unfusedMs = 0.0; ///< medians
  double speedup = 0.0; ///< median of unfused / fused of each pair
  int64_t pairs = 0;
  bool isChecked = false;
  std::string
      checkedAgainst; ///< "double", or "unfused" where double takes too long
  double error = 0.0;
  /// An error is beyond the bound of this input, and within that of inputs that
  /// differ from it in their last bits.
  bool isConditioned = false;
  double compileMs = 0.0; ///< of the fused program, without a cache
  std::vector<StageTimes::Stage> stages; ///< of that
  BenchBound bound;
  /// By the cost model, from what is known of the machine, at `moment`.
  double fusedPredictedMs = 0.0, unfusedPredictedMs = 0.0;
  MachineMoment moment; ///< around the runs
  bool isPredictedFromMeasuredRates = false;
  /// Both programs are one: the same steps with the same code.
  bool isSame = false;
  /// Cascades that the fused program leaves as written, by name.
  std::vector<std::pair<std::string, DeclineReport>> declined;
  std::vector<StepTime> fusedSteps, unfusedSteps; ///< in the order they run
};

/// Checks the fused program's answer, then times it and the unfused program in
/// pairs. A wrong answer is ExitCode::Mismatch, without a time.
llvm::Expected<BenchResult> bench(mlir::MLIRContext &context,
                                  llvm::StringRef path,
                                  const LoadOptions &loadOptions,
                                  const BenchOptions &options);

} // namespace refold

#endif // REFOLD_DRIVER_BENCH_H
