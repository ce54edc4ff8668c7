// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_EXITCODE_H
#define REFOLD_SUPPORT_EXITCODE_H

namespace refold {

/// How a tool ends. Part of the command-line contract.
enum class ExitCode : int {
  Ok = 0,
  Model = 1,       ///< the program or an input file is wrong
  Usage = 2,       ///< the command line is wrong
  Mismatch = 3,    ///< a result is outside its bound
  Unsupported = 4, ///< a correct program that is not covered
  Limit = 5,       ///< a size, depth, time or memory limit
  Internal = 70,   ///< our own broken invariant
};

} // namespace refold

#endif // REFOLD_SUPPORT_EXITCODE_H
