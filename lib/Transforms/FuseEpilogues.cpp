// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Matrix products as cascades without a stream: constant weights are laid out
// once, others while they are multiplied, and what is done to every element of
// the result (bias, activation, gate, residual) is done while it is in
// registers.
#include "refold/Analysis/Kernels.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Transforms/FuseCascades.h"
#include "refold/Transforms/Passes.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace refold;

/// Fewer columns than a register tile has lanes leave most of them idle.
static constexpr int64_t kLeastColumns = 32;

/// Whether the tensor is a constant, or a view of one.
static bool isConstant(Value tensor) {
  Value root = viewRoot(tensor);
  return root.getDefiningOp<arith::ConstantOp>() != nullptr;
}

static bool isZeroFill(Value init) {
  auto fill = init.getDefiningOp<linalg::FillOp>();
  return fill && fill.getOutputs()[0].getDefiningOp<tensor::EmptyOp>() &&
         (matchPattern(fill.getInputs()[0], m_AnyZeroFloat()) ||
          matchPattern(fill.getInputs()[0], m_Zero()));
}

/// The side of a product along whose own loops the result is dense: its lanes.
/// Nothing where the last loop of the result is no loop of one side alone.
static std::optional<unsigned> sideOfColumns(linalg::GenericOp product) {
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  if (isWindowProduct(product))
    return 1;
  if (!maps[2].getNumResults())
    return std::nullopt;
  unsigned column =
      cast<AffineDimExpr>(maps[2].getResults().back()).getPosition();
  for (unsigned side : {0u, 1u})
    if (maps[side].isFunctionOfDim(column) &&
        !maps[1 - side].isFunctionOfDim(column))
      return side;
  return std::nullopt;
}

/// Sums of f32, and of products of bytes.
static bool hasWantedTypes(linalg::GenericOp product) {
  Type sum = getElementTypeOrSelf(product.getResult(0).getType());
  if (sum.isF32())
    return true;
  return sum.isInteger(32) && llvm::all_of(product.getDpsInputs(), [](Value v) {
           return getElementTypeOrSelf(v.getType()).isInteger(8);
         });
}

/// Whether every element of the result is made of the same matrix on `side`.
static bool isShared(linalg::GenericOp product, unsigned side) {
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  return llvm::none_of(maps[2].getResults(), [&](AffineExpr e) {
    unsigned loop = cast<AffineDimExpr>(e).getPosition();
    return maps[side].isFunctionOfDim(loop) &&
           maps[1 - side].isFunctionOfDim(loop);
  });
}

/// A GPU has kernels for products of floats of 8 bits together with what is
/// done to them; sums of rows by columns.
static bool isWantedOnGpu(linalg::GenericOp product) {
  return isProduct(product) && !isWindowProduct(product) &&
         isZeroFill(product.getDpsInits()[0]) && sideOfColumns(product) &&
         isShared(product, *sideOfColumns(product)) &&
         getElementTypeOrSelf(product.getResult(0).getType()).isF32() &&
         llvm::all_of(product.getDpsInputs(), [](Value side) {
           Type type = getElementTypeOrSelf(side.getType());
           return type.isFloat8E4M3FN() || type.isFloat8E5M2();
         });
}

/// Windows are computed here whatever they are made of; of matrix products
/// those whose columns are made of one matrix, or of constants.
static bool isWanted(linalg::GenericOp product) {
  if (!isProduct(product) || !isZeroFill(product.getDpsInits()[0]))
    return false;
  if (isWindowProduct(product))
    return true;
  auto type = cast<RankedTensorType>(product.getResult(0).getType());
  std::optional<unsigned> side = sideOfColumns(product);
  if (!side || !hasWantedTypes(product) ||
      (!type.isDynamicDim(type.getRank() - 1) &&
       type.getShape().back() < kLeastColumns))
    return false;
  return (isConstant(product.getDpsInputs()[*side]) ||
          isShared(product, *side)) &&
         !isConstant(product.getDpsInputs()[1 - *side]);
}

