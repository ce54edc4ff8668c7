// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelCache.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/Parser/Parser.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Support/Error.h"
#include <atomic>
#include <thread>

using namespace refold;

namespace {
/// What is made of a source.
struct Result {
  std::shared_ptr<LoadedCode> code;
  std::string assembly, object;
  LoweredKernel lowered;
  llvm::Error error = llvm::Error::success();
};
} // namespace

static constexpr llvm::StringLiteral kName = "kernel";

/// Parses and lowers the cascade of a source.
static llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
lowerSource(mlir::MLIRContext &context, const KernelSource &source,
            const CpuTarget &target, StageTimes *times, LoweredKernel &kernel) {
  std::string messages;
  mlir::ScopedDiagnosticHandler handler(
      &context, [&](mlir::Diagnostic &diagnostic) {
        if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error)
          messages += (messages.empty() ? "" : "; ") + diagnostic.str();
        return mlir::success();
      });
  mlir::OwningOpRef<mlir::ModuleOp> module;
  {
    StageTimer timer(times, "kernel: parse");
    module = mlir::parseSourceString<mlir::ModuleOp>(source.text, &context);
  }
  if (!module)
    return fail(ExitCode::Internal,
                "kernel '" + source.name + "' does not parse: " + messages);
  StageTimer timer(times, "kernel: walk");
  auto function = *module->getOps<mlir::func::FuncOp>().begin();
  function.setSymName(kName);
  mlir::FailureOr<LoweredKernel> lowered = lowerCascade(function, target.facts);
  if (mlir::failed(lowered))
    return fail(ExitCode::Unsupported,
                "kernel '" + source.name + "': " + messages);
  kernel = std::move(*lowered);
  return module;
}

static llvm::Expected<std::shared_ptr<LoadedCode>>
loadObject(std::unique_ptr<llvm::MemoryBuffer> object, StageTimes *times) {
  StageTimer timer(times, "kernel: load");
  std::vector<std::unique_ptr<llvm::MemoryBuffer>> objects;
  objects.push_back(std::move(object));
  return LoadedCode::load(std::move(objects));
}

/// Whether the cache has the kernel. What cannot be loaded it does not have.
static bool findKernel(const KernelSource &source, const CpuTarget &target,
                       const CompileKernelsOptions &options, Result &result) {
  std::unique_ptr<llvm::MemoryBuffer> value;
  {
    StageTimer timer(options.times, "kernel: look up");
    std::string key = kernelKey(source, target);
    value = key.empty() ? nullptr : options.cache->get(key);
  }
  std::optional<StoredKernel> stored =
      value ? unpackKernel(value->getBuffer()) : std::nullopt;
  if (!stored)
    return false;
  if (options.onObject)
    result.object = stored->object->getBuffer().str();
  auto code = loadObject(std::move(stored->object), options.times);
  if (!code) {
    llvm::consumeError(code.takeError());
    return false;
  }
  result.code = *code;
  result.lowered = std::move(stored->lowered);
  return true;
}

static void keepKernel(const KernelSource &source, const CpuTarget &target,
                       const CompileKernelsOptions &options,
                       const Result &result, llvm::StringRef object) {
  StageTimer timer(options.times, "kernel: keep");
  if (std::string key = kernelKey(source, target); !key.empty())
    options.cache->put(key, packKernel(result.lowered, object));
}

static unsigned threadsOf(const CompileKernelsOptions &options) {
  return options.threads ? options.threads
                         : std::max(1u, std::thread::hardware_concurrency());
}

static llvm::Error compileOne(mlir::MLIRContext &context,
                              const KernelSource &source,
                              const CpuTarget &target,
                              const CompileKernelsOptions &options,
                              Result &result) {
  auto module =
      lowerSource(context, source, target, options.times, result.lowered);
  if (!module)
    return module.takeError();
  ObjectOptions objectOptions;
  if (options.onAssembly) {
    mlir::OwningOpRef<mlir::ModuleOp> copy = (*module)->clone();
    objectOptions.asAssembly = true;
    auto text = emitObject(*copy, target, objectOptions);
    if (!text)
      return text.takeError();
    result.assembly = (*text)->getBuffer().str();
    objectOptions.asAssembly = false;
  }
  objectOptions.times = options.times;
  objectOptions.threads = threadsOf(options);
  objectOptions.isCancelled = options.isCancelled;
  auto object = emitObject(**module, target, objectOptions);
  if (!object)
    return object.takeError();
  if (options.cache)
    keepKernel(source, target, options, result, (*object)->getBuffer());
  if (options.onObject)
    result.object = (*object)->getBuffer().str();
  auto code = loadObject(std::move(*object), options.times);
  if (!code)
    return code.takeError();
  result.code = *code;
  return llvm::Error::success();
}

