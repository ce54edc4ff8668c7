// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "RunFlags.h"
#include "refold/Driver/Tune.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"

namespace refold {

static llvm::json::Object toJson(const TuneReport &report) {
  llvm::json::Array candidates;
  for (const TuneCandidate &candidate : report.candidates)
    candidates.push_back(
        llvm::json::Object{{"change", candidate.change},
                           {"schedule", candidate.schedule},
                           {"ms", candidate.ms},
                           {"predicted_ms", candidate.predictedMs},
                           {"checked", !candidate.isWrong}});
  return llvm::json::Object{{"step", report.step},
                            {"candidates", std::move(candidates)},
                            {"best", int64_t(report.best)},
                            {"kept_in", report.keptIn}};
}

static void print(const TuneReport &report) {
  llvm::raw_ostream &os = llvm::outs();
  os << report.step << "\n        ms  predicted\n";
  for (auto [i, candidate] : llvm::enumerate(report.candidates)) {
    os << llvm::format("%10.4f %10.4f  ", candidate.ms, candidate.predictedMs)
       << (candidate.change.empty() ? "as chosen" : candidate.change);
    if (candidate.isWrong)
      os << ": another answer, not used";
    else if (i == report.best)
      printColored(os, os.GREEN, " (best)");
    os << "\n";
  }
  if (!report.best)
    os << "  nothing is faster than the chosen schedule\n";
  else if (report.keptIn.empty())
    os << "  the best one could not be kept\n";
  else
    os << "  kept for --tuned in " << report.keptIn << "\n";
}

llvm::Expected<ExitCode> tuneCommand(const Command &command,
                                     Arguments arguments) {
  ProgramFlags program;
  InputFlags inputs;
  TuneOptions options;
  Flags flags;
  program.addTo(flags);
  program.addDtypeTo(flags);
  program.addNumericsTo(flags);
  inputs.addTo(flags, /*withFiles=*/false);
  flags.integer("threads", "N", "threads (1)", options.threads, 1, 1024);
  addFuseTo(flags, options.policy);
  flags.text("target", "NAME",
             "avx512, avx2 or baseline (what the machine offers)",
             options.target);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  if (llvm::StringRef(options.target).starts_with("cuda"))
    return fail(ExitCode::Usage,
                "found the target '" + options.target +
                    "', expected avx512, avx2 or baseline; launches on a GPU "
                    "are tuned by 'refold run --tune' and 'refold bench "
                    "--tune'");
  options.shape = inputs.shape;
  options.inputs = inputs.recipes;
  options.seed = inputs.seed;
  options.numerics = program.numerics;
  auto context = makeContext();
  constexpr size_t kUsualCandidates = 16;
  Progress progress("tune", kUsualCandidates);
  options.onProgress = [&](llvm::StringRef what) { progress.step(what); };
  auto reports = tune(*context, program.path, program.loadOptions(), options);
  if (!reports)
    return reports.takeError();
  progress.clear();
  if (program.isJson()) {
    llvm::json::Array list;
    for (const TuneReport &report : *reports)
      list.push_back(toJson(report));
    printJson(llvm::json::Object{{"kernels", std::move(list)}});
    return ExitCode::Ok;
  }
  for (const TuneReport &report : *reports)
    print(report);
  if (reports->empty())
    llvm::outs() << "nothing to tune: the program has no cascade that a kernel "
                    "computes\n";
  return ExitCode::Ok;
}

} // namespace refold
