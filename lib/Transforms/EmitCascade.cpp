// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A derived program as a refold.cascade: the definitions in order, one op each.
#include "ExportScalar.h"

#include "refold/Transforms/FuseCascades.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ADT/StringSet.h"

using namespace mlir;
using namespace refold;
using algebra::Expr;
using algebra::IndexRole;
using algebra::IndexSet;

namespace {

class CascadeEmitter {
public:
  CascadeEmitter(OpBuilder &b, Formula &formula,
                 const algebra::Program &program,
                 ArrayRef<KernelOutput> outputs)
      : b(b), formula(formula), program(program), outputs(outputs),
        loc(outputs[0].tensor.getLoc()), extents(formula.extents) {
    // Places of lists that the derivation made.
    for (size_t i = extents.size(); i < program.indices.size(); ++i)
      extents.push_back(Size::constant(program.indices[i].extent));
  }

  FailureOr<EmittedCascade> emit();

private:
  void findBest();
  bool readsBest(Expr e);
  void findUsed();
  void use(Expr e);
  CascadeOp::Role role(unsigned index) const;
  void orderIndices();
  void addOperands();
  void placeSizes();
  void buildShell();
  LogicalResult fillBody();
  void emitState(const algebra::State &state, ScalarExport &scalars);
  void emitTransport(StateOp op, const algebra::State &state);
  void emitWrite(unsigned output, ScalarExport &scalars);
  Value leaf(Expr symbol, ScalarExport &scalars);
  Value emitRead(const Read &read, ScalarExport &scalars);
  Value indexArg(unsigned algebraIndex) {
    return body->getArgument(position.lookup(algebraIndex));
  }
  Value operandArg(unsigned operand) {
    return body->getArgument(numIndices() + operand);
  }
  std::string argName(StringRef wanted);
  bool hasBest() const { return !best.empty(); }
  /// The rank index of extent 1 that single best elements get in the op.
  Value bestArg() { return body->getArgument(order.size()); }
  unsigned numIndices() const { return order.size() + hasBest(); }

  OpBuilder &b;
  Formula &formula;
  const algebra::Program &program;
  ArrayRef<KernelOutput> outputs;
  Location loc;
  std::vector<Size> extents; ///< of each index of the program

  algebra::ExprSet best;        ///< what an argmax makes, and what reads it
  SmallVector<bool> writesBest; ///< of each output
  algebra::ExprSet used;        ///< symbols
  IndexSet usedIndices = 0;
  SmallVector<unsigned> order; ///< algebra index of each index of the op
  DenseMap<unsigned, unsigned> position;
  SmallVector<Value> inputs, inits;
  DenseMap<Value, unsigned> inputNumber;
  DenseMap<const void *, unsigned> sizeNumber; ///< of size symbols
  SmallVector<Attribute> argNames;
  SmallVector<int64_t> sizes; ///< operand and dimension of each open extent
  llvm::StringSet<> takenNames;
  CascadeOp op;
  Block *body = nullptr;
};

} // namespace

void CascadeEmitter::use(Expr e) {
  usedIndices |= e.indices();
  algebra::forEachNode(e, [&](Expr node) {
    if (node.isSym() && used.insert(node).second)
      usedIndices |= node.symbol().indices;
    if (node.is(algebra::Kind::Contract))
      usedIndices |= node->contracted;
  });
}

bool CascadeEmitter::readsBest(Expr e) {
  return llvm::any_of(algebra::symbolsOf(e),
                      [&](Expr symbol) { return best.count(symbol) != 0; });
}

/// The algebra has a single best element without a rank; the op's ordered
/// states always have one. Outputs that read it get one more dimension of size
/// 1, which is taken off again behind the op.
void CascadeEmitter::findBest() {
  for (const algebra::Definition &definition : program.definitions) {
    if (auto *let = std::get_if<algebra::Let>(&definition)) {
      if (readsBest(let->value))
        best.insert(let->symbol);
      continue;
    }
    const auto &state = std::get<algebra::State>(definition);
    bool isBest = state.reducer == algebra::Reducer::TopK && state.rank < 0;
    for (const auto *operands : {&state.values, &state.pivots, &state.with})
      for (Expr operand : *operands)
        isBest |= readsBest(operand);
    if (isBest)
      best.insert(state.results.begin(), state.results.end());
  }
  for (const algebra::ProgramOutput &output : program.outputs)
    writesBest.push_back(readsBest(output.value));
}

