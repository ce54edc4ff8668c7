// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Ops that make arrays or move their elements and compute nothing.
#include "Session.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/ADT/TypeSwitch.h"
#include <limits>

using namespace mlir;
using namespace refold;
using namespace refold::reference;
using Result = llvm::Expected<std::optional<RefTensor>>;

//===----------------------------------------------------------------------===//
// Constants
//===----------------------------------------------------------------------===//

static RefTensor splat(Cell cell, bool isFloat, ArrayRef<int64_t> shape,
                       const Session &session) {
  RefTensor one = RefTensor::create(isFloat, {}, session.isWide);
  *one.data() = cell;
  return one.view(shape, SmallVector<int64_t>(shape.size(), 0), 0);
}

/// Cells from packed elements of a type that is no i1.
static void unpack(ArrayRef<char> bytes, Type type, RefTensor &into) {
  unsigned width = (widthOf(type) + 7) / 8;
  std::optional<DType> real = dtypeOf(type);
  int64_t n = into.numElements();
  for (int64_t p = 0; p < n; ++p) {
    const char *at = bytes.data() + p * width;
    if (real) {
      setFloat(into.data()[p], into.isWide(), loadAsDouble(*real, at));
      continue;
    }
    int64_t value = 0;
    memcpy(&value, at, width);
    into.data()[p].i = wrapTo(widthOf(type), value);
  }
}

static llvm::Expected<RefTensor>
evaluateResource(DenseResourceElementsAttr attr, Location location,
                 Session &session) {
  ShapedType type = attr.getType();
  AsmResourceBlob *blob = attr.getRawHandle().getBlob();
  unsigned width = (widthOf(type.getElementType()) + 7) / 8;
  if (!blob || blob->getData().size() != size_t(type.getNumElements()) * width)
    return failAt(
        ExitCode::Model, location,
        "a constant has " + llvm::Twine(blob ? blob->getData().size() : 0) +
            " bytes; expected " + llvm::Twine(type.getNumElements() * width));
  bool isFloat = isa<FloatType>(type.getElementType());
  auto made = session.make(isFloat, type.getShape(), location);
  if (made)
    unpack(blob->getData(), type.getElementType(), *made);
  return made;
}

llvm::Expected<RefTensor> reference::evaluateConstant(Attribute value,
                                                      Location location,
                                                      Session &session) {
  auto elements = dyn_cast<ElementsAttr>(value);
  Type element = elements ? elements.getElementType() : Type();
  if (!elements || !isKnownScalar(element))
    return failAt(ExitCode::Unsupported, location,
                  "found a constant of a type that the reference does not "
                  "know");
  if (auto resource = dyn_cast<DenseResourceElementsAttr>(value))
    return evaluateResource(resource, location, session);
  auto dense = dyn_cast<DenseIntOrFPElementsAttr>(value);
  if (!dense)
    return failAt(ExitCode::Unsupported, location,
                  "found a constant that is neither dense nor a resource");
  bool isFloat = isa<FloatType>(element);
  ArrayRef<int64_t> shape = elements.getShapedType().getShape();
  if (dense.isSplat())
    return splat(cellOf(dense.getSplatValue<Attribute>(), session.isWide),
                 isFloat, shape, session);
  auto made = session.make(isFloat, shape, location);
  if (!made)
    return made;
  if (!element.isInteger(1)) {
    unpack(dense.getRawData(), element, *made);
    return made;
  }
  for (auto [p, bit] : llvm::enumerate(dense.getValues<bool>()))
    made->data()[p].i = bit;
  return made;
}

//===----------------------------------------------------------------------===//
// Shapes and slices
//===----------------------------------------------------------------------===//

namespace {

class TensorOpEvaluator {
public:
  TensorOpEvaluator(const Lookup &lookup, Session &session, Location location)
      : lookup(lookup), session(session), location(location) {}

