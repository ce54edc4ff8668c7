// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Whether a program of tile ops may go wrong: its warps are walked over some
// numbers of tiles and rows, and what they do is held against the rules of
// docs/targets/cuda.md.
#ifndef REFOLD_CONVERSION_VERIFYTILES_H
#define REFOLD_CONVERSION_VERIFYTILES_H

#include "refold/Conversion/TileProgram.h"

#include <optional>

namespace refold::tile {

/// An entry of a program: its template's numbers, and what it is launched with.
struct Entry {
  std::map<std::string, int64_t> constants;
  int threads = 0;
  int64_t sharedBytes = 0;
  /// The first of those that are walked, how many these are, and of how many.
  int block = 0, walkedBlocks = 1, blocks = 1;
  bool hasVisits = true;  ///< rows and tiles that the walk makes up
  bool takesOpen = false; ///< conditions that only the text knows, without them
  /// Whether another entry has been verified whose warps go the same ways: only
  /// memory and registers are other ones.
  bool isLikeAnother = false;
};

struct Fault {
  std::string rule;   ///< one of `allRules`
  std::string detail; ///< "found ...; expected ..."
};

/// Names of all rules.
const std::vector<std::string> &allRules();

std::optional<Fault> verify(const Program &program, const Entry &entry);

} // namespace refold::tile

#endif // REFOLD_CONVERSION_VERIFYTILES_H
