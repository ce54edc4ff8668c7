// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Index sets and passes of a cascade's body: the data-flow analysis that is
// both the op's region verifier and all that later stages ask about it.
#include "refold/Dialect/Refold/IR/Refold.h"

#include "mlir/IR/AffineExpr.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;
using namespace refold;

static uint64_t bit(unsigned i) { return uint64_t(1) << i; }

namespace refold {

class IndexSetInference {
public:
  explicit IndexSetInference(CascadeOp cascade)
      : cascade(cascade), body(cascade.bodyBlock()),
        stream(cascade.indicesOfRole(CascadeOp::Stream)),
        inner(cascade.indicesOfRole(CascadeOp::Inner)),
        carried(cascade.indicesOfRole(CascadeOp::Carried)) {}

  FailureOr<IndexSets> run();

private:
  LogicalResult visit(ReadOp read);
  LogicalResult visit(WriteOp write);
  LogicalResult visit(ContractOp contract);
  LogicalResult visit(StateOp state);
  LogicalResult visitScalar(Operation &op);
  LogicalResult checkPivots(StateOp state);
  LogicalResult checkWith(StateOp state, uint64_t set, unsigned pass);
  LogicalResult checkTransport(StateOp state, uint64_t set);
  LogicalResult checkSubscripts(Operation *op, Value arg, AffineMap map,
                                ValueRange indices, bool isRead);
  unsigned passOf(StateOp state);
  /// States that `from` reads without going through a value of `stops`.
  void statesReadBy(ValueRange from, ValueRange stops,
                    llvm::SetVector<Operation *> &states);
  uint64_t of(Value v) const { return result.of(v); }
  bool isIndexOf(Value v, uint64_t roles) const {
    return isa<BlockArgument>(v) && of(v) && !(of(v) & ~roles);
  }

  CascadeOp cascade;
  Block *body;
  uint64_t stream, inner, carried;
  uint64_t extentKnown = 0;
  IndexSets result;
};

} // namespace refold

void IndexSetInference::statesReadBy(ValueRange from, ValueRange stops,
                                     llvm::SetVector<Operation *> &states) {
  DenseSet<Value> seen(stops.begin(), stops.end());
  SmallVector<Value> work(from.begin(), from.end());
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (!seen.insert(v).second)
      continue;
    Operation *def = v.getDefiningOp();
    if (!def || def->getBlock() != body)
      continue;
    if (isa<StateOp>(def)) {
      states.insert(def);
      continue;
    }
    work.append(def->operand_begin(), def->operand_end());
  }
}

LogicalResult IndexSetInference::checkSubscripts(Operation *op, Value arg,
                                                 AffineMap map,
                                                 ValueRange indices,
                                                 bool isRead) {
  auto blockArg = dyn_cast<BlockArgument>(arg);
  if (!blockArg || blockArg.getOwner() != body ||
      blockArg.getArgNumber() < cascade.numIndices())
    return op->emitOpError(
        "accesses something other than an operand of the cascade");
  auto shaped = cast<ShapedType>(cascade.operandOf(arg).getType());
  if (!shaped.hasRank() || shaped.getRank() != map.getNumResults())
    return op->emitOpError("has ")
           << map.getNumResults() << " subscripts; expected "
           << (shaped.hasRank() ? shaped.getRank() : 0);
  for (auto [k, expr] : llvm::enumerate(map.getResults())) {
    auto dim = dyn_cast<AffineDimExpr>(expr);
    auto index = dim ? dyn_cast<BlockArgument>(indices[dim.getPosition()])
                     : BlockArgument();
    if (!index || index.getOwner() != body)
      continue;
    unsigned i = index.getArgNumber();
    extentKnown |= bit(i);
    int64_t have = shaped.getDimSize(k), want = cascade.getExtents()[i];
    if (ShapedType::isDynamic(have) || ShapedType::isDynamic(want))
      continue;
    // A read may take the front part of an operand (a latent whose front is v).
    if (isRead ? have < want : have != want)
      return op->emitOpError("subscript ")
             << k << " is '" << cascade.indexName(i) << "' of extent " << want
             << ", but the operand has size " << have << " there";
  }
  return success();
}

