// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_NETWORKS_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_NETWORKS_H

#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include "llvm/Support/MathExtras.h"
#include <algorithm>
#include <cassert>

/// Networks of comparators: which places are compared does not depend on what
/// they hold, so a place may be a register whose lanes are sorted side by side.
/// The number of places is a power of two.
namespace refold::walk {

/// Puts the better of two places first.
using Comparator = llvm::function_ref<void(int64_t first, int64_t second)>;

/// Sorts `size` places, the best first: merges of odd and even places
/// (Batcher). 1 comparator for 2 places, 5 for 4, 19 for 8, 63 for 16.
inline void sortPlaces(int64_t size, Comparator order) {
  assert(llvm::isPowerOf2_64(uint64_t(size)));
  for (int64_t sorted = 1; sorted < size; sorted *= 2)
    for (int64_t apart = sorted; apart > 0; apart /= 2)
      for (int64_t at = apart % sorted; at + apart < size; at += 2 * apart)
        for (int64_t i = at; i < std::min(at + apart, size - apart); ++i)
          if (i / (2 * sorted) == (i + apart) / (2 * sorted))
            order(i, i + apart);
}

/// Sorts places that rise and then fall, or are such places rotated.
inline void sortBitonic(int64_t size, Comparator order) {
  assert(llvm::isPowerOf2_64(uint64_t(size)));
  for (int64_t apart = size / 2; apart > 0; apart /= 2)
    for (int64_t i = 0; i < size; ++i)
      if (!(i & apart))
        order(i, i + apart);
}

/// The best of `best` and `other`, as many as `best` has, sorted. Both are
/// sorted and of one size: the better of the first of one and the last of the
/// other, and so on, are the best of all, and bitonic.
template <typename T>
void mergeBest(llvm::MutableArrayRef<T> best, llvm::ArrayRef<T> other,
               llvm::function_ref<T(T, T)> better, Comparator order) {
  int64_t size = int64_t(best.size());
  assert(other.size() == best.size());
  for (int64_t i = 0; i < size; ++i)
    best[i] = better(best[i], other[size - 1 - i]);
  sortBitonic(size, order);
}

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_NETWORKS_H
