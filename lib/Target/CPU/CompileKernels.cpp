// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/ObjectCode.h"
#include <atomic>
#include <thread>

using namespace refold;

namespace {
/// What a worker makes of one source.
struct Result {
  std::unique_ptr<llvm::MemoryBuffer> object;
  std::string assembly;
  unsigned phases = 0;
  llvm::Error error = llvm::Error::success();
};
} // namespace

/// Parses and lowers the cascade of a source.
static llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
lowerSource(mlir::MLIRContext &context, const KernelSource &source,
            const CpuTarget &target, unsigned &phases) {
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          messages += (messages.empty() ? "" : "; ") + diagnostic.str();
        return mlir::success();
      });
  auto module = mlir::parseSourceString<mlir::ModuleOp>(source.text, &context);
  if (!module)
    return fail(ExitCode::Internal,
                "kernel '" + source.name + "' does not parse: " + messages);
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  function.setSymName(source.name);
  mlir::FailureOr<LoweredKernel> lowered = lowerCascade(function, target.facts);
  if (mlir::failed(lowered))
    return fail(ExitCode::Unsupported,
                "kernel '" + source.name + "': " + messages);
  phases = lowered->phases;
  return module;
}

static llvm::Error compileOne(mlir::MLIRContext &context,
                              const KernelSource &source,
                              const CpuTarget &target, bool wantsAssembly,
                              Result &result) {
  auto module = lowerSource(context, source, target, result.phases);
  if (!module)
    return module.takeError();
  if (wantsAssembly) {
    mlir::OwningOpRef<mlir::ModuleOp> copy = (*module)->clone();
    ObjectOptions options;
    options.asAssembly = true;
    auto text = emitObject(*copy, target, options);
    if (!text)
      return text.takeError();
    result.assembly = (*text)->getBuffer().str();
  }
  auto object = emitObject(**module, target);
  if (!object)
    return object.takeError();
  result.object = std::move(*object);
  return llvm::Error::success();
}

/// Every result in the order of the sources, whoever makes it.
static void compileAll(llvm::ArrayRef<KernelSource> sources,
                       const CpuTarget &target, unsigned threads,
                       bool wantsAssembly, std::vector<Result> &results) {
  if (!threads)
    threads = std::max(1u, std::thread::hardware_concurrency());
  threads = std::min<unsigned>(threads, sources.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    mlir::DialectRegistry registry;
    registerCpuDialects(registry);
    registry.insert<RefoldDialect>();
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    context.printOpOnDiagnostic(false);
    for (size_t at; (at = next++) < sources.size();) {
      llvm::Error error =
          compileOne(context, sources[at], target, wantsAssembly, results[at]);
      llvm::consumeError(std::move(results[at].error));
      results[at].error = std::move(error);
    }
  };
  std::vector<std::thread> helpers;
  for (unsigned i = 1; i < threads; ++i)
    helpers.emplace_back(work);
  work();
  for (std::thread &helper : helpers)
    helper.join();
}

llvm::Expected<CompiledKernels> refold::compileKernels(
    llvm::ArrayRef<KernelSource> sources, const CpuTarget &target,
    unsigned threads,
    const std::function<void(llvm::StringRef, llvm::StringRef)> &onAssembly) {
  std::vector<Result> results(sources.size());
  compileAll(sources, target, threads, bool(onAssembly), results);
  llvm::Error error = llvm::Error::success();
  for (Result &result : results) {
    if (error)
      llvm::consumeError(std::move(result.error)); // the first one is enough
    else
      error = std::move(result.error);
  }
  if (error)
    return std::move(error);

  CompiledKernels compiled;
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects;
  for (auto [source, result] : llvm::zip_equal(sources, results)) {
    if (onAssembly)
      onAssembly(source.name, result.assembly);
    objects.push_back(std::move(result.object));
  }
  auto code = LoadedCode::load(std::move(objects));
  if (!code)
    return code.takeError();
  compiled.code = *code;
  for (auto [source, result] : llvm::zip_equal(sources, results)) {
    Kernel kernel;
    kernel.name = source.name;
    auto shape = compiled.code->find(source.name + "_shape");
    if (!shape)
      return shape.takeError();
    kernel.shape = *shape;
    for (unsigned phase = 0; phase < result.phases; ++phase) {
      auto function =
          compiled.code->find(source.name + "_phase" + std::to_string(phase));
      if (!function)
        return function.takeError();
      kernel.phases.push_back(*function);
    }
    compiled.kernels.push_back(std::move(kernel));
  }
  return compiled;
}
