// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Bench.h"
#include "JudgeRun.h"
#include "Probe.h"
#include "ThreadClocks.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>

namespace refold {

namespace {

double millisecondsOf(llvm::function_ref<void()> work) {
  auto begin = std::chrono::steady_clock::now();
  work();
  std::chrono::duration<double, std::milli> spent =
      std::chrono::steady_clock::now() - begin;
  return spent.count();
}

double medianOf(std::vector<double> values) {
  size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  return values[middle];
}

class Benchmark {
public:
  Benchmark(mlir::MLIRContext &context, const BenchOptions &options,
            LoadedProgram &reference, std::optional<DType> multiply,
            CompiledProgram &fused, CompiledProgram &unfused,
            const CpuTarget &target, std::vector<Tensor> inputs)
      : context(context), options(options), multiply(multiply), fused(fused),
        unfused(unfused), target(target), facts(knownFacts(target)),
        inputs(std::move(inputs)),
        function(*reference.module->getOps<mlir::func::FuncOp>().begin()) {}
  llvm::Expected<BenchResult> run();

private:
  llvm::Error check();
  llvm::Error tellExpected(const std::vector<RefOutput> *reference);
  llvm::Error time();
  llvm::Error takeTurns();
  llvm::Error count();
  llvm::Expected<Probe *> clockOf(int64_t threads);
  llvm::Expected<MachineMoment> momentOf(int64_t threads);
  llvm::Expected<MachineMoment> momentAfter(const MachineMoment &before,
                                            int64_t threads);
  void predict(int64_t threads, const MachineMoment &moment);
  llvm::Error measure();
  double operationsPerMs();
  void bound();
  llvm::Expected<std::vector<StepTime>> timeSteps(CompiledProgram &program,
                                                  const ProgramWork &work,
                                                  std::vector<Tensor> &outputs);
  llvm::Error timeAllSteps();

