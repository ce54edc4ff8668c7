// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Which tensors exist in memory, and which formulas form one kernel.
//
// A set of materialised tensors decides everything: each is the output of a
// kernel or a product, and all else dissolves into their formulas. The set
// starts with the results and what products read, and grows wherever a formula
// meets an obstacle, until every formula stands.
#include "refold/Analysis/Kernels.h"

#include "CommonIndices.h"
#include "KernelPlans.h"
#include "Ties.h"

#include "refold/Dialect/Refold/IR/Refold.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;
using namespace refold;
using algebra::Expr;
using algebra::IndexRole;
using algebra::IndexSet;

static IndexSet bit(unsigned i) { return IndexSet(1) << i; }

/// Ops that move tensors as they are; they read and write memory.
static bool isCopy(Operation *op) {
  return isa<tensor::ConcatOp, tensor::PadOp, tensor::InsertSliceOp>(op);
}

bool refold::isView(Operation *op) {
  return isa_and_nonnull<tensor::ExpandShapeOp, tensor::CollapseShapeOp,
                         tensor::ExtractSliceOp, tensor::CastOp>(op);
}

Value refold::viewRoot(Value tensor) {
  while (isView(tensor.getDefiningOp()))
    tensor = tensor.getDefiningOp()->getOperand(0);
  return tensor;
}

bool KernelPlan::isCascade() const {
  auto readsStage = [](Expr e) { return e.uses(algebra::Role::Stage); };
  return llvm::any_of(formula->cascade.stages,
                      [&](const algebra::Stage &stage) {
                        return readsStage(stage.term) ||
                               llvm::any_of(stage.payloads, readsStage);
                      });
}

namespace {

/// How the dimensions of an output map to indices of a kernel being built.
using DimIndices = SmallVector<std::optional<unsigned>, 4>;

class Planner {
public:
  Planner(func::FuncOp function, SizeTable &sizes, const PlanOptions &options)
      : function(function), sizes(sizes), options(options) {}

  FailureOr<ProgramPlan> run();

private:
  bool materialise(Value tensor);
  void boundFormulas();
  void share(Value tensor);
  FormulaPolicy policy() const;
  auto seeingThrough(bool needsStream) const
      -> decltype(FormulaPolicy::seesThrough);
  bool planProducts();
  bool planOperand(linalg::GenericOp product, OpOperand &operand,
                   ProductPlan &plan);
  bool planPlainOperand(linalg::GenericOp product, OpOperand &operand,
                        ProductPlan &plan);
  /// A formula of `tensor` alone, its dimensions as fresh row indices.
  struct Target;
  void trial(Target &target);
  std::shared_ptr<Formula> trial(Value tensor, DimIndices &dims,
                                 bool needsStream);
  bool gather();
  bool group();
  bool buildKernel(ArrayRef<unsigned> members, KernelPlan &plan);
  bool shareExpensive();
  bool separateRows(ArrayRef<unsigned> members, const KernelPlan &kernel);
  bool isCyclic(ArrayRef<unsigned> members, ArrayRef<unsigned> readers);
  /// Reacts to a formula that could not be built. True: the set grew, try
  /// again.
  bool recover(const std::optional<Refusal> &refusal);

  /// One tensor to be written by a kernel, with its formula on its own.
  struct Target {
    Value tensor;
    std::shared_ptr<Formula> formula;
    DimIndices dims;
    bool needsStream = false; ///< see `trial`
  };

  func::FuncOp function;
  SizeTable &sizes;
  PlanOptions options;
  /// Tensors that formulas read from memory. A result of the program is written
  /// too, but formulas see through it as long as nothing asks for its memory:
  /// so that a mean that is also a result stays in one kernel with its
  /// variance.
  llvm::SetVector<Value> materialised;
  llvm::SetVector<Value> results;
  Shared shared; ///< of what is materialised
  /// Reductions in memory that an output keeps as stages all the same: others
  /// of its group read them, once it is complete.
  DenseMap<Value, DenseSet<Value>> kept;
  size_t numReleased = 0; ///< of these, read from memory after all
  Ties ties;
  std::vector<Target> targets;
  std::vector<SmallVector<unsigned>> groups;
  ProgramPlan plan;
  std::optional<Refusal> fatal;
};

} // namespace

