// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The errors that docs/numerics.md promises, over the whole range of f32.
#include "CompileText.h"

#include "llvm/ADT/StringExtras.h"
#include <array>
#include <bit>
#include <cfenv>
#include <cmath>
#include <random>

using namespace refold;
using namespace refold::test;

namespace {
/// Distance in units of the last place of the nearest f32.
double ulpsBetween(float found, double exact) {
  if (std::isnan(exact) || std::isnan(found))
    return std::isnan(exact) == std::isnan(found) ? 0.0 : HUGE_VAL;
  float nearest = float(exact);
  if (std::isinf(nearest) || std::isinf(found))
    return found == nearest ? 0.0 : HUGE_VAL;
  int exponent = std::max(-126, nearest == 0.0f ? -126 : std::ilogb(nearest));
  return std::abs(double(found) - exact) / std::ldexp(1.0, exponent - 23);
}

struct Function {
  const char *name, *body;
  double (*exact)(double);
  double bound; ///< ulp, with FMA
  double baselineBound;
  double rootsBound = 0.0; ///< with AVX-512, where that is another
};
} // namespace

static const Function kFunctions[] = {
    {"exp", "%y = math.exp %x : FROM", std::exp, 1.0, 1.0, 1.05},
    {"exp2", "%y = math.exp2 %x : FROM", std::exp2, 1.0, 1.2, 1.05},
    {"log", "%y = math.log %x : FROM", std::log, 0.8, 0.8},
    {"tanh", "%y = math.tanh %x : FROM", std::tanh, 1.2, 1.2},
    {"erf", "%y = math.erf %x : FROM", std::erf, 1.0, 1.1},
    {"log1p", "%y = math.log1p %x : FROM", std::log1p, 1.0, 1.0},
    {"expm1", "%y = math.expm1 %x : FROM", std::expm1, 1.25, 1.25},
    {"sinh", "%y = math.sinh %x : FROM", std::sinh, 1.25, 1.4},
    {"cosh", "%y = math.cosh %x : FROM", std::cosh, 1.05, 1.05},
    {"log2", "%y = math.log2 %x : FROM", std::log2, 1.05, 2.0},
    {"rsqrt", "%y = math.rsqrt %x : FROM",
     [](double x) { return 1.0 / std::sqrt(x); }, 1.5, 1.5},
    {"sqrt", "%y = math.sqrt %x : FROM", std::sqrt, 0.5, 0.5},
};

/// Every `step`-th f32 bit pattern, and those that formulas treat specially.
static std::vector<float> sampledFloats(uint32_t step) {
  std::vector<float> values = {
      0.0f,      -0.0f,     HUGE_VALF, -HUGE_VALF, NAN,        1.0f,
      -1.0f,     1e30f,     -1e30f,    88.72283f,  88.72284f,  89.0f,
      -87.3365f, -87.34f,   -103.9f,   -103.98f,   -104.1f,    -150.0f,
      -149.5f,   -149.0f,   128.0f,    127.99999f, 0x1p-149f,  0x1p-126f,
      0.625f,    0.93f,     4.0f,      3.4e38f,    -0.999999f, -1.00001f,
      0x1p-30f,  -0x1p-31f, -17.33f,   17.0550f,   89.415985f, 89.415993f,
      0x1p-12f,  -89.41f};
  for (uint64_t bits = 0; bits < (uint64_t(1) << 32); bits += step)
    values.push_back(std::bit_cast<float>(uint32_t(bits)));
  // Halfway between the places of a table, where rounding decides.
  for (int k = -512; k <= 512; ++k)
    values.push_back(float(k) / 64.0f);
  while (values.size() % 16)
    values.push_back(0.5f);
  return values;
}

/// The largest error of a function over the samples.
static double worstError(Elementwise &code, const Function &function,
                         bool onVectors, const std::vector<float> &values) {
  std::vector<float> results(values.size());
  code.run(onVectors, values.data(), results.data(), values.size());
  double worst = 0.0;
  for (size_t i = 0; i < values.size(); ++i) {
    double error = ulpsBetween(results[i], function.exact(values[i]));
    if (!(error <= worst)) {
      worst = error;
      if (error == HUGE_VAL)
        ADD_FAILURE() << function.name << "(" << values[i] << ") is "
                      << results[i] << ", expected "
                      << function.exact(values[i]);
    }
    if (error == HUGE_VAL)
      break;
  }
  return worst;
}

