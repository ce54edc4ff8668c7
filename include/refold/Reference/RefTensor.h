// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_REFERENCE_REFTENSOR_H
#define REFOLD_REFERENCE_REFTENSOR_H

#include "refold/Support/Tensor.h"
#include <memory>

namespace refold {

/// One value of the reference: a double, or an integer of any width kept
/// sign-extended (i1: 0 or 1).
union Cell {
  double f;
  int64_t i;
};

/// An array of the reference: doubles whatever the float type of the program,
/// int64 for integers and index. Copies and views share the cells; who writes
/// makes its own array with `create` or `clone`.
class RefTensor {
public:
  RefTensor() = default;

  /// Row-major and zero. Requires a shape whose size was checked.
  static RefTensor create(bool isFloat, llvm::ArrayRef<int64_t> shape);
  /// The values of `tensor`; integers as an iN of their width holds them.
  static RefTensor fromTensor(const Tensor &tensor);
  static RefTensor scalar(double value);
  static RefTensor scalar(int64_t value);

  bool isFloat() const { return isReal; }
  llvm::ArrayRef<int64_t> shape() const { return extents; }
  llvm::ArrayRef<int64_t> strides() const { return steps; }
  unsigned rank() const { return extents.size(); }
  int64_t numElements() const;
  bool isRowMajor() const;

  /// Bytes of the cells of all arrays of the process.
  static int64_t liveBytes();

  /// The element at subscripts 0.
  Cell *data() const { return cells.get() + offset; }
  /// The element at row-major position `position`.
  Cell &at(int64_t position) const;
  double get(int64_t position) const {
    return isReal ? at(position).f : double(at(position).i);
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
  bool isReal = true;
  llvm::SmallVector<int64_t, 4> extents, steps;
  int64_t offset = 0;
  std::shared_ptr<Cell[]> cells;
};

/// Adds 1 to row-major subscripts. False after the last.
bool nextSubscripts(llvm::MutableArrayRef<int64_t> subscripts,
                    llvm::ArrayRef<int64_t> shape);

} // namespace refold

#endif // REFOLD_REFERENCE_REFTENSOR_H
