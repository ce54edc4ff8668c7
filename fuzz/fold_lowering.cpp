// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Property: what the analysis accepts lowers to a module that verifies. Seeds:
// examples/ and test/Frontend/Fold/broken/.
#include "mlir/IR/Diagnostics.h"
#include "refold/Frontend/Fold.h"
#include "refold/Frontend/Fold/Program.h"
#include <cstdio>
#include <cstdlib>

using namespace refold;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  std::string_view source(reinterpret_cast<const char *>(data), size);
  fold::Result<fold::Ast> ast = fold::parse(source);
  if (!std::holds_alternative<fold::Ast>(ast))
    return 0;
  fold::Result<fold::Program> program = fold::analyze(std::get<fold::Ast>(ast));
  if (!std::holds_alternative<fold::Program>(program))
    return 0;
  // A context keeps every name and type it has seen.
  static std::unique_ptr<mlir::MLIRContext> context;
  static unsigned uses = 0;
  if (uses++ % 1000 == 0)
    context = std::make_unique<mlir::MLIRContext>(
        mlir::MLIRContext::Threading::DISABLED);
  auto module = importFold(llvm::StringRef(source.data(), source.size()),
                           "fuzz.fold", *context);
  if (mlir::failed(module)) {
    std::fprintf(stderr, "property broken: an accepted program lowers\n");
    std::abort();
  }
  return 0;
}
