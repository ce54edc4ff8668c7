// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_BENCH_H
#define REFOLD_DRIVER_BENCH_H

#include "refold/Driver/Inputs.h"

namespace refold {

struct BenchOptions {
  Extents shape;
  std::map<std::string, InputRecipe> inputs;
  int64_t threads = 1;
  uint64_t seed = 0;
  std::string target;
  /// Pairs are run until both limits are met.
  int64_t minPairs = 7;
  double minSeconds = 1.0;
  std::function<void(llvm::StringRef what)> onProgress;
};

struct BenchResult {
  double fusedMs = 0.0, unfusedMs = 0.0; ///< medians
  double speedup = 0.0; ///< median of unfused / fused of each pair
  int64_t pairs = 0;
  bool isChecked = false;
  std::string
      checkedAgainst; ///< "double", or "unfused" where double takes too long
  double error = 0.0;
  double compileMs = 0.0;
  /// The least time that moving the inputs and outputs takes on this machine,
  /// and its share of fusedMs.
  std::string boundName;
  double boundMs = 0.0, boundShare = 0.0;
};

/// Checks the fused program's answer, then times it and the unfused program in
/// pairs. A wrong answer is ExitCode::Mismatch, without a time.
llvm::Expected<BenchResult> bench(mlir::MLIRContext &context,
                                  llvm::StringRef path,
                                  const LoadOptions &loadOptions,
                                  const BenchOptions &options);

} // namespace refold

#endif // REFOLD_DRIVER_BENCH_H
