// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Analysis/Formula.h"

#include "refold/Analysis/Kernels.h"
#include "refold/Dialect/Refold/IR/Refold.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/ScopeExit.h"
#include "llvm/ADT/TypeSwitch.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using algebra::Expr;
using algebra::IndexRole;
using algebra::Role;

/// Producers inlined into each other beyond this are cut by a kernel boundary:
/// it bounds the recursion here and the nesting that lib/Algebra accepts.
static constexpr unsigned kMaxInlinedDepth = 96;

/// One generic's body under given loop subscripts.
struct Formula::Body {
  Body() = default;
  Body(linalg::GenericOp generic, Subscripts loops, BlockArgument accumulator)
      : generic(generic), loops(std::move(loops)), accumulator(accumulator) {}
  linalg::GenericOp generic;
  Subscripts loops;
  BlockArgument accumulator;
  DenseMap<Value, Scalar> memo;
};

//===----------------------------------------------------------------------===//
// Names and places
//===----------------------------------------------------------------------===//

static StringRef nameOfLocation(Location loc) {
  if (auto name = dyn_cast<NameLoc>(loc))
    return name.getName().getValue();
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (StringRef name = nameOfLocation(part); !name.empty())
        return name;
  return "";
}

std::string refold::sourceName(Value value) {
  auto arg = dyn_cast<BlockArgument>(value);
  if (!arg)
    return nameOfLocation(value.getLoc()).str();
  if (auto function = dyn_cast<func::FuncOp>(arg.getOwner()->getParentOp()))
    if (auto name = function.getArgAttrOfType<StringAttr>(arg.getArgNumber(),
                                                          "refold.name"))
      return name.str();
  return "arg" + std::to_string(arg.getArgNumber());
}

algebra::Place refold::placeOf(Location loc) {
  if (auto file = dyn_cast<FileLineColLoc>(loc))
    return {file.getFilename().str(), file.getLine(), file.getColumn()};
  if (auto name = dyn_cast<NameLoc>(loc))
    return placeOf(name.getChildLoc());
  if (auto fused = dyn_cast<FusedLoc>(loc))
    for (Location part : fused.getLocations())
      if (algebra::Place place = placeOf(part); place.line)
        return place;
  return {};
}

std::string Formula::freshName(StringRef base) {
  unsigned count = ++names[base];
  return count == 1 ? base.str() : (base + "_" + Twine(count)).str();
}

//===----------------------------------------------------------------------===//
// Indices, sizes, reads
//===----------------------------------------------------------------------===//

Formula::Formula(SizeTable &sizes, FormulaPolicy policy)
    : context(std::make_shared<algebra::Context>()), cascade(*context),
      sizes(sizes), policy(std::move(policy)) {}

unsigned Formula::addIndex(std::string name, IndexRole role, Size extent) {
  unsigned number = cascade.addIndex(freshName(name), role,
                                     extent.isStatic() ? extent.factor : -1);
  extents.push_back(extent);
  if (role == IndexRole::Stream)
    streams.push_back(number);
  for (auto &[size, symbol] : sizeSymbols)
    if (size == extent)
      cascade.indices[number].length = symbol;
  return number;
}

Expr Formula::refuse(StringRef key, const Twine &text, Operation *at,
                     Value materialise) {
  if (!refusal)
    refusal = Refusal{key.str(), text.str(), at, materialise};
  return Expr();
}

uint64_t Formula::indicesOf(const Subscripts &subscripts) const {
  uint64_t set = 0;
  for (const IndexExpr &e : subscripts)
    set |= atoms.indicesOf(e);
  return set;
}

Expr Formula::sizeSymbol(const Size &size) {
  if (size.isStatic())
    return context->integer(size.factor, algebra::Type::Index);
  for (auto [i, extent] : llvm::enumerate(extents))
    if (extent == size)
      return cascade.indices[i].length;
  for (auto &[known, symbol] : sizeSymbols)
    if (known == size)
      return symbol;
  // A product of sizes is written as one, so that a count of (c, p) is the
  // length of that stream.
  if (size.factor != 1 || size.bases.size() > 1) {
    Expr product;
    auto times = [&](Expr own) {
      product = product ? context->mul(product, own) : own;
    };
    for (unsigned base : size.bases)
      times(sizeSymbol(Size{1, {base}}));
    // The number last, where arithmetic on sizes has it, too.
    if (size.factor != 1)
      times(context->integer(size.factor, algebra::Type::Index));
    return product;
  }
  StringRef name = sizes.nameOf(size);
  algebra::Facts facts;
  facts.nonNegative = true;
  facts.mayBeNegInf = false;
  Expr symbol = cascade.addRead(freshName(name.empty() ? "size" : name.str()),
                                0, algebra::Type::Index, facts);
  sizeSymbols.push_back({size, symbol});
  reads.push_back({Value(), size, {}, symbol});
  return symbol;
}

