// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Algebra/CoveringDesign.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>

namespace refold::algebra {

namespace {
/// Builds a covering array row after row.
class Cover {
public:
  Cover(const std::vector<unsigned> &levels, unsigned strength)
      : levels(levels), strength(strength), ofFactor(levels.size()) {
    std::vector<unsigned> chosen;
    addSubsets(chosen, 0);
  }

  size_t combinations() const { return missing.size(); }

  /// Nothing if it takes more than `most` rows.
  std::optional<Design> build(size_t most) {
    Design design;
    design.strength = strength;
    for (Subset &subset : subsets)
      while (subset.left > 0) {
        if (design.rows.size() == most)
          return std::nullopt;
        design.rows.push_back(row(subset, design.rows.size()));
      }
    return design;
  }

private:
  struct Subset {
    std::array<unsigned, 3> factors = {};
    std::array<size_t, 3> strides = {};
    size_t first = 0; ///< of its combinations in `missing`
    size_t size = 1;  ///< combinations
    size_t left = 0;  ///< of which no row has so many
  };
  static constexpr uint8_t kOpen = 255;

  void addSubsets(std::vector<unsigned> &chosen, unsigned from) {
    if (chosen.size() == strength) {
      Subset subset;
      subset.first = missing.size();
      for (unsigned i = strength; i-- > 0;) {
        subset.factors[i] = chosen[i];
        subset.strides[i] = subset.size;
        subset.size *= levels[chosen[i]];
        ofFactor[chosen[i]].push_back(unsigned(subsets.size()));
      }
      subset.left = subset.size;
      missing.resize(missing.size() + subset.size, 1);
      subsets.push_back(subset);
      return;
    }
    for (unsigned factor = from; factor < levels.size(); ++factor) {
      chosen.push_back(factor);
      addSubsets(chosen, factor + 1);
      chosen.pop_back();
    }
  }

  std::vector<uint8_t> row(const Subset &subset, size_t number) {
    std::vector<uint8_t> row(levels.size(), kOpen);
    size_t combination = 0;
    while (!missing[subset.first + combination])
      ++combination;
    for (unsigned i = 0; i < strength; ++i)
      row[subset.factors[i]] =
          uint8_t(combination / subset.strides[i] % levels[subset.factors[i]]);
    for (unsigned factor = 0; factor < levels.size(); ++factor)
      if (row[factor] == kOpen)
        row[factor] = bestLevel(row, factor, number);
    for (Subset &other : subsets) {
      size_t at = other.first;
      for (unsigned i = 0; i < strength; ++i)
        at += other.strides[i] * row[other.factors[i]];
      other.left -= missing[at];
      missing[at] = 0;
    }
    return row;
  }

  /// Of levels that add as much, another one in every row.
  uint8_t bestLevel(const std::vector<uint8_t> &row, unsigned factor,
                    size_t number) const {
    unsigned count = levels[factor];
    std::array<unsigned, 64> gains = {};
    for (unsigned index : ofFactor[factor]) {
      const Subset &subset = subsets[index];
      size_t at = subset.first, stride = 0;
      bool isOpen = subset.left == 0;
      for (unsigned i = 0; i < strength; ++i) {
        unsigned other = subset.factors[i];
        if (other == factor)
          stride = subset.strides[i];
        else if (row[other] == kOpen)
          isOpen = true;
        else
          at += subset.strides[i] * row[other];
      }
      for (unsigned level = 0; !isOpen && level < count; ++level)
        gains[level] += missing[at + stride * level];
    }
    unsigned best = (number + factor) % count;
    for (unsigned step = 1; step < count; ++step)
      if (unsigned level = (number + factor + step) % count;
          gains[level] > gains[best])
        best = level;
    return uint8_t(best);
  }

  const std::vector<unsigned> &levels;
  unsigned strength;
  std::vector<Subset> subsets;
  std::vector<std::vector<unsigned>> ofFactor; ///< subsets that have it
  std::vector<uint8_t> missing;                ///< combinations that no row has
};
} // namespace

/// Beyond so many triples of levels choosing the rows takes longer than trying
/// them.
static constexpr size_t kMostCombinations = 60000;

static Design allRows(const std::vector<unsigned> &levels, size_t count) {
  Design design;
  design.strength = unsigned(levels.size());
  design.isComplete = true;
  for (size_t number = 0; number < count; ++number) {
    std::vector<uint8_t> row;
    size_t rest = number;
    for (unsigned level : levels) {
      row.push_back(uint8_t(rest % level));
      rest /= level;
    }
    design.rows.push_back(std::move(row));
  }
  return design;
}

Design coveringDesign(const std::vector<unsigned> &levels, size_t most) {
  size_t product = 1, triples = 0, pairs = 0, sum = 0;
  for (unsigned level : levels) {
    product = std::min(product, most + 1) * level;
    triples += pairs * level;
    pairs += sum * level;
    sum += level;
  }
  if (product <= most || levels.size() < 2)
    return allRows(levels, product);
  if (levels.size() > 2 && triples <= kMostCombinations)
    if (std::optional<Design> design = Cover(levels, 3).build(most))
      return *design;
  return *Cover(levels, 2).build(std::numeric_limits<size_t>::max());
}

} // namespace refold::algebra
