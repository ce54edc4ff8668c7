// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Tune.h"
#include "TunedSchedules.h"
#include "refold/Conversion/RoundFactors.h"
#include "refold/Driver/Compare.h"
#include "refold/Driver/Work.h"
#include "refold/Schedule/Schedule.h"
#include "refold/Support/Error.h"
#include "llvm/ADT/ScopeExit.h"

namespace refold {

namespace {

/// Steps that take less of a program are left as they are.
constexpr double kLeastShare = 0.1;
/// A winner must be faster by more than two runs differ.
constexpr double kLeastGain = 0.03;
/// Largest difference to the answer of the chosen schedule: sums in another
/// order.
constexpr double kMostDifference = 1e-3;
constexpr int kRuns = 9;

/// A schedule with what distinguishes it from the chosen one.
struct Variant {
  std::string change;
  Schedule schedule;
};

std::vector<Variant> variantsOf(const Schedule &chosen) {
  std::vector<Variant> result;
  constexpr int64_t kMostTile = 1 << 16;
  for (const auto &[name, size] : chosen.tile)
    for (int64_t tile : {size / 4, size / 2, size * 2, size * 4})
      if (tile >= 1 && tile <= kMostTile && tile != size) {
        Variant &v = result.emplace_back(Variant{"tile " + name + "=", chosen});
        v.change += std::to_string(tile);
        v.schedule.tile[name] = tile;
      }
  for (int64_t rows : {4, 6, 8, 12})
    if (chosen.registerRows > 1 && rows != chosen.registerRows) {
      Variant &v = result.emplace_back(
          Variant{"register rows=" + std::to_string(rows), chosen});
      v.schedule.registerRows = rows;
    }
  for (int64_t lanes : {chosen.registerLanes / 2, chosen.registerLanes * 2})
    if (lanes >= 1 && lanes <= 256) {
      Variant &v = result.emplace_back(
          Variant{"register lanes=" + std::to_string(lanes), chosen});
      v.schedule.registerLanes = lanes;
    }
  if (!chosen.prefetch)
    result.emplace_back(Variant{"prefetch", chosen}).schedule.prefetch = true;
  for (Variant &v : result)
    v.schedule.pack.clear(); // chosen again, and laid under these fields
  return result;
}

class Tuner {
public:
  Tuner(mlir::MLIRContext &context, llvm::StringRef path,
        const LoadOptions &loadOptions, const TuneOptions &options)
      : context(context), path(path), loadOptions(loadOptions),
        options(options) {}
  llvm::Expected<std::vector<TuneReport>> run();

private:
  /// The program with `schedules` for its cascades, by their number.
  llvm::Expected<CompiledProgram>
  compileWith(const std::map<size_t, std::string> &schedules);
  llvm::Expected<std::vector<double>> timeSteps(CompiledProgram &program);
  llvm::Error tuneKernel(size_t op, size_t step, TuneReport &report);
  llvm::Expected<TuneCandidate> tryOne(size_t op, size_t step,
                                       const Variant &variant);
  llvm::Expected<double> predictStep(const CompiledProgram &program,
                                     size_t step);
  llvm::Expected<bool> winsAgain(size_t op, size_t step,
                                 const TuneCandidate &best);

