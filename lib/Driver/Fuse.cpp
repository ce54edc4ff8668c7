// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DeferredCertificates.h"
#include "DescribeAccuracy.h"
#include "DescribeCertificate.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Algebra/Formula.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Conversion/RoundFactors.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/BuildId.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Support/Stopwatch.h"
#include "refold/Transforms/FuseCascades.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSwitch.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/MathExtras.h"

namespace refold {

static std::vector<StageReport> stagesOf(const algebra::Cascade &cascade,
                                         const algebra::Program &program) {
  std::vector<StageReport> result;
  for (auto [i, stage] : llvm::enumerate(cascade.stages))
    result.push_back({stage.name, algebra::spelling(stage.reducer),
                      static_cast<int64_t>(stage.place.line),
                      static_cast<int64_t>(program.stagePass[i])});
  return result;
}

/// "q" of NameLoc("q", ...): what the executable's step is called.
static std::string stepOf(CascadeOp op) {
  auto name = mlir::dyn_cast<mlir::NameLoc>(op->getLoc());
  return name ? name.getName().str() : "";
}

/// What shows that the stage has no short state: a proof, in words.
static std::string evidenceOf(const algebra::Cascade &cascade,
                              const algebra::Program &program,
                              const algebra::Cut &cut) {
  using Proof = algebra::RankEvidence::Proof;
  std::optional<algebra::RankEvidence> evidence =
      algebra::rankEvidence(cascade, program, cut);
  if (!evidence || evidence->rank < 2)
    return "";
  std::string rank = std::to_string(evidence->rank);
  std::string more = evidence->rank == evidence->samples
                         ? ", and more elements show more"
                         : "";
  if (evidence->proof == Proof::Optimum)
    return rank + " of " + std::to_string(evidence->samples) +
           " elements are each the only optimum for some earlier results, so "
           "that one pass has to keep them all";
  return "a minor of order " + rank +
         " of the term over elements and earlier results is not 0 (proved " +
         (evidence->proof == Proof::Field ? "over a prime field"
                                          : "in ball arithmetic") +
         "): one pass needs at least " + rank + " accumulators" + more;
}

static std::string placeOf(const algebra::Stage &stage) {
  const algebra::Place &place = stage.place;
  if (place.line == 0)
    return "'" + stage.name + "'";
  return place.file + ":" + std::to_string(place.line) + ":" +
         std::to_string(place.column);
}

/// What each kept state is relative to, each once: "max m", "mean mu".
static std::string gaugesOf(const algebra::Program &program) {
  llvm::SetVector<llvm::StringRef> gauges;
  for (const algebra::Definition &definition : program.definitions)
    if (const auto *state = std::get_if<algebra::State>(&definition);
        state && !state->gauge.empty())
      gauges.insert(state->gauge);
  return llvm::join(gauges, "; ");
}

static std::string shortNumber(double value) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::format("%.3g", value);
  return text;
}

/// What a running rounding may change, in numbers.
static std::string boundOf(const algebra::Rounding &rounding) {
  std::string step = shortNumber(2 * rounding.step);
  if (rounding.isPowerOfTwo)
    return "the same where it is at least " +
           shortNumber(rounding.lowestNormal) + ", below that within " + step;
  std::string text = "within max(" + shortNumber(2 * rounding.unit) + "·|y|, " +
                     step +
                     ") of the value that is rounded at the "
                     "end, and no farther from y than max(" +
                     shortNumber(rounding.unit) + "·|y|, " +
                     shortNumber(rounding.step) + ") as is that one";
  if (rounding.unit == 0)
    text = "within " + step +
           " of the value that is rounded at the end, and no "
           "farther from y than " +
           shortNumber(rounding.step) + " as is that one";
  if (int64_t most = rounding.headroom())
    text += "; what is rounded to 0 weighs less than that on up to " +
            std::to_string(most) + " elements";
  return text;
}

