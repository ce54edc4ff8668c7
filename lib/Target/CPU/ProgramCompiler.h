// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TARGET_CPU_PROGRAMCOMPILER_H
#define REFOLD_LIB_TARGET_CPU_PROGRAMCOMPILER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "refold/Dialect/Refold/IR/ElementTypes.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Runtime/ConstantSteps.h"
#include "refold/Target/CPU/CompileProgram.h"
#include "refold/Target/CPU/ObjectCode.h"
#include "llvm/ADT/StringMap.h"

namespace refold {

/// Where a tensor value lies.
struct Slot {
  ViewSpec view;
  bool isRowMajor = true; ///< from its first element on
  bool isWhole = true;    ///< and all of its buffer
};

using Sizes = std::vector<SizeExpr>;

/// What an array is padded with along each dimension.
struct Padding {
  Sizes low, high;
};

/// "softmax" of NameLoc("softmax", ...); else the op's name.
std::string stepNameOf(mlir::Operation *op);

/// An error at an op of the program.
llvm::Error refuse(mlir::Operation *op, const llvm::Twine &message);

/// Walks the function once, in order, and appends steps. Kernels are gathered
/// as text and compiled at the end.
class ProgramCompiler {
public:
  explicit ProgramCompiler(mlir::func::FuncOp function) : function(function) {}

  llvm::Error run();

  ExecutableSpec spec;
  std::vector<KernelSource> kernels;
  bool keepsNames = false; ///< of operands, in the texts of kernels
  bool roundsProducts = false;
  bool writesParts = true;

private:
  // CompileProgram.cpp
  llvm::Error addArguments();
  llvm::Error addOp(mlir::Operation *op);
  llvm::Error addConstant(mlir::arith::ConstantOp op);
  llvm::Error addAssert(mlir::Operation *op, mlir::Value condition,
                        llvm::StringRef message);
  llvm::Error addResults(mlir::func::ReturnOp op);

  // SizeArithmetic.cpp
  /// Whether the op was one on sizes; fails where such an op is not covered.
  llvm::Expected<bool> addSizeOp(mlir::Operation *op);
  std::optional<SizeExpr> sizeOf(mlir::Value value) const;
  std::optional<SizeExpr> sizeOf(mlir::OpFoldResult value) const;
  std::optional<Sizes> sizesOf(llvm::ArrayRef<mlir::OpFoldResult> values) const;
  std::optional<SizeExpr> affineSize(mlir::AffineExpr expr,
                                     llvm::ArrayRef<SizeExpr> dims,
                                     llvm::ArrayRef<SizeExpr> symbols) const;

  // TensorOps.cpp
  /// Whether the op was a view, a copy or a tensor without contents.
  llvm::Expected<bool> addTensorOp(mlir::Operation *op);
  llvm::Error addExpand(mlir::tensor::ExpandShapeOp op);
  llvm::Error addCollapse(mlir::tensor::CollapseShapeOp op);
  llvm::Error addExtractSlice(mlir::tensor::ExtractSliceOp op);
  llvm::Error addInsertSlice(mlir::tensor::InsertSliceOp op);
  llvm::Error addPad(mlir::tensor::PadOp op);
  std::optional<Padding> paddingOf(mlir::tensor::PadOp op,
                                   llvm::ArrayRef<SizeExpr> sizes) const;
  void fillBorder(mlir::tensor::PadOp op, const Slot &whole,
                  const Padding &padding, unsigned filler);
  /// Where a step writes the value: in the middle of the array that pads it, if
  /// there is one and other readers take rows with gaps.
  Slot slotForResult(mlir::Value value, DType dtype, const Sizes &sizes);
  llvm::Error addEmpty(mlir::tensor::EmptyOp op);
  llvm::Error addFill(mlir::linalg::FillOp op);

  // ConcatOp.cpp
  llvm::Error addConcat(mlir::tensor::ConcatOp op);
  /// The place of the value in the array that it is a part of, if there is one
  /// and other readers take rows with gaps.
  std::optional<Slot> slotInConcat(mlir::Value value, DType dtype,
                                   const Sizes &sizes);

  // KernelOp.cpp
  llvm::Error addCascade(CascadeOp op);
  bool staysTheSame(unsigned buffer);
  unsigned kernelFor(CascadeOp op, llvm::ArrayRef<mlir::Type> types,
                     llvm::ArrayRef<bool> isVarying);

  // Epilogue.cpp
  /// Whether the product that the kernel reads now does the kernel's work.
  bool foldEpilogue(CascadeOp op);

  // ProductOp.cpp
  llvm::Error addProduct(mlir::linalg::LinalgOp op);

  /// The slot of a tensor value; makes one for what has no contents yet.
  llvm::Expected<Slot> slotOf(mlir::Operation *user, mlir::Value value);
  llvm::Expected<DType> dtypeFor(mlir::Operation *op, mlir::Type type);
  Slot makeTemporary(DType dtype, const Sizes &sizes);
  unsigned addConstantBuffer(const void *data, int64_t bytes);
  /// A constant with bytes of its own.
  unsigned ownConstant(std::vector<char> bytes);
  Slot rowMajorSlot(unsigned buffer, DType dtype, const Sizes &sizes);
  /// A check when run, unless it is known to hold.
  void require(mlir::Operation *op, const SizeExpr &condition,
               llvm::StringRef message);
  void addCopy(mlir::Operation *op, const ViewSpec &from, const ViewSpec &to);

  mlir::func::FuncOp function;
  ConstantFlow flow{spec};
  llvm::DenseMap<mlir::Value, SizeExpr> sizes;
  llvm::DenseMap<mlir::Value, Slot> slots;
  /// Tensors whose contents nobody has written, or one value everywhere.
  llvm::DenseMap<mlir::Value, Sizes> empties;
  llvm::DenseMap<mlir::Value, mlir::TypedAttr> fills;
  llvm::DenseMap<mlir::Value, size_t> productSteps; ///< by result
  /// Arrays whose middle is written already, by the op that pads.
  llvm::DenseMap<mlir::Operation *, Slot> padded;
  /// Arrays of which parts are written already, by the op that puts them
  /// together; the numbers of these.
  struct Concat {
    Slot whole;
    llvm::SmallDenseSet<unsigned> written;
  };
  llvm::DenseMap<mlir::Operation *, Concat> concats;
  llvm::StringMap<unsigned> kernelNumbers; ///< by text
};

/// Merges the dimensions of each group, where memory runs on evenly.
std::optional<Slot> collapse(const Slot &from,
                             llvm::ArrayRef<mlir::ReassociationIndices> groups);

/// Product of all sizes.
SizeExpr productOf(llvm::ArrayRef<SizeExpr> sizes);
Sizes rowMajorStrides(llvm::ArrayRef<SizeExpr> sizes);

} // namespace refold

#endif // REFOLD_LIB_TARGET_CPU_PROGRAMCOMPILER_H
