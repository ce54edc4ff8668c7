// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_REFERENCE_REFTENSOR_H
#define REFOLD_REFERENCE_REFTENSOR_H

#include "refold/Support/Tensor.h"
#include <memory>
#include <vector>

namespace refold {

/// One value of the reference: a float in the precision of the evaluation, or
/// an integer of any width kept sign-extended (i1: 0 or 1).
union Cell {
  double f;
  long double w; ///< of programs that compute in f64 (`RefTensor::isWide`)
  int64_t i;
  /// Where intervals are tracked: how far the number before them may be off on
  /// either side, rounded up.
  struct {
    double unused;
    float below, above;
  } bounded;
};

/// Roundings of a program whose fused form may round at the values of the
/// elements read so far: each may be off by the error of both.
struct RunningRoundings {
  std::vector<DType> types; ///< of floats
  bool steps = false;       ///< floor, ceil and round too
  /// The values differ by powers of two: normal numbers are the same.
  bool powersOfTwo = false;
  bool empty() const { return types.empty() && !steps; }
};

/// The field of a cell that holds a float of type `Real`.
template <typename Real> constexpr Real Cell::*kFloatField = &Cell::f;
template <>
inline constexpr long double Cell::*kFloatField<long double> = &Cell::w;

/// Stores a float in the precision asked for.
inline void setFloat(Cell &cell, bool isWide, long double value) {
  isWide ? void(cell.w = value) : void(cell.f = double(value));
}

/// An array of the reference: doubles or long doubles whatever the float type
/// of the program, int64 for integers and index. Copies and views share the
/// cells; who writes makes its own array with `create` or `clone`.
class RefTensor {
public:
  RefTensor() = default;

  /// Row-major and zero. Requires a shape whose size was checked.
  static RefTensor create(bool isFloat, llvm::ArrayRef<int64_t> shape,
                          bool isWide = false);
  /// The values of `tensor`; integers as an iN of their width holds them.
  static RefTensor fromTensor(const Tensor &tensor, bool isWide = false);
  static RefTensor scalar(double value);
  static RefTensor scalar(int64_t value);

  bool isFloat() const { return kind != Kind::Integer; }
  /// Floats in `Cell::w`, not in `Cell::f`.
  bool isWide() const { return kind == Kind::Wide; }
  llvm::ArrayRef<int64_t> shape() const { return extents; }
  llvm::ArrayRef<int64_t> strides() const { return steps; }
  unsigned rank() const { return extents.size(); }
  int64_t numElements() const;
  bool isRowMajor() const { return isDense; }

  /// Bytes of the cells of all arrays of the process.
  static int64_t liveBytes();

  /// The element at subscripts 0.
  Cell *data() const { return cells.get() + offset; }
  /// The element at row-major position `position`.
  Cell &at(int64_t position) const {
    return cells[offset + (isDense ? position : offsetOf(position))];
  }
  /// The value of a cell of this array.
  long double read(Cell cell) const {
    return isWide()    ? cell.w
           : isFloat() ? (long double)cell.f
                       : (long double)cell.i;
  }
  long double exact(int64_t position) const { return read(at(position)); }
  double get(int64_t position) const { return double(exact(position)); }
  /// How far a number on one side of the element may be off it, of evaluations
  /// that track it.
  double allowance(int64_t position, bool isAbove) const {
    if (isWide())
      return 0;
    const Cell &cell = at(position);
    return isAbove ? cell.bounded.above : cell.bounded.below;
  }

  /// A row-major copy with its own cells.
  RefTensor clone() const;
  /// The same cells seen differently. Offsets and strides stay inside.
  RefTensor view(llvm::ArrayRef<int64_t> shape, llvm::ArrayRef<int64_t> strides,
                 int64_t offsetFromHere) const;
  /// The same elements in row-major order under another shape of equal size;
  /// copies where the strides do not allow a view.
  RefTensor reshaped(llvm::ArrayRef<int64_t> shape) const;

  /// Stored as `dtype`, rounded once.
  llvm::Expected<Tensor> toTensor(DType dtype) const;

private:
  enum class Kind : uint8_t { Integer, Double, Wide };

  int64_t offsetOf(int64_t position) const;

  Kind kind = Kind::Double;
  bool isDense = true; ///< row-major, so that positions are offsets
  llvm::SmallVector<int64_t, 4> extents, steps;
  int64_t offset = 0;
  std::shared_ptr<Cell[]> cells;
};

/// Adds 1 to row-major subscripts. False after the last.
bool nextSubscripts(llvm::MutableArrayRef<int64_t> subscripts,
                    llvm::ArrayRef<int64_t> shape);

} // namespace refold

#endif // REFOLD_REFERENCE_REFTENSOR_H