  Result empty(tensor::EmptyOp op);
  Result reshape(Value source, RankedTensorType type,
                 ArrayRef<ReassociationIndices> groups, bool isExpanding,
                 ArrayRef<OpFoldResult> given);
  Result extractSlice(tensor::ExtractSliceOp op);
  Result insertSlice(tensor::InsertSliceOp op);
  Result concat(tensor::ConcatOp op);
  Result pad(tensor::PadOp op);
  Result cast(Value source, ShapedType type);
  Result fromElements(tensor::FromElementsOp op);

private:
  const RefTensor &get(Value value) { return *lookup(value); }
  int64_t number(OpFoldResult size) {
    if (auto known = getConstantIntValue(size))
      return *known;
    return get(dyn_cast<Value>(size)).data()->i;
  }
  SmallVector<int64_t> numbers(ArrayRef<OpFoldResult> sizes) {
    SmallVector<int64_t> result;
    for (OpFoldResult size : sizes)
      result.push_back(number(size));
    return result;
  }
  llvm::Error error(const llvm::Twine &message) {
    return failAt(ExitCode::Model, location, message);
  }
  /// The part of `array` that offsets, sizes and strides name.
  llvm::Expected<RefTensor> slice(const RefTensor &array,
                                  ArrayRef<int64_t> offsets,
                                  ArrayRef<int64_t> sizes,
                                  ArrayRef<int64_t> strides);

  const Lookup &lookup;
  Session &session;
  Location location;
};

} // namespace

/// Requires equal shapes.
static void copyInto(const RefTensor &from, const RefTensor &to) {
  if (from.numElements() == 0)
    return;
  SmallVector<int64_t, 4> at(from.rank(), 0);
  do {
    int64_t source = 0, target = 0;
    for (unsigned d = 0; d < from.rank(); ++d) {
      source += at[d] * from.strides()[d];
      target += at[d] * to.strides()[d];
    }
    to.data()[target] = from.data()[source];
  } while (nextSubscripts(at, from.shape()));
}

Result TensorOpEvaluator::empty(tensor::EmptyOp op) {
  SmallVector<int64_t> shape = numbers(op.getMixedSizes());
  for (int64_t extent : shape)
    if (extent < 0)
      return error("an array has shape " + showShape(shape) +
                   "; expected extents of 0 or more");
  // NaN, so that a read before a write shows.
  Cell cell{};
  bool isFloat = isa<FloatType>(op.getType().getElementType());
  if (isFloat)
    setFloat(cell, session.isWide, std::numeric_limits<double>::quiet_NaN());
  else
    cell.i = 0;
  return splat(cell, isFloat, shape, session);
}

Result TensorOpEvaluator::reshape(Value source, RankedTensorType type,
                                  ArrayRef<ReassociationIndices> groups,
                                  bool isExpanding,
                                  ArrayRef<OpFoldResult> given) {
  const RefTensor &array = get(source);
  SmallVector<int64_t> shape;
  if (isExpanding)
    shape = numbers(given);
  for (auto [g, group] : llvm::enumerate(groups)) {
    int64_t size = 1;
    for (int64_t d : group)
      size *= isExpanding ? shape[d] : array.shape()[d];
    if (!isExpanding)
      shape.push_back(size);
    else if (size != array.shape()[g])
      return error("dimension " + llvm::Twine(g) + " of size " +
                   llvm::Twine(array.shape()[g]) + " is expanded to size " +
                   llvm::Twine(size));
  }
  if (!agrees(shape, type.getShape()))
    return error("the result has shape " + showShape(shape) + "; expected " +
                 showShape(type.getShape()));
  if (array.isRowMajor())
    return std::optional(array.reshaped(shape));
  auto copy = session.copy(array, location);
  if (!copy)
    return copy.takeError();
  return std::optional(copy->reshaped(shape));
}

llvm::Expected<RefTensor> TensorOpEvaluator::slice(const RefTensor &array,
                                                   ArrayRef<int64_t> offsets,
                                                   ArrayRef<int64_t> sizes,
                                                   ArrayRef<int64_t> strides) {
  SmallVector<int64_t> steps;
  int64_t start = 0;
  for (unsigned d = 0; d < array.rank(); ++d) {
    // In 128 bits: the numbers are the user's.
    __int128 last = __int128(offsets[d]) + __int128(sizes[d] - 1) * strides[d];
    bool isInside = offsets[d] >= 0 && sizes[d] >= 0 && last >= -1 &&
                    (sizes[d] == 0 ? offsets[d] <= array.shape()[d]
                                   : last < array.shape()[d] && last >= 0 &&
                                         offsets[d] < array.shape()[d]);
    if (!isInside)
      return error("a slice at " + llvm::Twine(offsets[d]) + " of size " +
                   llvm::Twine(sizes[d]) + " and step " +
                   llvm::Twine(strides[d]) + " leaves dimension " +
                   llvm::Twine(d) + " of size " +
                   llvm::Twine(array.shape()[d]));
    steps.push_back(array.strides()[d] * strides[d]);
    if (sizes[d] > 0)
      start += array.strides()[d] * offsets[d];
  }
  return array.view(sizes, steps, start);
}

