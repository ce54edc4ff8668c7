// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_ASWRITTEN_H
#define REFOLD_DRIVER_ASWRITTEN_H

#include "refold/Driver/Inputs.h"
#include "refold/Driver/Owed.h"
#include <random>

namespace refold {

/// An output of the unfused program beside the judge that rounds. Fused and
/// unfused share code, and with it mistakes: what is held to the unfused error
/// alone may be as wrong.
struct UnfusedVerdict {
  double error = 0.0; ///< of unfused, against double
  /// Of the judge that rounds, and what unfused may err: several times that and
  /// what the last bits of the inputs do. 0, and some units in the last place,
  /// where unfused errs by no more than these.
  double writtenError = 0.0, bound = 0.0;
  int64_t losses = 0;    ///< elements whose class that judge keeps
  int64_t wrongRows = 0; ///< of one number (`AsWritten::countWrongRows`)
  bool isGood() const {
    return error <= bound && losses == 0 && wrongRows == 0;
  }
};

/// Is every element of an output a row by itself? Beside the largest of its
/// neighbours' results the error of a small one is not seen.
bool isOfRows(const Port &output, llvm::ArrayRef<Port> inputs,
              llvm::ArrayRef<std::string> streamAxes);

/// One run of the unfused program.
struct UnfusedRun {
  mlir::func::FuncOp function; ///< the program as loaded
  llvm::ArrayRef<Tensor> inputs, outputs;
  llvm::ArrayRef<RefOutput> exact; ///< kept exact
  Owed &owed;                      ///< of `inputs`, after `findLost`
  uint64_t seed = 0;               ///< of moves of the last bits
  EvaluationLimits limits;
};

/// The judge with every operation rounded as written, on the inputs of a run
/// and on neighbours of them. Evaluates when it has to.
class AsWritten {
public:
  /// `run` outlives this.
  explicit AsWritten(const UnfusedRun &run);

  /// Sets errors and bounds of every output, and adds its losses. Nothing is
  /// evaluated where all outputs err by no more than some units and have the
  /// classes of double.
  llvm::Error judge(NanPolicy nans,
                    llvm::MutableArrayRef<UnfusedVerdict> verdicts);

  /// Of an output of rows of one number: those that err by more than half of
  /// their own digits, and by many times what the judge that rounds errs (and
  /// the unfused program, where that is another result), each on the row where
  /// it errs most. Results below 2^-100 are not owed.
  llvm::Expected<int64_t> countWrongRows(size_t output, const Tensor &result);

private:
  llvm::Error evaluate(llvm::ArrayRef<Tensor> inputs);
  llvm::Expected<bool> evaluateNext();
  bool setBounds(llvm::MutableArrayRef<UnfusedVerdict> verdicts) const;
  double errorOf(const Tensor &result, size_t output) const;

  const UnfusedRun &run;
  EvaluationOptions how;
  std::mt19937_64 random;
  std::vector<Tensor> first; ///< on the inputs themselves, as stored
  std::vector<std::vector<Tensor>> found;
};

} // namespace refold

#endif // REFOLD_DRIVER_ASWRITTEN_H
