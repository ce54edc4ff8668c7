// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TOOLS_REFOLD_OUTPUT_H
#define REFOLD_TOOLS_REFOLD_OUTPUT_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"
#include <chrono>
#include <string>

namespace refold {

struct LoadedProgram;
struct FuseReport;
struct PackageReport;

/// Writes JSON and a line break to stdout.
void printJson(const llvm::json::Value &value);

/// Bold, or a colour, where `os` is a terminal and NO_COLOR is not set.
void printColored(llvm::raw_ostream &os, llvm::raw_ostream::Colors color,
                  llvm::StringRef text);

/// "error: ..." on stderr; messages that say so themselves keep their place in
/// front.
void printError(llvm::StringRef message);

/// What `--multiply` has rounded, if it was given, on stderr.
void tellNarrowed(const LoadedProgram &program, llvm::StringRef type);
/// Where a package has its weights that may refer to them, on stderr.
void tellReferenced(const PackageReport &report);
/// What a package needs oneDNN for, likewise.
void tellLibraryProducts(const PackageReport &report);
/// What a GPU has no fused code for, as remarks on stderr.
void tellDeclined(const FuseReport &report);

/// "1.5 MiB", "640 B".
std::string formatBytes(double bytes);
/// "4.3 G", "640".
std::string formatCount(double count);
/// "1.23e-07", and "0" for zero.
std::string formatError(double value);

/// One line on stderr that says how far a long job is; only on a terminal, only
/// after half a second, and gone when the job ends.
class Progress {
public:
  Progress(llvm::StringRef what, size_t total);
  ~Progress();
  void step(llvm::StringRef detail = "");
  /// Takes the line away.
  void clear();

private:
  std::string what;
  size_t total, done = 0;
  bool isShown = false, isTerminal;
  std::chrono::steady_clock::time_point begin, last;
};

} // namespace refold

#endif // REFOLD_TOOLS_REFOLD_OUTPUT_H
