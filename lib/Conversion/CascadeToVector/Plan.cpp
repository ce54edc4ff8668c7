// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the op to decisions: which index runs where, which nest computes what,
// which values cross between nests.
#include "Planner.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include <cmath>

using namespace mlir;
using namespace refold;
using namespace refold::walk;

/// Types that registers hold. Storage types appear in reads and casts only.
LogicalResult Planner::checkTypes() {
  int64_t bits = 32;
  for (Value operand : cascade->getOperands()) {
    if (isa<TensorType>(operand.getType()))
      return cascade.emitError("walk takes memrefs; bufferise first");
    if (auto type = dyn_cast<MemRefType>(operand.getType())) {
      SmallVector<int64_t> strides;
      int64_t offset = 0;
      if (failed(getStridesAndOffset(type, strides, offset)))
        return cascade.emitError("walk takes strided memrefs; found ") << type;
    }
  }
  WalkResult walked = cascade.getBody().walk([&](Operation *op) {
    for (Type type : op->getResultTypes()) {
      if (type.isIndex())
        continue;
      if (!type.isIntOrFloat() || type.isF80() || type.isF128() ||
          (isa<FloatType>(type) && type.getIntOrFloatBitWidth() < 16 &&
           !isa<Float8E4M3FNType, Float8E5M2Type>(type)) ||
          (type.isInteger() && type.getIntOrFloatBitWidth() > 64)) {
        op->emitOpError("has type ")
            << type << ", for which there are no registers [unsupported-op]";
        return WalkResult::interrupt();
      }
      if (type.isF64())
        bits = 64;
    }
    return WalkResult::advance();
  });
  plan->lanes = target.lanes(bits);
  return failure(walked.wasInterrupted());
}

/// Without a stream, or where the schedule says so, a row index takes the
/// lanes: it becomes carried, or `rowLane` where a pivot varies with it.
void Planner::chooseRoles() {
  plan->roles.assign(cascade.getRoles().begin(), cascade.getRoles().end());
  Set pivots = 0;
  cascade.getBody().walk([&](StateOp state) {
    for (Value pivot : state.getPivots())
      pivots |= plan->sets.of(pivot);
    if (state.isOrdered())
      pivots |= plan->sets.of(state.getResult(0));
  });
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (plan->roles[i] == CascadeOp::Row &&
        cascade.indexName(i) == plan->schedule.lanes) {
      plan->roles[i] = CascadeOp::Carried;
      plan->column = i;
      if (pivots & bit(i))
        plan->rowLane = i;
    }
  for (unsigned i = 0; i < cascade.numIndices(); ++i) {
    switch (plan->roles[i]) {
    case CascadeOp::Row:
      plan->rows |= bit(i);
      break;
    case CascadeOp::Stream:
      plan->streams |= bit(i);
      plan->stream = i;
      break;
    case CascadeOp::Inner:
      plan->inner |= bit(i);
      break;
    default:
      plan->carried |= bit(i);
    }
  }
}

/// Whole registers, and no more of them than there are elements.
void Planner::chooseStreamTile(int64_t most) {
  Plan &p = *plan;
  int64_t length = p.extent(p.stream);
  for (unsigned i : p.flat)
    length = ShapedType::isDynamic(length) || ShapedType::isDynamic(p.extent(i))
                 ? ShapedType::kDynamic
                 : length * p.extent(i);
  p.tileStream = llvm::alignTo(most, p.registerLanes);
  if (!ShapedType::isDynamic(length))
    p.tileStream = std::min<int64_t>(
        p.tileStream,
        llvm::alignTo(std::max<int64_t>(length, 1), p.registerLanes));
  p.hasTail =
      !p.flat.empty() || ShapedType::isDynamic(length) || length % p.tileStream;
}

