// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_ERROR_H
#define REFOLD_SUPPORT_ERROR_H

#include "refold/Support/ExitCode.h"
#include "llvm/ADT/Twine.h"
#include "llvm/Support/Error.h"
#include <string>

namespace refold {

/// An error that knows how the tool ends. The message is lower case, without
/// full stop, and starts with its place: "x.npy: found ..., expected ...".
class Failure : public llvm::ErrorInfo<Failure> {
public:
  static char ID;
  Failure(ExitCode code, std::string message)
      : exitCode(code), message(std::move(message)) {}
  void log(llvm::raw_ostream &os) const override { os << message; }
  std::error_code convertToErrorCode() const override {
    return llvm::inconvertibleErrorCode();
  }

  ExitCode exitCode;
  std::string message;
};

inline llvm::Error fail(ExitCode code, const llvm::Twine &message) {
  return llvm::make_error<Failure>(code, message.str());
}

/// Takes the error apart. Ok for success; an error of another class counts as
/// Model.
ExitCode takeError(llvm::Error error, std::string &message);

} // namespace refold

#endif // REFOLD_SUPPORT_ERROR_H
