// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_OWED_H
#define REFOLD_DRIVER_OWED_H

#include "refold/Driver/Compare.h"
#include "llvm/ADT/BitVector.h"

namespace refold {

/// What is asked of a program on one input, where double alone does not say
/// (docs/numerics.md, "What is lost as written"). Evaluates when it has to.
class Owed {
public:
  /// The inputs outlive this.
  Owed(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> inputs,
       uint64_t seed, const EvaluationLimits &limits = {})
      : function(function), inputs(inputs), seed(seed), limits(limits) {}

  /// Makes elements of `exact` NaN, so that no error is measured there, that
  /// the program as written has lost: what they are made of left the range of
  /// its type, and `unfused` has numbers without half of their digits.
  llvm::Error dropLost(llvm::ArrayRef<Tensor> unfused,
                       std::vector<RefOutput> &exact);

  /// As `countClassLosses`, but for elements that were dropped, those that are
  /// lost as written though `unfused` has them by the luck of its order, and
  /// for a class that is decided by the last bits of the inputs or by the range
  /// of double.
  llvm::Expected<int64_t> countLosses(size_t output, const Tensor &fused,
                                      const Tensor &unfused,
                                      const RefOutput &exact, NanPolicy policy);

  /// The same of `unfused` beside the program with every operation rounded in
  /// the order as written. Which of two numbers beyond the range comes first
  /// decides what the element is.
  llvm::Expected<int64_t> countUnfusedLosses(size_t output,
                                             const Tensor &unfused,
                                             const Tensor &written,
                                             const RefOutput &exact,
                                             NanPolicy policy);

private:
  llvm::Error evaluateBeyond();
  llvm::Error evaluateOthers();
  bool isBeyond(size_t output, int64_t element, const RefOutput &exact) const;
  bool isLostAsWritten(size_t output, int64_t element,
                       const RefOutput &exact) const;
  llvm::Expected<int64_t> countDecided(size_t output, const Tensor &found,
                                       llvm::ArrayRef<int64_t> losses);

  mlir::func::FuncOp function;
  llvm::ArrayRef<Tensor> inputs;
  uint64_t seed;
  EvaluationLimits limits;
  std::vector<llvm::BitVector> lost; ///< of each output; empty: nothing is
  /// As written, every operation rounded; then where what leaves the range is
  /// NaN.
  std::vector<RefOutput> asWritten, beyond;
  /// Kept within the range of double; then of inputs with other last bits.
  std::vector<std::vector<RefOutput>> others;
};

} // namespace refold

#endif // REFOLD_DRIVER_OWED_H
