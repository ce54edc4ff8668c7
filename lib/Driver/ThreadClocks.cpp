// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ThreadClocks.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include <algorithm>
#include <sys/resource.h>
#include <time.h>

namespace refold {

/// The clock of CPU time of a thread of this process, as Linux numbers them:
/// pthread_getcpuclockid asks for a handle, which threads of libraries do not
/// give.
static clockid_t clockOf(int64_t thread) {
  constexpr unsigned kPerThread = 4, kScheduler = 2;
  return static_cast<clockid_t>((~static_cast<unsigned>(thread) << 3) |
                                kPerThread | kScheduler);
}

ThreadClocks readThreadClocks() {
  ThreadClocks clocks;
  std::error_code error;
  for (llvm::sys::fs::directory_iterator at("/proc/self/task", error), end;
       at != end && !error; at.increment(error)) {
    int64_t thread = 0;
    llvm::StringRef path = at->path();
    timespec spent;
    if (path.rsplit('/').second.getAsInteger(10, thread) ||
        clock_gettime(clockOf(thread), &spent) != 0)
      continue; // it has ended meanwhile
    clocks.ms[thread] = 1e3 * static_cast<double>(spent.tv_sec) +
                        1e-6 * static_cast<double>(spent.tv_nsec);
  }
  rusage usage;
  if (getrusage(RUSAGE_SELF, &usage) == 0)
    clocks.faults = usage.ru_minflt;
  return clocks;
}

double mostSpent(const ThreadClocks &before, const ThreadClocks &after) {
  double most = 0.0;
  for (const auto &[thread, ms] : after.ms) {
    auto earlier = before.ms.find(thread);
    most =
        std::max(most, ms - (earlier == before.ms.end() ? 0 : earlier->second));
  }
  return most;
}

} // namespace refold