/// Adds the tensor behind views. True if that is new.
bool Planner::materialise(Value tensor) {
  tensor = viewRoot(tensor);
  if (isa<BlockArgument>(tensor))
    return false;
  bool wasShared = shared.erase(tensor);
  return materialised.insert(tensor) || wasShared;
}

/// Adds a tensor that only some readers need in memory.
void Planner::share(Value tensor) {
  tensor = viewRoot(tensor);
  if (!isa<BlockArgument>(tensor) && !materialised.contains(tensor)) {
    shared.add(tensor, sizes, materialised);
    materialised.insert(tensor);
  }
}

auto Planner::seeingThrough(bool needsStream) const
    -> decltype(FormulaPolicy::seesThrough) {
  return [this, needsStream](Value v, const Subscripts &at, const Formula &f) {
    return !(needsStream && f.streams.empty()) && shared.seesThrough(v, at, f);
  };
}

FormulaPolicy Planner::policy() const {
  FormulaPolicy p;
  p.isMaterialised = [this](Value v) { return materialised.contains(v); };
  p.mayContract = [this](Operation *op) { return ties.mayContract(op); };
  p.seesThrough = seeingThrough(/*needsStream=*/false);
  p.widerStream = [this](linalg::GenericOp op) { return ties.widerStream(op); };
  return p;
}

bool Planner::recover(const std::optional<Refusal> &refusal) {
  if (refusal && refusal->materialise && materialise(refusal->materialise)) {
    plan.notes.push_back(*refusal);
    return true;
  }
  fatal = refusal;
  return false;
}

//===----------------------------------------------------------------------===//
// Products
//===----------------------------------------------------------------------===//

/// An operand is read in place if its formula is one read at plain indices;
/// otherwise it is computed by a kernel first. False: the set grew.
bool Planner::planOperand(linalg::GenericOp product, OpOperand &operand,
                          ProductPlan &productPlan) {
  AffineMap map = product.getMatchingIndexingMap(&operand);
  if (map.isProjectedPermutation() &&
      planPlainOperand(product, operand, productPlan))
    return true;
  // A view of what is in memory is as good; a formula is not.
  Value root = viewRoot(operand.get());
  bool inMemory = isa<BlockArgument>(root) || materialised.contains(root);
  if (inMemory || isa_and_nonnull<arith::ConstantOp>(root.getDefiningOp())) {
    productPlan.operands.push_back({operand.get(), map});
    return true;
  }
  materialise(operand.get());
  return false;
}

/// The operand's formula is one read at plain indices.
bool Planner::planPlainOperand(linalg::GenericOp product, OpOperand &operand,
                               ProductPlan &productPlan) {
  Formula formula(sizes, policy());
  Subscripts loops;
  for (unsigned d = 0; d < product.getNumLoops(); ++d)
    loops.push_back(formula.index(
        formula.addIndex("i", IndexRole::Row, formula.sizeOfLoop(product, d))));
  Subscripts at;
  AffineMap map = product.getMatchingIndexingMap(&operand);
  for (AffineExpr e : map.getResults())
    at.push_back(loops[cast<AffineDimExpr>(e).getPosition()]);
  Expr value = formula.element(operand.get(), at);
  const Read *read = nullptr;
  // A formula does not show what widens a number: the product reads numbers of
  // its own type.
  for (const Read &r : formula.reads)
    if (value && r.symbol == value && r.operand &&
        getElementTypeOrSelf(r.operand) == getElementTypeOrSelf(operand.get()))
      read = &r;
  if (read) {
    SmallVector<AffineExpr> exprs;
    for (const auto &[d, e] : llvm::enumerate(read->subscripts)) {
      // Of a slice the product has the size, of what it is cut from it has not.
      std::optional<unsigned> index = formula.atoms.asIndex(e);
      if (index &&
          sizes.of(read->operand, d) == formula.sizeOfLoop(product, *index))
        exprs.push_back(getAffineDimExpr(*index, product.getContext()));
    }
    if (exprs.size() == read->subscripts.size()) {
      productPlan.operands.push_back(
          {read->operand, AffineMap::get(product.getNumLoops(), 0, exprs,
                                         product.getContext())});
      return true;
    }
  }
  return false;
}

