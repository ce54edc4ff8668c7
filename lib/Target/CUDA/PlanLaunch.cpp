// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "refold/Support/Error.h"
#include "refold/Support/Reasons.h"
#include "refold/Target/CUDA/CompileCuda.h"

using namespace refold;

static size_t numWords(const CudaKernel &kernel) {
  size_t words = 0;
  for (const CudaOperand &o : kernel.operands)
    words = std::max<size_t>(words, o.word + (o.isArray ? 3 + 2 * o.rank : 1));
  return words;
}

namespace {
/// What a kernel's launch depends on, as functions of the words of the call.
class Words {
public:
  explicit Words(const CudaKernel &kernel) : kernel(kernel) {}

  static SizeExpr word(unsigned index) { return SizeExpr::symbol(index); }
  SizeExpr address(const CudaOperand &o) const {
    return word(o.word + 1) + word(o.word + 2) * SizeExpr(o.elementBytes);
  }
  SizeExpr size(const CudaOperand &o, unsigned dim) const {
    return word(o.word + 3 + dim);
  }
  SizeExpr stride(const CudaOperand &o, unsigned dim) const {
    return word(o.word + 3 + o.rank + dim);
  }
  SizeExpr extent(const CudaExtent &e) const {
    if (e.operand < 0)
      return e.constant;
    const CudaOperand &o = kernel.operands[e.operand];
    return e.dim < 0 ? word(o.word) : size(o, e.dim);
  }
  SizeExpr parameter(const CudaParameter &p) const {
    if (p.kind == CudaParameter::Workspace)
      return word(unsigned(numWords(kernel)));
    if (p.kind == CudaParameter::Tickets)
      return word(unsigned(numWords(kernel)) + 1);
    const CudaOperand &o = kernel.operands[p.operand];
    switch (p.kind) {
    case CudaParameter::Pointer:
      return address(o);
    case CudaParameter::Size:
      return size(o, p.dim);
    case CudaParameter::Stride:
      return stride(o, p.dim);
    default:
      break;
    }
    return word(o.word);
  }
  /// Whether `length` elements are whole vectors of `width`, and all arrays
  /// that are read by vectors have rows that begin at multiples of 16 bytes, or
  /// of the vector where that is less.
  SizeExpr takes(const SizeExpr &length, int width) const {
    using Op = SizeExpr::Op;
    SizeExpr all = isMultiple(length, width);
    for (const CudaOperand &o : kernel.operands) {
      if (!o.hasVectors)
        continue;
      int64_t whole = width * o.group * o.elementBytes;
      int64_t bytes = std::min<int64_t>(16, whole & -whole);
      for (unsigned dim = 0; dim + 1 + o.groupDims < o.rank; ++dim)
        all = all *
              SizeExpr::binary(
                  Op::Max, SizeExpr::binary(Op::Le, size(o, dim), SizeExpr(1)),
                  isMultiple(stride(o, dim) * SizeExpr(o.elementBytes), bytes));
      all = all * isMultiple(address(o), bytes);
    }
    return all;
  }
  /// Whether rows along `flat`, a dimension of stride 1, begin at multiples of
  /// 16 bytes and are whole vectors of `width` elements.
  SizeExpr takesRows(const CudaOperand &o, unsigned flat, int width) const {
    using Op = SizeExpr::Op;
    SizeExpr all = isMultiple(size(o, flat), width) *
                   isMultiple(address(o), 16) *
                   SizeExpr::binary(Op::Eq, stride(o, flat), SizeExpr(1));
    for (unsigned dim = 0; dim < o.rank; ++dim)
      if (dim != flat)
        all = all *
              SizeExpr::binary(
                  Op::Max, SizeExpr::binary(Op::Le, size(o, dim), SizeExpr(1)),
                  isMultiple(stride(o, dim) * SizeExpr(o.elementBytes), 16));
    return all;
  }
  /// Whether rows that are not there would begin at multiples of 16 bytes, too:
  /// behind a single row of any stride.
  SizeExpr areAligned(const CudaOperand &o, unsigned flat) const {
    SizeExpr all = 1;
    for (unsigned dim = 0; dim < o.rank; ++dim)
      if (dim != flat)
        all = all * isMultiple(stride(o, dim) * SizeExpr(o.elementBytes), 16);
    return all;
  }
  /// Whether a map of rows along `flat` can be made: it takes the stride of a
  /// single row, too, and none backwards.
  SizeExpr takesMap(const CudaOperand &o, unsigned flat) const {
    SizeExpr all = areAligned(o, flat);
    for (unsigned dim = 0; dim < o.rank; ++dim)
      if (dim != flat)
        all = all *
              SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(0), stride(o, dim));
    return all;
  }
  /// Whether no array that is read by vectors has rows that lie backwards.
  SizeExpr areForward() const {
    SizeExpr all = 1;
    for (const CudaOperand &o : kernel.operands)
      for (unsigned dim = 0; o.hasVectors && dim < o.rank; ++dim)
        all = all *
              SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(0), stride(o, dim));
    return all;
  }
  static SizeExpr isMultiple(const SizeExpr &value, int64_t of) {
    using Op = SizeExpr::Op;
    return SizeExpr::binary(
        Op::Eq, SizeExpr::binary(Op::Mod, value, SizeExpr(of)), SizeExpr(0));
  }

