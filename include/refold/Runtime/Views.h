// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_VIEWS_H
#define REFOLD_RUNTIME_VIEWS_H

#include "refold/Runtime/ProgramSpec.h"
#include "refold/Runtime/SizeTerms.h"
#include <memory_resource>
#include <span>

namespace refold {

/// A view whose sizes are known.
struct View {
  unsigned buffer = 0;
  DType dtype = DType::F32;
  int64_t byteOffset = 0;
  std::vector<int64_t> sizes, strides; ///< in elements

  int64_t numElements() const;
};

/// Fails (nothing) where a size overflows or is negative.
std::optional<View> resolve(const ViewSpec &spec, SizeValues &sizes);

/// Makes one of neighbouring dimensions that both sides step through evenly,
/// and drops those of one element.
void mergeDims(std::pmr::vector<int64_t> &sizes,
               std::pmr::vector<int64_t> &from, std::pmr::vector<int64_t> &to);

/// Copies elements of `elementBytes` between two arrays of one shape whose
/// element (0, ..., 0) is given; strides count elements and may be 0 or
/// negative on the source side. Allocates nothing up to rank 8.
void copyStrided(unsigned elementBytes, std::span<const int64_t> sizes,
                 const char *from, std::span<const int64_t> fromStrides,
                 char *to, std::span<const int64_t> toStrides);

} // namespace refold

#endif // REFOLD_RUNTIME_VIEWS_H
