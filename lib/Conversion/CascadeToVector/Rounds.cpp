// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Where panels of all outer rows together would be large, items run in rounds:
// the panels of some outer rows, then the items that read them, so that the
// shared workspace does not grow with a batch.
#include "Kernel.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// The row indices outside of an item, in the order of its number.
static SmallVector<unsigned> outerRowsOf(Plan &plan) {
  SmallVector<unsigned> rows;
  for (unsigned i = 0; i < plan.cascade.numIndices(); ++i)
    if (int(i) != plan.row && (plan.rows & bit(i)))
      rows.push_back(i);
  return rows;
}

/// By what the row index is divided in the subscript of an outer dimension;
/// none where another index is in it, or more is done to it.
static std::optional<int64_t>
divisorOf(const PackPlan &pack, const PackPlan::Outer &outer, unsigned row) {
  if (outer.index != kNone)
    return unsigned(outer.index) == row ? std::optional(outer.divisor)
                                        : std::nullopt;
  auto read = cast<ReadOp>(pack.read->op);
  AffineExpr e = read.getMap().getResult(outer.dim);
  int64_t divisor = 1;
  if (auto quotient = dyn_cast<AffineBinaryOpExpr>(e);
      quotient && quotient.getKind() == AffineExprKind::FloorDiv)
    if (auto by = dyn_cast<AffineConstantExpr>(quotient.getRHS())) {
      divisor = by.getValue();
      e = quotient.getLHS();
    }
  auto dim = dyn_cast<AffineDimExpr>(e);
  if (!dim || divisor < 1)
    return std::nullopt;
  Node *position = pack.read->in[dim.getPosition()];
  return position->kind == Node::Index && unsigned(position->index) == row
             ? std::optional(divisor)
             : std::nullopt;
}

static int64_t elementBytes(const PackPlan &pack, Node *value) {
  return pack.inPairs
             ? 4
             : llvm::divideCeil(value->type.getIntOrFloatBitWidth(), 8);
}

/// How many panels, of all lanes, lie behind each other for one place of the
/// outer rows.
Ix Kernel::panelsOf(PackPlan &pack) {
  Ix panels = to.ceilDiv(extents[pack.laneIndex], plan.registerLanes);
  if (pack.rowsWithout && plan.row != kNone)
    panels = to.mul(
        panels,
        to.min(1, to.div(rowsThatShare(pack.isReadInOrder),
                         to.add(rowsInPlace(pack.rowsWithout, pack.openSums),
                                1))));
  return panels;
}

/// Rows of which there have to be many for panels: all that share them or,
/// where few read in order, those of one core of two, however many there are:
/// bits follow from shapes. Sapphire Rapids, routing of 100, 128 and 256
/// tokens, 2048 by 128, two threads: 0.226, 0.25 and 0.41 ms by panels, so
/// 0.165, 0.195 and 0.40; one thread 0.305, 0.377 and 0.70, so 0.30, 0.38 and
/// 0.68.
Ix Kernel::rowsThatShare(bool isReadInOrder) {
  constexpr int64_t kCores = 2, kWholeTile = 64;
  Ix all = extents[plan.row];
  if (!isReadInOrder)
    return all;
  int64_t least = plan.sharesProductsOnly()
                      ? plan.registerRows
                      : std::min(plan.tileRows, kWholeTile);
  return to.min(all, to.max(to.ceilDiv(all, kCores), least));
}

/// `most`, and no more than the lengths of these sums allow.
Ix Kernel::rowsInPlace(int64_t most, ArrayRef<unsigned> openSums) {
  Ix rows(most);
  for (unsigned i : openSums) // as refold::rowsAlongSum has it
    rows = to.min(rows, to.max(kRowsInPlace,
                               to.div(to.floorTo(extents[i], plan.lanes), 2)));
  return rows;
}

Ix Kernel::outerOf(PackPlan &pack) {
  Ix count(1);
  for (PackPlan::Outer &outer : pack.outer)
    count = to.mul(count, outerCount(pack, outer));
  return count;
}

/// Whether all that is packed is known to be the same in every run: the runtime
/// keeps such panels, if they lie ready together.
static bool keepsPanels(Plan &plan) {
  return plan.cascade->hasAttr(kVaryingInputsAttr) &&
         llvm::none_of(plan.packs, [&](auto &entry) {
           return !entry.second.isOwn &&
                  isVarying(plan.cascade, entry.second.operand);
         });
}