void CascadeEmitter::findUsed() {
  for (const algebra::Definition &definition : program.definitions) {
    if (auto *let = std::get_if<algebra::Let>(&definition)) {
      use(let->value);
      continue;
    }
    const auto &state = std::get<algebra::State>(definition);
    for (Expr value : state.values)
      use(value);
    for (Expr pivot : state.pivots)
      use(pivot);
    if (state.transport)
      use(state.transport);
    usedIndices |= state.indices;
  }
  for (const algebra::ProgramOutput &output : program.outputs)
    use(output.value);
  for (const KernelOutput &output : outputs)
    for (std::optional<unsigned> d : output.dims)
      if (d)
        usedIndices |= IndexSet(1) << *d;
  // What subscripts are computed from is used too.
  for (const Read &read : formula.reads) {
    if (!used.count(read.symbol))
      continue;
    SmallVector<Expr> computed;
    for (const IndexExpr &e : read.subscripts)
      formula.atoms.toAffine(e, b.getContext(), 64, computed);
    for (Expr e : computed)
      use(e);
  }
}

static CascadeOp::Role roleOf(IndexRole role) {
  switch (role) {
  case IndexRole::Row:
    return CascadeOp::Row;
  case IndexRole::Stream:
    return CascadeOp::Stream;
  case IndexRole::Inner:
    return CascadeOp::Inner;
  case IndexRole::Carried:
  case IndexRole::Rank:
    return CascadeOp::Carried;
  }
  return CascadeOp::Row;
}

/// What an index is to the op: pivots have rows only, so that a carried index
/// that one of them has is a row.
CascadeOp::Role CascadeEmitter::role(unsigned index) const {
  CascadeOp::Role own = roleOf(program.indices[index].role);
  if (own != CascadeOp::Carried)
    return own;
  for (const algebra::Definition &definition : program.definitions)
    if (auto *state = std::get_if<algebra::State>(&definition))
      for (Expr pivot : state->pivots)
        if (pivot.indices() & (IndexSet(1) << index))
          return CascadeOp::Row;
  return own;
}

/// Rows, stream, inner, carried: the order in which the op is printed.
void CascadeEmitter::orderIndices() {
  bool reduces = llvm::any_of(program.definitions, [](const auto &d) {
    return std::holds_alternative<algebra::State>(d);
  });
  for (int32_t wantedRole = CascadeOp::Row; wantedRole <= CascadeOp::Carried;
       ++wantedRole)
    for (auto [i, index] : llvm::enumerate(program.indices)) {
      bool wanted = (usedIndices & (IndexSet(1) << i)) ||
                    (reduces && index.role == IndexRole::Stream);
      if (role(i) != wantedRole || !wanted)
        continue;
      position[i] = order.size();
      order.push_back(i);
    }
}

std::string CascadeEmitter::argName(StringRef wanted) {
  std::string name;
  for (char c : wanted)
    name += llvm::isAlnum(c) || c == '_' ? c : '_';
  if (name.empty() || llvm::isDigit(name[0]))
    name = "t" + name;
  std::string fresh = name;
  for (unsigned k = 2; !takenNames.insert(fresh).second; ++k)
    fresh = name + "_" + std::to_string(k);
  return fresh;
}

