// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_LIB_CONVERSION_CASCADETOCUDA_TILEKERNEL_H
#define REFOLD_LIB_CONVERSION_CASCADETOCUDA_TILEKERNEL_H

#include "RowKernel.h"

namespace refold::cuda {

/// A matrix in global memory that is brought to shared memory tile by tile: the
/// elements of a row lie behind each other.
struct TileAccess {
  walk::Node *read = nullptr;
  unsigned operand = 0;
  int rowDim = -1;         ///< of the array; -1: there is one row
  mlir::AffineExpr inside; ///< where in its last dimension rows begin
  std::string name;        ///< of the pointer to its first row
  /// What it is in tiles: of 8 bits, a type of 16 bits that has all of its
  /// numbers.
  mlir::Type unit;
  bool isWidened() const;
};

/// A state with a carried index: the sum of `factor` times a row of `values`.
struct TileState {
  walk::StatePlan *state = nullptr;
  Node *factor = nullptr;
  unsigned values = 0; ///< number of the access
};

/// A cascade that matrix units take: elements of a row of the stream are made
/// of a sum of products of two arrays.
struct TileKernel : RowKernel {
  int tileRow = walk::kNone; ///< the row index that a tile has several of
  /// Row indices that a tile has several of beside that one, since they read
  /// the same stream: `share` neighbours, or all where that is 0.
  struct Packed {
    unsigned index;
    int64_t share;
  };
  llvm::SmallVector<Packed, 2> packed;
  /// Arrays of f32, which are multiplied and added by lanes: matrix units would
  /// round what they multiply.
  bool isOfWords = false;
  /// Elements of 16 bytes.
  int vector() const { return isOfWords ? 4 : 8; }
  int depth = walk::kNone; ///< the summed index
  int width = walk::kNone; ///< the carried index; kNone: no result has one
  Node *contraction = nullptr;
  /// What every use of the contraction needs first: kept in its place.
  Node *kept = nullptr;
  TileAccess left, right;
  llvm::SmallVector<TileAccess, 2> values;
  /// Arrays that states read at the row and the column of an element, along
  /// their last dimension: a block may bring a rectangle of them at once.
  llvm::SmallVector<TileAccess, 2> elements;
  llvm::SmallVector<TileState, 2> products;
  llvm::SmallVector<unsigned> levels; ///< of each state
  /// What is kept is kept times log2(e), and so are extremes of it:
  /// exponentials of differences are powers of two.
  bool isInBits = false;
  /// Where what is kept is a product with a factor of the block that is known
  /// to be positive: it is kept without it, extremes are taken before it is
  /// applied, and exponents are one fused operation.
  struct LateScale {
    Node *factor = nullptr; ///< null: log2(e) alone
    bool isDivisor = false; ///< its reciprocal is the factor
    Node *pivot = nullptr; ///< that all exponentials of level 1 are relative to
  };
  std::optional<LateScale> late;
  double rounding = 0.0; ///< of a factor
  /// Some array that is multiplied has 8 bits, and is widened on its way to
  /// shared memory.
  bool widens() const;
  /// The stream brings such an array: where its rows begin at multiples of 16
  /// bytes it is widened a tile ahead.
  bool widensStream() const;
  bool mayWidenAhead() const;
  /// It brings no other ones.
  bool widensAllOfStream() const;
  static constexpr int kNarrowVector = 16;

  unsigned numLevels() const;
  /// Results are the same relative to any pivot, and no one reads the pivots
  /// themselves: the newest need not be known.
  bool dropsPivots = false;
  /// Maxima that are only asked for as no less than a number begin there.
  llvm::DenseMap<unsigned, Node *> floors; ///< by state
  /// Such a question.
  bool isFloored(Node *n) const;
  /// The factor of a transport that is a product with it; null for others.
  Node *factorOf(const walk::StatePlan &s) const;
  /// Other states are relative to it.
  bool isPivot(const walk::StatePlan &s) const;
  /// An extreme of what is kept.
  bool isExtremeOfKept(const walk::StatePlan &s) const;
  /// Whether inBits() may spell it: what is kept, extremes of it, numbers.
  bool mayBeInBits(Node *n) const;
  /// exp(x - y) of two of these.
  bool isPowerOfTwo(Node *n) const;
  /// Rows that are added are the front of those that are multiplied: one array,
  /// at the same places.
  bool sharesRows() const;
  const TileState *productOf(const walk::StatePlan &s) const;
};

/// An operation on elements of that name.
bool isOp(Node *n, llvm::StringRef name);
/// How often a factor of all moved states comes out of `n`; nothing where it
/// does not come out whole.
std::optional<int> degreeOf(TileKernel &kernel, Node *n);
/// Bounds of a number that is known to be positive and no more than a power of
/// two away from what f32 holds. Extents count from 1: of an empty sum every
/// multiple is the same.
std::optional<std::pair<double, double>> positiveRange(Node *n);
/// Fills `late` in.
void findLateScale(TileKernel &kernel);
/// Whether what is kept may be finite and larger than f32 has it times log2(e):
/// where it is made of an array that reaches as far, or of such a number (a
/// mask that takes the lowest one), beside the products.
bool mayLeaveBits(const TileKernel &kernel);
/// Neither moves inside a block nor is made of what does.
bool isFixed(const TileKernel &kernel, Node *n);
/// Whether `n` reads a state or a contraction.
bool dependsOnStream(Node *n);

/// Errors are emitted on the op, with a reason. `packs`: a tile has rows of all
/// indices that read the same stream.
mlir::FailureOr<TileKernel> findTiles(walk::Plan &plan, bool packs = false);

} // namespace refold::cuda

#endif // REFOLD_LIB_CONVERSION_CASCADETOCUDA_TILEKERNEL_H
