// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LaunchSizes.h"

using namespace refold;

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

SizeExpr refold::timeOfRowProduct(const CudaEntry &entry,
                                  const CudaKernel &kernel,
                                  const Words &words) {
  return RowProductTime(entry, kernel, words).all();
}

SizeExpr refold::cyclesOfProduct(const CudaEntry &entry,
                                 const CudaKernel &kernel, const Words &words) {
  return ProductCycles(entry, kernel, words).all();
}

/// How many blocks share each of `groups` streams, of `tiles` each, where
/// results are wide: what a tile takes against what a part takes to be left and
/// merged. Of few streams up to 32 parts take little, since as many blocks
/// merge a slice of the rows each and leave room for each other. In
/// nanoseconds, fitted to one to four batches of 512 to 32768 on an H200
/// (benchmarks/results/cuda-latent.md).
static SizeExpr partsOfWide(const CudaEntry &entry, const SizeExpr &tiles,
                            const SizeExpr &groups) {
  using Op = SizeExpr::Op;
  constexpr int64_t kTile = 1350, kTaken = 200, kTakenOfFew = 30;
  constexpr int64_t kTicket = 1500, kSlices = 32;
  SizeExpr all =
      tiles * SizeExpr(kTile * (entry.deepest + entry.widest) / (576 + 512));
  auto taken = [&](int64_t of) {
    return SizeExpr(std::max<int64_t>(of * entry.widest / 512, 1));
  };
  SizeExpr most = SizeExpr::binary(Op::FloorDiv, entry.mostBlocks,
                                   SizeExpr::binary(Op::Max, groups, 1));
  SizeExpr areFew = SizeExpr::binary(Op::Lt, kSlices - 1, most);
  SizeExpr few = bestParts(tiles, all, taken(kTakenOfFew),
                           SizeExpr::select(areFew, kSlices, 1));
  SizeExpr many = bestParts(tiles, all, taken(kTaken), most);
  SizeExpr isWorth = SizeExpr::binary(
      Op::Lt, SizeExpr(2 * kTicket) + SizeExpr(6) * taken(kTaken), all);
  return SizeExpr::select(isWorth, SizeExpr::binary(Op::Max, few, many), 1);
}

/// The same of any stream: what a tile takes against what every part takes to
/// be left and merged, in nanoseconds (fitted to one to four batches of 256 to
/// 8192 on an H100, benchmarks/results/cuda-parts.md).
static SizeExpr partsOfStream(const CudaEntry &entry, const CudaKernel &kernel,
                              const Words &words, const SizeExpr &groups) {
  constexpr int64_t kTile = 640, kTaken = 30, kTicket = 1700;
  SizeExpr tiles = SizeExpr::binary(
      SizeExpr::Op::CeilDiv, lengthOf(kernel, words), SizeExpr(entry.vectors));
  if (entry.roles > 0)
    return partsOfWide(entry, tiles, groups);
  return partsOfSum(tiles, kTile, kTaken, kTicket, groups, entry.mostBlocks);
}

SizeExpr refold::partsOf(const CudaEntry &entry, const CudaKernel &kernel,
                         const Words &words) {
  using Op = SizeExpr::Op;
  if (kernel.rowProduct)
    return RowProductTime(entry, kernel, words).parts();
  if (kernel.product)
    return ProductCycles(entry, kernel, words).parts();
  SizeExpr rows = SizeExpr::binary(Op::Max, groupsOf(entry, kernel, words), 1);
  if (kernel.tiles)
    return SizeExpr::binary(Op::Max, partsOfStream(entry, kernel, words, rows),
                            1);
  SizeExpr most = SizeExpr::binary(Op::FloorDiv, entry.mostBlocks, rows);
  return SizeExpr::binary(
      Op::Max,
      SizeExpr::binary(Op::Min, most, longestParts(entry, kernel, words)), 1);
}

SizeExpr refold::longestParts(const CudaEntry &entry, const CudaKernel &kernel,
                              const Words &words) {
  // Blocks weigh parts of wide results themselves, from two tiles on.
  constexpr int kWideTiles = 2;
  int64_t chunk = kernel.tiles ? entry.vectors : entry.chunk();
  int64_t own =
      (kernel.tiles && entry.roles > 0 ? kWideTiles : CudaEntry::kPartChunks) *
      chunk;
  // What is in registers is not read again; of columns a chunk is many rows.
  if (entry.waits || (!kernel.tiles && entry.rows > 1))
    own = chunk;
  else if (!kernel.tiles) // larger chunks are worth more
    own = std::min(own, CudaEntry::kPartElements * entry.threads);
  return SizeExpr::binary(SizeExpr::Op::CeilDiv, lengthOf(kernel, words),
                          SizeExpr(own));
}
