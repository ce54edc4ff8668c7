// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_FRONTEND_MLIR_H
#define REFOLD_FRONTEND_MLIR_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"

namespace refold {

/// What MLIR's parser may be given. It recurses without bound and checks few
/// sizes, so the text is looked at first. Far above what a model needs, far
/// below what overflows a stack.
struct MLIRLimits {
  uint64_t bytes = uint64_t(1) << 30;
  unsigned nesting = 128;       ///< of brackets of every kind together
  unsigned wordBytes = 4096;    ///< of a name or number
  unsigned mapTokens = 2048;    ///< of one affine map or set
  unsigned aliasTokens = 65536; ///< of one alias, aliases in it written out
  unsigned aliasDepth = 64;     ///< of aliases that use aliases
  int64_t elements = int64_t(1)
                     << 48; ///< of one shaped type, empty axes counted as 1
};

/// Is `text` safe to give to MLIR's parser? The error names line and column.
llvm::Error checkMLIRText(llvm::StringRef text, llvm::StringRef where,
                          const MLIRLimits &limits = {});

/// Is `module` in the program form of docs/architecture.md? The error names the
/// place.
llvm::Error checkProgramForm(mlir::ModuleOp module, llvm::StringRef where);

/// Checks, parses and verifies textual MLIR, and names the arguments and
/// results that have no `refold.name`. Loads the dialects it needs into
/// `context`.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importMLIR(llvm::StringRef text, llvm::StringRef where,
           mlir::MLIRContext &context, const MLIRLimits &limits = {});

} // namespace refold

#endif // REFOLD_FRONTEND_MLIR_H
