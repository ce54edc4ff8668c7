// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_RUNTIME_PRODUCTBLOCKS_H
#define REFOLD_RUNTIME_PRODUCTBLOCKS_H

#include <cstdint>

namespace refold {

/// Rows that the library multiplies at a time in each of `batches` products of
/// `rows` rows. Where the right side is not constant each block packs it again,
/// so that there are as few as keep the cores busy. At least 1.
int64_t rowBlockOf(int64_t rows, int64_t batches, bool isRhsConstant);

} // namespace refold

#endif // REFOLD_RUNTIME_PRODUCTBLOCKS_H
