// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Any bytes as a .mlir program: refused with a message, or a module in program
// form that verifies. MLIR itself is not instrumented; what is looked for is
// text that gets past the guard and breaks its parser.
#include "mlir/IR/Verifier.h"
#include "refold/Frontend/MLIR.h"
#include "refold/Support/Error.h"
#include <cstdlib>

using namespace refold;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  llvm::StringRef text(reinterpret_cast<const char *>(data), size);
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  auto module = importMLIR(text, "fuzz.mlir", context);
  if (module) {
    if (mlir::failed(mlir::verify(**module)))
      std::abort();
    return 0;
  }
  std::string message;
  ExitCode code = takeError(module.takeError(), message);
  if (message.empty() || code == ExitCode::Ok || code == ExitCode::Internal)
    std::abort();
  return 0;
}
