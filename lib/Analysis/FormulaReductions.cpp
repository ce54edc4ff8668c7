// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// Reductions in formulas: stages, contractions inside elements, sums over the
// ranks of finished lists.
#include "refold/Analysis/Formula.h"

#include "refold/Dialect/Refold/IR/Refold.h"

#include <cmath>

using namespace mlir;
using namespace refold;
using algebra::Expr;
using algebra::IndexRole;

bool Formula::bindStreams(Operation *op, ArrayRef<Size> wanted,
                          unsigned result) {
  if (streams.empty()) {
    for (const Size &size : wanted) {
      StringRef name = sizes.nameOf(size);
      addIndex(name.empty() ? "n" : name.str(), IndexRole::Stream, size);
    }
    return true;
  }
  bool same = streams.size() == wanted.size();
  for (size_t i = 0; same && i < wanted.size(); ++i)
    same = extents[streams[i]] == wanted[i];
  if (!same) {
    SmallVector<Size> bound;
    for (unsigned stream : streams)
      bound.push_back(extents[stream]);
    refuse("axis-change",
           "'" + sourceName(op->getResult(0)) + "' is reduced over " +
               sizes.describe(wanted) +
               ", other axes than the kernel's stream " + sizes.describe(bound),
           op, op->getResult(result));
  }
  return same;
}

/// Σ (term·c) as (Σ term)·c for a number c, so that however a scale is written
/// a matrix product stays one. Not for 0 and inf, which make NaN of a sum that
/// overflows.
static Expr contractScaled(algebra::Context &context, uint64_t inner,
                           Expr body) {
  auto isScale = [](Expr e) {
    std::optional<double> value = e.constant();
    return value && *value != 0 && std::isfinite(*value);
  };
  if (body.is(algebra::Kind::Neg))
    return context.neg(contractScaled(context, inner, body.operand(0)));
  bool isMul = body.is(algebra::Kind::Mul), isDiv = body.is(algebra::Kind::Div);
  if ((isMul || isDiv) && isScale(body.operand(1))) {
    Expr sum = contractScaled(context, inner, body.operand(0));
    return isMul ? context.mul(sum, body.operand(1))
                 : context.div(sum, body.operand(1));
  }
  if (isMul && isScale(body.operand(0)))
    return context.mul(body.operand(0),
                       contractScaled(context, inner, body.operand(1)));
  return context.contract(inner, body);
}

/// Whether dimension `dim` of `tensor` is the rank of a list behind it.
static bool isRank(Value tensor, unsigned dim,
                   llvm::function_ref<bool(Value)> isMaterialised) {
  Operation *op = tensor.getDefiningOp();
  if (!op || isMaterialised(tensor))
    return false;
  if (auto topk = dyn_cast<TopKOp>(op))
    return dim == topk.getDim();
  auto generic = dyn_cast<linalg::GenericOp>(op);
  if (!generic || generic.getNumReductionLoops())
    return false;
  unsigned result = cast<OpResult>(tensor).getResultNumber();
  AffineMap out =
      generic.getMatchingIndexingMap(generic.getDpsInitOperand(result));
  auto loop = dyn_cast<AffineDimExpr>(out.getResult(dim));
  for (OpOperand *operand : generic.getDpsInputOperands())
    for (auto [d, e] :
         llvm::enumerate(generic.getMatchingIndexingMap(operand).getResults()))
      if (loop && e == loop && isRank(operand->get(), d, isMaterialised))
        return true;
  return false;
}

bool refold::isSumOfRanks(linalg::GenericOp generic,
                          llvm::function_ref<bool(Value)> isMaterialised) {
  SmallVector<unsigned> dims;
  generic.getReductionDims(dims);
  if (dims.size() != 1 || generic.getNumResults() != 1)
    return false;
  std::optional<Combiner> combiner =
      matchCombiner(generic.getBody()->getTerminator()->getOperand(0),
                    generic.getRegionOutputArgs()[0]);
  if (!combiner || combiner->reducer != algebra::Reducer::Sum)
    return false;
  for (OpOperand *operand : generic.getDpsInputOperands())
    for (auto [d, e] :
         llvm::enumerate(generic.getMatchingIndexingMap(operand).getResults()))
      if (e.isFunctionOfDim(dims[0]) &&
          (!isa<AffineDimExpr>(e) ||
           !isRank(operand->get(), d, isMaterialised)))
        return false;
  return true;
}