void CascadeEmitter::addOperands() {
  for (unsigned i : order)
    takenNames.insert(program.indices[i].name);
  for (const Read &read : formula.reads) {
    if (!used.count(read.symbol))
      continue;
    if (read.size) {
      bool isLength = llvm::any_of(order, [&](unsigned i) {
        return program.indices[i].length == read.symbol;
      });
      if (isLength)
        continue;
      sizeNumber[read.symbol.get()] = inputs.size();
      inputs.push_back(formula.sizes.materialise(b, loc, *read.size));
      argNames.push_back(b.getStringAttr(argName(read.symbol.symbol().name)));
      continue;
    }
    auto [it, fresh] = inputNumber.try_emplace(read.operand, inputs.size());
    if (!fresh)
      continue;
    inputs.push_back(read.operand);
    argNames.push_back(b.getStringAttr(argName(sourceName(read.operand))));
  }
  // The length of an index that nothing in this kernel runs along.
  for (auto [i, index] : llvm::enumerate(program.indices)) {
    if (llvm::is_contained(order, i) || !used.count(index.length) ||
        sizeNumber.count(index.length.get()))
      continue;
    sizeNumber[index.length.get()] = inputs.size();
    inputs.push_back(formula.sizes.materialise(b, loc, extents[i]));
    argNames.push_back(b.getStringAttr(argName(index.name + "_length")));
  }
  for (auto [i, output] : llvm::enumerate(outputs)) {
    auto type = cast<RankedTensorType>(output.tensor.getType());
    SmallVector<int64_t> shape(type.getShape());
    if (writesBest[i])
      shape.push_back(1);
    SmallVector<Value> dynamic;
    for (int64_t d = 0; d < type.getRank(); ++d)
      if (type.isDynamicDim(d))
        dynamic.push_back(formula.sizes.materialise(
            b, loc, formula.sizes.of(output.tensor, d)));
    inits.push_back(
        b.create<tensor::EmptyOp>(loc, shape, type.getElementType(), dynamic));
    argNames.push_back(b.getStringAttr(argName(sourceName(output.tensor))));
  }
}

/// Where the kernel reads the extents that are open: a dimension of a result or
/// an operand that has this size, or else a number of its own. A table of which
/// the front is read has another size.
void CascadeEmitter::placeSizes() {
  auto place = [&](const Size &size) -> std::optional<CascadeOp::SizePlace> {
    for (auto [i, output] : llvm::enumerate(outputs))
      for (int64_t d = 0;
           d < cast<RankedTensorType>(output.tensor.getType()).getRank(); ++d)
        if (formula.sizes.of(output.tensor, d) == size)
          return CascadeOp::SizePlace{unsigned(inputs.size() + i), d};
    for (auto [i, input] : llvm::enumerate(inputs))
      if (auto type = dyn_cast<RankedTensorType>(input.getType()))
        for (int64_t d = 0; d < type.getRank(); ++d)
          if (formula.sizes.of(input, d) == size)
            return CascadeOp::SizePlace{unsigned(i), d};
    return std::nullopt;
  };
  auto isOpen = [&](unsigned i) { return !extents[i].isStatic(); };
  DenseMap<unsigned, unsigned> ownNumber;
  for (unsigned i : order)
    if (isOpen(i) && !place(extents[i])) {
      ownNumber[i] = inputs.size();
      inputs.push_back(formula.sizes.materialise(b, loc, extents[i]));
      argNames.insert(argNames.begin() + ownNumber[i],
                      b.getStringAttr(argName("extent")));
    }
  sizes.assign(2 * numIndices(), -1);
  for (unsigned i : order) {
    if (!isOpen(i))
      continue;
    auto own = ownNumber.find(i);
    CascadeOp::SizePlace found = own != ownNumber.end()
                                     ? CascadeOp::SizePlace{own->second, -1}
                                     : *place(extents[i]);
    sizes[2 * position[i]] = found.operand;
    sizes[2 * position[i] + 1] = found.dim;
  }
}

void CascadeEmitter::buildShell() {
  SmallVector<Attribute> names;
  SmallVector<int32_t> roles;
  SmallVector<int64_t> staticExtents;
  for (unsigned i : order) {
    const algebra::Index &index = program.indices[i];
    names.push_back(b.getStringAttr(index.name));
    roles.push_back(role(i));
    staticExtents.push_back(extents[i].staticOrDynamic());
  }
  if (hasBest()) {
    names.push_back(b.getStringAttr(argName("best")));
    roles.push_back(CascadeOp::Carried);
    staticExtents.push_back(1);
  }
  SmallVector<Type> results;
  for (Value init : inits)
    results.push_back(init.getType());
  op = b.create<CascadeOp>(loc, results, inputs, inits, b.getArrayAttr(names),
                           b.getDenseI32ArrayAttr(roles),
                           b.getDenseI64ArrayAttr(staticExtents),
                           b.getArrayAttr(argNames), DictionaryAttr(),
                           llvm::all_of(sizes, [](int64_t s) { return s < 0; })
                               ? DenseI64ArrayAttr()
                               : b.getDenseI64ArrayAttr(sizes));
  body = &op.getBody().emplaceBlock();
  for (unsigned i = 0; i < numIndices(); ++i)
    body->addArgument(b.getIndexType(), loc);
  for (Value v : op->getOperands()) {
    Type type = v.getType();
    if (auto shaped = dyn_cast<ShapedType>(type))
      type = ArgType::get(b.getContext(), shaped.getElementType());
    body->addArgument(type, loc);
  }
}

