// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From counts to milliseconds. All that was fitted stands in one table.
#include "refold/Schedule/CostModel.h"

#include <algorithm>
#include <cmath>
#include <tuple>

using namespace refold;

/// Of a time a byte between the third cache's and memory's, the part that is
/// memory's goes with it.
static double aroundAt(double rate, double cache, double memory,
                       double factor) {
  double ofCache = 1.0 / cache, ofMemory = 1.0 / memory;
  double share =
      ofMemory > ofCache ? (1.0 / rate - ofCache) / (ofMemory - ofCache) : 1.0;
  share = std::clamp(share, 0.0, 1.0);
  return 1.0 / (1.0 / rate + share * ofMemory * (1.0 / factor - 1.0));
}

static double servedByShared(const MachineRates &rates, double bytes);

/// Bytes of memory that so many threads read a millisecond.
static double readFromMemory(const MachineRates &rates, double threads) {
  return std::min(rates.read[3] * threads,
                  std::max(rates.readAll, rates.read[3]));
}

/// Of `moment.readBytes`, what the third cache served then; it may be faster
/// than is known of it.
static double servedAt(MachineRates &rates, const MachineMoment &moment) {
  auto threads = static_cast<double>(std::min(moment.threads, rates.cores));
  rates.read[2] = std::max(rates.read[2], moment.readPerMs / threads);
  double cache = 1.0 / (rates.read[2] * threads);
  double memory = 1.0 / readFromMemory(rates, threads);
  if (memory <= cache)
    return 0.0;
  return std::clamp((memory - 1.0 / moment.readPerMs) / (memory - cache), 0.0,
                    1.0);
}

MachineRates MachineRates::at(const MachineMoment &moment) const {
  MachineRates rates = *this;
  for (double &rate : rates.readAround)
    rate = aroundAt(rate, read[2], read[3], moment.memory);
  for (double *rate :
       {&rates.flops, &rates.tileFlops, &rates.exponentials, &rates.bf16Flops,
        &rates.int8Flops, &rates.read[0], &rates.read[1]})
    *rate *= moment.cores;
  for (double *rate : {&rates.read[3], &rates.readAll, &rates.write,
                       &rates.writeAll, &rates.copy, &rates.copyAll})
    *rate *= moment.memory;
  if (moment.readBytes > 0.0 && moment.readPerMs > 0.0) {
    double served = servedAt(rates, moment);
    rates.taken = servedByShared(rates, moment.readBytes) - served;
  }
  return rates;
}

MachineRates MachineRates::defaults(const TargetFacts &target) {
  MachineRates rates;
  double width = static_cast<double>(target.vectorBits) / 512.0;
  // Registers of 256 bits are issued twice as often.
  double issue = width == 0.5 ? 2.0 : 1.0;
  rates.flops = 118e6 * width * issue;
  // 16 registers hold a tile of 6 x 2, and an exponential scales by integers:
  // as `doctor` finds it on a Zen 3, AVX2 85 GFLOP/s in tiles (4 x 2: 53 to 77)
  // and 2.0 G exp/s; on a Zen 4 the baseline 28 (4 x 2) and 0.8.
  bool isNarrow = target.vectorRegisters < 32;
  rates.tileFlops = (isNarrow ? 85e6 : 115e6) * width * issue;
  rates.exponentials = (isNarrow ? 2.0e6 : 5.6e6) * width * issue;
  if (width < 0.5) { // and issued more often than 512 bits are
    rates.flops *= 1.35;
    rates.tileFlops *= 1.35;
    rates.exponentials *= 1.6;
  }
  if (target.multipliesTiles) { // of a Sapphire Rapids
    rates.bf16Flops = 16.0 * rates.flops;
    rates.int8Flops = 32.0 * rates.flops;
  }
  rates.read = {150e6, 115e6, 62e6, 21e6};
  // A third of half as much comes from L3, where others use it too, and nothing
  // of more (fitted to a Zen 5).
  rates.readAround = {28e6, 21e6, 21e6};
  rates.readAll = 35e6;
  rates.write = 24e6;
  rates.writeAll = 40e6;
  rates.copy = 38e6;
  rates.copyAll = 60e6;
  rates.cacheBytes = {target.l1Bytes, target.l2Bytes, int64_t(32) << 20};
  rates.cores = 2;
  return rates;
}

