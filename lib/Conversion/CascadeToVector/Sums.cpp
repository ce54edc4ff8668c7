// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a register tile sums: its loops, in the order that keeps errors small
// and operands in the caches.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Place by place, all sums of it: what they share of a row is one register,
/// and not as many as there are rows until the next sum.
Kernel::Values Kernel::reduceStep(Nest &nest, Tile &t, Values acc) {
  int64_t numColumns = t.numColumns();
  prefetchOperands(nest, t);
  prefetchPanels(nest, t);
  int64_t numSums = std::max<int64_t>(nest.sums.size(), 1);
  int64_t each = acc.size() / numSums;
  for (int64_t place = 0; place < each; ++place)
    for (int64_t s = 0; s < numSums; ++s) {
      Node *term = nest.sums.empty() ? nest.term : nest.sums[s].term;
      Val &sum = acc[s * each + place];
      sum = accumulate(t, nest.combine, term, sum, place / numColumns,
                       place % numColumns);
    }
  return acc;
}

constexpr int64_t kExtremesInFlight = 4;

/// How many extremes of `sums` registers are found side by side: an operation
/// that knows NaN and the sign of 0 is some instructions, and the next one
/// waits for all of them. 1: as many registers do not wait for each other, or
/// it is one instruction.
static int64_t partsOfExtreme(const Nest &nest, size_t sums) {
  switch (nest.combine) {
  case Binary::MaxF:
  case Binary::MinF:
  case Binary::MaximumF:
  case Binary::MinimumF:
  case Binary::MaxMagnitude:
  case Binary::MaxNumF:
  case Binary::MinNumF:
    return std::max<int64_t>(kExtremesInFlight / int64_t(sums), 1);
  default:
    return 1;
  }
}

/// Steps in turns, part by part; no extreme depends on their order.
Kernel::Values
Kernel::reduceExtreme(const Nest &nest, Ix range, int64_t parts, Values acc,
                      llvm::function_ref<Values(Ix, Values)> step) {
  size_t each = acc.size();
  Val none = to.constant(nest.identity);
  Values all(acc);
  for (int64_t part = 1; part < parts; ++part)
    for (Val first : acc)
      all.push_back(first.wide ? to.splat(none) : none);
  Ix main = to.floorTo(range, kExtremesInFlight);
  all =
      to.loop(0, main, kExtremesInFlight, all, [&](Ix k, ArrayRef<Val> values) {
        Values next(values);
        for (int64_t i = 0; i < kExtremesInFlight; ++i) {
          MutableArrayRef<Val> part =
              MutableArrayRef(next).slice(i % parts * each, each);
          llvm::copy(step(to.add(k, i), Values(part)), part.begin());
        }
        return next;
      });
  for (size_t i = each; i < all.size(); ++i)
    all[i % each] = to.binary(nest.combine, all[i], all[i % each]);
  all.truncate(each);
  if (range.isConstant() && main.is(range.constant))
    return all;
  return to.loop(main, range, 1, all,
                 [&](Ix k, ArrayRef<Val> in) { return step(k, Values(in)); });
}

Kernel::Values Kernel::reduceLoops(Nest &nest, Tile &t, unsigned depth,
                                   Values acc) {
  unsigned index = nest.reduced[depth];
  Ix first(0), range = rangeOf(index);
  if (nest.part)
    std::tie(first, range) = *nest.part;
  else if (slice)
    std::tie(first, range) = std::tie(slice->first, slice->count);
  bool isLast = depth + 1 == nest.reduced.size();
  if (isLast && nest.lanesReduced)
    return reduceAlongLanes(nest, t, acc);
  if (t.tiled && t.tiled->depth.isConstant() &&
      range.is(t.tiled->depth.constant))
    return acc;
  if (const DotPlan *dot = dotOf(nest, t))
    return reduceDots(nest, *dot, t, acc);
  auto step = [&](Ix k, Values in) {
    Tile inside(&t);
    inside.reduced = index;
    Ix place = slice ? to.mul(k, slice->between) : k;
    inside.local[index] = to.add(first, place);
    return reduceStep(nest, inside, in);
  };
  if (isLast && nest.pair) {
    Ix done = t.tiled ? to.div(t.tiled->depth, 2) : Ix(0);
    return loopUnrolled(to.sub(to.ceilDiv(range, 2), done), nest.unroll, acc,
                        [&](Ix k, Values in) {
                          return addPairs(nest, t, to.add(done, k), in);
                        });
  }
  if (int64_t block = blockOfSum(nest, nest.rowsOfBlocks);
      isLast && block && !nest.part) {
    bool isFirst = depth == 0 && !nest.isLong && !slice && !t.tiled;
    return reduceInBlocks(nest, range, block, isFirst, acc, step);
  }
  if (isLast && nest.part)
    return reducePart(nest, range, acc, step);
  if (int64_t parts = partsOfExtreme(nest, acc.size()); isLast && parts > 1)
    return reduceExtreme(nest, range, parts, acc, step);
  if (isLast)
    return loopUnrolled(range, nest.unroll, acc, step);
  return to.loop(0, range, 1, acc, [&](Ix k, ArrayRef<Val> in) {
    Tile inside(&t);
    inside.local[index] = k;
    return reduceLoops(nest, inside, depth + 1, Values(in));
  });
}