void Planner::chooseTiles() {
  Plan &p = *plan;
  auto isRow = [&](unsigned i) { return p.rows & bit(i); };
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (isRow(i) && (p.row == kNone || tileOf(i, 0)) &&
        (p.row == kNone || !tileOf(p.row, 0)))
      p.row = i;
  if (p.row == kNone)
    p.tileRows = 1;
  else
    p.tileRows = tileOf(p.row, 1);
  if (p.row != kNone && !ShapedType::isDynamic(p.extent(p.row)))
    p.tileRows = std::min(p.tileRows, std::max<int64_t>(p.extent(p.row), 1));
  if (p.row != kNone)
    p.graph->setTile(p.row, p.tileRows);
  p.registerRows = std::max<int64_t>(p.schedule.registerRows, 1);
  p.registerLanes =
      llvm::alignTo(std::max<int64_t>(p.schedule.registerLanes, 1), p.lanes);
  p.unroll = std::max<int64_t>(p.schedule.unroll, 1);
  if (p.stream != kNone) {
    chooseStreamTile(tileOf(p.stream, kStreamTile));
    p.longestWhole = p.tileStream;
  }
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (int64_t t = tileOf(i, 0);
        t && (p.carried & bit(i)) &&
        (ShapedType::isDynamic(p.extent(i)) || t < p.extent(i))) {
      p.block = i;
      p.tileBlock = llvm::alignTo(t, p.registerLanes);
    }
}

void Planner::makeStates() {
  for (auto op : cascade.getBody().getOps<StateOp>()) {
    StatePlan s;
    s.op = op;
    s.number = plan->states.size();
    s.pass = plan->sets.passOf(op);
    s.set = plan->sets.of(op.getResult(0));
    plan->states.push_back(s);
  }
  plan->passes.resize(plan->sets.numPasses);
}

LogicalResult Planner::checkOrdered() {
  for (StatePlan &s : plan->states) {
    if (!s.op.isOrdered())
      continue;
    Set others = s.set & plan->carried & ~plan->sets.of(s.op.getRank()[0]) &
                 without(plan->rowLane);
    if (others)
      return s.op.emitOpError("has carried indices ")
             << cascade.showIndices(others)
             << " besides its rank; expected rows [unsupported-access]";
  }
  return success();
}

void Planner::makeTerms(unsigned pass) {
  Graph &graph = *plan->graph;
  Graph::Instance now(pass, Node::New), old(pass, Node::Old);
  for (StatePlan &s : plan->states) {
    if (s.pass != pass)
      continue;
    s.term = graph.instantiate(s.op.getValues()[0], now);
    for (Value v : s.op.getValues().drop_front())
      s.payloads.push_back(graph.instantiate(v, now));
    s.moved = s.op.getTransport().empty()
                  ? graph.version(s.op, Node::Old)
                  : graph.instantiateTransport(s.op, old, now);
  }
}

void Planner::makeWrites() {
  Graph::Instance final(plan->sets.numPasses, Node::Final);
  for (auto op : cascade.getBody().getOps<WriteOp>()) {
    WritePlan w;
    w.op = op;
    w.value = plan->graph->instantiate(op.getValue(), final);
    for (Value i : op.getIndices())
      w.set |= plan->sets.of(i);
    Set candidates = w.set & (plan->carried |
                              (plan->stream == kNone ? 0 : bit(plan->stream)));
    int best = kNone;
    for (unsigned i = 0; i < cascade.numIndices(); ++i)
      if ((candidates & bit(i)) &&
          (best == kNone || plan->along(w, best).kind != Along::Unit))
        best = i;
    w.lane = best;
    (w.set & plan->streams ? plan->sweepWrites : plan->finishWrites)
        .push_back(w);
  }
}

/// Its multiples are exact as long as they can be counted.
static bool isSmallInteger(Node *n) {
  if (n->kind != Node::Const)
    return false;
  auto value = dyn_cast<FloatAttr>(cast<arith::ConstantOp>(n->op).getValue());
  double number = value ? value.getValueAsDouble() : 0.5;
  return number == std::floor(number) && std::abs(number) <= 16;
}