/// Without the dimensions that `dropped` names.
static RefTensor dropDims(const RefTensor &array,
                          const llvm::SmallBitVector &dropped) {
  SmallVector<int64_t> shape, strides;
  for (unsigned d = 0; d < array.rank(); ++d)
    if (!dropped.test(d)) {
      shape.push_back(array.shape()[d]);
      strides.push_back(array.strides()[d]);
    }
  return array.view(shape, strides, 0);
}

Result TensorOpEvaluator::extractSlice(tensor::ExtractSliceOp op) {
  auto part = slice(get(op.getSource()), numbers(op.getMixedOffsets()),
                    numbers(op.getMixedSizes()), numbers(op.getMixedStrides()));
  if (!part)
    return part.takeError();
  RefTensor result = dropDims(*part, op.getDroppedDims());
  if (!agrees(result.shape(), op.getType().getShape()))
    return error("the slice has shape " + showShape(result.shape()) +
                 "; expected " + showShape(op.getType().getShape()));
  return std::optional(result);
}

Result TensorOpEvaluator::insertSlice(tensor::InsertSliceOp op) {
  auto result = session.copy(get(op.getDest()), location);
  if (!result)
    return result.takeError();
  auto part = slice(*result, numbers(op.getMixedOffsets()),
                    numbers(op.getMixedSizes()), numbers(op.getMixedStrides()));
  if (!part)
    return part.takeError();
  RefTensor target = dropDims(*part, op.getDroppedDims());
  const RefTensor &source = get(op.getSource());
  if (source.shape() != target.shape())
    return error("an array of shape " + showShape(source.shape()) +
                 " is inserted into a slice of shape " +
                 showShape(target.shape()));
  copyInto(source, target);
  return std::optional(*result);
}

Result TensorOpEvaluator::concat(tensor::ConcatOp op) {
  unsigned dim = op.getDim();
  SmallVector<int64_t> shape(get(op.getInputs()[0]).shape());
  shape[dim] = 0;
  for (Value input : op.getInputs()) {
    SmallVector<int64_t> part(get(input).shape());
    shape[dim] += part[dim];
    part[dim] = shape[dim];
    if (ArrayRef<int64_t>(part) != ArrayRef<int64_t>(shape))
      return error("arrays of shapes " +
                   showShape(get(op.getInputs()[0]).shape()) + " and " +
                   showShape(get(input).shape()) +
                   " are joined along dimension " + llvm::Twine(dim));
  }
  auto result = session.make(get(op.getInputs()[0]).isFloat(), shape, location);
  if (!result)
    return result.takeError();
  int64_t done = 0;
  for (Value input : op.getInputs()) {
    const RefTensor &part = get(input);
    copyInto(part, result->view(part.shape(), result->strides(),
                                done * result->strides()[dim]));
    done += part.shape()[dim];
  }
  return std::optional(*result);
}

