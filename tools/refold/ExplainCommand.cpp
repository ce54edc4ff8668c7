// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "ProgramFlags.h"
#include "ReportJson.h"
#include "refold/Support/Reasons.h"
#include "llvm/ADT/StringExtras.h"

namespace refold {

static void printIndented(llvm::raw_ostream &os, llvm::StringRef text) {
  llvm::SmallVector<llvm::StringRef> lines;
  text.rtrim('\n').split(lines, '\n');
  for (llvm::StringRef line : lines)
    os << "    " << line << "\n";
}

static void print(const CascadeReport &report) {
  llvm::raw_ostream &os = llvm::outs();
  os << report.name << ": ";
  printColored(os, report.isFused ? os.GREEN : os.YELLOW,
               report.isFused ? "fused" : "cut");
  os << ", " << report.stages.size()
     << (report.stages.size() == 1 ? " reduction" : " reductions") << " over "
     << llvm::join(report.axes, ", ") << " in " << report.passes
     << (report.passes == 1 ? " pass" : " passes") << " instead of "
     << report.unfusedPasses << ", state of " << report.stateSize << "\n";
  for (const StageReport &stage : report.stages) {
    os << "  pass " << stage.pass << "  " << stage.name << " = " << stage.op;
    if (stage.line)
      os << "  (line " << stage.line << ")";
    os << "\n";
  }
  if (!report.gauge.empty())
    os << "  relative to: " << report.gauge << "\n";
  for (const ReasonReport &reason : report.reasons) {
    os << "  " << reason.at << ": ";
    printColored(os, os.YELLOW, "cascade cut [" + reason.key + "]");
    os << ": " << reason.text << "\n";
  }
  for (const std::string &policy : report.policies)
    os << "  policy [" << policy << "]: " << infoOf(*reasonOfKey(policy)).text
       << "\n";
  printIndented(os, report.formula);
  if (!report.certificate.empty())
    os << "  certificate: " << report.certificate << "\n";
  os << "\n";
}

llvm::Expected<ExitCode> explainCommand(const Command &command,
                                        Arguments arguments) {
  ProgramFlags program;
  Flags flags;
  program.addTo(flags);
  program.addDtypeTo(flags);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  auto context = makeContext();
  auto loaded = load(*context, program.path, program.loadOptions());
  if (!loaded)
    return loaded.takeError();
  auto report = fuse(*loaded->module, {});
  if (!report)
    return report.takeError();
  if (program.isJson()) {
    llvm::json::Array cascades;
    for (const CascadeReport &cascade : report->cascades)
      cascades.push_back(toJson(cascade));
    printJson(llvm::json::Object{{"cascades", std::move(cascades)},
                                 {"notes", toJson(report->notes)},
                                 {"kernels", report->kernels},
                                 {"products", report->products}});
    return ExitCode::Ok;
  }
  for (const CascadeReport &cascade : report->cascades)
    print(cascade);
  for (const ReasonReport &note : report->notes)
    llvm::outs() << note.at << ": cascade not fused [" << note.key
                 << "]: " << note.text << "\n";
  size_t fused = llvm::count_if(
      report->cascades, [](const CascadeReport &c) { return c.isFused; });
  llvm::outs() << report->cascades.size()
               << (report->cascades.size() == 1 ? " cascade, " : " cascades, ")
               << fused << " fused; " << report->kernels << " kernels, "
               << report->products << " products\n";
  return ExitCode::Ok;
}

} // namespace refold
