// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "LaunchSizes.h"

using namespace refold;

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
      // Maps have rows that lie forward.
      for (unsigned dim = 0; entry.mapBytes > 0 && dim < o.rank; ++dim)
        takes = takes *
                SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(0),
                                 words.stride(o, dim)) *
                isAtMost(words.size(o, dim), CudaTiles::kMostPlaces);
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
    SizeExpr time = timeOfRowProduct(entry, kernel, words);
    for (const CudaEntry &other : kernel.entries)
      if (other.rows < entry.rows)
        takes =
            takes * SizeExpr::binary(SizeExpr::Op::Le, time,
                                     timeOfRowProduct(other, kernel, words));
  }
  return takes;
}

/// What the columns of all tiles that rows walk take, in percent of one of a
/// long tile, and what a block does beside them, of which three blocks hide
/// more (fitted to rows of 512 to 16384, benchmarks/results/cuda-tiles.md).
static SizeExpr timeOfColumns(const CudaEntry &entry, const CudaKernel &kernel,
                              const Words &words) {
  using Op = SizeExpr::Op;
  constexpr int64_t kBeside = 87, kBesideThree = 47;
  int64_t percent = entry.vectors < 64 ? 105 : entry.vectors < 80 ? 103 : 100;
  SizeExpr length = words.extent(kernel.stream), columns(entry.vectors);
  SizeExpr walked = SizeExpr::binary(Op::CeilDiv, length, columns) * columns;
  // Half of the stream, and where rows of a block end half a tile.
  if (kernel.tiles->isGrowing)
    walked = length + SizeExpr(entry.rows) +
             SizeExpr(entry.rows % entry.vectors == 0 ? 0 : entry.vectors);
  int64_t beside = (entry.blocksPerUnit == 3 ? kBesideThree : kBeside) *
                   (kernel.tiles->isGrowing ? 2 : 1);
  return (walked + SizeExpr(beside)) * SizeExpr(percent);
}

/// Whether rows are enough for an entry over tiles. With roles a multiprocessor
/// does one visit after the other: where all of them have two at most, the
/// entry whose visits are done first (of 192 rows one takes 1.28 times as long
/// as of 128), and from half of 65 rows on a visit each, which is done before
/// the blocks of other entries are (benchmarks/results/cuda-tune.md).
static SizeExpr hasEnoughRows(const CudaEntry &entry, const CudaKernel &kernel,
                              const Words &words) {
  using Op = SizeExpr::Op;
  constexpr int64_t kUnits = 132, kFewRounds = 2, kLongStream = 512;
  constexpr int64_t kHalf = 33, kTime = 100, kTimeOf192 = 128;
  SizeExpr rows = words.extent(kernel.tiles->rows);
  SizeExpr isEnough =
      SizeExpr::binary(Op::Le, SizeExpr(entry.fewestRows), rows);
  if (entry.roles == 0 || entry.hasParts() || kernel.tiles->isGrowing)
    return isEnough;
  auto visits = [&](const CudaEntry &one) {
    return rowsOf(kernel, words) *
           SizeExpr::binary(Op::CeilDiv, rows, SizeExpr(one.rows));
  };
  auto time = [&](const CudaEntry &one) {
    return SizeExpr::binary(Op::CeilDiv, visits(one), SizeExpr(kUnits)) *
           SizeExpr(one.rows > 128 ? kTimeOf192 : kTime);
  };
  for (const CudaEntry &other : kernel.entries)
    if (other.roles > 0 && !other.hasParts() && other.rows < entry.rows &&
        other.deepest == entry.deepest && other.widest == entry.widest)
      return SizeExpr::select(
          isAtMost(visits(other), kFewRounds * kUnits),
          SizeExpr::binary(Op::Lt, time(entry), time(other)), isEnough);
  SizeExpr isAlone =
      SizeExpr::binary(Op::Le, SizeExpr(kHalf), rows) *
      isAtMost(visits(entry), kUnits) *
      SizeExpr::binary(Op::Le, kLongStream, words.extent(kernel.stream));
  return SizeExpr::binary(Op::Max, isEnough, isAlone);
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
  // More rows are worth blocks of 128 of them; twice as many, where these would
  // leave multiprocessors idle and all groups of few are there at once
  // (benchmarks/results/cuda-tune.md).
  constexpr int64_t kFewRows = 32;
  bool isWide = entry.hasParts() && entry.roles > 0;
  if (isWide) // results are the front of what is multiplied, by maps
    takes = takes * SizeExpr::binary(SizeExpr::Op::Le, width, depth) *
            words.areForward();
  else if (!entry.maps.empty()) // so is what others copy, or store
    takes = takes * words.areForward();
  if (!entry.maps.empty() || entry.mapBytes > 0)
    takes = takes * words.haveAtMost(CudaTiles::kMostPlaces);
  for (unsigned operand : entry.whole)
    takes = takes * words.beginWhole(kernel.operands[operand]);
  if (entry.roles > 0 && !isWide)
    for (const CudaExtent &places : {kernel.tiles->rows, kernel.stream})
      takes = takes * isAtMost(words.extent(places), CudaTiles::kMostPlaces);
  if (entry.hasParts() && !isWide && !isWanted)
    takes =
        takes *
        SizeExpr::binary(
            SizeExpr::Op::Max, isAtMost(packedRows(kernel, words), kFewRows),
            isAtMost(packedRows(kernel, words), 2 * kFewRows) *
                isAtMost(groupsOf(entry, kernel, words), entry.mostBlocks));
  if (entry.fewestRows > 0 && !isWanted)
    takes = takes * hasEnoughRows(entry, kernel, words);
  // Of entries that tiles' columns alone tell apart, the one that walks less.
  for (const CudaEntry &other : kernel.entries)
    if (&other > &entry && !isWanted && entry.roles + other.roles == 0 &&
        !entry.hasParts() && other.rows == entry.rows &&
        other.width == entry.width && other.deepest == entry.deepest &&
        other.widest == entry.widest)
      takes = takes * SizeExpr::binary(SizeExpr::Op::Le,
                                       timeOfColumns(entry, kernel, words),
                                       timeOfColumns(other, kernel, words));
  return entry.widest == 0 ? takes : takes * isAtMost(width, entry.widest);
}

