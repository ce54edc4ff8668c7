// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The few numbers below are of no program: fitted once to all kinds together
// (benchmarks/results/cuda-predicted.md).
#include "refold/Package/LaunchCost.h"

#include <algorithm>
#include <cmath>

using namespace refold;
using namespace refold::package;

namespace {
struct LaunchCoefficients {
  double issued = 0.75;     ///< slots that a kernel gets
  double fullWarps = 12.0;  ///< of a multiprocessor that gets them
  double besideSums = 1.15; ///< loads and addresses, beside multiply-adds
  /// Of the shorter one of products and other instructions, what does not
  /// overlap.
  double apart = 0.7;
  double launchMs = 0.0023;   ///< that begins and ends
  double rampMs = 0.008;      ///< until memory has its rate
  double visitMs = 0.0018;    ///< a block from its first address to its results
  double exchangeMs = 0.0015; ///< what blocks leave, a ticket, the merge
  double latencyMs = 0.0008;  ///< of memory under load
  /// Instructions for an element of 16 bits that is copied on its own to be
  /// multiplied (products and tiles of an H100, cuda-tune.md).
  double single = 28.0;
};
constexpr LaunchCoefficients kGpu;
} // namespace

package::GpuFacts refold::usualGpu(bool isSm90) {
  package::GpuFacts facts;
  facts.name = isSm90 ? "NVIDIA H200" : "NVIDIA A100-SXM4-80GB";
  facts.major = isSm90 ? 9 : 8;
  facts.multiprocessors = isSm90 ? 132 : 108;
  facts.memoryBytes = isSm90 ? 141000000000 : 80000000000;
  facts.l2Bytes = (isSm90 ? 50 : 40) * int64_t(1 << 20);
  facts.sharedBytesPerBlock = (isSm90 ? 227 : 163) * int64_t(1 << 10);
  facts.cyclesAMs = isSm90 ? 1980000 : 1410000;
  facts.memoryBytesAMs = isSm90 ? 4800000000 : 2039000000;
  return facts;
}

GpuRates refold::ratesOf(const package::GpuFacts &facts) {
  package::GpuFacts usual = usualGpu(facts.major >= 9);
  // Of its peak a read, and a copy, get (H200, H100 and A100, cuda-rows.md).
  constexpr double kRead = 0.935, kCopied = 0.885;
  // Of the matrix units' peak at the highest clock, which they do not keep.
  constexpr double kSustained = 0.76;
  GpuRates rates;
  rates.units = std::max(facts.multiprocessors, 1);
  rates.cycles =
      double(facts.cyclesAMs > 0 ? facts.cyclesAMs : usual.cyclesAMs);
  double memory = double(facts.memoryBytesAMs > 0 ? facts.memoryBytesAMs
                                                  : usual.memoryBytesAMs);
  rates.memory = kRead * memory;
  rates.copied = kCopied * memory;
  rates.cacheBytes = double(facts.l2Bytes);
  // A multiprocessor takes 64 bytes a cycle, all of them together some 60 % of
  // that (products of 16 bits on an H200 have 8.5 TB/s of it).
  rates.cache = 0.6 * 64.0 * rates.units * rates.cycles;
  bool isOld = facts.major < 9;
  bool isSmall = facts.major == 8 && facts.minor > 0; // 8.6 and 8.9
  rates.multiplied = kSustained *
                     (isSmall ? 512.0
                      : isOld ? 1024.0
                              : 2048.0) *
                     rates.units * rates.cycles;
  rates.warpShare = isOld ? 1.0 : 0.62;
  rates.byteShare = isOld ? 1.0 : 2.0;
  rates.sumsACycle = isOld && !isSmall ? 64.0 : 128.0;
  return rates;
}

Occupancy refold::occupancyOf(const package::GpuFacts &gpu, int64_t threads,
                              int64_t registers, int64_t sharedBytes) {
  // CUDA C++ Programming Guide, "Compute capabilities".
  constexpr int64_t kWarp = 32, kRegisters = 65536, kRegistersAtOnce = 256;
  constexpr int64_t kReserved = 1024;
  bool isSmall = (gpu.major == 8 && gpu.minor > 0) || gpu.major == 12;
  int64_t mostThreads = isSmall ? 1536 : 2048;
  int64_t mostBlocks = gpu.major == 8 && gpu.minor > 0 && gpu.minor < 9 ? 16
                       : isSmall                                        ? 24
                                                                        : 32;
  int64_t warps = (threads + kWarp - 1) / kWarp;
  Occupancy found;
  found.mostWarps = mostThreads / kWarp;
  found.blocks = mostBlocks;
  found.bound = "blocks";
  auto limit = [&](int64_t blocks, const char *bound) {
    if (blocks < found.blocks) {
      found.blocks = blocks;
      found.bound = bound;
    }
  };
  limit(found.mostWarps / std::max<int64_t>(warps, 1), "threads");
  if (registers > 0) {
    int64_t ofWarp = (registers * kWarp + kRegistersAtOnce - 1) /
                     kRegistersAtOnce * kRegistersAtOnce;
    limit(kRegisters / ofWarp / std::max<int64_t>(warps, 1), "registers");
  }
  limit((gpu.sharedBytesPerBlock + kReserved) / (sharedBytes + kReserved),
        "shared memory");
  found.warps = found.blocks * warps;
  return found;
}

