// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_CONVERSION_ROUNDFACTORS_H
#define REFOLD_CONVERSION_ROUNDFACTORS_H

#include "mlir/IR/BuiltinTypes.h"
#include "mlir/Pass/Pass.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Schedule/TargetFacts.h"
#include <memory>

/// Sums of a factor times rows of 16 bits, of which a target multiplies two at
/// a time: the factor, which the program computes in f32, is rounded to the
/// type of the rows. This is what every target calls factor rounding
/// (docs/numerics.md, "Rounded factors").
namespace refold {

/// The largest relative error of a factor of rows of `type`.
inline double factorRoundingOf(mlir::Type type) {
  return type.isF16() ? 0x1p-11 : 0x1p-8;
}

/// Error of a result that such factors may make beside its bound: every factor
/// of a sum may err to the same side, and so may the sum in its denominator.
inline double allowanceOf(double factorRounding) {
  return 2.0 * factorRounding;
}

/// Results by the largest of which the error of one is measured, at least,
/// where factors are rounded: one or two may cancel to anything beside what is
/// summed. A CPU rounds none of narrower rows; of a GPU's, which must, they are
/// measured with their neighbours.
constexpr int64_t kLeastOfRow = 16;
inline int64_t leastOfRow(double factorRounding) {
  return factorRounding > 0 ? kLeastOfRow : 1;
}

/// What rounding the factors of a cascade does to its results.
struct RoundedFactors {
  double error = 0.0; ///< largest relative error of a factor; 0: none rounded
  mlir::SmallVector<unsigned> results; ///< numbers of those that it reaches
};

/// Rounds the factors of weighted sums of bf16 rows where the target adds
/// products of two bf16 values in pairs, and the walk would: those whose
/// largest of a row is 1, the exponential of a difference to the row's extreme,
/// and whose sum no result reads but as a factor. Only of rows that are known
/// to have kLeastOfRow elements, one beside the other in the result too. What
/// else reads the factor (the sum in the denominator) reads it as it was.
RoundedFactors roundFactors(CascadeOp cascade, const TargetFacts &target);

/// -refold-round-factors: `roundFactors` of every cascade, for AVX-512 with dot
/// products of bf16.
std::unique_ptr<mlir::Pass> createRoundFactorsPass();

} // namespace refold

#endif // REFOLD_CONVERSION_ROUNDFACTORS_H
