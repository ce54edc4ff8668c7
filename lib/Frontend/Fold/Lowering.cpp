// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Program to linalg on tensors: one generic a reduction, one for the
// elementwise rest of a definition.
#include "Lowering.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "llvm/ADT/STLExtras.h"
#include <algorithm>
#include <cmath>

using namespace mlir;

namespace refold::fold {

unsigned Loops::positionOf(AxisId axis) const {
  return std::find(axes.begin(), axes.end(), axis) - axes.begin();
}

Location Lowering::locate(const std::string &name, SourcePos pos) {
  MLIRContext *context = builder.getContext();
  return NameLoc::get(
      StringAttr::get(context, name),
      FileLineColLoc::get(context, fileName, pos.line, pos.column));
}

RankedTensorType Lowering::typeOf(const std::vector<AxisId> &axes,
                                  DType dtype) {
  SmallVector<int64_t> shape;
  for (AxisId axis : axes)
    shape.push_back(program.fixedExtent(axis).value_or(ShapedType::kDynamic));
  return RankedTensorType::get(shape, elementType(dtype, builder.getContext()));
}

Value Lowering::extentOf(AxisId axis) {
  axis = program.extentOf(axis);
  if (std::optional<int64_t> extent = program.fixedExtent(axis))
    return builder.create<arith::ConstantIndexOp>(loc, *extent);
  Value &cached = extents[axis];
  if (!cached) {
    auto [argument, dimension] = *program.axes[axis].source;
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointAfterValue(tensors[argument]);
    cached = builder.create<tensor::DimOp>(
        locate(program.axes[axis].name, program.axes[axis].pos),
        tensors[argument], dimension);
  }
  return cached;
}

Value Lowering::emptyTensor(const std::vector<AxisId> &axes, DType dtype) {
  SmallVector<Value> sizes;
  for (AxisId axis : axes)
    if (!program.fixedExtent(axis))
      sizes.push_back(extentOf(axis));
  return builder.create<tensor::EmptyOp>(loc, typeOf(axes, dtype), sizes);
}

void Lowering::addOperand(NodeId node, Value tensor,
                          const std::vector<AxisId> &axes, Loops &loops) {
  for (size_t i = 0; i < loops.tensors.size(); ++i)
    if (loops.tensors[i] == tensor && loops.tensorAxes[i] == axes) {
      loops.operandOf[node] = i;
      return;
    }
  loops.operandOf[node] = loops.tensors.size();
  loops.tensors.push_back(tensor);
  loops.tensorAxes.push_back(axes);
}

/// Makes everything that the body of `id` needs from outside.
void Lowering::collect(NodeId id, Loops &loops) {
  const Node &node = program.nodes[id];
  switch (node.kind) {
  case NodeKind::Literal:
  case NodeKind::Index:
    return;
  case NodeKind::Extent:
    if (!program.fixedExtent(node.axis))
      extentOf(node.axis);
    return;
  case NodeKind::Reduce:
    addOperand(id, materialize(id), node.axes, loops);
    return;
  case NodeKind::Read:
    checkBounds(node);
    if (node.byAxes) {
      addOperand(id, slicedTensor(node), node.axes, loops);
      return;
    }
    break;
  case NodeKind::Apply:
  case NodeKind::Cast:
    break;
  }
  for (NodeId operand : node.operands)
    collect(operand, loops);
}

/// linalg finds the extent of a loop in an operand. An axis that none carries
/// (a count, a diagonal) gets one that is not read.
void Lowering::coverReducedAxes(Loops &loops) {
  for (size_t i = loops.numParallel; i < loops.axes.size(); ++i) {
    AxisId axis = loops.axes[i];
    if (llvm::any_of(loops.tensorAxes, [&](const std::vector<AxisId> &axes) {
          return llvm::is_contained(axes, axis);
        }))
      continue;
    loops.tensors.push_back(emptyTensor({axis}, DType::F32));
    loops.tensorAxes.push_back({axis});
  }
}

Value Lowering::createGeneric(
    const Loops &loops, Value init,
    llvm::function_ref<Value(OpBuilder &, ValueRange)> body) {
  MLIRContext *context = builder.getContext();
  unsigned rank = loops.axes.size();
  SmallVector<AffineMap> maps;
  for (const std::vector<AxisId> &axes : loops.tensorAxes) {
    SmallVector<AffineExpr> subscripts;
    for (AxisId axis : axes)
      subscripts.push_back(getAffineDimExpr(loops.positionOf(axis), context));
    maps.push_back(AffineMap::get(rank, 0, subscripts, context));
  }
  SmallVector<AffineExpr> results;
  for (unsigned i = 0; i < loops.numParallel; ++i)
    results.push_back(getAffineDimExpr(i, context));
  maps.push_back(AffineMap::get(rank, 0, results, context));
  SmallVector<utils::IteratorType> iterators(loops.numParallel,
                                             utils::IteratorType::parallel);
  iterators.resize(rank, utils::IteratorType::reduction);
  auto generic = builder.create<linalg::GenericOp>(
      loc, init.getType(), loops.tensors, init, maps, iterators,
      [&](OpBuilder &inner, Location, ValueRange arguments) {
        inner.create<linalg::YieldOp>(loc, body(inner, arguments));
      });
  return generic.getResult(0);
}

Value Lowering::elementwise(NodeId root, const std::vector<AxisId> &axes,
                            DType dtype) {
  Loops loops;
  loops.axes = axes;
  loops.numParallel = axes.size();
  collect(root, loops);
  return createGeneric(loops, emptyTensor(axes, dtype),
                       [&](OpBuilder &inner, ValueRange arguments) {
                         Body body(*this, loops, inner, loc, arguments);
                         Value value = body.evaluateAs(root, dtype);
                         return stored(inner, loc, {value, dtype});
                       });
}

Value Lowering::permute(Value tensor, const std::vector<AxisId> &from,
                        const std::vector<AxisId> &to) {
  if (from == to)
    return tensor;
  Loops loops;
  loops.axes = to;
  loops.numParallel = to.size();
  loops.tensors = {tensor};
  loops.tensorAxes = {from};
  auto type = cast<RankedTensorType>(tensor.getType());
  SmallVector<Value> sizes;
  SmallVector<int64_t> shape;
  for (AxisId axis : to) {
    shape.push_back(program.fixedExtent(axis).value_or(ShapedType::kDynamic));
    if (ShapedType::isDynamic(shape.back()))
      sizes.push_back(extentOf(axis));
  }
  Value init = builder.create<tensor::EmptyOp>(
      loc, RankedTensorType::get(shape, type.getElementType()), sizes);
  return createGeneric(loops, init, [](OpBuilder &, ValueRange arguments) {
    return arguments.front();
  });
}

static double identityOf(ReducerKind reducer, DType dtype) {
  bool isReal = isFloat(dtype);
  switch (reducer) {
  case ReducerKind::Prod:
  case ReducerKind::All:
    return 1.0;
  case ReducerKind::Max:
    return isReal                ? -double(INFINITY)
           : dtype == DType::I32 ? double(INT32_MIN)
                                 : double(INT64_MIN);
  case ReducerKind::Min:
    // As a double the largest i64 would be rounded up; see `reduce`.
    return isReal ? double(INFINITY) : double(INT32_MAX);
  default:
    return 0.0;
  }
}

static Value combine(OpBuilder &builder, Location loc, ReducerKind reducer,
                     DType dtype, Value a, Value b) {
  bool isReal = isFloat(dtype);
  switch (reducer) {
  case ReducerKind::Sum:
    if (isReal)
      return builder.create<arith::AddFOp>(loc, a, b);
    return builder.create<arith::AddIOp>(loc, a, b);
  case ReducerKind::Prod:
    if (isReal)
      return builder.create<arith::MulFOp>(loc, a, b);
    return builder.create<arith::MulIOp>(loc, a, b);
  case ReducerKind::Max:
    if (isReal)
      return builder.create<arith::MaximumFOp>(loc, a, b);
    return builder.create<arith::MaxSIOp>(loc, a, b);
  case ReducerKind::Min:
    if (isReal)
      return builder.create<arith::MinimumFOp>(loc, a, b);
    return builder.create<arith::MinSIOp>(loc, a, b);
  case ReducerKind::Any:
    return builder.create<arith::OrIOp>(loc, a, b);
  case ReducerKind::All:
    return builder.create<arith::AndIOp>(loc, a, b);
  default:
    llvm_unreachable("argmax and argmin are refold.topk");
  }
}

Value Lowering::reduce(const Node &node, const std::vector<AxisId> &axes) {
  Loops loops;
  loops.axes = axes;
  loops.numParallel = axes.size();
  loops.axes.insert(loops.axes.end(), node.reduced.begin(), node.reduced.end());
  collect(node.operands[0], loops);
  coverReducedAxes(loops);
  Value identity;
  if (node.dtype == DType::I64)
    identity = builder.create<arith::ConstantIntOp>(
        loc,
        node.reducer == ReducerKind::Min
            ? INT64_MAX
            : int64_t(identityOf(node.reducer, node.dtype)),
        64);
  else
    identity = constantOf(builder, loc, node.dtype,
                          identityOf(node.reducer, node.dtype));
  Value init =
      builder
          .create<linalg::FillOp>(loc, identity, emptyTensor(axes, node.dtype))
          .getResult(0);
  return createGeneric(
      loops, init, [&](OpBuilder &inner, ValueRange arguments) {
        Body body(*this, loops, inner, loc, arguments);
        Value value = body.evaluateAs(node.operands[0], node.dtype);
        value = stored(inner, loc, {value, node.dtype});
        return combine(inner, loc, node.reducer, node.dtype, arguments.back(),
                       value);
      });
}

/// `root` over `axes` as a tensor of `dtype`: itself if it is one already.
Value Lowering::keysOf(NodeId root, const std::vector<AxisId> &axes,
                       DType dtype) {
  const Node &node = program.nodes[root];
  if (node.kind == NodeKind::Read && node.byAxes && node.axes == axes &&
      node.dtype == dtype) {
    checkBounds(node);
    return slicedTensor(node);
  }
  return elementwise(root, axes, dtype);
}

/// The tensors of refold.topk over the last dimension of `keys`.
static std::pair<Value, Value> bestOf(OpBuilder &builder, Location loc,
                                      Value keys, int64_t k, bool largest) {
  auto type = cast<RankedTensorType>(keys.getType());
  SmallVector<int64_t> shape(type.getShape());
  shape.back() = k;
  auto op = builder.create<TopKOp>(
      loc, RankedTensorType::get(shape, type.getElementType()),
      RankedTensorType::get(shape, builder.getI32Type()), keys,
      type.getRank() - 1, k, largest);
  return {op.getKeys(), op.getPositions()};
}

Value Lowering::argBest(const Node &node) {
  std::vector<AxisId> axes = node.axes;
  axes.push_back(node.reduced.front());
  DType dtype = widened(program.nodes[node.operands[0]].dtype);
  if (!isFloat(dtype))
    dtype = DType::F64; // holds every i32
  Value keys = keysOf(node.operands[0], axes, dtype);
  bool largest = node.reducer == ReducerKind::ArgMax;
  Value positions = bestOf(builder, loc, keys, 1, largest).second;
  // Drops the last dimension, of extent 1.
  SmallVector<ReassociationIndices> groups;
  for (unsigned i = 0; i < node.axes.size(); ++i)
    groups.push_back({i});
  if (!groups.empty())
    groups.back().push_back(node.axes.size());
  return builder.create<tensor::CollapseShapeOp>(
      loc, typeOf(node.axes, DType::I32), positions, groups);
}

/// A reducer as a tensor of its free axes.
Value Lowering::materialize(NodeId id) {
  Value &tensor = reductions[id];
  if (tensor)
    return tensor;
  const Node &node = program.nodes[id];
  bool isArg = node.reducer == ReducerKind::ArgMax ||
               node.reducer == ReducerKind::ArgMin;
  Location outer = loc;
  loc = locate(definition, node.pos);
  tensor = isArg ? argBest(node) : reduce(node, node.axes);
  loc = outer;
  return tensor;
}

void Lowering::lowerTopK(const Statement &statement) {
  const TopK &topk = *statement.topk;
  const Node &root = program.nodes[statement.root];
  std::vector<AxisId> axes;
  for (AxisId axis : root.axes)
    if (axis != topk.over)
      axes.push_back(axis);
  std::vector<AxisId> resultAxes = axes;
  axes.push_back(topk.over);
  resultAxes.push_back(topk.rank);
  DType dtype = program.values[statement.values[0]].dtype;
  auto [keys, positions] =
      bestOf(builder, loc, keysOf(statement.root, axes, dtype), topk.k, true);
  Value results[] = {keys, positions};
  for (auto [id, tensor] : llvm::zip(statement.values, results))
    tensors[id] = permute(tensor, resultAxes, program.values[id].axes);
}

void Lowering::lowerStatement(const Statement &statement) {
  const Variable &value = program.values[statement.values.front()];
  const Node &root = program.nodes[statement.root];
  definition = value.name;
  loc = locate(value.name, value.pos);
  if (statement.topk)
    return lowerTopK(statement);
  Value &tensor = tensors[statement.values.front()];
  bool isArg = root.reducer == ReducerKind::ArgMax ||
               root.reducer == ReducerKind::ArgMin;
  if (root.kind != NodeKind::Reduce || root.axes.size() != value.axes.size()) {
    tensor = elementwise(statement.root, value.axes, value.dtype);
  } else if (isArg) {
    tensor = permute(materialize(statement.root), root.axes, value.axes);
  } else {
    loc = locate(value.name, root.pos);
    tensor = reduce(root, value.axes);
  }
}

func::FuncOp Lowering::createFunction() {
  MLIRContext *context = builder.getContext();
  auto typesOf = [&](auto &&ids) {
    SmallVector<Type> types;
    for (ValueId id : ids)
      types.push_back(
          typeOf(program.values[id].axes, program.values[id].dtype));
    return types;
  };
  auto attributesOf = [&](const std::string &name, const Variable &value) {
    SmallVector<Attribute> dims;
    for (AxisId axis : value.axes)
      dims.push_back(StringAttr::get(context, program.axes[axis].name));
    NamedAttrList attributes;
    attributes.set("refold.name", builder.getStringAttr(name));
    attributes.set("refold.dims", builder.getArrayAttr(dims));
    if (value.dtype == DType::U8) // elsewhere the element type says it all
      attributes.set("refold.unsigned", builder.getUnitAttr());
    if (value.indexes)
      attributes.set("refold.indexes",
                     builder.getStringAttr(program.axes[*value.indexes].name));
    return attributes.getDictionary(context);
  };
  auto function = builder.create<func::FuncOp>(
      loc, program.name,
      builder.getFunctionType(typesOf(llvm::seq(0u, program.numArguments)),
                              typesOf(program.outputs)));
  for (unsigned i = 0; i < program.numArguments; ++i)
    function.setArgAttrs(
        i, attributesOf(program.values[i].name, program.values[i]));
  for (unsigned i = 0; i < program.outputs.size(); ++i)
    function.setResultAttrs(i,
                            attributesOf(program.outputNames[i],
                                         program.values[program.outputs[i]]));
  return function;
}

OwningOpRef<ModuleOp> Lowering::run() {
  loc = locate(program.name, {1, 1});
  OwningOpRef<ModuleOp> module(builder.create<ModuleOp>(loc));
  builder.setInsertionPointToEnd(module->getBody());
  func::FuncOp function = createFunction();
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToEnd(entry);
  tensors.resize(program.values.size());
  for (unsigned i = 0; i < program.numArguments; ++i)
    tensors[i] = entry->getArgument(i);
  for (const Statement &statement : program.statements)
    lowerStatement(statement);
  SmallVector<Value> results;
  for (ValueId output : program.outputs)
    results.push_back(tensors[output]);
  builder.create<func::ReturnOp>(function.getLoc(), results);
  return module;
}

} // namespace refold::fold
