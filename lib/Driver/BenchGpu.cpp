// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/BenchGpu.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Compare.h"
#include "refold/Runtime/ConstantSteps.h"
#include "refold/Support/Error.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/Support/Format.h"

namespace refold {

namespace {

using package::CudaProgram;
using package::DeviceAddress;
using package::RunPlan;

/// Elements of all inputs that are compared with double.
constexpr int64_t kCheckedElements = int64_t(1) << 20;
/// Bytes at either end of an output that are compared at full size.
constexpr int64_t kComparedBytes = int64_t(1) << 20;
/// Allowed there between fused and unfused, beside a step of the type.
constexpr double kMaxDifference = 2e-2;

llvm::Error asError(const package::Problem &problem) {
  return fail(problem.code, problem.message);
}

llvm::Error mismatch(const Port &port, double error, double bound,
                     llvm::StringRef against) {
  std::string text;
  llvm::raw_string_ostream(text)
      << "output '" << port.name << "': found an error of "
      << llvm::format("%.2e", error) << " against " << against
      << ", expected at most " << llvm::format("%.2e", bound);
  return fail(ExitCode::Mismatch, text);
}

/// One form of the program with its arrays on the GPU.
struct Form {
  CompiledProgram program;
  CudaProgram *gpu = nullptr;
  std::shared_ptr<const RunPlan> plan;
  std::vector<DeviceAddress> places;

  std::span<const DeviceAddress> inputs() const {
    return std::span(places).first(program.inputs.size());
  }
  std::span<const DeviceAddress> outputs() const {
    return std::span(places).subspan(program.inputs.size());
  }
  package::Problem enqueue(package::DeviceStream stream) {
    return gpu->enqueue(*plan, inputs(), outputs(), stream);
  }
  llvm::Error place(const std::vector<std::vector<int64_t>> &shapes,
                    llvm::ArrayRef<Tensor> patterns);
  llvm::Error runOnce();
};

class GpuBenchmark {
public:
  GpuBenchmark(const GpuBenchOptions &options, LoadedProgram &reference,
               Form &fused, std::optional<Form> &unfused)
      : options(options), reference(reference), fused(fused), unfused(unfused),
        function(*reference.module->getOps<mlir::func::FuncOp>().begin()) {}
  llvm::Expected<GpuBenchResult> run();

private:
  llvm::Error chooseShapes();
  llvm::Error check();
  llvm::Error placeAll();
  llvm::Error compareEnds();
  llvm::Error timeForm(Form &form, double &ms, std::vector<GpuStepTime> &steps);
  void countBytes();

