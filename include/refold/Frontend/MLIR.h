// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_FRONTEND_MLIR_H
#define REFOLD_FRONTEND_MLIR_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "llvm/Support/Error.h"
#include <string>

namespace refold {

/// What MLIR's parser may be given. Its recursion is unbounded and it checks
/// few sizes, so text is looked at before it is parsed.
struct MLIRLimits {
  uint64_t bytes = uint64_t(1) << 30;
  unsigned nesting = 200;        ///< of brackets of every kind, together
  unsigned tokenBytes = 1 << 16; ///< of a name or number; strings may be longer
  uint64_t locationAliases = 1 << 20;
};

/// Is `text` safe to give to MLIR's parser? The error names line and column.
llvm::Error checkMLIRText(llvm::StringRef text, llvm::StringRef where,
                          const MLIRLimits &limits = {});

/// Is `module` in the program form of docs/architecture.md? The error names the
/// place.
llvm::Error checkProgramForm(mlir::ModuleOp module);

/// Checks, parses and verifies textual MLIR and adds the names that the program
/// form requires where they are missing. The context needs no dialect loaded.
llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importMLIR(mlir::MLIRContext &context, llvm::StringRef text,
           llvm::StringRef where, const MLIRLimits &limits = {});

} // namespace refold

#endif // REFOLD_FRONTEND_MLIR_H
