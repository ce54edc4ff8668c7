// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "GraphBuilder.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace refold::onnx;

//===- Body ===//

Value Body::real(Type type, double value) {
  APFloat number(value);
  bool losesInfo;
  number.convert(cast<FloatType>(type).getFloatSemantics(),
                 APFloat::rmNearestTiesToEven, &losesInfo);
  return builder.create<arith::ConstantOp>(loc, FloatAttr::get(type, number));
}

Value Body::integer(Type type, int64_t value) {
  return builder.create<arith::ConstantOp>(loc, IntegerAttr::get(type, value));
}

Value Body::toCompute(Value value) {
  if (isa<FloatType>(value.getType()) &&
      value.getType().getIntOrFloatBitWidth() < 32)
    return builder.create<arith::ExtFOp>(loc, builder.getF32Type(), value);
  return value;
}

//===- Sizes ===//

GraphBuilder::GraphBuilder(func::FuncOp function, Extents &extents)
    : extents(extents), ops(OpBuilder::atBlockEnd(&function.getBody().front())),
      loc(function.getLoc()), functionLoc(function.getLoc()),
      block(&function.getBody().front()) {}

template <typename Op, typename... Args>
Op GraphBuilder::inPrologue(Args &&...args) {
  OpBuilder builder(block->getParentOp()->getContext());
  if (prologueEnd)
    builder.setInsertionPointAfter(prologueEnd);
  else
    builder.setInsertionPointToStart(block);
  Op op = builder.create<Op>(functionLoc, std::forward<Args>(args)...);
  prologueEnd = op;
  return op;
}

void GraphBuilder::defineSymbol(unsigned atom, Value argument,
                                unsigned dimension) {
  symbolHomes.try_emplace(atom, argument, dimension);
}

Value GraphBuilder::atomValue(unsigned number) {
  if (Value known = atomValues.lookup(number))
    return known;
  const Atom &atom = extents.atom(number);
  Value value;
  if (atom.kind == Atom::Symbol) {
    auto [argument, dimension] = symbolHomes.lookup(number);
    assert(argument && "every symbol is read from an argument");
    Value which = inPrologue<arith::ConstantIndexOp>(int64_t(dimension));
    value = inPrologue<tensor::DimOp>(argument, which);
  } else {
    Value lhs = index(atom.lhs), rhs = index(atom.rhs);
    if (atom.kind == Atom::FloorDiv)
      value = inPrologue<arith::FloorDivSIOp>(lhs, rhs);
    else if (atom.kind == Atom::Min)
      value = inPrologue<arith::MinSIOp>(lhs, rhs);
    else
      value = inPrologue<arith::MaxSIOp>(lhs, rhs);
  }
  return atomValues[number] = value;
}

Value GraphBuilder::index(const Extent &extent) {
  for (auto &[known, value] : indexValues)
    if (known == extent)
      return value;
  Value sum;
  if (extent.terms.empty())
    sum = inPrologue<arith::ConstantIndexOp>(0);
  for (const Extent::Term &term : extent.terms) {
    Value product;
    if (term.coefficient != 1 || term.atoms.empty())
      product = inPrologue<arith::ConstantIndexOp>(term.coefficient);
    for (unsigned number : term.atoms) {
      Value factor = atomValue(number);
      product = product ? inPrologue<arith::MulIOp>(product, factor) : factor;
    }
    sum = sum ? inPrologue<arith::AddIOp>(sum, product) : product;
  }
  indexValues.emplace_back(extent, sum);
  return sum;
}

OpFoldResult GraphBuilder::indexOrAttr(const Extent &extent) {
  if (std::optional<int64_t> value = extent.constant())
    return ops.getIndexAttr(*value);
  return index(extent);
}

RankedTensorType GraphBuilder::typeOf(ArrayRef<Extent> shape, Type element) {
  SmallVector<int64_t> sizes;
  // A negative one overflowed: the node's results are about to be refused.
  for (const Extent &extent : shape) {
    int64_t size = extent.constant().value_or(ShapedType::kDynamic);
    sizes.push_back(size < 0 ? ShapedType::kDynamic : size);
  }
  return RankedTensorType::get(sizes, element);
}

