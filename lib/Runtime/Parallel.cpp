// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Parallel.h"

#include <algorithm>
#include <atomic>

// GCC's OpenMP runtime by its own entry points: clang compiles pragmas for
// libomp only, and a second OpenMP runtime in a process that has oneDNN's
// libgomp would fight it for the cores.
extern "C" {
void GOMP_parallel(void (*body)(void *), void *data, unsigned numThreads,
                   unsigned flags);
int omp_get_thread_num();
int omp_get_max_threads();
void omp_set_num_threads(int);
}

using namespace refold;

namespace {
struct Region {
  llvm::function_ref<void(unsigned, int64_t, int64_t)> body;
  int64_t items, chunk;
  std::atomic<int64_t> next{0};
};
} // namespace

static void work(void *data) {
  Region &region = *static_cast<Region *>(data);
  unsigned thread = unsigned(omp_get_thread_num());
  for (;;) {
    int64_t begin =
        region.next.fetch_add(region.chunk, std::memory_order_relaxed);
    if (begin >= region.items)
      return;
    region.body(thread, begin, std::min(begin + region.chunk, region.items));
  }
}

void refold::parallelFor(
    unsigned threads, int64_t items,
    llvm::function_ref<void(unsigned, int64_t, int64_t)> body) {
  if (items <= 0)
    return;
  threads = unsigned(std::min<int64_t>(std::max(threads, 1u), items));
  if (threads == 1)
    return body(0, 0, items);
  // Sixteen chunks a thread even out what the machine or the masks make uneven,
  // and keep the shared counter quiet.
  Region region{body, items, std::max<int64_t>(1, items / (16 * threads))};
  GOMP_parallel(work, &region, threads, 0);
}

SingleThreadedLibraries::SingleThreadedLibraries()
    : before(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
SingleThreadedLibraries::~SingleThreadedLibraries() {
  omp_set_num_threads(before);
}
