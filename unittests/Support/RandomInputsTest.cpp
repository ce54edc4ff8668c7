// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/RandomInputs.h"
#include "Outcome.h"
#include "refold/Support/NearestName.h"
#include <cmath>
#include <gtest/gtest.h>

using namespace refold;

static Tensor filled(llvm::StringRef recipe, DType dtype, uint64_t seed = 0,
                     llvm::StringRef name = "x") {
  Tensor tensor = llvm::cantFail(Tensor::create(dtype, {6, 1000}));
  fillRandom(tensor, llvm::cantFail(parseInputRecipe(recipe)), seed, name);
  return tensor;
}

template <typename Predicate>
static int64_t countIf(const Tensor &tensor, Predicate predicate) {
  int64_t count = 0;
  for (int64_t i = 0; i < tensor.numElements(); ++i)
    count += predicate(tensor.get(i));
  return count;
}

TEST(RandomInputsTest, SeedAndNameDecide) {
  Tensor a = filled("normal", DType::F32), b = filled("normal", DType::F32);
  Tensor c = filled("normal", DType::F32, 1),
         d = filled("normal", DType::F32, 0, "y");
  auto differs = [&](const Tensor &other) {
    for (int64_t i = 0; i < a.numElements(); ++i)
      if (a.get(i) != other.get(i))
        return true;
    return false;
  };
  EXPECT_FALSE(differs(b));
  EXPECT_TRUE(differs(c));
  EXPECT_TRUE(differs(d));
  // The values are part of the contract: a seed in a report must mean the same
  // tomorrow.
  EXPECT_NEAR(a.get(0), filled("normal", DType::F64).get(0), 1e-6);
}

TEST(RandomInputsTest, FamiliesAreWhatTheirNamesSay) {
  Tensor normal = filled("normal", DType::F64);
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < 6000; ++i) {
    sum += normal.get(i);
    squares += normal.get(i) * normal.get(i);
  }
  EXPECT_NEAR(sum / 6000, 0, 0.06);
  EXPECT_NEAR(squares / 6000, 1, 0.1);

  auto isNegInf = [](double x) { return x == -HUGE_VAL; };
  Tensor ninf = filled("ninf", DType::F32);
  EXPECT_GT(countIf(ninf, isNegInf), 2 * 1000 + 800);
  EXPECT_LT(countIf(ninf, isNegInf), 2 * 1000 + 1200);
  EXPECT_EQ(countIf(filled("nan", DType::F32),
                    [](double x) { return std::isnan(x); }),
            2);
  EXPECT_EQ(countIf(filled("offset", DType::F32),
                    [](double x) { return std::abs(x - 1000) < 10; }),
            6000);
  Tensor constant = filled("const", DType::F32);
  EXPECT_EQ(countIf(constant, [&](double x) { return x == constant.get(0); }),
            6000);
  // A quarter of a row's elements are of another size than the row.
  Tensor mixed = filled("mixed", DType::F32);
  for (int64_t row = 0; row < 6; ++row) {
    std::vector<double> sizes;
    for (int64_t i = 0; i < 1000; ++i)
      sizes.push_back(std::abs(mixed.get(row * 1000 + i)));
    std::sort(sizes.begin(), sizes.end());
    EXPECT_LT(sizes[700] / sizes[300], 32.0);
    EXPECT_GT(sizes[995] / sizes[5], 0x1p60);
  }
  EXPECT_EQ(countIf(mixed, [](double x) { return std::abs(x) < 0x1p71; }),
            6000);
  Tensor growing = filled("growing", DType::F64);
  for (int64_t i = 1; i < 1000; ++i)
    EXPECT_GT(growing.get(i), growing.get(i - 1));
  EXPECT_EQ(countIf(filled("uniform(.5,2)", DType::F32),
                    [](double x) { return x >= .5 && x < 2; }),
            6000);
  EXPECT_EQ(countIf(filled("uniform(0,2)", DType::I64),
                    [](double x) { return x == 0 || x == 1; }),
            6000);
}

TEST(RandomInputsTest, RefusesUnknownRecipes) {
  for (llvm::StringRef text :
       {"gauss", "uniform", "uniform()", "uniform(1)", "uniform(2,1)",
        "uniform(nan,1)", "uniform(0,1", ""})
    EXPECT_TRUE(fails(parseInputRecipe(text))) << text.str();
  EXPECT_EQ(describe(llvm::cantFail(parseInputRecipe("uniform(.5,2)"))),
            "uniform(0.5,2)");
}

TEST(NearestNameTest, FindsTyposAndNothingElse) {
  llvm::StringRef known[] = {"format", "shape", "MatMul", "seed"};
  EXPECT_EQ(nearestName("fromat", known), "format");
  EXPECT_EQ(nearestName("matmul", known), "MatMul");
  EXPECT_EQ(nearestName("shap", known), "shape");
  EXPECT_EQ(nearestName("zzz", known), "");
  EXPECT_EQ(nearestName("", known), "");
  EXPECT_EQ(nearestName(std::string(100000, 'a'), known), "");
  EXPECT_EQ(suggestion("shap", known), "; did you mean 'shape'?");
  EXPECT_EQ(suggestion("zzz", known), "");
}
