// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Counts what the walk does with the body of a cascade: which operations run
// for every element of which pass, which once a row, which inside nests.
#include "ListSteps.h"
#include "refold/Schedule/CostModel.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/IR/AffineExpr.h"
#include "mlir/IR/Matchers.h"
#include "llvm/ADT/SetVector.h"
#include <cmath>

using namespace mlir;
using namespace refold;

void OperationCounts::add(const OperationCounts &other, double times) {
  simple += times * other.simple;
  exponentials += times * other.exponentials;
  lagging += times * other.lagging;
  functions += times * other.functions;
  divisions += times * other.divisions;
  conversions += times * other.conversions;
}

/// One operation, by its kind; nothing for what is folded or free.
static OperationCounts kindOf(Operation &op) {
  OperationCounts one;
  if (op.getNumResults() != 1 || op.getResult(0).getType().isIndex() ||
      op.hasTrait<OpTrait::ConstantLike>())
    return one;
  if (isa<math::ExpOp, math::Exp2Op>(op))
    one.exponentials = 1.0;
  else if (isa<math::ExpM1Op>(op))
    one.exponentials = 2.0;
  else if (isa<arith::DivFOp>(op) &&
           matchPattern(op.getOperand(1), m_Constant()))
    one.simple = 2.0; // a product and an FMA
  else if (isa<arith::DivFOp, arith::RemFOp, math::SqrtOp, math::RsqrtOp,
               arith::DivSIOp, arith::RemSIOp>(op))
    one.divisions = 1.0;
  else if (isa<arith::ExtFOp, arith::TruncFOp, arith::SIToFPOp, arith::UIToFPOp,
               arith::FPToSIOp, arith::FPToUIOp, arith::ExtSIOp, arith::ExtUIOp,
               arith::TruncIOp>(op))
    one.conversions = 1.0;
  else if (isa<math::AbsFOp, math::FloorOp, math::CeilOp, math::RoundEvenOp,
               math::CopySignOp, math::FmaOp>(op))
    one.simple = 1.0;
  else if (isa<math::MathDialect>(op.getDialect()))
    one.functions = 1.0;
  else if (isa<arith::ArithDialect>(op.getDialect()))
    one.simple = 1.0;
  return one;
}

namespace {
class Counter {
public:
  Counter(CascadeOp cascade, const IndexSets &sets, ArrayRef<double> extents,
          const Schedule &schedule, const TargetFacts &target)
      : cascade(cascade), sets(sets), extents(extents), schedule(schedule),
        target(target), lanes(static_cast<double>(target.lanes(32))),
        stream(cascade.indicesOfRole(CascadeOp::Stream)),
        carried(cascade.indicesOfRole(CascadeOp::Carried)),
        rowSet(cascade.indicesOfRole(CascadeOp::Row)) {}
  KernelWork count();

private:
  using OpSet = llvm::SetVector<Operation *>;
  static uint64_t bit(unsigned i) { return uint64_t(1) << i; }
  double elements(uint64_t set) const;
  double laneWaste(uint64_t set) const;
  void chooseLanes();
  bool isGuarded(StateOp state) const;
  void gather(Value value, OpSet &ops);
  bool isByteDot(Value term) const;
  double othersOf(Value term, const OpSet &ops, uint64_t nest, bool isThin,
                  bool isAcross);
  void countNest(Value term, uint64_t nest);
  int tiledRow();
  double sharingRows();
  double sharingOf(uint64_t set, bool isThin, bool isAcross);
  double carriedWaste();
  double waitOfRows();
  double sumsOf(uint64_t nest);
  double wasteOfSums(uint64_t nest, bool isAcross);
  int denseIndex(ReadOp read);
  bool isSummedAcross(const OpSet &ops, uint64_t nest);
  void countPanels(const OpSet &ops);
  bool isAddedInPairs(Value term);
  bool dependsOnState(Operation *op);
  void countAlone(uint64_t summed);
  void countOps(const OpSet &ops);
  void countStates(unsigned pass, OpSet &ops);
  void countMoves(StateOp state);
  void countMerge(StateOp state, double states);
  void countSelection(StateOp state);
  void countAgain(const OpSet &first, const OpSet &later);
  void countRows(const OpSet &ops);
  double rowsOfSweep();
  double rowsOfItem(unsigned index);
  double tileCount();
  void countItems();
  double tailOf(unsigned index);
  double tileOf(unsigned index);

