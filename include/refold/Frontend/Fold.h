// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_FRONTEND_FOLD_H
#define REFOLD_FRONTEND_FOLD_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include "refold/Frontend/Fold/Syntax.h"
#include "llvm/ADT/StringRef.h"

namespace refold {

/// What a caller may fix from outside; the rest is as the source says.
using FoldOptions = fold::Options;

/// Reads one `.fold` function and lowers it to the program form of
/// docs/architecture.md. Errors go to the context's diagnostic engine, at
/// FileLineColLoc(fileName, line, column). The module returned is verified.
/// Loads the dialects it needs into `context`.
mlir::FailureOr<mlir::OwningOpRef<mlir::ModuleOp>>
importFold(llvm::StringRef source, llvm::StringRef fileName,
           mlir::MLIRContext &context, const FoldOptions &options = {});

} // namespace refold

#endif // REFOLD_FRONTEND_FOLD_H
