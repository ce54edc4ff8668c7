// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/CoveringDesign.h"

#include "gtest/gtest.h"

#include <algorithm>
#include <set>

using namespace refold::algebra;

/// How many combinations of levels of `strength` factors are in no row.
static size_t missing(const Design &design, const std::vector<unsigned> &levels,
                      unsigned strength) {
  size_t found = 0;
  std::vector<unsigned> chosen(levels.size());
  std::fill(chosen.end() - strength, chosen.end(), 1);
  do {
    size_t all = 1;
    std::set<std::vector<uint8_t>> seen;
    for (size_t i = 0; i < levels.size(); ++i)
      all *= chosen[i] ? levels[i] : 1;
    for (const std::vector<uint8_t> &row : design.rows) {
      std::vector<uint8_t> part;
      for (size_t i = 0; i < levels.size(); ++i)
        if (chosen[i])
          part.push_back(row[i]);
      seen.insert(part);
    }
    found += all - seen.size();
  } while (std::next_permutation(chosen.begin(), chosen.end()));
  return found;
}

TEST(CoveringDesignTest, EveryCombinationIsInSomeRow) {
  const std::vector<unsigned> kLevels[] = {
      {6, 6, 6, 6}, {7, 6, 7, 6, 7, 6}, {2, 6, 2, 6, 2, 6, 4, 3}, {1, 9, 3, 9}};
  for (const std::vector<unsigned> &levels : kLevels)
    for (size_t most : {60, 700}) {
      Design design = coveringDesign(levels, most);
      EXPECT_GE(design.strength, 2u);
      EXPECT_EQ(missing(design, levels, design.strength), 0u);
      EXPECT_TRUE(design.strength == 2 || design.rows.size() <= most);
      for (const std::vector<uint8_t> &row : design.rows)
        for (size_t i = 0; i < levels.size(); ++i)
          EXPECT_LT(row[i], levels[i]);
    }
}

TEST(CoveringDesignTest, ManyFactorsTakeFewRows) {
  std::vector<unsigned> levels(18, 7);
  Design pairs = coveringDesign(levels, 300);
  EXPECT_EQ(pairs.strength, 2u);
  EXPECT_LT(pairs.rows.size(), 120u); // 49 at least
  Design triples = coveringDesign({6, 6, 6, 6, 6, 6}, 480);
  EXPECT_EQ(triples.strength, 3u); // of 46656 rows, 216 at least
}

TEST(CoveringDesignTest, SmallOnesAreComplete) {
  Design design = coveringDesign({6, 6, 6}, 240);
  EXPECT_TRUE(design.isComplete);
  EXPECT_EQ(design.rows.size(), 216u);
  EXPECT_EQ(missing(design, {6, 6, 6}, 3), 0u);
  EXPECT_EQ(coveringDesign({}, 1).rows.size(), 1u);
}

/// A row that is lost is seen.
TEST(CoveringDesignTest, MissingRowsAreCounted) {
  Design design = coveringDesign({6, 6, 6}, 240);
  design.rows.pop_back();
  EXPECT_EQ(missing(design, {6, 6, 6}, 3), 1u);
}
