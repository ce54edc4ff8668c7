// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any bytes as an .npy and an .npz file: refused or read, and what is read is
// written back to the same values.
#include "refold/Support/ArrayFile.h"
#include <cstdlib>
#include <cstring>

using namespace refold;

static void checkRoundTrip(const Tensor &tensor) {
  llvm::Expected<std::string> bytes = formatNpy(tensor);
  if (!bytes)
    std::abort();
  llvm::Expected<Tensor> again = parseNpy(*bytes, "again", tensor.dtype());
  bool isSame =
      again && again->shape() == tensor.shape() &&
      again->dtype() == tensor.dtype() &&
      (tensor.numBytes() == 0 ||
       std::memcmp(again->data(), tensor.data(), tensor.numBytes()) == 0);
  if (!isSame)
    std::abort();
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef bytes(reinterpret_cast<const char *>(data), size);
  if (llvm::Expected<Tensor> tensor = parseNpy(bytes, "fuzz"))
    checkRoundTrip(*tensor);
  else
    llvm::consumeError(tensor.takeError());
  if (llvm::Expected<std::vector<NamedTensor>> tensors =
          parseNpz(bytes, "fuzz"))
    for (const NamedTensor &entry : *tensors)
      checkRoundTrip(entry.tensor);
  else
    llvm::consumeError(tensors.takeError());
  return 0;
}
