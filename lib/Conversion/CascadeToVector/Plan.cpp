// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// From the op to decisions: which index runs where, which nest computes what,
// which values cross between nests.
#include "Plan.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;
using namespace refold;
using namespace refold::walk;

//===----------------------------------------------------------------------===//
// Construction
//===----------------------------------------------------------------------===//

namespace {
class Planner {
public:
  Planner(CascadeOp cascade, Schedule schedule, IndexSets sets,
          const TargetFacts &target)
      : plan(std::make_unique<Plan>()), cascade(cascade), target(target) {
    plan->cascade = cascade;
    plan->schedule = std::move(schedule);
    plan->sets = std::move(sets);
    plan->graph = std::make_unique<Graph>(cascade, plan->sets);
  }
  FailureOr<std::unique_ptr<Plan>> run();

private:
  LogicalResult checkTypes();
  LogicalResult checkOrdered();
  void chooseRoles();
  void chooseTiles();
  void makeStates();
  void makeTerms(unsigned pass);
  void makeWrites();
  void chooseForms();
  void chooseCombiners();
  void orderSteps(unsigned pass);
  void gather(unsigned pass, NodeSet &all, NodeSet &contractions);
  bool needsRows(unsigned pass, unsigned level, bool hasRow, bool rowLanes);
  void addRowSteps(unsigned pass, unsigned level);
  void keepOldAcrossSteps(unsigned pass);
  void findPacks();
  void findReused();
  unsigned levelOf(Node *n, unsigned pass);
  void keepFor(Node *n, Set nest, NodeSet &kept);
  void keepForRows(Node *n, NodeSet &kept);
  bool readsState(Node *n);
  bool isFixed(Node *n);
  void sortContractions(NodeSet &all, SmallVectorImpl<Node *> &out, bool sweep);
  void considerPack(Node *root, int lane, bool isDirect);
  void considerContraction(Node *n);
  bool mayBeDirect(Node *contraction);
  std::optional<PackPlan> packOf(Node *read, unsigned lane);
  int64_t tileOf(unsigned index, int64_t otherwise) {
    auto it = plan->schedule.tile.find(cascade.indexName(index).str());
    return it == plan->schedule.tile.end() ? otherwise
                                           : std::max<int64_t>(it->second, 1);
  }
  Set without(int index) { return index == kNone ? ~Set(0) : ~bit(index); }

  std::unique_ptr<Plan> plan;
  CascadeOp cascade;
  const TargetFacts &target;
  DenseMap<Node *, unsigned> levels;
};
} // namespace

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
  });
  for (unsigned i = 0; i < cascade.numIndices(); ++i)
    if (plan->roles[i] == CascadeOp::Row &&
        cascade.indexName(i) == plan->schedule.lanes) {
      plan->roles[i] = CascadeOp::Carried;
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
  p.registerRows = std::max<int64_t>(p.schedule.registerRows, 1);
  p.registerLanes =
      llvm::alignTo(std::max<int64_t>(p.schedule.registerLanes, 1), p.lanes);
  p.unroll = std::max<int64_t>(p.schedule.unroll, 1);
  if (p.stream != kNone) {
    int64_t n = p.extent(p.stream);
    p.tileStream = llvm::alignTo(tileOf(p.stream, 256), p.registerLanes);
    if (!ShapedType::isDynamic(n))
      p.tileStream =
          std::min<int64_t>(p.tileStream, llvm::alignTo(std::max<int64_t>(n, 1),
                                                        p.registerLanes));
    p.hasTail = ShapedType::isDynamic(n) || n % p.tileStream;
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
    Set others = s.set & plan->carried & ~plan->sets.of(s.op.getRank()[0]);
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
                plan->stream != kNone && !(s.term->set & plan->streams);
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
      s.combine = Binary::MaxF;
      break;
    case Reducer::MinNum:
    case Reducer::BottomK:
      s.combine = Binary::MinF;
      break;
    }
  }
}

bool Planner::readsState(Node *n) {
  return n->kind == Node::Contract || n->isState() ||
         llvm::any_of(n->in, [&](Node *i) { return readsState(i); });
}

