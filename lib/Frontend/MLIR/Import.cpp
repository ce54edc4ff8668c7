// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Builders.h"
#include "mlir/Parser/Parser.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Frontend/MLIR.h"
#include "refold/Support/Diagnostics.h"
#include "llvm/Support/SourceMgr.h"

namespace refold {

/// Completes the names that the tools speak of arguments and results by.
static void addNames(mlir::func::FuncOp function) {
  mlir::Builder builder(function.getContext());
  auto dimsOf = [&](mlir::Type type) {
    return builder.getStrArrayAttr(llvm::SmallVector<llvm::StringRef>(
        mlir::cast<mlir::RankedTensorType>(type).getRank(), ""));
  };
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    if (!function.getArgAttr(i, "refold.name"))
      function.setArgAttr(i, "refold.name",
                          builder.getStringAttr("arg" + llvm::Twine(i)));
    if (!function.getArgAttr(i, "refold.dims"))
      function.setArgAttr(i, "refold.dims",
                          dimsOf(function.getArgumentTypes()[i]));
  }
  for (unsigned i = 0; i < function.getNumResults(); ++i) {
    if (!function.getResultAttr(i, "refold.name"))
      function.setResultAttr(i, "refold.name",
                             builder.getStringAttr("out" + llvm::Twine(i)));
    if (!function.getResultAttr(i, "refold.dims"))
      function.setResultAttr(i, "refold.dims",
                             dimsOf(function.getResultTypes()[i]));
  }
}

llvm::Expected<mlir::OwningOpRef<mlir::ModuleOp>>
importMLIR(llvm::StringRef text, llvm::StringRef where,
           mlir::MLIRContext &context, const MLIRLimits &limits) {
  if (llvm::Error error = checkMLIRText(text, where, limits))
    return std::move(error);
  context.loadDialect<mlir::affine::AffineDialect, mlir::arith::ArithDialect,
                      mlir::cf::ControlFlowDialect, mlir::func::FuncDialect,
                      mlir::linalg::LinalgDialect, mlir::math::MathDialect,
                      mlir::tensor::TensorDialect, RefoldDialect>();
  mlir::OwningOpRef<mlir::ModuleOp> module;
  {
    DiagnosticCollector collector(context);
    // The lexer reads up to a zero byte, which a StringRef need not have.
    llvm::SourceMgr source;
    source.AddNewSourceBuffer(llvm::MemoryBuffer::getMemBufferCopy(text, where),
                              llvm::SMLoc());
    module = mlir::parseSourceFile<mlir::ModuleOp>(
        source, mlir::ParserConfig(&context));
    if (!module)
      return collector.takeErrors(
          (where + ": error: the parser failed without reason").str());
  }
  if (llvm::Error error = checkProgramForm(*module, where))
    return std::move(error);
  addNames(*module->getOps<mlir::func::FuncOp>().begin());
  return module;
}

} // namespace refold
