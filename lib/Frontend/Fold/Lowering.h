// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_FRONTEND_FOLD_LOWERING_H
#define REFOLD_LIB_FRONTEND_FOLD_LOWERING_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "refold/Frontend/Fold/Program.h"
#include <map>

namespace refold::fold {

/// The element type that stores a dtype. u8 is i8 read as unsigned.
mlir::Type elementType(DType dtype, mlir::MLIRContext *context);

/// A scalar inside a body. An i64 may be held as `index`, which arithmetic of
/// axes and extents stays in.
struct Scalar {
  mlir::Value value;
  DType dtype;
};

/// Widens a stored or computed value to f64, f32, i64, i32 or bool; between
/// real types also narrows. Never rounds an integer to an integer.
mlir::Value convert(mlir::OpBuilder &builder, mlir::Location loc, Scalar from,
                    DType to);
/// A written cast: rounds to nearest even; f8 and integers saturate, NaN to an
/// integer is 0.
mlir::Value castTo(mlir::OpBuilder &builder, mlir::Location loc, Scalar from,
                   DType to);
/// An i64 as `i64` rather than `index`: what a tensor stores.
mlir::Value stored(mlir::OpBuilder &builder, mlir::Location loc, Scalar value);
mlir::Value constantOf(mlir::OpBuilder &builder, mlir::Location loc,
                       DType dtype, double number);

/// The operands and loops of one linalg.generic.
struct Loops {
  /// Parallel axes first, in the order of the result.
  std::vector<AxisId> axes;
  size_t numParallel = 0;
  std::vector<mlir::Value> tensors;
  std::vector<std::vector<AxisId>> tensorAxes;
  /// Which operand a Read or Reduce node is.
  std::map<NodeId, unsigned> operandOf;

  unsigned positionOf(AxisId axis) const;
};

/// Program to module. Everything is straight-line code in one function.
class Lowering {
public:
  Lowering(const Program &program, mlir::StringRef fileName,
           mlir::MLIRContext *context)
      : program(program), fileName(fileName), builder(context) {}
  mlir::OwningOpRef<mlir::ModuleOp> run();

  // What bodies ask for.
  const Program &program;
  /// The number of elements along an axis as an `index`; a constant if fixed.
  mlir::Value extentOf(AxisId axis);
  mlir::Value tensorOf(ValueId value) const { return tensors[value]; }

private:
  mlir::Location locate(const std::string &name, SourcePos pos);
  mlir::RankedTensorType typeOf(const std::vector<AxisId> &axes, DType dtype);
  mlir::Value emptyTensor(const std::vector<AxisId> &axes, DType dtype);
  mlir::func::FuncOp createFunction();
  void lowerStatement(const Statement &statement);
  void lowerTopK(const Statement &statement);

  // Generics.
  void collect(NodeId node, Loops &loops);
  void addOperand(NodeId node, mlir::Value tensor,
                  const std::vector<AxisId> &axes, Loops &loops);
  void coverReducedAxes(Loops &loops);
  mlir::Value createGeneric(
      const Loops &loops, mlir::Value init,
      llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::ValueRange)>
          body);
  mlir::Value elementwise(NodeId root, const std::vector<AxisId> &axes,
                          DType dtype);
  mlir::Value permute(mlir::Value tensor, const std::vector<AxisId> &from,
                      const std::vector<AxisId> &to);
  mlir::Value materialize(NodeId reduce);
  mlir::Value reduce(const Node &node, const std::vector<AxisId> &axes);
  mlir::Value argBest(const Node &node);
  mlir::Value keysOf(NodeId root, const std::vector<AxisId> &axes, DType dtype);

  // Subscripts.
  mlir::Value slicedTensor(const Node &read);
  void checkBounds(const Node &read);
  void checkExtents(const Node &read, size_t position);
  void checkData(const Node &read, size_t position);
  std::pair<mlir::Value, mlir::Value> bounds(NodeId node);
  void assertThat(mlir::Value condition, const Node &read, size_t position);

  std::string fileName;
  mlir::OpBuilder builder;
  mlir::Location loc = builder.getUnknownLoc(); ///< of the current definition
  std::string definition;                       ///< its name
  std::vector<mlir::Value> tensors;             ///< by ValueId
  std::map<NodeId, mlir::Value> reductions;
  std::map<AxisId, mlir::Value> extents;
};

/// Evaluates nodes as scalars inside one body.
class Body {
public:
  Body(Lowering &lowering, const Loops &loops, mlir::OpBuilder &builder,
       mlir::Location loc, mlir::ValueRange arguments)
      : lowering(lowering), program(lowering.program), loops(loops),
        builder(builder), loc(loc), arguments(arguments) {}

  /// `want` is the precision that a node without data takes.
  Scalar evaluate(NodeId node, DType want);
  mlir::Value evaluateAs(NodeId node, DType type) {
    return convert(builder, loc, evaluate(node, type), type);
  }

private:
  Scalar read(NodeId node);
  Scalar apply(const Node &node, DType want);
  mlir::Value applyReal(const Node &node, DType type,
                        const std::vector<mlir::Value> &in);
  mlir::Value realFunction(Op op, DType type, mlir::Value in);
  mlir::Value applyInteger(const Node &node, DType type,
                           const std::vector<mlir::Value> &in);
  mlir::Value applyBool(const Node &node, const std::vector<mlir::Value> &in);
  mlir::Value divideFloor(const Node &node, DType type, mlir::Value a,
                          mlir::Value b);
  mlir::Value power(DType type, mlir::Value base, int exponent);

  Lowering &lowering;
  const Program &program;
  const Loops &loops;
  mlir::OpBuilder &builder;
  mlir::Location loc;
  mlir::ValueRange arguments;
};

} // namespace refold::fold

#endif // REFOLD_LIB_FRONTEND_FOLD_LOWERING_H
