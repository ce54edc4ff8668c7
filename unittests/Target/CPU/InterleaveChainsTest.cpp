// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompileText.h"

using namespace refold;
using namespace refold::test;

namespace {
/// Assembly of a loop that stores 2^x of two registers at `second` and before,
/// of arrays that may be one: the second register is read behind the first
/// store.
std::string assemblyOf(llvm::StringRef second) {
  llvm::Expected<CpuTarget> target = detectTarget("avx2");
  if (!target) {
    llvm::consumeError(target.takeError());
    return "";
  }
  std::string text = R"mlir(
func.func @f(%p: memref<?xf32>, %q: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c8 = arith.constant 8 : index
  %c16 = arith.constant 16 : index
  %three = arith.constant dense<3.0> : vector<8xf32>
  %n = memref.dim %p, %c0 : memref<?xf32>
  scf.for %i = %c0 to %n step %c16 {
    %j = arith.addi %i, %c8 : index
    %x0 = vector.load %p[%i] : memref<?xf32>, vector<8xf32>
    %x1 = arith.subf %x0, %three : vector<8xf32>
    %x = arith.mulf %x1, %three : vector<8xf32>
    %y = math.exp2 %x fastmath<afn> : vector<8xf32>
    vector.store %y, %p[%i] : memref<?xf32>, vector<8xf32>
    %u0 = vector.load )mlir" +
                     second.str() + R"mlir([%j] : memref<?xf32>, vector<8xf32>
    %u1 = arith.subf %u0, %three : vector<8xf32>
    %u = arith.mulf %u1, %three : vector<8xf32>
    %v = math.exp2 %u fastmath<afn> : vector<8xf32>
    vector.store %v, )mlir" +
                     second.str() + R"mlir([%j] : memref<?xf32>, vector<8xf32>
  }
  return
})mlir";
  return assemblyOfText(text, *target);
}

/// Chains that have begun before the first ends: clamps in front of the first
/// shift of an exponent.
size_t numBegun(llvm::StringRef assembly) {
  return assembly.substr(0, assembly.find("vpslld")).count("vmaxps");
}
} // namespace

TEST(InterleaveChainsTest, AlternateWhereAccessesDoNotMeet) {
  std::string one = assemblyOf("%p");
  if (one.empty())
    GTEST_SKIP() << "no AVX2";
  EXPECT_EQ(numBegun(one), 2u) << one;
}

TEST(InterleaveChainsTest, KeepTheOrderOfAccessesThatMayMeet) {
  std::string two = assemblyOf("%q");
  if (two.empty())
    GTEST_SKIP() << "no AVX2";
  EXPECT_EQ(numBegun(two), 1u) << two;
}
