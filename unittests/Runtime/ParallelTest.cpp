// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "../../lib/Runtime/Parallel.h"

#include <atomic>
#include <future>
#include <gtest/gtest.h>
#include <thread>
#include <vector>

using namespace refold;

TEST(CrewTest, CoversEveryItemOnce) {
  Crew crew;
  for (unsigned threads : {0u, 1u, 2u, 5u, 2u})
    for (int64_t items : {int64_t(0), int64_t(1), int64_t(7), int64_t(1000)}) {
      std::vector<std::atomic<int>> seen(items);
      crew.run(threads, items, [&](unsigned, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          ++seen[i];
      });
      for (int64_t i = 0; i < items; ++i)
        EXPECT_EQ(seen[i], 1) << i << " of " << items << ", " << threads;
    }
}

TEST(CrewTest, ThreadNumberRunsAlone) {
  constexpr unsigned kThreads = 4;
  std::atomic<int> inside[kThreads] = {};
  std::atomic<int> collisions{0};
  Crew crew;
  for (int round = 0; round < 200; ++round)
    crew.run(kThreads, 64, [&](unsigned thread, int64_t, int64_t) {
      ASSERT_LT(thread, kThreads);
      collisions += inside[thread].exchange(1);
      std::this_thread::yield();
      inside[thread] = 0;
    });
  EXPECT_EQ(collisions, 0);
}

// Every thread of the pool is held by another run; this one must not wait.
TEST(CrewTest, DoesNotWaitForThreadsThatDoNotCome) {
  unsigned all = std::thread::hardware_concurrency() + 1;
  std::promise<void> release;
  std::shared_future<void> released = release.get_future().share();
  std::atomic<unsigned> held{0};
  std::thread other([&] {
    Crew crew;
    crew.run(all, all, [&](unsigned, int64_t, int64_t) {
      ++held;
      released.wait();
    });
  });
  while (held == 0)
    std::this_thread::yield();
  auto done = std::async(std::launch::async, [] {
    Crew crew;
    std::atomic<int64_t> sum{0};
    for (int round = 0; round < 100; ++round)
      crew.run(2, 16, [&](unsigned, int64_t begin, int64_t end) {
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
TEST(CrewTest, LateThreadsTouchNothing) {
  constexpr int kRuns = 3, kRounds = 3000;
  std::atomic<int> wrong{0};
  std::vector<std::thread> runs;
  for (int run = 0; run < kRuns; ++run)
    runs.emplace_back([&, run] {
      Crew crew;
      for (int round = 0; round < kRounds; ++round) {
        int64_t items = 1 + (round + run) % 67;
        std::vector<int64_t> sums(4);
        crew.run(2 + round % 3, items,
                 [&](unsigned thread, int64_t begin, int64_t end) {
                   for (int64_t i = begin; i < end; ++i)
                     sums[thread] += i + 1; // no other call has this number
                 });
        wrong +=
            sums[0] + sums[1] + sums[2] + sums[3] != items * (items + 1) / 2;
      }
    });
  for (std::thread &run : runs)
    run.join();
  EXPECT_EQ(wrong, 0);
}

// More runs at a time than the pool has places for, and crews that come and go.
TEST(CrewTest, MoreRunsThanPlaces) {
  std::vector<std::unique_ptr<Crew>> crews;
  for (int i = 0; i < 200; ++i) {
    std::atomic<int64_t> sum{0};
    crews.push_back(std::make_unique<Crew>());
    crews.back()->run(2, 10, [&](unsigned, int64_t begin, int64_t end) {
      sum += end - begin;
    });
    EXPECT_EQ(sum, 10);
    if (i == 150)
      crews.clear();
  }
}