private:
  const CudaKernel &kernel;
};
} // namespace

static SizeExpr isAtMost(const SizeExpr &value, int64_t most) {
  return SizeExpr::binary(SizeExpr::Op::Le, value, SizeExpr(most));
}

static SizeExpr rowsOf(const CudaKernel &kernel, const Words &words) {
  SizeExpr rows = 1;
  for (const CudaExtent &row : kernel.rows)
    rows = rows * words.extent(row);
  return rows;
}

/// Elements of a row.
static SizeExpr lengthOf(const CudaKernel &kernel, const Words &words) {
  SizeExpr length = words.extent(kernel.stream);
  for (const CudaExtent &outer : kernel.outerStreams)
    length = length * words.extent(outer);
  return length;
}

static SizeExpr blocksOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words);

/// Rows over tiles that read one stream, of all indices that a block packs.
static SizeExpr packedRows(const CudaKernel &kernel, const Words &words) {
  SizeExpr rows = 1;
  for (const CudaTiles::Share &packed : kernel.tiles->packed)
    rows = rows * (packed.share ? SizeExpr(packed.share)
                                : words.extent(packed.extent));
  return rows;
}

/// What has parts: a row, a rectangle, or rows of a block that read one stream.
static SizeExpr groupsOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  using Op = SizeExpr::Op;
  if (kernel.product) {
    const CudaOperand &result = kernel.operands.back();
    SizeExpr all =
        SizeExpr::binary(Op::CeilDiv, words.size(result, result.rank - 2),
                         SizeExpr(entry.rows)) *
        SizeExpr::binary(Op::CeilDiv, words.size(result, result.rank - 1),
                         SizeExpr(entry.columns));
    for (unsigned d = 0; d + 2 < result.rank; ++d)
      all = all * words.size(result, d);
    return all * SizeExpr(kernel.product->count);
  }
  if (kernel.rowProduct)
    return rowsOf(kernel, words) *
           SizeExpr::binary(Op::CeilDiv, words.extent(kernel.rowProduct->rows),
                            SizeExpr(entry.rows));
  if (!kernel.tiles)
    return rowsOf(kernel, words);
  SizeExpr groups = SizeExpr::binary(Op::CeilDiv, packedRows(kernel, words),
                                     SizeExpr(entry.rows));
  for (const CudaTiles::Share &group : kernel.tiles->groups)
    groups = groups * SizeExpr::binary(Op::CeilDiv, words.extent(group.extent),
                                       SizeExpr(group.share));
  return groups;
}

/// How many of at most `most` blocks share `steps` of a sum that one of them
/// takes the time `all` for, where each that has left its part takes the time
/// `taken`: at least one.
static SizeExpr bestParts(const SizeExpr &steps, const SizeExpr &all,
                          const SizeExpr &taken, const SizeExpr &most) {
  using Op = SizeExpr::Op;
  // all / parts + taken * parts is least at the root of their quotient, which
  // lies below all of its tangents.
  SizeExpr quotient = SizeExpr::binary(Op::FloorDiv, all, taken);
  SizeExpr parts = most;
  for (int64_t root : {2, 5, 12, 28})
    parts = SizeExpr::binary(Op::Min, parts,
                             SizeExpr::binary(Op::FloorDiv,
                                              quotient + SizeExpr(root * root),
                                              2 * root));
  // Every part has something.
  SizeExpr own =
      SizeExpr::binary(Op::CeilDiv, steps, SizeExpr::binary(Op::Max, parts, 1));
  return SizeExpr::binary(Op::CeilDiv, steps,
                          SizeExpr::binary(Op::Max, own, 1));
}

