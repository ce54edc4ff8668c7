// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_ANALYSIS_SIZES_H
#define REFOLD_ANALYSIS_SIZES_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringMap.h"

namespace refold {

/// The size of a dimension: a number times a product of sizes that are only
/// known when the program runs. Equal sizes compare equal; different ones may
/// be equal.
struct Size {
  int64_t factor = 1;
  llvm::SmallVector<unsigned, 2> bases; ///< sorted; numbers of a SizeTable

  static Size constant(int64_t value) { return Size{value, {}}; }
  bool isStatic() const { return bases.empty(); }
  bool isStatic(int64_t value) const {
    return bases.empty() && factor == value;
  }
  /// The number, or ShapedType::kDynamic.
  int64_t staticOrDynamic() const;
  friend bool operator==(const Size &a, const Size &b) {
    return a.factor == b.factor && a.bases == b.bases;
  }
};
Size operator*(const Size &a, const Size &b);
/// a / b where b divides a without remainder, whatever the bases are.
std::optional<Size> exactQuotient(const Size &a, const Size &b);

/// Sizes of the tensors of one function. Dimensions that `refold.dims` gives
/// one name have one size; so have those that an op makes from another's.
class SizeTable {
public:
  explicit SizeTable(mlir::func::FuncOp function);

  Size of(mlir::Value tensor, int64_t dim);
  /// The size that an index value of the function computes.
  Size ofIndex(mlir::Value index);
  /// Index arithmetic for `size` at the builder's insertion point. Requires
  /// that what its bases come from dominates that point.
  mlir::Value materialise(mlir::OpBuilder &b, mlir::Location loc,
                          const Size &size);
  /// The name of a dimension by `refold.dims`, or "".
  llvm::StringRef nameOf(const Size &size) const;
  /// "(c, 128)" for messages: the name of each size, its number, or "?".
  std::string describe(llvm::ArrayRef<Size> sizes) const;

private:
  struct Base {
    mlir::Value value; ///< an index, or a tensor whose dimension `dim` it is
    int64_t dim = -1;
    std::string name;
  };
  unsigned baseOf(mlir::Value value, int64_t dim, llvm::StringRef name = "");
  Size compute(mlir::Value tensor, int64_t dim);
  Size computeIndex(mlir::Value index);

  mlir::func::FuncOp function;
  std::vector<Base> bases;
  llvm::DenseMap<std::pair<mlir::Value, int64_t>, unsigned> baseNumbers;
  llvm::StringMap<unsigned> named;
  llvm::DenseMap<std::pair<mlir::Value, int64_t>, Size> known;
};

} // namespace refold

#endif // REFOLD_ANALYSIS_SIZES_H
