// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "RunFlags.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Reference/Evaluate.h"
#include "refold/Support/ArrayFile.h"
#include "refold/Support/Files.h"
#include "refold/Support/Json.h"
#include "refold/Support/NearestName.h"
#include "refold/Target/CUDA/CompileCuda.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include <chrono>
#include <cmath>

namespace refold {

namespace {

struct RunFlags {
  ProgramFlags program;
  InputFlags inputs;
  std::string target, npz;
  FusePolicy fuse = FusePolicy::Auto;
  std::map<std::string, std::string> outputs;
  int64_t threads = 1;
  bool useReference = false, usesTuned = false, tunes = false;

  void addTo(Flags &flags);
};

void RunFlags::addTo(Flags &flags) {
  program.addTo(flags);
  program.addDtypeTo(flags);
  program.addNumericsTo(flags);
  program.addCacheTo(flags);
  inputs.addTo(flags, /*withFiles=*/true);
  flags.value("output", "NAME=FILE.npy", "writes one output",
              [this](llvm::StringRef text) -> llvm::Error {
                auto [name, file] = text.split('=');
                if (name.empty() || !file.ends_with(".npy"))
                  return fail(ExitCode::Usage,
                              "found '" + text + "', expected name=file.npy");
                outputs[name.str()] = file.str();
                return llvm::Error::success();
              });
  flags.text("outputs-to", "FILE.npz", "writes all outputs", npz);
  flags.integer("threads", "N", "threads (1)", threads, 1, 1024);
  addFuseTo(flags, fuse);
  addTunedTo(flags, usesTuned);
  addTuneTo(flags, tunes);
  flags.text("target", "NAME",
             "avx512, avx2, baseline, cuda, cuda-sm80, cuda-sm90 or "
             "cuda-emulated (what the machine's CPU offers)",
             target);
  flags.toggle("reference",
               "evaluates in double precision instead of compiling",
               useReference);
}

struct RunResult {
  std::vector<Tensor> outputs;
  double compileMs = 0.0, runMs = 0.0;
  llvm::json::Object counters;
};

llvm::Expected<RunResult> evaluate(LoadedProgram &program,
                                   llvm::ArrayRef<Tensor> inputs) {
  auto begin = std::chrono::steady_clock::now();
  mlir::func::FuncOp function =
      *program.module->getOps<mlir::func::FuncOp>().begin();
  auto values = evaluateProgram(function, inputs);
  if (!values)
    return values.takeError();
  RunResult result;
  for (auto [port, value] : llvm::zip(program.outputs, *values)) {
    auto tensor = value.value.toTensor(port.dtype);
    if (!tensor)
      return tensor.takeError();
    result.outputs.push_back(std::move(*tensor));
  }
  result.runMs = std::chrono::duration<double, std::milli>(
                     std::chrono::steady_clock::now() - begin)
                     .count();
  return result;
}

/// Tells what was timed on standard error: the answer is on the other.
llvm::Error tuneOnGpu(CompiledProgram &program, llvm::ArrayRef<Tensor> inputs,
                      bool hasCache) {
  constexpr size_t kUsualWays = 6;
  Progress progress("tune", kUsualWays);
  package::TuneOptions options;
  options.onProgress = [&](const std::string &what) { progress.step(what); };
  auto tuned = program.gpu->tune(inputs, options);
  if (!tuned)
    return tuned.takeError();
  progress.clear();
  for (const package::TunedLaunch &one : *tuned)
    llvm::errs() << package::describeTuned(program.gpu->described(), one);
  tellNotKept(hasCache);
  return llvm::Error::success();
}

llvm::Expected<RunResult> compileAndRun(LoadedProgram program,
                                        const RunFlags &options,
                                        llvm::ArrayRef<Tensor> inputs) {
  CompileOptions compileOptions;
  compileOptions.policy = options.fuse;
  compileOptions.usualExtents = extentsOf(program.inputs, inputs);
  compileOptions.usesTuned = options.usesTuned || options.tunes;
  compileOptions.countsWork = options.tunes;
  compileOptions.target = options.target;
  if (llvm::StringRef(options.target).starts_with("cuda"))
    compileOptions.onReport = tellDeclined;
  compileOptions.numerics = options.program.numerics;
  auto cache = options.program.openCache();
  if (!cache)
    return cache.takeError();
  compileOptions.cache = cache->get();
  auto compiled = compile(std::move(program), compileOptions);
  if (!compiled)
    return compiled.takeError();
  if (options.tunes)
    if (llvm::Error error =
            tuneOnGpu(*compiled, inputs, compileOptions.cache != nullptr))
      return std::move(error);
  auto begin = std::chrono::steady_clock::now();
  auto outputs = compiled->executable.run(inputs, options.threads);
  if (!outputs)
    return outputs.takeError();
  RunResult result;
  result.runMs = std::chrono::duration<double, std::milli>(
                     std::chrono::steady_clock::now() - begin)
                     .count();
  result.compileMs = compiled->compileMs;
  result.counters = compiled->executable.counters();
  result.outputs = std::move(*outputs);
  return result;
}

llvm::Error writeOutputs(const RunFlags &options, llvm::ArrayRef<Port> ports,
                         llvm::ArrayRef<Tensor> outputs) {
  std::vector<NamedTensor> named;
  for (auto [port, tensor] : llvm::zip(ports, outputs)) {
    named.push_back({port.name, tensor});
    auto file = options.outputs.find(port.name);
    if (file == options.outputs.end())
      continue;
    auto bytes = formatNpy(tensor);
    if (!bytes)
      return bytes.takeError();
    if (llvm::Error error = writeFileAtomically(file->second, *bytes))
      return error;
  }
  if (options.npz.empty())
    return llvm::Error::success();
  auto bytes = formatNpz(named);
  if (!bytes)
    return bytes.takeError();
  return writeFileAtomically(options.npz, *bytes);
}

/// Is every name of --output an output? Asked before the work is done.
llvm::Error checkOutputs(const RunFlags &options, llvm::ArrayRef<Port> ports) {
  std::vector<llvm::StringRef> known(ports.size());
  llvm::transform(
      ports, known.begin(),
      [](const Port &port) -> llvm::StringRef { return port.name; });
  for (const auto &[name, file] : options.outputs)
    if (!llvm::is_contained(known, name))
      return fail(ExitCode::Usage, "found the unknown output '" + name + "'" +
                                       suggestion(name, known));
  return llvm::Error::success();
}

llvm::json::Value shapeJson(const Tensor &tensor) {
  return llvm::json::Array(tensor.shape());
}

/// The first values and the range: enough to see whether a run went as hoped.
void printSummary(const Port &port, const Tensor &tensor) {
  llvm::raw_ostream &os = llvm::outs();
  os << port.name << ": " << describe(tensor);
  double low = HUGE_VAL, high = -HUGE_VAL;
  int64_t nans = 0, count = tensor.numElements();
  for (int64_t i = 0; i < count; ++i) {
    double value = tensor.get(i);
    nans += std::isnan(value);
    low = std::isnan(value) ? low : std::min(low, value);
    high = std::isnan(value) ? high : std::max(high, value);
  }
  if (count > nans)
    os << ", from " << llvm::format("%.6g", low) << " to "
       << llvm::format("%.6g", high);
  if (nans)
    os << ", " << nans << " NaN";
  os << ":";
  for (int64_t i = 0; i < std::min<int64_t>(count, 6); ++i)
    os << " " << llvm::format("%.6g", tensor.get(i));
  os << (count > 6 ? " ...\n" : "\n");
}

llvm::json::Array summaryJson(llvm::ArrayRef<Port> ports,
                              llvm::ArrayRef<Tensor> outputs) {
  constexpr int64_t maxShown = 16;
  llvm::json::Array result;
  for (auto [port, tensor] : llvm::zip(ports, outputs)) {
    llvm::json::Array first;
    for (int64_t i = 0; i < std::min(tensor.numElements(), maxShown); ++i)
      first.push_back(jsonNumber(tensor.get(i)));
    result.push_back(llvm::json::Object{{"name", port.name},
                                        {"dtype", nameOf(tensor.dtype())},
                                        {"shape", shapeJson(tensor)},
                                        {"first", std::move(first)}});
  }
  return result;
}

} // namespace

llvm::Expected<ExitCode> runCommand(const Command &command,
                                    Arguments arguments) {
  RunFlags options;
  Flags flags;
  options.addTo(flags);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  if (llvm::Error error = checkTune(options.tunes, options.target))
    return std::move(error);
  auto context = makeContext();
  auto loaded =
      load(*context, options.program.path, options.program.loadOptions());
  if (!loaded)
    return loaded.takeError();
  std::vector<Port> ports = loaded->outputs;
  if (llvm::Error error = checkOutputs(options, ports))
    return std::move(error);
  auto inputs = options.inputs.make(loaded->inputs);
  if (!inputs)
    return inputs.takeError();
  auto result = options.useReference
                    ? evaluate(*loaded, *inputs)
                    : compileAndRun(std::move(*loaded), options, *inputs);
  if (!result)
    return result.takeError();
  if (llvm::Error error = writeOutputs(options, ports, result->outputs))
    return std::move(error);
  if (options.program.isJson()) {
    printJson(
        llvm::json::Object{{"outputs", summaryJson(ports, result->outputs)},
                           {"compile_ms", result->compileMs},
                           {"run_ms", result->runMs},
                           {"counters", std::move(result->counters)}});
    return ExitCode::Ok;
  }
  for (auto [port, tensor] : llvm::zip(ports, result->outputs))
    printSummary(port, tensor);
  llvm::outs() << llvm::format("compiled in %.1f ms, ran in %.3f ms\n",
                               result->compileMs, result->runMs);
  return ExitCode::Ok;
}

} // namespace refold