Value GraphBuilder::empty(ArrayRef<Extent> shape, Type element) {
  SmallVector<OpFoldResult> sizes;
  for (const Extent &extent : shape)
    sizes.push_back(indexOrAttr(extent));
  return ops.create<tensor::EmptyOp>(loc, sizes, element);
}

LogicalResult GraphBuilder::requireEqual(const Extent &a, const Extent &b) {
  if (extents.areEqual(a, b))
    return success();
  if (extents.areUnequal(a, b))
    return failure();
  Value holds = ops.create<arith::CmpIOp>(loc, arith::CmpIPredicate::eq,
                                          index(a), index(b));
  ops.create<cf::AssertOp>(loc, holds,
                           "node '" + nodeName + "': " + extents.toString(a) +
                               " and " + extents.toString(b) +
                               " differ; expected equal extents");
  extents.assume(a, b);
  return success();
}

LogicalResult GraphBuilder::requireAtMost(const Extent &a, const Extent &b,
                                          StringRef what, StringRef most) {
  if (extents.isAtMost(a, b))
    return success();
  if (extents.isAtMost(extents.add(b, 1), a))
    return failure();
  Value holds = ops.create<arith::CmpIOp>(loc, arith::CmpIPredicate::sle,
                                          index(a), index(b));
  ops.create<cf::AssertOp>(loc, holds,
                           "node '" + nodeName + "': " + what.str() + " is " +
                               extents.toString(a) + "; expected at most " +
                               extents.toString(b) +
                               (most.empty() ? "" : ", " + most.str()));
  return success();
}

void GraphBuilder::requireTrue(Value condition, const Twine &message) {
  Value holds = ops.create<tensor::ExtractOp>(loc, condition, ValueRange());
  ops.create<cf::AssertOp>(loc, holds,
                           "node '" + nodeName + "': " + message.str());
}

//===- Values ===//

Tensor GraphBuilder::tensorOf(Value value, ElementType type,
                              ArrayRef<Extent> shape) {
  Tensor result;
  result.type = type;
  result.shape.assign(shape.begin(), shape.end());
  setBase(result, value);
  return result;
}

void GraphBuilder::setBase(Tensor &tensor, Value value) {
  tensor.base = value;
  tensor.baseShape = tensor.shape;
  tensor.dims.clear();
  for (unsigned k = 0; k < tensor.rank(); ++k)
    tensor.dims.push_back({k});
}

Tensor GraphBuilder::scalarTensor(ElementType type, Scalar value) {
  return knownTensor(type, {}, {std::move(value)});
}

Tensor GraphBuilder::knownTensor(ElementType type, ArrayRef<Extent> shape,
                                 std::vector<Scalar> known) {
  Tensor result;
  result.type = type;
  result.shape.assign(shape.begin(), shape.end());
  result.known = std::move(known);
  result.isTracked = true;
  return result;
}

Value GraphBuilder::constantValue(TypedAttr attribute, LocationAttr origin) {
  Value &value = constantValues[attribute];
  if (!value)
    value = inPrologue<arith::ConstantOp>(attribute);
  if (origin)
    value.setLoc(Location(origin));
  return value;
}

/// The elements as an attribute if none depends on a size.
static ElementsAttr toAttribute(RankedTensorType type, ArrayRef<Scalar> known) {
  SmallVector<Attribute> values;
  Type element = type.getElementType();
  for (const Scalar &scalar : known) {
    if (auto floatType = dyn_cast<FloatType>(element)) {
      APFloat number(*scalar.real);
      bool losesInfo;
      number.convert(floatType.getFloatSemantics(),
                     APFloat::rmNearestTiesToEven, &losesInfo);
      values.push_back(FloatAttr::get(element, number));
      continue;
    }
    std::optional<int64_t> number = scalar.integer->constant();
    if (!number)
      return nullptr;
    unsigned width = element.getIntOrFloatBitWidth();
    values.push_back(IntegerAttr::get(
        element, APInt(64, uint64_t(*number)).sextOrTrunc(width)));
  }
  return DenseElementsAttr::get(type, values);
}