/// Whether an entry is done no later than those of its kind behind it.
static SizeExpr isSoonest(const CudaEntry &entry, const CudaKernel &kernel,
                          const Words &words) {
  SizeExpr cycles = cyclesOfProduct(entry, kernel, words), is = 1;
  for (const CudaEntry &other : kernel.entries)
    if (&other > &entry && (other.roles > 0) == (entry.roles > 0) &&
        other.copied > 0 && other.width == entry.width)
      is = is * SizeExpr::binary(SizeExpr::Op::Le, cycles,
                                 cyclesOfProduct(other, kernel, words));
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

/// Whether an entry of products of bytes with roles is done no later than those
/// behind it. Of twice the columns a rectangle takes 1.7 times as long, and
/// there are half as many for the multiprocessors (fitted to 1024 to 8192 rows,
/// benchmarks/results/cuda-f8.md).
static SizeExpr isSoonestOfBytes(const CudaEntry &entry,
                                 const CudaKernel &kernel, const Words &words) {
  using Op = SizeExpr::Op;
  constexpr int64_t kUnits = 132;
  auto time = [&](const CudaEntry &one) {
    SizeExpr all =
        SizeExpr::binary(Op::CeilDiv, words.extent(kernel.f8Product->rows),
                         SizeExpr(one.rows)) *
        SizeExpr::binary(Op::CeilDiv, words.extent(kernel.f8Product->columns),
                         SizeExpr(one.columns));
    return SizeExpr::binary(Op::CeilDiv, all, SizeExpr(kUnits)) *
           SizeExpr(18 + one.columns * 41 / 128);
  };
  SizeExpr is = 1;
  for (const CudaEntry &other : kernel.entries)
    if (&other > &entry && other.roles > 0)
      is = is * SizeExpr::binary(Op::Le, time(entry), time(other));
  return is;
}

/// Whether both sides of a product of bytes, and all results of two bytes,
/// come in whole vectors of 16 bytes; with roles, by maps, of which sides have
/// something to sum.
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
      if (result.elementBytes != 2)
        continue;
      takes = takes * words.takesRows(result, side.flat, 8);
      if (entry.roles > 0)
        takes = takes * words.takesMap(result, side.flat);
    }
  }
  if (entry.roles > 0) {
    const CudaOperand &left = kernel.operands[product.left.operand];
    takes = takes * SizeExpr::binary(Op::Lt, SizeExpr(0),
                                     words.size(left, product.left.flat));
  }
  if (isWanted)
    return takes;
  if (entry.roles > 0)
    takes = takes * isSoonestOfBytes(entry, kernel, words);
  if (entry.fewestRows > 0)
    takes = takes * SizeExpr::binary(Op::Le, SizeExpr(entry.fewestRows),
                                     words.extent(product.rows));
  return takes;
}

