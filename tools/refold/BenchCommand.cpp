// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "ReportJson.h"
#include "RunFlags.h"
#include "refold/Driver/Bench.h"
#include "refold/Driver/BenchGpu.h"
#include "refold/Support/Files.h"
#include "refold/Support/Json.h"
#include "llvm/Support/Format.h"
#include <iostream>

namespace refold {

static llvm::json::Array toJson(llvm::ArrayRef<StepTime> steps) {
  llvm::json::Array result;
  for (const StepTime &step : steps) {
    llvm::json::Object entry = toJson(step.work);
    entry["ms"] = step.ms;
    entry["share"] = step.share;
    entry["bound_ms"] = step.boundMs;
    result.push_back(std::move(entry));
  }
  return result;
}

static llvm::json::Object toJson(const BenchBound &bound) {
  return llvm::json::Object{
      {"name", bound.name},
      {"ms", bound.ms},
      {"share", bound.share},
      {"memory_ms", bound.memoryMs},
      {"arithmetic_ms", bound.arithmeticMs},
      {"bytes", llvm::json::Object{{"inputs", bound.inputBytes},
                                   {"weights", bound.weightBytes},
                                   {"outputs", bound.outputBytes}}},
      {"operations", bound.operations},
      {"gbytes_per_s", bound.bytesPerMs * 1e-6},
      {"gflops", bound.operationsPerMs * 1e-6}};
}

static llvm::json::Array declinedToJson(const BenchResult &result) {
  llvm::json::Array declined;
  for (const auto &[name, decline] : result.declined)
    declined.push_back(llvm::json::Object{{"name", name},
                                          {"key", decline.key},
                                          {"fused_ms", decline.fusedMs},
                                          {"other_ms", decline.otherMs},
                                          {"text", decline.text}});
  return declined;
}

static llvm::json::Object toJson(const MachineMoment &moment) {
  llvm::json::Object object{{"cores", moment.cores}, {"memory", moment.memory}};
  if (moment.readBytes > 0.0) {
    object["read_bytes"] = moment.readBytes;
    object["read_bytes_per_ms"] = moment.readPerMs;
  }
  return object;
}

static llvm::json::Object predictionToJson(const BenchResult &result) {
  return llvm::json::Object{
      {"fused_ms", result.fusedPredictedMs},
      {"unfused_ms", result.unfusedPredictedMs},
      {"fused_ratio", result.fusedPredictedMs / result.fusedMs},
      {"unfused_ratio", result.unfusedPredictedMs / result.unfusedMs},
      {"rates_measured", result.isPredictedFromMeasuredRates},
      {"moment", toJson(result.moment)}};
}

static void printJsonOf(const BenchResult &result, bool withSteps) {
  llvm::json::Object answer{{"fused_ms", result.fusedMs},
                            {"unfused_ms", result.unfusedMs},
                            {"speedup", result.speedup},
                            {"pairs", result.pairs},
                            {"checked", result.isChecked},
                            {"checked_against", result.checkedAgainst},
                            {"error", jsonNumber(result.error)},
                            {"conditioned", result.isConditioned},
                            {"bound", toJson(result.bound)},
                            {"predicted", predictionToJson(result)},
                            {"declined", declinedToJson(result)},
                            {"same", result.isSame},
                            {"compile_ms", result.compileMs},
                            {"stages", stagesToJson(result.stages)}};
  if (withSteps)
    answer["kernels"] =
        llvm::json::Object{{"fused", toJson(result.fusedSteps)},
                           {"unfused", toJson(result.unfusedSteps)}};
  printJson(std::move(answer));
}

/// Steps that do the same work: the layers of a model.
struct StepGroup {
  StepWork work; ///< of the first
  double ms = 0.0, boundMs = 0.0;
  int64_t count = 0;
  size_t first = 0; ///< its number in the program
};

static std::vector<StepGroup> groupSteps(llvm::ArrayRef<StepTime> steps) {
  std::vector<StepGroup> groups;
  for (const StepTime &step : steps) {
    if (step.work.isOnce)
      continue;
    auto same = llvm::find_if(groups, [&](const StepGroup &group) {
      return group.work.kind == step.work.kind &&
             group.work.kernel == step.work.kernel &&
             group.work.operations == step.work.operations &&
             group.work.bytesRead == step.work.bytesRead &&
             group.work.bytesWritten == step.work.bytesWritten;
    });
    if (same == groups.end())
      same = groups.insert(groups.end(),
                           StepGroup{step.work, 0.0, 0.0, 0, groups.size()});
    same->ms += step.ms;
    same->boundMs += step.boundMs;
    ++same->count;
  }
  llvm::sort(groups, [](const StepGroup &a, const StepGroup &b) {
    return std::pair(-a.ms, a.first) < std::pair(-b.ms, b.first);
  });
  return groups;
}

/// A row a group, the longest first; rates are those of one step after the
/// other.
static void printSteps(llvm::StringRef title, llvm::ArrayRef<StepTime> steps) {
  constexpr size_t kMostRows = 24;
  llvm::raw_ostream &os = llvm::outs();
  double total = 0.0;
  size_t once = 0;
  std::map<std::string, double> byKind;
  for (const StepTime &step : steps) {
    once += step.work.isOnce;
    if (step.work.isOnce)
      continue;
    total += step.ms;
    byKind[step.work.kind] += step.ms;
  }
  os << "\n"
     << title
     << llvm::format(": %d steps, %.3f ms in all", int(steps.size() - once),
                     total);
  for (const auto &[kind, ms] : byKind)
    os << llvm::format(", %.0f %% in ", total > 0 ? 100.0 * ms / total : 0.0)
       << kind << " steps";
  if (once)
    os << "; " << once
       << " more of weights alone, done once before the first run";
  os << "\n        ms  share  of bound  GFLOP/s    GB/s  steps\n";
  double restMs = 0.0;
  for (auto [i, group] : llvm::enumerate(groupSteps(steps))) {
    if (i >= kMostRows || group.ms <= 1e-4 * total) {
      restMs += group.ms;
      continue;
    }
    double rate = 1e-6 * static_cast<double>(group.count) / group.ms;
    os << llvm::format("%10.3f %4.0f %% %7.0f %% %8.1f %7.1f  ", group.ms,
                       100.0 * group.ms / total,
                       100.0 * group.boundMs / group.ms,
                       rate * group.work.operations,
                       rate * (group.work.bytesRead + group.work.bytesWritten));
    if (group.count > 1)
      os << group.count << " like ";
    os << group.work.kind << " " << group.work.name
       << (group.work.skipsTiles ? " (dead tiles skipped)" : "") << "\n";
  }
  if (restMs > 0)
    os << llvm::format("%10.3f %4.0f %%  ", restMs, 100.0 * restMs / total)
       << "the others\n";
}

static void printText(const BenchResult &result) {
  for (const auto &[name, decline] : result.declined)
    llvm::outs() << name << ": cascade not fused [" << decline.key
                 << "]: " << decline.text << "\n";
  const BenchBound &bound = result.bound;
  llvm::outs()
      << llvm::format("fused    %10.3f ms\nunfused  %10.3f ms\n",
                      result.fusedMs, result.unfusedMs)
      << llvm::format("speedup  %10.2f (median of %d pairs)\n", result.speedup,
                      static_cast<int>(result.pairs))
      << llvm::format("predicted%10.3f ms fused, %.3f ms unfused",
                      result.fusedPredictedMs, result.unfusedPredictedMs)
      << (result.isPredictedFromMeasuredRates
              ? "\n"
              : " (from default rates: refold doctor measures)\n")
      << llvm::format("compile  %10.1f ms\n", result.compileMs) << "error    "
      << llvm::right_justify(formatError(result.error), 10) << " against "
      << result.checkedAgainst
      << (result.isConditioned
              ? " (its terms cancel: bounded by inputs moved in their last bit)"
              : "")
      << "\n"
      << llvm::format("bound    %10.3f ms (%s), reached by %.0f %%\n", bound.ms,
                      bound.name.c_str(), 100.0 * bound.share)
      << llvm::format("  memory     %8.3f ms: ", bound.memoryMs)
      << formatBytes(bound.inputBytes) << " of inputs, "
      << formatBytes(bound.weightBytes) << " of weights, "
      << formatBytes(bound.outputBytes)
      << llvm::format(" of outputs at %.1f GB/s\n", bound.bytesPerMs * 1e-6)
      << llvm::format("  arithmetic %8.3f ms: ", bound.arithmeticMs)
      << formatCount(bound.operations)
      << llvm::format(" operations at %.1f GFLOP/s\n",
                      bound.operationsPerMs * 1e-6);
}

/// One line of JSON, sent at once: the caller waits for it.
static void sendLine(llvm::json::Object answer) {
  llvm::outs() << llvm::json::Value(std::move(answer)) << "\n";
  llvm::outs().flush();
}

/// "fused 2 10": runs on 2 threads; nothing at the end of input.
static std::optional<BenchTurn> parseTurn(llvm::StringRef line) {
  llvm::SmallVector<llvm::StringRef, 3> words;
  line.split(words, ' ');
  BenchTurn turn;
  if (words.size() != 3 || (words[0] != "fused" && words[0] != "unfused") ||
      words[1].getAsInteger(10, turn.threads) ||
      words[2].getAsInteger(10, turn.runs) || turn.threads < 1 ||
      turn.threads > 1024 || turn.runs < 1 || turn.runs > 1000000)
    return std::nullopt;
  turn.isFused = words[0] == "fused";
  return turn;
}

/// Says that the answer is right, then takes turns that stdin asks for.
static void serveTurns(BenchOptions &options, bool &isRefused) {
  auto isFirst = std::make_shared<bool>(true);
  options.nextTurn = [isFirst, &isRefused](const BenchResult &checked) {
    if (std::exchange(*isFirst, false))
      sendLine(llvm::json::Object{{"checked", checked.isChecked},
                                  {"checked_against", checked.checkedAgainst},
                                  {"error", jsonNumber(checked.error)},
                                  {"conditioned", checked.isConditioned},
                                  {"declined", declinedToJson(checked)},
                                  {"same", checked.isSame},
                                  {"compile_ms", checked.compileMs}});
    std::string line;
    if (!std::getline(std::cin, line))
      return std::optional<BenchTurn>();
    std::optional<BenchTurn> turn = parseTurn(line);
    isRefused = !turn;
    return turn;
  };
  options.onTurn = [](const BenchTurnTimes &times) {
    sendLine(llvm::json::Object{{"ms", llvm::json::Array(times.ms)},
                                {"predicted_ms", times.predictedMs},
                                {"moment", toJson(times.moment)},
                                {"thread_ms", times.threadMs},
                                {"faults", times.faults}});
  };
}

static llvm::Error writeExpected(llvm::StringRef path,
                                 llvm::ArrayRef<NamedTensor> expected) {
  auto bytes = formatNpz(expected);
  if (!bytes)
    return bytes.takeError();
  return writeFileAtomically(path, *bytes);
}

static llvm::json::Array toJson(llvm::ArrayRef<GpuStepTime> steps) {
  llvm::json::Array list;
  for (const GpuStepTime &step : steps)
    list.push_back(llvm::json::Object{{"name", step.name}, {"ms", step.ms}});
  return list;
}

static void printJsonOf(const GpuBenchResult &result) {
  llvm::json::Object shape;
  for (const auto &[dim, extent] : result.checkedShape)
    shape[dim] = extent;
  llvm::json::Object answer{
      {"gpu", result.gpu},
      {"fused_ms", result.fusedMs},
      {"checked", true},
      {"checked_against", result.checkedAgainst},
      {"conditioned", result.isConditioned},
      {"checked_shape", std::move(shape)},
      {"error", jsonNumber(result.error)},
      {"bytes", result.bytes()},
      {"bytes_per_ms", result.bytesPerMs()},
      {"copy_bytes_per_ms", result.copyBytesPerMs},
      {"share_of_copy", result.shareOfCopy()},
      {"compile_ms", result.compileMs},
      {"kernels",
       llvm::json::Object{{"fused", toJson(result.fusedSteps)},
                          {"unfused", toJson(result.unfusedSteps)}}}};
  if (result.unfusedMs) {
    answer["unfused_ms"] = *result.unfusedMs;
    answer["speedup"] = *result.unfusedMs / result.fusedMs;
  }
  printJson(std::move(answer));
}

static void printText(const GpuBenchResult &result) {
  llvm::raw_ostream &os = llvm::outs();
  os << "gpu       " << result.gpu << "\n"
     << llvm::format("fused    %10.4f ms, %.0f GB/s\n", result.fusedMs,
                     result.bytesPerMs() * 1e-6);
  if (result.unfusedMs)
    os << llvm::format("unfused  %10.4f ms\nspeedup  %10.2f\n",
                       *result.unfusedMs, *result.unfusedMs / result.fusedMs);
  os << llvm::format("copy     %10.0f GB/s, reached by %.0f %%\n",
                     result.copyBytesPerMs * 1e-6, 100.0 * result.shareOfCopy())
     << "error    " << llvm::right_justify(formatError(result.error), 10)
     << " against " << result.checkedAgainst;
  for (const auto &[dim, extent] : result.checkedShape)
    os << " " << dim << "=" << extent;
  os << "\nbytes    " << formatBytes(result.inputBytes) << " of inputs, "
     << formatBytes(result.weightBytes) << " of weights, "
     << formatBytes(result.outputBytes) << " of outputs\n"
     << llvm::format("compile  %10.1f ms\n", result.compileMs);
  for (auto [title, steps] : {std::pair("fused", &result.fusedSteps),
                              std::pair("unfused", &result.unfusedSteps)})
    for (const GpuStepTime &step : *steps)
      os << llvm::format("  %-8s %9.4f ms  ", title, step.ms) << step.name
         << "\n";
}

/// The GPU's own form of the command: times by events, no turns.
static llvm::Expected<ExitCode>
benchGpu(mlir::MLIRContext &context, const ProgramFlags &program,
         const InputFlags &inputs, const std::string &target, FusePolicy policy,
         bool usesTuned, bool tunes) {
  if (target == "cuda-emulated")
    return fail(ExitCode::Usage, "found the target 'cuda-emulated', which says "
                                 "nothing of speed, expected cuda");
  auto cache = program.openCache();
  if (!cache)
    return cache.takeError();
  GpuBenchOptions options;
  options.makeInputs = [&](llvm::ArrayRef<Port> ports, const Extents &shape) {
    InputFlags some = inputs;
    some.shape = shape;
    return some.make(ports);
  };
  options.shape = inputs.shape;
  options.maySplitInputs = inputs.files.empty() && inputs.npz.empty();
  options.target = target;
  options.numerics = program.numerics;
  options.policy = policy;
  options.cache = cache->get();
  options.onReport = tellDeclined;
  options.usesTuned = usesTuned;
  options.tunes = tunes;
  Progress progress("bench", 3);
  options.onProgress = [&](llvm::StringRef what) { progress.step(what); };
  options.onTuned = [&](llvm::StringRef what) {
    progress.clear();
    llvm::errs() << what;
  };
  auto result =
      benchOnGpu(context, program.path, program.loadOptions(), options);
  if (!result)
    return result.takeError();
  progress.clear();
  if (tunes)
    tellNotKept(options.cache != nullptr);
  if (program.isJson())
    printJsonOf(*result);
  else
    printText(*result);
  return ExitCode::Ok;
}

llvm::Expected<ExitCode> benchCommand(const Command &command,
                                      Arguments arguments) {
  ProgramFlags program;
  InputFlags inputs;
  BenchOptions options;
  std::string baseline = "unfused", expected;
  bool takesTurns = false, isRefused = false, tunes = false;
  FusePolicy policy = FusePolicy::Auto;
  Flags flags;
  program.addTo(flags);
  program.addDtypeTo(flags);
  program.addNumericsTo(flags);
  program.addCacheTo(flags);
  inputs.addTo(flags, /*withFiles=*/true);
  flags.integer("threads", "N", "threads (1)", options.threads, 1, 1024);
  addFuseTo(flags, policy);
  addTunedTo(flags, options.usesTuned);
  addTuneTo(flags, tunes);
  flags.choice("baseline", "what it is compared with (unfused)", baseline,
               {"unfused"});
  flags.integer("pairs", "N", "least number of paired runs (7)",
                options.minPairs, 1, 1000000);
  flags.toggle("kernels", "times every step of both programs",
               options.timesSteps);
  flags.text("target", "NAME",
             "avx512, avx2, baseline, cuda, cuda-sm80 or cuda-sm90 (what the "
             "machine's CPU offers)",
             options.target);
  flags.text("expected-to", "FILE.npz",
             "writes what the answer was checked against", expected);
  flags.toggle("turns",
               "reads lines 'fused|unfused THREADS RUNS' and times these runs",
               takesTurns);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  if (llvm::Error error = checkTune(tunes, options.target))
    return std::move(error);
  auto context = makeContext();
  options.makeInputs = [&](llvm::ArrayRef<Port> ports) {
    return inputs.make(ports);
  };
  if (!expected.empty())
    options.onExpected = [&](llvm::ArrayRef<NamedTensor> arrays) {
      return writeExpected(expected, arrays);
    };
  if (llvm::StringRef(options.target).starts_with("cuda"))
    return benchGpu(*context, program, inputs, options.target, policy,
                    options.usesTuned, tunes);
  if (takesTurns)
    serveTurns(options, isRefused);
  options.numerics = program.numerics;
  options.policy = policy;
  Progress progress("bench", 3);
  options.onProgress = [&](llvm::StringRef what) { progress.step(what); };
  auto result = bench(*context, program.path, program.loadOptions(), options);
  if (!result)
    return result.takeError();
  progress.clear();
  if (isRefused)
    return fail(ExitCode::Usage, "found another line on stdin, expected "
                                 "'fused' or 'unfused', threads and runs");
  if (takesTurns)
    return ExitCode::Ok;
  if (program.isJson()) {
    printJsonOf(*result, options.timesSteps);
    return ExitCode::Ok;
  }
  printText(*result);
  if (options.timesSteps) {
    printSteps("fused", result->fusedSteps);
    printSteps("unfused", result->unfusedSteps);
  }
  return ExitCode::Ok;
}

} // namespace refold
