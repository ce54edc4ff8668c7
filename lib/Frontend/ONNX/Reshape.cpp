// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Views of tensors: reshapes, transposes, broadcasts and slices that cost
// nothing until an op needs them in memory.
#include "GraphBuilder.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/ReshapeOpsUtils.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace refold::onnx;

std::optional<int64_t> refold::onnx::smallCount(ArrayRef<Extent> shape,
                                                int64_t most) {
  int64_t count = 1;
  for (const Extent &extent : shape) {
    std::optional<int64_t> size = extent.constant();
    if (!size || *size < 0 || llvm::MulOverflow(count, *size, count))
      return std::nullopt;
  }
  return count <= most ? std::optional<int64_t>(count) : std::nullopt;
}

LogicalResult refold::onnx::checkSize(ArrayRef<Extent> shape) {
  int64_t count = 1;
  for (const Extent &extent : shape) {
    std::optional<int64_t> size = extent.constant();
    if (size &&
        (*size < 0 || (*size > 0 && llvm::MulOverflow(count, *size, count))))
      return failure();
  }
  return success(count <= int64_t(1) << 47);
}

std::string refold::onnx::toString(const Extents &extents,
                                   ArrayRef<Extent> shape) {
  std::string text = "(";
  for (auto [k, extent] : llvm::enumerate(shape))
    text += (k ? ", " : "") + extents.toString(extent);
  return text + ")";
}

static bool repeats(const Tensor &tensor, unsigned k) {
  return tensor.dims[k].empty() && !tensor.shape[k].is(1);
}

//===- Memory ===//

namespace {
/// Dimensions of both sides that hold the same elements.
struct Group {
  ReassociationIndices from, to;
};
} // namespace

/// The finest groups of equal element count, or nothing where the counts of the
/// whole are not known to agree.
static std::optional<SmallVector<Group>>
groupDims(Extents &extents, ArrayRef<Extent> from, ArrayRef<Extent> to) {
  SmallVector<Group> groups;
  size_t i = 0, j = 0;
  while (i < from.size() && j < to.size()) {
    Group group;
    Extent left = from[i], right = to[j];
    group.from.push_back(i++);
    group.to.push_back(j++);
    while (!extents.areEqual(left, right)) {
      bool takesLeft = i < from.size(), takesRight = j < to.size();
      if (extents.divideExactly(right, left))
        takesRight &= !takesLeft;
      else if (extents.divideExactly(left, right))
        takesLeft &= !takesRight;
      if (!takesLeft && !takesRight)
        return std::nullopt;
      if (takesLeft) {
        left = extents.mul(left, from[i]);
        group.from.push_back(i++);
      }
      if (takesRight) {
        right = extents.mul(right, to[j]);
        group.to.push_back(j++);
      }
    }
    groups.push_back(std::move(group));
  }
  for (; i < from.size(); ++i) {
    if (!from[i].is(1))
      return std::nullopt;
    if (!groups.empty())
      groups.back().from.push_back(i);
  }
  for (; j < to.size(); ++j) {
    if (!to[j].is(1))
      return std::nullopt;
    if (!groups.empty())
      groups.back().to.push_back(j);
  }
  return groups;
}

/// Makes static what the other side of a reshape has static, and the reverse.
static Value castDims(GraphBuilder &graph, Value value,
                      ArrayRef<int64_t> sizes) {
  auto type = cast<RankedTensorType>(value.getType());
  auto wanted = RankedTensorType::get(sizes, type.getElementType());
  if (type == wanted)
    return value;
  return graph.ops.create<tensor::CastOp>(graph.loc, wanted, value);
}