const Array &Kernel::ownOf(const PairPlan &pair) {
  return operands.count(pair.own) ? operands.at(pair.own) : kept.at(pair.own);
}

/// The first pair of row `r`.
Ix Kernel::ownAt(const PairPlan &pair, Tile &t, int r) {
  const Array &own = ownOf(pair);
  Ix at = own.buffer.offset;
  for (const Array::Dim &d : own.dims)
    if (d.index != pair.index)
      at = to.add(at, to.mul(localAt(t, d.index, r, 0), to.div(d.stride, 2)));
  return at;
}

/// The k-th pair of the stream tile, or of all that is summed.
Ix Kernel::sharedAt(const PairPlan &pair, Tile &t, Ix k, int c) {
  bool isBefore = int(pair.index) == plan.stream &&
                  !plan.packs.find(pair.shared)->second.isOwn;
  Ix first = isBefore ? to.div(base[pair.index], 2) : 0;
  return panelOffset(t, pair.shared, to.add(first, k), 0, c);
}

/// Adds the k-th two terms of a tile; both arrays are zero behind the last.
Kernel::Values Kernel::addPairs(Nest &nest, Tile &t, Ix k, Values acc) {
  const PairPlan &pair = *nest.pair;
  int64_t numColumns = t.numColumns();
  Values shared;
  for (int64_t c = 0; c < numColumns; ++c)
    shared.push_back(
        to.loadWide(panels.at(pair.shared), sharedAt(pair, t, k, c), Val()));
  for (size_t r = 0; r < t.rowLocal.size(); ++r) {
    Val two =
        to.splat(to.load(ownOf(pair).pairs, to.add(ownAt(pair, t, r), k)));
    for (int64_t c = 0; c < numColumns; ++c) {
      Val &sum = acc[r * numColumns + c];
      sum = to.addPairs(two, shared[c], sum);
    }
  }
  return acc;
}

/// Of a tile of the stream.
static constexpr int64_t kBlockOfTile = 64;

/// Elements of a block of tiles of so many rows; 0: all at once. All columns
/// have the same blocks: where a softmax compares equal sums they have to be
/// equal, and at the edge of a row they were not (3e-4 of 1e-7 allowed, of 513
/// equal terms). Few rows share a register tile: unfused code may be no matrix
/// product but a reduction, or a product of few rows, whose sums are short.
/// Many: blocks as long as those of product libraries.
/// Zen 3, attention 8 x 1024 x 64 with 12 sums in blocks of 16, 64, 128 and all
/// at once: 33.9, 35.9, 31.3 and 30.8 ms; of width 128 64.5, 60.6, 57.7, 57.4.
/// With 16 sums, Sapphire Rapids, blocks of 32, 64, 128 and at once: no
/// difference. Tiles of 512 equal places erred by 4e-6 at once, unfused
/// products of few rows by 9e-7.
int64_t Kernel::blockOfSum(const Nest &nest, int64_t rowsOfTile) {
  constexpr int64_t kShort = 16, kMiddle = 128, kLong = 256, kFew = 8;
  if (nest.combine != Binary::AddF)
    return 0;
  if (nest.hasShortBlocks)
    return kShort;
  // As many lanes of f64 are twice the registers.
  int64_t width = std::max<int64_t>(
      cast<TypedAttr>(nest.identity).getType().getIntOrFloatBitWidth() / 32, 1);
  int64_t count = std::max<int64_t>(nest.sums.size(), 1) * rowsOfTile *
                  nest.columnsOfBlocks;
  if (count <= nest.fewSums * width)
    return count <= kFew * width ? kShort : kMiddle;
  if (nest.isOfStream)
    return kBlockOfTile;
  return nest.isLong ? kLong : 0;
}

/// Whether the nest sums a product whose rows are its lanes: its rows lie along
/// what the product by itself has as columns.
bool Kernel::hasTurnedProduct(const Nest &nest) {
  if (!nest.isLong || !nest.result || nest.lane == kNone || plan.row == kNone ||
      plan.facts.vectorRegisters < 32)
    return false;
  NodeSet all;
  collect(nest.term, all);
  return llvm::any_of(all, [&](Node *n) {
    return n->kind == Node::Read && n->has(plan.row) && !n->has(nest.lane) &&
           plan.along(n, plan.row).kind == Along::Unit;
  });
}

