// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_THREADCLOCKS_H
#define REFOLD_LIB_DRIVER_THREADCLOCKS_H

#include <cstdint>
#include <map>

namespace refold {

/// What the system has charged this process so far.
struct ThreadClocks {
  std::map<int64_t, double> ms; ///< CPU time by thread number
  int64_t faults = 0;           ///< pages that were brought without a disk
};

ThreadClocks readThreadClocks();

/// The most CPU time that one thread spent from `before` to `after`: what a run
/// takes on a machine whose cores are its own, however often others were given
/// them meanwhile.
double mostSpent(const ThreadClocks &before, const ThreadClocks &after);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_THREADCLOCKS_H
