// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_SCHEDULE_LISTSTEPS_H
#define REFOLD_LIB_SCHEDULE_LISTSTEPS_H

#include "refold/Schedule/Schedule.h"
#include <cmath>

namespace refold {

/// Instructions, as many as rows are lanes, that put one candidate of each row
/// in its place among `best` ones of `arrays` arrays. Sorted: a block of as
/// many candidates by Batcher's comparators, of four instructions on halves of
/// f64, then merged with those before; 8 make a key and its place one number.
/// Inserted: each place compares, and each array keeps, moves or takes.
inline double stepsOfCandidate(ListForm form, double best, double arrays) {
  if (form == ListForm::Inserted)
    return best * (5.0 + 2.0 * arrays);
  double power = std::ceil(std::log2(best)), size = std::exp2(power);
  double comparators = (power * power - power + 4.0) * size / 4.0 - 1.0;
  return (4.0 * comparators + 2.0 * size * power + 2.0 * size) / size + 8.0;
}

/// Elements that are as good as the `best`-th best of the maxima of so many
/// groups, of many in any order: how many of a group are is a Poisson process.
inline double candidatesOf(double best, double groups) {
  double count = 0.0;
  for (double i = 0.0; i < best; ++i)
    count += groups / (groups - i);
  return count;
}

} // namespace refold

#endif // REFOLD_LIB_SCHEDULE_LISTSTEPS_H