/// Σ coefficient * subscript + offset, as an index.
static Value affineIn(GraphBuilder &graph, Body &body, const Affine &affine,
                      ValueRange subscripts) {
  Type indexType = body.builder.getIndexType();
  Value sum;
  for (auto [coefficient, subscript] :
       llvm::zip_equal(affine.coefficients, subscripts)) {
    if (coefficient.is(0))
      continue;
    Value term = subscript;
    if (!coefficient.is(1))
      term = body.make<arith::MulIOp>(
          term, graph.extentIn(body, coefficient, indexType));
    sum = sum ? body.make<arith::AddIOp>(sum, term) : term;
  }
  if (sum && affine.offset.is(0))
    return sum;
  Value offset = graph.extentIn(body, affine.offset, indexType);
  return sum ? body.make<arith::AddIOp>(sum, offset) : offset;
}

static Value castIndex(Body &body, Value value, Type type) {
  if (type.isInteger(1))
    return body.make<arith::CmpIOp>(
        arith::CmpIPredicate::ne, value,
        body.integer(body.builder.getIndexType(), 0));
  return body.make<arith::IndexCastOp>(type, value);
}

void GraphBuilder::build(Tensor &tensor) {
  if (tensor.base)
    return;
  Type element = storageType(ops, tensor.type);
  RankedTensorType type = typeOf(tensor.shape, element);
  if (!tensor.constant && tensor.isKnown()) {
    if (type.hasStaticShape())
      tensor.constant = toAttribute(type, tensor.known);
    else if (auto one = toAttribute(RankedTensorType::get({}, element),
                                    tensor.known)) {
      Value start = constantValue(one.getValues<TypedAttr>()[0]);
      Value init = empty(tensor.shape, element);
      setBase(tensor,
              ops.create<linalg::FillOp>(loc, start, init).getResult(0));
      return;
    }
  }
  if (tensor.constant) {
    setBase(tensor,
            constantValue(cast<TypedAttr>(tensor.constant), tensor.origin));
    return;
  }
  bool isElementByElement = tensor.isKnown();
  assert((isElementByElement || tensor.form) && "nothing to build it from");
  Tensor built =
      generate(tensor.shape, tensor.type, element,
               [&](Body &body, ValueRange at) -> Value {
                 if (isElementByElement)
                   return pickKnown(body, tensor, at, element);
                 ArrayRef<Affine> parts = tensor.form->parts;
                 Value value = affineIn(*this, body, parts.front(), at);
                 for (unsigned part = 1; part < parts.size(); ++part) {
                   Value isHere = body.make<arith::CmpIOp>(
                       arith::CmpIPredicate::eq, at.back(),
                       body.integer(body.builder.getIndexType(), part));
                   value = body.make<arith::SelectOp>(
                       isHere, affineIn(*this, body, parts[part], at), value);
                 }
                 return castIndex(body, value, element);
               });
  setBase(tensor, built.base);
}

/// A chain of selections over the row-major position: the elements are few.
Value GraphBuilder::pickKnown(Body &body, const Tensor &tensor, ValueRange at,
                              Type element) {
  Type indexType = body.builder.getIndexType();
  auto valueAt = [&](size_t place) -> Value {
    const Scalar &scalar = tensor.known[place];
    if (scalar.real)
      return body.real(element, *scalar.real);
    return extentIn(body, *scalar.integer, element);
  };
  if (tensor.known.empty())
    return isa<FloatType>(element) ? body.real(element, 0)
                                   : body.integer(element, 0);
  if (tensor.known.size() == 1)
    return valueAt(0);
  Value position = body.integer(indexType, 0);
  for (auto [extent, subscript] : llvm::zip_equal(tensor.shape, at)) {
    Value scaled = body.make<arith::MulIOp>(
        position, body.integer(indexType, *extent.constant()));
    position = body.make<arith::AddIOp>(scaled, subscript);
  }
  Value value = valueAt(0);
  for (size_t place = 1; place < tensor.known.size(); ++place) {
    Value isHere =
        body.make<arith::CmpIOp>(arith::CmpIPredicate::eq, position,
                                 body.integer(indexType, int64_t(place)));
    value = body.make<arith::SelectOp>(isHere, valueAt(place), value);
  }
  return value;
}

