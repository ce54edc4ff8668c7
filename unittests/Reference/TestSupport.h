// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_REFERENCE_TESTSUPPORT_H
#define REFOLD_UNITTESTS_REFERENCE_TESTSUPPORT_H

#include "../Support/TestTensors.h"
#include "mlir/Dialect/Affine/IR/AffineOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Parser/Parser.h"
#include "refold/Reference/Evaluate.h"
#include "refold/Support/Error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace refold {

/// A parsed module and its first function.
class Program {
public:
  explicit Program(llvm::StringRef text) : context(registry()) {
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
  }
  mlir::func::FuncOp function() {
    return *module->getOps<mlir::func::FuncOp>().begin();
  }
  CascadeOp cascade() {
    CascadeOp found;
    module->walk([&](CascadeOp op) { found = op; });
    return found;
  }
  explicit operator bool() const { return bool(module); }

private:
  static mlir::MLIRContext::Threading noThreads() {
    return mlir::MLIRContext::Threading::DISABLED;
  }
  static mlir::DialectRegistry registry() {
    mlir::DialectRegistry registry;
    registry.insert<mlir::affine::AffineDialect, mlir::arith::ArithDialect,
                    mlir::cf::ControlFlowDialect, mlir::func::FuncDialect,
                    mlir::linalg::LinalgDialect, mlir::math::MathDialect,
                    mlir::memref::MemRefDialect, mlir::tensor::TensorDialect,
                    RefoldDialect>();
    return registry;
  }
  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

inline std::vector<double> valuesOf(const RefTensor &array) {
  std::vector<double> values;
  for (int64_t p = 0; p < array.numElements(); ++p)
    values.push_back(array.get(p));
  return values;
}

/// The first output, or an empty list with a failed test.
inline std::vector<double> evaluate(llvm::StringRef text,
                                    std::vector<Tensor> inputs,
                                    EvaluationOptions options = {}) {
  Program program(text);
  EXPECT_TRUE(bool(program));
  if (!program)
    return {};
  auto outputs = evaluateProgram(program.function(), inputs, options);
  if (!outputs) {
    ADD_FAILURE() << toString(outputs.takeError());
    return {};
  }
  return valuesOf(outputs->front().value);
}

/// The message of the evaluation, which must fail.
inline std::string errorOf(llvm::StringRef text, std::vector<Tensor> inputs,
                           EvaluationOptions options = {}) {
  Program program(text);
  EXPECT_TRUE(bool(program));
  if (!program)
    return "";
  auto outputs = evaluateProgram(program.function(), inputs, options);
  return outputs ? "no error" : toString(outputs.takeError());
}

} // namespace refold

#endif // REFOLD_UNITTESTS_REFERENCE_TESTSUPPORT_H
