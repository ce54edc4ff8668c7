// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Flags.h"
#include "Output.h"
#include "ProgramFlags.h"
#include "refold/Driver/Driver.h"
#include "refold/Support/NearestName.h"

namespace refold {

llvm::Expected<ExitCode> opsCommand(const Command &command,
                                    Arguments arguments) {
  std::string name, format = "text";
  Flags flags;
  flags.file("NAME", "only the operator of this name", name,
             /*isRequired=*/false);
  flags.choice("format", "how the answer is written (text)", format,
               {"text", "json"});
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  std::vector<OperatorReport> operators = readableOperators();
  if (!name.empty()) {
    std::vector<llvm::StringRef> known(operators.size());
    llvm::transform(
        operators, known.begin(),
        [](const OperatorReport &op) -> llvm::StringRef { return op.name; });
    if (!llvm::is_contained(known, name))
      return fail(ExitCode::Unsupported,
                  "found no operator '" + name + "'" + suggestion(name, known));
    llvm::erase_if(operators,
                   [&](const OperatorReport &op) { return op.name != name; });
  }
  if (format == "json") {
    llvm::json::Array list;
    for (const OperatorReport &op : operators)
      list.push_back(llvm::json::Object{
          {"name", op.name}, {"from", op.firstOpset}, {"to", op.lastOpset}});
    printJson(llvm::json::Object{{"operators", std::move(list)}});
    return ExitCode::Ok;
  }
  for (const OperatorReport &op : operators) {
    llvm::outs() << op.name;
    llvm::outs().indent(30 - std::min<size_t>(op.name.size(), 29))
        << "opset " << op.firstOpset << " to " << op.lastOpset << "\n";
  }
  return ExitCode::Ok;
}

} // namespace refold
