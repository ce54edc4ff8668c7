// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Sums of squares over two to four places (the coordinates of a point) inside
// the terms of a longer reduction: sum(n: m * sum(s: (x[n,s] - c[s])^2)), where
// c is found along n too. As one index of a contraction c would have to be
// known whole for every element; written out, x[n,0], x[n,1], ... are elements
// of one row, and c[0], c[1], ... states of one cascade.
#include "refold/Analysis/Sizes.h"
#include "refold/Transforms/FuseCascades.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Linalg/IR/Linalg.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"
#include <numeric>

using namespace mlir;
using namespace refold;

namespace {
/// Each place is a state with all that it is kept relative to.
constexpr int64_t kMostPlaces = 4;

/// One axis of a tensor.
using Axis = std::pair<Value, unsigned>;

class WriteOutSums {
public:
  explicit WriteOutSums(func::FuncOp function)
      : function(function), sizes(function), b(function.getContext()) {}
  void run();

private:
  bool isShortSum(linalg::GenericOp sum);
  bool meets(linalg::GenericOp sum);
  bool readsFound(linalg::GenericOp op, unsigned placeLoop, unsigned loop,
                  const Size &length);
  bool isReduced(Value v, unsigned dim);
  bool isFound(Value v, unsigned dim, const Size &length);
  Size sizeOfLoop(linalg::GenericOp op, unsigned loop);
  Value at(Value v, unsigned dim, int64_t place);
  Value sliceOf(Value v, unsigned dim, int64_t place);
  linalg::GenericOp without(linalg::GenericOp op, unsigned loop,
                            ArrayRef<int64_t> places);
  void writeOut(linalg::GenericOp sum);
  void stack(Axis axis, ArrayRef<Value> parts);
  void eraseUnused();

  func::FuncOp function;
  SizeTable sizes;
  OpBuilder b;
  llvm::MapVector<Axis, SmallVector<Value, kMostPlaces>> parts;
};
} // namespace

static std::optional<unsigned> dimOfLoop(AffineMap map, unsigned loop) {
  return map.getResultPosition(getAffineDimExpr(loop, map.getContext()));
}

/// Whether a map takes a loop as it is, in one place, or not at all.
static bool isPlain(AffineMap map, unsigned loop) {
  unsigned count = 0;
  for (AffineExpr e : map.getResults()) {
    if (e.isFunctionOfDim(loop) && !isa<AffineDimExpr>(e))
      return false;
    count += e.isFunctionOfDim(loop);
  }
  return count <= 1;
}

static std::optional<unsigned> loopOfDim(AffineMap map, unsigned dim) {
  auto e = dyn_cast<AffineDimExpr>(map.getResult(dim));
  if (!e)
    return std::nullopt;
  return e.getPosition();
}

static bool isElementwise(linalg::GenericOp op) {
  return op.getNumReductionLoops() == 0;
}

/// The summand of `out + summand`, or null.
static Value summandOf(linalg::GenericOp op) {
  if (op.getNumResults() != 1)
    return Value();
  Value out = op.getRegionOutputArgs()[0];
  Operation *sum = op.getBody()->getTerminator()->getOperand(0).getDefiningOp();
  if (!isa_and_nonnull<arith::AddFOp, arith::AddIOp>(sum) || !out.hasOneUse() ||
      *out.getUsers().begin() != sum || !sum->getResult(0).hasOneUse())
    return Value();
  return sum->getOperand(sum->getOperand(0) == out ? 1 : 0);
}