namespace {
/// The indices of a cascade and the operands that it will have.
struct Draft {
  SmallVector<Attribute> indexNames, argNames;
  SmallVector<int32_t> roles;
  SmallVector<int64_t> extents, sizes; ///< two numbers an index
  SmallVector<Value> inputs, outputs;

  CascadeOp create(OpBuilder &b, Location loc) const;
  unsigned numIndices() const { return roles.size(); }
};
} // namespace

/// The op with its block arguments, and nothing in its block.
CascadeOp Draft::create(OpBuilder &b, Location loc) const {
  SmallVector<Type> results;
  for (Value output : outputs)
    results.push_back(output.getType());
  bool areAllKnown = llvm::all_of(sizes, [](int64_t s) { return s < 0; });
  auto op = b.create<CascadeOp>(
      loc, results, inputs, outputs, b.getArrayAttr(indexNames),
      b.getDenseI32ArrayAttr(roles), b.getDenseI64ArrayAttr(extents),
      b.getArrayAttr(argNames), DictionaryAttr(),
      areAllKnown ? DenseI64ArrayAttr() : b.getDenseI64ArrayAttr(sizes));
  Block &body = op.getBody().emplaceBlock();
  for (size_t i = 0; i < roles.size(); ++i)
    body.addArgument(b.getIndexType(), loc);
  for (Value operand : op->getOperands()) {
    Type type = operand.getType();
    if (auto shaped = dyn_cast<ShapedType>(type))
      type = ArgType::get(b.getContext(), shaped.getElementType());
    body.addArgument(type, loc);
  }
  return op;
}

/// A name that neither an index nor an operand has.
static StringAttr freshName(OpBuilder &b, const Draft &draft,
                            StringRef wanted) {
  std::string name = wanted.str();
  auto isTaken = [&](StringAttr text) {
    return llvm::is_contained(draft.indexNames, text) ||
           llvm::is_contained(draft.argNames, text);
  };
  for (unsigned k = 2; isTaken(b.getStringAttr(name)); ++k)
    name = (wanted + "_" + Twine(k)).str();
  return b.getStringAttr(name);
}

/// A cascade that reads the product and writes it: an epilogue that does
/// nothing.
static CascadeOp makeCopy(OpBuilder &b, linalg::GenericOp product) {
  Value result = product.getResult(0);
  auto type = cast<RankedTensorType>(result.getType());
  Location loc = product.getLoc();
  Draft draft;
  draft.inputs = {result};
  draft.outputs = {
      product.getDpsInits()[0].getDefiningOp<linalg::FillOp>().getOutputs()[0]};
  draft.argNames = {b.getStringAttr("product"), b.getStringAttr("result")};
  SmallVector<Value> indices;
  for (auto [dim, extent] : llvm::enumerate(type.getShape())) {
    draft.indexNames.push_back(freshName(b, draft, "m"));
    draft.roles.push_back(CascadeOp::Row);
    draft.extents.push_back(extent);
    bool isOpen = ShapedType::isDynamic(extent);
    draft.sizes.append({isOpen ? 1 : -1, isOpen ? int64_t(dim) : -1});
  }
  CascadeOp copy = draft.create(b, loc);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(copy.bodyBlock());
  auto arguments = copy.bodyBlock()->getArguments();
  ValueRange all = arguments.take_front(type.getRank());
  auto map =
      AffineMapAttr::get(b.getMultiDimIdentityMap(unsigned(type.getRank())));
  Value element = b.create<ReadOp>(loc, type.getElementType(),
                                   arguments[type.getRank()], all, map);
  b.create<WriteOp>(loc, element, arguments[type.getRank() + 1], all, map);
  return copy;
}

//===----------------------------------------------------------------------===//
// One product, one epilogue
//===----------------------------------------------------------------------===//

namespace {
/// How the epilogue reads the product: the subscripts of its result in terms of
/// the epilogue's indices.
class Merger {
public:
  Merger(linalg::GenericOp product, CascadeOp epilogue, int64_t leastColumns)
      : product(product), epilogue(epilogue), leastColumns(leastColumns) {}
  /// Whether every element of the product is read once, where it is written.
  bool fits();
  CascadeOp merge(OpBuilder &b);

private:
  bool readsOnce();
  bool writesAlongColumns();
  std::pair<Value, int64_t> writtenAt(unsigned index);
  void placeSize(unsigned index, Draft &draft);
  Draft draftMerged(OpBuilder &b);
  Value readOperand(OpBuilder &b, CascadeOp op, unsigned side);
  void fillBody(OpBuilder &b, CascadeOp op);

