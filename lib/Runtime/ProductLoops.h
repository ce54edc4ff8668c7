// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_RUNTIME_PRODUCTLOOPS_H
#define REFOLD_LIB_RUNTIME_PRODUCTLOOPS_H

#include "ProductShape.h"

namespace refold {

/// Types that `multiplyPlainly` has loops for.
bool hasPlainLoops(DType lhs, DType rhs, DType result);

/// One item by plain loops: every type the library has no product for, and
/// empty sums. Sums in the result's type (f32 for f32 results), k in order.
void multiplyPlainly(const ProductShape &shape, const ProductItem &item,
                     const char *lhs, const char *rhs, char *result);

/// Adds bias[column] (or bias[row]) and applies the activation to one item of
/// an f32 or f64 result.
void applyEpilogue(const ProductShape &shape, const ProductItem &item,
                   const char *bias, Activation activation, char *result);

/// Copies a matrix to row-major f32. From f32, f16 or bf16.
void packAsF32(DType type, const char *from, int64_t rowStride,
               int64_t colStride, int64_t rows, int64_t cols, float *to);

} // namespace refold

#endif // REFOLD_LIB_RUNTIME_PRODUCTLOOPS_H
