// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CPU/DetectTarget.h"

#include "gtest/gtest.h"
#include <cstdlib>

using namespace refold;

TEST(DetectTargetTest, BaselineRunsEverywhere) {
  llvm::Expected<CpuTarget> target = detectTarget("baseline");
  ASSERT_TRUE(bool(target)) << llvm::toString(target.takeError());
  EXPECT_EQ(target->instructionSet, InstructionSet::Baseline);
  EXPECT_EQ(target->facts.vectorBits, 128);
  EXPECT_FALSE(target->hasFma());
  EXPECT_EQ(target->name(), "cpu-baseline");
}

/// A form that is asked for by name is the same on every machine.
TEST(DetectTargetTest, PairsAreAFactOfThisMachine) {
  llvm::Expected<CpuTarget> found = detectTarget();
  ASSERT_TRUE(bool(found)) << llvm::toString(found.takeError());
  bool hasFeature = llvm::StringRef(found->features).contains("+avx512bf16");
  EXPECT_EQ(found->facts.addsPairs, hasFeature);
  llvm::Expected<CpuTarget> named = detectTarget(nameOf(found->instructionSet));
  ASSERT_TRUE(bool(named)) << llvm::toString(named.takeError());
  EXPECT_FALSE(named->facts.addsPairs);
}

TEST(DetectTargetTest, OfTheLastCacheACoreHas16MB) {
  constexpr int64_t kMB = 1 << 20;
  EXPECT_EQ(lastCacheOfCores(8 * kMB, 1), 8 * kMB);
  EXPECT_EQ(lastCacheOfCores(16 * kMB, 1), 16 * kMB);
  EXPECT_EQ(lastCacheOfCores(16 * kMB + 1, 1), 16 * kMB);
  EXPECT_EQ(lastCacheOfCores(300 * kMB, 2), 32 * kMB);
  EXPECT_EQ(lastCacheOfCores(300 * kMB, 96), 300 * kMB);
  llvm::Expected<CpuTarget> target = detectTarget();
  ASSERT_TRUE(bool(target)) << llvm::toString(target.takeError());
  if (int64_t bytes = cacheBytes(3))
    EXPECT_EQ(target->facts.l3Bytes,
              lastCacheOfCores(bytes, target->facts.cores));
}

TEST(DetectTargetTest, UnknownNameIsRefused) {
  llvm::Expected<CpuTarget> target = detectTarget("avx51");
  ASSERT_FALSE(bool(target));
  EXPECT_EQ(llvm::toString(target.takeError()),
            "the wanted target is 'avx51', expected avx512, avx2 or baseline; "
            "did you mean 'avx512'?");
}

TEST(DetectTargetTest, EnvironmentOverrules) {
  setenv("REFOLD_CPU", "baseline", 1);
  llvm::Expected<CpuTarget> target = detectTarget();
  ASSERT_TRUE(bool(target));
  EXPECT_EQ(target->instructionSet, InstructionSet::Baseline);
  setenv("REFOLD_CPU", "sse9", 1);
  target = detectTarget();
  ASSERT_FALSE(bool(target));
  EXPECT_NE(llvm::toString(target.takeError()).find("REFOLD_CPU is 'sse9'"),
            std::string::npos);
  unsetenv("REFOLD_CPU");
}
