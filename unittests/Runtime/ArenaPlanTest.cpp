// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/ArenaPlan.h"
#include "llvm/ADT/ArrayRef.h"

#include "gtest/gtest.h"
#include <random>

using namespace refold;

/// Do two buffers that live at one step share a byte?
static bool overlaps(llvm::ArrayRef<BufferLife> lives, const ArenaPlan &plan) {
  for (size_t i = 0; i < lives.size(); ++i)
    for (size_t j = 0; j < i; ++j) {
      bool meet =
          lives[i].first <= lives[j].last && lives[j].first <= lives[i].last;
      bool touch = plan.offsets[i] < plan.offsets[j] + lives[j].bytes &&
                   plan.offsets[j] < plan.offsets[i] + lives[i].bytes;
      if (meet && touch)
        return true;
    }
  return false;
}

TEST(ArenaPlanTest, RandomLivesNeverOverlap) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::vector<BufferLife> lives(random() % 24);
    for (BufferLife &life : lives) {
      life.bytes = random() % 1000;
      life.first = random() % 12;
      life.last = life.first + random() % 4;
    }
    std::optional<ArenaPlan> plan = planArena(lives);
    ASSERT_TRUE(plan);
    EXPECT_FALSE(overlaps(lives, *plan));
    for (size_t i = 0; i < lives.size(); ++i) {
      EXPECT_EQ(plan->offsets[i] % ArenaPlan::kAlignment, 0);
      EXPECT_LE(plan->offsets[i] + lives[i].bytes, plan->bytes);
    }
  }
}

TEST(ArenaPlanTest, TheCheckSeesAnOverlap) {
  std::vector<BufferLife> lives = {{128, 0, 1}, {128, 1, 2}};
  ArenaPlan plan = *planArena(lives);
  EXPECT_FALSE(overlaps(lives, plan));
  plan.offsets[1] = plan.offsets[0] + 64;
  EXPECT_TRUE(overlaps(lives, plan));
}

TEST(ArenaPlanTest, ReusesBytesOfTheDead) {
  // A chain: each step reads the one before, so two buffers do for all.
  std::vector<BufferLife> lives;
  for (unsigned i = 0; i < 10; ++i)
    lives.push_back({256, i, i + 1});
  EXPECT_EQ(planArena(lives)->bytes, 512);
}

TEST(ArenaPlanTest, RefusesSizesThatOverflow) {
  EXPECT_FALSE(planArena(std::vector<BufferLife>{{-1, 0, 0}}));
  int64_t huge = int64_t(1) << 61;
  EXPECT_FALSE(planArena(
      std::vector<BufferLife>{{huge, 0, 0}, {huge, 0, 0}, {huge, 0, 0}}));
  EXPECT_TRUE(planArena(std::vector<BufferLife>{{huge, 0, 0}, {huge, 1, 1}}));
}
