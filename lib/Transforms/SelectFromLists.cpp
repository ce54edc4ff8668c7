// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//
// A selection among groups of which some are masked, after a selection inside
// each group. Law `lists-of-groups`: the list of each group holds all that the
// second selection can find,
//
//     top_k over (g, u) of (c_g ? a_gu : b_g)
//         = top_k over (g, r < k) of (c_g ? top_k over u of a_gu : b_g)
//
// because elements of one group keep their order where c_g holds, and are equal
// where it does not: the first k of them are then the positions 0 .. k - 1.
#include "ExportScalar.h"

#include "refold/Analysis/Formula.h"
#include "refold/Dialect/Refold/IR/Refold.h"
#include "refold/Transforms/FuseCascades.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"

using namespace mlir;
using namespace refold;
using algebra::Expr;

namespace {
/// `all` selects of (condition ? element : other), groups and members as one
/// axis; each of `lists` selects the same elements inside the groups.
struct Selection {
  TopKOp all;
  std::shared_ptr<Formula> formula; ///< index d is dimension d of the elements
  Expr condition, other;
  bool isTurned = false; ///< the elements stand where the condition is false
  unsigned group = 0;    ///< dimension of the groups; members are the next one
  int64_t groups = 0, members = 0;
  SmallVector<TopKOp> lists;

  Value elements() { return lists.front().getSource(); }
};
} // namespace

static std::shared_ptr<Formula> formulaOver(Value elements, SizeTable &sizes) {
  FormulaPolicy policy;
  policy.isMaterialised = [](Value) { return false; };
  policy.mayContract = [](Operation *) { return false; };
  policy.onReduction = [](Operation *, const Subscripts &) {};
  auto formula = std::make_shared<Formula>(sizes, policy);
  for (int64_t d = 0, e = cast<RankedTensorType>(elements.getType()).getRank();
       d < e; ++d)
    formula->addIndex("i", algebra::IndexRole::Row, sizes.of(elements, d));
  return formula;
}

/// Whether all that `e` reads can be read again elsewhere: tensors, at places
/// that indices alone say.
static bool isReadable(Formula &formula, Expr e) {
  for (Expr symbol : algebra::symbolsOf(e)) {
    if (symbol.isSym(algebra::Role::Index))
      continue;
    auto read = llvm::find_if(
        formula.reads, [&](const Read &r) { return r.symbol == symbol; });
    if (read == formula.reads.end() || !read->operand)
      return false;
    SmallVector<Expr> computed;
    MLIRContext *context = read->operand.getContext();
    for (const IndexExpr &at : read->subscripts)
      if (!formula.atoms.toAffine(at, context, 64, computed) ||
          !computed.empty())
        return false;
  }
  return true;
}

/// `all` as a masked selection of what `list` selects inside groups.
static std::optional<Selection> matchList(TopKOp all, TopKOp list,
                                          SizeTable &sizes) {
  auto type = cast<RankedTensorType>(all.getSource().getType());
  auto inner = cast<RankedTensorType>(list.getSource().getType());
  Selection s;
  s.all = all;
  s.group = all.getDim();
  unsigned member = s.group + 1;
  if (inner.getRank() != type.getRank() + 1 || list.getDim() != member ||
      inner.getElementType() != type.getElementType() ||
      list.getLargest() != all.getLargest() || inner.isDynamicDim(s.group) ||
      inner.isDynamicDim(member))
    return std::nullopt;
  s.groups = inner.getDimSize(s.group);
  s.members = inner.getDimSize(member);
  if (type.getDimSize(s.group) != s.groups * s.members || !s.members)
    return std::nullopt;
  for (int64_t d = 0; d < type.getRank(); ++d)
    if (d != int64_t(s.group) &&
        sizes.of(all.getSource(), d) !=
            sizes.of(list.getSource(), d < int64_t(s.group) ? d : d + 1))
      return std::nullopt;
  s.formula = formulaOver(list.getSource(), sizes);
  Formula &f = *s.formula;
  Subscripts split, joint;
  for (unsigned d = 0; d < inner.getRank(); ++d)
    split.push_back(f.index(d));
  for (unsigned d = 0; d < inner.getRank(); ++d)
    if (d == s.group)
      joint.push_back(f.atoms.add(
          f.atoms.scale(split[d], Size::constant(s.members)), split[member]));
    else if (d != member)
      joint.push_back(split[d]);
  Expr element = f.element(list.getSource(), split);
  Expr masked = element ? f.element(all.getSource(), joint) : Expr();
  if (!masked || !masked.is(algebra::Kind::Select))
    return std::nullopt;
  s.isTurned = masked.operand(2) == element;
  s.condition = masked.operand(0);
  s.other = masked.operand(s.isTurned ? 1 : 2);
  algebra::IndexSet ofMember = algebra::IndexSet(1) << member;
  if (masked.operand(s.isTurned ? 2 : 1) != element ||
      ((s.condition.indices() | s.other.indices()) & ofMember) ||
      !isReadable(f, s.condition) || !isReadable(f, s.other))
    return std::nullopt;
  s.lists.push_back(list);
  return s;
}