/// Σ over the ranks of finished lists, which may be an index outside too.
Expr Formula::ofRanks(linalg::GenericOp generic, Subscripts loops,
                      const Subscripts &key) {
  SmallVector<unsigned> dims;
  generic.getReductionDims(dims);
  Size extent = sizeOfLoop(generic, dims[0]);
  uint64_t live = indicesOf(key);
  algebra::Reducer reducer;
  // A list of one is a number without a rank, and so is what is made of it.
  if (extent.isStatic(1)) {
    loops[dims[0]] = IndexExpr(0);
    Expr only = term(generic, loops, reducer);
    return only ? withInitial(generic, key, reducer, only) : only;
  }
  std::optional<unsigned> rank;
  for (auto [i, index] : llvm::enumerate(cascade.indices))
    if (index.role == IndexRole::Rank && extents[i] == extent &&
        !(live & (uint64_t(1) << i)))
      rank = i;
  if (!rank)
    rank = addIndex("rank", IndexRole::Rank, extent);
  loops[dims[0]] = index(*rank);
  Expr body = term(generic, loops, reducer);
  if (!body)
    return Expr();
  if (!(body.indices() & (uint64_t(1) << *rank)))
    return refuse("unsupported-access", "a sum of what no rank changes",
                  generic, generic.getResult(0));
  return withInitial(generic, key, reducer,
                     contractScaled(*context, uint64_t(1) << *rank, body));
}

Expr Formula::ofReduction(linalg::GenericOp generic, unsigned result,
                          const Subscripts &subscripts) {
  if (policy.onReduction) {
    policy.onReduction(generic, subscripts);
    return read(generic.getResult(result), subscripts);
  }
  std::optional<Subscripts> loops = loopsOf(generic, result, subscripts);
  if (!loops)
    return Expr();
  uint64_t live = indicesOf(subscripts);
  uint64_t perElement = cascade.stream() | cascade.indicesOf(IndexRole::Inner);
  if (!(live & perElement))
    return isSumOfRanks(generic, policy.isMaterialised)
               ? ofRanks(generic, *loops, subscripts)
               : stage(generic, *loops, subscripts);
  if (!policy.mayContract(generic))
    return refuse("axis-change",
                  "'" + sourceName(generic.getResult(0)) +
                      "' is a whole reduction for every element of the stream",
                  generic, generic.getResult(result));
  return contraction(generic, *loops);
}

Expr Formula::contraction(linalg::GenericOp generic, Subscripts loops) {
  for (const Contraction &known : contractions)
    if (known.op == generic && known.loops == loops)
      return known.value;
  Subscripts key = loops;
  uint64_t inner = 0;
  SmallVector<unsigned> dims;
  generic.getReductionDims(dims);
  for (unsigned d : dims) {
    Size extent = sizeOfLoop(generic, d);
    StringRef name = sizes.nameOf(extent);
    // A set of indices is one word; others are still to come.
    constexpr size_t kMostIndices = 56;
    if (cascade.indices.size() >= kMostIndices)
      return refuse("unsupported-access",
                    "an element with more than 56 indices; what it sums is "
                    "computed before",
                    generic, generic.getResult(0));
    unsigned number =
        addIndex(name.empty() ? "d" : name.str(), IndexRole::Inner, extent);
    inner |= uint64_t(1) << number;
    loops[d] = index(number);
  }
  algebra::Reducer reducer;
  Expr body = term(generic, loops, reducer);
  if (!body)
    return Expr();
  if (reducer != algebra::Reducer::Sum)
    return refuse("axis-change", "only sums are computed inside an element",
                  generic, generic.getResult(0));
  Expr value = contractScaled(*context, inner, body);
  contractions.push_back({generic, key, value});
  Subscripts outer;
  for (auto [d, type] : llvm::enumerate(generic.getIteratorTypesArray()))
    if (type == utils::IteratorType::parallel)
      outer.push_back(key[d]);
  contractionUses.push_back({generic, outer, 0});
  return value;
}

/// Only where every kept loop is an index of the result and nothing else.
const WiderStream *Formula::widerStreamOf(linalg::GenericOp generic,
                                          const Subscripts &loops) {
  const WiderStream *wider =
      policy.widerStream ? policy.widerStream(generic) : nullptr;
  if (!wider)
    return nullptr;
  for (unsigned loop : wider->loops)
    if (generic.getIteratorTypesArray()[loop] ==
            utils::IteratorType::parallel &&
        !atoms.asIndex(loops[loop]))
      return nullptr;
  return wider;
}

