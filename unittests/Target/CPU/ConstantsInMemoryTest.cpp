// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompileText.h"

using namespace refold;
using namespace refold::test;

namespace {
std::optional<CpuTarget> avx2() {
  llvm::Expected<CpuTarget> target = detectTarget("avx2");
  if (!target) {
    llvm::consumeError(target.takeError());
    return std::nullopt;
  }
  return *target;
}

/// Assembly of a loop that maps %x to %y, with `before` in front of it.
std::string assemblyOf(llvm::StringRef body, llvm::StringRef before = "") {
  std::string text = R"mlir(
func.func @f(%p: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %n = memref.dim %p, %c0 : memref<?xf32>
)mlir" + before.str() +
                     R"mlir(
  scf.for %i = %c0 to %n step %c8 {
    %x = vector.load %p[%i] : memref<?xf32>, vector<8xf32>
)mlir" + body.str() +
                     R"mlir(
    vector.store %y, %p[%i] : memref<?xf32>, vector<8xf32>
  }
  return
})mlir";
  return assemblyOfText(text, *avx2());
}

/// A polynomial of `count` constants that are all different.
std::string polynomial(int count) {
  std::string text = "%y0 = arith.mulf %x, %x : vector<8xf32>\n";
  for (int i = 0; i < count; ++i) {
    std::string k = std::to_string(i);
    std::string next = i + 1 == count ? "" : std::to_string(i + 1);
    text += "%k" + k + " = arith.constant dense<3." + std::to_string(10 + i) +
            "> : vector<8xf32>\n%y" + next + " = math.fma %y" + k + ", %x, %k" +
            k + " : vector<8xf32>\n";
  }
  return text;
}

size_t numBroadcasts(llvm::StringRef assembly) {
  return assembly.count("broadcastss");
}

/// Operations that read a whole register of a constant.
size_t numOperands(llvm::StringRef assembly) {
  llvm::SmallVector<llvm::StringRef> lines;
  assembly.split(lines, '\n');
  return llvm::count_if(lines, [](llvm::StringRef line) {
    return line.contains("vfmadd") && line.contains("(%rip)");
  });
}
} // namespace

TEST(ConstantsInMemoryTest, MoreConstantsThanRegistersAreOperands) {
  if (!avx2())
    GTEST_SKIP() << "no AVX2";
  // Two of 16 registers hold x and the sum.
  std::string assembly = assemblyOf(polynomial(24));
  EXPECT_EQ(numBroadcasts(assembly), 0u) << assembly;
  EXPECT_GE(numOperands(assembly), 10u) << assembly;
}

TEST(ConstantsInMemoryTest, ThoseThatFindRegistersAreReadBeforeTheLoop) {
  if (!avx2())
    GTEST_SKIP() << "no AVX2";
  std::string assembly = assemblyOf(polynomial(6));
  EXPECT_EQ(numBroadcasts(assembly), 0u) << assembly;
  EXPECT_EQ(numOperands(assembly), 0u) << assembly;
}

/// Zero is made by one instruction from nothing, and outside of loops a word is
/// as good.
TEST(ConstantsInMemoryTest, OthersStayAsTheyAre) {
  if (!avx2())
    GTEST_SKIP() << "no AVX2";
  llvm::StringRef atLeastZero =
      "%z = arith.constant dense<0.0> : vector<8xf32>\n"
      "%y = arith.maxnumf %x, %z : vector<8xf32>\n";
  llvm::StringRef before =
      "%q = vector.load %p[%c0] : memref<?xf32>, vector<8xf32>\n"
      "%t = arith.constant dense<3.25> : vector<8xf32>\n"
      "%u = arith.addf %q, %t : vector<8xf32>\n"
      "vector.store %u, %p[%c0] : memref<?xf32>, vector<8xf32>\n";
  std::string assembly = assemblyOf(atLeastZero, before);
  EXPECT_EQ(numBroadcasts(assembly), 1u) << assembly;
}

TEST(ConstantsInMemoryTest, ResultsAreWhatTheyWere) {
  if (!avx2())
    GTEST_SKIP() << "no AVX2";
  std::string body;
  for (int i = 0; i < 20; ++i) {
    std::string k = std::to_string(i),
                from = i ? "%y" + std::to_string(i) : "%x";
    std::string to = i == 19 ? "%y" : "%y" + std::to_string(i + 1);
    body += "%k" + k + " = arith.constant ALL<0.0" + std::to_string(10 + i) +
            ">ALL : FROM\n" + to + " = math.fma " + from + ", %x, %k" + k +
            " : FROM\n";
  }
  Elementwise code("f32", "f32", body, 8, *avx2());
  ASSERT_TRUE(bool(code));
  std::vector<float> x(64), vectors(64), scalars(64);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = float(i) / 40.0f - 0.7f;
  code.run(/*onVectors=*/true, x.data(), vectors.data(), 64);
  code.run(/*onVectors=*/false, x.data(), scalars.data(), 64);
  for (size_t i = 0; i < x.size(); ++i)
    EXPECT_EQ(vectors[i], scalars[i]) << x[i];
}