/// Reads nothing that changes during the walk of an item.
bool Planner::isFixed(Node *n) {
  return !n->isState() && !(n->set & plan->streams) &&
         llvm::all_of(n->in, [&](Node *i) { return isFixed(i); });
}

/// What a nest over indices `nest` (lanes and reduced included) would have to
/// compute again and again: the largest parts with row and stream indices only
/// that lack an index of the nest.
void Planner::keepFor(Node *n, Set nest, NodeSet &kept) {
  if (n->kind == Node::Old &&
      plan->states[n->state].form != StatePlan::Matrix) {
    kept.insert(n);
    return;
  }
  if (n->kind != Node::Elem)
    return;
  Set allowed = plan->rows | plan->streams |
                (plan->rowLane == kNone ? 0 : bit(plan->rowLane));
  NodeSet all;
  collect(n, all);
  bool readsMatrix = llvm::any_of(all, [&](Node *x) {
    return (x->kind == Node::Old || x->kind == Node::New) &&
           plan->states[x->state].form == StatePlan::Matrix;
  });
  if ((nest & ~n->set & ~plan->rows) && !(n->set & ~allowed) && !readsMatrix &&
      readsState(n)) {
    kept.insert(n);
    return;
  }
  for (Node *i : n->in)
    keepFor(i, nest, kept);
}

/// What the row steps would compute for every row though no row moves it (a
/// mask of positions, converted and scaled): the largest parts that are more
/// than a read.
void Planner::keepForRows(Node *n, NodeSet &kept) {
  if (n->kind != Node::Elem)
    return;
  NodeSet all;
  collect(n, all);
  auto reads = [](Node *x) { return x->kind == Node::Read; };
  if (!plan->hasRow(n->set) && plan->hasStream(n->set)) {
    if (isa<FloatType>(n->type) && !readsState(n) && llvm::any_of(all, reads))
      kept.insert(n);
    return;
  }
  for (Node *i : n->in)
    keepForRows(i, kept);
}

/// A value of level k needs row states of levels below k only.
unsigned Planner::levelOf(Node *n, unsigned pass) {
  if (auto it = levels.find(n); it != levels.end())
    return it->second;
  unsigned level = 0;
  if (n->kind == Node::New) {
    StatePlan &s = plan->states[n->state];
    level = levelOf(s.term, pass);
    for (Node *p : s.payloads)
      level = std::max(level, levelOf(p, pass));
    if (s.moved->kind != Node::Old)
      level = std::max(level, levelOf(s.moved, pass));
    s.level = level;
    ++level;
  } else {
    for (Node *i : n->in)
      level = std::max(level, levelOf(i, pass));
  }
  n->level = level;
  return levels[n] = level;
}

/// All nodes that the states of a pass read; its contractions and kept values.
void Planner::gather(unsigned pass, NodeSet &all, NodeSet &contractions) {
  NodeSet kept;
  for (StatePlan &s : plan->states) {
    if (s.pass != pass)
      continue;
    (void)levelOf(plan->graph->version(s.op, Node::New), pass);
    if (s.form == StatePlan::Matrix)
      for (Node *root : {s.term, s.moved})
        keepFor(root, bit(s.lane), kept);
    if (s.form != StatePlan::Matrix && plan->hasRow(s.set) &&
        plan->tileRows > 1 && plan->rowLane == kNone)
      keepForRows(s.term, kept);
    collect(s.term, all);
    collect(s.moved, all);
    for (Node *n : s.payloads)
      collect(n, all);
  }
  for (Node *n : all) {
    if (n->kind != Node::Contract)
      continue;
    keepFor(n->in[0], n->over, kept);
    if (!isFixed(n))
      contractions.insert(n);
    else if (!llvm::is_contained(plan->prologue, n))
      plan->prologue.push_back(n);
  }
  plan->passes[pass].kept.assign(kept.begin(), kept.end());
}

