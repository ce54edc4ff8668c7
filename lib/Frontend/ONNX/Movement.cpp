// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Operators that move elements and compute nothing.
#include "Movement.h"
#include "Operators.h"
#include "Scalars.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace refold::onnx;

static LogicalResult lowerTranspose(Node &node) {
  Tensor &input = node.input(0);
  SmallVector<int64_t> given = node.integers("perm");
  SmallVector<unsigned> order;
  if (!node.has("perm"))
    for (unsigned k = input.rank(); k > 0; --k)
      order.push_back(k - 1);
  for (int64_t from : given)
    order.push_back(unsigned(std::clamp<int64_t>(from, -1, 1000)));
  SmallVector<bool> seen(input.rank(), false);
  for (unsigned from : order)
    if (from < seen.size())
      seen[from] = true;
  if (order.size() != input.rank() || llvm::is_contained(seen, false))
    return node.error() << "perm has " << order.size() << " entries for rank "
                        << input.rank() << "; expected each of 0 to "
                        << int(input.rank()) - 1 << " once";
  return node.give(node.graph.transpose(input, order));
}

//===- Slices ===//

Tensor refold::onnx::reverse(Node &node, Tensor &tensor, unsigned axis,
                             const Extent &begin, const Extent &size,
                             const Extent &step) {
  GraphBuilder &graph = node.graph;
  Value source = graph.valueOf(tensor);
  Shape shape = tensor.shape;
  shape[axis] = size;
  return graph.generate(shape, tensor.type, getElementTypeOrSelf(source),
                        [&](Body &body, ValueRange at) -> Value {
                          Type indexType = body.builder.getIndexType();
                          SmallVector<Value> from(at);
                          Value offset = body.make<arith::MulIOp>(
                              at[axis], graph.extentIn(body, step, indexType));
                          from[axis] = body.make<arith::AddIOp>(
                              offset, graph.extentIn(body, begin, indexType));
                          return body.make<tensor::ExtractOp>(source, from);
                        });
}

/// From the end where negative, then inside [low, high].
static std::optional<Extent> clampBound(Extents &extents, const Extent &bound,
                                        const Extent &extent, const Extent &low,
                                        const Extent &high) {
  Extent value = bound;
  if (extents.isAtMost(bound, -1)) {
    if (std::optional<int64_t> number = bound.constant();
        number && *number < -kLargestExtent)
      return low;
    value = extents.add(bound, extent);
  } else if (!extents.isNonNegative(bound)) {
    return std::nullopt;
  }
  return extents.max(low, extents.min(value, high));
}

static LogicalResult sliceAxis(Node &node, Tensor &tensor, unsigned axis,
                               const Extent &start, const Extent &end,
                               const Extent &step) {
  Extents &extents = node.extents;
  const Extent extent = tensor.shape[axis];
  bool isUp = extents.isAtMost(1, step);
  if (!isUp && !extents.isAtMost(step, -1))
    return node.unsupported()
           << "step " << extents.toString(step)
           << "; expected one that is not 0 and whose sign is known";
  Extent last = extents.sub(extent, 1);
  auto from = isUp ? clampBound(extents, start, extent, 0, extent)
                   : clampBound(extents, start, extent, 0, last);
  auto to = isUp ? clampBound(extents, end, extent, 0, extent)
                 : clampBound(extents, end, extent, -1, last);
  if (!from || !to)
    return node.unsupported()
           << "bounds " << extents.toString(start) << " and "
           << extents.toString(end) << "; expected ones whose sign is known";
  Extent span = isUp ? extents.sub(*to, *from) : extents.sub(*from, *to);
  Extent stride = isUp ? step : extents.sub(0, step);
  Extent size = extents.ceilDiv(extents.max(span, 0), stride);
  if (isUp && from->is(0) && step.is(1) && extents.areEqual(size, extent))
    return success();
  tensor = isUp ? node.graph.slice(tensor, axis, *from, size, step)
                : reverse(node, tensor, axis, *from, size, step);
  return success();
}

