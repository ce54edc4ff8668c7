// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Driver.h"
#include "refold/Frontend/ONNX.h"

namespace refold {

/// Bytes that the constants of a program hold; a splat holds one element.
static int64_t bytesOf(mlir::ElementsAttr value) {
  mlir::Type element = value.getElementType();
  int64_t width =
      element.isIntOrFloat() ? (element.getIntOrFloatBitWidth() + 7) / 8 : 8;
  return value.isSplat() ? width : value.getNumElements() * width;
}

ProgramSize measure(LoadedProgram &program) {
  ProgramSize size;
  program.module->walk([&](mlir::Operation *op) {
    bool isProgramLevel =
        mlir::isa_and_nonnull<mlir::func::FuncOp>(op->getParentOp());
    if (!isProgramLevel || op->hasTrait<mlir::OpTrait::IsTerminator>())
      return;
    auto constant = mlir::dyn_cast<mlir::arith::ConstantOp>(op);
    auto elements =
        constant ? mlir::dyn_cast<mlir::ElementsAttr>(constant.getValue())
                 : nullptr;
    if (elements) {
      ++size.constants;
      size.constantBytes += bytesOf(elements);
    } else if (!constant) {
      ++size.ops[op->getName().getStringRef().str()];
    }
  });
  return size;
}

std::vector<OperatorReport> readableOperators() {
  std::vector<OperatorReport> result;
  for (const OnnxOperator &op : onnxOperators())
    result.push_back({op.name, op.firstOpset, op.lastOpset});
  return result;
}

} // namespace refold
