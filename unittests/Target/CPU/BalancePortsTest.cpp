// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "CompileText.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>

using namespace refold;
using namespace refold::test;

namespace {
/// Code for AVX-512 whose additions take the ports of multiplications too;
/// nothing where this machine does not run it.
std::optional<CpuTarget> targetWith(bool addsApart) {
  llvm::Expected<CpuTarget> target = detectTarget("avx512");
  if (!target) {
    llvm::consumeError(target.takeError());
    return std::nullopt;
  }
  target->facts.addsApart = addsApart;
  return *target;
}

constexpr llvm::StringLiteral kSums =
    "%p = arith.constant ALL<3.5>ALL : FROM\n"
    "%z = arith.constant ALL<-0.0>ALL : FROM\n"
    "%a = arith.addf %x, %p : FROM\n"
    "%b = arith.subf %z, %x : FROM\n"
    "%c = arith.addf %a, %b : FROM\n"
    "%d = arith.subf %b, %c : FROM\n"
    "%e = arith.addf %d, %x : FROM\n"
    "%y = arith.subf %e, %a : FROM\n";

/// Numbers that are special, and any bits.
template <typename T> std::vector<T> numbers() {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  using Limits = std::numeric_limits<T>;
  std::vector<T> all = {T(0),
                        T(-0.0),
                        T(3.5),
                        T(-3.5),
                        Limits::max(),
                        Limits::lowest(),
                        Limits::min(),
                        -Limits::min(),
                        Limits::denorm_min(),
                        -Limits::denorm_min(),
                        Limits::infinity(),
                        -Limits::infinity(),
                        Limits::quiet_NaN(),
                        T(1) / 3};
  std::mt19937_64 random(7);
  while (all.size() < 4096)
    all.push_back(std::bit_cast<T>(Bits(random())));
  return all;
}

template <typename T> void expectSameBits(llvm::StringRef type) {
  auto apart = targetWith(true), together = targetWith(false);
  if (!apart)
    GTEST_SKIP() << "no AVX-512";
  Elementwise one(type, type, kSums, 64 / sizeof(T), *apart);
  Elementwise other(type, type, kSums, 64 / sizeof(T), *together);
  ASSERT_TRUE(one && other);
  std::vector<T> from = numbers<T>(), x(from.size()), y(from.size());
  one.run(/*onVectors=*/true, from.data(), x.data(), int64_t(from.size()));
  other.run(/*onVectors=*/true, from.data(), y.data(), int64_t(from.size()));
  for (size_t i = 0; i < from.size(); ++i) {
    if (std::isnan(x[i]) && std::isnan(y[i]))
      continue;
    EXPECT_EQ(x[i], y[i]) << from[i];
    EXPECT_EQ(std::signbit(x[i]), std::signbit(y[i])) << from[i];
  }
}

/// How often the assembly of a loop rounds as it says itself.
size_t multiplicationsByOne(llvm::StringRef body, bool addsApart) {
  auto target = targetWith(addsApart);
  if (!target)
    return 0;
  std::string text = R"mlir(
func.func @f(%p: memref<?xf32>) {
  %c0 = arith.constant 0 : index
  %c16 = arith.constant 16 : index
  %three = arith.constant dense<3.0> : vector<16xf32>
  %n = memref.dim %p, %c0 : memref<?xf32>
  scf.for %i = %c0 to %n step %c16 {
    %x = vector.load %p[%i] : memref<?xf32>, vector<16xf32>
)mlir" + body.str() +
                     R"mlir(
    vector.store %y, %p[%i] : memref<?xf32>, vector<16xf32>
  }
  return
})mlir";
  return llvm::StringRef(assemblyOfText(text, *target)).count("{rn-sae}");
}
} // namespace

TEST(BalancePortsTest, SumsKeepTheirBits) {
  expectSameBits<float>("f32");
  expectSameBits<double>("f64");
}

TEST(BalancePortsTest, HalfOfWhatOnlyAddsIsMoved) {
  if (!targetWith(true))
    GTEST_SKIP() << "no AVX-512";
  llvm::StringRef sums = "%a = arith.addf %x, %three : vector<16xf32>\n"
                         "%b = arith.subf %x, %a : vector<16xf32>\n"
                         "%c = arith.subf %a, %b : vector<16xf32>\n"
                         "%y = arith.addf %b, %c : vector<16xf32>\n";
  EXPECT_EQ(multiplicationsByOne(sums, /*addsApart=*/true), 2u);
  EXPECT_EQ(multiplicationsByOne(sums, /*addsApart=*/false), 0u);
}

TEST(BalancePortsTest, NothingIsMovedToPortsThatHaveMoreToDo) {
  llvm::StringRef products = "%a = arith.mulf %x, %x : vector<16xf32>\n"
                             "%b = math.fma %a, %x, %three : vector<16xf32>\n"
                             "%y = arith.addf %b, %three : vector<16xf32>\n";
  EXPECT_EQ(multiplicationsByOne(products, /*addsApart=*/true), 0u);
}