Value GraphBuilder::extentIn(Body &body, const Extent &extent, Type type) {
  if (std::optional<int64_t> value = extent.constant())
    return isa<FloatType>(type) ? body.real(type, double(*value))
                                : body.integer(type, *value);
  Value size = index(extent);
  if (type.isIndex())
    return size;
  if (!isa<FloatType>(type))
    return castIndex(body, size, type);
  Value wide = body.make<arith::IndexCastOp>(body.builder.getI64Type(), size);
  return body.make<arith::SIToFPOp>(type, wide);
}

Value GraphBuilder::subscriptIn(Body &body, ArrayRef<Extent> shape,
                                unsigned k) {
  if (shape[k].is(1))
    return body.integer(body.builder.getIndexType(), 0);
  return body.make<linalg::IndexOp>(
      int64_t(llvm::find(loopOrder, k) - loopOrder.begin()));
}

//===- Computation ===//

FailureOr<Shape> GraphBuilder::broadcast(ArrayRef<Tensor *> tensors) {
  unsigned rank = 0;
  for (Tensor *tensor : tensors)
    rank = std::max(rank, tensor->rank());
  Shape result(rank, Extent(1));
  for (Tensor *tensor : tensors)
    for (unsigned k = 0; k < tensor->rank(); ++k) {
      const Extent &extent = tensor->shape[k];
      Extent &common = result[rank - tensor->rank() + k];
      if (extent.is(1))
        continue;
      if (common.is(1)) {
        common = extent;
        continue;
      }
      if (failed(requireEqual(common, extent)))
        return failure();
      if (extent.constant() || extent.terms.size() == 1)
        common = common.constant() ? common : simpler(common, extent);
    }
  return result;
}

/// Of two equal extents the one to go on with: a number, else a plain symbol.
Extent GraphBuilder::simpler(const Extent &a, const Extent &b) {
  auto rank = [&](const Extent &e) {
    if (e.constant())
      return 0;
    bool isPlain = e.terms.size() == 1 && e.terms.front().atoms.size() == 1;
    return isPlain && extents.atom(e.terms.front().atoms.front()).kind ==
                          Atom::Symbol
               ? 1
               : 2;
  };
  return rank(b) < rank(a) ? b : a;
}

Tensor GraphBuilder::elementwise(ArrayRef<Tensor *> inputs,
                                 ArrayRef<Extent> shape, ElementType type,
                                 ElementFn fn) {
  return elementwise(inputs, shape, type, computeType(ops, type), fn);
}

SmallVector<unsigned> GraphBuilder::orderInMemory(ArrayRef<Tensor *> inputs,
                                                  ArrayRef<Extent> shape) {
  SmallVector<unsigned> own, common;
  for (unsigned k = 0; k < shape.size(); ++k)
    if (!shape[k].is(1))
      own.push_back(k);
  for (Tensor *input : inputs) {
    if (input->rank() != shape.size() || !input->base || input->constant ||
        !llvm::equal(input->shape, shape))
      continue;
    SmallVector<std::pair<unsigned, unsigned>> places; // in memory, in the view
    for (unsigned k : own)
      for (unsigned dimension : input->dims[k])
        if (!input->baseShape[dimension].is(1))
          places.push_back({dimension, k});
    if (places.size() != own.size())
      return own;
    llvm::sort(places);
    SmallVector<unsigned> order;
    for (auto [dimension, k] : places)
      order.push_back(k);
    if (SmallVector<unsigned> sorted(order);
        (llvm::sort(sorted), sorted != own) ||
        (!common.empty() && common != order))
      return own;
    common = order;
  }
  return common.empty() ? own : common;
}