FailureOr<Value> GraphBuilder::reshapeValue(Value value, ArrayRef<Extent> from,
                                            ArrayRef<Extent> to) {
  Type element = cast<RankedTensorType>(value.getType()).getElementType();
  auto groups = groupDims(extents, from, to);
  if (!groups) {
    if (failed(requireEqual(extents.product(from), extents.product(to))))
      return failure();
    Group all;
    for (size_t k = 0; k < from.size(); ++k)
      all.from.push_back(k);
    for (size_t k = 0; k < to.size(); ++k)
      all.to.push_back(k);
    groups = SmallVector<Group>{all};
  }
  SmallVector<ReassociationIndices> collapse, expand;
  Shape middle;
  bool collapses = false, expands = false;
  for (const Group &group : *groups) {
    Extent count(1);
    for (int64_t k : group.from)
      count = extents.mul(count, from[k]);
    middle.push_back(count);
    collapse.push_back(group.from);
    expand.push_back(group.to);
    collapses |= group.from.size() != 1;
    expands |= group.to.size() != 1;
  }
  // Scalars have no group: all dimensions of the other side are 1.
  collapses |= middle.size() != from.size();
  expands |= middle.size() != to.size();
  if (collapses)
    value = ops.create<tensor::CollapseShapeOp>(loc, value, collapse);
  auto target = typeOf(to, element);
  SmallVector<int64_t> sizes;
  for (const ReassociationIndices &group : expand) {
    int64_t size = 1;
    for (int64_t k : group) {
      if (target.isDynamicDim(k) || ShapedType::isDynamic(size)) {
        size = ShapedType::kDynamic;
      } else if (llvm::MulOverflow(size, target.getDimSize(k), size)) {
        extents.hasOverflowed = true; // the node's result is refused for it
        size = ShapedType::kDynamic;
      }
    }
    sizes.push_back(size);
  }
  value = castDims(*this, value, sizes);
  if (!expands)
    return value;
  SmallVector<OpFoldResult> outputShape;
  for (const Extent &extent : to)
    outputShape.push_back(indexOrAttr(extent));
  return Value(ops.create<tensor::ExpandShapeOp>(loc, target, value, expand,
                                                 outputShape));
}

/// A value with one dimension for each base dimension of the view in its order,
/// and one for each that repeats; then that as `shape`: the view's, with or
/// without all its dimensions of extent 1.
void GraphBuilder::materialise(Tensor &tensor, ArrayRef<Extent> shape) {
  build(tensor);
  SmallVector<unsigned> order; // of base dimensions that are not 1
  bool hasRepeats = false;
  Shape loops;
  SmallVector<AffineExpr> exprs(tensor.baseShape.size(),
                                ops.getAffineConstantExpr(0));
  for (unsigned k = 0; k < tensor.rank(); ++k) {
    if (repeats(tensor, k)) {
      hasRepeats = true;
      loops.push_back(tensor.shape[k]);
    }
    for (unsigned dimension : tensor.dims[k]) {
      if (tensor.baseShape[dimension].is(1))
        continue;
      order.push_back(dimension);
      exprs[dimension] = ops.getAffineDimExpr(loops.size());
      loops.push_back(tensor.baseShape[dimension]);
    }
  }
  Value value = tensor.base;
  Shape valueShape = tensor.baseShape;
  if (hasRepeats || !llvm::is_sorted(order)) {
    Type element = cast<RankedTensorType>(value.getType()).getElementType();
    Value init = empty(loops, element);
    SmallVector<AffineMap> maps{
        AffineMap::get(loops.size(), 0, exprs, ops.getContext()),
        ops.getMultiDimIdentityMap(loops.size())};
    SmallVector<utils::IteratorType> iterators(loops.size(),
                                               utils::IteratorType::parallel);
    value = ops.create<linalg::GenericOp>(
                   loc, init.getType(), value, init, maps, iterators,
                   [](OpBuilder &builder, Location bodyLoc, ValueRange args) {
                     builder.create<linalg::YieldOp>(bodyLoc, args.front());
                   })
                .getResult(0);
    valueShape = loops;
  }
  if (ArrayRef<Extent>(valueShape) != shape) {
    FailureOr<Value> reshaped = reshapeValue(value, valueShape, shape);
    assert(succeeded(reshaped) && "a view has as many elements as its base");
    value = *reshaped;
  }
  tensor.base = value;
  tensor.baseShape.assign(shape.begin(), shape.end());
  bool hasOnes = shape.size() == tensor.rank();
  unsigned next = 0;
  for (unsigned k = 0; k < tensor.rank(); ++k) {
    tensor.dims[k].clear();
    if (hasOnes || !tensor.shape[k].is(1))
      tensor.dims[k].push_back(next++);
  }
}

