// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Package/EntryText.h"
#include "gtest/gtest.h"

using namespace refold::package;

static const std::string kHead = "#include \"refold_cuda.h\"\nvoid f() {\n}\n";
static const std::string kFirst =
    "REFOLD_KERNEL(128)\nk_rows(const float *x,\n    int n) {\n  if (n) {\n"
    "  }\n}\n";
static const std::string kSecond =
    "REFOLD_UNIT_KERNEL(64, 2)\nk_rows2(const float *x) {\n}\n";
static const std::string kAll = kHead + kFirst + "// Between\n" + kSecond;

TEST(EntryTextTest, KeepsTheEntryAndWhatIsNone) {
  EXPECT_EQ(textOfEntry(kAll, "k_rows"), kHead + kFirst + "// Between\n");
  EXPECT_EQ(textOfEntry(kAll, "k_rows2"), kHead + "// Between\n" + kSecond);
}

TEST(EntryTextTest, KeepsAllWhereTheEntryIsNotFound) {
  EXPECT_EQ(textOfEntry(kAll, "k_row"), kAll);
  EXPECT_EQ(textOfEntry("", "k"), "");
}

TEST(EntryTextTest, KeepsAllWhereAnEntryHasNoEnd) {
  for (std::string text : {"REFOLD_KERNEL(1)", "REFOLD_KERNEL(1)\nk(",
                           "REFOLD_KERNEL(1)\nk() {\n"})
    EXPECT_EQ(textOfEntry(kAll + text, "k_rows"), kAll + text);
}