/// Whether the outer places of every pack are those of the outer rows, in the
/// same order, each for some rows behind each other.
bool Kernel::mayHaveRounds() {
  if (plan.numPackPhases() == 0 || hasSegments() || plan.block != kNone ||
      keepsPanels(plan))
    return false;
  SmallVector<unsigned> outer = outerRowsOf(plan);
  return llvm::all_of(plan.packs, [&](auto &entry) {
    const PackPlan &pack = entry.second;
    if (pack.isOwn)
      return true;
    if (pack.outer.size() > outer.size())
      return false;
    for (auto [k, o] : llvm::enumerate(pack.outer)) {
      std::optional<int64_t> divisor = divisorOf(pack, o, outer[k]);
      if (!divisor || (*divisor > 1 && k + 1 < pack.outer.size()))
        return false;
    }
    return true;
  });
}

/// Items are numbered by outer rows, the row tiles of one behind each other, so
/// that a round is a range of them. It has as many outer rows as have their
/// panels in `panelBytes`, and at least what keeps the cores at work.
void Kernel::planRounds() {
  constexpr int64_t kItemsOfCore = 8;
  int64_t least = kItemsOfCore * std::max<int64_t>(plan.facts.cores, 1);
  isInRounds = Ix(0);
  rowsOfPanels.clear();
  if (!mayHaveRounds())
    return;
  SmallVector<unsigned> outer = outerRowsOf(plan);
  Ix all(1), unit(1), isEven(1);
  for (unsigned row : outer)
    all = to.mul(all, extents[row]);
  auto equal = [&](Ix a, Ix b) {
    Ix apart = to.max(to.sub(a, b), to.sub(b, a));
    return to.sub(1, to.min(1, apart));
  };
  for (auto &[node, pack] : plan.packs) {
    if (pack.isOwn)
      continue;
    Ix rows(1);
    for (auto [k, row] : llvm::enumerate(outer)) {
      if (k >= pack.outer.size()) {
        rows = to.mul(rows, extents[row]);
        continue;
      }
      PackPlan::Outer &o = pack.outer[k];
      int64_t divisor = *divisorOf(pack, o, row);
      rows = to.mul(rows, divisor);
      isEven = to.mul(
          isEven, equal(to.mul(outerCount(pack, o), divisor), extents[row]));
    }
    rowsOfPanels[node] = rows = to.max(rows, 1);
    unit = to.max(unit, rows);
  }
  Ix bytes(0);
  // In the order of packs: what is emitted must not follow addresses.
  for (auto &[node, pack] : plan.packs) {
    if (pack.isOwn)
      continue;
    Ix rows = rowsOfPanels.at(node);
    isEven = to.mul(isEven, equal(to.rem(unit, rows), 0));
    Ix elements = to.mul(to.mul(panelsOf(pack), packDepthOf(pack)),
                         plan.registerLanes * elementBytes(pack, node));
    bytes = to.add(bytes, to.mul(elements, to.div(unit, rows)));
  }
  Ix tiles =
      plan.row == kNone ? Ix(1) : to.ceilDiv(extents[plan.row], rowTile());
  Ix units = to.max(to.div(plan.schedule.panelBytes, to.max(bytes, 1)),
                    to.ceilDiv(least, to.max(to.mul(unit, tiles), 1)));
  // No more than there are, so that no product of sizes overflows.
  units = to.min(units, to.add(to.div(all, unit), 1));
  roundRows = to.mul(unit, to.max(units, 1));
  isInRounds = to.mul(isEven, to.min(1, to.max(0, to.sub(all, roundRows))));
}

/// Places of the outer rows whose panels are there at a time.
Ix Kernel::heldOf(Node *value, PackPlan &pack) {
  Ix all = outerOf(pack);
  if (isInRounds.is(0))
    return all;
  Ix round = to.div(roundRows, rowsOfPanels.at(value));
  return to.sub(all, to.mul(isInRounds, to.sub(all, round)));
}

/// Items of a packing phase in one round.
Ix Kernel::packItemsAtOnce(Node *value, PackPlan &pack) {
  return to.mul(panelsOf(pack), heldOf(value, pack));
}

/// Items of the walk in one round, of `all`.
Ix Kernel::mainItemsAtOnce(Ix all) {
  if (isInRounds.is(0))
    return all;
  Ix tiles =
      plan.row == kNone ? Ix(1) : to.ceilDiv(extents[plan.row], rowTile());
  return to.sub(all, to.mul(isInRounds, to.sub(all, to.mul(roundRows, tiles))));
}
