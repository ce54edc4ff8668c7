// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_ONNX_GRAPHBUILDER_H
#define REFOLD_LIB_FRONTEND_ONNX_GRAPHBUILDER_H

#include "Tensor.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/AffineMap.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/DenseMap.h"
#include <functional>

namespace refold::onnx {

struct ConstantReader;

/// The scalar code of one `linalg.generic`.
struct Body {
  mlir::OpBuilder &builder;
  mlir::Location loc;

  mlir::Value real(mlir::Type type, double value);
  mlir::Value integer(mlir::Type type, int64_t value);
  /// Short floats extended to f32, everything else as it is.
  mlir::Value toCompute(mlir::Value value);
  template <typename Op, typename... Args> mlir::Value make(Args &&...args) {
    return builder.create<Op>(loc, std::forward<Args>(args)...);
  }
};

/// Reads computed elements, gives one.
using ElementFn = llvm::function_ref<mlir::Value(Body &, mlir::ValueRange)>;

/// How a reduction combines; the names say what happens to NaN.
enum class Combiner { Add, Mul, MaxSticky, MinSticky, And, Or };

/// Writes the function's ops. Sizes go to a prologue before all others, so that
/// each is computed once.
class GraphBuilder {
public:
  GraphBuilder(mlir::func::FuncOp function, Extents &extents);

  Extents &extents;
  mlir::OpBuilder ops;                 ///< at the end of the function
  mlir::Location loc;                  ///< of the node being lowered
  std::string nodeName;                ///< for the messages of run-time checks
  ConstantReader *constants = nullptr; ///< for attributes that are tensors

  //===- Sizes --------------------------------------------------------------//
  /// Where the atom of a named or nameless size can be read.
  void defineSymbol(unsigned atom, mlir::Value argument, unsigned dimension);
  mlir::Value index(const Extent &extent);
  mlir::OpFoldResult indexOrAttr(const Extent &extent);
  mlir::RankedTensorType typeOf(llvm::ArrayRef<Extent> shape,
                                mlir::Type element);
  mlir::Value empty(llvm::ArrayRef<Extent> shape, mlir::Type element);
  /// A run-time check unless it is known to hold; failure if it never does.
  mlir::LogicalResult requireEqual(const Extent &a, const Extent &b);
  mlir::LogicalResult requireAtMost(const Extent &a, const Extent &b,
                                    llvm::StringRef what,
                                    llvm::StringRef most = "");

  //===- Views --------------------------------------------------------------//
  /// A value as a tensor of exactly `shape`.
  Tensor tensorOf(mlir::Value value, ElementType type,
                  llvm::ArrayRef<Extent> shape);
  Tensor scalarTensor(ElementType type, Scalar value);
  Tensor knownTensor(ElementType type, llvm::ArrayRef<Extent> shape,
                     std::vector<Scalar> known);
  /// Makes base exist.
  void build(Tensor &tensor);
  /// A value of exactly the tensor's shape.
  mlir::Value valueOf(Tensor &tensor);
  /// `operand` and the map that reads element `at` of the view; at[k] is not
  /// looked at where dimension k is 1 or repeats; the map has none of those.
  struct Access {
    mlir::Value operand;
    llvm::SmallVector<mlir::AffineExpr, 4> exprs;
  };
  Access access(Tensor &tensor, llvm::ArrayRef<mlir::AffineExpr> at);

  //===- Views of views; elements known stay known --------------------------//
  /// Requires that the element counts agree, or can be checked to.
  mlir::FailureOr<Tensor> reshape(Tensor &tensor, llvm::ArrayRef<Extent> shape);
  Tensor transpose(Tensor &tensor, llvm::ArrayRef<unsigned> order);
  /// Requires that `shape` is what the tensor's broadcasts to.
  Tensor broadcastTo(Tensor &tensor, llvm::ArrayRef<Extent> shape);
  /// Elements begin + k * step, k < size. step > 0, all of it inside.
  Tensor slice(Tensor &tensor, unsigned axis, const Extent &begin,
               const Extent &size, const Extent &step);

