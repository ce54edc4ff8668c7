// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "JudgeRun.h"
#include "refold/Conversion/RoundFactors.h"
#include "refold/Driver/AsWritten.h"
#include "refold/Driver/Inputs.h"
#include "refold/Support/Error.h"
#include "llvm/Support/Format.h"

namespace refold {

/// Steps of the reference that a benchmark waits for: some ten seconds.
static constexpr int64_t kMaxReferenceSteps = int64_t(5) << 30;
/// Allowed beside a step of the type against the unfused program only.
static constexpr double kMaxDifference = 1e-3;

/// Allowed against the unfused program, where the fused one rounds at running
/// values: each is off by at most one rounding of each term. Of what the
/// program itself rounds between products (`--multiply`), a difference in the
/// last bit makes one of a step of that type, for products of its own: it is
/// allowed once.
static double maxDifference(const CompiledProgram &fused, size_t index,
                            std::optional<DType> multiply) {
  double bound = kMaxDifference + (multiply ? stepOf(*multiply) : 0.0) +
                 stepOf(fused.outputs[index].dtype) +
                 allowanceOf(fused.factorRounding[index]);
  for (const CascadeReport &cascade : fused.fusion.cascades)
    for (const RoundingReport &rounding : cascade.roundings)
      bound += 2.0 * rounding.unit;
  return bound;
}

static llvm::Error mismatch(const Port &port, double error, double bound,
                            int64_t losses, llvm::StringRef against) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "output '" << port.name << "': found ";
  if (losses)
    stream << losses << " elements of another class than " << against
           << ", expected finite, infinite and NaN elements where it has them";
  else
    stream << "an error of " << llvm::format("%.2e", error) << " against "
           << against << ", expected at most " << llvm::format("%.2e", bound);
  return fail(ExitCode::Mismatch, text);
}

/// One input is all that is looked at: where terms cancel, which of two
/// programs errs more on it is luck. So as in `verify` the unfused error is the
/// largest on inputs that differ in their last bits. Inputs of 16 bits and
/// fewer have no such neighbours.
static llvm::Error measureCondition(const RunToJudge &run, const Owed &owed,
                                    RunJudgement &judged,
                                    std::vector<Deviation> &errors) {
  bool hasNarrow = llvm::any_of(run.inputs, [](const Tensor &input) {
    return isFloat(input.dtype()) && byteWidth(input.dtype()) < 4;
  });
  if (hasNarrow)
    return llvm::Error::success();
  judged.isConditioned = true;
  auto measure = [&](llvm::ArrayRef<Tensor> moved) -> llvm::Error {
    auto found = run.runUnfused(moved);
    if (!found)
      return found.takeError();
    for (auto [i, output] : llvm::enumerate(*found))
      errors[i].add(compare(output, (*judged.reference)[i], /*isRunning=*/false,
                            /*leastOfRow=*/1, owed.apartOf(i)));
    return llvm::Error::success();
  };
  return eachMoved(run.inputs, /*seed=*/0, measure);
}

llvm::Error compareWithUnfused(const CompiledProgram &fused, size_t index,
                               std::optional<DType> multiply,
                               const Tensor &found, const Tensor &unfused) {
  RefOutput expected{RefTensor::fromTensor(unfused), std::nullopt};
  double error =
      compare(found, expected, false, leastOfRow(fused.factorRounding[index]))
          .error;
  double bound = maxDifference(fused, index, multiply);
  int64_t losses = countClassLosses(found, unfused, expected,
                                    nanPolicyOf(fused.fusion.cascades));
  if (error <= bound && losses == 0)
    return llvm::Error::success();
  return mismatch(fused.outputs[index], error, bound, losses, "unfused");
}

static llvm::Error unfusedMismatch(const Port &port,
                                   const UnfusedVerdict &unfused,
                                   double fusedError) {
  std::string text;
  llvm::raw_string_ostream stream(text);
  stream << "output '" << port.name << "': found ";
  if (unfused.losses)
    stream << unfused.losses
           << " elements of the unfused program of another class than double "
              "and the program rounded as written, expected none";
  else if (unfused.wrongRows)
    stream << unfused.wrongRows
           << " rows of one number of the unfused program without half of "
              "their digits, expected those that the program rounded as "
              "written has";
  else
    stream << "an error of " << llvm::format("%.2e", unfused.error)
           << " of the unfused program against double (fused "
           << llvm::format("%.2e", fusedError) << "), expected at most "
           << llvm::format("%.2e", unfused.bound)
           << ": rounded as written it is "
           << llvm::format("%.2e", unfused.writtenError);
  return fail(ExitCode::Mismatch, text);
}

/// Rows of one number, which are small beside others.
static llvm::Error
countWrongRows(const RunToJudge &run, AsWritten &written,
               llvm::ArrayRef<Tensor> unfusedOutputs,
               llvm::MutableArrayRef<UnfusedVerdict> verdicts) {
  const FuseReport &fusion = run.fused.fusion;
  bool isRunning = !roundingsOf(fusion.cascades).empty();
  std::vector<std::string> streams = streamAxesOf(fusion);
  for (auto [i, port] : llvm::enumerate(run.fused.outputs)) {
    if (isRunning || run.fused.factorRounding[i] > 0 ||
        !isOfRows(port, run.fused.inputs, streams))
      continue;
    auto wrong = written.countWrongRows(i, run.fusedOutputs[i]);
    if (!wrong)
      return wrong.takeError();
    if (*wrong)
      return fail(ExitCode::Mismatch,
                  "output '" + port.name + "': found " + llvm::Twine(*wrong) +
                      " rows of one number without half of their digits, "
                      "expected those that the program rounded as written has");
    wrong = written.countWrongRows(i, unfusedOutputs[i]);
    if (!wrong)
      return wrong.takeError();
    verdicts[i].wrongRows = *wrong;
  }
  return llvm::Error::success();
}

