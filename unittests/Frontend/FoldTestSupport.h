// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_FRONTEND_FOLDTESTSUPPORT_H
#define REFOLD_UNITTESTS_FRONTEND_FOLDTESTSUPPORT_H

#include "../Support/TestTensors.h"
#include "refold/Frontend/Fold.h"
#include "refold/Reference/Evaluate.h"
#include "refold/Support/Error.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include <cmath>

namespace refold {

/// The outputs one after the other, or the error.
struct Outcome {
  std::vector<std::vector<double>> outputs;
  std::string error;

  const std::vector<double> &only() const {
    static const std::vector<double> none;
    EXPECT_EQ(error, "");
    return outputs.empty() ? none : outputs.front();
  }
};

/// Imports and evaluates a program.
inline Outcome run(const std::string &source,
                   const std::vector<Tensor> &inputs) {
  Outcome outcome;
  mlir::MLIRContext context(mlir::MLIRContext::Threading::DISABLED);
  mlir::ScopedDiagnosticHandler handler(&context, [&](mlir::Diagnostic &said) {
    outcome.error += said.str();
    return mlir::success();
  });
  auto module = importFold(source, "t.fold", context);
  if (mlir::failed(module))
    return outcome;
  auto function = *(*module)->getOps<mlir::func::FuncOp>().begin();
  auto results = evaluateProgram(function, inputs);
  if (!results) {
    takeError(results.takeError(), outcome.error);
    return outcome;
  }
  for (RefOutput &result : *results) {
    std::vector<double> values;
    for (int64_t i = 0; i < result.value.numElements(); ++i)
      values.push_back(result.value.get(i));
    outcome.outputs.push_back(values);
  }
  return outcome;
}

} // namespace refold

#endif // REFOLD_UNITTESTS_FRONTEND_FOLDTESTSUPPORT_H
