// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "DescribeAccuracy.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Algebra/Certify.h"
#include "refold/Algebra/Formula.h"
#include "refold/Conversion/CascadeToVector.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/Diagnostics.h"
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Support/Stopwatch.h"
#include "refold/Transforms/FuseCascades.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/StringExtras.h"

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

/// A sample of the term over elements and earlier results. Its rank bounds from
/// below the accumulators that a state of the stage needs, whatever the state.
static std::string evidenceOf(const algebra::Cascade &cascade,
                              const algebra::Program &program,
                              const algebra::Cut &cut) {
  constexpr unsigned samples = 16;
  std::optional<algebra::RankEvidence> evidence =
      algebra::rankEvidence(cascade, program, cut, samples);
  if (!evidence || evidence->rank < 2)
    return "";
  std::string sampled = std::to_string(evidence->samples);
  return "over " + sampled + " elements and " + sampled +
         " earlier results the term has rank " +
         std::to_string(evidence->rank) + ": one pass needs at least " +
         std::to_string(evidence->rank) + " accumulators" +
         (evidence->rank == evidence->samples ? ", and more samples show more"
                                              : "");
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

static CascadeReport reportOf(const FusedKernel &kernel) {
  const algebra::Cascade &cascade = kernel.formula->cascade;
  const algebra::Program &program = *kernel.derivation.program;
  CascadeReport report;
  report.name = kernel.name;
  report.step = stepOf(kernel.op);
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
  report.certificate = kernel.certificate;
  report.choices = program.choices;
  report.deriveMs = kernel.deriveMs;
  report.certifyMs = kernel.certifyMs;
  mlir::FailureOr<bool> leavesUnread =
      leavesValuesUnread(kernel.op, TargetFacts());
  if (mlir::succeeded(leavesUnread) && *leavesUnread)
    report.policies.push_back(keyOf(Reason::MaskedValuesUnread).data());
  if (program.boundsExponentials)
    report.policies.push_back(keyOf(Reason::BoundedExponentials).data());
  for (const algebra::Cut &cut : program.cuts)
    report.reasons.push_back(
        {cut.reason, placeOf(cascade.stages[cut.stage]),
         cut.text + (cut.hint.empty() ? "" : "; " + cut.hint),
         evidenceOf(cascade, program, cut)});
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

llvm::Expected<FuseReport> fuse(mlir::ModuleOp module,
                                const FuseOptions &options) {
  Stopwatch watch;
  DiagnosticCollector collector(*module.getContext());
  mlir::func::FuncOp function = *module.getOps<mlir::func::FuncOp>().begin();
  if (mlir::failed(normaliseProgram(function)))
    return asUnsupported(
        collector.takeErrors("the program was not normalised, without reason"));
  FuseCascadesOptions fuseOptions;
  fuseOptions.fuse = options.policy == FusePolicy::Auto;
  mlir::FailureOr<FusionResult> result = fuseCascades(function, fuseOptions);
  if (mlir::failed(result))
    return asUnsupported(
        collector.takeErrors("the program was not fused, without reason"));
  FuseReport report;
  report.kernels = result->kernels.size();
  report.products = result->products;
  report.planMs = result->planMs;
  for (const FusedKernel &kernel : result->kernels)
    if (kernel.isCascade) {
      report.cascades.push_back(reportOf(kernel));
      if (options.accuracy && kernel.derivation.program->isFused())
        report.cascades.back().accuracy = describeAccuracy(kernel);
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
    addNote(report, {note.key, describePlace(note.location), note.text, ""});
  report.totalMs = watch.ms();
  return report;
}

} // namespace refold
