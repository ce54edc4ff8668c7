// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Parallel.h"

#include "refold/Runtime/ThreadPool.h"
#include <algorithm>

// Of the OpenMP runtime that oneDNN brings into the process: a property of the
// calling thread.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

using namespace refold;

SingleThreadedLibraries::SingleThreadedLibraries()
    : before(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
SingleThreadedLibraries::~SingleThreadedLibraries() {
  omp_set_num_threads(before);
}

namespace {
/// A place in the pool for the time of one region.
struct Place {
  Place() : slot(ThreadPool::instance().takeSlot()) {}
  ~Place() {
    if (slot)
      ThreadPool::instance().giveBack(slot);
  }
  Place(const Place &) = delete;
  Place &operator=(const Place &) = delete;
  ThreadPool::Slot *slot; ///< null: more regions at a time than the pool serves
};
} // namespace

void refold::runInParallel(
    unsigned threads, int64_t items,
    llvm::function_ref<void(unsigned, int64_t, int64_t)> body) {
  if (items <= 0)
    return;
  threads = std::clamp(threads, 1u, ThreadPool::mostThreads());
  threads = unsigned(std::min<int64_t>(threads, items));
  SingleThreadedLibraries alone;
  if (threads == 1)
    return body(0, 0, items);
  Place place;
  if (!place.slot)
    return body(0, 0, items);
  // Sixteen chunks a thread even out what the machine or the masks make uneven,
  // and keep the shared word quiet.
  int64_t most = std::min<int64_t>(16 * int64_t(threads),
                                   (ThreadPool::kMostChunks + 1) / 2);
  int64_t chunk = std::max<int64_t>(1, items / most);
  unsigned chunks = unsigned((items + chunk - 1) / chunk);
  ThreadPool::instance().run(
      *place.slot, threads, chunks, [&](unsigned thread, unsigned index) {
        // The pool's own threads stay so for good.
        if (thread != 0)
          static thread_local SingleThreadedLibraries always;
        int64_t begin = int64_t(index) * chunk;
        body(thread, begin, std::min(begin + chunk, items));
      });
}