/// Whether `v`, of the body of an elementwise op or a sum, is the square of a
/// number or a constant times one, there or where it is read from.
static bool isSquare(linalg::GenericOp op, Value v) {
  if (auto product = v.getDefiningOp<arith::MulFOp>()) {
    for (Value side : {product.getLhs(), product.getRhs()})
      if (side.getDefiningOp<arith::ConstantOp>())
        return isSquare(op, side == product.getLhs() ? product.getRhs()
                                                     : product.getLhs());
    return product.getLhs() == product.getRhs();
  }
  auto arg = dyn_cast<BlockArgument>(v);
  if (!arg || arg.getOwner() != op.getBody() ||
      arg.getArgNumber() >= op.getNumDpsInputs())
    return false;
  auto result = dyn_cast<OpResult>(op.getInputs()[arg.getArgNumber()]);
  auto producer = result ? dyn_cast<linalg::GenericOp>(result.getOwner())
                         : linalg::GenericOp();
  return producer && isElementwise(producer) &&
         isSquare(producer, producer.getBody()->getTerminator()->getOperand(
                                result.getResultNumber()));
}

Size WriteOutSums::sizeOfLoop(linalg::GenericOp op, unsigned loop) {
  for (OpOperand &operand : op->getOpOperands())
    if (auto dim = dimOfLoop(op.getMatchingIndexingMap(&operand), loop))
      return sizes.of(operand.get(), *dim);
  return Size::constant(1);
}

bool WriteOutSums::isShortSum(linalg::GenericOp sum) {
  SmallVector<unsigned> reduced;
  sum.getReductionDims(reduced);
  // Places of other sums may cancel, which parts of them that are moved by
  // themselves would not.
  if (reduced.size() != 1 || !summandOf(sum) || !isSquare(sum, summandOf(sum)))
    return false;
  Size places = sizeOfLoop(sum, reduced[0]);
  return places.isStatic() && places.factor > 1 &&
         places.factor <= kMostPlaces &&
         llvm::all_of(sum.getIndexingMapsArray(),
                      [&](AffineMap map) { return isPlain(map, reduced[0]); });
}

/// Whether a reduction is along this axis, past elementwise ops.
bool WriteOutSums::isReduced(Value v, unsigned dim) {
  SmallVector<Axis> work{{v, dim}};
  llvm::DenseSet<Axis> seen;
  while (!work.empty()) {
    Axis axis = work.pop_back_val();
    if (!seen.insert(axis).second)
      continue;
    for (OpOperand &use : axis.first.getUses()) {
      auto reader = dyn_cast<linalg::GenericOp>(use.getOwner());
      if (!reader)
        continue;
      auto loop = loopOfDim(reader.getMatchingIndexingMap(&use), axis.second);
      if (!loop)
        continue;
      if (reader.getIteratorTypesArray()[*loop] ==
          utils::IteratorType::reduction)
        return true;
      if (!isElementwise(reader))
        continue;
      for (OpResult r : reader.getResults())
        if (auto next =
                dimOfLoop(reader.getIndexingMapMatchingResult(r), *loop))
          work.push_back({r, *next});
    }
  }
  return false;
}

/// Whether an axis is one that a reduction over `length` elements keeps, past
/// elementwise ops.
bool WriteOutSums::isFound(Value v, unsigned dim, const Size &length) {
  SmallVector<Axis> work{{v, dim}};
  llvm::DenseSet<Axis> seen;
  while (!work.empty()) {
    Axis axis = work.pop_back_val();
    auto op = axis.first.getDefiningOp<linalg::GenericOp>();
    if (!seen.insert(axis).second || !op)
      continue;
    AffineMap map = op.getIndexingMapMatchingResult(cast<OpResult>(axis.first));
    auto loop = loopOfDim(map, axis.second);
    if (!loop)
      continue;
    SmallVector<unsigned> reduced;
    op.getReductionDims(reduced);
    if (llvm::any_of(reduced,
                     [&](unsigned r) { return sizeOfLoop(op, r) == length; }))
      return true;
    if (!reduced.empty())
      continue;
    for (OpOperand *input : op.getDpsInputOperands())
      if (auto next = dimOfLoop(op.getMatchingIndexingMap(input), *loop))
        work.push_back({input->get(), *next});
  }
  return false;
}

