// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_TENSOR_H
#define REFOLD_LIB_FRONTEND_ONNX_TENSOR_H

#include "ElementType.h"
#include "Extent.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/Value.h"
#include <optional>
#include <vector>

namespace refold::onnx {

using Shape = llvm::SmallVector<Extent, 4>;

/// More would be no model of ours, and types of such rank are slow to build.
constexpr int kHighestRank = 16;

/// One element whose value is known while importing: an extent where the type
/// is an integer or bool (0, 1), a number where it is a float. Neither:
/// unknown.
struct Scalar {
  std::optional<Extent> integer;
  std::optional<double> real;

  static Scalar of(Extent value) { return {std::move(value), std::nullopt}; }
  static Scalar of(double value) { return {std::nullopt, value}; }
  bool isKnown() const { return integer || real; }
};

/// A tensor of more elements is not tracked element by element.
constexpr int64_t kMostKnown = 256;

/// offset + Σ coefficients[k] * (subscript k).
struct Affine {
  Extent offset;
  llvm::SmallVector<Extent, 4> coefficients; ///< one a dimension
  bool isConstant() const {
    return llvm::all_of(coefficients, [](const Extent &c) { return c.is(0); });
  }
};

/// Every element of an integer tensor as a function of its subscripts: one part
/// for all, or one part a position along the last dimension (index tuples).
struct IndexForm {
  llvm::SmallVector<Affine, 1> parts;
};

/// What a name of the graph stands for: a view of a value, and what is known of
/// its elements.
///
/// Dimension k of the view runs over the dimensions dims[k] of `base`, the last
/// one fastest. None: the dimension is 1, or repeats (Expand). So reshapes,
/// transposes and broadcasts of views are bookkeeping, and ops that read a view
/// put them into their indexing maps. Base dimensions in no list have extent 1.
struct Tensor {
  ElementType type = ElementType::Undefined;
  Shape shape;

  mlir::Value base; ///< null: built from what follows when first read
  Shape baseShape;
  llvm::SmallVector<llvm::SmallVector<unsigned, 1>, 4> dims;

  mlir::ElementsAttr constant;
  mlir::LocationAttr origin; ///< of an initialiser: its name; else null
  /// Row-major; or a single one that every element repeats. Only looked at
  /// where isTracked.
  std::vector<Scalar> known;
  bool isTracked = false;
  std::optional<IndexForm> form;

  unsigned rank() const { return shape.size(); }
  /// Is every element known?
  bool isKnown() const {
    return isTracked &&
           llvm::all_of(known, [](const Scalar &s) { return s.isKnown(); });
  }
  /// The one element that it has, or repeats, if that is known.
  const Scalar *splat() const {
    return isKnown() && known.size() == 1 ? &known.front() : nullptr;
  }
};

/// Number of elements if it is constant and at most `most`.
std::optional<int64_t> smallCount(llvm::ArrayRef<Extent> shape, int64_t most);

/// Do the constant dimensions leave room for the others, in 47 bits?
mlir::LogicalResult checkSize(llvm::ArrayRef<Extent> shape);

/// "(batch, 12, length)".
std::string toString(const Extents &extents, llvm::ArrayRef<Extent> shape);

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_TENSOR_H
