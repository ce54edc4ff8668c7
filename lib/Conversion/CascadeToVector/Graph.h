// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOVECTOR_GRAPH_H
#define REFOLD_LIB_CONVERSION_CASCADETOVECTOR_GRAPH_H

#include "refold/Dialect/Refold/IR/Refold.h"
#include "llvm/ADT/SetVector.h"
#include <map>
#include <memory>
#include <vector>

namespace refold::walk {

/// A set of indices of the cascade: bit i is index i.
using Set = uint64_t;
inline Set bit(unsigned i) { return Set(1) << i; }

/// A formula. Equal formulas are one node, once per version of the states they
/// read: `Old` and `New` before and after the tile, `Final` after the pass.
struct Node {
  enum Kind {
    Const,
    Param,
    Index,
    Extent,
    Read,
    Elem,
    Contract,
    Old,
    New,
    Final
  };
  Kind kind = Const;
  mlir::Operation *op = nullptr; ///< Const, Read, Elem, Contract
  unsigned result = 0;           ///< which result of the op or state
  unsigned index = 0;            ///< Index, Extent; Param: operand number
  int state = -1;                ///< Old, New, Final
  llvm::SmallVector<Node *, 3> in;
  Set set = 0;  ///< the indices it varies with
  Set over = 0; ///< Contract: the indices that are summed
  mlir::Type type;
  unsigned id = 0;    ///< in order of creation
  unsigned level = 0; ///< needs row states of lower levels only (Plan.cpp)

  bool has(unsigned i) const { return set & bit(i); }
  bool isState() const { return kind == Old || kind == New || kind == Final; }
};

using NodeSet = llvm::SetVector<Node *>;

/// `n` and all that it reads, operands first.
void collect(Node *n, NodeSet &out);

class Graph {
public:
  Graph(CascadeOp cascade, const IndexSets &sets);
  /// Index `index` is walked in tiles of `size`, at multiples of it: a read at
  /// `index floordiv c` does not vary with it inside a tile where `size`
  /// divides c.
  void setTile(unsigned index, int64_t size) {
    tiled = int(index);
    tileSize = size;
  }
  /// Some read relies on it.
  bool readsByTile() const { return hasTileReads; }

  /// A body instantiated for pass `pass`: states of earlier passes are `Final`,
  /// of this pass `inPass`.
  struct Instance {
    Instance(unsigned pass, Node::Kind inPass) : pass(pass), inPass(inPass) {}
    unsigned pass;
    Node::Kind inPass;
    llvm::DenseMap<mlir::Value, Node *> memo;
  };
  Node *instantiate(mlir::Value value, Instance &instance);
  /// The moved state of a state with transport; `old` and `now` instantiate its
  /// pivots before and after.
  Node *instantiateTransport(StateOp state, Instance &old, Instance &now);
  Node *version(StateOp state, Node::Kind kind);
  unsigned numberOf(StateOp state) const { return stateNumbers.lookup(state); }

private:
  Node *intern(const Node &n);
  Node *instantiateFresh(mlir::Value value, Instance &instance);
  bool isFixedInTile(ReadOp read, unsigned dim);

  CascadeOp cascade;
  const IndexSets &sets;
  int tiled = -1;
  int64_t tileSize = 0;
  bool hasTileReads = false;
  llvm::DenseMap<mlir::Operation *, unsigned> stateNumbers;
  std::vector<std::unique_ptr<Node>> nodes;
  std::map<std::vector<uintptr_t>, Node *> interned;
};

} // namespace refold::walk

#endif // REFOLD_LIB_CONVERSION_CASCADETOVECTOR_GRAPH_H
