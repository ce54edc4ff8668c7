// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Decline.h"
#include "DeferredCertificates.h"
#include "GpuWork.h"
#include "OtherSizes.h"
#include "Refused.h"
#include "TunedSchedules.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Driver.h"
#include "refold/Schedule/FewRows.h"
#include "refold/Schedule/Schedule.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Target/CPU/CompileProgram.h"
#include "refold/Target/CPU/DetectTarget.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "refold/Transforms/FuseCascades.h"
#include <chrono>

namespace refold {

/// Writes the split into the schedule of every cascade that has a stream.
static llvm::Error splitStreams(mlir::ModuleOp module, const StreamSplit &split,
                                const TargetFacts &facts) {
  DiagnosticCollector collector(*module.getContext());
  mlir::WalkResult walked = module.walk([&](CascadeOp op) {
    std::string stream;
    for (unsigned i = 0; i < op.numIndices(); ++i)
      if (op.getRoles()[i] == CascadeOp::Stream)
        stream = op.indexName(i).str();
    if (stream.empty())
      return mlir::WalkResult::advance();
    mlir::FailureOr<Schedule> schedule = chooseSchedule(op, facts);
    if (mlir::failed(schedule))
      return mlir::WalkResult::interrupt();
    schedule->segments = split.segments;
    schedule->tile[stream] = split.tile;
    // A tile is a whole number of register tiles: the narrowest.
    schedule->registerLanes = 1;
    op.setScheduleAttr(schedule->toAttr(op.getContext()));
    return mlir::WalkResult::advance();
  });
  if (walked.wasInterrupted())
    return collector.takeErrors("a stream was not split, without reason");
  return llvm::Error::success();
}

/// What `index` will mostly run over: its own extent, or that of a dimension of
/// the program's inputs that it is a subscript of by itself.
static std::optional<int64_t> usualExtent(CascadeOp op, unsigned index,
                                          const NamedExtents &usual) {
  int64_t extent = op.getExtents()[index];
  if (!mlir::ShapedType::isDynamic(extent))
    return extent;
  for (ReadOp read : op.getBody().getOps<ReadOp>()) {
    auto input =
        mlir::dyn_cast<mlir::BlockArgument>(op.operandOf(read.getSource()));
    auto function = input ? mlir::dyn_cast<mlir::func::FuncOp>(
                                input.getOwner()->getParentOp())
                          : nullptr;
    auto dims = function ? function.getArgAttrOfType<mlir::ArrayAttr>(
                               input.getArgNumber(), "refold.dims")
                         : nullptr;
    for (auto [i, subscript] : llvm::enumerate(read.getMap().getResults())) {
      auto dim = mlir::dyn_cast<mlir::AffineDimExpr>(subscript);
      if (!dims || !dim ||
          read.getIndices()[dim.getPosition()] !=
              op.bodyBlock()->getArgument(index))
        continue;
      auto name = mlir::cast<mlir::StringAttr>(dims[i]).getValue();
      if (auto known = usual.find(name.str()); known != usual.end())
        return known->second;
    }
  }
  return std::nullopt;
}

/// Rows of open number that are usually too few to keep cores at work are split
/// as rows of known number are. Not where a sweep follows: it would read again
/// what one item has just read.
static void splitFewRows(mlir::ModuleOp module, const NamedExtents &usual,
                         const TargetFacts &facts) {
  module.walk([&](CascadeOp op) {
    uint64_t streams = op.indicesOfRole(CascadeOp::Stream),
             carried = op.indicesOfRole(CascadeOp::Carried);
    mlir::FailureOr<IndexSets> sets = IndexSets::infer(op);
    if (llvm::popcount(streams) != 1 || op.indicesOfRole(CascadeOp::Inner) ||
        mlir::failed(sets) ||
        llvm::any_of(op.getBody().getOps<StateOp>(), [&](StateOp state) {
          return sets->of(state->getResult(0)) & carried;
        }))
      return;
    unsigned stream = llvm::countr_zero(streams);
    mlir::Value along = op.bodyBlock()->getArgument(stream);
    if (llvm::any_of(op.getBody().getOps<WriteOp>(), [&](WriteOp write) {
          return llvm::is_contained(write.getIndices(), along);
        }))
      return;
    mlir::FailureOr<Schedule> schedule = chooseSchedule(op, facts);
    std::optional<int64_t> length = usualExtent(op, stream, usual);
    if (mlir::failed(schedule) || schedule->segments > 1 ||
        !schedule->lanes.empty() || length.value_or(0) < FewRows::kLong)
      return;
    int64_t items = 1;
    for (unsigned i = 0; i < op.numIndices(); ++i) {
      if (op.getRoles()[i] != CascadeOp::Row)
        continue;
      auto tile = schedule->tile.find(op.indexName(i).str());
      std::optional<int64_t> extent = usualExtent(op, i, usual);
      items *= std::min<int64_t>(
          llvm::divideCeil(extent.value_or(INT32_MAX),
                           tile == schedule->tile.end() ? 1 : tile->second),
          FewRows::kItems);
    }
    if (items >= FewRows::kItems)
      return;
    schedule->segments = FewRows::kSegments;
    op.setScheduleAttr(schedule->toAttr(op.getContext()));
  });
}

/// Gives the planned program kernels of the CUDA target, and a GPU to run it
/// unless it is emulated.
static llvm::Expected<std::shared_ptr<GpuProgram>>
addCudaKernels(mlir::MLIRContext &context, llvm::StringRef source,
               const CudaTarget &target, const CompileOptions &options,
               llvm::ArrayRef<KernelText> texts, const TargetFacts &facts,
               ExecutableSpec &spec, std::vector<double> &factorRounding) {
  std::vector<CudaKernel> kernels;
  for (const KernelText &text : texts) {
    auto kernel =
        printCudaKernel(context, text.name, text.text, source, target);
    if (!kernel)
      return kernel.takeError();
    kernels.push_back(std::move(*kernel));
  }
  chooseBySizes(spec, kernels);
  if (llvm::Error error = addProductKernels(spec, kernels, target))
    return std::move(error);
  std::shared_ptr<GpuProgram> program;
  if (target.device == CudaDevice::Emulated) {
    if (llvm::Error error = attachEmulated(spec, kernels))
      return std::move(error);
  } else {
    auto made = packageForGpu(spec, kernels, source, target);
    if (!made)
      return made.takeError();
    if (options.countsWork)
      if (llvm::Error error =
              addGpuWork(context, texts, kernels, facts, **made))
        return std::move(error);
    program = std::make_shared<GpuProgram>(std::move(*made), options.cache,
                                           options.usesTuned);
    attachGpu(spec, kernels.size(), program);
  }
  for (const CudaKernel &kernel : kernels) {
    for (double &rounding : factorRounding) // what reads what is not known here
      rounding = std::max(rounding, kernel.factorRounding);
    if (options.onCuda)
      options.onCuda(kernel);
  }
  return program;
}

/// Of a program whose fused kernels may lack room: the steps for sizes that
/// they have none for, whose cascades are left apart. Their kernels go behind
/// `kernels`.
static llvm::Error
addOtherSteps(RefusedFusions &refused, const FuseOptions &options,
              const CpuTarget &target, RefusedFusions::Check check,
              CompileProgramOptions programOptions,
              std::vector<KernelText> &kernels, ExecutableSpec &spec) {
  auto module = refused.without(options, target, check);
  if (!module)
    return module.takeError();
  if (!*module)
    return llvm::Error::success();
  for (auto function : (*module)->getOps<mlir::func::FuncOp>())
    fuseEpilogues(function, EpilogueTarget::Gpu);
  auto firstKernel = unsigned(kernels.size());
  programOptions.onKernel = [&](llvm::StringRef name, llvm::StringRef text) {
    kernels.push_back({name.str() + "_apart", text.str()});
  };
  llvm::Expected<ExecutableSpec> other =
      compileProgram(**module, target, programOptions);
  if (!other)
    return other.takeError();
  return appendOther(spec, std::move(*other), firstKernel);
}

/// A program to begin anew with.
static LoadedProgram copyOf(const LoadedProgram &program) {
  mlir::ModuleOp module = program.module.get();
  return {mlir::OwningOpRef<mlir::ModuleOp>(module.clone()),
          program.name,
          program.inputs,
          program.outputs,
          program.storage,
          program.readMs,
          program.narrowed,
          program.weightsFolder,
          program.weightFiles};
}

/// Whether code may be generated before certificates are made. Not where
/// somebody is told at once of what may be given up again.
static bool mayDefer(const CompileOptions &options) {
  return options.policy != FusePolicy::Never && !options.onFused &&
         !options.onAssembly && !options.onCuda;
}

/// `known`: certificates, where all have to be made first.
static llvm::Expected<CompiledProgram>
compile(LoadedProgram program, const CompileOptions &options,
        const std::map<std::string, std::string> *known) {
  auto begin = std::chrono::steady_clock::now();
  StageTimes times;
  times.add("read", program.readMs);
  llvm::Expected<std::optional<CudaTarget>> cuda =
      findCudaTarget(options.target);
  if (!cuda)
    return cuda.takeError();
  if (*cuda)
    (*cuda)->f8Sums = options.numerics.stability == Stability::Fastest
                          ? F8Sums::Units
                      : options.numerics.stability == Stability::MostAccurate
                          ? F8Sums::Exact
                          : F8Sums::Together;
  llvm::Expected<CpuTarget> target =
      detectTarget(*cuda ? std::string() : options.target);
  if (!target)
    return target.takeError();
  if (options.onFacts)
    options.onFacts(target->facts);
  FuseOptions fuseOptions;
  fuseOptions.policy = options.policy;
  fuseOptions.numerics = options.numerics;
  fuseOptions.cache = options.cache;
  fuseOptions.times = &times;
  DeferredCertificates certificates(&times);
  LoadedProgram original;
  fuseOptions.known = known;
  if (!known && mayDefer(options)) {
    fuseOptions.deferred = &certificates;
    original = copyOf(program);
  }
  // By the costs of a CPU, or by what a GPU has code for.
  std::optional<LosingFusions> losing;
  std::optional<RefusedFusions> refused;
  mlir::MLIRContext &context = *program.module->getContext();
  if (!*cuda)
    fuseOptions.facts = target->facts;
  if (!*cuda)
    losing.emplace(program, *target, options.usualExtents);
  else if (options.policy != FusePolicy::Never)
    refused.emplace(program);
  llvm::Expected<FuseReport> fusion = fuse(*program.module, fuseOptions);
  if (!fusion)
    return fusion.takeError();
  auto print = [&](const KernelText &kernel) {
    return printCudaKernel(context, kernel.name, kernel.text, program.name,
                           **cuda);
  };
  bool mayLackSome = false;
  auto isTaken = [&](const KernelText &kernel) {
    auto printed = print(kernel);
    mayLackSome |= printed && mayLackRoom(*printed);
    return printed.takeError();
  };
  auto isTakenAlways = [&](const KernelText &kernel) {
    auto printed = print(kernel);
    if (printed && mayLackRoom(*printed))
      return fail(ExitCode::Unsupported,
                  "'" + kernel.name + "': [" +
                      llvm::StringRef(keyOf(Reason::CudaNotTiles)) +
                      "] found sizes that are not known, expected known ones");
    return printed.takeError();
  };
  llvm::Expected<bool> isDeclined =
      losing ? losing->decline(program, fuseOptions, *fusion)
      : refused
          ? refused->leave(program, fuseOptions, *target, isTaken, *fusion)
          : false;
  if (!isDeclined)
    return isDeclined.takeError();
  if (refused && *isDeclined) // what runs has its certificates already
    certificates.entries.clear();
  bool defers = !certificates.entries.empty();
  certificates.start();
  if (!*cuda)
    splitFewRows(*program.module, options.usualExtents, target->facts);
  if (options.usesTuned && !*cuda)
    applyTuned(*program.module, options.usualExtents, *target);
  if (options.onFused)
    options.onFused(*program.module);
  if (options.split)
    if (llvm::Error error =
            splitStreams(*program.module, *options.split, target->facts))
      return std::move(error);
  for (auto function : program.module->getOps<mlir::func::FuncOp>())
    fuseEpilogues(function, *cuda ? EpilogueTarget::Gpu : EpilogueTarget::Cpu);
  CompileProgramOptions programOptions;
  programOptions.plansOnly = programOptions.keepsNames =
      programOptions.roundsProducts = cuda->has_value();
  programOptions.writesParts = !cuda->has_value();
  programOptions.onAssembly = options.onAssembly;
  // Gathered: of an attempt whose certificates fail nobody hears.
  std::vector<std::pair<package::HostKernel, std::string>> objects;
  if (options.onObject)
    programOptions.onObject = [&](package::HostKernel kernel,
                                  std::string object) {
      objects.emplace_back(std::move(kernel), std::move(object));
    };
  programOptions.cache = options.cache;
  programOptions.times = &times;
  if (defers)
    programOptions.isCancelled = [&] { return certificates.hasFailed(); };
  std::vector<KernelText> kernels;
  programOptions.onKernel = [&](llvm::StringRef name, llvm::StringRef text) {
    kernels.push_back({name.str(), text.str()});
  };
  llvm::Expected<ExecutableSpec> spec =
      compileProgram(*program.module, *target, programOptions);
  if (defers && !certificates.settle(*fusion)) {
    llvm::consumeError(spec.takeError());
    return compile(std::move(original), options, &certificates.found());
  }
  if (!spec)
    return spec.takeError();
  if (mayLackSome)
    if (llvm::Error error =
            addOtherSteps(*refused, fuseOptions, *target, isTakenAlways,
                          programOptions, kernels, *spec))
      return std::move(error);
  for (auto &[kernel, object] : objects)
    options.onObject(std::move(kernel), std::move(object));
  std::vector<double> factorRounding = fusion->factorRounding;
  std::shared_ptr<GpuProgram> gpu;
  if (*cuda) {
    auto added = addCudaKernels(context, program.name, **cuda, options, kernels,
                                target->facts, *spec, factorRounding);
    if (!added)
      return added.takeError();
    gpu = std::move(*added);
  }
  if (program.storage)
    spec->owners.push_back(program.storage);
  if (options.onReport)
    options.onReport(*fusion);
  Executable executable(std::move(*spec));
  std::chrono::duration<double, std::milli> spent =
      std::chrono::steady_clock::now() - begin;
  return CompiledProgram{std::move(program.name),
                         std::move(program.inputs),
                         std::move(program.outputs),
                         std::move(executable),
                         std::move(*fusion),
                         spent.count(),
                         std::move(kernels),
                         times.list(),
                         target->facts,
                         std::move(factorRounding),
                         std::move(gpu)};
}

llvm::Expected<CompiledProgram> compile(LoadedProgram program,
                                        const CompileOptions &options) {
  return compile(std::move(program), options, /*known=*/nullptr);
}

llvm::Expected<CompiledProgram> compileFile(mlir::MLIRContext &context,
                                            llvm::StringRef path,
                                            const LoadOptions &loadOptions,
                                            const CompileOptions &options) {
  llvm::Expected<LoadedProgram> program = load(context, path, loadOptions);
  if (!program)
    return program.takeError();
  return compile(std::move(*program), options);
}

} // namespace refold
