// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Run-time checks of subscripts, and reads of the front of a longer dimension.
#include "Lowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;

namespace refold::fold {

/// A read by axes may run over the front of a longer dimension: a slice, since
/// linalg wants equal extents.
Value Lowering::slicedTensor(const Node &read) {
  const Value tensor = tensors[read.value];
  const std::vector<AxisId> &dimensions = program.values[read.value].axes;
  bool isWhole = true;
  for (auto [axis, dimension] : llvm::zip(read.axes, dimensions))
    isWhole = isWhole && program.sameExtent(axis, dimension);
  if (isWhole)
    return tensor;
  SmallVector<OpFoldResult> offsets(dimensions.size(), builder.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(dimensions.size(), builder.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes;
  for (AxisId axis : read.axes) {
    if (std::optional<int64_t> extent = program.fixedExtent(axis))
      sizes.push_back(builder.getIndexAttr(*extent));
    else
      sizes.push_back(extentOf(axis));
  }
  return builder.create<tensor::ExtractSliceOp>(loc, tensor, offsets, sizes,
                                                strides);
}

void Lowering::assertThat(Value condition, const Node &read, size_t position) {
  const Variable &value = program.values[read.value];
  SourcePos pos = program.nodes[read.operands[position]].pos;
  std::string message =
      fileName + ":" + std::to_string(pos.line) + ":" +
      std::to_string(pos.column) + ": found subscript " +
      std::to_string(position + 1) + " of '" + value.name +
      "' out of range, expected at least 0 and less than len(" +
      program.axes[value.axes[position]].name + ")";
  builder.create<cf::AssertOp>(locate(definition, pos), condition, message);
}

void Lowering::checkBounds(const Node &read) {
  for (size_t i = 0; i < read.bounds.size(); ++i) {
    if (read.bounds[i] == Bound::Extents)
      checkExtents(read, i);
    else if (read.bounds[i] == Bound::Data)
      checkData(read, i);
  }
}

/// Smallest and largest value, as code of extents. Requires what
/// Analyzer::isOfShapes promises: products of non-negative factors, division by
/// positive literals.
std::pair<Value, Value> Lowering::bounds(NodeId id) {
  const Node &node = program.nodes[id];
  auto constant = [&](int64_t number) -> Value {
    return builder.create<arith::ConstantIndexOp>(loc, number);
  };
  if (node.kind == NodeKind::Literal)
    return {constant(node.number), constant(node.number)};
  if (node.kind == NodeKind::Extent)
    return {extentOf(node.axis), extentOf(node.axis)};
  if (node.kind == NodeKind::Index)
    return {constant(0), builder.createOrFold<arith::SubIOp>(
                             loc, extentOf(node.axis), constant(1))};
  auto [low, high] = bounds(node.operands[0]);
  if (node.op == Op::Neg)
    return {builder.createOrFold<arith::SubIOp>(loc, constant(0), high),
            builder.createOrFold<arith::SubIOp>(loc, constant(0), low)};
  auto [otherLow, otherHigh] = bounds(node.operands[1]);
  switch (node.op) {
  case Op::Add:
    return {builder.createOrFold<arith::AddIOp>(loc, low, otherLow),
            builder.createOrFold<arith::AddIOp>(loc, high, otherHigh)};
  case Op::Sub:
    return {builder.createOrFold<arith::SubIOp>(loc, low, otherHigh),
            builder.createOrFold<arith::SubIOp>(loc, high, otherLow)};
  case Op::Mul:
    return {builder.createOrFold<arith::MulIOp>(loc, low, otherLow),
            builder.createOrFold<arith::MulIOp>(loc, high, otherHigh)};
  case Op::FloorDiv:
    return {builder.createOrFold<arith::FloorDivSIOp>(loc, low, otherLow),
            builder.createOrFold<arith::FloorDivSIOp>(loc, high, otherLow)};
  case Op::Mod:
    return {constant(0),
            builder.createOrFold<arith::SubIOp>(loc, otherLow, constant(1))};
  default:
    llvm_unreachable("not an expression of shapes");
  }
}

void Lowering::checkExtents(const Node &read, size_t position) {
  NodeId subscript = read.operands[position];
  auto [low, high] = bounds(subscript);
  AxisId dimension = program.values[read.value].axes[position];
  Value condition = builder.create<arith::CmpIOp>(
      loc, arith::CmpIPredicate::slt, high, extentOf(dimension));
  Range known = rangeOf(program, subscript);
  if (!known.low) {
    Value zero = builder.create<arith::ConstantIndexOp>(loc, 0);
    Value above = builder.create<arith::CmpIOp>(loc, arith::CmpIPredicate::sge,
                                                low, zero);
    condition = builder.create<arith::AndIOp>(loc, condition, above);
  }
  assertThat(condition, read, position);
}

/// Looks at every value of the subscript before the first is used.
void Lowering::checkData(const Node &read, size_t position) {
  NodeId subscript = read.operands[position];
  AxisId dimension = program.values[read.value].axes[position];
  Value extent = extentOf(dimension);
  Loops loops;
  loops.axes = program.nodes[subscript].axes;
  collect(subscript, loops);
  coverReducedAxes(loops);
  Value yes = constantOf(builder, loc, DType::Bool, 1);
  Value init =
      builder.create<linalg::FillOp>(loc, yes, emptyTensor({}, DType::Bool))
          .getResult(0);
  Value inRange =
      createGeneric(loops, init, [&](OpBuilder &inner, ValueRange arguments) {
        Body body(*this, loops, inner, loc, arguments);
        Value index = body.evaluateAs(subscript, DType::I64);
        if (!index.getType().isIndex())
          index = inner.create<arith::IndexCastOp>(loc, inner.getIndexType(),
                                                   index);
        // As unsigned numbers the negative ones are too large.
        Value within = inner.create<arith::CmpIOp>(
            loc, arith::CmpIPredicate::ult, index, extent);
        return inner.create<arith::AndIOp>(loc, arguments.back(), within)
            .getResult();
      });
  Value condition =
      builder.create<tensor::ExtractOp>(loc, inRange, ValueRange());
  assertThat(condition, read, position);
}

} // namespace refold::fold
