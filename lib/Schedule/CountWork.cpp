// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which operations of a cascade run for every element of which pass, which once
// a row, and what its states are.
#include "CascadeCounter.h"
#include "CountOperation.h"
#include "ListSteps.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include <cmath>

using namespace mlir;
using namespace refold;

double CascadeCounter::elements(uint64_t set) const {
  double count = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if (set & bit(i))
      count *= extents[i];
  return count;
}

/// Registers that are not full take as long as full ones.
double CascadeCounter::laneWaste(uint64_t set) const {
  if (laneIndex < 0 || !(set & bit(laneIndex)) || extents[laneIndex] < 1)
    return 1.0;
  return std::ceil(extents[laneIndex] / lanes) * lanes / extents[laneIndex];
}

double CascadeCounter::tileOf(unsigned index) {
  auto it = schedule.tile.find(cascade.indexName(index).str());
  double tile = it == schedule.tile.end() ? extents[index]
                                          : static_cast<double>(it->second);
  return std::max(1.0, std::min(tile, extents[index]));
}

void CascadeCounter::chooseLanes() {
  for (unsigned i = 0; i < extents.size(); ++i) {
    if (stream & bit(i))
      lastStream = i;
    if (!schedule.lanes.empty() && cascade.indexName(i) == schedule.lanes)
      laneIndex = i;
  }
  if (laneIndex < 0)
    laneIndex = lastStream;
}

/// A state that only irregular rows need: its pass is left out for all others.
bool CascadeCounter::isGuarded(StateOp state) const {
  auto select = state.getValues()[0].getDefiningOp<arith::SelectOp>();
  return select && sets.passOf(state) > 0 &&
         !(sets.of(select.getCondition()) & stream) &&
         (select.getTrueValue().getDefiningOp<arith::ConstantOp>() ||
          select.getFalseValue().getDefiningOp<arith::ConstantOp>());
}

/// Rows of one tile are walked as many at a time as there are lanes: short ones
/// level by level, others where one traversal finds all of them. What is made
/// of their numbers then has a row a lane.
bool CascadeCounter::areRowsAlongLanes() {
  constexpr double kShort = 256.0, kJoined = 4096.0;
  int row = tiledRow();
  if (row < 0 || carried || cascade.indicesOfRole(CascadeOp::Inner) ||
      schedule.segments > 1 || lastStream < 0 || laneIndex != lastStream ||
      stream != bit(unsigned(lastStream)) ||
      double(schedule.tile.at(cascade.indexName(unsigned(row)).str())) < lanes)
    return false;
  bool hasSweep =
      llvm::any_of(cascade.getBody().getOps<WriteOp>(), [&](WriteOp write) {
        return llvm::any_of(write.getIndices(), [&](Value index) {
          return (sets.of(index) & stream) != 0;
        });
      });
  return extents[lastStream] <= (hasSweep ? kShort : kJoined);
}

/// What `value` is computed from, up to states.
void CascadeCounter::gather(Value value, OpSet &ops) {
  SmallVector<Value> open = {value};
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (!op || isa<StateOp>(op) || !ops.insert(op))
      continue;
    open.append(op->operand_begin(), op->operand_end());
  }
}

/// The row index whose rows share what they are multiplied by; -1: none.
int CascadeCounter::tiledRow() {
  for (unsigned i = 0; i < extents.size(); ++i)
    if ((rowSet & bit(i)) && schedule.tile.count(cascade.indexName(i).str()))
      return int(i);
  return -1;
}

/// Values that read states are computed once, and kept for the nest.
bool CascadeCounter::dependsOnState(Operation *op) {
  OpSet ops;
  gather(op->getResult(0), ops);
  return llvm::any_of(ops, [](Operation *inner) {
    return isa<ContractOp>(inner) ||
           llvm::any_of(inner->getOperands(), [](Value v) {
             return isa_and_nonnull<StateOp>(v.getDefiningOp());
           });
  });
}

/// Elements at computed places are read one by one, if these move with the
/// lanes; a row at a computed place (an embedding) is read as any other.
void CascadeCounter::countGathered(ReadOp read) {
  uint64_t computed = 0;
  bool isComputed = false;
  for (Value index : read.getIndices())
    if (Operation *op = index.getDefiningOp();
        op && !isa<arith::ConstantOp>(op)) {
      computed |= sets.of(index);
      isComputed = true;
    }
  if (!isComputed)
    return;
  uint64_t lanes = lastStream >= 0 ? bit(lastStream) : 0;
  if (lastStream < 0)
    if (auto last = dyn_cast<BlockArgument>(read.getIndices().back()))
      lanes = sets.of(last);
  bool areWhole = lanes && !(computed & lanes);
  work.gathered += elements(areWhole ? computed : sets.of(read.getValue()));
}

/// By AVX2 those that are 1 at their largest are made of eighths of an
/// exponent, in this part of the time that others take (a Zen 4: logsumexp,
/// entropy, cross-entropy, softmax and KL divergence of 512 x 4096, attention).
constexpr double kByEighths = 0.75;

