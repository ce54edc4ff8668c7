// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a row kernel asks for before it reads it (Prefetch.cpp).
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_AHEAD_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_AHEAD_H

#include "Graph.h"
#include "Spelling.h"

#include <optional>

namespace refold::walk {

/// By a pass over a row.
struct Ahead {
  llvm::SmallVector<Node *> reads;
  int64_t bytes = 0;      ///< from what is read
  int64_t again = 0;      ///< the second time that it is asked for; 0: once
  int64_t rows = 0;       ///< or so many rows, if that is more
  int level = 1;          ///< the cache that it is wanted in
  std::optional<Ix> most; ///< elements that there are, if that may be less
};

/// By the sweep of the row before: into which cache, and `times` the usual
/// distance, `rows`; 0 where that turns out to be too far.
struct NextRow {
  int level = 2;
  Ix times{1}, rows{1};
  int64_t bytes = 0; ///< beyond the place in that row
};

} // namespace refold::walk

#endif