  const GpuBenchOptions &options;
  LoadedProgram &reference;
  Form &fused;
  std::optional<Form> &unfused;
  mlir::func::FuncOp function;
  std::vector<Tensor> inputs; ///< of the shape that is checked
  std::vector<std::vector<int64_t>> fullShapes;
  GpuBenchResult result;
};

int64_t elementsOf(llvm::ArrayRef<Port> ports, const Extents &shape) {
  int64_t total = 0;
  for (const Port &port : ports) {
    int64_t count = 1;
    for (auto [dim, extent] : llvm::zip(port.dims, port.extents)) {
      auto known = shape.find(dim);
      count *= extent >= 0 ? extent : known == shape.end() ? 1 : known->second;
    }
    total += count;
  }
  return total;
}

/// Halves what is not streamed over until double is affordable.
llvm::Error GpuBenchmark::chooseShapes() {
  Extents shape = options.shape;
  llvm::ArrayRef<std::string> streams = fused.program.fusion.streamAxes;
  while (options.maySplitInputs &&
         elementsOf(reference.inputs, shape) > kCheckedElements) {
    auto largest = shape.end();
    for (auto at = shape.begin(); at != shape.end(); ++at)
      if (!llvm::is_contained(streams, at->first) && at->second > 1 &&
          (largest == shape.end() || at->second > largest->second))
        largest = at;
    if (largest == shape.end())
      break;
    largest->second = (largest->second + 1) / 2;
  }
  result.checkedShape = shape;
  auto made = options.makeInputs(reference.inputs, shape);
  if (!made)
    return made.takeError();
  inputs = std::move(*made);
  for (auto [port, input] : llvm::zip(reference.inputs, inputs)) {
    auto &full = fullShapes.emplace_back(input.shape().vec());
    for (auto [dim, extent] : llvm::zip(port.dims, full))
      if (auto known = options.shape.find(dim); known != options.shape.end())
        extent = known->second;
  }
  return llvm::Error::success();
}

llvm::Error GpuBenchmark::check() {
  auto found = fused.program.executable.run(inputs, 1);
  if (!found)
    return found.takeError();
  EvaluationOptions limited;
  limited.keepOutputsExact = true;
  limited.running = roundingsOf(fused.program.fusion.cascades);
  auto exact = evaluateProgram(function, inputs, limited);
  if (!exact)
    return exact.takeError();
  std::optional<std::vector<Tensor>> other;
  if (unfused) {
    auto run = unfused->program.executable.run(inputs, 1);
    if (!run)
      return run.takeError();
    other = std::move(*run);
  }
  for (auto [i, port] : llvm::enumerate(fused.program.outputs)) {
    double error =
        compare((*found)[i], (*exact)[i], !limited.running.empty()).error;
    double bound = other ? boundOf(compare((*other)[i], (*exact)[i]).error,
                                   port.dtype, fused.program.factorRounding[i])
                         : kMaxDifference;
    result.error = std::max(result.error, error);
    if (error <= bound)
      continue;
    return mismatch(port, error, bound, "double");
  }
  return llvm::Error::success();
}

llvm::Error Form::place(const std::vector<std::vector<int64_t>> &shapes,
                        llvm::ArrayRef<Tensor> patterns) {
  auto planned = gpu->planFor(shapes);
  if (!planned)
    return asError(planned.error());
  plan = *planned;
  auto staged = gpu->stage(*plan);
  if (!staged)
    return asError(staged.error());
  places = std::move(*staged);
  for (auto [i, tensor] : llvm::enumerate(patterns)) {
    int64_t bytes = package::bytesOf(tensor.dtype(), shapes[i]);
    if (bytes == 0)
      continue;
    if (package::Problem problem =
            gpu->repeat(places[i], bytes, tensor.data(), tensor.numBytes()))
      return asError(problem);
  }
  // What nobody writes is NaN.
  const std::vector<char> poison(4096, char(0xff));
  for (auto [i, port] : llvm::enumerate(program.outputs)) {
    int64_t bytes = package::bytesOf(port.dtype, plan->outputShapes[i]);
    if (bytes == 0)
      continue;
    if (package::Problem problem = gpu->repeat(
            outputs()[i], bytes, poison.data(), int64_t(poison.size())))
      return asError(problem);
  }
  return llvm::Error::success();
}

llvm::Error GpuBenchmark::placeAll() {
  if (llvm::Error error = fused.place(fullShapes, inputs))
    return error;
  return unfused ? unfused->place(fullShapes, inputs) : llvm::Error::success();
}

llvm::Error Form::runOnce() {
  auto ms = gpu->time(
      1, 1, [&](package::DeviceStream stream) { return enqueue(stream); });
  return ms ? llvm::Error::success() : asError(ms.error());
}

/// Both ends of every output, fused against unfused.
llvm::Error GpuBenchmark::compareEnds() {
  if (llvm::Error error = fused.runOnce())
    return error;
  if (!unfused)
    return llvm::Error::success();
  if (llvm::Error error = unfused->runOnce())
    return error;
  for (auto [i, port] : llvm::enumerate(fused.program.outputs)) {
    int64_t width = byteWidth(port.dtype);
    int64_t bytes = package::bytesOf(port.dtype, fused.plan->outputShapes[i]);
    int64_t part = std::min(bytes, kComparedBytes) / width * width;
    for (int64_t at : {int64_t(0), bytes - part}) {
      Tensor parts[2];
      for (auto [form, to] : llvm::zip(std::array{&fused, &*unfused}, parts)) {
        auto made = Tensor::create(port.dtype, {part / width});
        if (!made)
          return made.takeError();
        to = std::move(*made);
        if (package::Problem problem = form->gpu->download(
                to.data(), form->outputs()[i] + uint64_t(at), part))
          return asError(problem);
      }
      RefOutput other{RefTensor::fromTensor(parts[1]), std::nullopt};
      double error = compare(parts[0], other).error;
      if (!(error <= kMaxDifference))
        return mismatch(port, error, kMaxDifference, "unfused");
    }
  }
  return llvm::Error::success();
}

/// Enough launches between two events for some milliseconds.
llvm::Error GpuBenchmark::timeForm(Form &form, double &ms,
                                   std::vector<GpuStepTime> &steps) {
  constexpr double kGroupMs = 4.0;
  constexpr int kGroups = 15, kMostLaunches = 400, kStepRuns = 9;
  auto run = [&](package::DeviceStream stream) { return form.enqueue(stream); };
  auto first = form.gpu->time(1, 3, run);
  if (!first)
    return asError(first.error());
  int launches = int(std::clamp(kGroupMs / std::max(*first, 1e-3), 1.0,
                                double(kMostLaunches)));
  auto timed = form.gpu->time(launches, kGroups, run);
  if (!timed)
    return asError(timed.error());
  ms = *timed;
  auto each =
      form.gpu->timeSteps(*form.plan, form.inputs(), form.outputs(), kStepRuns);
  if (!each)
    return asError(each.error());
  const ExecutableSpec &spec = form.program.executable.spec();
  ConstantSteps constants = findConstantSteps(spec);
  for (auto [i, step, stepMs] : llvm::enumerate(spec.steps, *each)) {
    if (constants.isOnce[i]) {
      steps.push_back({step.name + " (of weights alone: done once)", 0.0});
      continue;
    }
    std::string library = form.gpu->libraryOf(*form.plan, i);
    steps.push_back(
        {step.name + (library.empty() ? "" : " (" + library + ")"), stepMs});
  }
  return llvm::Error::success();
}

void GpuBenchmark::countBytes() {
  for (auto [port, shape] : llvm::zip(fused.program.inputs, fullShapes))
    result.inputBytes += package::bytesOf(port.dtype, shape);
  for (auto [port, shape] :
       llvm::zip(fused.program.outputs, fused.plan->outputShapes))
    result.outputBytes += package::bytesOf(port.dtype, shape);
  for (const BufferSpec &buffer : fused.program.executable.spec().buffers)
    if (buffer.kind == BufferKind::Constant)
      result.weightBytes += buffer.bytes.constant().value_or(0);
}

llvm::Expected<GpuBenchResult> GpuBenchmark::run() {
  auto tell = [&](llvm::StringRef what) {
    if (options.onProgress)
      options.onProgress(what);
  };
  tell("checking the answer");
  result.gpu = fused.gpu->gpu().name;
  result.compileMs = fused.program.compileMs;
  for (auto part : {&GpuBenchmark::chooseShapes, &GpuBenchmark::check,
                    &GpuBenchmark::placeAll, &GpuBenchmark::compareEnds})
    if (llvm::Error error = (this->*part)())
      return std::move(error);
  tell("timing");
  countBytes();
  if (llvm::Error error = timeForm(fused, result.fusedMs, result.fusedSteps))
    return std::move(error);
  if (unfused) {
    double ms = 0.0;
    if (llvm::Error error = timeForm(*unfused, ms, result.unfusedSteps))
      return std::move(error);
    result.unfusedMs = ms;
  }
  tell("measuring a copy");
  auto rate = fused.gpu->copyRate(result.bytes());
  if (!rate)
    return asError(rate.error());
  result.copyBytesPerMs = *rate;
  return std::move(result);
}

} // namespace

llvm::Expected<GpuBenchResult> benchOnGpu(mlir::MLIRContext &context,
                                          llvm::StringRef path,
                                          const LoadOptions &loadOptions,
                                          const GpuBenchOptions &options) {
  auto make = [&](FusePolicy policy) -> llvm::Expected<Form> {
    CompileOptions compileOptions;
    compileOptions.policy = policy;
    compileOptions.target = options.target;
    compileOptions.numerics = options.numerics;
    compileOptions.usualExtents = options.shape;
    compileOptions.cache = options.cache;
    if (policy != FusePolicy::Never)
      compileOptions.onReport = options.onReport;
    auto compiled = compileFile(context, path, loadOptions, compileOptions);
    if (!compiled)
      return compiled.takeError();
    Form form{std::move(*compiled), nullptr, nullptr, {}};
    auto opened = form.program.gpu->open();
    if (!opened)
      return opened.takeError();
    form.gpu = *opened;
    return form;
  };
  auto reference = load(context, path, loadOptions);
  if (!reference)
    return reference.takeError();
  auto fused = make(options.policy);
  if (!fused)
    return fused.takeError();
  std::optional<Form> other;
  auto unfused = make(FusePolicy::Never);
  if (unfused) {
    other = std::move(*unfused);
  } else {
    std::string message;
    ExitCode code = takeError(unfused.takeError(), message);
    if (code != ExitCode::Unsupported)
      return fail(code, message);
  }
  return GpuBenchmark(options, *reference, *fused, other).run();
}

} // namespace refold