  CascadeOp cascade;
  const IndexSets &sets;
  ArrayRef<double> extents;
  const Schedule &schedule;
  const TargetFacts &target;
  double lanes;
  uint64_t stream, carried, rowSet;
  int laneIndex = -1;  ///< that the lanes of row steps lie along
  int lastStream = -1; ///< the one that is tiled
  bool hasNest = false;
  double rowsSwept = 1.0; ///< at once: see `longestSweptAlone`
  OpSet lagging;          ///< terms of sums relative to pivots
  KernelWork work;
};
} // namespace

double Counter::elements(uint64_t set) const {
  double count = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if (set & bit(i))
      count *= extents[i];
  return count;
}

/// Registers that are not full take as long as full ones.
double Counter::laneWaste(uint64_t set) const {
  if (laneIndex < 0 || !(set & bit(laneIndex)) || extents[laneIndex] < 1)
    return 1.0;
  return std::ceil(extents[laneIndex] / lanes) * lanes / extents[laneIndex];
}

double Counter::tileOf(unsigned index) {
  auto it = schedule.tile.find(cascade.indexName(index).str());
  double tile = it == schedule.tile.end() ? extents[index]
                                          : static_cast<double>(it->second);
  return std::max(1.0, std::min(tile, extents[index]));
}

void Counter::chooseLanes() {
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
bool Counter::isGuarded(StateOp state) const {
  auto select = state.getValues()[0].getDefiningOp<arith::SelectOp>();
  return select && sets.passOf(state) > 0 &&
         !(sets.of(select.getCondition()) & stream) &&
         (select.getTrueValue().getDefiningOp<arith::ConstantOp>() ||
          select.getFalseValue().getDefiningOp<arith::ConstantOp>());
}

/// What `value` is computed from, up to states.
void Counter::gather(Value value, OpSet &ops) {
  SmallVector<Value> open = {value};
  while (!open.empty()) {
    Operation *op = open.pop_back_val().getDefiningOp();
    if (!op || isa<StateOp>(op) || !ops.insert(op))
      continue;
    open.append(op->operand_begin(), op->operand_end());
  }
}

/// Products of two values that are bf16 are added two at a time where the
/// target does so and many rows share what is put into pairs.
bool Counter::isAddedInPairs(Value term) {
  auto product = term.getDefiningOp<arith::MulFOp>();
  auto isHalf = [](Value factor) {
    auto widened = factor.getDefiningOp<arith::ExtFOp>();
    return widened && widened.getIn().getType().isBF16();
  };
  if (!target.addsPairs || schedule.registerRows < 8 || !product ||
      !term.getType().isF32() || !isHalf(product.getLhs()) ||
      !isHalf(product.getRhs()))
    return false;
  // A product by itself: in tiles, where panels of a constant are there.
  return stream ||
         (target.multipliesTiles && multipliesPairsByConstant(cascade, term));
}

/// Products of two bytes, which the target adds in fours.
bool Counter::isByteDot(Value term) const {
  Operation *product = term.getDefiningOp();
  if (!(target.hasByteDots || target.addsHalfWords) ||
      !isa_and_nonnull<arith::MulIOp>(product))
    return false;
  // Its unsigned side has signs that were flipped: both have one.
  bool areSigned = target.hasByteDots;
  return llvm::all_of(product->getOperands(), [&](Value side) {
    Operation *cast = side.getDefiningOp();
    return (areSigned
                ? isa_and_nonnull<arith::ExtSIOp>(cast)
                : isa_and_nonnull<arith::ExtSIOp, arith::ExtUIOp>(cast)) &&
           cast->getOperand(0).getType().isInteger(8);
  });
}

/// The row index whose rows share what they are multiplied by; -1: none.
int Counter::tiledRow() {
  for (unsigned i = 0; i < extents.size(); ++i)
    if ((rowSet & bit(i)) && schedule.tile.count(cascade.indexName(i).str()))
      return int(i);
  return -1;
}

double Counter::sharingRows() {
  int row = tiledRow();
  return row < 0 ? 1.0 : extents[row];
}

/// Rows that fill no register tile are multiplied as half of one, a quarter,
/// and so on; of few sums each step waits for the one before. How many times as
/// long it takes as full register tiles.
double Counter::waitOfRows() {
  constexpr double kSumsInFlight = 4.0;
  int row = tiledRow();
  double rows = row < 0 ? 1.0 : tileOf(row), taken = 0.0, left = rows;
  double columns =
      std::max(1.0, static_cast<double>(schedule.registerLanes) / lanes);
  double block =
      static_cast<double>(std::max<int64_t>(schedule.registerRows, 1));
  for (; left > 0.0 && block >= 1.0; block = std::floor(block / 2.0)) {
    double blocks = std::floor(left / block);
    taken += blocks * std::max(block, kSumsInFlight / columns);
    left -= blocks * block;
  }
  return rows > 0.0 ? std::max(1.0, taken / rows) : 1.0;
}

/// Products that one register of `set` serves: what no row moves is loaded for
/// all rows of a register tile, what rows move for its two columns.
double Counter::sharingOf(uint64_t set, bool isThin, bool isAcross) {
  constexpr double kColumns = 2.0, kRowsAcross = 4.0;
  double rows = double(std::max<int64_t>(schedule.registerRows, 1));
  if (isThin)
    return rows;
  int row = tiledRow();
  if (row < 0 || (set & bit(row)))
    return kColumns;
  rows = std::min(isAcross ? kRowsAcross : rows, sharingRows());
  return std::max(rows, 1.0);
}

/// Lanes of a sum run along the last carried index: its registers are not full.
double Counter::carriedWaste() {
  if (!carried)
    return 1.0;
  double extent = extents[63 - llvm::countl_zero(carried)];
  return extent < 1.0 ? 1.0 : std::ceil(extent / lanes) * lanes / extent;
}

/// Registers of what a contraction leaves, or sums, are not full: those of its
/// lanes where `isAcross`. Where extents are open and a second product follows,
/// the last register is one of a whole tile.
double Counter::wasteOfSums(uint64_t nest, bool isAcross) {
  int index =
      isAcross
          ? llvm::countr_zero(nest & cascade.indicesOfRole(CascadeOp::Inner))
          : laneIndex;
  if (index < 0 || !(nest & bit(index)) || extents[index] < 1.0)
    return 1.0;
  auto isSecond = [&](StateOp state) {
    return !state.isOrdered() && (sets.of(state.getResult(0)) & carried);
  };
  bool isWide = !isAcross && index == lastStream &&
                ShapedType::isDynamic(cascade.getExtents()[index]) &&
                llvm::any_of(cascade.getBody().getOps<StateOp>(), isSecond);
  double width = isWide ? double(schedule.registerLanes) : lanes;
  return std::ceil(extents[index] / width) * width / extents[index];
}

/// The index that the last subscript is; -1: none is by itself.
int Counter::denseIndex(ReadOp read) {
  AffineMap map = read.getMap();
  auto dim = map.getNumResults()
                 ? dyn_cast<AffineDimExpr>(map.getResults().back())
                 : AffineDimExpr(nullptr);
  auto index =
      dim ? dyn_cast<BlockArgument>(read.getIndices()[dim.getPosition()])
          : BlockArgument();
  return index && index.getArgNumber() < extents.size()
             ? int(index.getArgNumber())
             : -1;
}

/// Few rows of a stream sum with lanes along what is summed, where all that
/// moves with it is dense along it.
bool Counter::isSummedAcross(const OpSet &ops, uint64_t nest) {
  uint64_t summed = nest & cascade.indicesOfRole(CascadeOp::Inner);
  if (!(nest & stream) || llvm::popcount(summed) != 1)
    return false;
  auto length = static_cast<int64_t>(extents[llvm::countr_zero(summed)]);
  if (sharingRows() > double(rowsAlongSum(length, int64_t(lanes))))
    return false;
  return llvm::all_of(ops, [&](Operation *op) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read || !(sets.of(read.getValue()) & summed))
      return true;
    int dense = denseIndex(read);
    return dense >= 0 && summed == bit(dense);
  });
}

