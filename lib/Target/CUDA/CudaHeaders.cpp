// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CUDA/CompileCuda.h"

llvm::ArrayRef<std::pair<llvm::StringRef, llvm::StringRef>>
refold::cudaHeaders() {
  static const std::pair<llvm::StringRef, llvm::StringRef> headers[] = {
#include "CudaHeaders.inc"
  };
  return headers;
}