Result TensorOpEvaluator::pad(tensor::PadOp op) {
  const RefTensor &source = get(op.getSource());
  SmallVector<int64_t> low = numbers(op.getMixedLowPad()),
                       high = numbers(op.getMixedHighPad()), shape;
  int64_t start = 0;
  for (unsigned d = 0; d < source.rank(); ++d) {
    if (low[d] < 0 || high[d] < 0)
      return error("dimension " + llvm::Twine(d) + " is padded by " +
                   llvm::Twine(low[d]) + " and " + llvm::Twine(high[d]) +
                   "; expected 0 or more");
    if (low[d] > (int64_t(1) << 60) || high[d] > (int64_t(1) << 60))
      return error("dimension " + llvm::Twine(d) + " is padded too far");
    shape.push_back(low[d] + source.shape()[d] + high[d]);
  }
  auto result = session.make(source.isFloat(), shape, location);
  if (!result)
    return result.takeError();
  ScalarProgram program(session.isWide);
  ScalarCompiler compiler(program, session.options);
  compiler.outer = lookup;
  Block &body = op.getRegion().front();
  for (BlockArgument arg : body.getArguments())
    compiler.bind(arg, program.newRegister());
  for (Operation &inner : body.without_terminator())
    if (llvm::Error error = compiler.compile(inner))
      return std::move(error);
  auto value = compiler.registerOf(body.getTerminator()->getOperand(0), op);
  if (!value)
    return value.takeError();
  Lanes lanes(program);
  SmallVector<int64_t, 4> at(shape.size(), 0);
  if (result->numElements() != 0)
    do {
      for (auto [arg, subscript] : llvm::zip(body.getArguments(), at))
        lanes.of(arg.getArgNumber())->i = subscript;
      TrapState trap;
      if (!reference::run(program, lanes, 1, trap))
        return compiler.describe(trap);
      int64_t where = 0;
      for (unsigned d = 0; d < at.size(); ++d)
        where += at[d] * result->strides()[d];
      result->data()[where] = *lanes.of(*value);
    } while (nextSubscripts(at, shape));
  for (unsigned d = 0; d < source.rank(); ++d)
    start += low[d] * result->strides()[d];
  copyInto(source, result->view(source.shape(), result->strides(), start));
  return std::optional(*result);
}

Result TensorOpEvaluator::cast(Value source, ShapedType type) {
  const RefTensor &array = get(source);
  if (!agrees(array.shape(), type.getShape()))
    return error("an array of shape " + showShape(array.shape()) +
                 " is cast to " + showShape(type.getShape()));
  return std::optional(array);
}

Result TensorOpEvaluator::fromElements(tensor::FromElementsOp op) {
  auto result = session.make(isa<FloatType>(op.getType().getElementType()),
                             op.getType().getShape(), location);
  if (!result)
    return result.takeError();
  for (auto [p, element] : llvm::enumerate(op.getElements()))
    result->data()[p] = *get(element).data();
  return std::optional(*result);
}

Result reference::evaluateTensorOp(Operation &op, const Lookup &lookup,
                                   Session &session) {
  TensorOpEvaluator evaluate(lookup, session, op.getLoc());
  Builder builder(op.getContext());
  return llvm::TypeSwitch<Operation *, Result>(&op)
      .Case([&](tensor::EmptyOp op) { return evaluate.empty(op); })
      .Case([&](tensor::ExpandShapeOp op) {
        return evaluate.reshape(op.getSrc(), op.getResultType(),
                                op.getReassociationIndices(), true,
                                getMixedValues(op.getStaticOutputShape(),
                                               op.getOutputShape(), builder));
      })
      .Case([&](tensor::CollapseShapeOp op) {
        return evaluate.reshape(op.getSrc(), op.getResultType(),
                                op.getReassociationIndices(), false, {});
      })
      .Case(
          [&](tensor::ExtractSliceOp op) { return evaluate.extractSlice(op); })
      .Case([&](tensor::InsertSliceOp op) { return evaluate.insertSlice(op); })
      .Case([&](tensor::ConcatOp op) { return evaluate.concat(op); })
      .Case([&](tensor::PadOp op) { return evaluate.pad(op); })
      .Case([&](tensor::CastOp op) {
        return evaluate.cast(op.getSource(),
                             mlir::cast<ShapedType>(op.getType()));
      })
      .Case(
          [&](tensor::FromElementsOp op) { return evaluate.fromElements(op); })
      .Case([&](tensor::DimOp op) -> Result {
        const RefTensor &array = *lookup(op.getSource());
        int64_t dim = lookup(op.getIndex())->data()->i;
        if (dim < 0 || dim >= int64_t(array.rank()))
          return failAt(ExitCode::Model, op.getLoc(),
                        "asks for dimension " + llvm::Twine(dim) +
                            " of an array of rank " +
                            llvm::Twine(array.rank()));
        return std::optional(RefTensor::scalar(array.shape()[dim]));
      })
      .Case([&](linalg::FillOp op) -> Result {
        const RefTensor &value = *lookup(op.getInputs()[0]);
        return std::optional(splat(*value.data(), value.isFloat(),
                                   lookup(op.getOutputs()[0])->shape(),
                                   session));
      })
      .Default(
          [](Operation *) -> Result { return std::optional<RefTensor>(); });
}