/// What the rows of a tile share is laid out in panels, unless that was done
/// for all runs.
void Counter::countPanels(const OpSet &ops) {
  if (laneIndex < 0 || tiledRow() < 0)
    return;
  for (Operation *op : ops) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      continue;
    uint64_t set = sets.of(read.getValue());
    unsigned number =
        cast<BlockArgument>(read.getSource()).getArgNumber() - extents.size();
    bool isShared = !(set & bit(tiledRow()));
    if (!isShared || !(set & bit(laneIndex)) || !isVarying(cascade, number))
      continue;
    int dense = denseIndex(read);
    // Along the lanes it is copied, or few rows read it where it lies.
    auto most = static_cast<double>(
        dense < 0 || stream ? kRowsInPlace : rowsInOrderAlong(target));
    if (dense == laneIndex || sharingRows() <= most)
      continue;
    double laid = elements(set);
    if (schedule.panelBytes == 0) // by each item
      laid *= std::ceil(sharingRows() / tileOf(unsigned(tiledRow())));
    if (dense >= 0 && extents[dense] >= 1.0) // whole registers are turned
      laid *= std::ceil(extents[dense] / lanes) * lanes / extents[dense];
    work.turned += laid;
  }
}

/// Other operations for each product of a nest. What all indices move runs in
/// the innermost loop, what only some do serves several products, and what rows
/// multiply with is computed before.
double Counter::othersOf(Value term, const OpSet &ops, uint64_t nest,
                         bool isThin, bool isAcross) {
  auto timesOf = [](Operation &op) {
    OperationCounts one = kindOf(op);
    return one.simple + one.conversions + 4.0 * one.divisions +
           12.0 * (one.exponentials + one.functions);
  };
  int row = tiledRow();
  auto isOperand = [&](uint64_t set) {
    return row >= 0 && (set & bit(row)) && !(set & stream) &&
           (laneIndex < 0 || !(set & bit(laneIndex)));
  };
  uint64_t moving = stream | cascade.indicesOfRole(CascadeOp::Inner);
  double others = 0.0;
  for (Operation *op : ops) {
    if (op->getNumResults() != 1 || op == term.getDefiningOp())
      continue;
    uint64_t set = sets.of(op->getResult(0));
    bool isKept = (nest & carried) && !(set & carried) && (set & rowSet);
    if (set == nest)
      others += timesOf(*op);
    else if ((set & moving) && !(set & ~nest) && !isKept && !isOperand(set) &&
             !dependsOnState(op))
      others += timesOf(*op) / sharingOf(set, isThin, isAcross);
  }
  Operation *last = term.getDefiningOp();
  if (last && !isa<arith::MulFOp, arith::MulIOp, ReadOp>(last))
    others += 1.0;
  return others;
}