/// How many blocks share `steps` of a sum, where one takes the time `step` for
/// each, and the last one `exchange` for what another one has left. `groups`
/// rectangles have sums of their own, of `most` blocks in all; who is last is
/// known after `ticket`. Follows from shapes alone, and so do the bits of the
/// result.
static SizeExpr partsOfSum(const SizeExpr &steps, int64_t step,
                           const SizeExpr &exchange, int64_t ticket,
                           const SizeExpr &groups, int64_t most) {
  using Op = SizeExpr::Op;
  SizeExpr all = steps * SizeExpr(step);
  SizeExpr parts =
      bestParts(steps, all, exchange,
                SizeExpr::binary(Op::FloorDiv, most,
                                 SizeExpr::binary(Op::Max, groups, 1)));
  // Two blocks are done before one.
  SizeExpr isWorth = SizeExpr::binary(
      Op::Lt, SizeExpr(2 * ticket) + SizeExpr(6) * exchange, all);
  return SizeExpr::select(isWorth, parts, 1);
}

/// What rows of a rectangle take to be left or taken, of whole fragments.
static SizeExpr exchangeOf(const CudaEntry &entry, const SizeExpr &rows,
                           int64_t fragment, int64_t bytesAtOnce,
                           int64_t least) {
  using Op = SizeExpr::Op;
  SizeExpr own =
      SizeExpr::binary(Op::CeilDiv, SizeExpr::binary(Op::Min, rows, entry.rows),
                       SizeExpr(fragment));
  return SizeExpr::binary(
      Op::Max,
      SizeExpr::binary(Op::CeilDiv,
                       own * SizeExpr(4 * entry.columns * fragment),
                       bytesAtOnce),
      least);
}

namespace {
/// What an entry takes of rows of products, in nanoseconds. A block copies its
/// steps one after the other. What blocks leave is added up by the last of
/// them, or by several where that would take long: then what limits their
/// number is how many parts a thread asks for at once.
class RowProductTime {
public:
  RowProductTime(const CudaEntry &entry, const CudaKernel &kernel,
                 const Words &words)
      : entry(entry), groups(groupsOf(entry, kernel, words)) {
    const CudaRowProduct &product = *kernel.rowProduct;
    int64_t bytes = (entry.rows + entry.columns) * kDepth * 2;
    // What few rows are copied by also multiplies.
    step = (entry.rows > kFewRows ? 40 : 130) + bytes / kCopiedANs;
    SizeExpr depth =
        words.size(kernel.operands[product.left.operand], product.left.flat);
    steps = SizeExpr::binary(Op::CeilDiv, depth, SizeExpr(kDepth));
    rows = SizeExpr::binary(Op::Min, words.extent(product.rows), entry.rows);
  }

  /// Blocks that share sums.
  SizeExpr parts() const {
    SizeExpr last = partsOfSum(
        steps, step, exchangeOf(entry, rows, 1, kExchangedANs, kLeast), kTicket,
        groups, entry.mostBlocks);
    SizeExpr sliced = bestParts(
        steps, steps * SizeExpr(step),
        exchangeOf(entry, rows, 1, kExchangedANs * kMostSlices, kLeastOfSlices),
        SizeExpr::binary(Op::FloorDiv, entry.mostBlocks,
                         SizeExpr::binary(Op::Max, groups, 1)));
    SizeExpr isLong = SizeExpr::binary(
        Op::Lt, kBytesOfOne, last * rows * SizeExpr(4 * entry.columns));
    return SizeExpr::select(isLong * SizeExpr::binary(Op::Lt, 1, last), sliced,
                            last);
  }

  /// About how long a launch takes, but for what all entries do.
  SizeExpr all() const {
    SizeExpr shared = parts();
    SizeExpr own = SizeExpr::binary(Op::CeilDiv, steps, shared);
    int64_t exchange = int64_t(entry.rows) * entry.columns * 4 / kExchangedANs;
    return SizeExpr::binary(Op::CeilDiv, groups * shared, SizeExpr(kUnits)) *
               (own * SizeExpr(step) + SizeExpr(exchange)) +
           SizeExpr::binary(Op::Lt, 1, shared) *
               SizeExpr(kExchanges * exchange);
  }

private:
  using Op = SizeExpr::Op;
  // Fitted to 1 to 2048 rows on an H200
  // (benchmarks/results/cuda-product-rows.md).
  static constexpr int64_t kUnits = 132, kDepth = 64, kFewRows = 16;
  static constexpr int64_t kTicket = 1100, kCopiedANs = 115, kExchangedANs = 60;
  static constexpr int64_t kLeast = 80, kLeastOfSlices = 60, kExchanges = 8;
  // add_parts of the runtime.
  static constexpr int64_t kMostSlices = 16, kBytesOfOne = int64_t(80) << 10;

  const CudaEntry &entry;
  SizeExpr groups, steps, rows;
  int64_t step = 0;
};
} // namespace