TEST(MathAccuracyTest, ErrorsAreBounded) {
  std::vector<float> values = sampledFloats(16411);
  for (const CpuTarget &target : runnableTargets())
    for (const Function &function : kFunctions) {
      unsigned lanes = target.facts.vectorBits / 32;
      Elementwise code("f32", "f32", function.body, lanes, target);
      ASSERT_TRUE(bool(code));
      for (bool onVectors : {true, false}) {
        double error = worstError(code, function, onVectors, values);
        std::printf("%-12s %-6s %-7s %.3f ulp\n", target.name().c_str(),
                    function.name, onVectors ? "vectors" : "scalars", error);
        double bound =
            target.hasFma() ? function.bound : function.baselineBound;
        if (target.facts.vectorBits == 512 && function.rootsBound)
          bound = function.rootsBound;
        EXPECT_LE(error, bound) << function.name << " on " << target.name();
      }
    }
}

/// What is a term beside 1: of results below 2^-126 only that they are small,
/// and of those far above 1, which `afn` alone does not have, nothing.
TEST(MathAccuracyTest, FlushedAndShortExp2) {
  std::vector<float> values = sampledFloats(16411);
  for (float x = -130.0f; x < 130.0f; x += 0.0137f)
    values.push_back(x);
  while (values.size() % 16)
    values.push_back(0.5f);
  std::vector<float> results(values.size());
  for (const CpuTarget &target : runnableTargets())
    for (auto [flags, bound] : {std::pair("afn", target.hasFma() ? 1.05 : 1.2),
                                std::pair("afn,contract", 50.0)}) { // 2^-18.4
      std::string body =
          "%y = math.exp2 %x fastmath<" + std::string(flags) + "> : FROM";
      Elementwise code("f32", "f32", body.c_str(), target.facts.vectorBits / 32,
                       target);
      ASSERT_TRUE(bool(code));
      for (bool onVectors : {true, false}) {
        code.run(onVectors, values.data(), results.data(), values.size());
        for (size_t i = 0; i < values.size(); ++i) {
          float x = values[i], y = results[i];
          std::string where = target.name() + " " + flags + " " +
                              std::to_string(x) + ": " + std::to_string(y);
          if (std::isnan(x))
            EXPECT_TRUE(std::isnan(y)) << where;
          else if (x < -126.0f)
            EXPECT_TRUE(y >= 0.0f && y <= 0x1p-126f) << where;
          else if (x > 127.0f && flags == llvm::StringRef("afn"))
            continue;
          else if (x >= 128.0f)
            EXPECT_EQ(y, HUGE_VALF) << where;
          else if (x >= 127.5f)
            EXPECT_GE(y, 0x1p127f) << where;
          else
            EXPECT_LE(ulpsBetween(y, std::exp2(double(x))), bound) << where;
          if (x < -150.0f)
            EXPECT_EQ(std::bit_cast<uint32_t>(y), 0u) << where;
        }
      }
    }
}

/// A factor of others that is hardly above 1: as exp2, up to 63. Never -0, and
/// 0 where half of the least number is more.
TEST(MathAccuracyTest, BoundedExp2) {
  std::vector<float> values = sampledFloats(16411);
  for (float x = -152.0f; x < 63.0f; x += 0.0037f)
    values.push_back(x);
  llvm::erase_if(values, [](float x) { return x > 63.0f; });
  for (float x : {-126.0f, -149.0f, -149.5f, -150.0f, -150.5f, -151.0f, 63.0f})
    values.push_back(x);
  while (values.size() % 16)
    values.push_back(0.5f);
  std::vector<float> results(values.size());
  for (const CpuTarget &target : runnableTargets()) {
    Elementwise code("f32", "f32", "%y = math.exp2 %x fastmath<ninf> : FROM",
                     target.facts.vectorBits / 32, target);
    ASSERT_TRUE(bool(code));
    Function function{"exp2", "", std::exp2, 0, 0, 0};
    for (bool onVectors : {true, false}) {
      EXPECT_LE(worstError(code, function, onVectors, values),
                target.hasFma() ? 1.05 : 1.2)
          << target.name();
      code.run(onVectors, values.data(), results.data(), values.size());
      for (auto [x, y] : llvm::zip(values, results)) {
        if (std::isnan(x))
          continue;
        EXPECT_FALSE(std::signbit(y)) << target.name() << " " << x;
        if (x < -150.0f)
          EXPECT_EQ(y, 0.0f) << target.name() << " " << x;
      }
    }
  }
}

