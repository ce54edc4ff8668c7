// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random programs with reductions that read each other, as .fold text, and how
// they are made smaller.
#ifndef REFOLD_FUZZ_RANDOM_CASCADES_PROGRAM_H
#define REFOLD_FUZZ_RANDOM_CASCADES_PROGRAM_H

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace refold::fuzz {

/// A real expression: text in which $0, $1, ... stand for its operands.
struct Term {
  std::string format;
  std::vector<Term> operands;
  std::string text() const;
};

/// `name = text`, the term possibly inside a reducer.
struct Definition {
  std::string name;
  std::string before, after; ///< "max(n: " and ")"; both may be empty
  Term term;
  std::string target = {}; ///< what stands left of `=`; empty: the name
  std::string text() const {
    return "  " + (target.empty() ? name : target) + " = " + before +
           term.text() + after + "\n";
  }
};

struct RandomProgram {
  std::vector<std::string> arguments; ///< "x[m,n]: f16"
  std::vector<Definition> definitions;
  std::vector<std::string> outputs; ///< names of definitions
  std::map<std::string, int64_t> extents;
  unsigned family = 0; ///< of inputs, as InputFamily
  std::string text() const;
  /// A list is ordered by what reads an earlier stage.
  bool ordersByResults() const;
  /// Moments of rows with columns, or pivots of a later pass.
  bool isMostlyMerged() const;
  /// What is written of each element reads a count that all rows share.
  bool hasSharedCount() const;
};

/// The program of a seed, most often inside the class that fuses: stages over
/// n, at times over two axes, of sums, means, products, extremes, the best few
/// with their positions, any and all, of terms in the inputs and earlier
/// stages, with shares of softmaxes, moments, guards, masks, labels, casts,
/// broadcast and transposed reads, a product inside, and outputs with and
/// without n.
RandomProgram generate(uint64_t seed);

/// Programs that are smaller in one place, the boldest first; some may not be
/// valid.
std::vector<RandomProgram> smaller(const RandomProgram &program);

} // namespace refold::fuzz

#endif // REFOLD_FUZZ_RANDOM_CASCADES_PROGRAM_H
