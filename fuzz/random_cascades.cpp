// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random programs: reference = unfused = fused = every split. The cascades are
// evaluated in double precision, by definition and through their states; every
// few programs the generated code runs too. A failure is made small and
// printed.
//
//   random_cascades [--seconds S | --cpu-seconds S] [--programs N] [--seed S]
//                   [--resume FILE] [--failures N] [--compile-every N]
//                   [--strict] [--print]
//
// --resume goes on behind the seed that FILE holds and writes the next one
// there. The summary counts the verdicts by their reason.
//
// Where inputs or a mask hold -inf or NaN and the result is not finite, its
// class (-inf, +inf, NaN) may differ from the unfused one on irregular rows;
// --strict counts that as a difference too.
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "random_cascades_program.h"
#include "random_machine.h"
#include "refold/Driver/Compare.h"
#include "refold/Driver/Driver.h"
#include "refold/Driver/Owed.h"
#include "refold/Frontend/Fold.h"
#include "refold/Reference/Evaluate.h"
#include "refold/Support/RandomInputs.h"
#include "refold/Transforms/FuseCascades.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MemoryBuffer.h"
#include <chrono>
#include <cmath>
#include <cstring>
#include <ctime>
#include <map>
#include <random>

using namespace refold;
using fuzz::RandomProgram;

namespace {

llvm::cl::opt<unsigned> seconds("seconds", llvm::cl::init(10),
                                llvm::cl::desc("time to spend"));
llvm::cl::opt<unsigned> cpuSeconds("cpu-seconds", llvm::cl::init(0),
                                   llvm::cl::desc("processor time to spend"));
llvm::cl::opt<std::string> resume("resume",
                                  llvm::cl::desc("file of the next seed"));
llvm::cl::opt<unsigned> programs("programs", llvm::cl::init(~0u),
                                 llvm::cl::desc("programs to try"));
llvm::cl::opt<uint64_t> firstSeed("seed", llvm::cl::init(1),
                                  llvm::cl::desc("of the first program"));
llvm::cl::opt<unsigned> failures("failures", llvm::cl::init(1),
                                 llvm::cl::desc("failures to look for"));
llvm::cl::opt<unsigned>
    compileEvery("compile-every", llvm::cl::init(8),
                 llvm::cl::desc("generate code for one program in N, 0: none"));
llvm::cl::opt<bool> isStrict("strict",
                             llvm::cl::desc("classes of irregular rows too"));
llvm::cl::opt<bool> printsAll("print", llvm::cl::desc("print every program"));

/// How one program ended. Invalid: the front end or the reference refuses it.
enum class Verdict { Agrees, Invalid, Differs };

struct Outcome {
  Verdict verdict = Verdict::Agrees;
  std::string where, what; ///< where: "fused by definition", ...
  unsigned cascades = 0, fused = 0;
  std::map<std::string, unsigned> reasons; ///< of cuts and notes, by key
};

using Outputs = std::vector<RefOutput>;

/// What a program is compiled to.
constexpr const char *kForms[] = {"unfused", "fused", "fused in segments",
                                  "fused for another machine"};

class Check {
public:
  Check(const RandomProgram &program, uint64_t seed)
      : program(program), seed(seed),
        context(mlir::MLIRContext::Threading::DISABLED),
        handler(&context, [&](mlir::Diagnostic &said) {
          diagnostics += said.str() + "; ";
          return mlir::success();
        }) {}
  Outcome run();

private:
  bool import();
  void makeInputs();
  std::optional<std::string> difference(const Outputs &found,
                                        const Outputs &want);
  double noiseOf(size_t output, const Outputs &want);
  bool isNoise(size_t output, const Tensor &found, const Outputs &want);
  bool hasOneSign(size_t output, int64_t element, double found);
  void compareFused(bool fuses, const Outputs &want, Outcome &outcome);
  bool hasOtherClasses() const;
  /// May results that are not finite be of another class?
  bool forgives() const { return !isStrict && hasOtherClasses(); }
  bool hasOtherSize() const {
    return InputFamily(program.family) >= InputFamily::Tiny;
  }
  void compareCompiled(Outcome &outcome);
  void compareLarger(const RandomProgram &larger,
                     llvm::MutableArrayRef<CompiledProgram> forms,
                     Outcome &outcome);
  std::vector<std::vector<Tensor>>
  runAll(llvm::MutableArrayRef<CompiledProgram> forms, Outcome &outcome);
  void compareRuns(llvm::MutableArrayRef<CompiledProgram> forms,
                   Outcome &outcome);
  llvm::Expected<Outputs> evaluate(mlir::func::FuncOp function,
                                   const EvaluationOptions &options) {
    return evaluateProgram(function, inputs, options);
  }