/// For readers that use a map: dimensions of extent 1 stay out of memory.
void GraphBuilder::materialise(Tensor &tensor) {
  Shape shape;
  for (const Extent &extent : tensor.shape)
    if (!extent.is(1))
      shape.push_back(extent);
  materialise(tensor, shape);
}

Value GraphBuilder::valueOf(Tensor &tensor) {
  build(tensor);
  bool isPlain = tensor.baseShape.size() == tensor.rank();
  for (unsigned k = 0; isPlain && k < tensor.rank(); ++k)
    isPlain = tensor.dims[k].size() == 1 && tensor.dims[k].front() == k;
  if (!isPlain)
    materialise(tensor, Shape(tensor.shape));
  return tensor.base;
}

void GraphBuilder::repeatInMemory(Tensor &tensor) {
  build(tensor);
  for (unsigned k = 0; k < tensor.rank(); ++k)
    if (repeats(tensor, k)) {
      materialise(tensor);
      return;
    }
}

GraphBuilder::Access GraphBuilder::access(Tensor &tensor,
                                          ArrayRef<AffineExpr> at) {
  build(tensor);
  // A list may hold dimensions of extent 1 beside the one that counts.
  bool isDirect = true;
  for (auto &list : tensor.dims)
    isDirect &= llvm::count_if(list, [&](unsigned d) {
                  return !tensor.baseShape[d].is(1);
                }) <= 1;
  if (!isDirect)
    materialise(tensor);
  Access result{tensor.base, {}};
  result.exprs.assign(tensor.baseShape.size(), ops.getAffineConstantExpr(0));
  for (unsigned k = 0; k < tensor.rank(); ++k)
    for (unsigned dimension : tensor.dims[k])
      if (!tensor.baseShape[dimension].is(1))
        result.exprs[dimension] = at[k];
  return result;
}

//===- Views of views ===//

/// Replaces one base dimension by two.
void GraphBuilder::splitBase(Tensor &tensor, unsigned dimension,
                             const Extent &outer, const Extent &inner) {
  Shape shape(tensor.baseShape.begin(), tensor.baseShape.begin() + dimension);
  shape.push_back(outer);
  shape.push_back(inner);
  shape.append(tensor.baseShape.begin() + dimension + 1,
               tensor.baseShape.end());
  SmallVector<ReassociationIndices> reassociation;
  for (unsigned k = 0, next = 0; k < tensor.baseShape.size(); ++k) {
    ReassociationIndices group{int64_t(next++)};
    if (k == dimension)
      group.push_back(next++);
    reassociation.push_back(group);
  }
  SmallVector<OpFoldResult> sizes;
  for (const Extent &extent : shape)
    sizes.push_back(indexOrAttr(extent));
  Type element = cast<RankedTensorType>(tensor.base.getType()).getElementType();
  tensor.base = ops.create<tensor::ExpandShapeOp>(
      loc, typeOf(shape, element), tensor.base, reassociation, sizes);
  tensor.baseShape = shape;
  for (auto &list : tensor.dims) {
    SmallVector<unsigned, 1> renumbered;
    for (unsigned d : list) {
      renumbered.push_back(d > dimension ? d + 1 : d);
      if (d == dimension)
        renumbered.push_back(d + 1);
    }
    list = renumbered;
  }
}