/// Which states stay lane partials: those that nobody reads during the pass.
void Planner::chooseForms() {
  for (StatePlan &s : plan->states) {
    NodeSet read;
    for (StatePlan &o : plan->states)
      if (o.pass == s.pass) {
        collect(o.term, read);
        collect(o.moved, read);
        for (Node *n : o.payloads)
          collect(n, read);
      }
    bool isRead = read.contains(plan->graph->version(s.op, Node::New));
    for (StatePlan &o : plan->states)
      isRead |=
          &o != &s && llvm::is_contained(o.op.getWith(), s.op.getResult(0));
    Set lanesOfState = s.set & plan->carried & without(plan->rowLane);
    s.isCount = s.op.getReducer() == Reducer::Add && isa<FloatType>(s.type()) &&
                !lanesOfState && plan->rowLane == kNone &&
                plan->stream != kNone && isSmallInteger(s.term);
    if (s.op.isOrdered())
      s.form = StatePlan::Ordered;
    else if (s.isCount)
      s.form = StatePlan::Reduced;
    else if (lanesOfState) {
      s.form = StatePlan::Matrix;
      s.lane = plan->chooseLane(s.term, lanesOfState);
    } else if (isRead || !s.op.getWith().empty() || plan->stream == kNone ||
               plan->rowLane != kNone)
      s.form = StatePlan::Reduced;
    else
      s.form = StatePlan::Partial;
  }
}

/// Whether no operand of a maximum has a sign but -inf: terms are |x|, and the
/// old state is what it was.
static bool isOfMagnitudes(const StatePlan &s) {
  auto isLowest = [](Node *n) {
    auto op = n->kind == Node::Const ? dyn_cast<arith::ConstantOp>(n->op)
                                     : arith::ConstantOp();
    auto value = op ? dyn_cast<FloatAttr>(op.getValue()) : FloatAttr();
    return value && value.getValue().isInfinity() &&
           value.getValue().isNegative();
  };
  auto isMagnitude = [](Node *n) {
    return n->kind == Node::Elem && isa<math::AbsFOp>(n->op);
  };
  Node *term = s.term;
  if (term->kind == Node::Elem && isa<arith::SelectOp>(term->op) &&
      isLowest(term->in[2]))
    term = term->in[1];
  return isMagnitude(term) && s.moved->kind == Node::Old &&
         s.moved->state == int(s.number);
}

void Planner::chooseCombiners() {
  for (StatePlan &s : plan->states) {
    bool isFloat = isa<FloatType>(s.type());
    bool isBool = s.type().isInteger(1);
    switch (s.op.getReducer()) {
    case Reducer::Add:
      s.combine = isFloat ? Binary::AddF : Binary::AddI;
      break;
    case Reducer::Mul:
      s.combine = isFloat ? Binary::MulF : Binary::MulI;
      break;
    case Reducer::And:
      s.combine = Binary::AndI;
      break;
    case Reducer::Or:
      s.combine = Binary::OrI;
      break;
    case Reducer::Max:
      s.combine = isBool                        ? Binary::OrI
                  : !isFloat                    ? Binary::MaxSI
                  : mayDropNan(*plan, s.number) ? Binary::MaxF
                  : isOfMagnitudes(s)           ? Binary::MaxMagnitude
                                                : Binary::MaximumF;
      break;
    case Reducer::Min:
      s.combine = isBool                        ? Binary::AndI
                  : !isFloat                    ? Binary::MinSI
                  : mayDropNan(*plan, s.number) ? Binary::MinF
                                                : Binary::MinimumF;
      break;
    case Reducer::MaxNum:
    case Reducer::TopK:
      s.combine = isFloat ? Binary::MaxF : Binary::MaxSI;
      break;
    case Reducer::MinNum:
    case Reducer::BottomK:
      s.combine = isFloat ? Binary::MinF : Binary::MinSI;
      break;
    }
  }
}

/// Which lists are filled for all rows of a tile at once.
void Planner::chooseCandidates() {
  Plan &p = *plan;
  if (p.row == kNone || p.stream == kNone || p.rowLane != kNone ||
      p.schedule.segments > 1)
    return;
  for (StatePlan &s : p.states) {
    if (s.form != StatePlan::Ordered || !p.hasRow(s.set) || s.level > 0 ||
        !p.passes[s.pass].guards.empty())
      continue;
    unsigned rank = cast<BlockArgument>(s.op.getRank()[0]).getArgNumber();
    ListForm form = listFormOf(s.type(), p.extent(rank), p.tileRows, p.lanes);
    s.takesCandidates = form != ListForm::ByElement && p.hasStream(s.term->set);
    s.isSorted = form == ListForm::Sorted;
  }
}