static LogicalResult lowerSlice(Node &node) {
  Tensor tensor = node.input(0);
  auto starts = node.extentsOf(1, "the starts"),
       ends = node.extentsOf(2, "the ends");
  if (failed(starts) || failed(ends))
    return failure();
  SmallVector<int64_t> axes;
  Shape steps(starts->size(), Extent(1));
  if (node.hasInput(3)) {
    auto given = node.integersOf(3, "the axes");
    if (failed(given))
      return failure();
    axes = *given;
  } else {
    for (size_t k = 0; k < starts->size(); ++k)
      axes.push_back(int64_t(k));
  }
  if (node.hasInput(4)) {
    auto given = node.extentsOf(4, "the steps");
    if (failed(given))
      return failure();
    steps = *given;
  }
  if (starts->size() != ends->size() || axes.size() != starts->size() ||
      steps.size() != starts->size())
    return node.error() << starts->size() << " starts, " << ends->size()
                        << " ends, " << axes.size() << " axes and "
                        << steps.size() << " steps; expected as many of each";
  if (failed(node.axisSet(axes, tensor.rank())))
    return failure();
  for (size_t k = 0; k < axes.size(); ++k)
    if (failed(sliceAxis(node, tensor, *node.axis(axes[k], tensor.rank()),
                         (*starts)[k], (*ends)[k], steps[k])))
      return failure();
  return node.give(std::move(tensor));
}

/// The parts' extents: an input, `num_outputs` (opset 18), or equal ones.
static FailureOr<Shape> splitSizes(Node &node, const Extent &extent) {
  Extents &extents = node.extents;
  if (node.hasInput(1))
    return node.extentsOf(1, "the sizes");
  int64_t count = node.integer("num_outputs", node.numOutputs());
  if (count < 1 || count != node.numOutputs()) {
    node.error() << "num_outputs is " << count << " with " << node.numOutputs()
                 << " outputs; expected that number";
    return failure();
  }
  Extent part = extents.ceilDiv(extent, Extent(count));
  Shape sizes;
  Extent rest = extent;
  for (int64_t i = 0; i < count; ++i) {
    Extent size = extents.max(0, extents.min(part, rest));
    sizes.push_back(size);
    rest = extents.sub(rest, size);
  }
  return sizes;
}

static LogicalResult lowerSplit(Node &node) {
  Tensor &input = node.input(0);
  auto axis = node.axisAttribute(0, input.rank());
  if (failed(axis))
    return failure();
  auto sizes = splitSizes(node, input.shape[*axis]);
  if (failed(sizes))
    return failure();
  if (sizes->size() != node.numOutputs())
    return node.error() << sizes->size() << " sizes for " << node.numOutputs()
                        << " outputs; expected as many";
  Extents &extents = node.extents;
  Extent total(0);
  for (const Extent &size : *sizes) {
    if (!extents.isNonNegative(size))
      return node.badSizes(size) << "size " << extents.toString(size)
                                 << "; expected one that is at least 0";
    total = extents.add(total, size);
  }
  if (failed(node.graph.requireEqual(total, input.shape[*axis])))
    return node.error() << "the sizes sum to " << extents.toString(total)
                        << "; expected "
                        << extents.toString(input.shape[*axis]);
  Extent begin(0);
  for (auto [i, size] : llvm::enumerate(*sizes)) {
    if (node.wants(i) &&
        failed(node.give(i, node.graph.slice(input, *axis, begin, size, 1))))
      return failure();
    begin = extents.add(begin, size);
  }
  return success();
}

//===- Concat ===//

static std::optional<Tensor> concatKnown(Node &node, unsigned axis,
                                         ArrayRef<Extent> shape) {
  auto count = smallCount(shape, kMostKnown);
  if (!count)
    return std::nullopt;
  int64_t outer = 1;
  for (unsigned k = 0; k < axis; ++k)
    outer *= *shape[k].constant();
  std::vector<Scalar> known;
  if (!*count)
    return node.graph.knownTensor(node.input(0).type, shape, {});
  for (int64_t o = 0; o < outer; ++o)
    for (Tensor *input : node.allInputs()) {
      if (!input->isKnown())
        return std::nullopt;
      auto size = smallCount(input->shape, kMostKnown);
      if (!size)
        return std::nullopt;
      int64_t run = *size / outer;
      for (int64_t i = 0; i < run; ++i)
        known.push_back(input->known.size() == 1 ? input->known.front()
                                                 : input->known[o * run + i]);
    }
  return node.graph.knownTensor(node.input(0).type, shape, std::move(known));
}

/// Index tensors side by side along the last dimension: tuples.
static std::optional<Tensor> concatForms(Node &node, unsigned axis,
                                         ArrayRef<Extent> shape) {
  if (axis + 1 != shape.size() || isFloat(node.input(0).type))
    return std::nullopt;
  IndexForm form;
  for (Tensor *input : node.allInputs()) {
    auto part = formOver(node.extents, *input, input->shape);
    if (!part || part->parts.size() != 1 || !input->shape.back().is(1))
      return std::nullopt;
    form.parts.push_back(part->parts.front());
  }
  Tensor result;
  result.type = node.input(0).type;
  result.shape.assign(shape.begin(), shape.end());
  result.form = std::move(form);
  return result;
}