  linalg::GenericOp product;
  CascadeOp epilogue;
  int64_t leastColumns;
  SmallVector<ReadOp> reads;      ///< of the product
  SmallVector<unsigned> order;    ///< the epilogue's index at each place
  SmallVector<int64_t> loopOfSum; ///< reduced loops, as inner indices
};
} // namespace

/// All reads have the same subscripts, of plain indices, and each index once.
bool Merger::readsOnce() {
  Block *body = epilogue.bodyBlock();
  for (ReadOp read : body->getOps<ReadOp>())
    if (epilogue.operandOf(read.getSource()) == product.getResult(0))
      reads.push_back(read);
  if (reads.empty())
    return false;
  ReadOp first = reads.front();
  SmallVector<unsigned> uses(epilogue.numIndices(), 0);
  for (auto [dim, index] : llvm::enumerate(first.getIndices())) {
    auto argument = dyn_cast<BlockArgument>(index);
    if (!argument || argument.getOwner() != body)
      return false;
    for (AffineExpr e : first.getMap().getResults())
      uses[argument.getArgNumber()] += e.isFunctionOfDim(dim);
  }
  for (auto [use, extent] : llvm::zip(uses, epilogue.getExtents()))
    if (use != 1 && (use || extent != 1))
      return false;
  return llvm::all_of(reads, [&](ReadOp read) {
    return read.getMap() == first.getMap() &&
           read.getIndices() == first.getIndices();
  });
}

/// The index that moves to the next column of the product moves to the next
/// element of every result.
bool Merger::writesAlongColumns() {
  ReadOp read = reads.front();
  AffineExpr last = read.getMap().getResults().back();
  if (auto sum = dyn_cast<AffineBinaryOpExpr>(last))
    if (sum.getKind() == AffineExprKind::Add)
      last = sum.getRHS();
  auto dim = dyn_cast<AffineDimExpr>(last);
  if (!dim)
    return false;
  Value column = read.getIndices()[dim.getPosition()];
  int64_t extent =
      epilogue.getExtents()[cast<BlockArgument>(column).getArgNumber()];
  if (!ShapedType::isDynamic(extent) && extent < leastColumns &&
      !isWindowProduct(product))
    return false;
  for (WriteOp write : epilogue.getBody().getOps<WriteOp>()) {
    if (!write.getMap().getNumResults())
      return false;
    auto dense = dyn_cast<AffineDimExpr>(write.getMap().getResults().back());
    if (!dense || write.getIndices()[dense.getPosition()] != column)
      return false;
    // An element is written once, by whoever computes it.
    if (write.getIndices().size() != read.getIndices().size())
      return false;
  }
  return true;
}

bool Merger::fits() {
  bool isElementwise = llvm::all_of(
      epilogue.getRoles(), [](int32_t role) { return role == CascadeOp::Row; });
  return isElementwise && !epilogue.getSchedule() && readsOnce() &&
         writesAlongColumns();
}

/// A result and the dimension of it that the index subscripts.
std::pair<Value, int64_t> Merger::writtenAt(unsigned index) {
  for (WriteOp write : epilogue.getBody().getOps<WriteOp>())
    for (auto [dim, e] : llvm::enumerate(write.getMap().getResults()))
      if (auto d = dyn_cast<AffineDimExpr>(e))
        if (write.getIndices()[d.getPosition()] ==
            epilogue.bodyBlock()->getArgument(index))
          return {epilogue.operandOf(write.getTarget()), int64_t(dim)};
  return {product.getResult(0), -1};
}

