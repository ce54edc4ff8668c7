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

/// Whether what is multiplied into rows comes in whole vectors.
static SizeExpr takesRowProduct(const CudaEntry &entry,
                                const CudaKernel &kernel, const Words &words,
                                bool isWanted) {
  const CudaRowProduct &product = *kernel.rowProduct;
  SizeExpr takes = words.takes(words.extent(kernel.stream), entry.width);
  if (entry.copied > 1)
    for (const CudaRowProduct::Side &side : {product.left, product.right})
      takes = takes * words.takesRows(kernel.operands[side.operand], side.flat,
                                      entry.copied);
  if (entry.fewestRows > 0 && !isWanted)
    takes =
        takes * SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(entry.fewestRows),
                                 words.extent(product.rows));
  return takes;
}

/// Rows over tiles that read one stream, of all indices that a block packs.
static SizeExpr packedRows(const CudaKernel &kernel, const Words &words) {
  SizeExpr rows = 1;
  for (const CudaTiles::Share &packed : kernel.tiles->packed)
    rows = rows * (packed.share ? SizeExpr(packed.share)
                                : words.extent(packed.extent));
  return rows;
}

/// What has parts: a row, or rows of a block that read one stream.
static SizeExpr groupsOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  using Op = SizeExpr::Op;
  if (!kernel.tiles)
    return rowsOf(kernel, words);
  SizeExpr groups = SizeExpr::binary(Op::CeilDiv, packedRows(kernel, words),
                                     SizeExpr(entry.rows));
  for (const CudaTiles::Share &group : kernel.tiles->groups)
    groups = groups * SizeExpr::binary(Op::CeilDiv, words.extent(group.extent),
                                       SizeExpr(group.share));
  return groups;
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

/// About how many cycles a launch of products takes, of an entry with roles.
/// What the rectangles of a multiprocessor have in common, the way from the
/// second level cache or the products, and writing, takes its time for each;
/// what one waits for is hidden behind those that are there with it.
static SizeExpr cyclesOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  using Op = SizeExpr::Op;
  // Fitted to 128 to 4096 rows on an H200
  // (benchmarks/results/cuda-products.md).
  constexpr int64_t kUnits = 132, kDepth = 64, kLatency = 2300;
  constexpr int64_t kBytesACycle = 80, kProductsACycle = 2048;
  constexpr int64_t kResultsACycle = 8, kActivationsACycle = 3, kStepWait = 90;
  const CudaOperand &lhs = kernel.operands[0];
  int64_t side = entry.rows + entry.columns;
  int64_t area = int64_t(entry.rows) * entry.columns;
  int64_t step = std::max(side * kDepth * 2 / kBytesACycle,
                          area * kDepth / kProductsACycle);
  int64_t wait = kStepWait * kDepth / entry.copied;
  int64_t activations = kernel.product->hasActivation
                            ? area / (int64_t(entry.roles) * kActivationsACycle)
                            : 0;
  SizeExpr blocks = blocksOf(entry, kernel, words);
  SizeExpr steps = SizeExpr::binary(Op::CeilDiv, words.size(lhs, lhs.rank - 1),
                                    SizeExpr(kDepth));
  auto waves = [&](int64_t atOnce) {
    return SizeExpr::binary(Op::CeilDiv, blocks, SizeExpr(atOnce));
  };
  return waves(kUnits) *
             (steps * SizeExpr(step) + SizeExpr(area / kResultsACycle)) +
         waves(kUnits * entry.blocksPerUnit) *
             (steps * SizeExpr(wait) + SizeExpr(kLatency + activations));
}

/// Whether both sides of a product, and what is written, come in whole vectors
/// of 16 bytes; few rows or many have entries of their own.
static SizeExpr takesProduct(const CudaEntry &entry, const CudaKernel &kernel,
                             const Words &words, bool isWanted) {
  using Op = SizeExpr::Op;
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
  if (entry.roles > 0) {
    SizeExpr cycles = cyclesOf(entry, kernel, words);
    for (const CudaEntry &other : kernel.entries)
      if (other.roles > 0 && &other != &entry)
        takes = takes * SizeExpr::binary(Op::Le, cycles,
                                         cyclesOf(other, kernel, words));
    return takes;
  }
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
  if (kernel.product) {
    using Op = SizeExpr::Op;
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
  if (kernel.rowProduct)
    return rows * blocks(words.extent(kernel.rowProduct->rows));
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
    SizeExpr blocks = SizeExpr::select(
        isAtMost(groupsOf(entry, kernel, words), entry.mostBlocks),
        groupsOf(entry, kernel, words) * partsOf(entry, kernel, words), 0);
    described.workspaceBytes = SizeExpr::binary(
        Op::Max, described.workspaceBytes, blocks * SizeExpr(entry.leftBytes));
    described.tickets = std::max(described.tickets, uint32_t(entry.mostBlocks));
  }
  described.launches.push_back(std::move(launch));
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