/// Whether what is multiplied into rows comes in whole vectors.
static SizeExpr takesRowProduct(const CudaEntry &entry,
                                const CudaKernel &kernel, const Words &words,
                                bool isWanted) {
  const CudaRowProduct &product = *kernel.rowProduct;
  SizeExpr takes = words.takes(words.extent(kernel.stream), entry.width);
  if (entry.copied > 1)
    for (const CudaRowProduct::Side &side : {product.left, product.right}) {
      const CudaOperand &o = kernel.operands[side.operand];
      takes = takes * words.takesRows(o, side.flat, entry.copied);
      // What copies panels copies nothing of rows that are not there, from
      // where they would be.
      if (entry.roles > 0)
        takes = takes * words.areAligned(o, side.flat);
    }
  if (entry.fewestRows > 0 && !isWanted) {
    // Of all batches: their blocks are there at once. A batch of no more rows
    // than a block of few has fills no other.
    constexpr int64_t kRowsOfFew = 16;
    SizeExpr rows = words.extent(product.rows);
    takes = takes *
            SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(entry.fewestRows),
                             rowsOf(kernel, words) * rows) *
            SizeExpr::binary(SizeExpr::Op::Lt, SizeExpr(kRowsOfFew), rows);
    // One of fewer rows would be done later.
    SizeExpr time = RowProductTime(entry, kernel, words).all();
    for (const CudaEntry &other : kernel.entries)
      if (other.rows < entry.rows)
        takes = takes *
                SizeExpr::binary(SizeExpr::Op::Le, time,
                                 RowProductTime(other, kernel, words).all());
  }
  return takes;
}

/// Whether an array has fewer elements along the summed or the carried index
/// than an entry has room for.
static SizeExpr takesTiles(const CudaEntry &entry, const CudaKernel &kernel,
                           const Words &words, bool isWanted) {
  SizeExpr depth = words.extent(kernel.tiles->depth),
           width = words.extent(kernel.tiles->width);
  SizeExpr takes =
      isAtMost(depth, entry.deepest) * words.takes(depth, entry.width);
  if (kernel.tiles->width.operand >= 0)
    takes = takes * Words::isMultiple(width, entry.width);
  // More rows are worth blocks of 128 of them.
  constexpr int64_t kFewRows = 32;
  bool isWide = entry.hasParts() && entry.roles > 0;
  if (isWide) // results are the front of what is multiplied, by maps
    takes = takes * SizeExpr::binary(SizeExpr::Op::Le, width, depth) *
            words.areForward();
  if (entry.hasParts() && !isWide && !isWanted)
    takes = takes * isAtMost(packedRows(kernel, words), kFewRows);
  if (entry.fewestRows > 0 && !isWanted)
    takes =
        takes * SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(entry.fewestRows),
                                 words.extent(kernel.tiles->rows));
  return entry.widest == 0 ? takes : takes * isAtMost(width, entry.widest);
}

namespace {
/// What entries with roles, or of f32, take of products, in cycles. What the
/// rectangles of a multiprocessor have in common, the way from the second level
/// cache or the products, and writing, takes its time for each; what one waits
/// for is hidden behind those that are there with it.
class ProductCycles {
public:
  ProductCycles(const CudaEntry &entry, const CudaKernel &kernel,
                const Words &words)
      : entry(entry), groups(groupsOf(entry, kernel, words)) {
    const CudaOperand &lhs = kernel.operands[0];
    area = int64_t(entry.rows) * entry.columns;
    int64_t side = entry.rows + entry.columns;
    if (entry.roles > 0) {
      step = std::max(side * entry.copied * 2 / kBytesACycle,
                      area * entry.copied / kProductsACycle);
      activations = kernel.product->hasActivation
                        ? area / (int64_t(entry.roles) * kActivationsACycle)
                        : 0;
    } else {
      step = entry.copied *
             std::max(side * 4 / kWordBytesACycle, area / kWordProductsACycle);
    }
    steps = SizeExpr::binary(Op::CeilDiv, words.size(lhs, lhs.rank - 1),
                             SizeExpr(entry.copied));
    exchange = exchangeOf(entry, words.size(lhs, lhs.rank - 2), 16,
                          kExchangedACycle, kLeastExchange);
  }