/// The extent of an index that the epilogue read off the product: it is that of
/// a dimension of an operand.
void Merger::placeSize(unsigned index, Draft &draft) {
  std::optional<CascadeOp::SizePlace> place = epilogue.sizeOf(index);
  if (!place)
    return void(draft.sizes.append({-1, -1}));
  Value operand = epilogue->getOperand(place->operand);
  int64_t dim = place->dim;
  if (operand == product.getResult(0)) {
    SmallVector<AffineMap> maps = product.getIndexingMapsArray();
    AffineExpr loop = maps[2].getResult(dim);
    // What windows slide along is an extent of no operand but a result.
    std::tie(operand, dim) = writtenAt(index);
    for (unsigned side : {0u, 1u})
      for (auto [d, e] : llvm::enumerate(maps[side].getResults()))
        if (e == loop) {
          operand = product.getDpsInputs()[side];
          dim = d;
        }
  }
  size_t number = llvm::find(draft.inputs, operand) - draft.inputs.begin();
  if (number == draft.inputs.size())
    number += llvm::find(draft.outputs, operand) - draft.outputs.begin();
  draft.sizes.append({int64_t(number), dim});
}

Draft Merger::draftMerged(OpBuilder &b) {
  Draft draft;
  auto add = [&](Value operand, Attribute name) {
    if (llvm::is_contained(draft.inputs, operand))
      return;
    draft.inputs.push_back(operand);
    draft.argNames.push_back(name);
  };
  // Every operand once: a residual may be the left side as well.
  ArrayRef<Attribute> names = epilogue.getArgNames().getValue();
  for (auto [input, name] : llvm::zip(epilogue.getInputs(), names))
    if (input != product.getResult(0))
      add(input, name);
  for (unsigned i : order)
    draft.indexNames.push_back(epilogue.getIndexNames()[i]);
  for (auto [side, wanted] : {std::pair(0u, "lhs"), std::pair(1u, "rhs")})
    add(product.getDpsInputs()[side], freshName(b, draft, wanted));
  draft.outputs.assign(epilogue.getOutputs().begin(),
                       epilogue.getOutputs().end());
  llvm::append_range(draft.argNames,
                     names.take_back(epilogue.getOutputs().size()));
  for (unsigned i : order) {
    draft.roles.push_back(CascadeOp::Row);
    draft.extents.push_back(epilogue.getExtents()[i]);
    placeSize(i, draft);
  }
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  for (auto [loop, kind] : llvm::enumerate(product.getIteratorTypesArray())) {
    if (kind != utils::IteratorType::reduction)
      continue;
    AffineExpr plain = getAffineDimExpr(unsigned(loop), b.getContext());
    unsigned side = maps[0].getResultPosition(plain) ? 0 : 1;
    Value operand = product.getDpsInputs()[side];
    int64_t dim = *maps[side].getResultPosition(plain);
    int64_t extent = cast<RankedTensorType>(operand.getType()).getDimSize(dim);
    bool isOpen = ShapedType::isDynamic(extent);
    draft.indexNames.push_back(freshName(b, draft, "k"));
    draft.roles.push_back(CascadeOp::Inner);
    draft.extents.push_back(extent);
    int64_t number = llvm::find(draft.inputs, operand) - draft.inputs.begin();
    draft.sizes.append({isOpen ? number : -1, isOpen ? dim : -1});
    loopOfSum.push_back(loop);
  }
  return draft;
}

/// The element of one side, at the epilogue's subscripts of the product.
Value Merger::readOperand(OpBuilder &b, CascadeOp op, unsigned side) {
  MLIRContext *context = b.getContext();
  SmallVector<AffineMap> maps = product.getIndexingMapsArray();
  ReadOp read = reads.front();
  SmallVector<AffineExpr> exprOf(product.getNumLoops());
  SmallVector<AffineExpr> places; // of the epilogue's indices, in the new op
  for (Value index : read.getIndices()) {
    unsigned number = cast<BlockArgument>(index).getArgNumber();
    places.push_back(getAffineDimExpr(
        unsigned(llvm::find(order, number) - order.begin()), context));
  }
  for (auto [e, loop] :
       llvm::zip(read.getMap().getResults(), maps[2].getResults()))
    exprOf[cast<AffineDimExpr>(loop).getPosition()] = e.replaceDims(places);
  for (auto [i, loop] : llvm::enumerate(loopOfSum))
    exprOf[loop] = getAffineDimExpr(unsigned(order.size() + i), context);
  SmallVector<AffineExpr> subscripts;
  for (AffineExpr e : maps[side].getResults())
    subscripts.push_back(e.replaceDims(exprOf));
  AffineMap map = AffineMap::get(op.numIndices(), 0, subscripts, context);
  SmallVector<Value> indices(
      op.bodyBlock()->getArguments().take_front(op.numIndices()));
  llvm::SmallBitVector unused = getUnusedDimsBitVector(map);
  for (unsigned d = op.numIndices(); d-- > 0;)
    if (unused[d])
      indices.erase(indices.begin() + d);
  map = compressDims(map, unused);
  Value operand = product.getDpsInputs()[side];
  unsigned number = llvm::find(op->getOperands(), operand).getIndex();
  return b.create<ReadOp>(product.getLoc(),
                          cast<ShapedType>(operand.getType()).getElementType(),
                          op.bodyBlock()->getArgument(op.numIndices() + number),
                          indices, AffineMapAttr::get(map));
}

