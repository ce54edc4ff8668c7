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
                            const CertifyOptions &options) {
  certificate = certify(cascade, program, options);
  bool mayOverflow = movesProducts(cascade, program) || program.assumesNumbers;
  if (certificate.holds && !certificate.edgeDifferences && !mayOverflow)
    return;
  for (bool areDeadRegular : {true, false}) {
    Program repaired = withIrregularRows(cascade, program, areDeadRegular);
    if (repaired.definitions.size() == program.definitions.size())
      return;
    Certificate own = certify(cascade, repaired, options);
    unsigned before = certificate.edgeDifferences;
    bool isBetter = !certificate.holds || own.edgeDifferences < before ||
                    (mayOverflow && own.edgeDifferences == before);
    if (!own.holds || !isBetter || (areDeadRegular && own.edgeDifferences))
      continue;
    certificate = own;
    program = std::move(repaired);
    return;
  }
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
static constexpr unsigned kTriedRows = 2;
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

static std::optional<uint32_t> triedLength(const Program &program) {
  std::optional<StreamLength> own = streamLength(program.indices);
  if (!own || own->factor == 0)
    return std::nullopt;
  uint32_t length = own->isStatic ? own->factor
                                  : (kTriedLength + own->factor - 1) /
                                        own->factor * own->factor;
  return length <= kLongestTried ? std::optional(length) : std::nullopt;
}

/// Runs both in f32 on rows that are far from 0, steep, or alike.
static Failure checkDigits(const Cascade &cascade, const Program &program) {
  std::vector<Expr> roots = rootsOf(cascade);
  for (Expr root : rootsOf(program))
    roots.push_back(root);
  std::optional<uint32_t> length = triedLength(program);
  if (!length || !mayCancel(program) || !program.roundings.empty() ||
      !isSingleOnly(roots))
    return std::nullopt;
  Random random(1);
  for (Family family : kTried) {
    std::vector<double> found(program.outputs.size()), written = found;
    for (unsigned row = 0; row < kTriedRows; ++row) {
      Sample sample =
          makeSample(program.indices, roots, family, *length, random);
      for (auto &[symbol, values] : sample.values)
        for (double &value : values)
          value = isFloat(symbol->type) ? float(value) : value;
      auto exact = DefinitionEvaluator<DoubleDouble>(cascade, sample.extents)
                       .run(sample)
                       .outputs;
      auto own = ProgramEvaluator<float>(program, sample.extents)
                     .run(sample, Order::Tiles, random)
                     .outputs;
      auto plain = DefinitionEvaluator<float>(cascade, sample.extents)
                       .run(sample)
                       .outputs;
      for (size_t i = 0; i < found.size(); ++i) {
        found[i] = std::max(found[i], errorOf(own[i], exact[i]));
        written[i] = std::max(written[i], errorOf(plain[i], exact[i]));
      }
    }
    for (size_t i = 0; i < found.size(); ++i)
      if (found[i] > kHalfOfDigits && found[i] > kGross * (written[i] + kUlp)) {
        char numbers[64];
        std::snprintf(numbers, sizeof(numbers), "%.1e in f32, and %.1e",
                      found[i], written[i]);
        return "output '" + program.outputs[i].name + "' errs by " + numbers +
               " as written (" + spelling(family) +
               "), which --stability fastest accepts";
      }
  }
  return std::nullopt;
}

//===----------------------------------------------------------------------===//
// Plans
//===----------------------------------------------------------------------===//

/// Plans that are tried before the stages run as written.
static constexpr unsigned kMostPlans = 24;

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
    if (++tried > kMostPlans)
      return;
    Policy own = policy;
    own.apart = stages;
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

Certified certified(const Cascade &cascade, Derivation derivation,
                    const Policy &policy, const CertifyOptions &options) {
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

} // namespace refold::algebra