  const RandomProgram &program;
  uint64_t seed;
  mlir::MLIRContext context;
  std::string diagnostics;
  mlir::ScopedDiagnosticHandler handler;
  mlir::OwningOpRef<mlir::ModuleOp> module;
  std::vector<Tensor> inputs;
  /// In long double, and with inputs and constants moved in their last bits;
  /// once asked for.
  std::vector<Outputs> others;
  /// With sums of infinities of both signs of one sign; once asked for.
  std::vector<Outputs> ofOneSign;
  std::string machine; ///< the other one, and schedules for it
};

mlir::func::FuncOp functionOf(mlir::ModuleOp module) {
  return *module.getOps<mlir::func::FuncOp>().begin();
}

bool Check::import() {
  auto imported = importFold(program.text(), "random.fold", context);
  if (mlir::failed(imported))
    return false;
  module = std::move(*imported);
  return true;
}

void Check::makeInputs() {
  for (const std::string &argument : program.arguments) {
    size_t open = argument.find('['), close = argument.find(']');
    std::vector<int64_t> shape;
    for (size_t at = open + 1; at < close; at += 2)
      shape.push_back(program.extents.at(argument.substr(at, 1)));
    DType dtype = DType::F32;
    if (size_t colon = argument.find(": "); colon != std::string::npos)
      dtype = *parseDType(argument.substr(colon + 2));
    Tensor tensor = llvm::cantFail(Tensor::create(dtype, shape));
    InputRecipe recipe;
    // The array that is reduced gets the special values; another size all have,
    // or it alone.
    bool isMain = argument[0] == 'x' || argument[0] == 'q' ||
                  (hasOtherSize() && seed / 8 % 2);
    recipe.family = isMain ? InputFamily(program.family) : InputFamily::Normal;
    fillRandom(tensor, recipe, seed, argument.substr(0, open));
    inputs.push_back(tensor);
  }
}

/// Is `found` within rounding of `want`? `forgives`: results that are not
/// finite may be of another class.
bool isSame(double found, double want, double scale, double relative,
            bool forgives) {
  if (!std::isfinite(want) && forgives)
    return true;
  if (std::isnan(found) || std::isnan(want))
    return std::isnan(found) && std::isnan(want);
  if (std::isinf(found) || std::isinf(want))
    return found == want;
  // What is left of inputs around 1000 after they cancel is no difference.
  constexpr double kFloor = 1e-7;
  return std::abs(found - want) <= relative * scale + kFloor;
}

/// The key that position `i` of an output selects; nothing outside the list.
std::optional<double> keyOf(const SelectedKeys &selects, int64_t count,
                            int64_t i, double position) {
  llvm::ArrayRef<int64_t> shape = selects.keys.shape();
  int64_t candidates = shape[selects.dim], inner = 1;
  for (unsigned d = selects.dim + 1; d < shape.size(); ++d)
    inner *= shape[d];
  if (!(position >= 0 && position < double(candidates)) || candidates == 0)
    return std::nullopt;
  int64_t outer = selects.keys.numElements() / (candidates * inner);
  int64_t group = i / (count / outer); // ranks and inner positions of one list
  return selects.keys.get((group * candidates + int64_t(position)) * inner +
                          i % inner);
}

/// Are infinities or NaNs given?
bool Check::hasOtherClasses() const {
  auto family = InputFamily(program.family);
  return family == InputFamily::NegInf || family == InputFamily::NaN ||
         program.text().find("-inf") != std::string::npos;
}

/// Moves every float by up to one unit in the last place of f32.
void moveInLastBit(Tensor &tensor, uint64_t seed) {
  if (!isFloat(tensor.dtype()))
    return;
  std::mt19937_64 engine(seed);
  for (int64_t i = 0, e = tensor.numElements(); i < e; ++i)
    tensor.set(i, tensor.get(i) * (1 + (int(engine() % 3) - 1) * 0x1p-23));
}

/// The program with constants that f32 does not hold moved by some units in its
/// last place: where they are multiplied while compiling, they are rounded once
/// and not twice.
std::string withOtherConstants(std::string text) {
  const std::pair<const char *, const char *> kOthers[] = {
      {"(1/3)", "0.3333334"}, {"0.1 ", "0.1000001 "}, {"0.1)", "0.1000001)"}};
  for (auto [constant, other] : kOthers)
    for (size_t at = text.find(constant); at != std::string::npos;
         at = text.find(constant, at + 1))
      text.replace(at, strlen(constant), other);
  return text;
}

/// The largest change of an output that rounding or the last bit of inputs and
/// constants makes: what they decide (the phase of a sum of the lowest numbers,
/// an exponential of 60, whether a mean of ones is 1) is nobody's mistake.
double Check::noiseOf(size_t output, const Outputs &want) {
  if (others.empty()) {
    std::vector<Tensor> moved;
    for (auto [i, input] : llvm::enumerate(inputs)) {
      bool isReal = isFloat(input.dtype());
      moved.push_back(
          llvm::cantFail(isReal ? input.clone(DType::F64) : input.clone()));
      moveInLastBit(moved.back(), seed + i);
    }
    auto add = [&](mlir::ModuleOp from, llvm::ArrayRef<Tensor> of,
                   bool isWide) {
      EvaluationOptions how;
      how.isWide = isWide;
      auto found = evaluateProgram(functionOf(from), of, how);
      others.push_back(found ? std::move(*found) : want);
      if (!found)
        llvm::consumeError(found.takeError());
    };
    add(*module, inputs, true);
    add(*module, moved, false);
    auto other =
        importFold(withOtherConstants(program.text()), "random.fold", context);
    add(mlir::succeeded(other) ? **other : *module, inputs, false);
  }
  // Other orders of summation err by more than one, constants in f32 by more
  // than a bit.
  const double factors[] = {100, 10, 2};
  double noise = 0;
  for (auto [other, factor] : llvm::zip(others, factors))
    for (int64_t p = 0; p < want[output].value.numElements(); ++p) {
      double change =
          std::abs(other[output].value.get(p) - want[output].value.get(p));
      noise = std::max(noise, std::isfinite(change) ? factor * change : 0);
    }
  return noise;
}

/// Is every element as near as what rounding decides moves it?
bool Check::isNoise(size_t output, const Tensor &found, const Outputs &want) {
  if (want[output].selects)
    return false;
  double noise = noiseOf(output, want);
  for (int64_t p = 0, e = found.numElements(); p < e; ++p) {
    double expected = want[output].value.get(p);
    if (std::isfinite(expected) &&
        !(std::abs(found.get(p) - expected) <= noise))
      return false;
  }
  return true;
}

/// Is `found` what an element has that is NaN as written, where the sum of
/// infinities of both signs is one of them? Of finite inputs, as `Owed` says.
bool Check::hasOneSign(size_t output, int64_t element, double found) {
  if (hasOtherClasses() || !std::isinf(found))
    return false;
  if (ofOneSign.empty())
    for (BeyondRange sign :
         {BeyondRange::PlusOfBoth, BeyondRange::MinusOfBoth}) {
      EvaluationOptions how;
      how.beyondRange = sign;
      ofOneSign.push_back(llvm::cantFail(evaluate(functionOf(*module), how)));
    }
  return llvm::any_of(ofOneSign, [&](const Outputs &other) {
    return other[output].value.get(element) == found;
  });
}

std::optional<std::string> Check::difference(const Outputs &found,
                                             const Outputs &want) {
  constexpr double relative = 1e-6;
  for (size_t o = 0; o < want.size(); ++o) {
    const RefTensor &a = found[o].value, &b = want[o].value;
    if (a.shape() != b.shape())
      return "output " + std::to_string(o) + " has another shape";
    double scale = 0;
    for (int64_t p = 0; p < b.numElements(); ++p)
      if (std::isfinite(b.get(p)))
        scale = std::max(scale, std::abs(b.get(p)));
    // Keys that differ by less than an earlier result rounds them are equal as
    // written, and the first of them is taken; kept apart from it, the best is.
    // Both select the same key. Equal elements have equal keys in both.
    bool mayMerge = InputFamily(program.family) != InputFamily::Const &&
                    program.ordersByResults();
    auto selectsSameKey = [&](int64_t p) {
      if (!want[o].selects || !mayMerge)
        return false;
      auto mine = keyOf(*want[o].selects, b.numElements(), p, a.get(p)),
           theirs = keyOf(*want[o].selects, b.numElements(), p, b.get(p));
      return mine && theirs &&
             isSame(*mine, *theirs, std::abs(*theirs), relative, false);
    };
    for (int64_t p = 0; p < b.numElements(); ++p)
      if (!isSame(a.get(p), b.get(p), scale, relative, forgives()) &&
          !selectsSameKey(p) &&
          !(std::isnan(b.get(p)) && hasOneSign(o, p, a.get(p))) &&
          (want[o].selects ||
           !(std::abs(a.get(p) - b.get(p)) <= noiseOf(o, want))))
        return "output " + program.outputs[o] + "[" + std::to_string(p) +
               "] is " + std::to_string(a.get(p)) + "; expected " +
               std::to_string(b.get(p));
  }
  return std::nullopt;
}

/// The program with its cascades, by definition and on random splits.
void Check::compareFused(bool fuses, const Outputs &want, Outcome &outcome) {
  auto differs = [&](const std::string &where, const std::string &what) {
    outcome.verdict = Verdict::Differs;
    outcome.where = (fuses ? "fused " : "unfused ") + where;
    outcome.what = what;
  };
  mlir::OwningOpRef<mlir::ModuleOp> copy = module->clone();
  mlir::func::FuncOp function = functionOf(*copy);
  diagnostics.clear();
  FuseCascadesOptions options;
  options.fuse = fuses;
  if (mlir::failed(normaliseProgram(function)))
    return differs("is not normalised: " + diagnostics, "");
  auto result = fuseCascades(function, options);
  if (mlir::failed(result))
    return differs("has no cascades: " + diagnostics, "");
  if (mlir::failed(mlir::verify(*copy)))
    return differs("does not verify: " + diagnostics, "");
  for (const FusedKernel &kernel : result->kernels)
    if (fuses && kernel.isCascade) {
      ++outcome.cascades;
      outcome.fused += kernel.derivation.program->isFused();
      for (const algebra::Cut &cut : kernel.derivation.program->cuts)
        ++outcome.reasons[cut.reason];
    }
  for (const FusionNote &note : result->notes)
    if (fuses)
      ++outcome.reasons[note.key];
  for (unsigned segments : {0, 1, 2, 5, 9}) {
    EvaluationOptions how;
    how.seed = seed;
    if (segments)
      how.splits = Splits{segments, /*randomPivots=*/true};
    std::string where = segments ? "in segments" : "by definition";
    auto found = evaluate(function, how);
    if (!found)
      return differs(where + " fails", toString(found.takeError()));
    if (auto text = difference(*found, want))
      return differs(where, *text);
  }
}

/// The extents with rows enough for every lane and streams of several tiles.
std::map<std::string, int64_t> largerExtents(const RandomProgram &program,
                                             uint64_t seed) {
  constexpr int64_t lengths[] = {257, 1000, 4099, 5000}, rows[] = {17, 37, 64};
  std::map<std::string, int64_t> extents = program.extents;
  extents["n"] = lengths[seed / 8 % std::size(lengths)];
  extents["m"] = rows[seed / 64 % std::size(rows)];
  return extents;
}

/// The program through files, compiler and executable, with the extents that it
/// has and with larger ones.
void Check::compareCompiled(Outcome &outcome) {
  auto differs = [&](const std::string &where, llvm::Error error) {
    outcome.verdict = Verdict::Differs;
    outcome.where = where;
    outcome.what = toString(std::move(error));
  };
  llvm::SmallString<64> path;
  int file = -1;
  if (llvm::sys::fs::createTemporaryFile("random_cascades", "fold", file, path))
    return;
  llvm::FileRemover remover(path);
  llvm::raw_fd_ostream(file, /*shouldClose=*/true) << program.text();
  // Unfused, fused, fused with a cut of the stream of its own, and fused for
  // another machine by schedules that need not pay.
  std::vector<CompiledProgram> forms;
  std::unique_ptr<mlir::MLIRContext> ours = makeContext();
  for (const char *name : kForms) {
    auto loaded = load(*ours, path);
    if (!loaded)
      return differs(name + std::string(" is not loaded"), loaded.takeError());
    CompileOptions options;
    options.policy = forms.empty() ? FusePolicy::Never : FusePolicy::Always;
    if (forms.size() == 2)
      options.split = StreamSplit{2 + int64_t(seed % 5), 1};
    TargetFacts facts;
    if (forms.size() == 3) {
      options.onFacts = [&, seed = seed](TargetFacts &own) {
        fuzz::makeOtherMachine(own, seed);
        facts = own;
      };
      options.onFused = [&, seed = seed](mlir::ModuleOp module) {
        machine = fuzz::describe(facts) +
                  fuzz::setOtherSchedules(module, facts, seed);
        if (printsAll)
          llvm::errs() << "# machine " << machine << "\n";
      };
    }
    auto compiled = compile(std::move(*loaded), options);
    if (!compiled)
      return differs(name + std::string(" is not compiled"),
                     compiled.takeError());
    forms.push_back(std::move(*compiled));
  }
  compareRuns(forms, outcome);
  if (outcome.verdict != Verdict::Agrees)
    return;
  // Everything that depends on the extents is that of the larger ones then.
  RandomProgram larger = program;
  larger.extents = largerExtents(program, seed);
  compareLarger(larger, forms, outcome);
  // Rows that the second cache does not hold.
  constexpr int64_t kLong = 200001;
  bool isShort = seed / 4 % 4 && !program.hasSharedCount();
  if (outcome.verdict != Verdict::Agrees || isShort)
    return;
  larger.extents["b"] = 1;
  larger.extents["m"] = 3;
  larger.extents["n"] = kLong;
  compareLarger(larger, forms, outcome);
}

void Check::compareLarger(const RandomProgram &larger,
                          llvm::MutableArrayRef<CompiledProgram> forms,
                          Outcome &outcome) {
  Check other(larger, seed);
  if (!other.import())
    return;
  other.makeInputs();
  other.compareRuns(forms, outcome);
  if (outcome.verdict == Verdict::Differs)
    outcome.where += " at m = " + std::to_string(larger.extents.at("m")) +
                     ", n = " + std::to_string(larger.extents.at("n"));
}

std::vector<std::vector<Tensor>>
Check::runAll(llvm::MutableArrayRef<CompiledProgram> forms, Outcome &outcome) {
  std::vector<std::vector<Tensor>> results;
  for (auto [name, form] : llvm::zip(kForms, forms)) {
    auto outputs = form.executable.run(inputs, /*threads=*/2);
    if (!outputs) {
      outcome.verdict = Verdict::Differs;
      outcome.where = name + std::string(" does not run");
      outcome.what = toString(outputs.takeError());
      break;
    }
    results.push_back(std::move(*outputs));
  }
  return results;
}

/// Runs the forms and compares them with the judge: unfused with what the judge
/// errs where it rounds every operation, fused with unfused. One seed is too
/// few for the bound of `refold verify`, so this looks for gross errors only.
void Check::compareRuns(llvm::MutableArrayRef<CompiledProgram> forms,
                        Outcome &outcome) {
  constexpr double kFactor = 16.0, kFloor = 1e-4;
  constexpr int64_t kSteps = int64_t(1) << 26; // a second or two
  EvaluationOptions exactly, asWritten;
  exactly.keepOutputsExact = true;
  asWritten.roundEveryOp = true;
  exactly.limits.steps = asWritten.limits.steps = kSteps;
  auto want = evaluate(functionOf(*module), exactly);
  if (!want) // too large, or refused by the program's own checks
    return llvm::consumeError(want.takeError());
  auto written = evaluate(functionOf(*module), asWritten);
  if (!written)
    return llvm::consumeError(written.takeError());
  std::vector<std::vector<Tensor>> results = runAll(forms, outcome);
  if (outcome.verdict == Verdict::Differs)
    return;
  // What is lost as written is not owed.
  Owed owed(functionOf(*module), inputs, seed, exactly.limits);
  llvm::SmallVector<llvm::ArrayRef<Tensor>> all(results.begin(), results.end());
  if (llvm::Error error = owed.findLost(
          results.front(), llvm::ArrayRef(all).drop_front(), *want))
    return llvm::consumeError(std::move(error));
  for (auto [name, outputs] : llvm::zip(kForms, results)) {
    bool isUnfused = &outputs == &results.front();
    for (size_t o = 0; o < want->size(); ++o) {
      const Tensor &found = outputs[o];
      Tensor base =
          isUnfused ? llvm::cantFail(stored((*written)[o].value, found.dtype()))
                    : results.front()[o];
      auto errorOf = [&](const Tensor &y) {
        Deviation deviation = compare(y, (*want)[o], /*isRunning=*/false,
                                      /*leastOfRow=*/1, owed.apartOf(o));
        return std::max(deviation.error, deviation.touchedError);
      };
      double error = errorOf(found), allowed = kFactor * errorOf(base) + kFloor;
      auto losses =
          isUnfused
              ? owed.countUnfusedLosses(o, found, base, (*want)[o],
                                        NanPolicy::Kept)
              : owed.countLosses(o, found, base, (*want)[o], NanPolicy::Kept);
      if (!losses)
        return llvm::consumeError(losses.takeError());
      bool isLost = !forgives() && *losses > 0;
      if (!isLost && (error <= allowed || isNoise(o, found, *want)))
        continue;
      outcome.verdict = Verdict::Differs;
      outcome.where = name + std::string(" code");
      outcome.what = "output " + program.outputs[o] + " has error " +
                     std::to_string(error) + ", allowed " +
                     std::to_string(allowed) +
                     (isLost ? ", and another class" : "") +
                     "; it begins with " + std::to_string(found.get(0)) +
                     (name == kForms[3] ? "; " + machine : "");
      return;
    }
  }
}

Outcome Check::run() {
  Outcome outcome;
  if (!import())
    return {Verdict::Invalid, "import", diagnostics};
  makeInputs();
  EvaluationOptions inDouble; // as cascades are
  inDouble.isWide = false;
  auto want = evaluate(functionOf(*module), inDouble);
  if (!want)
    return {Verdict::Invalid, "reference", toString(want.takeError())};
  for (bool fuses : {false, true})
    if (outcome.verdict == Verdict::Agrees)
      compareFused(fuses, *want, outcome);
  // Twice as many of those whose merge is most of what is new in them.
  unsigned every =
      program.isMostlyMerged() ? (compileEvery + 1) / 2 : compileEvery;
  if (outcome.verdict == Verdict::Agrees && every && seed % every == 0)
    compareCompiled(outcome);
  return outcome;
}

/// Takes every smaller program that still differs in the same place, until none
/// does.
RandomProgram shrink(RandomProgram program, uint64_t seed,
                     const std::string &where) {
  for (bool changed = true; changed;) {
    changed = false;
    for (const RandomProgram &candidate : fuzz::smaller(program)) {
      Outcome outcome = Check(candidate, seed).run();
      if (outcome.verdict != Verdict::Differs || outcome.where != where)
        continue;
      program = candidate;
      changed = true;
      break;
    }
  }
  return program;
}

void report(const RandomProgram &program, uint64_t seed,
            const std::string &what) {
  llvm::errs() << "seed " << seed << ": " << what << "\n" << program.text();
  for (auto &[axis, extent] : program.extents)
    llvm::errs() << "# " << axis << " = " << extent << "\n";
  llvm::errs() << "# inputs "
               << describe(InputRecipe{InputFamily(program.family)}) << "\n";
}

/// What came of all programs so far.
struct Totals {
  unsigned tried = 0, invalid = 0, failed = 0, cascades = 0, fused = 0;
  std::map<std::string, unsigned> reasons;
  double slowest = 0; ///< seconds of one program
  uint64_t slowestSeed = 0;

