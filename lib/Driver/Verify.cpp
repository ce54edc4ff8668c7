// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Driver/Verify.h"
#include "VerifyShapes.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Conversion/RoundFactors.h"
#include "refold/Driver/Owed.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include <cmath>
#include <random>

namespace refold {

const OutputCase &OutputVerdict::worst() const {
  auto badness = [](const OutputCase &one) {
    // Beyond every error: a lost class, or an error that is no number.
    if (!one.isGood())
      return HUGE_VAL;
    return std::max(one.fusedError / one.bound,
                    one.touchedError / one.touchedBound);
  };
  return *llvm::max_element(cases,
                            [&](const OutputCase &a, const OutputCase &b) {
                              return badness(a) < badness(b);
                            });
}

bool Verification::isGood() const {
  bool isGood = equalAcrossThreads && equalAcrossStrides;
  for (const OutputVerdict &output : outputs)
    isGood &= output.cases.empty() || output.worst().isGood();
  return isGood;
}

namespace {

bool isNarrow(const Port &port) {
  return isFloat(port.dtype) && byteWidth(port.dtype) < 4;
}

Deviation compareParts(const Tensor &result, const RefOutput &exact,
                       const Apart &apart) {
  return compare(result, exact, /*isRunning=*/false, /*leastOfRow=*/1, apart);
}

void addUnfused(OutputCase &one, const Deviation &deviation) {
  one.unfusedError = std::max(one.unfusedError, deviation.error);
  one.touchedUnfusedError =
      std::max(one.touchedUnfusedError, deviation.touchedError);
}

/// The forms of one program.
struct Forms {
  LoadedProgram reference;
  CompiledProgram unfused;
  /// Unfused without the rounding of results to a narrow storage type, which
  /// hides most errors: then the few that cross a boundary are no measure.
  std::optional<CompiledProgram> unrounded;
  /// As scheduled, then with other cuts of the stream.
  std::vector<CompiledProgram> fused;
};

/// The walk over the cases.
class Verifier {
public:
  Verifier(const VerifyOptions &options, Forms &forms)
      : options(options), forms(forms), inputs(forms.unfused.inputs),
        function(
            *forms.reference.module->getOps<mlir::func::FuncOp>().begin()) {}

  llvm::Expected<Verification> verifyAll();

  Verification result;

private:
  std::vector<InputRecipe> chooseFamilies() const;
  llvm::Expected<std::vector<OutputCase>> verifyCell(const ShapeToVerify &shape,
                                                     const InputRecipe &family,
                                                     uint64_t seed);
  llvm::Error verifySeed(const InputRecipe &family, uint64_t seed,
                         std::vector<OutputCase> &cases);
  llvm::Error confirmRefusal(llvm::Error refused, llvm::ArrayRef<Tensor> given);
  llvm::Expected<std::vector<RefOutput>> judge(llvm::ArrayRef<Tensor> given);
  llvm::Error measureUnfused(llvm::ArrayRef<Tensor> given,
                             llvm::ArrayRef<RefOutput> exact, const Owed &owed,
                             llvm::MutableArrayRef<OutputCase> cases);
  llvm::Error measureCondition(const InputRecipe &family,
                               std::vector<OutputCase> &cases);
  llvm::Error checkUnfused(AsWritten &written, std::vector<OutputCase> &cases);
  llvm::Error countWrongRows(AsWritten &written, llvm::ArrayRef<Tensor> results,
                             const CompiledProgram &form,
                             std::vector<OutputCase> &cases);
  llvm::Error checkBits(CompiledProgram &form, llvm::ArrayRef<Tensor> given,
                        llvm::ArrayRef<Tensor> expected);
  llvm::Error checkViews(llvm::ArrayRef<Tensor> given,
                         llvm::ArrayRef<Tensor> expected);
  llvm::Error noteShape(size_t number, const Extents &shape);
  bool readsNarrow() const { return llvm::any_of(inputs, isNarrow); }