/// Whether a row step has something to do on a level.
bool Planner::needsRows(unsigned pass, unsigned level, bool hasRow,
                        bool rowLanes) {
  auto fits = [&](Set set) {
    return plan->hasRow(set) == hasRow &&
           (plan->rowLane != kNone && (set & bit(plan->rowLane))) == rowLanes;
  };
  for (StatePlan &s : plan->states)
    if (s.pass == pass && s.form != StatePlan::Matrix && s.level == level &&
        fits(s.set))
      return true;
  return llvm::any_of(plan->passes[pass].kept, [&](Node *n) {
    return levelOf(n, pass) == level && fits(n->set);
  });
}

/// Levels that follow each other without a contraction between are one step, so
/// that a row stays in the first cache.
void Planner::addRowSteps(unsigned pass, unsigned level) {
  PassPlan &p = plan->passes[pass];
  for (bool hasRow : {false, true})
    for (bool rowLanes : {false, true}) {
      if (!needsRows(pass, level, hasRow, rowLanes))
        continue;
      Step *last = p.steps.empty() ? nullptr : &p.steps.back();
      if (last && last->kind == Step::Rows && last->hasRow == hasRow &&
          last->rowLanes == rowLanes) {
        last->lastLevel = level;
        continue;
      }
      Step step;
      step.kind = Step::Rows;
      step.hasRow = hasRow;
      step.rowLanes = rowLanes;
      step.firstLevel = step.lastLevel = level;
      p.steps.push_back(step);
    }
}

void Planner::orderSteps(unsigned pass) {
  PassPlan &p = plan->passes[pass];
  levels.clear();
  NodeSet all, contractions;
  gather(pass, all, contractions);
  unsigned numLevels = 1;
  for (Node *n : all)
    numLevels = std::max(numLevels, levelOf(n, pass) + 1);
  for (unsigned level = 0; level < numLevels; ++level) {
    for (Node *n : contractions)
      if (levelOf(n, pass) == level)
        p.steps.push_back({Step::Contraction, n});
    addRowSteps(pass, level);
  }
  // Backwards: a transport reads the old value of earlier states.
  for (StatePlan &s : llvm::reverse(plan->states)) {
    if (s.pass != pass || s.form != StatePlan::Matrix)
      continue;
    Step step;
    step.kind = Step::MatrixState;
    step.state = s.number;
    p.steps.push_back(step);
  }
}

/// A row step overwrites its states: what a later one reads of the old values
/// is kept.
void Planner::keepOldAcrossSteps(unsigned pass) {
  PassPlan &p = plan->passes[pass];
  auto stepOf = [&](Set set, unsigned level) -> const Step * {
    for (Step &step : p.steps) {
      bool hasLanes = plan->rowLane != kNone && (set & bit(plan->rowLane));
      if (step.kind == Step::Rows && step.hasRow == plan->hasRow(set) &&
          step.rowLanes == hasLanes && level >= step.firstLevel &&
          level <= step.lastLevel)
        return &step;
    }
    return nullptr;
  };
  NodeSet kept;
  auto visit = [&](Node *root, const Step *step) {
    NodeSet all;
    collect(root, all);
    for (Node *n : all)
      if (n->kind == Node::Old &&
          plan->states[n->state].form != StatePlan::Matrix &&
          stepOf(n->set, plan->states[n->state].level) != step)
        kept.insert(n);
  };
  for (StatePlan &s : plan->states)
    if (s.pass == pass && s.form != StatePlan::Matrix)
      visit(s.moved, stepOf(s.set, s.level));
  for (Node *n : p.kept)
    if (n->kind != Node::Old)
      visit(n, stepOf(n->set, n->level));
  for (Node *n : kept)
    if (!llvm::is_contained(p.kept, n))
      p.kept.push_back(n);
}

/// Contractions that writes need, operands first; those of the prologue are
/// done.
void Planner::sortContractions(NodeSet &all, SmallVectorImpl<Node *> &out,
                               bool sweep) {
  for (Node *n : all) {
    if (n->kind != Node::Contract || llvm::is_contained(plan->prologue, n) ||
        llvm::is_contained(out, n))
      continue;
    if (isFixed(n))
      plan->prologue.push_back(n);
    else
      out.push_back(n);
  }
}