/// What a nest leaves: its sums, those of a stream once a tile.
double Counter::sumsOf(uint64_t nest) {
  if (uint64_t summed = nest & cascade.indicesOfRole(CascadeOp::Inner))
    return elements(nest & ~summed);
  double tiles = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if (nest & stream & bit(i))
      tiles *= std::ceil(extents[i] / (int(i) == lastStream ? tileOf(i) : 1.0));
  return elements(nest & ~stream) * tiles;
}

/// A sum of `term` over what its nest reduces: one product and the sum are one
/// fma. What no carried index moves is kept by the row steps of a state, and
/// counted there.
void Counter::countNest(Value term, uint64_t nest) {
  // Products of one multiplication and addition: by half words it takes two,
  // and bytes are widened.
  const double kDotBytes = target.hasByteDots ? 4.0 : 1.3;
  hasNest = true;
  constexpr double kRowsOfTile = 16.0;
  if (isByteDot(term)) {
    bool areTiles = target.multipliesTiles && target.hasByteDots &&
                    sharingRows() >= kRowsOfTile;
    (areTiles ? work.byteSteps : work.nestSteps) +=
        elements(nest) / (areTiles ? 1.0 : kDotBytes);
    if (areTiles)
      work.tileSums += sumsOf(nest);
    return;
  }
  if (isAddedInPairs(term)) {
    work.pairSteps += elements(nest);
    if (target.multipliesTiles)
      work.tileSums += sumsOf(nest);
    return;
  }
  constexpr double kThinRows = 4.0; // what they wait for is memory
  bool isThin = schedule.registerRows == 1 ||
                (schedule.innerLanes && sharingRows() <= kThinRows);
  OpSet ops;
  gather(term, ops);
  bool isAcross = isSummedAcross(ops, nest);
  double others = othersOf(term, ops, nest, isThin, isAcross);
  if (isThin) {
    work.thinSteps += (1.0 + others) * elements(nest);
    work.thinLoads += elements(nest) / sharingOf(nest, isThin, isAcross);
    return;
  }
  // Every tile of rows sums again what is the same for all of them, of one row.
  if (!(nest & rowSet) && elements(rowSet) > 1.0) {
    work.thinSteps += (1.0 + others) * elements(nest) * tileCount();
    work.thinLoads += elements(nest) * tileCount();
    return;
  }
  uint64_t summed = nest & cascade.indicesOfRole(CascadeOp::Inner);
  double waste = summed ? wasteOfSums(nest, isAcross) : 1.0;
  if (isAcross) {
    work.sumsAcross += elements(nest & ~summed);
    work.nestSteps += elements(nest) * waste;
  } else if (summed) {
    countPanels(ops);
    work.nestSteps += elements(nest) * waste * waitOfRows();
    work.nestSums += elements(nest & ~summed) * waste * waitOfRows();
    if (!stream)
      countAlone(summed);
  } else {
    work.nestSteps += elements(nest) * waitOfRows() * carriedWaste();
  }
  work.nestOthers += others * elements(nest);
}

