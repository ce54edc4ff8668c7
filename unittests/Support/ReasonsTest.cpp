// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Reasons.h"
#include "llvm/ADT/StringExtras.h"
#include <gtest/gtest.h>
#include <set>

using namespace refold;

TEST(ReasonsTest, EachKeyFindsItsReason) {
  std::set<std::string_view> keys;
  for (const ReasonInfo &info : allReasons()) {
    EXPECT_TRUE(keys.insert(info.key).second) << info.key;
    EXPECT_EQ(reasonOfKey(info.key), info.reason);
    EXPECT_EQ(keyOf(info.reason), info.key);
  }
  EXPECT_EQ(reasonOfKey("not-a-key"), std::nullopt);
}

/// Lower case, no full stop, words (and types, as f8) joined by '-'.
static bool isWellFormed(const ReasonInfo &info) {
  for (char c : info.key)
    if (!llvm::isLower(c) && !llvm::isDigit(c) && c != '-')
      return false;
  return !info.text.empty() && !llvm::isUpper(info.text.front()) &&
         info.text.back() != '.';
}

TEST(ReasonsTest, TextsFollowTheHouseStyle) {
  for (const ReasonInfo &info : allReasons())
    EXPECT_TRUE(isWellFormed(info)) << info.key;
  EXPECT_FALSE(isWellFormed({Reason::Escapes, "Escapes", "it escapes", ""}));
  EXPECT_FALSE(isWellFormed({Reason::Escapes, "escapes", "it escapes.", ""}));
}
