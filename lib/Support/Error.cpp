// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Error.h"

namespace refold {

char Failure::ID = 0;

ExitCode takeError(llvm::Error error, std::string &message) {
  ExitCode code = ExitCode::Ok;
  auto note = [&](ExitCode found, std::string text) {
    if (code == ExitCode::Ok)
      code = found;
    message += (message.empty() ? "" : "\n") + text;
  };
  llvm::handleAllErrors(
      std::move(error),
      [&](const Failure &failure) { note(failure.exitCode, failure.message); },
      [&](const llvm::ErrorInfoBase &other) {
        note(ExitCode::Model, other.message());
      });
  return code;
}

} // namespace refold
