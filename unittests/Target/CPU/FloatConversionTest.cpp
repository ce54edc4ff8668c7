// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Conversions of storage types, against lib/Support's and exhaustively where a
// type has few values.
#include "CompileText.h"
#include "refold/Support/Tensor.h"
#include <bit>
#include <cmath>

using namespace refold;
using namespace refold::test;

namespace {
struct Storage {
  const char *name;
  DType dtype;
  unsigned bits;
  bool hasInfinity;
};
} // namespace

static const Storage kStorages[] = {{"f16", DType::F16, 16, true},
                                    {"bf16", DType::BF16, 16, true},
                                    {"f8E5M2", DType::F8E5M2, 8, true},
                                    {"f8E4M3FN", DType::F8E4M3, 8, false}};

static const char *const kExtend = "%y = arith.extf %x : FROM to TO";
static const char *const kRound = "%y = arith.truncf %x : FROM to TO";

TEST(FloatConversionTest, EveryStoredValueExtendsExactly) {
  for (const CpuTarget &target : runnableTargets())
    for (const Storage &storage : kStorages) {
      Elementwise code(storage.name, "f32", kExtend, 16, target);
      ASSERT_TRUE(bool(code));
      unsigned count = 1u << storage.bits, bytes = storage.bits / 8;
      std::vector<char> from(count * bytes);
      for (unsigned i = 0; i < count; ++i)
        std::memcpy(&from[i * bytes], &i, bytes);
      std::vector<float> to(count);
      for (bool onVectors : {true, false}) {
        code.run(onVectors, from.data(), to.data(), count);
        for (unsigned i = 0; i < count; ++i) {
          double exact = loadAsDouble(storage.dtype, &from[i * bytes]);
          bool isSame = std::isnan(exact)
                            ? std::isnan(to[i])
                            : std::bit_cast<uint32_t>(float(exact)) ==
                                  std::bit_cast<uint32_t>(to[i]);
          ASSERT_TRUE(isSame) << target.name() << " " << storage.name << " "
                              << i << ": " << to[i] << " for " << exact;
        }
      }
    }
}

/// Every stored value, the middle to its neighbour, and one f32 beside each.
static std::vector<float> roundingCases(const Storage &storage) {
  std::vector<float> values;
  unsigned bytes = storage.bits / 8;
  for (unsigned i = 0; i + 1 < (1u << storage.bits); ++i) {
    unsigned next = i + 1;
    double x = loadAsDouble(storage.dtype, &i);
    double y = loadAsDouble(storage.dtype, &next);
    (void)bytes;
    float middle = float((x + y) / 2);
    for (float value : {float(x), middle, std::nextafterf(middle, HUGE_VALF),
                        std::nextafterf(middle, -HUGE_VALF)})
      values.push_back(value);
  }
  for (float value : {HUGE_VALF, -HUGE_VALF, NAN, 3.4e38f, -3.4e38f, 65519.99f,
                      65520.0f, 1e-40f, -1e-45f, 0.0f, -0.0f})
    values.push_back(value);
  while (values.size() % 16)
    values.push_back(1.0f);
  return values;
}

/// As arith.truncf says: f8E4M3FN has no infinity, so what is too large is NaN
/// (front ends saturate by themselves).
static bool isRightlyRounded(const Storage &storage, double value,
                             double found) {
  if (std::isnan(value))
    return std::isnan(found);
  uint16_t bits = 0;
  storeFromDouble(storage.dtype, value, &bits);
  double expected = loadAsDouble(storage.dtype, &bits);
  bool isTooLarge =
      storage.dtype == DType::F8E4M3
          ? std::abs(value) > 464.0
          : storage.dtype == DType::F8E5M2 && std::abs(value) >= 61440.0;
  if (isTooLarge)
    return storage.hasInfinity ? std::isinf(found) : std::isnan(found);
  return found == expected && std::signbit(found) == std::signbit(expected);
}

TEST(FloatConversionTest, RoundsToNearestEven) {
  for (const CpuTarget &target : runnableTargets())
    for (const Storage &storage : kStorages) {
      Elementwise code("f32", storage.name, kRound, 16, target);
      ASSERT_TRUE(bool(code));
      std::vector<float> values = roundingCases(storage);
      unsigned bytes = storage.bits / 8;
      std::vector<char> to(values.size() * bytes);
      for (bool onVectors : {true, false}) {
        code.run(onVectors, values.data(), to.data(), values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          double found = loadAsDouble(storage.dtype, &to[i * bytes]);
          ASSERT_TRUE(isRightlyRounded(storage, values[i], found))
              << target.name() << " " << storage.name << " of " << values[i]
              << " is " << found;
        }
      }
    }
}

// From f64 in one rounding: f32 in between would round some middles twice.
TEST(FloatConversionTest, DoubleRoundsOnce) {
  for (const CpuTarget &target : runnableTargets())
    for (const Storage &storage : kStorages) {
      Elementwise code("f64", storage.name, kRound, 8, target);
      ASSERT_TRUE(bool(code));
      std::vector<double> values;
      for (float value : roundingCases(storage))
        for (double off : {0.0, 0x1p-40, -0x1p-40})
          values.push_back(value * (1.0 + off));
      while (values.size() % 8)
        values.push_back(1.0);
      unsigned bytes = storage.bits / 8;
      std::vector<char> to(values.size() * bytes);
      code.run(true, values.data(), to.data(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        double found = loadAsDouble(storage.dtype, &to[i * bytes]);
        ASSERT_TRUE(isRightlyRounded(storage, values[i], found))
            << target.name() << " " << storage.name << " of " << values[i]
            << " is " << found;
      }
    }
}

// Arithmetic written on the storage type itself is done in f32 and rounded.
TEST(FloatConversionTest, ArithmeticOnStorageTypes) {
  for (const CpuTarget &target : runnableTargets())
    for (const char *type : {"f16", "bf16"}) {
      Elementwise code(type, type, "%y = arith.addf %x, %x : FROM", 16, target);
      ASSERT_TRUE(bool(code));
      DType dtype = *parseDType(type);
      uint16_t from[16], to[16];
      for (int i = 0; i < 16; ++i)
        storeFromDouble(dtype, 0.3 * i, &from[i]);
      code.run(true, from, to, 16);
      for (int i = 0; i < 16; ++i)
        EXPECT_EQ(loadAsDouble(dtype, &to[i]),
                  2 * loadAsDouble(dtype, &from[i]));
    }
}
