// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef REFOLD_CONVERSION_CASCADETOCUDA_H
#define REFOLD_CONVERSION_CASCADETOCUDA_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "refold/Support/DType.h"
#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace refold::tile {
struct Program;
struct Entry;
} // namespace refold::tile

namespace refold {

/// An argument of a CUDA kernel, in words of the kernel ABI's memrefs.
struct CudaParameter {
  enum Kind : uint8_t {
    Pointer,   ///< to element 0 of an operand
    Size,      ///< of dimension `dim` of an operand
    Stride,    ///< the same, in elements
    Scalar,    ///< an operand that is no array
    Workspace, ///< where blocks leave what they know of their parts
    Tickets    ///< a number for each row of several blocks, 0 between launches
  };
  Kind kind = Pointer;
  unsigned operand = 0, dim = 0;
};

/// An operand of the kernel ABI.
struct CudaOperand {
  unsigned word = 0; ///< of its first one
  unsigned rank = 0;
  int64_t elementBytes = 0;
  bool isArray = true, isResult = false;
  bool isConstant = false; ///< of the program: no launch writes it
  /// Read or written by vectors along its last dimension; or along the one
  /// before `groupDims`, of whole groups of `group` elements.
  bool hasVectors = false;
  unsigned groupDims = 0;
  int64_t group = 1;
};

/// A number of the launch: read from an operand where `operand` is set.
struct CudaExtent {
  int operand = -1;
  int dim = -1; ///< -1: the operand is the number
  int64_t constant = 1;
};

/// What an entry is told of an operand that it copies, or writes, by boxes of
/// 128 bytes of `boxRows` rows.
struct CudaMap {
  unsigned operand = 0;
  CudaExtent columns; ///< elements of a row
  struct Index {
    CudaExtent extent;
    int dim = -1;      ///< of the operand, for how far places are apart
    int64_t bytes = 0; ///< that they are apart where there is none
  };
  /// The row, then what is in front of it, the nearest first.
  std::vector<Index> indices;
  int boxRows = 1;
};

/// One way to run a kernel: how many threads share a row, how many rows a block
/// has, how many vectors of how many elements a thread holds at once.
struct CudaEntry {
  std::string name;
  int threads = 32, rows = 1, vectors = 1, width = 1;
  /// The row stays on chip: it has at most `longest` elements.
  bool isResident = true;
  int64_t longest = -1; ///< rows up to this length take it; -1: any
  int64_t shortest = 0; ///< shorter ones are for entries behind it
  /// Where the row is between sweeps: nowhere (it is read again), in
  /// registers, in shared memory, there but for the first `chunk()` elements,
  /// which are in registers, there beside the arrays of all rows and rows that
  /// are later, of each a chunk, or there with as many others as a block has
  /// threads, one each.
  enum Place : uint8_t { Nowhere, Registers, Shared, Split, Ring, Lanes };
  Place place = Registers;
  int64_t keptBytes = 0; ///< of shared memory for an element of all rows
  int ahead = 0; ///< later rows, a chunk each of `keptBytes - tableBytes`
  /// Chunks of a row that is nowhere for which shared memory has room, all but
  /// one on their way; 0: registers have two.
  int stages = 0;
  int64_t tableBytes = 0; ///< of `keptBytes`, for what all rows read
  /// Of rows of lanes: a list is chosen from vectors of as many elements, by
  /// the best of each; 0: of `width`.
  int picked = 0;
  /// Blocks that are meant to share a multiprocessor; 0: as many as fit.
  int blocksPerUnit = 0;
  /// Taken only where its shared memory has room for as many; 0: for one.
  int leastBlocks = 0;
  /// A launch has as many blocks as the GPU takes at once, for many rows each.
  bool isLoop = false;
  /// Rows that a block does in turn where a launch has more blocks than that;
  /// 0: all of its rows, or one.
  int64_t turnRows = 0;
  /// Blocks beside each other that have every row together.
  int blocks = 1;
  /// Blocks that share the rows of a launch, where a row has parts: as many as
  /// `mostBlocks` while every part is worth having. 0: a row has one block.
  int64_t mostBlocks = 0;
  /// Those of a row wait for each other, since each has results along its part.
  bool waits = false;
  int64_t leftBytes = 0; ///< that a block leaves for the last one of its row
  int64_t mapBytes = 0;  ///< of each block, in front of what all leave
  /// Of kernels over tiles, where a block has `threads` threads for `rows`
  /// rows: the longest products, the widest results.
  int64_t deepest = 0, widest = 0;
  /// Groups of four warps that compute, beside one that copies; 0: all threads
  /// do both.
  int roles = 0;
  /// Of kernels over tiles whose blocks have parts of streams of different
  /// lengths: for as many groups of rows at most, longer streams have more
  /// blocks, some of which follow others. 0: all groups have as many.
  int mostGroups = 0;
  /// Operands whose rows begin at multiples of 16 bytes.
  std::vector<unsigned> whole = {};
  int64_t fewestRows = 0; ///< worth having for as many rows, or of a tile index
  int columns = 0;        ///< of a product, that a block computes
  /// Of rows of products: elements of what is multiplied that are copied at
  /// once; of products with roles, how many of a sum are. A block has `threads`
  /// threads, `rows` rows and `columns` products of each.
  int copied = 0;
  int64_t sharedBytes = 0; ///< that the launch asks for, beside `keptBytes`
  std::vector<CudaMap> maps = {}; ///< its last parameter, where there are some
  int64_t chunk() const { return int64_t(threads) * vectors * width; }
  /// Elements that shared memory has no room for.
  int64_t held() const { return place == Split ? chunk() : 0; }
  int64_t aheadBytes() const {
    return ahead * chunk() * (keptBytes - tableBytes);
  }
  bool hasParts() const { return mostBlocks > 0; }
  /// Where parts are of different lengths: blocks for further ones, beside
  /// those that are there at once. The end of one that nothing is left for
  /// takes its time, too, where blocks take long to begin.
  int64_t furtherBlocks() const {
    return roles > 0 ? mostBlocks / 2 : mostBlocks;
  }
  int64_t mostShares() const {
    return std::max<int64_t>(mostGroups, mostBlocks) + furtherBlocks();
  }
  int64_t tickets() const {
    return waits        ? 3 * mostBlocks // two a row and one a part
           : mostGroups ? mostShares()
                        : mostBlocks;
  }
  /// Chunks of a row that are worth a block, or elements of each thread.
  static constexpr int64_t kPartChunks = 4, kPartElements = 64;
};

/// What is multiplied: a block has some rows of `rows`, products sum `depth`
/// elements, results have `width`.
struct CudaTiles {
  CudaExtent rows, depth, width;
  /// Of entries with roles, of rows and of the stream: differences of two have
  /// 32 bits.
  static constexpr int64_t kMostPlaces = int64_t(1) << 30;
  bool isGrowing = false; ///< later rows read more of the stream
  /// Of entries whose blocks share the stream: a block has rows of several
  /// indices, those that read the same stream. `share` neighbours of an
  /// extent; 0: all of it.
  struct Share {
    CudaExtent extent;
    int64_t share = 1;
    bool hasOwnStream = false; ///< of `groups`: says which part is read
  };
  std::vector<Share> groups; ///< a block has one place of each
  std::vector<Share> packed; ///< and as many rows as these make
};

/// Products outside cascades, of one left side: operands are that, the right
/// sides, biases perhaps, and the results.
struct CudaProduct {
  /// What is summed lies beside each other in the right side.
  bool isTransposed = false;
  unsigned count = 1;         ///< of right sides
  bool hasActivation = false; ///< that takes as long as what is written
  /// Types that a library of the machine may multiply, where it has the form.
  struct Library {
    DType sides = DType::F32, result = DType::F32;
    bool hasBias = false;
  };
  std::optional<Library> library;
};

/// Rows whose elements are products: a block has some of `rows`.
struct CudaRowProduct {
  CudaExtent rows;
  /// What is multiplied, and the dimension along which it is copied.
  struct Side {
    unsigned operand = 0, flat = 0;
  };
  Side left, right;
};

/// Results that are made of products of floats of 8 bits: a block computes
/// rectangles of them.
struct CudaF8Product {
  CudaExtent rows, columns;
  CudaRowProduct::Side left, right;
  std::vector<CudaRowProduct::Side> results;
};

/// How products of floats of 8 bits are summed (docs/numerics.md, "Sums of
/// products of 8 bits").
enum class F8Sums : uint8_t {
  Units,    ///< by the matrix units for them, with some 14 bits
  Together, ///< so for 128 products, which are added up in f32
  Exact     ///< in f32: by matrix units for f16
};

/// Text and how to launch what it holds.
struct CudaKernel {
  std::string name, text;
  std::vector<CudaParameter> parameters;
  std::vector<CudaOperand> operands;
  std::vector<CudaExtent> rows; ///< a row of the grid is one place of them all
  CudaExtent stream;            ///< elements of a row
  /// Where rows have several indices, the others: a row is all their places.
  std::vector<CudaExtent> outerStreams;
  /// Products on matrix units: `rows` are then those beside the tile's.
  std::optional<CudaTiles> tiles;
  std::optional<CudaProduct> product;
  /// `rows` are those beside the ones that a block has several of.
  std::optional<CudaRowProduct> rowProduct;
  std::optional<CudaF8Product> f8Product;
  /// Largest relative error of one factor of a sum of products, which matrix
  /// units take in 16 bits, or of a sum that they make with fewer digits than
  /// f32; 0: nothing is rounded that the program does not.
  double factorRounding = 0.0;
  std::vector<CudaEntry> entries;
};

struct CudaOptions {
  std::string name = "kernel"; ///< entries are called after it
  std::string source;          ///< the user's file, for the head
  std::string target = "cuda-sm80";
  F8Sums f8Sums = F8Sums::Together;
  /// Is shown what the verifier of the tile level is: a program for each entry
  /// with roles.
  std::function<void(const tile::Program &, const tile::Entry &)> seesTiles;
};

/// The same kernel as `lowerCascade` takes, as CUDA C++ over
/// runtime/cuda/refold_cuda.h. Takes rows: cascades over one stream index (or
/// elementwise ones), whose arrays are read and written along their last
/// dimension where they move with the stream; and tiles: one pass whose
/// elements are made of one sum of products of 16-bit arrays, and states that
/// are sums of products of them with another. Anything else is an error on the
/// op with the key of a reason (docs/targets/cuda.md). Equal kernels give equal
/// text.
mlir::FailureOr<CudaKernel> printCascadeAsCuda(mlir::func::FuncOp kernel,
                                               const CudaOptions &options);

} // namespace refold

#endif // REFOLD_CONVERSION_CASCADETOCUDA_H
