// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_THREADPOOL_H
#define REFOLD_RUNTIME_THREADPOOL_H

#include "llvm/ADT/STLFunctionalExtras.h"
#include <atomic>
#include <cstdint>

namespace refold {

/// The threads of the process beside those that call. They look for work for
/// some milliseconds after the last region, so that the next one starts at
/// once, and sleep after that, or as soon as they see that others use their
/// core.
class ThreadPool {
public:
  /// A place in which regions run one after the other.
  struct Slot;

  /// The pool of the process; it is never destroyed.
  static ThreadPool &instance();

  /// How many threads a region may have: the cores, and 2 at least.
  static unsigned mostThreads();

  /// A slot that nobody else has; null where all are taken.
  Slot *takeSlot();
  void giveBack(Slot *slot);

  /// Calls `body(thread, chunk)` for every chunk below `chunks`, each once, on
  /// this thread and at most `threads - 1` others, thread numbers below
  /// `threads`. Returns when all calls have: it waits for chunks that were
  /// begun, never for a thread that has not come.
  void run(Slot &slot, unsigned threads, unsigned chunks,
           llvm::function_ref<void(unsigned thread, unsigned chunk)> body);

  static constexpr unsigned kMostThreads = 1024;
  static constexpr unsigned kMostChunks = 4095;

private:
  ThreadPool();
  void start(unsigned workers);
  void work();
  bool helpAnyone();
  void waitForRegion(uint32_t seen);
  void wake(unsigned wanted);

  struct Shared;
  Shared &shared;
};

} // namespace refold

#endif // REFOLD_RUNTIME_THREADPOOL_H