/// Whether few rows are done sooner by blocks that sweep their parts again than
/// by those that have rows to themselves, or together (fitted to 1 to 99 rows
/// of 16k to 16M elements on an H200, benchmarks/results/cuda-rows.md, "Few
/// long rows"). Columns are nowhere between sweeps: a wait is worth some
/// chunks.
static SizeExpr areSweptSooner(const CudaEntry &entry, const CudaKernel &kernel,
                               const Words &words) {
  using Op = SizeExpr::Op;
  // Blocks that have more chunks of a row than that are waited for.
  constexpr int64_t kMostChunks = 7;
  // As many as a large GPU has twice; parts of a row that are worth a wait.
  constexpr int64_t kFewBlocks = 264, kLeastParts = 4;
  // One row or two leave most of a GPU idle, unless four blocks or more have
  // one of half of these chunks.
  constexpr int64_t kFewRows = 2, kManyChunks = 16, kManyBlocks = 4;
  constexpr int64_t kColumnChunks = 4;
  int64_t chunk = entry.chunk(), most = kMostChunks * chunk;
  if (entry.rows > 1)
    return SizeExpr::binary(Op::Le, SizeExpr(kColumnChunks * chunk),
                            lengthOf(kernel, words));
  int64_t held = most, onChip = most, blocks = 1, few = kManyChunks * chunk;
  bool isKnown = false;
  for (const CudaEntry &other : kernel.entries) {
    if (other.hasParts() || other.width != entry.width)
      continue;
    held = std::max(held, std::min(other.longest, most * other.blocks));
    if (other.longest > onChip) {
      onChip = other.longest;
      blocks = other.blocks;
    }
    int64_t half = kManyChunks / 2 * chunk;
    if (!isKnown && other.shortest <= half && half <= other.longest &&
        other.fewestRows <= kFewRows) {
      isKnown = true;
      few = other.blocks < kManyBlocks ? half : few;
    }
  }
  SizeExpr length = lengthOf(kernel, words), rows = rowsOf(kernel, words);
  SizeExpr isLong =
      SizeExpr::binary(Op::Lt, SizeExpr(held), length) *
      SizeExpr::select(isAtMost(length, onChip),
                       isAtMost(rows, kFewBlocks / blocks), SizeExpr(1)) *
      isAtMost(rows, entry.mostBlocks / kLeastParts);
  return SizeExpr::binary(Op::Max, isLong,
                          SizeExpr::binary(Op::Le, SizeExpr(few), length) *
                              isAtMost(rows, kFewRows));
}

/// Whether threads of an entry have so much of a row that few rows, which leave
/// multiprocessors idle, are done sooner by more threads.
static bool isSlowForFew(const CudaEntry &entry) {
  constexpr int kMostVectors = 8, kFewThreads = 64;
  return entry.place == CudaEntry::Registers && !entry.hasParts() &&
         (entry.vectors > kMostVectors ||
          (entry.vectors == kMostVectors && entry.threads <= kFewThreads));
}

