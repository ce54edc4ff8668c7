// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_TUNE_H
#define REFOLD_DRIVER_TUNE_H

#include "refold/Driver/Inputs.h"

namespace refold {

struct TuneOptions {
  Extents shape; ///< of every named dimension
  std::map<std::string, InputRecipe> inputs;
  int64_t threads = 1;
  uint64_t seed = 0;
  std::string target;
  NumericPolicy numerics;
  FusePolicy policy = FusePolicy::Auto;
  std::function<void(llvm::StringRef what)> onProgress;
};

/// One schedule that was tried.
struct TuneCandidate {
  std::string change; ///< "tile n=512", "" for the schedule as chosen
  std::string schedule;
  double ms = 0.0, predictedMs = 0.0; ///< of the kernel's step
  bool isWrong = false; ///< its answer differs by more than rounding
};

/// What came of one kernel: candidates, the chosen schedule first.
struct TuneReport {
  std::string step;
  std::vector<TuneCandidate> candidates;
  size_t best = 0;
  std::string keptIn; ///< the winner's file; empty: it could not be kept
};

/// Tries schedules near the chosen one for every kernel that takes a tenth of
/// the program or more, one after the other, and keeps the winners for
/// `applyTuned`. A winner is at least 3 % faster than the chosen schedule.
llvm::Expected<std::vector<TuneReport>> tune(mlir::MLIRContext &context,
                                             llvm::StringRef path,
                                             const LoadOptions &loadOptions,
                                             const TuneOptions &options);

} // namespace refold

#endif // REFOLD_DRIVER_TUNE_H