/// The narrow type of a rounding, "" where it gives whole numbers.
static std::string typeOf(algebra::Expr rounded) {
  std::string type;
  algebra::forEachNode(rounded, [&](algebra::Expr e) {
    if (e.is(algebra::Kind::Cast) && algebra::isFloat(e.type()) &&
        algebra::isFloat(e.operand(0).type()))
      type = algebra::spelling(e.type());
  });
  return type;
}

/// Elements of the stream; 0 where that is not known.
static int64_t lengthOf(const algebra::Cascade &cascade) {
  int64_t length = 1;
  for (const algebra::Index &index : cascade.indices)
    if (index.role == algebra::IndexRole::Stream &&
        (index.extent < 0 || llvm::MulOverflow(length, index.extent, length)))
      return 0;
  return length;
}

/// What the kernel does otherwise than the formula, with its bounds.
static void addNumerics(const algebra::Cascade &cascade,
                        const algebra::Program &program,
                        CascadeReport &report) {
  auto add = [&](Reason reason) {
    std::string key = keyOf(reason).data();
    if (!llvm::is_contained(report.policies, key))
      report.policies.push_back(key);
  };
  algebra::Notation notation;
  notation.indices = &program.indices;
  for (const algebra::Rounding &rounding : program.roundings) {
    report.roundings.push_back({cascade.stages[rounding.stage].name,
                                algebra::format(rounding.written, notation),
                                rounding.unit, rounding.step,
                                rounding.isPowerOfTwo, boundOf(rounding),
                                typeOf(rounding.written), rounding.headroom()});
    add(rounding.isPowerOfTwo ? Reason::PowerOfTwoScale
                              : Reason::RoundedAtRunningPivot);
    if (rounding.headroom() && lengthOf(cascade) > rounding.headroom())
      add(Reason::RoundedAway);
  }
  report.zeroedOutputs = program.zeroedOutputs;
  if (!program.zeroedOutputs.empty())
    add(Reason::MaskedRowsZero);
  report.idleGuards = program.idleGuards;
}

/// What a law of transports is for.
static std::string purposeOf(llvm::StringRef law) {
  return llvm::StringSwitch<std::string>(law)
      .Case("rescale-distributes", "no exponential exceeds 1")
      .Case("taylor-shift", "distances from it keep the digits that powers of "
                            "the elements would lose")
      .Case("reset-transport", "the state starts anew where it moves")
      .Case("constant-under-move", "it holds the state in its pass")
      .Cases("rounded-at-running-pivot", "power-of-two-scale",
             "what is rounded stays within the range of its type")
      .Default("the stage is defined relative to it");
}

/// Some state behind the pivot is a result that the user wrote.
static bool isWritten(const algebra::Program &program, algebra::Expr pivot) {
  std::vector<algebra::Expr> states = {pivot};
  if (const algebra::Let *let = program.findLet(pivot))
    states = algebra::symbolsOf(let->value);
  return llvm::any_of(states, [&](algebra::Expr state) {
    return llvm::any_of(program.readouts, [&](const auto &readouts) {
      return llvm::is_contained(readouts, state);
    });
  });
}

static std::vector<GaugeReport> gaugeReports(const algebra::Program &program) {
  std::vector<GaugeReport> result;
  for (const algebra::Definition &definition : program.definitions) {
    const auto *state = std::get_if<algebra::State>(&definition);
    if (!state || state->gauge.empty())
      continue;
    auto known = llvm::find_if(result, [&](const GaugeReport &other) {
      return other.pivot == state->gauge && other.law == state->law;
    });
    if (known == result.end()) {
      bool isOwn = llvm::none_of(state->pivots, [&](algebra::Expr pivot) {
        return isWritten(program, pivot);
      });
      result.push_back({state->gauge,
                        {},
                        state->law,
                        purposeOf(state->law) +
                            (isOwn ? ", and nothing written would do" : "")});
      known = std::prev(result.end());
    }
    known->states.push_back(state->symbol().symbol().name);
  }
  return result;
}