  /// Blocks that share sums.
  SizeExpr parts() const {
    return entry.hasParts() ? partsOfSum(steps, step + kStepWait, exchange,
                                         kTicket, groups, entry.mostBlocks)
                            : SizeExpr(1);
  }
  /// About how long a launch takes.
  SizeExpr all() const {
    SizeExpr shared = parts();
    SizeExpr own =
        entry.hasParts() ? SizeExpr::binary(Op::CeilDiv, steps, shared) : steps;
    SizeExpr blocks = groups * shared;
    auto waves = [&](int64_t atOnce) {
      return SizeExpr::binary(Op::CeilDiv, blocks, SizeExpr(atOnce));
    };
    SizeExpr cycles =
        waves(kUnits) *
            (own * SizeExpr(step) + SizeExpr(area / kResultsACycle)) +
        waves(kUnits * entry.blocksPerUnit) *
            (own * SizeExpr(kStepWait) + SizeExpr(kLatency + activations));
    if (entry.hasParts())
      cycles =
          cycles + SizeExpr::binary(Op::Lt, 1, shared) *
                       (SizeExpr(kTicket) + (shared + SizeExpr(1)) * exchange);
    return cycles;
  }

private:
  using Op = SizeExpr::Op;
  // Fitted to 128 to 4096 rows on an H200
  // (benchmarks/results/cuda-products.md).
  static constexpr int64_t kUnits = 132, kLatency = 2300, kStepWait = 90;
  static constexpr int64_t kBytesACycle = 80, kProductsACycle = 2048;
  static constexpr int64_t kResultsACycle = 8, kActivationsACycle = 3;
  static constexpr int64_t kTicket = 2100, kExchangedACycle = 40;
  static constexpr int64_t kLeastExchange = 200;
  static constexpr int64_t kWordProductsACycle = 102, kWordBytesACycle = 20;

  const CudaEntry &entry;
  SizeExpr groups, steps, exchange;
  int64_t area = 0, step = 0, activations = 0;
};
} // namespace

/// Whether an entry is done no later than those of its kind behind it.
static SizeExpr isSoonest(const CudaEntry &entry, const CudaKernel &kernel,
                          const Words &words) {
  SizeExpr cycles = ProductCycles(entry, kernel, words).all(), is = 1;
  for (const CudaEntry &other : kernel.entries)
    if (&other > &entry && (other.roles > 0) == (entry.roles > 0) &&
        other.copied > 0 && other.width == entry.width)
      is = is * SizeExpr::binary(SizeExpr::Op::Le, cycles,
                                 ProductCycles(other, kernel, words).all());
  return is;
}

/// Whether an entry of f32 takes a product: by vectors, what is summed lies
/// beside each other on the left, and columns come in whole vectors.
static SizeExpr takesWords(const CudaEntry &entry, const CudaKernel &kernel,
                           const Words &words, bool isWanted) {
  using Op = SizeExpr::Op;
  const CudaOperand &lhs = kernel.operands[0], &result = kernel.operands.back();
  unsigned n = lhs.rank - 1;
  SizeExpr takes = 1;
  if (entry.width > 1) {
    takes =
        SizeExpr::binary(Op::Max, isAtMost(words.size(lhs, n), 1),
                         SizeExpr::binary(Op::Eq, words.stride(lhs, n), 1)) *
        words.takesRows(result, n, entry.width);
    if (!kernel.product->isTransposed)
      takes = takes * words.takesRows(kernel.operands[1], n, entry.width);
  }
  return isWanted ? takes : takes * isSoonest(entry, kernel, words);
}

/// Whether both sides of a product, and what is written, come in whole vectors
/// of 16 bytes; few rows or many have entries of their own.
static SizeExpr takesProduct(const CudaEntry &entry, const CudaKernel &kernel,
                             const Words &words, bool isWanted) {
  using Op = SizeExpr::Op;
  if (entry.copied > 0 && entry.roles == 0)
    return takesWords(entry, kernel, words, isWanted);
  const CudaOperand &lhs = kernel.operands[0], &result = kernel.operands.back();
  unsigned beside = kernel.product->count;
  unsigned m = lhs.rank - 2, n = lhs.rank - 1;
  SizeExpr rows = words.size(result, m), columns = words.size(result, n);
  SizeExpr takes = 1;
  if (entry.width > 1) {
    unsigned along = kernel.product->isTransposed ? m : n;
    takes = words.takesRows(lhs, n, entry.width);
    for (unsigned i = 0; i < beside; ++i)
      takes = takes *
              words.takesRows(kernel.operands[1 + i], along, entry.width) *
              words.takesRows(kernel.operands.rbegin()[i], n, entry.width);
    // What copies panels copies nothing of rows that are not there, from where
    // they would be.
    if (entry.roles > 0) {
      takes = takes * words.areAligned(lhs, n);
      for (unsigned i = 0; i < beside; ++i)
        takes = takes * words.areAligned(kernel.operands[1 + i], along);
    }
  }
  if (isWanted || entry.width == 1)
    return takes;
  if (entry.roles > 0)
    return takes * isSoonest(entry, kernel, words);
  auto isFew = [&](int64_t rowsOfBlock, int64_t columnsOfBlock, int64_t many) {
    SizeExpr blocks =
        SizeExpr::binary(Op::CeilDiv, rows, SizeExpr(rowsOfBlock)) *
        SizeExpr::binary(Op::CeilDiv, columns, SizeExpr(columnsOfBlock));
    for (unsigned d = 0; d < m; ++d)
      blocks = blocks * words.size(result, d);
    return isAtMost(blocks * SizeExpr(beside), many - 1);
  };
  // Blocks of 64 x 64, or of 16 x 64, that every second multiprocessor has one
  // of read less than more of them do.
  constexpr int64_t kManyBlocks = 128, kEnoughBlocks = 72;
  if (entry.rows <= 16) {
    takes = takes * isAtMost(rows, entry.rows);
    return entry.columns < 64 ? takes * isFew(16, 64, kEnoughBlocks) : takes;
  }
  if (entry.rows < 64)
    return takes;
  return takes *
         (SizeExpr(1) - isFew(entry.rows, entry.columns,
                              entry.rows > 64 ? kManyBlocks : kEnoughBlocks));
}

