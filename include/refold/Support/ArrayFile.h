// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_ARRAYFILE_H
#define REFOLD_SUPPORT_ARRAYFILE_H

#include "refold/Support/Tensor.h"
#include <string>
#include <vector>

namespace refold {

struct NamedTensor {
  std::string name;
  Tensor tensor;
};

/// Parses the bytes of a NumPy .npy file (versions 1 to 3, either byte order, C
/// or Fortran order). `where` starts every message. `|V2` is bf16; `|V1` is an
/// f8 whose kind the file does not say: `wanted` decides, f8e4m3 without it.
/// Never reads outside `bytes`, whatever they hold.
llvm::Expected<Tensor> parseNpy(llvm::StringRef bytes, llvm::StringRef where,
                                std::optional<DType> wanted = std::nullopt);
/// Parses the bytes of a NumPy .npz file: a zip of .npy members, stored or
/// deflated.
llvm::Expected<std::vector<NamedTensor>> parseNpz(llvm::StringRef bytes,
                                                  llvm::StringRef where);

llvm::Expected<Tensor> readNpy(llvm::StringRef path,
                               std::optional<DType> wanted = std::nullopt);
llvm::Expected<std::vector<NamedTensor>> readNpz(llvm::StringRef path);

/// The bytes of the file, always little endian and in C order; same input, same
/// bytes.
llvm::Expected<std::string> formatNpy(const Tensor &tensor);
llvm::Expected<std::string> formatNpz(llvm::ArrayRef<NamedTensor> tensors);

} // namespace refold

#endif // REFOLD_SUPPORT_ARRAYFILE_H