/// Tries to see `shape` as a view of the same base, splitting base dimensions
/// where a boundary falls inside one.
bool GraphBuilder::reshapeView(Tensor &tensor, ArrayRef<Extent> shape) {
  build(tensor);
  Tensor trial = tensor;
  // The base dimensions in the order of the view; those of extent 1 go.
  auto flatten = [&] {
    SmallVector<unsigned> flat;
    for (auto &list : trial.dims)
      for (unsigned d : list)
        if (!trial.baseShape[d].is(1))
          flat.push_back(d);
    return flat;
  };
  for (unsigned k = 0; k < trial.rank(); ++k)
    if (repeats(trial, k))
      return false;
  SmallVector<SmallVector<unsigned>> splits;
  SmallVector<unsigned> flat = flatten();
  SmallVector<unsigned> ends;
  size_t next = 0;
  for (const Extent &wanted : shape) {
    Extent count(1);
    while (!extents.areEqual(count, wanted)) {
      std::optional<Extent> missing = extents.divideExactly(wanted, count);
      if (next == flat.size() || !missing)
        return false;
      unsigned d = flat[next];
      const Extent &extent = trial.baseShape[d];
      std::optional<Extent> inner = extents.divideExactly(extent, *missing);
      if (inner && !inner->is(1) && !extents.areEqual(extent, *missing)) {
        // Static from static only, or the op would not verify.
        bool isStatic = extent.constant().has_value();
        if (isStatic != (missing->constant() && inner->constant()))
          return false;
        splitBase(trial, d, *missing, *inner);
        flat = flatten();
      }
      count = extents.mul(count, trial.baseShape[flat[next++]]);
    }
    ends.push_back(next);
  }
  if (next != flat.size())
    return false;
  trial.dims.clear();
  for (unsigned begin = 0; unsigned end : ends) {
    trial.dims.emplace_back(flat.begin() + begin, flat.begin() + end);
    begin = end;
  }
  trial.shape.assign(shape.begin(), shape.end());
  tensor = std::move(trial);
  return true;
}

FailureOr<Tensor> GraphBuilder::reshape(Tensor &tensor,
                                        ArrayRef<Extent> shape) {
  if (const Scalar *splat = tensor.splat()) {
    if (failed(requireEqual(extents.product(tensor.shape),
                            extents.product(shape))))
      return failure();
    return knownTensor(tensor.type, shape, {*splat});
  }
  Tensor result = tensor;
  result.form.reset();
  result.constant = nullptr;
  if (!tensor.base && tensor.isTracked) {
    if (!extents.areEqual(extents.product(tensor.shape),
                          extents.product(shape)))
      return failure();
    result.shape.assign(shape.begin(), shape.end());
    return result;
  }
  if (tensor.form)
    result.form = reshapeForm(tensor, shape);
  if (result.form) { // computing it anew is cheaper than moving it
    result.base = nullptr;
    result.shape.assign(shape.begin(), shape.end());
    return result;
  }
  build(tensor);
  result.base = tensor.base;
  result.baseShape = tensor.baseShape;
  result.dims = tensor.dims;
  if (reshapeView(result, shape))
    return result;
  Value value = valueOf(tensor);
  FailureOr<Value> reshaped = reshapeValue(value, tensor.shape, shape);
  if (failed(reshaped))
    return failure();
  Tensor plain = tensorOf(*reshaped, tensor.type, shape);
  plain.known = tensor.known;
  plain.isTracked = tensor.isTracked;
  return plain;
}

