// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Flags.h"
#include "Output.h"
#include "ProgramFlags.h"
#include "refold/Driver/Driver.h"
#include "llvm/ADT/StringExtras.h"

namespace refold {

static std::string describe(const Port &port) {
  std::string text = port.name + "[";
  for (auto [i, dim] : llvm::enumerate(port.dims)) {
    std::string extent =
        port.extents[i] < 0 ? "?" : std::to_string(port.extents[i]);
    text += i ? ", " : "";
    text += dim.empty()           ? extent
            : port.extents[i] < 0 ? dim
                                  : dim + "=" + extent;
  }
  return text + "]: " + nameOf(port.dtype).str();
}

static llvm::json::Value toJson(const Port &port) {
  llvm::json::Array extents;
  for (int64_t extent : port.extents)
    extents.push_back(extent < 0 ? llvm::json::Value(nullptr)
                                 : llvm::json::Value(extent));
  return llvm::json::Object{{"name", port.name},
                            {"dtype", nameOf(port.dtype)},
                            {"dims", llvm::json::Array(port.dims)},
                            {"extents", std::move(extents)}};
}

static llvm::json::Value toJson(llvm::ArrayRef<Port> ports) {
  llvm::json::Array result;
  for (const Port &port : ports)
    result.push_back(toJson(port));
  return result;
}

llvm::Expected<ExitCode> inspectCommand(const Command &command,
                                        Arguments arguments) {
  ProgramFlags program;
  Flags flags;
  program.addTo(flags);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  auto context = makeContext();
  auto loaded = load(*context, program.path, program.loadOptions());
  if (!loaded)
    return loaded.takeError();
  ProgramSize size = measure(*loaded);
  if (program.isJson()) {
    llvm::json::Object ops;
    for (const auto &[name, count] : size.ops)
      ops[name] = count;
    printJson(llvm::json::Object{{"name", loaded->name},
                                 {"inputs", toJson(loaded->inputs)},
                                 {"outputs", toJson(loaded->outputs)},
                                 {"constants", size.constants},
                                 {"constant_bytes", size.constantBytes},
                                 {"ops", std::move(ops)}});
    return ExitCode::Ok;
  }
  llvm::raw_ostream &os = llvm::outs();
  os << loaded->name << "\n";
  for (const Port &port : loaded->inputs)
    os << "  in   " << describe(port) << "\n";
  for (const Port &port : loaded->outputs)
    os << "  out  " << describe(port) << "\n";
  os << "  " << size.constants << " constants, "
     << formatBytes(size.constantBytes) << "\n";
  for (const auto &[name, count] : size.ops)
    os << "  " << llvm::right_justify(std::to_string(count), 6) << "  " << name
       << "\n";
  return ExitCode::Ok;
}

} // namespace refold