/// Bytes at a rate that memory reaches after a while.
static double movedMs(double bytes, double rate) {
  double full = bytes / rate;
  return full < kGpu.rampMs / 2.0 ? std::sqrt(2.0 * full * kGpu.rampMs)
                                  : full + kGpu.rampMs / 2.0;
}

static double productsAMs(GpuUnit unit, const GpuRates &rates) {
  switch (unit) {
  case GpuUnit::Lanes:
    return rates.units * rates.cycles * rates.sumsACycle * kGpu.issued /
           kGpu.besideSums;
  case GpuUnit::Warps:
    return rates.multiplied * rates.warpShare;
  case GpuUnit::WarpGroups:
    return rates.multiplied;
  case GpuUnit::Bytes:
    return rates.multiplied * rates.byteShare;
  }
  return rates.multiplied;
}

GpuCost refold::predictLaunch(const GpuLaunchWork &work,
                              const GpuRates &rates) {
  GpuCost cost;
  if (work.isEmpty)
    return cost;
  // Multiprocessors have whole pieces: of 133 one has two.
  double pieces = std::max(work.pieces, 1.0);
  double most = std::ceil(pieces / rates.units) * rates.units;
  double uneven = most / pieces;
  double bytes = work.bytesRead + work.bytesWritten;
  double writtenShare = bytes > 0.0 ? work.bytesWritten / bytes : 0.0;
  double rate = rates.memory + std::min(2.0 * writtenShare, 1.0) *
                                   (rates.copied - rates.memory);
  cost.memoryMs = bytes > 0.0 ? movedMs(bytes, rate) : 0.0;
  // What runs at once has no more than so much on its way.
  double atOnce = std::min(pieces, rates.units * work.residentBlocks);
  if (work.bytesOnTheWay > 0.0)
    cost.memoryMs = std::max(cost.memoryMs, bytes * kGpu.latencyMs /
                                                (atOnce * work.bytesOnTheWay));
  cost.cacheMs = work.cacheBytes / rates.cache;
  // A multiprocessor with few warps waits for most of what they ask.
  double warps = work.warps *
                 std::min(work.residentBlocks, std::ceil(pieces / rates.units));
  double busy = std::min(warps / kGpu.fullWarps, 1.0);
  double slots =
      busy * rates.units * rates.cycles * rates.slotsACycle * kGpu.issued;
  cost.slotMs = uneven * work.slots / slots;
  cost.functionMs = uneven * work.functions /
                    (rates.units * rates.cycles * rates.functionsACycle);
  cost.productMs = uneven * work.products / productsAMs(work.unit, rates);
  if (work.unit == GpuUnit::Lanes)
    cost.productMs /= busy;
  double others = std::max(cost.slotMs, cost.functionMs);
  double computed =
      work.unit == GpuUnit::Lanes
          ? std::max(cost.slotMs + cost.productMs, cost.functionMs)
          : std::max(cost.productMs, others) +
                kGpu.apart * std::min(cost.productMs, others);
  // Blocks that run together hide what each waits for, of one after the other
  // it adds up; the first begin with the launch.
  double waves = std::ceil(pieces / (rates.units * work.residentBlocks));
  double ofPiece = computed / (most / rates.units);
  cost.waitMs =
      std::max(waves * ofPiece + (waves - 1.0) * kGpu.visitMs - computed, 0.0);
  cost.launchMs = kGpu.launchMs + (work.isExchanged ? kGpu.exchangeMs : 0.0);
  cost.ms = std::max({cost.memoryMs, cost.cacheMs, computed + cost.waitMs}) +
            cost.launchMs;
  const std::pair<double, const char *> parts[] = {
      {cost.memoryMs, "memory"},
      {cost.cacheMs, "second level cache"},
      {cost.productMs,
       work.unit == GpuUnit::Lanes ? "issue slots" : "matrix units"},
      {cost.slotMs, "issue slots"},
      {cost.functionMs, "functions"},
      {cost.waitMs, "waiting"},
      {cost.launchMs, "launch"}};
  cost.bound = std::max_element(std::begin(parts), std::end(parts))->second;
  return cost;
}