Value CascadeEmitter::emitRead(const Read &read, ScalarExport &scalars) {
  SmallVector<AffineExpr> exprs;
  SmallVector<Expr> computed;
  for (const IndexExpr &e : read.subscripts)
    exprs.push_back(formula.atoms.toAffine(e, b.getContext(), 64, computed));
  // Dimensions of the map: the indices that occur, then computed values.
  SmallVector<Value> dims;
  DenseMap<AffineExpr, AffineExpr> rename;
  auto add = [&](unsigned from, Value value) {
    rename[getAffineDimExpr(from, b.getContext())] =
        getAffineDimExpr(dims.size(), b.getContext());
    dims.push_back(value);
  };
  for (unsigned i : order)
    if (llvm::any_of(exprs, [&](AffineExpr e) { return e.isFunctionOfDim(i); }))
      add(i, indexArg(i));
  for (auto [k, e] : llvm::enumerate(computed))
    add(64 + k, scalars.valueAs(e, b.getIndexType()));
  for (AffineExpr &e : exprs)
    e = e.replace(rename);
  Value source = operandArg(inputNumber.lookup(read.operand));
  Type element = cast<ArgType>(source.getType()).getElementType();
  return b.create<ReadOp>(loc, element, source, dims,
                          AffineMapAttr::get(AffineMap::get(
                              dims.size(), 0, exprs, b.getContext())));
}

Value CascadeEmitter::leaf(Expr symbol, ScalarExport &scalars) {
  for (unsigned i : order) {
    if (program.indices[i].value == symbol)
      return indexArg(i);
    if (program.indices[i].length == symbol)
      return b.create<ExtentOp>(loc, indexArg(i));
  }
  if (auto size = sizeNumber.find(symbol.get()); size != sizeNumber.end())
    return operandArg(size->second);
  for (const Read &read : formula.reads)
    if (read.symbol == symbol)
      return emitRead(read, scalars);
  return Value();
}

static Reducer exportReducer(const algebra::State &state) {
  switch (state.reducer) {
  case algebra::Reducer::Sum:
    return Reducer::Add;
  case algebra::Reducer::Prod:
    return Reducer::Mul;
  case algebra::Reducer::Max:
    return Reducer::Max;
  case algebra::Reducer::Min:
    return Reducer::Min;
  case algebra::Reducer::MaxNum:
    return Reducer::MaxNum;
  case algebra::Reducer::MinNum:
    return Reducer::MinNum;
  case algebra::Reducer::Any:
    return Reducer::Or;
  case algebra::Reducer::All:
    return Reducer::And;
  case algebra::Reducer::TopK:
    return state.largest ? Reducer::TopK : Reducer::BottomK;
  }
  return Reducer::Add;
}

void CascadeEmitter::emitTransport(StateOp op, const algebra::State &state) {
  OpBuilder::InsertionGuard guard(b);
  Block &block = op.getTransport().emplaceBlock();
  for (Value pivot : op.getPivots())
    for (int side = 0; side < 2; ++side)
      block.addArgument(pivot.getType(), loc);
  block.addArgument(op.getResult(0).getType(), loc);
  for (Value with : op.getWith())
    block.addArgument(with.getType(), loc);
  b.setInsertionPointToStart(&block);
  unsigned pivots = state.pivots.size();
  auto leafOf = [&](Expr symbol) -> Value {
    unsigned k = symbol.symbol().ordinal;
    switch (symbol.symbol().role) {
    case algebra::Role::Old:
      return block.getArgument(2 * k);
    case algebra::Role::New:
      return block.getArgument(2 * k + 1);
    case algebra::Role::Self:
      return block.getArgument(2 * pivots);
    case algebra::Role::With:
      return block.getArgument(2 * pivots + 1 + k);
    default: {
      ScalarExport none(b, loc, {}, {});
      return leaf(symbol, none);
    }
    }
  };
  ScalarExport scalars(b, loc, leafOf, {});
  Value moved = scalars.valueAs(state.transport, op.getResult(0).getType());
  b.create<YieldOp>(loc, moved);
}