LogicalResult IndexSetInference::visit(ReadOp read) {
  if (failed(checkSubscripts(read, read.getSource(), read.getMap(),
                             read.getIndices(), /*isRead=*/true)))
    return failure();
  if (cast<BlockArgument>(read.getSource()).getArgNumber() >=
      cascade.numIndices() + cascade.getInputs().size())
    return read.emitOpError("reads an output");
  uint64_t set = 0;
  for (Value index : read.getIndices())
    set |= of(index);
  result.sets[read.getValue()] = set;
  return success();
}

LogicalResult IndexSetInference::visit(WriteOp write) {
  if (failed(checkSubscripts(write, write.getTarget(), write.getMap(),
                             write.getIndices(), /*isRead=*/false)))
    return failure();
  if (cast<BlockArgument>(write.getTarget()).getArgNumber() <
      cascade.numIndices() + cascade.getInputs().size())
    return write.emitOpError("writes an input");
  uint64_t target = 0;
  for (AffineExpr expr : write.getMap().getResults()) {
    if (auto constant = dyn_cast<AffineConstantExpr>(expr);
        constant && constant.getValue() == 0)
      continue;
    auto dim = dyn_cast<AffineDimExpr>(expr);
    Value index = dim ? write.getIndices()[dim.getPosition()] : Value();
    if (!index || !isa<BlockArgument>(index) || (target & of(index)))
      return write.emitOpError("subscripts must be different indices or 0");
    target |= of(index);
  }
  uint64_t value = of(write.getValue());
  if (value & ~target)
    return write.emitOpError("value has indices ")
           << cascade.showIndices(value) << "; expected those of the result, "
           << cascade.showIndices(target);
  if (target & inner)
    return write.emitOpError("writes inner indices ")
           << cascade.showIndices(target & inner);
  return success();
}

LogicalResult IndexSetInference::visit(ContractOp contract) {
  uint64_t over = 0;
  for (Value index : contract.getOver()) {
    // Of complete results the ranks of a list, too.
    bool isOfRow = !(of(contract.getValue()) & stream);
    if (!isIndexOf(index, isOfRow ? inner | carried : inner))
      return contract.emitOpError(
          "contracts something other than inner indices");
    over |= of(index);
  }
  uint64_t have = of(contract.getValue());
  if (over & ~have)
    return contract.emitOpError("contracts ")
           << cascade.showIndices(over & ~have)
           << ", which its operand does not have";
  result.sets[contract.getResult()] = have & ~over;
  return success();
}

unsigned IndexSetInference::passOf(StateOp state) {
  unsigned pass = 0;
  llvm::SetVector<Operation *> outside, through;
  statesReadBy(state.getValues(), state.getPivots(), outside);
  statesReadBy(state.getPivots(), {}, through);
  for (Operation *s : through)
    pass = std::max(pass, result.passes[s]);
  for (Operation *s : outside)
    pass = std::max(pass, result.passes[s] + 1);
  return pass;
}

LogicalResult IndexSetInference::checkPivots(StateOp state) {
  for (Value pivot : state.getPivots()) {
    if (of(pivot) & (stream | inner | carried))
      return state.emitOpError("has a pivot with indices ")
             << cascade.showIndices(of(pivot)) << "; expected row indices only";
    llvm::SetVector<Operation *> own;
    statesReadBy(pivot, {}, own);
    if (own.empty())
      return state.emitOpError(
          "has a pivot that reads no state; it needs no transport");
  }
  return success();
}

LogicalResult IndexSetInference::checkWith(StateOp state, uint64_t set,
                                           unsigned pass) {
  for (Value with : state.getWith()) {
    auto other = with.getDefiningOp<StateOp>();
    if (!other || other->getBlock() != body)
      return state.emitOpError("'with' names something other than a state");
    if (result.passes[other] != pass)
      return state.emitOpError("'with' names a state of pass ")
             << result.passes[other] << " in pass " << pass;
    if (of(with) & ~set)
      return state.emitOpError("'with' names a state with indices ")
             << cascade.showIndices(of(with)) << " outside its own "
             << cascade.showIndices(set);
  }
  return success();
}

