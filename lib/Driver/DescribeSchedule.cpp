// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelIR.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Driver/Work.h"
#include "refold/Schedule/Schedule.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "refold/Target/CPU/DetectTarget.h"

namespace refold {

/// Whether a result is written in another sweep, after the states are known.
static bool hasSecondSweep(const KernelIR &kernel) {
  CascadeOp cascade = kernel.cascade;
  uint64_t stream = cascade.indicesOfRole(CascadeOp::Stream);
  return llvm::any_of(cascade.getBody().getOps<WriteOp>(), [&](WriteOp write) {
    uint64_t set = kernel.sets.of(write.getValue());
    for (mlir::Value index : write.getIndices())
      set |= kernel.sets.of(index);
    return (set & stream) != 0;
  });
}

static llvm::json::Array linesOf(llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> lines;
  text.rtrim('\n').split(lines, '\n');
  llvm::json::Array result;
  for (llvm::StringRef line : lines)
    result.push_back(line.str());
  return result;
}

/// Where the lanes of a register lie.
static std::string lanesOf(const Schedule &schedule, CascadeOp cascade) {
  if (!schedule.lanes.empty())
    return schedule.lanes;
  if (schedule.innerLanes)
    return "contracted";
  std::string stream;
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (cascade.getRoles()[i] == CascadeOp::Stream)
      stream = cascade.indexName(i).str();
  return stream;
}

/// What the user calls the buffer: a port, or the step that computes it.
static std::string nameOfBuffer(const ExecutableSpec &spec, unsigned number) {
  const BufferSpec &buffer = spec.buffers[number];
  if (buffer.kind == BufferKind::Input)
    return spec.inputs[buffer.port].name;
  if (buffer.kind == BufferKind::Output)
    return spec.outputs[buffer.port].name;
  for (const Step &step : spec.steps) {
    if (auto *product = std::get_if<ProductStep>(&step.what);
        product && product->result.buffer == number)
      return step.name;
    auto *kernel = std::get_if<KernelStep>(&step.what);
    for (size_t i = kernel ? kernel->numInputs : 0;
         kernel && i < kernel->operands.size(); ++i)
      if (auto *view = std::get_if<ViewSpec>(&kernel->operands[i]);
          view && view->buffer == number)
        return step.name;
  }
  return "constant " + std::to_string(number);
}

/// Equal kernels are one, with nameless operands: those of this step.
static void nameOperands(CascadeOp cascade, const ExecutableSpec &spec,
                         const KernelStep &step) {
  mlir::Builder builder(cascade.getContext());
  llvm::SmallVector<mlir::Attribute> names;
  for (auto [i, operand] : llvm::enumerate(step.operands)) {
    auto *view = std::get_if<ViewSpec>(&operand);
    names.push_back(builder.getStringAttr(
        view ? nameOfBuffer(spec, view->buffer) : "a" + std::to_string(i)));
  }
  cascade.setArgNamesAttr(builder.getArrayAttr(names));
}

llvm::Expected<llvm::json::Object>
describeSchedule(mlir::MLIRContext &context, const CompiledProgram &program,
                 size_t step, llvm::StringRef target) {
  const ExecutableSpec &spec = program.executable.spec();
  auto *kernelStep = std::get_if<KernelStep>(&spec.steps[step].what);
  if (!kernelStep)
    return fail(ExitCode::Internal, "the step runs no kernel");
  const KernelText &kernel = program.kernels[kernelStep->kernel];
  llvm::Expected<CpuTarget> machine = detectTarget(target);
  if (!machine)
    return machine.takeError();
  llvm::Expected<KernelIR> parsed = parseKernel(context, kernel);
  if (!parsed)
    return parsed.takeError();
  nameOperands(parsed->cascade, spec, *kernelStep);
  DiagnosticCollector collector(context);
  mlir::FailureOr<Schedule> schedule =
      chooseSchedule(parsed->cascade, machine->facts);
  mlir::FailureOr<std::string> plan =
      describePlan(parsed->cascade, machine->facts);
  if (mlir::failed(schedule) || mlir::failed(plan))
    return collector.takeErrors("a kernel has no schedule, without reason");
  llvm::json::Object tile;
  for (const auto &[name, size] : schedule->tile)
    tile[name] = size;
  return llvm::json::Object{{"kernel", kernel.name},
                            {"target", machine->name()},
                            {"tile", std::move(tile)},
                            {"register_rows", schedule->registerRows},
                            {"register_lanes", schedule->registerLanes},
                            {"lanes", lanesOf(*schedule, parsed->cascade)},
                            {"segments", schedule->segments},
                            {"packed", llvm::json::Array(schedule->pack)},
                            {"stream_bytes", schedule->streamBytes},
                            {"panel_bytes", schedule->panelBytes},
                            {"prefetch", schedule->prefetch},
                            {"passes", parsed->sets.numPasses},
                            {"second_sweep", hasSecondSweep(*parsed)},
                            {"plan", linesOf(*plan)}};
}

} // namespace refold