namespace {
/// Fitted to the steps of the suite's programs and their unfused forms, one
/// thread: rows to a Zen 4's and, with less weight, a Zen 5's, nests and
/// library products to a Zen 4's (docs/targets/cpu.md, "Cost model"). Times are
/// those of an fma on a register of f32, or milliseconds where the name says
/// so.
struct Coefficients {
  double simple = 0.786;
  double function = 4.92; ///< log, tanh, ... in exponentials
  /// By the probed e^x: shares and terms of sums are 2^x. Sapphire Rapids, 8.8
  /// G a second and 11.2.
  double power = 0.848;
  double division = 3.17;
  double conversion = 0.358;
  /// What rows take where they share ports (`sharesPorts`). Emerald Rapids,
  /// from the second cache, 14 kernels of 2048 x 64 to 128 x 1024: 0.61 to 0.94
  /// of their times were predicted without.
  double shared = 1.2;
  double rowOperation = 0.196; ///< in registers, though a row has one: tiles
  double nest = 1.08;          ///< a step at the probed rate of register tiles
  double nestSum = 10.0;       ///< steps that the ends of a sum take
  double nestOther = 0.303;    ///< what is no fma runs beside them
  double pair = 1.12;          ///< as `nest`, by the rate of products of pairs
  /// Sapphire Rapids: products of tiles by their rate from registers. Bytes are
  /// multiplied in long sums, from the second cache and the third.
  double tile = 1.5;
  double byteTile = 3.0;
  /// A sum that leaves them through memory: attention, 5 shapes of width 32 to
  /// 128, 1.4e-7 to 1.9e-7, short rows 2.8e-7.
  double tileSumMs = 1.6e-07;
  double thin = 0.124;     ///< few rows: sums wait for each other
  double thinLoad = 3.53;  ///< and for what only these rows share
  double sumAcross = 22.0; ///< a sum whose lanes are added at the end
  double turned = 13.0;    ///< an element laid out for a product
  /// Of a mask, at most: fitted to triangles. What is walked of short ones is
  /// more, but with that, and library products as they are predicted, causal
  /// attention of 200 x 200 on the baseline is left unfused, which takes 1.5
  /// times as long.
  double liveShare = 0.503;
  double visitMs = 1.26e-06;   ///< a row that is begun
  double mergeMs = 2.95e-07;   ///< a sum of its lanes
  double tailMs = 6.41e-07;    ///< a register at its end
  double extremeMs = 3.83e-06; ///< what an extreme takes more
  double compared = 0.838;     ///< an element held against a list of the best
  double enteredMs = 1.4e-05;  ///< into a register of a list, by itself
  /// Zen 4: softmax and the 8 best of 65536 x 64, 128, 256 in 2.9, 4.6, 8.9 ms.
  double searched = 7.4; ///< an element among which candidates are looked for
  double listMs = 7e-06; ///< the candidates of a row, however few they are
  double movedMs = 2.1e-07; ///< where no instruction compresses
  double placed = 1.4;
  double gatheredMs = 3.67e-06;
  double itemMs = 2.92e-06;
  double launchMs = 0.000213;
  double regionMs = 0.0005; ///< of more than one thread
  /// Of the shorter one of arithmetic and memory, what does not overlap.
  double apart = 0.257;
  double productApart = 0.658; ///< of products by themselves
  /// Of the shorter one of what the third cache serves and what is stored past
  /// it, what does not overlap. Emerald Rapids, RMSNorm 16384 x 1024 and 512 x
  /// 32768: 1.2 to 1.4 of their times were predicted by their sum.
  double pastApart = 0.6;
  /// By the probed reads past the second cache: whole programs of the suite,
  /// 188 cases each, fused and unfused, within 25 % with 1.0 82 and 85 %, 1.05
  /// 85 and 88, 1.1 85 and 89, 1.2 86 and 89 (Zen 5).
  double far = 1.1;
  double writeInCache = 1.16; ///< of the rate at which a level is read
  double product = 1.12;      ///< of the fma peak; oneDNN
  double productSum = 3.0;    ///< steps that the ends of a sum take
  double productWrite = 1.2;  ///< what it writes is read before
  double fromF16 = 76.7;      ///< an element that is made f32 for it
  double fromOthers = 47.2;   ///< of other narrow types
  double productTurned = 6.0; ///< an element of a right side laid out for it
  double productMs = 0.0006;  ///< a matrix of a batch
  double integerProduct = 0.0212; ///< of the fma rate, operations; oneDNN
};
constexpr Coefficients kCoefficients;

/// Rates at which a step moves bytes, and the milliseconds that a byte read and
/// one written take less if they take turns.
struct Traffic {
  double read = 1.0, write = 1.0, past = 1.0, saved = 0.0, savedPast = 0.0;
};
} // namespace

