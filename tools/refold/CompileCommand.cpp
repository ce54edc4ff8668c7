// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "ProgramFlags.h"
#include "refold/Support/Files.h"
#include "llvm/Support/Format.h"

namespace refold {

/// The program as text at one stage of its way through the folders of lib/.
static llvm::Expected<std::string> textAt(llvm::StringRef stage,
                                          LoadedProgram program,
                                          const CompileOptions &options,
                                          bool withLocations) {
  std::string text;
  llvm::raw_string_ostream os(text);
  if (stage == "asm") {
    CompileOptions listening = options;
    listening.onAssembly = [&](llvm::StringRef kernel,
                               llvm::StringRef assembly) {
      os << "# kernel " << kernel << "\n" << assembly << "\n";
    };
    auto compiled = compile(std::move(program), listening);
    if (!compiled)
      return compiled.takeError();
    return os.str();
  }
  if (stage == "cascade") {
    FuseOptions fuseOptions;
    fuseOptions.policy = options.policy;
    fuseOptions.numerics = options.numerics;
    auto report = fuse(*program.module, fuseOptions);
    if (!report)
      return report.takeError();
  }
  mlir::OpPrintingFlags printing;
  if (withLocations)
    printing.enableDebugInfo(/*enable=*/true, /*prettyForm=*/true)
        .useLocalScope();
  program.module->print(os, printing);
  return os.str();
}

llvm::Expected<ExitCode> compileCommand(const Command &command,
                                        Arguments arguments) {
  ProgramFlags program;
  CompileOptions options;
  std::string emit, fuse = "auto", output;
  bool withLocations = false;
  Flags flags;
  program.addTo(flags);
  program.addDtypeTo(flags);
  program.addNumericsTo(flags);
  flags.choice("emit", "shows the program as read, as cascades, or as assembly",
               emit, {"program", "cascade", "asm"});
  flags.choice("fuse", "what is fused (auto)", fuse, {"auto", "never"});
  flags.text("target", "NAME",
             "avx512, avx2 or baseline (what the machine offers)",
             options.target);
  flags.toggle("locations", "with the definition or node of every operation",
               withLocations);
  flags.text("output", "FILE", "where --emit writes (stdout); also -o", output);
  if (showHelp(command, flags, arguments))
    return ExitCode::Ok;
  if (llvm::Error error = flags.parse(command.name, arguments))
    return std::move(error);
  options.numerics = program.numerics;
  options.policy = fuse == "never" ? FusePolicy::Never : FusePolicy::Auto;
  auto context = makeContext();
  auto loaded = load(*context, program.path, program.loadOptions());
  if (!loaded)
    return loaded.takeError();
  if (!emit.empty()) {
    auto text = textAt(emit, std::move(*loaded), options, withLocations);
    if (!text)
      return text.takeError();
    if (output.empty())
      llvm::outs() << *text;
    else if (llvm::Error error = writeFileAtomically(output, *text))
      return std::move(error);
    return ExitCode::Ok;
  }
  auto compiled = compile(std::move(*loaded), options);
  if (!compiled)
    return compiled.takeError();
  llvm::json::Object counters = compiled->executable.counters();
  if (program.isJson()) {
    printJson(llvm::json::Object{{"compile_ms", compiled->compileMs},
                                 {"counters", std::move(counters)}});
    return ExitCode::Ok;
  }
  llvm::outs() << llvm::format("compiled in %.1f ms: ", compiled->compileMs)
               << counters.getInteger("kernels").value_or(0) << " kernels, "
               << counters.getInteger("products").value_or(0) << " products, "
               << counters.getInteger("steps").value_or(0) << " steps, "
               << formatBytes(counters.getInteger("constant_bytes").value_or(0))
               << " of constants\n";
  return ExitCode::Ok;
}

} // namespace refold