  mlir::MLIRContext &context;
  llvm::StringRef path;
  const LoadOptions &loadOptions;
  const TuneOptions &options;
  std::optional<CpuTarget> target;
  std::vector<Tensor> inputs, expected;
  Extents extents;
  std::vector<CascadeOp> ops; ///< of `fused`
  mlir::OwningOpRef<mlir::ModuleOp> fused;
  std::map<size_t, std::string> winners;
};

llvm::Expected<CompiledProgram>
Tuner::compileWith(const std::map<size_t, std::string> &schedules) {
  CompileOptions compileOptions;
  compileOptions.policy = options.policy;
  compileOptions.numerics = options.numerics;
  compileOptions.target = options.target;
  compileOptions.usualExtents = extents;
  compileOptions.onFused = [&](mlir::ModuleOp module) {
    if (!fused) {
      fused = module.clone();
      fused->walk([&](CascadeOp op) { ops.push_back(op); });
    }
    size_t number = 0;
    module.walk([&](CascadeOp op) {
      if (auto found = schedules.find(number++); found != schedules.end())
        setSchedule(op, found->second, target->facts);
    });
  };
  return compileFile(context, path, loadOptions, compileOptions);
}

llvm::Expected<std::vector<double>> Tuner::timeSteps(CompiledProgram &program) {
  std::vector<double> best(program.executable.spec().steps.size(), HUGE_VAL);
  auto outputs = program.executable.run(inputs, options.threads);
  if (!outputs)
    return outputs.takeError();
  program.executable.observeSteps(
      [&](size_t step, double ms) { best[step] = std::min(best[step], ms); });
  auto stop =
      llvm::make_scope_exit([&] { program.executable.observeSteps(nullptr); });
  for (int run = 0; run < kRuns; ++run)
    if (llvm::Error error =
            program.executable.runInto(inputs, *outputs, options.threads))
      return std::move(error);
  return best;
}

llvm::Expected<double> Tuner::predictStep(const CompiledProgram &program,
                                          size_t step) {
  std::vector<llvm::SmallVector<int64_t, 4>> shapes;
  for (const Tensor &tensor : inputs)
    shapes.emplace_back(tensor.shape());
  auto work = measureWork(context, program, shapes);
  if (!work)
    return work.takeError();
  predictTimes(*work, target->facts, knownFacts(*target).rates,
               options.threads);
  return work->steps[step].predicted.ms;
}

llvm::Expected<TuneCandidate> Tuner::tryOne(size_t op, size_t step,
                                            const Variant &variant) {
  TuneCandidate candidate;
  candidate.change = variant.change;
  llvm::raw_string_ostream(candidate.schedule)
      << mlir::Attribute(variant.schedule.toAttr(&context));
  std::map<size_t, std::string> schedules = winners;
  if (!variant.change.empty())
    schedules[op] = candidate.schedule;
  auto program = compileWith(schedules);
  if (!program)
    return program.takeError();
  auto outputs = program->executable.run(inputs, options.threads);
  if (!outputs)
    return outputs.takeError();
  if (expected.empty())
    expected = *outputs;
  for (auto [found, wanted, rounding] :
       llvm::zip_equal(*outputs, expected, program->factorRounding)) {
    RefOutput reference{RefTensor::fromTensor(wanted), std::nullopt};
    Deviation deviation = compare(found, reference, /*isRunning=*/false);
    double most =
        isFloat(found.dtype())
            ? kMostDifference + stepOf(found.dtype()) + allowanceOf(rounding)
            : 0.0;
    candidate.isWrong |=
        deviation.wrongClass != 0 || !(deviation.error <= most);
  }
  auto times = timeSteps(*program);
  if (!times)
    return times.takeError();
  candidate.ms = (*times)[step];
  auto predicted = predictStep(*program, step);
  if (!predicted)
    return predicted.takeError();
  candidate.predictedMs = *predicted;
  return candidate;
}

/// Times the chosen schedule and the best candidate in turns: the machine may
/// have been slower while one of them was timed.
llvm::Expected<bool> Tuner::winsAgain(size_t op, size_t step,
                                      const TuneCandidate &best) {
  constexpr int kTurns = 3;
  std::map<size_t, std::string> schedules = winners;
  auto chosen = compileWith(schedules);
  if (!chosen)
    return chosen.takeError();
  schedules[op] = best.schedule;
  auto other = compileWith(schedules);
  if (!other)
    return other.takeError();
  double ms = HUGE_VAL, otherMs = HUGE_VAL;
  for (int turn = 0; turn < kTurns; ++turn)
    for (auto [program, least] :
         {std::pair(&*chosen, &ms), {&*other, &otherMs}}) {
      auto times = timeSteps(*program);
      if (!times)
        return times.takeError();
      *least = std::min(*least, (*times)[step]);
    }
  return otherMs < ms * (1.0 - kLeastGain);
}

llvm::Error Tuner::tuneKernel(size_t op, size_t step, TuneReport &report) {
  mlir::FailureOr<Schedule> chosen = chooseSchedule(ops[op], target->facts);
  if (mlir::failed(chosen))
    return fail(ExitCode::Internal, "a kernel has no schedule");
  std::vector<Variant> variants = variantsOf(*chosen);
  variants.insert(variants.begin(), Variant{"", *chosen});
  for (auto [i, variant] : llvm::enumerate(variants)) {
    if (options.onProgress)
      options.onProgress(report.step + ", schedule " + std::to_string(i + 1) +
                         " of " + std::to_string(variants.size()) + " " +
                         variant.change);
    auto candidate = tryOne(op, step, variant);
    if (!candidate) {
      if (i == 0)
        return candidate.takeError();
      llvm::consumeError(candidate.takeError()); // no schedule of this kernel
      continue;
    }
    report.candidates.push_back(std::move(*candidate));
  }
  double least = report.candidates[0].ms * (1.0 - kLeastGain);
  for (auto [i, candidate] : llvm::enumerate(report.candidates))
    if (i > 0 && !candidate.isWrong && candidate.ms < least) {
      least = candidate.ms;
      report.best = i;
    }
  if (!report.best)
    return llvm::Error::success();
  auto isWinner = winsAgain(op, step, report.candidates[report.best]);
  if (!isWinner)
    return isWinner.takeError();
  if (!*isWinner) {
    report.best = 0;
    return llvm::Error::success();
  }
  winners[op] = report.candidates[report.best].schedule;
  report.keptIn = keepSchedule(ops[op], extents, *target, winners[op]);
  return llvm::Error::success();
}

llvm::Expected<std::vector<TuneReport>> Tuner::run() {
  auto found = detectTarget(options.target);
  if (!found)
    return found.takeError();
  target = std::move(*found);
  auto loaded = load(context, path, loadOptions);
  if (!loaded)
    return loaded.takeError();
  if (llvm::Error error = checkExtents(loaded->inputs, options.shape))
    return std::move(error);
  auto made = makeInputs(loaded->inputs, options.shape, {}, options.inputs,
                         options.seed);
  if (!made)
    return made.takeError();
  inputs = std::move(*made);
  extents = extentsOf(loaded->inputs, inputs);
  auto program = compileWith({});
  if (!program)
    return program.takeError();
  auto times = timeSteps(*program);
  if (!times)
    return times.takeError();
  double total = 0.0;
  for (double ms : *times)
    total += ms < HUGE_VAL ? ms : 0.0;
  // Kernel steps run the cascades in order; a folded epilogue has no step.
  std::vector<TuneReport> reports;
  const auto &steps = program->executable.spec().steps;
  size_t op = 0;
  for (auto [step, ms] : llvm::enumerate(*times)) {
    if (!std::holds_alternative<KernelStep>(steps[step].what))
      continue;
    auto nameOf = [](CascadeOp cascade) {
      auto name = mlir::dyn_cast<mlir::NameLoc>(cascade->getLoc());
      return name ? name.getName().getValue() : llvm::StringRef();
    };
    while (op < ops.size() && nameOf(ops[op]) != steps[step].name)
      ++op;
    if (op == ops.size())
      break;
    // A step that is done once is told of in the first run only.
    if (ms < HUGE_VAL && ms >= kLeastShare * total) {
      TuneReport &report = reports.emplace_back();
      report.step = steps[step].name;
      if (llvm::Error error = tuneKernel(op, step, report))
        return std::move(error);
    }
    ++op;
  }
  return reports;
}

} // namespace

llvm::Expected<std::vector<TuneReport>> tune(mlir::MLIRContext &context,
                                             llvm::StringRef path,
                                             const LoadOptions &loadOptions,
                                             const TuneOptions &options) {
  return Tuner(context, path, loadOptions, options).run();
}

} // namespace refold
