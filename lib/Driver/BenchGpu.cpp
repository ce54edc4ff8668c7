// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/BenchGpu.h"
#include "JudgeRun.h"
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

llvm::Error asError(const package::Problem &problem) {
  return fail(problem.code, problem.message);
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
               std::optional<DType> multiply, CompiledProgram &written,
               Form &fused, std::optional<Form> &unfused)
      : options(options), reference(reference), multiply(multiply),
        written(written), fused(fused), unfused(unfused),
        function(*reference.module->getOps<mlir::func::FuncOp>().begin()) {}
  llvm::Expected<GpuBenchResult> run();

private:
  llvm::Error chooseShapes();
  llvm::Error check();
  llvm::Error placeAll();
  llvm::Error tuneForm(Form &form);
  llvm::Error tuneAll();
  llvm::Error compareEnds();
  llvm::Error timeForm(Form &form, double &ms, std::vector<GpuStepTime> &steps);
  void countBytes();

  const GpuBenchOptions &options;
  LoadedProgram &reference;
  std::optional<DType> multiply;
  CompiledProgram &written; ///< unfused, for the CPU
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

/// As `verify` does: what a GPU computes is held against the program as the CPU
/// runs it unfused.
llvm::Error GpuBenchmark::check() {
  auto found = fused.program.executable.run(inputs, 1);
  if (!found)
    return found.takeError();
  auto runUnfused = [&](llvm::ArrayRef<Tensor> given) {
    return written.executable.run(given, 1);
  };
  auto judged =
      judgeRun({function, fused.program, inputs, *found, runUnfused, multiply});
  if (!judged)
    return judged.takeError();
  result.error = judged->error;
  result.checkedAgainst = judged->reference ? "double" : "unfused";
  result.isConditioned = judged->isConditioned;
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

/// On the arrays that are timed.
llvm::Error GpuBenchmark::tuneForm(Form &form) {
  package::TuneOptions tuning;
  tuning.onProgress = [&](const std::string &what) {
    if (options.onProgress)
      options.onProgress(what);
  };
  auto tuned =
      form.program.gpu->tune(*form.plan, form.inputs(), form.outputs(), tuning);
  if (!tuned)
    return tuned.takeError();
  for (const package::TunedLaunch &one : *tuned)
    if (options.onTuned)
      options.onTuned(
          package::describeTuned(form.program.gpu->described(), one));
  return llvm::Error::success();
}

llvm::Error GpuBenchmark::tuneAll() {
  if (!options.tunes)
    return llvm::Error::success();
  if (llvm::Error error = tuneForm(fused))
    return error;
  return unfused ? tuneForm(*unfused) : llvm::Error::success();
}

/// As many whole rows as are compared, or a part of one.
llvm::SmallVector<int64_t> comparedShape(const Port &port,
                                         llvm::ArrayRef<int64_t> shape) {
  int64_t elements = kComparedBytes / byteWidth(port.dtype), total = 1;
  for (int64_t extent : shape)
    total *= extent;
  int64_t row = shape.empty() ? 1 : std::max<int64_t>(shape.back(), 1);
  elements = std::min(elements, total);
  if (row > elements)
    return {elements};
  return {elements / row, row};
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
    llvm::ArrayRef<int64_t> whole = fused.plan->outputShapes[i];
    int64_t bytes = package::bytesOf(port.dtype, whole);
    for (bool isEnd : {false, true}) {
      Tensor parts[2];
      for (auto [form, to] : llvm::zip(std::array{&fused, &*unfused}, parts)) {
        auto made = Tensor::create(port.dtype, comparedShape(port, whole));
        if (!made)
          return made.takeError();
        to = std::move(*made);
        int64_t part = int64_t(to.numBytes()), at = isEnd ? bytes - part : 0;
        if (package::Problem problem = form->gpu->download(
                to.data(), form->outputs()[i] + uint64_t(at), part))
          return asError(problem);
      }
      if (llvm::Error error = compareWithUnfused(fused.program, i, multiply,
                                                 parts[0], parts[1]))
        return error;
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
    if (step.condition.evaluate(form.plan->symbols) == 0)
      continue; // for other sizes
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
                    &GpuBenchmark::placeAll, &GpuBenchmark::tuneAll,
                    &GpuBenchmark::compareEnds})
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
  auto compileAs = [&](FusePolicy policy, const std::string &target) {
    CompileOptions compileOptions;
    compileOptions.policy = policy;
    compileOptions.target = target;
    compileOptions.numerics = options.numerics;
    compileOptions.usualExtents = options.shape;
    compileOptions.cache = options.cache;
    compileOptions.usesTuned = options.usesTuned || options.tunes;
    compileOptions.countsWork = options.tunes;
    if (policy != FusePolicy::Never)
      compileOptions.onReport = options.onReport;
    return compileFile(context, path, loadOptions, compileOptions);
  };
  auto make = [&](FusePolicy policy) -> llvm::Expected<Form> {
    auto compiled = compileAs(policy, options.target);
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
  auto written = compileAs(FusePolicy::Never, /*target=*/"");
  if (!written)
    return written.takeError();
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
  return GpuBenchmark(options, *reference, loadOptions.multiply, *written,
                      *fused, other)
      .run();
}

} // namespace refold