bool Planner::planProducts() {
  bool stable = true;
  plan.products.clear();
  for (linalg::GenericOp product : ties.products()) {
    stable &= !materialise(product.getResult(0));
    ProductPlan p{product, {}};
    for (OpOperand *operand : product.getDpsInputOperands())
      stable &= planOperand(product, *operand, p);
    plan.products.push_back(std::move(p));
  }
  // Operands of contractions inside kernels are read again and again: a formula
  // there would be computed once for every pair of elements.
  for (linalg::GenericOp inner : ties.contractionsInside()) {
    if (!isProduct(inner))
      continue;
    for (OpOperand *operand : inner.getDpsInputOperands()) {
      if (ties.dependsOnReduction(operand->get()))
        continue;
      ProductPlan ignored;
      stable &= planOperand(inner, *operand, ignored);
    }
  }
  return stable;
}

//===----------------------------------------------------------------------===//
// Targets and groups
//===----------------------------------------------------------------------===//

static std::string indexName(SizeTable &sizes, const Size &size,
                             StringRef otherwise = "i") {
  StringRef name = sizes.nameOf(size);
  return (name.empty() ? otherwise : name).str();
}

/// As long as nothing has bound the stream, a shared tensor may be either. If
/// what it is made of gets in the way of the stream, it is read.
void Planner::trial(Target &target) {
  target.formula = trial(target.tensor, target.dims, /*needsStream=*/false);
  if (!target.formula->refusal || !shared.size())
    return;
  DimIndices dims;
  std::shared_ptr<Formula> second =
      trial(target.tensor, dims, /*needsStream=*/true);
  if (second->refusal)
    return;
  target.formula = second;
  target.dims = dims;
  target.needsStream = true;
}

std::shared_ptr<Formula> Planner::trial(Value tensor, DimIndices &dims,
                                        bool needsStream) {
  // The tensor itself is in the set, but here its own formula is asked for.
  FormulaPolicy p = policy();
  p.isMaterialised = [this, tensor](Value v) {
    auto own = kept.find(tensor);
    return v != tensor && materialised.contains(v) &&
           !(own != kept.end() && own->second.contains(v));
  };
  p.seesThrough = seeingThrough(needsStream);
  auto formula = std::make_shared<Formula>(sizes, p);
  Subscripts at;
  for (int64_t d = 0, e = cast<ShapedType>(tensor.getType()).getRank(); d < e;
       ++d) {
    Size size = sizes.of(tensor, d);
    if (size.isStatic(1)) {
      at.push_back(IndexExpr(0));
      dims.push_back(std::nullopt);
      continue;
    }
    unsigned number =
        formula->addIndex(indexName(sizes, size), IndexRole::Row, size);
    dims.push_back(number);
    at.push_back(formula->index(number));
  }
  formula->element(tensor, at);
  return formula;
}

bool Planner::gather() {
  targets.clear();
  llvm::SetVector<Value> written(results);
  written.insert(materialised.begin(), materialised.end());
  for (Value tensor : written) {
    Operation *op = tensor.getDefiningOp();
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (isa<arith::ConstantOp>(op) || isCopy(op) ||
        (generic && ties.isLibraryProduct(generic)))
      continue;
    Target target{tensor, nullptr, {}};
    trial(target);
    if (target.formula->refusal) {
      recover(target.formula->refusal);
      return false;
    }
    targets.push_back(std::move(target));
  }
  return true;
}