  void add(const Outcome &outcome, uint64_t seed, double time) {
    ++tried;
    invalid += outcome.verdict == Verdict::Invalid;
    cascades += outcome.cascades;
    fused += outcome.fused;
    for (const auto &[key, count] : outcome.reasons)
      reasons[key] += count;
    if (time > slowest)
      slowest = time, slowestSeed = seed;
  }

  void print() const {
    llvm::outs() << tried << " programs tried, " << invalid << " invalid, "
                 << failed << " differ; " << fused << " of " << cascades
                 << " cascades in one pass\n";
    for (const auto &[key, count] : reasons)
      llvm::outs() << "  " << llvm::format("%6u", count) << "  " << key << "\n";
    llvm::outs() << "slowest: seed " << slowestSeed << ", "
                 << llvm::format("%.2f", slowest) << " s\n";
  }
};

uint64_t startingSeed() {
  uint64_t seed = firstSeed;
  if (!resume.empty())
    if (auto file = llvm::MemoryBuffer::getFile(resume))
      if ((*file)->getBuffer().trim().getAsInteger(10, seed))
        seed = firstSeed;
  return seed;
}

bool keepSeed(uint64_t next) {
  std::error_code error;
  llvm::raw_fd_ostream file(resume, error);
  if (error) {
    llvm::errs() << "found no way to write '" << resume
                 << "': " << error.message() << "\n";
    return false;
  }
  file << next << "\n";
  return true;
}

} // namespace

