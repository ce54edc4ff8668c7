// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any bytes as a model file: a module in program form, or errors; never a
// crash.
#include "refold/Frontend/ONNX.h"
#include "refold/Support/Diagnostics.h"
#include <cstdint>
#include <cstdlib>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  // A fresh context: constants live as long as theirs.
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  refold::DiagnosticCollector collector(context);
  llvm::StringRef bytes(reinterpret_cast<const char *>(data), size);
  auto model = refold::importOnnx(
      llvm::MemoryBuffer::getMemBuffer(bytes, "fuzz.onnx",
                                       /*RequiresNullTerminator=*/false),
      "fuzz.onnx", context);
  // A refusal says why.
  if (mlir::failed(model) && !collector.hasErrors())
    abort();
  return 0;
}