CallWork package::callWorkOf(const DeviceKernel &kernel, TermValues &sizes) {
  auto of = [&](SizeNumber size) { return double(sizes[size].value_or(0)); };
  CallWork call;
  const CallExtents &shape = kernel.call;
  call.form = shape.form;
  call.elementBytes = shape.elementBytes;
  call.batch = of(shape.batch);
  call.rows = of(shape.rows);
  call.length = of(shape.length);
  call.columns = of(shape.columns);
  call.depth = of(shape.depth);
  if (!kernel.work)
    return call;
  const DeviceWork &work = *kernel.work;
  call.isKnown = true;
  call.bytesRead = of(work.bytesRead);
  call.bytesWritten = of(work.bytesWritten);
  call.streamBytes = of(work.streamBytes);
  call.sharedBytes = of(work.sharedBytes);
  call.sweeps = work.sweeps;
  call.walked = work.walked / double(DeviceWork::kUnit);
  for (const DeviceWork::Part &part : work.parts) {
    double places = of(part.places) / double(DeviceWork::kUnit);
    call.products += places * part.products;
    call.slots += places * part.slots;
    call.fixedSlots += places * part.fixedSlots;
    call.functions += places * part.functions;
    call.fixedFunctions += places * part.fixedFunctions;
  }
  return call;
}

namespace {
/// What a launch moves and computes, with what its entry adds to the formula:
/// rows that are read again, rectangles that are not full.
class LaunchCounter {
public:
  LaunchCounter(const LaunchWay &way, const CallWork &call, TermValues &sizes,
                int64_t blocks, int64_t threads, int64_t resident,
                const GpuRates &rates)
      : way(way), shape(way.shape), call(call), rates(rates), blocks(blocks) {
    GpuLaunchWork &work = result.work;
    work.workingSet = call.workingSet;
    work.residentBlocks = double(std::max<int64_t>(resident, 1));
    if (way.blocksPerUnit > 0)
      work.residentBlocks =
          std::min(work.residentBlocks, double(way.blocksPerUnit));
    work.warps = double(threads) / 32.0;
    if (shape.hasParts) {
      groups = double(sizes[shape.groups].value_or(0));
      parts = double(sizes[shape.parts].value_or(0));
    }
  }
  /// Of a way whose parts are others than its own.
  void setParts(double other) { parts = other; }
  CountedLaunch count();

private:
  GpuUnit unit() const { return GpuUnit(shape.unit); }
  double walked() const;
  double fullness() const;
  void countRows();
  void countTiles();
  void countCache();
  /// Bytes that are not in the second level cache, of such a distance.
  double missing(double bytes, double distance) const {
    double served =
        rates.cacheBytes > 0.0 ? 1.5 - distance / rates.cacheBytes : 0.0;
    return bytes * (1.0 - std::clamp(served, 0.0, 1.0));
  }

  const LaunchWay &way;
  const WayShape &shape;
  const CallWork &call;
  const GpuRates &rates;
  int64_t blocks;
  double groups = 0.0, parts = 1.0;
  double copiedBytes = 0.0; ///< to be multiplied
  CountedLaunch result;
};
} // namespace

/// Of the stream's places, what blocks walk: their rows end at different ones.
double LaunchCounter::walked() const {
  if (call.walked >= 1.0 || call.form != CallForm::Tiles || call.length == 0.0)
    return call.walked;
  return std::min(call.walked + double(shape.rows) / 2.0 / call.length, 1.0);
}

/// Products of whole rectangles, of those that are asked for.
double LaunchCounter::fullness() const {
  auto whole = [](double extent, double of) {
    if (extent <= 0.0 || of <= 0.0)
      return 1.0;
    return std::ceil(extent / of) * of / extent;
  };
  switch (call.form) {
  case CallForm::Tiles: {
    constexpr double kUnit = 16.0;
    double rows = shape.hasParts ? groups * shape.rows /
                                       std::max(call.batch * call.rows, 1.0)
                                 : whole(call.rows, shape.rows);
    return rows * whole(call.length, shape.vectors) *
           (whole(call.depth, kUnit) + whole(call.columns, kUnit)) / 2.0;
  }
  case CallForm::RowProduct:
    return whole(call.rows, shape.rows) * whole(call.length, shape.columns);
  case CallForm::Product:
  case CallForm::ByteProduct:
    return whole(call.rows, shape.rows) * whole(call.columns, shape.columns);
  case CallForm::Rows:
    break;
  }
  return 1.0;
}