/// Whether both sides of a product of bytes, and all results of two bytes,
/// come in whole vectors of 16 bytes.
static SizeExpr takesF8Product(const CudaEntry &entry, const CudaKernel &kernel,
                               const Words &words, bool isWanted) {
  using Op = SizeExpr::Op;
  const CudaF8Product &product = *kernel.f8Product;
  SizeExpr takes = 1;
  if (entry.width > 1) {
    for (const CudaRowProduct::Side &side : {product.left, product.right}) {
      const CudaOperand &o = kernel.operands[side.operand];
      takes = takes * words.takesRows(o, side.flat, entry.width);
      if (entry.roles > 0)
        takes = takes * words.takesMap(o, side.flat);
    }
    for (const CudaRowProduct::Side &side : product.results) {
      const CudaOperand &result = kernel.operands[side.operand];
      if (result.elementBytes == 2)
        takes = takes * words.takesRows(result, side.flat, 8);
    }
  }
  if (isWanted)
    return takes;
  if (entry.fewestRows > 0)
    takes = takes * SizeExpr::binary(Op::Le, SizeExpr(entry.fewestRows),
                                     words.extent(product.rows));
  return takes;
}

/// How many blocks share a row: as many as have enough of it, while the launch
/// has no more than it wants. Follows from shapes alone, and so do the bits of
/// the result.
static SizeExpr partsOf(const CudaEntry &entry, const CudaKernel &kernel,
                        const Words &words) {
  using Op = SizeExpr::Op;
  if (kernel.rowProduct)
    return RowProductTime(entry, kernel, words).parts();
  if (kernel.product)
    return ProductCycles(entry, kernel, words).parts();
  SizeExpr rows = SizeExpr::binary(Op::Max, groupsOf(entry, kernel, words), 1);
  // What a block leaves of wide results is worth many tiles.
  constexpr int kWideChunk = 2;
  int64_t chunk = !kernel.tiles     ? entry.chunk()
                  : entry.roles > 0 ? kWideChunk * entry.vectors
                                    : entry.vectors;
  SizeExpr most = SizeExpr::binary(Op::FloorDiv, entry.mostBlocks, rows);
  SizeExpr longest = SizeExpr::binary(Op::CeilDiv, lengthOf(kernel, words),
                                      SizeExpr(CudaEntry::kPartChunks * chunk));
  return SizeExpr::binary(Op::Max, SizeExpr::binary(Op::Min, most, longest), 1);
}

/// Whether an entry may run; one that is asked for, on any length that it can.
static SizeExpr condition(const CudaEntry &entry, const CudaKernel &kernel,
                          const Words &words, bool isWanted) {
  if (kernel.tiles)
    return takesTiles(entry, kernel, words, isWanted);
  if (kernel.rowProduct)
    return takesRowProduct(entry, kernel, words, isWanted);
  if (kernel.product)
    return takesProduct(entry, kernel, words, isWanted);
  if (kernel.f8Product)
    return takesF8Product(entry, kernel, words, isWanted);
  SizeExpr length = lengthOf(kernel, words);
  SizeExpr takes = words.takes(length, entry.width);
  if (entry.hasParts()) // a ticket for every row
    return takes * isAtMost(rowsOf(kernel, words), entry.mostBlocks) *
           (isWanted
                ? SizeExpr(1)
                : SizeExpr(1) - isAtMost(partsOf(entry, kernel, words), 1));
  bool isLimited = (entry.isResident || !isWanted) && entry.longest >= 0;
  if (entry.fewestRows > 0 && !isWanted)
    takes =
        takes * SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(entry.fewestRows),
                                 rowsOf(kernel, words));
  return isLimited ? takes * isAtMost(length, entry.longest) : takes;
}

/// Blocks that may have maps in the workspace: more than an sm_90a has at once.
static constexpr int64_t kMostMapped = 256;