/// Whether an op, or an elementwise one before it, reads at each place what a
/// reduction over `length` elements has found for all of `loop`.
bool WriteOutSums::readsFound(linalg::GenericOp op, unsigned placeLoop,
                              unsigned loop, const Size &length) {
  for (OpOperand *input : op.getDpsInputOperands()) {
    AffineMap map = op.getMatchingIndexingMap(input);
    auto place = dimOfLoop(map, placeLoop);
    if (!place)
      continue;
    if (!map.isFunctionOfDim(loop)) {
      if (isFound(input->get(), *place, length))
        return true;
      continue;
    }
    auto dim = dimOfLoop(map, loop);
    auto result = dyn_cast<OpResult>(input->get());
    auto producer = result ? dyn_cast<linalg::GenericOp>(result.getOwner())
                           : linalg::GenericOp();
    if (!dim || !producer || !isElementwise(producer))
      continue;
    AffineMap made = producer.getIndexingMapMatchingResult(result);
    auto madePlace = loopOfDim(made, *place), madeLoop = loopOfDim(made, *dim);
    if (madePlace && madeLoop &&
        readsFound(producer, *madePlace, *madeLoop, length))
      return true;
  }
  return false;
}

/// Whether the sum stands in the terms of a reduction, and reads at each of its
/// places what another one has found along the same stream.
bool WriteOutSums::meets(linalg::GenericOp sum) {
  SmallVector<unsigned> reduced;
  sum.getReductionDims(reduced);
  AffineMap result = sum.getIndexingMapMatchingResult(sum->getResult(0));
  for (auto [loop, kind] : llvm::enumerate(sum.getIteratorTypesArray())) {
    auto dim = dimOfLoop(result, loop);
    if (kind == utils::IteratorType::parallel && dim &&
        isReduced(sum.getResult(0), *dim) &&
        readsFound(sum, reduced[0], loop, sizeOfLoop(sum, loop)))
      return true;
  }
  return false;
}

/// The tensor at one place of an axis, without that axis.
Value WriteOutSums::at(Value v, unsigned dim, int64_t place) {
  SmallVector<Value, kMostPlaces> &known = parts[{v, dim}];
  if (int64_t(known.size()) <= place)
    known.resize(place + 1);
  if (known[place])
    return known[place];
  OpBuilder::InsertionGuard guard(b);
  if (Operation *op = v.getDefiningOp())
    b.setInsertionPointAfter(op);
  else
    b.setInsertionPointToStart(&function.getBody().front());
  Value part = sliceOf(v, dim, place);
  return parts[{v, dim}][place] = part;
}

Value WriteOutSums::sliceOf(Value v, unsigned dim, int64_t place) {
  auto type = cast<RankedTensorType>(v.getType());
  Location loc = v.getLoc();
  SmallVector<OpFoldResult> extents;
  SmallVector<int64_t> shape;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    Size size = sizes.of(v, d);
    int64_t extent = d == dim ? 1 : size.staticOrDynamic();
    extents.push_back(ShapedType::isDynamic(extent)
                          ? OpFoldResult(sizes.materialise(b, loc, size))
                          : b.getIndexAttr(extent));
    if (d != dim)
      shape.push_back(extent);
  }
  auto sliced = RankedTensorType::get(shape, type.getElementType());
  Operation *op = v.getDefiningOp();
  auto generic = dyn_cast_if_present<linalg::GenericOp>(op);
  if (isa_and_nonnull<tensor::EmptyOp>(op)) {
    extents.erase(extents.begin() + dim);
    return b.create<tensor::EmptyOp>(loc, extents, type.getElementType());
  }
  if (auto fill = dyn_cast_if_present<linalg::FillOp>(op)) {
    Value init = at(fill.getOutputs()[0], dim, place);
    return b.create<linalg::FillOp>(loc, fill.getInputs()[0], init)
        .getResult(0);
  }
  if (generic && generic.getNumResults() == 1) {
    auto loop =
        loopOfDim(generic.getIndexingMapMatchingResult(cast<OpResult>(v)), dim);
    auto takes = [&](AffineMap map) { return isPlain(map, *loop); };
    if (loop && llvm::all_of(generic.getIndexingMapsArray(), takes))
      return without(generic, *loop, {place}).getResult(0);
  }
  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(type.getRank(), b.getIndexAttr(1));
  offsets[dim] = b.getIndexAttr(place);
  return b.create<tensor::ExtractSliceOp>(loc, sliced, v, offsets, extents,
                                          strides);
}