/// What moves along kept axes only, at the place of the result instead: it is
/// the same there, and then no part of an element.
Expr Formula::atPlaces(Expr body,
                       ArrayRef<std::pair<unsigned, IndexExpr>> kept) {
  uint64_t keptSet = 0;
  algebra::ExprMap map;
  for (const auto &[stream, place] : kept) {
    keptSet |= uint64_t(1) << stream;
    map[cascade.indices[stream].value] = valueOf(place);
  }
  auto moved = [&](const IndexExpr &e) -> IndexExpr {
    for (const auto &[stream, place] : kept)
      if (atoms.asIndex(e) == stream)
        return place;
    return e;
  };
  for (size_t i = 0, count = reads.size(); i < count; ++i) {
    const Read own = reads[i];
    uint64_t along = own.symbol.indices() & cascade.stream();
    if (!own.operand || !along || (along & ~keptSet) ||
        !algebra::contains(body, own.symbol))
      continue;
    Subscripts at;
    for (const IndexExpr &e : own.subscripts)
      at.push_back(moved(e));
    if (!(indicesOf(at) & keptSet))
      map[own.symbol] = read(own.operand, at);
  }
  return algebra::substitute(*context, body, map);
}

/// The summand along a wider stream: nothing for elements of other places.
Expr Formula::termAlong(linalg::GenericOp generic, const WiderStream &wider,
                        const Subscripts &loops, algebra::Reducer &reducer) {
  Subscripts inside = loops;
  SmallVector<std::pair<unsigned, IndexExpr>> kept;
  Expr isPlace;
  for (auto [loop, stream] : llvm::zip_equal(wider.loops, streams)) {
    inside[loop] = index(stream);
    if (generic.getIteratorTypesArray()[loop] == utils::IteratorType::reduction)
      continue;
    kept.push_back({stream, loops[loop]});
    Expr same = context->cmp(algebra::Pred::Eq, valueOf(inside[loop]),
                             valueOf(loops[loop]));
    isPlace = isPlace ? context->logicalAnd(isPlace, same) : same;
  }
  Expr body = term(generic, inside, reducer);
  if (!body)
    return Expr();
  body = atPlaces(body, kept);
  if (reducer == algebra::Reducer::Any)
    return context->logicalAnd(isPlace, body);
  if (reducer == algebra::Reducer::All)
    return context->logicalOr(context->logicalNot(isPlace), body);
  return context->select(isPlace, body,
                         algebra::identity(*context, reducer, body.type()));
}

Expr Formula::stage(linalg::GenericOp generic, Subscripts loops,
                    const Subscripts &key) {
  for (const StageUse &use : stageUses)
    if (use.op == generic && use.subscripts == key)
      return cascade.stages[use.stage].results[0];
  algebra::Reducer reducer;
  Expr body;
  if (const WiderStream *wider = widerStreamOf(generic, loops)) {
    if (!bindStreams(generic, wider->sizes))
      return Expr();
    body = termAlong(generic, *wider, loops, reducer);
  } else {
    SmallVector<unsigned> dims;
    generic.getReductionDims(dims);
    SmallVector<Size> wanted;
    for (unsigned d : dims)
      wanted.push_back(sizeOfLoop(generic, d));
    if (!bindStreams(generic, wanted))
      return Expr();
    for (auto [d, stream] : llvm::zip(dims, streams))
      loops[d] = index(stream);
    body = term(generic, loops, reducer);
  }
  if (!body)
    return Expr();
  std::string name = sourceName(generic.getResult(0));
  Expr value = cascade.addStage(freshName(name.empty() ? "r" : name), reducer,
                                body, placeOf(generic.getLoc()));
  stageUses.push_back({generic, key, unsigned(cascade.stages.size() - 1)});
  return withInitial(generic, key, reducer, value);
}

