// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What one evaluation shares: options, limits, and the parts that the ops need.
#ifndef REFOLD_LIB_REFERENCE_SESSION_H
#define REFOLD_LIB_REFERENCE_SESSION_H

#include "ScalarCompiler.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "refold/Reference/Evaluate.h"

namespace refold::reference {

/// The value of something at function level; null where there is none.
using Lookup = std::function<const RefTensor *(mlir::Value)>;

struct ScalarProgram;

struct Session {
  explicit Session(const EvaluationOptions &options, bool isWide = false)
      : options(options), isWide(isWide) {}

  /// A zero array, or an error where the size or the memory limit is exceeded.
  llvm::Expected<RefTensor> make(bool isFloat, llvm::ArrayRef<int64_t> shape,
                                 mlir::Location location);
  /// A row-major copy with its own cells, or an error as `make`.
  llvm::Expected<RefTensor> copy(const RefTensor &array,
                                 mlir::Location location);
  /// Counts work against its limit.
  llvm::Error charge(double steps, mlir::Location location);

  /// The roundings whose effect is tracked, or null.
  const RunningRoundings *running() const {
    return isWide || options.running.empty() ? nullptr : &options.running;
  }

  /// Are numbers rounded to the digits of their type only?
  bool isUnlimited() const {
    return options.beyondRange == BeyondRange::IsUnlimited;
  }
  /// What becomes of its numbers that leave their range.
  void setRange(ScalarProgram &program) const;

  /// The seed of an op's own noise: two ops of the same kind do not cancel.
  std::optional<uint64_t> drawOwnNoise() {
    if (!options.ownNoise)
      return std::nullopt;
    return *options.ownNoise + (++noisyOps << 16);
  }

  const EvaluationOptions &options;
  /// Floats are long double: the program computes in f64.
  bool isWide;
  double steps = 0;
  uint64_t noisyOps = 0;
};

/// One `linalg.generic`; `inits` are its outs.
llvm::Expected<llvm::SmallVector<RefTensor>>
evaluateGeneric(mlir::linalg::GenericOp op, llvm::ArrayRef<RefTensor> inputs,
                llvm::ArrayRef<RefTensor> inits, const Lookup &outer,
                bool keepsExact, Session &session);

/// The extents of the loops of `op`; operands that disagree are an error.
llvm::Expected<llvm::SmallVector<int64_t>>
loopExtents(mlir::linalg::GenericOp op, llvm::ArrayRef<RefTensor> operands);

/// Where the op is a sum of products of two operands over loops, its result;
/// nothing where it is not.
llvm::Expected<std::optional<RefTensor>>
evaluateContraction(mlir::linalg::GenericOp op,
                    llvm::ArrayRef<RefTensor> operands,
                    llvm::ArrayRef<int64_t> extents, Session &session);

/// c[m, n] += sum_k a[m, k] b[k, n], all row-major.
void multiplyAdd(const double *a, const double *b, double *c, int64_t m,
                 int64_t n, int64_t k);
void multiplyAdd(const long double *a, const long double *b, long double *c,
                 int64_t m, int64_t n, int64_t k);

/// An op that moves elements of arrays: empty, reshapes, slices, pad, concat,
/// casts. Nothing where `op` is none.
llvm::Expected<std::optional<RefTensor>>
evaluateTensorOp(mlir::Operation &op, const Lookup &lookup, Session &session);

/// An array constant.
llvm::Expected<RefTensor> evaluateConstant(mlir::Attribute value,
                                           mlir::Location location,
                                           Session &session);

/// Keys and positions of `refold.topk`.
llvm::Expected<std::pair<RefTensor, RefTensor>>
evaluateTopK(TopKOp op, const RefTensor &source, Session &session);

/// Is `a` ordered strictly before `b`, keys alone? NaN is above +inf.
bool isBetterKey(long double a, long double b, bool largest);

/// Is `have` a shape of the type's shape `want`?
bool agrees(llvm::ArrayRef<int64_t> have, llvm::ArrayRef<int64_t> want);
std::string showShape(llvm::ArrayRef<int64_t> shape);

} // namespace refold::reference

#endif // REFOLD_LIB_REFERENCE_SESSION_H
