// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The body of a cascade as a graph without repetition.
#include "Graph.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

void walk::collect(Node *n, NodeSet &out) {
  if (out.contains(n))
    return;
  for (Node *i : n->in)
    collect(i, out);
  out.insert(n);
}

Graph::Graph(CascadeOp cascade, const IndexSets &sets)
    : cascade(cascade), sets(sets) {
  for (auto state : cascade.getBody().getOps<StateOp>()) {
    unsigned number = stateNumbers.size();
    stateNumbers[state] = number;
  }
}

Node *Graph::intern(const Node &n) {
  auto word = [](const void *p) { return uintptr_t(p); };
  std::vector<uintptr_t> key{
      uintptr_t(n.kind),  n.result,          n.index,
      uintptr_t(n.state), uintptr_t(n.over), word(n.type.getAsOpaquePointer())};
  if (n.op) {
    key.push_back(word(n.op->getName().getAsOpaquePointer()));
    key.push_back(word(n.op->getAttrDictionary().getAsOpaquePointer()));
    if (auto read = dyn_cast<ReadOp>(n.op))
      key.push_back(word(read.getSource().getAsOpaquePointer()));
  }
  for (Node *i : n.in)
    key.push_back(word(i));
  auto [it, isFresh] = interned.try_emplace(std::move(key), nullptr);
  if (isFresh) {
    nodes.push_back(std::make_unique<Node>(n));
    nodes.back()->id = nodes.size();
    it->second = nodes.back().get();
  }
  return it->second;
}

Node *Graph::version(StateOp state, Node::Kind kind) {
  Node n;
  n.kind = kind;
  n.state = numberOf(state);
  n.set = sets.of(state.getResult(0));
  n.type = state.getResult(0).getType();
  return intern(n);
}

Node *Graph::instantiate(Value value, Instance &instance) {
  if (Node *n = instance.memo.lookup(value))
    return n;
  Node *n = instantiateFresh(value, instance);
  instance.memo[value] = n;
  return n;
}

/// Whether `dim` is divided by a multiple of `size` wherever `expr` has it.
static bool dividesEverywhere(AffineExpr expr, unsigned dim, int64_t size) {
  if (!expr.isFunctionOfDim(dim))
    return true;
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  if (!binary)
    return false;
  auto by = dyn_cast<AffineConstantExpr>(binary.getRHS());
  if (expr.getKind() == AffineExprKind::FloorDiv && by && by.getValue() > 0 &&
      by.getValue() % size == 0 && isa<AffineDimExpr>(binary.getLHS()))
    return true;
  return dividesEverywhere(binary.getLHS(), dim, size) &&
         dividesEverywhere(binary.getRHS(), dim, size);
}

bool Graph::isFixedInTile(ReadOp read, unsigned dim) {
  auto arg = dyn_cast<BlockArgument>(read.getIndices()[dim]);
  return arg && int(arg.getArgNumber()) == tiled && tileSize > 1 &&
         llvm::all_of(read.getMap().getResults(), [&](AffineExpr expr) {
           return dividesEverywhere(expr, dim, tileSize);
         });
}

Node *Graph::instantiateFresh(Value value, Instance &instance) {
  Node n;
  n.type = value.getType();
  if (auto arg = dyn_cast<BlockArgument>(value)) {
    n.index = arg.getArgNumber();
    if (n.index < cascade.numIndices()) {
      n.kind = Node::Index;
      n.set = bit(n.index);
    } else {
      n.kind = Node::Param;
      n.index -= cascade.numIndices();
    }
    return intern(n);
  }
  Operation *def = value.getDefiningOp();
  n.result = cast<OpResult>(value).getResultNumber();
  if (auto state = dyn_cast<StateOp>(def)) {
    n.state = numberOf(state);
    n.kind = sets.passOf(state) < instance.pass ? Node::Final : instance.inPass;
    n.set = sets.of(value);
    return intern(n);
  }
  if (auto extent = dyn_cast<ExtentOp>(def)) {
    n.kind = Node::Extent;
    n.index = cast<BlockArgument>(extent.getOf()).getArgNumber();
    return intern(n);
  }
  n.op = def;
  ValueRange operands = def->getOperands();
  if (isa<arith::ConstantOp>(def)) {
    n.kind = Node::Const;
  } else if (auto read = dyn_cast<ReadOp>(def)) {
    n.kind = Node::Read;
    operands = read.getIndices();
  } else if (auto contract = dyn_cast<ContractOp>(def)) {
    n.kind = Node::Contract;
    operands = contract->getOperands().take_front();
    for (Value index : contract.getOver())
      n.over |= sets.of(index);
  } else {
    n.kind = Node::Elem;
  }
  for (Value operand : operands)
    n.in.push_back(instantiate(operand, instance));
  auto read = dyn_cast<ReadOp>(def);
  for (auto [k, i] : llvm::enumerate(n.in)) {
    if (read && isFixedInTile(read, k))
      hasTileReads = true;
    else
      n.set |= i->set;
  }
  n.set &= ~n.over;
  return intern(n);
}

Node *Graph::instantiateTransport(StateOp state, Instance &old, Instance &now) {
  Instance inside(old.pass, Node::Old);
  Block &block = state.getTransport().front();
  unsigned a = 0;
  for (Value pivot : state.getPivots()) {
    inside.memo[block.getArgument(a++)] = instantiate(pivot, old);
    inside.memo[block.getArgument(a++)] = instantiate(pivot, now);
  }
  inside.memo[block.getArgument(a++)] = version(state, Node::Old);
  for (Value with : state.getWith())
    inside.memo[block.getArgument(a++)] = instantiate(with, old);
  return instantiate(cast<YieldOp>(block.getTerminator()).getValue(), inside);
}
