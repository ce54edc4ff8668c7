// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ProgramFlags.h"
#include "llvm/Support/raw_ostream.h"

namespace refold {

void ProgramFlags::addTo(Flags &flags) {
  flags.file("FILE", "a .fold, .onnx or .mlir program", path);
  flags.choice("format", "how the answer is written (text)", format,
               {"text", "json"});
  flags.value(
      "dim", "NAME=EXTENT,...", "fixes named dimensions while reading",
      [this](llvm::StringRef text) { return parseExtents(text, dims); });
}

void ProgramFlags::addDtypeTo(Flags &flags) {
  flags.choice("dtype",
               "type of the float arguments and results of a .fold program",
               dtype, {"f64", "f32", "f16", "bf16"});
}

LoadOptions ProgramFlags::loadOptions() const {
  LoadOptions options;
  options.dims = dims;
  options.dtype = parseDType(dtype);
  return options;
}

bool showHelp(const Command &command, const Flags &flags, Arguments arguments) {
  if (!llvm::is_contained(arguments, "--help") &&
      !llvm::is_contained(arguments, "-h"))
    return false;
  llvm::outs() << flags.help(command.name, command.summary);
  return true;
}

} // namespace refold
