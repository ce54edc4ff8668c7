// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CUDA/CompileCuda.h"

#include "Machines.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"

using namespace refold;

llvm::Expected<std::optional<CudaTarget>>
refold::findCudaTarget(llvm::StringRef name) {
  if (!name.starts_with("cuda"))
    return std::nullopt;
  if (name == "cuda-emulated")
    return CudaTarget{CudaDevice::Emulated, name.str()};
  if (name == "cuda-sm80" || name == "cuda-sm90")
    return CudaTarget{CudaDevice::Text, name.str()};
  return fail(ExitCode::Usage,
              "found the target '" + name +
                  "', expected cuda-emulated, cuda-sm80 or cuda-sm90");
}

llvm::Expected<CudaKernel> refold::printCudaKernel(mlir::MLIRContext &context,
                                                   llvm::StringRef name,
                                                   llvm::StringRef text,
                                                   llvm::StringRef source,
                                                   const CudaTarget &target) {
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          messages += (messages.empty() ? "" : "; ") + diagnostic.str();
        return mlir::success();
      });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  if (!module)
    return fail(ExitCode::Internal, "'" + name + "': " + messages);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  CudaOptions options;
  options.name = name.str();
  options.source = source.str();
  options.target = target.name;
  mlir::FailureOr<CudaKernel> kernel = printCascadeAsCuda(function, options);
  if (mlir::failed(kernel))
    return fail(ExitCode::Unsupported, "'" + name + "': " + messages);
  return std::move(*kernel);
}

/// What the CUDA target leaves to nobody.
static llvm::Error checkSteps(const ExecutableSpec &spec) {
  for (const Step &step : spec.steps)
    if (std::holds_alternative<ProductStep>(step.what))
      return fail(ExitCode::Unsupported,
                  "'" + step.name + "': [" +
                      llvm::StringRef(keyOf(Reason::CudaHostStep)) +
                      "] found a matrix product outside a cascade; expected "
                      "kernels and copies");
  return llvm::Error::success();
}

/// For a target that is only looked at.
static KernelLauncher makeText(const CudaTarget &target) {
  return [name = target.name](const int64_t *) {
    return fail(ExitCode::Usage, "found the target '" + name +
                                     "', which is text; expected "
                                     "cuda-emulated to run it");
  };
}

llvm::Error refold::attachCudaKernels(ExecutableSpec &spec,
                                      llvm::ArrayRef<CudaKernel> kernels,
                                      const CudaTarget &target) {
  if (llvm::Error error = checkSteps(spec))
    return error;
  for (const CudaKernel &kernel : kernels) {
    llvm::Expected<KernelLauncher> launcher =
        target.device == CudaDevice::Emulated
            ? makeEmulated(kernel)
            : llvm::Expected<KernelLauncher>(makeText(target));
    if (!launcher)
      return launcher.takeError();
    Kernel entry;
    entry.name = kernel.name;
    entry.launch = std::move(*launcher);
    spec.kernels.push_back(std::move(entry));
  }
  return llvm::Error::success();
}
