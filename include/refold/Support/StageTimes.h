// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_STAGETIMES_H
#define REFOLD_SUPPORT_STAGETIMES_H

#include "refold/Support/Stopwatch.h"
#include "llvm/ADT/StringRef.h"
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

namespace refold {

/// CPU time of the stages of a compilation, in the order in which they were
/// first met. Several threads may add at a time: then the sum over stages
/// exceeds the time that the user waits.
class StageTimes {
public:
  struct Stage {
    std::string name;
    double ms = 0.0;
    int64_t count = 0; ///< how often it ran
  };

  void add(llvm::StringRef name, double ms);
  std::vector<Stage> list() const;

private:
  mutable std::mutex mutex;
  std::vector<Stage> stages;
};

/// Adds what this thread spends while the object lives; `times` may be null.
class StageTimer {
public:
  StageTimer(StageTimes *times, llvm::StringRef name)
      : times(times), name(name) {}
  ~StageTimer() {
    if (times)
      times->add(name, watch.ms());
  }
  StageTimer(const StageTimer &) = delete;
  StageTimer &operator=(const StageTimer &) = delete;

private:
  StageTimes *times;
  llvm::StringRef name;
  Stopwatch watch;
};

} // namespace refold

#endif // REFOLD_SUPPORT_STAGETIMES_H
