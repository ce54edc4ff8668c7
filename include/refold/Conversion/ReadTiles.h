// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Programs of tile ops as kernels and headers say them: their text is read,
// functions are followed where they are called, and what is asynchronous, what
// tells others and what accesses shared memory becomes ops.
#ifndef REFOLD_CONVERSION_READTILES_H
#define REFOLD_CONVERSION_READTILES_H

#include "refold/Conversion/VerifyTiles.h"

namespace refold::tile {

/// What is read, and what its text does not say.
struct Reading {
  std::vector<std::string> texts; ///< headers, and the kernel
  /// As it is called, "F8Roles<256, 4, true>::run": arguments of templates that
  /// are types may be any.
  std::string function;
  /// Parameters, and names that stand for numbers of arrays.
  std::map<std::string, int64_t> numbers;
  /// What is found in arrays of shared memory, as formulas, by their names, or
  /// "name[1]" of one element.
  std::map<std::string, std::string> loads;
  /// What calls return and conditions are that text does not decide, as
  /// formulas, by how these begin; "~": of tickets, whatever they are;
  /// "!": a call that is not followed, of places that data say.
  std::map<std::string, std::string> answers;
  std::vector<Tiles> tiles;
  std::vector<RegisterArray> registers;
  /// Conditions that any block may meet or not.
  std::vector<std::string> open;
};

/// The program; `fault` is set where its text says what cannot be followed.
Program readProgram(const Reading &reading, std::optional<Fault> &fault);

} // namespace refold::tile

#endif // REFOLD_CONVERSION_READTILES_H
