// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_REFERENCE_EVALUATE_H
#define REFOLD_REFERENCE_EVALUATE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Reference/RefTensor.h"
#include <optional>
#include <random>
#include <vector>

/// The judge: programs and cascades evaluated slowly, by what they mean, in
/// double precision; programs that compute in f64 in long double. Nothing here
/// shares code with the compiler.
namespace refold {

struct EvaluationLimits {
  int64_t bytes = int64_t(8) << 30;   ///< of all arrays alive at once
  int64_t steps = int64_t(400) << 30; ///< scalar operations executed
};

/// How `evaluateCascadeStreaming` cuts the stream.
struct Splits {
  /// Segments of random length; some are empty. 1 keeps the stream whole.
  unsigned segments = 4;
  /// Keep every state relative to a pivot drawn at random, not to the one that
  /// its segment has.
  bool randomPivots = true;
};

/// What becomes of numbers that leave the range of what they are computed in.
enum class BeyondRange : uint8_t {
  AsIs,
  /// With `roundEveryOp`: numbers of f32 and f64 are rounded to the digits of
  /// their type whatever their exponent. What differs from `AsIs` has been lost
  /// to the range, and to nothing else.
  IsUnlimited,
  /// A sum of infinities of both signs is the one or the other: in another
  /// order of a sum, or by an FMA, one of the two has not overflown.
  PlusOfBoth,
  MinusOfBoth,
  /// 0 times what is no number is 0: a weight that a mask has made 0 does not
  /// read its value.
  IsMasked,
  /// The largest number stays in the place of infinity, the least normal one in
  /// that of less, so that a class is not that of double's range.
  IsKept
};

struct EvaluationOptions {
  /// Rounds the result of every float operation to its type: the error of a
  /// program that computes as written, one operation at a time.
  bool roundEveryOp = false;
  /// With `roundEveryOp`: quotients and functions are off by up to one more
  /// unit in the last place, drawn with this seed. Nothing: rounded once.
  std::optional<uint64_t> functionNoise;
  /// With `roundEveryOp`: what is rounded to a subnormal number of f32 or f64
  /// is one step larger or smaller, as drawn; seeds 2k and 2k + 1 choose
  /// opposite sides. How near a product is to a multiple of 2^-149 is luck.
  std::optional<uint64_t> subnormalNoise;
  /// Without `roundEveryOp`: sums, products, quotients and functions are off by
  /// 1 to 64 units in the last place of double, or long double, that they
  /// are evaluated in, drawn with this seed. What that changes is not known.
  std::optional<uint64_t> ownNoise;
  BeyondRange beyondRange = BeyondRange::AsIs;
  /// Leaves an output as it is before the cast to its storage type, so that a
  /// comparison can measure the distance to a rounding boundary.
  bool keepOutputsExact = false;
  /// Long double (true) or double whatever the program computes in; with
  /// `roundEveryOp` double where nothing is said. What
  /// underflows in double is 0 in its cascades too; where both differ, rounding
  /// decides.
  std::optional<bool> isWide;
  /// Tracks how far every element may be off if these roundings are done at
  /// running values (`RefTensor::allowance`). Not where the program computes in
  /// f64.
  RunningRoundings running;
  /// Evaluates the cascades of a program through their states, cut so, instead
  /// of by definition; `seed` draws cuts and pivots.
  std::optional<Splits> splits;
  uint64_t seed = 0;
  EvaluationLimits limits;
};

/// Where the subscripts in an output come from: position p of the output
/// selects element p of `keys` along `dim`.
struct SelectedKeys {
  RefTensor keys;
  unsigned dim = 0;
};

struct RefOutput {
  /// Results with the attribute `refold.unsigned` hold values of 0 and more.
  RefTensor value;
  /// Set for positions that a `refold.topk` chose.
  std::optional<SelectedKeys> selects;
};

/// Evaluates a function in program form (docs/architecture.md); tensor-level
/// `refold.cascade` is evaluated by definition. Float arithmetic is double, or
/// long double where the program computes in f64 and holds no cascade, and is
/// rounded only by casts to f16, bf16 and f8 that the program writes. The
/// error names the place: a failed `cf.assert`, a subscript out of range, sizes
/// that disagree, an op outside the form, a limit.
llvm::Expected<std::vector<RefOutput>>
evaluateProgram(mlir::func::FuncOp function, llvm::ArrayRef<Tensor> inputs,
                const EvaluationOptions &options = {});

/// Evaluates a cascade as it is defined: every state is its complete reduction,
/// transports are not used. `operands` are inputs, then outputs; the results
/// are the outputs after the writes.
llvm::Expected<std::vector<RefTensor>>
evaluateCascade(CascadeOp cascade, llvm::ArrayRef<RefTensor> operands,
                const EvaluationOptions &options = {});

/// Evaluates a cascade as its states say: segments are absorbed each relative
/// to a pivot of its own, merged in a random order by moving both sides to a
/// common pivot with the transports, and moved to the true pivot at the end. It
/// agrees with `evaluateCascade` up to rounding, or a transport is wrong.
llvm::Expected<std::vector<RefTensor>>
evaluateCascadeStreaming(CascadeOp cascade, llvm::ArrayRef<RefTensor> operands,
                         const Splits &splits, std::mt19937_64 &random,
                         const EvaluationOptions &options = {});

} // namespace refold

#endif // REFOLD_REFERENCE_EVALUATE_H
