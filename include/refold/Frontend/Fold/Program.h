// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A `.fold` function after its analysis: names resolved, axes and types known.
// Knows no MLIR.
#ifndef REFOLD_FRONTEND_FOLD_PROGRAM_H
#define REFOLD_FRONTEND_FOLD_PROGRAM_H

#include "refold/Frontend/Fold/Syntax.h"

namespace refold::fold {

using AxisId = uint32_t;
using ValueId = uint32_t;
using NodeId = uint32_t;

/// A named index. Its extent is fixed, or that of a dimension of an argument.
struct Axis {
  std::string name;
  SourcePos pos; ///< where it first appears
  std::optional<int64_t> extent;
  /// The first argument that has it and the dimension there; none for an axis
  /// that topk made or whose extent is fixed elsewhere.
  std::optional<std::pair<unsigned, unsigned>> source;
  /// An axis that only subscripts name has the extent of the axis it runs over.
  std::optional<AxisId> sameAs;
};

/// An argument or one definition (a redefined name is several values).
struct Variable {
  std::string name;
  SourcePos pos;
  DType dtype = DType::F32;
  std::vector<AxisId> axes;
  unsigned readers = 0;
  /// An argument whose elements are subscripts along this axis.
  std::optional<AxisId> indexes;
};

enum class NodeKind : uint8_t {
  Literal, ///< number
  Read,    ///< an element of `value`
  Index,   ///< the position along `axis`
  Extent,  ///< len(axis)
  Apply,   ///< op on operands, computed in `compute`
  Cast,    ///< a written cast of operands[0] to `dtype`
  Reduce,  ///< reducer over `reduced` of operands[0]
};

/// mean is a sum and a division by the time the tree is built.
enum class ReducerKind : uint8_t {
  Sum,
  Prod,
  Max,
  Min,
  Any,
  All,
  ArgMax,
  ArgMin
};

/// How a subscript is known to be within its dimension.
enum class Bound : uint8_t {
  Proved,  ///< nothing to check
  Extents, ///< a question of shapes alone: checked before the first element
  Data,    ///< depends on values: every element is checked
};

struct Node {
  NodeKind kind = NodeKind::Literal;
  Op op = Op::Neg;
  ReducerKind reducer = ReducerKind::Sum;
  SourcePos pos;
  /// Of the result as it is stored; arithmetic widens what it reads.
  DType dtype = DType::F32;
  /// Apply: what the operands are converted to. f64, f32, i64, i32 or bool.
  DType compute = DType::F32;
  /// Reads no data, so a real result takes the precision of what uses it.
  bool weak = false;
  bool whole =
      false; ///< Literal: written without point, an integer beside integers
  double number = 0;
  ValueId value = 0;
  AxisId axis = 0;
  std::vector<NodeId> operands; ///< Read: the subscripts, none for a bare name
  std::vector<Bound> bounds;    ///< Read: one a subscript
  std::vector<AxisId> reduced;
  /// Free axes. First the `numReadAxes` along which something is read, then
  /// those that come only as index values; both in order of first appearance.
  std::vector<AxisId> axes;
  size_t numReadAxes = 0;
  /// Read: every subscript is an axis and no axis comes twice, so `axes` says
  /// all there is to say.
  bool byAxes = false;
};

struct TopK {
  int64_t k = 1;
  AxisId over = 0, rank = 0;
};

/// One line. `values` are what it defines: one, or keys and positions of topk.
struct Statement {
  std::vector<ValueId> values;
  NodeId root = 0;
  std::optional<TopK> topk;
};

struct Program {
  std::string name;
  std::vector<Axis> axes;
  std::vector<Variable> values; ///< the arguments come first
  unsigned numArguments = 0;
  std::vector<Node> nodes;
  std::vector<Statement> statements;
  std::vector<ValueId> outputs;
  std::vector<std::string> outputNames;

  /// The axis whose extent `axis` has.
  AxisId extentOf(AxisId axis) const;
  std::optional<int64_t> fixedExtent(AxisId axis) const {
    return axes[extentOf(axis)].extent;
  }
  bool sameExtent(AxisId a, AxisId b) const;
};

/// What arithmetic widens a stored value to: f64, f32, i64, i32 or bool.
DType widened(DType dtype);

/// Resolves names, infers axes and types, checks every rule of the language.
Result<Program> analyze(const Ast &ast, const Options &options = {});

/// Smallest and largest value of an integer expression of axes and extents, as
/// far as it is known without the extents that are dynamic.
struct Range {
  std::optional<int64_t> low, high;
};
/// With `assumed`, extents that are dynamic count as at most that.
Range rangeOf(const Program &program, NodeId node,
              std::optional<int64_t> assumed = std::nullopt);

} // namespace refold::fold

#endif // REFOLD_FRONTEND_FOLD_PROGRAM_H