/// A subscript as a number of the algebra.
Expr Formula::valueOf(const IndexExpr &index) {
  algebra::Context &c = *context;
  Expr sum;
  auto add = [&](Expr part) { sum = sum ? c.add(sum, part) : part; };
  for (const IndexExpr::Term &term : index.terms) {
    const IndexAtoms::Atom atom = atoms.atom(term.atom);
    Expr value;
    switch (atom.kind) {
    case IndexAtoms::Kind::Index:
      value = cascade.indices[atom.index].value;
      break;
    case IndexAtoms::Kind::One:
      break;
    case IndexAtoms::Kind::Computed:
      value = atom.computed;
      break;
    case IndexAtoms::Kind::FloorDiv:
    case IndexAtoms::Kind::Mod:
      value =
          c.fn(atom.kind == IndexAtoms::Kind::FloorDiv ? algebra::Fn::FloorDiv
                                                       : algebra::Fn::Rem,
               valueOf(atom.inner), sizeSymbol(atom.divisor));
    }
    Expr stride = sizeSymbol(term.stride);
    add(!value ? stride
               : (term.stride.isStatic(1) ? value : c.mul(value, stride)));
  }
  if (index.constant != 0 || !sum)
    add(c.integer(index.constant, algebra::Type::Index));
  return sum;
}

/// An offset by a size that is not known when compiling (the last element, for
/// one) is a value that is computed once; an affine subscript has none.
IndexExpr Formula::withComputedOffset(const IndexExpr &subscript) {
  IndexExpr rest;
  rest.constant = subscript.constant;
  Expr offset;
  for (const IndexExpr::Term &term : subscript.terms) {
    bool isOffset = atoms.atom(term.atom).kind == IndexAtoms::Kind::One &&
                    !term.stride.isStatic();
    if (!isOffset) {
      rest.terms.push_back(term);
      continue;
    }
    Expr size = sizeSymbol(term.stride);
    offset = offset ? context->add(offset, size) : size;
  }
  return offset ? atoms.add(rest, atoms.computed(offset)) : subscript;
}

Expr Formula::read(Value tensor, const Subscripts &given) {
  Subscripts subscripts;
  for (const IndexExpr &e : given)
    subscripts.push_back(withComputedOffset(e));
  Type elementType = cast<RankedTensorType>(tensor.getType()).getElementType();
  std::optional<algebra::Type> type = importType(elementType);
  if (!type) {
    std::string text;
    llvm::raw_string_ostream(text) << "elements of type " << elementType;
    return refuse("unsupported-op", text, tensor.getDefiningOp());
  }
  for (const Read &r : reads)
    if (r.operand == tensor && r.subscripts == subscripts)
      return r.symbol;
  SmallVector<Expr> computed;
  for (const IndexExpr &e : subscripts)
    if (!atoms.toAffine(e, tensor.getContext(), 64, computed))
      return refuse("unsupported-access",
                    "'" + sourceName(tensor) +
                        "' is read at a multiple of a size that is not known "
                        "when compiling",
                    tensor.getDefiningOp());
  algebra::Facts facts;
  if (*type == algebra::Type::U8 || *type == algebra::Type::Bool)
    facts.nonNegative = true;
  if (!algebra::isFloat(*type))
    facts.mayBeNegInf = false;
  std::string name = sourceName(tensor);
  Expr symbol = cascade.addRead(freshName(name.empty() ? "t" : name),
                                indicesOf(subscripts), *type, facts);
  reads.push_back({tensor, std::nullopt, subscripts, symbol});
  return symbol;
}

//===----------------------------------------------------------------------===//
// Tensors
//===----------------------------------------------------------------------===//

