// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_PARALLEL_H
#define REFOLD_LIB_RUNTIME_PARALLEL_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstdint>

namespace refold {

/// Runs `body(thread, begin, end)` until [0, items) is covered, on at most
/// `threads` threads, and no more than the machine has; each call of one
/// `thread` number runs alone. Threads come from one pool of the process, and
/// one that the machine is too busy to wake is not waited for: it returns when
/// all items are done. Chunks are claimed as threads become free, so results
/// must not depend on them. Libraries that use OpenMP stay on one thread
/// inside.
void runInParallel(unsigned threads, int64_t items,
                   llvm::function_ref<void(unsigned, int64_t, int64_t)> body);

/// While it lives, libraries that the calling thread calls and that use OpenMP
/// stay on one thread.
class SingleThreadedLibraries {
public:
  SingleThreadedLibraries();
  ~SingleThreadedLibraries();
  SingleThreadedLibraries(const SingleThreadedLibraries &) = delete;
  SingleThreadedLibraries &operator=(const SingleThreadedLibraries &) = delete;

private:
  int before;
};

} // namespace refold

#endif // REFOLD_LIB_RUNTIME_PARALLEL_H