Tensor GraphBuilder::elementwise(ArrayRef<Tensor *> inputs,
                                 ArrayRef<Extent> shape, ElementType type,
                                 Type element, ElementFn fn) {
  // A dimension of extent 1 is no loop but part of the result's view: readers
  // need no map for it.
  Shape loops;
  SmallVector<AffineExpr, 4> exprOf(shape.size(), ops.getAffineConstantExpr(0));
  SmallVector<SmallVector<unsigned, 1>, 4> dims(shape.size());
  loopOrder = orderInMemory(inputs, shape);
  for (unsigned k : loopOrder) {
    exprOf[k] = ops.getAffineDimExpr(loops.size());
    dims[k].push_back(loops.size());
    loops.push_back(shape[k]);
  }
  unsigned rank = loops.size();
  SmallVector<Value> operands;
  SmallVector<AffineMap> maps;
  SmallVector<int> places; // of each input among the operands; -1: a literal
  for (Tensor *input : inputs) {
    if (input->splat()) {
      places.push_back(-1);
      continue;
    }
    places.push_back(operands.size());
    Access read = access(*input, ArrayRef(exprOf).take_back(input->rank()));
    operands.push_back(read.operand);
    maps.push_back(AffineMap::get(rank, 0, read.exprs, ops.getContext()));
  }
  Value init = empty(loops, element);
  maps.push_back(ops.getMultiDimIdentityMap(rank));
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = ops.create<linalg::GenericOp>(
      loc, init.getType(), operands, init, maps, iterators,
      [&](OpBuilder &builder, Location bodyLoc, ValueRange args) {
        Body body{builder, bodyLoc};
        Value value = fn(body, bodyInputs(body, inputs, places, args));
        builder.create<linalg::YieldOp>(bodyLoc, value);
      });
  Tensor result = tensorOf(generic.getResult(0), type, loops);
  result.shape.assign(shape.begin(), shape.end());
  result.dims = dims;
  return result;
}

SmallVector<Value> GraphBuilder::bodyInputs(Body &body,
                                            ArrayRef<Tensor *> inputs,
                                            ArrayRef<int> places,
                                            ValueRange args) {
  SmallVector<Value> values;
  for (auto [input, place] : llvm::zip_equal(inputs, places)) {
    if (place >= 0) {
      values.push_back(body.toCompute(args[place]));
      continue;
    }
    const Scalar &scalar = *input->splat();
    Type type = computeType(ops, input->type);
    values.push_back(scalar.real ? body.real(type, *scalar.real)
                                 : extentIn(body, *scalar.integer, type));
  }
  return values;
}

Tensor GraphBuilder::generate(ArrayRef<Extent> shape, ElementType type,
                              Type element, ElementFn fn) {
  Value init = empty(shape, element);
  unsigned rank = shape.size();
  SmallVector<AffineMap> maps{ops.getMultiDimIdentityMap(rank)};
  SmallVector<utils::IteratorType> iterators(rank,
                                             utils::IteratorType::parallel);
  auto generic = ops.create<linalg::GenericOp>(
      loc, init.getType(), ValueRange(), init, maps, iterators,
      [&](OpBuilder &builder, Location bodyLoc, ValueRange) {
        Body body{builder, bodyLoc};
        SmallVector<Value> at;
        for (unsigned k = 0; k < rank; ++k)
          at.push_back(builder.create<linalg::IndexOp>(bodyLoc, k));
        builder.create<linalg::YieldOp>(bodyLoc, fn(body, at));
      });
  return tensorOf(generic.getResult(0), type, shape);
}

/// The value that changes nothing when combined.
static TypedAttr identityOf(Combiner combiner, Type type, bool isSigned) {
  if (auto floatType = dyn_cast<FloatType>(type)) {
    const llvm::fltSemantics &semantics = floatType.getFloatSemantics();
    switch (combiner) {
    case Combiner::Mul:
      return FloatAttr::get(type, 1.0);
    case Combiner::MaxSticky:
      return FloatAttr::get(type,
                            APFloat::getInf(semantics, /*Negative=*/true));
    case Combiner::MinSticky:
      return FloatAttr::get(type, APFloat::getInf(semantics));
    default:
      return FloatAttr::get(type, 0.0);
    }
  }
  unsigned width = type.getIntOrFloatBitWidth();
  switch (combiner) {
  case Combiner::Mul:
    return IntegerAttr::get(type, 1);
  case Combiner::MaxSticky:
    return IntegerAttr::get(type, isSigned ? APInt::getSignedMinValue(width)
                                           : APInt::getMinValue(width));
  case Combiner::MinSticky:
    return IntegerAttr::get(type, isSigned ? APInt::getSignedMaxValue(width)
                                           : APInt::getMaxValue(width));
  case Combiner::And:
    return IntegerAttr::get(type, APInt::getAllOnes(width));
  case Combiner::Add:
  case Combiner::Or:
    break;
  }
  return IntegerAttr::get(type, 0);
}