/// 1 where blocks are to be as long as those of all others, since there are few
/// rows: products of up to 8 rows add 16 steps at a time, and tiles of 512
/// equal places in blocks of 128 erred by 1.5 times what they may. How many
/// rows there are may be known to the run only.
Ix Kernel::hasShorterBlocks(const Nest &nest, int64_t block) {
  bool isContraction = hasTurnedProduct(nest);
  if (!(nest.isOfStream || isContraction) || block <= kBlockOfTile ||
      plan.row == kNone || kBlockOfTile % nest.unroll)
    return 0;
  Ix count = extents[isContraction ? nest.lane : plan.row];
  Ix fewer = to.sub(rowsInOrder(plan.facts) + 1, count);
  return to.min(1, to.max(fewer, 0));
}

/// Lanes along the reduced index: a register of partial results, reduced at the
/// end.
Kernel::Values Kernel::reduceAlongLanes(Nest &nest, Tile &t, Values acc) {
  unsigned index = nest.reduced.back();
  Ix range = rangeOf(index);
  int64_t lanes = to.lanes();
  auto step = [&](Ix k, Values in, bool isMasked) {
    Tile inside(&t);
    inside.lane = index;
    inside.laneLocal = {k};
    inside.panel.reset();
    if (!isMasked)
      return reduceStep(nest, inside, in);
    inside.laneLimit = range;
    int64_t numColumns = t.numColumns();
    for (auto [i, sum] : llvm::enumerate(in)) {
      Val term =
          to.splat(eval(inside, nest.term, i / numColumns, i % numColumns));
      term = to.select(maskOf(inside, 0), term,
                       to.splat(to.constant(nest.identity)));
      sum = to.binary(nest.combine, term, sum);
    }
    return in;
  };
  Ix main = to.floorTo(range, lanes);
  int64_t inOrder = stepsInOrder(nest, t);
  acc = loopUnrolled(
      to.div(range, lanes), inOrder ? inOrder : nest.unroll, acc,
      [&](Ix k, Values in) { return step(to.mul(k, lanes), in, false); });
  if (!range.isConstant() || range.constant % lanes)
    acc = to.loop(main, range, lanes, acc, [&](Ix k, ArrayRef<Val> in) {
      return step(k, Values(in), true);
    });
  return acc;
}

/// So many steps, written out.
static Spelling::Values
steps(Spelling &to, Ix first, int64_t count, Spelling::Values values,
      llvm::function_ref<Spelling::Values(Ix, Spelling::Values)> step) {
  for (int64_t k = 0; k < count; ++k)
    values = step(to.add(first, k), values);
  return values;
}

/// Where the count is not known the steps have a second copy, for the rest: no
/// more of them than fill a loop. Zen 4, attention 8 x 1024 x 64 with every
/// extent open: one step of 16 sums 24.1 ms, two 22.5, four 22.5. Few sums wait
/// for each other, however they are written.
Kernel::Values
Kernel::loopUnrolled(Ix hi, int64_t unroll, Values init,
                     llvm::function_ref<Values(Ix, Values)> step) {
  constexpr int64_t kManySums = 8, kSumsOfLoop = 32;
  if (hi.isConstant() && hi.constant <= unroll)
    return steps(to, 0, hi.constant, init, step);
  if (!hi.isConstant())
    unroll = std::min<int64_t>(
        unroll, init.size() < kManySums
                    ? 1
                    : llvm::divideCeil(kSumsOfLoop, init.size()));
  Ix main = to.floorTo(hi, unroll);
  init = to.loop(0, main, unroll, init, [&](Ix k, ArrayRef<Val> in) {
    return steps(to, k, unroll, Values(in), step);
  });
  if (unroll == 1 || (hi.isConstant() && hi.constant % unroll == 0))
    return init;
  return to.loop(main, hi, 1, init,
                 [&](Ix k, ArrayRef<Val> in) { return step(k, Values(in)); });
}

