// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_STEPVIEWS_H
#define REFOLD_RUNTIME_STEPVIEWS_H

#include "refold/Runtime/ProgramSpec.h"

namespace refold {

/// Calls `visit(view, isWritten)` with every view that the step reads, then
/// with those that it writes.
template <typename Visit>
void forEachView(const Step &step, const Visit &visit) {
  if (auto *kernel = std::get_if<KernelStep>(&step.what)) {
    for (size_t i = 0; i < kernel->operands.size(); ++i)
      if (auto *view = std::get_if<ViewSpec>(&kernel->operands[i]))
        visit(*view, i >= kernel->numInputs);
  } else if (auto *product = std::get_if<ProductStep>(&step.what)) {
    visit(product->lhs, false);
    visit(product->rhs, false);
    if (product->bias)
      visit(*product->bias, false);
    visit(product->result, true);
  } else if (auto *copy = std::get_if<CopyStep>(&step.what)) {
    visit(copy->from, false);
    visit(copy->to, true);
  } else if (auto *assertion = std::get_if<AssertStep>(&step.what)) {
    if (auto *view = std::get_if<ViewSpec>(&assertion->condition))
      visit(*view, false);
  }
}

} // namespace refold

#endif // REFOLD_RUNTIME_STEPVIEWS_H