/// Adds what rows have in the subscript `expr` of dimension `dim`, which the
/// lane or the reduced index moves as well; fails if it is no sum of such
/// parts.
static LogicalResult addRowParts(Node *read, AffineExpr expr, unsigned dim,
                                 int64_t factor, Set rows, PackPlan &pack) {
  auto rowIndex = [&](AffineExpr e) -> int {
    auto d = dyn_cast<AffineDimExpr>(e);
    Node *n = d ? read->in[d.getPosition()] : nullptr;
    return n && (rows & bit(n->index)) ? int(n->index) : kNone;
  };
  if (auto constant = dyn_cast<AffineConstantExpr>(expr)) {
    pack.constants.push_back({dim, factor * constant.getValue()});
    return success();
  }
  if (isa<AffineDimExpr>(expr)) {
    if (int index = rowIndex(expr); index != kNone)
      pack.outer.push_back({dim, index, 1, factor});
    return success();
  }
  auto binary = dyn_cast<AffineBinaryOpExpr>(expr);
  auto right = binary ? dyn_cast<AffineConstantExpr>(binary.getRHS())
                      : AffineConstantExpr();
  if (binary && expr.getKind() == AffineExprKind::Add)
    return success(
        succeeded(
            addRowParts(read, binary.getLHS(), dim, factor, rows, pack)) &&
        succeeded(addRowParts(read, binary.getRHS(), dim, factor, rows, pack)));
  if (right && expr.getKind() == AffineExprKind::Mul)
    return addRowParts(read, binary.getLHS(), dim, factor * right.getValue(),
                       rows, pack);
  if (right && expr.getKind() == AffineExprKind::FloorDiv &&
      right.getValue() > 0)
    if (int index = rowIndex(binary.getLHS()); index != kNone) {
      pack.outer.push_back({dim, index, right.getValue(), factor});
      return success();
    }
  return failure();
}

/// Panels for reads of a nest that are strided along the lanes, or that the
/// schedule names, if nothing but the lane's index and one more varies inside
/// an item.
std::optional<PackPlan> Planner::packOf(Node *read, unsigned lane) {
  auto op = cast<ReadOp>(read->op);
  PackPlan pack;
  pack.operand =
      cast<BlockArgument>(op.getSource()).getArgNumber() - cascade.numIndices();
  pack.laneIndex = lane;
  pack.lane = plan->along(read, lane);
  bool isNamed = llvm::is_contained(
      plan->schedule.pack,
      cast<StringAttr>(cascade.getArgNames()[pack.operand]).getValue());
  if (plan->hasRow(read->set) ||
      !(pack.lane.kind == Along::Unit ? isNamed
                                      : pack.lane.kind == Along::Strided) ||
      llvm::any_of(read->in, [](Node *n) { return n->kind != Node::Index; }))
    return std::nullopt;
  Set others = read->set & ~plan->rows & ~bit(lane);
  if (llvm::popcount(others) > 1)
    return std::nullopt;
  if (others) {
    pack.reducedIndex = llvm::countr_zero(others);
    pack.reduced = plan->along(read, pack.reducedIndex);
    if (pack.reduced.kind == Along::Computed)
      return std::nullopt;
  }
  for (auto [k, expr] : llvm::enumerate(op.getMap().getResults())) {
    Set used = 0;
    for (auto [d, in] : llvm::enumerate(read->in))
      if (expr.isFunctionOfDim(d))
        used |= in->set;
    if (!(used & ~plan->rows))
      pack.outer.push_back({unsigned(k), kNone});
    else if (failed(addRowParts(read, expr, k, 1, plan->rows, pack)))
      return std::nullopt;
  }
  return pack;
}

void Planner::considerPack(Node *root, int lane, bool isDirect) {
  if (lane == kNone)
    return;
  NodeSet all;
  collect(root, all);
  for (Node *n : all) {
    if (n->kind != Node::Read || !n->has(lane))
      continue;
    if (!plan->packs.count(n))
      if (auto pack = packOf(n, lane))
        plan->packs[n] = *pack;
    if (auto it = plan->packs.find(n); it != plan->packs.end())
      it->second.mayBeSkipped &= isDirect;
  }
}