/// Compiles the sources `wanted`, each into its own result, whoever does it.
static void compileAll(llvm::ArrayRef<KernelSource> sources,
                       llvm::ArrayRef<size_t> wanted, const CpuTarget &target,
                       const CompileKernelsOptions &options,
                       std::vector<Result> &results) {
  unsigned threads = std::min<unsigned>(threadsOf(options), wanted.size());
  std::atomic<size_t> next{0};
  auto work = [&] {
    mlir::DialectRegistry registry;
    registerCpuDialects(registry);
    registry.insert<RefoldDialect>();
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    context.printOpOnDiagnostic(false);
    for (size_t at; (at = next++) < wanted.size();) {
      Result &result = results[wanted[at]];
      llvm::Error error =
          compileOne(context, sources[wanted[at]], target, options, result);
      llvm::consumeError(std::move(result.error));
      result.error = std::move(error);
    }
  };
  std::vector<std::thread> helpers;
  try {
    for (unsigned i = 1; i < threads; ++i)
      helpers.emplace_back(work);
  } catch (const std::system_error &) {
    // The machine gives no more threads: those there are do the work.
  }
  if (threads)
    work();
  for (std::thread &helper : helpers)
    helper.join();
}

static llvm::Expected<Kernel> kernelOf(const KernelSource &source,
                                       const Result &result) {
  Kernel kernel;
  kernel.name = source.name;
  auto shape = result.code->find((kName + "_shape").str());
  if (!shape)
    return shape.takeError();
  kernel.shape = *shape;
  kernel.packedOperands.assign(result.lowered.packedOperands.begin(),
                               result.lowered.packedOperands.end());
  kernel.sharesOnlyPanels = result.lowered.sharesOnlyPanels;
  for (unsigned phase = 0; phase < result.lowered.phases; ++phase) {
    auto function =
        result.code->find((kName + "_phase" + llvm::Twine(phase)).str());
    if (!function)
      return function.takeError();
    kernel.phases.push_back(*function);
  }
  return kernel;
}

/// As packages hold it, but for the object.
static package::HostKernel describeForPackage(const KernelSource &source,
                                              const LoweredKernel &lowered) {
  package::HostKernel kernel;
  kernel.name = source.name;
  kernel.phases = lowered.phases;
  kernel.packedOperands.assign(lowered.packedOperands.begin(),
                               lowered.packedOperands.end());
  kernel.sharesOnlyPanels = lowered.sharesOnlyPanels;
  return kernel;
}

llvm::Expected<CompiledKernels>
refold::compileKernels(llvm::ArrayRef<KernelSource> sources,
                       const CpuTarget &target,
                       const CompileKernelsOptions &options) {
  std::vector<Result> results(sources.size());
  std::vector<size_t> wanted;
  for (size_t i = 0; i < sources.size(); ++i)
    if (!options.cache || options.onAssembly ||
        !findKernel(sources[i], target, options, results[i]))
      wanted.push_back(i);
  compileAll(sources, wanted, target, options, results);
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
  compiled.cached = sources.size() - wanted.size();
  for (auto [source, result] : llvm::zip_equal(sources, results)) {
    if (options.onAssembly)
      options.onAssembly(source.name, result.assembly);
    if (options.onObject)
      options.onObject(describeForPackage(source, result.lowered),
                       std::move(result.object));
    llvm::Expected<Kernel> kernel = kernelOf(source, result);
    if (!kernel)
      return kernel.takeError();
    compiled.kernels.push_back(std::move(*kernel));
    compiled.code.push_back(std::move(result.code));
  }
  return compiled;
}