void CascadeEmitter::emitState(const algebra::State &state,
                               ScalarExport &scalars) {
  SmallVector<Value> values, pivots, with, rank;
  SmallVector<Type> types;
  for (Expr value : state.values) {
    values.push_back(scalars.value(value));
    types.push_back(values.back().getType());
  }
  for (Expr pivot : state.pivots)
    pivots.push_back(scalars.value(pivot));
  for (Expr other : state.with)
    with.push_back(scalars.value(other));
  if (state.rank >= 0)
    rank.push_back(indexArg(state.rank));
  else if (state.reducer == algebra::Reducer::TopK)
    rank.push_back(bestArg());
  StringAttr law =
      state.law.empty() ? StringAttr() : b.getStringAttr(state.law);
  auto op = b.create<StateOp>(
      loc, types,
      ReducerAttr::get(b.getContext(),
                       state.reducer == algebra::Reducer::TopK && !state.largest
                           ? Reducer::BottomK
                           : exportReducer(state)),
      values, pivots, with, rank, law);
  for (auto [symbol, result] : llvm::zip(state.results, op.getResults()))
    scalars.define(symbol, result);
  if (state.transport)
    emitTransport(op, state);
}

void CascadeEmitter::emitWrite(unsigned output, ScalarExport &scalars) {
  const KernelOutput &where = outputs[output];
  Value target = operandArg(inputs.size() + output);
  Value value =
      scalars.valueAs(program.outputs[output].value,
                      cast<ArgType>(target.getType()).getElementType());
  SmallVector<AffineExpr> exprs;
  SmallVector<Value> dims;
  for (std::optional<unsigned> d : where.dims) {
    if (!d) {
      exprs.push_back(getAffineConstantExpr(0, b.getContext()));
      continue;
    }
    exprs.push_back(getAffineDimExpr(dims.size(), b.getContext()));
    dims.push_back(indexArg(*d));
  }
  if (writesBest[output]) {
    exprs.push_back(getAffineDimExpr(dims.size(), b.getContext()));
    dims.push_back(bestArg());
  }
  b.create<WriteOp>(loc, value, target, dims,
                    AffineMapAttr::get(
                        AffineMap::get(dims.size(), 0, exprs, b.getContext())));
}

LogicalResult CascadeEmitter::fillBody() {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(body);
  ScalarExport *self = nullptr;
  ScalarExport scalars(
      b, loc, [&](Expr symbol) { return leaf(symbol, *self); },
      [&](Expr e, Value value) -> Value {
        SmallVector<Value> over;
        for (unsigned i : order)
          if (e->contracted & (IndexSet(1) << i))
            over.push_back(indexArg(i));
        return b.create<ContractOp>(loc, value, over);
      });
  self = &scalars;
  for (const algebra::Definition &definition : program.definitions) {
    if (auto *let = std::get_if<algebra::Let>(&definition))
      scalars.define(let->symbol, scalars.value(let->value));
    else
      emitState(std::get<algebra::State>(definition), scalars);
  }
  for (unsigned i = 0; i < outputs.size(); ++i)
    emitWrite(i, scalars);
  // What was widened only to be stored as it was.
  for (auto widened : llvm::make_early_inc_range(body->getOps<arith::ExtFOp>()))
    if (widened->use_empty())
      widened->erase();
  return success();
}

FailureOr<EmittedCascade> CascadeEmitter::emit() {
  findBest();
  findUsed();
  orderIndices();
  addOperands();
  placeSizes();
  buildShell();
  if (failed(fillBody()) || failed(mlir::verify(op)))
    return failure();
  EmittedCascade emitted{op, {}};
  for (auto [i, output] : llvm::enumerate(outputs)) {
    Value result = op->getResult(i);
    if (writesBest[i]) {
      auto type = cast<RankedTensorType>(output.tensor.getType());
      SmallVector<ReassociationIndices> groups;
      for (int64_t d = 0; d < type.getRank(); ++d)
        groups.push_back({d});
      if (!groups.empty())
        groups.back().push_back(type.getRank());
      result = b.create<tensor::CollapseShapeOp>(loc, type, result, groups);
    }
    emitted.results.push_back(result);
  }
  return emitted;
}

FailureOr<EmittedCascade> refold::emitCascade(OpBuilder &b, Formula &formula,
                                              const algebra::Program &program,
                                              ArrayRef<KernelOutput> outputs) {
  return CascadeEmitter(b, formula, program, outputs).emit();
}