/// A product by itself has no short blocks, and only stores what it sums. Its
/// panels are read from where they fit. Zen 4, 2000 x 64 by 64 x 16 and 32,
/// 0.036 and 0.073 ms, beside a maximum 0.009 more; 128 and 4096 rows of 768
/// and 4096 by as many columns took 1.07 to 1.15 of what is predicted without.
/// Many columns of short sums leave the first cache as they are stored: 512 x 8
/// by 300 takes 0.075 ms, 0.032 by this and 0.054 without.
void Counter::countAlone(uint64_t summed) {
  constexpr double kSums = 0.2, kFar = 1.04, kBytes = 4.0;
  constexpr double kFewRegisters = 4.0;
  if (laneIndex < 0 || extents[laneIndex] <= kFewRegisters * lanes)
    work.nestSums *= kSums;
  double panel = elements(summed) * double(schedule.registerLanes) * kBytes;
  if (panel > 0.5 * double(target.l1Bytes))
    work.nestSteps *= kFar;
}

/// Values that read states are computed once, and kept for the nest.
bool Counter::dependsOnState(Operation *op) {
  OpSet ops;
  gather(op->getResult(0), ops);
  return llvm::any_of(ops, [](Operation *inner) {
    return isa<ContractOp>(inner) ||
           llvm::any_of(inner->getOperands(), [](Value v) {
             return isa_and_nonnull<StateOp>(v.getDefiningOp());
           });
  });
}