OperationCounts CascadeCounter::countOf(Operation *op) {
  OperationCounts one = kindOf(*op);
  if (target.vectorBits == 256 && one.exponentials > 0.0 &&
      op->getResult(0).getType().isF32() && dependsOnState(op))
    one.exponentials *= kByEighths;
  return one;
}

void CascadeCounter::countOps(const OpSet &ops) {
  for (Operation *op : ops) {
    if (auto contract = dyn_cast<ContractOp>(op)) {
      countNest(contract.getValue(), sets.of(contract.getValue()));
      continue;
    }
    if (auto read = dyn_cast<ReadOp>(op)) {
      countGathered(read);
      continue;
    }
    if (op->getNumResults() != 1)
      continue;
    uint64_t set = sets.of(op->getResult(0));
    // What moves along a nest's own indices is counted with the nest.
    bool isOfNest =
        hasNest && ((set & cascade.indicesOfRole(CascadeOp::Inner)) ||
                    ((set & stream) && (set & carried)));
    if (isOfNest)
      continue;
    OperationCounts one = countOf(op);
    if (lagging.contains(op))
      std::swap(one.exponentials, one.lagging);
    if ((set & stream) || !stream || rowsAreAlongLanes)
      work.stream.add(one, elements(set) * laneWaste(set));
    else
      work.rows.add(one, elements(set));
  }
}

/// Whether a row is one tile of the stream, walked element by element.
bool CascadeCounter::isOneTile() {
  return !hasNest && lastStream >= 0 && laneIndex == lastStream &&
         stream == bit(unsigned(lastStream)) && schedule.segments <= 1 &&
         tileOf(unsigned(lastStream)) >= extents[lastStream];
}

/// Exponentials of the sweep that the passes have too: of each element no more
/// than these compute.
double CascadeCounter::ofPasses(const OpSet &passes, const OpSet &swept) {
  auto inAll = [&](const OpSet &ops) {
    double count = 0.0;
    for (Operation *op : ops)
      if (op->getNumResults() == 1 && (sets.of(op->getResult(0)) & stream))
        count += countOf(op).exponentials;
    return count;
  };
  return std::min(inAll(passes), inAll(swept)) * elements(rowSet | stream) *
         laneWaste(rowSet | stream);
}

/// States are moved to the pivots of a tile once a tile, if there are several.
void CascadeCounter::countMoves(StateOp state) {
  double tiles = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if (stream & bit(i))
      tiles *= std::ceil(extents[i] / (int(i) == lastStream ? tileOf(i) : 1.0));
  if (state.getPivots().empty() || tiles <= 1.0)
    return;
  uint64_t set = sets.of(state.getResults()[0]);
  OperationCounts one;
  for (Operation &op : state.getTransport().front())
    one.add(kindOf(op));
  if (!(set & carried)) {
    work.moves.add(one, tiles * elements(set));
    return;
  }
  // Factors are computed once a row, and multiply the whole state.
  work.moves.add(one, tiles * elements(set & rowSet));
  work.moves.simple += 2.0 * tiles * elements(set);
}

/// Extremes keep a NaN and know the sign of zero: six instructions, of which
/// each waits for the one before, where a sum has one.
void CascadeCounter::countMerge(StateOp state, double states) {
  work.merges += states;
  bool isExtreme =
      state.getReducer() == Reducer::Max || state.getReducer() == Reducer::Min;
  if (isExtreme && isa<FloatType>(state.getResults()[0].getType()))
    work.extremes += states;
}

/// Of n elements in any order k (1 + ln(n / k)) enter a list of the k best.
void CascadeCounter::countSelection(StateOp state) {
  double length = elements(stream);
  uint64_t set = sets.of(state.getResults()[0]);
  double best = elements(set & ~rowSet), rows = elements(set & rowSet);
  if (laneIndex != lastStream) { // rows along the lanes, in registers
    work.stream.simple += rows * length * laneWaste(set) * best *
                          (4.0 + 2.0 * double(state.getNumResults()));
    return;
  }
  int row = tiledRow();
  bool isOpen =
      row < 0 || ShapedType::isDynamic(cascade.getExtents()[unsigned(row)]);
  int64_t tileRows =
      row < 0 ? 0 : schedule.tile.at(cascade.indexName(unsigned(row)).str());
  if (!isOpen)
    tileRows = std::min(tileRows, cascade.getExtents()[unsigned(row)]);
  ListForm form = schedule.segments > 1
                      ? ListForm::ByElement
                      : listFormOf(state.getResults()[0].getType(),
                                   int64_t(best), tileRows, int64_t(lanes));
  if (form == ListForm::ByElement) {
    work.compared += rows * length;
    bool isLong = length > best && best > 0;
    work.entered += rows * std::ceil(best / lanes) *
                    (isLong ? best * (1.0 + std::log(length / best)) : length);
    return;
  }
  // Of the j-th tile of a row one element enters by a chance of k / j.
  double tile = std::max(1.0, tileOf(unsigned(lastStream)));
  double tiles = std::max(1.0, length / tile);
  double opened = tiles > best ? best * (1.0 + std::log(tiles / best)) : tiles;
  double searched = std::min(length, tile * opened);
  double maxima =
      lanes * double(registersOfMaxima(int64_t(best), int64_t(lanes)));
  double candidates =
      std::min(length, candidatesOf(best, maxima) + best * std::log(tiles));
  // Keys are computed for the maxima, and once more for the candidates.
  OpSet keys;
  gather(state.getValues()[0], keys);
  for (Operation *op : keys)
    if (!hasNest && !isa<ReadOp, ContractOp>(op) && op->getNumResults() == 1 &&
        (sets.of(op->getResult(0)) & stream))
      work.stream.add(countOf(op), rows * searched * laneWaste(set | stream));
  auto arrays = double(state.getNumResults());
  work.lists += rows;
  work.searched += rows * searched;
  work.compared += rows * (length - searched);
  work.placed += std::ceil(rows / lanes) * lanes * candidates *
                 stepsOfCandidate(form, best, arrays);
  if (!target.hasCompress && !compressesByTable(target, int64_t(lanes)))
    work.moved += rows * searched * arrays;
}

