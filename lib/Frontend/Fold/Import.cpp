// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Lowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Frontend/Fold.h"
#include "refold/Support/Diagnostics.h"

using namespace mlir;

namespace refold {

static LogicalResult report(const fold::Error &error, StringRef fileName,
                            MLIRContext &context) {
  Location place =
      FileLineColLoc::get(&context, fileName, error.pos.line, error.pos.column);
  if (error.code != ExitCode::Model)
    place = endingWith(error.code, place);
  return emitError(place) << error.message;
}

FailureOr<OwningOpRef<ModuleOp>> importFold(StringRef source,
                                            StringRef fileName,
                                            MLIRContext &context,
                                            const FoldOptions &options) {
  fold::Result<fold::Ast> ast =
      fold::parse(std::string_view(source.data(), source.size()));
  if (auto *error = std::get_if<fold::Error>(&ast))
    return report(*error, fileName, context);
  fold::Result<fold::Program> program =
      fold::analyze(std::get<fold::Ast>(ast), options);
  if (auto *error = std::get_if<fold::Error>(&program))
    return report(*error, fileName, context);
  context
      .loadDialect<arith::ArithDialect, cf::ControlFlowDialect,
                   func::FuncDialect, linalg::LinalgDialect, math::MathDialect,
                   tensor::TensorDialect, RefoldDialect>();
  OwningOpRef<ModuleOp> module =
      fold::Lowering(std::get<fold::Program>(program), fileName, &context)
          .run();
  if (failed(verify(*module)))
    return failure();
  return module;
}

} // namespace refold