static CascadeReport reportOf(const FusedKernel &kernel,
                              const FuseOptions &options) {
  const algebra::Cascade &cascade = kernel.formula->cascade;
  const algebra::Program &program = *kernel.derivation.program;
  CascadeReport report;
  report.name = kernel.name;
  report.step = stepOf(kernel.op);
  report.reductions = kernel.reductions;
  report.products = kernel.products;
  report.separated = kernel.separated;
  for (const algebra::Index &index : cascade.indices)
    if (index.role == algebra::IndexRole::Stream)
      report.axes.push_back(index.name);
  report.stages = stagesOf(cascade, program);
  report.isFused = program.isFused();
  report.passes = program.passes;
  report.repairPasses = program.repairPasses;
  report.unfusedPasses = program.unfusedPasses;
  report.stateSize = program.stateSize;
  report.isSingleProduct = true;
  for (unsigned i = 0; i < cascade.stages.size(); ++i)
    report.isSingleProduct &= algebra::needsOneProduct(cascade, i);
  report.formula = algebra::describe(cascade, kernel.derivation).str();
  report.gauge = gaugesOf(program);
  report.gauges = gaugeReports(program);
  report.certificate = kernel.certificate;
  if (options.certificate)
    report.proof = describeCertificate(kernel, options.seed);
  report.choices = program.choices;
  report.lists = program.lists;
  report.deriveMs = kernel.deriveMs;
  report.certifyMs = kernel.certifyMs;
  mlir::FailureOr<bool> leavesUnread =
      leavesValuesUnread(kernel.op, TargetFacts());
  if (mlir::succeeded(leavesUnread) && *leavesUnread)
    report.policies.push_back(keyOf(Reason::MaskedValuesUnread).data());
  if (program.boundsExponentials)
    report.policies.push_back(keyOf(Reason::BoundedExponentials).data());
  addNumerics(cascade, program, report);
  algebra::Notation notation;
  notation.indices = &program.indices;
  for (const algebra::Cut &cut : program.cuts)
    report.reasons.push_back({cut.reason, placeOf(cascade.stages[cut.stage]),
                              cut.text, algebra::format(cut.node, notation),
                              cut.hint, evidenceOf(cascade, program, cut)});
  return report;
}

/// A note on a cascade that is cut for no other reason is its reason.
static void addNote(FuseReport &report, ReasonReport note) {
  for (CascadeReport &cascade : report.cascades)
    if (!cascade.isFused && cascade.reasons.empty() &&
        llvm::StringRef(note.text).contains("'" + cascade.name + "'"))
      return cascade.reasons.push_back(std::move(note));
  report.notes.push_back(std::move(note));
}

/// What a verified program cannot be made into is not the user's mistake.
static llvm::Error asUnsupported(llvm::Error error) {
  std::string message;
  ExitCode code = takeError(std::move(error), message);
  return fail(code == ExitCode::Model ? ExitCode::Unsupported : code, message);
}

static algebra::Stability inAlgebra(Stability stability) {
  switch (stability) {
  case Stability::Fastest:
    return algebra::Stability::Fastest;
  case Stability::Balanced:
    return algebra::Stability::Balanced;
  case Stability::MostAccurate:
    return algebra::Stability::MostAccurate;
  }
  llvm_unreachable("every stability is listed");
}

/// Certificates in the cache that kernels are in.
static CertificateStore
certificateStore(const DiskCache *cache,
                 const std::map<std::string, std::string> *known) {
  auto inCache = [](llvm::StringRef key) {
    return "certificate\n" + buildId() + "\n" + key.str();
  };
  return {[=](llvm::StringRef key) -> std::optional<std::string> {
            if (known)
              if (auto entry = known->find(key.str()); entry != known->end())
                return entry->second;
            auto value = cache ? cache->get(inCache(key)) : nullptr;
            if (!value)
              return std::nullopt;
            return value->getBuffer().str();
          },
          [=](llvm::StringRef key, llvm::StringRef value) {
            if (cache)
              cache->put(inCache(key), value);
          }};
}