int main(int argc, char **argv) {
  llvm::cl::ParseCommandLineOptions(argc, argv, "random cascades\n");
  auto start = std::chrono::steady_clock::now();
  auto elapsed = [&] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() -
                                         start)
        .count();
  };
  auto isOver = [&] {
    return cpuSeconds ? double(std::clock()) / CLOCKS_PER_SEC >= cpuSeconds
                      : elapsed() >= seconds;
  };
  Totals totals;
  uint64_t seed = startingSeed();
  for (; totals.tried < programs && totals.failed < failures && !isOver();
       ++seed) {
    RandomProgram program = fuzz::generate(seed);
    if (printsAll)
      report(program, seed, "");
    double begin = elapsed();
    Outcome outcome = Check(program, seed).run();
    totals.add(outcome, seed, elapsed() - begin);
    if (printsAll && outcome.verdict == Verdict::Invalid)
      llvm::errs() << "invalid: " << outcome.what << "\n";
    if (outcome.verdict != Verdict::Differs)
      continue;
    if (printsAll)
      llvm::errs() << outcome.where << ": " << outcome.what << "\n";
    RandomProgram least = shrink(program, seed, outcome.where);
    Outcome again = Check(least, seed).run();
    report(least, seed, again.where + ": " + again.what);
    ++totals.failed;
  }
  totals.print();
  if (!resume.empty() && !keepSeed(seed))
    return 2;
  return totals.failed ? 3 : 0;
}
