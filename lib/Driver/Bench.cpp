// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Bench.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Compare.h"
#include "refold/Support/Error.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <cstring>
#include <thread>

namespace refold {

namespace {

/// Steps of the reference that a benchmark waits for: some ten seconds.
constexpr int64_t kMaxReferenceSteps = int64_t(3) << 30;
/// Allowed against the unfused program only, where double takes too long.
constexpr double kMaxDifference = 1e-3;

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

/// Bytes a millisecond that `threads` threads read from memory together.
/// Reading is the bound: what is written is small beside it in a reduction.
double measureReadRate(int64_t threads) {
  constexpr size_t wordsEach = size_t(8) << 20;
  std::vector<std::vector<uint64_t>> arrays(
      threads, std::vector<uint64_t>(wordsEach, 1));
  std::vector<uint64_t> sums(threads);
  double best = 0.0;
  for (int round = 0; round < 3; ++round) {
    double ms = millisecondsOf([&] {
      std::vector<std::thread> workers;
      for (int64_t t = 0; t < threads; ++t)
        workers.emplace_back([&, t] {
          uint64_t parts[8] = {};
          for (size_t i = 0; i < wordsEach; i += 8)
            for (size_t j = 0; j < 8; ++j)
              parts[j] += arrays[t][i + j];
          for (uint64_t part : parts)
            sums[t] += part;
        });
      for (std::thread &worker : workers)
        worker.join();
    });
    best = std::max(
        best, static_cast<double>(threads * wordsEach * sizeof(uint64_t)) / ms);
  }
  return sums[0] ? best : 0.0;
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

RefOutput asReference(const Tensor &tensor) {
  return {RefTensor::fromTensor(tensor), std::nullopt};
}

class Benchmark {
public:
  Benchmark(const BenchOptions &options, LoadedProgram &reference,
            CompiledProgram &fused, CompiledProgram &unfused)
      : options(options), fused(fused), unfused(unfused),
        function(*reference.module->getOps<mlir::func::FuncOp>().begin()) {}
  llvm::Expected<BenchResult> run();

private:
  llvm::Error check();
  llvm::Error time();
  void bound();

  const BenchOptions &options;
  CompiledProgram &fused, &unfused;
  mlir::func::FuncOp function;
  std::vector<Tensor> inputs, fusedOutputs, unfusedOutputs;
  BenchResult result;
};

llvm::Error Benchmark::check() {
  auto one = fused.executable.run(inputs, options.threads);
  if (!one)
    return one.takeError();
  auto other = unfused.executable.run(inputs, options.threads);
  if (!other)
    return other.takeError();
  fusedOutputs = std::move(*one);
  unfusedOutputs = std::move(*other);

  EvaluationOptions limited;
  limited.keepOutputsExact = true;
  limited.limits.steps = kMaxReferenceSteps;
  auto reference = evaluateProgram(function, inputs, limited);
  if (!reference) {
    std::string message;
    ExitCode code = takeError(reference.takeError(), message);
    if (code != ExitCode::Limit)
      return fail(code, message);
  }
  result.checkedAgainst = reference ? "double" : "unfused";
  for (auto [i, port] : llvm::enumerate(fused.outputs)) {
    RefOutput expected =
        reference ? (*reference)[i] : asReference(unfusedOutputs[i]);
    double error = compare(fusedOutputs[i], expected).error;
    double bound = reference
                       ? 2.0 * compare(unfusedOutputs[i], expected).error +
                             2.0 * ulpOf(port.dtype)
                       : kMaxDifference;
    result.error = std::max(result.error, error);
    if (!(error <= bound) ||
        countClassLosses(fusedOutputs[i], unfusedOutputs[i], expected,
                         /*mayMissNaN=*/true))
      return mismatch(port, error, bound, result.checkedAgainst);
  }
  result.isChecked = true;
  return llvm::Error::success();
}

/// Both programs in turn, so that what disturbs one disturbs the other.
llvm::Error Benchmark::time() {
  std::vector<double> fusedTimes, unfusedTimes, ratios;
  double spent = 0.0;
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
  return llvm::Error::success();
}

void Benchmark::bound() {
  double bytes = 0;
  for (const Tensor &tensor : inputs)
    bytes += static_cast<double>(tensor.numBytes());
  for (const Tensor &tensor : fusedOutputs)
    bytes += static_cast<double>(tensor.numBytes());
  double rate = measureReadRate(options.threads);
  result.boundName = "memory";
  result.boundMs = rate > 0 ? bytes / rate : 0.0;
  result.boundShare =
      result.fusedMs > 0 ? result.boundMs / result.fusedMs : 0.0;
}

llvm::Expected<BenchResult> Benchmark::run() {
  auto made =
      makeInputs(fused.inputs, options.shape, {}, options.inputs, options.seed);
  if (!made)
    return made.takeError();
  inputs = std::move(*made);
  auto tell = [&](llvm::StringRef what) {
    if (options.onProgress)
      options.onProgress(what);
  };
  tell("checking the answer");
  if (llvm::Error error = check())
    return std::move(error);
  tell("timing");
  if (llvm::Error error = time())
    return std::move(error);
  bound();
  result.compileMs = fused.compileMs;
  return std::move(result);
}

} // namespace

llvm::Expected<BenchResult> bench(mlir::MLIRContext &context,
                                  llvm::StringRef path,
                                  const LoadOptions &loadOptions,
                                  const BenchOptions &options) {
  auto compileAs = [&](FusePolicy policy) -> llvm::Expected<CompiledProgram> {
    auto program = load(context, path, loadOptions);
    if (!program)
      return program.takeError();
    CompileOptions compileOptions;
    compileOptions.policy = policy;
    compileOptions.target = options.target;
    return compile(std::move(*program), compileOptions);
  };
  auto reference = load(context, path, loadOptions);
  if (!reference)
    return reference.takeError();
  auto fused = compileAs(FusePolicy::Auto);
  if (!fused)
    return fused.takeError();
  auto unfused = compileAs(FusePolicy::Never);
  if (!unfused)
    return unfused.takeError();
  return Benchmark(options, *reference, *fused, *unfused).run();
}

} // namespace refold