LogicalResult IndexSetInference::checkTransport(StateOp state, uint64_t set) {
  Block &block = state.getTransport().front();
  unsigned a = 0;
  for (Value pivot : state.getPivots())
    for (int side = 0; side < 2; ++side)
      result.sets[block.getArgument(a++)] = of(pivot);
  result.sets[block.getArgument(a++)] = set;
  for (Value with : state.getWith())
    result.sets[block.getArgument(a++)] = of(with);
  for (Operation &op : block) {
    uint64_t used = 0;
    for (Value v : op.getOperands()) {
      used |= of(v);
      if (v.getParentBlock() == &block)
        continue;
      llvm::SetVector<Operation *> captured;
      statesReadBy(v, {}, captured);
      if (of(v) || !captured.empty())
        return state.emitOpError("transport reads a value of the body; "
                                 "expected pivots, states of 'with' and "
                                 "constants only");
    }
    if (!isPure(&op) || op.getNumRegions())
      return op.emitOpError("is not allowed in a transport");
    for (Value v : op.getResults())
      result.sets[v] = used;
    if (isa<YieldOp>(op) && (used & ~set))
      return state.emitOpError("transport yields indices ")
             << cascade.showIndices(used) << "; the state has "
             << cascade.showIndices(set);
  }
  return success();
}

LogicalResult IndexSetInference::visit(StateOp state) {
  if (!stream)
    return state.emitOpError("reduces, but the cascade has no stream index");
  uint64_t set = 0;
  for (Value v : state.getValues())
    set |= of(v);
  if (set & inner)
    return state.emitOpError("has inner indices ")
           << cascade.showIndices(set & inner) << "; contract them first";
  for (Value rank : state.getRank()) {
    if (!isIndexOf(rank, carried))
      return state.emitOpError("has a rank that is not a carried index");
    set |= of(rank);
  }
  set &= ~stream;
  for (Value v : state.getResults())
    result.sets[v] = set;
  if (failed(checkPivots(state)))
    return failure();
  unsigned pass = passOf(state);
  result.passes[state] = pass;
  result.numPasses = std::max(result.numPasses, pass + 1);
  if (failed(checkWith(state, set, pass)))
    return failure();
  return state.getTransport().empty() ? success() : checkTransport(state, set);
}

LogicalResult IndexSetInference::visitScalar(Operation &op) {
  bool known =
      op.getDialect() &&
      llvm::is_contained({"arith", "math"}, op.getDialect()->getNamespace());
  if (!known || op.getNumRegions() || !isMemoryEffectFree(&op))
    return op.emitOpError("is not allowed in a cascade; expected scalar arith, "
                          "math and refold ops");
  uint64_t set = 0;
  for (Value v : op.getOperands())
    set |= of(v);
  for (Value v : op.getResults()) {
    if (isa<ShapedType>(v.getType()))
      return op.emitOpError("is not scalar");
    result.sets[v] = set;
  }
  return success();
}

FailureOr<IndexSets> IndexSetInference::run() {
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    result.sets[body->getArgument(i)] = bit(i);
  for (Operation &op : *body) {
    LogicalResult ok = success();
    if (auto read = dyn_cast<ReadOp>(op))
      ok = visit(read);
    else if (auto write = dyn_cast<WriteOp>(op))
      ok = visit(write);
    else if (auto contract = dyn_cast<ContractOp>(op))
      ok = visit(contract);
    else if (auto state = dyn_cast<StateOp>(op))
      ok = visit(state);
    else if (auto extent = dyn_cast<ExtentOp>(op)) {
      auto arg = dyn_cast<BlockArgument>(extent.getOf());
      if (!arg || arg.getArgNumber() >= cascade.numIndices())
        return extent.emitOpError("asks for the extent of something other than "
                                  "an index of the cascade");
      result.sets[extent.getExtent()] = 0;
    } else
      ok = visitScalar(op);
    if (failed(ok))
      return failure();
  }
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (ShapedType::isDynamic(cascade.getExtents()[i]) &&
        !(extentKnown & bit(i)) && !cascade.sizeOf(i))
      return cascade.emitOpError("index '")
             << cascade.indexName(i)
             << "' has extent ? and is no operand's subscript by itself";
  return result;
}

FailureOr<IndexSets> IndexSets::infer(CascadeOp cascade) {
  return IndexSetInference(cascade).run();
}
