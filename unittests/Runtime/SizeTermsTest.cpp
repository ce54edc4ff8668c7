// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Runtime/SizeTerms.h"

#include "gtest/gtest.h"
#include <limits>
#include <random>

using namespace refold;
using Op = SizeExpr::Op;
using Term = SizeTerms::Term;

TEST(SizeTermsTest, WhatIsBuiltTwiceIsOneTerm) {
  auto built = [] {
    SizeExpr s = SizeExpr::symbol(0);
    return (s + SizeExpr(15)) * (s + SizeExpr(15));
  };
  SizeTerms terms;
  SizeSharing sharing(terms);
  SizeNumber number = sharing.add(built());
  EXPECT_EQ(terms.size(), 4u); // s, 15, their sum, its square
  EXPECT_EQ(sharing.add(built()), number);
  EXPECT_EQ(terms.size(), 4u);
  EXPECT_NE(sharing.add(built() + SizeExpr(1)), number);
  EXPECT_EQ(terms.size(), 6u);
}

/// What is asked for first needs nothing of what follows, and a term without a
/// value leaves those that do not read it theirs.
TEST(SizeTermsTest, TermsAreWorkedOutInTheirOrder) {
  SizeExpr s = SizeExpr::symbol(0), missing = SizeExpr::symbol(7);
  SizeTerms terms;
  SizeSharing sharing(terms);
  SizeNumber sum = sharing.add(s + SizeExpr(1)),
             none = sharing.add(missing * SizeExpr(2)),
             ofNone = sharing.add(SizeExpr::select(s, s, missing)),
             product = sharing.add(s * SizeExpr(3));
  TermValues values;
  std::vector<int64_t> symbols = {5};
  EXPECT_EQ(values[sum], std::nullopt); // not started
  values.start(terms, symbols);
  EXPECT_EQ(values[sum], 6);
  EXPECT_EQ(values[product], 15);
  EXPECT_EQ(values[none], std::nullopt);
  EXPECT_EQ(values[ofNone], std::nullopt); // both sides are evaluated
  EXPECT_EQ(values[SizeNumber(terms.size())], std::nullopt);
  symbols[0] = 7;
  values.start(terms, symbols);
  EXPECT_EQ(values[product], 21);
  SizeNumber later = sharing.add(s * SizeExpr(9));
  EXPECT_EQ(values[later], 63);
}

/// Doubled so often, a tree would take years.
TEST(SizeTermsTest, SharedTermsAreWorkedOutOnce) {
  SizeExpr doubled = SizeExpr::symbol(0);
  for (int i = 0; i < 62; ++i)
    doubled = doubled + doubled;
  EXPECT_EQ(doubled.evaluate(std::vector<int64_t>{1}), int64_t(1) << 62);
  EXPECT_EQ((doubled + doubled).evaluate(std::vector<int64_t>{1}),
            std::nullopt);
  EXPECT_EQ(doubled, doubled + SizeExpr(0));
}

TEST(SizeTermsTest, OperandsStandBeforeTheirTerms) {
  std::vector<Term> good = {
      {Op::Symbol, 0}, {Op::Const, 3}, {Op::Mul, 0, {0, 1}}};
  EXPECT_TRUE(SizeTerms::of(good));
  auto isRefused = [&](auto change) {
    std::vector<Term> terms = good;
    change(terms[2]);
    return !SizeTerms::of(terms);
  };
  EXPECT_TRUE(isRefused([](Term &t) { t.operands[1] = 2; })); // itself
  EXPECT_TRUE(isRefused([](Term &t) { t.operands[0] = 3; })); // not there
  EXPECT_TRUE(isRefused([](Term &t) { t.op = Op(15); }));
  EXPECT_TRUE(isRefused([](Term &t) { t = {Op::Symbol, int64_t(1) << 40}; }));
  EXPECT_TRUE(isRefused([](Term &t) { t = {Op::Symbol, -1}; }));
  EXPECT_TRUE(isRefused([](Term &t) { t = {Op::Select, 0, {0, 1, 2}}; }));
  std::swap(good[0], good[2]); // forwards
  EXPECT_FALSE(SizeTerms::of(good));
  EXPECT_TRUE(SizeTerms::of(std::vector<Term>(SizeTerms::kMost)));
  EXPECT_FALSE(SizeTerms::of(std::vector<Term>(SizeTerms::kMost + 1)));
}

/// Random terms against what each operation gives: alone, together, in a
/// program, and read again.
TEST(SizeTermsTest, AllWaysToAValueAgree) {
  std::mt19937_64 random(7);
  auto below = [&](size_t n) { return size_t(random() % n); };
  constexpr int64_t kLarge = std::numeric_limits<int64_t>::max() / 3;
  const std::vector<int64_t> symbols = {3, -5, kLarge, 0};
  for (int program = 0; program < 50; ++program) {
    std::vector<SizeExpr> exprs = {1, 2, -7};
    std::vector<std::optional<int64_t>> expected = {1, 2, -7};
    for (unsigned s = 0; s < 5; ++s) {
      exprs.push_back(SizeExpr::symbol(s));
      expected.push_back(s < 4 ? std::optional(symbols[s]) : std::nullopt);
    }
    while (exprs.size() < 60) {
      size_t a = below(exprs.size()), b = below(exprs.size()),
             c = below(exprs.size());
      Op op = Op(unsigned(Op::Add) + below(13));
      if (op == Op::Select) {
        if (exprs[a].constant()) // folds, and then asks for one side only
          continue;
        exprs.push_back(SizeExpr::select(exprs[a], exprs[b], exprs[c]));
        bool are = expected[a] && expected[b] && expected[c];
        expected.push_back(!are           ? std::nullopt
                           : *expected[a] ? expected[b]
                                          : expected[c]);
        continue;
      }
      exprs.push_back(SizeExpr::binary(op, exprs[a], exprs[b]));
      expected.push_back(expected[a] && expected[b]
                             ? SizeExpr::apply(op, *expected[a], *expected[b])
                             : std::nullopt);
    }
    SizeTerms terms;
    SizeSharing sharing(terms);
    SizeValues together(symbols);
    std::vector<SizeNumber> numbers;
    for (const SizeExpr &expr : exprs)
      numbers.push_back(sharing.add(expr));
    std::vector<SizeExpr> again = terms.expressions();
    TermValues values;
    values.start(terms, symbols);
    for (size_t i = 0; i < exprs.size(); ++i) {
      EXPECT_EQ(exprs[i].evaluate(symbols), expected[i]) << exprs[i].show();
      EXPECT_EQ(together.of(exprs[i]), expected[i]) << exprs[i].show();
      EXPECT_EQ(values[numbers[i]], expected[i]) << exprs[i].show();
      EXPECT_EQ(again[numbers[i]], exprs[i]) << exprs[i].show();
    }
  }
}
