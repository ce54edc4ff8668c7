// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// From a certificate that fails to a program that holds: passes for irregular
// rows, then other plans, in which few stages wait for what they read, and the
// stages as written at last.
#include "CertifyParts.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

namespace refold::algebra {
using namespace certifier;

/// A product leaves the range of its type on rows longer than any that is tried
/// here.
static bool movesProducts(const Cascade &cascade, const Program &program) {
  for (size_t i = 0; i < cascade.stages.size(); ++i)
    if (cascade.stages[i].reducer == Reducer::Prod && program.readouts[i][0] &&
        !program.readouts[i][0].isSym())
      return true;
  return false;
}

/// Certifies the program, with passes for irregular rows if it needs them.
static void certifyRepaired(const Cascade &cascade, Program &program,
                            Certificate &certificate,
                            const CertifyOptions &options,
                            bool isShort = false) {
  auto judge = [&](const Program &one) {
    return isShort ? certifyOnShortRows(cascade, one, options)
                   : certify(cascade, one, options);
  };
  certificate = judge(program);
  bool mayOverflow = movesProducts(cascade, program) || program.assumesNumbers;
  if (certificate.holds && !certificate.edgeDifferences && !mayOverflow)
    return;
  bool losesSquares = certificate.rangeDifferences > 0;
  std::optional<Program> best;
  for (Regularity regularity : kRegularities) {
    if (regularity.losesSquares && !losesSquares)
      continue;
    Program repaired = withIrregularRows(cascade, program, regularity);
    if (repaired.definitions.size() == program.definitions.size())
      return;
    Certificate own = judge(repaired);
    unsigned before = certificate.edgeDifferences;
    bool isBetter = !certificate.holds || own.edgeDifferences < before ||
                    (mayOverflow && !best && own.edgeDifferences == before);
    if (!own.holds || !isBetter || (regularity.deadRows && own.edgeDifferences))
      continue;
    certificate = own;
    best = std::move(repaired);
    if (!own.edgeDifferences)
      break;
  }
  if (best)
    program = std::move(*best);
}

//===----------------------------------------------------------------------===//
// Digits
//===----------------------------------------------------------------------===//

/// An error of an f32 result beyond this has left fewer than half of its
/// digits; one beyond this multiple of the error as written, plus an ulp, is no
/// fault of the formula.
static constexpr double kHalfOfDigits = 0x1p-12, kGross = 100;
static constexpr double kUlp = 0x1p-23;
static constexpr uint32_t kTriedLength = 32, kLongestTried = 256;
static constexpr unsigned kTriedRows = 2, kTriedStarts = 4;
static constexpr Family kTried[] = {Family::Normal,  Family::Offset,
                                    Family::Outlier, Family::First,
                                    Family::Ramp,    Family::Near};

/// Results are added or subtracted when the row is complete: only there more
/// can cancel than in the stages as written.
static bool mayCancel(const Program &program) {
  bool result = false;
  auto visit = [&](Expr e) {
    result |= (e.is(Kind::Add) || e.is(Kind::Sub)) && isFloat(e.type()) &&
              e.uses(Role::State);
  };
  for (const auto &stage : program.readouts)
    for (Expr readout : stage)
      if (readout)
        forEachNode(readout, visit);
  for (const ProgramOutput &output : program.outputs)
    forEachNode(output.value, visit);
  return result;
}

static double errorOf(const std::vector<float> &found,
                      const std::vector<DoubleDouble> &exact) {
  double error = 0, size = 0;
  for (size_t i = 0; i < exact.size(); ++i)
    if (isfinite(exact[i])) {
      size = std::max(size, std::fabs(double(exact[i])));
      error =
          std::max(error, std::fabs(double(DoubleDouble(found[i]) - exact[i])));
    }
  return size > 0 ? error / size : 0;
}

static std::optional<uint32_t> triedLength(const Program &program,
                                           bool isAnyLength) {
  if (isAnyLength)
    return kTriedLength;
  std::optional<StreamLength> own = streamLength(program.indices);
  if (!own || own->factor == 0)
    return std::nullopt;
  uint32_t length = own->isStatic ? own->factor
                                  : (kTriedLength + own->factor - 1) /
                                        own->factor * own->factor;
  return length <= kLongestTried ? std::optional(length) : std::nullopt;
}

namespace {
/// The program and the stages as written, in f32, on rows of one kind.
class DigitCheck {
public:
  DigitCheck(const Cascade &cascade, const Program &program)
      : cascade(cascade), program(program), found(program.outputs.size()),
        written(found) {}