/// The bits of a quotient; the neighbour's where the product with the lower
/// part of a reciprocal is no normal number.
template <typename T>
static bool isQuotient(T found, T exact, const CpuTarget &target) {
  using Limits = std::numeric_limits<T>;
  if (std::isnan(exact))
    return std::isnan(found);
  bool isSmall = std::abs(exact) < std::ldexp(Limits::min(), Limits::digits);
  bool isNext = found == std::nextafter(exact, Limits::infinity()) ||
                found == std::nextafter(exact, -Limits::infinity());
  return (found == exact || (isSmall && isNext && target.hasFma())) &&
         std::signbit(found) == std::signbit(exact);
}

/// `x / divisor` on `target`, by vectors and by scalars.
template <typename T>
static void expectQuotients(const std::vector<T> &values, T divisor,
                            const char *type, const CpuTarget &target) {
  using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::string number = "0x" + llvm::utohexstr(std::bit_cast<Word>(divisor),
                                              false, 2 * sizeof(T));
  std::string body = "%c = arith.constant ALL<" + number +
                     ">ALL : FROM\n%y = arith.divf %x, %c : FROM";
  Elementwise code(type, type, body, target.facts.vectorBits / (8 * sizeof(T)),
                   target);
  ASSERT_TRUE(bool(code));
  std::vector<T> results(values.size());
  for (bool onVectors : {true, false}) {
    code.run(onVectors, values.data(), results.data(), values.size());
    for (size_t i = 0; i < values.size(); ++i) {
      T exact = values[i] / divisor, y = results[i];
      bool isRight = isQuotient(y, exact, target);
      ASSERT_TRUE(isRight) << target.name() << ": " << values[i] << " / "
                           << divisor << " is " << y << ", not " << exact;
    }
  }
}

/// Two operations instead of a division: the same bits, infinities and zeros of
/// either sign, overflow.
TEST(MathAccuracyTest, DivisionByAConstant) {
  std::vector<float> values = sampledFloats(16411);
  std::vector<double> wide;
  for (float x : values)
    wide.push_back(double(x) * 1.0000000123);
  for (const CpuTarget &target : runnableTargets()) {
    for (float divisor : {3.0f, -3.0f, 5.6568542f, 1.4142135f, 10.0f, 0.1f,
                          384.0f, 2.0f, 1e30f, 1e-30f, 3e38f, 0x1p-140f, 0.0f})
      expectQuotients<float>(values, divisor, "f32", target);
    for (double divisor : {3.0, -5.656854249492381, 0.1, 4096.0, 1e305})
      expectQuotients<double>(wide, divisor, "f64", target);
  }
}

/// A number of every exponent and sign, some mantissas of each: the ends, the
/// next to them and `random` others.
template <typename T> static std::vector<T> ofEveryExponent(int random) {
  using Word = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr int kMantissa = std::numeric_limits<T>::digits - 1;
  constexpr Word kAll = (Word(1) << kMantissa) - 1;
  constexpr Word kStep = sizeof(T) == 4 ? 1 : 13; // of 2048 exponents some
  std::mt19937_64 generator(7);
  std::vector<T> values;
  Word most = Word(1) << (8 * sizeof(T) - kMantissa - 1);
  for (Word exponent = 0; exponent < most; ++exponent) {
    bool isEnd = exponent < 3 || exponent + 3 > most;
    if (!isEnd && exponent % kStep)
      continue;
    std::vector<Word> mantissas = {0, 1, kAll - 1, kAll};
    for (int i = 0; i < random; ++i)
      mantissas.push_back(generator() & kAll);
    for (Word mantissa : mantissas)
      for (Word sign : {0, 1})
        values.push_back(std::bit_cast<T>(sign << (8 * sizeof(T) - 1) |
                                          exponent << kMantissa | mantissa));
  }
  while (values.size() % 64)
    values.push_back(T(1.0 + values.size()));
  return values;
}

