// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_OWED_H
#define REFOLD_DRIVER_OWED_H

#include "refold/Driver/Compare.h"

namespace refold {

/// What is asked of a program on one input, where double alone does not say
/// (docs/numerics.md, "What is lost as written"). Evaluates when it has to.
class Owed {
public:
  /// The inputs outlive this.
  Owed(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> inputs,
       uint64_t seed, const EvaluationLimits &limits = {})
      : function(function), inputs(inputs), seed(seed), limits(limits) {}

  /// Finds the elements, in which no error is to be measured, that the program
  /// as written loses to the range of its type: more than half of the digits,
  /// and no less than what `unfused` errs there but for the order of its sums.
  /// And those that double does not know beside the largest of their row.
  /// Looks where `unfused` or one of `fused` errs by as much.
  llvm::Error findLost(llvm::ArrayRef<Tensor> unfused,
                       llvm::ArrayRef<llvm::ArrayRef<Tensor>> fused,
                       llvm::ArrayRef<RefOutput> exact);

  /// Does double itself not know half of the digits of an element, beside a
  /// size? In log(1 + x) it has nothing of an x of e^-50. `exact` as given.
  llvm::Expected<bool> isUnknown(size_t output, int64_t element, double size,
                                 const RefOutput &exact);

  /// Of an output, after `findLost`: what is lost, and what the range as
  /// written has changed and not lost.
  const Apart &apartOf(size_t output) const;
  /// What the range as written takes of touched elements of an output that
  /// are not lost, and what luck makes of that.
  double allowanceOfTouched(size_t output) const;

  /// As `countClassLosses`, but for elements that are lost, those that are
  /// lost as written though `unfused` has them by the luck of its order, and
  /// for a class that is decided by the last bits of the inputs or by the range
  /// of double. A NaN that may be missed is one that no number in its place
  /// makes a difference for.
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
  using Outputs = std::vector<RefOutput>;
  using Results = std::vector<Outputs>; ///< of several evaluations

  /// Adds the outputs for inputs `of`, before they are rounded to their types.
  llvm::Error evaluate(EvaluationOptions how, Results &results,
                       llvm::ArrayRef<Tensor> of);
  llvm::Error evaluateAsWritten(bool isWide);
  llvm::Error evaluateSigns();
  llvm::Error evaluateOthers();
  llvm::Error evaluateWithNoise(bool isWide);
  void findUnknownOf(size_t output, const RefOutput &exact);
  double doubtOf(size_t output, int64_t element, const RefOutput &exact) const;
  llvm::Error evaluateWithoutNans();
  llvm::Error evaluateMasked();
  bool readsNan(size_t output, int64_t element) const;
  llvm::Error findLostOf(size_t output, const Tensor &unfused,
                         const RefOutput &exact);
  double lossOf(size_t output, int64_t element, double size) const;
  bool isTouched() const;
  bool isLostToRange(size_t output, int64_t element,
                     const RefOutput &exact) const;
  bool isLostAsWritten(size_t output, int64_t element,
                       const RefOutput &exact) const;
  llvm::Expected<int64_t> countDecided(size_t output, const Tensor &found,
                                       llvm::ArrayRef<int64_t> losses);

  mlir::func::FuncOp function;
  llvm::ArrayRef<Tensor> inputs;
  uint64_t seed;
  EvaluationLimits limits;
  std::vector<Apart> apart; ///< of each output
  std::vector<double> allowances;
  /// As written, every operation rounded to the digits of its type without its
  /// range; then to its type, and with other last bits of subnormal numbers.
  Results unlimited, asWritten;
  /// Rounded to its type, sums of infinities of both signs of one sign.
  Results ofOneSign;
  Results withoutNans;
  Results masked; ///< 0 times an infinity is 0
  /// With other last bits of double.
  Results withNoise;
  /// Kept within the range of double; then of inputs with other last bits.
  Results others;
};

} // namespace refold

#endif // REFOLD_DRIVER_OWED_H
