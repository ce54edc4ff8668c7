// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TARGET_CUDA_COMPILECUDA_H
#define REFOLD_TARGET_CUDA_COMPILECUDA_H

#include "mlir/IR/MLIRContext.h"
#include "refold/Conversion/CascadeToCUDA.h"
#include "refold/Package/Cuda.h"
#include "refold/Runtime/ExecutableSpec.h"
#include "llvm/Support/Error.h"
#include <mutex>
#include <optional>

namespace refold {

class DiskCache;

/// What runs the kernels.
enum class CudaDevice : uint8_t {
  Gpu,     ///< the first GPU of the machine, by NVRTC and the driver
  Emulated ///< the host, compiled by a C++ compiler of the machine
};

struct CudaTarget {
  CudaDevice device = CudaDevice::Gpu;
  std::string name; ///< "cuda-sm80", "cuda-sm90": the text's; "cuda-emulated"
  F8Sums f8Sums = F8Sums::Together;
};
/// Nothing for a name that is no CUDA target. "cuda" is the one of the GPU that
/// is there.
llvm::Expected<std::optional<CudaTarget>> findCudaTarget(llvm::StringRef name);

/// The CUDA form of a kernel, whose text holds one cascade on memrefs.
llvm::Expected<CudaKernel> printCudaKernel(mlir::MLIRContext &context,
                                           llvm::StringRef name,
                                           llvm::StringRef text,
                                           llvm::StringRef source,
                                           const CudaTarget &target);

/// Makes kernels of the products that are steps of their own: appended to
/// `kernels`, one for each form that the program has.
llvm::Error addProductKernels(ExecutableSpec &spec,
                              std::vector<CudaKernel> &kernels,
                              const CudaTarget &target);

/// Lets the emulator run the kernels of a program of which only the plan is
/// there, one for each of its kernels. A step that is neither a kernel nor a
/// copy nor a check is refused: nothing falls back to the CPU.
llvm::Error attachEmulated(ExecutableSpec &spec,
                           llvm::ArrayRef<CudaKernel> kernels);

/// The same program for a GPU, as text: without machine code, which
/// `makeCubins` adds. Constants stay where the spec has them.
llvm::Expected<std::shared_ptr<package::Package>>
packageForGpu(const ExecutableSpec &spec, llvm::ArrayRef<CudaKernel> kernels,
              llvm::StringRef name, const CudaTarget &target);

/// Machine code of one text. Looked for in the cache, if there is one, and kept
/// there and in the process.
llvm::Expected<std::string> makeCubin(llvm::StringRef name,
                                      const std::string &text,
                                      const std::string &architecture,
                                      const DiskCache *cache);
/// Of all kernels that the package holds; it then runs where no compiler is.
llvm::Error makeCubins(package::Package &package,
                       const std::string &architecture, const DiskCache *cache);

/// Runs a package on the first GPU of the machine. The GPU is looked for, and
/// code is made for it, when it is first needed.
class GpuProgram : public RemoteProgram {
public:
  /// The cache, if any, outlives the program. `usesTuned`: launches are made by
  /// what `tune` has found before, which the cache keeps for the GPU and its
  /// driver.
  GpuProgram(std::shared_ptr<const package::Package> package,
             const DiskCache *cache, bool usesTuned = false)
      : package(std::move(package)), cache(cache), usesTuned(usesTuned) {}

  llvm::Error run(llvm::ArrayRef<Tensor> inputs,
                  llvm::ArrayRef<const void *> from,
                  llvm::ArrayRef<void *> to) override;
  /// Alone until the next call of `run`.
  llvm::Expected<package::CudaProgram *> open();
  const package::Package &described() const { return *package; }
  /// `CudaProgram::tune` on arrays of the GPU; what it finds is kept in the
  /// cache.
  llvm::Expected<std::vector<package::TunedLaunch>>
  tune(const package::RunPlan &plan,
       std::span<const package::DeviceAddress> inputs,
       std::span<const package::DeviceAddress> outputs,
       const package::TuneOptions &options);
  /// The same on arrays of the host.
  llvm::Expected<std::vector<package::TunedLaunch>>
  tune(llvm::ArrayRef<Tensor> inputs, const package::TuneOptions &options);

private:
  std::shared_ptr<const package::Package> package;
  const DiskCache *cache;
  bool usesTuned;
  std::mutex mutex;
  std::unique_ptr<package::CudaProgram> program;
};

/// Lets a GPU run all of a program of which only the plan is there.
void attachGpu(ExecutableSpec &spec, size_t numKernels,
               std::shared_ptr<GpuProgram> program);

/// How a kernel is launched, in the terms of packages. An entry that is
/// `wanted` is taken wherever it may run.
package::DeviceKernel
describeCudaLaunch(const CudaKernel &kernel,
                   std::optional<unsigned> wanted = std::nullopt);

/// One launch, by the sizes and addresses in `words` (kernel ABI).
struct CudaLaunch {
  unsigned entry = 0; ///< of the kernel's
  int64_t blocks = 0;
  int threads = 0;
  int64_t sharedBytes = 0;              ///< beside what the kernel names itself
  std::vector<int64_t> values;          ///< of the parameters, in their order
  std::vector<package::MapValues> maps; ///< that the entry has behind them
};
/// `wanted`: an entry to take where it may run; otherwise the one chosen by the
/// length of rows and whether they are whole vectors. Nothing where there is
/// nothing to compute; fails where a grid would have no number. What asks for
/// blocks a multiprocessor gets them for two.
/// `shared`: where the workspace and the tickets are.
llvm::Expected<std::optional<CudaLaunch>>
planCudaLaunch(const CudaKernel &kernel, const int64_t *words,
               std::optional<unsigned> wanted = std::nullopt,
               std::pair<int64_t, int64_t> shared = {0, 0});
/// Bytes of the workspace that calls with such sizes need, whatever their
/// addresses.
int64_t cudaWorkspaceBytes(const CudaKernel &kernel, const int64_t *words,
                           std::optional<unsigned> wanted = std::nullopt);

/// Whether there are sizes that no entry has room for.
bool mayLackRoom(const CudaKernel &kernel);
/// Where it has room for them, 1 or 0, as sizes of the program: of arrays that
/// begin at multiples of 256.
SizeExpr hasRoom(const CudaKernel &kernel, const KernelStep &step);

/// The headers that kernels include, by name.
llvm::ArrayRef<std::pair<llvm::StringRef, llvm::StringRef>> cudaHeaders();

} // namespace refold

#endif // REFOLD_TARGET_CUDA_COMPILECUDA_H
