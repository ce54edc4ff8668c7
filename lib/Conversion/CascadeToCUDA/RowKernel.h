// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWKERNEL_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWKERNEL_H

#include "../CascadeToVector/Plan.h"
#include "refold/Support/Reasons.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringSet.h"

namespace refold::cuda {

using walk::Node;
using walk::NodeSet;

/// A read along the stream: a vector of its array at a column.
struct RowRead {
  Node *node = nullptr;
  std::string name;      ///< of the vector
  std::string row;       ///< of the pointer to the row
  std::string element;   ///< of one value
  bool isFolded = false; ///< by some pass; otherwise only results need it
  bool isShared = false; ///< by all rows
  /// Elements of a column: those of x[n,3] that are read at any constant.
  walk::PartOfGroup group = {};
  /// Bytes of a column.
  int64_t bytes() const;
  /// Threads take turns at the pieces of 32 bytes that groups lie in.
  std::string policy() const {
    return isShared || group.size > 1 ? "Reuse" : "Stream";
  }
  /// `columns` of them, in elements.
  std::string times(llvm::StringRef columns) const {
    return group.size == 1 ? columns.str()
                           : columns.str() + " * " + std::to_string(group.size);
  }
};

/// Elements of a row that are sums of products of two arrays of 16 bits: a
/// block computes those of some rows, and folds them when they are complete.
struct RowProduct {
  Node *sum = nullptr;
  unsigned row = 0;   ///< of which a block has several
  unsigned depth = 0; ///< that is summed
  struct Side {
    Node *read = nullptr;
    unsigned operand = 0;
    int along = -1;      ///< the dimension that moves with its own index
    int depth = -1;      ///< the one that is summed
    bool isFlat = false; ///< the latter is its last one
  };
  Side left, right;
};

/// A cascade that the printer takes: rows over one index.
struct RowKernel {
  walk::Plan *plan = nullptr;
  int stream = walk::kNone; ///< the index along a row, of several the last
  llvm::SmallVector<unsigned> outer;       ///< the others, outermost first
  llvm::SmallVector<unsigned> rows, ranks; ///< ranks: places of lists
  llvm::MapVector<Node *, RowRead> reads;  ///< one for each group
  /// Reads of elements of a group: the one in `reads`, and the place.
  llvm::MapVector<Node *, std::pair<Node *, int64_t>> parts;
  /// The read that is a product; its row index is not among `rows`.
  std::optional<RowProduct> product;
  std::vector<std::string> operandNames, indexNames, stateNames;
  llvm::StringSet<> taken;
  /// A thread has a row of its own, and threads beside each other have
  /// neighbours of the last row index: what only some results have is one.
  bool isColumns = false;
  /// Floats have 16 bits, read and written: approximations of 2 ulp do.
  bool isNarrow = false;
  int64_t narrowest = 16; ///< bytes of an element along the stream

  /// `wanted`, or that with a number: a name that nothing else has.
  std::string nameFor(llvm::StringRef wanted);
  /// The same for a name of the program: without underscores, which the names
  /// have that are made of it and most others in the text.
  std::string programName(llvm::StringRef wanted);
  walk::Set streamSet() const {
    walk::Set set = stream >= 0 ? walk::bit(stream) : 0;
    for (unsigned i : outer)
      set |= walk::bit(i);
    return set;
  }
  bool hasStream(Node *n) const { return (n->set & streamSet()) != 0; }
  /// Whether elements are read and written one by one, where they lie; by
  /// vectors along the row otherwise.
  bool isByPlaces() const { return isColumns || !outer.empty(); }
  bool isProduct(Node *n) const { return product && product->sum == n; }
};

/// Errors are emitted on the op, with a reason.
mlir::FailureOr<RowKernel> findRows(walk::Plan &plan);
/// The same of rows whose elements are products, no longer than a block holds.
mlir::FailureOr<RowKernel> findProductRows(walk::Plan &plan);
/// Results of which each element is a formula over one sum of products of two
/// arrays of 8-bit floats: `product->row` and `stream` are their two indices.
mlir::FailureOr<RowKernel> findF8Products(walk::Plan &plan);
/// Of products: an operand and what its dimensions are.
mlir::LogicalResult findSide(RowKernel &kernel, RowProduct::Side &side,
                             unsigned along, Reason reason);
/// Of `findRows`: what is read along a row, and how precise numbers are.
mlir::LogicalResult findReads(RowKernel &kernel);
/// Lists and results that rows can have.
mlir::LogicalResult checkRowStates(RowKernel &kernel);
/// The read of a 16-bit float that `n` widens; null for anything else.
Node *widenedRead(Node *n);
/// Whether `n` varies with the index, through subscripts too.
bool dependsOn(Node *n, unsigned index);
/// `n` and all that it reads, without what products are made of.
void collectRow(const RowKernel &kernel, Node *n, NodeSet &out);

/// How many of the first bits of a list's keys differ between elements.
int keyBits(Node *n);
/// The index of the places of a list.
unsigned rankOf(walk::StatePlan &list);

/// An error with the key of a reason.
mlir::InFlightDiagnostic refuse(mlir::Operation *op, Reason reason);
/// Names of operands, indices and states that nothing in the text has.
void chooseNames(RowKernel &kernel);
/// Whether every value has a C++ type and every operation a spelling.
mlir::LogicalResult checkTypes(RowKernel &kernel);

/// The C++ type of values, and of array elements; "" where there is none.
std::string valueType(mlir::Type type);
std::string storedType(mlir::Type type);
/// Without what rounds a value that is rounded to its type already.
walk::Node *withoutCasts(walk::Node *n);
/// Whether it is a float of 32 bits, rounded.
bool isRounded(walk::Node *n);
/// The unsigned type in which sums and products of an integer type wrap.
std::string wrappingType(mlir::Type type);
/// An expression with $0, $1, $2 for operands, in parentheses where it has to
/// be; "" where the op has no spelling. `isFast`: 2 ulp are enough.
std::string templateOf(mlir::Operation *op, bool isFast);
/// Whether elements of its last dimension lie beside each other.
bool isDense(mlir::Type type);
/// Bytes of an array element.
int64_t bytesOf(mlir::Type type);
/// A constant as C++ reads it.
std::string literal(mlir::TypedAttr value);

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_ROWKERNEL_H