/// The op at fixed places of one loop. Several places of a sum are added up.
linalg::GenericOp WriteOutSums::without(linalg::GenericOp op, unsigned loop,
                                        ArrayRef<int64_t> places) {
  auto outside = [&](AffineMap map) {
    SmallVector<AffineExpr> dims, results;
    for (unsigned d = 0; d < map.getNumDims(); ++d)
      dims.push_back(d == loop ? b.getAffineConstantExpr(0)
                               : b.getAffineDimExpr(d - (d > loop)));
    for (AffineExpr e : map.getResults())
      if (!e.isFunctionOfDim(loop))
        results.push_back(e.replaceDims(dims));
    return AffineMap::get(map.getNumDims() - 1, 0, results, b.getContext());
  };
  SmallVector<Value> inputs;
  SmallVector<AffineMap> maps;
  for (int64_t place : places)
    for (OpOperand *input : op.getDpsInputOperands()) {
      AffineMap map = op.getMatchingIndexingMap(input);
      auto dim = dimOfLoop(map, loop);
      inputs.push_back(dim ? at(input->get(), *dim, place) : input->get());
      maps.push_back(outside(map));
    }
  OpOperand *out = op.getDpsInitOperand(0);
  AffineMap map = op.getMatchingIndexingMap(out);
  auto dim = dimOfLoop(map, loop);
  Value init = dim ? at(out->get(), *dim, places[0]) : out->get();
  maps.push_back(outside(map));
  SmallVector<utils::IteratorType> kinds = op.getIteratorTypesArray();
  kinds.erase(kinds.begin() + loop);
  size_t numInputs = op.getNumDpsInputs();
  auto body = [&](OpBuilder &inner, Location loc, ValueRange args) {
    Value total, out = args.back();
    Block *old = op.getBody();
    Operation *yield = old->getTerminator();
    Operation *sum =
        places.size() > 1 ? yield->getOperand(0).getDefiningOp() : nullptr;
    for (auto [k, place] : llvm::enumerate(places)) {
      IRMapping map;
      for (size_t i = 0; i < numInputs; ++i)
        map.map(old->getArgument(i), args[k * numInputs + i]);
      map.map(old->getArgument(numInputs), out);
      for (Operation &each : old->without_terminator()) {
        if (&each == sum)
          continue;
        if (auto index = dyn_cast<linalg::IndexOp>(each)) {
          unsigned d = index.getDim();
          Value at =
              d == loop
                  ? Value(inner.create<arith::ConstantIndexOp>(loc, place))
                  : Value(inner.create<linalg::IndexOp>(loc, d - (d > loop)));
          map.map(index.getResult(), at);
          continue;
        }
        inner.clone(each, map);
      }
      Value value =
          map.lookupOrDefault(sum ? summandOf(op) : yield->getOperand(0));
      auto add = [&](Value x, Value y) {
        Operation *added = inner.clone(*sum);
        added->setOperands({x, y});
        return added->getResult(0);
      };
      total = total ? add(total, value) : value;
      if (sum && k + 1 == places.size())
        total = add(out, total);
    }
    inner.create<linalg::YieldOp>(loc, total);
  };
  return b.create<linalg::GenericOp>(op.getLoc(), init.getType(), inputs, init,
                                     maps, kinds, body);
}

