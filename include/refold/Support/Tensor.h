// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_SUPPORT_TENSOR_H
#define REFOLD_SUPPORT_TENSOR_H

#include "refold/Support/DType.h"
#include "llvm/ADT/ArrayRef.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/Error.h"
#include <cstdint>
#include <memory>
#include <optional>

namespace refold {

/// "f64", "f8e4m3", "bool", ...
llvm::StringRef nameOf(DType dtype);
std::optional<DType> parseDType(llvm::StringRef name);

/// One element as a double. Exact, except for i64 beyond 2^53.
double loadAsDouble(DType dtype, const void *element);
/// Stores a double: rounded to nearest even, once. f8 and integers saturate (an
/// infinity too), NaN to an integer is 0, bool is "not 0"; f16, bf16 and f32
/// overflow to infinity.
void storeFromDouble(DType dtype, double value, void *element);

/// An array with its shape. Owns its bytes (64-byte aligned) or borrows them;
/// copies share them. Strides count elements and may be zero or negative.
class Tensor {
public:
  Tensor() = default;

  /// Row-major, zero-filled. Fails where the size overflows or memory is short.
  static llvm::Expected<Tensor> create(DType dtype,
                                       llvm::ArrayRef<int64_t> shape);
  /// Borrows. `data` is the element at subscripts 0 and outlives every copy.
  static Tensor borrow(DType dtype, llvm::ArrayRef<int64_t> shape,
                       llvm::ArrayRef<int64_t> strides, void *data);
  /// As borrow; `owner` lives as long as any copy.
  static Tensor share(DType dtype, llvm::ArrayRef<int64_t> shape,
                      llvm::ArrayRef<int64_t> strides, void *data,
                      std::shared_ptr<void> owner);

  DType dtype() const { return type; }
  llvm::ArrayRef<int64_t> shape() const { return extents; }
  llvm::ArrayRef<int64_t> strides() const { return steps; }
  unsigned rank() const { return extents.size(); }
  int64_t numElements() const;
  /// Bytes of the elements, without gaps.
  int64_t numBytes() const { return numElements() * byteWidth(type); }
  bool isRowMajor() const { return isDense; }
  void *data() const { return bytes; }

  /// Element at row-major position `position`, whatever the strides.
  void *at(int64_t position) const {
    int64_t offset = isDense ? position : offsetOf(position);
    return static_cast<char *>(bytes) + offset * int64_t(byteWidth(type));
  }
  double get(int64_t position) const {
    return loadAsDouble(type, at(position));
  }
  void set(int64_t position, double value) {
    storeFromDouble(type, value, at(position));
  }

  /// A row-major copy with its own bytes, converted where `dtype` differs.
  llvm::Expected<Tensor> clone(std::optional<DType> dtype = std::nullopt) const;

private:
  int64_t offsetOf(int64_t position) const;

  DType type = DType::F32;
  bool isDense = true; ///< row-major, so that positions are offsets
  llvm::SmallVector<int64_t, 4> extents, steps;
  void *bytes = nullptr;
  std::shared_ptr<void> owner;
};

/// Row-major strides of a shape, in elements. Requires that its size does not
/// overflow.
llvm::SmallVector<int64_t, 4> rowMajorStrides(llvm::ArrayRef<int64_t> shape);
/// Whether `strides` are those, but for axes of one element.
bool areRowMajor(llvm::ArrayRef<int64_t> strides,
                 llvm::ArrayRef<int64_t> shape);

/// "f32[2, 3]".
std::string describe(const Tensor &tensor);

} // namespace refold

#endif // REFOLD_SUPPORT_TENSOR_H