/// Only dimensions of extent 1 may come and go; a tuple stays the last one.
std::optional<IndexForm> GraphBuilder::reshapeForm(const Tensor &tensor,
                                                   ArrayRef<Extent> shape) {
  bool isTuple = tensor.form->parts.size() > 1;
  if (isTuple && (shape.empty() || !(shape.back() == tensor.shape.back())))
    return std::nullopt;
  SmallVector<int> source; // of each new dimension; -1: it is new
  unsigned next = 0;
  for (const Extent &extent : shape) {
    while (next < tensor.rank() && tensor.shape[next].is(1))
      ++next;
    if (extent.is(1)) {
      source.push_back(-1);
      continue;
    }
    if (next == tensor.rank() || !extents.areEqual(extent, tensor.shape[next]))
      return std::nullopt;
    source.push_back(next++);
  }
  while (next < tensor.rank() && tensor.shape[next].is(1))
    ++next;
  if (next != tensor.rank())
    return std::nullopt;
  IndexForm form;
  for (const Affine &part : tensor.form->parts) {
    Affine moved{part.offset, {}};
    for (int from : source)
      moved.coefficients.push_back(from < 0 ? Extent()
                                            : part.coefficients[from]);
    form.parts.push_back(std::move(moved));
  }
  return form;
}

/// Row-major strides of constant sizes.
static SmallVector<int64_t> stridesOf(ArrayRef<Extent> shape) {
  SmallVector<int64_t> strides(shape.size(), 1);
  for (int k = int(shape.size()) - 2; k >= 0; --k)
    strides[k] = strides[k + 1] * *shape[k + 1].constant();
  return strides;
}

/// Calls fn(subscripts) in row-major order.
static void forEachSubscript(ArrayRef<Extent> shape,
                             llvm::function_ref<void(ArrayRef<int64_t>)> fn) {
  SmallVector<int64_t> at(shape.size(), 0);
  int64_t count = *smallCount(shape, kMostKnown);
  for (int64_t position = 0; position < count; ++position) {
    fn(at);
    for (int k = int(shape.size()) - 1; k >= 0; --k) {
      if (++at[k] < *shape[k].constant())
        break;
      at[k] = 0;
    }
  }
}

Tensor GraphBuilder::transpose(Tensor &tensor, ArrayRef<unsigned> order) {
  if (!tensor.form && !tensor.isTracked)
    build(tensor);
  Tensor result = tensor;
  result.constant = nullptr;
  result.shape.clear();
  result.dims.clear();
  for (unsigned from : order) {
    result.shape.push_back(tensor.shape[from]);
    if (tensor.base)
      result.dims.push_back(tensor.dims[from]);
  }
  if (tensor.isTracked && !tensor.splat()) {
    SmallVector<int64_t> strides = stridesOf(tensor.shape);
    result.known.clear();
    forEachSubscript(result.shape, [&](ArrayRef<int64_t> at) {
      int64_t position = 0;
      for (auto [k, from] : llvm::enumerate(order))
        position += at[k] * strides[from];
      result.known.push_back(tensor.known[position]);
    });
  }
  if (tensor.form) {
    bool movesTuple =
        tensor.form->parts.size() > 1 && order.back() != tensor.rank() - 1;
    for (Affine &part : result.form->parts) {
      part.coefficients.clear();
      for (unsigned from : order)
        part.coefficients.push_back(
            tensor.form->parts[&part - result.form->parts.begin()]
                .coefficients[from]);
    }
    if (movesTuple)
      result.form.reset();
  }
  if (!tensor.base && !result.form && !result.isTracked) {
    build(tensor);
    return transpose(tensor, order);
  }
  return result;
}