Expr Formula::element(Value tensor, const Subscripts &subscripts) {
  auto &known = memo[tensor];
  for (auto &[at, value] : known)
    if (at == subscripts)
      return value;
  // What lies in memory is read at any depth.
  bool isRead = isa<BlockArgument>(tensor) || policy.isMaterialised(tensor);
  if (depth > kMaxInlinedDepth && !isRead)
    return refuse("unsupported-op", "the formula is nested too deeply",
                  tensor.getDefiningOp(), tensor);
  ++depth;
  auto leave = llvm::make_scope_exit([&] { --depth; });
  Expr value = elementFresh(tensor, subscripts);
  if (value)
    memo[tensor].push_back({subscripts, value});
  return value;
}

Expr Formula::elementFresh(Value tensor, const Subscripts &subscripts) {
  if (isa<BlockArgument>(tensor) ||
      (policy.isMaterialised(tensor) &&
       !(policy.seesThrough && policy.seesThrough(tensor, subscripts, *this))))
    return read(tensor, subscripts);
  Operation *op = tensor.getDefiningOp();
  unsigned result = cast<OpResult>(tensor).getResultNumber();
  return llvm::TypeSwitch<Operation *, Expr>(op)
      .Case([&](arith::ConstantOp) { return ofConstant(tensor, subscripts); })
      .Case([&](linalg::GenericOp generic) {
        return ofGeneric(generic, result, subscripts);
      })
      .Case([&](linalg::FillOp fill) {
        Body scope;
        std::optional<Scalar> value = evaluate(fill.getInputs()[0], scope);
        return value ? value->expr : Expr();
      })
      .Case([&](tensor::CastOp cast) {
        return element(cast.getSource(), subscripts);
      })
      .Case<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
            tensor::ExtractSliceOp>(
          [&](auto) { return ofView(op, subscripts); })
      .Case([&](TopKOp) { return ofTopK(op, result, subscripts); })
      .Case([&](tensor::FromElementsOp from) {
        if (from.getElements().size() != 1)
          return refuse("unsupported-op", "tensor.from_elements of several",
                        op);
        Body scope;
        std::optional<Scalar> value = evaluate(from.getElements()[0], scope);
        return value ? value->expr : Expr();
      })
      .Default([&](Operation *) {
        return refuse("unsupported-op",
                      "'" + op->getName().getStringRef() +
                          "' has no form as a formula",
                      op);
      });
}

Expr Formula::ofConstant(Value tensor, const Subscripts &subscripts) {
  auto constant = tensor.getDefiningOp<arith::ConstantOp>();
  auto dense = dyn_cast<DenseElementsAttr>(constant.getValue());
  if (!dense || !dense.isSplat())
    return read(tensor, subscripts);
  std::optional<algebra::Type> type = importType(dense.getElementType());
  if (!type)
    return read(tensor, subscripts);
  if (algebra::isFloat(*type))
    return context->real(dense.getSplatValue<APFloat>().convertToDouble(),
                         algebra::computeType(*type));
  APInt value = dense.getSplatValue<APInt>();
  return *type == algebra::Type::Bool
             ? context->boolean(value.getBoolValue())
             : context->integer(value.getSExtValue(), *type);
}

/// Subscripts of the source of a reshape or slice; nothing where an offset or
/// stride is not a number.
static std::optional<Subscripts> throughView(Operation *op,
                                             const Subscripts &subscripts,
                                             IndexAtoms &atoms,
                                             SizeTable &sizes) {
  Subscripts source;
  if (auto expand = dyn_cast<tensor::ExpandShapeOp>(op)) {
    for (const auto &group : expand.getReassociationIndices()) {
      IndexExpr sum;
      for (int64_t d : group)
        sum = atoms.add(atoms.scale(sum, sizes.of(expand.getResult(), d)),
                        subscripts[d]);
      source.push_back(sum);
    }
    return source;
  }
  if (auto collapse = dyn_cast<tensor::CollapseShapeOp>(op)) {
    source.resize(collapse.getSrcType().getRank());
    for (auto [k, group] :
         llvm::enumerate(collapse.getReassociationIndices())) {
      IndexExpr rest = subscripts[k];
      for (int64_t d : llvm::reverse(ArrayRef(group).drop_front())) {
        Size size = sizes.of(collapse.getSrc(), d);
        source[d] = atoms.mod(rest, size);
        rest = atoms.floorDiv(rest, size);
      }
      source[group.front()] = rest;
    }
    return source;
  }
  auto slice = cast<tensor::ExtractSliceOp>(op);
  llvm::SmallBitVector dropped = slice.getDroppedDims();
  unsigned kept = 0;
  for (unsigned d = 0; d < dropped.size(); ++d) {
    IndexExpr at = dropped[d] ? IndexExpr(0) : subscripts[kept++];
    std::optional<int64_t> offset =
        getConstantIntValue(slice.getMixedOffsets()[d]);
    std::optional<int64_t> stride =
        getConstantIntValue(slice.getMixedStrides()[d]);
    if (!offset || !stride)
      return std::nullopt;
    source.push_back(atoms.add(atoms.scale(at, Size::constant(*stride)),
                               IndexExpr(*offset)));
  }
  return source;
}