/// What the fused program was held to may have the same fault.
static llvm::Error checkUnfused(const RunToJudge &run, Owed &owed,
                                const EvaluationLimits &limits,
                                llvm::ArrayRef<double> fusedErrors,
                                RunJudgement &judged) {
  std::vector<UnfusedVerdict> verdicts(fusedErrors.size());
  UnfusedRun unfused{run.function,      run.inputs, judged.unfusedOutputs,
                     *judged.reference, owed,
                     /*seed=*/0,        limits};
  NanPolicy nans = nanPolicyOf(run.fused.fusion.cascades);
  AsWritten written(unfused);
  if (llvm::Error error = written.judge(nans, verdicts))
    return error;
  if (llvm::Error error =
          countWrongRows(run, written, judged.unfusedOutputs, verdicts))
    return error;
  for (auto [port, verdict, error] :
       llvm::zip_equal(run.fused.outputs, verdicts, fusedErrors)) {
    if (!verdict.isGood())
      return unfusedMismatch(port, verdict, error);
    judged.error = std::max(judged.error, error);
  }
  return llvm::Error::success();
}

/// Every output against double.
static llvm::Error judgeByReference(const RunToJudge &run, bool isRunning,
                                    RunJudgement &judged) {
  // The program as such was within its limit: roundings and noise, which are
  // steps too, are not a reason to give up on the same elements.
  EvaluationLimits limits;
  limits.steps = 4 * kMaxReferenceSteps;
  Owed owed(run.function, run.inputs, /*seed=*/0, limits);
  if (llvm::Error error = owed.findLost(judged.unfusedOutputs, run.fusedOutputs,
                                        *judged.reference))
    return error;
  NanPolicy nans = nanPolicyOf(run.fused.fusion.cascades);
  std::vector<Deviation> unfused;
  for (auto [i, output] : llvm::enumerate(judged.unfusedOutputs)) {
    Deviation &one = unfused.emplace_back(
        compare(output, (*judged.reference)[i], /*isRunning=*/false,
                /*leastOfRow=*/1, owed.apartOf(i)));
    one.touchedError = std::max(one.touchedError, owed.allowanceOfTouched(i));
  }
  std::vector<double> errors; // of fused
  for (auto [i, port] : llvm::enumerate(run.fused.outputs)) {
    const RefOutput &expected = (*judged.reference)[i];
    double rounding = run.fused.factorRounding[i];
    Deviation found = compare(run.fusedOutputs[i], expected, isRunning,
                              leastOfRow(rounding), owed.apartOf(i));
    // One answer is to be timed: it has to be known to be right.
    found.error = std::max(found.error, found.unknownError);
    auto bound = [&](bool isTouched) {
      double of = unfused[i].error;
      if (isTouched)
        of = std::max(of, unfused[i].touchedError);
      return boundOf(of, port.dtype, rounding);
    };
    auto isWithin = [&] {
      return found.error <= bound(false) && found.touchedError <= bound(true);
    };
    if (!isWithin() && !judged.isConditioned)
      if (llvm::Error failure = measureCondition(run, owed, judged, unfused))
        return failure;
    errors.push_back(std::max(found.error, found.touchedError));
    auto losses = owed.countLosses(i, run.fusedOutputs[i],
                                   judged.unfusedOutputs[i], expected, nans);
    if (!losses)
      return losses.takeError();
    if (*losses || !isWithin()) {
      bool isTouched = found.error <= bound(false);
      return mismatch(port, isTouched ? found.touchedError : found.error,
                      bound(isTouched), *losses, "double");
    }
  }
  return checkUnfused(run, owed, limits, errors, judged);
}

llvm::Expected<RunJudgement> judgeRun(const RunToJudge &run) {
  RunJudgement judged;
  auto unfused = run.runUnfused(run.inputs);
  if (!unfused)
    return unfused.takeError();
  judged.unfusedOutputs = std::move(*unfused);
  EvaluationOptions limited;
  limited.keepOutputsExact = true;
  limited.limits.steps = kMaxReferenceSteps;
  limited.running = roundingsOf(run.fused.fusion.cascades);
  auto reference = evaluateProgram(run.function, run.inputs, limited);
  if (reference) {
    judged.reference = std::move(*reference);
    if (llvm::Error error =
            judgeByReference(run, !limited.running.empty(), judged))
      return std::move(error);
    return std::move(judged);
  }
  std::string message;
  ExitCode code = takeError(reference.takeError(), message);
  if (code != ExitCode::Limit)
    return fail(code, message);
  for (size_t i = 0; i < run.fused.outputs.size(); ++i) {
    RefOutput other{RefTensor::fromTensor(judged.unfusedOutputs[i]),
                    std::nullopt};
    judged.error =
        std::max(judged.error, compare(run.fusedOutputs[i], other).error);
    if (llvm::Error error =
            compareWithUnfused(run.fused, i, run.multiply, run.fusedOutputs[i],
                               judged.unfusedOutputs[i]))
      return std::move(error);
  }
  return std::move(judged);
}

} // namespace refold