/// How much of a working set a cache of one core still serves: all of it up to
/// half its size, nothing from half as much again on.
static double servedShare(double bytes, int64_t cache) {
  if (cache <= 0)
    return 0.0;
  return std::clamp(1.5 - bytes / static_cast<double>(cache), 0.0, 1.0);
}

/// By the rates at which half as much as the third cache holds, as much, and
/// twice as much were read.
static double servedUsually(const MachineRates &rates, double bytes) {
  double memory = 1.0 / rates.read[3], cache = 1.0 / rates.read[2];
  if (rates.cacheBytes[2] <= 0 || cache >= memory)
    return 0.0;
  double size = bytes / static_cast<double>(rates.cacheBytes[2]);
  double from = 0.25, share = 1.0;
  for (double rate : rates.readAround) {
    double next =
        std::clamp((memory - 1.0 / rate) / (memory - cache), 0.0, share);
    double to = 2.0 * from;
    if (size <= to)
      return share + (next - share) * std::max(size / from - 1.0, 0.0);
    std::tie(from, share) = std::pair(to, next);
  }
  return share * std::clamp(2.0 - size / from, 0.0, 1.0);
}

/// How much of a working set the third cache still serves.
static double servedByShared(const MachineRates &rates, double bytes) {
  return std::clamp(servedUsually(rates, bytes) - rates.taken, 0.0, 1.0);
}

/// Milliseconds a byte that is read from wherever `bytes` fit.
static double readMsPerByte(const MachineRates &rates, double bytes,
                            double threads) {
  double left = 1.0, ms = 0.0;
  for (unsigned level = 0; level < 3; ++level) {
    double share = left * (level < 2 ? servedShare(bytes / threads,
                                                   rates.cacheBytes[level])
                                     : servedByShared(rates, bytes));
    ms += (level < 2 ? 1.0 : kCoefficients.far) * share /
          (rates.read[level] * threads);
    left -= share;
  }
  return ms + kCoefficients.far * left / readFromMemory(rates, threads);
}

static Traffic trafficOf(const MachineRates &rates, double workingSet,
                         double threads) {
  Traffic traffic;
  double readMs = readMsPerByte(rates, workingSet, threads);
  traffic.read = 1.0 / readMs;
  double memory =
      std::min(rates.write * threads, std::max(rates.writeAll, rates.write));
  double served = servedByShared(rates, workingSet);
  traffic.past = memory;
  traffic.savedPast =
      served * (1.0 - kCoefficients.pastApart) * std::min(readMs, 1.0 / memory);
  traffic.write = 1.0 / (served * readMs / kCoefficients.writeInCache +
                         (1.0 - served) / memory);
  double copy =
      std::min(rates.copy * threads, std::max(rates.copyAll, rates.copy));
  if (copy > 0.0)
    traffic.saved =
        (1.0 - served) * std::max(readMs + 1.0 / memory - 2.0 / copy, 0.0);
  return traffic;
}

static double msOf(const Traffic &traffic, double bytesRead,
                   double bytesWritten, double bytesPast = 0.0) {
  return bytesRead / traffic.read + (bytesWritten - bytesPast) / traffic.write +
         bytesPast / traffic.past -
         std::min(bytesRead, bytesWritten) * traffic.saved -
         std::min(bytesRead, bytesPast) * traffic.savedPast;
}

/// Threads that have something to do, for the time that the last one needs: of
/// 5 rows in items of 4 one and a quarter.
static double parallelism(double items, double threads,
                          double fullShare = 1.0) {
  items = std::max(items, 1.0);
  return std::max(items * fullShare / std::ceil(items / threads), 1.0);
}

/// `besideMs` of the arithmetic is done as memory comes, and never waits for
/// it.
static Cost join(Cost cost, double apart, double besideMs = 0.0) {
  double longer = std::max(cost.arithmeticMs, cost.memoryMs);
  double shorter = std::min(cost.arithmeticMs - besideMs, cost.memoryMs);
  cost.ms = longer + apart * shorter + cost.overheadMs;
  return cost;
}

/// A region of one part is done by who asks for it.
static double regionMs(int64_t threads, double items) {
  return threads > 1 && items > 1.0 ? kCoefficients.regionMs : 0.0;
}