/// Rows that are nowhere between sweeps are read again, from memory where
/// others came between.
void LaunchCounter::countRows() {
  GpuLaunchWork &work = result.work;
  double rows = std::max(call.rows, 1.0), length = std::max(call.length, 1.0);
  double ofRow = call.streamBytes / rows;
  double chunk = double(shape.threads) * shape.vectors * shape.width;
  bool isNowhere = shape.place == WayShape::Nowhere || shape.hasParts;
  if (isNowhere && call.sweeps > 1) {
    // What a block has last is still there, and is read first.
    double held = chunk * parts * ofRow / length;
    result.readAgain =
        double(call.sweeps - 1) * rows * std::max(ofRow - held, 0.0);
    double atOnce = shape.hasParts
                        ? rows
                        : std::min(rows, rates.units * work.residentBlocks *
                                             double(shape.rows));
    work.bytesRead += missing(result.readAgain, atOnce * ofRow);
  }
  // What all rows read stays in a multiprocessor's first cache where it fits.
  constexpr double kFirstCache = 128.0 * 1024;
  if (shape.place != WayShape::Ring)
    work.cacheBytes +=
        call.sharedBytes * double(call.sweeps) *
        std::clamp(call.sharedBytes / rows / kFirstCache - 0.5, 0.0, 1.0);
  double held = chunk * ofRow / length;
  double chunks = shape.stages > 1 ? shape.stages - 1 : 1;
  if (shape.place == WayShape::OnChip || shape.place == WayShape::Ring)
    work.bytesOnTheWay = std::max(held, ofRow / std::max(shape.blocks, 1u));
  else
    work.bytesOnTheWay = held * chunks;
  work.bytesOnTheWay *= std::max(shape.rows, 1u);
}

/// Blocks of rows read the whole stream each, from the second level cache.
void LaunchCounter::countTiles() {
  double ofPlace = 2.0 * (call.depth + call.columns);
  double streams =
      shape.hasParts ? groups : call.batch * std::ceil(call.rows / shape.rows);
  copiedBytes = streams * call.length * walked() * ofPlace;
  result.work.cacheBytes += copiedBytes;
  if (shape.hasParts) // two to four tiles are under way
    result.work.bytesOnTheWay = 2.0 * shape.vectors * ofPlace;
}

/// Rectangles of a product read both sides anew.
void LaunchCounter::countCache() {
  double bytes = call.form == CallForm::ByteProduct ? 1.0 : 2.0;
  if (unit() == GpuUnit::Lanes && call.form == CallForm::Product)
    bytes = call.elementBytes;
  bool isOfRows = call.form == CallForm::RowProduct;
  double sum = isOfRows ? call.depth : call.length;
  double columns = isOfRows ? call.length : call.columns;
  double rectangles = std::max(call.batch, 1.0) *
                      std::ceil(call.rows / std::max(shape.rows, 1u)) *
                      std::ceil(columns / std::max(shape.columns, 1u));
  copiedBytes = rectangles * sum * double(shape.rows + shape.columns) * bytes;
  result.work.cacheBytes += copiedBytes;
}

CountedLaunch LaunchCounter::count() {
  GpuLaunchWork &work = result.work;
  work.unit = unit();
  // Arrays of the caller come from memory, what other steps have just made from
  // wherever it fits.
  work.bytesRead = call.bytesRead - call.passedRead +
                   missing(call.passedRead, work.workingSet);
  work.bytesWritten = call.bytesWritten - call.passedWritten +
                      missing(call.passedWritten, work.workingSet);
  work.isEmpty = blocks == 0;
  work.isExchanged = parts > 1.0;
  work.pieces = double(std::max<int64_t>(blocks, 1));
  if (call.form == CallForm::Rows) {
    countRows();
    work.cacheBytes += call.bytesRead + result.readAgain;
    // Blocks that do many rows do as many as they can.
    if (way.blocksPerUnit > 0 || shape.takesTurns)
      work.pieces = std::min(work.pieces, rates.units * work.residentBlocks);
  } else if (call.form == CallForm::Tiles) {
    countTiles();
  } else {
    countCache();
  }
  work.cacheBytes += call.bytesWritten;
  result.walked = walked();
  work.products = call.products * result.walked * fullness();
  work.slots = result.walked * call.slots + call.fixedSlots;
  work.functions = result.walked * call.functions + call.fixedFunctions;
  if (shape.width == 1 && call.elementBytes == 2.0 &&
      (call.form == CallForm::Tiles || call.form == CallForm::Product))
    work.slots += kGpu.single * copiedBytes / 2.0;
  return result;
}

CountedLaunch package::countLaunch(const LaunchWay &way, const CallWork &call,
                                   TermValues &sizes, int64_t blocks,
                                   int64_t threads, int64_t resident,
                                   const GpuRates &rates) {
  LaunchCounter counter(way, call, sizes, blocks, threads, resident, rates);
  std::optional<int64_t> own = sizes[way.grid[0]];
  if (way.shape.hasParts && way.freeBlocks && own && *own != blocks)
    counter.setParts(
        double(blocks) /
        double(std::max<int64_t>(sizes[way.freeBlocks->unit].value_or(1), 1)));
  return counter.count();
}