bool Plan::mayJoin() const {
  return row != kNone && stream != kNone && rowLane == kNone && lanes > 1 &&
         tileRows % lanes == 0 && schedule.segments <= 1;
}

/// Does `n` read what all rows share of the passes, but as part of a number of
/// the row, which `keepNumbers` keeps?
static bool readsShared(const Plan &plan, Node *n, NodeSet &seen) {
  if (!seen.insert(n))
    return false;
  if (n->isState())
    return !plan.hasRow(n->set);
  bool isNumber =
      n->kind == Node::Elem && plan.hasRow(n->set) && !(n->set & ~plan.rows);
  return !isNumber && llvm::any_of(n->in, [&](Node *i) {
    return readsShared(plan, i, seen);
  });
}

/// The first pass of the next row counts anew where a sweep would read.
bool Plan::sweepReadsShared() const {
  NodeSet seen;
  return llvm::any_of(sweepWrites, [&](const WritePlan &w) {
    return readsShared(*this, w.value, seen);
  });
}

std::optional<int64_t> Plan::longestWrittenFirst() const {
  if (!hasShortRows() || row == kNone || schedule.segments > 1 ||
      !schedule.prefetch || sweepWrites.empty() || passes.empty() ||
      !passes[0].conditions.empty() || !passes[0].guards.empty() ||
      !sweepContractions.empty() || tileSwept != tileStream || turnsAny() ||
      sweepReadsShared())
    return std::nullopt;
  return refold::longestWrittenFirst(movedAlong(cascade, sets, stream), facts);
}

std::optional<int64_t> Plan::longestSweptAlone() const {
  if (!hasShortRows() || longestWrittenFirst())
    return std::nullopt;
  return refold::longestSweptAlone(movedAlong(cascade, sets, stream), facts);
}

void Planner::keepNumbersOfSweep() {
  NodeSet numbers;
  for (WritePlan &w : plan->sweepWrites)
    keepNumbers(w.value, numbers);
  plan->numbers.assign(numbers.begin(), numbers.end());
}

/// Nothing may be kept along a tile, whose arrays have its last stream only.
void Planner::chooseDeepTiles() {
  constexpr int64_t kElements = 512, kOfOpen = 16, kMost = 32;
  Plan &p = *plan;
  Set outer = p.streams & ~bit(p.stream);
  for (const PassPlan &pass : p.passes)
    if (pass.lazy ||
        llvm::any_of(pass.kept, [&](Node *n) { return n->set & p.streams; }))
      return;
  int64_t length = p.extent(p.stream);
  p.tileDeep = ShapedType::isDynamic(length)
                   ? kOfOpen
                   : std::clamp<int64_t>(
                         kElements / std::max<int64_t>(length, 1), 1, kMost);
  if (p.tileDeep > 1)
    p.deep = 63 - llvm::countl_zero(uint64_t(outer));
}

/// Sixteen rows level by level stay in the first cache where they are short.
/// Lists are filled for as many rows at once anyway.
void Planner::chooseJoined() {
  constexpr int64_t kShort = 256;
  Plan &p = *plan;
  if ((p.hasOnlyRows() && p.streams != bit(p.stream)) || p.hasColumns() ||
      p.longestWrittenFirst())
    keepNumbersOfSweep();
  p.joinsTiles = p.mayJoin() && haveRowsBetweenStreams() && !p.turnsAny();
  if (p.joinsTiles) {
    p.longestJoined = std::min(kShort, p.tileStream);
    for (StatePlan &s : p.states)
      if (s.form == StatePlan::Partial && p.hasRow(s.set))
        s.form = StatePlan::Reduced;
    return chooseDeepTiles();
  }
  if (!p.mayJoin() || !p.hasShortRows())
    return;
  bool hasLists = llvm::any_of(
      p.states, [](const StatePlan &s) { return s.takesCandidates; });
  // Where a sweep reads costly values again, these decide.
  bool sharesCosts = !p.reused.empty() || !p.likely.empty();
  if (sharesCosts && ShapedType::isDynamic(p.extent(p.stream)))
    return;
  // Arrays of results that are turned have so many places a row.
  p.longestJoined = hasLists ? p.tileSwept : std::min(kShort, p.tileSwept);
  keepNumbersOfSweep();
  NodeSet atFinish;
  for (WritePlan &w : p.finishWrites)
    if (w.set & ~p.rows)
      keepNumbers(w.value, atFinish);
  p.finishNumbers.assign(atFinish.begin(), atFinish.end());
  if (mayGroup())
    p.longestGrouped = p.tileSwept;
}

