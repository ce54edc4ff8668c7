// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CUDA_DESCRIBELAUNCH_H
#define REFOLD_TARGET_CUDA_DESCRIBELAUNCH_H

#include "refold/Target/CUDA/CompileCuda.h"

namespace refold {

/// What one call of a kernel is, in the words that its launch goes by: `words`
/// are those of the call (kernel ABI). 0 where an entry has no such thing.
struct CudaCall {
  int64_t rows = 0;    ///< of rows: all of them; of others: those of a matrix
  int64_t length = 0;  ///< of a row, of the stream or of a sum
  int64_t columns = 0; ///< of a product, or of results over tiles
  int64_t depth = 0;   ///< of a product inside the cascade
  int64_t batch = 1;   ///< of matrices of their own
  int64_t groups = 0;  ///< that have sums, or streams, of their own
  int64_t parts = 1;   ///< blocks that share one
};
CudaCall describeCall(const CudaKernel &kernel, const CudaEntry &entry,
                      llvm::ArrayRef<int64_t> words);

/// "rows", "tiles", "rows of products", "product" or "product of 8 bits".
const char *formOf(const CudaKernel &kernel);

/// What an entry is, in one line: "128 rows a block, tiles of 64 of the stream,
/// ...".
std::string describeEntry(const CudaKernel &kernel, const CudaEntry &entry);

/// Why the condition of an entry does not hold for a call: the first limit of
/// the entry that the call does not keep to, or that another one is expected to
/// be done sooner.
std::string whyNot(const CudaKernel &kernel, const CudaEntry &entry,
                   llvm::ArrayRef<int64_t> words);

} // namespace refold

#endif // REFOLD_TARGET_CUDA_DESCRIBELAUNCH_H
