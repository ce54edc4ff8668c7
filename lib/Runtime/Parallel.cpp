// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Threads come from TBB. OpenMP's regions end with a barrier at which every
// thread spins until the last has come: on a machine that others use too, a
// MiniLM of 59 regions took 392 ms with libgomp, 10.5 with its spinning
// switched off, which only the environment can.
#include "Parallel.h"

#include <algorithm>
#include <atomic>
#include <tbb/info.h>
#include <tbb/parallel_for.h>
#include <tbb/task_arena.h>

// Of the OpenMP runtime that oneDNN brings into the process: a property of the
// calling thread.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int);
}

using namespace refold;

namespace {
struct Region {
  llvm::function_ref<void(unsigned, int64_t, int64_t)> body;
  int64_t items, chunk;
  std::atomic<int64_t> next{0};

  void work(unsigned thread);
};
} // namespace

SingleThreadedLibraries::SingleThreadedLibraries()
    : before(omp_get_max_threads()) {
  omp_set_num_threads(1);
}
SingleThreadedLibraries::~SingleThreadedLibraries() {
  omp_set_num_threads(before);
}

void Region::work(unsigned thread) {
  SingleThreadedLibraries alone;
  for (;;) {
    int64_t begin = next.fetch_add(chunk, std::memory_order_relaxed);
    if (begin >= items)
      return;
    body(thread, begin, std::min(begin + chunk, items));
  }
}

struct Crew::Arena {
  explicit Arena(unsigned threads)
      : threads(threads), tasks(static_cast<int>(threads)) {}
  unsigned threads;
  tbb::task_arena tasks;
};

Crew::Crew() = default;
Crew::~Crew() = default;

void Crew::run(unsigned threads, int64_t items,
               llvm::function_ref<void(unsigned, int64_t, int64_t)> body) {
  if (items <= 0)
    return;
  unsigned pool = std::max<unsigned>(tbb::info::default_concurrency(), 2);
  unsigned most = std::clamp(threads, 1u, pool);
  threads = unsigned(std::min<int64_t>(most, items));
  // Sixteen chunks a thread even out what the machine or the masks make uneven,
  // and keep the shared counter quiet.
  Region region{body, items, std::max<int64_t>(1, items / (16 * threads))};
  if (threads == 1) {
    region.chunk = items;
    return region.work(0);
  }
  if (!arena || arena->threads != most)
    arena = std::make_unique<Arena>(most);
  // One task a thread: whoever comes claims chunks until there are none.
  arena->tasks.execute([&] {
    tbb::parallel_for(
        tbb::blocked_range<unsigned>(0, threads, 1),
        [&](const tbb::blocked_range<unsigned> &) {
          region.work(unsigned(tbb::this_task_arena::current_thread_index()));
        },
        tbb::simple_partitioner());
  });
}
