// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_DRIVER_COMPARE_H
#define REFOLD_DRIVER_COMPARE_H

#include "refold/Driver/Driver.h"
#include "refold/Reference/Evaluate.h"
#include "llvm/ADT/BitVector.h"

namespace refold {

/// How far results are from double precision, worst over what was added.
struct Deviation {
  /// max |y - ref| over a row (the last axis), divided by the row's max |ref|.
  double error = 0.0;
  /// The same of elements that were named as touched by the range, which
  /// `error` leaves out.
  double touchedError = 0.0;
  /// Elements whose class (finite, +inf, -inf, NaN) is not the reference's.
  int64_t wrongClass = 0;
  /// Of what the bound of running roundings allows, the largest part used.
  double shareOfBound = 0.0;
  /// The same as `error` of elements for which nothing is known of what running
  /// roundings may change, which `error` leaves out.
  double unknownError = 0.0;

  void add(const Deviation &other) {
    error = std::max(error, other.error);
    touchedError = std::max(touchedError, other.touchedError);
    unknownError = std::max(unknownError, other.unknownError);
    wrongClass += other.wrongClass;
  }
};

/// Distance of `exact` from the values that round to `stored` in `dtype`: a
/// result that is rounded at the end is not blamed for that rounding. f32 and
/// f64: |stored - exact|, less half of the smallest number.
double distanceFromRounding(DType dtype, double stored, long double exact);

/// 2^-52 for f64, otherwise 2^-23: narrower types are computed in f32.
double ulpOf(DType dtype);

/// From a number to the next one of a stored type, against the number: two
/// programs may round to either side. 0 for f32 and wider.
double stepOf(DType dtype);

/// What the error of a fused result may be: twice that of the unfused one, 2
/// units in the last place, and what rounded factors make.
double boundOf(double unfusedError, DType dtype, double factorRounding);

/// Elements of an output that are measured not at all, or by themselves; empty
/// for none. All count for the largest of their row.
struct Apart {
  llvm::BitVector lost, touched;
};

/// Compares a result with the reference (outputs kept exact). Selected
/// positions are compared by the keys that they select. `isRunning`: only what
/// exceeds what the reference allows counts, and where it knows nothing the
/// error is one of its own. Rows of fewer than `leastOfRow` elements are
/// measured with their neighbours.
Deviation compare(const Tensor &result, const RefOutput &reference,
                  bool isRunning = false, int64_t leastOfRow = 1,
                  const Apart &apart = {});

/// What a policy lets a fused program do with a NaN of the formula.
enum class NanPolicy : uint8_t { Kept, MayBeMissed, MayBeZero };

/// What the policies of these cascades allow.
NanPolicy nanPolicyOf(llvm::ArrayRef<CascadeReport> cascades);
/// What these cascades round at running values. Every rounding of the program
/// to the same type is taken for one of them: which operation it was is not
/// known any more.
RunningRoundings roundingsOf(llvm::ArrayRef<CascadeReport> cascades);

/// Elements where `fused` has another class than the reference although
/// `unfused` has its class. Where the policy lets a NaN be missed
/// (masked-values-unread), a finite value is no loss in its place; where it may
/// be zero (masked-rows-zero), a 0 is none. Nor is an element that both lose: a
/// reference that is finite says that what is not finite as written left the
/// range of f32 (f64), on the way or at the end, and then the sign of what
/// overflows first, or whether two such meet, is a matter of the order.
int64_t countClassLosses(const Tensor &fused, const Tensor &unfused,
                         const RefOutput &reference, NanPolicy policy);
/// Where they are. Of selected positions it is known only whether there are
/// any: element 0.
std::vector<int64_t> findClassLosses(const Tensor &fused, const Tensor &unfused,
                                     const RefOutput &reference,
                                     NanPolicy policy);
/// Has element `i` the class that the reference has once it is stored?
bool hasClassOf(const Tensor &found, int64_t i, const RefOutput &reference);
/// A tensor of `dtype` with the values of a reference that has them rounded.
llvm::Expected<Tensor> stored(const RefTensor &values, DType dtype);

/// Same shape, same type, same bits.
bool hasEqualBits(const Tensor &a, const Tensor &b);

} // namespace refold

#endif // REFOLD_DRIVER_COMPARE_H