  const VerifyOptions &options;
  Forms &forms;
  llvm::ArrayRef<Port> inputs;
  mlir::func::FuncOp function;
  /// What the fused program rounds at running values.
  RunningRoundings running;
  NanPolicy nans = NanPolicy::Kept;
  std::vector<bool> ofRows; ///< of one number, by output
  /// Why the program does not take the shape at hand.
  std::optional<std::string> refusal;
};

/// Where no input follows the family, one of them is all.
std::vector<InputRecipe> Verifier::chooseFamilies() const {
  bool matters = llvm::any_of(inputs, [&](const Port &port) {
    bool follows = isFloat(port.dtype) || port.dtype == DType::Bool;
    return follows && !options.inputs.count(port.name);
  });
  if (matters || options.families.empty())
    return options.families;
  return {options.families.front()};
}

/// Are the bits the same for every number of threads?
llvm::Error Verifier::checkBits(CompiledProgram &form,
                                llvm::ArrayRef<Tensor> given,
                                llvm::ArrayRef<Tensor> expected) {
  for (int64_t threads : llvm::ArrayRef(options.threads).drop_front()) {
    auto again = form.executable.run(given, threads);
    if (!again)
      return again.takeError();
    result.equalAcrossThreads &= llvm::equal(*again, expected, hasEqualBits);
  }
  return llvm::Error::success();
}

/// Are the bits the same behind strides?
llvm::Error Verifier::checkViews(llvm::ArrayRef<Tensor> given,
                                 llvm::ArrayRef<Tensor> expected) {
  for (auto *make : {makeStrided, makeTransposed}) {
    std::vector<Tensor> views;
    for (const Tensor &input : given) {
      auto view = make(input);
      if (!view)
        return view.takeError();
      views.push_back(std::move(*view));
    }
    auto again =
        forms.fused.front().executable.run(views, options.threads.front());
    if (!again)
      return again.takeError();
    result.equalAcrossStrides &= llvm::equal(*again, expected, hasEqualBits);
  }
  return llvm::Error::success();
}

/// What the unfused program gives before results are stored, against `exact`.
/// Narrow storage types are computed in f32: `given` holds floats of that type.
llvm::Error Verifier::measureUnfused(llvm::ArrayRef<Tensor> given,
                                     llvm::ArrayRef<RefOutput> exact,
                                     const Owed &owed,
                                     llvm::MutableArrayRef<OutputCase> cases) {
  CompiledProgram &form = forms.unrounded ? *forms.unrounded : forms.unfused;
  auto found = form.executable.run(given, options.threads.front());
  if (!found)
    return found.takeError();
  for (auto [i, one] : llvm::enumerate(cases))
    addUnfused(one, compareParts((*found)[i], exact[i], owed.apartOf(i)));
  return llvm::Error::success();
}

/// Where two large terms cancel, one input decides all of a case, and which of
/// two programs errs more there is luck. What unfused errs on inputs that
/// differ in their last bit is the part of the error that is the problem's own.
llvm::Error Verifier::measureCondition(const InputRecipe &family,
                                       std::vector<OutputCase> &cases) {
  if (readsNarrow() && !forms.unrounded)
    return llvm::Error::success(); // no program takes what is in between
  for (size_t i = 0; i < cases.size(); ++i) {
    if (!cases[i].mayBeLuck())
      continue;
    uint64_t seed = cases[i].worstSeed;
    auto given =
        makeInputs(inputs, cases[i].shape, family, options.inputs, seed);
    if (!given)
      return given.takeError();
    auto reference = judge(*given);
    if (!reference)
      return reference.takeError();
    auto written =
        forms.unfused.executable.run(*given, options.threads.front());
    if (!written)
      return written.takeError();
    auto fused =
        forms.fused.front().executable.run(*given, options.threads.front());
    if (!fused)
      return fused.takeError();
    Owed owed(function, *given, seed);
    if (llvm::Error error =
            owed.findLost(*written, llvm::ArrayRef(*fused), *reference))
      return error;
    auto measure = [&](llvm::ArrayRef<Tensor> moved) {
      return measureUnfused(moved, *reference, owed, cases);
    };
    if (llvm::Error error = eachMoved(*given, seed, measure))
      return error;
    cases[i].isConditioned = true;
  }
  return llvm::Error::success();
}

llvm::Error Verifier::checkUnfused(AsWritten &written,
                                   std::vector<OutputCase> &cases) {
  std::vector<UnfusedVerdict> verdicts;
  for (const OutputCase &one : cases)
    verdicts.push_back(one.asWritten);
  if (llvm::Error error = written.judge(nans, verdicts))
    return error;
  for (auto [one, verdict] : llvm::zip_equal(cases, verdicts))
    one.asWritten = verdict;
  return llvm::Error::success();
}

/// Rows of one number that `results` have wrong.
llvm::Error Verifier::countWrongRows(AsWritten &written,
                                     llvm::ArrayRef<Tensor> results,
                                     const CompiledProgram &form,
                                     std::vector<OutputCase> &cases) {
  bool isUnfused = &form == &forms.unfused;
  for (auto [i, one] : llvm::enumerate(cases)) {
    // What is rounded at running values, or to factors, is no digit lost.
    if (!ofRows[i] || !running.empty() || form.factorRounding[i] > 0)
      continue;
    auto wrong = written.countWrongRows(i, results[i]);
    if (!wrong)
      return wrong.takeError();
    (isUnfused ? one.asWritten.wrongRows : one.wrongRows) += *wrong;
  }
  return llvm::Error::success();
}

llvm::Expected<std::vector<RefOutput>>
Verifier::judge(llvm::ArrayRef<Tensor> given) {
  EvaluationOptions exactly;
  exactly.keepOutputsExact = true;
  exactly.running = running;
  return evaluateProgram(function, given, exactly);
}

/// What the program's own checks refuse, every form has to refuse.
llvm::Error Verifier::confirmRefusal(llvm::Error refused,
                                     llvm::ArrayRef<Tensor> given) {
  std::string message;
  ExitCode code = takeError(std::move(refused), message);
  if (code != ExitCode::Model)
    return fail(code, message);
  auto confirm = [&](CompiledProgram &form) {
    auto found = form.executable.run(given, options.threads.front());
    if (found)
      return fail(ExitCode::Mismatch,
                  "found results, expected the error: " + message);
    return llvm::handleErrors(found.takeError(), [](const Failure &) {});
  };
  if (llvm::Error error = confirm(forms.unfused))
    return error;
  for (CompiledProgram &form : forms.fused)
    if (llvm::Error error = confirm(form))
      return error;
  refusal = message;
  return llvm::Error::success();
}

llvm::Error Verifier::verifySeed(const InputRecipe &family, uint64_t seed,
                                 std::vector<OutputCase> &cases) {
  auto given =
      makeInputs(inputs, cases.front().shape, family, options.inputs, seed);
  if (!given)
    return given.takeError();
  auto reference = judge(*given);
  if (!reference)
    return confirmRefusal(reference.takeError(), *given);
  auto base = forms.unfused.executable.run(*given, options.threads.front());
  if (!base)
    return base.takeError();
  if (options.disturb)
    options.disturb(*base, /*isFused=*/false);
  std::vector<std::vector<Tensor>> found;
  for (CompiledProgram &form : forms.fused) {
    auto outputs = form.executable.run(*given, options.threads.front());
    if (!outputs)
      return outputs.takeError();
    if (options.disturb)
      options.disturb(*outputs, /*isFused=*/true);
    found.push_back(std::move(*outputs));
  }
  Owed owed(function, *given, seed);
  llvm::SmallVector<llvm::ArrayRef<Tensor>> fused(found.begin(), found.end());
  if (llvm::Error error = owed.findLost(*base, fused, *reference))
    return error;
  bool isFirst = cases.front().seeds == 0, isJudged = isFirst;
  for (auto [i, one] : llvm::enumerate(cases)) {
    Deviation deviation =
        compareParts((*base)[i], (*reference)[i], owed.apartOf(i));
    isJudged |=
        std::max(deviation.error, deviation.touchedError) > one.asWritten.bound;
    addUnfused(one, deviation);
    one.touchedUnfusedError =
        std::max(one.touchedUnfusedError, owed.allowanceOfTouched(i));
    one.unfusedClassErrors += deviation.wrongClass;
    one.lost += owed.apartOf(i).lost.count();
  }
  if (forms.unrounded) {
    auto wide = asComputed(*given);
    if (!wide)
      return wide.takeError();
    if (llvm::Error error = measureUnfused(*wide, *reference, owed, cases))
      return error;
  }
  // What was found wrong of an input before stays found.
  isJudged &= llvm::all_of(
      cases, [](const OutputCase &one) { return one.asWritten.isGood(); });
  UnfusedRun run{function, *given, *base, *reference, owed, seed, {}};
  AsWritten written(run);
  if (isJudged)
    if (llvm::Error error = checkUnfused(written, cases))
      return error;
  if (llvm::Error error = countWrongRows(written, *base, forms.unfused, cases))
    return error;
  for (auto [form, outputs] : llvm::zip(forms.fused, found)) {
    for (size_t i = 0; i < cases.size(); ++i) {
      OutputCase &one = cases[i];
      const Tensor &y = outputs[i];
      const RefOutput &exact = (*reference)[i];
      double rounding = form.factorRounding[i];
      Deviation deviation = compare(y, exact, !running.empty(),
                                    leastOfRow(rounding), owed.apartOf(i));
      one.shareOfBound = std::max(one.shareOfBound, deviation.shareOfBound);
      one.unknownError = std::max(one.unknownError, deviation.unknownError);
      if (deviation.error > one.fusedError ||
          deviation.touchedError > one.touchedError)
        one.worstSeed = seed;
      one.fusedError = std::max(one.fusedError, deviation.error);
      one.touchedError = std::max(one.touchedError, deviation.touchedError);
      auto losses = owed.countLosses(i, y, (*base)[i], exact, nans);
      if (!losses)
        return losses.takeError();
      one.classLosses += *losses;
    }
    if (llvm::Error error = countWrongRows(written, outputs, form, cases))
      return error;
    if (!isFirst)
      continue;
    if (llvm::Error error = checkBits(form, *given, outputs))
      return error;
    if (&form == &forms.fused.front())
      if (llvm::Error error = checkViews(*given, outputs))
        return error;
  }
  for (OutputCase &one : cases)
    ++one.seeds;
  ++result.coverage.inputs;
  return llvm::Error::success();
}

llvm::Expected<std::vector<OutputCase>>
Verifier::verifyCell(const ShapeToVerify &shape, const InputRecipe &family,
                     uint64_t seed) {
  llvm::ArrayRef<Port> outputs = forms.unfused.outputs;
  std::vector<OutputCase> cases(outputs.size());
  for (OutputCase &one : cases) {
    one.shape = shape.extents;
    one.family = describe(family);
  }
  auto setBounds = [&] {
    for (auto [one, port, rounding] :
         llvm::zip_equal(cases, outputs, forms.fused.front().factorRounding)) {
      one.bound = boundOf(one.unfusedError, port.dtype, rounding);
      one.touchedBound =
          boundOf(std::max(one.unfusedError, one.touchedUnfusedError),
                  port.dtype, rounding);
    }
  };
  auto isDone = [&] {
    return llvm::none_of(cases,
                         [](const OutputCase &one) { return one.mayBeLuck(); });
  };
  auto addCondition = [&]() -> llvm::Error {
    if (isDone())
      return llvm::Error::success();
    if (llvm::Error error = measureCondition(family, cases))
      return error;
    setBounds();
    return llvm::Error::success();
  };
  // Where errors are large on few inputs only, many inputs are still few.
  constexpr int64_t kManySeeds = 32, kManyCostly = 4, kMostCostly = 8;
  int64_t most = options.seeds, few = std::min(options.firstSeeds, most),
          many = kManySeeds;
  if (shape.isCostly) {
    few = 1;
    many = kManyCostly;
    most = std::min(most, kMostCostly);
  }
  for (int64_t i = 0; i < most; ++i) {
    if (i == many)
      if (llvm::Error error = addCondition())
        return std::move(error);
    if (i >= few && isDone())
      return cases;
    if (llvm::Error error = verifySeed(family, seed + i, cases))
      return std::move(error);
    if (refusal)
      return cases;
    setBounds();
  }
  if (llvm::Error error = addCondition())
    return std::move(error);
  return cases;
}

llvm::Expected<Verification> Verifier::verifyAll() {
  CompiledProgram &main = forms.fused.front();
  result.cascades = main.fusion.cascades;
  running = roundingsOf(result.cascades);
  nans = nanPolicyOf(result.cascades);
  for (const CascadeReport &cascade : result.cascades)
    for (const std::string &policy : cascade.policies)
      if (!llvm::is_contained(result.policies, policy))
        result.policies.push_back(policy);
  for (const Port &port : main.outputs) {
    result.outputs.push_back({port.name, {}});
    ofRows.push_back(isOfRows(port, inputs, streamAxesOf(main.fusion)));
  }
  result.coverage.threads = options.threads;

  std::vector<ShapeToVerify> shapes = chooseShapes(
      {function, inputs, streamAxesOf(main.fusion)}, options, result.coverage);
  std::vector<InputRecipe> families = chooseFamilies();
  for (const InputRecipe &family : families)
    result.coverage.families.push_back(describe(family));
  size_t total = shapes.size() * families.size(), done = 0;
  for (auto [number, shape] : llvm::enumerate(shapes)) {
    refusal.reset();
    for (const InputRecipe &family : families) {
      uint64_t seed = options.seed + number * options.firstSeeds;
      auto cases = verifyCell(shape, family, seed);
      if (!cases)
        return cases.takeError();
      if (refusal)
        break;
      for (auto [output, one] : llvm::zip(result.outputs, *cases))
        output.cases.push_back(std::move(one));
      if (options.onProgress)
        options.onProgress(++done, total, describe(family));
    }
    if (llvm::Error error = noteShape(number, shape.extents))
      return std::move(error);
  }
  return std::move(result);
}

/// The length of a shape is covered, or left out with the program's reason. A
/// program that takes none of them is not verified.
llvm::Error Verifier::noteShape(size_t number, const Extents &shape) {
  Coverage &coverage = result.coverage;
  bool hasStream = !coverage.streamAxes.empty();
  if (!hasStream && number == 0)
    return refusal ? fail(ExitCode::Model, *refusal) : llvm::Error::success();
  if (!hasStream || number == options.streamExtents.size()) {
    if (!refusal)
      coverage.broad = shape;
    return llvm::Error::success();
  }
  int64_t length = options.streamExtents[number];
  if (!refusal)
    coverage.lengths.push_back(length);
  else
    coverage.refused.push_back({length, *refusal});
  bool isLast = number + 1 == options.streamExtents.size();
  if (isLast && coverage.lengths.empty())
    return fail(ExitCode::Model, coverage.refused.front().reason);
  return llvm::Error::success();
}

/// The first with the narrowest tiles, so that short streams are cut too.
std::vector<StreamSplit> drawSplits(const VerifyOptions &options) {
  std::mt19937_64 random(options.splitSeed);
  std::vector<StreamSplit> splits;
  for (int64_t i = 0; i < options.splits; ++i)
    splits.push_back({2 + static_cast<int64_t>(random() % 8),
                      i == 0 ? 1 : 1 + static_cast<int64_t>(random() % 128)});
  return splits;
}

/// Are all floats computed in f32 and some stored in less, in a program whose
/// types can be replaced?
bool canBeUnrounded(llvm::StringRef path, const CompiledProgram &program) {
  bool hasNarrow = false, isWide = false;
  for (const auto *ports : {&program.inputs, &program.outputs})
    for (const Port &port : *ports) {
      hasNarrow |= isNarrow(port);
      isWide |= port.dtype == DType::F64;
    }
  return path.ends_with(".fold") && hasNarrow && !isWide;
}

} // namespace

llvm::Expected<Verification> verify(mlir::MLIRContext &context,
                                    llvm::StringRef path,
                                    const LoadOptions &loadOptions,
                                    const VerifyOptions &options) {
  auto compileAs =
      [&](FusePolicy policy, std::optional<StreamSplit> split,
          const LoadOptions &loadOptions) -> llvm::Expected<CompiledProgram> {
    CompileOptions compileOptions;
    compileOptions.policy = policy;
    compileOptions.split = split;
    if (!split) // nobody runs what is cut otherwise
      compileOptions.cache = options.cache;
    // What a GPU does is held against what the CPU does unfused.
    bool isCuda = llvm::StringRef(options.target).starts_with("cuda");
    if (!isCuda || policy == FusePolicy::Always)
      compileOptions.target = options.target;
    if (policy == FusePolicy::Always && !split)
      compileOptions.onReport = options.onReport;
    compileOptions.numerics = options.numerics;
    return compileFile(context, path, loadOptions, compileOptions);
  };
  auto reference = load(context, path, loadOptions);
  if (!reference)
    return reference.takeError();
  if (llvm::Error error = checkExtents(reference->inputs, options.shape))
    return std::move(error);
  auto unfused = compileAs(FusePolicy::Never, std::nullopt, loadOptions);
  if (!unfused)
    return unfused.takeError();
  Forms forms{std::move(*reference), std::move(*unfused), std::nullopt, {}};
  if (canBeUnrounded(path, forms.unfused)) {
    LoadOptions asComputed = loadOptions;
    asComputed.dtype = DType::F32;
    auto unrounded = compileAs(FusePolicy::Never, std::nullopt, asComputed);
    if (!unrounded)
      return unrounded.takeError();
    // Not where inputs have types of their own.
    if (llvm::none_of(unrounded->inputs, isNarrow))
      forms.unrounded = std::move(*unrounded);
  }
  auto fused = compileAs(FusePolicy::Always, std::nullopt, loadOptions);
  if (!fused)
    return fused.takeError();
  forms.fused.push_back(std::move(*fused));
  std::vector<StreamSplit> splits;
  if (!forms.fused.front().fusion.streamAxes.empty())
    splits = drawSplits(options);
  for (const StreamSplit &split : splits) {
    auto cut = compileAs(FusePolicy::Always, split, loadOptions);
    if (!cut)
      return cut.takeError();
    forms.fused.push_back(std::move(*cut));
  }
  Verifier verifier(options, forms);
  verifier.result.coverage.splits = std::move(splits);
  return verifier.verifyAll();
}

} // namespace refold