static std::optional<Selection> match(TopKOp all, ArrayRef<TopKOp> earlier,
                                      SizeTable &sizes) {
  std::optional<Selection> found;
  for (TopKOp list : earlier) {
    if (found && found->elements().getType() != list.getSource().getType())
      continue;
    std::optional<Selection> s = matchList(all, list, sizes);
    if (s && found)
      found->lists.push_back(list);
    else if (s)
      found = std::move(s);
  }
  return found;
}

namespace {
/// Writes what replaces one selection.
class Writer {
public:
  Writer(Selection &s, SizeTable &sizes)
      : s(s), sizes(sizes), b(s.all), loc(s.all.getLoc()), member(s.group + 1) {
  }
  void run();

private:
  Value empty(ArrayRef<int64_t> shape, Type element, bool hasMembers);
  Value sliceOf(Value list, int64_t count);
  void makeLists();
  Value masked(Value list, bool isPosition, Type element);
  Value flat(Value tensor);
  Value positions(Value found, Value flatPositions);
  Value subscript(OpBuilder &b, AffineExpr e);
  Value leaf(OpBuilder &b, Expr symbol);
  Value placeOf(OpBuilder &b, Value entry);

  Selection &s;
  SizeTable &sizes;
  OpBuilder b;
  Location loc;
  unsigned member;
  int64_t length = 0; ///< of the lists that are selected from
  Value keys, places;
};
} // namespace

/// Open extents are those of the elements; without members, of the selection.
Value Writer::empty(ArrayRef<int64_t> shape, Type element, bool hasMembers) {
  SmallVector<Value> open;
  for (auto [d, extent] : llvm::enumerate(shape))
    if (ShapedType::isDynamic(extent))
      open.push_back(sizes.materialise(b, loc,
                                       hasMembers
                                           ? sizes.of(s.elements(), d)
                                           : sizes.of(s.all.getSource(), d)));
  return b.create<tensor::EmptyOp>(loc, shape, element, open);
}

/// The first `count` entries of every list.
Value Writer::sliceOf(Value list, int64_t count) {
  auto type = cast<RankedTensorType>(list.getType());
  if (type.getDimSize(member) == count)
    return list;
  SmallVector<OpFoldResult> offsets(type.getRank(), b.getIndexAttr(0));
  SmallVector<OpFoldResult> strides(type.getRank(), b.getIndexAttr(1)), extents;
  for (int64_t d = 0; d < type.getRank(); ++d) {
    if (d == int64_t(member))
      extents.push_back(b.getIndexAttr(count));
    else if (type.isDynamicDim(d))
      extents.push_back(sizes.materialise(b, loc, sizes.of(s.elements(), d)));
    else
      extents.push_back(b.getIndexAttr(type.getDimSize(d)));
  }
  return b.create<tensor::ExtractSliceOp>(loc, list, offsets, extents, strides);
}

