// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Decline.h"
#include "TunedSchedules.h"
#include "refold/Driver/Driver.h"
#include "refold/Schedule/Schedule.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/CompileProgram.h"
#include "refold/Target/CPU/DetectTarget.h"
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

llvm::Expected<CompiledProgram> compile(LoadedProgram program,
                                        const CompileOptions &options) {
  auto begin = std::chrono::steady_clock::now();
  StageTimes times;
  times.add("read", program.readMs);
  llvm::Expected<CpuTarget> target = detectTarget(options.target);
  if (!target)
    return target.takeError();
  FuseOptions fuseOptions;
  fuseOptions.policy = options.policy;
  fuseOptions.numerics = options.numerics;
  fuseOptions.cache = options.cache;
  fuseOptions.times = &times;
  LosingFusions losing(program, *target, options.usualExtents);
  llvm::Expected<FuseReport> fusion = fuse(*program.module, fuseOptions);
  if (!fusion)
    return fusion.takeError();
  if (llvm::Error error = losing.decline(program, fuseOptions, *fusion))
    return std::move(error);
  if (options.usesTuned)
    applyTuned(*program.module, options.usualExtents, *target);
  if (options.onFused)
    options.onFused(*program.module);
  if (options.split)
    if (llvm::Error error =
            splitStreams(*program.module, *options.split, target->facts))
      return std::move(error);
  for (auto function : program.module->getOps<mlir::func::FuncOp>())
    fuseEpilogues(function);
  CompileProgramOptions programOptions;
  programOptions.onAssembly = options.onAssembly;
  programOptions.cache = options.cache;
  programOptions.times = &times;
  std::vector<KernelText> kernels;
  programOptions.onKernel = [&](llvm::StringRef name, llvm::StringRef text) {
    kernels.push_back({name.str(), text.str()});
  };
  llvm::Expected<ExecutableSpec> spec =
      compileProgram(*program.module, *target, programOptions);
  if (!spec)
    return spec.takeError();
  if (program.storage)
    spec->owners.push_back(program.storage);
  Executable executable(std::move(*spec));
  std::chrono::duration<double, std::milli> spent =
      std::chrono::steady_clock::now() - begin;
  return CompiledProgram{std::move(program.name),    std::move(program.inputs),
                         std::move(program.outputs), std::move(executable),
                         std::move(*fusion),         spent.count(),
                         std::move(kernels),         times.list()};
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