/// Outputs that share a reduction are one kernel.
bool Planner::group() {
  llvm::EquivalenceClasses<unsigned> classes;
  DenseMap<Operation *, unsigned> firstUser;
  for (auto [i, target] : llvm::enumerate(targets)) {
    classes.insert(i);
    auto meet = [&, i = i](Operation *op) {
      auto [it, fresh] = firstUser.try_emplace(op, i);
      if (!fresh)
        classes.unionSets(it->second, i);
    };
    for (const StageUse &use : target.formula->stageUses)
      meet(use.op);
    for (const StageUse &use : target.formula->contractionUses)
      meet(use.op);
  }
  groups.clear();
  DenseMap<unsigned, unsigned> groupOf; // by leader, which is not the first
  for (unsigned i = 0; i < targets.size(); ++i) {
    auto [it, fresh] =
        groupOf.try_emplace(classes.getLeaderValue(i), groups.size());
    if (fresh)
      groups.emplace_back();
    groups[it->second].push_back(i);
  }
  for (ArrayRef<unsigned> members : groups) {
    if (members.size() == 1 || !isCyclic(members, members))
      continue;
    // A result of the program that was seen through so far is one of them.
    DenseSet<Value> late;
    bool grew = false;
    for (unsigned m : members) {
      bool isFirst = options.fuse && !isCyclic(members, m);
      for (const StageUse &use : targets[m].formula->stageUses) {
        Value reduced = use.op->getResult(0);
        if (materialise(reduced)) {
          grew = true;
          late.insert(reduced);
        }
        if (isFirst && late.contains(reduced))
          kept[targets[m].tensor].insert(reduced);
      }
      for (const StageUse &use : targets[m].formula->contractionUses)
        grew |= materialise(use.op->getResult(0));
    }
    if (grew)
      return false;
  }
  return true;
}

/// Whether an output of the group is needed, through something outside it, by
/// one of `readers`, which are outputs of it as well.
bool Planner::isCyclic(ArrayRef<unsigned> members, ArrayRef<unsigned> readers) {
  DenseSet<Value> own;
  Operation *first = targets[members.front()].tensor.getDefiningOp();
  for (unsigned m : members) {
    own.insert(targets[m].tensor);
    Operation *op = targets[m].tensor.getDefiningOp();
    first = op->isBeforeInBlock(first) ? op : first;
  }
  DenseSet<Value> seen;
  SmallVector<Value> work;
  for (unsigned m : readers)
    for (const Read &read : targets[m].formula->reads)
      if (read.operand)
        work.push_back(read.operand);
  while (!work.empty()) {
    Value v = work.pop_back_val();
    if (own.contains(v))
      return true;
    // Nothing that stands before all of them is made of one.
    if (!seen.insert(v).second || !v.getDefiningOp() ||
        v.getDefiningOp()->isBeforeInBlock(first))
      continue;
    // What is not in memory dissolves into whoever reads it; its producers are
    // still needed first.
    for (Value operand : v.getDefiningOp()->getOperands())
      work.push_back(operand);
  }
  return false;
}

//===----------------------------------------------------------------------===//
// One kernel
//===----------------------------------------------------------------------===//