/// The shape of tensors put one behind the other along the axis.
static FailureOr<Shape> joinedShape(Node &node, ArrayRef<Tensor *> tensors,
                                    unsigned axis) {
  Shape shape = tensors[0]->shape;
  for (Tensor *tensor : tensors.drop_front())
    for (unsigned k = 0; k < shape.size(); ++k) {
      if (k == axis) {
        shape[k] = node.extents.add(shape[k], tensor->shape[k]);
        continue;
      }
      if (succeeded(node.graph.requireEqual(shape[k], tensor->shape[k])))
        continue;
      node.error() << "dimension " << k << " is "
                   << node.extents.toString(tensor->shape[k]) << "; expected "
                   << node.extents.toString(shape[k]) << ", that of input 0";
      return failure();
    }
  return shape;
}

FailureOr<Tensor> refold::onnx::join(Node &node, ArrayRef<Tensor *> tensors,
                                     unsigned axis) {
  GraphBuilder &graph = node.graph;
  FailureOr<Shape> shape = joinedShape(node, tensors, axis);
  if (failed(shape))
    return failure();
  SmallVector<Value> values;
  bool isMixed = false;
  for (Tensor *tensor : tensors) {
    values.push_back(graph.valueOf(*tensor));
    isMixed |= getElementTypeOrSelf(values.back()) !=
               getElementTypeOrSelf(values.front());
  }
  // Short floats are f32 where they were computed and short where they were
  // read.
  if (isMixed)
    for (auto [tensor, value] : llvm::zip_equal(tensors, values)) {
      Tensor computed =
          graph.elementwise(tensor, tensor->shape, tensor->type,
                            [](Body &, ValueRange in) { return in[0]; });
      value = graph.valueOf(computed);
    }
  RankedTensorType type = graph.typeOf(*shape, getElementTypeOrSelf(values[0]));
  Value joined =
      graph.ops.create<tensor::ConcatOp>(graph.loc, type, axis, values);
  return graph.tensorOf(joined, tensors[0]->type, *shape);
}

static LogicalResult lowerConcat(Node &node) {
  for (unsigned i = 0; i < node.numInputs(); ++i)
    if (!node.hasInput(i) || node.input(i).rank() != node.input(0).rank())
      return node.error() << "input " << i << " has another rank; expected "
                          << node.input(0).rank() << ", that of input 0";
  if (failed(node.requireSameTypes()))
    return failure();
  if (!node.has("axis"))
    return node.error() << "no attribute 'axis'; expected one";
  auto axis = node.axisAttribute(0, node.input(0).rank());
  if (failed(axis))
    return failure();
  FailureOr<Shape> shape = joinedShape(node, node.allInputs(), *axis);
  if (failed(shape))
    return failure();
  if (node.numInputs() == 1)
    return node.give(node.input(0));
  if (auto known = concatKnown(node, *axis, *shape))
    return node.give(std::move(*known));
  if (auto tuples = concatForms(node, *axis, *shape))
    return node.give(std::move(*tuples));
  FailureOr<Tensor> joined = join(node, node.allInputs(), *axis);
  return failed(joined) ? failure() : node.give(std::move(*joined));
}

//===- Padding, repetition, triangles ===//