/// One list a group, as long as the longest that is asked for.
void Writer::makeLists() {
  length = std::min<int64_t>(s.all.getK(), s.members);
  int64_t longest = length;
  for (TopKOp list : s.lists)
    longest = std::max<int64_t>(longest, list.getK());
  OpBuilder::InsertionGuard guard(b);
  TopKOp first = s.lists.front();
  b.setInsertionPoint(first);
  auto shaped = [&](Value like) {
    auto type = cast<RankedTensorType>(like.getType());
    SmallVector<int64_t> shape(type.getShape());
    shape[member] = longest;
    return RankedTensorType::get(shape, type.getElementType());
  };
  auto lists = b.create<TopKOp>(first.getLoc(), shaped(first.getKeys()),
                                shaped(first.getPositions()), s.elements(),
                                member, longest, s.all.getLargest());
  keys = sliceOf(lists.getKeys(), length);
  places = sliceOf(lists.getPositions(), length);
  for (TopKOp list : s.lists) {
    list.getKeys().replaceAllUsesWith(sliceOf(lists.getKeys(), list.getK()));
    list.getPositions().replaceAllUsesWith(
        sliceOf(lists.getPositions(), list.getK()));
  }
}

/// A subscript inside a body whose loops are the indices of the formula.
Value Writer::subscript(OpBuilder &b, AffineExpr e) {
  if (auto constant = dyn_cast<AffineConstantExpr>(e))
    return b.create<arith::ConstantIndexOp>(loc, constant.getValue());
  if (auto dim = dyn_cast<AffineDimExpr>(e))
    return b.create<linalg::IndexOp>(loc, dim.getPosition());
  auto binary = cast<AffineBinaryOpExpr>(e);
  Value x = subscript(b, binary.getLHS()), y = subscript(b, binary.getRHS());
  switch (e.getKind()) {
  case AffineExprKind::Add:
    return b.create<arith::AddIOp>(loc, x, y);
  case AffineExprKind::Mul:
    return b.create<arith::MulIOp>(loc, x, y);
  case AffineExprKind::FloorDiv:
    return b.create<arith::DivUIOp>(loc, x, y);
  default:
    return b.create<arith::RemUIOp>(loc, x, y);
  }
}

Value Writer::leaf(OpBuilder &b, Expr symbol) {
  if (symbol.isSym(algebra::Role::Index))
    return b.create<linalg::IndexOp>(loc, symbol.symbol().ordinal);
  const Read &read = *llvm::find_if(
      s.formula->reads, [&](const Read &r) { return r.symbol == symbol; });
  SmallVector<Value> at;
  SmallVector<Expr> computed;
  for (const IndexExpr &e : read.subscripts)
    at.push_back(subscript(
        b, s.formula->atoms.toAffine(e, b.getContext(), 64, computed)));
  return b.create<tensor::ExtractOp>(loc, read.operand, at);
}

/// The position of a member of the group in work, among all.
Value Writer::placeOf(OpBuilder &b, Value entry) {
  if (!entry.getType().isIndex())
    entry = b.create<arith::IndexCastOp>(loc, b.getIndexType(), entry);
  Value count = b.create<arith::ConstantIndexOp>(loc, s.members);
  Value group = b.create<linalg::IndexOp>(loc, s.group);
  Value first = b.create<arith::MulIOp>(loc, group, count);
  return b.create<arith::AddIOp>(loc, first, entry);
}

/// The list where the group is kept, what stands for its elements elsewhere; or
/// the positions of both.
Value Writer::masked(Value list, bool isPosition, Type element) {
  auto type = cast<RankedTensorType>(list.getType());
  Value init = empty(type.getShape(), element, /*hasMembers=*/true);
  SmallVector<AffineMap> maps(2, b.getMultiDimIdentityMap(type.getRank()));
  SmallVector<utils::IteratorType> loops(type.getRank(),
                                         utils::IteratorType::parallel);
  auto body = [&](OpBuilder &b, Location loc, ValueRange args) {
    ScalarExport scalars(
        b, loc, [&](Expr symbol) { return leaf(b, symbol); },
        [](Expr, Value v) { return v; });
    Value kept = args[0], other;
    if (isPosition) {
      auto asElement = [&](Value index) -> Value {
        return element.isIndex()
                   ? index
                   : b.create<arith::IndexCastOp>(loc, element, index);
      };
      kept = asElement(placeOf(b, kept));
      other = asElement(placeOf(b, b.create<linalg::IndexOp>(loc, member)));
    } else {
      other = scalars.valueAs(s.other, element);
    }
    Value condition = scalars.value(s.condition);
    Value result = b.create<arith::SelectOp>(
        loc, condition, s.isTurned ? other : kept, s.isTurned ? kept : other);
    b.create<linalg::YieldOp>(loc, result);
  };
  return b
      .create<linalg::GenericOp>(loc, TypeRange{init.getType()},
                                 ValueRange{list}, ValueRange{init}, maps,
                                 loops, body)
      .getResult(0);
}