Tensor GraphBuilder::broadcastTo(Tensor &tensor, ArrayRef<Extent> shape) {
  if (const Scalar *splat = tensor.splat())
    return knownTensor(tensor.type, shape, {*splat});
  unsigned added = shape.size() - tensor.rank();
  Tensor result = tensor;
  result.constant = nullptr;
  result.shape.assign(shape.begin(), shape.end());
  auto isRepeated = [&](unsigned k) {
    return k < added || (tensor.shape[k - added].is(1) && !shape[k].is(1));
  };
  std::optional<int64_t> count = smallCount(shape, kMostKnown);
  result.isTracked = tensor.isTracked && count;
  result.known.clear();
  if (result.isTracked && count) {
    SmallVector<int64_t> strides = stridesOf(tensor.shape);
    forEachSubscript(shape, [&](ArrayRef<int64_t> at) {
      int64_t position = 0;
      for (unsigned k = added; k < shape.size(); ++k)
        if (!isRepeated(k))
          position += at[k] * strides[k - added];
      result.known.push_back(tensor.known[position]);
    });
  }
  if (tensor.form)
    for (auto [part, source] :
         llvm::zip_equal(result.form->parts, tensor.form->parts)) {
      part.coefficients.clear();
      for (unsigned k = 0; k < shape.size(); ++k)
        part.coefficients.push_back(
            isRepeated(k) ? Extent() : source.coefficients[k - added]);
    }
  if (tensor.form && tensor.form->parts.size() > 1 &&
      isRepeated(shape.size() - 1))
    result.form.reset();
  if (!result.isTracked && !result.form)
    build(tensor);
  if (tensor.base) {
    result.base = tensor.base;
    result.baseShape = tensor.baseShape;
    result.dims.clear();
    for (unsigned k = 0; k < shape.size(); ++k)
      result.dims.push_back(isRepeated(k) ? SmallVector<unsigned, 1>()
                                          : tensor.dims[k - added]);
  }
  return result;
}

Tensor GraphBuilder::slice(Tensor &tensor, unsigned axis, const Extent &begin,
                           const Extent &size, const Extent &step) {
  Shape shape = tensor.shape;
  shape[axis] = size;
  if (const Scalar *splat = tensor.splat())
    return knownTensor(tensor.type, shape, {*splat});
  Tensor result;
  result.type = tensor.type;
  result.shape = shape;
  bool isConstant = begin.constant() && size.constant() && step.constant();
  if (tensor.isTracked && isConstant) {
    SmallVector<int64_t> strides = stridesOf(tensor.shape);
    forEachSubscript(shape, [&](ArrayRef<int64_t> at) {
      int64_t position = 0;
      for (unsigned k = 0; k < shape.size(); ++k)
        position +=
            strides[k] *
            (k == axis ? *begin.constant() + at[k] * *step.constant() : at[k]);
      result.known.push_back(tensor.known[position]);
    });
    result.isTracked = true;
    return result;
  }
  bool isTuple = tensor.form && tensor.form->parts.size() > 1;
  if (tensor.form && !(isTuple && axis == tensor.rank() - 1)) {
    result.form = tensor.form;
    for (Affine &part : result.form->parts) {
      Extent &slope = part.coefficients[axis];
      part.offset = extents.add(part.offset, extents.mul(slope, begin));
      slope = extents.mul(slope, step);
    }
    return result;
  }
  build(tensor);
  if (repeats(tensor, axis)) {
    result = tensor;
    result.shape = shape;
    result.constant = nullptr;
    result.known.clear();
    result.isTracked = false;
    result.form.reset();
    return result;
  }
  // Slicing the base keeps the view, where the dimension is one of the base's.
  if (tensor.dims[axis].size() != 1)
    valueOf(tensor);
  unsigned dimension = tensor.dims[axis].front();
  Shape baseShape = tensor.baseShape;
  baseShape[dimension] = size;
  SmallVector<OpFoldResult> offsets(baseShape.size(), ops.getIndexAttr(0));
  SmallVector<OpFoldResult> steps(baseShape.size(), ops.getIndexAttr(1));
  SmallVector<OpFoldResult> sizes;
  offsets[dimension] = indexOrAttr(begin);
  steps[dimension] = indexOrAttr(step);
  for (const Extent &extent : baseShape)
    sizes.push_back(indexOrAttr(extent));
  Type element = cast<RankedTensorType>(tensor.base.getType()).getElementType();
  result.base = ops.create<tensor::ExtractSliceOp>(
      loc, typeOf(baseShape, element), tensor.base, offsets, sizes, steps);
  result.baseShape = baseShape;
  result.dims = tensor.dims;
  return result;
}
