// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// One function a command, one file a function. Each parses its flags, calls the
// driver and writes what it answers.
#ifndef REFOLD_TOOLS_REFOLD_COMMANDS_H
#define REFOLD_TOOLS_REFOLD_COMMANDS_H

#include "refold/Support/Error.h"

namespace refold {

using Arguments = llvm::ArrayRef<llvm::StringRef>;

struct Command {
  llvm::StringRef name, summary;
  llvm::Expected<ExitCode> (*run)(const Command &command, Arguments arguments);
};

llvm::Expected<ExitCode> runCommand(const Command &command,
                                    Arguments arguments);
llvm::Expected<ExitCode> compileCommand(const Command &command,
                                        Arguments arguments);
llvm::Expected<ExitCode> explainCommand(const Command &command,
                                        Arguments arguments);
llvm::Expected<ExitCode> verifyCommand(const Command &command,
                                       Arguments arguments);
llvm::Expected<ExitCode> benchCommand(const Command &command,
                                      Arguments arguments);
llvm::Expected<ExitCode> tuneCommand(const Command &command,
                                     Arguments arguments);
llvm::Expected<ExitCode> inspectCommand(const Command &command,
                                        Arguments arguments);
llvm::Expected<ExitCode> opsCommand(const Command &command,
                                    Arguments arguments);
llvm::Expected<ExitCode> doctorCommand(const Command &command,
                                       Arguments arguments);
llvm::Expected<ExitCode> cacheCommand(const Command &command,
                                      Arguments arguments);

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_COMMANDS_H