/// Whether rows are so few that an entry behind this one, of more threads, is
/// done sooner: every second multiprocessor has one at most, and such an entry
/// takes them (20 rows of 3000: 0.3 to 0.8 us of 2.4 to 3.5,
/// benchmarks/results/cuda-tune.md).
/// Lists, whose threads each bring one to be merged, are not.
static SizeExpr areTooFew(const CudaEntry &entry, const CudaKernel &kernel,
                          const Words &words) {
  constexpr int64_t kHalfOfUnits = 66;
  constexpr int kManyThreads = 128;
  SizeExpr isOther;
  auto isOfLists = [](const CudaEntry &one) {
    return one.place == CudaEntry::Lanes;
  };
  if (!isSlowForFew(entry) || llvm::any_of(kernel.entries, isOfLists))
    return isOther;
  SizeExpr length = lengthOf(kernel, words);
  for (const CudaEntry &other : kernel.entries) {
    if (&other <= &entry || other.width != entry.width || other.hasParts() ||
        other.blocks > 1 || other.threads < kManyThreads ||
        other.fewestRows > 0 || other.turnRows > 0 || isSlowForFew(other))
      continue;
    SizeExpr takes =
        SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(other.shortest), length);
    if (other.longest >= 0)
      takes = takes * isAtMost(length, other.longest);
    isOther = SizeExpr::binary(SizeExpr::Op::Max, isOther, takes);
  }
  return isOther * isAtMost(rowsOf(kernel, words), kHalfOfUnits);
}

/// Whether rows are so few that clusters of twice as many blocks all run at
/// once: each has half as much to bring, which is much (1 to 30 rows of 70 to
/// 200 thousand: 1.2 to 1.6 times as fast, benchmarks/results/cuda-tune.md).
static SizeExpr areFewForCluster(const CudaEntry &entry,
                                 const CudaKernel &kernel, const Words &words) {
  constexpr int64_t kBlocks = 264; // two a multiprocessor
  constexpr int64_t kManyOfThread = 32;
  SizeExpr length = lengthOf(kernel, words), isOther;
  for (const CudaEntry &other : kernel.entries)
    if (&other > &entry && other.blocks == 2 * entry.blocks &&
        other.width == entry.width && other.threads == entry.threads &&
        other.place == entry.place && entry.place != CudaEntry::Ring)
      isOther = SizeExpr::binary(
          SizeExpr::Op::Max, isOther,
          other.longest >= 0 ? isAtMost(length, other.longest) : SizeExpr(1));
  SizeExpr isLong = SizeExpr::binary(
      SizeExpr::Op::Lt, SizeExpr(kManyOfThread * entry.threads * entry.blocks),
      length);
  return isOther * isLong *
         isAtMost(rowsOf(kernel, words), kBlocks / (2 * entry.blocks));
}

SizeExpr refold::conditionOf(const CudaEntry &entry, const CudaKernel &kernel,
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
  if (entry.hasParts()) { // a ticket for every row, or columns of a block
    takes = takes * isAtMost(groupsOf(entry, kernel, words), entry.mostBlocks);
    if (entry.waits && !isWanted)
      takes = takes * areSweptSooner(entry, kernel, words);
    return isWanted ? takes
                    : takes * (SizeExpr(1) -
                               isAtMost(partsOf(entry, kernel, words), 1));
  }
  bool isLimited = (entry.isResident || !isWanted) && entry.longest >= 0;
  if (entry.fewestRows > 0 && !isWanted) {
    SizeExpr areEnough = SizeExpr::binary(
        SizeExpr::Op::Le, SizeExpr(entry.fewestRows), rowsOf(kernel, words));
    // Warps have nothing to share of so few elements (softmax of 3 x 4096 x 5
    // over its first axis on an H200: 4.0 us, by 16 warps 8.4).
    constexpr int64_t kFewElements = 32;
    if (entry.threads == 1 && entry.place == CudaEntry::Nowhere)
      areEnough = SizeExpr::binary(SizeExpr::Op::Max, areEnough,
                                   isAtMost(length, kFewElements));
    takes = takes * areEnough;
  }
  if (entry.shortest > 0 && !isWanted)
    takes = takes * SizeExpr::binary(SizeExpr::Op::Le, SizeExpr(entry.shortest),
                                     length);
  if (!isWanted && entry.blocks > 1)
    takes = takes * (SizeExpr(1) - areFewForCluster(entry, kernel, words));
  if (!isWanted && isSlowForFew(entry))
    takes = takes * (SizeExpr(1) - areTooFew(entry, kernel, words));
  return isLimited ? takes * isAtMost(length, entry.longest) : takes;
}
