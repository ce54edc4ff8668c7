// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_TOOLS_REFOLD_RUN_NPY_H
#define REFOLD_TOOLS_REFOLD_RUN_NPY_H

#include "refold/Package/Outcome.h"
#include "refold/Support/DType.h"
#include <vector>

namespace refold::package {

/// A row-major array.
struct Array {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  std::vector<char> bytes;
};

/// Gives an array on its way to `total` bytes a size; a limit with that number
/// where there is no memory.
Problem growArray(Array &array, size_t size, size_t total);

/// Reads a NumPy file of the wanted type in C order and little endian; `|V2` is
/// bf16, `|V1` an f8. Whatever the bytes are, the answer is an array or a
/// message.
Outcome<Array> readNpy(const std::string &path, DType wanted);

/// Writes beside its place, then takes the name: whole or not at all.
Problem writeNpy(const std::string &path, const Array &array);

} // namespace refold::package

#endif // REFOLD_TOOLS_REFOLD_RUN_NPY_H