  //===- Computation --------------------------------------------------------//
  /// The common shape, with run-time checks where sizes are only hoped equal.
  mlir::FailureOr<Shape> broadcast(llvm::ArrayRef<Tensor *> tensors);
  /// One generic over `shape`; `element` is the type that `fn` gives.
  Tensor elementwise(llvm::ArrayRef<Tensor *> inputs,
                     llvm::ArrayRef<Extent> shape, ElementType type,
                     mlir::Type element, ElementFn fn);
  /// As above, in the type's compute type.
  Tensor elementwise(llvm::ArrayRef<Tensor *> inputs,
                     llvm::ArrayRef<Extent> shape, ElementType type,
                     ElementFn fn);
  /// Combines fn(inputs) over the dimensions in `axes`; the others stay, and
  /// the reduced ones too, as 1, if keepDims. The inputs broadcast to `shape`.
  Tensor reduce(llvm::ArrayRef<Tensor *> inputs, llvm::ArrayRef<Extent> shape,
                llvm::ArrayRef<bool> isReduced, bool keepDims,
                Combiner combiner, ElementType type, ElementFn fn);
  /// An input of a reduction and the subscripts that it is read at: sums of
  /// multiples of the reduction's dimensions.
  struct Subscripted {
    Tensor *tensor;
    llvm::SmallVector<mlir::AffineExpr, 4> at;
  };
  /// As above; each input is read where its subscripts say (windows). Each
  /// dimension of `shape` that counts is a subscript of some input or kept.
  Tensor reduceAt(llvm::ArrayRef<Subscripted> inputs,
                  llvm::ArrayRef<Extent> shape, llvm::ArrayRef<bool> isReduced,
                  bool keepDims, Combiner combiner, ElementType type,
                  ElementFn fn);
  /// `low` and `high` elements more at the ends of each dimension, each of them
  /// `value`. Requires that none is negative.
  Tensor pad(Tensor &tensor, llvm::ArrayRef<Extent> low,
             llvm::ArrayRef<Extent> high, mlir::TypedAttr value);
  /// Takes dimensions of extent 1 out of what the view is of; the view stays.
  void dropUnits(Tensor &tensor);
  /// The tensor as it is, in memory in the order of its dimensions.
  Tensor inOrder(Tensor &tensor);
  /// Element as `fn` computes it from its subscripts (index values).
  Tensor generate(llvm::ArrayRef<Extent> shape, ElementType type,
                  mlir::Type element, ElementFn fn);
  /// A size, or a number of it, inside a body.
  mlir::Value extentIn(Body &body, const Extent &extent, mlir::Type type);
  /// The subscript k inside the body of an elementwise op over `shape`.
  mlir::Value subscriptIn(Body &body, llvm::ArrayRef<Extent> shape, unsigned k);
  /// Emits cf.assert on an i1 tensor of rank 0.
  void requireTrue(mlir::Value condition, const llvm::Twine &message);

private:
  void materialise(Tensor &tensor, llvm::ArrayRef<Extent> shape);
  void materialise(Tensor &tensor);
  mlir::Value atomValue(unsigned number);
  mlir::Value constantValue(mlir::TypedAttr attribute,
                            mlir::LocationAttr origin = {});
  template <typename Op, typename... Args> Op inPrologue(Args &&...args);
  void setBase(Tensor &tensor, mlir::Value value);
  Extent simpler(const Extent &a, const Extent &b);
  mlir::Value pickKnown(Body &body, const Tensor &tensor, mlir::ValueRange at,
                        mlir::Type element);
  llvm::SmallVector<mlir::Value> bodyInputs(Body &body,
                                            llvm::ArrayRef<Tensor *> inputs,
                                            llvm::ArrayRef<int> places,
                                            mlir::ValueRange args);
  /// The dimensions of an elementwise op over `shape` in the order in which all
  /// inputs of that shape have them in memory, where they agree; else in their
  /// own order.
  llvm::SmallVector<unsigned> orderInMemory(llvm::ArrayRef<Tensor *> inputs,
                                            llvm::ArrayRef<Extent> shape);
  /// Dimensions that repeat are written out: a reduction must see them.
  void repeatInMemory(Tensor &tensor);
  void splitBase(Tensor &tensor, unsigned dimension, const Extent &outer,
                 const Extent &inner);
  bool reshapeView(Tensor &tensor, llvm::ArrayRef<Extent> shape);
  std::optional<IndexForm> reshapeForm(const Tensor &tensor,
                                       llvm::ArrayRef<Extent> shape);
  mlir::FailureOr<mlir::Value> reshapeValue(mlir::Value value,
                                            llvm::ArrayRef<Extent> from,
                                            llvm::ArrayRef<Extent> to);

  mlir::Location functionLoc;
  mlir::Block *block;
  mlir::Operation *prologueEnd = nullptr;
  /// Of the elementwise op being written: its dimensions, outermost loop first.
  llvm::SmallVector<unsigned> loopOrder;
  llvm::DenseMap<unsigned, std::pair<mlir::Value, unsigned>> symbolHomes;
  llvm::DenseMap<unsigned, mlir::Value> atomValues;
  std::vector<std::pair<Extent, mlir::Value>> indexValues;
  llvm::DenseMap<mlir::Attribute, mlir::Value> constantValues;
};

} // namespace refold::onnx

#endif // REFOLD_LIB_FRONTEND_ONNX_GRAPHBUILDER_H