static Value combine(Body &body, Combiner combiner, Value a, Value b,
                     bool isSigned) {
  bool isReal = isa<FloatType>(a.getType());
  switch (combiner) {
  case Combiner::Add:
    return isReal ? body.make<arith::AddFOp>(a, b)
                  : body.make<arith::AddIOp>(a, b);
  case Combiner::Mul:
    return isReal ? body.make<arith::MulFOp>(a, b)
                  : body.make<arith::MulIOp>(a, b);
  case Combiner::MaxSticky:
    if (isReal)
      return body.make<arith::MaximumFOp>(a, b);
    return isSigned ? body.make<arith::MaxSIOp>(a, b)
                    : body.make<arith::MaxUIOp>(a, b);
  case Combiner::MinSticky:
    if (isReal)
      return body.make<arith::MinimumFOp>(a, b);
    return isSigned ? body.make<arith::MinSIOp>(a, b)
                    : body.make<arith::MinUIOp>(a, b);
  case Combiner::And:
    return body.make<arith::AndIOp>(a, b);
  case Combiner::Or:
    return body.make<arith::OrIOp>(a, b);
  }
  llvm_unreachable("every combiner is handled");
}

Tensor GraphBuilder::reduce(ArrayRef<Tensor *> inputs, ArrayRef<Extent> shape,
                            ArrayRef<bool> isReduced, bool keepDims,
                            Combiner combiner, ElementType type, ElementFn fn) {
  SmallVector<Subscripted> read;
  for (Tensor *input : inputs) {
    Subscripted &each = read.emplace_back();
    each.tensor = input;
    unsigned first = shape.size() - input->rank();
    for (unsigned k = 0; k < input->rank(); ++k)
      each.at.push_back(input->shape[k].is(1)
                            ? ops.getAffineConstantExpr(0)
                            : ops.getAffineDimExpr(first + k));
  }
  return reduceAt(read, shape, isReduced, keepDims, combiner, type, fn);
}

Tensor GraphBuilder::reduceAt(ArrayRef<Subscripted> inputs,
                              ArrayRef<Extent> shape, ArrayRef<bool> isReduced,
                              bool keepDims, Combiner combiner,
                              ElementType type, ElementFn fn) {
  // A reduced dimension of extent 1 is no loop: views need not have it.
  unsigned numLoops = 0;
  SmallVector<int> loopOf(shape.size(), -1);
  SmallVector<AffineExpr> resultExprs;
  SmallVector<utils::IteratorType> iterators;
  Shape resultShape, keptShape;
  SmallVector<SmallVector<unsigned, 1>, 4> keptDims;
  bool hasReduction = false;
  for (unsigned k = 0; k < shape.size(); ++k) {
    bool isLoop = !isReduced[k] || !shape[k].is(1);
    if (isLoop) {
      loopOf[k] = numLoops++;
      iterators.push_back(isReduced[k] ? utils::IteratorType::reduction
                                       : utils::IteratorType::parallel);
    }
    hasReduction |= isReduced[k] && isLoop;
    if (isReduced[k]) {
      if (keepDims) {
        keptShape.push_back(1);
        keptDims.emplace_back();
      }
      continue;
    }
    resultExprs.push_back(ops.getAffineDimExpr(loopOf[k]));
    keptDims.push_back({unsigned(resultShape.size())});
    resultShape.push_back(shape[k]);
    keptShape.push_back(shape[k]);
  }

  SmallVector<Value> operands;
  SmallVector<AffineMap> maps;
  SmallVector<int> places;
  SmallVector<AffineExpr> exprOf;
  for (int loop : loopOf)
    exprOf.push_back(loop < 0 ? ops.getAffineConstantExpr(0)
                              : ops.getAffineDimExpr(loop));
  SmallVector<Tensor *> tensors;
  for (const Subscripted &input : inputs) {
    tensors.push_back(input.tensor);
    if (hasReduction)
      repeatInMemory(*input.tensor);
    SmallVector<AffineExpr, 4> at;
    for (AffineExpr expr : input.at)
      at.push_back(expr.replaceDims(exprOf));
    Access read = access(*input.tensor, at);
    places.push_back(operands.size());
    operands.push_back(read.operand);
    maps.push_back(AffineMap::get(numLoops, 0, read.exprs, ops.getContext()));
  }

  Type element = computeType(ops, type);
  bool isSigned = type != ElementType::U8;
  Value init = empty(resultShape, element);
  if (hasReduction) {
    TypedAttr identity = identityOf(combiner, element, isSigned);
    Value start = constantValue(identity);
    init = ops.create<linalg::FillOp>(loc, start, init).getResult(0);
  }
  maps.push_back(AffineMap::get(numLoops, 0, resultExprs, ops.getContext()));
  auto generic = ops.create<linalg::GenericOp>(
      loc, init.getType(), operands, init, maps, iterators,
      [&](OpBuilder &builder, Location bodyLoc, ValueRange args) {
        Body body{builder, bodyLoc};
        Value value = fn(body, bodyInputs(body, tensors, places, args));
        if (hasReduction)
          value = combine(body, combiner, args.back(), value, isSigned);
        builder.create<linalg::YieldOp>(bodyLoc, value);
      });
  Tensor result = tensorOf(generic.getResult(0), type, resultShape);
  result.shape = keptShape;
  result.dims = keptDims;
  return result;
}

