// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Flags.h"
#include "Output.h"
#include "ProgramFlags.h"
#include "refold/Driver/Driver.h"
#include "refold/Driver/MachineFacts.h"
#include "refold/Target/CPU/DetectTarget.h"

namespace refold {

llvm::Expected<ExitCode> doctorCommand(const Command &command,
                                       Arguments arguments) {
  std::string format = "text";
  std::string target;
  bool probes = false;
  Flags flags;
  flags.choice("format", "how the answer is written (text)", format,
               {"text", "json"});
  flags.text("target", "NAME",
             "avx512, avx2 or baseline (what the machine offers)", target);
  flags.toggle("probe", "measures the machine again, known or not", probes);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  if (!target.empty())
    if (auto found = detectTarget(target); !found)
      return found.takeError();
  std::optional<MachineFacts> machine;
  std::vector<HealthReport> findings = examine(target, probes, machine);
  bool isHealthy = llvm::all_of(
      findings, [](const HealthReport &finding) { return finding.isGood; });
  if (format == "json") {
    llvm::json::Array list;
    for (const HealthReport &finding : findings)
      list.push_back(llvm::json::Object{{"what", finding.what},
                                        {"found", finding.found},
                                        {"ok", finding.isGood}});
    llvm::json::Object answer{{"ok", isHealthy}, {"findings", std::move(list)}};
    if (machine)
      answer["machine"] = toJson(*machine);
    printJson(std::move(answer));
  } else {
    for (const HealthReport &finding : findings) {
      llvm::raw_ostream &os = llvm::outs();
      printColored(os, finding.isGood ? os.GREEN : os.RED,
                   finding.isGood ? "ok   " : "BAD  ");
      os << finding.what << ": " << finding.found << "\n";
    }
  }
  return isHealthy ? ExitCode::Ok : ExitCode::Internal;
}

} // namespace refold
