// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_TRANSFORMS_EXPORTSCALAR_H
#define REFOLD_LIB_TRANSFORMS_EXPORTSCALAR_H

#include "refold/Algebra/Expr.h"

#include "mlir/IR/Builders.h"

#include <functional>
#include <unordered_map>

namespace refold {

mlir::Type exportType(mlir::MLIRContext *context, algebra::Type type);

/// Prints expressions as scalar arith and math ops. Narrow floats are extended
/// when read and integers converted where they meet floats, as `algebra::Type`
/// says.
class ScalarExport {
public:
  /// `leaf` gives the value of a symbol, in the type that its symbol says.
  using Leaf = std::function<mlir::Value(algebra::Expr)>;
  using Contract = std::function<mlir::Value(algebra::Expr, mlir::Value)>;

  ScalarExport(mlir::OpBuilder &b, mlir::Location loc, Leaf leaf,
               Contract contract)
      : b(b), loc(loc), leaf(std::move(leaf)), contract(std::move(contract)) {}

  /// The value of `e` in `algebra::computeType(e.type())`.
  mlir::Value value(algebra::Expr e);
  /// The value of `e` as an element of `type`, rounded if it is narrower.
  mlir::Value valueAs(algebra::Expr e, mlir::Type type);
  void define(algebra::Expr symbol, mlir::Value value) { memo[symbol] = value; }

private:
  mlir::Value fresh(algebra::Expr e);
  mlir::Value constant(algebra::Expr e);
  mlir::Value arithmetic(algebra::Expr e);
  mlir::Value power(algebra::Expr e);
  mlir::Value remainder(mlir::Value x, mlir::Value y);
  mlir::Value function(algebra::Expr e);
  mlir::Value compare(algebra::Expr e);
  mlir::Value cast(algebra::Expr e);
  mlir::Value real(double value, mlir::Type type);
  /// Operand `i` of `e` as `e`'s own type.
  mlir::Value operand(algebra::Expr e, unsigned i);
  mlir::Value convert(mlir::Value v, mlir::Type to, bool fromUnsigned);

  mlir::OpBuilder &b;
  mlir::Location loc;
  Leaf leaf;
  Contract contract;
  std::unordered_map<algebra::Expr, mlir::Value, algebra::ExprHash> memo;
};

} // namespace refold

#endif // REFOLD_LIB_TRANSFORMS_EXPORTSCALAR_H
