// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_UNITTESTS_CONVERSION_CASCADERUNNER_H
#define REFOLD_UNITTESTS_CONVERSION_CASCADERUNNER_H

#include "mlir/IR/BuiltinOps.h"
#include "refold/Reference/Evaluate.h"
#include "refold/Support/Tensor.h"
#include "refold/Target/CPU/ObjectCode.h"
#include <memory>
#include <string>
#include <vector>

namespace refold {

/// A kernel in text form, compiled for this machine and run item by item.
class CascadeRunner {
public:
  struct Options {
    std::string instructionSet; ///< "": the best one
    std::string schedule;       ///< replaces "schedule" of nothing: `{...}`
    int64_t itemsPerCall = 3;   ///< how phases are cut
    int64_t cores = 0;          ///< 0: as many as this machine has
    int64_t l2Bytes = 0;        ///< likewise
  };

  static llvm::Expected<std::unique_ptr<CascadeRunner>>
  compile(llvm::StringRef text, const Options &options);

  /// The C++ form of several kernels, compiled by the system's compiler in one
  /// go.
  static llvm::Expected<std::vector<std::unique_ptr<CascadeRunner>>>
  compileCxx(llvm::ArrayRef<std::string> texts);

  /// Inputs, then outputs, which are written.
  llvm::Error run(llvm::ArrayRef<Tensor> operands);
  /// What the outputs should be, in double.
  llvm::Expected<std::vector<RefTensor>>
  reference(llvm::ArrayRef<Tensor> operands);
  /// Of the walk itself, behind panels, as the kernel and as the cost model
  /// have them for such operands.
  int64_t itemsOf(llvm::ArrayRef<Tensor> operands);
  double predictedItems(llvm::ArrayRef<double> extents);
  double compileMs = 0;
  std::vector<int64_t> shapeWords; ///< of the last run
  int64_t numRounds = 0;           ///< likewise

private:
  void parse(llvm::StringRef text);
  CascadeOp cascade();
  /// The words of the operands; fills `shapeWords`.
  std::vector<int64_t> askShape(llvm::ArrayRef<Tensor> operands);

  Options options;
  TargetFacts facts;
  CompiledKernels compiled;
  std::unique_ptr<mlir::MLIRContext> context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

/// The largest difference relative to the largest value of the reference;
/// infinity where NaN, infinities or sizes differ.
double relativeError(const Tensor &got, const RefTensor &want);

} // namespace refold

#endif // REFOLD_UNITTESTS_CONVERSION_CASCADERUNNER_H
