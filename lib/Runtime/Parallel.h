// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_PARALLEL_H
#define REFOLD_LIB_RUNTIME_PARALLEL_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include <cstdint>
#include <memory>

namespace refold {

/// The threads of one run. Its members come from one pool of the process, and a
/// member that the machine is too busy to wake is not waited for: a region ends
/// when its items are done.
class Crew {
public:
  Crew();
  ~Crew();

  /// Runs `body(thread, begin, end)` until [0, items) is covered, on at most
  /// `threads` threads, and no more than the machine has; each call of one
  /// `thread` number runs alone. Chunks are claimed as threads become free, so
  /// results must not depend on them. Returns when all are done. Libraries that
  /// use OpenMP stay on one thread inside. Not to be called twice at a time.
  void run(unsigned threads, int64_t items,
           llvm::function_ref<void(unsigned, int64_t, int64_t)> body);

private:
  struct Place;
  std::unique_ptr<Place> place; ///< in the pool, from the first region on
};

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
