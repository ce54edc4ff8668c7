// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Random programs around sums of products, as .fold text.
#ifndef REFOLD_FUZZ_RANDOM_PRODUCTS_PROGRAM_H
#define REFOLD_FUZZ_RANDOM_PRODUCTS_PROGRAM_H

#include "random_cascades_program.h"

namespace refold::fuzz {

/// A program and how it is compiled.
struct ProductProgram {
  RandomProgram program;
  std::map<std::string, int64_t> known; ///< extents fixed while loading
  std::vector<int64_t> lengths;         ///< of the stream, where it is open
  std::string target;                   ///< of the CPU; empty: this machine's
  unsigned stability = 1;               ///< as Stability
  bool requantises = false;
};

/// The program of a seed: elements (read, quantised, or a product themselves),
/// masks and windows, numbers of rows, weights made of both; one to three
/// products of these with operands of any type and layout, some shared, read by
/// several products or by other reductions; scales and zero points of rows and
/// columns; and what follows along the columns.
ProductProgram generateProducts(uint64_t seed);

} // namespace refold::fuzz

#endif // REFOLD_FUZZ_RANDOM_PRODUCTS_PROGRAM_H