void Counter::countOps(const OpSet &ops) {
  for (Operation *op : ops) {
    if (auto contract = dyn_cast<ContractOp>(op)) {
      countNest(contract.getValue(), sets.of(contract.getValue()));
      continue;
    }
    if (auto read = dyn_cast<ReadOp>(op)) {
      if (read->getNumOperands() > 1 &&
          llvm::any_of(read.getIndices(), [](Value index) {
            return index.getDefiningOp() &&
                   !isa<arith::ConstantOp>(index.getDefiningOp());
          }))
        work.gathered += elements(sets.of(read.getValue()));
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
    OperationCounts one = kindOf(*op);
    if (lagging.contains(op))
      std::swap(one.exponentials, one.lagging);
    if ((set & stream) || !stream)
      work.stream.add(one, elements(set) * laneWaste(set));
    else
      work.rows.add(one, elements(set));
  }
}

/// States are moved to the pivots of a tile once a tile, if there are several.
void Counter::countMoves(StateOp state) {
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
void Counter::countMerge(StateOp state, double states) {
  work.merges += states;
  bool isExtreme =
      state.getReducer() == Reducer::Max || state.getReducer() == Reducer::Min;
  if (isExtreme && isa<FloatType>(state.getResults()[0].getType()))
    work.extremes += states;
}

/// Of n elements in any order k (1 + ln(n / k)) enter a list of the k best.
void Counter::countSelection(StateOp state) {
  double length = elements(stream);
  uint64_t set = sets.of(state.getResults()[0]);
  double best = elements(set & ~rowSet), rows = elements(set & rowSet);
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
  double candidates =
      std::min(length, candidatesOf(best, lanes) + best * std::log(tiles));
  auto arrays = double(state.getNumResults());
  work.lists += rows;
  work.searched += rows * searched;
  work.compared += rows * (length - searched);
  work.placed += std::ceil(rows / lanes) * lanes * candidates *
                 stepsOfCandidate(form, best, arrays);
  if (!target.hasCompress)
    work.moved += rows * searched * arrays;
}

void Counter::countStates(unsigned pass, OpSet &ops) {
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

static double widthOf(Type type) {
  return type.isIntOrFloat() ? type.getIntOrFloatBitWidth() / 8.0 : 4.0;
}

/// Reads of later passes that an earlier one has made: what a row reads lies
/// in between.
void Counter::countAgain(const OpSet &first, const OpSet &later) {
  KernelWork::Reread again;
  for (Operation *op : later) {
    auto read = dyn_cast<ReadOp>(op);
    uint64_t set = read ? sets.of(read.getValue()) : 0;
    if (!(set & stream) || !first.contains(op))
      continue;
    double width = widthOf(read.getValue().getType());
    again.bytes += elements(set) * width;
    again.between += elements(set & ~rowSet) * width * rowsSwept;
  }
  if (again.bytes > 0.0)
    work.rereads.push_back(again);
}

double Counter::rowsOfSweep() {
  if (hasNest || tiledRow() < 0 || lastStream < 0 || stream != bit(lastStream))
    return 1.0;
  auto longest = longestSweptAlone(cascade, sets, lastStream, target);
  double each = std::ceil(elements(rowSet) / double(target.cores));
  return longest && extents[lastStream] > double(*longest)
             ? std::clamp(each, 1.0, rowsOfItem(tiledRow()))
             : 1.0;
}

/// Rows walked one after the other read what a row index does not move once
/// for each of its steps: all that the indices within it move lies in between.
void Counter::countRows(const OpSet &ops) {
  for (Operation *op : ops) {
    auto read = dyn_cast<ReadOp>(op);
    if (!read)
      continue;
    uint64_t set = sets.of(read.getValue());
    double width = widthOf(read.getValue().getType()), times = 1.0;
    for (unsigned i = extents.size(); i-- > 0;) {
      if (!(rowSet & bit(i)) || (set & bit(i)) || extents[i] <= 1.0)
        continue;
      uint64_t within = ~(bit(i) | (bit(i) - 1)) | ~rowSet;
      double between = elements(set & within) * width;
      double visits = std::ceil(extents[i] / rowsSwept);
      if (between * times > 0.0)
        work.rereads.push_back(
            {elements(set) * width * times * (visits - 1.0), between});
      times *= visits;
    }
  }
}

/// Registers at the end of a row: blocks have four.
double Counter::tailOf(unsigned index) {
  double block = 4.0 * lanes;
  return std::ceil(
      (extents[index] - std::floor(extents[index] / block) * block) / lanes);
}

/// Rows of an item where the schedule says so, else one.
double Counter::rowsOfItem(unsigned index) {
  auto it = schedule.tile.find(cascade.indexName(index).str());
  return it == schedule.tile.end() ? 1.0 : double(it->second);
}

double Counter::tileCount() {
  double count = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    count *= rowSet & bit(i) ? std::ceil(extents[i] / rowsOfItem(i)) : 1.0;
  return std::max(count, 1.0);
}

/// Row tiles times rows beside them times, of sums with a carried index, blocks
/// of columns: see `ItemsOfPanels`.
void Counter::countItems() {
  double others = static_cast<double>(schedule.segments);
  double rows = 1.0, tile = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i) {
    double size = rowsOfItem(i);
    if (stream ? int(i) == tiledRow() : size > 1.0 && int(i) != laneIndex)
      std::tie(rows, tile) = std::tie(extents[i], size);
    else if (rowSet & bit(i))
      others *= std::ceil(extents[i] / size);
  }
  uint64_t carried = 0, inner = cascade.indicesOfRole(CascadeOp::Inner);
  for (auto state : cascade.getBody().getOps<StateOp>())
    carried |= state.isOrdered() ? 0 : sets.of(state.getResult(0));
  carried &= cascade.indicesOfRole(CascadeOp::Carried);
  auto cores = static_cast<double>(target.cores);
  if (hasNest && !(inner && carried)) {
    double wanted = stream ? cores : cores * ItemsOfPanels::kOfCore;
    double least = double(inner && stream ? schedule.registerRows
                                          : ItemsOfPanels::kLeastRows);
    tile = std::min(tile, std::max(least, std::ceil(rows * others / wanted)));
  }
  constexpr double kRowsOfTile = 64.0; // as `Kernel::rowsOfTiles`
  if (schedule.panelBytes == 0 && schedule.segments <= 1)
    tile = std::min(
        tile, std::max(kRowsOfTile, std::ceil(rows * others / (4.0 * cores))));
  if (!hasNest && laneIndex == lastStream) // as `Kernel::rowTile`
    tile = std::min(tile, std::max(std::ceil(rows / 16.0), rowsSwept));
  work.items = std::max(others * std::ceil(rows / tile), 1.0);
  if (rows > tile)
    work.fullShare = rows / (std::ceil(rows / tile) * tile);
  if (!hasNest || inner || !carried)
    return;
  double blocks = 1.0, columns = 1.0;
  for (unsigned i = 0; i < extents.size(); ++i)
    if ((carried & bit(i)) && rowsOfItem(i) > 1.0) {
      blocks *= std::ceil(extents[i] / rowsOfItem(i));
      columns *= extents[i];
    }
  bool areMany = rows * columns >= double(ItemsOfPanels::kManyResults) * cores;
  double wanted =
      areMany ? cores : double(ItemsOfPanels::withBlocks(target.cores));
  blocks =
      std::clamp(std::ceil(wanted / work.items), 1.0, std::max(blocks, 1.0));
  // What rows have in common is computed again for each of them.
  work.visits *= blocks;
  work.tails *= blocks;
  work.stream.add(OperationCounts(work.stream), blocks - 1.0);
  work.items *= blocks;
}

KernelWork Counter::count() {
  chooseLanes();
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
  countOps(swept);
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
  countItems();
  return work;
}

KernelWork refold::countWork(CascadeOp cascade, const IndexSets &sets,
                             ArrayRef<double> extents, const Schedule &schedule,
                             const TargetFacts &target) {
  return Counter(cascade, sets, extents, schedule, target).count();
}