bool Planner::buildKernel(ArrayRef<unsigned> members, KernelPlan &kernel) {
  Formula &base = *targets[members[0]].formula;
  FormulaPolicy p = policy();
  p.isMaterialised = [this, members](Value v) {
    return materialised.contains(v) && llvm::none_of(members, [&](unsigned m) {
             return targets[m].tensor == v;
           });
  };
  p.seesThrough = seeingThrough(llvm::any_of(
      members, [this](unsigned m) { return targets[m].needsStream; }));
  auto formula = std::make_shared<Formula>(sizes, p);
  IndexSet bound = 0; // indices of the first member's own that a stage has
  for (const StageUse &use : base.stageUses)
    for (const IndexExpr &e : use.subscripts)
      bound |= base.atoms.indicesOf(e);
  SmallVector<unsigned> streams;
  for (unsigned s : base.streams)
    streams.push_back(formula->addIndex(indexName(sizes, base.extents[s], "n"),
                                        IndexRole::Stream, base.extents[s]));
  SmallVector<const Formula *> formulas;
  for (unsigned m : members)
    formulas.push_back(targets[m].formula.get());
  // A product that both hold may be all that ties them.
  auto separate = [&](const Target &misfit) {
    const Formula &own = *misfit.formula;
    for (const auto *uses : {&own.contractionUses, &own.stageUses})
      for (const StageUse &use : *uses)
        if (materialise(use.op->getResult(0)))
          return false;
    // All of it is in memory, and one of the two keeps it all the same: halves
    // of a product, windows of rows that were normalised.
    for (Value tensor : {misfit.tensor, targets[members[0]].tensor})
      if (auto it = kept.find(tensor); it != kept.end()) {
        numReleased += it->second.size();
        kept.erase(it);
        return false;
      }
    return false;
  };
  CommonIndices common = CommonIndices::of(formulas);
  if (common.misfit)
    return separate(targets[members[*common.misfit]]);
  DenseMap<unsigned, unsigned> numberOf; // of common indices
  DenseMap<unsigned, unsigned> numReaders;
  for (ArrayRef<std::optional<unsigned>> numbers : common.numbers)
    for (std::optional<unsigned> number : numbers)
      if (number)
        ++numReaders[*number];
  SmallVector<unsigned> columns; // indices that one output alone has
  for (auto [place, m] : llvm::enumerate(members)) {
    Target &target = targets[m];
    ArrayRef<std::optional<unsigned>> toCommon = common.numbers[place];
    IndexSet boundOfOwn = 0;
    for (const StageUse &use : target.formula->stageUses)
      for (const IndexExpr &e : use.subscripts)
        boundOfOwn |= target.formula->atoms.indicesOf(e);
    KernelOutput output{target.tensor, {}};
    Subscripts at;
    SmallVector<unsigned> freeStreams = streams;
    // By another dimension of this output, as far as that is known.
    auto isTaken = [&](unsigned number) {
      return llvm::is_contained(output.dims, number) ||
             llvm::any_of(target.dims, [&](std::optional<unsigned> own) {
               auto known = own && toCommon[*own]
                                ? numberOf.find(*toCommon[*own])
                                : numberOf.end();
               return known != numberOf.end() && known->second == number;
             });
    };
    for (auto [d, own] : llvm::enumerate(target.dims)) {
      if (!own) {
        at.push_back(IndexExpr(0));
        output.dims.push_back(std::nullopt);
        continue;
      }
      Size size = target.formula->extents[*own];
      std::optional<unsigned> shared = toCommon[*own];
      bool isOfFirst = shared && *shared < base.extents.size();
      bool isOwn = !shared || numReaders[*shared] == 1;
      const Formula &ownFormula = *target.formula;
      bool isRank = ownFormula.cascade.indices[*own].role == IndexRole::Rank;
      bool inStage = isRank || (isOfFirst ? (bound & bit(*shared)) != 0
                                          : (boundOfOwn & bit(*own)) != 0);
      auto stream = llvm::find_if(
          freeStreams, [&](unsigned s) { return formula->extents[s] == size; });
      unsigned number;
      if (!inStage && stream != freeStreams.end()) {
        number = *stream;
        freeStreams.erase(stream);
      } else if (shared && numberOf.count(*shared)) {
        number = numberOf[*shared];
      } else if (auto other = llvm::find_if(columns,
                                            [&](unsigned i) {
                                              return isOwn &&
                                                     formula->extents[i] ==
                                                         size &&
                                                     !isTaken(i);
                                            });
                 other != columns.end()) {
        // Products of one row by several matrices have the same columns.
        number = *other;
      } else {
        number =
            formula->addIndex(indexName(sizes, size), IndexRole::Row, size);
        if (shared)
          numberOf[*shared] = number;
        if (isOwn)
          columns.push_back(number);
      }
      // c[i] d[j] beside c[i] d[i] is no diagonal.
      if (llvm::is_contained(output.dims, number))
        return separate(target);
      output.dims.push_back(number);
      at.push_back(formula->index(number));
    }
    Expr value = formula->element(target.tensor, at);
    if (!value) {
      // Outputs that have a product in common and no stream: it comes first.
      if (members.size() > 1)
        for (const StageUse &use : target.formula->contractionUses)
          if (materialise(use.op->getResult(0)))
            return false;
      recover(formula->refusal);
      return false;
    }
    std::string name = sourceName(target.tensor);
    formula->cascade.addOutput(name.empty() ? "out" : name, value,
                               placeOf(target.tensor.getLoc()));
    kernel.outputs.push_back(std::move(output));
  }
  assignRoles(*formula);
  kernel.formula = formula;
  return true;
}