/// Constant padding; a negative amount cuts.
static LogicalResult lowerPad(Node &node) {
  Extents &extents = node.extents;
  GraphBuilder &graph = node.graph;
  Tensor tensor = node.input(0);
  std::string mode = node.string("mode", "constant");
  if (mode != "constant")
    return node.unsupported()
           << "mode is '" << mode << "'; expected 'constant'";
  auto pads = node.integersOf(1, "the pads");
  if (failed(pads))
    return failure();
  SmallVector<int64_t> axes;
  if (node.hasInput(3)) {
    auto given = node.integersOf(3, "the axes");
    if (failed(given))
      return failure();
    axes = *given;
  } else {
    for (unsigned k = 0; k < tensor.rank(); ++k)
      axes.push_back(k);
  }
  if (pads->size() != 2 * axes.size() ||
      failed(node.axisSet(axes, tensor.rank())))
    return node.error() << pads->size() << " pads for " << axes.size()
                        << " axes; expected two an axis";
  SmallVector<int64_t> low(tensor.rank(), 0), high(tensor.rank(), 0);
  for (size_t k = 0; k < axes.size(); ++k) {
    unsigned axis = *node.axis(axes[k], tensor.rank());
    low[axis] = (*pads)[k];
    high[axis] = (*pads)[axes.size() + k];
    if (std::min(low[axis], high[axis]) < -kLargestExtent ||
        std::max(low[axis], high[axis]) > kLargestExtent)
      return node.beyondLimit() << "a pad of " << low[axis] << " or "
                                << high[axis] << "; expected at most 2^40";
    Extent cut(std::max<int64_t>(0, -low[axis]) +
               std::max<int64_t>(0, -high[axis]));
    if (cut.is(0))
      continue;
    Extent size = extents.sub(tensor.shape[axis], cut);
    if (!extents.isNonNegative(size))
      return node.error() << "a pad cuts " << extents.toString(cut) << " of "
                          << extents.toString(tensor.shape[axis])
                          << "; expected at most all";
    tensor = graph.slice(tensor, axis, Extent(std::max<int64_t>(0, -low[axis])),
                         size, 1);
    low[axis] = std::max<int64_t>(0, low[axis]);
    high[axis] = std::max<int64_t>(0, high[axis]);
  }
  Value source = graph.valueOf(tensor);
  Type element = getElementTypeOrSelf(source);
  Scalar fill = isFloat(tensor.type) ? Scalar::of(0.0) : Scalar::of(Extent(0));
  if (node.hasInput(2)) {
    const Scalar *given = node.input(2).splat();
    if (!given)
      return node.unsupported()
             << "the padding value is known only at run time; "
             << "expected a constant";
    fill = *given;
  }
  Shape shape = tensor.shape;
  SmallVector<OpFoldResult> before, after;
  for (unsigned k = 0; k < tensor.rank(); ++k) {
    shape[k] = extents.add(shape[k], Extent(low[k] + high[k]));
    before.push_back(graph.ops.getIndexAttr(low[k]));
    after.push_back(graph.ops.getIndexAttr(high[k]));
  }
  Body body{graph.ops, graph.loc};
  if (fill.integer && !fill.integer->constant())
    return node.unsupported()
           << "the padding value is a size; expected a number";
  Value value = fill.real ? body.real(element, *fill.real)
                          : body.integer(element, *fill.integer->constant());
  Value padded = graph.ops.create<tensor::PadOp>(
      graph.loc, graph.typeOf(shape, element), source, before, after, value);
  return node.give(graph.tensorOf(padded, tensor.type, shape));
}

/// A dimension of n, r times over, is (r, n) seen as one.
static LogicalResult lowerTile(Node &node) {
  Tensor &input = node.input(0);
  auto repeats = node.extentsOf(1, "the repeats");
  if (failed(repeats))
    return failure();
  if (repeats->size() != input.rank())
    return node.error() << repeats->size() << " repeats for rank "
                        << input.rank() << "; expected as many";
  Extents &extents = node.extents;
  Shape apart, repeated, result;
  for (auto [extent, count] : llvm::zip_equal(input.shape, *repeats)) {
    if (!extents.isNonNegative(count))
      return node.badSizes(count) << "repeat " << extents.toString(count)
                                  << "; expected one that is at least 0";
    apart.append({Extent(1), extent});
    repeated.append({count, extent});
    result.push_back(extents.mul(count, extent));
  }
  FailureOr<Tensor> view = node.graph.reshape(input, apart);
  if (failed(view))
    return failure();
  Tensor wide = node.graph.broadcastTo(*view, repeated);
  FailureOr<Tensor> flat = node.graph.reshape(wide, result);
  if (failed(flat))
    return node.beyondLimit() << "the repeats overflow; expected smaller ones";
  return node.give(std::move(*flat));
}

static LogicalResult lowerTrilu(Node &node) {
  Tensor &input = node.input(0);
  if (input.rank() < 2)
    return node.error() << "input 0 has rank " << input.rank()
                        << "; expected at least 2";
  Extent diagonal(0);
  if (node.hasInput(1)) {
    auto given = node.extentsOf(1, "the diagonal");
    if (failed(given))
      return failure();
    if (given->size() != 1)
      return node.error() << given->size() << " diagonals; expected one";
    diagonal = given->front();
  }
  bool isUpper = node.integer("upper", 1) != 0;
  GraphBuilder &graph = node.graph;
  unsigned rank = input.rank();
  return node.give(graph.elementwise(
      &input, input.shape, input.type, [&](Body &body, ValueRange in) -> Value {
        Type indexType = body.builder.getIndexType(), element = in[0].getType();
        Value column = graph.subscriptIn(body, input.shape, rank - 1);
        Value row = graph.subscriptIn(body, input.shape, rank - 2);
        Value first = body.make<arith::AddIOp>(
            row, graph.extentIn(body, diagonal, indexType));
        Value keeps = body.make<arith::CmpIOp>(
            isUpper ? arith::CmpIPredicate::sge : arith::CmpIPredicate::sle,
            column, first);
        Value zero = isa<FloatType>(element) ? body.real(element, 0)
                                             : body.integer(element, 0);
        return body.make<arith::SelectOp>(keeps, in[0], zero);
      }));
}

