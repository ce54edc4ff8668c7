// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_DRIVER_JUDGERUN_H
#define REFOLD_LIB_DRIVER_JUDGERUN_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Driver/Compare.h"
#include "refold/Driver/Driver.h"

namespace refold {

/// One run of a fused program on one input, and what it is held to: the bound
/// of `verify`.
struct RunToJudge {
  mlir::func::FuncOp function; ///< the program as loaded
  const CompiledProgram &fused;
  llvm::ArrayRef<Tensor> inputs, fusedOutputs;
  /// The unfused program, on these inputs and on their neighbours.
  llvm::function_ref<llvm::Expected<std::vector<Tensor>>(
      llvm::ArrayRef<Tensor>)>
      runUnfused;
  std::optional<DType> multiply; ///< what products of f32 read, if narrower
};

struct RunJudgement {
  double error = 0.0; ///< the largest of any output
  /// The unfused error is the largest on inputs that differ in their last bits.
  bool isConditioned = false;
  /// Nothing where double takes too long: the judge was the unfused program.
  std::optional<std::vector<RefOutput>> reference;
  std::vector<Tensor> unfusedOutputs;
};

/// Fails with ExitCode::Mismatch where an output errs by more than twice what
/// the unfused program errs, plus 2 units in the last place and what rounded
/// factors make, or loses a class that the unfused program has; or where the
/// unfused program is itself wrong (`UnfusedVerdict`).
llvm::Expected<RunJudgement> judgeRun(const RunToJudge &run);

/// The same of output `index` where nothing but the unfused program's is known:
/// a share of the row.
llvm::Error compareWithUnfused(const CompiledProgram &fused, size_t index,
                               std::optional<DType> multiply,
                               const Tensor &found, const Tensor &unfused);

} // namespace refold

#endif // REFOLD_LIB_DRIVER_JUDGERUN_H
