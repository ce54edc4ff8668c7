// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "RunFlags.h"
#include "refold/Driver/Bench.h"
#include "refold/Support/Json.h"
#include "llvm/Support/Format.h"

namespace refold {

llvm::Expected<ExitCode> benchCommand(const Command &command,
                                      Arguments arguments) {
  ProgramFlags program;
  InputFlags inputs;
  BenchOptions options;
  std::string baseline = "unfused";
  Flags flags;
  program.addTo(flags);
  program.addDtypeTo(flags);
  inputs.addTo(flags, /*withFiles=*/false);
  flags.integer("threads", "N", "threads (1)", options.threads, 1, 1024);
  flags.choice("baseline", "what it is compared with (unfused)", baseline,
               {"unfused"});
  flags.integer("pairs", "N", "least number of paired runs (7)",
                options.minPairs, 1, 1000000);
  flags.text("target", "NAME",
             "avx512, avx2 or baseline (what the machine offers)",
             options.target);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  auto context = makeContext();
  options.shape = inputs.shape;
  options.inputs = inputs.recipes;
  options.seed = inputs.seed;
  auto result = bench(*context, program.path, program.loadOptions(), options);
  if (!result)
    return result.takeError();
  if (program.isJson()) {
    printJson(llvm::json::Object{
        {"fused_ms", result->fusedMs},
        {"unfused_ms", result->unfusedMs},
        {"speedup", result->speedup},
        {"pairs", result->pairs},
        {"checked", result->isChecked},
        {"checked_against", result->checkedAgainst},
        {"error", jsonNumber(result->error)},
        {"bound", llvm::json::Object{{"name", result->boundName},
                                     {"ms", result->boundMs},
                                     {"share", result->boundShare}}},
        {"compile_ms", result->compileMs}});
    return ExitCode::Ok;
  }
  llvm::outs() << llvm::format("fused    %10.3f ms\nunfused  %10.3f "
                               "ms\nspeedup  %10.2f (median of %d pairs)\n",
                               result->fusedMs, result->unfusedMs,
                               result->speedup, static_cast<int>(result->pairs))
               << llvm::format("compile  %10.1f ms\n", result->compileMs)
               << "error    "
               << llvm::right_justify(formatError(result->error), 10)
               << " against " << result->checkedAgainst << "\n"
               << llvm::format("bound    %10.3f ms (%s), reached by %.0f %%\n",
                               result->boundMs, result->boundName.c_str(),
                               100.0 * result->boundShare);
  return ExitCode::Ok;
}

} // namespace refold
