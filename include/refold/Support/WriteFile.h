// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_WRITEFILE_H
#define REFOLD_SUPPORT_WRITEFILE_H

#include "refold/Support/ExitCode.h"
#include <string>
#include <string_view>
#include <vector>

/// How every tool writes a file; no LLVM here, since refold-run has none.
namespace refold {

/// Why a file was not written; Ok where it was.
struct [[nodiscard]] WriteFailure {
  ExitCode code = ExitCode::Ok;
  std::string message;
  explicit operator bool() const { return code != ExitCode::Ok; }
};

/// What a call that failed with this errno says of the file.
WriteFailure writeFailure(const std::string &path, int code);

/// Writes `parts`, one after the other, as the whole file, or leaves what was
/// there: the bytes go to a file of a fresh name beside it, are synced, and
/// take its name. What a link points to is replaced, with the mode that it has.
/// A path that is no regular file (a pipe, /dev/stdout) is written directly. A
/// full disk is a Limit; a path that cannot be written is wrong (Model).
WriteFailure writeWholeFile(const std::string &path,
                            const std::vector<std::string_view> &parts);

} // namespace refold

#endif // REFOLD_SUPPORT_WRITEFILE_H