void Merger::fillBody(OpBuilder &b, CascadeOp op) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(op.bodyBlock());
  Block *inner = product.getBody();
  IRMapping ofProduct;
  for (unsigned side : {0u, 1u})
    ofProduct.map(inner->getArgument(side), readOperand(b, op, side));
  // acc + term
  Operation *sum = inner->getTerminator()->getOperand(0).getDefiningOp();
  Value term = sum->getOperand(sum->getOperand(0) == inner->getArgument(2));
  for (Operation &each : inner->without_terminator())
    if (&each != sum)
      b.clone(each, ofProduct);
  auto arguments = op.bodyBlock()->getArguments();
  SmallVector<Value> over(arguments.slice(order.size(), loopOfSum.size()));
  Value element =
      b.create<ContractOp>(product.getLoc(), ofProduct.lookup(term), over);
  IRMapping ofEpilogue;
  Block *body = epilogue.bodyBlock();
  for (auto [place, index] : llvm::enumerate(order))
    ofEpilogue.map(body->getArgument(index), arguments[place]);
  for (auto [i, operand] : llvm::enumerate(epilogue->getOperands())) {
    if (operand == product.getResult(0))
      continue;
    unsigned number =
        i < epilogue.getInputs().size()
            ? llvm::find(op.getInputs(), operand).getIndex()
            : op.getInputs().size() + i - epilogue.getInputs().size();
    ofEpilogue.map(body->getArgument(epilogue.numIndices() + i),
                   arguments[op.numIndices() + number]);
  }
  for (ReadOp read : reads)
    ofEpilogue.map(read.getValue(), element);
  for (Operation &each : *body)
    if (!llvm::is_contained(reads, dyn_cast<ReadOp>(each)))
      b.clone(each, ofEpilogue);
}

CascadeOp Merger::merge(OpBuilder &b) {
  // Indices of the weights come first: they are bound outermost, and rows that
  // share a panel of the weights follow each other.
  AffineMap weights = product.getIndexingMapsArray()[*sideOfColumns(product)];
  AffineMap result = product.getIndexingMapsArray()[2];
  ReadOp read = reads.front();
  auto isOfWeights = [&](unsigned index) {
    for (auto [e, loop] :
         llvm::zip(read.getMap().getResults(), result.getResults()))
      for (auto [dim, value] : llvm::enumerate(read.getIndices()))
        if (cast<BlockArgument>(value).getArgNumber() == index &&
            e.isFunctionOfDim(dim))
          return weights.isFunctionOfDim(
              cast<AffineDimExpr>(loop).getPosition());
    return false;
  };
  for (bool ofWeights : {true, false})
    for (unsigned i = 0; i < epilogue.numIndices(); ++i)
      if (isOfWeights(i) == ofWeights)
        order.push_back(i);
  CascadeOp op = draftMerged(b).create(b, epilogue.getLoc());
  fillBody(b, op);
  return op;
}

//===----------------------------------------------------------------------===//
// Rows that run on evenly
//===----------------------------------------------------------------------===//