/// The reduction starts from what `outs` holds; a neutral element is nothing.
Expr Formula::withInitial(linalg::GenericOp generic, const Subscripts &key,
                          algebra::Reducer reducer, Expr value) {
  Expr initial = element(generic.getDpsInitOperand(0)->get(), key);
  if (!initial)
    return Expr();
  Type type = getElementTypeOrSelf(generic.getResult(0).getType());
  bool isUnsigned =
      matchCombiner(generic.getBody()->getTerminator()->getOperand(0),
                    generic.getRegionOutputArgs()[0])
          ->isUnsigned;
  if (isUnsigned) {
    initial = unsignedValue(*context, initial, type);
    Expr most = reducer == algebra::Reducer::Max ? context->max(initial, value)
                                                 : context->min(initial, value);
    return valueOfUnsigned(*context, most, type);
  }
  Expr neutral = algebra::identity(*context, reducer, value.type());
  std::optional<double> a = initial.constant(), b = neutral.constant();
  if (initial == neutral || (a && b && *a == *b))
    return value;
  algebra::Context &c = *context;
  switch (reducer) {
  case algebra::Reducer::Sum:
    return c.add(initial, value);
  case algebra::Reducer::Prod:
    return c.mul(initial, value);
  case algebra::Reducer::Max:
    return c.max(initial, value);
  case algebra::Reducer::Min:
    return c.min(initial, value);
  case algebra::Reducer::MaxNum:
    return c.maxNum(initial, value);
  case algebra::Reducer::MinNum:
    return c.minNum(initial, value);
  case algebra::Reducer::Any:
    return c.logicalOr(initial, value);
  case algebra::Reducer::All:
    return c.logicalAnd(initial, value);
  case algebra::Reducer::TopK:
    break;
  }
  return Expr();
}

Size Formula::sizeOfLoop(linalg::GenericOp generic, unsigned loop) {
  for (OpOperand &operand : generic->getOpOperands()) {
    if (!isa<RankedTensorType>(operand.get().getType()))
      continue;
    for (auto [k, e] :
         llvm::enumerate(generic.getMatchingIndexingMap(&operand).getResults()))
      if (auto dim = dyn_cast<AffineDimExpr>(e);
          dim && dim.getPosition() == loop)
        return sizes.of(operand.get(), k);
  }
  return Size::constant(1);
}

/// A key of a list. Narrow integers are wider here, and so is what stands in a
/// place that no element takes: in their type it is their own least or largest.
static Expr keyOfList(algebra::Context &c, TopKOp topk, Expr key) {
  auto type = dyn_cast<IntegerType>(
      cast<ShapedType>(topk.getSource().getType()).getElementType());
  if (!type || type.getWidth() >= 32)
    return key;
  if (topk.getLargest())
    return c.max(c.integer(llvm::minIntN(type.getWidth()), key.type()), key);
  return c.min(c.integer(llvm::maxIntN(type.getWidth()), key.type()), key);
}

Expr Formula::ofTopK(Operation *op, unsigned result,
                     const Subscripts &subscripts) {
  auto topk = cast<TopKOp>(op);
  Subscripts key = subscripts;
  IndexExpr rank = key[topk.getDim()];
  key[topk.getDim()] = IndexExpr(0);
  if (policy.onReduction) {
    policy.onReduction(op, key);
    return read(op->getResult(result), subscripts);
  }
  if (indicesOf(key) & (cascade.stream() | cascade.indicesOf(IndexRole::Inner)))
    return refuse("axis-change",
                  "'" + sourceName(op->getResult(0)) +
                      "' selects anew for every element of the stream",
                  op, op->getResult(result));
  int rankIndex = -1;
  if (topk.getK() > 1) {
    std::optional<unsigned> number = atoms.asIndex(rank);
    if (!number || (cascade.stream() & (uint64_t(1) << *number)) ||
        !extents[*number].isStatic(topk.getK()))
      return refuse("unsupported-access",
                    "the ranks of a top-k are read out of order", op,
                    op->getResult(result));
    rankIndex = *number;
    cascade.indices[rankIndex].role = IndexRole::Rank;
  }
  auto ofStage = [&](const algebra::Stage &stage) {
    Expr found = stage.results[result];
    return result == 0 ? keyOfList(*context, topk, found) : found;
  };
  for (const StageUse &use : stageUses)
    if (use.op == op && use.subscripts == key &&
        cascade.stages[use.stage].rank == rankIndex)
      return ofStage(cascade.stages[use.stage]);
  if (!bindStreams(op, {sizes.of(topk.getSource(), topk.getDim())}, result))
    return Expr();
  Subscripts at = key;
  at[topk.getDim()] = index(streams[0]);
  Expr keyValue = element(topk.getSource(), at);
  if (!keyValue)
    return Expr();
  Expr position = context->cast(
      *importType(
          cast<ShapedType>(topk.getPositions().getType()).getElementType()),
      valueOf(index(streams[0])));
  std::string name = sourceName(op->getResult(0));
  cascade.addTopK(freshName(name.empty() ? "top" : name), keyValue, {position},
                  topk.getK(), topk.getLargest(), rankIndex,
                  placeOf(op->getLoc()));
  stageUses.push_back({op, key, unsigned(cascade.stages.size() - 1)});
  return ofStage(cascade.stages.back());
}