void WriteOutSums::writeOut(linalg::GenericOp sum) {
  SmallVector<unsigned> reduced;
  sum.getReductionDims(reduced);
  SmallVector<int64_t> places(sizeOfLoop(sum, reduced[0]).factor);
  std::iota(places.begin(), places.end(), 0);
  b.setInsertionPoint(sum);
  linalg::GenericOp written = without(sum, reduced[0], places);
  sum.replaceAllUsesWith(written);
}

/// What else reads the axis reads the same parts.
void WriteOutSums::stack(Axis axis, ArrayRef<Value> parts) {
  auto [v, dim] = axis;
  auto type = cast<RankedTensorType>(v.getType());
  Operation *last = nullptr;
  for (Value part : parts)
    if (!last || last->isBeforeInBlock(part.getDefiningOp()))
      last = part.getDefiningOp();
  b.setInsertionPointAfter(last);
  SmallVector<Value> extents;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (type.isDynamicDim(d))
      extents.push_back(sizes.materialise(b, v.getLoc(), sizes.of(v, d)));
  Value init = b.create<tensor::EmptyOp>(v.getLoc(), type.getShape(),
                                         type.getElementType(), extents);
  AffineMap whole = b.getMultiDimIdentityMap(type.getRank());
  SmallVector<AffineMap> maps(parts.size(), whole.dropResult(dim));
  maps.push_back(whole);
  SmallVector<utils::IteratorType> kinds(type.getRank(),
                                         utils::IteratorType::parallel);
  auto stacked = b.create<linalg::GenericOp>(
      v.getLoc(), type, parts, init, maps, kinds,
      [&](OpBuilder &inner, Location loc, ValueRange args) {
        Value at = inner.create<linalg::IndexOp>(loc, dim);
        Value value = args[parts.size() - 1];
        for (size_t k = parts.size() - 1; k-- > 0;) {
          Value place = inner.create<arith::ConstantIndexOp>(loc, k);
          Value isIt = inner.create<arith::CmpIOp>(
              loc, arith::CmpIPredicate::eq, at, place);
          value = inner.create<arith::SelectOp>(loc, isIt, args[k], value);
        }
        inner.create<linalg::YieldOp>(loc, value);
      });
  v.replaceUsesWithIf(stacked.getResult(0), [&](OpOperand &use) {
    return use.getOwner() != stacked;
  });
}

void WriteOutSums::eraseUnused() {
  for (Operation &op :
       llvm::make_early_inc_range(llvm::reverse(function.getBody().front())))
    if (isOpTriviallyDead(&op))
      op.erase();
}

void WriteOutSums::run() {
  SmallVector<linalg::GenericOp> sums;
  for (auto op : function.getBody().front().getOps<linalg::GenericOp>())
    if (isShortSum(op) && meets(op))
      sums.push_back(op);
  if (sums.empty())
    return;
  for (linalg::GenericOp sum : sums)
    writeOut(sum);
  // Readers before what they read: a reader that is gone needs nothing.
  SmallVector<Axis> whole;
  for (auto &[axis, known] : parts)
    if (axis.first.getDefiningOp<linalg::GenericOp>() &&
        llvm::all_of(known, [](Value part) {
          return part && part.getDefiningOp<linalg::GenericOp>();
        }))
      whole.push_back(axis);
  llvm::sort(whole, [](Axis x, Axis y) {
    return y.first.getDefiningOp()->isBeforeInBlock(x.first.getDefiningOp());
  });
  for (Axis axis : whole) {
    auto unused = [](OpOperand &use) {
      return isOpTriviallyDead(use.getOwner());
    };
    if (!llvm::all_of(axis.first.getUses(), unused))
      stack(axis, parts[axis]);
    Operation *op = axis.first.getDefiningOp();
    llvm::SmallSetVector<Operation *, 4> users; // some of them read it twice
    users.insert(op->user_begin(), op->user_end());
    for (Operation *user : users)
      if (isOpTriviallyDead(user))
        user->erase();
  }
  eraseUnused();
}

void refold::writeOutShortSums(func::FuncOp function) {
  WriteOutSums(function).run();
}
