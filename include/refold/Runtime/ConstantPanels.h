// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_CONSTANTPANELS_H
#define REFOLD_RUNTIME_CONSTANTPANELS_H

#include "refold/Runtime/ConstantSteps.h"
#include <algorithm>

/// Panels: operands of a kernel as its first phases lay them out. Those of
/// constants are laid out once for all runs.
namespace refold {

/// Whether the operands that a kernel lays out in panels are constants, of
/// which no shape sees another part. `isConstant` is asked about buffers.
template <typename IsConstant>
bool packsConstants(const std::vector<unsigned> &packedOperands,
                    const KernelStep &step, const IsConstant &isConstant) {
  auto isOne = [&](unsigned operand) {
    auto *view = operand < step.operands.size()
                     ? std::get_if<ViewSpec>(&step.operands[operand])
                     : nullptr;
    return view && isFixed(*view) && isConstant(view->buffer);
  };
  return !packedOperands.empty() &&
         std::all_of(packedOperands.begin(), packedOperands.end(), isOne);
}

/// What panels of one step depend on besides its constants: their bytes and
/// how many items of each of the `numPacks` phases lay them out. A shape
/// without elements may have none.
inline std::vector<int64_t>
panelKey(int64_t bytes, const std::vector<int64_t> &items, size_t numPacks) {
  std::vector<int64_t> key{bytes};
  key.insert(key.end(), items.begin(), items.begin() + ptrdiff_t(numPacks));
  return key;
}

} // namespace refold

#endif // REFOLD_RUNTIME_CONSTANTPANELS_H