namespace {
/// Two row indices that are everywhere neighbouring subscripts become one:
/// batch and position are rows of one matrix.
class Flattener {
public:
  Flattener(CascadeOp op, unsigned i, unsigned j) : op(op), i(i), j(j) {}
  bool fits();
  CascadeOp flatten(OpBuilder &b);

private:
  bool addAccess(Operation *access, Value argument, AffineMap map,
                 ValueRange indices);
  Value collapse(OpBuilder &b, Value operand, int64_t dim);
  Value makeEmpty(OpBuilder &b, Value empty, int64_t dim);
  void cloneBody(OpBuilder &b, CascadeOp made);
  Draft draftFlat(OpBuilder &b);

  CascadeOp op;
  unsigned i, j;
  /// By operand: the dimension that i subscripts, if it does.
  DenseMap<unsigned, std::optional<int64_t>> dimOf;
};
} // namespace

static SmallVector<ReassociationIndices> groupsFor(int64_t rank, int64_t dim) {
  SmallVector<ReassociationIndices> groups;
  for (int64_t d = 0; d < rank; ++d) {
    if (d == dim + 1)
      groups.back().push_back(d);
    else
      groups.push_back({d});
  }
  return groups;
}

bool Flattener::addAccess(Operation *access, Value argument, AffineMap map,
                          ValueRange indices) {
  unsigned number =
      cast<BlockArgument>(argument).getArgNumber() - op.numIndices();
  std::optional<int64_t> dim;
  Block *body = op.bodyBlock();
  auto isPlain = [&](AffineExpr e, unsigned index) {
    auto d = dyn_cast<AffineDimExpr>(e);
    return d && indices[d.getPosition()] == body->getArgument(index);
  };
  auto moves = [&](AffineExpr e) {
    for (auto [d, value] : llvm::enumerate(indices))
      if ((value == body->getArgument(i) || value == body->getArgument(j)) &&
          e.isFunctionOfDim(d))
        return true;
    return false;
  };
  for (unsigned d = 0; d < map.getNumResults(); ++d) {
    if (!moves(map.getResult(d)))
      continue;
    if (dim || d + 1 == map.getNumResults() || !isPlain(map.getResult(d), i) ||
        !isPlain(map.getResult(d + 1), j))
      return false;
    dim = d++;
  }
  auto [known, isNew] = dimOf.try_emplace(number, dim);
  Value operand = op->getOperand(number);
  bool isSlice = operand.getDefiningOp<tensor::ExtractSliceOp>() != nullptr;
  return known->second == dim && !(dim && isSlice);
}

/// A result that is padded is written where its padding is around it, whose
/// rows do not run on evenly.
static bool isPadded(Value result) {
  return llvm::any_of(result.getUsers(),
                      [](Operation *user) { return isa<tensor::PadOp>(user); });
}

bool Flattener::fits() {
  Block *body = op.bodyBlock();
  if (llvm::any_of(op.getResults(), isPadded))
    return false;
  for (unsigned index : {i, j})
    for (Operation *user : body->getArgument(index).getUsers())
      if (!isa<ReadOp, WriteOp>(user))
        return false;
  for (Operation &each : *body) {
    if (auto read = dyn_cast<ReadOp>(each))
      if (!addAccess(read, read.getSource(), read.getMap(), read.getIndices()))
        return false;
    if (auto write = dyn_cast<WriteOp>(each))
      if (!addAccess(write, write.getTarget(), write.getMap(),
                     write.getIndices()) ||
          !dimOf.lookup(cast<BlockArgument>(write.getTarget()).getArgNumber() -
                        op.numIndices()) ||
          !op.operandOf(write.getTarget()).getDefiningOp<tensor::EmptyOp>())
        return false;
  }
  return true;
}

Value Flattener::collapse(OpBuilder &b, Value operand, int64_t dim) {
  int64_t rank = cast<RankedTensorType>(operand.getType()).getRank();
  return b.create<tensor::CollapseShapeOp>(op.getLoc(), operand,
                                           groupsFor(rank, dim));
}

