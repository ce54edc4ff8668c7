// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ALGEBRA_COVERINGDESIGN_H
#define REFOLD_ALGEBRA_COVERINGDESIGN_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace refold::algebra {

/// Rows of levels, one of each factor.
struct Design {
  std::vector<std::vector<uint8_t>> rows;
  /// Any so many factors have every combination of their levels in some row.
  unsigned strength = 0;
  bool isComplete = false; ///< these are all rows
};

/// All rows if that are at most `most`; otherwise a covering array of strength
/// 3 if one of at most `most` rows is found, or one of strength 2, of however
/// many rows that takes. Each row takes the first combination that is missing
/// and then level after level what adds most; the same on every run.
/// Requires 1 to 64 levels of every factor.
Design coveringDesign(const std::vector<unsigned> &levels, size_t most);

} // namespace refold::algebra

#endif // REFOLD_ALGEBRA_COVERINGDESIGN_H