  void run(Sample sample, Random &random) {
    for (auto &[symbol, values] : sample.values)
      for (double &value : values)
        value = isFloat(symbol->type) ? float(value) : value;
    auto exact = DefinitionEvaluator<DoubleDouble>(cascade, sample.extents)
                     .run(sample)
                     .outputs;
    auto own = ProgramEvaluator<float>(program, sample.extents)
                   .run(sample, Order::Tiles, random)
                   .outputs;
    auto plain =
        DefinitionEvaluator<float>(cascade, sample.extents).run(sample).outputs;
    for (size_t i = 0; i < found.size(); ++i) {
      found[i] = std::max(found[i], errorOf(own[i], exact[i]));
      written[i] = std::max(written[i], errorOf(plain[i], exact[i]));
    }
  }

  Failure failure(const char *rows) const {
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i] > kHalfOfDigits && found[i] > kGross * (written[i] + kUlp)) {
        char numbers[64];
        std::snprintf(numbers, sizeof(numbers), "%.1e in f32, and %.1e",
                      found[i], written[i]);
        return "output '" + program.outputs[i].name + "' errs by " + numbers +
               " as written (" + rows + "), which --stability fastest accepts";
      }
    return std::nullopt;
  }

private:
  const Cascade &cascade;
  const Program &program;
  std::vector<double> found, written;
};
} // namespace

/// What a term has the square of, made of elements and results.
static std::vector<Expr> mixedSquares(const Stage &stage) {
  std::vector<Expr> result;
  forEachNode(stage.term, [&](Expr e) {
    bool isSquare = (e.is(Kind::Mul) && e.operand(0) == e.operand(1)) ||
                    (e.is(Kind::Pow) && e->exponent == Rational{2, 1});
    if (isSquare && e.operand(0).uses(Role::Stage) &&
        e.operand(0).uses(Role::Element))
      result.push_back(e.operand(0));
  });
  return result;
}

/// A row on which `square` is small beside what it is the difference of, by
/// changes of `symbol`: a line that fits, counts as expected. Newton's steps,
/// each element by itself, by a share since results move along with the
/// elements, and stopped short of 0.
static std::optional<Sample> fittedRow(const Cascade &cascade, Expr square,
                                       const Symbol &symbol, uint32_t length,
                                       double share, Random &random) {
  constexpr double kFitted = 2e-3, kChange = 1e-4;
  constexpr unsigned kSteps = 12;
  Cascade probe = cascade;
  probe.addOutput("distance", square);
  Sample sample = makeSample(cascade.indices, rootsOf(cascade), Family::Normal,
                             length, random);
  std::vector<double> &values = sample.values[&symbol];
  DefinitionEvaluator<double> evaluator(probe, sample.extents);
  auto distances = [&] { return evaluator.run(sample).outputs.back(); };
  auto largest = [](const std::vector<double> &of) {
    double result = 0;
    for (double value : of)
      result = std::max(result, std::fabs(value));
    return result;
  };
  std::vector<double> own = distances();
  if (values.size() != own.size())
    return std::nullopt;
  double first = largest(own);
  for (unsigned step = 0; step < kSteps && first > 0; ++step) {
    if (largest(own) <= kFitted * first)
      return sample;
    // To and fro, so that results stay about where they are.
    std::vector<double> before = values;
    auto change = [](size_t i) { return i % 2 ? -kChange : kChange; };
    for (size_t i = 0; i < values.size(); ++i)
      values[i] += change(i);
    std::vector<double> changed = distances();
    for (size_t i = 0; i < values.size(); ++i) {
      double slope = (changed[i] - own[i]) / change(i);
      values[i] = before[i] - (slope ? share * own[i] / slope : 0);
    }
    own = distances();
  }
  return std::nullopt;
}

