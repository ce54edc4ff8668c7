// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_STOPWATCH_H
#define REFOLD_SUPPORT_STOPWATCH_H

#include <ctime>

namespace refold {

/// CPU time of this thread since the object was made: what else runs on the
/// machine does not count.
class Stopwatch {
public:
  double ms() const { return now() - start; }

private:
  static double now() {
    timespec time;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
    return double(time.tv_sec) * 1e3 + double(time.tv_nsec) * 1e-6;
  }
  double start = now();
};

} // namespace refold

#endif // REFOLD_SUPPORT_STOPWATCH_H