llvm::Expected<FuseReport> fuse(mlir::ModuleOp module,
                                const FuseOptions &options) {
  Stopwatch watch;
  DiagnosticCollector collector(*module.getContext());
  mlir::func::FuncOp function = *module.getOps<mlir::func::FuncOp>().begin();
  {
    StageTimer timer(options.times, "normalise");
    if (mlir::failed(normaliseProgram(function)))
      return asUnsupported(collector.takeErrors(
          "the program was not normalised, without reason"));
    if (options.policy != FusePolicy::Never)
      writeOutShortSums(function);
  }
  FuseCascadesOptions fuseOptions;
  fuseOptions.fuse = options.policy != FusePolicy::Never;
  fuseOptions.apart = options.apart;
  fuseOptions.waiting = options.waiting;
  fuseOptions.certify = options.certify;
  fuseOptions.keepsCertificates = options.certificate;
  fuseOptions.certificate.seed = options.seed;
  const NumericPolicy &numerics = options.numerics;
  if (numerics.requantise)
    fuseOptions.policy.casts = algebra::CastPolicy::Requantise;
  fuseOptions.policy.castBound = numerics.castBound;
  fuseOptions.policy.stability = inAlgebra(numerics.stability);
  fuseOptions.policy.thresholdList = numerics.thresholdList;
  if (numerics.zeroMaskedRows)
    fuseOptions.policy.maskedRows = algebra::RowPolicy::Zero;
  CertificateStore store = certificateStore(
      buildId().empty() ? nullptr : options.cache, options.known);
  fuseOptions.store = &store;
  if (options.deferred) {
    fuseOptions.deferred = &options.deferred->entries;
    options.deferred->store = store;
  }
  fuseOptions.times = options.times;
  mlir::FailureOr<FusionResult> result = fuseCascades(function, fuseOptions);
  if (mlir::failed(result))
    return asUnsupported(
        collector.takeErrors("the program was not fused, without reason"));
  StageTimer timer(options.times, "report");
  FuseReport report;
  report.kernels = result->kernels.size();
  report.products = result->products;
  report.planMs = result->planMs;
  report.factorRounding.resize(function.getNumResults());
  bool mayRound = options.facts && options.policy != FusePolicy::Never &&
                  numerics.stability != Stability::MostAccurate;
  std::vector<size_t> numbers; // in the report, by kernel
  for (const FusedKernel &kernel : result->kernels) {
    numbers.push_back(report.cascades.size());
    RoundedFactors rounded =
        mayRound ? roundFactors(kernel.op, *options.facts) : RoundedFactors{};
    for (unsigned i : rounded.results)
      for (mlir::OpOperand &use : kernel.op->getResult(i).getUses())
        report.factorRounding[use.getOperandNumber()] = rounded.error;
    if (kernel.isCascade) {
      report.cascades.push_back(reportOf(kernel, options));
      if (rounded.error > 0)
        report.cascades.back().policies.push_back(
            keyOf(Reason::RoundedFactors).data());
      // Roundings that run have a bound of their own, and no accuracy of f32.
      const algebra::Program &program = *kernel.derivation.program;
      if (options.accuracy && program.isFused() && program.roundings.empty())
        report.cascades.back().accuracy = describeAccuracy(kernel);
    }
  }
  if (options.deferred)
    for (DeferredCertificate &entry : options.deferred->entries) {
      llvm::erase_if(entry.kernels, [&](size_t kernel) {
        return !result->kernels[kernel].isCascade;
      });
      for (size_t &kernel : entry.kernels)
        kernel = numbers[kernel];
    }
  function.walk([&](CascadeOp op) {
    for (unsigned i = 0; i < op.numIndices(); ++i)
      if (op.getRoles()[i] == CascadeOp::Stream)
        report.streamAxes.push_back(op.indexName(i).str());
  });
  llvm::sort(report.streamAxes);
  report.streamAxes.erase(llvm::unique(report.streamAxes),
                          report.streamAxes.end());
  for (const FusionNote &note : result->notes)
    addNote(report,
            {note.key, describePlace(note.location), note.text, "", "", ""});
  report.totalMs = watch.ms();
  return report;
}

} // namespace refold