/// What a row costs by itself, behind the traversal, are chains of operations
/// that wait for each other.
bool Planner::mayGroup() {
  Plan &p = *plan;
  bool hasLists = llvm::any_of(
      p.states, [](const StatePlan &s) { return s.takesCandidates; });
  auto takesRowsApart = [&](const PassPlan &pass) {
    bool keepsRows =
        llvm::any_of(pass.kept, [&](Node *n) { return p.hasStream(n->set); });
    bool isOnce = pass.lazy && pass.steps.size() == 1 &&
                  pass.steps[0].firstLevel == pass.lazy->level &&
                  pass.steps[0].lastLevel == pass.lazy->level + 1;
    return pass.prelude.empty() && !keepsRows &&
           (isOnce || !pass.guards.empty());
  };
  return !hasLists && p.sweepWrites.empty() && p.finishNumbers.empty() &&
         p.finishContractions.empty() && !p.passes.empty() &&
         p.passes[0].lazy &&
         llvm::count_if(
             p.passes,
             [](const PassPlan &pass) { return pass.lazy.has_value(); }) == 1 &&
         llvm::all_of(p.passes, takesRowsApart);
}

FailureOr<std::unique_ptr<Plan>> Planner::run() {
  if (failed(checkTypes()))
    return failure();
  chooseRoles();
  chooseTiles();
  makeStates();
  for (unsigned p = 0; p < plan->passes.size(); ++p)
    makeTerms(p);
  makeWrites();
  if (failed(checkOrdered()))
    return failure();
  chooseForms();
  findKeys(*plan);
  findDots();
  for (unsigned p = 0; p < plan->passes.size(); ++p) {
    findPairs(p);
    orderSteps(p);
    keepOldAcrossSteps(p);
    findInPlace(p);
    if (!turnsRows())
      findConditions(*plan, p);
    findRowGuards(*plan, p);
  }
  chooseCandidates();
  chooseCombiners();
  findVanishing();
  for (unsigned p = 0; p < plan->passes.size(); ++p)
    findLazyPivots(p);
  for (unsigned p = 0; p < plan->passes.size(); ++p)
    findTrailingPivots(p);
  findFlat();
  lengthenTiles();
  for (bool sweep : {false, true}) {
    NodeSet all;
    for (WritePlan &w : sweep ? plan->sweepWrites : plan->finishWrites)
      collect(w.value, all);
    sortContractions(
        all, sweep ? plan->sweepContractions : plan->finishContractions, sweep);
  }
  findProduct();
  findWhole();
  findDotOfProduct();
  findPairsOfProduct();
  findPacks();
  dropDotsWithoutPanels();
  findOwnPanels();
  findTurned();
  findReused();
  chooseJoined();
  for (unsigned p = 0; p < plan->passes.size(); ++p)
    gatherExtremes(p);
  return std::move(plan);
}

FailureOr<std::unique_ptr<Plan>> walk::makePlan(CascadeOp cascade,
                                                const TargetFacts &target) {
  auto sets = IndexSets::infer(cascade);
  if (failed(sets))
    return failure();
  auto schedule = chooseSchedule(cascade, target);
  if (failed(schedule))
    return failure();
  return Planner(cascade, *schedule, *sets, target).run();
}