/// Blocks of an entry: some rows each, or some rows of every tile.
static SizeExpr blocksOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  if (kernel.product && !entry.hasParts())
    return groupsOf(entry, kernel, words);
  if (kernel.f8Product) {
    using Op = SizeExpr::Op;
    SizeExpr all =
        SizeExpr::binary(Op::CeilDiv, words.extent(kernel.f8Product->rows),
                         SizeExpr(entry.rows)) *
        SizeExpr::binary(Op::CeilDiv, words.extent(kernel.f8Product->columns),
                         SizeExpr(entry.columns));
    return entry.isLoop ? SizeExpr::binary(Op::Min, all, kMostMapped) : all;
  }
  SizeExpr rows = rowsOf(kernel, words);
  if (entry.hasParts())
    return groupsOf(entry, kernel, words) * partsOf(entry, kernel, words);
  auto blocks = [&](const SizeExpr &count) {
    return SizeExpr::binary(SizeExpr::Op::CeilDiv, count, SizeExpr(entry.rows));
  };
  return kernel.tiles ? rows * blocks(words.extent(kernel.tiles->rows))
                      : blocks(rows);
}

/// Shared memory that the launch asks for: of an entry that keeps rows there,
/// whole chunks of what registers do not hold.
static SizeExpr sharedOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  if (entry.keptBytes == 0)
    return entry.sharedBytes;
  SizeExpr kept = SizeExpr::binary(
      SizeExpr::Op::Max, lengthOf(kernel, words) - SizeExpr(entry.held()),
      SizeExpr(0));
  return SizeExpr::binary(SizeExpr::Op::CeilDiv, kept,
                          SizeExpr(entry.chunk())) *
         SizeExpr(entry.chunk() * entry.keptBytes);
}

/// What cuBLASLt may compute in place of a product's kernel, and where it is
/// expected to be quicker (benchmarks/results/cuda-products.md).
static std::optional<package::DeviceProduct>
describeForLibrary(const CudaKernel &kernel, const Words &words) {
  if (!kernel.product || !kernel.product->library)
    return std::nullopt;
  const CudaProduct::Library &form = *kernel.product->library;
  const CudaOperand &lhs = kernel.operands[0], &result = kernel.operands.back();
  package::DeviceProduct product;
  product.rank = lhs.rank;
  product.lhs = {lhs.word, form.sides};
  product.rhs = {kernel.operands[1].word, form.sides};
  product.result = {result.word, form.result};
  product.hasBias = form.hasBias;
  if (form.hasBias) {
    product.bias = {kernel.operands[2].word, form.result};
    product.biasRank = kernel.operands[2].rank;
  }
  constexpr int64_t kLarge = int64_t(1) << 34;
  product.condition = 1;
  if (form.sides != DType::F32) {
    SizeExpr products = words.size(lhs, lhs.rank - 1);
    for (unsigned dim = 0; dim < result.rank; ++dim)
      products = products * words.size(result, dim);
    product.condition =
        SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(kLarge), products);
  }
  return product;
}

package::DeviceKernel
refold::describeCudaLaunch(const CudaKernel &kernel,
                           std::optional<unsigned> wanted) {
  Words words(kernel);
  package::Launch launch;
  for (const CudaParameter &parameter : kernel.parameters)
    launch.parameters.push_back(words.parameter(parameter));
  auto add = [&](const CudaEntry &entry, const SizeExpr &condition) {
    package::LaunchWay way;
    way.entry = entry.name;
    way.condition = condition;
    way.grid[0] = blocksOf(entry, kernel, words);
    bool isOfBlock =
        kernel.tiles || kernel.product || kernel.rowProduct || kernel.f8Product;
    way.block[0] = entry.threads * (isOfBlock ? 1 : entry.rows);
    way.sharedBytes = sharedOf(entry, kernel, words);
    way.blocksPerUnit = entry.isLoop ? unsigned(entry.blocksPerUnit) : 0;
    launch.ways.push_back(std::move(way));
  };
  if (wanted)
    add(kernel.entries[*wanted],
        condition(kernel.entries[*wanted], kernel, words, true));
  // The first that takes the rows; of rows, the last one takes all.
  for (const CudaEntry &entry : kernel.entries)
    add(entry, &entry == &kernel.entries.back() && !kernel.tiles
                   ? SizeExpr(1)
                   : condition(entry, kernel, words, false));
  package::DeviceKernel described;
  described.name = kernel.name;
  described.text = kernel.text;
  for (const CudaEntry &entry : kernel.entries) {
    if (kernel.f8Product && entry.leftBytes > 0)
      described.workspaceBytes = kMostMapped * entry.leftBytes;
    if (!entry.hasParts())
      continue;
    // Whatever the addresses: alignment may leave the first such entry out.
    using Op = SizeExpr::Op;
    SizeExpr groups = groupsOf(entry, kernel, words),
             parts = partsOf(entry, kernel, words);
    SizeExpr leaves = isAtMost(groups, entry.mostBlocks);
    if (kernel.rowProduct || kernel.product) // alone, a block leaves nothing
      leaves = SizeExpr(1) - isAtMost(parts, 1);
    SizeExpr all = groups * parts, blocks = SizeExpr::select(leaves, all, 0);
    described.workspaceBytes = SizeExpr::binary(
        Op::Max, described.workspaceBytes,
        blocks * SizeExpr(entry.leftBytes) + all * SizeExpr(entry.mapBytes));
    described.tickets = std::max(described.tickets, uint32_t(entry.mostBlocks));
  }
  described.launches.push_back(std::move(launch));
  described.product = describeForLibrary(kernel, words);
  return described;
}

