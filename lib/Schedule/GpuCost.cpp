// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a launch on a GPU is predicted to take: of bytes, instructions and
// products, by rates of the card. The few numbers below are of no program:
// fitted once to all kinds together (benchmarks/results/cuda-predicted.md).
#include "refold/Schedule/GpuCost.h"
#include "CountOperation.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "llvm/ADT/SetVector.h"
#include <algorithm>
#include <cmath>

using namespace mlir;
using namespace refold;

namespace {
struct GpuCoefficients {
  /// Instructions of a lane for one operation of the formula.
  double simple = 1.0, conversion = 1.0, exponential = 2.0, function = 20.0,
         division = 4.0;
  double listed = 6.0;      ///< sorting, an element
  double chosen = 62.0;     ///< a place of a list
  double longWords = 3.0;   ///< both, of 64 bits in place of 32
  double beside = 1.4;      ///< addresses, guards, loads and stores
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
};
constexpr GpuCoefficients kGpu;

/// Operations of a cascade, pass by pass.
class GpuCounter {
public:
  GpuCounter(CascadeOp cascade, const IndexSets &sets, ArrayRef<double> extents)
      : cascade(cascade), sets(sets), extents(extents),
        stream(cascade.indicesOfRole(CascadeOp::Stream)),
        carried(cascade.indicesOfRole(CascadeOp::Carried)) {}
  GpuWork count();

private:
  using OpSet = llvm::SetVector<Operation *>;
  double elements(uint64_t set) const {
    double result = 1.0;
    for (unsigned i = 0; i < extents.size(); ++i)
      if (set >> i & 1)
        result *= extents[i];
    return result;
  }
  void gather(Value value, OpSet &ops);
  OperationCounts kindFor(Operation *op) const;
  void countOps(const OpSet &ops);
  void countState(StateOp state, OpSet &ops);
  bool isGuarded(StateOp state) const;

  CascadeOp cascade;
  const IndexSets &sets;
  ArrayRef<double> extents;
  uint64_t stream, carried;
  GpuWork work;
};
} // namespace

/// What `value` is computed from, up to states and sums of products.
void GpuCounter::gather(Value value, OpSet &ops) {
  SmallVector<Value> open = {value};
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (!op || isa<StateOp>(op) || !ops.insert(op) || isa<ContractOp>(op))
      continue;
    open.append(op->operand_begin(), op->operand_end());
  }
}

/// A state that only irregular rows need: its pass is left out for all others.
bool GpuCounter::isGuarded(StateOp state) const {
  Operation *select = state.getValues()[0].getDefiningOp();
  return sets.passOf(state) > 0 && select && isa<arith::SelectOp>(select) &&
         !(sets.of(select->getOperand(0)) & stream);
}

/// Whether a key is a number of 16 bits, as it is stored.
static bool isNarrow(Value key) {
  auto wide = key.getDefiningOp<arith::ExtFOp>();
  return wide && wide.getIn().getType().getIntOrFloatBitWidth() <= 16;
}

/// A quotient by a number of the row is a product with its reciprocal.
OperationCounts GpuCounter::kindFor(Operation *op) const {
  OperationCounts one = kindOf(*op);
  bool isOfRow = isa<arith::DivFOp>(op) &&
                 (sets.of(op->getResult(0)) & stream) &&
                 !(sets.of(op->getOperand(1)) & stream);
  if (isOfRow && one.divisions > 0.0) {
    one.divisions = 0.0;
    one.simple = 1.0;
  }
  return one;
}

void GpuCounter::countOps(const OpSet &ops) {
  for (Operation *op : ops) {
    if (auto contract = dyn_cast<ContractOp>(op)) {
      work.products += elements(sets.of(contract.getValue()));
      continue;
    }
    if (op->getNumResults() != 1 || isa<ReadOp>(op))
      continue;
    uint64_t set = sets.of(op->getResult(0));
    if ((set & stream) && (set & carried)) // a factor of a product
      continue;
    ((set & stream) || !stream ? work.elements : work.rows)
        .add(kindFor(op), elements(set));
  }
}

void GpuCounter::countState(StateOp state, OpSet &ops) {
  uint64_t set = sets.of(state.getResults()[0]);
  for (Value value : state.getValues())
    gather(value, ops);
  if (state.isOrdered()) {
    // Keys of 16 bits are words of 32, others of 64.
    double words = isNarrow(state.getValues()[0]) ? 1.0 : kGpu.longWords;
    work.listed += words * elements((set & ~carried) | stream);
    work.chosen += words * elements(set);
  } else if (set & carried) {
    work.products += elements(set | stream);
  } else if (sets.of(state.getValues()[0]) & stream) {
    work.elements.simple += elements(set | stream);
  }
}

GpuWork GpuCounter::count() {
  work.sweeps = 0;
  for (unsigned pass = 0; pass < sets.numPasses; ++pass) {
    OpSet ops;
    bool isAny = false;
    for (auto state : cascade.getBody().getOps<StateOp>())
      if (sets.passOf(state) == pass && !isGuarded(state)) {
        countState(state, ops);
        isAny = true;
      }
    work.sweeps += isAny;
    countOps(ops);
  }
  OpSet swept, finished;
  for (auto write : cascade.getBody().getOps<WriteOp>()) {
    uint64_t set = sets.of(write.getValue());
    for (Value index : write.getIndices())
      set |= sets.of(index);
    gather(write.getValue(), set & stream ? swept : finished);
    work.isSwept |= (set & stream) != 0;
  }
  work.sweeps += work.isSwept;
  countOps(swept);
  finished.remove_if([&](Operation *op) { return swept.contains(op); });
  countOps(finished);
  return work;
}

GpuWork refold::countGpuWork(CascadeOp cascade, const IndexSets &sets,
                             ArrayRef<double> extents) {
  return GpuCounter(cascade, sets, extents).count();
}

double refold::slotsOf(const GpuWork &work) {
  auto sum = [](const OperationCounts &ops) {
    return kGpu.simple * ops.simple + kGpu.conversion * ops.conversions +
           kGpu.exponential * (ops.exponentials + ops.lagging) +
           kGpu.function * ops.functions + kGpu.division * ops.divisions;
  };
  return kGpu.beside * (work.walked * sum(work.elements) + sum(work.rows)) +
         kGpu.listed * work.listed + kGpu.chosen * work.chosen;
}

double refold::functionsOf(const GpuWork &work) {
  auto sum = [](const OperationCounts &ops) {
    return ops.exponentials + ops.lagging + 2.0 * ops.functions + ops.divisions;
  };
  return work.walked * sum(work.elements) + sum(work.rows);
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