/// The number of rows is open, and all that moves with the summed index is
/// dense along it.
bool Planner::mayBeDirect(Node *contraction) {
  if (plan->row == kNone || !ShapedType::isDynamic(plan->extent(plan->row)) ||
      llvm::popcount(contraction->over) != 1 ||
      plan->laneOf(contraction) == kNone)
    return false;
  unsigned index = llvm::countr_zero(contraction->over);
  NodeSet all;
  collect(contraction->in[0], all);
  return llvm::all_of(all, [&](Node *n) {
    return n->kind != Node::Read || !n->has(index) ||
           plan->along(n, index).kind == Along::Unit;
  });
}

void Planner::considerContraction(Node *n) {
  bool isDirect = mayBeDirect(n);
  if (isDirect)
    plan->direct.insert(n);
  considerPack(n->in[0], plan->laneOf(n), isDirect);
}

void Planner::findPacks() {
  for (PassPlan &p : plan->passes)
    for (Step &step : p.steps)
      if (step.kind == Step::Contraction)
        considerContraction(step.contraction);
  for (auto *list :
       {&plan->prologue, &plan->finishContractions, &plan->sweepContractions})
    for (Node *n : *list)
      considerContraction(n);
  for (StatePlan &s : plan->states)
    if (s.form == StatePlan::Matrix)
      considerPack(s.term, s.lane, /*isDirect=*/false);
}

bool Plan::hasShortRows() const {
  auto isRows = [](const Step &step) {
    return step.kind == Step::Rows && !step.rowLanes;
  };
  if (passes.empty() || rowLane != kNone || block != kNone || stream == kNone ||
      streams != bit(stream) || !sweepContractions.empty())
    return false;
  for (const StatePlan &s : states)
    if (s.form != StatePlan::Reduced && s.form != StatePlan::Partial)
      return false;
  return llvm::all_of(passes, [&](const PassPlan &p) {
    return p.conditions.empty() && llvm::all_of(p.steps, isRows);
  });
}

/// Whether `final` is `now` with the states of the last pass complete.
static bool isSameValue(Node *final, Node *now) {
  if (final == now)
    return true;
  if (final->kind == Node::Final && now->kind == Node::New)
    return final->state == now->state && final->result == now->result;
  return final->kind == Node::Elem && now->kind == Node::Elem &&
         final->op == now->op && final->result == now->result &&
         final->in.size() == now->in.size() &&
         llvm::all_of_zip(final->in, now->in, isSameValue);
}

static bool isCostly(Node *n) {
  return n->kind == Node::Elem &&
         isa<math::ExpOp, math::Exp2Op, math::ExpM1Op, math::LogOp,
             math::Log1pOp, math::Log2Op, math::TanhOp, math::ErfOp,
             math::PowFOp, math::SinOp, math::CosOp>(n->op);
}

void Planner::findReused() {
  if (!plan->hasShortRows())
    return;
  unsigned last = plan->passes.size() - 1;
  NodeSet terms, values;
  for (StatePlan &s : plan->states)
    if (s.pass == last)
      collect(s.term, terms);
  for (WritePlan &w : plan->sweepWrites)
    collect(w.value, values);
  for (Node *value : values)
    for (Node *term : terms)
      if (isCostly(value) && plan->hasStream(value->set) &&
          isSameValue(value, term) && !plan->reused.count(value))
        plan->reused[value] = term;
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
  chooseCombiners();
  for (unsigned p = 0; p < plan->passes.size(); ++p) {
    orderSteps(p);
    keepOldAcrossSteps(p);
    findConditions(*plan, p);
  }
  for (bool sweep : {false, true}) {
    NodeSet all;
    for (WritePlan &w : sweep ? plan->sweepWrites : plan->finishWrites)
      collect(w.value, all);
    sortContractions(
        all, sweep ? plan->sweepContractions : plan->finishContractions, sweep);
  }
  findPacks();
  findReused();
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