/// Rows of x by numbers, each in a loop of its own.
static std::string quotientsOfRows(const std::string &type, unsigned lanes) {
  std::string vector = "vector<" + std::to_string(lanes) + "x" + type + ">";
  std::string array = "memref<?x" + type + ">";
  bool isVector = lanes > 1;
  std::string element = isVector ? vector : type;
  std::string dialect = isVector ? "vector" : "memref";
  std::string tail = array + (isVector ? ", " + vector : "");
  return "func.func @rows(%x: " + array + ", %t: " + array + ", %y: " + array +
         R"() {
  %c0 = arith.constant 0 : index
  %c1 = arith.constant 1 : index
  %step = arith.constant )" +
         std::to_string(lanes) + R"( : index
  %n = memref.dim %x, %c0 : )" +
         array + R"(
  %m = memref.dim %t, %c0 : )" +
         array + R"(
  scf.for %i = %c0 to %m step %c1 {
    %row = arith.muli %i, %n : index
    %d = memref.load %t[%i] : )" +
         array + R"(
    scf.for %j = %c0 to %n step %step {
      %v = )" +
         dialect + ".load %x[%j] : " + tail + R"(
      )" +
         (isVector ? "%all = vector.broadcast %d : " + type + " to " + vector
                   : "") +
         R"(
      %q = arith.divf %v, )" +
         (isVector ? "%all" : "%d") + " fastmath<arcp> : " + element + R"(
      %at = arith.addi %row, %j : index
      )" +
         dialect + ".store %q, %y[%at] : " + tail + R"(
    }
  }
  return
})";
}

template <typename T>
static void expectQuotientsOfRows(const char *type, int random,
                                  const CpuTarget &target, bool onVectors) {
  std::vector<T> values = ofEveryExponent<T>(random), divisors = values;
  std::vector<T> results(values.size() * divisors.size());
  auto code = compileText(
      quotientsOfRows(
          type, onVectors ? target.facts.vectorBits / (8 * sizeof(T)) : 1),
      target);
  ASSERT_TRUE(bool(code));
  auto rows = code->find("rows");
  ASSERT_TRUE(bool(rows)) << llvm::toString(rows.takeError());
  std::vector<int64_t> words;
  for (std::vector<T> *array : {&values, &divisors, &results}) {
    auto start = reinterpret_cast<intptr_t>(array->data());
    words.insert(words.end(),
                 {start, start, 0, int64_t(array->size()), int64_t(1)});
  }
  (*rows)(words.data(), nullptr);
  const T *y = results.data();
  for (T divisor : divisors)
    for (T x : values) {
      T exact = x / divisor, found = *y++;
      bool isRight = isQuotient(found, exact, target);
      ASSERT_TRUE(isRight) << target.name() << ": " << x << " / " << divisor
                           << " is " << found << ", not " << exact;
    }
}

/// The reciprocal made once outside of a loop: the same of every number, be it
/// 0, infinite, NaN, subnormal or so large that its reciprocal is.
TEST(MathAccuracyTest, DivisionByANumber) {
  for (const CpuTarget &target : runnableTargets())
    for (bool onVectors : {true, false}) {
      expectQuotientsOfRows<float>("f32", 2, target, onVectors);
      expectQuotientsOfRows<double>("f64", 2, target, onVectors);
    }
}

TEST(MathAccuracyTest, ExpAtTheEdges) {
  for (const CpuTarget &target : runnableTargets()) {
    Elementwise code("f32", "f32", "%y = math.exp %x : FROM", 16, target);
    ASSERT_TRUE(bool(code));
    float from[16] = {-HUGE_VALF, -1e30f, -104.5f, HUGE_VALF, 1e30f, 0.0f};
    float to[16];
    for (bool onVectors : {true, false}) {
      code.run(onVectors, from, to, 16);
      for (int i = 0; i < 3; ++i) // exactly +0
        EXPECT_EQ(std::bit_cast<uint32_t>(to[i]), 0u) << target.name() << i;
      EXPECT_EQ(to[3], HUGE_VALF);
      EXPECT_EQ(to[4], HUGE_VALF);
      EXPECT_EQ(to[5], 1.0f);
    }
  }
}

/// e^x of every 61st number from `first` out to infinity, in the direction of
/// `sign`, is `expected` bit by bit.
static void expectFar(Elementwise &code, float first, float sign,
                      float expected, const std::string &target) {
  constexpr uint32_t kStep = 61, kInfinity = 0x7f800000;
  std::vector<float> from(1 << 16), to(from.size());
  uint32_t bits = std::bit_cast<uint32_t>(first);
  while (bits < kInfinity) {
    for (float &x : from) {
      x = sign * std::bit_cast<float>(std::min(bits, kInfinity));
      bits += kStep;
    }
    code.run(/*onVectors=*/true, from.data(), to.data(), from.size());
    for (size_t i = 0; i < to.size(); ++i)
      ASSERT_EQ(std::bit_cast<uint32_t>(to[i]),
                std::bit_cast<uint32_t>(expected))
          << target << " " << from[i];
  }
}