/// Groups and entries of their lists as one axis.
Value Writer::flat(Value tensor) {
  int64_t rank = cast<RankedTensorType>(tensor.getType()).getRank();
  SmallVector<ReassociationIndices> dims;
  for (int64_t d = 0; d < rank; ++d) {
    if (d == int64_t(member))
      dims.back().push_back(d);
    else
      dims.push_back({d});
  }
  return b.create<tensor::CollapseShapeOp>(loc, tensor, dims);
}

/// Where what was found in the lists stands; -1 where nothing was.
Value Writer::positions(Value found, Value flatPositions) {
  auto type = cast<RankedTensorType>(found.getType());
  Type element = type.getElementType();
  Value init = empty(type.getShape(), element, /*hasMembers=*/false);
  AffineMap identity = b.getMultiDimIdentityMap(type.getRank());
  SmallVector<utils::IteratorType> loops(type.getRank(),
                                         utils::IteratorType::parallel);
  auto body = [&](OpBuilder &b, Location loc, ValueRange args) {
    Value at = args[0];
    if (!element.isIndex())
      at = b.create<arith::IndexCastOp>(loc, b.getIndexType(), at);
    Value zero = b.create<arith::ConstantIndexOp>(loc, 0);
    Value entry = b.create<arith::MaxSIOp>(loc, at, zero);
    SmallVector<Value> subscripts;
    for (int64_t d = 0; d < type.getRank(); ++d)
      subscripts.push_back(d == int64_t(s.group)
                               ? entry
                               : b.create<linalg::IndexOp>(loc, d).getResult());
    Value place = b.create<tensor::ExtractOp>(loc, flatPositions, subscripts);
    Value isNone =
        b.create<arith::CmpIOp>(loc, arith::CmpIPredicate::slt, at, zero);
    Value result = b.create<arith::SelectOp>(loc, isNone, args[0], place);
    b.create<linalg::YieldOp>(loc, result);
  };
  return b
      .create<linalg::GenericOp>(
          loc, TypeRange{init.getType()}, ValueRange{found}, ValueRange{init},
          ArrayRef<AffineMap>{identity, identity}, loops, body)
      .getResult(0);
}

void Writer::run() {
  makeLists();
  auto type = cast<RankedTensorType>(s.all.getPositions().getType());
  Type keyType =
      cast<RankedTensorType>(s.all.getKeys().getType()).getElementType();
  Value flatKeys = flat(masked(keys, /*isPosition=*/false, keyType));
  Value flatPlaces =
      flat(masked(places, /*isPosition=*/true, type.getElementType()));
  auto best =
      b.create<TopKOp>(loc, s.all.getKeys().getType(), type, flatKeys,
                       s.all.getDim(), s.all.getK(), s.all.getLargest());
  Value at = positions(best.getPositions(), flatPlaces);
  s.all.getKeys().replaceAllUsesWith(best.getKeys());
  s.all.getPositions().replaceAllUsesWith(at);
}

void refold::selectFromLists(func::FuncOp function,
                             std::vector<FusionNote> &notes) {
  // Results come first, and what is replaced is read by nobody.
  SmallVector<TopKOp> selections(function.getOps<TopKOp>());
  for (size_t i = 0; i < selections.size(); ++i) {
    SizeTable sizes(function);
    SmallVector<TopKOp> earlier;
    for (TopKOp list : ArrayRef(selections).take_front(i))
      if (!list->use_empty())
        earlier.push_back(list);
    TopKOp all = selections[i];
    std::optional<Selection> s = match(all, earlier, sizes);
    if (!s)
      continue;
    notes.push_back(
        {"lists-of-groups",
         "'" + sourceName(all.getKeys()) + "' is selected from the " +
             std::to_string(std::min<int64_t>(all.getK(), s->members)) +
             " best of each of " + std::to_string(s->groups) +
             " groups, in 1 pass over '" + sourceName(s->elements()) +
             "' instead of 2",
         all.getLoc()});
    Writer(*s, sizes).run();
  }
}
