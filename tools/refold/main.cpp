// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Commands.h"
#include "Output.h"
#include "refold/Support/NearestName.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/Support/InitLLVM.h"
#include <csignal>
#include <new>

using namespace refold;

static constexpr Command kCommands[] = {
    {"run", "runs a program on arrays from files or random ones", runCommand},
    {"compile", "compiles a program and shows a stage of it", compileCommand},
    {"explain", "says of every cascade whether and how it fuses",
     explainCommand},
    {"verify", "compares fused and unfused with double precision",
     verifyCommand},
    {"bench", "times fused against unfused", benchCommand},
    {"tune",
     "measures other schedules of a program's kernels and keeps the best",
     tuneCommand},
    {"inspect", "shows the inputs, outputs and size of a program",
     inspectCommand},
    {"ops", "lists the operators that are read", opsCommand},
    {"doctor", "says what this machine offers and whether it works",
     doctorCommand},
    {"cache", "shows what is kept on disk, and clears it", cacheCommand},
};

static void printUsage(llvm::raw_ostream &os) {
  os << "refold: finds cascaded reductions in a program and makes one-pass "
        "kernels of them\n\n"
        "usage: refold COMMAND [flags]\n\n";
  for (const Command &command : kCommands) {
    os << "  " << command.name;
    os.indent(10 - command.name.size()) << command.summary << "\n";
  }
  os << "\n'refold COMMAND --help' lists the flags of a command.\n"
        "Exit codes: 0 ok, 1 model, 2 usage, 3 mismatch, 4 unsupported, 5 "
        "limit, 70 internal.\n";
}

static ExitCode finish(llvm::Error error) {
  std::string message;
  ExitCode code = takeError(std::move(error), message);
  if (code != ExitCode::Ok)
    printError(message);
  return code;
}

static ExitCode dispatch(Arguments arguments) {
  if (arguments.empty()) {
    printUsage(llvm::errs());
    return ExitCode::Usage;
  }
  llvm::StringRef name = arguments.front();
  if (name == "--help" || name == "-h" || name == "help") {
    printUsage(llvm::outs());
    return ExitCode::Ok;
  }
  if (name == "--version") {
    llvm::outs() << "refold " REFOLD_VERSION "\n";
    return ExitCode::Ok;
  }
  for (const Command &command : kCommands) {
    if (command.name != name)
      continue;
    llvm::Expected<ExitCode> code =
        command.run(command, arguments.drop_front());
    return code ? *code : finish(code.takeError());
  }
  auto names = llvm::to_vector(llvm::map_range(
      kCommands, [](const Command &command) { return command.name; }));
  return finish(fail(ExitCode::Usage, "found the unknown command '" + name +
                                          "'" + suggestion(name, names) +
                                          "; see 'refold --help'"));
}

/// What was printed has to have arrived: a full disk behind stdout is no
/// success.
static ExitCode flushOutput(ExitCode code) {
  llvm::raw_fd_ostream &os = llvm::outs();
  os.flush();
  if (!os.has_error())
    return code;
  std::string reason = llvm::StringRef(os.error().message()).lower();
  os.clear_error();
  printError("standard output: not written: " + reason);
  return code == ExitCode::Ok ? ExitCode::Limit : code;
}

int main(int argc, char **argv) {
  llvm::InitLLVM init(argc, argv);
  // A file that may not grow is an error of the write, not our death.
  ::signal(SIGXFSZ, SIG_IGN);
  // LLVM's handler aborts; a model that does not fit is no fault of ours.
  std::set_new_handler(nullptr);
  llvm::SmallVector<llvm::StringRef> arguments(argv + std::min(argc, 1),
                                               argv + argc);
  try {
    return static_cast<int>(flushOutput(dispatch(arguments)));
  } catch (const std::bad_alloc &) {
    printError("no memory is left");
    return static_cast<int>(ExitCode::Limit);
  }
}
