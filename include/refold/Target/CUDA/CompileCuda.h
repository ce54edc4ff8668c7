// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CUDA_COMPILECUDA_H
#define REFOLD_TARGET_CUDA_COMPILECUDA_H

#include "mlir/IR/MLIRContext.h"
#include "refold/Conversion/CascadeToCUDA.h"
#include "refold/Runtime/ExecutableSpec.h"
#include "llvm/Support/Error.h"
#include <optional>

namespace refold {

/// What runs the kernels.
enum class CudaDevice : uint8_t {
  Text,    ///< nothing: they are only printed
  Emulated ///< the host, compiled by a C++ compiler of the machine
};

/// "cuda-sm80" and "cuda-sm90" (text), "cuda-emulated".
struct CudaTarget {
  CudaDevice device = CudaDevice::Text;
  std::string name;
};
/// Nothing for a name that is no CUDA target.
llvm::Expected<std::optional<CudaTarget>> findCudaTarget(llvm::StringRef name);

/// The CUDA form of a kernel, whose text holds one cascade on memrefs.
llvm::Expected<CudaKernel> printCudaKernel(mlir::MLIRContext &context,
                                           llvm::StringRef name,
                                           llvm::StringRef text,
                                           llvm::StringRef source,
                                           const CudaTarget &target);

/// Lets `target` run the kernels of a program of which only the plan is there,
/// one for each of its kernels. A step that is neither a kernel nor a copy nor
/// a check is refused: nothing falls back to the CPU.
llvm::Error attachCudaKernels(ExecutableSpec &spec,
                              llvm::ArrayRef<CudaKernel> kernels,
                              const CudaTarget &target);

/// One launch, by the sizes and addresses in `words` (kernel ABI).
struct CudaLaunch {
  unsigned entry = 0; ///< of the kernel's
  int64_t blocks = 0;
  int threads = 0;
  std::vector<int64_t> values; ///< of the parameters, in their order
};
/// `wanted`: an entry to take where it may run; otherwise the one chosen by the
/// length of rows and whether they are whole vectors. Nothing where there is
/// nothing to compute; fails where a grid would have no number.
llvm::Expected<std::optional<CudaLaunch>>
planCudaLaunch(const CudaKernel &kernel, const int64_t *words,
               std::optional<unsigned> wanted = std::nullopt);

/// The headers that kernels include, by name.
llvm::ArrayRef<std::pair<llvm::StringRef, llvm::StringRef>> cudaHeaders();

} // namespace refold

#endif // REFOLD_TARGET_CUDA_COMPILECUDA_H