/// The error of a sum grows with the length of its chains of additions: that of
/// a block, that of the blocks of a group, then that of the groups. Of 4096
/// equal terms 256 blocks of 16 in one chain err as far as 16 blocks of 256.
/// `isFirst`: nothing has been summed yet. Then what fills no block is what the
/// blocks are added to: an index that has less than one needs no totals.
Kernel::Values
Kernel::reduceInBlocks(Nest &nest, Ix range, int64_t block, bool isFirst,
                       Values acc,
                       llvm::function_ref<Values(Ix, Values)> step) {
  constexpr int64_t kBlocksOfGroup = 16, kLongestGroup = 256;
  Val zero = to.splat(to.constant(nest.identity));
  auto add = [&](ArrayRef<Val> totals, const Values &sums) {
    Values added;
    for (auto [total, sum] : llvm::zip(totals, sums))
      added.push_back(to.binary(nest.combine, total, sum));
    return added;
  };
  auto addBlock = [&](Ix first, Ix count, ArrayRef<Val> in) {
    return add(in, loopUnrolled(count, nest.unroll, Values(in.size(), zero),
                                [&](Ix k, Values sum) {
                                  return step(to.add(first, k), sum);
                                }));
  };
  auto addBlocks = [&](Ix first, Ix end, const Values &in) {
    return to.loop(first, end, block, in, [&](Ix at, ArrayRef<Val> totals) {
      return addBlock(at, block, totals);
    });
  };
  Ix isShorter = hasShorterBlocks(nest, block);
  if (isShorter.is(1))
    block = kBlockOfTile;
  bool areWhole = range.isConstant() && range.constant % block == 0;
  Ix main = to.floorTo(range, block);
  int64_t group = kBlocksOfGroup * block;
  bool isDone = areWhole;
  if (isFirst && isShorter.isConstant() && !main.isConstant()) {
    acc = loopUnrolled(
        to.sub(range, main), nest.unroll, acc,
        [&](Ix k, Values sum) { return step(to.add(main, k), sum); });
    isDone = true;
  }
  if (!isShorter.isConstant()) {
    // Blocks whose length the run knows are whole steps of a loop too.
    Ix length = to.sub(block, to.mul(isShorter, block - kBlockOfTile));
    Ix numLong = to.div(range, block), more = to.div(range, kBlockOfTile);
    Ix count = to.add(numLong, to.mul(isShorter, to.sub(more, numLong)));
    acc = to.loop(0, count, 1, acc, [&](Ix number, ArrayRef<Val> totals) {
      Ix first = to.mul(number, length);
      Values zeros(totals.size(), zero);
      return add(
          totals,
          to.loop(0, length, nest.unroll, zeros, [&](Ix k, ArrayRef<Val> in) {
            return steps(to, to.add(first, k), nest.unroll, Values(in), step);
          }));
    });
    main = to.mul(count, length);
  } else if (range.isConstant() && range.constant <= block) {
    return addBlock(0, range, acc);
  } else if (group > kLongestGroup ||
             (!slice && main.isConstant() && main.constant <= group)) {
    acc = addBlocks(0, main, acc);
  } else {
    acc = to.loop(0, main, group, acc, [&](Ix first, ArrayRef<Val> totals) {
      bool areEqual = main.isConstant() && main.constant % group == 0;
      Ix end = to.add(first, group);
      return add(totals, addBlocks(first, areEqual ? end : to.min(end, main),
                                   Values(totals.size(), zero)));
    });
  }
  return isDone ? acc : addBlock(main, to.sub(range, main), acc);
}

/// A few steps; all of them written out where the term is small. Of two of them
/// with many sums LLVM keeps the operands of both in registers, and the sums on
/// the stack; few sums leave room, and are added faster than one step's
/// addresses are computed. Products of few rows take as few as 4 (2048 x 2048
/// by AVX2, 4 rows, 8 sums in one step and in four: 0.70 and 0.77 ms), places
/// of a stream 8 (decode in bf16: 5.89 and 5.76).
Kernel::Values Kernel::reducePart(const Nest &nest, Ix range, Values acc,
                                  llvm::function_ref<Values(Ix, Values)> step) {
  constexpr int64_t kFewSums = 4, kUnroll = 4, kMostOfBody = 64;
  if (nest.unroll == plan.unroll && range.isConstant() &&
      range.constant * int64_t(acc.size()) <= kMostOfBody) {
    for (int64_t k = 0; k < range.constant; ++k)
      acc = step(k, acc);
    return acc;
  }
  Ix main(0);
  int64_t few = nest.isOfStream ? 2 * kFewSums : kFewSums;
  int64_t unroll = int64_t(acc.size()) <= few ? kUnroll : 1;
  if (unroll > 1) {
    main = to.floorTo(range, unroll);
    acc = to.loop(0, main, unroll, acc, [&](Ix k, ArrayRef<Val> in) {
      Values sums(in);
      for (int64_t u = 0; u < unroll; ++u)
        sums = step(to.add(k, u), sums);
      return sums;
    });
  }
  return to.loop(main, range, 1, acc,
                 [&](Ix k, ArrayRef<Val> in) { return step(k, Values(in)); });
}