  mlir::MLIRContext &context;
  const BenchOptions &options;
  std::optional<DType> multiply;
  CompiledProgram &fused, &unfused;
  CpuTarget target;
  MachineFacts facts;
  std::vector<Tensor> inputs, fusedOutputs, unfusedOutputs;
  mlir::func::FuncOp function;
  ProgramWork fusedWork, unfusedWork;
  std::optional<Probe> probe;
  std::map<int64_t, Probe> clocks; ///< by threads
  BenchResult result;
};

llvm::Error Benchmark::check() {
  auto one = fused.executable.run(inputs, options.threads);
  if (!one)
    return one.takeError();
  fusedOutputs = std::move(*one);
  auto runUnfused = [&](llvm::ArrayRef<Tensor> given) {
    return unfused.executable.run(given, options.threads);
  };
  auto judged =
      judgeRun({function, fused, inputs, fusedOutputs, runUnfused, multiply});
  if (!judged)
    return judged.takeError();
  unfusedOutputs = std::move(judged->unfusedOutputs);
  result.checkedAgainst = judged->reference ? "double" : "unfused";
  result.error = judged->error;
  result.isConditioned = judged->isConditioned;
  result.isChecked = true;
  return options.onExpected
             ? tellExpected(judged->reference ? &*judged->reference : nullptr)
             : llvm::Error::success();
}

llvm::Error Benchmark::tellExpected(const std::vector<RefOutput> *reference) {
  std::vector<NamedTensor> expected;
  for (auto [i, port] : llvm::enumerate(fused.outputs)) {
    if (!reference) {
      expected.push_back({port.name, unfusedOutputs[i]});
      continue;
    }
    DType dtype = isFloat(port.dtype) ? DType::F64 : port.dtype;
    auto tensor = (*reference)[i].value.toTensor(dtype);
    if (!tensor)
      return tensor.takeError();
    expected.push_back({port.name, std::move(*tensor)});
  }
  return options.onExpected(expected);
}

llvm::Error Benchmark::takeTurns() {
  while (std::optional<BenchTurn> turn = options.nextTurn(result)) {
    CompiledProgram &program = turn->isFused ? fused : unfused;
    std::vector<Tensor> &outputs =
        turn->isFused ? fusedOutputs : unfusedOutputs;
    BenchTurnTimes times;
    auto atFirst = momentOf(turn->threads);
    if (!atFirst)
      return atFirst.takeError();
    ThreadClocks before = readThreadClocks();
    for (int64_t run = 0; run < turn->runs; ++run) {
      llvm::Error failure = llvm::Error::success();
      times.ms.push_back(millisecondsOf([&] {
        failure = llvm::joinErrors(
            std::move(failure),
            program.executable.runInto(inputs, outputs, turn->threads));
      }));
      if (failure)
        return failure;
    }
    ThreadClocks after = readThreadClocks();
    double runs = static_cast<double>(turn->runs);
    auto moment = momentAfter(*atFirst, turn->threads);
    if (!moment)
      return moment.takeError();
    times.moment = *moment;
    predict(turn->threads, *moment);
    times.predictedMs = (turn->isFused ? fusedWork : unfusedWork).predictedMs;
    times.threadMs = mostSpent(before, after) / runs;
    times.faults = static_cast<double>(after.faults - before.faults) / runs;
    options.onTurn(times);
  }
  return llvm::Error::success();
}

/// Of two programs with the same ports.
bool isSameProgram(const CompiledProgram &one, const ProgramWork &ofOne,
                   const CompiledProgram &other, const ProgramWork &ofOther) {
  auto codeOf = [](const CompiledProgram &program, const StepWork &step) {
    auto kernel = llvm::find_if(program.kernels, [&](const KernelText &kernel) {
      return kernel.name == step.kernel;
    });
    return kernel == program.kernels.end() ? llvm::StringRef()
                                           : llvm::StringRef(kernel->text);
  };
  return llvm::equal(
      ofOne.steps, ofOther.steps, [&](const StepWork &a, const StepWork &b) {
        return a.kind == b.kind && a.name == b.name && a.shape == b.shape &&
               a.bytesRead == b.bytesRead && a.bytesWritten == b.bytesWritten &&
               a.operations == b.operations &&
               codeOf(one, a) == codeOf(other, b);
      });
}

/// Both programs in turn, so that what disturbs one disturbs the other.
llvm::Error Benchmark::time() {
  std::vector<double> fusedTimes, unfusedTimes, ratios;
  double spent = 0.0;
  auto atFirst = momentOf(options.threads);
  if (!atFirst)
    return atFirst.takeError();
  while (result.pairs < options.minPairs ||
         spent < 1000.0 * options.minSeconds) {
    llvm::Error failure = llvm::Error::success();
    auto timeOne = [&](CompiledProgram &program, std::vector<Tensor> &outputs) {
      return millisecondsOf([&] {
        failure = llvm::joinErrors(
            std::move(failure),
            program.executable.runInto(inputs, outputs, options.threads));
      });
    };
    double fusedMs = timeOne(fused, fusedOutputs),
           unfusedMs = timeOne(unfused, unfusedOutputs);
    if (failure)
      return failure;
    fusedTimes.push_back(fusedMs);
    unfusedTimes.push_back(unfusedMs);
    ratios.push_back(unfusedMs / fusedMs);
    spent += fusedMs + unfusedMs;
    ++result.pairs;
  }
  result.fusedMs = medianOf(fusedTimes);
  result.unfusedMs = medianOf(unfusedTimes);
  result.speedup = medianOf(ratios);
  auto moment = momentAfter(*atFirst, options.threads);
  if (!moment)
    return moment.takeError();
  result.moment = *moment;
  predict(options.threads, *moment);
  result.fusedPredictedMs = fusedWork.predictedMs;
  result.unfusedPredictedMs = unfusedWork.predictedMs;
  predict(options.threads, MachineMoment()); // of the steps
  return llvm::Error::success();
}

static bool isDouble(const CompiledProgram &program) {
  return llvm::any_of(program.outputs, [](const Port &port) {
    return port.dtype == DType::F64;
  });
}

llvm::Error Benchmark::count() {
  std::vector<llvm::SmallVector<int64_t, 4>> shapes;
  for (const Tensor &tensor : inputs)
    shapes.emplace_back(tensor.shape());
  auto work = measureWork(context, fused, shapes);
  if (!work)
    return work.takeError();
  fusedWork = std::move(*work);
  work = measureWork(context, unfused, shapes);
  if (!work)
    return work.takeError();
  unfusedWork = std::move(*work);
  result.isPredictedFromMeasuredRates = facts.isMeasured;
  result.isSame = isSameProgram(fused, fusedWork, unfused, unfusedWork);
  for (const CascadeReport &cascade : fused.fusion.cascades)
    if (cascade.decline)
      result.declined.emplace_back(cascade.name, *cascade.decline);
  return llvm::Error::success();
}

/// Nothing to compare with where the rates are defaults.
llvm::Expected<MachineMoment> Benchmark::momentOf(int64_t threads) {
  if (!facts.isMeasured)
    return MachineMoment();
  auto clock = clockOf(threads);
  if (!clock)
    return clock.takeError();
  return (*clock)->momentOf(facts.rates);
}

/// Of runs that began at `before`: what is there of the machine in between.
/// Where the inputs lie is what the runs have left.
llvm::Expected<MachineMoment>
Benchmark::momentAfter(const MachineMoment &before, int64_t threads) {
  if (!facts.isMeasured)
    return MachineMoment();
  auto clock = clockOf(threads);
  if (!clock)
    return clock.takeError();
  MachineMoment moment = (*clock)->momentOf(facts.rates, inputs);
  moment.cores = 0.5 * (moment.cores + before.cores);
  moment.memory = 0.5 * (moment.memory + before.memory);
  return moment;
}

llvm::Expected<Probe *> Benchmark::clockOf(int64_t threads) {
  auto known = clocks.find(threads);
  if (known == clocks.end()) {
    auto made = Probe::create(target, threads, Probe::Effort::Quick);
    if (!made)
      return made.takeError();
    known = clocks.emplace(threads, std::move(*made)).first;
  }
  return &known->second;
}

void Benchmark::predict(int64_t threads, const MachineMoment &moment) {
  MachineRates rates = facts.rates.at(moment);
  for (ProgramWork *work : {&fusedWork, &unfusedWork})
    predictTimes(*work, target.facts, rates, threads);
}

llvm::Error Benchmark::measure() {
  auto made = Probe::create(target, options.threads);
  if (!made)
    return made.takeError();
  probe = std::move(*made);
  return llvm::Error::success();
}

/// f64 has half the lanes.
double Benchmark::operationsPerMs() {
  return probe->operationsPerMs() / (isDouble(fused) ? 2.0 : 1.0);
}

/// Either program computes the result: the smaller number is enough.
void Benchmark::bound() {
  BenchBound &bound = result.bound;
  bound.inputBytes = fusedWork.inputBytes;
  bound.weightBytes = fusedWork.weightBytes;
  bound.outputBytes = fusedWork.outputBytes;
  bound.operations = std::min(fusedWork.operations, unfusedWork.operations);
  bound.bytesPerMs = probe->bytesPerMs(fusedWork.bytes());
  bound.operationsPerMs = operationsPerMs();
  bound.memoryMs = fusedWork.bytes() / bound.bytesPerMs;
  bound.arithmeticMs = bound.operations / bound.operationsPerMs;
  bool isMemory = bound.memoryMs >= bound.arithmeticMs;
  bound.name = isMemory ? "memory" : "arithmetic";
  bound.ms = isMemory ? bound.memoryMs : bound.arithmeticMs;
  bound.share = result.fusedMs > 0 ? bound.ms / result.fusedMs : 0.0;
}

llvm::Expected<std::vector<StepTime>>
Benchmark::timeSteps(CompiledProgram &program, const ProgramWork &work,
                     std::vector<Tensor> &outputs) {
  constexpr int64_t kRuns = 7;
  std::vector<std::vector<double>> times(work.steps.size());
  program.executable.observeSteps(
      [&](size_t step, double ms) { times[step].push_back(ms); });
  auto stop =
      llvm::make_scope_exit([&] { program.executable.observeSteps(nullptr); });
  for (int64_t run = 0; run < kRuns; ++run)
    if (llvm::Error error =
            program.executable.runInto(inputs, outputs, options.threads))
      return std::move(error);
  std::vector<StepTime> result;
  double total = 0.0;
  for (auto [step, measured] : llvm::zip_equal(work.steps, times)) {
    StepTime &time = result.emplace_back();
    time.work = step;
    time.ms = measured.empty() ? 0.0 : medianOf(measured);
    double operations = step.skipsTiles ? 0.0 : step.operations;
    double bytes = step.bytesRead + step.bytesWritten;
    time.boundMs = std::max(bytes / probe->bytesPerMs(bytes),
                            operations / operationsPerMs());
    total += time.ms;
  }
  for (StepTime &time : result)
    time.share = total > 0 ? time.ms / total : 0.0;
  return std::move(result);
}

llvm::Error Benchmark::timeAllSteps() {
  auto steps = timeSteps(fused, fusedWork, fusedOutputs);
  if (!steps)
    return steps.takeError();
  result.fusedSteps = std::move(*steps);
  steps = timeSteps(unfused, unfusedWork, unfusedOutputs);
  if (!steps)
    return steps.takeError();
  result.unfusedSteps = std::move(*steps);
  return llvm::Error::success();
}

llvm::Expected<BenchResult> Benchmark::run() {
  auto tell = [&](llvm::StringRef what) {
    if (options.onProgress)
      options.onProgress(what);
  };
  tell("checking the answer");
  if (llvm::Error error = check())
    return std::move(error);
  result.compileMs = fused.compileMs;
  result.stages = fused.stages;
  if (llvm::Error error = count())
    return std::move(error);
  if (options.nextTurn) {
    if (llvm::Error error = takeTurns())
      return std::move(error);
    return std::move(result);
  }
  tell("timing");
  if (llvm::Error error = time())
    return std::move(error);
  tell("measuring the machine");
  if (llvm::Error error = measure())
    return std::move(error);
  bound();
  if (options.timesSteps)
    if (llvm::Error error = timeAllSteps())
      return std::move(error);
  return std::move(result);
}

} // namespace

llvm::Expected<BenchResult> bench(mlir::MLIRContext &context,
                                  llvm::StringRef path,
                                  const LoadOptions &loadOptions,
                                  const BenchOptions &options) {
  Extents usualExtents;
  auto compileAs = [&](FusePolicy policy) -> llvm::Expected<CompiledProgram> {
    CompileOptions compileOptions;
    compileOptions.policy = policy;
    compileOptions.target = options.target;
    compileOptions.numerics = options.numerics;
    compileOptions.usualExtents = usualExtents;
    compileOptions.usesTuned = options.usesTuned;
    return compileFile(context, path, loadOptions, compileOptions);
  };
  auto reference = load(context, path, loadOptions);
  if (!reference)
    return reference.takeError();
  auto inputs = options.makeInputs(reference->inputs);
  if (!inputs)
    return inputs.takeError();
  usualExtents = extentsOf(reference->inputs, *inputs);
  auto fused = compileAs(options.policy);
  if (!fused)
    return fused.takeError();
  auto unfused = compileAs(FusePolicy::Never);
  if (!unfused)
    return unfused.takeError();
  llvm::Expected<CpuTarget> target = detectTarget(options.target);
  if (!target)
    return target.takeError();
  return Benchmark(context, options, *reference, loadOptions.multiply, *fused,
                   *unfused, *target, std::move(*inputs))
      .run();
}

} // namespace refold
