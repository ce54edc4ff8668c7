// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../lib/Runtime/Parallel.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <gtest/gtest.h>
#include <sched.h>
#include <thread>
#include <vector>

using namespace refold;

TEST(ParallelTest, CoversEveryItemOnce) {
  for (unsigned threads : {0u, 1u, 2u, 5u, 2u})
    for (int64_t items : {int64_t(0), int64_t(1), int64_t(7), int64_t(1000)}) {
      std::vector<std::atomic<int>> seen(items);
      runInParallel(threads, items, [&](unsigned, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          ++seen[i];
      });
      for (int64_t i = 0; i < items; ++i)
        EXPECT_EQ(seen[i], 1) << i << " of " << items << ", " << threads;
    }
}

TEST(ParallelTest, ThreadNumberRunsAlone) {
  constexpr unsigned kThreads = 4;
  std::atomic<int> inside[kThreads] = {};
  std::atomic<int> collisions{0};
  for (int round = 0; round < 200; ++round)
    runInParallel(kThreads, 64, [&](unsigned thread, int64_t, int64_t) {
      ASSERT_LT(thread, kThreads);
      collisions += inside[thread].exchange(1);
      std::this_thread::yield();
      inside[thread] = 0;
    });
  EXPECT_EQ(collisions, 0);
}

// What a region leaves in a core's cache is found there by the next one: of two
// threads one takes the first items, the other the last.
TEST(ParallelTest, ThreadsTakeItemsOfTheirOwnHalf) {
  constexpr int64_t kItems = 100;
  int numShared = 0;
  for (int round = 0; round < 10000 && numShared < 20; ++round) {
    std::vector<unsigned> threads(kItems);
    runInParallel(2, kItems, [&](unsigned thread, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        threads[i] = thread;
      std::this_thread::yield();
    });
    // Thread 0 takes the first half, then what is left at the end of the other;
    // thread 1 begins in the middle.
    auto own = std::find(threads.begin(), threads.end(), 1u);
    auto help = std::find(own, threads.end(), 0u);
    EXPECT_EQ(std::find(help, threads.end(), 1u), threads.end());
    numShared += own != threads.begin() && own != threads.end();
  }
  EXPECT_EQ(numShared, 20);
}

// Every thread of the pool is held by another run; this one must not wait.
TEST(ParallelTest, DoesNotWaitForThreadsThatDoNotCome) {
  unsigned all = std::thread::hardware_concurrency() + 1;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<unsigned> held{0};
  std::thread other([&] {
    runInParallel(all, all, [&](unsigned, int64_t, int64_t) {
      ++held;
      released.wait();
    });
  });
  while (held == 0)
    std::this_thread::yield();
  auto done = std::async(std::launch::async, [] {
    std::atomic<int64_t> sum{0};
    for (int round = 0; round < 100; ++round)
      runInParallel(2, 16, [&](unsigned, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          sum += i;
      });
    return sum.load();
  });
  bool isDone =
      done.wait_for(std::chrono::seconds(20)) == std::future_status::ready;
  EXPECT_TRUE(isDone);
  release.set_value();
  other.join();
  EXPECT_EQ(done.get(), 100 * 120);
}

// Short regions of several runs at a time: a thread that comes late for one
// must not be counted in the next.
TEST(ParallelTest, LateThreadsTouchNothing) {
  constexpr int kRuns = 3, kRounds = 3000;
  std::atomic<int> wrong{0};
  std::vector<std::thread> runs;
  for (int run = 0; run < kRuns; ++run)
    runs.emplace_back([&, run] {
      for (int round = 0; round < kRounds; ++round) {
        int64_t items = 1 + (round + run) % 67;
        std::vector<int64_t> sums(4);
        runInParallel(2 + round % 3, items,
                      [&](unsigned thread, int64_t begin, int64_t end) {
                        for (int64_t i = begin; i < end; ++i)
                          sums[thread] +=
                              i + 1; // no other call has this number
                      });
        wrong +=
            sums[0] + sums[1] + sums[2] + sums[3] != items * (items + 1) / 2;
      }
    });
  for (std::thread &run : runs)
    run.join();
  EXPECT_EQ(wrong, 0);
}

// Regions inside of regions, more than the pool has places for: those without
// one do their work alone, and places that become free serve others.
TEST(ParallelTest, MoreRegionsThanPlaces) {
  std::function<int64_t(int)> nest = [&](int depth) -> int64_t {
    std::atomic<int64_t> sum{0};
    runInParallel(2, 2, [&](unsigned, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i)
        sum += i == 0 && depth ? nest(depth - 1) : 1;
    });
    return sum;
  };
  EXPECT_EQ(nest(100), 102);
  std::atomic<int> threads{0};
  for (int round = 0; round < 1000 && threads < 2; ++round)
    runInParallel(2, 64, [&](unsigned thread, int64_t, int64_t) {
      threads = std::max<int>(threads, thread + 1);
      std::this_thread::yield();
    });
  EXPECT_EQ(threads, 2);
}

// Who is woken on the CPU of its caller leaves it, and may go back later.
TEST(ParallelTest, SleepersKeepTheirCpus) {
  cpu_set_t expected;
  if (sched_getaffinity(0, sizeof(expected), &expected) != 0)
    GTEST_SKIP() << "more CPUs than a set holds";
  std::atomic<int> others{0}, changed{0};
  for (int round = 0; round < 200 && others < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10)); // they sleep
    runInParallel(2, 64, [&](unsigned thread, int64_t, int64_t) {
      cpu_set_t found;
      if (thread && sched_getaffinity(0, sizeof(found), &found) == 0) {
        ++others;
        changed += !CPU_EQUAL(&found, &expected);
      }
      auto end =
          std::chrono::steady_clock::now() + std::chrono::microseconds(20);
      while (std::chrono::steady_clock::now() < end)
        ;
    });
  }
  EXPECT_GT(others, 0);
  EXPECT_EQ(changed, 0);
}
