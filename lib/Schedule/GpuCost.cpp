// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a cascade asks of a GPU, in instructions of lanes and products. The few
// numbers below are of no program: fitted once to all kinds together, with
// those of lib/Package/LaunchCost (benchmarks/results/cuda-predicted.md).
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
  double listed = 6.0;    ///< sorting, an element
  double chosen = 62.0;   ///< a place of a list
  double longWords = 3.0; ///< both, of 64 bits in place of 32
  double beside = 1.4;    ///< addresses, guards, loads and stores
};
constexpr GpuCoefficients kGpu;

/// Operations of a cascade, pass by pass.
class GpuCounter {
public:
  GpuCounter(CascadeOp cascade, const IndexSets &sets)
      : cascade(cascade), sets(sets),
        stream(cascade.indicesOfRole(CascadeOp::Stream)),
        carried(cascade.indicesOfRole(CascadeOp::Carried)) {}
  GpuWorkForm count();

private:
  using OpSet = llvm::SetVector<Operation *>;
  GpuWork &at(uint64_t set) { return work.parts[set]; }
  void gather(Value value, OpSet &ops);
  OperationCounts kindFor(Operation *op) const;
  void countOps(const OpSet &ops);
  void countState(StateOp state, OpSet &ops);
  bool isGuarded(StateOp state) const;

  CascadeOp cascade;
  const IndexSets &sets;
  uint64_t stream, carried;
  GpuWorkForm work;
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
      at(sets.of(contract.getValue())).products += 1.0;
      continue;
    }
    if (op->getNumResults() != 1 || isa<ReadOp>(op))
      continue;
    uint64_t set = sets.of(op->getResult(0));
    if ((set & stream) && (set & carried)) // a factor of a product
      continue;
    GpuWork &part = at(set);
    ((set & stream) || !stream ? part.elements : part.rows).add(kindFor(op));
  }
}

void GpuCounter::countState(StateOp state, OpSet &ops) {
  uint64_t set = sets.of(state.getResults()[0]);
  for (Value value : state.getValues())
    gather(value, ops);
  if (state.isOrdered()) {
    // Keys of 16 bits are words of 32, others of 64.
    double words = isNarrow(state.getValues()[0]) ? 1.0 : kGpu.longWords;
    at((set & ~carried) | stream).listed += words;
    at(set).chosen += words;
  } else if (set & carried) {
    at(set | stream).products += 1.0;
  } else if (sets.of(state.getValues()[0]) & stream) {
    at(set | stream).elements.simple += 1.0;
  }
}

GpuWorkForm GpuCounter::count() {
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

GpuWorkForm refold::formOfGpuWork(CascadeOp cascade, const IndexSets &sets) {
  return GpuCounter(cascade, sets).count();
}

GpuWork refold::countGpuWork(CascadeOp cascade, const IndexSets &sets,
                             ArrayRef<double> extents) {
  GpuWorkForm form = formOfGpuWork(cascade, sets);
  GpuWork work;
  work.sweeps = form.sweeps;
  work.isSwept = form.isSwept;
  for (const auto &[set, part] : form.parts) {
    double places = 1.0;
    for (unsigned i = 0; i < extents.size(); ++i)
      places *= set >> i & 1 ? extents[i] : 1.0;
    work.elements.add(part.elements, places);
    work.rows.add(part.rows, places);
    work.products += places * part.products;
    work.listed += places * part.listed;
    work.chosen += places * part.chosen;
  }
  return work;
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