Expr Formula::ofView(Operation *view, const Subscripts &subscripts) {
  Value source = view->getOperand(0), root = viewRoot(source);
  bool inMemory = isa<BlockArgument>(root) || policy.isMaterialised(root) ||
                  isa_and_nonnull<arith::ConstantOp>(root.getDefiningOp());
  std::optional<Subscripts> through =
      throughView(view, subscripts, atoms, sizes);
  if (!inMemory)
    return through ? element(source, *through)
                   : refuse("unsupported-access",
                            "a slice starts where only the running program "
                            "knows",
                            view, root);
  // In memory both the view and its source can be read: the source where its
  // subscripts are affine, so that equal reads look equal.
  if (through) {
    Expr value = element(source, *through);
    if (value)
      return value;
    refusal.reset();
  }
  return read(view->getResult(0), subscripts);
}

//===----------------------------------------------------------------------===//
// Generics
//===----------------------------------------------------------------------===//

static std::optional<IndexExpr> apply(AffineExpr e, const Subscripts &loops,
                                      IndexAtoms &atoms) {
  if (auto dim = dyn_cast<AffineDimExpr>(e))
    return loops[dim.getPosition()];
  if (auto constant = dyn_cast<AffineConstantExpr>(e))
    return IndexExpr(constant.getValue());
  auto binary = dyn_cast<AffineBinaryOpExpr>(e);
  if (!binary)
    return std::nullopt;
  std::optional<IndexExpr> left = apply(binary.getLHS(), loops, atoms);
  std::optional<IndexExpr> right = apply(binary.getRHS(), loops, atoms);
  if (!left || !right)
    return std::nullopt;
  if (binary.getKind() == AffineExprKind::Add)
    return atoms.add(*left, *right);
  if (!right->isConstant())
    return std::nullopt;
  Size by = Size::constant(right->constant);
  if (binary.getKind() == AffineExprKind::Mul)
    return atoms.scale(*left, by);
  if (by.factor <= 0)
    return std::nullopt;
  if (binary.getKind() == AffineExprKind::FloorDiv)
    return atoms.floorDiv(*left, by);
  if (binary.getKind() == AffineExprKind::Mod)
    return atoms.mod(*left, by);
  return std::nullopt;
}

std::optional<Subscripts> Formula::loopsOf(linalg::GenericOp generic,
                                           unsigned result,
                                           const Subscripts &subscripts) {
  AffineMap map =
      generic.getMatchingIndexingMap(generic.getDpsInitOperand(result));
  Subscripts loops(generic.getNumLoops());
  for (auto [k, e] : llvm::enumerate(map.getResults())) {
    if (auto dim = dyn_cast<AffineDimExpr>(e))
      loops[dim.getPosition()] = subscripts[k];
    else if (!isa<AffineConstantExpr>(e)) {
      refuse("unsupported-access", "a result is not written index by index",
             generic);
      return std::nullopt;
    }
  }
  return loops;
}

Expr Formula::ofGeneric(linalg::GenericOp generic, unsigned result,
                        const Subscripts &subscripts) {
  if (generic.getNumReductionLoops())
    return ofReduction(generic, result, subscripts);
  std::optional<Subscripts> loops = loopsOf(generic, result, subscripts);
  if (!loops)
    return Expr();
  inlined.insert(generic);
  Body body(generic, *loops, BlockArgument());
  Operation *yield = generic.getBody()->getTerminator();
  std::optional<Scalar> value = evaluate(yield->getOperand(result), body);
  return value ? value->expr : Expr();
}