//===----------------------------------------------------------------------===//
// The whole program
//===----------------------------------------------------------------------===//

/// Transcendental functions that would be computed by several kernels are
/// computed once.
bool Planner::shareExpensive() {
  DenseMap<Operation *, unsigned> uses;
  for (ArrayRef<unsigned> members : groups) {
    DenseSet<Operation *> inGroup;
    for (unsigned m : members)
      inGroup.insert(targets[m].formula->inlined.begin(),
                     targets[m].formula->inlined.end());
    for (Operation *op : inGroup)
      ++uses[op];
  }
  bool stable = true;
  for (auto [op, count] : uses) {
    if (count < 2)
      continue;
    bool costly = false;
    op->walk([&](Operation *inner) {
      costly |= isa<math::MathDialect>(inner->getDialect()) &&
                !isa<math::AbsFOp, math::SqrtOp, math::RsqrtOp, math::FmaOp,
                     math::FloorOp, math::CeilOp, math::RoundEvenOp>(inner);
    });
    if (costly)
      stable &= !materialise(op->getResult(0));
  }
  return stable;
}

/// A kernel works row by row, and has none where a row axis is empty: a result
/// without that axis is then not written. Such results get kernels of their
/// own, whose reductions the others read. False if that changed what is in
/// memory.
bool Planner::separateRows(ArrayRef<unsigned> members,
                           const KernelPlan &kernel) {
  const Formula &formula = *kernel.formula;
  bool grew = false;
  for (auto [m, output] : llvm::zip_equal(members, kernel.outputs)) {
    // An axis of the same size is empty too.
    auto hasSize = [&, &dims = output.dims](const Size &size) {
      return llvm::any_of(dims, [&](std::optional<unsigned> d) {
        return d && formula.extents[*d] == size;
      });
    };
    bool lacksRow = false;
    for (auto [i, index] : llvm::enumerate(formula.cascade.indices)) {
      const Size &extent = formula.extents[i];
      lacksRow |= index.role == IndexRole::Row &&
                  !(extent.isStatic() && extent.factor > 0) && !hasSize(extent);
    }
    if (!lacksRow)
      continue;
    for (const StageUse &use : targets[m].formula->stageUses)
      grew |= materialise(use.op->getResult(0));
    for (const StageUse &use : targets[m].formula->contractionUses)
      grew |= materialise(use.op->getResult(0));
  }
  return !grew;
}

namespace {
/// What the formula of a tensor reads and how deeply it nests, as far as that
/// shows before it is known what is in memory.
struct Reach {
  SmallVector<Value, 8> leaves; ///< of the tensor's own rank, each once
  unsigned depth = 0;
};
} // namespace

/// A chain of elementwise ops (the residual stream of a deep model) that many
/// kernels read would be computed again by each of them from all that came
/// before. It is written down where it reads more tensors than this, which is
/// also what keeps the planning of a long program linear.
static constexpr size_t kMostLeaves = 8;
/// Formulas may nest deeper (`Formula`), but reductions inside them nest too.
static constexpr unsigned kMostNested = 64;

