// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Target/CUDA/CompileCuda.h"

#include "Machines.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include <cstring>
#include <new>

using namespace refold;

llvm::Expected<std::optional<CudaTarget>>
refold::findCudaTarget(llvm::StringRef name) {
  if (!name.starts_with("cuda"))
    return std::nullopt;
  if (name == "cuda-emulated" || name == "cuda-emulated-sm90")
    return CudaTarget{CudaDevice::Emulated, name.str()};
  if (name == "cuda-sm80" || name == "cuda-sm90")
    return CudaTarget{CudaDevice::Gpu, name.str()};
  if (name == "cuda") {
    package::Outcome<package::GpuFacts> gpu = package::findGpu();
    if (!gpu)
      return fail(gpu.error().code, gpu.error().message);
    return CudaTarget{CudaDevice::Gpu, gpu->textTarget()};
  }
  return fail(
      ExitCode::Usage,
      "found the target '" + name +
          "', expected cuda, cuda-emulated, cuda-emulated-sm90, cuda-sm80 "
          "or cuda-sm90");
}

/// Whether a kernel was refused, which the messages then say with the key of a
/// reason. Any other failure is ours, and so are kernels against the rules of
/// the tile level.
static bool isRefusal(llvm::StringRef messages) {
  return llvm::any_of(allReasons(), [&](const ReasonInfo &info) {
    return info.key != keyOf(Reason::CudaTileFault) &&
           messages.contains(("[" + llvm::Twine(info.key) + "]").str());
  });
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
  options.f8Sums = target.f8Sums;
  mlir::FailureOr<CudaKernel> kernel = printCascadeAsCuda(function, options);
  if (mlir::failed(kernel))
    return fail(
        isRefusal(messages) ? ExitCode::Unsupported : ExitCode::Internal,
        "'" + name + "': " +
            (messages.empty() ? "was not printed, without reason" : messages));
  return std::move(*kernel);
}

/// What stands where a kernel is run with its program or not at all.
static KernelLauncher makeRemote() {
  return [](const int64_t *) {
    return fail(ExitCode::Internal, "a kernel of a GPU was called alone");
  };
}

/// Constants begin anywhere in the file that they are mapped from; a GPU has
/// them where arrays begin.
static void alignConstants(ExecutableSpec &spec) {
  constexpr size_t kAlignment = 256;
  for (BufferSpec &buffer : spec.buffers) {
    if (buffer.kind != BufferKind::Constant ||
        reinterpret_cast<uintptr_t>(buffer.data) % kAlignment == 0)
      continue;
    size_t bytes = size_t(buffer.bytes.constant().value_or(0));
    std::shared_ptr<void> copy(
        ::operator new(bytes, std::align_val_t(kAlignment)), [](void *memory) {
          ::operator delete(memory, std::align_val_t(kAlignment));
        });
    if (bytes)
      std::memcpy(copy.get(), buffer.data, bytes);
    buffer.data = copy.get();
    spec.owners.push_back(std::move(copy));
  }
}

llvm::Error refold::attachEmulated(ExecutableSpec &spec,
                                   llvm::ArrayRef<CudaKernel> kernels) {
  alignConstants(spec);
  for (const CudaKernel &kernel : kernels) {
    llvm::Expected<KernelLauncher> launcher = makeEmulated(kernel);
    if (!launcher)
      return launcher.takeError();
    Kernel entry;
    entry.name = kernel.name;
    entry.launch = std::move(*launcher);
    spec.kernels.push_back(std::move(entry));
  }
  return llvm::Error::success();
}

llvm::Expected<std::shared_ptr<package::Package>>
refold::packageForGpu(const ExecutableSpec &spec,
                      llvm::ArrayRef<CudaKernel> kernels, llvm::StringRef name,
                      const CudaTarget &target) {
  auto made = std::make_shared<package::Package>();
  made->name = name.str();
  made->target = package::PackageTarget::Cuda;
  made->textTarget = target.name;
  made->program = spec;
  for (const auto &[header, text] : cudaHeaders())
    if (!header.contains("emulated"))
      made->headers.emplace_back(header, text);
  for (const CudaKernel &kernel : kernels)
    made->deviceKernels.push_back(describeCudaLaunch(kernel));
  bool copies = llvm::any_of(spec.steps, [](const Step &step) {
    return std::holds_alternative<CopyStep>(step.what);
  });
  if (copies) {
    made->copyKernel = int64_t(made->deviceKernels.size());
    made->deviceKernels.push_back(makeCopyKernel());
  }
  bool checks = llvm::any_of(spec.steps, [](const Step &step) {
    auto *check = std::get_if<AssertStep>(&step.what);
    return check && std::holds_alternative<ViewSpec>(check->condition);
  });
  if (checks) {
    made->checkKernel = int64_t(made->deviceKernels.size());
    made->deviceKernels.push_back(makeCheckKernel());
  }
  return made;
}

void refold::attachGpu(ExecutableSpec &spec, size_t numKernels,
                       std::shared_ptr<GpuProgram> program) {
  for (size_t i = 0; i < numKernels; ++i) {
    Kernel entry;
    entry.name = program->described().deviceKernels[i].name;
    entry.launch = makeRemote();
    spec.kernels.push_back(std::move(entry));
  }
  spec.remote = std::move(program);
}