/// Blocks of channels to blocks of pixels: a transpose of a finer shape.
static LogicalResult lowerDepthToSpace(Node &node) {
  Tensor &input = node.input(0);
  int64_t block = node.integer("blocksize", 0);
  std::string mode = node.string("mode", "DCR");
  std::optional<Extent> depth;
  if (input.rank() == 4 && block > 0 && block < (1 << 20))
    depth = node.extents.divideExactly(input.shape[1], Extent(block * block));
  if (!depth || (mode != "DCR" && mode != "CRD"))
    return node.error()
           << "blocksize " << block << ", mode '" << mode << "' on shape "
           << toString(node.extents, input.shape)
           << "; expected rank 4, channels that blocksize^2 divides, "
           << "and DCR or CRD";
  Shape s = input.shape;
  bool isDepthFirst = mode == "DCR";
  Shape apart =
      isDepthFirst
          ? Shape{s[0], Extent(block), Extent(block), *depth, s[2], s[3]}
          : Shape{s[0], *depth, Extent(block), Extent(block), s[2], s[3]};
  FailureOr<Tensor> view = node.graph.reshape(input, apart);
  if (failed(view))
    return failure();
  Tensor turned = isDepthFirst
                      ? node.graph.transpose(*view, {0, 3, 4, 1, 5, 2})
                      : node.graph.transpose(*view, {0, 1, 4, 2, 5, 3});
  FailureOr<Tensor> result = node.graph.reshape(
      turned, {s[0], *depth, node.extents.mul(s[2], Extent(block)),
               node.extents.mul(s[3], Extent(block))});
  if (failed(result))
    return failure();
  return node.give(std::move(*result));
}

static LogicalResult lowerSpaceToDepth(Node &node) {
  Tensor &input = node.input(0);
  int64_t block = node.integer("blocksize", 0);
  std::optional<Extent> high, wide;
  if (input.rank() == 4 && block > 0 && block < (1 << 20)) {
    high = node.extents.divideExactly(input.shape[2], Extent(block));
    wide = node.extents.divideExactly(input.shape[3], Extent(block));
  }
  if (!high || !wide)
    return node.error()
           << "blocksize " << block << " on shape "
           << toString(node.extents, input.shape)
           << "; expected rank 4 and a divisor of height and width";
  Shape s = input.shape;
  FailureOr<Tensor> view = node.graph.reshape(
      input, {s[0], s[1], *high, Extent(block), *wide, Extent(block)});
  if (failed(view))
    return failure();
  Tensor turned = node.graph.transpose(*view, {0, 3, 5, 1, 2, 4});
  FailureOr<Tensor> result = node.graph.reshape(
      turned,
      {s[0], node.extents.mul(s[1], Extent(block * block)), *high, *wide});
  if (failed(result))
    return failure();
  return node.give(std::move(*result));
}

ArrayRef<Operator> refold::onnx::movementOperators() {
  static const Operator rows[] = {
      {"Concat", 13, kLastOpset, "axis:i", 1, kAnyNumber, lowerConcat},
      {"DepthToSpace", 13, kLastOpset, "blocksize:i mode:s", 1, 1,
       lowerDepthToSpace},
      {"Pad", 13, 17, "mode:s", 2, 3, lowerPad},
      {"Pad", 18, kLastOpset, "mode:s", 2, 4, lowerPad},
      {"Slice", 13, kLastOpset, "", 3, 5, lowerSlice},
      {"SpaceToDepth", 13, kLastOpset, "blocksize:i", 1, 1, lowerSpaceToDepth},
      {"Split", 13, 17, "axis:i", 1, 2, lowerSplit},
      {"Split", 18, kLastOpset, "axis:i num_outputs:i", 1, 2, lowerSplit},
      {"Tile", 13, kLastOpset, "", 2, 2, lowerTile},
      {"Transpose", 13, kLastOpset, "perm:is", 1, 1, lowerTranspose},
      {"Trilu", 14, kLastOpset, "upper:i", 1, 2, lowerTrilu},
  };
  return rows;
}