/// On rows where `square` nearly vanishes by changes of `symbol`, from several
/// starts and by two shares: which of them leads there depends on the formula.
static Failure checkFitted(const Cascade &cascade, const Program &program,
                           Expr square, const Symbol &symbol, uint32_t length,
                           unsigned starts) {
  for (double share : {0.9, 0.5})
    for (unsigned start = 0; start < starts; ++start) {
      Random random(start + 1);
      std::optional<Sample> sample =
          fittedRow(cascade, square, symbol, length, share, random);
      if (!sample)
        continue;
      DigitCheck check(cascade, program);
      check.run(std::move(*sample), random);
      if (Failure lost = check.failure("fitted"))
        return lost;
    }
  return std::nullopt;
}

/// Runs both in f32 on rows that are far from 0, steep, or alike, and on those
/// where a square of the stages nearly vanishes. `isAnyLength`: it is right on
/// rows of any length.
static Failure checkDigits(const Cascade &cascade, const Program &program,
                           bool isAnyLength = false) {
  std::vector<Expr> roots = rootsOf(cascade);
  for (Expr root : rootsOf(program))
    roots.push_back(root);
  std::optional<uint32_t> length = triedLength(program, isAnyLength);
  if (!length || !mayCancel(program) || !program.roundings.empty() ||
      !isSingleOnly(roots))
    return std::nullopt;
  Random random(1);
  for (Family family : kTried) {
    DigitCheck check(cascade, program);
    for (unsigned row = 0; row < kTriedRows; ++row)
      check.run(makeSample(program.indices, roots, family, *length, random),
                random);
    if (Failure lost = check.failure(spelling(family)))
      return lost;
  }
  for (const Stage &stage : cascade.stages)
    for (Expr square : mixedSquares(stage)) {
      std::vector<Expr> symbols = symbolsOf(square);
      std::erase_if(symbols, [](Expr e) {
        return !e.isSym(Role::Element) || !isFloat(e.type());
      });
      // A square of many arrays can vanish by any of them: few are tried.
      constexpr size_t kMostSymbols = 6;
      symbols.resize(std::min(symbols.size(), kMostSymbols));
      unsigned starts =
          std::clamp(unsigned(16 / (symbols.size() + 1)), 1u, kTriedStarts);
      for (Expr symbol : symbols)
        if (Failure lost = checkFitted(cascade, program, square,
                                       symbol.symbol(), *length, starts))
          return lost;
    }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// Plans that are tried before the stages run as written, and stages that are
/// derived and certified for them in all: a plan of a long cascade costs more
/// (60 sums that depend on each other took 5 s of 24 plans).
static constexpr unsigned kMostPlans = 24;
static constexpr size_t kMostPlannedStages = 400;

/// Stages that read other stages: what they wait for can be changed.
static std::vector<unsigned> dependentStages(const Cascade &cascade) {
  std::vector<unsigned> result;
  for (unsigned i = unsigned(cascade.stages.size()); i-- > 0;) {
    bool reads = false;
    for (Expr symbol : symbolsOf(cascade.stages[i].term))
      reads |= symbol.isSym(Role::Stage);
    if (reads)
      result.push_back(i);
  }
  return result;
}

namespace {
/// Looks for the plan of the fewest passes that holds.
class PlanSearch {
public:
  PlanSearch(const Cascade &cascade, const Policy &policy,
             const CertifyOptions &options)
      : cascade(cascade), policy(policy), options(options) {}

  /// One stage waits for what it reads, then two.
  bool run() {
    std::vector<unsigned> stages = dependentStages(cascade);
    for (unsigned stage : stages)
      attempt({stage});
    for (size_t i = 0; !best && i < stages.size(); ++i)
      for (size_t k = i + 1; k < stages.size(); ++k)
        attempt({stages[k], stages[i]});
    return bool(best);
  }

  std::optional<Program> best;
  Certificate certificate;
  std::vector<unsigned> apart;

private:
  void attempt(std::vector<unsigned> stages) {
    size_t stagesTried = (tried + 1) * cascade.stages.size();
    if (tried >= kMostPlans || stagesTried > kMostPlannedStages)
      return;
    ++tried;
    Policy own = policy;
    own.apart.insert(own.apart.end(), stages.begin(), stages.end());
    Program program = *derive(cascade, own).program;
    auto rank = [](const Program &of) {
      return std::pair(of.passes, of.stateSize);
    };
    if (program.passes >= program.unfusedPasses ||
        (best && rank(program) >= rank(*best)))
      return;
    Certificate found;
    certifyRepaired(cascade, program, found, options);
    if (!found.holds || (policy.stability != Stability::Fastest &&
                         checkDigits(cascade, program)))
      return;
    best = std::move(program);
    certificate = std::move(found);
    apart = std::move(stages);
  }

  const Cascade &cascade;
  const Policy &policy;
  const CertifyOptions &options;
  unsigned tried = 0;
};
} // namespace

static Certified certifiedAsItIs(const Cascade &cascade, Derivation derivation,
                                 const Policy &policy,
                                 const CertifyOptions &options) {
  Certified result;
  result.derivation = std::move(derivation);
  if (!result.derivation.program) {
    result.certificate = certify(cascade, result.derivation, options);
    return result;
  }
  certifyRepaired(cascade, *result.derivation.program, result.certificate,
                  options);
  if (!policy.fuse)
    return result;
  if (result.certificate.holds && policy.stability != Stability::Fastest)
    if (Failure lost = checkDigits(cascade, *result.derivation.program)) {
      result.certificate.holds = false;
      result.certificate.failure = *lost;
    }
  if (result.certificate.holds)
    return result;
  result.isFallback = true;
  result.rejected = result.certificate.failure;
  PlanSearch search(cascade, policy, options);
  if (search.run()) {
    result.derivation.program = std::move(search.best);
    result.certificate = std::move(search.certificate);
    result.apart = std::move(search.apart);
    return result;
  }
  Policy plain = policy;
  plain.fuse = false;
  result.derivation = derive(cascade, plain);
  return result;
}

/// Rows of a long static length are tried as short ones, first by the program
/// as it is, then with its numbers made of the length, digits included: rows of
/// that length alone find little, and take long. Where what is derived for any
/// length holds and this does not, it is right for its own length, if at all.
Certified certified(const Cascade &cascade, Derivation derivation,
                    const Policy &policy, const CertifyOptions &options) {
  auto asItIs = [&] {
    return certifiedAsItIs(cascade, std::move(derivation), policy, options);
  };
  if (!derivation.program || !policy.fuse ||
      !AnyLength::has(*derivation.program))
    return asItIs();
  auto holds = [&](const Cascade &of, Program &program, Certificate &found) {
    certifyRepaired(of, program, found, options, /*isShort=*/true);
    return found.holds && (policy.stability == Stability::Fastest ||
                           !checkDigits(of, program, /*isAnyLength=*/true));
  };
  Certified result;
  result.derivation = derivation;
  if (holds(cascade, *result.derivation.program, result.certificate))
    return result;
  AnyLength any(&cascade, *derivation.program);
  result.derivation.program = any.program;
  if (holds(*any.cascade, *result.derivation.program, result.certificate)) {
    Program &found = *result.derivation.program;
    bool isRepaired =
        found.definitions.size() != any.program.definitions.size();
    found = isRepaired ? any.atOwnLength(std::move(found))
                       : std::move(*derivation.program);
    return result;
  }
  Certified general = certifiedAsItIs(
      *any.cascade, derive(*any.cascade, policy), policy, options);
  if (general.certificate.holds && !general.isFallback)
    return asItIs();
  if (general.derivation.program)
    general.derivation.program =
        any.atOwnLength(std::move(*general.derivation.program));
  return general;
}

} // namespace refold::algebra
