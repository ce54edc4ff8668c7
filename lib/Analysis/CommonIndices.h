// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_ANALYSIS_COMMONINDICES_H
#define REFOLD_LIB_ANALYSIS_COMMONINDICES_H

#include "refold/Analysis/Kernels.h"

#include <optional>
#include <vector>

namespace refold {

/// One numbering of the indices of formulas that are outputs of one kernel. Two
/// formulas that read one reduction have the indices of its place in common,
/// also where neither has a reduction in common with the first formula.
struct CommonIndices {
  /// Indices of the first formula keep their numbers.
  static CommonIndices of(llvm::ArrayRef<const Formula *> formulas);

  /// For each formula and each index of its own. Without value: it is no index
  /// of the first formula, and of one other at most.
  std::vector<llvm::SmallVector<std::optional<unsigned>>> numbers;
  /// A formula that reads a reduction of the first one at a place that does not
  /// correspond.
  std::optional<unsigned> misfit;
};

} // namespace refold

#endif // REFOLD_LIB_ANALYSIS_COMMONINDICES_H