Value Flattener::makeEmpty(OpBuilder &b, Value empty, int64_t dim) {
  auto from = empty.getDefiningOp<tensor::EmptyOp>();
  SmallVector<OpFoldResult> sizes = from.getMixedSizes();
  auto asValue = [&](OpFoldResult size) -> Value {
    if (auto value = dyn_cast<Value>(size))
      return value;
    return b.create<arith::ConstantIndexOp>(
        op.getLoc(), cast<IntegerAttr>(cast<Attribute>(size)).getInt());
  };
  std::optional<int64_t> a = getConstantIntValue(sizes[dim]);
  std::optional<int64_t> c = getConstantIntValue(sizes[dim + 1]);
  if (a && c)
    sizes[dim] = b.getIndexAttr(*a * *c);
  else
    sizes[dim] = b.create<arith::MulIOp>(op.getLoc(), asValue(sizes[dim]),
                                         asValue(sizes[dim + 1]))
                     .getResult();
  sizes.erase(sizes.begin() + dim + 1);
  return b.create<tensor::EmptyOp>(op.getLoc(), sizes,
                                   from.getType().getElementType());
}

Draft Flattener::draftFlat(OpBuilder &b) {
  Draft draft;
  draft.argNames.assign(op.getArgNames().begin(), op.getArgNames().end());
  size_t numInputs = op.getInputs().size();
  for (auto [number, operand] : llvm::enumerate(op->getOperands())) {
    std::optional<int64_t> dim = dimOf.lookup(number);
    Value flat = operand;
    if (dim)
      flat = number < numInputs ? collapse(b, operand, *dim)
                                : makeEmpty(b, operand, *dim);
    (number < numInputs ? draft.inputs : draft.outputs).push_back(flat);
  }
  for (unsigned index = 0; index < op.numIndices(); ++index) {
    if (index == j)
      continue;
    draft.indexNames.push_back(op.getIndexNames()[index]);
    draft.roles.push_back(op.getRoles()[index]);
    int64_t extent = op.getExtents()[index];
    std::optional<CascadeOp::SizePlace> place = op.sizeOf(index);
    if (index == i) {
      int64_t other = op.getExtents()[j];
      bool isOpen =
          ShapedType::isDynamic(extent) || ShapedType::isDynamic(other);
      extent = isOpen ? ShapedType::kDynamic : extent * other;
      place.reset();
      if (isOpen)
        place = {unsigned(numInputs), *dimOf.lookup(numInputs)};
    } else if (place) {
      std::optional<int64_t> dim = dimOf.lookup(place->operand);
      place->dim -= dim && place->dim > *dim;
    }
    draft.extents.push_back(extent);
    draft.sizes.append(
        {place ? int64_t(place->operand) : -1, place ? place->dim : -1});
  }
  return draft;
}

void Flattener::cloneBody(OpBuilder &b, CascadeOp made) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(made.bodyBlock());
  IRMapping mapping;
  for (unsigned from = 0, to = 0; from < op.bodyBlock()->getNumArguments();
       ++from)
    if (from != j)
      mapping.map(op.bodyBlock()->getArgument(from),
                  made.bodyBlock()->getArgument(to++));
  auto flat = [&](Value argument, AffineMap map, ValueRange indices,
                  SmallVector<Value> &left) {
    unsigned number =
        cast<BlockArgument>(argument).getArgNumber() - op.numIndices();
    SmallVector<AffineExpr> results(map.getResults());
    if (std::optional<int64_t> dim = dimOf.lookup(number))
      results.erase(results.begin() + *dim + 1);
    AffineMap shorter =
        AffineMap::get(map.getNumDims(), 0, results, b.getContext());
    llvm::SmallBitVector unused = getUnusedDimsBitVector(shorter);
    for (auto [d, index] : llvm::enumerate(indices))
      if (!unused[d])
        left.push_back(mapping.lookup(index));
    return AffineMapAttr::get(compressDims(shorter, unused));
  };
  for (Operation &each : *op.bodyBlock()) {
    SmallVector<Value> left;
    if (auto read = dyn_cast<ReadOp>(each)) {
      AffineMapAttr map =
          flat(read.getSource(), read.getMap(), read.getIndices(), left);
      mapping.map(read.getValue(),
                  b.create<ReadOp>(read.getLoc(), read.getType(),
                                   mapping.lookup(read.getSource()), left, map)
                      .getValue());
    } else if (auto write = dyn_cast<WriteOp>(each)) {
      AffineMapAttr map =
          flat(write.getTarget(), write.getMap(), write.getIndices(), left);
      b.create<WriteOp>(write.getLoc(), mapping.lookup(write.getValue()),
                        mapping.lookup(write.getTarget()), left, map);
    } else {
      b.clone(each, mapping);
    }
  }
}