void CascadeCounter::countStates(unsigned pass, OpSet &ops) {
  for (auto state : cascade.getBody().getOps<StateOp>()) {
    if (sets.passOf(state) != pass || isGuarded(state))
      continue;
    OpSet terms;
    for (Value value : state.getValues())
      gather(value, terms);
    ops.insert(terms.begin(), terms.end());
    if (!state.getPivots().empty() && !state.isOrdered() && !carried)
      lagging.insert(terms.begin(), terms.end());
    for (Value pivot : state.getPivots())
      gather(pivot, ops);
    uint64_t set = sets.of(state.getResults()[0]);
    uint64_t term = sets.of(state.getValues()[0]);
    countMoves(state);
    if (state.isOrdered()) {
      countSelection(state);
    } else if (set & carried) {
      if (laneIndex >= 0 && (carried & bit(laneIndex)) == 0 &&
          schedule.lanes.empty()) {
        countNest(state.getValues()[0], set | stream);
        continue;
      }
      work.stream.simple += elements(set | stream) * laneWaste(set | stream);
    } else if (term & stream) { // else a count
      work.stream.simple += elements(set | stream) * laneWaste(set | stream);
      if (laneIndex == lastStream)
        countMerge(state, elements(set));
    }
  }
}

KernelWork CascadeCounter::count() {
  chooseLanes();
  rowsAreAlongLanes = areRowsAlongLanes();
  OpSet seen;
  unsigned passes = 0;
  for (unsigned pass = 0; pass < sets.numPasses; ++pass) {
    OpSet ops;
    countStates(pass, ops);
    if (ops.empty())
      continue;
    ++passes;
    countOps(ops);
    lagging.clear();
    countAgain(seen, ops);
    seen.insert(ops.begin(), ops.end());
  }
  OpSet swept, finished;
  for (auto write : cascade.getBody().getOps<WriteOp>()) {
    uint64_t set = sets.of(write.getValue());
    for (Value index : write.getIndices())
      set |= sets.of(index);
    bool isSwept = (set & stream) != 0;
    OpSet &ops = isSwept ? swept : finished;
    gather(write.getValue(), ops);
  }
  double exponentials = work.stream.exponentials;
  countOps(swept);
  if (isOneTile()) // what its passes have computed is there
    work.stream.exponentials = std::max(
        exponentials, work.stream.exponentials - ofPasses(seen, swept));
  rowsSwept = rowsOfSweep();
  countAgain(seen, swept);
  finished.remove_if(
      [&](Operation *op) { return swept.contains(op) || seen.contains(op); });
  countOps(finished);
  if (!hasNest && laneIndex == lastStream) {
    seen.insert(swept.begin(), swept.end());
    countRows(seen);
  }
  uint64_t others = ~uint64_t(0);
  if (laneIndex >= 0)
    others &= ~bit(laneIndex);
  uint64_t visited = stream ? (rowSet | stream) & others : rowSet & others;
  if (lastStream >= 0)
    visited &=
        ~bit(lastStream) | (laneIndex == lastStream ? 0 : bit(lastStream));
  // Of a nest these are the row steps beside it.
  if (!hasNest || (stream && laneIndex == lastStream)) {
    work.visits =
        elements(visited) * (passes + (swept.empty() && stream ? 0.0 : 1.0));
    work.tails = laneIndex < 0 ? 0.0 : work.visits * tailOf(laneIndex);
  }
  // Rows that a nest leaves are looked through once more, for their lists. Zen
  // 4, lists of 1 to 8 of 16 to 128 columns: 11 ns a row. By themselves lists
  // begin slowly: 16 rows take 2 us, each more 11 ns.
  constexpr double kOfNest = 2.5, kBegin = 170.0;
  if (hasNest)
    work.lists *= kOfNest;
  else if (work.lists > 0.0)
    work.lists += kBegin;
  if (!hasNest)
    countTurned();
  countItems();
  return work;
}

KernelWork refold::countWork(CascadeOp cascade, const IndexSets &sets,
                             ArrayRef<double> extents, const Schedule &schedule,
                             const TargetFacts &target) {
  return CascadeCounter(cascade, sets, extents, schedule, target).count();
}