Tensor GraphBuilder::pad(Tensor &tensor, ArrayRef<Extent> low,
                         ArrayRef<Extent> high, TypedAttr value) {
  build(tensor);
  // What the view is of is padded where that says the same, in its own order.
  auto isOne = [&](unsigned k) { return tensor.dims[k].size() == 1; };
  for (unsigned k = 0; k < tensor.rank(); ++k)
    if (!isOne(k) && !(low[k].is(0) && high[k].is(0) && tensor.shape[k].is(1)))
      valueOf(tensor);
  Shape shape = tensor.baseShape;
  SmallVector<OpFoldResult> before(shape.size(), ops.getIndexAttr(0));
  SmallVector<OpFoldResult> after(before);
  Tensor padded;
  padded.type = tensor.type;
  padded.shape = tensor.shape;
  padded.dims = tensor.dims;
  for (unsigned k = 0; k < tensor.rank(); ++k) {
    if (!isOne(k))
      continue;
    unsigned dimension = tensor.dims[k].front();
    padded.shape[k] =
        extents.add(tensor.shape[k], extents.add(low[k], high[k]));
    shape[dimension] = padded.shape[k];
    before[dimension] = indexOrAttr(low[k]);
    after[dimension] = indexOrAttr(high[k]);
  }
  Value filler = ops.create<arith::ConstantOp>(loc, value);
  Type element = cast<RankedTensorType>(tensor.base.getType()).getElementType();
  padded.baseShape = shape;
  padded.base = ops.create<tensor::PadOp>(loc, typeOf(shape, element),
                                          tensor.base, before, after, filler);
  return padded;
}

Tensor GraphBuilder::inOrder(Tensor &tensor) {
  Value value = valueOf(tensor);
  return tensorOf(value, tensor.type, tensor.shape);
}

void GraphBuilder::dropUnits(Tensor &tensor) {
  build(tensor);
  Shape shape;
  SmallVector<unsigned> numberOf;
  for (const Extent &extent : tensor.baseShape) {
    numberOf.push_back(shape.size());
    if (!extent.is(1))
      shape.push_back(extent);
  }
  if (shape.size() == tensor.baseShape.size())
    return;
  FailureOr<Value> smaller = reshapeValue(tensor.base, tensor.baseShape, shape);
  if (failed(smaller))
    return;
  for (auto &list : tensor.dims) {
    SmallVector<unsigned, 1> kept;
    for (unsigned dimension : list)
      if (!tensor.baseShape[dimension].is(1))
        kept.push_back(numberOf[dimension]);
    list = kept;
  }
  tensor.base = *smaller;
  tensor.baseShape = shape;
}
