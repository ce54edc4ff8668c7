// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Networks of comparators. One that sorts every row of zeros and ones sorts
// every row (Knuth), and so for merges; a network that lacks any one comparator
// does not.
#include "../../lib/Conversion/CascadeToVector/Networks.h"
#include "gtest/gtest.h"
#include <functional>
#include <numeric>
#include <utility>
#include <vector>

using namespace refold::walk;

namespace {

using Network = std::vector<std::pair<int64_t, int64_t>>;

Network networkOf(int64_t size, void (*make)(int64_t, Comparator)) {
  Network network;
  make(size, [&](int64_t first, int64_t second) {
    network.emplace_back(first, second);
  });
  return network;
}

std::vector<int> apply(const Network &network, std::vector<int> row) {
  for (auto [first, second] : network)
    if (row[size_t(first)] < row[size_t(second)])
      std::swap(row[size_t(first)], row[size_t(second)]);
  return row;
}

bool isSorted(const std::vector<int> &row) {
  return std::is_sorted(row.begin(), row.end(), std::greater<int>());
}

std::vector<int> zerosAndOnes(int64_t size, unsigned bits) {
  std::vector<int> row;
  for (int64_t i = 0; i < size; ++i)
    row.push_back(int(bits >> i & 1));
  return row;
}

bool sorts(const Network &network, int64_t size) {
  for (unsigned bits = 0; bits < 1u << size; ++bits)
    if (!isSorted(apply(network, zerosAndOnes(size, bits))))
      return false;
  return true;
}

TEST(NetworksTest, SortEveryRow) {
  const std::pair<int64_t, size_t> kComparators[] = {
      {1, 0}, {2, 1}, {4, 5}, {8, 19}, {16, 63}};
  for (auto [size, count] : kComparators) {
    Network network = networkOf(size, sortPlaces);
    EXPECT_EQ(network.size(), count) << size;
    EXPECT_TRUE(sorts(network, size)) << size;
  }
}

TEST(NetworksTest, NoComparatorIsLeftOut) {
  for (int64_t size : {2, 4, 8}) {
    Network whole = networkOf(size, sortPlaces);
    for (size_t i = 0; i < whole.size(); ++i) {
      Network lacking = whole;
      lacking.erase(lacking.begin() + int64_t(i));
      EXPECT_FALSE(sorts(lacking, size)) << size << ", comparator " << i;
    }
  }
}

TEST(NetworksTest, MergeTheBestOfTwo) {
  for (int64_t size : {1, 2, 4, 8, 16})
    for (int64_t ones = 0; ones <= size; ++ones)
      for (int64_t others = 0; others <= size; ++others) {
        std::vector<int> best(size_t(size), 0), other(size_t(size), 0);
        std::fill_n(best.begin(), ones, 1);
        std::fill_n(other.begin(), others, 1);
        mergeBest<int>(
            best, other, [](int x, int y) { return std::max(x, y); },
            [&](int64_t first, int64_t second) {
              best = apply({{first, second}}, best);
            });
        EXPECT_TRUE(isSorted(best)) << size << ": " << ones << ", " << others;
        EXPECT_EQ(std::accumulate(best.begin(), best.end(), int64_t(0)),
                  std::min(size, ones + others));
      }
}

} // namespace