void Planner::boundFormulas() {
  DenseMap<Value, Reach> reaches;
  auto rankOf = [](Value v) { return cast<ShapedType>(v.getType()).getRank(); };
  auto isLeaf = [](Operation *op) {
    auto generic = dyn_cast<linalg::GenericOp>(op);
    if (!isView(op) && !(generic && !generic.getNumReductionLoops()))
      return true;
    // What a product reads will be in memory.
    return llvm::any_of(op->getUsers(), [](Operation *user) {
      auto product = dyn_cast<linalg::GenericOp>(user);
      return product && isProduct(product);
    });
  };
  for (Operation &op : function.getBody().front()) {
    if (op.getNumResults() != 1 || isLeaf(&op) ||
        !isa<RankedTensorType>(op.getResult(0).getType()))
      continue;
    Value result = op.getResult(0);
    Reach reach;
    for (Value operand : op.getOperands()) {
      auto type = dyn_cast<RankedTensorType>(operand.getType());
      if (!type || operand.getDefiningOp<tensor::EmptyOp>())
        continue;
      auto it = reaches.find(operand);
      if (it == reaches.end()) {
        if (type.getRank() == rankOf(result) &&
            !llvm::is_contained(reach.leaves, operand))
          reach.leaves.push_back(operand);
        continue;
      }
      reach.depth = std::max(reach.depth, it->second.depth + 1);
      for (Value leaf : it->second.leaves)
        if (!llvm::is_contained(reach.leaves, leaf))
          reach.leaves.push_back(leaf);
    }
    bool isShared = !result.hasOneUse() && reach.leaves.size() > kMostLeaves;
    if (isShared || reach.depth > kMostNested) {
      materialise(result);
      continue; // a leaf for its readers
    }
    reaches[result] = std::move(reach);
  }
}

FailureOr<ProgramPlan> Planner::run() {
  for (Operation &op : function.getBody().front().without_terminator())
    for (Value v : op.getResults())
      if (auto type = dyn_cast<ShapedType>(v.getType());
          type && !type.hasRank())
        return op.emitError(
                   "has a tensor without rank; expected ranked tensors"),
               failure();
  Operation *end = function.getBody().front().getTerminator();
  for (Value result : end->getOperands())
    if (Value root = viewRoot(result); !isa<BlockArgument>(root)) {
      results.insert(root);
      if (!options.fuse)
        materialise(root);
    }
  for (Operation &op : function.getBody().front())
    if (isCopy(&op)) {
      materialise(op.getResult(0));
      for (Value operand : op.getOperands())
        if (isa<RankedTensorType>(operand.getType()))
          materialise(operand);
    }
  // Elements that run-time checks look at are read from memory.
  for (auto extract : function.getOps<tensor::ExtractOp>())
    materialise(extract.getTensor());
  boundFormulas();
  // Every round adds a tensor, or one that all readers need, so this ends.
  size_t before = 0;
  auto progress = [&] {
    return 2 * materialised.size() - shared.size() + numReleased;
  };
  for (bool first = true; !fatal; first = false) {
    if (!first && progress() == before) {
      fatal = Refusal{"unsupported-access",
                      "two outputs read one reduction at places that do not "
                      "correspond",
                      function, Value()};
      break;
    }
    before = progress();
    plan.kernels.clear();
    // What is decided in an early round no longer shows in a later one: the
    // notes of all rounds are kept, each once.
    std::vector<Refusal> notes;
    ties = Ties::find(function, sizes, materialised, shared, options, notes);
    for (Refusal &note : notes)
      if (llvm::none_of(plan.notes, [&](const Refusal &known) {
            return known.key == note.key && known.at == note.at;
          }))
        plan.notes.push_back(std::move(note));
    for (Value forced : ties.separate())
      options.fuse ? share(forced) : void(materialise(forced));
    for (Value alone : ties.apart())
      materialise(alone);
    if (!planProducts() || !gather() || !group() || !shareExpensive())
      continue;
    bool built = true;
    for (ArrayRef<unsigned> members : groups) {
      plan.kernels.emplace_back();
      if (!(built = buildKernel(members, plan.kernels.back())))
        break;
    }
    for (auto [members, kernel] : llvm::zip(groups, plan.kernels))
      built = built && separateRows(members, kernel);
    if (built) {
      dropUnread(function, plan);
      return std::move(plan);
    }
  }
  Operation *at = fatal->at ? fatal->at : function.getOperation();
  return at->emitError() << "no kernel can be made [" << fatal->key
                         << "]: " << fatal->text,
         failure();
}

FailureOr<ProgramPlan> refold::planKernels(func::FuncOp function,
                                           SizeTable &sizes,
                                           const PlanOptions &options) {
  return Planner(function, sizes, options).run();
}
