// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/AlignedBuffer.h"
#include "refold/Support/Tensor.h"
#include "gtest/gtest.h"
#include <cstdint>

using namespace refold;

TEST(AlignedBufferTest, GrowsAndKeepsItsAlignment) {
  AlignedBuffer buffer;
  EXPECT_EQ(buffer.data(), nullptr);
  ASSERT_TRUE(buffer.reserve(100));
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % 64, 0u);
  std::memset(buffer.data(), 1, 100);
  char *kept = buffer.data();
  ASSERT_TRUE(buffer.reserve(40));
  EXPECT_EQ(buffer.data(), kept);
  // Just below 2 MiB, and above.
  for (size_t bytes : {(size_t(2) << 20) - 1, (size_t(2) << 20) + 1}) {
    ASSERT_TRUE(buffer.reserve(bytes));
    std::memset(buffer.data(), 2, bytes);
  }
  EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % (2 << 20), 0u);
  AlignedBuffer other = std::move(buffer);
  EXPECT_EQ(buffer.data(), nullptr);
  EXPECT_EQ(other.data()[5], 2);
}

TEST(AlignedBufferTest, KeepsItsBytesWhereMemoryIsShort) {
  AlignedBuffer buffer;
  ASSERT_TRUE(buffer.reserve(8));
  buffer.data()[7] = 3;
  EXPECT_FALSE(buffer.reserve(SIZE_MAX));
  EXPECT_FALSE(buffer.reserve(SIZE_MAX / 2));
  EXPECT_EQ(buffer.data()[7], 3);
}

static void writeAt(ptrdiff_t byte) {
  AlignedBuffer buffer;
  if (buffer.reserve(100))
    buffer.data()[byte] = 0;
}

TEST(AlignedBufferTest, AWriteOutsideEndsTheProcess) {
  if (!AlignedBuffer::kIsGuarded)
    GTEST_SKIP() << "there are no guards";
  EXPECT_DEATH(writeAt(100), "a write at byte 100 of an array of 100 bytes");
  EXPECT_DEATH(writeAt(163), "at byte 163");
  EXPECT_DEATH(writeAt(-1), "at byte -1 of");
  writeAt(0);
  writeAt(99);
  EXPECT_DEATH(
      {
        AlignedBuffer buffer;
        if (buffer.reserve(100) && buffer.reserve(40))
          buffer.data()[40] = 0;
        (void)buffer.reserve(80);
      },
      "at byte 40 of an array of 40 bytes");
  EXPECT_DEATH(
      {
        Tensor tensor = llvm::cantFail(Tensor::create(DType::F32, {3, 5}));
        static_cast<float *>(tensor.data())[15] = 0;
      },
      "at byte 60 of an array of 60 bytes");
}
