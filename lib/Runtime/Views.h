// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_VIEWS_H
#define REFOLD_LIB_RUNTIME_VIEWS_H

#include "refold/Runtime/ExecutableSpec.h"

namespace refold {

/// A view whose sizes are known.
struct View {
  unsigned buffer = 0;
  DType dtype = DType::F32;
  int64_t byteOffset = 0;
  llvm::SmallVector<int64_t, 4> sizes, strides; ///< in elements

  int64_t numElements() const;
};

/// Fails (nothing) where a size overflows or is negative.
std::optional<View> resolve(const ViewSpec &spec,
                            llvm::ArrayRef<int64_t> symbols);

/// Copies elements of `elementBytes` between two arrays of one shape whose
/// element (0, ..., 0) is given; strides count elements and may be 0 or
/// negative on the source side. Allocates nothing up to rank 8.
void copyStrided(unsigned elementBytes, llvm::ArrayRef<int64_t> sizes,
                 const char *from, llvm::ArrayRef<int64_t> fromStrides,
                 char *to, llvm::ArrayRef<int64_t> toStrides);

} // namespace refold

#endif // REFOLD_LIB_RUNTIME_VIEWS_H