/// Far out what the reduction leaves is as large as the rounding of x.
TEST(MathAccuracyTest, LargeExp) {
  for (const CpuTarget &target : runnableTargets()) {
    Elementwise code("f32", "f32", "%y = math.exp %x : FROM", 16, target);
    ASSERT_TRUE(bool(code));
    expectFar(code, 89.0f, 1.0f, HUGE_VALF, target.name());
  }
}

/// Far below there is nothing left, and beyond all numbers not even an
/// underflow: a kernel that asks for one would look at what it multiplies by
/// for the first pivot of every row.
TEST(MathAccuracyTest, FarExp) {
  for (const CpuTarget &target : runnableTargets()) {
    Elementwise code("f32", "f32", "%y = math.exp %x : FROM", 16, target);
    ASSERT_TRUE(bool(code));
    expectFar(code, 105.0f, -1.0f, 0.0f, target.name());
    std::array<float, 16> from, to;
    from.fill(std::nanf(""));
    code.run(/*onVectors=*/true, from.data(), to.data(), 16);
    EXPECT_TRUE(std::isnan(to[0])) << target.name();
    for (float x : {-HUGE_VALF, std::numeric_limits<float>::lowest()}) {
      from.fill(x);
      std::feclearexcept(FE_ALL_EXCEPT);
      code.run(/*onVectors=*/true, from.data(), to.data(), 16);
      EXPECT_FALSE(std::fetestexcept(FE_UNDERFLOW))
          << target.name() << " " << x;
    }
  }
}

/// Zeros keep their sign, which differences to the exact result do not show.
TEST(MathAccuracyTest, ZerosKeepTheirSign) {
  for (const CpuTarget &target : runnableTargets())
    for (const char *name : {"log1p", "expm1", "sinh"}) {
      std::string body = std::string("%y = math.") + name + " %x : FROM";
      Elementwise code("f32", "f32", body, 16, target);
      ASSERT_TRUE(bool(code));
      float from[16] = {-0.0f, 0.0f, -0x1p-149f, 0x1p-149f}, to[16];
      for (bool onVectors : {true, false}) {
        code.run(onVectors, from, to, 16);
        for (int i = 0; i < 4; ++i)
          EXPECT_EQ(std::bit_cast<uint32_t>(to[i]),
                    std::bit_cast<uint32_t>(from[i]))
              << target.name() << " " << name << " " << from[i];
      }
    }
}

static void expectDoubles(const char *name, long double (*exactly)(long double),
                          double bound) {
  for (const CpuTarget &target : runnableTargets()) {
    std::string body = std::string("%y = math.") + name + " %x : FROM";
    Elementwise code("f64", "f64", body, 8, target);
    ASSERT_TRUE(bool(code));
    std::vector<double> values = {-HUGE_VAL, HUGE_VAL, NAN,    0.0,    -745.0,
                                  -746.5,    709.78,   709.79, -1e300, 1e300};
    for (double x = -746.0; x < 710.0; x += 0.0371)
      values.push_back(x);
    while (values.size() % 8)
      values.push_back(0.5);
    std::vector<double> results(values.size());
    double worst = 0.0;
    for (bool onVectors : {true, false}) {
      code.run(onVectors, values.data(), results.data(), values.size());
      for (size_t i = 0; i < values.size(); ++i) {
        long double exact = exactly(static_cast<long double>(values[i]));
        double nearest = double(exact);
        if (std::isnan(nearest) || std::isinf(nearest) || nearest == 0.0) {
          EXPECT_TRUE(results[i] == nearest || std::isnan(nearest))
              << values[i] << " " << results[i];
          EXPECT_EQ(std::isnan(results[i]), std::isnan(nearest));
          continue;
        }
        int exponent = std::max(-1022, std::ilogb(nearest));
        double error =
            double(fabsl(results[i] - exact)) / std::ldexp(1.0, exponent - 52);
        worst = std::max(worst, error);
      }
    }
    std::printf("%-12s %s f64 %.3f ulp\n", target.name().c_str(), name, worst);
    EXPECT_LE(worst, bound);
  }
}

TEST(MathAccuracyTest, DoubleExp) { expectDoubles("exp", expl, 1.05); }
TEST(MathAccuracyTest, DoubleExpM1) { expectDoubles("expm1", expm1l, 1.25); }