Cost refold::predict(const KernelWork &work, const TargetFacts &target,
                     const MachineRates &rates, int64_t threads,
                     double workingSet) {
  const Coefficients &c = kCoefficients;
  double lanes = static_cast<double>(target.lanes(32));
  double registerMs = 2.0 * lanes / rates.flops;
  double shared = target.sharesPorts ? c.shared : 1.0;
  double powerMs = shared * c.power / rates.exponentials;
  auto sumOf = [&](const OperationCounts &counts) {
    return shared * registerMs / lanes *
               (c.simple * counts.simple + c.division * counts.divisions +
                c.conversion * counts.conversions) +
           powerMs * (counts.exponentials + counts.lagging) +
           c.function * counts.functions / rates.exponentials;
  };
  double stepMs = 2.0 / rates.tileFlops;
  // Half the steps, where the rate is not known.
  double pairMs =
      stepMs * (rates.bf16Flops > 0.0 ? rates.flops / rates.bf16Flops : 0.5);
  double pairs = target.multipliesTiles ? c.tile : c.pair;
  double byteMs = rates.int8Flops > 0.0 ? 2.0 / rates.int8Flops : stepMs / 4.0;
  double busy =
      parallelism(work.items, static_cast<double>(threads), work.fullShare);
  double live = work.skipsTiles ? std::min(c.liveShare, work.walked) : 1.0;
  Cost cost;
  cost.arithmeticMs =
      live * sumOf(work.stream) + c.rowOperation * lanes * sumOf(work.rows) +
      c.rowOperation * lanes * sumOf(work.moves) +
      live * (c.nest * stepMs *
                  (work.nestSteps + c.nestSum * work.nestSums +
                   c.nestOther * work.nestOthers) +
              pairs * pairMs * work.pairSteps +
              c.byteTile * byteMs * work.byteSteps) +
      live * registerMs / lanes *
          (c.thin * work.thinSteps + c.thinLoad * work.thinLoads +
           c.compared * work.compared + c.searched * work.searched +
           c.placed * work.placed + c.sumAcross * work.sumsAcross +
           c.turned * work.turned) +
      live * c.tileSumMs * work.tileSums + c.enteredMs * work.entered +
      c.listMs * work.lists + c.movedMs * work.moved +
      c.gatheredMs * work.gathered + c.visitMs * work.visits +
      c.tailMs * work.tails + c.mergeMs * work.merges +
      c.extremeMs * work.extremes;
  cost.arithmeticMs /= busy;
  // Pivots that lag behind are those of one traversal, which reads.
  double besideMs = live * powerMs * work.stream.lagging / busy;
  Traffic traffic = trafficOf(rates, workingSet, busy);
  cost.memoryMs =
      msOf(traffic, work.bytesRead, work.bytesWritten, work.bytesPast);
  for (const KernelWork::Reread &again : work.rereads)
    cost.memoryMs +=
        again.bytes * readMsPerByte(rates, again.between * busy, busy);
  cost.overheadMs =
      c.launchMs + regionMs(threads, work.items) + c.itemMs * work.items / busy;
  return join(cost, c.apart, besideMs);
}

Cost refold::predict(const ProductWork &work, const TargetFacts &target,
                     const MachineRates &rates, int64_t threads,
                     double workingSet) {
  const Coefficients &c = kCoefficients;
  double lanes = static_cast<double>(target.lanes(32));
  double depth = work.depth + (work.isInteger ? 0.0 : c.productSum);
  double steps =
      work.batch * work.rows * depth * std::ceil(work.columns / lanes) * lanes;
  double rate =
      work.isInteger ? c.integerProduct * rates.flops : rates.flops / c.product;
  double busy = parallelism(work.batch * std::ceil(work.rows / 64.0),
                            static_cast<double>(threads));
  Cost cost;
  // Few rows are multiplied where the right side lies.
  constexpr double kRowsThatTurn = 16.0;
  double turned = work.turned * std::min(1.0, work.rows / kRowsThatTurn);
  cost.arithmeticMs =
      2.0 *
      (steps / rate + (c.productTurned * turned + c.fromF16 * work.fromF16 +
                       c.fromOthers * work.fromOthers) /
                          rates.flops) /
      busy;
  Traffic traffic = trafficOf(rates, workingSet, busy);
  cost.memoryMs =
      msOf(traffic, work.bytesRead + c.productWrite * work.bytesWritten,
           work.bytesWritten);
  cost.overheadMs = regionMs(threads, busy) + c.productMs * work.batch / busy;
  return join(cost, c.productApart);
}

Cost refold::predictCopy(double bytes, const MachineRates &rates,
                         int64_t threads, double workingSet) {
  Traffic traffic = trafficOf(rates, workingSet, static_cast<double>(threads));
  Cost cost;
  cost.memoryMs = msOf(traffic, bytes, bytes);
  cost.overheadMs = kCoefficients.launchMs;
  return join(cost, kCoefficients.apart);
}