CascadeOp Flattener::flatten(OpBuilder &b) {
  b.setInsertionPoint(op); // before what expanded an earlier flattening
  CascadeOp made = draftFlat(b).create(b, op.getLoc());
  cloneBody(b, made);
  for (auto [k, result] : llvm::enumerate(op.getResults())) {
    int64_t dim = *dimOf.lookup(op.getInputs().size() + k);
    auto type = cast<RankedTensorType>(result.getType());
    auto empty = op.getOutputs()[k].getDefiningOp<tensor::EmptyOp>();
    Value whole = b.create<tensor::ExpandShapeOp>(
        op.getLoc(), type, made.getResult(k), groupsFor(type.getRank(), dim),
        empty.getMixedSizes());
    result.replaceAllUsesWith(whole);
  }
  op.erase();
  return made;
}

static void flattenRows(OpBuilder &b, CascadeOp op) {
  bool isDone = false;
  while (!isDone) {
    isDone = true;
    for (unsigned i = 0; isDone && i < op.numIndices(); ++i)
      for (unsigned j = 0; isDone && j < op.numIndices(); ++j) {
        if (i == j || op.getRoles()[i] != CascadeOp::Row ||
            op.getRoles()[j] != CascadeOp::Row)
          continue;
        Flattener flattener(op, i, j);
        if (!flattener.fits())
          continue;
        op = flattener.flatten(b);
        isDone = false;
      }
  }
}

void refold::fuseEpilogues(func::FuncOp function, EpilogueTarget target) {
  OpBuilder b(function.getContext());
  bool isGpu = target == EpilogueTarget::Gpu;
  int64_t leastColumns = isGpu ? 1 : kLeastColumns;
  SmallVector<linalg::GenericOp> products;
  for (auto product : function.getOps<linalg::GenericOp>())
    if (isGpu ? isWantedOnGpu(product) : isWanted(product))
      products.push_back(product);
  for (linalg::GenericOp product : products) {
    Value result = product.getResult(0);
    auto epilogue = result.hasOneUse()
                        ? dyn_cast<CascadeOp>(*result.getUsers().begin())
                        : CascadeOp();
    std::optional<Merger> merger;
    if (epilogue)
      merger.emplace(product, epilogue, leastColumns);
    if (!merger || !merger->fits()) {
      b.setInsertionPointAfter(product);
      epilogue = makeCopy(b, product);
      result.replaceUsesWithIf(epilogue.getResult(0), [&](OpOperand &use) {
        return use.getOwner() != epilogue.getOperation();
      });
      merger.emplace(product, epilogue, leastColumns);
      if (!merger->fits()) { // a column index that is no lane
        epilogue.getResult(0).replaceAllUsesWith(result);
        epilogue.erase();
        continue;
      }
    }
    b.setInsertionPoint(epilogue);
    CascadeOp merged = merger->merge(b);
    epilogue->replaceAllUsesWith(merged);
    epilogue.erase();
    product.erase();
    flattenRows(b, merged);
  }
}

namespace {
struct FuseEpilogues : PassWrapper<FuseEpilogues, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(FuseEpilogues)
  StringRef getArgument() const override { return "refold-fuse-epilogues"; }
  StringRef getDescription() const override {
    return "products with constant weights, and what is done to their "
           "elements, as one refold.cascade";
  }
  void getDependentDialects(DialectRegistry &registry) const override {
    registry
        .insert<RefoldDialect, arith::ArithDialect, tensor::TensorDialect>();
  }
  void runOnOperation() override { fuseEpilogues(getOperation()); }
};
} // namespace

std::unique_ptr<Pass> refold::createFuseEpiloguesPass() {
  return std::make_unique<FuseEpilogues>();
}