std::optional<Scalar> Formula::evaluate(Value value, Body &body) {
  if (auto it = body.memo.find(value); it != body.memo.end())
    return it->second;
  std::optional<Scalar> scalar;
  if (auto arg = dyn_cast<BlockArgument>(value)) {
    if (!body.generic || arg.getOwner() != body.generic.getBody()) {
      refuse("unsupported-op", "a body reads a value of an enclosing region",
             body.generic);
      return std::nullopt;
    }
    if (arg == body.accumulator) {
      refuse("not-a-reduction", "the body reads its accumulator twice",
             body.generic);
      return std::nullopt;
    }
    OpOperand *operand = body.generic.getMatchingOpOperand(arg);
    Subscripts at;
    for (AffineExpr e :
         body.generic.getMatchingIndexingMap(operand).getResults()) {
      std::optional<IndexExpr> subscript = apply(e, body.loops, atoms);
      if (!subscript) {
        refuse("unsupported-access", "a subscript is no function of indices",
               body.generic);
        return std::nullopt;
      }
      at.push_back(*subscript);
    }
    if (Expr e = isa<ShapedType>(operand->get().getType())
                     ? element(operand->get(), at)
                     : Expr())
      scalar = Scalar{e, std::nullopt};
    else if (!isa<ShapedType>(operand->get().getType()))
      scalar = evaluate(operand->get(), body);
  } else {
    Operation *op = value.getDefiningOp();
    scalar = evaluateOp(op, cast<OpResult>(value).getResultNumber(), body);
  }
  if (!scalar)
    return std::nullopt;
  body.memo[value] = *scalar;
  return scalar;
}

/// A place that a result of the same kernel says: no sweep can read it.
void Formula::refuseComputed(Expr place, Operation *op) {
  for (Expr symbol : algebra::symbolsOf(place))
    for (const StageUse &use : stageUses) {
      const std::vector<Expr> &results = cascade.stages[use.stage].results;
      auto it = llvm::find(results, symbol);
      if (it == results.end())
        continue;
      refuse("unsupported-access",
             "a subscript is '" + symbol.symbol().name +
                 "', a result of the same sweep",
             op, use.op->getResult(it - results.begin()));
      return;
    }
}

std::optional<Scalar> Formula::evaluateOp(Operation *op, unsigned result,
                                          Body &body) {
  bool inBody = body.generic && op->getBlock() == body.generic.getBody();
  if (auto index = dyn_cast<linalg::IndexOp>(op)) {
    IndexExpr loop = body.loops[index.getDim()];
    return Scalar{valueOf(loop), loop};
  }
  // A size of the function: a number that the algebra knows as a length.
  if (!inBody && op->getResult(result).getType().isIndex() &&
      !isa<arith::ConstantOp>(op)) {
    IndexExpr size = atoms.size(sizes.ofIndex(op->getResult(result)));
    return Scalar{valueOf(size), size};
  }
  SmallVector<Scalar> operands;
  Subscripts at;
  auto extract = dyn_cast<tensor::ExtractOp>(op);
  for (Value operand : extract ? ValueRange(extract.getIndices())
                               : ValueRange(op->getOperands())) {
    std::optional<Scalar> scalar = evaluate(operand, body);
    if (!scalar)
      return std::nullopt;
    if (extract && scalar->expr && scalar->expr.uses(algebra::Role::Stage)) {
      refuseComputed(scalar->expr, op);
      return std::nullopt;
    }
    operands.push_back(*scalar);
    at.push_back(scalar->index ? *scalar->index : atoms.computed(scalar->expr));
  }
  if (extract) {
    Expr e = element(extract.getTensor(), at);
    return e ? std::optional(Scalar{e, std::nullopt}) : std::nullopt;
  }
  std::optional<Scalar> scalar =
      importScalarOp(op, result, operands, *context, atoms);
  if (!scalar)
    refuse("unsupported-op",
           "'" + op->getName().getStringRef() + "' has no form as a formula",
           op);
  return scalar;
}

/// The summand or key of a reduction under given loops.
Expr Formula::term(linalg::GenericOp generic, const Subscripts &loops,
                   algebra::Reducer &reducer) {
  if (generic.getNumResults() != 1)
    return refuse("not-a-reduction", "several accumulators in one body",
                  generic);
  BlockArgument acc = generic.getRegionOutputArgs()[0];
  Operation *yield = generic.getBody()->getTerminator();
  std::optional<Combiner> combiner = matchCombiner(yield->getOperand(0), acc);
  if (!combiner)
    return refuse("not-a-reduction",
                  "the body is no reduction by one known combiner", generic);
  reducer = combiner->reducer;
  Body body(generic, loops, acc);
  std::optional<Scalar> value = evaluate(combiner->term, body);
  if (!value)
    return Expr();
  return combiner->isUnsigned
             ? unsignedValue(*context, value->expr, combiner->term.getType())
             : value->expr;
}