/// Products that no entry has room for.
static llvm::Error refuseTiles(const CudaKernel &kernel,
                               llvm::ArrayRef<int64_t> values) {
  Words words(kernel);
  auto extent = [&](const CudaExtent &e) {
    return llvm::Twine(words.extent(e).evaluate(values).value_or(-1)).str();
  };
  const CudaEntry &last = kernel.entries.back();
  SizeExpr fits = isAtMost(words.extent(kernel.tiles->depth), last.deepest) *
                  isAtMost(words.extent(kernel.tiles->width), last.widest);
  std::string found = "'" + kernel.name + "': [" +
                      llvm::StringRef(keyOf(Reason::CudaNotTiles)).str() + "] ";
  bool isWide = last.hasParts() && last.roles > 0;
  if (isWide && words.areForward().evaluate(values).value_or(0) == 0)
    return fail(ExitCode::Unsupported,
                found + "found rows that lie backwards, expected those after "
                        "each other where results are wide");
  if (last.width > 1 && fits.evaluate(values).value_or(0) != 0)
    return fail(ExitCode::Unsupported,
                found + "found rows of several elements that are no whole "
                        "vectors of 16 bytes, expected those where results "
                        "are wide");
  return fail(ExitCode::Unsupported,
              found + "found products of " + extent(kernel.tiles->depth) +
                  " elements and results of " + extent(kernel.tiles->width) +
                  ", expected at most " +
                  llvm::Twine(kernel.entries.back().deepest));
}

llvm::Expected<std::optional<CudaLaunch>>
refold::planCudaLaunch(const CudaKernel &kernel, const int64_t *rawWords,
                       std::optional<unsigned> wanted,
                       std::pair<int64_t, int64_t> shared) {
  package::DeviceKernel described = describeCudaLaunch(kernel, wanted);
  const package::Launch &plan = described.launches.front();
  llvm::SmallVector<int64_t> words(rawWords, rawWords + numWords(kernel));
  words.append({shared.first, shared.second});
  auto way = llvm::find_if(plan.ways, [&](const package::LaunchWay &one) {
    return one.condition.evaluate(words).value_or(0) != 0;
  });
  if (way == plan.ways.end())
    return refuseTiles(kernel, words);
  std::optional<int64_t> blocks = way->grid[0].evaluate(words);
  constexpr int64_t kMaxBlocks = (int64_t(1) << 31) - 1;
  if (!blocks || *blocks > kMaxBlocks)
    return fail(ExitCode::Limit,
                "'" + kernel.name +
                    "' has too many rows, expected fewer than a grid has");
  if (*blocks == 0)
    return std::nullopt;
  CudaLaunch launch;
  launch.entry = unsigned(llvm::find_if(kernel.entries,
                                        [&](const CudaEntry &one) {
                                          return one.name == way->entry;
                                        }) -
                          kernel.entries.begin());
  launch.blocks = *blocks;
  launch.threads = int(*way->block[0].evaluate(words));
  // As many as two multiprocessors take, so that blocks have several rows.
  if (way->blocksPerUnit > 0)
    launch.blocks = std::min<int64_t>(*blocks, 2 * way->blocksPerUnit);
  launch.sharedBytes = way->sharedBytes.evaluate(words).value_or(0);
  for (const SizeExpr &parameter : plan.parameters)
    launch.values.push_back(parameter.evaluate(words).value_or(0));
  return launch;
}

int64_t refold::cudaWorkspaceBytes(const CudaKernel &kernel,
                                   const int64_t *words,
                                   std::optional<unsigned> wanted) {
  return describeCudaLaunch(kernel, wanted)
      .workspaceBytes.evaluate({words, numWords(kernel)})
      .value_or(0);
}
